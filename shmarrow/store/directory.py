"""The directory of a store: found, checked and opened once; everything in it is reached through its descriptor.

Rules kept here:

* who owns the directory and who may write to it is checked on the open descriptor, so whatever happens to its path
  later, the store stays in the directory that was checked;
* a store is a directory with a control file of this format; other directories are refused unless they are empty;
* a new control file gets its name when it is complete, so of several processes that create a store one does;
* no path comes from the catalog: objects are files named by a number.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NamedTuple
from uuid import UUID, uuid5

from shmarrow.errors import (
    InvalidArgument,
    InvalidData,
    InvalidType,
    ObjectNotFound,
    StorageError,
    Unsupported,
    shown,
    storage_error,
)
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME, Location, is_location
from shmarrow.segment.files import sync_directory
from shmarrow.segment.host import boot_id
from shmarrow.segment.location import decoded
from shmarrow.store import protocol
from shmarrow.store.protocol import COMMIT, CONTROL, FIXED, HEADER, MAGIC, PINS, SLOT_SIZE, SLOTS, VERSION

EVICTIONS = ("none", "lru")
SHM_NAME_MAX = 200
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NO_HOST = UUID("5a3c7c52-9f0e-4d0c-8d1e-2f6f0a7b9c11")
FIRST_SLOTS = 32


class Settings(NamedTuple):
    """What belongs to a store, whoever opens it.

    Attributes
    ----------
    capacity : int or None
        The most bytes that its objects may take.
    mode : int
        Permission bits: of 0600 for its owner alone, of 0640 for a group that reads, of 0660 for one that writes.
    eviction : str
        ``"lru"`` or ``"none"``.
    durable : bool
        Whether every change is on the disk before the call returns.
    spill : str or None
        The directory that objects move to when there is no room.
    """

    capacity: int | None
    mode: int
    eviction: str
    durable: bool
    spill: str | None


class Wanted(NamedTuple):
    """The settings that a caller names; None for whatever the store has. Checked by :func:`wanted`."""

    capacity: int | None = None
    mode: int | None = None
    eviction: str | None = None
    durable: bool | None = None
    spill: str | None = None


def wanted(
    capacity: object = None, mode: object = None, eviction: object = None, durable: object = None, spill: object = None
) -> Wanted:
    """Check settings one by one.

    Raises
    ------
    InvalidArgument, InvalidType
        If one cannot be a setting.
    """
    if capacity is not None:
        if isinstance(capacity, float) and capacity.is_integer():
            capacity = int(capacity)
        if not isinstance(capacity, int) or isinstance(capacity, bool):
            raise InvalidType(f"capacity is a number of bytes, an int, found {shown(capacity)}")
        if not 1 <= capacity < 1 << 63:
            raise InvalidArgument(f"capacity is a number of bytes from 1 to 2**63 - 1, found {capacity}")
    if mode is not None and (
        not isinstance(mode, int) or isinstance(mode, bool) or not 0 <= mode <= 0o777 or mode & 0o600 != 0o600
    ):
        found = f"{mode:#o}" if isinstance(mode, int) else shown(mode)
        raise InvalidArgument(
            f"mode is permission bits from 0o600 to 0o777 that let the owner read and write, found {found}"
        )
    if eviction is not None and eviction not in EVICTIONS:
        raise InvalidArgument(f"eviction is 'lru' or 'none', found {shown(eviction)}")
    if durable is not None and not isinstance(durable, bool):
        raise InvalidType(f"durable is a bool, found {shown(durable)}")
    if spill is not None:
        if not is_location(spill):
            raise InvalidType(f"spill is the path of a directory, found {shown(spill)}")
        spill = os.path.abspath(os.path.expanduser(decoded(spill)))  # type: ignore[arg-type]
        if len(os.fsencode(spill)) > int(HEADER["spill_path"][1][:-1]):
            raise InvalidArgument(f"the path of the spill directory has at most 1024 bytes, found {shown(spill)}")
    return Wanted(capacity, mode, eviction, durable, spill)


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
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(errno.EPERM, "it is not a regular file")
        if self.trusted is not None and found.st_uid not in self.trusted:
            os.close(fd)
            raise OSError(errno.EPERM, f"it belongs to user {found.st_uid}, who is not trusted here")
        return fd

    def give(self, fd: int) -> None:
        """Give a new file to the owner of the directory, where root made it in another user's."""
        if self.owner[0] and not os.geteuid():
            os.fchown(fd, *self.owner)

    def unlink(self, file: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(file, dir_fd=self.fd)

    def free(self) -> int:
        """Bytes that the file system has free for this user."""
        status = os.fstatvfs(self.fd)
        return status.f_bavail * status.f_frsize

    def sync(self) -> None:
        """Make the names of files survive a crash of the machine."""
        os.fsync(self.fd)


@cache
def this_boot() -> bytes:
    """The id of this boot of the host, 16 bytes."""
    found = boot_id()
    try:
        return UUID(found).bytes
    except ValueError:
        return uuid5(_NO_HOST, found).bytes


def locate(where: Location) -> tuple[str, str]:
    """The name of a store as it was given, and the path of its directory.

    Raises
    ------
    InvalidArgument, InvalidType
        If no store can be there.
    """
    if not is_location(where):
        raise InvalidType(f"a store is in a directory or at {SHM_SCHEME}NAME, found {shown(where)}")
    name = decoded(where)
    if name.startswith(SHM_SCHEME):
        short = name[len(SHM_SCHEME) :]
        if not os.path.isdir(SHM_DIRECTORY):
            raise Unsupported(
                f"cannot open {name!r}: on this machine shared memory objects are not files in {SHM_DIRECTORY}; use a "
                "directory"
            )
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


def open_directory(where: Location, want: Wanted, trust: bool, create: bool) -> Directory:
    """Open the directory of a store, checked; make the directory, and the store in it, where they are missing.

    Raises
    ------
    ObjectNotFound
        If there is no store and none is to be created.
    StorageError
        If it cannot be made or read, is not to be trusted, or is neither a store nor empty.
    """
    name, path = locate(where)
    if want.durable and path.startswith(SHM_DIRECTORY + "/"):
        raise InvalidArgument(
            f"the store {name!r} is in shared memory, which a crash of the machine empties, so it cannot be durable; "
            "use a directory on a disk"
        )
    try:
        while True:
            try:
                fd = os.open(path, _OPEN_DIRECTORY)
                break
            except FileNotFoundError:
                if not create:
                    raise _no_store(name, path) from None
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with suppress(FileExistsError):
                    os.mkdir(path, 0o700)
    except StorageError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise _no_directory(name, path) from None
        raise storage_error(error, "open the store", name) from None
    try:
        directory = Directory(name, path, fd, None if trust else frozenset({os.geteuid(), 0}))
        check_trust(directory, 0o022)  # of who else may write to it, once it is known whom the store is for
        if not has_control(directory):
            if not create:
                raise _no_store(name, path)
            check_trust(directory, 0o020 | (want.mode or 0))
            sync_parents(path)
            _create(directory, want)
        return directory
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(error, "open the store", name) from None
        raise


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
    """Refuse a directory that more users may write to than a store of this mode is for.

    Raises
    ------
    StorageError
        If it, or its control file, is not to be trusted.
    """
    if directory.trusted is None:
        return
    found = os.fstat(directory.fd)
    if found.st_uid not in directory.trusted:
        raise _distrust(directory, f"user {found.st_uid} owns it, and this process runs as user {os.geteuid()}")
    if others := found.st_mode & 0o022 & ~mode:
        who = "anyone" if others & 0o002 else "its group"
        raise _distrust(directory, f"its mode is {stat.S_IMODE(found.st_mode):04o}, so {who} may write to it")
    if control_fd >= 0 and (owner := os.fstat(control_fd).st_uid) not in directory.trusted:
        raise _distrust(directory, f"its control file belongs to user {owner}")


def _distrust(directory: Directory, reason: str) -> StorageError:
    return StorageError(
        errno.EPERM,
        f"cannot open the store {directory.name!r}: {reason}, and could plant objects and replace them; choose another "
        "directory, or pass trust=True to accept it",
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


def destroyed(name: str) -> StorageError:
    """The error for a store that was, or is being, removed."""
    return StorageError(
        errno.ESTALE,
        f"the store {name!r} was destroyed; open it again; if that says the same, whoever destroyed it was "
        "killed before all files were removed: remove the directory",
    )


def _no_directory(name: str, path: str) -> StorageError:
    if os.path.islink(path):
        return StorageError(
            errno.ENOTDIR,
            f"cannot open the store {name!r}: expected a directory, found a symbolic link; pass the directory that it "
            "leads to",
        )
    return StorageError(
        errno.ENOTDIR, f"cannot open the store {name!r}: expected a directory, found another file in its path"
    )


def has_control(directory: Directory) -> bool:
    """Whether there is a store."""
    try:
        os.stat(CONTROL, dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


# --- creating ---------------------------------------------------------------------------------------------------


def _create(directory: Directory, want: Wanted) -> None:
    """Make an empty directory a store, unless somebody else just did."""
    if not _is_empty(directory):
        return
    mode = 0o600 if want.mode is None else want.mode
    eviction = want.eviction or ("none" if want.capacity is None else "lru")
    settings = Settings(want.capacity, mode, eviction, bool(want.durable), want.spill)
    _set_modes(directory, mode)
    bits = stat.S_IMODE(os.fstat(directory.fd).st_mode)
    if missing := directory_bits(mode) & ~bits:
        raise StorageError(
            errno.EPERM,
            f"cannot make {directory.name!r} a store of mode {mode:04o}: that takes a directory of mode "
            f"{bits | missing:04o}, found {bits:04o}, and this process may not change it; let its owner do that",
        )
    _new_file(directory, PINS, mode, bytes(8), 8)
    _new_file(directory, COMMIT, _writers_only(mode), b"", 0)
    size = SLOTS + FIRST_SLOTS * SLOT_SIZE
    if not _new_file(directory, CONTROL, mode, pack_header(settings), size):
        with suppress(OSError):  # somebody else was faster, perhaps with another mode
            _set_modes(directory, os.stat(CONTROL, dir_fd=directory.fd).st_mode & 0o777)
    directory.sync()


def _writers_only(mode: int) -> int:
    """Permission bits of what only those may open who may write to the store."""
    return 0o600 | (0o060 if mode & 0o020 else 0) | (0o006 if mode & 0o002 else 0)


def _set_modes(directory: Directory, mode: int) -> None:
    """Set the permissions of what the store is going to have, or was given by a creator that was killed."""
    for file, bits in ((".", directory_bits(mode)), (PINS, mode), (COMMIT, _writers_only(mode))):
        with suppress(FileNotFoundError):
            found = os.stat(file, dir_fd=directory.fd, follow_symlinks=False)
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != bits and not stat.S_ISLNK(found.st_mode):
                os.chmod(file, bits, dir_fd=directory.fd)


def _new_file(directory: Directory, file: str, mode: int, data: bytes, size: int) -> bool:
    """Make a file that has its name, mode and bytes at once; False if there is one of this name by then."""
    temp = None
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=directory.fd)
    except (AttributeError, OSError) as error:  # there are no files without names
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
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
        if temp is None:
            os.link(f"/proc/self/fd/{fd}", file, src_dir_fd=fd, dst_dir_fd=directory.fd, follow_symlinks=True)
        else:
            os.link(temp, file, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    except FileExistsError:
        return False
    finally:
        os.close(fd)
        if temp is not None:
            directory.unlink(temp)
    return True


def _is_empty(directory: Directory) -> bool:
    """Whether nothing is there; False if somebody else just made it a store, an error if there is something else."""
    found = sorted(set(os.listdir(directory.fd)) - {PINS, COMMIT})  # which a killed creator leaves
    if not found or CONTROL in found:
        return not found
    if ".shmarrow" in found or _is_arrow(directory, found[0]):
        raise StorageError(
            errno.ENOTEMPTY,
            f"cannot make {directory.name!r} a store: it has {len(found)} files, such as {found[0]!r}, which look like "
            "a store of shmarrow's first design, of which this version reads none; its objects are Arrow files: put "
            "them into a new store with put_file, and remove them",
        )
    raise StorageError(
        errno.ENOTEMPTY,
        f"cannot make {directory.name!r} a store: expected a store or an empty directory, found {len(found)} other "
        f"files, such as {found[0]!r}; a store has a directory of its own",
    )


def _is_arrow(directory: Directory, file: str) -> bool:
    try:
        fd = directory.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.read(fd, 6) == b"ARROW1"
    finally:
        os.close(fd)


def pack_header(settings: Settings, store_id: bytes | None = None, modulus: int | None = None) -> bytes:
    """The header of a new control file."""
    path = os.fsencode(settings.spill or "")
    fixed = FIXED.pack(
        MAGIC,
        VERSION,
        SLOT_SIZE,
        SLOTS,
        os.urandom(16) if store_id is None else store_id,
        this_boot(),
        _prime() if modulus is None else modulus,
        settings.capacity or 0,
        EVICTIONS.index(settings.eviction),
        settings.mode,
        settings.durable,
        len(path),
    )
    header = bytearray(JOURNAL_START)
    header[: len(fixed)] = fixed
    offset = HEADER["slots"][0]
    header[offset : offset + 8] = FIRST_SLOTS.to_bytes(8, "little")
    offset = HEADER["spill_path"][0]
    header[offset : offset + len(path)] = path
    return bytes(header)


JOURNAL_START = protocol.JOURNALS[0]


def _prime() -> int:
    """A random prime, so that nobody can choose names whose hashes are equal."""
    source = random.SystemRandom()
    while True:
        number = source.randrange((1 << 60) + 1, 1 << 61, 2)
        if all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7, 11, 13)):
            return number


def read_settings(header: bytes, where: str) -> tuple[Settings, bytes, int]:
    """The settings, the store id and the modulus of the hash that a header holds.

    Raises
    ------
    InvalidData
        If it is none of a store, of another version, or damaged.
    """
    magic, version, slot_size, offset, store_id, _, modulus, capacity, eviction, mode, durable, length = (
        FIXED.unpack_from(header)
    )
    if int.from_bytes(magic, "little") == protocol.DESTROYED:
        raise destroyed(where)
    if magic != MAGIC:
        raise InvalidData(f"the control file of {where!r}: expected the magic {MAGIC!r}, found {magic!r}")
    if version != VERSION:
        raise InvalidData(
            f"the control file of {where!r}: expected version {VERSION}, found {version}; use a shmarrow that knows it"
        )
    if (slot_size, offset) != (SLOT_SIZE, SLOTS) or not 1 << 60 < modulus < 1 << 61 or eviction > 1 or length > 1024:
        raise InvalidData(f"the control file of {where!r} is damaged: its header makes no sense")
    start = HEADER["spill_path"][0]
    try:
        spill = header[start : start + length].decode() or None
    except UnicodeDecodeError:
        raise InvalidData(f"the control file of {where!r} is damaged: the spill path is not UTF-8") from None
    if spill and (spill[0] != "/" or "\0" in spill):
        raise InvalidData(f"the control file of {where!r} is damaged: {spill!r} is no path of a spill directory")
    return Settings(capacity or None, mode & 0o777, EVICTIONS[eviction], bool(durable), spill), store_id, modulus


def check_settings(settings: Settings, want: Wanted, where: str) -> None:
    """Refuse settings other than those of the store.

    Raises
    ------
    InvalidArgument
        If one differs.
    """
    for field, have, asked in zip(Settings._fields, settings, want, strict=True):
        if asked is not None and asked != have:
            show: Callable[[object], str] = oct if field == "mode" else repr  # type: ignore[assignment]
            raise InvalidArgument(
                f"the store {where!r} has {field}={show(have)}, and was opened with {field}={show(asked)}; settings "
                "belong to the store: leave them out, or change them with Store.configure"
            )
