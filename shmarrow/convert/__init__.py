"""The one checked converter for numbers and time: between types, and between storage, numpy and Python values."""
