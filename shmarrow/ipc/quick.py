"""The headers of plain record batches, and the root of footers, read in one pass.

The generic reader of :mod:`shmarrow.ipc.flatbuf` takes a dozen microseconds for a record batch's message, which is a
third of what opening a file and having a column takes. Here the same bytes are read with the same checks by
straight-line code, for messages as nearly all writers make them. Rules kept here:

* whatever is not plain, and whatever fails a check, gives None: the generic reader then reads it or says what is wrong;
* what is given is what the generic reader gives, and a test holds the two to each other.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shmarrow.buffer import Bytes

_PREFIX = struct.Struct("<iiI").unpack_from
_I4 = struct.Struct("<i").unpack_from
_U4 = struct.Struct("<I").unpack_from
_I8 = struct.Struct("<q").unpack_from
_VTABLE_OF_4 = struct.Struct("<6H").unpack_from
_VTABLE_OF_3 = struct.Struct("<5H").unpack_from
_U2 = struct.Struct("<H").unpack_from
_PAIR = np.dtype("<i8")
_RECORD_BATCH = 3
_VERSIONS = (3, 4)


class Header(NamedTuple):
    """What a RecordBatch message says, without metadata of its own, compression or variadic buffers."""

    version: int
    length: int
    nodes: npt.NDArray[np.int64]
    buffers: npt.NDArray[np.int64]


def batch_header(data: Bytes, view: memoryview, offset: int, metadata_length: int, body_length: int) -> Header | None:
    """The header of the message at ``offset``, which takes ``metadata_length`` bytes and a body within ``data``."""
    continuation, size, root = _PREFIX(view, offset)
    start = offset + 8
    end = offset + metadata_length
    if continuation != -1 or size != metadata_length - 8 or size < 32 or root > size - 4:
        return None
    # Message: version, header's tag, header, body length; no metadata
    table = start + root
    vtable = table - _I4(view, table)[0]
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
    if _I8(view, table + length_at)[0] != body_length:
        return None
    # RecordBatch: length, nodes, buffers; no compression, no counts of variadic buffers
    header = table + header_at
    table = header + _U4(view, header)[0]
    if table == header or table + 4 > end:
        return None
    vtable = table - _I4(view, table)[0]
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
    if length < 0 or nodes is None or buffers is None:
        return None
    return Header(version, length, nodes, buffers)


def _any_slot(view: memoryview, start: int, end: int) -> bool:
    return any(view[start:end])


def _vector(data: Bytes, view: memoryview, slot: int, end: int) -> Any:
    """A vector of structs of two 64-bit numbers as an ndarray of shape (n, 2); a view."""
    at = slot + _U4(view, slot)[0]
    if at == slot or at + 4 > end:
        return None
    count = _U4(view, at)[0]
    if at + 4 + 16 * count > end:
        return None
    return np.ndarray((count, 2), _PAIR, data, at + 4)


class Footer(NamedTuple):
    """The version in a footer, where the first block of a record batch is, and how many there are."""

    version: int
    start: int
    blocks: int


_BLOCK_SIZE = 24


def footer_header(prefix: bytes, size: int) -> Footer | None:
    """The root of a footer of ``size`` bytes, from its first bytes; None where those do not hold what is needed."""
    end = len(prefix)
    if end < 32:
        return None
    table: int = _U4(prefix, 0)[0]
    if table + 4 > end:
        return None
    vtable = table - _I4(prefix, table)[0]
    if vtable < 0 or vtable + 12 > end:
        return None
    vtable_size, table_size, version_at, schema_at, _, batches_at = _VTABLE_OF_4(prefix, vtable)
    if vtable_size < 12 or vtable_size & 1 or vtable + vtable_size > end or table + table_size > end:
        return None
    if min(version_at, schema_at, batches_at) < 4:
        return None
    if max(version_at + 2, schema_at + 4, batches_at + 4) > table_size:
        return None
    version = _U2(prefix, table + version_at)[0]
    slot = table + batches_at
    at = slot + _U4(prefix, slot)[0]
    if version > max(_VERSIONS) or at == slot or at + 4 > end:
        return None
    count = _U4(prefix, at)[0]
    return Footer(version, at + 4, count) if at + 4 + _BLOCK_SIZE * count <= size else None
