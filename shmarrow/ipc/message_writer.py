"""Writing encapsulated messages: prefix, metadata and padding ("Encapsulated message format").

A message takes a multiple of the alignment, and so does its metadata with the prefix.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from shmarrow.buffer import padded
from shmarrow.ipc import flatbuf_writer
from shmarrow.ipc.flatbuf import ENUMS
from shmarrow.ipc.message import CONTINUATION
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.types import Metadata


def key_values(metadata: Metadata | None) -> list[dict[str, bytes]] | None:
    """Metadata as the values of a vector of KeyValue tables."""
    return [{"key": key, "value": value} for key, value in metadata.items()] if metadata else None


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
    return frame(flatbuf_writer.encode("Message", values), options, start)
