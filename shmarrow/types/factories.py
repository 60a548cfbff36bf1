"""Factories of types, fields and schemas, named as pyarrow's."""

from __future__ import annotations

from collections.abc import Sequence

from shmarrow.types.base import ALIASES, DataType, MetadataLike, as_type
from shmarrow.types.field import Field, FieldsLike, as_field
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
    TIME_UNITS,
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
from shmarrow.types.schema import Schema

_NULL = NullType()
_BOOL = BoolType()
_INTS = {str(made): made for made in (IntType(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False))}
_FLOATS = {bits: FloatType(bits) for bits in (16, 32, 64)}


def null() -> NullType:
    """All slots null."""
    return _NULL


def bool_() -> BoolType:
    """Truth values, one bit each."""
    return _BOOL


def int8() -> IntType:
    """Signed integers of 8 bits."""
    return _INTS["int8"]


def int16() -> IntType:
    """Signed integers of 16 bits."""
    return _INTS["int16"]


def int32() -> IntType:
    """Signed integers of 32 bits."""
    return _INTS["int32"]


def int64() -> IntType:
    """Signed integers of 64 bits."""
    return _INTS["int64"]


def uint8() -> IntType:
    """Unsigned integers of 8 bits."""
    return _INTS["uint8"]


def uint16() -> IntType:
    """Unsigned integers of 16 bits."""
    return _INTS["uint16"]


def uint32() -> IntType:
    """Unsigned integers of 32 bits."""
    return _INTS["uint32"]


def uint64() -> IntType:
    """Unsigned integers of 64 bits."""
    return _INTS["uint64"]


def float16() -> FloatType:
    """Floating point numbers of 16 bits."""
    return _FLOATS[16]


def float32() -> FloatType:
    """Floating point numbers of 32 bits."""
    return _FLOATS[32]


def float64() -> FloatType:
    """Floating point numbers of 64 bits."""
    return _FLOATS[64]


def decimal32(precision: int, scale: int = 0) -> DecimalType:
    """Decimals of up to 9 digits in 32 bits."""
    return DecimalType(32, precision, scale)


def decimal64(precision: int, scale: int = 0) -> DecimalType:
    """Decimals of up to 18 digits in 64 bits."""
    return DecimalType(64, precision, scale)


def decimal128(precision: int, scale: int = 0) -> DecimalType:
    """Decimals of up to 38 digits in 128 bits."""
    return DecimalType(128, precision, scale)


def decimal256(precision: int, scale: int = 0) -> DecimalType:
    """Decimals of up to 76 digits in 256 bits."""
    return DecimalType(256, precision, scale)


def date32() -> DateType:
    """Days since 1970-01-01."""
    return DateType("day")


def date64() -> DateType:
    """Milliseconds since 1970-01-01, whole days."""
    return DateType("ms")


def time32(unit: str) -> TimeType:
    """Time since midnight in ``"s"`` or ``"ms"``."""
    return TimeType(unit, 32)


def time64(unit: str) -> TimeType:
    """Time since midnight in ``"us"`` or ``"ns"``."""
    return TimeType(unit, 64)


def timestamp(unit: str, tz: str | None = None) -> TimestampType:
    """Time since 1970-01-01 in ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``, with or without a time zone."""
    return TimestampType(unit, tz)


def duration(unit: str) -> DurationType:
    """A length of time in ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``."""
    return DurationType(unit)


def month_interval() -> IntervalType:
    """Calendar intervals in months."""
    return IntervalType("month")


def day_time_interval() -> IntervalType:
    """Calendar intervals in days and milliseconds."""
    return IntervalType("day_time")


def month_day_nano_interval() -> IntervalType:
    """Calendar intervals in months, days and nanoseconds."""
    return IntervalType("month_day_nano")


def binary(length: int = -1) -> DataType:
    """Byte strings, of any length, or all of the ``length`` given."""
    return BinaryType(False) if length == -1 else FixedSizeBinaryType(length)


def string() -> BinaryType:
    """Text in UTF-8."""
    return BinaryType(True)


utf8 = string


def large_binary() -> LargeBinaryType:
    """Byte strings with 64-bit offsets."""
    return LargeBinaryType(False)


def large_string() -> LargeBinaryType:
    """Text in UTF-8 with 64-bit offsets."""
    return LargeBinaryType(True)


large_utf8 = large_string


def binary_view() -> BinaryViewType:
    """Byte strings in the view layout."""
    return BinaryViewType(False)


def string_view() -> BinaryViewType:
    """Text in UTF-8 in the view layout."""
    return BinaryViewType(True)


def list_(value_type: Field | DataType | str, list_size: int = -1) -> ListType | FixedSizeListType:
    """Lists of any length, or all of the ``list_size`` given."""
    return ListType(value_type) if list_size == -1 else FixedSizeListType(value_type, list_size)


def large_list(value_type: Field | DataType | str) -> LargeListType:
    """Lists with 64-bit offsets."""
    return LargeListType(value_type)


def list_view(value_type: Field | DataType | str) -> ListViewType:
    """Lists in the view layout."""
    return ListViewType(value_type)


def large_list_view(value_type: Field | DataType | str) -> LargeListViewType:
    """Lists in the view layout with 64-bit offsets and sizes."""
    return LargeListViewType(value_type)


def struct(fields: FieldsLike) -> StructType:
    """Structs of fields, of (name, type) pairs, or of a mapping of names to types."""
    return StructType(fields)


def map_(key_type: Field | DataType | str, item_type: Field | DataType | str, keys_sorted: bool = False) -> MapType:
    """Maps from keys, which are not null, to items."""
    key = key_type if isinstance(key_type, Field) else Field("key", as_type(key_type), nullable=False)
    entries = Field("entries", StructType([key, as_field(item_type, "value")]), nullable=False)
    return MapType(entries, keys_sorted)


def dictionary(index_type: DataType | str, value_type: DataType | str, ordered: bool = False) -> DictionaryType:
    """Values by their index in a dictionary."""
    return DictionaryType(index_type, value_type, ordered)


def union(fields: FieldsLike, mode: str, type_codes: Sequence[int] | None = None) -> UnionType:
    """A union in mode ``"sparse"`` or ``"dense"``; type codes are 0 to n - 1 unless given."""
    return UnionType(mode, fields, type_codes)


def sparse_union(fields: FieldsLike, type_codes: Sequence[int] | None = None) -> UnionType:
    """A union whose children all have its own length."""
    return UnionType("sparse", fields, type_codes)


def dense_union(fields: FieldsLike, type_codes: Sequence[int] | None = None) -> UnionType:
    """A union whose children hold only the values that are used, found by offsets."""
    return UnionType("dense", fields, type_codes)


def run_end_encoded(run_end_type: Field | DataType | str, value_type: Field | DataType | str) -> RunEndEncodedType:
    """Runs of equal values, with run ends of 16, 32 or 64 bits."""
    return RunEndEncodedType(run_end_type, value_type)


def field(name: str, type: DataType | str, nullable: bool = True, metadata: MetadataLike | None = None) -> Field:
    """A named type."""
    return Field(name, as_type(type), nullable, metadata)


def schema(fields: FieldsLike | Schema, metadata: MetadataLike | None = None) -> Schema:
    """A schema from fields, from (name, type) pairs, or from a mapping of names to types."""
    if isinstance(fields, Schema):
        return fields if metadata is None else fields.with_metadata(metadata)
    return Schema(fields, metadata)


def _make_aliases() -> dict[str, DataType]:
    made: list[DataType] = [_NULL, _BOOL, date32(), date64(), *_FLOATS.values(), *_INTS.values()]
    made += [time32("s"), time32("ms"), time64("us"), time64("ns")]
    made += [TimestampType(unit) for unit in TIME_UNITS] + [DurationType(unit) for unit in TIME_UNITS]
    made += [IntervalType(unit) for unit in IntervalType.STORAGE]
    for kind in (BinaryType, LargeBinaryType, BinaryViewType):
        made += [kind(False), kind(True)]
    names = {str(item): item for item in made}
    extra = {
        "date32": "date32[day]", "date64": "date64[ms]", "float16": "halffloat", "float32": "float",
        "float64": "double", "bool_": "bool", "utf8": "string", "large_utf8": "large_string", "boolean": "bool",
        "str": "string",
    }  # fmt: skip
    return names | {alias: names[name] for alias, name in extra.items()}


ALIASES.update(_make_aliases())
