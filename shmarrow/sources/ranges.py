"""Sources over seekable file objects that cannot be mapped, such as ``fsspec`` files on an object store.

Only requested ranges are read. :meth:`RangeSource.fetch` merges ranges less than :data:`MERGED_GAP` bytes apart, up to
:data:`MERGED_BYTES`. The read-ahead of ``fsspec`` files, of megabytes per range, is bypassed. Nothing is copied: arrays
are views of the bytes read.

Bytes read are cached up to :data:`CACHE_BYTES`; the ranges of the last ``fetch`` are always kept.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from shmarrow.buffer import EMPTY, Bytes, as_bytes
from shmarrow.errors import Closed, InvalidData, InvalidType, StorageError
from shmarrow.sources.base import Source, name_of
from shmarrow.sources.sequential import SequentialSource, is_decompressing, raise_io_error

MERGED_GAP = 1 << 13
MERGED_BYTES = 1 << 23
CACHE_BYTES = 1 << 24


def open_ranges(file: Any) -> RangeSource | None:
    """Open a seekable file object; None if it cannot seek, or only by reading everything in between."""
    if not (hasattr(file, "seek") and hasattr(file, "tell")) or is_decompressing(file):
        return None
    name = name_of(file)
    try:
        if hasattr(file, "seekable") and not file.seekable():
            return None
        file.seek(0, 2)
        size = file.tell()
    except Exception as error:
        raise_io_error(error, "find the size of", name)
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or not 0 <= size < 1 << 63:
        raise InvalidType(f"tell() of {name} should give the size of the file as an int, found {size!r}")
    return RangeSource(file, name, int(size))


class RangeSource(Source):
    """A file object read by ranges.

    Calls are serialized by a lock, and raise in a forked child, whose reads would move its parent's position.
    """

    __slots__ = ("_cached", "_cached_bytes", "_fetcher", "_file", "_lock", "_pid", "_starts", "_stream")

    def __init__(self, file: Any, name: str, size: int) -> None:
        super().__init__(name, None, size=size)
        self._file = file
        self._stream = SequentialSource(file)
        # The cache of an fsspec file has a function that fetches a range directly.
        self._fetcher = getattr(getattr(file, "cache", None), "fetcher", None)
        self._lock = allocate_lock()
        self._pid = os.getpid()
        # Cached parts by start, in LRU order; and their total size.
        self._cached: dict[int, Bytes] = {}
        self._starts: list[int] = []
        self._cached_bytes = 0

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        for start, stop in ranges:
            self._check(start, stop)
        with self._lock:
            self._load_all(ranges)

    def _load_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        parts = {each: self._part_with(*each) for each in ranges if each[0] < each[1]}
        total = sum([len(self._cached[part]) for part in {*parts.values()} if part is not None])
        wanted = sorted([each for each, part in parts.items() if part is None])
        total += sum([len(self._load(start, stop)) for start, stop in merged(wanted)])
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
        if os.getpid() != self._pid:
            raise Closed(f"{self.name} was opened by process {self._pid}; open it again in its children")
        if not 0 <= start <= stop <= (self.size or 0):
            raise InvalidData(f"{self.name}: expected the bytes [{start}, {stop}), found {self.size} bytes")

    def _find(self, start: int, stop: int) -> Bytes | None:
        """The range, if it is cached."""
        first = self._part_with(start, stop)
        return None if first is None else self._cached[first][start - first : stop - first]

    def _part_with(self, start: int, stop: int) -> int | None:
        """Start of the cached part that contains the range; no part contains another."""
        if self.closed:
            raise self._closed_error()
        at = bisect_right(self._starts, start) - 1
        first = self._starts[at] if at >= 0 else 0
        if at < 0 or stop - first > len(self._cached[first]):
            return None
        self._cached[first] = self._cached.pop(first)  # most recently used
        return first

    def _load(self, start: int, stop: int) -> Bytes:
        try:
            if callable(self._fetcher):
                part = as_bytes(self._fetcher(start, stop))
            else:
                self._file.seek(start)
                part = self._stream.take(stop - start)
        except Exception as error:
            raise_io_error(error, "read", self.name)
        if len(part) != stop - start:
            raise StorageError(
                errno.EIO,
                f"cannot read {self.name!r}: expected the bytes [{start}, {stop}), found {len(part)} of them; the file "
                "may have been replaced",
            )
        for inner in self._starts[bisect_left(self._starts, start) : bisect_left(self._starts, stop)]:
            if inner + len(self._cached[inner]) <= stop:
                self._drop(inner)
        insort(self._starts, start)
        self._cached[start] = part
        self._cached_bytes += len(part)
        return part

    def _drop(self, start: int) -> None:
        part = self._cached.pop(start, None)
        if part is not None:
            self._starts.remove(start)
            self._cached_bytes -= len(part)

    def _shrink(self, most: int) -> None:
        while self._cached_bytes > most:
            self._drop(next(iter(self._cached)))

    def _closed_error(self) -> Closed:
        return Closed(
            f"the reader of {self.name} is closed, and this column was not read before; "
            "use read_all(), or the columns, before closing it"
        )

    def close(self) -> None:
        super().close()
        with nullcontext() if os.getpid() != self._pid else self._lock:  # a child's copy may stay locked
            self._shrink(0)
            self._stream.close()
            self._file = self._fetcher = None


def merged(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sort ranges and merge those that overlap or are close; the results are disjoint."""
    start = stop = -MERGED_GAP
    for first, last in ranges:
        if first - stop >= MERGED_GAP or (first >= stop and last - start > MERGED_BYTES):
            if stop > 0:
                yield start, stop
            start = first
        stop = max(stop, last)
    if stop > 0:
        yield start, stop


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
