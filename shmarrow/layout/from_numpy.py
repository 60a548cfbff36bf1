"""Conversion of ndarrays to arrays of a given type, vectorized, and zero-copy if the memory layout is the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.buffer import DType, Indices, Mask, NDArray
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType
from shmarrow.layout.making import array_class, frozen, make_array, offsets_of, read_only, validity_of
from shmarrow.types import DataType, EncodedType, ExtensionType, UnionType, from_numpy_dtype

# --- types for dtypes -------------------------------------------------------------------------------------------

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
        error.hint = _HINTS.get("g" if dtype.char == "g" else dtype.kind, error.hint)
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
        made = (_text if values.dtype.kind == "U" else _bytes)(values, valid)
        return made if made.type == type else made.cast(type)
    natural = type_of_dtype(values.dtype)
    if natural.storage is None or not hasattr(type, "text"):
        raise InvalidType(f"{type}: cannot convert an ndarray of {values.dtype} and {values.ndim} dimensions")
    return array_from_numpy(values, natural, valid).cast(type)


def _from_items(values: NDArray, type: DataType, valid: Mask | None) -> Any:
    """Convert via Python objects."""
    from shmarrow.layout.from_values import array_from_pylist

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


# --- strings and bytes ------------------------------------------------------------------------------------------

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
