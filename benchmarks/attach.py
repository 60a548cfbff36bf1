"""Opening: from a file's name to a column as an ndarray, beside pyarrow and polars; run it with ``make bench``.

All sides open the same file, which pyarrow wrote. A schema "not seen before" has names that nothing before had in this
process; one "seen before, in another file" comes in a file that was written anew for each turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from _bench import Bench, Extra, Faster, Operation, bench, faster

import shmarrow as sa

SCHEMAS = count()
BLOCK = 10


def names(columns: int, schema: int) -> list[str]:
    """Names that no schema of another number has."""
    return [f"schema_{schema:05}_column_{i:05}" for i in range(columns)]


def write(path: Path, columns: int, number: int, batches: int = 1, rows: int = 100) -> None:
    """A file of float64 columns as pyarrow writes it, read-only as shmarrow publishes it."""
    schema = pa.schema([(name, pa.float64()) for name in names(columns, number)])
    values = pa.array(np.arange(rows) / 2)
    batch = pa.record_batch([values] * columns, schema=schema)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    path.chmod(0o400)


def ours(path: str, key: int | str, batch: int = 0) -> Any:
    return sa.ipc.open_file(path).get_batch(batch).column(key).to_numpy()


def pyarrows(path: str, key: int | str, batch: int = 0) -> Any:
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).get_batch(batch).column(key).to_numpy()


def polars(path: str, key: int | str) -> Any:
    columns: Any = [key]
    return pl.read_ipc(path, columns=columns).to_series(0).to_numpy()


# Each is given a path and a column's name or position.
SIDES: dict[str, Operation] = {
    "shmarrow": lambda given: ours(*given),
    "pyarrow": lambda given: pyarrows(*given),
    "polars": lambda given: polars(*given),
}


def check(path: str, key: int | str) -> None:
    """All sides have the same values."""
    np.testing.assert_array_equal(ours(path, key), pyarrows(path, key))
    np.testing.assert_array_equal(ours(path, key), polars(path, key))


def another_file(page: Bench, columns: int, times: float, turns: int, *, new: bool, by_name: bool = False) -> None:
    """Open a file that was written for this turn, with a schema that is new or not, and have its middle column."""
    middle = columns // 2

    def prepare(turn: int) -> tuple[str, int | str]:
        schema = next(SCHEMAS) if new or not turn else 0
        path = page.scratch / f"another-{turn % BLOCK}"
        path.unlink(missing_ok=True)
        write(path, columns, schema, rows=100 + turn % 10)
        return str(path), names(columns, schema)[middle] if by_name else middle

    how = "name" if by_name else "index"
    seen = "not seen before" if new else "seen before, in another file"
    what = f"open, one column by {how}; {columns:,} columns, schema {seen}"
    page.row(what, SIDES, faster(times), turns, prepare, block=BLOCK)
    check(str(page.scratch / "another-0"), middle)


def same_file(page: Bench, columns: int, times: float, turns: int) -> None:
    """Open a file that was opened before, and have its middle column."""
    path = page.scratch / "same"
    middle = columns // 2
    write(path, columns, next(SCHEMAS))
    sleep(0.5)
    page.row(
        f"open, one column by index; {columns:,} columns, file seen before",
        SIDES,
        faster(times),
        turns,
        lambda turn: (str(path), middle),
        block=BLOCK,
    )


def many_batches(page: Bench, batches: int, turns: int) -> None:
    """Open a file of many batches and have a column of any one of them, beside a file of one."""
    many, one = (str(page.scratch / f"{n}-batches") for n in ("many", "one"))
    write(Path(many), 5, 0, batches, rows=8)
    write(Path(one), 5, 0, 1, rows=8)
    which = np.random.default_rng(0).integers(0, batches, 100_000).tolist()
    page.row(
        f"open, one column of any batch; {batches:,} batches",
        {
            "shmarrow": lambda turn: ours(many, 2, which[turn]),
            "itself, 1 batch": lambda turn: ours(one, 2),
            "pyarrow": lambda turn: pyarrows(many, 2, which[turn]),
        },
        Faster(1 / 1.3, "at most 1.3 times the time"),
        turns,
        lambda turn: turn,
        block=BLOCK,
    )


def fresh_import(module: str) -> float:
    """Seconds that an import takes in a fresh interpreter, by its own clock."""
    code = f"from time import perf_counter as clock\nstart = clock()\nimport {module}\nprint(clock() - start)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(found.stdout)


def imports(page: Bench, turns: int) -> None:
    """Import in fresh interpreters, with bytecode cached."""
    for module in ("numpy", "shmarrow", "pyarrow"):
        fresh_import(module)
    page.row(
        "`import shmarrow`, fresh interpreter",
        {
            "shmarrow": lambda turn: fresh_import("shmarrow"),
            "`import numpy`": lambda turn: fresh_import("numpy"),
            "pyarrow": lambda turn: fresh_import("pyarrow"),
        },
        Extra(0.015, "at most 15 ms more"),
        turns,
        time=lambda operation, given: operation(given),
    )


def main() -> None:
    with bench("Opening") as page:
        another_file(page, 5, 1.5, 20, new=True)
        another_file(page, 5, 1.5, 20, new=False)
        same_file(page, 5, 1.5, 20)
        for columns, times, turns in ((1_000, 10, 5), (10_000, 30, 2)):
            for by_name in (False, True):
                another_file(page, columns, times, turns, new=True, by_name=by_name)
        another_file(page, 10_000, 100, 2, new=False)
        same_file(page, 10_000, 100, 5)
        many_batches(page, 100_000, 10)
        imports(page, 10)


if __name__ == "__main__":
    main()
