"""Metadata of record batches ("RecordBatch message").

Messages of one schema and writer differ in a few numbers, so those that were seen before are recognised as a whole:
then nothing of their FlatBuffer is parsed. The numbers are checked as those of any message: rows and length of the body
here and against the bytes that there are, nodes and buffers by :mod:`~shmarrow.ipc.batch.decode`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shmarrow.buffer import U1, Bytes, Indices, NDArray
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits
from shmarrow.ipc.flatbuffers.reader import TableView, Tracer
from shmarrow.ipc.message.decode import Message, parse_metadata
from shmarrow.ipc.message.template import LARGEST, Known
from shmarrow.types import Metadata

_PAIR = np.dtype("<i8")
_VECTORS = "nodes", "buffers"


class BatchHeader(NamedTuple):
    """The metadata of a record batch, or of the values of a dictionary.

    Attributes
    ----------
    length : int
        The number of rows.
    body_length : int
        Size of the message's body in bytes.
    nodes : int64 ndarray, shape (n, 2)
        Length and null count of each array.
    buffers : int64 ndarray, shape (m, 2)
        Offset and size of each buffer in the body.
    version : int
        The metadata version.
    codec : tuple of int or None
        The numbers of codec and method, if the buffers are compressed.
    variadic : int64 ndarray or None
        The numbers of data buffers of view arrays.
    metadata : mapping or None
        The message's custom metadata.
    """

    length: int
    body_length: int
    nodes: Indices
    buffers: Indices
    version: int
    codec: tuple[int, int] | None
    variadic: NDArray | None
    metadata: Metadata | None

    def variadic_counts(self, where: str) -> list[int]:
        """The numbers of data buffers of view arrays; InvalidData if the batch has not as many buffers."""
        counts: list[int] = [] if self.variadic is None else self.variadic.tolist()
        if counts and (min(counts) < 0 or sum(counts) > len(self.buffers)):
            raise InvalidData(f"{where}: variadic buffer counts {counts[:20]} do not match {len(self.buffers)} buffers")
        return counts


_KNOWN = Known()
"""All of a header but the numbers, by all of the metadata but the numbers."""


def read_message(metadata: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> BatchHeader | Message:
    """Read the metadata of a record batch; of a message of another kind, return the message itself."""
    if len(metadata) > LARGEST:
        message = parse_metadata(metadata, where, limits)
        return header_of(message, message.header, where) if message.kind == "RecordBatch" else message
    data = metadata.tobytes()
    recognized = _KNOWN.find(data, limits.tables)
    if recognized is not None:
        rest, (length, body_length, nodes, buffers) = recognized
        if length >= 0 and body_length >= 0:
            nodes = np.ndarray((len(nodes) // 16, 2), _PAIR, nodes)
            buffers = np.ndarray((len(buffers) // 16, 2), _PAIR, buffers)
            return BatchHeader(length, body_length, nodes, buffers, *rest)
    message = parse_metadata(np.frombuffer(data, U1), where, limits, Tracer)
    if message.kind != "RecordBatch":
        return message
    table, tracer = message.header, message.table.reader
    header = header_of(message, table, where)
    assert isinstance(tracer, Tracer)
    holes = [(table.offset_of("length"), "q"), (message.table.offset_of("bodyLength"), "q")]
    holes += [(start, f"{16 * count}s") for start, count in [table.vector_of(slot, 16) for slot in _VECTORS]]
    if all(place for place, _ in holes):
        _KNOWN.add(data, holes, tracer.reads, header[4:], limits.tables)
    return header


def not_a_batch(message: Message, where: str) -> InvalidData:
    """The error for a message of another kind."""
    return InvalidData(f"{where} is a {message.kind} message, expected a RecordBatch")


def header_of(message: Message, table: TableView, where: str) -> BatchHeader:
    """Read a RecordBatch table of a message; nodes and buffers are views."""
    length = table["length"]
    if length < 0:
        raise InvalidData(f"{where}: the batch declares {length} rows")
    nodes, buffers = (
        np.ndarray((count, 2), _PAIR, table.reader.data, start)
        for start, count in [table.vector_of(slot, 16) for slot in _VECTORS]
    )
    codec = table["compression"]
    return BatchHeader(
        length,
        message.body_length,
        nodes,
        buffers,
        message.version,
        None if codec is None else (codec["codec"], codec["method"]),
        table["variadicBufferCounts"],
        message.custom_metadata,
    )
