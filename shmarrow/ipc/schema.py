"""Schemas between FlatBuffers and :class:`shmarrow.types.Schema` ("Schema message").

Rules kept here:

* a schema that is read is scanned with array operations, which say where each column's nodes and buffers start; a
  field is parsed when it is asked for. Parsed schemas are kept by their bytes, so the next file with the same ones
  finds them ready;
* the mapping from types to tables is data, one row a type, used in both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shmarrow import types
from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidArgument, InvalidData, LimitExceeded, Limits
from shmarrow.extension import extension_type, storage_field
from shmarrow.ipc import flatbuf
from shmarrow.ipc.flatbuf import ENUMS, UNIONS, Built, Reader, TableView
from shmarrow.ipc.message import key_values, read_key_values
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.layout.array import ranges
from shmarrow.layout.listing import LISTING
from shmarrow.types import DataType, Field, Schema

Positions = npt.NDArray[np.int64]

# --- types to tables and back -----------------------------------------------------------------------------------


def _enum(enum: str, *names: str) -> tuple[dict[str, int], dict[int, str]]:
    """Our names of an enumeration's values, both ways."""
    to_wire = dict(zip(names, sorted(ENUMS[enum].values()), strict=True))
    return to_wire, {number: name for name, number in to_wire.items()}


_TIME = _enum("TimeUnit", "s", "ms", "us", "ns")
_DATE = _enum("DateUnit", "day", "ms")
_INTERVAL = _enum("IntervalUnit", "month", "day_time", "month_day_nano")
_MODE = _enum("UnionMode", "sparse", "dense")
_PRECISION = {16: 0, 32: 1, 64: 2}
_BITS = {number: bits for bits, number in _PRECISION.items()}

_Children = tuple[Field, ...]


def _known(names: dict[int, Any], number: int, what: str) -> Any:
    if number not in names:
        raise InvalidData(f"{what} is one of {sorted(names)}, found {number}")
    return names[number]


def _one(children: _Children, what: str) -> Field:
    if len(children) != 1:
        raise InvalidData(f"a {what} has one child, found {len(children)}")
    return children[0]


def _read_map(table: TableView, children: _Children) -> DataType:
    return types.MapType(_one(children, "map"), table["keysSorted"])


def _read_union(table: TableView, children: _Children) -> DataType:
    ids = table["typeIds"]
    codes = None if ids is None else ids.tolist()
    return types.UnionType(_known(_MODE[1], table["mode"], "UnionMode"), children, codes)


def _read_run_ends(table: TableView, children: _Children) -> DataType:
    if len(children) != 2:
        raise InvalidData(f"a run-end encoded type has two children, found {len(children)}")
    return types.RunEndEncodedType(*children)


def _read_timestamp(table: TableView, children: _Children) -> DataType:
    zone = table["timezone"]
    return types.TimestampType(_known(_TIME[1], table["unit"], "TimeUnit"), _text(zone, "time zone") if zone else None)


_READ: dict[str, Callable[[TableView, _Children], DataType]] = {
    "Null": lambda table, children: types.null(),
    "Int": lambda table, children: types.IntType(table["bitWidth"], table["is_signed"]),
    "FloatingPoint": lambda table, children: types.FloatType(_known(_BITS, table["precision"], "Precision")),
    "Binary": lambda table, children: types.BinaryType(False),
    "Utf8": lambda table, children: types.BinaryType(True),
    "Bool": lambda table, children: types.bool_(),
    "Decimal": lambda table, children: types.DecimalType(table["bitWidth"], table["precision"], table["scale"]),
    "Date": lambda table, children: types.DateType(_known(_DATE[1], table["unit"], "DateUnit")),
    "Time": lambda table, children: types.TimeType(_known(_TIME[1], table["unit"], "TimeUnit"), table["bitWidth"]),
    "Timestamp": _read_timestamp,
    "Interval": lambda table, children: types.IntervalType(_known(_INTERVAL[1], table["unit"], "IntervalUnit")),
    "List": lambda table, children: types.ListType(_one(children, "list")),
    "Struct_": lambda table, children: types.StructType(children),
    "Union": _read_union,
    "FixedSizeBinary": lambda table, children: types.FixedSizeBinaryType(table["byteWidth"]),
    "FixedSizeList": lambda table, children: types.FixedSizeListType(
        _one(children, "fixed-size list"), table["listSize"]
    ),
    "Map": _read_map,
    "Duration": lambda table, children: types.DurationType(_known(_TIME[1], table["unit"], "TimeUnit")),
    "LargeBinary": lambda table, children: types.LargeBinaryType(False),
    "LargeUtf8": lambda table, children: types.LargeBinaryType(True),
    "LargeList": lambda table, children: types.LargeListType(_one(children, "list")),
    "RunEndEncoded": _read_run_ends,
    "BinaryView": lambda table, children: types.BinaryViewType(False),
    "Utf8View": lambda table, children: types.BinaryViewType(True),
    "ListView": lambda table, children: types.ListViewType(_one(children, "list view")),
    "LargeListView": lambda table, children: types.LargeListViewType(_one(children, "list view")),
}


def type_values(type: Any) -> tuple[str, dict[str, Any]]:
    """The member of the Type union that a type is, and the values of its table."""
    name, values = _WRITE[type.__class__]
    return (name(type) if callable(name) else name), values(type)


def _no_values(type: Any) -> dict[str, Any]:
    return {}


_WRITE: dict[Any, tuple[Any, Callable[[Any], dict[str, Any]]]] = {
    types.NullType: ("Null", _no_values),
    types.BoolType: ("Bool", _no_values),
    types.IntType: ("Int", lambda t: {"bitWidth": t.bits, "is_signed": t.signed}),
    types.FloatType: ("FloatingPoint", lambda t: {"precision": _PRECISION[t.bits]}),
    types.DecimalType: ("Decimal", lambda t: {"precision": t.precision, "scale": t.scale, "bitWidth": t.bits}),
    types.DateType: ("Date", lambda t: {"unit": _DATE[0][t.unit]}),
    types.TimeType: ("Time", lambda t: {"unit": _TIME[0][t.unit], "bitWidth": t.bits}),
    types.TimestampType: ("Timestamp", lambda t: {"unit": _TIME[0][t.unit], "timezone": t.tz or None}),
    types.DurationType: ("Duration", lambda t: {"unit": _TIME[0][t.unit]}),
    types.IntervalType: ("Interval", lambda t: {"unit": _INTERVAL[0][t.unit]}),
    types.FixedSizeBinaryType: ("FixedSizeBinary", lambda t: {"byteWidth": t.width}),
    types.BinaryType: (lambda t: "Utf8" if t.text else "Binary", _no_values),
    types.LargeBinaryType: (lambda t: "LargeUtf8" if t.text else "LargeBinary", _no_values),
    types.BinaryViewType: (lambda t: "Utf8View" if t.text else "BinaryView", _no_values),
    types.ListType: ("List", _no_values),
    types.LargeListType: ("LargeList", _no_values),
    types.ListViewType: ("ListView", _no_values),
    types.LargeListViewType: ("LargeListView", _no_values),
    types.FixedSizeListType: ("FixedSizeList", lambda t: {"listSize": t.list_size}),
    types.StructType: ("Struct_", _no_values),
    types.MapType: ("Map", lambda t: {"keysSorted": t.keys_sorted}),
    types.UnionType: ("Union", lambda t: {"mode": _MODE[0][t.mode], "typeIds": np.array(t.type_codes, "<i4")}),
    types.RunEndEncodedType: ("RunEndEncoded", _no_values),
}


def _text(value: bytes | None, what: str) -> str:
    try:
        return (value or b"").decode()
    except UnicodeDecodeError as error:
        raise InvalidData(f"the {what} {value!r:.80} is not UTF-8: {error.reason} at byte {error.start}") from None


# --- reading ----------------------------------------------------------------------------------------------------


class WireField(NamedTuple):
    """A field, and how it lies in a message.

    Attributes
    ----------
    field : Field
        The logical field.
    type : DataType
        The type that the buffers have: for a dictionary-encoded field the dictionary type, for an extension type its
        storage.
    dictionary_id : int or None
        The id of the field's dictionary.
    children : tuple of WireField
        The children that lie in the same message.
    values : WireField or None
        For a dictionary-encoded field, how the dictionary's values lie in their own message.
    """

    field: Field
    type: Any
    dictionary_id: int | None
    children: tuple[WireField, ...]
    values: WireField | None


def parse_field(table: TableView, limits: Limits, depth: int = 0) -> WireField:
    """A field and its children from a Field table."""
    if depth >= limits.depth:
        raise LimitExceeded(f"types nest deeper than Limits.depth = {limits.depth}")
    name = _text(table["name"], "field name")
    children = tuple([parse_field(child, limits, depth + 1) for child in table["children"]])
    kind, type_table = table["type"]
    if type_table is None:
        raise InvalidData(f"field {name!r} has no type that is known, found {kind}")
    try:
        type = _READ[kind](type_table, tuple([child.field for child in children]))
    except InvalidArgument as error:
        raise InvalidData(f"field {name!r}: {error}") from None
    metadata = read_key_values(table["custom_metadata"])
    nullable = table["nullable"]
    encoding = table["dictionary"]
    storage: DataType = type
    dictionary_id = None
    values = None
    if encoding is not None:
        index = encoding["indexType"]
        index_type = types.int32() if index is None else _index_type(index, name)
        dictionary_id = encoding["id"]
        values = WireField(Field(name, type), type, None, children, None)
        children = ()
        storage = types.DictionaryType(index_type, type, encoding["isOrdered"])
    logical, metadata = extension_type(storage, metadata)
    return WireField(Field(name, logical, nullable, metadata), storage, dictionary_id, children, values)


def _index_type(table: TableView, name: str) -> DataType:
    try:
        return types.IntType(table["bitWidth"], table["is_signed"])
    except InvalidArgument as error:
        raise InvalidData(f"field {name!r}: the index type of its dictionary: {error}") from None


# Slots of the Field table, as offsets into its vtable.
_NAME, _TYPE_TAG, _TYPE, _DICTIONARY, _CHILDREN = 4, 8, 10, 12, 14

_LAYOUT_OF = {
    "Null": "null", "Bool": "bool", "Struct_": "struct", "Map": "map", "List": "list", "LargeList": "large_list",
    "ListView": "list_view", "LargeListView": "large_list_view", "FixedSizeList": "fixed_size_list",
    "Binary": "binary", "Utf8": "binary", "LargeBinary": "large_binary", "LargeUtf8": "large_binary",
    "BinaryView": "binary_view", "Utf8View": "binary_view", "Union": "sparse_union",
    "RunEndEncoded": "run_end_encoded",
}  # fmt: skip
_UNION_TAG = UNIONS["Type"].index("Union") + 1
_RUN_END_TAG = UNIONS["Type"].index("RunEndEncoded") + 1
_BUFFERS_OF = np.array([0] + [len(LISTING[_LAYOUT_OF.get(name, "primitive")].buffers) for name in UNIONS["Type"]])
_VARIADIC_OF = np.array([0] + [int(LISTING[_LAYOUT_OF.get(name, "primitive")].variadic) for name in UNIONS["Type"]])
_DENSE = ENUMS["UnionMode"]["Dense"]


class Start(NamedTuple):
    """Where a column's nodes, buffers and counts of variadic buffers start; the last one stands for the ends."""

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
    """

    def __init__(self, table: TableView, limits: Limits) -> None:
        endianness = table["endianness"]
        if endianness not in ENUMS["Endianness"].values():
            raise InvalidData(f"{table.reader.where}: endianness is 0 or 1, found {endianness}")
        self.big_endian: bool = endianness == ENUMS["Endianness"]["Big"]
        features = table["features"]
        self.features: list[int] = [] if features is None else features.tolist()
        self._limits = limits
        self._reader = table.reader
        self._fields = table["fields"]
        self._wire: list[WireField | None] = [None] * len(self._fields)
        self._names: list[str] | None = None
        self._starts: npt.NDArray[np.int64] | None = None
        self._start_rows: list[list[int]] | None = None
        self._scan()

    def __len__(self) -> int:
        return len(self._wire)

    def wire(self, index: int) -> WireField:
        """How a column lies in a message."""
        found = self._wire[index]
        if found is None:
            found = self._wire[index] = parse_field(self._fields[index], self._limits)
        return found

    def field(self, index: int) -> Field:
        return self.wire(index).field

    def names(self) -> list[str]:
        if self._names is None:
            data = self._reader.view
            at, sizes = self._name_at, self._name_size
            self._names = [
                _text(bytes(data[start : start + size]), "field name")
                for start, size in zip(at.tolist(), sizes.tolist(), strict=True)
            ]
        return self._names

    def find(self, name: str) -> list[int]:
        try:
            wanted = np.frombuffer(name.encode(), np.uint8)
        except UnicodeEncodeError:
            return []
        size = len(wanted)
        found = np.flatnonzero(self._name_size == size)
        data = self._reader.data
        step = 1
        while len(found) and size > 0:
            # The last bytes of names differ most often, so compare from the end, a few bytes at a time.
            low = max(size - step, 0)
            at = self._name_at[found][:, None] + np.arange(low, size)
            found = found[(data[at] == wanted[low:size]).all(axis=1)]
            size, step = low, 8
        result: list[int] = found.tolist()
        return result

    # --- the scan ---

    def _scan(self) -> None:
        """Find names, and count the nodes and buffers of every column, level by level, with array operations."""
        count = len(self._fields)
        positions: Positions = self._fields.positions
        self._name_at, self._name_size = self._scan_names(positions)
        totals = np.zeros((4, count), np.int64)
        owners = None
        seen = 0
        for depth in range(self._limits.depth + 1):
            if not len(positions):
                break
            seen += len(positions)
            if depth == self._limits.depth:
                raise LimitExceeded(f"types nest deeper than Limits.depth = {self._limits.depth}")
            if seen > min(self._limits.tables, self._reader.size):
                raise LimitExceeded(f"{self._reader.where}: more fields than its {self._reader.size} bytes can hold")
            positions, owners = self._count(positions, owners, totals)
        self._totals = totals

    def starts(self) -> npt.NDArray[np.int64]:
        """For each column, and for the end, where its nodes, buffers, variadic counts and version 4's bitmaps start: (n + 1, 4)."""
        if self._starts is None:
            result = np.zeros((len(self) + 1, 4), np.int64)
            np.cumsum(self._totals.T, axis=0, out=result[1:])
            self._starts = result
        return self._starts

    def start(self, index: int) -> Start:
        """Where one column starts."""
        if self._start_rows is not None:
            return Start(*self._start_rows[index])
        return Start(*self.starts()[index].tolist())

    def _slots(self, positions: Positions, entries: tuple[int, ...]) -> list[Positions]:
        """For each Field table and each slot asked for, the position of its value, or 0 where it is absent."""
        reader = self._reader
        size = reader.size
        if int(positions.min()) < 0 or int(positions.max()) + 4 > size:
            reader.fail("a Field table", int(positions.max()), 4)
        vtables = positions - self._u4(positions).astype(np.int32)
        results = [np.zeros(len(positions), np.int64) for _ in entries]
        same = vtables == vtables[0]
        kinds = vtables[:1] if same.all() else np.unique(vtables)
        for vtable in kinds.tolist():
            chosen: Any = slice(None) if len(kinds) == 1 else np.flatnonzero(vtables == vtable)
            first = int(positions[chosen][0])
            table = reader.table("Field", first)  # checks the vtable
            table_size = table._size
            mine = positions[chosen]
            if int(mine.max()) + table_size > size:
                reader.fail("a Field table", int(mine.max()), table_size)
            for result, entry in zip(results, entries, strict=True):
                at = table._at((entry - 4) >> 1, 1 if entry == _TYPE_TAG else 4, "slot")
                if at:
                    result[chosen] = mine + (at - first)
            if len(kinds) > 4096:
                raise LimitExceeded(f"{reader.where}: {len(kinds)} kinds of Field tables")
        return results

    def _u4(self, positions: Any) -> Any:
        """The 32-bit numbers at positions, which lie within the data."""
        data = self._reader.data
        if not (positions & 3).any():
            return data[: len(data) & ~3].view("<u4")[positions >> 2]
        return np.ascontiguousarray(data[positions[:, None] + np.arange(4)]).view("<u4")[:, 0]

    def _follow(self, slots: Positions) -> tuple[Any, Any]:
        """Where offsets lead, and the 32-bit length that stands there; both 0 where the slot is absent."""
        reader = self._reader
        absent = slots == 0
        some = bool(absent.any())
        safe = np.where(absent, 0, slots) if some else slots
        targets = safe + self._u4(safe)
        if some:
            targets[absent] = 0
        if len(targets) and int(targets.max()) + 4 > reader.size:
            reader.fail("what a Field refers to", int(targets.max()), 4)
        sizes = self._u4(targets).astype(np.int64)
        if some:
            sizes[absent] = 0
        return targets, sizes

    def _scan_names(self, positions: Positions) -> tuple[Positions, Positions]:
        if not len(positions):
            return positions, positions
        (slots,) = self._slots(positions, (_NAME,))
        targets, sizes = self._follow(slots)
        at = targets + 4
        if int((at + sizes).max()) > self._reader.size + 4:
            self._reader.fail("a field name", int((at + sizes).max()), 0)
        if int(sizes.sum()) > 16 * self._reader.size + 65536:
            raise LimitExceeded(
                f"{self._reader.where}: its names add up to over 16 times its {self._reader.size} bytes"
            )
        return at, sizes

    def _count(self, positions: Positions, owners: Positions | None, totals: Any) -> tuple[Positions, Positions]:
        """Add the nodes and buffers of one level of fields to their columns; gives the next level and its columns."""
        reader = self._reader
        tags_at, types_at, dictionaries, children = self._slots(positions, (_TYPE_TAG, _TYPE, _DICTIONARY, _CHILDREN))
        tags = np.where(tags_at == 0, 0, reader.data[tags_at])
        if int(tags.max()) >= len(_BUFFERS_OF) or not int(tags.min()):
            at = int(np.argmax((tags == 0) | (tags >= len(_BUFFERS_OF))))
            raise InvalidData(f"{reader.where}: a field has type {int(tags[at])}, expected 1 to {len(_BUFFERS_OF) - 1}")
        encoded = dictionaries != 0
        buffers = _BUFFERS_OF[tags]
        variadic = _VARIADIC_OF[tags]
        v4_bitmaps = ((tags == _UNION_TAG) | (tags == _RUN_END_TAG)).astype(np.int64)
        for i in np.flatnonzero(tags == _UNION_TAG).tolist():
            buffers[i] += int(reader.table("Union", reader.follow(int(types_at[i]), "a union"))["mode"] == _DENSE)
        if encoded.any():
            buffers[encoded], variadic[encoded], v4_bitmaps[encoded] = 2, 0, 0
            children = np.where(encoded, 0, children)
        for row, amounts in zip(totals, (np.ones_like(buffers), buffers, variadic, v4_bitmaps), strict=True):
            if owners is None:
                row += amounts
            elif amounts.any():
                row += np.bincount(owners, amounts, len(row)).astype(np.int64)
        parents = np.flatnonzero(children)
        if not len(parents):
            return positions[:0], positions[:0]
        targets, sizes = self._follow(children[parents])
        if int((targets + 4 + 4 * sizes).max()) > reader.size:
            reader.fail("the children of a field", int((targets + 4 + 4 * sizes).max()), 0)
        if int(sizes.sum()) > reader.size:
            raise LimitExceeded(f"{reader.where}: more fields than its {reader.size} bytes can hold")
        places: Any = np.repeat(targets + 4, sizes) + 4 * ranges(np.zeros(len(sizes), np.int64), sizes)
        below = places + self._u4(places) if len(places) else places
        own = parents if owners is None else owners[parents]
        return below, np.repeat(own, sizes)


# --- the cache --------------------------------------------------------------------------------------------------

_CACHE: dict[Any, list[tuple[Bytes, Schema]]] = {}
_CACHE_BYTES = 64 << 20
_cached_bytes = 0


def read_schema(table: TableView, limits: Limits = DEFAULT_LIMITS) -> Schema:
    """The schema in a Schema table; the same object for the same bytes.

    The key is the run of bytes from the table to the end of the FlatBuffer, which holds all that the table refers to
    when it was built as FlatBuffers are, from the back; where it was not, the schema is parsed anew each time.
    """
    global _cached_bytes
    data = table.reader.data
    start = table.lowest & ~7
    region = data[start:]
    key = (len(region), table.position - start, limits, region[:64].tobytes(), region[-64:].tobytes())
    for kept, schema in _CACHE.get(key, ()):
        if np.array_equal(kept, region):
            return schema
    kept = region.copy()
    kept.flags.writeable = False
    try:
        schema = _parse(kept, table.position - start, table.reader.where, limits)
    except InvalidData:
        whole = data.copy()
        whole.flags.writeable = False
        return _parse(whole, table.position, table.reader.where, limits)
    if _cached_bytes > _CACHE_BYTES:
        _CACHE.clear()
        _cached_bytes = 0
    _cached_bytes += len(kept)
    _CACHE.setdefault(key, []).append((kept, schema))
    return schema


def _parse(data: Bytes, position: int, where: str, limits: Limits) -> Schema:
    table = Reader(data, where, limits).table("Schema", position)
    return Schema(metadata=read_key_values(table["custom_metadata"]), source=WireSchema(table, limits))


# --- writing ----------------------------------------------------------------------------------------------------


class DictionaryIds:
    """Ids of the dictionaries of a schema, given in the order in which its fields are walked."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        """One more id."""
        self.count += 1
        return self.count - 1


def field_values(field: Field, ids: DictionaryIds) -> dict[str, Any]:
    """The values of a Field table."""
    stored = storage_field(field)
    type = stored.type
    values: dict[str, Any] = {
        "name": stored.name,
        "nullable": stored.nullable,
        "custom_metadata": key_values(stored.metadata),
    }
    if isinstance(type, types.DictionaryType):
        values["dictionary"] = {
            "id": ids.next(),
            "indexType": type_values(type.index_type)[1],
            "isOrdered": type.ordered,
        }
        type = storage_field(Field("", type.value_type)).type
    values["type"] = type_values(type)
    values["children"] = [field_values(child, ids) for child in type.fields]
    return values


def schema_values(schema: Schema, options: IpcWriteOptions, builder: Any = None) -> dict[str, Any]:
    """The values of a Schema table."""
    ids = DictionaryIds()
    features = []
    if options.compression is not None:
        features.append(ENUMS["Feature"]["COMPRESSED_BODY"])
    values: dict[str, Any] = {
        "endianness": ENUMS["Endianness"]["Big" if options.endianness == "big" else "Little"],
        "fields": [field_values(field, ids) for field in schema],
        "custom_metadata": key_values(schema.metadata),
    }
    if features:
        values["features"] = np.array(features, "<i8")
    return values


def encode_schema(schema: Schema, options: IpcWriteOptions) -> bytes:
    """A FlatBuffer with a Schema table as its root."""
    return flatbuf.encode("Schema", schema_values(schema, options))


__all__ = ["Built", "DictionaryIds", "Start", "WireField", "WireSchema", "parse_field", "read_schema", "schema_values"]
