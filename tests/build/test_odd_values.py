"""Each of many Python objects as a value of each type: it comes out equal, or is refused by one of our errors.

pyarrow is the peer: both take a value and hold the same, or both refuse it, but for the differences listed here.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from cases import strategies as own

import shmarrow as sa
from shmarrow.types import EncodedType, ExtensionType, FixedSizeBinaryType

pd = pytest.importorskip("pandas", reason="the package pandas is not installed")

_HOURS = dt.timezone(dt.timedelta(hours=5))

OBJECTS: list[Any] = [
    # numbers
    True, False, 0, 1, -1, 127, 128, 255, 256, -128, -129, 2**15, 2**24 + 1, 2**31 - 1, 2**31, 2**53, 2**53 + 1,
    2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**40, 10**400,
    0.0, -0.0, 0.5, 1.0, 1.5, 65504.0, 65520.0, 1e6, 1e300, 5e-324, float("inf"), float("nan"), 2.0**53, 1e19, 0.1,
    np.int8(5), np.uint64(2**64 - 1), np.float16(1.5), np.float32(0.1), np.float64(2.5), np.bool_(True),
    np.longdouble(1.5), 1 + 2j, Decimal(0), Decimal(1), Decimal("1.5"), Decimal("1.23456789"), Decimal("NaN"),
    Decimal("Infinity"), Decimal("1E+5"), Decimal(-99999),
    # text and bytes
    "", "a", "abc", "1", "\ud800", "é", b"", b"abc", b"\xff", bytearray(b"abc"), memoryview(b"abc"), np.str_("x"),
    np.bytes_(b"x"), uuid.UUID(int=5),
    # dates and times
    dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31),
    dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 12, 30, 15, 123456),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 1, 1, 0, 0, 0, 1000),
    dt.datetime(2024, 3, 31, 2, 30, tzinfo=own.zone("Europe/Berlin")),  # a time that clocks leap over
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=own.zone("Europe/Berlin")),  # a time that clocks show twice
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=own.zone("Europe/Berlin"), fold=1),
    dt.datetime(2024, 1, 1, tzinfo=_HOURS), dt.datetime(1, 1, 1, tzinfo=_HOURS),
    dt.datetime(9999, 12, 31, 23, tzinfo=dt.timezone(-dt.timedelta(hours=5))),
    dt.time(0), dt.time(12, 30, 15), dt.time(12, 30, 15, 123000), dt.time(23, 59, 59, 999999),
    dt.time(1, tzinfo=dt.UTC),
    dt.timedelta(0), dt.timedelta(1), dt.timedelta(microseconds=1), dt.timedelta(-1, 3, 4), dt.timedelta.max,
    dt.timedelta.min, np.datetime64("2024-01-01"), np.datetime64("2024-01-01T00:00:01"),
    np.datetime64("2024-01-01T00:00:00.000000001"), np.datetime64("NaT"), np.datetime64("NaT", "s"),
    np.datetime64(10**10, "D"), np.timedelta64(5, "s"), np.timedelta64(5, "ns"), np.timedelta64(1, "D"),
    np.timedelta64("NaT"), pd.Timestamp("2024-01-01T00:00:00.000000001"), pd.Timestamp("2024-01-01", tz="UTC"),
    pd.Timedelta(5, "ns"), pd.Timedelta(5, "s"), pd.NaT, pd.NA,
    # several values, and what is no value
    [], [1], [None], (1, 2), (1, 2, 3), {}, {"a": 1}, {1}, np.array([1, 2]), np.array(1), range(2), [1, "a"], [[1]],
    [(1, 2)], [("a", 1)], object(), type, ..., np.array(["a"]), np.void(b"abc"), Exception("x"),
]  # fmt: skip

TYPES = [
    *own.PLAIN,
    sa.decimal32(5, 2), sa.decimal64(18, 0), sa.decimal128(38, 10), sa.decimal256(76, 2), sa.decimal128(5, -3),
    sa.binary(3), sa.binary(0), *[sa.timestamp(unit) for unit in own.UNITS], sa.timestamp("us", "UTC"),
    sa.timestamp("s", "Europe/Berlin"), sa.timestamp("ms", "+05:30"), sa.uuid(), sa.bool8(), sa.json_(),
    sa.list_(sa.int8()), sa.list_(sa.int8(), 2), sa.struct({"a": sa.int8()}), sa.map_(sa.int8(), sa.int8()),
    sa.dictionary(sa.int8(), sa.string()), sa.dictionary(sa.int8(), sa.int64()), sa.list_view(sa.string()),
    sa.struct({"a": sa.int8(), "b": sa.string()}), sa.run_end_encoded(sa.int16(), sa.int8()),
    sa.dense_union({"a": sa.int8(), "b": sa.string()}),
]  # fmt: skip


def family(type: Any) -> str:
    """Return the kind of a type's values."""
    if isinstance(type, ExtensionType):
        return type.extension_name.removeprefix("arrow.")
    if isinstance(type, EncodedType):
        return family(type.value_type)
    if isinstance(type, FixedSizeBinaryType) or hasattr(type, "text"):
        return "text" if getattr(type, "text", False) else "bytes"
    return type.descriptor.values or type.layout


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or its error."""
    try:
        return call()
    except Exception as error:
        return error


CLOCKS = "date time timestamp timedelta"
NUMBERS = "integer bool8"
MISSING = "NaTType NAType datetime64 timedelta64"
FRACTIONS = "float float16 float32 float64 longdouble Decimal"


class Difference(NamedTuple):
    """What only one of both takes: values of some classes as types of some families; all where none is named."""

    families: str
    classes: str
    reason: str

    def explains(self, type: Any, value: Any) -> bool:
        return (not self.families or family(type) in self.families.split()) and (
            not self.classes or value.__class__.__name__ in self.classes.split()
        )


BINARY = "bytes bytes_ bytearray memoryview"
REFUSED_HERE = [
    Difference(f"{NUMBERS} {CLOCKS}", f"{FRACTIONS} UUID ndarray bool", "pyarrow calls int() on it: fractions are cut"),
    Difference(NUMBERS, "datetime64 timedelta64", "pyarrow takes the number of any unit"),
    Difference("float", "bool bool_", "a truth value is no number"),
    Difference("float", "float int uint64", "pyarrow makes infinity of what is too large, and -1.0 of a uint64"),
    Difference("date time", "int int8", "pyarrow takes numbers outside of the range, and that are no whole days"),
    Difference("text json", BINARY, "bytes are not text until they are decoded"),
    Difference("bytes", "str str_", "text has no bytes until it is encoded"),
    Difference("list fixed_size_list list_view", f"str str_ {BINARY} void", "text and bytes are no lists"),
    Difference("fixed_size_list", "set", "pyarrow gives a list of another length"),
    Difference("struct", "str str_ bytes bytes_ list tuple ndarray range void", "pyarrow makes a struct of nulls"),
    Difference("interval", "timedelta Timedelta", "a time span has no months and days"),
    Difference("timestamp", "datetime Timestamp", "pyarrow takes a moment without a time zone as UTC, or drops one"),
    Difference(
        CLOCKS,
        "datetime time timedelta timedelta64 datetime64 Timestamp Timedelta",
        "pyarrow cuts what the unit cannot hold, or takes the number of any unit",
    ),
]
TAKEN_HERE = [
    Difference("", MISSING, "missing values of pandas and numpy are null in every type"),
    Difference("bool8", "bool bool_", "pyarrow takes its integers only"),
    Difference("decimal timestamp timedelta", "int8 uint64", "pyarrow takes Python's integers only"),
    Difference("float", "float32 longdouble int", "pyarrow takes Python's floats, and integers of 64 bits"),
    Difference("struct", "list tuple", "values in the order of the fields"),
    Difference("timestamp", "date", "the midnight that a day starts with"),
    Difference(CLOCKS, "datetime64 timedelta64 Timedelta", "units are converted"),
]
UNLIKE = {
    ("date", "NaTType"): "pyarrow takes NaT for the first day of the year 1",
    ("date", "datetime64"): "pyarrow wraps numbers of days that are too large",
    ("float", "uint64"): "pyarrow gives -1.0",
}


def has_peer(type: Any) -> bool:
    """Whether pyarrow can be asked: it has neither of two interval types, nor unions of values, and null keys of maps
    make it end the process.
    """
    return str(type) not in ("month_interval", "day_time_interval") and type.layout not in ("map", "dense_union")


class Found(NamedTuple):
    """Build a value with both libraries, and compare."""

    type: Any
    value: Any
    ours: Any
    theirs: Any

    @property
    def differences(self) -> list[Difference]:
        """The rows that may explain that one of both refuses the value."""
        rows = {(True, False): REFUSED_HERE, (False, True): TAKEN_HERE}
        here = rows.get((isinstance(self.ours, Exception), isinstance(self.theirs, Exception)), [])
        return [row for row in here if row.explains(self.type, self.value)]

    def wrong(self) -> str | None:
        """Return the difference; None if there is none."""
        ours, theirs = self.ours, self.theirs
        if isinstance(ours, Exception):
            if not isinstance(ours, sa.ShmarrowError):
                return "another exception than ours"
        elif isinstance(broken := outcome(lambda: ours.validate(full=True)), Exception) and family(self.type) != "json":
            return f"an array that is not valid: {broken}"
        elif self.value.__class__.__name__ in ("NAType", "NaTType") and ours.to_pylist() != [None]:
            return "a missing value that is not null"
        if theirs is None:
            return None
        if isinstance(ours, Exception) != isinstance(theirs, Exception):
            return None if self.differences else "only one of both takes it"
        if isinstance(ours, Exception) or (family(self.type), self.value.__class__.__name__) in UNLIKE:
            return None
        same = str(self.value) == "nan" or sa.array(theirs).equals(ours)
        return None if same else "another value"


def tried(type: Any) -> list[Found]:
    """Each object as a value of a type, here and with pyarrow where it can be asked."""
    peer = type.to_pyarrow() if has_peer(type) else None
    return [
        Found(
            type,
            value,
            outcome(lambda value=value: sa.array([value], type)),
            None if peer is None else outcome(lambda value=value: pa.array([value], peer)),
        )
        for value in OBJECTS
    ]


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_a_value_is_held_as_pyarrow_holds_it_or_refused(type: Any) -> None:
    assert [(found, wrong) for found in tried(type) if (wrong := found.wrong())] == []


def test_every_difference_is_one() -> None:
    met = {row for type in TYPES for found in tried(type) for row in found.differences}
    assert [row for row in (*REFUSED_HERE, *TAKEN_HERE) if row not in met] == []
