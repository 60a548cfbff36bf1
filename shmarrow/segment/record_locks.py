"""Record locks of POSIX (``fcntl``), which a process has on bytes of a file: taken, dropped, and who has them.

A forked child does not inherit them, and they go when the process ends, however it ends. Closing *any* descriptor of a
file drops all the locks that the process has on it, so a file with locks is opened once. They do not exclude threads of
one process from each other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress

_MANY = 500
"""Locks beyond which those of other pid namespaces are not asked for."""
_FLOCK = struct.Struct("hhqqi4x")
_CONFLICT = (errno.EAGAIN, errno.EACCES)


def try_lock(fd: int, start: int, exclusive: bool) -> bool:
    """Lock one byte; False if another process has it in a way that excludes this."""
    try:
        fcntl.lockf(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB, 1, start)
    except OSError as error:
        if error.errno in _CONFLICT:
            return False
        raise
    return True


def unlock(fd: int, start: int) -> None:
    """Drop this process's lock of a byte."""
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, start)


def holder(fd: int, start: int, length: int = 1) -> tuple[int, int, int] | None:
    """A lock that another process has on a range: its process, its first byte, how many bytes; None if there is none.

    The process is 0 or negative where it belongs to another pid namespace.
    """
    kind, process, first, size = _first(fd, start, length)
    return None if kind == fcntl.F_UNLCK else (process, first, size)


def _first(fd: int, start: int, length: int) -> tuple[int, int, int, int]:
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, first, size, process = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return kind, process, first, size


def holders(fd: int, start: int, length: int) -> list[tuple[int, int, int]]:
    """Shared locks that other processes have on a range, as :func:`holder`: pins, and not who is about to evict.

    The kernel's list has the locks of all processes of this pid namespace. Of others, and where it cannot be read, one
    process is told for each byte; where thousands are listed, none is, as asking takes the square of their number.
    """
    end = start + length
    if holder(fd, start, length) is None:
        return []
    found = _listed(fd, start, end)
    known, ranges = bool(found), [(start, end)] if len(found) < _MANY else []
    while ranges:
        low, high = ranges.pop()
        kind, process, first, size = _first(fd, low, high - low)
        if kind == fcntl.F_UNLCK:
            continue
        stop = min(high, first + size) if size else high
        first = max(first, low)
        if kind == fcntl.F_RDLCK and (process < 1 or not known):
            found.append((process, first, stop - first))
        ranges += [part for part in ((low, first), (stop, high)) if part[0] < part[1]]
    return found


def _listed(fd: int, start: int, end: int) -> list[tuple[int, int, int]]:
    """The locks of other processes on a range, as the kernel lists them."""
    status, own, found = os.fstat(fd), os.getpid(), []
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError), open("/proc/locks", encoding="ascii") as table:
        for words in map(str.split, table):
            if words[-3] == file and words[1] == "POSIX" and words[3] == "READ":
                process, first = int(words[-4]), max(int(words[-2]), start)
                stop = end if words[-1] == "EOF" else min(int(words[-1]) + 1, end)
                if first < stop and process != own:
                    found.append((process, first, stop - first))
    return found
