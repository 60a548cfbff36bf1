"""The nodes and buffers of many record batches at once.

Messages of one writer mostly differ only in their numbers. The first message of a run is decoded to locate its numbers;
messages equal in all other bytes are read by array operations, the rest one by one. The metadata of a mapped file is
read through a file descriptor, so that the pages of a million messages do not become resident.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, Limits
from shmarrow.segment.location import resolve
from shmarrow.xray.messages import read_batch

if TYPE_CHECKING:
    import numpy.typing as npt

_CHUNK = 1 << 23
"""Maximum bytes of metadata in memory at a time."""


class _Form(NamedTuple):
    """A template message, and the offsets of its numbers."""

    fixed: npt.NDArray[np.bool_]
    data: Bytes
    rows: int
    nodes: tuple[int, int]
    buffers: tuple[int, int]


class BatchTable:
    """The record batches of an object as arrays.

    Notes
    -----
    Thread safety: immutable.
    """

    def __init__(
        self,
        data: Bytes,
        blocks: npt.NDArray[np.int64],
        name: str,
        limits: Limits,
        location: str | None,
        identity: tuple[int, int, int, int] | None,
    ) -> None:
        self._data = data
        self._blocks = blocks
        self._name = name
        self._limits = limits
        self._location = location
        self._identity = identity

    def rows(self, first: int, last: int) -> npt.NDArray[np.int64]:
        """Return the number of rows of each batch."""
        made = np.empty(last - first, np.int64)
        for part, form, metadata in self._parts(first, last):
            if form is None:
                made[part.start - first] = self._one(part.start).rows
            else:
                made[part.start - first : part.stop - first] = _numbers(metadata, form.rows, 1)[:, 0]
        return made

    def nodes(self, first: int, last: int, count: int) -> npt.NDArray[np.int64]:
        """Return length and null count of each node of each batch."""
        return self._pairs(first, last, count, "nodes")

    def buffers(self, first: int, last: int, count: int) -> npt.NDArray[np.int64]:
        """Return the absolute offset and the length of each buffer of each batch."""
        made = self._pairs(first, last, count, "buffers")
        bodies = self._blocks[first:last, 0] + self._blocks[first:last, 1]
        made[:, :, 0] += bodies[:, None]
        return made

    def _pairs(self, first: int, last: int, count: int, name: str) -> npt.NDArray[np.int64]:
        made = np.empty((last - first, count, 2), np.int64)
        for part, form, metadata in self._parts(first, last):
            if form is None:
                row = getattr(self._one(part.start), name)
                self._check(part.start, len(row), count, name)
                made[part.start - first] = row
                continue
            at, found = getattr(form, name)
            self._check(part.start, found, count, name)
            found_numbers = _numbers(metadata, at, 2 * count)
            made[part.start - first : part.stop - first] = found_numbers.reshape(len(part), count, 2)
        return made

    def _check(self, index: int, found: int, count: int, name: str) -> None:
        if found != count:
            raise InvalidData(
                f"{self._name}: record batch {index} has {found} {name}; the schema needs {count} for its columns"
            )

    def _one(self, index: int) -> Any:
        offset, length, _ = self._blocks[index].tolist()
        return read_batch(self._data, offset, length, f"{self._name}: record batch {index}", self._limits)

    def _parts(self, first: int, last: int) -> Iterator[tuple[range, _Form | None, Any]]:
        """Yield ranges of batches with their common form and their metadata; batches without a form one by one."""
        if first == last:
            return
        lengths = self._blocks[first:last, 1]
        ends = [*(np.flatnonzero(np.diff(lengths)) + 1).tolist(), last - first]
        start = 0
        with self._reader() as read:
            for end in ends:
                length = int(lengths[start])
                step = max(1, _CHUNK // max(length, 1))
                for at in range(first + start, first + end, step):
                    batches = range(at, min(at + step, first + end))
                    yield from self._alike(batches, read)
                start = end

    def _alike(
        self, batches: range, read: Callable[[range], Bytes | None]
    ) -> Iterator[tuple[range, _Form | None, Any]]:
        """Split batches with metadata of equal length by form."""
        metadata = read(batches)
        if metadata is None:
            for index in batches:
                yield range(index, index + 1), None, None
            return
        form: _Form | None = None
        at = 0
        while at < len(batches):
            if form is None:
                form = self._form(batches[at], metadata[at])
            if form is None:
                yield batches[at : at + 1], None, None
                at += 1
                continue
            rest = metadata[at:]
            same = (rest[:, form.fixed] == form.data[form.fixed]).all(axis=1)
            many = len(rest) if same.all() else int(same.argmin())
            if not many:
                form = self._form(batches[at], metadata[at])
                if form is None or not (metadata[at][form.fixed] == form.data[form.fixed]).all():
                    yield batches[at : at + 1], None, None
                    at += 1
                continue
            yield batches[at : at + many], form, rest[:many]
            at += many

    def _form(self, index: int, metadata: Bytes) -> _Form | None:
        """Locate the numbers of one message; None if some are absent."""
        batch = read_batch(metadata, 0, len(metadata), f"{self._name}: record batch {index}", self._limits)
        table = batch.table
        base = int(batch.message.metadata.ctypes.data - metadata.ctypes.data)  # bytes of the prefix
        rows = table.offset_of("length")
        places = []
        for name in ("nodes", "buffers"):
            slot = table.offset_of(name)
            places.append(table.reader.vector_at(slot, 16, "RecordBatch", name) if slot else (0, 0))
        if not rows or batch.message.kind != "RecordBatch":
            return None
        fixed = np.ones(len(metadata), bool)
        fixed[base + rows : base + rows + 8] = False
        body = batch.message.table.offset_of("bodyLength")
        if body:
            fixed[base + body : base + body + 8] = False
        for start, count in places:
            fixed[base + start : base + start + 16 * count] = False
        nodes, buffers = ((base + start, count) for start, count in places)
        return _Form(fixed, metadata, base + rows, nodes, buffers)

    @contextmanager
    def _reader(self) -> Iterator[Callable[[range], Bytes | None]]:
        """Yield a function that reads metadata of equal length as the rows of an array."""
        fd = self._open()
        try:
            yield lambda batches: self._read(fd, batches)
        finally:
            if fd is not None:
                os.close(fd)

    def _open(self) -> int | None:
        """Open the mapped file again; None if it has no name, or the name now refers to another file."""
        if self._location is None or self._identity is None:
            return None
        with suppress(OSError):
            fd = os.open(resolve(self._location)[1], os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) == self._identity[:2]:
                return fd
            os.close(fd)
        return None

    def _read(self, fd: int | None, batches: range) -> Bytes | None:
        """Return the metadata of batches as rows; None if any is not within the object."""
        blocks = self._blocks[batches.start : batches.stop]
        length = int(blocks[0, 1])
        size = len(self._data)
        starts = blocks[:, 0]
        if not 8 <= length <= size or int(starts.min()) < 0 or int(starts.max()) > size - length:
            return None
        made = np.empty((len(blocks), length), np.uint8)
        if fd is None or len(blocks) == 1:
            for row, start in enumerate(starts.tolist()):
                made[row] = self._data[start : start + length]
            return made
        for row, start in enumerate(starts.tolist()):
            if os.preadv(fd, [made[row]], start) != length:
                return None
        return made


def _numbers(metadata: Bytes, start: int, count: int) -> npt.NDArray[np.int64]:
    """Return consecutive 64-bit numbers of each message."""
    return np.ascontiguousarray(metadata[:, start : start + 8 * count]).view("<i8")
