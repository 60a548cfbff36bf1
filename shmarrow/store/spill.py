"""The spill directory: where objects are moved to when there is no room, and are found from then on.

Its files lie in a directory of the store's own, ``SPILL/STORE-ID``, which is checked and opened once, as the
store's is. A copy has no name before the catalog refers to it, so a process that is killed leaves nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from shmarrow.errors import InvalidArgument, InvalidData, StorageError, Unsupported, storage_error
from shmarrow.segment import SHM_DIRECTORY
from shmarrow.segment.host import boot_id, host_name
from shmarrow.store.directory import Directory, directory_bits, sync_parents
from shmarrow.store.protocol import is_object
from shmarrow.store.settings import Settings

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
VOLATILE = "volatile"
"""A symbolic link beside what was spilled from shared memory, that names the machine and its boot."""
_UNNAMED: int = getattr(os, "O_TMPFILE", 0)
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


def open_spill(store: Directory, settings: Settings, store_id: bytes, make: bool) -> Directory | None:
    """Open the directory that the objects of a store are spilled to; None if it is not there, and not to be made.

    Raises
    ------
    StorageError
        If it cannot be made or opened, or is not to be trusted.
    """
    if settings.spill is None:
        return None
    path = os.path.join(settings.spill, store_id.hex())
    if make and os.path.commonpath([path, store.path]) == store.path:
        raise InvalidArgument(
            f"the spill directory {settings.spill!r} is in the store {store.name!r} itself; give it one on another disk"
        )
    try:
        try:
            fd = os.open(path, _OPEN_DIRECTORY)
        except FileNotFoundError:
            if not make:
                return None
            fd = _make(path, store, settings)
    except OSError as error:
        raise storage_error(error, "open the spill directory", path) from None
    found, bits, trusted = os.fstat(fd), directory_bits(settings.mode), store.trusted
    if trusted is not None:
        shared = settings.mode & 0o020 and found.st_gid == store.owner[1]
        if found.st_mode & 0o022 & ~bits or (found.st_uid not in trusted and not shared):
            os.close(fd)
            raise StorageError(
                errno.EPERM,
                f"cannot use the spill directory {path!r} of the store {store.name!r}: it belongs to user "
                f"{found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}, so others could replace objects; "
                f"expected user {store.owner[0]} and mode {bits:04o}",
            )
    return Directory(store.name, path, fd, trusted)


def _make(path: str, store: Directory, settings: Settings) -> int:
    """Make the directory, for the users that the store is for."""
    parent = os.path.dirname(path)
    os.makedirs(os.path.dirname(parent), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(parent)
        os.chmod(parent, 0o711)  # each store's own directory says who may read it
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    fd = os.open(path, _OPEN_DIRECTORY)
    found = os.fstat(fd)
    if found.st_uid == os.geteuid() and found.st_mode & 0o7777 != directory_bits(settings.mode):
        uid, gid = store.owner
        if found.st_uid == 0 or (found.st_gid != gid and settings.mode & 0o070):
            os.fchown(fd, uid if found.st_uid == 0 else -1, gid)
        os.fchmod(fd, directory_bits(settings.mode))
    if store.path.startswith(SHM_DIRECTORY + "/"):
        _remove_lost(parent)
        with suppress(FileExistsError):
            os.symlink(this_memory(), VOLATILE, dir_fd=fd)
    if settings.durable:
        sync_parents(path)
    return fd


def this_memory() -> str:
    """Whose shared memory the store is in, and of which boot."""
    with suppress(OSError), open("/etc/machine-id", encoding="ascii") as file:
        return f"{file.read().strip()}:{host_name()}:{boot_id()}"
    return f":{host_name()}:{boot_id()}"


def _remove_lost(spill: str) -> None:
    """Remove what stores in shared memory have spilled before this machine was started: they are gone."""
    here, _, boot = this_memory().rpartition(":")
    for each in os.listdir(spill):
        with suppress(OSError):
            path = os.path.join(spill, each)
            host, _, then = os.readlink(os.path.join(path, VOLATILE)).rpartition(":")
            if host == here and then != boot:
                remove_spill(path)


def remove_spill(path: str) -> None:
    """Remove a directory that a store has spilled to, if nothing else is in it."""
    fd = os.open(path, _OPEN_DIRECTORY)
    try:
        for file in os.listdir(fd):
            if file == VOLATILE or is_object(file):
                os.unlink(file, dir_fd=fd)
    finally:
        os.close(fd)
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


def name_file(fd: int, target: Directory, file: str, durable: bool) -> None:
    """Give a copy its name."""
    os.link(f"/proc/self/fd/{fd}", file, src_dir_fd=fd, dst_dir_fd=target.fd, follow_symlinks=True)
    if durable:
        target.sync()
