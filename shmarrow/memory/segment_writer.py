# SPDX-License-Identifier: Apache-2.0
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
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes, as_bytes
from shmarrow.errors import InvalidArgument, StorageError, Unsupported
from shmarrow.memory.attached import MAX_CALL_BYTES
from shmarrow.memory.files import (
    DENIED,
    allocate,
    copy_file,
    link_temp,
    link_unnamed,
    lock_shared,
    name_files_in,
    open_named,
    open_unnamed,
    populate,
    pwrite_all,
    rename_new,
    sync_directory,
    temp_paths,
)
from shmarrow.memory.life_cycle import Sink, operation
from shmarrow.memory.location import (
    POSIX_SCHEME,
    Location,
    became_smaller,
    check_removable,
    check_trusted_link,
    is_planted,
    is_shm,
    refused,
    resolve,
    taken,
)
from shmarrow.memory.mappings import map_file, mapping_of, published

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
    return create_at(*resolve(where), mode, overwrite, durable)


def create_at(
    name: str,
    path: str,
    mode: int | None,
    overwrite: bool,
    durable: bool,
) -> SegmentWriter:
    """As :func:`create`, of a location that is resolved."""
    if mode is not None and (not isinstance(mode, int) or not 0 <= mode <= 0o777):
        raise InvalidArgument(f"mode must be None or permission bits from 0 to 0o777, found {mode!r}")
    try:
        if path.startswith(POSIX_SCHEME):
            return PosixWriter(name, path, mode=mode, overwrite=overwrite)
        if not path.startswith("/"):
            path = os.path.join(os.getcwd(), path)  # stable across chdir
        path, replaced = _target(path, overwrite, follow=not is_shm(name))
        if replaced is not None and mode is None and is_planted(path, replaced):
            replaced = None
        owner = None
        if mode is None and replaced is not None:
            mode = stat.S_IMODE(replaced.st_mode) & 0o777
            owner = replaced.st_uid, replaced.st_gid
        return SegmentWriter(name, path, mode=mode, owner=owner, overwrite=overwrite, durable=durable)
    except FileExistsError:
        raise taken(name) from None
    except OSError as error:
        directory = os.path.dirname(path) or os.curdir
        missing = error.errno == errno.ENOENT and not os.path.isdir(directory)
        hint = f"make the directory {directory!r} first" if missing and "://" not in name else None
        raise refused(error, "create", name, path, hint) from None


def _target(path: str, overwrite: bool, follow: bool) -> tuple[str, os.stat_result | None]:
    """Return the path of the new file, and the status of an existing one.

    Names that exist are rejected early; publishing checks again atomically.
    """
    for _ in range(_MOST_LINKS):
        try:
            status = os.lstat(path)
        except OSError:
            return path, None  # opening the new file raises a better error
        if not overwrite and not stat.S_ISDIR(status.st_mode):  # a directory is not replaced either way
            raise FileExistsError
        if not (follow and stat.S_ISLNK(status.st_mode)):
            check_removable(status)
            return path, status if stat.S_ISREG(status.st_mode) else None
        check_trusted_link(path, status)
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


class SegmentWriter(Sink):
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

    def __init__(
        self,
        name: str,
        path: str,
        *,
        mode: int | None = None,
        owner: tuple[int, int] | None = None,
        overwrite: bool = False,
        durable: bool = False,
    ) -> None:
        self.name = name
        self.path = path
        self.size = 0
        self._fd = -1
        self._temp: str | None = None
        self._mode = mode
        self._owner = owner
        self._overwrite = overwrite
        self._durable = durable
        self._reserved = 0
        self._torn = False
        self._given = False
        """Whether others have the descriptor."""
        self._maps: list[Bytes] = []
        super().__init__(f"the writer of {name!r}")
        try:
            self._open()
            self._file = os.fstat(self._fd)
        except BaseException:
            self.abort()
            raise

    def _open(self) -> None:
        """Create the file, without a name if the file system allows that."""
        bits = 0o666 if self._mode is None else 0o600
        fd = open_unnamed(os.path.dirname(self.path), bits)
        if fd is None:
            fd, self._temp = open_named(self.path, bits)
        self._fd = fd

    @property
    def location(self) -> str:
        """The ``shm:`` name or absolute path to open it by, once published."""
        return self.name if is_shm(self.name) else self.path

    # --- writing ---

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
        if offset is None:
            offset = self.size
        if offset < 0:
            raise InvalidArgument(f"offset must not be negative, found {offset}")
        pieces = list(pieces)
        views = [piece if type(piece) is bytes else as_bytes(piece) for piece in pieces]
        if self._torn:
            self._mend()
        if offset > self.size:
            self._reserve(offset)
        end = offset + sum(map(len, views))
        self._make_room(end)
        self._torn = True
        while True:
            try:
                written = pwrite_all(self._fd, views.copy(), offset)
                break
            except OSError as error:
                if error.errno == errno.EFAULT:
                    raise _lost_source(self.name, pieces) from None
                self._recover(error, "write to", end)
        if written:
            self.size = max(self.size, end)
        self._torn = False
        return written

    @operation
    def reserve(self, size: int) -> None:
        """Reserve space for an object of ``size`` bytes, so that later writes within it cannot fail for lack of space.

        Raises
        ------
        StoreFull
            If there is not enough space; nothing stays reserved.
        """
        self._reserve(size)

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
        self._reserve(size)
        try:
            mapped = map_file(self._fd, size, self.location, None, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise refused(error, f"map {size} bytes of", self.name, self.path) from None
        populate(mapped)
        self._maps.append(mapped)
        self.size = max(self.size, size)
        return mapped

    @operation
    def fileno(self) -> int:
        """Return the descriptor of the file being written."""
        self._given = True
        return self._fd

    def _mend(self) -> None:
        """Remove what an interrupted or refused write left beyond the end, as bytes skipped later must be zero."""
        os.ftruncate(self._fd, self.size)
        self._reserved = 0
        self._torn = False

    def _reserve(self, size: int) -> None:
        if self._torn:
            self._mend()
        start = max(self.size, self._reserved)
        if size <= start:
            return
        self._make_room(size)
        while True:
            self._torn = True
            try:
                allocate(self._fd, start, size - start)
                break
            except OSError as error:
                os.ftruncate(self._fd, start)  # ext4 keeps partially allocated blocks
                self._torn = False
                self._recover(error, f"reserve {size} bytes for", size)
        self._reserved = size
        self._torn = False

    def _make_room(self, size: int) -> None:
        """Make space for an object that is about to have ``size`` bytes; in a directory that evicts others for it."""

    def _recover(self, error: OSError, action: str, size: int) -> None:
        """Handle a refused write up to ``size``: raise, or return to try again."""
        raise refused(error, action, self.name, self.path) from None

    # --- the end ---

    def _finish(self) -> None:
        try:
            if self._torn or self._reserved > self.size:
                os.ftruncate(self._fd, self.size)
            for mapped in self._maps:
                mapped.flags.writeable = False
            self._publish()
            for mapped in self._maps:
                published(mapped, os.fstat(self._fd), self.location)
        except StorageError:
            raise
        except FileExistsError:
            raise taken(self.name) from None
        except OSError as error:
            raise refused(error, "publish", self.name, self.path) from None

    def _publish(self) -> None:
        """Give the complete file its owner, its mode and its name."""
        if self._mode is not None:
            same_group = self._owner is None or self._owned_by(*self._owner) or self._owned_by(-1, self._owner[1])
            os.fchmod(self._fd, self._mode if same_group else self._mode & ~0o070)  # these bits are for another group
        if self._durable:
            os.fsync(self._fd)
        try:
            self._link()
        except OSError as error:
            if self._temp is not None or error.errno not in DENIED or isinstance(error, StorageError):
                raise
            self._move()
            return self._publish()
        if self._durable:
            sync_directory(os.path.dirname(self.path))

    def _owned_by(self, user: int, group: int) -> bool:
        """Give the file to a user, unless -1, and a group; False without the privilege to."""
        try:
            os.fchown(self._fd, user, group)
        except OSError:
            return False
        return True

    def _link(self) -> None:
        if self._temp is None:
            try:
                link_unnamed(self._fd, self.path)
                return
            except FileExistsError:
                if not self._overwrite:
                    raise
        if self._temp is None:
            # Linking cannot replace, so the file gets a temporary name first, already locked.
            lock_shared(self._fd)
            for temp in temp_paths(self.path):
                self._temp = temp  # before it is linked: an interrupt leaves nothing behind
                try:
                    if link_temp(self._fd, temp):
                        break
                except OSError:
                    self._temp = None
                    raise
        assert self._temp is not None
        (os.replace if self._overwrite else rename_new)(self._temp, self.path)
        self._temp = None

    def _move(self) -> None:
        """Copy an unnamed file that cannot be linked into one with a temporary name."""
        directory = os.path.dirname(self.path)
        name_files_in(directory)
        if self._given:
            raise Unsupported(f"cannot publish {self.name!r}: hard links are denied in {directory!r}")
        fd, self._temp = open_named(self.path)
        unnamed, self._fd, self._file = self._fd, fd, os.fstat(fd)
        self._maps.clear()  # they are views of the file that goes
        try:
            copy_file(unnamed, fd, self.size)
        finally:
            os.close(unnamed)

    def _drop(self) -> None:
        self._maps.clear()
        known = True
        try:
            if self._states.inherited:  # a child that closed what it inherited may have another file of this number
                known = os.path.samestat(os.fstat(self._fd), self._file)
            elif self._temp is not None and os.path.samestat(os.lstat(self._temp), self._file):
                os.unlink(self._temp)
        except OSError:
            pass
        fd, self._fd = self._fd, -1
        if fd >= 0 and known:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<SegmentWriter {self.name!r}, {self.size} bytes{', closed' if self.closed else ''}>"


class PosixWriter(SegmentWriter):
    """A shared memory object that is not a file: written to a temporary file, and copied when it is published.

    So what :meth:`map` returned is no view of the object.
    """

    def _open(self) -> None:
        from tempfile import TemporaryFile

        from shmarrow.memory.posix import check_free

        if not self._overwrite:
            check_free(self.path)
        with TemporaryFile() as file:
            self._fd = os.dup(file.fileno())

    def _publish(self) -> None:
        from shmarrow.memory.posix import publish

        self._maps.clear()
        publish(self.path, self.size, self._read, 0o600 if self._mode is None else self._mode, self._overwrite)

    def _read(self, target: memoryview) -> None:
        """Copy all that was written."""
        done = 0
        while done < self.size:
            done += os.preadv(self._fd, [target[done : done + MAX_CALL_BYTES]], done)


def _lost_source(name: str, pieces: Iterable[Piece]) -> StorageError:
    """Return the error for pieces that are mapped from a file that was truncated: its pages are gone."""
    for mapping in filter(None, map(mapping_of, pieces)):
        with suppress(OSError):
            if mapping.location is not None and os.stat(resolve(mapping.location)[1]).st_size < mapping.size:
                return became_smaller(f"write {name!r} from", mapping.location, mapping.size)
    return StorageError(errno.EFAULT, f"cannot write to {name!r}: the memory of what is written is not there any more")
