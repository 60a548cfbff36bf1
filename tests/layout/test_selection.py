"""Choosing slots: filter, drop_null, fill_null, flatten and lengths of lists, and the bytes that slots take."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from environment import needs_pyarrow
from measures import most_memory

import shmarrow as sa
from shmarrow.errors import EXPANDED_VALUES

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


# --- a few slots of many, and slots that take no bytes -----------------------------------------------------------

N = EXPANDED_VALUES + 100
"""More slots than are made of nothing."""


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


def test_where_no_slot_is_null_there_is_nothing_to_do() -> None:
    runs = sa.RunEndEncodedArray.from_arrays([N], [1])
    empty = sa.array([b""], sa.binary(0)).take(np.zeros(N, "i4"))
    for array, value in ((runs, 0), (empty, b"")):
        assert array.fill_null(value) is array
        assert array.drop_null() is array
        assert not array.is_null().values.any()
        assert array.is_valid().values.all()


def test_a_few_slots_of_many_take_no_look_at_the_others() -> None:
    array = sa.array(np.arange(4_000_000), mask=np.arange(4_000_000) % 2 == 0)
    assert array.null_count == 2_000_000
    assert most_memory(lambda: array.take([5, 3_999_999]))[1] < 100_000
    ends = sa.array(np.arange(1, 1_000_001), sa.int32())
    runs = sa.RunEndEncodedArray.from_arrays(ends, sa.array(np.arange(1_000_000)))
    found, peak = most_memory(lambda: runs.take([5, 999_999]))
    assert found.to_pylist() == [5, 999_999]
    assert peak < 100_000


# --- masked ndarrays as arguments -------------------------------------------------------------------------------


def _masked(values: Any, mask: Any) -> Any:
    return np.ma.array(values, mask=mask)


def test_masked_indices_give_nulls() -> None:
    indices = _masked([0, 1], [True, False])
    expected = pa.array([10, 20, 30]).take(pa.array(indices)).to_pylist()
    assert expected == [None, 20]
    for held in (sa.array([10, 20, 30]), sa.chunked_array([[10], [20, 30]])):
        assert held.take(indices).to_pylist() == expected
        assert held.take(_masked([99, 2], [True, False])).to_pylist() == [None, 30]
        assert held.take(_masked([2, 0], False)).to_pylist() == [30, 10]


def test_a_masked_mask_is_null_where_it_is_masked() -> None:
    mask = _masked([True, True, False], [True, False, False])
    for held in (sa.array([10, 20, 30]), sa.chunked_array([[10], [20, 30]])):
        assert held.filter(mask).to_pylist() == [20]
        assert held.filter(mask, "emit_null").to_pylist() == [None, 20]
        assert held.filter(_masked([True, False, True], False)).to_pylist() == [10, 30]


def test_rows_at_masked_indices_and_masks() -> None:
    batch = sa.record_batch({"a": [1, 2]})
    for rows in (batch, sa.Table.from_batches([batch])):
        assert rows.take(_masked([0, 1], [True, False])).to_pydict() == {"a": [None, 2]}
        assert rows.filter(_masked([True, True], [True, False])).to_pydict() == {"a": [2]}


def test_masked_offsets_are_null_lists() -> None:
    offsets = _masked([0, 1, 2], [False, True, False])
    expected = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array([1, 2])).to_pylist()
    assert expected == [[1, 2], None]
    assert sa.ListArray.from_arrays(offsets, [1, 2]).to_pylist() == expected


def test_masked_where_no_null_has_a_meaning() -> None:
    mask = _masked([True, False], [True, False])
    with pytest.raises(sa.InvalidType, match="a mask must not have nulls, found 1 null"):
        sa.array([1, 2], mask=mask)
    with pytest.raises(sa.InvalidType, match="sizes must be integers without nulls"):
        sa.ListViewArray.from_arrays([0, 1], _masked([1, 1], [True, False]), [1, 2])
    with pytest.raises(sa.InvalidType, match="type ids must be integers without nulls"):
        sa.UnionArray.from_sparse(_masked([0, 0], [True, False]), [[1, 2]])
    assert sa.array([1, 2], mask=_masked([True, False], False)).to_pylist() == [None, 2]


# --- take -------------------------------------------------------------------------------------------------------

NUMBERS = [10, 20, 30]


REFUSED: list[tuple[Any, Any, str]] = [
    *[(mask, sa.InvalidType, r"integers, found bools; use filter\(mask\)") for mask in (
        [True, False, True], (True, False, True), np.array([True, False, True]), [True, 0, 1],
        sa.array([True, False, True]),
    )],
    *[(rows, sa.InvalidArgument, "shape") for rows in ([[0, 1]], np.zeros((2, 2), "i8"), np.array(1), 1, 1j, [[]])],
    *[(other, sa.InvalidType, "integers, found") for other in (
        [1.7], [1.0], np.array([0.5]), np.array([1.0], "f4"), ["1"], [dt.date(1970, 1, 2)], np.array([1], "m8[s]"),
    )],
]  # fmt: skip


@pytest.mark.parametrize(("indices", "error", "message"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_take_refuses_what_is_no_list_of_integers(indices: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        sa.array(NUMBERS).take(indices)


@pytest.mark.parametrize("index", [3, -1, 1 << 31, 1 << 63, 1 << 70, -(1 << 70), np.uint64((1 << 64) - 1)], ids=repr)
def test_take_names_an_index_out_of_range(index: Any) -> None:
    with pytest.raises(sa.IndexOutOfRange):
        sa.array(NUMBERS).take([0, index])
    with pytest.raises(sa.IndexOutOfRange):
        sa.array(NUMBERS).take([None, index])


TAKEN = [
    [2, 0], (2, 0), range(2), np.array([2, 0], "u1"), np.array([2, 0], "i2")[::-1], np.array([2, 0], ">i4"), [],
    np.array([2], "u8"), [np.int8(1)], [2, None, 0], [None], sa.array([1, None, 2]), sa.array([2, 0], "uint16"),
    pa.array([2, 0]), pa.array([2, None, 0]), pa.chunked_array([[2], [None, 0]]),
]  # fmt: skip


@pytest.mark.parametrize("indices", TAKEN, ids=lambda indices: f"{type(indices).__module__}.{type(indices).__name__}")
@pytest.mark.parametrize(
    "values",
    [[10, 20, 30], [10, None, 30], ["a", None, "ccc"], [[1], [], None], [True, None, False]],
    ids=repr,
)
def test_take_gives_what_pyarrow_gives(values: list[Any], indices: Any) -> None:
    picks = indices.to_pylist() if hasattr(indices, "to_pylist") else [None if i is None else int(i) for i in indices]
    expected = pa.array(values).take(pa.array(picks, pa.int64())).to_pylist()
    assert sa.array(values).take(indices).to_pylist() == expected


def test_take_of_null_indices_in_types_without_validity() -> None:
    union = sa.array([1, "a"], sa.dense_union({"i": sa.int64(), "s": sa.string()}))
    assert union.take([1, None]).to_pylist() == ["a", None]
    assert sa.array([1, 1, 2], sa.run_end_encoded(sa.int32(), sa.int8())).take([None, 2]).to_pylist() == [None, 2]
    assert sa.array([], "int8").take([None, None]).to_pylist() == [None, None]
    assert sa.array([None], sa.null()).take([0, None]).to_pylist() == [None, None]


def test_null_indices_hold_anything() -> None:
    indices = sa.PrimitiveArray.from_numpy(sa.int64(), np.array([99, 1]), np.array([False, True]))
    assert sa.array(NUMBERS).take(indices).to_pylist() == [None, 20]
