"""Types, fields and schemas from an ``ArrowSchema`` of the C data interface.

Rules kept here:

* a structure is read in place, and stays in its capsule, whose destructor releases it;
* the fields of a schema are read one by one, when they are asked for: a frame with thousands of columns costs no more
  than the columns that are used;
* pointers cannot be checked, but everything else is: NULL, negative counts, format strings, UTF-8, depth.
"""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, LimitExceeded, Unsupported, shown
from shmarrow.interchange.c_data.structs import DICTIONARY_ORDERED, MAP_KEYS_SORTED, NULLABLE, SCHEMA, pointer
from shmarrow.types import DataType, DictionaryType, Field, Metadata, Schema
from shmarrow.types.base import MAX_DEPTH, FrozenMetadata
from shmarrow.types.descriptors import parse_format, simple_types
from shmarrow.types.extension import extension_type

MAX_CHILDREN = 10_000_000
"""The most children of one structure; more of them can only be a number that is not one."""

_STRUCT = struct.Struct("<QQQqqQQQQ")
_NAME = SCHEMA.fields["name"][1]  # type: ignore[index]
assert _STRUCT.size == SCHEMA.itemsize
_read = ctypes.string_at


class CSchema(NamedTuple):
    """The members of an ``ArrowSchema``; pointers are addresses."""

    format: int
    name: int
    metadata: int
    flags: int
    n_children: int
    children: int
    dictionary: int
    release: int
    private_data: int

    @classmethod
    def at(cls, address: int) -> CSchema:
        """The structure at an address.

        Raises
        ------
        InvalidData
            If it has been released, or its format string is NULL.
        """
        if not address:
            raise InvalidData("expected an ArrowSchema, found NULL")
        found = cls._make(_STRUCT.unpack(_read(address, 72)))
        if not found.release:
            raise InvalidData("the ArrowSchema is released already; each capsule can be imported once")
        if not found.format:
            raise InvalidData("expected a format string in the ArrowSchema, found NULL")
        return found


def child_addresses(n_children: int, children: int, what: str) -> tuple[int, ...]:
    """Where the children of a structure are.

    Raises
    ------
    InvalidData
        If their number is negative, or one of them is NULL.
    LimitExceeded
        If there are more than ten million.
    """
    if not n_children:
        return ()
    if n_children < 0:
        raise InvalidData(f"{what}: expected n_children of at least 0, found {n_children}")
    if n_children > MAX_CHILDREN:
        raise LimitExceeded(f"{what}: {n_children} children; at most {MAX_CHILDREN:,} are read")
    if not children:
        raise InvalidData(f"{what}: n_children is {n_children}, but the pointer to the children is NULL")
    found = struct.unpack(f"<{n_children}Q", _read(children, 8 * n_children))
    if 0 in found:
        raise InvalidData(f"{what}: child {found.index(0)} is NULL")
    return found


def _metadata(address: int) -> Metadata | None:
    """The key-value metadata at an address: a number of pairs, and for each string its size and its bytes."""
    if not address:
        return None

    def number() -> int:
        nonlocal address
        (found,) = struct.unpack("=i", _read(address, 4))
        if found < 0:
            raise InvalidData(f"metadata: expected a count or a size of at least 0, found {found}")
        address += 4
        return int(found)

    def string() -> bytes:
        nonlocal address
        size = number()
        address += size
        return _read(address - size, size)

    found = {}
    for _ in range(number()):
        key = string()
        found[key] = string()
    return FrozenMetadata(found) if found else None


def _name(address: int) -> str:
    """A name, which may be NULL."""
    if not address:
        return ""
    name = _read(address)
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise InvalidData(f"the field name {shown(name)} is not UTF-8: {error.reason} at byte {error.start}") from None


@lru_cache(4096)
def _leaf(text: bytes) -> DataType | None:
    """The type without children that a format string stands for; None where it needs children, or there is none."""
    try:
        format = text.decode()
        found: DataType = simple_types().get(format) or parse_format(format)
    except (InvalidArgument, UnicodeDecodeError):
        return None
    return found


def _type(found: CSchema, depth: int) -> DataType:
    """The storage type of a structure."""
    if depth > MAX_DEPTH:
        raise LimitExceeded(f"types nest up to {MAX_DEPTH} levels deep, found more")
    text = _read(found.format)
    made = None if found.n_children else _leaf(text)
    if made is None:
        children = child_addresses(found.n_children, found.children, f"the ArrowSchema {shown(text)}")
        fields = [_field(address, depth + 1) for address in children]
        try:
            made = parse_format(text.decode(), fields, keys_sorted=bool(found.flags & MAP_KEYS_SORTED))
        except UnicodeDecodeError:
            raise InvalidData(f"the format string {shown(text)} is not UTF-8") from None
        except InvalidArgument as error:
            raise Unsupported(f"no type for the ArrowSchema {shown(text)}: {error}") from None
        assert made is not None
    if not found.dictionary:
        return made
    values = _field(found.dictionary, depth + 1).type
    try:
        return DictionaryType(made, values, bool(found.flags & DICTIONARY_ORDERED))
    except (InvalidArgument, InvalidType) as error:
        raise InvalidData(f"the ArrowSchema {shown(text)} with a dictionary: {error}") from None


def _field(address: int, depth: int = 0) -> Field:
    found = CSchema.at(address)
    name = _name(found.name)
    try:
        type, metadata = _type(found, depth), _metadata(found.metadata)
    except (InvalidData, Unsupported) as error:
        raise error.__class__(f"field {shown(name)}: {error}") from None
    if metadata is not None:
        type, metadata = extension_type(type, metadata)
    return Field(name, type, bool(found.flags & NULLABLE), metadata)


class CFields:
    """The fields of an imported schema, each made when it is first asked for.

    See :class:`~shmarrow.types.schema.FieldSource`.

    Parameters
    ----------
    capsule : PyCapsule
        What keeps the structures.
    addresses : tuple of int
        Where the ``ArrowSchema`` of each field is.

    Notes
    -----
    Thread safety: what is cached is worked out of memory that does not change; threads that do so at the same time
    find the same.
    """

    __slots__ = ("_addresses", "_capsule", "_made", "_names")

    def __init__(self, capsule: Any, addresses: tuple[int, ...]) -> None:
        self._capsule = capsule
        self._addresses = addresses
        self._made: dict[int, Field] = {}
        self._names: list[str] | None = None

    def __len__(self) -> int:
        return len(self._addresses)

    def field(self, index: int) -> Field:
        found = self._made.get(index)
        return self._made.setdefault(index, _field(self._addresses[index])) if found is None else found

    def fields(self) -> list[Field]:
        return [self.field(i) for i in range(len(self._addresses))]

    def names(self) -> list[str]:
        if self._names is None:
            cell = ctypes.c_size_t.from_address
            names = [cell(address + _NAME).value for address in self._addresses]
            self._names = [_name(address) for address in names]
        return list(self._names)

    def find(self, name: str) -> list[int]:
        names = self._names or self.names()
        if name not in names:
            return []
        first = names.index(name)
        return [first, *[i for i in range(first + 1, len(names)) if names[i] == name]]

    def detach(self) -> None:
        """Nothing: an ``ArrowSchema`` holds no data."""


# --- what others call -------------------------------------------------------------------------------------------


def field_from_capsule(capsule: Any) -> Field:
    """The field that a capsule named ``arrow_schema`` describes.

    Raises
    ------
    InvalidType
        If it is not such a capsule.
    InvalidData
        If the structure breaks the rules of the C data interface.
    Unsupported
        If no type has its format string.
    """
    return _field(pointer(capsule, "arrow_schema"))


def type_from_capsule(capsule: Any) -> DataType:
    """The type that a capsule named ``arrow_schema`` describes; the errors of :func:`field_from_capsule`."""
    return field_from_capsule(capsule).type


def schema_from_capsule(capsule: Any) -> Schema:
    """The schema that a capsule named ``arrow_schema`` describes: a struct whose fields are those of the schema.

    Fields are read when they are asked for; errors within one come then. The others are those of
    :func:`field_from_capsule`.
    """
    found = CSchema.at(pointer(capsule, "arrow_schema"))
    text = _read(found.format)
    if text != b"+s" or found.dictionary:
        raise InvalidType(f"expected a schema, which is a struct, found the single type {_type(found, 0)}")
    addresses = child_addresses(found.n_children, found.children, "the ArrowSchema of a schema")
    return Schema(metadata=_metadata(found.metadata), source=CFields(capsule, addresses))
