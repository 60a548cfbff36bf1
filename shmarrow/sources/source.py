"""The names of :mod:`shmarrow.sources` under an older address."""

from shmarrow.sources.base import Source
from shmarrow.sources.sinks import Sink

__all__ = ["Sink", "Source"]
