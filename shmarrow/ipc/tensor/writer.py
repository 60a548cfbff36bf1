"""Writers of dense and sparse tensors, and tensors filled in place.

A path or a ``shm:`` name is published atomically. The caller's file object or segment writer stays open, and may
hold a partial message after an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from math import prod
from operator import index
from typing import Any, Literal

import numpy as np

from shmarrow.buffer import ALIGNMENT, DType, padded
from shmarrow.errors import InvalidArgument, InvalidType, printable, shown
from shmarrow.ipc.message.encode import Payload
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.tensor.encode import checked_options, dense_message, encode_tensor
from shmarrow.segment import SegmentWriter, is_location
from shmarrow.sources.sinks import joined, open_sink
from shmarrow.tensor.dense import MAX_BYTES, MAX_DIMENSIONS, as_dim_names, row_major
from shmarrow.tensor.element import as_element
from shmarrow.types import DataType, MetadataLike, as_metadata
from shmarrow.writer import Sink, Writer


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
        sink.write(joined([payload.metadata, *payload.pieces]))
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
        self._sink.close()

    def _drop(self) -> None:
        self._sink.abort()


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
        if not isinstance(target, SegmentWriter):
            raise InvalidType(
                f"to be filled in place, {target.name} must be a path or a shm: name, found a file object"
            )
        ordered = strides if order == "C" else strides[::-1]
        target.write([dense_message(element, dims, ordered, names, size, own, checked, target.size)])
        start = target.size
        array = np.ndarray(dims, element.dtype, target.map(start + padded(size))[start:], order=order)
        return TensorWriter(target, array.view(element.numpy_dtype) if element.ml_dtype else array)
    except BaseException:
        target.abort()
        raise
