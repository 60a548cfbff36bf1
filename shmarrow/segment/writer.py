"""Writing: an object that nobody sees until it is published.

Rules kept here:

* a name shows a whole object or nothing: an object gets its name when it is complete, with its final size and mode;
* bytes are written with ``pwritev``, or through a map only after the space for them is reserved: a store into a full
  file system through a map kills the process. For the same reason no published object has holes: on tmpfs even
  reading a hole takes a page.
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

# As many links in a row as Linux follows.
_MOST_LINKS = 40

# How long a writer waits for others that replace in the same directory, each of which takes microseconds.
_COPIED_BYTES = 1 << 20
_REPLACE_SECONDS = 3.0


class PublishPolicy(Protocol):
    """Who keeps order where an object is going to be, as a store does."""

    def make_room(self, writer: SegmentWriter, size: int) -> None:
        """An object is about to grow to ``size`` bytes: remove others for it, or raise `StoreFull`."""

    def publish(self, writer: SegmentWriter, fd: int) -> str:
        """Give the whole object its name; the path of its file."""

    def full(self, writer: SegmentWriter, size: int, error: OSError) -> StorageError:
        """The error to raise when the file system has no room for ``size`` bytes."""

    def discard(self, writer: SegmentWriter) -> None:
        """The object was published, or it never will be."""


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
        Permission bits of the published object, whatever the umask; until then it is 0600. Widen it to share
        (``0o444``); with write bits, whoever has them can truncate the object and crash its readers. None gives what
        any program that writes a file gives: owner and permission bits of the file that is replaced, or else 0o666
        without the bits of the umask; also where somebody else placed that file in a sticky directory that all may
        write, as ``/tmp`` is, and it is not named in ``replacing``.
    overwrite : bool
        Replace an object of this name at the moment of publishing. Readers of the old one keep it whole. Where a path
        is a symbolic link, the file that it leads to is replaced, and made if there is none.
    replacing : tuple of int, optional
        The identity of the one object that may be overwritten, as an attached segment has it: if somebody else has
        replaced or changed it by the time of publishing, nothing is published. Keep the segment until then: a file
        system gives the inode of a removed file to the next one, and may count time in steps of milliseconds.
    durable : bool
        Make the object survive a crash of the machine: flush it before, and its directory after, it gets its name.

    Raises
    ------
    ObjectExists
        If the name is taken and not to be overwritten. Publishing checks this again, atomically.
    StorageError
        If the directory is missing or does not permit it.
    Unsupported
        For ``shm:NAME`` without ``/dev/shm``, as on macOS.
    """
    name, path = resolve(where)
    if mode is not None and (not isinstance(mode, int) or not 0 <= mode <= 0o777):
        raise InvalidArgument(f"mode must be None or permission bits from 0 to 0o777, found {mode!r}")
    try:
        if not os.path.isabs(path):
            path = os.path.join(os.getcwd(), path)  # still the same file after a chdir
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
    """The path to give to the new file, and what is there now.

    Finds out before anything is written that a name is taken; publishing decides.
    """
    for _ in range(_MOST_LINKS):
        try:
            found = os.lstat(path)
        except OSError:
            return path, None  # opening the new file gives the better reason
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
        with suppress(OSError):  # as those may who have the privilege
            os.fchown(fd, replaced.st_uid, replaced.st_gid)


def _in_turn(method: Callable[Concatenate[SegmentWriter, P], R]) -> Callable[Concatenate[SegmentWriter, P], R]:
    """A call that needs the writer open, in the process that made it, with no other call going on."""

    def call(self: SegmentWriter, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if os.getpid() != self._pid:
            raise Closed(f"the writer of {self.name!r} belongs to process {self._pid}, and is not used by its children")
        with self._lock:
            if self.closed:
                raise Closed(f"the writer of {self.name!r} was published or discarded; create a new one")
            return method(self, *args, **kwargs)

    return update_wrapper(call, method)


class SegmentWriter:
    """An object being written, invisible until :meth:`publish`; made by :func:`create`.

    As a context manager it publishes at the end of the block, and discards on an exception.

    Attributes
    ----------
    name : str
        The location it will be published at.
    size : int
        Bytes written so far: the highest end of what was written or mapped. The published object is that long.
    closed : bool
        Whether it was published or discarded.

    Notes
    -----
    It cannot be copied or pickled. A forked child may fill arrays of :meth:`map` that it got from its parent, and
    drop its copy of the writer; all other calls raise `Closed` there, as the object belongs to the parent.

    Thread safety: its calls take turns by a lock, so another thread may discard it at any time.
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

    @_in_turn
    def write_at(self, offset: int, pieces: Iterable[Piece]) -> int:
        """Write pieces in their order from ``offset`` on; as :meth:`write`. Bytes that this skips are zeros."""
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
            reason = self._unwritten(error, "write to", end)  # which tells of the space that is left now
            self._cut(fd)
            raise reason from None
        if written:
            self.size = max(self.size, offset + written)
        return written

    @_in_turn
    def reserve(self, size: int) -> None:
        """Take the space for an object of ``size`` bytes, so that no later write within it runs out of space.

        Raises
        ------
        StoreFull
            If there is not that much space; what could be had is given back.
        """
        fd = self._fd
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

    @_in_turn
    def make_room(self, size: int) -> None:
        """Ask the keeper, if there is one, for room for ``size`` bytes; what is written may still find none.

        Raises
        ------
        StoreFull
            If the keeper has none.
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
        """Drop what lies behind what was written: what is skipped later has to be zeros."""
        with suppress(OSError):
            os.ftruncate(fd, self.size)
            self._reserved = self._room = 0

    def _unwritten(self, error: OSError, action: str, size: int) -> StorageError:
        """The error for bytes that the operating system did not take."""
        if self._keeper is not None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return self._keeper.full(self, size, error)
        return refused(error, action, self.name, self._path)

    @_in_turn
    def map(self, size: int) -> Bytes:
        """Hand out the first ``size`` bytes to be filled in place; reserves them first, and counts them as written.

        Fresh memory is filled about twice as fast by :meth:`write`; a map pays when the values are computed into it.

        Returns
        -------
        ndarray
            A writable ``uint8`` array of shape (size,), zeros where nothing was written. It becomes read-only when the
            object is published. Arrays cut from it before do not: who writes to them then changes what readers see.
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
        """Append what was written so far to another writer, bit by bit."""
        for offset in range(0, self.size, _COPIED_BYTES):
            other.write([os.pread(self._fd, min(_COPIED_BYTES, self.size - offset), offset)])

    @_in_turn
    def publish(self) -> None:
        """Give the object its name: it is visible whole from here on. Closes the writer, also when this fails.

        Raises
        ------
        ObjectExists
            If another object took the name. Nothing of this one is left then.
        """
        fd = self._fd
        try:
            if os.fstat(fd).st_size != self.size:  # reserved, or left by a write that failed
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
        """Drop the object if it was not published; nothing of it is left. Safe to call again."""
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
        """Drop what a forked child got from its parent, whose file stays, and whose lock another thread may hold."""
        if self.closed:
            return
        self.closed = True
        self._maps.clear()
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._fd), self._file):  # children often close what they inherit
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
            # Linking cannot replace, so the file passes through a temporary name, locked before it has it.
            lock_shared(fd)
            self._temp = link_temp(fd, os.path.dirname(self._path), os.path.basename(self._path))
        if self._replacing is None:
            os.replace(self._temp, self._path)
        else:
            self._replace_only(self._temp, self._replacing)
        self._temp = None

    def _replace_only(self, temp: str, expected: tuple[int, int, int, int]) -> None:
        """Replace the object that is expected, and no other; writers that do this take turns by a directory lock."""
        directory = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            lock_exclusive(directory, time.monotonic() + _REPLACE_SECONDS)
            found = os.stat(self._path)
            if (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns) != expected:
                raise StorageError(
                    errno.EBUSY,
                    f"cannot publish {self.name!r}: it was replaced or changed by somebody else in the meantime; open "
                    "it again",
                )
            os.replace(temp, self._path)
        except TimeoutError:
            raise StorageError(
                errno.EBUSY,
                f"cannot publish {self.name!r}: another process has held the lock of its directory for "
                f"{_REPLACE_SECONDS:g} s; find it with lslocks, and write again when it has ended",
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
        """The file that the object becomes."""
        return self._path

    @property
    def overwrite(self) -> bool:
        """Whether the object replaces one of its name."""
        return self._overwrite

    @_in_turn
    def fileno(self) -> int:
        """The descriptor of the file that is being written."""
        return self._fd

    def __reduce__(self) -> NoReturn:
        raise InvalidType(f"the writer of {self.name!r} cannot be copied or pickled; publish it and pass its name on")

    def __repr__(self) -> str:
        return f"<SegmentWriter {self.name!r}, {self.size} bytes{', closed' if self.closed else ''}>"
