"""What is known of objects beside what their files say: when they expire, and which process owns them.

The register is a file in the control directory, a row for each object that expires or has an owner; most stores have
none. An owner is a process that holds the lock of a file of its own there: when the process is gone, however it ended,
so is the lock. Rules kept here:

* a row names its object by inode and exact time of publishing, so it stays with the object when that is renamed, and
  means nothing once the object is replaced or removed, whoever has its inode then;
* a row is written before its object gets its name, under the store's lock: no object that should have one is ever seen
  without it. The last row of an object counts;
* rows of objects that are gone are dropped when the store is collected, or when there are many of them;
* a forked child is not the owner that its parent was: it closes the descriptor, and becomes one when it needs to.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from shmarrow.segment import TEMP_PREFIX
from shmarrow.states import fork_safe_lock
from shmarrow.store.place import Place, close_in_children, forget

Key = tuple[int, int]

_ROW = np.dtype([("inode", "<u8"), ("published", "<i8"), ("deadline", "<i8"), ("owner", "<u8")])
_FILE = "register"
_OWNER = "owner-"
_CROWDED = 1 << 15
"""Rows that a register may have before it is looked through for rows of objects that are gone."""


class Row(NamedTuple):
    """What is known of an object.

    Attributes
    ----------
    deadline : int
        When it expires, in nanoseconds since 1970; 0 for never.
    owner : int
        The number of its owner; 0 for none.
    """

    deadline: int = 0
    owner: int = 0

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return 0 < self.deadline <= time.time_ns()


NOTHING = Row()


_reading = fork_safe_lock()
"""Held while rows are read, and at a fork, so that no child has a part of them."""


class Register:
    """The rows of a store, read again when the file has changed.

    Thread safety: may be shared.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._path = os.path.join(place.control, _FILE)
        self._seen: tuple[int, int, int] | None = None
        self._head = b""
        self._rows: dict[Key, Row] = {}

    def rows(self) -> dict[Key, Row]:
        """The rows by object; other threads may add to them, so whoever goes through them takes a copy first."""
        if not os.access(self._path, os.F_OK):  # most stores have none, and an exception takes longer
            return {}
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return {}
        seen = status.st_ino, status.st_ctime_ns, status.st_size
        if seen != self._seen:
            with _reading:
                self._read()
        return self._rows

    def _read(self) -> None:
        """Read what was appended; all of it if the file is another one."""
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                head = file.read(_ROW.itemsize)
                if head != self._head or self._seen is None or status.st_size < self._seen[2]:
                    rows, start = {}, len(head)
                else:
                    rows, start = self._rows, self._seen[2]
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            self._seen, self._rows = None, {}
            return
        table = np.frombuffer(data, _ROW, len(data) // _ROW.itemsize)
        rows.update({(inode, published): Row(*row) for inode, published, *row in table.tolist()})
        self._rows = rows
        self._head = head
        self._seen = status.st_ino, status.st_ctime_ns, start + table.nbytes

    def of(self, key: Key) -> Row:
        """The row of one object."""
        rows = self.rows()
        return rows.get(key, NOTHING) if rows else NOTHING

    def add(self, key: Key, row: Row) -> None:
        """Append a row; the caller holds the store's lock."""
        if row == NOTHING and key not in self.rows():
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(fd, self._place.directory_mode & 0o666)
            head = b"" if os.fstat(fd).st_size else _new_head()
            os.write(fd, head + np.array([(*key, *row)], _ROW).tobytes())
            crowded = os.fstat(fd).st_size // _ROW.itemsize
        finally:
            os.close(fd)
        if crowded >= _CROWDED and crowded.bit_count() == 1:  # each time that the rows have doubled
            self.keep({key} | {found.key for found in self._place.scan()})

    def keep(self, keys: Collection[Key]) -> None:
        """Drop the rows of all other objects; the caller holds the store's lock."""
        kept = [(*key, *row) for key, row in self.rows().copy().items() if key in keys and row != NOTHING]
        if not kept:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            return
        temp = os.path.join(self._place.control, TEMP_PREFIX + _FILE)
        with open(temp, "wb") as file:
            os.fchmod(file.fileno(), self._place.directory_mode & 0o666)
            file.write(_new_head() + np.array(kept, _ROW).tobytes())
        os.replace(temp, self._path)


def _new_head() -> bytes:
    """The first row of a register, by which it is told from others that have its inode after it."""
    return np.array([(0, int.from_bytes(os.urandom(7)), 0, 0)], _ROW).tobytes()


class Owner:
    """The owner that this process is: a locked file in the control directory."""

    def __init__(self, place: Place) -> None:
        """Make the file; the caller holds the store's lock."""
        self.pid = os.getpid()
        while True:
            self.number = int.from_bytes(os.urandom(8)) >> 1 or 1
            self._path = os.path.join(place.control, f"{_OWNER}{self.number:016x}-{self.pid}")
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                break
            except FileExistsError:
                continue
        close_in_children(self._fd)
        os.fchmod(self._fd, place.directory_mode & 0o666)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def close(self) -> None:
        """Own nothing any more; what was owned is collectable from here on."""
        if self._fd >= 0 and os.getpid() == self.pid:
            forget(self._fd)
            os.close(self._fd)
        self._fd = -1


class Seen(NamedTuple):
    """An owner as others see it."""

    number: int
    pid: int
    alive: bool
    path: str


def owners(place: Place) -> Iterator[Seen]:
    """All owners of the store, living and dead; the caller holds the store's lock."""
    for file in os.listdir(place.control):
        if not file.startswith(_OWNER):
            continue
        number, _, pid = file.removeprefix(_OWNER).partition("-")
        path = os.path.join(place.control, file)
        try:
            yield Seen(int(number, 16), int(pid), _is_locked(path), path)
        except FileNotFoundError:
            continue


def _is_locked(path: str) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
