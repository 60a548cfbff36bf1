"""Decoding of tensor messages ("Tensor (Multi-dimensional Array) Message Format").

Pure functions from metadata to a header, and from a header and a body to a tensor; ``decode_sparse`` reads the bodies
of sparse tensors. Invariants:

* counts, products and ends are checked in Python integers, which cannot overflow, before a view is created; index
  values are left to ``validate(full=True)``;
* buffers need not be aligned, and may be longer than needed.
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import U1, Bytes, DType, NDArray
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits, Unsupported, at
from shmarrow.ipc.flatbuffers.reader import Reader, TableView, Tracer
from shmarrow.ipc.message.decode import Holes, Known, Message, parse_metadata
from shmarrow.ipc.schema.types import NESTED, read_type, text
from shmarrow.tensor.dense import MAX_BYTES, MAX_DIMENSIONS, DimNames, Shape, Tensor, row_major
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


class DenseHeader(NamedTuple):
    """The metadata of a Tensor message, checked against its body's length; immutable."""

    element: Element
    dtype: DType
    shape: Shape
    strides: Shape
    offset: int
    data_end: int
    dim_names: DimNames
    metadata: Metadata | None
    body_length: int

    def over(self, body: Bytes) -> Tensor:
        """Build the tensor over a body."""
        array: NDArray = np.ndarray(self.shape, self.dtype, body, self.offset, self.strides)
        return Tensor(array, self.element, self.dim_names, self.metadata)


class SparseHeader(NamedTuple):
    """The metadata of a SparseTensor message; checked together with the body."""

    message: Message
    where: str
    data_end: int
    body_length: int

    def over(self, body: Bytes) -> Any:
        """Build the tensor over a body."""
        from shmarrow.ipc.tensor.decode_sparse import read_sparse

        return read_sparse(self.message, body, self.where)


_KNOWN = Known()
"""The headers of dense tensors of some types, dimensions and metadata, as read with the default limits."""
_LARGEST = 1024


def read_header(metadata: Bytes, where: str, limits: Limits) -> DenseHeader | SparseHeader | Message:
    """The header of a tensor message; for other messages, the message itself."""
    key = metadata.tobytes() if len(metadata) <= _LARGEST and limits is DEFAULT_LIMITS else b""
    recognized = _KNOWN.find(key)
    header = None if recognized is None else _with_numbers(*recognized)
    if header is not None:
        return header
    reader = Tracer if key else Reader
    message = parse_metadata(np.frombuffer(key, U1) if key else metadata, where, limits, reader)
    if message.kind == "SparseTensor":
        _, end = buffer_range(message.header["data"], message.body_length, f"{where}: the data")
        return SparseHeader(message, where, end, message.body_length)
    if message.kind != "Tensor":
        return message
    header = _dense_header(message, where)
    if key and message.header["strides"] is not None and not header.offset and 0 not in header.shape:
        tracer = message.table.reader
        assert isinstance(tracer, Tracer)
        _KNOWN.add(key, dense_holes(message.table), tracer.reads, header)
    return header


def dense_holes(message: TableView) -> Holes:
    """The numbers of a Tensor message as the holes of a template: sizes of body and data, strides, shape."""
    table: TableView = message["header"][1]
    dimensions = list(table["shape"])
    strides = table.reader.follow(table.offset_of("strides"), "strides") + 4
    places = [
        message.offset_of("bodyLength"),
        table.offset_of("data") + 8,
        *range(strides, strides + 8 * len(dimensions), 8),
        *[dimension.offset_of("size") for dimension in dimensions],
    ]
    return [(place, "q") for place in places]


def _with_numbers(header: DenseHeader, numbers: tuple[int, ...]) -> DenseHeader | None:
    """A header with other numbers; None unless the elements are contiguous, in row-major or column-major order."""
    body, size, *rest = numbers
    ndim, itemsize = len(header.shape), header.dtype.itemsize
    strides, shape = tuple(rest[:ndim]), tuple(rest[ndim:])
    total = prod(shape) * itemsize
    if min(shape, default=1) <= 0 or total != size or not 0 < size <= body:
        return None
    if strides != row_major(shape, itemsize) and strides[::-1] != row_major(shape[::-1], itemsize):
        return None
    return DenseHeader(header.element, header.dtype, shape, strides, 0, size, header.dim_names, header.metadata, body)


def _dense_header(message: Message, where: str) -> DenseHeader:
    element, metadata = element_of(message, where)
    dtype = element.dtype
    shape, names = shape_of(message, where, dtype.itemsize)
    offset, end = buffer_range(message.header["data"], message.body_length, where)
    vector = message.header["strides"]
    if vector is None:
        strides = row_major(shape, dtype.itemsize)
    elif len(vector) == len(shape):
        strides = tuple(vector.tolist())
    else:
        raise InvalidData(f"{where}: {len(vector)} strides for {len(shape)} dimensions")
    check_reach(shape, strides, dtype.itemsize, end - offset, where)
    if 0 in shape:
        strides = row_major(shape, dtype.itemsize)
    return DenseHeader(element, dtype, shape, strides, offset, end, names, metadata, message.body_length)
