"""Helpers for canonical extension types: parameters as JSON, and checks of the storage.

Parameters from a file are untrusted: their size and depth are limited, and they are checked like a caller's.
"""

from __future__ import annotations

import json
from typing import Any

from shmarrow import types
from shmarrow.errors import InvalidArgument, shown
from shmarrow.types import DataType, EncodedType

_MOST_PARAMETERS = 1 << 16


def parameters_of(what: str, serialized: bytes) -> dict[str, Any]:
    """Return the JSON object of serialized parameters; empty for empty bytes."""
    if not serialized:
        return {}
    if len(serialized) > _MOST_PARAMETERS:
        raise InvalidArgument(f"{what}: {len(serialized)} bytes of parameters, expected at most {_MOST_PARAMETERS}")
    try:
        found = json.loads(serialized.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what}: the parameters {serialized[:80]!r} are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{what}: the parameters must be a JSON object, found {shown(serialized[:80])}")
    return found


def as_json(parameters: dict[str, Any]) -> bytes:
    """Return parameters as compact JSON, without those that are None."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()


def checked_text(what: str, name: str, value: Any) -> str:
    """Return a parameter checked to be a string that UTF-8 can encode."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}: {name} must be a string, found {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what}: {name} {value!a:.80} is not valid Unicode: {error.reason}") from None
    return value


def children_of(what: str, storage_type: DataType) -> dict[str, DataType]:
    """Return the types of a struct's fields by name."""
    if not isinstance(storage_type, types.StructType):
        raise InvalidArgument(f"{what}: the storage must be a struct, found {storage_type}")
    found = {field.name: field.type for field in storage_type.fields}
    if len(found) != len(storage_type.fields):
        raise InvalidArgument(f"{what}: the storage has duplicate field names: {storage_type}")
    return found


def values_of(type: DataType) -> DataType:
    """Return the value type of a dictionary or run-end-encoded type; other types unchanged."""
    return type.value_type if isinstance(type, EncodedType) else type
