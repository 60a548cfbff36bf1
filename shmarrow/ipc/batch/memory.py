"""Memory for decompressed buffers: large pieces are used again when the last array over them is gone.

Rules kept here:

* unused pieces add up to 512 MiB at most, and the kernel may take their pages at any time;
* a piece is less than twice as large as what it was asked for;
* nobody waits for the lock: without it, a new piece is made, or an unused one is freed. So finalizers, which may run
  between any two instructions of this file, and forked children cannot block.
"""

from __future__ import annotations

import _thread
import mmap
import os
import weakref
from contextlib import suppress

import numpy as np

from shmarrow.buffer import Bytes, padded
from shmarrow.errors import LimitExceeded

LARGE = 1 << 20
"""Bytes from which on memory comes in pieces that are used again."""
_UNUSED = 1 << 29
_GRAIN = 1 << 18
_free: list[mmap.mmap] = []
_lock = _thread.allocate_lock()


def _renew_lock() -> None:
    """In a forked child: the lock's holder may have been a thread that is not here."""
    global _lock
    _lock = _thread.allocate_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def allocate(size: int) -> Bytes:
    """Writable memory that holds anything, as a uint8 ndarray of shape (size,).

    Raises
    ------
    LimitExceeded
        If there is not so much memory.
    """
    try:
        if size < LARGE or not hasattr(mmap, "MADV_FREE"):
            return np.empty(size, np.uint8)
        piece = _piece(padded(size, _GRAIN))
    except (MemoryError, OSError, OverflowError, ValueError):
        raise LimitExceeded(f"no memory for {size} decompressed bytes") from None
    whole = np.frombuffer(piece, np.uint8)
    weakref.finalize(whole, _give_back, piece).atexit = False
    return whole[:size]


def _piece(size: int) -> mmap.mmap:
    """The smallest unused piece of at least this size that is not much larger, or a new one."""
    if _lock.acquire(blocking=False):
        try:
            fitting = [piece for piece in _free if size <= len(piece) <= size + size // 2]
            if fitting:
                found = min(fitting, key=len)
                _free.remove(found)
                return found
        finally:
            _lock.release()
    made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a kernel without them
        made.madvise(mmap.MADV_HUGEPAGE)
    return made


def _give_back(piece: mmap.mmap) -> None:
    """Keep a piece for the next who needs one; until then the kernel may take its pages."""
    if len(piece) > _UNUSED:
        return
    try:
        piece.madvise(mmap.MADV_FREE)
    except OSError:  # locked memory, or a kernel that does not know it
        return
    if _lock.acquire(blocking=False):
        try:
            while sum(map(len, _free)) + len(piece) > _UNUSED:
                del _free[0]
            _free.append(piece)
        finally:
            _lock.release()
