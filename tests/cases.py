"""One table of cases that every suite feeds on: types, Python values, and the bytes that the specification works out.

Rules kept here:

* plain data: a case says what is meant, never how a suite uses it;
* ``values`` are what ``to_pylist()`` gives; where Python values do not say how an array lies in memory, ``physical``
  does. Physical arrays are written as the specification writes them: hexadecimal bytes, ``..`` where a byte is not
  specified, None for a validity bitmap that is left out;
* every type stands in :data:`TYPES` once, and comes from there with nulls, without, all null and empty.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

import shmarrow as sa
from shmarrow.layout import make_array
from shmarrow.types import MapType


@dataclass(frozen=True)
class Physical:
    """How an array lies in memory."""

    length: int
    buffers: Sequence[str | None]
    null_count: int = 0
    children: Sequence[Physical] = ()
    dictionary: Physical | None = None
    offset: int = 0

    def array(self, type: Any) -> Any:
        """The array over these bytes; those that are not specified are 0xAA."""
        buffers: list[Any] = [None if text is None else np.frombuffer(to_bytes(text), "u1") for text in self.buffers]
        children = [child.array(field.type) for child, field in zip(self.children, type.fields, strict=True)]
        dictionary = None if self.dictionary is None else self.dictionary.array(type.value_type)
        return make_array(type, self.length, buffers, self.null_count, self.offset, children, dictionary)


def to_bytes(text: str) -> bytes:
    """The bytes of a physical buffer."""
    return bytes.fromhex(text.replace("..", "aa"))


def pack(format: str, *numbers: Any) -> str:
    """Numbers as little-endian bytes; None where they are not specified."""
    size = struct.calcsize(f"<{format}")
    return " ".join(".." * size if number is None else struct.pack(f"<{format}", number).hex() for number in numbers)


def text(value: str | bytes) -> str:
    """Characters as bytes."""
    return (value.encode() if isinstance(value, str) else value).hex()


@dataclass(frozen=True)
class Case:
    """A type, values of it, and where Python values do not tell, how they lie in memory."""

    name: str
    type: Any
    values: list[Any] = field(repr=False)
    physical: Physical | None = field(default=None, repr=False)
    from_values: bool = True
    """Whether building from the values gives the physical bytes; else there are other forms of the same values."""

    def array(self) -> Any:
        """The array of this case."""
        if self.physical is not None:
            return self.physical.array(self.type)
        return sa.array(self.values, self.type)


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
_PLAIN_UNION = [sa.field("i", sa.int32()), sa.field("s", sa.string())]

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
        for index in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
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
    ("dense-union", sa.dense_union(_PLAIN_UNION), [1, "a", 2, "b", 3, LONG]),
    ("dense-union-codes", sa.dense_union(_PLAIN_UNION, [5, 120]), [1, "a", "b", 2]),
    ("sparse-union", sa.sparse_union(_PLAIN_UNION), [1, "a", 2, "b", 3]),
    ("sparse-union-codes", sa.sparse_union(_PLAIN_UNION, [127, 0]), ["a", 1, 2, "b"]),
    ("union-nested", sa.dense_union({"l": sa.list_(sa.int8()), "u": sa.sparse_union(_PLAIN_UNION)}), [[1], 5, "a", []]),
    ("struct-union", sa.struct({"u": sa.sparse_union(_PLAIN_UNION)}), [{"u": 1}, {"u": "a"}, {"u": 3}]),
    ("list-view-struct", sa.list_view(_POINT), [[{"x": 1, "y": 2.0}], [], [{"x": 2, "y": 3.0}]]),
]


def _variants(name: str, type: Any, values: list[Any]) -> Iterable[Case]:
    yield Case(name, type, values)
    nulls = [item for value in values for item in (value, None)]
    yield Case(f"{name}-nulls", type, nulls[:-1])
    yield Case(f"{name}-all-null", type, [None] * 9)
    yield Case(f"{name}-empty", type, [])


# --- the worked examples of the columnar specification ------------------------------------------------------------

_INT8S = "0c f9 19 00 81 7f 32"

SPECIFIED = [
    Case(
        "spec-int32",
        sa.int32(),
        [1, None, 2, 4, 8],
        Physical(5, ["1d", pack("i", 1, None, 2, 4, 8)], 1),
    ),
    Case("spec-int32-no-null", sa.int32(), [1, 2, 3, 4, 8], Physical(5, [None, pack("i", 1, 2, 3, 4, 8)])),
    Case(
        "spec-int32-bitmap-of-ones",
        sa.int32(),
        [1, 2, 3, 4, 8],
        Physical(5, ["1f", pack("i", 1, 2, 3, 4, 8)]),
        from_values=False,
    ),
    Case(
        "spec-binary",
        sa.binary(),
        [b"joe", None, None, b"mark"],
        Physical(4, ["09", pack("i", 0, 3, 3, 3, 7), text("joemark")], 2),
    ),
    Case(
        "spec-list-int8",
        sa.list_(sa.int8()),
        [[12, -7, 25], None, [0, -127, 127, 50], []],
        Physical(4, ["0d", pack("i", 0, 3, 3, 7, 7)], 1, [Physical(7, [None, _INT8S])]),
    ),
    Case(
        "spec-list-list-int8",
        sa.list_(sa.list_(sa.int8())),
        [[[1, 2], [3, 4]], [[5, 6, 7], None, [8]], [[9, 10]]],
        Physical(
            3,
            [None, pack("i", 0, 2, 5, 6)],
            0,
            [Physical(6, ["37", pack("i", 0, 2, 4, 7, 7, 8, 10)], 1, [Physical(10, [None, pack("b", *range(1, 11))])])],
        ),
    ),
    Case(
        "spec-list-view-int8",
        sa.list_view(sa.int8()),
        [[12, -7, 25], None, [0, -127, 127, 50], []],
        Physical(4, ["0d", pack("i", 0, 7, 3, 0), pack("i", 3, 0, 4, 0)], 1, [Physical(7, [None, _INT8S])]),
        from_values=False,
    ),
    Case(
        "spec-list-view-int8-shared",
        sa.list_view(sa.int8()),
        [[12, -7, 25], None, [0, -127, 127, 50], [], [50, 12]],
        Physical(
            5,
            ["1d", pack("i", 4, 7, 0, 0, 3), pack("i", 3, 0, 4, 0, 2)],
            1,
            [Physical(7, [None, "00 81 7f 32 0c f9 19"])],
        ),
        from_values=False,
    ),
    Case(
        "spec-fixed-size-list",
        sa.list_(sa.uint8(), 4),
        [[192, 168, 0, 12], None, [192, 168, 0, 25], [192, 168, 0, 1]],
        Physical(
            4,
            ["0d"],
            1,
            [Physical(16, [None, pack("B", 192, 168, 0, 12, *[None] * 4, 192, 168, 0, 25, 192, 168, 0, 1)])],
        ),
        from_values=False,
    ),
    Case(
        "spec-struct",
        sa.struct({"name": sa.binary(), "age": sa.int32()}),
        [{"name": b"joe", "age": 1}, {"name": None, "age": 2}, None, {"name": b"mark", "age": 4}],
        Physical(
            4,
            ["0b"],
            1,
            [
                Physical(4, ["0d", pack("i", 0, 3, 3, 8, 12), text("joealicemark")], 1),
                Physical(4, ["0b", pack("i", 1, 2, None, 4)], 1),
            ],
        ),
        from_values=False,
    ),
    Case(
        "spec-dense-union",
        sa.dense_union({"f": sa.float32(), "i": sa.int32()}),
        [1.2000000476837158, None, 3.4000000953674316, 5],
        Physical(
            4,
            ["00 00 00 01", pack("i", 0, 1, 2, 0)],
            0,
            [Physical(3, ["05", pack("f", 1.2, None, 3.4)], 1), Physical(1, [None, pack("i", 5)])],
        ),
        from_values=False,
    ),
    Case(
        "spec-sparse-union",
        sa.sparse_union({"i": sa.int32(), "f": sa.float32(), "s": sa.binary()}),
        [5, 1.2000000476837158, b"joe", 3.4000000953674316, 4, b"mark"],
        Physical(
            6,
            ["00 01 02 01 00 02"],
            0,
            [
                Physical(6, ["11", pack("i", 5, None, None, None, 4, None)], 4),
                Physical(6, ["0a", pack("f", None, 1.2, None, 3.4, None, None)], 4),
                Physical(6, ["24", pack("i", 0, 0, 0, 3, 3, 3, 7), text("joemark")], 4),
            ],
        ),
    ),
    Case("spec-null", sa.null(), [None, None, None], Physical(3, [], 3)),
    Case(
        "spec-dictionary",
        sa.dictionary(sa.int32(), sa.binary()),
        [b"foo", b"bar", b"foo", b"bar", None, b"baz"],
        Physical(
            6,
            ["2f", pack("i", 0, 1, 0, 1, None, 2)],
            1,
            dictionary=Physical(3, [None, pack("i", 0, 3, 6, 9), text("foobarbaz")]),
        ),
    ),
    Case(
        "spec-dictionary-repeats-and-null",
        sa.dictionary(sa.int32(), sa.binary()),
        [b"foo", b"bar", b"foo", b"bar", None, b"baz"],
        Physical(
            6,
            [None, pack("i", 0, 1, 3, 1, 4, 2)],
            dictionary=Physical(5, ["0f", pack("i", 0, 3, 6, 9, 12, 12), text("foobarbazfoo")], 1),
        ),
        from_values=False,
    ),
    Case(
        "spec-run-end-encoded",
        sa.run_end_encoded(sa.int32(), sa.float32()),
        [1.0, 1.0, 1.0, 1.0, None, None, 2.0],
        Physical(
            7, [], 0, [Physical(3, [None, pack("i", 4, 6, 7)]), Physical(3, ["05", pack("f", 1.0, None, 2.0)], 1)]
        ),
    ),
    Case(
        "spec-string-view",
        sa.string_view(),
        ["short", None, "exactly12byt", "longer than twelve"],
        Physical(
            4,
            [
                "0d",
                " ".join(
                    [
                        pack("i", 5) + text("short") + "00" * 7,
                        ".." * 16,
                        pack("i", 12) + text("exactly12byt"),
                        pack("i", 18) + text("long") + pack("i", 0) + pack("i", 0),
                    ]
                ),
                text("longer than twelve"),
            ],
            1,
        ),
    ),
]
"""What the document shows, and for views, which it describes in words, what the words say."""

# --- arrays that Python values do not lead to -------------------------------------------------------------------

ODD = [
    Case(
        "odd-offsets-from-3",
        sa.string(),
        ["bc", "", "d"],
        Physical(3, [None, pack("i", 3, 5, 5, 6), text("???bcd???")]),
    ),
    Case(
        "odd-null-slots-hold-bytes",
        sa.string(),
        ["a", None, "c"],
        Physical(3, ["05", pack("i", 0, 1, 4, 5), text(b"a\xff\xff\xffc")], 1),
    ),
    Case(
        "odd-offset-11",
        sa.int16(),
        [11, None, 13],
        Physical(3, ["00 28", pack("h", *[None] * 11, 11, None, 13)], 1, offset=11),
    ),
    Case("odd-bool-offset-5", sa.bool_(), [True, False, None, True], Physical(4, ["60 01", "20 01"], 1, offset=5)),
    Case("odd-no-offsets-buffer", sa.string(), [], Physical(0, [None, "", ""])),
    Case("odd-list-no-offsets-buffer", sa.list_(sa.int8()), [], Physical(0, [None, ""], 0, [Physical(0, [None, ""])])),
    Case(
        "odd-struct-offset",
        sa.struct({"a": sa.int8(), "b": sa.string()}),
        [{"a": 3, "b": "c"}, None],
        Physical(
            2,
            ["07"],
            1,
            [Physical(4, [None, "01 02 03 04"]), Physical(4, [None, pack("i", 0, 1, 2, 3, 4), text("abcd")])],
            offset=2,
        ),
    ),
    Case(
        "odd-child-with-offset",
        sa.struct({"a": sa.int8()}),
        [{"a": 2}, {"a": 3}],
        Physical(2, [None], 0, [Physical(3, [None, "00 01 02 03"], offset=1)], offset=1),
    ),
    Case(
        "odd-fixed-size-list-offset",
        sa.list_(sa.int8(), 2),
        [[3, 4], [5, 6]],
        Physical(2, [None], 0, [Physical(7, [None, "01 02 03 04 05 06 07"])], offset=1),
    ),
    Case(
        "odd-sparse-union-offset",
        sa.sparse_union(_PLAIN_UNION, [4, 9]),
        [2, "c"],
        Physical(
            2,
            ["09 04 09"],
            0,
            [Physical(3, [None, pack("i", 1, 2, 3)]), Physical(3, [None, pack("i", 0, 1, 2, 3), text("abc")])],
            offset=1,
        ),
    ),
    Case(
        "odd-dense-union-offset",
        sa.dense_union(_PLAIN_UNION, [4, 9]),
        [2, "a"],
        Physical(
            2,
            ["04 04 09", pack("i", 0, 1, 0)],
            0,
            [Physical(2, [None, pack("i", 1, 2)]), Physical(1, [None, pack("i", 0, 1), text("a")])],
            offset=1,
        ),
    ),
    Case(
        "odd-ree-offset",
        sa.run_end_encoded(sa.int16(), sa.string()),
        ["b", "b", None, "d"],
        Physical(
            4,
            [],
            0,
            [Physical(4, [None, pack("h", 2, 5, 6, 9)]), Physical(4, ["0b", pack("i", 0, 1, 2, 2, 3), text("abd")], 1)],
            offset=3,
        ),
    ),
    Case(
        "odd-two-data-buffers",
        sa.string_view(),
        ["the second of the two", "the first of the two", "second of the two"],
        Physical(
            3,
            [
                None,
                pack("i", 21) + text("the ") + pack("i", 1, 0) + " "
                + pack("i", 20) + text("the ") + pack("i", 0, 2) + " "
                + pack("i", 17) + text("seco") + pack("i", 1, 4),
                text("??the first of the two"),
                text("the second of the two"),
            ],
        ),
    ),
    Case(
        "odd-list-view-overlapping-large",
        sa.large_list_view(sa.string()),
        [["b", "c"], ["a", "b"], [], None, ["c"]],
        Physical(
            5,
            ["17", pack("q", 1, 0, 3, 0, 2), pack("q", 2, 2, 0, 0, 1)],
            1,
            [Physical(3, [None, pack("i", 0, 1, 2, 3), text("abc")])],
        ),
    ),
    Case(
        "odd-dictionary-offset",
        sa.dictionary(sa.uint8(), sa.string()),
        ["c", None, "b"],
        Physical(
            3,
            ["34", "00 00 01 ff 00 00"],
            1,
            dictionary=Physical(2, [None, pack("i", 0, 1, 2, 3), text("abc")], offset=1),
            offset=2,
        ),
    ),
]  # fmt: skip
"""What may come from elsewhere: offsets, gaps, bytes in null slots, no offsets at all, shared values."""

CASES: list[Case] = [case for row in TYPES for case in _variants(*row)] + SPECIFIED + ODD


def by_name(name: str) -> Case:
    """One case."""
    return next(case for case in CASES if case.name == name)


def ids(cases: Sequence[Case]) -> list[str]:
    """The names of cases, as ids of parametrized tests."""
    return [case.name for case in cases]
