"""A laboratory of real Spark: sessions, drivers and clusters that end when their block does, and leave nothing.

* :func:`local_spark`: the classic session of a process of tests, which is a server of Spark Connect as well, for
  :func:`connect_client`: each Java process takes seconds and hundreds of megabytes, so all tests share this one;
* :class:`Driver`: a process with a session of its own, which runs functions of tests, and can be killed;
* :func:`cluster`: a master and two workers that are two hosts for all that matters here: the second one has its own
  addresses, its own ``/dev/shm`` and its own ``/tmp``.

Everything listens on the loopback interface only. Processes are found, and ended, by a variable of their environment.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from environment import PREFIX, ROOT
from lab import Talk
from waiting import wait_until

BATCH_ROWS = 1_000
"""Rows of the batches that Spark gives to functions."""

SECONDS = 100.0
"""Seconds that an answer of a driver may take by default."""

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For short runs: no optimizing compiler, and no verification of Spark's own classes."""


def in_folder(folder: Path) -> str:
    """The options of a Java process that may be killed: its libraries, which it unpacks, are left in a folder."""
    return f"{JAVA} -Djava.io.tmpdir={folder}"


SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.memory": "768m",
    "spark.log.level": "OFF",
    "spark.python.authenticate.socketTimeout": "300s",  # Spark's Python processes may start slowly on a busy machine
    "spark.python.daemon.module": "spark_workers",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.session.timeZone": "Europe/Oslo",
    "spark.sql.shuffle.partitions": "2",
}

SERVER = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
"""Where the Java process of a classic session serves Spark Connect, once :func:`connect_url` has asked for that."""

ISOLATED = {
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}
"""Settings of a server's sessions. Classic ones do without: each of their streams would start daemons of its own for
the steps of a Python source and sink, which takes ten seconds of processor time."""

_MARK = "SHMARROW_SPARK_LAB"
_numbers = itertools.count()


@contextmanager
def functions_by_value(module: ModuleType) -> Iterator[None]:
    """Functions and classes of a test module travel to workers as they are, as workers cannot import it."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


# --- the session of this process --------------------------------------------------------------------------------


@contextmanager
def local_spark(folder: Path) -> Iterator[Any]:
    """A classic session with two tasks at a time, each of which may fail once; ``folder`` has its files."""
    from local_session import local_session

    with pytest.MonkeyPatch.context() as patch:  # what the Java process inherits
        for name, value in _environment(folder).items():
            patch.setenv(name, value)
        session = local_session(2, {**SETTINGS, **SERVER, "spark.master": "local[2,2]"})
    try:
        yield session
    finally:
        session.stop()


def reconnect(spark: Any) -> None:
    """Let this thread's next call to Java open a connection."""
    client = spark.sparkContext._gateway._gateway_client
    connection = client.get_thread_connection()
    if connection is not None:
        connection.close()


def activate(spark: Any) -> None:
    """Make a session the active one of the Java thread that serves this thread: it finds data sources of Python."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


@contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Other settings of a session, while the block runs."""
    before = {name: spark.conf.get(name) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For a job of many columns and few rows: Java would take seconds to compile its code."""


def connect_url(spark: Any) -> str:
    """Return the address at which the Java process of :func:`local_spark` serves Spark Connect, or skip the test."""
    lacks = connect_lacks()
    if lacks is not None:
        pytest.skip(f"Spark Connect needs what the extra 'connect' installs ({lacks})")
    service = getattr(getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    context = spark.sparkContext._jsc.sc()
    for name, value in ISOLATED.items():
        context.conf().set(name, value)
    service.start(context)
    return f"sc://127.0.0.1:{service.localPort()}"


@contextmanager
def connect_client(url: str) -> Iterator[Any]:
    """A session of Spark Connect in this process, beside the classic one."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONNECT, "1")  # the builder leaves it set
        session = SparkSession.builder.remote(url).create()
    try:
        yield session
    finally:
        session.stop()


CONNECT = "SPARK_CONNECT_MODE_ENABLED"
"""With this in the environment ``pyspark.sql.functions`` are those of Spark Connect, else those of classic sessions."""


@cache
def connect_lacks() -> str | None:
    try:
        import google.rpc.error_details_pb2  # noqa: F401
        import grpc_status  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


def python_path() -> str:
    """With this, workers import this project, its examples, and what tests import."""
    here = Path(__file__).parent
    path = [str(ROOT), str(ROOT / "examples"), str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, path))


def variables() -> dict[str, str]:
    """Variables that make the sessions of other programs short runs, too."""
    made = {name: SETTINGS[name] for name in ("spark.driver.extraJavaOptions", "spark.python.daemon.module")}
    arguments = [f"--conf '{name}={value}'" for name, value in made.items()]
    return {"PYTHONPATH": python_path(), "PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"])}


def _environment(folder: Path) -> dict[str, str]:
    """The environment of every Java process of the laboratory."""
    return {
        "PYTHONPATH": python_path(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


# --- processes --------------------------------------------------------------------------------------------------


def _marked(mark: str) -> list[int]:
    """The processes with a mark in their environment."""
    wanted, found = f"{_MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _end(mark: str) -> None:
    """Kill what is left of the processes with a mark, and wait until they are gone."""

    def gone() -> bool:
        pids = _marked(mark)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_until(gone, "processes that were killed end", 20)


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


@cache
def namespaces() -> list[str] | str:
    """The command that starts a process with mounts of its own, or why there is none."""
    said = ""
    for command in (["unshare", "-m"], ["unshare", "-Urm"]):
        try:
            ran = subprocess.run(
                [*command, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True, text=True
            )
        except OSError as error:
            return str(error)
        if ran.returncode == 0:
            return command
        said = ran.stderr.strip()
    return said


def another_host(shm: int = 64 << 20, shared: Sequence[Path] = ()) -> list[str]:
    """The beginning of a command that runs as if on another host, or a skipped test.

    It has a ``/dev/shm`` of so many bytes and a ``/tmp`` of its own, both empty; only the folders in ``shared`` are
    those of this host, and this project and its Python, which may lie under ``/tmp``, too.
    """
    command = namespaces()
    if isinstance(command, str):
        pytest.skip(f"cannot give a process mounts of its own here: {command}")
    # What is hidden with /tmp is reached through the descriptors that the shell has opened before.
    programs = [path for path in map(Path, (ROOT, sys.prefix, sys.base_prefix)) if path.is_relative_to("/tmp")]
    numbered = [(number, shlex.quote(str(path))) for number, path in enumerate([*shared, *programs], 3)]
    keep = [f"exec {number}<{path}" for number, path in numbered]
    bind = [f"mkdir -p {path}\nmount -c --bind /proc/self/fd/{number} {path}" for number, path in numbered]
    mounts = [
        f"mount -t tmpfs -o size={shm},mode=1777 tmpfs /dev/shm",
        "mount -t tmpfs -o size=512m,mode=1777 tmpfs /tmp",
    ]
    return [*command, "sh", "-ec", "\n".join([*keep, *mounts, *bind, 'exec "$@"']), "sh"]


class Driver(Talk):
    """A process with a session of its own, which runs functions; made by :func:`driver`.

    Functions have the session as their first argument. They, and what they use of their module, are pickled by value,
    which the fixtures ``spark``, ``connect`` and ``cluster`` see to. They may import ``say`` and ``hear`` of
    ``spark_driver``.

    Attributes
    ----------
    pid : int
        Its number.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], talk: Connection, mark: str, errors: Path, seconds: float
    ) -> None:
        super().__init__(talk, seconds)
        self._process, self._mark, self._errors = process, mark, errors
        self.pid: int = self.hear()

    def run(self, function: Callable[..., Any], *arguments: Any, timeout: float | None = None) -> Any:
        """Return the result of a function."""
        self.begin(function, *arguments)
        return self.result(timeout)

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let it run a function; :meth:`result` waits for its end."""
        self.say((function, arguments))

    def say(self, value: Any) -> None:
        from pyspark import cloudpickle

        self._talk.send_bytes(cloudpickle.dumps(value))

    def wait(self) -> int:
        return self._process.wait(10)

    def _wrote(self) -> str:
        return f"; it wrote:\n{self._errors.read_text()[-4000:]}"

    def kill(self) -> None:
        """Kill it, and wait until its Java process and its workers on this host are gone too."""
        self._process.kill()
        self._process.wait()
        wait_until(lambda: not _marked(self._mark), "the processes of a driver that was killed end")

    def close(self) -> None:
        """End it and all that it started."""
        self._talk.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            _end(self._mark)


@contextmanager
def driver(
    folder: Path,
    url: str = "local[2,2]",
    *,
    host: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    seconds: float = SECONDS,
    **settings: str,
) -> Iterator[Driver]:
    """A driver, and its end with all that it started.

    Parameters
    ----------
    folder : Path
        Where it has its files.
    url : str
        The master of a classic session, which is made in a Java process of its own, or a server of Spark Connect.
    host : sequence of str
        The beginning of its command, such as :func:`another_host`.
    environment : dict of str to str, optional
        Further variables.
    seconds : float
        How long an answer may take, unless a call says otherwise.
    **settings : str
        Further settings of a classic session; two underscores stand for each dot.
    """
    folder.mkdir(exist_ok=True)
    mark, errors = f"{PREFIX}driver-{next(_numbers)}", folder / f"driver-{next(_numbers)}.err"
    variables = {**os.environ, **_environment(folder), _MARK: mark, **(environment or {})}
    variables.pop(CONNECT, None)
    place = {} if host else {"spark.driver.extraJavaOptions": in_folder(folder)}  # another host has a /tmp of its own
    given = {**SETTINGS, **place, **{name.replace("__", "."): value for name, value in settings.items()}}
    ours, theirs = socket.socketpair()
    talk = Connection(ours.detach())
    try:
        number = fcntl.fcntl(theirs, fcntl.F_DUPFD, 10)  # the shell of another host uses those up to 9
        theirs.close()
        with open(number, "rb"), open(errors, "wb") as stream:
            process = subprocess.Popen(
                [*host, sys.executable, str(Path(__file__).with_name("spark_driver.py")), str(number)],
                pass_fds=[number], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=variables,
            )  # fmt: skip
        from pyspark import cloudpickle

        talk.send_bytes(cloudpickle.dumps((url, given)))
        made = Driver(process, talk, mark, errors, seconds)
    except BaseException:
        talk.close()
        _end(mark)
        raise
    try:
        yield made
    finally:
        made.close()


# --- a cluster --------------------------------------------------------------------------------------------------


class Cluster:
    """A master and its workers; made by :func:`cluster`.

    Attributes
    ----------
    url : str
        Of its master.
    hosts : tuple of str
        The addresses of its hosts. The master is on the first one.
    """

    def __init__(self, folder: Path, mark: str, commands: Mapping[str, Sequence[str]]) -> None:
        self._folder, self._mark, self._workers = folder, mark, dict[str, int]()
        self._commands = commands
        self.hosts = tuple(commands)
        self.url = ""

    @property
    def shared(self) -> Path:
        """A folder that is the same on all hosts; the rest of ``/tmp`` is not, and ``/dev/shm`` neither."""
        return self._folder / "shared"

    def _start(self) -> None:
        self._daemon(self.hosts[0], self._commands[self.hosts[0]], "master.Master")
        self.url = self._logged("master.Master", r"Starting Spark master at (spark://\S+)")
        for host, command in self._commands.items():
            work = ["-d", str(self._folder / f"{host}-work"), "-c", "4", "-m", "4g", self.url]
            self._workers[host] = self._daemon(host, command, "worker.Worker", *work)
        for host in self.hosts:
            self._logged(f"{host}-worker.Worker", "Successfully registered with master (.*)")

    def _daemon(self, host: str, command: Sequence[str], name: str, *arguments: str) -> int:
        import pyspark

        home = os.path.dirname(pyspark.__file__)
        start = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", "--host", host, "--port", "0"]
        own = {
            "SPARK_HOME": home,
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self._folder / f"{host}-local"),
            "SPARK_DAEMON_JAVA_OPTS": f"{JAVA} -Dspark.worker.timeout=600",  # a slow host does not lose its worker
            "SPARK_DAEMON_MEMORY": "192m",
            _MARK: self._mark,
        }
        with open(self._folder / f"{host}-{name}", "wb") as stream:
            return subprocess.Popen(
                [*command, *start, "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                env={**os.environ, **_environment(self._folder), **own},
            ).pid  # fmt: skip

    def _logged(self, name: str, pattern: str) -> str:
        (path,) = self._folder.glob(f"*{name}")
        return wait_until(lambda: re.search(pattern, path.read_text()), f"{pattern!r} in {path}")[1]

    def driver(self, folder: Path, **options: Any) -> Any:
        """A :func:`driver` of an application with one executor of one core on each host."""
        settings = {
            "spark__cores__max": "2",
            "spark__executor__cores": "1",
            "spark__executor__memory": "512m",
            "spark__executor__extraJavaOptions": in_folder(self.shared),
            "spark__locality__wait": "1s",
            "spark__scheduler__minRegisteredResourcesRatio": "1.0",
            "spark__scheduler__maxRegisteredResourcesWaitingTime": "60s",
        }
        return driver(folder, self.url, **{**settings, **options})

    def shm(self, host: str) -> Path:
        """The ``/dev/shm`` of a host, as a folder of this one."""
        return Path(f"/proc/{self._workers[host]}/root/dev/shm")

    def executors(self, host: str) -> list[int]:
        """The numbers of the executors of a host, which are Java processes."""
        return [pid for pid in _marked(self._mark) if {"--hostname", host} <= set(_command_line(pid))]


@contextmanager
def cluster(folder: Path, commands: Mapping[str, Sequence[str]] | None = None) -> Iterator[Cluster]:
    """A master and its workers, and their end.

    Parameters
    ----------
    folder : Path
        Where they have their files.
    commands : dict of str to sequence of str, optional
        For each host its address, and the beginning of a command that runs there. By default two hosts: this one, where
        drivers are too, and one with a ``/tmp`` and ``/dev/shm`` of its own.
    """
    (folder / "shared").mkdir(exist_ok=True)
    if commands is None:
        commands = {"127.0.0.1": [], "127.0.0.2": another_host(shared=[folder / "shared"])}
    made = Cluster(folder, f"{PREFIX}cluster-{next(_numbers)}", commands)
    try:
        made._start()
        yield made
    finally:
        _end(made._mark)
