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
from functools import cache, partial
from typing import Any

import numpy as np

_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "loongarch64": 98, "ppc64le": 221}
"""The number of the system call on machines of 64 bits, little-endian."""
_WAIT, _WAKE = 0, 1
_TIMESPEC = struct.Struct("qq")
_SHORTEST, _LONGEST, _GROWTH = 0.0005, 0.1, 0.1
"""Shortest and longest pause between two looks without a futex, in seconds; and its ratio to the time waited."""

Call = Callable[[], object]


@cache
def _futex() -> Callable[[int, int, bytes | None], Call] | None:
    """Return a function of address, operation and time, which gives a call that has its arguments; None without."""
    number = _CALLS.get(os.uname().machine) if struct.calcsize("P") == 8 else None
    if number is None:
        return None
    import ctypes  # a slow import

    # Nothing is converted, and no error is asked for: a process that wakes up has lost its caches. So ask once whether
    # the call is there, by a wait on a word that has another value.
    value, word = ctypes.c_uint32(1), ctypes.c_uint32(0)
    arguments = ctypes.c_long(number), ctypes.byref(word), ctypes.c_int(_WAIT), value, ctypes.c_char_p(None)
    if ctypes.CDLL(None, use_errno=True).syscall(*arguments) != -1 or ctypes.get_errno() != errno.EAGAIN:
        return None
    call = ctypes.CDLL(None).syscall
    call.restype = None

    def prepared(address: int, operation: int, limit: bytes | None) -> Call:
        place, what = ctypes.c_void_p(address), ctypes.c_int(operation)
        return partial(call, arguments[0], place, what, value, ctypes.c_char_p(limit))

    return prepared


class Futexes:
    """The words of a shared memory, for waiting on them.

    Parameters
    ----------
    memory : buffer
        Shared memory, writable for all but :meth:`sleep`; it stays mapped as long as this lives.
    size : int
        Bytes of a word, 4 or 8, of which the kernel looks at the first 4.
    """

    def __init__(self, memory: Any, size: int = 4) -> None:
        array = np.frombuffer(memory, f"<u{size}")
        self._words: Any = array.data
        self._address = array.ctypes.data
        self._size = size
        self._wakes: dict[int, Call] = {}

    def arm(self, word: int) -> None:
        """Say that a process waits, before it looks for what it waits for."""
        self._words[word] = 1

    def is_armed(self, word: int) -> bool:
        """Whether it still waits for being woken."""
        return self._words[word] != 0

    def disarm(self, word: int) -> None:
        """Say that it does not wait any more."""
        self._words[word] = 0

    def wake(self, word: int) -> None:
        """Wake the process that waits on a word, if one does."""
        if self._words[word]:
            self._words[word] = 0
            wake = self._wakes.get(word)
            if wake is None:
                wake = self._wakes[word] = self._call(word, _WAKE, None) or int
            wake()

    def sleep(self, word: int, seconds: float, waited: float) -> Call:
        """Return a call that sleeps while a word is 1, at most ``seconds``; while this object lives.

        It may return earlier, such as after a signal, whose handler runs, and may raise. Without futexes, it is a pause
        that grows with the seconds that the caller has already ``waited``.
        """
        whole = int(seconds)
        limit = _TIMESPEC.pack(whole, int((seconds - whole) * 1e9))
        return self._call(word, _WAIT, limit) or partial(pause, seconds, waited)

    def _call(self, word: int, operation: int, limit: bytes | None) -> Call | None:
        futex = _futex()
        return None if futex is None else futex(self._address + self._size * word, operation, limit)


def pause(seconds: float, waited: float) -> None:
    """Sleep between two looks, longer the longer the caller has waited, and at most ``seconds``."""
    time.sleep(min(seconds, max(_SHORTEST, min(waited * _GROWTH, _LONGEST))))


class Wait:
    """A wait of limited time: its owner looks, makes the call that :meth:`sleep` returns, and looks again.

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

    def sleep(self, futexes: Futexes, word: int, longest: float) -> Call | None:
        """Return a call that sleeps while a word is 1, at most ``longest`` seconds or until the time is over.

        A word below 0 is none: the sleep is a pause that grows with the wait. None if the time is over already.
        """
        now = time.monotonic()
        left, waited = min(longest, self._end - now), now - self._began
        if left <= 0:
            return None
        return partial(pause, left, waited) if word < 0 else futexes.sleep(word, left, waited)
