"""The header of a record batch, read in one pass where it is plain."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData
from shmarrow.ipc.flatbuffers.reader import FlatBuffer
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.message.decode import READ_VERSIONS
from shmarrow.ipc.message.framing import read_prefix

if TYPE_CHECKING:
    import numpy.typing as npt

_I8 = struct.Struct("<q").unpack_from
_PAIR = np.dtype("<i8")
_RECORD_BATCH = UNIONS["MessageHeader"].index("RecordBatch") + 1
_VERSIONS = [ENUMS["MetadataVersion"][name] for name in READ_VERSIONS]


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
    try:
        prefix = read_prefix(view, offset, "")
        if prefix is None or prefix[1] < 32 or sum(prefix) != metadata_length:
            return None
        return _header(FlatBuffer(data[offset + prefix[0] : offset + metadata_length], ""))
    except InvalidData:
        return None


def _header(buffer: FlatBuffer) -> Header | None:
    view = buffer.view
    table = buffer.follow(0, "root")
    offsets = buffer.table_at("Message", table)[1]
    version_at, tag_at, header_at, length_at, *more = (*offsets, 0, 0, 0, 0)[: max(len(offsets), 4)]
    if any(more) or min(version_at, tag_at, header_at, length_at) < 4:
        return None
    if table + max(version_at, tag_at, header_at, length_at) + 8 > buffer.size:
        return None
    version = view[table + version_at] | view[table + version_at + 1] << 8
    if view[table + tag_at] != _RECORD_BATCH or version not in _VERSIONS:
        return None
    body_length = _I8(view, table + length_at)[0]
    table = buffer.follow(table + header_at, "Message", "header")
    offsets = buffer.table_at("RecordBatch", table)[1]
    length_at, nodes_at, buffers_at, *more = (*offsets, 0, 0, 0)[: max(len(offsets), 3)]
    if any(more) or min(length_at, nodes_at, buffers_at) < 4:
        return None
    if table + max(length_at, nodes_at, buffers_at) + 8 > buffer.size:
        return None
    length = _I8(view, table + length_at)[0]
    if length < 0 or body_length < 0:
        return None
    nodes, count = buffer.vector_at(table + nodes_at, 16, "RecordBatch", "nodes")
    buffers, buffer_count = buffer.vector_at(table + buffers_at, 16, "RecordBatch", "buffers")
    return Header(
        version,
        length,
        np.ndarray((count, 2), _PAIR, buffer.data, nodes),
        np.ndarray((buffer_count, 2), _PAIR, buffer.data, buffers),
        body_length,
    )
