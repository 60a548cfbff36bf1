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
_OTHER_FORMATS = {
    b"ARRO": "an Arrow file; open_file reads it",
    b"PAR1": "a Parquet file",
    b"FEA1": "a Feather file of version 1",
    b"PK\3\4": "a ZIP archive",
    b"\x1f\x8b\x08": "gzip data; pass gzip.open(path)",
    b"BZh": "bzip2 data; pass bz2.open(path)",
    b"\xfd7zX": "xz data; pass lzma.open(path)",
    b"\x28\xb5\x2f\xfd": "ZSTD data",
}
_TEXT = frozenset(b"\t\n\r") | frozenset(range(32, 127))


def other_format(head: bytes) -> str:
    """What four bytes show, where a message or a file should start; empty where they show nothing.

    Text counts too: as the older prefix it would stand for more than 150 MB of metadata.
    """
    for magic, what in _OTHER_FORMATS.items():
        if head.startswith(magic):
            return what
    return "text" if len(head) == 4 and _TEXT.issuperset(head) else ""


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
    if prefix == 4 and (other := other_format(bytes(data[offset : offset + 4]))):
        raise InvalidData(f"{where}: expected a message at {offset}, found {other}")
    if size < 0:
        raise InvalidData(f"{where}: the message at {offset} says that its metadata has {size} bytes")
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
