# SPDX-License-Identifier: Apache-2.0
"""Encoding of schemas ("Schema message").

Invariants:

* types map to tables by data, one row per type;
* flat fields (name, nullability and type only) are written together with array operations;
* the bytes of a bounded number of small schemas are cached.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import compress, count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow import types
from shmarrow.buffer import ALIGNMENT, Indices
from shmarrow.errors import Unsupported
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.builder import Built
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.message.decode import frame
from shmarrow.ipc.message.encode import key_values, message_values
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.schema.types import FLAT_CLASSES, type_values
from shmarrow.layout.construct import ranges
from shmarrow.types import DataType, Field, Schema, storage_field

if TYPE_CHECKING:
    import flatbuffers


def field_values(field: Field, ids: Iterator[int]) -> dict[str, Any]:
    """The values of a Field table."""
    stored = storage_field(field)
    type = stored.type
    values: dict[str, Any] = {
        "name": stored.name,
        "nullable": stored.nullable,
        "custom_metadata": key_values(stored.metadata),
    }
    if isinstance(type, types.DictionaryType):
        values["dictionary"] = {
            "id": next(ids),
            "indexType": type_values(type.index_type)[1],
            "isOrdered": type.ordered,
        }
        type = type.value_type
        if isinstance(type, types.DictionaryType):
            raise Unsupported(
                f"field {stored.name!r}: Arrow messages cannot hold {stored.type}, a dictionary whose values are "
                "themselves dictionary-encoded; decode one of them"
            )
    values["type"] = type_values(type)
    values["children"] = [field_values(child, ids) for child in type.fields]
    return values


class EncodedSchema(NamedTuple):
    """A Schema table and all that it refers to, encoded once as the tail of several FlatBuffers.

    Attributes
    ----------
    data : bytes
        The bytes, self-contained.
    offset : int
        The table's offset from the end.
    """

    data: bytes
    offset: int

    def start(self) -> tuple[flatbuffers.Builder, Built]:
        """Return a builder that contains only the table."""
        builder = flatbuf_writer.new_builder()
        builder.Prep(8, len(self.data))
        flatbuf_writer.add_raw(builder, self.data)
        return builder, Built(self.offset)


_KNOWN: dict[Any, EncodedSchema] = {}
"""Cache of encoded schemas, by their full contents."""
_MOST_KNOWN, _MOST_FIELDS, _LARGEST = 256, 128, 1 << 14


def encode_schema(schema: Schema, options: IpcWriteOptions) -> EncodedSchema:
    """Encode a Schema table once for all messages and footers; dictionaries have the ids 0, 1, ... in pre-order."""
    if (encoded := schema._encoded.get(options.endianness)) is not None:
        return encoded
    key = None
    if len(schema) <= _MOST_FIELDS:
        metadata = schema.metadata and tuple(schema.metadata.items())
        key = options.endianness, metadata, *map(_said, schema.fields)
        known = _KNOWN.get(key)
        if known is not None:
            schema._encoded[options.endianness] = known
            return known
    builder = flatbuf_writer.new_builder()
    offset = _add_schema(builder, schema, options, count())
    builder.Prep(8, 0)  # prefixed by whole words, the contents stay aligned in any FlatBuffer
    made = EncodedSchema(bytes(builder.Bytes[builder.head :]), offset)
    if key is not None and len(made.data) <= _LARGEST:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = made
    return made


def _said(field: Field) -> tuple[Any, ...]:
    """The full contents of a Field table; equal types may still differ in the metadata of their children."""
    type, metadata = field.type, field.metadata
    if type.__class__ in FLAT_CLASSES:
        return field.name, type, field.nullable, metadata and tuple(metadata.items())
    stored = storage_field(field)
    type, metadata = stored.type, stored.metadata
    inner = type.value_type if isinstance(type, types.DictionaryType) else type
    return field.name, type, field.nullable, metadata and tuple(metadata.items()), *map(_said, inner.fields)


def _add_schema(builder: flatbuffers.Builder, schema: Schema, options: IpcWriteOptions, ids: Iterator[int]) -> int:
    fields = schema.fields
    kinds = _Kinds([field.type for field in fields])
    nested = {type for type in kinds.types if type.__class__ not in FLAT_CLASSES}
    if not nested and {field.metadata for field in fields} <= {None}:
        offsets = _add_flat_fields(builder, fields, kinds)
    else:
        flat = [field.metadata is None and field.type not in nested for field in fields]
        offsets, chosen = np.zeros(len(fields), np.int64), np.array(flat, np.bool_)
        easy_fields = list(compress(fields, flat))
        offsets[chosen] = _add_flat_fields(builder, easy_fields, _Kinds([field.type for field in easy_fields]))
        offsets[~chosen] = [
            flatbuf_writer.add_table(builder, "Field", field_values(field, ids))
            for field in compress(fields, (~chosen).tolist())
        ]
    values: dict[str, Any] = {
        "endianness": ENUMS["Endianness"]["Big" if options.endianness == "big" else "Little"],
        "fields": Built(flatbuf_writer.add_offsets(builder, offsets)),
        "custom_metadata": key_values(schema.metadata),
    }
    return flatbuf_writer.add_table(builder, "Schema", values)


# The vtable of a Field table with name, nullable, type and no children: its size, the table's, and its slots' offsets.
_FLAT_VTABLE = np.array([16, 20, 4, 16, 17, 8, 0, 12], "<u2")
_FLAT_WORDS = 5


def _add_flat_fields(builder: flatbuffers.Builder, fields: list[Field], kinds: _Kinds) -> Indices:
    """Write flat Field tables with array operations; returns their offsets.

    All share one vtable and one empty vector of children; fields of equal type share its table.
    """
    if not fields:
        return np.empty(0, np.int64)
    types_at, tags = kinds.add_tables(builder)
    no_children = flatbuf_writer.add_offsets(builder, [])
    names, at = _name_strings([field.name for field in fields])
    count = len(fields)
    head = _FLAT_VTABLE.nbytes
    size = head + 4 * _FLAT_WORDS * count
    builder.Prep(4, size + len(names))
    end = builder.Offset() + size + len(names)  # offset from the end of the first byte written here
    first = head + 4 * _FLAT_WORDS * np.arange(count)
    offsets: Indices = end - first
    words = np.empty((count, _FLAT_WORDS), "<u4")
    words[:, 0] = first  # back to the vtable at the start
    words[:, 1] = size + at - (first + 4)
    words[:, 2] = offsets - 8 - types_at
    words[:, 3] = offsets - 12 - no_children
    words[:, 4] = tags << 8 | np.fromiter([field.nullable for field in fields], np.int64, count)
    flatbuf_writer.add_raw(builder, _FLAT_VTABLE.tobytes() + words.tobytes() + names)
    return offsets


class _Kinds:
    """The distinct types of many fields, compared by identity first.

    Attributes
    ----------
    types : dict of DataType to int
        A number for each distinct type.
    """

    __slots__ = ("_ids", "_numbers", "types")

    def __init__(self, types: list[DataType]) -> None:
        self._ids = list(map(id, types))
        self.types: dict[DataType, int] = {}
        distinct = dict(zip(self._ids, types, strict=True))
        self._numbers = {key: self.types.setdefault(type, len(self.types)) for key, type in distinct.items()}

    def add_tables(self, builder: flatbuffers.Builder) -> tuple[Indices, Indices]:
        """Write each type's table once; returns for each field the offset of its type's table, and its union tag."""
        written = []
        for type in self.types:
            member, content = type_values(type)
            tag = UNIONS["Type"].index(member) + 1
            written.append((flatbuf_writer.add_table(builder, member, content), tag))
        chosen = np.fromiter(map(self._numbers.__getitem__, self._ids), np.int64, len(self._ids))
        offsets, tags = np.array(written).T
        return offsets[chosen], tags[chosen]


def _name_strings(names: list[str]) -> tuple[bytes, Indices]:
    """Encode consecutive FlatBuffers strings, padded to words; returns the bytes and each string's start."""
    text = "".join(names)
    encoded = names if text.isascii() else [name.encode() for name in names]
    raw = np.frombuffer(text.encode(), np.uint8)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    sizes = (lengths + 8) & -4  # a length, the bytes, at least one zero
    starts = np.cumsum(sizes) - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    size, length = int(sizes[0]), int(lengths[0])
    if (lengths == length).all():
        rows = data.reshape(-1, size)
        rows[:, :4] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
        rows[:, 4 : 4 + length] = raw.reshape(len(names), length)
    else:
        data.view("<u4")[starts >> 2] = lengths
        data[ranges(starts + 4, lengths)] = raw
    return data.tobytes(), starts


def schema_message(encoded: EncodedSchema, options: IpcWriteOptions, start: int = 0) -> bytes:
    """Encode and frame a Schema message."""
    make = _message if len(encoded.data) <= _LARGEST else _message.__wrapped__
    return make(encoded, options.metadata_version, options.use_legacy_format, start % ALIGNMENT)


@lru_cache(_MOST_KNOWN)
def _message(encoded: EncodedSchema, version: str, legacy: bool, start: int) -> bytes:
    builder, table = encoded.start()
    values = message_values("Schema", table, 0, None, version)
    data = flatbuf_writer.finish(builder, flatbuf_writer.add_table(builder, "Message", values))
    return frame(data, legacy, start)
