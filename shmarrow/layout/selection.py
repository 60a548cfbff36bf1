"""Selection of slots by a boolean mask, and filling of nulls."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidArgument, InvalidType, shown
from shmarrow.layout.arguments import as_array, checked_mask, unmasked
from shmarrow.layout.array import Array
from shmarrow.layout.making import booleans, check_slots, concat_arrays, make_array
from shmarrow.layout.memory import Indices, frozen, offsets_of, read_only
from shmarrow.layout.offsets import checked_offsets
from shmarrow.types.extension import ExtensionType

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
    mask = unmasked(mask)
    if not isinstance(mask, np.ndarray) or mask.dtype == object:
        mask = as_array(mask, "a mask")
    known = None
    if isinstance(mask, Array):
        if mask.type.layout == "bool":
            known, mask = mask._mask(), mask.values  # type: ignore[attr-defined]
        elif mask.type.layout == "null":
            known, mask = np.zeros(len(mask), np.bool_), np.zeros(len(mask), np.bool_)
        else:
            raise InvalidType(f"a mask must be bools, found {mask.type}")
    keep = checked_mask(mask, length)
    if known is None:
        return np.flatnonzero(keep), None
    if null_selection_behavior == "drop":
        return np.flatnonzero(keep & known), None
    positions = np.flatnonzero(keep | ~known)
    return positions, known[positions]


def fill_null(array: Any, fill_value: Any) -> Any:
    """Implement :meth:`Array.fill_null`."""
    if hasattr(fill_value, "as_py"):
        fill_value = fill_value.as_py()
    if fill_value is None:
        return array
    whole = isinstance(fill_value, Array) or hasattr(fill_value, "__arrow_c_array__")
    values = as_array(fill_value if whole else [fill_value], "a value to fill in", None if whole else array.type)
    values = values.cast(array.type)
    if whole and len(values) != len(array):
        raise InvalidArgument(f"expected {len(array)} fill values, one per slot, found {len(values)}")
    missing = array._logical_nulls()
    if missing is None or not missing.any():
        return array
    check_slots(array)
    if not whole and array.type.layout == "bool" and not isinstance(array.type, ExtensionType):
        return booleans(np.where(missing, values.values[0], array.values))
    if not whole and array.type.layout == "primitive" and not isinstance(array.type, ExtensionType):
        numbers = np.array(array.values)
        numbers[missing] = values.values[0]
        return make_array(array.type, len(array), [None, frozen(numbers)], 0)
    if not whole and array.type.layout in ("binary", "large_binary") and not isinstance(array.type, ExtensionType):
        made = _with_bytes(array, missing, values.data)
        if made is not None:
            return made
    slots = np.arange(len(array))
    return concat_arrays([array, values])._take(np.where(missing, len(array) + (slots if whole else 0), slots))


_SHORT = 64
"""Size up to which a value is written to all its places byte by byte."""


def _with_bytes(array: Any, missing: Mask, value: Bytes) -> Any:
    """Insert a value at zero-length nulls; None if nulls have bytes, or the value is long."""
    offsets = checked_offsets(array, len(array.data), "bytes")
    lengths = np.diff(offsets).astype(np.int64)
    if len(value) > _SHORT or lengths[missing].any():
        return None
    lengths[missing] = len(value)
    ends = offsets_of(lengths, array.type)
    data = np.empty(int(ends[-1]), np.uint8)
    kept = np.ones(len(data), np.bool_)
    places = ends[:-1][missing].astype(np.int64)
    for i, byte in enumerate(value.tolist()):
        data[places + i] = byte
        kept[places + i] = False
    data[kept] = array.data[int(offsets[0]) : int(offsets[-1])]
    return make_array(array.type, len(array), [None, frozen(ends), read_only(data)], 0)
