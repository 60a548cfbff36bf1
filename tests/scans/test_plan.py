"""The splits of a scan: they have its rows, wherever they are read; what is known of them, and what has changed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from processes import python

import shmarrow as sa


@pytest.fixture
def scan(tmp_path: Path) -> sa.Scan:
    """Two files of five batches and a stream, each in a directory of its own; x counts through all of them."""
    schema = sa.schema({"x": "int64", "y": "string"})
    for k, make in enumerate([sa.ipc.new_file, sa.ipc.new_file, sa.ipc.new_stream]):
        (tmp_path / f"k={k}").mkdir()
        options = {"statistics": True} if make is sa.ipc.new_file else {}
        with make(tmp_path / f"k={k}" / "part", schema, **options) as writer:
            for start in range(50 * k, 50 * k + 50, 10):
                writer.write(sa.record_batch({"x": np.arange(start, start + 10), "y": [str(start)] * 10}))
    return sa.scan(tmp_path)


def together(splits: list[Any]) -> list[int]:
    return [x for split in splits for x in split.to_table()["x"].to_pylist()]


@pytest.mark.parametrize("max_bytes", [None, 1, 700, 1 << 30])
@pytest.mark.parametrize("tasks", [1, 100])
def test_splits_have_the_rows_of_the_scan(max_bytes: int | None, tasks: int, scan: sa.Scan) -> None:
    for some in (
        scan,
        scan.select(["k", "x"]),
        scan.where([("x", ">", 37), ("k", "<", 2)]),
        scan.where([("y", "=", "20")]).select(["x"]),
        scan.where([("k", "=", 9)]),
    ):
        splits = some.plan(max_bytes=max_bytes, tasks=tasks)
        assert together(splits) == together(pickle.loads(pickle.dumps(splits))) == some.to_table()["x"].to_pylist()
        assert all(split.to_table().schema == some.schema for split in splits)


def test_what_is_known_of_splits(scan: sa.Scan, tmp_path: Path) -> None:
    first, second, stream = scan.plan()
    assert [split.source for split in (first, second, stream)] == [f"{tmp_path}/k={k}/part" for k in range(3)]
    assert [split.values for split in (first, stream)] == [{"k": 0}, {"k": 2}]
    assert (first.batches, first.num_rows) == ((0, 1, 2, 3, 4), 50)
    assert (stream.batches, stream.num_rows, stream.nbytes) == (None, None, (tmp_path / "k=2" / "part").stat().st_size)
    assert first.source_schema.names == ["x", "y"]
    late = scan.where([("x", ">", 37), ("k", "!=", 2)]).plan()
    assert [(split.batches, split.num_rows) for split in late] == [((3, 4), 20), ((0, 1, 2, 3, 4), 50)]
    pieces = scan.plan(max_bytes=first.nbytes // 2)
    assert [split.batches for split in pieces] == [(0, 1), (2, 3), (4,), (0, 1), (2, 3), (4,), None]
    assert sum(split.nbytes for split in pieces) == sum(split.nbytes for split in scan.plan())
    assert len(pickle.dumps(first)) < 10_000


def test_splits_of_many_files_are_small(tmp_path: Path) -> None:
    for k in range(200):
        (tmp_path / f"k={k}").mkdir()
        with sa.ipc.new_file(tmp_path / f"k={k}" / "x.arrow", sa.schema({"x": "int64"})) as writer:
            writer.write(sa.record_batch({"x": [k]}))
    splits = sa.scan(tmp_path, filters=[("k", "<", 150)]).plan()
    assert len(splits) == 150
    assert max(len(pickle.dumps(split)) for split in splits) < 4000


def test_files_without_row_counts_and_sources_in_memory(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2, 3]})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write(table)
    with sa.ipc.open_file(tmp_path / "a.arrow") as reader:
        splits = sa.scan([tmp_path / "a.arrow", sa.table({"x": [4]}), reader]).plan(max_bytes=1)
        assert [split.num_rows for split in splits] == [None, 1, None]
        assert together(pickle.loads(pickle.dumps(splits))) == [1, 2, 3, 4, 1, 2, 3]


def test_objects_of_a_store(shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        big = sa.table({"x": np.arange(10_000)})
        store.put("a", sa.table({"x": [1]}))
        store.put("b", big)
        scan = sa.scan(store)
        assert scan.count_rows() == 10_001
        splits = scan.plan()
        assert together(pickle.loads(pickle.dumps(splits))) == [1, *range(10_000)]
        store.put("b", big, overwrite=True)
        assert together(splits) == [1, *range(10_000)], "open splits have what was there"
        with pytest.raises(sa.StorageError, match="b was changed after the query was planned"):
            together(pickle.loads(pickle.dumps(splits)))
        assert together(pickle.loads(pickle.dumps(scan.plan()))) == [1, *range(10_000)]
        store.destroy()


READ = """
import pickle, sys
import shmarrow as sa
try:
    print(pickle.load(sys.stdin.buffer).to_table()["x"].to_pylist()[:3])
except sa.ShmarrowError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.processes
def test_a_file_that_was_changed_or_removed_is_named(scan: sa.Scan, tmp_path: Path) -> None:
    scan.count_rows()
    path = tmp_path / "k=1" / "part"
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes() + b"")
    split = scan.plan()[1]
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(split))

    def read() -> str:
        with open(pickled, "rb") as file:
            return python(READ, stdin=file)

    assert read().strip() == "[50, 51, 52]"
    other.rename(path)
    assert "StorageError" in (text := read())
    assert f"{path} was changed" in text
    assert split.to_table()["x"].to_pylist()[:3] == [50, 51, 52]
    pickled.write_bytes(pickle.dumps(scan.plan()[1]))
    assert "was changed" in read(), "the scan has what it reached first, and a worker would read another file"
    path.unlink()
    assert "ObjectNotFound" in (text := read())
    assert str(path) in text
