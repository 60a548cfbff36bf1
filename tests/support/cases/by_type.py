"""Cases with values: one row for each type and each of its parameters that changes how values are stored."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

import shmarrow as sa
from cases.definition import Case
from shmarrow.types import MapType

UTC = dt.UTC
LONG = "long enough to lie outside of its view"

# --- every type, with values without null -----------------------------------------------------------------------


def _integers(bits: int) -> list[int]:
    return [-(1 << (bits - 1)), -1, 0, 1, 42, (1 << (bits - 1)) - 1]


def _naturals(bits: int) -> list[int]:
    return [0, 1, 42, 1 << (bits - 1), (1 << bits) - 1]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    return [Decimal(number).scaleb(-scale) for number in (0, 1, -1, 12345, most // 3, most, -most)]


def _in_context(make: Any, *args: Any) -> Any:
    with decimal.localcontext(decimal.Context(prec=100)):
        return make(*args)


_MOMENTS = [
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59),
    dt.datetime(2024, 2, 29, 12, 30, 15),
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59),
]
_NEAR = [*_MOMENTS[:3], dt.datetime(1700, 1, 1), dt.datetime(2262, 1, 1)]
_AWARE = [moment.replace(tzinfo=UTC) for moment in _NEAR]
_DAYS = [moment.date() for moment in _MOMENTS]
_SPANS = [dt.timedelta(0), dt.timedelta(seconds=-1), dt.timedelta(days=1000, seconds=5), dt.timedelta(days=-9)]
_WORDS = ["", "a", "joe", "twelve bytes", "thirteen byte", LONG, "é", "日本語の文字列", "🦆🦆🦆🦆", "x" * 300]
_BLOBS = [b"", b"\x00", b"\xff\xfe", *[word.encode() for word in _WORDS[3:]]]
_POINT = sa.struct([sa.field("x", sa.int32()), sa.field("y", sa.float64(), nullable=False)])
PLAIN_UNION = [sa.field("i", sa.int32()), sa.field("s", sa.string())]

TYPES: list[tuple[str, Any, list[Any]]] = [
    ("bool", sa.bool_(), [True, False, True, True, False, False, True, False, True, True, False]),
    *[(f"int{bits}", getattr(sa, f"int{bits}")(), _integers(bits)) for bits in (8, 16, 32, 64)],
    *[(f"uint{bits}", getattr(sa, f"uint{bits}")(), _naturals(bits)) for bits in (8, 16, 32, 64)],
    ("float16", sa.float16(), [0.0, -0.5, 1.0, 65504.0, float("inf"), 0.0999755859375]),
    ("float32", sa.float32(), [0.0, -0.5, 1e10, float("-inf"), 3.4028234663852886e38, 0.10000000149011612]),
    ("float64", sa.float64(), [0.0, -0.5, 1e300, float("inf"), 0.1, 5e-324]),
    ("decimal32", sa.decimal32(9, 2), _in_context(_decimals, 9, 2)),
    ("decimal64", sa.decimal64(18, 5), _in_context(_decimals, 18, 5)),
    ("decimal128", sa.decimal128(38, 10), _in_context(_decimals, 38, 10)),
    ("decimal128-negative-scale", sa.decimal128(5, -3), [Decimal("1E+3"), Decimal("-99999E+3")]),
    ("decimal256", sa.decimal256(76, 20), _in_context(_decimals, 76, 20)),
    ("date32", sa.date32(), _DAYS),
    ("date64", sa.date64(), _DAYS),
    ("time32-s", sa.time32("s"), [dt.time(0), dt.time(12, 30, 15), dt.time(23, 59, 59)]),
    ("time32-ms", sa.time32("ms"), [dt.time(0), dt.time(12, 30, 15, 250_000), dt.time(23, 59, 59, 999_000)]),
    ("time64-us", sa.time64("us"), [dt.time(0), dt.time(12, 30, 15, 1), dt.time(23, 59, 59, 999_999)]),
    ("time64-ns", sa.time64("ns"), [dt.time(0), dt.time(12, 30, 15, 1), dt.time(23, 59, 59, 999_999)]),
    ("timestamp-s", sa.timestamp("s"), _MOMENTS),
    ("timestamp-ms", sa.timestamp("ms"), _MOMENTS),
    ("timestamp-us", sa.timestamp("us"), [*_MOMENTS, dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    (
        "timestamp-ns",
        sa.timestamp("ns"),
        [*[np.datetime64(moment, "ns") for moment in _NEAR], np.datetime64(1000, "ns")],
    ),
    ("timestamp-us-utc", sa.timestamp("us", tz="UTC"), _AWARE),
    ("timestamp-s-zone", sa.timestamp("s", tz="America/New_York"), _AWARE),
    ("timestamp-ms-offset", sa.timestamp("ms", tz="+07:30"), _AWARE),
    *[(f"duration-{unit}", sa.duration(unit), _SPANS) for unit in ("s", "ms", "us")],
    ("duration-ns", sa.duration("ns"), [*[np.timedelta64(span, "ns") for span in _SPANS], np.timedelta64(-1000, "ns")]),
    ("interval-month", sa.month_interval(), [0, 1, -12, (1 << 31) - 1]),
    ("interval-day-time", sa.day_time_interval(), [sa.DayTime(0, 0), sa.DayTime(-1, 86_400_000), sa.DayTime(1, -5)]),
    (
        "interval-month-day-nano",
        sa.month_day_nano_interval(),
        [sa.MonthDayNano(0, 0, 0), sa.MonthDayNano(-1, 31, 1 << 62), sa.MonthDayNano(1, -5, -1)],
    ),
    ("fixed-size-binary", sa.binary(3), [b"abc", b"\x00\x00\x00", b"\xff\xfe\xfd"]),
    ("fixed-size-binary-0", sa.binary(0), [b"", b""]),
    ("binary", sa.binary(), _BLOBS),
    ("string", sa.string(), _WORDS),
    ("large-binary", sa.large_binary(), _BLOBS),
    ("large-string", sa.large_string(), _WORDS),
    ("binary-view", sa.binary_view(), _BLOBS),
    ("string-view", sa.string_view(), _WORDS),
    ("string-view-short", sa.string_view(), ["", "a", "twelve bytes"]),
    ("list", sa.list_(sa.int16()), [[1, 2, 3], [], [None, -5], [7]]),
    ("list-non-null-items", sa.list_(sa.field("number", sa.int8(), nullable=False)), [[1, 2], [], [3]]),
    ("list-string", sa.list_(sa.string()), [["a", LONG], [], [None, ""]]),
    ("list-list", sa.list_(sa.list_(sa.uint8())), [[[1], []], [], [None, [2, None, 3]]]),
    ("large-list", sa.large_list(sa.string()), [["a", "bc"], [], [None]]),
    ("list-view", sa.list_view(sa.int16()), [[1, 2, 3], [], [None, -5], [7]]),
    ("large-list-view", sa.large_list_view(sa.string_view()), [["a", LONG], [], [None]]),
    ("fixed-size-list", sa.list_(sa.float32(), 2), [[1.0, 2.0], [None, 4.0], [5.0, 6.0]]),
    ("fixed-size-list-0", sa.list_(sa.int8(), 0), [[], [], []]),
    ("fixed-size-list-nested", sa.list_(sa.list_(sa.int8(), 2), 2), [[[1, 2], [3, 4]], [None, [5, 6]]]),
    ("struct", _POINT, [{"x": 1, "y": 0.5}, {"x": None, "y": 1.5}, {"x": 3, "y": -1.0}]),
    ("struct-no-fields", sa.struct([]), [{}, {}]),
    (
        "struct-nested",
        sa.struct({"inner": _POINT, "tags": sa.list_(sa.string())}),
        [{"inner": {"x": 1, "y": 2.0}, "tags": ["a"]}, {"inner": None, "tags": None}, {"inner": None, "tags": []}],
    ),
    (
        "struct-duplicate-names",
        sa.struct([("a", sa.int8()), ("a", sa.string())]),
        [[("a", 1), ("a", "x")], [("a", None), ("a", "y")]],
    ),
    ("list-struct", sa.list_(_POINT), [[{"x": 1, "y": 2.0}], [], [None, {"x": None, "y": 0.0}]]),
    ("map", sa.map_(sa.string(), sa.int32()), [[("a", 1), ("b", None)], [], [(LONG, 3)]]),
    ("map-sorted", sa.map_(sa.int8(), sa.list_(sa.int8()), keys_sorted=True), [[(1, [1]), (2, None)], []]),
    (
        "map-odd-names",
        MapType(
            sa.field(
                "some",
                sa.struct([sa.field("k", sa.string(), nullable=False), sa.field("v", sa.bool_(), nullable=False)]),
                nullable=False,
            )
        ),
        [[("a", True)], [], [("b", False), ("c", True)]],
    ),
    ("ree-16", sa.run_end_encoded(sa.int16(), sa.string()), ["a", "a", "a", "b", "b", "c"]),
    ("ree-32", sa.run_end_encoded(sa.int32(), sa.float64()), [1.0, 1.0, 2.0, 2.0, 2.0, 1.0]),
    ("ree-64", sa.run_end_encoded(sa.int64(), sa.bool_()), [True, False, False, True]),
    ("ree-list", sa.run_end_encoded(sa.int32(), sa.list_(sa.int8())), [[1, 2], [1, 2], [], [None]]),
    *[
        (f"dictionary-{index}", sa.dictionary(index, sa.string()), ["foo", "bar", "foo", LONG, "bar"])
        for index in ("int8", "int32", "uint16", "uint64")
    ],
    ("dictionary-ordered", sa.dictionary(sa.int8(), sa.float64(), ordered=True), [0.5, 1.5, 0.5]),
    ("dictionary-list", sa.dictionary(sa.int16(), sa.list_(sa.int8())), [[1, 2], [], [1, 2], [None]]),
    ("dictionary-view", sa.dictionary(sa.uint8(), sa.string_view()), ["a", LONG, "a", LONG]),
    ("dictionary-struct", sa.dictionary(sa.int8(), _POINT), [{"x": 1, "y": 2.0}, {"x": 1, "y": 2.0}]),
    (
        "dictionary-nested",
        sa.dictionary(sa.int8(), sa.struct({"d": sa.dictionary(sa.int16(), sa.string())})),
        [{"d": "a"}, {"d": "b"}, {"d": "a"}, {"d": None}],
    ),
    ("dictionary-dictionary", sa.dictionary(sa.int8(), sa.dictionary(sa.int8(), sa.string())), ["a", "b", "a"]),
    ("list-dictionary", sa.list_(sa.dictionary(sa.int8(), sa.string())), [["a", "b"], [], ["a", None]]),
    ("ree-dictionary", sa.run_end_encoded(sa.int16(), sa.dictionary(sa.int8(), sa.string())), ["a", "a", "b"]),
    ("dense-union", sa.dense_union(PLAIN_UNION), [1, "a", 2, "b", 3, LONG]),
    ("dense-union-codes", sa.dense_union(PLAIN_UNION, [5, 120]), [1, "a", "b", 2]),
    ("sparse-union", sa.sparse_union(PLAIN_UNION), [1, "a", 2, "b", 3]),
    ("sparse-union-codes", sa.sparse_union(PLAIN_UNION, [127, 0]), ["a", 1, 2, "b"]),
    ("union-nested", sa.dense_union({"l": sa.list_(sa.int8()), "u": sa.sparse_union(PLAIN_UNION)}), [[1], 5, "a", []]),
    ("struct-union", sa.struct({"u": sa.sparse_union(PLAIN_UNION)}), [{"u": 1}, {"u": "a"}, {"u": 3}]),
    ("list-view-struct", sa.list_view(_POINT), [[{"x": 1, "y": 2.0}], [], [{"x": 2, "y": 3.0}]]),
]


def variants(name: str, type: Any, values: list[Any]) -> Iterator[Case]:
    """Yield the cases of a row: without nulls, with nulls, with nulls only, and empty."""
    yield Case(name, type, values)
    nulls = [item for value in values for item in (value, None)]
    yield Case(f"{name}-nulls", type, nulls[:-1])
    yield Case(f"{name}-all-null", type, [None] * 9)
    yield Case(f"{name}-empty", type, [])
