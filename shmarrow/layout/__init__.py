"""Physical memory layouts (columnar format, "Physical Memory Layout"): one module and array class per layout.

``listing`` is the buffer listing as a table, ``array`` the base class, ``hooks`` the methods that each layout
implements. ``making`` creates arrays from their parts, ``from_values`` and ``from_numpy`` from values; ``codes`` finds
equal slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.layout.array import Array
from shmarrow.layout.listing import LISTING, BufferSpec, Layout
from shmarrow.layout.making import concat_arrays, make_array, nulls
from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.casts.python import DayTime, MonthDayNano
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


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "shmarrow.casts.python": "DayTime MonthDayNano",
            ".binary": "BinaryArray",
            ".binary_view": "BinaryViewArray",
            ".boolean": "BooleanArray",
            ".dictionary": "DictionaryArray",
            ".fixed_size_list": "FixedSizeListArray",
            ".list": "LargeListArray ListArray",
            ".list_view": "LargeListViewArray ListViewArray",
            ".map": "MapArray",
            ".null": "NullArray",
            ".primitive": "PrimitiveArray",
            ".run_end_encoded": "RunEndEncodedArray",
            ".struct": "StructArray",
            ".union": "UnionArray",
        },
    )
