# SPDX-License-Identifier: Apache-2.0
"""The control file: its bytes, mapped by every process, and the journal, through which commits change them.

Invariants:

* all of a commit is written to a journal, with its number and a checksum, before any of it is applied. It has happened
  once its journal is complete: if its writer is killed then, the next holder of the commit lock applies it;
* the file is extended before a commit uses what was added; a process that finds more slots in use than it has mapped
  maps the file again.
"""

from __future__ import annotations

import _thread
import errno
import mmap
import os
import zlib
from collections.abc import Iterator
from typing import NamedTuple, Self

from shmarrow.errors import InvalidData, StorageError, StoreFull, storage_error
from shmarrow.memory import allocate
from shmarrow.memory.locks import ORDERED
from shmarrow.store import protocol as p

BUCKETS, SEQUENCE, JOURNAL, EVENTS = p.word("buckets"), p.word("sequence"), p.word("journal"), p.word("events")
_MOST_NEW_SLOTS = 8192
_SPARSE, _SPARSE_FREE = 1024, 1 << 26
"""Maximum ratio of size to allocated bytes of a control file (it may be compressed), and bytes allowed on top."""
JOURNAL_NUMBERS = [area >> 3 for area in p.JOURNALS]
"""Indices of the numbers of the commits in the journals in the 64-bit words."""
_LARGEST = (1 << 64) - 1
_PADDING = [bytes(-size % 8) for size in range(8)]
_MOST = p.JOURNAL_SIZE - p.JOURNAL_HEAD.size
_FIRST_CHANGED = p.HEADER["capacity"][0]

Commit = tuple[int, bytes]
"""Number and payload of a journal."""
Pieces = list[tuple[int, bytes]]
"""The changes of a commit: offsets in the control file, and what is written there."""


def fence() -> None:
    """Order what this thread reads and writes before and after it, as other processes see it.

    Processors other than x86 may exchange stores, and loads. Releasing a lock and acquiring it again prevents that.
    """
    if not ORDERED:
        lock = _thread.allocate_lock()
        for _ in range(2):
            lock.acquire()
            lock.release()


class Memory(NamedTuple):
    """A mapped control file, viewed as bytes, as 64-bit words, and as 32-bit words."""

    bytes: memoryview
    words: memoryview
    ints: memoryview
    slots: int

    @classmethod
    def of(cls, data: mmap.mmap | bytearray) -> Self:
        """Return the views of a control file."""
        view = memoryview(data)
        return cls(view, view.cast("Q"), view.cast("I"), (len(view) - p.SLOTS) // p.SLOT_SIZE)

    def state(self) -> p.State:
        """Copy the state from the header."""
        return p.State._make(p.STATE.struct.unpack_from(self.bytes, p.STATE.start))

    def slot(self, number: int) -> memoryview:
        """Return the bytes of a slot."""
        at = p.SLOTS + number * p.SLOT_SIZE
        return self.bytes[at : at + p.SLOT_SIZE]

    def journal(self, area: int) -> Commit | None:
        """Return the commit in a journal; None if it is not complete."""
        number, length, checksum = p.JOURNAL_HEAD.unpack_from(self.bytes, area)
        start = area + p.JOURNAL_HEAD.size
        payload = bytes(self.bytes[start : start + min(length, _MOST)])
        whole = len(payload) == length and zlib.crc32(payload, zlib.crc32(number.to_bytes(8, "little"))) == checksum
        return (number, payload) if whole else None

    def pending(self) -> Commit | None:
        """Return the commit that has happened and is not applied yet; None at most times."""
        number = self.words[JOURNAL] + 1
        if self.words[JOURNAL_NUMBERS[number & 1]] != number:
            return None
        commit = self.journal(p.JOURNALS[number & 1])
        return commit if commit is not None and commit[0] == number else None

    def apply(self, commit: Commit) -> None:
        """Apply a commit: its pieces to their places, then its number."""
        number, payload = commit
        if not self.words[SEQUENCE] & 1:
            self.words[SEQUENCE] = self.words[SEQUENCE] + 1 & _LARGEST
        fence()
        for offset, piece in pieces_of(payload):
            if offset >= _FIRST_CHANGED and offset + len(piece) <= len(self.bytes):
                self.bytes[offset : offset + len(piece)] = piece
        self.words[JOURNAL] = number  # one store, unlike the copies above: until then, the commit is applied again


def pieces_of(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the pieces in the payload of a journal: offsets and bytes."""
    at = 0
    while at + p.PIECE.size <= len(payload):
        offset, size, _ = p.PIECE.unpack_from(payload, at)
        at += p.PIECE.size
        yield offset, payload[at : at + size]
        at += size + -size % 8


class ControlFile:
    """The mapped control file of a store.

    Attributes
    ----------
    fd : int
        Its descriptor, which this neither opens nor closes.
    memory : Memory
        The last mapping. Earlier ones stay valid as long as they are used.
    """

    def __init__(self, fd: int, name: str, writable: bool, volatile: bool, check: bool) -> None:
        self.fd = fd
        self._name = name
        self._writable = writable
        self._volatile = volatile
        self.memory = self.map(check)

    # --- mapping ---

    def map(self, check: bool = True) -> Memory:
        """Map the whole file again; InvalidData if it is too small for the slots in use, unless ``check`` is false."""
        try:
            self.memory = self._map(check)
        except StorageError:
            raise
        except OSError as error:  # no memory, or no descriptor: the mmap module duplicates it
            raise storage_error(error, "map the control file of", self._name) from None
        return self.memory

    def _map(self, check: bool) -> Memory:
        used = int.from_bytes(os.pread(self.fd, 8, BUCKETS << 3), "little") if check else 0
        status = os.fstat(self.fd)
        allocated, have = status.st_blocks * 512, status.st_size
        count, used = (have - p.SLOTS) // p.SLOT_SIZE, max(used, 1)
        size = p.SLOTS + count * p.SLOT_SIZE
        if not used <= count < 1 << 31:
            raise InvalidData(
                f"the control file of {self._name!r} is damaged: {used} slots need {p.SLOTS + used * p.SLOT_SIZE} "
                f"bytes, found {have}"
            )
        if allocated < size:  # a sparse copy; touching a hole on a full file system raises SIGBUS
            if size > allocated * _SPARSE + _SPARSE_FREE or (self._volatile and not self._writable):
                raise InvalidData(
                    f"the control file of {self._name!r} has holes: {allocated} of {size} bytes are allocated; copy it "
                    "without holes (cp --sparse=never)"
                )
            self._allocate(0, size, "fill the holes in the control file of") if self._writable else None
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if self._writable else 0)
        return Memory.of(mmap.mmap(self.fd, size, prot=prot))

    def whole(self) -> Memory:
        """Return the memory, mapped again if another process has extended the file."""
        memory = self.memory
        return self.map() if memory.words[BUCKETS] > memory.slots else memory

    def grow(self) -> Memory:
        """Add slots to the file; called under the commit lock when all are in use."""
        count = self.memory.slots
        if self.map().slots == count:  # or somebody has extended it who did not commit
            size = min(count, _MOST_NEW_SLOTS) * p.SLOT_SIZE
            self._allocate(p.SLOTS + count * p.SLOT_SIZE, size, "extend the control file of")
            self.map()
        return self.memory

    def _allocate(self, start: int, size: int, what: str) -> None:
        try:
            allocate(self.fd, start, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT) and start:
                status = os.fstatvfs(self.fd)
                raise StoreFull(
                    error.errno,
                    f"no room for the catalog of {self._name!r} to grow beyond {self.memory.slots} objects: {size} "
                    f"bytes are needed, {status.f_bavail * status.f_frsize} are free",
                ) from None
            raise storage_error(error, what, self._name) from None

    def sync(self) -> None:
        """Write it to the disk."""
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise storage_error(error, "write the catalog of", self._name) from None

    # --- committing; called under the commit lock ---

    def commit(self, pieces: Pieces, durable: bool) -> None:
        """Write pieces to their places: all of them or, if this raises, none."""
        data, words, *_ = self.memory
        number = words[JOURNAL] + 1
        parts: list[bytes] = []
        for offset, piece in pieces:
            size = len(piece)
            parts += p.PIECE.pack(offset, size, 0), piece
            if size & 7:
                parts.append(_PADDING[size & 7])
        payload = b"".join(parts)
        area = p.JOURNALS[number & 1]
        start = area + p.JOURNAL_HEAD.size
        if len(payload) > _MOST:
            raise InvalidData(f"the catalog is damaged: a commit of {len(payload)} bytes exceeds the journal")
        data[start : start + len(payload)] = payload
        checksum = zlib.crc32(payload, zlib.crc32(number.to_bytes(8, "little")))
        p.JOURNAL_HEAD.pack_into(data, area, number, len(payload), checksum)
        if durable:
            try:
                self.sync()
            except BaseException:
                data[area:start] = bytes(p.JOURNAL_HEAD.size)  # or it would be applied later
                raise
        words[SEQUENCE] += 1  # the commit has happened, and is applied from here
        if not ORDERED:
            fence()
        for offset, piece in pieces:
            data[offset : offset + len(piece)] = piece
        words[JOURNAL] = number  # the commit is applied
        if not ORDERED:
            fence()
        words[SEQUENCE] += 1

    def replay(self) -> bool:
        """Apply the commit that a killed writer did not; return whether there was one."""
        memory = self.memory
        if commit := memory.pending():
            memory = self.map()  # all of the file: the commit may be the first one after it was extended
            memory.apply(commit)
            fence()
        words = memory.words
        if words[SEQUENCE] & 1:
            words[SEQUENCE] = words[SEQUENCE] + 1 & _LARGEST
        return commit is not None
