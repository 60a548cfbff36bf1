"""Types without children: null, truth values, numbers, dates and times, bytes and text ("Data Types")."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from shmarrow.errors import InvalidArgument, InvalidType
from shmarrow.types.base import DataType, DType

TIME_UNITS = ("s", "ms", "us", "ns")


class NullType(DataType):
    """All slots are null and no buffer exists."""

    __slots__ = ()
    layout = "null"
    format = "n"

    def _name(self) -> str:
        return "null"


class BoolType(DataType):
    """One bit a value."""

    __slots__ = ()
    layout = "bool"
    format = "b"

    @property
    def bit_width(self) -> int:
        return 1

    def _name(self) -> str:
        return "bool"


class _Numeric(DataType):
    """A fixed-width type whose values buffer is directly a numpy array."""

    __slots__ = ("numpy_dtype", "storage")
    layout = "primitive"
    storage: DType

    def _store(self, dtype: Any) -> None:
        self.storage = self.numpy_dtype = np.dtype(dtype)


class IntType(_Numeric):
    """Integers of 8, 16, 32 or 64 bits, signed or not."""

    __slots__ = ("signed",)
    parameters = ("bits", "signed")

    def __init__(self, bits: int, signed: bool) -> None:
        if bits not in (8, 16, 32, 64):
            raise InvalidArgument(f"an integer has 8, 16, 32 or 64 bits, found {bits}")
        self.signed = signed
        self._store(f"<{'i' if signed else 'u'}{bits // 8}")

    @property
    def bits(self) -> int:
        return 8 * self.storage.itemsize

    @property
    def format(self) -> str:
        letter = "csil"[self.storage.itemsize.bit_length() - 1]
        return letter if self.signed else letter.upper()

    def _name(self) -> str:
        return f"{'' if self.signed else 'u'}int{self.bits}"


class FloatType(_Numeric):
    """IEEE 754 numbers of 16, 32 or 64 bits."""

    __slots__ = ()
    parameters = ("bits",)

    def __init__(self, bits: int) -> None:
        if bits not in (16, 32, 64):
            raise InvalidArgument(f"a floating point number has 16, 32 or 64 bits, found {bits}")
        self._store(f"<f{bits // 8}")

    @property
    def bits(self) -> int:
        return 8 * self.storage.itemsize

    @property
    def format(self) -> str:
        return {16: "e", 32: "f", 64: "g"}[self.bits]

    def _name(self) -> str:
        return {16: "halffloat", 32: "float", 64: "double"}[self.bits]


class DecimalType(DataType):
    """Exact decimal numbers: an integer of 32, 64, 128 or 256 bits times ten to the power of minus ``scale``."""

    __slots__ = ("bits", "precision", "scale", "storage")
    layout = "primitive"
    parameters = ("bits", "precision", "scale")
    MAX_PRECISION: ClassVar[dict[int, int]] = {32: 9, 64: 18, 128: 38, 256: 76}

    def __init__(self, bits: int, precision: int, scale: int = 0) -> None:
        if bits not in self.MAX_PRECISION:
            raise InvalidArgument(f"a decimal has 32, 64, 128 or 256 bits, found {bits}")
        if not 1 <= precision <= self.MAX_PRECISION[bits]:
            raise InvalidArgument(
                f"decimal{bits} has a precision of 1 to {self.MAX_PRECISION[bits]}, found {precision}"
            )
        if not -(1 << 31) <= scale < 1 << 31:
            raise InvalidArgument(f"the scale of a decimal is an int32, found {scale}")
        self.bits = bits
        self.precision = precision
        self.scale = scale
        self.storage = np.dtype(f"<i{bits // 8}") if bits <= 64 else np.dtype(("<u8", (bits // 64,)))

    @property
    def format(self) -> str:
        return f"d:{self.precision},{self.scale}" + ("" if self.bits == 128 else f",{self.bits}")

    def _name(self) -> str:
        return f"decimal{self.bits}({self.precision}, {self.scale})"


class DateType(DataType):
    """Days, or milliseconds that are whole days, since 1970-01-01."""

    __slots__ = ("numpy_dtype", "storage", "unit")
    layout = "primitive"
    parameters = ("unit",)

    def __init__(self, unit: str) -> None:
        if unit not in ("day", "ms"):
            raise InvalidArgument(f"the unit of a date is 'day' or 'ms', found {unit!r}")
        self.unit = unit
        self.storage = np.dtype("<i4" if unit == "day" else "<i8")
        self.numpy_dtype = np.dtype("<M8[ms]") if unit == "ms" else None

    @property
    def format(self) -> str:
        return "tdD" if self.unit == "day" else "tdm"

    def _name(self) -> str:
        return "date32[day]" if self.unit == "day" else "date64[ms]"


def _check_unit(unit: str) -> None:
    if unit not in TIME_UNITS:
        raise InvalidArgument(f"a time unit is one of s, ms, us, ns, found {unit!r}")


class TimeType(DataType):
    """Time since midnight: 32 bits of seconds or milliseconds, 64 bits of microseconds or nanoseconds."""

    __slots__ = ("storage", "unit")
    layout = "primitive"
    parameters = ("unit", "bits")

    def __init__(self, unit: str, bits: int) -> None:
        _check_unit(unit)
        if bits != (32 if unit in ("s", "ms") else 64):
            raise InvalidArgument(f"a time in {unit} has {32 if unit in ('s', 'ms') else 64} bits, found {bits}")
        self.unit = unit
        self.storage = np.dtype(f"<i{bits // 8}")

    @property
    def bits(self) -> int:
        return self.bit_width

    @property
    def format(self) -> str:
        return "tt" + {"s": "s", "ms": "m", "us": "u", "ns": "n"}[self.unit]

    def _name(self) -> str:
        return f"time{self.bits}[{self.unit}]"


class TimestampType(DataType):
    """Time since 1970-01-01 00:00:00, in UTC if there is a time zone, else in whatever zone the reader assumes."""

    __slots__ = ("numpy_dtype", "tz", "unit")
    layout = "primitive"
    parameters = ("unit", "tz")
    storage = np.dtype("<i8")

    def __init__(self, unit: str, tz: str | None = None) -> None:
        _check_unit(unit)
        if tz is not None and not isinstance(tz, str):
            raise InvalidType(f"the time zone of a timestamp is a string, found {type(tz).__name__}")
        self.unit = unit
        self.numpy_dtype = np.dtype(f"<M8[{unit}]")
        self.tz = tz or None

    @property
    def format(self) -> str:
        return f"ts{ {'s': 's', 'ms': 'm', 'us': 'u', 'ns': 'n'}[self.unit] }:{self.tz or ''}"

    def _name(self) -> str:
        return f"timestamp[{self.unit}]" if self.tz is None else f"timestamp[{self.unit}, tz={self.tz}]"


class DurationType(DataType):
    """A length of time, with no relation to the calendar."""

    __slots__ = ("numpy_dtype", "unit")
    layout = "primitive"
    parameters = ("unit",)
    storage = np.dtype("<i8")

    def __init__(self, unit: str) -> None:
        _check_unit(unit)
        self.unit = unit
        self.numpy_dtype = np.dtype(f"<m8[{unit}]")

    @property
    def format(self) -> str:
        return "tD" + {"s": "s", "ms": "m", "us": "u", "ns": "n"}[self.unit]

    def _name(self) -> str:
        return f"duration[{self.unit}]"


class IntervalType(_Numeric):
    """A span on the calendar: months, days and milliseconds, or months, days and nanoseconds."""

    __slots__ = ("unit",)
    parameters = ("unit",)
    STORAGE: ClassVar[dict[str, DType]] = {
        "month": np.dtype("<i4"),
        "day_time": np.dtype([("days", "<i4"), ("milliseconds", "<i4")]),
        "month_day_nano": np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")]),
    }

    def __init__(self, unit: str) -> None:
        if unit not in self.STORAGE:
            raise InvalidArgument(f"the unit of an interval is one of {', '.join(self.STORAGE)}, found {unit!r}")
        self.unit = unit
        self._store(self.STORAGE[unit])

    @property
    def format(self) -> str:
        return {"month": "tiM", "day_time": "tiD", "month_day_nano": "tin"}[self.unit]

    def _name(self) -> str:
        return f"{self.unit}_interval"


class FixedSizeBinaryType(_Numeric):
    """Values of the same number of bytes each."""

    __slots__ = ()
    parameters = ("width",)

    def __init__(self, width: int) -> None:
        if not 0 <= width < 1 << 31:
            raise InvalidArgument(f"the width of a fixed-size binary is an int32 of at least 0, found {width}")
        self._store((np.void, width))

    @property
    def width(self) -> int:
        return self.storage.itemsize

    @property
    def format(self) -> str:
        return f"w:{self.width}"

    def _name(self) -> str:
        return f"fixed_size_binary[{self.width}]"


class _BinaryLike(DataType):
    """Byte strings or text of any length; ``text`` says that the bytes are UTF-8."""

    __slots__ = ("text",)
    parameters = ("text",)
    NAMES: ClassVar[tuple[str, str]]
    FORMATS: ClassVar[tuple[str, str]]

    def __init__(self, text: bool) -> None:
        self.text = text

    @property
    def format(self) -> str:
        return self.FORMATS[self.text]

    def _name(self) -> str:
        return self.NAMES[self.text]


class BinaryType(_BinaryLike):
    """Values one after another in one buffer, with 32-bit offsets."""

    __slots__ = ()
    layout = "binary"
    NAMES = ("binary", "string")
    FORMATS = ("z", "u")
    offset_dtype = np.dtype("<i4")


class LargeBinaryType(_BinaryLike):
    """Values one after another in one buffer, with 64-bit offsets."""

    __slots__ = ()
    layout = "large_binary"
    NAMES = ("large_binary", "large_string")
    FORMATS = ("Z", "U")
    offset_dtype = np.dtype("<i8")


class BinaryViewType(_BinaryLike):
    """Sixteen bytes a value, which hold it or say in which of several buffers it lies."""

    __slots__ = ()
    layout = "binary_view"
    NAMES = ("binary_view", "string_view")
    FORMATS = ("vz", "vu")
