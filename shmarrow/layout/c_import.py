"""Zero-copy import of arrays and record batches from an ``ArrowArray`` of the C data interface.

Invariants:

* a structure is moved out of its capsule into memory of nanoarrow, which every ndarray over its buffers references. So
  compiled code releases it exactly once, when the last array, slice or ndarray is gone, on any thread; another consumer
  of the same capsule cannot release it earlier;
* the producer owns the memory: it is never written to, and our views of it are read-only;
* the interface does not carry buffer sizes. They follow from the buffer listing; those of data buffers from the last
  offset, or from the sizes buffer of views. Counts, lengths and NULL pointers are checked;
* columns of a batch are built on demand.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shmarrow.buffer import EMPTY, Bytes
from shmarrow.capsules import PyCapsule
from shmarrow.errors import InvalidData, LimitExceeded, at
from shmarrow.layout.listing import LISTING, BufferSpec, Layout, bytes_needed
from shmarrow.layout.making import LONGEST
from shmarrow.layout.parts import Node, Parts, assemble
from shmarrow.layout.preview import clip
from shmarrow.types import DataType, Schema, storage_of, with_nulls
from shmarrow.types import struct as struct_type
from shmarrow.types.c_import import (
    MAX_CHILDREN,
    child_addresses,
    field_from_capsule,
    pointers_at,
    schema_from_capsule,
)
from shmarrow.types.c_structs import ARRAY, array_at, move

if TYPE_CHECKING:
    from shmarrow.layout.array import Array

_STRUCT = struct.Struct("<qqqqqQQQQQ")
_BLOCK = ctypes.c_char * _STRUCT.size
_OFFSETS: dict[int, Any] = {32: ctypes.c_int32, 64: ctypes.c_int64}
assert _STRUCT.size == ARRAY.itemsize


class CArray(NamedTuple):
    """The members of an ``ArrowArray``; pointers are addresses."""

    length: int
    null_count: int
    offset: int
    n_buffers: int
    n_children: int
    buffers: int
    children: int
    dictionary: int
    release: int
    private_data: int

    @classmethod
    def at(cls, address: int, type: object) -> CArray:
        """Read the structure at an address, expected to hold an array of ``type``.

        Raises
        ------
        InvalidData
            If it has been released, or its length, offset or null count is out of range.
        """
        if not address:
            raise InvalidData(f"{_name(type)}: expected an ArrowArray, found NULL")
        found = cls._make(_STRUCT.unpack(_BLOCK.from_address(address)))
        if not found.release:
            raise InvalidData(
                f"{_name(type)}: the ArrowArray has already been released; each capsule can be imported once"
            )
        length, nulls, offset = found[:3]
        if length < 0 or offset < 0 or length + offset > LONGEST:
            raise InvalidData(f"{_name(type)}: expected a length and an offset of at least 0, found {length}, {offset}")
        if not -1 <= nulls <= length:
            raise InvalidData(f"{_name(type)}: expected a null_count of -1 to {length}, found {nulls}")
        return found


def _name(type: object) -> str:
    return clip(str(type), 200)


class Importer:
    """Builds the arrays of one schema.

    Batches of a stream usually repeat the same dictionary: arrays share it until it changes.

    Notes
    -----
    Thread safety: threads may build arrays concurrently; at worst a dictionary is built twice.
    """

    __slots__ = ("_dictionaries",)

    def __init__(self) -> None:
        self._dictionaries: dict[tuple[Any, ...], tuple[tuple[Any, ...], Array]] = {}

    def array(self, owner: Any, address: int, type: Any, path: tuple[int, ...] = ()) -> Any:
        """Build the array at an address.

        Parameters
        ----------
        owner : object
            The owner of the memory, which releases it.
        address : int
            The address of the ``ArrowArray``.
        type : DataType
            The type from its schema.
        path : tuple of int
            Indices of the column and its children down to this array.

        Raises
        ------
        InvalidData
            If the structure breaks the rules of the interface or of its layout.
        """
        return assemble(_StructParts(self, owner, address, type, path))

    def dictionary(self, owner: Any, address: int, type: DataType, path: tuple[int, ...]) -> Any:
        """Build the dictionary at an address, or return the previous one if its memory is the same."""
        key = tuple(_fingerprint(address, type))
        place = (*path, type)
        known = self._dictionaries.get(place)
        if known is None or known[0] != key:
            known = self._dictionaries[place] = (key, self.array(owner, address, type, (*path, -1)))
        return known[1]


class _StructParts(Parts):
    """The parts of an ``ArrowArray``."""

    __slots__ = ("_address", "_at", "_children", "_found", "_importer", "_offset", "_owner", "_path", "_slots", "type")

    def __init__(self, importer: Importer, owner: Any, address: int, type: Any, path: tuple[int, ...]) -> None:
        self.type = type
        self._importer = importer
        self._owner = owner
        self._path = path
        self._found = CArray.at(address, type)
        # Zero slots reference nothing, whatever their offset: some producers omit buffers then.
        self._offset = self._found.offset if self._found.length else 0
        self._slots = self._offset + self._found.length

    def node(self) -> Node:
        found, type = self._found, self.type
        fields = type.fields
        if found.n_children != len(fields):
            raise InvalidData(f"{_name(type)}: expected {len(fields)} children, found n_children {found.n_children}")
        self._children = child_addresses(found.n_children, found.children, _name(type)) if fields else ()
        if found.dictionary and type.layout != "dictionary":
            raise InvalidData(f"{_name(type)}: found a dictionary, though the schema has none")
        layout = LISTING[type.layout]
        self._at = self._buffer_addresses(layout)
        nulls = found.null_count
        if layout.has_validity and not self._at["validity"]:
            if nulls > 0:
                raise InvalidData(f"{_name(type)}: null_count is {nulls}, but the validity bitmap is NULL")
            nulls = 0
        return Node(found.length, nulls, self._offset)

    def _buffer_addresses(self, layout: Layout) -> dict[str, Any]:
        """Return the address of each buffer by its role, and those of the data buffers of views as ``variadic``."""
        rows, variadic = layout.buffers, layout.variadic
        type, count = self.type, self._found.n_buffers
        if type.layout == "null" and count == 1:  # polars exports a validity buffer
            return {}
        if count <= len(rows) if variadic else count != len(rows):
            expected = f"{len(rows) + 1} or more" if variadic else str(len(rows))
            raise InvalidData(f"{_name(type)}: expected {expected} buffers, found n_buffers {count}")
        if not count:
            return {}
        if count > MAX_CHILDREN:
            raise LimitExceeded(f"{_name(type)}: {count} buffers; at most {MAX_CHILDREN:,} are read")
        if not self._found.buffers:
            raise InvalidData(f"{_name(type)}: expected {count} buffers, found a NULL pointer to them")
        at = pointers_at(self._found.buffers, count)
        return {**dict(zip([row.role for row in rows], at, strict=False)), "variadic": at[len(rows) :]}

    def buffer(self, spec: BufferSpec) -> Bytes | None:
        start = self._at[spec.role]
        if spec.role == "validity" and not start:
            return None
        if not self._slots:
            return EMPTY
        size = self._end_of_data() if spec.role == "data" else bytes_needed(spec, self.type, self._slots)
        return self._view(start, size, spec.role)

    def _end_of_data(self) -> int:
        """Return the last offset."""
        number = _OFFSETS[LISTING[self.type.layout].buffers[1].bits]
        end: int = number.from_address(self._at["offsets"] + self._slots * ctypes.sizeof(number)).value
        if end < 0:
            raise InvalidData(f"{_name(self.type)}: the last offset is {end}, expected at least 0")
        return end

    def variadic(self) -> list[Bytes]:
        """Return the data buffers of views; the last buffer holds their sizes."""
        *starts, sizes = self._at["variadic"]
        if not starts:
            return []
        if not sizes:
            raise InvalidData(f"{_name(self.type)}: expected the sizes of {len(starts)} data buffers, found NULL")
        found = (ctypes.c_int64 * len(starts)).from_address(sizes)[:]
        if min(found) < 0:
            raise InvalidData(f"{_name(self.type)}: a data buffer has {min(found)} bytes, expected at least 0")
        return [self._view(start, size, "data") for start, size in zip(starts, found, strict=True)]

    def child(self, index: int) -> Parts:
        type = self.type.fields[index].type
        return _StructParts(self._importer, self._owner, self._children[index], type, (*self._path, index))

    def dictionary(self) -> Any:
        if not self._found.dictionary:
            raise InvalidData(f"{_name(self.type)}: expected a dictionary, found NULL")
        value_type = storage_of(self.type).value_type
        return self._importer.dictionary(self._owner, self._found.dictionary, value_type, self._path)

    def _view(self, start: int, size: int, role: str) -> Bytes:
        """Return a read-only view of bytes at an address."""
        if not size:
            return EMPTY
        if not start:
            raise InvalidData(f"{_name(self.type)}: expected {size} bytes of {role}, found NULL")
        if size < 0 or start + size > 1 << 64:
            raise InvalidData(f"{_name(self.type)}: {size} bytes of {role} do not fit into memory")
        return array_at(start, size, "|u1", self._owner)


def _fingerprint(address: int, type: Any) -> list[int]:
    """Return all lengths, offsets and buffer addresses of an array: if equal, two arrays are the same.

    While either is alive, its memory cannot be reused.
    """
    found = CArray.at(address, type)
    key = [found.length, found.offset, found.n_buffers]
    if 0 < found.n_buffers <= MAX_CHILDREN and found.buffers:
        key += pointers_at(found.buffers, found.n_buffers)
    children = child_addresses(found.n_children, found.children, _name(type))
    for field, child in zip(type.fields, children, strict=False):
        key += _fingerprint(child, field.type)
    if found.dictionary:
        key += _fingerprint(found.dictionary, getattr(storage_of(type), "value_type", type))
    return key


# --- record batches ---------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The parts of a record batch.

    Attributes
    ----------
    schema : Schema
        Its schema.
    num_rows : int
        Length of every column.
    columns : list of Array or None
        The columns, if they had to be built.
    source : object or None
        What builds them on demand otherwise; see :class:`~shmarrow.batch.ColumnSource`.
    """

    schema: Schema
    num_rows: int
    columns: list[Array] | None
    source: Any = None


class _BatchColumns:
    """The columns of an imported batch; see :class:`~shmarrow.batch.ColumnSource`."""

    __slots__ = ("_addresses", "_importer", "_length", "_offset", "_owner", "_schema")

    def __init__(self, owner: Any, found: CArray, schema: Schema, importer: Importer) -> None:
        self._owner = owner
        self._addresses = child_addresses(found.n_children, found.children, "the ArrowArray of a record batch")
        self._length = found.length
        self._offset = found.offset
        self._schema = schema
        self._importer = importer

    def column(self, index: int) -> Any:
        field = self._schema.field(index)
        with at("column", index, field.name):
            found = self._importer.array(self._owner, self._addresses[index], field.type, (index,))
            if len(found) < self._offset + self._length:
                raise InvalidData(f"expected {self._offset + self._length} values, found {len(found)}")
        return found if len(found) == self._length else found.slice(self._offset, self._length)

    def columns(self, indices: Sequence[int] | None = None) -> list[Any]:
        return [self.column(i) for i in (range(len(self._addresses)) if indices is None else indices)]

    def at_hand(self, index: int) -> bool:
        return True

    def check(self, index: int) -> None:
        pass


def _first_buffer(found: CArray) -> bool:
    """Whether the first buffer is present."""
    return bool(found.buffers) and pointers_at(found.buffers, 1) != [0]


def rows_at(owner: Any, address: int, schema: Schema, importer: Importer) -> Rows:
    """Read the record batch at an address; its columns are built on demand.

    Null structs make the values of all columns null, which copies the columns.
    """
    found = CArray.at(address, "a record batch")
    if found.n_children != len(schema):
        raise InvalidData(f"a record batch has {found.n_children} columns, its schema {len(schema)} fields")
    if found.n_buffers != 1:
        raise InvalidData(f"a record batch has the one buffer of a struct, found n_buffers {found.n_buffers}")
    if found.null_count and _first_buffer(found):
        rows = importer.array(owner, address, struct_type(schema.fields))
        if rows.null_count:
            return Rows(with_nulls(schema), found.length, rows.flatten())
    return Rows(schema, found.length, None, _BatchColumns(owner, found, schema, importer))


# --- entry points -----------------------------------------------------------------------------------------------


def array_from_capsules(schema: PyCapsule, array: PyCapsule) -> Array:
    """Import an array from two capsules, zero-copy.

    Parameters
    ----------
    schema, array : PyCapsule
        Named ``arrow_schema`` and ``arrow_array``, from ``__arrow_c_array__``. Both are consumed.

    Raises
    ------
    InvalidType
        If they are not such capsules.
    InvalidData
        If a structure violates the C data interface or its layout in a way detectable without reading the values, or a
        capsule has been imported before. Values are checked by :meth:`Array.validate`.
    Unsupported
        If the type is not supported.
    MissingExtra
        If nanoarrow is not installed.
    """
    type = field_from_capsule(schema).type
    owner = move(array, "arrow_array")
    return Importer().array(owner, owner._addr(), type)


def rows_from_capsules(schema: PyCapsule, array: PyCapsule) -> Rows:
    """Import a record batch from two capsules; arguments and errors as :func:`array_from_capsules`.

    Errors within a column are raised when it is first accessed.
    """
    made = schema_from_capsule(schema)
    owner = move(array, "arrow_array")
    return rows_at(owner, owner._addr(), made, Importer())
