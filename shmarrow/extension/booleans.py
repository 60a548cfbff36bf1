"""Booleans of one byte each (canonical extension types, "8-bit Boolean")."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from shmarrow import types
from shmarrow.buffer import Mask, NDArray
from shmarrow.errors import CopyRequired, InvalidArgument, counted
from shmarrow.extension.array import ExtensionArray
from shmarrow.types import DataType, ExtensionType


class Bool8Type(ExtensionType):
    """Booleans of one byte each, 0 for False (``arrow.bool8``)."""

    __slots__ = ()
    extension_name = "arrow.bool8"

    def __init__(self, storage_type: DataType | None = None) -> None:
        super().__init__(types.int8() if storage_type is None else storage_type)
        if self.storage_type != types.int8():
            raise InvalidArgument(f"{self.extension_name}: the storage must be int8, found {storage_type}")

    def to_python(self, value: Any) -> Any:
        return value != 0

    def from_python(self, value: Any) -> Any:
        return int(value) if isinstance(value, (bool, np.bool_)) else value


class Bool8Array(ExtensionArray, of=Bool8Type):
    """Array of one-byte booleans."""

    __slots__ = ()

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        """Return a bool ndarray of shape (length,); a view, unless there are bytes other than 0 and 1.

        With nulls, return an object array of True, False and None if a copy is allowed.
        """
        if self.null_count:
            if zero_copy_only:
                raise CopyRequired(f"an array with {counted(self.null_count, 'null')} has no zero-copy numpy form")
            result = np.empty(self._length, object)
            result[:] = self.to_pylist()
            return result
        storage: Any = self._storage
        values: NDArray = storage.values
        if not len(values) or int(values.view(np.uint8).max()) <= 1:
            return values.view(np.bool_)
        if zero_copy_only:
            raise CopyRequired(
                f"{self._type}: bytes other than 0 and 1 are not valid numpy bools; pass zero_copy_only=False"
            )
        return np.asarray(values != 0)

    @classmethod
    def from_numpy(cls, type: Any, values: NDArray, valid: Mask | None = None) -> Self:
        """Create an array from bool or int8 values of shape (n,); zero-copy if contiguous."""
        return super().from_numpy(type, values.view(np.int8) if values.dtype == np.bool_ else values, valid)


def bool8() -> Bool8Type:
    """Create the type of one-byte booleans."""
    return Bool8Type()
