"""Choosing slots: filter, drop_null, fill_null, flatten and lengths of lists, and the bytes that slots take."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from environment import needs_pyarrow

import shmarrow as sa

WORDS = ["a", None, "ccc", "", "a longer string than twelve", "f", None, "h"]
LISTS = [[1, 2], None, [], [3], [4, 5, 6], [None], [7], None]
PAIRS = [[1, 2], None, [3, 4], [5, None], None, [6, 7], [8, 9], [0, 0]]

PEERS: dict[str, pa.Array] = {
    "int32": pa.array([1, None, 3, 4, 5, None, 7, 8], pa.int32()),
    "int64-without-nulls": pa.array(range(8)),
    "bool": pa.array([True, None, False, True, None, True, False, False]),
    "decimal128": pa.array([None, *map(decimal.Decimal, range(7))], pa.decimal128(5, 2)),
    "timestamp": pa.array([dt.datetime(2020, 1, day + 1) if day % 3 else None for day in range(8)], pa.timestamp("us")),
    "fixed-size-binary": pa.array([b"ab", None] * 4, pa.binary(2)),
    "string": pa.array(WORDS),
    "large_string": pa.array(WORDS, pa.large_string()),
    "string_view": pa.array(WORDS, pa.string_view()),
    "list": pa.array(LISTS),
    "large_list": pa.array(LISTS, pa.large_list(pa.int8())),
    "list_view": pa.array(LISTS, pa.list_view(pa.int64())),
    "large_list_view": pa.array(LISTS, pa.large_list_view(pa.int64())),
    "fixed_size_list": pa.array(PAIRS, pa.list_(pa.int16(), 2)),
    "map": pa.array([[("a", 1)], None, [], [("b", 2), ("c", None)]] * 2, pa.map_(pa.string(), pa.int8())),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}] * 2),
    "dictionary": pa.array(WORDS).dictionary_encode(),
    "null": pa.nulls(8),
    "sparse_union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1, 1, 0, 0, 1], pa.int8()), [pa.array([1, 2, None, 4, 5, 6, 7, 8]), pa.array(WORDS)]
    ),
    "dense_union": pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1, 1, 0, 0, 1], pa.int8()),
        pa.array([0, 0, 1, 1, 2, 2, 3, 3], pa.int32()),
        [pa.array([1, None, 3, 4]), pa.array(["x", "y", None, "zz"])],
    ),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 8], pa.int32()), pa.array([1.5, None, 3.5])),
}
WITHOUT_KERNELS = ("string_view", "sparse_union", "dense_union", "run_end_encoded")
"""Types that pyarrow cannot filter, or not to nulls, and cannot fill."""

SLICES = [(0, 8), (1, 3), (3, 5), (7, 1), (4, 0)]
every_layout = pytest.mark.parametrize("name", PEERS)


def pair(name: str, start: int, length: int) -> tuple[Any, Any]:
    return sa.array(PEERS[name]).slice(start, length), PEERS[name].slice(start, length)


# --- bytes ------------------------------------------------------------------------------------------------------


@every_layout
@pytest.mark.parametrize(("start", "length"), SLICES)
def test_nbytes_are_those_of_the_slots(name: str, start: int, length: int) -> None:
    ours = sa.array(PEERS[name]).slice(start, length)
    theirs = PEERS[name].slice(start, length)
    if "view" in name:
        needs_pyarrow(24)
    expected = theirs.nbytes
    if name == "struct":  # pyarrow leaves out the validity of the structs themselves
        expected += (start + length + 7) // 8 - start // 8
    if name == "dense_union" or not length:  # pyarrow counts a byte for a bitmap of no slots
        assert 0 <= expected - ours.nbytes <= 2
    else:
        assert ours.nbytes == expected


@every_layout
def test_total_buffer_size_is_that_of_whole_buffers(name: str) -> None:
    ours = sa.array(PEERS[name])
    total = ours.get_total_buffer_size()
    assert ours.slice(3, 2).get_total_buffer_size() == total
    assert total == PEERS[name].get_total_buffer_size()


def test_a_buffer_counts_once() -> None:
    numbers = sa.array(np.arange(100))
    twice = sa.StructArray.from_arrays([numbers, numbers], ["a", "b"])
    assert twice.get_total_buffer_size() == 800
    assert twice.nbytes == 1600
    assert twice.slice(10, 5).nbytes == 80
    chunks = sa.chunked_array([numbers.slice(0, 30), numbers.slice(30)])
    assert (chunks.nbytes, chunks.get_total_buffer_size()) == (800, 800)


# --- filter -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "behavior", "error"),
    [
        ([True], "drop", sa.InvalidArgument),
        ([1, 0, 1], "drop", sa.InvalidType),
        (np.ones((3, 1), bool), "drop", sa.InvalidArgument),
        (7, "drop", sa.InvalidType),
        ([True] * 3, "keep", sa.InvalidArgument),
    ],
    ids=["short", "numbers", "2-d", "int", "behavior"],
)
def test_filter_refuses(mask: Any, behavior: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        sa.array([1, 2, 3]).filter(mask, behavior)


@pytest.mark.parametrize("key", [[0, 1], np.array([True, False]), "a"])
def test_indexing_by_anything_else_names_take_and_filter(key: Any) -> None:
    with pytest.raises(sa.InvalidType, match=r"take\(indices\).*filter\(mask\)"):
        sa.array([1, 2])[key]


# --- nulls ------------------------------------------------------------------------------------------------------


def test_nan_is_null_if_asked() -> None:
    values = [1.0, float("nan"), None]
    for type in ("float32", "float64"):
        ours, theirs = sa.array(values, type), pa.array(values, type)
        for flag in (False, True):
            assert ours.is_null(nan_is_null=flag).to_pylist() == theirs.is_null(nan_is_null=flag).to_pylist()
    assert sa.array([1, None]).is_null(nan_is_null=True).to_pylist() == [False, True]


FILLS: dict[str, Any] = {
    "int32": -7,
    "bool": True,
    "decimal128": decimal.Decimal("-1.25"),
    "timestamp": dt.datetime(1969, 12, 31),
    "fixed-size-binary": b"zz",
    "string": "é",
    "large_string": "é",
    "string_view": "another string of some length",
    "list": [8, 9],
    "large_list": [],
    "list_view": [8, 9],
    "large_list_view": [1],
    "fixed_size_list": [8, 9],
    "map": [("z", 1)],
    "struct": {"a": 0, "b": "z"},
    "dictionary": "new",
    "sparse_union": 77,
    "dense_union": "new",
    "run_end_encoded": 2.5,
}


@pytest.mark.parametrize("name", FILLS)
def test_fill_null(name: str) -> None:
    needs_pyarrow(25 if name == "sparse_union" else 0)
    ours, theirs = pair(name, 1, 7)
    fill = FILLS[name]
    values = theirs.to_pylist()
    expected = [fill if value is None else value for value in values]
    found = ours.fill_null(fill)
    found.validate(full=True)
    assert found.type == ours.type
    assert found.to_pylist() == expected
    assert ours.fill_null(None) is ours
    assert found.fill_null(fill) is found
    if name not in WITHOUT_KERNELS and name != "dictionary":
        assert theirs.fill_null(pa.scalar(fill, theirs.type)).to_pylist() == expected
        assert ours.fill_null(pa.scalar(fill, theirs.type)).to_pylist() == expected


def test_fill_null_slot_by_slot() -> None:
    array = sa.array([1, None, 3, None], "int8")
    assert array.fill_null(sa.array([9, 8, 7, None], "int8")).to_pylist() == [1, 8, 3, None]
    assert array.fill_null(pa.array([9, 8, 7, 6])).to_pylist() == [1, 8, 3, 6]
    with pytest.raises(sa.InvalidArgument, match="expected 4 fill values, one per slot, found 3"):
        array.fill_null(sa.array([9, 8, 7], "int8"))


@pytest.mark.parametrize(
    ("values", "fill", "error"),
    [
        ([1, None], "a", sa.InvalidType),
        ([1, None], 1.5, (sa.InvalidType, sa.InvalidData)),
        ([None, None], 1, sa.InvalidType),
        ([1, 2], "a", sa.InvalidType),
    ],
    ids=["text", "fraction", "null-type", "without-nulls"],
)
def test_fill_null_refuses(values: Any, fill: Any, error: Any) -> None:
    with pytest.raises(error):
        sa.array(values).fill_null(fill)


# --- lists ------------------------------------------------------------------------------------------------------

LIST_LAYOUTS = ["list", "large_list", "list_view", "large_list_view", "fixed_size_list"]


@pytest.mark.parametrize("name", LIST_LAYOUTS)
@pytest.mark.parametrize(("start", "length"), SLICES)
def test_lengths_and_parents_of_lists(name: str, start: int, length: int) -> None:
    ours, theirs = pair(name, start, length)
    lengths, parents = ours.value_lengths(), ours.value_parent_indices()
    assert str(lengths.type) == str(theirs.value_lengths().type)
    assert lengths.to_pylist() == theirs.value_lengths().to_pylist()
    assert parents.type == sa.int64()
    assert parents.to_pylist() == theirs.value_parent_indices().to_pylist()
    assert ours.flatten().to_pylist() == theirs.flatten().to_pylist()
    assert len(parents) == len(ours.flatten())


def test_lengths_of_maps() -> None:
    maps = sa.array([[("a", 1)], None, [("b", 2), ("c", 3)]], sa.map_(sa.string(), sa.int8()))
    assert maps.value_lengths().to_pylist() == [1, None, 2]
    assert maps.value_parent_indices().to_pylist() == [0, 2, 2]


@pytest.mark.parametrize(("start", "length"), SLICES)
def test_struct_flatten(start: int, length: int) -> None:
    ours, theirs = pair("struct", start, length)
    assert [child.to_pylist() for child in ours.flatten()] == [child.to_pylist() for child in theirs.flatten()]
    assert ours.field("b").to_pylist() == theirs.field("b").to_pylist() == ours.field(1).to_pylist()
    with pytest.raises(sa.FieldNotFound):
        ours.field("c")
