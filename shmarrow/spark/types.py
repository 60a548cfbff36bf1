"""Conversion between Arrow's and Spark's types, the latter in Spark's JSON format.

Invariants:

* an Arrow type is first converted by the rules of ``for_consumer("spark")``; the table here names Spark's type for each
  result;
* Spark's types are written in their JSON format, so most of this module works without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from shmarrow.errors import InvalidData, at, shown
from shmarrow.extension import ExtensionType
from shmarrow.interchange.consumers import kind_of
from shmarrow.interchange.for_consumer import Casting
from shmarrow.types import EncodedType, Field, Schema

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


def spark_schema(schema: Schema, casting: Casting) -> dict[str, Any]:
    """Return the Spark schema of rows, in the JSON format of ``StructType``.

    Parameters
    ----------
    schema : Schema
        The schema of the rows.
    casting : Casting
        The rules for Spark, and what may be lost.

    Raises
    ------
    Unsupported
        If Spark has no type for one of the columns.
    """
    return {"type": "struct", "fields": [spark_field(field, casting) for field in schema]}


def spark_field(field: Field, casting: Casting, where: str = "", within_null: bool = False) -> dict[str, Any]:
    """Return a field in the JSON format of ``StructField``.

    A field of a nullable struct is always nullable: where the struct is null, so is the field, which pyarrow, and hence
    Spark's ``toArrow``, otherwise rejects.
    """
    where = f"{where}, field {shown(field.name)}" if where else f"column {shown(field.name)}"
    return {
        "name": field.name,
        "type": spark_type(field.type, casting, where, field.nullable),
        "nullable": field.nullable or within_null,
        "metadata": _metadata(field, where),
    }


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


def spark_type(type: Any, casting: Casting, where: str, nullable: bool = True) -> SparkType:
    """Return the Spark type of a type.

    Parameters
    ----------
    type : DataType
        The type.
    casting : Casting
        The rules for Spark, and what may be lost.
    where : str
        Location for error messages.
    nullable : bool
        Whether values of this type may be null.

    Raises
    ------
    Unsupported
        If Spark has no type for it, or only a lossy one that the caller did not allow.
    """
    type = unwrapped(type)
    kind = kind_of(type)
    if kind in _LISTS:
        item = type.value_field
        return {
            "type": "array",
            "elementType": spark_type(item.type, casting, where, item.nullable),
            "containsNull": item.nullable,
        }
    if kind == "map":
        return {
            "type": "map",
            "keyType": spark_type(type.key_type, casting, f"{where}, keys", False),
            "valueType": spark_type(type.item_type, casting, where, type.item_field.nullable),
            "valueContainsNull": type.item_field.nullable,
        }
    if kind == "struct":
        mark = mark_of(type)
        if mark:
            return _marked(type, mark, where)
        return {"type": "struct", "fields": [spark_field(field, casting, where, nullable) for field in type.fields]}
    with at(where):
        final: Any = casting.stages(type).final
    name = SPARK[kind_of(final)]
    return name if isinstance(name, str) else name(final)


def mark_of(type: Any) -> bytes:
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


# --- several schemas --------------------------------------------------------------------------------------------


def same_type(a: SparkType, b: SparkType) -> bool:
    """Whether two Spark types are equal, ignoring nullability."""
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    if a["type"] != b["type"]:
        return False
    if a["type"] == "struct":
        return [field["name"] for field in a["fields"]] == [field["name"] for field in b["fields"]] and all(
            same_type(x["type"], y["type"]) for x, y in zip(a["fields"], b["fields"], strict=True)
        )
    return all(same_type(a[key], b[key]) for key in ("elementType", "keyType", "valueType") if key in a)


def merged_type(a: SparkType, b: SparkType) -> SparkType:
    """Merge two equal types; nullable wherever one of them is."""
    if isinstance(a, str) or isinstance(b, str) or a == b:
        return a
    if a["type"] == "struct":
        return a | {"fields": [merged_field(x, y) for x, y in zip(a["fields"], b["fields"], strict=True)]}
    types = {key: merged_type(a[key], b[key]) for key in ("elementType", "keyType", "valueType") if key in a}
    return a | types | {key: a[key] or b[key] for key in ("containsNull", "valueContainsNull") if key in a}


def merged_field(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Merge two fields of the same name and type."""
    return a | {"type": merged_type(a["type"], b["type"]), "nullable": a["nullable"] or b["nullable"]}


def shown_type(type: SparkType) -> str:
    """Format a Spark type as in SQL."""
    if isinstance(type, str):
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(type, type)
    if type["type"] == "struct":
        fields = [f"{field['name']}: {shown_type(field['type'])}" for field in type["fields"]]
        return f"struct<{', '.join(fields)}>"
    if type["type"] == "array":
        return f"array<{shown_type(type['elementType'])}>"
    if type["type"] == "map":
        return f"map<{shown_type(type['keyType'])}, {shown_type(type['valueType'])}>"
    return str(type["type"])
