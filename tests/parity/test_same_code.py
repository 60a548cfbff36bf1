"""Code as a user of pyarrow writes it, run with both libraries: ``pa`` is pyarrow, or shmarrow."""

from __future__ import annotations

import copy
import io
import pickle
import weakref
from typing import Any

import numpy as np
import pyarrow
import pytest

import shmarrow

pytestmark = pytest.mark.skipif(
    int(pyarrow.__version__.partition(".")[0]) < 26, reason="the tests say what pyarrow 26 does"
)


@pytest.fixture(params=[pyarrow, shmarrow], ids=["pyarrow", "shmarrow"])
def pa(request: pytest.FixtureRequest) -> Any:
    """Each of the libraries."""
    return request.param


# --- batches and their dictionaries ------------------------------------------------------------------------------


def encoded(pa: Any, *values: str) -> Any:
    """A record batch of one dictionary-encoded column of these values, in order."""
    column = pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int8()), pa.array(values))
    return pa.record_batch([column], names=["word"])


def numbers(pa: Any, *values: int | None) -> Any:
    return pa.record_batch([pa.array(values, pa.int64())], names=["n"])


def written(new: Any, batches: list[Any], **arguments: Any) -> bytes:
    sink = io.BytesIO()
    with new(sink, batches[0].schema, **arguments) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


# --- how many messages --------------------------------------------------------------------------------------------

GROWS = (("a", "b"), ("a", "b"), ("a", "b", "c"))
REPLACED = (*GROWS, ("z",))


def test_a_stream_counts_its_messages_as_they_are_written_and_read(pa: Any) -> None:
    batches = [encoded(pa, *words) for words in REPLACED]
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    counts = [(3, 1, 1, 0, 0), (4, 2, 1, 0, 0), (6, 3, 2, 1, 0), (8, 4, 3, 1, 1)]
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch, count in zip(batches, counts, strict=True):
            writer.write_batch(batch)
            assert tuple(writer.stats) == count
    assert tuple(writer.stats) == counts[-1]
    for source in (sink.getvalue(), io.BytesIO(sink.getvalue())):
        reader = pa.ipc.open_stream(source)
        assert tuple(reader.stats) == (1, 0, 0, 0, 0)
        for batch, count in zip(reader, counts, strict=True):
            assert batch.num_rows == batches[counts.index(count)].num_rows
            assert tuple(reader.stats) == count
        found = reader.stats
        assert found.num_messages == 8
        assert found.num_record_batches == 4
        assert found.num_dictionary_batches == 3
        assert found.num_dictionary_deltas == 1
        assert found.num_replaced_dictionaries == 1
        reader.close()
        assert reader.stats == found


def test_a_file_counts_its_messages(pa: Any) -> None:
    batches = [encoded(pa, *words) for words in GROWS]
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_file(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
        assert tuple(writer.stats) == (6, 3, 2, 1, 0)
    reader = pa.ipc.open_file(sink.getvalue())
    assert reader.read_all().num_rows == 7
    assert tuple(reader.stats) == (6, 3, 2, 1, 0)
    assert reader.count_rows() == 7


def test_a_table_with_several_dictionaries_is_written_to_a_file_with_one(pa: Any) -> None:
    table = pa.Table.from_batches([encoded(pa, "a", "b"), encoded(pa, "z", "a")])
    sink = io.BytesIO()
    with pytest.raises(ValueError, match=r"(?i)dictionary"), pa.ipc.new_file(io.BytesIO(), table.schema) as file:
        file.write_table(table)
    options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
        assert tuple(writer.stats) == (4, 2, 1, 0, 0)
    found = pa.ipc.open_file(sink.getvalue()).read_all()
    assert found.column("word").to_pylist() == ["a", "b", "z", "a"]
    assert found.column("word").chunk(1).dictionary.to_pylist() == ["a", "b", "z"]
    with pa.ipc.new_stream(io.BytesIO(), table.schema, options=options) as writer:
        writer.write_table(table)
        assert tuple(writer.stats) == (5, 2, 2, 0, 1)


# --- metadata of batches ------------------------------------------------------------------------------------------


def test_batches_have_metadata_of_their_own(pa: Any) -> None:
    sink, file = io.BytesIO(), io.BytesIO()
    for new, target in ((pa.ipc.new_stream, sink), (pa.ipc.new_file, file)):
        with new(target, numbers(pa, 1).schema) as writer:
            writer.write_batch(numbers(pa, 1), custom_metadata={"part": "1", b"k": b"\xff"})
            writer.write_batch(numbers(pa, 2))
            writer.write_batch(numbers(pa, 3, 4), custom_metadata={"part": "3"})
    expected = [{b"part": b"1", b"k": b"\xff"}, None, {b"part": b"3"}]
    for source in (sink.getvalue(), io.BytesIO(sink.getvalue())):
        reader = pa.ipc.open_stream(source)
        first = reader.read_next_batch_with_custom_metadata()
        assert first.batch.to_pydict() == {"n": [1]}
        assert dict(first.custom_metadata) == expected[0]
        rest = [(batch.num_rows, metadata) for batch, metadata in reader.iter_batches_with_custom_metadata()]
        assert [(rows, metadata and dict(metadata)) for rows, metadata in rest] == [(1, None), (2, {b"part": b"3"})]
        with pytest.raises(StopIteration):
            reader.read_next_batch_with_custom_metadata()
    opened = pa.ipc.open_file(file.getvalue())
    found = [opened.get_batch_with_custom_metadata(i).custom_metadata for i in range(3)]
    assert [metadata and dict(metadata) for metadata in found] == expected


# --- readers ------------------------------------------------------------------------------------------------------


def test_a_reader_casts_each_batch_when_it_is_read(pa: Any) -> None:
    small = pa.schema([pa.field("n", pa.int8())])
    data = written(pa.ipc.new_stream, [numbers(pa, 1, None), numbers(pa, 300)])
    reader = pa.ipc.open_stream(data).cast(small)
    assert reader.schema == small
    assert reader.read_next_batch().column("n").type == pa.int8()
    with pytest.raises(ValueError, match="300"):
        reader.read_next_batch()
    reader = pa.RecordBatchReader.from_stream(pa.ipc.open_stream(data), schema=numbers(pa, 1).schema)
    assert reader.read_all().column("n").to_pylist() == [1, None, 300]


@pytest.mark.parametrize("fields", [[], [("m", "int8")], [("n", "list")], [("n", "struct")]])
def test_an_impossible_cast_of_a_reader_fails_at_once(pa: Any, fields: list[tuple[str, str]]) -> None:
    types = {"int8": pa.int8(), "list": pa.list_(pa.int8()), "struct": pa.struct([("n", pa.int64())])}
    schema = pa.schema([(name, types[type]) for name, type in fields])
    table = pa.Table.from_batches([numbers(pa, 1)])
    with pytest.raises((ValueError, TypeError, KeyError)):
        pa.RecordBatchReader.from_stream(table, schema=schema)
    reader = table.to_reader()
    with pytest.raises((ValueError, TypeError, KeyError)):
        reader.cast(schema)
    assert reader.read_all().num_rows == 1


def test_a_reader_lets_go_of_its_batches_at_the_end(pa: Any) -> None:
    batches = (numbers(pa, number) for number in range(1))
    known = weakref.ref(batches)
    with pa.RecordBatchReader.from_batches(numbers(pa, 1).schema, batches) as reader:
        del batches
        assert known() is not None
        assert [batch.num_rows for batch in reader] == [1]
        assert known() is None


@pytest.mark.parametrize("compression", [None, "lz4", "zstd", "LZ4", "ZSTD"])
def test_compression_is_named_in_any_case(pa: Any, compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    assert options.compression == (compression and compression.lower())
    batch = numbers(pa, *[7] * 1000)
    data = written(pa.ipc.new_file, [batch], options=options)
    assert (len(data) < 2000) == (compression is not None)
    assert pa.ipc.open_file(data).get_batch(0) == batch
    with pytest.raises(ValueError, match="lz4"):
        pa.ipc.IpcWriteOptions(compression="snappy")


# --- tensors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"])
def test_a_tensor_says_what_its_ndarray_says(pa: Any, dtype: str) -> None:
    array = np.arange(24, dtype=dtype).reshape(4, 6)
    for part in (array, array.T, array[::2], array[:, ::2], np.asfortranarray(array)):
        tensor = pa.Tensor.from_numpy(part, dim_names=["row", "column"])
        assert (tensor.shape, tensor.strides, tensor.ndim, tensor.size) == (part.shape, part.strides, 2, part.size)
        assert tensor.is_contiguous == (part.flags.c_contiguous or part.flags.f_contiguous)
        assert list(tensor.dim_names) == ["row", "column"]
        assert [tensor.dim_name(i) for i in range(2)] == ["row", "column"]
        assert np.shares_memory(tensor.to_numpy(), array) == np.shares_memory(part, array)
        assert np.asarray(tensor).tolist() == part.tolist()
        assert tensor == pa.Tensor.from_numpy(part.copy(), dim_names=["row", "column"])
        assert tensor != pa.Tensor.from_numpy(part + part.dtype.type(1), dim_names=["row", "column"])
        with pytest.raises(TypeError):
            hash(tensor)


# --- pickles ------------------------------------------------------------------------------------------------------

PICKLED = {
    "table": lambda pa: pa.Table.from_batches([numbers(pa, 1, None), numbers(pa, 3)]),
    "batch": lambda pa: encoded(pa, "a", "b"),
    "schema": lambda pa: numbers(pa).schema.with_metadata({"k": "v"}),
    "field": lambda pa: pa.field("x", pa.list_(pa.int8()), nullable=False, metadata={"k": "v"}),
    "type": lambda pa: pa.struct([("x", pa.timestamp("us", "UTC"))]),
    "array": lambda pa: pa.array([[1], None, []], pa.list_(pa.int8())).slice(1),
    "chunks": lambda pa: pa.chunked_array([["a"], [None, "b"]]),
    "dictionary": lambda pa: encoded(pa, "a", "b").column(0),
}


@pytest.mark.parametrize("kind", PICKLED)
def test_values_are_pickled_and_copied(pa: Any, kind: str) -> None:
    thing = PICKLED[kind](pa)
    copies = [pickle.loads(pickle.dumps(thing, protocol)) for protocol in range(2, 6)]
    for copied in (*copies, copy.copy(thing), copy.deepcopy(thing)):
        assert copied == thing
        assert type(copied) is type(thing)
        assert getattr(copied, "metadata", None) == getattr(thing, "metadata", None)
