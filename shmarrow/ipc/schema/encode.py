"""Schemas to FlatBuffers ("Schema message").

Rules kept here:

* the mapping from types to tables is data, one row a type;
* fields that differ in name, nullability and type only are written together, by array operations;
* the bytes of small schemas are kept, a bounded number of them, for others that say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow import types
from shmarrow.errors import Unsupported
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.builder import Built
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.message.encode import key_values, message_values
from shmarrow.ipc.message.framing import frame
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.schema.decode import Positions
from shmarrow.ipc.schema.types import FLAT_CLASSES, type_values
from shmarrow.layout.memory import ranges
from shmarrow.types import DataType, Field, Schema
from shmarrow.types.extension import storage_field

if TYPE_CHECKING:
    import flatbuffers


class DictionaryIds:
    """Ids of the dictionaries of a schema, in the order in which its fields are walked: 0, 1, ... or those given."""

    __slots__ = ("_given", "count")

    def __init__(self, given: Sequence[int] = ()) -> None:
        self.count = 0
        self._given = given

    def next(self) -> int:
        """One more id."""
        self.count += 1
        return self._given[self.count - 1] if self._given else self.count - 1


def field_values(field: Field, ids: DictionaryIds) -> dict[str, Any]:
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
            "id": ids.next(),
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
    """A Schema table and all that it refers to, as the last bytes of a FlatBuffer; it goes into several of them.

    Attributes
    ----------
    data : bytes
        The bytes, with no references to what is outside.
    offset : int
        The table's offset from the end.
    """

    data: bytes
    offset: int

    def start(self) -> tuple[flatbuffers.Builder, Built]:
        """A builder that has the table, and nothing else yet."""
        builder = flatbuf_writer.new_builder()
        builder.Prep(8, len(self.data))
        flatbuf_writer.add_raw(builder, self.data)
        return builder, Built(self.offset)


_KNOWN: dict[Any, EncodedSchema] = {}
"""Schemas that were written before, by all that their bytes say."""
_MOST_KNOWN, _MOST_FIELDS, _LARGEST = 256, 128, 1 << 14


def encode_schema(schema: Schema, options: IpcWriteOptions, ids: Sequence[int] = ()) -> EncodedSchema:
    """Write a Schema table once for all messages and footers that hold it, with the dictionaries' ids where given."""
    key = None
    if not ids and len(schema) <= _MOST_FIELDS:
        metadata = schema.metadata and tuple(schema.metadata.items())
        key = options.compression is None, options.endianness, metadata, *map(_said, schema.fields)
        known = _KNOWN.get(key)
        if known is not None:
            return known
    builder = flatbuf_writer.new_builder()
    offset = _add_schema(builder, schema, options, DictionaryIds(ids))
    builder.Prep(8, 0)  # whole words in front keep what is inside aligned wherever the bytes go
    made = EncodedSchema(bytes(builder.Bytes[builder.head :]), offset)
    if key is not None and len(made.data) <= _LARGEST:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = made
    return made


def _said(field: Field) -> tuple[Any, ...]:
    """All that a Field table says; of types that are equal, the children may still differ in their metadata."""
    type, metadata = field.type, field.metadata
    if type.__class__ in FLAT_CLASSES:
        return field.name, type, field.nullable, metadata and tuple(metadata.items())
    stored = storage_field(field)
    type, metadata = stored.type, stored.metadata
    inner = type.value_type if isinstance(type, types.DictionaryType) else type
    return field.name, type, field.nullable, metadata and tuple(metadata.items()), *map(_said, inner.fields)


def _add_schema(builder: flatbuffers.Builder, schema: Schema, options: IpcWriteOptions, ids: DictionaryIds) -> int:
    fields = schema.fields
    features = [] if options.compression is None else [ENUMS["Feature"]["COMPRESSED_BODY"]]
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
        "features": np.array(features, "<i8") if features else None,
    }
    return flatbuf_writer.add_table(builder, "Schema", values)


# The vtable of a Field table with name, nullable, type and no children: its size, the table's, and its slots' offsets.
_FLAT_VTABLE = np.array([16, 20, 4, 16, 17, 8, 0, 12], "<u2")
_FLAT_WORDS = 5


def _add_flat_fields(builder: flatbuffers.Builder, fields: list[Field], kinds: _Kinds) -> Positions:
    """Write Field tables that differ in name, nullability and type only, with array operations; gives their offsets.

    All share one vtable and one empty vector of children, and those of one type share its table.
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
    end = builder.Offset() + size + len(names)  # the offset from the end of the first byte that is written here
    first = head + 4 * _FLAT_WORDS * np.arange(count)
    offsets: Positions = end - first
    words = np.empty((count, _FLAT_WORDS), "<u4")
    words[:, 0] = first  # back to the vtable at the start
    words[:, 1] = size + at - (first + 4)
    words[:, 2] = offsets - 8 - types_at
    words[:, 3] = offsets - 12 - no_children
    words[:, 4] = tags << 8 | np.fromiter([field.nullable for field in fields], np.int64, count)
    flatbuf_writer.add_raw(builder, _FLAT_VTABLE.tobytes() + words.tobytes() + names)
    return offsets


class _Kinds:
    """The distinct types among those of many fields; most are the same object, so they are told apart by that first.

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

    def add_tables(self, builder: flatbuffers.Builder) -> tuple[Positions, Positions]:
        """Write the table of each type once; gives for each field the offset of its type's table, and its union tag."""
        written = []
        for type in self.types:
            member, content = type_values(type)
            tag = UNIONS["Type"].index(member) + 1
            written.append((flatbuf_writer.add_table(builder, member, content), tag))
        chosen = np.fromiter(map(self._numbers.__getitem__, self._ids), np.int64, len(self._ids))
        offsets, tags = np.array(written).T
        return offsets[chosen], tags[chosen]


def _name_strings(names: list[str]) -> tuple[bytes, Positions]:
    """Strings one after another as FlatBuffers have them, in whole words, and where each starts."""
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
    """A framed Schema message."""
    make = _message if len(encoded.data) <= _LARGEST else _message.__wrapped__
    return frame(make(encoded, options.metadata_version), options, start)


@lru_cache(_MOST_KNOWN)
def _message(encoded: EncodedSchema, version: str) -> bytes:
    builder, table = encoded.start()
    values = message_values("Schema", table, 0, None, IpcWriteOptions(metadata_version=version))
    return flatbuf_writer.finish(builder, flatbuf_writer.add_table(builder, "Message", values))
