"""Streams and files of record batches: every layout, form, source and sink; aligned, and never copied.

Invariants: what is expected comes from the table of cases, from the bytes by the specification, from the kernel
(where mappings lie, what stays of an unlinked file), or from pyarrow.
"""

from __future__ import annotations

import gc
import io
import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pyarrow as pa
import pytest
from cases import table as cases
from forms import WRITABLE, file_of, numbers, stream_of
from measures import mappings
from wire import blocks_of, messages

import shmarrow as sa
from shmarrow.ipc import IpcWriteOptions

GROUPS = forms.together(WRITABLE)
CASE_OF = {case.name: case for case in WRITABLE}


# --- every layout, in every form ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", forms.FORMS)
def test_every_case_in_every_form(form: str) -> None:
    for batch in GROUPS:
        data = forms.write(
            form, [batch, batch.slice(1), batch.slice(0, 0)] if batch.num_rows else [batch], batch.schema
        )
        opened = sa.ipc.open_file(data) if form.startswith("file") else sa.ipc.open_stream(data)
        assert opened.schema.equals(batch.schema, check_metadata=True)
        for start, got in zip((0, 1, batch.num_rows), opened, strict=False):
            got.validate(full=True)
            for name, column in zip(batch.column_names, got.columns, strict=True):
                assert column.type == CASE_OF[name].type, name
                assert column.to_pylist() == CASE_OF[name].values[start:], name


def test_dictionaries_of_dictionaries_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    batch = forms.batch_of(cases.case("dictionary-dictionary"))
    with pytest.raises(sa.Unsupported, match="decode"), sa.ipc.new_file(tmp_path / "a", batch.schema) as writer:
        writer.write(batch)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_lengths_around_the_sizes_of_words_and_padding(length: int) -> None:
    batch = sa.record_batch(
        {
            "i": np.arange(length, dtype="i1"),
            "b": [i % 3 == 0 for i in range(length)] if length else sa.array([], sa.bool_()),
            "n": sa.array([None if i % 5 == 0 else i for i in range(length)], sa.int16()),
            "s": sa.array(["x" * (i % 70) for i in range(length)], sa.string()),
        }
    )
    for form in forms.FORMS:
        assert forms.read(form, forms.write(form, [batch], batch.schema)).batches[0].equals(batch)


# --- sources ------------------------------------------------------------------------------------------------------


class OnlyRead:
    """A file object that can do nothing but read, a few bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        self._inner = io.BytesIO(data)
        self._most = most

    def read(self, size: int = -1) -> bytes:
        return self._inner.read(self._most if size < 0 else min(size, self._most))


class Raw(io.RawIOBase):
    """A raw stream that gives fewer bytes than it is asked for, and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        size = min(len(target), 7)
        part, self._left = self._left[:size], self._left[size:]
        target[: len(part)] = part
        return len(part)


def _piped(data: bytes) -> Any:
    read, write = os.pipe()

    def feed() -> None:
        with os.fdopen(write, "wb") as sink:
            sink.write(data)

    threading.Thread(target=feed, daemon=True).start()
    return os.fdopen(read, "rb", buffering=0)


def _through_a_socket(data: bytes) -> Any:
    near, far = socket.socketpair()

    def feed() -> None:
        with far:
            far.sendall(data)

    threading.Thread(target=feed, daemon=True).start()
    with near:
        return near.makefile("rb")


STREAMED: dict[str, Callable[[bytes], Any]] = {
    "only read": lambda data: OnlyRead(data, 1000),
    "raw": Raw,
    "buffered raw": lambda data: io.BufferedReader(Raw(data)),
    "pipe": _piped,
    "socket": _through_a_socket,
}
IN_MEMORY: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "ndarray": lambda data: np.frombuffer(data, "u1"),
    "BytesIO": io.BytesIO,
}


@pytest.mark.parametrize("kind", [*STREAMED, *IN_MEMORY])
def test_streams_from_every_kind_of_source(kind: str) -> None:
    for batch in GROUPS[::3]:
        data = stream_of(batch, batch.slice(batch.num_rows // 2))
        with sa.ipc.open_stream({**STREAMED, **IN_MEMORY}[kind](data)) as reader:
            first, second = reader
        assert first.equals(batch)
        assert second.equals(batch.slice(batch.num_rows // 2))


@pytest.mark.parametrize("kind", ["only read", "buffered raw", *IN_MEMORY])
def test_files_from_every_kind_of_source(kind: str) -> None:
    batch = forms.batch_of(*[case for case in WRITABLE if len(case.values) == 5])
    data = file_of(batch, batch)
    source = OnlyRead(data, len(data)) if kind == "only read" else {**STREAMED, **IN_MEMORY}[kind](data)
    with sa.ipc.open_file(source) as reader:
        assert reader.num_record_batches == 2
        assert reader.get_batch(1).equals(batch)


@pytest.mark.parametrize("where", ["path", "str", "shm", "file object", "copied", "segment"])
def test_files_and_streams_from_every_kind_of_place(where: str, tmp_path: Path, shm_name: str) -> None:
    batch = forms.batch_of(*[case for case in WRITABLE if len(case.values) == 6])
    for make, read in ((sa.ipc.new_file, sa.ipc.open_file), (sa.ipc.new_stream, sa.ipc.open_stream)):
        place: Any = f"{shm_name}-{make.__name__}" if where == "shm" else tmp_path / make.__name__
        with make(str(place) if where == "str" else place, batch.schema) as writer:
            writer.write(batch)
        source: Any = place
        if where == "file object":
            source = open(place, "rb")  # noqa: SIM115
        elif where == "segment":
            source = sa.segment.attach(place)
        with read(source, memory_map=where != "copied") as reader:
            (got,) = reader
            assert got.equals(batch)


def test_the_stream_within_a_file() -> None:
    batch = numbers()
    data = file_of(batch, batch)
    assert [got.equals(batch) for got in sa.ipc.open_stream(data[8:])] == [True, True]
    source = io.BufferedReader(Raw(data))
    source.read(8)
    assert [got.equals(batch) for got in sa.ipc.open_stream(source)] == [True, True]


# --- alignment ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_every_message_body_and_buffer_is_aligned(compression: str | None) -> None:
    options = IpcWriteOptions(compression=compression)
    for batch in GROUPS:
        for make in (sa.ipc.new_file, sa.ipc.new_stream):
            sink = io.BytesIO()
            with make(sink, batch.schema, options) as writer:
                writer.write(batch)
                writer.write(batch)
            data = sink.getvalue()
            first = 8 if make is sa.ipc.new_file else 0
            found = messages(data, first)
            assert found[0][0] == first
            for at, body, message, _ in found[1:]:
                assert at % 64 == 0
                assert body % 64 == 0
                table = message.header if message.kind == "RecordBatch" else message.header["data"]
                assert not (table["buffers"]["offset"] % 64).any()
                assert message.body_length % 64 == 0
            if first:
                by_kind = {"recordBatches": "RecordBatch", "dictionaries": "DictionaryBatch"}
                for name, blocks in blocks_of(data).items():
                    expected = [(at, body - at, m.body_length) for at, body, m, _ in found if m.kind == by_kind[name]]
                    assert blocks == expected


# --- no copies, and lives of their own ------------------------------------------------------------------------------


def all_buffers(array: Any) -> Iterator[Any]:
    yield from array.buffers()
    for step in (array, *array.children):
        if getattr(step, "dictionary", None) is not None:
            yield from all_buffers(step.dictionary)


@pytest.mark.parametrize("place", ["path", "shm"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_no_copy_is_made_of_a_mapping(place: str, kind: str, tmp_path: Path, shm_name: str) -> None:
    where: Any = tmp_path / "mapped" if place == "path" else shm_name
    name = str(where) if place == "path" else shm_name.removeprefix("shm:")
    for batch in GROUPS:
        make = sa.ipc.new_file if kind == "file" else sa.ipc.new_stream
        with make(where, batch.schema, overwrite=True) as writer:
            writer.write(batch)
        with (sa.ipc.open_file if kind == "file" else sa.ipc.open_stream)(where) as reader:
            (got,) = reader
            spans = mappings(name)
            assert len(spans) >= 1
            for column in got.columns:
                for buffer in all_buffers(column):
                    if buffer is not None and len(buffer):
                        low = buffer.address
                        assert any(start <= low and low + len(buffer) <= end for start, end in spans), column.type
        del got, reader, column, buffer
        gc.collect()
        assert not mappings(name)


@pytest.mark.parametrize("place", ["path", "shm"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrays_outlive_their_reader_and_their_name(place: str, kind: str, tmp_path: Path, shm_name: str) -> None:
    where: Any = tmp_path / "mapped" if place == "path" else shm_name
    name = str(where) if place == "path" else shm_name.removeprefix("shm:")
    words = cases.case("dictionary-int8")
    batch = sa.record_batch(
        {"i": np.arange(100_000), "f": np.arange(100_000) / 4, "d": words.array().take([0] * 100_000)}
    )
    make, read = (sa.ipc.new_file, sa.ipc.open_file) if kind == "file" else (sa.ipc.new_stream, sa.ipc.open_stream)
    with make(where, batch.schema) as writer:
        writer.write(batch)
    reader = read(where)
    got = reader.get_batch(0)
    column = got.column("f").to_numpy()
    reader.close()
    with pytest.raises(sa.Closed, match="closed"):
        reader.get_batch(0)
    sa.segment.delete(where)
    assert len(mappings(name)) == 1
    assert np.array_equal(got.column("i").to_numpy(), np.arange(100_000))  # made after the end of reader and name
    assert got.column("d")[99_999] == words.values[0]  # whose dictionary is looked for only now
    del reader, got
    gc.collect()
    assert np.array_equal(column, np.arange(100_000) / 4)
    part = column[5:10]
    del column
    gc.collect()
    assert part.tolist() == [1.25, 1.5, 1.75, 2.0, 2.25]
    del part
    gc.collect()
    assert not mappings(name)


def test_what_is_mapped_cannot_be_written_to(tmp_path: Path) -> None:
    batch = numbers()
    with sa.ipc.new_file(tmp_path / "a", batch.schema) as writer:
        writer.write(batch)
    values = sa.ipc.open_file(tmp_path / "a").get_batch(0).column(0).to_numpy()
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        values.flags.writeable = True


def test_arrays_over_a_map_of_the_caller_keep_it_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(file_of(numbers()))
    with open(path, "rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    values = sa.ipc.open_file(mapped).get_batch(0).column(0).to_numpy()
    gc.collect()
    with pytest.raises(BufferError):
        mapped.close()
    assert values.tolist() == list(range(10))


# --- empty ones and odd ones --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", forms.FORMS)
def test_no_batches(form: str) -> None:
    schema = sa.schema([("a", sa.int32()), ("d", sa.dictionary("int8", "string"))])
    data = forms.write(form, [], schema)
    table = forms.read(form, data)
    assert table.schema == schema
    theirs = pa.ipc.open_file(data) if form.startswith("file") else pa.ipc.open_stream(data)
    assert theirs.read_all().num_rows == 0
    assert table.num_rows == 0
    assert table.column("a").to_pylist() == table.column("d").to_pylist() == []


@pytest.mark.parametrize("form", forms.FORMS)
def test_no_fields_and_no_rows(form: str) -> None:
    empty = sa.schema([])
    batches = [sa.RecordBatch(empty, 3, []), sa.RecordBatch(empty, 0, [])]
    table = forms.read(form, forms.write(form, batches, empty))
    assert [batch.num_rows for batch in table.batches] == [3, 0]
    assert table.to_pylist() == [{}, {}, {}]
    rows = numbers(0)
    (got,) = forms.read(form, forms.write(form, [rows], rows.schema)).batches
    assert got.to_pydict() == {"i": [], "f": []}


def test_streams_without_an_end_mark() -> None:
    data = stream_of(numbers(), numbers(3))
    for whole in (data[:-8], data[:-8] + bytes(4), data):
        for source in (whole, OnlyRead(whole, 100)):
            assert [batch.num_rows for batch in sa.ipc.open_stream(source)] == [10, 3]


def test_bytes_after_the_end_mark_are_left_alone() -> None:
    batch = numbers()
    for form in ("stream-plain", "stream-legacy"):
        data = forms.write(form, [batch], batch.schema)
        source = io.BufferedReader(Raw(data + b"what follows"))
        assert len(list(sa.ipc.open_stream(source))) == 1
        assert source.read() == b"what follows"
        assert len(list(sa.ipc.open_stream(data + b"what follows"))) == 1


def test_names_and_metadata_of_any_characters() -> None:
    names = ["", " ", "日本", "a\x00b", "🦆", "x" * 10_000]
    schema = sa.schema([sa.field(name, sa.int8(), metadata={name or "k": "é"}) for name in names])
    batch = sa.record_batch([[1]] * len(names), schema=schema)
    for form in ("file-plain", "stream-plain"):
        data = forms.write(form, [batch], schema)
        table = forms.read(form, data)
        assert table.schema.names == names
        assert [table.column(name).to_pylist() for name in names] == [[1]] * len(names)
        assert [field.metadata for field in table.schema] == [{(n or "k").encode(): "é".encode()} for n in names]
    assert pa.ipc.open_stream(data).schema.names == names


# --- metadata -----------------------------------------------------------------------------------------------------


def test_metadata_on_every_level() -> None:
    inner = sa.field("inner", sa.int8(), nullable=False, metadata={"level": "child"})
    outer = sa.field("outer", sa.struct([inner]), metadata={"level": "field", "": "empty key"})
    schema = sa.schema([outer], metadata={"level": "schema", "bytes": b"\xff\x00"})
    batch = sa.record_batch([[{"inner": 1}]], schema=schema)
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, schema, metadata={"level": "footer"}) as writer:
        writer.write_batch(batch, custom_metadata={"level": "message"})
        writer.write_batch(sa.RecordBatch(schema, 1, batch.columns, metadata={"level": "batch"}))
        writer.write_batch(batch)
    data = sink.getvalue()
    reader = sa.ipc.open_file(data)
    assert reader.metadata == {b"level": b"footer"}
    assert reader.schema.metadata == {b"level": b"schema", b"bytes": b"\xff\x00"}
    field = reader.schema.field("outer")
    assert field.metadata == {b"level": b"field", b"": b"empty key"}
    assert field.type.fields[0].metadata == {b"level": b"child"}
    assert not field.type.fields[0].nullable
    levels = [{b"level": b"message"}, {b"level": b"batch"}, None]
    assert [got.metadata for got in reader] == levels
    theirs = pa.ipc.open_file(data)
    assert theirs.schema.metadata == schema.metadata
    assert theirs.schema.field(0).metadata == field.metadata
    assert theirs.schema.field(0).type.field(0).metadata == {b"level": b"child"}
    assert [theirs.get_batch_with_custom_metadata(i).custom_metadata for i in range(2)] == levels[:2]
    again = io.BytesIO()
    with sa.ipc.new_stream(again, reader.schema) as writer:
        for got in reader:
            writer.write(got)
    assert [got.metadata for got in sa.ipc.open_stream(again.getvalue())] == levels


# --- random access ----------------------------------------------------------------------------------------------------


def test_random_access_in_mapped_streams(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with sa.ipc.new_stream(path, numbers().schema) as writer:
        for length in range(100):
            writer.write(numbers(length))
    with sa.ipc.open_stream(path) as reader:
        assert reader.get_batch(50).num_rows == 50
        assert reader.get_batch(-1).num_rows == 99
        assert reader.num_record_batches == 100
        with pytest.raises(sa.IndexOutOfRange, match="100"):
            reader.get_batch(100)
        assert next(reader).num_rows == 0
        assert reader.read_next_batch().num_rows == 1
        assert reader.read_all().num_rows == sum(range(100))  # all, whatever was read before
        assert [next(reader).num_rows for _ in range(98)] == list(range(2, 100))
        with pytest.raises(StopIteration):
            reader.read_next_batch()


def test_random_access_in_files() -> None:
    reader = sa.ipc.open_file(file_of(*[numbers(length) for length in range(100)]))
    assert len(reader) == reader.num_record_batches == 100
    assert reader[-1].num_rows == reader.get_batch(99).num_rows == 99
    assert [batch.num_rows for batch in reader] == list(range(100))
    for wrong in (100, -101):
        with pytest.raises(sa.IndexOutOfRange, match="100"):
            reader.get_batch(wrong)


@pytest.mark.parametrize(("form", "reason"), [("file-zstd", "compressed"), ("file-big-endian", "big-endian")])
def test_zero_copy_only_says_what_needs_a_copy(form: str, reason: str) -> None:
    batch = numbers()
    reader = sa.ipc.open_file(forms.write(form, [batch], batch.schema), zero_copy_only=True)
    with pytest.raises(sa.CopyRequired, match=f"is {reason}"):
        reader.get_batch(0)
    assert sa.ipc.open_file(file_of(batch), zero_copy_only=True).get_batch(0).equals(batch)
