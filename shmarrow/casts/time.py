# SPDX-License-Identifier: Apache-2.0
"""Vectorized conversions of dates, timestamps, times and durations: between units and between types.

Losses with ``safe=False``: fractions of the coarser unit are truncated toward zero, a timestamp loses its time of day
as a date and its date as a time.

A timestamp with a time zone counts from 1970-01-01 in UTC. Conversion to a date or time gives local time in that zone;
conversion to a different or no time zone keeps the count.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

from shmarrow.buffer import Mask
from shmarrow.casts.numbers import Fault, Values, divided, faults, multiplied, outside
from shmarrow.errors import InvalidData, InvalidType

Outcome = tuple[Values, list[Fault]]

KINDS = ("date", "time", "timestamp", "timedelta")
"""Kinds of values that are counts of a time unit."""

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY_SECONDS = 86_400

_ATTO = 10**18
_TICKS = {
    **{unit: _ATTO // per for unit, per in PER_SECOND.items()},
    "ps": 10**6, "fs": 10**3, "as": 1,
    "m": 60 * _ATTO, "h": 3_600 * _ATTO, "D": DAY_SECONDS * _ATTO, "day": DAY_SECONDS * _ATTO,
    "W": 7 * DAY_SECONDS * _ATTO,
}  # fmt: skip
"""Units of Arrow and numpy in attoseconds."""

DAY = _TICKS["D"]

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The first second of the year 1 and the last second of the year 9999, since 1970."""


def tick(type: Any) -> int:
    """Return the unit of a type in attoseconds."""
    return _TICKS[type.unit]


# --- between types ------------------------------------------------------------------------------------------------


def counted(
    values: Values, per_source: int, per_target: int, floor: bool = False
) -> tuple[Values, Mask | None, Mask | None]:
    """Convert counts between units, as int64; return also which are truncated, and which overflow."""
    values = values.astype(np.int64, copy=False)
    if per_source % per_target == 0:
        return (lambda found: (found[0], None, found[1]))(multiplied(values, per_source // per_target))
    if per_target % per_source == 0:
        return (*divided(values, per_target // per_source, floor), None)
    up, _, over = counted(values, per_source, 1)
    return (*divided(up, per_target, floor), over)


def units(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert values between units."""
    return in_units(values, tick(source), target, safe)


def in_units(values: Values, per_source: int, target: Any, safe: bool, floor: bool = False) -> Outcome:
    """Convert counts of a unit, given in attoseconds, to the storage of a type."""
    result, cut, over = counted(values, per_source, tick(target), floor)
    info = np.iinfo(target.storage)
    beyond = outside(result, info.min, info.max)
    problems = faults(
        (cut if safe else None, f"not a whole number of {_plural(target.unit)}", "drops the rest"),
        (over, f"beyond {target}"),
        (beyond, f"beyond {target}"),
    )
    return result.astype(target.storage, copy=False), problems + rule_faults(target, result)


def _plural(unit: str) -> str:
    return "days" if unit in ("day", "D") else unit


def to_dates(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert timestamps to dates, exact at midnight."""
    local, beyond = _local(values, source)
    days, cut, _ = counted(local, tick(source), DAY, floor=True)
    result, problems = in_units(days, DAY, target, safe)
    midnight = (cut if safe else None, "not midnight", "drops the time of day")
    return result, faults((beyond, _NO_ZONE), midnight) + problems


def to_times(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert timestamps to times of day, exact on 1970-01-01."""
    local, beyond = _local(values, source)
    day = DAY_SECONDS * PER_SECOND[source.unit]
    other = outside(local, 0, day - 1) if safe else None
    result, problems = in_units(local % day, tick(source), target, safe)
    return result, faults((beyond, _NO_ZONE), (other, "not on 1970-01-01", "drops the date")) + problems


_NO_ZONE = "time zones are known for the years 1 to 9999"


def _local(values: Values, source: Any) -> tuple[Values, Mask | None]:
    """Convert timestamps to local time; return also which are out of the range of time zones."""
    if source.tz is None:
        return values, None
    zone = time_zone(source.tz)
    if zone is dt.UTC:
        return values, None
    per = PER_SECOND[source.unit]
    beyond = outside(values // per, FIRST_SECOND + DAY_SECONDS, LAST_SECOND - DAY_SECONDS)
    if beyond is not None:
        values = np.where(beyond, 0, values)
    return values + offsets(values // per, zone) * per, beyond


def offsets(seconds: Values, zone: dt.tzinfo) -> Values:
    """Return UTC offsets of a zone in seconds, for times in seconds since 1970; int64 of shape (n,).

    Each day without a transition is looked up once.
    """
    days, inverse = np.unique(seconds // DAY_SECONDS, return_inverse=True)
    starts = _offsets_at((days * DAY_SECONDS).tolist(), zone)
    ends = _offsets_at((days * DAY_SECONDS + (DAY_SECONDS - 1)).tolist(), zone)
    result: Values = starts[inverse]
    changing = np.flatnonzero((starts != ends)[inverse])
    if len(changing):
        moments, at = np.unique(seconds[changing], return_inverse=True)
        result[changing] = _offsets_at(moments.tolist(), zone)[at]
    return result


def _offsets_at(seconds: list[int], zone: dt.tzinfo) -> Values:
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    offsets = []
    for second in seconds:
        offset = (epoch + dt.timedelta(seconds=second)).astimezone(zone).utcoffset()
        offsets.append(0 if offset is None else offset.days * DAY_SECONDS + offset.seconds)
    return np.array(offsets, np.int64)


def time_zone(name: str) -> dt.tzinfo:
    """Return the tzinfo for an Arrow time zone: a name in the time zone database, or an offset such as ``+07:30``.

    Raises
    ------
    InvalidData
        If the time zone is unknown.
    """
    if name.upper() in ("UTC", "Z"):
        return dt.UTC
    if len(name) in (5, 6) and name[0] in "+-":
        digits = name[1:].replace(":", "")
        if len(digits) == 4 and digits.isascii() and digits.isdigit() and int(digits[:2]) < 24 and int(digits[2:]) < 60:
            delta = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            return dt.timezone(delta if name[0] == "+" else -delta, name)
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidData(
            f"unknown time zone {name[:80]!r}; if the name is right, install the tzdata package; "
            "to_numpy() needs no time zone"
        ) from error


# --- numpy and Python ---------------------------------------------------------------------------------------------


def from_numpy_time(values: Values, target: Any, safe: bool) -> Outcome:
    """Convert ``M8`` and ``m8`` values to storage; NaT gives unspecified values.

    Raises
    ------
    InvalidType
        If the dtype cannot be converted to the type.
    """
    dtype = values.dtype
    kinds = ("date", "timestamp") if dtype.kind == "M" else ("time", "timedelta")
    unit, count = np.datetime_data(dtype)
    if target.descriptor.values not in kinds or unit == "generic" or (dtype.kind == "m" and unit in ("Y", "M")):
        raise InvalidType(f"{target}: cannot convert an ndarray of {dtype}")
    counts = values.view(np.int64)
    problems = []
    if unit in ("Y", "M"):
        far = outside(counts, -_MONTHS // count, _MONTHS // count)
        problems = faults((far, f"beyond {target}"))
        counts = (counts if far is None else np.where(far, 0, counts)).view(dtype).astype("M8[D]").view(np.int64)
        unit, count = "D", 1
    result, more = in_units(counts, _TICKS[unit] * count, target, safe, floor=target.descriptor.values == "date")
    return result, problems + more


_MONTHS = 10**12
"""Years and months up to here convert to days within 64 bits."""


def from_parts(seconds: Values, micros: Values, target: Any) -> Outcome:
    """Convert seconds, and microseconds of less than a second, to the storage of a type."""
    per = PER_SECOND[target.unit]
    negative = seconds < 0
    if negative.any():  # give both parts the same sign, so that neither overflows if the sum does not
        seconds, micros = seconds + negative, micros - negative * 1_000_000
    whole, over = multiplied(seconds, per)
    if per >= 1_000_000:
        part, cut = micros * (per // 1_000_000), None
    else:
        part, cut = divided(micros, 1_000_000 // per)
    result = whole + part
    wrapped = np.where(part < 0, result > whole, result < whole)
    beyond = f"beyond {target}"
    problems = faults(
        (over, beyond),
        (wrapped if wrapped.any() else None, beyond),
        (cut, f"not a whole number of {_plural(target.unit)}"),
    )
    return result.astype(target.storage, copy=False), problems


# --- validation of values -----------------------------------------------------------------------------------------


def violations(type: Any, values: Values) -> tuple[Mask | None, str]:
    """Return which values of a storage break the rule of a date or time type, and the rule."""
    kind = type.descriptor.values
    if kind == "time":
        limit = DAY_SECONDS * PER_SECOND[type.unit]
        return outside(values, 0, limit - 1), f"a time must be within [0, {limit}) {type.unit}"
    if kind == "date" and type.unit == "ms":
        return divided(values, 1000 * DAY_SECONDS)[1], "a date64 must be a whole number of days"
    return None, ""


def rule_faults(type: Any, values: Values) -> list[Fault]:
    """Return the faults of a storage that breaks the rule of its type."""
    return faults(violations(type, values))


def format_values(type: Any, values: Values) -> str:
    """Format the single value of a storage as a date or time, or as a plain number if numpy reads it as NaT."""
    code = "D" if type.unit == "day" else type.unit
    kind = "m" if type.descriptor.values in ("time", "timedelta") else "M"
    value = values.astype(np.int64).view(f"{kind}8[{code}]")[0]
    return str(values.tolist()[0] if np.isnat(value) else value)
