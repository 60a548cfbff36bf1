# SPDX-License-Identifier: Apache-2.0
"""Schemas: ordered fields and metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Protocol

from shmarrow import capsules
from shmarrow.capsules import PyCapsule
from shmarrow.errors import (
    FieldNotFound,
    IndexOutOfRange,
    InvalidData,
    InvalidType,
    counted,
    full_name,
    not_expected,
    printable,
    shown,
)
from shmarrow.types.arguments import Metadata, MetadataLike, as_metadata
from shmarrow.types.base import (
    CAST_ENUM,
    OTHER_VALUES,
    DataType,
    Field,
    FieldsLike,
    as_fields,
    is_field,
    names_other_values,
    own_field,
)

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["PANDAS_KEY", "FieldSource", "Schema", "SchemaLike", "as_schema", "schema"]

_MOST_NAMES = 1000
"""At most so many names are searched for one that is similar to a missing one."""


class FieldSource(Protocol):
    """Lazy source of the fields of a schema that was read from a message."""

    def __len__(self) -> int: ...

    def field(self, index: int) -> Field:
        """Return the field at a position."""

    def fields(self) -> list[Field]:
        """Return all fields in order."""

    def names(self) -> list[str]:
        """Return all names in order."""

    def find(self, name: str) -> list[int]:
        """Return the positions of the fields with this name."""


class Schema:
    """Ordered fields of a record batch or table, and metadata.

    Schemas are equal if their fields are; :meth:`equals` can compare the metadata too. A schema read from a message
    decodes each field on first access.

    Attributes
    ----------
    metadata : FrozenMetadata or None
        Immutable mapping of bytes to bytes, if any.

    Notes
    -----
    Thread safety: immutable, and lazy decoding is thread-safe. Returned lists are copies.
    """

    __slots__ = ("__weakref__", "_encoded", "_exported", "_fields", "_index", "_length", "_source", "metadata")

    _encoded: dict[str, Any]  # its table in messages, by byte order
    _exported: Any  # cached C data interface export
    _fields: tuple[Field, ...]
    _index: dict[str, list[int]] | None
    _length: int
    _source: FieldSource | None
    metadata: Metadata | None

    def __init__(
        self,
        fields: FieldsLike = (),
        metadata: MetadataLike | None = None,
        *,
        source: FieldSource | None = None,
    ) -> None:
        own = as_fields(fields) if source is None else ()
        put = object.__setattr__
        put(self, "_encoded", {})
        put(self, "_exported", None)
        put(self, "_source", source)
        put(self, "_index", None)
        put(self, "_fields", own)
        put(self, "_length", len(own) if source is None else len(source))
        put(self, "metadata", as_metadata(metadata))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Schema.{name} cannot be set; create another schema, as with_metadata() does")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Schema.{name} cannot be deleted")

    def field(self, key: int | str) -> Field:
        """Return a field by position or name.

        Raises
        ------
        FieldNotFound
            If the name is missing or occurs more than once.
        IndexOutOfRange
            If the position is out of range.
        """
        index = self.index_of(key)
        return self._fields[index] if self._source is None else self._source.field(index)

    def index_of(self, key: int | str) -> int:
        """Return the non-negative position of a field given by position or name; raises as :meth:`field`."""
        if isinstance(key, str):
            indices = self.get_all_field_indices(key)
            if len(indices) == 1:
                return indices[0]
            if indices:
                raise FieldNotFound(
                    f"the name {key!r} occurs {len(indices)} times in the schema, at {indices[:8]}; use a position"
                )
            raise self._no_field(key)
        try:
            index = as_index(key)
        except TypeError:
            raise InvalidType(
                f"a column is selected by position or name, found {type(key).__name__}; "
                "use select([...]) for several columns, filter(mask) or take(indices) for rows"
            ) from None
        length = self._length
        if not -length <= index < length:
            raise IndexOutOfRange(f"no field {shown(index)}: the schema has {length}")
        return index + length if index < 0 else index

    def _no_field(self, name: str) -> FieldNotFound:
        """The error for a missing name, with the most similar one as its hint."""
        from difflib import get_close_matches

        names = self.names
        error = FieldNotFound(
            f"no field is named {name!r}; the schema has {counted(len(names), 'field')}: {names[:8]}"
            + (" ..." if len(names) > 8 else "")
        )
        for match in get_close_matches(name, names[:_MOST_NAMES], n=1, cutoff=0.6):
            error.hint = f"did you mean {match!r}?"
        return error

    def get_all_field_indices(self, name: str) -> list[int]:
        """Return the positions of all fields with this name; InvalidType if it is not a string."""
        if not isinstance(name, str):
            raise InvalidType(f"a field name must be a string, found {full_name(name)}")
        if self._source is not None:
            return self._source.find(name)
        if self._index is None:
            index: dict[str, list[int]] = {}
            for i, field in enumerate(self._fields):
                index.setdefault(field.name, []).append(i)
            object.__setattr__(self, "_index", index)
        assert self._index is not None
        return list(self._index.get(name, ()))

    def get_field_index(self, name: str) -> int:
        """Return the position of the field with this name, or -1 if it is missing or ambiguous.

        InvalidType if ``name`` is not a string.
        """
        indices = self.get_all_field_indices(name)
        return indices[0] if len(indices) == 1 else -1

    @property
    def fields(self) -> list[Field]:
        """The fields in order, in a new list."""
        return list(self._fields) if self._source is None else self._source.fields()

    @property
    def names(self) -> list[str]:
        """The field names in order, in a new list."""
        return [field.name for field in self._fields] if self._source is None else self._source.names()

    @property
    def types(self) -> list[DataType]:
        """The field types in order, in a new list."""
        return [field.type for field in self._fields or self.fields]

    def equals(self, other: Any, check_metadata: bool = False) -> bool:
        """Compare the fields, and with ``check_metadata`` the metadata on every level.

        Raises
        ------
        InvalidType
            If ``other`` is not a schema of any Arrow library.
        """
        if self is other:
            return True
        if not isinstance(other, Schema):
            from shmarrow.types.c_schema import read_schema

            other = capsules.comparable(other, Schema, read_schema)
        if len(self) != len(other):
            return False
        if check_metadata and (self.metadata or {}) != (other.metadata or {}):
            return False
        if self._source is not None and self._source is other._source:
            return True
        return all(mine.equals(theirs, check_metadata) for mine, theirs in zip(self, other, strict=True))

    def with_metadata(self, metadata: MetadataLike | None) -> Schema:
        """Return the schema with other metadata."""
        return Schema(metadata=metadata, source=self._source) if self._source else Schema(self.fields, metadata)

    def remove_metadata(self) -> Schema:
        """Return the schema without its metadata."""
        return self.with_metadata(None)

    # --- other libraries ---

    def to_pyarrow(self) -> pa.Schema:
        """Convert to a ``pyarrow.Schema`` with the metadata of each level; errors as :meth:`DataType.to_pyarrow`."""
        from shmarrow.types.c_schema import to_pyarrow

        return to_pyarrow(self, "Schema")

    def __arrow_c_schema__(self) -> PyCapsule:
        """Export the schema as a PyCapsule ``arrow_schema`` of struct type (Arrow PyCapsule interface).

        Raises
        ------
        ExportRefused
            If a name contains a NUL character, which terminates a string in C.
        MissingExtra
            If nanoarrow is not installed.
        """
        from shmarrow.types.c_schema import schema_schema

        return schema_schema(self).__arrow_c_schema__()

    def for_consumer(self, name: str = "", *, lossy: str | Iterable[str] = ()) -> Schema:
        """Return the schema that ``for_consumer`` of rows produces; the schema itself if no cast is needed.

        Parameters
        ----------
        name : str
            The tool; see :meth:`RecordBatch.for_consumer`.
        lossy : str or iterable of str
            Kinds of types whose values may lose something, or ``"all"``.

        Raises
        ------
        Unsupported
            If the tool has no type for a column; names the ``lossy`` kind that would allow a cast, if any.
        InvalidArgument
            If ``name`` is unknown, or ``lossy`` names a kind that never loses anything.
        """
        from shmarrow.types.for_consumer import casting_for

        return self._with_types([stages.final for stages in casting_for(name, lossy).schema(self)])

    def _with_types(self, types: Iterable[DataType]) -> Schema:
        """Return the schema with other types; itself if they are the same."""
        old = self.fields
        fields = [
            field if field.type == type else field.with_type(type) for field, type in zip(old, types, strict=True)
        ]
        same = all(new is field for new, field in zip(fields, old, strict=True))
        return self if same else Schema(fields, self.metadata)

    @property
    def pandas_metadata(self) -> dict[str, Any] | None:
        """The metadata about the original pandas DataFrame, or None.

        Raises
        ------
        InvalidData
            If it is not JSON, or not an object.
        """
        import json

        text = (self.metadata or {}).get(PANDAS_KEY)
        if text is None:
            return None
        try:
            described = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidData(f"the metadata {shown(PANDAS_KEY)} are not JSON: {error}") from None
        if not isinstance(described, dict):
            raise InvalidData(f"the metadata {shown(PANDAS_KEY)} must be a JSON object, found {shown(described)}")
        return described

    def append(self, field: Field) -> Schema:
        """Append a field; InvalidType for anything else."""
        return self.insert(len(self), field)

    def insert(self, i: int, field: Field) -> Schema:
        """Insert a field before position ``i``, which may be the end.

        Raises
        ------
        IndexOutOfRange
            If the position is negative or beyond the end.
        InvalidType
            If ``field`` is not a Field, or ``i`` is not an int.
        """
        i = position(i, len(self) + 1)
        fields = self.fields
        return Schema([*fields[:i], _checked(field), *fields[i:]], self.metadata)

    def set(self, i: int, field: Field) -> Schema:
        """Replace the field at position ``i``; raises as :meth:`insert`."""
        i = position(i, len(self))
        fields = self.fields
        return Schema([*fields[:i], _checked(field), *fields[i + 1 :]], self.metadata)

    def remove(self, i: int) -> Schema:
        """Remove the field at position ``i``; raises as :meth:`insert`."""
        i = position(i, len(self))
        fields = self.fields
        return Schema(fields[:i] + fields[i + 1 :], self.metadata)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, key: int | str) -> Field:
        return self.field(key)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.get_all_field_indices(name))

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.fields))

    def __str__(self) -> str:
        lines = [str(self.field(i)) for i in range(min(len(self), 100))]
        if len(self) > 100:
            lines.append(f"... {len(self) - 100} more fields")
        if self.metadata:
            lines.append("-- schema metadata --")
            lines += [
                f"{printable(key.decode(errors='replace'))}: {_short(value)}" for key, value in self.metadata.items()
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<shmarrow.Schema of {counted(len(self), 'field')}>\n{self}"

    def __reduce__(self) -> tuple[object, ...]:
        return Schema, (self.fields, self.metadata)


def position(i: int, count: int) -> int:
    """Return a checked position; negative ones are errors, as ``get_field_index`` returns -1 for unknown names.

    Raises
    ------
    IndexOutOfRange
        If ``i`` is negative, or ``count`` or more.
    InvalidType
        If ``i`` is not an int.
    """
    try:
        index = as_index(i)
    except TypeError:
        hint = f"drop_columns([{shown(i)}]) takes names" if isinstance(i, str) else None
        raise InvalidType(f"expected a position, found {shown(i)}", hint=hint) from None
    if not 0 <= index < count:
        expected = f"expected 0 to {count - 1}" if count else "there are none"
        raise IndexOutOfRange(f"position {shown(index)} is out of range: {expected}")
    return index


def _checked(field: Field) -> Field:
    if not is_field(field):
        raise not_expected("a shmarrow.Field", field)
    return own_field(field)


def _short(value: bytes) -> str:
    text = value[:80].decode(errors="replace")
    return repr(text) + (f" + {len(value) - 80} bytes" if len(value) > 80 else "")


SchemaLike = Schema | Mapping[str, DataType | str]
"""What names columns and their types: a schema, or a mapping of names to types."""


def schema(fields: Any, metadata: MetadataLike | None = None) -> Schema:
    """Create a schema from fields, (name, type) pairs, a mapping of names to types, or any Arrow library's schema.

    Parameters
    ----------
    fields : iterable, mapping, or schema
        The fields; those of an object with ``__arrow_c_schema__`` keep their metadata.
    metadata : mapping of str or bytes to str or bytes, optional
        Metadata of the schema, replacing any that ``fields`` has.

    Raises
    ------
    InvalidType
        If ``fields`` is none of these.
    """
    result = as_schema(fields)
    if result is None:
        return Schema(fields, metadata)
    return result if metadata is None else result.with_metadata(metadata)


PANDAS_KEY = b"pandas"
"""The key of the metadata about a pandas DataFrame."""


def with_nulls(schema: Schema) -> Schema:
    """Make all fields nullable."""
    if all(field.nullable for field in schema):
        return schema
    return Schema([field.with_nullable(True) for field in schema], schema.metadata)


def difference(schema: Schema, expected: Schema) -> str:
    """Describe the first difference of two unequal schemas, and how to resolve it, as the rest of a message."""
    names, others = schema.names, expected.names
    if names != others:
        missing = [name for name in others if name not in set(names)]
        extra = [name for name in names if name not in set(others)]
        if missing or extra:
            return "; ".join(filter(None, [_named("missing", missing), _named("not expected", extra)]))
        if len(names) != len(others):
            return f"found {counted(len(names), 'column')}, expected {len(others)}: a name occurs more than once"
        at = next(i for i, (name, other) in enumerate(zip(names, others, strict=True)) if name != other)
        text = f"column {at} is {shown(names[at])}, expected {shown(others[at])}"
        return f"{text}; shmarrow.table(data).select(schema.names) puts them in order"
    differing = [(mine, its) for mine, its in zip(schema, expected, strict=True) if mine != its]
    mine, its = differing[0]
    more = f" (the first of {len(differing)} that differ)" if len(differing) > 1 else ""
    if names_other_values(mine, its):
        return f"column {shown(mine.name)} is {OTHER_VALUES}{more}; {CAST_ENUM}"
    if mine.type == its.type:
        kinds = {True: "nullable", False: "not nullable"}
        text = f"{kinds[mine.nullable]}, expected {kinds[its.nullable]}"
    elif str(mine.type) == str(its.type):
        text = f"{mine.type!r}, expected a different type of that name: their parameters or fields differ"
    else:
        text = f"{mine.type}, expected {its.type}"
    return f"column {shown(mine.name)} is {text}{more}; shmarrow.table(data).cast(schema) converts it"


def _named(what: str, names: list[str]) -> str:
    """The first few column names, for messages; empty if there are none."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{what}: column{'s' * (len(names) > 1)} {', '.join(map(shown, names[:3]))}{more}" if names else ""


def as_schema(value: Any) -> Schema | None:
    """Convert a schema of any Arrow library to ours; None for anything else."""
    if isinstance(value, Schema):
        return value
    if not capsules.has_schema(value):
        return None
    from shmarrow.types.c_schema import read_schema

    return read_schema(value)
