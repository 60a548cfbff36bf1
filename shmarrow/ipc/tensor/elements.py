# SPDX-License-Identifier: Apache-2.0
"""What dense and sparse tensor messages share: element types, shapes, ranges of buffers.

Counts, products and ends are checked in Python integers, which cannot overflow.
"""

from __future__ import annotations

from math import prod
from typing import Any

from shmarrow.errors import InvalidData, Unsupported, at
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.schema.types import NESTED, read_type, text
from shmarrow.tensor.dense import MAX_BYTES, MAX_DIMENSIONS, DimNames, Shape
from shmarrow.tensor.element import Element, from_wire
from shmarrow.types import Metadata


def element_of(message: Message, where: str) -> tuple[Element, Metadata | None]:
    """The element type, and the metadata without its key."""
    kind, table = message.header["type"]
    if table is None:
        raise InvalidData(f"{where} has an unknown type, found {kind}")
    if kind in NESTED:
        raise InvalidData(f"{where}: the elements of a tensor must have a fixed-width type, found {kind}")
    with at(where):
        type = read_type(kind, table, ())
    return from_wire(type, message.custom_metadata, where)


def shape_of(message: Message, where: str, itemsize: int) -> tuple[Shape, DimNames]:
    """The shape and the names of the dimensions; checks that the size fits into int64."""
    dims = message.header["shape"]
    if len(dims) > MAX_DIMENSIONS:
        raise Unsupported(f"{where}: a tensor of {len(dims)} dimensions; up to {MAX_DIMENSIONS} are read")
    shape = []
    names = []
    for dim in dims:
        shape.append(dim["size"])
        names.append(text(dim["name"], "name of a dimension"))
    if shape and min(shape) < 0:
        raise InvalidData(f"{where}: a dimension of {min(shape)} elements in the shape {tuple(shape)}")
    if prod([size for size in shape if size]) * itemsize > MAX_BYTES:
        raise InvalidData(f"{where}: elements of {itemsize} bytes in the shape {tuple(shape)} take over 2^63 - 1 bytes")
    return tuple(shape), tuple(names) if any(names) else ()


def buffer_range(buffer: Any, size: int, what: str) -> tuple[int, int]:
    """The (start, end) range of a buffer in a body of ``size`` bytes."""
    if buffer is None:
        raise InvalidData(f"{what} has no buffer")
    offset, length = buffer if isinstance(buffer, tuple) else buffer.item()
    if offset < 0 or length < 0 or offset + length > size:
        raise InvalidData(f"{what} needs [{offset}, {offset + length}) but the body has {size} bytes")
    return offset, offset + length


def check_reach(shape: Shape, strides: Shape, itemsize: int, length: int, what: str) -> None:
    """Check that all elements of a view are within its buffer."""
    if strides and min(strides) < 0:
        raise InvalidData(f"{what}: strides must be at least 0, found {strides}")
    if 0 not in shape:
        reach = sum([(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]) + itemsize
        if reach > length:
            raise InvalidData(
                f"{what}: shape {shape} with strides {strides} spans {reach} bytes but the buffer has {length}"
            )
