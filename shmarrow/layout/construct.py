# SPDX-License-Identifier: Apache-2.0
"""Buffers, offsets, ranges and slices: helpers for several layouts, and checks of sizes and sequences.

Creation of arrays from their parts: array classes, nulls, booleans, concatenation.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from operator import index
from typing import Any, TypeVar

import numpy as np

from shmarrow import bitmap
from shmarrow.bitmap import pack
from shmarrow.buffer import Bytes, DType, Indices, Mask, NDArray
from shmarrow.errors import (
    EXPANDED_VALUES,
    IndexOutOfRange,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    clip,
    counted,
    shown,
)
from shmarrow.layout.listing import LISTING, bytes_needed
from shmarrow.types import DataType, bool_, storage_of


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


def reuse_if_equal(old: NDArray, new: NDArray) -> NDArray:
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


def index_error(indices: Indices, length: int, what: str, item: str) -> IndexOutOfRange:
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


A = TypeVar("A")


class _ArrayClasses(dict[str, Any]):
    """The array class of each layout, imported on first use."""

    def __missing__(self, layout: str) -> Any:
        module, _, name = LISTING[layout].home.partition(".")
        cls = getattr(import_module(f"shmarrow.layout.{module}"), name)
        self.update(dict.fromkeys(cls.layouts, cls))
        return cls


CLASSES = _ArrayClasses()


def make_array(
    type: Any,
    length: int,
    buffers: list[Bytes | None],
    null_count: int = -1,
    offset: int = 0,
    children: Sequence[Any] = (),
    dictionary: Any = None,
) -> Any:
    """Create an array of the class for the type's layout; copies and checks nothing."""
    cls = type.array_class or CLASSES[type.layout]
    return cls(type, length, buffers, null_count, offset, children, dictionary)


def array_class(type: DataType) -> Any:
    """Return the array class of a type."""
    return type.array_class or CLASSES[type.layout]


def check_slots(array: Any) -> None:
    """Raise if an array has too many slots to create a value for each and they take less than a bit each.

    Raises
    ------
    LimitExceeded
        If there are more than 2**24 slots, and fewer bits than slots.
    """
    if len(array) > EXPANDED_VALUES and is_sparse(array):
        check_expansion(len(array), clip(str(array.type), 200))


def check_bits(array: Any) -> None:
    """Raise if an array has too many slots to create a bit for each and they take less than a bit each.

    Raises
    ------
    LimitExceeded
        If there are more than 2**27 slots (16 MiB of bits), and fewer bits than slots.
    """
    if len(array) > 8 * EXPANDED_VALUES:
        check_slots(array)


def is_sparse(array: Any) -> bool:
    """Return whether an array has more slots than bits in all buffers, so that its length is not bounded by memory."""
    return len(array) > 8 * int(array.get_total_buffer_size())


def memory_error(array: Any, count: int) -> LimitExceeded:
    """Return the error for more slots than fit in memory."""
    return LimitExceeded(f"{clip(str(array.type), 200)}: no memory for {count} values; work on slices")


def blank_mask(child: Any) -> Mask:
    """Return a mask of False for each slot of an array, whose length must be bounded by its memory or small."""
    check_slots(child)
    return np.zeros(len(child), np.bool_)


def repeat_mask(live: Mask | None, counts: Any, child: Any) -> Mask | None:
    """Repeat each bool ``counts`` times, one per slot of ``child``; None for None."""
    if live is None:
        return None
    check_slots(child)
    return np.repeat(live, counts)


def booleans(values: Mask) -> Any:
    """Return bools as an array."""
    return boolean_bits(bitmap.pack(values), len(values))


def boolean_bits(bits: Bytes, length: int) -> Any:
    """Return a bitmap, starting at bit 0, as a boolean array."""
    return make_array(bool_(), length, [None, read_only(bits)], 0)


def one_null(type: DataType) -> Any:
    """Return an array of one null, for slots that become null without a null in the data.

    Raises
    ------
    LimitExceeded
        If it would take more than 2**24 bytes: the sizes in a type may come from untrusted data.
    """
    size = _slot_bytes(type)
    if size > EXPANDED_VALUES:
        raise LimitExceeded(
            f"a null of {clip(str(type), 200)} would take {size} bytes that are not in the data; "
            f"at most {EXPANDED_VALUES} can be created at once"
        )
    return array_class(type)._nulls(type, 1)


def _slot_bytes(type: Any) -> int:
    """Bytes per null, including children."""
    storage = storage_of(type)
    if storage.fields and not LISTING[storage.layout].has_lists:
        return int(getattr(storage, "list_size", 1)) * sum([_slot_bytes(field.type) for field in storage.fields])
    return int(storage.byte_width)


def zeros(type: DataType, length: int, slots: int = 0) -> Any:
    """Return an array of nulls with zeroed buffers, over children of ``slots`` nulls each."""
    rows = LISTING[type.layout].buffers
    buffers: list[Bytes | None] = [read_only(np.zeros(bytes_needed(row, type, length), np.uint8)) for row in rows]
    children = [array_class(field.type)._nulls(field.type, slots) for field in type.fields]
    return make_array(type, length, buffers, length, 0, children)


def join_arrays(arrays: Sequence[A]) -> A:
    """Return arrays, at least one, as one, a copy; a single one is not copied. InvalidType if their types differ."""
    first: Any = arrays[0]
    rest: Sequence[Any] = arrays[1:]
    for other in rest:
        if other.type != first.type:
            raise InvalidType(f"cannot concatenate {first.type} and {other.type}")
    if len(arrays) == 1:
        return first
    parts: Sequence[Any] = arrays if first._joins_slices else [array.trim() for array in (first, *rest)]
    result: Any = type(first)._join(parts)
    if LISTING[first.type.layout].has_validity and any(array.null_count for array in parts):
        runs = [(array._validity() if array.null_count else None, array._offset, len(array)) for array in parts]
        result = result._with_validity(bitmap.join(runs), sum(array.null_count for array in parts))
    return result
