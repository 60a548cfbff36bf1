"""Tensor and SparseTensor messages: an array of any number of dimensions in one message, to bytes and back.

Pure functions. Rules kept here:

* a message that is written has its metadata, every index and the data on 64-byte boundaries, counted from where it
  starts, and its size is known before the first byte is written;
* whatever is read is checked before a view of it is made: counts, products and ends in Python's integers, which do not
  overflow; an index's values are left to ``validate(full=True)``;
* buffers are read where their offsets say, aligned or not, and may be longer than what is needed;
* the index of a CSF tensor is read in the format's form, with bytes in the lengths of its buffers, and in that of Arrow
  C++, with the number of elements there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import ALIGNMENT, PADDING, Bytes, padded
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, Unsupported
from shmarrow.ipc.flatbuffers.tables import ENUMS, STRUCTS
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.message.encode import encode_message
from shmarrow.ipc.message.framing import CONTINUATION
from shmarrow.ipc.options import DEFAULT_OPTIONS, IpcWriteOptions
from shmarrow.ipc.schema.types import NESTED, read_type, text, type_values
from shmarrow.tensor import SparseCOOTensor, SparseCSCMatrix, SparseCSFTensor, SparseCSRMatrix, Tensor
from shmarrow.tensor.dense import DimNames, dense_layout, dense_pieces
from shmarrow.tensor.element import DType, Element, NDArray, from_wire, to_wire
from shmarrow.types import IntType, Metadata

MOST_DIMENSIONS = 64
"""What an ndarray has."""
MOST_BYTES = (1 << 63) - 1

Shape = tuple[int, ...]
Part = tuple[int, Iterable[Any]]
"""A buffer: its bytes, and the pieces that they come in."""


# --- writing ----------------------------------------------------------------------------------------------------


class TensorPayload(NamedTuple):
    """A message that is ready to be written: its metadata, framed, and the pieces of its body with their padding."""

    metadata: bytes
    pieces: Iterable[Any]
    body_length: int

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return len(self.metadata) + self.body_length


def encode_tensor(tensor: Any, options: IpcWriteOptions | None = None, start: int = 0) -> TensorPayload:
    """The plan of a tensor's message that is to begin at ``start``; no byte of the body is copied yet."""
    if type(tensor) not in _PLANS:
        raise InvalidType(f"expected a Tensor or a sparse tensor, found {type(tensor).__name__}; see Tensor.from_numpy")
    checked = checked_options(options)
    kind, header, parts = _PLANS[type(tensor)](tensor, checked)
    body_length = sum([padded(size) for size, _ in parts])
    own = wire_metadata(tensor._element, tensor.metadata)
    metadata = encode_message(kind, header, body_length, own, checked, start)
    pieces = chain.from_iterable([chain(pieces, [PADDING[: -size % ALIGNMENT]]) for size, pieces in parts])
    return TensorPayload(metadata, pieces, body_length)


def checked_options(options: IpcWriteOptions | None) -> IpcWriteOptions:
    """The options with at least the alignment that tensors have."""
    options = options or DEFAULT_OPTIONS
    if options.compression is not None or options.endianness != "little":
        raise InvalidArgument(
            "a message of a tensor has neither compression nor a byte order other than little, "
            f"found compression={options.compression!r}, endianness={options.endianness!r}"
        )
    return options if options.alignment >= ALIGNMENT else options.replace(alignment=ALIGNMENT)


def wire_metadata(element: Element, metadata: Metadata | None) -> Metadata | None:
    """The metadata of a tensor's message: its own, and what its elements are where their type does not say it."""
    own = to_wire(element)[1]
    return {**(metadata or {}), **own} if own else metadata


def dense_header(element: Element, shape: Shape, strides: Shape, names: DimNames, size: int) -> dict[str, Any]:
    """The values of a Tensor table over a body of ``size`` bytes."""
    return {
        "type": type_values(to_wire(element)[0]),
        "shape": _shape_values(shape, names),
        "strides": np.array(strides, "<i8"),
        "data": _struct(0, size),
    }


def _plan_dense(tensor: Tensor, options: IpcWriteOptions) -> tuple[str, dict[str, Any], list[Part]]:
    strides, size = dense_layout(tensor.storage)
    header = dense_header(tensor._element, tensor.shape, strides, tensor.dim_names, size)
    return "Tensor", header, [(size, dense_pieces(tensor.storage))]


def _plan_coo(tensor: SparseCOOTensor, options: IpcWriteOptions) -> tuple[str, dict[str, Any], list[Part]]:
    strides, size = dense_layout(tensor.indices)
    index = {
        "indicesType": _int_values(tensor.indices.dtype),
        "indicesStrides": np.array(strides, "<i8"),
        "indicesBuffer": _struct(0, size),
        "isCanonical": tensor.is_canonical,
    }
    parts = [(size, dense_pieces(tensor.indices)), _part(tensor.storage)]
    return "SparseTensor", _sparse_header(tensor, ("SparseTensorIndexCOO", index), parts), parts


def _plan_csx(tensor: Any, options: IpcWriteOptions) -> tuple[str, dict[str, Any], list[Part]]:
    parts = [_part(array) for array in (tensor.indptr, tensor.indices, tensor.storage)]
    buffers = _buffers(parts)
    index = {
        "compressedAxis": tensor.axis,
        "indptrType": _int_values(tensor.indptr.dtype),
        "indptrBuffer": buffers[0],
        "indicesType": _int_values(tensor.indices.dtype),
        "indicesBuffer": buffers[1],
    }
    return "SparseTensor", _sparse_header(tensor, ("SparseMatrixIndexCSX", index), parts), parts


def _plan_csf(tensor: SparseCSFTensor, options: IpcWriteOptions) -> tuple[str, dict[str, Any], list[Part]]:
    arrays = [*tensor.indptr, *tensor.indices]
    parts = [_part(array) for array in [*arrays, tensor.storage]]
    buffers = _buffers(parts)
    if options.csf_lengths == "elements":
        buffers["length"][:-1] = [len(array) for array in arrays]
    levels = len(tensor.indptr)
    index = {
        # A tensor of one dimension has no indptr, whose type then matters to nobody.
        "indptrType": _int_values((tensor.indptr or tensor.indices)[0].dtype),
        "indptrBuffers": buffers[:levels],
        "indicesType": _int_values(tensor.indices[0].dtype),
        "indicesBuffers": buffers[levels:-1],
        "axisOrder": np.array(tensor.axis_order, "<i4"),
    }
    return "SparseTensor", _sparse_header(tensor, ("SparseTensorIndexCSF", index), parts), parts


_PLANS: dict[Any, Callable[[Any, IpcWriteOptions], tuple[str, dict[str, Any], list[Part]]]] = {
    Tensor: _plan_dense,
    SparseCOOTensor: _plan_coo,
    SparseCSRMatrix: _plan_csx,
    SparseCSCMatrix: _plan_csx,
    SparseCSFTensor: _plan_csf,
}


def _sparse_header(tensor: Any, index: tuple[str, dict[str, Any]], parts: list[Part]) -> dict[str, Any]:
    return {
        "type": type_values(to_wire(tensor._element)[0]),
        "shape": _shape_values(tensor.shape, tensor.dim_names),
        "non_zero_length": tensor.non_zero_length,
        "sparseIndex": index,
        "data": _buffers(parts)[-1],
    }


def _part(array: NDArray) -> Part:
    return array.nbytes, dense_pieces(array)


def _buffers(parts: list[Part]) -> NDArray:
    """Where the parts of a body lie, as a vector of Buffer structs."""
    offset = 0
    places = []
    for size, _ in parts:
        places.append((offset, size))
        offset += padded(size)
    return np.array(places, STRUCTS["Buffer"])


def _struct(offset: int, length: int) -> NDArray:
    return np.array((offset, length), STRUCTS["Buffer"])


def _int_values(dtype: DType) -> dict[str, Any]:
    return {"bitWidth": 8 * dtype.itemsize, "is_signed": dtype.kind == "i"}


def _shape_values(shape: Shape, names: DimNames) -> list[dict[str, Any]]:
    if not names:
        return [{"size": size} for size in shape]
    return [{"size": size, "name": name} for size, name in zip(shape, names, strict=True)]


def row_major(shape: Shape, itemsize: int) -> Shape:
    """The strides of elements that lie together in row-major order."""
    strides = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(strides[::-1])


# --- reading ----------------------------------------------------------------------------------------------------


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
    if len(dims) > MOST_DIMENSIONS:
        raise Unsupported(f"{where}: a tensor of {len(dims)} dimensions; up to {MOST_DIMENSIONS} are read")
    shape = []
    names = []
    for dim in dims:
        shape.append(dim["size"])
        names.append(text(dim["name"], "name of a dimension"))
    if shape and min(shape) < 0:
        raise InvalidData(f"{where}: a dimension of {min(shape)} elements in the shape {tuple(shape)}")
    if prod([size for size in shape if size]) * itemsize > MOST_BYTES:
        raise InvalidData(f"{where}: elements of {itemsize} bytes in the shape {tuple(shape)} take over 2^63 - 1 bytes")
    return tuple(shape), tuple(names) if any(names) else ()


def _place(buffer: Any, size: int, what: str) -> tuple[int, int]:
    """Where a buffer starts within a body of ``size`` bytes, and its length."""
    if buffer is None:
        raise InvalidData(f"{what} has no buffer")
    offset, length = buffer if isinstance(buffer, tuple) else buffer.item()
    if offset < 0 or length < 0 or offset + length > size:
        raise InvalidData(f"{what} needs [{offset}, {offset + length}) but the body has {size} bytes")
    return offset, length


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
    """All that the metadata of a Tensor message say, checked against the length of its body."""

    element: Element
    dtype: DType
    shape: Shape
    strides: Shape
    offset: int
    dim_names: DimNames
    metadata: Metadata | None
    body_length: int

    def over(self, data: Bytes, start: int = 0) -> Tensor:
        """The tensor over a body of that length, which starts in ``data`` at ``start``."""
        array: NDArray = np.ndarray(self.shape, self.dtype, data, start + self.offset, self.strides)
        return Tensor(array, self.element, self.dim_names, self.metadata)


_KNOWN: dict[bytes, DenseHeader] = {}
"""Headers that were read, by the bytes of their metadata: tensors of one kind often come one after another."""
_MOST_KNOWN = 1024
_MOST_BYTES = 2048


def known_tensor(data: Bytes) -> tuple[Tensor, int] | None:
    """The tensor whose message starts ``data``, and where it ends, if a header with the same metadata was read before.

    None says that the message has to be read properly, not that there is none.
    """
    head = data[:8].tobytes()
    if len(head) < 8 or not head.startswith(CONTINUATION):
        return None
    start: int = 8 + int.from_bytes(head[4:], "little")
    if start > _MOST_BYTES:
        return None
    known = _KNOWN.get(data[8:start].tobytes())
    if known is None or known.body_length > len(data) - start:
        return None
    return known.over(data, start), start + known.body_length


def _read_dense(message: Message, body: Bytes, where: str) -> Tensor:
    header = _dense_header_of(message, where)
    if len(message.metadata) <= _MOST_BYTES:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[message.metadata.tobytes()] = header
    return header.over(body)


def _dense_header_of(message: Message, where: str) -> DenseHeader:
    element, metadata = _element_of(message, where)
    dtype = element.dtype
    shape, names = _shape_of(message, where, dtype.itemsize)
    offset, length = _place(message.header["data"], message.body_length, where)
    given = message.header["strides"]
    if given is None:
        strides = row_major(shape, dtype.itemsize)
    elif len(given) == len(shape):
        strides = tuple(given.tolist())
    else:
        raise InvalidData(f"{where}: {len(given)} strides for {len(shape)} dimensions")
    _check_reach(shape, strides, dtype.itemsize, length, where)
    if 0 in shape:
        strides = row_major(shape, dtype.itemsize)
    return DenseHeader(element, dtype, shape, strides, offset, names, metadata, message.body_length)


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
    offset, length = _place(index["indicesBuffer"], len(body), f"{where}: the coordinates")
    given = index["indicesStrides"]
    strides = row_major((count, len(shape)), dtype.itemsize) if given is None else tuple(given.tolist())
    if len(strides) != 2:
        raise InvalidData(f"{where}: the coordinates are a matrix, found {len(strides)} strides")
    _check_reach((count, len(shape)), strides, dtype.itemsize, length, f"{where}: the coordinates")
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
        _place(levels[level], len(body), f"{where}: the indices of level {level}")
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
    offset, length = _place(buffer, len(body), what)
    if count * dtype.itemsize > length:
        raise InvalidData(f"{what}: {count} values take {count * dtype.itemsize} bytes but the buffer has {length}")
    return np.ndarray((count,), dtype, body, offset)


_INDEXES: dict[Any, Callable[[Any, Shape, int, Bytes, str], _Index]] = {
    "SparseTensorIndexCOO": _read_coo,
    "SparseMatrixIndexCSX": _read_csx,
    "SparseTensorIndexCSF": _read_csf,
}

READERS: dict[str, Callable[[Message, Bytes, str], Any]] = {"Tensor": _read_dense, "SparseTensor": _read_sparse}
"""For each kind of message that holds a tensor, what makes it from the message and its body."""
