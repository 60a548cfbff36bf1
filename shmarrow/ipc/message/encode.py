"""Encoding of encapsulated messages: prefix, metadata and padding ("Encapsulated message format").

The messages of one writer's batches mostly differ in numbers only: one of each shape is built with the FlatBuffers
writer as a template, and the others by patching its numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.reader import Reader, TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.framing import frame
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.types import Metadata

_PACK_I8 = struct.Struct("<q").pack_into


def key_values(metadata: Metadata | None) -> list[dict[str, bytes]] | None:
    """Metadata as values for a vector of KeyValue tables."""
    return [{"key": key, "value": value} for key, value in metadata.items()] if metadata else None


def message_values(
    kind: str, header: Any, body_length: int, metadata: Metadata | None, options: IpcWriteOptions
) -> Mapping[str, Any]:
    """The values of a Message table around a header."""
    return {
        "version": ENUMS["MetadataVersion"][options.metadata_version],
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
    values = message_values(kind, header, body_length, metadata, options)
    return frame(flatbuf_writer.encode("Message", values), options, start)


class Form:
    """A FlatBuffer template with 64-bit numbers to patch.

    Parameters
    ----------
    data : bytes
        The FlatBuffer.
    places : sequence of int
        Positions of those numbers, increasing.
    """

    __slots__ = ("_pack", "_values")

    def __init__(self, data: bytes, places: Sequence[int]) -> None:
        assert list(places) == sorted(places)
        ends = [0, *[place + 8 for place in places]]
        kept = [data[start:stop] for start, stop in zip(ends, [*places, len(data)], strict=True)]
        self._pack = struct.Struct("<" + "q".join([f"{len(each)}s" for each in kept])).pack
        self._values: list[Any] = [kept[0]]
        for each in kept[1:]:
            self._values += [0, each]

    def filled(self, *numbers: int) -> bytes:
        """The FlatBuffer with other numbers."""
        values = self._values.copy()
        values[1::2] = numbers
        return self._pack(*values)


# --- record batches and dictionaries ----------------------------------------------------------------------------

_MOST_ROWS = 1024
_MOST_FORMS = 128
_VECTORS = ("nodes", "buffers", "variadicBufferCounts")


class MessageTemplate:
    """A template for the metadata of messages of one shape, and the positions of its numbers."""

    def __init__(self, kind: str, values: Mapping[str, Any], options: IpcWriteOptions) -> None:
        batch = {**values, "length": 1}  # slots equal to their default, 0, would be omitted
        header = batch if kind == "RecordBatch" else {"id": 1, "data": batch, "isDelta": True}
        self._data = flatbuf_writer.encode("Message", message_values(kind, header, 1, None, options))
        message = Reader(np.frombuffer(self._data, np.uint8), "a message").root("Message")
        table: TableView = message["header"][1]
        self._body_length = message.offset_of("bodyLength")
        self._dictionary = (table.offset_of("id"), table.offset_of("isDelta")) if kind == "DictionaryBatch" else None
        table = table["data"] if self._dictionary else table
        self._length = table.offset_of("length")
        places = {name: table.offset_of(name) for name in _VECTORS if values.get(name) is not None}
        self._vectors = {name: table.reader.follow(place, name) + 4 for name, place in places.items()}

    def filled(self, values: Mapping[str, Any], body_length: int, id: int, delta: bool) -> bytearray:
        """The metadata of a message of this shape, with these numbers."""
        made = bytearray(self._data)
        _PACK_I8(made, self._body_length, body_length)
        _PACK_I8(made, self._length, values["length"])
        for name, place in self._vectors.items():
            rows = values[name].tobytes()
            made[place : place + len(rows)] = rows
        if self._dictionary is not None:
            _PACK_I8(made, self._dictionary[0], id)
            made[self._dictionary[1]] = delta
        return made


_TEMPLATES: dict[Any, MessageTemplate] = {}


def batch_message(
    values: Mapping[str, Any],
    body_length: int,
    metadata: Metadata | None,
    options: IpcWriteOptions,
    start: int = 0,
    dictionary: tuple[int, bool] | None = None,
) -> bytes:
    """Encode and frame a RecordBatch or DictionaryBatch message without its body.

    Parameters
    ----------
    values : mapping
        The values of the RecordBatch table.
    body_length : int
        Size of the body in bytes.
    metadata : mapping or None
        The message's custom metadata.
    options : IpcWriteOptions
        Write options.
    start : int
        Offset of the message in its stream.
    dictionary : tuple of int and bool, optional
        For a DictionaryBatch, the dictionary's id and whether it is a delta.
    """
    kind = "RecordBatch" if dictionary is None else "DictionaryBatch"
    id, delta = dictionary or (0, False)
    counts = values.get("variadicBufferCounts")
    sizes = len(values["nodes"]), len(values["buffers"]), -1 if counts is None else len(counts)
    if metadata or max(sizes) > _MOST_ROWS:
        header = values if dictionary is None else {"id": id, "data": values, "isDelta": delta}
        return encode_message(kind, header, body_length, metadata, options, start)
    shape = kind, sizes, options.metadata_version, values.get("compression") and options.compression
    form = _TEMPLATES.get(shape)
    if form is None:
        if len(_TEMPLATES) >= _MOST_FORMS:
            _TEMPLATES.clear()
        form = _TEMPLATES[shape] = MessageTemplate(kind, values, options)
    return frame(form.filled(values, body_length, id, delta), options, start)
