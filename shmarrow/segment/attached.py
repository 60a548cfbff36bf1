"""Attaching: a published object as a read-only mapping, locked against eviction.

Rules kept here:

* attaching never creates, truncates or writes, and its cost does not depend on the object's size;
* the mapping is read-only, and everything is cut from one ndarray over it, so memory is unmapped when the last array is
  gone, whatever was closed or unlinked before;
* while it is mapped its file is locked with ``flock(LOCK_SH)``, which tells eviction that it is in use; it can be read
  also where no lock can be had.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import time
from collections.abc import Container
from typing import Self

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import Closed, StorageError
from shmarrow.segment.location import (
    SHM_IS_FILES,
    Location,
    is_shm,
    not_regular,
    posix_calls,
    posix_name,
    refused,
    resolve,
)

O_ATTACH = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_O_NOATIME: int = getattr(os, "O_NOATIME", 0)
_LOCK_TRIES = 100
_LOCK_PAUSE = 0.001

_EMPTY = np.empty(0, U1)
_EMPTY.flags.writeable = False


class Segment:
    """A published object, attached read-only; made by :func:`attach`.

    Attributes
    ----------
    name : str
        The location it was attached from.
    size : int
        Its size in bytes.
    status : os.stat_result
        What the file was when it was attached.
    """

    __slots__ = ("_data", "_fd", "name", "size", "status")

    def __init__(self, name: str, data: Bytes, fd: int, found: os.stat_result) -> None:
        self.name = name
        self.size = len(data)
        self.status = found
        self._data: Bytes | None = data
        self._fd = fd

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Device, inode, size and time of change (ns) of the file when it was attached."""
        status = self.status
        return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns

    @property
    def data(self) -> Bytes:
        """The bytes: one read-only ``uint8`` ndarray of shape (size,) over the mapping, nothing copied.

        Raises
        ------
        Closed
            After :meth:`close`.
        """
        if self._data is None:
            raise Closed(f"segment {self.name!r} is closed; attach to it again")
        return self._data

    @property
    def mode(self) -> int:
        """The permission bits of the file."""
        if self._fd < 0:
            raise Closed(f"segment {self.name!r} is closed; attach to it again")
        return stat.S_IMODE(os.fstat(self._fd).st_mode)

    def mark_used(self) -> None:
        """Say in the time of access that the object is used now, which no read of a mapping does."""
        try:
            os.utime(self._fd, ns=(time.time_ns(), self.status.st_mtime_ns))
        except OSError:
            return  # another user's file, or a read-only file system

    def close(self) -> None:
        """Let go of the mapping; it is unmapped when the last array cut from it is gone. Safe to call again."""
        self._data = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Segment {self.name!r}, {self.size} bytes{', closed' if self._data is None else ''}>"


def attach(where: Location, *, owners: Container[int] | None = None) -> Segment:
    """Map a published object read-only, at a cost that does not depend on its size.

    While arrays of it live, the mapping keeps one file descriptor open and the file locked with ``flock(LOCK_SH)``,
    which is how eviction knows that the object is in use.

    Parameters
    ----------
    where : str or PathLike
        A path, or ``shm:NAME``.
    owners : container of int, optional
        The users whose objects are accepted; all users' where it is not given.

    Raises
    ------
    ObjectNotFound
        If there is no object of this name.
    StorageError
        If it is not a regular file, or is another user's, or the operating system refuses to open or map it.
    InvalidArgument
        If ``where`` is not a proper name.
    """
    name, path = resolve(where)
    # shm_open follows no links either: in a directory that all may write, a link is someone's trap.
    return attach_path(name, path, path != name, owners)


def attach_path(
    name: str, path: str, refuse_links: bool = True, owners: Container[int] | None = None, unnoticed: bool = False
) -> Segment:
    """Attach to a file whose path is known to be proper; as :func:`attach`.

    Parameters
    ----------
    name : str
        What it is called in messages.
    path : str
        The file.
    refuse_links : bool
        Whether a symbolic link is an error.
    owners : container of int, optional
        The users whose files are accepted; all users' where it is not given.
    unnoticed : bool
        Leave the time of access as it is, where the system allows it: for the file's owner.
    """
    flags = O_ATTACH | os.O_NOFOLLOW if refuse_links else O_ATTACH
    try:
        fd, found = _open_object(name, path, flags | _O_NOATIME if unnoticed else flags)
        size = found.st_size
        try:
            if owners is not None and found.st_uid not in owners:
                raise PermissionError(errno.EPERM, f"it belongs to user {found.st_uid}, who is not trusted here")
            data = np.frombuffer(mmap.mmap(fd, size, prot=mmap.PROT_READ), U1) if size else _EMPTY
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise refused(error, "attach to", name, path) from None
    except ValueError:
        raise StorageError(
            errno.EBUSY,
            f"cannot attach to {name!r}: it had {size} bytes and became smaller while it was being mapped; "
            "replace files that others map, never truncate them",
        ) from None
    return Segment(name, data, fd, found)


def _open_object(name: str, path: str, flags: int) -> tuple[int, os.stat_result]:
    """Open a published object, lock it against eviction; its descriptor and what it is."""
    if not SHM_IS_FILES and is_shm(name):
        with posix_calls() as posix_ipc:
            fd = posix_ipc.SharedMemory(posix_name(name), read_only=True).fd
        return fd, os.fstat(fd)
    while True:
        try:
            fd = os.open(path, flags)
        except PermissionError:
            if not flags & _O_NOATIME:
                raise
            flags &= ~_O_NOATIME
            continue
        try:
            lock_shared(fd)
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise not_regular(found)
            # Removed or replaced before the lock held: what the name leads to now counts. A memfd opened through /proc
            # has no links either, and is what its name leads to.
            if found.st_nlink or os.path.samestat(found, os.stat(path)):
                return fd, found
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def lock_shared(fd: int) -> None:
    """Ask collectors to leave this file alone for as long as ``fd`` and its duplicates are open.

    Whoever holds the exclusive lock is about to unlink, in microseconds. Reading is safe without the lock, so neither a
    program that sits on it nor a file system that knows no locks stands in the way.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE)
        except OSError:
            return
