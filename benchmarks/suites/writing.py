"""Writing: columns in memory to a file in shared memory, beside pyarrow and polars.

All sides write the same ndarrays. Each file is removed before the next is written, so all sides get pages that the
host has backed before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from harness.bench import Bench, timed_write, warm_memory
from harness.figures import AS_FAST, Faster, Point, within

import shmarrow as sa

COLUMNS = 16


def write(batch: sa.RecordBatch, path: Path) -> None:
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)


def pa_write(batch: Any, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def floats(bench: Bench) -> None:
    """Write float64 columns of so many bytes in all."""
    largest = 1 << 27 if bench.quick else 1 << 30
    warm_memory(bench.scratch, 2 * largest)
    for size in (1 << 20, 1 << 24, largest):
        values = np.random.default_rng(0).random((COLUMNS, size // 8 // COLUMNS))
        columns = {f"column_{i}": column for i, column in enumerate(values)}
        mine = sa.record_batch(columns)
        theirs = pa.record_batch([pa.array(column) for column in values], list(columns))
        frame = pl.from_arrow(theirs)
        path = bench.scratch / "floats"
        bench.row(
            f"write {size >> 20:,} MiB of float64, {COLUMNS} columns",
            {
                "shmarrow": lambda path, mine=mine: write(mine, path),
                "pyarrow": lambda path, theirs=theirs: pa_write(theirs, path),
                "polars": lambda path, frame=frame: frame.write_ipc(path),
            },
            AS_FAST if size == largest else None,
            3,
            lambda turn, path=path: path,
            timed_write,
            point=Point("Write float64 columns to a file in shared memory", "bytes", size),
        )
        write(mine, path)
        with pa.memory_map(str(path)) as source:
            assert pa.ipc.open_file(source).get_batch(0).equals(theirs)
        path.unlink()


def wide_batch(columns: int, turn: int) -> Any:
    """A batch of float64 columns whose names no other turn has."""
    values = np.random.default_rng(turn).random((columns, 100))
    names = [f"turn_{turn:04}_column_{i:05}" for i in range(columns)]
    return pa.record_batch([pa.array(column) for column in values], names)


def wide(bench: Bench) -> None:
    """Write a batch to a new file."""
    path = bench.scratch / "wide"
    batches: dict[str, Any] = {}

    def prepare(columns: int, turn: int) -> Path:
        theirs = wide_batch(columns, turn)
        arrays = {name: column.to_numpy() for name, column in zip(theirs.schema.names, theirs.columns, strict=True)}
        batches.update(ours=sa.record_batch(arrays), theirs=theirs, frame=pl.from_arrow(theirs))
        return path

    for columns, required in ((5, within(3)), (1_000, None), (10_000, Faster(0.7, "0.7 times as fast"))):
        bench.row(
            f"write a batch of {columns:,} columns, schema not seen before",
            {
                "shmarrow": lambda path: write(batches["ours"], path),
                "pyarrow": lambda path: pa_write(batches["theirs"], path),
                "polars": lambda path: batches["frame"].write_ipc(path),
            },
            required,
            20 if columns < 10_000 else 3,
            lambda turn, columns=columns: prepare(columns, turn),
            timed_write,
            point=Point("Write a batch, schema not seen before", "columns", columns),
        )


PARTS = {"floats": floats, "wide": wide}
