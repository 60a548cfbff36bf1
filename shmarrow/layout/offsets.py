# SPDX-License-Identifier: Apache-2.0
"""Offsets of binary and list layouts: n + 1 offsets delimit n ranges of bytes or child slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.errors import InvalidData
from shmarrow.layout.construct import check_reach
from shmarrow.layout.runs import CHUNK


def offsets_view(array: Any) -> NDArray:
    """Return the offsets of an array, of shape (length + 1,); zero if an empty array has no buffer."""
    dtype = array.type.offset_dtype
    data = array._buffers[1]
    if data is None or (not array._length and len(data) < (array._offset + 1) * dtype.itemsize):
        return np.zeros(array._length + 1, dtype)
    return np.ndarray(array._length + 1, dtype, data, array._offset * dtype.itemsize)


def check_ends(array: Any, size: int, unit: str) -> None:
    """Check that the first and last offset are in range."""
    _check_ends(array, offsets_view(array), size, unit)


def _check_ends(array: Any, offsets: NDArray, size: int, unit: str) -> None:
    first, last = offsets.item(0), offsets.item(-1)
    if not 0 <= first <= last <= size:
        raise InvalidData(f"{array.type}: the offsets range from {first} to {last} but there are {size} {unit}")


def checked_offsets(array: Any, size: int, unit: str) -> NDArray:
    """Return the offsets, checked to be monotonic and in range."""
    offsets = offsets_view(array)
    _check_ends(array, offsets, size, unit)
    for start in range(0, array._length, CHUNK):
        part = offsets[start : start + CHUNK + 1]
        back = part[1:] < part[:-1]
        if back.any():
            i = start + int(back.argmax())
            raise InvalidData(f"{array.type}: offset {i + 1} decreases from {int(offsets[i])} to {int(offsets[i + 1])}")
    return offsets


def same_lengths(left: NDArray, right: NDArray) -> bool:
    """Return whether two sequences of offsets give the same lengths."""
    if left[0] != right[0]:
        left, right = left - left[0], right - right[0]
    return bool(np.array_equal(left, right))


def trimmed_offsets(array: Any, size: int) -> tuple[NDArray, slice]:
    """Return offsets shifted to start at 0, and the slice of items they need; a view if they already start at 0."""
    check_ends(array, size, "items")
    offsets = offsets_view(array)
    first, last = int(offsets[0]), int(offsets[-1])
    return (offsets - offsets[0] if first else offsets), slice(first, last)


def joined_offsets(arrays: Sequence[Any], sizes: Sequence[int]) -> tuple[NDArray, list[slice]]:
    """Return the offsets of concatenated arrays, and the slice of the ``sizes`` items of each array they refer to."""
    type = arrays[0].type
    parts = [offsets_view(array) for array in arrays]
    for array, offsets, size in zip(arrays, parts, sizes, strict=True):
        _check_ends(array, offsets, size, "items")
    windows = [slice(int(offsets[0]), int(offsets[-1])) for offsets in parts]
    check_reach(sum([window.stop - window.start for window in windows]), type)
    result = np.zeros(sum(map(len, arrays)) + 1, type.offset_dtype)
    end = base = 0
    for offsets, window in zip(parts, windows, strict=True):
        np.add(offsets[1:], base - window.start, out=result[end + 1 : end + len(offsets)])
        end += len(offsets) - 1
        base += window.stop - window.start
    return result, windows
