"""Conversion of NaN to null, as pandas marks missing values in float and object columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shmarrow.casts import kinds_of
from shmarrow.layout import Array
from shmarrow.types import ExtensionType


def without_nan(values: Sequence[Any]) -> Sequence[Any]:
    """Return Python values with NaN replaced by None, also in lists and dicts; ndarrays are unchanged."""
    kinds = kinds_of(values)
    numbers = {kind for kind in kinds if issubclass(kind, (float, np.floating))}
    decimals = {kind for kind in kinds if kind.__name__ == "Decimal"}
    whole = {kind for kind in kinds if kind in (list, tuple) or issubclass(kind, Mapping)}
    if decimals or whole:
        missing: dict[Any, Callable[[Any], Any]] = dict.fromkeys(whole, _deep)
        missing |= dict.fromkeys(decimals, lambda value: None if value.is_nan() else value)
        missing |= dict.fromkeys(numbers, lambda value: value if value == value else None)
        return [missing[value.__class__](value) if value.__class__ in missing else value for value in values]
    if numbers:
        return [None if value.__class__ in numbers and value != value else value for value in values]
    return values


def _deep(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(zip(value, without_nan(list(value.values())), strict=True))
    return without_nan(value)


def nan_to_null(array: Array) -> Any:
    """Return the array with NaN made null, also in children; copies no values."""
    if isinstance(array.type, ExtensionType):
        return array
    missing = array._nans()
    if missing is not None:
        return array.trim()._masked(array._valid() & ~missing) if missing.any() else array
    children = [nan_to_null(child) for child in array.children]
    if all(new is old for new, old in zip(children, array.children, strict=True)):
        return array
    return array._with(children=children)
