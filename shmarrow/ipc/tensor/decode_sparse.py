# SPDX-License-Identifier: Apache-2.0
"""Decoding of SparseTensor bodies, by index format; same invariants as ``decode``.

CSF buffer lengths are read in bytes, as the format specifies, or in elements, as Arrow C++ writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import ALIGNMENT, Bytes, DType, NDArray
from shmarrow.errors import InvalidArgument, InvalidData, at, recast
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.schema.types import read_index_type
from shmarrow.ipc.tensor.elements import buffer_range, check_reach, element_of, shape_of
from shmarrow.tensor.dense import Shape, row_major
from shmarrow.tensor.sparse import FORMS


def read_sparse(message: Message, body: Bytes, where: str) -> Any:
    """Build the tensor of a message over its body."""
    header = message.header
    element, metadata = element_of(message, where)
    dtype = element.dtype
    shape, names = shape_of(message, where, dtype.itemsize)
    if not shape:
        raise InvalidData(f"{where}: a sparse tensor needs at least one dimension")
    count = header["non_zero_length"]
    if count < 0:
        raise InvalidData(f"{where}: the number of stored values must be at least 0, found {count}")
    kind, index = header["sparseIndex"]
    if index is None:
        raise InvalidData(f"{where}: unknown sparse index, found {kind}")
    storage = _array(header["data"], dtype, count, body, f"{where}: the data")
    parts = _INDEXES[kind](index, shape, count, body, where)
    order, canonical = parts.axis_order, parts.is_canonical
    try:
        with at(where):
            return FORMS[parts.form](shape, parts.arrays, storage, element, order, canonical, names, metadata)
    except InvalidArgument as error:
        raise recast(InvalidData, error) from None


class _SparseIndex(NamedTuple):
    """The index of a sparse tensor, as its constructor takes it."""

    form: str
    arrays: list[NDArray]
    axis_order: list[int] | None = None
    is_canonical: bool = False


def _read_coo(index: Any, shape: Shape, count: int, body: Bytes, where: str) -> _SparseIndex:
    dtype = _int_type(index["indicesType"], where)
    offset, end = buffer_range(index["indicesBuffer"], len(body), f"{where}: the coordinates")
    vector = index["indicesStrides"]
    strides = row_major((count, len(shape)), dtype.itemsize) if vector is None else tuple(vector.tolist())
    if len(strides) != 2:
        raise InvalidData(f"{where}: the coordinates must be a matrix, found {len(strides)} strides")
    check_reach((count, len(shape)), strides, dtype.itemsize, end - offset, f"{where}: the coordinates")
    indices = np.ndarray((count, len(shape)), dtype, body, offset, strides if count else None)
    return _SparseIndex("COO", [indices], is_canonical=index["isCanonical"])


def _read_csx(index: Any, shape: Shape, count: int, body: Bytes, where: str) -> _SparseIndex:
    axis = index["compressedAxis"]
    if axis not in _AXES:
        raise InvalidData(f"{where}: the compressed axis must be one of {sorted(_AXES)}, found {axis}")
    if len(shape) != 2:
        raise InvalidData(f"{where}: a compressed matrix has two dimensions, found the shape {shape}")
    starts, nodes = _int_type(index["indptrType"], where), _int_type(index["indicesType"], where)
    indptr = _array(index["indptrBuffer"], starts, shape[axis] + 1, body, f"{where}: indptr")
    indices = _array(index["indicesBuffer"], nodes, count, body, f"{where}: the indices")
    return _SparseIndex(_AXES[axis], [indptr, indices])


_AXES = {
    ENUMS["SparseMatrixCompressedAxis"]["Row"]: "CSR",
    ENUMS["SparseMatrixCompressedAxis"]["Column"]: "CSC",
}


def _read_csf(index: Any, shape: Shape, count: int, body: Bytes, where: str) -> _SparseIndex:
    starts, nodes = _int_type(index["indptrType"], where), _int_type(index["indicesType"], where)
    ptr_buffers, node_buffers, order = index["indptrBuffers"], index["indicesBuffers"], index["axisOrder"]
    counts = [0 if vector is None else len(vector) for vector in (ptr_buffers, node_buffers, order)]
    ndim = len(shape)
    if counts != [ndim - 1, ndim, ndim]:
        raise InvalidData(
            f"{where}: CSF of {ndim} dimensions has {ndim - 1} indptr, {ndim} indices and {ndim} axes, found {counts}"
        )
    ptrs = [] if ptr_buffers is None else ptr_buffers.tolist()
    levels = node_buffers.tolist()
    if counts_elements(ptrs, levels, count):
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
    return _SparseIndex("CSF", indptr + indices, order.tolist())


def counts_elements(ptrs: list[tuple[int, int]], levels: list[tuple[int, int]], count: int) -> bool:
    """Whether the buffer lengths of an index count elements, as Arrow C++ writes them.

    Unambiguous except for one-byte elements, where both agree.
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
    """The number of nodes of each level, from its buffer lengths in bytes, which may include zero padding."""
    if count * nodes.itemsize > levels[-1][1]:
        raise InvalidData(
            f"{where}: {count} leaves take {count * nodes.itemsize} bytes but the buffer has {levels[-1][1]}"
        )
    sizes = [count]
    for level in range(len(ptrs) - 1, -1, -1):
        most = min(levels[level][1] // nodes.itemsize, ptrs[level][1] // starts.itemsize - 1)
        if most < 0:
            raise InvalidData(f"{where}: indptr of level {level} is empty, expected at least one value")
        buffer_range(levels[level], len(body), f"{where}: the indices of level {level}")
        ptr = _array(ptrs[level], starts, most + 1, body, f"{where}: indptr of level {level}")
        # The last value is the next level's number of nodes, non-zero unless empty.
        tail = ptr[-ALIGNMENT:]
        ends = np.flatnonzero(tail == sizes[0])
        sizes.insert(0, len(ptr) - len(tail) + int(ends[-1] if sizes[0] else 0) if len(ends) else most)
    return sizes


def _int_type(table: Any, where: str) -> DType:
    if table is None:
        raise InvalidData(f"{where}: an index without a type")
    with at(where):
        return read_index_type(table).storage


def _array(buffer: Any, dtype: DType, count: int, body: Bytes, what: str) -> NDArray:
    """View the first ``count`` values of a buffer."""
    offset, end = buffer_range(buffer, len(body), what)
    if count * dtype.itemsize > end - offset:
        raise InvalidData(
            f"{what}: {count} values take {count * dtype.itemsize} bytes but the buffer has {end - offset}"
        )
    return np.ndarray((count,), dtype, body, offset)


_INDEXES: dict[Any, Callable[[Any, Shape, int, Bytes, str], _SparseIndex]] = {
    "SparseTensorIndexCOO": _read_coo,
    "SparseMatrixIndexCSX": _read_csx,
    "SparseTensorIndexCSF": _read_csf,
}
