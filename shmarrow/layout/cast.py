"""Casts between the forms of one value type, and the dictionary and run-end encoding of any array.

A cast never changes a value. Between offsets and views the bytes of long values stay where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.errors import InvalidData, InvalidType
from shmarrow.layout.binary import checked_offsets
from shmarrow.layout.binary_view import BinaryViewArray
from shmarrow.layout.making import check_slots, make_array, nulls
from shmarrow.layout.memory import frozen, ranges, validity_of
from shmarrow.layout.run_end_encoded import _run_end_array
from shmarrow.types import (
    BinaryType,
    BinaryViewType,
    DataType,
    DictionaryType,
    IntType,
    LargeBinaryType,
    RunEndEncodedType,
    as_type,
)
from shmarrow.types.extension import ExtensionType

if TYPE_CHECKING:
    import numpy.typing as npt

_BINARY = ("binary", "large_binary", "binary_view")
_LISTS = ("list", "large_list", "list_view", "large_list_view", "fixed_size_list", "map")


def cast(array: Any, type: DataType | str) -> Any:
    """The same values in another form of their type.

    Binary and text between offsets of 32 and 64 bits and views, and between each other (bytes are checked to be
    UTF-8); lists between their five layouts, with their values cast; structs field by field; integers and floats
    where every value fits; dictionaries and runs to their values and back.

    Raises
    ------
    InvalidType
        If the target is not another form of the same values.
    InvalidData
        If a value does not fit the target.
    """
    target = as_type(type)
    source = array.type
    if source == target:
        return array
    if isinstance(source, ExtensionType) and _values_of(target) != source:
        if isinstance(target, ExtensionType) and target.__class__ is not source.__class__:
            raise InvalidType(f"cannot cast {source} to {target}: they are not forms of the same values")
        return cast(array.storage, target)
    if source.layout in ("dictionary", "run_end_encoded") and source.layout != target.layout:
        return cast(array.decode(), target)
    if isinstance(target, ExtensionType):
        return target.array_class.from_storage(target, cast(array, target.storage_type))
    if isinstance(target, DictionaryType):
        if source.layout == "dictionary":
            return _recode(array, target)
        return dictionary_encode(cast(array, target.value_type), target.index_type, target.ordered)
    if isinstance(target, RunEndEncodedType):
        if source.layout == "run_end_encoded":
            kept = array.trim()
            ends = _run_end_array(target, kept.run_ends.values.astype(np.int64))
            return make_array(target, len(kept), [], 0, 0, [ends, cast(kept.values, target.value_type)])
        return run_end_encode(cast(array, target.value_type), target.run_end_type, target)
    if source.layout in _BINARY and target.layout in _BINARY:
        return _cast_binary(array, target)
    if source.layout in _LISTS and target.layout in _LISTS:
        return _cast_list(array, target)
    if source.layout == target.layout == "struct" and len(source.fields) == len(target.fields):
        kept = array.trim()
        children = [cast(child, field.type) for child, field in zip(kept.children, target.fields, strict=True)]
        return make_array(target, len(kept), kept._buffers, kept.null_count, 0, children)
    if source.layout == "null":
        check_slots(array)
        return nulls(len(array), target)
    if source.layout == target.layout == "primitive":
        return _cast_numbers(array, target)
    raise InvalidType(f"cannot cast {source} to {target}: they are not forms of the same values")


def _values_of(type: DataType) -> DataType | None:
    """The type of the values that a dictionary or runs encode."""
    return type.value_type if isinstance(type, (DictionaryType, RunEndEncodedType)) else None


def _cast_numbers(array: Any, target: DataType) -> Any:
    from shmarrow.layout.primitive import PrimitiveArray

    mask = array._mask()
    values: npt.NDArray[Any] = array.values
    source = array.type
    known = {np.dtype("<i4"), np.dtype("<i8")}
    same_bits = source.storage == target.storage and source.storage in known
    if same_bits and IntType in (source.__class__, target.__class__):
        kept = array.trim()
        return make_array(target, len(kept), kept._buffers, kept.null_count)
    if source.numpy_dtype is None or target.numpy_dtype is None:
        raise InvalidType(f"cannot cast {source} to {target}: they are not forms of the same values")
    if mask is not None:
        values = np.where(mask, values, values.dtype.type(0))
    return PrimitiveArray.from_numpy(target, values.view(source.numpy_dtype), mask)


def _contiguous(array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Offsets and bytes of binary values in any layout; a copy for views only."""
    if array.type.layout == "binary_view":
        offsets, data = array.contiguous()
        return offsets, data
    return checked_offsets(array, len(array.data), "bytes"), array.data


def _cast_binary(array: Any, target: DataType) -> Any:
    if target.text and not array.type.text:  # type: ignore[attr-defined]
        _with_text(array).validate(full=True)
    kept = array.trim()
    validity, count = kept._buffers[0], kept.null_count
    if isinstance(target, BinaryViewType):
        if array.type.layout == "binary_view":
            return make_array(target, len(kept), kept._buffers, count)
        offsets = checked_offsets(kept, len(kept.data), "bytes").astype(np.int64)
        made = BinaryViewArray.over(target, kept.data, offsets[:-1], np.diff(offsets))
        return make_array(target, len(kept), [validity, *made._buffers[1:]], count)
    assert isinstance(target, (BinaryType, LargeBinaryType))
    offsets, data = _contiguous(kept)
    if int(offsets[-1]) > np.iinfo(target.offset_dtype).max:
        raise InvalidData(f"{target}: {int(offsets[-1])} bytes are more than its offsets reach; use the large form")
    return make_array(target, len(kept), [validity, frozen(offsets.astype(target.offset_dtype)), data], count)


def _with_text(array: Any) -> Any:
    return array._with(type=array.type.__class__(True))


def _cast_list(array: Any, target: DataType) -> Any:
    starts, sizes, child = _runs(array)
    values = cast(child, target.fields[0].type)
    kept = array.slice(0, len(array))
    validity, count = kept._trimmed_validity(), kept.null_count
    length = len(array)
    if target.layout in ("list_view", "large_list_view"):
        dtype = target.offset_dtype  # type: ignore[attr-defined]
        _check_reach(target, dtype, len(values))
        parts = [frozen(part.astype(dtype)) for part in (starts, sizes)]
        return make_array(target, length, [validity, *parts], count, 0, [values])
    if target.layout == "fixed_size_list":
        size = target.list_size  # type: ignore[attr-defined]
        valid = array._valid()
        wrong = (sizes != size) & valid
        if wrong.any():
            i = int(wrong.argmax())
            raise InvalidData(f"{target}: the list at {i} has {int(sizes[i])} items")
        items = ranges(starts, np.where(valid, size, 0))
        slots = np.repeat(valid, size)
        positions = np.zeros(len(slots), np.int64)
        positions[slots] = items
        packed = values._take(positions, slots)
        return make_array(target, length, [validity], count, 0, [packed])
    dtype = target.offset_dtype  # type: ignore[attr-defined]
    offsets = np.zeros(length + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    _check_reach(target, dtype, int(offsets[-1]))
    if not np.array_equal(starts[sizes > 0], offsets[:-1][sizes > 0]):
        values = values._take(ranges(starts, sizes))
    else:
        values = values.slice(0, int(offsets[-1]))
    return make_array(target, length, [validity, frozen(offsets.astype(dtype))], count, 0, [values])


def _runs(array: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]:
    """Where each list starts in the child, how long it is (0 where null), and the child."""
    layout = array.type.layout
    if layout in ("list_view", "large_list_view"):
        return (*array._runs(array._mask()), array.values)
    if layout == "fixed_size_list":
        size = array.type.list_size
        sizes = np.where(array._valid(), size, 0).astype(np.int64)
        return np.arange(len(array), dtype=np.int64) * size, sizes, array._window()
    kept = array.trim()
    offsets = checked_offsets(kept, len(kept.values), "values").astype(np.int64)
    sizes = np.diff(offsets)
    if array.null_count:
        sizes = np.where(array._valid(), sizes, 0)
    return offsets[:-1], sizes, kept.values


def _check_reach(target: DataType, dtype: Any, size: int) -> None:
    if size > np.iinfo(dtype).max:
        raise InvalidData(f"{target}: {size} items are more than its offsets reach; use the large form")


def _recode(array: Any, target: DictionaryType) -> Any:
    values = cast(array.dictionary, target.value_type)
    indices = cast(array.indices, target.index_type)
    return make_array(target, len(indices), indices._buffers, indices._null_count, indices.offset, (), values)


# --- encoding ---------------------------------------------------------------------------------------------------


def codes_of(array: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each slot that is not null a code of its value, by first appearance, and where each value appeared first.

    Codes of null slots are -1. Fixed-width values are compared by their bits, others as Python values. More than 2**24
    slots that take no bytes of their own are refused.
    """
    check_slots(array)
    mask = array._mask()
    codes = np.full(len(array), -1, np.int64)
    if isinstance(array.type, ExtensionType):
        return codes_of(array.storage)
    if array.type.layout == "null":
        return codes, codes[:0]
    slots = np.arange(len(array)) if mask is None else np.flatnonzero(mask)
    if array.type.layout in ("primitive", "bool") and array.type.bit_width:
        flat = array.values[slots]
        if array.type.layout == "primitive":
            bits = np.dtype(_bits(array.type.byte_width))
            flat = flat.view(bits).reshape(len(slots), array.type.byte_width // bits.itemsize)
            flat = flat[:, 0] if flat.shape[1] == 1 else flat
        _, first, inverse = np.unique(flat, return_index=True, return_inverse=True, axis=0 if flat.ndim == 2 else None)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        codes[slots] = rank[inverse.reshape(-1)]
        return codes, slots[first[order]]
    keys = array.drop_null().to_pylist()
    if (keys and keys[0].__class__.__hash__ is None) or array.type.fields:
        keys = [repr(key) for key in keys]
    seen: dict[Any, int] = {}
    codes[slots] = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, len(keys))
    known = codes[slots]
    _, first = np.unique(known, return_index=True)
    return codes, slots[first]


def _bits(width: int) -> Any:
    return {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}.get(width, "<u8" if width % 8 == 0 else "u1")


def dictionary_encode(array: Any, index_type: DataType | str = "int32", ordered: bool = False) -> Any:
    """Indices into the distinct values, in the order of their first appearance; nulls stay null indices.

    Raises
    ------
    InvalidData
        If there are more distinct values than the index type reaches.
    """
    if array.type.layout == "dictionary":
        return array
    codes, first = codes_of(array)
    type = DictionaryType(index_type, array.type, ordered)
    if len(first) > np.iinfo(type.storage).max + 1:
        raise InvalidData(f"{type}: {len(first)} distinct values are more than its indices reach")
    known = codes >= 0
    validity, count = validity_of(None if known.all() else known)
    indices = frozen(np.where(known, codes, 0).astype(type.storage))
    return make_array(type, len(array), [validity, indices], count, 0, (), array._take(first))


def run_end_encode(array: Any, run_end_type: DataType | str = "int32", type: RunEndEncodedType | None = None) -> Any:
    """Runs of equal neighbours; neighbouring nulls are one run.

    Raises
    ------
    InvalidData
        If the array is longer than the run end type reaches.
    """
    if array.type.layout == "run_end_encoded":
        return array
    made = type or RunEndEncodedType(run_end_type, array.type)
    codes, _ = codes_of(array)
    starts = np.flatnonzero(np.diff(codes, prepend=-2)) if len(codes) else codes
    ends = np.append(starts[1:], len(codes)) if len(codes) else starts
    return make_array(made, len(array), [], 0, 0, [_run_end_array(made, ends), array._take(starts)])
