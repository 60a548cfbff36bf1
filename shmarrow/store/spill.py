"""The spill directory, to which objects are moved when space runs out.

Its files lie in a directory of the store's own, ``SPILL/STORE-ID``. The control file names the place, but may have been
copied, or changed by others who write to the store, so the link :data:`MARK` there says whose it is. The copy of an
object has no name before the catalog refers to it, so a process that is killed leaves nothing.
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
"""A symbolic link to ``FSID-INODE`` of the store's directory, and ``:MACHINE:HOST:BOOT`` if that is in memory."""
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED: int = getattr(os, "O_TMPFILE", 0)
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


def open_spill(store: Directory, settings: Settings, store_id: bytes, make: bool = False) -> Directory:
    """Open the directory that the objects of a store are spilled to.

    It is made only where the caller named its place: the control file is no reason to make anything anywhere.

    Raises
    ------
    StorageError
        If it is not there, cannot be opened, is another store's, or is not to be trusted.
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
        remedy = f"delete what was spilled to it, and open the store with spill={settings.spill!r}"
        raise _refused(store, path, f"it does not exist; mount its disk, or, if it was removed, {remedy}") from None
    except PermissionError:
        raise _refused(store, path, "this user may not read it, or search a directory that it is in") from None
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
    """Make the directory, and those that it is in, which anybody may search: it says itself who may read it."""
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
    """What no copy of a store's directory has in common with it, and what a reboot does not change."""
    return f"{os.fstatvfs(store.fd).f_fsid:x}-{store.key[1]:x}"


def _check_mark(fd: int, path: str, store: Directory, make: bool) -> None:
    """Refuse a directory that is another store's; a new one is marked."""
    expected, found = identity(store), ""
    if make:
        memory = f":{this_memory()}" if store.path.startswith(SHM_DIRECTORY + "/") else ""
        with suppress(FileExistsError):
            os.symlink(expected + memory, MARK, dir_fd=fd)
        if memory:
            with suppress(PermissionError):  # it may be that of several users, who cannot list it
                _remove_lost(os.path.dirname(path))
    with suppress(FileNotFoundError):
        found = os.readlink(MARK, dir_fd=fd)
    if found.partition(":")[0] != expected:
        raise _refused(
            store,
            path,
            f"its link {MARK!r} leads to {found[:99]!r}, expected {expected!r}: it belongs to another store, of which "
            "this one may be a copy; delete what was spilled and configure another directory, or, if it was moved "
            f"or restored and no other one spills there: ln -sfn {expected} {os.path.join(path, MARK)!r}",
        )


def _check_trust(fd: int, path: str, store: Directory, settings: Settings, make: bool) -> None:
    """Refuse a directory of others, or that others may write to; a new one is given to the users of the store."""
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
    """Whose shared memory the store is in, and of which boot."""
    machine = ""
    with suppress(OSError), open("/etc/machine-id", encoding="ascii") as file:
        machine = file.read().strip()
    return f"{machine}:{host_name()}:{boot_id()}"


def _remove_lost(spill: str) -> None:
    """Remove what this user's stores in shared memory have spilled before this machine was started: they are gone."""
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
    """Remove a directory that a store has spilled to, if nothing else is in it."""
    for file in os.listdir(fd):
        if file == MARK or is_object(file):
            os.unlink(file, dir_fd=fd)
    os.rmdir(path)


def copy_file(source: int, target: Directory, size: int, settings: Settings) -> int:
    """A copy of a file in the spill directory, without a name; its descriptor."""
    try:
        if not _UNNAMED:
            raise OSError(errno.EOPNOTSUPP, "no files without a name")
        fd = os.open(".", _UNNAMED | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=target.fd)
    except OSError as error:
        if error.errno not in _NO_UNNAMED:
            raise
        raise Unsupported(
            f"cannot spill to {target.path!r}: its file system has no files without a name (O_TMPFILE), which leave "
            "nothing behind when their writer is killed; use one such as ext4, xfs, btrfs or tmpfs"
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
