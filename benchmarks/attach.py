"""Opening: from a file's name to a column as an ndarray, beside pyarrow and polars; run it with ``make bench``.

A schema "not seen before" has names that no turn before had; all sides open the same file, which pyarrow wrote. One
"seen before" comes in another file than in the turn before, with other data.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from _bench import Bench, Extra, Faster, Operation, bench, faster

import shmarrow as sa


def names(columns: int, turn: int) -> list[str]:
    """Names that no other turn has."""
    return [f"turn_{turn:04}_column_{i:05}" for i in range(columns)]


def write(path: Path, columns: int, turn: int, batches: int = 1, rows: int = 100) -> None:
    """A file of float64 columns, as pyarrow writes it."""
    schema = pa.schema([(name, pa.float64()) for name in names(columns, turn)])
    values = pa.array(np.arange(rows) / 2)
    batch = pa.record_batch([values] * columns, schema=schema)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)


def ours(path: str, key: int | str, batch: int = 0) -> Any:
    return sa.ipc.open_file(path).get_batch(batch).column(key).to_numpy()


def pyarrows(path: str, key: int | str, batch: int = 0) -> Any:
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).get_batch(batch).column(key).to_numpy()


def polars(path: str, key: int | str) -> Any:
    columns: Any = [key]
    return pl.read_ipc(path, columns=columns).to_series(0).to_numpy()


def sides(key: Callable[[int], int | str]) -> dict[str, Operation]:
    """All three, for turns that are given a path and their number."""
    return {
        "shmarrow": lambda given: ours(given[0], key(given[1])),
        "pyarrow": lambda given: pyarrows(given[0], key(given[1])),
        "polars": lambda given: polars(given[0], key(given[1])),
    }


def check(path: str, key: int | str) -> None:
    """All sides have the same values."""
    np.testing.assert_array_equal(ours(path, key), pyarrows(path, key))
    np.testing.assert_array_equal(ours(path, key), polars(path, key))


def unseen(page: Bench, columns: int, times: float, by_name: bool, turns: int) -> None:
    """Open a file whose schema is new, and have its middle column."""
    path = page.scratch / "unseen"
    middle = columns // 2

    def key(turn: int) -> int | str:
        return f"turn_{turn:04}_column_{middle:05}" if by_name else middle

    def prepare(turn: int) -> tuple[str, int]:
        path.unlink(missing_ok=True)
        write(path, columns, turn + offset)
        return str(path), turn + offset

    # By index and by name, turns are counted on, so that no names come twice.
    offset = 5000 if by_name else 0
    how = "name" if by_name else "index"
    what = f"open, one column by {how}; {columns:,} columns, schema not seen before"
    page.row(what, sides(key), faster(times), turns, prepare)
    check(str(path), middle)


def seen(page: Bench, columns: int, times: float, turns: int) -> None:
    """Open one of two files that share a schema, and have its middle column."""
    paths = [page.scratch / f"seen-{columns}-{i}" for i in range(2)]
    for i, path in enumerate(paths):
        write(path, columns, 9999, rows=100 + i)
    middle = columns // 2
    page.row(
        f"open, one column by index; {columns:,} columns, schema seen before",
        sides(lambda turn: middle),
        faster(times),
        turns,
        lambda turn: (str(paths[turn % 2]), turn),
    )
    check(str(paths[1]), middle)


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
        seen(page, 5, 1.5, 100)
        unseen(page, 5, 1.5, False, 100)
        for by_name in (False, True):
            unseen(page, 1_000, 10, by_name, 20)
        for by_name in (False, True):
            unseen(page, 10_000, 30, by_name, 5)
        seen(page, 10_000, 100, 10)
        many_batches(page, 100_000, 60)
        imports(page, 10)


if __name__ == "__main__":
    main()
