"""Waiting until somebody writes to a file, with inotify of Linux.

It is called through ctypes: a package would replace these few calls alone, and start a process when it is first used.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
from contextlib import suppress

_MODIFY = 0x2
_BUFFER = 1 << 12


class Listener:
    """One inotify descriptor, which listens to the writes to one open file; threads may share it.

    Attributes
    ----------
    fd : int
        The descriptor, which is readable after a write; -1 when it is closed.
    pid : int
        The process that made it. A forked child must not use it: what one of both hears, the other one misses.

    Raises
    ------
    OSError
        If the system has no inotify, or no more of it for this user.
    """

    fd = -1

    def __init__(self, file: int) -> None:
        self.pid = os.getpid()
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0 or libc.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % file, _MODIFY) < 0:
            code = ctypes.get_errno()
            self.close()
            raise OSError(code, os.strerror(code))

    def wait(self, seconds: float) -> None:
        """Wait for a write, at most so long, and forget those that were heard."""
        poll = select.poll()  # one that several threads use raises an error
        poll.register(self.fd, select.POLLIN)
        if poll.poll(max(seconds, 0) * 1000):
            self.drain()

    def drain(self) -> None:
        """Forget what was heard."""
        with suppress(BlockingIOError):
            while len(os.read(self.fd, _BUFFER)) > _BUFFER // 2:
                pass

    def close(self) -> None:
        """Give the descriptor back; nobody may be waiting for it, as its number is used again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        try:
            self.close()
        except (OSError, TypeError, AttributeError):  # modules may be gone at the end of the interpreter
            return


def listen(file: int) -> Listener | None:
    """A listener to the writes to an open file; None where the system has none to give."""
    try:
        return Listener(file)
    except OSError:
        return None
