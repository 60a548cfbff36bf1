"""Plain fields and roots of schemas, read in one pass."""

from __future__ import annotations

import struct

from shmarrow.ipc.flatbuffers.reader import I4, OFFSETS, U2, U4, Reader
from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.ipc.schema.types import cached_type
from shmarrow.types import DataType, Field

_VTABLE_OF_2 = struct.Struct("<4H").unpack_from
_VTABLE_SIZES = struct.Struct("<HH").unpack_from

SchemaHeader = tuple[int, int, int]
"""The lowest byte of a Schema table and its vtable, where its first reference to a field is, and how many there are."""


def schema_header(view: memoryview, table: int, size: int) -> SchemaHeader | None:
    """The Schema table at a position, if it is little endian and has neither metadata nor features."""
    if table + 4 > size:
        return None
    vtable = table - I4(view, table)[0]
    if vtable < 0 or vtable + 8 > size:
        return None
    vtable_size, table_size, endianness_at, fields_at = _VTABLE_OF_2(view, vtable)
    if vtable_size < 8 or vtable_size & 1 or vtable + vtable_size > size or table + table_size > size:
        return None
    if vtable_size > 8 and any(view[vtable + 8 : vtable + vtable_size]):
        return None
    if fields_at < 4 or fields_at + 4 > table_size:
        return None
    if endianness_at and (endianness_at < 4 or endianness_at + 2 > table_size or U2(view, table + endianness_at)[0]):
        return None
    slot = table + fields_at
    at = slot + U4(view, slot)[0]
    if at == slot or at + 4 > size:
        return None
    count = U4(view, at)[0]
    return (min(table, vtable), at + 4, count) if at + 4 + 4 * count <= size else None


_NAME_BYTES = 1 << 12


def plain_type(reader: Reader, table: int) -> tuple[DataType, bool, int] | None:
    """The type of the Field table at a position, whether it is nullable, and where the reference to its name is.

    None if it has children, a dictionary or metadata, or a type that was not read before.
    """
    view, size = reader.view, reader.size
    found = _table(view, table, size)
    if found is None or not 4 <= len(found[0]) <= 7:
        return None
    (name_at, nullable_at, tag_at, type_at, *others), table_size = found
    children = 0
    if others:
        dictionary, children, metadata = (*others, 0, 0)[:3]
        if dictionary or metadata:
            return None
    if min(name_at, tag_at, type_at) < 4 or max(name_at, type_at, children) + 4 > table_size:
        return None
    if tag_at >= table_size or (nullable_at and not 4 <= nullable_at < table_size):
        return None
    if children:
        at = _follow(view, table + children)
        if children < 4 or at == table + children or at + 4 > size or U4(view, at)[0]:
            return None
    tag = view[table + tag_at]
    nullable = bool(nullable_at and view[table + nullable_at])
    # The table of its type, by its bytes
    at = _follow(view, table + type_at)
    if at == table + type_at:
        return None
    found = _table(view, at, size)
    if found is None:
        return None
    type = cached_type(tag, found[0], bytes(view[at + 4 : at + found[1]]))
    return None if type is None else (type, nullable, table + name_at)


def plain_field(reader: Reader, table: int) -> FieldLayout | None:
    """The Field table at a position, if its type is plain, and its name neither long nor wrong."""
    found = plain_type(reader, table)
    if found is None:
        return None
    view, size = reader.view, reader.size
    type, nullable, slot = found
    at = _follow(view, slot)
    if at == slot or at + 4 > size:
        return None
    length = U4(view, at)[0]
    if length > _NAME_BYTES or at + 4 + length > size:
        return None
    try:
        name = str(view[at + 4 : at + 4 + length], "utf-8")
    except UnicodeDecodeError:
        return None
    reader.spend(2, length)
    return FieldLayout(Field(name, type, nullable), type, None, (), None)


def _table(view: memoryview, table: int, size: int) -> tuple[tuple[int, ...], int] | None:
    """The offsets of the slots of a table at a position, and its size, if it has no more slots than are known."""
    if table + 4 > size:
        return None
    vtable = table - I4(view, table)[0]
    if vtable < 0 or vtable + 4 > size:
        return None
    vtable_size, table_size = _VTABLE_SIZES(view, vtable)
    if not 4 <= vtable_size <= 2 * len(OFFSETS) or vtable_size & 1 or vtable + vtable_size > size:
        return None
    if table_size < 4 or table + table_size > size:
        return None
    return OFFSETS[(vtable_size - 4) >> 1](view, vtable + 4), table_size


def _follow(view: memoryview, slot: int) -> int:
    target: int = slot + U4(view, slot)[0]
    return target
