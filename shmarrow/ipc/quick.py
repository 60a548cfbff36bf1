"""The headers of plain record batches, the roots of footers and schemas, and plain fields, read in one pass.

The generic reader of :mod:`shmarrow.ipc.flatbuf` takes a dozen microseconds for each of these, which is a third of what
opening a file and having a column takes. Here the same bytes are read with the same checks by straight-line code, for
files as nearly all writers make them. Rules kept here:

* whatever is not plain, and whatever fails a check, gives None: the generic reader then reads it or says what is wrong;
* what is given is what the generic reader gives, and a test holds the two to each other.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.ipc.flatbuf import I4, OFFSETS, U2, U4, Reader
from shmarrow.ipc.schema import WireField, known_type
from shmarrow.types import DataType, Field

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

_PREFIX = struct.Struct("<iiI").unpack_from
_I8 = struct.Struct("<q").unpack_from
_VTABLE_OF_4 = struct.Struct("<6H").unpack_from
_VTABLE_OF_2 = struct.Struct("<4H").unpack_from
_VTABLE_SIZES = struct.Struct("<HH").unpack_from
_VTABLE_OF_3 = struct.Struct("<5H").unpack_from
_PAIR = np.dtype("<i8")
_RECORD_BATCH = 3
_VERSIONS = (3, 4)


class Header(NamedTuple):
    """What a RecordBatch message says, without metadata of its own, compression or variadic buffers."""

    version: int
    length: int
    nodes: npt.NDArray[np.int64]
    buffers: npt.NDArray[np.int64]
    body_length: int


def batch_header(
    data: Bytes,
    view: memoryview,
    offset: int,
    metadata_length: int,
    peek: Callable[[int, int], bytes] | None = None,
) -> Header | None:
    """The header of a message whose prefix and metadata take ``metadata_length`` bytes.

    Parameters
    ----------
    data : uint8 ndarray
        The bytes that the message is in, at ``offset``.
    view : memoryview
        The same bytes; or where ``peek`` is given, a copy of the first of the message.
    offset, metadata_length : int
        Its place.
    peek : callable, optional
        Reads so many bytes from a position of ``data``, at less cost than touching a page of it.
    """
    ahead = 0 if peek is None else offset
    first = offset - ahead
    continuation, size, root = _PREFIX(view, first)
    start = first + 8
    whole = first + metadata_length
    end = min(whole, len(view))
    if continuation != -1 or size != metadata_length - 8 or size < 32 or root > size - 4:
        return None
    # Message: version, header's tag, header, body length; no metadata
    table = start + root
    if table + 4 > end:
        return None
    vtable = table - I4(view, table)[0]
    if vtable < start or vtable + 12 > end:
        return None
    vtable_size, table_size, version_at, tag_at, header_at, length_at = _VTABLE_OF_4(view, vtable)
    if table + table_size > end or vtable + vtable_size > end or vtable_size < 12 or vtable_size & 1:
        return None
    if vtable_size > 12 and _any_slot(view, vtable + 12, vtable + vtable_size):
        return None
    if min(version_at, tag_at, header_at, length_at) < 4:
        return None
    if max(version_at + 2, header_at + 4, length_at + 8) > table_size:
        return None
    version = view[table + version_at] | view[table + version_at + 1] << 8
    if tag_at >= table_size or view[table + tag_at] != _RECORD_BATCH or version not in _VERSIONS:
        return None
    body_length = _I8(view, table + length_at)[0]
    # RecordBatch: length, nodes, buffers; no compression, no counts of variadic buffers
    header = table + header_at
    table = header + U4(view, header)[0]
    if table == header or table + 4 > end:
        return None
    vtable = table - I4(view, table)[0]
    if vtable < start or vtable + 10 > end:
        return None
    vtable_size, table_size, length_at, nodes_at, buffers_at = _VTABLE_OF_3(view, vtable)
    if table + table_size > end or vtable + vtable_size > end or vtable_size < 10 or vtable_size & 1:
        return None
    if vtable_size > 10 and _any_slot(view, vtable + 10, vtable + vtable_size):
        return None
    if min(length_at, nodes_at, buffers_at) < 4 or max(length_at + 8, nodes_at + 4, buffers_at + 4) > table_size:
        return None
    length = _I8(view, table + length_at)[0]
    nodes = _vector(data, view, table + nodes_at, whole, ahead, peek)
    buffers = _vector(data, view, table + buffers_at, whole, ahead, peek)
    if length < 0 or body_length < 0 or nodes is None or buffers is None:
        return None
    return Header(version, length, nodes, buffers, body_length)


def _any_slot(view: memoryview, start: int, end: int) -> bool:
    return any(view[start:end])


def _vector(
    data: Bytes, view: memoryview, slot: int, end: int, ahead: int, peek: Callable[[int, int], bytes] | None
) -> Any:
    """A vector of structs of two 64-bit numbers as an ndarray of shape (n, 2); a view."""
    at = slot + U4(view, slot)[0]
    if at == slot or at + 4 > end:
        return None
    count = U4(view, at)[0] if peek is None else U4(peek(ahead + at, 4))[0]
    if at + 4 + 16 * count > end:
        return None
    return np.ndarray((count, 2), _PAIR, data, ahead + at + 4)


Footer = tuple[int, int, int, int]
"""The version in a footer, where the first block of a record batch is, how many there are, and the schema."""

_BLOCK_SIZE = 24


def footer_header(prefix: bytes, size: int) -> Footer | None:
    """The root of a footer of ``size`` bytes, from its first bytes; None where those do not hold what is needed."""
    end = len(prefix)
    if end < 32:
        return None
    table: int = U4(prefix, 0)[0]
    if table + 4 > end:
        return None
    vtable = table - I4(prefix, table)[0]
    if vtable < 0 or vtable + 12 > end:
        return None
    vtable_size, table_size, version_at, schema_at, _, batches_at = _VTABLE_OF_4(prefix, vtable)
    if vtable_size < 12 or vtable_size & 1 or vtable + vtable_size > end or table + table_size > end:
        return None
    if min(version_at, schema_at, batches_at) < 4:
        return None
    if max(version_at + 2, schema_at + 4, batches_at + 4) > table_size:
        return None
    version = U2(prefix, table + version_at)[0]
    slot = table + schema_at
    schema = slot + U4(prefix, slot)[0]
    if schema == slot or schema + 4 > size:
        return None
    slot = table + batches_at
    at = slot + U4(prefix, slot)[0]
    if version > max(_VERSIONS) or at == slot or at + 4 > end:
        return None
    count = U4(prefix, at)[0]
    return (version, at + 4, count, schema) if at + 4 + _BLOCK_SIZE * count <= size else None


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
    if vtable_size > 8 and _any_slot(view, vtable + 8, vtable + vtable_size):
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
    type = known_type(tag, found[0], bytes(view[at + 4 : at + found[1]]))
    return None if type is None else (type, nullable, table + name_at)


def plain_field(reader: Reader, table: int) -> WireField | None:
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
    return WireField(Field(name, type, nullable), type, None, (), None)


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
