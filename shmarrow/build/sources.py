"""Sources of values: each is normalized to an array, an ndarray or a list."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from shmarrow import foreign
from shmarrow.build import pandas
from shmarrow.errors import InvalidType, MissingExtra, full_name

Reader = Callable[[Any], Any]

_READERS: dict[type, Reader] = {}
_INTERFACES: dict[str, Reader] = {}


def read_class(kind: type, reader: Reader) -> None:
    """Register ``reader`` to convert objects of a class to arrays."""
    _READERS[kind] = reader


def read_interface(method: str, reader: Reader) -> None:
    """Register ``reader`` to convert objects of unregistered classes that have this method."""
    _INTERFACES[method] = reader


def plain(obj: Any, size: int | None, build: Callable[..., Any]) -> tuple[Any, bool]:
    """Return an object as an array, ndarray or list, and whether NaN means null in it, as in pandas.

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
    for base in kind.__mro__:
        if base in _READERS:
            return _READERS[base](obj), False
    if pandas.is_pandas(kind):
        return pandas.values_of(obj, build, _by_interface), True
    if any(hasattr(kind, method) for method in _INTERFACES):
        return _by_interface(obj), False
    if isinstance(obj, (str, bytes, bytearray, Mapping)):
        raise InvalidType(f"expected an ndarray or an iterable of values, found {kind.__name__}")
    if hasattr(kind, "__array__") or kind.__name__ in ("memoryview", "array"):
        try:
            return np.asarray(obj), False
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            raise InvalidType(f"{full_name(obj)} cannot be converted to an ndarray: {error}") from None
    if not isinstance(obj, Iterable):
        found = full_name(obj) + foreign.next_step(obj)
        raise InvalidType(f"expected an ndarray or an iterable of values, found {found}")
    return list(obj if size is None else islice(obj, min(size, sys.maxsize))), False


def _by_interface(obj: Any) -> Any:
    for method, reader in _INTERFACES.items():
        if hasattr(obj.__class__, method):
            return reader(obj)
    raise MissingExtra(f"{full_name(obj)} can only be read through pyarrow: pip install 'shmarrow[arrow]'")
