"""Conversion of Python values to arrays of a given type, dispatched to the layout's class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shmarrow.buffer import Mask
from shmarrow.casts import kinds_of
from shmarrow.casts.python import addresses_of, exact_bytes
from shmarrow.layout.from_numpy import array_from_numpy
from shmarrow.layout.making import array_class
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.types import DataType, ExtensionType

__all__ = ["array_from_numpy", "array_from_pylist", "null_kinds", "without_missing"]

_NONE = type(None)


def array_from_pylist(values: Sequence[Any], type: DataType, kinds: set[Any] | None = None) -> Any:
    """Create an array from a list of Python values, None for null; ``kinds`` are their classes, if known."""
    kinds = kinds_of(values) if kinds is None else kinds
    if not _PLAIN.issuperset(kinds):
        values, kinds = without_missing(values, kinds)
        if not isinstance(type, ExtensionType):
            values = exact_bytes(type, values, kinds)
    nulls = _NONE in kinds
    number = None if isinstance(type, ExtensionType) else _NUMBERS.get(type.descriptor.values)
    all_numbers = number is not None and kinds <= {number, _NONE}
    if nulls and all_numbers:
        made = (_floats_with_nulls if number is float else _integers_with_nulls)(type, values)
        if made is not None:
            return made
    mask: Mask | None = addresses_of(values) != id(None) if nulls else None
    if all_numbers:
        return PrimitiveArray.from_numbers(type, values, mask)
    return array_class(type).from_pylist(type, values, mask)


_PLAIN = {int, float, str, bytes, bool, list, dict, _NONE}
"""Class sets without null markers to replace; None itself needs no replacement."""

_MISSING = {"NAType", "NaTType"}
"""Names of the classes of pandas' null markers."""


def null_kinds(kinds: set[Any]) -> set[Any]:
    """Return the classes whose values all mean null: NoneType and pandas' markers."""
    return {
        kind
        for kind in kinds
        if kind is _NONE or (kind.__name__ in _MISSING and kind.__module__.partition(".")[0] == "pandas")
    }


def without_missing(values: Sequence[Any], kinds: set[Any]) -> tuple[Sequence[Any], set[Any]]:
    """Return the values with NA and NaT of pandas and numpy replaced by None, and their classes."""
    blank = null_kinds(kinds) - {_NONE}
    moments = {kind for kind in kinds if issubclass(kind, (np.datetime64, np.timedelta64))}
    if not (blank or moments):
        return values, kinds
    kept = [
        None if value.__class__ in blank or (value.__class__ in moments and np.isnat(value)) else value
        for value in values
    ]
    return kept, kinds_of(kept)


_NUMBERS: dict[str, Any] = {"integer": int, "float": float}
"""Python class of the numbers that need no conversion, by the kind of a type's values."""


def _floats_with_nulls(type: DataType, values: Sequence[Any]) -> Any:
    """Convert floats and None: numpy converts None to NaN, so only NaNs need to be looked up."""
    numbers = np.fromiter(values, np.float64, len(values))
    mask = ~np.isnan(numbers)
    suspects = np.flatnonzero(~mask)
    mask[suspects] = [values[i] is not None for i in suspects.tolist()]
    return PrimitiveArray.from_numpy(type, numbers, mask)


def _integers_with_nulls(type: DataType, values: Sequence[Any]) -> Any:
    """Convert integers and None via floats, where None becomes NaN; None if not all fit both."""
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
"""Integers up to here are exact as floats."""
