"""Where the objects of a store are: names and paths, whom to trust, and the lock of those who take names away.

The store ``shm:NAME`` keeps the object OBJECT as the shared memory object ``/NAME.OBJECT``, which on Linux is the file
``/dev/shm/NAME.OBJECT``; a store in a directory keeps it as the file OBJECT there. Rules kept here:

* a name never leads out of the directory, and never to the hidden files of the store: it has no ``/`` and does not
  start with ``.``;
* a directory that others own or may write to is refused unless it was asked for, and so are symbolic links;
* what the store needs beside its objects is in one hidden directory, its control directory, which is made when it is
  first needed and removed when it is empty;
* whoever takes a name away from an object (deletes, evicts, replaces, renames) holds the lock of the control directory
  meanwhile, so that what was checked about a name stays true until it is gone. Publishing under a free name needs no
  lock: a link takes a name from nobody.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from shmarrow.errors import InvalidArgument, InvalidType, StorageError, Unsupported, storage_error
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME, Location, is_location, supports_unnamed
from shmarrow.segment.files import lock_exclusive
from shmarrow.segment.location import decoded

CONTROL = ".shmarrow"
LOCK_SECONDS = 30.0
NAME_MAX = 255
WRITE_BITS = 0o222

_held: set[int] = set()
"""Descriptors of locks that are not to outlive this process in a child that it forks."""


def close_in_children(fd: int) -> None:
    """A forked child closes this descriptor, whose lock is this process's own."""
    _held.add(fd)


def forget(fd: int) -> None:
    """The descriptor is about to be closed."""
    _held.discard(fd)


def _close_held() -> None:
    for fd in _held:
        with suppress(OSError):
            os.close(fd)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)


class Found(NamedTuple):
    """A file of the store, as a scan found it.

    Attributes
    ----------
    name : str
        The name of the object.
    size : int
        Its bytes.
    used : int
        When it was used last, in nanoseconds since 1970; at first when it was published.
    published : int
        When it was published, to the nanosecond.
    inode : int
        Its number in the file system.
    """

    name: str
    size: int
    used: int
    published: int
    inode: int

    @property
    def key(self) -> tuple[int, int]:
        """What tells this file from all that had the name before it or will have its inode after it."""
        return self.inode, self.published


def found_as(name: str, status: os.stat_result) -> Found:
    """What a file's status says."""
    published = status.st_mtime_ns
    return Found(name, status.st_size, max(status.st_atime_ns, published), published, status.st_ino)


class Place:
    """A directory, the prefix of the store's files in it, and its control directory.

    Parameters
    ----------
    where : str or PathLike
        ``shm:NAME``, where NAME has no ``/`` and no ``.``, or a directory, made if it is not there.
    mode : int
        Permissions of what the store makes: directories get search permission where they get read permission, published
        objects lose the permission to write.
    trust : bool
        Accept directories and objects of other users, and directories that others may write to.
    """

    def __init__(self, where: Location, mode: int, trust: bool) -> None:
        if not isinstance(mode, int) or not 0 <= mode <= 0o777 or mode & 0o600 != 0o600:
            raise InvalidArgument(
                f"mode must be permission bits from 0o600 to 0o777 that let the owner read and write, found {mode!r}"
            )
        if not is_location(where):
            raise InvalidType(f"a store is in a directory or at {SHM_SCHEME}NAME, found {type(where).__name__}")
        self.name = decoded(where)
        if "://" in self.name:
            raise InvalidArgument(
                f"a store is in a directory of this machine or at {SHM_SCHEME}NAME, found the URL {self.name!r}"
            )
        if self.name.startswith("~/"):
            self.name = os.path.expanduser(self.name)
        self.directory_mode = mode | (mode & 0o444) >> 2
        self.object_mode = mode & ~WRITE_BITS
        self.owners = None if trust else frozenset({os.geteuid(), 0})
        if self.name.startswith(SHM_SCHEME):
            self.directory, self.prefix, self.control = _shared_memory(self.name)
        else:
            self.directory, self.prefix = os.path.abspath(self.name), ""
            self.control = os.path.join(self.directory, CONTROL)
            self._make_directory()
            self._check_directory(mode, trust)

    @functools.cached_property
    def unnamed(self) -> bool:
        """Whether objects can be written without a name; who only reads need not know."""
        return supports_unnamed(self.directory)

    def _make_directory(self) -> None:
        try:
            os.makedirs(os.path.dirname(self.directory), exist_ok=True)
            os.mkdir(self.directory, 0o700)
            os.chmod(self.directory, self.directory_mode)
        except FileExistsError:
            return
        except OSError as error:
            raise storage_error(error, "make the directory", self.directory) from None

    def _check_directory(self, mode: int, trust: bool) -> None:
        try:
            found = os.stat(self.directory) if trust else os.lstat(self.directory)
        except OSError as error:
            raise storage_error(error, "open the store", self.directory) from None
        if not stat.S_ISDIR(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "a file"
            raise StorageError(
                errno.ENOTDIR,
                f"cannot open the store {self.directory!r}: expected a directory, found {kind}"
                + ("; pass the directory that it leads to" if stat.S_ISLNK(found.st_mode) else ""),
            )
        if self.owners is not None and found.st_uid not in self.owners:
            raise self._distrust(f"user {found.st_uid} owns it, and this process runs as user {os.geteuid()}")
        if not trust and found.st_mode & 0o022 & ~mode:
            raise self._distrust(f"its mode is {stat.S_IMODE(found.st_mode):04o}, so others may write to it")

    def _distrust(self, reason: str) -> StorageError:
        return StorageError(
            errno.EPERM,
            f"cannot open the store {self.directory!r}: {reason}, and could plant objects and replace them; choose "
            "another directory, or pass trust=True to accept it",
        )

    def path(self, name: str) -> str:
        """The file of an object.

        Raises
        ------
        InvalidArgument
            If this cannot be the name of an object.
        """
        if not isinstance(name, str):
            raise InvalidType(f"the name of an object is a str, found {type(name).__name__}")
        if not name or name[0] == "." or "/" in name or "\0" in name:
            raise InvalidArgument(
                f"the name of an object has at least one character, no '/' and no NUL, and does not start with '.', "
                f"found {name!r}"
            )
        file = self.prefix + name
        try:
            size = len(os.fsencode(file))
        except UnicodeError as error:
            raise InvalidArgument(f"{name!r} cannot be encoded as a name: {error}") from None
        if size > NAME_MAX - bool(self.prefix):
            room = NAME_MAX - bool(self.prefix) - len(self.prefix)
            raise InvalidArgument(f"the name of an object has at most {room} bytes here, found {name!r}")
        return f"{self.directory}/{file}"

    def name_of(self, file: str) -> str | None:
        """The name of the object that a file of the directory is; None where it is none of this store."""
        name = file[len(self.prefix) :]
        return name if file.startswith(self.prefix) and name and name[0] != "." else None

    def names(self) -> Iterator[str]:
        """The names of all objects, in no order."""
        for entry in self._entries():
            name = self.name_of(entry.name)
            if name is not None and entry.is_file(follow_symlinks=False):
                yield name

    def scan(self) -> Iterator[Found]:
        """All objects, with their sizes and times, in no order."""
        for entry in self._entries():
            name = self.name_of(entry.name)
            if name is None:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone since it was listed
            if stat.S_ISREG(status.st_mode):
                yield found_as(name, status)

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self.directory) as entries:
                yield from entries
        except OSError as error:
            raise storage_error(error, "list the store", self.name) from None

    def free(self) -> int:
        """Bytes that the file system has free for this user."""
        try:
            status = os.statvfs(self.directory)
        except OSError as error:
            raise storage_error(error, "look at the file system of", self.directory) from None
        return status.f_bavail * status.f_frsize

    def lock(self, patience: float | None = None) -> Lock:
        """The lock of those who take names away; a context manager, which waits for it at most so many seconds."""
        return Lock(self, LOCK_SECONDS if patience is None else patience)

    def open_control(self, make: bool = True) -> int:
        """A descriptor of the control directory.

        Raises
        ------
        FileNotFoundError
            If it is not there and is not to be made.
        """
        while True:
            try:
                fd = os.open(self.control, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                if not make:
                    raise
                self._make_control()
                continue
            owner = os.fstat(fd).st_uid
            if self.owners is None or owner in self.owners:
                return fd
            os.close(fd)
            raise PermissionError(errno.EPERM, f"it belongs to user {owner}, who is not trusted here")

    def _make_control(self) -> None:
        """Make the control directory; others may make it or remove it meanwhile."""
        with suppress(FileExistsError):
            os.mkdir(self.control, 0o700)
            with suppress(FileNotFoundError):
                os.chmod(self.control, self.directory_mode)


def _shared_memory(where: str) -> tuple[str, str, str]:
    """Directory, prefix and control directory of a store in shared memory."""
    name = where[len(SHM_SCHEME) :]
    if not os.path.isdir(SHM_DIRECTORY):
        raise Unsupported(
            f"cannot open {where!r}: on this machine shared memory objects are not files in {SHM_DIRECTORY}; use a "
            "directory"
        )
    if not name or {"/", ".", "\0"}.intersection(name) or len(os.fsencode(name)) > NAME_MAX // 2:
        raise InvalidArgument(
            f"expected {SHM_SCHEME}NAME, where NAME has 1 to {NAME_MAX // 2} bytes, no '/', no '.' and no NUL, "
            f"found {where!r}"
        )
    return SHM_DIRECTORY, f"{name}.", f"{SHM_DIRECTORY}/{CONTROL}.{name}"


class Lock:
    """The exclusive lock of a store's control directory, for one ``with`` block.

    A class and not a generator: a forked child must not run the end of a block that another thread of its parent is in.
    """

    __slots__ = ("_fd", "_patience", "_place")

    def __init__(self, place: Place, patience: float) -> None:
        self._place = place
        self._patience = patience
        self._fd = -1

    def __enter__(self) -> None:
        try:
            self._fd = self._acquire()
        except OSError as error:
            raise storage_error(error, "lock the store at", self._place.control) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Explicitly, as a child that was forked meanwhile may hold the descriptor too.
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        forget(self._fd)
        os.close(self._fd)

    def _acquire(self) -> int:
        deadline = time.monotonic() + self._patience
        while True:
            fd = self._place.open_control()
            close_in_children(fd)
            try:
                lock_exclusive(fd, deadline)
                if os.path.samestat(os.fstat(fd), os.stat(self._place.control)):
                    return fd
            except FileNotFoundError:
                pass  # removed by the one who had the lock before
            except BaseException:
                forget(fd)
                os.close(fd)
                raise
            forget(fd)
            os.close(fd)
