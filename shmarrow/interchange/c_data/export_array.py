"""``ArrowArray`` from arrays and record batches ("The ArrowArray structure").

Invariants:

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

from shmarrow.batch import ColumnView, RecordBatch
from shmarrow.errors import InvalidData
from shmarrow.interchange.c_data.export_schema import schema_schema, type_schema
from shmarrow.interchange.c_data.import_schema import schema_from_capsule, type_from_capsule
from shmarrow.interchange.c_data.structs import ARRAY, Memory, nanoarrow, pointer
from shmarrow.ipc.batch.decode import ArrayLoader
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

_WITH_VALIDITY, _VARIADIC, _FIXED_SIZE, _WITHOUT, _ALL_NULL, _SPARSE = range(6)
_KINDS = {
    layout: _VARIADIC if row.variadic else _WITH_VALIDITY if row.has_validity else _WITHOUT
    for layout, row in LISTING.items()
} | {"null": _ALL_NULL, "fixed_size_list": _FIXED_SIZE, "sparse_union": _SPARSE}
"""What the walk has to know of each layout; those before :data:`_WITHOUT` have validity."""

_word = ctypes.c_uint64.from_address
_HEAD = object.__basicsize__


class _Memory:
    """Words of memory from an address on, as numpy takes them."""

    def __init__(self, start: int, count: int) -> None:
        self.__array_interface__ = {"data": (start, True), "shape": (count,), "typestr": "<u8", "version": 3}


def _in_objects(arrays: list[Any]) -> Any:
    """Where the data of ndarrays are: in numpy's C interface the word after the head that every object has.

    All of these words are gathered at once. Numpy's own attribute takes over a microsecond for each array, which would
    be most of what the export of a wide batch costs.
    """
    places = np.fromiter(map(id, arrays), np.uint64, len(arrays))
    start = int(places.min())
    words = np.asarray(_Memory(start + _HEAD, (int(places.max()) - start) // 8 + 1))
    return words[(places - np.uint64(start)) >> np.uint64(3)]


def _by_attribute(arrays: list[Any]) -> Any:
    return np.array([data.ctypes.data for data in arrays], np.uint64)


_probes = [np.zeros(3, np.uint8)[i:] for i in range(3)]
_addresses = _in_objects if (_in_objects(_probes) == _by_attribute(_probes)).all() else _by_attribute


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
    tree["offset"] = [each._offset if each._length else 0 for each in nodes]  # pyarrow refers to bytes before an offset
    tree["n_buffers"] = n_buffers
    is_dictionary = np.array([each._dictionary is not None for each in nodes])
    tree["n_children"] = n_children = np.array([len(each._children) for each in nodes])
    n_below = n_children + is_dictionary
    first = 1 + np.cumsum(n_below) - n_below
    for i in np.flatnonzero((kinds == _FIXED_SIZE) | (kinds == _SPARSE)).tolist():
        offset, length = tree["offset"][i], tree["length"][i]
        if kinds[i] == _FIXED_SIZE:  # polars wants no more slots in the child than are used
            size = getattr(nodes[i]._type, "storage_type", nodes[i]._type).list_size
            tree["length"][first[i]] = (offset + length) * size
        else:  # arro3 drops the offset of these, so each child gets it
            below = slice(first[i], first[i] + n_children[i])
            tree["offset"][below] += offset
            tree["length"][below] = length
            addresses[starts[i]] += np.uint64(offset)
            tree["offset"][i] = 0

    # Validity is kept where there may be nulls; any other buffer has an address.
    with_validity = kinds <= _FIXED_SIZE
    validity = starts[with_validity]
    absent = np.array([each._null_count == 0 for each in nodes])[with_validity] | (addresses[validity] == addresses[-1])
    addresses[validity[absent]] = 0
    tree["null_count"] = np.where(kinds == _ALL_NULL, tree["length"], 0)
    tree["null_count"][with_validity] = np.where(absent, 0, -1)

    places = _link(tree, first, starts, addresses)
    tree["dictionary"] = np.where(is_dictionary, places[first], 0)

    patches = []
    large = np.flatnonzero(n_buffers > _ROOM).tolist()
    if large:
        parents = np.repeat(np.arange(len(nodes)), n_below)
        for i in large:
            patches.append(Patch(_way(i, parents, first, is_dictionary), len(buffers[i]), int(tree["buffers"][i])))
        tree["n_buffers"][large] = 1
        tree["buffers"][large] += np.uint64(8)  # the second one, as the first may be NULL and then keeps nothing alive
    return Tree(Memory([buffers, tree, places, addresses]), _address(tree), patches)


def lay_out_numbers(rows: int, offset: int, values: Any, body: Any) -> Tree:
    """The tree of a record batch of numbers without nulls, from the addresses of their values.

    Parameters
    ----------
    rows, offset : int
        The slots of each column.
    values : uint64 ndarray
        Where each column's values are.
    body : object
        What keeps them alive.
    """
    addresses = np.zeros(2 * len(values) + 1, np.uint64)  # NULL is the validity of the batch and of each column
    addresses[2::2] = values
    tree = np.zeros(len(values) + 1, ARRAY)
    tree["length"], tree["n_buffers"] = rows, 2
    tree["offset"][1:] = offset
    tree["n_buffers"][0], tree["n_children"][0] = 1, len(values)
    starts = np.arange(-1, 2 * len(values), 2)
    starts[0] = 0
    places = _link(tree, np.ones(1, np.int64), starts, addresses)
    return Tree(Memory([body, tree, places, addresses]), _address(tree), [])


def _dictionary(array: Any) -> Any:
    return () if array._dictionary is None else (array._dictionary,)


def _link(tree: Any, first: Any, starts: Any, addresses: Any) -> Any:
    """Set the pointers to children, from the number of the first one, and to buffers; gives all nodes' addresses."""
    places = np.arange(len(tree) + 1, dtype=np.uint64) * np.uint64(ARRAY.itemsize) + np.uint64(_address(tree))
    tree["children"] = first.astype(np.uint64) * np.uint64(8) + np.uint64(_address(places))
    tree["buffers"] = starts.astype(np.uint64) * np.uint64(8) + np.uint64(_address(addresses))
    tree["release"] = 1  # as it is not 0, the structure counts as valid; nobody calls it
    return places


def _way(node: int, parents: Any, first: Any, is_dictionary: Any) -> tuple[int, ...]:
    """The way from the root to a node; ``parents[i]`` is the parent of node ``i + 1``."""
    way: list[int] = []
    while node:
        parent = int(parents[node - 1])
        way.insert(0, -1 if is_dictionary[parent] else node - int(first[parent]))
        node = parent
    return tuple(way)


_N_BUFFERS, _BUFFERS, _CHILDREN, _DICTIONARY = (
    ARRAY.fields[name][1]  # type: ignore[index]
    for name in ("n_buffers", "buffers", "children", "dictionary")
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
    numbers = _numbers(batch)
    if numbers is not None:
        return lay_out_numbers(*numbers)
    columns, rows = batch.columns, batch.num_rows
    if [column._type for column in columns] != batch.schema.types or {column._length for column in columns} - {rows}:
        batch.validate()
    safe = []
    for column in columns:
        try:
            safe.append(make_safe(column))
        except InvalidData as error:
            i = len(safe)
            raise type(error)(f"column {i} {batch.schema.field(i).name!r}: {error}") from None
    return lay_out(StructArray(_NO_FIELDS, rows, [None], 0, 0, safe))


def _numbers(batch: RecordBatch) -> tuple[int, int, Any, Any] | None:
    """What :func:`lay_out_numbers` takes, if the batch lies in the body of its message and is nothing but numbers.

    Such columns are safe as they are, and need not be made: for wide batches that is most of the time.
    """
    source: Any = batch._source
    indices, offset = None, 0
    if isinstance(source, ColumnView):
        if source.own:
            return None
        source, indices, offset = source.batch._source, source.indices, source.offset
    found = source.numbers() if isinstance(source, ArrayLoader) else None
    if found is None:
        return None
    values, body = found
    return batch.num_rows, offset, (values if indices is None else values[indices]) + np.uint64(_address(body)), body


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
    """The schema that a consumer asks for; that of the data where it asks for none, or for the same fields."""
    if capsule is None:
        return schema
    wanted = schema_from_capsule(capsule)
    return schema if wanted.equals(schema) else wanted


def in_schema(batch: RecordBatch, schema: Schema) -> RecordBatch:
    """The batch with the types of a schema; the errors are those of :meth:`RecordBatch.cast`."""
    return batch if schema is batch.schema else batch.cast(schema)
