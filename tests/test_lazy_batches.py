"""Batches and tables that are derived from others build no columns, share what is built, and keep what they carry."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa
from shmarrow.ipc.batch.open import open_batch
from shmarrow.ipc.message.decode import read_message

ROWS = 1000
COLUMNS = {
    "a": pa.array(range(ROWS)),
    "b": pa.array([str(i) if i % 7 else None for i in range(ROWS)]),
    "c": pa.array([[i, i + 1] for i in range(ROWS)]),
    "d": pa.array([f"w{i % 5}" for i in range(ROWS)]).dictionary_encode(),
    "e": pa.array([i / 2 for i in range(ROWS)]),
}


def file_of(columns: dict[str, Any], codec: str | None = None, batches: int = 1) -> bytes:
    batch = pa.record_batch(list(columns.values()), list(columns))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue()


DERIVED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "slice": (lambda batch: batch.slice(100, 50), lambda theirs: theirs.slice(100, 50)),
    "slice of a slice": (lambda batch: batch.slice(100).slice(3, 9), lambda theirs: theirs.slice(103, 9)),
    "slice by index": (lambda batch: batch[990:], lambda theirs: theirs.slice(990)),
    "select": (lambda batch: batch.select(["d", 0]), lambda theirs: theirs.select(["d", "a"])),
    "select of a select": (
        lambda batch: batch.select(["e", "d", "b"]).select([2, 0, 0]),
        lambda theirs: theirs.select([1, 4, 4]),
    ),
    "select of a slice": (lambda batch: batch.slice(5, 20).select([1]), lambda theirs: theirs.slice(5, 20).select([1])),
    "slice of a select": (lambda batch: batch.select([1]).slice(5, 20), lambda theirs: theirs.slice(5, 20).select([1])),
    "rename": (lambda batch: batch.rename_columns(list("vwxyz")), lambda theirs: theirs.rename_columns(list("vwxyz"))),
    "rename of a slice": (
        lambda batch: batch.slice(7, 70).rename_columns(list("vwxyz")).select(["x", "v"]),
        lambda theirs: theirs.slice(7, 70).rename_columns(list("vwxyz")).select(["x", "v"]),
    ),
    "schema metadata": (
        lambda batch: batch.replace_schema_metadata({"k": "v"}),
        lambda theirs: theirs.replace_schema_metadata({"k": "v"}),
    ),
}


@pytest.mark.parametrize("kind", ["batch", "table"])
@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("name", DERIVED)
def test_derived_batches_are_what_pyarrow_derives(name: str, built: bool, codec: str | None, kind: str) -> None:
    """The values and the schema are those of pyarrow, whether columns are built before or not."""
    mine, theirs = DERIVED[name]
    data = file_of(COLUMNS, codec, 2 if kind == "table" else 1)
    opened: Any = sa.ipc.open_file(data).read_all()
    peer: Any = pa.ipc.open_file(data).read_all()
    if kind == "batch":
        opened, peer = opened.batches[0], peer.to_batches()[0]
    if built:
        assert opened.column("d").to_pylist()[:2] == ["w0", "w1"]
        assert len(opened.columns) == 5
    got, expected = mine(opened), theirs(peer)
    got.validate(full=True)
    assert (got.num_rows, got.column_names) == (expected.num_rows, expected.schema.names)
    assert [got.column(i).to_pylist() for i in range(got.num_columns)] == [c.to_pylist() for c in expected.columns]
    assert [column.to_pylist() for column in got.columns] == [c.to_pylist() for c in expected.columns]
    assert got.schema.to_pyarrow().equals(expected.schema, check_metadata=True)
    assert got.schema.get_field_index(expected.schema.names[0]) == expected.schema.get_field_index(
        expected.schema.names[0]
    )


def with_a_broken_column() -> sa.RecordBatch:
    """A batch whose column "b" breaks the format: its last offset lies far beyond its data."""
    text = pa.array(["x" * 9, "y" * 9])
    data = bytearray(file_of({"a": pa.array([1, 2]), "b": text, "c": pa.array([3, 4])}))
    offsets = np.array([0, 9, 18], "<i4").tobytes()
    assert data.count(offsets) == 1
    data[data.index(offsets) : data.index(offsets) + 12] = np.array([0, 9, 1 << 20], "<i4").tobytes()
    return sa.ipc.open_file(bytes(data)).get_batch(0)


@pytest.mark.parametrize(
    "derive",
    [
        lambda batch: batch.slice(1, 1),
        lambda batch: batch.select([2, 1, 0]),
        lambda batch: batch.rename_columns(["x", "y", "z"]),
        lambda batch: batch.replace_schema_metadata({"k": "v"}),
        lambda batch: sa.Table.from_batches([batch]).slice(1).batches[0],
        lambda batch: sa.Table.from_batches([batch]).select([0, 1]).batches[0],
    ],
)
def test_deriving_builds_no_column(derive: Callable[[Any], Any]) -> None:
    """A column that breaks the format is only noticed by whoever asks for it."""
    derived = derive(with_a_broken_column())
    assert derived.column(0).to_pylist()
    with pytest.raises(sa.InvalidData, match="column 1 'b'"):
        derived.column(1)


def test_columns_that_are_built_are_shared() -> None:
    batch = sa.ipc.open_file(file_of(COLUMNS, "zstd")).get_batch(0)
    column = batch.column("a")
    for derived in (
        batch.rename_columns(list("vwxyz")),
        batch.replace_schema_metadata({"k": "v"}),
        batch.select(["a"]),
        batch.select([1, 0]).select([1]).replace_schema_metadata(),
    ):
        assert derived.column(derived.num_columns - 1 if derived.num_columns == 1 else 0) is column
    assert np.shares_memory(batch.slice(10, 5).column(0).to_numpy(), column.to_numpy())
    renamed = batch.rename_columns(list("vwxyz"))
    assert renamed.column("z") is batch.column("e")


def test_a_selection_holds_no_other_columns() -> None:
    """What was built of the other columns is gone with the batch that they were built for."""
    batch = sa.ipc.open_file(file_of(COLUMNS, "zstd")).get_batch(0)
    other, column = batch.column("e"), batch.column("a")
    selected = batch.select(["a"])
    held = sys.getrefcount(other)
    del batch
    assert sys.getrefcount(other) == held - 1
    assert selected.column("a") is column


def test_long_chains_do_not_grow() -> None:
    batch = sa.ipc.open_file(file_of(COLUMNS)).get_batch(0)
    for _ in range(sys.getrecursionlimit()):
        batch = batch.slice(0).select(range(batch.num_columns)).replace_schema_metadata({"k": "v"})
    assert batch.column("a").to_pylist() == list(range(ROWS))
    assert batch.slice(3, 2).column("b").to_pylist() == ["3", "4"]


def test_metadata_stay_with_the_batch() -> None:
    batch = sa.RecordBatch(sa.schema([("a", sa.int64())]), 3, [sa.array([1, 2, 3])], metadata={"k": "v"})
    for derived in (
        batch.slice(1),
        batch.select([0]),
        batch.take([2, 0]),
        batch.rename_columns(["b"]),
        batch.replace_schema_metadata({"other": "one"}),
        batch.append_column("c", [4, 5, 6]),
    ):
        assert derived.metadata == {b"k": b"v"}


@pytest.mark.parametrize("make", [lambda: sa.table({"a": [1, 2, 3]}), lambda: sa.record_batch({"a": [1, 2, 3]})])
def test_arguments_of_derived_batches(make: Callable[[], Any]) -> None:
    rows = make()
    for wrong in (lambda: rows.slice(0, -1), lambda: rows.column("a").slice(0, -1)):
        with pytest.raises(sa.InvalidArgument, match=r"length of a slice must be at least 0, found -1"):
            wrong()
    for wrong in (lambda: rows.slice(-1), lambda: rows.column("a").slice(-1)):
        with pytest.raises(sa.IndexOutOfRange, match="the offset of a slice must be at least 0, found -1"):
            wrong()
    assert rows.slice(3).num_rows == rows.slice(4).num_rows == len(rows.column("a").slice(4)) == 0
    assert rows.slice(1, 100).column("a").to_pylist() == [2, 3]
    with pytest.raises(sa.InvalidArgument, match="expected 1 name, one for each column, found 2"):
        rows.rename_columns(["x", "y"])
    with pytest.raises(sa.InvalidType, match="found 7"):
        rows.rename_columns([7])


def test_threads_that_build_the_same_columns() -> None:
    """They get equal columns, in every way of asking, of a batch and of what is derived from it."""
    data = file_of(COLUMNS | {f"n{i}": pa.array(np.arange(ROWS) * i) for i in range(20)}, "lz4")
    expected = [column.to_pylist() for column in pa.ipc.open_file(data).get_batch(0).columns]
    wrong: list[Any] = []
    for _ in range(5):
        batch = sa.ipc.open_file(data).get_batch(0)
        barrier = threading.Barrier(8)

        def work(seed: int, batch: Any = batch, barrier: Any = barrier) -> None:
            barrier.wait()
            try:
                mine = batch if seed % 2 else batch.rename_columns([f"r{i}" for i in range(batch.num_columns)])
                columns = mine.columns if seed % 3 else [mine.column(i) for i in range(mine.num_columns)]
                if [column.to_pylist() for column in columns] != expected:
                    wrong.append(seed)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


# --- some of the fields -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("included", [[2, 0, 0], [0, 1, 2, 3, 4], [4]])
def test_included_fields_are_those_of_pyarrow(included: list[int]) -> None:
    """Each field is there once, in the order of the schema, whatever the order that is asked for."""
    data = file_of(COLUMNS)
    theirs = pa.ipc.open_file(data, options=pa.ipc.IpcReadOptions(included_fields=included)).get_batch(0)
    names = list(COLUMNS)
    for asked in (included, [names[i] for i in included], [i - 5 for i in included]):
        ours = sa.ipc.open_file(data, included_fields=asked).get_batch(0)
        assert ours.column_names == theirs.schema.names
        assert [column.to_pylist() for column in ours.columns] == [column.to_pylist() for column in theirs.columns]


# --- bodies that are read by ranges -----------------------------------------------------------------------------------


class Ranges:
    """A body of which only those bytes can be had that were fetched."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.calls: list[list[tuple[int, int]]] = []

    def __len__(self) -> int:
        return len(self.data)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.calls.append(list(ranges))

    def __getitem__(self, part: slice) -> np.ndarray:
        assert any(a <= part.start and part.stop <= b for call in self.calls for a, b in call), part
        return self.data[part]


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_ranges_are_fetched_before_columns_are_built(codec: str | None) -> None:
    """For a column its buffers and those of its children, in one call; for all columns one call for all of them."""
    columns = {name: column for name, column in COLUMNS.items() if name != "d"} | {
        "v": pa.array([f"{i} is longer than twelve bytes" for i in range(ROWS)], pa.string_view()),
        "w": pa.array([[str(i)] for i in range(ROWS)], pa.list_(pa.string_view())),
    }
    batch = pa.record_batch(list(columns.values()), list(columns))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    data = np.frombuffer(sink.getvalue(), np.uint8)
    schema = sa.ipc.open_stream(data).schema
    first = read_message(data, 0, "test")
    assert first is not None
    found = read_message(data, first[1], "test")
    assert found is not None
    message, start = found

    def opened() -> tuple[Any, Ranges]:
        body = Ranges(data[start : start + message.body_length])
        return open_batch(message, body, schema, {}, "test", sa.Limits()), body  # type: ignore[arg-type]

    for i in (5, 3, 0, 1, 4, 2):
        rows, body = opened()
        assert rows.column(i).to_pylist() == batch.column(i).to_pylist()
        assert len(body.calls) == 1
        size = sum(b - a for a, b in body.calls[0])
        assert codec or size == sum(len(part) for part in rows.column(i).buffers() if part is not None)
    rows, body = opened()
    assert [column.to_pylist() for column in rows.columns] == [column.to_pylist() for column in batch.columns]
    assert len(body.calls) == 1
    rows, body = opened()
    selected = rows.select([4, 0]).slice(1, 3)
    assert not body.calls
    assert [column.to_pylist() for column in selected.columns] == [batch.column(i).to_pylist()[1:4] for i in (4, 0)]
    assert len(body.calls) == 1


# --- tables -----------------------------------------------------------------------------------------------------------


def test_tables_from_chunks_are_checked() -> None:
    """Numbers of columns and their types, also where there are no values that could show it."""
    empty = sa.ChunkedArray([], sa.struct({"x": sa.int8()}))
    with pytest.raises(sa.InvalidArgument, match="1 arrays for 2 names"):
        sa.Table.from_arrays([empty], names=["a", "b"])
    with pytest.raises(sa.InvalidArgument, match="2 arrays for 1 fields"):
        sa.Table.from_arrays([empty, empty], schema=sa.schema([("a", sa.int8())]))
    with pytest.raises(sa.InvalidArgument, match="either names or a schema"):
        sa.Table.from_arrays([empty])
    with pytest.raises(sa.InvalidType, match="no cast from"):
        sa.Table.from_arrays([empty], schema=sa.schema([("a", sa.int8())]))
    with pytest.raises(sa.InvalidType, match="no cast from"):
        sa.Table.from_arrays([sa.ChunkedArray([sa.array([{"x": 1}])])], schema=sa.schema([("a", sa.int8())]))
    with pytest.raises(sa.InvalidArgument, match=r"the same length, found 'a': 2, 'b': 1"):
        sa.Table.from_arrays([sa.ChunkedArray([sa.array([1, 2])]), sa.array([1])], names=["a", "b"])
    table = sa.Table.from_arrays(
        [sa.ChunkedArray([sa.array([1, 2], "int8"), sa.array([3], "int8")]), [4.0, 5.0, 6.0]],
        schema=sa.schema([("a", sa.int64()), ("b", sa.float32())]),
    )
    table.validate(full=True)
    assert table.to_pydict() == {"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]}


def test_lists_that_are_handed_out_are_not_those_inside() -> None:
    table = sa.table({"a": [[1], [2]]})
    batch, column = table.batches[0], table.column("a")
    batch.columns.clear()
    table.to_batches().clear()
    table.columns.clear()
    assert isinstance(table.batches, tuple)
    assert isinstance(column.chunks, tuple)
    assert isinstance(column.chunk(0).children, tuple)
    assert table.to_pydict() == {"a": [[1], [2]]}


def test_zero_copy_only_refuses_bytes_that_have_to_be_swapped() -> None:
    for options in (sa.ipc.IpcWriteOptions(endianness="big"), sa.ipc.IpcWriteOptions(compression="lz4")):
        batch = sa.record_batch({"a": [1, 2, 3]})
        sink = io.BytesIO()
        with sa.ipc.new_file(sink, batch.schema, options) as writer:
            writer.write(batch)
        with pytest.raises(sa.CopyRequired, match=r"is (big-endian|compressed)"):
            sa.ipc.open_file(sink.getvalue(), zero_copy_only=True).get_batch(0)
        assert sa.ipc.open_file(sink.getvalue()).get_batch(0).column(0).to_pylist() == [1, 2, 3]
