"""Scanning for messages, and reading the nodes and buffers of a record batch, as far as an overview needs them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits, ShmarrowError
from shmarrow.ipc.batch.header import header_of
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.flatbuffers.tables import UNIONS
from shmarrow.ipc.message.decode import CONTINUATION, Message, message_at

MEMBERS = UNIONS["MessageHeader"]
SCHEMA, DICTIONARY, BATCH, TENSOR, SPARSE = range(1, 6)
"""Kinds of messages: the tags of the union MessageHeader."""
NO_MESSAGES = np.empty((0, 4), np.int64)


class Messages(NamedTuple):
    """The result of a scan for messages.

    Attributes
    ----------
    rows : int64 ndarray, shape (n, 4)
        Offset, metadata length with its prefix, body length and kind of each message.
    end : int
        Offset at which the next message would start.
    marker : int
        Size of the end-of-stream marker at ``end`` in bytes; 0 if absent.
    problem : str
        Why the scan stopped early; empty if it did not.
    cut : tuple of int or None
        The message at ``end``, as in ``rows``, if its metadata is complete but its body is not.
    """

    rows: Any
    end: int
    marker: int
    problem: str
    cut: tuple[int, int, int, int] | None = None


def scan(data: Bytes, start: int, stop: int, limits: Limits, most: int | None = None) -> Messages:
    """Scan for consecutive messages.

    Parameters
    ----------
    data : uint8 ndarray
        The object.
    start, stop : int
        Offset of the first message, and the end that no message may exceed.
    limits : Limits
        Bounds on what is accepted.
    most : int, optional
        Maximum number of messages.
    """
    found: list[tuple[int, int, int, int]] = []
    at, inside = start, data[:stop]
    while at < stop and (most is None or len(found) < most):
        try:
            located = message_at(inside, at, "", limits, parse=read_envelope, cut=True)
            if located is None:
                marker = 8 if inside[at : at + 4].tobytes() == CONTINUATION else 4
                return Messages(_rows(found), at, marker, "")
            length = located.body - at
            kind, body = located.message
            if body > stop - at - length:
                text = f"truncated message: its body needs {body} bytes, only {stop - at - length} remain"
                return Messages(_rows(found), at, 0, text, (at, length, body, kind))
        except ShmarrowError as error:
            return Messages(_rows(found), at, 0, str(error).removeprefix(": ") or type(error).__name__)
        found.append((at, length, body, kind))
        at += length + body
    return Messages(_rows(found), at, 0, "")


def _rows(found: list[tuple[int, int, int, int]]) -> Any:
    return np.array(found, np.int64).reshape(-1, 4)


class Envelope(NamedTuple):
    """The kind of a message, as a number, and the length of its body."""

    kind: int
    body_length: int


def read_envelope(metadata: Bytes, where: str = "", limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """Read only the kind and the body length of a message, which is all that a scan needs."""
    table = Reader(metadata, "the metadata").root("Message")
    kind: int = table["header_type"]
    if not 0 < kind <= len(MEMBERS):
        raise InvalidData(f"a message with a header of type {kind}, expected 1 to {len(MEMBERS)}")
    body = table["bodyLength"]
    if body < 0:
        raise InvalidData(f"a body of {body} bytes")
    return Envelope(kind, body)


class Unparsed(NamedTuple):
    """Metadata of a message, not parsed."""

    metadata: Bytes
    body_length: int = 0


def unparsed(metadata: Bytes, where: str, limits: Limits) -> Unparsed:
    """Return metadata without parsing it, so that malformed metadata can be explained, too."""
    return Unparsed(metadata)


class Batch(NamedTuple):
    """The decoded metadata of a record batch or dictionary message.

    Attributes
    ----------
    message : Message
        The message.
    rows : int
        The number of rows.
    nodes : int64 ndarray, shape (n, 2)
        Length and null count of each field node.
    buffers : int64 ndarray, shape (m, 2)
        Offset in the body, and length, of each buffer.
    variadic : tuple of int
        Number of data buffers of each view column.
    codec : int or None
        The compression codec; None if not compressed.
    body : int
        Offset of the body in the object.
    """

    message: Message
    rows: int
    nodes: Any
    buffers: Any
    variadic: tuple[int, ...]
    codec: int | None
    body: int


def read_batch(data: Bytes, offset: int, length: int, where: str, limits: Limits) -> Batch:
    """Read the metadata of a record batch or dictionary message at ``offset``.

    Raises
    ------
    InvalidData
        If it is a message of another kind, or malformed.
    """
    if offset < 0 or length < 8 or offset + length > len(data):
        raise InvalidData(f"{where}: its block is [{offset}, {offset + length}), of {len(data)} bytes")
    found = message_at(data[: offset + length], offset, where, limits, cut=True)
    if found is None:
        raise InvalidData(f"{where}: its block refers to an end-of-stream marker at {offset}")
    return batch_of(found.message, offset + length, where)


def batch_of(message: Message, body: int, where: str) -> Batch:
    """Decode a record batch or dictionary message whose body starts at ``body``."""
    table = message.header["data"] if message.kind == "DictionaryBatch" else message.header
    if table is None or message.kind not in ("DictionaryBatch", "RecordBatch"):
        raise InvalidData(f"{where}: expected a RecordBatch message, found {message.kind}")
    header = header_of(message, table, where)
    return Batch(
        message,
        header.length,
        header.nodes,
        header.buffers,
        tuple(header.variadic_counts(where)),
        None if header.codec is None else header.codec[0],
        body,
    )
