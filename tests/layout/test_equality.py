"""Equality under the mask: what null slots hold never matters, what valid slots hold always does."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from typing import Any

import numpy as np
import pytest
from cases.definition import Case
from cases.table import CASES
from every import every
from hypothesis import given, settings
from hypothesis import strategies as st
from measures import most_memory
from parts import changed, own_buffers

import shmarrow as sa
from shmarrow import bitmap

pa = pytest.importorskip("pyarrow")

NAN = float("nan")


@every(CASES)
def test_copies_are_equal_and_slices_are_not(case: Case) -> None:
    """However an array came to be: built again, gathered, joined and sliced, trimmed, at any bit of its bitmaps."""
    array, again = case.array(), case.array()
    values = array.to_pylist()
    reflexive = re.search(r"\bnan\b", repr(values)) is None
    assert array.equals(again) == reflexive
    length = len(array)
    assert array.equals(array.take(np.arange(length))) == reflexive
    for shift in (1, 3, 8):
        front = array.take(np.zeros(shift, "i8")) if length else array
        moved = sa.concat_arrays([front, again]).slice(len(front))
        assert array.equals(moved) == reflexive
        assert moved.equals(array) == reflexive
    assert array != values
    assert array != sa.nulls(length, sa.int8() if case.type != sa.int8() else sa.int16())
    assert array.slice(0, 0) == array.slice(length)
    if length:
        assert not array.equals(array.slice(1))
        assert not array.equals(array.take(np.append(np.arange(length), 0)))


TYPES: dict[str, tuple[Any, list[Any]]] = {
    "bool": (sa.bool_(), [True, False, True]),
    "int8": (sa.int8(), [1, 2, 3]),
    "uint64": (sa.uint64(), [1, 1 << 63, 3]),
    "double": (sa.float64(), [0.5, 1.5, 2.5]),
    "decimal32": (sa.decimal32(5, 1), [decimal.Decimal("1.5"), decimal.Decimal(2), decimal.Decimal(-3)]),
    "decimal128": (sa.decimal128(30, 1), [decimal.Decimal("1.5"), decimal.Decimal("1e25"), decimal.Decimal(-3)]),
    "decimal256": (sa.decimal256(60, 0), [decimal.Decimal("1"), decimal.Decimal("1e50"), decimal.Decimal(-3)]),
    "date": (sa.date32(), [dt.date(2020, 1, day) for day in (1, 2, 3)]),
    "interval": (sa.month_day_nano_interval(), [(1, 2, 3), (4, 5, 6), (1, 2, 4)]),
    "day-time": (sa.day_time_interval(), [(1, 2), (4, 5), (1, 3)]),
    "fixed-binary": (sa.binary(3), [b"abc", b"abd", b"xyz"]),
    "fixed-binary-8": (sa.binary(8), [b"abcdefgh", b"abcdefgi", b"xbcdefgh"]),
    "string": (sa.string(), ["", "ab", "a long string of more than eight bytes"]),
    "large-binary": (sa.large_binary(), [b"", b"ab", b"abc"]),
    "string-view": (sa.string_view(), ["short", "a longer string", "a longer strinG"]),
    "binary-view": (sa.binary_view(), [b"", b"twelve bytes", b"thirteen byte"]),
    "list": (sa.list_(sa.int8()), [[1], [], [1, 2, 3]]),
    "list-of-strings": (sa.large_list(sa.string()), [["a"], [None, "b"], []]),
    "list-view": (sa.list_view(sa.int8()), [[1], [], [1, 2, 3]]),
    "fixed-list": (sa.list_(sa.int8(), 2), [[1, 2], [3, None], [5, 6]]),
    "struct": (
        sa.struct({"a": sa.int8(), "s": sa.string()}), [{"a": 1, "s": "x"}, {"a": None, "s": "y"}, {"a": 1, "s": "z"}]
    ),
    "map": (sa.map_(sa.string(), sa.int8()), [{"a": 1}, {}, {"a": 2, "b": None}]),
    "dictionary": (sa.dictionary(sa.int8(), sa.string()), ["a", "b", "a"]),
    "nested": (
        sa.list_(sa.struct({"l": sa.list_(sa.string_view())})), [[{"l": ["a"]}], [], [{"l": None}, {"l": ["b", None]}]]
    ),
}  # fmt: skip


def masked(values: list[Any], type: Any, valid: list[bool]) -> Any:
    """An array whose null slots hold the values that they are given."""
    array = sa.array(values, type).trim()
    return changed(array, buffers=[np.packbits(valid, bitorder="little"), *own_buffers(array)[1:]], null_count=-1)


@pytest.mark.parametrize("name", TYPES)
def test_what_null_slots_hold_does_not_matter(name: str) -> None:
    type, (first, second, third) = TYPES[name]
    valid = [True, False, True] * 5
    left = masked([first, second, third] * 5, type, valid)
    right = masked([first, third, third] * 5, type, valid)
    left.validate(full=True)
    assert left.to_pylist() == right.to_pylist()
    assert left.equals(right)
    assert right.equals(left)
    for start in range(1, 10):
        assert left.slice(start, 5).equals(right.slice(start, 5))
    other = masked([first, second, second] * 5, type, valid)
    if second != third:
        assert not left.equals(other)
        assert not other.equals(left)
    assert not left.equals(masked([first, second, third] * 5, type, [True, True, True] * 5))
    assert not left.equals(masked([first, second, third] * 5, type, [True, True, False] * 5))
    assert left.equals(sa.array([first, None, third] * 5, type))


@pytest.mark.parametrize("value_type", [sa.string(), sa.int64(), sa.struct({"a": sa.int8()})], ids=str)
def test_a_null_in_a_dictionary_is_a_null_index(value_type: Any) -> None:
    """As ``is_null``, ``to_pylist`` and ``diff`` have it."""
    one = {"a": 1} if value_type == sa.struct({"a": sa.int8()}) else "1" if value_type == sa.string() else 1
    values = sa.array([one, None], value_type)
    forms = [
        sa.DictionaryArray.from_arrays([0, 1, 0, 1], values),
        sa.DictionaryArray.from_arrays([0, None, 0, 1], values),
        sa.DictionaryArray.from_arrays([0, None, 0, None], values.slice(0, 1)),
        sa.DictionaryArray.from_arrays([0, 0, 1, 0, 1], values).slice(1),
    ]
    other = sa.DictionaryArray.from_arrays([0, 1, 0, 0], values)
    for left in forms:
        for right in forms:
            assert left.equals(right)
            assert sa.chunked_array([left]).equals(sa.chunked_array([right.slice(0, 1), right.slice(1)]))
            assert sa.table({"x": left}) == sa.table({"x": right})
            lists = [sa.ListArray.from_arrays([0, 2, 4], each) for each in (left, right)]
            assert lists[0].equals(lists[1])
            structs = [sa.StructArray.from_arrays([each], ["d"]) for each in (left, right)]
            assert structs[0].equals(structs[1])
        assert not left.equals(other)
        assert not other.equals(left)


@pytest.mark.parametrize("name", TYPES)
def test_the_same_under_a_struct_a_union_and_runs(name: str) -> None:
    type, (first, second, third) = TYPES[name]
    valid = np.array([True, False, True])
    outer = sa.struct({"c": type})

    def struct(values: list[Any]) -> Any:
        return sa.StructArray.from_arrays([sa.array(values, type)], type=outer, mask=~valid)

    assert struct([first, second, third]).equals(struct([first, third, third]))
    assert not struct([first, second, third]).equals(struct([first, second, second]))

    def union(values: list[Any]) -> Any:
        made = sa.sparse_union({"c": type, "n": sa.int8()})
        return sa.UnionArray.from_sparse([0, 1, 0], [sa.array(values, type), sa.array([0, 1, 2], "int8")], type=made)

    assert union([first, second, third]).equals(union([first, third, third]))
    assert not union([first, second, third]).equals(union([first, second, second]))

    def dense(values: list[Any], offsets: list[int]) -> Any:
        return sa.UnionArray.from_dense(
            [0] * len(offsets), offsets, [sa.array(values, type)], type=sa.dense_union({"c": type})
        )

    assert dense([first, second, third], [0, 2]).equals(dense([first, third], [0, 1]))
    assert not dense([first, second, third], [0, 1]).equals(dense([first, third], [0, 1]))
    ends = sa.array([2, 5, 6], "int32")
    runs = sa.RunEndEncodedArray.from_arrays(ends, sa.array([first, second, third], type))
    split = sa.RunEndEncodedArray.from_arrays(
        sa.array([1, 2, 4, 5, 6], "int32"), sa.array([first, first, second, second, third], type)
    )
    assert runs.equals(split)
    assert runs.slice(1, 3).equals(split.slice(1, 3))
    assert not runs.slice(1).equals(split.slice(0, 5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: sa.array([1.0, NAN]),
        lambda: sa.array([NAN, 1.0], sa.dictionary(sa.int8(), sa.float64())),
        lambda: sa.array([NAN, 1.0], sa.run_end_encoded(sa.int32(), sa.float64())),
        lambda: sa.array([[NAN]], sa.list_(sa.dictionary(sa.int8(), sa.float32()))),
        lambda: sa.array([{"k": NAN}], sa.map_(sa.string(), sa.float16())),
    ],
)
def test_nan_equals_nothing_in_any_form(make: Any) -> None:
    """An array with NaN is not even equal to itself, as in pyarrow; a dictionary's encoded form is no exception."""
    array = make()
    assert not array.equals(array)
    assert not array.equals(make())
    assert not array.equals(array.slice(0))
    assert not array.slice(0, 0).equals(array)
    assert array.slice(0, 0).equals(array.slice(0, 0))


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 9, 12, 13, 15, 16, 17, 24, 31, 100, 1024, 1025, 3000])
@pytest.mark.parametrize("make", [sa.binary, sa.binary_view])
def test_any_byte_of_a_value_counts(make: Any, length: int) -> None:
    """Values of all lengths, in stretches without gaps and with them."""
    value = bytes(i % 251 + 1 for i in range(length))
    rows = [value, b"between", value, b"", value] * 8
    left = sa.array(rows, make())
    picks = np.arange(len(rows))[::-1]
    scattered = left.take(picks)
    assert scattered.to_pylist() == rows[::-1]
    assert scattered.take(picks).equals(left)
    gaps = masked(rows, make(), [i % 3 > 0 for i in range(len(rows))])
    others = masked(
        [row if i % 3 else b"x" * (i % 5) for i, row in enumerate(rows)], make(), [i % 3 > 0 for i in range(len(rows))]
    )
    assert gaps.equals(others)
    assert gaps.cast(sa.large_binary()).equals(others.cast(sa.large_binary()))
    assert gaps.cast(sa.binary_view()).cast(sa.binary()).to_pylist() == gaps.to_pylist()
    for position in sorted({0, 1, 3, 4, 7, 8, 11, 12, length // 2, length - 2, length - 1} & set(range(length))):
        changed = value[:position] + b"\xff" + value[position + 1 :]
        for slot in (4, 39):
            one = [*rows[:slot], changed, *rows[slot + 1 :]]
            assert not left.equals(sa.array(one, make()))
            keep = [i % 3 > 0 for i in range(len(rows))]
            assert gaps.equals(masked(one, make(), keep)) == (not keep[slot])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.binary(min_size=1, max_size=20), st.integers(0, 30), st.integers(0, 30), st.integers(0, 200))
def test_bits(data: bytes, left: int, right: int, length: int) -> None:
    bits = np.unpackbits(np.frombuffer(data * 12, "u1"), bitorder="little")
    length = min(length, len(bits) - 32)
    mine = np.packbits(np.concatenate([np.ones(left, "u1"), bits[:length], np.ones(8, "u1")]), bitorder="little")
    theirs = np.packbits(np.concatenate([np.zeros(right, "u1"), bits[:length], np.zeros(8, "u1")]), bitorder="little")
    assert bitmap.same(mine, left, theirs, right, length)
    for i in {0, length // 2, length - 1} & set(range(length)):
        theirs[(right + i) >> 3] ^= 1 << ((right + i) & 7)
        assert not bitmap.same(mine, left, theirs, right, length)
        theirs[(right + i) >> 3] ^= 1 << ((right + i) & 7)


def test_depth_costs_no_more_than_its_levels() -> None:
    """Each level is compared at most twice, not twice as often as the one above it."""
    type, value = sa.int8(), 1
    for _ in range(40):
        type, value = sa.struct({"c": type}), {"c": value}
    left, right = (sa.array([value, None, value], type).slice(0) for _ in range(2))
    assert left.equals(right)
    deep: Any = 2
    for _ in range(40):
        deep = {"c": deep}
    assert not left.equals(sa.array([value, None, deep], type))


def test_decimals_of_full_width_are_validated_by_words() -> None:
    """At the very bounds of the precision, in every word, as pyarrow's validation has them."""
    for bits, precision in ((128, 20), (128, 38), (128, 19), (256, 39), (256, 57), (256, 76), (256, 20)):
        bound = 10**precision
        numbers = [0, 1, -1, bound - 1, 1 - bound, bound, -bound, bound + 1, -bound - 1, bound << 1, -(bound << 1)]
        numbers += [1 << 64, -(1 << 64), (1 << 64) - 1, -(1 << 64) + 1, (1 << 127) - 1, -(1 << 127)]
        type = getattr(sa, f"decimal{bits}")(precision, 0)
        for number in numbers:
            if not -(1 << bits - 1) <= number < 1 << bits - 1:
                continue
            raw = number.to_bytes(bits // 8, "little", signed=True)
            data = np.frombuffer(bytes(bits // 8) + raw, "u1")
            array = sa.PrimitiveArray(type, 2, [None, data], 0)
            hidden = sa.PrimitiveArray(type, 2, [np.array([1], "u1"), data], 1)
            hidden.validate(full=True)
            if -bound < number < bound:
                array.validate(full=True)
            else:
                with pytest.raises(sa.InvalidData, match=rf"row 1: .*{precision} digits"):
                    array.validate(full=True)


def test_a_slot_beyond_the_first_piece_is_named() -> None:
    """Of views, whose text is checked in pieces."""
    length = (1 << 18) + 5
    views = np.zeros((length, 4), "<i4")
    views[:, 0] = 2
    views[:, 1] = int.from_bytes("é".encode(), "little")
    sa.BinaryViewArray(sa.string_view(), length, [None, views.reshape(-1).view("u1")]).validate(full=True)
    views[-1, 1] = 0xFFFF
    with pytest.raises(sa.InvalidData, match=rf"row {length - 1}: .*not UTF-8"):
        sa.BinaryViewArray(sa.string_view(), length, [None, views.reshape(-1).view("u1")]).validate(full=True)


BIG = "x" * 1_000_000
REPEATED = np.zeros(3000, "i4")


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (([0, 1], ["a", "b"]), ([1, 0], ["b", "c"]), False),
        (([0, 1, 0], ["a", "a"]), ([0, 2, 2], ["a", "b", "a"]), True),
        (([0, 1, 0], ["a", "a"]), ([0, 1, 0], ["a", "b"]), False),
        (([0, None], ["a", "b"]), ([1, 1], ["b", "a"]), False),
        (([None, None], ["a"]), ([None, None], ["b"]), True),
        (([0, 1], [None, "b"]), ([1, 0], ["b", None]), True),
        (([0, 1], [None, "b"]), ([1, 1], ["b", None]), False),
        (([0], [float("nan")]), ([1], [1.0, float("nan")]), False),
        (([0, 0], [1.0, float("nan")]), ([0, 0], [1.0, 2.0]), True),
        (([0, 1], [0.0, -0.0]), ([0, 0], [0.0]), True),
        (([0, 0], [0.0]), ([0, 1], [-0.0, 0.0]), True),
        (([0, 0], [0.0]), ([0, 1], [-0.0, 1.0]), False),
        (([], ["a"]), ([], ["b"]), True),
    ],
)
def test_dictionaries_are_equal_where_their_values_are(left: Any, right: Any, equal: bool) -> None:
    one, other = (
        sa.DictionaryArray.from_arrays(sa.array(indices, sa.int8()), sa.array(values))
        for indices, values in (left, right)
    )
    assert one.equals(other) is equal
    assert other.equals(one) is equal
    long = sa.array(["y"] * 100, one.type) if one.type.value_type == sa.string() else None
    if long is not None:  # a dictionary that is much longer than the array
        more = sa.concat_arrays([other.dictionary, sa.array([f"v{i}" for i in range(100)])])
        wide = sa.DictionaryArray.from_arrays(other.indices, more)
        assert one.equals(wide) is equal
        assert wide.equals(one) is equal


@pytest.mark.parametrize("right", [[BIG, "b"], ["b", BIG]], ids=["same place", "other place"])
def test_equality_of_dictionaries_looks_at_each_value_once(right: list[str]) -> None:
    one = sa.DictionaryArray.from_arrays(REPEATED, [BIG, "a"])
    other = sa.DictionaryArray.from_arrays(REPEATED + right.index(BIG), right)
    longer = sa.DictionaryArray.from_arrays(REPEATED, [BIG + "x", "a"])
    for array, equal in ((other, True), (longer, False)):
        found, peak = most_memory(lambda array=array: one.equals(array))
        assert found is equal
        assert peak < 20_000_000


def test_equality_of_one_dictionary_with_repeated_values() -> None:
    dictionary = sa.array([BIG, BIG])
    one = sa.DictionaryArray.from_arrays(REPEATED, dictionary)
    other = sa.DictionaryArray.from_arrays(REPEATED + 1, dictionary)
    found, peak = most_memory(lambda: one.equals(other))
    assert found is True
    assert peak < 20_000_000
