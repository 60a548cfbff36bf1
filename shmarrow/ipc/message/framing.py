"""The prefix and the end of encapsulated messages ("Encapsulated message format").

Rules kept here:

* both framings are read and written: ``FF FF FF FF`` and the size of the metadata, and the older one of a size alone;
* a size of zero, or the end of the input where a prefix would start, is the end of a stream;
* a message takes a multiple of the alignment, and so does its metadata with the prefix.
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
    """The error for bytes that are no message, which says what they are where that is known."""
    from shmarrow.sources.formats import HEAD, recognized

    head = bytes(data[offset : offset + HEAD])
    found = recognized(head) or f"{head[:8]!r}, which begins no message"
    return InvalidData(f"{where}: expected an Arrow message at {offset}, found {found}")


def _is_plausible(data: Any, offset: int, size: int) -> bool:
    """Whether a prefix of the older framing may be one.

    Text and most magic words would stand for more than 16 MiB of metadata, so smaller sizes are believed, but for odd
    ones, and for a size of 64 bits, which safetensors begin with.
    """
    if 0 <= size < 1 << 24 and not size & 1:
        return bytes(data[offset + 4 : offset + 8]) != bytes(4)
    from shmarrow.sources.formats import HEAD, recognized

    return size >= 0 and not recognized(bytes(data[offset : offset + HEAD]))


def read_prefix(data: Any, offset: int, where: str, limits: Limits = DEFAULT_LIMITS) -> tuple[int, int] | None:
    """The bytes of the prefix at ``offset``, and those of the metadata after it; None where the stream ends.

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
    size = _SIZE.unpack_from(data, offset)[0]
    prefix = 4
    if size == -1:
        if left < 8:
            raise InvalidData(f"{where}: a message prefix needs 8 bytes at {offset} but {left} are left")
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
    """A FlatBuffer with prefix and padding, so that what follows it is aligned when it begins at ``start``."""
    prefix = 4 if options.use_legacy_format else 8
    total = padded(start + prefix + len(flatbuffer), options.alignment) - start
    size = _SIZE.pack(total - prefix)
    head = size if options.use_legacy_format else CONTINUATION + size
    return b"".join([head, flatbuffer, bytes(total - prefix - len(flatbuffer))])


def end_of_stream(options: IpcWriteOptions) -> bytes:
    """What marks the end of a stream."""
    return bytes(4) if options.use_legacy_format else CONTINUATION + bytes(4)
