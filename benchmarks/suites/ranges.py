"""Reading by ranges: how many bytes of a file on an object store are fetched for one of its columns.

The file is an ``fsspec`` file that has no buffer of its own and counts what is asked of it. It has 100 batches of 100
columns of 1,000 float64. Besides the bytes of the column, a reader needs the footer and the header of the batch.
"""

from __future__ import annotations

import io

import fsspec
import numpy as np
import pyarrow as pa
from fsspec.spec import AbstractBufferedFile
from harness.bench import Bench

import shmarrow as sa

BATCHES = COLUMNS = 100
ROWS = 1_000
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


def made() -> bytes:
    """The bytes of the file."""
    values = pa.array(np.arange(ROWS) / 2)
    batch = pa.record_batch([values] * COLUMNS, [f"column_{i:02}" for i in range(COLUMNS)])
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for _ in range(BATCHES):
            writer.write_batch(batch)
    return sink.getvalue()


def fetched(bench: Bench) -> None:
    data = made()
    footer = int.from_bytes(data[-10:-6], "little")
    header = len(data) // BATCHES - COLUMNS * 8 * ROWS  # of a batch, with its padding
    for what, included in (("all are included", None), ("it alone is included", ["column_42"])):
        file = CountedFile(data)
        with sa.ipc.open_file(file, included_fields=included) as reader:
            found = reader.get_batch(50).column("column_42").to_numpy()
        np.testing.assert_array_equal(found, np.arange(ROWS) / 2)
        total = sum(end - start for start, end in file.ranges)
        name = f"one of {COLUMNS} columns of one of {BATCHES} batches, {what}"
        beyond = max(total - footer - header, 0) / len(data)
        bench.limit(f"{name}: bytes fetched beyond the metadata", [beyond], MOST, "share")
        bench.limit(f"{name}: requests", [len(file.ranges)], None, "requests")


PARTS = {"fetched": fetched}
