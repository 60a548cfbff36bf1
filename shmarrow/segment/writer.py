"""Writing objects that are invisible until published.

Invariants:

* publishing is atomic: an object gets its name once complete, with its final size and mode;
* data are written with ``pwritev``, or through a mapping after reserving space, as a mapped write to a full file system
  raises SIGBUS. For the same reason published objects have no holes: on tmpfs even reading a hole allocates a page.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import time
from _thread import RLock
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, Self, TypeVar

import numpy as np

from shmarrow.buffer import U1, Bytes, as_bytes
from shmarrow.errors import Closed, InvalidArgument, InvalidType, StorageError
from shmarrow.segment.attached import lock_shared
from shmarrow.segment.files import (
    link_temp,
    link_unnamed,
    lock_exclusive,
    open_named,
    open_unnamed,
    populate,
    pwrite_all,
    sync_directory,
)
from shmarrow.segment.location import (
    Location,
    check_removable,
    check_trusted_link,
    is_planted,
    is_shm,
    refused,
    resolve,
    taken,
)
from shmarrow.segment.mappings import map_file, published

P = ParamSpec("P")
R = TypeVar("R")
Piece = bytes | memoryview | np.ndarray[Any, Any]

# Maximum symbolic links followed, as in Linux.
_MOST_LINKS = 40

# Timeout for other writers that replace in the same directory.
_COPIED_BYTES = 1 << 20
_REPLACE_SECONDS = 3.0


class PublishPolicy(Protocol):
    """Space and publication policy for a directory, such as a store."""

    def make_room(self, writer: SegmentWriter, size: int) -> None:
        """Make space for an object that grows to ``size`` bytes by evicting others, or raise `StoreFull`."""

    def publish(self, writer: SegmentWriter, fd: int) -> str:
        """Publish the complete object; returns the path of its file."""

    def full(self, writer: SegmentWriter, size: int, error: OSError) -> StorageError:
        """Return the error to raise if the file system has no space for ``size`` bytes."""

    def discard(self, writer: SegmentWriter) -> None:
        """Called once the object is published or discarded."""


def create(
    where: Location,
    *,
    mode: int | None = 0o400,
    overwrite: bool = False,
    durable: bool = False,
    replacing: tuple[int, int, int, int] | None = None,
) -> SegmentWriter:
    """Create a new object, invisible until it is published.

    Parameters
    ----------
    where : str or PathLike
        A path, or ``shm:NAME``. NAME has 1 to 254 bytes, no ``/`` and no NUL, is not ``.`` or ``..`` and does not start
        with ``.shmarrow-``; the last holds for the last part of a path too.
    mode : int or None
        Permission bits of the published object, regardless of the umask; 0600 until then. Use ``0o444`` to share it;
        users with write permission can truncate it and crash readers. None preserves owner and permission bits of a
        replaced file, else uses 0o666 less the umask; the latter also if the file belongs to another user in a sticky
        world-writable directory such as ``/tmp`` and is not named in ``replacing``.
    overwrite : bool
        Replace an existing object when publishing; its readers keep the old version. If the path is a symbolic link,
        its target is replaced or created.
    replacing : tuple of int, optional
        Identity of the only object that may be overwritten (:attr:`Segment.identity`): if it was replaced or changed by
        the time of publishing, nothing is published. Keep the segment until then, as inodes are reused and timestamps
        may be coarse.
    durable : bool
        Sync the object to disk before publishing, and its directory after.

    Raises
    ------
    ObjectExists
        If the name exists and must not be overwritten. Checked again atomically when publishing.
    StorageError
        If the directory is missing or not writable.
    Unsupported
        For ``shm:NAME`` without ``/dev/shm``, as on macOS.
    """
    name, path = resolve(where)
    if mode is not None and (not isinstance(mode, int) or not 0 <= mode <= 0o777):
        raise InvalidArgument(f"mode must be None or permission bits from 0 to 0o777, found {mode!r}")
    try:
        if not os.path.isabs(path):
            path = os.path.join(os.getcwd(), path)  # stable across chdir
        path, replaced = _target(path, overwrite, follow=not is_shm(name))
        if replaced is not None and mode is None and replacing is None and is_planted(path, replaced):
            replaced = None
        directory = os.path.dirname(path)
        bits = 0o666 if mode is None and replaced is None else 0o600
        fd = open_unnamed(directory, bits)
        temp = None
        if fd is None:
            fd, temp = open_named(directory, os.path.basename(path), bits)
        if mode is None and replaced is not None:
            mode = stat.S_IMODE(replaced.st_mode) & 0o777
            _give_to_owner_of(replaced, fd)
    except FileExistsError:
        raise taken(name) from None
    except OSError as error:
        directory = os.path.dirname(path) or os.curdir
        missing = error.errno == errno.ENOENT and not os.path.isdir(directory)
        hint = f"make the directory {directory!r} first" if missing and "://" not in name else ""
        raise refused(error, "create", name, path, hint) from None
    return SegmentWriter(name, path, fd, temp, mode=mode, overwrite=overwrite, durable=durable, replacing=replacing)


def _target(path: str, overwrite: bool, follow: bool) -> tuple[str, os.stat_result | None]:
    """Return the path of the new file, and the status of an existing one.

    Names that exist are rejected early; publishing checks again atomically.
    """
    for _ in range(_MOST_LINKS):
        try:
            found = os.lstat(path)
        except OSError:
            return path, None  # opening the new file raises a better error
        if not overwrite:
            raise FileExistsError
        if not (follow and stat.S_ISLNK(found.st_mode)):
            check_removable(found)
            return path, found if stat.S_ISREG(found.st_mode) else None
        check_trusted_link(path, found)
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _give_to_owner_of(replaced: os.stat_result, fd: int) -> None:
    if (replaced.st_uid, replaced.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(OSError):  # needs privilege
            os.fchown(fd, replaced.st_uid, replaced.st_gid)


def _in_turn(method: Callable[Concatenate[SegmentWriter, P], R]) -> Callable[Concatenate[SegmentWriter, P], R]:
    """Decorate a method to require an open writer in the process that created it, and to serialize calls."""

    def call(self: SegmentWriter, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if os.getpid() != self._pid:
            raise Closed(f"the writer of {self.name!r} belongs to process {self._pid}, not to its children")
        with self._lock:
            if not self.closed:
                try:
                    return method(self, *args, **kwargs)
                except StorageError as error:
                    if not (self.closed and error.errno == errno.EBADF):  # a signal handler closed it meanwhile
                        raise
            raise Closed(f"the writer of {self.name!r} was published or discarded; create a new one")

    return update_wrapper(call, method)


class SegmentWriter:
    """An object being written, invisible until :meth:`publish`; made by :func:`create`.

    A context manager: publishes at the end of the block, and discards on an exception.

    Attributes
    ----------
    name : str
        The location to publish at.
    size : int
        Bytes written or mapped so far; the final size.
    closed : bool
        Whether it was published or discarded.

    Notes
    -----
    Cannot be copied or pickled. A forked child may fill inherited arrays of :meth:`map` and discard its copy of the
    writer; all other calls raise `Closed`.

    Thread safety: calls are serialized; another thread may discard it at any time.
    """

    closed = True

    def __init__(
        self,
        name: str,
        path: str,
        fd: int,
        temp: str | None,
        *,
        mode: int | None,
        overwrite: bool,
        durable: bool,
        replacing: tuple[int, int, int, int] | None = None,
        keeper: PublishPolicy | None = None,
    ) -> None:
        self.name = name
        self.size = 0
        self._path = path
        self._fd = fd
        self._file = os.fstat(fd)
        self._temp = temp
        self._pid = os.getpid()
        self._lock = RLock()
        self._mode = mode
        self._overwrite = overwrite
        self._durable = durable
        self._replacing = replacing
        self._keeper = keeper
        self._reserved = 0
        self._room = 0
        self._maps: list[Bytes] = []
        self.closed = False

    @_in_turn
    def write(self, pieces: Iterable[Piece]) -> int:
        """Append buffers in order, passing them to the operating system without copying.

        Parameters
        ----------
        pieces : iterable of bytes, memoryview or ndarray
            C-contiguous, of any dtype and shape; may be empty.

        Returns
        -------
        int
            The number of bytes written.

        Raises
        ------
        InvalidType
            If a piece has no C-contiguous buffer.
        StoreFull
            If there is no space left; ``size`` is unchanged.
        """
        return self.write_at(self.size, pieces)

    @_in_turn
    def write_at(self, offset: int, pieces: Iterable[Piece]) -> int:
        """Write pieces in order at ``offset``; as :meth:`write`. Skipped bytes are zero."""
        fd = self._fd
        if offset < 0:
            raise InvalidArgument(f"offset must not be negative, found {offset}")
        views = [piece if type(piece) is bytes else as_bytes(piece) for piece in pieces]
        if offset > self.size:
            self.reserve(offset)
        end = offset + sum(map(len, views))
        self.make_room(end)
        try:
            written = pwrite_all(fd, views, offset)
        except OSError as error:
            reason = self._unwritten(error, "write to", end)  # reports the space left now
            if not self.closed:
                self._cut(fd)
            raise reason from None
        if written:
            self.size = max(self.size, offset + written)
        return written

    @_in_turn
    def reserve(self, size: int) -> None:
        """Reserve space for an object of ``size`` bytes, so that later writes within it cannot fail for lack of space.

        Raises
        ------
        StoreFull
            If there is not enough space; nothing stays reserved.
        """
        fd = self._fd
        start = max(self.size, self._reserved)
        if size <= start:
            return
        self.make_room(size)
        try:
            os.posix_fallocate(fd, start, size - start)
        except OSError as error:
            os.ftruncate(fd, start)  # ext4 keeps partially allocated blocks
            raise self._unwritten(error, f"reserve {size} bytes for", size) from None
        self._reserved = size

    @_in_turn
    def make_room(self, size: int) -> None:
        """Ask the policy, if any, to make space for ``size`` bytes; writes may still run out of space.

        Raises
        ------
        StoreFull
            If the policy cannot.
        """
        if self._keeper is not None and size > self._room:
            try:
                self._keeper.make_room(self, size)
            except StorageError:
                raise
            except OSError as error:
                raise refused(error, f"make room for {size} bytes in", self.name, self._path) from None
            self._room = size

    def _cut(self, fd: int) -> None:
        """Truncate the file to the bytes written, so that bytes skipped later are zero."""
        with suppress(OSError):
            os.ftruncate(fd, self.size)
            self._reserved = self._room = 0

    def _unwritten(self, error: OSError, action: str, size: int) -> StorageError:
        """Return the error for a failed write."""
        if self._keeper is not None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return self._keeper.full(self, size, error)
        return refused(error, action, self.name, self._path)

    @_in_turn
    def map(self, size: int) -> Bytes:
        """Map the first ``size`` bytes to be filled in place; reserves them and counts them as written.

        Copying existing data is about twice as fast with :meth:`write`; a mapping pays if values are computed in place.

        Returns
        -------
        ndarray
            A writable ``uint8`` array of shape (size,), zero where nothing was written. It becomes read-only on
            publishing. Existing views of it do not: writing to them changes what readers see.
        """
        fd = self._fd
        self.reserve(size)
        if size < 1:
            return np.empty(0, U1)
        location = self.name if is_shm(self.name) else os.path.abspath(self._path)
        try:
            mapped = map_file(fd, size, location, None, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise refused(error, f"map {size} bytes of", self.name, self._path) from None
        populate(mapped)
        self._maps.append(mapped)
        self.size = max(self.size, size)
        return mapped

    @_in_turn
    def _copy_to(self, other: SegmentWriter) -> None:
        """Append the bytes written so far to another writer, in chunks."""
        for offset in range(0, self.size, _COPIED_BYTES):
            other.write([os.pread(self._fd, min(_COPIED_BYTES, self.size - offset), offset)])

    @_in_turn
    def publish(self) -> None:
        """Publish the object atomically. Closes the writer, even on failure.

        Raises
        ------
        ObjectExists
            If the name was taken in the meantime. The object is discarded.
        """
        fd = self._fd
        try:
            if os.fstat(fd).st_size != self.size:  # excess from reserving or a failed write
                os.ftruncate(fd, self.size)
            if self._mode is not None:
                os.fchmod(fd, self._mode)
            if self._durable:
                os.fsync(fd)
            for mapped in self._maps:
                mapped.flags.writeable = False
            if self._keeper is not None:
                self._path = self._keeper.publish(self, fd)
                published(self._maps, fd, self._path)
                return
            self._link(fd)
            published(self._maps, fd)
            if self._durable:
                sync_directory(os.path.dirname(self._path))
        except StorageError:
            raise
        except FileExistsError:
            raise taken(self.name) from None
        except OSError as error:
            raise refused(error, "publish", self.name, self._path) from None
        finally:
            self.discard()

    def discard(self) -> None:
        """Discard the object unless published. Calling it again has no effect."""
        if os.getpid() != self._pid:
            self._drop_copy()
            return
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._maps.clear()
            if self._keeper is not None:
                self._keeper.discard(self)
            if self._temp is not None:
                with suppress(OSError):
                    os.unlink(self._temp)
            os.close(self._fd)

    def _drop_copy(self) -> None:
        """Release an inherited copy in a forked child: keep the file, and skip the lock, which may stay held."""
        if self.closed:
            return
        self.closed = True
        self._maps.clear()
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._fd), self._file):  # children often close inherited descriptors
                os.close(self._fd)

    def _link(self, fd: int) -> None:
        if not self._overwrite:
            if self._temp is None:
                link_unnamed(fd, self._path)
            else:
                os.link(self._temp, self._path)
                os.unlink(self._temp)
                self._temp = None
            return
        if self._temp is None:
            # Linking cannot replace, so the file gets a temporary name first, already locked.
            lock_shared(fd)
            self._temp = link_temp(fd, os.path.dirname(self._path), os.path.basename(self._path))
        if self._replacing is None:
            os.replace(self._temp, self._path)
        else:
            self._replace_only(self._temp, self._replacing)
        self._temp = None

    def _replace_only(self, temp: str, expected: tuple[int, int, int, int]) -> None:
        """Replace exactly the expected object, under the directory lock."""
        directory = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            lock_exclusive(directory, time.monotonic() + _REPLACE_SECONDS)
            found = os.stat(self._path)
            if (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns) != expected:
                raise StorageError(
                    errno.EBUSY,
                    f"cannot publish {self.name!r}: it was replaced or changed by another writer in the meantime; open "
                    "it again",
                )
            os.replace(temp, self._path)
        except TimeoutError:
            raise StorageError(
                errno.EBUSY,
                f"cannot publish {self.name!r}: another process has held the lock of its directory for "
                f"{_REPLACE_SECONDS:g} s; find it with lslocks, and retry when it has ended",
            ) from None
        finally:
            os.close(directory)

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
        """Path of the published file."""
        return self._path

    @property
    def overwrite(self) -> bool:
        """Whether an existing object is replaced."""
        return self._overwrite

    @_in_turn
    def fileno(self) -> int:
        """Return the descriptor of the file being written."""
        return self._fd

    def __reduce__(self) -> NoReturn:
        raise InvalidType(f"the writer of {self.name!r} cannot be copied or pickled; publish it and pass its name on")

    def __repr__(self) -> str:
        return f"<SegmentWriter {self.name!r}, {self.size} bytes{', closed' if self.closed else ''}>"
