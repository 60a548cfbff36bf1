"""What a newcomer passes by mistake is refused by our errors, which name what was found and what to pass."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from remote import Remote

import shmarrow as sa
from shmarrow.ipc import IpcWriteOptions, StreamDecoder

BATCH = sa.record_batch({"s": ["a", "b"], "t": [1, 2], "state": [3, 4]})


def written(make: Callable[..., Any]) -> bytes:
    sink = io.BytesIO()
    with make(sink, BATCH.schema) as writer:
        writer.write(BATCH)
        writer.write(BATCH)
    return sink.getvalue()


FILE, STREAM = written(sa.ipc.new_file), written(sa.ipc.new_stream)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sa.ipc.open_file(FILE, included_fields="state"),
        lambda: sa.ipc.open_stream(STREAM, included_fields="state"),
        lambda: sa.ipc.open_stream(io.BufferedReader(io.BytesIO(STREAM)), included_fields="state"),  # type: ignore[arg-type]
        lambda: BATCH.select("st"),
        lambda: sa.Table.from_batches([BATCH]).select("st"),
        lambda: BATCH.rename_columns("abc"),
        lambda: sa.Table.from_batches([BATCH]).rename_columns("abc"),
    ],
)
def test_a_string_is_no_list_of_columns(call: Callable[[], Any]) -> None:
    with pytest.raises(sa.InvalidType, match=r"expected a list of .* found '\w+'; write \['\w+'\] for one"):
        call()


def test_a_file_reader_is_not_sliced() -> None:
    reader: Any = sa.ipc.open_file(FILE)
    with pytest.raises(sa.InvalidType, match="the index of a batch must be an int, found slice"):
        reader[0:1]
    assert reader[-1].equals(BATCH)


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0"])
def test_a_stream_without_a_schema_is_not_closed_in_silence(data: bytes) -> None:
    decoder = StreamDecoder()
    decoder.feed(data)
    with pytest.raises(sa.InvalidData, match="the stream ends before its schema"):
        decoder.close()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"PAR1" + bytes(100) + b"PAR1", "a Parquet file"),
        (gzip.compress(FILE), "gzip data; pass gzip.open"),
        (b"PK\3\4" + bytes(100), "a ZIP archive; unpack"),
        (b"a,b\n1,2\n" * 10, "text"),
        (b"<html><body>502 Bad Gateway</body></html>", "HTML or XML text"),
    ],
    ids=["parquet", "gzip", "zip", "csv", "html"],  # the bytes of gzip hold the time
)
def test_other_formats_are_named(data: bytes, found: str) -> None:
    with pytest.raises(sa.InvalidData, match=f"expected an Arrow file, found {found}"):
        sa.ipc.open_file(data)
    with pytest.raises(sa.InvalidData, match=f"expected an Arrow message at 0, found {found}"):
        sa.ipc.open_stream(data)


def test_files_and_streams_are_told_apart() -> None:
    with pytest.raises(sa.InvalidData, match=r"found an Arrow stream; ipc\.open_stream reads it"):
        sa.ipc.open_file(STREAM)
    with pytest.raises(sa.InvalidData, match=r"found an Arrow file; ipc\.open_file reads it"):
        sa.ipc.open_stream(FILE)


@pytest.mark.parametrize("options", ["lz4", {"compression": "lz4"}, IpcWriteOptions, pa.ipc.IpcWriteOptions()])
def test_options_of_another_type(options: Any) -> None:
    for make in (sa.ipc.new_file, sa.ipc.new_stream):
        with pytest.raises(sa.InvalidType, match=r"options must be a shmarrow\.ipc\.IpcWriteOptions, found"):
            make(io.BytesIO(), BATCH.schema, options)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"compression": ["lz4"]}, sa.InvalidType, "numbers and strings"),
        ({"compression": "lz4", "compression_level": "high"}, sa.InvalidType, "compression_level cannot be 'high'"),
        ({"compression_level": 3}, sa.InvalidArgument, "compression_level 3 needs a compression"),
        ({"use_threads": 1}, sa.InvalidType, "use_threads cannot be 1"),
        ({"alignment": "64"}, sa.InvalidType, "alignment cannot be '64'"),
    ],
)
def test_values_of_options(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        IpcWriteOptions(**options)


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


def test_numbers_that_are_none() -> None:
    table = sa.Table.from_batches([BATCH])
    calls: list[Callable[[], Any]] = [
        lambda: BATCH.slice("a"),  # type: ignore[arg-type]
        lambda: BATCH.slice(0, "a"),  # type: ignore[arg-type]
        lambda: BATCH.column(0).slice(1.0),
        lambda: table.slice("a"),  # type: ignore[arg-type]
        lambda: sa.ipc.new_file(io.BytesIO(), BATCH.schema).write_table(table, "1"),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(sa.InvalidType, match=r"ints?, found"):
            call()


def test_containers_of_another_type(tmp_path: Any) -> None:
    array = np.eye(2)
    calls: list[Callable[[], Any]] = [
        lambda: sa.save_tensors([array], tmp_path / "a"),  # type: ignore[arg-type]
        lambda: sa.save_tensors(str(tmp_path / "a"), {"x": array}),  # type: ignore[arg-type]
        lambda: sa.save_tensors(array, tmp_path / "a"),  # type: ignore[arg-type]
        lambda: sa.Table.from_batches(BATCH),  # type: ignore[arg-type]
        lambda: sa.Table.from_batches("ab"),  # type: ignore[arg-type]
        lambda: sa.ipc.new_file(BATCH.schema, tmp_path / "a"),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(sa.InvalidType, match="found"):
            call()
    assert list(tmp_path.iterdir()) == []


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
