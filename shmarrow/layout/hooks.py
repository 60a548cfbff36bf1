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
from shmarrow.errors import EXPANDED_VALUES, CopyRequired, InvalidData, InvalidType
from shmarrow.layout import validation
from shmarrow.layout.listing import LISTING
from shmarrow.layout.making import (
    array_class,
    check_bits,
    check_expansion,
    check_slots,
    is_sparse,
    join_arrays,
    make_array,
    no_index,
    no_memory,
    one_null,
    ranges,
    read_only,
    total_of,
    zeros,
)
from shmarrow.layout.preview import Budget, clip
from shmarrow.layout.validation import has_required
from shmarrow.types import DataType, Field, as_type

if TYPE_CHECKING:
    from shmarrow.layout.array import Array


class LayoutHooks:
    """The parts of an array, helpers for hooks, and the hooks."""

    __slots__ = ("_buffers", "_children", "_dictionary", "_length", "_null_count", "_offset", "_safe", "_type")

    def __init__(
        self,
        type: Any,
        length: int = -1,
        buffers: list[Bytes | None] | None = None,
        null_count: int = -1,
        offset: int = 0,
        children: Sequence[Array] = (),
        dictionary: Array | None = None,
    ) -> None:
        if buffers is None:
            raise InvalidType("Array() takes a type and buffers; use shmarrow.array() for values")
        self._type = type
        self._length = length
        self._buffers = buffers
        self._null_count = null_count
        self._offset = offset
        self._children = children
        self._dictionary = dictionary
        # None if unknown, the Origin under which it may be known, True if safe to export, TRUSTED, or the array to
        # export instead; see make_safe.
        self._safe: Any = None

    # --- helpers for hooks, the same for every layout ---

    def __len__(self) -> int:
        return self._length

    @property
    def null_count(self) -> int:
        """Number of null slots; computed on first use if unknown."""
        if self._null_count < 0:
            self._null_count = self._count_nulls()
        return self._null_count

    @property
    def _storage(self) -> Array:
        """The array itself; of an extension type, as an array of the storage type."""
        own: Any = self
        return own

    def _validity(self) -> Bytes | None:
        """The validity bitmap, starting at slot 0 of the buffers rather than of the array; None without one."""
        buffers = self._buffers
        return buffers[0] if buffers and LISTING[self._type.layout].has_validity else None

    def _mask(self) -> Mask | None:
        """True for valid slots according to the validity bitmap; None if no slot is null."""
        if self.null_count == 0:
            return None
        validity = self._validity()
        return None if validity is None else bitmap.unpack(validity, self._offset, self._length)

    def _live(self, live: Mask | None) -> Mask | None:
        """The slots of ``live`` that are not null; None if that is all."""
        mask = self._mask()
        return live if mask is None else mask if live is None else mask & live

    def _trimmed_validity(self) -> Bytes | None:
        """The validity bitmap shifted to slot 0, for :meth:`trim`; None if no slot is null."""
        validity = self._validity()
        if validity is None or self.null_count == 0:
            return None
        return read_only(bitmap.realign(validity, self._offset, self._length))

    def _with(self, **changes: Any) -> Self:
        """A copy of the array object with some parts replaced: ``type``, ``length``, ``buffers``, ``offset`` etc."""
        values: dict[str, Any] = {
            "type": self._type, "length": self._length, "buffers": self._buffers, "null_count": self._null_count,
            "offset": self._offset, "children": self._children, "dictionary": self._dictionary,
        }  # fmt: skip
        values.update(changes)
        return self._made(**values)

    def _valid_bits(self) -> Bytes:
        """A bitmap starting at bit 0, 0 for the slots in :meth:`_logical_nulls`."""
        check_bits(self)
        if self.__class__._logical_nulls is LayoutHooks._logical_nulls:  # only the bitmap counts
            bits = self._trimmed_validity()
        else:
            missing = self._logical_nulls()
            bits = None if missing is None else bitmap.pack(~missing)
        return bitmap.ones(self._length) if bits is None else bits

    def _masked(self, valid: Mask) -> Any:
        """The same slots with their validity replaced; the array starts at slot 0."""
        return self._with_validity(bitmap.pack(valid), len(valid) - int(np.count_nonzero(valid)))

    def _with_validity(self, bits: Bytes, null_count: int) -> Any:
        return self._with(buffers=[read_only(bits), *self._buffers[1:]], null_count=null_count)

    @classmethod
    def _made(cls, *arguments: Any, **keywords: Any) -> Self:
        """:func:`make_array`, typed for results known to be of this class or a subclass."""
        return make_array(*arguments, **keywords)

    @classmethod
    def _of_parts(cls, *arguments: Any) -> Self:
        """As :meth:`_made`, of a caller's parts: checks the structure, and that non-nullable fields have no nulls."""
        made = cls._made(*arguments)
        validation.check(made, False)
        validation.check_required(made)
        return made

    @classmethod
    def _expect(cls, type: Any) -> DataType:
        """Return a type of one of this class's layouts; InvalidType for others."""
        made = as_type(type)
        if made.layout not in cls.layouts:
            raise InvalidType(f"{cls.__name__}: expected a type of layout {' or '.join(cls.layouts)}, found {made}")
        return made

    # --- helpers for arrays of any layout ---

    def _take(self, indices: NDArray, valid: Mask | None = None) -> Any:
        """The slots at indices of shape (n,), null where ``valid`` is False."""
        indices = indices.astype(np.int64, copy=False)
        if valid is not None:
            if valid.all():
                valid = None
            elif not LISTING[self._type.layout].has_validity or not self._length:
                extended = join_arrays([self, one_null(self._type)])
                return extended._take(np.where(valid, indices, self._length))
            else:
                indices = np.where(valid, indices, 0)
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < self._length):
            raise no_index(indices, self._length, "array", "value")
        try:
            own = self._valid_at(indices)
            if own is not None:
                valid = own if valid is None else own & valid
                valid = None if valid.all() else valid
            return self._gather(indices) if valid is None else self._gather_valid(indices, valid)._masked(valid)
        except MemoryError:
            raise no_memory(self, len(indices)) from None

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
            raise no_memory(self, total) from None

    def _take_blocks(self, indices: Indices, size: int) -> Any:
        """The concatenated slots of blocks of ``size`` slots each, given by number; raises as :meth:`_take_runs`."""
        return self._take_runs(indices * size, np.full(len(indices), size, np.int64))

    def _valid_at(self, indices: Indices) -> Mask | None:
        """True for the valid ones of the slots at in-range ``indices``; None if all may be valid."""
        validity = self._validity() if self._null_count else None
        if validity is not None and 16 * len(indices) < self._length:  # avoid unpacking all bits
            return bitmap.bits_at(validity, indices + self._offset)
        mask = self._mask()
        return None if mask is None else mask[indices]

    def _equal(self, other: Any, live: Mask | None) -> bool:
        """Whether arrays of one type and length are equal in the slots where ``live`` is True; None means all."""
        mine = self._validity() if self.null_count else None
        theirs = other._validity() if other.null_count else None
        if mine is not None or theirs is not None:
            if live is not None:
                if ((self._valid() != other._valid()) & live).any():
                    return False
            elif mine is None or theirs is None or not self._same_validity(mine, theirs, other):
                return False
        return self._same(other, live)

    def _same_validity(self, mine: Bytes, theirs: Bytes, other: Any) -> bool:
        return self.null_count == other.null_count and bitmap.same(
            mine, self._offset, theirs, other._offset, self._length
        )

    def _cast_to(self, target: DataType, safe: bool) -> Any:
        """As :meth:`Array.cast`, for children; nullability is checked once for the whole array."""
        return self if self._type == target else array_class(target)._cast_from(self, target, safe)

    # --- hooks: the layout, and its nulls ---

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

    # --- hooks: values ---

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
        values = self.to_pylist()  # type: ignore[attr-defined]  # refuses what takes no memory here but would there
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

    # --- hooks: gather, trim and concatenate ---

    def _gather(self, indices: Indices) -> Any:
        """The slots at in-range int64 ``indices``, without validity and with offset 0."""
        raise NotImplementedError

    def _gather_valid(self, indices: Indices, valid: Mask) -> Any:
        """As :meth:`_gather`, where slots with ``valid`` False may have any value, such as an empty one."""
        return self._gather(indices)

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

    # --- hooks: equality of values ---

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

    # --- hooks: validation ---

    def _takes(self, field: Field, found: DataType) -> bool:
        """Whether this type is allowed for the child of a field."""
        return field.type == found

    def _check_structure(self) -> None:
        """Raise InvalidData if the structure, other than buffer sizes, is invalid; takes constant time."""

    def _check_null_count(self) -> None:
        """Raise InvalidData if the null count is wrong."""
        found = self._count_nulls()
        if self._null_count >= 0 and found != self._null_count:
            raise InvalidData(
                f"{self._type}: the null count is {self._null_count}, but the validity bitmap has {found} nulls"
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

    # --- hooks: casts ---

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

            raise storage.no_way(array.type, target)
        return result

    def _view(self, target: Any) -> Any:
        """The same bytes as another type; None if that is impossible."""
        return None

    # --- hooks: preview ---

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
