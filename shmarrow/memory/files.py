# SPDX-License-Identifier: Apache-2.0
"""File operations: create, fill, link and remove the files of objects.

Invariants:

* a file is written unnamed (``O_TMPFILE``) and published with ``link``, which succeeds for exactly one of several
  racing writers. A killed writer leaves nothing behind;
* an unavoidable temporary name starts with :data:`TEMP_PREFIX`, and its file is locked by the live writer: a file that
  can be locked exclusively is a leftover and may be removed;
* where links are denied, as in some sandboxes, a file is written under a temporary name and renamed, without replacing
  (``renameat2``) unless that is asked for;
* temporary names are derived from the target name and a small number, so that a writer finds leftovers without listing
  the directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any
from zlib import crc32

from shmarrow.buffer import Bytes
from shmarrow.errors import Unsupported
from shmarrow.memory.attached import MAX_CALL_BYTES, O_ATTACH
from shmarrow.memory.location import (
    POSIX_SCHEME,
    TEMP_PREFIX,
    Location,
    check_removable,
    refused,
    resolve,
)
from shmarrow.memory.locks import open_unlocked

_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005
_LOCK_TRIES, _LOCK_PAUSE = 100, 0.001

# 0 where unnamed files cannot be created, or not be linked.
_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0) if os.path.isdir("/proc/self/fd") else 0

_unlinkable: set[str] = set()
"""Directories in which an unnamed file could not be linked: files there get temporary names."""
DENIED = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOENT})
"""What a system says that denies links, or has no ``/proc`` to name an unnamed file by."""
_NO_FALLOCATE = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1

# Since Linux 5.14.
_MADV_POPULATE_WRITE = 23
_NUMBERED_NAMES = 64
_ZEROS = 1 << 20
_POPULATE_FROM = 1 << 24
_POPULATE_PIECE = 1 << 23
_POPULATE_THREADS = 4

# IOV_MAX: the maximum buffers per pwritev call on Linux.
MAX_CALL_PIECES = 1024


def open_unnamed(directory: str, bits: int = 0o600, dir_fd: int | None = None) -> int | None:
    """Open a new unnamed file; None if the platform or the file system has none."""
    if not _O_TMPFILE or directory in _unlinkable:
        return None
    try:
        return os.open(directory, _O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, bits, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise


def link_unnamed(fd: int, path: str, dir_fd: int | None = None) -> None:
    """Link an unnamed file at ``path``, which must not exist; ``dir_fd`` is the directory of a relative path."""
    # src_dir_fd is ignored for an absolute path, but makes Python call linkat, which follows the link in /proc.
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, dst_dir_fd=dir_fd, follow_symlinks=True)


def name_files_in(directory: str) -> None:
    """Write files in a directory under temporary names from now on, as unnamed ones cannot be linked there."""
    _unlinkable.add(directory)


def rename_new(source: str, target: str) -> None:
    """Give a file its final name, which must not exist.

    Raises
    ------
    FileExistsError
        If it does.
    Unsupported
        If the system allows neither links nor to rename without replacing.
    """
    try:
        os.link(source, target)
        with suppress(OSError):
            os.unlink(source)
        return
    except OSError as error:
        if error.errno not in DENIED:
            raise
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    words = os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE
    if not hasattr(libc, "renameat2") or libc.renameat2(_AT_FDCWD, *words):
        code = ctypes.get_errno()
        if code in (errno.EEXIST, errno.ENOENT):
            raise OSError(code, os.strerror(code))
        raise Unsupported(
            f"cannot publish {target!r} without replacing what may be there: the system or file system allows neither "
            f"hard links nor renameat2 ({os.strerror(code)})",
            hint="pass overwrite=True, or use a file system such as tmpfs or ext4, outside of the sandbox",
        )


def allocate(fd: int, start: int, size: int) -> None:
    """Reserve space for bytes of a file that nobody has written; without ``fallocate``, by writing zeros."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, start, size)
            return
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise
    zeros = bytes(min(size, _ZEROS))
    while size > 0:
        done = os.pwrite(fd, zeros[: min(size, _ZEROS)], start)
        start, size = start + done, size - done


def copy_file(source: int, target: int, size: int) -> None:
    """Copy the first ``size`` bytes of a file to the position of another one."""
    done = 0
    while done < size:
        done += os.sendfile(target, source, done, size - done)


def temp_paths(path: str) -> Iterator[str]:
    """Return distinct temporary names for a writer of ``path``, in the order to try: an endless iterator."""
    directory, slash, target = path.rpartition("/")
    stem = f"{directory}{slash}{TEMP_PREFIX}{crc32(os.fsencode(target)):08x}-"
    endings = chain(map(str, range(_NUMBERED_NAMES)), iter(lambda: os.urandom(12).hex(), ""))
    return map(stem.__add__, endings)


def open_named(target: str, bits: int = 0o600) -> tuple[int, str]:
    """Create a locked temporary file for a writer of ``target``; returns its descriptor and path."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    for path in temp_paths(target):
        remove_unused(path)
        try:
            fd = os.open(path, flags, bits)
        except FileExistsError:
            continue
        lock_shared(fd)
        if os.fstat(fd).st_nlink:
            return fd, path
        os.close(fd)  # removed as a leftover before it was locked
    raise AssertionError("there is always another name")


def link_temp(fd: int, path: str) -> bool:
    """Link a locked unnamed file at a temporary name; False if another writer has the name."""
    try:
        link_unnamed(fd, path)
    except FileExistsError:
        if not remove_unused(path):
            return False
        try:
            link_unnamed(fd, path)
        except FileExistsError:
            return False
    return True


def pwrite_all(fd: int, views: Sequence[Any], offset: int, nbytes: int) -> None:
    """Write all ``nbytes`` of ``views``, flat byte buffers, at ``offset``."""
    if len(views) <= MAX_CALL_PIECES and nbytes <= MAX_CALL_BYTES and os.pwritev(fd, views, offset) == nbytes:
        return
    left = list(views)
    index = 0
    while index < len(left):
        call, room = left[index : index + MAX_CALL_PIECES], MAX_CALL_BYTES
        for position, view in enumerate(call):
            if len(view) > room:
                call[position] = memoryview(view)[:room]
                del call[position + 1 :]
                break
            room -= len(view)
        written = os.pwritev(fd, call, offset)
        offset += written
        while index < len(left) and written >= len(left[index]):
            written -= len(left[index])
            index += 1
        if written:
            left[index] = memoryview(left[index])[written:]


def populate(mapped: Bytes) -> None:
    """Prefault the pages of a large reserved file on several threads, at half the cost of page faults."""
    if len(mapped) < _POPULATE_FROM or sys.platform != "linux":
        return
    import ctypes  # its calls release the GIL, unlike those of mmap
    from concurrent.futures import ThreadPoolExecutor

    libc = ctypes.CDLL(None, use_errno=True)
    address = mapped.ctypes.data
    starts = range(0, len(mapped), _POPULATE_PIECE)

    def populate_piece(start: int) -> None:
        size = min(_POPULATE_PIECE, len(mapped) - start)
        libc.madvise(ctypes.c_void_p(address + start), ctypes.c_size_t(size), _MADV_POPULATE_WRITE)

    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _POPULATE_THREADS)) as pool:
        list(pool.map(populate_piece, starts))  # errors are ignored: on old kernels pages are faulted in later


def sync_directory(directory: str) -> None:
    """Sync a directory to disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def delete(where: Location) -> None:
    """Remove an object's name. Existing mappings stay valid; the memory is freed with the last one.

    Raises
    ------
    ObjectNotFound
        If the object does not exist.
    StorageError
        If the directory is not writable, or the name is not that of a file.
    """
    name, path = resolve(where)
    try:
        if path.startswith(POSIX_SCHEME):
            from shmarrow.memory.posix import remove

            remove(path)
            return
        check_removable(os.lstat(path))
        os.unlink(path)
    except OSError as error:
        raise refused(error, "delete", name, path) from None


def collect_leftovers(directory: str) -> int:
    """Remove temporary files left in ``directory`` by killed writers, and return their number.

    Temporary names are only used for overwriting and on file systems without ``O_TMPFILE``; the next writer of the same
    name also removes them. Files of live writers are locked and kept, as are other users' files.
    """
    try:
        names = [name for name in os.listdir(directory) if name.startswith(TEMP_PREFIX)]
    except OSError:
        return 0  # not listable
    return sum(remove_unused(os.path.join(directory, name)) for name in names)


def remove_unused(path: str) -> bool:
    """Remove a file that is neither attached nor being written; returns whether it was removed.

    Callers must serialize this with operations that replace or remove the name, so that it cannot refer to another file
    between check and removal.
    """
    try:
        fd = open_unlocked(path, O_ATTACH | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or not os.path.samestat(status, os.lstat(path)):
            return False
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def lock_shared(fd: int) -> None:
    """Mark a temporary file as being written, while ``fd`` or its duplicates are open.

    Whoever removes leftovers locks them exclusively, for microseconds. A process that does not release its lock, or a
    file system without locks, is ignored.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE)
        except OSError:
            return
