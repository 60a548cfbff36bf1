"""The header of a record batch, read in one pass where it is plain."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.ipc.flatbuffers.reader import I4, U4

if TYPE_CHECKING:
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
) -> Header | None:
    """The header of a message whose prefix and metadata take ``metadata_length`` bytes.

    Parameters
    ----------
    data : uint8 ndarray
        The bytes that the message is in, at ``offset``.
    view : memoryview
        The same bytes.
    offset, metadata_length : int
        Its place.
    """
    continuation, size, root = _PREFIX(view, offset)
    start = offset + 8
    end = min(offset + metadata_length, len(view))
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
    nodes = _vector(data, view, table + nodes_at, end)
    buffers = _vector(data, view, table + buffers_at, end)
    if length < 0 or body_length < 0 or nodes is None or buffers is None:
        return None
    return Header(version, length, nodes, buffers, body_length)


def _any_slot(view: memoryview, start: int, end: int) -> bool:
    return any(view[start:end])


def _vector(data: Bytes, view: memoryview, slot: int, end: int) -> Any:
    """A vector of structs of two 64-bit numbers as an ndarray of shape (n, 2); a view."""
    at = slot + U4(view, slot)[0]
    if at == slot or at + 4 > end:
        return None
    count = U4(view, at)[0]
    if at + 4 + 16 * count > end:
        return None
    return np.ndarray((count, 2), _PAIR, data, at + 4)
