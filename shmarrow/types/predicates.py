# SPDX-License-Identifier: Apache-2.0
"""Type predicates, named as in ``pyarrow.types``.

All return False for an extension type; test its ``storage_type``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmarrow.errors import at, not_expected
from shmarrow.types.base import DataType
from shmarrow.types.descriptors import TYPES
from shmarrow.types.extension import ExtensionType


def _asks(*members: str, **parameters: Any) -> Callable[[DataType], bool]:
    """Create a predicate for types of one of these members of the Type union, with these parameters."""

    def predicate(t: DataType) -> bool:
        if not isinstance(t, DataType):
            with at(predicate.__name__):
                raise not_expected("a DataType", t)
        return (
            not isinstance(t, ExtensionType)
            and t.descriptor.member in members
            and all(getattr(t, name) == value for name, value in parameters.items())
        )

    return predicate


_TEMPORAL = ("Date", "Time", "Timestamp", "Duration", "Interval")

is_null = _asks("Null")
is_boolean = _asks("Bool")

is_integer = _asks("Int")
is_signed_integer = _asks("Int", signed=True)
is_unsigned_integer = _asks("Int", signed=False)
is_int8 = _asks("Int", signed=True, bits=8)
is_int16 = _asks("Int", signed=True, bits=16)
is_int32 = _asks("Int", signed=True, bits=32)
is_int64 = _asks("Int", signed=True, bits=64)
is_uint8 = _asks("Int", signed=False, bits=8)
is_uint16 = _asks("Int", signed=False, bits=16)
is_uint32 = _asks("Int", signed=False, bits=32)
is_uint64 = _asks("Int", signed=False, bits=64)

is_floating = _asks("FloatingPoint")
is_float16 = _asks("FloatingPoint", bits=16)
is_float32 = _asks("FloatingPoint", bits=32)
is_float64 = _asks("FloatingPoint", bits=64)

is_decimal = _asks("Decimal")
is_decimal32 = _asks("Decimal", bits=32)
is_decimal64 = _asks("Decimal", bits=64)
is_decimal128 = _asks("Decimal", bits=128)
is_decimal256 = _asks("Decimal", bits=256)

is_temporal = _asks(*_TEMPORAL)
is_date = _asks("Date")
is_date32 = _asks("Date", unit="day")
is_date64 = _asks("Date", unit="ms")
is_time = _asks("Time")
is_time32 = _asks("Time", bits=32)
is_time64 = _asks("Time", bits=64)
is_timestamp = _asks("Timestamp")
is_duration = _asks("Duration")
is_interval = _asks("Interval")

is_primitive = _asks("Bool", "Int", "FloatingPoint", *_TEMPORAL)

is_binary = _asks("Binary")
is_large_binary = _asks("LargeBinary")
is_binary_view = _asks("BinaryView")
is_fixed_size_binary = _asks("FixedSizeBinary")
is_string = _asks("Utf8")
is_unicode = _asks("Utf8")
is_large_string = _asks("LargeUtf8")
is_large_unicode = _asks("LargeUtf8")
is_string_view = _asks("Utf8View")

is_nested = _asks(*[descriptor.member for descriptor in TYPES if descriptor.children])
is_list = _asks("List")
is_large_list = _asks("LargeList")
is_fixed_size_list = _asks("FixedSizeList")
is_list_view = _asks("ListView")
is_large_list_view = _asks("LargeListView")
is_map = _asks("Map")
is_struct = _asks("Struct_")
is_union = _asks("Union")
is_dictionary = _asks("DictionaryEncoding")
is_run_end_encoded = _asks("RunEndEncoded")

for _name, _predicate in list(globals().items()):
    if _name.startswith("is_"):
        _predicate.__name__ = _predicate.__qualname__ = _name
        _predicate.__doc__ = f"Return what ``pyarrow.types.{_name}`` does; InvalidType if ``t`` is not a DataType."
