"""Physical memory layouts (columnar format, "Physical Memory Layout"): one file a layout, the class of its arrays.

``listing`` holds the buffer listing as a table, ``array`` what all arrays share and :func:`make_array`, ``build`` makes
arrays from Python values and numpy, ``cast`` changes their form.
"""

from shmarrow.layout.array import Array, concat_arrays, make_array, nulls
from shmarrow.layout.binary import BinaryArray
from shmarrow.layout.binary_view import BinaryViewArray
from shmarrow.layout.build import array, infer_type
from shmarrow.layout.dictionary import DictionaryArray
from shmarrow.layout.extension import (
    Bool8Array,
    ExtensionArray,
    FixedShapeTensorArray,
    JsonArray,
    TimestampWithOffsetArray,
    VariableShapeTensorArray,
    VariantArray,
)
from shmarrow.layout.fixed_size_list import FixedSizeListArray
from shmarrow.layout.list import ListArray, MapArray
from shmarrow.layout.list_view import ListViewArray
from shmarrow.layout.listing import LISTING, Layout, Row
from shmarrow.layout.null import NullArray
from shmarrow.layout.primitive import BooleanArray, PrimitiveArray
from shmarrow.layout.run_end_encoded import RunEndEncodedArray
from shmarrow.layout.struct import StructArray
from shmarrow.layout.union import UnionArray
from shmarrow.layout.values import DayTime, MonthDayNano

__all__ = [
    "LISTING",
    "Array",
    "BinaryArray",
    "BinaryViewArray",
    "Bool8Array",
    "BooleanArray",
    "DayTime",
    "DictionaryArray",
    "ExtensionArray",
    "FixedShapeTensorArray",
    "FixedSizeListArray",
    "JsonArray",
    "Layout",
    "ListArray",
    "ListViewArray",
    "MapArray",
    "MonthDayNano",
    "NullArray",
    "PrimitiveArray",
    "Row",
    "RunEndEncodedArray",
    "StructArray",
    "TimestampWithOffsetArray",
    "UnionArray",
    "VariableShapeTensorArray",
    "VariantArray",
    "array",
    "concat_arrays",
    "infer_type",
    "make_array",
    "nulls",
]
