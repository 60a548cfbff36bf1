"""Writing Tensor and SparseTensor messages ("Tensor (Multi-dimensional Array) Message Format").

Pure functions from a tensor to a payload. Rules kept here:

* metadata, every index and the data start on 64-byte boundaries, counted from the start of the message;
* the size of a message is known before its first byte is written, and no byte of the body is copied before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import ALIGNMENT, PADDING, padded
from shmarrow.errors import InvalidArgument, InvalidType
from shmarrow.ipc.flatbuffers.tables import STRUCTS
from shmarrow.ipc.message.encode import encode_message
from shmarrow.ipc.options import IpcWriteOptions, as_options
from shmarrow.ipc.schema.types import type_values
from shmarrow.tensor import SparseCOOTensor, SparseCSCMatrix, SparseCSFTensor, SparseCSRMatrix, Tensor
from shmarrow.tensor.dense import DimNames, Shape, dense_layout, dense_pieces
from shmarrow.tensor.element import DType, Element, NDArray, to_wire
from shmarrow.types import Metadata

_BUFFER = STRUCTS["Buffer"]

Part = tuple[int, Iterable[Any]]
"""A buffer: its bytes, and the pieces that they come in."""
Encoded = tuple[str, dict[str, Any], list[Part]]
"""The kind of a message, the values of its header, and the buffers of its body."""


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
    """The message of a tensor that is to begin at ``start``; no byte of the body is copied yet."""
    if type(tensor) not in _ENCODERS:
        raise InvalidType(f"expected a Tensor or a sparse tensor, found {type(tensor).__name__}; see Tensor.from_numpy")
    checked = checked_options(options)
    kind, header, parts = _ENCODERS[type(tensor)](tensor, checked)
    body_length = sum([padded(size) for size, _ in parts])
    own = wire_metadata(tensor._element, tensor.metadata)
    metadata = encode_message(kind, header, body_length, own, checked, start)
    pieces = chain.from_iterable([chain(pieces, [PADDING[: -size % ALIGNMENT]]) for size, pieces in parts])
    return TensorPayload(metadata, pieces, body_length)


def checked_options(options: IpcWriteOptions | None) -> IpcWriteOptions:
    """The options with at least the alignment that tensors have."""
    options = as_options(options)
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
        "data": np.array((0, size), _BUFFER),
    }


def _encode_dense(tensor: Tensor, options: IpcWriteOptions) -> Encoded:
    strides, size = dense_layout(tensor.storage)
    header = dense_header(tensor._element, tensor.shape, strides, tensor.dim_names, size)
    return "Tensor", header, [(size, dense_pieces(tensor.storage))]


def _encode_coo(tensor: SparseCOOTensor, options: IpcWriteOptions) -> Encoded:
    strides, size = dense_layout(tensor.indices)
    parts = [(size, dense_pieces(tensor.indices)), _part(tensor.storage)]
    buffers = _buffers(parts)
    index = {
        "indicesType": _int_values(tensor.indices.dtype),
        "indicesStrides": np.array(strides, "<i8"),
        "indicesBuffer": buffers[0],
        "isCanonical": tensor.is_canonical,
    }
    return _sparse(tensor, ("SparseTensorIndexCOO", index), parts, buffers)


def _encode_csx(tensor: Any, options: IpcWriteOptions) -> Encoded:
    parts = [_part(array) for array in (tensor.indptr, tensor.indices, tensor.storage)]
    buffers = _buffers(parts)
    index = {
        "compressedAxis": tensor.axis,
        "indptrType": _int_values(tensor.indptr.dtype),
        "indptrBuffer": buffers[0],
        "indicesType": _int_values(tensor.indices.dtype),
        "indicesBuffer": buffers[1],
    }
    return _sparse(tensor, ("SparseMatrixIndexCSX", index), parts, buffers)


def _encode_csf(tensor: SparseCSFTensor, options: IpcWriteOptions) -> Encoded:
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
    return _sparse(tensor, ("SparseTensorIndexCSF", index), parts, buffers)


_ENCODERS: dict[Any, Callable[[Any, IpcWriteOptions], Encoded]] = {
    Tensor: _encode_dense,
    SparseCOOTensor: _encode_coo,
    SparseCSRMatrix: _encode_csx,
    SparseCSCMatrix: _encode_csx,
    SparseCSFTensor: _encode_csf,
}


def _sparse(tensor: Any, index: tuple[str, dict[str, Any]], parts: list[Part], buffers: NDArray) -> Encoded:
    header = {
        "type": type_values(to_wire(tensor._element)[0]),
        "shape": _shape_values(tensor.shape, tensor.dim_names),
        "non_zero_length": tensor.non_zero_length,
        "sparseIndex": index,
        "data": buffers[-1],
    }
    return "SparseTensor", header, parts


def _part(array: NDArray) -> Part:
    return array.nbytes, dense_pieces(array)


def _buffers(parts: list[Part]) -> NDArray:
    """The Buffer structs of a body's parts."""
    offset = 0
    rows = []
    for size, _ in parts:
        rows.append((offset, size))
        offset += padded(size)
    return np.array(rows, _BUFFER)


def _int_values(dtype: DType) -> dict[str, Any]:
    return {"bitWidth": 8 * dtype.itemsize, "is_signed": dtype.kind == "i"}


def _shape_values(shape: Shape, names: DimNames) -> list[dict[str, Any]]:
    if not names:
        return [{"size": size} for size in shape]
    return [{"size": size, "name": name} for size, name in zip(shape, names, strict=True)]
