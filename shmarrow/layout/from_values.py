"""Arrays of a given type from Python values and from ndarrays; each layout's class says how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.convert.python import kinds_of
from shmarrow.errors import InvalidArgument, InvalidType
from shmarrow.extension import ExtensionType
from shmarrow.layout.array import array_class, make_array
from shmarrow.layout.boolean import BooleanArray
from shmarrow.layout.memory import validity_of
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.types import DataType

if TYPE_CHECKING:
    import numpy.typing as npt

_NONE = type(None)


def array_from_pylist(values: Sequence[Any], type: DataType, kinds: set[Any] | None = None) -> Any:
    """An array of ``type`` from a list of Python values, None for null; ``kinds`` are their classes where known."""
    kinds = kinds_of(values) if kinds is None else kinds
    nulls = _NONE in kinds
    number = None if isinstance(type, ExtensionType) else _NUMBERS.get(type.descriptor.values)
    all_numbers = number is not None and kinds <= {number, _NONE}
    if nulls and all_numbers:
        made = (_floats_with_nulls if number is float else _integers_with_nulls)(type, values)
        if made is not None:
            return made
    mask = _is_not_none(values) if nulls else None
    if all_numbers:
        return PrimitiveArray.from_numbers(type, values, mask)
    return array_class(type).from_pylist(type, values, mask)


_NUMBERS: dict[str, Any] = {"integer": int, "float": float}
"""The Python class of numbers that need no conversion, by the kind of a type's values."""

_NONE_AT = id(None)


def _is_not_none(values: Sequence[Any]) -> Mask:
    """False for each None: an array of objects holds their addresses, and the address of None is its identity."""
    objects = np.fromiter(values, object, len(values))
    mask: Mask = np.ndarray(len(values), np.uintp, objects) != _NONE_AT
    return mask


def _floats_with_nulls(type: DataType, values: Sequence[Any]) -> Any:
    """Floats and None: numpy makes NaN of None, so only where NaN came out it has to be asked which it was."""
    if type.storage == np.float64:
        numbers = np.fromiter(values, np.float64, len(values))
    else:
        with np.errstate(over="ignore"):
            numbers = np.array(values, type.storage)
    mask = ~np.isnan(numbers)
    suspects = np.flatnonzero(~mask)
    mask[suspects] = [values[i] is not None for i in suspects.tolist()]
    return PrimitiveArray.from_numpy(type, numbers, mask)


def _integers_with_nulls(type: DataType, values: Sequence[Any]) -> Any:
    """Integers and None by way of floats, which None makes NaN of; None where not all of them fit both."""
    try:
        numbers = np.fromiter(values, np.float64, len(values))
    except OverflowError:
        return None
    mask = ~np.isnan(numbers)
    numbers[~mask] = 0
    info = np.iinfo(type.storage)
    lowest, highest = max(info.min, -_EXACT), min(info.max, _EXACT)
    if not (lowest <= numbers.min() and numbers.max() <= highest):
        return None
    return PrimitiveArray.from_numpy(type, numbers.astype(type.storage), mask)


_EXACT = 1 << 52
"""Integers up to here are floats too."""


def array_from_numpy(values: npt.NDArray[Any], type: DataType, valid: Mask | None = None) -> Any:
    """An array of ``type`` from an ndarray of at least one dimension; ``valid`` is False where a slot is null."""
    if isinstance(type, ExtensionType):
        return type.array_class.from_numpy(type, values, valid)
    if values.ndim > 1:
        if type.layout != "fixed_size_list":
            raise InvalidType(f"{type}: cannot take an ndarray of {values.ndim} dimensions")
        if values.shape[1] != type.list_size:  # type: ignore[attr-defined]
            raise InvalidArgument(f"{type}: cannot take an ndarray of the shape {values.shape}")
        inner = type.fields[0].type
        child = array_from_numpy(np.ascontiguousarray(values).reshape(-1, *values.shape[2:]), inner)
        validity, count = validity_of(valid)
        return make_array(type, len(values), [validity], count, 0, [child])
    if values.dtype.kind in "OUST" or type.layout not in ("primitive", "bool"):
        items = values.tolist()
        if valid is not None:
            items = [item if keep else None for item, keep in zip(items, valid.tolist(), strict=True)]
        return array_from_pylist(items, type)
    if values.dtype.kind in "Mm":
        known = ~np.isnat(values)
        if not known.all():
            valid = known if valid is None else valid & known
            values = np.where(known, values, np.zeros((), values.dtype))
    return (BooleanArray if type.layout == "bool" else PrimitiveArray).from_numpy(type, values, valid)
