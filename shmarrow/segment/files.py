"""The file of an object: opened, filled, named and removed.

Rules kept here:

* a file is written while it has no name, and ``link`` gives it one, which exactly one of several racing writers can do.
  A writer that is killed leaves nothing behind;
* where a temporary name cannot be avoided it starts with :data:`TEMP_PREFIX`, and its file is locked for as long as
  its writer lives: whoever can lock such a file exclusively may remove it;
* temporary names are made of the name that the file is going to have and a small number, so that a writer finds what
  its killed predecessors left without listing the directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from shmarrow.buffer import Bytes
from shmarrow.segment.attached import MAX_CALL_BYTES, O_ATTACH, lock_shared
from shmarrow.segment.location import (
    TEMP_PREFIX,
    Location,
    check_removable,
    refused,
    resolve,
)

_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005

# 0 where the platform has no files without a name.
_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)

# Since Linux 5.14.
_MADV_POPULATE_WRITE = 23
_NUMBERED_NAMES = 64
_POPULATE_FROM = 1 << 24
_POPULATE_PIECE = 1 << 23
_POPULATE_THREADS = 4

# What one pwritev takes on Linux, besides MAX_CALL_BYTES: IOV_MAX pieces.
MAX_CALL_PIECES = 1024


def open_unnamed(directory: str, bits: int = 0o600, dir_fd: int | None = None) -> int | None:
    """Open a new file without a name, or None where the platform or file system cannot do it or cannot link it."""
    if not _O_TMPFILE:
        return None
    try:
        fd = os.open(directory, _O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, bits, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise
    if not os.path.exists(f"/proc/self/fd/{fd}"):
        os.close(fd)
        return None
    return fd


def link_unnamed(fd: int, path: str) -> None:
    """Give a file without a name the name ``path``; it must be free."""
    # src_dir_fd means nothing for an absolute path, but with it Python calls linkat, which follows the link in /proc.
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)


def _temp_paths(directory: str, target: str) -> Iterator[str]:
    """The temporary names that a writer of ``target`` tries one after another; all are different."""
    stem = os.path.join(directory, f"{TEMP_PREFIX}{crc32(os.fsencode(target)):08x}-")
    for number in range(_NUMBERED_NAMES):
        yield f"{stem}{number}"
    while True:
        yield stem + os.urandom(12).hex()


def open_named(directory: str, target: str, bits: int = 0o600) -> tuple[int, str]:
    """Create a locked temporary file for what will be ``target``; its descriptor and path."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    for path in _temp_paths(directory, target):
        remove_unused(path)
        try:
            fd = os.open(path, flags, bits)
        except FileExistsError:
            continue
        lock_shared(fd)
        if os.fstat(fd).st_nlink:
            return fd, path
        os.close(fd)  # collected between its creation and the lock
    raise AssertionError("there is always another name")


def link_temp(fd: int, directory: str, target: str) -> str:
    """Give a file without a name, which is locked, a temporary one on its way to ``target``; its path."""
    for path in _temp_paths(directory, target):
        try:
            link_unnamed(fd, path)
        except FileExistsError:
            if not remove_unused(path):
                continue
            try:
                link_unnamed(fd, path)
            except FileExistsError:
                continue
        return path
    raise AssertionError("there is always another name")


def pwrite_all(fd: int, views: list[Any], offset: int) -> int:
    """Write all of ``views``, flat buffers of bytes, from ``offset`` on; replaces partly written ones in the list."""
    start = offset
    index = 0
    while index < len(views):
        call, room = views[index : index + MAX_CALL_PIECES], MAX_CALL_BYTES
        for position, view in enumerate(call):
            if len(view) > room:
                call[position] = memoryview(view)[:room]
                del call[position + 1 :]
                break
            room -= len(view)
        written = os.pwritev(fd, call, offset)
        offset += written
        while index < len(views) and written >= len(views[index]):
            written -= len(views[index])
            index += 1
        if written:
            views[index] = memoryview(views[index])[written:]
    return offset - start


def populate(mapped: Bytes) -> None:
    """Map the pages of a large reserved file at once, on a few threads: a fault for each costs twice as much."""
    if len(mapped) < _POPULATE_FROM or sys.platform != "linux":
        return
    import ctypes  # whose calls let other threads run meanwhile, as those of mmap do not
    from concurrent.futures import ThreadPoolExecutor

    libc = ctypes.CDLL(None, use_errno=True)
    address = mapped.ctypes.data
    starts = range(0, len(mapped), _POPULATE_PIECE)

    def populate_piece(start: int) -> None:
        size = min(_POPULATE_PIECE, len(mapped) - start)
        libc.madvise(ctypes.c_void_p(address + start), ctypes.c_size_t(size), _MADV_POPULATE_WRITE)

    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _POPULATE_THREADS)) as pool:
        list(pool.map(populate_piece, starts))  # a kernel that cannot has every page fault later


def sync_directory(directory: str) -> None:
    """Make the names in a directory survive a crash of the machine."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unlink(where: Location) -> None:
    """Remove an object's name. Processes that have it mapped keep it; its memory is freed when the last one unmaps it.

    Raises
    ------
    ObjectNotFound
        If there is no object of this name.
    StorageError
        If the directory does not permit it, or the name is not that of a file.
    """
    name, path = resolve(where)
    try:
        check_removable(os.lstat(path))
        os.unlink(path)
    except OSError as error:
        raise refused(error, "unlink", name, path) from None


def collect_leftovers(directory: str) -> int:
    """Remove temporary files left in ``directory`` by killed writers, and return their number.

    Only overwriting, and file systems without ``O_TMPFILE``, ever use temporary names; the next writer of the same name
    removes them too. A file whose writer lives is locked, and stays; so do files of others that may not be removed.
    """
    try:
        names = [name for name in os.listdir(directory) if name.startswith(TEMP_PREFIX)]
    except OSError:
        return 0  # a directory that may be written but not listed
    return sum(remove_unused(os.path.join(directory, name)) for name in names)


def remove_unused(path: str) -> bool:
    """Remove a file that nobody has attached and no writer holds; whether it was removed.

    Where others may replace or remove the name at the same time, who calls this and they take turns: the name must not
    come to lead to another file between the check and the removal.
    """
    try:
        fd = os.open(path, O_ATTACH | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not os.path.samestat(found, os.lstat(path)):
            return False
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def lock_exclusive(fd: int, deadline: float) -> None:
    """Lock a file or a directory with ``flock(LOCK_EX)``, which whoever may open it can hold for as long as they like.

    Raises ``TimeoutError`` if somebody still has it when ``time.monotonic()`` has passed ``deadline``.
    """
    pause = _PAUSE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock; is it stopped?") from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
