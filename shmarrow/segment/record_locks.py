"""POSIX record locks (``fcntl``) on byte ranges of a file: lock, unlock, list holders.

They are not inherited by a forked child, and released when the process ends. Closing *any* descriptor of a file
releases all of the process's locks on it, so a file with locks is opened only once. They do not exclude threads of the
same process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time

_FEW, _MANY = 64, 2000
"""Maximum queries for single locks: before reading the kernel's list, and if that list is unavailable."""
_LONG, _LONGEST, _REST = 0.25, 0.5, 10
"""Reading the list: seconds considered slow, seconds before giving up, and the backoff as a multiple of that."""
_resume = 0.0
_FLOCK = struct.Struct("hhqqi4x")
_CONFLICT = (errno.EAGAIN, errno.EACCES)


def try_lock(fd: int, start: int, exclusive: bool) -> bool:
    """Lock one byte; False if another process holds a conflicting lock."""
    try:
        fcntl.lockf(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB, 1, start)
    except OSError as error:
        if error.errno in _CONFLICT:
            return False
        raise
    return True


def unlock(fd: int, start: int) -> None:
    """Release this process's lock of a byte."""
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, start)


def holder(fd: int, start: int, length: int = 1) -> tuple[int, int, int] | None:
    """Find a lock of another process on a range: process id, first byte, length; None if there is none.

    The process id is 0 or negative for other pid namespaces.
    """
    kind, process, first, size = _first(fd, start, length)
    return None if kind == fcntl.F_UNLCK else (process, first, size)


def _first(fd: int, start: int, length: int) -> tuple[int, int, int, int]:
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, first, size, process = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return kind, process, first, size


def holders(fd: int, start: int, length: int, everyone: bool = True) -> list[tuple[int, int, int]]:
    """List shared locks of other processes on a range, as :func:`holder`: pins, not evictions.

    Querying single locks takes quadratic time and finds one process per byte. For ``everyone``, or many locks, the
    kernel's list of all locks (of this pid namespace) is read, unless that takes too long.
    """
    found, all_of_them = _asked(fd, start, start + length, _FEW)
    if not found or (all_of_them and not everyone):
        return found
    listed = _listed(fd, start, start + length)
    if listed:
        return listed + [each for each in found if each[0] < 1]
    return found if all_of_them else _asked(fd, start, start + length, _MANY)[0]


def _asked(fd: int, start: int, end: int, limit: int) -> tuple[list[tuple[int, int, int]], bool]:
    """Query shared locks on a range; also returns whether the list is complete."""
    found, ranges = [], [(start, end)]
    for _ in range(limit):
        if not ranges:
            break
        low, high = ranges.pop()
        kind, process, first, size = _first(fd, low, high - low)
        if kind == fcntl.F_UNLCK:
            continue
        stop = min(high, first + size) if size else high
        first = max(first, low)
        if kind == fcntl.F_RDLCK:
            found.append((process, first, stop - first))
        ranges += [part for part in ((low, first), (stop, high)) if part[0] < part[1]]
    return found, not ranges


def _listed(fd: int, start: int, end: int) -> list[tuple[int, int, int]] | None:
    """List shared locks on a range from the kernel's list; None if unavailable.

    Reading the list blocks locking in other processes, and any user may hold tens of thousands, so a slow read is
    aborted and not repeated for a while.
    """
    global _resume
    status, own, found = os.fstat(fd), os.getpid(), []
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    began = now = time.monotonic()
    if began < _resume:
        return None
    try:
        with open("/proc/locks", encoding="ascii") as table:
            for words in map(str.split, table):
                now = time.monotonic()
                if now - began > _LONGEST:
                    return None
                if words[-3] == file and words[1] == "POSIX" and words[3] == "READ":
                    process, first = int(words[-4]), max(int(words[-2]), start)
                    stop = end if words[-1] == "EOF" else min(int(words[-1]) + 1, end)
                    if first < stop and process != own:
                        found.append((process, first, stop - first))
    except OSError:
        return None
    finally:
        if now - began > _LONG:
            _resume = now + _REST * (now - began)
    return sorted(set(found))  # read in pieces, between which locks come and go, it repeats lines
