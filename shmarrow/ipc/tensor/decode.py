# SPDX-License-Identifier: Apache-2.0
"""Decoding of tensor messages ("Tensor (Multi-dimensional Array) Message Format").

Pure functions from metadata to a header, and from a header and a body to a tensor; ``decode_sparse`` reads the bodies
of sparse tensors. Invariants:

* counts, products and ends are checked in Python integers, which cannot overflow, before a view is created; index
  values are left to ``validate(full=True)``;
* buffers need not be aligned, and may be longer than needed.
"""

from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import U1, Bytes, DType, NDArray
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits
from shmarrow.ipc.flatbuffers.reader import Reader, TableView, TracingReader
from shmarrow.ipc.message.decode import Holes, Message, TemplateCache, parse_metadata
from shmarrow.ipc.tensor.elements import buffer_range, check_reach, element_of, shape_of
from shmarrow.tensor.dense import DimNames, Shape, Tensor, row_major
from shmarrow.tensor.element import Element
from shmarrow.types import Metadata


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


_header = partial(tuple.__new__, DenseHeader)
_KNOWN = TemplateCache()
"""The headers of dense tensors of some types, dimensions and metadata, as read with the default limits."""
_LARGEST = 1024


def read_header(metadata: Bytes, where: str, limits: Limits) -> DenseHeader | SparseHeader | Message:
    """The header of a tensor message; for other messages, the message itself."""
    key = metadata.tobytes() if len(metadata) <= _LARGEST and limits is DEFAULT_LIMITS else b""
    recognized = _KNOWN.find(key)
    header = None if recognized is None else _with_numbers(*recognized)
    if header is not None:
        return header
    reader = TracingReader if key else Reader
    message = parse_metadata(np.frombuffer(key, U1) if key else metadata, where, limits, reader)
    if message.kind == "SparseTensor":
        _, end = buffer_range(message.header["data"], message.body_length, f"{where}: the data")
        return SparseHeader(message, where, end, message.body_length)
    if message.kind != "Tensor":
        return message
    header = _dense_header(message, where)
    if key and message.header["strides"] is not None and not header.offset and 0 not in header.shape:
        tracer = message.table.reader
        assert isinstance(tracer, TracingReader)
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
    return _header((header.element, header.dtype, shape, strides, 0, size, header.dim_names, header.metadata, body))


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
