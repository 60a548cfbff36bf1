# SPDX-License-Identifier: Apache-2.0
"""The hooks that each layout implements for the operations common to all arrays, with their contracts.

A new layout is a class derived from :class:`~shmarrow.layout.array.Array` that overrides them:

===================================================================  ==================================================
each layout                                                          ``layouts``, ``_pylist``, ``_value``, ``_gather``,
                                                                     ``trim``, ``_join``, ``_same``, ``_codes``,
                                                                     ``from_pylist``
those whose structure or values can break rules                      ``_check_structure``, ``_check_references``,
                                                                     ``_check_values``, ``_safe_values``
those with children or a dictionary                                  ``_referenced``, ``_referenced_children``,
                                                                     ``_windowed``
those whose nulls are not, or not only, those of a validity bitmap   ``_logical_nulls``, ``_nulls``, ``_count_nulls``
those that have a cast                                               ``_cast``, ``_cast_from``, ``_referenced_only``
those whose values numpy can hold                                    ``_to_numpy``, ``_masked_values``, ``_nans``
those that can do better than the default                            ``_item``, ``_run_starts``, ``_value_preview``,
                                                                     ``_item_preview``, ``_check_slots``, ``_filled``,
                                                                     ``_gather_valid``, ``_take_runs``,
                                                                     ``_take_blocks``, ``_copied_bytes``, ``_view``
===================================================================  ==================================================

Hooks may rely on what :meth:`Array.validate` checks without ``full``, but never on values: another process may write
to the memory at any time. Invalid values must raise one of our errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import Bytes, Indices, Mask, NDArray
from shmarrow.errors import EXPANDED_VALUES, CopyRequired, InvalidData, clip
from shmarrow.layout import validation
from shmarrow.layout.construct import check_expansion, check_slots, is_sparse, memory_error, ranges, total_of, zeros
from shmarrow.layout.preview import Budget
from shmarrow.layout.validation import has_required
from shmarrow.types import DataType, Field


class LayoutHooks:
    """The hooks, with the defaults of those that most layouts need not implement."""

    __slots__ = ()

    if TYPE_CHECKING:  # the parts of an array that defaults use
        _type: Any
        _length: int
        _buffers: list[Bytes | None]
        _null_count: int
        _offset: int
        _children: Sequence[Any]
        to_pylist: Any

        def _validity(self) -> Bytes | None: ...
        def _mask(self) -> Mask | None: ...
        def _take(self, indices: NDArray, valid: Mask | None = None) -> Any: ...
        def _with(self, **changes: Any) -> Self: ...

    # --- the layout, and its nulls ---

    layouts: ClassVar[tuple[str, ...]] = ()
    """The rows of :data:`~shmarrow.layout.listing.LISTING` that the class implements."""

    def _count_nulls(self) -> int:
        """Count the null slots."""
        validity = self._validity()
        return 0 if validity is None else self._length - bitmap.count(validity, self._offset, self._length)

    def _valid(self) -> Mask:
        """A bool ndarray of shape (length,), True for slots that are not null in the array itself; a copy.

        Raises
        ------
        LimitExceeded
            If slots that occupy no memory would make more than 2**24 values.
        """
        mask = self._mask()
        if mask is None:
            check_slots(self)
            return np.ones(self._length, np.bool_)
        return mask

    def _logical_nulls(self) -> Mask | None:
        """True for null slots, including those null through a child, run or dictionary; None if there are none."""
        mask = self._mask()
        return None if mask is None else ~mask

    @classmethod
    def _nulls(cls, type: DataType, length: int) -> Any:
        """An array of nulls; by default with zeroed buffers and empty children."""
        return zeros(type, length)

    # --- values ---

    def _pylist(self, valid: Mask | None) -> list[Any]:
        """The values as Python objects, one per slot.

        ``valid`` is False for null slots, or None if there are none. The caller replaces null slots by None, so any
        object may be returned for them; but offsets and views of null slots must not be followed, as they may be
        invalid.
        """
        raise NotImplementedError

    def _item(self, index: int) -> Any:
        """The value of an in-range slot as a Python object, None for null."""
        validity = self._validity() if self._null_count else None
        if validity is not None and not bitmap.get(validity, self._offset + index):
            return None
        return self._value(index)

    def _value(self, index: int) -> Any:
        """As :meth:`_item`, for a slot that is not null."""
        raise NotImplementedError

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        """Create an array of ``type`` from Python values; ``valid`` is False for None, or None if no value is None."""
        raise NotImplementedError

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        """The values as an ndarray: a read-only view or a new array."""
        if zero_copy_only:
            raise CopyRequired(f"{self._type} has no zero-copy numpy form; call to_numpy(zero_copy_only=False)")
        values = self.to_pylist()  # refuses what takes no memory here but would there
        result = np.empty(self._length, object)
        result[:] = values
        return result

    def _masked_values(self) -> tuple[NDArray, Mask | None]:
        """The values of all slots, unspecified for nulls, and a mask of the nulls; None if there are none."""
        raise CopyRequired(
            f"numpy has no dtype for {self._type}; call to_numpy(zero_copy_only=False) for Python values"
        )

    def _nans(self) -> Mask | None:
        """True for floating-point NaN; None for types without."""
        return None

    # --- gather, trim and concatenate ---

    def _gather(self, indices: Indices) -> Any:
        """The slots at in-range int64 ``indices``, without validity and with offset 0."""
        raise NotImplementedError

    def _gather_valid(self, indices: Indices, valid: Mask) -> Any:
        """As :meth:`_gather`, where slots with ``valid`` False may have any value, such as an empty one."""
        return self._gather(indices)

    def _take_runs(self, starts: Indices, lengths: Indices) -> Any:
        """The concatenated slots of runs within the array.

        Raises
        ------
        LimitExceeded
            If slots that occupy no memory need more than 2**24 indices, or memory runs out.
        """
        total = total_of(lengths)
        if total > EXPANDED_VALUES and is_sparse(self):
            used = lengths > 0
            starts, lengths = starts[used], lengths[used]
            if not np.array_equal(starts[1:], starts[:-1] + lengths[:-1]):
                check_expansion(total, clip(str(self._type), 200))
            return self._with(offset=self._offset + int(starts[0]), length=total, null_count=-1)
        try:
            return self._take(ranges(starts, lengths))
        except MemoryError:
            raise memory_error(self, total) from None

    def _take_blocks(self, indices: Indices, size: int) -> Any:
        """The concatenated slots of blocks of ``size`` slots each, given by number; raises as :meth:`_take_runs`."""
        return self._take_runs(indices * size, np.full(len(indices), size, np.int64))

    def trim(self) -> Self:
        """Return an equal array with offset 0 and minimal buffers.

        Copies only what must be moved.
        """
        raise NotImplementedError

    def _filled(self, missing: Mask, value: Any) -> Any:
        """The slots with those of ``missing`` replaced by an array of one value; None if the default is as good."""
        return None

    def _copied_bytes(self, counts: NDArray) -> float:
        """A lower bound of the bytes that are written when each slot is copied ``counts`` times."""
        return 0.0

    _joins_slices: ClassVar[bool] = False
    """Whether :meth:`_join` accepts untrimmed arrays."""

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        """Concatenate two or more trimmed arrays of one type, without validity."""
        raise NotImplementedError

    # --- equality of values ---

    def _same(self, other: Any, live: Mask | None) -> bool:
        """Whether two arrays of one type and length, with the same nulls, have equal values.

        Only slots that are not null, and where ``live`` is True (None means all), are compared. As other slots are
        mostly equal too, compare all slots first, and apply the mask only to differences. NaN is not equal to
        anything, 0.0 equals -0.0.
        """
        raise NotImplementedError

    def _codes(self) -> Indices:
        """For each slot the first slot with the same bits, -1 for null; see :mod:`~shmarrow.layout.codes`."""
        raise NotImplementedError

    def _run_starts(self) -> Indices:
        """The slots that differ bitwise from the previous slot, including slot 0."""
        from shmarrow.layout import codes

        return np.flatnonzero(np.diff(codes.slot_codes(self), prepend=-2))

    # --- validation ---

    def _takes(self, field: Field, child_type: DataType) -> bool:
        """Whether this type is allowed for the child of a field."""
        return field.type == child_type

    def _check_structure(self) -> None:
        """Raise InvalidData if the structure, other than buffer sizes, is invalid; takes constant time."""

    def _check_null_count(self) -> None:
        """Raise InvalidData if the null count is wrong."""
        count = self._count_nulls()
        if self._null_count >= 0 and count != self._null_count:
            raise InvalidData(
                f"{self._type}: the null count is {self._null_count}, but the validity bitmap has {count} nulls"
            )

    def _check_slots(self) -> None:
        """Check references and values; overridden by layouts that do both in one pass."""
        self._check_references()
        self._check_values()

    def _check_references(self) -> None:
        """Raise InvalidData if an offset, view, index, type id or run end is out of range."""

    def _check_values(self) -> None:
        """Raise InvalidData if a value breaks any other rule of the layout or type, such as UTF-8."""

    def _safe_values(self) -> Any:
        """The array itself if foreign code can safely follow its buffers, including null slots; see ``make_safe``.

        A copy with cleared null slots if only those are unsafe; otherwise raises InvalidData.
        """
        self._check_references()
        return self

    def _windowed(self) -> Any:
        """An equal array whose children have no unused slots; see ``make_safe``.

        For layouts whose slices share whole children; others return the array itself. Only a validity bitmap that does
        not start at a byte boundary is copied.
        """
        return self

    def _on_windows(self, windows: Sequence[Any], buffer: Bytes | None) -> Any:
        """For :meth:`_windowed`: the array over sliced children, with its first buffer starting at slot 0."""
        if not self._offset and list(map(len, windows)) == list(map(len, self._children)):
            return self
        return self._with(offset=0, buffers=[buffer], children=windows)

    def _check_nullability(self, live: Mask | None) -> None:
        """Raise InvalidData if a non-nullable field has a null in a slot that this array references.

        ``live`` is False for unreferenced slots of this array, None if all are referenced. The array has passed all
        other checks.
        """
        if has_required(self._type):
            validation.check_nullability(self, live)

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        """Each child with its field, and which of its slots the ``live`` slots reference.

        A mask of None means all; the field of a dictionary is None.
        """
        yield from ()

    def _referenced_children(self) -> Sequence[Any]:
        """The children, sliced from the first to the last referenced slot."""
        return ()

    # --- casts ---

    def _cast(self, target: Any, safe: bool) -> Any:
        """The array as another type; None if there is no cast between the types."""
        return None

    def _referenced_only(self) -> Any:
        """An equal array without the values that no slot refers to, which need not fit the target of a cast."""
        return self

    @classmethod
    def _cast_from(cls, array: Any, target: Any, safe: bool) -> Any:
        """Cast an array of any type to a type of this class; overridden if it does more than the source's ``_cast``."""
        result = array._cast(target, safe)
        if result is None:
            from shmarrow.casts import storage

            raise storage.no_cast(array.type, target)
        return result

    def _view(self, target: Any) -> Any:
        """The same bytes as another type; None if that is impossible."""
        return None

    # --- preview ---

    def _item_preview(self, index: int, budget: Budget) -> str:
        """A slot as text for ``str()``, within a budget; raises only what :meth:`_value` does."""
        validity = self._validity() if self._null_count else None  # a preview must not compute the null count
        if validity is not None and not bitmap.get(validity, self._offset + index):
            return "null"
        return self._value_preview(index, budget)

    def _value_preview(self, index: int, budget: Budget) -> str:
        """As :meth:`_item_preview`, for a slot that is not null."""
        value = self._value(index)
        return (
            "null" if value is None else clip(str(value) if not isinstance(value, (str, bytes)) else repr(value), 100)
        )
