"""The layout of a ring's file, and the control words and locks that writer and readers share.

``docs/ring.md`` specifies both. All integers are little-endian and unsigned. Invariants:

* the geometry is constant, and is checked once against the size of the file. All else in the control pages may change
  at any time, to any value: what is read there is checked on use;
* words of 8 bytes are written whole, each by one process only: those of an entry by its reader, or by the writer while
  it holds the lock of a dead reader's entry; all others by the writer. Exceptions are the words that ask to be woken,
  which are hints;
* locks belong to an open file (``F_OFD_SETLK``), so they exclude each other within a process too. The descriptor that
  holds them is never mapped or inherited: the kernel releases them when the Ring is closed, or its process has ended;
* two processes that each write a word and then read the other's must not both miss it. Each calls
  :meth:`Control.fence` in between: a system call that takes the kernel's lock of the file's list of locks, which puts
  the two calls in an order, on any processor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from typing import Any, NamedTuple

from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, StorageError

MAGIC = b"shmaring"
VERSION = 1
BATCH, TENSOR = 1, 2
"""Kinds of frames."""
LATEST, ALL = 1, 2
POLICIES = {"latest": LATEST, "all": ALL}

FIXED = struct.Struct("<8sIIIIQQQ")
"""Magic, version, kind, policy, slots; size of the schema; offset and size of the slots."""
NEWEST, CLOSED, WRITER, WRITER_WAITS, WRITER_SEMAPHORE = range(16, 21)
"""Words: the newest frame, as its number times the number of slots, plus its slot; 1 once the writer has closed the
ring; the writer's process id; 1 if the writer waits; the number of its semaphore."""
SEQUENCES = 256
"""The word of slot 0: the number of the frame in it, 0 while it is written."""
ENTRIES, ENTRY = 512, 8
"""The first word of the entry of reader 0, and the words of an entry."""
PROCESS, TAKEN, HELD, MISSED, WAITS, SEMAPHORE = range(6)
"""Words of an entry: the reader's process id, 0 if it is free; the last frame that it took; 0, or 1 plus the slot that
it holds; the frames that it missed so far; 1 if it waits; the number of its semaphore."""
CONTROL_SIZE = 8192
PAGE = 4096
MOST_SLOTS, MOST_READERS = 64, 32

REORDERED = os.uname().machine not in ("x86_64", "i686")
"""Whether the processor may let others see two writes in another order."""

_LOCK = struct.Struct("hhqqi4x")
_FENCE = _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 1 << 62, 1, 0)
_GET, _SET = getattr(fcntl, "F_OFD_GETLK", 36), getattr(fcntl, "F_OFD_SETLK", 37)


class Geometry(NamedTuple):
    """The constant part of a ring's file; see :data:`FIXED`."""

    magic: bytes
    version: int
    kind: int
    policy: int
    slots: int
    head_size: int
    first: int
    stride: int

    @property
    def entries(self) -> int:
        """The number of readers that there may be: with the latest frames, there is always a slot that none holds."""
        return min(self.slots - 1, MOST_READERS) if self.policy == LATEST else MOST_READERS

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.first + self.slots * self.stride


def new_geometry(kind: int, policy: int, slots: int, head_size: int, frame_size: int) -> Geometry:
    """The geometry of a ring for a schema and frames of these sizes."""
    first = _pages(CONTROL_SIZE + head_size)
    return Geometry(MAGIC, VERSION, kind, policy, slots, head_size, first, _pages(frame_size))


def _pages(size: int) -> int:
    return max(-(-size // PAGE), 1) * PAGE


def read_geometry(fd: int, name: str) -> Geometry:
    """Read and check the geometry of an open file.

    Raises
    ------
    InvalidData
        If it is not a ring, or is damaged.
    """
    found = os.fstat(fd)
    data = os.pread(fd, FIXED.size, 0) if stat.S_ISREG(found.st_mode) else b""
    if len(data) < FIXED.size or not data.startswith(MAGIC):
        raise InvalidData(f"{name!r} is not a ring: expected a file that begins with {MAGIC!r}, found {data[:8]!r}")
    made = Geometry(*FIXED.unpack(data))
    if made.version != VERSION:
        raise InvalidData(f"the ring {name!r} has version {made.version} of the layout, expected {VERSION}")
    sound = (
        made.kind in (BATCH, TENSOR)
        and made.policy in POLICIES.values()
        and 2 <= made.slots <= MOST_SLOTS
        and made.head_size <= DEFAULT_LIMITS.metadata_bytes
        and CONTROL_SIZE + made.head_size <= made.first
        and made.first % PAGE == 0 < made.stride
        and made.stride % PAGE == 0
    )
    if not sound or made.size != found.st_size:
        raise InvalidData(f"the ring {name!r} is damaged: {made} in a file of {found.st_size} bytes")
    return made


class Control:
    """The mapped control pages of a ring, and a descriptor for locks.

    Attributes
    ----------
    words : memoryview of uint64
        The control pages.
    columns : list of memoryview of uint64
        Each word of all entries.
    fd : int
        The descriptor that holds the locks; -1 after :meth:`close`.

    Notes
    -----
    Thread safety: one thread at a time.
    """

    def __init__(self, geometry: Geometry, data: Bytes, fd: int) -> None:
        self.geometry = geometry
        self.slots = range(SEQUENCES, SEQUENCES + geometry.slots)
        self.entries = range(ENTRIES, ENTRIES + ENTRY * geometry.entries, ENTRY)
        self.words: Any = data[:CONTROL_SIZE].data.cast("Q")
        self._sequences = self.words[SEQUENCES : self.slots.stop]
        self.columns = [self.words[ENTRIES + word : self.entries.stop : ENTRY] for word in range(ENTRY)]
        self.fd = fd

    def close(self) -> None:
        """Release the locks."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def fence(self) -> None:
        """Order what this process wrote before all that it reads after, for all that call it on this file."""
        fcntl.fcntl(self.fd, _GET, _FENCE)

    def try_lock(self, place: int) -> bool:
        """Lock one byte; False if another open file has locked it."""
        try:
            fcntl.fcntl(self.fd, _SET, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def unlock(self, place: int) -> None:
        """Unlock one byte."""
        fcntl.fcntl(self.fd, _SET, _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, place, 1, 0))

    def is_locked(self, place: int) -> bool:
        """Whether another open file has locked a byte."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        return bool(_LOCK.unpack(fcntl.fcntl(self.fd, _GET, asked))[0] != fcntl.F_UNLCK)

    def newest(self) -> tuple[int, int]:
        """The number and the slot of the newest frame; 0, 0 if there is none."""
        return divmod(self.words[NEWEST], self.geometry.slots)  # type: ignore[no-any-return]

    def sequences(self) -> list[int]:
        """The number of the frame in each slot, 0 while it is written."""
        return self._sequences.tolist()

    def all(self, word: int) -> list[int]:
        """A word of each entry."""
        return self.columns[word].tolist()


WRITER_LOCK = 0
"""The byte that the writer locks."""


def reader_lock(number: int) -> int:
    """The byte that a reader locks."""
    return 1 + number


def refused_owner(found: os.stat_result, trusted: bool | tuple[int, ...], name: str) -> StorageError | None:
    """The error for a ring that users who are not trusted own or may write to, if any."""
    if trusted is True:
        return None
    if found.st_uid not in (os.geteuid(), 0, *(trusted or ())):
        reason = f"user {found.st_uid} owns it, and this process runs as user {os.geteuid()}"
    elif found.st_mode & 0o022 and not trusted:
        reason = f"its mode is {stat.S_IMODE(found.st_mode):04o}, so others may write to it"
    else:
        return None
    return StorageError(
        errno.EPERM,
        reason,
        where=[(f"cannot open the ring {name!r}",)],
        hint="that user could change frames while they are read: pass trust=USER, or trust=True to trust anyone",
    )
