# SPDX-License-Identifier: Apache-2.0
"""Conversion of Arrow's types to Spark's, and what is required of Spark's types.

Invariants:

* an Arrow type is first converted by the rules of ``for_consumer("spark")``; the table here names Spark's type for each
  result;
* all that is read is nullable, at any depth, as in all that Spark itself reads from files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidData, InvalidType, Unsupported, at, shown
from shmarrow.extension import ExtensionType
from shmarrow.types import EncodedType, Field, Schema
from shmarrow.types.consumers import kind_of
from shmarrow.types.for_consumer import Casting, casting_for

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SparkType = str | dict[str, Any]
"""A Spark type in JSON: a name such as ``"long"``, or a mapping for nested types."""

_LISTS = {"list", "large_list", "fixed_size_list", "list_view", "large_list_view"}

SPARK: dict[str, str | Callable[[Any], str]] = {
    "null": "void",
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "decimal128": lambda type: f"decimal({type.precision},{type.scale})",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32": "date",
    "time64": "time(6)",
    "timestamp": lambda type: "timestamp_ntz" if type.tz is None else "timestamp",
    "duration": "interval day to second",
    "month_interval": "integer",
}
"""Spark's name for each kind of type produced by ``for_consumer("spark")``, except nested ones.

``month_interval`` is a number of months: Spark's Arrow code has no year-month intervals."""

METADATA = b"SPARK::metadata::json"
"""The key in a field's metadata for Spark's metadata, as JSON."""

_MARKED = {b"variant": ("value", "metadata"), b"geometry": ("srid", "wkb"), b"geography": ("srid", "wkb")}
"""Structs that represent one Spark value: the mark in the metadata of their second field, and their fields."""


def spark_struct(schema: Schema) -> StructType:
    """Return the Spark schema of rows.

    Raises
    ------
    Unsupported
        If Spark has no type for one of the columns.
    """
    from pyspark import __version__
    from pyspark.sql.types import StructField, StructType

    casting = casting_for("spark", ())
    made = []
    for field in schema:
        given = _field(field, casting)
        try:
            made.append(StructField.fromJson(given))
        except Exception:  # which one depends on the version
            type = given["type"] if isinstance(given["type"], str) else str(field.type)
            raise Unsupported(
                f"column {shown(field.name)}: pyspark {__version__} has no type for {type}; later ones have"
            ) from None
    return StructType(made)


def _field(field: Field, casting: Casting, where: str = "") -> dict[str, Any]:
    where = f"{where}, field {shown(field.name)}" if where else f"column {shown(field.name)}"
    type = _type(field.type, casting, where)
    return {"name": field.name, "type": type, "nullable": True, "metadata": _metadata(field, where)}


def _metadata(field: Field, where: str) -> dict[str, Any]:
    raw = (field.metadata or {}).get(METADATA)
    if raw is None:
        return {}
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"{where}: the metadata {METADATA.decode()!r} are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidData(f"{where}: the metadata {METADATA.decode()!r} are not a JSON object: {shown(found)}")
    return found


def unwrapped(type: Any) -> Any:
    """Return the value type of an extension, dictionary or run-end encoded type."""
    while True:
        if isinstance(type, ExtensionType) and type.extension_name != "arrow.bool8":
            type = type.storage_type
        elif isinstance(type, EncodedType):
            type = type.value_type
        else:
            return type


def _type(type: Any, casting: Casting, where: str) -> SparkType:
    type = unwrapped(type)
    kind = kind_of(type)
    if kind in _LISTS:
        return {"type": "array", "elementType": _type(type.value_field.type, casting, where), "containsNull": True}
    if kind == "map":
        key, value = _type(type.key_type, casting, f"{where}, keys"), _type(type.item_type, casting, where)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if kind == "struct":
        mark = _mark_of(type)
        if mark:
            return _marked(type, mark, where)
        return {"type": "struct", "fields": [_field(field, casting, where) for field in type.fields]}
    with at(where):
        final: Any = casting.stages(type).final
    name = SPARK[kind_of(final)]
    return name if isinstance(name, str) else name(final)


def _mark_of(type: Any) -> bytes:
    """Return Spark's mark of a struct, such as ``b"variant"``; empty for plain structs."""
    if type.layout != "struct" or len(type.fields) != 2:
        return b""
    names = tuple(field.name for field in type.fields)
    metadata = type.fields[1].metadata or {}
    return next((mark for mark, wanted in _MARKED.items() if names == wanted and metadata.get(mark) == b"true"), b"")


def _marked(type: Any, mark: bytes, where: str) -> SparkType:
    if mark == b"variant":
        return "variant"
    from pyspark.sql.types import GeographyType, GeometryType

    kind = GeometryType if mark == b"geometry" else GeographyType
    try:
        srid = int((type.fields[1].metadata or {})[b"srid"])
        made = kind("ANY" if srid == kind.MIXED_SRID else srid)
    except (KeyError, ValueError) as error:  # Spark's own errors of values are ValueErrors
        raise InvalidData(
            f"{where}: it is marked as {mark.decode()}, without an SRID that Spark knows: {error}"
        ) from None
    found: str = json.loads(made.json())
    return found


# --- from Spark -------------------------------------------------------------------------------------------------


def check_type(type: Any, where: str) -> None:
    """Refuse a Spark type that Spark fails to give to Python's workers, with a message that names nothing.

    Raises
    ------
    Unsupported
        If it is or contains an interval of months.
    InvalidType
        If a struct has several fields of one name, or a name that Arrow's schemas cannot have.
    """
    if type.typeName() == "yearmonthinterval":
        raise Unsupported(f"{where} is {type.simpleString()}, for which pyarrow has no type", hint="cast it to int")
    if hasattr(type, "sqlType"):
        type = type.sqlType()
    names = getattr(type, "names", ())
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InvalidType(f"{where} has several fields named {twice!r}", hint="rename them")
    for name in names:
        check_name(name, f"{where} has a field")
    for field in getattr(type, "fields", ()):
        check_type(field.dataType, f"{where}, field {field.name!r}")
    for part in ("elementType", "keyType", "valueType"):
        if hasattr(type, part):
            check_type(getattr(type, part), where)


def check_name(name: str, where: str) -> None:
    """Refuse a name that other libraries would cut, as a NUL ends it in C."""
    if "\0" in name:
        raise InvalidType(f"{where} named {name!r}: names in Arrow end at NUL", hint="rename it")


def nullable(type: Any) -> Any:
    """Return a Spark type whose fields and elements are nullable, at any depth, without types of users."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if hasattr(type, "sqlType"):
        return nullable(type.sqlType())
    if isinstance(type, ArrayType):
        return ArrayType(nullable(type.elementType), True)
    if isinstance(type, MapType):
        return MapType(nullable(type.keyType), nullable(type.valueType), True)
    if isinstance(type, StructType):
        return StructType([StructField(each.name, nullable(each.dataType), True, each.metadata) for each in type])
    return type
