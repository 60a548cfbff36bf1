"""Memory for decompressed buffers, used again when the last array over it is gone."""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress

import numpy as np

from shmarrow.buffer import Bytes, padded
from shmarrow.errors import LimitExceeded

_POOLED = 1 << 20
_KEPT = 1 << 29
_HUGE_PAGE = 1 << 21
_free: list[mmap.mmap] = []


def _memory(size: int) -> Bytes:
    """Writable memory with anything in it; large pieces are used again when the last array over them is gone."""
    try:
        if size < _POOLED or not hasattr(mmap, "MADV_FREE"):
            return np.empty(size, np.uint8)
        piece = _piece(padded(size, _HUGE_PAGE))
    except (MemoryError, OSError, OverflowError):
        raise LimitExceeded(f"no memory for {size} decompressed bytes") from None
    whole = np.frombuffer(piece, np.uint8)
    weakref.finalize(whole, _give_back, piece).atexit = False
    return whole[:size]


def _piece(size: int) -> mmap.mmap:
    for piece in sorted(_free, key=len):
        if size <= len(piece) <= 2 * size:
            try:
                _free.remove(piece)
            except ValueError:  # another thread has it
                continue
            return piece
    made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a kernel without them
        made.madvise(mmap.MADV_HUGEPAGE)
    return made


def _give_back(piece: mmap.mmap) -> None:
    """Keep a piece for the next who needs one; until then the kernel may take its pages."""
    with suppress(IndexError):  # another thread emptied it
        while sum(map(len, _free)) + len(piece) > _KEPT:
            _free.pop(0)
    if len(piece) <= _KEPT:
        try:
            piece.madvise(mmap.MADV_FREE)
        except OSError:  # locked memory, or a kernel that does not know it
            return
        _free.append(piece)
