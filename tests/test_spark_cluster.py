"""Two hosts: a master, two workers, and a driver with an executor of one core on each host.

Each session of the driver starts two Java processes, so there are two: one that encrypts, and runs slow tasks twice, in
which executors are killed; and the next one, for all other tests.
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
from conftest import PREFIX
from spark_lab import BATCH_ROWS
from spark_maps import file_of
from store_check import cleaned, leftovers

import shmarrow as sa
from shmarrow import spark as sas
from shmarrow.spark.home import home

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.timeout(300),  # the first one starts ten Java processes
]


@pytest.fixture(scope="module")
def cluster(java: None, by_value: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[spark_lab.Cluster]:
    with spark_lab.cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def sessions(
    cluster: spark_lab.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[spark_lab.Driver, dict[str, Any]]]:
    """The driver in its second session, and what it found in the first one and in between."""
    speculation = {"quantile": "0.1", "multiplier": "1.1", "interval": "100ms", "minTaskRuntime": "500ms"}
    settings = {f"spark__speculation__{name}": value for name, value in speculation.items()}
    settings |= {"spark__speculation": "true", "spark__io__encryption__enabled": "true"}
    folder, store = cluster.shared / "faulty", f"shm:{PREFIX}cluster"
    folder.mkdir()
    with cluster.driver(tmp_path_factory.mktemp("driver"), **settings) as driver:
        try:
            yield driver, driver.run(two_sessions, store, Faulty(folder), timeout=280)
        finally:
            left = cleaned(store)
    assert left == 0


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
    with sas.broadcast(spark, np.arange(10.0)) as small, sas.broadcast(spark, np.arange(50_000.0)) as large:
        both = (small, large)
        runs = [run_broadcasts(spark, *both), run_broadcasts(spark, *both)]
        large.unpersist(blocking=True)
        files = [row["file"] for row in runs[0] if row["rows"] > 10]
        gone = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(partial(there_are, files)).collect()
        runs.append(run_broadcasts(spark, *both))
        large.unpersist()
        runs.append(run_broadcasts(spark, *both))
        copies = [path for path in Path(spark.sparkContext._temp_dir).iterdir() if path.stat().st_size > 400_000]
        assert len(copies) == 1  # on the driver's disk
        store = home().driver_store()
        assert store is not None
        paths = {each.size: store.info(each.name).path for each in both}
        travels = pickle.dumps(large)
    assert not copies[0].exists()
    errors = []
    for each in (large, pickle.loads(travels)):
        with pytest.raises(Exception) as raised:  # noqa: PT011  (Spark's, with the text of ours)
            run_broadcasts(spark, each)
        errors.append(str(raised.value))
    return runs, list(paths.values()), gone, len(travels), errors


def test_a_broadcast_is_mapped_on_both_hosts(two_hosts: Any, cluster: Any) -> None:
    here, there = cluster.hosts
    runs, paths, left, size, errors = two_hosts.run(broadcast_twice, timeout=180)
    assert size < 1024
    for run in runs:
        assert {(row["host"], row["rows"]) for row in run} == {
            (host, rows) for host in (here, there) for rows in (10, 50_000)
        }
        assert all(row["right"] and row["same"] and row["aligned"] for row in run)
        assert {row["file"] for row in run if row["host"] == here} == set(paths)
    # There it is Spark's own file, which a worker keeps mapped from one job to the next.
    first, second, third, _ = ([row for row in run if row["host"] == there and row["rows"] > 10] for run in runs)
    assert all(re.search(r"/blockmgr-[^/]*/../broadcast_\d+_python$", row["file"]) for row in first)
    assert {row["place"] for row in first} == {row["place"] for row in second}
    assert sorted(map(sum, left)) == [0, 1]  # unpersist removed it, and the driver's object stayed
    assert {row["file"] for row in third}.isdisjoint({row["file"] for row in first})
    assert not any(map(os.path.exists, paths))
    assert "shmarrow.errors.ObjectNotFound: the broadcast 'broadcast-" in errors[0]
    assert "was destroyed" in errors[0]
    assert "was destroyed" in errors[1] or "cannot reach" in errors[1]  # it depends on the host that is asked first


def use_table(frame: Any, partition: int, _: Any) -> Iterator[Any]:
    made = sas.once("of a worker", lambda: np.array([os.getpid()]))
    totals = [int(table["x"].to_numpy().sum()) for table in map(frame.attach, range(len(frame)))]
    files = [file_of(frame.attach(i).batches[0].column("x").to_numpy()) for i in range(len(frame))]
    yield {"host": os.environ["SPARK_LOCAL_IP"], "totals": totals, "files": files, "once": [int(made.value[0])]}


def share_a_table(spark: Any) -> Any:
    table = pa.table({"x": np.arange(9_000), "s": ["a", None, "c"] * 3_000})
    with sas.share_table(spark, table, partitions=3) as frame:
        made = sas.once("of the driver", lambda: np.array([os.getpid()]))

        def look(partition: int, rows: Any) -> Iterator[Any]:
            for row in use_table(frame, partition, rows):
                yield {**row, "once": [*row["once"], int(made.value[0])], "pid": os.getpid()}

        rows = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitionsWithIndex(look).collect()
        mapped = frame.map(spark, lambda table: {"rows": [table.num_rows]}, "rows long").collect()
        made.destroy()
        return rows, sorted(row["rows"] for row in mapped), home().driver_store().names(frame.name)  # type: ignore[union-attr]


def test_a_table_of_the_driver_and_values_made_once(two_hosts: Any, cluster: Any) -> None:
    here, there = cluster.hosts
    rows, mapped, names = two_hosts.run(share_a_table, timeout=180)
    found = {row["host"]: row for row in rows}
    assert found.keys() == {here, there}
    totals = [sum(range(i * 3_000, (i + 1) * 3_000)) for i in range(3)]
    assert [row["totals"] for row in rows] == [totals, totals]
    assert mapped == [3_000] * 3
    assert len(names) == 3
    assert all(file.startswith("/dev/shm/shmarrow-spark-") for file in found[here]["files"])
    (file,) = set(found[there]["files"])  # all partitions lie in one file of Spark's
    assert re.search(r"/broadcast_\d+_python$", file)
    # Computed by a process of each host: in one store for the driver's, in that of the executor for a worker's.
    assert all(row["once"] == [row["pid"]] * 2 for row in rows)


def two_sessions(spark: Any, store: str, faulty: Faulty) -> dict[str, Any]:
    """What tasks find of a broadcast and a table of a session that encrypts, in it and in the next one."""
    import spark_driver
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    with pytest.warns(UserWarning, match=r"spark\.io\.encryption\.enabled"):
        made = sas.broadcast(spark, np.arange(50_000.0))
    with pytest.warns(UserWarning, match=r"spark\.io\.encryption\.enabled"):
        frame = sas.share_table(spark, sa.table({"x": np.arange(9_000)}), partitions=3)

    def look(partition: int, rows: Any) -> Iterator[Any]:
        tables = map(frame.attach, range(len(frame)))
        yield os.environ["SPARK_LOCAL_IP"], [int(table["x"].to_numpy().sum()) for table in tables]

    def totals(session: Any) -> Any:
        return session.sparkContext.parallelize(range(2), 2).barrier().mapPartitionsWithIndex(look).collect()

    found = {"rows": run_broadcasts(spark, made), "totals": totals(spark)}
    found["happened"] = share_with_faults(spark, store, faulty)
    settings = dict(spark.sparkContext.getConf().getAll())
    for name in ("spark.app.id", "spark.driver.port"):
        settings.pop(name, None)
    settings |= {"spark.io.encryption.enabled": "false", "spark.speculation": "false"}
    spark.stop()
    following = SparkSession.builder.config(conf=SparkConf(False).setAll(list(settings.items()))).getOrCreate()
    spark_driver.use(following)
    found["later rows"] = run_broadcasts(following, made)
    found["later totals"] = totals(following)
    frame.destroy()
    made.destroy()
    return found


def test_encryption_and_another_session(
    sessions: tuple[spark_lab.Driver, dict[str, Any]], cluster: spark_lab.Cluster
) -> None:
    """With encryption workers on other hosts have copies of their own. The next session carries the same again."""
    found = sessions[1]
    rows, later = found["rows"], found["later rows"]
    assert all(row["right"] and row["same"] for row in later)
    assert {(row["host"], "/broadcast_" in row["file"]) for row in later} == {
        (cluster.hosts[0], False),
        (cluster.hosts[1], True),
    }
    expected = [sum(range(i * 3_000, (i + 1) * 3_000)) for i in range(3)]
    assert dict(found["totals"]) == dict(found["later totals"]) == dict.fromkeys(cluster.hosts, expected)
    assert {row["host"] for row in rows} == set(cluster.hosts)
    assert all(row["right"] and row["same"] for row in rows)
    mapped = {(row["host"], row["file"].startswith("/")) for row in rows}
    assert mapped == {(cluster.hosts[0], True), (cluster.hosts[1], False)}


def share_and_ask(spark: Any) -> list[list[Any]]:
    """For each partition the host in its handle, whether it is here, the task that got it again, and its store."""
    from shmarrow import spark as sas

    def where(table: Any) -> Any:
        return {"first": table["id"][:1], "host": [os.environ["SPARK_LOCAL_IP"]]}

    with sas.share(spark.range(0, 80, 1, 8)) as frame:
        handles = [[handle.address, handle.is_here, handle.store] for handle in frame.handles]
        rows = frame.map(spark, where, "first long, host string").collect()
        total = frame.to_df(spark).selectExpr("sum(id)").collect()[0][0]
        # As after an interrupt: the next connection is to a thread of Java that knows no active session.
        spark_lab.reconnect(spark)
    spark_lab.activate(spark)
    assert [row.first for row in rows] == list(range(0, 80, 10))
    assert total == sum(range(80))
    return [[*handle, row.host] for handle, row in zip(handles, rows, strict=True)]


def test_tasks_go_where_the_rows_are(two_hosts: Any, cluster: Any) -> None:
    found = two_hosts.run(share_and_ask)
    assert {address for address, *_ in found} == set(cluster.hosts)
    assert all(host == address for address, *_, host in found)
    assert all(here == (address == cluster.hosts[0]) for address, here, *_ in found)
    # They are destroyed there, too: what other jobs have put into the store of that executor is left.
    (folder,) = {store for address, _, store, _ in found if address == cluster.hosts[1]}
    assert "/blockmgr-" in folder
    with sa.Store(cluster.root(cluster.hosts[1]) / folder.removeprefix("/"), create=False, trust=True) as store:
        spark_lab.wait_until(lambda: not store.names("frame-"), "the job that releases them ends")


# --- executors that are killed, and tasks that run twice --------------------------------------------------------


class Faulty:
    """On each host one executor is killed while a partition is written; one partition is so slow that it runs twice.

    Files in a folder that both hosts see say what has happened.
    """

    SLOW = 7

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for index, batch in enumerate(batches):
            if index == 1 and context.partitionId() == self.SLOW:
                if self.happens("slow"):
                    spark_lab.wait_until((self.folder / "again").exists, "the task runs on the other host, too")
                else:
                    self.happens("again")
            elif index == 1 and self.happens(f"killed on {os.environ['SPARK_LOCAL_IP']}"):
                java = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
                os.kill(int(java), signal.SIGKILL)
                time.sleep(60)  # Spark does not wait for it
            yield batch

    def happens(self, what: str) -> bool:
        """Whether something is for the first time."""
        try:
            (self.folder / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def share_with_faults(spark: Any, store: str, faulty: Faulty) -> Any:
    rows = 8 * 2 * BATCH_ROWS
    with sas.share(spark.range(0, 100, 1, 2), store, function=iter) as other:
        others = sa.Store(store).names()
        with sas.share(spark.range(0, rows, 1, 8), store, function=faulty, target_bytes=1) as frame:
            happened = sorted(path.name for path in faulty.folder.iterdir())
            found = frame.to_df(spark).selectExpr("count(*)", "count(DISTINCT id)", "min(id)", "max(id)").collect()
            assert [*found[0]] == [rows, rows, 0, rows - 1]
            assert [handle.partition for handle in frame.handles] == list(range(8))
            assert {handle.address for handle in frame.handles} == set(spark_lab.Cluster.hosts)
            kept = {handle.name for handle in frame.handles if handle.is_here}
            # The task that ran twice may be about to publish, and takes it back.
            spark_lab.wait_until(lambda: {*sa.Store(store).names()} == {*others, *kept}, "nothing else is there")
            before = len(others)
        sa.Store(store).collect()
        assert len(leftovers(store)) == before
        assert other.to_df(spark).count() == 100
    return happened


def test_executors_are_killed_and_a_task_runs_twice(
    sessions: tuple[spark_lab.Driver, dict[str, Any]], cluster: spark_lab.Cluster
) -> None:
    assert sessions[1]["happened"] == ["again", *[f"killed on {host}" for host in cluster.hosts], "slow"]


# --- writing ----------------------------------------------------------------------------------------------------


def save(spark: Any, where: str) -> None:
    spark.range(0, 8, 1, 4).mapInArrow(slowly, "id long").write.format("shmarrow").mode("append").save(where)


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        time.sleep(0.2)  # or one executor takes all tasks
        yield batch


def test_a_directory_is_written_by_both_hosts(two_hosts: Any, cluster: Any) -> None:
    shared = cluster.shared / "written"
    two_hosts.run(save, str(shared), timeout=120)
    found = [pa.ipc.open_file(path.read_bytes()).read_all()["id"].to_pylist() for path in sorted(shared.glob("part-*"))]
    assert found == [[0, 1], [2, 3], [4, 5], [6, 7]]
