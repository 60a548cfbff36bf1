"""The flights of ``make demo`` handed over by shmarrow and by other ways, with the time and memory of each.

The driver hands a table and an array to Spark's Python workers, beside ``createDataFrame`` and ``sc.broadcast``. Fresh
processes open shared objects, beside pyarrow's memory map and pickle. In the comparison:

* both ways give the same functions the same values in the same session, and each task has a worker of its own;
* what a worker imports counts as its first access, so the function that measures that is pickled by value and imports
  nothing of this package by itself;
* memory is counted while all workers have the value, and none of them lets go before all have counted.

Run it with ``python examples/handover.py``; it needs ``pip install 'shmarrow[demo]'`` and Java 17.
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from demo import WORKERS, flights_file, read_flights, start_spark, table_lines
from flights import Trips, merged, trips

import shmarrow as sa
from shmarrow import spark as sa_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RUNS = 5
TRIPS = "origin string, flights long, arrived long, delay long, miles long, last long"
ARRAY = 31_250, 256
"""Rows and columns of the array, of float32: 32 MB."""
MIB = 1 << 20


OPENERS = {
    "shmarrow": (
        "import shmarrow as sa",
        "[sa.ipc.open_file(name).get_batch(0).column(0).to_numpy() for name in names]",
    ),
    "pyarrow, memory_map": (
        "import pyarrow as pa; pa.array([0]).to_numpy()",  # whose first use imports pandas, if there is one
        "[pa.ipc.open_file(pa.memory_map(name)).get_batch(0).column(0).to_numpy() for name in names]",
    ),
    "pickle of pyarrow tables": (
        "import pickle, pyarrow as pa; pa.array([0]).to_numpy()",
        "[table.column(0).chunk(0).to_numpy() for table in pickle.load(open(pickled, 'rb'))]",
    ),
}
"""Code with which a fresh process reads the first column of all partitions: imports, and the reading."""

OPENER = """
import json, sys, time
_, pickled, *names = sys.argv
started = time.perf_counter()
{imports}
imported = time.perf_counter()
columns = {expression}
done = time.perf_counter()
print(json.dumps([imported - started, done - imported, sum(int(column.sum()) for column in columns)]))
"""


# --- a table ----------------------------------------------------------------------------------------------------


def trips_of_table(table: sa.Table) -> sa.RecordBatch:
    """Compute the totals of a worker's part of the table, over shared memory."""
    return _as_batch(trips(table))


def trips_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same of the batches that Spark sends to a worker."""
    yield _as_batch(merged(found for batch in batches for found in trips(sa.table(batch)))).to_pyarrow()


def _as_batch(found: Iterable[Trips]) -> sa.RecordBatch:
    return sa.RecordBatch.from_pylist([each._asdict() for each in found])


def table_to_workers(spark: SparkSession, store: sa.Store, table: sa.Table) -> tuple[list[str], list[list[Trips]]]:
    """A table of the driver to a Python job, both ways: a table of times, and what the jobs found."""
    given = table.to_pyarrow()

    def shared() -> Callable[[], Any]:
        frame = sa_spark.share_table(given, spark, store)
        return lambda: frame.map(trips_of_table, TRIPS, spark)

    def sent() -> Callable[[], Any]:
        df = spark.createDataFrame(given)
        return lambda: df.mapInArrow(trips_of_batches, TRIPS)

    times, found = [], []
    ways = {"shmarrow: share_table, map": shared, "Spark: createDataFrame, mapInArrow": sent}
    for prepare in ways.values():
        start = time.monotonic()
        job = prepare()
        prepared = time.monotonic()
        found.append(merged(Trips(*row) for row in job().collect()))
        times.append((prepared - start, time.monotonic() - prepared))
    ours = sum(times[0])
    rows = [
        [way, f"{prepared:.2f}", f"{job:.2f}", f"{(prepared + job) / ours:.1f} ×"]
        for way, (prepared, job) in zip(ways, times, strict=True)
    ]
    title = f"The driver's table of {table.num_rows:,} rows to a job of Spark Python workers"
    return [title, *table_lines(["", "s, prepare", "s, the job", "in all, beside"], rows)], found


# --- an array ---------------------------------------------------------------------------------------------------


class Started:
    """Unpickled as the time at which that happens: there the work of a task begins."""

    def __reduce__(self) -> tuple[Callable[[], float], tuple[()]]:
        return time.monotonic, ()


class Had(NamedTuple):
    """A worker's answer about an array.

    Attributes
    ----------
    access : float
        Seconds until it had the first value, with all imports done.
    imports : float
        Seconds that it took before that, until it had the first value of another, small array.
    memory : int
        Bytes that the array adds to its proportional set size.
    total : float
        The sum of all values.
    """

    access: float
    imports: float
    memory: int
    total: float


def accessor(small: Any, large: Any, folder: str, workers: int) -> Callable[[Iterable[int]], Iterator[Any]]:
    """The task of workers that have both arrays at the same time; it gives the fields of :class:`Had`."""
    given: Any = Started(), small, large

    def access(numbers: Iterable[int]) -> Iterator[tuple[float, float, int, float]]:
        import os
        import time

        def memory() -> int:
            with open("/proc/self/smaps_rollup") as file:
                return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))

        def meet(step: str) -> None:
            os.makedirs(os.path.join(folder, step, str(number)))
            end = time.monotonic() + 60
            while len(os.listdir(os.path.join(folder, step))) < workers:
                if time.monotonic() > end:
                    raise TimeoutError(f"{workers} workers did not run at the same time")
                time.sleep(0.005)

        (number,) = numbers
        started, small, large = given
        small.value[0, 0].item()
        imported = time.monotonic()
        before = memory()
        start = time.monotonic()
        array = large.value
        array[0, 0].item()
        done = time.monotonic()
        total = float(array.sum(dtype="float64"))
        meet("had")
        taken = memory() - before
        meet("counted")
        yield done - start, imported - started, taken, total

    return access


def array_to_workers(
    spark: SparkSession, store: sa.Store, folder: Path, workers: int, shape: tuple[int, int] = ARRAY
) -> tuple[list[str], set[float]]:
    """An array of the driver to workers, both ways: a table of times and memory, and the sums that workers found."""
    large = np.random.default_rng(0).random(shape, dtype=np.float32)
    small = large[:1].copy()
    sc = spark.sparkContext
    ways: dict[str, Callable[[Any], Any]] = {
        "shmarrow: broadcast": lambda value: sa_spark.broadcast(value, spark, store),
        "Spark: sc.broadcast": sc.broadcast,
    }
    rows, totals = [], set()
    for number, (way, publish) in enumerate(ways.items()):
        other = publish(small)
        start = time.monotonic()
        held = publish(large)
        published = time.monotonic() - start
        task = accessor(other, held, str(folder / f"workers-{number}"), workers)
        had = [Had(*found) for found in sc.parallelize(range(workers), workers).mapPartitions(task).collect()]
        for each in (other, held):
            each.destroy()
        memory = sum(each.memory for each in had)
        access, imports = max(each.access for each in had), max(each.access + each.imports for each in had)
        rows.append([
            way, f"{published * 1e3:.1f}", f"{access * 1e3:.2f}", f"{imports * 1e3:.0f}", f"{memory / MIB:.1f}",
            f"{memory / large.nbytes:.2f}",
        ])  # fmt: skip
        totals |= {each.total for each in had}
    title = f"The driver's array of {large.nbytes / MIB:.1f} MiB in {workers} Spark Python workers at the same time"
    heads = ["", "ms, publish", "ms, access", "with imports", "MiB (PSS)", "copies"]
    return [title, *table_lines(heads, rows)], totals


# --- fresh processes --------------------------------------------------------------------------------------------


def pickled(frame: sa_spark.SharedFrame, folder: Path) -> Path:
    """The partitions as a pickle of pyarrow's tables."""
    path = folder / "flights.pickle"
    with path.open("wb") as file:
        pickle.dump([handle.attach().to_pyarrow() for handle in frame.handles], file, protocol=5)
    return path


def attached(names: Sequence[str], pickled: Path, runs: int = RUNS) -> tuple[list[str], set[int]]:
    """Fresh processes that open the data one way or another: a table of times, and the sums that they found."""
    times: dict[str, list[Sequence[float]]] = {label: [] for label in OPENERS}
    sums = set()
    for _ in range(runs):
        for label, (imports, expression) in OPENERS.items():
            code = OPENER.format(imports=imports, expression=expression)
            ran = subprocess.run(
                [sys.executable, "-c", code, pickled, *names], capture_output=True, text=True, start_new_session=True
            )
            if ran.returncode:
                # What a child says after its objects were cleaned up goes nowhere.
                sys.stderr.write(ran.stderr)
                ran.check_returncode()
            *seconds, found = json.loads(ran.stdout)
            times[label].append(seconds)
            sums.add(found)
    medians = {
        label: [statistics.median(each) * 1000 for each in zip(*found, strict=True)] for label, found in times.items()
    }
    our_imports, our_opening = medians["shmarrow"]
    rows = [
        [
            label,
            f"{opening:.2f}",
            f"{opening / our_opening:.1f} ×",
            f"{imports + opening:.0f}",
            f"{(imports + opening) / (our_imports + our_opening):.1f} ×",
        ]
        for label, (imports, opening) in medians.items()
    ]
    title = f"A fresh process opens all {len(names)} objects, first column of each (median of {runs} processes)"
    heads = ["", "ms, imports done", "beside", "ms with imports", "beside"]
    note = "  pyarrow's imports are with pandas, which it imports where it is installed."
    return [title, *table_lines(heads, rows), note], sums


def main() -> None:
    """Measure all ways on the flights, with a store that is destroyed at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark = start_spark(stack, folder)
        store = sa.Store(f"shm:shmarrow-handover-{os.getpid()}")
        stack.callback(store.destroy)
        frame = sa_spark.share(read_flights(spark, flights_file(), folder), store)
        print(*table_to_workers(spark, store, frame.read_all())[0], "", sep="\n")
        print(*array_to_workers(spark, store, folder, WORKERS)[0], "", sep="\n")
        names = [str(store.info(handle.name).path) for handle in frame.handles]
        print(*attached(names, pickled(frame, folder))[0], sep="\n")


if __name__ == "__main__":
    main()
