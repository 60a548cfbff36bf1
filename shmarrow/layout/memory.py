"""Buffers, offsets, ranges and slices: helpers for several layouts, and checks of sizes and sequences."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from shmarrow.bitmap import pack
from shmarrow.buffer import Bytes, DType, Indices, Mask, NDArray
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
from shmarrow.layout.listing import LISTING
from shmarrow.types import DataType


def read_only(data: NDArray) -> Bytes:
    """Return new data as read-only bytes."""
    flat = data.reshape(-1).view(np.uint8) if data.dtype != np.uint8 or data.ndim != 1 else data
    flat.flags.writeable = False
    return flat


def frozen(data: NDArray) -> Bytes:
    """Return a read-only view of the bytes of borrowed data; the caller's array stays writable."""
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    flat = flat[:]
    flat.flags.writeable = False
    return flat


def kept(old: NDArray, new: NDArray) -> NDArray:
    """Return ``old`` if ``new`` has the same values, which takes no memory, else ``new`` in its dtype."""
    return old if np.array_equal(old, new) else new.astype(old.dtype)


def view_of(data: Any, dtype: DType, offset: int, length: int) -> NDArray:
    """Return ``length`` items of a buffer starting at item ``offset``; works for missing buffers too."""
    if not length or not dtype.itemsize or data is None:
        return np.empty(length, dtype)
    base = dtype.base
    return np.ndarray((length, *dtype.shape), base, data, offset * dtype.itemsize)


def validity_of(valid: Mask | None) -> tuple[Any, int]:
    """Return a validity bitmap and its null count from a mask of the valid slots."""
    if valid is None:
        return None, 0
    return read_only(pack(valid)), len(valid) - int(np.count_nonzero(valid))


def ranges(starts: Indices, lengths: Indices) -> Indices:
    """Return the concatenated ranges ``starts[i], starts[i] + 1, ...`` of ``lengths[i]`` each."""
    total = int(lengths.sum())
    if not total:
        return np.empty(0, np.int64)
    ends = np.cumsum(lengths)
    positions = np.arange(total, dtype=np.int64)
    positions += np.repeat(starts - (ends - lengths), lengths)
    return positions


def total_of(lengths: Indices) -> int:
    """Return the sum of non-negative lengths, without overflow."""
    if not len(lengths):
        return 0
    if int(lengths.max()) > LONGEST // len(lengths):
        return sum(lengths.tolist())
    return int(lengths.sum())


LONGEST = (1 << 63) - 1
"""Maximum length of an array."""


def offsets_of(lengths: Indices, type: Any) -> NDArray:
    """Return offsets of shape (n + 1,) from n lengths, in the dtype of the type.

    Raises
    ------
    InvalidData
        If the last offset does not fit their dtype.
    """
    check_reach(total_of(lengths), type)
    result = np.zeros(len(lengths) + 1, type.offset_dtype)
    np.cumsum(lengths, dtype=result.dtype, out=result[1:])
    return result


def check_reach(total: int, type: Any) -> None:
    """Raise if the offsets of a type cannot reach ``total``.

    Raises
    ------
    InvalidData
        If the total exceeds the dtype of the offsets.
    """
    dtype = type.offset_dtype
    if total > np.iinfo(dtype).max:
        text = hasattr(type, "text")
        name = type if text else type.layout
        large = f"; cast to large_{name} first" if f"large_{type.layout}" in LISTING else ""
        raise InvalidData(
            f"{name}: the result would have {total} {'bytes' if text else 'elements'}; "
            f"{dtype.name} offsets reach {np.iinfo(dtype).max}{large}"
        )


def check_expansion(count: int, what: str) -> None:
    """Raise if slots that occupy no memory would expand to more than :data:`EXPANDED_VALUES` values.

    Raises
    ------
    LimitExceeded
        If there are more.
    """
    if count > EXPANDED_VALUES:
        raise LimitExceeded(
            f"{what}: slots that occupy no memory would expand to {count} values; "
            f"at most {EXPANDED_VALUES:,} can be expanded at once, so work on slices"
        )


def no_index(indices: Indices, length: int, what: str, item: str) -> IndexOutOfRange:
    """Return the error for out-of-range indices, which names the first."""
    wrong = int(indices[(indices < 0) | (indices >= length)][0])
    return IndexOutOfRange(f"index {wrong} is out of range: the {what} has {counted(length, item)}")


def slice_bounds(offset: int, length: int | None, total: int) -> tuple[int, int]:
    """Return the offset and length of a slice, clipped to ``total`` items.

    Raises
    ------
    IndexOutOfRange
        If ``offset`` is negative.
    InvalidArgument
        If ``length`` is negative.
    InvalidType
        If ``offset`` or ``length`` is not an int.
    """
    try:
        offset, length = index(offset), None if length is None else index(length)
    except TypeError:
        raise InvalidType(
            f"expected a slice of ints, found offset {shown(offset)} and length {shown(length)}"
        ) from None
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
    """Return start, stop and step of a slice of ``length`` items, as ``slice.indices``.

    Raises
    ------
    InvalidType
        If a bound is neither an int nor None.
    InvalidArgument
        If the step is 0.
    """
    try:
        return key.indices(length)
    except TypeError as error:
        raise InvalidType(f"expected a slice of ints: {error}") from None
    except ValueError as error:
        raise InvalidArgument(f"expected a non-zero slice step: {error}") from None


# --- arguments ---------------------------------------------------------------------------------------------------


def refuse_type(value: Any, what: str) -> None:
    """Raise if a type was passed where values are expected."""
    if isinstance(value, DataType):
        raise InvalidType(f"expected {what}, found the type {value}; pass the type last, as type=")


def checked_size(size: Any, what: str) -> int:
    """Return a number of slots, at least 0.

    Raises
    ------
    InvalidType
        If ``size`` is not an int.
    InvalidArgument
        If ``size`` is negative.
    LimitExceeded
        If ``size`` is more than 2**63 - 1.
    """
    refuse_type(size, what)
    try:
        count = index(size)
    except TypeError:
        raise InvalidType(f"expected {what} as an int, found {shown(size)}") from None
    if count < 0:
        raise InvalidArgument(f"expected {what}, at least 0, found {shown(count)}")
    if count >> 63:
        raise LimitExceeded(f"expected {what}, at most 2**63 - 1, found {shown(count)}")
    return count


def items_of(values: Any, what: str) -> list[Any]:
    """Return a sequence of arguments as a list; InvalidType for anything else."""
    refuse_type(values, what)
    try:
        return list(values)
    except TypeError:
        raise InvalidType(f"expected {what} as a sequence, found {values.__class__.__name__}") from None
