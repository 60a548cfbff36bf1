# SPDX-License-Identifier: Apache-2.0
"""Selection of slots by a boolean mask, and filling of nulls."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.buffer import Indices, Mask
from shmarrow.errors import InvalidArgument, InvalidType, shown
from shmarrow.layout.arguments import as_array, checked_mask, is_array, one_array
from shmarrow.layout.construct import check_slots, join_arrays
from shmarrow.types import bool_

_BEHAVIORS = ("drop", "emit_null")


def selection(mask: Any, length: int, null_selection_behavior: str = "drop") -> tuple[Indices, Mask | None]:
    """Return the positions where a mask is True, and which are valid: nulls in the mask are with ``"emit_null"``.

    Raises
    ------
    InvalidType
        If the mask is not boolean.
    InvalidArgument
        If the length of the mask is wrong, or the behaviour is unknown.
    """
    if null_selection_behavior not in _BEHAVIORS:
        raise InvalidArgument(
            f"null_selection_behavior must be 'drop' or 'emit_null', found {shown(null_selection_behavior)}"
        )
    if isinstance(mask, (bool, np.bool_)):  # what column == 5 is
        hint = "column.to_numpy() == 5 compares values, column == other whole columns"
        raise InvalidType(f"a mask has a bool for each row, found {mask}", hint=hint)
    mask = one_array(mask)
    if not isinstance(mask, np.ndarray) or mask.dtype == object:
        mask = as_array(mask, "a mask")
    valid = None
    if is_array(mask):
        mask = mask.cast(bool_()) if mask.type.layout == "null" else mask
        if mask.type != bool_():
            raise InvalidType(f"a mask must be bools, found {mask.type}")
        valid, mask = mask._mask(), mask.values
    keep = checked_mask(mask, length)
    if valid is None:
        return np.flatnonzero(keep), None
    if null_selection_behavior == "drop":
        return np.flatnonzero(keep & valid), None
    positions = np.flatnonzero(keep | ~valid)
    return positions, valid[positions]


def fill_null(array: Any, fill_value: Any) -> Any:
    """Implement :meth:`Array.fill_null`."""
    if hasattr(fill_value, "as_py"):
        fill_value = fill_value.as_py()
    if fill_value is None:
        return array
    whole = is_array(fill_value) or hasattr(fill_value, "__arrow_c_array__")
    values = as_array(fill_value if whole else [fill_value], "a value to fill in", None if whole else array.type)
    values = values.cast(array.type)
    if whole and len(values) != len(array):
        raise InvalidArgument(f"expected {len(array)} fill values, one per slot, found {len(values)}")
    missing = array._logical_nulls()
    if missing is None or not missing.any():
        return array
    check_slots(array)
    filled = None if whole else array._filled(missing, values)
    if filled is not None:
        return filled
    slots = np.arange(len(array))
    return join_arrays([array, values])._take(np.where(missing, len(array) + (slots if whole else 0), slots))
