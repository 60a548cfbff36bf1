"""What the driver hands to Spark's Python workers in the demo, by shmarrow and by Spark: a table, and an array.

Invariants:

* both ways give the same functions the same values in the same session, and each task has a worker of its own;
* what a worker imports is a part of its first access, so the function that measures that is pickled by value, and
  imports nothing of this package by itself;
* memory is counted while all workers have the value, and none of them lets go before all have counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import shmarrow as sa
from shmarrow import spark as sa_spark
from shmarrow.cli.progress import table_lines
from shmarrow.cli.reader import Trips, merged, trips

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TRIPS = "origin string, flights long, arrived long, delay long, miles long, last long"
ARRAY = 31_250, 256
"""Rows and columns of the array, of float32: 32 MB."""
MIB = 1 << 20


# --- a table ----------------------------------------------------------------------------------------------------


def trips_of_table(table: sa.Table) -> sa.RecordBatch:
    """What a worker computes of its part of the table, over shared memory."""
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
        frame = sa_spark.share_table(spark, given, store)
        return lambda: frame.map(spark, trips_of_table, TRIPS)

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
    """What a worker says of an array.

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


def array_to_workers(spark: SparkSession, store: sa.Store, folder: Path, workers: int) -> tuple[list[str], set[float]]:
    """An array of the driver to workers, both ways: a table of times and memory, and the sums that workers found."""
    large = np.random.default_rng(0).random(ARRAY, dtype=np.float32)
    small = large[:1].copy()
    sc = spark.sparkContext
    ways: dict[str, Callable[[Any], Any]] = {
        "shmarrow: broadcast": lambda value: sa_spark.broadcast(spark, value, store),
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
