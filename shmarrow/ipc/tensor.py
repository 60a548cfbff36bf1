"""Tensor and SparseTensor messages: an array of any number of dimensions in one message, to bytes and back.

Rules kept here:

* a message that is written has its metadata, every index and the data on 64-byte boundaries, counted from where it
  starts, and its size is known before the first byte is written;
* whatever is read is checked before a view of it is made: counts, products and ends in Python's integers, which do not
  overflow; an index's values are left to ``validate(full=True)``;
* buffers are read where their offsets say, aligned or not, and may be longer than what is needed;
* between messages there may be zeros up to the next 64-byte boundary.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from math import prod
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from shmarrow.buffer import ALIGNMENT, PADDING, Bytes, padded
from shmarrow.errors import (
    DEFAULT_LIMITS,
    Closed,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    Limits,
    Unsupported,
)
from shmarrow.ipc.message import CONTINUATION, Message, encode_message, parse_metadata, read_prefix
from shmarrow.ipc.options import DEFAULT_OPTIONS, IpcWriteOptions
from shmarrow.ipc.schema import NESTED, read_type, text, type_values
from shmarrow.ipc.source import Sink, Source
from shmarrow.tensor.dense import DimNames, Tensor, as_dim_names, dense_layout, dense_pieces
from shmarrow.tensor.element import DType, Element, as_element, from_wire, to_wire
from shmarrow.types import DataType, Metadata, MetadataLike, as_metadata

MOST_DIMENSIONS = 64
"""What an ndarray has."""
MOST_BYTES = (1 << 63) - 1

Shape = tuple[int, ...]


# --- writing ----------------------------------------------------------------------------------------------------


class TensorPlan(NamedTuple):
    """A message that is ready to be written: its metadata, framed, and the pieces of its body with their padding."""

    metadata: bytes
    pieces: Iterable[Any]
    body_length: int

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return len(self.metadata) + self.body_length


def plan_tensor(tensor: Any, options: IpcWriteOptions | None = None, start: int = 0) -> TensorPlan:
    """The plan of a tensor's message that is to begin at ``start``; no byte of the body is copied yet."""
    if not isinstance(tensor, Tensor):
        raise InvalidType(f"expected a Tensor or a sparse tensor, found {type(tensor).__name__}; see Tensor.from_numpy")
    strides, size = dense_layout(tensor.storage)
    header = _dense_header(tensor._element, tensor.shape, strides, tensor.dim_names, size)
    return _plan("Tensor", header, tensor, [(size, dense_pieces(tensor.storage))], options, start)


def _plan(
    kind: str,
    header: dict[str, Any],
    tensor: Any,
    buffers: list[tuple[int, Iterable[Any]]],
    options: IpcWriteOptions | None,
    start: int,
) -> TensorPlan:
    body_length = sum([padded(size) for size, _ in buffers])
    metadata = encode_message(
        kind, header, body_length, _metadata(tensor._element, tensor.metadata), _checked(options), start
    )
    pieces = chain.from_iterable([chain(pieces, [PADDING[: -size % ALIGNMENT]]) for size, pieces in buffers])
    return TensorPlan(metadata, pieces, body_length)


def _checked(options: IpcWriteOptions | None) -> IpcWriteOptions:
    """The options with at least the alignment that tensors have."""
    options = options or DEFAULT_OPTIONS
    if options.compression is not None or options.endianness != "little":
        raise InvalidArgument(
            "a message of a tensor has neither compression nor a byte order other than little, "
            f"found compression={options.compression!r}, endianness={options.endianness!r}"
        )
    return options if options.alignment >= ALIGNMENT else replace(options, alignment=ALIGNMENT)


def _metadata(element: Element, metadata: Metadata | None) -> Metadata | None:
    own = to_wire(element)[1]
    return {**(metadata or {}), **own} if own else metadata


def _dense_header(element: Element, shape: Shape, strides: Shape, names: DimNames, size: int) -> dict[str, Any]:
    return {
        "type": type_values(to_wire(element)[0]),
        "shape": _shape_values(shape, names),
        "strides": np.array(strides, "<i8"),
        "data": buffer_value(0, size),
    }


def _shape_values(shape: Shape, names: DimNames) -> list[dict[str, Any]]:
    if not names:
        return [{"size": size} for size in shape]
    return [{"size": size, "name": name} for size, name in zip(shape, names, strict=True)]


_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])


def buffer_value(offset: int, length: int) -> Any:
    """A Buffer struct."""
    return np.array((offset, length), _BUFFER)


def get_tensor_size(tensor: Any, options: IpcWriteOptions | None = None) -> int:
    """Bytes that the message of a tensor takes, padding included, when it begins on a 64-byte boundary."""
    return plan_tensor(tensor, options).size


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
    plan_tensor(tensor, options)  # an error of the arguments comes before anything is created
    target = Sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    start = target.position
    try:
        write_plan(target, plan_tensor(tensor, options, start))
        if isinstance(sink, (str, os.PathLike)):
            target.finish()
    except BaseException:
        if isinstance(sink, (str, os.PathLike)):
            target.abort()
        raise
    return target.position - start


def write_plan(sink: Sink, plan: TensorPlan) -> None:
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
    header = _dense_header(element, dims, strides if order == "C" else strides[::-1], names, size)
    own = _metadata(element, as_metadata(metadata))
    checked = _checked(options)
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


def row_major(shape: Shape, itemsize: int) -> Shape:
    """The strides of elements that lie together in row-major order."""
    strides = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(strides[::-1])


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
    found = _next_message(cursor, limits)
    if found is None:
        raise InvalidData(f"{opened.name}: expected the message of a tensor, found the end of the stream")
    message, body, where = found
    if opened.data is not None and hasattr(source, "seek"):
        source.seek(cursor.position, os.SEEK_CUR)
    if message.kind not in _READERS:
        raise InvalidData(
            f"{where}: expected a Tensor or a SparseTensor message, found a {message.kind}; "
            "ipc.read_tensors finds tensors among other messages"
        )
    return _READERS[message.kind](message, body, where)


def read_tensors(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> Iterator[Any]:
    """All tensors of a source, one after another: an iterator, which reads a message when it comes to it.

    Messages of other kinds between them are passed over. The parameters and errors are those of :func:`read_tensor`.
    """
    return _read_all(_Cursor(Source(source, memory_map)), limits)


def _read_all(cursor: _Cursor, limits: Limits) -> Iterator[Any]:
    while (found := _next_message(cursor, limits)) is not None:
        message, body, where = found
        if message.kind in _READERS:
            yield _READERS[message.kind](message, body, where)


class _Cursor:
    """A place in a source, which moves on with what is taken from there."""

    __slots__ = ("_data", "_source", "name", "position")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._data = source.data
        self.name = source.name
        self.position = 0

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


def _next_message(cursor: _Cursor, limits: Limits) -> tuple[Message, Bytes, str] | None:
    """The next message, its body, and its place for errors; None at the end."""
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
        message = parse_metadata(cursor.take(prefix.metadata_size, f"the metadata at {start}"), where, limits)
        return message, cursor.take(message.body_length, f"the body of the message at {start}"), where


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


def place(buffer: Any, body: Bytes, what: str) -> tuple[int, int]:
    """Where a buffer starts and ends within the body."""
    if buffer is None:
        raise InvalidData(f"{what} has no buffer")
    offset, length = buffer.item() if buffer.shape == () else buffer
    if offset < 0 or length < 0 or offset + length > len(body):
        raise InvalidData(f"{what} needs [{offset}, {offset + length}) but the body has {len(body)} bytes")
    return offset, length


def check_reach(shape: Shape, strides: Shape, itemsize: int, length: int, what: str) -> None:
    """Check that no element of a view leaves its buffer."""
    if strides and min(strides) < 0:
        raise InvalidData(f"{what}: strides are at least 0, found {strides}")
    if 0 not in shape:
        reach = sum([(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]) + itemsize
        if reach > length:
            raise InvalidData(
                f"{what}: shape {shape} with strides {strides} reaches over {reach} bytes but the buffer has {length}"
            )


def _read_dense(message: Message, body: Bytes, where: str) -> Tensor:
    element, metadata = _element_of(message, where)
    dtype = element.dtype
    shape, names = _shape_of(message, where, dtype.itemsize)
    offset, length = place(message.header["data"], body, where)
    given = message.header["strides"]
    if given is None:
        strides = row_major(shape, dtype.itemsize)
    elif len(given) == len(shape):
        strides = tuple(given.tolist())
    else:
        raise InvalidData(f"{where}: {len(given)} strides for {len(shape)} dimensions")
    check_reach(shape, strides, dtype.itemsize, length, where)
    if 0 in shape:
        strides = row_major(shape, dtype.itemsize)
    return Tensor(np.ndarray(shape, dtype, body, offset, strides), element, names, metadata)


_READERS = {"Tensor": _read_dense}
