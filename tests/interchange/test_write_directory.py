"""Directories that ``shmarrow.write`` writes: partitions, appends, overwrites, and processes that are killed."""

from __future__ import annotations

import datetime as dt
import decimal
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import forked

import shmarrow as sa

ROWS = 1000
TABLE = sa.table({"day": np.arange(ROWS) % 7, "x": np.arange(ROWS), "s": [str(i) for i in range(ROWS)]})


def rows_of(where: Any, **options: Any) -> list[tuple[Any, ...]]:
    table = sa.scan(where, **options).to_table()
    return sorted(zip(*[table[name].to_pylist() for name in sorted(table.schema.names)], strict=True))


EXPECTED = rows_of(TABLE)


@pytest.mark.parametrize("step", [1, 10, ROWS])
def test_partitions_come_back(step: int, tmp_path: Path) -> None:
    """Of batches of any size, in one file for each directory, in which rows keep their order."""
    batches = [batch for start in range(0, ROWS, step) for batch in TABLE.slice(start, step).batches]
    written = sa.write(sa.table(batches), tmp_path / "d", partition_by=["day"])
    files = sorted((tmp_path / "d").rglob("*.arrow"))
    assert written == ("arrow", ROWS, None, sum(file.stat().st_size for file in files))
    assert [file.parent.name for file in files] == [f"day={day}" for day in range(7)]
    assert rows_of(tmp_path / "d") == EXPECTED
    assert sa.open(files[3]).read_all()["x"].to_pylist() == list(range(3, ROWS, 7))
    assert sa.scan(tmp_path / "d", filters=[("day", "=", 3)]).sources == [str(files[3])]


VALUES: dict[str, list[Any]] = {
    "int64": [-(2**63), 2**63 - 1, 0],
    "bool": [True, False],
    "string": ["", "a/b", "=", "%2F", "ä 語", "..", "x" * 80],
    "date32": [dt.date(1, 1, 1), dt.date(2024, 2, 29)],
    "timestamp[us]": [dt.datetime(2024, 1, 1, 12, 30, 1, 5), dt.datetime(1969, 12, 31)],
    "double": [1.5, -0.0, 1e300],
    "decimal128": [decimal.Decimal("1.50"), decimal.Decimal("-0.01")],
    "time64[us]": [dt.time(0), dt.time(23, 59, 59, 999999)],
    "binary": [b"", b"\xff/\x00", b"a"],
}
TYPES = {
    "int64": sa.int64(), "bool": sa.bool_(), "string": sa.string(), "date32": sa.date32(),
    "timestamp[us]": sa.timestamp("us"), "double": sa.float64(), "decimal128": sa.decimal128(9, 2),
    "time64[us]": sa.time64("us"), "binary": sa.binary(),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_keys_of_any_type(name: str, tmp_path: Path) -> None:
    """Come back exactly where a schema says their type, nulls too."""
    keys = [*VALUES[name], None]
    table = sa.table({"k": sa.array(keys, TYPES[name]), "x": np.arange(len(keys))})
    sa.write(table, tmp_path / "d", partition_by=["k"])
    found = sa.scan(tmp_path / "d", schema=table.schema).to_table()
    assert dict(zip(found["x"].to_pylist(), map(repr, found["k"].to_pylist()), strict=True)) == dict(
        enumerate(map(repr, keys))
    )


def test_keys_are_read_by_pyarrow(tmp_path: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    texts = ["a/b", "=", "ä 語", "%", None]
    sa.write({"k": texts, "x": list(range(5))}, tmp_path / "d", partition_by=["k"])
    found = dataset.dataset(tmp_path / "d", format="ipc", partitioning="hive").to_table().to_pydict()
    assert dict(zip(found["x"], found["k"], strict=True)) == dict(enumerate(texts))
    dataset.write_dataset(
        TABLE.to_pyarrow(), tmp_path / "theirs", format="ipc", partitioning=["day"], partitioning_flavor="hive"
    )
    assert rows_of(tmp_path / "theirs") == EXPECTED


def test_several_keys_and_more_directories_than_files_may_be_open(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (120, hard))
    try:
        table = sa.table({"a": np.arange(400) % 20, "b": np.arange(400) % 10, "c": np.arange(400)})
        sa.write(table, tmp_path / "d", partition_by=["a", "b"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rows_of(tmp_path / "d") == rows_of(table)


def test_rows_per_file_and_batch(tmp_path: Path) -> None:
    sa.write(TABLE, tmp_path / "d", max_rows_per_file=300)
    assert [sa.open(file).num_rows for file in sorted((tmp_path / "d").iterdir())] == [300, 300, 300, 100]
    assert sa.scan(tmp_path / "d").to_table().equals(TABLE)
    sa.write(TABLE, tmp_path / "e", partition_by=["day"], rows_per_batch=60)
    assert {tuple(batch.num_rows for batch in sa.open(file)) for file in (tmp_path / "e").rglob("*.arrow")} == {
        (60, 60, 23), (60, 60, 22)
    }  # fmt: skip


def test_small_files_become_large_ones(tmp_path: Path) -> None:
    for number in range(10):
        sa.write(TABLE.slice(100 * number, 100), tmp_path / "small", mode="append")
    sa.write(sa.scan(tmp_path / "small"), f"{tmp_path}/large/")
    assert len(list((tmp_path / "large").iterdir())) == 1
    assert rows_of(tmp_path / "large") == EXPECTED


def test_modes(tmp_path: Path) -> None:
    where = tmp_path / "d"
    sa.write(TABLE, where, partition_by=["day"])
    with pytest.raises(sa.ObjectExists, match="not empty"):
        sa.write(TABLE, where, partition_by=["day"])
    sa.write(TABLE.slice(0, 10), where, partition_by=["day"], mode="append")
    assert len(rows_of(where)) == ROWS + 10
    for columns, keys, error in (
        ({"y": [1]}, [], sa.InvalidArgument),
        ({"day": [1], "y": [1]}, ["day"], sa.InvalidType),
    ):
        with pytest.raises(error, match="cannot append"):
            sa.write(columns, where, partition_by=keys, mode="append")
    sa.write(TABLE.slice(0, 10), where, partition_by=["day"], mode="overwrite")
    assert len(rows_of(where)) == 10
    assert [name for name in os.listdir(where) if not name.startswith("job-")] == []
    assert len(os.listdir(tmp_path)) == 1


def test_an_overwrite_keeps_what_others_add_meanwhile(tmp_path: Path) -> None:
    sa.write(TABLE, tmp_path / "d", mode="append")

    def batches() -> Any:
        yield TABLE.slice(0, 1).batches[0]
        sa.write(TABLE.slice(5, 2), tmp_path / "d", mode="append")

    reader = sa.RecordBatchReader.from_batches(TABLE.schema, batches())
    sa.write(reader, tmp_path / "d", mode="overwrite")
    assert sorted(sa.scan(tmp_path / "d").to_table()["x"].to_pylist()) == [0, 5, 6]


def test_appends_at_the_same_time(tmp_path: Path) -> None:
    """Each makes the directory of what is being written, and removes it if it is empty."""
    for turn in range(5):
        where = tmp_path / str(turn)
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda i, where=where: sa.write(TABLE.slice(50 * i, 50), where, mode="append"), range(20)))
        assert rows_of(where) == EXPECTED


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def batches() -> Any:
        yield TABLE.batches[0]
        raise RuntimeError("lost")

    for mode in ("error", "append", "overwrite"):
        reader = sa.RecordBatchReader.from_batches(TABLE.schema, batches())
        with pytest.raises(RuntimeError, match="lost"):
            sa.write(reader, tmp_path / "new", partition_by=["day"], mode=mode)
    assert list(tmp_path.iterdir()) == []
    sa.write(TABLE, tmp_path / "d", mode="append")
    reader = sa.RecordBatchReader.from_batches(TABLE.schema, batches())
    with pytest.raises(RuntimeError, match="lost"):
        sa.write(reader, tmp_path / "d", mode="overwrite")
    assert rows_of(tmp_path / "d") == EXPECTED
    assert len(os.listdir(tmp_path / "d")) == 1


KEYS: dict[str, tuple[Any, type[Exception]]] = {
    "hidden": ({"_k": [1], "x": [1]}, sa.InvalidType),
    "nested": ({"k": [[1]], "x": [1]}, sa.InvalidType),
    "text of null": ({"k": ["__HIVE_DEFAULT_PARTITION__"], "x": [1]}, sa.InvalidData),
    "no such column": ({"x": [1]}, sa.FieldNotFound),
}


@pytest.mark.parametrize("case", KEYS)
def test_keys_that_are_refused(case: str, tmp_path: Path) -> None:
    values, error = KEYS[case]
    with pytest.raises(error):
        sa.write(values, tmp_path / "d", partition_by=["_k" if case == "hidden" else "k"])
    assert list(tmp_path.iterdir()) == []


OPTIONS: dict[str, dict[str, Any]] = {
    "format": {"format": "parquet"},
    "overwrite": {"overwrite": True},
    "mode": {"mode": "merge"},
    "no rows": {"max_rows_per_file": 0},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_that_are_refused(case: str, tmp_path: Path) -> None:
    with pytest.raises(sa.InvalidArgument):
        sa.write(TABLE, tmp_path / "d", **{"mode": "append", **OPTIONS[case]})
    for where in ("shm:directory", os.fspath(tmp_path / "store")):
        if where[0] == "/":
            store = sa.Store(where)
        with pytest.raises(sa.InvalidArgument):
            sa.write(TABLE, where, mode="append")
    store.destroy()


def test_a_list_of_what_is_replaced_removes_nothing_elsewhere(tmp_path: Path) -> None:
    """Whatever it names: a directory that several users share must not make one remove another's files."""
    kept = [tmp_path / "outside", tmp_path / "elsewhere" / "file"]
    kept[1].parent.mkdir()
    for path in kept:
        path.write_text("kept")
    sa.write(TABLE, tmp_path / "d", mode="append")
    (tmp_path / "d" / "link").symlink_to(kept[1].parent)
    (tmp_path / "d" / "job-0").mkdir()
    names = [b"../outside", os.fsencode(kept[0]), b"link/file", b"job-0/../../outside"]
    (tmp_path / "d" / "job-0" / "_replaces").write_bytes(b"\0".join(names))
    (tmp_path / "d" / "link").unlink()
    sa.write(TABLE, tmp_path / "d", mode="overwrite")
    assert [path.read_text() for path in kept] == ["kept", "kept"]


@pytest.mark.processes
@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_killed_anywhere_scans_see_all_or_nothing(mode: str, tmp_path: Path) -> None:
    """Killed before each call that changes the directory: the old rows, the new ones, or with an append both."""
    old, new = TABLE.slice(0, 20), TABLE.slice(500, 20)
    states = {"error": [[], [new]], "append": [[old], [old, new]], "overwrite": [[old], [new]]}[mode]
    expected = [sorted(row for table in state for row in rows_of(table)) for state in states]
    seen = set()
    for number in range(200):
        where = tmp_path / str(number)
        if mode != "error":
            sa.write(old, where, partition_by=["day"])
        if not killed_before(number, lambda where=where: sa.write(new, where, partition_by=["day"], mode=mode)):
            break
        found = rows_of(where) if where.exists() else []
        seen.add(expected.index(found))
        sa.write(TABLE.slice(900, 1), where, partition_by=["day"], mode="append")
        assert len(rows_of(where)) == len(found) + 1
    assert number > 5
    assert seen == ({0, 1} if mode == "overwrite" else seen | {0})


CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "shutil.rmtree")


def killed_before(number: int, call: Any) -> bool:
    """Whether a child process was killed before its change of this number; False if there are not as many."""
    import signal
    import sys

    def run() -> None:
        left = [number]

        def watch(event: str, arguments: Any) -> None:
            if event in CHANGES:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        call()

    process = forked(run)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)
