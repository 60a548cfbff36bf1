"""Schemas that were read, parsed as far as they are asked for.

A schema of 10,000 columns is scanned with a few array operations, which say where each column's nodes and buffers start
in a record batch. Rules kept here:

* the scan checks every position before it reads there, level by level, and bounds the number of fields;
* a field is parsed when it is asked for; where the scan and the parsed fields could disagree, parsing refuses;
* every number is read from the bytes once and checked then: they may lie in a mapping that others write to;
* the bytes stay where they are until somebody keeps the schema, and are copied then, so that no schema holds a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shmarrow.buffer import U1
from shmarrow.errors import InvalidData, LimitExceeded, Limits
from shmarrow.ipc.flatbuffers.reader import I4, U4, WORD, Reader, TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.schema.decode import FieldLayout, Positions, parse_field
from shmarrow.ipc.schema.fast_decode import plain_field, plain_type
from shmarrow.ipc.schema.types import text
from shmarrow.ipc.schema.wide import CHILDREN, DICTIONARY, TYPE, TYPE_TAG, FieldTables, every, highest
from shmarrow.layout.listing import LISTING
from shmarrow.types import Field
from shmarrow.types.descriptors import TYPES, TypeDescriptor

if TYPE_CHECKING:
    import numpy.typing as npt


# What the scan has to know of a type: how many buffers it has, and whether it is special in one of these ways.
_BUFFERS, _VARIADIC, _V4_BITMAP, _NESTED, _UNKNOWN = 15, 16, 32, 64, 128

_UNION_TAG = UNIONS["Type"].index("Union") + 1
_DENSE = ENUMS["UnionMode"]["Dense"]


def _code(descriptor: TypeDescriptor) -> int:
    layout = LISTING[descriptor.layouts[0]]  # of unions the sparse one: dense ones have one buffer more
    code = len(layout.buffers) | _VARIADIC * layout.variadic
    return code | _NESTED * bool(descriptor.children) | _V4_BITMAP * layout.v4_validity


_CODES = np.full(256, _UNKNOWN, np.uint8)
_CODES[1 : len(TYPES) + 1] = [_code(descriptor) for descriptor in TYPES]
_CODES_LISTED: list[int] = _CODES.tolist()
_ENCODED = len(LISTING["dictionary"].buffers)

_Codes: TypeAlias = "int | npt.NDArray[np.uint8]"
"""The buffers of some columns: of each, or one number where all have as many."""
_Scanned: TypeAlias = "tuple[int, int, npt.NDArray[np.uint8] | None]"
"""How many fields from the first on are known to be plain, the buffers that each of them has, or those of each."""


class LazySchema:
    """The fields of a schema that was read; the source of a :class:`Schema`.

    Attributes
    ----------
    big_endian : bool
        Whether the numbers in buffers are big endian.
    features : list of int
        What the writer says it makes use of.
    borrowed : bool
        Whether the bytes lie in a mapping, which the schema holds for as long as it does.
    """

    def __init__(
        self,
        reader: Reader,
        limits: Limits,
        first: int,
        count: int,
        big_endian: bool = False,
        features: Sequence[int] = (),
        borrowed: bool = False,
    ) -> None:
        self.big_endian = big_endian
        self.features = features
        self.borrowed = borrowed
        self._limits = limits
        self._tables = FieldTables(reader, first, count)
        self._count = count
        self._wire: dict[int, FieldLayout] = {}
        self._type: dict[int, Any] = {}
        self._found: dict[str, list[int]] = {}
        self._dictionary_wires: dict[int, FieldLayout] | None = None
        self._starts: list[tuple[int, int, int, int]] | None = None
        self._asked = 0
        self._types: list[Any] | None = None
        # How many fields from the first on are known to be plain: of one node, with no counts; the buffers that each of
        # them has; or those of each, where some have others.
        self._scanned: _Scanned = (0, 0, None)
        # Of a schema that is not plain, for each column its nodes, buffers, variadic counts and V4 bitmaps, in rows, or
        # where all columns are flat the buffers of each.
        self._totals: npt.NDArray[Any] | None = None
        self._nested_dictionaries = False

    def keep(self) -> None:
        """Have a copy of the bytes, if they lie in a mapping."""
        if self.borrowed:
            reader = self._tables.reader
            own = reader.data.copy()
            own.flags.writeable = False
            self._tables = self._tables.over(Reader(own, reader.where, self._limits))
            self.borrowed = False

    def __len__(self) -> int:
        return self._count

    def wire(self, index: int) -> FieldLayout:
        """How a column lies in a message."""
        found = self._wire.get(index)
        if found is None:
            reader, position = self._tables.reader, self._tables.position_of(index)
            found = plain_field(reader, position) or parse_field(reader.table("Field", position), self._limits)
            self._wire[index] = found
        return found

    def type_of(self, index: int) -> Any:
        """The type of a column; where it is plain, no field is made for that."""
        known = self._wire.get(index)
        if known is not None:
            return known.field.type
        found = self._type.get(index)
        if found is None:
            plain = plain_type(self._tables.reader, self._tables.position_of(index))
            found = self._type[index] = self.wire(index).field.type if plain is None else plain[0]
        return found

    def dictionary_wires(self) -> dict[int, FieldLayout]:
        """How the values of each dictionary lie in their messages, by its id; parses all fields.

        Raises
        ------
        InvalidData
            If fields share a dictionary and have values of different types.
        """
        if self._dictionary_wires is None:
            found: dict[int, FieldLayout] = {}
            left = [self.wire(i) for i in range(len(self))]
            while left:
                wire = left.pop()
                left += wire.children
                if wire.dictionary_id is None or wire.values is None:
                    continue
                known = found.setdefault(wire.dictionary_id, wire.values)
                if known.field.type != wire.values.field.type:
                    raise InvalidData(
                        f"dictionary {wire.dictionary_id} has values of type {known.field.type} in one field and "
                        f"{wire.values.field.type} in another"
                    )
                left.append(wire.values)
            self._dictionary_wires = found
        return self._dictionary_wires

    def field(self, index: int) -> Field:
        return self.wire(index).field

    def names(self) -> list[str]:
        view = self._tables.reader.view
        at, sizes = self._tables.name_places()
        return [
            text(bytes(view[start : start + size]), "field name")
            for start, size in zip(at.tolist(), sizes.tolist(), strict=True)
        ]

    def find(self, name: str) -> list[int]:
        known = self._found.get(name)
        if known is None:
            known = self._search(name)
            if len(self._found) <= len(self):
                self._found[name] = known
        return known

    def _search(self, name: str) -> list[int]:
        try:
            wanted = name.encode()
        except UnicodeEncodeError:
            return []
        if self._count <= _FEW_FIELDS:
            return [i for i in range(self._count) if self.wire(i).field.name == name]
        tables = self._tables
        size, limit = len(wanted), tables.reader.size - 4
        # The last bytes of names differ most often, so compare from the end, four bytes of all names at a time. Where a
        # name has fewer, compare the length, which stands before it.
        at = size & ~3
        word = U4(wanted, at - 4)[0] if at else size
        view = tables.reader.view
        first: list[int] = []
        names = tables.name_run()
        if names is not None and highest(names[1]) + at <= limit:
            place, (start, *even) = names
            first = [0] if U4(view, place)[0] == size and view[place + 4 : place + 4 + size] == wanted else []
            found = np.flatnonzero(tables.column(WORD, start + at, *even) == word)
            places = start + even[0] * found
            found += 1
        else:
            starts = tables.name_starts()
            if starts is None:
                return [i for i, other in enumerate(self.names()) if other == name]
            found = np.flatnonzero(tables.u4(np.minimum(starts + at, limit)) == word)
            places = starts.take(found)
        while at > 4 and len(found) > _FEW:
            at -= 4
            same = tables.u4(np.minimum(places + at, limit)) == U4(wanted, at - 4)[0]
            found, places = found[same], places[same]
        return first + [
            i
            for i, place in zip(found.tolist(), places.tolist(), strict=True)
            if U4(view, place)[0] == size and view[place + 4 : place + 4 + size] == wanted
        ]

    @property
    def nested_dictionaries(self) -> bool:
        """Whether dictionaries have values that may hold dictionaries themselves."""
        self.scan()
        return self._nested_dictionaries

    def flat_starts(self) -> Positions | None:
        """Where the buffers of each column start, if each has one node and no counts; shape (n + 1,)."""
        scanned = self._scan_plain(self._count)
        if scanned is not None and scanned[2] is None:
            return np.arange(self._count + 1) * scanned[1]
        totals = self._totals if scanned is None else scanned[2]
        if totals is None or totals.ndim > 1:
            return None
        starts = np.zeros(self._count + 1, np.int64)
        np.cumsum(totals, out=starts[1:])
        return starts

    def plain_types(self) -> list[Any]:
        """The type of each column if it has the layout of primitives, else None; no field is made that needs not be."""
        if self._types is None:
            found: list[Any] = [None] * self._count
            for first, group in self._alike() if self._count > _FEW_FIELDS and self.scan() else self._each():
                wire = self.wire(first)
                if wire.type.layout == "primitive" and wire.field.type is wire.type:
                    for i in group:
                        found[i] = wire.type
            self._types = found
        return self._types

    def _each(self) -> Iterator[tuple[int, Sequence[int]]]:
        return ((i, (i,)) for i in range(self._count))

    def _alike(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Columns in groups of one type, by their first; those that cannot be seen at once to be alike, one by one."""
        reader = self._tables.reader
        tags_at, children = self._tables.slots(self._tables.positions, (TYPE_TAG, CHILDREN))
        found = self._tables.type_tables()
        if tags_at is None or found is None:
            return self._each()
        if children is not None and (
            not int(children.min()) or self._tables.follow(children, "a field's children")[1].any()
        ):
            return self._each()
        tags = reader.data.take(tags_at)
        tables, vtables = found
        groups: list[tuple[int, Sequence[int]]] = []
        for tag in np.unique(tags).tolist():
            group = np.flatnonzero(tags == tag)
            known = 0 < tag <= len(UNIONS["Type"])  # somebody may have written to the bytes since
            same = known and bool((vtables[group] == vtables[group[0]]).all())
            if same and self._tables.same_tables(tables[group], UNIONS["Type"][tag - 1]):
                groups.append((int(group[0]), group.tolist()))
            else:
                groups += [(i, (i,)) for i in group.tolist()]
        return iter(groups)

    def flat_start(self, index: int) -> int:
        """The first buffer of a column, if those before it have one node each and no counts; -1 where they may not."""
        scanned = self._scan_plain(index)
        if scanned is None:
            return -1
        _, uniform, codes = scanned
        return index * uniform if codes is None else int(codes[:index].sum())

    def start(self, index: int) -> tuple[int, int, int, int]:
        """Where a column starts, or at the number of columns the end.

        Counted are the nodes of a batch, its buffers, its counts of variadic buffers, and the bitmaps that only V4 has.

        """
        if self._starts is not None:
            return self._starts[index]
        flat = self.flat_start(index)
        if flat >= 0:
            return index, flat, 0, 0
        totals = self._totals
        assert totals is not None
        self._asked += 1
        if totals.ndim == 1 and self._asked < _EAGER:
            return index, int(totals[:index].sum()), 0, 0
        if totals.ndim == 1:
            totals = np.stack([np.ones_like(totals), totals, np.zeros_like(totals), np.zeros_like(totals)])
        rows = np.zeros((self._count + 1, 4), np.int64)
        np.cumsum(totals.T, axis=0, out=rows[1:])
        self._starts = list(zip(*rows.T.tolist(), strict=True))
        return self._starts[index]

    # --- the scan ---

    def scan(self) -> bool:
        """Scan all fields; whether all are plain.

        Raises
        ------
        InvalidData
            If one of them breaks the format.
        """
        return self._scan_plain(self._count) is not None

    def check_reach(self) -> None:
        """Check that all that the fields refer to lies within the bytes, and not before them.

        Raises
        ------
        InvalidData
            If it does not, or if a field breaks the format.
        """
        if self.scan() and self._tables.types_within():
            return
        for i in range(self._count):
            self.wire(i)

    def _scan_plain(self, end: int) -> _Scanned | None:
        """Scan the fields up to ``end`` or somewhat further; where they are not all plain, scan all that there are.

        What is known is replaced as a whole: other threads may scan at the same time.
        """
        scanned = self._scanned
        start, uniform, known = scanned
        if min(end, self._count) <= start:
            return scanned
        if self._totals is not None:
            return None
        end = min(max(end, 2 * start, _FEW_FIELDS), self._count)
        codes = self._few_codes(start, end) if end - start <= _FEW_FIELDS else self._many_codes(start, end)
        if codes is None:
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
        """The buffers of a few columns, one after another; None where one is not plain, or something is wrong."""
        reader = self._tables.reader
        view, size = reader.view, reader.size
        known, table_size, tag_at = -1, 0, 0
        codes = bytearray()
        for slot in range(self._tables.first + 4 * start, self._tables.first + 4 * end, 4):
            position = slot + U4(view, slot)[0]
            if position + 4 > size:
                return None
            vtable = position - I4(view, position)[0]
            if vtable != known:
                found = self._plain_table(reader.table("Field", position))
                if found is None:
                    return None
                known, (table_size, tag_at) = vtable, found
            if position + table_size > size:
                return None
            code = _CODES_LISTED[view[position + tag_at]]
            if code > _BUFFERS:
                return None
            codes.append(code)
        return codes[0] if codes.count(codes[0]) == len(codes) else np.frombuffer(codes, np.uint8)

    def _many_codes(self, start: int, end: int) -> _Codes | None:
        """As :meth:`_few_codes`, for many columns whose tables have one vtable."""
        reader = self._tables.reader
        run = self._tables.run_of(start + 1, end)
        if run is not None:
            (first, *even), table = run
            one, found = self._few_codes(start, start + 1), self._plain_table(table)
            if one is None or found is None:
                return None
            tags = self._tables.column(U1, first + found[1], *even)
            tag = int(tags[0])
            if _CODES_LISTED[tag] == one and every(tags == tag):
                return one
            codes = np.full(end - start, one, np.uint8)
            codes[1:] = _CODES[tags]
            return None if int(codes.max()) > _BUFFERS else codes
        known, only = self._tables.found_positions, self._tables.only_table
        positions = self._tables.positions_of(start, end) if known is None else known[start:end]
        found = self._plain_table(reader.table("Field", int(positions[0])) if only is None else only)
        if found is None:
            return None
        table_size, tag_at = found
        if only is None:
            if int(positions.max()) + table_size > reader.size or int(np.bitwise_or.reduce(positions)) & 3:
                return None
            vtables = positions - self._tables.words.take(positions >> 2).view("<i4")
            if not (vtables == vtables[0]).all():
                return None
        codes = _CODES.take(reader.data.take(positions + tag_at))
        return None if int(codes.max()) > _BUFFERS else codes

    @staticmethod
    def _plain_table(table: TableView) -> tuple[int, int] | None:
        """The size of a Field table and where in it the tag of its type is, if it has one and no dictionary."""
        tag = table.at(TYPE_TAG, 1)
        return None if table.at(DICTIONARY, 4) or not tag else (table.size, tag - table.position)

    def _scan(self) -> npt.NDArray[Any]:
        """Count the nodes and buffers of every column, level by level."""
        positions = self._tables.positions
        count = self._count
        codes, children = self._level(positions)
        if not int(codes.max()) & ~_BUFFERS:
            return codes
        totals = np.zeros((4, count), np.int64)
        owners: Positions | None = None
        seen = 0
        for _ in range(self._limits.depth):
            seen += len(positions)
            if seen > min(self._limits.tables, self._tables.reader.size):
                raise LimitExceeded(
                    f"{self._tables.reader.where}: more fields than its {self._tables.reader.size} bytes can hold"
                )
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
        raise LimitExceeded(f"types nest deeper than Limits.depth = {self._limits.depth}")

    def _level(self, positions: Positions) -> tuple[npt.NDArray[np.uint8], Positions | None]:
        """What the scan has to know of the types of fields, and where their vectors of children are referred to."""
        reader = self._tables.reader
        tags_at, encodings = self._tables.slots(positions, (TYPE_TAG, DICTIONARY))
        if tags_at is None or not int(tags_at.min()):
            raise InvalidData(f"{reader.where}: a field has no type")
        tags = reader.data.take(tags_at)
        codes = _CODES.take(tags)
        most = int(codes.max())
        if most >= _UNKNOWN:
            found = int(tags[int(np.argmax(codes))])
            raise InvalidData(f"{reader.where}: a field has type {found}, expected 1 to {len(UNIONS['Type'])}")
        if encodings is not None:
            encoded = encodings != 0
            self._nested_dictionaries |= bool((codes[encoded] & _NESTED).any())
            codes = np.where(encoded, _ENCODED, codes)
        if most < _NESTED:
            return codes, None
        types_at, children = self._tables.slots(positions, (TYPE, CHILDREN))
        for i in np.flatnonzero((tags == _UNION_TAG) & (codes != _ENCODED)).tolist():
            if types_at is not None and types_at[i]:
                union = reader.table("Union", reader.follow(int(types_at[i]), "Field", "type"))
                codes[i] += union["mode"] == _DENSE
        return codes, children


def lazy_schema(table: TableView, limits: Limits, borrowed: bool = False) -> LazySchema:
    """The fields of a Schema table.

    Parameters
    ----------
    table : TableView
        The Schema table.
    limits : Limits
        Bounds on what is accepted.
    borrowed : bool
        Whether the bytes lie in a mapping, which no schema that somebody keeps may hold.
    """
    reader = table.reader
    endianness = table["endianness"]
    if endianness not in ENUMS["Endianness"].values():
        raise InvalidData(f"{reader.where}: endianness is 0 or 1, found {endianness}")
    features = table["features"]
    slot = table.at(_FIELDS, 4)
    first, count = reader.offsets(slot, "Schema", "fields") if slot else (0, 0)
    big = endianness == ENUMS["Endianness"]["Big"]
    return LazySchema(reader, limits, first, count, big, [] if features is None else features.tolist(), borrowed)


_FIELDS = 1
_EAGER = 4
_FEW = 16
_FEW_FIELDS = 48
