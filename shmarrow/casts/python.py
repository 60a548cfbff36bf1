# SPDX-License-Identifier: Apache-2.0
"""Conversion of Python values to storage: numeric, temporal, interval, fixed-size binary ("Data Types").

Values of one class are converted at once. A value that the type cannot represent exactly raises: nothing is rounded,
truncated or wrapped, except that floats are rounded to a narrower type.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Never, TypeAlias

import numpy as np

from shmarrow.casts import kinds_of, time
from shmarrow.casts.decimals import decimal_words
from shmarrow.casts.ndarray import from_ndarray
from shmarrow.casts.numbers import Fault, Values
from shmarrow.errors import InvalidData, InvalidType, shown
from shmarrow.types import DataType

_type_of = type  # functions here have a parameter named type

_Taker: TypeAlias = Callable[[Any, Sequence[Any]], Values]

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.UTC)


@functools.cache
def decimal_module() -> tuple[Any, Any]:
    """Return ``decimal.Decimal`` and a context that never rounds; imported on first use."""
    import decimal

    traps = [decimal.InvalidOperation, decimal.Inexact, decimal.Overflow]
    context = decimal.Context(prec=200, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=traps)
    return decimal.Decimal, context


class DayTime(NamedTuple):
    """Day-time interval value.

    Attributes
    ----------
    days : int
        Whole days.
    milliseconds : int
        Milliseconds beyond the days.
    """

    days: int
    milliseconds: int


class MonthDayNano(NamedTuple):
    """Month-day-nano interval value.

    Attributes
    ----------
    months : int
        Whole months.
    days : int
        Days beyond the months.
    nanoseconds : int
        Nanoseconds beyond the days.
    """

    months: int
    days: int
    nanoseconds: int


def addresses_of(values: Sequence[Any]) -> Values:
    """Return the addresses of Python objects, to compare with those of None, True and False; uintp of shape (n,)."""
    return np.ndarray(len(values), np.uintp, np.fromiter(values, object, len(values)))


def exact_bytes(type: DataType, values: Sequence[Any], kinds: set[Any]) -> Sequence[Any]:
    """Return values for string and binary types, with subclasses of str, bytes and bytearray converted to these.

    So overridden methods of a subclass, such as ``__len__``, cannot corrupt an array.
    """
    if type.layout not in _BYTES and type.descriptor.values != "bytes":
        return values
    make = {
        kind: copy for kind in kinds for base, copy in _EXACT.items() if issubclass(kind, base) and kind is not base
    }
    return [make[_type_of(value)](value) if _type_of(value) in make else value for value in values] if make else values


_BYTES = {"binary", "large_binary", "binary_view"}
_EXACT: dict[Any, Callable[[Any], Any]] = {
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytearray.__getitem__(value, slice(None)),
}


def from_python(type: DataType, values: Sequence[Any]) -> Values:
    """Convert Python objects other than None to storage of shape (n,), or (n, words) for wide decimals.

    Raises
    ------
    InvalidType
        If a value is of the wrong kind for the type.
    InvalidData
        If a value does not fit the type.
    """
    return _FROM[type.descriptor.values](type, values)


def from_numbers(type: DataType, values: Sequence[Any]) -> Values:
    """Convert ints to integer storage, or floats to float storage; faster than :func:`from_python`."""
    storage = type.storage
    assert storage is not None
    code = _CODES.get(storage.str)
    if code is not None:
        import array  # rarely needed

        try:
            return np.frombuffer(array.array(code, values), storage) if len(values) else np.empty(0, storage)
        except OverflowError:
            pass  # the general conversion below names the value
    return from_python(type, values)


_CODES = {"<i8": "q", "<u8": "Q", "<f8": "d"}


def _bad(type: DataType, value: Any) -> InvalidType:
    return InvalidType(f"{type}: cannot convert {shown(value)} of type {value.__class__.__name__}")


def _refuse(type: DataType, value: Any, why: str, hint: str | None = None) -> Never:
    raise InvalidData(f"{type}: cannot convert {shown(value)}: {why}", hint=hint)


def _checked(type: DataType, values: Sequence[Any], outcome: tuple[Values, list[Fault]]) -> Values:
    """Return the converted storage if no value is invalid."""
    for fault in outcome[1]:
        if fault.where.any():
            _refuse(type, values[int(fault.where.argmax())], fault.why, fault.hint)
    return outcome[0]


def _array_of(type: DataType, dtype: Any, numbers: Sequence[int]) -> Values:
    try:
        return np.array(numbers, dtype)
    except OverflowError:
        info = np.iinfo(dtype)
        worst = next(number for number in numbers if not info.min <= number <= info.max)
        _refuse(type, worst, f"not within {info.min} to {info.max}")


def _one_by_one(type: DataType, values: Sequence[Any], convert: Callable[[Any, Sequence[Any]], Values]) -> Values:
    """Find and raise for the value that failed in a conversion of all values."""
    for value in values:
        try:
            convert(type, [value])
        except (ArithmeticError, TypeError, ValueError) as error:
            if isinstance(error, (InvalidData, InvalidType)):
                raise
            _refuse(type, value, error.__class__.__name__)
    raise InvalidData(f"{type}: cannot convert these values together")


# --- numbers ------------------------------------------------------------------------------------------------------


def _is_whole(kind: Any) -> bool:
    return issubclass(kind, (int, np.integer)) and not issubclass(kind, (bool, np.timedelta64))


def _take_ints(type: DataType, values: Sequence[Any]) -> Values:
    assert type.storage is not None
    kinds = kinds_of(values)
    if kinds <= {int}:
        return _array_of(type, type.storage, values)
    for kind in kinds:
        if not _is_whole(kind) and not issubclass(kind, (float, np.floating)):
            raise _bad(type, next(value for value in values if value.__class__ is kind))
    if len(kinds) == 1 and issubclass(kind, np.number):
        return from_ndarray(type, np.array(values), None)
    for value in values:
        if not math.isfinite(value) or int(value) != value:
            _refuse(type, value, "not a whole number")
    return _array_of(type, type.storage, list(map(int, values)))


def _take_floats(type: DataType, values: Sequence[Any]) -> Values:
    storage = type.storage
    assert storage is not None
    kinds = kinds_of(values)
    for kind in kinds - {float, int}:
        if not _is_whole(kind) and not issubclass(kind, (float, np.floating)):
            raise _bad(type, next(value for value in values if value.__class__ is kind))
    try:
        wide = np.array(values, np.longdouble if np.longdouble in kinds else np.float64)
    except OverflowError:
        _refuse(type, max((value for value in values if _is_whole(value.__class__)), key=abs), "beyond all floats")
    if kinds <= {float}:
        return from_ndarray(type, wide, None)
    result = from_ndarray(type, wide, None)
    if any(map(_is_whole, kinds)):
        back = result.astype(np.float64)
        suspects = np.flatnonzero((back != wide) | (np.abs(wide) >= 1 << 53))
        for i in suspects.tolist():
            if _is_whole(values[i].__class__) and int(back[i]) != values[i]:
                _refuse(type, values[i], f"not exact as a {8 * storage.itemsize}-bit float")
    return result


def _take_decimals(type: Any, values: Sequence[Any]) -> Values:
    make, context = decimal_module()
    kinds = kinds_of(values)
    for kind in kinds:
        if not _is_whole(kind) and not issubclass(kind, make):
            raise _bad(type, next(value for value in values if value.__class__ is kind))
    if not len(values):
        return np.empty((0, *type.storage.shape), type.storage.base)
    items = values
    if any(map(_is_whole, kinds)):
        items = [make(int(value)) if _is_whole(value.__class__) else value for value in values]
    import decimal

    try:
        whole = items
        if type.scale:
            whole = list(map(make.scaleb, items, itertools.repeat(type.scale), itertools.repeat(context)))
        for value, moved in zip(values, whole, strict=True) if max(map(make.adjusted, whole)) > 100 else ():
            if moved.adjusted() > 100:
                _refuse(type, value, f"more than {type.precision} digits")
        integers = list(map(int, whole))
        if whole != integers:
            i = next(i for i, number in enumerate(integers) if whole[i] != number)
            _refuse(type, values[i], f"more digits than the scale {type.scale} keeps")
    except (decimal.DecimalException, OverflowError, ValueError) as error:
        if isinstance(error, InvalidData):
            raise
        if len(values) == 1:
            finite = items[0].is_finite()
            why = f"more digits than the scale {type.scale} keeps" if finite else "not a number"
            _refuse(type, values[0], why)
        return _one_by_one(type, values, _take_decimals)
    low, high = min(integers), max(integers)
    bound = 10**type.precision
    if not (-bound < low and high < bound):
        i = integers.index(high if high >= bound else low)
        _refuse(type, values[i], f"more than {type.precision} digits")
    return decimal_words(type, integers)


# --- dates and times ----------------------------------------------------------------------------------------------


def _take_counts(type: Any, values: Sequence[Any]) -> Values:
    """Convert temporal values, one class at a time."""
    takers = _COUNTS[type.descriptor.values]
    kinds = kinds_of(values)
    if len(kinds) == 1:
        return _taker(type, takers, values[0])(type, values)
    result = np.zeros(len(values), type.storage)
    for kind in kinds:
        slots = [i for i, value in enumerate(values) if value.__class__ is kind]
        some = [values[i] for i in slots]
        result[slots] = _taker(type, takers, some[0])(type, some)
    return result


def _taker(type: Any, takers: dict[Any, _Taker], value: Any) -> _Taker:
    pandas = hasattr(value, "asm8") and isinstance(value, (dt.datetime, dt.timedelta))
    if pandas and value.asm8.__class__ in takers:  # keeps nanoseconds, unlike datetime
        return _pandas_times
    if isinstance(value, bool) or (isinstance(value, np.timedelta64) and np.timedelta64 not in takers):
        raise _bad(type, value)
    taker = next((taker for kind, taker in takers.items() if isinstance(value, kind)), None)
    if taker is None:
        raise _bad(type, value)
    return taker


def _pandas_times(type: Any, values: Sequence[Any]) -> Values:
    """Convert pandas' Timestamps and Timedeltas with their nanoseconds; dates are local to their time zone."""
    if type.descriptor.values == "timestamp":
        zones = set(map(operator.attrgetter("tzinfo"), values))
        if None in zones if type.tz is not None else zones != {None}:
            _check_zones(type, values)
    local = type.descriptor.values == "date"
    plain = [(each.replace(tzinfo=None) if local else each).asm8 for each in values]
    return _numpy_times(type, plain, values)


def _numpy_times(type: Any, values: Sequence[Any], originals: Sequence[Any] | None = None) -> Values:
    """Convert ``numpy.datetime64`` or ``numpy.timedelta64`` values, one unit at a time."""
    result = np.zeros(len(values), type.storage)
    dtypes = {value.dtype for value in values}
    for dtype in dtypes:
        slots = [i for i, value in enumerate(values) if value.dtype == dtype] if len(dtypes) > 1 else range(len(values))
        some = np.array([values[i] for i in slots], dtype)
        named = [(originals or values)[i] for i in slots]
        missing = np.isnat(some)
        if missing.any():
            _refuse(type, named[int(missing.argmax())], "not a time; use None for null")
        result[list(slots)] = _checked(type, named, time.from_numpy_time(some, type, True))
    return result


def _attributes(values: Sequence[Any], *names: str) -> list[Values]:
    return [np.fromiter(map(operator.attrgetter(name), values), np.int64, len(values)) for name in names]


def _timedeltas(type: Any, values: Sequence[Any], originals: Sequence[Any] | None = None) -> Values:
    days, seconds, micros = _attributes(values, "days", "seconds", "microseconds")
    return _checked(type, originals or values, time.from_parts(days * time.DAY_SECONDS + seconds, micros, type))


def _times(type: Any, values: Sequence[Any]) -> Values:
    if set(map(operator.attrgetter("tzinfo"), values)) != {None}:
        _refuse(type, next(value for value in values if value.tzinfo is not None), "Arrow's times have no time zone")
    hours, minutes, seconds, micros = _attributes(values, "hour", "minute", "second", "microsecond")
    return _checked(type, values, time.from_parts((hours * 60 + minutes) * 60 + seconds, micros, type))


def _moments(type: Any, values: Sequence[Any]) -> Values:
    """Convert datetimes, which must have a time zone if the type does; one without an offset counts as none."""
    epoch = _EPOCH if type.tz is None else _EPOCH_UTC
    try:
        spans = list(map(operator.sub, values, itertools.repeat(epoch)))
    except Exception as error:  # mixed aware and naive datetimes, or any exception of a tzinfo
        _check_zones(type, values)
        raise InvalidType(f"{type}: cannot compute the time since 1970: {shown(error)}") from error
    return _timedeltas(type, spans, values)


def _check_zones(type: Any, values: Sequence[Any]) -> None:
    """Raise if datetimes have a time zone but the type does not, or vice versa."""
    for value in values:
        try:
            offset = value.utcoffset()
        except Exception as error:
            _refuse(type, value, f"its time zone has no offset: {shown(error)}")
        if type.tz is None and offset is not None:
            remedy = "use a type with one, or value.astimezone(zone).replace(tzinfo=None)"
            raise InvalidType(f"{type}: cannot convert {shown(value)}, which has a time zone", hint=remedy)
        if type.tz is not None and offset is None:
            remedy = "use a type without one, or value.replace(tzinfo=zone)"
            raise InvalidType(f"{type}: cannot convert {shown(value)}, which has no time zone", hint=remedy)


def _days(type: Any, values: Sequence[Any]) -> Values:
    if getattr(type, "tz", None) is not None:
        text = f"{type}: cannot convert {shown(values[0])}, as a date has no time zone"
        raise InvalidType(text, hint="convert dates to datetimes")
    days = np.fromiter(map(dt.date.toordinal, values), np.int64, len(values)) - _EPOCH.toordinal()
    return _checked(type, values, time.in_units(days, time.DAY, type, True))


def _midnights(type: Any, values: Sequence[Any]) -> Values:
    """Convert datetimes at midnight to dates."""
    hours, minutes, seconds, micros = _attributes(values, "hour", "minute", "second", "microsecond")
    cut = (hours | minutes | seconds | micros) != 0
    fault = Fault(cut, "not midnight", "a cast of timestamps with safe=False drops the time of day")
    return _checked(type, values, (_days(type, values), [fault]))


def _whole_counts(type: Any, values: Sequence[Any]) -> Values:
    """Convert integers, as counts of the type's unit."""
    if kinds_of(values) != {int}:
        values = list(map(int, values))
    counts = _array_of(type, type.storage, values)
    return _checked(type, values, (counts, time.rule_faults(type, counts)))


_COUNTS: dict[str, dict[Any, _Taker]] = {
    "date": {dt.datetime: _midnights, dt.date: _days, np.datetime64: _numpy_times},
    "timestamp": {dt.datetime: _moments, dt.date: _days, np.datetime64: _numpy_times},
    "time": {dt.time: _times, np.timedelta64: _numpy_times},
    "timedelta": {dt.timedelta: _timedeltas, np.timedelta64: _numpy_times},
}
"""Accepted Python classes for each kind of type, subclasses first."""
for _takers in _COUNTS.values():
    _takers.update({int: _whole_counts, np.integer: _whole_counts})

# --- intervals and bytes ------------------------------------------------------------------------------------------


def _take_intervals(type: Any, values: Sequence[Any]) -> Values:
    names = type.storage.names
    if names is None:
        return _take_ints(type, values)
    values = [_offset_parts(type, value) if value.__class__.__name__ == "DateOffset" else value for value in values]
    for value in values:
        if not isinstance(value, (tuple, list)) or len(value) != len(names):
            raise _bad(type, value)
    result = np.zeros(len(values), type.storage)
    for name, column in zip(names, zip(*values, strict=True), strict=False):
        for value in column if not kinds_of(column) <= {int} else ():
            if not _is_whole(value.__class__):
                raise _bad(type, value)
        result[name] = _array_of(type, type.storage[name], column)
    return result


def _offset_parts(type: Any, offset: Any) -> tuple[int, ...]:
    """Months, days and nanoseconds of a ``pandas.DateOffset`` that only adds; without arguments it adds days."""
    parts = dict(offset.kwds) or {"days": 1}
    sums = [sum(parts.pop(unit, 0) * size for unit, size in units.items()) * offset.n for units in _OFFSETS]
    if parts or type.storage.names is None or len(type.storage.names) != len(sums):
        raise _bad(type, offset)
    return tuple(sums)


_OFFSETS: tuple[dict[str, int], ...] = (
    {"years": 12, "months": 1},
    {"weeks": 7, "days": 1},
    {
        "hours": 3600 * 10**9, "minutes": 60 * 10**9, "seconds": 10**9, "milliseconds": 10**6, "microseconds": 1000,
        "nanoseconds": 1,
    },
)  # fmt: skip


def _take_fixed_bytes(type: Any, values: Sequence[Any]) -> Values:
    width = type.width
    if "UUID" in {kind.__name__ for kind in kinds_of(values)}:
        values = [value.bytes if value.__class__.__name__ == "UUID" else value for value in values]
    for value in values:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _bad(type, value)
        if len(value) != width:
            raise InvalidData(f"{type}: expected {width} bytes, found {len(value)}")
    return np.frombuffer(b"".join(values), "u1").reshape(len(values), width)


_FROM: dict[str, _Taker] = {
    "integer": _take_ints,
    "float": _take_floats,
    "decimal": _take_decimals,
    **dict.fromkeys(time.KINDS, _take_counts),
    "interval": _take_intervals,
    "bytes": _take_fixed_bytes,
}
