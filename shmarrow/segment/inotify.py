"""Waiting for writes to a file with inotify (Linux).

Called through ctypes: packages for it are larger than these few calls.
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
    """An inotify descriptor that watches one open file for writes; may be shared between threads.

    Attributes
    ----------
    fd : int
        The descriptor, readable after a write; -1 once closed.
    pid : int
        The process that created it. A forked child must not use it, as each event is delivered to only one of them.

    Raises
    ------
    OSError
        If inotify is unavailable, or the user's limit is exhausted.
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
        """Wait for a write, at most ``seconds``, and discard pending events."""
        poll = select.poll()  # not shareable between threads
        poll.register(self.fd, select.POLLIN)
        if poll.poll(max(seconds, 0) * 1000):
            self.drain()

    def drain(self) -> None:
        """Discard pending events."""
        with suppress(BlockingIOError):
            while len(os.read(self.fd, _BUFFER)) > _BUFFER // 2:
                pass

    def close(self) -> None:
        """Close the descriptor; no thread may be waiting, as its number can be reused."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        try:
            self.close()
        except (OSError, TypeError, AttributeError):  # modules may be gone at interpreter shutdown
            return


def listen(file: int) -> Listener | None:
    """Watch an open file for writes; None if inotify is unavailable."""
    try:
        return Listener(file)
    except OSError:
        return None
