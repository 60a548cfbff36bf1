# SPDX-License-Identifier: Apache-2.0
"""Null layout ("Null Layout"): every slot is null, and there are no buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from shmarrow.buffer import Indices, Mask
from shmarrow.errors import InvalidType, shown
from shmarrow.layout.array import Array, nulls
from shmarrow.layout.construct import CLASSES, LONGEST, check_expansion, make_array, total_of
from shmarrow.types import DataType


class NullArray(Array):
    """Array of nulls: a length without buffers."""

    __slots__ = ()
    layouts = ("null",)

    def _count_nulls(self) -> int:
        return self._length

    def _item(self, index: int) -> Any:
        return None

    def _item_preview(self, index: int, budget: Any) -> str:
        return "null"

    def _pylist(self, valid: Mask | None) -> list[Any]:
        check_expansion(self._length, "null")
        return [None] * self._length

    def _valid(self) -> Any:
        check_expansion(self._length, "null")
        return ~super()._valid()

    def _logical_nulls(self) -> Mask:
        return np.broadcast_to(np.True_, self._length)  # takes no memory

    def _gather(self, indices: Indices) -> Any:
        return make_array(self._type, len(indices), [], len(indices))

    def _take_runs(self, starts: Indices, lengths: Indices) -> Any:
        total = total_of(lengths)
        if total > LONGEST:
            check_expansion(total, "null")
        return make_array(self._type, total, [], total)

    def drop_null(self) -> Self:
        return self.slice(0, 0)  # in constant time

    def trim(self) -> Self:
        return self._with(offset=0, null_count=self._length)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        total = sum(map(len, arrays))
        return make_array(arrays[0].type, total, [], total)

    def _same(self, other: Any, live: Mask | None) -> bool:
        return True

    def unique(self) -> Self:
        return self.slice(0, 1)

    def dictionary_encode(self, null_encoding: str = "mask", index_type: DataType | str | None = None) -> Any:
        few = CLASSES["dictionary"]._encode(self.slice(0, 1), null_encoding, index_type)
        encoded: Any = nulls(self._length, few.type)
        if null_encoding == "encode":  # the zeroed indices refer to the null in the dictionary
            encoded = encoded._with(null_count=0, buffers=[None, encoded._buffers[1]], dictionary=few.dictionary)
        return encoded

    def _codes(self) -> Indices:
        return np.full(self._length, -1, np.int64)

    def _cast(self, target: Any, safe: bool) -> Any:
        return nulls(self._length, target)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        for value in values:
            if value is not None:
                raise InvalidType(f"null: cannot convert {shown(value)} of type {value.__class__.__name__}")
        return cls._made(type, len(values), [], len(values))
