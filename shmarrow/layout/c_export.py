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
from shmarrow.optional import optional
from shmarrow.types import Schema, struct
from shmarrow.types.c_export import schema_schema, type_schema
from shmarrow.types.c_import import schema_from_capsule, type_from_capsule
from shmarrow.types.c_structs import ARRAY, KeptAlive, array_at, offset_of, pointer
from shmarrow.types.extension import storage_of

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

_word = ctypes.c_uint64.from_address
_HEAD = object.__basicsize__


def _in_objects(arrays: list[Any]) -> Any:
    """Return the data addresses of ndarrays: numpy's C struct has the data pointer right after the object header.

    All pointers are gathered in one operation. The ``ctypes.data`` attribute takes over a microsecond per array, which
    would dominate the export of a wide batch.
    """
    addresses = np.fromiter(map(id, arrays), np.uint64, len(arrays))
    start = int(addresses.min())
    words = array_at(start + _HEAD, (int(addresses.max()) - start) // 8 + 1, "<u8")
    return words[(addresses - np.uint64(start)) >> np.uint64(3)]


def _by_attribute(arrays: list[Any]) -> Any:
    return np.array([data.ctypes.data for data in arrays], np.uint64)


_probes = [np.zeros(3, np.uint8)[i:] for i in range(3)]
_addresses = _in_objects if (_in_objects(_probes) == _by_attribute(_probes)).all() else _by_attribute


def _address(data: Any) -> int:
    return int(data.ctypes.data)


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
    nodes = level = [root]
    while level:
        level = [child for each in level for child in (each._children or _dictionary(each))]
        nodes = nodes + level
    buffers = [each._buffers for each in nodes]
    kinds = np.array([_KINDS[each._type.layout] for each in nodes])
    for i in np.flatnonzero(kinds == _VARIADIC).tolist():
        buffers[i] = [*buffers[i], np.array([len(data) for data in buffers[i][2:]], np.int64)]
    n_buffers = np.array([len(each) for each in buffers])
    starts = np.cumsum(n_buffers) - n_buffers
    found = [data if data is not None and len(data) else _ZEROS for each in buffers for data in each]
    addresses = _addresses([*found, _ZEROS])

    tree = np.zeros(len(nodes), ARRAY)
    tree["length"] = [each._length for each in nodes]
    tree["offset"] = [each._offset if each._length else 0 for each in nodes]
    tree["n_buffers"] = n_buffers
    is_dictionary = np.array([each._dictionary is not None for each in nodes])
    tree["n_children"] = n_children = np.array([len(each._children) for each in nodes])
    n_below = n_children + is_dictionary
    first = 1 + np.cumsum(n_below) - n_below
    for i in np.flatnonzero((kinds == _FIXED_SIZE) | (kinds == _SPARSE)).tolist():
        offset, length = tree["offset"][i], tree["length"][i]
        if kinds[i] == _FIXED_SIZE:  # polars wants no more slots in the child than are used
            size = storage_of(nodes[i]._type).list_size
            tree["length"][first[i]] = (offset + length) * size
        else:  # arro3 drops the offset of these, so each child gets it
            below = slice(first[i], first[i] + n_children[i])
            tree["offset"][below] += offset
            tree["length"][below] = length
            addresses[starts[i]] += np.uint64(offset)
            tree["offset"][i] = 0
    tree["offset"][tree["length"] == 0] = 0  # pyarrow refers to bytes before an offset

    # Validity is exported only if there may be nulls; every other buffer has an address.
    with_validity = kinds <= _FIXED_SIZE
    validity = starts[with_validity]
    absent = np.array([each._null_count == 0 for each in nodes])[with_validity] | (addresses[validity] == addresses[-1])
    addresses[validity[absent]] = 0
    tree["null_count"] = np.where(kinds == _ALL_NULL, tree["length"], 0)
    tree["null_count"][with_validity] = np.where(absent, 0, -1)

    pointers = _link(tree, first, starts, addresses)
    tree["dictionary"] = np.where(is_dictionary, pointers[first], 0)

    patches = []
    large = np.flatnonzero(n_buffers > _ROOM).tolist()
    if large:
        parents = np.repeat(np.arange(len(nodes)), n_below)
        for i in large:
            patches.append(Patch(_way(i, parents, first, is_dictionary), len(buffers[i]), int(tree["buffers"][i])))
        tree["n_buffers"][large] = 1
        tree["buffers"][large] += np.uint64(8)  # the second buffer: the first may be NULL, which keeps nothing alive
    return Tree(KeptAlive([buffers, tree, pointers, addresses]), _address(tree), patches)


def _dictionary(array: Any) -> Any:
    return () if array._dictionary is None else (array._dictionary,)


def _link(tree: Any, first: Any, starts: Any, addresses: Any) -> Any:
    """Set the pointers to children (``first`` is the first child's node) and buffers; return all nodes' addresses."""
    pointers = np.arange(len(tree) + 1, dtype=np.uint64) * np.uint64(ARRAY.itemsize) + np.uint64(_address(tree))
    tree["children"] = first.astype(np.uint64) * np.uint64(8) + np.uint64(_address(pointers))
    tree["buffers"] = starts.astype(np.uint64) * np.uint64(8) + np.uint64(_address(addresses))
    tree["release"] = 1  # nonzero marks the structure as valid; it is never called
    return pointers


def _way(node: int, parents: Any, first: Any, is_dictionary: Any) -> tuple[int, ...]:
    """Return the path from the root to a node; ``parents[i]`` is the parent of node ``i + 1``."""
    way: list[int] = []
    while node:
        parent = int(parents[node - 1])
        way.insert(0, -1 if is_dictionary[parent] else node - int(first[parent]))
        node = parent
    return tuple(way)


_N_BUFFERS, _BUFFERS, _CHILDREN, _DICTIONARY = [
    offset_of(ARRAY, name) for name in ("n_buffers", "buffers", "children", "dictionary")
]


def capsules(tree: Tree, schema: Any) -> tuple[PyCapsule, PyCapsule]:
    """Make capsules from a ``nanoarrow`` schema and a tree; each structure keeps the tree's memory alive."""
    made: tuple[PyCapsule, PyCapsule] = (
        optional("nanoarrow")._array.CArray(tree.memory, tree.address, schema).__arrow_c_array__()
    )
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
    if [column._type for column in columns] != batch.schema.types or {column._length for column in columns} - {rows}:
        batch.validate()
    safe = []
    try:
        for column in columns:
            safe.append(make_safe(column))
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
    refuse(unknown)
    if requested_schema is not None:
        array = array.cast(type_from_capsule(requested_schema))
    return capsules(array_tree(array), type_schema(array.type))


def export_batch(
    batch: RecordBatch, requested_schema: PyCapsule | None = None, **unknown: object
) -> tuple[PyCapsule, PyCapsule]:
    """Implement :meth:`RecordBatch.__arrow_c_array__`."""
    refuse(unknown)
    schema = requested(batch.schema, requested_schema)
    return capsules(batch_tree(in_schema(batch, schema)), schema_schema(schema))


def requested(schema: Schema, capsule: PyCapsule | None) -> Schema:
    """Return the schema requested by a consumer; that of the data if none, or the same, is requested."""
    if capsule is None:
        return schema
    wanted = schema_from_capsule(capsule)
    return schema if wanted.equals(schema) else wanted


def in_schema(batch: RecordBatch, schema: Schema) -> RecordBatch:
    """Cast a batch to a schema; raises the errors of :meth:`RecordBatch.cast`."""
    return batch if schema is batch.schema else batch.cast(schema)
