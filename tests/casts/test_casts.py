"""The checked converter: every pair of number and time types against pyarrow, and values from numpy and Python."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shmarrow as sa
from shmarrow.casts import convert
from shmarrow.casts.decimals import decimal_integers, decimal_words
from shmarrow.casts.python import from_python
from shmarrow.layout.construct import frozen, make_array

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

FLOATS = [sa.float16(), sa.float32(), sa.float64()]
DECIMALS = [
    sa.decimal32(9, 2), sa.decimal64(18, 3), sa.decimal128(38, 10), sa.decimal128(10, 0), sa.decimal256(76, 40),
]  # fmt: skip


def storage_of(type: Any, values: list[Any]) -> Any:
    """Those of the values that the type's storage holds."""
    if type == sa.bool_():
        return np.array([bool(value) for value in values if value in (0, 1)], np.bool_)
    if type in FLOATS:
        with np.errstate(over="ignore"):
            return np.array(values, type.storage)
    if isinstance(type, sa.types.DecimalType):
        return decimal_words(type, [value for value in values if abs(value) < 10**type.precision])
    info = np.iinfo(type.storage)
    return np.array([value for value in values if info.min <= value <= info.max], type.storage)


def array_of(type: Any, storage: Any) -> Any:
    return sa.array(storage) if type == sa.bool_() else make_array(type, len(storage), [None, frozen(storage)], 0)


@pytest.mark.parametrize("source", [*DECIMALS, sa.decimal128(5, -3), sa.decimal256(76, 0)], ids=str)
@pytest.mark.parametrize("target", [*DECIMALS, sa.decimal128(5, -3), sa.decimal256(76, 76)], ids=str)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_decimals_keep_their_value_or_are_refused(source: Any, target: Any, data: Any) -> None:
    """As Python's integers say, alone and among others; with safe=False digits are cut toward zero."""
    bound = 10**source.precision - 1
    by = target.scale - source.scale
    small = st.integers(-999, 999).map(lambda n: n * 10 ** min(max(-by, 0), source.precision - 3))
    numbers = data.draw(st.lists(st.integers(-bound, bound) | small, min_size=1, max_size=4))
    storage = decimal_words(source, numbers)
    scaled = [number * 10**by if by >= 0 else abs(number) // 10**-by * (1 if number > 0 else -1) for number in numbers]
    fits = all(abs(number) < 10**target.precision for number in scaled)
    exact = by >= 0 or all(number % 10**-by == 0 for number in numbers)
    if fits:
        assert decimal_integers(convert(storage, None, source, target, safe=False)) == scaled
    else:
        with pytest.raises(sa.InvalidData, match=f"more than {target.precision} digits"):
            convert(storage, None, source, target, safe=False)
    if fits and exact:
        assert decimal_integers(convert(storage, None, source, target)) == scaled
    else:
        with pytest.raises(sa.InvalidData, match="digits"):
            convert(storage, None, source, target)


@pytest.mark.parametrize("scale", [-5, 0, 2, 15, 25, 40])
@settings(max_examples=60, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_and_decimals_there_and_back(scale: int, value: float) -> None:
    """A float that becomes a decimal comes back, and the decimal is the nearest there is."""
    type = sa.decimal256(76, scale)
    try:
        made = convert(np.array([value]), None, sa.float64(), type)
    except sa.InvalidData:
        exact = Decimal(value)
        near = round(exact * Decimal(10) ** scale) if abs(exact) < Decimal(10) ** 40 else 10**80
        assert abs(near) >= 10**76 or float(Decimal(near).scaleb(-scale)) != value
        return
    assert convert(made, None, type, sa.float64()).tolist() == [value]


LOSSES: list[tuple[Any, Any, Any, list[Any]]] = [
    (sa.float64(), sa.int8(), [1.9, -1.9, 127.9], [1, -1, 127]),
    (sa.float64(), sa.bool_(), [0.0, 0.5, -3.0], [False, True, True]),
    (sa.int64(), sa.bool_(), [0, 7, -1], [False, True, True]),
    (sa.int64(), sa.float64(), [(1 << 53) + 1], [9007199254740992.0]),
    (sa.int32(), sa.float16(), [2049, 70_000], [2048.0, float("inf")]),
    (sa.float64(), sa.float16(), [1e6, -1e6], [float("inf"), float("-inf")]),
    (sa.decimal64(18, 3), sa.int8(), [1999, -1999], [1, -1]),
    (sa.decimal64(18, 3), sa.decimal32(9, 1), [1299, -1299], [Decimal("1.2"), Decimal("-1.2")]),
    (sa.decimal128(38, 0), sa.float64(), [(1 << 53) + 1, 10**37 + 1], [9007199254740992.0, 1e37]),
    (sa.float64(), sa.decimal128(5, 2), [0.125, -0.126], [Decimal("0.12"), Decimal("-0.13")]),
    (sa.timestamp("ns"), sa.timestamp("s"), [-1, 1_999_999_999],
     [dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, 0, 0, 1)]),
    (sa.timestamp("s"), sa.date32(), [-1, 86_401], [dt.date(1969, 12, 31), dt.date(1970, 1, 2)]),
    (sa.timestamp("s"), sa.date64(), [-1, 86_401], [dt.date(1969, 12, 31), dt.date(1970, 1, 2)]),
    (sa.timestamp("s", "Europe/Berlin"), sa.date32(), [84_600], [dt.date(1970, 1, 2)]),
    (sa.timestamp("s", "Europe/Berlin"), sa.time32("s"), [1_711_846_799, 1_711_846_800],
     [dt.time(1, 59, 59), dt.time(3)]),
    (sa.timestamp("ns"), sa.time32("s"), [-1_500], [dt.time(23, 59, 59)]),
    (sa.time64("ns"), sa.time32("ms"), [1_999_999], [dt.time(0, 0, 0, 1000)]),
    (sa.duration("us"), sa.duration("s"), [-1_999_999], [dt.timedelta(seconds=-1)]),
    (sa.date64(), sa.date32(), [86_400_001], [dt.date(1970, 1, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "given", "expected"), LOSSES, ids=[f"{a} to {b}" for a, b, *_ in LOSSES])
def test_what_safe_false_gives_up(source: Any, target: Any, given: list[Any], expected: list[Any]) -> None:
    storage = storage_of(source, given)
    with pytest.raises(sa.InvalidData, match="safe=False"):
        convert(storage, None, source, target)
    made = convert(storage, None, source, target, safe=False)
    assert array_of(target, made).to_pylist() == expected


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        (sa.int64(), sa.int8(), 300), (sa.int8(), sa.uint8(), -1), (sa.float64(), sa.int8(), float("nan")),
        (sa.float64(), sa.int64(), 2.0**63), (sa.timestamp("s"), sa.timestamp("ns"), 10**12),
        (sa.date32(), sa.timestamp("ns"), (1 << 31) - 1), (sa.duration("s"), sa.duration("ms"), 1 << 62),
        (sa.int64(), sa.decimal32(4, 1), 1000), (sa.decimal64(18, 3), sa.int8(), 300_000),
        (sa.float64(), sa.decimal32(4, 1), float("inf")), (sa.timestamp("us"), sa.date32(), -(1 << 63)),
        (sa.timestamp("s", "+00:00"), sa.date32(), 1 << 40),
    ],
    ids=str,
)  # fmt: skip
def test_nothing_ever_wraps(source: Any, target: Any, value: Any) -> None:
    """The slot and the value are named; in null slots anything may stand."""
    storage = storage_of(source, [0, value, 0])
    if (source, target) == (sa.timestamp("us"), sa.date32()):  # far away, and yet a date
        assert convert(storage, None, source, target, safe=False)[1] == value // 86_400_000_000
        return
    for safe in (True, False):
        with pytest.raises(sa.InvalidData, match=r"row 1: .*cannot hold "):
            convert(storage, None, source, target, safe)
        made = convert(storage, np.array([True, False, True]), source, target, safe)
        assert array_of(target, made)[0] == array_of(target, made)[2] == array_of(target, made[2:])[0]


def test_zone_rules_of_a_whole_year() -> None:
    """Dates and times as clocks show them, across both changes of a year, as Python's own zones say."""
    from zoneinfo import ZoneInfo

    hours = np.arange("2024-01-01", "2025-01-01", dtype="M8[h]").astype("M8[s]")
    for name in ("Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "+05:45"):
        zoned = sa.array(hours).cast(sa.timestamp("s", name))
        zone = dt.timezone(dt.timedelta(hours=5, minutes=45)) if name == "+05:45" else ZoneInfo(name)
        local = [moment.replace(tzinfo=dt.UTC).astimezone(zone) for moment in hours.tolist()]
        source = zoned.type
        days = convert(zoned.values, None, source, sa.date32(), safe=False)
        assert array_of(sa.date32(), days).to_pylist() == [moment.date() for moment in local]
        times = convert(zoned.values, None, source, sa.time32("s"), safe=False)
        assert array_of(sa.time32("s"), times).to_pylist() == [moment.time() for moment in local]


# --- from numpy ---------------------------------------------------------------------------------------------------

GOOD_NDARRAYS: list[tuple[str, Any, Any, list[Any]]] = [
    ("decimal from floats", np.array([5.0, -1.25]), sa.decimal64(9, 2), [Decimal("5.00"), Decimal("-1.25")]),
    ("decimal from its storage dtype", np.array([5, 7], "i4"), sa.decimal32(9, 2), [Decimal(5), Decimal(7)]),
    ("wide decimal", np.array([(1 << 64) - 1], "u8"), sa.decimal128(22, 2), [Decimal((1 << 64) - 1)]),
    ("long double", np.array([1.5], np.longdouble), sa.float64(), [1.5]),
    ("picoseconds", np.array([7000], "m8[ps]"), sa.duration("ns"), [np.timedelta64(7, "ns")]),
    ("midnights", np.array([86_400], "M8[s]"), sa.date64(), [dt.date(1970, 1, 2)]),
    ("times", np.array([10], "m8[s]"), sa.time32("ms"), [dt.time(0, 0, 10)]),
    ("counts", np.array([1], "u1"), sa.date32(), [dt.date(1970, 1, 2)]),
    ("truth", np.array([1, 0]), sa.bool_(), [True, False]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "type", "expected"), [each[1:] for each in GOOD_NDARRAYS], ids=[each[0] for each in GOOD_NDARRAYS]
)
def test_from_numpy(values: Any, type: Any, expected: list[Any]) -> None:
    made = sa.array(values, type)
    made.validate(full=True)
    assert made.to_pylist() == expected
    spread = np.zeros(2 * len(values), values.dtype)
    spread[::2] = values
    assert sa.array(spread[::2], type).to_pylist() == expected


BAD_NDARRAYS: list[tuple[str, Any, Any, Any, str]] = [
    ("days to ns", np.array([0, 10**10], "M8[D]"), sa.timestamp("ns"), sa.InvalidData, "row 1: "),
    ("seconds to ms of 32 bits", np.array([0, 10**10], "m8[s]"), sa.time32("ms"), sa.InvalidData, "row 1: "),
    ("long double", np.array([0, np.longdouble(1) / 3]), sa.float64(), sa.InvalidData, r"row 1: .*cannot hold "),
    ("part of a cent", np.array([0, 0.125]), sa.decimal64(9, 2), sa.InvalidData, r"row 1: .*cannot hold 0.125"),
    ("too many digits", np.array([0, 10**9]), sa.decimal32(9, 2), sa.InvalidData, r"row 1: .*cannot hold 1000000000"),
    ("no whole day", np.array([0, 1], "M8[s]"), sa.date32(), sa.InvalidData, "row 1: .* 1970-01-01T00:00:01"),
    ("beyond the day", np.array([0, 86_400]), sa.time32("s"), sa.InvalidData, "row 1: "),
    ("far years", np.array([0, 1 << 62], "M8[Y]"), sa.timestamp("s"), sa.InvalidData, "4611686018427389874"),
    ("moments as durations", np.array([0], "M8[s]"), sa.duration("s"), sa.InvalidType, "cannot convert"),
    ("months as durations", np.array([0], "m8[M]"), sa.duration("s"), sa.InvalidType, "m8|timedelta64"),
    ("complex", np.array([1j]), sa.float64(), sa.InvalidType, "complex128"),
    ("floats as dates", np.array([1.0]), sa.date32(), sa.InvalidType, "double"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "type", "error", "match"), [each[1:] for each in BAD_NDARRAYS], ids=[each[0] for each in BAD_NDARRAYS]
)
def test_ndarrays_that_do_not_fit(values: Any, type: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        sa.array(values, type)


# --- from Python --------------------------------------------------------------------------------------------------


def test_integers_among_floats_are_exact() -> None:
    assert sa.array([1 << 60, 0.1], sa.float64()).to_pylist() == [float(1 << 60), 0.1]
    for values, type in [
        ([(1 << 53) + 1], sa.float64()), ([(1 << 53) + 1, 0.5], sa.float64()), ([16_777_217, 0.1], sa.float32()),
        ([1e39], sa.float32()), ([1e6, None], sa.float16()), ([10**400], sa.float64()),
    ]:  # fmt: skip
        with pytest.raises(sa.InvalidData, match=str(values[0])[:30].replace("+", r"\+")):
            sa.array(values, type)


def test_integers_with_nulls_become_floats_exactly_or_not_at_all() -> None:
    assert sa.array([1 << 53, None]).to_numpy(zero_copy_only=False)[0] == float(1 << 53)
    with pytest.raises(sa.InvalidData, match=r"row 0: .*cannot hold 9007199254740993"):
        sa.array([(1 << 53) + 1, None]).to_numpy(zero_copy_only=False)


MOMENTS = st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(dt.timezone(dt.timedelta(hours=-7))))
PYTHON: list[tuple[str, Any, Any]] = [
    ("s", sa.timestamp, MOMENTS), ("us", sa.timestamp, MOMENTS), ("ns", sa.timestamp, MOMENTS),
    ("s", sa.duration, st.timedeltas()), ("ms", sa.duration, st.timedeltas()), ("ns", sa.duration, st.timedeltas()),
    ("ms", sa.time32, st.times()), ("ns", sa.time64, st.times()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "make", "values"), PYTHON, ids=[f"{make.__name__}-{unit}" for unit, make, _ in PYTHON]
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_times_from_python(unit: str, make: Any, values: Any, data: Any) -> None:
    """The exact count of the unit, or a refusal where there is none."""
    given = data.draw(st.lists(values, min_size=1, max_size=3))
    type = make(unit)
    if make is sa.timestamp:
        aware = {value.tzinfo is not None for value in given}
        type = make(unit, "UTC" if True in aware else None)
        if len(aware) > 1:
            with pytest.raises(sa.InvalidType, match="has no time zone"):
                from_python(type, given)
            return
    per = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    micro, epoch = dt.timedelta(microseconds=1), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    counts = []
    for value in given:
        if isinstance(value, dt.time):
            value = dt.datetime.combine(dt.date(1970, 1, 1), value)
        if isinstance(value, dt.datetime):
            value = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - epoch
        counts.append(divmod(value // micro * per, 10**6))
    if any(rest or not -(1 << 63) <= count < 1 << 63 for count, rest in counts):
        with pytest.raises(sa.InvalidData):
            from_python(type, given)
    else:
        assert from_python(type, given).tolist() == [count for count, _ in counts]


# --- to Python ----------------------------------------------------------------------------------------------------


BEYOND = [
    (sa.date32(), 2_932_897, "10000-01-01"), (sa.date64(), -62_135_596_800_000 - 86_400_000, "0000-12-31"),
    (sa.date64(), 1, "1970-01-01T00:00:00.001"), (sa.timestamp("s"), 253_402_300_800, "10000-01-01T00:00:00"),
    (sa.timestamp("s", "Asia/Tokyo"), 253_402_300_799, "9999-12-31T23:59:59"), (sa.time32("s"), -1, "-1 seconds"),
    (sa.time64("us"), 86_400_000_000, "86400000000 microseconds"), (sa.duration("s"), 1 << 62, "4611686018427387904"),
]  # fmt: skip


@pytest.mark.parametrize(("type", "value", "shown"), BEYOND, ids=[f"{type} {shown}" for type, _, shown in BEYOND])
def test_values_that_python_does_not_have(type: Any, value: int, shown: str) -> None:
    array = array_of(type, np.array([0, value], type.storage))
    for read in (array.to_pylist, lambda: array[1], lambda: array.slice(1).to_pylist()):
        with pytest.raises(sa.InvalidData, match=rf"row [01]: .*found {shown}.*, .*(to_numpy|values)"):
            read()
    assert shown in str(array)
    assert shown in repr(array)
    nulls = make_array(type, 2, [np.array([1], np.uint8), array.buffers()[1]])
    assert nulls.to_pylist() == [array[0], None]


def test_a_value_that_python_does_not_have_is_named_by_its_row_in_the_whole_column() -> None:
    """Values are converted in pieces, and chunk by chunk."""
    late = array_of(sa.timestamp("s"), np.array([0] * 1030 + [2**40]))
    chunked = sa.chunked_array([late.slice(0, 5), late])
    for column, row in ((late, 1030), (chunked, 1035)):
        for read in (list, lambda column: column.to_pylist(), lambda column: column[row]):  # noqa: B023
            with pytest.raises(sa.InvalidData, match=rf"row {row}: timestamp\[s\]: found"):
                read(column)


def test_durations_to_the_ends_of_timedelta() -> None:
    spans = [dt.timedelta(999_999_999, 86_399), dt.timedelta.min, dt.timedelta(-1, 86_399)]
    assert sa.array(spans, sa.duration("s")).to_pylist() == spans
    lowest = array_of(sa.duration("us"), np.array([-(1 << 63)]))
    assert lowest.to_pylist() == [dt.timedelta(microseconds=-(1 << 63))]


def test_decimals_of_any_scale() -> None:
    for type in (sa.decimal128(5, 1 << 30), sa.decimal128(5, -(1 << 30))):
        array = array_of(type, decimal_words(type, [12, 0]))
        assert array.to_pylist() == [Decimal((0, (1, 2), -type.scale)), Decimal((0, (0,), -type.scale))]
        for target in (sa.decimal256(76, 0), sa.int64(), sa.float64()):
            with pytest.raises(sa.InvalidData, match=r"row 0: .*cannot hold "):
                convert(array.values, None, type, target)
            assert convert(array.values[1:], None, type, target).tolist() in ([0], [0.0], [[0, 0, 0, 0]])
        with pytest.raises(sa.InvalidData):
            convert(np.array([1.5]), None, sa.float64(), type)
