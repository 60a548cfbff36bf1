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
import os
import stat
import time
from collections.abc import Container
from typing import Any, Self

import numpy as np

try:
    import fcntl
except ImportError:  # the first module of `import shmarrow` that Windows does not have
    raise ImportError("shmarrow needs Linux: Windows lacks POSIX file locks and shared memory; use WSL 2") from None

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import Closed, ObjectNotFound, StorageError
from shmarrow.segment.location import (
    Location,
    became_smaller,
    is_shm,
    not_regular,
    refused,
    resolve,
)
from shmarrow.segment.mappings import map_file

O_ATTACH = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# What one call reads or writes on Linux: MAX_RW_COUNT bytes.
MAX_CALL_BYTES = 2_147_479_552
_LOCK_TRIES = 100
_LOCK_PAUSE = 0.001

EMPTY = np.empty(0, U1)
EMPTY.flags.writeable = False


class Segment:
    """A published object, mapped read-only; made by :func:`attach`.

    Attributes
    ----------
    name : str
        The location it was attached from.
    size : int
        Its size in bytes.
    status : os.stat_result
        What the file was when it was attached.

    Notes
    -----
    The only descriptor is that of the mapping, which also holds the lock; both go with the last array, or in
    :meth:`close` where no array was handed out. An empty object has neither.

    Copying and pickling a segment attach to the object again by its name; they fail where the name leads to another
    object by then.

    Thread safety: any thread may use it, also while another one closes it: :attr:`data` is the bytes or raises
    `Closed`. A forked child may use its copy.
    """

    __slots__ = ("_data", "_path", "name", "size", "status")

    def __init__(self, name: str, path: str, data: Bytes, found: os.stat_result) -> None:
        self.name = name
        self.size = len(data)
        self.status = found
        self._path = path
        self._data: Bytes | None = data

    @property
    def location(self) -> str:
        """The location to attach to again from any directory: the ``shm:`` name, or the absolute path."""
        return self.name if is_shm(self.name) else self._path

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Device, inode, size and time of change (ns) of the file when it was attached."""
        status = self.status
        return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns

    @property
    def mode(self) -> int:
        """The permission bits of the file when it was attached."""
        return stat.S_IMODE(self.status.st_mode)

    @property
    def data(self) -> Bytes:
        """The bytes: one read-only ``uint8`` ndarray of shape (size,) over the mapping, nothing copied.

        Raises
        ------
        Closed
            After :meth:`close`.
        """
        data = self._data
        if data is None:
            raise self._closed_error()
        return data

    def _closed_error(self) -> Closed:
        return Closed(f"segment {self.name!r} is closed; attach to it again")

    def close(self) -> None:
        """Release the mapping, descriptor and lock, unless arrays still use them. Closing twice is allowed."""
        self._data = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._data is None:
            raise self._closed_error()
        status = self.status
        return _attach_again, (self.name, self._path, status.st_dev, status.st_ino)

    def __repr__(self) -> str:
        return f"<Segment {self.name!r}, {self.size} bytes{', closed' if self._data is None else ''}>"


def _attach_again(name: str, path: str, device: int, inode: int) -> Segment:
    """Attach to the object that a segment was attached to when it was copied or pickled."""
    found = attach_path(name, path, is_shm(name))
    if (found.status.st_dev, found.status.st_ino) != (device, inode):
        raise ObjectNotFound(
            errno.ENOENT,
            f"cannot attach to {name!r} again: it was replaced, or this is another machine",
        )
    return found


def attach(where: Location, *, owners: Container[int] | None = None) -> Segment:
    """Map a published object read-only, in time independent of its size.

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
    # shm_open follows no links either: in a directory that anyone may write to, a link is someone's trap.
    return attach_path(name, path, path != name, owners)


def attach_path(
    name: str,
    path: str,
    refuse_links: bool = True,
    owners: Container[int] | None = None,
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
    """
    flags = O_ATTACH | os.O_NOFOLLOW if refuse_links else O_ATTACH
    try:
        fd, found = _open_object(name, path, flags)
        try:
            size = found.st_size
            if owners is not None and found.st_uid not in owners:
                raise PermissionError(errno.EPERM, f"it belongs to user {found.st_uid}, who is not trusted here")
            path = path if path.startswith("/") else os.path.abspath(path)  # still the same after a chdir
            data = map_file(fd, size, name if is_shm(name) else path, found) if size else EMPTY
        finally:
            os.close(fd)
    except OSError as error:
        raise refused(error, "attach to" if is_shm(name) else "open", name, path) from None
    except ValueError:
        raise became_smaller("attach to", name, size) from None
    return Segment(name, path, data, found)


def read_object(where: Location) -> tuple[str, Bytes]:
    """The name and all bytes of a published object, read into memory; the errors are those of :func:`attach`."""
    name, path = resolve(where)
    try:
        fd, found = _open_object(name, path, O_ATTACH if path == name else O_ATTACH | os.O_NOFOLLOW)
        try:
            return name, read_whole(fd, found.st_size, name)
        finally:
            os.close(fd)
    except StorageError:
        raise
    except OSError as error:
        raise refused(error, "read", name, path) from None


def read_whole(fd: int, size: int, name: str) -> Bytes:
    """The first ``size`` bytes of a file, read into memory; the descriptor's position is neither used nor moved.

    Raises
    ------
    StorageError
        If there is not that much memory, or the file becomes smaller.
    """
    try:
        data = np.empty(size, U1)
    except MemoryError:
        raise StorageError(errno.ENOMEM, f"cannot read {name!r}: there is no memory for its {size} bytes") from None
    view, done = data.data, 0
    while done < size:
        got = os.preadv(fd, [view[done : done + MAX_CALL_BYTES]], done)
        if not got:
            raise became_smaller("read", name, size)
        done += got
    data.flags.writeable = False
    return data


def _open_object(name: str, path: str, flags: int) -> tuple[int, os.stat_result]:
    """Open a published object, lock it against eviction; its descriptor and what it is."""
    while True:
        fd = os.open(path, flags)
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
