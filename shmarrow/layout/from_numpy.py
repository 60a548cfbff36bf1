"""Arrays of a given type from ndarrays, by operations on whole arrays; where the memory is the same, without a copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow import types
from shmarrow.bitmap import Mask
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType
from shmarrow.layout.making import array_class, make_array
from shmarrow.layout.memory import frozen, offsets_of, read_only, validity_of
from shmarrow.types import DataType, EncodedType, from_numpy_dtype
from shmarrow.types.extension import ExtensionType

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[Any]

# --- types of dtypes --------------------------------------------------------------------------------------------

_TEXT: dict[str, DataType] = {"U": types.string(), "T": types.string(), "S": types.binary()}
_COARSER = {"M": {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}, "m": {"W": "s", "D": "s", "h": "s", "m": "s"}}
_HINTS = {"c": "make a struct of its .real and .imag", "g": "convert it with .astype('float64')"}


@lru_cache
def type_of_dtype(dtype: np.dtype[Any]) -> DataType:
    """The type of the values of a dtype other than object: text and bytes, structs of structured ones, lists of arrays.

    Raises
    ------
    InvalidType
        If there is none.
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
        hint = _HINTS.get("g" if dtype.char == "g" else dtype.kind)
        raise InvalidType(f"{error}; {hint}") if hint else error from None


def lists_of(type: DataType, shape: tuple[int, ...]) -> DataType:
    """Lists of fixed sizes within each other, the outermost size first."""
    for size in reversed(shape):
        type = types.list_(type, size)
    return type


def _arrow_unit(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of dates, moments or durations in a unit that Arrow has and that holds all that this one holds."""
    unit, count = np.datetime_data(dtype)
    if unit == "generic":
        raise InvalidType(f"the dtype {dtype} has no unit; give it one, as in .astype('{dtype.kind}8[s]')")
    unit = _COARSER[dtype.kind].get(unit, unit)
    return np.dtype(f"{dtype.kind}8[{unit}]") if count != 1 or unit != np.datetime_data(dtype)[0] else dtype


# --- arrays -----------------------------------------------------------------------------------------------------


def array_from_numpy(values: Values, type: DataType, valid: Mask | None = None) -> Any:
    """An array of ``type`` from an ndarray of at least one dimension.

    ``valid`` is False where a slot is null; of as many dimensions as the ndarray it is about the innermost items.
    """
    if isinstance(type, ExtensionType):
        return array_class(type).from_numpy(type, values, valid)  # type: ignore[attr-defined]
    if isinstance(type, EncodedType):
        return array_from_numpy(values, type.value_type, valid).cast(type)
    if values.ndim > 1:
        return _lists(values, type, valid)
    if values.dtype.names is not None:
        return _structs(values, type, valid)
    if values.dtype.kind in _ITEMS or type.layout in ("dense_union", "sparse_union"):
        return _from_items(values, type, valid)
    if values.dtype.kind in "US" and type.layout != "primitive":
        made = (_text if values.dtype.kind == "U" else _bytes)(values, valid)
        return made if made.type == type else made.cast(type)
    if type.layout in ("primitive", "bool"):
        return array_class(type).from_numpy(type, values, valid)  # type: ignore[attr-defined]
    natural = type_of_dtype(values.dtype)
    if natural.layout != "primitive" or type.layout not in ("binary", "large_binary", "binary_view"):
        raise InvalidType(f"{type}: cannot take an ndarray of {values.dtype} and {values.ndim} dimensions")
    return array_from_numpy(values, natural, valid).cast(type)


def _from_items(values: Values, type: DataType, valid: Mask | None) -> Any:
    """An array by way of the Python objects that the ndarray holds, or stands for."""
    from shmarrow.layout.from_values import array_from_pylist

    items = items_of(values)
    if valid is not None:
        items = [item if keep else None for item, keep in zip(items, valid.tolist(), strict=True)]
    return array_from_pylist(items, type)


_ITEMS = "OT"
"""Kinds of dtypes whose values are objects, or in memory that numpy does not show."""


def items_of(values: Values) -> list[Any]:
    """The values of an ndarray of one dimension, as Python objects where none is changed by that."""
    if values.dtype.kind in "Mm":  # some of which numpy would make integers
        return list(values)
    items: list[Any] = values.tolist()
    if values.dtype.kind == "T" and hasattr(values.dtype, "na_object"):
        return [item if isinstance(item, str) else None for item in items]
    return items


def _lists(values: Values, type: DataType, valid: Mask | None) -> Any:
    """Lists of the rows of an ndarray of several dimensions."""
    make: Callable[..., Any] | None = getattr(array_class(type), "_from_items", None)
    if make is None or type.layout == "map":
        raise InvalidType(f"{type}: cannot take an ndarray of {values.ndim} dimensions")
    length, size = values.shape[:2]
    if type.layout == "fixed_size_list" and size != type.list_size:  # type: ignore[attr-defined]
        raise InvalidArgument(f"{type}: cannot take an ndarray of the shape {values.shape}")
    shape = (length * size, *values.shape[2:])
    inner = valid.reshape(shape) if valid is not None and valid.ndim > 1 else None
    child = array_from_numpy(np.ascontiguousarray(values).reshape(shape), type.fields[0].type, inner)
    return make(type, np.full(length, size, np.int64), child, valid if inner is None else None)


def _structs(values: Values, type: DataType, valid: Mask | None) -> Any:
    """Structs of the fields of a structured ndarray, by name; a copy of each, as they lie between each other."""
    names = values.dtype.names or ()
    if type.layout != "struct":
        raise InvalidType(f"{type}: cannot take an ndarray of {values.dtype}")
    wanted = [field.name for field in type.fields]
    if sorted(names) != sorted(wanted):
        raise InvalidType(
            f"{type}: expected an ndarray of the fields {', '.join(wanted)}, found one of {', '.join(names)}"
        )
    children = [array_from_numpy(values[field.name], field.type) for field in type.fields]
    validity, nulls = validity_of(valid)
    return make_array(type, len(values), [validity], nulls, 0, children)


# --- text and bytes ---------------------------------------------------------------------------------------------

_BLOCK = 1 << 15
"""Rows that are converted at once: few enough to stay in the processor's cache."""


def _bytes(values: Values, valid: Mask | None) -> Any:
    """Binary from bytes of a fixed width, which end at their last byte other than NUL."""
    lengths = _lengths(values, valid)
    rows = np.ascontiguousarray(values).view("u1").reshape(len(values), values.dtype.itemsize)
    data = [part[_kept(part, size)] for part, size in zip(_blocks(rows), _blocks(lengths), strict=True)]
    return _variable(types.binary(), types.large_binary(), lengths, data, valid)


def _text(values: Values, valid: Mask | None) -> Any:
    """Text from characters of 32 bits, which end at their last one other than NUL."""
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
            raise InvalidData(f"string: slot {start + i} is not Unicode text: {error.reason}") from None
        data.append(np.frombuffer(text.encode(), np.uint8))
        wide = np.add(chars > 0x7F, chars > 0x7FF, dtype=np.int64) + (chars > 0xFFFF)
        total = np.append(0, np.cumsum(wide))
        size += total[ends] - total[ends - size]
    return _variable(types.string(), types.large_string(), lengths, data, valid)


def _blocks(values: Values) -> list[Values]:
    return [values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK)]


def _lengths(values: Values, valid: Mask | None) -> npt.NDArray[np.int64]:
    lengths = np.strings.str_len(values).astype(np.int64)
    if valid is not None:
        lengths[~valid] = 0
    return lengths


def _kept(rows: Values, lengths: npt.NDArray[np.int64]) -> Mask:
    """True for the items of each row that its length says."""
    return np.asarray(np.arange(rows.shape[1]) < lengths[:, None])


def _variable(small: DataType, large: DataType, lengths: Values, data: list[Values], valid: Mask | None) -> Any:
    type: Any = small if int(lengths.sum()) <= np.iinfo(np.int32).max else large
    offsets = offsets_of(lengths, type)
    validity, nulls = validity_of(valid)
    joined = np.concatenate(data) if data else np.empty(0, np.uint8)
    return make_array(type, len(lengths), [validity, frozen(offsets), read_only(joined)], nulls)
