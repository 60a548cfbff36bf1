# SPDX-License-Identifier: Apache-2.0
"""Arrow files of batches of any size, with any dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shmarrow.columns import RecordBatch, Table, concat_batches
from shmarrow.interchange.foreign import Rows
from shmarrow.ipc import RecordBatchFileWriter
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.memory import Sink
from shmarrow.types import has_dictionary


class ArrowFile:
    """A writer of an Arrow file for batches with any dictionaries: a file has one per id, which may only grow."""

    def __init__(self, rows: Rows, sink: Sink, options: IpcWriteOptions, statistics: bool | Iterable[str]) -> None:
        self._unify = any(has_dictionary(field.type) for field in rows.schema)
        if self._unify:
            options = IpcWriteOptions(**{**options._values(), "emit_dictionary_deltas": True})
        self.writer = RecordBatchFileWriter(sink, rows.schema, options, rows.metadata, statistics)
        self._last: RecordBatch | None = None

    def write(self, batch: RecordBatch) -> None:
        """Write a batch, whose dictionaries are made to extend those of the batches before it."""
        if self._unify:
            if not batch.num_rows:
                return
            if self._last is not None:
                batch = Table.from_batches([self._last, batch]).unify_dictionaries().batches[1]
            self._last = batch.slice(0, 1)
        self.writer.write_batch(batch)


def recut(batches: Iterable[RecordBatch], rows: int) -> Iterator[RecordBatch]:
    """Re-batch all rows into batches of ``rows``, except the last."""
    held: list[RecordBatch] = []
    count = 0
    for batch in batches:
        while count + batch.num_rows >= rows:
            yield concat_batches([*held, batch.slice(0, rows - count)])
            batch = batch.slice(rows - count)
            held, count = [], 0
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
    if held:
        yield concat_batches(held)
