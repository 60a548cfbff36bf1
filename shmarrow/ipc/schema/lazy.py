# SPDX-License-Identifier: Apache-2.0
"""Decoding of schemas, fields and types ("Schema message"), lazily; ``encode`` is the inverse.

A schema of 10,000 columns is scanned with a few array operations, see :mod:`~shmarrow.ipc.schema.scan`, as far as the
columns are asked for. Invariants:

* fields are parsed on access; parsing rejects whatever the scan could have read differently;
* each request is an operation with its own budget. Cached results have none, are only added or replaced as a whole, and
  take memory in proportion to the bytes;
* every number is read once and checked then, as other processes may write to the mapping;
* the bytes are a copy, so no schema pins a mapping.

Decoded schemas are cached, keyed by their bytes:

* cached schemas are immutable, and bounded in memory by their bytes: parsed fields take at most a multiple of these.
  All of them are dropped when there are too many;
* the cache changes by single steps, so threads may share it, and it stays usable after a fork.

Tables map to types by data, one row per type. A decoded field has the physical layout of its column: the type of its
buffers, its children, its dictionary.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow import types
from shmarrow.buffer import U1, Bytes, Indices
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, LimitExceeded, Limits, Unsupported, at
from shmarrow.ipc.flatbuffers.reader import FlatBuffer, Reader, TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.decode import message_at, read_key_values
from shmarrow.ipc.schema.scan import count_parts, flat_codes
from shmarrow.ipc.schema.types import read_index_type, read_type, text
from shmarrow.ipc.schema.wide import FEW, FieldTables
from shmarrow.layout.listing import walk
from shmarrow.types import DataType, Field, Schema, extension_type, generation


class FieldLayout(NamedTuple):
    """A field and its physical layout in a message.

    Attributes
    ----------
    field : Field
        The logical field.
    type : DataType
        The type of the buffers: the dictionary type for a dictionary-encoded field, the storage type for an extension
        type.
    dictionary_id : int or None
        The id of the field's dictionary.
    children : tuple of FieldLayout
        The children in the same message.
    values : FieldLayout or None
        For a dictionary-encoded field, the layout of the dictionary's values in their messages.
    """

    field: Field
    type: Any
    dictionary_id: int | None
    children: tuple[FieldLayout, ...]
    values: FieldLayout | None


def encoded_fields(fields: Sequence[FieldLayout]) -> list[FieldLayout]:
    """The dictionary-encoded fields among these and their descendants, in pre-order."""
    below = walk(fields, lambda field: (field.values or field).children)
    return [field for field in below if field.values is not None]


def parse_field(table: TableView, limits: Limits, depth: int = 0) -> FieldLayout:
    """Parse a Field table and its children."""
    if depth >= limits.depth:
        raise LimitExceeded(f"types nest deeper than Limits.depth = {limits.depth}")
    name = text(table["name"], "field name")
    encoding = table["dictionary"]
    below = depth + 1 if encoding is None else depth + 2
    children = tuple([parse_field(child, limits, below) for child in table["children"]])
    kind, type_table = table["type"]
    if type_table is None:
        raise InvalidData(f"field {name!r} has an unknown type, found {kind}")
    with at("field", name):
        type = read_type(kind, type_table, tuple([child.field for child in children]))
    metadata = read_key_values(table["custom_metadata"], table.reader)
    nullable = table["nullable"]
    storage: DataType = type
    dictionary_id = None
    values = None
    if encoding is not None:
        index = encoding["indexType"]
        with at("field", name), at("dictionary"):
            index_type = types.int32() if index is None else read_index_type(index)
        dictionary_id = encoding["id"]
        values = FieldLayout(Field(name, type), type, None, children, None)
        children = ()
        storage = types.DictionaryType(index_type, type, encoding["isOrdered"])
    logical, metadata = extension_type(storage, metadata)
    if values is not None and logical is not storage and isinstance(logical, types.DictionaryType):
        storage = logical  # the extension type applies to the values
        values = values._replace(field=Field(name, logical.value_type))
    return FieldLayout(Field(name, logical, nullable, metadata), storage, dictionary_id, children, values)


_FEW_SEARCHES = 4
_FIELD_BYTES = 500
"""Memory of a parsed field without its strings."""
_MOST_HELD = 32
"""Maximum memory of a schema as a multiple of its bytes, as malicious bytes may share targets."""


class LazySchema:
    """The lazily parsed fields of a :class:`Schema`.

    Attributes
    ----------
    big_endian : bool
        Whether buffers are big-endian.
    cached : bool
        Whether the bytes are a copy of just what the schema refers to, made for the cache.

    Notes
    -----
    Thread safety: may be shared. Racing threads may compute the same result; one is kept.
    """

    def __init__(self, buffer: FlatBuffer, first: int, count: int, big_endian: bool = False) -> None:
        self.big_endian = big_endian
        self.cached = False
        self._tables = FieldTables(buffer, first, count)
        self._count = count
        self._held = 0
        self._layouts: dict[int, FieldLayout] = {}
        self._by_name: dict[bytes, list[int]] | None = None
        self._searches = 0
        self._dictionary_values: dict[int, FieldLayout] | None = None
        self._plain: tuple[list[Any], Indices] | None = None
        # Where the buffers of the leading columns begin, as far as they were scanned, while each has one node.
        self._flat: Indices = np.zeros(1, np.int64)
        self._starts: Indices | None = None  # of all columns, if some have more
        self._nested_dictionaries = False

    @classmethod
    def of(cls, schema: Schema) -> LazySchema:
        """The source of a schema that was read."""
        source = schema._source
        assert isinstance(source, LazySchema)
        return source

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """The number of bytes of the FlatBuffer."""
        return self._tables.buffer.size

    # --- fields ---

    def layout(self, index: int) -> FieldLayout:
        """The layout of a column."""
        return self._layouts.get(index) or self.layouts([index])[0]

    def layouts(self, indices: Iterable[int] | None = None) -> list[FieldLayout]:
        """The layouts of some or all columns, in one operation."""
        cached, tables = self._layouts.get, self._tables
        if indices is None and self._count > max(FEW, len(self._layouts)):
            self._parse_alike()
        reader = tables.buffer.operation()
        layouts = []
        grown = 0
        for i in range(self._count) if indices is None else indices:
            layout = cached(i)
            if layout is None:
                layout = parse_field(reader.table("Field", tables.position_of(i)), reader.limits)
                if self._held + grown <= _MOST_HELD * reader.size:  # else too much is shared to be cached
                    layout = self._layouts.setdefault(i, layout)
                    grown += _memory_of(layout)
            layouts.append(layout)
        self._held += grown
        return layouts

    def _parse_alike(self) -> None:
        """Parse the fields of a wide schema that differ in name and nullability only: a type once for all of them."""
        tables = self._tables
        groups = [group for group in tables.alike() if len(group) > 1]
        if not groups or 2 * self._count > tables.buffer.operation().tables_left:
            return
        names, nullable = self.names(), tables.nullable()
        size = _FIELD_BYTES * self._count + 4 * sum(map(len, names))
        if self._held + size > _MOST_HELD * tables.buffer.size:
            return
        add = self._layouts.setdefault
        for group, first in zip(groups, self.layouts([group[0] for group in groups]), strict=True):
            if first.field.type is first.type:
                for i in group:
                    add(i, FieldLayout(Field(names[i], first.type, nullable[i]), first.type, None, (), None))
        self._held += size

    def field(self, index: int) -> Field:
        return self.layout(index).field

    def fields(self) -> list[Field]:
        return [layout.field for layout in self.layouts()]

    def dictionary_layouts(self) -> dict[int, FieldLayout]:
        """The layout of each dictionary's values, by id; parses all fields.

        Raises
        ------
        InvalidData
            If fields share a dictionary but differ in value type, or a dictionary refers to itself.
        """
        if self._dictionary_values is None:
            by_id: dict[int, FieldLayout] = {}
            for layout in encoded_fields(self.layouts()):
                id, values = layout.dictionary_id, layout.values
                assert id is not None
                assert values is not None
                type = by_id.setdefault(id, values).field.type
                if type != values.field.type:
                    raise InvalidData(
                        f"dictionary {id} has values of type {type} in one field and {values.field.type} in another"
                    )
            _check_nesting({id: inner_dictionaries(values) for id, values in by_id.items()}, self._tables.buffer.limits)
            self._dictionary_values = by_id
        return self._dictionary_values

    def plain(self) -> tuple[list[Any], Indices]:
        """The columns of primitive layout: the type of each, else None, and its width in bytes, shape (n,), else 0.

        Parses one field of all that are alike.
        """
        if self._plain is None:
            types: list[Any] = [None] * self._count
            widths = np.zeros(self._count, np.int64)
            groups = list(self._tables.alike())
            for layout, group in zip(self.layouts([group[0] for group in groups]), groups, strict=True):
                if layout.type.layout == "primitive" and layout.field.type is layout.type:
                    widths[group] = layout.type.storage.itemsize  # type: ignore[union-attr]
                    for i in group:
                        types[i] = layout.type
            self._plain = types, widths
        return self._plain

    # --- names ---

    def names(self) -> list[str]:
        return [text(name, "field name") for name in self._tables.names()]

    def find(self, name: str) -> list[int]:
        """The positions of the columns of a name; a few times by searching the bytes, then all names are listed."""
        try:
            coded = name.encode()
        except UnicodeEncodeError:
            return []
        if self._by_name is None:
            self._searches += 1
            if self._count > FEW and self._searches <= _FEW_SEARCHES:
                return self._tables.search(coded)
            names = self._tables.names()
            positions: dict[bytes, list[int]] = {}
            for i, each in enumerate(names):
                positions.setdefault(each, []).append(i)
            self._by_name = positions
        return list(self._by_name.get(coded, ()))

    # --- where columns begin ---

    def start(self, index: int) -> tuple[int, int, int, int]:
        """Index of a column's first node, buffer, variadic count, and bitmap present in V4 only.

        ``len(self)`` gives the totals.
        """
        flat: Indices | None = self._flat
        if index >= len(self._flat):
            flat = self._flat_to(index)
        if flat is not None:
            return index, int(flat[index]), 0, 0
        assert self._starts is not None
        node, buffer, variadic, bitmap = self._starts[:, index].tolist()
        return node, buffer, variadic, bitmap

    def flat_starts(self) -> Indices | None:
        """Index of each column's first buffer, shape (n + 1,), if all have one node and no variadic counts.

        Raises
        ------
        InvalidData
            If a field is invalid.
        """
        return self._flat_to(self._count)

    @property
    def nested_dictionaries(self) -> bool:
        """Whether dictionary values may be dictionary-encoded themselves."""
        self._flat_to(self._count)
        return self._nested_dictionaries

    def check_reach(self) -> None:
        """Check that all offsets of the fields stay within the bytes.

        Raises
        ------
        InvalidData
            If one does not, or a field is invalid.
        """
        if self.flat_starts() is None or not self._tables.types_within():
            self.layouts()

    def _flat_to(self, end: int) -> Indices | None:
        """Scan the fields up to at least ``end``; if not all are flat, scan the whole schema.

        Results are replaced as a whole, as other threads may scan as well.
        """
        flat = self._flat
        if end < len(flat) or self._starts is not None:
            return flat if self._starts is None else None
        first = len(flat) - 1
        codes, nested = flat_codes(self._tables, first, min(max(end, 2 * first, FEW), self._count))
        self._nested_dictionaries |= nested
        if codes is not None:
            self._flat = flat = np.concatenate([flat, flat[-1] + codes.cumsum(dtype=np.int64)])
            return flat
        counts, nested = count_parts(self._tables)
        self._nested_dictionaries |= nested
        starts = np.zeros((4, self._count + 1), np.int64)
        self._starts = np.cumsum(counts, axis=1, out=starts[:, 1:]).base
        return None


def inner_dictionaries(values: FieldLayout) -> set[int]:
    """The ids of the dictionaries that the values of a dictionary refer to."""
    return {inner.dictionary_id for inner in encoded_fields(values.children) if inner.dictionary_id is not None}


def _check_nesting(inner: dict[int, set[int]], limits: Limits) -> None:
    """Check that dictionaries do not refer to themselves, directly or through others."""
    for _ in range(limits.depth):
        inner = {id: left for id, ids in inner.items() if (left := ids & inner.keys())}
        if not inner:
            return
    raise InvalidData(
        f"dictionary {min(inner)} refers to itself, or over more than Limits.depth = {limits.depth} others"
    )


def lazy_schema(table: TableView) -> LazySchema:
    """Open a Schema table.

    Parameters
    ----------
    table : TableView
        The Schema table.

    Raises
    ------
    InvalidData
        If the table is invalid.
    Unsupported
        If the schema uses an unknown feature ("Feature" in Schema.fbs).
    """
    reader = table.reader
    endianness = table["endianness"]
    if endianness not in ENUMS["Endianness"].values():
        raise InvalidData(f"{reader.where}: endianness must be 0 or 1, found {endianness}")
    features = table["features"]
    if features is not None:
        unknown = features[(features < 0) | (features > max(ENUMS["Feature"].values()))]
        if len(unknown):
            names = ", ".join([f"{number} ({name})" for name, number in ENUMS["Feature"].items()])
            raise Unsupported(f"{reader.where}: the schema uses unknown feature number {unknown[0]}; known are {names}")
    slot = table.offset_of("fields")
    if not slot:
        raise InvalidData(f"{reader.where}: the schema has no vector of fields")
    first, count = reader.vector_at(slot, 4, "Schema", "fields")
    big = endianness == ENUMS["Endianness"]["Big"]
    return LazySchema(reader, first, count, big)


def _memory_of(layout: FieldLayout) -> int:
    """Memory of a parsed field and its children, in bytes; a conservative estimate."""
    field = layout.field
    own = _FIELD_BYTES + 4 * len(field.name)
    if field.metadata:
        own += sum([len(key) + len(value) + _FIELD_BYTES // 2 for key, value in field.metadata.items()])
    below = layout.children if layout.values is None else (layout.values,)
    return own + sum(map(_memory_of, below))


CACHE_BYTES = 4 << 20
"""Maximum size of a process's cached schemas, in bytes; once parsed, all fields take up to 32 times as much."""
MOST_CACHED = 1024


class SchemaCache:
    """Schemas by their bytes; bounded in number and bytes, and emptied when it is full.

    Notes
    -----
    Thread safety: may be shared; of racing threads, one may lose what it adds.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[bytearray, Schema]] = {}
        self._size = 0

    def find(self, key: Hashable, data: Bytes) -> Schema | None:
        """Return the schema of these bytes; None if it is not there."""
        entry = self._entries.get(key)
        # memcmp, as the left side is a bytearray
        return entry[1] if entry is not None and entry[0] == data.data else None

    def add(self, key: Hashable, data: bytearray, schema: Schema) -> None:
        """Keep a schema in place of any other with this key."""
        if len(data) > CACHE_BYTES:
            return
        if self._size + len(data) > CACHE_BYTES or len(self._entries) >= MOST_CACHED:
            self._entries, self._size = {}, 0
        self._entries[key] = data, schema
        self._size += len(data)


_SCHEMAS = SchemaCache()


def read_schema(data: Bytes, position: int, where: str, limits: Limits, lowest: int = 0) -> Schema:
    """Read the schema in a Schema table; equal bytes share one object.

    FlatBuffers are built back to front, so all that a Schema table refers to is normally between the table and the end
    of the FlatBuffer; those bytes are the cache key. For other builders, the whole FlatBuffer is parsed each time.

    Parameters
    ----------
    data : uint8 ndarray
        The FlatBuffer.
    position : int
        Position of the Schema table.
    where : str
        Describes the bytes in error messages.
    limits : Limits
        Bounds on what is accepted.
    lowest : int
        For a part of a larger FlatBuffer, such as a file's footer: where the table or its vtable begins.

    Raises
    ------
    InvalidData
        If the bytes are invalid.
    Unsupported
        If the schema uses an unknown feature.
    """
    start = lowest & ~7
    region = data[start:]
    key = (len(region), position - start, limits._key, generation(), region[:64].tobytes(), region[-64:].tobytes())
    cached = _SCHEMAS.find(key, region)
    if cached is not None:
        return cached
    own = bytearray(region)
    try:
        schema = _parse(_read_only(np.frombuffer(own, U1)), position, start, where, limits)
    except InvalidData:
        return _parse(_read_only(data.copy()), position, 0, where, limits)
    _SCHEMAS.add(key, own, schema)
    LazySchema.of(schema).cached = True
    return schema


def schema_in(data: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> Schema:
    """Read the schema in a Schema message; errors as :func:`read_schema`, InvalidData for another message."""
    located = message_at(data, 0, where, limits, cut=True)
    if located is None or located.message.kind != "Schema":
        raise InvalidData(f"{where}: expected a Schema message")
    header = located.message.header
    return read_schema(header.reader.data, header.position, where, limits)


def _read_only(data: Bytes) -> Bytes:
    data.flags.writeable = False
    return data


def schema_region(schema: Schema) -> int:
    """The number of bytes at the end of a footer that a schema was read from; 0 if it was not copied to be cached."""
    source = LazySchema.of(schema)
    return source.size if source.cached else 0


def _parse(data: Bytes, position: int, start: int, where: str, limits: Limits) -> Schema:
    """Parse the Schema table at ``position``, for data that begins at ``start``."""
    table = Reader(data, where, limits).table("Schema", position - start)
    source = lazy_schema(table)
    if start:
        source.check_reach()
    else:
        source.flat_starts()
    return Schema(metadata=read_key_values(table["custom_metadata"], table.reader), source=source)
