# SPDX-License-Identifier: Apache-2.0
"""Arrays of a given type from Python values and from ndarrays.

* Python values go to the layout's class, as one list; lists are flattened into lengths and one array of elements.
* Of a union, a value goes to the first child that holds it exactly: one that gives back an equal value of the same
  kind. A timestamp never becomes a date, a number never becomes a timestamp, nor a float an integer, and no digit is
  lost. An integer is a float or a decimal, too, if that is exact. This is tried, with all values of a class at a time.
* ndarrays are converted with array operations, and zero-copy if the memory layout is the same.

Reading arrays needs none of this: layouts import it when they are built.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.buffer import DType, Indices, Mask, NDArray
from shmarrow.casts import kinds_of, listed
from shmarrow.casts.python import DayTime, MonthDayNano, addresses_of, exact_bytes
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, shown
from shmarrow.layout.array import Array
from shmarrow.layout.construct import array_class, frozen, join_arrays, make_array, offsets_of, read_only, validity_of
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.types import DataType, EncodedType, ExtensionType, UnionType, from_numpy_dtype

_NONE = type(None)


def array_from_pylist(values: Sequence[Any], type: DataType, kinds: set[Any] | None = None) -> Any:
    """Create an array from a list of Python values, None for null; ``kinds`` are their classes, if known."""
    kinds = kinds_of(values) if kinds is None else kinds
    if not _PLAIN.issuperset(kinds):
        values, kinds = without_missing(values, kinds)
        if not isinstance(type, ExtensionType):
            values = exact_bytes(type, values, kinds)
    nulls = _NONE in kinds
    number = None if isinstance(type, ExtensionType) else _NUMBERS.get(type.descriptor.values)
    all_numbers = number is not None and kinds <= {number, _NONE}
    if nulls and all_numbers:
        array = (_floats_with_nulls if number is float else _integers_with_nulls)(type, values)
        if array is not None:
            return array
    mask: Mask | None = addresses_of(values) != id(None) if nulls else None
    if all_numbers:
        return PrimitiveArray.from_numbers(type, values, mask)
    return array_class(type).from_pylist(type, values, mask)


_PLAIN = {int, float, str, bytes, bool, list, dict, _NONE}
"""Class sets without null markers to replace; None itself needs no replacement."""

_MISSING = {"NAType", "NaTType"}
"""Names of the classes of pandas' null markers."""


def null_kinds(kinds: set[Any]) -> set[Any]:
    """Return the classes whose values all mean null: NoneType and pandas' markers."""
    return {
        kind
        for kind in kinds
        if kind is _NONE or (kind.__name__ in _MISSING and kind.__module__.partition(".")[0] == "pandas")
    }


def without_missing(values: Sequence[Any], kinds: set[Any]) -> tuple[Sequence[Any], set[Any]]:
    """Return the values with NA and NaT of pandas and numpy replaced by None, and their classes."""
    blank = null_kinds(kinds) - {_NONE}
    moments = {kind for kind in kinds if issubclass(kind, (np.datetime64, np.timedelta64))}
    if not (blank or moments):
        return values, kinds
    present = [
        None if value.__class__ in blank or (value.__class__ in moments and np.isnat(value)) else value
        for value in values
    ]
    return present, kinds_of(present)


_NUMBERS: dict[str, Any] = {"integer": int, "float": float}
"""Python class of the numbers that need no conversion, by the kind of a type's values."""


def _floats_with_nulls(type: DataType, values: Sequence[Any]) -> Any:
    """Convert floats and None: numpy converts None to NaN, so only NaNs need to be looked up."""
    numbers = np.fromiter(values, np.float64, len(values))
    mask = ~np.isnan(numbers)
    suspects = np.flatnonzero(~mask)
    mask[suspects] = [values[i] is not None for i in suspects.tolist()]
    return PrimitiveArray.from_numpy(type, numbers, mask)


def _integers_with_nulls(type: DataType, values: Sequence[Any]) -> Any:
    """Convert integers and None via floats, where None becomes NaN; None if not all fit both."""
    try:
        numbers = np.fromiter(values, np.float64, len(values))
    except OverflowError:
        return None
    mask = ~np.isnan(numbers)
    numbers[~mask] = 0
    info = np.iinfo(type.storage)
    lowest, highest = max(info.min, -_EXACT), min(info.max, _EXACT)
    if not (lowest <= numbers.min() and numbers.max() <= highest):
        return None
    return PrimitiveArray.from_numpy(type, numbers.astype(type.storage), mask)


_EXACT = 1 << 52
"""Integers up to here are exact as floats."""


# --- lists --------------------------------------------------------------------------------------------------------


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
        return lengths, array_from_pylist(items, item)
    lengths = np.zeros(len(values), np.int64)
    if _NONE not in every:
        present: Sequence[Any] = values
        slots: Any = slice(None)
    else:
        present = [value for value in values if value is not None]
        slots = np.fromiter([value is not None for value in values], np.bool_, len(values))
    joined = join(present, item)
    lengths[slots] = np.fromiter(map(len, present), np.int64, len(present))
    return lengths, joined


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
            value = listed(value)
        elif not isinstance(value, range):
            text = f"{type}: expected a list, found {shown(value)} of type {value.__class__.__name__}"
            raise InvalidType(text, where=[("row", i)])
        lengths[i] = len(value)
        items += value
    return lengths, items


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


def pair_of(type: Any, item: Any) -> tuple[Any, Any]:
    """Return a (key, item) pair from a tuple, or from a dict of the two field names."""
    if isinstance(item, (tuple, list)) and len(items := listed(item)) == 2:
        return items[0], items[1]
    if isinstance(item, Mapping):
        names = [type.key_field.name, type.item_field.name]
        if set(item) == set(names):
            return item[names[0]], item[names[1]]
    raise InvalidType(f"{type}: expected a (key, item) pair, found {shown(item)}")


# --- unions -------------------------------------------------------------------------------------------------------


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
            held = _held(field.type, items)
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


def _held(type: Any, items: Sequence[Any]) -> Mask:
    """Mark the values of one class that a type gives back: all are tried at once, then halves of them if that fails."""
    try:
        back = array_from_pylist(items, type).to_pylist()
        return np.fromiter(map(_is_same, back, items), np.bool_, len(items))
    except Exception as error:  # types of users may raise anything
        no_class = isinstance(error, InvalidType) and np.isscalar(items[0])  # then it takes none of them
        if len(items) == 1 or (no_class and not isinstance(type, (ExtensionType, UnionType))):
            return np.zeros(len(items), np.bool_)
        half = len(items) // 2
        return np.concatenate([_held(type, items[:half]), _held(type, items[half:])])


def _is_same(back: Any, item: Any) -> bool:
    """Whether a value that was read is the one that was given; missing fields of a struct are None."""
    if isinstance(item, (np.ndarray, np.integer)):
        item = item.tolist()
    elif isinstance(item, Array):
        item = item.to_pylist()
    if isinstance(back, dict):
        pairs = item if isinstance(item, Mapping) else dict(zip(back, item, strict=True))
        return back.keys() >= pairs.keys() and all(_is_same(value, pairs.get(key)) for key, value in back.items())
    if isinstance(back, (list, tuple)) and not isinstance(back, (DayTime, MonthDayNano)):
        values = list(item.items() if isinstance(item, Mapping) else item)
        return len(back) == len(values) and all(map(_is_same, back, values))
    if isinstance(item, (float, np.floating)):
        return isinstance(back, float) and bool(back == item or (back != back and item != item))
    return isinstance(back, bool) == isinstance(item, (bool, np.bool_)) and bool(back == item)


# --- ndarrays: types for dtypes ---------------------------------------------------------------------------------

_TEXT: dict[str, DataType] = {"U": types.string(), "T": types.string(), "S": types.binary()}
_COARSER = {"M": {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}, "m": {"W": "s", "D": "s", "h": "s", "m": "s"}}
_HINTS = {"c": "convert to a struct of .real and .imag", "g": "convert it with .astype('float64')"}


@lru_cache
def type_of_dtype(dtype: DType) -> DataType:
    """Return the type for a dtype other than object: strings, bytes, structs for structured dtypes, lists for arrays.

    Raises
    ------
    InvalidType
        If no Arrow type corresponds to the dtype.
    """
    if dtype.kind in _TEXT:
        return _TEXT[dtype.kind]
    if dtype.subdtype is not None:
        return lists_of(type_of_dtype(dtype.subdtype[0]), dtype.shape)
    if dtype.names is not None:
        return types.struct({name: type_of_dtype(dtype[name]) for name in dtype.names})
    if dtype.kind in "Mm":
        dtype = _arrow_unit(dtype)
    try:
        return from_numpy_dtype(dtype)
    except InvalidType as error:
        error.hint = error.hint or _HINTS.get("g" if dtype.char == "g" else dtype.kind)
        raise


def lists_of(type: DataType, shape: tuple[int, ...]) -> DataType:
    """Return nested fixed-size list types, outermost size first."""
    for size in reversed(shape):
        type = types.list_(type, size)
    return type


def _arrow_unit(dtype: DType) -> DType:
    """The datetime64 or timedelta64 dtype in the closest unit of Arrow that is exact."""
    unit, count = np.datetime_data(dtype)
    if unit == "generic":
        raise InvalidType(f"the dtype {dtype} has no unit; add one, as in .astype('{dtype.kind}8[s]')")
    unit = _COARSER[dtype.kind].get(unit, unit)
    return np.dtype(f"{dtype.kind}8[{unit}]") if count != 1 or unit != np.datetime_data(dtype)[0] else dtype


# --- arrays -----------------------------------------------------------------------------------------------------


def array_from_numpy(values: NDArray, type: DataType, valid: Mask | None = None) -> Any:
    """Create an array of ``type`` from an ndarray of at least one dimension.

    ``valid`` is False where a slot is null; with as many dimensions as the ndarray, it applies to the innermost values.
    """
    make: Any = getattr(array_class(type), "from_numpy", None)
    if isinstance(type, ExtensionType):
        return make(type, values, valid)
    if isinstance(type, EncodedType):
        return array_from_numpy(values, type.value_type, valid).cast(type)
    if values.ndim > 1:
        return _lists(values, type, valid)
    if values.dtype.names is not None:
        return _structs(values, type, valid)
    if values.dtype.kind in _ITEMS or isinstance(type, UnionType):
        return _from_items(values, type, valid)
    if make is not None:
        return make(type, values, valid)
    if values.dtype.kind in "US":
        array = (_text if values.dtype.kind == "U" else _bytes)(values, valid)
        return array if array.type == type else array.cast(type)
    natural = type_of_dtype(values.dtype)
    if natural.storage is None or not hasattr(type, "text"):
        raise InvalidType(f"{type}: cannot convert an ndarray of {values.dtype} and {values.ndim} dimensions")
    return array_from_numpy(values, natural, valid).cast(type)


def _from_items(values: NDArray, type: DataType, valid: Mask | None) -> Any:
    """Convert via Python objects."""
    items = items_of(values)
    if valid is not None:
        items = [item if keep else None for item, keep in zip(items, valid.tolist(), strict=True)]
    return array_from_pylist(items, type)


_ITEMS = "OT"
"""Kinds of dtypes whose values are objects, or not accessible as a buffer."""


def items_of(values: NDArray) -> list[Any]:
    """Return the values of a one-dimensional ndarray, as Python objects if that is exact."""
    if values.dtype.kind in "Mm":  # tolist() would convert some to integers
        return list(values)
    items: list[Any] = values.tolist()
    if values.dtype.kind == "T" and hasattr(values.dtype, "na_object"):
        return [item if isinstance(item, str) else None for item in items]
    return items


def _lists(values: NDArray, type: DataType, valid: Mask | None) -> Any:
    """Convert the rows of a multidimensional ndarray to lists."""
    make: Callable[..., Any] | None = getattr(array_class(type), "_from_items", None)
    if make is None or type.layout == "map":
        raise InvalidType(f"{type}: cannot convert an ndarray of {values.ndim} dimensions")
    length, size = values.shape[:2]
    if size != getattr(type, "list_size", size):
        raise InvalidArgument(f"{type}: cannot convert an ndarray of the shape {values.shape}")
    shape = (length * size, *values.shape[2:])
    inner = valid.reshape(shape) if valid is not None and valid.ndim > 1 else None
    child = array_from_numpy(np.ascontiguousarray(values).reshape(shape), type.fields[0].type, inner)
    return make(type, np.full(length, size, np.int64), child, valid if inner is None else None)


def _structs(values: NDArray, type: DataType, valid: Mask | None) -> Any:
    """Convert a structured ndarray to structs by field name; copies each field, as they are interleaved."""
    names = values.dtype.names or ()
    if type.layout != "struct":
        raise InvalidType(f"{type}: cannot convert an ndarray of {values.dtype}")
    wanted = [field.name for field in type.fields]
    if sorted(names) != sorted(wanted):
        raise InvalidType(f"{type}: expected an ndarray with the fields {', '.join(wanted)}, found {', '.join(names)}")
    children = [array_from_numpy(values[field.name], field.type) for field in type.fields]
    validity, nulls = validity_of(valid)
    return make_array(type, len(values), [validity], nulls, 0, children)


# --- ndarrays: strings and bytes --------------------------------------------------------------------------------

_BLOCK = 1 << 15
"""Rows converted at once, so that they stay in the CPU cache."""


def _bytes(values: NDArray, valid: Mask | None) -> Any:
    """Convert fixed-width bytes to binary, without trailing NULs."""
    lengths = _lengths(values, valid)
    rows = np.ascontiguousarray(values).view("u1").reshape(len(values), values.dtype.itemsize)
    data = [part[_kept(part, size)] for part, size in zip(_blocks(rows), _blocks(lengths), strict=True)]
    return _variable(types.binary(), types.large_binary(), lengths, data, valid)


def _text(values: NDArray, valid: Mask | None) -> Any:
    """Convert fixed-width UTF-32 to strings, without trailing NULs."""
    lengths = _lengths(values, valid)
    native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    rows = native.view("u4").reshape(len(values), values.dtype.itemsize // 4)
    data = []
    for start, part, size in zip(range(0, len(values), _BLOCK), _blocks(rows), _blocks(lengths), strict=True):
        if int(part.max(initial=0)) < 0x80:
            data.append(part.astype("u1")[_kept(part, size)])
            continue
        chars = part[_kept(part, size)]
        ends = np.cumsum(size)
        try:
            text = chars.astype("<u4", copy=False).tobytes().decode("utf-32-le")
        except UnicodeDecodeError as error:
            i = int(np.searchsorted(ends, error.start // 4, "right"))
            text = f"string: not valid Unicode: {error.reason}"
            raise InvalidData(text, where=[("row", start + i)]) from None
        data.append(np.frombuffer(text.encode(), np.uint8))
        wide = np.add(chars > 0x7F, chars > 0x7FF, dtype=np.int64) + (chars > 0xFFFF)
        total = np.append(0, np.cumsum(wide))
        size += total[ends] - total[ends - size]
    return _variable(types.string(), types.large_string(), lengths, data, valid)


def _blocks(values: NDArray) -> list[NDArray]:
    return [values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK)]


def _lengths(values: NDArray, valid: Mask | None) -> Indices:
    lengths = np.strings.str_len(values).astype(np.int64)
    if valid is not None:
        lengths[~valid] = 0
    return lengths


def _kept(rows: NDArray, lengths: Indices) -> Mask:
    """True for the items of each row within its length."""
    return np.asarray(np.arange(rows.shape[1]) < lengths[:, None])


def _variable(small: DataType, large: DataType, lengths: NDArray, data: list[NDArray], valid: Mask | None) -> Any:
    type: Any = small if int(lengths.sum()) <= np.iinfo(np.int32).max else large
    offsets = offsets_of(lengths, type)
    validity, nulls = validity_of(valid)
    joined = np.concatenate(data) if data else np.empty(0, np.uint8)
    return make_array(type, len(lengths), [validity, frozen(offsets), read_only(joined)], nulls)
