"""Rows as a stream of batches: Arrow files and streams, and re-batching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shmarrow.batch import RecordBatch
from shmarrow.errors import Unsupported
from shmarrow.interchange.files.endpoints import Input, Options, Output
from shmarrow.ipc import IpcWriteOptions, RecordBatchFileWriter, RecordBatchStreamWriter, open_file, open_stream
from shmarrow.layout.making import nulls
from shmarrow.tables import Table, concat_batches
from shmarrow.types import Schema, schema
from shmarrow.types.extension import has_dictionary

BATCH = 1 << 16
BATCH_BYTES = 1 << 26
GROUP = 1 << 17
"""Rows per step, the most bytes per step, and rows per row group."""


@dataclass(frozen=True)
class Rows:
    """A single-pass stream of batches with one schema.

    Attributes
    ----------
    schema : Schema
        The schema of all batches.
    batches : iterator of RecordBatch
        The batches, read on demand.
    done : callable
        Returns the progress of reading, in any unit.
    total : int
        The final value of ``done``; 0 if unknown.
    """

    schema: Schema
    batches: Iterator[RecordBatch]
    done: Callable[[], int] = lambda: 0
    total: int = 0

    def empty(self) -> RecordBatch:
        """Return a batch of the schema without rows."""
        return RecordBatch.from_arrays([nulls(0, each.type) for each in self.schema], schema=self.schema)

    def select(self, columns: Sequence[str]) -> Rows:
        """Select columns by name, in this order."""
        if self.schema.names == list(columns):
            return self
        places = [self.schema.index_of(name) for name in columns]
        chosen = schema([self.schema.field(place) for place in places], self.schema.metadata)
        return replace(self, schema=chosen, batches=(batch.select(places) for batch in self.batches))


# --- re-batching ------------------------------------------------------------------------------------------------


def recut(batches: Iterable[RecordBatch], rows: int) -> Iterator[RecordBatch]:
    """Re-batch all rows into batches of ``rows``, except the last; keeps at most one batch in memory."""
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


def joined(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Join small batches up to 131,072 rows or 64 MiB, and split larger ones."""
    held: list[RecordBatch] = []
    rows = size = 0
    for whole in batches:
        for batch in whole.to_batches(GROUP):
            held.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= GROUP or size >= BATCH_BYTES:
                yield concat_batches(held)
                held, rows, size = [], 0, 0
    if held:
        yield concat_batches(held)


def _with_one_dictionary(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Unify dictionaries so that they only grow: a file can extend a dictionary, but not replace it."""
    last: RecordBatch | None = None
    for batch in batches:
        if last is not None and batch.num_rows:
            batch = Table.from_batches([last, batch]).unify_dictionaries().batches[1]
        if batch.num_rows:
            last = batch.slice(0, 1)
            yield batch


def cut(rows: Rows, options: Options) -> Iterator[RecordBatch]:
    """Return the batches, with the requested number of rows if any."""
    return rows.batches if options.rows_per_batch is None else recut(rows.batches, options.rows_per_batch)


# --- Arrow ------------------------------------------------------------------------------------------------------


def read_arrow(source: Input, options: Options) -> Rows:
    """Read an Arrow file, mapped."""
    source.whole()
    reader = open_file(source.path())
    at = [0]

    def batches() -> Iterator[RecordBatch]:
        for number in range(reader.num_record_batches):
            at[0] = number
            yield reader.get_batch(number)

    return Rows(reader.schema, batches(), lambda: at[0], reader.num_record_batches)


def read_feather(source: Input, options: Options) -> Rows:
    """Read Feather version 2, which is an Arrow file.

    Raises
    ------
    Unsupported
        If it is version 1: pyarrow's reader does not validate the file, and crashes the process on bad data.
    """
    if source.head.startswith(b"FEA1"):
        raise Unsupported(
            f"{source.name}: a Feather file of version 1 is not supported, as there is no safe reader; if you trust "
            "the file, pyarrow.feather.read_table reads it, and pyarrow.feather.write_feather writes version 2"
        )
    return read_arrow(source, options)


def read_stream(source: Input, options: Options) -> Rows:
    """Read an Arrow stream."""
    if source.data is not None:
        reader: Any = open_stream(source.path())
        return Rows(reader.schema, iter(reader))
    stream = source.stream()
    reader = open_stream(stream)
    return Rows(reader.schema, iter(reader), lambda: stream.done)


def _write_ipc(rows: Rows, target: Output, options: Options, kind: Any) -> None:
    codec = None if options.compression == "none" else options.compression
    batches = cut(rows, options)
    grows = kind is RecordBatchFileWriter and any(has_dictionary(each.type) for each in rows.schema)
    if grows:
        batches = _with_one_dictionary(batches)
    made = IpcWriteOptions(codec, options.level, emit_dictionary_deltas=grows)
    with kind(target.sink, rows.schema, made) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_arrow(rows: Rows, target: Output, options: Options) -> None:
    """Write an Arrow file."""
    _write_ipc(rows, target, options, RecordBatchFileWriter)


def write_stream(rows: Rows, target: Output, options: Options) -> None:
    """Write an Arrow stream."""
    _write_ipc(rows, target, options, RecordBatchStreamWriter)
