"""Arrays taken apart into buffers, children and dictionary, and put together in other ways, unchecked."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

import shmarrow as sa
from shmarrow.layout import LISTING, make_array


def own_buffers(array: Any) -> list[Any]:
    """The buffers of an array without those of its children."""
    buffers = array.buffers()
    return buffers[: len(buffers) - sum([len(child.buffers()) for child in array.children])]


def has_validity(array: Any) -> bool:
    """Whether the first buffer of an array is its validity bitmap, which may be None."""
    return any(row.role == "validity" for row in LISTING[array.type.layout].buffers)


def dictionary_of(array: Any) -> Any:
    """The dictionary of an array, also of one of an extension type; None if it has none."""
    array = array.storage if isinstance(array, sa.ExtensionArray) else array
    return array.dictionary if isinstance(array, sa.DictionaryArray) else None


def below(array: Any) -> list[Any]:
    """The children of an array, and its dictionary."""
    dictionary = dictionary_of(array)
    return [*array.children, *([] if dictionary is None else [dictionary])]


def address(values: Any) -> int:
    """The address of the first element of what NumPy takes."""
    return int(np.asarray(values).__array_interface__["data"][0])


def addresses(array: Any) -> set[int]:
    """Return the addresses of the buffers of an array, its children and dictionaries."""
    own = {data.ctypes.data for data in own_buffers(array) if data is not None and len(data)}
    return own.union(*map(addresses, below(array)))


def changed(array: Any, **parts: Any) -> Any:
    """An array with some parts replaced: its type, length, buffers, null_count, offset, children or dictionary."""
    values = {
        "type": array.type, "length": len(array), "buffers": own_buffers(array), "null_count": array.null_count,
        "offset": array.offset, "children": array.children, "dictionary": dictionary_of(array), **parts,
    }  # fmt: skip
    return make_array(**values)


def plain(value: Any) -> Any:
    """Values that are equal whatever type of integer, moment, list or map they were."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if hasattr(value, "nanoseconds") and not value.months:
        return dt.timedelta(value.days, microseconds=value.nanoseconds // 1000)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.astype(f"{value.dtype.kind}8[us]").item()
    return value
