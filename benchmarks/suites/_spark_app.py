"""One Spark application of ``spark.py``: ``python _spark_app.py CONFIG``, with tasks as lines of JSON.

A task is ``{"task": NAME, ...}``, a line on standard input; its answer is one line on standard output. What Spark and
its workers print goes to standard error. The functions that run in workers are pickled by value, as this file is the
main module, and import what they need themselves, since what they import is a part of what is measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
from pyspark.sql import SparkSession

from shmarrow import spark as sas

Batches = Iterator[pa.RecordBatch]

SUMS = "name string, rows long, sum double"

_serial = count()


# --- what runs in workers ---------------------------------------------------------------------------------------


class Started:
    """An object that is unpickled as the time of unpickling, at which the work of a task begins."""

    def __reduce__(self) -> tuple[Callable[[], float], tuple[()]]:
        return time.monotonic, ()


def products_in(values: dict[int, tuple[float, int]], ids: Any) -> Any:
    """What a pandas UDF does with a broadcast dict: a product for each id, null if it is not there."""
    import pandas as pd

    pairs = map(values.get, ids)
    return pd.Series([None if pair is None else pair[0] * pair[1] for pair in pairs], dtype="float64")


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


def discard(batches: Batches) -> Batches:
    """Read all of the input, and give nothing."""
    for _ in batches:
        pass
    return iter(())


def trim(rows: Iterable[int]) -> None:
    """Give back the memory that allocators keep, which a later task would use again unseen."""
    import ctypes
    import gc
    import time

    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    time.sleep(0.3)  # so that each worker gets some of these tasks


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


def pyarrow_source() -> type:
    """The peer of the data source, as one writes it with pyarrow."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, paths: list[str], names: list[str]) -> None:
            self.paths, self.names = paths, names

        def partitions(self) -> list[Any]:
            return [InputPartition(path) for path in self.paths]

        def read(self, partition: Any) -> Iterator[Any]:
            import pyarrow as pa

            with pa.ipc.open_file(pa.memory_map(partition.value)) as reader:
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number).select(self.names)
                    for start in range(0, batch.num_rows, 10_000):
                        yield batch.slice(start, 10_000)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "with_pyarrow"

        def reader(self, schema: Any) -> Any:
            return Reader(self.options["paths"].split("\n"), schema.names)

    return Source


# --- the application --------------------------------------------------------------------------------------------


class Application:
    """A Spark session and the tasks that are asked of it; each gives what one line of JSON can hold."""

    def __init__(self, config: dict[str, str], master: str) -> None:
        warnings.filterwarnings("ignore", message="PySpark does not yet", category=FutureWarning)
        settings = {
            "spark.master": master,
            "spark.driver.host": "127.0.0.1",  # where it listens, and nowhere else
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.memory": "6g",
            "spark.driver.maxResultSize": "4g",
            "spark.sql.session.timeZone": "UTC",
            "spark.dynamicAllocation.enabled": "false",
            **config,
        }
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("shmarrow")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.sc = self.spark.sparkContext
        self.values: dict[int, Any] = {}
        self.tables: dict[str, Any] = {}
        self.looked_in: dict[str, Any] = {}
        self.held: dict[str, Any] = {}

    def ready(self) -> str:
        return str(self.sc.version)

    # --- one value for all workers

    def value(self, size: int) -> Any:
        if size not in self.values:
            self.values[size] = np.random.default_rng(0).random(size // 8)
        return self.values[size]

    def publish(self, side: str, size: int) -> Any:
        value = self.value(size)
        return self.sc.broadcast(value) if side == "sc.broadcast" else sas.broadcast(value, self.spark)

    def first(self, side: str, size: int, tasks: int) -> dict[str, Any]:
        """Publish a value; as many tasks at the same time, each in a worker of its own, have its first element."""
        start = time.monotonic()
        held = self.publish(side, size)
        published = time.monotonic() - start
        given = (Started(), held)

        def access(_: Any) -> Iterator[tuple[float, int, str]]:
            import time

            started, shared = given
            found = shared.value
            assert found[0] >= 0
            took = time.monotonic() - started
            import os

            time.sleep(0.3)  # so that each task has a worker of its own
            yield took, os.getpid(), os.environ.get("SPARK_LOCAL_DIRS", "")

        seen = self.sc.parallelize(range(tasks), tasks).mapPartitions(access).collect()
        held.destroy()
        took = [row[0] for row in seen]
        assert len({row[1:] for row in seen}) == tasks, seen
        if not self.sc.master.startswith("local"):
            assert len({row[2] for row in seen}) == tasks, "a task ran on another's host"
        return {"seconds": published + max(took), "published": published, "access": took}

    def later(self, side: str, size: int, tasks: int) -> dict[str, Any]:
        """What ``.value`` takes in workers that have had it before, each time in a task of its own."""
        held = self.publish(side, size)

        def access(_: Any) -> Iterator[tuple[int, float]]:
            import os
            import time

            start = time.perf_counter()
            found = held.value
            took = time.perf_counter() - start
            assert found[0] >= 0
            time.sleep(0.1)
            yield os.getpid(), took

        known: set[int] = set()
        seconds: list[float] = []
        for _ in range(6):
            rows = self.sc.parallelize(range(tasks), tasks).mapPartitions(access).collect()
            seconds += [took for pid, took in rows if pid in known]
            known |= {pid for pid, _ in rows}
        held.destroy()
        return {"seconds": seconds}

    def copies(self, side: str, size: int, tasks: int, folder: str) -> dict[str, Any]:
        """Proportional memory of workers that hold a value at the same time, above that for one of 4 KiB."""
        used = []
        for number, each in enumerate((4096, size)):
            held = self.publish(side, each)
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

    # --- jobs

    def collect(self, df: Any) -> dict[str, tuple[int, float]]:
        """The sums of all partitions, by column."""
        found: dict[str, tuple[int, float]] = {}
        for name, rows, total in df.collect():
            have = found.get(name, (0, 0.0))
            found[name] = have[0] + rows, have[1] + total
        return found

    def jobs(self, side: str, path: str, number: int = 3) -> dict[str, Any]:
        """Python jobs over what Spark has, with what prepares them."""
        given = self.spark.read.parquet(path)
        start = time.monotonic()
        run = partial(given.mapInArrow, sums, SUMS)
        end: Callable[[], Any] = int
        if side == "share":
            frame = sas.share(given)
            run = partial(frame.map, sums_of_table, SUMS)
            end = frame.destroy
        elif side == "cache":
            given.cache().count()
            end = partial(given.unpersist, True)
        elif side == "pyarrow":
            paths = sorted(str(each) for each in Path(path).glob("*.parquet"))
            numbers = self.spark.range(0, len(paths), 1, len(paths))
            run = partial(numbers.mapInArrow, partial(sums_of_files, paths), SUMS)
        return self._run(start, time.monotonic() - start, run, end, number)

    def small(self, side: str, number: int) -> dict[str, Any]:
        """Python jobs over 100 rows that are shared or cached before."""
        if side not in self.held:
            rows = self.spark.range(0, 100, 1, 4).selectExpr("id", "id / 3 AS x", "string(id) AS text")
            self.held[side] = (
                partial(sas.share(rows).map, sums_of_table, SUMS)
                if side == "share"
                else partial(rows.cache().mapInArrow, sums, SUMS)
            )
        return {"rows": [self.collect(self.held[side]())["id"] for _ in range(number)]}

    def table_jobs(self, side: str, path: str, number: int = 3) -> dict[str, Any]:
        """Python jobs over a table of the driver."""
        if path not in self.tables:
            self.tables[path] = pads.dataset(path, format="arrow").to_table().combine_chunks()
        table = self.tables[path]
        start = time.monotonic()
        if side == "share_table":
            frame = sas.share_table(table, self.spark)
            run = partial(frame.map, sums_of_table, SUMS, self.spark)
            end: Callable[[], Any] = frame.destroy
        else:
            run = partial(self.spark.createDataFrame(table).mapInArrow, sums, SUMS)
            end = int
        prepared = time.monotonic() - start
        return self._run(start, prepared, run, end, number)

    def lookup(self, side: str, folder: str, keys: int, rows: int) -> dict[str, Any]:
        """Two columns of a table by key, for rows in Parquet, and a pandas UDF over them."""
        from pyspark.sql.functions import broadcast, expr, pandas_udf

        left, right = (os.path.join(folder, f"{name}-{keys}-{rows}") for name in ("lookup", "keys"))
        if not os.path.exists(left):
            ids = f"(id * 104729) % {keys + keys // 10} * 7919 AS id"  # a tenth of them is not among the keys
            self.spark.range(0, rows, 1, 4).selectExpr(ids).write.parquet(left)
            self.spark.range(keys).selectExpr("id * 7919 AS id", "id / 3 AS a", "id % 1000 AS b").write.parquet(right)
        df, table = self.spark.read.parquet(left), self.spark.read.parquet(right)

        product = pandas_udf(lambda a, b: a * b, "double")
        if side not in self.looked_in:
            if side == "lookup":
                self.looked_in[side] = sas.share_table(table.toArrow(), self.spark)
            elif side == "dict":
                each = table.toArrow().to_pydict()
                values = dict(zip(each["id"], zip(each["a"], each["b"], strict=True), strict=True))
                self.looked_in[side] = self.sc.broadcast(values)
        start = time.monotonic()
        if side == "dict":
            known = self.looked_in[side]
            found = pandas_udf(lambda ids: products_in(known.value, ids), "double")
            answer = df.select(found("id").alias("p"))
        elif side == "lookup":
            answer = sas.lookup(df, self.looked_in[side], "id").select(product("a", "b").alias("p"))
        else:
            answer = df.join(broadcast(table), "id", "left").select(product("a", "b").alias("p"))
        total = answer.agg(expr("count(p)")).first()[0]
        return {"seconds": time.monotonic() - start, "rows": total}

    def _run(
        self, start: float, prepared: float, run: Callable[[], Any], end: Callable[[], Any], number: int
    ) -> dict[str, Any]:
        each, found = [], []
        for _ in range(number):
            begun = time.monotonic()
            found.append(self.collect(run()))
            each.append(time.monotonic() - begun)
        seconds = time.monotonic() - start
        end()
        rows = {name: rows for name, (rows, _) in found[0].items()}
        return {"seconds": seconds, "prepared": prepared, "jobs": each, "rows": rows}

    def share(self, side: str, path: str) -> dict[str, Any]:
        """Share what Spark reads, or read it and throw it away."""
        given = self.spark.read.parquet(path)
        if side == "share":
            sas.share(given).destroy()
        else:
            given.mapInArrow(discard, "nothing long").collect()
        return {}

    def peak(self, side: str, path: str) -> dict[str, Any]:
        """The highest resident size of a worker that reads all in one partition, above where it began."""
        given = self.spark.read.parquet(path).coalesce(1)
        task: Callable[[], Any] = {
            "share": lambda: sas.share(given).destroy(),
            "share, dictionaries": lambda: sas.share(given, function=encoded).destroy(),
            "discard": lambda: given.mapInArrow(discard, "nothing long").collect(),
        }[side]
        task()  # the imports
        self.sc.parallelize(range(8), 8).foreachPartition(trim)
        before = {}
        for worker in self.workers():
            Path(f"/proc/{worker}/clear_refs").write_text("5")  # forget the peak so far
            before[worker] = status(worker, "VmHWM")
        task()
        # Workers that had nothing to do for a minute are gone.
        return {"bytes": max(status(pid, "VmHWM") - size for pid, size in before.items() if pid in self.workers())}

    def workers(self) -> list[int]:
        """The Python workers of this application: children of the daemon, which is a child of Spark."""
        parents = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
        ours = {self.sc._gateway.proc.pid}  # type: ignore[union-attr]
        daemons = {pid for pid, parent in parents.items() if parent in ours}
        return [pid for pid, parent in parents.items() if parent in daemons]

    # --- the data source

    def read(self, side: str, path: str, columns: list[str]) -> dict[str, Any]:
        """Read files into Spark, which counts the rows and drops them."""
        if side not in self.held:
            if side == "Python source over pyarrow":
                self.spark.dataSource.register(pyarrow_source())  # type: ignore[arg-type]
            self.held[side] = True
        start = time.monotonic()
        if side == "shmarrow":
            df = self.spark.read.format("shmarrow").load(path)
            if len(columns) < len(df.columns):
                df = self.spark.read.format("shmarrow").schema(df.select(*columns).schema).load(path)
        elif side == "parquet":
            df = self.spark.read.parquet(path).select(*columns)
        else:
            files = sorted(str(each) for each in Path(path).glob("*.arrow"))
            with pa.ipc.open_file(pa.memory_map(files[0])) as reader:
                schema = reader.schema
            from pyspark.sql.pandas.types import from_arrow_schema

            schema = from_arrow_schema(pa.schema([schema.field(name) for name in columns]))
            df = self.spark.read.format("with_pyarrow").schema(schema).option("paths", "\n".join(files)).load()
        df.write.format("noop").mode("overwrite").save()
        return {"seconds": time.monotonic() - start}

    def filtered(self, side: str, path: str, rows: int) -> dict[str, Any]:
        """Count the first rows of sorted files."""
        if side == "files":
            return {"rows": sas.files(path, filters=[("row", "<", rows)]).to_df().count()}
        return {"rows": self.spark.read.format("shmarrow").load(path).where(f"row < {rows}").count()}


def encoded(batches: Batches) -> Batches:
    """Columns of strings as dictionaries, a dictionary for each batch."""
    import pyarrow as pa

    for batch in batches:
        columns = [
            column.dictionary_encode() if pa.types.is_string(column.type) else column for column in batch.columns
        ]
        yield pa.record_batch(columns, batch.schema.names)


def status(pid: int, key: str) -> int:
    """A size from /proc/PID/status."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(key))


def main(given: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark's own words are no answers
    settings = json.loads(given)
    application = Application(settings["config"], settings["master"])
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
    main(sys.argv[1])
