# SPDX-License-Identifier: Apache-2.0
"""Validation common to all layouts ("Physical Memory Layout"): buffers, children, nulls in non-nullable fields.

The checks specific to a layout are hooks of its class: ``_check_structure``, ``_check_references``,
``_check_values``, ``_check_null_count``, ``_referenced``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.buffer import Mask
from shmarrow.errors import InvalidData, LimitExceeded, at, clip, counted
from shmarrow.layout.construct import is_sparse
from shmarrow.layout.listing import LISTING, bytes_needed
from shmarrow.types import DictionaryType, MapType, storage_of


def check(array: Any, full: bool) -> None:
    """Implement ``validate`` except for nullability, which depends on the slots that parents reference."""
    check_buffers(array)
    array._check_structure()
    for field, child in zip(array._type.fields, array._children, strict=True):
        with at("child", field.name):
            check(child, full)
    if array._dictionary is not None and full:
        with at("dictionary"):
            check(array._dictionary, full)
    if full:
        array._check_null_count()
        array._check_slots()


TRUSTED: Any = object()
"""In place of ``True``, of an array that the caller of a reader trusts: handed out, but not known to be safe."""


def make_safe(array: Any) -> Any:
    """Return an array that is safe to pass to code that does not check its buffers: usually the array itself.

    Checks buffer sizes, offsets, views, list views, type ids and offsets of unions, run ends, dictionary indices,
    lengths of children, UTF-8, and nulls in map keys. The result is cached on the array, and inherited by slices
    created later.

    Null slots may have any content, but foreign code may read them. If it would be unsafe, the result is a copy with
    null slots cleared. A slice of structs, fixed-size lists or a sparse union shares whole children, which foreign code
    can access. Unless these are known to be safe, the result has only the slots of the slice, and only they are
    checked, without copying values.

    The check covers the current bytes only; it does not hold if another process changes them later.

    Parameters
    ----------
    array : Array
        An array of any type.

    Raises
    ------
    InvalidData
        If the array is invalid; the message has the place, the expected and the found value.
    LimitExceeded
        If more than 2**27 slots, or elements of list views, occupy less than a bit each: foreign code could run out of
        memory over a few bytes.
    """
    state = array._safe
    if _known_safe(array):
        return array
    if state is not None:
        return state
    check_buffers(array)
    array._check_structure()
    if array._length > EXPORTED_SLOTS and is_sparse(array):
        raise too_many(array, f"{array._length} slots that occupy no memory")
    safe = array._safe_values()
    if not all(map(_known_safe, safe._children)):
        safe = safe._windowed()
        children = [_safe_child(*part) for part in zip(array._type.fields, safe._children, strict=True)]
        if any(new is not old for new, old in zip(children, safe._children, strict=True)):
            safe = safe._with(children=children)
    if safe._dictionary is not None:
        with at("dictionary"):
            dictionary = make_safe(safe._dictionary)
        if dictionary is not safe._dictionary:
            safe = safe._with(dictionary=dictionary)
    safe._safe = True
    if safe is not array:
        array._safe = safe
    return safe


def _known_safe(array: Any) -> bool:
    """Whether the array is known to be safe, or can be seen to be in constant time."""
    state = array._safe
    if state is None:
        state = array._null_count == 0 and array._type.layout != "dictionary" and _fits(array)
        if state:
            array._safe = True
    return state is True or state is TRUSTED


def safe_slice(array: Any, offset: int, length: int) -> Any:
    """Return what is known of a slice of an array, for its ``_safe``."""
    state = array._safe
    return state if state is None or state is True or state is TRUSTED else state.slice(offset, length)


def _fits(array: Any) -> bool:
    """Whether the array is surely within its buffer, as fixed-width values without nulls; False means unknown."""
    length, offset, width = array._length, array._offset, array._type.byte_width
    return len(array._buffers) == 2 and length > 0 <= offset and 0 < (offset + length) * width <= _size(array, 1)


def _size(array: Any, number: int) -> int:
    data = array._buffers[number]
    return 0 if data is None else len(data)


EXPORTED_SLOTS = 1 << 27
"""Maximum number of slots, or elements of list views, exported if they occupy less than a bit each."""


def too_many(array: Any, what: str) -> LimitExceeded:
    """Return the error for an array that foreign code could expand far beyond its size."""
    return LimitExceeded(
        f"{clip(str(array._type), 200)}: {what}; at most {EXPORTED_SLOTS:,} are exported to other libraries, which may "
        "run out of memory over them: take slices, or open the data with unchecked=True"
    )


def _safe_child(field: Any, child: Any) -> Any:
    with at("child", field.name):
        return make_safe(child)


def check_buffers(array: Any) -> None:
    """Check the number and sizes of buffers, and the number and types of children."""
    layout, buffers = LISTING[array._type.layout], array._buffers
    rows = layout.buffers
    slots = array._offset + array._length
    if array._length < 0 or array._offset < 0:
        raise InvalidData(f"{array._type}: length {array._length} and offset {array._offset} must be at least 0")
    if len(buffers) != len(rows) and not (layout.variadic and len(buffers) > len(rows)):
        raise InvalidData(f"{array._type}: expected {len(rows)} buffers, found {len(buffers)}")
    if not -1 <= array._null_count <= array._length:
        raise InvalidData(f"{array._type}: null count {array._null_count} out of range for {array._length} slots")
    for row, data in zip(rows, buffers, strict=False):
        if data is None and row.role == "validity" and array._null_count <= 0:
            continue
        size, needed = 0 if data is None else len(data), bytes_needed(row, array._type, slots)
        if size < needed and (size or slots or row.role != "offsets"):
            raise InvalidData(f"{array._type}: {slots} slots need {needed} bytes of {row.role}, found {size}")
    if len(array._children) != len(array._type.fields):
        raise InvalidData(f"{array._type}: expected {len(array._type.fields)} children, found {len(array._children)}")
    for field, child in zip(array._type.fields, array._children, strict=True):
        if child.type is not field.type and not array._takes(field, child.type):
            raise InvalidData(
                f"{clip(str(array._type), 200)}: expected child {field.name!r} of type {field.type}, "
                f"found one of {child.type}"
            )


def check_nullability(array: Any, live: Mask | None) -> None:
    """Check that non-nullable children have no nulls in referenced slots; see the hook."""
    for field, child, used in array._referenced(array._live(live)):
        if field is not None and field.required:
            check_no_nulls(array._type, field.name, child, used)
        with at("dictionary") if field is None else at("child", field.name):
            child._check_nullability(used)


def check_required(array: Any) -> None:
    """Check non-nullable fields of an array created from a caller's parts; free without such fields."""
    if has_required(array._type):
        array._check_references()
        array._check_nullability(None)


def check_no_nulls(type: Any, name: str, child: Any, used: Mask | None) -> None:
    """Check that the ``used`` slots of a child of an array of this type, None for all, are not null."""
    missing = child._logical_nulls()
    if missing is not None:
        count = int(np.count_nonzero(missing if used is None else missing & used))
        if count:
            raise InvalidData(f"{type}: field {name!r} is not nullable but has {counted(count, 'null')}")


def has_required(type: Any) -> bool:
    """Return whether the type has a non-nullable field at any depth, such as the keys of maps."""
    stored = storage_of(type)
    if isinstance(stored, DictionaryType):
        return has_required(stored.value_type)
    fields = stored.fields if LISTING[stored.layout].buffers else stored.fields[1:]  # run ends are never null
    return isinstance(stored, MapType) or any(not field.nullable or has_required(field.type) for field in fields)
