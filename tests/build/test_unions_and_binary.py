"""Unions and binary from Python values: a value that goes in comes out the same, or an error names it."""

from __future__ import annotations

import datetime as dt
import decimal
import time
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shmarrow as sa

pa = pytest.importorskip("pyarrow")


# --- unions from Python values ----------------------------------------------------------------------------------

MOMENT = dt.datetime(2020, 2, 29, 13, 5)
AWARE = MOMENT.replace(tzinfo=dt.UTC)
SHORT = dt.timedelta(microseconds=1)
FULL = {
    "date": sa.date32(), "second": sa.timestamp("s"), "moment": sa.timestamp("us"), "zoned": sa.timestamp("us", "UTC"),
    "small": sa.int8(), "int": sa.int64(), "single": sa.float32(), "double": sa.float64(), "truth": sa.bool_(),
    "text": sa.string(), "bytes": sa.binary(), "money": sa.decimal128(9, 2), "time": sa.time64("us"),
    "span": sa.duration("us"), "list": sa.list_(sa.float64()), "ints": sa.list_(sa.int64()),
    "struct": sa.struct({"a": sa.int8(), "b": sa.string()}), "map": sa.map_(sa.string(), sa.int64()),
}  # fmt: skip

HELD: list[tuple[Any, str]] = [
    (MOMENT, "second moment"), (MOMENT + SHORT, "moment"), (AWARE, "zoned"), (MOMENT.date(), "date"),
    (5, "small int single double money"), (300, "int single double money"), (1 << 40, "int single double"),
    ((1 << 53) + 1, "int"), (1 << 60, "int single double"), (0.5, "single double"), (0.1, "double"),
    (5.0, "single double"),
    (float("inf"), "single double"), (np.float32(0.1), "single double"), (np.int8(3), "small int single double money"),
    (True, "truth"), (np.bool_(False), "truth"), ("1", "text"), (b"1", "bytes"), (bytearray(b"1"), "bytes"),
    (decimal.Decimal("1.50"), "money"), (dt.time(1, 2, 3), "time"), (SHORT, "span"), ([0.5], "list"),
    ([1], "list ints"), ([1, 0.5], "list"), ([], "list ints map"), ((1, 2), "list ints"), ((3, "x"), "struct"),
    ({"a": 1, "b": "x"}, "struct"), ({"a": 1000}, "map"), ({"other": 1}, "map"), ({"a": 1}, "struct map"),
    (np.array([1, 2]), "list ints"),
]  # fmt: skip
"""Values, and the children that hold them exactly."""


@pytest.mark.parametrize("make", [sa.dense_union, sa.sparse_union])
@pytest.mark.parametrize("reverse", [False, True])
def test_each_value_goes_to_the_first_child_that_holds_it(make: Any, reverse: bool) -> None:
    names = list(reversed(FULL)) if reverse else list(FULL)
    array = sa.array([value for value, _ in HELD], make({name: FULL[name] for name in names}))
    array.validate(full=True)
    chosen = [names[code] for code in array.type_ids.tolist()]
    assert chosen == [min(held.split(), key=names.index) for _, held in HELD]
    for (value, _), name, back in zip(HELD, chosen, array.to_pylist(), strict=True):
        if name == "map":
            back = dict(back)
        elif name == "struct":
            value = {"b": None, **(value if isinstance(value, dict) else dict(zip("ab", value, strict=True)))}
        elif isinstance(value, (np.ndarray, tuple)):
            value = list(value)
        elif isinstance(value, np.generic):
            value = value.item()
        assert back == (dict(value) if name == "map" else value)
        assert isinstance(back, bool) == isinstance(value, (bool, np.bool_))


LOSSY: list[tuple[dict[str, Any], Any]] = [
    ({"d": sa.date32(), "s": sa.string()}, MOMENT),
    ({"d": sa.date32()}, dt.datetime(2020, 1, 1)),
    ({"t": sa.timestamp("us")}, MOMENT.date()),
    ({"t": sa.timestamp("us")}, AWARE),
    ({"t": sa.timestamp("s"), "m": sa.timestamp("ms")}, MOMENT + SHORT),
    ({"t": sa.timestamp("s"), "d": sa.date32()}, 5),
    ({"f": sa.float32(), "g": sa.float16()}, 0.1),
    ({"i": sa.int64()}, True),
    ({"i": sa.int64()}, 1.5),
    ({"b": sa.bool_()}, 1),
    ({"m": sa.decimal64(4, 1)}, decimal.Decimal("1.55")),
    ({"b": sa.binary(3)}, b"ab"),
    ({"s": sa.string()}, b"ab"),
    ({"l": sa.list_(sa.date32()), "i": sa.int8()}, [MOMENT]),
    ({"s": sa.struct({"a": sa.int8()}), "m": sa.map_(sa.string(), sa.int8())}, {"a": 300}),
    ({"l": sa.list_(sa.int8(), 2), "i": sa.int8()}, [1]),
    ({"i": sa.int8()}, object()),
]


@pytest.mark.parametrize("make", [sa.dense_union, sa.sparse_union])
@pytest.mark.parametrize(("fields", "value"), LOSSY, ids=map(str, range(len(LOSSY))))
def test_a_value_that_no_child_gives_back_is_refused(make: Any, fields: dict[str, Any], value: Any) -> None:
    for values in ([value], [value, "text", 0]):
        wanted = fields if len(values) == 1 else {**fields, "text": sa.large_string(), "number": sa.uint8()}
        if len(values) == 3 and isinstance(value, (str, int)):
            continue
        with pytest.raises((sa.InvalidType, sa.InvalidData)):
            sa.array(values, make(wanted))


def test_none_goes_where_it_may_be_null() -> None:
    required = sa.field("r", sa.int8(), nullable=False)
    array = sa.array([1, None], sa.dense_union([required, sa.field("s", sa.string())]))
    array.validate(full=True)
    assert array.type_ids.tolist() == [0, 1]
    array = sa.array([1, None], sa.sparse_union([required, sa.field("s", sa.string()), sa.field("n", sa.null())]))
    array.validate(full=True)
    assert array.type_ids.tolist() == [0, 1]
    with pytest.raises(sa.InvalidData, match="'r' is not nullable but has 1 null"):
        sa.array([1, None], sa.dense_union([required])).validate(full=True)


@pytest.mark.parametrize("make", [sa.dense_union, sa.sparse_union])
def test_nulls_of_unions_are_in_a_child_that_may_be_null(make: Any) -> None:
    union = make([sa.field("r", sa.int8(), nullable=False), sa.field("s", sa.string())])
    made = sa.nulls(2, union)
    made.validate(full=True)
    assert made.type_ids.tolist() == [1, 1]
    taken = sa.array([5], union).take([None, 0])
    taken.validate(full=True)
    assert taken.to_pylist() == [None, 5]


def test_spans_of_time_are_no_integers() -> None:
    span = np.timedelta64(5, "ns")
    array = sa.array([span, 7], sa.dense_union({"i": sa.int64(), "d": sa.day_time_interval(), "t": sa.duration("ns")}))
    assert array.type_ids.tolist() == [2, 0]
    with pytest.raises(sa.InvalidType, match="no child can hold"):
        sa.array([span], sa.dense_union({"i": sa.int64(), "f": sa.float64()}))


def test_whole_numbers_are_decimals_or_months() -> None:
    array = sa.array([0, 5], sa.dense_union({"d": sa.decimal64(10, -3), "m": sa.month_interval()}))
    assert array.type_ids.tolist() == [0, 1]
    with pytest.raises(sa.InvalidType, match="no child can hold 5"):
        sa.array([5], sa.dense_union({"t": sa.day_time_interval(), "s": sa.string()}))


def test_slots_below_a_null_may_hold_anything() -> None:
    union = sa.dense_union([sa.field("r", sa.int8(), nullable=False)])
    for outer in (
        sa.list_(sa.field("item", union, nullable=False), 2),
        sa.struct([sa.field("u", union, nullable=False)]),
        sa.dictionary(sa.int8(), union),
    ):
        array = sa.array([None, None], outer)
        array.validate(full=True)
        assert array.to_pylist() == [None, None]


def test_encoded_and_extended_children() -> None:
    key = uuid.UUID(int=5)
    type = sa.dense_union(
        {"key": sa.uuid(), "raw": sa.binary(), "word": sa.dictionary(sa.int8(), sa.string()),
         "runs": sa.run_end_encoded(sa.int32(), sa.int64()), "inner": sa.sparse_union({"d": sa.date32()})}
    )  # fmt: skip
    values = [key, bytes(16), "a", 1, "a", MOMENT.date(), 1, b""]
    array = sa.array(values, type)
    array.validate(full=True)
    assert array.type_ids.tolist() == [0, 1, 2, 3, 2, 4, 3, 1]
    assert array.to_pylist() == values


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 64), 1 << 64), st.floats(allow_nan=False), st.text(max_size=3),
    st.binary(max_size=3), st.datetimes(), st.dates(), st.times(), st.timedeltas(),
    st.decimals(allow_nan=False, places=2),
    st.lists(st.integers(-300, 300) | st.floats(allow_nan=False), max_size=3),
)  # fmt: skip


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(SCALARS, max_size=5), st.lists(st.sampled_from(sorted(FULL)), min_size=1, unique=True), st.booleans())
def test_what_a_union_takes_it_gives_back(values: list[Any], names: list[str], dense: bool) -> None:
    type = (sa.dense_union if dense else sa.sparse_union)({name: FULL[name] for name in names})
    try:
        array = sa.array(values, type)
    except (sa.InvalidType, sa.InvalidData):
        return
    array.validate(full=True)
    back = array.to_pylist()
    assert back == values
    assert [isinstance(value, bool) for value in back] == [isinstance(value, bool) for value in values]


def test_whole_lists_are_converted() -> None:
    """One class of values at a time: one by one, 200,000 values would take many seconds of the processor."""
    values = [[i, f"s{i}", i * 0.5, None][i % 4] for i in range(200_000)]
    start = time.thread_time()
    array = sa.array(values, sa.dense_union({"i": sa.int64(), "s": sa.string(), "f": sa.float64()}))
    assert time.thread_time() - start < 1.5
    assert array[199_998] == 199_998 * 0.5


# --- binary from buffers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sa.binary, sa.large_binary, sa.binary_view])
def test_buffers_are_as_long_as_their_bytes(make: Any) -> None:
    numbers = np.array([1, 2, 3], "<i4")
    values = [memoryview(numbers), b"xyz", None, memoryview(b"abcdef")[::2], bytearray(b"q"), memoryview(numbers[::2])]
    array = sa.array(values, make())
    array.validate(full=True)
    expected = [numbers.tobytes(), b"xyz", None, b"ace", b"q", numbers[::2].tobytes()]
    assert array.to_pylist() == expected
    assert sa.array(values).to_pylist() == expected


def test_buffers_as_values_of_one_width() -> None:
    numbers = np.array([1, 2, 3], "<i4")
    assert sa.array([memoryview(numbers), None], sa.binary(12)).to_pylist() == [numbers.tobytes(), None]
    with pytest.raises(sa.InvalidData, match="expected 3 bytes, found 12"):
        sa.array([memoryview(numbers)], sa.binary(3))
