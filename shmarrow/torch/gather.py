# SPDX-License-Identifier: Apache-2.0
"""Gathering rows of many chunks at once: one step for each buffer, instead of several for each chunk.

The buffers of all chunks are read as parts of one array, which spans the addresses from the first to the last of them.
Only bytes of the buffers are read: each index is that of a slot of its chunk, and offsets are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import U1, DType, Indices, NDArray
from shmarrow.layout.construct import make_array, read_only
from shmarrow.types import ExtensionType, storage_of

_FEW = 256
"""Bytes of a row up to which its places are computed, instead of copying it as a slice."""


class Numbers:
    """The rows of a column of numbers, or of lists of as many numbers, in many chunks.

    Parameters
    ----------
    dtype : dtype
        The numbers.
    shape : tuple of int
        The shape of a row, such as the sizes of the lists around the numbers.
    chunk : callable
        Returns the chunk of a number, an array without rows beyond it. Each is asked for once.
    count : int
        The number of chunks.

    Notes
    -----
    Thread safety: may be shared; two threads may note the same chunk.
    """

    def __init__(self, dtype: DType, shape: tuple[int, ...], chunk: Callable[[int], Any], count: int) -> None:
        self._dtype = dtype
        self._shape = shape
        self._width = dtype.itemsize * math.prod(shape)
        self._chunk = chunk
        self._chunks: dict[int, Any] = {}  # keeps their memory
        self._starts = np.full(count, -1)  # address of the first row
        self._nulls = np.zeros(count, bool)
        self._view = self._starts, np.empty(0, U1), 1

    def _note(self, number: int) -> None:
        array = self._chunks[number] = self._chunk(number)
        start, nulls = array._offset, array.null_count > 0
        while array._children:
            start, array = start * array._storage.type.list_size, array._children[0]
            start, nulls = start + array._offset, nulls or array.null_count > 0
        self._nulls[number] = nulls
        address = array._buffers[1].__array_interface__["data"][0]
        self._starts[number] = address + start * self._dtype.itemsize  # at last: another thread may look at it

    def _spanned(self) -> tuple[Indices, NDArray, int]:
        """Where the first row of each chunk is in an array over the memory of all, that array, and its items a row."""
        starts = self._starts.copy()
        known = starts >= 0
        low = int(starts[known].min())
        unit = math.gcd(self._width, int(np.gcd.reduce(starts[known] - low)))
        ends = [starts[number] + len(chunk) * self._width for number, chunk in list(self._chunks.items())]
        span = np.asarray(_Memory(low, (int(max(ends)) - low) // unit, np.dtype(f"V{unit}")))
        return np.where(known, (starts - low) // unit, -1), span, self._width // unit

    def take(self, numbers: Indices, rows: Indices) -> NDArray | None:
        """Return some rows of some chunks, shape (rows, *shape); None if one of these has nulls."""
        first, span, items = self._view
        begin = first[numbers]
        if len(rows) and int(begin.min()) < 0:
            for number in np.unique(numbers[begin < 0]).tolist():
                self._note(number)
            self._view = first, span, items = self._spanned()
            begin = first[numbers]
        if self._nulls[numbers].any():
            return None
        index = begin + rows * items
        if items > 1 and self._width > _FEW:
            address = span.__array_interface__["data"][0] + index * span.itemsize
            values = _slices(address, address + self._width)
        else:
            if items > 1:
                index = (index[:, None] + np.arange(items)).reshape(-1)
            values = span.take(index)
        found: NDArray = values.view(self._dtype).reshape(len(rows), *self._shape)
        return found


def numbers_of(type: Any) -> tuple[DType, tuple[int, ...]] | None:
    """The dtype and the shape of a row for :class:`Numbers`; None for a type of something else."""
    sizes: list[int] = []
    shape = getattr(type, "shape", None)
    if shape is not None and getattr(type, "permutation", None) is None:  # tensors of one shape
        type = type.storage_type
    while type.layout == "fixed_size_list" and not isinstance(type, ExtensionType):
        sizes.append(type.list_size)
        type = type.value_type
    dtype = None if isinstance(type, ExtensionType) or type.layout != "primitive" else type.numpy_dtype
    if dtype is None or dtype.kind not in "iuf" or not math.prod(sizes):
        return None
    return dtype, tuple(sizes if shape is None else shape)


class Gather:
    """The slots of a column of text, bytes, booleans or values with nulls in many chunks.

    Parameters
    ----------
    type : DataType
        The type of the chunks, for which :func:`is_gathered` is true.
    chunk : callable
        Returns the chunk of a number, an array without rows beyond it. Each is asked for once.
    count : int
        The number of chunks.

    Notes
    -----
    Not thread-safe while chunks are new, except that two threads may note the same one.
    """

    def __init__(self, type: Any, chunk: Callable[[int], Any], count: int) -> None:
        self._type = type
        self._storage = storage_of(type)
        self._chunk = chunk
        self._chunks: dict[int, Any] = {}  # keeps their memory
        self._offsets = np.full(count, -1)
        self._nulls = np.zeros(count, bool)
        self._addresses = np.zeros((3, count), np.int64)
        self._sizes = np.zeros(count, np.int64)

    def _note(self, number: int) -> None:
        """Note where the buffers of a chunk are."""
        chunk = self._chunks[number] = self._chunk(number)
        for i, data in enumerate(chunk._buffers):
            self._addresses[i, number] = 0 if data is None else data.__array_interface__["data"][0]
        self._sizes[number] = 0 if chunk._buffers[-1] is None else len(chunk._buffers[-1])
        self._nulls[number] = chunk.null_count > 0
        self._offsets[number] = chunk._offset  # at last: another thread may look at it

    def take(self, numbers: Indices, rows: Indices) -> Any:
        """Return the slots of some rows of some chunks as one array; None where offsets are invalid."""
        new = numbers[self._offsets[numbers] < 0]
        for number in np.unique(new).tolist() if len(new) else ():
            self._note(number)
        at = self._offsets[numbers] + rows
        buffers: list[NDArray | None] = [None]
        null_count = 0
        if self._nulls[numbers].any():
            valid = ~self._nulls[numbers]
            valid[~valid] = self._bits(0, numbers[~valid], at[~valid])
            null_count = len(valid) - int(np.count_nonzero(valid))
            buffers = [bitmap.pack(valid) if null_count else None]
        layout = self._storage.layout
        if layout == "bool":
            buffers.append(bitmap.pack(self._bits(1, numbers, at)))
        elif layout == "primitive":
            buffers.append(_read(self._addresses[1, numbers], at, self._storage.byte_width))
        else:
            texts = self._texts(numbers, at)
            if texts is None:
                return None
            buffers += texts
        frozen = [None if data is None else read_only(data) for data in buffers]
        return make_array(self._type, len(rows), frozen, null_count, 0)

    def _bits(self, buffer: int, numbers: Indices, at: Indices) -> NDArray:
        return (_read(self._addresses[buffer, numbers], at >> 3, 1) >> (at & 7).astype(U1) & 1).astype(bool)

    def _texts(self, numbers: Indices, at: Indices) -> list[NDArray] | None:
        """The offsets and data of slots of variable size; None if they are not within their chunks."""
        dtype: DType = np.dtype(self._storage.offset_dtype)
        starts, ends = (_read(self._addresses[1, numbers], at + i, dtype.itemsize).view(dtype) for i in range(2))
        if ((starts < 0) | (starts > ends) | (ends > self._sizes[numbers])).any():
            return None
        offsets = np.zeros(len(at) + 1, np.int64)
        np.cumsum(ends - starts, dtype=np.int64, out=offsets[1:])
        if offsets[-1] > np.iinfo(dtype).max:
            return None
        base = self._addresses[2, numbers]
        return [offsets.astype(dtype).view(U1), _slices(base + starts, base + ends)]


def is_gathered(type: Any) -> bool:
    """Whether columns of a type can be gathered by :class:`Gather`."""
    storage = storage_of(type)
    return storage.layout in ("bool", "binary", "large_binary") or bool(
        storage.layout == "primitive" and storage.byte_width
    )


class _Memory:
    """The memory from an address on, for :func:`numpy.asarray`."""

    def __init__(self, address: int, count: int, dtype: DType) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, True), "shape": (count,), "typestr": dtype.str}


def _read(addresses: Indices, at: Indices, width: int) -> NDArray:
    """The bytes of the items of a width that are the ``at``-th after an address each."""
    starts = addresses + at * width
    if not len(starts) or not width:
        return np.empty(0, U1)
    low = int(starts.min())
    steps = starts - low
    unit = math.gcd(width, int(np.gcd.reduce(steps)))
    dtype = np.dtype(f"V{unit}")
    if unit < width and width > _FEW:
        return _slices(starts, starts + width)
    index = steps // unit
    if unit < width:
        index = (index[:, None] + np.arange(width // unit)).reshape(-1)
    found: NDArray = np.asarray(_Memory(low, int(index.max()) + 1, dtype)).take(index)
    return found.view(U1)


def _slices(starts: Indices, ends: Indices) -> NDArray:
    """The concatenated bytes from one address to another each."""
    used = starts < ends  # numpy would allocate an array at the address 0, which a missing buffer has
    if not used.any():
        return np.empty(0, U1)
    starts, ends = starts[used], ends[used]
    low = int(starts.min())
    span = np.asarray(_Memory(low, int(ends.max()) - low, U1))
    pieces = zip((starts - low).tolist(), (ends - low).tolist(), strict=True)
    return np.concatenate([span[start:end] for start, end in pieces])
