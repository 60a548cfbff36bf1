# SPDX-License-Identifier: Apache-2.0
"""Conversion and checks of arguments: arrays, integers, indices and masks."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from shmarrow.buffer import EMPTY, Bytes, DType, Indices, Mask, NDArray
from shmarrow.casts import listed
from shmarrow.errors import IndexOutOfRange, InvalidArgument, InvalidData, InvalidType, counted, shown
from shmarrow.layout.construct import checked_size, frozen, items_of, refuse_type, validity_of
from shmarrow.layout.hooks import LayoutHooks
from shmarrow.layout.listing import LISTING
from shmarrow.types import DataType, DictionaryType, int64, storage_of


def is_array(value: object) -> TypeGuard[Any]:
    """Return whether a value is an array of this package."""
    return isinstance(value, LayoutHooks)


def build_array(values: Any, type: Any = None, mask: Any = None, **options: Any) -> Any:
    """Make an array of values: :func:`shmarrow.array`, a door to what stands above the layouts."""
    from shmarrow.build import array

    return array(values, type, mask, **options)


def as_array(values: Any, what: str, type: DataType | None = None) -> Any:
    """Return an array unchanged; convert anything else with :func:`shmarrow.array`, with ``type`` if given.

    Raises
    ------
    InvalidType
        If ``values`` is a type, which belongs last.
    """
    if is_array(values):
        return values
    refuse_type(values, what)
    return build_array(values, type)


def one_array(values: Any) -> Any:
    """Return a chunked array as one array, a masked ndarray as an array with nulls; anything else unchanged."""
    if hasattr(type(values), "__shmarrow_array__"):
        return values.__shmarrow_array__()
    if not isinstance(values, np.ma.MaskedArray):
        return values
    return build_array(values) if values.ndim == 1 and np.ma.getmaskarray(values).any() else values.data


def exact_integers(values: Any, dtype: DType, what: str) -> NDArray:
    """Return integers of shape (n,) in another dtype without loss; a view if they already have it.

    Raises
    ------
    InvalidType
        If the values are not integers, or one is null.
    InvalidData
        If a value does not fit the dtype.
    """
    values = one_array(values)
    if is_array(values):
        plain = values._storage
        if values.null_count or plain.type.layout != "primitive":
            raise InvalidType(
                f"{what} must be integers without nulls, found {values.type}, {counted(values.null_count, 'null')}"
            )
        values = plain.values
    refuse_type(values, what)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidType(f"{what} must be integers: {error}") from None
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidType(f"{what} must be integers, found {array.dtype}")
    if array.ndim != 1:
        raise InvalidArgument(f"{what} must have one dimension, found the shape {array.shape}")
    if array.dtype != dtype and array.size:
        info = np.iinfo(dtype)
        low, high = int(array.min()), int(array.max())
        if low < info.min or high > info.max:
            raise InvalidData(f"{what} range from {low} to {high}, which does not fit {dtype.name}")
    return np.ascontiguousarray(array, dtype)


def offsets_and_nulls(offsets: Any, dtype: DType, what: str = "offsets") -> tuple[NDArray, Mask | None]:
    """Return offsets of shape (n,), and which are valid; None if all are.

    A null offset gets the value of the next valid one.
    """
    offsets = one_array(offsets)
    if getattr(offsets, "null_count", 0) or (isinstance(offsets, (list, tuple)) and None in offsets):
        offsets = as_array(offsets, what, int64())._storage
        valid = offsets._mask()
        if valid is not None and offsets.type.layout == "primitive":
            nearest = np.where(valid, np.arange(len(valid)), len(valid))
            nearest = np.minimum.accumulate(nearest[::-1])[::-1]
            values = np.append(offsets.values, offsets.values.dtype.type(0))[nearest]
            return exact_integers(values, dtype, what), valid
    return exact_integers(offsets, dtype, what), None


def checked_positions(indices: Any) -> tuple[Indices, Mask | None]:
    """Return indices of dtype int64 and shape (n,), and which are valid; None if all are."""
    valid: Mask | None = None
    indices = one_array(indices)
    if isinstance(indices, np.ndarray) and indices.dtype == np.int64 and indices.ndim == 1:
        return indices, None
    indices = indices._storage if is_array(indices) else indices
    if is_array(indices) and indices._type.layout == "primitive":
        valid = indices._mask()
        values = np.asarray(indices.values)
        if valid is not None and values.dtype.kind in "iu":
            values = np.where(valid, values, 0)
    else:
        if getattr(indices, "null_count", 0):  # arrays of any library, which numpy would convert to floats
            indices = indices.to_pylist()
        try:
            if isinstance(indices, (list, tuple)):
                indices = listed(indices)
                if None in indices:
                    valid = np.array([index is not None for index in indices], np.bool_)
                    indices = [0 if index is None else index for index in indices]
                kinds = set(map(type, indices))
                if bool in kinds or np.bool_ in kinds:
                    values = np.empty(len(indices), np.bool_)
                else:
                    exact = all(issubclass(kind, (int, np.integer)) for kind in kinds)
                    values = np.array(indices, np.int64 if exact else None)
            else:
                values = np.asarray(indices)
        except OverflowError:
            raise IndexOutOfRange(f"index {shown(max(indices, key=abs))} is out of range of any array") from None
        except (TypeError, ValueError) as error:
            raise InvalidType(f"indices must be integers, found {indices.__class__.__name__}: {error}") from None
    if values.dtype.kind == "b":
        raise InvalidType("indices must be integers, found bools; use filter(mask) to select by a mask")
    if isinstance(indices, (str, bytes)):
        raise InvalidType(f"indices must be integers, found {shown(indices)}")
    if values.ndim != 1:
        raise InvalidArgument(f"indices must have the shape (n,), found {values.shape}")
    if not len(values):
        return np.empty(0, np.int64), None
    if values.dtype.kind not in "iu":
        raise InvalidType(f"indices must be integers, found {values.dtype}")
    if values.dtype.kind == "u" and int(values.max()) >= 1 << 63:
        raise IndexOutOfRange(f"index {int(values.max())} is out of range of any array")
    return values.astype(np.int64, copy=False), valid


def checked_mask(mask: Any, length: int) -> Mask:
    """Return a mask as bools of shape (length,).

    Raises
    ------
    InvalidType
        If a value is not a bool; None and nulls are not allowed.
    InvalidArgument
        If the shape is wrong.
    """
    refuse_type(mask, "a mask")
    mask = one_array(mask)
    if getattr(mask, "null_count", 0):
        raise InvalidType(f"a mask must not have nulls, found {counted(mask.null_count, 'null')}")
    if isinstance(mask, (list, tuple)) and not (kinds := set(map(type, mask))) <= {bool, np.bool_}:
        names = sorted(kind.__name__ for kind in kinds)[:8]
        raise InvalidType(f"a mask must be bools, found {', '.join(names)}")
    try:
        values = np.asarray(mask)
    except (TypeError, ValueError) as error:
        raise InvalidType(f"a mask must be bools, found {mask.__class__.__name__}: {error}") from None
    if values.dtype != np.bool_ and values.size:
        raise InvalidType(f"a mask must be bools, found {values.dtype}")
    if values.shape != (length,):
        raise InvalidArgument(f"the mask must have the shape ({length},), found {values.shape}")
    return values.astype(np.bool_, copy=False)


def masked_validity(mask: Any, length: int, valid: Mask | None = None) -> tuple[Bytes | None, int]:
    """Return a validity bitmap and its null count, from a mask that is True for nulls, or from the valid slots.

    Raises
    ------
    InvalidArgument
        If both are given, or the length of the mask is wrong.
    InvalidType
        If the mask is not bools.
    """
    if mask is None:
        return validity_of(valid)
    if valid is not None:
        raise InvalidArgument("found both a mask and null offsets; only one of them may mark nulls")
    return validity_of(~checked_mask(mask, length))


def checked_parts(
    type: DataType, length: Any, buffers: Any, null_count: Any, offset: Any, children: Any
) -> tuple[int, list[Bytes | None], int, int, list[Any]]:
    """Return checked length, buffers, null count, offset and children of an array; sizes are checked elsewhere.

    Raises
    ------
    InvalidType
        If an argument is of the wrong class, or the type is a dictionary.
    InvalidArgument
        If the length or offset is negative.
    """
    if isinstance(storage_of(type), DictionaryType):
        raise InvalidType(f"{type}: buffers cannot hold the dictionary; use DictionaryArray.from_arrays")
    slots, first = checked_size(length, "a length"), checked_size(offset, "an offset")
    nulls = -1 if null_count == -1 else checked_size(null_count, "a null count")
    if not LISTING[type.layout].has_validity:  # any count is accepted, and ignored
        nulls = -1
    for child in items_of(children, "children"):
        if not is_array(child):
            raise InvalidType(f"{type}: children must be Arrays, found {child.__class__.__name__}")
    rows, views = LISTING[type.layout].buffers, items_of(buffers, "buffers")
    if not LISTING[type.layout].has_validity and views and views[0] is None:
        views = views[1:]
    parts = [_as_bytes(type, data) for data in views]
    filled = [
        EMPTY if data is None and row.role != "validity" else data for row, data in zip(rows, parts, strict=False)
    ]
    return slots, [*filled, *parts[len(rows) :]], nulls, first, list(children)


def _as_bytes(type: DataType, data: Any) -> Bytes | None:
    if data is None:
        return None
    try:
        view = memoryview(data)
        return frozen(np.frombuffer(view.cast("B"), np.uint8)) if view.nbytes else EMPTY
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidType(
            f"{type}: a buffer must be contiguous bytes, found {data.__class__.__name__}: {error}"
        ) from None
