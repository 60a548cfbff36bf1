# SPDX-License-Identifier: Apache-2.0
"""Tables from and to the JSON format of Arrow's integration tests ("Integration Testing").

A document holds a schema, dictionaries and record batches; the buffers of each column are arrays of JSON values.
Invariants:

* one traversal driven by the buffer listing reads, another writes;
* errors raise :class:`InvalidData` with a path, such as ``batches 0: columns 2: child 'x': DATA: item 7``, and the
  expected and found values;
* null slots may hold any value in JSON, and are zero in tables read and documents written; only fixed-size binary
  preserves their bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import Bytes, Mask, as_bytes
from shmarrow.columns import RecordBatch, Table
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, InvalidType, LimitExceeded, Limits, at
from shmarrow.integration.json_schema import member, read_items, read_schema, shown, write_schema
from shmarrow.integration.json_values import (
    VALUES,
    check_kinds,
    no_item,
    read_hex,
    read_integers,
    read_text,
    upper_hex,
    write_integers,
)
from shmarrow.ipc.batch.encode import dictionaries_of
from shmarrow.ipc.schema.lazy import FieldLayout
from shmarrow.layout import LISTING, BufferSpec, concat_arrays, nulls
from shmarrow.layout.binary import decode
from shmarrow.layout.construct import check_expansion, frozen, offsets_of, read_only
from shmarrow.layout.parts import Node, Parts, assemble, take_apart
from shmarrow.layout.views import INLINE
from shmarrow.memory import open_sink, open_source
from shmarrow.types import DataType, ExtensionType

GZIP = b"\x1f\x8b"


def read_json(source: Any, *, limits: Limits = DEFAULT_LIMITS) -> Table:
    """Read a document in the JSON format of Arrow's integration tests.

    Parameters
    ----------
    source : path, ``shm:NAME``, file object or bytes-like
        The document, plain or compressed with gzip.
    limits : Limits, optional
        Limits on the size and depth of the document.

    Returns
    -------
    Table
        A table with the schema and batches of the document.

    Raises
    ------
    ObjectNotFound
        If the source does not exist.
    InvalidData
        If it is not valid JSON in this format; the message has the path.
    """
    opened = open_source(source)
    try:
        document = _parse(opened.read(0, opened.size or 0), opened.name, limits)
    finally:
        opened.close()
    with at(opened.name):
        return _read_table(document, limits)


def write_json(
    sink: Any,
    data: Table | RecordBatch,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> None:
    """Write a table in the JSON format of Arrow's integration tests.

    Dictionaries that differ between batches are unified, as the format allows one per id.

    Parameters
    ----------
    sink : path, ``shm:NAME`` or file object
        The destination.
    data : Table or RecordBatch
        The data to write.
    overwrite, mode, durable
        As for :func:`shmarrow.ipc.new_file`.

    Raises
    ------
    InvalidData
        If values are invalid for their type and cannot be represented in JSON, such as strings that are not UTF-8.
    """
    table = Table.from_batches([data]) if isinstance(data, RecordBatch) else data
    if not isinstance(table, Table):
        raise InvalidType(f"expected a Table or a RecordBatch, found {data.__class__.__name__}")
    with open_sink(sink, overwrite=overwrite, mode=mode, durable=durable, is_arrow=False) as opened:
        for piece in _pieces(table):
            opened.write([piece])


# --- documents ---------------------------------------------------------------------------------------------------


def _parse(data: Bytes, name: str, limits: Limits) -> Any:
    text = data.tobytes()
    if text.startswith(GZIP):
        text = _inflated(text, name, limits)
    try:
        return json.loads(text)
    except RecursionError:
        raise LimitExceeded(f"{name}: its arrays and objects nest deeper than Python's recursion limit") from None
    except ValueError as error:  # syntax errors, invalid UTF-8, numbers with too many digits
        raise InvalidData(f"{name}: not a JSON document: {error}") from None


def _inflated(data: bytes, name: str, limits: Limits) -> bytes:
    most = limits.most_decompressed(len(data))
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(data)).read(most + 1)
    except EOFError:
        raise InvalidData(f"{name}: its gzip data is truncated") from None
    except (OSError, zlib.error) as error:
        raise InvalidData(f"{name}: its gzip data is corrupt: {error}") from None
    if len(content) > most:
        raise LimitExceeded(f"{name}: more decompressed bytes than Limits.decompressed_bytes = {most}")
    return content


def _read_table(document: Any, limits: Limits) -> Table:
    header = member(document, "schema", dict)
    with at("schema"):
        schema, layouts = read_schema(header, limits)
    columns = _Columns(document)

    def read_batch(item: Any) -> RecordBatch:
        return RecordBatch(schema, *columns.read_batch(item, layouts))

    return Table(schema, read_items(document, "batches", read_batch))


def _pieces(table: Table) -> Iterator[bytes]:
    """Yield the document in pieces, one per batch."""

    def text(value: Any) -> bytes:
        return json.dumps(value, allow_nan=False).encode()

    names = table.schema.names
    batches = _with_one_dictionary_each(table)
    yield b'{"schema": ' + text(write_schema(table.schema))
    dictionaries = dictionaries_of(batches[0]) if batches else []
    if dictionaries:
        # Nested dictionaries come before those that use them.
        numbered = list(enumerate(dictionaries))[::-1]
        items = [{"id": id, "data": _write_batch([f"DICT{id}"], [values], len(values))} for id, values in numbered]
        yield b', "dictionaries": ' + text(items)
    yield b', "batches": ['
    for i, (batch, columns) in enumerate(zip(table.batches, batches, strict=True)):
        yield (b", " if i else b"") + text(_write_batch(names, columns, batch.num_rows))
    yield b"]}\n"


def _with_one_dictionary_each(table: Table) -> list[list[Any]]:
    """Return the columns of each batch, with dictionaries unified across batches."""
    result: list[list[Any]] = [[] for _ in table.batches]
    for i in range(table.num_columns):
        chunks = [batch.column(i) for batch in table.batches]
        first, *others = [dictionaries_of([chunk]) for chunk in chunks] or [[]]
        if not all(mine is its or mine.equals(its) for other in others for mine, its in zip(first, other, strict=True)):
            whole = concat_arrays(chunks)
            ends = np.cumsum([len(chunk) for chunk in chunks]).tolist()
            chunks = [whole.slice(end - len(chunk), len(chunk)) for end, chunk in zip(ends, chunks, strict=True)]
        for columns, chunk in zip(result, chunks, strict=True):
            columns.append(chunk)
    return result


# --- reading columns ---------------------------------------------------------------------------------------------

_KEYS = {
    "validity": "VALIDITY",
    "values": "DATA",
    "data": "DATA",
    "offsets": "OFFSET",
    "sizes": "SIZE",
    "type_ids": "TYPE_ID",
    "views": "VIEWS",
}
"""The member names of buffers, by role in the buffer listing."""

_VARIADIC = "VARIADIC_DATA_BUFFERS"
_NO_VIEW = {"SIZE": 0, "INLINED": ""}

_INLINED = struct.Struct(f"<i{INLINE}s")
_OUTSIDE = struct.Struct("<i4sii")


class _Columns:
    """The columns of a document, and its dictionaries, which are built on first use."""

    def __init__(self, document: Any) -> None:
        self._made: dict[tuple[int, DataType], Any] = {}
        self._busy: set[int] = set()
        self._dictionaries: dict[int, tuple[Any, int]] = {}
        for i, item in enumerate(member(document, "dictionaries", list, [])):
            with at("dictionaries", i):
                id = member(item, "id", int)
                if id in self._dictionaries:
                    raise InvalidData(f"dictionary {id} is already defined in dictionaries {self._dictionaries[id][1]}")
                self._dictionaries[id] = (member(item, "data", dict), i)

    def read_batch(self, value: Any, layouts: Sequence[FieldLayout]) -> tuple[int, list[Any]]:
        """Return the number of rows and the columns of a batch object."""
        count = _count(value)
        columns = []
        for i, (item, layout) in enumerate(zip(_items(value, "columns", len(layouts)), layouts, strict=True)):
            with at("columns", i):
                columns.append(assemble(_ColumnParts(self, item, layout, named=True)))
                _check_count(columns[i], count)
        return count, columns

    def dictionary(self, layout: FieldLayout, unused: bool) -> Any:
        """Return the dictionary of a field; if it is ``unused``, it need not be in the document."""
        values, id = layout.values, layout.dictionary_id
        assert values is not None
        assert id is not None
        key = (id, values.field.type)
        if key in self._made:
            return self._made[key]
        if id not in self._dictionaries:
            if unused:
                return nulls(0, layout.type.value_type)
            raise InvalidData(f"its dictionary, id {id}, is not among {sorted(self._dictionaries)[:20]}")
        value, number = self._dictionaries[id]
        with at("dictionaries", number):
            if id in self._busy:
                raise InvalidData(f"dictionary {id} refers to itself")
            self._busy.add(id)
            (item,) = _items(value, "columns", 1)
            array = assemble(_ColumnParts(self, item, values))
            _check_count(array, _count(value))
        self._busy.discard(id)
        self._made[key] = array
        return array


def _count(value: Any) -> int:
    count: int = member(value, "count", int)
    if not 0 <= count < 1 << 63:
        raise InvalidData(f"expected a number from 0 to {(1 << 63) - 1}, found {shown(count)}", where=[("count",)])
    return count


def _check_count(column: Any, count: int) -> None:
    if len(column) != count:
        raise InvalidData(f"expected {count}, as in the batch, found {len(column)}", where=[("count",)])


def _items(value: Any, key: str, length: int) -> list[Any]:
    """Return an array member, checking its length."""
    items: list[Any] = member(value, key, list)
    if len(items) != length:
        raise InvalidData(f"expected {length} items, found {len(items)}", where=[(key,)])
    return items


class _ColumnParts(Parts):
    """The parts of a column object."""

    def __init__(self, columns: _Columns, value: Any, layout: FieldLayout, *, named: bool = False) -> None:
        if named:
            name = member(value, "name", str)
            if name != layout.field.name:
                expected = f"expected {shown(layout.field.name)}, as in the schema"
                raise InvalidData(f"{expected}, found {shown(name)}", where=[("name",)])
        self.type = layout.field.type
        self._columns = columns
        self._value = value
        self._layout = layout
        self._length = _count(value)
        self._children: list[Any] = member(value, "children", list, [])
        if len(self._children) != len(layout.children):
            expected = f"expected {len(layout.children)}, as in the schema"
            raise InvalidData(f"{expected}, found {len(self._children)}", where=[("children",)])
        self._valid: Mask | None = None
        self._null_count = 0

    def node(self) -> Node:
        layout = LISTING[self.type.layout]
        in_union = bool(layout.buffers) and layout.buffers[0].role == "type_ids"
        if layout.has_validity or (in_union and _KEYS["validity"] in self._value):
            items = _items(self._value, _KEYS["validity"], self._length)
            with at(_KEYS["validity"]):
                self._valid = _valid_slots(items)
        if self._valid is not None:
            self._null_count = self._length - int(np.count_nonzero(self._valid))
        return Node(self._length, self._null_count, 0, self._valid if in_union else None)

    def buffer(self, spec: BufferSpec) -> Bytes | None:
        return self._READ[spec.role](self, spec)

    def child(self, index: int) -> Parts:
        return _ColumnParts(self._columns, self._children[index], self._layout.children[index], named=True)

    def dictionary(self) -> Any:
        return self._columns.dictionary(self._layout, self._null_count == self._length)

    def variadic(self) -> Sequence[Bytes]:
        return read_items(self._value, _VARIADIC, lambda item: as_bytes(read_hex([item])[0]))

    def _slots(self, role: str, filler: Any) -> list[Any]:
        """Return an item per slot, with ``filler`` for null slots unless it is None."""
        items = _items(self._value, _KEYS[role], self._length)
        if self._valid is None or filler is None:
            return items
        return [item if keep else filler for item, keep in zip(items, self._valid.tolist(), strict=True)]

    def _validity(self, spec: BufferSpec) -> Bytes | None:
        return None if self._valid is None else read_only(bitmap.pack(self._valid))

    def _integers(self, spec: BufferSpec) -> Bytes:
        key = _KEYS[spec.role]
        items = member(self._value, key, list)
        if items or self._length:  # some writers omit the single offset of an empty array
            items = _items(self._value, key, self._length + spec.extra)
        with at(key):
            return frozen(read_integers(items, np.dtype(f"<i{spec.bits >> 3}")))

    def _offsets(self, spec: BufferSpec) -> Bytes:
        """Return the offsets of lists as they are; those of text are new, as its null slots take no bytes."""
        offsets = self._integers(spec)
        if LISTING[self.type.layout].buffers[-1].role != "data":
            return offsets
        storage = self._layout.type
        items = self._slots("data", "")
        with at(_KEYS["data"]):
            self._data, lengths = read_text(storage.text, items)
            between = np.diff(offsets.view(storage.offset_dtype))
            wrong = between != lengths if len(lengths) else np.zeros(0, np.bool_)
            if self._valid is not None:
                wrong &= self._valid
            if wrong.any():
                i = int(wrong.argmax())
                raise no_item(i, f"expected {between[i]} bytes, as in OFFSET, found {int(lengths[i])}")
        return frozen(offsets_of(lengths, storage))

    def _text(self, spec: BufferSpec) -> Bytes:
        return as_bytes(self._data)

    def _values(self, spec: BufferSpec) -> Bytes:
        storage = self._layout.type
        form = VALUES[storage.descriptor.values]
        items = self._slots(spec.role, form.zero(storage))
        with at(_KEYS[spec.role]):
            return frozen(form.read(storage, items))

    def _views(self, spec: BufferSpec) -> Bytes:
        text = self._layout.type.text
        packed = []
        for i, item in enumerate(self._slots(spec.role, _NO_VIEW)):
            with at(_KEYS[spec.role], i):
                packed.append(_read_view(item, text))
        return as_bytes(b"".join(packed))

    _READ: ClassVar[dict[str, Callable[[_ColumnParts, BufferSpec], Bytes | None]]] = {
        "validity": _validity,
        "offsets": _offsets,
        "sizes": _integers,
        "type_ids": _integers,
        "values": _values,
        "data": _text,
        "views": _views,
    }


def _valid_slots(items: list[Any]) -> Mask | None:
    """Return a mask of the valid slots; None if all are valid."""
    check_kinds(items, (int, bool), "0 or 1")
    if not set(items) <= {0, 1}:
        i = next(i for i, item in enumerate(items) if item not in (0, 1))
        raise no_item(i, f"expected 0 or 1, found {shown(items[i])}")
    mask = np.array(items, np.bool_)
    return None if mask.all() else mask


def _read_view(item: Any, text: bool) -> bytes:
    size = member(item, "SIZE", int)
    if size <= INLINE:
        inlined = member(item, "INLINED", str)
        with at("INLINED"):
            value, _ = read_text(text, [inlined])
        if len(value) != size:
            raise InvalidData(f"expected {len(value)}, the bytes of INLINED, found {shown(size)}", where=[("SIZE",)])
        return _INLINED.pack(size, value)
    digits = member(item, "PREFIX_HEX", str)
    with at("PREFIX_HEX"):
        prefix, _ = read_hex([digits])
        if len(prefix) != 4:
            raise InvalidData(f"expected 4 bytes, found {len(prefix)}")
    numbers = [size, member(item, "BUFFER_INDEX", int), member(item, "OFFSET", int)]
    if not all(0 <= number < 1 << 31 for number in numbers):
        found = ", ".join(map(shown, numbers))
        raise InvalidData(f"SIZE, BUFFER_INDEX and OFFSET have 32 bits, found {found}")
    return _OUTSIDE.pack(size, prefix, *numbers[1:])


# --- writing columns ---------------------------------------------------------------------------------------------


def _write_batch(names: Sequence[str], columns: Sequence[Any], count: int) -> dict[str, Any]:
    parts = take_apart(columns, trim=True)
    return {"count": count, "columns": [_write_column("column", name, parts) for name in names]}


def _write_column(what: str, name: str, parts: Iterator[Any]) -> dict[str, Any]:
    """Write the next array of ``parts`` and its children."""
    with at(what, name):
        array = next(parts)
        if isinstance(array.type, ExtensionType):
            array = array.storage
        layout = LISTING[array.type.layout]
        result: dict[str, Any] = {"name": name, "count": len(array)}
        if layout.has_validity and not array.nbytes:
            check_expansion(len(array), str(array.type))
        for spec in layout.buffers:
            result.update(_WRITE[spec.role](spec, array))
        if array.type.fields:
            result["children"] = [_write_column("child", field.name, parts) for field in array.type.fields]
    return result


def _write_validity(spec: BufferSpec, array: Any) -> dict[str, Any]:
    return {_KEYS[spec.role]: array._valid().view(np.uint8).tolist()}


def _write_numbers(spec: BufferSpec, array: Any) -> dict[str, Any]:
    return {_KEYS[spec.role]: write_integers(getattr(array, spec.role))}


def _write_values(spec: BufferSpec, array: Any) -> dict[str, Any]:
    values = (array.indices if array.type.layout == "dictionary" else array).values
    if array.null_count:
        values = values.copy()
        values[~array._valid()] = np.zeros(values.shape[1:], values.dtype)
    return {_KEYS[spec.role]: VALUES[array.type.descriptor.values].write(array.type, values)}


def _write_data(spec: BufferSpec, array: Any) -> dict[str, Any]:
    """Return the values, and offsets in which null slots take no bytes."""
    type = array.type
    texts = ["" if value is None else value if type.text else upper_hex(value) for value in array.to_pylist()]
    lengths = np.diff(array.offsets).astype(np.int64)[: len(array)] * array._valid()
    return {
        _KEYS["offsets"]: write_integers(offsets_of(lengths, type)),
        _KEYS[spec.role]: texts,
    }


def _write_views(spec: BufferSpec, array: Any) -> dict[str, Any]:
    data = array.views.tobytes()
    numbers = zip(range(4, 16 * len(array) + 4, 16), array.views.tolist(), strict=True)
    views = [_write_view(array.type, data[at : at + INLINE], *view) for at, view in numbers]
    return {_KEYS[spec.role]: views, _VARIADIC: [upper_hex(buffer.tobytes()) for buffer in array.data_buffers]}


def _write_view(type: Any, data: bytes, size: int, prefix: int, index: int, offset: int) -> dict[str, Any]:
    if size <= INLINE:
        return {"SIZE": size, "INLINED": decode(type, data[:size], 0) if type.text else upper_hex(data[:size])}
    return {"SIZE": size, "PREFIX_HEX": upper_hex(data[:4]), "BUFFER_INDEX": index, "OFFSET": offset}


_WRITE: dict[str, Callable[[BufferSpec, Any], dict[str, Any]]] = {
    "validity": _write_validity,
    "offsets": _write_numbers,
    "sizes": _write_numbers,
    "type_ids": _write_numbers,
    "values": _write_values,
    "data": _write_data,
    "views": _write_views,
}
