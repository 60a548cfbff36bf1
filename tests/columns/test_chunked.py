"""Chunked arrays: every operation gives what pyarrow gives, whatever the chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from measures import seconds

import shmarrow as sa

CUTS = {"whole": [], "halves": [2], "empty chunks": [0, 2, 2, 5], "single slots": [1, 2, 3, 4]}
NUMBERS = sa.array([3, None, 1, 3, None], sa.int16())
WORDS = sa.array(["b", None, "a", "b", ""])


def chunked(array: Any, cuts: list[int]) -> sa.ChunkedArray:
    """An array in chunks that end at the cuts."""
    ends = [0, *cuts, len(array)]
    return sa.ChunkedArray([array.slice(a, b - a) for a, b in itertools.pairwise(ends)], array.type)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(
    "array", [NUMBERS, WORDS, sa.array([[1], None, [], [2, 3], [None]])], ids=["int", "str", "list"]
)
def test_selections_are_those_of_pyarrow(array: Any, cuts: str) -> None:
    ours = chunked(array, CUTS[cuts])
    theirs = ours.to_pyarrow()
    mask = [None, True, None, False, True]
    for behavior in ("drop", "emit_null"):
        expected = theirs.filter(pa.array(mask), null_selection_behavior=behavior).to_pylist()
        for given in (mask, sa.array(mask), chunked(sa.array(mask), [1, 3]), pa.array(mask)):
            found = ours.filter(given, behavior)
            assert (found.type, found.to_pylist()) == (array.type, expected)
    for indices in ([4, 0, 0, 2], [], [2, None, 1], [None, None]):
        expected = theirs.take(pa.array(indices, pa.int64())).to_pylist()
        typed = sa.array(indices, sa.int64())
        for given in (indices, typed, sa.ChunkedArray([typed, typed.slice(0, 0)])):
            assert ours.take(given).to_pylist() == expected
    assert ours[::-2].to_pylist() == array.to_pylist()[::-2]


def test_selections_of_no_chunks_at_all() -> None:
    empty = sa.ChunkedArray([], sa.string())
    assert empty.filter([]).to_pylist() == []
    assert empty.take([]).to_pylist() == []
    assert empty.take([None, None]).to_pylist() == [None, None]
    assert empty.drop_null().to_pylist() == empty.to_pylist() == []
    assert (empty.is_null().type, empty.to_numpy().shape, empty.unify_dictionaries().type) == (
        sa.bool_(),
        (0,),
        sa.string(),
    )
    assert empty.cast("large_string").type == sa.large_string()


WRONG: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "beyond": (lambda c: c[5], sa.IndexOutOfRange, "index 5 is out of range"),
    "chunk": (lambda c: c.chunk(2), sa.IndexOutOfRange, "chunk 2 is out of range: the number of chunks is 2"),
    "chunk from the end": (lambda c: c.chunk(-1), sa.IndexOutOfRange, "chunk -1 is out of range"),
    "take beyond": (lambda c: c.take([0, 5]), sa.IndexOutOfRange, "index 5 is out of range: the column has 5"),
    "not zero-copy": (lambda c: c.to_numpy(zero_copy_only=True), sa.CopyRequired, "2 chunks"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call(chunked(NUMBERS, [2]))


# --- ndarrays ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "type"),
    [
        ([1, 2, None, 4], sa.int64()),
        ([1, 2, 3, 4], sa.int8()),
        ([True, False, None, True], sa.bool_()),
        ([1.5, None, None, 2.5], sa.float32()),
        (["a", "b", None, "d"], sa.string()),
        ([[1, 2], [3, 4], None, [5, 6]], sa.list_(sa.int32(), 2)),
        ([[1, 2], [3, 4], [5, 6], [7, 8]], sa.list_(sa.int32(), 2)),
        ([[1], [3, 4], None, []], sa.list_(sa.int32())),
        ([{"x": 1}, None, {"x": 2}, {"x": None}], sa.struct({"x": sa.int8()})),
    ],
    ids=lambda value: str(value) if isinstance(value, sa.DataType) else "",
)
@pytest.mark.parametrize("cuts", [[], [2], [0, 1, 1], [1, 2, 3]], ids=str)
def test_an_ndarray_does_not_depend_on_the_chunks(values: list[Any], type: Any, cuts: list[int]) -> None:
    array = sa.array(values, type)
    whole, found = array.to_numpy(False), chunked(array, cuts).to_numpy()
    assert (found.dtype, found.shape) == (whole.dtype, whole.shape)
    assert repr(found.tolist()) == repr(whole.tolist())


def test_an_ndarray_of_dictionaries_does_not_depend_on_the_chunks() -> None:
    array = sa.DictionaryArray.from_arrays(sa.array([0, 1, None, 0], "int8"), sa.array([5, 6]))
    found = chunked(array, [2]).to_numpy()
    assert found.dtype == array.to_numpy(False).dtype == np.float64
    np.testing.assert_array_equal(found, [5.0, 6.0, np.nan, 5.0])


# --- dictionaries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("array", [NUMBERS, WORDS], ids=["int", "str"])
def test_chunks_are_encoded_with_one_dictionary(array: Any, cuts: str) -> None:
    ours = chunked(array, CUTS[cuts]).dictionary_encode()
    ours.validate(full=True)
    theirs = chunked(array, CUTS[cuts]).to_pyarrow().dictionary_encode()
    assert ours.to_pylist() == array.to_pylist()
    assert ours.type.to_pyarrow() == theirs.type
    assert [len(chunk) for chunk in ours.iterchunks()] == [len(chunk) for chunk in chunked(array, CUTS[cuts]).chunks]
    for chunk in ours.chunks:
        assert chunk.dictionary.to_pylist() == theirs.chunk(0).dictionary.to_pylist()
    assert ours.dictionary_encode() is ours
    assert (
        chunked(array, CUTS[cuts]).unique().to_pylist() == chunked(array, CUTS[cuts]).to_pyarrow().unique().to_pylist()
    )


def encoded(*values: Any, type: Any = None) -> Any:
    return sa.array(values, type or sa.dictionary("int8", "string"))


def test_dictionaries_of_chunks_are_unified() -> None:
    chunks = [encoded("a", "b", None), encoded(), encoded("c", "b"), encoded(None), encoded("a")]
    ours = sa.ChunkedArray(chunks)
    theirs = ours.to_pyarrow().unify_dictionaries()
    found = ours.unify_dictionaries()
    found.validate(full=True)
    assert found.to_pylist() == theirs.to_pylist() == ["a", "b", None, "c", "b", None, "a"]
    assert found.type == ours.type
    for mine, peer in zip(found.chunks, theirs.chunks, strict=True):
        assert mine.dictionary.to_pylist() == peer.dictionary.to_pylist() == ["a", "b", "c"]
        assert mine.indices.to_pylist() == peer.indices.to_pylist()
    assert all(chunk.dictionary is found.chunk(0).dictionary for chunk in found.chunks)
    again = found.unify_dictionaries()
    assert [chunk.indices.to_pylist() for chunk in again.chunks] == [
        chunk.indices.to_pylist() for chunk in found.chunks
    ]


def test_nested_dictionaries_are_unified_and_nulls_in_dictionaries_become_nulls() -> None:
    type = sa.struct({"x": sa.list_(sa.dictionary("int8", "string"))})
    chunks = [sa.array([{"x": ["a", None]}, None], type), sa.array([{"x": ["b"]}, {"x": ["a", "b"]}], type)]
    found = sa.ChunkedArray(chunks).unify_dictionaries()
    found.validate(full=True)
    assert found.to_pylist() == [value for chunk in chunks for value in chunk.to_pylist()]
    first, second = (chunk.children[0].children[0].dictionary for chunk in found.chunks)
    assert first is second
    with_null = sa.DictionaryArray.from_arrays(sa.array([0, 1, None], "int8"), sa.array([None, "z"]))
    column = sa.ChunkedArray([with_null, sa.DictionaryArray.from_arrays(sa.array([0], "int8"), sa.array(["z"]))])
    unified = column.unify_dictionaries()
    unified.validate(full=True)
    assert unified.to_pylist() == [None, "z", None, "z"]
    assert unified.chunk(0).dictionary.to_pylist() == ["z"]


def test_a_dictionary_that_the_indices_do_not_reach_is_refused() -> None:
    chunks = [encoded(*[f"{start + i}" for i in range(100)]) for start in (0, 100)]
    with pytest.raises(sa.InvalidData, match="200 distinct values exceed the 128"):
        sa.ChunkedArray(chunks).unify_dictionaries()
    same = [encoded(*[f"{i}" for i in order]) for order in (range(100), reversed(range(100)))]
    assert len(sa.ChunkedArray(same).unify_dictionaries().chunk(1).dictionary) == 100


# --- other forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", CUTS)
def test_casts_and_struct_fields_keep_the_chunks(cuts: str) -> None:
    column = chunked(NUMBERS, CUTS[cuts])
    made = column.cast(sa.int64())
    assert (made.type, made.to_pylist(), made.num_chunks) == (sa.int64(), NUMBERS.to_pylist(), column.num_chunks)
    structs = sa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 4, "y": None}, None])
    ours = chunked(structs, CUTS[cuts])
    found, expected = ours.flatten(), ours.to_pyarrow().flatten()
    assert [field.to_pylist() for field in found] == [field.to_pylist() for field in expected]
    assert [field.type.to_pyarrow() for field in found] == [field.type for field in expected]
    assert column.flatten() == [column]


def test_columns_are_equal_whatever_their_chunks() -> None:
    for array in (NUMBERS, WORDS):
        whole = sa.ChunkedArray([array])
        for cuts in CUTS.values():
            assert whole.equals(chunked(array, cuts))
            assert chunked(array, cuts) == chunked(array, [1, 3])
            assert not chunked(array, cuts).equals(chunked(array.take([0, 1, 2, 3, 3]), [3]))
    assert not sa.ChunkedArray([NUMBERS]).equals(sa.ChunkedArray([NUMBERS.cast("int32")]))
    with pytest.raises(sa.InvalidType, match=r"expected a shmarrow.ChunkedArray to compare with.*chunked_array"):
        sa.ChunkedArray([NUMBERS]).equals(NUMBERS)


def test_a_broken_chunk_is_named() -> None:
    broken = sa.StructArray(sa.struct({"x": sa.int8()}), 3, [None], 0, 0, [sa.array([1], "int8")])
    with pytest.raises(sa.InvalidData, match="chunk 1: struct"):
        sa.ChunkedArray([broken.slice(0, 1), broken]).validate()


# --- making them ------------------------------------------------------------------------------------------------------


def test_chunked_arrays_are_made_as_by_pyarrow() -> None:
    for make in (
        lambda lib: lib.chunked_array([[1, 2], [3]]),
        lambda lib: lib.chunked_array([lib.array([1, 2]), lib.array([3])]),
        lambda lib: lib.chunked_array([[1, 2], [3]], type=lib.int8()),
        lambda lib: lib.chunked_array([], type=lib.string()),
        lambda lib: lib.chunked_array([[]], lib.int8()),
        lambda lib: lib.chunked_array(lib.array(["a"])),
        lambda lib: lib.chunked_array([np.arange(3), np.arange(2)]),
    ):
        ours, theirs = make(sa), make(pa)
        assert ours.type.to_pyarrow() == theirs.type
        assert [chunk.to_pylist() for chunk in ours.chunks] == [chunk.to_pylist() for chunk in theirs.chunks]
    column = sa.chunked_array([NUMBERS])
    assert sa.chunked_array(column).chunks == column.chunks
    assert column.chunk(0) is NUMBERS
    peer = pa.chunked_array([pa.array([1, 2], pa.int8()), pa.array([3], pa.int8())])
    assert sa.chunked_array([peer]).to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: sa.chunked_array([]), sa.InvalidArgument, "expected a type"),
        (lambda: sa.chunked_array(5), sa.InvalidType, "iterable of arrays, found 5"),
        (lambda: sa.chunked_array("ab"), sa.InvalidType, "found 'ab'"),
        (lambda: sa.chunked_array([1, 2]), sa.InvalidType, "found int"),
        (lambda: sa.chunked_array([[1], [2.5]]), sa.ShmarrowError, "2.5"),
        (lambda: sa.chunked_array([sa.array([1]), sa.array([1], "int8")]), sa.InvalidType, "a chunk of int8"),
        (lambda: sa.chunked_array([sa.array([1])], "int8"), sa.InvalidType, "a chunk of int64 in a column of int8"),
        (lambda: sa.chunked_array([[300]], "int8"), sa.InvalidData, "300"),
    ],
    ids=["nothing", "number", "text", "values", "float", "types", "typed", "value"],
)
def test_chunks_of_another_type_are_refused(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


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
