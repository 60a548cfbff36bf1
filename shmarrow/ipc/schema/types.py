"""Types to and from the tables of the Type union ("Schema message"): data, one row a type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData
from shmarrow.ipc.flatbuffers.reader import Offsets, TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.types import DataType, Field


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


_PLAIN: dict[Any, DataType] = {}
_MOST_PLAIN = 4096


def read_type(kind: str, table: TableView, children: _Children) -> DataType:
    """The type in a table of the Type union; of those that are all in their own bytes each is made once."""
    if children or kind == "Timestamp" or kind in NESTED:
        return _READ[kind](table, children)
    key = (kind, table.offsets, table.content())
    found = _PLAIN.get(key)
    if found is None:
        found = _READ[kind](table, children)
        if len(_PLAIN) >= _MOST_PLAIN:
            _PLAIN.clear()
        _PLAIN[key] = found
    return found


def cached_type(kind: str, offsets: Offsets, content: bytes) -> DataType | None:
    """A type that :func:`read_type` made before, by its member of the Type union and what its table holds."""
    return _PLAIN.get((kind, offsets, content))


def read_index_type(table: TableView, name: str) -> DataType:
    """The type of a dictionary's indices."""
    try:
        return types.IntType(table["bitWidth"], table["is_signed"])
    except InvalidArgument as error:
        raise InvalidData(f"field {name!r}: the index type of its dictionary: {error}") from None


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
    types.FloatType: ("FloatingPoint", lambda t: {"precision": PRECISION[t.bits]}),
    types.DecimalType: ("Decimal", lambda t: {"precision": t.precision, "scale": t.scale, "bitWidth": t.bits}),
    types.DateType: ("Date", lambda t: {"unit": DATE[0][t.unit]}),
    types.TimeType: ("Time", lambda t: {"unit": TIME[0][t.unit], "bitWidth": t.bits}),
    types.TimestampType: ("Timestamp", lambda t: {"unit": TIME[0][t.unit], "timezone": t.tz or None}),
    types.DurationType: ("Duration", lambda t: {"unit": TIME[0][t.unit]}),
    types.IntervalType: ("Interval", lambda t: {"unit": INTERVAL[0][t.unit]}),
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
    types.UnionType: ("Union", lambda t: {"mode": MODE[0][t.mode], "typeIds": np.array(t.type_codes, "<i4")}),
    types.RunEndEncodedType: ("RunEndEncoded", _no_values),
}
