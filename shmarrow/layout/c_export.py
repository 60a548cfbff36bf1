"""``ArrowArray`` from arrays and record batches ("The ArrowArray structure").

Invariants:

* a single traversal, driven by the buffer listing, lays out any array; nothing switches on types. The tree is in numpy
  memory with siblings adjacent; nanoarrow copies the structures for each consumer, never a buffer;
* the C data interface differs from the listing in two ways: views have an additional buffer with the sizes of their
  data buffers, and only validity may be NULL, even for zero slots;
* arrays without nulls have no validity buffer; arrays with one export null_count -1, so the consumer counts: the count
  recorded in a file may be wrong, and consumers allocate memory by it;
* nanoarrow's copy of a structure has space for three buffers. Views have more: their structures are laid out with one
  buffer, and the copy is patched afterwards. Its release callback does not read the patched members.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.capsules import PyCapsule
from shmarrow.errors import InvalidData, Unsupported
from shmarrow.layout.listing import LISTING
from shmarrow.layout.making import make_array
from shmarrow.layout.validation import make_safe
from shmarrow.types import Schema, storage_of, struct
from shmarrow.types.c_export import schema_schema, type_schema
from shmarrow.types.c_import import schema_from_capsule, type_from_capsule
from shmarrow.types.c_structs import ARRAY, KeptAlive, address_of, native, offset_of, pointer

if TYPE_CHECKING:
    from shmarrow.batch import RecordBatch
    from shmarrow.layout.array import Array

_ROOM = 3
"""The most buffers in a structure copied by nanoarrow."""

_ZEROS = np.zeros(64, np.uint8)
"""The target of pointers to empty buffers: consumers may read an offset there."""

_NO_FIELDS = struct([])

_WITH_VALIDITY, _VARIADIC, _FIXED_SIZE, _WITHOUT, _ALL_NULL, _SPARSE = range(6)
_KINDS = {
    layout: _VARIADIC if row.variadic else _WITH_VALIDITY if row.has_validity else _WITHOUT
    for layout, row in LISTING.items()
} | {"null": _ALL_NULL, "fixed_size_list": _FIXED_SIZE, "sparse_union": _SPARSE}
"""The kind of each layout; kinds before :data:`_WITHOUT` have validity."""

_AT = {name: i for i, name in enumerate(ARRAY.names or ())}
"""The members of a structure, each of which is a word."""

_word = ctypes.c_uint64.from_address
_HEAD = object.__basicsize__


def _in_objects(buffers: list[Any]) -> list[int]:
    """Return the address of each buffer; 0 for one that is False, and that of zeros for one that is None or empty.

    numpy's C struct has the address right after the object header. The ``ctypes.data`` attribute takes ten times as
    long, which would dominate the export of a wide batch.
    """
    return [
        0 if data is False else _word(id(data) + _HEAD).value if data is not None and len(data) else _NOTHING
        for data in buffers
    ]


def _by_attribute(buffers: list[Any]) -> list[int]:
    return [
        0 if data is False else address_of(data) if data is not None and len(data) else _NOTHING for data in buffers
    ]


_NOTHING = address_of(_ZEROS)
_probes = [np.zeros(3, np.uint8)[i:] for i in range(3)]
_addresses = _in_objects if _in_objects(_probes) == _by_attribute(_probes) else _by_attribute


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
    kept: list[Any] = []
    for array, offset, length in nodes:  # grows as children are appended
        kind, dictionary, found = _KINDS[array._type.layout], array._dictionary, list(array._buffers)
        if kind == _VARIADIC:
            found.append(np.array([len(data) for data in found[2:]], np.int64))
        below = [(child, child._offset, child._length) for child in array._children] if array._children else []
        null_count = length if kind == _ALL_NULL else 0
        if kind <= _FIXED_SIZE:  # validity is exported only if there may be nulls; every other buffer has an address
            if array._null_count == 0 or found[0] is None or not len(found[0]):
                found[0] = False
            else:
                null_count = -1
        if kind == _FIXED_SIZE:  # polars wants no more slots in the child than are used
            child, start, _ = below[0]
            below[0] = child, start, (offset + length) * storage_of(array._type).list_size
        elif kind == _SPARSE:  # arro3 drops the offset of these, so each child gets it
            below = [(child, start + offset, length) for child, start, _ in below]
            found[0] = found[0][offset:]
            offset = 0
        # pyarrow refers to bytes before an offset, so that without slots is 0.
        rows.append((length, null_count, offset if length else 0, len(found), len(below), len(kept), len(nodes)))
        if dictionary is not None:
            below.append((dictionary, dictionary._offset, dictionary._length))
        kept += found
        parents += [len(rows) - 1] * len(below)
        nodes += below

    buffers, pointers = np.array(_addresses(kept), np.uint64), np.empty(len(nodes) + 1, np.uint64)
    at, pointers_at = address_of(buffers), address_of(pointers)
    tree = np.array(  # a release that is not 0 marks a structure as valid; it is never called
        [(*row[:5], at + 8 * row[5], pointers_at + 8 * row[6], 0, 1, 0) for row in rows], np.int64
    )
    start = address_of(tree)
    pointers[:] = np.arange(start, start + ARRAY.itemsize * len(pointers), ARRAY.itemsize)
    patches = []
    for i, (array, *_) in enumerate(nodes):
        if array._dictionary is not None:
            tree[i, _AT["dictionary"]] = pointers[rows[i][6]]
        if rows[i][3] > _ROOM:
            patches.append(Patch(_way(i, parents, rows, nodes), rows[i][3], int(tree[i, _AT["buffers"]])))
            tree[i, _AT["n_buffers"]] = 1
            tree[i, _AT["buffers"]] += 8  # the second buffer: the first may be NULL, which keeps nothing alive
    return Tree(KeptAlive([kept, tree, pointers, buffers]), start, patches)


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
    made: tuple[PyCapsule, PyCapsule] = native()._array.CArray(tree.memory, tree.address, schema).__arrow_c_array__()
    if tree.patches:
        root = pointer(made[1], "arrow_array")
        for way, n_buffers, buffers in tree.patches:
            at = root
            for i in way:
                at = _word(at + _DICTIONARY).value if i < 0 else _word(_word(at + _CHILDREN).value + 8 * i).value
            _word(at + _N_BUFFERS).value = n_buffers
            _word(at + _BUFFERS).value = buffers
    return made


# --- arrays and record batches ----------------------------------------------------------------------------------


def array_tree(array: Array) -> Tree:
    """Validate an array and build its tree."""
    return lay_out(make_safe(array))


def batch_tree(batch: RecordBatch) -> Tree:
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
    given = [name for name, value in unknown.items() if value is not None]
    if given:
        raise Unsupported(f"the Arrow PyCapsule interface has no keyword {', '.join(given)} here")


def export_array(
    array: Array, requested_schema: PyCapsule | None = None, **unknown: object
) -> tuple[PyCapsule, PyCapsule]:
    """Implement :meth:`Array.__arrow_c_array__`."""
    if unknown:
        refuse(unknown)
    if requested_schema is not None:
        array = array.cast(type_from_capsule(requested_schema))
    return capsules(array_tree(array), type_schema(array.type))


def export_batch(
    batch: RecordBatch, requested_schema: PyCapsule | None = None, **unknown: object
) -> tuple[PyCapsule, PyCapsule]:
    """Implement :meth:`RecordBatch.__arrow_c_array__`."""
    if unknown:
        refuse(unknown)
    schema = requested(batch._schema, requested_schema)
    return capsules(batch_tree(in_schema(batch, schema)), schema_schema(schema))


def requested(schema: Schema, capsule: PyCapsule | None) -> Schema:
    """Return the schema requested by a consumer; that of the data if none, or the same, is requested."""
    if capsule is None:
        return schema
    wanted = schema_from_capsule(capsule)
    return schema if wanted.equals(schema) else wanted


def in_schema(batch: RecordBatch, schema: Schema) -> RecordBatch:
    """Cast a batch to a schema; raises the errors of :meth:`RecordBatch.cast`."""
    return batch if schema is batch._schema else batch.cast(schema)
