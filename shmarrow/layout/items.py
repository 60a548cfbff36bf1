"""Flattening of lists of Python values, ndarrays or arrays into lengths and one array of elements."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.casts import exact_items, kinds_of
from shmarrow.errors import InvalidType, shown
from shmarrow.layout.array import Array
from shmarrow.layout.making import join_arrays
from shmarrow.types import DataType

_NONE = type(None)


def items_of_lists(type: Any, values: Sequence[Any]) -> tuple[Indices, Any]:
    """Return the length of each list, 0 for None, and one array of all elements.

    ndarrays and arrays are concatenated; only Python sequences are converted element by element.

    Raises
    ------
    InvalidType
        If a value is not a list.
    """
    item = type.fields[0].type
    every = kinds_of(values)
    kinds = every - {_NONE}
    join = next((join for kind, join in _JOINS if kinds and all(issubclass(each, kind) for each in kinds)), None)
    if join is None:
        lengths, items = flatten_lists(type, values)
        from shmarrow.layout.from_values import array_from_pylist

        return lengths, array_from_pylist(items, item)
    lengths = np.zeros(len(values), np.int64)
    if _NONE not in every:
        known: Sequence[Any] = values
        slots: Any = slice(None)
    else:
        known = [value for value in values if value is not None]
        slots = np.fromiter([value is not None for value in values], np.bool_, len(values))
    made = join(known, item)
    lengths[slots] = np.fromiter(map(len, known), np.int64, len(known))
    return lengths, made


def _of_arrays(values: Sequence[Any], item: DataType) -> Any:
    """Concatenate arrays."""
    if any(value.type != values[0].type for value in values):
        return join_arrays([value.cast(item) for value in values])
    joined = join_arrays(values)
    return joined if joined.type == item else joined.cast(item)


def forms_of(values: Sequence[NDArray]) -> dict[tuple[Any, ...], list[int]]:
    """Return the positions of ndarrays by dtype, row shape and class.

    Raises
    ------
    InvalidType
        If an ndarray is 0-dimensional.
    """
    forms: dict[tuple[Any, ...], list[int]] = {}
    for i, value in enumerate(values):
        if not value.ndim:
            raise InvalidType(f"the list at {i} is a 0-d ndarray")
        forms.setdefault((value.dtype, value.shape[1:], value.__class__), []).append(i)
    return forms


def _of_ndarrays(values: Sequence[NDArray], item: DataType) -> Any:
    """Concatenate the values of ndarrays, one dtype at a time."""
    forms = forms_of(values)
    if len(forms) == 1:
        return _of_one_dtype(values, item)
    groups = list(forms.values())
    parts = [_of_one_dtype([values[i] for i in group], item) for group in groups]
    order = [i for group in groups for i in group]
    sizes = np.fromiter([len(values[i]) for i in order], np.int64, len(order))
    starts, lengths = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    starts[order], lengths[order] = np.cumsum(sizes) - sizes, sizes
    return join_arrays(parts)._take_runs(starts, lengths)


def _of_one_dtype(values: Sequence[NDArray], item: DataType) -> Any:
    from shmarrow.layout.from_numpy import array_from_numpy

    if isinstance(values[0], np.ma.MaskedArray):
        missing = np.concatenate([np.ma.getmaskarray(value) for value in values])
        return array_from_numpy(np.concatenate([value.data for value in values]), item, ~missing)
    return array_from_numpy(np.concatenate(values), item)


_JOINS: list[tuple[Any, Callable[[Sequence[Any], DataType], Any]]] = [
    (np.ndarray, _of_ndarrays),
    (Array, _of_arrays),
]


def flatten_lists(type: Any, values: Sequence[Any]) -> tuple[Indices, list[Any]]:
    """Return the length of each list, 0 for None, and a flat list of all elements."""
    from shmarrow.layout.from_numpy import items_of

    kinds = kinds_of(values)
    if kinds <= {list, tuple, _NONE}:
        lists = [value or () for value in values] if _NONE in kinds else values
        return np.fromiter(map(len, lists), np.int64, len(values)), list(chain.from_iterable(lists))
    lengths = np.zeros(len(values), np.int64)
    items: list[Any] = []
    for i, value in enumerate(values):
        if value is None:
            continue
        if isinstance(value, np.ndarray) and value.ndim:
            value = items_of(value) if value.ndim == 1 else list(value)
        elif isinstance(value, Mapping) and type.layout == "map":
            value = list(value.items())
        elif isinstance(value, Array):
            value = value.to_pylist()
        elif isinstance(value, (list, tuple, set, frozenset)):
            value = exact_items(value)
        elif not isinstance(value, range):
            text = f"{type}: expected a list, found {shown(value)} of type {value.__class__.__name__}"
            raise InvalidType(text, where=[("row", i)])
        lengths[i] = len(value)
        items += value
    return lengths, items


def spread_lists(child: Any, size: int, lengths: Indices, valid: Mask | None) -> Any:
    """Return the elements of lists of ``size`` each, with nulls for null lists."""
    if valid is None or len(child) == size * len(lengths):
        return child
    filled = np.repeat(valid, size)
    at = np.zeros(len(filled), np.int64)
    at[filled] = np.arange(np.count_nonzero(filled))
    return child._take(at, filled)


def columns_of_dicts(values: Sequence[Any]) -> dict[str, list[Any]] | None:
    """Return the values of dicts by key, or None if not all are dicts with the same string keys."""
    if not len(values) or kinds_of(values) != {dict} or not values[0]:
        return None
    keys = list(values[0])
    if not all(isinstance(key, str) for key in keys) or set(map(len, values)) != {len(keys)}:
        return None
    try:
        return {key: list(map(operator.itemgetter(key), values)) for key in keys}
    except KeyError:
        return None
