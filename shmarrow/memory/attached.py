# SPDX-License-Identifier: Apache-2.0
"""Attaching: read-only mappings of published objects.

Invariants:

* attaching never creates, truncates or writes, and takes constant time;
* all arrays are views of one read-only ndarray over the mapping, which is unmapped with the last array, even if the
  segment was closed or unlinked before;
* nothing is locked and no descriptor is kept: an object that is unlinked lives until it is unmapped, and what a store
  must not evict is pinned there.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Self

import numpy as np

try:
    import fcntl  # noqa: F401
except ImportError:  # the first import of shmarrow that is missing on Windows
    raise ImportError("shmarrow needs Linux: Windows lacks POSIX file locks and shared memory; use WSL 2") from None

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import Closed, ObjectNotFound, StorageError
from shmarrow.memory.host import in_memory
from shmarrow.memory.location import (
    POSIX_SCHEME,
    Location,
    became_smaller,
    is_shm,
    not_regular,
    refused,
    resolve,
)
from shmarrow.memory.locks import open_unlocked
from shmarrow.memory.mappings import map_file

O_ATTACH = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# MAX_RW_COUNT: the maximum bytes per read or write call on Linux.
MAX_CALL_BYTES = 2_147_479_552


class Segment:
    """A published object, mapped read-only; made by :func:`attach`.

    Attributes
    ----------
    name : str
        The location.
    size : int
        Size in bytes.
    status : os.stat_result
        Status of the file when attached.

    Notes
    -----
    The object is unmapped with the last array, or by :meth:`close` if there are none.

    A copied or unpickled segment attaches again by name, and raises if the name refers to another object by then.

    Thread safety: may be shared; if another thread closes it, :attr:`data` returns the bytes or raises `Closed`. A
    forked child may use its copy.
    """

    __slots__ = ("_data", "_path", "name", "size", "status")

    def __init__(self, name: str, path: str, data: Bytes, status: os.stat_result) -> None:
        self.name = name
        self.size = len(data)
        self.status = status
        self._path = path
        self._data: Bytes | None = data

    @property
    def location(self) -> str:
        """The ``shm:`` name or absolute path."""
        return self.name if is_shm(self.name) else self._path

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Device, inode, size and ctime (ns) of the file when attached."""
        status = self.status
        return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns

    @property
    def data(self) -> Bytes:
        """The bytes: a read-only ``uint8`` ndarray of shape (size,) over the mapping.

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
        """Release the mapping, unless arrays still use it. Calling it again has no effect."""
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
    """Attach to the object of a copied or pickled segment."""
    segment = Segment(*map_object(name, path))
    if (segment.status.st_dev, segment.status.st_ino) != (device, inode):
        raise ObjectNotFound(
            errno.ENOENT,
            f"cannot attach to {name!r} again: it was replaced, or this is another machine",
        )
    return segment


def attach(where: Location) -> Segment:
    """Map a published object read-only, in time independent of its size.

    The object stays mapped while arrays of it are alive, even if it is removed or replaced; no descriptor is kept.

    Parameters
    ----------
    where : str or PathLike
        A path, or ``shm:NAME``.

    Raises
    ------
    ObjectNotFound
        If the object does not exist.
    StorageError
        If it is not a regular file, or if the operating system refuses to open or map it.
    InvalidArgument
        If ``where`` is not a valid name.
    """
    return Segment(*map_object(*resolve(where)))


def map_object(name: str, path: str, small: int = 0) -> tuple[str, str, Bytes, os.stat_result]:
    """Map a published object; returns what a :class:`Segment` is made of. Errors are those of :func:`attach`.

    It is read instead if it has at most ``small`` bytes, and if it is in memory and has holes: reading a hole of a
    mapping takes memory, and where there is none, it kills the process.
    """
    try:
        fd, status = open_object(name, path)
        try:
            path = path if path.startswith(("/", POSIX_SCHEME)) else os.path.abspath(path)  # stable across chdir
            if status.st_size <= small or has_holes(fd, status):
                data = read_whole(fd, status.st_size, name)
            else:
                data = map_file(fd, status.st_size, name if is_shm(name) else path, status)
        finally:
            os.close(fd)
    except StorageError:
        raise
    except OSError as error:
        raise refused(error, "attach to" if is_shm(name) else "open", name, path) from None
    return name, path, data, status


def has_holes(fd: int, status: os.stat_result) -> bool:
    """Whether a file in memory has holes, so that it is read instead of mapped."""
    blocks = status.st_blocks  # None of an object that is no file
    return blocks is not None and blocks * 512 < status.st_size and in_memory(fd)


def read_object(where: Location) -> tuple[str, Bytes]:
    """Read a published object into memory; returns its name and bytes. Errors are those of :func:`attach`."""
    name, path = resolve(where)
    try:
        fd, status = open_object(name, path)
        try:
            if path.startswith(POSIX_SCHEME):  # which can be mapped only
                return name, frozen(map_file(fd, status.st_size, name, status).copy())
            return name, read_whole(fd, status.st_size, name)
        finally:
            os.close(fd)
    except StorageError:
        raise
    except OSError as error:
        raise refused(error, "read", name, path) from None


def read_whole(fd: int, size: int, name: str) -> Bytes:
    """Read the first ``size`` bytes of a file into memory, independent of the descriptor's position.

    Raises
    ------
    StorageError
        If there is not enough memory, or the file was truncated.
    """
    try:
        data = np.empty(size, U1)
    except MemoryError:
        raise StorageError(errno.ENOMEM, f"cannot read {name!r}: not enough memory for its {size} bytes") from None
    view, done = data.data, 0
    while done < size:
        got = os.preadv(fd, [view[done : done + MAX_CALL_BYTES]], done)
        if not got:
            raise became_smaller("read", name, size)
        done += got
    return frozen(data)


def frozen(data: Bytes) -> Bytes:
    """Make an array read-only, and return it."""
    data.flags.writeable = False
    return data


def status_of(where: Location) -> os.stat_result:
    """Return the status of a published object; errors are those of the system."""
    path = resolve(where)[1]
    if not path.startswith(POSIX_SCHEME):
        return os.stat(path)
    fd, status = open_object("", path)
    os.close(fd)
    return status


def open_object(name: str, path: str) -> tuple[int, os.stat_result]:
    """Open a published object; returns its descriptor and status."""
    if path.startswith(POSIX_SCHEME):
        from shmarrow.memory import posix

        return posix.open_object(path)
    # As shm_open does, refuse links: in a world-writable directory they may be planted.
    fd = open_unlocked(path, O_ATTACH | os.O_NOFOLLOW if is_shm(name) else O_ATTACH)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise refused(not_regular(status), "attach to" if is_shm(name) else "open", name, path)
    except BaseException:
        os.close(fd)
        raise
    return fd, status
