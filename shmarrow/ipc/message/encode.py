# SPDX-License-Identifier: Apache-2.0
"""Encoding of encapsulated messages: prefix, metadata and padding ("Encapsulated message format").

The messages of one writer's batches mostly differ in numbers only: one of each shape is built with the FlatBuffers
writer, as a :class:`~shmarrow.ipc.message.decode.Template` that the others fill in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import ALIGNMENT
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.reader import Reader, TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS, SCALARS, STRUCTS
from shmarrow.ipc.message.decode import Template, frame
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.types import Metadata


class Payload(NamedTuple):
    """An encoded message: its framed metadata, and the pieces of its body with their padding."""

    metadata: bytes
    pieces: Iterable[Any]
    body_length: int

    @property
    def size(self) -> int:
        """Size of the message in bytes."""
        return len(self.metadata) + self.body_length


def key_values(metadata: Metadata | None) -> list[dict[str, bytes]] | None:
    """Metadata as values for a vector of KeyValue tables."""
    return [{"key": key, "value": value} for key, value in metadata.items()] if metadata else None


def message_values(
    kind: str, header: Any, body_length: int, metadata: Metadata | None, version: str
) -> Mapping[str, Any]:
    """The values of a Message table around a header."""
    return {
        "version": ENUMS["MetadataVersion"][version],
        "header": (kind, header),
        "bodyLength": body_length,
        "custom_metadata": key_values(metadata),
    }


def encode_message(
    kind: str,
    header: Any,
    body_length: int,
    metadata: Metadata | None,
    options: IpcWriteOptions,
    start: int = 0,
) -> bytes:
    """Encode and frame a message without its body."""
    values = message_values(kind, header, body_length, metadata, options.metadata_version)
    return frame(flatbuf_writer.encode("Message", values), options.use_legacy_format, start)


# --- record batches and dictionaries ----------------------------------------------------------------------------

_MOST_NUMBERS = 4096
"""Maximum numbers in the vectors of a message that is made from a template."""
_VECTORS = {"nodes": STRUCTS["FieldNode"], "buffers": STRUCTS["Buffer"], "variadicBufferCounts": SCALARS["i8"]}


@lru_cache(128)
def _batch_template(
    kind: str, sizes: tuple[int, ...], codec: int | None, version: str, legacy: bool, start: int
) -> Template:
    """A template for the framed metadata of batches or dictionaries of one shape.

    Its holes are the body's length, the id of a dictionary and whether it is a delta, the number of rows, and the
    vectors that there are: ``sizes`` of nodes, buffers and variadic counts, -1 for none.
    """
    rows = zip(_VECTORS.items(), sizes, strict=True)
    vectors = {name: np.zeros(size, dtype) for (name, dtype), size in rows if size >= 0}
    # Slots equal to their default, 0, would be omitted.
    batch = {"length": 1, **vectors, "compression": None if codec is None else {"codec": codec}}
    header = batch if kind == "RecordBatch" else {"id": 1, "data": batch, "isDelta": True}
    data = flatbuf_writer.encode("Message", message_values(kind, header, 1, None, version))
    message = Reader(np.frombuffer(data, np.uint8), "a message").root("Message")
    table: TableView = message["header"][1]
    holes = [(message.offset_of("bodyLength"), "q")]
    if kind == "DictionaryBatch":
        holes += [(table.offset_of("id"), "q"), (table.offset_of("isDelta"), "?")]
        table = table["data"]
    holes.append((table.offset_of("length"), "q"))
    for name, values in vectors.items():
        holes.append((table.reader.follow(table.offset_of(name), name) + 4, f"{values.nbytes}s"))
    prefix = 4 if legacy else 8
    return Template(frame(data, legacy, start), [(prefix + place, each) for place, each in holes])


class PlannedBody(NamedTuple):
    """A body's numbers, and its bytes.

    Attributes
    ----------
    nodes : list of int
        Length and null count of each array, in pre-order.
    buffers : list of int
        Offset and size of each buffer.
    variadic : list of int
        The number of variadic buffers of each array that has some.
    codec : int or None
        The codec that compresses the buffers.
    pieces : iterable of bytes-like
        The buffers that are written, with padding.
    size : int
        Their size in bytes.
    """

    nodes: list[int]
    buffers: list[int]
    variadic: list[int]
    codec: int | None
    pieces: Iterable[Any]
    size: int


def batch_message(
    rows: int,
    body: PlannedBody,
    metadata: Metadata | None,
    options: IpcWriteOptions,
    start: int = 0,
    dictionary: tuple[int, bool] | None = None,
) -> bytes:
    """Encode and frame a RecordBatch or DictionaryBatch message without its body.

    Parameters
    ----------
    rows : int
        The number of rows.
    body : PlannedBody
        What is in the body.
    metadata : mapping or None
        The message's custom metadata.
    options : IpcWriteOptions
        Write options.
    start : int
        Offset of the message in its stream.
    dictionary : tuple of int and bool, optional
        For a DictionaryBatch, the dictionary's id and whether it is a delta.
    """
    nodes, buffers, variadic, codec, _, size = body
    kind = "RecordBatch" if dictionary is None else "DictionaryBatch"
    if metadata or len(nodes) + len(buffers) + len(variadic) > _MOST_NUMBERS:
        values = {
            "length": rows,
            "nodes": np.array(nodes, "<i8").view(_VECTORS["nodes"]),
            "buffers": np.array(buffers, "<i8").view(_VECTORS["buffers"]),
            "variadicBufferCounts": np.array(variadic, "<i8") if variadic else None,
            "compression": None if codec is None else {"codec": codec},
        }
        header = values if dictionary is None else {"id": dictionary[0], "data": values, "isDelta": dictionary[1]}
        return encode_message(kind, header, size, metadata, options, start)
    sizes = len(nodes) // 2, len(buffers) // 2, len(variadic) or -1
    legacy = options.use_legacy_format
    template = _batch_template(kind, sizes, codec, options.metadata_version, legacy, start % ALIGNMENT)
    vectors = (nodes, buffers, variadic) if variadic else (nodes, buffers)
    packed = [struct.pack(f"<{len(numbers)}q", *numbers) for numbers in vectors]
    return template.filled([size, *(dictionary or ()), rows, *packed])
