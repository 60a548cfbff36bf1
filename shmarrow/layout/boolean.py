# SPDX-License-Identifier: Apache-2.0
"""Booleans: the primitive layout with one bit per value ("Fixed-size Primitive Layout")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.casts.python import addresses_of
from shmarrow.errors import InvalidType, shown
from shmarrow.layout.arguments import checked_mask
from shmarrow.layout.array import Array
from shmarrow.layout.construct import booleans, make_array, read_only, validity_of
from shmarrow.layout.primitive import cast_values
from shmarrow.types import DataType


class BooleanArray(Array):
    """Array of booleans, one bit per value."""

    __slots__ = ()
    layouts = ("bool",)
    _joins_slices = True

    @property
    def values(self) -> Mask:
        """Stored values as a bool ndarray of shape (length,), including null slots; a copy."""
        data = self._buffers[1]
        assert data is not None
        return bitmap.unpack(data, self._offset, self._length)

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        if zero_copy_only or self.null_count:
            return super()._to_numpy(zero_copy_only)
        return self.values

    def _masked_values(self) -> tuple[NDArray, Mask | None]:
        mask = self._mask()
        return self.values, None if mask is None else ~mask

    def _filled(self, missing: Mask, value: Any) -> Any:
        return booleans(np.where(missing, value.values[0], self.values))

    def _value(self, index: int) -> Any:
        data = self._buffers[1]
        assert data is not None
        return bitmap.get(data, self._offset + index)

    def _pylist(self, valid: Mask | None) -> list[Any]:
        return self.values.tolist()

    def _gather(self, indices: Indices) -> Any:
        return make_array(self._type, len(indices), [None, read_only(bitmap.pack(self.values[indices]))], 0)

    def trim(self) -> Self:
        data = self._buffers[1]
        assert data is not None
        bits = bitmap.realign(data, self._offset, self._length)
        return self._with(offset=0, buffers=[self._trimmed_validity(), bits], null_count=self.null_count)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        bits = bitmap.join([(array._buffers[1], array._offset, len(array)) for array in arrays])
        return make_array(arrays[0].type, sum(map(len, arrays)), [None, read_only(bits)], 0)

    def _same(self, other: Any, live: Mask | None) -> bool:
        mine, theirs = self._buffers[1], other._buffers[1]
        assert mine is not None
        if bitmap.same(mine, self._offset, theirs, other._offset, self._length):
            return True
        valid = self._live(live)
        return valid is not None and not bool(((self.values != other.values) & valid).any())

    def _codes(self) -> Indices:
        from shmarrow.layout import codes

        return codes.of_keys(self.values.view(np.uint8), self._mask())

    def _cast(self, target: Any, safe: bool) -> Any:
        return cast_values(self, target, safe)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        addresses = addresses_of(values)
        bits, done = addresses == id(True), addresses == id(False)
        done |= bits if valid is None else bits | ~valid
        for i in np.flatnonzero(~done).tolist():
            if not isinstance(values[i], np.bool_):
                raise InvalidType(f"bool: cannot convert {shown(values[i])} of type {values[i].__class__.__name__}")
            bits[i] = values[i]
        return cls.from_numpy(type, bits, valid)

    @classmethod
    def from_numpy(cls, type: DataType, values: NDArray, valid: Mask | None = None, safe: bool = True) -> Self:
        """Create an array from bools, or the numbers 0 and 1, of shape (n,); a copy, as Arrow stores bits.

        ``valid`` is False where a slot is null; with ``safe=False``, any non-zero number is True.
        """
        from shmarrow.casts.ndarray import from_ndarray

        if valid is not None:
            valid = checked_mask(valid, len(values))
        data = read_only(bitmap.pack(from_ndarray(type, values, valid, safe)))
        validity, nulls = validity_of(valid)
        return cls._made(type, len(values), [validity, data], nulls)
