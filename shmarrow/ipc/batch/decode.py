# SPDX-License-Identifier: Apache-2.0
"""Building arrays from record batches ("RecordBatch message"); ``encode`` is the inverse.

Invariants:

* opening a batch only creates views of its nodes and buffers. A column is built on first access, by
  :func:`~shmarrow.layout.parts.assemble` from the parts that :class:`ColumnParts` takes from the message one after
  another, and its structure is validated then: buffer bounds and sizes, child lengths, first and last offsets;
* where several columns are asked for, the buffers of all columns of numbers are found with a few array operations, with
  the same checks. This is the only other way in which columns are built;
* the state of building a column (cursor, decompressed buffers, remaining limits) is local to the operation. Caches of a
  batch derive from its metadata alone and are replaced atomically, so racing threads compute equal values.

Messages of one schema and writer differ in a few numbers, so those that were seen before are recognised as a whole:
then nothing of their FlatBuffer is parsed. The numbers are checked as those of any message: rows and length of the body
when they are read and against the bytes that there are, nodes and buffers when a column is built.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import EMPTY, U1, Bytes, Indices, Mask, NDArray
from shmarrow.columns import RecordBatch
from shmarrow.errors import DEFAULT_LIMITS, CopyRequired, InvalidData, LimitExceeded, Limits, ShmarrowError, at
from shmarrow.ipc.flatbuffers.reader import TableView, TracingReader
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.decode import LARGEST, Message, TemplateCache, parse_metadata
from shmarrow.ipc.schema.lazy import FieldLayout, LazySchema
from shmarrow.layout import make_array, nulls
from shmarrow.layout.listing import LISTING, BufferSpec, swapped, swapped_views, walk
from shmarrow.layout.parts import Parts, assemble
from shmarrow.memory.split import FILE_STRIDE
from shmarrow.types import Metadata, Schema

if TYPE_CHECKING:
    from shmarrow.memory import RangeBody


_PAIR = struct.Struct("<qq").unpack_from
_PAIR_SIZE = 16
_VECTORS = "nodes", "buffers"


class BatchHeader(NamedTuple):
    """The metadata of a record batch, or of the values of a dictionary.

    Attributes
    ----------
    length : int
        The number of rows.
    body_length : int
        Size of the message's body in bytes.
    nodes : bytes or memoryview
        Length and null count of each array, 16 bytes each.
    buffers : bytes or memoryview
        Offset and size of each buffer in the body, 16 bytes each.
    version : int
        The metadata version.
    codec : tuple of int or None
        The numbers of codec and method, if the buffers are compressed.
    variadic : int64 ndarray or None
        The numbers of data buffers of view arrays.
    metadata : mapping or None
        The message's custom metadata.
    """

    length: int
    body_length: int
    nodes: bytes | memoryview
    buffers: bytes | memoryview
    version: int
    codec: tuple[int, int] | None
    variadic: NDArray | None
    metadata: Metadata | None

    def variadic_counts(self, where: str) -> list[int]:
        """The numbers of data buffers of view arrays; InvalidData if the batch has not as many buffers."""
        counts: list[int] = [] if self.variadic is None else self.variadic.tolist()
        most = len(self.buffers) // _PAIR_SIZE
        if counts and (min(counts) < 0 or sum(counts) > most):
            raise InvalidData(f"{where}: variadic buffer counts {counts[:20]} do not match {most} buffers")
        return counts


def pairs(numbers: bytes | memoryview) -> Indices:
    """Nodes or buffers of a header as an array of shape (n, 2); a view."""
    return np.ndarray((len(numbers) // _PAIR_SIZE, 2), "<i8", numbers)


_header = partial(tuple.__new__, BatchHeader)
_KNOWN = TemplateCache()
"""All of a header but the numbers, by all of the metadata but the numbers."""


def read_message(metadata: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> BatchHeader | Message:
    """Read the metadata of a record batch; of a message of another kind, return the message itself."""
    if len(metadata) > LARGEST:
        message = parse_metadata(metadata, where, limits)
        return header_of(message, message.header, where) if message.kind == "RecordBatch" else message
    data = metadata.tobytes()
    recognized = _KNOWN.find(data, limits.tables)
    if recognized is not None:
        rest, numbers = recognized
        if numbers[0] >= 0 and numbers[1] >= 0:
            return _header((*numbers, *rest))
    message = parse_metadata(np.frombuffer(data, U1), where, limits, TracingReader)
    if message.kind != "RecordBatch":
        return message
    table, tracer = message.header, message.table.reader
    header = header_of(message, table, where)
    assert isinstance(tracer, TracingReader)
    holes = [(table.offset_of("length"), "q"), (message.table.offset_of("bodyLength"), "q")]
    vectors = [table.vector_of(slot, _PAIR_SIZE) for slot in _VECTORS]
    holes += [(start, f"{_PAIR_SIZE * count}s") for start, count in vectors]
    if all(place for place, _ in holes):
        _KNOWN.add(data, holes, tracer.reads, header[4:], limits.tables)
    return header


def not_a_batch(message: Message, where: str) -> InvalidData:
    """The error for a message of another kind."""
    return InvalidData(f"{where} is a {message.kind} message, expected a RecordBatch")


def header_of(message: Message, table: TableView, where: str) -> BatchHeader:
    """Read a RecordBatch table of a message; nodes and buffers are views."""
    length = table["length"]
    if length < 0:
        raise InvalidData(f"{where}: the batch declares {length} rows")
    view, vectors = table.reader.view, [table.vector_of(slot, _PAIR_SIZE) for slot in _VECTORS]
    nodes, buffers = [view[start : start + _PAIR_SIZE * count] for start, count in vectors]
    codec = table["compression"]
    return BatchHeader(
        length,
        message.body_length,
        nodes,
        buffers,
        message.version,
        None if codec is None else (codec["codec"], codec["method"]),
        table["variadicBufferCounts"],
        message.custom_metadata,
    )


_V4 = ENUMS["MetadataVersion"]["V4"]
_UNIONS = ("dense_union", "sparse_union")
_SEVERAL, _MANY = 4, 12
"""Columns asked for one by one, or together, from which on it is worthwhile to find those of numbers at once."""
_SMALL = 1 << 17
"""Maximum rows of a batch whose columns may be decompressed for display."""


class Dictionaries(Protocol):
    """Dictionaries by id, as of when a batch was read."""

    def get(self, id: int, /) -> Any:
        """The dictionary of an id; None if there is none."""


def open_batch(
    message: BatchHeader | Message,
    body: Any,
    schema: Schema,
    dictionaries: Dictionaries,
    where: str,
    limits: Limits,
) -> RecordBatch:
    """Open a record batch over the body of its message; columns are built on access.

    Parameters
    ----------
    message : BatchHeader
        The metadata; InvalidData if it is a message of another kind.
    body : uint8 ndarray or RangeBody
        The body, in memory or read by ranges.
    """
    if isinstance(message, Message):
        raise not_a_batch(message, where)
    source = schema._source
    assert isinstance(source, LazySchema)
    loader = ArrayLoader(message, body, source, dictionaries, where, limits)
    return RecordBatch(schema, message.length, source=loader, metadata=message.metadata)


def dictionary_body(
    message: Message, body: Bytes | RangeBody, schema: Schema, dictionaries: Any, where: str, limits: Limits
) -> tuple[ArrayLoader, int, bool]:
    """The values of a DictionaryBatch message, the dictionary's id, and whether it is a delta."""
    header = message.header
    data = header["data"]
    if data is None:
        raise InvalidData(f"{where}: a dictionary batch without data")
    source = LazySchema.of(schema)
    what = f"{where}: dictionary {header['id']}"
    content = ArrayLoader(header_of(message, data, what), body, source, dictionaries, what, limits)
    return content, header["id"], header["isDelta"]


class ArrayLoader:
    """Builds the columns of a record batch from its nodes, buffers and body.

    Parameters
    ----------
    header : BatchHeader
        The metadata.
    body : uint8 ndarray or RangeBody
        The message's body.
    schema : LazySchema
        The columns' layouts in the batch.
    dictionaries : mapping of int to Dictionary
        Dictionaries by id, as of when the batch was read.
    where : str
        Describes the batch in error messages.
    limits : Limits
        Bounds on what is accepted.

    Notes
    -----
    Thread safety: may be shared; each call builds new columns.
    """

    __slots__ = (
        "_asked", "_body", "_decompressor", "_dictionaries", "_direct", "_have", "_header",
        "_numbers", "_schema", "_size", "_unchecked", "_v4", "_variadic", "length", "where",
    )  # fmt: skip

    def __init__(
        self,
        header: BatchHeader,
        body: Bytes | RangeBody,
        schema: LazySchema,
        dictionaries: Dictionaries,
        where: str,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.where = where
        self._header = header
        self.length, _, _, buffers, version, codec, _, _ = header
        if len(buffers) > _PAIR_SIZE * limits.buffers:
            raise LimitExceeded(
                f"{where}: {len(buffers) // _PAIR_SIZE} buffers, more than Limits.buffers = {limits.buffers}"
            )
        self._body: Any = body
        self._have = getattr(body, "have", None)  # reads what is needed, and returns the body in memory
        self._size = len(body)
        self._unchecked = limits.unchecked  # the arrays' "validated" flag
        self._schema = schema
        self._dictionaries = dictionaries
        self._v4 = version == _V4
        self._decompressor: Any = None
        if codec is not None:
            from shmarrow.ipc.batch import codecs

            self._decompressor = codecs.decompressor(*codec, where, limits)
        # Whether arrays can be views of the body.
        self._direct = codec is None and self._have is None and not schema.big_endian
        self._asked = 0
        self._numbers: list[tuple[int, int, Any] | None] | None = None
        self._variadic: tuple[list[int], list[int]] | None = None

    @property
    def copies(self) -> str:
        """Why columns cannot be views of the body; empty if they can."""
        if self._decompressor is not None:
            return "is compressed"
        return "is big-endian" if self._schema.big_endian else ""

    def is_cheap(self, index: int) -> bool:
        return self._direct or (self._have is None and self.length <= _SMALL)

    def check(self, index: int) -> None:
        layout = self._schema.layout(index)
        for number in self._used(layout, self._start(index)):
            start, size = _PAIR(self._header.buffers, _PAIR_SIZE * number)
            if size and start % 8 and start < FILE_STRIDE:  # in the files of other objects, slices begin anywhere
                raise InvalidData(f"buffer {number} starts at {start} of the body, expected a multiple of 8")
        node = self._start(index)[0]
        for number, each in enumerate(walk([layout], lambda field: field.children), node):
            length, null_count = self.node(number)
            if each.type.layout == "null" and null_count != length:
                raise InvalidData(f"node {number} has {length} slots of type null, but a null count of {null_count}")

    def column(self, index: int) -> Any:
        """Build a column.

        Raises
        ------
        InvalidData
            If its nodes or buffers break the format.
        LimitExceeded
            If its buffers and its children's declare more than ``Limits.decompressed_bytes``.
        """
        self._asked += 1
        if self._numbers or self._asked > _SEVERAL:
            return self._columns([index], True)[0]
        return self._build(index)

    def columns(self, indices: Sequence[int] | None = None) -> list[Any]:
        """Build several columns, or all. Errors are those of :meth:`column`.

        They are fetched together and decompressed on several threads.
        """
        columns = range(len(self._schema)) if indices is None else indices
        return self._columns(columns, len(columns) > _MANY)

    def _columns(self, indices: Sequence[int], many: bool) -> list[Any]:
        if not self._direct:
            ready = None  # an error of one column alone says which
            if len(indices) > 1:
                with at(self.where):
                    ready = self._load([self._used(self._schema.layout(i), self._start(i)) for i in indices])
            return [self._build(index, ready) for index in indices]
        if many and self._numbers is None:
            self._numbers = self._find_numbers()
        numbers = self._numbers
        if not numbers:
            return [self._build(index) for index in indices]
        length, body = self.length, self._body
        arrays: list[Any] = []
        for index in indices:
            place = numbers[index]
            if place is None:
                arrays.append(self._build(index))
            else:
                start, stop, type = place
                arrays.append((type.array_class or make_array)(type, length, [None, body[start:stop]], 0))
        return arrays

    def values(self, layout: FieldLayout, at_most: int) -> Any:
        """Build the single column of a dictionary batch.

        Buffers that declare more than ``at_most`` decompressed bytes are rejected.
        """
        with at(self.where):
            ready = self._load([self._used(layout, (0, 0, 0))], at_most)
            column = assemble(ColumnParts(self, layout, [0, 0, 0], ready))
            if len(column) != self.length:
                raise InvalidData(f"{len(column)} values in a dictionary batch of {self.length} rows")
        return column

    def _build(self, index: int, ready: dict[int, Bytes] | None = None) -> Any:
        """Build a column of any type; ``ready`` holds its decompressed buffers."""
        layout = self._schema.layout(index)
        try:
            start = self._start(index)
            if ready is None:
                ready = {} if self._direct else self._load([self._used(layout, start)])
            column = assemble(ColumnParts(self, layout, [*start], ready))
            if column._length != self.length:
                raise InvalidData(f"{len(column)} values in a batch of {self.length} rows")
        except ShmarrowError as error:
            error.where = (self.where,), ("column", index, layout.field.name), *error.where
            raise
        return column

    # --- all columns of numbers at once ---

    def _find_numbers(self) -> list[tuple[int, int, Any] | None]:
        """Start and end in the body of the values of each column of primitive layout without nulls, and its type.

        None for other columns, which raise on their own access if they are invalid; empty if there are no such columns,
        or no telling where they begin. The values are complete and within the body.
        """
        try:
            starts, (types, widths) = self._schema.flat_starts(), self._schema.plain()
        except InvalidData:
            return []
        nodes, buffers = pairs(self._header.nodes), pairs(self._header.buffers)
        if starts is None or not self.length or len(nodes) < len(widths) or len(buffers) < starts[-1]:
            return []
        usable = (widths > 0) & (nodes[: len(widths)] == (self.length, 0)).all(axis=1)
        if not usable.any():
            return []
        begin, sizes = buffers[np.where(usable, starts[:-1] + 1, 0)].T
        usable &= (begin >= 0) & (begin <= self._size) & (sizes <= self._size - begin)
        usable &= sizes // np.maximum(widths, 1) >= self.length
        rows = zip(usable.tolist(), begin.tolist(), (begin + sizes).tolist(), types, strict=True)
        return [(start, end, type) if good else None for good, start, end, type in rows]

    # --- locating buffers ---

    def _start(self, index: int) -> tuple[int, int, int]:
        """Index of a column's first node, buffer and variadic count; the number of columns gives the totals."""
        node, buffer, variadic, bitmaps = self._schema.start(index)
        buffer += bitmaps * self._v4
        if variadic:
            ends = self.variadic_counts()[1]
            buffer += ends[min(variadic, len(ends) - 1)]
        return node, buffer, variadic

    def _used(self, layout: FieldLayout, start: tuple[int, int, int]) -> list[int]:
        """The buffers that an array which starts there needs: all of its own and its children's but unused validity."""
        node, buffer, variadic = start
        counts, _ = self.variadic_counts()
        buffers: list[int] = []
        nodes = pairs(self._header.nodes)
        for number, each in enumerate(walk([layout], lambda field: field.children), node):
            if number >= len(nodes):
                break
            listing, first = LISTING[each.type.layout], buffer
            buffer += len(listing.buffers) + (self._v4 and listing.v4_validity)
            if listing.variadic:
                buffer += counts[variadic] if variadic < len(counts) else 0
                variadic += 1
            buffers += range(first + (listing.has_validity and not nodes[number, 1]), buffer)
        return buffers

    def variadic_counts(self) -> tuple[list[int], list[int]]:
        """Number of data buffers of each view array, and their running total from 0 on."""
        if self._variadic is None:
            counts = self._header.variadic_counts(self.where)
            self._variadic = counts, [0, *accumulate(counts)]
        return self._variadic

    def node(self, index: int) -> tuple[int, int]:
        """Length and null count of a node."""
        nodes, at = self._header.nodes, _PAIR_SIZE * index
        if at >= len(nodes):
            raise InvalidData(f"the batch has {len(nodes) // _PAIR_SIZE} nodes, node {index} is missing")
        return _PAIR(nodes, at)

    def place(self, index: int) -> tuple[int, int]:
        """A buffer's (start, stop) range in the body."""
        buffers, at = self._header.buffers, _PAIR_SIZE * index
        if at >= len(buffers):
            raise InvalidData(f"the batch has {len(buffers) // _PAIR_SIZE} buffers, buffer {index} is missing")
        start, size = _PAIR(buffers, at)
        if not size:
            return 0, 0
        if start < 0 or size < 0 or start + size > self._size:
            raise InvalidData(f"buffer {index} needs [{start}, {start + size}) but the body has {self._size} bytes")
        return start, start + size

    def _load(self, columns: Sequence[Iterable[int]], at_most: int | None = None) -> dict[int, Bytes]:
        """Have the buffers of some columns in memory, and decompress them.

        Returns the decompressed buffers by index.
        """
        if self._have is None and self._decompressor is None:
            return {}
        filled = [list(self._filled(column)) for column in columns]
        if self._have is not None:
            self._body = self._have([(start, stop) for column in filled for _, start, stop in column])
        if self._decompressor is None:
            return {}
        body = self._body
        packed = [[(i, body[start:stop]) for i, start, stop in column] for column in filled]
        return self._decompressor.columns(packed, at_most)

    def _filled(self, buffers: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """Non-empty buffers and their ranges; :class:`ColumnParts` rejects invalid ones on use."""
        for index in buffers:
            try:
                start, stop = self.place(index)
            except InvalidData:
                continue
            if start < stop:
                yield index, start, stop


class ColumnParts(Parts):
    """The parts of a column or of one of its children: the next ones of its batch.

    Parameters
    ----------
    loader : ArrayLoader
        The batch.
    layout : FieldLayout
        The field.
    at : list of int
        The next node, buffer and variadic count; shared with the parts of the children, and moved by all of them.
    ready : dict of int to uint8 ndarray
        Decompressed buffers.
    """

    def __init__(self, loader: ArrayLoader, layout: FieldLayout, at: list[int], ready: dict[int, Bytes]) -> None:
        self.type = layout.field.type
        self.unchecked = loader._unchecked
        self._loader = loader
        self._layout = layout
        self._at = at
        self._ready = ready

    def node(self) -> tuple[int, int, int, Mask | None]:
        length, null_count = self._loader.node(self._at[0])
        self._at[0] += 1
        if length < 0 or not 0 <= null_count <= length:
            raise InvalidData(f"{self.type}: length {length} and null count {null_count}")
        self._length, self._null_count = length, null_count
        layout = self.type.layout
        valid = None
        if self._loader._v4 and LISTING[layout].v4_validity:
            bits = self._next()
            if null_count and layout in _UNIONS:
                valid = self._unpacked(bits, length)
        return length, null_count, 0, valid

    def _unpacked(self, bits: Bytes, length: int) -> Mask:
        if len(bits) < bitmap.bytes_for(length):
            raise InvalidData(f"{self.type}: the validity of {length} slots has {len(bits)} bytes")
        return bitmap.unpack(bits, 0, length)

    def _next(self) -> Bytes:
        """The bytes of the next buffer, decompressed if need be."""
        index, loader = self._at[1], self._loader
        self._at[1] = index + 1
        data = self._ready.get(index)
        if data is not None:
            return data
        start, stop = loader.place(index)
        if start == stop:
            return EMPTY
        if loader._decompressor is not None:
            return loader._load([range(index, index + 1)])[index]
        body: Bytes = loader._body[start:stop]
        return body

    def buffer(self, spec: BufferSpec) -> Bytes | None:
        if spec.role == "validity" and not self._null_count:
            self._at[1] += 1
            return None
        data = self._next()
        if not self._length:  # the offsets of no slots mean nothing: some writers leave the first one of a slice
            return EMPTY
        if self._loader._schema.big_endian and len(data):
            return swapped_views(data, False) if spec.role == "views" else swapped(spec, self._layout.type, data)
        return data

    def variadic(self) -> Sequence[Bytes]:
        counts, _ = self._loader.variadic_counts()
        number = self._at[2]
        if number >= len(counts):
            raise InvalidData(f"the batch has {len(counts)} variadic buffer counts, expected one more")
        self._at[2] = number + 1
        return [self._next() for _ in range(counts[number])]

    def child(self, index: int) -> Parts:
        return ColumnParts(self._loader, self._layout.children[index], self._at, self._ready)

    def dictionary(self) -> Any:
        layout = self._layout
        assert layout.values is not None
        assert layout.dictionary_id is not None
        dictionary = self._loader._dictionaries.get(layout.dictionary_id)
        if dictionary is not None:
            return dictionary.array(layout.values)
        if self._length == self._null_count:
            return nulls(0, layout.type.value_type)
        raise InvalidData(f"{layout.type}: its dictionary, id {layout.dictionary_id}, does not precede it")


def check_zero_copy(batch: RecordBatch, name: str) -> None:
    """Reject a batch whose columns cannot be views of its body.

    Raises
    ------
    CopyRequired
        If the body is compressed or of foreign byte order.
    """
    source = batch._source
    if isinstance(source, ArrayLoader) and source.copies:
        raise CopyRequired(
            f"{name} {source.copies}, so its columns cannot be read without a copy; open it without zero_copy_only"
        )
