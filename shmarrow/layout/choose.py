"""Selection of a union's child for a Python value: the one that round-trips it with the closest type.

Invariants:

* every value has a cost in every child, :data:`REFUSED` if the child would not return an equal value: a timestamp
  never becomes a date, a number never becomes a timestamp, no digit is lost. The child with the lowest cost wins, the
  first of equals;
* costs are computed for whole lists, one Python class at a time; only values of rare classes are tried one by one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shmarrow import types
from shmarrow.bitmap import Mask
from shmarrow.convert import exact_items
from shmarrow.convert.python import DayTime, MonthDayNano
from shmarrow.errors import InvalidType, ShmarrowError, shown
from shmarrow.layout.array import Array
from shmarrow.layout.items import flatten_lists
from shmarrow.layout.map import pair_of
from shmarrow.types.extension import ExtensionType

if TYPE_CHECKING:
    import numpy.typing as npt

Costs: TypeAlias = "npt.NDArray[np.int64]"

REFUSED = 1 << 20
_NONE = type(None)
_SEQUENCES = (list, tuple, range, set, frozenset, np.ndarray, Array)
_BYTES = (bytes, bytearray, memoryview)

_LADDER: list[tuple[Any, tuple[Any, ...]]] = [
    ((bool, np.bool_), (types.BoolType,)),
    (np.timedelta64, (types.DurationType, types.TimeType)),  # before integers, as numpy derives it from them
    ((int, np.integer), (types.IntType, types.IntervalType, (types.FloatType, types.DecimalType))),
    ((float, np.floating), (types.FloatType, types.IntType)),
    (dt.datetime, (types.TimestampType,)),
    (dt.date, (types.DateType,)),
    (dt.time, (types.TimeType,)),
    (dt.timedelta, (types.DurationType,)),
    (np.datetime64, (types.TimestampType, types.DateType)),
    ((DayTime, MonthDayNano), (types.IntervalType,)),
    (str, ((types.BinaryType, types.LargeBinaryType, types.BinaryViewType),)),
    (_BYTES, ((types.BinaryType, types.LargeBinaryType, types.BinaryViewType), types.FixedSizeBinaryType)),
]
"""For each Python class the type classes that round-trip its values, closest first."""

_NATURAL: dict[Any, types.DataType] = {
    int: types.int64(), float: types.float64(), str: types.string(), bytes: types.binary(), dt.date: types.date32(),
    dt.time: types.time64("us"), dt.timedelta: types.duration("us"), bool: types.bool_(),
}  # fmt: skip
"""Types inferred for values of these classes."""


def choose(type: Any, values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the position of the union's child for each value; int64 of shape (n,).

    None goes to a nullable child. Without one it goes to the first: the slot may belong to a null parent, and if not,
    ``validate(full=True)`` reports it.

    Raises
    ------
    InvalidType
        If no child would return an equal value.
    """
    numbers = np.zeros(len(values), np.int64)
    for kind, slots, items in _by_kind(values):
        best = np.full(len(items), REFUSED, np.int64)
        chosen = np.zeros(len(items), np.int64)
        anywhere = kind is not _NONE or not any(field.nullable for field in type.fields)
        bounds = [_at_best(field.type, kind) if anywhere or field.nullable else REFUSED for field in type.fields]
        order = sorted(range(len(bounds)), key=bounds.__getitem__)
        several = len(order) > 1 and bounds[order[1]] < REFUSED
        if several or not (order and _takes_all(type.fields[order[0]].type, kind)):
            for number in order:
                bound = bounds[number]
                open_ = np.flatnonzero(best > bound) if bound < REFUSED else chosen[:0]
                if not len(open_):
                    continue
                some = items if len(open_) == len(items) else [items[i] for i in open_.tolist()]
                cost = _costs_of(type.fields[number].type, kind, some)
                better = cost < best[open_]
                better |= (cost == best[open_]) & (cost < REFUSED) & (number < chosen[open_])
                best[open_[better]] = cost[better]
                chosen[open_[better]] = number
            if len(best) and int(best.max()) >= REFUSED:
                _refuse(type, items[int(best.argmax())])
        else:
            chosen[:] = order[0]
        numbers[slots] = chosen
    return numbers


def _refuse(type: Any, value: Any) -> None:
    raise InvalidType(f"{type}: no child can hold {shown(value)} of type {value.__class__.__name__} exactly")


def _takes_all(type: Any, kind: Any) -> bool:
    """Whether a type accepts all values of a class; building the array still refuses invalid ones."""
    return kind in _NATURAL and _encoded(type) == _NATURAL[kind]


def _by_kind(values: Sequence[Any]) -> Iterator[tuple[Any, npt.NDArray[np.int64], Sequence[Any]]]:
    """The classes of the values, with the slots and values of each."""
    kinds = list(map(type, values))
    distinct = dict.fromkeys(kinds)
    if len(distinct) == 1:
        yield kinds[0], np.arange(len(values)), values
        return
    codes = np.fromiter(map(id, kinds), np.uintp, len(kinds))
    objects = np.fromiter(values, object, len(values))
    for kind in distinct:
        slots = np.flatnonzero(codes == id(kind))
        yield kind, slots, objects[slots].tolist()


def _encoded(type: Any) -> Any:
    """The type of the Python values: the value type of an encoding, or the storage type if nothing is converted."""
    while True:
        if isinstance(type, types.EncodedType):
            type = type.value_type
        elif isinstance(type, ExtensionType) and not _converts(type):
            type = type.storage_type
        else:
            return type


def _converts(type: ExtensionType) -> bool:
    cls = type.__class__
    return cls.to_python is not ExtensionType.to_python or cls.from_python is not ExtensionType.from_python


def _at_best(type: Any, kind: Any) -> int:
    """The lowest possible cost of a value of a class in a type."""
    type = _encoded(type)
    if isinstance(type, types.UnionType):
        return min([_at_best(field.type, kind) for field in type.fields], default=REFUSED)
    if kind is _NONE:
        return 0 if type.layout == "null" else 1
    if isinstance(type, ExtensionType):
        return 0
    if type.fields:
        containers = (*_SEQUENCES, Mapping) if type.layout in ("struct", "map") else _SEQUENCES
        return 0 if issubclass(kind, containers) else REFUSED
    if kind in _NATURAL and type == _NATURAL[kind]:
        return 0
    if kind is dt.datetime and isinstance(type, types.TimestampType) and type.unit == "us":
        return 0
    if issubclass(kind, np.generic) and type.numpy_dtype is not None and type.numpy_dtype == _dtype_of(kind):
        return 0
    for classes, steps in _LADDER:
        if issubclass(kind, classes):
            if type.layout in ("binary", "large_binary", "binary_view") and type.text != issubclass(kind, str):
                return REFUSED
            return next((cost for cost, step in enumerate(steps, 1) if isinstance(type, step)), REFUSED)
    if type.layout == "struct" and issubclass(kind, (*_SEQUENCES, Mapping)):
        return 0
    if isinstance(type, types.DecimalType):
        import decimal

        return 1 if issubclass(kind, decimal.Decimal) else REFUSED
    return 3 if isinstance(type, types.IntervalType) and issubclass(kind, (list, tuple)) else REFUSED


def _dtype_of(kind: Any) -> Any:
    return np.dtype(kind) if issubclass(kind, (np.number, np.bool_)) else None


def costs(type: Any, values: Sequence[Any], nullable: bool = True) -> Costs:
    """Return the cost of each value in a type; int64 of shape (n,)."""
    result = np.full(len(values), REFUSED, np.int64)
    for kind, slots, items in _by_kind(values):
        if kind is not _NONE or nullable:
            result[slots] = _costs_of(type, kind, items)
    return result


def _costs_of(type: Any, kind: Any, items: Sequence[Any]) -> Costs:
    """The cost of each of several values of one class."""
    type = _encoded(type)
    bound = _at_best(type, kind)
    if bound >= REFUSED or kind is _NONE:
        return np.full(len(items), bound, np.int64)
    if isinstance(type, types.UnionType):
        lowest: Costs = np.minimum.reduce([_costs_of(field.type, kind, items) for field in type.fields])
        return lowest
    if isinstance(type, ExtensionType):
        return _round_trip(type, items)
    if type.layout == "struct":
        return _struct_costs(type, kind, items)
    if type.fields:
        return _list_costs(type, kind, items)
    return np.where(_fits(type, kind, items), bound, REFUSED)


# --- scalar values ----------------------------------------------------------------------------------------------


def _fits(type: Any, kind: Any, items: Sequence[Any]) -> Mask:
    """Which values of a class that fits the type it holds exactly."""
    whole = issubclass(kind, (int, np.integer)) and not issubclass(kind, np.timedelta64)
    if isinstance(type, types.IntType) or (whole and isinstance(type, types.IntervalType) and type.unit == "month"):
        info = np.iinfo(type.storage)
        low, high = int(info.min), int(info.max)
        if whole:
            return np.fromiter([low <= value <= high for value in items], np.bool_, len(items))
        return np.fromiter([low <= value <= high and value == int(value) for value in items], np.bool_, len(items))
    if isinstance(type, types.FloatType):
        if whole:
            return np.fromiter([_is_float(int(value), type.storage) for value in items], np.bool_, len(items))
        given = np.array(items)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((given.astype(type.storage) == given) | np.isnan(given))
    if isinstance(type, types.FixedSizeBinaryType):
        return np.fromiter([memoryview(value).nbytes == type.width for value in items], np.bool_, len(items))
    if isinstance(type, types.TimestampType) and issubclass(kind, dt.datetime):
        zoned = type.tz is not None
        alike = np.fromiter([(value.tzinfo is not None) == zoned for value in items], np.bool_, len(items))
        if (kind is dt.datetime and type.unit == "us") or not alike.any():
            return alike
        return alike & _trial(type, items)
    if kind in _NATURAL and (type == _NATURAL[kind] or type.layout in ("binary", "large_binary", "binary_view")):
        return np.ones(len(items), np.bool_)
    return _trial(type, items)


def _is_float(value: int, dtype: Any) -> bool:
    try:
        with np.errstate(over="ignore"):
            return bool(int(dtype.type(float(value))) == value)
    except OverflowError:
        return False


def _trial(type: Any, items: Sequence[Any]) -> Mask:
    """Which values the type's conversion accepts: all at once, or one by one if some fail."""
    from shmarrow.layout.from_values import array_from_pylist

    try:
        array_from_pylist(items, type)
    except ShmarrowError:
        if len(items) == 1:
            return np.zeros(1, np.bool_)
        return np.concatenate([_trial(type, [item]) for item in items])
    return np.ones(len(items), np.bool_)


def _round_trip(type: Any, items: Sequence[Any]) -> Costs:
    """Costs in an extension type with a conversion: 0 if a value round-trips identically, 2 if it is equal."""
    from shmarrow.layout.from_values import array_from_pylist

    result = np.full(len(items), REFUSED, np.int64)
    for i, item in enumerate(items):
        try:
            (back,) = array_from_pylist([item], type).to_pylist()
            if bool(back == item):
                result[i] = 0 if back.__class__ is item.__class__ else 2
        except Exception:  # user code: any exception means that the value is not accepted
            continue
    return result


# --- nested values ----------------------------------------------------------------------------------------------


def _list_costs(type: Any, kind: Any, items: Sequence[Any]) -> Costs:
    base = 3 if issubclass(kind, (DayTime, MonthDayNano)) else 0
    if type.layout == "map":
        return _map_costs(type, kind, items)
    kept = [i for i, item in enumerate(items) if not isinstance(item, np.ndarray) or item.ndim]
    lengths, parts = flatten_lists(type, [items[i] for i in kept])
    result = np.full(len(items), REFUSED, np.int64)
    field = type.fields[0]
    inner = np.maximum(_most(costs(field.type, parts, field.nullable), lengths), base)
    if type.layout == "fixed_size_list":
        inner[lengths != type.list_size] = REFUSED
    result[kept] = inner
    return result


def _most(costs: Costs, lengths: Costs) -> Costs:
    """The highest cost within each run of values; 0 for empty runs."""
    result = np.zeros(len(lengths), np.int64)
    filled = lengths > 0
    if filled.any():
        starts = (np.cumsum(lengths) - lengths)[filled]
        result[filled] = np.maximum.reduceat(costs, starts)
    return result


def _map_costs(type: Any, kind: Any, items: Sequence[Any]) -> Costs:
    base = 1 if issubclass(kind, Mapping) else 2
    result = np.full(len(items), REFUSED, np.int64)
    kept, lengths, keys, values = [], [], [], []
    for i, item in enumerate(items):
        try:
            pairs = [pair_of(type, part) for part in (item.items() if base == 1 else item)]
        except (InvalidType, TypeError):
            continue
        kept.append(i)
        lengths.append(len(pairs))
        keys += [pair[0] for pair in pairs]
        values += [pair[1] for pair in pairs]
    inner = np.maximum(costs(type.key_type, keys, False), costs(type.item_type, values, type.item_field.nullable))
    result[kept] = np.maximum(_most(inner, np.array(lengths, np.int64)), base)
    return result


def _struct_costs(type: Any, kind: Any, items: Sequence[Any]) -> Costs:
    names = type.names
    if len(set(names)) != len(names):
        return np.where(_trial(type, items), 3, REFUSED)
    result = np.full(len(items), REFUSED, np.int64)
    if issubclass(kind, Mapping):
        known = set(names)
        kept = [i for i, item in enumerate(items) if known.issuperset(item)]
        rows = [[items[i].get(name) for name in names] for i in kept]
        base = np.array([0 if len(items[i]) == len(names) else 3 for i in kept], np.int64)
    elif issubclass(kind, (list, tuple)):
        every = [exact_items(item) for item in items]
        kept = [i for i, item in enumerate(every) if len(item) == len(names)]
        rows = [every[i] for i in kept]
        base = np.full(len(kept), 3, np.int64)
    else:
        return result
    for field, column in zip(type.fields, zip(*rows, strict=True), strict=False):
        base = np.maximum(base, costs(field.type, column, field.nullable))
    result[kept] = base
    return result
