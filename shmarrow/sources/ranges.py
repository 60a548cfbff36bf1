"""Sources over file objects that can seek and cannot be mapped, such as those of ``fsspec`` on an object store.

Mapped: nothing. Read: the ranges that are asked for; ranges that :meth:`RangeSource.fetch` is given together are read
together where less than :data:`MERGED_GAP` bytes lie between them. The read-ahead of an ``fsspec`` file is passed by:
it would get megabytes around each range. Copied: nothing else; the arrays are views of what was read.

What was read is kept, and found again, up to :data:`CACHE_BYTES`; the ranges of the last call of ``fetch`` are kept
whatever their size.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

from shmarrow.buffer import Bytes, as_bytes
from shmarrow.errors import InvalidData, StorageError
from shmarrow.segment.attached import EMPTY
from shmarrow.sources.base import Source, name_of
from shmarrow.sources.sequential import Reader, is_decompressing, raise_io_error

MERGED_GAP = 1 << 13
CACHE_BYTES = 1 << 24


def open_ranges(file: Any) -> RangeSource | None:
    """A file object that can seek; None where it cannot, or only by reading all that lies in between."""
    seekable = getattr(file, "seekable", None)
    if not (hasattr(file, "seek") and hasattr(file, "tell")) or is_decompressing(file):
        return None
    name = name_of(file)
    try:
        if seekable is not None and not seekable():
            return None
        file.seek(0, 2)
        size = file.tell()
    except Exception as error:
        raise_io_error(error, "find the size of", name)
    return RangeSource(file, name, size)


class RangeSource(Source):
    """A file object of which ranges are read. Its calls take turns by a lock."""

    __slots__ = ("_cached", "_held", "_lock", "_range", "_starts")

    def __init__(self, file: Any, name: str, size: int) -> None:
        super().__init__(name, None, size=size)
        self._range = _ranged(file, name)
        self._lock = Lock()
        # What was read, by where it starts, in the order of use; and its size.
        self._cached: dict[int, Bytes] = {}
        self._starts: list[int] = []
        self._held = 0

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read (start, stop) ranges that are not here yet; many neighbours in one read."""
        for start, stop in ranges:
            self._check(start, stop)
        with self._lock:
            wanted = sorted([each for each in ranges if each[0] < each[1] and self._find(*each) is None])
            total = sum([len(self._load(start, stop)) for start, stop in merged(wanted)])
            self._shrink(max(CACHE_BYTES, total))

    def _read(self, start: int, stop: int) -> Bytes:
        self._check(start, stop)
        if start == stop:
            return EMPTY
        with self._lock:
            found = self._find(start, stop)
            if found is None:
                found = self._load(start, stop)
                self._shrink(CACHE_BYTES)
        return found

    def _check(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= (self.size or 0):
            raise InvalidData(f"{self.name}: expected the bytes [{start}, {stop}), found {self.size} bytes")

    def _find(self, start: int, stop: int) -> Bytes | None:
        """The range, if it lies within one that is here."""
        if self.closed:
            raise self._closed_error()
        at = bisect_right(self._starts, start) - 1
        first = self._starts[at] if at >= 0 else 0
        if at < 0 or stop - first > len(self._cached[first]):
            return None
        part = self._cached[first] = self._cached.pop(first)  # used last
        return part[start - first : stop - first]

    def _load(self, start: int, stop: int) -> Bytes:
        part = self._range(start, stop)
        self._drop(start)
        insort(self._starts, start)
        self._cached[start] = part
        self._held += len(part)
        return part

    def _drop(self, start: int) -> None:
        part = self._cached.pop(start, None)
        if part is not None:
            del self._starts[bisect_right(self._starts, start) - 1]
            self._held -= len(part)

    def _shrink(self, most: int) -> None:
        while self._held > most:
            self._drop(next(iter(self._cached)))

    def close(self) -> None:
        with self._lock:
            super().close()
            self._cached.clear()
            self._starts.clear()
            self._held = 0
            self._range = _closed_range


def merged(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sorted ranges, with those put together that overlap or between which little lies."""
    start = stop = -1
    for first, last in ranges:
        if start >= 0 and first - stop < MERGED_GAP:
            stop = max(stop, last)
            continue
        if start >= 0:
            yield start, stop
        start, stop = first, last
    if start >= 0:
        yield start, stop


def _ranged(file: Any, name: str) -> Callable[[int, int], Bytes]:
    """What reads the bytes from a start to a stop, all of them."""
    # The cache of an fsspec file knows how to get a range without it.
    fetcher: Any = getattr(getattr(file, "cache", None), "fetcher", None)
    reader = Reader(file, name)

    def by_fetcher(start: int, stop: int) -> Bytes:
        try:
            found = as_bytes(fetcher(start, stop))
        except Exception as error:
            raise_io_error(error, "read", name)
        return _complete(found, start, stop, name)

    def by_seek(start: int, stop: int) -> Bytes:
        try:
            file.seek(start)
        except Exception as error:
            raise_io_error(error, "read", name)
        return _complete(reader.read(stop - start), start, stop, name)

    return by_fetcher if callable(fetcher) else by_seek


def _complete(found: Bytes, start: int, stop: int, name: str) -> Bytes:
    if len(found) != stop - start:
        raise StorageError(
            0,
            f"cannot read {name!r}: expected the bytes [{start}, {stop}), found {len(found)} of them; the file may "
            "have been replaced by another one",
        )
    return found


def _closed_range(start: int, stop: int) -> Bytes:
    raise AssertionError("a closed source is asked for bytes")
