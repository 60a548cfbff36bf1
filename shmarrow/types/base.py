"""The base class of all types, metadata, and lookup of types by name.

Invariants:

* types are immutable values: they compare and hash by class and parameters. A type also equals its name, as in
  pyarrow, but does not hash like it;
* a type's layout, dtypes and format string come from its descriptor (``_descriptors``);
* names and factories match pyarrow's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

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
    not_expected,
    printable,
    shown,
)
from shmarrow.types.descriptors import TypeDescriptor, claim

if TYPE_CHECKING:
    import pyarrow as pa

    from shmarrow.types.field import Field

__all__ = ["DType", "DataType", "FrozenMetadata", "Metadata", "MetadataLike", "as_metadata", "as_type"]

Metadata = Mapping[bytes, bytes]
MetadataLike = Mapping[Any, Any]


class FrozenMetadata(dict[bytes, bytes]):
    """Immutable, ordered metadata of a schema, field, batch or footer: a mapping of bytes to bytes.

    Equal to a dict with the same items; ``dict(metadata)`` makes a mutable copy.

    Notes
    -----
    Thread safety: immutable.
    """

    __slots__ = ()

    def _refuse(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """Raise InvalidType: metadata are immutable."""
        raise InvalidType("metadata is immutable; pass a changed copy, dict(metadata), to with_metadata()")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenMetadata:
        return self

    def __deepcopy__(self, memo: Any) -> FrozenMetadata:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return FrozenMetadata, (dict(self),)


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

    __slots__ = ("_depth", "_hash", "_str")

    _descriptors: ClassVar[tuple[TypeDescriptor, ...]] = ()  # of the class; each type has one of them
    descriptor: TypeDescriptor
    layout: str = ""
    array_class: ClassVar[Any] = None
    parameters: ClassVar[tuple[str, ...]] = ()
    storage: DType | None = None
    numpy_dtype: DType | None = None
    fields: tuple[Field, ...] = ()

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
        return self.descriptor.format_of(self)

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
            other = aliases().get(other)
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


def as_metadata(metadata: MetadataLike | None) -> Metadata | None:
    """Return metadata with keys and values as bytes; None if empty.

    Raises
    ------
    InvalidType
        If a key or value is neither a string nor bytes.
    InvalidArgument
        If a string cannot be encoded as UTF-8.
    """
    if metadata is None or type(metadata) is FrozenMetadata:
        return metadata or None
    if not isinstance(metadata, Mapping):
        raise InvalidType(f"metadata must be a mapping of strings or bytes, found {type(metadata).__name__}")
    result = {}
    for key, value in metadata.items():
        pair = [as_utf8(part, "metadata") if isinstance(part, str) else part for part in (key, value)]
        if not all(isinstance(part, bytes) for part in pair):
            raise InvalidType(f"metadata keys and values must be strings or bytes, found {shown(key)}: {value!r}")
        result[pair[0]] = pair[1]
    return FrozenMetadata(result) if result else None


def as_bool(value: Any, what: str, default: bool) -> bool:
    """Return a bool, or the default for None; InvalidType for anything else."""
    if value.__class__ is bool:
        return bool(value)
    if value is None:
        return default
    if isinstance(value, np.bool_):
        return bool(value)
    raise InvalidType(f"{what} must be True or False, found {shown(value)}")


def as_int(value: Any, what: str) -> int:
    """Return an int; InvalidType for anything else, including bools."""
    if value.__class__ is int:
        return int(value)
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return index(value)
    except TypeError:
        raise InvalidType(f"{what} must be an int, found {shown(value)}") from None


def as_positive(value: Any, what: str) -> int:
    """Return an int of at least 1; InvalidType or InvalidArgument for anything else."""
    number = as_int(value, what)
    if number < 1:
        raise InvalidArgument(f"{what} must be at least 1, found {number}")
    return number


def as_utf8(value: str, what: str) -> bytes:
    """Encode a string as UTF-8.

    Raises
    ------
    InvalidArgument
        If the string contains surrogates.
    """
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{what} {shown(value)} cannot be encoded as UTF-8: {error.reason} at position {error.start}"
        ) from None


def as_type(value: DataType | str) -> DataType:
    """Return a type given a type of any library, a numpy dtype, or a type name (with at most a unit)."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        named = aliases().get(value)
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


@cache
def aliases() -> dict[str, DataType]:
    """Types by the names that :func:`as_type` accepts."""
    from shmarrow.types import primitive

    return primitive.aliases()


@cache
def by_dtype() -> dict[DType, DataType]:
    """Types by little-endian numpy dtype."""
    from shmarrow.types import primitive

    return primitive.by_dtype()


def _of_dtype(value: Any) -> DataType | None:
    """The type for a dtype or anything ``np.dtype`` accepts; None if there is none."""
    try:
        return by_dtype().get(np.dtype(value).newbyteorder("<"))
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
    names = get_close_matches(name[:40], list(aliases()), 3)
    return f"; did you mean {' or '.join(map(repr, names))}?" if names else ""
