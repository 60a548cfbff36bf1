# SPDX-License-Identifier: Apache-2.0
"""Stream writer, and the base class of writers ("IPC Streaming Format").

Messages are written in order: schema, batches preceded by their dictionaries, end marker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from shmarrow.columns import RecordBatch, checked_schema, own_batch, rows_of
from shmarrow.errors import InvalidData, full_name
from shmarrow.ipc.batch.encode import Locate, dictionaries_of, encode_batch, in_schema
from shmarrow.ipc.message.decode import end_of_stream
from shmarrow.ipc.message.encode import Payload
from shmarrow.ipc.options import IpcWriteOptions, as_options
from shmarrow.ipc.schema.encode import encode_schema, schema_message
from shmarrow.ipc.stream.state import IpcStats
from shmarrow.memory import Sink, Writer, open_sink
from shmarrow.memory.life_cycle import operation
from shmarrow.types import MetadataLike, Schema, SchemaLike, as_metadata

SAME = "same"
NEW = "new"
DELTA = "delta"
REPLACE = "replace"
BATCH = "batch"


class BatchWriter(Writer):
    """Writes record batches of one schema to a sink.

    A context manager: closes at the end of the block; after an exception nothing is published, and a file object gets
    no end marker. The same applies after an error of the sink: from then on, :meth:`write` and :meth:`close` raise
    ``Failed``, which quotes that error. A batch that is refused before any byte is written leaves the writer open.

    Attributes
    ----------
    schema : Schema
        The schema of all batches.

    Notes
    -----
    Thread safety: may be shared; batches are serialized. A forked child can only close its copy, which writes and
    publishes nothing.
    """

    replaces = True
    """In a stream, a dictionary can replace an earlier one of the same id."""
    _locate: Locate | None = None
    """Set by a store, for an object that shares buffers with others."""
    _statistics: Any = None
    """Set for a file whose footer is to have statistics of its batches: what measures and collects these."""

    def __init__(self, sink: Sink, schema: SchemaLike, options: IpcWriteOptions | None) -> None:
        self._sink = sink
        super().__init__(f"the writer to {sink.name}")
        self._head = b""  # what is yet to be written before the first batch
        # The dictionary written last for each id: those of a schema are numbered from 0 on.
        self._last_written: dict[int, Any] = {}
        # Dictionaries of all-null columns, which may be replaced later; a file has one per id.
        self._empty: dict[int, Any] = {}
        # The messages after the schema, by kind: BATCH, or the relation of a dictionary to the one before it.
        self._counts = dict.fromkeys((BATCH, NEW, DELTA, REPLACE), 0)
        try:
            self.options = as_options(options)
            self.schema: Schema = checked_schema(schema)
            self._start()
        except BaseException:
            self.abort()
            raise

    def _start(self) -> None:
        self._encoded = encode_schema(self.schema, self.options)
        self._head = self._make_head()

    def _make_head(self) -> bytes:
        """The bytes before the first batch."""
        raise NotImplementedError

    def begin(self) -> int:
        """Write what comes before the first batch; returns how many bytes there are now."""
        self._sink.write([self._head])
        self._head = b""
        return self._sink.size

    @property
    def stats(self) -> IpcStats:
        """Number of messages written so far, by kind."""
        counts = self._counts
        dictionaries = counts[NEW] + counts[DELTA] + counts[REPLACE]
        return IpcStats(1 + dictionaries + counts[BATCH], counts[BATCH], dictionaries, counts[DELTA], counts[REPLACE])

    def __repr__(self) -> str:
        from shmarrow import display

        return display.line(
            self, f"to {self._sink.name}", *display.holding(None, None, len(self.schema)), self._states.state
        )

    # --- writing ---

    def write(self, data: Any) -> None:
        """Write a record batch, or all batches of a table, a reader or a data frame.

        Parameters
        ----------
        data : RecordBatch, Table, RecordBatchReader, or rows of another library
            Rows with the writer's fields. Other libraries' objects are read through ``__arrow_c_stream__`` or
            ``__arrow_c_array__``, one batch at a time. Their string, binary and list columns are losslessly cast to the
            writer's layout, as libraries differ there (polars exports string views, pandas large strings). A data frame
            of pandas is converted to the writer's types, exactly; its index must be a ``RangeIndex``, or columns.

        Raises
        ------
        InvalidType
            If it is of another type, or the fields differ. Other errors are those of :meth:`write_batch` and of the
            reader; batches before the error are written.
        """
        if isinstance(data, RecordBatch):
            self._write(data, None)
        else:
            self.write_table(data)

    def write_batch(self, batch: RecordBatch, custom_metadata: MetadataLike | None = None) -> None:
        """Write one record batch; of a slice, only its rows are written. The values are copied once.

        Parameters
        ----------
        batch : RecordBatch
            A batch with the writer's fields, from any library.
        custom_metadata : mapping, optional
            Metadata of the message; by default the batch's own.

        Raises
        ------
        InvalidType
            If the fields differ.
        StoreFull
            If there is no space left.
        Closed
            After :meth:`close`.
        Failed
            After an error of the sink.
        """
        self._write(batch, custom_metadata)

    def write_table(self, table: Any, max_chunksize: int | None = None) -> None:
        """Write all batches of a table, split into pieces of at most ``max_chunksize`` rows if given.

        Accepts the same types as :meth:`write`.
        """
        self._check_open()
        adapt = not full_name(table).startswith("shmarrow.")
        with rows_of(table, self.schema) as reader:
            batches: Iterable[RecordBatch] = reader
            if self.options.unify_dictionaries and not self.replaces:
                batches = reader.read_all().unify_dictionaries().batches
            for batch in batches:
                for piece in batch.to_batches(max_chunksize):
                    self._write(piece, None, adapt)

    @operation
    def _write(self, batch: RecordBatch, custom_metadata: MetadataLike | None, adapt: bool = False) -> None:
        if not isinstance(batch, RecordBatch):
            batch, adapt = own_batch(batch, "a shmarrow.RecordBatch"), True
        batch = in_schema(batch, self.schema, adapt)
        metadata = as_metadata(custom_metadata) if custom_metadata is not None else batch.metadata
        columns = batch.columns
        position, found = self._sink.size + len(self._head), dictionaries_of(columns)
        dictionaries, latest, position = self._encode_dictionaries(found, position) if found else ([], {}, position)
        payload = encode_batch(columns, batch.num_rows, self.options, metadata, position, self._locate)
        measured = None if self._statistics is None else self._statistics.measure(batch)
        self._change(self._emit_all, dictionaries, latest, payload, batch.num_rows, measured)

    def _encode_dictionaries(
        self, found: list[Any], position: int
    ) -> tuple[list[tuple[str, Payload]], dict[int, Any], int]:
        """Encode the dictionaries to be written before a batch, from a position on.

        Those written before are left out, or become deltas. Returns the messages with their relation to the dictionary
        before them, the dictionaries by id, and where the batch begins.
        """
        payloads: list[tuple[str, Payload]] = []
        latest: dict[int, Any] = {}
        replaced: set[int] = set()
        # A dictionary has a lower id than those nested in its values, and must be written after them.
        for id, values in reversed(list(enumerate(found))):
            known = latest.get(id, self._last_written.get(id))
            if known is None and not len(values) and not self.replaces:
                self._empty[id] = values
                continue
            relation = NEW if known is None else self._relation(known, values)
            if not replaced.isdisjoint(range(id + 1, id + 1 + len(dictionaries_of([values])))):
                relation = NEW if known is None else REPLACE
            if relation == SAME:
                continue
            if relation != DELTA:
                replaced.add(id)
            if relation == REPLACE and not self.replaces:
                raise InvalidData(
                    f"{self._sink.name}: dictionary {id} differs from the one written before it, "
                    "and a file has one per id; use a common dictionary, or write a stream"
                    + (
                        ""
                        if self.options.emit_dictionary_deltas
                        else ", or set emit_dictionary_deltas if it only grows"
                    )
                )
            part = values.slice(len(known)) if known is not None and relation == DELTA else values
            payload = self._encode_dictionary(id, part, relation == DELTA, position)
            payloads.append((relation, payload))
            latest[id] = values
            position += payload.size
        return payloads, latest, position

    def _encode_dictionary(self, id: int, values: Any, delta: bool, position: int) -> Payload:
        return encode_batch([values], len(values), self.options, None, position, self._locate, (id, delta))

    def _relation(self, known: Any, values: Any) -> str:
        """Compare a dictionary with the previously written one of the same id.

        If replacement is impossible, a prefix of the written one counts as equal, as its indices mean the same.
        """
        if known is values:
            return SAME
        if len(known) == len(values):
            return SAME if _alike(known, values) else REPLACE
        if not self.replaces and len(values) < len(known) and _alike(known.slice(0, len(values)), values):
            return SAME
        # If replacement is impossible, an empty dictionary must be extended. Arrow C++ cannot read deltas of nested
        # dictionaries.
        deltas = self.options.emit_dictionary_deltas or not (len(known) or self.replaces)
        if not deltas or len(values) < len(known) or dictionaries_of([values]):
            return REPLACE
        return DELTA if _alike(values.slice(0, len(known)), known) else REPLACE

    def _emit_all(
        self, dictionaries: list[tuple[str, Payload]], latest: dict[int, Any], batch: Payload, rows: int, measured: Any
    ) -> None:
        for relation, dictionary in dictionaries:
            self._emit(relation, dictionary, None)
        self._last_written |= latest
        self._emit(BATCH, batch, rows)
        if measured is not None:
            self._statistics.add(measured)

    def _emit(self, kind: str, payload: Payload, rows: int | None) -> None:
        """Write a message: a record batch of ``rows`` rows, or a dictionary if None."""
        position = self._sink.size + len(self._head)
        self._sink.write([self._head, payload.metadata, *payload.pieces])
        self._head = b""
        self._add_block(position, payload, rows)
        self._counts[kind] += 1

    def _add_block(self, position: int, payload: Payload, rows: int | None) -> None:
        """Record the location of a message for the footer."""

    # --- the end ---

    def _end(self) -> bytes:
        """The bytes that follow the last message."""
        raise NotImplementedError

    def _finish(self) -> None:
        for id, values in self._empty.items():
            if id not in self._last_written:
                self._emit(NEW, self._encode_dictionary(id, values, False, self._sink.size + len(self._head)), None)
        self._sink.write([self._head + self._end()])
        self._sink.publish()

    def _drop(self) -> None:
        self._sink.drop()


class RecordBatchStreamWriter(BatchWriter):
    """Writes the streaming format; made by :func:`new_stream`.

    Dictionaries may be replaced from one batch to the next. The schema is written at once, as a reader may wait for it.
    """

    def _start(self) -> None:
        super()._start()
        self.begin()

    def _make_head(self) -> bytes:
        return schema_message(self._encoded, self.options, self._sink.size)

    def _end(self) -> bytes:
        return end_of_stream(self.options.use_legacy_format)


def new_stream(
    sink: Any,
    schema: SchemaLike,
    options: IpcWriteOptions | None = None,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> RecordBatchStreamWriter:
    """Create a writer of the streaming format.

    Parameters and errors are those of :func:`new_file`; a stream has no footer, so no metadata and statistics in it.
    """
    target = open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    return RecordBatchStreamWriter(target, schema, options)


def _alike(one: Any, two: Any) -> bool:
    """Whether dictionaries are equal, by values, or by bytes (as NaN != NaN)."""
    return one.equals(two) or _same_bytes(one.trim(), two.trim())


def _same_bytes(one: Any, two: Any) -> bool:
    if len(one) != len(two) or one.null_count != two.null_count or len(one._buffers) != len(two._buffers):
        return False
    return (
        all(np.array_equal(mine, its) for mine, its in zip(one._buffers, two._buffers, strict=True))
        and all(_same_bytes(mine, its) for mine, its in zip(one._children, two._children, strict=True))
        and (one._dictionary is two._dictionary or _same_bytes(one._dictionary, two._dictionary))
    )
