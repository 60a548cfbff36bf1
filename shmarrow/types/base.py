# SPDX-License-Identifier: Apache-2.0
"""The base class of all types, fields (a name, a type, nullability, metadata), and lookup of types by name.

Invariants:

* types are immutable values: they compare and hash by class and parameters. A type also equals its name, as in
  pyarrow, but does not hash like it;
* a type's layout, dtypes and format string come from its descriptor (``_descriptors``);
* names and factories match pyarrow's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import numpy as np

from shmarrow import capsules
from shmarrow.buffer import DType
from shmarrow.capsules import PyCapsule
from shmarrow.errors import (
    MAX_DEPTH,
    FieldNotFound,
    InvalidArgument,
    InvalidType,
    full_name,
    iterated,
    not_expected,
    printable,
    shown,
)
from shmarrow.types.arguments import Metadata, MetadataLike, as_bool, as_metadata, as_utf8
from shmarrow.types.descriptors import TypeDescriptor, claim

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DType", "DataType", "Field", "FieldsLike", "as_field", "as_fields", "as_type", "field"]

ALIASES: dict[str, DataType] = {}
"""Types by the names that :func:`as_type` accepts; registered by ``primitive``."""

BY_DTYPE: dict[DType, DataType] = {}
"""Types by little-endian numpy dtype; registered by ``primitive``."""


class DataType:
    """Base class of all types.

    A subclass names its descriptors by their members of the Type union, or passes ``abstract=True``.

    Attributes
    ----------
    descriptor : TypeDescriptor
        The type's names and parameters in the serialized formats.
    layout : str
        Name of the physical layout, which determines the buffers.
    array_class : type or None
        Array class, if not the layout's; set by extension types.
    storage : numpy.dtype or None
        Little-endian dtype of one slot of the values buffer, for fixed-width layouts.
    numpy_dtype : numpy.dtype or None
        dtype of a zero-copy ``to_numpy()``, if numpy has one.
    fields : tuple of Field
        The child fields of a nested type.
    parameters : tuple of str
        Names of the attributes that, with the class, identify the type.

    Notes
    -----
    Thread safety: immutable.
    """

    __slots__ = ("_depth", "_format", "_hash", "_str")

    _descriptors: ClassVar[tuple[TypeDescriptor, ...]] = ()  # of the class; each type has one of them
    descriptor: TypeDescriptor
    layout: str = ""
    array_class: ClassVar[Any] = None
    parameters: ClassVar[tuple[str, ...]] = ()
    storage: DType | None = None
    numpy_dtype: DType | None = None
    fields: tuple[Field, ...] = ()

    _format: str
    _hash: int
    _str: str

    def __init_subclass__(cls, members: Sequence[str] = (), abstract: bool = False) -> None:
        if not abstract:
            cls._descriptors = claim(cls, members)
            first = cls._descriptors[0]
            if len(members) == 1:
                cls.descriptor = first
            if len(first.layouts) == 1:
                cls.layout = first.layouts[0]

    @property
    def format(self) -> str:
        """Format string of the Arrow C data interface."""
        try:
            return self._format
        except AttributeError:
            self._set(_format=self.descriptor.format_of(self))
            return self._format

    def _name(self) -> str:
        raise InvalidType(f"{type(self).__name__} has no name")  # pragma: no cover - every concrete type has one

    @property
    def byte_width(self) -> int:
        """Bytes per slot of the values buffer; 0 if not a whole, fixed number of bytes."""
        return self.storage.itemsize if self.storage is not None else 0

    @property
    def bit_width(self) -> int:
        """Bits per slot of the values buffer; 0 if not of fixed width."""
        return 8 * self.byte_width

    @property
    def num_fields(self) -> int:
        """Number of child fields."""
        return len(self.fields)

    def field(self, key: int | str) -> Field:
        """Return a child field by position or name.

        Raises
        ------
        FieldNotFound
            If no child has this name or position, or several have this name.
        InvalidType
            If ``key`` is neither an int nor a string.
        """
        if isinstance(key, str):
            fields = [field for field in self.fields if field.name == key]
            if len(fields) != 1:
                raise FieldNotFound(f"{self}: {len(fields)} child fields are named {key!r}, expected exactly one")
            return fields[0]
        try:
            position = index(key)
        except TypeError:
            raise InvalidType(f"a child field is selected by position or name, found {full_name(key)}") from None
        if not -len(self.fields) <= position < len(self.fields):
            raise FieldNotFound(f"{self}: no child field {shown(position)}, there are {len(self.fields)}")
        return self.fields[position]

    def _key(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.parameters])

    def equals(self, other: object) -> bool:
        """Return whether the class and parameters are equal.

        Parameters
        ----------
        other : DataType or str
            A type of any Arrow library, or a type name; an unknown name equals no type.

        Raises
        ------
        InvalidType
            If ``other`` is neither.
        """
        if not isinstance(other, (str, DataType)):
            from shmarrow.types.c_schema import read_type

            other = capsules.comparable(other, DataType, read_type)
        return self == other

    def to_pyarrow(self) -> pa.DataType:
        """Convert to a ``pyarrow.DataType``; an extension type unknown to pyarrow becomes its storage type.

        Raises
        ------
        Unsupported
            If pyarrow has no such type.
        MissingExtra
            If pyarrow or nanoarrow is not installed.
        """
        from shmarrow.types.c_schema import to_pyarrow

        return to_pyarrow(self, "DataType")

    def __arrow_c_schema__(self) -> PyCapsule:
        """Export the type as a PyCapsule ``arrow_schema`` (Arrow PyCapsule interface).

        Errors as for :meth:`Schema.__arrow_c_schema__`.
        """
        from shmarrow.types.c_schema import type_schema

        return type_schema(self).__arrow_c_schema__()

    def _set(self, **values: Any) -> None:
        """Set attributes, for constructors."""
        for name, value in values.items():
            object.__setattr__(self, name, value)
        below = [field.type for field in values.get("fields", ())]
        below += [values["value_type"]] if "value_type" in values else []
        if below:
            depth = 1 + max([getattr(getattr(part, "storage_type", part), "_depth", 0) for part in below])
            if depth > MAX_DEPTH:
                raise InvalidArgument(f"types nest up to {MAX_DEPTH} levels deep, found {depth}")
            object.__setattr__(self, "_depth", depth)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self} is immutable: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self} is immutable: {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, str):
            other = ALIASES.get(other)
        return type(self) is type(other) and isinstance(other, DataType) and self._key() == other._key()

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._set(_hash=hash((type(self), self._key())))
            return self._hash

    def __str__(self) -> str:
        try:
            return self._str
        except AttributeError:
            self._set(_str=printable(self._name()))
            return self._str

    def __repr__(self) -> str:
        return f"DataType({self})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple([getattr(self, name) for name in self.parameters])


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
        same = self.name == other.name and self.nullable == other.nullable and self.type == other.type
        if not same or not ((self.metadata and other.metadata) or self.type.fields):
            return same
        return not names_other_values(self, other)

    def __hash__(self) -> int:
        return hash((self.name, self.type, self.nullable))

    def __str__(self) -> str:
        return f"{printable(self.name)}: {self.type}" + ("" if self.nullable else " not null")

    def __repr__(self) -> str:
        return f"Field({self})"

    def __reduce__(self) -> tuple[object, ...]:
        return Field, (self.name, self.type, self.nullable, self.metadata)


def names_other_values(one: Field, other: Field) -> bool:
    """Whether the metadata of two fields, or of their children, list different values of a dictionary.

    Polars takes the indices of an Enum for positions in the list of its categories that the metadata have. So these are
    other fields: rows of one under the metadata of the other would be other values.
    """
    mine, theirs = one.metadata or {}, other.metadata or {}
    if any(key in mine and key in theirs and mine[key] != theirs[key] for key in _LISTED):
        return True
    return any(map(names_other_values, _below(one.type), _below(other.type)))


_LISTED = (b"_PL_ENUM_VALUES2", b"_PL_ENUM_VALUES")
OTHER_VALUES = "an Enum of Polars with other categories"
CAST_ENUM = "cast it to polars.Categorical or polars.String before it is written"

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


def as_type(value: DataType | str) -> DataType:
    """Return a type given a type of any library, a numpy dtype, or a type name (with at most a unit)."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        named = ALIASES.get(value)
        if named is None:
            raise InvalidArgument(f"no type is named {shown(value)}{_alike(value)}")
        return named
    if capsules.has_schema(value):
        from shmarrow.types.c_schema import read_type

        return read_type(value)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        named = _of_dtype(value)
        if named is None:
            raise InvalidType(f"no Arrow type for the numpy dtype {shown(value)}")
        return named
    if type(value).__module__ == "builtins":
        name = _OF_PYTHON.get(value) if isinstance(value, type) else None
        hint = f"write {name!r}" if name else None
        raise InvalidType(f"expected a DataType or the name of one, found {shown(value)}", hint=hint)
    raise not_expected("a DataType or the name of one", value)


def _of_dtype(value: Any) -> DataType | None:
    """The type for a dtype or anything ``np.dtype`` accepts; None if there is none."""
    try:
        return BY_DTYPE.get(np.dtype(value).newbyteorder("<"))
    except (TypeError, ValueError):
        return None


_OF_PYTHON = {bool: "bool", int: "int64", float: "float64", str: "string", bytes: "binary"}
"""Names of the types inferred for values of these classes."""


def _alike(name: str) -> str:
    """Similar type names, as the end of a message."""
    from difflib import get_close_matches

    if name.partition("[")[0].partition("(")[0] in ("list", "struct", "map", "decimal", "decimal128", "dictionary"):
        return "; parametric types have factory functions, such as shmarrow.list_('int64')"
    code = _of_dtype(name) if len(name) <= 3 else None
    if code is not None:
        return f"; numpy's {name!r} is {str(code)!r} here"
    names = get_close_matches(name[:40], list(ALIASES), 3)
    return f"; did you mean {' or '.join(map(repr, names))}?" if names else ""
