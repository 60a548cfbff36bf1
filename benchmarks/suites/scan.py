"""Many files as one table, beside `scan_ipc` of Polars and datasets of pyarrow.

Queries run in fresh processes, in turns. Before the clock starts, each process has run the query on a small file, so
imports are done; the sources themselves it has not seen. Both sides read the same files, which pyarrow wrote.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from harness.bench import Bench
from harness.figures import AS_FAST, Required, faster, within
from harness.memory import ENVIRONMENT, fresh, proportional

import shmarrow as sa

MIB = 1 << 20
OURS, POLARS, DATASET = "shmarrow", "polars scan_ipc", "pyarrow dataset"
LAZY = {
    OURS: "import shmarrow as sa; lazy = lambda path: sa.scan(path).to_polars()",
    POLARS: "lazy = lambda path: pl.scan_ipc(path + '/*.arrow')",
}
SUMS = 'pl.sum("c7"), pl.sum("c31")'
QUERIES = {
    "sum": f"frame.select({SUMS}).collect()",
    "group": 'frame.group_by("text").agg(pl.sum("c0")).collect()',
    "have": '(have := frame.select("c7", "c31").collect(), have.sum())',
}
WARM = """
import gc, sys
from time import perf_counter as clock
import polars as pl
{lazy}
def query(frame):
    return {query}
query(lazy(sys.argv[2]))
gc.collect()
gc.freeze()  # what the imports left is not searched for garbage while the clock runs
"""
TIMES = """
times = [clock()]
frame = lazy(sys.argv[1])
query(frame)
times.append(clock())
for _ in range(5):
    query(frame)
    times.append(clock())
print(times[1] - times[0], sorted(b - a for a, b in zip(times[1:], times[2:]))[2])
"""
HELD = """
print("ready", flush=True)
sys.stdin.readline()
result = query(lazy(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""
FIRST_ROWS = {
    OURS: "made = sa.scan(sys.argv[1]); rows = made.head(5).num_rows, len(made.schema)",
    POLARS: "made = pl.scan_ipc(sys.argv[1], hive_partitioning=True); rows = made.head(5).collect().height, "
    "len(made.collect_schema())",
    DATASET: "made = ds.dataset(sys.argv[1], format='ipc', partitioning='hive'); "
    "rows = made.head(5).num_rows, len(made.schema)",
}
IMPORTS = {OURS: "import shmarrow as sa", POLARS: "import polars as pl", DATASET: "import pyarrow.dataset as ds"}


DUCK = """
import sys
from resource import RUSAGE_SELF, getrusage
from time import perf_counter as clock
import duckdb
duckdb.sql("SET enable_progress_bar = false")
{made}
def query(path):
    rows = made(path)
    return duckdb.sql("{query}").fetchall()
query(sys.argv[2])
start, before = clock(), getrusage(RUSAGE_SELF)
query(sys.argv[1])
took, after = clock() - start, getrusage(RUSAGE_SELF)
print(took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""
DUCK_ROWS = {
    OURS: "import shmarrow as sa, pyarrow.dataset; made = lambda path: sa.scan(path).to_dataset()",
    DATASET: "import pyarrow.dataset as ds; made = lambda path: ds.dataset(path, format='ipc')",
}
PARTITIONS = """
import sys
from resource import RUSAGE_SELF, getrusage
import pyarrow as pa, pyarrow.dataset as ds, shmarrow as sa
table = pa.ipc.open_file(pa.memory_map(sys.argv[1])).read_all()
key = pa.schema([table.schema.field("hour")])
def shmarrow(rows, path): sa.write(rows, path, partition_by=["hour"])
def pyarrow(rows, path): ds.write_dataset(rows, path, format="ipc", partitioning=ds.partitioning(key, flavor="hive"))
{side}(table.slice(0, 100), sys.argv[2] + "-small")
before = getrusage(RUSAGE_SELF)
{side}(table, sys.argv[2] + "-large")
after = getrusage(RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


def write(path: Path, table: pa.Table, batch_rows: int) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, batch_rows)


def files(folder: Path, make: Callable[[int], pa.Table], rows: int, number: int) -> tuple[Path, Path]:
    """Two directories: files of two batches each, and one small file of the same columns."""
    for name, count, size in (("small", 1, 10), ("large", number, rows)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            write(folder / name / f"{i:03}.arrow", make(size), size // 2 + 1)
    return folder / "large", folder / "small"


def floats(rows: int) -> pa.Table:
    return pa.table({f"c{i}": np.random.default_rng(i).random(rows) for i in range(50)})


def in_turns(bench: Bench, program: Callable[[str], str], sides: list[str], *words: Any) -> list[dict[str, Any]]:
    """What fresh processes print, side by side, for each round."""
    sides = sides[:1] if bench.options.only_ours else sides
    return [{side: fresh(program(side), *words) for side in sides} for _ in range(bench.options.rounds)]


def queries(bench: Bench, what: str, query: str, first: Required, later: Required, *paths: Path) -> None:
    rounds = in_turns(
        bench, lambda side: WARM.format(lazy=LAZY[side], query=QUERIES[query]) + TIMES, [OURS, POLARS], *paths
    )
    for i, (when, required) in enumerate((("first query of a process", first), ("later queries of a scan", later))):
        bench.report(f"{what}: {when}", [{side: [took[i]] for side, took in each.items()} for each in rounds], required)


def numbers(bench: Bench) -> None:
    """Two of fifty columns of numbers: their sums, and the memory of four processes that have them."""
    size = 64 if bench.quick else 1024
    paths = files(bench.scratch / "numbers", floats, size * MIB // 16 // 400, 16)
    what = f"2 of 50 columns of numbers, {size} MiB in 16 files"
    queries(bench, f"{what}, sums", "sum", within(1.2), faster(2), *paths)
    sides = [OURS] if bench.options.only_ours else [OURS, POLARS]
    memory = [{side: [float(in_four(side, "have", *paths))] for side in sides}]
    bench.report(f"{what}: memory of four processes that have them (PSS)", memory, faster(3), unit="bytes")


def in_four(side: str, query: str, *paths: Path) -> int:
    """Bytes that four processes take at once for the result of a query, beyond what they took for their imports."""
    command = [sys.executable, "-P", "-W", "ignore", "-c"]
    command += [WARM.format(lazy=LAZY[side], query=QUERIES[query]) + HELD, *map(str, paths)]
    with ExitStack() as stack:
        processes = []
        for _ in range(4):
            process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, env=ENVIRONMENT, text=True, bufsize=1)
            processes.append(stack.enter_context(process))
        taken = []
        for _ in range(2):
            for each in processes:
                assert each.stdout is not None
                assert each.stdout.readline() == "ready\n"
            taken.append(sum([proportional(each.pid) for each in processes]))
            for each in processes:
                print(file=each.stdin)
    return taken[1] - taken[0]


def text(bench: Bench) -> None:
    """A group-by of text and a number, among twelve columns."""
    for type, required in ((pa.string(), within(1.3)), (pa.string_view(), AS_FAST)):

        def table(rows: int, type: pa.DataType = type) -> pa.Table:
            rng = np.random.default_rng(0)
            words = pa.array([f"the word number {i}" for i in range(1000)]).take(pa.array(rng.integers(0, 1000, rows)))
            return pa.table({"text": words.cast(type)} | {f"c{i}": rng.random(rows) for i in range(11)})

        paths = files(bench.scratch / str(type), table, 20_000 if bench.quick else 250_000, 8)
        queries(bench, f"group by {type}, 2 of 12 columns, 8 files", "group", required, required, *paths)


def many(bench: Bench) -> None:
    """Two thousand files in twenty directories."""
    number = 200 if bench.quick else 2000
    for i in range(number):
        folder = bench.scratch / "many" / f"day={i % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{i:04}.arrow", pa.table({"x": np.arange(10) + i, "y": np.arange(10.0)}), 10)
    path = bench.scratch / "many"

    def program(side: str) -> str:
        return (
            f"import sys\nfrom time import perf_counter as clock\nstart = clock()\n{IMPORTS[side]}\n"
            f"{FIRST_ROWS[side]}\nassert rows == (5, 3), rows\nprint(clock() - start)"
        )

    rounds = in_turns(bench, program, [OURS, POLARS, DATASET], path)
    bench.report(
        f"schema and first rows of {number:,} files in 20 directories, fresh process, with imports",
        rounds,
        {POLARS: AS_FAST, DATASET: AS_FAST},
    )
    sides = {
        OURS: lambda _: sa.scan(path).count_rows(),
        DATASET: lambda _: ds.dataset(path, format="ipc", partitioning="hive").count_rows(),
        POLARS: lambda _: pl.scan_ipc(path / "**/*.arrow").select(pl.len()).collect().item(),
    }
    assert {count(0) for count in sides.values()} == {10 * number}
    bench.row(f"count_rows of {number:,} files", sides, AS_FAST, 5)


def skipping(bench: Bench) -> None:
    """A filter that leaves one row of a thousand, of a file sorted by time."""
    batches, rows = (100 if bench.quick else 1000), 1 << 15
    paths = {OURS: bench.scratch / "with.arrow", "without statistics": bench.scratch / "without.arrow"}
    for side, path in paths.items():
        schema = sa.schema({"time": "int64", "a": "float64"})
        with sa.ipc.new_file(path, schema, statistics=["time"] if side == OURS else False) as writer:
            for i in range(batches):
                times = np.arange(rows) + i * rows
                writer.write(sa.record_batch({"time": times, "a": times / 2}))
    last = batches * rows - batches * rows // 1000
    scans = {side: sa.scan(path, filters=[("time", ">=", last)]) for side, path in paths.items()}
    assert {each.count_rows() for each in scans.values()} == {batches * rows // 1000}
    sides = {side: lambda _, each=each: each.to_table() for side, each in scans.items()}
    what = f"a filter that leaves 0.1 % of {batches * rows * 16 // MIB:,} MiB sorted by time, with statistics"
    bench.row(what, sides, faster(40), 20)


def duck(bench: Bench) -> None:
    """DuckDB over a directory of files with statistics: one of six columns, and one row of a thousand by time."""
    rows = 100_000 if bench.quick else 2_000_000
    paths = bench.scratch / "large", bench.scratch / "small"
    for path, number in zip(paths, (8, 1), strict=True):
        path.mkdir()
        for i in range(number):
            columns = {f"c{j}": np.random.default_rng(j).random(rows) for j in range(5)}
            batch = sa.record_batch({"time": np.arange(rows) + i * rows} | columns)
            with sa.ipc.new_file(path / f"{i}.arrow", batch.schema, statistics=["time"]) as writer:
                for start in range(0, rows, 1 << 17):
                    writer.write(batch.slice(start, 1 << 17))
    queries = {
        "sum of 1 of 6 columns": "SELECT sum(c1) FROM rows",
        "0.1 % by time": f"SELECT sum(c1) FROM rows WHERE time >= {rows} AND time < {rows + 8 * rows // 1000}",
    }
    for what, query in queries.items():
        programs = {side: DUCK.format(made=made, query=query) for side, made in DUCK_ROWS.items()}
        rounds = in_turns(bench, programs.__getitem__, [*programs], *paths)
        for i, (figure, required) in enumerate((("wall", AS_FAST), ("CPU", within(1.1)))):
            times = [{side: [took[i]] for side, took in each.items()} for each in rounds]
            bench.report(f"DuckDB, {8 * rows:,} rows in 8 files, {what}: {figure}", times, required)


def partitions(bench: Bench) -> None:
    """Rows of numbers and text, divided among 24 directories."""
    rows = 3_000_000 if bench.quick else 20_000_000
    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.random(rows) for i in range(5)}
    path = bench.scratch / "rows.arrow"
    write(path, pa.table({"hour": rng.integers(0, 24, rows).astype("i4")} | columns), 1 << 17)
    rounds = []
    for i in range(bench.options.rounds):
        sides = {OURS: "shmarrow", "pyarrow write_dataset": "pyarrow"}
        took = {}
        for side, name in sides.items():
            where = bench.scratch / f"{name}-{i}"
            took[side] = fresh(PARTITIONS.format(side=name), path, where)[:1]
            for end in ("small", "large"):
                shutil.rmtree(f"{where}-{end}")
        rounds.append(took)
    bench.report(
        f"{path.stat().st_size // MIB:,} MiB into 24 partitions, CPU", rounds, {"pyarrow write_dataset": AS_FAST}
    )


PARTS = {"duck": duck, "partitions": partitions, "numbers": numbers, "text": text, "many": many, "skipping": skipping}
