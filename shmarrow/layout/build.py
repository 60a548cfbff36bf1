"""Building arrays: from numpy without copying, from Python values with nulls, with the type given or inferred."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow import types
from shmarrow.bitmap import Mask
from shmarrow.errors import InvalidArgument, InvalidType
from shmarrow.extension import ExtensionType
from shmarrow.layout.array import Array, array_class
from shmarrow.layout.fixed_size_list import FixedSizeListArray
from shmarrow.layout.primitive import BooleanArray, PrimitiveArray
from shmarrow.layout.values import DayTime, MonthDayNano, kinds_of
from shmarrow.types import DataType
from shmarrow.types.descriptors import TIME_UNIT, simple_types

if TYPE_CHECKING:
    import numpy.typing as npt

_NONE = type(None)


def array(values: Any, type: DataType | str | None = None, mask: Any = None) -> Any:
    """An array from values of any kind.

    Parameters
    ----------
    values : ndarray, Array, or iterable of Python values
        An ndarray of numbers, dates or times in the order of memory is used as it is, without a copy; one of more
        than one dimension becomes fixed-size lists. None stands for null. A masked ndarray brings its own mask.
    type : DataType or str, optional
        The type; inferred from the values where it is not given.
    mask : bool array, optional
        True makes a slot null, as in pyarrow and ``numpy.ma``.

    Raises
    ------
    InvalidType
        If the values are of a kind that the type cannot take, or of several kinds that no type takes.
    InvalidData
        If a value does not fit the type without loss.
    """
    wanted = None if type is None else types.as_type(type)
    if isinstance(values, Array):
        result = values if wanted is None else values.cast(wanted)
        return result if mask is None else result.take(np.arange(len(result)), ~_as_mask(mask, len(result)))
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values) if mask is None else _as_mask(mask, len(values)) | np.ma.getmaskarray(values)
        values = values.data
    if isinstance(values, np.ndarray):
        return _from_numpy(values, wanted, None if mask is None else ~_as_mask(mask, len(values)))
    items = values if isinstance(values, (list, tuple)) else list(_iterable(values))
    if mask is not None:
        drop = _as_mask(mask, len(items)).tolist()
        items = [None if dropped else item for item, dropped in zip(items, drop, strict=True)]
    kinds = kinds_of(items)
    return array_from_pylist(items, wanted if wanted is not None else infer_type(items, kinds), kinds)


def _iterable(values: Any) -> Iterable[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidType(f"expected an ndarray or an iterable of values, found {values.__class__.__name__}")
    return values


def _as_mask(mask: Any, length: int) -> Mask:
    result: Mask = np.asarray(mask, np.bool_)
    if result.shape != (length,):
        raise InvalidArgument(f"the mask has the shape {result.shape}, expected ({length},)")
    return result


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


def _from_numpy(values: npt.NDArray[Any], type: DataType | None, valid: Mask | None) -> Any:
    if values.ndim == 0:
        raise InvalidArgument("expected at least one dimension, found a 0-d ndarray")
    if isinstance(type, ExtensionType):
        return type.array_class.from_numpy(type, values, valid)
    if values.ndim > 1:
        inner = type.fields[0].type if type is not None and type.layout == "fixed_size_list" else None
        if type is not None and inner is None:
            raise InvalidType(f"{type}: cannot take an ndarray of {values.ndim} dimensions")
        made = type or types.list_(infer_numpy(values.dtype), values.shape[1])
        child = _from_numpy(np.ascontiguousarray(values).reshape(-1, *values.shape[2:]), inner, None)
        if type is None:
            made = types.list_(child.type, values.shape[1])
        elif values.shape[1] != type.list_size:  # type: ignore[attr-defined]
            raise InvalidArgument(f"{type}: cannot take an ndarray of the shape {values.shape}")
        if not values.shape[1]:
            valid = np.ones(len(values), np.bool_) if valid is None else valid
        return FixedSizeListArray.from_arrays(made, child, valid)
    if values.dtype.kind in "OUST" or (type is not None and type.layout not in ("primitive", "bool")):
        items = values.tolist()
        if valid is not None:
            items = [item if keep else None for item, keep in zip(items, valid.tolist(), strict=True)]
        return array_from_pylist(items, type if type is not None else infer_type(items))
    wanted = type if type is not None else infer_numpy(values.dtype)
    if values.dtype.kind in "Mm":
        known = ~np.isnat(values)
        if not known.all():
            valid = known if valid is None else valid & known
            values = np.where(known, values, np.zeros((), values.dtype))
    return (BooleanArray if wanted.layout == "bool" else PrimitiveArray).from_numpy(wanted, values, valid)


def infer_numpy(dtype: np.dtype[Any]) -> DataType:
    """The type of values of a dtype.

    Raises
    ------
    InvalidType
        If there is none.
    """
    found = _BY_DTYPE.get(dtype.newbyteorder("<"))
    if found is None and dtype.kind == "V" and dtype.names is None and dtype.subdtype is None:
        found = types.FixedSizeBinaryType(dtype.itemsize)
    if found is None:
        raise InvalidType(f"no Arrow type has values of the numpy dtype {dtype}")
    return found


_BY_DTYPE: dict[np.dtype[Any], DataType] = {
    np.dtype("<M8[D]"): types.date32(),
    np.dtype("bool"): types.bool_(),
    # Of two types with one dtype the first, and milliseconds are moments rather than days.
    **{
        type.numpy_dtype: type
        for type in reversed([*simple_types().values(), *map(types.timestamp, TIME_UNIT.values)])
        if type.numpy_dtype is not None and type.descriptor.values != "date"
    },
}


# --- inference from Python values -------------------------------------------------------------------------------

_BY_CLASS: list[tuple[Any, DataType]] = [
    ((bool, np.bool_), types.bool_()),
    (str, types.string()),
    ((bytes, bytearray, memoryview), types.binary()),
    (dt.time, types.time64("us")),
    (dt.timedelta, infer_numpy(np.dtype("m8[us]"))),
    (MonthDayNano, types.month_day_nano_interval()),
    (DayTime, types.day_time_interval()),
]


def infer_type(values: Sequence[Any], kinds: set[Any] | None = None) -> DataType:
    """The type that takes all values: the narrowest of those that pyarrow would choose.

    Raises
    ------
    InvalidType
        If there is none.
    """
    kinds = (kinds_of(values) if kinds is None else kinds) - {_NONE}
    if not kinds:
        return types.null()
    for classes, type in _BY_CLASS:
        if all(issubclass(kind, classes) for kind in kinds):
            return type
    integers = {kind for kind in kinds if issubclass(kind, (int, np.integer)) and not issubclass(kind, bool)}
    floats = {kind for kind in kinds if issubclass(kind, (float, np.floating))}
    if kinds == integers:
        return _infer_integers(values, kinds)
    if kinds == integers | floats:
        return types.FloatType(32) if kinds == {np.float32} else types.float64()
    import decimal

    decimals = {kind for kind in kinds if issubclass(kind, decimal.Decimal)}
    if decimals and kinds == integers | decimals:
        return _infer_decimals(values)
    if all(issubclass(kind, (dt.date, np.datetime64)) for kind in kinds):
        return _infer_moments(values, kinds)
    if all(issubclass(kind, np.timedelta64) for kind in kinds):
        return infer_numpy(np.array([value for value in values if value is not None]).dtype)
    if all(issubclass(kind, Mapping) for kind in kinds):
        return _infer_struct(values)
    if all(issubclass(kind, (list, tuple, np.ndarray, Array, range, set, frozenset)) for kind in kinds):
        return _infer_list(values)
    names = sorted(kind.__name__ for kind in kinds)[:8]
    raise InvalidType(f"no type takes values of the kinds {', '.join(names)} together; give the type")


def _infer_integers(values: Sequence[Any], kinds: set[Any]) -> DataType:
    if len(kinds) == 1 and issubclass(kind := kinds.pop(), np.integer):
        return infer_numpy(np.dtype(kind))
    if max(filter(None, values), default=0) >= 1 << 63 and min(filter(None, values)) >= 0:  # neither None nor 0 counts
        return types.uint64()
    return types.int64()


def _infer_decimals(values: Sequence[Any]) -> DataType:
    import decimal

    whole = scale = 0
    for value in values:
        if value is not None:
            number = decimal.Decimal(value)
            if not number.is_finite():
                raise InvalidType(f"no decimal type takes {number}")
            exponent = number.as_tuple().exponent
            assert isinstance(exponent, int)
            scale = max(scale, -exponent)
            whole = max(whole, number.adjusted() + 1 if number else 0)
    precision = max(whole + scale, 1)
    if precision > 76:
        raise InvalidType(f"the values need {precision} digits, decimals have up to 76")
    return types.decimal128(precision, scale) if precision <= 38 else types.decimal256(precision, scale)


def _infer_moments(values: Sequence[Any], kinds: set[Any]) -> DataType:
    if all(issubclass(kind, np.datetime64) for kind in kinds):
        return infer_numpy(np.array([value for value in values if value is not None]).dtype)
    if not any(issubclass(kind, dt.datetime) for kind in kinds):
        return types.date32()
    zone = next((value.tzinfo for value in values if isinstance(value, dt.datetime) and value.tzinfo), None)
    nanos = any(getattr(value, "nanosecond", 0) for value in values)
    return types.timestamp("ns" if nanos else "us", None if zone is None else _zone_name(zone))


def _zone_name(zone: dt.tzinfo) -> str:
    key = getattr(zone, "key", None)
    if isinstance(key, str):
        return key
    offset = zone.utcoffset(None)
    if offset is None:
        return str(zone)
    if not offset:
        return "UTC"
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _infer_struct(values: Sequence[Any]) -> DataType:
    columns: dict[str, list[Any]] = {}
    for value in values:
        if value is not None:
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidType(f"the keys of dicts become field names, found {key!r}; give a map type for maps")
                columns.setdefault(key, []).append(item)
    return types.struct({name: infer_type(column) for name, column in columns.items()})


def _infer_list(values: Sequence[Any]) -> DataType:
    items: list[Any] = []
    for value in values:
        if value is not None:
            items += value
    return types.list_(infer_type(items))
