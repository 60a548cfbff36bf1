"""Types, fields and schemas from an ``ArrowSchema`` of the C data interface.

Invariants:

* a structure is moved out of its capsule before it is read, and released with the last object that references it;
* the fields of a schema are read on demand, one by one: a frame with thousands of columns costs only the columns used;
* pointers cannot be checked beyond NULL; negative counts, format strings, UTF-8 and depth are.
"""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from shmarrow import capsules
from shmarrow.capsules import PyCapsule
from shmarrow.errors import (
    MAX_DEPTH,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    Unsupported,
    at,
    full_name,
    not_expected,
    recast,
    shown,
)
from shmarrow.types.base import DataType, FrozenMetadata, Metadata
from shmarrow.types.c_structs import DICTIONARY_ORDERED, MAP_KEYS_SORTED, NULLABLE, SCHEMA, ask, move, offset_of
from shmarrow.types.descriptors import parse_format, simple_types
from shmarrow.types.extension import extension_type
from shmarrow.types.field import Field
from shmarrow.types.nested import DictionaryType
from shmarrow.types.schema import Schema

MAX_CHILDREN = 10_000_000
"""The most children of one structure; a larger count is corrupt."""

_STRUCT = struct.Struct("<QQQqqQQQQ")
_NAME = offset_of(SCHEMA, "name")
assert _STRUCT.size == SCHEMA.itemsize
_BLOCK = ctypes.c_char * _STRUCT.size
_text_at = ctypes.c_char_p.from_address
_int_at = ctypes.c_int32.from_address


class SingleColumn(InvalidType):
    """An array was found where rows were expected; the message is its type."""


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
        """Read the structure at an address.

        Raises
        ------
        InvalidData
            If it has been released, or its format string is NULL.
        """
        if not address:
            raise InvalidData("expected an ArrowSchema, found NULL")
        found = cls._make(_STRUCT.unpack(_BLOCK.from_address(address)))
        if not found.release:
            raise InvalidData("the ArrowSchema has already been released; each capsule can be imported once")
        if not found.format:
            raise InvalidData("expected a format string in the ArrowSchema, found NULL")
        return found


def pointers_at(address: int, count: int) -> list[int]:
    """Read an array of pointers as addresses."""
    return (ctypes.c_uint64 * count).from_address(address)[:]


def text_of(address: int) -> bytes:
    """Read the NUL-terminated string at an address; empty for NULL."""
    return ctypes.c_char_p(address).value or b""


def child_addresses(n_children: int, children: int, what: str) -> list[int]:
    """Return the addresses of a structure's children.

    Raises
    ------
    InvalidData
        If their number is negative, or one of them is NULL.
    LimitExceeded
        If there are more than ten million.
    """
    if not n_children:
        return []
    if n_children < 0:
        raise InvalidData(f"{what}: expected n_children of at least 0, found {n_children}")
    if n_children > MAX_CHILDREN:
        raise LimitExceeded(f"{what}: {n_children} children; at most {MAX_CHILDREN:,} are read")
    if not children:
        raise InvalidData(f"{what}: n_children is {n_children}, but the pointer to the children is NULL")
    found = pointers_at(children, n_children)
    if 0 in found:
        raise InvalidData(f"{what}: child {found.index(0)} is NULL")
    return found


def _metadata(address: int) -> Metadata | None:
    """Read the key-value metadata at an address: a pair count, then size and bytes of each string."""
    if not address:
        return None

    def number() -> int:
        nonlocal address
        found = _int_at(address).value
        if found < 0:
            raise InvalidData(f"metadata: expected a count or a size of at least 0, found {found}")
        address += 4
        return found

    def string() -> bytes:
        nonlocal address
        size = number()
        address += size
        return ctypes.string_at(address - size, size)

    found = {}
    for _ in range(number()):
        key = string()
        found[key] = string()
    return FrozenMetadata(found) if found else None


def _decoded(name: bytes) -> str:
    """Decode a field name."""
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise InvalidData(f"the field name {shown(name)} is not UTF-8: {error.reason} at byte {error.start}") from None


@lru_cache(4096)
def _leaf(text: bytes) -> DataType | None:
    """Return the childless type of a format string; None if it needs children or is unknown."""
    try:
        format = text.decode()
        found: DataType = simple_types().get(format) or parse_format(format)
    except (InvalidArgument, UnicodeDecodeError):
        return None
    return found


def _type(found: CSchema, depth: int) -> DataType:
    """Return the storage type of a structure."""
    if depth > MAX_DEPTH:
        raise LimitExceeded(f"types nest up to {MAX_DEPTH} levels deep, found more")
    text = text_of(found.format)
    made = None if found.n_children else _leaf(text)
    if made is None:
        children = child_addresses(found.n_children, found.children, f"the ArrowSchema {shown(text)}")
        fields = [_field(address, depth + 1) for address in children]
        try:
            made = parse_format(text.decode(), fields, keys_sorted=bool(found.flags & MAP_KEYS_SORTED))
        except UnicodeDecodeError:
            raise InvalidData(f"the format string {shown(text)} is not UTF-8") from None
        except InvalidArgument as error:
            if text.startswith(b"_pl"):
                raise Unsupported(f"{shown(text)} is polars' own: cast Int128 to Int64 or Decimal in polars") from None
            raise Unsupported(f"no type for the ArrowSchema {shown(text)}: {error.message}", hint=error.hint) from None
        assert made is not None
    if not found.dictionary:
        return made
    values = _field(found.dictionary, depth + 1).type
    try:
        return DictionaryType(made, values, bool(found.flags & DICTIONARY_ORDERED))
    except (InvalidArgument, InvalidType) as error:
        error.where = ("the ArrowSchema", text), ("dictionary",), *error.where
        raise recast(InvalidData, error) from None


def _field(address: int, depth: int = 0) -> Field:
    found = CSchema.at(address)
    name = _decoded(text_of(found.name))
    with at("field", name):
        type, metadata = _type(found, depth), _metadata(found.metadata)
    if metadata is not None:
        type, metadata = extension_type(type, metadata)
    return Field(name, type, bool(found.flags & NULLABLE), metadata)


class CFields:
    """The fields of an imported schema, each built on first use.

    See :class:`~shmarrow.types.schema.FieldSource`.

    Parameters
    ----------
    owner : object
        The owner of the structures.
    addresses : list of int
        The address of each field's ``ArrowSchema``.

    Notes
    -----
    Thread safety: caches derive from immutable memory; concurrent threads compute equal values.
    """

    __slots__ = ("_addresses", "_made", "_names", "_owner")

    def __init__(self, owner: Any, addresses: list[int]) -> None:
        self._owner = owner
        self._addresses = addresses
        self._made: dict[int, Field] = {}
        self._names: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._addresses)

    def field(self, index: int) -> Field:
        found = self._made.get(index)
        return self._made.setdefault(index, _field(self._addresses[index])) if found is None else found

    def fields(self) -> list[Field]:
        return [self.field(i) for i in range(len(self._addresses))]

    def names(self) -> list[str]:
        return [_decoded(name) for name in self._all_names()]

    def find(self, name: str) -> list[int]:
        names, wanted = self._all_names(), name.encode(errors="surrogatepass")
        return [i for i, found in enumerate(names) if found == wanted] if wanted in names else []

    def _all_names(self) -> list[bytes]:
        """Return the names of all fields, undecoded."""
        if self._names is None:
            self._names = [_text_at(address + _NAME).value or b"" for address in self._addresses]
        return self._names

    def detach(self) -> None:
        """Do nothing: an ``ArrowSchema`` holds no data."""


# --- entry points -----------------------------------------------------------------------------------------------


def field_from_capsule(capsule: PyCapsule) -> Field:
    """Import a field from a capsule named ``arrow_schema``, which is consumed.

    Raises
    ------
    InvalidType
        If it is not such a capsule.
    InvalidData
        If the structure violates the C data interface, or the capsule has been imported before.
    Unsupported
        If its format string is unknown.
    MissingExtra
        If nanoarrow is not installed.
    """
    owner = move(capsule, "arrow_schema")
    return _field(owner._addr())


def type_from_capsule(capsule: PyCapsule) -> DataType:
    """Import a type from a capsule named ``arrow_schema``; errors as :func:`field_from_capsule`."""
    return field_from_capsule(capsule).type


def schema_from_capsule(capsule: PyCapsule) -> Schema:
    """Import a schema from a capsule named ``arrow_schema``: a struct with the schema's fields.

    Fields are read on demand, and their errors raised then; other errors as :func:`field_from_capsule`.
    """
    owner = move(capsule, "arrow_schema")
    return schema_at(owner, owner._addr())


def schema_at(owner: Any, address: int) -> Schema:
    """Read the schema of an ``ArrowSchema`` that ``owner`` keeps alive."""
    found = CSchema.at(address)
    text = text_of(found.format)
    if text != b"+s" or found.dictionary:
        raise SingleColumn(str(_type(found, 0)))
    addresses = child_addresses(found.n_children, found.children, "the ArrowSchema of a schema")
    return Schema(metadata=_metadata(found.metadata), source=CFields(owner, addresses))


def field_at(address: int) -> Field:
    """Read the field of an ``ArrowSchema``."""
    return _field(address)


# --- objects of other libraries ---------------------------------------------------------------------------------


def read_type(obj: object) -> DataType:
    """Import a type from an object with ``__arrow_c_schema__``; fields and schemas are refused."""
    if type(obj).__name__ in ("Field", "Schema"):
        hint = "pass its .type" if type(obj).__name__ == "Field" else None
        raise InvalidType(f"expected a type, found {full_name(obj)}", hint=hint)
    return type_from_capsule(_capsule(obj, "a type"))


def read_field(obj: object) -> Field:
    """Import a field from an object with ``__arrow_c_schema__``."""
    return field_from_capsule(_capsule(obj, "a field"))


def read_schema(obj: object) -> Schema:
    """Import a schema from an object with ``__arrow_c_schema__``; its fields are read on demand."""
    return schema_from_capsule(_capsule(obj, "a schema"))


def _capsule(obj: object, expected: str) -> PyCapsule:
    if not hasattr(obj, capsules.SCHEMA):
        raise not_expected(expected, obj)
    return ask(obj, capsules.SCHEMA)
