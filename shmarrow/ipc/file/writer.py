# SPDX-License-Identifier: Apache-2.0
"""Writer of the file format ("IPC File Format"): magic, a stream, and a footer with the locations of its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from shmarrow.ipc.batch.encode import Locate, dictionaries_of, plan_body
from shmarrow.ipc.file.footer import (
    HEAD,
    MAGIC,
    ROW_COUNTS,
    SIZE,
    STATISTICS,
    Block,
    RowCounts,
    add_rows,
    encode_row_counts,
    footer_holes,
)
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.flatbuffers.tables import ENUMS, STRUCTS
from shmarrow.ipc.message.decode import Template, end_of_stream
from shmarrow.ipc.message.encode import Payload, batch_message, key_values
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.schema.encode import EncodedSchema, encode_schema, schema_message
from shmarrow.ipc.stream.writer import BatchWriter
from shmarrow.memory import Sink, open_sink
from shmarrow.types import Metadata, MetadataLike, Schema, SchemaLike, as_metadata


class RecordBatchFileWriter(BatchWriter):
    """Writes the file format: a stream followed by a footer with the locations of its blocks; made by :func:`new_file`.

    For several batches, a key with their row counts is added to the footer's metadata, and one with statistics where
    they are asked for; shmarrow's readers hide both.
    """

    replaces = False
    """A file has one dictionary per id, which only deltas can extend."""

    def __init__(
        self,
        sink: Sink,
        schema: SchemaLike,
        options: IpcWriteOptions | None,
        metadata: MetadataLike | None = None,
        statistics: bool | Iterable[str] = False,
    ) -> None:
        self._measured_columns = statistics
        self._metadata = as_metadata(metadata)
        self._blocks: dict[str, list[Block]] = {"dictionaries": [], "recordBatches": []}
        self._row_counts: RowCounts = []
        super().__init__(sink, schema, options)

    def _make_head(self) -> bytes:
        if self._measured_columns is not False:
            from shmarrow.ipc.file.statistics import Collector

            collector = Collector(self.schema, self._measured_columns)
            self._statistics = collector if collector.columns else None
        return head_of(self._encoded, self.options, self._sink.size)

    def _add_block(self, position: int, payload: Payload, rows: int | None) -> None:
        block = position, len(payload.metadata), payload.body_length
        self._blocks["dictionaries" if rows is None else "recordBatches"].append(block)
        if rows is not None:
            add_rows(self._row_counts, rows)

    def _end(self) -> bytes:
        metadata = self._metadata
        if len(self._blocks["recordBatches"]) > 1:  # for one batch, reading its metadata is as fast
            metadata = {**(metadata or {}), ROW_COUNTS: encode_row_counts(self._row_counts)}
        if self._statistics is not None and self._blocks["recordBatches"]:
            metadata = {**(metadata or {}), STATISTICS: self._statistics.encoded()}
        dictionaries, batches = self._blocks.values()
        return end_of(self._encoded, dictionaries, batches, metadata, self.options)


def new_file(
    sink: Any,
    schema: SchemaLike,
    options: IpcWriteOptions | None = None,
    metadata: MetadataLike | None = None,
    *,
    statistics: bool | Iterable[str] = False,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> RecordBatchFileWriter:
    """Create a writer of the file format.

    Parameters
    ----------
    sink : path, ``shm:NAME``, SegmentWriter, file object or socket
        The destination. A path or a ``shm:`` name is published atomically when the writer is closed; symbolic links are
        followed. A file object or a socket is written to incrementally and stays open; :mod:`shmarrow.memory.sinks`
        defines what its ``write`` may return.
    schema : Schema, or mapping of names to types
        The schema of all batches.
    options : IpcWriteOptions, optional
        Compression, alignment, metadata version.
    metadata : mapping, optional
        Custom metadata of the footer.
    statistics : bool or iterable of str
        The columns whose null count, least and greatest value are recorded for each batch, by which
        :func:`shmarrow.scan` skips batches; True for all whose values have an order. They are in the footer's metadata,
        under a key of their own that other readers ignore.
    overwrite : bool, optional
        True replaces an existing object; its current readers keep the old version. By default a path is replaced and a
        ``shm:`` name is not.
    mode : int, optional
        Permission bits of the published file. Defaults to those of the replaced file, if any, or 0o666 less the umask;
        for a ``shm:`` name to 0o400.
    durable : bool
        True syncs the file and its directory to disk when publishing.

    Raises
    ------
    ObjectExists
        If the name exists and must not be replaced.
    StoreFull
        If there is no space left.
    StorageError
        If the directory is not writable, or the file object does not accept all bytes.
    """
    target = open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    return RecordBatchFileWriter(target, schema, options, metadata, statistics)


def encode_file(
    schema: Schema,
    columns: Sequence[Any],
    num_rows: int,
    batch_metadata: Metadata | None,
    options: IpcWriteOptions,
    metadata: Metadata | None,
    locate: Locate | None = None,
) -> tuple[list[Any], int] | None:
    """Encode a file of one batch, which has these columns: buffers and their size; None if there are dictionaries.

    The body is not copied.
    """
    if dictionaries_of(columns):
        return None
    encoded = encode_schema(schema, options)
    head = head_of(encoded, options)
    body = plan_body(columns, options, locate)
    message = batch_message(num_rows, body, batch_metadata, options, len(head))
    end = end_of(encoded, [], [(len(head), len(message), body.size)], metadata, options)
    return [head, message, *body.pieces, end], len(head) + len(message) + body.size + len(end)


# --- head and footer --------------------------------------------------------------------------------------------

_START = MAGIC + bytes(HEAD - len(MAGIC))
_SHORT, _FEW = 1 << 14, 8


def head_of(encoded: EncodedSchema, options: IpcWriteOptions, start: int = 0) -> bytes:
    """The bytes before the first message of a file that begins at ``start``."""
    return _START + schema_message(encoded, options, start + HEAD)


def end_of(
    encoded: EncodedSchema,
    dictionaries: list[Block],
    batches: list[Block],
    metadata: Metadata | None,
    options: IpcWriteOptions,
) -> bytes:
    """The bytes that follow the last message of a file."""
    version, legacy = options.metadata_version, options.use_legacy_format
    size = sum(map(len, chain.from_iterable(metadata.items()))) if metadata else 0
    if len(batches) == 1 and len(dictionaries) <= _FEW and len(encoded.data) + size <= _SHORT:
        template = _end_template(encoded, len(dictionaries), metadata and tuple(metadata.items()), version, legacy)
        return template.filled([*chain.from_iterable(chain(batches, dictionaries))])
    return _after(_footer(encoded, dictionaries, batches, metadata, version), legacy)


def _after(footer: bytes, legacy: bool) -> bytes:
    """The end of the stream, and a footer with its size."""
    return b"".join([end_of_stream(legacy), footer, SIZE.pack(len(footer)), MAGIC])


def _footer(
    encoded: EncodedSchema, dictionaries: list[Block], batches: list[Block], metadata: Metadata | None, version: str
) -> bytes:
    builder, schema = encoded.start()
    values = {
        "version": ENUMS["MetadataVersion"][version],
        "schema": schema,
        "dictionaries": np.array(dictionaries, STRUCTS["Block"]),
        "recordBatches": np.array(batches, STRUCTS["Block"]),
        "custom_metadata": key_values(metadata),
    }
    return flatbuf_writer.finish(builder, flatbuf_writer.add_table(builder, "Footer", values))


@lru_cache(256)
def _end_template(
    encoded: EncodedSchema,
    dictionaries: int,
    metadata: tuple[tuple[bytes, bytes], ...] | None,
    version: str,
    legacy: bool,
) -> Template:
    """The end of a file of one batch; its holes are the numbers of the batch's and the dictionaries' blocks."""
    blocks: list[Block] = [(0, 0, 0)] * dictionaries
    footer = _footer(encoded, blocks, [(0, 0, 0)], dict(metadata or ()), version)
    holes = footer_holes(Reader(np.frombuffer(footer, np.uint8), "a footer").root("Footer"))
    before = len(end_of_stream(legacy))
    return Template(_after(footer, legacy), [(before + place, each) for place, each in holes])
