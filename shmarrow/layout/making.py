"""Creation of arrays from their parts: array classes, nulls, booleans, concatenation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import Bytes, Mask
from shmarrow.errors import EXPANDED_VALUES, InvalidType, LimitExceeded, ShmarrowError
from shmarrow.layout.listing import LISTING, bytes_needed
from shmarrow.layout.memory import check_expansion, checked_size, read_only
from shmarrow.layout.preview import clip
from shmarrow.types import DataType, as_type, bool_, null, storage_of

if TYPE_CHECKING:
    from shmarrow.layout.array import Array

AnyArray = TypeVar("AnyArray", bound="Array")


build_array: Callable[..., Any]
"""Makes an array of values: :func:`shmarrow.array`, which stands above this package, so ``shmarrow`` sets it."""


class _Classes(dict[str, "type[Array]"]):
    """The array class of each layout, imported on first use."""

    def __missing__(self, layout: str) -> type[Array]:
        module, _, name = LISTING[layout].home.partition(".")
        found: type[Array] = getattr(import_module(f"shmarrow.layout.{module}"), name)
        self.update(dict.fromkeys(found.layouts, found))
        return found


CLASSES = _Classes()


def make_array(
    type: Any,
    length: int,
    buffers: list[Bytes | None],
    null_count: int = -1,
    offset: int = 0,
    children: Sequence[Array] = (),
    dictionary: Array | None = None,
) -> Any:
    """Create an array of the class for the type's layout; copies and checks nothing."""
    made = type.array_class or CLASSES[type.layout]
    return made(type, length, buffers, null_count, offset, children, dictionary)


def array_class(type: DataType) -> type[Array]:
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


def no_memory(array: Any, count: int) -> LimitExceeded:
    """Return the error for more slots than fit in memory."""
    return LimitExceeded(f"{clip(str(array.type), 200)}: no memory for {count} values; work on slices")


def blank_mask(child: Any) -> Mask:
    """Return a mask of False for each slot of an array, whose length must be bounded by its memory or small."""
    check_slots(child)
    return np.zeros(len(child), np.bool_)


def spread(live: Mask | None, counts: Any, child: Any) -> Mask | None:
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


def nulls(size: int, type: DataType | str | None = None) -> Array:
    """An array of ``size`` nulls.

    Parameters
    ----------
    size : int
        Number of slots.
    type : DataType or str, optional
        The type; ``null`` by default.

    Raises
    ------
    InvalidType
        If ``size`` is not an int or ``type`` not a type, or for a union without children, which cannot have nulls.
    InvalidArgument
        If ``size`` is negative.
    LimitExceeded
        If memory runs out.
    """
    size = checked_size(size, "the number of nulls")
    made = null() if type is None else as_type(type)
    try:
        return array_class(made)._nulls(made, size)
    except (MemoryError, ValueError, OverflowError) as error:
        if isinstance(error, ShmarrowError):
            raise
        raise LimitExceeded(f"no memory for {size} nulls of {clip(str(made), 200)}") from None


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
    return nulls(1, type)


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
    children = [nulls(slots, field.type) for field in type.fields]
    return make_array(type, length, buffers, length, 0, children)


def join_arrays(arrays: Sequence[AnyArray]) -> AnyArray:
    """Return arrays, at least one, as one, a copy; a single one is not copied. InvalidType if their types differ."""
    first = arrays[0]
    for other in arrays[1:]:
        if other.type != first.type:
            raise InvalidType(f"cannot concatenate {first.type} and {other.type}")
    if len(arrays) == 1:
        return first
    parts = arrays if first._joins_slices else [array.trim() for array in arrays]
    result: AnyArray = type(first)._join(parts)
    if LISTING[first.type.layout].has_validity and any(array.null_count for array in parts):
        runs = [(array._validity() if array.null_count else None, array._offset, len(array)) for array in parts]
        result = result._with_validity(bitmap.join(runs), sum(array.null_count for array in parts))
    return result
