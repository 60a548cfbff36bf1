# SPDX-License-Identifier: Apache-2.0
"""``ArrowSchema`` of the C data interface: types, fields and schemas to and from it ("The ArrowSchema structure").

The structures of the C data and stream interfaces are numpy dtypes. Export:

* structures are laid out in numpy memory and then copied by nanoarrow, whose release callbacks are compiled code: a
  callback written in Python would lose a pending exception, and crash after interpreter shutdown;
* the whole tree is laid out in one contiguous array with siblings adjacent; nanoarrow deep-copies it for each consumer.
  A schema caches its tree, since both are immutable;
* an extension type is exported as its storage type and two metadata entries, as in IPC.

Import:

* a structure is moved out of its capsule before it is read, as the specification requires, into memory of nanoarrow,
  whose compiled code releases it once, with the last object that references it. A second consumer of the capsule finds
  it released;
* the fields of a schema are read on demand, one by one: a frame with thousands of columns costs only the columns used;
* pointers cannot be checked beyond NULL; negative counts, format strings, UTF-8 and depth are.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import accumulate
from struct import pack
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow import capsules
from shmarrow.buffer import NDArray
from shmarrow.capsules import PyCapsule
from shmarrow.errors import (
    MAX_DEPTH,
    ExportRefused,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    MissingExtra,
    ShmarrowError,
    Unsupported,
    at,
    full_name,
    not_expected,
    optional,
    recast,
    shown,
)
from shmarrow.types.arguments import FrozenMetadata, Metadata
from shmarrow.types.base import DataType, Field
from shmarrow.types.descriptors import parse_format, simple_types
from shmarrow.types.extension import METADATA_KEY, NAME_KEY, ExtensionType, extension_type, storage_field
from shmarrow.types.nested import DictionaryType
from shmarrow.types.schema import Schema

SCHEMA = np.dtype(
    [
        ("format", "<u8"), ("name", "<u8"), ("metadata", "<u8"), ("flags", "<i8"), ("n_children", "<i8"),
        ("children", "<u8"), ("dictionary", "<u8"), ("release", "<u8"), ("private_data", "<u8"),
    ]
)  # fmt: skip
"""``struct ArrowSchema``; pointers are addresses."""

ARRAY = np.dtype(
    [
        ("length", "<i8"), ("null_count", "<i8"), ("offset", "<i8"), ("n_buffers", "<i8"), ("n_children", "<i8"),
        ("buffers", "<u8"), ("children", "<u8"), ("dictionary", "<u8"), ("release", "<u8"), ("private_data", "<u8"),
    ]
)  # fmt: skip
"""``struct ArrowArray``."""

STREAM = np.dtype(
    [("get_schema", "<u8"), ("get_next", "<u8"), ("get_last_error", "<u8"), ("release", "<u8"), ("private_data", "<u8")]
)
"""``struct ArrowArrayStream``."""


def offset_of(struct: np.dtype[np.void], member: str) -> int:
    """Return the offset of a member in a structure, in bytes."""
    fields = struct.fields
    assert fields is not None
    return fields[member][1]


DICTIONARY_ORDERED, NULLABLE, MAP_KEYS_SORTED = 1, 2, 4
"""The flags of a schema."""


class KeptAlive:
    """Owner of the memory that structures point to, alive while any of them is in use.

    A consumer may drop the last reference on any thread, even while an exception is pending. So this class has no
    ``__del__``.
    """

    __slots__ = ("__weakref__", "kept")

    def __init__(self, parts: Any) -> None:
        self.kept = parts


class _AddressRange:
    """The array interface of memory at an address."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, count: int, typestr: str, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {"shape": (count,), "typestr": typestr, "data": (address, True), "version": 3}


def array_at(address: int, count: int, typestr: str, owner: Any = None) -> NDArray:
    """Return memory at an address as a read-only ndarray, which keeps ``owner`` alive."""
    return np.asarray(_AddressRange(address, count, typestr, owner))


def address_of(data: NDArray) -> int:
    """Return the address of an ndarray's memory."""
    address: int = data.view(np.uint8).__array_interface__["data"][0]  # of structures, it would also describe them
    return address


@cache
def native() -> Any:
    """Return nanoarrow, or what stands for it over pyarrow; MissingExtra if neither is installed."""
    try:
        return optional("nanoarrow")
    except MissingExtra as error:
        try:
            optional("pyarrow")
        except MissingExtra:
            raise error from None
    return import_module("shmarrow.types.c_pyarrow")


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def pointer(capsule: PyCapsule, name: str) -> int:
    """Return the pointer in a capsule named ``arrow_schema``, ``arrow_array`` or ``arrow_array_stream``.

    Raises
    ------
    InvalidType
        If it is not a capsule of this name.
    """
    try:
        return int(_pointer(capsule, name.encode()))
    except (ValueError, TypeError, ctypes.ArgumentError):
        raise InvalidType(f"expected a PyCapsule named {name!r}, found {full_name(capsule)}") from None


def move(capsule: PyCapsule, name: str) -> Any:
    """Move a structure out of its capsule.

    Parameters
    ----------
    capsule : PyCapsule
        The capsule of a structure, which is then marked as released.
    name : str
        ``arrow_schema`` or ``arrow_array``.

    Returns
    -------
    nanoarrow.c_schema.CSchema or nanoarrow.c_array.CArray
        The new owner, which releases the structure; its address is ``_addr()``.

    Raises
    ------
    InvalidType
        If it is not a capsule of this name.
    InvalidData
        If the structure has been released, or moved by another consumer.
    MissingExtra
        If nanoarrow is not installed.
    """
    source = pointer(capsule, name)
    allocate, words = _room(name)
    owner = allocate()
    at, target = words.from_address(source), words.from_address(owner._addr())
    # Of all threads that import the capsule, in any library, only one gets the callback: CPython does not switch
    # threads between these two lines, neither of which calls a function.
    release = at[-2]
    at[-2] = 0
    if not release:
        kind = "ArrowSchema" if name == "arrow_schema" else "ArrowArray"
        raise InvalidData(f"the {kind} has already been released; each capsule can be imported once")
    ctypes.memmove(target, at, ctypes.sizeof(words))
    target[-2] = release
    return owner


@cache
def _room(name: str) -> tuple[Any, Any]:
    """Return the allocator of a structure and its ctypes array type; the last words are ``release`` and its data."""
    new_schema = native()._schema.CSchema.allocate
    if name == "arrow_schema":
        return new_schema, ctypes.c_uint64 * (SCHEMA.itemsize // 8)
    return partial(native()._array.CArray.allocate, new_schema()), ctypes.c_uint64 * (ARRAY.itemsize // 8)


def ask(obj: object, method: str) -> Any:
    """Call a PyCapsule interface method of another library's object.

    Raises
    ------
    InvalidArgument
        If the method raises, with its error as the cause: it was read before, for example, or its query failed.
    Unsupported
        If a column of Polars holds Python objects.
    """
    if obj.__class__.__module__.startswith("polars."):
        _refuse_objects(obj)
    try:
        return getattr(obj, method)()
    except ShmarrowError:
        raise
    except Exception as error:
        raise InvalidArgument(f"{full_name(obj)}.{method}() failed: {type(error).__name__}: {error}") from error


def _refuse_objects(obj: Any) -> None:
    """Refuse Python objects in Polars, which exports each as 8 bytes that mean nothing to others, without metadata."""
    dtypes = {obj.name: obj.dtype} if hasattr(obj, "dtype") else getattr(obj, "schema", {})
    for name, dtype in dtypes.items():
        if str(dtype) == "Object":
            raise Unsupported(
                f"column {name!r} of {full_name(obj)} holds Python objects, which have no Arrow type: "
                "convert or drop it in polars"
            )


# --- export -------------------------------------------------------------------------------------------------------

_LONGEST = (1 << 31) - 1
"""The most bytes in a metadata string."""


_Node: TypeAlias = tuple[bytes, bytes, bytes, int, Sequence[Field], list[Field]]
"""One structure before its strings and its children have addresses: format, name, metadata, flags, the fields of the
children, and that of the dictionary, if any."""


def type_schema(type: DataType) -> Any:
    """Return the ``nanoarrow`` schema of a type, as a nullable, unnamed field. Errors as :func:`schema_schema`."""
    return field_schema(Field("", type))


def field_schema(field: Field) -> Any:
    """Return the ``nanoarrow`` schema of a field. Errors as :func:`schema_schema`."""
    return _laid_out(_node(field))


def schema_schema(schema: Schema) -> Any:
    """Return the ``nanoarrow`` schema of a schema, as a non-nullable struct; cached on the schema.

    Raises
    ------
    ExportRefused
        If a name or time zone contains a NUL character, which ends a C string, or the metadata is too long for the
        interface.
    MissingExtra
        If nanoarrow is not installed.
    """
    exported = schema._exported
    if exported is None:
        exported = _laid_out((b"+s", b"", _packed(schema.metadata), 0, schema.fields, []))
        object.__setattr__(schema, "_exported", exported)
    return exported


def _node(field: Field) -> _Node:
    type: Any = field.type
    if field.metadata is not None or isinstance(type, (ExtensionType, DictionaryType)):
        field = _without_duckdb_hazards(field)
        type = field.type
    name, format = field.name.encode(), type.format.encode()
    if b"\0" in name:
        raise ExportRefused(f"the field name {shown(field.name)} contains a NUL character, which ends a name in C")
    if b"\0" in format:
        raise ExportRefused(f"field {shown(field.name)}: {shown(str(type))} contains a NUL character")
    flags, metadata = NULLABLE if field.nullable else 0, b""
    if field.metadata is not None:
        with at("field", field.name):
            metadata = _packed(field.metadata)
    if type.layout == "dictionary":
        flags |= DICTIONARY_ORDERED if type.ordered else 0
        return format, name, metadata, flags, (), [Field("", type.value_type)]
    flags |= MAP_KEYS_SORTED if type.layout == "map" and type.keys_sorted else 0
    return format, name, metadata, flags, type.fields, []


_STORAGE = {"arrow.uuid": "w:16", "arrow.bool8": "c", "hugeint": "w:16", "uhugeint": "w:16"}
"""The storage format DuckDB assumes, unchecked, for these extension types."""


def _without_duckdb_hazards(field: Field) -> Field:
    """Return the field in storage form, without extension types that make DuckDB read out of bounds.

    DuckDB checks only the extension name: it reads too-short values past the end of their buffer, and takes the bytes
    of its own types (``bit``, ``bignum``, ``time_tz`` and others) as its in-memory representation.
    """
    type: Any = field.type
    plain = storage_field(field)
    name = (plain.metadata or {}).get(NAME_KEY, b"").decode(errors="replace")
    if name == "arrow.opaque":
        if getattr(type, "extension_name", "") == name and type.vendor_name.lower() != "duckdb":
            return plain
        name = getattr(type, "type_name", name)
    elif name not in _STORAGE:
        return plain
    storage: Any = plain.type
    if getattr(storage, "value_type", storage).format == _STORAGE.get(name):
        return plain
    left = {key: value for key, value in (plain.metadata or {}).items() if key not in (NAME_KEY, METADATA_KEY)}
    return Field(plain.name, storage, plain.nullable, left or None)


def _packed(metadata: Metadata | None) -> bytes:
    """Encode metadata for the C data interface, in native byte order; b"" if empty."""
    if not metadata:
        return b""
    parts = [pack("=i", len(metadata))]
    for part in [part for pair in metadata.items() for part in pair]:
        if len(part) > _LONGEST:
            raise ExportRefused(
                f"the metadata have a string of {len(part)} bytes; the C data interface allows {_LONGEST}"
            )
        parts += [pack("=i", len(part)), part]
    return b"".join(parts)


def _laid_out(root: _Node) -> Any:
    """Lay out the tree below a node as a ``nanoarrow`` schema that owns its memory."""
    nodes, first = [root], []
    for node in nodes:  # grows as children are appended, and after them the dictionary
        first.append(len(nodes))
        nodes += map(_node, (*node[4], *node[5]))
    formats, names, metadata, flags, children, dictionaries = zip(*nodes, strict=True)

    count = len(nodes)
    strings = [*formats, *names, *metadata]
    text = np.frombuffer(b"\0".join([*strings, b""]), np.uint8)
    starts = list(accumulate([len(part) + 1 for part in strings], initial=address_of(text)))
    # The addresses of structures, and the structures, in one piece of memory.
    memory = np.empty((1 + SCHEMA.itemsize // 8) * count, np.int64)
    pointers_at = address_of(memory)
    start = pointers_at + 8 * count
    words = [*range(start, start + SCHEMA.itemsize * count, SCHEMA.itemsize)]
    for format, name, place, packed, flag, fields, encoded, below in zip(
        starts, starts[count:], starts[2 * count :], metadata, flags, children, dictionaries, first, strict=False
    ):
        dictionary = start + SCHEMA.itemsize * below if encoded else 0
        # A release that is not 0 marks a structure as valid; it is never called.
        words += format, name, place if packed else 0, flag, len(fields), pointers_at + 8 * below, dictionary, 1, 0
    memory[:] = words
    return native()._schema.CSchema(KeptAlive([text, memory]), start)


def to_pyarrow(value: Any, kind: str) -> Any:
    """Make an object of a class of pyarrow; Unsupported if pyarrow has no such type."""
    pa = optional("pyarrow")
    data = kind in ("Array", "RecordBatch")
    capsules = value.__arrow_c_array__() if data else (value.__arrow_c_schema__(),)
    try:
        return getattr(pa, kind)._import_from_c_capsule(*capsules)
    except (pa.ArrowException, KeyError) as error:  # KeyError: types without a Python class
        what = value if not data else value.type if kind == "Array" else value.schema
        raise Unsupported(f"pyarrow has no type for {shown(what)}: {error}") from None


MAX_CHILDREN = 10_000_000
"""The most children of one structure; a larger count is corrupt."""


# --- import -------------------------------------------------------------------------------------------------------

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
        schema = cls._make(_STRUCT.unpack(_BLOCK.from_address(address)))
        if not schema.release:
            raise InvalidData("the ArrowSchema has already been released; each capsule can be imported once")
        if not schema.format:
            raise InvalidData("expected a format string in the ArrowSchema, found NULL")
        return schema


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
    addresses = pointers_at(children, n_children)
    if 0 in addresses:
        raise InvalidData(f"{what}: child {addresses.index(0)} is NULL")
    return addresses


def _metadata_at(address: int) -> Metadata | None:
    """Read the key-value metadata at an address: a pair count, then size and bytes of each string."""
    if not address:
        return None

    def number() -> int:
        nonlocal address
        value = _int_at(address).value
        if value < 0:
            raise InvalidData(f"metadata: expected a count or a size of at least 0, found {value}")
        address += 4
        return value

    def string() -> bytes:
        nonlocal address
        size = number()
        address += size
        return ctypes.string_at(address - size, size)

    metadata = {}
    for _ in range(number()):
        key = string()
        metadata[key] = string()
    return FrozenMetadata(metadata) if metadata else None


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
        type: DataType = simple_types().get(format) or parse_format(format)
    except (InvalidArgument, UnicodeDecodeError):
        return None
    return type


def _type(schema: CSchema, depth: int) -> DataType:
    """Return the storage type of a structure."""
    if depth > MAX_DEPTH:
        raise LimitExceeded(f"types nest up to {MAX_DEPTH} levels deep, found more")
    text = text_of(schema.format)
    type = None if schema.n_children else _leaf(text)
    if type is None:
        children = child_addresses(schema.n_children, schema.children, f"the ArrowSchema {shown(text)}")
        fields = [field_at(address, depth + 1) for address in children]
        try:
            type = parse_format(text.decode(), fields, keys_sorted=bool(schema.flags & MAP_KEYS_SORTED))
        except UnicodeDecodeError:
            raise InvalidData(f"the format string {shown(text)} is not UTF-8") from None
        except InvalidArgument as error:
            if text.startswith(b"_pl"):
                name = {b"_pli128": "Int128", b"_plu128": "UInt128"}.get(text, "it")
                raise Unsupported(f"{shown(text)} is polars' own: cast {name} to Int64 or Decimal in polars") from None
            raise Unsupported(f"no type for the ArrowSchema {shown(text)}: {error.message}", hint=error.hint) from None
        assert type is not None
    if not schema.dictionary:
        return type
    values = field_at(schema.dictionary, depth + 1).type
    try:
        return DictionaryType(type, values, bool(schema.flags & DICTIONARY_ORDERED))
    except (InvalidArgument, InvalidType) as error:
        error.where = ("the ArrowSchema", text), ("dictionary",), *error.where
        raise recast(InvalidData, error) from None


def field_at(address: int, depth: int = 0) -> Field:
    """Read the field of an ``ArrowSchema``."""
    schema = CSchema.at(address)
    name = _decoded(text_of(schema.name))
    with at("field", name):
        type, metadata = _type(schema, depth), _metadata_at(schema.metadata)
    if metadata is not None:
        type, metadata = extension_type(type, metadata)
    return Field(name, type, bool(schema.flags & NULLABLE), metadata)


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

    __slots__ = ("_addresses", "_fields", "_names", "_owner")

    def __init__(self, owner: Any, addresses: list[int]) -> None:
        self._owner = owner
        self._addresses = addresses
        self._fields: dict[int, Field] = {}
        self._names: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._addresses)

    def field(self, index: int) -> Field:
        field = self._fields.get(index)
        return self._fields.setdefault(index, field_at(self._addresses[index])) if field is None else field

    def fields(self) -> list[Field]:
        return [self.field(i) for i in range(len(self._addresses))]

    def names(self) -> list[str]:
        return [_decoded(name) for name in self._all_names()]

    def find(self, name: str) -> list[int]:
        names, coded = self._all_names(), name.encode(errors="surrogatepass")
        return [i for i, each in enumerate(names) if each == coded] if coded in names else []

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
    return field_at(owner._addr())


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
    schema = CSchema.at(address)
    text = text_of(schema.format)
    if text != b"+s" or schema.dictionary:
        raise SingleColumn(str(_type(schema, 0)))
    addresses = child_addresses(schema.n_children, schema.children, "the ArrowSchema of a schema")
    return Schema(metadata=_metadata_at(schema.metadata), source=CFields(owner, addresses))


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
