"""Writing: columns in memory to a file in shared memory, beside pyarrow and polars; run it with ``make bench``.

All sides write the same ndarrays. Each file is removed before the next is written, so all get pages that the host has
backed before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from _bench import AS_FAST, Bench, bench, timed_write, warm_memory

import shmarrow as sa

COLUMNS = 16


def ours(batch: sa.RecordBatch, path: Path) -> None:
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)


def pyarrows(batch: Any, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def floats(page: Bench, size: int, turns: int) -> None:
    """Write float64 columns of ``size`` bytes in all."""
    warm_memory(page.scratch, 2 * size)
    values = np.random.default_rng(0).random((COLUMNS, size // 8 // COLUMNS))
    columns = {f"column_{i}": column for i, column in enumerate(values)}
    mine = sa.record_batch(columns)
    theirs = pa.record_batch([pa.array(column) for column in values], list(columns))
    frame = pl.from_arrow(theirs)
    path = page.scratch / "floats"
    page.row(
        f"write {size >> 20:,} MiB of float64, {COLUMNS} columns",
        {
            "shmarrow": lambda path: ours(mine, path),
            "pyarrow": lambda path: pyarrows(theirs, path),
            "polars": lambda path: frame.write_ipc(path),
        },
        AS_FAST,
        turns,
        lambda turn: path,
        timed_write,
    )
    ours(mine, path)
    with pa.memory_map(str(path)) as source:
        assert pa.ipc.open_file(source).get_batch(0).equals(theirs)


def main() -> None:
    with bench("Writing") as page:
        floats(page, 1 << 27 if page.quick else 1 << 30, 3)


if __name__ == "__main__":
    main()
