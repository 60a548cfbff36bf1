# SPDX-License-Identifier: Apache-2.0
"""Type inference from values; and NaN to null, as pandas marks missing values in float and object columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from shmarrow import types
from shmarrow.buffer import Mask, NDArray
from shmarrow.casts import kinds_of, listed
from shmarrow.casts.python import DayTime, MonthDayNano
from shmarrow.errors import InvalidType, Part, renumbered, shown
from shmarrow.extension import uuid
from shmarrow.layout import Array
from shmarrow.layout.values import columns_of_dicts, forms_of, lists_of, null_kinds, type_of_dtype
from shmarrow.types import DataType, ExtensionType, from_numpy_dtype
from shmarrow.types.primitive import zone_name


def without_nan(values: Sequence[Any]) -> Sequence[Any]:
    """Return Python values with NaN replaced by None, also in lists and dicts; ndarrays are unchanged."""
    kinds = kinds_of(values)
    numbers = {kind for kind in kinds if issubclass(kind, (float, np.floating))}
    decimals = {kind for kind in kinds if kind.__name__ == "Decimal"}
    whole = {kind for kind in kinds if kind in (list, tuple) or issubclass(kind, Mapping)}
    if decimals or whole:
        missing: dict[Any, Callable[[Any], Any]] = dict.fromkeys(whole, _deep)
        missing |= dict.fromkeys(decimals, lambda value: None if value.is_nan() else value)
        missing |= dict.fromkeys(numbers, lambda value: value if value == value else None)
        return [missing[value.__class__](value) if value.__class__ in missing else value for value in values]
    if numbers:
        return [None if value.__class__ in numbers and value != value else value for value in values]
    return values


def _deep(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(zip(value, without_nan(list(value.values())), strict=True))
    return without_nan(value)


def nan_to_null(array: Array) -> Any:
    """Return the array with NaN made null, also in children; copies no values."""
    if isinstance(array.type, ExtensionType):
        return array
    missing = array._nans()
    if missing is not None:
        return array.trim()._masked(array._valid() & ~missing) if missing.any() else array
    children = [nan_to_null(child) for child in array.children]
    if all(new is old for new, old in zip(children, array.children, strict=True)):
        return array
    return array._with(children=children)


_NONE = type(None)
_BY_CLASS: list[tuple[Any, DataType]] = [
    ((bool, np.bool_), types.bool_()),
    (str, types.string()),
    ((bytes, bytearray, memoryview), types.binary()),
    (dt.time, types.time64("us")),
    (MonthDayNano, types.month_day_nano_interval()),
    (DayTime, types.day_time_interval()),
]
_NO_INTEGERS = (bool, np.timedelta64)  # subclasses of integers
_UNITS = ("D", "s", "ms", "us", "ns")
_LISTS = (list, tuple, np.ndarray, Array, range, set, frozenset)
_SEQUENCES = (list, tuple, set, frozenset)
_DEPTH = 64

_HINTS: dict[str, str] = {
    "Enum": "convert members to their .value",
    "Period": "call .to_timestamp()",
    "Interval": "convert to structs of .left and .right",
    "Series": "convert each with .tolist()",
    "Index": "convert each with .tolist()",
    "Scalar": "call .as_py()",
    "complex": "convert to structs of real and imaginary part",
    "complexfloating": "convert to structs of real and imaginary part",
    "PurePath": "convert with str()",
    "Fraction": "convert to floats or decimals",
    "BaseOffset": "convert to shmarrow.MonthDayNano",
}
"""Remedies for values without an Arrow type, by the name of their class or a base class."""


def type_of_values(values: Sequence[Any], kinds: set[Any] | None = None, above: tuple[Any, ...] = ()) -> DataType:
    """Infer the type of Python values; ``kinds`` are their classes, if known, ``above`` the enclosing lists."""
    kinds = kinds_of(values) if kinds is None else kinds
    blank = null_kinds(kinds)
    kinds = kinds - blank
    if not kinds:
        return types.null()
    if blank - {_NONE}:
        values = [value for value in values if value.__class__ not in blank]
    for classes, type in _BY_CLASS:
        if all(issubclass(kind, classes) for kind in kinds):
            return type
    integers = {kind for kind in kinds if issubclass(kind, (int, np.integer)) and not issubclass(kind, _NO_INTEGERS)}
    floats = {kind for kind in kinds if issubclass(kind, (float, np.floating))}
    if kinds == integers:
        return _integers(values, kinds)
    if kinds == integers | floats:
        if all(issubclass(kind, np.generic) for kind in kinds):
            return type_of_dtype(np.result_type(*[np.dtype(kind) for kind in kinds]))
        return types.float64()
    names = {kind.__name__ for kind in kinds}
    ours_or_pyarrows = names == {"MonthDayNano"} and all(issubclass(kind, tuple) for kind in kinds)
    if ours_or_pyarrows or names == {"DateOffset"}:
        return types.month_day_nano_interval()
    if names == {"UUID"}:
        return uuid()
    if all(issubclass(kind, (dt.date, np.datetime64)) for kind in kinds):
        return _moments(values, kinds)
    if all(issubclass(kind, (dt.timedelta, np.timedelta64)) for kind in kinds):
        return _spans(values, kinds)
    if any(kind.__module__ in ("decimal", "_decimal") for cls in kinds for kind in cls.__mro__):
        import decimal

        if kinds == integers | {kind for kind in kinds if issubclass(kind, decimal.Decimal)}:
            return _decimals(values)
    if all(issubclass(kind, Mapping) for kind in kinds):
        return _struct(values, above)
    if all(issubclass(kind, _LISTS) for kind in kinds):
        return _list(values, kinds, above)
    _refuse(values, kinds)


def type_of_ndarray(values: NDArray, valid: Mask | None = None) -> DataType:
    """Infer the type of an ndarray's values; fixed-size lists if multidimensional."""
    dtype = values.dtype
    if values.ndim == 1 and not dtype.hasobject:
        return type_of_dtype(dtype)
    if dtype.kind == "O":
        present = values if valid is None else values[valid]
        return lists_of(type_of_values(present.reshape(-1).tolist()), values.shape[1:])
    if dtype.names is not None and dtype.hasobject:
        fields = {name: type_of_ndarray(values[name].reshape(-1)) for name in dtype.names}
        return lists_of(types.struct(fields), values.shape[1:])
    return lists_of(type_of_dtype(dtype), values.shape[1:])


def _refuse(values: Sequence[Any], kinds: set[Any]) -> NoReturn:
    """Raise for the first value without a type, or without a common type with the first value."""
    slots: dict[Any, int] = {}
    for i, value in enumerate(values):
        if value.__class__ in kinds:
            slots.setdefault(value.__class__, i)
    if len(slots) > 1:
        names = ", ".join([kind.__name__ for kind in list(slots)[:4]])
        text = f"no single type fits all values, which are of the types {names}"
        raise InvalidType(text, where=[("row", list(slots.values())[1])], hint="pass type=")
    ((kind, slot),) = slots.items()
    hint = next((_HINTS[cls.__name__] for cls in kind.__mro__ if cls.__name__ in _HINTS), None)
    found = " ".join(shown(values[slot]).split())
    raise InvalidType(f"{kind.__name__} has no Arrow type, found {found}", where=[("row", slot)], hint=hint)


def _integers(values: Sequence[Any], kinds: set[Any]) -> DataType:
    if all(issubclass(kind, np.integer) for kind in kinds):
        dtypes = [np.dtype(kind) for kind in kinds]
        if len({dtype.kind for dtype in dtypes}) == 1:
            return from_numpy_dtype(np.result_type(*dtypes))
        values = [None if value is None else int(value) for value in values]
    if max(filter(None, values), default=0) >= 1 << 63 and min(filter(None, values)) >= 0:  # skips None and 0
        return types.uint64()
    return types.int64()


def _decimals(values: Sequence[Any]) -> DataType:
    import decimal

    whole = scale = 0
    for i, value in enumerate(values):
        if value is not None:
            number = decimal.Decimal(int(value)) if isinstance(value, np.integer) else decimal.Decimal(value)
            if not number.is_finite():
                raise InvalidType(f"{number} does not fit any decimal type", where=[("row", i)])
            exponent = number.as_tuple().exponent
            assert isinstance(exponent, int)
            scale = max(scale, -exponent)
            whole = max(whole, number.adjusted() + 1 if number else 0)
    precision = max(whole + scale, 1)
    if precision > 76:
        raise InvalidType(f"the values need {precision} digits, decimals have at most 76")
    return types.decimal128(precision, scale) if precision <= 38 else types.decimal256(precision, scale)


# --- dates, timestamps and durations ----------------------------------------------------------------------------


def _numpy_units(values: Sequence[Any], kind: Any) -> set[str]:
    """The Arrow units of numpy's datetimes or timedeltas among the values; NaT counts only if it has a unit."""
    units = set()
    for dtype in {value.dtype for value in values if isinstance(value, kind) and not _is_blank(value)}:
        type: Any = type_of_dtype(dtype)
        units.add("D" if type.unit == "day" else type.unit)
    return units


def _is_blank(value: Any) -> bool:
    return bool(np.isnat(value)) and np.datetime_data(value.dtype)[0] == "generic"


def _finest(units: set[str]) -> str:
    return max(units, key=_UNITS.index)


def _spans(values: Sequence[Any], kinds: set[Any]) -> DataType:
    units = _numpy_units(values, np.timedelta64)
    python = [kind for kind in kinds if issubclass(kind, dt.timedelta) and not issubclass(kind, np.timedelta64)]
    if python:
        nanos = any(hasattr(kind, "nanoseconds") for kind in python)
        units.add("ns" if nanos and any(getattr(value, "nanoseconds", 0) for value in values) else "us")
    return from_numpy_dtype(f"m8[{_finest(units)}]") if units else types.null()


def _moments(values: Sequence[Any], kinds: set[Any]) -> DataType:
    units = _numpy_units(values, np.datetime64)
    classes = {kind for kind in kinds if issubclass(kind, dt.datetime)}
    dates = any(issubclass(kind, dt.date) for kind in kinds - classes)
    if dates and (classes or units - {"D"}):
        raise InvalidType("no single type fits dates and timestamps: a date is not a timestamp at midnight; pass type=")
    if not classes:
        if not units and not dates:
            return types.null()
        return types.timestamp(_finest(units)) if units - {"D"} else types.date32()
    moments = [value for value in values if value.__class__ in classes]
    nanos = any(hasattr(kind, "nanosecond") for kind in classes)
    units.add("ns" if nanos and any(getattr(value, "nanosecond", 0) for value in moments) else "us")
    zones = list(dict.fromkeys([value.tzinfo for value in moments]))
    aware = [zone for zone in zones if zone is not None]
    if aware and (len(aware) < len(zones) or len(classes) < len(kinds)):
        raise InvalidType(
            "no single type fits timestamps with a time zone and dates or timestamps without one; pass type="
        )
    names = list(dict.fromkeys(map(zone_name, aware)))
    if len(names) > 1:
        text = f"no single type fits timestamps of the time zones {', '.join(names[:4])}"
        raise InvalidType(text, hint="pass type=shmarrow.timestamp('us', 'UTC'), which keeps the moments")
    return types.timestamp(_finest(units), names[0] if names else None)


# --- nested values ----------------------------------------------------------------------------------------------


def _below(values: Sequence[Any], above: tuple[Any, ...]) -> tuple[Any, ...]:
    """The enclosing values of these values' parts; InvalidType if they are recursive or nest too deep."""
    own = frozenset(map(id, values)) if len(above) > 2 else len(above)
    if len(above) == _DEPTH or own in above:
        raise InvalidType(f"the values are nested deeper than {_DEPTH} levels, or are recursive")
    return (*above, own)


def _struct(values: Sequence[Any], above: tuple[Any, ...]) -> DataType:
    above = _below(values, above)
    whole = columns_of_dicts(values)
    if whole is not None:
        return types.struct({name: _of_field(name, column, values, above) for name, column in whole.items()})
    columns: dict[str, list[Any]] = {}
    for i, value in enumerate(values):
        if value is not None:
            for key, item in value.items():
                if not isinstance(key, str):
                    text = f"dict keys become field names, expected str, found {shown(key)}"
                    raise InvalidType(text, where=[("row", i)], hint="pass a map type for maps")
                columns.setdefault(key, []).append(item)
    return types.struct({name: _of_field(name, column, values, above) for name, column in columns.items()})


def _of_field(name: str, column: Sequence[Any], rows: Sequence[Any], above: tuple[Any, ...]) -> DataType:
    """The type of a field's values; errors name the rows."""
    with renumbered(_in_field, name, rows):
        return type_of_values(column, above=above)


def _in_field(number: int, name: str, rows: Sequence[Any]) -> tuple[Part, ...]:
    """The place of a field's value: the row that has it."""
    slots = [i for i, row in enumerate(rows) if row is not None and name in row]
    return ("row", slots[number]), ("field", name)


def _list(values: Sequence[Any], kinds: set[Any], above: tuple[Any, ...]) -> DataType:
    above = _below(values, above)
    known = [value for value in values if value is not None]
    if not kinds.issubset(_LISTS):
        known = [listed(value) if isinstance(value, _SEQUENCES) else value for value in known]
        kinds = kinds_of(known)
    if all(issubclass(kind, Array) for kind in kinds):
        return types.list_(_one_type([value.type for value in known]))
    if all(issubclass(kind, np.ndarray) for kind in kinds):
        forms = forms_of(known)
        dtypes, shapes = {dtype for dtype, _, _ in forms}, {shape for _, shape, _ in forms}
        if not any(dtype.hasobject for dtype in dtypes):
            if len(dtypes) == 1:
                return types.list_(_one_type([lists_of(type_of_dtype(*dtypes), shape) for shape in shapes]))
            samples = [np.zeros((), dtype)[()] for dtype in dtypes]
            return types.list_(_one_type([lists_of(type_of_values(samples), shape) for shape in shapes]))
    if any(isinstance(value, np.ndarray) and not value.ndim for value in known if value.__class__ not in _PLAIN):
        raise InvalidType("a 0-d ndarray is not a list")
    if len(above) > 3 or sum(map(len, known)) > _MANY:
        known = list({id(value): value for value in known}.values())
    with renumbered(_in_list, values, known):
        return types.list_(type_of_values(list(chain.from_iterable(known)), above=above))


def _in_list(row: int, values: Sequence[Any], lists: Sequence[Any]) -> tuple[Part, ...]:
    """The place of an element: the first value that is its list, and its position in it."""
    ends = np.cumsum([len(each) for each in lists])
    at = int(np.searchsorted(ends, row, "right"))
    slot = next(i for i, value in enumerate(values) if value is lists[at])
    return ("row", slot), ("item", row - int(ends[at]) + len(lists[at]))


_PLAIN = {list, tuple}
_MANY = 1 << 22
"""Number of elements above which a repeated list is inspected only once, as it may be recursive."""


def _one_type(candidates: Iterable[DataType]) -> DataType:
    distinct = list(dict.fromkeys(candidates))
    if len(distinct) > 1:
        raise InvalidType(f"no list type fits both {distinct[0]} and {distinct[1]} elements; pass type=")
    return distinct[0]
