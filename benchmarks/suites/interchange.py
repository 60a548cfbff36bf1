"""Interchange: data handed to other libraries, without a copy.

Data are mapped files, so what is compared is how a library gets at memory that is there already: through capsules of
ours, with its own reader, or as objects of pyarrow.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from harness.bench import Bench
from harness.figures import AS_FAST, Extra, faster, within
from harness.memory import fresh

import shmarrow as sa

MIB = 1 << 20


@cache
def numbers_file(bench: Bench) -> Path:
    """A file of eight columns of numbers in four batches: 1 GiB, or 64 MiB where the bench is quick."""
    path = bench.scratch / "numbers.arrow"
    rows = ((64 if bench.quick else 1024) * MIB >> 6) // 4
    random = np.random.default_rng(0)
    columns = {f"c{i}": random.random(rows) if i % 2 else random.integers(0, 1 << 40, rows) for i in range(8)}
    batch = sa.record_batch(columns)
    with sa.ipc.new_file(path, batch.schema) as writer:
        for _ in range(4):
            writer.write(batch)
    return path


@cache
def text_file(bench: Bench) -> Path:
    """A file with a column of numbers and one of text, in four batches: an eighth of that size."""
    path = bench.scratch / "text.arrow"
    rows = ((8 if bench.quick else 128) * MIB >> 6) // 4
    words = sa.array([f"customer number {i}, of some street" for i in range(rows)], "string_view")
    batch = sa.record_batch({"n": np.arange(rows), "text": words})
    with sa.ipc.new_file(path, batch.schema) as writer:
        for _ in range(4):
            writer.write(batch)
    return path


@cache
def wide_batches(bench: Bench, columns: int) -> tuple[Path, Any]:
    """A file of one batch of so many columns of numbers, and the same batch mapped by pyarrow."""
    path = bench.scratch / f"wide{columns}.arrow"
    batch = sa.record_batch({f"c{i}": np.arange(1000) + i for i in range(columns)})
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
    return path, pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


def polars_rows(bench: Bench) -> None:
    for what, path, required in (("numbers", numbers_file(bench), 20), ("text", text_file(bench), 1)):
        size = path.stat().st_size // MIB
        bench.row(
            f"a mapped file of {size} MiB of {what} as a polars DataFrame",
            {
                "shmarrow": lambda _, path=path: pl.DataFrame(sa.ipc.open_file(path)),
                "polars scan_ipc": lambda _, path=path: pl.scan_ipc(path).collect(),
                "pyarrow": lambda _, path=path: pl.from_arrow(pa.ipc.open_file(pa.memory_map(str(path))).read_all()),
            },
            AS_FAST if required == 1 else faster(required),
            10,
        )
        ours = anonymous(f"frame = pl.DataFrame(sa.ipc.open_file({str(path)!r}))")
        theirs = anonymous(f"frame = pl.scan_ipc({str(path)!r}).collect()")
        name = f"a mapped file of {size} MiB of {what} as a polars DataFrame: anonymous memory"
        bench.limit(name, [ours], 8 * MIB, "bytes", peers={"polars scan_ipc": theirs})
    path = text_file(bench)
    with sa.Store(bench.scratch / "store") as store:
        store.put("text", sa.ipc.open_file(path, memory_map=False).read_all())
        bench.row(
            f"{path.stat().st_size // MIB} MiB of text from a store as a polars DataFrame",
            {
                "shmarrow": lambda _: pl.DataFrame(store.get("text")),
                "pyarrow": lambda _: pl.from_arrow(pa.ipc.open_file(pa.memory_map(str(path))).read_all()),
            },
            within(3),
            10,
        )
        store.destroy()


def export_rows(bench: Bench) -> None:
    for columns, turns, required in ((10, 200, within(6)), (1000, 50, within(5))):
        path, theirs = wide_batches(bench, columns)
        reader = sa.ipc.open_file(path)
        ours = reader.get_batch(0)
        bench.row(
            f"export of a batch of {columns} columns, opened each time",
            {
                "shmarrow": lambda _, reader=reader: reader.get_batch(0).__arrow_c_array__(),
                "pyarrow": lambda _, theirs=theirs: theirs.__arrow_c_array__(),
            },
            required,
            turns,
        )
        for name, export in (
            ("pyarrow", pa.record_batch),
            ("polars", pl.DataFrame),
            ("duckdb", lambda batch: duckdb.sql("select max(c0) from batch").fetchall()),
        ):
            bench.row(
                f"{columns} columns to {name}",
                {
                    "shmarrow": lambda _, export=export, ours=ours: export(ours),
                    "pyarrow's batch": lambda _, export=export, theirs=theirs: export(theirs),
                },
                Extra(1e-3 if columns == 10 else 5e-3, "under 1 ms more" if columns == 10 else "under 5 ms more"),
                turns // 4,
            )
    mixed = sa.record_batch({f"c{i}": [i, None, 3] if i % 2 else ["a", None, f"{i}"] for i in range(1000)})
    theirs = pa.record_batch(mixed)
    bench.row(
        "export of a batch of 1,000 columns of numbers and text with nulls, in memory",
        {"shmarrow": lambda _: mixed.__arrow_c_array__(), "pyarrow": lambda _: theirs.__arrow_c_array__()},
        within(5),
        50,
    )


def anonymous(code: str) -> float:
    """Bytes of anonymous memory that a process of its own takes for some code, its imports left out."""
    program = f"""
import polars as pl, pyarrow as pa, shmarrow as sa, numpy as np
def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024
pl.DataFrame(sa.record_batch({{"a": [1]}})), pl.DataFrame({{"a": [1]}}).lazy().collect()
before = resident()
{code}
print(resident() - before)
"""
    return fresh(program)[0]


PARTS = {"polars": polars_rows, "export": export_rows}
