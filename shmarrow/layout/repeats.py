"""Values that are referenced repeatedly: limits on copies, checked before copying, and comparison of each pair once.

A dictionary of one long value with many indices, long runs, and overlapping list views take few bytes but can expand
without limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.buffer import Indices
from shmarrow.errors import EXPANDED_VALUES, LimitExceeded, clip
from shmarrow.layout.listing import LISTING
from shmarrow.layout.making import is_sparse

REPEATED_BYTES = 1 << 30
"""Bytes that copies may take even if more than four times the size of the data."""


def check_repeats(array: Any, counts: Indices, referring: int) -> None:
    """Raise if copying each value of an array ``counts`` times, of shape (length,), takes too much memory.

    ``referring`` is the size in bytes of the indices, runs or views.

    Raises
    ------
    LimitExceeded
        If the copies take more than 1 GiB and more than four times the size of the data.
    """
    held = int(array.get_total_buffer_size())
    most = 4 * (held + referring) + REPEATED_BYTES
    if not len(counts) or int(counts.max()) * held <= most:
        return
    total = array._storage._copied_bytes(counts.astype(np.float64))
    if total > most:
        raise LimitExceeded(
            f"{clip(str(array.type), 200)}: repeated values would expand to {int(total)} bytes, "
            f"copied from {held}; work on slices"
        )


def has_fixed_width(array: Any) -> bool:
    """Return whether values have a small fixed width, or the length is not bounded by memory."""
    plain = not array.type.fields and all(
        row.role in ("validity", "values") for row in LISTING[array.type.layout].buffers
    )
    return plain or (len(array) > EXPANDED_VALUES and is_sparse(array))


def same_at(mine: Any, at: Indices, other: Any, there: Indices) -> bool:
    """Return whether two arrays are equal at pairs of positions.

    Each distinct pair is compared once, in small blocks, so that a long value is not repeated for all slots. Positions
    are less than 2**31.
    """
    if not len(at):
        return True
    if (at[1:] > at[:-1]).all() and (there[1:] > there[:-1]).all():
        return bool(_pick(mine, at)._equal(_pick(other, there), None))
    pairs = np.unique(at << 32 | there)
    at, there = pairs >> 32, pairs & 0xFFFFFFFF
    first, size = 0, 16
    while first < len(pairs):
        piece = slice(first, first + size)
        if not mine._take(at[piece])._equal(other._take(there[piece]), None):
            return False
        first, size = first + size, min(2 * size, 1024)
    return True


def _pick(child: Any, at: Indices) -> Any:
    """The slots of a child at increasing positions; a slice if they are contiguous."""
    first, last = int(at[0]), int(at[-1])
    if last - first + 1 == len(at) and bool((at[1:] == at[:-1] + 1).all()):
        return child.slice(first, len(at))
    return child._take(at)
