"""The type of Python values that nobody gave a type for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.convert.python import DayTime, MonthDayNano, kinds_of
from shmarrow.errors import InvalidType
from shmarrow.layout.array import Array
from shmarrow.types import DataType, from_numpy_dtype

_NONE = type(None)


_BY_CLASS: list[tuple[Any, DataType]] = [
    ((bool, np.bool_), types.bool_()),
    (str, types.string()),
    ((bytes, bytearray, memoryview), types.binary()),
    (dt.time, types.time64("us")),
    (dt.timedelta, from_numpy_dtype(np.dtype("m8[us]"))),
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
        return from_numpy_dtype(np.array([value for value in values if value is not None]).dtype)
    if all(issubclass(kind, Mapping) for kind in kinds):
        return _infer_struct(values)
    if all(issubclass(kind, (list, tuple, np.ndarray, Array, range, set, frozenset)) for kind in kinds):
        return _infer_list(values)
    names = sorted(kind.__name__ for kind in kinds)[:8]
    raise InvalidType(f"no type takes values of the kinds {', '.join(names)} together; give the type")


def _infer_integers(values: Sequence[Any], kinds: set[Any]) -> DataType:
    if len(kinds) == 1 and issubclass(kind := kinds.pop(), np.integer):
        return from_numpy_dtype(np.dtype(kind))
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
        return from_numpy_dtype(np.array([value for value in values if value is not None]).dtype)
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
