"""Limits on copies of repeatedly referenced values, checked before copying.

A dictionary of one long value with many indices, long runs, and overlapping list views take few bytes but can expand
without limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.errors import EXPANDED_VALUES, LimitExceeded
from shmarrow.layout.making import is_sparse
from shmarrow.layout.memory import Indices
from shmarrow.layout.offsets import checked_offsets
from shmarrow.layout.preview import clip
from shmarrow.types.extension import ExtensionType

if TYPE_CHECKING:
    import numpy.typing as npt

    Counts = npt.NDArray[np.float64]

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
    total = _copied(array, counts.astype(np.float64))
    if total > most:
        raise LimitExceeded(
            f"{clip(str(array.type), 200)}: repeated values would expand to {int(total)} bytes, "
            f"copied from {held}; work on slices"
        )


def has_fixed_width(array: Any) -> bool:
    """Return whether values have a small fixed width, or the length is not bounded by memory."""
    layout = array.type.layout
    return layout in ("primitive", "bool", "null") or (len(array) > EXPANDED_VALUES and is_sparse(array))


def _copied(array: Any, counts: Counts) -> float:
    """Lower bound of the bytes written when each slot is copied ``counts`` times."""
    if isinstance(array.type, ExtensionType):
        return _copied(array.storage, counts)
    layout = array.type.layout
    if layout in ("binary", "large_binary"):
        lengths = np.diff(checked_offsets(array, len(array.data), "bytes"))
        return float(counts @ lengths)
    if layout in ("list", "large_list", "map", "fixed_size_list"):
        _, sizes, items = array._spans()
        positions = 8 * float(counts @ sizes)
        if len(items) > EXPANDED_VALUES and is_sparse(items):
            return positions
        return positions + _copied(items, np.repeat(counts, sizes))
    if layout == "struct":
        return sum([_copied(child, counts) for child in array._windows()])
    return float(counts.sum()) * int(array.type.byte_width if layout == "primitive" else 0)
