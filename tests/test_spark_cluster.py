"""Two hosts: a master, two workers, and drivers with an executor of one core on each host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")


def place(batches: Iterator[Any]) -> Iterator[Any]:
    rows = sum(batch.num_rows for batch in batches)
    said = {"host": os.environ["SPARK_LOCAL_IP"], "rows": rows, "shm": str(os.stat("/dev/shm").st_dev)}
    yield pa.RecordBatch.from_pylist([{**said, "tmp": str(os.stat("/tmp").st_dev)}])


def places(spark: Any) -> list[Any]:
    df = spark.range(0, 8, 1, 4).mapInArrow(place, "host string, rows long, shm string, tmp string")
    return [row.asDict() for row in df.collect()]


def test_the_hosts_share_no_memory(two_hosts: Any, cluster: Any) -> None:
    rows = two_hosts.run(places)
    assert sum(row["rows"] for row in rows) == 8
    here, there = ({(row["shm"], row["tmp"]) for row in rows if row["host"] == host} for host in cluster.hosts)
    assert here == {(str(os.stat("/dev/shm").st_dev), str(os.stat("/tmp").st_dev))}
    assert len(there) == 1
    assert not here & there
    (shm, _), *_ = there
    assert os.stat(cluster.shm(cluster.hosts[1])).st_dev == int(shm)
    assert [len(cluster.executors(host)) for host in cluster.hosts] == [1, 1]
