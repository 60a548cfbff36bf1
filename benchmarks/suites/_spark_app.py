"""One Spark application of ``spark.py``: ``python _spark_app.py MASTER FOLDER``, with tasks as lines of JSON.

A task is ``{"task": NAME, ...}``, a line on standard input; its answer is one line on standard output. What Spark and
its workers print goes to standard error. The functions that run in workers are pickled by value, as this file is the
main module, and import what they need themselves, since what they import is a part of what is measured.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from shmarrow import spark as sas

Batches = Iterator[pa.RecordBatch]

SUMS = "name string, rows long, sum double"

_serial = count()


# --- what runs in workers ---------------------------------------------------------------------------------------


def sums(batches: Iterable[pa.RecordBatch]) -> Batches:
    """A Python job over all columns: for each the valid rows and a sum, of lengths where the values are strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str, list[float]] = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                column = pc.binary_length(column)
            elif pa.types.is_timestamp(column.type):
                column = pc.divide(column.cast("int64"), 3_600_000_000)
            one = found.setdefault(name, [0, 0.0])
            one[0] += len(column) - column.null_count
            one[1] += pc.sum(column).as_py() or 0
    names, values = list(found), list(found.values())
    yield pa.record_batch(
        [pa.array(names), pa.array([one[0] for one in values]), pa.array([float(one[1]) for one in values])],
        ["name", "rows", "sum"],
    )


def sums_of_table(table: Any) -> Any:
    """The same of a partition of a shared frame."""
    return next(sums(table.to_pyarrow().to_batches()))


def sums_of_files(paths: list[str], batches: Batches) -> Batches:
    """The same of parquet files that pyarrow reads; the input says which of them."""
    import pyarrow.dataset as dataset

    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield from sums(dataset.dataset(paths[index]).to_batches())


def pss() -> int:
    """Bytes of this process's memory, shared pages by the number of processes that have them."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))


def meet(folder: str, number: int, members: int, text: str = "") -> None:
    """Wait until all tasks have come as far."""
    import os
    import time

    with open(os.path.join(folder, f".{number}"), "w") as file:
        file.write(text)
    os.rename(os.path.join(folder, f".{number}"), os.path.join(folder, f"{number}"))
    end = time.monotonic() + 120
    while sum(not name.startswith(".") for name in os.listdir(folder)) < members:
        if time.monotonic() > end:
            raise TimeoutError(f"{members} tasks did not run at the same time")
        time.sleep(0.005)


# --- the application --------------------------------------------------------------------------------------------


class Application:
    """A Spark session and the tasks that are asked of it; each gives what one line of JSON can hold."""

    def __init__(self, master: str, folder: str) -> None:
        warnings.filterwarnings("ignore", message="PySpark does not yet", category=FutureWarning)
        settings = {
            "spark.master": master,
            "spark.local.dir": folder,
            "spark.driver.host": "127.0.0.1",  # where it listens, and nowhere else
            "spark.driver.memory": "3g",
            "spark.log.level": "ERROR",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": os.path.join(folder, "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self.spark = SparkSession.builder.appName("shmarrow").config(map=settings).getOrCreate()
        self.sc = self.spark.sparkContext
        self.held: dict[str, Any] = {}

    def ready(self) -> str:
        return str(self.sc.version)

    def collect(self, df: Any) -> dict[str, int]:
        """The valid rows of each column, of all partitions; the sums are computed as well."""
        found: dict[str, int] = {}
        for name, rows, _ in df.collect():
            found[name] = found.get(name, 0) + rows
        return found

    def hold(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made once, before the turns that count."""
        if name not in self.held:
            self.held[name] = make()
        return self.held[name]

    # --- tasks

    def jobs(self, side: str, arrow: str, parquet: str, number: int = 3) -> dict[str, Any]:
        """Python jobs over all columns, with what prepares them."""
        given = self.spark.read.parquet(parquet)
        run = partial(given.mapInArrow, sums, SUMS)
        end: Callable[[], Any] = int
        if side == "files":
            run = partial(sas.files(arrow).map, sums_of_table, SUMS)
        elif side == "share":
            frame = sas.share(given)
            run, end = partial(frame.map, sums_of_table, SUMS), frame.destroy
        elif side == "cache":
            given.cache().count()
            end = partial(given.unpersist, True)
        elif side == "pyarrow":
            paths = sorted(str(each) for each in Path(parquet).glob("*.parquet"))
            numbers = self.spark.range(0, len(paths), 1, len(paths))
            run = partial(numbers.mapInArrow, partial(sums_of_files, paths), SUMS)
        found = [self.collect(run()) for _ in range(number)]
        end()
        return {"rows": found}

    def columns(self, side: str, arrow: str, parquet: str) -> dict[str, Any]:
        """Two columns of files to a Python job."""
        names = ["c7", "c42"]
        if side == "files":
            return {"rows": self.collect(sas.files(arrow, columns=names).map(sums_of_table, SUMS))}
        return {"rows": self.collect(self.spark.read.parquet(parquet).select(names).mapInArrow(sums, SUMS))}

    def looked_up(self, side: str, arrow: str, parquet: str, known: str) -> dict[str, Any]:
        """Three columns of a table by key to a Python job."""
        names = ["a", "b", "c"]
        if side == "join":
            joined = self.joined_by_spark(parquet, known, "left").select(names)
            return {"rows": self.collect(joined.mapInArrow(sums, SUMS))}
        index = self.hold("index", lambda: self.frame(known).index("id"))

        def of_batches(batches: Batches) -> Batches:
            return sums(
                each for batch in batches for each in index.take(batch["id"], columns=names).to_pyarrow().to_batches()
            )

        def of_table(table: Any) -> Any:
            return sums_of_table(index.take(table["id"], columns=names))

        if side == "files":
            return {"rows": self.collect(sas.files(arrow).map(of_table, SUMS))}
        return {"rows": self.collect(self.spark.read.parquet(parquet).mapInArrow(of_batches, SUMS))}

    def joined(self, side: str, arrow: str, parquet: str, known: str) -> dict[str, Any]:
        """Columns of a table by key to a filter and a sum."""
        if side == "join":
            found = self.joined_by_spark(parquet, known, "inner")
        else:
            found = sas.lookup(self.spark.read.parquet(parquet), self.frame(known), "id", how="inner")
        row = found.where("b < 500").selectExpr("count(a)", "sum(b)", "sum(c)").first()
        return {"rows": list(row)}  # type: ignore[arg-type]

    def frame(self, known: str) -> Any:
        return self.hold("frame", lambda: sas.share_table(self.spark.read.parquet(known).toArrow(), self.spark))

    def joined_by_spark(self, parquet: str, known: str, how: str) -> Any:
        from pyspark.sql.functions import broadcast

        table = self.spark.read.parquet(known)
        return self.spark.read.parquet(parquet).join(broadcast(table), "id", how)

    def small(self, side: str, number: int) -> dict[str, Any]:
        """Python jobs over 100 rows that are shared or cached before."""
        rows = self.spark.range(0, 100, 1, 4).selectExpr("id", "id / 3 AS x", "string(id) AS text")
        run = self.hold(
            side,
            lambda: (
                partial(sas.share(rows).map, sums_of_table, SUMS)
                if side == "share"
                else partial(rows.cache().mapInArrow, sums, SUMS)
            ),
        )
        return {"rows": [self.collect(run()) for _ in range(number)]}

    def count(self, side: str, arrow: str, parquet: str) -> dict[str, Any]:
        """The number of rows of files."""
        return {"rows": self.spark.read.format(side).load(parquet if side == "parquet" else arrow).count()}

    def copies(self, side: str, size: int, tasks: int, folder: str) -> dict[str, Any]:
        """Proportional memory of workers that hold a value at the same time, above that for one of 4 KiB."""
        used = []
        for number, each in enumerate((4096, size)):
            value = np.random.default_rng(0).random(each // 8)
            held: Any = self.sc.broadcast(value) if side == "sc.broadcast" else sas.broadcast(value, self.spark)
            places = [os.path.join(folder, f"{next(_serial)}-{step}-{number}") for step in range(2)]
            for place in places:
                os.mkdir(place)

            def hold(numbers: Iterable[int], held: Any = held, places: list[str] = places) -> Iterator[int]:
                (number,) = numbers
                array = held.value
                assert array.sum() >= 0
                meet(places[0], number, tasks)
                found = pss()
                meet(places[1], number, tasks)  # nobody lets go before all have counted
                yield found

            used.append(sum(self.sc.parallelize(range(tasks), tasks).mapPartitions(hold).collect()))
            held.destroy()
        return {"bytes": used[1] - used[0]}


def main(master: str, folder: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark's own words are no answers
    application = Application(master, folder)
    try:
        for line in sys.stdin:
            words = json.loads(line)
            try:
                said = {"answer": getattr(application, words.pop("task"))(**words)}
            except Exception:
                said = {"error": traceback.format_exc()}
            print(json.dumps(said), file=answers, flush=True)
    finally:
        application.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
