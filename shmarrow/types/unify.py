# SPDX-License-Identifier: Apache-2.0
"""Schema unification: merge fields by name, each to a type that can hold all values.

This module alone decides the common type of two types; the cast checks that every value fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shmarrow.errors import InvalidArgument, InvalidType, iterated, not_expected, shown
from shmarrow.types.base import CAST_ENUM, OTHER_VALUES, DataType, Field, names_other_values
from shmarrow.types.descriptors import TIME_UNIT
from shmarrow.types.extension import ExtensionType
from shmarrow.types.nested import DictionaryType, FixedSizeListType, LargeListType, ListType, MapType, StructType
from shmarrow.types.primitive import BinaryType, DecimalType, FloatType, IntType, LargeBinaryType
from shmarrow.types.schema import Schema, as_schema

__all__ = ["unify_schemas"]

_LISTS = (ListType, LargeListType, FixedSizeListType)
_FLOAT_FOR = {8: 16, 16: 32, 32: 64, 64: 64}
"""Float width for each integer width; not every 64-bit integer is exact."""


def unify_schemas(schemas: Iterable[Schema], *, promote_options: str = "default") -> Schema:
    """Merge schemas by field name; new fields of later schemas are appended.

    Parameters
    ----------
    schemas : iterable of Schema
        The result has the metadata of the first schema; a field's metadata come from the first schema with any.
    promote_options : str
        With ``"default"``, fields of one name must have the same type, or one of them the null type; a field is
        nullable if any is; struct fields and list elements are unified recursively. With ``"permissive"``, numbers
        and decimals may differ in width, integers are promoted to floats and decimals, and temporal types may differ
        in unit, binary and string types in offset width, lists in layout. Decimals are not promoted to floats, as
        most have no exact float.

    Raises
    ------
    InvalidArgument
        If there are no schemas, a schema has duplicate names, or the option is unknown.
    InvalidType
        If fields of one name have no common type.
    """
    if promote_options not in ("default", "permissive"):
        raise InvalidArgument(f"promote_options must be 'default' or 'permissive', found {shown(promote_options)}")
    checked = []
    for item in iterated(schemas, "a list of shmarrow.Schema"):
        schema = as_schema(item)
        if schema is None:
            raise not_expected("a list of shmarrow.Schema", item)
        checked.append(schema)
    if not checked:
        raise InvalidArgument("expected at least one schema")
    fields = _merged_fields([list(schema) for schema in checked], promote_options == "permissive")
    return Schema(fields, checked[0].metadata)


def _merged_fields(several: Sequence[Sequence[Field]], permissive: bool) -> list[Field]:
    merged: dict[str, Field] = {}
    for fields in several:
        names = [field.name for field in fields]
        if len(set(names)) != len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise InvalidArgument(f"fields are unified by name, but {twice!r} occurs more than once")
        for field in fields:
            earlier = merged.get(field.name)
            merged[field.name] = field if earlier is None else _merged_field(earlier, field, permissive)
    return list(merged.values())


def _merged_field(a: Field, b: Field, permissive: bool) -> Field:
    type = _merged(a.type, b.type, permissive)
    if names_other_values(a, b):
        raise InvalidType(f"cannot unify the fields named {a.name!r}: the second is {OTHER_VALUES}", hint=CAST_ENUM)
    if type is None:
        raise InvalidType(f"cannot unify the fields named {a.name!r}: {a.type} and {b.type}")
    return Field(a.name, type, a.nullable or b.nullable, a.metadata if a.metadata else b.metadata)


def _merged(a: Any, b: Any, permissive: bool) -> DataType | None:
    """The type that can hold the values of both, or None."""
    if a == b:
        return a
    if "null" in (a.layout, b.layout):
        return b if a.layout == "null" else a
    if isinstance(a, StructType) and isinstance(b, StructType):
        return StructType(_merged_fields([a.fields, b.fields], permissive))
    if isinstance(a, MapType) and isinstance(b, MapType):
        return _merged_maps(a, b, permissive)
    if isinstance(a, _LISTS) and isinstance(b, _LISTS) and (permissive or a.__class__ is b.__class__):
        return _merged_lists(a, b, permissive)
    if permissive:
        for first, second in ((a, b), (b, a)):
            merge = _PAIRS.get((_kind(first), _kind(second)))
            if merge is not None:
                return merge(first, second)
    return None


def _kind(type: Any) -> str:
    """The kind of a type's values; empty for views and extension types, which only unify with themselves."""
    if isinstance(type, (BinaryType, LargeBinaryType)):
        return "bytes"
    return "" if isinstance(type, ExtensionType) else type.descriptor.values


def same_values(a: DataType, b: DataType) -> bool:
    """Return whether types differ at most in the layout of strings, bytes and lists, so that a cast is exact."""
    return a == b or _plain(a) == _plain(b)


def _plain(type: Any) -> Any:
    """The type with all strings, bytes and lists in their 32-bit-offset layout, for comparison."""
    if hasattr(type, "text"):
        return BinaryType(type.text)
    if hasattr(type, "value_field") and not hasattr(type, "list_size"):
        return ListType(type.value_field.with_type(_plain(type.value_type)))
    if isinstance(type, StructType):
        return StructType([field.with_type(_plain(field.type)) for field in type.fields])
    if isinstance(type, MapType):
        return MapType(type.entries_field.with_type(_plain(type.entries_field.type)), type.keys_sorted)
    return type


def _merged_lists(a: Any, b: Any, permissive: bool) -> DataType:
    item = _merged_field(a.value_field, b.value_field, permissive)
    if isinstance(a, FixedSizeListType) and isinstance(b, FixedSizeListType) and a.list_size == b.list_size:
        return FixedSizeListType(item, a.list_size)
    return LargeListType(item) if LargeListType in (a.__class__, b.__class__) else ListType(item)


def _merged_maps(a: MapType, b: MapType, permissive: bool) -> DataType:
    key = _merged_field(a.key_field, b.key_field.with_name(a.key_field.name), permissive)
    item = _merged_field(a.item_field, b.item_field.with_name(a.item_field.name), permissive)
    return MapType(a.entries_field.with_type(StructType([key, item])), a.keys_sorted and b.keys_sorted)


def _integers(a: IntType, b: IntType) -> DataType:
    if a.signed == b.signed:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.signed else (b, a)
    return IntType(max(signed.bits, min(2 * unsigned.bits, 64)), True)


def _integer_and_float(a: IntType, b: FloatType) -> DataType:
    return FloatType(max(_FLOAT_FOR[a.bits], b.bits))


def _decimal(digits: int, scale: int, bits: int) -> DataType | None:
    """The narrowest decimal type of at least ``bits`` bits, with these digits before and after the point."""
    for width, most in ((32, 9), (64, 18), (128, 38), (256, 76)):
        if width >= bits and digits + scale <= most:
            return DecimalType(width, digits + scale, scale)
    return None


def _decimals(a: DecimalType, b: DecimalType) -> DataType | None:
    digits = max(a.precision - a.scale, b.precision - b.scale)
    return _decimal(digits, max(a.scale, b.scale), max(a.bits, b.bits))


def _integer_and_decimal(a: IntType, b: DecimalType) -> DataType | None:
    digits = len(str(1 << (a.bits - a.signed)))
    return _decimal(max(digits, b.precision - b.scale), max(b.scale, 0), b.bits)


def _finer(a: Any, b: Any) -> DataType | None:
    """Dates and times of the finer of two units, if they differ in nothing else."""
    units = ("day", *TIME_UNIT.values)
    finer = max(a, b, key=lambda type: units.index(type.unit))
    return finer if getattr(a, "tz", None) == getattr(b, "tz", None) else None


def _binaries(a: Any, b: Any) -> DataType:
    large = LargeBinaryType in (a.__class__, b.__class__)
    text = all(getattr(type, "text", False) for type in (a, b))
    return LargeBinaryType(text) if large else BinaryType(text)


def _dictionaries(a: DictionaryType, b: DictionaryType) -> DataType | None:
    values = _merged(a.value_type, b.value_type, True)
    if values is None or a.ordered != b.ordered:
        return None
    return DictionaryType(_integers(a.index_type, b.index_type), values, a.ordered)


_PAIRS: dict[tuple[str, str], Callable[[Any, Any], DataType | None]] = {
    ("integer", "integer"): _integers,
    ("integer", "float"): _integer_and_float,
    ("float", "float"): lambda a, b: FloatType(max(a.bits, b.bits)),
    ("integer", "decimal"): _integer_and_decimal,
    ("decimal", "decimal"): _decimals,
    **{(kind, kind): _finer for kind in ("date", "time", "timestamp", "timedelta")},
    ("bytes", "bytes"): _binaries,
    ("index", "index"): _dictionaries,
}
"""Permissive promotion of two types of different parameters or kinds of values, in either order."""
