# SPDX-License-Identifier: Apache-2.0
"""Sources of values: each is normalized to an array, an ndarray or a list."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from shmarrow import capsules
from shmarrow.build import pandas
from shmarrow.errors import InvalidType, MissingExtra, full_name, optional
from shmarrow.layout import Array
from shmarrow.layout.dlpack import ndarray_of

Reader = Callable[[Any], Any]


def _of_capsules(value: Any) -> Array:
    from shmarrow.layout.c_stream import read_array

    return read_array(value)


def _of_arrow_array(value: Any) -> Array:
    """Convert an object with ``__arrow_array__`` through pyarrow; copies only if it has several chunks.

    Raises
    ------
    InvalidType
        If the method does not return an Arrow array.
    MissingExtra
        If pyarrow is not installed.
    """
    pa = optional("pyarrow")
    try:
        array = pa.array(value)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidType(f"{full_name(value)} did not return an Arrow array: {error}") from None
    return _of_capsules(array)


_INTERFACES: dict[str, Reader] = {
    "__shmarrow_array__": lambda obj: obj.__shmarrow_array__(),
    capsules.ARRAY: _of_capsules,
    capsules.STREAM: _of_capsules,
    "__arrow_array__": _of_arrow_array,
}
"""Converters to arrays, by the method that an object's class has."""


def plain(obj: Any, size: int | None, build: Callable[..., Any]) -> tuple[Any, bool]:
    """Return an object as an array, ndarray or list, and whether NaN means null in it.

    NaN is pandas' only mark for a missing value in an ndarray; where it has a mask or Arrow's validity, NaN is a value.

    Parameters
    ----------
    obj : object
        Any container of values.
    size : int, optional
        Number of values to read from an iterator.
    build : callable
        Converts a part of the object to an array.

    Raises
    ------
    InvalidType
        If the values cannot be a single column.
    MissingExtra
        If reading it needs nanoarrow or pyarrow, which is not installed.
    """
    kind = obj.__class__
    if pandas.is_pandas(kind):
        values = pandas.values_of(obj, build, _by_interface)
        return values, values.__class__ is np.ndarray
    if any(hasattr(kind, method) for method in _INTERFACES):
        return _by_interface(obj), False
    if isinstance(obj, (str, bytes, bytearray, Mapping)):
        raise InvalidType(f"expected an ndarray or an iterable of values, found {kind.__name__}")
    if hasattr(kind, "__array__") or kind.__name__ in ("memoryview", "array"):
        return ndarray_of(obj), False
    if not isinstance(obj, Iterable):
        text = f"expected an ndarray or an iterable of values, found {full_name(obj)}"
        raise InvalidType(text, hint=capsules.next_step(obj))
    return list(obj if size is None else islice(obj, min(size, sys.maxsize))), False


def _by_interface(obj: Any) -> Any:
    for method, reader in _INTERFACES.items():
        if hasattr(obj.__class__, method):
            return reader(obj)
    raise MissingExtra(f"{full_name(obj)} can only be read through pyarrow: pip install 'shmarrow[arrow]'")
