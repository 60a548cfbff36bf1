# SPDX-License-Identifier: Apache-2.0
"""Fixed-size list layout ("Fixed-Size List Layout"): slot ``i`` is the child's slots ``[i * n, (i + 1) * n)``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.errors import CopyRequired, InvalidArgument, InvalidData, counted, renumbered
from shmarrow.layout.arguments import as_array, masked_validity
from shmarrow.layout.array import Array
from shmarrow.layout.construct import (
    check_expansion,
    check_slots,
    checked_size,
    join_arrays,
    make_array,
    refuse_type,
    repeat_mask,
    validity_of,
    zeros,
)
from shmarrow.layout.list_forms import BaseListArray, ListParts, of_one_length
from shmarrow.types import DataType, Field, list_


class FixedSizeListArray(BaseListArray):
    """Array of lists of equal length."""

    __slots__ = ()
    layouts = ("fixed_size_list",)

    def flatten(self) -> Array:
        """Return the values of all valid lists, concatenated."""
        return self.drop_null().flatten() if self.null_count else self._window()

    def _window(self) -> Any:
        size = self._type.list_size
        return self.values.slice(self._offset * size, self._length * size)

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        """Return an ndarray of shape (length, list_size, ...), zero-copy if the child's is.

        With nulls, or children without a numpy dtype, return an object array of Python lists if ``zero_copy_only`` is
        False.
        """
        if self.null_count:
            if zero_copy_only:
                raise CopyRequired(f"{self._type} with {counted(self.null_count, 'null')} has no zero-copy numpy form")
            return super()._to_numpy(False)
        inner: NDArray = self._window().to_numpy(zero_copy_only)
        return inner.reshape(self._length, self._type.list_size, *inner.shape[1:])

    def _masked_values(self) -> tuple[NDArray, Mask | None]:
        inner, missing = self._window()._storage._masked_values()
        shape = (self._length, self._type.list_size, *inner.shape[1:])
        mask = self._mask()
        if mask is None:
            return inner.reshape(shape), None if missing is None else missing.reshape(shape)
        whole = np.zeros(shape, bool) if missing is None else missing.reshape(shape)
        whole[~mask] = True
        return inner.reshape(shape), whole

    def _item_run(self, index: int) -> Any:
        size = self._type.list_size
        return self.values.slice((self._offset + index) * size, size)

    def _pylist(self, valid: Mask | None) -> list[Any]:
        size = self._type.list_size
        if not size:
            check_expansion(self._length, str(self._type))
        with renumbered(lambda row: (("row", row // size), ("item", row % size))):
            items = self._window().to_pylist()
        return [items[i * size : (i + 1) * size] for i in range(self._length)]

    def _gather(self, indices: Indices) -> Any:
        child = self.values._take_blocks(indices + self._offset, self._type.list_size)
        return make_array(self._type, len(indices), [None], 0, 0, [child])

    def trim(self) -> Self:
        validity = self._trimmed_validity()
        child = self._window().trim()
        return self._with(offset=0, buffers=[validity], null_count=self.null_count, children=[child])

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        child = join_arrays([array.values for array in arrays])
        return make_array(arrays[0].type, sum(map(len, arrays)), [None], 0, 0, [child])

    def _same(self, other: Any, live: Mask | None) -> bool:
        mine, theirs = self._window(), other._window()
        if live is None and mine._equal(theirs, None):
            return True
        valid = self._live(live)
        return valid is not None and bool(mine._equal(theirs, repeat_mask(valid, self._type.list_size, mine)))

    def _spans(self) -> tuple[Indices, Indices, Any]:
        """The start and length of each list, and the child; null slots have elements like others."""
        check_slots(self)
        size = self._type.list_size
        return np.arange(self._length) * size, np.full(self._length, size, np.int64), self._window()

    @classmethod
    def _of_spans(cls, array: Any, target: Any, starts: Indices, sizes: Indices, items: Any) -> ListParts:
        elements = of_one_length(array, target, starts, sizes, items)
        return [], np.arange(len(sizes)) * target.list_size, elements

    def _referenced_children(self) -> Sequence[Any]:
        return [self._window()]

    def _windowed(self) -> Any:
        return self._on_windows([self._window()], self._trimmed_validity())

    def _check_structure(self) -> None:
        needed = (self._offset + self._length) * self._type.list_size
        if len(self.values) < needed:
            raise InvalidData(f"{self._type}: the child must have {needed} values, found {len(self.values)}")

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        child = self._window()
        yield self._type.fields[0], child, repeat_mask(live, self._type.list_size, child)

    @classmethod
    def _nulls(cls, type: DataType, length: int) -> Any:
        return zeros(type, length, length * type.list_size)  # type: ignore[attr-defined]

    @classmethod
    def _from_items(cls, type: Any, lengths: Indices, items: Any, valid: Mask | None) -> Any:
        """Create lists from an array of all elements; null lists have either all of theirs or none."""
        size = type.list_size
        wrong = lengths != size if valid is None else (lengths != size) & valid
        if wrong.any():
            i = int(wrong.argmax())
            raise InvalidData(f"{type}: expected {size} items, found {int(lengths[i])}", where=[("row", i)])
        validity, count = validity_of(valid)
        child = _spread(items, size, lengths, valid)
        return make_array(type, len(lengths), [validity], count, 0, [child])

    @classmethod
    def from_arrays(
        cls, values: Any, list_size: int | None = None, type: DataType | str | None = None, mask: Any = None
    ) -> Self:
        """Create lists from a child array of ``n * list_size`` values; zero-copy for arrays.

        Parameters
        ----------
        values : Array, or anything that :func:`shmarrow.array` accepts
            Elements of all lists, including null lists.
        list_size : int, optional
            Length of each list.
        type : DataType or str, optional
            Type of the array, instead of ``list_size``.
        mask : bool array, optional
            Shape (n,), True where a list is null. Determines the length for lists of size 0.

        Raises
        ------
        InvalidData
            If the length or type of the child is wrong.
        InvalidType
            If the type is not a fixed-size list type.
        InvalidArgument
            If neither or both of ``list_size`` and ``type`` are given, or the length of the mask is wrong.
        """
        refuse_type(values, "values")
        if (list_size is None) == (type is None):
            raise InvalidArgument("FixedSizeListArray: expected either list_size or type")
        if type is None:
            child = as_array(values, "values")
            list_type: Any = list_(child.type, checked_size(list_size, "list_size"))
        else:
            list_type = cls._expect(type)
            child = as_array(values, "values", list_type.fields[0].type)
        size = list_type.list_size
        length = len(child) // size if size else 0 if mask is None else len(mask)
        if length * size != len(child):
            raise InvalidData(f"{list_type}: the child's length {len(child)} is not a multiple of the list size {size}")
        validity, count = masked_validity(mask, length)
        return cls._of_parts(list_type, length, [validity], count, 0, [child])


def _spread(child: Any, size: int, lengths: Indices, valid: Mask | None) -> Any:
    """Return the elements of lists of ``size`` each, with nulls for null lists."""
    if valid is None or len(child) == size * len(lengths):
        return child
    filled = np.repeat(valid, size)
    at = np.zeros(len(filled), np.int64)
    at[filled] = np.arange(np.count_nonzero(filled))
    return child._take(at, filled)
