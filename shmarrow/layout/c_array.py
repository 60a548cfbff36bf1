# SPDX-License-Identifier: Apache-2.0
"""``ArrowArray`` of the C data interface: arrays and record batches to and from it ("The ArrowArray structure").

Export:

* a single traversal, driven by the buffer listing, lays out any array; nothing switches on types. The tree is in numpy
  memory with siblings adjacent; nanoarrow copies the structures for each consumer, never a buffer;
* the C data interface differs from the listing in two ways: views have an additional buffer with the sizes of their
  data buffers, and only validity may be NULL, even for zero slots;
* arrays without nulls have no validity buffer; arrays with one export null_count -1, so the consumer counts: the count
  recorded in a file may be wrong, and consumers allocate memory by it;
* nanoarrow's copy of a structure has space for three buffers. Views have more: their structures are laid out with one
  buffer, and the copy is patched afterwards. Its release callback does not read the patched members.

Import, zero-copy:

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
from typing import Any, NamedTuple, Protocol

import numpy as np

from shmarrow.buffer import EMPTY, Bytes
from shmarrow.capsules import PyCapsule
from shmarrow.errors import InvalidData, LimitExceeded, Unsupported, at, clip
from shmarrow.layout.construct import LONGEST, make_array
from shmarrow.layout.listing import LISTING, BufferSpec, Layout, bytes_needed
from shmarrow.layout.parts import Node, Parts, assemble
from shmarrow.layout.validation import make_safe
from shmarrow.types import DataType, Schema, storage_of
from shmarrow.types import struct as struct_type
from shmarrow.types.c_schema import (
    ARRAY,
    MAX_CHILDREN,
    KeptAlive,
    address_of,
    array_at,
    child_addresses,
    field_from_capsule,
    move,
    native,
    offset_of,
    pointer,
    pointers_at,
    schema_from_capsule,
    schema_schema,
    type_from_capsule,
    type_schema,
)
from shmarrow.types.schema import with_nulls

_ROOM = {"nanoarrow": 3}
"""The most buffers in a structure that a library copies."""

_ZEROS = np.zeros(64, np.uint8)
"""The target of pointers to empty buffers: consumers may read an offset there."""

_NO_FIELDS = struct_type([])

_WITH_VALIDITY, _VARIADIC, _FIXED_SIZE, _WITHOUT, _ALL_NULL, _SPARSE = range(6)
_KINDS = {
    layout: _VARIADIC if row.variadic else _WITH_VALIDITY if row.has_validity else _WITHOUT
    for layout, row in LISTING.items()
} | {"null": _ALL_NULL, "fixed_size_list": _FIXED_SIZE, "sparse_union": _SPARSE}
"""The kind of each layout; kinds before :data:`_WITHOUT` have validity."""

_word = ctypes.c_uint64.from_address
_NOTHING = address_of(_ZEROS)


def _addresses(buffers: list[Any]) -> list[int]:
    """Return the address of each buffer; 0 for one that is False, and that of zeros for one that is None or empty."""
    return [
        0 if data is False else data.__array_interface__["data"][0] if data is not None and len(data) else _NOTHING
        for data in buffers
    ]


class Patch(NamedTuple):
    """A structure with more buffers than nanoarrow's copy has space for.

    Attributes
    ----------
    way : tuple of int
        The child index at each level from the root; -1 for the dictionary.
    n_buffers : int
        The number of buffers.
    buffers : int
        The address of the array of buffer pointers.
    """

    way: tuple[int, ...]
    n_buffers: int
    buffers: int


class Tree(NamedTuple):
    """An array as a tree of structures, root first; ``memory`` owns them and all buffers."""

    memory: KeptAlive
    address: int
    patches: list[Patch]


def lay_out(root: Any) -> Tree:
    """Build the tree of a validated array; copies no buffer."""
    nodes, parents = [(root, root._offset, root._length)], [0]
    rows: list[tuple[int, ...]] = []
    alive: list[Any] = []
    for array, offset, length in nodes:  # grows as children are appended
        kind, dictionary, present = _KINDS[array._type.layout], array._dictionary, list(array._buffers)
        if kind == _VARIADIC:
            present.append(np.array([len(data) for data in present[2:]], np.int64))
        below = [(child, child._offset, child._length) for child in array._children] if array._children else []
        null_count = length if kind == _ALL_NULL else 0
        if kind <= _FIXED_SIZE:  # validity is exported only if there may be nulls; every other buffer has an address
            if array._null_count == 0 or present[0] is None or not len(present[0]):
                present[0] = False
            else:
                null_count = -1
        if kind == _FIXED_SIZE:  # polars wants no more slots in the child than are used
            child, start, _ = below[0]
            below[0] = child, start, (offset + length) * storage_of(array._type).list_size
        elif kind == _SPARSE:  # arro3 drops the offset of these, so each child gets it
            below = [(child, start + offset, length) for child, start, _ in below]
            present[0] = present[0][offset:]
            offset = 0
        # pyarrow refers to bytes before an offset, so that without slots is 0.
        rows.append((length, null_count, offset if length else 0, len(present), len(below), len(alive), len(nodes)))
        if dictionary is not None:
            below.append((dictionary, dictionary._offset, dictionary._length))
        alive += present
        parents += [len(rows) - 1] * len(below)
        nodes += below

    # The addresses of buffers, those of structures, and the structures, in one piece of memory.
    words, count, room = _addresses(alive), len(nodes), _ROOM.get(native().__name__, LONGEST)
    memory = np.empty(len(words) + (1 + ARRAY.itemsize // 8) * count, np.int64)
    at = address_of(memory)
    pointers_at = at + 8 * len(words)
    start = pointers_at + 8 * count
    words += range(start, start + ARRAY.itemsize * count, ARRAY.itemsize)
    patches = []
    for i, (length, null_count, offset, n_buffers, n_children, first, child) in enumerate(rows):
        buffers, dictionary = at + 8 * first, 0
        if nodes[i][0]._dictionary is not None:
            dictionary = start + ARRAY.itemsize * child
        if n_buffers > room:
            patches.append(Patch(_way(i, parents, rows, nodes), n_buffers, buffers))
            n_buffers, buffers = 1, buffers + 8  # the second buffer: the first may be NULL, which keeps nothing alive
        # A release that is not 0 marks a structure as valid; it is never called.
        words += length, null_count, offset, n_buffers, n_children, buffers, pointers_at + 8 * child, dictionary, 1, 0
    memory[:] = words
    return Tree(KeptAlive([alive, memory]), start, patches)


def _way(node: int, parents: list[int], rows: list[Any], nodes: list[Any]) -> tuple[int, ...]:
    """Return the path from the root to a node."""
    way: list[int] = []
    while node:
        parent = parents[node]
        way.insert(0, -1 if nodes[parent][0]._dictionary is not None else node - rows[parent][6])
        node = parent
    return tuple(way)


_N_BUFFERS, _BUFFERS, _CHILDREN, _DICTIONARY = [
    offset_of(ARRAY, name) for name in ("n_buffers", "buffers", "children", "dictionary")
]


def capsules(tree: Tree, schema: Any) -> tuple[PyCapsule, PyCapsule]:
    """Make capsules from a ``nanoarrow`` schema and a tree; each structure keeps the tree's memory alive."""
    pair: tuple[PyCapsule, PyCapsule] = native()._array.CArray(tree.memory, tree.address, schema).__arrow_c_array__()
    if tree.patches:
        root = pointer(pair[1], "arrow_array")
        for way, n_buffers, buffers in tree.patches:
            at = root
            for i in way:
                at = _word(at + _DICTIONARY).value if i < 0 else _word(_word(at + _CHILDREN).value + 8 * i).value
            _word(at + _N_BUFFERS).value = n_buffers
            _word(at + _BUFFERS).value = buffers
    return pair


# --- arrays and record batches ----------------------------------------------------------------------------------


class ExportedBatch(Protocol):
    """What the export of a :class:`~shmarrow.RecordBatch` needs of it."""

    num_rows: int
    _schema: Schema

    @property
    def schema(self) -> Schema: ...
    @property
    def columns(self) -> list[Any]: ...
    def _is_cheap(self, index: int) -> bool: ...
    def cast(self, target_schema: Schema, /) -> Any: ...
    def validate(self) -> None: ...


def array_tree(array: Any) -> Tree:
    """Validate an array and build its tree."""
    return lay_out(make_safe(array))


def batch_tree(batch: ExportedBatch) -> Tree:
    """Validate the columns of a record batch, and build its tree as a struct.

    Raises
    ------
    InvalidData
        If a column's type or length differs from the batch's, or its data could make consumers read out of bounds.
    """
    columns, rows = batch.columns, batch.num_rows
    if [column._type for column in columns] != batch._schema.types or {column._length for column in columns} - {rows}:
        batch.validate()
    safe = []
    try:
        for column in columns:
            safe.append(column if column._safe is True else make_safe(column))
    except InvalidData as error:
        i = len(safe)
        error.where = ("column", i, batch.schema.field(i).name), *error.where
        raise
    return lay_out(make_array(_NO_FIELDS, rows, [None], 0, 0, safe))


def refuse(unknown: dict[str, object]) -> None:
    """Reject keywords of later versions of the interface, unless they are None."""
    names = [name for name, value in unknown.items() if value is not None]
    if names:
        raise Unsupported(f"the Arrow PyCapsule interface has no keyword {', '.join(names)} here")


def export_array(
    array: Any, requested_schema: PyCapsule | None = None, **unknown: object
) -> tuple[PyCapsule, PyCapsule]:
    """Implement :meth:`Array.__arrow_c_array__`."""
    if unknown:
        refuse(unknown)
    if requested_schema is not None:
        array = array.cast(type_from_capsule(requested_schema))
    return capsules(array_tree(array), type_schema(array.type))


def export_batch(
    batch: ExportedBatch, requested_schema: PyCapsule | None = None, **unknown: object
) -> tuple[PyCapsule, PyCapsule]:
    """Implement :meth:`RecordBatch.__arrow_c_array__`."""
    if unknown:
        refuse(unknown)
    schema = batch._schema
    if requested_schema is not None:
        schema = requested(schema, requested_schema)
        batch = in_schema(batch, schema)
    return capsules(batch_tree(batch), schema_schema(schema))


def requested(schema: Schema, capsule: PyCapsule | None) -> Schema:
    """Return the schema requested by a consumer; that of the data if none, or the same, is requested."""
    if capsule is None:
        return schema
    target = schema_from_capsule(capsule)
    return schema if target.equals(schema) else target


def in_schema(batch: ExportedBatch, schema: Schema) -> ExportedBatch:
    """Cast a batch to a schema; raises the errors of :meth:`RecordBatch.cast`."""
    return batch if schema is batch._schema else batch.cast(schema)


# --- import -------------------------------------------------------------------------------------------------------

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
        array = cls._make(_STRUCT.unpack(_BLOCK.from_address(address)))
        if not array.release:
            raise InvalidData(
                f"{_name(type)}: the ArrowArray has already been released; each capsule can be imported once"
            )
        length, nulls, offset = array[:3]
        if length < 0 or offset < 0 or length + offset > LONGEST:
            raise InvalidData(f"{_name(type)}: expected a length and an offset of at least 0, found {length}, {offset}")
        if not -1 <= nulls <= length:
            raise InvalidData(f"{_name(type)}: expected a null_count of -1 to {length}, found {nulls}")
        return array


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
        self._dictionaries: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}

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
        entry = self._dictionaries.get(place)
        if entry is None or entry[0] != key:
            entry = self._dictionaries[place] = (key, self.array(owner, address, type, (*path, -1)))
        return entry[1]


class _StructParts(Parts):
    """The parts of an ``ArrowArray``."""

    __slots__ = ("_address", "_array", "_at", "_children", "_importer", "_offset", "_owner", "_path", "_slots", "type")

    def __init__(self, importer: Importer, owner: Any, address: int, type: Any, path: tuple[int, ...]) -> None:
        self.type = type
        self._importer = importer
        self._owner = owner
        self._path = path
        self._array = CArray.at(address, type)
        # Zero slots reference nothing, whatever their offset: some producers omit buffers then.
        self._offset = self._array.offset if self._array.length else 0
        self._slots = self._offset + self._array.length

    def node(self) -> Node:
        array, type = self._array, self.type
        fields = type.fields
        if array.n_children != len(fields):
            raise InvalidData(f"{_name(type)}: expected {len(fields)} children, found n_children {array.n_children}")
        self._children = child_addresses(array.n_children, array.children, _name(type)) if fields else ()
        if array.dictionary and type.layout != "dictionary":
            raise InvalidData(f"{_name(type)}: found a dictionary, though the schema has none")
        layout = LISTING[type.layout]
        self._at = self._buffer_addresses(layout)
        nulls = array.null_count
        if layout.has_validity and not self._at["validity"]:
            if nulls > 0:
                raise InvalidData(f"{_name(type)}: null_count is {nulls}, but the validity bitmap is NULL")
            nulls = 0
        return Node(array.length, nulls, self._offset)

    def _buffer_addresses(self, layout: Layout) -> dict[str, Any]:
        """Return the address of each buffer by its role, and those of the data buffers of views as ``variadic``."""
        rows, variadic = layout.buffers, layout.variadic
        type, count = self.type, self._array.n_buffers
        if type.layout == "null" and count == 1:  # polars exports a validity buffer
            return {}
        if count <= len(rows) if variadic else count != len(rows):
            expected = f"{len(rows) + 1} or more" if variadic else str(len(rows))
            raise InvalidData(f"{_name(type)}: expected {expected} buffers, found n_buffers {count}")
        if not count:
            return {}
        if count > MAX_CHILDREN:
            raise LimitExceeded(f"{_name(type)}: {count} buffers; at most {MAX_CHILDREN:,} are read")
        if not self._array.buffers:
            raise InvalidData(f"{_name(type)}: expected {count} buffers, found a NULL pointer to them")
        at = pointers_at(self._array.buffers, count)
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
        lengths = (ctypes.c_int64 * len(starts)).from_address(sizes)[:]
        if min(lengths) < 0:
            raise InvalidData(f"{_name(self.type)}: a data buffer has {min(lengths)} bytes, expected at least 0")
        return [self._view(start, size, "data") for start, size in zip(starts, lengths, strict=True)]

    def child(self, index: int) -> Parts:
        type = self.type.fields[index].type
        return _StructParts(self._importer, self._owner, self._children[index], type, (*self._path, index))

    def dictionary(self) -> Any:
        if not self._array.dictionary:
            raise InvalidData(f"{_name(self.type)}: expected a dictionary, found NULL")
        value_type = storage_of(self.type).value_type
        return self._importer.dictionary(self._owner, self._array.dictionary, value_type, self._path)

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
    array = CArray.at(address, type)
    key = [array.length, array.offset, array.n_buffers]
    if 0 < array.n_buffers <= MAX_CHILDREN and array.buffers:
        key += pointers_at(array.buffers, array.n_buffers)
    children = child_addresses(array.n_children, array.children, _name(type))
    for field, child in zip(type.fields, children, strict=False):
        key += _fingerprint(child, field.type)
    if array.dictionary:
        key += _fingerprint(array.dictionary, getattr(storage_of(type), "value_type", type))
    return key


# --- record batches ---------------------------------------------------------------------------------------------


class ImportedRows(NamedTuple):
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
        What builds them on demand otherwise; see :class:`~shmarrow.columns.batch.ColumnSource`.
    """

    schema: Schema
    num_rows: int
    columns: list[Any] | None
    source: Any = None


class _BatchColumns:
    """The columns of an imported batch; see :class:`~shmarrow.columns.batch.ColumnSource`."""

    __slots__ = ("_addresses", "_importer", "_length", "_offset", "_owner", "_schema")

    def __init__(self, owner: Any, array: CArray, schema: Schema, importer: Importer) -> None:
        self._owner = owner
        self._addresses = child_addresses(array.n_children, array.children, "the ArrowArray of a record batch")
        self._length = array.length
        self._offset = array.offset
        self._schema = schema
        self._importer = importer

    def column(self, index: int) -> Any:
        field = self._schema.field(index)
        with at("column", index, field.name):
            column = self._importer.array(self._owner, self._addresses[index], field.type, (index,))
            if len(column) < self._offset + self._length:
                raise InvalidData(f"expected {self._offset + self._length} values, found {len(column)}")
        return column if len(column) == self._length else column.slice(self._offset, self._length)

    def columns(self, indices: Sequence[int] | None = None) -> list[Any]:
        return [self.column(i) for i in (range(len(self._addresses)) if indices is None else indices)]

    def is_cheap(self, index: int) -> bool:
        return True

    def check(self, index: int) -> None:
        pass


def _first_buffer(array: CArray) -> bool:
    """Whether the first buffer is present."""
    return bool(array.buffers) and pointers_at(array.buffers, 1) != [0]


def rows_at(owner: Any, address: int, schema: Schema, importer: Importer) -> ImportedRows:
    """Read the record batch at an address; its columns are built on demand.

    Null structs make the values of all columns null, which copies the columns.
    """
    array = CArray.at(address, "a record batch")
    if array.n_children != len(schema):
        raise InvalidData(f"a record batch has {array.n_children} columns, its schema {len(schema)} fields")
    if array.n_buffers != 1:
        raise InvalidData(f"a record batch has the one buffer of a struct, found n_buffers {array.n_buffers}")
    if array.null_count and _first_buffer(array):
        rows = importer.array(owner, address, struct_type(schema.fields))
        if rows.null_count:
            return ImportedRows(with_nulls(schema), array.length, rows.flatten())
    return ImportedRows(schema, array.length, None, _BatchColumns(owner, array, schema, importer))


# --- entry points -----------------------------------------------------------------------------------------------


def array_from_capsules(schema: PyCapsule, array: PyCapsule) -> Any:
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


def rows_from_capsules(schema: PyCapsule, array: PyCapsule) -> ImportedRows:
    """Import a record batch from two capsules; arguments and errors as :func:`array_from_capsules`.

    Errors within a column are raised when it is first accessed.
    """
    target = schema_from_capsule(schema)
    owner = move(array, "arrow_array")
    return rows_at(owner, owner._addr(), target, Importer())
