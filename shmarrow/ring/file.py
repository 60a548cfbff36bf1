"""The file of a ring in a process: created, opened, taken over and removed; and its processes woken.

Invariants:

* a ring gets its name when it is complete and its writer has the lock, so nobody sees a new ring without a writer;
* only who holds the writer's lock unlinks the name, and only while it leads to that file;
* whoever opens a semaphore here trusts its user as much as that of the ring.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from typing import Any

from shmarrow import segment
from shmarrow.errors import ObjectExists, ObjectNotFound, StorageError, storage_error
from shmarrow.ring import protocol as p
from shmarrow.ring.protocol import Control, Geometry, new_geometry, read_geometry, refused_owner
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

Trusted = bool | tuple[int, ...]
RECHECK = 0.1
"""Seconds after which a waiting process checks without having been woken."""


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
    control : Control
        Its control pages and locks.
    head : uint8 ndarray
        The message that describes all frames.
    slots : list of uint8 ndarray
        The memory of each slot.
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
        self._users = None if trusted is True else frozenset({os.geteuid(), 0, *(trusted or ())})
        self._semaphores: dict[int, tuple[int, Semaphore | None]] = {}
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        data = map_file(fd, made.size, name, None, prot)  # no handle to a slot: it will hold another frame
        pages = data
        if writable is False:
            pages = map_file(fd, p.CONTROL_SIZE, name, None, mmap.PROT_READ | mmap.PROT_WRITE)
        self.head = data[p.CONTROL_SIZE : p.CONTROL_SIZE + made.head_size]
        ends = range(made.first, made.size + 1, made.stride)
        self.slots = [data[start : start + made.stride] for start in ends[:-1]]
        self._data = data
        # Another open file, as the locks of one that is mapped would last as long as the last array.
        flags = (os.O_RDONLY if writable is None else os.O_RDWR) | os.O_CLOEXEC
        self.control = Control(made, pages, os.open(f"/proc/self/fd/{fd}", flags))
        _OPEN.add(self.control)

    @property
    def location(self) -> str:
        """The ``shm:`` name or absolute path to open it by."""
        return self.name if is_shm(self.name) else self.path

    @property
    def is_named(self) -> bool:
        """Whether its name leads to it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.control.fd))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Release the locks; arrays keep the memory mapped."""
        self.control.close()
        self._semaphores.clear()

    # --- the writer's ---

    def prefault(self) -> None:
        """Prefault all pages."""
        populate(self._data)

    def adopt(self) -> None:
        """Continue after a writer that has ended, with the lock: a frame that it did not publish never was."""
        words, newest = self.control.words, self.control.newest()[0]
        for word in self.control.slots:
            if words[word] > newest:
                words[word] = 0
        words[p.WRITER] = os.getpid()

    def end(self) -> None:
        """End the ring for its readers, and remove its name; with the writer's lock."""
        words = self.control.words
        words[p.CLOSED] = 1
        self.wake_readers()
        for number, entry in enumerate(self.control.entries):
            if words[entry + p.PROCESS] or words[entry + p.SEMAPHORE]:
                self.free_if_dead(number)
        self.drop_semaphore(p.WRITER_SEMAPHORE)
        if self.is_named:  # at last: who is killed before has a successor, which does the rest
            os.unlink(self.path)

    def free_if_dead(self, number: int) -> bool:
        """Free the entry of a reader that has ended, with its semaphore; whether it had."""
        control = self.control
        if not control.try_lock(p.reader_lock(number)):
            return False
        entry = control.entries[number]
        control.words[entry + p.PROCESS] = control.words[entry + p.HELD] = control.words[entry + p.WAITS] = 0
        self.drop_semaphore(entry + p.SEMAPHORE)
        control.unlock(p.reader_lock(number))
        return True

    def wake_readers(self) -> None:
        """Wake the readers that wait."""
        control = self.control
        for entry, waits in zip(control.entries, control.all(p.WAITS), strict=True):
            if waits:
                self.wake(entry + p.WAITS, entry + p.SEMAPHORE)

    # --- a reader's ---

    def claim(self) -> int:
        """Lock an entry for a reader, which starts after the newest frame; -1 if all are taken."""
        control = self.control
        words = control.words
        for number, entry in enumerate(control.entries):
            if control.try_lock(p.reader_lock(number)):
                self.drop_semaphore(entry + p.SEMAPHORE)
                words[entry + p.HELD] = words[entry + p.MISSED] = words[entry + p.WAITS] = 0
                words[entry + p.TAKEN] = control.newest()[0]
                words[entry + p.PROCESS] = os.getpid()
                # A writer that did not see the entry yet may have published one frame until here, and no more.
                control.fence()
                words[entry + p.TAKEN] = control.newest()[0]
                return number
        return -1

    # --- waiting ---

    def wake(self, asked: int, place: int) -> None:
        """Wake a process, if the word says that it waits, by the semaphore whose number is at a place."""
        words = self.control.words
        if not words[asked]:
            return
        words[asked] = 0
        known = self._semaphores.get(place)
        if known is None or known[0] != words[place]:
            number = words[place]
            known = self._semaphores[place] = number, open_semaphore(number, self._users)
        if known[1] is not None:
            known[1].post()

    def make_semaphore(self, place: int) -> None:
        """Create the semaphore of this process, whose number is at a place that this process writes."""
        self.control.words[place] = number = new_number()
        mode = os.fstat(self.control.fd).st_mode & 0o666
        self._semaphores[place] = number, create_semaphore(number, mode)

    def drop_semaphore(self, place: int) -> None:
        """Remove the semaphore whose number is at a place."""
        words = self.control.words
        number = words[place]
        self._semaphores.pop(place, None)
        if number:
            remove_semaphore(number)
            words[place] = 0

    def pause(self, asked: int, place: int, left: float, waited: float, ready: Any) -> None:
        """Wait to be woken, or for a while, unless ``ready()``."""
        own = self._semaphores.get(place)
        words = self.control.words
        words[asked] = 1
        if not ready():
            wait_for_post(None if own is None else own[1], min(left, RECHECK), waited)
        words[asked] = 0


_OPEN: weakref.WeakSet[Control] = weakref.WeakSet()


def _after_fork() -> None:
    for control in list(_OPEN):
        control.close()  # or this child would keep the locks of its parent when that has ended


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
            error = refused_owner(os.fstat(fd), trusted, name)
            if error is not None:
                raise error
            return RingFile(name, path, fd, writable, trusted)
        finally:
            os.close(fd)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, "open the ring", name) from None


def open_for_writing(where: Location, frames: Any, slots: int, policy: int, mode: int, trusted: Trusted) -> RingFile:
    """Create a ring, or continue one whose writer has ended; returns it with the writer's lock.

    Raises
    ------
    ObjectExists
        If another writer is alive.
    StoreFull
        If there is no space for it.
    """
    name, _ = resolve(where)
    geometry = new_geometry(frames.kind, policy, slots, len(frames.head), frames.size)
    while True:
        try:
            return _create(where, geometry, frames.head, mode, trusted)
        except ObjectExists:
            pass
        try:
            found = open_file(where, True, trusted)
        except ObjectNotFound:
            continue
        if not found.control.try_lock(p.WRITER_LOCK):
            process = found.control.words[p.WRITER]
            found.close()
            raise ObjectExists(
                errno.EEXIST,
                f"cannot write to the ring {name!r}: process {process} is its writer, and a ring has one",
                hint="close that one first",
            )
        if found.is_named:
            same = found.geometry == geometry and found.head.tobytes() == frames.head
            if same and not found.control.words[p.CLOSED]:
                found.adopt()
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
        made.control.try_lock(p.WRITER_LOCK)
        made.control.words[p.WRITER] = os.getpid()
        made.prefault()
        writer.close()
    except BaseException:
        writer.abort()
        if made is not None:
            made.close()
        raise
    return made
