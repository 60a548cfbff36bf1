"""The arrays of a sparse tensor's index: conversion and checks; positions of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.buffer import DType, NDArray
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, LimitExceeded
from shmarrow.tensor.element import Element, as_ndarray, element_values
from shmarrow.types import DataType, IntType, as_type

Coordinates = tuple[NDArray, ...]
"""One array per dimension."""
IndexType = DataType | str | None

_STEP = 1 << 19
"""Chunk size, in elements, of the search for non-zeros; the mask stays in the CPU cache."""


def as_index(values: Any, what: str) -> NDArray:
    """Convert to little-endian integers, as a view if possible."""
    index = as_ndarray(values)
    if index.dtype.kind not in "iu":
        raise InvalidType(f"{what} must be integers, found {index.dtype}")
    index = index.astype(index.dtype.newbyteorder("<"), copy=False)
    return index.copy() if min(index.strides, default=0) < 0 else index


def as_flat_index(values: Any, what: str) -> NDArray:
    """Convert to a contiguous array of one dimension."""
    index = as_index(values, what)
    if index.ndim != 1:
        raise InvalidArgument(f"{what} must be an array of one dimension, found the shape {index.shape}")
    return np.ascontiguousarray(index)


def index_dtype(index_type: IndexType, largest: int, default: str | None = None) -> DType:
    """The dtype of an index with values up to ``largest``: as requested, or the smaller of int32 and int64."""
    if index_type is None:
        return np.dtype(default or ("<i4" if largest < 1 << 31 else "<i8"))
    type = as_type(index_type)
    if not isinstance(type, IntType):
        raise InvalidType(f"the type of an index must be an integer, found {type}")
    if largest > np.iinfo(type.storage).max:
        raise InvalidArgument(f"an index of {type} holds values up to {np.iinfo(type.storage).max}, needed: {largest}")
    return type.storage


def check_range(index: NDArray, size: int, what: str) -> None:
    """Check that all values are in ``[0, size)``."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= size:
            raise InvalidData(f"{what} run from {low} to {high}, but the dimension has {size} elements")


def check_ends(indptr: NDArray, last: int, what: str) -> None:
    """Check the first and last value of an indptr."""
    if int(indptr[0]) != 0 or int(indptr[-1]) != last:
        raise InvalidData(f"{what} runs from {int(indptr[0])} to {int(indptr[-1])}, expected 0 to {last}")


def check_rising(indptr: NDArray, what: str) -> None:
    """Check that an indptr never decreases."""
    back = indptr[1:] < indptr[:-1]
    if back.any():
        at = int(back.argmax())
        raise InvalidData(f"{what} decreases from {int(indptr[at])} to {int(indptr[at + 1])} at {at + 1}")


def counted(index: NDArray, size: int) -> NDArray:
    """The indptr of sorted values in ``[0, size)``: the start of each value's run, and the end."""
    try:
        indptr = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(index.astype(np.intp, copy=False), minlength=size), out=indptr[1:])
    except (MemoryError, ValueError):
        raise LimitExceeded(
            f"an indptr over {size} slices takes {8 * (size + 1)} bytes, more than the available memory"
        ) from None
    return indptr


def non_zero(flat: NDArray, element: Element) -> NDArray:
    """The positions of non-zero elements in a flat array."""
    values = element_values(flat, element)
    if values.dtype.kind in "Mmb":
        values = values.view(f"i{values.itemsize}")
    whole = (
        values.view("u1").reshape(len(values), -1) if element.ml_dtype is None and values.dtype.kind == "V" else None
    )
    found = []
    for start in range(0, len(values), _STEP):
        part = whole[start : start + _STEP].any(axis=1) if whole is not None else values[start : start + _STEP] != 0
        places = np.flatnonzero(part)
        places += start
        found.append(places)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def has_repeats(places: NDArray) -> bool:
    """Whether a position occurs several times."""
    if (places[1:] > places[:-1]).all():
        return False
    ordered = np.sort(places)
    return bool((ordered[1:] == ordered[:-1]).any())
