"""Physical memory layouts (columnar format, "Physical Memory Layout"): one module and array class per layout.

``listing`` is the buffer listing as a table, ``array`` the base class, ``hooks`` the methods that each layout
implements. ``making`` creates arrays from their parts, ``from_values`` and ``from_numpy`` from values; ``codes`` finds
equal slots.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shmarrow.layout.array import Array
from shmarrow.layout.listing import HOMES, LISTING, BufferSpec, Layout
from shmarrow.layout.making import concat_arrays, make_array, nulls

if TYPE_CHECKING:
    from shmarrow.convert.python import DayTime, MonthDayNano
    from shmarrow.layout.binary import BinaryArray
    from shmarrow.layout.binary_view import BinaryViewArray
    from shmarrow.layout.boolean import BooleanArray
    from shmarrow.layout.dictionary import DictionaryArray
    from shmarrow.layout.fixed_size_list import FixedSizeListArray
    from shmarrow.layout.list import LargeListArray, ListArray
    from shmarrow.layout.list_view import LargeListViewArray, ListViewArray
    from shmarrow.layout.map import MapArray
    from shmarrow.layout.null import NullArray
    from shmarrow.layout.primitive import PrimitiveArray
    from shmarrow.layout.run_end_encoded import RunEndEncodedArray
    from shmarrow.layout.struct import StructArray
    from shmarrow.layout.union import UnionArray

__all__ = [
    "LISTING",
    "Array",
    "BinaryArray",
    "BinaryViewArray",
    "BooleanArray",
    "BufferSpec",
    "DayTime",
    "DictionaryArray",
    "FixedSizeListArray",
    "LargeListArray",
    "LargeListViewArray",
    "Layout",
    "ListArray",
    "ListViewArray",
    "MapArray",
    "MonthDayNano",
    "NullArray",
    "PrimitiveArray",
    "RunEndEncodedArray",
    "StructArray",
    "UnionArray",
    "concat_arrays",
    "make_array",
    "nulls",
]


def __getattr__(name: str) -> Any:
    """Import the array and interval classes on first use."""
    if name in ("DayTime", "MonthDayNano"):
        from shmarrow.convert import python

        return getattr(python, name)
    if name not in HOMES:
        raise AttributeError(f"module 'shmarrow.layout' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"shmarrow.layout.{HOMES[name]}"), name)
    return value
