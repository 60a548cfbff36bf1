"""Streams and files taken apart into messages, and put together in other ways."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.flatbuffers.tables import STRUCTS
from shmarrow.ipc.message.decode import Message, message_at


class Part(NamedTuple):
    """A message of a stream: where it starts, where its body starts, what it says, and all its bytes."""

    start: int
    body: int
    message: Message
    data: bytes


def messages(data: bytes, start: int = 0) -> list[Part]:
    """The messages of a stream that begins at ``start``."""
    view = np.frombuffer(data, "u1")
    found, at = [], start
    while (step := message_at(view, at, "test")) is not None:
        found.append(Part(at, step.body, step.message, data[at : step.end]))
        at = step.end
    return found


def blocks_of(data: bytes) -> dict[str, list[tuple[int, int, int]]]:
    """Offset, metadata length and body length of each block of a file's footer."""
    (size,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = Reader(np.frombuffer(data, "u1")[len(data) - 10 - size : -10], "test").root("Footer")
    names = ("recordBatches", "dictionaries")
    return {name: [(int(row[0]), int(row[1]), int(row[-1])) for row in footer[name].tolist()] for name in names}


def framed(metadata: bytes) -> bytes:
    """A FlatBuffer as the metadata of a message."""
    metadata += bytes(-len(metadata) % 8)
    return b"\xff\xff\xff\xff" + struct.pack("<i", len(metadata)) + metadata


def message(kind: str, header: dict[str, Any], body: bytes = b"", version: int = 4) -> bytes:
    """A whole message with a header of the values given."""
    values = {"version": version, "header": (kind, header), "bodyLength": len(body)}
    return framed(flatbuf_writer.encode("Message", values)) + body


def batch_header(length: int, nodes: Sequence[Any], buffers: Sequence[Any], **more: Any) -> dict[str, Any]:
    """The values of a RecordBatch table."""
    vectors = {"nodes": np.array(nodes, STRUCTS["FieldNode"]), "buffers": np.array(buffers, STRUCTS["Buffer"])}
    return {"length": length, **vectors, **more}


def stream_from(parts: Sequence[Part | bytes]) -> bytes:
    """A stream of messages, with its end mark."""
    return b"".join([part if isinstance(part, bytes) else part.data for part in parts]) + b"\xff\xff\xff\xff" + bytes(4)


def file_from(
    parts: Sequence[Part], schema: dict[str, Any], dictionaries: Sequence[int], batches: Sequence[int], **footer: Any
) -> bytes:
    """A file of messages in any order, whose footer names them by their positions in any other order."""
    data = b"ARROW1\0\0"
    blocks = []
    for part in parts:
        blocks.append((len(data), part.body - part.start, part.message.body_length))
        data += part.data
    values = {
        "version": 4,
        "schema": schema,
        "dictionaries": np.array([blocks[i] for i in dictionaries], STRUCTS["Block"]),
        "recordBatches": np.array([blocks[i] for i in batches], STRUCTS["Block"]),
        **footer,
    }
    encoded = flatbuf_writer.encode("Footer", values)
    return data + b"\xff\xff\xff\xff" + bytes(4) + encoded + struct.pack("<i", len(encoded)) + b"ARROW1"
