# SPDX-License-Identifier: Apache-2.0
"""Schemas in the JSON format of Arrow's integration tests ("Integration Testing").

Invariants:

* a type's name and parameters come from its descriptor, in both directions;
* every member is read by name and JSON kind; a missing one, or one of another kind, raises :class:`InvalidData` with
  its path, such as ``schema: fields 2: type: bitWidth``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, LimitExceeded, Limits, Unsupported, at, recast
from shmarrow.ipc.schema.lazy import FieldLayout
from shmarrow.types import DataType, Field, Metadata, Schema, extension_type, storage_field
from shmarrow.types.descriptors import REQUIRED, TYPES, Enumeration, Parameter

T = TypeVar("T")

# --- members of objects ------------------------------------------------------------------------------------------

_KINDS = {int: "an integer", str: "a string", bool: "true or false", list: "an array", dict: "an object"}


def shown(value: Any) -> str:
    """Format a JSON value for an error message, shortened if large."""
    if isinstance(value, (dict, list)):
        return f"{_KINDS[value.__class__]} of {len(value)}"
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 256 else f"{value.bit_length()} bits"
    return text if len(text) <= 80 else f"{text[:80]}..."


def member(value: Any, key: str, kind: type, default: Any = REQUIRED) -> Any:
    """Return a member of a JSON object.

    Parameters
    ----------
    value : object
        The expected object.
    key : str
        The name of the member.
    kind : type
        The Python class of its value.
    default : object, optional
        Returned for a missing or null member; without it, both are errors.

    Raises
    ------
    InvalidData
        If the member is missing, or of another kind.
    """
    if value.__class__ is not dict:
        raise InvalidData(f"expected an object, found {shown(value)}")
    item = value.get(key)
    if item.__class__ is kind:
        return item
    if item is None and default is not REQUIRED:
        return default
    if key not in value:
        raise InvalidData(f"expected a member {key!r}, found only {', '.join(list(value)[:20]) or 'none'}")
    raise InvalidData(f"expected {_KINDS[kind]}, found {shown(item)}", where=[(key,)])


def read_items(value: Any, key: str, read: Callable[[Any], T], default: Any = REQUIRED) -> list[T]:
    """Return ``read(item)`` of each item of an array member."""
    result = []
    for i, item in enumerate(member(value, key, list, default)):
        with at(key, i):
            result.append(read(item))
    return result


# --- types -------------------------------------------------------------------------------------------------------


_OLDER = {f"decimal{bits}": {"name": "decimal", "bitWidth": bits} for bits in (32, 64, 256)}
"""The names that Arrow C++ writes for decimals, without a bit width."""

_NAMES = {descriptor.json_name: descriptor for descriptor in TYPES}
_CLASSES: dict[Any, type] = {"i4": int, "bool": bool, "string": str, "[i4]": list}
"""The Python class of a parameter's value in JSON; values of enumerations are strings."""


def read_type(value: Any, children: tuple[Field, ...]) -> DataType:
    """Read a type from its JSON object and its child fields."""
    name = member(value, "name", str)
    if name in _OLDER:
        value = value | _OLDER[name]
        name = value["name"]
    descriptor = _NAMES.get(name)
    if descriptor is None:
        raise InvalidData(f"expected one of {', '.join(_NAMES)}, found {shown(name)}", where=[("name",)])
    parameters = {each.name: _read_parameter(each, value) for each in descriptor.parameters}
    try:
        type: DataType = descriptor.make(parameters, children)
    except (InvalidArgument, InvalidType) as error:
        raise recast(InvalidData, error) from None
    return type


def _read_parameter(parameter: Parameter, value: Any) -> Any:
    key, kind = parameter.json or parameter.slot, parameter.kind
    parameter_value = member(value, key, _CLASSES.get(kind, str), parameter.optional)
    if isinstance(kind, Enumeration):
        label = parameter_value.upper()  # union modes are specified as Sparse and Dense, but written SPARSE and DENSE
        if label not in kind.labels:
            raise InvalidData(
                f"expected one of {', '.join(kind.labels)}, found {shown(parameter_value)}", where=[(key,)]
            )
        return kind.labels[label]
    if kind == "[i4]" and not all(item.__class__ is int for item in parameter_value):
        raise InvalidData(f"expected integers, found {shown(parameter_value)}", where=[(key,)])
    return parameter_value


def write_type(type: DataType) -> dict[str, Any]:
    """Return the JSON object of a type."""
    descriptor = type.descriptor
    if descriptor.json_name not in _NAMES:
        raise Unsupported(f"the JSON form of Arrow's integration tests has no type {type}")
    result: dict[str, Any] = {"name": descriptor.json_name}
    for parameter in descriptor.parameters:
        value = getattr(type, parameter.name)
        if isinstance(parameter.kind, Enumeration):
            value = list(parameter.kind.labels)[parameter.kind.values.index(value)]
        if value is not None:
            result[parameter.json or parameter.slot] = list(value) if parameter.kind == "[i4]" else value
    return result


# --- fields and schemas ------------------------------------------------------------------------------------------


def read_field(value: Any, limits: Limits, depth: int = 0) -> FieldLayout:
    """Read a field and its children from its JSON object."""
    if depth >= limits.depth:
        raise LimitExceeded(f"types nest deeper than Limits.depth = {limits.depth}")
    name = _encodable(member(value, "name", str), "name")
    nullable = member(value, "nullable", bool)
    encoding = member(value, "dictionary", dict, None)
    below = depth + 1 if encoding is None else depth + 2
    children = tuple(read_items(value, "children", lambda item: read_field(item, limits, below), []))
    with at("type"):
        type = storage = read_type(member(value, "type", dict), tuple([child.field for child in children]))
    metadata = read_metadata(value)
    dictionary_id = values = None
    if encoding is not None:
        with at("dictionary"):
            dictionary_id = member(encoding, "id", int)
            storage = _read_encoding(encoding, type)
        values = FieldLayout(Field(name, type), type, None, children, None)
        children = ()
    logical, metadata = extension_type(storage, metadata)
    if values is not None and logical is not storage and isinstance(logical, types.DictionaryType):
        storage = logical  # the dictionary values have the extension type
        values = values._replace(field=Field(name, logical.value_type))
    return FieldLayout(Field(name, logical, nullable, metadata), storage, dictionary_id, children, values)


def _read_encoding(encoding: Any, value_type: DataType) -> DataType:
    ordered = member(encoding, "isOrdered", bool, False)
    index = member(encoding, "indexType", dict, None)
    with at("indexType"):
        try:
            return types.DictionaryType(types.int32() if index is None else read_type(index, ()), value_type, ordered)
        except InvalidArgument as error:
            raise recast(InvalidData, error) from None


def write_field(field: Field, ids: Iterator[int]) -> dict[str, Any]:
    """Return the JSON object of a field; dictionary ids are assigned in traversal order."""
    stored = storage_field(field)
    type = stored.type
    result: dict[str, Any] = {"name": stored.name, "nullable": stored.nullable}
    if isinstance(type, types.DictionaryType):
        result["dictionary"] = {
            "id": next(ids),
            "indexType": write_type(type.index_type),
            "isOrdered": type.ordered,
        }
        type = storage_field(Field("", type.value_type)).type
    result["type"] = write_type(type)
    result["children"] = [write_field(child, ids) for child in type.fields]
    if stored.metadata:
        result["metadata"] = write_metadata(stored.metadata)
    return result


def read_schema(value: Any, limits: Limits) -> tuple[Schema, list[FieldLayout]]:
    """Read a schema; also returns the layout of its columns in JSON."""
    layouts = read_items(value, "fields", lambda item: read_field(item, limits))
    return Schema([layout.field for layout in layouts], read_metadata(value)), layouts


def write_schema(schema: Schema) -> dict[str, Any]:
    """Return the JSON object of a schema."""
    ids = count()
    result: dict[str, Any] = {"fields": [write_field(field, ids) for field in schema]}
    if schema.metadata:
        result["metadata"] = write_metadata(schema.metadata)
    return result


# Metadata is bytes, JSON is text: bytes that are not UTF-8 are written as lone surrogates, and restored when read.
_ERRORS = "surrogateescape"


def read_metadata(value: Any) -> Metadata | None:
    """Read the metadata of a field or a schema; the last of duplicate keys wins."""
    return dict(read_items(value, "metadata", _read_pair, [])) or None


def _read_pair(item: Any) -> tuple[bytes, bytes]:
    key, value = [
        _encodable(member(item, part, str), part, _ERRORS).encode(errors=_ERRORS) for part in ("key", "value")
    ]
    return key, value


def write_metadata(metadata: Metadata) -> list[dict[str, str]]:
    """Return metadata as a list of key-value objects."""
    pairs = metadata.items()
    return [{"key": key.decode(errors=_ERRORS), "value": value.decode(errors=_ERRORS)} for key, value in pairs]


def _encodable(text: str, key: str, errors: str = "strict") -> str:
    try:
        text.encode(errors=errors)
    except UnicodeEncodeError as error:
        raise InvalidData(
            f"the string {shown(text)} cannot be encoded as UTF-8: {error.reason}", where=[(key,)]
        ) from None
    return text
