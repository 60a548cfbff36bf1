"""Base of all list layouts: lengths, equality codes, and casts between layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.errors import EXPANDED_VALUES, InvalidData, InvalidType, Place, moved, prefixed
from shmarrow.layout.array import Array
from shmarrow.layout.making import make_array, no_memory
from shmarrow.layout.memory import Indices, check_expansion, frozen, offsets_of, ranges, total_of, validity_of
from shmarrow.layout.offsets import checked_offsets, trimmed_offsets
from shmarrow.layout.preview import clip
from shmarrow.types import Field, int32, int64

if TYPE_CHECKING:
    from shmarrow.layout.primitive import PrimitiveArray

_BY_OFFSETS = ("list", "large_list", "map")
LISTS = ("list", "large_list", "list_view", "large_list_view", "fixed_size_list")
"""The list layouts, including maps."""


class Lists(Array):
    """Base class of list arrays; each layout implements :meth:`_spans`."""

    __slots__ = ()

    def _spans(self) -> tuple[Indices, Indices, Any]:
        """The start and length of each list, and the child; null slots may have elements."""
        raise NotImplementedError

    @property
    def values(self) -> Array:
        """Child array, regardless of slicing."""
        return self._children[0]

    def value_lengths(self) -> PrimitiveArray:
        """Return the length of each list, null for null lists, in the offset type; a copy."""
        dtype = getattr(self._type, "offset_dtype", np.dtype("<i4"))
        sizes, valid = self._spans()[1], self._mask()
        validity, nulls = validity_of(valid)
        kept = sizes if valid is None else np.where(valid, sizes, 0)
        type = int64() if dtype.itemsize == 8 else int32()
        result: PrimitiveArray = make_array(type, self._length, [validity, frozen(kept.astype(dtype))], nulls)
        return result

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
            raise no_memory(self, total_of(sizes)) from None
        result: PrimitiveArray = make_array(int64(), len(slots), [None, frozen(slots)], 0)
        return result

    def _codes(self) -> Indices:
        from shmarrow.layout.codes import of_lists

        starts, sizes, items = self._spans()
        return of_lists(items, starts, sizes, self._mask())

    def _cast(self, target: Any, safe: bool) -> Any:
        return cast_lists(self, target, safe)


def _check_places(count: int, items: Any, array: Any) -> None:
    """Raise if one index per element is too much, as elements may occupy no memory."""
    if count > EXPANDED_VALUES and count > 8 * items.get_total_buffer_size():
        check_expansion(count, clip(str(array.type), 200))


def cast_lists(array: Any, target: Any, safe: bool, convert: Callable[[Any], Any] | None = None) -> Any:
    """Cast lists between layouts; ``convert`` casts the elements if not by field names."""
    if target.layout not in (*LISTS, "map"):
        return None
    convert = convert or (lambda items: _cast_items(items, target.fields[0], safe))
    try:
        return _cast_all(array, target, convert)
    except InvalidData as error:
        refused = error
    if array.null_count:  # elements of null lists need not fit
        try:
            return _cast_spans(array, target, convert, *_of_valid_slots(array))
        except InvalidData as error:
            refused = error
    raise _located(array, convert, refused)


def _located(array: Any, convert: Callable[[Any], Any], error: InvalidData) -> InvalidData:
    """The error of an element, located by the slot of its list and the position in it."""
    if not error._parts:
        return error
    try:
        starts, _, items = _of_valid_slots(array)
        convert(items)
    except InvalidData as found:
        if found._parts:
            return moved(found, lambda place: _in_list(starts, place))
    return error  # an unreferenced element, or too many elements to locate it


def _in_list(starts: Indices, place: Place) -> Place:
    slot = int(np.searchsorted(starts, place[0], "right")) - 1
    return Place((slot, f"item {place[0] - int(starts[slot])}", *place[1:]))


def _cast_items(items: Any, field: Field, safe: bool) -> Any:
    try:
        return items._cast_to(field.type, safe)
    except (InvalidData, InvalidType) as error:
        raise prefixed("" if error._parts else f"items {field.name!r}: ", error) from None


def _cast_all(array: Any, target: Any, convert: Callable[[Any], Any]) -> Any:
    if array.type.layout not in _BY_OFFSETS or target.layout not in _BY_OFFSETS:
        return _cast_spans(array, target, convert, *array._spans())
    checked_offsets(array, len(array.values), "values")
    offsets, run = trimmed_offsets(array, len(array.values))
    _check_reach(target, run.stop - run.start)
    values = convert(array.values.slice(run.start, run.stop - run.start))
    return _made(array, target, [offsets.astype(target.offset_dtype, copy=False)], values)


def _cast_spans(
    array: Any, target: Any, convert: Callable[[Any], Any], starts: Indices, sizes: Indices, items: Any
) -> Any:
    """Lists given by starts and sizes in ``items``, as lists of another layout."""
    if target.layout == "fixed_size_list":
        return _made(array, target, [], convert(_of_one_length(array, target, starts, sizes, items)))
    if target.layout in _BY_OFFSETS:
        offsets = offsets_of(sizes, target)
        return _made(array, target, [offsets], convert(_packed(starts, sizes, items)))
    _check_reach(target, len(items))
    parts = [part.astype(target.offset_dtype, copy=False) for part in (starts, sizes)]
    return _made(array, target, parts, convert(items))


def _made(array: Any, target: Any, parts: list[Any], values: Any) -> Any:
    buffers = [array._trimmed_validity(), *[frozen(part) for part in parts]]
    return make_array(target, len(array), buffers, array.null_count, 0, [values])


def _check_reach(target: Any, size: int) -> None:
    if size > np.iinfo(target.offset_dtype).max:
        raise InvalidData(f"{target}: {size} elements exceed the reach of the offsets; use the large type")


def _packed(starts: Indices, sizes: Indices, items: Any) -> Any:
    """The concatenated elements of the lists; a slice if they are contiguous."""
    ends = np.cumsum(sizes)
    moved = starts != ends - sizes
    if moved.any() and (moved & (sizes > 0)).any():
        return items._take_runs(starts, sizes)
    return items.slice(0, int(ends[-1]) if len(ends) else 0)


def _of_valid_slots(array: Any) -> tuple[Indices, Indices, Any]:
    """The start and length of each list, and the elements without those of null lists."""
    starts, sizes, items = array._spans()
    mask = array._mask()
    if mask is not None:
        sizes = np.where(mask, sizes, 0)
    return np.cumsum(sizes) - sizes, sizes, _packed(starts, sizes, items)


def _of_one_length(array: Any, target: Any, starts: Indices, sizes: Indices, items: Any) -> Any:
    """The concatenated elements of lists of one length, including null lists."""
    size, mask = target.list_size, array._mask()
    other = sizes != size
    if not other.any():
        return _packed(starts, sizes, items)
    wrong = other if mask is None else other & mask
    if wrong.any():
        i = int(wrong.argmax())
        raise InvalidData(f"{target}: the list in slot {i} has {int(sizes[i])} elements, expected {size}")
    _check_places(len(sizes) * size, items, array)
    slots = np.repeat(mask, size)
    positions = np.zeros(len(slots), np.int64)
    positions[slots] = ranges(starts[mask], sizes[mask])
    return items._take(positions, slots)
