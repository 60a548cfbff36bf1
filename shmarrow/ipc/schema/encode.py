"""Schemas to FlatBuffers ("Schema message").

Rules kept here:

* the mapping from types to tables is data, one row a type;
* fields that differ in name, nullability and type only are written together, by array operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow import types
from shmarrow.errors import Unsupported
from shmarrow.extension import storage_field
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.builder import Built
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.message.encode import key_values, message_values
from shmarrow.ipc.message.framing import frame
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.schema.decode import Positions
from shmarrow.ipc.schema.types import _WRITE, type_values
from shmarrow.layout.memory import ranges
from shmarrow.types import Field, Schema

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


def encode_schema(schema: Schema, options: IpcWriteOptions, ids: Sequence[int] = ()) -> EncodedSchema:
    """Write a Schema table once for all messages and footers that hold it, with the dictionaries' ids where given."""
    builder = flatbuf_writer.new_builder()
    offset = _add_schema(builder, schema, options, DictionaryIds(ids))
    builder.Prep(8, 0)  # whole words in front keep what is inside aligned wherever the bytes go
    return EncodedSchema(bytes(builder.Bytes[builder.head :]), offset)


def _add_schema(builder: flatbuffers.Builder, schema: Schema, options: IpcWriteOptions, ids: DictionaryIds) -> int:
    fields = schema.fields
    plain = [field.metadata is None and not field.type.fields and field.type.__class__ in _WRITE for field in fields]
    features = []
    if options.compression is not None:
        features.append(ENUMS["Feature"]["COMPRESSED_BODY"])
    offsets = np.zeros(len(fields), np.int64)
    chosen = np.array(plain, np.bool_)
    offsets[chosen] = _add_plain_fields(builder, [field for field, easy in zip(fields, plain, strict=True) if easy])
    offsets[~chosen] = [
        flatbuf_writer.add_table(builder, "Field", field_values(field, ids))
        for field, easy in zip(fields, plain, strict=True)
        if not easy
    ]
    values: dict[str, Any] = {
        "endianness": ENUMS["Endianness"]["Big" if options.endianness == "big" else "Little"],
        "fields": Built(flatbuf_writer.add_offsets(builder, offsets)),
        "custom_metadata": key_values(schema.metadata),
        "features": np.array(features, "<i8") if features else None,
    }
    return flatbuf_writer.add_table(builder, "Schema", values)


# The vtable of a Field table with name, nullable, type and no children: its size, the table's, and its slots' offsets.
_PLAIN_VTABLE = np.array([16, 20, 4, 16, 17, 8, 0, 12], "<u2")
_PLAIN_WORDS = 5


def _add_plain_fields(builder: flatbuffers.Builder, fields: list[Field]) -> Positions:
    """Write Field tables that differ in name, nullability and type only, with array operations; gives their offsets.

    All share one vtable and one empty vector of children, and those of one type share its table.
    """
    if not fields:
        return np.empty(0, np.int64)
    numbers: dict[tuple[Any, bool], int] = {}
    kinds = np.array([numbers.setdefault((field.type, field.nullable), len(numbers)) for field in fields])
    tables = []
    for type, nullable in numbers:
        member, content = type_values(type)
        tag = UNIONS["Type"].index(member) + 1
        tables.append((flatbuf_writer.add_table(builder, member, content), int(nullable) | tag << 8))
    no_children = flatbuf_writer.add_offsets(builder, [])
    names, at, names_size = _name_strings([field.name for field in fields])
    count = len(fields)
    head = _PLAIN_VTABLE.nbytes
    size = head + 4 * _PLAIN_WORDS * count
    builder.Prep(4, size + names_size)
    end = builder.Offset() + size + names_size  # the offset from the end of the first byte that is written here
    first = head + 4 * _PLAIN_WORDS * np.arange(count)
    offsets: Positions = end - first
    types_at, flags = (np.array(column)[kinds] for column in zip(*tables, strict=True))
    words = np.empty((count, _PLAIN_WORDS), "<u4")
    words[:, 0] = first  # back to the vtable at the start
    words[:, 1] = size + at - (first + 4)
    words[:, 2] = offsets - 8 - types_at
    words[:, 3] = offsets - 12 - no_children
    words[:, 4] = flags
    flatbuf_writer.add_raw(builder, _PLAIN_VTABLE.tobytes() + words.tobytes() + names)
    return offsets


def _name_strings(names: list[str]) -> tuple[bytes, Positions, int]:
    """Strings one after another as FlatBuffers have them, where each starts, and the size of all, a multiple of 4."""
    encoded = [name.encode() for name in names]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    sizes = (lengths + 8) & -4  # a length, the bytes, at least one zero
    starts = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    data = np.zeros(total, np.uint8)
    data[starts[:, None] + np.arange(4)] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    data[ranges(starts + 4, lengths)] = np.frombuffer(b"".join(encoded), np.uint8)
    return data.tobytes(), starts, total


def schema_message(encoded: EncodedSchema, options: IpcWriteOptions, start: int = 0) -> bytes:
    """A framed Schema message."""
    builder, table = encoded.start()
    values = message_values("Schema", table, 0, None, options)
    return frame(flatbuf_writer.finish(builder, flatbuf_writer.add_table(builder, "Message", values)), options, start)
