# SPDX-License-Identifier: Apache-2.0
"""Building arrays from numpy (zero-copy), Python values, pandas and other libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, TypeAlias

import numpy as np

from shmarrow import types
from shmarrow.buffer import Mask
from shmarrow.build.infer import nan_to_null, type_of_ndarray, type_of_values, without_nan
from shmarrow.build.sources import plain
from shmarrow.casts import kinds_of, listed
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, Part, renumbered, row_of, shown
from shmarrow.layout import Array, arguments
from shmarrow.layout.array import nulls
from shmarrow.layout.construct import frozen, make_array
from shmarrow.layout.listing import LISTS
from shmarrow.layout.validation import check_required
from shmarrow.layout.values import array_from_numpy, array_from_pylist
from shmarrow.types import DataType, ExtensionType
from shmarrow.types.base import BY_DTYPE

__all__ = ["array", "infer_type"]


def array(
    obj: Any,
    type: DataType | str | None = None,
    mask: Any = None,
    size: int | None = None,
    from_pandas: bool | None = None,
    safe: bool = True,
) -> Array:
    """Create an array from values of any kind.

    Parameters
    ----------
    obj : array-like or iterable
        The values. A contiguous ndarray of numbers, dates or times is zero-copy, and so is a pandas Series or Index
        over one. Arrays of any library with an Arrow interface, such as pyarrow and polars, keep their type and
        memory. A multidimensional ndarray becomes fixed-size lists, a structured ndarray structs, a list of ndarrays
        lists, a pandas Categorical a dictionary array. A chunked array becomes one array, copied if it has several
        chunks; the rows of a record batch or table become structs. None, pandas' NA and NaT, and numpy's NaT are null.
    type : DataType or str, optional
        The type; inferred by default, see :func:`infer_type`.
    mask : bool ndarray, Array or sequence of bool, optional
        Shape (n,); True makes a slot null, in addition to existing nulls.
    size : int, optional
        Maximum number of values to read.
    from_pandas : bool, optional
        Whether NaN is null; by default, only in pandas objects without a mask or Arrow's validity.
    safe : bool
        False converts values that do not fit ``type`` as ``cast(type, safe=False)`` does. Values of the wrong kind
        always raise.

    Raises
    ------
    InvalidType
        If the values are of the wrong kind for the type, or of several kinds without a common type.
    InvalidData
        If a value does not fit the type without loss.
    InvalidArgument
        If the shape of the mask is wrong, or ``obj`` is a 0-d ndarray.
    MissingExtra
        If reading the values needs nanoarrow or pyarrow, which is not installed.

    Notes
    -----
    Differences from pyarrow: str and bytes, dates and datetimes, and datetimes with and without a time zone cannot be
    mixed, even if ``type`` is given, and datetimes of several time zones only then; nanoseconds and the time of a
    datetime are never dropped; integers of 2**63 and more are uint64; a str, bytes or dict as ``obj`` raises, as it is
    a single value; byte-swapped, structured and multidimensional ndarrays are accepted.
    """
    if obj.__class__ is np.ndarray and type is mask is size is None and not from_pandas and obj.ndim == 1:
        number = BY_DTYPE.get(obj.dtype) if obj.dtype.kind in "iuf" else None
        if number is not None:
            return make_array(number, len(obj), [None, frozen(obj)], 0)
    target = None if type is None else types.as_type(type)
    count = None if size is None else _count(size)
    if not isinstance(obj, (list, tuple, np.ndarray, Array)):
        obj, pandas = plain(obj, count, array)
        from_pandas = pandas if from_pandas is None else from_pandas
    elif isinstance(obj, (list, tuple)):
        obj = listed(obj)
    if count is not None and getattr(obj, "ndim", None) != 0:
        obj = obj[:count]
    make: Callable[..., Array]
    make = _of_ndarray if isinstance(obj, np.ndarray) else _of_array if isinstance(obj, Array) else _of_values
    valid = None if mask is None else ~arguments.checked_mask(mask, len(obj) if getattr(obj, "ndim", 1) else 0)
    result: Array
    try:
        try:
            result = make(obj, target, valid, bool(from_pandas))
        except (InvalidData, InvalidType):
            if safe or target is None:
                raise
            result = make(obj, None, valid, bool(from_pandas)).cast(target, safe=False)
        return result
    except RecursionError:
        raise InvalidType("the values are nested too deeply, or are recursive") from None


def infer_type(values: Any, mask: Any = None, from_pandas: bool = False) -> DataType:
    """Infer the type that :func:`array` would choose.

    Arrays and ndarrays determine the type; for other values it is the narrowest type that holds all of them.

    Parameters
    ----------
    values : array-like or iterable
        The values.
    mask : bool ndarray or sequence of bool, optional
        True for values to ignore.
    from_pandas : bool
        Whether to ignore NaN.

    Raises
    ------
    InvalidType
        If no type fits the values.
    """
    if not isinstance(values, (list, tuple)) or mask is not None or from_pandas:
        return array(values, mask=mask, from_pandas=from_pandas or None).type
    return type_of_values(values)


def _count(size: Any) -> int | None:
    """The number of values to read, None for all."""
    try:
        count = index(size)
    except TypeError:
        raise InvalidType(f"size must be an int, found {shown(size)}") from None
    return count if count >= 0 else None


def _of_array(values: Any, target: DataType | None, valid: Mask | None, nan_is_null: bool) -> Any:
    result = nan_to_null(values) if nan_is_null else values
    if target is not None and target != result.type:
        result = result.cast(target)
    return result if valid is None else result._take(np.arange(len(result)), valid)


def _lists(type: DataType, values: Any) -> DataType:
    for size in reversed(values.shape[1:]):
        type = types.list_(type, size)
    return type


def _of_ndarray(values: Any, target: DataType | None, valid: Mask | None, nan_is_null: bool) -> Any:
    if not values.ndim:
        raise InvalidArgument("expected at least one dimension, found a 0-d ndarray")
    if isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values)
        values = values.data
        if missing.dtype.names is not None:
            raise InvalidType("cannot convert a masked structured ndarray to structs, as its mask is per field")
        if missing.any():
            valid = ~missing if valid is None else _deepened(valid, missing) & ~missing
    if values.dtype.kind == "O":
        items = values.reshape(-1).tolist()
        if valid is not None and valid.ndim == values.ndim:
            items = [item if keep else None for item, keep in zip(items, valid.reshape(-1).tolist(), strict=True)]
            valid = None
        if values.ndim == 1:
            return _of_values(items, target, valid, nan_is_null)
        objects = np.empty(len(items), object)
        objects[:] = without_nan(items) if nan_is_null else items
        values = objects.reshape(values.shape)
    elif nan_is_null and values.dtype.kind == "f":
        missing = np.isnan(values)
        if missing.any():
            valid = ~missing if valid is None else _deepened(valid, missing) & ~missing
        if target is not None and values.ndim == 1 and missing.all():  # pandas has no other column of nothing
            return nulls(len(values), target)
    type = type_of_ndarray(values, valid) if target is None else target
    with renumbered(_in_shape, values.shape):
        return array_from_numpy(values, type, valid)


def _in_shape(row: int, shape: tuple[int, ...]) -> list[Part]:
    """The place of an element of an ndarray, from its flat index."""
    slot, *items = np.unravel_index(row, shape)
    return [("row", int(slot)), *[("item", int(item)) for item in items]]


def _deepened(valid: Mask, like: Mask) -> Mask:
    """Broadcast a mask of rows to the innermost values."""
    return np.broadcast_to(valid.reshape(len(valid), *[1] * (like.ndim - 1)), like.shape) if valid.ndim == 1 else valid


def _of_values(values: Sequence[Any], target: DataType | None, valid: Mask | None, nan_is_null: bool) -> Any:
    if nan_is_null:
        values = without_nan(values)
    if valid is not None:
        values = [value if keep else None for value, keep in zip(values, valid.tolist(), strict=True)]
    kinds = kinds_of(values)
    type = type_of_values(values, kinds) if target is None else target
    try:
        result = array_from_pylist(values, type, kinds)
        if type.fields and target is not None and type.layout != "map":
            check_required(result)
    except (InvalidData, InvalidType) as error:
        raise _located(error, values, type) from error.__cause__
    return nan_to_null(result) if nan_is_null else result


def _located(error: InvalidData | InvalidType, values: Sequence[Any], type: Any) -> InvalidData | InvalidType:
    """The error of a list, with the place of the first invalid value."""
    if not type.fields and row_of(error) is not None:
        return error
    if type.layout == "dictionary" and not isinstance(type, ExtensionType):
        type = type.value_type  # the number of distinct values depends on the whole list
    refused = _first_refused(values, type)
    if refused is None:
        return error  # no single value is invalid
    slot, steps, error = refused
    error.where = (("row", slot), *steps, *[part for part in error.where if part[0] != "row"])
    return error


_Refused: TypeAlias = tuple[int, list[Part], InvalidData | InvalidType]


def _first_refused(values: Sequence[Any], type: DataType) -> _Refused | None:
    """The slot of the first invalid value, the path to its invalid part, and the error.

    Found by bisection; None if each value by itself is valid.
    """
    start, stop = 0, len(values)
    while stop - start > 1:
        middle = (start + stop) // 2
        if _error(values[start:middle], type) is None:
            start = middle
        else:
            stop = middle
    error = _error(values[start:stop], type)
    if error is None:
        return None
    for step, parts, part_type in _parts(values[start], type):
        refused = _first_refused(parts, part_type)
        if refused is not None:
            at, steps, error = refused
            return start, [step or ("item", at), *steps], error
    return start, [], error


def _error(values: Sequence[Any], type: DataType) -> InvalidData | InvalidType | None:
    try:
        array_from_pylist(values, type)
    except (InvalidData, InvalidType) as error:
        return error
    return None


def _parts(value: Any, type: Any) -> list[tuple[Part, Sequence[Any], DataType]]:
    """The parts of a nested value, with their types and what they add to the location of an error."""
    if type.layout == "struct" and isinstance(value, Mapping):
        return [(("field", field.name), [value.get(field.name)], field.type) for field in type.fields]
    if type.layout == "map" and isinstance(value, Mapping):
        keys: list[tuple[Part, Sequence[Any], DataType]] = [(("key",), [key], type.key_type) for key in value]
        return keys + [(("value",), [item], type.item_type) for item in value.values()]
    if type.layout in LISTS and (isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1):
        return [((), list(listed(value)), type.fields[0].type)]
    return []
