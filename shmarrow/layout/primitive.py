# SPDX-License-Identifier: Apache-2.0
"""Fixed-size primitive layout ("Fixed-size Primitive Layout"): one fixed-width value per slot.

Booleans are bits. All other types (numeric, temporal, fixed-size binary) differ only in their storage dtype.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import EMPTY, DType, Indices, Mask, NDArray
from shmarrow.errors import CopyRequired, InvalidData, counted
from shmarrow.layout.array import Array
from shmarrow.layout.construct import (
    CLASSES,
    check_expansion,
    check_slots,
    frozen,
    make_array,
    read_only,
    validity_of,
    view_of,
)
from shmarrow.layout.preview import Budget
from shmarrow.types import DataType, FloatType, LargeBinaryType


class PrimitiveArray(Array):
    """Array of fixed-width values."""

    __slots__ = ()
    layouts = ("primitive",)

    @property
    def values(self) -> NDArray:
        """Stored values as an ndarray of shape (length,), including null slots; a read-only view.

        Decimals of more than 64 bits have the shape (length, words), least significant 64-bit word first.
        """
        return view_of(self._buffers[1], self._type.storage, self._offset, self._length)

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        dtype = self._type.numpy_dtype
        if dtype is None or (self._null_count and self.null_count):
            return self._to_numpy_copy(zero_copy_only)
        length, size = self._length, dtype.itemsize
        if not length or not size:
            return np.empty(length, dtype)
        return np.ndarray(length, dtype, self._buffers[1], self._offset * size)

    def _to_numpy_copy(self, zero_copy_only: bool) -> NDArray:
        if zero_copy_only:
            why = f"numpy has no dtype for {self._type}"
            if self.null_count:
                why = f"an array with {counted(self.null_count, 'null')} has no zero-copy numpy form"
            raise CopyRequired(f"{why}; call to_numpy(zero_copy_only=False), or use .values and .is_valid()")
        mask = self._mask()
        dtype = _copied_dtype(self._type)
        if dtype is None or dtype.kind not in "fMm":
            return super()._to_numpy(False)
        if dtype.kind in "Mm":
            result = self.values.astype("i8").view(dtype)
        elif self.values.dtype.kind == "f":
            result = self.values.copy()
        else:
            from shmarrow.casts import convert

            result = convert(self.values, mask, self._type, FloatType(64))
        if mask is not None:
            result[~mask] = np.array("NaT" if dtype.kind in "Mm" else np.nan, dtype)
        return result

    def _masked_values(self) -> tuple[NDArray, Mask | None]:
        mask, values = self._mask(), self.values
        if self._type.numpy_dtype is not None:
            values = values.view(self._type.numpy_dtype)
        elif self._type.descriptor.values == "date":
            values = values.astype("i8").view("M8[D]")
        else:
            return super()._masked_values()
        return values, None if mask is None else ~mask

    def _nans(self) -> Mask | None:
        return np.isnan(self.values) if self.values.dtype.kind == "f" else None

    def _value(self, index: int) -> Any:
        from shmarrow.casts.to_python import to_python

        return to_python(self._type, self.values[index : index + 1], first=index)[0]

    def _value_preview(self, index: int, budget: Budget) -> str:
        from shmarrow.casts.time import KINDS

        if self.values.dtype in (np.float16, np.float32):
            exact = float(self.values[index])
            whole = exact.is_integer() and abs(exact) < 1 << 53
            return str(exact if whole else float(str(self.values[index])))  # the shortest digits that round-trip
        if self._type.descriptor.values in KINDS:  # includes values out of the range of Python's classes
            from shmarrow.casts import storage

            try:
                return str(self._value(index))
            except InvalidData:
                return storage.format_values(self._type, self.values[index : index + 1])
        return super()._value_preview(index, budget)

    def _pylist(self, valid: Mask | None) -> list[Any]:
        from shmarrow.casts.to_python import to_python

        if not self._type.byte_width:
            check_expansion(self._length, str(self._type))
        return to_python(self._type, self.values, valid)

    def _gather(self, indices: Indices) -> Any:
        values, width = self.values, self._type.byte_width
        items = values if values.ndim == 1 else values.view(f"V{width}").reshape(-1)
        return make_array(self._type, len(indices), [None, read_only(items.take(indices))], 0)

    def _take_blocks(self, indices: Indices, size: int) -> Any:
        width = self._type.byte_width * size
        if self.null_count or not width or width >> 31:  # numpy has no larger items
            return super()._take_blocks(indices, size)
        start = self._offset * self._type.byte_width
        blocks = np.ndarray(self._length // size, f"V{width}", self._buffers[1], start)
        return make_array(self._type, len(indices) * size, [None, read_only(blocks.take(indices))], 0)

    def _filled(self, missing: Mask, value: Any) -> Any:
        numbers = np.array(self.values)
        numbers[missing] = value.values[0]
        return make_array(self._type, self._length, [None, frozen(numbers)], 0)

    def _copied_bytes(self, counts: NDArray) -> float:
        return float(counts.sum()) * int(self._type.byte_width)

    def trim(self) -> Self:
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
        from shmarrow.layout import codes

        width, mask = self._type.byte_width, self._mask()
        if width in (1, 2, 4, 8):
            return codes.of_keys(self.values, mask)
        data = self.values.view(np.uint8).reshape(-1) if width else EMPTY
        return codes.of_runs(data, np.arange(self._length) * width, np.full(self._length, width, np.int64), mask)

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
            return self._as_binary().cast(target) if hasattr(target, "text") else None
        return cast_values(self, target, safe)

    def _view(self, target: Any) -> Any:
        if not issubclass(CLASSES[target.layout], PrimitiveArray) or self._type.byte_width != target.byte_width:
            return None
        return make_array(target, self._length, self._buffers, self._null_count, self._offset)

    def _as_binary(self) -> Any:
        """Fixed-size binary as binary with 64-bit offsets; copies no bytes."""
        check_slots(self)
        trimmed = self.trim()
        offsets = np.arange(len(trimmed) + 1, dtype=np.int64) * self._type.byte_width
        buffers = [trimmed._buffers[0], frozen(offsets), trimmed._buffers[1]]
        return make_array(LargeBinaryType(False), len(trimmed), buffers, trimmed.null_count)

    def _check_values(self) -> None:
        from shmarrow.casts import storage

        values = self.values
        for start in range(0, self._length, _PIECE) if self._type.byte_width else ():
            wrong, rule = storage.violations(self._type, values[start : start + _PIECE])
            if wrong is None:
                continue
            mask = self._mask()
            if mask is not None:  # null slots may have any value
                wrong = wrong & mask[start : start + _PIECE]
            if wrong.any():
                slot = start + int(wrong.argmax())
                held = storage.format_values(self._type, values[slot : slot + 1])
                raise InvalidData(f"{self._type}: {rule}, found {held}", where=[("row", slot)])

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        from shmarrow.casts import kinds_of
        from shmarrow.casts.python import from_python

        if type.descriptor.values == "bytes" and memoryview in kinds_of(values):
            values = [value.tobytes() if isinstance(value, memoryview) else value for value in values]
        if valid is None:
            return cls._made(type, len(values), [None, frozen(from_python(type, values))], 0)
        present = from_python(type, list(itertools.compress(values, valid.tobytes())))
        data = np.zeros(len(values), type.storage)
        if type.byte_width:
            data[valid] = present.view(type.storage).reshape(-1) if type.descriptor.values == "bytes" else present
        nulls = len(values) - len(present)
        return cls._made(type, len(values), [read_only(bitmap.pack(valid)), read_only(data)], nulls)

    @classmethod
    def from_numbers(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        """Create an integer or float array from numbers of that kind, with None where ``valid`` is False."""
        from shmarrow.casts.python import from_numbers

        present = values if valid is None else list(itertools.compress(values, valid.tobytes()))
        numbers = from_numbers(type, present)
        if valid is None:
            return cls._made(type, len(values), [None, frozen(numbers)], 0)
        filled = np.zeros(len(values), type.storage)
        filled[valid] = numbers
        return cls._made(
            type, len(values), [read_only(bitmap.pack(valid)), read_only(filled)], len(valid) - len(present)
        )

    @classmethod
    def from_numpy(cls, type: DataType, values: NDArray, valid: Mask | None = None, safe: bool = True) -> Self:
        """Create an array from an ndarray; zero-copy if it is contiguous and has the storage dtype.

        Parameters
        ----------
        type : DataType
            A type of this layout.
        values : ndarray
            Shape (n,), of a dtype that converts to the type, see :func:`shmarrow.casts.ndarray.from_ndarray`. NaT
            becomes null.
        valid : bool ndarray, optional
            False where a slot is null.
        safe : bool
            False allows the losses listed in :func:`shmarrow.casts.convert`.
        """
        from shmarrow.casts.ndarray import from_ndarray

        if valid is not None:
            from shmarrow.layout.arguments import checked_mask

            valid = checked_mask(valid, len(values))
        if values.dtype.kind in "Mm":
            missing = np.isnat(values)
            if missing.any():
                valid = ~missing if valid is None else valid & ~missing
        data = frozen(from_ndarray(type, values, valid, safe))
        validity, nulls = validity_of(valid)
        return cls._made(type, len(values), [validity, data], nulls)


_PIECE = 1 << 17
"""Slots compared or checked at once, so that they stay in the CPU cache."""


def _comparable(values: NDArray) -> NDArray:
    """Numbers unchanged, other values as words of shape (n,) or (n, words) that compare like the values."""
    return values if values.dtype.kind in "iuf" else _words(values)


def _words(values: NDArray) -> NDArray:
    """The bits of the values as words of shape (n,) or (n, words)."""
    size = values.dtype.itemsize * math.prod(values.shape[1:])
    word = next(width for width in (8, 4, 2, 1) if size % width == 0)
    words = values.view(f"<u{word}")
    return words if size == word else words.reshape(len(values), -1)


def cast_values(array: Any, target: DataType, safe: bool) -> Any:
    """Cast between numbers, bools and temporal types; None if there is no cast."""
    from shmarrow.casts import convert, convertible

    if not convertible(array.type, target):
        return None
    values = convert(array.values, array._mask(), array.type, target, safe)
    data = read_only(bitmap.pack(values)) if values.dtype.kind == "b" else frozen(values)
    return make_array(target, len(array), [array._trimmed_validity(), data], array.null_count)


def _copied_dtype(type: DataType) -> DType | None:
    """The numpy dtype, if any, for the type's values with a null marker."""
    kind = type.descriptor.values
    if kind == "integer":
        return np.dtype("f8")
    return np.dtype("M8[D]") if kind == "date" and type.numpy_dtype is None else type.numpy_dtype
