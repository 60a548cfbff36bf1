"""Arrays put together from parts: ``from_arrays``, ``from_buffers``, ``from_dense``, ``from_sparse``, ``nulls``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from environment import needs_pyarrow
from parts import own_buffers
from test_selection import PEERS

import shmarrow as sa

NUMBERS = sa.array([1, 2, 3], "int8")

# --- from_arrays ------------------------------------------------------------------------------------------------


def test_a_mask_is_true_for_nulls_everywhere() -> None:
    mask, offsets, child = [False, True], [0, 1, 3], NUMBERS
    arrays = [
        sa.array([1, 2], mask=mask),
        sa.ListArray.from_arrays(offsets, child, mask=mask),
        sa.LargeListArray.from_arrays(offsets, child, mask=mask),
        sa.ListViewArray.from_arrays([0, 1], [1, 2], child, mask=mask),
        sa.LargeListViewArray.from_arrays([0, 1], [1, 2], child, mask=mask),
        sa.FixedSizeListArray.from_arrays([1, 2, 3, 4], 2, mask=mask),
        sa.StructArray.from_arrays([[1, 2]], ["a"], mask=mask),
        sa.MapArray.from_arrays(offsets, ["a", "b", "c"], child, mask=mask),
        sa.DictionaryArray.from_arrays([0, 1], ["a", "b"], mask=mask),
        sa.BinaryArray.from_arrays(offsets, b"abc", mask=mask),
    ]
    for array in arrays:
        array.validate(full=True)
        assert array.null_count == 1
        assert [value is None for value in array.to_pylist()] == mask


def test_types_come_of_the_values() -> None:
    made = {
        "list<item: int8>": sa.ListArray.from_arrays([0, 3], NUMBERS),
        "large_list<item: int8>": sa.LargeListArray.from_arrays([0, 3], NUMBERS),
        "list_view<item: int8>": sa.ListViewArray.from_arrays([0], [3], NUMBERS),
        "large_list_view<item: int8>": sa.LargeListViewArray.from_arrays([0], [3], NUMBERS),
        "fixed_size_list<item: int8>[3]": sa.FixedSizeListArray.from_arrays(NUMBERS, 3),
        "struct<a: int8>": sa.StructArray.from_arrays([NUMBERS], ["a"]),
        "map<string, int8>": sa.MapArray.from_arrays([0, 3], ["a", "b", "c"], NUMBERS),
    }
    for text, array in made.items():
        array.validate(full=True)
        assert str(array.to_pyarrow().type) == text
        assert type(array) is type(sa.array(array.to_pyarrow()))


@pytest.mark.parametrize("offsets", [[0, None, 2, 3], [None, 0, None, 3], [None, None, None, 0]], ids=str)
def test_null_offsets_are_null_lists(offsets: list[int | None]) -> None:
    for ours, theirs in (
        (sa.ListArray, pa.ListArray),
        (sa.LargeListArray, pa.LargeListArray),
    ):
        peer_type = pa.int32() if ours is sa.ListArray else pa.int64()
        expected = theirs.from_arrays(pa.array(offsets, peer_type), pa.array([1, 2, 3])).to_pylist()
        for given in (offsets, sa.array(offsets), pa.array(offsets), sa.array(offsets, "int16")):
            assert ours.from_arrays(given, [1, 2, 3]).to_pylist() == expected
    maps = sa.MapArray.from_arrays(offsets, ["a", "b", "c"], [1, 2, 3])
    theirs_maps = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), ["a", "b", "c"], [1, 2, 3])
    assert maps.to_pylist() == theirs_maps.to_pylist()
    views = sa.ListViewArray.from_arrays(offsets, [1, 2, 1, 0], [1, 2, 3])
    peer = pa.ListViewArray.from_arrays(pa.array(offsets, pa.int32()), pa.array([1, 2, 1, 0], pa.int32()), [1, 2, 3])
    assert views.to_pylist() == peer.to_pylist()
    views.validate(full=True)


def test_codes_of_pandas() -> None:
    made = sa.DictionaryArray.from_arrays(np.array([0, -1, 1]), ["a", "b"], from_pandas=True)
    assert made.to_pylist() == ["a", None, "b"]
    both = sa.DictionaryArray.from_arrays(
        sa.array([0, -1, None, 1]), ["a", "b"], [True, False, False, False], True, True
    )
    assert both.to_pylist() == [None, None, None, "b"]
    assert both.type.ordered
    sliced = sa.DictionaryArray.from_arrays(sa.array([9, 0, None, 1]).slice(1), ["a", "b"], mask=[True, False, False])
    assert sliced.to_pylist() == [None, None, "b"]


def test_unsafe_indices_are_found_later() -> None:
    with pytest.raises(sa.InvalidData, match=r"row 1: .*index 2 of a dictionary of 1 values"):
        sa.DictionaryArray.from_arrays([0, 2], ["a"])
    made = sa.DictionaryArray.from_arrays([0, 2], ["a"], safe=False)
    with pytest.raises(sa.InvalidData, match=r"row 1: .*index 2"):
        made.to_pylist()


def test_unions_as_pyarrow_builds_them() -> None:
    ids, offsets = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    short, long = [pa.array([1, None]), pa.array(["a"])], [pa.array([1, 2, None]), pa.array(["x", "a", "y"])]
    for names, codes in ((None, None), (["i", "s"], None), (["i", "s"], [7, 9])):
        tags = ids if codes is None else pa.array([7, 9, 7], pa.int8())
        dense = pa.UnionArray.from_dense(tags, offsets, short, names, codes)
        sparse = pa.UnionArray.from_sparse(tags, long, names, codes)
        ours = sa.UnionArray.from_dense(tags, offsets, short, names, codes)
        assert ours.to_pyarrow().equals(dense)
        assert ours.to_pyarrow().type == dense.type
        ours = sa.UnionArray.from_sparse(tags, long, names, codes)
        assert ours.to_pyarrow().equals(sparse)
        assert ours.to_pyarrow().type == sparse.type


def test_a_type_given_says_what_plain_values_become() -> None:
    field = sa.field("x", sa.int16(), nullable=False)
    assert sa.ListArray.from_arrays([0, 2], [1, 2], sa.list_(field)).type.fields[0] == field
    assert sa.StructArray.from_arrays([[1, 2]], fields=[field]).type == sa.struct([field])
    assert sa.StructArray.from_arrays([[1, 2]], type=sa.struct([field])).field("x").type == sa.int16()
    runs = RUNS([1, 3], [5, 6], sa.run_end_encoded(sa.int16(), sa.int8()))
    assert runs.to_pylist() == [5, 6, 6]
    assert sa.StructArray.from_arrays([], [], mask=[False, True]).to_pylist() == [{}, None]


@pytest.mark.parametrize(
    "make",
    [
        lambda type: sa.ListArray.from_arrays(type, [0, 1], NUMBERS),
        lambda type: RUNS(type, [1], [1]),
        lambda type: sa.Array.from_buffers(sa.int8(), 1, type),
    ],
    ids=["list", "runs", "buffers"],
)
def test_a_type_that_comes_first_is_told_so(make: Any) -> None:
    with pytest.raises(sa.InvalidType, match="found the type int8; pass the type last"):
        make(sa.int8())


LISTS, VIEWS, PAIRS = sa.ListArray.from_arrays, sa.ListViewArray.from_arrays, sa.FixedSizeListArray.from_arrays
STRUCTS, MAPS = sa.StructArray.from_arrays, sa.MapArray.from_arrays
SPARSE, RUNS, TEXTS = sa.UnionArray.from_sparse, sa.RunEndEncodedArray.from_arrays, sa.BinaryArray.from_arrays
INT8S, BITS = sa.list_(sa.int8()), np.array([True])

WRONG: dict[str, Any] = {
    "list-both-nulls": (lambda: LISTS([0, None, 1], NUMBERS, mask=[True, False]), sa.InvalidArgument),
    "list-of-large": (lambda: LISTS([0, 1], NUMBERS, sa.large_list(sa.int8())), sa.InvalidType),
    "list-beyond": (lambda: LISTS([0, 4], NUMBERS), sa.InvalidData),
    "list-negative": (lambda: LISTS([-1, 2], NUMBERS), sa.InvalidData),
    "list-offsets-text": (lambda: LISTS(["a"], NUMBERS), sa.InvalidType),
    "list-offsets-huge": (lambda: LISTS([0, 1 << 70], NUMBERS), sa.InvalidType),
    "list-mask-null": (lambda: LISTS([0, 1], NUMBERS, mask=[None]), sa.InvalidType),
    "view-null-sizes": (lambda: VIEWS([0], sa.array([None], "int32"), NUMBERS), sa.InvalidType),
    "fixed-neither": (lambda: PAIRS(NUMBERS), sa.InvalidArgument),
    "fixed-rest": (lambda: PAIRS(NUMBERS, 2), sa.InvalidData),
    "struct-nothing": (lambda: STRUCTS([NUMBERS]), sa.InvalidArgument),
    "struct-names": (lambda: STRUCTS([NUMBERS], ["a", "b"]), sa.InvalidArgument),
    "struct-lengths": (lambda: STRUCTS([NUMBERS, [1]], ["a", "b"]), sa.InvalidData),
    "struct-field-type": (lambda: STRUCTS([NUMBERS], fields=[sa.field("a", "int16")]), sa.InvalidData),
    "map-null-key": (lambda: MAPS([0, 1], [None], [1]), sa.InvalidData),
    "map-items": (lambda: MAPS([0, 1], ["a"], [1, 2]), sa.InvalidData),
    "union-names": (lambda: SPARSE([0] * 3, [NUMBERS], ["a", "b"]), sa.InvalidArgument),
    "union-type-and-names": (
        lambda: SPARSE([0] * 3, [NUMBERS], ["a"], type=sa.sparse_union({"a": sa.int8()})),
        sa.InvalidArgument,
    ),
    "runs-null": (lambda: RUNS(sa.array([1, None], "int32"), [1, 2]), sa.InvalidData),
    "runs-empty-list": (lambda: RUNS([], []), sa.InvalidArgument),
    "dictionary-floats": (lambda: sa.DictionaryArray.from_arrays([0.0], ["a"]), sa.InvalidType),
    "nulls-negative": (lambda: sa.nulls(-1), sa.InvalidArgument),
    "nulls-memory": (lambda: sa.nulls(1 << 60, "int64"), sa.LimitExceeded),
    "nulls-beyond": (lambda: sa.nulls(1 << 80, "int64"), sa.LimitExceeded),
    "nulls-lists-memory": (lambda: sa.nulls(1 << 40, sa.list_(sa.float64(), 1 << 30)), sa.LimitExceeded),
    "struct-type": (lambda: STRUCTS([NUMBERS], type=sa.struct({"a": sa.string()})), sa.InvalidData),
    "struct-type-count": (lambda: STRUCTS([], type=sa.struct({"a": sa.int8()})), sa.InvalidArgument),
    "list-type": (lambda: LISTS([0, 1], NUMBERS, sa.list_(sa.string())), sa.InvalidData),
    "list-mask": (lambda: LISTS([0, 1], NUMBERS, INT8S, mask=np.array([False, True])), sa.InvalidArgument),
    "list-float-offsets": (lambda: LISTS([0.0, 1.5], NUMBERS, INT8S), sa.InvalidType),
    "list-wide-offsets": (lambda: LISTS([1 << 32, 1 + (1 << 32)], NUMBERS, INT8S), sa.InvalidData),
    "list-no-offsets": (lambda: LISTS([], NUMBERS, INT8S), sa.InvalidData),
    "list-null-end": (lambda: LISTS(sa.array([0, None]), NUMBERS, INT8S), sa.InvalidData),
    "view-sizes": (lambda: VIEWS([0, 0], [1], NUMBERS), sa.InvalidArgument),
    "union-no-offsets": (lambda: SPARSE([0] * 3, [NUMBERS], type=sa.dense_union({"a": sa.int8()})), sa.InvalidType),
    "union-offsets": (lambda: sa.UnionArray.from_dense([0], [0, 0], [NUMBERS]), sa.InvalidArgument),
    "union-sparse-length": (lambda: SPARSE([0], [NUMBERS]), sa.InvalidData),
    "union-ids-wrap": (lambda: SPARSE([256] * 3, [NUMBERS]), sa.InvalidData),
    "binary-data": (lambda: TEXTS([0, 1], "a", sa.string()), sa.InvalidType),
    "numbers-mask": (lambda: sa.PrimitiveArray.from_numpy(sa.int8(), np.zeros(2, "i1"), BITS), sa.InvalidArgument),
    "bools-mask": (lambda: sa.BooleanArray.from_numpy(sa.bool_(), np.zeros(2, "?"), BITS), sa.InvalidArgument),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_parts_that_do_not_fit(name: str) -> None:
    make, error = WRONG[name]
    with pytest.raises(error):
        make()


# --- from_buffers -----------------------------------------------------------------------------------------------


def parts(array: pa.Array) -> tuple[list[Any], list[Any]]:
    """The array's own buffers and its children, as pyarrow has them."""
    type = array.type
    if pa.types.is_struct(type) or pa.types.is_union(type):
        width = 1 if pa.types.is_struct(type) else 3 if type.mode == "dense" else 2
        whole = sa.array(array)
        return array.buffers()[:width], list(whole.children)
    if pa.types.is_nested(type) or pa.types.is_run_end_encoded(type):  # not nested before pyarrow 24
        whole = sa.array(array)
        return array.buffers()[: len(own_buffers(whole)) or 1], list(whole.children)
    return array.buffers(), []


@pytest.mark.parametrize("name", [name for name in PEERS if name != "dictionary"])
def test_from_buffers_is_the_array_again(name: str) -> None:
    if name == "sparse_union":
        needs_pyarrow(25)  # older ones show other values of slices
    peer = PEERS[name]
    ours = sa.array(peer)
    buffers, children = parts(peer)
    for made in (
        sa.Array.from_buffers(ours.type, 8, buffers, -1, 0, children),
        sa.Array.from_buffers(ours.type, 8, buffers, children=children),
        sa.Array.from_buffers(ours.type, length=8, buffers=own_buffers(ours), children=children),
        type(ours).from_buffers(ours.type, 8, buffers, null_count=ours.null_count, children=children),
    ):
        made.validate(full=True)
        assert made == ours
        assert made.to_pylist() == peer.to_pylist()
    part = sa.Array.from_buffers(ours.type, 3, buffers, offset=4, children=children)
    assert part.to_pylist() == peer.slice(4, 3).to_pylist()


def test_from_buffers_copies_nothing_and_writes_nothing() -> None:
    data = bytearray(np.arange(4, dtype="<i4").tobytes())
    made = sa.Array.from_buffers("int32", 4, [None, data])
    assert made.to_pylist() == [0, 1, 2, 3]
    assert not made.values.flags.writeable
    data[0] = 9
    assert made.to_pylist() == [9, 1, 2, 3]
    assert sa.Array.from_buffers("int32", 2, [b"\x01", data[4:]]).to_pylist() == [1, None]
    assert sa.Array.from_buffers("string", 0, [None, None, None]).to_pylist() == []
    assert sa.Array.from_buffers("bool", 0, [None, None]).to_pylist() == []
    assert sa.Array.from_buffers("null", 3, [None]).to_pylist() == [None] * 3
    tensors = sa.Array.from_buffers(sa.uuid(), 1, [None, bytes(16)])
    assert len(tensors) == 1


INT4 = np.arange(4, dtype="<i4")
WRONG_BUFFERS: dict[str, Any] = {
    "short": (("int32", 5, [None, INT4]), sa.InvalidData),
    "offset-beyond": (("int32", 4, [None, INT4], -1, 1), sa.InvalidData),
    "null-count": (("int32", 4, [b"\x0f", INT4], 2), sa.InvalidData),
    "null-count-negative": (("int32", 4, [None, INT4], -2), sa.InvalidArgument),
    "many": (("int32", 4, [None, INT4, INT4]), sa.InvalidData),
    "strided": (("int32", 2, [None, INT4[::2]]), sa.InvalidType),
    "length-negative": (("int32", -4, [None, INT4]), sa.InvalidArgument),
    "dictionary": ((sa.dictionary("int32", "string"), 1, [None, INT4]), sa.InvalidType),
    "text": (("int32", 4, [None, "abcdabcdabcdabcd"]), sa.InvalidType),
    "no-children": ((sa.list_("int8"), 1, [None, INT4]), sa.InvalidData),
    "children-lists": ((sa.list_("int8"), 1, [None, INT4], -1, 0, [[1]]), sa.InvalidType),
    "children-type": ((sa.list_("int8"), 1, [None, INT4], -1, 0, [sa.array([1])]), sa.InvalidData),
    "list-beyond": ((sa.list_("int8"), 3, [None, INT4], -1, 0, [sa.array([1], "int8")]), sa.InvalidData),
    "string-beyond": (("string", 3, [None, INT4, b"ab"]), sa.InvalidData),
    "string-without-data": (("string", 3, [None, INT4, None]), sa.InvalidData),
}


@pytest.mark.parametrize("name", WRONG_BUFFERS)
def test_buffers_that_do_not_fit(name: str) -> None:
    arguments, error = WRONG_BUFFERS[name]
    with pytest.raises(error):
        sa.Array.from_buffers(*arguments)


def test_a_table_has_batches_of_its_schema_only() -> None:
    batch = sa.record_batch({"x": ["a"]})
    with pytest.raises(sa.InvalidType, match=r"batch 1 has other fields than the rest: .*string.*int64"):
        sa.Table(sa.schema([("x", sa.int64())]), [sa.record_batch({"x": [1]}), batch])
    assert sa.Table(batch.schema.with_metadata({"k": "v"}), [batch]).to_pydict() == {"x": ["a"]}
