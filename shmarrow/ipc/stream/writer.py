"""Writing streams and files: the schema first, each dictionary before the batch that uses it, then batches.

A file is a stream between two magic words, with a footer that says where its blocks lie ("IPC File Format").
"""

from __future__ import annotations

import struct
from types import TracebackType
from typing import Any, Self

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.errors import Closed, InvalidData, InvalidType
from shmarrow.ipc.batch.encode import IpcPayload, check_schema, dictionaries_of, encode_batch, encode_dictionary
from shmarrow.ipc.message.framing import end_of_stream
from shmarrow.ipc.options import DEFAULT_OPTIONS, IpcWriteOptions
from shmarrow.ipc.schema.encode import encode_schema, schema_message
from shmarrow.sources.source import Sink
from shmarrow.tables import Table
from shmarrow.types import MetadataLike, Schema, as_metadata

_SIZE = struct.Struct("<i")

REPLACE = "replace"
DELTA = "delta"
SAME = "same"


class BatchWriter:
    """Writes record batches of one schema to a sink.

    A context manager: it closes at the end of the block; after an exception nothing is published, and a file object
    is left without an end.

    Attributes
    ----------
    schema : Schema
        The schema of all batches.
    """

    replaces = True

    def __init__(self, sink: Sink, schema: Schema, options: IpcWriteOptions | None) -> None:
        if not isinstance(schema, Schema):
            sink.abort()
            raise InvalidType(f"expected a Schema, found {type(schema).__name__}")
        self.schema = schema
        self.options = options or DEFAULT_OPTIONS
        self._sink = sink
        self._closed = False
        # The ids of the schema's dictionaries where they are not 0, 1, ..., and what was written last for each.
        self._ids: list[int] = []
        self._known: dict[int, Any] = {}
        # Dictionaries of all-null columns, for which others may come yet; a file holds one of each id.
        self._empty: dict[int, Any] = {}
        try:
            self._start()
        except BaseException:
            self._sink.abort()
            raise

    def _start(self) -> None:
        self._encoded = encode_schema(self.schema, self.options)
        self._write_schema()

    def _write_schema(self) -> None:
        self._sink.write([schema_message(self._encoded, self.options, self._sink.position)])

    # --- writing ---

    def write(self, data: RecordBatch | Table) -> None:
        """Write a record batch, or all batches of a table."""
        if isinstance(data, Table):
            self.write_table(data)
        else:
            self.write_batch(data)

    def write_batch(self, batch: RecordBatch, custom_metadata: MetadataLike | None = None) -> None:
        """Write one record batch; only what its rows need is written, and copied once.

        Parameters
        ----------
        batch : RecordBatch
            A batch with the writer's fields.
        custom_metadata : mapping, optional
            Metadata of the message; the batch's own where it is not given.

        Raises
        ------
        InvalidType
            If the fields differ.
        StoreFull
            If there is no space left.
        """
        self._check_open()
        if not isinstance(batch, RecordBatch):
            raise InvalidType(f"expected a RecordBatch, found {type(batch).__name__}")
        check_schema(batch, self.schema)
        self._write_dictionaries(batch)
        metadata = as_metadata(custom_metadata) if custom_metadata is not None else batch.metadata
        self._write_payload(encode_batch(batch, self.options, metadata, self._sink.position), False)

    def write_table(self, table: Table, max_chunksize: int | None = None) -> None:
        """Write all batches of a table, on request in pieces of at most ``max_chunksize`` rows."""
        self._check_open()
        if not isinstance(table, Table):
            raise InvalidType(f"expected a Table, found {type(table).__name__}")
        for batch in table.to_batches(max_chunksize):
            self.write_batch(batch)

    def _write_dictionaries(self, batch: RecordBatch) -> None:
        found = dictionaries_of(batch.columns)
        replaced: set[int] = set()
        # A dictionary has a lower id than those within its values, and is read after them.
        for number, values in reversed(list(enumerate(found))):
            id = self._ids[number] if self._ids else number
            known = self._known.get(id)
            if known is None and not len(values) and not self.replaces:
                self._empty[id] = values
                continue
            relation = REPLACE if known is None else self._relation(known, values)
            if not replaced.isdisjoint(range(number + 1, number + 1 + len(dictionaries_of([values])))):
                relation = REPLACE
            if relation == SAME:
                continue
            if relation == REPLACE:
                replaced.add(number)
            if known is not None and relation == REPLACE and not self.replaces:
                raise InvalidData(
                    f"{self._sink.name}: dictionary {id} differs from the one written before it, "
                    "and a file holds one of each id; give all batches one dictionary, or write a stream"
                    + (
                        ""
                        if self.options.emit_dictionary_deltas
                        else ", or set emit_dictionary_deltas if it only grows"
                    )
                )
            part = values.slice(len(known)) if known is not None and relation == DELTA else values
            self._write_dictionary(id, part, relation == DELTA)
            self._known[id] = values

    def _write_dictionary(self, id: int, values: Any, delta: bool) -> None:
        self._write_payload(encode_dictionary(id, values, delta, self.options, self._sink.position), True)

    def _relation(self, known: Any, values: Any) -> str:
        """How a dictionary follows the one of the same id that was written before.

        Where none can be replaced, one that is the beginning of it is the same: its indices mean the same.
        """
        if known is values:
            return SAME
        if len(known) == len(values):
            return SAME if _alike(known, values) else REPLACE
        if not self.replaces and len(values) < len(known) and _alike(known.slice(0, len(values)), values):
            return SAME
        # Where nothing can be replaced, an empty dictionary has to grow. Arrow C++ does not read deltas of values that
        # have dictionaries themselves.
        deltas = self.options.emit_dictionary_deltas or not (len(known) or self.replaces)
        if not deltas or len(values) < len(known) or dictionaries_of([values]):
            return REPLACE
        return DELTA if _alike(values.slice(0, len(known)), known) else REPLACE

    def _write_payload(self, plan: IpcPayload, dictionary: bool) -> None:
        self._sink.write([plan.metadata, *plan.pieces])

    # --- the end ---

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the writer to {self._sink.name} is closed")

    def _finish(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Write the end, and publish what has a name. A second call does nothing.

        Raises
        ------
        ObjectExists
            If somebody else has taken the name in the meantime.
        """
        if self._closed:
            return
        self._closed = True
        try:
            for id, values in self._empty.items():
                if id not in self._known:
                    self._write_dictionary(id, values, False)
            self._finish()
            self._sink.finish()
        except BaseException:
            self._sink.abort()
            raise

    def abort(self) -> None:
        """Give up: nothing is published."""
        self._closed = True
        self._sink.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class RecordBatchStreamWriter(BatchWriter):
    """Writes the streaming format; dictionaries may be replaced from one batch to the next."""

    def _finish(self) -> None:
        self._sink.write([end_of_stream(self.options)])


def _alike(one: Any, two: Any) -> bool:
    """Whether dictionaries say the same: by their values, or by their bytes where NaN is not equal to itself."""
    return one.equals(two) or _same_bytes(one.trim(), two.trim())


def _same_bytes(one: Any, two: Any) -> bool:
    if len(one) != len(two) or one.null_count != two.null_count or len(one._buffers) != len(two._buffers):
        return False
    return (
        all(np.array_equal(mine, its) for mine, its in zip(one._buffers, two._buffers, strict=True))
        and all(_same_bytes(mine, its) for mine, its in zip(one._children, two._children, strict=True))
        and (one._dictionary is two._dictionary or _same_bytes(one._dictionary, two._dictionary))
    )
