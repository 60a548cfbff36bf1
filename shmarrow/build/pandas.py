# SPDX-License-Identifier: Apache-2.0
"""Zero-copy access to the values of pandas' Series, Index and extension arrays.

Invariants:

* pandas is not imported: its objects are recognized by class name;
* an object becomes an ndarray, masked if pandas has a mask, or an array; unsupported dtypes raise by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.errors import InvalidType
from shmarrow.layout.construct import frozen, make_array, validity_of
from shmarrow.layout.values import array_from_numpy
from shmarrow.types import from_numpy_dtype
from shmarrow.types.primitive import zone_name

_BASES = {"Series", "Index", "ExtensionArray", "DataFrame"}


@lru_cache(256)
def is_pandas(kind: Any) -> bool:
    """Return whether a class is one of pandas' value containers, or a subclass."""
    return any(base.__name__ in _BASES and base.__module__.partition(".")[0] == "pandas" for base in kind.__mro__)


def values_of(obj: Any, build: Callable[..., Any], read: Callable[[Any], Any]) -> Any:
    """Return the values of a pandas object as an ndarray, a masked ndarray, or an array.

    ``build`` converts another pandas object to an array, ``read`` an object with an Arrow interface.

    Raises
    ------
    InvalidType
        If no type fits the values.
    """
    dtype = getattr(obj, "dtype", None)
    if dtype is None:
        raise InvalidType(f"expected the values of one column, found a pandas {obj.__class__.__name__}")
    if isinstance(dtype, np.dtype):
        return obj.to_numpy()
    kind = dtype.__class__.__name__
    extension_array = obj if any(base.__name__ == "ExtensionArray" for base in obj.__class__.__mro__) else obj.array
    if kind in _REFUSED:
        raise InvalidType(f"no Arrow type for pandas' {dtype}: {_REFUSED[kind]}")
    if kind == "SparseDtype":
        return np.asarray(extension_array)
    if kind == "CategoricalDtype":
        return _categorical(extension_array, build)
    if kind == "DatetimeTZDtype":
        moments = np.asarray(extension_array, f"M8[{dtype.unit}]")
        return array_from_numpy(moments, types.timestamp(dtype.unit, zone_name(dtype.tz)))
    if kind == "StringDtype" and dtype.storage == "python":
        return build(np.asarray(extension_array, object), types.string(), from_pandas=True)
    data, mask = getattr(extension_array, "_data", None), getattr(extension_array, "_mask", None)
    if isinstance(data, np.ndarray) and isinstance(mask, np.ndarray):
        return np.ma.MaskedArray(data, mask, copy=False)
    if hasattr(extension_array, "__arrow_array__"):
        return read(extension_array)
    return extension_array.to_numpy(object)


_REFUSED = {
    "PeriodDtype": "call .to_timestamp(), or pass a DataFrame, which keeps them",
    "IntervalDtype": "convert to structs of .left and .right, or pass a DataFrame, which keeps them",
}


def with_extension(values: Any, build: Callable[..., Any]) -> tuple[Any, dict[str, str] | None]:
    """Return a frame column's values and its field's metadata; periods and intervals as pandas stores them.

    pandas defines extension types for both, over integers and over structs, which are identified by name alone.
    """
    dtype = getattr(values, "dtype", None)
    if dtype.__class__.__name__ == "CategoricalDtype":
        return _categorical(getattr(values, "array", values), lambda each: build(with_extension(each, build)[0])), None
    if isinstance(dtype, np.dtype) and dtype.hasobject:
        return without_missing(values), None
    write = _STORED.get(dtype.__class__.__name__)
    if write is None:
        return values, None
    array, name, parameters = write(values, build)
    return array, {"ARROW:extension:name": name, "ARROW:extension:metadata": json.dumps(parameters)}


def without_missing(values: Any) -> list[Any]:
    """Return objects with None for those that are missing to pandas; NaN inside of lists and dicts is a value."""
    present = values.to_numpy(object, copy=True)
    present[np.asarray(values.isna(), bool)] = None
    items: list[Any] = present.tolist()
    return items


def _periods(values: Any, build: Callable[..., Any]) -> tuple[Any, str, dict[str, str]]:
    periods = getattr(values, "array", values)
    ordinals = build(np.ma.MaskedArray(periods.asi8, np.asarray(periods.isna()), copy=False), types.int64())
    return ordinals, "pandas.period", {"freq": str(values.dtype)[len("period[") : -1]}


def _intervals(values: Any, build: Callable[..., Any]) -> tuple[Any, str, dict[str, str]]:
    intervals = getattr(values, "array", values)
    ends = [build(end, from_pandas=True) for end in (intervals.left, intervals.right)]
    missing = np.asarray(intervals.isna())
    fields = [types.field(name, end.type) for name, end in zip(("left", "right"), ends, strict=True)]
    validity, nulls = validity_of(~missing if missing.any() else None)
    array = make_array(types.struct(fields), len(values), [validity], nulls, 0, ends)
    return array, "pandas.interval", {"subtype": str(ends[0].type), "closed": values.dtype.closed}


_STORED: dict[str, Callable[..., tuple[Any, str, dict[str, str]]]] = {
    "PeriodDtype": _periods,
    "IntervalDtype": _intervals,
}


def _categorical(values: Any, build: Callable[..., Any]) -> Any:
    """A dictionary array over the codes, with -1 for null; does not copy the codes."""
    codes = np.asarray(values.codes)
    categories = build(values.categories)
    type = types.dictionary(from_numpy_dtype(codes.dtype), categories.type, values.ordered)
    valid = codes >= 0
    validity, nulls = validity_of(None if valid.all() else valid)
    return make_array(type, len(codes), [validity, frozen(codes)], nulls, 0, (), categories)
