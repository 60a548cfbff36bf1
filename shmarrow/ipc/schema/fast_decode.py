"""Fast path for flat fields: no children, dictionary or metadata, and a cached type."""

from __future__ import annotations

from shmarrow.ipc.flatbuffers.reader import FlatBuffer, Reader, extent
from shmarrow.ipc.flatbuffers.tables import UNIONS
from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.ipc.schema.types import cached_type
from shmarrow.types import DataType, Field

_MEMBERS = ("", *UNIONS["Type"])
_NAME_BYTES = 1 << 12


def flat_type(buffer: FlatBuffer, position: int) -> tuple[DataType, bool, int] | None:
    """The type of the Field table at a position, its nullability, and the position of its name's offset.

    None if it has children, a dictionary or metadata, or if its type is not cached.
    """
    view, size = buffer.view, buffer.size
    slots = (*buffer.table_at("Field", position)[1], 0, 0, 0, 0, 0, 0, 0)
    name_at, nullable_at, tag_at, type_at, dictionary, children, metadata = slots[:7]
    if dictionary or metadata or min(name_at, tag_at, type_at) < 4 or 0 < nullable_at < 4 or 0 < children < 4:
        return None
    if position + max(name_at, nullable_at, tag_at, type_at, children) + 4 > size:
        return None
    if children and buffer.vector_at(position + children, 4, "Field", "children")[1]:
        return None
    tag = view[position + tag_at]
    if not 0 < tag < len(_MEMBERS):
        return None
    member = _MEMBERS[tag]
    at = buffer.follow(position + type_at, "Field", "type")
    offsets = buffer.table_at(member, at)[1]
    type = cached_type(member, offsets, bytes(view[at + 4 : at + extent(member, offsets)]))
    return None if type is None else (type, bool(nullable_at and view[position + nullable_at]), position + name_at)


def flat_field(reader: Reader, position: int) -> FieldLayout | None:
    """Read the Field table at a position, if :func:`flat_type` reads its type and its name is short and valid."""
    found = flat_type(reader, position)
    if found is None:
        return None
    type, nullable, slot = found
    at, length = reader.vector_at(slot, 1, "Field", "name")
    if length > _NAME_BYTES:
        return None
    reader.spend(2, length)
    try:
        name = str(reader.view[at : at + length], "utf-8")
    except UnicodeDecodeError:
        return None
    return FieldLayout(Field(name, type, nullable), type, None, (), None)
