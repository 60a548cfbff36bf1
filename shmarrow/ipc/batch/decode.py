"""Decoding of record batches ("RecordBatch message"); ``encode`` is the inverse.

Invariants:

* opening a batch only creates views of its nodes and buffers. A column is built on first access, and its structure is
  validated then: buffer bounds and sizes, child lengths, first and last offsets;
* the state of building a column (cursor, decompressed buffers, remaining limits) is local to the operation. Caches of a
  batch derive from its metadata alone and are replaced atomically, so racing threads compute equal values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shmarrow import bitmap
from shmarrow.batch import RecordBatch
from shmarrow.buffer import EMPTY, Bytes
from shmarrow.errors import DEFAULT_LIMITS, CopyRequired, InvalidData, LimitExceeded, Limits, at
from shmarrow.ipc.batch.header import Header
from shmarrow.ipc.flatbuffers.reader import TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.layout.array import Array
from shmarrow.layout.listing import LISTING, swapped, swapped_views, walk
from shmarrow.layout.making import make_array, nulls
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.layout.validation import check_buffers
from shmarrow.types import Schema

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.ipc.batch.codecs import Decompressor

_V4 = ENUMS["MetadataVersion"]["V4"]
_UNIONS = ("dense_union", "sparse_union")
_PAIR = np.dtype("<i8")
_SEVERAL, _MANY = 4, 12
_SMALL = 1 << 17
"""Maximum rows of a batch whose columns may be decompressed for display."""


class Dictionaries(Protocol):
    """Dictionaries by id, as of when a batch was read."""

    def get(self, id: int, /) -> Any:
        """The dictionary of an id; None if there is none."""


class RangeBody(Protocol):
    """A body that is not in memory; parts are read on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice) -> Bytes:
        """Return the bytes from ``start`` to ``stop``."""

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Prefetch these (start, stop) ranges, merging adjacent ones."""


class ArrayLoader:
    """Builds the columns of a record batch from its nodes, buffers and body.

    Parameters
    ----------
    table : TableView or None
        The RecordBatch table, if it may hold more than the header.
    header : Header
        Row count, nodes and buffers.
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
        "_asked", "_body", "_buffer_rows", "_buffers", "_decompressor", "_dictionaries", "_direct", "_fetch", "_flat",
        "_node_rows", "_nodes", "_schema", "_size", "_table", "_trusted", "_v4", "_variadic",
        "_variadic_ends", "length", "where",
    )  # fmt: skip

    def __init__(
        self,
        table: TableView | None,
        header: Header,
        body: Bytes | RangeBody,
        schema: LazySchema,
        dictionaries: Dictionaries,
        where: str,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.where = where
        self.length = header.length
        self._nodes = header.nodes
        self._buffers = header.buffers
        if len(self._buffers) > limits.buffers:
            raise LimitExceeded(f"{where}: {len(self._buffers)} buffers, more than Limits.buffers = {limits.buffers}")
        self._table = table
        self._body = body
        self._fetch = getattr(body, "fetch", None)
        self._size = len(body)
        self._trusted = limits.trust or None  # the arrays' "validated" flag
        self._schema = schema
        self._dictionaries = dictionaries
        self._v4 = 1 if header.version == _V4 else 0
        codec = None if table is None else table["compression"]
        self._decompressor = None if codec is None else _decompressor(codec, where, limits)
        # Whether arrays can be views of the body.
        self._direct = codec is None and self._fetch is None and not schema.big_endian
        self._asked = 0
        self._node_rows: list[list[int]] | None = None
        self._buffer_rows: list[list[int]] | None = None
        self._flat: list[tuple[int, int, Any]] | None = None
        self._variadic: list[int] | None = None
        self._variadic_ends: list[int] | None = None

    @property
    def copies(self) -> str:
        """Why columns cannot be views of the body; empty if they can."""
        if self._decompressor is not None:
            return "is compressed"
        return "is big-endian" if self._schema.big_endian else ""

    def at_hand(self, index: int) -> bool:
        return self._direct or (self._fetch is None and self.length <= _SMALL)

    def check(self, index: int) -> None:
        wire = self._schema.wire(index)
        node, buffer, variadic = self._start(index)
        for number in BufferCursor(self, node, buffer, variadic, {}).used(wire):
            start, size = self._buffers[number].tolist()
            if size and start % 8:
                raise InvalidData(f"buffer {number} starts at {start} of the body, expected a multiple of 8")
        for number, each in enumerate(walk([wire], lambda field: field.children), node):
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
        if self._asked >= _SEVERAL and self._direct:
            self._list_all()
        return self._column(index)

    def _column(self, index: int) -> Any:
        if not self._direct:
            return self._build(index, None)
        if self._flat is not None:
            start, size, type = self._flat[index]
        else:
            start, size = self._flat_place(index)
            type = self._schema.type_of(index) if size >= 0 else None
        if type is None or type.layout != "primitive" or size < self.length * type.storage.itemsize:
            return self._build(index, None)
        return (type.array_class or PrimitiveArray)(type, self.length, [None, self._body[start : start + size]], 0)

    def columns(self, indices: Sequence[int] | None = None) -> list[Any]:
        """Build several columns, or all. Errors are those of :meth:`column`.

        They are fetched together and decompressed on several threads.
        """
        wanted = range(len(self._schema)) if indices is None else indices
        if not self._direct:
            with at(self.where):
                ready = self._load([self._used(index) for index in wanted])
            return [self._build(index, ready) for index in wanted]
        if len(wanted) > _MANY:
            self._list_all()
        if indices is not None or self._flat is None:
            return [self._column(index) for index in wanted]
        length, body = self.length, self._body
        made: list[Any] = []
        last: Any = None
        needs, make = 0, PrimitiveArray
        for start, size, each in self._flat:
            if each is not last and each is not None:
                last, needs, make = each, length * each.storage.itemsize, each.array_class or PrimitiveArray
            if each is None or size < needs:
                made.append(self._build(len(made), None))
            else:
                made.append(make(each, length, [None, body[start : start + size]], 0))
        return made

    def values(self, wire: FieldLayout, at_most: int) -> Any:
        """Build the single column of a dictionary batch.

        Buffers that declare more than ``at_most`` decompressed bytes are rejected.
        """
        with at(self.where):
            ready = self._load([BufferCursor(self, 0, 0, 0, {}).used(wire)], at_most)
            column = BufferCursor(self, 0, 0, 0, ready).array(wire)
            if len(column) != self.length:
                raise InvalidData(f"{len(column)} values in a dictionary batch of {self.length} rows")
        return column

    def _build(self, index: int, ready: dict[int, Bytes] | None) -> Any:
        """Build a column of any type; ``ready`` holds its decompressed buffers."""
        wire = self._schema.wire(index)
        with at(self.where), at("column", index, wire.field.name):
            if ready is None:
                ready = self._load([self._used(index)])
            column = BufferCursor(self, *self._start(index), ready).array(wire)
            if len(column) != self.length:
                raise InvalidData(f"{len(column)} values in a batch of {self.length} rows")
        return column

    # --- locating buffers ---

    def _flat_place(self, index: int) -> tuple[int, int]:
        """Offset and size of a column's values if it has two buffers and no nulls; a size of -1 if unknown."""
        at = self._schema.flat_start(index) + 1
        if not at or index >= len(self._nodes) or at >= len(self._buffers):
            return 0, -1
        if self._nodes[index].tolist() != [self.length, 0]:
            return 0, -1
        start, size = self._buffers[at].tolist()
        return (start, size) if size > 0 and 0 <= start <= self._size - size else (0, -1)

    def _list_all(self) -> None:
        """Locate all flat columns in one pass, or list nodes and buffers; for access to several columns."""
        if self._flat is not None or self._node_rows is not None:
            return
        try:
            found = self._find_flat()
        except InvalidData:  # a corrupt column raises on its own access
            found = False
        if not found:
            self._buffer_rows = self._buffers.tolist()
            self._node_rows = self._nodes.tolist()

    def numbers(self) -> tuple[Any, Any] | None:
        """Offset of each column's values in the body, and the body, if all are primitive without nulls.

        Each then has one node and two buffers. None if any column is of another kind or corrupt.
        """
        widths = self._schema.plain_widths() if self._direct and self.length else None
        count = 0 if widths is None else len(widths)
        if not count or len(self._nodes) < count or len(self._buffers) < 2 * count:
            return None
        at, sizes = self._buffers[1 : 2 * count : 2].T
        needed = self.length * widths  # type: ignore[operator]
        good = (at >= 0) & (at <= self._size) & (sizes <= self._size - at) & (sizes >= needed) & (needed > 0)
        if not good.all() or not (self._nodes[:count] == (self.length, 0)).all():
            return None
        return at.astype(np.uint64), self._body

    def _find_flat(self) -> bool:
        """As :meth:`_flat_place` for all columns; returns whether all are flat."""
        starts = self._schema.flat_starts()
        count = len(self._schema)
        if starts is None or len(self._nodes) < count or not 0 < len(self._buffers) >= starts[-1]:
            return False
        first = np.minimum(starts[:-1] + 1, len(self._buffers) - 1)
        at, sizes = self._buffers[first, 0], self._buffers[first, 1]
        good = (np.diff(starts) == 2) & (self._nodes[:count, 0] == self.length) & (self._nodes[:count, 1] == 0)
        good &= (sizes > 0) & (at >= 0) & (at <= self._size) & (sizes <= self._size - at)
        self._flat = list(zip(at.tolist(), np.where(good, sizes, -1).tolist(), self._schema.plain_types(), strict=True))
        return bool(good.all())

    def _start(self, index: int) -> tuple[int, int, int]:
        """Index of a column's first node, buffer and variadic count; the number of columns gives the totals."""
        node, buffer, variadic, bitmaps = self._schema.start(index)
        buffer += bitmaps * self._v4
        return node, buffer + self._variadic_before(variadic) if variadic else buffer, variadic

    def _used(self, index: int) -> list[int]:
        """The buffers of a column and its children that must be loaded before building it."""
        if self._direct:
            return []
        return BufferCursor(self, *self._start(index), {}).used(self._schema.wire(index))

    def variadic_counts(self) -> list[int]:
        """Number of data buffers of each view array."""
        if self._variadic is None:
            vector = None if self._table is None else self._table["variadicBufferCounts"]
            counts: list[int] = [] if vector is None else vector.tolist()
            if counts and (min(counts) < 0 or sum(counts) > len(self._buffers)):
                raise InvalidData(
                    f"{self.where}: variadic buffer counts {counts[:20]} do not match {len(self._buffers)} buffers"
                )
            self._variadic = counts
        return self._variadic

    def _variadic_before(self, index: int) -> int:
        ends = self._variadic_ends
        if ends is None:
            self._variadic_ends = ends = np.cumsum([0, *self.variadic_counts()]).tolist()
        return ends[min(index, len(ends) - 1)]

    def node(self, index: int) -> list[int]:
        """Length and null count of a node."""
        rows = self._node_rows
        if rows is not None and index < len(rows):
            return rows[index]
        if index >= len(self._nodes):
            raise InvalidData(f"the batch has {len(self._nodes)} nodes, node {index} is missing")
        found: list[int] = self._nodes[index].tolist()
        return found

    def place(self, index: int) -> tuple[int, int]:
        """A buffer's (start, stop) range in the body."""
        rows = self._buffer_rows
        if rows is not None and index < len(rows):
            start, size = rows[index]
        elif index < len(self._buffers):
            start, size = self._buffers[index].tolist()
        else:
            raise InvalidData(f"the batch has {len(self._buffers)} buffers, buffer {index} is missing")
        if not size:
            return 0, 0
        if start < 0 or size < 0 or start + size > self._size:
            raise InvalidData(f"buffer {index} needs [{start}, {start + size}) but the body has {self._size} bytes")
        return start, start + size

    def bytes_of(self, index: int, ready: dict[int, Bytes]) -> Bytes:
        """The bytes of a buffer, decompressed if it is in ``ready``."""
        found = ready.get(index)
        if found is not None:
            return found
        start, stop = self.place(index)
        if start == stop:
            return EMPTY
        if self._decompressor is not None:
            return self._load([range(index, index + 1)])[index]
        return self._body[start:stop]

    def _load(self, columns: Sequence[Iterable[int]], at_most: int | None = None) -> dict[int, Bytes]:
        """Fetch the buffers of some columns if the body is not in memory, and decompress them.

        Returns the decompressed buffers by index.
        """
        if self._fetch is None and self._decompressor is None:
            return {}
        filled = [list(self._filled(column)) for column in columns]
        if self._fetch is not None:
            self._fetch([(start, stop) for column in filled for _, start, stop in column])
        if self._decompressor is None:
            return {}
        body = self._body
        packed = [[(i, body[start:stop]) for i, start, stop in column] for column in filled]
        return self._decompressor.columns(packed, at_most)

    def _filled(self, buffers: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """Non-empty buffers and their ranges; :meth:`bytes_of` rejects invalid ones on use."""
        for index in buffers:
            try:
                start, stop = self.place(index)
            except InvalidData:
                continue
            if start < stop:
                yield index, start, stop


def _decompressor(codec: TableView, where: str, limits: Limits) -> Decompressor:
    from shmarrow.ipc.batch.codecs import decompressor  # most batches need none

    return decompressor(codec["codec"], codec["method"], where, limits)


class BufferCursor:
    """A cursor over the nodes, buffers and variadic counts of one column."""

    __slots__ = ("buffer", "loader", "node", "ready", "variadic")

    def __init__(self, loader: ArrayLoader, node: int, buffer: int, variadic: int, ready: dict[int, Bytes]) -> None:
        self.loader = loader
        self.node = node
        self.buffer = buffer
        self.variadic = variadic
        self.ready = ready

    def array(self, wire: FieldLayout) -> Any:
        """Build the next array and its children."""
        loader = self.loader
        type = wire.type
        length, null_count = loader.node(self.node)
        self.node += 1
        layout = LISTING[type.layout]
        if length < 0 or not 0 <= null_count <= length:
            raise InvalidData(f"{type}: length {length} and null count {null_count}")
        v4_validity, v4_nulls = None, null_count
        if loader._v4 and layout.v4_validity:
            v4_validity = self._next()
        buffers: list[Bytes | None] = []
        for row in layout.buffers:
            if row.role == "validity" and not null_count:
                buffers.append(None)
                self.buffer += 1
                continue
            data = self._next()
            if loader._schema.big_endian and len(data):
                data = swapped_views(data, False) if row.role == "views" else swapped(row, type, data)
            buffers.append(data)
        if layout.variadic:
            counts = loader.variadic_counts()
            if self.variadic >= len(counts):
                raise InvalidData(f"{type}: the batch has {len(counts)} variadic buffer counts, expected one more")
            buffers += [self._next() for _ in range(counts[self.variadic])]
            self.variadic += 1
        children = [self.array(child) for child in wire.children]
        dictionary = None
        if wire.dictionary_id is not None:
            dictionary = self._dictionary(wire, length == null_count)
        if not layout.has_validity:
            null_count = length if type.layout == "null" else 0
        made = make_array(type, length, buffers, null_count, 0, children, dictionary)
        check_buffers(made)
        made._check_structure()
        if v4_validity is not None and v4_nulls and type.layout in _UNIONS:
            if len(v4_validity) < bitmap.bytes_for(length):
                raise InvalidData(f"{type}: the validity of {length} slots has {len(v4_validity)} bytes")
            made = made._with_nulls(bitmap.unpack(v4_validity, 0, length))
        logical = wire.field.type
        if logical is not type:
            made = made._with(type=logical)
        made._safe = loader._trusted
        return made

    def used(self, wire: FieldLayout) -> list[int]:
        """The buffers that :meth:`array` would use; ends early at a missing node."""
        loader, layout, first = self.loader, LISTING[wire.type.layout], self.buffer
        if self.node >= len(loader._nodes):
            return []
        null_count = loader.node(self.node)[1]
        self.node += 1
        if loader._v4 and layout.v4_validity:
            self.buffer += 1
        self.buffer += len(layout.buffers)
        if layout.variadic:
            counts = loader.variadic_counts()
            self.buffer += counts[self.variadic] if self.variadic < len(counts) else 0
            self.variadic += 1
        found = list(range(first, self.buffer))
        if layout.has_validity and not null_count:
            del found[0]
        for child in wire.children:
            found += self.used(child)
        return found

    def _next(self) -> Bytes:
        """The next buffer."""
        self.buffer += 1
        return self.loader.bytes_of(self.buffer - 1, self.ready)

    def _dictionary(self, wire: FieldLayout, all_null: bool) -> Array:
        assert wire.values is not None
        assert wire.dictionary_id is not None
        found = self.loader._dictionaries.get(wire.dictionary_id)
        if found is None:
            if all_null:
                return nulls(0, wire.type.value_type)
            raise InvalidData(f"{wire.type}: its dictionary, id {wire.dictionary_id}, does not precede it")
        values: Array = found.array(wire.values)
        return values


def header_of(table: TableView, version: int, body_length: int, where: str) -> Header:
    """Row count, nodes and buffers of a RecordBatch table."""
    length = table["length"]
    if length < 0:
        raise InvalidData(f"{where}: the batch declares {length} rows")
    return Header(version, length, _pairs(table["nodes"]), _pairs(table["buffers"]), body_length)


def _pairs(vector: npt.NDArray[Any] | None) -> npt.NDArray[np.int64]:
    """A vector of structs of two 64-bit numbers as an ndarray of shape (n, 2); a view."""
    if vector is None:
        return np.empty((0, 2), np.int64)
    return vector.view(_PAIR).reshape(-1, 2)


def dictionary_body(
    message: Message, body: Bytes | RangeBody, schema: Schema | None, dictionaries: Any, where: str, limits: Limits
) -> tuple[ArrayLoader, int, bool]:
    """The record batch of a DictionaryBatch message, the dictionary's id, and whether it is a delta."""
    header = message.header
    data = header["data"]
    if data is None:
        raise InvalidData(f"{where}: a dictionary batch without data")
    source = schema._source if schema is not None else None
    assert isinstance(source, LazySchema)
    what = f"{where}: dictionary {header['id']}"
    content = ArrayLoader(
        data, header_of(data, message.version, len(body), what), body, source, dictionaries, what, limits
    )
    return content, header["id"], header["isDelta"]


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
