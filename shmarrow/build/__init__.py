"""Building arrays: from numpy without copying, from Python values with nulls, with the type given or inferred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.bitmap import Mask
from shmarrow.build.infer import infer_type
from shmarrow.convert.python import kinds_of
from shmarrow.errors import InvalidArgument, InvalidType
from shmarrow.layout import arguments
from shmarrow.layout.array import Array
from shmarrow.layout.from_values import array_from_numpy, array_from_pylist
from shmarrow.types import DataType

__all__ = ["array", "infer_type"]


def array(values: Any, type: DataType | str | None = None, mask: Any = None) -> Any:
    """An array from values of any kind.

    Parameters
    ----------
    values : ndarray, Array, or iterable of Python values
        An ndarray of numbers, dates or times in the order of memory is used as it is, without a copy; one of more
        than one dimension becomes fixed-size lists. None stands for null. A masked ndarray brings its own mask.
    type : DataType or str, optional
        The type; inferred from the values where it is not given.
    mask : bool array, optional
        True makes a slot null, as in pyarrow and ``numpy.ma``.

    Raises
    ------
    InvalidType
        If the values are of a kind that the type cannot take, or of several kinds that no type takes.
    InvalidData
        If a value does not fit the type without loss.
    """
    wanted = None if type is None else types.as_type(type)
    if isinstance(values, Array):
        result = values if wanted is None else values.cast(wanted)
        return result if mask is None else result._take(np.arange(len(result)), ~_as_mask(mask, len(result)))
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values) if mask is None else _as_mask(mask, len(values)) | np.ma.getmaskarray(values)
        values = values.data
    if isinstance(values, np.ndarray):
        if not values.ndim:
            raise InvalidArgument("expected at least one dimension, found a 0-d ndarray")
        valid = None if mask is None else ~_as_mask(mask, len(values))
        return array_from_numpy(values, _type_of(values, valid) if wanted is None else wanted, valid)
    items = values if isinstance(values, (list, tuple)) else list(_iterable(values))
    if mask is not None:
        drop = _as_mask(mask, len(items)).tolist()
        items = [None if dropped else item for item, dropped in zip(items, drop, strict=True)]
    kinds = kinds_of(items)
    return array_from_pylist(items, wanted if wanted is not None else infer_type(items, kinds), kinds)


def _iterable(values: Any) -> Iterable[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidType(f"expected an ndarray or an iterable of values, found {values.__class__.__name__}")
    return values


def _as_mask(mask: Any, length: int) -> Mask:
    result: Mask = np.asarray(mask, np.bool_)
    if result.shape != (length,):
        raise InvalidArgument(f"the mask has the shape {result.shape}, expected ({length},)")
    return result


def _type_of(values: Any, valid: Mask | None) -> DataType:
    """The type of the values of an ndarray; of more than one dimension lists of a fixed size."""
    if values.dtype.kind in "OUST":
        kept = values if valid is None else values[valid]
        return _lists(infer_type(kept.reshape(-1).tolist()), values)
    return _lists(types.from_numpy_dtype(values.dtype), values)


def _lists(type: DataType, values: Any) -> DataType:
    for size in reversed(values.shape[1:]):
        type = types.list_(type, size)
    return type


arguments.builder = array
