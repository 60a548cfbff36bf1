"""Opening: from a file's name to columns as ndarrays, beside pyarrow and polars.

All sides open the same file, which pyarrow wrote. A schema "not seen before" has names that nothing before had in this
process; one "seen before" comes in files that were written anew for each turn.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from harness.bench import Bench, Operation
from harness.figures import Faster, Point, Requirement, faster, within

import shmarrow as sa

SCHEMAS = count()
BLOCK = 10


def names(columns: int, schema: int) -> list[str]:
    """Names that no schema of another number has."""
    return [f"schema_{schema:05}_column_{i:05}" for i in range(columns)]


def write(path: Path, columns: int, number: int, batches: int = 1, rows: int = 100) -> None:
    """A file of float64 columns as pyarrow writes it, read-only as shmarrow publishes it."""
    path.unlink(missing_ok=True)
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
ONE: dict[str, Operation] = {
    "shmarrow": lambda given: ours(*given),
    "pyarrow": lambda given: pyarrows(*given),
    "polars": lambda given: polars(*given),
}


def check(path: str, key: int | str) -> None:
    """All sides have the same values."""
    np.testing.assert_array_equal(ours(path, key), pyarrows(path, key))
    np.testing.assert_array_equal(ours(path, key), polars(path, key))


def plotted(how: str, columns: int) -> Point:
    return Point(f"Open a file and read {how}", "columns", columns)


# --- one column -------------------------------------------------------------------------------------------------


def one_column(
    bench: Bench, columns: int, required: Requirement | None, turns: int, *, new: bool, by_name: bool = False
) -> None:
    """Open a file that was written for this turn, with a schema that is new or not, and have its middle column."""
    middle = columns // 2
    block = BLOCK if columns <= 10_000 else 1
    first = next(SCHEMAS)

    def prepare(turn: int) -> tuple[str, int | str]:
        schema = next(SCHEMAS) if new else first
        path = bench.scratch / f"another-{turn % block}"
        write(path, columns, schema, rows=100 + turn % 10)
        return str(path), names(columns, schema)[middle] if by_name else middle

    how = "name" if by_name else "index"
    seen = "not seen before" if new else "seen before"
    what = f"open, one column by {how}; {columns:,} columns, schema {seen}"
    point = plotted("one column", columns) if new and not by_name else None
    bench.row(what, ONE, required, turns, prepare, block=block, point=point)
    check(*prepare(0))


def few(bench: Bench) -> None:
    one_column(bench, 5, faster(1.5), 20, new=True)
    one_column(bench, 5, None, 20, new=False)


def wide(bench: Bench) -> None:
    for columns, times, turns in ((1_000, 3, 5), (10_000, 9, 2)):
        one_column(bench, columns, faster(times), turns, new=True)
        one_column(bench, columns, None, turns, new=True, by_name=True)
    one_column(bench, 10_000, None, 2, new=False)


# --- batches ----------------------------------------------------------------------------------------------------


def batches(bench: Bench) -> None:
    """Open a file of many batches and have a column of any one of them, beside a file of one."""
    one = str(bench.scratch / "one")
    write(Path(one), 5, 0, 1, rows=8)
    for number in (1, 10_000) if bench.quick else (1, 100, 10_000, 100_000):
        many = str(bench.scratch / "many")
        write(Path(many), 5, 0, number, rows=8)
        which = np.random.default_rng(0).integers(0, number, 100_000).tolist()
        sides: dict[str, Operation] = {
            "shmarrow": lambda turn, many=many, which=which: ours(many, 2, which[turn]),
            "itself, 1 batch": lambda turn: ours(one, 2),
            "pyarrow": lambda turn, many=many, which=which: pyarrows(many, 2, which[turn]),
        }
        bench.row(
            f"open, one column of any batch; {number:,} {'batch' if number == 1 else 'batches'}",
            sides,
            Faster(1 / 1.3, "at most 1.3 times the time") if number == 100_000 else None,
            10,
            lambda turn: turn,
            block=BLOCK,
            point=Point("Open a file and read one column of any batch", "batches", number),
        )


def streams(bench: Bench) -> None:
    """Read all of a stream of tiny batches."""
    count = 1_000 if bench.quick else 10_000
    path = str(bench.scratch / "stream")
    for columns in (1, 5):
        batch = pa.record_batch({f"c{i}": np.arange(8.0) for i in range(columns)})
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
            for _ in range(count):
                writer.write_batch(batch)

        def theirs(_: Any) -> Any:
            with pa.memory_map(path) as source:
                return pa.ipc.open_stream(source).read_all()

        assert theirs(0).num_rows == sa.ipc.open_stream(path).read_all().num_rows == 8 * count
        sides: dict[str, Operation] = {
            "shmarrow": lambda _: sa.ipc.open_stream(path).read_all(),
            "pyarrow": theirs,
        }
        column = "column" if columns == 1 else "columns"
        what = f"read_all of a mapped stream of {count:,} batches of 8 rows, {columns} {column}"
        bench.row(what, sides, within(3), 10)


PARTS = {"few": few, "wide": wide, "batches": batches, "streams": streams}
