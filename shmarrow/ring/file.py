# SPDX-License-Identifier: Apache-2.0
"""The file of a ring in a process: its control words and locks; created, opened, taken over and removed.

Invariants:

* the geometry is constant, and is checked once against the size of the file. All else in the control pages may change
  at any time, to any value: what is read there is checked on use;
* words of 8 bytes are written whole, each by one process only: those of an entry by its reader, all others by the
  writer. Exceptions are the words that ask to be woken, which are hints;
* an entry counts only while its byte is locked: nobody clears what a killed reader left, and the next one resets it;
* locks belong to an open file, so they exclude each other within a process too. The descriptor that holds them is never
  mapped or inherited: the kernel releases them when the Ring is closed, or its process has ended;
* two processes that each write a word and then read the other's must not both miss it: each calls
  :meth:`~shmarrow.memory.locks.Exclusive.fence` in between;
* a ring gets its name when it is complete and its writer has the lock, so nobody sees a new ring without a writer;
* only who holds the writer's lock unlinks the name, and only while it leads to that file.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import weakref
from typing import Any

from shmarrow import memory
from shmarrow.errors import ObjectExists, ObjectNotFound, StorageError, Unsupported, storage_error
from shmarrow.memory import Exclusive, Futexes, Location, check_shm, is_shm, map_file, open_unlocked, populate, resolve
from shmarrow.ring import protocol as p
from shmarrow.ring.protocol import Geometry, new_geometry, read_geometry
from shmarrow.store.directory import trusted_users

Trusted = bool | tuple[int, ...]


class RingFile:
    """An open ring.

    Attributes
    ----------
    name : str
        Its location, as given.
    path : str
        Its absolute path.
    geometry : Geometry
        Its layout.
    data : uint8 ndarray
        All of it.
    head : uint8 ndarray
        The message that describes all frames.
    slots : list of uint8 ndarray
        The memory of each slot.
    words : memoryview of uint64
        The control pages.
    sequences : memoryview of uint64
        The number of the frame in each slot, 0 while it is written.
    entries : range
        The first word of each entry.
    columns : list of memoryview of uint64
        Each word of all entries.
    locks : Exclusive
        The bytes that are locked here. Its descriptor is -1 after :meth:`close`.
    futexes : Futexes
        The words on which processes wait.

    Notes
    -----
    Thread safety: one thread at a time.
    """

    def __init__(self, name: str, path: str, fd: int, writable: bool | None) -> None:
        """Map an open file.

        Parameters
        ----------
        writable : bool or None
            True for the writer; False for readers, who write to the control pages only; None for who only looks.
        """
        self.name = name
        self.path = os.path.abspath(path)
        self.geometry = geometry = read_geometry(fd, name)
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            self.data = data = pages = map_file(
                fd, geometry.size, name, None, prot
            )  # no handle: it will hold another frame
            if writable is False:
                pages = map_file(fd, p.CONTROL_SIZE, name, None, mmap.PROT_READ | mmap.PROT_WRITE)
            # Another open file, as the locks of one that is mapped would last as long as the last array.
            flags = (os.O_RDONLY if writable is None else os.O_RDWR) | os.O_CLOEXEC
            self.locks = _locks_of(fd, flags, name)
        except OSError as error:
            raise storage_error(error, "map the ring", name) from None
        self.head = data[p.CONTROL_SIZE : p.CONTROL_SIZE + geometry.head_size]
        self.slots = [
            data[start : start + geometry.stride] for start in range(geometry.first, geometry.size, geometry.stride)
        ]
        self.words: Any = pages[: p.CONTROL_SIZE].data.cast("Q")
        self.futexes = Futexes(self.words, 8)
        self.sequences: Any = self.words[p.SEQUENCES : p.SEQUENCES + geometry.slots]
        self.entries = range(p.ENTRIES, p.ENTRIES + p.ENTRY * geometry.entries, p.ENTRY)
        self.columns = [self.words[p.ENTRIES + word : self.entries.stop : p.ENTRY] for word in range(p.ENTRY)]
        _OPEN.add(self)

    @property
    def location(self) -> str:
        """The ``shm:`` name or absolute path to open it by."""
        return self.name if is_shm(self.name) else self.path

    @property
    def is_named(self) -> bool:
        """Whether its name leads to it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.locks.fd))
        except FileNotFoundError:
            return False

    @property
    def newest(self) -> int:
        """The number of the newest frame; 0 if there is none."""
        return self.words[p.NEWEST] // self.geometry.slots

    def close(self) -> None:
        """Release the locks; arrays keep the memory mapped."""
        fd, self.locks.fd = self.locks.fd, -1
        if fd >= 0:
            os.close(fd)

    # --- the writer's ---

    def end(self) -> None:
        """End the ring for its readers, and remove its name; with the writer's lock."""
        self.words[p.CLOSED] = 1
        for entry in self.entries:
            self.futexes.wake(entry + p.WAITS)
        if self.is_named:  # at last: who is killed before has a successor, which does the rest
            try:
                os.unlink(self.path)
            except OSError as error:
                raise storage_error(error, "remove the ring", self.name) from None

    # --- a reader's ---

    def claim(self) -> int:
        """Lock an entry for a reader, which starts after the newest frame, and return it; 0 if all are taken."""
        words = self.words
        for number, entry in enumerate(self.entries):
            if self.locks.acquire(p.READER_LOCKS + number):
                for word in (p.HELD, p.OPEN, p.MISSED, p.WAITS):
                    words[entry + word] = 0
                words[entry + p.TAKEN] = self.newest
                words[entry + p.PROCESS] = os.getpid()
                # A writer that did not see the entry yet may have published one frame until here, and no more.
                self.locks.fence()
                words[entry + p.TAKEN] = self.newest
                words[entry + p.OPEN] = 1  # at last: from here on, others see that the reader is open
                return entry
        return 0


_OPEN: weakref.WeakSet[RingFile] = weakref.WeakSet()


def _after_fork() -> None:
    for file in list(_OPEN):
        file.close()  # or this child would keep the locks of its parent when that has ended


os.register_at_fork(after_in_child=_after_fork)


# --- opening ----------------------------------------------------------------------------------------------------


def open_file(where: Location, writable: bool | None, trusted: Trusted) -> RingFile:
    """Open an existing ring.

    Raises
    ------
    ObjectNotFound
        If there is none.
    StorageError
        If it is refused by the operating system, or its owner is not trusted.
    InvalidData
        If the file is not a ring, or is damaged.
    """
    name, path = _resolved(where)
    flags = (os.O_RDONLY if writable is None else os.O_RDWR) | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = open_unlocked(path, flags | (os.O_NOFOLLOW if is_shm(name) else 0))
        try:
            _check_owner(os.fstat(fd), trusted, name)
            return RingFile(name, path, fd, writable)
        finally:
            os.close(fd)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, "open the ring", name) from None


def _check_owner(status: os.stat_result, trusted: Trusted, name: str) -> None:
    """Raise StorageError for a ring that users who are not trusted own or may write to."""
    users = trusted_users(trusted)
    if users is None or (status.st_uid in users and (trusted or not status.st_mode & 0o022)):
        return
    if status.st_uid in users:
        reason = f"its mode is {stat.S_IMODE(status.st_mode):04o}, so others may write to it"
    else:
        reason = f"user {status.st_uid} owns it, and this process runs as user {os.geteuid()}"
    raise StorageError(
        errno.EPERM,
        reason,
        where=[(f"cannot open the ring {name!r}",)],
        hint="that user could change frames while they are read: pass accept_users=USER, or True",
    )


def open_for_writing(where: Location, frames: Any, slots: int, policy: int, mode: int, trusted: Trusted) -> RingFile:
    """Create a ring, or continue one whose writer has ended; returns it with the writer's lock.

    Raises
    ------
    ObjectExists
        If another writer is alive.
    ObjectNotFound
        If it is a symbolic link to nothing.
    StoreFull
        If there is no space for it.
    """
    name, path = _resolved(where)
    geometry = new_geometry(frames.kind, policy, slots, len(frames.head), frames.size)
    while True:
        try:
            return _create(where, geometry, frames.head, mode)
        except ObjectExists:
            pass
        try:
            ring = open_file(where, True, trusted)
        except ObjectNotFound:
            if os.path.islink(path):
                raise
            continue
        if not ring.locks.acquire(p.WRITER_LOCK):
            process = ring.words[p.WRITER]
            ring.close()
            raise ObjectExists(
                errno.EEXIST,
                f"cannot write to the ring {name!r}: process {process} is its writer, and a ring has one",
                hint="close that one first",
            )
        if ring.is_named:
            same = ring.geometry == geometry and ring.head.tobytes() == frames.head
            if same and not ring.words[p.CLOSED]:
                ring.words[p.WRITER] = os.getpid()
                return ring
            ring.end()
        ring.close()


def _resolved(where: Location) -> tuple[str, str]:
    """Return the name and path of a ring; Unsupported if it is not a file, whose locks rings need."""
    name, path = resolve(where)
    if is_shm(name):
        check_shm(name)
    return name, path


def _locks_of(fd: int, flags: int, name: str) -> Exclusive:
    """Open the file again for its locks; Unsupported if the system has none that belong to an open file."""
    lack = "/proc, through which a file is opened again"
    try:
        again = os.open(f"/proc/self/fd/{fd}", flags)
        try:
            lack = "locks of open files (F_OFD_SETLK)"
            locks = Exclusive(again, of_file=True)
            locks.is_locked(p.WRITER_LOCK)
            return locks
        except BaseException:
            os.close(again)
            raise
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EPERM):
            raise
        raise Unsupported(f"cannot open the ring {name!r}: the system has no {lack} ({error.strerror})") from None


def _create(where: Location, geometry: Geometry, head: bytes, mode: int, again: bool = False) -> RingFile:
    writer = memory.create(where, mode=mode)
    ring = None
    try:
        writer.write([p.FIXED.pack(*geometry)], 0)
        writer.write([head], p.CONTROL_SIZE)
        writer.reserve(geometry.size)
        writer.write([bytes(1)], geometry.size - 1)
        ring = RingFile(writer.name, writer.path, writer.fileno(), True)
        ring.locks.acquire(p.WRITER_LOCK)
        ring.words[p.WRITER] = os.getpid()
        populate(ring.data)
        writer.close()
    except BaseException as error:
        writer.abort()
        if ring is not None:
            ring.close()
        if ring is not None and isinstance(error, Unsupported) and not again:  # unnamed files cannot be linked
            return _create(where, geometry, head, mode, again=True)
        raise
    return ring
