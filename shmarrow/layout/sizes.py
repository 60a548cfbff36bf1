"""Sizes of arrays in bytes: of the referenced slots, and of whole buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shmarrow.layout.listing import LISTING, BufferSpec


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
