"""Conversion to numpy's masked and structured arrays.

Invariants:

* the data of a masked array are zero-copy; only its mask, one byte per slot, is created;
* a structured array interleaves its fields, so it is a copy, filled field by field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.errors import CopyRequired, InvalidArgument, LimitExceeded

if TYPE_CHECKING:
    from shmarrow.layout.array import Array

NDArray = np.ndarray[Any, np.dtype[Any]]


def masked_array(array: Array) -> np.ma.MaskedArray[Any, Any]:
    """Implement :meth:`shmarrow.Array.to_masked_array`."""
    values, nulls = _values_and_nulls(array)
    made: np.ma.MaskedArray[Any, Any] = np.ma.array(values, mask=np.ma.nomask if nulls is None else nulls, copy=False)
    return made


def _values_and_nulls(array: Any) -> tuple[NDArray, NDArray | None]:
    """The values of all slots, unspecified for nulls, and a mask of the nulls; None if there are none."""
    type = array.type
    if type.layout == "extension":
        return _values_and_nulls(array.storage)
    if type.layout in ("dictionary", "run_end_encoded"):
        return _values_and_nulls(array.decode())
    valid = array._mask()
    if type.layout == "fixed_size_list":
        inner, nulls = _values_and_nulls(array._window())
        shape = (len(array), type.list_size, *inner.shape[1:])
        if nulls is None and valid is None:
            return inner.reshape(shape), None
        whole = np.zeros(shape, bool) if nulls is None else nulls.reshape(shape)
        if valid is not None:
            whole[~valid] = True
        return inner.reshape(shape), whole
    if type.layout == "bool":
        values = array.values
    elif type.layout == "primitive" and type.numpy_dtype is not None:
        values = array.values.view(type.numpy_dtype)
    elif type.layout == "primitive" and type.descriptor.values == "date":
        values = array.values.astype("i8").view("M8[D]")
    else:
        raise CopyRequired(f"numpy has no dtype for {type}; call to_numpy(zero_copy_only=False) for Python values")
    return values, None if valid is None else ~valid


def structured_array(names: Sequence[str], columns: Sequence[Any], length: int) -> np.ndarray[Any, np.dtype[np.void]]:
    """Implement :meth:`shmarrow.RecordBatch.to_structured_array`.

    Raises
    ------
    InvalidArgument
        If a column name is duplicate or empty.
    LimitExceeded
        If memory runs out.
    """
    parts = [_part(column) for column in columns]
    fields = [(name, part.dtype, part.shape[1:]) for name, part in zip(names, parts, strict=True)]
    if len({*names, ""}) <= len(names):
        raise InvalidArgument(f"the fields of a structured array need distinct, non-empty names, found {list(names)}")
    try:
        made = np.empty(length, np.dtype(fields))
    except MemoryError:
        raise LimitExceeded(f"no memory for {length} records of {len(names)} fields") from None
    except ValueError as error:
        raise InvalidArgument(f"numpy has no structured dtype for {list(names)}: {error}") from None
    for name, part in zip(names, parts, strict=True):
        made[name] = part
    return made


def _part(column: Any) -> NDArray:
    if column.type.layout == "struct" and not column.null_count:
        names = [field.name for field in column.type.fields]
        return structured_array(names, column.flatten(), len(column))
    found: NDArray = column.to_numpy(zero_copy_only=False)
    return found
