# SPDX-License-Identifier: Apache-2.0
"""Locks on bytes of a file (``fcntl``): lock, unlock, list holders.

POSIX record locks belong to the process. They are not inherited by a forked child, and released when the process ends.
Closing *any* descriptor of a file releases all of the process's locks on it, so a file with locks is opened only once:
its owner lists it in :data:`LOCKED`, and whatever opens files by path does so by :func:`open_unlocked`. They do not
exclude threads of the same process; :class:`Exclusive` does.

Open file description locks belong to the open file, so they exclude each other within a process, too. A forked child
has them until it closes the descriptor.
"""

from __future__ import annotations

import _thread
import errno
import fcntl
import os
import struct
import time

from shmarrow.errors import StorageError

ORDERED = os.uname().machine in ("x86_64", "i686")
"""Whether others see the writes of a process in their order, and none of its reads before an earlier one."""
_FEW, _MANY = 64, 2000
"""Maximum queries for single locks: before reading the kernel's list, and if that list is unavailable."""
_LONG, _LONGEST, _REST = 0.25, 0.5, 10
"""Reading the list: seconds considered slow, seconds before giving up, and the backoff as a multiple of that."""
_resume = 0.0
_FLOCK = struct.Struct("hhqqi4x")
_CONFLICT = (errno.EAGAIN, errno.EACCES)
_OF_FILE = getattr(fcntl, "F_OFD_SETLK", 37), getattr(fcntl, "F_OFD_GETLK", 36)
"""The commands for locks that belong to an open file."""
_FENCE = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 1 << 62, 1, 0)
"""Asks for a byte that nobody locks."""


LOCKED: dict[tuple[int, int], str] = {}
"""The files that this process may have locked bytes of, by device and inode, and what opens them."""


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return the device and inode of a file."""
    return status.st_dev, status.st_ino


def open_unlocked(path: str, flags: int) -> int:
    """Open a file by its path; StorageError instead, if this process may have locks on it, which closing would drop."""
    if not LOCKED:
        return os.open(path, flags)
    _refuse_locked(os.stat(path, follow_symlinks=not flags & os.O_NOFOLLOW), path)
    fd = os.open(path, flags)
    _refuse_locked(os.fstat(fd), path)  # if a link was changed in between; then this stays open, and the locks stay
    return fd


def _refuse_locked(status: os.stat_result, path: str) -> None:
    if (opener := LOCKED.get(identity(status))) is not None:
        raise StorageError(
            errno.EBUSY,
            f"cannot open {path!r}: it has the locks of this process for {opener}, which closing it would drop",
            hint="shmarrow.Store opens a store",
        )


def try_lock(fd: int, start: int, exclusive: bool, command: int = fcntl.F_SETLK) -> bool:
    """Lock one byte; False if another process holds a conflicting lock."""
    kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
    try:
        fcntl.fcntl(fd, command, _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0))
    except OSError as error:
        if error.errno in _CONFLICT:
            return False
        raise
    return True


def unlock(fd: int, start: int, command: int = fcntl.F_SETLK) -> None:
    """Release this process's lock of a byte."""
    fcntl.fcntl(fd, command, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, 1, 0))


def holder(fd: int, start: int, length: int = 1) -> tuple[int, int, int] | None:
    """Find a lock of another process on a range: process id, first byte, length; None if there is none.

    The process id is 0 or negative for other pid namespaces.
    """
    kind, process, first, size = _first(fd, start, length)
    return None if kind == fcntl.F_UNLCK else (process, first, size)


def _first(fd: int, start: int, length: int, command: int = fcntl.F_GETLK) -> tuple[int, int, int, int]:
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, first, size, process = _FLOCK.unpack(fcntl.fcntl(fd, command, query))
    return kind, process, first, size


def holders(fd: int, start: int, length: int, everyone: bool = True) -> list[tuple[int, int, int]]:
    """List shared locks of other processes on a range, as :func:`holder`: pins, not evictions.

    Querying single locks takes quadratic time and finds one process per byte. For ``everyone``, or many locks, the
    kernel's list of all locks (of this pid namespace) is read, unless that takes too long.
    """
    locks, all_of_them = _asked(fd, start, start + length, _FEW)
    if not locks or (all_of_them and not everyone):
        return locks
    listed = _listed(fd, start, start + length)
    if listed:
        return listed + [each for each in locks if each[0] < 1]
    return locks if all_of_them else _asked(fd, start, start + length, _MANY)[0]


def _asked(fd: int, start: int, end: int, limit: int) -> tuple[list[tuple[int, int, int]], bool]:
    """Query shared locks on a range; also returns whether the list is complete."""
    locks, ranges = [], [(start, end)]
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
            locks.append((process, first, stop - first))
        ranges += [part for part in ((low, first), (stop, high)) if part[0] < part[1]]
    return locks, not ranges


def _listed(fd: int, start: int, end: int) -> list[tuple[int, int, int]] | None:
    """List shared locks on a range from the kernel's list; None if unavailable.

    Reading the list blocks locking in other processes, and any user may hold tens of thousands, so a slow read is
    aborted and not repeated for a while.
    """
    global _resume
    status, own, locks = os.fstat(fd), os.getpid(), []
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
                        locks.append((process, first, stop - first))
    except OSError:
        return None
    finally:
        if now - began > _LONG:
            _resume = now + _REST * (now - began)
    return sorted(set(locks))  # read in pieces, between which locks come and go, it repeats lines


class Exclusive:
    """Bytes of a file that this object has locked, each for one thread.

    Parameters
    ----------
    fd : int
        The file; the descriptor that holds the locks.
    of_file : bool
        Whether the locks belong to the open file, and not to the process.
    """

    def __init__(self, fd: int, of_file: bool = False) -> None:
        self.fd = fd
        self._set, self._get = _OF_FILE if of_file else (fcntl.F_SETLK, fcntl.F_GETLK)
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's locks; called in a forked child."""
        self._threads: dict[int, tuple[int]] = {}

    def acquire(self, start: int) -> bool:
        """Lock a byte; False if another process, file or thread holds it."""
        mine = (_thread.get_ident(),)
        if self._threads.setdefault(start, mine) is not mine:  # one step, which needs no mutex
            return False
        try:
            if try_lock(self.fd, start, True, self._set):
                return True
        except BaseException:
            self.release(start)
            raise
        del self._threads[start]
        return False

    def release(self, start: int) -> None:
        """Unlock a byte; does nothing unless this object holds it."""
        if start in self._threads:
            try:
                unlock(self.fd, start, self._set)
            finally:
                self._threads.pop(start, None)

    def __contains__(self, start: int) -> bool:
        """Whether this object holds a byte."""
        return start in self._threads

    def mine(self, start: int) -> bool:
        """Whether this thread holds a byte."""
        return self._threads.get(start) == (_thread.get_ident(),)

    def is_locked(self, start: int) -> bool:
        """Whether anybody has locked a byte."""
        return start in self._threads or _first(self.fd, start, 1, self._get)[0] != fcntl.F_UNLCK

    def fence(self) -> None:
        """Order what this thread wrote before all that it reads after, for all who call it on this file.

        On x86, locking anything does. Elsewhere, this takes the kernel's lock of the file's list of locks, which puts
        the calls in an order.
        """
        if ORDERED:
            _thread.allocate_lock().acquire()  # a lock of its own, as a signal handler may come in between
        else:
            fcntl.fcntl(self.fd, self._get, _FENCE)
