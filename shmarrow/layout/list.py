# SPDX-License-Identifier: Apache-2.0
"""Variable-size list layout ("Variable-size List Layout") with 32-bit or 64-bit offsets; base of maps.

Slot ``i`` is the child's slots ``[offsets[i], offsets[i + 1])``. A map is physically a list of structs of a non-null
key and an item.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.errors import InvalidData, renumbered
from shmarrow.layout.arguments import as_array, masked_validity, offsets_and_nulls
from shmarrow.layout.array import Array
from shmarrow.layout.construct import (
    check_reach,
    frozen,
    join_arrays,
    make_array,
    offsets_of,
    refuse_type,
    repeat_mask,
    validity_of,
)
from shmarrow.layout.list_forms import BaseListArray, ListParts, in_list, packed
from shmarrow.layout.offsets import (
    check_ends,
    checked_offsets,
    joined_offsets,
    offsets_view,
    same_lengths,
    trimmed_offsets,
)
from shmarrow.layout.validation import check_required
from shmarrow.types import DataType, Field


class ListArray(BaseListArray):
    """Array of lists."""

    __slots__ = ()
    layouts: ClassVar[tuple[str, ...]] = ("list",)
    _joins_slices = True

    @property
    def offsets(self) -> NDArray:
        """Offsets, int32 or int64 of shape (length + 1,); a read-only view."""
        return offsets_view(self)

    def flatten(self) -> Array:
        """Return the values of all valid lists, concatenated."""
        if self.null_count:
            return self.drop_null().flatten()
        offsets = checked_offsets(self, len(self.values), "values")
        return self.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))

    def _item_run(self, index: int) -> Any:
        start, end = self.offsets[index : index + 2].tolist()
        if not 0 <= start <= end <= len(self.values):
            text = f"{self._type}: a list of the values [{start}, {end}) of {len(self.values)}"
            raise InvalidData(text, where=[("row", index)])
        return self.values.slice(start, end - start)

    def _pylist(self, valid: Mask | None) -> list[Any]:
        offsets = checked_offsets(self, len(self.values), "values")
        first, last = int(offsets[0]), int(offsets[-1])
        with renumbered(in_list, offsets[:-1] - first):
            items = self._elements(self.values.slice(first, last - first))
        bounds = (offsets - first).tolist()
        return [items[start:end] for start, end in itertools.pairwise(bounds)]

    def _gather(self, indices: Indices, valid: Mask | None = None) -> Any:
        offsets = checked_offsets(self, len(self.values), "values")
        starts = offsets[indices].astype(np.int64)
        lengths = offsets[indices + 1] - starts
        if valid is not None:
            lengths *= valid
        ends = offsets_of(lengths, self._type)
        child = self.values._take_runs(starts, lengths)
        return make_array(self._type, len(indices), [None, frozen(ends)], 0, 0, [child])

    _gather_valid = _gather

    def trim(self) -> Self:
        offsets, run = trimmed_offsets(self, len(self.values))
        child = self.values.slice(run.start, run.stop - run.start).trim()
        buffers = [self._trimmed_validity(), frozen(offsets)]
        return self._with(offset=0, buffers=buffers, null_count=self.null_count, children=[child])

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        offsets, windows = joined_offsets(arrays, [len(array.values) for array in arrays])
        parts = [array.values.slice(at.start, at.stop - at.start) for array, at in zip(arrays, windows, strict=True)]
        child = join_arrays(parts)
        return make_array(arrays[0].type, len(offsets) - 1, [None, frozen(offsets)], 0, 0, [child])

    def _same(self, other: Any, live: Mask | None) -> bool:
        mine = checked_offsets(self, len(self.values), "values")
        theirs = checked_offsets(other, len(other.values), "values")
        sides = ((self, mine), (other, theirs))
        valid = self._live(live)
        if same_lengths(mine, theirs):
            left, right = (each.values.slice(int(at[0]), int(at[-1] - at[0])) for each, at in sides)
            if live is None and left._equal(right, None):
                return True
            return valid is not None and bool(left._equal(right, repeat_mask(valid, np.diff(mine), left)))
        if valid is None:
            return False
        slots = np.flatnonzero(valid)
        sizes = mine[slots + 1].astype(np.int64) - mine[slots]
        if not np.array_equal(sizes, theirs[slots + 1] - theirs[slots]):
            return False
        left, right = (each.values._take_runs(at[slots].astype(np.int64), sizes) for each, at in sides)
        return bool(left._equal(right, None))

    def _spans(self) -> tuple[Indices, Indices, Any]:
        """The start and length of each list, and the child; null slots may have elements."""
        offsets = checked_offsets(self, len(self.values), "values").astype(np.int64)
        first = int(offsets[0])
        return offsets[:-1] - first, np.diff(offsets), self.values.slice(first, int(offsets[-1]) - first)

    @classmethod
    def _of_lists(cls, array: Any, target: Any) -> ListParts:
        if not isinstance(array, ListArray):
            return super()._of_lists(array, target)
        offsets, window = trimmed_offsets(array, len(array.values))
        if target.offset_dtype < offsets.dtype:
            checked_offsets(array, len(array.values), "values")
            check_reach(int(offsets[-1]), target)
        items = array.values.slice(window.start, window.stop - window.start)
        return [offsets.astype(target.offset_dtype, copy=False)], offsets[:-1], items

    @classmethod
    def _of_spans(cls, array: Any, target: Any, starts: Indices, sizes: Indices, items: Any) -> ListParts:
        offsets = offsets_of(sizes, target)
        return [offsets], offsets[:-1], packed(starts, sizes, items)

    def _referenced_children(self) -> Sequence[Any]:
        offsets = trimmed_offsets(self, len(self.values))[1]
        return [self.values.slice(offsets.start, offsets.stop - offsets.start)]

    def _check_structure(self) -> None:
        check_ends(self, len(self.values), "values")

    def _check_references(self) -> None:
        checked_offsets(self, len(self.values), "values")

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        offsets = self.offsets
        first, last = int(offsets[0]), int(offsets[-1])
        child = self.values.slice(first, last - first)
        yield self._type.fields[0], child, repeat_mask(live, np.diff(offsets), child)

    @classmethod
    def _from_items(cls, type: Any, lengths: Indices, items: Any, valid: Mask | None) -> Any:
        offsets = offsets_of(lengths, type)
        validity, nulls = validity_of(valid)
        return make_array(type, len(lengths), [validity, frozen(offsets)], nulls, 0, [items])

    @classmethod
    def from_arrays(cls, offsets: Any, values: Any, type: DataType | str | None = None, mask: Any = None) -> Self:
        """Create lists from offsets of shape (n + 1,) and a child array; copies only offsets of the wrong dtype.

        Parameters
        ----------
        offsets : integer Array, integer ndarray or sequence of int
            Start of each list, and end of the last one. A null offset makes its list null.
        values : Array, or anything that :func:`shmarrow.array` accepts
            Elements of all lists.
        type : DataType or str, optional
            Type of the array; by default, the list type of the values.
        mask : bool array, optional
            Shape (n,), True where a list is null.

        Raises
        ------
        InvalidData
            If the first or last offset is out of range, or the child has the wrong type.
        InvalidType
            If the offsets are not integers, or the type is not such a list type.
        InvalidArgument
            If the length of the mask is wrong, or offsets are null in addition to a mask.
        """
        refuse_type(offsets, "offsets")
        expected = None if type is None else cls._expect(type)
        child = as_array(values, "values", None if expected is None else expected.fields[0].type)
        result: Self = cls._from_child(offsets, child, expected or cls._type_over(child.type), mask)
        check_required(result)
        return result

    @classmethod
    def _from_child(cls, offsets: Any, child: Any, type: Any, mask: Any) -> Any:
        typed, valid = offsets_and_nulls(offsets, type.offset_dtype)
        if not len(typed):
            raise InvalidData(f"{type}: offsets must have the shape (n + 1,), found none")
        if valid is not None and not valid[-1]:
            raise InvalidData(f"{type}: the last offset, the end of the last list, must not be null")
        validity, nulls = masked_validity(mask, len(typed) - 1, None if valid is None else valid[:-1])
        result = make_array(type, len(typed) - 1, [validity, frozen(typed)], nulls, 0, [child])
        result.validate()
        return result


class LargeListArray(ListArray):
    """Array of lists with 64-bit offsets."""

    __slots__ = ()
    layouts = ("large_list",)
