# SPDX-License-Identifier: Apache-2.0
"""Conversion of types to and from the Type union ("Schema message"), driven by the type descriptors."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData, at, recast, shown
from shmarrow.ipc.flatbuffers.reader import TableView
from shmarrow.types import DataType, Field
from shmarrow.types.descriptors import BY_MEMBER, CLASSES, TYPES, Enumeration, Parameter

_Children = tuple[Field, ...]

NESTED = frozenset([descriptor.member for descriptor in TYPES if descriptor.children])
"""The members of the Type union that have children."""

FLAT_CLASSES = frozenset([CLASSES[descriptor.member] for descriptor in TYPES if not descriptor.children])
"""The classes of the other members."""


def text(value: bytes | None, what: str) -> str:
    """Decode a UTF-8 string of the metadata."""
    try:
        return (value or b"").decode()
    except UnicodeDecodeError as error:
        raise InvalidData(f"the {what} {shown(value)} is not UTF-8: {error.reason} at byte {error.start}") from None


def _make_type(member: str, table: TableView, children: _Children) -> DataType:
    descriptor = BY_MEMBER[member]
    parameters = {each.name: _read(each, table[each.slot]) for each in descriptor.parameters}
    try:
        type: DataType = descriptor.make(parameters, children)
    except InvalidArgument as error:
        raise recast(InvalidData, error) from None
    return type


def _read(parameter: Parameter, value: Any) -> Any:
    """Convert a slot's value to a type parameter."""
    kind = parameter.kind
    if isinstance(kind, Enumeration):
        if not 0 <= value < len(kind.values):
            raise InvalidData(f"{kind.name} must be one of {list(kind.numbers.values())}, found {value}")
        return kind.values[value]
    if kind == "string":
        return text(value, parameter.slot) if value else None
    return value.tolist() if kind == "[i4]" and value is not None else value


def type_values(type: DataType) -> tuple[str, dict[str, Any]]:
    """The Type union member of a type, and the values of its table."""
    descriptor = type.descriptor
    slots = {each.slot: _written(each.kind, getattr(type, each.name)) for each in descriptor.parameters}
    return descriptor.member, slots


def _written(kind: Any, value: Any) -> Any:
    """Convert a type parameter to its slot's value."""
    if isinstance(kind, Enumeration):
        return kind.values.index(value)
    return np.array(value, "<i4") if kind == "[i4]" else value


_CACHED: dict[Any, DataType] = {}
_MOST_CACHED, _LARGEST_CACHED = 4096, 64
SELF_CONTAINED = frozenset(
    [each.member for each in TYPES if not each.children and all(one.kind != "string" for one in each.parameters)]
)
"""The members of the Type union whose tables refer to nothing else: equal bytes are equal types."""


def read_type(member: str, table: TableView, children: _Children) -> DataType:
    """Read a type from a table of the Type union; self-contained types are cached."""
    content = table.content()
    if children or member not in SELF_CONTAINED or len(content) > _LARGEST_CACHED:
        return _make_type(member, table, children)
    key = (member, table.offsets, content)
    type = _CACHED.get(key)
    if type is None:
        type = _make_type(member, table, children)
        if len(_CACHED) >= _MOST_CACHED:
            _CACHED.clear()
        _CACHED[key] = type
    return type


def read_index_type(table: TableView) -> types.IntType:
    """Read the type of a dictionary's or a sparse tensor's indices."""
    try:
        with at("the index type"):
            return types.IntType(table["bitWidth"], table["is_signed"])
    except InvalidArgument as error:
        raise recast(InvalidData, error) from None
