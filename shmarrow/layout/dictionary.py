# SPDX-License-Identifier: Apache-2.0
"""Dictionary-encoded layout ("Dictionary-encoded Layout"): integer indices into an array of values.

The indices are a primitive array, whose validity is the array's. The dictionary may itself contain nulls and
duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, Part, renumbered, shown
from shmarrow.layout.arguments import as_array, checked_mask
from shmarrow.layout.array import Array, nulls
from shmarrow.layout.construct import blank_mask, frozen, join_arrays, make_array, read_only, validity_of, zeros
from shmarrow.layout.preview import Budget
from shmarrow.layout.runs import CHUNK, check_repeats, has_fixed_width, same_at
from shmarrow.types import DataType, DictionaryType, ExtensionType

if TYPE_CHECKING:
    from shmarrow.layout.primitive import PrimitiveArray
    from shmarrow.types import Field


class DictionaryArray(Array):
    """Dictionary-encoded array: indices into an array of values."""

    __slots__ = ()
    layouts = ("dictionary",)

    @property
    def dictionary(self) -> Array:
        """Dictionary: the array of values."""
        return self._dictionary_()

    @property
    def indices(self) -> PrimitiveArray:
        """Indices as an array of the index type; zero-copy."""
        return make_array(self._type.index_type, self._length, self._buffers, self._null_count, self._offset)

    def decode(self) -> Array:
        """Decode to an array of the value type; a copy.

        Raises
        ------
        InvalidData
            If an index points outside of the dictionary.
        """
        return self._repeated(self._dictionary_())

    dictionary_decode = decode
    """Alias of :meth:`decode`, as in pyarrow."""

    def _codes(self) -> Indices:
        from shmarrow.layout import codes

        short = self._shortened()
        return codes.first_slots(short._through(codes.slot_codes(short.dictionary)))

    def _through(self, codes: Indices) -> Indices:
        """Map codes of the dictionary's values to the slots; -1 for null."""
        mask = self._mask()
        if not len(codes) and mask is not None and not mask.any():
            return np.full(self._length, -1, np.int64)
        values: Indices = codes[self._checked(mask)]
        return values if mask is None else np.where(mask, values, -1)

    def _shortened(self) -> Self:
        """The array itself, or compacted if the dictionary is much longer."""
        return self._compact() if len(self._dictionary_()) > 2 * self._length else self

    def _compact(self) -> Self:
        """The same slots with a dictionary of only the referenced values, in the original order."""
        mask = self._mask()
        slots: Any = slice(None) if mask is None else mask
        data = np.zeros(self._length, self._type.storage)
        dictionary, data[slots] = _used(self._dictionary_(), self._checked(mask)[slots])
        buffers = [self._trimmed_validity(), frozen(data)]
        return self._with(offset=0, buffers=buffers, null_count=self.null_count, dictionary=dictionary)

    def _cast(self, target: Any, safe: bool) -> Any:
        """Cast the dictionary, then gather its values: each is converted once."""
        short = self._shortened()
        with renumbered(lambda number: _first_use(number, short._through(np.arange(len(short.dictionary))))):
            values = short.dictionary._cast_to(target, safe)
        return short._repeated(values)

    def _referenced_only(self) -> Any:
        compact = self._compact()
        return compact._with(dictionary=compact.dictionary._referenced_only())

    def _repeated(self, values: Any) -> Any:
        """Gather converted dictionary values, one per slot."""
        mask = self._mask()
        indices = self._checked(mask)
        if not has_fixed_width(values):
            used = indices if mask is None else indices[mask]
            check_repeats(values, np.bincount(used.astype(np.intp, copy=False), minlength=len(values)), indices.nbytes)
        return values._take(indices, mask)

    @classmethod
    def _cast_from(cls, array: Any, target: Any, safe: bool) -> Any:
        """Cast from another dictionary type, or from values to be encoded."""
        if isinstance(array.type, ExtensionType) and array.type != target.value_type:
            return array.storage._cast_to(target, safe)
        if array.type.__class__ is DictionaryType:
            from shmarrow.layout.codes import codes_of

            try:
                indices = array.indices._cast_to(target.index_type, safe)
                values = array.dictionary._cast_to(target.value_type, safe)
                return make_array(target, len(array), indices._buffers, indices._null_count, indices.offset, (), values)
            except InvalidData:  # perhaps of an unreferenced or duplicate value
                compact = array._compact()
                values = compact.dictionary._cast_to(target.value_type, safe)
                codes, first = codes_of(values)
                _check_reach(target, len(first))
                return _over(target, compact._through(codes), values._take(first))
        return DictionaryArray._encode(
            array._cast_to(target.value_type, safe), "mask", target.index_type, target.ordered
        )

    def dictionary_encode(self, null_encoding: str = "mask", index_type: DataType | str | None = None) -> Self:
        """Return the array itself, or with the given index type."""
        if index_type is None:
            return self
        return self._cast_to(DictionaryType(index_type, self._type.value_type, self._type.ordered), True)

    def _dictionary_(self) -> Array:
        if self._dictionary is None:
            raise InvalidData(
                f"{self._type}: the dictionary is missing",
                hint="DictionaryArray.from_arrays(indices, dictionary) makes an array of both",
            )
        return self._dictionary

    def _checked(self, valid: Mask | None) -> NDArray:
        """A copy of the indices, 0 where null, checked to be within the dictionary.

        The checked copy is used, so that concurrent writes by another process do no harm.
        """
        values: NDArray = self.indices.values
        indices = values.copy() if valid is None else np.where(valid, values, values.dtype.type(0))
        self._check_indices(indices, valid)
        return indices

    def _check_indices(self, indices: NDArray, valid: Mask | None) -> None:
        size = len(self._dictionary_())
        if len(indices) and (valid is None or valid.any()):
            low, high = int(indices.min()), int(indices.max())
            if low < 0 or high >= size:
                i = int(((indices < 0) | (indices >= size)).argmax())
                self._fail(i, indices[i])

    def _fail(self, slot: int, index: Any) -> None:
        size = len(self._dictionary_())
        raise InvalidData(f"{self._type}: index {int(index)} of a dictionary of {size} values", where=[("row", slot)])

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        if zero_copy_only:
            return super()._to_numpy(True)
        if not self._type.value_type.descriptor.values:
            return super()._to_numpy(False)
        return self.decode().to_numpy(False)

    def _masked_values(self) -> tuple[NDArray, Mask | None]:
        return self.decode()._storage._masked_values()

    def _value(self, index: int) -> Any:
        key = self._key(index)
        with renumbered(lambda row: index):
            return self._dictionary_()[key]

    def _key(self, index: int) -> int:
        key = int(self.indices.values[index])
        if not 0 <= key < len(self._dictionary_()):
            self._fail(index, key)
        return key

    def _value_preview(self, index: int, budget: Budget) -> str:
        return self._dictionary_()._item_preview(self._key(index), budget)

    def _pylist(self, valid: Mask | None) -> list[Any]:
        if valid is not None and not valid.any():
            return [None] * self._length
        indices = self._checked(valid)
        dictionary = self._dictionary_()
        if len(dictionary) > 4 * self._length + 1024:
            used, indices = np.unique(indices, return_inverse=True)
            dictionary = dictionary._take(used)
        with renumbered(_first_use, indices, valid):
            values = dictionary.to_pylist()
        return [values[i] for i in indices.tolist()]

    def _gather(self, indices: Indices) -> Any:
        data = frozen(self.indices.values[indices])
        return make_array(self._type, len(indices), [None, data], 0, 0, (), self._dictionary)

    def trim(self) -> Self:
        indices = self.indices.trim()
        return self._with(offset=0, buffers=indices._buffers, null_count=self.null_count)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        return super(DictionaryArray, self._shortened()).__reduce_ex__(protocol)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        type = arrays[0].type
        dictionary = arrays[0].dictionary
        length = sum(map(len, arrays))
        if all(array.dictionary is dictionary or array.dictionary.equals(dictionary) for array in arrays[1:]):
            data = np.concatenate([array._buffers[1] for array in arrays])
            return make_array(type, length, [None, read_only(data)], 0, 0, (), dictionary)
        most = int(np.iinfo(type.storage).max) + 1
        full = sum([len(array.dictionary) for array in arrays]) > most
        arrays = [array._compact() if full else array._shortened() for array in arrays]
        dictionary, codes = _merged(arrays, "encode")
        data = np.concatenate(codes).astype(type.storage)
        return make_array(type, length, [None, frozen(data)], 0, 0, (), dictionary)

    def _equal(self, other: Any, live: Mask | None) -> bool:
        if self._dictionary_()._logical_nulls() is None and other._dictionary_()._logical_nulls() is None:
            return super()._equal(other, live)
        mine, theirs = self._with_all_nulls(), other._with_all_nulls()
        return super(DictionaryArray, mine)._equal(theirs, live)

    def _with_all_nulls(self) -> Any:
        """The array with null indices where the value is null."""
        missing = self._logical_nulls()
        return self if missing is None else self.trim()._masked(~missing)

    def _same(self, other: Any, live: Mask | None) -> bool:
        dictionary = self._dictionary_()
        if dictionary is not other._dictionary and len(dictionary) > 2 * self._length:
            alike = False  # comparing only the referenced values is faster
        else:
            alike = dictionary.equals(other._dictionary)
        mine, theirs = self.indices.values, other.indices.values
        valid = self._live(live)
        if alike:
            differ = mine != theirs
            if not differ.any():
                return True
            valid = differ if valid is None else differ & valid
        slots = np.arange(self._length) if valid is None else np.flatnonzero(valid)
        mine, theirs = self._checked(self._mask())[slots], other._checked(other._mask())[slots]
        pairs: Any = (dictionary, mine.astype(np.int64)), (other._dictionary, theirs.astype(np.int64))
        (left, at), (right, there) = [_used(*pair) if len(pair[0]) >> 31 else pair for pair in pairs]
        return same_at(left, at, right, there)

    def _check_structure(self) -> None:
        value_type = self._dictionary_().type
        if value_type != self._type.value_type:
            raise InvalidData(
                f"{self._type}: expected a dictionary of {self._type.value_type}, found one of {value_type}"
            )

    def _check_references(self) -> None:
        values, size = self.indices.values, len(self._dictionary_())
        if values.dtype.kind == "u" and size > np.iinfo(values.dtype).max:
            return
        mask: Mask | None = None
        for start in range(0, self._length, CHUNK):
            part = values[start : start + CHUNK]
            if int(part.min()) >= 0 and int(part.max()) < size:
                continue
            if mask is None:  # null slots may have any index
                mask = self._valid()
            wrong = ((part < 0) | (part >= size)) & mask[start : start + CHUNK]
            if wrong.any():
                i = int(wrong.argmax())
                self._fail(start + i, part[i])

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        indices = self._checked(self._mask())
        used = blank_mask(self._dictionary_())
        used[indices if live is None else indices[live]] = True
        yield None, self._dictionary_(), used

    def _logical_nulls(self) -> Mask | None:
        mask = self._mask()
        missing = self._dictionary_()._logical_nulls()
        if missing is None:
            return None if mask is None else ~mask
        if not len(missing):  # all slots are null, as the indices are valid
            return None if mask is None else ~mask
        result: Mask = missing[self._checked(mask)]
        return result if mask is None else result | ~mask

    @classmethod
    def _nulls(cls, type: Any, length: int) -> Any:
        array = zeros(type, length)
        array._dictionary = nulls(0, type.value_type)
        return array

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        from shmarrow.layout.values import array_from_pylist

        array = array_from_pylist(values, type.value_type)
        return DictionaryArray._encode(array, "mask", type.index_type, type.ordered, valid)

    @classmethod
    def from_arrays(
        cls,
        indices: Any,
        dictionary: Any,
        mask: Any = None,
        ordered: bool = False,
        from_pandas: bool = False,
        safe: bool = True,
    ) -> Self:
        """Create an array from indices and a dictionary; zero-copy for arrays.

        Parameters
        ----------
        indices : integer Array, or anything that :func:`shmarrow.array` converts to one
            Positions in the dictionary, or null; shape (n,).
        dictionary : Array, or anything that :func:`shmarrow.array` accepts
            Values of the dictionary.
        mask : bool array, optional
            Shape (n,), True where a slot is null.
        ordered : bool
            Whether the order of the dictionary's values is meaningful.
        from_pandas : bool
            Whether -1 means null, as in the codes of a pandas Categorical.
        safe : bool
            With False, indices are not range-checked until used.

        Raises
        ------
        InvalidType
            If the indices are not integers.
        InvalidData
            If an index is out of range.
        InvalidArgument
            If the length of the mask is wrong.
        """
        keys: Any = as_array(indices, "indices")
        values = as_array(dictionary, "a dictionary")
        if keys.type.descriptor.values != "integer":
            raise InvalidType(f"indices must be integers, found {keys.type}")
        missing = None if mask is None else checked_mask(mask, len(keys))
        if from_pandas:
            missing = keys.values == -1 if missing is None else missing | (keys.values == -1)
        if missing is not None:
            own = keys._mask()
            validity, count = validity_of(~missing if own is None else own & ~missing)
            keys = keys._with(offset=0, buffers=[validity, frozen(keys.values)], null_count=count)
        type = DictionaryType(keys.type, values.type, ordered)
        result: Self = make_array(type, len(keys), keys._buffers, keys._null_count, keys.offset, (), values)
        result.validate()
        if safe:
            result._check_references()
        return result

    @staticmethod
    def _encode(
        array: Any,
        null_encoding: str = "mask",
        index_type: DataType | str | None = None,
        ordered: bool = False,
        mask: Mask | None = None,
    ) -> Any:
        """Implement :meth:`Array.dictionary_encode`; slots where ``mask`` is False also become null indices."""
        from shmarrow.layout.codes import codes_of

        if null_encoding not in ("mask", "encode"):
            raise InvalidArgument(f"null_encoding must be 'mask' or 'encode', found {shown(null_encoding)}")
        type = DictionaryType("int32" if index_type is None else index_type, array.type, ordered)
        codes, first = codes_of(array, null_encoding == "encode")
        _check_reach(type, len(first))
        return _over(type, codes if mask is None else np.where(mask, codes, -1), array._take(first))


def _first_use(number: int, indices: Indices, valid: Mask | None = None) -> int | tuple[Part, ...]:
    """The first row with a value of the dictionary, for :class:`renumbered`; its number if no row has it."""
    uses = indices == number
    slots = np.flatnonzero(uses if valid is None else uses & valid)
    return int(slots[0]) if len(slots) else (("dictionary",), ("row", number))


def _check_reach(type: Any, count: int, remedy: str = "") -> None:
    most = int(np.iinfo(type.storage).max) + 1
    if count > most:
        raise InvalidData(f"{type}: {count} distinct values exceed the {most} that the index type can address{remedy}")


def _over(type: Any, codes: Indices, dictionary: Any) -> Any:
    """A dictionary array from codes, -1 for null, and a dictionary."""
    present = codes >= 0
    validity, count = validity_of(None if present.all() else present)
    indices = frozen(np.maximum(codes, 0).astype(type.storage))
    return make_array(type, len(codes), [validity, indices], count, 0, (), dictionary)


def with_one_dictionary(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays of one type with a common dictionary; nulls in dictionaries become null indices.

    Raises
    ------
    InvalidData
        If there are more distinct values than the index type can address.
    """
    first = arrays[0].dictionary
    if all(array.dictionary is first for array in arrays):
        return list(arrays)
    dictionary, codes = _merged(arrays, "mask")
    masks = [array._mask() for array in arrays]
    parts = [part if mask is None else np.where(mask, part, -1) for part, mask in zip(codes, masks, strict=True)]
    return [_over(arrays[0].type, part, dictionary) for part in parts]


def _merged(arrays: Sequence[Any], null_encoding: str) -> tuple[Any, list[Indices]]:
    """The merged dictionary of the arrays, and for each array the indices into it.

    Null slots have arbitrary indices; with ``"mask"``, references to a null in a dictionary become -1.
    """
    type = arrays[0].type
    merged = DictionaryArray._encode(join_arrays([array.dictionary for array in arrays]), null_encoding, "int64")
    _check_reach(type, len(merged.dictionary), "; call dictionary_decode() or cast to a wider index type")
    valid = merged._mask()
    codes = merged.indices.values if valid is None else np.where(valid, merged.indices.values, -1)
    positions, start = [], 0
    for array in arrays:
        end = start + len(array.dictionary)
        indices = array._checked(array._mask())
        positions.append(codes[start:end][indices] if end > start else np.zeros(len(array), np.int64))
        start = end
    return merged.dictionary, positions


def _used(dictionary: Any, indices: NDArray) -> tuple[Any, Indices]:
    """The referenced values of a dictionary, in order, and the indices remapped to them."""
    used, places = np.unique(indices, return_inverse=True)
    return dictionary._take(used), places
