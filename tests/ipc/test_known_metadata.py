"""Metadata that were seen before are recognised as a whole: the values are those that reading them anew gives."""

import io
import random
import struct
from typing import Any

import forms
import numpy as np
import pytest
from wire import messages

import shmarrow as sa
from shmarrow.ipc.batch.decode import BatchHeader, read_message
from shmarrow.ipc.flatbuffers.reader import TracingReader
from shmarrow.ipc.message.decode import TemplateCache, parse_metadata

SCHEMA = sa.schema([("x", sa.int64()), ("y", sa.string()), ("z", sa.int64())])


def batch_of(rows: int) -> sa.RecordBatch:
    values = [f"{i:>{1 + i % 7}}" for i in range(rows)]
    nulls = [None if i % 3 else i for i in range(rows)]
    return sa.record_batch({"x": list(range(rows)), "y": values, "z": nulls}, schema=SCHEMA)


def stream_of(sizes: list[int]) -> bytes:
    return forms.stream_of(*map(batch_of, sizes))


def test_batches_that_differ_in_their_numbers_are_recognised_with_their_own() -> None:
    sizes = [3, 1, 0, 200, 3, 2, 0, 7]
    for _ in range(3):
        table = sa.ipc.open_stream(stream_of(sizes)).read_all()
        assert [batch.to_pydict() for batch in table.to_batches()] == [batch_of(size).to_pydict() for size in sizes]


def test_files_that_differ_in_their_blocks_are_recognised_with_their_own() -> None:
    for size in (5, 0, 1000, 5, 7):
        sink = io.BytesIO()
        with sa.ipc.new_file(sink, SCHEMA, metadata={"a": "b"}) as writer:
            writer.write(batch_of(size))
            writer.write(batch_of(size + 1))
        reader = sa.ipc.open_file(sink.getvalue())
        assert reader.metadata == {b"a": b"b"}
        assert [batch.to_pydict() for batch in reader] == [batch_of(size).to_pydict(), batch_of(size + 1).to_pydict()]


def test_a_recognised_message_is_checked_as_any_other() -> None:
    """The numbers of rows, body, nodes and buffers are not among what is known, so wrong ones are found again."""
    data = stream_of([4, 4, 4])
    sa.ipc.open_stream(data).read_all()
    part = messages(data)[2]
    for value, place in (
        (-1, part.message.table.offset_of("bodyLength")),
        (1 << 40, part.message.table.offset_of("bodyLength")),
        (-1, part.message.header.offset_of("length")),
        (5, part.message.header.offset_of("length")),
        (1 << 40, part.message.header.vector_of("buffers", 16)[0] + 16),
        (-8, part.message.header.vector_of("nodes", 16)[0]),
    ):
        raw = bytearray(data)
        start = data.index(part.message.metadata.tobytes(), part.body - len(part.message.metadata) - 8)
        raw[start + place : start + place + 8] = struct.pack("<q", value)
        with pytest.raises(sa.InvalidData):
            sa.ipc.open_stream(bytes(raw)).read_all().validate(full=True)


def test_bytes_that_are_read_as_two_things_are_not_kept() -> None:
    """If a vector of numbers could be part of a table, other numbers would be another table."""
    part = messages(stream_of([4]))[1]
    metadata = part.message.metadata
    message = parse_metadata(metadata, "test", sa.Limits(), TracingReader)
    start, count = message.header.vector_of("nodes", 16)
    tracer: Any = message.table.reader
    hole = [(start, f"{16 * count}s")]
    for reads, kept in ((tracer.reads, True), ({*tracer.reads, (start + 8, start + 12)}, False)):
        known = TemplateCache()
        known.add(metadata.tobytes(), hole, reads, "value")
        assert (known.find(metadata.tobytes()) is not None) == kept
    known.add(metadata.tobytes(), hole * 2, tracer.reads, "value")
    assert known.find(metadata.tobytes()) is None


def test_any_changed_byte_is_read_as_if_nothing_were_known() -> None:
    """Each message is read again by a parser that knows nothing: the same header, or an error of both."""
    metadata = messages(stream_of([4]))[1].message.metadata.tobytes()
    chooser = random.Random(7)
    for _ in range(1000):
        raw = bytearray(metadata)
        for _ in range(chooser.randrange(3)):
            raw[chooser.randrange(len(raw))] = chooser.randrange(256)
        outcomes = []
        for limits in (sa.Limits(), sa.Limits(tables=chooser.randrange(10**6, 10**7))):  # known and not
            try:
                header: Any = read_message(np.frombuffer(raw, np.uint8), "test", limits)
                outcomes.append(
                    [part.tolist() if isinstance(part, np.ndarray) else part for part in header]
                    if isinstance(header, BatchHeader)
                    else header.kind
                )
            except sa.ShmarrowError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_metadata_of_the_same_length_are_told_apart() -> None:
    """Without rows, all bytes outside of vectors are zeros, of text, no columns, and nulls."""
    schemas = [sa.schema({"a": sa.string()}), sa.schema([]), sa.schema(dict.fromkeys("abc", sa.null()))]
    for _ in range(2):
        for schema in schemas:
            batch = sa.record_batch({name: [] for name in schema.names}, schema=schema)
            table = sa.ipc.open_stream(forms.stream_of(batch)).read_all()
            assert [column.to_pylist() for column in table.columns] == [[]] * len(schema)
