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
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, Unsupported
from shmarrow.interchange.c_data.export_schema import placeholder, schema_schema, type_schema
from shmarrow.interchange.c_data.structs import ARRAY, Memory, nanoarrow, pointer
from shmarrow.layout.array import Array
from shmarrow.layout.listing import LISTING
from shmarrow.layout.struct import StructArray
from shmarrow.types import struct

_ROOM = 3
"""The buffers that a structure copied by nanoarrow has room for."""

_ZEROS = np.zeros(64, np.uint8)
"""What a buffer without bytes points to: consumers may read an offset there."""

_NO_FIELDS = struct([])

_HAS_VALIDITY = {layout: row.has_validity for layout, row in LISTING.items()}
_IS_VARIADIC = {layout: row.variadic for layout, row in LISTING.items()}

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
    count = len(nodes)
    layouts = [each._type.layout for each in nodes]
    buffers = [each._buffers for each in nodes]
    for i in [i for i, layout in enumerate(layouts) if _IS_VARIADIC[layout]]:
        sizes = np.array([len(data) for data in buffers[i][2:]], np.int64)
        buffers[i] = [*buffers[i], sizes]
    n_buffers = np.array([len(each) for each in buffers])
    starts = np.cumsum(n_buffers) - n_buffers
    addresses = np.array([_address(data) if data is not None and len(data) else 0 for each in buffers for data in each], np.uint64)

    tree = np.zeros(count, ARRAY)
    tree["length"] = [each._length for each in nodes]
    tree["offset"] = [each._offset for each in nodes]

    has_validity = np.array([_HAS_VALIDITY[layout] for layout in layouts])
    validity = starts[has_validity]
    addresses[starts[has_validity & np.array([each._null_count == 0 for each in nodes])]] = 0
    nulls = np.zeros(count, np.int64)
    nulls[has_validity] = np.where(addresses[validity], -1, 0)
    is_null = ...
