"""Encapsulated messages: a prefix, metadata as a FlatBuffer, padding, and a body ("Encapsulated message format").

Pure functions from bytes to messages and back. Rules kept here:

* both framings are read: ``FF FF FF FF`` and a size, and the older one of a size alone;
* a size of zero, or the end of the input where a prefix would start, is the end of a stream;
* metadata versions 4 and 5 are read, all others are refused by their name;
* a message that is written takes a multiple of the alignment, and so does its metadata with the prefix.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from shmarrow.buffer import Bytes, padded
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, LimitExceeded, Limits, Unsupported
from shmarrow.ipc import flatbuf
from shmarrow.ipc.flatbuf import ENUMS, Reader, TableView
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.types import Metadata

CONTINUATION = b"\xff\xff\xff\xff"
_PREFIX = struct.Struct("<iI").unpack_from
_SIZE = struct.Struct("<i").unpack_from
_FILE = int.from_bytes(b"ARRO", "little")
_VERSIONS = {number: name for name, number in ENUMS["MetadataVersion"].items()}
READ_VERSIONS = ("V4", "V5")


class Prefix(NamedTuple):
    """What stands before a message's metadata: the bytes of the prefix, and those of the metadata."""

    size: int
    metadata_size: int


class Message(NamedTuple):
    """A message whose metadata was parsed.

    Attributes
    ----------
    kind : str
        ``Schema``, ``RecordBatch``, ``DictionaryBatch``, ``Tensor`` or ``SparseTensor``.
    header : TableView
        The table of that kind.
    version : int
        The metadata version, 3 for V4 and 4 for V5.
    body_length : int
        Bytes of the body.
    table : TableView
        The Message table itself.
    metadata : uint8 ndarray
        The bytes of the metadata.
    """

    kind: str
    header: TableView
    version: int
    body_length: int
    table: TableView
    metadata: Bytes

    @property
    def custom_metadata(self) -> Metadata | None:
        """The message's own metadata."""
        return read_key_values(self.table["custom_metadata"])


def read_prefix(data: Any, offset: int, where: str, limits: Limits = DEFAULT_LIMITS) -> Prefix | None:
    """The prefix at ``offset``; None where the stream ends.

    Parameters
    ----------
    data : uint8 ndarray or bytes
        At least 8 bytes from ``offset`` on, or all that there are.
    """
    left = len(data) - offset
    if left <= 0:
        return None
    if left < 4:
        raise InvalidData(f"{where}: a message prefix needs 4 bytes at {offset} but {left} are left")
    size = _SIZE(data, offset)[0]
    prefix = 4
    if size == -1:
        if left < 8:
            raise InvalidData(f"{where}: a message prefix needs 8 bytes at {offset} but {left} are left")
        size = _SIZE(data, offset + 4)[0]
        prefix = 8
    if size == 0:
        return None
    if size < 0:
        raise InvalidData(f"{where}: the message at {offset} says that its metadata has {size} bytes")
    if size == _FILE:
        raise InvalidData(f"{where}: expected a message at {offset}, found the magic of a file; open_file reads it")
    if size > limits.metadata_bytes:
        raise LimitExceeded(
            f"{where}: the message at {offset} has {size} bytes of metadata, "
            f"more than Limits.metadata_bytes = {limits.metadata_bytes}"
        )
    return Prefix(prefix, size)


def parse_metadata(metadata: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> Message:
    """A message from the bytes of its metadata."""
    table = Reader(metadata, where, limits).root("Message")
    version = table["version"]
    check_version(version, where)
    kind, header = table["header"]
    if header is None:
        raise InvalidData(f"{where}: the message has no header of a known kind, found {kind}")
    body_length = table["bodyLength"]
    if body_length < 0:
        raise InvalidData(f"{where}: the message says that its body has {body_length} bytes")
    return Message(kind, header, version, body_length, table, metadata)


def check_version(version: int, where: str) -> None:
    """Versions 4 and 5 are read."""
    name = _VERSIONS.get(version, f"number {version}, later than V5" if version > 4 else f"number {version}")
    if name not in READ_VERSIONS:
        raise Unsupported(f"{where}: metadata version {name}; versions V4 and V5 are read")


def read_message(data: Bytes, offset: int, where: str, limits: Limits = DEFAULT_LIMITS) -> tuple[Message, int] | None:
    """The message at ``offset`` and the offset of its body, all of it within ``data``; None at the end of the stream.

    Raises
    ------
    InvalidData
        If the message is cut, or breaks the format.
    """
    prefix = read_prefix(data, offset, where, limits)
    if prefix is None:
        return None
    start = offset + prefix.size
    end = start + prefix.metadata_size
    if end > len(data):
        raise InvalidData(f"{where}: the metadata at {offset} need [{start}, {end}) but there are {len(data)} bytes")
    message = parse_metadata(data[start:end], where, limits)
    if message.body_length > len(data) - end:
        raise InvalidData(
            f"{where}: the body of the message at {offset} needs [{end}, {end + message.body_length}) "
            f"but there are {len(data)} bytes"
        )
    return message, end


def read_key_values(vector: Any) -> Metadata | None:
    """Metadata from a vector of KeyValue tables; None where there are none."""
    if not len(vector):
        return None
    return {item["key"] or b"": item["value"] or b"" for item in vector}


def key_values(metadata: Metadata | None) -> list[dict[str, bytes]] | None:
    """Metadata as the values of a vector of KeyValue tables."""
    return [{"key": key, "value": value} for key, value in metadata.items()] if metadata else None


# --- writing ----------------------------------------------------------------------------------------------------


def message_values(
    kind: str, header: Any, body_length: int, metadata: Metadata | None, options: IpcWriteOptions
) -> Mapping[str, Any]:
    """The values of a Message table around a header."""
    return {
        "version": ENUMS["MetadataVersion"][options.metadata_version],
        "header": (kind, header),
        "bodyLength": body_length,
        "custom_metadata": key_values(metadata),
    }


def frame(flatbuffer: bytes, options: IpcWriteOptions, start: int = 0) -> bytes:
    """A FlatBuffer with prefix and padding, so that what follows it is aligned when it begins at ``start``."""
    prefix = 4 if options.use_legacy_format else 8
    total = padded(start + prefix + len(flatbuffer), options.alignment) - start
    size = struct.pack("<i", total - prefix)
    head = size if options.use_legacy_format else CONTINUATION + size
    return b"".join([head, flatbuffer, bytes(total - prefix - len(flatbuffer))])


def end_of_stream(options: IpcWriteOptions) -> bytes:
    """What marks the end of a stream."""
    return bytes(4) if options.use_legacy_format else CONTINUATION + bytes(4)


def encode_message(
    kind: str,
    header: Any,
    body_length: int,
    metadata: Metadata | None,
    options: IpcWriteOptions,
    start: int = 0,
) -> bytes:
    """A framed message without its body."""
    values = message_values(kind, header, body_length, metadata, options)
    return frame(flatbuf.encode("Message", values), options, start)
