"""Hypothesis strategies: random types, nested up to three deep, and values of them.

Values are those that ``Array.to_pylist`` returns, so that what is built from them comes back equal and of the same
Python type. Extremes are frequent: the smallest and largest values, NaN, leap days, changes of the clock, long strings.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
import zoneinfo
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np
from hypothesis import strategies as st

import shmarrow as sa
from shmarrow.types import (
    BinaryType,
    BinaryViewType,
    BoolType,
    DataType,
    DateType,
    DecimalType,
    DictionaryType,
    DurationType,
    EncodedType,
    FixedSizeBinaryType,
    FixedSizeListType,
    FloatType,
    IntervalType,
    IntType,
    LargeBinaryType,
    LargeListType,
    LargeListViewType,
    ListType,
    ListViewType,
    MapType,
    NullType,
    RunEndEncodedType,
    StructType,
    TimestampType,
    TimeType,
    UnionType,
    types_in,
)

Strategy = st.SearchStrategy[Any]

ZONES = [
    "UTC", "+00:00", "+07:30", "-11:59", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia",
]  # fmt: skip
UNITS = ["s", "ms", "us", "ns"]
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH = dt.datetime(1970, 1, 1)

# --- values of types without children ----------------------------------------------------------------------------


def whole(low: int, high: int) -> Strategy:
    """Integers of a range, often those at and around its ends and zero."""
    ends = {low, low + 1, -1, 0, 1, high - 1, high}
    return st.sampled_from(sorted(n for n in ends if low <= n <= high)) | st.integers(low, high)


_SUBNORMAL = {16: 2.0**-24, 32: 2.0**-149, 64: 5e-324}
_LARGEST = {16: 65504.0, 32: 3.4028234663852886e38, 64: 1.7976931348623157e308}


def floats(bits: Any) -> Strategy:
    """Floats of a width, often NaN, infinities, zeros of either sign, the largest and the smallest."""
    ends = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), _SUBNORMAL[bits], -_SUBNORMAL[bits], _LARGEST[bits]]
    return st.sampled_from(ends) | st.floats(width=bits)


_EXACTLY = Context(prec=200, Emin=-(10**9), Emax=10**9)


def scaled(number: int, scale: int) -> Decimal:
    """The decimal that is ``number`` at a scale, with its exponent."""
    return Decimal(number).scaleb(-scale, _EXACTLY)


def decimals(type: DecimalType) -> Strategy:
    """Decimals of a type."""
    most = 10**type.precision - 1
    return whole(-most, most).map(lambda number: scaled(number, type.scale))


LEAP_DAYS = [dt.date(1972, 2, 29), dt.date(2000, 2, 29), dt.date(1600, 2, 29), dt.date(1900, 3, 1)]


def dates(type: DateType) -> Strategy:
    """Dates, often leap days."""
    return st.sampled_from([dt.date.min, dt.date(1969, 12, 31), dt.date.max, *LEAP_DAYS]) | st.dates()


DST = [
    dt.datetime(2024, 3, 31, 0, 59, 59), dt.datetime(2024, 3, 31, 1), dt.datetime(2024, 10, 27, 0, 30),
    dt.datetime(2024, 10, 27, 1, 30), dt.datetime(2024, 11, 3, 5, 30), dt.datetime(2024, 11, 3, 6, 30),
    dt.datetime(2011, 12, 30, 9, 59, 59), dt.datetime(2011, 12, 30, 10), dt.datetime(1883, 11, 18, 17),
]  # fmt: skip
"""Moments in UTC around changes of the clock in Berlin, New York and Apia."""

_DAY = dt.timedelta(days=1)
"""The distance from the ends of what a class can hold at which it can hold the moment in its own zone too."""


def zone(name: str) -> dt.tzinfo:
    """The zone of that name, or of that offset."""
    if name == "UTC":
        return dt.UTC
    if name[0] in "+-":
        offset = dt.timedelta(hours=int(name[1:3]), minutes=int(name[4:]))
        return dt.timezone(offset if name[0] == "+" else -offset)
    return zoneinfo.ZoneInfo(name)


def timestamps(type: TimestampType) -> Strategy:
    """Moments of a type, often changes of the clock in its time zone."""
    if type.unit == "ns" and type.tz is None:
        return whole(-(2**63) + 1, 2**63 - 1).map(lambda number: np.datetime64(number, "ns"))
    per_second = min(PER_SECOND[type.unit], 10**6)  # datetime has no nanoseconds
    margin = _DAY if type.tz else dt.timedelta(0)
    low, high = [
        (end - EPOCH) // dt.timedelta(seconds=1) for end in (dt.datetime.min + margin, dt.datetime.max - margin)
    ]
    if type.unit == "ns":
        low, high = [end // 10**9 - end // abs(end) * 86_400 for end in (-(2**63), 2**63 - 1)]
    known = [moment for moment in DST if type.tz] or [dt.datetime(2024, 2, 29, 12), EPOCH]
    ticks = whole(low * per_second, high * per_second) | st.sampled_from(known).map(
        lambda moment: (moment - EPOCH) // dt.timedelta(seconds=1) * per_second
    )

    def moment(number: int) -> dt.datetime:
        naive = EPOCH + dt.timedelta(microseconds=number * (10**6 // per_second))
        return naive if type.tz is None else naive.replace(tzinfo=dt.UTC).astimezone(zone(type.tz))

    return ticks.map(moment)


def times(type: TimeType) -> Strategy:
    """Times of day."""
    per_second = min(PER_SECOND[type.unit], 10**6)  # datetime has no nanoseconds
    ticks = whole(0, 86_400 * per_second - 1)
    return ticks.map(lambda number: (EPOCH + dt.timedelta(microseconds=number * (10**6 // per_second))).time())


def durations(type: DurationType) -> Strategy:
    """Spans of time."""
    if type.unit == "ns":
        return whole(-(2**63) + 1, 2**63 - 1).map(lambda number: np.timedelta64(number, "ns"))
    tick = dt.timedelta(microseconds=10**6 // PER_SECOND[type.unit])
    lowest, highest = max(dt.timedelta.min // tick + 1, -(2**63) + 1), min(dt.timedelta.max // tick, 2**63 - 1)
    return whole(lowest, highest).map(lambda number: number * tick)


def intervals(type: IntervalType) -> Strategy:
    """Calendar intervals."""
    small = whole(-(2**31), 2**31 - 1)
    if type.unit == "month":
        return small
    if type.unit == "day_time":
        return st.builds(sa.DayTime, small, small)
    return st.builds(sa.MonthDayNano, small, small, whole(-(2**63), 2**63 - 1))


WORDS = ["", "\0", "a\0", "twelve bytes", "thirteen byte", "é", "日本語", "🦆🦆🦆", "\ufeff", "x" * 300, "\U0010ffff"]
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def texts(type: Any) -> Strategy:
    """Text or bytes, often of the lengths at which views change their form."""
    words = st.sampled_from(WORDS) | _TEXT
    return words if type.text else words.map(str.encode) | st.binary(max_size=20)


# --- values of nested types --------------------------------------------------------------------------------------

_MOST = 4
"""Values of a list, mostly."""


def _items(field: Any, min_size: int = 0, max_size: int = _MOST) -> Strategy:
    return st.lists(slots(field), min_size=min_size, max_size=max_size)


def _maps(type: MapType) -> Strategy:
    entry = st.tuples(values_of(type.key_type), slots(type.item_field))
    found = st.lists(entry, max_size=_MOST)
    return found.map(lambda entries: sorted(entries, key=lambda e: e[0])) if type.keys_sorted else found


def _structs(type: StructType) -> Strategy:
    names = [field.name for field in type.fields]
    return st.tuples(*[slots(field) for field in type.fields]).map(lambda row: dict(zip(names, row, strict=True)))


_VALUES: dict[Any, Callable[[Any], Strategy]] = {
    NullType: lambda type: st.none(),
    BoolType: lambda type: st.booleans(),
    IntType: lambda type: whole(-(1 << type.bits - 1) if type.signed else 0, (1 << type.bits - type.signed) - 1),
    FloatType: lambda type: floats(type.bits),
    DecimalType: decimals,
    DateType: dates,
    TimestampType: timestamps,
    TimeType: times,
    DurationType: durations,
    IntervalType: intervals,
    FixedSizeBinaryType: lambda type: st.binary(min_size=type.width, max_size=type.width),
    BinaryType: texts,
    LargeBinaryType: texts,
    BinaryViewType: texts,
    ListType: lambda type: _items(type.fields[0]),
    LargeListType: lambda type: _items(type.fields[0]),
    ListViewType: lambda type: _items(type.fields[0]),
    LargeListViewType: lambda type: _items(type.fields[0]),
    FixedSizeListType: lambda type: _items(type.fields[0], min_size=type.list_size, max_size=type.list_size),
    MapType: _maps,
    StructType: _structs,
    UnionType: lambda type: st.one_of([values_of(field.type) for field in type.fields]),
    DictionaryType: lambda type: values_of(type.value_type),
    RunEndEncodedType: lambda type: values_of(type.value_type),
}

_UUIDS = st.binary(min_size=16, max_size=16).map(lambda data: uuid.UUID(bytes=data))


def _moments_with_offset(type: Any) -> Strategy:
    offsets = whole(-779, 780)
    return st.builds(
        lambda moment, minutes: moment.astimezone(dt.timezone(dt.timedelta(minutes=minutes))),
        timestamps(sa.timestamp(type.unit, "UTC")),
        offsets,
    )


_JSON = st.recursive(
    st.none() | st.booleans() | whole(-(2**53), 2**53) | _TEXT, lambda inner: st.lists(inner, max_size=2), max_leaves=3
).map(lambda value: json.dumps(value, ensure_ascii=False))

_EXTENSIONS: dict[str, Callable[[Any], Strategy]] = {
    "arrow.uuid": lambda type: _UUIDS,
    "arrow.json": lambda type: _JSON,
    "arrow.bool8": lambda type: st.booleans(),
    "arrow.timestamp_with_offset": _moments_with_offset,
}
"""By name, where the values are not those of the storage."""


def values_of(type: DataType) -> Strategy:
    """Values of a type, never None except for the null type."""
    if isinstance(type, sa.ExtensionType):
        own = _EXTENSIONS.get(type.extension_name)
        return values_of(type.storage_type) if own is None else own(type)
    return _VALUES[type.__class__](type)


def can_be_null(type: DataType) -> bool:
    """Whether arrays of this type can mark slots as null."""
    if isinstance(type, UnionType):
        nullable = [field.type for field in type.fields if field.nullable]
        return bool(nullable) and all(map(can_be_null, nullable))  # whichever of them a null goes to
    if isinstance(type, RunEndEncodedType):
        return type.values_field.nullable and can_be_null(type.value_type)
    return True


def only_nulls(type: DataType) -> bool:
    """Whether a value of this type is always null."""
    if isinstance(type, UnionType):
        return any(only_nulls(field.type) for field in type.fields)
    return isinstance(type, NullType) or (isinstance(type, EncodedType) and only_nulls(type.value_type))


def slots(field: Any) -> Strategy:
    """Values of a field, and None where it is nullable."""
    values = values_of(field.type)
    return st.none() | values if field.nullable and can_be_null(field.type) else values


def lists_of(type: DataType, min_size: int = 0, max_size: int = 12) -> Strategy:
    """Lists of values of a type and None."""
    return st.lists(slots(sa.field("", type)), min_size=min_size, max_size=max_size)


# --- types -------------------------------------------------------------------------------------------------------

PLAIN = [
    sa.null(), sa.bool_(),
    *[make() for make in (sa.int8, sa.int16, sa.int32, sa.int64, sa.uint8, sa.uint16, sa.uint32, sa.uint64)],
    sa.float16(), sa.float32(), sa.float64(), sa.date32(), sa.date64(),
    sa.time32("s"), sa.time32("ms"), sa.time64("us"), sa.time64("ns"), *[sa.duration(unit) for unit in UNITS],
    sa.month_interval(), sa.day_time_interval(), sa.month_day_nano_interval(),
    sa.binary(), sa.string(), sa.large_binary(), sa.large_string(), sa.binary_view(), sa.string_view(),
]  # fmt: skip
"""Types without parameters that have a choice of more than a few values."""

MAKERS = {32: sa.decimal32, 64: sa.decimal64, 128: sa.decimal128, 256: sa.decimal256}


EXTENSIONS = [
    sa.uuid(), sa.bool8(), sa.json_(), sa.json_(sa.string_view()), sa.opaque(sa.int32(), "integer", "somebody"),
    sa.fixed_shape_tensor(sa.int16(), (2, 1), permutation=(1, 0)),
    *[sa.timestamp_with_offset(unit) for unit in UNITS],
    sa.timestamp_with_offset("us", sa.dictionary(sa.int8(), sa.int16())), sa.parquet_variant(),
]  # fmt: skip

_INTEGERS = [type for type in PLAIN if isinstance(type, IntType)]
_RUN_ENDS = [sa.int16(), sa.int32(), sa.int64()]
_NAMES = ["a", "b", "", "naïve", "ü\0"]
_SORTED = (IntType, DateType, BinaryType, LargeBinaryType, BinaryViewType)
"""Types of keys that Python sorts as Arrow does."""


def _one(draw: Any, choices: Any) -> Any:
    return draw(st.sampled_from(choices))


def _leaf(draw: Any) -> Any:
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return sa.timestamp(_one(draw, UNITS), _one(draw, [None, *ZONES]))
    if kind == 1:
        bits = _one(draw, sorted(MAKERS))
        precision = draw(whole(1, DecimalType.MAX_PRECISION[bits]))
        return MAKERS[bits](precision, draw(whole(-5, precision)))
    if kind == 2:
        return _one(draw, EXTENSIONS)
    return sa.binary(_one(draw, [0, 1, 3, 16])) if kind == 3 else _one(draw, PLAIN)


def _field(draw: Any, depth: int, name: str) -> Any:
    type = _type(draw, depth)
    return sa.field(name, type, only_nulls(type) or draw(st.booleans()))


def _fields(draw: Any, depth: int, least: int) -> list[Any]:
    names = draw(st.lists(st.sampled_from(_NAMES), unique=True, min_size=least, max_size=3))
    return [_field(draw, depth, name) for name in names]


def _list(make: Any) -> Callable[[Any, int], Any]:
    return lambda draw, depth: make(_field(draw, depth, "item"))


def _map(draw: Any, depth: int) -> Any:
    key = _leaf(draw)
    if only_nulls(key):
        key = sa.string()
    return sa.map_(key, _field(draw, depth, "value"), isinstance(key, _SORTED) and draw(st.booleans()))


def _union(draw: Any, depth: int) -> Any:
    fields = _fields(draw, depth, 1)
    inner = [each for field in fields for each in types_in(field.type)]
    if len({each.tz for each in inner if isinstance(each, TimestampType)} - {None}) > 1:
        fields = fields[:1]  # a value goes to the first child that holds the moment, whatever its time zone
    codes = draw(st.none() | st.lists(st.integers(0, 127), unique=True, min_size=len(fields), max_size=len(fields)))
    return _one(draw, [sa.dense_union, sa.sparse_union])(fields, codes)


_NESTED: list[Callable[[Any, int], Any]] = [
    _list(sa.list_),
    _list(sa.large_list),
    _list(sa.list_view),
    _list(sa.large_list_view),
    lambda draw, depth: sa.list_(_field(draw, depth, "item"), draw(st.integers(0, 3))),
    lambda draw, depth: sa.struct(_fields(draw, depth, 0)),
    _map,
    lambda draw, depth: sa.dictionary(_one(draw, _INTEGERS), _type(draw, depth), draw(st.booleans())),
    lambda draw, depth: sa.run_end_encoded(_one(draw, _RUN_ENDS), _type(draw, depth)),
    _union,
]


def _type(draw: Any, depth: int) -> Any:
    if not depth or draw(st.integers(0, 3)) == 0:
        return _leaf(draw)
    return _one(draw, _NESTED)(draw, depth - 1)


# --- the public strategies ---------------------------------------------------------------------------------------


@st.composite
def types(draw: Any, depth: int = 3) -> Any:
    """Draw a data type, extension types among them, of so many levels of nesting at most."""
    return _type(draw, depth)


@st.composite
def columns(draw: Any, depth: int = 3, min_size: int = 0, max_size: int = 12) -> Any:
    """Draw a pair of a type and a list of values of that type and None."""
    type = _type(draw, depth)
    return type, draw(lists_of(type, min_size, max_size))
