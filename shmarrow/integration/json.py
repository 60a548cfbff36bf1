"""Tables from and to the JSON format of Arrow's integration tests ("Integration Testing").

A document holds a schema, dictionaries and record batches; the buffers of each column are arrays of JSON values.
Invariants:

* one traversal driven by the buffer listing reads, another writes;
* errors raise :class:`InvalidData` with a path, such as ``batches[0].columns[2].children[0].DATA[7]``, and the expected
  and found values;
* null slots may hold any value in JSON, and are zero in tables read and documents written; only fixed-size binary
  preserves their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow import bitmap
from shmarrow.batch import RecordBatch
from shmarrow.bitmap import Mask
from shmarrow.buffer import Bytes, as_bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, InvalidType, LimitExceeded, Limits
from shmarrow.integration.json_schema import member, read_schema, shown, write_schema
from shmarrow.integration.json_values import (
    VALUES,
    check_kinds,
    read_hex,
    read_integers,
    read_text,
    upper_hex,
    write_integers,
)
from shmarrow.ipc.batch.encode import dictionaries_of
from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.layout import concat_arrays, make_array, nulls
from shmarrow.layout.listing import LISTING, BufferSpec
from shmarrow.layout.memory import check_expansion, frozen, offsets_of, read_only
from shmarrow.layout.text import decode
from shmarrow.layout.validation import check_buffers
from shmarrow.layout.views import INLINE
from shmarrow.sources import open_sink, open_source
from shmarrow.tables import Table
from shmarrow.types import DataType
from shmarrow.types.extension import ExtensionType

GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31
_PART = 1 << 20


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
    try:
        return _read_table(document, limits)
    except InvalidData as error:
        raise type(error)(f"{opened.name}: {error}") from None


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
        The destination; compressed if the name ends in ``.gz``.
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
    opened = open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    try:
        pieces = _pieces(table)
        for piece in _deflated(pieces) if opened.name.endswith(".gz") else pieces:
            opened.write([piece])
        opened.finish()
    except BaseException:
        opened.abort()
        raise


# --- documents ---------------------------------------------------------------------------------------------------


def _parse(data: Bytes, name: str, limits: Limits) -> Any:
    import json

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
    import zlib

    parts = []
    size = 0
    while data:
        inflate = zlib.decompressobj(_GZIP_WINDOW)
        while not inflate.eof:
            try:
                part = inflate.decompress(data, _PART)
            except zlib.error as error:
                raise InvalidData(f"{name}: its gzip data is corrupt: {error}") from None
            if not part and not inflate.eof:
                raise InvalidData(f"{name}: its gzip data is truncated after {size} decompressed bytes")
            data = inflate.unconsumed_tail or inflate.unused_data
            parts.append(part)
            size += len(part)
            if size > limits.decompressed_bytes:
                raise LimitExceeded(
                    f"{name}: more decompressed bytes than Limits.decompressed_bytes = {limits.decompressed_bytes}"
                )
    return b"".join(parts)


def _deflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    import zlib

    deflate = zlib.compressobj(wbits=_GZIP_WINDOW)
    for piece in pieces:
        yield deflate.compress(piece)
    yield deflate.flush()


def _read_table(document: Any, limits: Limits) -> Table:
    schema, wires = read_schema(member(document, "schema", dict, "the document"), "schema", limits)
    columns = _Columns(document)
    batches = []
    for i, item in enumerate(member(document, "batches", list, "the document")):
        count, found = columns.read_batch(item, wires, f"batches[{i}]")
        batches.append(RecordBatch(schema, count, found))
    return Table(schema, batches)


def _pieces(table: Table) -> Iterator[bytes]:
    """Yield the document in pieces, one per batch."""
    import json

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
    """Builds arrays from column objects, and the document's dictionaries on first use."""

    def __init__(self, document: Any) -> None:
        self._made: dict[tuple[int, DataType], Any] = {}
        self._busy: set[int] = set()
        self._dictionaries: dict[int, tuple[Any, str]] = {}
        for i, item in enumerate(member(document, "dictionaries", list, "the document", [])):
            where = f"dictionaries[{i}]"
            id = member(item, "id", int, where)
            if id in self._dictionaries:
                first = self._dictionaries[id][1]
                raise InvalidData(f"{where}.id: dictionary {id} is already defined in {first}")
            self._dictionaries[id] = (member(item, "data", dict, where), f"{where}.data")

    def read_batch(self, value: Any, wires: Sequence[FieldLayout], where: str) -> tuple[int, list[Any]]:
        """Return the number of rows and the columns of a batch object."""
        count = _count(value, where)
        items = _items(value, "columns", len(wires), where)
        columns = [self._named(item, wire, f"{where}.columns[{i}]") for i, (item, wire) in _pairs(items, wires)]
        for i, column in enumerate(columns):
            if len(column) != count:
                raise InvalidData(f"{where}.columns[{i}].count: expected {count}, as in the batch, found {len(column)}")
        return count, columns

    def _named(self, value: Any, wire: FieldLayout, where: str) -> Any:
        name = member(value, "name", str, where)
        if name != wire.field.name:
            raise InvalidData(f"{where}.name: expected {shown(wire.field.name)}, as in the schema, found {shown(name)}")
        return self._array(value, wire, where)

    def _array(self, value: Any, wire: FieldLayout, where: str) -> Any:
        type = wire.type
        layout = LISTING[type.layout]
        length = _count(value, where)
        has_type_ids = bool(layout.buffers) and layout.buffers[0].role == "type_ids"
        valid = None
        # Unions had validity before format 1.0.
        if layout.has_validity or (has_type_ids and _KEYS["validity"] in value):
            valid = _read_validity(value, length, where)
        slots = _Slots(value, type, length, valid, where)
        buffers: dict[Any, Bytes | None] = {}
        for spec in layout.buffers:
            buffers.update(_READ[spec.role](spec, slots))
        items = member(value, "children", list, where, [])
        if len(items) != len(wire.children):
            raise InvalidData(f"{where}.children: expected {len(wire.children)}, as in the schema, found {len(items)}")
        children = [
            self._named(item, child, f"{where}.children[{i}]") for i, (item, child) in _pairs(items, wire.children)
        ]
        null_count = 0 if valid is None else length - int(np.count_nonzero(valid))
        dictionary = None
        if wire.dictionary_id is not None:
            dictionary = self._dictionary(wire.dictionary_id, wire, null_count == length, where)
        counted = null_count if layout.has_validity else length if type.layout == "null" else 0
        made = make_array(type, length, list(buffers.values()), counted, 0, children, dictionary)
        try:
            check_buffers(made)
            made._check_structure()
            if has_type_ids and null_count:
                made = made.with_nulls(valid)
        except InvalidData as error:
            raise error.__class__(f"{where}: {error}") from None
        logical = wire.field.type
        return made if logical is type else made._with(type=logical)

    def _dictionary(self, id: int, wire: FieldLayout, unused: bool, where: str) -> Any:
        values = wire.values
        assert values is not None
        key = (id, values.field.type)
        if key in self._made:
            return self._made[key]
        if id not in self._dictionaries:
            if unused:
                return nulls(0, wire.type.value_type)
            raise InvalidData(f"{where}: its dictionary, id {id}, is not among {sorted(self._dictionaries)[:20]}")
        value, at = self._dictionaries[id]
        if id in self._busy:
            raise InvalidData(f"{at}: dictionary {id} refers to itself")
        self._busy.add(id)
        (item,) = _items(value, "columns", 1, at)
        made = self._array(item, values, f"{at}.columns[0]")
        if len(made) != _count(value, at):
            raise InvalidData(f"{at}.columns[0].count: expected {value['count']}, as in the batch, found {len(made)}")
        self._busy.discard(id)
        self._made[key] = made
        return made


def _pairs(items: Sequence[Any], wires: Sequence[FieldLayout]) -> Iterator[tuple[int, tuple[Any, FieldLayout]]]:
    return enumerate(zip(items, wires, strict=True))


def _count(value: Any, where: str) -> int:
    count: int = member(value, "count", int, where)
    if not 0 <= count < 1 << 63:
        raise InvalidData(f"{where}.count: expected a number from 0 to {(1 << 63) - 1}, found {shown(count)}")
    return count


def _items(value: Any, key: str, length: int, where: str) -> list[Any]:
    """Return an array member, checking its length."""
    items: list[Any] = member(value, key, list, where)
    if len(items) != length:
        raise InvalidData(f"{where}.{key}: expected {length} items, found {len(items)}")
    return items


def _read_validity(value: Any, length: int, where: str) -> Mask | None:
    """Return a mask of the valid slots; None if all are valid."""
    where, items = f"{where}.VALIDITY", _items(value, _KEYS["validity"], length, where)
    check_kinds(items, (int, bool), "0 or 1", where)
    if not set(items) <= {0, 1}:
        i = next(i for i, item in enumerate(items) if item not in (0, 1))
        raise InvalidData(f"{where}[{i}]: expected 0 or 1, found {shown(items[i])}")
    mask = np.array(items, np.bool_)
    return None if mask.all() else mask


class _Slots(NamedTuple):
    """The source of buffers: a column object, its type, length, validity mask and path."""

    value: Any
    type: Any
    length: int
    valid: Mask | None
    where: str

    def items(self, key: str, filler: Any) -> list[Any]:
        """Return an item per slot, with ``filler`` for null slots unless it is None."""
        items = _items(self.value, key, self.length, self.where)
        if self.valid is None or filler is None:
            return items
        return [item if keep else filler for item, keep in zip(items, self.valid.tolist(), strict=True)]


_Read: TypeAlias = "dict[Any, Bytes | None]"


def _validity_buffer(spec: BufferSpec, slots: _Slots) -> _Read:
    return {spec.role: None if slots.valid is None else read_only(bitmap.pack(slots.valid))}


def _integer_buffer(spec: BufferSpec, slots: _Slots) -> _Read:
    key = _KEYS[spec.role]
    items = member(slots.value, key, list, slots.where)
    if items or slots.length:  # some writers omit the single offset of an empty array
        items = _items(slots.value, key, slots.length + spec.extra, slots.where)
    return {spec.role: frozen(read_integers(items, np.dtype(f"<i{spec.bits >> 3}"), f"{slots.where}.{key}"))}


def _value_buffer(spec: BufferSpec, slots: _Slots) -> _Read:
    form = VALUES[slots.type.descriptor.values]
    items = slots.items(_KEYS[spec.role], form.zero(slots.type))
    return {spec.role: frozen(form.read(slots.type, items, f"{slots.where}.DATA"))}


def _data_buffer(spec: BufferSpec, slots: _Slots) -> _Read:
    """Return the data and new offsets, in which null slots take no bytes; OFFSET is only checked."""
    type, where = slots.type, f"{slots.where}.DATA"
    data, lengths = read_text(type.text, slots.items(_KEYS[spec.role], ""), where)
    offsets = read_integers(slots.value[_KEYS["offsets"]], type.offset_dtype, f"{slots.where}.OFFSET")
    wrong = np.diff(offsets) != lengths if len(lengths) else np.zeros(0, np.bool_)
    if slots.valid is not None:
        wrong &= slots.valid
    if wrong.any():
        i = int(wrong.argmax())
        between = int(offsets[i + 1]) - int(offsets[i])
        raise InvalidData(f"{where}[{i}]: expected {between} bytes, as in OFFSET, found {int(lengths[i])}")
    return {"offsets": frozen(offsets_of(lengths, type)), spec.role: as_bytes(data)}


def _view_buffers(spec: BufferSpec, slots: _Slots) -> _Read:
    views = slots.items(_KEYS[spec.role], _NO_VIEW)
    packed = [_read_view(item, slots.type.text, f"{slots.where}.VIEWS[{i}]") for i, item in enumerate(views)]
    parts = member(slots.value, _VARIADIC, list, slots.where)
    data = [as_bytes(read_hex([part], f"{slots.where}.{_VARIADIC}")[0]) for part in parts]
    return {spec.role: as_bytes(b"".join(packed)), **dict(enumerate(data))}


def _read_view(item: Any, text: bool, where: str) -> bytes:
    size = member(item, "SIZE", int, where)
    if size <= INLINE:
        value, _ = read_text(text, [member(item, "INLINED", str, where)], f"{where}.INLINED")
        if len(value) != size:
            raise InvalidData(f"{where}.SIZE: expected {len(value)}, the bytes of INLINED, found {shown(size)}")
        return _INLINED.pack(size, value)
    prefix, _ = read_hex([member(item, "PREFIX_HEX", str, where)], f"{where}.PREFIX_HEX")
    if len(prefix) != 4:
        raise InvalidData(f"{where}.PREFIX_HEX: expected 4 bytes, found {len(prefix)}")
    numbers = [size, member(item, "BUFFER_INDEX", int, where), member(item, "OFFSET", int, where)]
    if not all(0 <= number < 1 << 31 for number in numbers):
        found = ", ".join(map(shown, numbers))
        raise InvalidData(f"{where}: SIZE, BUFFER_INDEX and OFFSET have 32 bits, found {found}")
    return _OUTSIDE.pack(size, prefix, *numbers[1:])


_READ: dict[str, Callable[[BufferSpec, _Slots], _Read]] = {
    "validity": _validity_buffer,
    "offsets": _integer_buffer,
    "sizes": _integer_buffer,
    "type_ids": _integer_buffer,
    "values": _value_buffer,
    "data": _data_buffer,
    "views": _view_buffers,
}

# --- writing columns ---------------------------------------------------------------------------------------------


def _write_batch(names: Sequence[str], columns: Sequence[Any], count: int) -> dict[str, Any]:
    return {"count": count, "columns": [_write_column(*pair) for pair in zip(names, columns, strict=True)]}


def _write_column(name: str, column: Any) -> dict[str, Any]:
    try:
        array = column.trim()
        if isinstance(array.type, ExtensionType):
            array = array.storage
        layout = LISTING[array.type.layout]
        result: dict[str, Any] = {"name": name, "count": len(array)}
        if layout.has_validity and not array.nbytes:
            check_expansion(len(array), str(array.type))
        for spec in layout.buffers:
            result.update(_WRITE[spec.role](spec, array))
        if array.children:
            fields = zip(array.type.fields, array.children, strict=True)
            result["children"] = [_write_column(field.name, child) for field, child in fields]
    except InvalidData as error:
        raise type(error)(f"column {name!r}: {error}") from None
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
