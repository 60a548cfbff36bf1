"""The rest of the format: wide batches, compression, validation, Python values; run it with ``make bench``.

Arrays are made anew for each turn where they could remember something of the turn before; both sides' arrays share one
memory. A schema "not seen before" has names that no turn before had.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from _bench import AS_FAST, Bench, Faster, bench, timed_write, warm_memory, within

import shmarrow as sa


def write(batch: sa.RecordBatch, path: Path) -> None:
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)


def pa_write(batch: Any, path: Path, options: Any = None) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def wide_batch(columns: int, turn: int) -> Any:
    """A batch of float64 columns whose names no other turn has."""
    values = np.random.default_rng(turn).random((columns, 100))
    names = [f"turn_{turn:04}_column_{i:05}" for i in range(columns)]
    return pa.record_batch([pa.array(column) for column in values], names)


# --- wide batches ---


def write_wide(page: Bench, columns: int, turns: int) -> None:
    """Write a batch to a new file."""
    path = page.scratch / "wide"
    batches: dict[str, Any] = {}

    def prepare(turn: int) -> Path:
        theirs = wide_batch(columns, turn)
        arrays = {name: column.to_numpy() for name, column in zip(theirs.schema.names, theirs.columns, strict=True)}
        batches.update(ours=sa.record_batch(arrays), theirs=theirs, frame=pl.from_arrow(theirs))
        return path

    page.row(
        f"write a batch of {columns:,} columns, schema not seen before",
        {
            "shmarrow": lambda path: write(batches["ours"], path),
            "pyarrow": lambda path: pa_write(batches["theirs"], path),
            "polars": lambda path: batches["frame"].write_ipc(path),
        },
        Faster(0.8, "0.8 times as fast"),
        turns,
        prepare,
        timed_write,
    )


def all_columns(path: str) -> list[Any]:
    return [column.to_numpy() for column in sa.ipc.open_file(path).get_batch(0).columns]


def pa_all_columns(path: str) -> list[Any]:
    with pa.memory_map(path) as source:
        return [column.to_numpy() for column in pa.ipc.open_file(source).get_batch(0).columns]


def pl_all_columns(path: str) -> list[Any]:
    return [column.to_numpy() for column in pl.read_ipc(path)]


ALL_COLUMNS = {"shmarrow": all_columns, "pyarrow": pa_all_columns, "polars": pl_all_columns}


def read_wide(page: Bench, columns: int, turns: int) -> None:
    """Open a file and have all columns as ndarrays."""
    path = page.scratch / "wide"
    what = f"open, all columns to numpy; {columns:,} columns, schema"

    def prepare(turn: int) -> str:
        path.unlink(missing_ok=True)
        pa_write(wide_batch(columns, turn), path)
        return str(path)

    page.row(f"{what} not seen before", ALL_COLUMNS, AS_FAST, turns, prepare)
    page.row(f"{what} seen before", ALL_COLUMNS, AS_FAST, turns, lambda turn: str(path))
    ours = sa.ipc.open_file(path)
    with pa.memory_map(str(path)) as source:
        theirs = pa.ipc.open_file(source)
        page.row(
            f"all columns to numpy of an open file's batch; {columns:,} columns",
            {
                "shmarrow": lambda turn: [column.to_numpy() for column in ours.get_batch(0).columns],
                "pyarrow": lambda turn: [column.to_numpy() for column in theirs.get_batch(0).columns],
            },
            AS_FAST,
            turns,
        )
        np.testing.assert_array_equal(all_columns(str(path)), pa_all_columns(str(path)))
    path.unlink()


RESHAPE: dict[str, Callable[[Any, list[str]], Any]] = {
    "slice": lambda batch, names: batch.slice(1, 50),
    "replace_schema_metadata": lambda batch, names: batch.replace_schema_metadata({"a": "b"}),
    "rename_columns": lambda batch, names: batch.rename_columns(names),
}


def reshape(page: Bench, columns: int, turns: int) -> None:
    """What gives another batch over the same bytes, and builds none of its columns."""
    paths = {n: page.scratch / f"reshape-{n}" for n in (columns, 1)}
    names = {n: [f"renamed_{i}" for i in range(n)] for n in paths}
    for n, path in paths.items():
        pa_write(wide_batch(n, 0), path)
    for name, operation in RESHAPE.items():
        page.row(
            f"{name} of a batch of {columns:,} mapped columns",
            {
                "shmarrow": lambda batches, operation=operation: operation(batches[columns], names[columns]),
                "itself, 1 column": lambda batches, operation=operation: operation(batches[1], names[1]),
            },
            within(2),
            turns,
            lambda turn: {n: sa.ipc.open_file(path).get_batch(0) for n, path in paths.items()},
            block=10,
        )
    for path in paths.values():
        path.unlink()


# --- compression ---


def decompress(page: Bench, codec: str, size: int, turns: int) -> None:
    """Open a file of 64 compressed buffers and have all columns; both sides on threads."""
    values = np.random.default_rng(0).integers(0, 10_000, (64, size // 64 // 8))
    batch = pa.record_batch([pa.array(column) for column in values], [f"column_{i}" for i in range(64)])
    path = page.scratch / "compressed"
    pa_write(batch, path, pa.ipc.IpcWriteOptions(compression=codec))
    warm_memory(page.scratch, 2 * size)
    page.row(
        f"open, decompress {codec.upper()}, {size >> 20} MiB in 64 buffers",
        ALL_COLUMNS,
        AS_FAST,
        turns,
        lambda turn: str(path),
    )
    np.testing.assert_array_equal(all_columns(str(path)), values)
    path.unlink()


# --- validation ---


def strings(rows: int, words: list[str]) -> Any:
    """Words at random, as one string array."""
    indices = np.random.default_rng(0).integers(0, len(words), rows)
    return pa.array(words).take(pa.array(indices))


def lists(rows: int) -> Any:
    """Lists of up to five int64."""
    lengths = np.random.default_rng(0).integers(0, 6, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.arange(offsets[-1])))


def indices(rows: int, null: bool) -> Any:
    """Dictionary indices, a tenth of them null where asked for."""
    generator = np.random.default_rng(0)
    mask = generator.random(rows) < 0.1 if null else None
    found = pa.array(generator.integers(0, 1000, rows).astype(np.int32), mask=mask)
    return pa.DictionaryArray.from_arrays(found, pa.array(words(1000)))


def words(count: int, letters: str = "abcdefghijklmnopqrstuvwxyz") -> list[str]:
    """Words of 3 to 15 letters."""
    generator = random.Random(0)
    return ["".join(generator.choices(letters, k=generator.randint(3, 15))) for _ in range(count)]


def validate(page: Bench, rows: int, turns: int) -> None:
    """Check all values."""
    cases = {
        "strings, ASCII": strings(rows, words(1000)),
        "strings, one in ten not ASCII": strings(rows, words(900) + words(100, "aeiouäöüßéèñçøå東京")),
        "strings, none ASCII": strings(rows, words(1000, "äöüßéèñçøå東京")),
        "rows of list<int64>": lists(rows),
        "dictionary indices": indices(rows, False),
        "dictionary indices, a tenth null": indices(rows, True),
    }
    for what, theirs in cases.items():
        page.row(
            f"validate fully {rows:,} {what}",
            {
                "shmarrow": lambda arrays: arrays[0].validate(full=True),
                "pyarrow": lambda arrays: arrays[1].validate(full=True),
            },
            within(2),
            turns,
            lambda turn, theirs=theirs: (sa.Array.from_pyarrow(theirs), theirs.slice(0)),
        )


# --- Python values ---


def values(page: Bench, rows: int, turns: int) -> None:
    """Build columns of Python lists, and lists of columns."""
    generator = random.Random(0)
    cases: dict[str, list[Any]] = {
        "int": [generator.randrange(-(1 << 40), 1 << 40) for _ in range(rows)],
        "float": [generator.random() for _ in range(rows)],
        "string": [f"value {generator.randrange(1 << 30)}" for _ in range(rows)],
    }
    for kind in list(cases):
        cases[f"{kind}, a tenth null"] = [None if generator.random() < 0.1 else value for value in cases[kind]]
    for kind, data in cases.items():
        page.row(
            f"build {rows:,} {kind} from a list",
            {"shmarrow": sa.array, "pyarrow": pa.array, "polars": pl.Series},
            within(3),
            turns,
            lambda turn, data=data: data,
        )
        theirs = pa.array(data)
        series = pl.Series(data)
        page.row(
            f"{rows:,} {kind} to_pylist",
            {
                "shmarrow": lambda arrays: arrays[0].to_pylist(),
                "pyarrow": lambda arrays: arrays[1].to_pylist(),
                "polars": lambda arrays: arrays[2].to_list(),
            },
            within(3),
            turns,
            lambda turn, theirs=theirs, series=series: (sa.Array.from_pyarrow(theirs), theirs, series),
        )
        assert sa.array(data).to_pylist() == data


def main() -> None:
    with bench("The whole format") as page:
        write_wide(page, 10_000, 3)
        read_wide(page, 1_000, 20)
        reshape(page, 1_000, 20)
        for codec in ("lz4", "zstd"):
            decompress(page, codec, 1 << 25 if page.quick else 1 << 28, 3)
        validate(page, 1_000_000 if page.quick else 10_000_000, 3)
        values(page, 100_000 if page.quick else 1_000_000, 2)


if __name__ == "__main__":
    main()
