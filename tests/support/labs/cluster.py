"""Spark on a cluster of three hosts in namespaces, with faults; ``make cluster`` runs it, in some minutes.

Each host has its own network, mounts, IPC and host name, its own ``/dev/shm`` and ``/tmp``. They are connected by a
bridge, have addresses that no other machine reaches, and end with this program. One line is printed for each check; the
exit status is 1 if one failed. Needs Linux, Java, and either root or user namespaces; where these are missing, it says
so and checks nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_lab
from spark_driver import hear, say
from spark_maps import file_of
from waiting import wait_until

import shmarrow as sa
from shmarrow import spark as sas

HOSTS = {f"10.77.0.{number}": f"host{number}" for number in (1, 2, 3)}
"""The names of the hosts by their addresses. The master and most drivers are on the first one."""
FIRST, SECOND, THIRD = HOSTS
SWITCH = "10.77.0.254"
STORE = f"shmarrow-spark-{os.geteuid()}"
NAMESPACES = ("net", "mnt", "ipc", "uts")
SECONDS = 300.0
STREAMS = 5
"""Streams of one driver."""
INSIDE = "SHMARROW_CLUSTER_INSIDE"


# --- the hosts --------------------------------------------------------------------------------------------------


def enter() -> None:
    """Run this program again, in namespaces of its own, which all processes end with."""
    command = spark_lab.namespaces()
    if isinstance(command, str):
        sys.exit(skipped(f"no namespaces can be made here ({command})"))
    if shutil.which("ip") is None:
        sys.exit(skipped("there is no program `ip` (Debian: iproute2)"))
    os.environ[INSIDE] = "yes"
    command = [*command, "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    os.execvp(command[0], [*command, sys.executable, *sys.argv])


def skipped(why: str) -> int:
    print(f"skipped  all checks: {why}", flush=True)
    return 0


def ip(*arguments: str, within: int | None = None) -> None:
    enter = [] if within is None else ["nsenter", "-t", str(within), "-n"]
    subprocess.run([*enter, "ip", *arguments], check=True)


@contextmanager
def hosts(shared: Path) -> Iterator[dict[str, list[str]]]:
    """The three hosts: for each address the beginning of a command that runs there. All have the folder ``shared``."""
    ip("link", "add", "switch", "type", "bridge")
    ip("addr", "add", f"{SWITCH}/24", "dev", "switch")
    ip("link", "set", "switch", "up")
    names = shared / "hosts"
    names.write_text("".join(f"{address} {name}\n" for address, name in {"127.0.0.1": "localhost", **HOSTS}.items()))
    with ExitStack() as stack:
        found = {}
        for address, name in HOSTS.items():
            setup = [f"hostname {name}", f"mount --bind {names} /etc/hosts", "ip link set lo up", "echo ready"]
            script = "\n".join([*setup, "exec sleep infinity"])
            command = [*spark_lab.another_host(shared=[shared]), "unshare", "--net", "--ipc", "--uts"]
            process = stack.enter_context(subprocess.Popen([*command, "sh", "-ec", script], stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            pid = process.pid
            ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
            ip("link", "set", f"to-{name}", "master", "switch", "up")
            ip("addr", "add", f"{address}/24", "dev", "eth0", within=pid)
            ip("link", "set", "eth0", "up", within=pid)
            found[address] = ["nsenter", "-t", str(pid), "--mount", "--net", "--ipc", "--uts", "--"]
        yield found


class Stopped(Exception):
    """A check failed, as was said."""


class Lab:
    """The cluster and its checks; ``shared`` is a folder that all hosts have."""

    cluster: spark_lab.Cluster
    commands: dict[str, list[str]]

    def __init__(self, shared: Path) -> None:
        self.shared, self.failed = shared, 0

    @contextmanager
    def check(self, what: str) -> Iterator[None]:
        """Say whether the block raised no error; after one, what needs the same application is not checked."""
        start = time.monotonic()
        try:
            yield
        except Exception as error:
            self.failed += 1
            print(f"FAILED   {what}\n{traceback.format_exc()}", flush=True)
            raise Stopped from error
        print(f"ok       {what} ({time.monotonic() - start:.1f} s)", flush=True)

    def driver(self, host: str, **settings: str) -> Any:
        """A driver on a host, of an application with an executor of two cores on each host."""
        given = {
            "spark__cores__max": "6",
            "spark__executor__cores": "2",
            "spark__driver__host": host,
            "spark__driver__bindAddress": host,
            "spark__locality__wait": "20s",  # however busy this machine is
            **settings,
        }
        return self.cluster.driver(self.folder(), seconds=SECONDS, **self.on(host), **given)

    def client(self, host: str, url: str) -> Any:
        """A client of Spark Connect on a host."""
        return spark_lab.driver(self.folder(), url, seconds=SECONDS, **self.on(host))

    def alone(self) -> Any:
        """A driver that needs no cluster."""
        return spark_lab.driver(self.folder(), "local[2]", seconds=SECONDS)

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.shared))

    def on(self, host: str) -> dict[str, Any]:
        return {"host": self.commands[host], "environment": {"SPARK_LOCAL_IP": host}}

    def left(self, host: str) -> list[str]:
        """List the ``/dev/shm`` of a host, except for the store of the user's applications if it has no objects."""
        found = self.cluster.shm(host)
        empty = {STORE, *(f"{STORE}/{name}" for name in ("control", "pins", "commit"))}
        return sorted({str(path.relative_to(found)) for path in found.rglob("*")} - empty)

    def objects(self, host: str) -> list[str]:
        """The names of the objects in the store on a host."""
        path = self.cluster.shm(host) / STORE
        if not path.exists():
            return []
        with sa.Store(path, create=False, accept_users=True) as store:
            return store.names()

    def collect(self, host: str) -> None:
        """Run the collector on a host."""
        command = [*self.commands[host], sys.executable, "-m", "shmarrow", "collect", f"shm:{STORE}"]
        environment = {**os.environ, "PYTHONPATH": spark_lab.python_path()}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment, cwd="/")

    def nothing_left(self, which: tuple[str, ...] = tuple(HOSTS)) -> None:
        """See that nothing is left on some hosts, once keepers have seen that their executors ended."""
        for host in which:
            with suppress(AssertionError):
                wait_until(partial(self.is_clear, host, ""), "no objects")
            assert not self.left(host), f"on {host}: {self.objects(host)}, {self.left(host)}"

    def is_clear(self, host: str, prefix: str) -> bool:
        """Whether the store on a host has no objects whose names begin with this."""
        return not any(name.startswith(prefix) for name in self.objects(host))


# --- what runs in drivers ---------------------------------------------------------------------------------------


def facts(_: Any) -> Iterator[Any]:
    shm = os.stat("/dev/shm").st_dev
    yield platform.node(), (*(os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES), shm)


def at_once(spark: Any, function: Callable[[Any], Iterator[Any]]) -> list[Any]:
    """The results of a function in six tasks at the same time, two on each host."""
    return spark.sparkContext.parallelize(range(6), 6).barrier().mapPartitions(function).collect()


def look_around(spark: Any) -> list[Any]:
    return at_once(spark, facts)


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        time.sleep(0.3)  # or one executor takes all tasks
        yield batch


def shared(spark: Any, store: Any = None) -> sas.SharedFrame:
    return sas.share(spark.range(0, 240, 1, 12), store, function=slowly)


def used(table: sa.Table) -> Any:
    ids = table["id"].to_numpy()
    in_memory = file_of(ids).startswith("/dev/shm/")
    return {"host": [platform.node()], "first": ids[:1], "total": [ids.sum()], "shared": [in_memory]}


def use(spark: Any, frame: sas.SharedFrame) -> set[str]:
    """Check the rows of a frame, and return the hosts where they were used."""
    rows = frame.map(used, "host string, first long, total long, shared boolean", spark).collect()
    assert [(row["first"], row["total"]) for row in rows] == [
        (first, sum(range(first, first + 20))) for first in range(0, 240, 20)
    ]
    assert all(row["shared"] for row in rows)
    return {row["host"] for row in rows}


def share(spark: Any) -> None:
    frame = shared(spark)
    say([use(spark, frame) for _ in range(3)])
    say({handle.host for handle in frame.handles})
    try:
        frame.read_all()
    except sa.StorageError as error:
        say(str(error))
    hear()
    frame.destroy()


def broadcast(spark: Any) -> None:
    value = np.arange(1_000_000.0)
    with sas.broadcast(value, spark) as made:

        def attach(_: Any) -> Iterator[Any]:
            found = made.value
            status = os.stat(file_of(found))
            yield platform.node(), (os.getpid(), status.st_dev, status.st_ino, float(found.sum()))

        say((float(value.sum()), at_once(spark, attach)))
        hear()


def table(spark: Any) -> None:
    with sas.share_table(sa.table({"id": np.arange(240)}), spark, partitions=12) as frame:
        rows = frame.map(lambda table: {"total": [table["id"].to_numpy().sum()]}, "total long", spark).collect()
        say([row["total"] for row in rows])
        hear()


def once(spark: Any) -> None:
    made = sas.once("process", lambda: np.array([os.getpid()]))
    say(at_once(spark, lambda _: iter([(platform.node(), int(made.value[0]))])))
    hear()
    made.destroy()


def fail_late(batches: Iterator[Any]) -> Iterator[Any]:
    """Fail in the last partition, when others have been written."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    yield from slowly(batches)
    if context.partitionId() == 11:
        time.sleep(1)
        raise ValueError("no such luck")


def fail(spark: Any) -> None:
    try:
        sas.share(spark.range(0, 240, 1, 12), function=fail_late)
    except Exception as error:
        say("no such luck" in str(error))


def lose_an_executor(spark: Any) -> None:
    frame = shared(spark)
    say([handle.name for handle in frame.handles])
    hear()
    say(use(spark, frame))
    hear()
    say(use(spark, frame))
    frame.destroy()


def read_files(spark: Any, folder: str) -> None:
    """Sum the rows of files that a table of the driver has, by three tasks on each host, one of which is killed."""
    names = sa.table({"id": np.arange(0, 2400, 2), "twice": np.arange(0, 4800, 4)})
    with sas.share_table(names, spark) as frame:
        index = frame.index("id")

        def summed(table: sa.Table) -> Any:
            time.sleep(0.5)  # or one executor takes all tasks
            rows = index.take(table["id"])
            return {"host": [platform.node()], "total": [int(np.nansum(rows["twice"].to_pandas()))]}

        found = sas.files(folder, spark=spark)
        assert found.num_rows == 2400
        for _ in range(2):
            rows = found.map(summed, "host string, total long", spark).collect()
            say(({row["host"] for row in rows}, sum(row["total"] for row in rows)))
            hear()


def write_files(folder: Path) -> None:
    """Write the numbers below 2400 as files, each of which is large enough for a task."""
    for first in range(0, 2400, 200):
        rows = sa.table({"id": np.arange(first, first + 200), "more": [bytes(8192)] * 200})
        with sa.ipc.new_file(folder / f"{first:04d}.arrow", rows.schema) as writer:
            writer.write(rows)


def read_slowly(spark: Any, folder: str, notes: str) -> None:
    """Sum the rows of files; the first attempt of the first task never ends, and each one leaves a note."""

    def summed(table: sa.Table) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = context.partitionId(), context.attemptNumber()
        Path(notes, f"{platform.node()}-{task[0]}-{task[1]}").touch()
        time.sleep(SECONDS if task == (0, 0) else 5)
        return {"total": [int(table["id"].to_numpy().sum())]}

    rows = sas.files(folder, spark=spark).map(summed, "total long", spark).collect()
    say(sum(row["total"] for row in rows))


def keep(spark: Any, seconds: float) -> None:
    frame = sas.share(spark.range(0, 240, 1, 12), name="kept", keep=seconds, function=slowly)
    say({handle.host for handle in frame.handles})


def replace_kept(spark: Any, seconds: float) -> None:
    frame = sas.attached("kept")
    say(frame.local().num_rows)
    try:
        frame.read_all()
    except sa.StorageError as error:
        say(str(error))
    hear()
    keep(spark, seconds)


def stay_idle(spark: Any, seconds: float) -> None:
    def executors() -> int:
        return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one of them

    frame = shared(spark)
    before = executors()
    time.sleep(3 * seconds)
    say((before, executors(), use(spark, frame)))
    frame.destroy()
    wait_until(lambda: executors() == 0, "executors without partitions are removed")


def leave_all(spark: Any, value: float) -> sas.SharedFrame:
    """Share, broadcast and compute once, and check what workers find; nothing is destroyed."""
    frame = shared(spark)
    use(spark, frame)
    made, computed = sas.broadcast(np.full(100_000, value), spark), sas.once("value", lambda: np.array([value]))
    found = at_once(spark, lambda _: iter([(float(made.value[-1]), float(computed.value[0]))]))
    assert found == [(value, value)] * 6
    return frame


def leave(spark: Any, value: float) -> None:
    leave_all(spark, value)


def stay(spark: Any, value: float) -> None:
    frame = leave_all(spark, value)
    say(None)
    hear()
    use(spark, frame)


def port(spark: Any) -> int:
    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


def connect(spark: Any) -> None:
    frame = shared(spark)
    hosts = [use(spark, frame) for _ in range(2)]
    made, computed = sas.broadcast(np.arange(100_000.0), spark), sas.once("remote", lambda: np.array([os.getpid()]))

    def find(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            row = {"host": platform.node(), "total": float(made.value.sum()), "process": int(computed.value[0])}
            yield pa.RecordBatch.from_pylist([row])

    df = spark.range(0, 12, 1, 12).mapInArrow(slowly, "id long")
    found = df.mapInArrow(find, "host string, total double, process long").collect()
    say((hosts, [row.asDict() for row in found]))
    hear()
    frame.destroy()
    made.destroy()


def write_streams(spark: Any, folder: str) -> None:
    """Write the numbers from 0, ten in each batch, by several streams; says when a batch has been written."""

    def start(name: str) -> Any:
        source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=2).load()
        options = {"path": f"{folder}/{name}", "checkpointLocation": f"{folder}/state-{name}"}
        return source.select("value").writeStream.format("shmarrow").options(**options).start()

    queries = [start(f"rows-{number}") for number in range(STREAMS)]
    said = [-1] * STREAMS
    while True:
        for number, query in enumerate(queries):
            if query.exception() is not None:
                raise query.exception()
            progress = query.lastProgress
            if progress is not None and progress["batchId"] > said[number]:
                said[number] = progress["batchId"]
                say("batch")
        queries[0].awaitTermination(0.01)


def read_numbers(spark: Any, folder: str) -> list[list[int]]:
    found = [spark.read.format("shmarrow").load(f"{folder}/rows-{number}").collect() for number in range(STREAMS)]
    return [sorted(row["value"] for row in rows) for rows in found]


# --- the checks -------------------------------------------------------------------------------------------------


def check_application(lab: Lab) -> None:
    names = set(HOSTS.values())
    with lab.driver(FIRST) as driver:
        with lab.check("three hosts, each with network, mounts, IPC, name and /dev/shm of its own"):
            found: dict[str, set[Any]] = {}
            for name, fact in driver.run(look_around):
                found.setdefault(name, set()).add(fact)
            assert found.keys() == names
            here = (*(os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES), os.stat("/dev/shm").st_dev)
            for each in zip(here, *(next(iter(facts)) for facts in found.values()), strict=True):
                assert len(set(each)) == 4, each
        with lab.check("share: partitions in the memory of all hosts, jobs run there, others are named"):
            driver.begin(share)
            assert driver.hear() == [names] * 3
            assert driver.hear() == names
            error = driver.hear()
            assert all(name in error for name in ("host2", "host3")), error
            assert not any(lab.is_clear(host, "frame-") for host in HOSTS)
            driver.say(None)
            driver.result()
            for host in HOSTS:
                wait_until(partial(lab.is_clear, host, "frame-"), f"the partitions on {host} are destroyed")
        with lab.check("a share that fails leaves nothing on any host"):
            driver.begin(fail)
            assert driver.hear()
            driver.result()
            for host in HOSTS:
                wait_until(partial(lab.is_clear, host, "frame-"), f"what was written on {host} is removed")
        with lab.check("broadcast: one copy on each host, which both workers map"):
            driver.begin(broadcast)
            total, rows = driver.hear()
            copies: dict[str, set[Any]] = {}
            workers: dict[str, set[Any]] = {}
            for name, (pid, device, inode, found_total) in rows:
                copies.setdefault(name, set()).add((device, inode))
                workers.setdefault(name, set()).add(pid)
                assert found_total == total
            assert {name: len(each) for name, each in copies.items()} == dict.fromkeys(names, 1)
            assert {name: len(each) for name, each in workers.items()} == dict.fromkeys(names, 2)
            driver.say(None)
            driver.result()
        with lab.check("share_table: all workers get the rows of the driver"):
            driver.begin(table)
            assert driver.hear() == [sum(range(first, first + 20)) for first in range(0, 240, 20)]
            driver.say(None)
            driver.result()
        with lab.check("files: read on all hosts, beside an index, also when an executor is killed"):
            folder = lab.folder()
            write_files(folder)
            driver.begin(read_files, str(folder))
            assert driver.hear() == (names, sum(range(0, 4800, 4)))
            (executor,) = lab.cluster.executors(THIRD)
            os.kill(executor, signal.SIGKILL)
            driver.say(None)
            assert driver.hear()[1] == sum(range(0, 4800, 4))
            driver.say(None)
            driver.result()
        with lab.check("once: computed by one worker of each host"):
            driver.begin(once)
            assert len(set(driver.hear())) == 3
            driver.say(None)
            driver.result()
            for host in HOSTS:
                wait_until(partial(lab.is_clear, host, "once/"), f"the value on {host} is destroyed")
        with lab.check("an executor is killed: its objects are removed, its partitions are computed again"):
            driver.begin(lose_an_executor)
            driver.hear()
            lost = [name for name in lab.objects(SECOND) if name.startswith("frame-")]
            assert lost
            (executor,) = lab.cluster.executors(SECOND)
            os.kill(executor, signal.SIGKILL)
            wait_until(lambda: not set(lost) & set(lab.objects(SECOND)), "the keeper has removed the objects")
            driver.say(None)
            assert driver.hear() <= names
            driver.say(None)
            assert driver.hear() <= names
            driver.result()
            for host in HOSTS:
                wait_until(partial(lab.is_clear, host, "frame-"), f"the partitions on {host} are destroyed")
        with lab.check("the driver is killed: other hosts keep nothing, and the collector removes what is on its own"):
            driver.run(leave, 1.0)
            assert all(lab.objects(host) for host in HOSTS)
            driver.kill()
            lab.nothing_left((SECOND, THIRD))
            assert lab.objects(FIRST)
            lab.collect(FIRST)
            lab.nothing_left()


def check_kept_frames(lab: Lab) -> None:
    names, seconds = set(HOSTS.values()), 240.0
    with lab.driver(FIRST) as driver, lab.check("keep: a frame outlives its driver on all hosts"):
        driver.begin(keep, 3600.0)
        assert driver.hear() == names
        driver.result()
        driver.kill()
    with (
        lab.driver(FIRST) as driver,
        lab.check("keep: another application finds it, is told of other hosts, and replaces it; the new one expires"),
    ):
        driver.begin(replace_kept, seconds)
        assert driver.hear() > 0
        error = driver.hear()
        assert all(name in error for name in ("host2", "host3")), error
        old = [name for host in HOSTS for name in lab.objects(host) if name.startswith("frame-")]
        assert len(old) == 12
        driver.say(None)
        assert driver.hear() == names
        driver.result()
        for host in HOSTS:
            wait_until(lambda host=host: not set(old) & set(lab.objects(host)), f"the old partitions on {host} go")
        assert not any(lab.is_clear(host, "frame-") for host in HOSTS)
        time.sleep(seconds)
        for host in HOSTS:
            lab.collect(host)
    lab.nothing_left()


def check_speculation(lab: Lab) -> None:
    settings = {"spark__speculation": "true", "spark__speculation__quantile": "0.5"}
    with (
        lab.driver(FIRST, **settings) as driver,
        lab.check("files: a task runs twice, and an executor is killed while it reads: each row once"),
    ):
        folder, notes = lab.folder(), lab.folder()
        write_files(folder)
        driver.begin(read_slowly, str(folder), str(notes))
        wait_until(lambda: list(notes.glob("host3-*")), "a task on the third host")
        (executor,) = lab.cluster.executors(THIRD)
        os.kill(executor, signal.SIGKILL)
        assert driver.hear() == sum(range(2400))
        assert list(notes.glob("*-0-1"))
        driver.result()


def check_dynamic_allocation(lab: Lab) -> None:
    seconds = 3
    settings = {
        "spark__dynamicAllocation__enabled": "true",
        "spark__dynamicAllocation__shuffleTracking__enabled": "true",
        "spark__dynamicAllocation__executorIdleTimeout": f"{seconds}s",
        "spark__dynamicAllocation__initialExecutors": "3",
    }
    with (
        lab.check(f"dynamic allocation, {seconds} s: executors stay while they have partitions, and no longer"),
        lab.driver(FIRST, **settings) as driver,
    ):
        driver.begin(stay_idle, seconds)
        before, after, found = driver.hear()
        assert (before, after, found) == (3, 3, set(HOSTS.values()))
        driver.result()
        lab.nothing_left((SECOND, THIRD))


def check_two_applications(lab: Lab) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(lab.driver(FIRST))
        other = stack.enter_context(lab.driver(SECOND))
        with lab.check("two applications of one user: each gets what is its own"):
            for driver, value in ((one, 1.0), (other, 2.0)):
                driver.begin(stay, value)
            for driver in (one, other):
                driver.hear()
        with lab.check("one of them ends without releasing anything: the other one keeps what it has"):
            one.say(None)
            one.result()
            one.close()
            lab.collect(FIRST)
            other.say(None)
            other.result()
        with lab.check("after a normal end without release, and the collector: nothing on any host"):
            other.close()
            for host in HOSTS:
                lab.collect(host)
            lab.nothing_left()


def check_connect(lab: Lab) -> None:
    lacks = spark_lab.connect_lacks()
    if lacks is not None:
        print(f"skipped  Spark Connect: needs what the extra 'connect' installs ({lacks})", flush=True)
        return
    plugin = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}
    server = {**plugin, **spark_lab.SERVER, **spark_lab.ISOLATED, "spark.connect.grpc.binding.address": FIRST}
    with lab.driver(FIRST, **{name.replace(".", "__"): value for name, value in server.items()}) as driver:
        url = f"sc://{FIRST}:{driver.run(port)}"
        with (
            lab.check("Spark Connect, the client on another host: share, broadcast, once"),
            lab.client(THIRD, url) as client,
        ):
            client.begin(connect)
            hosts, rows = client.hear()
            names = set(HOSTS.values())
            assert hosts == [names] * 2
            assert {row["host"] for row in rows} == names
            assert {row["total"] for row in rows} == {float(np.arange(100_000.0).sum())}
            assert len({(row["host"], row["process"]) for row in rows}) == 3
            client.say(None)
            client.result()
    with lab.check("after the end of the server and of the client: nothing on any host"):
        for host in HOSTS:
            lab.collect(host)
        lab.nothing_left()


def check_streams(lab: Lab, restarts: int) -> None:
    """Kill a driver that writes the batches of streams, at another moment each time, and start it again."""
    folder, drivers = lab.folder(), -(-restarts // STREAMS)
    said = f"{STREAMS} streams, killed and restarted {drivers} times each"
    with lab.check(f"{said}: no row is missing, none is there twice, and nothing is left"):
        for number in range(drivers):
            with lab.alone() as driver:
                driver.begin(write_streams, str(folder))
                for _ in range(STREAMS * (1 + number % 4) - number % STREAMS):
                    driver.hear()
                time.sleep(number % 10 * 0.03)  # some time within a write, or between two
                driver.kill()
        with lab.alone() as driver:
            driver.begin(write_streams, str(folder))
            for _ in range(6 * STREAMS):
                driver.hear()
            driver.kill()
        with lab.alone() as driver:
            found = driver.run(read_numbers, str(folder))
        for rows in found:
            assert rows == list(range(len(rows)))
        assert sum(map(len, found)) >= 10 * restarts // 4
        for path in folder.glob("rows-*"):  # of all that were killed, at most what the last one wrote
            assert len(list(path.glob("_temporary/*"))) <= 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--restarts", type=int, default=5, help="how often streams are killed (default: 5)")
    parser.add_argument("--only", metavar="REGEX", default="", help="run the checks whose names match")
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        enter()
    checks: dict[str, Callable[[Lab], None]] = {
        "application": check_application,
        "speculation": check_speculation,
        "kept": check_kept_frames,
        "dynamic": check_dynamic_allocation,
        "applications": check_two_applications,
        "connect": check_connect,
    }
    chosen = [check for name, check in checks.items() if re.search(arguments.only, name)]
    with tempfile.TemporaryDirectory(prefix="shmarrow-cluster-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        lab = Lab(folder / "shared")
        lab.shared.mkdir()
        try:
            ip("link", "set", "lo", "up")
            if re.search(arguments.only, "streams"):  # these need no cluster
                with suppress(Stopped):
                    check_streams(lab, arguments.restarts)
            if chosen:
                with hosts(lab.shared) as lab.commands, spark_lab.cluster(folder, lab.commands) as lab.cluster:
                    for check in chosen:
                        with suppress(Stopped):
                            check(lab)
            print(f"{lab.failed} checks failed" if lab.failed else "all checks passed", flush=True)
        except pytest.skip.Exception as reason:
            return skipped(str(reason))
        except subprocess.CalledProcessError as error:
            return skipped(f"no network can be made here ({error})")
    return 1 if lab.failed else 0


if __name__ == "__main__":
    sys.exit(main())
