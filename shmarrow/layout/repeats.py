"""Values that data refer to many times: what copies of them would take, before they are made.

A dictionary of one long value and many indices, long runs, and overlapping list views say in a few bytes what takes any
number of them once it is written out.
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
"""Bytes that copies of values may take beyond four times what the data take."""


def check_repeats(array: Any, counts: Indices, referring: int) -> None:
    """Refuse to copy each value of an array as often as ``counts`` says, of shape (length,).

    ``referring`` is the number of bytes of what refers to the values.

    Raises
    ------
    LimitExceeded
        If the copies take more than 1 GiB, and more than four times what the data take.
    """
    held = int(array.get_total_buffer_size())
    most = 4 * (held + referring) + REPEATED_BYTES
    if not len(counts) or int(counts.max()) * held <= most:
        return
    total = _copied(array, counts.astype(np.float64))
    if total > most:
        raise LimitExceeded(
            f"{clip(str(array.type), 200)}: values that are referred to many times would take {int(total)} bytes, "
            f"copied from {held}; work on slices"
        )


def has_fixed_width(array: Any) -> bool:
    """Whether copies of values take no more than a few bytes each, or the length of the array says nothing."""
    layout = array.type.layout
    return layout in ("primitive", "bool", "null") or (len(array) > EXPANDED_VALUES and is_sparse(array))


def _copied(array: Any, counts: Counts) -> float:
    """Bytes that are written when each slot is copied so often, at least."""
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
