"""The one checked converter for numbers and time: between types, and between storage, numpy and Python values."""

from shmarrow.convert.storage import convert, convertible

__all__ = ["convert", "convertible"]
