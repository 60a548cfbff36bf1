"""Writing tensors, dense and sparse, to sinks; and tensors that are filled in place.

Rules kept here:

* a message of a path or a ``shm:`` name becomes visible whole or not at all;
* a file object or a segment writer of the caller's stays open: what it holds after an error is a part of a message.
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
"""Of a :class:`TensorWriter`."""


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
        Elements that lie together are written from where they are, row-major or not; those with gaps between them are
        brought together, a part at a time.
    sink : path, ``shm:NAME``, SegmentWriter or file object
        A path or a name appears whole or not at all. A writer and a file object stay open, so more can follow.
    options : IpcWriteOptions, optional
        Framing and version; ``csf_lengths="elements"`` for Arrow C++, which reads CSF tensors in this form only.
    overwrite, mode, durable
        As for :func:`shmarrow.ipc.new_file`.

    Returns
    -------
    int
        The bytes written.

    Raises
    ------
    ObjectExists
        If the name is taken and ``overwrite`` is False.
    StoreFull
        If there is no space left.
    """
    payload = encode_tensor(tensor, options)  # an error of the arguments comes before anything is created
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
    """Write a message, each piece of its body as it comes."""
    if isinstance(payload.pieces, list):
        sink.write([payload.metadata, *payload.pieces])
        return
    sink.write([payload.metadata])
    sink.write_each(payload.pieces, payload.body_length)


# --- filling in place -------------------------------------------------------------------------------------------


class TensorWriter(NotCopied):
    """A dense tensor being filled in place; made by :func:`new_tensor`.

    A context manager: at the end of the block the tensor gets its name; after an exception nothing is left.

    Attributes
    ----------
    array : ndarray
        The elements, writable, zeros at first. Read-only once the writer is closed.

    Notes
    -----
    Thread safety: threads may fill parts of the array at once, and one of them closes the writer when all are done. So
    may forked children, which share the array; their copies of the writer publish nothing.
    """

    def __init__(self, sink: Sink, array: Any) -> None:
        self.array = array
        self._sink = sink
        self._states = StateMachine(f"the writer to {sink.name}", STATES)
        self._lock = _thread.RLock()  # a signal handler may abort in the middle of close()

    def __repr__(self) -> str:
        shape, dtype = self.array.shape, self.array.dtype
        return f"<TensorWriter to {printable(self._sink.name)}: {dtype}, shape {shape}, {self._states.state}>"

    def close(self) -> None:
        """Publish the tensor. A second call does nothing.

        Raises
        ------
        Failed
            If publishing failed before; nothing is published then.
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
        """Abort: nothing is published. Does nothing after closing."""
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
        Where the tensor appears when the writer is closed, whole or not at all.
    shape : iterable of int
        The number of elements along each dimension.
    type : DataType, numpy dtype or str
        Of the elements.
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
        If there is not that much space; it is reserved before the array is handed out.
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
