"""The footer of a file: where it is, what its root says, and the blocks that it lists."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, LimitExceeded, Limits
from shmarrow.ipc.flatbuffers.reader import Reader, TableView
from shmarrow.ipc.flatbuffers.tables import STRUCTS
from shmarrow.ipc.message.decode import Message, read_message
from shmarrow.sources.base import Source

if TYPE_CHECKING:
    import numpy.typing as npt

MAGIC = b"ARROW1"
HEAD = 8
_TAIL = 4 + len(MAGIC)
_SIZE = struct.Struct("<i")
_BLOCK = STRUCTS["Block"]
_NO_BLOCKS = np.empty(0, _BLOCK)

Block = tuple[int, int, int]


def root_of(footer: Bytes, name: str, limits: Limits) -> TableView:
    """The footer's root table."""
    return Reader(footer, f"{name}: footer", limits).root("Footer")


def block_row(block: Any) -> Block:
    """A block as three ints."""
    offset, metadata_length, body_length = block.item()
    return offset, metadata_length, body_length


def read_block(data: Bytes, block: Block, where: str, limits: Limits) -> tuple[Message, Bytes]:
    """The message that a block leads to, and its body; ``data`` ends where the footer starts."""
    offset, metadata_length, body_length = block
    if offset < 0 or metadata_length < 8 or body_length < 0 or offset + metadata_length + body_length > len(data):
        raise InvalidData(
            f"{where} needs [{offset}, {offset + metadata_length + body_length}), "
            f"{metadata_length} bytes of it metadata, but the footer starts at {len(data)}"
        )
    found = read_message(data, offset, where, limits)
    if found is None:
        raise InvalidData(f"{where}: its block leads to an end of stream at {offset}")
    message, start = found
    if start != offset + metadata_length or message.body_length != body_length:
        raise InvalidData(
            f"{where}: the footer says {metadata_length} bytes of metadata and {body_length} of body, "
            f"the message {start - offset} and {message.body_length}"
        )
    return message, data[start : start + body_length]


def footer_place(data: Bytes, source: Source, limits: Limits) -> tuple[int, int]:
    """Where the footer starts, and its size."""
    size = len(data)
    name = source.name
    if size < HEAD + _TAIL:
        raise InvalidData(f"{name}: an Arrow file has at least {HEAD + _TAIL} bytes, found {size}")
    head, end = data[: len(MAGIC)].tobytes(), data[size - _TAIL :].tobytes()
    tail = end[4:]
    if head != MAGIC:
        raise InvalidData(f"{name}: no Arrow file: expected {MAGIC!r} at its start, found {head!r}; is it a stream?")
    if tail != MAGIC:
        raise InvalidData(
            f"{name}: the file is cut: expected {MAGIC!r} at its end, [{size - 6}, {size}), found {tail!r}"
        )
    (length,) = _SIZE.unpack_from(end)
    start = size - _TAIL - length
    if length <= 0 or start < HEAD:
        raise InvalidData(f"{name}: the footer says that it has {length} bytes, but {size - _TAIL - HEAD} are there")
    if length > limits.metadata_bytes:
        raise LimitExceeded(
            f"{name}: a footer of {length} bytes, more than Limits.metadata_bytes = {limits.metadata_bytes}"
        )
    return start, int(length)


def blocks_of(vector: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """The blocks that a footer's slot lists."""
    return _NO_BLOCKS if vector is None else vector
