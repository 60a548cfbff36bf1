# SPDX-License-Identifier: Apache-2.0
"""POSIX shared memory objects where they are no files in a directory, as on macOS and the BSDs: ``shm_open``.

An object has its name, and its only size, before it is whole. Its last :data:`_ROOM` bytes say what it is::

    magic (8)  size (u64)  serial (u64)  process id of the writer (i64)  time in ns (i64)

The magic is :data:`_BEGUN` until all is written, and :data:`_WHOLE` after. A reader waits while it is the former, and
raises if the writer is gone; then the name may be taken again. The size of an object is a multiple of a page, as macOS
rounds it up. Descriptors are used to map only, which is all that macOS allows.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shmarrow.errors import StorageError, optional

_ROOM, _TRAILER = 64, struct.Struct("=8sQQqq")
_BEGUN, _WHOLE = b"shmarrow", b"SHMARROW"
_UNSIZED, _PATIENCE, _PAUSE = 2.0, 60.0, 0.002
"""Seconds to wait for an object that names no writer yet, for a writer that lives, and between two looks."""


class Abandoned(StorageError):
    """An object whose writer died before it was whole."""


def open_object(path: str) -> tuple[int, os.stat_result]:
    """Open a whole object; returns its descriptor, and a status with its true size, its serial as inode, and its time.

    Raises OSError if the system refuses, StorageError if it is not whole, and does not become so.
    """
    fd, started, gone = _called(path, FileNotFoundError, read_only=True), time.monotonic(), False
    try:
        while True:
            file = os.fstat(fd)
            magic, size, serial, writer, at = _trailer(fd, file.st_size)
            waited = time.monotonic() - started
            if magic == _WHOLE and size + _ROOM <= file.st_size:
                _fence()
                mode, times = stat.S_IFREG | stat.S_IMODE(file.st_mode), ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")
                words = (mode, serial >> 1, file.st_dev, 1, file.st_uid, file.st_gid, size, *[at // 10**9] * 3)
                return fd, os.stat_result(words, dict.fromkeys(times, at))
            if magic not in (_BEGUN, bytes(8)):
                raise StorageError(errno.EINVAL, f"{path!r} was not written by this package, or is damaged")
            if gone:
                raise Abandoned(errno.EBUSY, f"{path!r} is not whole: its writer died", hint="delete or write it again")
            if waited > _PATIENCE:
                raise StorageError(errno.EBUSY, f"{path!r} is still being written, by process {writer}")
            gone = not _lives(writer) if writer else waited > _UNSIZED
            time.sleep(_PAUSE)
    except BaseException:
        os.close(fd)
        raise


def publish(path: str, size: int, fill: Callable[[memoryview], None], mode: int, overwrite: bool) -> None:
    """Create an object of ``size`` bytes, let ``fill`` write them, and seal it; FileExistsError if it is taken."""
    total = -(-(size + _ROOM) // mmap.PAGESIZE) * mmap.PAGESIZE
    while True:
        with suppress(FileExistsError):
            fd = _called(path, FileExistsError, flags=optional("posix_ipc").O_CREX, mode=mode, size=total)
            break
        if not overwrite:
            check_free(path)
        with suppress(FileNotFoundError):
            remove(path)
    try:
        if sys.platform == "linux":  # where storing into a full file system would end the process
            os.posix_fallocate(fd, 0, total)
        with suppress(OSError):  # not on every system; then the umask has been applied
            os.fchmod(fd, mode)
        with mmap.mmap(fd, total) as target:
            words = size, int.from_bytes(os.urandom(8), "big"), os.getpid(), time.time_ns()
            target[-_ROOM : _TRAILER.size - _ROOM] = _TRAILER.pack(_BEGUN, *words)
            with memoryview(target) as view, view[:size] as content:
                fill(content)
            _fence()
            target[-_ROOM : len(_WHOLE) - _ROOM] = _WHOLE
    except BaseException:
        remove(path)
        raise
    finally:
        os.close(fd)


def check_free(path: str) -> None:
    """Raise FileExistsError if there is an object of the name that is whole."""
    with suppress(Abandoned, FileNotFoundError):
        os.close(open_object(path)[0])
        raise FileExistsError


def remove(path: str) -> None:
    """Remove the name of an object; what is mapped stays."""
    _called(path, FileNotFoundError, optional("posix_ipc").unlink_shared_memory)


def _called(path: str, refusal: type[OSError], function: Any = None, **options: Any) -> Any:
    """Call posix_ipc with a name, and raise its errors as those of the system; returns the descriptor of an object."""
    posix_ipc, name = optional("posix_ipc"), "/" + path.partition(":")[2]
    try:
        return function(name) if function else posix_ipc.SharedMemory(name, **options).fd
    except posix_ipc.ExistentialError as error:
        code = errno.EEXIST if refusal is FileExistsError else errno.ENOENT
        raise refusal(code, os.strerror(code)) from error
    except posix_ipc.PermissionsError as error:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error


def _trailer(fd: int, total: int) -> tuple[bytes, int, int, int, int]:
    """Read what an object says of itself; zeros if it has no size yet."""
    if not total or total % mmap.PAGESIZE:
        return b"foreign" if total else bytes(8), 0, 0, 0, 0
    with mmap.mmap(fd, mmap.PAGESIZE, prot=mmap.PROT_READ, offset=total - mmap.PAGESIZE) as page:
        return _TRAILER.unpack_from(page, mmap.PAGESIZE - _ROOM)


def _lives(process: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True


def _fence() -> None:
    """Keep what is stored or loaded before in memory before what comes after, on processors that reorder."""
    for _ in range(2):
        with threading.Lock():
            pass
