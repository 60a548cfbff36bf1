"""Loads of a service: values that are repeated many times, large dictionaries, null columns of many rows."""

from __future__ import annotations

import gc
import pickle
import time
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa
from shmarrow.errors import EXPANDED_VALUES

BIG = "x" * 1_000_000
REPEATED = np.zeros(3000, "i4")
N = EXPANDED_VALUES + 100
"""More slots than are made of nothing."""


def most_memory(call: Any) -> tuple[Any, int]:
    """Return the result of a call, and the most bytes that it held."""
    tracemalloc.start()
    try:
        found = call()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds(call: Any) -> float:
    """The least time of some calls, of this thread's processor."""
    taken = []
    for _ in range(5):
        start = time.thread_time()
        call()
        taken.append(time.thread_time() - start)
    return min(taken)


# --- dictionaries: equality ---------------------------------------------------------------------------------------


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


# --- dictionaries and runs: casts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["large_string", "string_view"])
@pytest.mark.parametrize("runs", [False, True], ids=["dictionary", "runs"])
def test_cast_of_repeated_values_goes_through_the_target(target: str, runs: bool) -> None:
    text, count = ("y" * 100_000, 22_000) if target == "string_view" else ("y" * 1_000, 22_000)
    array: Any
    if runs:
        array = sa.RunEndEncodedArray.from_arrays(sa.array([count], sa.int32()), [text])
    else:
        array = sa.DictionaryArray.from_arrays(np.zeros(count, "i4"), [text])
    made = array.cast(target)
    assert made.type == (sa.large_string() if target == "large_string" else sa.string_view())
    assert len(made) == count
    assert made[0] == made[count - 1] == text


def test_cast_of_repeated_values_to_int32_offsets_is_refused() -> None:
    indices = np.zeros(2200, "i4")
    wanted = (
        "string: the result would have 2200000000 bytes; int32 offsets reach 2147483647; cast to large_string first"
    )
    with pytest.raises(sa.InvalidData, match=wanted):
        sa.array([BIG]).take(indices)
    with pytest.raises(sa.InvalidData, match=wanted):
        sa.array([BIG], sa.string_view()).take(indices).cast("string")
    assert sa.DictionaryArray.from_arrays(indices, [BIG]).cast("string_view")[2199] == BIG


def test_cast_of_a_dictionary_whose_values_repeat_to_shorter_indices() -> None:
    array = sa.DictionaryArray.from_arrays(np.arange(200), sa.array([i % 100 for i in range(200)]))
    made = array.cast(sa.dictionary("int8", "int16"))
    assert made.to_pylist() == [i % 100 for i in range(200)]
    made.validate(full=True)


# --- dictionaries: growth -----------------------------------------------------------------------------------------


def test_a_rolling_window_of_dictionaries_keeps_what_it_refers_to() -> None:
    window: Any = sa.array(["v0", "v1", "v2", "v3"], sa.dictionary("int8", "string"))
    for i in range(4, 400):
        window = sa.concat_arrays([window, sa.array([f"v{i}"], window.type)]).slice(1)
    assert window.to_pylist() == ["v396", "v397", "v398", "v399"]
    assert len(window.dictionary) < 20


def test_a_window_as_long_as_its_dictionary_drops_values_that_do_not_fit() -> None:
    window: Any = sa.array([f"v{i}" for i in range(100)], sa.dictionary("int8", "string"))
    for i in range(100, 400):
        window = sa.concat_arrays([window, sa.array([f"v{i}"], window.type)]).slice(1)
    assert window.to_pylist() == [f"v{i}" for i in range(300, 400)]


@pytest.mark.parametrize("wrapped", [False, True], ids=["array", "child"])
def test_a_pickled_slice_has_the_dictionary_that_it_refers_to(wrapped: bool) -> None:
    values = [f"value {i}" for i in range(100_000)]
    array: Any = sa.DictionaryArray.from_arrays(np.arange(100_000), values).slice(50_000, 5)
    if wrapped:
        array = sa.StructArray.from_arrays([array], ["a"])
    data = pickle.dumps(array)
    assert len(data) < 5_000
    found = pickle.loads(data)
    assert found.equals(array)
    found.validate(full=True)


def test_files_keep_one_dictionary_for_all_batches() -> None:
    values = [f"value {i}" for i in range(1000)]
    array = sa.DictionaryArray.from_arrays(np.arange(1000), values)
    assert array.slice(5, 5).trim().dictionary is array.dictionary


# --- dictionaries: little of much ---------------------------------------------------------------------------------

LONG = sa.array([f"value {i}" for i in range(300_000)])
FEW = sa.DictionaryArray.from_arrays(sa.array([7, None, 7, 299_999, 5], sa.int32()), LONG)


def test_a_few_slots_of_a_long_dictionary() -> None:
    assert FEW.unique().to_pylist() == ["value 7", None, "value 299999", "value 5"]
    assert FEW.run_end_encode().to_pylist() == FEW.to_pylist()
    assert FEW.fill_null("value 5").to_pylist() == ["value 7", "value 5", "value 7", "value 299999", "value 5"]
    assert FEW.fill_null("new").to_pylist() == ["value 7", "new", "value 7", "value 299999", "value 5"]
    assert FEW.cast("large_string").to_pylist() == FEW.to_pylist()
    assert FEW.equals(sa.array(FEW.to_pylist(), FEW.type))


@pytest.mark.parametrize("name", ["unique", "run_end_encode", "fill_null", "cast"])
def test_a_few_slots_of_a_long_dictionary_take_little_time(name: str) -> None:
    calls = {
        "unique": FEW.unique,
        "run_end_encode": FEW.run_end_encode,
        "fill_null": lambda: FEW.fill_null("new"),
        "cast": lambda: FEW.cast("large_string"),
    }
    assert seconds(calls[name]) < seconds(LONG.unique) / 10


# --- slots that take no bytes -------------------------------------------------------------------------------------


def test_null_columns_of_many_rows() -> None:
    array = sa.nulls(N)
    missing = array.is_null()
    assert len(missing) == N
    assert missing.values.all()
    assert not array.is_valid().values.any()
    assert array.fill_null(None) is array
    made = array.cast("int8")
    assert (len(made), made.null_count, made.type) == (N, N, sa.int8())
    assert array.unique().to_pylist() == [None]
    assert sa.nulls(0).unique().to_pylist() == []


def test_dictionaries_of_null_columns() -> None:
    for count in (0, 3, N):
        masked = sa.nulls(count).dictionary_encode()
        assert (len(masked), masked.null_count, len(masked.dictionary)) == (count, count, 0)
        encoded = sa.nulls(count).dictionary_encode("encode", "int8")
        expected = pa.nulls(count).dictionary_encode("encode")
        assert (len(encoded), encoded.null_count) == (len(expected), expected.null_count)
        assert encoded.dictionary.to_pylist() == expected.dictionary.to_pylist()
        assert encoded.indices.type == sa.int8()
        masked.validate(full=True)
        encoded.validate(full=True)


def test_null_columns_become_those_of_other_tables() -> None:
    tables = [sa.table({"a": sa.nulls(N)}), sa.table({"a": sa.array([1], sa.int8())})]
    found = sa.concat_tables(tables, promote_options="default")
    assert found.schema.field("a").type == sa.int8()
    assert (found.num_rows, found["a"].null_count, found["a"][N]) == (N + 1, N, 1)


def test_where_no_slot_is_null_there_is_nothing_to_do() -> None:
    runs = sa.RunEndEncodedArray.from_arrays([N], [1])
    empty = sa.array([b""], sa.binary(0)).take(np.zeros(N, "i4"))
    for array, value in ((runs, 0), (empty, b"")):
        assert array.fill_null(value) is array
        assert array.drop_null() is array
        assert not array.is_null().values.any()
        assert array.is_valid().values.all()


def test_distinct_values_of_long_runs() -> None:
    runs = sa.RunEndEncodedArray.from_arrays([2, 3, 5, N], ["a", None, "a", "b"])
    assert runs.unique().to_pylist() == ["a", None, "b"]
    assert runs.slice(2, 3).unique().to_pylist() == [None, "a"]
    assert runs.slice(4, 0).unique().to_pylist() == []


# --- other --------------------------------------------------------------------------------------------------------


def test_too_many_values_for_an_index_type_are_counted_as_a_whole() -> None:
    with pytest.raises(sa.InvalidData, match="300 distinct values exceed the 128 that the index type can address"):
        sa.array([str(i) for i in range(300)], sa.dictionary(sa.int8(), sa.string()))
    with pytest.raises(sa.InvalidType, match="row 250: "):
        sa.array([str(i) if i != 250 else 1.5 for i in range(300)], sa.dictionary(sa.int8(), sa.string()))


def test_distinct_values_of_a_few_slots_of_a_union() -> None:
    texts = sa.array([f"value {i}" for i in range(300_000)])
    numbers = sa.array(np.arange(300_000))
    union = sa.UnionArray.from_dense(
        sa.array([0, 1, 0, 0, 1], sa.int8()), sa.array([7, 299_999, 7, 5, 299_999], sa.int32()), [texts, numbers]
    )
    assert union.unique().to_pylist() == ["value 7", 299_999, "value 5"]
    assert union.dictionary_encode().indices.to_pylist() == [0, 1, 0, 2, 1]
    assert seconds(union.unique) < seconds(texts.unique) / 10


def test_a_few_slots_of_many_take_no_look_at_the_others() -> None:
    array = sa.array(np.arange(4_000_000), mask=np.arange(4_000_000) % 2 == 0)
    assert array.null_count == 2_000_000
    assert most_memory(lambda: array.take([5, 3_999_999]))[1] < 100_000
    ends = sa.array(np.arange(1, 1_000_001), sa.int32())
    runs = sa.RunEndEncodedArray.from_arrays(ends, sa.array(np.arange(1_000_000)))
    found, peak = most_memory(lambda: runs.take([5, 999_999]))
    assert found.to_pylist() == [5, 999_999]
    assert peak < 100_000


# --- many chunks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[3, 0, 4, 0, 0, 2], [0, 0, 5], [4, 0], [1, 1, 1]], ids=str)
def test_slices_of_chunks_have_the_chunks_that_they_need(lengths: list[int]) -> None:
    values = np.arange(sum(lengths))
    ends = np.cumsum(lengths)
    parts = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    column = sa.ChunkedArray([sa.array(part) for part in parts])
    table = sa.Table.from_batches([sa.record_batch({"a": chunk}) for chunk in column.chunks])
    for offset in range(len(values) + 1):
        for length in range(len(values) - offset + 1):
            expected = values[offset : offset + length].tolist()
            found = column.slice(offset, length)
            assert found.to_pylist() == expected
            assert all(len(chunk) for chunk in found.chunks)
            assert table.slice(offset, length)["a"].to_pylist() == expected
    for whole, part in zip([chunk for chunk in column.chunks if len(chunk)], column.slice(0).chunks, strict=True):
        assert part is whole


def test_slices_of_many_chunks_look_at_those_that_they_need() -> None:
    column = sa.ChunkedArray([sa.array([i, i + 1]) for i in range(5000)])
    assert column.slice(9995, 3).to_pylist() == [4998, 4998, 4999]
    assert seconds(lambda: column.slice(9995, 3)) < seconds(lambda: column.slice(0)) / 4
    assert column.equals(column.slice(0))
    assert not column.equals(sa.ChunkedArray([*column.chunks[:-1], sa.array([0, 0])]))


def test_a_rolling_window_of_views_keeps_the_buffers_that_it_refers_to() -> None:
    window: Any = sa.array([f"a value of some length {i}" for i in range(4)], sa.string_view())
    for i in range(4, 200):
        new = sa.array([f"a value of some length {i}", None, "short"], sa.string_view()).slice(0, 1)
        window = sa.concat_arrays([window, new]).slice(1)
    assert window.to_pylist() == [f"a value of some length {i}" for i in range(196, 200)]
    assert len(window.data_buffers) <= 21
    window.validate(full=True)


def test_what_was_exported_is_not_remembered_for_ever() -> None:
    """A service that passes on tables of a new schema each time."""

    def export(first: int) -> None:
        for number in range(first, first + 100):
            kept = sa.struct({f"{number} {field}": sa.int8() for field in range(100)})
            assert len(pa.field(sa.field("x", kept)).type) == 100

    export(0)
    gc.collect()
    tracemalloc.start()
    try:
        export(100)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000  # one type takes more than 10,000 bytes
