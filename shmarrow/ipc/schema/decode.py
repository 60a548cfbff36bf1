"""Decoding of fields and types ("Schema message"); ``encode`` is the inverse.

Tables map to types by data, one row per type. A decoded field has the physical layout of its column: the type of its
buffers, its children, its dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shmarrow import types
from shmarrow.errors import InvalidData, LimitExceeded, Limits, at
from shmarrow.ipc.flatbuffers.reader import TableView
from shmarrow.ipc.message.decode import read_key_values
from shmarrow.ipc.schema.types import read_index_type, read_type, text
from shmarrow.layout.listing import walk
from shmarrow.types import DataType, Field, extension_type

# --- reading ----------------------------------------------------------------------------------------------------


class FieldLayout(NamedTuple):
    """A field and its physical layout in a message.

    Attributes
    ----------
    field : Field
        The logical field.
    type : DataType
        The type of the buffers: the dictionary type for a dictionary-encoded field, the storage type for an extension
        type.
    dictionary_id : int or None
        The id of the field's dictionary.
    children : tuple of FieldLayout
        The children in the same message.
    values : FieldLayout or None
        For a dictionary-encoded field, the layout of the dictionary's values in their messages.
    """

    field: Field
    type: Any
    dictionary_id: int | None
    children: tuple[FieldLayout, ...]
    values: FieldLayout | None


def encoded_fields(fields: Sequence[FieldLayout]) -> list[FieldLayout]:
    """The dictionary-encoded fields among these and their descendants, in pre-order."""
    below = walk(fields, lambda field: (field.values or field).children)
    return [field for field in below if field.values is not None]


def parse_field(table: TableView, limits: Limits, depth: int = 0) -> FieldLayout:
    """Parse a Field table and its children."""
    if depth >= limits.depth:
        raise LimitExceeded(f"types nest deeper than Limits.depth = {limits.depth}")
    name = text(table["name"], "field name")
    encoding = table["dictionary"]
    below = depth + 1 if encoding is None else depth + 2
    children = tuple([parse_field(child, limits, below) for child in table["children"]])
    kind, type_table = table["type"]
    if type_table is None:
        raise InvalidData(f"field {name!r} has an unknown type, found {kind}")
    with at("field", name):
        type = read_type(kind, type_table, tuple([child.field for child in children]))
    metadata = read_key_values(table["custom_metadata"], table.reader)
    nullable = table["nullable"]
    storage: DataType = type
    dictionary_id = None
    values = None
    if encoding is not None:
        index = encoding["indexType"]
        with at("field", name), at("dictionary"):
            index_type = types.int32() if index is None else read_index_type(index)
        dictionary_id = encoding["id"]
        values = FieldLayout(Field(name, type), type, None, children, None)
        children = ()
        storage = types.DictionaryType(index_type, type, encoding["isOrdered"])
    logical, metadata = extension_type(storage, metadata)
    if values is not None and logical is not storage and isinstance(logical, types.DictionaryType):
        storage = logical  # the extension type applies to the values
        values = values._replace(field=Field(name, logical.value_type))
    return FieldLayout(Field(name, logical, nullable, metadata), storage, dictionary_id, children, values)
