"""Faults while frames are shared: killed workers and drivers, cancelled and failing jobs, no room.

Invariants: processes are really killed; rows are neither lost nor doubled; once the dead are collected nothing is
left of them, and what other applications have in the same store is all there. Executors are killed in
``test_spark_cluster.py``.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_kills
import spark_lab
from lab import small_tmpfs
from spark_lab import BATCH_ROWS
from store_check import check, leftovers
from waiting import wait_until

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),  # of the newest pandas
]


@pytest.fixture
def other(spark: Any, home: str) -> Iterator[None]:
    """A frame of another application in the same store, which survives the test."""
    with sas.share(spark.range(0, 100, 1, 2), home) as frame:
        yield
        assert frame.read_all()["id"].to_pylist() == list(range(100))


def names_but(home: str, *frames: sas.SharedFrame) -> list[str]:
    """The names in a store that belong to none of some frames."""
    kept = {name for frame in frames for name in (f".{frame.name}", *[handle.name for handle in frame.handles])}
    return [name for name in sa.Store(home).names() if name not in kept]


def partitions(names: list[str]) -> int:
    """Count the objects that are partitions, which have files; markers are small, and have none."""
    return sum("/" in name for name in names)


def attempt() -> tuple[int, int]:
    """The number of the partition, and how often it was tried before."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()


# --- workers that are killed ------------------------------------------------------------------------------------


class Killed:
    """Kills processes that share a partition, from the first batch on, before another line of what shares or stores.

    With ``each``, these are forks of the worker, which goes on when all are dead. Otherwise the worker is killed at its
    first attempt at partition ``i``, before line ``points[i]``.
    """

    def __init__(self, notes: Path, store: str, each: int = 0, points: Sequence[int] = ()) -> None:
        self.notes, self.store, self.each, self.points = notes, store, each, points
        self.others = sa.Store(store).names()

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        held = list(batches)
        partition, number = attempt()
        if self.each:
            spark_kills.killed_at_each_line(self.notes, self.each, lambda: self._take_back(held))
        elif number == 0:
            spark_kills.kill_at(self.notes, self.points[partition])
        yield from held

    def _take_back(self, held: list[Any]) -> None:
        """Published objects are whole; the next attempt uses a name of its own."""
        store = sa.Store(self.store)
        for name in [name for name in store.names("frame-") if "/" in name and name not in self.others]:
            assert len(store.take(name)) == sum(batch.num_rows for batch in held)


def test_processes_killed_at_any_point(spark: Any, home: str, other: None, tmp_path: Path) -> None:
    killed, rows = Killed(tmp_path / "killed", home, each=11), 2 * BATCH_ROWS
    others = sa.Store(home).names()
    with sas.share(spark.range(0, rows, 1, 1), home, function=killed, target_bytes=1) as frame:
        places = [line.split()[1] for line in (tmp_path / "killed").read_text().splitlines()]
        files = {place.split(":")[0] for place in places}
        assert {"sharing.py", "publish.py"} <= files
        assert files & {"transaction.py", "control.py", "index.py"}
        assert len(places) > 15
        assert frame.read_all()["id"].to_pylist() == list(range(rows))
        assert names_but(home, frame) == others
        sa.Store(home).collect()
        assert names_but(home, frame) == others
        assert len(leftovers(home)) == partitions(others) + 1
        check(home)


def test_workers_that_are_killed_are_tried_again(spark: Any, home: str, other: None, tmp_path: Path) -> None:
    killed, rows = Killed(tmp_path / "killed", home, points=[5, 10**9, 150, 300]), 2 * BATCH_ROWS
    others = sa.Store(home).names()
    with sas.share(spark.range(0, 4 * rows, 1, 4), home, function=killed, target_bytes=1) as frame:
        ends = [line.endswith(" end") for line in (tmp_path / "killed").read_text().splitlines()]
        assert (len(ends), sum(ends)) == (4, 1)
        assert frame.read_all()["id"].to_pylist() == list(range(4 * rows))
        assert [handle.partition for handle in frame.handles] == [0, 1, 2, 3]
        # What was published before it was killed is removed with the frame.
        assert all(name.startswith(f"{frame.name}/") for name in set(names_but(home, frame)) - set(others))
    sa.Store(home).collect()
    assert sa.Store(home).names() == others
    assert len(leftovers(home)) == partitions(others)


class Asking:
    """Asks for values in forks of the worker that are killed one line further each time, then in the worker."""

    def __init__(self, folder: Path, broadcast: Any, once: Any) -> None:
        self.folder, self.broadcast, self.once = folder, broadcast, once

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        list(batches)
        for name, value, after in [("broadcast", self.broadcast, None), ("once", self.once, self.once.destroy)]:
            notes = self.folder / name
            if spark_kills.killed_at_each_line(notes, 7, after):
                _ = value.value
                spark_kills.end(notes)
        sums = [int(self.broadcast.value.sum()), int(self.once.value.sum())]
        yield pa.RecordBatch.from_pydict({"sum": sums})


def test_processes_killed_while_they_ask_for_values(spark: Any, home: str, other: None, tmp_path: Path) -> None:
    def compute() -> Any:
        with open(tmp_path / "computed", "a") as file:
            file.write("once more\n")
        return np.arange(100)

    others = sa.Store(home).names()
    with sas.broadcast(np.arange(1_000), spark, home) as broadcast:
        once = sas.once("hundred", compute, home)
        rows = spark.range(0, 1, 1, 1).mapInArrow(Asking(tmp_path, broadcast, once), "sum long").collect()
        assert [row["sum"] for row in rows] == [sum(range(1_000)), sum(range(100))]
        for name, files in [("broadcast", {"delivery.py"}), ("once", {"values.py", "publish.py"})]:
            places = [line.split()[1] for line in (tmp_path / name).read_text().splitlines()]
            assert files <= {place.split(":")[0] for place in places}
        computed = (tmp_path / "computed").read_text()
        assert int(once.value.sum()) == sum(range(100))
        assert (tmp_path / "computed").read_text() == computed
        once.destroy()
    sa.Store(home).collect()
    assert sa.Store(home).names() == others
    assert len(leftovers(home)) == partitions(others)
    check(home)


# --- jobs that end before their tasks ---------------------------------------------------------------------------


class Held:
    """Holds a partition when its first batch is written, until a file appears; each attempt leaves a file, too."""

    def __init__(self, folder: Path, partition: int | None = None) -> None:
        self.folder, self.partition = folder, partition

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        partition, number = attempt()
        for index, batch in enumerate(batches):
            if index == 1 and self.partition in (None, partition):
                (self.folder / f"{partition}-{number}").touch()
                wait_until((self.folder / "go").exists, "the test lets a task go on")
            yield batch

    def arrived(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def fails_late(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
    raise ValueError("no such luck")


@pytest.mark.parametrize("kind", ["spark", "connect"])
def test_a_job_that_is_cancelled(
    kind: str, request: pytest.FixtureRequest, home: str, other: None, tmp_path: Path
) -> None:
    session, held, others = request.getfixturevalue(kind), Held(tmp_path), sa.Store(home).names()
    raised: list[BaseException] = []

    def share() -> None:
        if kind == "connect":
            session.addTag("sharing")
        try:
            sas.share(session.range(0, 8 * BATCH_ROWS, 1, 2), home, function=held, target_bytes=1)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=share)
    thread.start()
    wait_until(lambda: held.arrived() == ["0-0", "1-0"], "both tasks have begun to write")
    assert len(names_but(home)) == len(others) + 1  # the marker
    if kind == "connect":
        session.interruptTag("sharing")
    else:
        session.sparkContext.cancelAllJobs()
    thread.join(30)
    (error,) = raised
    assert "cancel" in str(error).lower()
    assert names_but(home) == others
    (tmp_path / "go").touch()  # for workers that go on: nothing that they publish stays
    wait_until(lambda: len(leftovers(home)) == partitions(others), "the tasks that were cancelled end")
    assert names_but(home) == others
    check(home)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
@pytest.mark.parametrize("kind", ["spark", "connect"])
def test_a_job_that_is_interrupted(
    kind: str, request: pytest.FixtureRequest, home: str, other: None, tmp_path: Path
) -> None:
    """By Ctrl-C, without the handler of a classic session, which cancels all jobs.

    PySpark asks Java once more on the way out, whose end of the connection may be closed by then: that error is raised
    while the interrupt is handled.
    """
    from py4j.protocol import Py4JNetworkError

    session, held, others = request.getfixturevalue(kind), Held(tmp_path), sa.Store(home).names()

    def interrupt() -> None:
        with suppress(AssertionError):
            wait_until(lambda: held.arrived() == ["0-0", "1-0"], "both tasks have begun to write")
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises((KeyboardInterrupt, Py4JNetworkError)) as raised:
            sas.share(session.range(0, 8 * BATCH_ROWS, 1, 2), home, function=held, target_bytes=1)
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    assert KeyboardInterrupt in {type(raised.value), type(raised.value.__context__)}
    assert held.arrived() == ["0-0", "1-0"]
    assert names_but(home) == others

    def counted() -> int:
        with suppress(Py4JNetworkError):  # Java closes the last of the old connections
            return int(session.range(0, 4, 1, 2).count())
        return 0

    assert wait_until(counted, "a job runs") == 4  # which waits for ever while the tasks of that job hold both cores
    assert not (tmp_path / "go").exists()
    wait_until(lambda: len(leftovers(home)) == partitions(others), "the tasks that were cancelled end")
    check(home)


def test_a_job_that_fails(spark: Any, home: str, other: None, tmp_path: Path) -> None:
    held, others = Held(tmp_path, partition=1), sa.Store(home).names()

    def function(batches: Iterator[Any]) -> Iterator[Any]:
        return (fails_late if attempt()[0] == 0 else held)(batches)

    with pytest.raises(Exception, match="no such luck"):
        sas.share(spark.range(0, 8 * BATCH_ROWS, 1, 2), home, function=function, target_bytes=1)
    assert names_but(home) == others
    (tmp_path / "go").touch()
    wait_until(lambda: len(leftovers(home)) == partitions(others), "the task that was left ends")
    assert names_but(home) == others
    check(home)


def wide(spark: Any, rows: int) -> Any:
    """A DataFrame of 400 bytes a row."""
    return spark.range(0, rows, 1, 2).selectExpr("id", "repeat('x', 400) AS text")


def test_no_room(spark: Any, other: None, tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "small", 4 << 20) as folder:
        store = sa.Store(folder / "store")
        with pytest.raises(sa.StoreFull, match=r"no room for \d+ bytes of .*, \d+ free\); .*larger"):
            sas.share(wide(spark, 20_000), store)
        assert store.names() == []
        store.collect()
        assert leftovers(str(folder / "store")) == []
        with sas.share(wide(spark, 2_000), store) as frame:
            with pytest.raises(sa.StoreFull):
                sas.share(wide(spark, 10_000), store)
            assert frame.read_all()["id"].to_pylist() == list(range(2_000))
            assert names_but(str(folder / "store"), frame) == []
        store.close()


# --- drivers that end -------------------------------------------------------------------------------------------


def share_until_killed(spark: Any, store: str, held: Held) -> None:
    import spark_driver

    with pytest.raises(sa.StoreFull) as caught:
        sas.share(wide(spark, 20_000))
    user = sa.Store(f"shm:shmarrow-spark-{os.geteuid()}")
    spark_driver.say((str(caught.value), os.listdir("/dev/shm"), user.names()))
    sas.share(spark.range(0, 10, 1, 2), store, name="rides")
    sas.share(spark.range(0, 20, 1, 2), store, name="kept", keep=3600).index("id")
    broadcast = sas.broadcast(np.arange(10), spark, store)
    once = sas.once("ten", lambda: np.arange(10), store)
    spark_driver.say(spark.range(0, 1, 1, 1).mapInArrow(partial(sums, broadcast, once), "sum long").collect()[0][0])
    sas.share(spark.range(0, 8 * BATCH_ROWS, 1, 2), store, function=held, target_bytes=1)


def sums(broadcast: Any, once: Any, batches: Iterator[Any]) -> Iterator[Any]:
    list(batches)
    yield pa.RecordBatch.from_pydict({"sum": [sum(int(each.value.sum()) for each in (broadcast, once))]})


def test_a_driver_that_is_killed(spark: Any, tmp_path: Path) -> None:
    """One with little shared memory; the store that it leaves things in is in a directory, where all see it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    store = str(shared / "store")
    held = Held(shared / "held")
    held.folder.mkdir()
    with sas.share(spark.range(0, 100, 1, 2), store) as frame:
        others = sa.Store(store).names()
        host = spark_lab.another_host(shm=4 << 20, shared=[shared])
        with spark_lab.driver(tmp_path / "driver", host=host) as driver:
            driver.begin(share_until_killed, store, held)
            message, entries, names = driver.hear()
            assert re.search(
                r"no room for \d+ bytes of .* in the store 'shm:shmarrow-spark-\d+'.*, \d+ free\)", message
            )
            assert (entries, names) == ([f"shmarrow-spark-{os.geteuid()}"], [])
            assert driver.hear() == 2 * sum(range(10))
            wait_until(lambda: held.arrived() == ["0-0", "1-0"], "both tasks have begun to write")
            kinds = sorted(re.split("[-/]", name)[0] for name in names_but(store, frame))
            # A marker, a name and two partitions for each frame, and an index.
            assert kinds == [*[".frame"] * 3, "broadcast", *["frame"] * 5, *["frames"] * 2, "once"]
            assert sas.attached("rides", store).num_rows == 10  # which collects what is of the dead
            assert len(names_but(store, frame)) == 12
            driver.kill()
        assert len(names_but(store, frame)) == 12
        with pytest.raises(sa.ObjectNotFound, match="name 'rides': there are 'kept'"):
            sas.attached("rides", store)
        with sas.attached("kept", store) as kept:
            assert sorted(kept.read_all()["id"].to_pylist()) == list(range(20))
            assert kept.index("id").find([19, 20]).tolist() == [19, -1]
            assert sum(row["id"] for row in kept.map(lambda table: table, "id long", spark).collect()) == sum(range(20))
        assert sa.Store(store).names() == others
        assert len(leftovers(store)) == partitions(others)
        check(store)
        assert frame.read_all()["id"].to_pylist() == list(range(100))
