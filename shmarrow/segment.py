"""Where bytes live: a mapped file, or a POSIX shared memory object; create, attach, seal, unlink.

A location is a path, or ``shm:NAME``, the shared memory object that any program opens as ``shm_open("/NAME")``. On
Linux that object is the file ``/dev/shm/NAME``, so both kinds go through the same few system calls. Elsewhere shared
memory objects take no ``pwritev`` and no ``link``: they can be attached and unlinked, not published.

Rules kept here:

* a name shows a whole object or nothing: bytes are written to a file that has no name yet, and ``link`` gives it one,
  which exactly one of several racing writers can do. A writer that is killed leaves nothing behind;
* bytes are written with ``pwritev``, or through a map only after the space for them is reserved: a store into a full
  file system through a map kills the process. For the same reason no published object has holes: on tmpfs even
  reading a hole takes a page;
* attaching never creates, truncates or writes. The mapping is read-only, and everything is cut from one ndarray over
  it, so memory is unmapped when the last array is gone, whatever was closed or unlinked before;
* where a temporary name cannot be avoided it starts with :data:`TEMP_PREFIX`, and its file is locked for as long as
  its writer lives: whoever can lock such a file exclusively may remove it.

Examples
--------
>>> with create("shm:shmarrow-example") as writer:
...     written = writer.write([b"hello, ", b"world"])
>>> segment = attach("shm:shmarrow-example")
>>> unlink("shm:shmarrow-example")
>>> segment.data.tobytes()
b'hello, world'
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import sys
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from shmarrow.buffer import U1, Bytes, as_bytes
from shmarrow.errors import (
    Closed,
    InvalidArgument,
    InvalidType,
    ObjectExists,
    StorageError,
    Unsupported,
    storage_error,
)

Location = str | os.PathLike[str]
Piece = bytes | memoryview | np.ndarray[Any, Any]

SHM_SCHEME = "shm:"
SHM_DIRECTORY = "/dev/shm"
SHM_NAME_MAX = 254
TEMP_PREFIX = ".shmarrow-"

# Since Linux 5.14.
_MADV_POPULATE_WRITE = 23
_POPULATE_FROM = 1 << 24
_POPULATE_PIECE = 1 << 23
_POPULATE_THREADS = 4

# What one pwritev takes on Linux: IOV_MAX pieces, MAX_RW_COUNT bytes.
MAX_CALL_PIECES = 1024
MAX_CALL_BYTES = 2_147_479_552

# 0 where the platform has no files without a name.
_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_O_ATTACH = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_O_NOATIME: int = getattr(os, "O_NOATIME", 0)
_SHM_IS_FILES = os.path.isdir(SHM_DIRECTORY)
_LOCK_TRIES = 100
_LOCK_PAUSE = 0.001


def is_location(source: object) -> bool:
    """Whether ``source`` names a segment: a path or ``shm:NAME``, not a buffer or a file object."""
    return isinstance(source, (str, os.PathLike))


class Segment:
    """A published object, attached read-only; made by :func:`attach`.

    Attributes
    ----------
    name : str
        The location it was attached from.
    size : int
        Its size in bytes.
    identity : tuple of int
        Device, inode, size and time of change (ns) of the file when it was attached.
    sealed : bool
        Whether nobody has permission to write to the file. Stores through a map leave the time of change as it is, so
        only of a sealed file the identity says that the bytes are the same.
    written : int
        When it was written last (ns since 1970).
    """

    __slots__ = ("_data", "_fd", "identity", "name", "sealed", "size", "written")

    def __init__(self, name: str, data: Bytes, fd: int, found: os.stat_result) -> None:
        self.name = name
        self.size = len(data)
        self.identity = (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
        self.sealed = not found.st_mode & 0o222
        self.written = found.st_mtime_ns
        self._data: Bytes | None = data
        self._fd = fd

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

    def read(self, start: int, size: int) -> bytes:
        """A copy of a few bytes, without touching a page of the mapping: a page that is touched costs more."""
        if self._data is None:
            raise Closed(f"segment {self.name!r} is closed; attach to it again")
        read = os.pread(self._fd, size, start)
        return read if len(read) == size else self._data[start : start + size].tobytes()

    @property
    def mode(self) -> int:
        """The permission bits of the file."""
        if self._fd < 0:
            raise Closed(f"segment {self.name!r} is closed; attach to it again")
        return stat.S_IMODE(os.fstat(self._fd).st_mode)

    def mark_used(self) -> None:
        """Say in the time of access that the object is used now, which no read of a mapping does."""
        try:
            os.utime(self._fd, ns=(time.time_ns(), self.written))
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


class Keeper(Protocol):
    """Who keeps order in a directory of objects, as a store does; :func:`create` asks it.

    Attributes
    ----------
    scratch : str
        The directory, of the same file system, that temporary names go to.
    visible : bool
        Whether objects have a temporary name from the start, so that others can count their bytes.
    """

    scratch: str
    visible: bool

    def make_room(self, writer: SegmentWriter, size: int) -> None:
        """An object is about to grow to ``size`` bytes: remove others for it, or raise `StoreFull`."""

    def turn(self, writer: SegmentWriter) -> AbstractContextManager[None]:
        """What is held while an object gets its name."""

    def full(self, writer: SegmentWriter, size: int, error: OSError) -> StorageError:
        """The error to raise when the file system has no room for ``size`` bytes."""


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
    name, path = _resolve(where)
    # shm_open follows no links either: in a directory that all may write, a link is someone's trap.
    return attach_path(name, path, _is_shm(name), owners)


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
    flags = _O_ATTACH | os.O_NOFOLLOW if refuse_links else _O_ATTACH
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
        raise _refused(error, "attach to", name, path) from None
    except ValueError:
        raise StorageError(
            errno.EBUSY,
            f"cannot attach to {name!r}: it had {size} bytes and became smaller while it was being mapped; "
            "replace files that others map, never truncate them",
        ) from None
    return Segment(name, data, fd, found)


def create(
    where: Location,
    *,
    mode: int = 0o400,
    overwrite: bool = False,
    durable: bool = False,
    replacing: tuple[int, int, int, int] | None = None,
    keeper: Keeper | None = None,
) -> SegmentWriter:
    """Start a new object, which nobody sees until it is published.

    Parameters
    ----------
    where : str or PathLike
        A path, or ``shm:NAME``. NAME has 1 to 254 bytes, no ``/`` and no NUL, is not ``.`` or ``..`` and does not start
        with ``.shmarrow-``; the last holds for the last part of a path too.
    mode : int
        Permission bits of the published object, whatever the umask; until then it is 0600. Widen it to share
        (``0o444``); with write bits, whoever has them can truncate the object and crash its readers.
    overwrite : bool
        Replace an object of this name at the moment of publishing. Readers of the old one keep it whole.
    replacing : tuple of int, optional
        The identity of the one object that may be overwritten, as an attached segment has it: if somebody else has
        replaced it by the time of publishing, nothing is published.
    durable : bool
        Make the object survive a crash of the machine: flush it before, and its directory after, it gets its name.
    keeper : Keeper, optional
        Who keeps order in the directory, and is asked for room before anything is written.

    Raises
    ------
    ObjectExists
        If the name is taken and not to be overwritten. Publishing checks this again, atomically.
    StorageError
        If the directory is missing or does not permit it.
    Unsupported
        For ``shm:NAME`` where shared memory objects are not files in ``/dev/shm``, as on macOS.
    """
    name, path = _resolve(where)
    if _is_shm(name) and not _SHM_IS_FILES:
        raise Unsupported(
            f"cannot create {name!r}: on this machine shared memory objects are not files in {SHM_DIRECTORY}, and "
            "cannot be published whole; use a path"
        )
    if not isinstance(mode, int) or not 0 <= mode <= 0o777:
        raise InvalidArgument(f"mode must be permission bits from 0 to 0o777, found {mode!r}")
    try:
        if not os.path.isabs(path):
            path = os.path.join(os.getcwd(), path)  # still the same file after a chdir
        directory = os.path.dirname(path)
        _check_target(path, overwrite)
        scratch = directory if keeper is None else keeper.scratch
        fd = None if keeper is not None and keeper.visible else _open_unnamed(directory)
        temp = None
        if keeper is None and (overwrite or fd is None):
            collect_leftovers(directory)
        if fd is None:
            fd, temp = _open_named(scratch)
    except FileExistsError:
        raise _taken(name) from None
    except OSError as error:
        hint = f"make the directory {os.path.dirname(path) or os.curdir!r} first" if error.errno == errno.ENOENT else ""
        raise _refused(error, "create", name, path, hint) from None
    return SegmentWriter(
        name, path, fd, temp, mode=mode, overwrite=overwrite, durable=durable, replacing=replacing, keeper=keeper
    )


class SegmentWriter:
    """An object being written, which nobody sees until :meth:`publish`; made by :func:`create`.

    As a context manager it publishes at the end of the block, and discards on an exception.

    Attributes
    ----------
    name : str
        The location it will be published at.
    size : int
        Bytes written so far: the highest end of what was written or mapped. The published object is that long.
    closed : bool
        Whether it was published or discarded.
    """

    closed = True

    def __init__(
        self,
        name: str,
        path: str,
        fd: int,
        temp: str | None,
        *,
        mode: int,
        overwrite: bool,
        durable: bool,
        replacing: tuple[int, int, int, int] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.name = name
        self.size = 0
        self.closed = False
        self._path = path
        self._fd = fd
        self._temp = temp
        self._pid = os.getpid()
        self._mode = mode
        self._overwrite = overwrite
        self._durable = durable
        self._replacing = replacing
        self._keeper = keeper
        self._reserved = 0
        self._room = 0
        self._maps: list[Bytes] = []

    def write(self, pieces: Iterable[Piece]) -> int:
        """Append pieces in their order; nothing is copied on the way to the operating system.

        Parameters
        ----------
        pieces : iterable of bytes, memoryview or ndarray
            C-contiguous, of any dtype and shape; empty ones may be among them.

        Returns
        -------
        int
            The number of bytes written.

        Raises
        ------
        InvalidType
            If a piece has no buffer or one with gaps.
        StoreFull
            If no space is left. ``size`` is unchanged then.
        """
        return self.write_at(self.size, pieces)

    def write_at(self, offset: int, pieces: Iterable[Piece]) -> int:
        """Write pieces in their order from ``offset`` on; as :meth:`write`. Bytes that this skips are zeros."""
        fd = self._open_fd()
        if offset < 0:
            raise InvalidArgument(f"offset must not be negative, found {offset}")
        views = [piece if type(piece) is bytes else as_bytes(piece) for piece in pieces]
        if offset > self.size:
            self.reserve(offset)
        end = offset + sum(map(len, views))
        self.make_room(end)
        try:
            written = _pwrite_all(fd, views, offset)
        except OSError as error:
            raise self._unwritten(error, "write to", end) from None
        if written:
            self.size = max(self.size, offset + written)
        return written

    def reserve(self, size: int) -> None:
        """Take the space for an object of ``size`` bytes, so that no later write within it runs out of space.

        Raises
        ------
        StoreFull
            If there is not that much space; what could be had is given back.
        """
        fd = self._open_fd()
        start = max(self.size, self._reserved)
        if size <= start:
            return
        self.make_room(size)
        try:
            os.posix_fallocate(fd, start, size - start)
        except OSError as error:
            os.ftruncate(fd, start)  # ext4 keeps the blocks that it had found
            raise self._unwritten(error, f"reserve {size} bytes for", size) from None
        self._reserved = size

    def make_room(self, size: int) -> None:
        """Ask the keeper, if there is one, for room for ``size`` bytes; what is written may still find none.

        Raises
        ------
        StoreFull
            If the keeper has none.
        """
        if self._keeper is not None and size > self._room:
            self._open_fd()
            self._keeper.make_room(self, size)
            self._room = size

    def _unwritten(self, error: OSError, action: str, size: int) -> StorageError:
        """The error for bytes that the operating system did not take."""
        if self._keeper is not None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return self._keeper.full(self, size, error)
        return _refused(error, action, self.name, self._path)

    def map(self, size: int) -> Bytes:
        """Hand out the first ``size`` bytes to be filled in place; reserves them first, and counts them as written.

        Fresh memory is filled about twice as fast by :meth:`write`; a map pays when the values are computed into it.

        Returns
        -------
        ndarray
            A writable ``uint8`` array of shape (size,), zeros where nothing was written. It becomes read-only when the
            object is published. Arrays cut from it before do not: who writes to them then changes what readers see.
        """
        fd = self._open_fd()
        self.reserve(size)
        if size < 1:
            return np.empty(0, U1)
        try:
            mapped = np.frombuffer(mmap.mmap(fd, size), U1)
        except OSError as error:
            raise _refused(error, f"map {size} bytes of", self.name, self._path) from None
        _populate(mapped)
        self._maps.append(mapped)
        self.size = max(self.size, size)
        return mapped

    def publish(self) -> None:
        """Give the object its name: it is visible whole from here on. Closes the writer, also when this fails.

        Raises
        ------
        ObjectExists
            If another object took the name. Nothing of this one is left then.
        """
        fd = self._open_fd()
        try:
            os.ftruncate(fd, self.size)
            os.fchmod(fd, self._mode)
            if self._durable:
                os.fsync(fd)
            for mapped in self._maps:
                mapped.flags.writeable = False
            with nullcontext() if self._keeper is None else self._keeper.turn(self):
                self._link(fd)
            if self._durable:
                _sync_directory(os.path.dirname(self._path))
        except StorageError:
            raise
        except FileExistsError:
            raise _taken(self.name) from None
        except OSError as error:
            raise _refused(error, "publish", self.name, self._path) from None
        finally:
            self.discard()

    def discard(self) -> None:
        """Drop the object if it was not published; nothing of it is left. Safe to call again."""
        if self.closed:
            return
        self.closed = True
        self._maps.clear()
        # A forked child that drops its copy of the writer must not take the parent's file away.
        if self._temp is not None and os.getpid() == self._pid:
            with suppress(OSError):
                os.unlink(self._temp)
        os.close(self._fd)

    def _link(self, fd: int) -> None:
        if not self._overwrite:
            if self._temp is None:
                _link_unnamed(fd, self._path)
            else:
                os.link(self._temp, self._path)
                os.unlink(self._temp)
                self._temp = None
            return
        if self._temp is None:
            # Linking cannot replace, so the file passes through a temporary name, locked before it has it.
            _lock_shared(fd)
            temp = _temp_path(os.path.dirname(self._path) if self._keeper is None else self._keeper.scratch)
            self._temp = temp
            _link_unnamed(fd, temp)
        if self._replacing is None:
            os.replace(self._temp, self._path)
        else:
            self._replace_only(self._temp, self._replacing)
        self._temp = None

    def _replace_only(self, temp: str, expected: tuple[int, int, int, int]) -> None:
        """Replace the object that is expected, and no other; writers that do this take turns by a directory lock."""
        directory = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            found = os.stat(self._path)
            if (found.st_dev, found.st_ino) != expected[:2]:
                raise StorageError(
                    errno.EBUSY,
                    f"cannot publish {self.name!r}: it was replaced by somebody else in the meantime; open it again",
                )
            os.replace(temp, self._path)
        finally:
            os.close(directory)

    def _open_fd(self) -> int:
        if self.closed:
            raise Closed(f"the writer of {self.name!r} was published or discarded; create a new one")
        return self._fd

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        elif not self.closed:
            self.publish()

    def __del__(self) -> None:
        self.discard()

    @property
    def path(self) -> str:
        """The file that the object becomes."""
        return self._path

    @property
    def overwrite(self) -> bool:
        """Whether the object replaces one of its name."""
        return self._overwrite

    def fileno(self) -> int:
        """The descriptor of the file that is being written."""
        return self._open_fd()

    def __repr__(self) -> str:
        return f"<SegmentWriter {self.name!r}, {self.size} bytes{', closed' if self.closed else ''}>"


def unlink(where: Location) -> None:
    """Remove an object's name. Who has it attached keeps it; its space comes back when the last of them is done.

    Raises
    ------
    ObjectNotFound
        If there is no object of this name.
    StorageError
        If the directory does not permit it, or the name is not that of a file.
    """
    name, path = _resolve(where)
    try:
        if _is_shm(name):
            with _posix_ipc() as posix_ipc:
                posix_ipc.unlink_shared_memory(_posix_name(name))
            return
        _check_removable(os.lstat(path))
        os.unlink(path)
    except OSError as error:
        raise _refused(error, "unlink", name, path) from None


def collect_leftovers(directory: str) -> int:
    """Remove temporary files that killed writers left in ``directory``; returns how many.

    Only overwriting, and file systems without ``O_TMPFILE``, ever use temporary names. A file whose writer lives is
    locked, and stays; so do files of other users that may not be removed.
    """
    try:
        names = [name for name in os.listdir(directory) if name.startswith(TEMP_PREFIX)]
    except OSError:
        return 0  # a directory that may be written but not listed
    return sum(remove_unused(os.path.join(directory, name)) for name in names)


def remove_unused(path: str) -> bool:
    """Remove a file that nobody has attached and no writer holds; whether it was removed.

    Where others may replace or remove the name at the same time, who calls this and they take turns: the name must not
    come to lead to another file between the check and the removal.
    """
    try:
        fd = os.open(path, _O_ATTACH | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not os.path.samestat(found, os.lstat(path)):
            return False
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


_EMPTY = np.empty(0, U1)
_EMPTY.flags.writeable = False


def _resolve(where: Location) -> tuple[str, str]:
    """The name and the path of a location, checked."""
    if not is_location(where):
        raise InvalidType(f"expected a path or {SHM_SCHEME}NAME, found {type(where).__name__}")
    try:
        name = os.fsdecode(where)
        if name.isascii() and "\0" not in name and not name.startswith(SHM_SCHEME):
            last = name[name.rfind("/") + 1 :]
            if last not in ("", ".", "..") and not last.startswith(TEMP_PREFIX):
                return name, name  # as nearly all are
        raw = name.encode() if _is_shm(name) else os.fsencode(name)
    except UnicodeError as error:
        raise InvalidArgument(f"{where!r} cannot be encoded as a name: {error}") from None
    if b"\0" in raw:
        raise InvalidArgument(f"a name must not contain NUL, found {name!r}")
    last = name[len(SHM_SCHEME) :] if _is_shm(name) else os.path.basename(name)
    proper = last not in ("", ".", "..") and not last.startswith(TEMP_PREFIX)
    if not _is_shm(name):
        if not proper:
            raise InvalidArgument(
                f"a path must end in a file name that does not start with {TEMP_PREFIX!r}, found {name!r}"
            )
        return name, name
    size = len(raw) - len(SHM_SCHEME)
    if not proper or "/" in last or size > SHM_NAME_MAX:
        raise InvalidArgument(
            f"expected {SHM_SCHEME}NAME, where NAME has 1 to {SHM_NAME_MAX} bytes and no '/', is not '.' or '..' and "
            f"does not start with {TEMP_PREFIX!r}, found {name!r}, whose NAME has {size} bytes"
        )
    return name, f"{SHM_DIRECTORY}/{last}"


def _check_target(path: str, overwrite: bool) -> None:
    """Find out before anything is written that the name is taken; publishing decides."""
    try:
        found = os.lstat(path)
    except OSError:
        return  # opening the file gives the better reason
    if not overwrite:
        raise FileExistsError
    _check_removable(found)


def _check_removable(found: os.stat_result) -> None:
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        raise _not_regular(found)


def _is_shm(name: str) -> bool:
    return name.startswith(SHM_SCHEME)


def _posix_name(name: str) -> str:
    return "/" + name[len(SHM_SCHEME) :]


@contextmanager
def _posix_ipc() -> Iterator[Any]:
    """The module posix_ipc, whose own errors leave as the ``OSError`` that they stand for."""
    import posix_ipc  # takes a millisecond, and few processes need it

    try:
        yield posix_ipc
    except posix_ipc.ExistentialError:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
    except posix_ipc.PermissionsError:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES)) from None


def _open_object(name: str, path: str, flags: int) -> tuple[int, os.stat_result]:
    """Open a published object, lock it against eviction; its descriptor and what it is."""
    if not _SHM_IS_FILES and _is_shm(name):
        with _posix_ipc() as posix_ipc:
            fd = posix_ipc.SharedMemory(_posix_name(name), read_only=True).fd
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
            _lock_shared(fd)
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise _not_regular(found)
            # Removed or replaced before the lock held: what the name leads to now counts. A memfd opened through /proc
            # has no links either, and is what its name leads to.
            if found.st_nlink or os.path.samestat(found, os.stat(path)):
                return fd, found
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _lock_shared(fd: int) -> None:
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


def supports_unnamed(directory: str) -> bool:
    """Whether a directory can have files without a name, so that a killed writer leaves nothing in it."""
    try:
        fd = _open_unnamed(directory)
    except OSError:
        return True  # nothing can be written there; writing gives the better reason
    if fd is None:
        return False
    os.close(fd)
    return True


def _open_unnamed(directory: str) -> int | None:
    """Open a new file without a name, or None where the platform or file system cannot do it or cannot link it."""
    if not _O_TMPFILE:
        return None
    try:
        fd = os.open(directory, _O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise
    if not os.path.exists(f"/proc/self/fd/{fd}"):
        os.close(fd)
        return None
    return fd


def _link_unnamed(fd: int, path: str) -> None:
    # src_dir_fd means nothing for an absolute path, but with it Python calls linkat, which follows the link in /proc.
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)


def _open_named(directory: str) -> tuple[int, str]:
    """Create a locked temporary file; its descriptor and path."""
    while True:
        path = _temp_path(directory)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _lock_shared(fd)
        if os.fstat(fd).st_nlink:
            return fd, path
        os.close(fd)  # collected between its creation and the lock


def _temp_path(directory: str) -> str:
    return os.path.join(directory, TEMP_PREFIX + os.urandom(12).hex())


def _populate(mapped: Bytes) -> None:
    """Map the pages of a large reserved file at once, on a few threads: a fault for each costs twice as much."""
    if len(mapped) < _POPULATE_FROM or sys.platform != "linux":
        return
    import ctypes  # whose calls let other threads run meanwhile, as those of mmap do not
    from concurrent.futures import ThreadPoolExecutor

    libc = ctypes.CDLL(None, use_errno=True)
    address = mapped.ctypes.data
    starts = range(0, len(mapped), _POPULATE_PIECE)

    def populate(start: int) -> None:
        size = min(_POPULATE_PIECE, len(mapped) - start)
        libc.madvise(ctypes.c_void_p(address + start), ctypes.c_size_t(size), _MADV_POPULATE_WRITE)

    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _POPULATE_THREADS)) as pool:
        list(pool.map(populate, starts))  # a kernel that cannot has every page fault later


def _pwrite_all(fd: int, views: list[Any], offset: int) -> int:
    """Write all of ``views``, flat buffers of bytes, from ``offset`` on; replaces partly written ones in the list."""
    start = offset
    index = 0
    while index < len(views):
        call, room = views[index : index + MAX_CALL_PIECES], MAX_CALL_BYTES
        for position, view in enumerate(call):
            if len(view) > room:
                call[position] = memoryview(view)[:room]
                del call[position + 1 :]
                break
            room -= len(view)
        written = os.pwritev(fd, call, offset)
        offset += written
        while index < len(views) and written >= len(views[index]):
            written -= len(views[index])
            index += 1
        if written:
            views[index] = memoryview(views[index])[written:]
    return offset - start


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _not_regular(found: os.stat_result) -> OSError:
    kind = stat.filemode(found.st_mode)[0]
    kinds = {"d": "directory", "p": "FIFO", "s": "socket", "c": "character device", "b": "block device"}
    code = errno.EISDIR if kind == "d" else errno.EINVAL
    return OSError(code, f"expected a regular file, found a {kinds.get(kind, 'special file')}")


def _taken(name: str) -> ObjectExists:
    return ObjectExists(
        errno.EEXIST, f"cannot create {name!r}: the name is taken; unlink it first, or pass overwrite=True"
    )


def _refused(error: OSError, action: str, name: str, path: str, hint: str = "") -> StorageError:
    """The error for what the operating system refused, with the numbers that explain it."""
    if not hint:
        if error.errno == errno.ENOENT:
            hint = "it was never published, or it was removed already"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = _space(path)
        elif error.errno in (errno.EACCES, errno.EPERM):
            hint = _permissions(path)
        elif error.errno in (errno.EMFILE, errno.ENFILE):
            hint = "each attached object keeps one descriptor open while arrays of it live; raise the limit (ulimit -n)"
        elif error.errno == errno.ELOOP:
            hint = "no symbolic link is followed here, as somebody else may have placed it"
    return storage_error(error, action, name, hint)


def _space(path: str) -> str:
    directory = os.path.dirname(path)
    try:
        found = os.statvfs(directory)
    except OSError:
        return "free some space"
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    text = f"the file system of {directory!r} has {total} bytes ({total >> 20} MiB), of which {free} are free"
    if directory == SHM_DIRECTORY:
        text += (
            "; containers often give it 64 MiB: enlarge it with docker's --shm-size=8g, a memory-backed emptyDir in "
            "Kubernetes, or mount -o remount,size=8g /dev/shm"
        )
    return text


def _permissions(path: str) -> str:
    """Mode and owner of the object and of its directory, as far as this user can see them."""
    seen = []
    for place in (path, os.path.dirname(path) or "."):
        with suppress(OSError):
            found = os.stat(place)
            seen.append(f"{place!r} has mode {stat.S_IMODE(found.st_mode):04o} and owner {found.st_uid}")
    return "; ".join([*seen, f"this process runs as user {os.geteuid()}"])
