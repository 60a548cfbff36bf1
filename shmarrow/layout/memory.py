"""Pieces of memory that arrays are made of, and positions in them; what several layouts do with both."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shmarrow.bitmap import Mask, pack
from shmarrow.buffer import Bytes
from shmarrow.errors import (
    EXPANDED_VALUES,
    IndexOutOfRange,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    counted,
    shown,
)

if TYPE_CHECKING:
    import numpy.typing as npt

Indices: TypeAlias = "npt.NDArray[np.int64]"
EMPTY = np.empty(0, np.uint8)
EMPTY.flags.writeable = False


def read_only(data: npt.NDArray[Any]) -> Bytes:
    """Freshly made data as a read-only run of bytes."""
    flat = data.reshape(-1).view(np.uint8) if data.dtype != np.uint8 or data.ndim != 1 else data
    flat.flags.writeable = False
    return flat


def frozen(data: npt.NDArray[Any]) -> Bytes:
    """A read-only run of bytes over data that someone else may own; the caller's array stays writable."""
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    flat = flat[:]
    flat.flags.writeable = False
    return flat


def view_of(data: Any, dtype: np.dtype[Any], offset: int, length: int) -> npt.NDArray[Any]:
    """``length`` items of a buffer from item ``offset`` on, also where there are no bytes at all."""
    if not length or not dtype.itemsize or data is None:
        return np.empty(length, dtype)
    base = dtype.base
    return np.ndarray((length, *dtype.shape), base, data, offset * dtype.itemsize)


def validity_of(valid: Mask | None) -> tuple[Any, int]:
    """A validity bitmap and its number of nulls from the slots that are valid."""
    if valid is None:
        return None, 0
    return read_only(pack(valid)), len(valid) - int(np.count_nonzero(valid))


def ranges(starts: Indices, lengths: Indices) -> Indices:
    """The positions of runs, one run after another: ``starts[i], starts[i] + 1, ...`` for ``lengths[i]`` each."""
    total = int(lengths.sum())
    if not total:
        return np.empty(0, np.int64)
    ends = np.cumsum(lengths)
    positions = np.arange(total, dtype=np.int64)
    positions += np.repeat(starts - (ends - lengths), lengths)
    return positions


def total_of(lengths: Indices) -> int:
    """The sum of lengths, none of which is negative, also beyond 64 bits."""
    if not len(lengths):
        return 0
    if int(lengths.max()) > LONGEST // len(lengths):
        return sum(lengths.tolist())
    return int(lengths.sum())


LONGEST = (1 << 63) - 1
"""The most slots that an array has."""


def offsets_of(lengths: Indices, type: Any) -> npt.NDArray[Any]:
    """The offsets of a type with offsets, of shape (n + 1,), from n lengths.

    Raises
    ------
    InvalidData
        If the last offset does not fit their dtype.
    """
    check_reach(total_of(lengths), type)
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result.astype(type.offset_dtype, copy=False)


def check_reach(total: int, type: Any) -> None:
    """Refuse what the offsets of a type do not reach.

    Raises
    ------
    InvalidData
        If the total is more than their dtype holds.
    """
    dtype = type.offset_dtype
    if total > np.iinfo(dtype).max:
        text = type.layout in ("binary", "large_binary")
        name = type if text else type.layout
        large = "" if type.layout == "map" or dtype.itemsize == 8 else f"; cast to large_{name} first"
        raise InvalidData(
            f"{name}: the result would hold {total} {'bytes' if text else 'items'}; "
            f"{dtype.name} offsets reach {np.iinfo(dtype).max}{large}"
        )


def check_expansion(count: int, what: str) -> None:
    """Refuse to make more than :data:`EXPANDED_VALUES` values out of slots that occupy no memory.

    Raises
    ------
    LimitExceeded
        If there are more.
    """
    if count > EXPANDED_VALUES:
        raise LimitExceeded(
            f"{what}: {count} values would be made of slots that occupy no memory; "
            f"at most {EXPANDED_VALUES:,} can be expanded at once, so work on slices"
        )


def no_index(indices: Indices, length: int, what: str, item: str) -> IndexOutOfRange:
    """The error for indices of which one is negative or beyond the end; it names the first."""
    wrong = int(indices[(indices < 0) | (indices >= length)][0])
    return IndexOutOfRange(f"index {wrong} is out of range: the {what} has {counted(length, item)}")


def slice_bounds(offset: int, length: int | None, total: int) -> tuple[int, int]:
    """The offset and the length of a slice of ``total`` items, cut to what there is.

    Raises
    ------
    IndexOutOfRange
        If ``offset`` is negative.
    InvalidArgument
        If ``length`` is negative.
    InvalidType
        If one of them is no int.
    """
    try:
        offset, length = index(offset), None if length is None else index(length)
    except TypeError:
        raise InvalidType(f"a slice takes ints, found offset {shown(offset)} and length {shown(length)}") from None
    if offset < 0:
        raise IndexOutOfRange(f"the offset of a slice must be at least 0, found {shown(offset)}")
    offset = min(offset, total)
    rest = total - offset
    if length is None or length > rest:
        return offset, rest
    if length < 0:
        raise InvalidArgument(f"the length of a slice must be at least 0, found {shown(length)}")
    return offset, length


def range_of(key: slice, length: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice of ``length`` items, as Python counts them.

    Raises
    ------
    InvalidType
        If one of them is neither an int nor None.
    InvalidArgument
        If the step is 0.
    """
    try:
        return key.indices(length)
    except TypeError as error:
        raise InvalidType(f"expected a slice of ints: {error}") from None
    except ValueError as error:
        raise InvalidArgument(f"expected a slice with a step: {error}") from None
