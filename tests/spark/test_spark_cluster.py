"""Two hosts: a master, two workers, and a driver with an executor of one core on each host.

Each session of the driver starts two Java processes, so there are two: one with dynamic allocation, and the next one,
in which an executor is killed, for all other tests.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_lab
from environment import PREFIX
from spark_maps import file_of
from store_check import cleaned
from waiting import wait_until

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.timeout(300),  # the first one starts ten Java processes
]


STORE = f"shm:{PREFIX}cluster"


@pytest.fixture(scope="module")
def cluster(java: None, by_value: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[spark_lab.Cluster]:
    with spark_lab.cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def sessions(
    cluster: spark_lab.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[spark_lab.Driver, dict[str, Any]]]:
    """The driver in its second session, and what it found in the first one and in between."""
    settings = {
        "spark__dynamicAllocation__enabled": "true",
        "spark__dynamicAllocation__shuffleTracking__enabled": "true",
        "spark__dynamicAllocation__executorIdleTimeout": "2s",
        "spark__dynamicAllocation__initialExecutors": "2",
    }
    store = STORE
    with cluster.driver(tmp_path_factory.mktemp("driver"), **settings) as driver:
        try:
            yield driver, driver.run(two_sessions, store, timeout=280)
            driver.run(share_and_forget, store)
            assert stored(cluster, 1, store)
        finally:
            driver.close()
            left = cleaned(store)
    assert left == 0
    wait_until(lambda: not stored(cluster, 1, store), "what the application had on the other host is removed")


def stored(cluster: spark_lab.Cluster, host: int, store: str) -> list[str]:
    """The objects of frames in a store of a host."""
    path = cluster.shm(cluster.hosts[host]) / store.removeprefix("shm:")
    if not path.exists():
        return []
    with sa.Store(path, create=False, accept_users=True) as opened:
        return opened.names("frame-")


def share_and_forget(spark: Any, store: str) -> None:
    sas.share(spark.range(0, 8, 1, 4).mapInArrow(slowly, "id long"), store)


@pytest.fixture
def two_hosts(sessions: tuple[spark_lab.Driver, dict[str, Any]]) -> spark_lab.Driver:
    """A driver whose session has an executor of one core on each host."""
    return sessions[0]


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


# --- broadcasts -------------------------------------------------------------------------------------------------


def use_broadcasts(broadcasts: Any, partition: int, _: Any) -> Iterator[Any]:
    for each in broadcasts:
        found = each.value
        file = file_of(found)
        yield {
            "host": os.environ["SPARK_LOCAL_IP"],
            "rows": len(found),
            "file": file,
            "place": (os.getpid(), found.__array_interface__["data"][0], os.stat(file).st_ino if "/" in file else 0),
            "aligned": found.__array_interface__["data"][0] % 64 == 0,
            "right": bool((found == np.arange(len(found))).all()) and not found.flags.writeable,
            "same": each.value is found,
        }


def run_broadcasts(spark: Any, *broadcasts: Any) -> list[Any]:
    rows = spark.sparkContext.parallelize(range(2), 2).barrier()  # a task on each host
    return rows.mapPartitionsWithIndex(partial(use_broadcasts, broadcasts)).collect()


def there_are(files: list[str], _: Any) -> Iterator[list[bool]]:
    yield [os.path.exists(file) for file in files]


def broadcast_twice(spark: Any) -> Any:
    with (
        sas.broadcast(np.arange(10_000.0), spark, STORE) as small,
        sas.broadcast(np.arange(50_000.0), spark, STORE) as large,
    ):
        both = (small, large)
        runs = [run_broadcasts(spark, *both), run_broadcasts(spark, *both)]
        copies = [path for path in Path(spark.sparkContext._temp_dir).iterdir() if path.stat().st_size > 400_000]
        assert len(copies) == 1  # on the driver's disk
        store = sa.Store(STORE)
        paths = {each.size: store.info(each.name).path for each in both}
        travels = pickle.dumps(large)
        large.destroy(blocking=True)
    assert not copies[0].exists()
    files = [row["file"] for row in runs[0] if row["rows"] > 10_000]
    left = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(partial(there_are, files)).collect()
    errors = []
    for each in (large, pickle.loads(travels)):
        with pytest.raises(Exception) as raised:  # noqa: PT011  (Spark's, with the text of ours)
            run_broadcasts(spark, each)
        errors.append(str(raised.value))
    return runs, list(paths.values()), left, len(travels), errors


def test_a_broadcast_is_mapped_on_both_hosts(two_hosts: Any, cluster: Any) -> None:
    here, there = cluster.hosts
    runs, paths, left, size, errors = two_hosts.run(broadcast_twice, timeout=180)
    assert size < 1024
    for run in runs:
        assert {(row["host"], row["rows"]) for row in run} == {
            (host, rows) for host in (here, there) for rows in (10_000, 50_000)
        }
        assert all(row["right"] and row["same"] and row["aligned"] for row in run)
        assert {row["file"] for row in run if row["host"] == here} == set(paths)
    # There it is Spark's own file, which a worker keeps mapped from one job to the next.
    first, second = ([row for row in run if row["host"] == there and row["rows"] > 10_000] for run in runs)
    assert all(re.search(r"/blockmgr-[^/]*/../broadcast_\d+_python$", row["file"]) for row in first)
    assert {row["place"] for row in first} == {row["place"] for row in second}
    assert not any(map(any, left))
    assert not any(map(os.path.exists, paths))
    assert "shmarrow.errors.ObjectNotFound: the broadcast 'broadcast-" in errors[0]
    assert "was destroyed" in errors[0]
    assert "was destroyed" in errors[1] or "cannot reach" in errors[1]  # it depends on the host that is asked first


def use_table(frame: Any, partition: int, _: Any) -> Iterator[Any]:
    made = sas.once("of a worker", lambda: np.array([os.getpid()]), STORE)
    totals = [int(table["x"].to_numpy().sum()) for table in map(frame.attach, range(len(frame)))]
    files = [file_of(frame.attach(i).batches[0].column("x").to_numpy()) for i in range(len(frame))]
    yield {"host": os.environ["SPARK_LOCAL_IP"], "totals": totals, "files": files, "once": [int(made.value[0])]}


def share_a_table(spark: Any) -> Any:
    table = pa.table({"x": np.arange(9_000), "s": ["a", None, "c"] * 3_000})
    with sas.share_table(table, spark, STORE, partitions=3) as frame:
        made = sas.once("of the driver", lambda: np.array([os.getpid()]), STORE)

        def look(partition: int, rows: Any) -> Iterator[Any]:
            for row in use_table(frame, partition, rows):
                yield {**row, "once": [*row["once"], int(made.value[0])], "pid": os.getpid()}

        rows = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitionsWithIndex(look).collect()
        mapped = frame.map(lambda table: {"rows": [table.num_rows]}, "rows long", spark).collect()
        made.destroy()
        names = sa.Store(STORE).names(frame.name)
        keys = spark.range(0, 18_000, 3, 4).mapInArrow(slowly, "id long")
        counts = sas.lookup(keys, frame, {"id": "x"}, ["s"]).groupBy("s").count().collect()
        return rows, sorted(row["rows"] for row in mapped), names, {row["s"]: row["count"] for row in counts}


def test_a_table_of_the_driver_and_values_made_once(two_hosts: Any, cluster: Any) -> None:
    here, there = cluster.hosts
    rows, mapped, names, counts = two_hosts.run(share_a_table, timeout=180)
    found = {row["host"]: row for row in rows}
    assert found.keys() == {here, there}
    totals = [sum(range(i * 3_000, (i + 1) * 3_000)) for i in range(3)]
    assert [row["totals"] for row in rows] == [totals, totals]
    assert mapped == [3_000] * 3
    assert counts == {"a": 3_000, None: 3_000}  # each host has an index of its own
    assert stored(cluster, 1, STORE) == []  # the index is gone with the frame
    assert len(names) == 3
    assert all(file.startswith(f"/dev/shm/{STORE[4:]}/") for file in found[here]["files"])
    (file,) = set(found[there]["files"])  # all partitions lie in one file of Spark's
    assert re.search(r"/broadcast_\d+_python$", file)
    # Computed by a process of each host: in one store for the driver's, in that of the executor for a worker's.
    assert all(row["once"] == [row["pid"]] * 2 for row in rows)


# --- frames -----------------------------------------------------------------------------------------------------


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        time.sleep(0.2)  # or one executor takes all tasks
        yield batch


def with_place(batches: Iterator[Any]) -> Iterator[Any]:
    """The rows, with the host and the executor that they are shared by."""
    for batch in slowly(batches):
        here = [os.environ["SPARK_LOCAL_IP"]] * batch.num_rows, [os.getppid()] * batch.num_rows
        yield batch.append_column("host", pa.array(here[0])).append_column("daemon", pa.array(here[1]))


def places_of(spark: Any, frame: sas.SharedFrame) -> list[Any]:
    """For each partition its first row, whether its rows lie in shared memory, and whether its executor has them."""

    def look(table: Any) -> Any:
        host, daemon, ids = (table[name].to_pylist() for name in ("host", "daemon", "id"))
        shared = file_of(table["id"].chunk(0).to_numpy()).startswith("/dev/shm/")
        same = {*host} == {os.environ["SPARK_LOCAL_IP"]} and {*daemon} == {os.getppid()}
        return {"host": host[:1], "first": ids[:1], "rows": [len(ids)], "shared": [shared], "same": [same]}

    schema = "host string, first long, rows long, shared boolean, same boolean"
    return [row.asDict() for row in frame.map(look, schema, spark).collect()]


def check_places(found: list[Any]) -> None:
    assert [(row["first"], row["rows"]) for row in found] == [(first, 10) for first in range(0, 80, 10)]
    assert all(row["shared"] and row["same"] for row in found)


def executors(spark: Any) -> int:
    return spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver is one of them


def two_sessions(spark: Any, store: str) -> dict[str, Any]:
    """A frame keeps idle executors; on other hosts, a broadcast ends with its session."""
    import spark_driver
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    small = sas.share(spark.range(0, 10, 1, 1), store, function=with_place)
    wait_until(lambda: executors(spark) == 1, "the executor without a partition is removed as it is idle")
    found: dict[str, Any] = {"idle": places_of(spark, small)}
    small.destroy()
    wait_until(lambda: executors(spark) == 0, "the other one is removed after it was destroyed")
    made = sas.broadcast(np.arange(50_000.0), spark, STORE)
    settings = dict(spark.sparkContext.getConf().getAll())
    for name in ("spark.app.id", "spark.driver.port"):
        settings.pop(name, None)
    settings["spark.dynamicAllocation.enabled"] = "false"
    spark.stop()
    following = SparkSession.builder.config(conf=SparkConf(False).setAll(list(settings.items()))).getOrCreate()
    spark_driver.use(following)
    with pytest.raises(Exception) as raised:  # noqa: PT011  (Spark's, with the text of ours)
        run_broadcasts(following, made)
    found["error"] = str(raised.value)
    made.destroy()
    return found


def test_dynamic_allocation_keeps_frames(sessions: tuple[spark_lab.Driver, dict[str, Any]]) -> None:
    (found,) = sessions[1]["idle"]
    assert (found["rows"], found["shared"], found["same"]) == (10, True, True)


def test_another_session(sessions: tuple[spark_lab.Driver, dict[str, Any]]) -> None:
    assert "StorageError: cannot reach the broadcast" in sessions[1]["error"]
    assert "the session that carried it was stopped" in sessions[1]["error"]


def share_and_kill(spark: Any, store: str, executor: int) -> dict[str, Any]:
    """Share a frame, kill an executor, and ask again; what is found, before and after it was destroyed."""
    import spark_driver

    frame = sas.share(spark.range(0, 80, 1, 8).mapInArrow(slowly, "id long"), store)
    wider = frame.with_columns(lambda table: {"twice": table["id"].to_numpy() * 2}, "twice long")
    placed = sas.share(spark.range(0, 80, 1, 8), store, function=with_place)
    found = {"before": places_of(spark, placed)}
    spark_driver.say([handle.is_here for handle in frame.handles])
    spark_driver.hear()
    os.kill(executor, signal.SIGKILL)
    found["after"] = [sorted(row["id"] for row in each.to_df().collect()) for each in (frame, wider)]
    found["twice"] = sum(row["twice"] for row in wider.to_df(["twice"]).collect())
    with pytest.raises(Exception) as raised:  # noqa: PT011  (Spark's, with the text of ours)
        placed.to_df().collect()
    found["error"] = str(raised.value)
    spark_driver.say(None)
    spark_driver.hear()
    # As after an interrupt: the next connection is to a thread of Java that knows no active session.
    spark_lab.reconnect(spark)
    for each in (placed, wider, frame):
        each.destroy()
    spark_lab.activate(spark)
    return found


def test_frames_on_two_hosts(two_hosts: Any, cluster: Any) -> None:
    """Partitions lie in the shared memory of their hosts; one of a lost executor is computed again.

    That counts only if its rows are the same: those with the host and the process that computed them are lost.
    """
    store = STORE
    (killed,) = cluster.executors(cluster.hosts[1])
    two_hosts.begin(share_and_kill, store, killed)
    here = two_hosts.hear()
    first = stored(cluster, 1, store)
    assert 0 < here.count(False) < 8
    two_hosts.say(None)
    two_hosts.hear()
    # The keeper of the executor has removed what it had.
    wait_until(lambda: not set(first).intersection(stored(cluster, 1, store)), "the objects of the executor are gone")
    two_hosts.say(None)
    found = two_hosts.result()
    check_places(found["before"])
    assert {row["host"] for row in found["before"]} == set(cluster.hosts)
    assert found["after"] == [list(range(80))] * 2
    assert found["twice"] == sum(range(0, 160, 2))
    assert re.search(r"ObjectNotFound: partition \d of the frame is lost with its executor", found["error"])
    wait_until(lambda: not stored(cluster, 1, store), "they are destroyed on the other host")
    assert stored(cluster, 0, store) == []


# --- writing ----------------------------------------------------------------------------------------------------


def save(spark: Any, where: str) -> None:
    spark.range(0, 8, 1, 4).mapInArrow(slowly, "id long").write.format("shmarrow").mode("append").save(where)


def test_a_directory_is_written_by_both_hosts(two_hosts: Any, cluster: Any) -> None:
    shared = cluster.shared / "written"
    two_hosts.run(save, str(shared), timeout=120)
    found = [
        pa.ipc.open_file(path.read_bytes()).read_all()["id"].to_pylist() for path in sorted(shared.glob("job-*/part-*"))
    ]
    assert found == [[0, 1], [2, 3], [4, 5], [6, 7]]
