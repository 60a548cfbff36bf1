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

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, LimitExceeded
from shmarrow.interchange.c_data.import_schema import (
    MAX_CHILDREN,
    child_addresses,
    field_from_capsule,
    pointers_at,
    schema_from_capsule,
)
from shmarrow.interchange.c_data.structs import ARRAY, move
from shmarrow.layout.listing import LISTING, BufferSpec, bytes_needed
from shmarrow.layout.making import make_array
from shmarrow.layout.memory import EMPTY, LONGEST, read_only
from shmarrow.layout.preview import clip
from shmarrow.types import DataType, Schema
from shmarrow.types import struct as struct_type

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


class _Memory:
    """An array interface over bytes at an address; an ndarray over it keeps the owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: Any, address: int, size: int) -> None:
        self.owner = owner
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, True), "version": 3}


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
        found = CArray.at(address, type)
        buffers = self._buffers(owner, found, type)
        fields = type.fields
        if found.n_children != len(fields):
            raise InvalidData(f"{_name(type)}: expected {len(fields)} children, found n_children {found.n_children}")
        at = child_addresses(found.n_children, found.children, _name(type)) if fields else ()
        children = []
        for i, (field, child) in enumerate(zip(fields, at, strict=True)):
            try:
                children.append(self.array(owner, child, field.type, (*path, i)))
            except InvalidData as error:
                raise error.__class__(f"child {field.name!r}: {error}") from None
        dictionary = None
        if type.layout == "dictionary":
            value_type = getattr(type, "storage_type", type).value_type
            if not found.dictionary:
                raise InvalidData(f"{_name(type)}: expected a dictionary, found NULL")
            dictionary = self._dictionary(owner, found.dictionary, value_type, path)
        elif found.dictionary:
            raise InvalidData(f"{_name(type)}: found a dictionary, though the schema has none")
        nulls = found.null_count if buffers and LISTING[type.layout].has_validity and buffers[0] is not None else 0
        made = make_array(type, found.length, buffers, nulls, found.offset, children, dictionary)
        made._check_structure()
        return made

    def _buffers(self, owner: Any, found: CArray, type: Any) -> list[Bytes | None]:
        rows, variadic, *_ = LISTING[type.layout]
        count = found.n_buffers
        if type.layout == "null" and count == 1:  # polars exports a validity buffer
            return []
        if count <= len(rows) if variadic else count != len(rows):
            expected = f"{len(rows) + 1} or more" if variadic else str(len(rows))
            raise InvalidData(f"{_name(type)}: expected {expected} buffers, found n_buffers {count}")
        if not count:
            return []
        if count > MAX_CHILDREN:
            raise LimitExceeded(f"{_name(type)}: {count} buffers; at most {MAX_CHILDREN:,} are read")
        if not found.buffers:
            raise InvalidData(f"{_name(type)}: expected {count} buffers, found a NULL pointer to them")
        at = pointers_at(found.buffers, count)
        slots = found.offset + found.length
        buffers: list[Bytes | None] = []
        for row, start in zip(rows, at, strict=False):
            if row.role == "validity":
                buffers.append(self._validity(owner, found, start, row, type))
            elif row.role == "data":
                buffers.append(self._data(owner, found, buffers, start, at[len(buffers) - 1], rows, type))
            else:
                size = bytes_needed(row, type, slots) if slots else 0
                buffers.append(_view(owner, start, size, row.role, type))
        if variadic:
            buffers += _variadic(owner, at[len(rows) :], type)
        return buffers

    @staticmethod
    def _validity(owner: Any, found: CArray, start: int, row: BufferSpec, type: Any) -> Bytes | None:
        if not start:
            if found.null_count > 0:
                raise InvalidData(f"{_name(type)}: null_count is {found.null_count}, but the validity bitmap is NULL")
            return None
        return _view(owner, start, bytes_needed(row, type, found.offset + found.length), row.role, type)

    @staticmethod
    def _data(
        owner: Any, found: CArray, buffers: list[Bytes | None], start: int, offsets: int, rows: Any, type: Any
    ) -> Bytes:
        """Return the data buffer, which ends at the last offset."""
        slots = found.offset + found.length
        if not slots:
            return EMPTY
        number = _OFFSETS[rows[len(buffers) - 1].bits]
        end = number.from_address(offsets + slots * ctypes.sizeof(number)).value
        if end < 0:
            raise InvalidData(f"{_name(type)}: the last offset is {end}, expected at least 0")
        if end and not start and not found.length:  # zero slots reference no data, so producers omit the buffer
            buffers[-1] = read_only(np.zeros((slots + 1) * ctypes.sizeof(number), np.uint8))
            return EMPTY
        return _view(owner, start, end, "data", type)

    def _dictionary(self, owner: Any, address: int, type: DataType, path: tuple[int, ...]) -> Any:
        """Build the dictionary at an address, or return the previous one if its memory is the same."""
        key = tuple(_fingerprint(address, type))
        place = (*path, type)
        known = self._dictionaries.get(place)
        if known is None or known[0] != key:
            known = self._dictionaries[place] = (key, self.array(owner, address, type, (*path, -1)))
        return known[1]


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
        key += _fingerprint(found.dictionary, getattr(getattr(type, "storage_type", type), "value_type", type))
    return key


def _view(owner: Any, start: int, size: int, role: str, type: Any) -> Bytes:
    """Return a read-only view of bytes at an address."""
    if not size:
        return EMPTY
    if not start:
        raise InvalidData(f"{_name(type)}: expected {size} bytes of {role}, found NULL")
    if size < 0 or start + size > 1 << 64:
        raise InvalidData(f"{_name(type)}: {size} bytes of {role} do not fit into memory")
    return np.asarray(_Memory(owner, start, size))


def _variadic(owner: Any, at: Sequence[int], type: Any) -> list[Bytes | None]:
    """Return the data buffers of views; the last buffer holds their sizes."""
    *starts, sizes = at
    if not starts:
        return []
    if not sizes:
        raise InvalidData(f"{_name(type)}: expected the sizes of {len(starts)} data buffers, found NULL")
    found = (ctypes.c_int64 * len(starts)).from_address(sizes)[:]
    if min(found) < 0:
        raise InvalidData(f"{_name(type)}: a data buffer has {min(found)} bytes, expected at least 0")
    return [_view(owner, start, size, "data", type) for start, size in zip(starts, found, strict=True)]


# --- record batches ---------------------------------------------------------------------------------------------


class _Columns:
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
        try:
            found = self._importer.array(self._owner, self._addresses[index], field.type, (index,))
            if len(found) < self._offset + self._length:
                raise InvalidData(f"expected {self._offset + self._length} values, found {len(found)}")
        except InvalidData as error:
            raise error.__class__(f"column {index} {field.name!r}: {error}") from None
        return found if len(found) == self._length else found.slice(self._offset, self._length)

    def columns(self, indices: Sequence[int] | None = None) -> list[Any]:
        return [self.column(i) for i in (range(len(self._addresses)) if indices is None else indices)]

    def at_hand(self, index: int) -> bool:
        return True


def _first_buffer(found: CArray) -> bool:
    """Whether the first buffer is present."""
    return bool(found.buffers) and pointers_at(found.buffers, 1) != [0]


def batch_at(owner: Any, address: int, schema: Schema, importer: Importer) -> RecordBatch:
    """Build the record batch at an address; its columns are built on demand.

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
            made = RecordBatch.from_struct_array(rows)
            return made._with_schema(made._schema.with_metadata(schema.metadata))
    return RecordBatch(schema, found.length, source=_Columns(owner, found, schema, importer))


# --- entry points -----------------------------------------------------------------------------------------------


def array_from_capsules(schema: Any, array: Any) -> Array:
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
    made: Array = Importer().array(owner, owner._addr(), type)
    return made


def batch_from_capsules(schema: Any, array: Any) -> RecordBatch:
    """Import a record batch from two capsules; arguments and errors as :func:`array_from_capsules`.

    Errors within a column are raised when it is first accessed.
    """
    made = schema_from_capsule(schema)
    owner = move(array, "arrow_array")
    return batch_at(owner, owner._addr(), made, Importer())
