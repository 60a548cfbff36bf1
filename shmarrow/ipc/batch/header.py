"""Fast path for plain record batch headers, read in one pass."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData
from shmarrow.ipc.flatbuffers.reader import U4, FlatBuffer
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
    """A RecordBatch message without custom metadata, compression or variadic buffers."""

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
    """Read the header of a message whose prefix and metadata take ``metadata_length`` bytes; None if it is not plain.

    Parameters
    ----------
    data : uint8 ndarray
        The bytes that contain the message.
    view : memoryview
        A view of ``data``.
    offset, metadata_length : int
        Its place.
    """
    try:
        prefix, size = read_prefix(view, offset, "") or (0, 0)
        if size < 32 or prefix + size != metadata_length:
            return None
        return _header(FlatBuffer(data[offset + prefix : offset + metadata_length], ""))
    except InvalidData:
        return None


def _header(buffer: FlatBuffer) -> Header | None:
    view, size = buffer.view, buffer.size
    table = U4(view, 0)[0]
    offsets = buffer.table_at("Message", table)[1]
    used = offsets[:4]
    if len(used) < 4 or min(used) < 4 or table + max(used) + 8 > size or any(offsets[4:]):
        return None
    version_at, tag_at, header_at, length_at = used
    version = view[table + version_at] | view[table + version_at + 1] << 8
    if view[table + tag_at] != _RECORD_BATCH or version not in _VERSIONS:
        return None
    body_length = _I8(view, table + length_at)[0]
    table = buffer.follow(table + header_at, "Message", "header")
    offsets = buffer.table_at("RecordBatch", table)[1]
    used = offsets[:3]
    if len(used) < 3 or min(used) < 4 or table + max(used) + 8 > size or any(offsets[3:]):
        return None
    length_at, nodes_at, buffers_at = used
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
