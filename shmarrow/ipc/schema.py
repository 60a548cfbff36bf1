"""Fields and types from FlatBuffers ("Schema message"); ``schema_writer`` has the way back.

Rules kept here:

* the mapping from tables to types is data, one row a type;
* a field that is read says how its column lies in a message: the type of its buffers, its children, its dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData, LimitExceeded, Limits
from shmarrow.extension import extension_type
from shmarrow.ipc.flatbuf import ENUMS, UNIONS, TableView
from shmarrow.ipc.message import read_key_values
from shmarrow.types import DataType, Field

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Positions: TypeAlias = "npt.NDArray[np.int64]"

# --- tables to types --------------------------------------------------------------------------------------------


def _enum(enum: str, *names: str) -> tuple[dict[str, int], dict[int, str]]:
    """Our names of an enumeration's values, both ways."""
    to_wire = dict(zip(names, sorted(ENUMS[enum].values()), strict=True))
    return to_wire, {number: name for name, number in to_wire.items()}


TIME = _enum("TimeUnit", "s", "ms", "us", "ns")
DATE = _enum("DateUnit", "day", "ms")
INTERVAL = _enum("IntervalUnit", "month", "day_time", "month_day_nano")
MODE = _enum("UnionMode", "sparse", "dense")
PRECISION = {16: 0, 32: 1, 64: 2}
_BITS = {number: bits for bits, number in PRECISION.items()}

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
    return types.UnionType(_known(MODE[1], table["mode"], "UnionMode"), children, codes)


def _read_run_ends(table: TableView, children: _Children) -> DataType:
    if len(children) != 2:
        raise InvalidData(f"a run-end encoded type has two children, found {len(children)}")
    return types.RunEndEncodedType(*children)


def _read_timestamp(table: TableView, children: _Children) -> DataType:
    zone = table["timezone"]
    return types.TimestampType(_known(TIME[1], table["unit"], "TimeUnit"), text(zone, "time zone") if zone else None)


_READ: dict[str, Callable[[TableView, _Children], DataType]] = {
    "Null": lambda table, children: types.null(),
    "Int": lambda table, children: types.IntType(table["bitWidth"], table["is_signed"]),
    "FloatingPoint": lambda table, children: types.FloatType(_known(_BITS, table["precision"], "Precision")),
    "Binary": lambda table, children: types.BinaryType(False),
    "Utf8": lambda table, children: types.BinaryType(True),
    "Bool": lambda table, children: types.bool_(),
    "Decimal": lambda table, children: types.DecimalType(table["bitWidth"], table["precision"], table["scale"]),
    "Date": lambda table, children: types.DateType(_known(DATE[1], table["unit"], "DateUnit")),
    "Time": lambda table, children: types.TimeType(_known(TIME[1], table["unit"], "TimeUnit"), table["bitWidth"]),
    "Timestamp": _read_timestamp,
    "Interval": lambda table, children: types.IntervalType(_known(INTERVAL[1], table["unit"], "IntervalUnit")),
    "List": lambda table, children: types.ListType(_one(children, "list")),
    "Struct_": lambda table, children: types.StructType(children),
    "Union": _read_union,
    "FixedSizeBinary": lambda table, children: types.FixedSizeBinaryType(table["byteWidth"]),
    "FixedSizeList": lambda table, children: types.FixedSizeListType(
        _one(children, "fixed-size list"), table["listSize"]
    ),
    "Map": _read_map,
    "Duration": lambda table, children: types.DurationType(_known(TIME[1], table["unit"], "TimeUnit")),
    "LargeBinary": lambda table, children: types.LargeBinaryType(False),
    "LargeUtf8": lambda table, children: types.LargeBinaryType(True),
    "LargeList": lambda table, children: types.LargeListType(_one(children, "list")),
    "RunEndEncoded": _read_run_ends,
    "BinaryView": lambda table, children: types.BinaryViewType(False),
    "Utf8View": lambda table, children: types.BinaryViewType(True),
    "ListView": lambda table, children: types.ListViewType(_one(children, "list view")),
    "LargeListView": lambda table, children: types.LargeListViewType(_one(children, "list view")),
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
    """The dictionary-encoded fields among these and within them, in the order of a schema's walk."""
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
