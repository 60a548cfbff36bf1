"""Spark Connect: a server, and clients on its host and on another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")


def file_of(array: Any) -> str:
    """The file that an array lies in, as the kernel tells it; empty for private memory."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, _, *path = line.split(maxsplit=5)
        low, high = (int(each, 16) for each in span.split("-"))
        if low <= address < high and path:
            return path[0]
    return ""


def use(spark: Any, made: Any) -> list[Any]:
    def look(batches: Any) -> Any:
        for _ in batches:
            found = made.value
            right = bool((found == np.arange(len(found))).all()) and made.value is found
            yield pa.RecordBatch.from_pydict({"file": [file_of(found)], "right": [right], "pid": [os.getpid()]})

    df = spark.range(0, 2, 1, 2).mapInArrow(look, "file string, right boolean, pid long")
    return [row.asDict() for row in df.collect()]


def broadcast_there(spark: Any, rows: int) -> Any:
    with sas.broadcast(spark, np.arange(float(rows))) as made:
        return made.name, repr(made), use(spark, made)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_broadcast(connect: Any, connect_server: str, tmp_path: Path, elsewhere: bool) -> None:
    from spark_lab import another_host, driver

    if not elsewhere:
        name, said, rows = broadcast_there(connect, 1000)
        assert "InArtifacts" not in said
        assert all(row["file"].startswith("/dev/shm/shmarrow-spark-") for row in rows)
    else:
        with driver(tmp_path, connect_server, host=another_host(shared=[tmp_path])) as client:
            name, said, rows = client.run(broadcast_there, 50_000)
        assert "InArtifacts" in said
        assert {os.path.basename(row["file"]) for row in rows} == {name}
    assert all(row["right"] for row in rows)
