"""Record batches from messages ("RecordBatch message"); ``plan`` has the way back.

Reading is one walk by the buffer listing. Opening a batch makes views of its nodes and buffers and nothing more; a
column is made when it is asked for, and its structure is checked then: bounds of every buffer, sizes for the slots,
lengths of children, ends of offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow import bitmap
from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import (
    DEFAULT_LIMITS,
    CopyRequired,
    InvalidData,
    LimitExceeded,
    Limits,
)
from shmarrow.ipc.batch.header import Header
from shmarrow.ipc.flatbuffers.reader import TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.layout.array import Array, make_array, nulls
from shmarrow.layout.listing import LISTING, swapped, swapped_views
from shmarrow.layout.memory import EMPTY
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.types import Schema

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.ipc.batch.codecs import Decompressor

_V4 = ENUMS["MetadataVersion"]["V4"]
_UNIONS = ("dense_union", "sparse_union")
_PAIR = np.dtype("<i8")
_EAGER, _FEW_COLUMNS = 4, 12

Dictionaries = Mapping[int, Any]


class ArrayLoader:
    """The nodes and buffers of a record batch, and its body; makes columns of them.

    Parameters
    ----------
    table : TableView or None
        The RecordBatch table, where it may say more than the header.
    header : Header
        What it says of rows, nodes and buffers.
    body : uint8 ndarray
        The message's body.
    big_endian : bool
        Whether the numbers in buffers have to be swapped.
    dictionaries : mapping of int to Dictionary
        What dictionary-encoded columns point into, as it was when the batch was read.
    where : str
        What the batch is, for error messages.
    limits : Limits
        Bounds on what is accepted.
    """

    __slots__ = (
        "_asked", "_body", "_buffer_rows", "_buffers", "_decompress", "_dictionaries", "_limits", "_node_rows",
        "_nodes", "_plain", "_ready", "_schema", "_size", "_swap", "_table", "_v4", "_variadic", "_variadic_ends",
        "length", "where",
    )  # fmt: skip

    def __init__(
        self,
        table: TableView | None,
        header: Header,
        body: Bytes,
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
        self._node_rows: list[list[int]] | None = None
        self._buffer_rows: list[list[int]] | None = None
        self._table = table
        self._variadic: list[int] | None = None
        self._variadic_ends: npt.NDArray[np.int64] | None = None
        self._body = body
        self._size = len(body)
        self._swap = schema.big_endian
        self._v4 = 1 if header.version == _V4 else 0
        self._schema = schema
        self._dictionaries = dictionaries
        self._limits = limits
        self._asked = 0
        self._ready: dict[int, Bytes] = {}
        self._plain: list[tuple[int, int]] | None = None
        codec = None if table is None else table["compression"]
        self._decompress = None if codec is None else _decompressor(codec, where, limits)

    @property
    def compressed(self) -> bool:
        return self._decompress is not None

    def columns(self) -> list[Any]:
        """All columns of the schema."""
        self._decompress_all()
        count = len(self._schema)
        self._asked = max(self._asked, _EAGER)
        if count > _FEW_COLUMNS:
            self._expect_many()
        if self._plain is None:
            return [self.column(i) for i in range(count)]
        length, body = self.length, self._body
        made: list[Any] = []
        last: Any = None
        needs, make = 0, PrimitiveArray
        for type, (start, size) in zip(self._schema.plain_types(), self._plain, strict=True):
            if type is not last and type is not None:
                last, needs, make = type, length * type.storage.itemsize, type.array_class or PrimitiveArray
            if type is None or size < needs:
                made.append(self._column(len(made)))
            else:
                made.append(make(type, length, [None, body[start : start + size]], 0))
        return made

    def _decompress_all(self) -> None:
        """Decompress all buffers, if they are compressed, on a few threads."""
        if self._decompress is not None and not self._ready:
            self._buffer_rows, self._node_rows = self._buffers.tolist(), self._nodes.tolist()
            indices = [i for i, row in enumerate(self._buffer_rows) if row[1]]
            parts = [self._slice(i) for i in indices]
            try:
                self._ready = dict(zip(indices, self._decompress.all(parts, indices), strict=True))
            except InvalidData as error:
                raise type(error)(f"{self.where}: {error}") from None

    def column(self, index: int) -> Any:
        """A column of the schema."""
        self._asked += 1
        if self._asked == _EAGER:
            self._expect_many()
        if self._plain is not None:
            start, size = self._plain[index]
        elif not self._swap and self._decompress is None:
            start, size = self._plain_place(index)
        else:
            return self._column(index)
        type: Any = self._schema.type_of(index)
        if type.layout == "primitive" and size >= self.length * type.storage.itemsize:
            made = type.array_class or PrimitiveArray
            return made(type, self.length, [None, self._body[start : start + size]], 0)
        return self._column(index)

    def _plain_place(self, index: int) -> tuple[int, int]:
        """Where the values of a column lie if it has two buffers, or a size of -1 if it has nulls or may be nested."""
        at = self._schema.flat_start(index) + 1
        if not at or index >= len(self._nodes) or at >= len(self._buffers):
            return 0, -1
        if self._nodes[index].tolist() != [self.length, 0]:
            return 0, -1
        start, size = self._buffers[at].tolist()
        return (start, size) if size > 0 and 0 <= start <= self._size - size else (0, -1)

    def _expect_many(self) -> None:
        """Some columns were asked for, so others will be."""
        if not self._find_plain() and self._node_rows is None:
            self._node_rows, self._buffer_rows = self._nodes.tolist(), self._buffers.tolist()

    def _find_plain(self) -> bool:
        """Find the columns with two buffers, no nulls, and values within the body; whether that is all of them."""
        starts = self._schema.flat_starts()
        count = len(self._schema)
        if starts is None or self._swap or self.compressed:
            return False
        if len(self._nodes) < count or not len(self._buffers) or len(self._buffers) < starts[-1]:
            return False
        first = np.minimum(starts[:-1] + 1, len(self._buffers) - 1)
        at, sizes = self._buffers[first, 0], self._buffers[first, 1]
        good = (np.diff(starts) == 2) & (self._nodes[:count, 0] == self.length) & (self._nodes[:count, 1] == 0)
        good &= (sizes > 0) & (at >= 0) & (at <= self._size) & (sizes <= self._size - at)
        self._plain = list(zip(at.tolist(), np.where(good, sizes, -1).tolist(), strict=True))
        return bool(good.all())

    def _column(self, index: int) -> Any:
        """A column of any type."""
        node, buffer, variadic, v4_bitmaps = self._schema.start(index)
        buffer += v4_bitmaps * self._v4
        cursor = _Cursor(self, node, buffer, variadic)
        if variadic or self._schema.start(index + 1)[2] > variadic:
            cursor.buffer += self._variadic_before(variadic)
        wire = self._schema.wire(index)
        try:
            column = cursor.array(wire)
        except InvalidData as error:
            raise type(error)(f"{self.where}: column {index} {wire.field.name!r}: {error}") from None
        finally:
            if self._decompress is not None:
                self._decompress.forget()
        if len(column) != self.length:
            raise InvalidData(
                f"{self.where}: column {index} {wire.field.name!r} has {len(column)} values, "
                f"the batch {self.length} rows"
            )
        return column

    def values(self, wire: FieldLayout) -> Any:
        """The one column of a dictionary batch, whose nodes and buffers start at 0."""
        try:
            column = _Cursor(self, 0, 0, 0).array(wire)
        except InvalidData as error:
            raise type(error)(f"{self.where}: {error}") from None
        if len(column) != self.length:
            raise InvalidData(f"{self.where}: {len(column)} values in a dictionary batch of {self.length} rows")
        return column

    def _counts(self) -> list[int]:
        if self._variadic is None:
            vector = None if self._table is None else self._table["variadicBufferCounts"]
            counts: list[int] = [] if vector is None else vector.tolist()
            if counts and (min(counts) < 0 or sum(counts) > len(self._buffers)):
                raise InvalidData(
                    f"{self.where}: the counts of variadic buffers {counts[:20]} "
                    f"do not fit {len(self._buffers)} buffers"
                )
            self._variadic = counts
        return self._variadic

    def _variadic_before(self, index: int) -> int:
        if self._variadic_ends is None:
            self._variadic_ends = np.cumsum([0, *self._counts()])
        return int(self._variadic_ends[min(index, len(self._variadic_ends) - 1)])

    def node(self, index: int) -> list[int]:
        """Length and null count of a node."""
        rows = self._node_rows
        if rows is not None and index < len(rows):
            return rows[index]
        if index >= len(self._nodes):
            raise InvalidData(f"the batch has {len(self._nodes)} nodes, node {index} is missing")
        found: list[int] = self._nodes[index].tolist()
        return found

    def bytes_of(self, index: int) -> Bytes:
        """The bytes of a buffer, decompressed where the batch is compressed."""
        rows = self._buffer_rows
        if rows is not None and index < len(rows):
            start, size = rows[index]
        elif index < len(self._buffers):
            start, size = self._buffers[index].tolist()
        else:
            raise InvalidData(f"the batch has {len(self._buffers)} buffers, buffer {index} is missing")
        if size == 0:
            return EMPTY
        if start < 0 or size < 0 or start + size > self._size:
            raise InvalidData(f"buffer {index} needs [{start}, {start + size}) but the body has {self._size} bytes")
        data = self._body[start : start + size]
        if self._decompress is None:
            return data
        found = self._ready.pop(index, None)
        return self._decompress(data, index) if found is None else found

    def _slice(self, index: int) -> Bytes:
        start, size = self._buffers[index].tolist()
        if start < 0 or size < 0 or start + size > self._size:
            raise InvalidData(f"buffer {index} needs [{start}, {start + size}) but the body has {self._size} bytes")
        return self._body[start : start + size]


def _decompressor(codec: TableView, where: str, limits: Limits) -> Decompressor:
    from shmarrow.ipc.batch.codecs import decompressor  # most batches need none

    return decompressor(codec["codec"], codec["method"], where, limits)


def _pairs(vector: npt.NDArray[Any] | None) -> npt.NDArray[np.int64]:
    """A vector of structs of two 64-bit numbers as an ndarray of shape (n, 2); a view."""
    if vector is None:
        return np.empty((0, 2), np.int64)
    return vector.view(_PAIR).reshape(-1, 2)


class _Cursor:
    """Where the walk is among the nodes, buffers and counts of variadic buffers."""

    __slots__ = ("body", "buffer", "node", "variadic")

    def __init__(self, body: ArrayLoader, node: int, buffer: int, variadic: int) -> None:
        self.body = body
        self.node = node
        self.buffer = buffer
        self.variadic = variadic

    def array(self, wire: FieldLayout) -> Any:
        """The next array of the walk, with its children."""
        body = self.body
        type = wire.type
        length, null_count = body.node(self.node)
        self.node += 1
        layout = LISTING[type.layout]
        if length < 0 or not 0 <= null_count <= length:
            raise InvalidData(f"{type}: length {length} and null count {null_count}")
        v4_validity, v4_nulls = None, null_count
        if body._v4 and layout.v4_validity:
            v4_validity = body.bytes_of(self.buffer)
            self.buffer += 1
        buffers: list[Bytes | None] = []
        for row in layout.buffers:
            if row.role == "validity" and not null_count:
                buffers.append(None)
            else:
                data = body.bytes_of(self.buffer)
                if body._swap and len(data):
                    data = swapped_views(data, False) if row.role == "views" else swapped(row, type, data)
                buffers.append(data)
            self.buffer += 1
        if layout.variadic:
            counts = body._counts()
            if self.variadic >= len(counts):
                raise InvalidData(
                    f"{type}: the batch counts variadic buffers of {len(counts)} columns, one more is needed"
                )
            for _ in range(counts[self.variadic]):
                buffers.append(body.bytes_of(self.buffer))
                self.buffer += 1
            self.variadic += 1
        children = [self.array(child) for child in wire.children]
        dictionary = None
        if wire.dictionary_id is not None:
            dictionary = self._dictionary(wire, length == null_count)
        if not layout.has_validity:
            null_count = length if type.layout == "null" else 0
        made = make_array(type, length, buffers, null_count, 0, children, dictionary)
        made._check_buffers()
        made._check_structure()
        if v4_validity is not None and v4_nulls and type.layout in _UNIONS:
            if len(v4_validity) < bitmap.bytes_for(length):
                raise InvalidData(f"{type}: the validity of {length} slots has {len(v4_validity)} bytes")
            made = made.with_nulls(bitmap.unpack(v4_validity, 0, length))
        logical = wire.field.type
        return made if logical is type else made._with(type=logical)

    def _dictionary(self, wire: FieldLayout, all_null: bool) -> Array:
        assert wire.values is not None
        assert wire.dictionary_id is not None
        found = self.body._dictionaries.get(wire.dictionary_id)
        if found is None:
            if all_null:
                return nulls(wire.type.value_type, 0)  # type: ignore[no-any-return]
            raise InvalidData(f"{wire.type}: its dictionary, id {wire.dictionary_id}, has not come before it")
        values: Array = found.array(wire.values)
        return values


def read_batch(
    message: Message, body: Bytes, schema: Schema, dictionaries: Dictionaries, where: str, limits: Limits
) -> RecordBatch:
    """A record batch over the body of a RecordBatch message; its columns are made when they are asked for."""
    source = schema.source
    assert isinstance(source, LazySchema)
    header = header_of(message.header, message.version, message.body_length, where)
    content = ArrayLoader(message.header, header, body, source, dictionaries, where, limits)
    return RecordBatch(schema, content.length, source=content, metadata=message.custom_metadata)


def header_of(table: TableView, version: int, body_length: int, where: str) -> Header:
    """What a RecordBatch table says of rows, nodes and buffers."""
    length = table["length"]
    if length < 0:
        raise InvalidData(f"{where}: the batch says that it has {length} rows")
    return Header(version, length, _pairs(table["nodes"]), _pairs(table["buffers"]), body_length)


def plain_batch(
    header: Header, body: Bytes, schema: Schema, dictionaries: Dictionaries, where: str, limits: Limits
) -> RecordBatch:
    """A record batch over a header that says all there is."""
    source = schema.source
    assert isinstance(source, LazySchema)
    loader = ArrayLoader(None, header, body, source, dictionaries, where, limits)
    return RecordBatch(schema, header.length, source=loader)


def dictionary_body(
    message: Message, body: Bytes, schema: Schema | None, dictionaries: Any, where: str, limits: Limits
) -> tuple[ArrayLoader, int, bool]:
    """The batch within a DictionaryBatch message, the dictionary's id, and whether it is a delta."""
    header = message.header
    data = header["data"]
    if data is None:
        raise InvalidData(f"{where}: a dictionary batch without data")
    source = schema.source if schema is not None else None
    assert isinstance(source, LazySchema)
    what = f"{where}: dictionary {header['id']}"
    content = ArrayLoader(
        data, header_of(data, message.version, len(body), what), body, source, dictionaries, what, limits
    )
    return content, header["id"], header["isDelta"]


def check_zero_copy(batch: RecordBatch, name: str) -> None:
    """Refuse a batch whose body has to be decompressed."""
    source = batch._source
    if isinstance(source, ArrayLoader) and source.compressed:
        raise CopyRequired(
            f"{name} is compressed, so its columns cannot be had without a copy; open it without zero_copy_only"
        )
