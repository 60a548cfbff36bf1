"""Between storage and Python values: integers, floats, decimals, dates, times, intervals ("Data Types").

Rules kept here:

* both directions work on whole arrays; ``to_python`` takes any bits without failing, and gives what Python's own
  types cannot hold as ``numpy.datetime64`` or ``numpy.timedelta64`` of the type's unit;
* ``from_python`` refuses a value that the type cannot hold exactly: nothing is rounded, cut or wrapped.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow.errors import InvalidData, InvalidType
from shmarrow.types import DataType, DecimalType

if TYPE_CHECKING:
    import numpy.typing as npt

Values: TypeAlias = "npt.NDArray[Any]"

_type_of = type  # functions here have a parameter named type

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY_SECONDS = 86_400
_EPOCH = dt.datetime(1970, 1, 1)


@functools.cache
def _decimal() -> tuple[Any, Any]:
    """The standard library's Decimal, and a context that rounds nothing; imported when the first decimal is met."""
    import decimal

    return decimal.Decimal, decimal.Context(prec=100, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


class DayTime(NamedTuple):
    """A day_time interval."""

    days: int
    milliseconds: int


class MonthDayNano(NamedTuple):
    """A month_day_nano interval."""

    months: int
    days: int
    nanoseconds: int


# --- to Python --------------------------------------------------------------------------------------------------


def to_python(type: DataType, values: Values) -> list[Any]:
    """The storage values as a list of Python objects; a copy."""
    convert = _TO.get(type.descriptor.values)
    return values.tolist() if convert is None else convert(type, values)


def decimal_integers(type: DecimalType, values: Values) -> list[int]:
    """The unscaled values of decimals."""
    if type.bits <= 64:
        result: list[int] = values.tolist()
        return result
    words = values.reshape(-1, type.bits // 64)
    total = words[:, -1].astype("<i8").tolist()
    for i in range(words.shape[1] - 2, -1, -1):
        total = [(high << 64) | low for high, low in zip(total, words[:, i].tolist(), strict=True)]
    result = total
    return result


def _decimals(type: Any, values: Values) -> list[Any]:
    scale = -type.scale
    make, context = _decimal()
    return (
        [make(value).scaleb(scale, context) for value in decimal_integers(type, values)]
        if scale
        else [make(value) for value in decimal_integers(type, values)]
    )


def _split(values: Values, low: int, high: int, step: int = 1) -> tuple[Values, Values]:
    """Values with those outside [low, high], or no multiple of ``step``, set to ``low``; and which those are."""
    odd = (values < low) | (values > high)
    if step > 1:
        odd |= values % step != 0
    return (np.where(odd, low, values) if odd.any() else values), odd


def _restore(result: list[Any], odd: Values, values: Values, code: str) -> list[Any]:
    for i in np.flatnonzero(odd).tolist():
        result[i] = values[i].astype(code)
    return result


def _dates(type: Any, values: Values) -> list[Any]:
    per_day = 1 if type.unit == "day" else 86_400_000
    low, high = -719_162 * per_day, 2_932_897 * per_day - 1
    fitting, odd = _split(values, low, high)
    result = fitting.astype("M8[D]" if per_day == 1 else "M8[ms]").astype("M8[D]").tolist()
    return _restore(result, odd, values.astype("i8"), "M8[D]" if per_day == 1 else "M8[ms]")


def _micros(values: Values, unit: str) -> Values:
    per_second = PER_SECOND[unit]
    return values // 1000 if unit == "ns" else values * (1_000_000 // per_second)


def _timestamps(type: Any, values: Values) -> list[Any]:
    per_second = PER_SECOND[type.unit]
    low, high = -62_135_596_800 * per_second, 253_402_300_800 * per_second - 1
    info = np.iinfo("i8")
    fitting, odd = _split(values, max(low, info.min), min(high, info.max), 1000 if type.unit == "ns" else 1)
    if type.unit == "ns":
        fitting = np.where(odd, 0, fitting)
    result = _micros(fitting, type.unit).astype("M8[us]").tolist()
    if type.tz is not None:
        zone = time_zone(type.tz)
        for i, value in enumerate(result):
            try:
                result[i] = value.replace(tzinfo=dt.UTC).astimezone(zone)
            except OverflowError:
                odd[i] = True
    return _restore(result, odd, values, f"M8[{type.unit}]")


def time_zone(name: str) -> dt.tzinfo:
    """The time zone of an Arrow timestamp: an Olson name, or an offset such as ``+07:30``.

    Raises
    ------
    InvalidData
        If there is no such zone.
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
            f"no time zone is named {name[:80]!r} ({error.__class__.__name__}); "
            "if it should exist, install the tzdata package; to_numpy() needs no time zone"
        ) from None


def _times(type: Any, values: Values) -> list[Any]:
    per_second = PER_SECOND[type.unit]
    fitting, odd = _split(values.astype("i8"), 0, DAY_SECONDS * per_second - 1, 1000 if type.unit == "ns" else 1)
    result = [moment.time() for moment in _micros(fitting, type.unit).astype("M8[us]").tolist()]
    return _restore(result, odd, values.astype("i8"), f"m8[{type.unit}]")


def _timedeltas(type: Any, values: Values) -> list[Any]:
    bound = 999_999_999 * DAY_SECONDS * PER_SECOND[type.unit]
    info = np.iinfo("i8")
    step = 1000 if type.unit == "ns" else 1
    fitting, odd = _split(values, max(-bound, info.min + 1), min(bound, info.max), step)
    fitting = np.where(odd, 0, fitting)
    if type.unit in ("s", "ms"):  # the whole range in microseconds may not fit 64 bits
        key = "seconds" if type.unit == "s" else "milliseconds"
        result = [dt.timedelta(**{key: value}) for value in fitting.tolist()]
    else:
        result = _micros(fitting, type.unit).astype("m8[us]").tolist()
    return _restore(result, odd, values, f"m8[{type.unit}]")


def _intervals(type: Any, values: Values) -> list[Any]:
    if type.unit == "month":
        result: list[Any] = values.tolist()
        return result
    make = DayTime if type.unit == "day_time" else MonthDayNano
    return [make(*value) for value in values.tolist()]


def _fixed_bytes(type: Any, values: Values) -> list[Any]:
    width = type.width
    if not width:
        return [b""] * len(values)
    data = values.tobytes()
    return [data[i : i + width] for i in range(0, len(data), width)]


_TO: dict[str, Callable[[Any, Values], list[Any]]] = {
    "decimal": _decimals,
    "date": _dates,
    "timestamp": _timestamps,
    "time": _times,
    "timedelta": _timedeltas,
    "interval": _intervals,
    "bytes": _fixed_bytes,
}
"""By the kind of a type's values, for those that are not Python's own in numpy too."""


def kinds_of(values: Sequence[Any]) -> set[Any]:
    """The classes of Python values."""
    return set(map(_type_of, values))


# --- from Python ------------------------------------------------------------------------------------------------


def from_python(type: DataType, values: Sequence[Any]) -> Values:
    """Storage values from Python objects, none of which is None; shape (n,), or (n, words) for wide decimals.

    Raises
    ------
    InvalidType
        If a value is of a kind that the type does not take.
    InvalidData
        If a value lies outside of what the type can hold.
    """
    return _FROM[type.descriptor.values](type, values)


def _bad(type: DataType, value: Any) -> InvalidType:
    return InvalidType(f"{type}: cannot take {value!r:.80} of type {value.__class__.__name__}")


def _out_of_range(type: DataType, value: Any) -> InvalidData:
    return InvalidData(f"{type}: the value {value!r:.80} does not fit")


def _array_of(type: DataType, dtype: Any, numbers: Sequence[int]) -> Values:
    try:
        return np.array(numbers, dtype)
    except OverflowError:
        info = np.iinfo(dtype)
        worst = next(number for number in numbers if not info.min <= number <= info.max)
        raise _out_of_range(type, worst) from None


_CODES = {"<i8": "q", "<u8": "Q", "<f8": "d"}


def from_numbers(type: DataType, values: Sequence[Any]) -> Values:
    """Storage values of integers from ints, or of floats from floats; faster than :func:`from_python`."""
    storage = type.storage
    assert storage is not None
    code = _CODES.get(storage.str)
    if code is not None:
        import array  # needed here only

        try:
            return np.frombuffer(array.array(code, values), storage) if len(values) else np.empty(0, storage)
        except OverflowError:
            pass  # the general way names the value
    return from_python(type, values)


def _take_ints(type: DataType, values: Sequence[Any]) -> Values:
    kinds = kinds_of(values)
    if not kinds <= {int}:
        fixed = []
        for value in values:
            if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
                fixed.append(int(value))
            elif isinstance(value, (float, np.floating)):
                if value != value or value in (float("inf"), float("-inf")) or int(value) != value:
                    raise InvalidData(f"{type}: the value {value!r} is not a whole number")
                fixed.append(int(value))
            else:
                raise _bad(type, value)
        values = fixed
    assert type.storage is not None
    return _array_of(type, type.storage, values)


def _take_floats(type: DataType, values: Sequence[Any]) -> Values:
    kinds = kinds_of(values)
    for kind in kinds - {float, int}:
        if not issubclass(kind, (int, float, np.integer, np.floating)) or issubclass(kind, bool):
            raise _bad(type, next(value for value in values if value.__class__ is kind))
    with np.errstate(over="ignore"):
        try:
            return np.array(values, type.storage)
        except OverflowError:
            raise _out_of_range(type, max(values, key=abs)) from None


def decimal_words(type: DecimalType, integers: Sequence[int]) -> Values:
    """Storage of decimals from their unscaled values, which fit the type's bits."""
    if type.bits <= 64:
        return np.array(integers, type.storage)
    size = type.bits // 8
    data = b"".join([integer.to_bytes(size, "little", signed=True) for integer in integers])
    return np.frombuffer(data, "<u8").reshape(-1, type.bits // 64)


def _take_decimals(type: Any, values: Sequence[Any]) -> Values:
    make, context = _decimal()
    integers = []
    bound = 10**type.precision
    for value in values:
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            value = make(int(value))
        elif not isinstance(value, make):
            raise _bad(type, value)
        if not value.is_finite():
            raise _out_of_range(type, value)
        shifted = value.scaleb(type.scale, context) if value.adjusted() + type.scale < 90 else None
        if shifted is None or shifted != (whole := shifted.to_integral_value(context=context)):
            raise InvalidData(f"{type}: the value {value} needs more digits than precision and scale give")
        integer = int(whole)
        if not -bound < integer < bound:
            raise InvalidData(f"{type}: the value {value} has more than {type.precision} digits")
        integers.append(integer)
    return decimal_words(type, integers)


def _take_dates(type: Any, values: Sequence[Any]) -> Values:
    epoch = _EPOCH.toordinal()
    per_day = 1 if type.unit == "day" else 86_400_000
    numbers = []
    for value in values:
        if isinstance(value, dt.date):
            numbers.append((value.toordinal() - epoch) * per_day)
        elif isinstance(value, np.datetime64):
            days = value.astype("M8[D]")
            if days != value:
                raise InvalidData(f"{type}: {value} is not a whole day")
            numbers.append(int(days.astype("i8")) * per_day)
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            numbers.append(int(value))
        else:
            raise _bad(type, value)
    return _array_of(type, type.storage, numbers)


def _ticks(type: Any, micros: int, value: Any) -> int:
    """Microseconds in the type's unit, which must hold them exactly."""
    if type.unit == "ns":
        return micros * 1000
    per = 1_000_000 // PER_SECOND[type.unit]
    whole, rest = divmod(micros, per)
    if rest:
        raise InvalidData(f"{type}: {value!r} is no whole number of {type.unit}")
    return whole


def _from_numpy_time(type: Any, value: Any, code: str) -> int:
    if np.isnat(value):
        raise _out_of_range(type, value)
    converted = value.astype(f"{code}[{type.unit}]")
    if converted != value:
        raise InvalidData(f"{type}: {value!r} is no whole number of {type.unit}, or does not fit")
    return int(converted.astype("i8"))


def _micros_of(delta: dt.timedelta) -> int:
    return (delta.days * DAY_SECONDS + delta.seconds) * 1_000_000 + delta.microseconds


def _take_timestamps(type: Any, values: Sequence[Any]) -> Values:
    zone = time_zone(type.tz) if type.tz else None
    numbers = []
    for value in values:
        if isinstance(value, dt.datetime):
            extra = getattr(value, "nanosecond", 0)  # pandas.Timestamp
            if value.tzinfo is not None:
                value = value.astimezone(dt.UTC).replace(tzinfo=None)
            elif zone is not None:
                value = value.replace(tzinfo=dt.UTC).replace(tzinfo=None)
            plain = dt.datetime(*value.timetuple()[:6], value.microsecond) if extra else value
            numbers.append(_ticks(type, _micros_of(plain - _EPOCH), value) + (extra if type.unit == "ns" else 0))
        elif isinstance(value, dt.date):
            numbers.append((value.toordinal() - _EPOCH.toordinal()) * DAY_SECONDS * PER_SECOND[type.unit])
        elif isinstance(value, np.datetime64):
            numbers.append(_from_numpy_time(type, value, "M8"))
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            numbers.append(int(value))
        else:
            raise _bad(type, value)
    return _array_of(type, "<i8", numbers)


def _take_times(type: Any, values: Sequence[Any]) -> Values:
    numbers = []
    for value in values:
        if isinstance(value, dt.time):
            micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
            numbers.append(_ticks(type, micros, value))
        elif isinstance(value, np.timedelta64):
            numbers.append(_from_numpy_time(type, value, "m8"))
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            numbers.append(int(value))
        else:
            raise _bad(type, value)
    return _array_of(type, type.storage, numbers)


def _take_timedeltas(type: Any, values: Sequence[Any]) -> Values:
    numbers = []
    for value in values:
        if isinstance(value, dt.timedelta):
            extra = getattr(value, "nanoseconds", 0) if type.unit == "ns" else 0
            numbers.append(_ticks(type, _micros_of(value), value) + extra)
        elif isinstance(value, np.timedelta64):
            numbers.append(_from_numpy_time(type, value, "m8"))
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            numbers.append(int(value))
        else:
            raise _bad(type, value)
    return _array_of(type, "<i8", numbers)


def _take_intervals(type: Any, values: Sequence[Any]) -> Values:
    if type.unit == "month":
        return _take_ints(type, values)
    width = len(type.storage.names)
    rows = []
    for value in values:
        if not isinstance(value, (tuple, list)) or len(value) != width:
            raise _bad(type, value)
        rows.append(tuple(value))
    try:
        return np.array(rows, type.storage)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidData(f"{type}: {error}") from None


def _take_fixed_bytes(type: Any, values: Sequence[Any]) -> Values:
    width = type.width
    for value in values:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _bad(type, value)
        if len(value) != width:
            raise InvalidData(f"{type}: expected {width} bytes, found {len(value)}")
    return np.frombuffer(b"".join(values), "u1").reshape(len(values), width)


_FROM: dict[str, Callable[[Any, Sequence[Any]], Values]] = {
    "integer": _take_ints,
    "float": _take_floats,
    "decimal": _take_decimals,
    "date": _take_dates,
    "timestamp": _take_timestamps,
    "time": _take_times,
    "timedelta": _take_timedeltas,
    "interval": _take_intervals,
    "bytes": _take_fixed_bytes,
}

# --- what values promise ----------------------------------------------------------------------------------------


def check_range(type: Any, values: Values) -> tuple[int, str] | None:
    """The position of the first value that breaks the rules of its type and what the rule is, or None."""
    wrong: Values | None = None
    rule = ""
    kind = type.descriptor.values
    if kind == "time":
        wrong = (values < 0) | (values >= DAY_SECONDS * PER_SECOND[type.unit])
        rule = f"a time lies in [0, {DAY_SECONDS * PER_SECOND[type.unit]}) {type.unit}"
    elif kind == "date" and type.unit == "ms":
        wrong = values % 86_400_000 != 0
        rule = "a date64 is a whole number of days"
    elif kind == "decimal":
        bound = 10**type.precision
        if type.bits <= 64:
            wrong = (values <= -bound) | (values >= bound)
        else:
            wrong = np.fromiter((not -bound < n < bound for n in decimal_integers(type, values)), bool, len(values))
        rule = f"a value has at most {type.precision} digits"
    if wrong is None or not wrong.any():
        return None
    return int(wrong.argmax()), rule
