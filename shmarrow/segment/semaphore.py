"""Named semaphores, with which one process wakes another, by the package ``posix_ipc``.

The GNU C library keeps a semaphore in the file ``/dev/shm/sem.NAME``, and each process maps it. Names are made of
random numbers, so shared data contains numbers only. Invariants:

* correctness never depends on a post: a waiter checks again after a while, so a lost post costs a delay. Where there
  are no semaphores, the waiter checks at growing intervals;
* a semaphore of a user who is not trusted is never touched: its owner could truncate the file, which ends whoever has
  it mapped with SIGBUS. A semaphore of a trusted user can do no more than wake or delay;
* a semaphore is closed when nothing refers to it any more, so never while a thread waits for it;
* a forked child must not wait for a semaphore of its parent, as a post wakes only one of them.

The kernel's deadline for a wait is a time of day: if the system's clock is set back meanwhile, a wait lasts longer.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from _signal import getsignal, pthread_sigmask  # type: ignore[import-not-found]  # faster: they make no enums
from collections.abc import Collection
from functools import cache
from typing import Any

from shmarrow.segment.location import SHM_DIRECTORY

_PREFIX = "shmarrow-"
_SLICE, _LONGEST_SLICE = 0.05, 0.25
"""Longest delays of a signal handler, in seconds: at first, and of a process that waits for seconds."""
_SHORTEST, _LONGEST, _GROWTH = 0.0005, 0.1, 0.1
"""Shortest and longest pause between two checks without a semaphore, in seconds; and its ratio to the time waited."""


class Semaphore:
    """An open semaphore; it is closed when the last reference to it goes."""

    __slots__ = ("_opened",)

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def post(self) -> None:
        """Wake the process that waits for it; does nothing if it was woken and has not returned from the wait yet."""
        if not self._opened.value:
            self._opened.release()

    def wait(self, seconds: float) -> bool:
        """Wait for a post; False without one. What a signal handler raises meanwhile is lost, but KeyboardInterrupt."""
        posix_ipc = _posix_ipc()
        try:  # `suppress` would cost as much as the wake-up
            self._opened.acquire(seconds)
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            return False
        return True

    def __del__(self) -> None:
        try:
            self._opened.close()
        except Exception:  # at the end of the interpreter
            return


@cache
def _posix_ipc() -> Any:
    """Return the module ``posix_ipc``; None if it is not installed, as it has no wheels for some versions of Python."""
    try:
        import posix_ipc
    except ImportError:
        return None
    return posix_ipc


def new_number() -> int:
    """Return a random number for a new semaphore, from 1 to 2^64 - 1."""
    return int.from_bytes(os.urandom(8), "little") or 1


def create_semaphore(number: int, mode: int = 0o600, owner: int = -1, group: int = -1) -> Semaphore | None:
    """Create a semaphore; None if that is not possible, such as without ``posix_ipc`` or shared memory.

    A process that is killed meanwhile may leave it behind, so its number should be where others find and remove it.

    Parameters
    ----------
    number : int
        From :func:`new_number`.
    mode : int
        Permission bits: users with write permission may post.
    owner, group : int
        Ids of the user and group that it is given to; -1 for those of this process.
    """
    posix_ipc = _posix_ipc()
    if posix_ipc is None:
        return None
    try:
        made = Semaphore(posix_ipc.Semaphore(f"/{_PREFIX}{number:016x}", posix_ipc.O_CREX))
        if (mode, owner, group) != (0o600, -1, -1):
            fd = os.open(_path(number), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fchown(fd, owner, group)
                os.fchmod(fd, mode)
            finally:
                os.close(fd)
    except (OSError, MemoryError, posix_ipc.Error):
        remove_semaphore(number)
        return None
    return made


def open_semaphore(number: int, users: Collection[int] | None, group: int = -1) -> Semaphore | None:
    """Open a semaphore; None if there is none, such as in another mount namespace, or it is not trusted.

    Parameters
    ----------
    number : int
        Its number.
    users : collection of int, or None
        Ids of the users whose semaphores are trusted; None trusts all.
    group : int
        Id of a group whose semaphores are trusted as well; -1 for none. Only its members can give files to it.
    """
    posix_ipc = _posix_ipc()
    if posix_ipc is None:
        return None
    try:
        opened = Semaphore(posix_ipc.Semaphore(f"/{_PREFIX}{number:016x}"))
        # Checked after it was opened. Nobody else can replace the file of a trusted user there, so it is this one.
        status = os.lstat(_path(number))
    except (OSError, MemoryError, posix_ipc.Error):
        return None
    trusted = users is None or status.st_uid in users or status.st_gid == group
    # One with another name could be any file of that user, linked there.
    return opened if trusted and stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else None


def remove_semaphore(number: int) -> bool:
    """Remove a semaphore; False if this process may not. Those who have it open may still post, and wake nobody."""
    try:
        os.unlink(_path(number))
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def wait_for_post(semaphore: Semaphore | None, seconds: float, waited: float = 0.0) -> None:
    """Wait for a post, at most ``seconds``; may return earlier without one, such as after a signal.

    Signal handlers run, and may raise. Without a semaphore, this is a pause that grows with the time waited.

    Parameters
    ----------
    semaphore : Semaphore or None
        One that this process has created.
    seconds : float
        The longest wait.
    waited : float
        Seconds that the caller has already waited: the longer, the longer are pauses without a semaphore, and delays of
        signal handlers.
    """
    if seconds <= 0:
        return
    if semaphore is None:
        time.sleep(min(seconds, max(_SHORTEST, min(waited * _GROWTH, _LONGEST))))
        return
    delayed = _handled() if threading.current_thread() is threading.main_thread() else []
    if not delayed:
        semaphore.wait(seconds)
        return
    # posix_ipc drops what a handler raises during the wait, so handlers run between waits.
    end, mask = time.monotonic() + seconds, pthread_sigmask(signal.SIG_BLOCK, ())
    posted, piece = False, max(_SLICE, min(waited * _GROWTH, _LONGEST_SLICE))
    while seconds > 0 and not posted:
        try:
            pthread_sigmask(signal.SIG_BLOCK, delayed)
            posted = semaphore.wait(min(seconds, piece))
        finally:
            pthread_sigmask(signal.SIG_SETMASK, mask)
        seconds = end - time.monotonic()


def _handled() -> list[int]:
    """Return the signals whose handlers may raise what posix_ipc would drop."""
    return [
        number
        for number in range(1, signal.NSIG)
        if callable(found := getsignal(number)) and found is not signal.default_int_handler
    ]


def _path(number: int) -> str:
    return f"{SHM_DIRECTORY}/sem.{_PREFIX}{number:016x}"
