"""The directory of a store: located, checked and opened once; its files are opened relative to its descriptor.

Invariants:

* who owns the directory and who may write to it is checked on the open descriptor, so whatever happens to its path
  later, the store stays in the directory that was checked;
* a store is a directory with a control file of this format; other directories are refused unless they are empty;
* a new control file gets its name when it is complete, so of several processes that create a store one does;
* no path comes from the catalog: objects are files named by a number.
"""

from __future__ import annotations

import errno
import os
import re
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
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME, Location, is_location
from shmarrow.segment.files import open_unnamed, sync_directory
from shmarrow.segment.location import check_shm, decoded
from shmarrow.store import protocol as p
from shmarrow.store.protocol import COMMIT, CONTROL, MAGIC, PINS
from shmarrow.store.settings import FIRST_SLOTS, Settings, Wanted, check_spill, default_eviction, destroyed, pack_header

Trust: TypeAlias = bool | int | str | Iterable[int | str]
"""Whose directories and files are accepted: True for anybody's, or users by number or name."""
T = TypeVar("T")
SHM_NAME_MAX = 200
_SHARED = SHM_DIRECTORY + "/"
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_JOURNAL = p.HEADER["journal"][0]
_UNFINISHED = re.compile(rf"({CONTROL}|{PINS}|{COMMIT})\.[0-9a-f]{{16}}")
_PATIENCE, _PAUSE = 1.0, 0.002
_CONTROL_SIZE = p.SLOTS + FIRST_SLOTS * p.SLOT_SIZE


def as_trust(trust: Trust) -> bool | tuple[int, ...]:
    """Whom a caller trusts: anybody, nobody else, or users by their numbers."""
    if isinstance(trust, bool):
        return trust
    users = [trust] if isinstance(trust, (int, str)) else trust
    try:
        found = tuple([_user(user) if isinstance(user, str) else user for user in users])
        if any(not isinstance(user, int) or user < 0 for user in found):
            raise TypeError
    except (TypeError, KeyError, ValueError):
        raise InvalidArgument(
            f"trust must be True, False, or users of this machine by name or number, found {shown(trust)}"
        ) from None
    return found


def _user(name: str) -> int:
    import pwd

    return pwd.getpwnam(name).pw_uid


class Directory:
    """The checked descriptor of a store's directory.

    Attributes
    ----------
    name : str
        Where the store is, as it was given.
    path : str
        The directory, for messages and for other programs.
    fd : int
        Its descriptor.
    key : tuple of int
        Device and inode.
    trusted : frozenset of int, optional
        The users whose files are accepted; all where it is None.
    owner : tuple of int
        The user and the group that it belongs to.
    """

    def __init__(self, name: str, path: str, fd: int, trusted: frozenset[int] | None) -> None:
        self.name = name
        self.path = path
        self.fd = fd
        self.trusted = trusted
        found = os.fstat(fd)
        self.key = found.st_dev, found.st_ino
        self.owner = found.st_uid, found.st_gid

    def open(self, file: str, flags: int, bits: int = 0o600) -> int:
        """Open a file of the directory; a link, a FIFO, or a file of a user who is not trusted, is an error."""
        fd = os.open(file, flags | _OPEN_FILE, bits, dir_fd=self.fd)
        found = os.fstat(fd)
        reason = "" if stat.S_ISREG(found.st_mode) else f"its file {file} is not a regular file"
        if self.trusted is not None and found.st_uid not in self.trusted:
            reason = f"its file {file} belongs to user {found.st_uid}, who is not trusted here"
        if reason:
            os.close(fd)
            raise OSError(errno.EPERM, reason)
        return fd

    def give(self, fd: int) -> None:
        """Give a new file to the owner of the directory, where root made it in another user's."""
        if self.owner[0] and not os.geteuid():
            os.fchown(fd, *self.owner)

    def unlink(self, file: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(file, dir_fd=self.fd)

    def has(self, file: str) -> bool:
        """Whether there is a file of this name."""
        with suppress(FileNotFoundError):
            os.stat(file, dir_fd=self.fd, follow_symlinks=False)
            return True
        return False

    def free(self) -> int:
        """Bytes that the file system has free for this user."""
        status = os.fstatvfs(self.fd)
        return status.f_bavail * status.f_frsize

    def sync(self) -> None:
        """Make the names of files survive a crash of the machine."""
        os.fsync(self.fd)


def locate(where: Location) -> tuple[str, str]:
    """The name of a store as it was given, and the path of its directory.

    Raises
    ------
    InvalidArgument, InvalidType
        If no store can be there.
    Unsupported
        On a platform other than Linux.
    """
    if sys.platform != "linux":
        raise Unsupported(f"cannot open the store {shown(where)}: stores need Linux, whose record locks they use")
    if not is_location(where):
        raise InvalidType(f"a store is in a directory or at {SHM_SCHEME}NAME, found {shown(where)}")
    name = decoded(where)
    if name.startswith(SHM_SCHEME):
        short = name[len(SHM_SCHEME) :]
        check_shm(name)
        if not short or {"/", "\0"}.intersection(short) or short[0] == "." or len(os.fsencode(short)) > SHM_NAME_MAX:
            raise InvalidArgument(
                f"expected {SHM_SCHEME}NAME, where NAME has 1 to {SHM_NAME_MAX} bytes, no '/' and no NUL, and does not "
                f"start with '.', found {name!r}"
            )
        return name, f"{SHM_DIRECTORY}/{short}"
    if "://" in name or "\0" in name or not name:
        found = f"the URL {name!r}" if "://" in name else repr(name)
        raise InvalidArgument(f"a store is in a directory of this machine or at {SHM_SCHEME}NAME, found {found}")
    return name, os.path.abspath(os.path.expanduser(name))


def retried(open_store: Callable[[], T], create: bool) -> T:
    """Open a store; where it is destroyed by somebody meanwhile, and is to be created, open the next one."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return open_store()
        except StorageError as error:
            if not create or error.errno not in (errno.ENOENT, errno.ESTALE) or time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


def open_directory(where: Location, want: Wanted, trust: Trust, create: bool) -> Directory:
    """Open the directory of a store, checked; make the directory, and the store in it, where they are missing.

    Raises
    ------
    ObjectNotFound
        If there is no store and none is to be created.
    StorageError
        If it cannot be made or read, is not to be trusted, or is neither a store nor empty.
    """
    name, path = locate(where)
    users = as_trust(trust)
    trusted = None if users is True else frozenset({os.geteuid(), 0, *(users or ())})
    if want.durable and path.startswith(SHM_DIRECTORY + "/"):
        raise InvalidArgument(
            f"the store {name!r} is in shared memory, which a crash of the machine empties, so it cannot be durable; "
            "use a directory on a disk"
        )
    fd = -1
    made = False
    try:
        if create and not os.path.lexists(path):
            with suppress(FileExistsError):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.mkdir(path, 0o700)
                made = True
        fd = os.open(path, _OPEN_DIRECTORY)
        directory = Directory(name, path, fd, trusted)
        check_trust(directory, 0o022)  # of who else may write to it, once it is known whom the store is for
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
        if fd < 0 and error.errno in (errno.ENOTDIR, errno.ELOOP):
            link = os.path.islink(path)
            found = "a symbolic link; pass the directory that it leads to" if link else "another file in its path"
            error = OSError(errno.ENOTDIR, f"expected a directory, found {found}")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            if made:
                with suppress(OSError):  # where somebody else has begun to make a store in it, that one goes on
                    os.rmdir(path)
            raise _no_room(error, name, path) from None
        raise storage_error(error, "open the store", name) from None


def sync_parents(path: str) -> None:
    """Make the name of a directory survive a crash of the machine, and those of all that it is in."""
    try:
        while path != "/":
            path = os.path.dirname(path)
            sync_directory(path)
    except PermissionError:  # who may not open one of them may still have everything synced
        os.sync()


def directory_bits(mode: int) -> int:
    """Permission bits of the directory: search permission goes with read permission, files belong to its group."""
    return mode | (mode & 0o444) >> 2 | (stat.S_ISGID if mode & 0o060 else 0)


def check_trust(directory: Directory, mode: int, control_fd: int = -1) -> None:
    """StorageError for a directory that more users own or may write to than a store of this mode is for."""
    if directory.trusted is None:
        return
    found = os.fstat(directory.fd)
    if found.st_uid not in directory.trusted:
        reason = f"user {found.st_uid} owns it, and this process runs as user {os.geteuid()}"
    elif others := found.st_mode & 0o022 & ~mode:
        who = "anyone" if others & 0o002 else "its group"
        reason = f"its mode is {stat.S_IMODE(found.st_mode):04o}, so {who} may write to it"
    elif control_fd >= 0 and (owner := os.fstat(control_fd).st_uid) not in directory.trusted:
        reason = f"its control file belongs to user {owner}"
    else:
        return
    raise StorageError(
        errno.EPERM,
        f"cannot open the store {directory.name!r}: {reason}; that user could plant or replace objects; choose another "
        "directory, or pass trust=USER, or trust=True to trust anyone",
    )


def _no_room(error: OSError, name: str, path: str) -> StoreFull:
    """The error where the file system has no room for a new store."""
    folder = os.path.dirname(path)
    status = os.statvfs(folder)
    return StoreFull(
        error.errno or errno.ENOSPC,
        f"no room for the catalog of the new store {name!r}: {_CONTROL_SIZE} bytes are needed, "
        f"{status.f_bavail * status.f_frsize} are free in {folder}, and {status.f_favail} inodes; delete files there, "
        "run `shmarrow gc STORE` for other stores, or make it larger",
    )


def _no_store(name: str, path: str) -> ObjectNotFound:
    return ObjectNotFound(
        errno.ENOENT,
        f"there is no store at {name!r}: expected the directory {path!r} with a control file{first_design(path)}",
    )


def first_design(path: str, name: str = "") -> str:
    """Words for an error, where shared memory has objects that the first design kept for a store of this path."""
    folder, short = os.path.split(path)
    if folder != SHM_DIRECTORY or "/" in name:
        return ""
    if name:
        found = [f"{path}.{name}"] if os.path.lexists(f"{path}.{name}") else []
    else:
        found = [f"{folder}/{file}" for file in os.listdir(folder) if file.startswith(f"{short}.")]
    if not found:
        return ""
    return (
        f"; {found[0]!r} is an object of shmarrow's first design, of which this version reads none: it is an Arrow "
        "file, which put_file puts into a store"
    )


# --- creating ---------------------------------------------------------------------------------------------------


def _create(directory: Directory, want: Wanted) -> None:
    """Make an empty directory a store, unless somebody else just did."""
    mode = 0o600 if want.mode is None else want.mode
    check_trust(directory, 0o020 | mode)
    if not _is_empty(directory):
        return
    if _begins(os.path.join(os.path.dirname(directory.path), CONTROL), MAGIC):
        raise StorageError(
            errno.EPERM, f"cannot make {directory.name!r} a store: it is in the directory of another store"
        )
    if want.spill is not None:
        check_spill(want.spill, directory.path)
    sync_parents(directory.path)
    _set_modes(directory, mode)
    bits = stat.S_IMODE(os.fstat(directory.fd).st_mode)
    if missing := directory_bits(mode) & ~bits:
        raise StorageError(
            errno.EPERM,
            f"cannot make {directory.name!r} a store of mode {mode:04o}: that takes a directory of mode "
            f"{bits | missing:04o}, found {bits:04o}, and this process may not change it; let its owner do that",
        )
    check_trust(directory, mode)
    if not _is_empty(directory):  # of what others put there while they could
        return
    eviction = want.eviction or default_eviction(want.capacity)
    settings = Settings(want.capacity, mode, eviction, bool(want.durable), want.spill)
    with _new_file(directory, CONTROL, mode, pack_header(settings), _CONTROL_SIZE) as control:
        # Nothing is linked before all have their blocks: on a full file system nothing is left.
        _new_locks(directory, mode)
        created = control(CONTROL)
    if not created:
        with suppress(OSError):  # somebody else was faster, perhaps with another mode
            _set_modes(directory, os.stat(CONTROL, dir_fd=directory.fd).st_mode & 0o777)
    directory.sync()


def _writers_only(mode: int) -> int:
    """Permission bits of what only those may open who may write to the store."""
    return 0o600 | (mode & 0o022) * 3


def _new_locks(directory: Directory, mode: int) -> None:
    """Make the files of locks, where they are missing."""
    with (
        _new_file(directory, PINS, mode, bytes(8), 8) as pins,
        _new_file(directory, COMMIT, _writers_only(mode), b"", 0) as commit,
    ):
        pins(PINS)
        commit(COMMIT)


def _check_complete(directory: Directory) -> None:
    """Check that the files of locks are there; one who destroyed the store before this one may have removed them."""
    missing = [file for file in (PINS, COMMIT) if not directory.has(file)]
    if not missing:
        return
    fd = directory.open(CONTROL, os.O_RDONLY)
    try:
        header = os.pread(fd, p.JOURNALS[0], 0)
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
    finally:
        os.close(fd)
    if header[:8] == p.DESTROYED.to_bytes(8, "little"):
        raise destroyed(directory.name)
    if header[:8] != MAGIC or any(header[_JOURNAL : _JOURNAL + 8]):  # without commits, no locks mattered
        raise InvalidData(f"the store {directory.name!r} is damaged: its file {missing[0]} is missing")
    _new_locks(directory, mode)


def _set_modes(directory: Directory, mode: int) -> None:
    """Set the permissions of what the store is going to have, or was given by a creator that was killed."""
    for file, bits in ((".", directory_bits(mode)), (PINS, mode), (COMMIT, _writers_only(mode))):
        with suppress(FileNotFoundError):
            found = os.stat(file, dir_fd=directory.fd, follow_symlinks=False)
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != bits and not stat.S_ISLNK(found.st_mode):
                os.chmod(file, bits, dir_fd=directory.fd)


@contextmanager
def _new_file(directory: Directory, file: str, mode: int, data: bytes, size: int) -> Iterator[Callable[[str], bool]]:
    """Make a file that has its mode and bytes, and what gives it its name: False if there is one by then."""
    temp = ""
    fd = open_unnamed(".", dir_fd=directory.fd)
    if fd is None:
        temp = f"{file}.{os.urandom(8).hex()}"
        fd = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FILE, 0o600, dir_fd=directory.fd)
    try:
        directory.give(fd)
        if size:
            os.posix_fallocate(fd, 0, size)
        os.pwrite(fd, data, 0)
        os.fchmod(fd, mode)
        if data:
            os.fsync(fd)  # a control file without its header would be no store for anybody
        yield partial(_linked, directory, temp or f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
        if temp:
            directory.unlink(temp)


def _linked(directory: Directory, source: str, file: str) -> bool:
    try:
        os.link(source, file, src_dir_fd=directory.fd, dst_dir_fd=directory.fd, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


def _is_empty(directory: Directory) -> bool:
    """Whether nothing is there; False if somebody else just made it a store, an error if there is something else."""
    for file in (PINS, COMMIT):  # which a killed creator leaves, and another user may have put there
        with suppress(FileNotFoundError):
            os.close(directory.open(file, os.O_RDONLY))
    found = sorted([file for file in os.listdir(directory.fd) if not _UNFINISHED.fullmatch(file)])
    others = [file for file in found if file not in (PINS, COMMIT)]
    if not others or directory.has(CONTROL):
        return not others
    if not set(found) <= set(os.listdir(directory.fd)):
        raise destroyed(directory.name)  # by somebody, just now
    text = f"expected a store or an empty directory, found {counted(len(others), 'other file')}, such as {others[0]!r}"
    if len(found) > len(others) and all(map(p.is_object, others)):
        text = "its control file is missing, and the objects cannot be found without it; remove the directory"
    elif ".shmarrow" in others:
        text = (
            f"{text}, of a store of shmarrow's first design; this version reads none: its objects are Arrow files, "
            "which put_file puts into a new store"
        )
    else:
        text += "; a store has a directory of its own"
        if _begins(f"/proc/self/fd/{directory.fd}/{others[0]}", b"ARROW1"):
            text += ", into which put_file puts Arrow files such as this one"
    raise StorageError(errno.ENOTEMPTY, f"cannot make {directory.name!r} a store: {text}")


def _begins(path: str, start: bytes) -> bool:
    """Whether there is a file that begins so."""
    try:
        fd = os.open(path, os.O_RDONLY | _OPEN_FILE)
    except OSError:
        return False
    try:
        return os.read(fd, len(start)) == start
    except OSError:
        return False
    finally:
        os.close(fd)
