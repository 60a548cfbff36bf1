# SPDX-License-Identifier: Apache-2.0
"""Encoding of values, of this package, of Python and of other libraries.

Invariants:

* the exact size of an object is known before it is encoded, unless compressed, without copying values;
* pieces are views of the values; a table is encoded batch by batch as it is written;
* values round-trip with their type, or are rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import lru_cache, partial
from io import IOBase
from itertools import chain
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from shmarrow import capsules
from shmarrow.buffer import ALIGNMENT, PADDING, padded
from shmarrow.build import array
from shmarrow.columns import ChunkedArray, RecordBatch, RecordBatchReader, Table, read_chunked_array, read_record_batch
from shmarrow.columns.table import table
from shmarrow.errors import InvalidArgument, InvalidType, LimitExceeded, ShmarrowError, full_name, shown
from shmarrow.ipc.batch.encode import Locate, dictionaries_of
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.file.writer import RecordBatchFileWriter, encode_file
from shmarrow.ipc.message.encode import Payload
from shmarrow.ipc.options import DEFAULT_OPTIONS, IpcWriteOptions, as_options
from shmarrow.ipc.schema.encode import EncodedSchema, encode_schema, schema_message
from shmarrow.ipc.schema.lazy import schema_in
from shmarrow.ipc.stream.writer import RecordBatchStreamWriter
from shmarrow.ipc.tensor.bundle import Bundle, NamedTensors, write_tensors
from shmarrow.ipc.tensor.writer import checked_options, dense_message, encode_dense, encode_tensor
from shmarrow.layout import Array
from shmarrow.memory import Sink
from shmarrow.objects.kinds import COLUMN, KIND, MARKS, NUMBERS, unmarked
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.tensor.convert import as_tensor, may_be_tensor
from shmarrow.tensor.element import Element, as_storage
from shmarrow.types import DataType, ExtensionType, Field, Metadata, Schema, as_metadata, types_in, uint8
from shmarrow.types.arguments import as_utf8

_MOST_PIECES, _GROUP = 256, 1 << 20


class Encoded(NamedTuple):
    """An encoded value.

    Attributes
    ----------
    kind : str
        The kind; see :class:`Description`.
    size : int or None
        Total size; None if compressed.
    parts : iterable of list of bytes-like
        The bytes, in lists of bytes-like pieces to write together; a small value is one list. To be iterated once.
        The pieces are views of the value, which must not change until they are written.
    columns : iterable of Array
        The columns of all batches, for rows without compression.
    """

    kind: str
    size: int | None
    parts: Iterable[list[Any]]
    columns: Iterable[Array] = ()


def encode(value: Any, options: IpcWriteOptions | None = None, locate: Locate | None = None) -> Encoded:
    """Encode a value as one Arrow object.

    Parameters
    ----------
    value : object
        A value of a kind listed in the package's docstring, or another library's RecordBatch, Table, array, Series,
        data frame, reader or tensor.
    options : IpcWriteOptions, optional
        Compression, alignment and framing.
    locate : callable, optional
        Says where buffers of rows lie that are not written; see :data:`shmarrow.ipc.batch.encode.Locate`.

    Raises
    ------
    InvalidType
        If it is not supported, or would be read back as another type.
    InvalidArgument
        If it is a string that cannot be encoded as UTF-8, an int of more than 64 bits, or a tensor with compression.
    CopyRequired
        If an array in a mapping of tensors has nulls.
    """
    encoder = _encoder_of(value)
    if encoder is None:
        return encode(accepted(value), options, locate)
    options = as_options(options)
    return encoder(value, options) if locate is None or encoder not in _ROWS else encoder(value, options, locate=locate)


def normalized(value: Any) -> Any:
    """The value, or what :func:`encode` makes of another library's, which may be possible only once."""
    return value if _encoder_of(value) else accepted(value)


def _encoder_of(value: Any) -> Callable[..., Encoded] | None:
    """The function that encodes a value of this package or of Python; None for other values."""
    encoder = _ENCODERS.get(value.__class__)
    if encoder is None:
        encoder = next((candidate for kind, candidate in _FAMILIES if isinstance(value, kind)), None)
        if encoder is _bundle and may_be_tensor(value):  # as scipy's dok_array, which is a dict
            return None
    return encoder


# --- rows -------------------------------------------------------------------------------------------------------


class _Recorder(Sink):
    """A sink that buffers pieces in memory."""

    def __init__(self) -> None:
        self.name = "an object"
        self.size = 0
        self.parts: list[Iterable[Any]] = []

    def write(self, pieces: Iterable[Any]) -> int:
        part = list(pieces)
        size = sum(map(len, part))
        self.parts.append(part)
        self.size += size
        return size

    def write_each(self, pieces: Iterable[Any], size: int) -> None:
        self.parts.append(pieces)
        self.size += size

    def take(self) -> Iterator[Any]:
        """Take all pieces since the last call."""
        parts, self.parts = self.parts, []
        return chain.from_iterable(parts)


def _batch(
    batch: RecordBatch, options: IpcWriteOptions, kind: str = "record_batch", locate: Locate | None = None
) -> Encoded:
    return _file(batch.schema, batch, options, kind, locate) or _tables(
        Table(batch.schema, [batch]), options, kind, locate
    )


def _table(table: Table, options: IpcWriteOptions, kind: str = "table", locate: Locate | None = None) -> Encoded:
    only = _file(table.schema, table.batches[0], options, kind, locate) if len(table.batches) == 1 else None
    return only or _tables(table, options, kind, locate)


def _file(
    schema: Schema, batch: RecordBatch, options: IpcWriteOptions, kind: str, locate: Locate | None
) -> Encoded | None:
    """Encode a batch that is an object by itself; None if it has dictionaries or is compressed."""
    columns = batch.columns
    for column in columns:
        if column._children:
            check_readable(encode_schema(schema, options))
            break
    if options.compression is not None:
        return None
    encoded = encode_file(schema, columns, batch.num_rows, batch.metadata, options, MARKS.get(kind), locate)
    if encoded is None:
        return None
    pieces, size = encoded
    return Encoded(kind, size, (pieces,), columns)


def _tables(table: Table, options: IpcWriteOptions, kind: str, locate: Locate | None) -> Encoded:
    """Encode batches one by one."""
    metadata = MARKS.get(kind)
    if any(field.type.fields for field in table.schema.fields):
        check_readable(encode_schema(table.schema, options))
    as_file = _one_dictionary_each(table)
    own: Metadata | None = None if as_file else (metadata or {})  # a stream can only store it in its batches

    def write(sink: Sink) -> Iterator[None]:
        """Write the object, yielding after each batch."""
        if as_file:
            writer: Any = RecordBatchFileWriter(sink, table.schema, options, metadata)
        else:
            writer = RecordBatchStreamWriter(sink, table.schema, options)
        writer._locate = locate
        with writer:
            for batch in table.batches:
                writer.write_batch(batch, None if own is None else {**unmarked(batch.metadata), **own})
                yield
        yield

    def parts() -> Iterator[list[Any]]:
        sink = _Recorder()
        for _ in write(sink):
            yield list(sink.take())

    if options.compression is not None:
        return Encoded(kind, None, parts())
    sink, is_small = _Recorder(), True
    for _ in write(sink):
        if len(table.batches) > 1 and sink.size > _GROUP:  # what is as large is encoded again, batch by batch
            sink.parts, is_small = [], False
    columns = chain.from_iterable(batch.columns for batch in table.batches)
    return Encoded(kind, sink.size, _groups(sink.take()) if is_small else parts(), columns)


def _one_dictionary_each(table: Table) -> bool:
    """Whether all batches have the same dictionaries, as required in a file."""
    if len(table.batches) < 2:
        return True
    first, *others = [dictionaries_of(batch.columns) for batch in table.batches]
    return all(
        one is other or one.equals(other)
        for dictionaries in others
        for one, other in zip(first, dictionaries, strict=True)
    )


def _array(values: Array, options: IpcWriteOptions, locate: Locate | None = None) -> Encoded:
    check_type(values.type)
    return _batch(_as_batch(values), options, "array", locate)


def _chunked_array(values: ChunkedArray, options: IpcWriteOptions, locate: Locate | None = None) -> Encoded:
    check_type(values.type)
    table = Table(_schema_of(values.type), list(map(_as_batch, values.chunks)))
    return _table(table, options, "chunked_array", locate)


def _as_batch(values: Array) -> RecordBatch:
    """Make a batch with an array as its only column."""
    return RecordBatch(_schema_of(values.type), len(values), [values])


def _schema_of(type: DataType) -> Schema:
    return Schema([Field(COLUMN, type)])


# --- tensors ----------------------------------------------------------------------------------------------------


def _tensor(tensor: Tensor | SparseTensor, options: IpcWriteOptions) -> Encoded:
    if tensor.metadata and KIND in tensor.metadata:  # read as a tensor from an object of another kind
        tensor = copy(tensor)
        tensor.metadata = as_metadata(unmarked(tensor.metadata))
    return _message("tensor" if isinstance(tensor, Tensor) else "sparse_tensor", encode_tensor(tensor, options))


def _ndarray(values: Any, options: IpcWriteOptions, kind: str = "ndarray") -> Encoded:
    check_ndarray(values)
    if values.__class__ is not np.ndarray or min(values.strides, default=0) < 0:
        tensor = Tensor.from_numpy(values)
        storage, element = tensor.storage, tensor._element
    else:
        storage, element = as_storage(values, None)
    return _message(kind, encode_dense(storage, element, (), MARKS[kind], checked_options(options)))


def _bytes(value: bytes | bytearray, options: IpcWriteOptions) -> Encoded:
    return _flat(value.__class__.__name__, _BYTE, value, 1, options)


def _str(value: str, options: IpcWriteOptions) -> Encoded:
    return _flat("str", _BYTE, as_utf8(value, "a str"), 1, options)


def _number(value: Any, options: IpcWriteOptions) -> Encoded:
    kind, type = value.__class__.__name__, 0
    if kind == "bool":
        data = bytes([value])
    elif kind == "float":
        data = struct.pack("<d", value)
    elif -(1 << 63) <= value < 1 << 63:
        data = struct.pack("<q", value)
    elif 0 <= value < 1 << 64:
        data, type = struct.pack("<Q", value), 1
    else:
        raise InvalidArgument(f"an int must be from -2**63 to 2**64 - 1, found {shown(value)}; put str(value)")
    return _flat(kind, _ELEMENTS[kind][type], data, len(data), options)


def _flat(kind: str, element: Element, data: bytes | bytearray, itemsize: int, options: IpcWriteOptions) -> Encoded:
    """Encode bytes as a tensor of one dimension."""
    size = len(data)
    shape, strides = (size // itemsize,), (itemsize,)
    message = dense_message(element, shape, strides, (), size, MARKS[kind], checked_options(options))
    return Encoded(kind, len(message) + padded(size), ([message, data, PADDING[: -size % ALIGNMENT]],))


_BYTE = Element(uint8())
_ELEMENTS = {kind: [Element(type) for type in types] for kind, types in NUMBERS.items()}


def _message(kind: str, payload: Payload) -> Encoded:
    message, pieces, size = payload
    if pieces.__class__ is list:
        return Encoded(kind, len(message) + size, ([message, *pieces],))
    return Encoded(kind, len(message) + size, _groups(chain([message], pieces)))


def _memoryview(value: memoryview, options: IpcWriteOptions) -> Encoded:
    try:
        return _ndarray(np.asarray(value), options, "memoryview")
    except (InvalidType, ValueError) as error:
        raise InvalidType(f"a memoryview of format {value.format!r}: {error}; value.cast('B') has its bytes") from None


def _bundle(tensors: Mapping[str, Any], options: IpcWriteOptions) -> Encoded:
    check_mapping(tensors)
    sink = _Recorder()
    write_tensors(tensors, sink, tensors.metadata if isinstance(tensors, (Bundle, NamedTensors)) else None, options)
    return Encoded("bundle", sink.size, _groups(sink.take()))


def _groups(pieces: Iterable[Any]) -> Iterator[list[Any]]:
    """Group pieces into lists worth one write each."""
    group: list[Any] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += len(piece)
        if size >= _GROUP or len(group) >= _MOST_PIECES:
            yield group
            group, size = [], 0
    if group:
        yield group


_ROWS = (_batch, _table, _array, _chunked_array)
_FAMILIES: tuple[tuple[Any, Callable[..., Encoded]], ...] = (
    (RecordBatch, _batch),
    (Table, _table),
    (Array, _array),
    (ChunkedArray, _chunked_array),
    ((Tensor, SparseTensor), _tensor),
    ((np.ndarray, np.generic), _ndarray),
    (Mapping, _bundle),
)
_ENCODERS: dict[Any, Callable[..., Encoded]] = {
    np.ndarray: _ndarray,
    RecordBatch: _batch,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _memoryview,
    str: _str,
    **dict.fromkeys((int, float, bool), _number),
}


# --- values of other libraries, and errors for the rest ---------------------------------------------------------


def accepted(value: Any) -> Any:
    """Convert another library's value, or one of a less common class, to a shmarrow value.

    Raises
    ------
    InvalidType
        If it is not supported.
    """
    try:
        read = _reader(value, full_name(value))
    except ShmarrowError:
        raise
    except Exception as error:  # attribute access on arbitrary objects may raise anything
        text = f"a store accepts data, found {full_name(value)}, which raises {type(error).__name__}: {error}"
        raise InvalidType(text, hint=_instead(value)) from error
    return read()


def _reader(value: Any, name: str) -> Callable[[], Any]:
    """The function that reads a value."""
    if isinstance(value, (RecordBatchReader, RecordBatchFileReader)) or capsules.is_frame(value):
        return partial(table, value)
    if type(value).__name__ == "RecordBatch" and capsules.has_data(value):
        return partial(read_record_batch, value)
    step = None if capsules.has_data(value) else capsules.next_step(value)
    if step:
        raise InvalidType(f"a store accepts data, found {name}", hint=step)
    if (
        capsules.is_column(value)
        and (name.endswith(("Array", "Series")) or not capsules.has_stream(value))
        and _is_long(value)
    ):
        _check_index(value)
        return partial(read_chunked_array, value) if name.endswith(".ChunkedArray") else partial(array, value)
    if capsules.has_data(value):
        return partial(_rows, value)
    try:
        tensor = as_tensor(value)
    except InvalidType as error:
        reason = f": {error.message}" if may_be_tensor(value) else ""
        raise InvalidType(
            "a store accepts a RecordBatch, a Table, a data frame, an Array, a Series, a ChunkedArray, a tensor, an "
            f"ndarray, a mapping of names to tensors, bytes, a str, a number or a bool, found {name}{reason}",
            hint=_instead(value) or error.hint,
        ) from None
    return lambda: tensor


def _rows(value: Any) -> Any:
    try:
        return table(value)
    except InvalidType:  # it is a stream of a single column
        return read_chunked_array(value)


def _is_long(value: Any) -> bool:
    return hasattr(type(value), "__len__")


def _instead(value: Any) -> str | None:
    """The hint that says what to put instead of an unsupported value."""
    for kinds, step in _INSTEAD:
        if isinstance(value, kinds):
            return step
    if (
        isinstance(value, (list, tuple))
        and value
        and (isinstance(value[0], RecordBatch) or hasattr(value[0], "columns"))
    ):
        return "put shmarrow.table(batches)"
    for cls in (str, bytes, bytearray, int, float):  # subclasses would come back as another class
        if isinstance(value, cls):
            return f"{cls.__name__}(value) is kept as such"
    method = next((name for name in ("state_dict", "as_py") if hasattr(type(value), name)), "")
    if method:
        return f"put value.{method}()"
    with suppress(Exception):
        memoryview(value)
        return "put memoryview(value)"
    if isinstance(value, Collection):
        return "put shmarrow.array(values)"
    with suppress(Exception):
        array([value])
        return "put shmarrow.array([value])"
    return None


_INSTEAD: tuple[tuple[Any, str], ...] = (
    ((PathLike, IOBase), "put_file(name, path) stores an Arrow file"),
    (Iterator, "put shmarrow.table(batches), or shmarrow.array(values)"),
)


def check_mapping(value: Mapping[Any, Any]) -> None:
    """Reject a mapping of columns or scalars, which is not a bundle of tensors."""
    for key, each in value.items() if type(value) is dict else ():
        rows = isinstance(each, (list, tuple))
        if rows or (
            isinstance(each, (str, bytes, int, float, Mapping, type(None))) and not isinstance(each, np.generic)
        ):
            step = "put shmarrow.table(mapping) to keep columns" if rows else "put json.dumps(mapping), which is a str"
            text = f"a store keeps a mapping as a bundle of tensors, found {full_name(each)} for {shown(key)}"
            raise InvalidType(text, hint=f"{step}, or ndarrays as values")


def check_ndarray(value: Any) -> None:
    """Reject an ndarray with nulls or unsupported elements."""
    if isinstance(value, (str, bytes)):
        raise InvalidType(f"a store accepts data, found {full_name(value)}", hint=_instead(value))
    if _has_no_tensor(value.dtype) or isinstance(value, np.ma.MaskedArray):
        raise InvalidType(
            f"a store keeps an ndarray as a tensor, which has numbers and no nulls, found {full_name(value)} of "
            f"{value.dtype}",
            hint="put shmarrow.array(values) instead",
        )


@lru_cache(256)
def _has_no_tensor(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype cannot be a tensor's: objects, strings, structs, time units such as hours."""
    kind = dtype.kind
    if kind in "Mm":
        return np.datetime_data(dtype) not in _UNITS[kind]
    return kind in "OSTU" or dtype.names is not None


_UNITS = {"m": [(unit, 1) for unit in ("s", "ms", "us", "ns")]}
_UNITS["M"] = [("D", 1), *_UNITS["m"]]


def check_type(type: DataType) -> None:
    """Reject types that would be read back as another type, as extension types are only identified by name."""
    if not any(isinstance(each, ExtensionType) for each in types_in(type)):
        return
    read_type = _as_read(Field(COLUMN, type)).type
    if read_type != type:
        raise InvalidType(
            f"an array of {type} would come back as one of {read_type}; "
            "register the type with shmarrow.register_extension_type, or put a batch, which keeps its name"
        )


def _as_read(field: Field) -> Field:
    """The field as read back from its message."""
    return _read(encode_schema(Schema([field]), DEFAULT_OPTIONS)).field(0)


def _read(encoded: EncodedSchema) -> Schema:
    """A schema as read back from its message."""
    return schema_in(np.frombuffer(schema_message(encoded, DEFAULT_OPTIONS), np.uint8), "schema")


@lru_cache(256)
def check_readable(encoded: EncodedSchema) -> None:
    """Reject nested types that readers refuse by default, as those that nest too deep."""
    try:
        _ = _read(encoded).fields
    except LimitExceeded as error:
        raise InvalidType(
            f"a store keeps what it can give back: {error.message}", hint="write a file, and read it with other Limits"
        ) from None


def _check_index(value: Any) -> None:
    """Reject a pandas Series with a non-positional index."""
    index = getattr(value, "index", None)
    if hasattr(index, "equals") and not np.array_equal(np.asarray(index), np.arange(len(value))):
        raise InvalidType(
            "a store does not keep the index of a Series: put shmarrow.array(series), or a pyarrow.Table of both"
        )
