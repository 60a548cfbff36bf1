"""Decoding of message metadata and opening of record batches, for files and streams."""

from __future__ import annotations

from typing import Any

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, Limits
from shmarrow.ipc.batch.decode import ArrayLoader, Dictionaries, header_of
from shmarrow.ipc.batch.header import Header, batch_header
from shmarrow.ipc.message.decode import Message, parse_metadata
from shmarrow.ipc.message.framing import read_prefix
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.types import Schema


def decode_metadata(metadata: Bytes, where: str, limits: Limits) -> Header | Message | None:
    """Decode the prefix and metadata of one message; None for an end-of-stream marker.

    Parameters
    ----------
    metadata : uint8 ndarray
        Exactly the prefix, metadata and padding.
    where : str
        Describes the message in errors.
    limits : Limits
        Bounds on what is accepted.

    Returns
    -------
    Header or Message or None
        A Header for a plain record batch.
    """
    size = len(metadata)
    if 16 <= size <= limits.metadata_bytes:
        header = batch_header(metadata, metadata.data, 0, size)
        if header is not None:
            return header
    prefix = read_prefix(metadata, 0, where, limits)
    if prefix is None:
        return None
    if sum(prefix) != size:
        raise InvalidData(f"{where}: the footer declares {size} bytes of metadata, the message {sum(prefix)}")
    return parse_metadata(metadata[prefix[0] :], where, limits)


def open_batch(
    message: Header | Message, body: Any, schema: Schema, dictionaries: Dictionaries, where: str, limits: Limits
) -> RecordBatch:
    """Open a record batch over the body of its message; columns are built on access.

    Parameters
    ----------
    message : Header or Message
        The decoded metadata.
    body : uint8 ndarray or SourceRange
        The body, in memory or read by ranges.
    """
    source = schema._source
    assert isinstance(source, LazySchema)
    if isinstance(message, Header):
        loader = ArrayLoader(None, message, body, source, dictionaries, where, limits)
        return RecordBatch(schema, message.length, source=loader)
    if message.kind != "RecordBatch":
        raise InvalidData(f"{where} is a {message.kind} message, expected a RecordBatch")
    header = header_of(message.header, message.version, message.body_length, where)
    loader = ArrayLoader(message.header, header, body, source, dictionaries, where, limits)
    return RecordBatch(schema, header.length, source=loader, metadata=message.custom_metadata)
