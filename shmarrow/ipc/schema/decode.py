"""Fields and types from FlatBuffers ("Schema message"); ``encode`` has the way back.

Rules kept here:

* the mapping from tables to types is data, one row a type;
* a field that is read says how its column lies in a message: the type of its buffers, its children, its dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData, LimitExceeded, Limits
from shmarrow.ipc.flatbuffers.reader import TableView
from shmarrow.ipc.message.decode import read_key_values
from shmarrow.ipc.schema.types import read_index_type, read_type, text
from shmarrow.layout.listing import walk
from shmarrow.types import DataType, Field
from shmarrow.types.extension import extension_type

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Positions: TypeAlias = "npt.NDArray[np.int64]"

# --- reading ----------------------------------------------------------------------------------------------------


class FieldLayout(NamedTuple):
    """A field, and how it lies in a message.

    Attributes
    ----------
    field : Field
        The logical field.
    type : DataType
        The type that the buffers have: for a dictionary-encoded field the dictionary type, for an extension type its
        storage.
    dictionary_id : int or None
        The id of the field's dictionary.
    children : tuple of FieldLayout
        The children that lie in the same message.
    values : FieldLayout or None
        For a dictionary-encoded field, how the dictionary's values lie in their own message.
    """

    field: Field
    type: Any
    dictionary_id: int | None
    children: tuple[FieldLayout, ...]
    values: FieldLayout | None


def encoded_fields(fields: Sequence[FieldLayout]) -> list[FieldLayout]:
    """The dictionary-encoded fields among these and within them, in the order of a schema's walk."""
    below = walk(fields, lambda field: (field.values or field).children)
    return [field for field in below if field.values is not None]


def parse_field(table: TableView, limits: Limits, depth: int = 0) -> FieldLayout:
    """A field and its children from a Field table."""
    if depth >= limits.depth:
        raise LimitExceeded(f"types nest deeper than Limits.depth = {limits.depth}")
    name = text(table["name"], "field name")
    children = tuple([parse_field(child, limits, depth + 1) for child in table["children"]])
    kind, type_table = table["type"]
    if type_table is None:
        raise InvalidData(f"field {name!r} has an unknown type, found {kind}")
    try:
        type = read_type(kind, type_table, tuple([child.field for child in children]))
    except InvalidArgument as error:
        raise InvalidData(f"field {name!r}: {error}") from None
    metadata = read_key_values(table["custom_metadata"], table.reader)
    nullable = table["nullable"]
    encoding = table["dictionary"]
    storage: DataType = type
    dictionary_id = None
    values = None
    if encoding is not None:
        index = encoding["indexType"]
        index_type = types.int32() if index is None else read_index_type(index, name)
        dictionary_id = encoding["id"]
        values = FieldLayout(Field(name, type), type, None, children, None)
        children = ()
        storage = types.DictionaryType(index_type, type, encoding["isOrdered"])
    logical, metadata = extension_type(storage, metadata)
    if values is not None and logical is not storage and isinstance(logical, types.DictionaryType):
        storage = logical  # it is the values that are of an extension type
        values = values._replace(field=Field(name, logical.value_type))
    return FieldLayout(Field(name, logical, nullable, metadata), storage, dictionary_id, children, values)
