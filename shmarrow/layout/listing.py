# SPDX-License-Identifier: Apache-2.0
"""The buffer listing of the columnar format as a table ("Buffer Listing for Each Layout").

Each row lists the buffers of a layout in order. It drives the reader and writer of record batches, structural
validation, byte swapping, all-null arrays and the C data interface. The children of a layout are the ``fields`` of its
type.

It also gives the sizes of arrays in bytes: of the referenced slots, and of whole buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

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
    chapter : str
        Chapter of the specification.
    home : str
        Module and class of the arrays, imported on first use.
    variadic : bool
        Whether any number of data buffers may follow.
    v4_validity : bool
        Whether a validity bitmap precedes them in metadata version 4, as in Arrow C++.
    has_validity : bool
        Whether the first buffer is a validity bitmap.
    """

    buffers: tuple[BufferSpec, ...]
    chapter: str
    home: str
    variadic: bool = False
    v4_validity: bool = False
    has_validity: bool = True

    @property
    def has_lists(self) -> bool:
        """Whether a slot refers to a variable number of elements by offsets, none if null."""
        return self.has_validity and any(spec.role == "offsets" for spec in self.buffers)


_VALIDITY = BufferSpec("validity", 1)
DATA = BufferSpec("data", -1)

LISTING: dict[str, Layout] = {
    "null": Layout((), "Null Layout", "null.NullArray", has_validity=False),
    "bool": Layout((_VALIDITY, BufferSpec("values", 1)), "Fixed-size Primitive Layout", "boolean.BooleanArray"),
    "primitive": Layout(
        (_VALIDITY, BufferSpec("values", 0)), "Fixed-size Primitive Layout", "primitive.PrimitiveArray"
    ),
    "binary": Layout(
        (_VALIDITY, BufferSpec("offsets", 32, 1), DATA), "Variable-size Binary Layout", "binary.BinaryArray"
    ),
    "large_binary": Layout(
        (_VALIDITY, BufferSpec("offsets", 64, 1), DATA), "Variable-size Binary Layout", "binary.BinaryArray"
    ),
    "binary_view": Layout(
        (_VALIDITY, BufferSpec("views", 128)), "Variable-size Binary View Layout", "binary_view.BinaryViewArray",
        variadic=True,
    ),
    "list": Layout((_VALIDITY, BufferSpec("offsets", 32, 1)), "List Layout", "list.ListArray"),
    "large_list": Layout((_VALIDITY, BufferSpec("offsets", 64, 1)), "List Layout", "list.LargeListArray"),
    "map": Layout((_VALIDITY, BufferSpec("offsets", 32, 1)), "List Layout", "map.MapArray"),
    "list_view": Layout(
        (_VALIDITY, BufferSpec("offsets", 32), BufferSpec("sizes", 32)), "ListView Layout", "list_view.ListViewArray"
    ),
    "large_list_view": Layout(
        (_VALIDITY, BufferSpec("offsets", 64), BufferSpec("sizes", 64)),
        "ListView Layout", "list_view.LargeListViewArray",
    ),
    "fixed_size_list": Layout((_VALIDITY,), "Fixed-Size List Layout", "fixed_size_list.FixedSizeListArray"),
    "struct": Layout((_VALIDITY,), "Struct Layout", "struct.StructArray"),
    "sparse_union": Layout(
        (BufferSpec("type_ids", 8),), "Sparse Union", "union.UnionArray", v4_validity=True, has_validity=False
    ),
    "dense_union": Layout(
        (BufferSpec("type_ids", 8), BufferSpec("offsets", 32)), "Dense Union", "union.UnionArray",
        v4_validity=True, has_validity=False,
    ),
    "dictionary": Layout(
        (_VALIDITY, BufferSpec("values", 0)), "Dictionary-encoded Layout", "dictionary.DictionaryArray"
    ),
    "run_end_encoded": Layout(
        (), "Run-End Encoded Layout", "run_end_encoded.RunEndEncodedArray", v4_validity=True, has_validity=False
    ),
}  # fmt: skip

LISTS = ("list", "large_list", "list_view", "large_list_view", "fixed_size_list")
"""The list layouts, without that of maps."""

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
        if below := children(node):
            yield from walk(below, children)


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


def referenced_bytes(array: Any) -> int:
    """Return the bytes of an array's slots, including its children and its whole dictionary."""
    array = array._storage
    buffers, rows = array._buffers, LISTING[array.type.layout].buffers
    total = sum([_part(array, spec, data) for spec, data in zip(rows, buffers, strict=False) if data is not None])
    total += sum([len(data) for data in buffers[len(rows) :] if data is not None])
    total += sum([referenced_bytes(child) for child in array._referenced_children()])
    return total + (0 if array._dictionary is None else referenced_bytes(array._dictionary))


def _part(array: Any, spec: BufferSpec, data: Any) -> int:
    """The bytes of one buffer that the slots occupy; offsets count one per slot."""
    length, offset = len(array), int(array.offset)
    if spec.bits == 1:
        return ((offset + length + 7) >> 3) - (offset >> 3)
    if spec.bits == -1:
        offsets = array.offsets
        return max(min(int(offsets[-1]), len(data)) - max(int(offsets[0]), 0), 0)
    return length * (spec.bits >> 3 or int(array.type.byte_width))


def buffer_bytes(*arrays: Any) -> int:
    """Return the bytes of all buffers of arrays, their children and dictionaries; shared buffers count once."""
    sizes: dict[int, int] = {}
    for array in arrays:
        for data in _all_buffers(array):
            start = data.__array_interface__["data"][0]
            sizes[start] = max(sizes.get(start, 0), len(data))
    return sum(sizes.values())


def _all_buffers(array: Any) -> Iterator[Any]:
    yield from [data for data in array._buffers if data is not None]
    for child in array._children:
        yield from _all_buffers(child)
    if array._dictionary is not None:
        yield from _all_buffers(array._dictionary)
