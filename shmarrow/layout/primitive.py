"""Fixed-size primitive layout ("Fixed-size Primitive Layout"): one value of a fixed number of bits in each slot.

Booleans are bits. All other types (numbers, dates and times, fixed-size binary) differ in the dtype of their storage
only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow import bitmap
from shmarrow.bitmap import Mask
from shmarrow.convert import convert, convertible
from shmarrow.convert.python import DayTime, MonthDayNano, check_range, from_numbers, from_python, kinds_of, to_python
from shmarrow.errors import CopyRequired, InvalidData, InvalidType
from shmarrow.layout.arguments import checked_mask
from shmarrow.layout.array import Array, make_array
from shmarrow.layout.binary import BINARY
from shmarrow.layout.memory import EMPTY, Indices, check_expansion, frozen, read_only, validity_of, view_of
from shmarrow.types import DataType, LargeBinaryType

if TYPE_CHECKING:
    import numpy.typing as npt


class PrimitiveArray(Array):
    """Values of a fixed number of bytes."""

    __slots__ = ()
    layouts = ("primitive",)

    @property
    def values(self) -> npt.NDArray[Any]:
        """The storage as an ndarray of shape (length,), null slots included; a read-only view.

        Decimals of more than 64 bits have the shape (length, words), the lowest 64-bit word first.
        """
        return view_of(self._buffers[1], self._type.storage, self._offset, self._length)

    def to_numpy(self, zero_copy_only: bool = True) -> npt.NDArray[Any]:
        dtype = self._type.numpy_dtype
        if dtype is None or (self._null_count and self.null_count):
            return self._to_numpy_copy(zero_copy_only)
        length, size = self._length, dtype.itemsize
        if not length or not size:
            return np.empty(length, dtype)
        return np.ndarray(length, dtype, self._buffers[1], self._offset * size)

    def _to_numpy_copy(self, zero_copy_only: bool) -> npt.NDArray[Any]:
        if zero_copy_only:
            why = f"{self.null_count} nulls" if self.null_count else f"type {self._type}, which numpy does not have"
            raise CopyRequired(
                f"an array with {why} has no zero-copy numpy form; "
                "call to_numpy(zero_copy_only=False), or use .values and .is_valid()"
            )
        mask = self._mask()
        dtype = _copied_dtype(self._type)
        if dtype is None or dtype.kind not in "fMm":
            return super().to_numpy(False)
        result = self.values.astype("i8").view(dtype) if dtype.kind in "Mm" else self.values.astype(dtype)
        if mask is not None:
            result[~mask] = np.array("NaT" if dtype.kind in "Mm" else np.nan, dtype)
        return result

    def _value(self, index: int) -> Any:
        return to_python(self._type, self.values[index : index + 1])[0]

    def _pylist(self, valid: Mask | None) -> list[Any]:
        if not self._type.byte_width:
            check_expansion(self._length, str(self._type))
        make = _INTERVALS.get(getattr(self._type, "unit", "")) if self._type.descriptor.values == "interval" else None
        if make is not None:
            parts = [self.values[name].tolist() for name in self.values.dtype.names or ()]
            return list(map(tuple.__new__, itertools.repeat(make), zip(*parts, strict=True)))
        return to_python(self._type, self.values)

    def _gather(self, indices: Indices) -> Any:
        return make_array(self._type, len(indices), [None, frozen(self.values[indices])], 0)

    def trim(self) -> Any:
        size = self._type.byte_width
        data = self._buffers[1]
        assert data is not None
        if not self._offset and len(data) == self._length * size and (self._buffers[0] is None or self.null_count):
            validity = self._buffers[0]
            if validity is None or len(validity) == bitmap.bytes_for(self._length):
                return self
        values = data[self._offset * size : (self._offset + self._length) * size]
        return self._with(offset=0, buffers=[self._trimmed_validity(), values], null_count=self.null_count)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        data = np.concatenate([array._buffers[1] for array in arrays])
        return make_array(arrays[0].type, sum(map(len, arrays)), [None, read_only(data)], 0)

    def _same(self, other: Any, live: Mask | None) -> bool:
        if not self._type.byte_width or not self._length:
            return True
        mine, theirs = _comparable(self.values), _comparable(other.values)
        valid: Mask | None = None
        for start in range(0, self._length, _PIECE):
            piece = slice(start, start + _PIECE)
            differ = mine[piece] != theirs[piece]
            if not differ.any():
                continue
            if valid is None:
                valid = self._live(live)
                if valid is None:
                    return False
            if ((differ if differ.ndim == 1 else differ.any(axis=1)) & valid[piece]).any():
                return False
        return True

    def _codes(self) -> Indices:
        from shmarrow.layout.codes import of_keys, of_runs

        width, mask = self._type.byte_width, self._mask()
        if width in (1, 2, 4, 8):
            return of_keys(self.values, mask)
        data = self.values.view(np.uint8).reshape(-1) if width else EMPTY
        return of_runs(data, np.arange(self._length) * width, np.full(self._length, width, np.int64), mask)

    def _run_starts(self) -> Indices:
        if not self._type.byte_width or not self._length:
            return super()._run_starts()
        words = _words(self.values)
        differ = words[1:] != words[:-1]
        if differ.ndim == 2:
            differ = differ.any(axis=1)
        mask = self._mask()
        if mask is not None:
            differ = np.where(mask[1:] & mask[:-1], differ, mask[1:] != mask[:-1])
        return np.flatnonzero(np.concatenate(([True], differ)))

    def _cast(self, target: Any, safe: bool) -> Any:
        if self._type.descriptor.values == "bytes":
            return self._as_binary().cast(target) if target.layout in BINARY else None
        return cast_values(self, target, safe)

    def _as_binary(self) -> Any:
        """Byte strings of one length as binary with 64-bit offsets; copies no bytes."""
        kept = self.trim()
        offsets = np.arange(len(kept) + 1, dtype=np.int64) * self._type.byte_width
        buffers = [kept._buffers[0], frozen(offsets), kept._buffers[1]]
        return make_array(LargeBinaryType(False), len(kept), buffers, kept.null_count)

    def _check_values(self) -> None:
        if not self._type.byte_width:
            return
        values = self.values
        wide = self._type.descriptor.values == "decimal" and self._type.byte_width > 8
        for start in range(0, len(values), _PIECE):
            piece = values[start : start + _PIECE]
            # Null slots, which may hold anything, are left out only where something is wrong.
            if wide and not _too_wide(self._type, piece).any():
                continue
            if check_range(self._type, piece) is None:
                continue
            mask = self._mask()
            slots = np.arange(start, start + len(piece))
            if mask is not None:
                slots = slots[mask[start : start + _PIECE]]
            found = check_range(self._type, values[slots])
            if found:
                position, rule = int(slots[found[0]]), found[1]
                value = values[position]
                if self._type.descriptor.values == "decimal":
                    value = to_python(self._type, values[position : position + 1])[0]
                raise InvalidData(f"{self._type}: slot {position} holds {value}; {rule}")

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Any:
        if type.descriptor.values == "bytes" and memoryview in kinds_of(values):
            values = [value.tobytes() if isinstance(value, memoryview) else value for value in values]
        if valid is None:
            return make_array(type, len(values), [None, frozen(from_python(type, values))], 0)
        known = from_python(type, [value for value in values if value is not None])
        width = type.byte_width
        data = np.zeros((len(values), width), np.uint8)
        data[valid] = np.ascontiguousarray(known).view(np.uint8).reshape(-1, width) if width else data[valid]
        nulls = len(values) - len(known)
        return make_array(type, len(values), [read_only(bitmap.pack(valid)), read_only(data)], nulls)

    @classmethod
    def from_numbers(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Any:
        """An array of integers or floats from numbers of the same kind, and None where ``valid`` is False."""
        known = values if valid is None else list(itertools.compress(values, valid.tobytes()))
        numbers = from_numbers(type, known)
        if valid is None:
            return make_array(type, len(values), [None, frozen(numbers)], 0)
        filled = np.zeros(len(values), type.storage)
        filled[valid] = numbers
        return make_array(
            type, len(values), [read_only(bitmap.pack(valid)), read_only(filled)], len(valid) - len(known)
        )

    @classmethod
    def from_numpy(cls, type: DataType, values: npt.NDArray[Any], valid: Mask | None = None) -> Any:
        """An array over the values of an ndarray; copies nothing where that is contiguous and of the same storage.

        Parameters
        ----------
        type : DataType
            A type of this layout.
        values : ndarray
            Shape (n,); a dtype that is the type's storage, or converts to it without changing a value.
        valid : bool ndarray, optional
            False where a slot is null.
        """
        storage = type.storage
        assert storage is not None
        if type.descriptor.values == "bytes":
            if values.dtype.itemsize != storage.itemsize or values.dtype.kind not in "SV":
                raise InvalidType(f"{type}: cannot take an ndarray of {values.dtype}")
        elif values.dtype.kind in "Mm":
            values = _time_values(type, values)
        elif values.dtype != storage:
            values = _cast_exactly(type, values, storage)
        data = frozen(values)
        validity, nulls = validity_of(None if valid is None else checked_mask(valid, len(values)))
        return make_array(type, len(values), [validity, data], nulls)


_PIECE = 1 << 17
"""Slots that are compared or checked at once: few enough to stay in the processor's cache."""


def _too_wide(type: Any, words: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which decimals of shape (n, words), the lowest word first, have more digits than the type's precision."""
    bound, bits = 10**type.precision, 64 * words.shape[1]
    top = words[:, -1].view("<i8")
    low_top, high_top = (-bound) >> (bits - 64), bound >> (bits - 64)
    if not len(top) or (low_top < int(top.min()) and int(top.max()) < high_top):
        return np.zeros(len(words), np.bool_)
    below = np.zeros(len(words), np.bool_)  # value < bound, by the words from the lowest one up
    above = np.zeros(len(words), np.bool_)  # value > -bound
    for i in range(words.shape[1]):
        last = i == words.shape[1] - 1
        word = top if last else words[:, i]
        high, low = bound >> 64 * i, (-bound) >> 64 * i
        if not last:
            high, low = high & _WORD, low & _WORD
        below = (word < high) | ((word == high) & below)
        above = (word > low) | ((word == low) & above)
    return ~(below & above)


_WORD = (1 << 64) - 1


def _comparable(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers as they are, other values as words of shape (n,) or (n, words) that are equal when the values are."""
    return values if values.dtype.kind in "iuf" else _words(values)


def _words(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The bits of values as words of shape (n,) or (n, words)."""
    size = values.dtype.itemsize * math.prod(values.shape[1:])
    word = next(width for width in (8, 4, 2, 1) if size % width == 0)
    words = values.view(f"<u{word}")
    return words if size == word else words.reshape(len(values), -1)


def cast_values(array: Any, target: DataType, safe: bool) -> Any:
    """Numbers, truth values and times as another of these types; None where there is no way."""
    if target.layout not in ("primitive", "bool") or not convertible(array.type, target):
        return None
    values = convert(array.values, array._mask(), array.type, target, safe)
    data = read_only(bitmap.pack(values)) if target.layout == "bool" else frozen(values)
    return make_array(target, len(array), [array._trimmed_validity(), data], array.null_count)


_INTERVALS: dict[str, Any] = {"day_time": DayTime, "month_day_nano": MonthDayNano}
"""The named tuples of intervals, which ``tuple.__new__`` makes much faster than they themselves do."""


def _copied_dtype(type: DataType) -> np.dtype[Any] | None:
    """The dtype that holds the type's values and a mark for null, where numpy has one."""
    kind = type.descriptor.values
    if kind == "integer":
        return np.dtype("f8")
    return np.dtype("M8[D]") if kind == "date" and type.numpy_dtype is None else type.numpy_dtype


def _time_values(type: DataType, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    unit = getattr(type, "unit", None)
    code = {"day": "D"}.get(str(unit), unit)
    if code is None or (values.dtype.kind == "m") != (type.descriptor.values in ("timedelta", "time")):
        raise InvalidType(f"{type}: cannot take an ndarray of {values.dtype}")
    converted = values.astype(f"{values.dtype.kind}8[{code}]", copy=False)
    if converted.dtype != values.dtype and not np.array_equal(converted, values, equal_nan=False):
        raise InvalidData(f"{type}: values of {values.dtype} do not fit without loss")
    return converted.view("i8").astype(type.storage, copy=False)


def _cast_exactly(type: DataType, values: npt.NDArray[Any], storage: np.dtype[Any]) -> npt.NDArray[Any]:
    if values.dtype.kind not in "iuf" or storage.kind not in "iuf" or values.dtype.kind == "b":
        raise InvalidType(f"{type}: cannot take an ndarray of {values.dtype}")
    if storage.kind == "f":
        return values.astype(storage)
    with np.errstate(invalid="ignore"):
        converted = values.astype(storage)
    if not np.array_equal(converted, values) or (storage.kind == "u" and len(values) and values.min() < 0):
        raise InvalidData(f"{type}: values of {values.dtype} do not fit without loss")
    return converted
