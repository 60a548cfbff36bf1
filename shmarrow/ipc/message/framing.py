"""Framing of encapsulated messages: prefixes and end-of-stream markers ("Encapsulated message format").

Invariants:

* both framings are read and written: the continuation marker ``FF FF FF FF`` and the metadata size, and the legacy one
  without marker;
* a stream ends at a size of zero, or at the end of the input before a prefix;
* the sizes of a message and of its prefix with metadata are multiples of 64 bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from shmarrow.buffer import padded
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, LimitExceeded, Limits

if TYPE_CHECKING:
    from shmarrow.ipc.options import IpcWriteOptions

CONTINUATION = b"\xff\xff\xff\xff"
_SIZE = struct.Struct("<i")


def not_a_message(data: Any, offset: int, where: str) -> InvalidData:
    """The error for bytes that are not a message; names their format if recognised."""
    from shmarrow.sources import formats

    head = bytes(data[offset : offset + formats.HEAD])
    found, hint = formats.recognized(head)
    return InvalidData(f"{where}: expected an Arrow message at {offset}, found {found or repr(head[:8])}", hint=hint)


def _is_plausible(data: Any, offset: int, size: int) -> bool:
    """Whether bytes may be a prefix of the legacy framing.

    Text and most magic numbers would mean more than 16 MiB of metadata, so smaller sizes are accepted, except odd ones,
    and 64-bit sizes, which start safetensors files.
    """
    from shmarrow.sources import formats

    if 0 <= size < 1 << 24 and not size & 1:
        return bytes(data[offset + 4 : offset + 8]) != bytes(4)
    return size >= 0 and not formats.recognized(bytes(data[offset : offset + formats.HEAD]))[0]


def read_prefix(data: Any, offset: int, where: str, limits: Limits = DEFAULT_LIMITS) -> tuple[int, int] | None:
    """Read the prefix at ``offset``: its size and the metadata's; None at the end of the stream.

    Parameters
    ----------
    data : uint8 ndarray or bytes
        The input; must have 8 bytes at ``offset``, unless it ends before.
    """
    left = len(data) - offset
    if left <= 0:
        return None
    if left < 4:
        raise InvalidData(f"{where}: a message prefix needs 4 bytes at {offset}, found {left}")
    size = _SIZE.unpack_from(data, offset)[0]
    prefix = 4
    if size == -1:
        if left < 8:
            raise InvalidData(f"{where}: a message prefix needs 8 bytes at {offset}, found {left}")
        size = _SIZE.unpack_from(data, offset + 4)[0]
        prefix = 8
    if size == 0:
        return None
    if prefix == 4 and not _is_plausible(data, offset, size):
        raise not_a_message(data, offset, where)
    if size < 0:
        raise InvalidData(f"{where}: the message at {offset} declares {size} bytes of metadata")
    if size > limits.metadata_bytes:
        raise LimitExceeded(
            f"{where}: the message at {offset} has {size} bytes of metadata, "
            f"more than Limits.metadata_bytes = {limits.metadata_bytes}"
        )
    return prefix, size


def frame(flatbuffer: bytes | bytearray, options: IpcWriteOptions, start: int = 0) -> bytes:
    """Add prefix and padding to a FlatBuffer at offset ``start``, such that its end is aligned."""
    prefix = 4 if options.use_legacy_format else 8
    total = padded(start + prefix + len(flatbuffer)) - start
    size = _SIZE.pack(total - prefix)
    head = size if options.use_legacy_format else CONTINUATION + size
    return b"".join([head, flatbuffer, bytes(total - prefix - len(flatbuffer))])


def end_of_stream(options: IpcWriteOptions) -> bytes:
    """The end-of-stream marker."""
    return bytes(4) if options.use_legacy_format else CONTINUATION + bytes(4)
