"""Dictionary-encoded layout ("Dictionary-encoded Layout"): integer indices into an array of values.

The indices are a primitive array, and its validity is the array's. The dictionary may hold nulls and repeated values
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, prefixed, shown
from shmarrow.layout.arguments import as_array, checked_mask
from shmarrow.layout.array import Array
from shmarrow.layout.making import blank_mask, concat_arrays, make_array
from shmarrow.layout.memory import Indices, frozen, read_only, validity_of
from shmarrow.layout.preview import Budget
from shmarrow.layout.repeats import check_repeats, has_fixed_width
from shmarrow.types import DataType, DictionaryType
from shmarrow.types.extension import ExtensionType

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.layout.primitive import PrimitiveArray
    from shmarrow.types import Field


class DictionaryArray(Array):
    """Values by their index in a dictionary."""

    __slots__ = ()
    layouts = ("dictionary",)

    @property
    def dictionary(self) -> Array:
        """The values that the indices point into."""
        return self._dictionary_()

    @property
    def indices(self) -> PrimitiveArray:
        """The indices as an array of the index type; copies nothing."""
        result: PrimitiveArray = make_array(
            self._type.index_type, self._length, self._buffers, self._null_count, self._offset
        )
        return result

    def decode(self) -> Array:
        """An array of the value type, with the value of each slot in its place; a copy.

        Raises
        ------
        InvalidData
            If an index points outside of the dictionary.
        """
        mask = self._mask()
        indices, values = self._checked(mask), self._dictionary_()
        if not has_fixed_width(values):
            known = indices if mask is None else indices[mask]
            check_repeats(values, np.bincount(known, minlength=len(values)), indices.nbytes)
        result: Array = values._take(indices, mask)
        return result

    dictionary_decode = decode

    def _codes(self) -> Indices:
        from shmarrow.layout.codes import first_slots, slot_codes

        mask = self._mask()
        if mask is not None and not mask.any():
            return np.full(self._length, -1, np.int64)
        codes = slot_codes(self._dictionary_())[self._checked(mask)]
        return first_slots(codes if mask is None else np.where(mask, codes, -1))

    def _cast(self, target: Any, safe: bool) -> Any:
        try:
            self._dictionary_().slice(0, 0)._cast_to(target, safe)  # is there a cast, before values are repeated
        except InvalidType as error:
            raise prefixed(f"{self._type}: ", error) from None
        return self.decode()._cast_to(target, safe)

    @classmethod
    def _cast_from(cls, array: Any, target: Any, safe: bool) -> Any:
        """From an array of another index type or of values in another form, or from values that are then encoded."""
        if isinstance(array.type, ExtensionType) and array.type != target.value_type:
            return array.storage._cast_to(target, safe)
        if array.type.__class__ is DictionaryType:
            try:
                indices = array.indices._cast_to(target.index_type, safe)
                values = array.dictionary._cast_to(target.value_type, safe)
                return make_array(target, len(array), indices._buffers, indices._null_count, indices.offset, (), values)
            except InvalidData:  # then what no slot refers to may be in the way
                array = array.decode()
        return encode(array._cast_to(target.value_type, safe), "mask", target.index_type, target.ordered)

    def dictionary_encode(self, null_encoding: str = "mask", index_type: DataType | str | None = None) -> Self:
        """The array itself, or with indices of another type."""
        if index_type is None:
            return self
        result: Self = self._cast_to(DictionaryType(index_type, self._type.value_type, self._type.ordered), True)
        return result

    def _dictionary_(self) -> Array:
        assert self._dictionary is not None
        return self._dictionary

    def _checked(self, valid: Mask | None) -> npt.NDArray[Any]:
        """A copy of the indices, 0 where null, after a check that they lie in the dictionary.

        What is checked is what is used, also where another process writes to the memory in the meantime.
        """
        values: npt.NDArray[Any] = self.indices.values
        indices = values.copy() if valid is None else np.where(valid, values, values.dtype.type(0))
        self._check_indices(indices, valid)
        return indices

    def _check_indices(self, indices: npt.NDArray[Any], valid: Mask | None) -> None:
        size = len(self._dictionary_())
        if len(indices) and (valid is None or valid.any()):
            low, high = int(indices.min()), int(indices.max())
            if low < 0 or high >= size:
                wrong = (indices < 0) | (indices >= size)
                i = int(wrong.argmax())
                raise InvalidData(
                    f"{self._type}: slot {i} holds index {int(indices[i])} but the dictionary has {size} values"
                )

    def to_numpy(self, zero_copy_only: bool = True) -> npt.NDArray[Any]:
        if zero_copy_only:
            return super().to_numpy(True)
        if self._type.value_type.layout not in ("primitive", "bool"):
            return super().to_numpy(False)
        result: npt.NDArray[Any] = self.decode().to_numpy(False)
        return result

    def _value(self, index: int) -> Any:
        return self._dictionary_()[self._key(index)]

    def _key(self, index: int) -> int:
        key = int(self.indices.values[index])
        if not 0 <= key < len(self._dictionary_()):
            raise InvalidData(
                f"{self._type}: slot {index} holds index {key} but the dictionary has {len(self._dictionary_())} values"
            )
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
        values = dictionary.to_pylist()
        return [values[i] for i in indices.tolist()]

    def _gather(self, indices: Indices) -> Any:
        data = frozen(self.indices.values[indices])
        return make_array(self._type, len(indices), [None, data], 0, 0, (), self._dictionary)

    def trim(self) -> Self:
        indices = self.indices.trim()
        return self._with(offset=0, buffers=indices._buffers, null_count=self.null_count)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        type = arrays[0].type
        dictionary = arrays[0].dictionary
        length = sum(map(len, arrays))
        if all(array.dictionary is dictionary or array.dictionary.equals(dictionary) for array in arrays[1:]):
            data = np.concatenate([array._buffers[1] for array in arrays])
            return make_array(type, length, [None, read_only(data)], 0, 0, (), dictionary)
        dictionary, codes = _merged(arrays, "encode")
        data = np.concatenate(codes).astype(type.storage)
        return make_array(type, length, [None, frozen(data)], 0, 0, (), dictionary)

    def _same(self, other: Any, live: Mask | None) -> bool:
        dictionary = self._dictionary_()
        if not dictionary.equals(other._dictionary):  # or it holds NaN, which may or may not be referred to
            return bool(self.decode()._equal(other.decode(), live))
        mine, theirs = self.indices.values, other.indices.values
        differ = mine != theirs
        if not differ.any():
            return True
        valid = self._live(live)
        slots = np.flatnonzero(differ if valid is None else differ & valid)
        mine, theirs = self._checked(self._mask())[slots], other._checked(other._mask())[slots]
        for start in (0, 256):  # indices that differ mostly mean values that differ
            stop = 256 if not start else len(slots)
            if not dictionary._take(mine[start:stop]).equals(dictionary._take(theirs[start:stop])):
                return False
        return True

    def _check_structure(self) -> None:
        if self._dictionary is None or self._dictionary.type != self._type.value_type:
            found = "none" if self._dictionary is None else f"one of {self._dictionary.type}"
            raise InvalidData(f"{self._type}: expected a dictionary of {self._type.value_type}, found {found}")

    def _check_references(self) -> None:
        mask, values = self._mask(), self.indices.values
        self._check_indices(values if mask is None else np.where(mask, values, values.dtype.type(0)), mask)

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
        if not len(missing):  # then all slots are null, as indices have been checked
            return None if mask is None else ~mask
        result: Mask = missing[self._checked(mask)]
        return result if mask is None else result | ~mask

    @classmethod
    def _nulls(cls, type: Any, length: int) -> Any:
        from shmarrow.layout.making import _zeros, nulls

        made = _zeros(type, length)
        made._dictionary = nulls(0, type.value_type)
        return made

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        from shmarrow.layout.from_values import array_from_pylist

        made = array_from_pylist(values, type.value_type)
        result: Self = encode(made, "mask", type.index_type, type.ordered, valid)
        return result

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
        """An array over indices and an array of values; copies nothing.

        Parameters
        ----------
        indices : integer Array, or anything that :func:`shmarrow.array` converts to one
            Shape (n,); positions in the dictionary, or null.
        dictionary : Array, or anything that :func:`shmarrow.array` accepts
            The values.
        mask : bool array, optional
            Shape (n,), True where a slot is null.
        ordered : bool
            Whether the order of the values means something.
        from_pandas : bool
            True makes -1 null, as in the codes of a pandas Categorical.
        safe : bool
            False leaves the range of the indices unchecked until they are used.

        Raises
        ------
        InvalidType
            If the indices are not integers.
        InvalidData
            If an index points outside of the dictionary.
        InvalidArgument
            If the mask has another length.
        """
        keys, values = as_array(indices, "indices"), as_array(dictionary, "a dictionary")
        if keys.type.descriptor.values != "integer":
            raise InvalidType(f"indices are integers, found {keys.type}")
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


def encode(
    array: Any,
    null_encoding: str = "mask",
    index_type: DataType | str | None = None,
    ordered: bool = False,
    mask: Mask | None = None,
) -> Any:
    """See :meth:`Array.dictionary_encode`; slots where ``mask`` is False become null indices too."""
    from shmarrow.layout.codes import codes_of

    if null_encoding not in ("mask", "encode"):
        raise InvalidArgument(f"null_encoding is 'mask' or 'encode', found {shown(null_encoding)}")
    type = DictionaryType("int32" if index_type is None else index_type, array.type, ordered)
    codes, first = codes_of(array, null_encoding == "encode")
    _check_reach(type, len(first))
    return _over(type, codes if mask is None else np.where(mask, codes, -1), array._take(first))


def _check_reach(type: Any, count: int) -> None:
    most = int(np.iinfo(type.storage).max) + 1
    if count > most:
        raise InvalidData(f"{type}: {count} distinct values are more than the {most} that its indices can address")


def _over(type: Any, codes: Indices, dictionary: Any) -> Any:
    """An array of indices, null where they are -1, into a dictionary."""
    known = codes >= 0
    validity, count = validity_of(None if known.all() else known)
    indices = frozen(np.maximum(codes, 0).astype(type.storage))
    return make_array(type, len(codes), [validity, indices], count, 0, (), dictionary)


def with_one_dictionary(arrays: list[Any]) -> list[Any]:
    """Arrays of one dictionary type with one dictionary for all; nulls in dictionaries become nulls of the arrays.

    Raises
    ------
    InvalidData
        If there are more distinct values than the indices can address.
    """
    first = arrays[0].dictionary
    if all(array.dictionary is first for array in arrays):
        return arrays
    dictionary, codes = _merged(arrays, "mask")
    masks = [array._mask() for array in arrays]
    parts = [part if mask is None else np.where(mask, part, -1) for part, mask in zip(codes, masks, strict=True)]
    return [_over(arrays[0].type, part, dictionary) for part in parts]


def _merged(arrays: Sequence[Any], null_encoding: str) -> tuple[Any, list[Indices]]:
    """The distinct values of the dictionaries of arrays, and for each array the indices into them.

    Null slots have any index; with ``"mask"`` those of a null in a dictionary have -1.
    """
    type = arrays[0].type
    merged = encode(concat_arrays([array.dictionary for array in arrays]), null_encoding, "int64")
    _check_reach(type, len(merged.dictionary))
    known = merged._mask()
    codes = merged.indices.values if known is None else np.where(known, merged.indices.values, -1)
    found, start = [], 0
    for array in arrays:
        end = start + len(array.dictionary)
        indices = array._checked(array._mask())
        found.append(codes[start:end][indices] if end > start else np.zeros(len(array), np.int64))
        start = end
    return merged.dictionary, found
