"""Byte ranges of a source that is read on access."""

from __future__ import annotations

from collections.abc import Sequence

from shmarrow.buffer import Bytes
from shmarrow.sources.base import Source


class SourceRange:
    """The bytes ``[start, stop)`` of a source, read on access; a substitute for an ndarray of them.

    Supports ``len()`` and slices with both ends; a slice reads its bytes unless :meth:`fetch` did.
    """

    __slots__ = ("_source", "_start", "_stop")

    def __init__(self, source: Source, start: int, stop: int) -> None:
        self._source = source
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, part: slice) -> Bytes:
        return self._source.read(self._start + part.start, self._start + part.stop)

    def part(self, part: slice) -> SourceRange:
        """A subrange; reads nothing."""
        return SourceRange(self._source, self._start + part.start, self._start + part.stop)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Prefetch (start, stop) ranges for the slices that follow; adjacent ones in one read."""
        self._source.fetch([(self._start + start, self._start + stop) for start, stop in ranges])
