# SPDX-License-Identifier: Apache-2.0
"""The directory of a store: located, checked and opened once; its files are opened relative to its descriptor.

Invariants:

* owner and permissions of the directory are checked on the open descriptor, so the store stays in the directory that
  was checked even if its path is replaced later;
* a store is a directory with a control file of this format; other directories are refused unless they are empty;
* a new control file is linked only when complete, so if several processes create a store at once, exactly one succeeds;
* no path is read from the catalog: object files are named by number;
* the magic of the control file says that the store is being destroyed, and a lock on the file that a process is at it.
  The control file is removed last, under that lock, so the files of a new store in the directory are never touched;
* closing a control file drops the locks of all threads on it, so a process opens and destroys stores one at a time.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeAlias, TypeVar

from shmarrow.errors import (
    InvalidArgument,
    InvalidData,
    InvalidType,
    ObjectNotFound,
    StorageError,
    StoreFull,
    Unsupported,
    counted,
    shown,
    storage_error,
)
from shmarrow.memory import (
    SHM_DIRECTORY,
    SHM_SCHEME,
    Location,
    allocate,
    check_shm,
    decoded,
    head_of,
    is_location,
    is_shm,
    link_unnamed,
    open_unnamed,
    recognized,
    sync_directory,
    try_lock,
)
from shmarrow.memory.files import DENIED
from shmarrow.memory.locks import LOCKED, identity
from shmarrow.store import protocol as p
from shmarrow.store.protocol import COMMIT, CONTROL, MAGIC, PINS, is_object
from shmarrow.store.settings import FIRST_SLOTS, RequestedSettings, Settings, default_eviction, destroyed, pack_header

Users: TypeAlias = bool | int | str | Iterable[int | str]
"""Users, by number or name, whose directories and files are accepted; True accepts any user's."""
NOT_ACCEPTED = "that user could plant or replace objects: choose another directory, or pass accept_users=USER, or True"
T = TypeVar("T")
SHM_NAME_MAX = 200
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PATIENCE, _PAUSE = 1.0, 0.002
_DESTROYED = p.DESTROYED.to_bytes(8, "little")
_CONTROL_SIZE = p.SLOTS + FIRST_SLOTS * p.SLOT_SIZE


def _unmapped() -> set[int]:
    """The id that the kernel shows in a user namespace for all users it does not know there; not in any other."""
    with suppress(OSError, ValueError):
        with open("/proc/self/uid_map", encoding="ascii") as table, open("/proc/sys/kernel/overflowuid") as overflow:
            number = int(overflow.read())
            ranges = [list(map(int, line.split())) for line in table]
        if not any(first <= number < first + count for first, _, count in ranges):
            return {number}
    return set()


def as_users(accept_users: Users) -> bool | tuple[int, ...]:
    """Check ``accept_users``; return a bool, or the ids of the trusted users."""
    if isinstance(accept_users, bool):
        return accept_users
    users = [accept_users] if isinstance(accept_users, (int, str)) else accept_users
    try:
        ids = tuple([_user(user) if isinstance(user, str) else user for user in users])
        if any(not isinstance(user, int) or user < 0 for user in ids):
            raise TypeError
    except (TypeError, KeyError, ValueError):
        raise InvalidArgument(
            f"accept_users must be True, False, or users of this machine by name or number, found {shown(accept_users)}"
        ) from None
    return ids


def trusted_users(accept_users: bool | tuple[int, ...]) -> frozenset[int] | None:
    """Return the ids of all users whose files are accepted; None if those of any user are."""
    return None if accept_users is True else frozenset({os.geteuid(), 0, *(accept_users or ())} - _unmapped())


def _user(name: str) -> int:
    import pwd

    return pwd.getpwnam(name).pw_uid


class Directory:
    """The checked descriptor of a store's directory.

    Attributes
    ----------
    name : str
        Location of the store, as given.
    path : str
        Path of the directory, for messages and other programs.
    fd : int
        Its file descriptor.
    key : tuple of int
        Device and inode.
    trusted : frozenset of int, optional
        Ids of the users whose files are accepted; None accepts all.
    owner : tuple of int
        User id and group id of its owner.
    """

    def __init__(self, name: str, path: str, fd: int, trusted: frozenset[int] | None) -> None:
        self.name = name
        self.path = path
        self.fd = fd
        self.trusted = trusted
        status = os.fstat(fd)
        self.key = status.st_dev, status.st_ino
        self.owner = status.st_uid, status.st_gid

    def open(self, file: str, flags: int, bits: int = 0o600) -> int:
        """Open a file of the directory; OSError if it is not a regular file, or its owner is not trusted."""
        fd = os.open(file, flags | _OPEN_FILE, bits, dir_fd=self.fd)
        status = os.fstat(fd)
        reason = "" if stat.S_ISREG(status.st_mode) else f"its file {file} is not a regular file"
        if self.trusted is not None and status.st_uid not in self.trusted:
            reason = f"its file {file} belongs to user {status.st_uid}, who is not trusted here"
        if reason:
            os.close(fd)
            raise OSError(errno.EPERM, reason)
        return fd

    def create(self, bits: int) -> int:
        """Open a new file without a name, which leaves nothing behind if its writer is killed.

        Raises
        ------
        Unsupported
            If the file system has no such files.
        """
        fd = open_unnamed(".", bits, self.fd)
        if fd is None:
            lack = "its file system has no unnamed files (O_TMPFILE); use one such as tmpfs, ext4, XFS or Btrfs"
            if not os.path.isdir("/proc/self/fd"):
                lack = "there is no /proc, by which unnamed files get their names; mount it"
            raise Unsupported(f"cannot write to the store {self.name!r}: {lack}")
        return fd

    def unlinkable(self, error: OSError) -> Exception:
        """Return the error for an unnamed file that could not be linked: Unsupported if the system denies links."""
        if error.errno not in DENIED or error.errno == errno.ENOENT:
            return error
        return Unsupported(
            f"cannot write to the store {self.name!r}: {os.strerror(error.errno)}, when a file was linked; stores need "
            "hard links, which some sandboxes deny"
        )

    @property
    def given(self) -> tuple[int, int]:
        """User and group that new files are given to: the owner's, if root creates them; otherwise -1 for no change."""
        return self.owner if self.owner[0] and not os.geteuid() else (-1, -1)

    def give(self, fd: int) -> None:
        """Change the owner of a new file to that of the directory, if root creates it in another user's store."""
        os.fchown(fd, *self.given)

    def unlink(self, file: str) -> None:
        """Remove a file; a missing file is not an error."""
        with suppress(FileNotFoundError):
            os.unlink(file, dir_fd=self.fd)

    def has(self, file: str) -> bool:
        """Whether a file of this name exists."""
        with suppress(FileNotFoundError):
            os.stat(file, dir_fd=self.fd, follow_symlinks=False)
            return True
        return False

    def free(self) -> int:
        """Return the free bytes of the file system for this user."""
        status = os.fstatvfs(self.fd)
        return status.f_bavail * status.f_frsize

    def sync(self) -> None:
        """Sync the directory, so that names of files survive a crash of the machine."""
        os.fsync(self.fd)


def locate(where: Location) -> tuple[str, str]:
    """Return the name of a store, as given, and the path of its directory.

    Raises
    ------
    InvalidArgument, InvalidType
        If it is not a valid location.
    Unsupported
        On a platform other than Linux.
    """
    if not is_location(where):
        raise InvalidType(f"a store is in a directory or at {SHM_SCHEME}NAME, found {shown(where)}")
    name = decoded(where)
    if sys.platform != "linux":
        raise Unsupported(f"cannot open the store {name!r}: stores need Linux, whose record locks they use")
    if is_shm(name):
        short = name[len(SHM_SCHEME) :]
        check_shm(name)
        if not short or {"/", "\0"}.intersection(short) or short[0] == "." or len(os.fsencode(short)) > SHM_NAME_MAX:
            raise InvalidArgument(
                f"expected {SHM_SCHEME}NAME, where NAME has 1 to {SHM_NAME_MAX} bytes, no '/' and no NUL, and does not "
                f"start with '.', found {name!r}"
            )
        return name, f"{SHM_DIRECTORY}/{short}"
    if "://" in name or "\0" in name or not name:
        location = f"the URL {name!r}" if "://" in name else repr(name)
        raise InvalidArgument(f"a store is in a directory of this machine or at {SHM_SCHEME}NAME, found {location}")
    return name, os.path.abspath(os.path.expanduser(name))


def has_magic(path: str) -> bool:
    """Whether a directory has a control file with the magic of a store."""
    control = f"{path}/{CONTROL}"
    with suppress(OSError):
        return identity(os.lstat(control)) in LOCKED or head_of(control).startswith(MAGIC)
    return False


def is_explicit(where: Location) -> bool:
    """Whether a location is no mistyped ``shm:NAME``: a path object, or text with a slash, a scheme, "." or "~"."""
    name = decoded(where)
    return isinstance(where, os.PathLike) or name.startswith((".", "~")) or "/" in name or ":" in name


def retried(open_store: Callable[[], T], create: bool) -> T:
    """Open a store; with ``create``, retry if another process destroys it meanwhile."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return open_store()
        except StorageError as error:
            if not create or error.errno not in (errno.ENOENT, errno.ESTALE) or time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


def find_directory(where: Location, accept_users: bool | tuple[int, ...]) -> Directory:
    """Open the directory of a store whose catalog is not to be opened, and check its owner."""
    name, path = locate(where)
    try:
        directory = Directory(name, path, os.open(path, _OPEN_DIRECTORY), trusted_users(accept_users))
    except OSError as error:
        raise storage_error(error, "open the store", name) from None
    try:
        check_trust(directory, 0o022)  # those who may write are checked with the mode of the store, if it is known
    except BaseException:
        os.close(directory.fd)
        raise
    return directory


def open_directory(where: Location, want: RequestedSettings, accept_users: Users, create: bool) -> Directory:
    """Open and check the directory of a store; with ``create``, create directory and store if missing.

    Raises
    ------
    ObjectNotFound
        If the store does not exist and ``create`` is False.
    StorageError
        If the directory cannot be created or read, is not trusted, or is neither a store nor empty.
    """
    name, path = locate(where)
    trusted = trusted_users(as_users(accept_users))
    if want.durable and path.startswith(SHM_DIRECTORY + "/"):
        raise InvalidArgument(
            f"the store {name!r} is in shared memory, which a crash of the machine empties, so it cannot be durable; "
            "use a directory on a disk"
        )
    fd = -1
    is_new = False
    try:
        if create and not os.path.lexists(path):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
                is_new = True
        fd = os.open(path, _OPEN_DIRECTORY)
        directory = Directory(name, path, fd, trusted)
        check_trust(directory, 0o022)  # the owner only; its mode is checked once the mode of the store is known
        finish_destroying(directory)
        if not directory.has(CONTROL):
            if not create:
                raise _no_store(name, path)
            _create(directory, want)
        _check_complete(directory)
        return directory
    except BaseException as error:
        gone = fd >= 0 and not os.fstat(fd).st_nlink
        None if fd < 0 else os.close(fd)
        if not isinstance(error, OSError) or isinstance(error, StorageError):
            raise
        if gone:
            raise destroyed(name) from None
        if error.errno == errno.ENOENT and not create:
            raise _no_store(name, path) from None
        if error.errno == errno.ENOENT:
            error = OSError(errno.ENOENT, f"there is no directory {os.path.dirname(path)!r}; make it first")
        if fd < 0 and error.errno in (errno.ENOTDIR, errno.ELOOP):
            link = os.path.islink(path)
            what = "a symbolic link; pass its target" if link else "another file in its path"
            error = OSError(errno.ENOTDIR, f"expected a directory, found {what}")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            if is_new:
                with suppress(OSError):  # not empty if another process is creating a store in it
                    os.rmdir(path)
            raise _no_room(error, name, path) from None
        raise storage_error(error, "open the store", name) from None


def sync_parents(path: str) -> None:
    """Sync all parents of a directory, so that its path survives a crash of the machine."""
    try:
        while path != "/":
            path = os.path.dirname(path)
            sync_directory(path)
    except PermissionError:  # syncing everything needs no permission
        os.sync()


def directory_bits(mode: int) -> int:
    """Return the mode of the directory: search where the store grants read, and setgid if it is shared with a group."""
    return mode | (mode & 0o444) >> 2 | (stat.S_ISGID if mode & 0o060 else 0)


def check_trust(directory: Directory, mode: int, control_fd: int = -1) -> None:
    """Raise StorageError if the owner is not trusted, or more users may write to it than ``mode`` allows."""
    if directory.trusted is None:
        return
    status = os.fstat(directory.fd)
    if status.st_uid not in directory.trusted:
        reason = f"user {status.st_uid} owns it, and this process runs as user {os.geteuid()}"
    elif others := status.st_mode & 0o022 & ~mode:
        who = "anyone" if others & 0o002 else "its group"
        reason = f"its mode is {stat.S_IMODE(status.st_mode):04o}, so {who} may write to it"
    elif control_fd >= 0 and (owner := os.fstat(control_fd).st_uid) not in directory.trusted:
        reason = f"its control file belongs to user {owner}"
    else:
        return
    raise StorageError(
        errno.EPERM,
        reason,
        where=[(f"cannot open the store {directory.name!r}",)],
        hint=NOT_ACCEPTED,
    )


def _no_room(error: OSError, name: str, path: str) -> StoreFull:
    """Return the error for a file system without space for a new store."""
    folder = os.path.dirname(path)
    status = os.statvfs(folder)
    return StoreFull(
        error.errno or errno.ENOSPC,
        f"no room for the catalog of the new store {name!r}: {_CONTROL_SIZE} bytes are needed, "
        f"{status.f_bavail * status.f_frsize} are free in {folder}, and {status.f_favail} inodes; delete files there, "
        "run `shmarrow collect STORE` for other stores, or make it larger",
    )


def _no_store(name: str, path: str) -> ObjectNotFound:
    return ObjectNotFound(
        errno.ENOENT,
        f"there is no store at {name!r}: expected the directory {path!r} with a control file",
        hint=None
        if is_explicit(name)
        else f"'shm:{name}' is a store in shared memory, './{name}' one in this directory",
    )


# --- creating ---------------------------------------------------------------------------------------------------


def _create(directory: Directory, want: RequestedSettings) -> None:
    """Turn an empty directory into a store, unless another process just did."""
    mode = 0o600 if want.mode is None else want.mode
    check_trust(directory, 0o020 | mode)
    if not _is_empty(directory):
        return
    if has_magic(os.path.dirname(directory.path)):
        raise StorageError(
            errno.EPERM, f"cannot create the store {directory.name!r}: it is in the directory of another store"
        )
    sync_parents(directory.path)
    _set_modes(directory, mode)
    bits = stat.S_IMODE(os.fstat(directory.fd).st_mode)
    if missing := directory_bits(mode) & ~bits:
        raise StorageError(
            errno.EPERM,
            f"cannot create the store {directory.name!r} of mode {mode:04o}: its directory needs mode "
            f"{bits | missing:04o}, found {bits:04o}, which this process may not change; ask its owner to",
        )
    check_trust(directory, mode)
    if not _is_empty(directory):  # others may have written to it before its mode was set
        return
    eviction = want.eviction or default_eviction(want.capacity)
    settings = Settings(want.capacity, mode, eviction, bool(want.durable))
    with _new_file(directory, mode, pack_header(settings), _CONTROL_SIZE) as control:
        # All blocks are allocated before anything is linked, so a full file system leaves nothing behind.
        _new_locks(directory, mode)
        created = control(CONTROL)
    if not created:
        with suppress(OSError):  # another process was faster, perhaps with another mode
            _set_modes(directory, os.stat(CONTROL, dir_fd=directory.fd).st_mode & 0o777)
    directory.sync()


def writers_only(mode: int) -> int:
    """Return the mode of a file that only writers of the store may open."""
    return 0o600 | (mode & 0o022) * 3


def _new_locks(directory: Directory, mode: int) -> None:
    """Create the lock files that are missing."""
    with (
        _new_file(directory, mode, b"", 0) as pins,
        _new_file(directory, writers_only(mode), b"", 0) as commit,
    ):
        pins(PINS)
        commit(COMMIT)


def _check_complete(directory: Directory) -> None:
    """Check that the lock files exist; recreate them if the destroyer of an earlier store removed them."""
    missing = [file for file in (PINS, COMMIT) if not directory.has(file)]
    if not missing:
        return
    fd = directory.open(CONTROL, os.O_RDONLY)
    try:
        header = os.pread(fd, p.JOURNALS[0], 0)
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
    finally:
        os.close(fd)
    if header[:8] == _DESTROYED:
        raise destroyed(directory.name)
    # Before the first commit they can be recreated.
    if header[:8] != MAGIC or any(header[p.HEADER["journal"][0] :][:8]):
        raise InvalidData(f"the store {directory.name!r} is damaged: its file {missing[0]} is missing")
    _new_locks(directory, mode)


def _set_modes(directory: Directory, mode: int) -> None:
    """Set the modes of the directory and the lock files, which a killed creator may have left."""
    for file, bits in ((".", directory_bits(mode)), (PINS, mode), (COMMIT, writers_only(mode))):
        with suppress(FileNotFoundError):
            status = os.stat(file, dir_fd=directory.fd, follow_symlinks=False)
            if (
                status.st_uid == os.geteuid()
                and stat.S_IMODE(status.st_mode) != bits
                and not stat.S_ISLNK(status.st_mode)
            ):
                os.chmod(file, bits, dir_fd=directory.fd)


@contextmanager
def _new_file(directory: Directory, mode: int, data: bytes, size: int) -> Iterator[Callable[[str], bool]]:
    """Create an unnamed file with mode and contents; yield a function that links it, False if the name is taken."""
    fd = directory.create(0o600)
    try:
        directory.give(fd)
        if size:
            allocate(fd, 0, size)
        os.pwrite(fd, data, 0)
        os.fchmod(fd, mode)
        if data:
            os.fsync(fd)  # a control file without its header would make the store unusable
        yield partial(_linked, directory, fd)
    finally:
        os.close(fd)


def _linked(directory: Directory, fd: int, file: str) -> bool:
    try:
        link_unnamed(fd, file, directory.fd)
    except FileExistsError:
        return False
    except OSError as error:
        raise directory.unlinkable(error) from None
    return True


def _is_empty(directory: Directory) -> bool:
    """Whether the directory is empty; False if another process just created a store there, StorageError otherwise."""
    for file in (PINS, COMMIT):  # left by a killed creator, or planted by another user, which `open` refuses
        with suppress(FileNotFoundError):
            os.close(directory.open(file, os.O_RDONLY))
    files = sorted(os.listdir(directory.fd))
    others = [file for file in files if file not in (PINS, COMMIT)]
    if not others or directory.has(CONTROL):
        return not others
    if not set(files) <= set(os.listdir(directory.fd)):
        raise destroyed(directory.name)  # just now, by another process
    text = f"expected a store or an empty directory, found {counted(len(others), 'other file')}, such as {others[0]!r}"
    if len(files) > len(others) and all(map(is_object, others)):
        text = "its control file is missing, without which its objects cannot be found; remove the directory"
    else:
        text += "; a store needs its own directory"
        if recognized(head_of(f"/proc/self/fd/{directory.fd}/{others[0]}")).kind == "arrow":
            text += "; add Arrow files such as this one to it with put_file"
    raise StorageError(errno.ENOTEMPTY, f"cannot create the store {directory.name!r}: {text}")


# --- destroying -------------------------------------------------------------------------------------------------


def remove_files(directory: Directory, control_fd: int) -> None:
    """Remove all files of a store whose control file has the magic of a destroyed one, and is locked."""
    last = int.from_bytes(os.pread(control_fd, 8, p.HEADER["file"][0]), "little") + 1
    for file in filter(is_object, os.listdir(directory.fd)):
        if int(file[:16], 16) <= last:
            with suppress(OSError):
                directory.unlink(file)
    for name in (p.PINS, p.COMMIT, p.CONTROL):
        directory.unlink(name)


def finish_destroying(directory: Directory) -> None:
    """Remove what is left of a store that a killed process was destroying; StorageError if one still is."""
    try:
        fd = directory.open(p.CONTROL, os.O_RDWR)
    except OSError:  # there is none, or this process may not write to it
        return
    try:
        if os.pread(fd, len(_DESTROYED), 0) == _DESTROYED:
            if not try_lock(fd, 0, True):  # until it is closed; others do not begin, or are at it
                raise destroyed(directory.name)
            if os.fstat(fd).st_nlink:
                remove_files(directory, fd)
    finally:
        os.close(fd)
