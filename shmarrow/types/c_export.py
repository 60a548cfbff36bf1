"""``ArrowSchema`` from types, fields and schemas ("The ArrowSchema structure").

Invariants:

* the whole tree is laid out in one contiguous numpy array with siblings adjacent; nanoarrow deep-copies it for each
  consumer;
* an extension type is exported as its storage type and two metadata entries, as in IPC;
* a schema caches its tree, since both are immutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate
from struct import pack
from typing import Any, TypeAlias

import numpy as np

from shmarrow.capsules import PyCapsule
from shmarrow.errors import ExportRefused, Unsupported, at, shown
from shmarrow.optional import optional
from shmarrow.types.base import DataType, Metadata
from shmarrow.types.c_structs import (
    DICTIONARY_ORDERED,
    MAP_KEYS_SORTED,
    NULLABLE,
    SCHEMA,
    KeptAlive,
    address_of,
    native,
)
from shmarrow.types.extension import METADATA_KEY, NAME_KEY, ExtensionType, storage_field
from shmarrow.types.field import Field
from shmarrow.types.nested import DictionaryType
from shmarrow.types.primitive import null
from shmarrow.types.schema import Schema

_LONGEST = (1 << 31) - 1
"""The most bytes in a metadata string."""


_DICTIONARY = (SCHEMA.names or ()).index("dictionary")

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
    made = schema._exported
    if made is None:
        made = _laid_out((b"+s", b"", _metadata(schema.metadata), 0, schema.fields, []))
        object.__setattr__(schema, "_exported", made)
    return made


def export_type(type: DataType) -> PyCapsule:
    """Implement :meth:`DataType.__arrow_c_schema__`."""
    return type_schema(type).__arrow_c_schema__()


def export_field(field: Field) -> PyCapsule:
    """Implement :meth:`Field.__arrow_c_schema__`."""
    return field_schema(field).__arrow_c_schema__()


def export_schema(schema: Schema) -> PyCapsule:
    """Implement :meth:`Schema.__arrow_c_schema__`."""
    return schema_schema(schema).__arrow_c_schema__()


@cache
def placeholder() -> Any:
    """Return a minimal ``nanoarrow`` schema for structures whose schema is passed separately."""
    return type_schema(null())


def _node(field: Field) -> _Node:
    type: Any = field.type
    if field.metadata is not None or isinstance(type, (ExtensionType, DictionaryType)):
        field = _named_safely(field)
        type = field.type
    nested = type.descriptor.children or type.layout == "dictionary"
    name, format = field.name.encode(), type.format.encode() if nested else _format(type)
    if b"\0" in name:
        raise ExportRefused(f"the field name {shown(field.name)} contains a NUL character, which ends a name in C")
    if b"\0" in format:
        raise ExportRefused(f"field {shown(field.name)}: {shown(str(type))} contains a NUL character")
    flags, metadata = NULLABLE if field.nullable else 0, b""
    if field.metadata is not None:
        with at("field", field.name):
            metadata = _metadata(field.metadata)
    if type.layout == "dictionary":
        flags |= DICTIONARY_ORDERED if type.ordered else 0
        return format, name, metadata, flags, (), [Field("", type.value_type)]
    flags |= MAP_KEYS_SORTED if type.layout == "map" and type.keys_sorted else 0
    return format, name, metadata, flags, type.fields, []


_STORAGE = {"arrow.uuid": "w:16", "arrow.bool8": "c", "hugeint": "w:16", "uhugeint": "w:16"}
"""The storage format DuckDB assumes, unchecked, for these extension types."""


def _named_safely(field: Field) -> Field:
    """Return the field in storage form, without extension types that make DuckDB read out of bounds.

    DuckDB checks only the extension name: it reads too-short values past the end of their buffer, and takes the bytes
    of its own types (``bit``, ``bignum``, ``time_tz`` and others) as its in-memory representation.
    """
    type: Any = field.type
    made = storage_field(field)
    name = (made.metadata or {}).get(NAME_KEY, b"").decode(errors="replace")
    if name == "arrow.opaque":
        if getattr(type, "extension_name", "") == name and type.vendor_name.lower() != "duckdb":
            return made
        name = getattr(type, "type_name", name)
    elif name not in _STORAGE:
        return made
    storage: Any = made.type
    if getattr(storage, "value_type", storage).format == _STORAGE.get(name):
        return made
    left = {key: value for key, value in (made.metadata or {}).items() if key not in (NAME_KEY, METADATA_KEY)}
    return Field(made.name, storage, made.nullable, left or None)


@lru_cache(4096)
def _format(type: DataType) -> bytes:
    """The format of a type; kept for those without others in them, as the cache keeps the type, too."""
    return type.format.encode()


def _metadata(metadata: Metadata | None) -> bytes:
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
    text, pointers = np.frombuffer(b"\0".join([*strings, b""]), np.uint8), np.empty(count + 1, np.uint64)
    starts = list(accumulate([len(part) + 1 for part in strings], initial=address_of(text)))
    pointers_at = address_of(pointers)
    tree = np.array(  # a release that is not 0 marks a structure as valid; it is never called
        [
            (format, name, at if text else 0, flag, len(fields), pointers_at + 8 * below, 0, 1, 0)
            for format, name, at, text, flag, fields, below in zip(
                starts, starts[count:], starts[2 * count :], metadata, flags, children, first, strict=False
            )
        ],
        np.int64,
    )
    start = address_of(tree)
    pointers[:] = np.arange(start, start + SCHEMA.itemsize * len(pointers), SCHEMA.itemsize)
    for i, dictionary in enumerate(dictionaries):
        if dictionary:
            tree[i, _DICTIONARY] = pointers[first[i]]
    return native()._schema.CSchema(KeptAlive([text, tree, pointers]), start)


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
