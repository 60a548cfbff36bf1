# SPDX-License-Identifier: Apache-2.0
"""Names of columns: matching names, mappings and schemas with columns, renaming and selecting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from shmarrow.errors import (
    FieldNotFound,
    InvalidArgument,
    InvalidType,
    counted,
    full_name,
    iterated,
    not_expected,
    shown,
)
from shmarrow.types import Field, MetadataLike, Schema, as_schema
from shmarrow.types.base import schema_of

T = TypeVar("T")


def several(values: Iterable[T], what: str) -> tuple[T, ...]:
    """Return a list argument as a tuple; InvalidType for a string, which would be iterated by character."""
    if not hasattr(values, "__iter__") and hasattr(values, "schema"):
        raise InvalidType(f"expected a list of {what}, found one {full_name(values)}")
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        one = f"; write [{shown(values)}] for one" if isinstance(values, (str, bytes, int)) and "names" in what else ""
        raise InvalidType(f"expected a list of {what}, found {shown(values)}{one}")
    return tuple(iterated(values, f"a list of {what}"))


def renamed(schema: Schema, names: Sequence[str]) -> Schema:
    """Rename the fields.

    Raises
    ------
    InvalidArgument
        If there are more or fewer names than fields.
    InvalidType
        If a name is no string.
    """
    names = several(names, "names")
    if set(map(type, names)) != {str}:
        for name in names:
            if not isinstance(name, str):
                raise InvalidType(f"the name of a column must be a string, found {shown(name)}")
    if len(names) != len(schema):
        raise InvalidArgument(f"expected {counted(len(schema), 'name')}, one for each column, found {len(names)}")
    fields = [field.with_name(name) for field, name in zip(schema.fields, names, strict=True)]
    return Schema(fields, schema.metadata)


def fields_at(schema: Schema, indices: Sequence[int]) -> Schema:
    """Select fields of a schema by position, keeping its metadata."""
    return Schema([schema.field(i) for i in indices], schema.metadata)


def included(schema: Schema, keys: Iterable[int | str] | None) -> tuple[Sequence[int] | None, Schema]:
    """The positions of the fields that a reader is told to include, None for all of them, and their schema.

    As in pyarrow, duplicates are dropped and the schema's order is kept.
    """
    if keys is None:
        return None, schema
    positions = sorted({schema.index_of(key) for key in several(keys, "positions and names")})
    return positions, fields_at(schema, positions)


def by_name(mapping: Mapping[str, Any], schema: Schema | None) -> tuple[list[str], list[Any]]:
    """Return the names and columns of a mapping, in schema order if a schema is given.

    Raises
    ------
    FieldNotFound
        If the schema has a name that the mapping does not have.
    InvalidArgument
        If the mapping has a name that the schema does not have, or the schema one twice.
    """
    if schema is None:
        return list(mapping), list(mapping.values())
    names = checked_schema(schema).names
    missing = [name for name in names if name not in mapping]
    if missing:
        raise FieldNotFound(f"the mapping has no column for the fields {missing[:20]}, it has {list(mapping)[:20]}")
    if len(mapping) != len(names):
        known = set(names)
        extra = [name for name in mapping if name not in known]
        found = f"no field for the columns {extra[:20]}" if extra else "names that occur more than once"
        raise InvalidArgument(f"the schema has {found}; its fields are {names[:20]}")
    return names, [mapping[name] for name in names]


def given_fields(
    columns: Sequence[Any], names: Sequence[str] | None, schema: Schema | None, metadata: MetadataLike | None
) -> Sequence[Field | str]:
    """Return a field or a name per column, whichever is given.

    Raises
    ------
    InvalidArgument
        If neither or both of names and schema are given, if there are more or fewer of them than columns, or if
        metadata are given that the schema has already.
    """
    if (names is None) == (schema is None):
        rows = any(isinstance(column, Mapping) for column in columns[:1])
        hint = "rows as dicts are what from_pylist() takes" if rows else None
        found = "both" if names is not None else "neither"
        raise InvalidArgument(f"arrays need either names or a schema, found {found}", hint=hint)
    if schema is not None and metadata is not None:
        raise InvalidArgument("a schema already has metadata; pass one or the other")
    given: Sequence[Field | str] = several(names or (), "names") if schema is None else checked_schema(schema).fields
    if len(given) != len(columns):
        what = "names" if schema is None else "fields"
        raise InvalidArgument(f"{len(columns)} arrays for {len(given)} {what}")
    return given


def checked_schema(schema: Any) -> Schema:
    """Convert any library's schema, or a mapping of names to types; InvalidType for anything else."""
    found = as_schema(schema)
    if found is None and isinstance(schema, Mapping):
        return Schema(schema)
    if found is None:
        error = not_expected("a shmarrow.Schema", schema)
        error.hint = error.hint or schema_of(schema)
        raise error
    return found


def common_length(columns: Sequence[Any], schema: Schema) -> int:
    """Return the common length of columns; InvalidArgument if they differ."""
    lengths = {column._length for column in columns}
    if len(lengths) > 1:
        found = ", ".join(f"{schema.field(i).name!r}: {len(column)}" for i, column in enumerate(columns[:20]))
        raise InvalidArgument(f"the columns of a batch must have the same length, found {found}")
    return lengths.pop() if lengths else 0
