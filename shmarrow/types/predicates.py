"""Type predicates, named as in ``pyarrow.types``.

All return False for an extension type; test its ``storage_type``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmarrow.errors import InvalidType, not_expected
from shmarrow.types.base import DataType
from shmarrow.types.nested import (
    DictionaryType,
    FixedSizeListType,
    LargeListType,
    LargeListViewType,
    ListType,
    ListViewType,
    MapType,
    RunEndEncodedType,
    StructType,
    UnionType,
)
from shmarrow.types.primitive import (
    BinaryType,
    BinaryViewType,
    BoolType,
    DateType,
    DecimalType,
    DurationType,
    FixedSizeBinaryType,
    FloatType,
    IntervalType,
    IntType,
    LargeBinaryType,
    NullType,
    TimestampType,
    TimeType,
)

__all__ = [
    "is_binary",
    "is_binary_view",
    "is_boolean",
    "is_date",
    "is_date32",
    "is_date64",
    "is_decimal",
    "is_decimal32",
    "is_decimal64",
    "is_decimal128",
    "is_decimal256",
    "is_dictionary",
    "is_duration",
    "is_fixed_size_binary",
    "is_fixed_size_list",
    "is_float16",
    "is_float32",
    "is_float64",
    "is_floating",
    "is_int8",
    "is_int16",
    "is_int32",
    "is_int64",
    "is_integer",
    "is_interval",
    "is_large_binary",
    "is_large_list",
    "is_large_list_view",
    "is_large_string",
    "is_large_unicode",
    "is_list",
    "is_list_view",
    "is_map",
    "is_nested",
    "is_null",
    "is_primitive",
    "is_run_end_encoded",
    "is_signed_integer",
    "is_string",
    "is_string_view",
    "is_struct",
    "is_temporal",
    "is_time",
    "is_time32",
    "is_time64",
    "is_timestamp",
    "is_uint8",
    "is_uint16",
    "is_uint32",
    "is_uint64",
    "is_unicode",
    "is_union",
    "is_unsigned_integer",
]  # fmt: skip

_TEMPORAL = (DateType, TimeType, TimestampType, DurationType, IntervalType)
_LISTS = (ListType, LargeListType, FixedSizeListType, ListViewType, LargeListViewType)


def _asks(*classes: type[DataType], **parameters: Any) -> Callable[[DataType], bool]:
    """Create a predicate for types of one of the classes with the parameters."""

    def predicate(t: DataType) -> bool:
        if not isinstance(t, DataType):
            error = not_expected("a DataType", t)
            raise InvalidType(f"{predicate.__name__}: {error}")
        return isinstance(t, classes) and all(getattr(t, name) == value for name, value in parameters.items())

    return predicate


is_null = _asks(NullType)
is_boolean = _asks(BoolType)

is_integer = _asks(IntType)
is_signed_integer = _asks(IntType, signed=True)
is_unsigned_integer = _asks(IntType, signed=False)
is_int8 = _asks(IntType, signed=True, bits=8)
is_int16 = _asks(IntType, signed=True, bits=16)
is_int32 = _asks(IntType, signed=True, bits=32)
is_int64 = _asks(IntType, signed=True, bits=64)
is_uint8 = _asks(IntType, signed=False, bits=8)
is_uint16 = _asks(IntType, signed=False, bits=16)
is_uint32 = _asks(IntType, signed=False, bits=32)
is_uint64 = _asks(IntType, signed=False, bits=64)

is_floating = _asks(FloatType)
is_float16 = _asks(FloatType, bits=16)
is_float32 = _asks(FloatType, bits=32)
is_float64 = _asks(FloatType, bits=64)

is_decimal = _asks(DecimalType)
is_decimal32 = _asks(DecimalType, bits=32)
is_decimal64 = _asks(DecimalType, bits=64)
is_decimal128 = _asks(DecimalType, bits=128)
is_decimal256 = _asks(DecimalType, bits=256)

is_temporal = _asks(*_TEMPORAL)
is_date = _asks(DateType)
is_date32 = _asks(DateType, unit="day")
is_date64 = _asks(DateType, unit="ms")
is_time = _asks(TimeType)
is_time32 = _asks(TimeType, bits=32)
is_time64 = _asks(TimeType, bits=64)
is_timestamp = _asks(TimestampType)
is_duration = _asks(DurationType)
is_interval = _asks(IntervalType)

is_primitive = _asks(BoolType, IntType, FloatType, *_TEMPORAL)

is_binary = _asks(BinaryType, text=False)
is_large_binary = _asks(LargeBinaryType, text=False)
is_binary_view = _asks(BinaryViewType, text=False)
is_fixed_size_binary = _asks(FixedSizeBinaryType)
is_string = _asks(BinaryType, text=True)
is_unicode = _asks(BinaryType, text=True)
is_large_string = _asks(LargeBinaryType, text=True)
is_large_unicode = _asks(LargeBinaryType, text=True)
is_string_view = _asks(BinaryViewType, text=True)

is_nested = _asks(*_LISTS, MapType, StructType, UnionType, RunEndEncodedType)
is_list = _asks(ListType)
is_large_list = _asks(LargeListType)
is_fixed_size_list = _asks(FixedSizeListType)
is_list_view = _asks(ListViewType)
is_large_list_view = _asks(LargeListViewType)
is_map = _asks(MapType)
is_struct = _asks(StructType)
is_union = _asks(UnionType)
is_dictionary = _asks(DictionaryType)
is_run_end_encoded = _asks(RunEndEncodedType)

for _name in __all__:
    _predicate = globals()[_name]
    _predicate.__name__ = _predicate.__qualname__ = _name
    _predicate.__doc__ = f"Return what ``pyarrow.types.{_name}`` does; InvalidType if ``t`` is not a DataType."
