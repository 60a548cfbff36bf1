"""Opening, writing and lists, this checkout beside another one: ``python benchmarks/against.py --base FOLDER``.

The rows are those of ``attach.py``, a few that write, and a few for Python lists; ``--rows REGEX`` chooses among them.
The checkouts cannot share a process, so a turn is a fresh process for each side, one after the other on the same files,
and who goes first changes from turn to turn. A process warms up with files of its own, times each operation by itself
and answers with their median. A row shows for each side the median of its processes, and two ratios over the base,
where "1.10" is 10 % slower: of the medians, and of the fastest processes, which other load on the machine disturbs
least. A row is marked when both are over 1.1, or in the rows for a file seen before, when both are more than 25 µs over
the base.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = count()
WARM_UP = 3


# --- what a process of one side does ---


def ours_open(path: str, key: int | str, batch: int) -> Any:
    import shmarrow as sa

    return sa.ipc.open_file(path).get_batch(batch).column(key).to_numpy()


def pyarrow_open(path: str, key: int | str, batch: int) -> Any:
    import pyarrow as pa

    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).get_batch(batch).column(key).to_numpy()


def ours_all(path: str, *rest: Any) -> Any:
    import shmarrow as sa

    return [column.to_numpy() for column in sa.ipc.open_file(path).get_batch(0).columns]


def pyarrow_all(path: str, *rest: Any) -> Any:
    import pyarrow as pa

    with pa.memory_map(path) as source:
        return [column.to_numpy() for column in pa.ipc.open_file(source).get_batch(0).columns]


def ours_write(batch: Any, path: str) -> None:
    import shmarrow as sa

    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)


def pyarrow_write(batch: Any, path: str) -> None:
    import pyarrow as pa

    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def ours_batch(arrays: dict[str, Any]) -> Any:
    import shmarrow as sa

    return sa.record_batch(arrays)


def pyarrow_batch(arrays: dict[str, Any]) -> Any:
    import pyarrow as pa

    return pa.record_batch([pa.array(column) for column in arrays.values()], list(arrays))


OPENERS: dict[str, dict[str, Callable[..., Any]]] = {
    "one": {"ours": ours_open, "pyarrow": pyarrow_open},
    "all": {"ours": ours_all, "pyarrow": pyarrow_all},
}


def time_opens(side: str, how: str, operations: list[list[Any]]) -> float:
    """Median seconds of the operations after the first few, which warm up."""
    use = OPENERS[how][side]
    seconds = []
    for number, arguments in enumerate(operations):
        start = perf_counter()
        result = use(*arguments)
        took = perf_counter() - start
        del result
        if number >= WARM_UP:
            seconds.append(took)
    return statistics.median(seconds)


def time_writes(side: str, folder: str, columns: int, turns: int, *, new: bool) -> float:
    """Median seconds that a batch takes to a new file, its schema new or not."""
    make, write = {"ours": (ours_batch, ours_write), "pyarrow": (pyarrow_batch, pyarrow_write)}[side]
    values = np.random.default_rng(0).random((columns, 100))
    path = Path(folder, f"written-{os.getpid()}")
    seconds = []
    for turn in range(WARM_UP + turns):
        batch = make(dict(zip(names(columns, turn if new else 0), values, strict=True)))
        start = perf_counter()
        write(batch, str(path))
        seconds.append(perf_counter() - start)
        path.unlink()
    return statistics.median(seconds[WARM_UP:])


def time_lists(side: str, kind: str, nulls: bool, *, build: bool) -> float:
    """Median seconds that a list of 200,000 values takes to become an array, or an array to become a list."""
    library = __import__({"ours": "shmarrow", "pyarrow": "pyarrow"}[side])
    numbers = np.random.default_rng(0).integers(0, 1_000_000, 200_000)
    values: list[Any] = {
        "int64": numbers.tolist,
        "double": (numbers / 8).tolist,
        "string": [f"word {number}" for number in numbers.tolist()].copy,
    }[kind]()
    if nulls:
        values[::10] = [None] * len(values[::10])
    seconds = []
    array = library.array(values)
    for _ in range(WARM_UP + 12):
        start = perf_counter()
        made = library.array(values) if build else array.to_pylist()
        seconds.append(perf_counter() - start)
        del made
    return statistics.median(seconds[WARM_UP:])


def time_import(side: str) -> float:
    start = perf_counter()
    __import__({"ours": "shmarrow", "pyarrow": "pyarrow"}[side])
    return perf_counter() - start


TASKS: dict[str, Callable[..., float]] = {
    "open": time_opens,
    "write": time_writes,
    "lists": time_lists,
    "import": time_import,
}


def worker() -> None:
    """Do what standard input says, and say how long it took."""
    task = json.loads(sys.stdin.read())
    print(TASKS[task["task"]](task["side"], **task["arguments"]))


# --- rows ---


def names(columns: int, schema: int) -> list[str]:
    """Names that no schema of another number has."""
    return [f"schema_{schema:05}_column_{i:05}" for i in range(columns)]


def write(path: Path, columns: int, number: int, batches: int = 1, rows: int = 100) -> str:
    """A file of float64 columns as pyarrow writes it, read-only."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.float64()) for name in names(columns, number)])
    batch = pa.record_batch([pa.array(np.arange(rows) / 2)] * columns, schema=schema)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    path.chmod(0o400)
    return str(path)


@dataclass(frozen=True)
class Row:
    """What one row measures: a task, and what makes its arguments in a folder."""

    name: str
    task: str
    arguments: Callable[[Path], dict[str, Any]]
    extra: float = 0.0
    """Seconds that are allowed beyond the base, where that is more than 10 %."""


def opens(columns: int, turns: int, *, new: bool, by_name: bool = False, how: str = "one") -> Callable[[Path], Any]:
    """Arguments that open many files, whose schemas are the same or not."""

    def arguments(folder: Path) -> dict[str, Any]:
        operations = []
        first = next(SCHEMAS)
        for turn in range(WARM_UP + turns):
            schema = next(SCHEMAS) if new else first
            path = write(folder / f"{columns}-{first}-{turn}", columns, schema, rows=20 + turn % 10)
            operations.append([path, names(columns, schema)[columns // 2] if by_name else columns // 2, 0])
        return {"how": how, "operations": operations}

    return arguments


def same(columns: int, turns: int, batches: int = 1) -> Callable[[Path], Any]:
    """Arguments that open one file many times, and have any of its batches."""

    def arguments(folder: Path) -> dict[str, Any]:
        path = write(folder / f"same-{next(SCHEMAS)}", columns, 0, batches, rows=8)
        which = np.random.default_rng(0).integers(0, batches, WARM_UP + turns).tolist()
        return {"how": "one", "operations": [[path, columns // 2, batch] for batch in which]}

    return arguments


def writes(columns: int, turns: int, *, new: bool) -> Callable[[Path], Any]:
    return lambda folder: {"folder": str(folder), "columns": columns, "turns": turns, "new": new}


def lists() -> Iterator[Row]:
    """A row for each kind of values, with and without nulls, both ways."""
    for build in (False, True):
        for kind in ("int64", "double", "string"):
            for nulls in (False, True):
                what = "array from a list" if build else "to_pylist"
                arguments = {"kind": kind, "nulls": nulls, "build": build}
                name = f"{what}, {kind}, {'a tenth null' if nulls else 'no nulls'}"
                yield Row(name, "lists", lambda folder, arguments=arguments: arguments)  # type: ignore[misc]


ROWS = (
    Row("open, one column by index; 5 columns, schema not seen before", "open", opens(5, 100, new=True)),
    Row("open, one column by index; 5 columns, schema seen before", "open", opens(5, 100, new=False)),
    Row("open, one column by index; 5 columns, file seen before", "open", same(5, 200), 25e-6),
    Row("open, one column by index; 1,000 columns, schema not seen before", "open", opens(1000, 40, new=True)),
    Row("open, one column by name; 1,000 columns, schema not seen before", "open",
        opens(1000, 40, new=True, by_name=True)),
    Row("open, one column by index; 10,000 columns, schema not seen before", "open", opens(10_000, 15, new=True)),
    Row("open, one column by name; 10,000 columns, schema not seen before", "open",
        opens(10_000, 15, new=True, by_name=True)),
    Row("open, one column by index; 10,000 columns, schema seen before", "open", opens(10_000, 15, new=False)),
    Row("open, one column by index; 10,000 columns, file seen before", "open", same(10_000, 40), 25e-6),
    Row("open, one column of any batch; 100,000 batches", "open", same(5, 200, 100_000), 25e-6),
    Row("import", "import", lambda folder: {}),
    Row("open, all columns; 5 columns, schema seen before", "open", opens(5, 100, new=False, how="all")),
    Row("open, all columns; 1,000 columns, schema not seen before", "open", opens(1000, 20, new=True, how="all")),
    Row("write a batch of 5 columns, schema seen before", "write", writes(5, 100, new=False)),
    Row("write a batch of 1,000 columns, schema seen before", "write", writes(1000, 20, new=False)),
    Row("write a batch of 10,000 columns, schema not seen before", "write", writes(10_000, 8, new=True)),
    *lists(),
)  # fmt: skip


# --- the two checkouts ---


def ask(checkout: Path, side: str, row: Row, arguments: dict[str, Any]) -> float:
    """Seconds that a fresh process of a checkout gives for a row."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = subprocess.run(
        [sys.executable, Path(__file__).resolve(), "--worker"],
        input=json.dumps({"task": row.task, "side": side, "arguments": arguments}),
        env=environment | {"PYTHONPATH": str(checkout)},
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        sys.exit(f"{checkout}, {row.name}: {found.stderr}")
    return float(found.stdout)


def duration(seconds: float) -> str:
    """Microseconds, or milliseconds from 10,000 of them."""
    return f"{seconds * 1e6:.1f} µs" if seconds < 0.01 else f"{seconds * 1e3:.2f} ms"


def measure(row: Row, sides: dict[str, tuple[Path, str]], turns: int) -> bool:
    """Print one row; says whether it is as fast as it has to be."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="shmarrow-bench-", dir=memory) as folder:
        arguments = row.arguments(Path(folder))
        for turn in range(turns + 1):
            for name in sorted(sides, reverse=bool(turn % 2)):
                took = ask(*sides[name], row, arguments)
                if turn:  # the first one has bytecode written and pages backed
                    seconds[name].append(took)
    middle = {name: statistics.median(took) for name, took in seconds.items()}
    best = {name: min(took) for name, took in seconds.items()}
    ratios = middle["current"] / middle["base"], best["current"] / best["base"]
    cells = [row.name, *(duration(middle[name]) for name in sides), *(f"{ratio:.2f}" for ratio in ratios)]
    if "pyarrow" in sides:
        cells.append(f"{middle['pyarrow'] / middle['current']:.2f}")
    slower = all(side["current"] > max(1.1 * side["base"], side["base"] + row.extra) for side in (middle, best))
    print(f"| {' | '.join([*cells, '**slower**' if slower else ''])} |", flush=True)
    return not slower


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two checkouts of shmarrow.")
    parser.add_argument("--base", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--current", type=Path, default=ROOT, help="the checkout to measure; this one by default")
    parser.add_argument("--rows", default="", help="a regular expression that a row's name has to match")
    parser.add_argument("--turns", type=int, default=7, help="processes for each side and row")
    parser.add_argument("--pyarrow", action="store_true", help="measure pyarrow, too")
    chosen = parser.parse_args()
    sides = {"base": (chosen.base.resolve(), "ours"), "current": (chosen.current.resolve(), "ours")}
    if chosen.pyarrow:
        sides["pyarrow"] = (chosen.current.resolve(), "pyarrow")
    heads = ["what", *sides, "over base", "fastest over base"]
    heads += ["pyarrow over current", ""] if chosen.pyarrow else [""]
    print(f"| {' | '.join(heads)} |\n| {' | '.join(['---'] * len(heads))} |", flush=True)
    rows = [row for row in ROWS if re.search(chosen.rows, row.name)]
    kept = [measure(row, sides, chosen.turns) for row in rows]
    print(f"\n{kept.count(True)} of {len(kept)} rows are as fast as they have to be.")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        worker()
    else:
        sys.exit(main())
