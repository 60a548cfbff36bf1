"""The laboratory of Spark itself: what other tests take for granted about sessions, hosts and drivers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spark_lab
from conftest import PREFIX, SHM

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),  # of the newest pandas
]


def doubled(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield pa.record_batch({"n": pa.compute.multiply(batch["id"], 2)})


def test_two_kinds_of_sessions(spark: Any, connect: Any) -> None:
    from pyspark.sql import functions

    assert type(spark).__module__ == "pyspark.sql.session"
    assert type(connect).__module__ == "pyspark.sql.connect.session"
    df = connect.range(0, 10, 1, 2).mapInArrow(doubled, "n long")
    assert [row["n"] for row in df.where(functions.col("n") > 4).collect()] == [6, 8, 10, 12, 14, 16, 18]


def test_functions_are_those_of_the_classic_session_again(spark: Any) -> None:
    from pyspark.sql import functions

    df = spark.range(0, 10, 1, 2).mapInArrow(doubled, "n long")
    assert [row["n"] for row in df.where(functions.col("n") > 4).collect()] == [6, 8, 10, 12, 14, 16, 18]


def test_spark_listens_on_the_loopback_interface_only(spark: Any, connect_server: str) -> None:
    listening = listening_addresses(spark.sparkContext._gateway.proc.pid)
    assert listening
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def listening_addresses(java: int) -> set[str]:
    """The addresses on which a process listens."""
    sockets = set()
    for path in Path(f"/proc/{java}/fd").iterdir():
        try:
            sockets.add(os.readlink(path))
        except FileNotFoundError:
            continue
    listening = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{java}/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in sockets:
                raw = bytes.fromhex(cells[1].split(":")[0])
                words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                listening.add(socket.inet_ntop(family, words))
    return listening


def listing(connect: Any, folder: str) -> tuple[list[str], int, list[int]]:
    """What a client on another host sees there, and what it gets from workers here."""
    import spark_driver

    spark_driver.say(connect.version)
    n = spark_driver.hear()
    rows = connect.range(0, n, 1, 2).mapInArrow(doubled, "n long").collect()
    return os.listdir(folder), os.statvfs("/dev/shm").f_blocks, [row["n"] for row in rows]


def fails(spark: Any) -> None:
    raise ValueError("no such luck")


def test_a_driver_on_another_host(connect_server: str, by_value: None, tmp_path: Path) -> None:
    mine = SHM / f"{PREFIX}mine"
    mine.touch()
    try:
        host = spark_lab.another_host(shm=4 << 20)
        with spark_lab.driver(tmp_path / "driver", connect_server, host=host) as driver:
            driver.begin(listing, "/dev/shm")
            assert driver.hear().startswith("4.")
            driver.say(3)
            names, blocks, values = driver.result()
            assert (names, values) == ([], [0, 2, 4])
            assert blocks * os.sysconf("SC_PAGE_SIZE") == 4 << 20
            with pytest.raises(spark_lab.Failed, match="no such luck"):
                driver.run(fails)
            assert driver.leave() == 0
    finally:
        mine.unlink()
