"""Fixtures of several suites: names in shared memory that are cleaned up, Arrow's golden files, Java.

Invariants:

* nothing that a test placed in shared memory outlives it. The process that the run was started with checks that at the
  end, as the tests may run in several processes (pytest-xdist), each with names of its own;
* a test that cannot run says why. What every run is supposed to have, the golden files, fails in CI (``CI=true``) and
  skips elsewhere;
* every run tries the same inputs: hypothesis derives its examples from the tests. ``make fuzz`` and ``make properties``
  try others.
"""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from environment import IN_CI, PREFIX, ROOT, RUN, SHM, remove_shm, shm_entries
from hypothesis import settings
from tiers import MARKERS, Guard, tier_of

_numbers = itertools.count()

settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.register_profile("fuzz", database=None, deadline=None, print_blob=True)
settings.register_profile("long", database=None, deadline=None, print_blob=True, max_examples=3000)
settings.load_profile("fixed")

_before = pytest.StashKey[set[str]]()
_left = pytest.StashKey[list[str]]()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


_guard = Guard()


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.stash[_before] = shm_entries()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a background job; the tests send it, also to children
        signal.signal(signal.SIGINT, signal.default_int_handler)


_SESSIONS = {
    "Spark": (
        "test_spark_stream.py", "test_spark_broadcast.py", "test_spark_source.py", "test_spark_named.py",
        "test_examples.py", "test_spark_table.py", "test_spark_daemon.py",
    ),
    "Spark Connect": (
        "test_spark_faults.py", "test_spark_lookup.py", "test_spark_share.py", "test_spark_frame.py",
        "test_spark_connect.py", "test_spark_session.py", "test_spark_snapshot.py", "test_spark_files.py",
    ),
}  # fmt: skip
"""Files that share a session of Spark: they run in one process, so that one Java process is started for all of them.

The two are as long as each other. Streams are in the one that serves no Spark Connect, as ``spark_lab.ISOLATED`` says.
"""

_SLOWEST = (
    *itertools.chain.from_iterable(_SESSIONS.values()),
    "test_spark_cluster.py", "test_docs.py", "test_demo.py", "test_guide.py", "test_xray_page.py",
    "test_life_cycle.py", "test_interrupted_reading.py", "test_hostile.py", "test_peers.py", "test_casts.py",
    "test_processes.py",
)  # fmt: skip
"""Files that run first, so that no process is left alone with them at the end; each of the others is run whole, too."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what has no unit tests for a run of unit tests only."""
    other = config.option.markexpr == "unit" and tier_of(collection_path) != "unit"
    return True if other else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that imports pyarrow where there is none; the others need none."""
    report = yield
    call: Any = vars(report)["call"]
    error = call.excinfo and call.excinfo.value
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__ or error.__context__
    if error is not None and (error.name or "").partition(".")[0] == "pyarrow":
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, "Skipped: there is no pyarrow")
    return report


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(name) for name in MARKERS):
            item.add_marker(tier_of(item.path))
    order = {name: number for number, name in enumerate(_SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more processes than processors: many tests wait for others, those of Spark most of the time."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As ``--dist loadfile``, but with the files that share a session as one."""
    scopes = {name: session for session, names in _SESSIONS.items() for name in names}
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return scopes.get(os.path.basename(file), file)

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold unit tests to their tier."""
    _guard.test = item.nodeid if item.get_closest_marker("unit") else None
    try:
        return (yield)
    finally:
        _guard.test = None


_current: list[Path] = []


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without the garbage collector, which would walk what is never garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()  # or it would walk all of that again as soon as it is enabled
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Exempt what stands when a file begins from garbage collection: the tests of a run, and imported packages.

    They are millions of objects; each of the hundreds of calls of ``gc.collect`` in tests would take seconds.
    """
    if [item.path] != _current:
        _current[:] = [item.path]
        gc.collect()
        gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failing test at the moment it fails; the workers of pytest-xdist leave that to their controller."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nfailed ({report.when}): {report.nodeid}", flush=True)


def _is_empty_spark_store(name: str) -> bool:
    """Whether it is the store of this user's Spark applications, which stays for the next one, without objects."""
    home = SHM / f"shmarrow-spark-{os.geteuid()}"
    return home == SHM / name and {path.name for path in home.iterdir()} <= {"control", "pins", "commit"}


@pytest.hookimpl(trylast=True)  # after pytest-xdist has stopped its workers
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run where its tests left objects in shared memory."""
    if _is_worker(session.config):
        return
    # In CI the machine is ours alone; elsewhere only the names of this run are known to be ours.
    new = {name for name in shm_entries() - session.config.stash[_before] if not _is_empty_spark_store(name)}
    left = session.config.stash[_left] = sorted(name for name in new if IN_CI or name.startswith(RUN))
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = config.stash.get(_left, [])
    if left:
        terminalreporter.section("objects left in shared memory", red=True)
        terminalreporter.line(f"the tests left {len(left)} objects in {SHM}: {', '.join(left[:10])}", red=True)


@pytest.fixture
def shm_name() -> Iterator[str]:
    """A location ``shm:NAME`` of this test's own; what starts with it is removed after the test."""
    name = f"{PREFIX}{next(_numbers):05d}"
    yield f"shm:{name}"
    for entry in shm_entries():
        if entry.startswith(name):
            remove_shm(entry)


def _nothing_left(store: str) -> Iterator[str]:
    from store_check import cleaned, leftovers

    yield store
    gc.collect()
    assert cleaned(store) == 0, leftovers(store)


@pytest.fixture
def shm_store(shm_name: str) -> Iterator[str]:
    """A store of this test's own, in shared memory; nothing may be left of it."""
    yield from _nothing_left(shm_name)


@pytest.fixture(params=["shm", "directory"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store of this test's own, in shared memory or in a directory; nothing may be left of it."""
    shm = request.param == "shm"
    yield from _nothing_left(request.getfixturevalue("shm_name") if shm else str(tmp_path / "store"))


@pytest.fixture(scope="session")
def arrow_testing() -> Path:
    """The folder of Arrow's golden files, with ``integration/`` and ``fuzz/`` in it."""
    path = Path(os.environ.get("ARROW_TEST_DATA") or ROOT.parent / "shared" / "arrow-testing")
    if not (path / "integration").is_dir():
        reason = (
            f"no golden files: {path}/integration is no folder; run tools/golden.sh, which fetches them, "
            "then export ARROW_TEST_DATA=build/golden"
        )
        if IN_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture(scope="session")
def java() -> None:
    """Skip the test where there is no Java that Spark runs on."""
    program = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60).stderr
    except OSError as error:
        said = str(error)
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        pytest.skip("Spark needs Java 17 or newer, on PATH or in JAVA_HOME (Debian: openjdk-17-jre-headless)")


@pytest.fixture(scope="session")
def spark_session(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The only classic Spark session of this process; tests take ``spark``."""
    pytest.importorskip("pyspark")
    from spark_lab import local_spark

    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Functions and classes of the test's module can be given to Spark."""
    from spark_lab import functions_by_value

    with functions_by_value(request.module):
        yield


@pytest.fixture
def spark(by_value: None, spark_session: Any) -> Any:
    """A classic Spark session on this machine: two tasks at a time, each of which may fail once.

    Each test has a connection to Java of its own: one that was stopped by its time limit has left an answer unread, and
    perhaps a job that runs. Spark looks for data sources of Python in the active session of the Java thread that serves
    the connection.
    """
    from spark_lab import activate, reconnect

    reconnect(spark_session)
    spark_session.sparkContext.cancelAllJobs()
    activate(spark_session)
    return spark_session


@pytest.fixture(scope="session")
def connect_server(spark_session: Any) -> str:
    """The URL of a server of Spark Connect, in the Java process of the classic session."""
    from spark_lab import connect_url

    return connect_url(spark_session)


@pytest.fixture(scope="session")
def connect_session(connect_server: str) -> Iterator[Any]:
    from spark_lab import connect_client

    with connect_client(connect_server) as session:
        yield session


@pytest.fixture
def connect(by_value: None, connect_session: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session of Spark Connect on this machine. Functions of ``pyspark.sql`` are Connect's while the test runs."""
    from spark_lab import CONNECT

    monkeypatch.setenv(CONNECT, "1")
    return connect_session


@pytest.fixture
def home(shm_name: str) -> Iterator[str]:
    """A store of this test's own, for what Spark's workers put; nothing may be left in it."""
    from store_check import leftovers

    yield shm_name
    gc.collect()
    assert leftovers(shm_name) == []
