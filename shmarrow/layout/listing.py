"""The buffer listing of the columnar format as a table ("Buffer Listing for Each Layout").

Each row lists the buffers of a layout in order. It drives the reader and writer of record batches, structural
validation, byte swapping, all-null arrays and the C data interface. The children of a layout are the ``fields`` of its
type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from shmarrow.types import DataType


class BufferSpec(NamedTuple):
    """One buffer of a layout.

    Attributes
    ----------
    role : str
        ``validity``, ``values``, ``offsets``, ``sizes``, ``type_ids``, ``views`` or ``data``.
    bits : int
        Bits per slot; 0 if determined by the type; -1 if the size does not depend on the number of slots.
    extra : int
        Slots in addition to the array's length: 1 for offsets.
    """

    role: str
    bits: int
    extra: int = 0


class Layout(NamedTuple):
    """One row of the listing.

    Attributes
    ----------
    buffers : tuple of BufferSpec
        Buffers in order.
    variadic : bool
        Whether any number of data buffers may follow.
    v4_validity : bool
        Whether a validity bitmap precedes them in metadata version 4, as in Arrow C++.
    home : str
        Module and class of the arrays, imported on first use.
    """

    buffers: tuple[BufferSpec, ...]
    variadic: bool = False
    v4_validity: bool = False
    home: str = ""

    @property
    def has_validity(self) -> bool:
        return bool(self.buffers) and self.buffers[0].role == "validity"

    @property
    def has_lists(self) -> bool:
        """Whether a slot refers to a variable number of elements by offsets, none if null."""
        return self.has_validity and any(spec.role == "offsets" for spec in self.buffers)


_VALIDITY = BufferSpec("validity", 1)
_DATA = BufferSpec("data", -1)

LISTING: dict[str, Layout] = {
    "null": Layout((), home="null.NullArray"),
    "bool": Layout((_VALIDITY, BufferSpec("values", 1)), home="boolean.BooleanArray"),
    "primitive": Layout((_VALIDITY, BufferSpec("values", 0)), home="primitive.PrimitiveArray"),
    "binary": Layout((_VALIDITY, BufferSpec("offsets", 32, 1), _DATA), home="binary.BinaryArray"),
    "large_binary": Layout((_VALIDITY, BufferSpec("offsets", 64, 1), _DATA), home="binary.BinaryArray"),
    "binary_view": Layout((_VALIDITY, BufferSpec("views", 128)), variadic=True, home="binary_view.BinaryViewArray"),
    "list": Layout((_VALIDITY, BufferSpec("offsets", 32, 1)), home="list.ListArray"),
    "large_list": Layout((_VALIDITY, BufferSpec("offsets", 64, 1)), home="list.LargeListArray"),
    "map": Layout((_VALIDITY, BufferSpec("offsets", 32, 1)), home="map.MapArray"),
    "list_view": Layout(
        (_VALIDITY, BufferSpec("offsets", 32), BufferSpec("sizes", 32)), home="list_view.ListViewArray"
    ),
    "large_list_view": Layout(
        (_VALIDITY, BufferSpec("offsets", 64), BufferSpec("sizes", 64)), home="list_view.LargeListViewArray"
    ),
    "fixed_size_list": Layout((_VALIDITY,), home="fixed_size_list.FixedSizeListArray"),
    "struct": Layout((_VALIDITY,), home="struct.StructArray"),
    "sparse_union": Layout((BufferSpec("type_ids", 8),), v4_validity=True, home="union.UnionArray"),
    "dense_union": Layout(
        (BufferSpec("type_ids", 8), BufferSpec("offsets", 32)), v4_validity=True, home="union.UnionArray"
    ),
    "dictionary": Layout((_VALIDITY, BufferSpec("values", 0)), home="dictionary.DictionaryArray"),
    "run_end_encoded": Layout((), v4_validity=True, home="run_end_encoded.RunEndEncodedArray"),
}

HOMES = {name: module for module, _, name in [layout.home.partition(".") for layout in LISTING.values()]}
"""Modules of the array classes, by class name."""

_Node = TypeVar("_Node")


def walk(nodes: Iterable[_Node], children: Callable[[_Node], Iterable[_Node]]) -> Iterator[_Node]:
    """Iterate over nodes and their descendants in the order of the format: depth-first, pre-order.

    This is the order of the nodes and buffers of a record batch, and of dictionary ids.

    Parameters
    ----------
    nodes : iterable
        Types, fields or arrays.
    children : callable
        Returns the direct children of a node.
    """
    for node in nodes:
        yield node
        yield from walk(children(node), children)


def walk_types(type: DataType) -> Iterator[DataType]:
    """Iterate over a type and its descendants, in the order of a record batch's nodes."""
    return walk([type], lambda node: [field.type for field in node.fields])


def bytes_needed(spec: BufferSpec, type: DataType, slots: int) -> int:
    """Return the minimum size of a buffer for this many slots, in bytes."""
    if spec.bits > 1:
        return (slots + spec.extra) * (spec.bits >> 3)
    if spec.bits == 1:
        return (slots + 7) >> 3
    return slots * type.byte_width if spec.bits == 0 else 0


def swapped(spec: BufferSpec, type: DataType, data: np.ndarray) -> np.ndarray:
    """Return a byte-swapped copy of a buffer ("Byte Order"); the buffer itself if its items are single bytes or bits.

    Bytes after the last whole slot are dropped. Swapping is its own inverse, except for views, whose length determines
    their form: see :func:`swapped_views`.
    """
    if spec.bits == 0:
        dtype = type.storage
        assert dtype is not None
        if dtype.subdtype is not None:  # wide decimals: several words per number
            size = dtype.itemsize
            return _read_only(np.ascontiguousarray(data[: len(data) // size * size].reshape(-1, size)[:, ::-1]))
    elif spec.bits in (32, 64):
        dtype = np.dtype(f"<i{spec.bits >> 3}")
    else:
        return data
    if dtype.itemsize <= 1 or (dtype.kind == "V" and dtype.names is None):
        return data
    whole = data[: len(data) // dtype.itemsize * dtype.itemsize]
    return _read_only(whole.view(dtype.newbyteorder(">")).astype(dtype))


def swapped_views(data: np.ndarray, to_big: bool) -> np.ndarray:
    """Return a copy of a views buffer with lengths, buffer indices and offsets byte-swapped."""
    words = data[: len(data) // 16 * 16].view("<u4").reshape(-1, 4).copy()
    swapped_lengths = words[:, 0].byteswap()
    long = (words[:, 0] if to_big else swapped_lengths) > 12
    words[:, 0] = swapped_lengths
    words[long, 2:] = words[long, 2:].byteswap()
    return _read_only(words)


def _read_only(data: np.ndarray) -> np.ndarray:
    flat = data.reshape(-1).view("u1")
    flat.flags.writeable = False
    return flat
