"""Writers of dense and sparse tensors, and tensors filled in place.

A path or a ``shm:`` name is published atomically. The caller's file object or segment writer stays open, and may
hold a partial message after an error.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Iterable
from math import prod
from operator import index
from typing import Any, Literal, Self

import numpy as np

from shmarrow.buffer import ALIGNMENT, padded
from shmarrow.errors import InvalidArgument, InvalidType, printable, shown
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.tensor.encode import TensorPayload, checked_options, dense_message, encode_tensor
from shmarrow.sources import open_sink
from shmarrow.sources.sinks import Sink
from shmarrow.states import CLOSE, CLOSED, FAIL, FAILED, OPEN, NotCopied, StateMachine
from shmarrow.tensor.dense import MAX_BYTES, MAX_DIMENSIONS, as_dim_names, row_major
from shmarrow.tensor.element import DType, as_element
from shmarrow.types import DataType, MetadataLike, as_metadata

STATES = {
    OPEN: {CLOSE: CLOSED, FAIL: FAILED},
    CLOSED: {CLOSE: CLOSED},
    FAILED: {},
}
"""States of a :class:`TensorWriter`."""


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
        Framing and version; ``csf_lengths="elements"`` for Arrow C++, which can only read CSF tensors of this form.
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
    owned = isinstance(sink, (str, os.PathLike))
    start = opened.position
    try:
        write_payload(opened, encode_tensor(tensor, options, start) if start % ALIGNMENT else payload)
        if owned:
            opened.finish()
    except BaseException:
        if owned:
            opened.abort()
        raise
    return opened.position - start


def write_payload(sink: Sink, payload: TensorPayload) -> None:
    """Write a message piece by piece."""
    if isinstance(payload.pieces, list):
        sink.write([payload.metadata, *payload.pieces])
        return
    sink.write([payload.metadata])
    sink.write_each(payload.pieces, payload.body_length)


# --- filling in place -------------------------------------------------------------------------------------------


class TensorWriter(NotCopied):
    """A dense tensor being filled in place; made by :func:`new_tensor`.

    A context manager: publishes the tensor at the end of the block, and discards it on an exception.

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
        self._states = StateMachine(f"the writer to {sink.name}", STATES)
        self._lock = _thread.RLock()  # re-entrant: a signal handler may call abort() during close()

    def __repr__(self) -> str:
        shape, dtype = self.array.shape, self.array.dtype
        return f"<TensorWriter to {printable(self._sink.name)}: {dtype}, shape {shape}, {self._states.state}>"

    def close(self) -> None:
        """Publish the tensor. Calling it again has no effect.

        Raises
        ------
        Failed
            If publishing failed before; nothing is published.
        """
        if self._states.inherited:
            return
        with self._lock:
            if self._states.state == OPEN:
                self.array.flags.writeable = False
                try:
                    self._sink.finish()
                except BaseException as error:
                    self._states.fail(error)
                    self._sink.abort()
                    raise
            self._states.go(CLOSE)

    def abort(self) -> None:
        """Abort: nothing is published. No effect after closing."""
        if self._states.inherited:
            return
        with self._lock:
            if self._states.state == OPEN:
                self._states.go(CLOSE)
                self._sink.abort()

    def __enter__(self) -> Self:
        if self._states.state != OPEN:
            raise self._states.refusal()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        (self.close if kind is None else self.abort)()


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
        target.write([dense_message(element, dims, ordered, names, size, own, checked, target.position)])
        room = target.allocate(padded(size))
        array = np.ndarray(dims, element.dtype, room, order=order)
        return TensorWriter(target, array.view(element.numpy_dtype) if element.ml_dtype else array)
    except BaseException:
        target.abort()
        raise


write_sparse_tensor = write_tensor
