"""The bytes of a control file: mapped, extended, and mapped again after another process has extended it."""

from __future__ import annotations

import _thread
import errno
import mmap
import os
import platform
from typing import NamedTuple, Self

from shmarrow.errors import InvalidData, StoreFull, storage_error
from shmarrow.store import protocol as p

BUCKETS, SEQUENCE, JOURNAL, EVENTS = p.word("buckets"), p.word("sequence"), p.word("journal"), p.word("events")
_ORDERED = platform.machine() in ("x86_64", "AMD64")
_MOST_NEW_SLOTS = 8192
_SPARSE, _SPARSE_FREE = 1024, 1 << 26
"""Maximum ratio of size to allocated bytes of a control file (it may be compressed), and bytes allowed on top."""


def fence() -> None:
    """Order what this thread reads and writes before and after it, as other processes see it.

    Processors other than x86 may exchange stores, and loads. Releasing a lock and acquiring it again prevents that.
    """
    if not _ORDERED:
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

    def map(self, check: bool = True) -> Memory:
        """Map the whole file again; InvalidData if it is too small for the slots in use, unless ``check`` is false."""
        used = int.from_bytes(os.pread(self.fd, 8, BUCKETS << 3), "little") if check else 0
        status = os.fstat(self.fd)
        have, found = status.st_blocks * 512, status.st_size
        count, used = (found - p.SLOTS) // p.SLOT_SIZE, max(used, 1)
        size = p.SLOTS + count * p.SLOT_SIZE
        if not used <= count < 1 << 31:
            raise InvalidData(
                f"the control file of {self._name!r} is damaged: {used} slots need {p.SLOTS + used * p.SLOT_SIZE} "
                f"bytes, found {found}"
            )
        if have < size:  # a sparse copy; touching a hole on a full file system raises SIGBUS
            if size > have * _SPARSE + _SPARSE_FREE or (self._volatile and not self._writable):
                raise InvalidData(
                    f"the control file of {self._name!r} has holes: {have} of {size} bytes are allocated; copy it "
                    "without holes (cp --sparse=never)"
                )
            self._allocate(0, size, "fill the holes in the control file of") if self._writable else None
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if self._writable else 0)
        self.memory = Memory.of(mmap.mmap(self.fd, size, prot=prot))
        return self.memory

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
            os.posix_fallocate(self.fd, start, size)
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
