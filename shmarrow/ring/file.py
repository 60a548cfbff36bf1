"""The file of a ring in a process: its control words, locks and semaphores; created, opened, taken over and removed.

Invariants:

* the geometry is constant, and is checked once against the size of the file. All else in the control pages may change
  at any time, to any value: what is read there is checked on use;
* words of 8 bytes are written whole, each by one process only: those of an entry by its reader, or by the writer while
  it holds the lock of a dead reader's entry; all others by the writer. Exceptions are the words that ask to be woken,
  which are hints;
* locks belong to an open file (``F_OFD_SETLK``), so they exclude each other within a process too. The descriptor that
  holds them is never mapped or inherited: the kernel releases them when the Ring is closed, or its process has ended;
* two processes that each write a word and then read the other's must not both miss it. Each calls
  :meth:`RingFile.fence` in between: a system call that takes the kernel's lock of the file's list of locks, which puts
  the two calls in an order, on any processor;
* a ring gets its name when it is complete and its writer has the lock, so nobody sees a new ring without a writer;
* only who holds the writer's lock unlinks the name, and only while it leads to that file;
* whoever opens a semaphore here trusts its user as much as that of the ring.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
import weakref
from collections.abc import Callable
from typing import Any

from shmarrow import segment
from shmarrow.errors import Closed, ObjectExists, ObjectNotFound, StorageError, storage_error
from shmarrow.ring import protocol as p
from shmarrow.ring.protocol import Geometry, new_geometry, read_geometry
from shmarrow.segment.files import populate
from shmarrow.segment.location import Location, is_shm, resolve
from shmarrow.segment.mappings import map_file
from shmarrow.segment.semaphore import (
    Semaphore,
    create_semaphore,
    new_number,
    open_semaphore,
    remove_semaphore,
    wait_for_post,
)
from shmarrow.store.directory import trusted_users

Trusted = bool | tuple[int, ...]
RECHECK = 0.1
"""Seconds after which a waiting process checks without having been woken."""
_LOCK = struct.Struct("hhqqi4x")
_FENCE = _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 1 << 62, 1, 0)
_GET, _SET = getattr(fcntl, "F_OFD_GETLK", 36), getattr(fcntl, "F_OFD_SETLK", 37)


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
    fd : int
        The descriptor that holds the locks; -1 after :meth:`close`.

    Notes
    -----
    Thread safety: one thread at a time.
    """

    def __init__(self, name: str, path: str, fd: int, writable: bool | None, trusted: Trusted) -> None:
        """Map an open file.

        Parameters
        ----------
        writable : bool or None
            True for the writer; False for readers, who write to the control pages only; None for who only looks.
        """
        self.name = name
        self.path = os.path.abspath(path)
        self.geometry = made = read_geometry(fd, name)
        self._users = trusted_users(trusted)
        self._semaphores: dict[int, tuple[int, Semaphore | None]] = {}
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.data = data = pages = map_file(fd, made.size, name, None, prot)  # no handle: it will hold another frame
        if writable is False:
            pages = map_file(fd, p.CONTROL_SIZE, name, None, mmap.PROT_READ | mmap.PROT_WRITE)
        self.head = data[p.CONTROL_SIZE : p.CONTROL_SIZE + made.head_size]
        self.slots = [data[start : start + made.stride] for start in range(made.first, made.size, made.stride)]
        self.words: Any = pages[: p.CONTROL_SIZE].data.cast("Q")
        self.sequences: Any = self.words[p.SEQUENCES : p.SEQUENCES + made.slots]
        self.entries = range(p.ENTRIES, p.ENTRIES + p.ENTRY * made.entries, p.ENTRY)
        self._columns = [self.words[p.ENTRIES + word : self.entries.stop : p.ENTRY] for word in range(p.ENTRY)]
        # Another open file, as the locks of one that is mapped would last as long as the last array.
        flags = (os.O_RDONLY if writable is None else os.O_RDWR) | os.O_CLOEXEC
        self.fd = os.open(f"/proc/self/fd/{fd}", flags)
        self._own: set[int] = set()  # the bytes that it has locked
        _OPEN.add(self)

    @property
    def location(self) -> str:
        """The ``shm:`` name or absolute path to open it by."""
        return self.name if is_shm(self.name) else self.path

    @property
    def is_named(self) -> bool:
        """Whether its name leads to it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.fd))
        except FileNotFoundError:
            return False

    @property
    def newest(self) -> int:
        """The number of the newest frame; 0 if there is none."""
        return self.words[p.NEWEST] // self.geometry.slots

    def numbers(self) -> list[int]:
        """The number of the frame in each slot; 0 while it is written, and if it was never published."""
        newest = self.newest
        return [number if number <= newest else 0 for number in self.sequences.tolist()]

    def all(self, word: int) -> list[int]:
        """A word of each entry."""
        return self._columns[word].tolist()

    def close(self) -> None:
        """Release the locks; arrays keep the memory mapped."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
        self._semaphores.clear()

    # --- locks ---

    def fence(self) -> None:
        """Order what this process wrote before all that it reads after, for all that call it on this file."""
        self._call(_GET, _FENCE)

    def try_lock(self, place: int) -> bool:
        """Lock one byte; False if another open file has locked it."""
        try:
            self._call(_SET, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        self._own.add(place)
        return True

    def unlock(self, place: int) -> None:
        """Unlock one byte."""
        self._call(_SET, _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, place, 1, 0))
        self._own.discard(place)

    def is_locked(self, place: int) -> bool:
        """Whether this or another open file has locked a byte."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        return place in self._own or bool(_LOCK.unpack(self._call(_GET, asked))[0] != fcntl.F_UNLCK)

    def _call(self, command: int, lock: bytes) -> bytes:
        if self.fd < 0:  # a signal handler has closed it in the middle of a call
            raise Closed(f"the ring {self.name!r} is closed")
        return fcntl.fcntl(self.fd, command, lock)

    # --- the writer's ---

    def end(self) -> None:
        """End the ring for its readers, and remove its name; with the writer's lock."""
        words = self.words
        words[p.CLOSED] = 1
        for number, entry in enumerate(self.entries):
            self.wake(entry + p.WAITS)
            if words[entry + p.PROCESS] or words[entry + p.SEMAPHORE]:
                self.free_if_dead(number)
        self.drop_semaphore(p.WRITER_WAITS)
        if self.is_named:  # at last: who is killed before has a successor, which does the rest
            try:
                os.unlink(self.path)
            except OSError as error:
                raise storage_error(error, "remove the ring", self.name) from None

    def free_if_dead(self, number: int) -> bool:
        """Free the entry of a reader that has ended, with its semaphore; whether it had."""
        if not self.try_lock(p.READER_LOCKS + number):
            return False
        entry, words = self.entries[number], self.words
        words[entry + p.PROCESS] = words[entry + p.HELD] = words[entry + p.WAITS] = 0
        self.drop_semaphore(entry + p.WAITS)
        self.unlock(p.READER_LOCKS + number)
        return True

    # --- a reader's ---

    def claim(self) -> int:
        """Lock an entry for a reader, which starts after the newest frame, and return it; 0 if all are taken."""
        words = self.words
        for number, entry in enumerate(self.entries):
            if self.try_lock(p.READER_LOCKS + number):
                self.drop_semaphore(entry + p.WAITS)
                words[entry + p.HELD] = words[entry + p.MISSED] = words[entry + p.WAITS] = 0
                words[entry + p.TAKEN] = self.newest
                words[entry + p.PROCESS] = os.getpid()
                # A writer that did not see the entry yet may have published one frame until here, and no more.
                self.fence()
                words[entry + p.TAKEN] = self.newest
                self.make_semaphore(entry + p.WAITS)  # at last: from here on, others see that the reader is open
                return entry
        return 0

    # --- waiting: at a place is the word that says that a process waits, and the number of its semaphore ---

    def wake(self, place: int) -> None:
        """Wake a process, if it waits."""
        words = self.words
        if not words[place]:
            return
        words[place] = 0
        number = words[place + 1]
        known = self._semaphores.get(place)
        if known is None or known[0] != number:
            known = self._semaphores[place] = number, open_semaphore(number, self._users)
        if known[1] is not None:
            known[1].post()

    def make_semaphore(self, place: int) -> None:
        """Create the semaphore of this process."""
        self.words[place + 1] = number = new_number()
        mode = os.fstat(self.fd).st_mode & 0o666
        self._semaphores[place] = number, create_semaphore(number, mode)

    def drop_semaphore(self, place: int) -> None:
        """Remove a semaphore."""
        known, _ = self._semaphores.pop(place, (0, None))
        for number in {known, self.words[place + 1]} - {0}:  # another process may have changed the word
            remove_semaphore(number)
        self.words[place + 1] = 0

    def pause(self, place: int, left: float, waited: float, ready: Callable[[], bool]) -> None:
        """Wait to be woken, or for a while, unless ``ready()``."""
        own = self._semaphores.get(place)
        self.words[place] = 1
        if not ready():
            wait_for_post(None if own is None else own[1], min(left, RECHECK), waited)
        self.words[place] = 0


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
    name, path = resolve(where)
    flags = (os.O_RDONLY if writable is None else os.O_RDWR) | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, flags | (os.O_NOFOLLOW if is_shm(name) else 0))
        try:
            _check_owner(os.fstat(fd), trusted, name)
            return RingFile(name, path, fd, writable, trusted)
        finally:
            os.close(fd)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, "open the ring", name) from None


def _check_owner(found: os.stat_result, trusted: Trusted, name: str) -> None:
    """Raise StorageError for a ring that users who are not trusted own or may write to."""
    users = trusted_users(trusted)
    if users is None or (found.st_uid in users and (trusted or not found.st_mode & 0o022)):
        return
    if found.st_uid in users:
        reason = f"its mode is {stat.S_IMODE(found.st_mode):04o}, so others may write to it"
    else:
        reason = f"user {found.st_uid} owns it, and this process runs as user {os.geteuid()}"
    raise StorageError(
        errno.EPERM,
        reason,
        where=[(f"cannot open the ring {name!r}",)],
        hint="that user could change frames while they are read: pass trust=USER, or trust=True to trust anyone",
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
    name, path = resolve(where)
    geometry = new_geometry(frames.kind, policy, slots, len(frames.head), frames.size)
    while True:
        try:
            return _create(where, geometry, frames.head, mode, trusted)
        except ObjectExists:
            pass
        try:
            found = open_file(where, True, trusted)
        except ObjectNotFound:
            if os.path.islink(path):
                raise
            continue
        if not found.try_lock(p.WRITER_LOCK):
            process = found.words[p.WRITER]
            found.close()
            raise ObjectExists(
                errno.EEXIST,
                f"cannot write to the ring {name!r}: process {process} is its writer, and a ring has one",
                hint="close that one first",
            )
        if found.is_named:
            same = found.geometry == geometry and found.head.tobytes() == frames.head
            if same and not found.words[p.CLOSED]:
                found.words[p.WRITER] = os.getpid()
                return found
            found.end()
        found.close()


def _create(where: Location, geometry: Geometry, head: bytes, mode: int, trusted: Trusted) -> RingFile:
    writer = segment.create(where, mode=mode)
    made = None
    try:
        writer.write_at(0, [p.FIXED.pack(*geometry)])
        writer.write_at(p.CONTROL_SIZE, [head])
        writer.reserve(geometry.size)
        writer.write_at(geometry.size - 1, [bytes(1)])
        made = RingFile(writer.name, writer.path, writer.fileno(), True, trusted)
        made.try_lock(p.WRITER_LOCK)
        made.words[p.WRITER] = os.getpid()
        populate(made.data)
        writer.close()
    except BaseException:
        writer.abort()
        if made is not None:
            made.close()
        raise
    return made
