"""The data source ``shmarrow`` as Spark makes it, files for it to read, and what its tasks have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

import pyspark_shmarrow  # noqa: E402


def write(path: Path | str, rows: Any, batches: int = 1, stream: bool = False, codec: str | None = None) -> str:
    """A file or a stream of rows, in so many batches of as many rows each."""
    table = sa.table(rows)
    options = sa.ipc.IpcWriteOptions(codec)
    with (sa.ipc.new_stream if stream else sa.ipc.new_file)(path, table.schema, options) as writer:
        for i in range(batches):
            bounds = table.num_rows * i // batches, table.num_rows * (i + 1) // batches
            for batch in table.slice(bounds[0], bounds[1] - bounds[0]).to_batches():
                writer.write_batch(batch)
    return str(path)


def source(path: Any = None, **options: str) -> Any:
    """The source as Spark makes it."""
    return pyspark_shmarrow.DefaultSource(options if path is None else {"path": str(path), **options})


def rows_of(made: Any, schema: Any = None) -> list[dict[str, Any]]:
    """Return what Spark's workers would read."""
    reader = made.reader(made.schema() if schema is None else schema)
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


def struct_of(ddl: str) -> StructType:
    names = {"long": "long", "int": "integer", "string": "string", "timestamp": "timestamp"}
    name, kind, *rest = ddl.split()
    field = {"name": name, "type": names.get(kind, kind), "nullable": not rest, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]})


# --- what is found in directories -------------------------------------------------------------------------------


def numbers(where: Path) -> list[int]:
    """The numbers that any Arrow program finds, in order."""
    found: list[int] = dataset.dataset(where, format="arrow").to_table()["id"].to_pylist()
    return sorted(found)


def left(where: Path) -> set[str]:
    """List a directory without its files of rows, each in the directory of its job."""
    assert {path.name for path in where.glob("job-*/*") if not path.match("part-*.arrow")} == set()
    return {path.name for path in where.iterdir()} - {path.name for path in where.glob("job-*")}


def add(here: Path, *names: str) -> None:
    """New files in ``here/in``, with ten numbers each, that begin with their names."""
    (here / "in").mkdir(exist_ok=True)
    for name in names:
        write(here / "in" / name, {"id": np.arange(int(name) * 10, int(name) * 10 + 10)}, batches=2)


def batches_in(here: Path) -> dict[int, list[int]]:
    """The numbers of each batch in ``here/out``, by what its directory says."""
    found: dict[int, list[int]] = {}
    for row in rows_of(source(here / "out")):
        found.setdefault(row["batch"], []).append(row["id"])
    return {number: sorted(ids) for number, ids in sorted(found.items())}


# --- what tasks have written, before it is committed --------------------------------------------------------------


def _parts(files: Any, folder: str, ids: Any, whose: str) -> list[Any]:
    parts = [iter([pa.record_batch({"id": part})]) for part in np.array_split(ids, 2)]
    return [files.write_rows(folder, rows, number, whose) for number, rows in enumerate(parts)]


class Job:
    """A job with two tasks, and the attempt of another that failed."""

    def __init__(self, where: Path, ids: Any, overwrite: bool = False) -> None:
        self.writer = source(where).writer(struct_of("id long"), overwrite)
        folder = self.writer.files.temporary(self.writer.job)
        self.messages = _parts(self.writer.files, folder, np.asarray(ids), self.writer.job)
        self.writer.files.write(folder, [pa.record_batch({"id": [1000]})])

    def commit(self) -> None:
        self.writer.commit(self.messages)


class Batch:
    """A batch of a stream, of ten numbers."""

    def __init__(self, where: Path, number: int, query: str = "q", overwrite: bool = False) -> None:
        from shmarrow.scans import jobs

        self.writer, self.number = source(where).streamWriter(struct_of("id long"), overwrite), number
        folder = jobs.begin(self.writer.files.directory, f"batch={number}")
        ids = np.arange(number * 10, number * 10 + 10)
        self.messages = _parts(self.writer.files, folder, ids, query)

    def commit(self) -> None:
        self.writer.commit(self.messages, self.number)
