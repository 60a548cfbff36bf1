"""Reading Tensor and SparseTensor messages ("Tensor (Multi-dimensional Array) Message Format").

Pure functions from metadata to a header, and from a header and a body to a tensor. Rules kept here:

* counts, products and ends are checked in Python's integers, which do not overflow, before a view is made; the values
  of an index are left to ``validate(full=True)``;
* buffers are read where their offsets say, aligned or not, and may be longer than what is needed;
* the index of a CSF tensor is read in the format's form, with bytes in the lengths of its buffers, and in that of Arrow
  C++, with the number of elements there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import ALIGNMENT, Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidArgument, InvalidData, Limits, Unsupported
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.decode import Message, parse_metadata
from shmarrow.ipc.schema.types import NESTED, read_type, text
from shmarrow.ipc.tensor.forms import KnownForms
from shmarrow.tensor import SparseCOOTensor, SparseCSCMatrix, SparseCSFTensor, SparseCSRMatrix, Tensor
from shmarrow.tensor.dense import MAX_BYTES, MAX_DIMENSIONS, DimNames, Shape, row_major
from shmarrow.tensor.element import DType, Element, NDArray, from_wire
from shmarrow.types import IntType, Metadata


def _element_of(message: Message, where: str) -> tuple[Element, Metadata | None]:
    kind, table = message.header["type"]
    if table is None:
        raise InvalidData(f"{where} has no type that is known, found {kind}")
    if kind in NESTED:
        raise InvalidData(f"{where}: a tensor has elements of a fixed number of bytes, found {kind}")
    try:
        type = read_type(kind, table, ())
    except InvalidArgument as error:
        raise InvalidData(f"{where}: {error}") from None
    return from_wire(type, message.custom_metadata, where)


def _shape_of(message: Message, where: str, itemsize: int) -> tuple[Shape, DimNames]:
    """The shape and the names of the dimensions; all elements take no more bytes than a pointer can say."""
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


def _buffer_range(buffer: Any, size: int, what: str) -> tuple[int, int]:
    """Where a buffer starts and ends within a body of ``size`` bytes."""
    if buffer is None:
        raise InvalidData(f"{what} has no buffer")
    offset, length = buffer if isinstance(buffer, tuple) else buffer.item()
    if offset < 0 or length < 0 or offset + length > size:
        raise InvalidData(f"{what} needs [{offset}, {offset + length}) but the body has {size} bytes")
    return offset, offset + length


def _check_reach(shape: Shape, strides: Shape, itemsize: int, length: int, what: str) -> None:
    """Check that no element of a view leaves its buffer."""
    if strides and min(strides) < 0:
        raise InvalidData(f"{what}: strides are at least 0, found {strides}")
    if 0 not in shape:
        reach = sum([(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]) + itemsize
        if reach > length:
            raise InvalidData(
                f"{what}: shape {shape} with strides {strides} reaches over {reach} bytes but the buffer has {length}"
            )


class DenseHeader(NamedTuple):
    """What the metadata of a Tensor message say, checked against the length of its body; immutable."""

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
        """The tensor over a body of that length."""
        array: NDArray = np.ndarray(self.shape, self.dtype, body, self.offset, self.strides)
        return Tensor(array, self.element, self.dim_names, self.metadata)


class SparseHeader(NamedTuple):
    """The metadata of a SparseTensor message; they are checked together with the body."""

    message: Message
    where: str
    data_end: int
    body_length: int

    def over(self, body: Bytes) -> Any:
        """The tensor over a body of that length."""
        return _read_sparse(self.message, body, self.where)


_HEADERS: dict[bytes, DenseHeader] = {}
"""Headers of Tensor messages by the bytes of their metadata: tensors of one kind often come one after another.

Thread safety: entries are immutable and depend on their key alone, so any of two that are made at once will do.
"""
_FORMS = KnownForms()
_MAX_HEADERS = 1024
_MAX_CACHED_BYTES = 1024


known_header: Callable[[bytes], DenseHeader | None] = _HEADERS.get
"""The header of a dense tensor that was read before with the default limits, from the bytes of its metadata."""


def read_header(metadata: Bytes, where: str, limits: Limits) -> DenseHeader | SparseHeader | Message:
    """The header of a tensor from the metadata of its message; of any other message the message itself."""
    key = metadata.tobytes() if len(metadata) <= _MAX_CACHED_BYTES and limits is DEFAULT_LIMITS else b""
    cached = _HEADERS.get(key)
    if cached is not None:
        return cached
    header: DenseHeader | None = _FORMS.find(key) if key else None
    if header is not None:
        return _kept(key, header)
    message = parse_metadata(metadata, where, limits)
    if message.kind == "SparseTensor":
        _, end = _buffer_range(message.header["data"], message.body_length, f"{where}: the data")
        return SparseHeader(message, where, end, message.body_length)
    if message.kind != "Tensor":
        return message
    header = _dense_header(message, where)
    if not key:
        return header
    _FORMS.add(key, message.table, header)
    return _kept(key, header)


def _kept(key: bytes, header: DenseHeader) -> DenseHeader:
    """The header, which is kept for messages of the same bytes."""
    if len(_HEADERS) >= _MAX_HEADERS:
        _HEADERS.clear()
    _HEADERS[key] = header
    return header


def _dense_header(message: Message, where: str) -> DenseHeader:
    element, metadata = _element_of(message, where)
    dtype = element.dtype
    shape, names = _shape_of(message, where, dtype.itemsize)
    offset, end = _buffer_range(message.header["data"], message.body_length, where)
    given = message.header["strides"]
    if given is None:
        strides = row_major(shape, dtype.itemsize)
    elif len(given) == len(shape):
        strides = tuple(given.tolist())
    else:
        raise InvalidData(f"{where}: {len(given)} strides for {len(shape)} dimensions")
    _check_reach(shape, strides, dtype.itemsize, end - offset, where)
    if 0 in shape:
        strides = row_major(shape, dtype.itemsize)
    return DenseHeader(element, dtype, shape, strides, offset, end, names, metadata, message.body_length)


def _read_sparse(message: Message, body: Bytes, where: str) -> Any:
    header = message.header
    element, metadata = _element_of(message, where)
    dtype = element.dtype
    shape, names = _shape_of(message, where, dtype.itemsize)
    if not shape:
        raise InvalidData(f"{where}: a sparse tensor of no dimensions")
    count = header["non_zero_length"]
    if count < 0:
        raise InvalidData(f"{where}: {count} values that are not zero")
    kind, index = header["sparseIndex"]
    if index is None:
        raise InvalidData(f"{where}: a sparse tensor without an index of a known form, found {kind}")
    storage = _array(header["data"], dtype, count, body, f"{where}: the data")
    make, arguments = _INDEXES[kind](index, shape, count, body, where)
    try:
        return make(shape, *arguments[0], storage, element, *arguments[1], dim_names=names, metadata=metadata)
    except InvalidData as error:
        raise InvalidData(f"{where}: {error}") from None


_Index = tuple[Any, tuple[tuple[Any, ...], tuple[Any, ...]]]
"""The class of a form, and what its constructor takes before and after the values."""


def _read_coo(index: Any, shape: Shape, count: int, body: Bytes, where: str) -> _Index:
    dtype = _int_type(index["indicesType"], where)
    offset, end = _buffer_range(index["indicesBuffer"], len(body), f"{where}: the coordinates")
    given = index["indicesStrides"]
    strides = row_major((count, len(shape)), dtype.itemsize) if given is None else tuple(given.tolist())
    if len(strides) != 2:
        raise InvalidData(f"{where}: the coordinates are a matrix, found {len(strides)} strides")
    _check_reach((count, len(shape)), strides, dtype.itemsize, end - offset, f"{where}: the coordinates")
    indices = np.ndarray((count, len(shape)), dtype, body, offset, strides if count else None)
    return SparseCOOTensor, ((indices,), (index["isCanonical"],))


def _read_csx(index: Any, shape: Shape, count: int, body: Bytes, where: str) -> _Index:
    axis = index["compressedAxis"]
    if axis not in _AXES:
        raise InvalidData(f"{where}: the compressed axis is one of {sorted(_AXES)}, found {axis}")
    if len(shape) != 2:
        raise InvalidData(f"{where}: a compressed matrix has two dimensions, found the shape {shape}")
    starts, nodes = _int_type(index["indptrType"], where), _int_type(index["indicesType"], where)
    indptr = _array(index["indptrBuffer"], starts, shape[axis] + 1, body, f"{where}: indptr")
    indices = _array(index["indicesBuffer"], nodes, count, body, f"{where}: the indices")
    return _AXES[axis], ((indptr, indices), ())


_AXES = {
    ENUMS["SparseMatrixCompressedAxis"]["Row"]: SparseCSRMatrix,
    ENUMS["SparseMatrixCompressedAxis"]["Column"]: SparseCSCMatrix,
}


def _read_csf(index: Any, shape: Shape, count: int, body: Bytes, where: str) -> _Index:
    starts, nodes = _int_type(index["indptrType"], where), _int_type(index["indicesType"], where)
    ptr_buffers, node_buffers, order = index["indptrBuffers"], index["indicesBuffers"], index["axisOrder"]
    found = [0 if vector is None else len(vector) for vector in (ptr_buffers, node_buffers, order)]
    ndim = len(shape)
    if found != [ndim - 1, ndim, ndim]:
        raise InvalidData(
            f"{where}: CSF of {ndim} dimensions has {ndim - 1} indptr, {ndim} indices and {ndim} axes, found {found}"
        )
    ptrs = [] if ptr_buffers is None else ptr_buffers.tolist()
    levels = node_buffers.tolist()
    if _counts_elements(ptrs, levels, count):
        sizes = [length for _, length in levels]
    else:
        sizes = _csf_sizes(ptrs, levels, starts, nodes, count, body, where)
    indptr = [
        _array((offset, (size + 1) * starts.itemsize), starts, size + 1, body, f"{where}: indptr of level {level}")
        for level, ((offset, _), size) in enumerate(zip(ptrs, sizes[:-1], strict=True))
    ]
    indices = [
        _array((offset, size * nodes.itemsize), nodes, size, body, f"{where}: the indices of level {level}")
        for level, ((offset, _), size) in enumerate(zip(levels, sizes, strict=True))
    ]
    return SparseCSFTensor, ((indptr, indices, order.tolist()), ())


def _counts_elements(ptrs: list[tuple[int, int]], levels: list[tuple[int, int]], count: int) -> bool:
    """Whether the lengths of an index's buffers are numbers of elements, as Arrow C++ writes them.

    In bytes they cannot look like that, but where elements take one, and then both mean the same.
    """
    rises = all(ptr == nodes + 1 for (_, ptr), (_, nodes) in zip(ptrs, levels[:-1], strict=True))
    return rises and levels[-1][1] == count


def _csf_sizes(
    ptrs: list[tuple[int, int]],
    levels: list[tuple[int, int]],
    starts: DType,
    nodes: DType,
    count: int,
    body: Bytes,
    where: str,
) -> list[int]:
    """How many nodes each level has, by the bytes of its buffers, which may be padded with zeros."""
    if count * nodes.itemsize > levels[-1][1]:
        raise InvalidData(
            f"{where}: {count} leaves take {count * nodes.itemsize} bytes but the buffer has {levels[-1][1]}"
        )
    sizes = [count]
    for level in range(len(ptrs) - 1, -1, -1):
        most = min(levels[level][1] // nodes.itemsize, ptrs[level][1] // starts.itemsize - 1)
        if most < 0:
            raise InvalidData(f"{where}: indptr of level {level} is empty, expected at least one value")
        _buffer_range(levels[level], len(body), f"{where}: the indices of level {level}")
        ptr = _array(ptrs[level], starts, most + 1, body, f"{where}: indptr of level {level}")
        # The last value is the number of nodes of the next level, and not zero if there are any.
        tail = ptr[-ALIGNMENT:]
        ends = np.flatnonzero(tail == sizes[0])
        sizes.insert(0, len(ptr) - len(tail) + int(ends[-1] if sizes[0] else 0) if len(ends) else most)
    return sizes


def _int_type(table: Any, where: str) -> DType:
    if table is None:
        raise InvalidData(f"{where}: an index without a type")
    try:
        return IntType(table["bitWidth"], table["is_signed"]).storage
    except InvalidArgument as error:
        raise InvalidData(f"{where}: the type of an index: {error}") from None


def _array(buffer: Any, dtype: DType, count: int, body: Bytes, what: str) -> NDArray:
    """A view of the first ``count`` values of a buffer."""
    offset, end = _buffer_range(buffer, len(body), what)
    if count * dtype.itemsize > end - offset:
        raise InvalidData(
            f"{what}: {count} values take {count * dtype.itemsize} bytes but the buffer has {end - offset}"
        )
    return np.ndarray((count,), dtype, body, offset)


_INDEXES: dict[Any, Callable[[Any, Shape, int, Bytes, str], _Index]] = {
    "SparseTensorIndexCOO": _read_coo,
    "SparseMatrixIndexCSX": _read_csx,
    "SparseTensorIndexCSF": _read_csf,
}
