# SPDX-License-Identifier: Apache-2.0
"""Types without children: null, bool, numeric, temporal, binary and string ("Data Types").

The factories are named as in pyarrow. :func:`from_numpy_dtype` gives the type for a dtype; time zones are named as in
Schema.fbs, "Timestamp".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, overload

import numpy as np

from shmarrow.buffer import DType
from shmarrow.errors import InvalidArgument, InvalidType, shown
from shmarrow.types.arguments import as_int
from shmarrow.types.base import ALIASES, BY_DTYPE, DataType
from shmarrow.types.descriptors import DATE_UNIT, INTERVAL_UNIT, PRECISION, TIME_UNIT, TypeDescriptor, simple_types

if TYPE_CHECKING:
    import datetime as dt
    from datetime import tzinfo

    import numpy.typing as npt


def zone_name(zone: dt.tzinfo) -> str:
    """Return the Arrow name of a time zone: its name in the time zone database, or an offset such as ``+07:30``.

    Raises
    ------
    InvalidType
        If it has neither.
    """
    for attribute in ("key", "zone"):  # zoneinfo and pytz
        name = getattr(zone, attribute, None)
        if isinstance(name, str):
            return name
    try:
        offset = zone.utcoffset(None)
        seconds = None if offset is None else offset.total_seconds()
    except Exception:
        seconds = None  # the offset depends on the date
    if seconds is None or seconds % 60 or abs(seconds) >= 24 * 60 * 60:
        raise InvalidType(f"the time zone {shown(zone)} has no Arrow name; use zoneinfo, or an offset in whole minutes")
    if not seconds:
        return "UTC"
    minutes = int(seconds) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


__all__ = [
    "BinaryType",
    "BinaryViewType",
    "BoolType",
    "DateType",
    "DecimalType",
    "DurationType",
    "FixedSizeBinaryType",
    "FixedWidthType",
    "FloatType",
    "IntType",
    "IntervalType",
    "LargeBinaryType",
    "NullType",
    "TimeType",
    "TimestampType",
    "binary",
    "binary_view",
    "bool_",
    "date32",
    "date64",
    "day_time_interval",
    "decimal32",
    "decimal64",
    "decimal128",
    "decimal256",
    "duration",
    "float16",
    "float32",
    "float64",
    "from_numpy_dtype",
    "int8",
    "int16",
    "int32",
    "int64",
    "large_binary",
    "large_string",
    "large_utf8",
    "month_day_nano_interval",
    "month_interval",
    "null",
    "string",
    "string_view",
    "time32",
    "time64",
    "timestamp",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "utf8",
]  # fmt: skip


class NullType(DataType, members=("Null",)):
    """Null type: every slot is null, and there are no buffers."""

    __slots__ = ()

    def _name(self) -> str:
        return "null"


class BoolType(DataType, members=("Bool",)):
    """Booleans, one bit per value."""

    __slots__ = ()

    @property
    def bit_width(self) -> int:
        return 1

    def _name(self) -> str:
        return "bool"


class FixedWidthType(DataType, abstract=True):
    """Base class of types with a values buffer, whose dtypes follow from the parameters."""

    __slots__ = ("numpy_dtype", "storage")
    storage: DType

    def _set_dtypes(self) -> None:
        descriptor = self.descriptor
        storage, numpy = descriptor.storage, descriptor.numpy
        assert storage is not None
        dtype = np.dtype(storage(self))
        if numpy is not storage:
            other = numpy and numpy(self)
            self._set(storage=dtype, numpy_dtype=other and np.dtype(other))
        else:
            self._set(storage=dtype, numpy_dtype=dtype)


class IntType(FixedWidthType, members=("Int",)):
    """Signed or unsigned integers of 8, 16, 32 or 64 bits.

    Attributes
    ----------
    bits : int
        Width of a value in bits.
    signed : bool
        Whether values may be negative.
    """

    __slots__ = ("bits", "signed")
    parameters = ("bits", "signed")
    bits: int
    signed: bool

    def __init__(self, bits: int, signed: bool) -> None:
        if bits not in (8, 16, 32, 64):
            hint = "cast Int128 and UInt128 to Int64 or Decimal in polars" if bits == 128 else None
            raise InvalidArgument(f"an integer type must have 8, 16, 32 or 64 bits, found {bits}", hint=hint)
        self._set(bits=bits, signed=signed)
        self._set_dtypes()

    @property
    def letter(self) -> str:
        """Format string of the C data interface."""
        letter = "csil"[self.storage.itemsize.bit_length() - 1]
        return letter if self.signed else letter.upper()

    def _name(self) -> str:
        return f"{'' if self.signed else 'u'}int{self.bits}"


class FloatType(FixedWidthType, members=("FloatingPoint",)):
    """IEEE 754 floating-point numbers of 16, 32 or 64 bits.

    Attributes
    ----------
    bits : int
        Width of a value in bits.
    """

    __slots__ = ("bits",)
    parameters = ("bits",)
    bits: int

    def __init__(self, bits: int) -> None:
        if bits not in PRECISION.values:
            raise InvalidArgument(f"a floating-point type must have 16, 32 or 64 bits, found {bits}")
        self._set(bits=bits)
        self._set_dtypes()

    def _name(self) -> str:
        return {16: "halffloat", 32: "float", 64: "double"}[self.bits]


class DecimalType(FixedWidthType, members=("Decimal",)):
    """Exact decimals: an integer of 32, 64, 128 or 256 bits times ``10 ** -scale``.

    Attributes
    ----------
    bits : int
        Width of a value in bits.
    precision : int
        Number of decimal digits.
    scale : int
        Number of digits after the decimal point; may be negative.
    MAX_PRECISION : dict of int to int
        Maximum precision for each width.
    """

    __slots__ = ("bits", "precision", "scale")
    parameters = ("bits", "precision", "scale")
    bits: int
    precision: int
    scale: int
    MAX_PRECISION: ClassVar[dict[int, int]] = {32: 9, 64: 18, 128: 38, 256: 76}

    def __init__(self, bits: int, precision: int, scale: int = 0) -> None:
        if bits not in self.MAX_PRECISION:
            raise InvalidArgument(f"a decimal type must have 32, 64, 128 or 256 bits, found {shown(bits)}")
        precision = as_int(precision, "the precision of a decimal")
        scale = as_int(scale, "the scale of a decimal")
        if not 1 <= precision <= self.MAX_PRECISION[bits]:
            raise InvalidArgument(
                f"decimal{bits} must have a precision of 1 to {self.MAX_PRECISION[bits]}, found {shown(precision)}"
            )
        if not -(1 << 31) <= scale < 1 << 31:
            raise InvalidArgument(f"the scale of a decimal must be an int32, found {shown(scale)}")
        self._set(bits=bits, precision=precision, scale=scale)
        self._set_dtypes()

    def _name(self) -> str:
        return f"decimal{self.bits}({self.precision}, {self.scale})"


class DateType(FixedWidthType, members=("Date",)):
    """Dates: days since 1970-01-01, or milliseconds that are a multiple of a day.

    Attributes
    ----------
    unit : str
        ``"day"`` (32 bits) or ``"ms"`` (64 bits).
    """

    __slots__ = ("unit",)
    parameters = ("unit",)
    unit: str

    def __init__(self, unit: str) -> None:
        if unit not in DATE_UNIT.values:
            raise InvalidArgument(f"the unit of a date must be 'day' or 'ms', found {shown(unit)}")
        self._set(unit=unit)
        self._set_dtypes()

    def _name(self) -> str:
        return f"date{self.bit_width}[{self.unit}]"


class _TimeLike(FixedWidthType, abstract=True):
    """Base class of types that count seconds or fractions of a second."""

    __slots__ = ("unit",)
    parameters: ClassVar[tuple[str, ...]] = ("unit",)
    unit: str

    def __init__(self, unit: str) -> None:
        if unit not in TIME_UNIT.values:
            raise InvalidArgument(f"a time unit must be one of s, ms, us, ns, found {shown(unit)}")
        self._set(unit=unit)
        self._set_dtypes()


class TimeType(_TimeLike, members=("Time",)):
    """Time since midnight: 32 bits of seconds or milliseconds, 64 bits of microseconds or nanoseconds.

    Attributes
    ----------
    unit : str
        ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
    bits : int
        Width of a value in bits.
    """

    __slots__ = ()
    parameters = ("unit", "bits")

    def __init__(self, unit: str, bits: int | None = None) -> None:
        super().__init__(unit)
        if bits is not None and bits != self.bits:
            raise InvalidArgument(f"a time in {unit} has {self.bits} bits, found {bits}")

    @property
    def bits(self) -> int:
        return 32 if self.unit in ("s", "ms") else 64

    def _name(self) -> str:
        return f"time{self.bits}[{self.unit}]"


class TimestampType(_TimeLike, members=("Timestamp",)):
    """Time since 1970-01-01 00:00:00: in UTC with a time zone, local time in an unspecified zone without.

    Attributes
    ----------
    unit : str
        ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
    tz : str or None
        Name or offset of the time zone.
    """

    __slots__ = ("tz",)
    parameters = ("unit", "tz")
    tz: str | None

    def __init__(self, unit: str, tz: str | tzinfo | None = None) -> None:
        super().__init__(unit)
        if tz is not None and not isinstance(tz, str):
            if not hasattr(tz, "utcoffset"):
                raise InvalidType(
                    f"the time zone of a timestamp must be a string or a tzinfo, found {type(tz).__name__}"
                )

            tz = zone_name(tz)
        self._set(tz=tz or None)

    def _name(self) -> str:
        return f"timestamp[{self.unit}]" if self.tz is None else f"timestamp[{self.unit}, tz={self.tz}]"


class DurationType(_TimeLike, members=("Duration",)):
    """Elapsed time, independent of the calendar.

    Attributes
    ----------
    unit : str
        ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
    """

    __slots__ = ()

    def _name(self) -> str:
        return f"duration[{self.unit}]"


class IntervalType(FixedWidthType, members=("Interval",)):
    """Calendar intervals: months, days and milliseconds, or months, days and nanoseconds.

    Attributes
    ----------
    unit : str
        ``"month"``, ``"day_time"`` or ``"month_day_nano"``.
    """

    __slots__ = ("unit",)
    parameters = ("unit",)
    unit: str

    def __init__(self, unit: str) -> None:
        if unit not in INTERVAL_UNIT.values:
            units = ", ".join(INTERVAL_UNIT.values)
            raise InvalidArgument(f"the unit of an interval must be one of {units}, found {shown(unit)}")
        self._set(unit=unit)
        self._set_dtypes()

    def _name(self) -> str:
        return f"{self.unit}_interval"


class FixedSizeBinaryType(FixedWidthType, members=("FixedSizeBinary",)):
    """Byte strings of a fixed width.

    Attributes
    ----------
    width : int
        Bytes per value.
    """

    __slots__ = ("width",)
    parameters = ("width",)
    width: int

    def __init__(self, width: int) -> None:
        width = as_int(width, "the width of a fixed-size binary")
        if not 0 <= width < 1 << 31:
            raise InvalidArgument(
                f"the width of a fixed-size binary must be an int32 of at least 0, found {shown(width)}"
            )
        self._set(width=width)
        self._set_dtypes()

    def _name(self) -> str:
        return f"fixed_size_binary[{self.width}]"


class _BinaryLike(DataType, abstract=True):
    """Base class of variable-length byte strings, or UTF-8 strings if ``text``."""

    __slots__ = ("descriptor", "text")
    parameters = ("text",)
    text: bool
    descriptor: TypeDescriptor

    def __init__(self, text: bool) -> None:
        self._set(text=text, descriptor=self._descriptors[text])

    def _name(self) -> str:
        return self.descriptor.factory


class BinaryType(_BinaryLike, members=("Binary", "Utf8")):
    """Binary or string values in one contiguous buffer, with 32-bit offsets.

    Attributes
    ----------
    text : bool
        Whether the bytes are UTF-8 text.
    offset_dtype : numpy.dtype
        dtype of the offsets.
    """

    __slots__ = ()
    offset_dtype = np.dtype("<i4")


class LargeBinaryType(_BinaryLike, members=("LargeBinary", "LargeUtf8")):
    """Binary or string values in one contiguous buffer, with 64-bit offsets.

    Attributes
    ----------
    text : bool
        Whether the bytes are UTF-8 text.
    offset_dtype : numpy.dtype
        dtype of the offsets.
    """

    __slots__ = ()
    offset_dtype = np.dtype("<i8")


class BinaryViewType(_BinaryLike, members=("BinaryView", "Utf8View")):
    """Binary or string views: 16 bytes per value, which hold a short value or locate it in one of several buffers.

    Attributes
    ----------
    text : bool
        Whether the bytes are UTF-8 text.
    """

    __slots__ = ()


_NULL = NullType()
_BOOL = BoolType()
_INTS = {str(made): made for made in (IntType(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False))}
_FLOATS = {bits: FloatType(bits) for bits in (16, 32, 64)}


def null() -> NullType:
    """Return the null type."""
    return _NULL


def bool_() -> BoolType:
    """Return the boolean type, one bit per value."""
    return _BOOL


def int8() -> IntType:
    """Return the signed 8-bit integer type."""
    return _INTS["int8"]


def int16() -> IntType:
    """Return the signed 16-bit integer type."""
    return _INTS["int16"]


def int32() -> IntType:
    """Return the signed 32-bit integer type."""
    return _INTS["int32"]


def int64() -> IntType:
    """Return the signed 64-bit integer type."""
    return _INTS["int64"]


def uint8() -> IntType:
    """Return the unsigned 8-bit integer type."""
    return _INTS["uint8"]


def uint16() -> IntType:
    """Return the unsigned 16-bit integer type."""
    return _INTS["uint16"]


def uint32() -> IntType:
    """Return the unsigned 32-bit integer type."""
    return _INTS["uint32"]


def uint64() -> IntType:
    """Return the unsigned 64-bit integer type."""
    return _INTS["uint64"]


def float16() -> FloatType:
    """Return the 16-bit floating-point type."""
    return _FLOATS[16]


def float32() -> FloatType:
    """Return the 32-bit floating-point type."""
    return _FLOATS[32]


def float64() -> FloatType:
    """Return the 64-bit floating-point type."""
    return _FLOATS[64]


def decimal32(precision: int, scale: int = 0) -> DecimalType:
    """Create a 32-bit decimal type of up to 9 digits."""
    return DecimalType(32, precision, scale)


def decimal64(precision: int, scale: int = 0) -> DecimalType:
    """Create a 64-bit decimal type of up to 18 digits."""
    return DecimalType(64, precision, scale)


def decimal128(precision: int, scale: int = 0) -> DecimalType:
    """Create a 128-bit decimal type of up to 38 digits.

    Parameters
    ----------
    precision : int
        Maximum number of digits, 1 to 38.
    scale : int
        Number of digits after the decimal point; negative for multiples of a power of ten.

    Raises
    ------
    InvalidArgument
        If the precision or the scale is out of range.
    """
    return DecimalType(128, precision, scale)


def decimal256(precision: int, scale: int = 0) -> DecimalType:
    """Create a 256-bit decimal type of up to 76 digits."""
    return DecimalType(256, precision, scale)


def date32() -> DateType:
    """Return the date type of days since 1970-01-01 (int32)."""
    return DateType("day")


def date64() -> DateType:
    """Return the date type of milliseconds since 1970-01-01 (int64), in whole days."""
    return DateType("ms")


def time32(unit: str) -> TimeType:
    """Create a time-of-day type in ``"s"`` or ``"ms"`` (int32)."""
    return TimeType(unit, 32)


def time64(unit: str) -> TimeType:
    """Create a time-of-day type in ``"us"`` or ``"ns"`` (int64)."""
    return TimeType(unit, 64)


def timestamp(unit: str, tz: str | tzinfo | None = None) -> TimestampType:
    """Create a timestamp type: time since 1970-01-01, with or without a time zone.

    Parameters
    ----------
    unit : {"s", "ms", "us", "ns"}
        Unit of the values.
    tz : str or tzinfo, optional
        Name in the time zone database, such as ``"Europe/Oslo"``, or offset, such as ``"+07:30"``; values then count
        from 1970-01-01 00:00:00 UTC. Without it, values are local times in an unspecified zone.

    Raises
    ------
    InvalidArgument
        If the unit is unknown.
    InvalidType
        If ``tz`` is neither a string nor a tzinfo with a name or a fixed offset in whole minutes.
    """
    return TimestampType(unit, tz)


def duration(unit: str) -> DurationType:
    """Create a duration type in ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``."""
    return DurationType(unit)


def month_interval() -> IntervalType:
    """Return the calendar interval type of months."""
    return IntervalType("month")


def day_time_interval() -> IntervalType:
    """Return the calendar interval type of days and milliseconds."""
    return IntervalType("day_time")


def month_day_nano_interval() -> IntervalType:
    """Return the calendar interval type of months, days and nanoseconds."""
    return IntervalType("month_day_nano")


@overload
def binary(length: Literal[-1] = -1) -> BinaryType: ...  # type: ignore[overload-overlap]


@overload
def binary(length: int) -> FixedSizeBinaryType: ...


def binary(length: int = -1) -> BinaryType | FixedSizeBinaryType:
    """Create a binary type: variable-length, or fixed-size if ``length`` is given."""
    length = as_int(length, "the width of a fixed-size binary")
    return BinaryType(False) if length == -1 else FixedSizeBinaryType(length)


def string() -> BinaryType:
    """Return the UTF-8 string type with 32-bit offsets."""
    return BinaryType(True)


utf8 = string


def large_binary() -> LargeBinaryType:
    """Return the binary type with 64-bit offsets."""
    return LargeBinaryType(False)


def large_string() -> LargeBinaryType:
    """Return the UTF-8 string type with 64-bit offsets."""
    return LargeBinaryType(True)


large_utf8 = large_string


def binary_view() -> BinaryViewType:
    """Return the binary-view type."""
    return BinaryViewType(False)


def string_view() -> BinaryViewType:
    """Return the UTF-8 string-view type."""
    return BinaryViewType(True)


_OTHER_NAMES = {
    "date32": "date32[day]", "date64": "date64[ms]", "float16": "halffloat", "float32": "float", "float64": "double",
    "bool_": "bool", "utf8": "string", "large_utf8": "large_string", "boolean": "bool", "str": "string",
}  # fmt: skip


def from_numpy_dtype(dtype: npt.DTypeLike) -> DataType:
    """Return the type for a numpy dtype, or anything ``np.dtype`` accepts, such as ``"M8[ms]"``.

    Raises
    ------
    InvalidType
        If numpy does not know the dtype, or no Arrow type corresponds to it.
    """
    if not isinstance(dtype, np.dtype):
        try:
            dtype = np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise InvalidType(f"expected a numpy dtype, found {shown(dtype)}: {error}") from None
    type = BY_DTYPE.get(dtype.newbyteorder("<"))
    if type is None and dtype.type is np.void and dtype.names is None and dtype.subdtype is None:
        type = FixedSizeBinaryType(dtype.itemsize)
    if type is None:
        is_ml = dtype.kind in "fV" and dtype.type.__module__ == "ml_dtypes"
        hint = "a shmarrow.Tensor keeps it" if is_ml else None
        raise InvalidType(f"no Arrow type for the numpy dtype {dtype}", hint=hint)
    return type


_TYPES = [*simple_types().values(), *map(TimestampType, TIME_UNIT.values)]
ALIASES.update({str(type): type for type in _TYPES})
ALIASES.update({alias: ALIASES[name] for alias, name in _OTHER_NAMES.items()})
BY_DTYPE.update({np.dtype("<M8[D]"): date32(), np.dtype("bool"): bool_()})
# The first type with a dtype wins, and M8[ms] is a timestamp rather than date64.
for _type in _TYPES:
    if _type.numpy_dtype is not None and _type.descriptor.values != "date":
        BY_DTYPE.setdefault(_type.numpy_dtype, _type)
