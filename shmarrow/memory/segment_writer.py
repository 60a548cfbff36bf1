# SPDX-License-Identifier: Apache-2.0
"""Writing objects that are invisible until published.

Publishing is atomic: an object gets its name once complete, with its final size and mode.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes, as_bytes
from shmarrow.errors import InvalidArgument, StorageError, Unsupported
from shmarrow.memory.attached import MAX_CALL_BYTES
from shmarrow.memory.files import (
    DENIED,
    copy_file,
    link_temp,
    link_unnamed,
    lock_shared,
    name_files_in,
    open_named,
    open_unnamed,
    rename_new,
    sync_directory,
    temp_paths,
)
from shmarrow.memory.life_cycle import Sink, Writer, operation
from shmarrow.memory.location import (
    POSIX_SCHEME,
    Location,
    check_removable,
    check_trusted_link,
    is_planted,
    is_shm,
    refused,
    resolve,
    taken,
)
from shmarrow.memory.unnamed_file import Destination, UnnamedFile

Piece = bytes | memoryview | np.ndarray[Any, Any]

# Maximum symbolic links followed, as in Linux.
_MOST_LINKS = 40


def create(
    where: Location,
    *,
    mode: int | None = 0o400,
    overwrite: bool = False,
    durable: bool = False,
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
        world-writable directory such as ``/tmp``.
    overwrite : bool
        Replace an existing object when publishing; its readers keep the old version. If the path is a symbolic link,
        its target is replaced or created.
    durable : bool
        Sync the object to disk before publishing, and its directory after.

    Raises
    ------
    ObjectExists
        If the name exists and must not be overwritten. Checked again atomically when publishing.
    StorageError
        If the directory is missing or not writable.
    MissingExtra
        For ``shm:NAME`` without ``/dev/shm``, as on macOS, if posix_ipc is not installed.
    """
    return SegmentWriter(create_at(*resolve(where), mode, overwrite, durable))


def create_at(
    name: str,
    path: str,
    mode: int | None,
    overwrite: bool,
    durable: bool,
) -> UnnamedFile:
    """Create a new file for a location that is resolved; parameters and errors as for :func:`create`."""
    if mode is not None and (not isinstance(mode, int) or not 0 <= mode <= 0o777):
        raise InvalidArgument(f"mode must be None or permission bits from 0 to 0o777, found {mode!r}")
    try:
        if path.startswith(POSIX_SCHEME):
            return UnnamedFile(PosixDestination(name, path, mode, None, overwrite, False))
        if not path.startswith("/"):
            path = os.path.join(os.getcwd(), path)  # stable across chdir
        path, replaced = _target(name, path, overwrite)
        if replaced is not None and mode is None and is_planted(path, replaced):
            replaced = None
        owner = None
        if mode is None and replaced is not None:
            mode = stat.S_IMODE(replaced.st_mode) & 0o777
            owner = replaced.st_uid, replaced.st_gid
        return UnnamedFile(PathDestination(name, path, mode, owner, overwrite, durable))
    except FileExistsError:
        raise taken(name) from None
    except OSError as error:
        directory = os.path.dirname(path) or os.curdir
        missing = error.errno == errno.ENOENT and not os.path.isdir(directory)
        hint = f"make the directory {directory!r} first" if missing and "://" not in name else None
        raise refused(error, "create", name, path, hint) from None


def _target(name: str, path: str, overwrite: bool) -> tuple[str, os.stat_result | None]:
    """Return the path of the new file, and the status of an existing one; links are followed, except in shared memory.

    Names that exist are rejected early; publishing checks again atomically.
    """
    for _ in range(_MOST_LINKS):
        try:
            status = os.lstat(path)
        except OSError:
            return path, None  # opening the new file raises a better error
        if not overwrite and not stat.S_ISDIR(status.st_mode):  # a directory is not replaced either way
            raise FileExistsError
        if is_shm(name) or not stat.S_ISLNK(status.st_mode):
            check_removable(status)
            return path, status if stat.S_ISREG(status.st_mode) else None
        check_trusted_link(path, status)
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


class PathDestination(Destination):
    """A path, at which a file is linked, or renamed to."""

    def __init__(
        self, name: str, path: str, mode: int | None, owner: tuple[int, int] | None, overwrite: bool, durable: bool
    ) -> None:
        super().__init__(name, path)
        self._mode = mode
        self._owner = owner
        self._overwrite = overwrite
        self._durable = durable

    @property
    def directory(self) -> str:
        """The directory of the path."""
        return self.path[: self.path.rfind("/")] or "/"

    def create(self) -> tuple[int, str | None]:
        """Open the new file, without a name if the file system allows that."""
        bits = 0o666 if self._mode is None else 0o600
        fd = open_unnamed(self.directory, bits)
        return open_named(self.path, bits) if fd is None else (fd, None)

    def publish(self, file: UnnamedFile) -> None:
        """Give the complete file its owner, its mode and its name."""
        if self._mode is not None:
            same_group = self._owner is None or _given(file.fd, *self._owner) or _given(file.fd, -1, self._owner[1])
            os.fchmod(file.fd, self._mode if same_group else self._mode & ~0o070)  # these bits are for another group
        if self._durable:
            os.fsync(file.fd)
        try:
            self._link(file)
        except OSError as error:
            if file.temp is not None or error.errno not in DENIED or isinstance(error, StorageError):
                raise
            self._move(file)
            return self.publish(file)
        if self._durable:
            sync_directory(self.directory)

    def _link(self, file: UnnamedFile) -> None:
        if file.temp is None:
            try:
                link_unnamed(file.fd, self.path)
                return
            except FileExistsError:
                if not self._overwrite:
                    raise
        if file.temp is None:
            # Linking cannot replace, so the file gets a temporary name first, already locked.
            lock_shared(file.fd)
            for temp in temp_paths(self.path):
                file.temp = temp  # before it is linked: an interrupt leaves nothing behind
                try:
                    if link_temp(file.fd, temp):
                        break
                except OSError:
                    file.temp = None
                    raise
        assert file.temp is not None
        (os.replace if self._overwrite else rename_new)(file.temp, self.path)
        file.temp = None

    def _move(self, file: UnnamedFile) -> None:
        """Copy an unnamed file that cannot be linked into one with a temporary name."""
        name_files_in(self.directory)
        if file.given:
            raise Unsupported(f"cannot publish {self.name!r}: hard links are denied in {self.directory!r}")
        unnamed = file.replace(*open_named(self.path))
        try:
            copy_file(unnamed, file.fd, file.size)
        finally:
            os.close(unnamed)


def _given(fd: int, user: int, group: int) -> bool:
    """Give a file to a user, unless -1, and a group; False without the privilege to."""
    try:
        os.fchown(fd, user, group)
    except OSError:
        return False
    return True


class PosixDestination(PathDestination):
    """A shared memory object that is not a file: a temporary file is copied to it when it is published.

    So what :meth:`SegmentWriter.map` returned is no view of the object.
    """

    def create(self) -> tuple[int, str | None]:
        """Open a temporary file."""
        from tempfile import TemporaryFile

        from shmarrow.memory.posix import check_free

        if not self._overwrite:
            check_free(self.path)
        with TemporaryFile() as file:
            return os.dup(file.fileno()), None

    def publish(self, file: UnnamedFile) -> None:
        """Copy all that was written into a new object."""
        from shmarrow.memory.posix import publish

        def read(target: memoryview) -> None:
            done = 0
            while done < file.size:
                done += os.preadv(file.fd, [target[done : done + MAX_CALL_BYTES]], done)

        file.maps.clear()
        publish(self.path, file.size, read, 0o600 if self._mode is None else self._mode, self._overwrite)


class SegmentWriter(Writer, Sink):
    """An object being written, invisible until it is closed; made by :func:`create`.

    A context manager: publishes at the end of the block, and drops the object on an exception.

    Attributes
    ----------
    name : str
        The location to publish at.
    size : int
        Bytes written or mapped so far; the final size.
    path : str
        Path of the file, once published.

    Notes
    -----
    Cannot be copied or pickled. A forked child may fill inherited arrays of :meth:`map` and close its copy of the
    writer, which publishes nothing; all other calls raise `Closed`.

    Thread safety: calls are serialized; another thread may abort it at any time.
    """

    def __init__(self, file: UnnamedFile) -> None:
        self._file = file
        self.name = file.name
        self.path = file.destination.path
        super().__init__(f"the writer of {file.name!r}")

    @property
    def size(self) -> int:  # type: ignore[override]
        """Bytes written or mapped so far; the final size."""
        return self._file.size

    @property
    def location(self) -> str:
        """The ``shm:`` name or absolute path to open it by, once published."""
        return self._file.destination.location

    @operation
    def write(self, pieces: Iterable[Piece], offset: int | None = None) -> int:
        """Write buffers in order, passing them to the operating system without copying.

        Parameters
        ----------
        pieces : iterable of bytes, memoryview or ndarray
            C-contiguous, of any dtype and shape; may be empty.
        offset : int, optional
            Where to write them; by default at the end. Skipped bytes are zero.

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
        if offset is not None and offset < 0:
            raise InvalidArgument(f"offset must not be negative, found {offset}")
        return self._file.write([piece if type(piece) is bytes else as_bytes(piece) for piece in pieces], offset)

    @operation
    def reserve(self, size: int) -> None:
        """Reserve space for an object of ``size`` bytes, so that later writes within it cannot fail for lack of space.

        Raises
        ------
        StoreFull
            If there is not enough space; nothing stays reserved.
        """
        self._file.reserve(size)

    @operation
    def map(self, size: int) -> Bytes:
        """Map the first ``size`` bytes to be filled in place; reserves them and counts them as written.

        Copying existing data is about twice as fast with :meth:`write`; a mapping pays if values are computed in place.

        Returns
        -------
        ndarray
            A writable ``uint8`` array of shape (size,), zero where nothing was written. It becomes read-only on
            publishing. Existing views of it do not: writing to them changes what readers see.
        """
        return self._file.map(size)

    @operation
    def fileno(self) -> int:
        """Return the descriptor of the file being written."""
        self._file.given = True
        return self._file.fd

    def publish(self) -> None:
        """Close it: as the sink of another writer, it ends with it."""
        self.close()

    def drop(self) -> None:
        """Abort it: as the sink of another writer, it ends with it."""
        self.abort()

    def _finish(self) -> None:
        self._file.publish()

    def _drop(self) -> None:
        self._file.drop()

    def __repr__(self) -> str:
        return f"<SegmentWriter {self.name!r}, {self.size} bytes{', closed' if self.closed else ''}>"
