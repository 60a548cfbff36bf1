"""Pooled memory for decompressed buffers; large blocks are reused once unreferenced.

Invariants:

* at most 512 MiB of unused blocks are kept, and the kernel may reclaim their pages at any time;
* a block is less than twice the requested size;
* the lock is never waited for: if it is held, a new block is mapped, or an unused one freed. So finalizers, which may
  run between any two instructions here, and forked children cannot deadlock.
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
"""Minimum size of pooled allocations."""
_UNUSED = 1 << 29
_GRAIN = 1 << 18
_free: list[mmap.mmap] = []
_lock = _thread.allocate_lock()


def _renew_lock() -> None:
    """After a fork: the lock's owner may not exist in the child."""
    global _lock
    _lock = _thread.allocate_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def allocate(size: int) -> Bytes:
    """Allocate uninitialized writable memory, as a uint8 ndarray of shape (size,).

    Raises
    ------
    LimitExceeded
        If there is not enough memory.
    """
    try:
        if size < LARGE or not hasattr(mmap, "MADV_FREE"):
            return np.empty(size, np.uint8)
        piece = _piece(padded(size, _GRAIN))
    except (MemoryError, OSError, OverflowError, ValueError):
        raise LimitExceeded(f"not enough memory for {size} decompressed bytes") from None
    whole = np.frombuffer(piece, np.uint8)
    weakref.finalize(whole, _give_back, piece).atexit = False
    return whole[:size]


def _piece(size: int) -> mmap.mmap:
    """The smallest sufficient unused block that is not much larger, or a new one."""
    if _lock.acquire(blocking=False):
        try:
            piece = _unused(size)
        finally:
            _lock.release()
        if piece is not None:
            return piece
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # not supported by this kernel
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def _give_back(piece: mmap.mmap) -> None:
    """Keep a block for reuse; until then the kernel may reclaim its pages."""
    if len(piece) > _UNUSED:
        return
    try:
        piece.madvise(mmap.MADV_FREE)
    except OSError:  # locked memory, or not supported by this kernel
        return
    if _lock.acquire(blocking=False):
        try:
            _keep(piece)
        finally:
            _lock.release()


def _unused(size: int) -> mmap.mmap | None:
    """Take the smallest sufficient unused block that is not much larger, if any; with the lock held."""
    fitting = [piece for piece in _free if size <= len(piece) <= size + size // 2]
    piece = min(fitting, key=len, default=None)
    if piece is not None:
        _free.remove(piece)
    return piece


def _keep(piece: mmap.mmap) -> None:
    """Add an unused block, and free older ones; with the lock held."""
    while sum(map(len, _free)) + len(piece) > _UNUSED:
        del _free[0]
    _free.append(piece)
