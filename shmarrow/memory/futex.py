# SPDX-License-Identifier: Apache-2.0
"""Waiting on a word of shared memory, and waking who waits, by the kernel's futexes.

Who waits stores 1 in a word of its own, looks for what it waits for, and sleeps while the word is 1. Who has changed
something stores 0 in the words of those concerned, and wakes them. Invariants:

* nothing is created for a wait, so nothing is left of a process that is killed, but a 1 in its word;
* correctness never depends on being woken: a waiter looks again after a while, so a lost call costs a delay. Where
  there are no futexes, the waiter looks at growing intervals;
* the kernel only compares the word. Whatever another process stores there delays a waiter or wakes it.
"""

from __future__ import annotations

import errno
import math
import os
import struct
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "loongarch64": 98, "ppc64le": 221}
"""The number of the system call on machines of 64 bits, little-endian."""
_WAIT, _WAKE = 0, 1
_TIMESPEC = struct.Struct("qq")
_EXPECTED = (0, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT)
_SHORTEST, _LONGEST, _GROWTH = 0.0005, 0.1, 0.1
"""Shortest and longest pause between two looks without a futex, in seconds; and its ratio to the time waited."""


@cache
def _futex() -> Callable[..., int] | None:
    """Return a function of address, operation, value and time, which gives 0 or an error number; None without."""
    number = _CALLS.get(os.uname().machine) if struct.calcsize("P") == 8 else None
    if number is None:
        return None
    import ctypes  # a slow import

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p]
    call.restype = ctypes.c_long
    return lambda *arguments: 0 if call(number, *arguments) >= 0 else ctypes.get_errno()


class Futexes:
    """The words of a shared memory, for waiting on them.

    Parameters
    ----------
    memory : buffer
        Shared memory, writable for all but :meth:`pause`; it stays mapped as long as this lives.
    """

    def __init__(self, memory: Any) -> None:
        array = np.frombuffer(memory, np.uint32)
        self._words: Any = array.data
        self._address = array.ctypes.data

    def arm(self, word: int) -> None:
        """Say that a process waits, before it looks for what it waits for."""
        self._words[word] = 1

    def disarm(self, word: int) -> None:
        """Say that it does not wait any more."""
        self._words[word] = 0

    def wake(self, word: int) -> None:
        """Wake the process that waits on a word, if one does."""
        if self._words[word]:
            self._words[word] = 0
            if (futex := _futex()) is not None:
                futex(self._address + 4 * word, _WAKE, 1, None)

    def wait(self, word: int, seconds: float, waited: float) -> None:
        """Sleep while a word is 1, at most ``seconds``; may return earlier, such as after a signal.

        Signal handlers run, and may raise. Without futexes, this is a pause that grows with the seconds that the caller
        has already ``waited``.
        """
        futex = _futex()
        if futex is None:
            pause(seconds, waited)
            return
        whole = int(seconds)
        limit = _TIMESPEC.pack(whole, int((seconds - whole) * 1e9))
        if futex(self._address + 4 * word, _WAIT, 1, limit) not in _EXPECTED:
            pause(seconds, waited)


def pause(seconds: float, waited: float) -> None:
    """Sleep between two looks, longer the longer the caller has waited, and at most ``seconds``."""
    time.sleep(min(seconds, max(_SHORTEST, min(waited * _GROWTH, _LONGEST))))


class Wait:
    """A wait of limited time: its owner looks, calls :meth:`sleep`, and looks again.

    Parameters
    ----------
    timeout : float or None
        Seconds; None waits forever.
    """

    def __init__(self, timeout: float | None) -> None:
        self._began = time.monotonic()
        self._end = math.inf if timeout is None else self._began + timeout

    @property
    def waited(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._began

    def sleep(self, futexes: Futexes, word: int, longest: float) -> bool:
        """Sleep while a word is 1, or for ``longest`` seconds, or until the time is over; False if it was over before.

        A word below 0 is none: the sleep is a pause that grows with the wait.
        """
        now = time.monotonic()
        left = min(longest, self._end - now)
        if left <= 0:
            return False
        if word < 0:
            pause(left, now - self._began)
        else:
            futexes.wait(word, left, now - self._began)
        return True
