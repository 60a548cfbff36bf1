"""Schemas that were read, parsed as far as they are asked for, and kept by their bytes.

A schema of 10,000 columns is scanned with a few array operations, which say where each column's nodes and buffers start
in a record batch. Rules kept here:

* the scan checks every position before it reads there, level by level, and bounds the number of fields;
* a field is parsed when it is asked for; where the scan and the parsed fields could disagree, parsing refuses;
* parsed schemas hold a copy of their bytes, never the mapping that these came from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, LimitExceeded, Limits
from shmarrow.extension import generation
from shmarrow.ipc.flatbuf import ENUMS, UNIONS, Reader, TableView
from shmarrow.ipc.message import read_key_values
from shmarrow.ipc.schema import NESTED, WireField, parse_field, text
from shmarrow.layout.listing import LISTING
from shmarrow.layout.memory import ranges
from shmarrow.types import Field, Schema

Positions = npt.NDArray[np.int64]

# Numbers of the slots of a Field table.
_NAME, _TYPE_TAG, _TYPE, _DICTIONARY, _CHILDREN = 0, 2, 3, 4, 5

# What the scan has to know of a type: how many buffers it has, and whether it is special in one of these ways.
_BUFFERS, _VARIADIC, _V4_BITMAP, _NESTED, _UNKNOWN = 15, 16, 32, 64, 128

_LAYOUTS = {
    "Null": "null", "Bool": "bool", "Struct_": "struct", "Map": "map", "List": "list", "LargeList": "large_list",
    "ListView": "list_view", "LargeListView": "large_list_view", "FixedSizeList": "fixed_size_list",
    "Binary": "binary", "Utf8": "binary", "LargeBinary": "large_binary", "LargeUtf8": "large_binary",
    "BinaryView": "binary_view", "Utf8View": "binary_view", "Union": "sparse_union",
    "RunEndEncoded": "run_end_encoded",
}  # fmt: skip
_V4_BITMAPS = ("Union", "RunEndEncoded")
_UNION_TAG = UNIONS["Type"].index("Union") + 1
_DENSE = ENUMS["UnionMode"]["Dense"]


def _code(name: str) -> int:
    layout = LISTING[_LAYOUTS.get(name, "primitive")]
    code = len(layout.buffers) | _VARIADIC * layout.variadic
    return code | _NESTED * (name in NESTED) | _V4_BITMAP * (name in _V4_BITMAPS)


_CODES = np.full(256, _UNKNOWN, np.int64)
_CODES[1 : len(UNIONS["Type"]) + 1] = [_code(name) for name in UNIONS["Type"]]
_ENCODED = len(LISTING["dictionary"].buffers)


class Start(NamedTuple):
    """Where a column starts among a batch's nodes, buffers, variadic counts, and bitmaps that only V4 has."""

    node: int
    buffer: int
    variadic: int
    v4_bitmaps: int


class WireSchema:
    """The fields of a schema that was read; the source of a :class:`Schema`.

    Attributes
    ----------
    big_endian : bool
        Whether the numbers in buffers are big endian.
    features : list of int
        What the writer says it makes use of.
    nested_dictionaries : bool
        Whether dictionaries have values that may hold dictionaries themselves.
    """

    def __init__(self, table: TableView, limits: Limits) -> None:
        endianness = table["endianness"]
        if endianness not in ENUMS["Endianness"].values():
            raise InvalidData(f"{table.reader.where}: endianness is 0 or 1, found {endianness}")
        self.big_endian: bool = endianness == ENUMS["Endianness"]["Big"]
        features = table["features"]
        self.features: list[int] = [] if features is None else features.tolist()
        self.nested_dictionaries = False
        self._limits = limits
        self._reader = table.reader
        self._words = table.reader.data[: table.reader.size & ~3].view("<u4")
        self._fields = table["fields"]
        self._wire: list[WireField | None] = [None] * len(self._fields)
        self._names: tuple[Positions, Positions] | None = None
        self._found: dict[str, list[int]] = {}
        self._only_table: TableView | None = None
        self._dictionary_wires: dict[int, WireField] | None = None
        self._starts: list[list[int]] | None = None
        self._asked = 0
        # For each column its nodes, buffers, variadic counts and V4 bitmaps, in rows; or where all columns are flat,
        # the buffers of each; or where all have the same number of buffers, that number.
        self._totals: npt.NDArray[np.int64] | int = self._scan()

    def __len__(self) -> int:
        return len(self._wire)

    def wire(self, index: int) -> WireField:
        """How a column lies in a message."""
        found = self._wire[index]
        if found is None:
            found = self._wire[index] = parse_field(self._fields[index], self._limits)
        return found

    def dictionary_wires(self) -> dict[int, WireField]:
        """How the values of each dictionary lie in their messages, by its id; parses all fields.

        Raises
        ------
        InvalidData
            If fields share a dictionary and have values of different types.
        """
        if self._dictionary_wires is None:
            found: dict[int, WireField] = {}
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
        view = self._reader.view
        at, sizes = self._name_places()
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
        at, sizes = self._name_places()
        size = len(wanted)
        found = np.flatnonzero(sizes == size)
        data = self._reader.data
        # The last bytes of names differ most often, so compare from the end, one byte of all names at a time.
        ends = at[found]
        for i in range(size - 1, -1, -1):
            if len(found) <= _FEW:
                break
            same = data.take(ends + i) == wanted[i]
            if not same.all():
                found, ends = found[same], ends[same]
        view = self._reader.view
        starts = at[found].tolist()
        return [i for i, start in zip(found.tolist(), starts, strict=True) if view[start : start + size] == wanted]

    @property
    def uniform(self) -> int:
        """How many buffers each column has, if all have one node and as many buffers; else 0."""
        return self._totals if isinstance(self._totals, int) else 0

    def flat_starts(self) -> Positions | None:
        """Where the buffers of each column start, if each has one node and no counts; shape (n + 1,)."""
        totals = self._totals
        if isinstance(totals, int):
            return np.arange(0, (len(self) + 1) * totals, totals) if totals else None
        return None if totals.ndim > 1 else np.concatenate([[0], np.cumsum(totals)])

    def start(self, index: int) -> Start:
        """Where a column starts; the number of columns stands for the end."""
        if self._starts is not None:
            return Start(*self._starts[index])
        totals = self._totals
        if isinstance(totals, int):
            return Start(index, index * totals, 0, 0)
        self._asked += 1
        if totals.ndim == 1 and self._asked < _EAGER:
            return Start(index, int(totals[:index].sum()), 0, 0)
        if totals.ndim == 1:
            totals = np.stack([np.ones_like(totals), totals, np.zeros_like(totals), np.zeros_like(totals)])
        rows = np.zeros((len(self) + 1, 4), np.int64)
        np.cumsum(totals.T, axis=0, out=rows[1:])
        self._starts = rows.tolist()
        return Start(*self._starts[index])

    # --- the scan ---

    def _scan(self) -> npt.NDArray[np.int64] | int:
        """Count the nodes and buffers of every column, level by level."""
        positions: Positions = self._fields.positions
        count = len(positions)
        if not count:
            return 0
        codes, children = self._level(positions)
        if not int(codes.max()) & ~_BUFFERS:
            first = int(codes[0])
            return first if (codes == first).all() else codes
        totals = np.zeros((4, count), np.int64)
        owners: Positions | None = None
        seen = 0
        for _ in range(self._limits.depth):
            seen += len(positions)
            if seen > min(self._limits.tables, self._reader.size):
                raise LimitExceeded(f"{self._reader.where}: more fields than its {self._reader.size} bytes can hold")
            variadic, bitmaps = (codes & _VARIADIC) // _VARIADIC, (codes & _V4_BITMAP) // _V4_BITMAP
            for row, amount in zip(totals, (np.ones_like(codes), codes & _BUFFERS, variadic, bitmaps), strict=True):
                row += amount if owners is None else np.bincount(owners, amount, count).astype(np.int64)
            if children is None:
                return totals
            parents = np.flatnonzero((codes & _NESTED != 0) & (children != 0))
            if not len(parents):
                return totals
            positions, sizes = self._below(children[parents])
            if not len(positions):
                return totals
            owners = np.repeat(parents if owners is None else owners[parents], sizes)
            codes, children = self._level(positions)
        raise LimitExceeded(f"types nest deeper than Limits.depth = {self._limits.depth}")

    def _level(self, positions: Positions) -> tuple[Positions, Positions | None]:
        """What the scan has to know of the types of fields, and where their vectors of children are referred to."""
        reader = self._reader
        tags_at, encodings = self._slots(positions, (_TYPE_TAG, _DICTIONARY))
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
            self.nested_dictionaries |= bool((codes[encoded] & _NESTED).any())
            codes = np.where(encoded, _ENCODED, codes)
        if most < _NESTED:
            return codes, None
        types_at, children = self._slots(positions, (_TYPE, _CHILDREN))
        for i in np.flatnonzero((tags == _UNION_TAG) & (codes != _ENCODED)).tolist():
            if types_at is not None and types_at[i]:
                union = reader.table("Union", reader.follow(int(types_at[i]), "Field", "type"))
                codes[i] += union["mode"] == _DENSE
        return codes, children

    def _slots(self, positions: Positions, numbers: tuple[int, ...]) -> list[Positions | None]:
        """For each slot asked for, the position of its value in each Field table, 0 where absent; None if in all."""
        reader = self._reader
        if self._only_table is not None and positions is self._fields.positions:
            return [self._shifted(positions, self._only_table, number) for number in numbers]
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high + 4 > reader.size:
            reader.fail("a Field table", high, 4)
        # Vtables may lie on either side, so the offset to them has a sign.
        vtables = positions - self._u4(positions).view("<i4")
        first = int(vtables[0])
        if (vtables == first).all():
            table = self._table_of(positions, high)
            if positions is self._fields.positions:
                self._only_table = table
            return [self._shifted(positions, table, number) for number in numbers]
        kinds, inverse = np.unique(vtables, return_inverse=True)
        if len(kinds) > _MOST_VTABLES:
            raise LimitExceeded(f"{reader.where}: {len(kinds)} kinds of Field tables")
        results = [np.zeros(len(positions), np.int64) for _ in numbers]
        for kind in range(len(kinds)):
            chosen = np.flatnonzero(inverse == kind)
            mine = positions[chosen]
            table = self._table_of(mine, int(mine.max()))
            for result, number in zip(results, numbers, strict=True):
                places = self._shifted(mine, table, number)
                if places is not None:
                    result[chosen] = places
        return list(results)

    def _table_of(self, positions: Positions, high: int) -> TableView:
        """The first of several Field tables with one vtable, which all of them fit."""
        table = self._reader.table("Field", int(positions[0]))
        if high + table.size > self._reader.size:
            self._reader.fail("a Field table", high, table.size)
        return table

    @staticmethod
    def _shifted(positions: Positions, table: TableView, number: int) -> Positions | None:
        at = table.at(number, 1 if number == _TYPE_TAG else 4)
        return positions + (at - table.position) if at else None

    def _u4(self, positions: Any) -> Any:
        """The 32-bit numbers at positions, which lie within the data."""
        if not int(np.bitwise_or.reduce(positions)) & 3:
            return self._words.take(positions >> 2)
        data = self._reader.data
        return np.ascontiguousarray(data[positions[:, None] + np.arange(4)]).view("<u4")[:, 0]

    def _follow(self, slots: Positions, what: str) -> tuple[Any, Any]:
        """Where offsets lead, and the 32-bit length that stands there; both 0 where the slot is absent."""
        reader = self._reader
        absent = None if int(slots.min()) else slots == 0
        targets: Any = slots + self._u4(slots)
        if absent is not None:
            targets[absent] = 0
        high = int(targets.max())
        if high + 4 > reader.size:
            reader.fail(what, high, 4)
        sizes = self._u4(targets).astype(np.int64)
        if absent is not None:
            sizes[absent] = 0
        return targets, sizes

    def _below(self, slots: Positions) -> tuple[Positions, Positions]:
        """The positions of the children of fields, and how many each has."""
        reader = self._reader
        targets, sizes = self._follow(slots, "the children of a field")
        high = int((targets + 4 + 4 * sizes).max())
        if high > reader.size:
            reader.fail("the children of a field", high, 0)
        if int(sizes.sum()) > reader.size:
            raise LimitExceeded(f"{reader.where}: more fields than its {reader.size} bytes can hold")
        places: Any = np.repeat(targets + 4, sizes) + 4 * ranges(np.zeros(len(sizes), np.int64), sizes)
        return (places + self._u4(places) if len(places) else places), sizes

    def _name_places(self) -> tuple[Positions, Positions]:
        """Where the name of each column starts, and its bytes."""
        if self._names is None:
            reader = self._reader
            positions: Positions = self._fields.positions
            if not len(positions):
                return positions, positions
            (slots,) = self._slots(positions, (_NAME,))
            if slots is None:  # a name that is left out is empty
                slots = np.zeros(len(positions), np.int64)
            targets, sizes = self._follow(slots, "a field's name")
            targets += 4
            high = int((targets + sizes).max())
            if high > reader.size:
                reader.fail("a field's name", high, 0)
            if int(sizes.sum()) > 16 * reader.size + 65536:
                raise LimitExceeded(f"{reader.where}: its names add up to over 16 times its {reader.size} bytes")
            self._names = (targets, sizes)
        return self._names


_EAGER = 4
_FEW = 4
_MOST_VTABLES = 4096

# --- the cache --------------------------------------------------------------------------------------------------

Identity = tuple[int, int, int, int]
"""Device, inode, size and time of change (ns) of the file that bytes are mapped from."""

_BY_BYTES: dict[Any, list[tuple[Bytes, Schema]]] = {}
_BY_FILE: dict[Any, Schema] = {}
_CACHE_BYTES = 64 << 20
_CACHE_FILES = 4096
_RACY_NS = 100_000_000
_cached_bytes = 0


def read_schema(
    table: TableView, limits: Limits = DEFAULT_LIMITS, fetch: Callable[[int, int], Bytes] | None = None
) -> Schema:
    """The schema in a Schema table; the same object for the same bytes.

    What a Schema table refers to lies between it and the end of the FlatBuffer when that was built as FlatBuffers are,
    from the back; that run of bytes is the cache's key. Where a builder did otherwise, the whole FlatBuffer is parsed,
    each time anew.

    Parameters
    ----------
    table : TableView
        The Schema table.
    limits : Limits, optional
        Bounds on what is accepted.
    fetch : callable, optional
        Gives a private copy of a run of the FlatBuffer's bytes by start and size; faster than touching the pages of a
        mapping where they are many.
    """
    start = table.lowest & ~7
    fetched = fetch is not None and table.reader.size - start > _FETCH
    region = fetch(start, table.reader.size - start) if fetch is not None and fetched else table.reader.data[start:]
    return _by_bytes(table, region, start, limits, fetched)


def schema_of_file(identity: Identity | None, limits: Limits) -> Schema | None:
    """The schema in the footer of a file, if it was read before and nobody may have written to the file since."""
    return None if identity is None else _BY_FILE.get((identity, limits, generation()))


def keep_schema_of_file(identity: Identity | None, limits: Limits, schema: Schema) -> None:
    """Remember the schema of a file that nobody may write to.

    A file that had not changed for a while before its schema was read cannot change without another time of change.
    """
    if identity is not None and time.time_ns() - identity[3] > _RACY_NS:
        if len(_BY_FILE) >= _CACHE_FILES:
            _BY_FILE.clear()
        _BY_FILE[identity, limits, generation()] = schema


_FETCH = 1 << 16


def _by_bytes(table: TableView, region: Bytes, start: int, limits: Limits, private: bool) -> Schema:
    global _cached_bytes
    position = table.position - start
    key = (len(region), position, limits, generation(), region[:64].tobytes(), region[-64:].tobytes())
    for kept, schema in _BY_BYTES.get(key, ()):
        if _same(kept, region):
            return schema
    kept = region if private else region.copy()
    kept.flags.writeable = False
    try:
        schema = _parse(kept, position, table.reader.where, limits)
    except InvalidData:
        whole = table.reader.data.copy()
        whole.flags.writeable = False
        return _parse(whole, table.position, table.reader.where, limits)
    if _cached_bytes > _CACHE_BYTES:
        _BY_BYTES.clear()
        _cached_bytes = 0
    _cached_bytes += len(kept)
    _BY_BYTES.setdefault(key, []).append((kept, schema))
    return schema


def _same(kept: Bytes, region: Bytes) -> bool:
    words = len(kept) & ~7
    return bool((kept[:words].view("<u8") == region[:words].view("<u8")).all()) and np.array_equal(
        kept[words:], region[words:]
    )


def _parse(data: Bytes, position: int, where: str, limits: Limits) -> Schema:
    table = Reader(data, where, limits).table("Schema", position)
    return Schema(metadata=read_key_values(table["custom_metadata"]), source=WireSchema(table, limits))
