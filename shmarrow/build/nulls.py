"""NaN as null, which is how pandas marks missing values in floats and among objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shmarrow.layout.array import Array
from shmarrow.layout.memory import frozen, validity_of


def without_nan(values: Sequence[Any]) -> list[Any]:
    """Python values with None for NaN, also within lists and dicts; ndarrays stay as they are."""
    return [_without_nan(value) for value in values]


def _without_nan(value: Any) -> Any:
    if isinstance(value, (float, np.floating)):
        return None if value != value else value
    if value.__class__ in (list, tuple):
        return without_nan(value)
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if value.__class__.__name__ == "Decimal":
        return None if value.is_nan() else value
    return value


def nan_to_null(array: Array) -> Any:
    """The array with nulls for NaN, also in children; copies no values."""
    if array.type.layout == "primitive" and array.type.descriptor.values == "float":
        values = array.values  # type: ignore[attr-defined]
        missing = np.isnan(values)
        if not missing.any():
            return array
        validity, nulls = validity_of(array._valid() & ~missing)
        return array._with(offset=0, buffers=[validity, frozen(values)], null_count=nulls)
    children = [nan_to_null(child) for child in array.children]
    if all(new is old for new, old in zip(children, array.children, strict=True)):
        return array
    return array._with(children=children)
