"""``ArrowArray`` from arrays and record batches ("The ArrowArray structure").

Rules kept here:

* one walk lays out any array by the rows of the buffer listing; nothing switches over types. The tree lies in numpy
  memory, in which the children of a node are neighbours; nanoarrow copies the structures for each consumer, and never
  a buffer;
* the C data interface differs from the listing in this: views have one more buffer, with the sizes of their data
  buffers, and no buffer but validity may be NULL, even if there are no slots;
* where there are no nulls there is no validity, and where there is validity the consumer counts: what a file says of
  the number of nulls may be wrong, and consumers size memory by it;
* nanoarrow's copy of a structure has room for three buffers. Views have more: such a structure is laid out with one
  buffer, and the copy gets the others afterwards. Its release callback does not look at the members that change.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.errors import InvalidData
from shmarrow.interchange.c_data.export_schema import schema_schema, type_schema
from shmarrow.interchange.c_data.import_schema import schema_from_capsule, type_from_capsule
from shmarrow.interchange.c_data.structs import ARRAY, Memory, nanoarrow, pointer
from shmarrow.layout.array import Array
from shmarrow.layout.listing import LISTING
from shmarrow.layout.struct import StructArray
from shmarrow.layout.validation import make_safe
from shmarrow.types import Schema, struct

_ROOM = 3
"""The buffers that a structure copied by nanoarrow has room for."""

_ZEROS = np.zeros(64, np.uint8)
"""What a buffer without bytes points to: consumers may read an offset there."""

_NO_FIELDS = struct([])

_word = ctypes.c_uint64.from_address
_HEAD = object.__basicsize__


def _address(data: Any) -> int:
    """The address of an ndarray's data, which in numpy's C interface follows the head of every object.

    It takes a tenth of the time of numpy's own attribute, which would be most of what the export of a wide batch costs.
    """
    return _word(id(data) + _HEAD).value


_probe = np.zeros(3, np.uint8)[1:]
if _address(_probe) != _probe.ctypes.data:  # pragma: no cover - another implementation of Python

    def _address(data: Any) -> int:
        return int(data.ctypes.data)


class Patch(NamedTuple):
    """A structure with more buffers than nanoarrow has room for.

    Attributes
    ----------
    way : tuple of int
        Which child to take at each level, from the root on; -1 for the dictionary.
    n_buffers : int
        How many buffers it has.
    buffers : int
        Where their addresses are.
    """

    way: tuple[int, ...]
    n_buffers: int
    buffers: int


class Tree(NamedTuple):
    """An array as a tree of structures, the first of which is its own; ``memory`` owns them and all buffers."""

    memory: Memory
    address: int
    patches: list[Patch]


def lay_out(root: Any) -> Tree:
    """The tree of an array that is safe to hand out; copies no buffer."""
    nodes = level = [root]
    while level:
        level = [child for each in level for child in _below(each)]
        nodes = nodes + level
    layouts = [each._type.layout for each in nodes]
    buffers = [each._buffers for each in nodes]
    for i in [i for i, layout in enumerate(layouts) if LISTING[layout].variadic]:
        buffers[i] = [*buffers[i], np.array([len(data) for data in buffers[i][2:]], np.int64)]

    tree = np.zeros(len(nodes), ARRAY)
    tree["length"] = [each._length for each in nodes]
    tree["offset"] = [each._offset for each in nodes]
    tree["n_buffers"] = n_buffers = np.array([len(each) for each in buffers])
    starts = np.cumsum(n_buffers) - n_buffers
    found = [_address(data) if data is not None and len(data) else 0 for each in buffers for data in each]
    addresses = np.array([*found, 0], np.uint64)

    # Validity is kept where there may be nulls; any other buffer has an address.
    with_validity = np.array([LISTING[layout].has_validity for layout in layouts])
    validity = starts[with_validity]
    known = np.where([each._null_count == 0 for each in nodes], 0, addresses[starts])[with_validity]
    addresses[addresses == 0] = _address(_ZEROS)
    addresses[validity] = known
    tree["null_count"][with_validity] = np.where(known, -1, 0)
    all_null = np.array([layout == "null" for layout in layouts])
    tree["null_count"][all_null] = tree["length"][all_null]

    n_below = np.array([len(_below(each)) for each in nodes])
    first = 1 + np.cumsum(n_below) - n_below
    is_dictionary = np.array([each._dictionary is not None for each in nodes])
    places = np.arange(len(nodes) + 1, dtype=np.uint64) * np.uint64(ARRAY.itemsize) + np.uint64(_address(tree))
    tree["n_children"] = np.where(is_dictionary, 0, n_below)
    tree["children"] = first.astype(np.uint64) * np.uint64(8) + np.uint64(_address(places))
    tree["dictionary"] = np.where(is_dictionary, places[first], 0)
    tree["buffers"] = starts.astype(np.uint64) * np.uint64(8) + np.uint64(_address(addresses))
    tree["release"] = 1  # as it is not 0, the structure counts as valid; nobody calls it

    patches = []
    large = np.flatnonzero(n_buffers > _ROOM).tolist()
    if large:
        parents = np.repeat(np.arange(len(nodes)), n_below)
        for i in large:
            patches.append(Patch(_way(i, parents, first, is_dictionary), len(buffers[i]), int(tree["buffers"][i])))
        tree["n_buffers"][large] = 1
        tree["buffers"][large] += np.uint64(8)  # the second one, as the first may be NULL and then keeps nothing alive
    return Tree(Memory([buffers, tree, places, addresses]), _address(tree), patches)


def _below(array: Any) -> Any:
    return array._children if array._dictionary is None else (array._dictionary,)


def _way(node: int, parents: Any, first: Any, is_dictionary: Any) -> tuple[int, ...]:
    """The way from the root to a node; ``parents[i]`` is the parent of node ``i + 1``."""
    way: list[int] = []
    while node:
        parent = int(parents[node - 1])
        way.insert(0, -1 if is_dictionary[parent] else node - int(first[parent]))
        node = parent
    return tuple(way)


_N_BUFFERS, _BUFFERS, _CHILDREN, _DICTIONARY = (
    ARRAY.fields[name][1] for name in ("n_buffers", "buffers", "children", "dictionary")
)


def capsules(tree: Tree, schema: Any) -> tuple[Any, Any]:
    """New capsules of a schema of ``nanoarrow`` and of a tree; each structure in them keeps the tree's memory alive."""
    made: tuple[Any, Any] = nanoarrow()._array.CArray(tree.memory, tree.address, schema).__arrow_c_array__()
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
    """The tree of an array, which is checked first."""
    return lay_out(make_safe(array))


def batch_tree(batch: RecordBatch) -> Tree:
    """The tree of a record batch: a struct of its columns, each of which is checked first.

    Raises
    ------
    InvalidData
        If a column has another type or length than the batch says, or would lead foreign code out of its memory.
    """
    columns, rows = batch.columns, batch.num_rows
    if [column._type for column in columns] != batch.schema.types or any(
        [column._length != rows for column in columns]
    ):
        batch.validate()
    safe = []
    for column in columns:
        try:
            safe.append(make_safe(column))
        except InvalidData as error:
            i = len(safe)
            raise type(error)(f"column {i} {batch.schema.field(i).name!r}: {error}") from None
    return lay_out(StructArray(_NO_FIELDS, rows, [None], 0, 0, safe))


def export_array(array: Array, requested_schema: Any = None) -> tuple[Any, Any]:
    """Capsules of an array, cast to the requested type where it has another."""
    if requested_schema is not None:
        array = array.cast(type_from_capsule(requested_schema))
    return capsules(array_tree(array), type_schema(array.type))


def export_batch(batch: RecordBatch, requested_schema: Any = None) -> tuple[Any, Any]:
    """Capsules of a record batch, cast to the requested schema where it has another."""
    schema = requested(batch.schema, requested_schema)
    return capsules(batch_tree(in_schema(batch, schema)), schema_schema(schema))


def requested(schema: Schema, capsule: Any) -> Schema:
    """The schema that a consumer asks for; the one that the data have where it asks for none, or for the same fields."""
    if capsule is None:
        return schema
    wanted = schema_from_capsule(capsule)
    return schema if wanted.equals(schema) else wanted


def in_schema(batch: RecordBatch, schema: Schema) -> RecordBatch:
    """The batch with the types of a schema; the errors are those of :meth:`RecordBatch.cast`."""
    return batch if schema is batch.schema else batch.cast(schema)
