"""Fields: a name, a type, nullability and metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from shmarrow import capsules
from shmarrow.capsules import PyCapsule
from shmarrow.errors import InvalidType, full_name, iterated, printable, shown
from shmarrow.types.base import DataType, Metadata, MetadataLike, as_bool, as_metadata, as_type, as_utf8

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Field", "FieldsLike", "as_field", "as_fields", "field"]


def _below(type: Any) -> tuple[Field, ...]:
    """Return the fields of a type, or of the values of a dictionary."""
    stored = getattr(type, "storage_type", type)
    return _below(stored.value_type) if hasattr(stored, "index_type") else stored.fields


class Field:
    """A named type, with nullability and metadata.

    Fields are equal when name, type and nullability are; :meth:`equals` can compare the metadata too.

    Attributes
    ----------
    name : str
        Name.
    type : DataType
        Type of the values.
    nullable : bool
        Whether values may be null.
    metadata : FrozenMetadata or None
        Immutable mapping of bytes to bytes, if any.

    Notes
    -----
    Thread safety: immutable.

    Raises
    ------
    InvalidType
        If the name is not a string, or ``nullable`` is neither a bool nor None (True).
    InvalidArgument
        If the name cannot be encoded as UTF-8.
    """

    __slots__ = ("metadata", "name", "nullable", "type")

    name: str
    type: DataType
    nullable: bool
    metadata: Metadata | None

    def __init__(self, name: str, type: DataType, nullable: bool = True, metadata: MetadataLike | None = None) -> None:
        if not isinstance(name, str):
            raise InvalidType(f"the name of a field must be a string, found {shown(name)}")
        if not name.isascii():
            as_utf8(name, "the field name")
        _set_name(self, name)
        _set_type(self, type if isinstance(type, DataType) else as_type(type))
        _set_nullable(self, nullable if nullable.__class__ is bool else as_bool(nullable, "nullable", True))
        _set_metadata(self, None if metadata is None else as_metadata(metadata))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Field.{name} cannot be set; with_{name}() returns a changed field")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Field.{name} cannot be deleted")

    @property
    def required(self) -> bool:
        """Whether a null is invalid: the field is not nullable, and its type has values."""
        return not self.nullable and self.type.layout != "null"

    def equals(self, other: Any, check_metadata: bool = False) -> bool:
        """Compare name, type and nullability, and with ``check_metadata`` all metadata, children included.

        Raises
        ------
        InvalidType
            If ``other`` is not a field of any Arrow library.
        """
        if not isinstance(other, Field):
            from shmarrow.types.c_schema import read_field

            other = capsules.comparable(other, Field, read_field)
        if self != other:
            return False
        if not check_metadata:
            return True
        return (self.metadata or {}) == (other.metadata or {}) and all(
            mine.equals(theirs, True) for mine, theirs in zip(_below(self.type), _below(other.type), strict=True)
        )

    def with_name(self, name: str) -> Field:
        """Return the field with another name."""
        return Field(name, self.type, self.nullable, self.metadata)

    def with_type(self, type: DataType) -> Field:
        """Return the field with another type."""
        return Field(self.name, type, self.nullable, self.metadata)

    def with_nullable(self, nullable: bool) -> Field:
        """Return the field with another nullability."""
        return Field(self.name, self.type, nullable, self.metadata)

    def with_metadata(self, metadata: MetadataLike | None) -> Field:
        """Return the field with other metadata."""
        return Field(self.name, self.type, self.nullable, metadata)

    def remove_metadata(self) -> Field:
        """Return the field without metadata."""
        return Field(self.name, self.type, self.nullable)

    def flatten(self) -> list[Field]:
        """Return the fields of a struct, named ``struct.field``; for other types, a list with this field.

        A field is nullable if it or the struct is.
        """
        if self.type.layout != "struct" or self.type.array_class is not None:
            return [self]
        return [
            Field(f"{self.name}.{child.name}", child.type, self.nullable or child.nullable, child.metadata)
            for child in self.type.fields
        ]

    def to_pyarrow(self) -> pa.Field:
        """Convert to a ``pyarrow.Field``; an extension type unknown to pyarrow is recorded in its metadata.

        Errors as for :meth:`DataType.to_pyarrow`.
        """
        from shmarrow.types.c_schema import to_pyarrow

        return to_pyarrow(self, "Field")

    def __arrow_c_schema__(self) -> PyCapsule:
        """Export the field as a PyCapsule ``arrow_schema`` (Arrow PyCapsule interface).

        Errors as for :meth:`Schema.__arrow_c_schema__`.
        """
        from shmarrow.types.c_schema import field_schema

        return field_schema(self).__arrow_c_schema__()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Field):
            return NotImplemented
        return self.name == other.name and self.nullable == other.nullable and self.type == other.type

    def __hash__(self) -> int:
        return hash((self.name, self.type, self.nullable))

    def __str__(self) -> str:
        return f"{printable(self.name)}: {self.type}" + ("" if self.nullable else " not null")

    def __repr__(self) -> str:
        return f"Field({self})"

    def __reduce__(self) -> tuple[object, ...]:
        return Field, (self.name, self.type, self.nullable, self.metadata)


_set_name = Field.__dict__["name"].__set__
_set_type = Field.__dict__["type"].__set__
_set_nullable = Field.__dict__["nullable"].__set__
_set_metadata = Field.__dict__["metadata"].__set__

FieldsLike = Iterable[Field | tuple[Any, ...]] | Mapping[str, DataType | str] | Mapping[str, DataType]


def as_field(value: Field | DataType | str, name: str) -> Field:
    """Return a field unchanged, or a type as a nullable field with this name."""
    return own_field(value) if is_field(value) else Field(name, as_type(value))  # type: ignore[arg-type]


def is_field(value: Any) -> TypeGuard[Field]:
    """Return whether a value is a field of any Arrow library."""
    return isinstance(value, Field) or (capsules.has_schema(value) and type(value).__name__ == "Field")


def own_field(value: Any) -> Field:
    """Convert a field of any Arrow library to ours."""
    if isinstance(value, Field):
        return value
    from shmarrow.types.c_schema import read_field

    return read_field(value)


def as_fields(fields: FieldsLike) -> tuple[Field, ...]:
    """Return fields from fields, (name, type) tuples, or a mapping of names to types.

    Raises
    ------
    InvalidType
        If ``fields`` is none of these.
    """
    expected = "fields, (name, type) tuples, or a mapping"
    if isinstance(fields, (str, bytes)) or not (isinstance(fields, Iterable) or schema_of(fields)):
        raise InvalidType(f"expected {expected}, found {shown(fields)}")
    if schema_of(fields):
        raise InvalidType(f"expected {expected}, found {full_name(fields)}", hint=schema_of(fields))
    items = iterated(fields.items() if isinstance(fields, Mapping) else fields, expected)
    return tuple(
        [
            item if isinstance(item, Field) else own_field(item) if is_field(item) else _from_tuple(item)
            for item in items
        ]
    )


def schema_of(value: Any) -> str | None:
    """Return the hint that says how to get the schema of tabular data; None for other values."""
    kind = type(value)
    if kind.__module__.startswith("shmarrow."):
        return "pass its .schema" if not isinstance(value, type) and hasattr(value, "schema") else None
    return "pass shmarrow.table(data).schema" if hasattr(kind, "columns") and len(kind.__mro__) > 1 else None


def _from_tuple(item: Any) -> Field:
    if not isinstance(item, (tuple, list)) or not 2 <= len(item) <= 4:
        hint = f"a field needs a type, as in ({shown(item)}, 'int64')" if isinstance(item, str) else None
        raise InvalidType(f"expected a Field or a (name, type) tuple, found {shown(item)}", hint=hint)
    return Field(*item)


def field(
    name: Any, type: DataType | str | None = None, nullable: bool = True, metadata: MetadataLike | None = None
) -> Field:
    """Create a field: a named type.

    Parameters
    ----------
    name : str, or field of another library
        The name; or, as the only argument, an object with ``__arrow_c_schema__``.
    type : DataType or str
        A type of any Arrow library, or its name.
    nullable : bool
        Whether values may be null.
    metadata : mapping of str or bytes to str or bytes, optional
        Metadata of the field.

    Raises
    ------
    InvalidType
        If an argument is of the wrong class.
    InvalidArgument
        If the type name is unknown, or the field name cannot be encoded as UTF-8.
    """
    if type is None and (isinstance(name, Field) or capsules.has_schema(name)):
        return own_field(name)
    if type is None:
        raise InvalidType(f"expected a type for the field {shown(name)}, found None")
    return Field(name, as_type(type), nullable, metadata)
