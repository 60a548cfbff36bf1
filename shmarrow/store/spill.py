"""The spill directory, to which objects are moved when space runs out.

Each store spills to its own directory, ``SPILL/STORE-ID``. The control file contains its path, but may have been
copied, or changed by other users who can write to the store, so the link :data:`MARK` in the directory identifies its
store. The copy of an object is unnamed until the catalog refers to it, so a killed process leaves nothing behind.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress

from shmarrow.errors import InvalidData, StorageError, Unsupported, storage_error
from shmarrow.segment import SHM_DIRECTORY
from shmarrow.segment.host import boot_id, host_name
from shmarrow.store.directory import Directory, directory_bits, sync_parents
from shmarrow.store.protocol import is_object
from shmarrow.store.settings import Settings, check_spill

MARK = "store"
"""A symbolic link to ``FSID-INODE`` of the store's directory, with ``:MACHINE:HOST:BOOT`` appended if in memory."""
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED: int = getattr(os, "O_TMPFILE", 0)
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


def open_spill(store: Directory, settings: Settings, store_id: bytes, make: bool = False) -> Directory:
    """Open the spill directory of a store; with ``make``, create it.

    ``make`` is only for a path given by the caller: a path from the control file is not trusted to create directories.

    Raises
    ------
    StorageError
        If it does not exist, cannot be opened, belongs to another store, or is not trusted.
    """
    if settings.spill is None:
        raise StorageError(
            errno.ENOENT,
            f"the store {store.name!r} is damaged: an object was spilled, but no spill directory is recorded",
        )
    path = os.path.join(settings.spill, store_id.hex())
    if make and not os.path.isdir(path):
        check_spill(settings.spill, store.path)
    try:
        if make:
            _make(path)
        fd = os.open(path, _OPEN_DIRECTORY)
    except FileNotFoundError:
        remedy = f"delete the objects spilled to it, and open the store with spill={settings.spill!r}"
        raise _refused(store, path, f"it does not exist; mount its disk, or, if it was removed, {remedy}") from None
    except PermissionError:
        raise _refused(store, path, "this user lacks read permission, or search permission in its path") from None
    except OSError as error:
        raise storage_error(error, "open the spill directory", path) from None
    try:
        _check_mark(fd, path, store, make)
        _check_trust(fd, path, store, settings, make)
    except OSError as error:
        os.close(fd)
        if isinstance(error, StorageError):
            raise
        raise storage_error(error, "open the spill directory", path) from None
    return Directory(store.name, path, fd, store.trusted)


def _refused(store: Directory, path: str, reason: str) -> StorageError:
    return StorageError(errno.EPERM, f"cannot open the spill directory {path!r} of the store {store.name!r}: {reason}")


def _make(path: str) -> None:
    """Create the directory, and its missing parents, which all users may search."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(each, 0o700)
            if each != missing[0]:
                os.chmod(each, 0o711)


def identity(store: Directory) -> str:
    """Return an id of a store's directory that survives a reboot, and differs from that of any copy."""
    return f"{os.fstatvfs(store.fd).f_fsid:x}-{store.key[1]:x}"


def _check_mark(fd: int, path: str, store: Directory, make: bool) -> None:
    """Raise StorageError if the directory belongs to another store; mark a new one."""
    expected, found = identity(store), ""
    if make:
        memory = f":{this_memory()}" if store.path.startswith(SHM_DIRECTORY + "/") else ""
        with suppress(FileExistsError):
            os.symlink(expected + memory, MARK, dir_fd=fd)
        if memory:
            with suppress(PermissionError):  # several users may share it without being able to list it
                _remove_lost(os.path.dirname(path))
    with suppress(FileNotFoundError):
        found = os.readlink(MARK, dir_fd=fd)
    if found.partition(":")[0] != expected:
        raise _refused(
            store,
            path,
            f"its link {MARK!r} points to {found[:99]!r}, expected {expected!r}: it belongs to another store, of which "
            "this one may be a copy; delete the spilled objects and configure another directory, or, if the store was "
            f"moved or restored and no other one spills there: ln -sfn {expected} {os.path.join(path, MARK)!r}",
        )


def _check_trust(fd: int, path: str, store: Directory, settings: Settings, make: bool) -> None:
    """Raise StorageError unless its owner and mode are trusted; set those of a new directory like the store's."""
    found, bits, (uid, gid) = os.fstat(fd), directory_bits(settings.mode), store.owner
    if make and found.st_uid == os.geteuid() and (found.st_uid != uid or stat.S_IMODE(found.st_mode) != bits):
        if found.st_uid == 0 or (found.st_gid != gid and settings.mode & 0o070):
            os.fchown(fd, uid if found.st_uid == 0 else -1, gid)
        os.fchmod(fd, bits)
        found = os.fstat(fd)
    if make and settings.durable:
        os.fsync(fd)
        sync_parents(path)
    shared = settings.mode & 0o020 and found.st_gid == gid
    if store.trusted is not None and (
        found.st_mode & 0o022 & ~bits or (found.st_uid not in store.trusted and not shared)
    ):
        raise _refused(
            store,
            path,
            f"it belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}, so others could "
            f"replace objects; expected user {uid} and mode {bits:04o}",
        )


def this_memory() -> str:
    """Return the id of this host's shared memory: machine, host name and boot."""
    machine = ""
    with suppress(OSError), open("/etc/machine-id", encoding="ascii") as file:
        machine = file.read().strip()
    return f"{machine}:{host_name()}:{boot_id()}"


def _remove_lost(spill: str) -> None:
    """Remove objects spilled before the last reboot by this user's stores in shared memory, which no longer exist."""
    here, _, boot = this_memory().rpartition(":")
    for path in [os.path.join(spill, each) for each in os.listdir(spill) if re.fullmatch("[0-9a-f]{32}", each)]:
        with suppress(OSError):
            fd = os.open(path, _OPEN_DIRECTORY)
            try:
                host, _, then = os.readlink(MARK, dir_fd=fd).partition(":")[2].rpartition(":")
                if host == here and then != boot and os.fstat(fd).st_uid == os.geteuid():
                    remove_spill(fd, path)
            finally:
                os.close(fd)


def remove_spill(fd: int, path: str) -> None:
    """Remove a spill directory and the store's files in it; OSError if it contains others."""
    for file in os.listdir(fd):
        if file == MARK or is_object(file):
            os.unlink(file, dir_fd=fd)
    os.rmdir(path)


def copy_file(source: int, target: Directory, size: int, settings: Settings) -> int:
    """Copy a file to an unnamed file in the spill directory, and return its descriptor."""
    try:
        if not _UNNAMED:
            raise OSError(errno.EOPNOTSUPP, "no unnamed files")
        fd = os.open(".", _UNNAMED | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=target.fd)
    except OSError as error:
        if error.errno not in _NO_UNNAMED:
            raise
        raise Unsupported(
            f"cannot spill to {target.path!r}: its file system does not support unnamed files (O_TMPFILE), which leave "
            "nothing behind if their writer is killed; use one such as ext4, xfs, btrfs or tmpfs"
        ) from None
    try:
        done = 0
        while done < size:
            copied = os.sendfile(fd, source, done, size - done)
            if not copied:
                raise InvalidData(f"a file has {done} bytes, expected {size}")
            done += copied
        target.give(fd)
        os.fchmod(fd, settings.mode & 0o444)
        if settings.durable:
            os.fsync(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd
