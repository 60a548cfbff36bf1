"""A part of a source whose bytes are not in memory, and are read when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence

from shmarrow.buffer import Bytes
from shmarrow.sources.base import Source


class SourceRange:
    """The bytes of a source from ``start`` to ``stop``; stands where an ndarray of them would.

    ``len()`` and slices with both ends are those of the ndarray; a slice reads its bytes unless :meth:`fetch` did.
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

    def part(self, start: int, stop: int) -> SourceRange:
        """A part of this part; reads nothing."""
        return SourceRange(self._source, self._start + start, self._start + stop)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read (start, stop) ranges together, neighbours in one read, for the slices that follow."""
        self._source.fetch([(self._start + start, self._start + stop) for start, stop in ranges])
