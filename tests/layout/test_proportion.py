"""Memory in proportion to the data: what a few bytes claim, or name many times, is refused before memory runs out."""

from __future__ import annotations

import resource
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from forms import peers_file, stream_of

import shmarrow as sa
from shmarrow.layout import make_array

ROOM = 400 << 20
"""Bytes that a test may take beyond what the process has."""

MANY = (1 << 31) - 1


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Memory for the data of a test, and far less than what they claim."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def read(array: Any) -> Any:
    """A column that another implementation wrote to a file."""
    return sa.ipc.open_file(peers_file(pa.record_batch([array], ["x"]))).get_batch(0).column(0)


def lists_of(items: pa.Array) -> pa.Array:
    """A long list and a short one."""
    return pa.ListArray.from_arrays(pa.array([0, MANY - 5, MANY], pa.int32()), items)


CLAIMS: dict[str, Callable[[], pa.Array]] = {
    "runs": lambda: lists_of(pa.RunEndEncodedArray.from_arrays(pa.array([MANY], pa.int32()), pa.array([7]))),
    "struct<>": lambda: lists_of(pa.StructArray.from_buffers(pa.struct([]), MANY, [None])),
    "fixed_size_list[0]": lambda: lists_of(
        pa.FixedSizeListArray.from_buffers(pa.list_(pa.int8(), 0), MANY, [None], children=[pa.array([], pa.int8())])
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_lists_of_slots_without_memory(little_memory: None, name: str) -> None:
    """Lists that lie one behind another stay where they are; those in another order would need all positions."""
    array = read(CLAIMS[name]())
    assert [len(items) for items in (array.take([0]).values, array.take([0, 1]).values)] == [MANY - 5, MANY]
    assert array.filter([False, True]).to_pylist() == array.slice(1).to_pylist()
    assert array.take([1, None, 1]).to_pylist() == [array[1], None, array[1]]
    assert array.take([None, None]).to_pylist() == [None, None]
    assert array.take([0, 1]).equals(array)
    for call in (lambda: array[::-1], lambda: array.take([1, 0]), lambda: array.value_parent_indices()):
        with pytest.raises(sa.LimitExceeded, match=f"slots that occupy no memory would expand to {MANY} values"):
            call()
    with pytest.raises(sa.InvalidData, match=f"have {100_000 * (MANY - 5)} elements; int32 offsets reach"):
        array.take(np.zeros(100_000, int))


def test_lists_of_nulls(little_memory: None) -> None:
    """Nulls need a count and no positions."""
    for array in (read(lists_of(pa.nulls(MANY))), sa.LargeListArray.from_arrays([0, 1 << 62], sa.nulls(1 << 62))):
        length = len(array)
        reversed_ = array[::-1]
        assert reversed_.value_lengths().to_pylist() == array.value_lengths().to_pylist()[::-1]
        assert len(reversed_.values) == len(array.values)
        assert array.take([None]).to_pylist() == [None]
        assert array.take([length - 1, None]).value_lengths().to_pylist() == [
            array.value_lengths()[length - 1],
            None,
        ]
        with pytest.raises(sa.LimitExceeded, match="values; at most 16,777,216 can be expanded at once"):
            array.value_parent_indices()
    with pytest.raises(sa.InvalidData, match=f"have {1 << 63} elements; int64 offsets reach"):
        array.take([0, 0])
    fixed = read(pa.FixedSizeListArray.from_arrays(pa.nulls(MANY), MANY))
    assert len(fixed.take(np.zeros(100_000, int)).values) == 100_000 * MANY
    nested = sa.FixedSizeListArray.from_arrays(sa.FixedSizeListArray.from_arrays(sa.nulls(MANY**2), MANY), MANY)
    with pytest.raises(sa.LimitExceeded, match=f"would expand to {100_000 * MANY} values"):
        nested.take(np.zeros(100_000, int))


def test_every_second_of_slots_without_memory(little_memory: None) -> None:
    with pytest.raises(sa.LimitExceeded, match=f"would expand to {1 << 40} values"):
        _ = sa.nulls(1 << 40)[::2]


@pytest.mark.parametrize("type", ["large_string", "large_binary", "large_list<int8>"])
def test_null_indices_take_no_items(little_memory: None, type: str) -> None:
    """A null index leads nowhere, so it costs nothing, however long the first value is."""
    size = 1 << 20
    first: Any = {"large_string": "x" * size, "large_binary": b"x" * size}.get(type)
    made: Any = sa.large_list(sa.int8()) if first is None else type
    array = sa.array([first or np.ones(size, "i1"), None, first or np.ones(size, "i1")], made)
    found = array.take([None] * 10_000 + [1])
    assert found.null_count == 10_001
    assert found.nbytes < 1 << 18
    again = array.take([2, None, 1, 0])
    assert again.is_null().to_pylist() == [False, True, True, False]
    assert again.slice(0, 1).equals(array.slice(0, 1))


def test_rows_without_nulls(little_memory: None) -> None:
    """A column of nulls leaves no rows, which takes no look at them."""
    for rows in (1 << 40, 3):
        batch = sa.record_batch([sa.nulls(rows), sa.nulls(rows)], names=["a", "b"])
        assert batch.drop_null().shape == (0, 2)
        assert sa.table([sa.nulls(rows)], names=["a"]).drop_null().shape == (0, 1)
    ends, values = sa.array([1 << 40]), sa.array([None], "int8")
    runs = sa.RunEndEncodedArray.from_arrays(ends, values)
    with pytest.raises(sa.LimitExceeded, match=f"slots that occupy no memory would expand to {1 << 40} values"):
        sa.record_batch([runs], names=["a"]).drop_null()


LONG = 100_000
"""Slots that share one value, and the bytes of it."""


def shared(type: Any) -> Any:
    """A dictionary array whose slots all have one long value."""
    return sa.DictionaryArray.from_arrays(np.zeros(LONG, "i1"), sa.array(["x" * LONG], type))


def union_of(value: str, slots: int) -> Any:
    return sa.UnionArray.from_dense(np.zeros(slots, "i1"), np.zeros(slots, "i4"), [sa.array([value], "large_string")])


def test_equal_unions_whose_slots_share_values(little_memory: None) -> None:
    """Slots that lead to the same values are compared once; those that differ by what they lead to."""
    union = union_of("x" * LONG, LONG)
    assert union.slice(1).equals(union.slice(0, LONG - 1))
    assert not union.equals(union_of("x" * (LONG - 1) + "y", LONG))


def test_casts_that_do_not_exist_repeat_no_values(little_memory: None) -> None:
    ends = sa.array([LONG], "int32")
    runs = sa.RunEndEncodedArray.from_arrays(ends, sa.array(["x" * LONG], "large_string"))
    for array in (shared("large_string"), runs):
        with pytest.raises(sa.InvalidType, match="there is no cast from large_string to large_list"):
            array.cast(sa.large_list(sa.int8()))
    union = union_of("x" * LONG, LONG)
    with pytest.raises(sa.InvalidType, match="child '0': there is no cast from large_string to large_list"):
        union.cast(sa.dense_union([sa.field("0", sa.large_list(sa.int8()))]))


def test_values_that_do_not_fit_in_memory(little_memory: None) -> None:
    """One of our errors, and the process lives on."""
    strings = sa.array(["x" * LONG], "large_string")
    for call in (
        lambda: strings.take(np.zeros(LONG, int)),
        lambda: union_of("x" * LONG, LONG)[::-1],
    ):
        with pytest.raises(sa.LimitExceeded, match="slices"):
            call()
    assert strings.take([0, 0]).to_pylist() == ["x" * LONG] * 2


def repeated_lists(type: Any) -> Any:
    return sa.DictionaryArray.from_arrays(np.zeros(LONG, "i1"), sa.array([np.zeros(LONG, "i1")], type))


REPEATS: dict[str, Callable[[], tuple[Any, Callable[[Any], Any]]]] = {
    "strings": lambda: (shared("large_string"), lambda array: array.decode()),
    "lists": lambda: (repeated_lists(sa.large_list(sa.int8())), lambda array: array.decode()),
    "fixed": lambda: (repeated_lists(sa.list_(sa.int8(), LONG)), lambda array: array.decode()),
    "runs": lambda: (
        sa.RunEndEncodedArray.from_arrays(sa.array([LONG], "int32"), sa.array(["x" * LONG], "large_string")),
        lambda array: array.decode(),
    ),
    "views": lambda: (
        sa.ListViewArray.from_arrays(
            np.zeros(LONG, "i4"), np.ones(LONG, "i4"), sa.StructArray.from_arrays([["x" * LONG]], ["a"])
        ),
        lambda array: array.flatten(),
    ),
}


@pytest.mark.parametrize("name", REPEATS)
def test_values_that_are_named_many_times(name: str) -> None:
    """A budget refuses 10 GB of copies of 100 kB before any of them is made, whatever memory there is."""
    array, copy = REPEATS[name]()
    tracemalloc.start()
    try:
        with pytest.raises(sa.LimitExceeded, match=r"repeated values would expand to \d{11} bytes, copied from 1"):
            copy(array)
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()
    assert len(copy(array.slice(LONG - 100))) == 100


def test_values_that_are_named_often_are_copied() -> None:
    """A hundred thousand rows of a few texts are what dictionaries are for."""
    words = ["x" * 300, None, "y" * 200]
    array = sa.DictionaryArray.from_arrays(np.arange(LONG) % 3, sa.array(words, "large_string"))
    expected = pa.array([words[i % 3] for i in range(LONG)], pa.large_string())
    assert array.decode().to_pyarrow().equals(expected)
    assert array.cast("large_string").null_count == expected.null_count == LONG // 3


# --- slots that take no bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(1 << 62, 1 << 62), ((1 << 63) - 1, 1)])
def test_rows_that_cannot_be_counted(lengths: tuple[int, ...]) -> None:
    """Nulls take no bytes, so a few bytes may claim any number of them; their sum fits 64 bits or is refused."""
    one = sa.array([None])
    parts = [type(one)(one.type, length, [], length) for length in lengths]
    batches = [sa.record_batch({"x": part}) for part in parts]
    wanted = r"2 (chunks|batches) have 9223372036854775808 rows, more than the 9223372036854775807"
    for make in (lambda: sa.ChunkedArray(parts), lambda: sa.Table(batches[0].schema, batches)):
        with pytest.raises(sa.LimitExceeded, match=wanted):
            make()
    fewer = sa.Table(batches[0].schema, [batches[0], batches[0].slice(0, (1 << 63) - 1 - lengths[0])])
    assert fewer.num_rows == len(fewer["x"]) == (1 << 63) - 1


ROWS = 12345
NO_BYTES = {
    "null": (sa.null(), None),
    "fixed_size_binary[0]": (sa.binary(0), b""),
    "fixed_size_list[0]": (sa.list_(sa.int8(), 0), []),
    "struct<>": (sa.struct([]), {}),
    "runs": (sa.run_end_encoded(sa.int64(), sa.int8()), 7),
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "is_valid": lambda array: array.is_valid(),
    "is_null": lambda array: array.is_null(),
    "dictionary_encode": lambda array: array.dictionary_encode(),
    "run_end_encode": lambda array: array.run_end_encode(),
    "to_pylist": lambda array: array.to_pylist(),
}


def claimed(name: str, rows: int) -> Any:
    """A column of a stream of a few hundred bytes that says that it has so many rows."""
    type, value = NO_BYTES[name]
    data = stream_of(sa.record_batch([sa.array([value] * ROWS, type)], names=["x"]))
    data = data.replace(struct.pack("<q", ROWS), struct.pack("<q", rows))
    assert len(data) < 1000
    (batch,) = sa.ipc.open_stream(data)
    array = batch.column(0)
    assert len(array) == rows
    return array


@pytest.mark.parametrize("rows", [1 << 31, 1 << 62])
@pytest.mark.parametrize("name", NO_BYTES)
def test_claimed_rows_cost_no_memory(name: str, rows: int) -> None:
    array = claimed(name, rows)
    calls = dict(CALLS)
    if name == "null":  # of which zeros are made, that take memory when they are written to
        del calls["dictionary_encode"]
    if name == "runs":
        del calls["run_end_encode"]  # they are runs already
        assert array.run_end_encode() is array
    for call in calls.values():
        with pytest.raises(sa.LimitExceeded, match=f"slots that occupy no memory would expand to {rows} values"):
            call(array)
        assert len(call(array[:100])) == 100
    assert array[:3].is_valid().tolist() == [name != "null"] * 3


@pytest.mark.parametrize(
    "call", [lambda array: array.cast(sa.int64()), CALLS["dictionary_encode"]], ids=["cast", "encode"]
)
def test_claimed_nulls_take_what_the_result_takes(call: Callable[[Any], Any]) -> None:
    array = claimed("null", 1 << 62)
    with pytest.raises(sa.LimitExceeded, match="no memory for 4611686018427387904 nulls"):
        call(array)
    assert call(array[:100]).to_pylist() == [None] * 100


def test_slots_with_bytes_are_never_too_many() -> None:
    """A bit a slot is enough: more than 2**24 booleans and their nulls are counted as ever."""
    rows = (1 << 24) + 9
    type = sa.bool_()
    array = make_array(type, rows, [None, np.zeros((rows + 7) // 8, np.uint8)], 0)
    assert int(np.asarray(array.is_valid()).sum()) == rows


def test_values_that_no_bytes_stand_for_are_bounded() -> None:
    """2**24 of them are expanded at once, and no more."""
    for array in (
        sa.nulls((1 << 24) + 1, sa.null()),
        sa.array([{}] * 3, sa.struct({})).take(np.zeros((1 << 24) + 1, "i8")),
    ):
        with pytest.raises(sa.LimitExceeded, match=r"expand to 16777217 values; at most 16,777,216 can"):
            array.to_pylist()
        assert len(array.slice(5, 10).to_pylist()) == 10
