"""Types to and from the tables of the Type union ("Schema message"), by the descriptors of the types."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData, shown
from shmarrow.ipc.flatbuffers.reader import Offsets, TableView
from shmarrow.types import DataType, Field
from shmarrow.types.descriptors import BY_MEMBER, CLASSES, TYPES, Enumeration, Parameter

_Children = tuple[Field, ...]

NESTED = frozenset([descriptor.member for descriptor in TYPES if descriptor.children])
"""The members of the Type union that have children."""

FLAT_CLASSES = frozenset([CLASSES[descriptor.member] for descriptor in TYPES if not descriptor.children])
"""The classes of the other members."""


def text(value: bytes | None, what: str) -> str:
    """A string of the wire as text."""
    try:
        return (value or b"").decode()
    except UnicodeDecodeError as error:
        raise InvalidData(f"the {what} {shown(value)} is not UTF-8: {error.reason} at byte {error.start}") from None


def _make_type(member: str, table: TableView, children: _Children) -> DataType:
    descriptor = BY_MEMBER[member]
    parameters = {each.name: _read(each, table[each.slot]) for each in descriptor.parameters}
    made: DataType = descriptor.make(parameters, children)
    return made


def _read(parameter: Parameter, value: Any) -> Any:
    """The value of a parameter from that of its slot."""
    kind = parameter.kind
    if isinstance(kind, Enumeration):
        if not 0 <= value < len(kind.values):
            raise InvalidData(f"{kind.name} must be one of {list(kind.numbers.values())}, found {value}")
        return kind.values[value]
    if kind == "string":
        return text(value, parameter.slot) if value else None
    return value.tolist() if kind == "[i4]" and value is not None else value


def type_values(type: DataType) -> tuple[str, dict[str, Any]]:
    """The member of the Type union that a type is, and the values of its table."""
    descriptor = type.descriptor
    slots = {each.slot: _written(each.kind, getattr(type, each.name)) for each in descriptor.parameters}
    return descriptor.member, slots


def _written(kind: Any, value: Any) -> Any:
    """The value of a slot from that of its parameter."""
    if isinstance(kind, Enumeration):
        return kind.values.index(value)
    return np.array(value, "<i4") if kind == "[i4]" else value


_CACHED: dict[Any, DataType] = {}
_MOST_CACHED, _LARGEST_CACHED = 4096, 64
_SHARED = frozenset(
    [each.member for each in TYPES if not each.children and all(one.kind != "string" for one in each.parameters)]
)
"""The members whose tables refer to nothing: their bytes say all there is."""


def read_type(member: str, table: TableView, children: _Children) -> DataType:
    """The type in a table of the Type union; of those without children and strings each is made once."""
    content = table.content()
    if children or member not in _SHARED or len(content) > _LARGEST_CACHED:
        return _make_type(member, table, children)
    key = (member, table.offsets, content)
    found = _CACHED.get(key)
    if found is None:
        found = _make_type(member, table, children)
        if len(_CACHED) >= _MOST_CACHED:
            _CACHED.clear()
        _CACHED[key] = found
    return found


def cached_type(member: str, offsets: Offsets, content: bytes) -> DataType | None:
    """A type that :func:`read_type` made before, by its member of the Type union and what its table holds."""
    return _CACHED.get((member, offsets, content))


def read_index_type(table: TableView, name: str) -> DataType:
    """The type of a dictionary's indices."""
    try:
        return types.IntType(table["bitWidth"], table["is_signed"])
    except InvalidArgument as error:
        raise InvalidData(f"field {name!r}: the index type of its dictionary: {error}") from None
