"""Tensors, dense and sparse, to sinks and from sources: one, or many one after another, or filled in place.

Rules kept here:

* a message starts where the one before it ends; between messages there may be zeros up to the next 64-byte boundary;
* messages of other kinds may stand between those of tensors;
* what is not asked for is not read: to come to the next message, its header alone is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from math import prod
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from shmarrow.buffer import ALIGNMENT, Bytes, padded
from shmarrow.errors import DEFAULT_LIMITS, Closed, InvalidArgument, InvalidData, LimitExceeded, Limits
from shmarrow.ipc.message.decode import Message, parse_metadata
from shmarrow.ipc.message.encode import encode_message
from shmarrow.ipc.message.framing import CONTINUATION, read_prefix
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.tensor.messages import (
    MOST_BYTES,
    MOST_DIMENSIONS,
    READERS,
    TensorPayload,
    checked_options,
    dense_header,
    encode_tensor,
    known_tensor,
    row_major,
    wire_metadata,
)
from shmarrow.sources.source import Sink, Source
from shmarrow.tensor.dense import as_dim_names
from shmarrow.tensor.element import DType, as_element
from shmarrow.types import DataType, MetadataLike, as_metadata

# --- writing ----------------------------------------------------------------------------------------------------


def get_tensor_size(tensor: Any, options: IpcWriteOptions | None = None) -> int:
    """Bytes that the message of a tensor takes, padding included, when it begins on a 64-byte boundary."""
    return encode_tensor(tensor, options).size


def write_tensor(
    tensor: Any,
    sink: Any,
    options: IpcWriteOptions | None = None,
    *,
    overwrite: bool = False,
    mode: int = 0o400,
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
    encode_tensor(tensor, options)  # an error of the arguments comes before anything is created
    target = Sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    start = target.position
    try:
        write_payload(target, encode_tensor(tensor, options, start))
        if isinstance(sink, (str, os.PathLike)):
            target.finish()
    except BaseException:
        if isinstance(sink, (str, os.PathLike)):
            target.abort()
        raise
    return target.position - start


def write_payload(sink: Sink, plan: TensorPayload) -> None:
    """Write a message, each piece of its body as it comes."""
    sink.write([plan.metadata])
    for piece in plan.pieces:
        sink.write([piece])


# --- filling in place -------------------------------------------------------------------------------------------


class TensorWriter:
    """A dense tensor whose elements are computed where they will stay; made by :func:`new_tensor`.

    A context manager: at the end of the block the tensor gets its name; after an exception nothing is left.

    Attributes
    ----------
    array : ndarray
        The elements, writable, zeros at first. Read-only once the writer is closed.
    """

    def __init__(self, sink: Sink, array: Any) -> None:
        self.array = array
        self._sink: Sink | None = sink

    def close(self) -> None:
        """Publish the tensor. A second call does nothing."""
        sink, self._sink = self._sink, None
        if sink is not None:
            self.array.flags.writeable = False
            try:
                sink.finish()
            except BaseException:
                sink.abort()
                raise

    def abort(self) -> None:
        """Give up: nothing is published."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.abort()

    def __enter__(self) -> Self:
        if self._sink is None:
            raise Closed("the writer of the tensor is closed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def new_tensor(
    sink: Any,
    shape: Iterable[int],
    type: DataType | DType | str,
    dim_names: Iterable[str] | None = None,
    options: IpcWriteOptions | None = None,
    metadata: MetadataLike | None = None,
    *,
    order: Literal["C", "F"] = "C",
    overwrite: bool = False,
    mode: int = 0o400,
    durable: bool = False,
) -> TensorWriter:
    """Room for a dense tensor that is filled where it will be read: no element is ever copied.

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
    dims = tuple([int(size) for size in shape])
    if order not in ("C", "F") or any(size < 0 for size in dims) or len(dims) > MOST_DIMENSIONS:
        raise InvalidArgument(
            f"expected at most {MOST_DIMENSIONS} dimensions of 0 or more elements in the order 'C' or 'F', "
            f"found shape {dims} in the order {order!r}"
        )
    size = prod(dims) * element.dtype.itemsize
    if size > MOST_BYTES:
        raise InvalidArgument(f"a tensor of shape {dims} takes {size} bytes, more than {MOST_BYTES}")
    names = as_dim_names(dim_names, len(dims))
    strides = row_major(dims if order == "C" else dims[::-1], element.dtype.itemsize)
    header = dense_header(element, dims, strides if order == "C" else strides[::-1], names, size)
    own = wire_metadata(element, as_metadata(metadata))
    checked = checked_options(options)
    target = Sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    try:
        message = encode_message("Tensor", header, padded(size), own, checked, target.position)
        target.write([message])
        room = target.allocate(padded(size))
        array = np.ndarray(dims, element.dtype, room, order=order)
        return TensorWriter(target, array.view(element.numpy_dtype) if element.ml_dtype else array)
    except BaseException:
        target.abort()
        raise


# --- reading ----------------------------------------------------------------------------------------------------


def read_tensor(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> Any:
    """The tensor, dense or sparse, whose message is the first of a source.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped; the tensor points into the mapping and keeps it alive. A file object is read up to
        the end of the message.
    limits : Limits, optional
        Bounds on what is accepted.
    memory_map : bool
        False reads a path's bytes into memory instead.

    Returns
    -------
    Tensor or SparseTensor

    Raises
    ------
    ObjectNotFound
        If there is nothing of this name.
    InvalidData
        If there is no message of a tensor, or it is cut or breaks the format.
    """
    opened = Source(source, memory_map)
    cursor = _Cursor(opened)
    found = _next_tensor(cursor, limits)
    if found is None:
        raise InvalidData(f"{opened.name}: expected the message of a tensor, found the end of the stream")
    if opened.data is not None and hasattr(source, "seek"):
        source.seek(cursor.position, os.SEEK_CUR)
    if isinstance(found, Message):
        raise InvalidData(
            f"{opened.name}: expected a Tensor or a SparseTensor message, found a {found.kind}; "
            "ipc.read_tensors finds tensors among other messages"
        )
    return found


def read_tensors(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> Iterator[Any]:
    """All tensors of a source, one after another: an iterator, which reads a message when it comes to it.

    Messages of other kinds between them are passed over. The parameters and errors are those of :func:`read_tensor`.
    """
    return _read_all(_Cursor(Source(source, memory_map)), limits)


def _read_all(cursor: _Cursor, limits: Limits) -> Iterator[Any]:
    while (found := _next_tensor(cursor, limits)) is not None:
        if not isinstance(found, Message):
            yield found


_NOTHING = np.empty(0, np.uint8)


class _Cursor:
    """A place in a source, which moves on with what is taken from there."""

    __slots__ = ("_data", "_source", "name", "position")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._data = source.data
        self.name = source.name
        self.position = 0

    def rest(self) -> Bytes:
        """All bytes from here on that need not be read first."""
        return _NOTHING if self._data is None else self._data[self.position :]

    def take(self, size: int, what: str = "") -> Bytes:
        """The next ``size`` bytes; fewer at the end, unless ``what`` says what must be whole."""
        start = self.position
        taken = self._read(size) if self._data is None else self._data[start : start + size]
        self.position += len(taken)
        if what and len(taken) < size:
            raise InvalidData(
                f"{self.name}: {what} needs [{start}, {start + size}) but there are {self.position} bytes"
            )
        return taken

    def _read(self, size: int) -> Bytes:
        try:
            target = np.empty(size, np.uint8)
        except (MemoryError, ValueError):
            raise LimitExceeded(
                f"{self.name}: the message at {self.position} asks for {size} bytes of memory"
            ) from None
        got = self._source.read_into(target)
        target.flags.writeable = False
        return target[:got]


def _next_tensor(cursor: _Cursor, limits: Limits) -> Any:
    """What the next message holds: a tensor, or the message itself if it is of another kind; None at the end."""
    known = known_tensor(cursor.rest()) if limits is DEFAULT_LIMITS else None
    if known is not None:
        cursor.position += known[1]
        return known[0]
    while True:
        start = cursor.position
        head = cursor.take(4).tobytes()
        if head == CONTINUATION:
            head += cursor.take(4).tobytes()
        elif head == bytes(4) and start % ALIGNMENT:
            if cursor.take(-cursor.position % ALIGNMENT).any():
                raise InvalidData(f"{cursor.name}: expected a message, or zeros up to a multiple of 64, at {start}")
            continue
        where = f"{cursor.name}: the message at {start}"
        prefix = read_prefix(head, 0, where, limits)
        if prefix is None:
            return None
        metadata = cursor.take(prefix[1], f"the metadata at {start}")
        message = parse_metadata(metadata, where, limits)
        body = cursor.take(message.body_length, f"the body of the message at {start}")
        return READERS[message.kind](message, body, where) if message.kind in READERS else message


write_sparse_tensor = write_tensor
read_sparse_tensor = read_tensor
