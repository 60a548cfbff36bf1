# SPDX-License-Identifier: Apache-2.0
"""Conversion of ndarrays to the storage of a type."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.buffer import DType, Mask, NDArray
from shmarrow.casts import storage, time
from shmarrow.casts.numbers import Values, faults
from shmarrow.errors import CopyRequired, InvalidArgument, InvalidData, InvalidType
from shmarrow.types import DataType, IntType, from_numpy_dtype


def from_ndarray(type: DataType, values: Values, valid: Mask | None, safe: bool = True) -> Values:
    """Convert an ndarray to the storage of a type; zero-copy if they are the same.

    Parameters
    ----------
    type : DataType
        A boolean, numeric, temporal, interval or fixed-size binary type.
    values : ndarray
        Shape (n,), of any byte order and strides. Integers are counts of the unit for temporal types, and numbers for
        decimals. NaT gives unspecified values.
    valid : bool ndarray or None
        Shape (n,), False for null slots, whose values are ignored.
    safe : bool
        As in :func:`shmarrow.casts.convert`.

    Raises
    ------
    InvalidType
        If the dtype cannot be converted to the type.
    InvalidData
        If a value does not fit.
    InvalidArgument
        If the ndarray has more than one dimension.
    """
    if values.ndim != 1:
        raise InvalidArgument(f"{type}: expected an ndarray of shape (n,), found {values.shape}")
    storage_dtype, kind = type.storage, type.descriptor.values
    if kind == "bytes" and values.dtype.kind in "SV" and values.dtype.itemsize == storage_dtype.itemsize:  # type: ignore[union-attr]
        return values
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind in "Mm":
        result, problems = time.from_numpy_time(values, type, safe)
        storage.refuse(problems, valid, type, lambda slot: str(values[slot]))
        return result
    if kind == "interval" and values.dtype == storage_dtype:
        return values
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        double = values.astype(np.float64)
        lost = (double != values) & (values == values) if safe else None
        problems = faults((lost, "not exact as a 64-bit float", "rounds"))
        storage.refuse(problems, valid, type, lambda slot: repr(values[slot]))
        values = double
    if values.dtype.kind not in "biuf" or kind == "bytes":
        raise InvalidType(f"{type}: cannot convert an ndarray of {values.dtype}")
    source = from_numpy_dtype(values.dtype)
    if (
        values.dtype.kind in "iu"
        and storage_dtype is not None
        and kind in (*time.KINDS, "interval")
        and storage_dtype.kind == "i"
    ):
        counts = IntType(8 * storage_dtype.itemsize, True)
        values, source = storage.convert(values, valid, source, counts, safe), counts
    return storage.convert(values, valid, source, type, safe)


def as_dtype(values: NDArray, dtype: Any, copy: bool | None) -> NDArray:
    """Convert an ndarray to another dtype, for ``__array__``.

    Numeric and temporal conversions are exact or raise if an Arrow type has the dtype; numpy casts other dtypes.

    Parameters
    ----------
    values : ndarray
        Of any shape; NaN and NaT may represent nulls.
    dtype : dtype or None
        The target dtype; None for that of the values.
    copy : bool, optional
        True always copies, False never.

    Raises
    ------
    InvalidData
        If a value does not fit the dtype. NaT stays NaT; NaN does not fit integers.
    CopyRequired
        If a copy is needed and ``copy`` is False.
    """
    target = values.dtype if dtype is None else np.dtype(dtype)
    if target == values.dtype:
        return values.copy() if copy else values
    if copy is False:
        raise CopyRequired(f"converting {values.dtype} to {target} needs a copy")
    if target.kind in "TUS" and values.dtype == object:
        values = _without_none(values, target)
    numbers = target.kind in "biuf" and values.dtype.kind in "biuf" and target.itemsize <= 8
    if not numbers and (target.kind not in "mM" or target.kind != values.dtype.kind):
        return values.astype(target)
    try:
        type = from_numpy_dtype(target)
    except InvalidType:  # a unit that Arrow lacks
        return values.astype(target)
    if type.descriptor.values == "date":
        return values.astype(target)
    flat = values.reshape(-1)
    if numbers:
        array = from_ndarray(type, flat, None)
    else:
        missing = np.isnat(flat)
        array = from_ndarray(type, flat, ~missing).view(target)
        if missing.any():
            array = np.where(missing, np.array("NaT", target), array)
    return array.astype(target, copy=np.may_share_memory(array, values)).reshape(values.shape)


def _without_none(values: NDArray, target: DType) -> NDArray:
    """Objects to convert to strings, with None replaced by the null value of the ``StringDType``."""
    missing = values == np.array(None)
    if not missing.any():
        return values
    if not hasattr(target, "na_object"):
        slot = int(missing.reshape(-1).argmax())
        hint = "np.dtypes.StringDType(na_object=None) can"
        raise InvalidData(f"{target} cannot hold null", where=[("row", slot)], hint=hint)
    return np.where(missing, np.array(target.na_object, object), values)
