"""Physical memory layouts (columnar format, "Physical Memory Layout"): one file a layout, the class of its arrays.

``listing`` holds the buffer listing as a table, ``array`` what all arrays share and :func:`make_array`, ``from_values``
makes arrays from Python values and numpy, ``codes`` finds which slots hold the same value.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shmarrow import import_hooks
from shmarrow.convert.python import DayTime, MonthDayNano
from shmarrow.layout.array import Array, concat_arrays, make_array, nulls
from shmarrow.layout.binary import BinaryArray
from shmarrow.layout.boolean import BooleanArray
from shmarrow.layout.dictionary import DictionaryArray
from shmarrow.layout.extension import ExtensionArray
from shmarrow.layout.fixed_size_list import FixedSizeListArray
from shmarrow.layout.list import ListArray
from shmarrow.layout.listing import LATE_CLASSES, LISTING, BufferSpec, Layout
from shmarrow.layout.map import MapArray
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.layout.struct import StructArray

if TYPE_CHECKING:
    from shmarrow.layout.canonical import (
        Bool8Array,
        FixedShapeTensorArray,
        JsonArray,
        TimestampWithOffsetArray,
        VariableShapeTensorArray,
        VariantArray,
    )

__all__ = [
    "LISTING",
    "Array",
    "BinaryArray",
    "Bool8Array",
    "BooleanArray",
    "BufferSpec",
    "DayTime",
    "DictionaryArray",
    "ExtensionArray",
    "FixedShapeTensorArray",
    "FixedSizeListArray",
    "JsonArray",
    "Layout",
    "ListArray",
    "MapArray",
    "MonthDayNano",
    "PrimitiveArray",
    "StructArray",
    "TimestampWithOffsetArray",
    "VariableShapeTensorArray",
    "VariantArray",
    "concat_arrays",
    "make_array",
    "nulls",
]


def _canonical_arrays() -> None:
    from shmarrow.layout import canonical  # noqa: F401


import_hooks.when("canonical extension types", _canonical_arrays)

__all__ += LATE_CLASSES


def __getattr__(name: str) -> Any:
    """Rarer layouts, and arrays of Arrow's own extension types, are imported when they are first asked for."""
    home: Any
    if name in LATE_CLASSES:
        home = import_module(f"shmarrow.layout.{LATE_CLASSES[name]}")
    elif name in __all__:
        # The types first, which bring their arrays: in one order, as two threads may import at the same time.
        from shmarrow.extension import canonical as types  # noqa: F401
        from shmarrow.layout import canonical as home
    else:
        raise AttributeError(f"module 'shmarrow.layout' has no attribute {name!r}")
    value = globals()[name] = getattr(home, name)
    return value
