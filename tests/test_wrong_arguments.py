"""What a newcomer passes by mistake is refused by our errors, which name what was found and what to pass."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

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
    with pytest.raises(sa.InvalidType, match="the number of a batch is an int, found slice"):
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
        (b"PK\3\4" + bytes(100), "a ZIP archive"),
        (b"a,b\n1,2\n" * 10, "text"),
        (b"<html><body>502 Bad Gateway</body></html>", "text"),
    ],
)
def test_other_formats_are_named(data: bytes, found: str) -> None:
    with pytest.raises(sa.InvalidData, match=f"no Arrow file: .*; it is {found}"):
        sa.ipc.open_file(data)
    with pytest.raises(sa.InvalidData, match=f"expected a message at 0, found {found}"):
        sa.ipc.open_stream(data)


def test_files_and_streams_are_told_apart() -> None:
    with pytest.raises(sa.InvalidData, match="it is a stream; open_stream reads it"):
        sa.ipc.open_file(STREAM)
    with pytest.raises(sa.InvalidData, match="found an Arrow file; open_file reads it"):
        sa.ipc.open_stream(FILE)


@pytest.mark.parametrize("options", ["lz4", {"compression": "lz4"}, IpcWriteOptions, pa.ipc.IpcWriteOptions()])
def test_options_of_another_type(options: Any) -> None:
    for make in (sa.ipc.new_file, sa.ipc.new_stream):
        with pytest.raises(sa.InvalidType, match=r"options are a shmarrow\.ipc\.IpcWriteOptions, found"):
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
        with pytest.raises(sa.InvalidType, match=r"limits are a shmarrow\.Limits, found"):
            call()
    with pytest.raises(sa.InvalidArgument, match="depth must be an int"):
        sa.Limits(depth=True)
