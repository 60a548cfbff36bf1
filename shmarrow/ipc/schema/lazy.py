"""Lazily parsed schemas.

A schema of 10,000 columns is scanned with a few array operations, which locate each column's nodes and buffers in a
record batch. Invariants:

* the scan checks every position before reading it, level by level, and bounds the number of fields;
* fields are parsed on access; parsing rejects whatever the scan could have read differently;
* each request is an operation with its own budget. Cached results have none, are only added or replaced as a whole, and
  take memory in proportion to the bytes;
* every number is read once and checked then, as other processes may write to the mapping;
* the bytes are borrowed until the schema is kept, and copied then, so no schema pins a mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from shmarrow.buffer import Bytes, Indices, NDArray
from shmarrow.errors import InvalidData, LimitExceeded, Limits, Unsupported
from shmarrow.ipc.flatbuffers.reader import I4, U4, FlatBuffer, TableView, extent
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.schema.decode import FieldLayout, encoded_fields, parse_field
from shmarrow.ipc.schema.types import text
from shmarrow.ipc.schema.wide import CHILDREN, DICTIONARY, NULLABLE, TYPE, TYPE_TAG, FieldTables
from shmarrow.layout.listing import LISTING
from shmarrow.types import Field, Schema
from shmarrow.types.descriptors import TYPES, TypeDescriptor

# What the scan needs of a type: its number of buffers, and these flags.
_BUFFERS, _VARIADIC, _V4_BITMAP, _NESTED, _UNKNOWN = 15, 16, 32, 64, 128

_UNION_TAG = UNIONS["Type"].index("Union") + 1
_DENSE = ENUMS["UnionMode"]["Dense"]


def _code(descriptor: TypeDescriptor) -> int:
    layout = LISTING[descriptor.layouts[0]]  # for unions the sparse layout; dense ones have one more buffer
    code = len(layout.buffers) | _VARIADIC * layout.variadic
    return code | _NESTED * bool(descriptor.children) | _V4_BITMAP * layout.v4_validity


_CODES = np.full(256, _UNKNOWN, np.uint8)
_CODES[1 : len(TYPES) + 1] = [_code(descriptor) for descriptor in TYPES]
_CODES_LISTED: list[int] = _CODES.tolist()
_ENCODED = len(LISTING["dictionary"].buffers)

_FEW_FIELDS = 48
_FEW_SEARCHES = 4
_FIELD_BYTES, _NAME_BYTES = 500, 150
"""Memory of a parsed field and of a name in the index of names, without their strings."""
_MOST_HELD = 128
"""Maximum memory of a schema as a multiple of its bytes, as malicious bytes may share targets."""

_Codes: TypeAlias = int | Bytes
"""Buffer counts of some columns: one each, or a single number if all are equal."""
_Scanned: TypeAlias = tuple[int, int, Bytes | None]
"""Number of leading fields known to be flat, their common buffer count, or the count of each."""


def ignore_growth(size: int) -> None:
    """Ignore growth of a schema that is not cached."""


class LazySchema:
    """The lazily parsed fields of a :class:`Schema`.

    Attributes
    ----------
    big_endian : bool
        Whether buffers are big-endian.
    borrowed : bool
        Whether the bytes are in a mapping, which the schema then pins.
    grown : callable
        Called with the growth in bytes as fields are parsed.

    Notes
    -----
    Thread safety: may be shared. Racing threads may compute the same result; one is kept.
    """

    def __init__(
        self, buffer: FlatBuffer, first: int, count: int, big_endian: bool = False, borrowed: bool = False
    ) -> None:
        self.big_endian = big_endian
        self.borrowed = borrowed
        self.grown: Callable[[int], None] = ignore_growth
        self._tables = FieldTables(buffer, first, count)
        self._count = count
        self._held = 0
        self._layouts: dict[int, FieldLayout] = {}
        self._by_name: dict[bytes, list[int]] | None = None
        self._searches = 0
        self._dictionary_values: dict[int, FieldLayout] | None = None
        self._starts: Indices | None = None
        self._types: list[Any] | None = None
        self._widths: Indices | None = None
        # Number of leading fields known to be flat (one node, no variadic counts); their common buffer count; or the
        # count of each, if they differ.
        self._scanned: _Scanned = (0, 0, None)
        # If the schema is not flat: rows of each column's nodes, buffers, variadic counts and V4 bitmaps.
        self._totals: NDArray | None = None
        self._nested_dictionaries = False

    @classmethod
    def of(cls, schema: Schema) -> LazySchema:
        """The source of a schema that was read."""
        source = schema._source
        assert isinstance(source, LazySchema)
        return source

    def detach(self) -> None:
        """Copy borrowed bytes, so that the schema stops pinning the mapping."""
        if self.borrowed:
            buffer = self._tables.buffer
            own = buffer.data.copy()
            own.flags.writeable = False
            self._tables = self._tables.over(FlatBuffer(own, buffer.where, buffer.limits))
            self.borrowed = False

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """The number of bytes of the FlatBuffer."""
        return self._tables.buffer.size

    def has_same_bytes(self, other: LazySchema) -> bool:
        """Whether both have the same bytes, and so equal fields; False is inconclusive."""
        mine, theirs = self._tables, other._tables
        short, long = sorted([mine.buffer.data, theirs.buffer.data], key=len)
        return (
            self._count == other._count
            and self.big_endian == other.big_endian
            and len(mine.buffer.data) - mine.first == len(theirs.buffer.data) - theirs.first
            and short.data == long[len(long) - len(short) :].data
        )

    # --- fields ---

    def wire(self, index: int) -> FieldLayout:
        """The layout of a column."""
        return self._layouts.get(index) or self.wires([index])[0]

    def wires(self, indices: Iterable[int] | None = None) -> list[FieldLayout]:
        """The layouts of some or all columns, in one operation."""
        known, tables = self._layouts.get, self._tables
        if indices is None and self._count > max(_FEW_FIELDS, len(self._layouts)):
            self._parse_alike()
        reader = tables.buffer.operation()
        found = []
        grown = 0
        for i in range(self._count) if indices is None else indices:
            layout = known(i)
            if layout is None:
                layout = parse_field(reader.table("Field", tables.position_of(i)), reader.limits)
                if self._held + grown <= _MOST_HELD * reader.size:  # else too much is shared to be cached
                    layout = self._layouts.setdefault(i, layout)
                    grown += _memory_of(layout)
            found.append(layout)
        if grown:
            self._account(grown)
        return found

    def _parse_alike(self) -> None:
        """Parse the fields of a wide schema that differ in name and nullability only: a type once for all of them."""
        tables = self._tables
        groups = [group for _, group in self._alike() if len(group) > 1] if self.scan() else []
        if not groups or 2 * self._count > tables.buffer.operation().tables_left:
            return
        names = self.names()
        size = _FIELD_BYTES * self._count + 4 * sum(map(len, names))
        if self._held + size > _MOST_HELD * tables.buffer.size:
            return
        (slots,) = tables.slots(tables.positions, (NULLABLE,))
        flags = [False] * self._count if slots is None else (tables.buffer.data[slots] * (slots != 0) != 0).tolist()
        known = self._layouts.setdefault
        for group, first in zip(groups, self.wires([group[0] for group in groups]), strict=True):
            if first.field.type is first.type:
                for i in group:
                    known(i, FieldLayout(Field(names[i], first.type, flags[i]), first.type, None, (), None))
        self._account(size)

    def _account(self, size: int) -> None:
        self._held += size
        self.grown(size)

    def field(self, index: int) -> Field:
        return self.wire(index).field

    def fields(self) -> list[Field]:
        return [wire.field for wire in self.wires()]

    def dictionary_wires(self) -> dict[int, FieldLayout]:
        """The layout of each dictionary's values, by id; parses all fields.

        Raises
        ------
        InvalidData
            If fields share a dictionary but differ in value type, or a dictionary refers to itself.
        """
        if self._dictionary_values is None:
            found: dict[int, FieldLayout] = {}
            for wire in encoded_fields(self.wires()):
                id, values = wire.dictionary_id, wire.values
                assert id is not None
                assert values is not None
                type = found.setdefault(id, values).field.type
                if type != values.field.type:
                    raise InvalidData(
                        f"dictionary {id} has values of type {type} in one field and {values.field.type} in another"
                    )
            _check_nesting({id: inner_dictionaries(values) for id, values in found.items()}, self._tables.buffer.limits)
            self._dictionary_values = found
        return self._dictionary_values

    def plain_types(self) -> list[Any]:
        """The type of each column of primitive layout, else None; parses one field per distinct type."""
        if self._types is None:
            found: list[Any] = [None] * self._count
            groups = list(self._alike() if self._count > _FEW_FIELDS and self.scan() else self._each())
            for wire, (_, group) in zip(self.wires([first for first, _ in groups]), groups, strict=True):
                if wire.type.layout == "primitive" and wire.field.type is wire.type:
                    for i in group:
                        found[i] = wire.type
            self._types = found
        return self._types

    def plain_widths(self) -> Indices:
        """The slot width of each column in bytes, shape (n,); 0 for those that are not of primitive layout."""
        if self._widths is None:
            widths = [0 if type is None else type.storage.itemsize for type in self.plain_types()]
            self._widths = np.array(widths, np.int64)
        return self._widths

    def _each(self) -> Iterator[tuple[int, Sequence[int]]]:
        return ((i, (i,)) for i in range(self._count))

    def _alike(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Groups of columns of equal type, with one representative; single columns where equality is not obvious."""
        tables = self._tables
        tags_at, children = tables.slots(tables.positions, (TYPE_TAG, CHILDREN))
        found = tables.type_tables()
        if tags_at is None or found is None:
            return self._each()
        if children is not None and (not int(children.min()) or tables.follow(children, "a field's children")[1].any()):
            return self._each()
        tags = tables.buffer.data.take(tags_at)
        types_at, vtables = found
        groups: list[tuple[int, Sequence[int]]] = []
        for tag in np.unique(tags).tolist():
            group = np.flatnonzero(tags == tag)
            known = 0 < tag <= len(UNIONS["Type"])  # the bytes may have changed since
            same = known and bool((vtables[group] == vtables[group[0]]).all())
            if same and tables.same_tables(types_at[group], UNIONS["Type"][tag - 1]):
                groups.append((int(group[0]), group.tolist()))
            else:
                groups += [(i, (i,)) for i in group.tolist()]
        return iter(groups)

    # --- names ---

    def names(self) -> list[str]:
        return [text(name, "field name") for name in self._tables.names()]

    def find(self, name: str) -> list[int]:
        """The positions of the columns of a name; a few times by searching the bytes, then all names are listed."""
        try:
            wanted = name.encode()
        except UnicodeEncodeError:
            return []
        if self._by_name is None:
            self._searches += 1
            if self._count > _FEW_FIELDS and self._searches <= _FEW_SEARCHES:
                return self._tables.search(wanted)
            names = self._tables.names()
            found: dict[bytes, list[int]] = {}
            for i, raw in enumerate(names):
                found.setdefault(raw, []).append(i)
            self._by_name = found
            self._account(_NAME_BYTES * len(names) + sum(map(len, names)))
        return list(self._by_name.get(wanted, ()))

    # --- column starts ---

    @property
    def nested_dictionaries(self) -> bool:
        """Whether dictionary values may be dictionary-encoded themselves."""
        self.scan()
        return self._nested_dictionaries

    def flat_starts(self) -> Indices | None:
        """Index of each column's first buffer, shape (n + 1,), if all have one node and no variadic counts."""
        scanned = self._scan_flat(self._count)
        if scanned is None:
            return None
        _, uniform, codes = scanned
        if codes is None:
            return np.arange(self._count + 1) * uniform
        starts = np.zeros(self._count + 1, np.int64)
        np.cumsum(codes, out=starts[1:])
        return starts

    def start(self, index: int) -> tuple[int, int, int, int]:
        """Index of a column's first node and buffer; ``len(self)`` gives the totals.

        Returns the indices of nodes, buffers, variadic counts, and bitmaps present in V4 only.
        """
        if self._starts is None:
            known = self._scanned
            scanned = known if index <= known[0] else self._scan_flat(index)
            if scanned is not None:
                _, uniform, codes = scanned
                return index, index * uniform if codes is None else int(codes[:index].sum()), 0, 0
            totals = self._totals
            assert totals is not None
            starts = np.zeros((self._count + 1, 4), np.int64)
            np.cumsum(totals.T, axis=0, out=starts[1:])
            self._starts = starts
        node, buffer, variadic, bitmaps = self._starts[index].tolist()
        return node, buffer, variadic, bitmaps

    # --- the scan ---

    def scan(self) -> bool:
        """Scan all fields; returns whether all are flat.

        Raises
        ------
        InvalidData
            If a field is invalid.
        """
        return self._scan_flat(self._count) is not None

    def check_reach(self) -> None:
        """Check that all offsets of the fields stay within the bytes.

        Raises
        ------
        InvalidData
            If one does not, or a field is invalid.
        """
        if self.scan() and self._tables.types_within():
            return
        self.wires()

    def _scan_flat(self, end: int) -> _Scanned | None:
        """Scan the fields up to at least ``end``; if not all are flat, scan the whole schema.

        The result is replaced as a whole, as other threads may scan concurrently.
        """
        scanned = self._scanned
        start, uniform, known = scanned
        if min(end, self._count) <= start:
            return scanned
        if self._totals is not None:
            return None
        end = min(max(end, 2 * start, _FEW_FIELDS), self._count)
        codes = self._few_codes(start, end) if end - start <= _FEW_FIELDS else None
        if codes is None:
            codes, _ = self._level(self._tables.positions_of(start, end))
            if int(codes.max()) > _BUFFERS:
                self._totals = self._scan()
                return None
        if isinstance(codes, int) and known is None and (not start or codes == uniform):
            uniform = codes
        else:
            known = np.full(self._count, uniform, np.uint8) if known is None else known
            known[start:end] = codes
        self._scanned = scanned = end, uniform, known
        return scanned

    def _few_codes(self, start: int, end: int) -> _Codes | None:
        """Buffer counts of a few columns, one by one; None if one is nested, encoded or invalid."""
        buffer = self._tables.buffer
        view, size = buffer.view, buffer.size
        known, table_size, tag_at = -1, 0, 0
        codes = bytearray()
        for slot in range(self._tables.first + 4 * start, self._tables.first + 4 * end, 4):
            position = slot + U4(view, slot)[0]
            if position + 4 > size:
                return None
            vtable = position - I4(view, position)[0]
            if vtable != known:
                offsets = buffer.table_at("Field", position)[1]
                tag_at, _, dictionary = (*offsets, 0, 0, 0, 0, 0)[TYPE_TAG : DICTIONARY + 1]
                if dictionary or tag_at < 4:
                    return None
                known, table_size = vtable, extent("Field", offsets)
            if position + table_size > size:
                return None
            code = _CODES_LISTED[view[position + tag_at]]
            if code > _BUFFERS:
                return None
            codes.append(code)
        return codes[0] if codes.count(codes[0]) == len(codes) else np.frombuffer(codes, np.uint8)

    def _scan(self) -> NDArray:
        """Count the nodes and buffers of every column, level by level."""
        positions, buffer = self._tables.positions, self._tables.buffer
        count = self._count
        codes, children = self._level(positions)
        totals = np.zeros((4, count), np.int64)
        owners: Indices | None = None
        seen = 0
        for _ in range(buffer.limits.depth):
            seen += len(positions)
            if seen > min(buffer.limits.tables, buffer.size):
                raise LimitExceeded(f"{buffer.where}: more fields than its {buffer.size} bytes can hold")
            variadic, bitmaps = (codes & _VARIADIC) // _VARIADIC, (codes & _V4_BITMAP) // _V4_BITMAP
            for row, amount in zip(totals, (np.ones_like(codes), codes & _BUFFERS, variadic, bitmaps), strict=True):
                row += amount if owners is None else np.bincount(owners, amount, count).astype(np.int64)
            if children is None:
                return totals
            parents = np.flatnonzero((codes & _NESTED != 0) & (children != 0))
            if not len(parents):
                return totals
            positions, sizes = self._tables.below(children[parents])
            if not len(positions):
                return totals
            owners = np.repeat(parents if owners is None else owners[parents], sizes)
            codes, children = self._level(positions)
        raise LimitExceeded(f"types nest deeper than Limits.depth = {buffer.limits.depth}")

    def _level(self, positions: Indices) -> tuple[Bytes, Indices | None]:
        """The scan codes of the fields' types, and the positions of the offsets of their children."""
        buffer = self._tables.buffer
        tags_at, encodings = self._tables.slots(positions, (TYPE_TAG, DICTIONARY))
        if tags_at is None or not int(tags_at.min()):
            raise InvalidData(f"{buffer.where}: a field has no type")
        tags = buffer.data.take(tags_at)
        codes = _CODES.take(tags)
        most = int(codes.max())
        if most >= _UNKNOWN:
            found = int(tags[int(np.argmax(codes))])
            raise InvalidData(f"{buffer.where}: a field has type {found}, expected 1 to {len(UNIONS['Type'])}")
        if encodings is not None:
            encoded = encodings != 0
            self._nested_dictionaries |= bool((codes[encoded] & _NESTED).any())
            codes = np.where(encoded, _ENCODED, codes)
        if most < _NESTED:
            return codes, None
        types_at, children = self._tables.slots(positions, (TYPE, CHILDREN))
        reader = buffer.operation()
        for i in np.flatnonzero((tags == _UNION_TAG) & (codes != _ENCODED)).tolist():
            if types_at is not None and types_at[i]:
                union = reader.table("Union", buffer.follow(int(types_at[i]), "Field", "type"))
                codes[i] += union["mode"] == _DENSE
        return codes, children


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


def lazy_schema(table: TableView, borrowed: bool = False) -> LazySchema:
    """Open a Schema table.

    Parameters
    ----------
    table : TableView
        The Schema table.
    borrowed : bool
        Whether the bytes are in a mapping, which a kept schema must not pin.

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
            known = ", ".join([f"{number} ({name})" for name, number in ENUMS["Feature"].items()])
            raise Unsupported(f"{reader.where}: the schema uses unknown feature number {unknown[0]}; known are {known}")
    slot = table.offset_of("fields")
    if not slot:
        raise InvalidData(f"{reader.where}: the schema has no vector of fields")
    first, count = reader.vector_at(slot, 4, "Schema", "fields")
    big = endianness == ENUMS["Endianness"]["Big"]
    return LazySchema(FlatBuffer(reader.data, reader.where, reader.limits), first, count, big, borrowed)


def _memory_of(layout: FieldLayout) -> int:
    """Memory of a parsed field and its children, in bytes; a conservative estimate."""
    field = layout.field
    metadata = sum([len(key) + len(value) + _FIELD_BYTES // 2 for key, value in (field.metadata or {}).items()])
    own = _FIELD_BYTES + 4 * len(field.name) + metadata
    below = layout.children if layout.values is None else (layout.values,)
    return own + sum([_memory_of(child) for child in below])
