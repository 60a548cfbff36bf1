"""Spark Connect: a server, and clients on its host and on another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spark_maps import file_of

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")


def use(spark: Any, made: Any) -> list[Any]:
    def look(batches: Any) -> Any:
        for _ in batches:
            found = made.value
            right = bool((found == np.arange(len(found))).all()) and made.value is found
            yield pa.RecordBatch.from_pydict({"file": [file_of(found)], "right": [right], "pid": [os.getpid()]})

    df = spark.range(0, 2, 1, 2).mapInArrow(look, "file string, right boolean, pid long")
    return [row.asDict() for row in df.collect()]


def broadcast_there(spark: Any, rows: int, store: str) -> Any:
    table = pa.table({"x": np.arange(rows)})
    with (
        sas.broadcast(np.arange(float(rows)), spark, store) as made,
        sas.broadcast(7, spark, store) as small,
        sas.share_table(table, spark, store, partitions=2) as frame,
    ):
        found = use(spark, made)

        def total(table: Any) -> Any:
            numbers = table["x"].combine_chunks().to_numpy()
            assert small.value == 7
            return {"total": [int(numbers.sum())], "file": [file_of(numbers)]}

        return made.name, repr(made), found, frame.map(total, "total long, file string", spark).collect(), frame.name


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_broadcast(connect: Any, connect_server: str, home: str, tmp_path: Path, elsewhere: bool) -> None:
    from spark_lab import another_host, driver

    if not elsewhere:
        name, said, rows, parts, frame = broadcast_there(connect, 1000, home)
        assert "InArtifacts" not in said
        assert all(row["file"].startswith(f"/dev/shm/{home[4:]}/") for row in [*rows, *parts])
        assert sum(row["total"] for row in parts) == sum(range(1000))
    else:
        with driver(tmp_path, connect_server, host=another_host(shared=[tmp_path])) as client:
            name, said, rows, parts, frame = client.run(broadcast_there, 50_000, home)
        assert "InArtifacts" in said
        assert {os.path.basename(row["file"]) for row in rows} == {name}
        assert sum(row["total"] for row in parts) == sum(range(50_000))
        assert sorted(os.path.basename(row["file"]) for row in parts) == [f"{frame}-0000{i}" for i in range(2)]
    assert all(row["right"] for row in rows)


def test_the_data_source_reads_and_writes(connect: Any, tmp_path: Path) -> None:
    """Planned and read by processes of the server."""
    rows = sa.record_batch({"id": [1, 2, 3], "v": [0.5, None, 2.5]})
    with sa.ipc.new_file(tmp_path / "f.arrow", rows.schema) as writer:
        writer.write_batch(rows)
    df = connect.read.format("shmarrow").schema("v double, id long").load(str(tmp_path / "f.arrow"))
    assert [tuple(row) for row in df.collect()] == [(0.5, 1), (None, 2), (2.5, 3)]
    df.write.format("shmarrow").mode("append").save(str(tmp_path / "written"))
    back = connect.read.format("shmarrow").load(str(tmp_path / "written"))
    assert sorted(back.collect(), key=lambda row: row["id"]) == df.collect()
