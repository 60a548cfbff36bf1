"""Selection of a union's child for a Python value: the first that holds it exactly.

A child holds a value exactly if it gives back an equal value of the same kind: a timestamp never becomes a date, a
number never becomes a timestamp, nor a float an integer, and no digit is lost. An integer is a float or a decimal, too,
if that is exact. Whole lists are checked, one Python class at a time; what only a conversion can tell is tried.
"""

from __future__ import annotations

import datetime as dt
import numbers
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from shmarrow.buffer import Indices, Mask
from shmarrow.casts import exact_items
from shmarrow.casts.python import DayTime, MonthDayNano
from shmarrow.errors import InvalidType, ShmarrowError, shown
from shmarrow.layout.array import Array
from shmarrow.layout.items import flatten_lists
from shmarrow.layout.map import pair_of
from shmarrow.types import EncodedType, ExtensionType, UnionType

_NONE = type(None)

_KINDS: tuple[tuple[Any, set[str]], ...] = (
    ((bool, np.bool_), {"bool"}),
    (np.timedelta64, {"timedelta", "time"}),  # before integers, as numpy derives it from them
    ((int, np.integer), {"integer", "float", "decimal", "interval"}),
    ((float, np.floating), {"float"}),
    (numbers.Number, {"decimal"}),
    (dt.datetime, {"timestamp"}),
    (dt.date, {"date"}),
    (np.datetime64, {"timestamp", "date"}),
    (dt.time, {"time"}),
    (dt.timedelta, {"timedelta"}),
    ((DayTime, MonthDayNano), {"interval"}),
    (str, {"text"}),
    ((bytes, bytearray, memoryview), {"bytes"}),
    (Mapping, {"struct", "map"}),
    ((list, tuple), {"list", "struct", "map"}),
    ((range, set, frozenset, np.ndarray, Array), {"list"}),
)
"""The kinds of types that may hold the values of a Python class; the first row that has the class counts.

Types of a kind that no row has are asked to give back each value.
"""


def choose(type: Any, values: Sequence[Any]) -> Indices:
    """Return the position of the union's child for each value; int64 of shape (n,).

    None goes to the first nullable child. Without one it goes to the first: the slot may belong to a null parent, and
    if not, ``validate(full=True)`` reports it.

    Raises
    ------
    InvalidType
        If no child holds a value exactly.
    """
    chosen = np.zeros(len(values), np.int64)
    for cls, slots, items in _by_class(values):
        if cls is _NONE and type.fields:
            chosen[slots] = next((number for number, field in enumerate(type.fields) if field.nullable), 0)
            continue
        for number, field in enumerate(type.fields):
            held = _held(field.type, cls, items)
            chosen[slots[held]] = number
            if held.all():
                break
            if held.any():
                slots, items = slots[~held], [items[i] for i in np.flatnonzero(~held).tolist()]
        else:
            raise InvalidType(f"{type}: no child can hold {shown(items[0])} of type {cls.__name__} exactly")
    return chosen


def _by_class(values: Sequence[Any]) -> Iterator[tuple[Any, Indices, Sequence[Any]]]:
    """The classes of the values, with the slots and values of each."""
    classes = list(map(type, values))
    distinct = dict.fromkeys(classes)
    if len(distinct) == 1:
        yield classes[0], np.arange(len(values)), values
        return
    codes = np.fromiter(map(id, classes), np.uintp, len(classes))
    objects = np.fromiter(values, object, len(values))
    for cls in distinct:
        slots = np.flatnonzero(codes == id(cls))
        yield cls, slots, objects[slots].tolist()


def _all_held(type: Any, values: Sequence[Any], lengths: Indices) -> Mask:
    """Whether a type holds all values of each of several runs."""
    odd = np.zeros(len(values), np.int64)
    for cls, slots, items in _by_class(values):
        odd[slots] = ~_held(type, cls, items)
    ends = np.cumsum(lengths)
    before = np.append(0, np.cumsum(odd))
    return np.asarray(before[ends] == before[ends - lengths])


def _held(type: Any, cls: Any, items: Sequence[Any]) -> Mask:
    """Mark the values of one class that a type holds exactly."""
    if isinstance(type, EncodedType):
        return _held(type.value_type, cls, items)
    if isinstance(type, UnionType):
        every = [_held(field.type, cls, items) for field in type.fields]
        return np.asarray(np.logical_or.reduce([np.zeros(len(items), np.bool_), *every]))
    if isinstance(type, ExtensionType):
        made = type.__class__
        if made.to_python is ExtensionType.to_python and made.from_python is ExtensionType.from_python:
            return _held(type.storage_type, cls, items)
        return np.fromiter([_gives_back(type, item) for item in items], np.bool_, len(items))
    kind = _kind_of(type)
    if cls is _NONE:
        return np.ones(len(items), np.bool_)
    if not any(kind in kinds for _, kinds in _KINDS):
        return np.fromiter([_gives_back(type, item) for item in items], np.bool_, len(items))
    if kind not in next((kinds for classes, kinds in _KINDS if issubclass(cls, classes)), ()):
        return np.zeros(len(items), np.bool_)
    if kind in ("list", "struct", "map"):
        return _nested(type, kind, items)
    if kind == "integer":
        info = np.iinfo(type.storage)
        low, high = int(info.min), int(info.max)
        return np.fromiter([low <= value <= high for value in items], np.bool_, len(items))
    if kind == "float":
        if issubclass(cls, (int, np.integer)):
            return np.fromiter([_is_float(int(value), type.storage) for value in items], np.bool_, len(items))
        given = np.array(items)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((given.astype(type.storage) == given) | np.isnan(given))
    if type.storage is None:
        return np.ones(len(items), np.bool_)
    return _accepted(type, items)


def _kind_of(type: Any) -> str:
    """The kind of a type in :data:`_KINDS`."""
    if hasattr(type, "text"):
        return "text" if type.text else "bytes"
    return "list" if hasattr(type, "value_field") else str(type.descriptor.values or type.layout)


def _is_float(value: int, dtype: Any) -> bool:
    try:
        with np.errstate(over="ignore"):
            return bool(int(dtype.type(float(value))) == value)
    except OverflowError:
        return False


def _accepted(type: Any, items: Sequence[Any]) -> Mask:
    """Mark the values that the type's exact conversion accepts: all are tried at once, then one by one if any fails."""
    from shmarrow.layout.from_values import array_from_pylist

    try:
        array_from_pylist(items, type)
    except ShmarrowError:
        if len(items) == 1:
            return np.zeros(1, np.bool_)
        return np.concatenate([_accepted(type, [item]) for item in items])
    return np.ones(len(items), np.bool_)


def _gives_back(type: Any, item: Any) -> bool:
    """Whether a type gives back a value."""
    from shmarrow.layout.from_values import array_from_pylist

    try:
        (back,) = array_from_pylist([item], type).to_pylist()
        return bool(back == item) and isinstance(back, bool) == isinstance(item, (bool, np.bool_))
    except Exception:  # user code: any exception means that the value is not accepted
        return False


def _nested(type: Any, kind: str, items: Sequence[Any]) -> Mask:
    """Mark the lists, structs or maps that have the shape of a type and whose items its children hold exactly."""
    if kind != "list":
        parts = [(_values if kind == "struct" else _pairs)(type, item) for item in items]
        fits = np.fromiter([each is not None for each in parts], np.bool_, len(parts))
        whole = zip(*[each for each in parts if each is not None], strict=True)
        columns = [
            (np.fromiter(map(len, column), np.int64, len(column)), list(chain.from_iterable(column)))
            for column in whole
        ]
    else:
        fits = np.fromiter([not isinstance(item, np.ndarray) or item.ndim > 0 for item in items], np.bool_, len(items))
        columns = [flatten_lists(type, [items[i] for i in np.flatnonzero(fits).tolist()])]
    fields = type.fields[0].type.fields if kind == "map" else type.fields
    good = np.ones(np.count_nonzero(fits), np.bool_)
    for field, (lengths, values) in zip(fields, columns, strict=False):
        good &= _all_held(field.type, values, lengths)
        good &= lengths == getattr(type, "list_size", lengths)
    fits[fits] = good
    return fits


def _values(type: Any, item: Any) -> Sequence[Sequence[Any]] | None:
    """The value of each field of a struct, in a list; None if it has other fields."""
    if isinstance(item, Mapping):
        return [[item.get(name)] for name in type.names] if set(type.names).issuperset(item) else None
    values = exact_items(item)
    return [[value] for value in values] if len(values) == len(type.names) else None


def _pairs(type: Any, item: Any) -> Sequence[Sequence[Any]] | None:
    """The keys and the items of a map; None if these are no pairs."""
    try:
        pairs = [pair_of(type, part) for part in (item.items() if isinstance(item, Mapping) else exact_items(item))]
    except InvalidType:
        return None
    return [[key for key, _ in pairs], [value for _, value in pairs]]
