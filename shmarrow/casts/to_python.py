# SPDX-License-Identifier: Apache-2.0
"""Conversion of storage to Python values: numeric, temporal, interval, fixed-size binary ("Data Types").

The class of the values depends only on the type. Timestamps without a time zone and durations, both in nanoseconds, are
``numpy.datetime64`` and ``numpy.timedelta64``; all other temporal values are of ``datetime``, and values that do not
fit, such as fractions of a microsecond, raise.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any, Never

import numpy as np

from shmarrow.buffer import Mask
from shmarrow.casts.decimals import decimal_integers
from shmarrow.casts.numbers import Values, divided, outside
from shmarrow.casts.python import DayTime, MonthDayNano, decimal_module
from shmarrow.casts.storage import format_values
from shmarrow.casts.time import DAY_SECONDS, FIRST_SECOND, LAST_SECOND, PER_SECOND, time_zone
from shmarrow.errors import InvalidData
from shmarrow.types import DataType


def to_python(type: DataType, values: Values, valid: Mask | None = None, first: int = 0) -> list[Any]:
    """Convert storage to a list of Python objects; a copy.

    Parameters
    ----------
    type : DataType
        The type.
    values : ndarray
        Storage of the type.
    valid : bool ndarray, optional
        False for null slots, whose values and results are arbitrary.
    first : int
        The number of the first slot in messages.

    Raises
    ------
    InvalidData
        If Python cannot represent a value: a year outside 1 to 9999, a time beyond its day, a fraction of a
        microsecond.
    """
    convert = _TO.get(type.descriptor.values)
    return values.tolist() if convert is None else convert(type, values, valid, first)


def _refuse(type: DataType, values: Values, slot: int, first: int, what: str) -> Never:
    held = format_values(type, values[slot : slot + 1])
    remedy = (
        ".values has the counts" if type.descriptor.values == "time" else "to_numpy(zero_copy_only=False) returns it"
    )
    raise InvalidData(f"{type}: found {held}, {what}", where=[("row", first + slot)], hint=remedy)


def _within(
    type: Any, values: Values, low: int, high: int, valid: Mask | None, first: int, what: str
) -> tuple[Values, Mask | None]:
    """Values checked to be within [low, high], with null slots set to a value in range; and the null slots."""
    odd = outside(values, low, high)
    if odd is None:
        return values, None
    wrong = odd if valid is None else odd & valid
    if wrong.any():
        _refuse(type, values, int(wrong.argmax()), first, what)
    return np.where(odd, max(low, 0), values), odd


def _decimals(type: Any, values: Values, valid: Mask | None, first: int) -> list[Any]:
    make, context = decimal_module()
    decimals = map(make, decimal_integers(values))
    if not type.scale:
        return list(decimals)
    return list(map(make.scaleb, decimals, itertools.repeat(-type.scale), itertools.repeat(context)))


_NO_DATE = "which is outside datetime's years 1 to 9999"


def _dates(type: Any, values: Values, valid: Mask | None, first: int) -> list[Any]:
    per_day = 1 if type.unit == "day" else 1000 * DAY_SECONDS
    low, high = FIRST_SECOND // DAY_SECONDS * per_day, (LAST_SECOND + 1) // DAY_SECONDS * per_day - 1
    fitting, _ = _within(type, values, low, high, valid, first, _NO_DATE)
    days = fitting
    if per_day > 1:
        days = fitting // per_day
        odd = days * per_day != fitting
        if odd.any():
            wrong = odd if valid is None else odd & valid
            if wrong.any():
                _refuse(type, values, int(wrong.argmax()), first, "which is not a whole day")
    return days.astype("M8[D]").tolist()


def _micros(type: Any, values: Values, valid: Mask | None, first: int) -> Values:
    """Counts of the type's unit as whole microseconds; null slots may be truncated."""
    if type.unit != "ns":
        return values * (1_000_000 // PER_SECOND[type.unit])
    micros, cut = divided(values, 1_000)
    wrong = cut if cut is None or valid is None else cut & valid
    if wrong is not None and wrong.any():
        _refuse(type, values, int(wrong.argmax()), first, "which is finer than datetime's unit, the microsecond")
    return micros


def _timestamps(type: Any, values: Values, valid: Mask | None, first: int) -> list[Any]:
    if type.unit == "ns" and type.tz is None:
        return list(values.view("M8[ns]"))
    per = PER_SECOND[type.unit]
    fitting, _ = _within(type, values, FIRST_SECOND * per, (LAST_SECOND + 1) * per - 1, valid, first, _NO_DATE)
    result: list[Any] = _micros(type, fitting, valid, first).view("M8[us]").tolist()
    if type.tz is None:
        return result
    zone = time_zone(type.tz)
    try:
        if zone is dt.UTC:
            return [value.replace(tzinfo=zone) for value in result]
        return [value.replace(tzinfo=dt.UTC).astimezone(zone) for value in result]
    except OverflowError:
        return [_zoned(type, values, result, slot, zone, valid, first) for slot in range(len(result))]


def _zoned(
    type: Any, values: Values, moments: list[Any], slot: int, zone: dt.tzinfo, valid: Mask | None, first: int
) -> Any:
    try:
        return moments[slot].replace(tzinfo=dt.UTC).astimezone(zone)
    except OverflowError:
        if valid is None or valid[slot]:
            _refuse(type, values, slot, first, f"which is out of datetime's range in {type.tz}")
        return None


def _times(type: Any, values: Values, valid: Mask | None, first: int) -> list[Any]:
    values = values.astype(np.int64, copy=False)
    limit = DAY_SECONDS * PER_SECOND[type.unit]
    fitting, _ = _within(type, values, 0, limit - 1, valid, first, f"a time must be within [0, {limit}) {type.unit}")
    return list(map(dt.datetime.time, _micros(type, fitting, valid, first).view("M8[us]").tolist()))


def _timedeltas(type: Any, values: Values, valid: Mask | None, first: int) -> list[Any]:
    if type.unit == "ns":
        return list(values.view("m8[ns]"))
    days = 999_999_999
    per = PER_SECOND[type.unit]
    low, high = max(-days * DAY_SECONDS * per, -(1 << 63)), min((days + 1) * DAY_SECONDS * per, 1 << 63) - 1
    fitting, _ = _within(type, values, low, high, valid, first, f"more than the {days} days of a timedelta")
    if type.unit == "us":
        result: list[Any] = _exact_timedeltas(fitting)
    else:  # the full range in microseconds may overflow 64 bits
        seconds, rest = np.divmod(fitting, per)
        parts = (seconds.tolist(), (rest * (1_000_000 // per)).tolist())
        result = list(map(dt.timedelta, itertools.repeat(0), *parts))
    return result


def _exact_timedeltas(micros: Values) -> list[Any]:
    result: list[Any] = micros.view("m8[us]").tolist()
    if len(micros) and int(micros.min()) == -(1 << 63):  # numpy's NaT
        for slot in np.flatnonzero(micros == -(1 << 63)).tolist():
            result[slot] = dt.timedelta(microseconds=-(1 << 63))
    return result


def _intervals(type: Any, values: Values, valid: Mask | None, first: int) -> list[Any]:
    if type.unit == "month":
        return values.tolist()
    make = DayTime if type.unit == "day_time" else MonthDayNano
    parts = [values[name].tolist() for name in values.dtype.names or ()]
    return list(map(tuple.__new__, itertools.repeat(make), zip(*parts, strict=True)))


def _fixed_bytes(type: Any, values: Values, valid: Mask | None, first: int) -> list[Any]:
    width = type.width
    if not width:
        return [b""] * len(values)
    data = values.tobytes()
    return [data[i : i + width] for i in range(0, len(data), width)]


_TO: dict[str, Callable[[Any, Values, Mask | None, int], list[Any]]] = {
    "decimal": _decimals,
    "date": _dates,
    "timestamp": _timestamps,
    "time": _times,
    "timedelta": _timedeltas,
    "interval": _intervals,
    "bytes": _fixed_bytes,
}
"""Converters by the kind of a type's values, if numpy's ``tolist()`` does not suffice."""
