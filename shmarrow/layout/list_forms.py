"""Lists of all layouts as lists of another, and which of them are the same.

Each layout says where its lists start, how long they are, and what they lie in (``_spans``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.errors import InvalidData
from shmarrow.layout.array import make_array
from shmarrow.layout.memory import Indices, frozen, offsets_of, ranges

LISTS = ("list", "large_list", "list_view", "large_list_view", "fixed_size_list")
"""The layouts of lists; maps are lists too, of entries."""


def list_codes(array: Any) -> Indices:
    """The codes of lists of any layout."""
    from shmarrow.layout.codes import of_lists

    starts, sizes, items = array._spans()
    return of_lists(items, starts, sizes, array._mask())


def cast_lists(array: Any, target: Any, safe: bool, convert: Callable[[Any], Any] | None = None) -> Any:
    """Lists of any layout as lists of another; ``convert`` casts their items where names do not match them."""
    if target.layout not in (*LISTS, "map"):
        return None
    convert = convert or (lambda items: items._cast_to(target.fields[0].type, safe))
    starts, sizes, items = array._spans()
    mask = array._mask()
    fixed = target.layout == "fixed_size_list"
    if fixed:
        _check_lengths(sizes, mask, target)
        if mask is not None and (sizes != target.list_size).any():
            starts, items = _with_null_items(starts, mask, items, target.list_size)
        else:
            starts, items = _packed(starts, sizes, items)
    try:
        values = convert(items)
    except InvalidData:
        if mask is None:
            raise
        # What null slots hold need not fit.
        if fixed:
            starts, items = _with_null_items(starts, mask, items, target.list_size)
        else:
            sizes = np.where(mask, sizes, 0)
            starts, items = _packed(starts, sizes, items)
        values = convert(items)
    if fixed:
        buffers: list[Any] = []
    elif "view" in target.layout:
        if len(values) > np.iinfo(target.offset_dtype).max:
            raise InvalidData(f"{target}: {len(values)} items are more than its offsets reach; use the large form")
        buffers = [frozen(part.astype(target.offset_dtype)) for part in (starts, sizes)]
    else:
        _, values = _packed(starts, sizes, values)
        buffers = [frozen(offsets_of(sizes, target.offset_dtype, f"{target} lists"))]
    return make_array(target, len(array), [array._trimmed_validity(), *buffers], array.null_count, 0, [values])


def _packed(starts: Indices, sizes: Indices, items: Any) -> tuple[Indices, Any]:
    """Where lists start, and their items, when they lie one behind the other; no copy where they do."""
    ends = np.cumsum(sizes)
    packed = ends - sizes
    moved = starts != packed
    if moved.any() and (moved & (sizes > 0)).any():
        return packed, items.take(ranges(starts, sizes))
    return packed, items.slice(0, int(ends[-1]) if len(ends) else 0)


def _check_lengths(sizes: Indices, mask: Mask | None, target: Any) -> None:
    wrong = sizes != target.list_size if mask is None else (sizes != target.list_size) & mask
    if wrong.any():
        i = int(wrong.argmax())
        raise InvalidData(f"{target}: the list at {i} has {int(sizes[i])} items, expected {target.list_size}")


def _with_null_items(starts: Indices, mask: Mask, items: Any, size: int) -> tuple[Indices, Any]:
    """Where lists of one length start, and their items, when they lie one behind the other and null ones have nulls."""
    slots = np.repeat(mask, size)
    positions = np.zeros(len(slots), np.int64)
    positions[slots] = ranges(starts[mask], np.full(int(mask.sum()), size))
    return np.arange(len(mask)) * size, items.take(positions, slots)
