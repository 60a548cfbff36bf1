# SPDX-License-Identifier: Apache-2.0
"""Base of all list layouts: lengths, equality codes, and casts between layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.errors import EXPANDED_VALUES, InvalidData, Part, ShmarrowError, clip, renumbered, row_of
from shmarrow.layout.array import Array
from shmarrow.layout.construct import (
    array_class,
    check_expansion,
    frozen,
    is_sparse,
    make_array,
    memory_error,
    ranges,
    total_of,
    validity_of,
)
from shmarrow.layout.preview import Budget
from shmarrow.types import DataType, int32, int64
from shmarrow.types.descriptors import TYPES

if TYPE_CHECKING:
    from shmarrow.layout.primitive import PrimitiveArray

ListParts: TypeAlias = tuple[Sequence[NDArray], Indices, Any]
"""Lists: the buffers after validity, the start of each list in the child, and the child."""


class BaseListArray(Array):
    """Base class of list arrays; each layout implements :meth:`_spans`."""

    __slots__ = ()

    def _spans(self) -> tuple[Indices, Indices, Any]:
        """The start and length of each list, and the child; null slots may have elements."""
        raise NotImplementedError

    @classmethod
    def _of_lists(cls, array: Any, target: Any) -> ListParts:
        """The parts of lists of any layout as a type of this class."""
        return cls._of_spans(array, target, *array._spans())

    @classmethod
    def _of_spans(cls, array: Any, target: Any, starts: Indices, sizes: Indices, items: Any) -> ListParts:
        """As :meth:`_of_lists`, of lists given by starts and sizes in ``items``."""
        raise NotImplementedError

    def _referenced_only(self) -> Any:
        starts, sizes, items = self._spans()
        mask = self._mask()
        if mask is not None:
            sizes = np.where(mask, sizes, 0)
        moved = np.cumsum(sizes) - sizes, sizes, packed(starts, sizes, items)
        parts, _, items = self._of_spans(self, self._type, *moved)
        return _over(self, self._type, parts, items._referenced_only())

    @property
    def values(self) -> Array:
        """Child array, regardless of slicing."""
        return self._children[0]

    def _item_run(self, index: int) -> Any:
        """The elements of the list in a slot, checked to be within the child."""
        raise NotImplementedError

    def _elements(self, items: Any) -> list[Any]:
        """Slots of the child as Python objects."""
        return items.to_pylist()

    def _value(self, index: int) -> Any:
        items = self._item_run(index)
        with renumbered(item_of, index):
            return self._elements(items)

    def _value_preview(self, index: int, budget: Budget) -> str:
        return str(self._item_run(index)._preview(budget))

    @classmethod
    def _type_over(cls, item: DataType) -> Any:
        """The type of this class for elements of a type."""
        return next(each for each in TYPES if each.layouts == cls.layouts).make({}, [item])

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        from shmarrow.layout.values import items_of_lists

        return cls._from_items(type, *items_of_lists(type, values), valid)

    @classmethod
    def _from_items(cls, type: Any, lengths: Indices, items: Any, valid: Mask | None) -> Any:
        """Create lists from their lengths and an array of all elements."""
        raise NotImplementedError

    def value_lengths(self) -> PrimitiveArray:
        """Return the length of each list, null for null lists, in the offset type; a copy."""
        dtype = getattr(self._type, "offset_dtype", np.dtype("<i4"))
        sizes, valid = self._spans()[1], self._mask()
        validity, nulls = validity_of(valid)
        lengths = sizes if valid is None else np.where(valid, sizes, 0)
        type = int64() if dtype.itemsize == 8 else int32()
        return make_array(type, self._length, [validity, frozen(lengths.astype(dtype))], nulls)

    def value_parent_indices(self) -> PrimitiveArray:
        """Return the slot of the list of each element of ``flatten()``, as an int64 array; a copy.

        Raises
        ------
        LimitExceeded
            If more than 2**24 elements occupy no memory, or memory runs out.
        """
        _, sizes, items = self._spans()
        valid = self._mask()
        sizes = sizes if valid is None else np.where(valid, sizes, 0)
        _check_places(total_of(sizes), items, self)
        try:
            slots = np.repeat(np.arange(self._length), sizes)
        except MemoryError:
            raise memory_error(self, total_of(sizes)) from None
        return make_array(int64(), len(slots), [None, frozen(slots)], 0)

    def _copied_bytes(self, counts: NDArray) -> float:
        _, sizes, items = self._spans()
        positions = 8 * float(counts @ sizes)
        if len(items) > EXPANDED_VALUES and is_sparse(items):
            return positions
        return positions + float(items._storage._copied_bytes(np.repeat(counts, sizes)))

    def _codes(self) -> Indices:
        from shmarrow.layout import codes

        starts, sizes, items = self._spans()
        return codes.of_lists(items, starts, sizes, self._mask())

    def _cast(self, target: Any, safe: bool) -> Any:
        return cast_lists(self, target, safe)


def _check_places(count: int, items: Any, array: Any) -> None:
    """Raise if one index per element is too much, as elements may occupy no memory."""
    if count > EXPANDED_VALUES and count > 8 * items.get_total_buffer_size():
        check_expansion(count, clip(str(array.type), 200))


def cast_lists(array: Any, target: Any, safe: bool, convert: Callable[[Any], Any] | None = None) -> Any:
    """Cast lists between layouts; ``convert`` casts the elements if not by field names."""
    if not issubclass(array_class(target), BaseListArray):
        return None
    field = target.fields[0]
    cls: Any = array_class(target)
    parts, starts, items = cls._of_lists(array, target)
    try:
        with renumbered(in_list, starts):
            values = items._cast_to(field.type, safe) if convert is None else convert(items)
    except ShmarrowError as error:
        if row_of(error) is None:
            error.where = (("child", field.name), *error.where)
        raise
    return _over(array, target, parts, values)


def _over(array: Any, type: Any, parts: Sequence[NDArray], items: Any) -> Any:
    """Lists with the validity of an array, from the buffers after it and the child."""
    buffers = [array._trimmed_validity(), *map(frozen, parts)]
    return make_array(type, len(array), buffers, array.null_count, 0, [items])


def in_list(row: int, starts: Indices) -> tuple[Part, ...]:
    """The row of the list that has an element, and the element's position in it, for :class:`renumbered`."""
    slot = int(np.searchsorted(starts, row, "right")) - 1
    return ("row", slot), ("item", row - int(starts[slot]))


def item_of(row: int, index: int) -> tuple[Part, ...]:
    """The place of an element of the list in row ``index``, for :class:`renumbered`."""
    return ("row", index), ("item", row)


def packed(starts: Indices, sizes: Indices, items: Any) -> Any:
    """Return the concatenated elements of the lists; a slice if they are contiguous."""
    ends = np.cumsum(sizes)
    moved = starts != ends - sizes
    if moved.any() and (moved & (sizes > 0)).any():
        return items._take_runs(starts, sizes)
    return items.slice(0, int(ends[-1]) if len(ends) else 0)


def of_one_length(array: Any, target: Any, starts: Indices, sizes: Indices, items: Any) -> Any:
    """Return the concatenated elements of lists of one length, including null lists."""
    size, mask = target.list_size, array._mask()
    other = sizes != size
    if not other.any():
        return packed(starts, sizes, items)
    wrong = other if mask is None else other & mask
    if wrong.any():
        i = int(wrong.argmax())
        raise InvalidData(f"{target}: expected {size} items, found {int(sizes[i])}", where=[("row", i)])
    _check_places(len(sizes) * size, items, array)
    slots = np.repeat(mask, size)
    positions = np.zeros(len(slots), np.int64)
    positions[slots] = ranges(starts[mask], sizes[mask])
    return items._take(positions, slots)
