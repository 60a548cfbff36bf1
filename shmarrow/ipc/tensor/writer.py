# SPDX-License-Identifier: Apache-2.0
"""Encoding and writing of tensors ("Tensor (Multi-dimensional Array) Message Format").

Encoding: pure functions from a tensor to a payload. Invariants:

* metadata, index buffers and data start on 64-byte boundaries, relative to the message;
* the size of a message is known before anything is written or copied.

Writers of dense and sparse tensors, and tensors filled in place: a path or a ``shm:`` name is published atomically. The
caller's file object or segment writer stays open, and may hold a partial message after an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from functools import lru_cache
from itertools import chain
from math import prod
from operator import index
from typing import Any, Literal

import numpy as np

from shmarrow.buffer import ALIGNMENT, PADDING, U1, DType, NDArray, padded
from shmarrow.errors import InvalidArgument, InvalidType, printable, shown
from shmarrow.ipc.flatbuffers.builder import encode
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.flatbuffers.tables import STRUCTS
from shmarrow.ipc.message.decode import Template, frame
from shmarrow.ipc.message.encode import Payload, encode_message, message_values
from shmarrow.ipc.options import IpcWriteOptions, as_options
from shmarrow.ipc.schema.types import type_values
from shmarrow.ipc.tensor.decode import dense_holes
from shmarrow.memory import Sink, Writer, is_location, open_sink
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.tensor.dense import (
    MAX_BYTES,
    MAX_DIMENSIONS,
    DimNames,
    Shape,
    as_dim_names,
    dense_layout,
    dense_pieces,
    row_major,
)
from shmarrow.tensor.element import Element, as_element, to_wire
from shmarrow.types import DataType, FrozenMetadata, Metadata, MetadataLike, as_metadata

_BUFFER = STRUCTS["Buffer"]

SizedPieces = tuple[int, Iterable[Any]]
"""A buffer: its size and its pieces."""
Encoded = tuple[dict[str, Any], list[SizedPieces]]
"""The values of a message's header table, and the buffers of its body."""

_HASHABLE = (None.__class__, FrozenMetadata)
_SHORT = 64
"""Maximum metadata size of cached templates."""


def encode_tensor(tensor: Any, options: IpcWriteOptions | None = None, start: int = 0) -> Payload:
    """Encode a tensor as a message at offset ``start``, without copying the body."""
    checked = checked_options(options)
    if tensor.__class__ is Tensor:
        return encode_dense(tensor.storage, tensor._element, tensor.dim_names, tensor.metadata, checked, start)
    if not isinstance(tensor, SparseTensor):
        raise InvalidType(f"expected a Tensor or a sparse tensor, found {type(tensor).__name__}; see Tensor.from_numpy")
    header, parts = _encode_sparse(tensor)
    body_length = sum([padded(size) for size, _ in parts])
    own = wire_metadata(tensor._element, tensor.metadata)
    metadata = encode_message("SparseTensor", header, body_length, own, checked, start)
    pieces = chain.from_iterable([chain(pieces, [PADDING[: -size % ALIGNMENT]]) for size, pieces in parts])
    return Payload(metadata, pieces, body_length)


def checked_options(options: IpcWriteOptions | None) -> IpcWriteOptions:
    """Check the options."""
    options = as_options(options)
    if options.compression is not None or options.endianness != "little":
        raise InvalidArgument(
            "tensor messages are uncompressed and little-endian, "
            f"found compression={options.compression!r}, endianness={options.endianness!r}"
        )
    return options


def wire_metadata(element: Element, metadata: Metadata | None) -> Metadata | None:
    """A tensor's metadata, plus its element type if Arrow's type does not define it."""
    own = to_wire(element)[1]
    return {**(metadata or {}), **own} if own else metadata


def dense_message(
    element: Element,
    shape: Shape,
    strides: Shape,
    names: DimNames,
    size: int,
    metadata: Metadata | None,
    options: IpcWriteOptions,
    start: int = 0,
) -> bytes:
    """The framed metadata of a dense tensor, for a body of ``size`` bytes plus padding."""
    small = not names and (metadata is None or (len(metadata) == 1 and len(*metadata.values()) <= _SHORT))
    make = _dense_template if small and metadata.__class__ in _HASHABLE else _dense_template.__wrapped__
    template = make(
        element,
        len(shape),
        names,
        metadata,
        options.metadata_version,
        options.use_legacy_format,
        start % ALIGNMENT,
    )
    return template.filled([padded(size), size, *strides, *shape])


@lru_cache(256)
def _dense_template(
    element: Element,
    ndim: int,
    names: DimNames,
    metadata: Metadata | None,
    version: str,
    legacy: bool,
    start: int,
) -> Template:
    """A template for the framed metadata of dense tensors; its holes are those of :func:`dense_holes`."""
    ones = (1,) * ndim  # slots equal to their default, 0, would be omitted
    header = {
        "type": type_values(to_wire(element)[0]),
        "shape": _shape_values(ones, names),
        "strides": np.array(ones, "<i8"),
        "data": np.array((0, 1), _BUFFER),
    }
    data = encode("Message", message_values("Tensor", header, 1, wire_metadata(element, metadata), version))
    message = Reader(np.frombuffer(data, np.uint8), "a message").root("Message")
    prefix = 4 if legacy else 8
    return Template(frame(data, legacy, start), [(prefix + place, each) for place, each in dense_holes(message)])


def encode_dense(
    storage: NDArray,
    element: Element,
    names: DimNames,
    metadata: Metadata | None,
    options: IpcWriteOptions,
    start: int = 0,
) -> Payload:
    """Encode a dense tensor; ``options`` must come from :func:`checked_options`."""
    shape = storage.shape
    if storage.size and storage.flags.c_contiguous:
        size = storage.nbytes
        strides = (storage.itemsize,) if len(shape) == 1 else row_major(shape, storage.itemsize)
        pieces: Iterable[Any] = [storage.reshape(-1).view(U1), PADDING[: -size % ALIGNMENT]]
    else:
        strides, size = dense_layout(storage)
        pieces = chain(dense_pieces(storage), [PADDING[: -size % ALIGNMENT]])
    message = dense_message(element, shape, strides, names, size, metadata, options, start)
    return Payload(message, pieces, padded(size))


def _encode_sparse(tensor: SparseTensor) -> Encoded:
    arrays = [*tensor.index, tensor.storage]
    parts = [_part(array) for array in arrays]
    buffers = _buffers(parts)
    header = {
        "type": type_values(to_wire(tensor._element)[0]),
        "shape": _shape_values(tensor.shape, tensor.dim_names),
        "non_zero_length": tensor.non_zero_length,
        "sparseIndex": _sparse_index(tensor, buffers[:-1]),
        "data": buffers[-1],
    }
    return header, parts


def _sparse_index(tensor: SparseTensor, buffers: NDArray) -> tuple[str, dict[str, Any]]:
    """The table of an index over its buffers."""
    first, last = _int_values(tensor.index[0].dtype), _int_values(tensor.index[-1].dtype)
    if tensor.form == "COO":
        strides, _ = dense_layout(tensor.index[0])
        return "SparseTensorIndexCOO", {
            "indicesType": last,
            "indicesStrides": np.array(strides, "<i8"),
            "indicesBuffer": buffers[0],
            "isCanonical": tensor.is_canonical,
        }
    if tensor.form in ("CSR", "CSC"):
        return "SparseMatrixIndexCSX", {
            "compressedAxis": tensor.axis_order[0],
            "indptrType": first,
            "indptrBuffer": buffers[0],
            "indicesType": last,
            "indicesBuffer": buffers[1],
        }
    levels = tensor.ndim - 1  # a one-dimensional tensor has no indptr; its type is irrelevant then
    return "SparseTensorIndexCSF", {
        "indptrType": first,
        "indptrBuffers": buffers[:levels],
        "indicesType": last,
        "indicesBuffers": buffers[levels:],
        "axisOrder": np.array(tensor.axis_order, "<i4"),
    }


def _part(array: NDArray) -> SizedPieces:
    return dense_layout(array)[1], dense_pieces(array)


def _buffers(parts: list[SizedPieces]) -> NDArray:
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


# --- writing ------------------------------------------------------------------------------------------------------


def get_tensor_size(tensor: Any, options: IpcWriteOptions | None = None) -> int:
    """Return the size in bytes of a tensor's message, including padding, if it starts on a 64-byte boundary."""
    return encode_tensor(tensor, options).size


def write_tensor(
    tensor: Any,
    sink: Any,
    options: IpcWriteOptions | None = None,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> int:
    """Write a tensor, dense or sparse, as one message.

    Parameters
    ----------
    tensor : Tensor or SparseTensor
        Contiguous elements, in any order, are written without an intermediate copy; strided ones are copied in chunks.
    sink : path, ``shm:NAME``, SegmentWriter or file object
        A path or a name is published atomically. A writer or a file object stays open for further messages.
    options : IpcWriteOptions, optional
        Framing and version.
    overwrite, mode, durable
        As for :func:`shmarrow.ipc.new_file`.

    Returns
    -------
    int
        The number of bytes written.

    Raises
    ------
    ObjectExists
        If the name exists and ``overwrite`` is False.
    StoreFull
        If there is no space left.
    """
    payload = encode_tensor(tensor, options)  # validates the arguments before anything is created
    opened = open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    start = opened.size
    if start % ALIGNMENT:
        payload = encode_tensor(tensor, options, start)
    with opened if is_location(sink) else nullcontext():
        write_payload(opened, payload)
    return opened.size - start


def write_payload(sink: Sink, payload: Payload) -> None:
    """Write a message piece by piece."""
    if isinstance(payload.pieces, list):
        sink.write([payload.metadata, *payload.pieces])
        return
    sink.write([payload.metadata])
    sink.write_each(payload.pieces, payload.body_length)


# --- filling in place -------------------------------------------------------------------------------------------


class TensorWriter(Writer):
    """A dense tensor being filled in place; made by :func:`new_tensor`.

    A context manager: publishes the tensor at the end of the block, and drops it on an exception.

    Attributes
    ----------
    array : ndarray
        The elements: writable and initially zero; read-only after closing.

    Notes
    -----
    Thread safety: threads may fill the array concurrently; one of them closes the writer when all are done. Forked
    children share the array and may fill it too; their copies of the writer publish nothing.
    """

    def __init__(self, sink: Sink, array: Any) -> None:
        self.array = array
        self._sink = sink
        super().__init__(f"the writer to {sink.name}")

    def __repr__(self) -> str:
        shape, dtype = self.array.shape, self.array.dtype
        return f"<TensorWriter to {printable(self._sink.name)}: {dtype}, shape {shape}, {self._states.state}>"

    def _finish(self) -> None:
        self.array.flags.writeable = False
        self._sink.publish()

    def _drop(self) -> None:
        self._sink.drop()


def new_tensor(
    sink: Any,
    shape: Iterable[int],
    type: DataType | DType | str,
    dim_names: Iterable[str] | None = None,
    options: IpcWriteOptions | None = None,
    metadata: MetadataLike | None = None,
    *,
    order: Literal["C", "F"] = "C",
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> TensorWriter:
    """Allocate a dense tensor that is filled in place, without copying.

    Parameters
    ----------
    sink : path or ``shm:NAME``
        The target, published atomically when the writer is closed.
    shape : iterable of int
        Size of each dimension.
    type : DataType, numpy dtype or str
        Element type.
    dim_names, metadata
        As for :meth:`shmarrow.Tensor.from_numpy`.
    options : IpcWriteOptions, optional
        Framing and version.
    order : str
        ``"C"`` for row-major, ``"F"`` for column-major.
    overwrite, mode, durable
        As for :func:`shmarrow.ipc.new_file`.

    Raises
    ------
    StoreFull
        If there is not enough space; it is reserved up front.
    """
    element = as_element(type)
    try:
        dims = tuple([index(size) for size in shape])
    except TypeError as error:
        raise InvalidType(f"a shape must be a sequence of integers, found {shown(shape)}: {error}") from None
    if order not in ("C", "F") or any(size < 0 for size in dims) or len(dims) > MAX_DIMENSIONS:
        raise InvalidArgument(
            f"expected at most {MAX_DIMENSIONS} dimensions of 0 or more elements in the order 'C' or 'F', "
            f"found shape {dims} in the order {order!r}"
        )
    size = prod(dims) * element.dtype.itemsize
    if size > MAX_BYTES:
        raise InvalidArgument(f"a tensor of shape {dims} takes {size} bytes, more than {MAX_BYTES}")
    names = as_dim_names(dim_names, len(dims))
    strides = row_major(dims if order == "C" else dims[::-1], element.dtype.itemsize)
    own = as_metadata(metadata)
    checked = checked_options(options)
    target = open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    try:
        ordered = strides if order == "C" else strides[::-1]
        message = dense_message(element, dims, ordered, names, size, own, checked, target.size)
        begin = target.size
        start = begin + len(message)
        mapped = target.map(start + padded(size))
        mapped[begin:start] = np.frombuffer(message, np.uint8)
        array = np.ndarray(dims, element.dtype, mapped[start:], order=order)
        return TensorWriter(target, array.view(element.numpy_dtype) if element.ml_dtype else array)
    except BaseException:
        target.drop()
        raise
