"""Wrong arguments are refused by our errors, which name what was found and what to pass."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from remote import Remote

import shmarrow as sa
from shmarrow.ipc import StreamDecoder

BATCH = sa.record_batch({"s": ["a", "b"], "t": [1, 2], "state": [3, 4]})


def written(make: Callable[..., Any]) -> bytes:
    sink = io.BytesIO()
    with make(sink, BATCH.schema) as writer:
        writer.write(BATCH)
        writer.write(BATCH)
    return sink.getvalue()


FILE, STREAM = written(sa.ipc.new_file), written(sa.ipc.new_stream)


@pytest.mark.parametrize("limits", [None, {"depth": 3}, sa.Limits])
def test_limits_of_another_type(limits: Any) -> None:
    for call in (
        lambda: sa.ipc.open_file(FILE, limits=limits),
        lambda: sa.ipc.open_stream(STREAM, limits=limits),
        lambda: StreamDecoder(limits),
        lambda: sa.ipc.read_tensor(STREAM, limits=limits),
        lambda: sa.ipc.read_tensors(STREAM, limits=limits),
        lambda: sa.load_tensors(FILE, limits=limits),
    ):
        with pytest.raises(sa.InvalidType, match=r"limits must be a shmarrow\.Limits, found"):
            call()
    with pytest.raises(sa.InvalidArgument, match="depth must be an int"):
        sa.Limits(depth=True)


def test_what_is_pyarrows_is_taken() -> None:
    batch = pa.record_batch({"s": ["a"], "t": [1], "state": [3]})
    table = pa.Table.from_batches([batch, batch])
    sink = io.BytesIO()
    with sa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
        writer.write(table)
        writer.write_batch(batch)
        writer.write_table(table)
    assert sa.ipc.open_stream(sink.getvalue()).read_all().to_pylist() == batch.to_pylist() * 6
    assert sa.schema(batch.schema).names == ["s", "t", "state"]
    assert sa.Table.from_batches([batch]).to_pylist() == batch.to_pylist()


def test_a_batch_that_outlives_the_reader_of_ranges() -> None:
    with sa.ipc.open_file(Remote(FILE)) as reader:
        batch = reader[0]
        assert batch.column("t").to_pylist() == [1, 2]
    assert batch.column("t").to_pylist() == [1, 2]
    with pytest.raises(sa.Closed, match=r"the reader of .* is closed, and this column was not read before; .*read_all"):
        batch.column("state")


def test_readers_and_writers_say_what_they_hold(tmp_path: Any) -> None:
    path = tmp_path / "a.arrow"
    writer = sa.ipc.new_file(path, BATCH.schema)
    assert repr(writer) == f"<RecordBatchFileWriter to {path}: 3 columns, open>"
    writer.write(BATCH)
    writer.close()
    assert repr(writer) == f"<RecordBatchFileWriter to {path}: 3 columns, closed>"
    with sa.ipc.open_file(path, included_fields=["t"]) as reader:
        assert repr(reader) == f"<RecordBatchFileReader of {path}: 1 batch, 1 column, open>"
    assert repr(reader) == f"<RecordBatchFileReader of {path}: 1 column, closed>"
    (tmp_path / "s").write_bytes(STREAM)
    stream = sa.ipc.open_stream(tmp_path / "s")
    assert repr(stream) == f"<MappedStreamReader of {tmp_path / 's'}: 3 columns, open>"


def test_a_mapped_stream_has_a_length() -> None:
    reader: Any = sa.ipc.open_stream(STREAM)
    assert (len(reader), reader.num_rows) == (2, 4)
    assert reader[1].equals(BATCH)
    assert reader[-1].equals(BATCH)
    assert [batch.num_rows for batch in reader] == [2, 2]


def test_missing_arguments_are_those_of_the_method() -> None:
    for call, match in (
        (lambda: sa.array([1]).to_pandas(True), r"to_pandas\(\) takes 1"),
        (lambda: sa.table({"a": [1]}).to_pandas(True), r"to_pandas\(\) takes 1"),
        (lambda: sa.Table.from_pandas(), r"from_pandas\(\) missing"),
    ):
        with pytest.raises(TypeError, match=match):
            call()
