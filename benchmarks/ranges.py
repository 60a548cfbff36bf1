"""Reading by ranges: how many bytes of a file on an object store are fetched for one of its columns.

The file is an ``fsspec`` file that has no buffer of its own and counts what is asked of it. It has 100 batches of 100
columns of float64. Besides the bytes of the column, a reader needs the footer and the header of the batch.
"""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
from fsspec.spec import AbstractBufferedFile

import shmarrow as sa

BATCHES = COLUMNS = 100
MOST = 0.001
"""The share of the file that may be fetched beyond its metadata."""


class CountedFile(AbstractBufferedFile):
    """A file over some bytes, as a file system opens one, and the ranges that were fetched from it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(fsspec.filesystem("memory"), "/counted", cache_type="none", size=len(data))
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    def _fetch_range(self, start: int, end: int) -> bytes:
        self.ranges.append((start, end))
        return self.data[start:end]


def made(rows: int) -> bytes:
    """The bytes of the file."""
    values = pa.array(np.arange(rows) / 2)
    batch = pa.record_batch([values] * COLUMNS, [f"column_{i:02}" for i in range(COLUMNS)])
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for _ in range(BATCHES):
            writer.write_batch(batch)
    return sink.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the bytes that are fetched for one column of one batch.")
    parser.add_argument("--rows", type=int, default=1_000, help="of each batch; 1,000 by default")
    rows = parser.parse_args().rows
    data = made(rows)
    footer = int.from_bytes(data[-10:-6], "little")
    header = len(data) // BATCHES - COLUMNS * 8 * rows  # of a batch, and what is padded
    column: dict[str, Any] = {"all of a batch, one is used": None, "one is included": ["column_42"]}
    print(f"{len(data):,} bytes, {footer:,} of them footer\n")
    print("| columns | fetched | requests | share | share beyond the metadata | reached |")
    print("| --- | --- | --- | --- | --- | --- |")
    reached = []
    for what, included in column.items():
        file = CountedFile(data)
        with sa.ipc.open_file(file, included_fields=included) as reader:
            found = reader.get_batch(50).column("column_42").to_numpy()
        np.testing.assert_array_equal(found, np.arange(rows) / 2)
        fetched = sum(end - start for start, end in file.ranges)
        beyond = max(fetched - footer - header, 0) / len(data)
        reached.append(beyond < MOST)
        cells = f"{fetched:,} | {len(file.ranges)} | {fetched / len(data):.3%} | {beyond:.3%}"
        print(f"| {what} | {cells} | {'yes' if reached[-1] else '**no**'} |")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
