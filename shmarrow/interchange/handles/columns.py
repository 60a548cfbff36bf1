# SPDX-License-Identifier: Apache-2.0
"""Serialization of arrays, batches and tables in handles, as references to objects and offsets in them.

Invariants:

* a batch of a file or stream is stored as its index: its handle is as small for 10,000 columns as for one, and the
  receiver reads only the columns it uses. The same applies to its slices and selections of columns;
* other arrays are stored as nodes and buffers, in the order of the buffer listing, as in a record batch message;
* opened arrays are validated as by a reader: bounds and structure before the first view.

An object whose handle cannot be opened is a placeholder, which raises the error when it is used: an error during
unpickling ends the thread or process that receives messages, and with it a whole pool. So the error is raised in the
task, or the caller, that the object was meant for.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.columns import ChunkedArray, ColumnView, RecordBatch, Table, fields_at
from shmarrow.errors import InvalidArgument, InvalidData, ShmarrowError, at, printable, shown
from shmarrow.interchange.handles.objects import HandleObjects, Locator, whole
from shmarrow.ipc.batch.decode import ArrayLoader
from shmarrow.ipc.contents import contents
from shmarrow.ipc.file.footer import as_blocks
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.options import DEFAULT_OPTIONS
from shmarrow.ipc.schema.encode import encode_schema, schema_message
from shmarrow.ipc.schema.lazy import schema_in
from shmarrow.ipc.tensor.bundle import Bundle
from shmarrow.layout import Array
from shmarrow.layout.listing import DATA, LISTING, BufferSpec
from shmarrow.layout.parts import Node, Parts, assemble, take_apart
from shmarrow.memory import Segment, Source, open_source
from shmarrow.memory.split import FILE_STRIDE
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.types import DataType, Field, Metadata, Schema, storage_of

_CLASSES = (Array, Bundle, ChunkedArray, RecordBatch, SparseTensor, Table, Tensor)


class Unavailable:
    """Placeholder for an object that was removed, replaced or unreachable when it was received.

    Parameters
    ----------
    kind : str
        Kind of its handle.
    error : ShmarrowError
        Why the handle cannot be opened. Any use of the placeholder raises it; ``repr`` shows it.
    """

    __slots__ = ("_error", "_kind")

    def __init__(self, kind: str, error: ShmarrowError) -> None:
        self._kind = kind
        self._error = error

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise copy.copy(self._error)  # a new one each time, as callers add to it

    def __getattr__(self, name: str) -> Any:
        """Raise for methods when they are called, as a bound method may be part of a message; for all else at once."""
        of_classes = [getattr(cls, name) for cls in _CLASSES if hasattr(cls, name)]
        if not any(map(callable, of_classes)) and (name.startswith("__") or of_classes):
            self._refuse()
        return self._refuse

    def __reduce__(self) -> tuple[object, ...]:
        return Unavailable, (self._kind, self._error)

    def __repr__(self) -> str:
        return f"<{self._kind.replace('_', ' ')}, not available: {printable(str(self._error))}>"

    __hash__ = None  # type: ignore[assignment]


_SPECIAL = """
    array arrow_c_array arrow_c_schema arrow_c_stream bool contains dlpack dlpack_device enter eq exit getitem iter len
"""
for _name in _SPECIAL.split():
    setattr(Unavailable, f"__{_name}__", Unavailable._refuse)


NODE, BUFFER = 4, 2
_MISSING = -1


class BatchesOfFile(NamedTuple):
    """Consecutive batches of a file or a stream.

    Attributes
    ----------
    ref : int
        The number of the file among the handle's objects.
    first, number : int
        The index of the first batch, and the number of batches.
    columns : tuple of int or None
        The indices of the columns; None for all.
    offset, length : int
        The rows of each batch; a length of -1 means all.
    """

    ref: int
    first: int
    number: int
    columns: tuple[int, ...] | None
    offset: int
    length: int


class PackedArrays(NamedTuple):
    """Arrays of equal length.

    Attributes
    ----------
    length : int
        The length of each.
    nodes : bytes
        For each array, then its children, then its dictionary: length, null count, offset and number of buffers, int64.
    buffers : bytes
        For each buffer: its place, see :mod:`shmarrow.memory.split`, and size, int64; -1 and 0 for an absent buffer.
    metadata : tuple of pairs of bytes
        The metadata of the batch.
    """

    length: int
    nodes: bytes
    buffers: bytes
    metadata: tuple[tuple[bytes, bytes], ...]


class PackedBatches(NamedTuple):
    """A sequence of batches, or of arrays.

    Attributes
    ----------
    schema : bytes or None
        The Schema message; None if it is the file's, restricted to the selected columns.
    pieces : tuple of BatchesOfFile or PackedArrays
        The batches.
    """

    schema: bytes | None
    pieces: tuple[BatchesOfFile | PackedArrays, ...]


# --- schemas ----------------------------------------------------------------------------------------------------


def schema_bytes(schema: Schema) -> bytes:
    """Encode a schema as a Schema message.

    Raises
    ------
    InvalidArgument
        If it does not round-trip: extension types are looked up by name, so they must be registered.
    """
    data = schema_message(encode_schema(schema, DEFAULT_OPTIONS), DEFAULT_OPTIONS)
    if schema_of(data) != schema:
        raise InvalidArgument(
            "cannot make a handle: the schema has an extension type that is not registered, so opening the handle "
            "would return its storage; register it with shmarrow.register_extension_type in all processes"
        )
    return data


def schema_of(data: object) -> Schema:
    """Decode a Schema message."""
    if not isinstance(data, bytes):
        raise InvalidData(f"a damaged handle: expected a schema as bytes, found {shown(data)}")
    return schema_in(np.frombuffer(data or b"\0", np.uint8), "a damaged handle")


# --- files ------------------------------------------------------------------------------------------------------


class _Numbers:
    """An index from body offset to batch, for a file or stream that is opened again."""

    def __init__(self, data: Bytes) -> None:
        self.reader: Any = contents(Source("a mapped file", data, mapped=True)).content
        self.schema: Schema = self.reader._full_schema
        self._starts: Any = None
        self._order: Any = None
        if isinstance(self.reader, RecordBatchFileReader):
            found = as_blocks(self.reader._opened().footer.batches)
            self._starts = found["offset"] + found["metaDataLength"]
            if (self._starts[1:] < self._starts[:-1]).any():
                self._order = np.argsort(self._starts)

    def number(self, start: int) -> int | None:
        """Return the index of the batch whose body starts at ``start``, or None."""
        if self._starts is None:
            return self._number_in_stream(start)
        at = int(np.searchsorted(self._starts, start, sorter=self._order))
        if at == len(self._starts):
            return None
        number = at if self._order is None else int(self._order[at])
        return number if int(self._starts[number]) == start else None

    def _number_in_stream(self, start: int) -> int | None:
        batches = self.reader._opened()
        number = 0
        while batches.reach(number):
            body = batches.indexed[number].body
            if body >= start:
                return number if body == start else None
            number += 1
        return None


# --- to handles -------------------------------------------------------------------------------------------------


class ColumnWriter:
    """Makes the pieces of one handle."""

    def __init__(self, locator: Locator) -> None:
        self._locator = locator
        self._files: dict[int, _Numbers | None] = {}
        self._fits: dict[tuple[int, tuple[int, ...] | None], bool] = {}
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def batches(self, schema: Schema, batches: Sequence[RecordBatch]) -> PackedBatches:
        """Serialize batches of one schema; their metadata may differ."""
        pieces: list[BatchesOfFile | PackedArrays] = []
        own = not batches
        for batch in batches:
            piece = self._in_file(batch)
            if piece is None:
                own = True
                pieces.append(self._packed(batch.columns, batch.num_rows, batch.metadata))
                continue
            own = own or not self._has_schema(piece, schema)
            last = pieces[-1] if pieces else None
            if isinstance(last, BatchesOfFile) and _follows(last, piece):
                pieces[-1] = last._replace(number=last.number + 1)
            else:
                pieces.append(piece)
        return PackedBatches(schema_bytes(schema) if own else None, tuple(pieces))

    def arrays(self, type: DataType, arrays: Sequence[Array]) -> PackedBatches:
        """Serialize arrays of one type, as batches of one column."""
        schema = Schema([Field("values", type)])
        return self.batches(schema, [RecordBatch(schema, len(array), [array]) for array in arrays])

    def _in_file(self, batch: RecordBatch) -> BatchesOfFile | None:
        """Serialize a batch by its index in a file or stream; None if it is in neither."""
        base, columns, offset, length = batch, None, 0, -1
        view = batch._source
        if isinstance(view, ColumnView):
            if view.own:
                return None
            base, columns = view.batch, view.indices
            if (view.offset, view.length) != (0, base.num_rows):
                offset, length = view.offset, view.length
        loader = base._source
        body = getattr(loader._body, "own", loader._body) if isinstance(loader, ArrayLoader) else None
        if not isinstance(body, np.ndarray):
            return None
        place = self._locator.find(body)
        if place is None:
            return None
        ref, start = divmod(place, FILE_STRIDE)
        file = self._file(ref, body)
        number = None if file is None else file.number(start)
        if number is None:
            return None
        if columns is not None:
            columns = self._known.setdefault(tuple(columns), tuple(columns))
        return BatchesOfFile(ref, number, 1, columns, offset, length)

    def _file(self, ref: int, body: Any) -> _Numbers | None:
        if ref not in self._files:
            try:
                self._files[ref] = _Numbers(whole(body))
            except ShmarrowError:  # an Arrow file within another one, or one that was read with other limits
                self._files[ref] = None
        return self._files[ref]

    def _has_schema(self, piece: BatchesOfFile, schema: Schema) -> bool:
        """Whether the batch read from the file has this schema, so that the handle need not store it."""
        key = piece.ref, piece.columns
        fits = self._fits.get(key)
        if fits is None:
            file = self._files[piece.ref]
            assert file is not None
            expected = file.schema if piece.columns is None else fields_at(file.schema, piece.columns)
            fits = self._fits[key] = schema.equals(expected, check_metadata=True)
        return fits

    def _packed(self, arrays: Sequence[Array], length: int, metadata: Metadata | None) -> PackedArrays:
        nodes: list[int] = []
        buffers: list[int] = []
        for part in take_apart(arrays, trim=False, dictionaries=True):
            nodes += (part._length, part._null_count, part._offset, len(part._buffers))
            for data in part._buffers:
                buffers += (_MISSING, 0) if data is None else self._locator.buffer(data)
        pairs = tuple((metadata or {}).items())
        return PackedArrays(length, np.array(nodes, "<i8").tobytes(), np.array(buffers, "<i8").tobytes(), pairs)


def _follows(last: BatchesOfFile, piece: BatchesOfFile) -> bool:
    """Whether a piece can be merged into the previous one."""
    return (
        last.length < 0
        and piece == last._replace(first=last.first + last.number, number=1)
        and piece.columns is last.columns
    )


# --- from handles -----------------------------------------------------------------------------------------------


def open_batches(content: object, memory: HandleObjects) -> tuple[Schema, list[RecordBatch]]:
    """Return the schema and the batches of a handle."""
    if not isinstance(content, PackedBatches) or not isinstance(content.pieces, tuple):
        raise InvalidData(f"a damaged handle: expected batches, found {shown(content)}")
    schema = None if content.schema is None else schema_of(content.schema)
    readers: dict[int, Any] = {}
    batches: list[RecordBatch] = []
    for piece in content.pieces:
        if isinstance(piece, BatchesOfFile):
            batches += _from_file(piece, memory, readers)
        elif isinstance(piece, PackedArrays) and schema is not None:
            _check_length(piece.length)
            columns = _unpacked(piece, [field.type for field in schema], memory)
            batches.append(RecordBatch(schema, piece.length, columns, metadata=dict(piece.metadata)))
        else:
            raise InvalidData(f"a damaged handle: expected batches, found {shown(piece)}")
    if schema is None:
        if not batches:
            raise InvalidData("a damaged handle: neither a schema nor batches")
        return batches[0].schema, batches
    for i, batch in enumerate(batches):
        if batch._schema is not schema:
            if batch._schema.types != schema.types:
                raise InvalidData(f"a damaged handle: its schema does not fit batch {i}")
            batches[i] = batch._with_schema(schema)
    return schema, batches


def open_arrays(content: object, memory: HandleObjects) -> ChunkedArray:
    """Return the arrays of a handle, which are batches of one column."""
    table = Table(*open_batches(content, memory))
    if table.num_columns != 1:
        raise InvalidData(f"a damaged handle: expected arrays, found {table.num_columns} columns")
    return table.column(0)


def _check_length(length: object) -> None:
    if not isinstance(length, int) or length < 0:
        raise InvalidData(f"a damaged handle: expected a number of rows, found {shown(length)}")


def _from_file(piece: BatchesOfFile, memory: HandleObjects, readers: dict[int, Any]) -> Iterator[RecordBatch]:
    columns = () if piece.columns is None else piece.columns
    if (
        not all(isinstance(number, int) for number in (piece.first, piece.number, piece.offset, piece.length, *columns))
        or min(piece.first, piece.number, piece.offset, piece.length + 1) < 0
        or (piece.length < 0 and piece.offset)
    ):
        raise InvalidData(f"a damaged handle: expected batches of a file, found {shown(piece)}")
    reader = readers.get(piece.ref)
    if reader is None:
        segment: Segment = memory.segment(piece.ref)
        reader = readers[piece.ref] = contents(open_source(segment)).content
    for number in range(max(piece.first, 0), piece.first + piece.number):
        batch: RecordBatch = reader.get_batch(number)
        if piece.columns is not None:
            batch = batch.select(piece.columns)
        if piece.length >= 0:
            if piece.offset < 0 or piece.offset > batch.num_rows - piece.length:
                raise InvalidData(
                    f"a damaged handle: rows [{piece.offset}, {piece.offset + piece.length}) of batch {number}, which "
                    f"has {batch.num_rows}"
                )
            batch = batch.slice(piece.offset, piece.length)
        yield batch


def _unpacked(piece: PackedArrays, types: Sequence[DataType], memory: HandleObjects) -> list[Array]:
    nodes, buffers = iter(_numbers(piece.nodes, NODE)), iter(_numbers(piece.buffers, BUFFER))
    arrays = [assemble(_PackedParts(type, nodes, buffers, memory)) for type in types]
    if next(nodes, None) is not None or next(buffers, None) is not None:
        raise InvalidData("a damaged handle: more arrays or buffers than its types need")
    for array in arrays:
        if len(array) != piece.length:
            raise InvalidData(f"a damaged handle: an array of {len(array)} values, expected {piece.length}")
    return arrays


def _numbers(data: object, width: int) -> list[list[int]]:
    if not isinstance(data, bytes) or len(data) % (8 * width):
        raise InvalidData(f"a damaged handle: expected rows of {width} int64, found {shown(data)}")
    return np.frombuffer(data, "<i8").reshape(-1, width).tolist() if data else []


class _PackedParts(Parts):
    """The parts of the next array of a piece; its children and dictionary come after it."""

    where = "a damaged handle"

    def __init__(
        self, type: DataType, nodes: Iterator[list[int]], buffers: Iterator[list[int]], memory: HandleObjects
    ) -> None:
        self.type = type
        self._nodes = nodes
        self._buffers = buffers
        self._memory = memory
        self._variadic = 0

    def node(self) -> Node:
        length, null_count, offset, count = next(self._nodes, (0, 0, 0, -1))
        listed = LISTING[self.type.layout]
        self._variadic = count - len(listed.buffers)
        if self._variadic < 0 or (self._variadic and not listed.variadic):
            raise InvalidData(f"a damaged handle: {self.type} with {count} buffers, expected {len(listed.buffers)}")
        return Node(length, null_count, offset)

    def buffer(self, spec: BufferSpec) -> Bytes | None:
        place, size = next(self._buffers, (_MISSING - 1, 0))
        if place < _MISSING:
            raise InvalidData(f"a damaged handle: a buffer of {self.type} is missing")
        if place == _MISSING:
            if size:
                raise InvalidData(f"a damaged handle: an absent buffer of {self.type} has {size} bytes")
            return None
        with at("a damaged handle"):
            return self._memory.body[place : place + size]

    def variadic(self) -> list[Any]:
        return [self.buffer(DATA) for _ in range(self._variadic)]

    def child(self, index: int) -> Parts:
        return self._next(self.type.fields[index].type)

    def dictionary(self) -> Any:
        return assemble(self._next(storage_of(self.type).value_type))

    def _next(self, type: DataType) -> Parts:
        return _PackedParts(type, self._nodes, self._buffers, self._memory)
