# SPDX-License-Identifier: Apache-2.0
"""List view layout ("ListView Layout"): an offset and a size per slot, in any order, possibly overlapping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.errors import InvalidArgument, InvalidData, Part, renumbered
from shmarrow.layout.arguments import as_array, exact_integers, masked_validity, offsets_and_nulls
from shmarrow.layout.array import Array
from shmarrow.layout.construct import (
    blank_mask,
    check_expansion,
    check_reach,
    frozen,
    join_arrays,
    make_array,
    offsets_of,
    refuse_type,
    reuse_if_equal,
    total_of,
    validity_of,
    view_of,
)
from shmarrow.layout.list_forms import BaseListArray, ListParts
from shmarrow.layout.runs import CHUNK, PIECE, check_repeats, has_fixed_width
from shmarrow.layout.validation import EXPORTED_SLOTS, too_many
from shmarrow.types import DataType, Field


class ListViewArray(BaseListArray):
    """Array of lists in the view layout: an offset and a size each."""

    __slots__ = ()
    layouts: ClassVar[tuple[str, ...]] = ("list_view",)

    @property
    def offsets(self) -> NDArray:
        """Offsets, int32 or int64 of shape (length,); a read-only view."""
        return view_of(self._buffers[1], self._type.offset_dtype, self._offset, self._length)

    @property
    def sizes(self) -> NDArray:
        """Sizes, int32 or int64 of shape (length,); a read-only view."""
        return view_of(self._buffers[2], self._type.offset_dtype, self._offset, self._length)

    def _runs(self, valid: Mask | None) -> tuple[Indices, Indices]:
        """The checked start and length of each list, 0 and 0 if null or empty."""
        starts, sizes = self.offsets.astype(np.int64), self.sizes.astype(np.int64)
        if valid is not None:
            sizes *= valid
        starts *= sizes != 0
        self._check_runs(starts, sizes)
        return starts, sizes

    def _check_runs(self, starts: NDArray, sizes: NDArray, first: int = 0) -> None:
        """Check that lists, starting at slot ``first``, are within the child."""
        total = len(self.values)
        ends = np.add(starts, sizes, dtype=np.int64)
        for numbers in (starts, sizes, ends):  # if starts and sizes are in range, their sums do not overflow
            if len(numbers) and not (int(numbers.min()) >= 0 and int(numbers.max()) <= total):
                wrong = (starts < 0) | (sizes < 0) | (starts > total) | (sizes > total) | (ends > total)
                self._fail(first + int(wrong.argmax()))

    def _fail(self, index: int) -> None:
        start, size = int(self.offsets[index]), int(self.sizes[index])
        text = f"{self._type}: a list of {size} values at {start}, of {len(self.values)}"
        raise InvalidData(text, where=[("row", index)])

    def flatten(self) -> Array:
        """Return the values of all valid lists, concatenated; a copy."""
        starts, sizes = self._runs(self._mask())
        self._check_total(sizes, starts)
        return self.values._take_runs(starts, sizes)

    def _check_total(self, sizes: Indices, starts: Indices | None = None) -> None:
        """Limit the total length of overlapping lists; with ``starts`` also in bytes, before elements are copied."""
        total, items = total_of(sizes), self.values
        if total > 4 * len(items):
            check_expansion(total, str(self._type))
            if starts is not None and not has_fixed_width(items):
                changes = np.bincount(starts, minlength=len(items) + 1)
                changes -= np.bincount(starts + sizes, minlength=len(items) + 1)
                check_repeats(items, np.cumsum(changes[:-1]), starts.nbytes)

    def _item_run(self, index: int) -> Any:
        start, size = int(self.offsets[index]), int(self.sizes[index])
        if start < 0 or size < 0 or start + size > len(self.values):
            self._fail(index)
        return self.values.slice(start, size)

    def _pylist(self, valid: Mask | None) -> list[Any]:
        starts, sizes = self._runs(valid)
        self._check_total(sizes)
        used, first, last = _reach(starts, sizes)
        with renumbered(self._element, starts - first, sizes):
            items = self.values.slice(first, last - first).to_pylist()
        starts = np.where(used, starts - first, 0)
        return [items[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]

    @staticmethod
    def _element(row: int, starts: Indices, sizes: Indices) -> tuple[Part, ...]:
        """The first list that has an element, and the element's position in it; its number if no list has it."""
        lists = np.flatnonzero((starts <= row) & (row < starts + sizes))
        if not len(lists):
            return ("child", "item"), ("row", row)
        return ("row", int(lists[0])), ("item", row - int(starts[lists[0]]))

    def _gather(self, indices: Indices) -> Any:
        buffers = [None, frozen(self.offsets[indices]), frozen(self.sizes[indices])]
        return make_array(self._type, len(indices), buffers, 0, 0, self._children)

    def _copied_bytes(self, counts: NDArray) -> float:
        return 0.0  # elements are not copied

    def trim(self) -> Self:
        starts, sizes = self._runs(self._mask())
        _, first, last = _reach(starts, sizes)
        starts = reuse_if_equal(self.offsets, np.clip(self.offsets.astype(np.int64) - first, 0, last - first))
        buffers = [self._trimmed_validity(), frozen(starts), frozen(reuse_if_equal(self.sizes, sizes))]
        child = self.values.slice(first, last - first).trim()
        return self._with(offset=0, buffers=buffers, null_count=self.null_count, children=[child])

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        type = arrays[0].type
        check_reach(sum(len(array.values) for array in arrays), type)
        shifts = np.cumsum([0, *[len(array.values) for array in arrays[:-1]]])
        starts = np.concatenate(
            [array.offsets + type.offset_dtype.type(n) for array, n in zip(arrays, shifts, strict=True)]
        )
        sizes = np.concatenate([array.sizes for array in arrays])
        child = join_arrays([array.values for array in arrays])
        return make_array(type, len(starts), [None, frozen(starts), frozen(sizes)], 0, 0, [child])

    def _same(self, other: Any, live: Mask | None) -> bool:
        if live is None and np.array_equal(self.sizes, other.sizes) and np.array_equal(self.offsets, other.offsets):
            # Whole children are compared only if most of their slots are referenced.
            most = len(self.values) == len(other.values) <= 4 * int(self.sizes.sum(dtype=np.int64)) + 1024
            if most and self.values._equal(other.values, None):
                return True
        valid = self._live(live)
        starts, sizes = self._runs(valid)
        their_starts, their_sizes = other._runs(valid)
        if not np.array_equal(sizes, their_sizes):
            return False
        self._check_total(sizes)
        used = sizes > 0
        left, right = self._pick(starts[used], sizes[used]), other._pick(their_starts[used], sizes[used])
        return bool(left._equal(right, None))

    def _pick(self, starts: Indices, sizes: Indices) -> Any:
        """The concatenated elements of non-empty lists; a slice if they are contiguous."""
        if not len(starts):
            return self.values.slice(0, 0)
        if np.array_equal(starts[1:], starts[:-1] + sizes[:-1]):
            return self.values.slice(int(starts[0]), int(sizes.sum()))
        return self.values._take_runs(starts, sizes)

    def _spans(self) -> tuple[Indices, Indices, Any]:
        """The start and length of each list, and the child; null slots have no elements."""
        starts, sizes = self._runs(self._mask())
        self._check_total(sizes, starts)
        used, first, last = _reach(starts, sizes)
        return np.where(used, starts - first, 0), sizes, self.values.slice(first, last - first)

    @classmethod
    def _of_spans(cls, array: Any, target: Any, starts: Indices, sizes: Indices, items: Any) -> ListParts:
        check_reach(len(items), target)
        return [part.astype(target.offset_dtype, copy=False) for part in (starts, sizes)], starts, items

    def _referenced_children(self) -> Sequence[Any]:
        return self._children

    def _check_references(self) -> None:
        for first in range(0, self._length, PIECE):
            piece = slice(first, first + PIECE)
            self._check_runs(self.offsets[piece], self.sizes[piece], first)

    def _safe_values(self) -> Any:
        self._check_references()
        blocks = range(0, self._length, CHUNK)
        total = sum([int(self.sizes[start : start + CHUNK].sum(dtype=np.float64)) for start in blocks])
        if total > max(4 * len(self.values), EXPORTED_SLOTS):
            raise too_many(self, f"overlapping lists of {total} elements in total")
        return self

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        starts, sizes = self._runs(live)
        blank_mask(self.values)
        changes = np.zeros(len(self.values) + 1, np.int64)
        np.add.at(changes, starts, sizes > 0)
        np.subtract.at(changes, starts + sizes, sizes > 0)
        yield self._type.fields[0], self.values, np.cumsum(changes[:-1]) > 0

    @classmethod
    def _from_items(cls, type: Any, lengths: Indices, items: Any, valid: Mask | None) -> Any:
        starts = offsets_of(lengths, type)[:-1]
        validity, nulls = validity_of(valid)
        buffers = [validity, frozen(starts), frozen(lengths.astype(type.offset_dtype))]
        return make_array(type, len(lengths), buffers, nulls, 0, [items])

    @classmethod
    def from_arrays(
        cls, offsets: Any, sizes: Any, values: Any, type: DataType | str | None = None, mask: Any = None
    ) -> Self:
        """Create lists from offsets and sizes of shape (n,) and a child array; copies only what has the wrong dtype.

        Parameters
        ----------
        offsets : integer Array, integer ndarray or sequence of int
            Start of each list. A null offset makes its list null.
        sizes : integer Array, integer ndarray or sequence of int
            Length of each list.
        values : Array, or anything that :func:`shmarrow.array` accepts
            Child array that the lists refer to.
        type : DataType or str, optional
            Type of the array; by default, the list-view type of the values.
        mask : bool array, optional
            Shape (n,), True where a list is null.

        Raises
        ------
        InvalidArgument
            If the number of offsets and sizes differs, the length of the mask is wrong, or offsets are null in addition
            to a mask.
        InvalidType
            If offsets or sizes are not integers, or the type is not such a list-view type.
        InvalidData
            If the child has the wrong type.
        """
        refuse_type(offsets, "offsets")
        expected = None if type is None else cls._expect(type)
        child = as_array(values, "values", None if expected is None else expected.fields[0].type)
        list_type: Any = expected or cls._type_over(child.type)
        starts, valid = offsets_and_nulls(offsets, list_type.offset_dtype)
        lengths = exact_integers(sizes, list_type.offset_dtype, "sizes")
        if len(starts) != len(lengths):
            raise InvalidArgument(f"{list_type}: {len(starts)} offsets but {len(lengths)} sizes")
        if valid is not None:
            starts, lengths = (np.where(valid, part, part.dtype.type(0)) for part in (starts, lengths))
        validity, count = masked_validity(mask, len(starts), valid)
        return cls._of_parts(list_type, len(starts), [validity, frozen(starts), frozen(lengths)], count, 0, [child])


def _reach(starts: Indices, sizes: Indices) -> tuple[Mask, int, int]:
    """Which lists have elements, and where the elements of all lists begin and end."""
    used = sizes > 0
    return (used, int(starts[used].min()), int((starts + sizes).max())) if used.any() else (used, 0, 0)


class LargeListViewArray(ListViewArray):
    """Array of lists in the view layout with 64-bit offsets and sizes."""

    __slots__ = ()
    layouts = ("large_list_view",)
