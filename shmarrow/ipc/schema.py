"""Schemas between FlatBuffers and :class:`shmarrow.types.Schema` ("Schema message").

Rules kept here:

* the mapping from types to tables is data, one row a type, used in both directions;
* a field that is read says how its column lies in a message: the type of its buffers, its children, its dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData, LimitExceeded, Limits, Unsupported
from shmarrow.extension import extension_type, storage_field
from shmarrow.ipc import flatbuf
from shmarrow.ipc.flatbuf import ENUMS, UNIONS, Built, TableView
from shmarrow.ipc.message import frame, key_values, message_values, read_key_values
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.layout.memory import ranges
from shmarrow.types import DataType, Field, Schema

if TYPE_CHECKING:
    import flatbuffers
    import numpy.typing as npt

Positions: TypeAlias = "npt.NDArray[np.int64]"

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

NESTED = (
    "Struct_", "Map", "List", "LargeList", "ListView", "LargeListView", "FixedSizeList", "Union", "RunEndEncoded"
)  # fmt: skip
"""The members of the Type union that have children."""


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
    return types.TimestampType(_known(_TIME[1], table["unit"], "TimeUnit"), text(zone, "time zone") if zone else None)


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


def text(value: bytes | None, what: str) -> str:
    """A string of the wire as text."""
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


def encoded_fields(fields: Sequence[WireField]) -> list[WireField]:
    """The dictionary-encoded fields among these and within them, in the order of :class:`DictionaryIds`."""
    found: list[WireField] = []
    for field in fields:
        if field.values is not None:
            found.append(field)
        found += encoded_fields(field.children if field.values is None else field.values.children)
    return found


def parse_field(table: TableView, limits: Limits, depth: int = 0) -> WireField:
    """A field and its children from a Field table."""
    if depth >= limits.depth:
        raise LimitExceeded(f"types nest deeper than Limits.depth = {limits.depth}")
    name = text(table["name"], "field name")
    children = tuple([parse_field(child, limits, depth + 1) for child in table["children"]])
    kind, type_table = table["type"]
    if type_table is None:
        raise InvalidData(f"field {name!r} has no type that is known, found {kind}")
    try:
        type = read_type(kind, type_table, tuple([child.field for child in children]))
    except InvalidArgument as error:
        raise InvalidData(f"field {name!r}: {error}") from None
    if children and not type.fields:
        raise InvalidData(f"field {name!r} of type {type} has {len(children)} children, expected none")
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
    if values is not None and logical is not storage and isinstance(logical, types.DictionaryType):
        storage = logical  # it is the values that are of an extension type
        values = values._replace(field=Field(name, logical.value_type))
    return WireField(Field(name, logical, nullable, metadata), storage, dictionary_id, children, values)


_PLAIN: dict[Any, DataType] = {}
_MOST_PLAIN = 4096


def read_type(kind: str, table: TableView, children: _Children) -> DataType:
    """The type in a table of the Type union; of those that are all in their own bytes each is made once."""
    if children or kind == "Timestamp" or kind in NESTED:
        return _READ[kind](table, children)
    key = (kind, table.raw())
    found = _PLAIN.get(key)
    if found is None:
        found = _READ[kind](table, children)
        if len(_PLAIN) >= _MOST_PLAIN:
            _PLAIN.clear()
        _PLAIN[key] = found
    return found


def known_type(tag: int, offsets: tuple[int, ...], content: bytes) -> DataType | None:
    """A type that :func:`read_type` made before, by its place in the Type union and what its table holds."""
    return _PLAIN.get((_MEMBERS[tag], (offsets, content))) if tag < len(_MEMBERS) else None


_MEMBERS = (None, *UNIONS["Type"])


def _index_type(table: TableView, name: str) -> DataType:
    try:
        return types.IntType(table["bitWidth"], table["is_signed"])
    except InvalidArgument as error:
        raise InvalidData(f"field {name!r}: the index type of its dictionary: {error}") from None


# --- writing ----------------------------------------------------------------------------------------------------


class DictionaryIds:
    """Ids of the dictionaries of a schema, in the order in which its fields are walked: 0, 1, ... or those given."""

    __slots__ = ("_given", "count")

    def __init__(self, given: Sequence[int] = ()) -> None:
        self.count = 0
        self._given = given

    def next(self) -> int:
        """One more id."""
        self.count += 1
        return self._given[self.count - 1] if self._given else self.count - 1


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
        type = type.value_type
        if isinstance(type, types.DictionaryType):
            raise Unsupported(
                f"field {stored.name!r}: Arrow messages cannot hold {stored.type}, a dictionary whose values are "
                "themselves dictionary-encoded; decode one of them"
            )
    values["type"] = type_values(type)
    values["children"] = [field_values(child, ids) for child in type.fields]
    return values


class EncodedSchema(NamedTuple):
    """A Schema table and all that it refers to, as the last bytes of a FlatBuffer; it goes into several of them.

    Attributes
    ----------
    data : bytes
        The bytes, with no references to what is outside.
    offset : int
        The table's offset from the end.
    """

    data: bytes
    offset: int

    def start(self) -> tuple[flatbuffers.Builder, Built]:
        """A builder that has the table, and nothing else yet."""
        builder = flatbuf.new_builder()
        builder.Prep(8, len(self.data))
        flatbuf.add_raw(builder, self.data)
        return builder, Built(self.offset)


def encode_schema(schema: Schema, options: IpcWriteOptions, ids: Sequence[int] = ()) -> EncodedSchema:
    """Write a Schema table once for all messages and footers that hold it, with the dictionaries' ids where given."""
    builder = flatbuf.new_builder()
    offset = _add_schema(builder, schema, options, DictionaryIds(ids))
    builder.Prep(8, 0)  # whole words in front keep what is inside aligned wherever the bytes go
    return EncodedSchema(bytes(builder.Bytes[builder.head :]), offset)


def _add_schema(builder: flatbuffers.Builder, schema: Schema, options: IpcWriteOptions, ids: DictionaryIds) -> int:
    fields = schema.fields
    plain = [field.metadata is None and not field.type.fields and field.type.__class__ in _WRITE for field in fields]
    features = []
    if options.compression is not None:
        features.append(ENUMS["Feature"]["COMPRESSED_BODY"])
    offsets = np.zeros(len(fields), np.int64)
    chosen = np.array(plain, np.bool_)
    offsets[chosen] = _add_plain_fields(builder, [field for field, easy in zip(fields, plain, strict=True) if easy])
    offsets[~chosen] = [
        flatbuf.add_table(builder, "Field", field_values(field, ids))
        for field, easy in zip(fields, plain, strict=True)
        if not easy
    ]
    values: dict[str, Any] = {
        "endianness": ENUMS["Endianness"]["Big" if options.endianness == "big" else "Little"],
        "fields": Built(flatbuf.add_offsets(builder, offsets)),
        "custom_metadata": key_values(schema.metadata),
        "features": np.array(features, "<i8") if features else None,
    }
    return flatbuf.add_table(builder, "Schema", values)


# The vtable of a Field table with name, nullable, type and no children: its size, the table's, and its slots' offsets.
_PLAIN_VTABLE = np.array([16, 20, 4, 16, 17, 8, 0, 12], "<u2")
_PLAIN_WORDS = 5


def _add_plain_fields(builder: flatbuffers.Builder, fields: list[Field]) -> Positions:
    """Write Field tables that differ in name, nullability and type only, with array operations; gives their offsets.

    All share one vtable and one empty vector of children, and those of one type share its table.
    """
    if not fields:
        return np.empty(0, np.int64)
    numbers: dict[tuple[Any, bool], int] = {}
    kinds = np.array([numbers.setdefault((field.type, field.nullable), len(numbers)) for field in fields])
    tables = []
    for type, nullable in numbers:
        member, content = type_values(type)
        tag = UNIONS["Type"].index(member) + 1
        tables.append((flatbuf.add_table(builder, member, content), int(nullable) | tag << 8))
    no_children = flatbuf.add_offsets(builder, [])
    names, at, names_size = _name_strings([field.name for field in fields])
    count = len(fields)
    head = _PLAIN_VTABLE.nbytes
    size = head + 4 * _PLAIN_WORDS * count
    builder.Prep(4, size + names_size)
    end = builder.Offset() + size + names_size  # the offset from the end of the first byte that is written here
    first = head + 4 * _PLAIN_WORDS * np.arange(count)
    offsets: Positions = end - first
    types_at, flags = (np.array(column)[kinds] for column in zip(*tables, strict=True))
    words = np.empty((count, _PLAIN_WORDS), "<u4")
    words[:, 0] = first  # back to the vtable at the start
    words[:, 1] = size + at - (first + 4)
    words[:, 2] = offsets - 8 - types_at
    words[:, 3] = offsets - 12 - no_children
    words[:, 4] = flags
    flatbuf.add_raw(builder, _PLAIN_VTABLE.tobytes() + words.tobytes() + names)
    return offsets


def _name_strings(names: list[str]) -> tuple[bytes, Positions, int]:
    """Strings one after another as FlatBuffers have them, where each starts, and the size of all, a multiple of 4."""
    encoded = [name.encode() for name in names]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    sizes = (lengths + 8) & -4  # a length, the bytes, at least one zero
    starts = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    data = np.zeros(total, np.uint8)
    data[starts[:, None] + np.arange(4)] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    data[ranges(starts + 4, lengths)] = np.frombuffer(b"".join(encoded), np.uint8)
    return data.tobytes(), starts, total


def schema_message(encoded: EncodedSchema, options: IpcWriteOptions, start: int = 0) -> bytes:
    """A framed Schema message."""
    builder, table = encoded.start()
    values = message_values("Schema", table, 0, None, options)
    return frame(flatbuf.finish(builder, flatbuf.add_table(builder, "Message", values)), options, start)
