# SPDX-License-Identifier: Apache-2.0
"""Sources over seekable file objects that cannot be mapped, such as ``fsspec`` files on an object store.

Only the ranges that somebody needs are read, those less than :data:`MERGED_GAP` bytes apart together, up to
:data:`MERGED_BYTES`. The read-ahead of ``fsspec`` files, of megabytes per range, is bypassed. The body of a message is
anonymous memory of its full size, into which ranges are read: what builds arrays finds bytes, as in a mapped file.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from _thread import allocate_lock
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from shmarrow.buffer import EMPTY, U1, Bytes, as_bytes
from shmarrow.errors import Closed, InvalidData, InvalidType, LimitExceeded, StorageError
from shmarrow.memory.sequential import SequentialSource, is_decompressing, raise_io_error
from shmarrow.memory.source import Source, name_of

MERGED_GAP = 1 << 13
MERGED_BYTES = 1 << 23

# The last one may be larger than the memory that there is. It has a name from Python 3.13 on.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000 * (sys.platform == "linux"))


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

    A read that follows the last one is extended to twice its size, so reading many small messages in order takes few
    reads. Calls are serialized by a lock, and raise in a forked child, whose reads would move its parent's position.
    """

    __slots__ = ("_end", "_fetcher", "_file", "_first", "_last", "_lock", "_pid", "_stream")

    def __init__(self, file: Any, name: str, size: int) -> None:
        super().__init__(name, None, size=size)
        self._file = file
        self._stream = SequentialSource(file)
        # The cache of an fsspec file has a function that fetches a range directly.
        self._fetcher = getattr(getattr(file, "cache", None), "fetcher", None)
        self._lock = allocate_lock()
        self._pid = os.getpid()
        self._end = size
        # The last bytes read, up to MERGED_BYTES, and where they begin.
        self._first, self._last = 0, EMPTY

    def _read(self, start: int, stop: int) -> Bytes:
        if os.getpid() != self._pid:
            raise Closed(f"{self.name} was opened by process {self._pid}; open it again in its children")
        if not 0 <= start <= stop <= self._end:
            raise InvalidData(f"{self.name}: expected the bytes [{start}, {stop}), found {self._end} bytes")
        with self._lock:
            if self.closed:
                raise self._closed_error()
            first, last = self._first, self._first + len(self._last)
            head = self._last[start - first : stop - first] if first <= start <= last else EMPTY
            if len(head) == stop - start:
                return head.copy()
            begin = start + len(head)
            ahead = 2 * len(self._last) if last <= begin < last + MERGED_GAP else 0
            part = self._load(begin, max(stop, min(begin + ahead, begin + MERGED_BYTES, self._end)))
            self._first, self._last = (begin, part) if len(part) <= MERGED_BYTES else (stop, EMPTY)
        return part if len(part) == stop - start else np.concatenate([head, part[: stop - begin]])

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
        return part

    def _closed_error(self) -> Closed:
        return Closed(
            f"the reader of {self.name} is closed, and this column was not read before; "
            "use read_all(), or the columns, before closing it"
        )

    def close(self) -> None:
        super().close()
        with nullcontext() if os.getpid() != self._pid else self._lock:  # a child's copy may stay locked
            self._last = EMPTY
            self._stream.close()
            self._file = self._fetcher = None


class SourceRange:
    """The bytes of a source up to an offset, read when they are sliced; a substitute for an ndarray of them."""

    __slots__ = ("_size", "_source")

    def __init__(self, source: RangeSource, size: int) -> None:
        self._source = source
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> Bytes:
        return self._source.read(part.start, part.stop)

    def body(self, start: int, stop: int) -> RangeBody:
        """The body of a message, of which nothing is read yet."""
        return RangeBody(self._source, start, stop - start)


class RangeBody:
    """The body of a message in memory of its full size, into which ranges are read when they are needed.

    Notes
    -----
    Thread safety: may be shared. Threads that need the same bytes at the same time may both read them.
    """

    __slots__ = ("_data", "_present", "_room", "_source", "_start")

    def __init__(self, source: RangeSource, start: int, size: int) -> None:
        self._source = source
        self._start = start
        self._room = _memory(size)
        self._data = self._room[:]
        self._data.flags.writeable = False
        # What was read: disjoint ranges in order; replaced as a whole.
        self._present: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._data)

    def have(self, ranges: Iterable[tuple[int, int]]) -> Bytes:
        """Return the whole body, read-only, in which the bytes of some (start, stop) ranges are present."""
        for start, stop in merged(sorted(ranges)):
            for first, last in missing(self._present, start, stop):
                self._room[first:last] = self._source.read(self._start + first, self._start + last)
            self._present = list(merged(sorted([*self._present, (start, stop)]), 1, 1 << 63))
        return self._data


def _memory(size: int) -> Bytes:
    """Anonymous memory, which takes none until it is written to."""
    try:
        return np.frombuffer(mmap.mmap(-1, size, flags=_FLAGS), U1) if size else EMPTY
    except (OSError, OverflowError, ValueError):
        raise LimitExceeded(f"not enough memory for a body of {size} bytes") from None


def merged(
    ranges: Iterable[tuple[int, int]], gap: int = MERGED_GAP, most: int = MERGED_BYTES
) -> Iterator[tuple[int, int]]:
    """Merge sorted ranges that overlap or are less than ``gap`` apart, up to ``most``; the results are disjoint."""
    start = stop = -gap
    for first, last in ranges:
        if first - stop >= gap or (first >= stop and last - start > most):
            if stop > 0:
                yield start, stop
            start = first
        stop = max(stop, last)
    if stop > 0:
        yield start, stop


def missing(present: Sequence[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The parts of a range that are in none of some disjoint ranges in order."""
    for first, last in present:
        if start < last and first < stop:
            if start < first:
                yield start, first
            start = last
    if start < stop:
        yield start, stop
