# SPDX-License-Identifier: Apache-2.0
"""Whether the values of an object are safe for other libraries, found out when it is published.

Readers that trust the store then skip their check. So what is checked must be what is written: only memory that no
other process can change counts. An object is not checked where that would make publishing much slower than the copy:
small ones, whose readers check them as fast, and text that is not ASCII, whose characters are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import ShmarrowError
from shmarrow.layout.listing import walk
from shmarrow.layout.runs import is_ascii
from shmarrow.layout.validation import TRUSTED, make_safe

_SAMPLE = 1 << 16


def are_safe(columns: Iterable[Any]) -> bool:
    """Return whether columns are safe to hand out as they are, and cannot change; False if unknown.

    Also False if there are only numbers, any of which are safe.
    """
    columns = [column for column in columns if not _is_plain(column)]
    nodes = list(walk(columns, _below))
    try:
        return (
            len(columns) > 0
            and not any(node._safe is TRUSTED for node in nodes)
            and all(map(_is_cheap, nodes))
            and all(make_safe(column) is column for column in columns)
            and is_own_memory([data for node in nodes for data in node._buffers if data is not None])
        )
    except (ShmarrowError, OSError):
        return False


def _is_plain(column: Any) -> bool:
    return column._type.layout in ("primitive", "bool", "null")


def _below(array: Any) -> list[Any]:
    dictionary = array._dictionary
    return [*array._children, *([] if dictionary is None else [dictionary])]


def _is_cheap(array: Any) -> bool:
    """Whether an array is not text, or seems to be ASCII."""
    is_text = getattr(array._type, "text", False)
    return not is_text or all(is_ascii(data[:_SAMPLE]) for data in array._buffers[2:] if data is not None)


def is_own_memory(buffers: Iterable[Bytes]) -> bool:
    """Return whether no other process can change the bytes: their memory is neither a file's nor shared."""
    ends: list[int] = []
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            place, _, _, _, inode, *_ = line.split(None, 5)
            if inode == b"0":
                start, end = [int(each, 16) for each in place.split(b"-")]
                if ends and ends[-1] == start:
                    ends[-1] = end
                else:
                    ends += start, end
    edges = np.array(ends, np.uint64)
    filled = [data for data in buffers if len(data)]
    places = np.array([data.ctypes.data for data in filled], np.uint64)
    sizes = np.array(list(map(len, filled)), np.uint64)
    starts, stops = np.searchsorted(edges, places, "right"), np.searchsorted(edges, places + sizes, "left")
    return bool(((starts == stops) & (starts % 2 == 1)).all())
