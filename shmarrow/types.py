"""The data types of Arrow (columnar format, "Data Types"; Schema.fbs), fields and schemas.

Rules kept here:

* a type is an immutable value: two types are equal when their class and their parameters are, and hash alike;
* each type names its row in the buffer listing (``layout``), the dtype of its values buffer (``storage``), the dtype
  that numpy users know it by (``numpy_dtype``) and its format string of the C data interface (``format``);
* names and factories are those of pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from shmarrow.errors import FieldNotFound, IndexOutOfRange, InvalidArgument, InvalidType

Metadata = dict[bytes, bytes]
DType = np.dtype[Any]

TIME_UNITS = ("s", "ms", "us", "ns")


class DataType:
    """Base class of all types.

    Attributes
    ----------
    layout : str
        The row of the buffer listing that describes the type's buffers.
    array_class : type or None
        The class of the type's arrays, where it is another than that of its layout: extension types have their own.
    storage : numpy.dtype or None
        dtype of one slot of the values buffer, little endian, for fixed-width layouts.
    numpy_dtype : numpy.dtype or None
        dtype of the arrays that ``to_numpy()`` gives without a copy, where there is one.
    fields : tuple of Field
        The child fields of a nested type.
    """

    __slots__ = ("_hash", "_str")

    from_pyarrow: ClassVar[Callable[[Any], DataType]]
    to_pyarrow: Callable[[], Any]

    layout: str = ""
    array_class: ClassVar[Any] = None
    parameters: ClassVar[tuple[str, ...]] = ()
    storage: DType | None = None
    numpy_dtype: DType | None = None
    fields: tuple[Field, ...] = ()

    _hash: int
    _str: str

    @property
    def format(self) -> str:
        """The format string of the Arrow C data interface."""
        raise InvalidType(f"{self} has no format string")  # pragma: no cover - every concrete type has one

    def _name(self) -> str:
        raise InvalidType(f"{type(self).__name__} has no name")  # pragma: no cover - every concrete type has one

    @property
    def byte_width(self) -> int:
        """Bytes of one slot of the values buffer; 0 where slots have no fixed number of bytes."""
        return self.storage.itemsize if self.storage is not None else 0

    @property
    def bit_width(self) -> int:
        """Bits of one slot of the values buffer; 0 where slots have no fixed width."""
        return 8 * self.byte_width

    @property
    def num_fields(self) -> int:
        """Number of child fields."""
        return len(self.fields)

    def field(self, key: int | str) -> Field:
        """A child field by position or by name.

        Raises
        ------
        FieldNotFound
            If no child, or more than one, has this name, or none this position.
        """
        if isinstance(key, str):
            found = [field for field in self.fields if field.name == key]
            if len(found) != 1:
                raise FieldNotFound(f"{self}: {len(found)} child fields are named {key!r}, expected exactly one")
            return found[0]
        if not -len(self.fields) <= key < len(self.fields):
            raise FieldNotFound(f"{self}: no child field {key}, there are {len(self.fields)}")
        return self.fields[key]

    def _key(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.parameters])

    def equals(self, other: object) -> bool:
        """Same class and same parameters."""
        return self == other

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and isinstance(other, DataType) and self._key() == other._key()

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = hash((type(self), self._key()))
            return self._hash

    def __str__(self) -> str:
        try:
            return self._str
        except AttributeError:
            self._str = self._name()
            return self._str

    def __repr__(self) -> str:
        return f"DataType({self})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, name) for name in self.parameters])


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


class _ListLike(DataType):
    """A run of child values in each slot; the name of the child is not part of the type's identity."""

    __slots__ = ("fields",)
    parameters: ClassVar[tuple[str, ...]] = ("value_field",)
    NAME: ClassVar[str]
    FORMAT: ClassVar[str]

    def __init__(self, value: Field | DataType | str) -> None:
        self.fields = (as_field(value, "item"),)

    @property
    def value_field(self) -> Field:
        return self.fields[0]

    @property
    def value_type(self) -> DataType:
        return self.fields[0].type

    def _key(self) -> tuple[Any, ...]:
        return (self.fields[0].type, self.fields[0].nullable)

    @property
    def format(self) -> str:
        return self.FORMAT

    def _name(self) -> str:
        return f"{self.NAME}<{self.value_field}>"


class ListType(_ListLike):
    """Lists by 32-bit offsets into the child."""

    __slots__ = ()
    layout = "list"
    NAME = "list"
    FORMAT = "+l"
    offset_dtype = np.dtype("<i4")


class LargeListType(_ListLike):
    """Lists by 64-bit offsets into the child."""

    __slots__ = ()
    layout = "large_list"
    NAME = "large_list"
    FORMAT = "+L"
    offset_dtype = np.dtype("<i8")


class ListViewType(_ListLike):
    """Lists by 32-bit offset and size each, in any order and overlapping."""

    __slots__ = ()
    layout = "list_view"
    NAME = "list_view"
    FORMAT = "+vl"
    offset_dtype = np.dtype("<i4")


class LargeListViewType(_ListLike):
    """Lists by 64-bit offset and size each, in any order and overlapping."""

    __slots__ = ()
    layout = "large_list_view"
    NAME = "large_list_view"
    FORMAT = "+vL"
    offset_dtype = np.dtype("<i8")


class FixedSizeListType(_ListLike):
    """The same number of child values in each slot."""

    __slots__ = ("list_size",)
    layout = "fixed_size_list"
    parameters = ("value_field", "list_size")

    def __init__(self, value: Field | DataType | str, list_size: int) -> None:
        super().__init__(value)
        if not 0 <= list_size < 1 << 31:
            raise InvalidArgument(f"the size of a fixed-size list is an int32 of at least 0, found {list_size}")
        self.list_size = list_size

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.list_size)

    @property
    def format(self) -> str:
        return f"+w:{self.list_size}"

    def _name(self) -> str:
        return f"fixed_size_list<{self.value_field}>[{self.list_size}]"


class StructType(DataType):
    """One value of each child field in each slot."""

    __slots__ = ("fields",)
    layout = "struct"
    parameters = ("fields",)
    format = "+s"

    def __init__(self, fields: FieldsLike) -> None:
        self.fields = as_fields(fields)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def _name(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"


class MapType(DataType):
    """Lists of key and item pairs.

    Physically a list of structs of two fields; the names of all three are not part of the type's identity.
    """

    __slots__ = ("fields", "keys_sorted")
    layout = "map"
    parameters = ("entries_field", "keys_sorted")
    format = "+m"
    offset_dtype = np.dtype("<i4")

    def __init__(self, entries: Field, keys_sorted: bool = False) -> None:
        if not isinstance(entries.type, StructType) or len(entries.type.fields) != 2:
            raise InvalidArgument(f"the entries of a map are a struct of two fields, found {entries.type}")
        self.fields = (entries,)
        self.keys_sorted = keys_sorted

    @property
    def entries_field(self) -> Field:
        return self.fields[0]

    @property
    def key_field(self) -> Field:
        return self.fields[0].type.fields[0]

    @property
    def item_field(self) -> Field:
        return self.fields[0].type.fields[1]

    @property
    def key_type(self) -> DataType:
        return self.key_field.type

    @property
    def item_type(self) -> DataType:
        return self.item_field.type

    def _key(self) -> tuple[Any, ...]:
        key, item = self.key_field, self.item_field
        return (key.type, key.nullable, item.type, item.nullable, self.keys_sorted)

    def _name(self) -> str:
        names = (self.entries_field.name, self.key_field.name, self.item_field.name)
        tail = ", keys_sorted" if self.keys_sorted else ""
        if names != ("entries", "key", "value"):
            tail += f" ({self.entries_field.name}: {self.key_field.name}, {self.item_field.name})"
        return f"map<{self.key_type}, {self.item_type}{tail}>"


class UnionType(DataType):
    """In each slot a value of one of the child fields, chosen by a type id."""

    __slots__ = ("fields", "mode", "type_codes")
    parameters = ("mode", "fields", "type_codes")

    def __init__(self, mode: str, fields: FieldsLike, type_codes: Sequence[int] | None = None) -> None:
        if mode not in ("sparse", "dense"):
            raise InvalidArgument(f"the mode of a union is 'sparse' or 'dense', found {mode!r}")
        self.mode = mode
        self.fields = as_fields(fields)
        codes = tuple(range(len(self.fields)) if type_codes is None else [int(code) for code in type_codes])
        if len(codes) != len(self.fields):
            raise InvalidArgument(f"a union of {len(self.fields)} fields has as many type codes, found {len(codes)}")
        if len(set(codes)) != len(codes) or not all(0 <= code <= 127 for code in codes):
            found = list(codes)[:200]
            raise InvalidArgument(f"the type codes of a union are distinct numbers from 0 to 127, found {found}")
        self.type_codes = codes

    @property
    def layout(self) -> str:  # type: ignore[override]
        return f"{self.mode}_union"

    @property
    def format(self) -> str:
        return f"+u{self.mode[0]}:" + ",".join(map(str, self.type_codes))

    def _name(self) -> str:
        inner = ", ".join(f"{field}={code}" for field, code in zip(self.fields, self.type_codes, strict=True))
        return f"{self.mode}_union<{inner}>"


class DictionaryType(DataType):
    """Indices into a dictionary of distinct values."""

    __slots__ = ("index_type", "ordered", "storage", "value_type")
    layout = "dictionary"
    parameters = ("index_type", "value_type", "ordered")

    def __init__(self, index_type: DataType | str, value_type: DataType | str, ordered: bool = False) -> None:
        index = as_type(index_type)
        if not isinstance(index, IntType):
            raise InvalidArgument(f"the index type of a dictionary is an integer, found {index}")
        self.index_type = index
        self.value_type = as_type(value_type)
        self.ordered = bool(ordered)
        self.storage = index.storage

    @property
    def format(self) -> str:
        return self.index_type.format

    def _name(self) -> str:
        return f"dictionary<values={self.value_type}, indices={self.index_type}, ordered={int(self.ordered)}>"


class RunEndEncodedType(DataType):
    """Runs of equal values: where each run ends, and its value."""

    __slots__ = ("fields",)
    layout = "run_end_encoded"
    parameters = ("run_ends_field", "values_field")
    format = "+r"

    def __init__(self, run_ends: Field | DataType | str, values: Field | DataType | str) -> None:
        ends = run_ends if isinstance(run_ends, Field) else Field("run_ends", as_type(run_ends), nullable=False)
        if not isinstance(ends.type, IntType) or not ends.type.signed or ends.type.bits == 8:
            raise InvalidArgument(f"run ends are int16, int32 or int64, found {ends.type}")
        self.fields = (ends, as_field(values, "values"))

    @property
    def run_ends_field(self) -> Field:
        return self.fields[0]

    @property
    def values_field(self) -> Field:
        return self.fields[1]

    @property
    def run_end_type(self) -> DataType:
        return self.fields[0].type

    @property
    def value_type(self) -> DataType:
        return self.fields[1].type

    def _name(self) -> str:
        return f"run_end_encoded<run_ends: {self.run_end_type}, values: {self.value_type}>"


class Field:
    """A named type, with nullability and metadata.

    Fields are equal when name, type and nullability are; :meth:`equals` can compare the metadata too.
    """

    __slots__ = ("metadata", "name", "nullable", "type")

    from_pyarrow: ClassVar[Callable[[Any], Field]]
    to_pyarrow: Callable[[], Any]

    def __init__(self, name: str, type: DataType, nullable: bool = True, metadata: MetadataLike | None = None) -> None:
        if not isinstance(name, str):
            raise InvalidType(f"the name of a field is a string, found {name!r}")
        self.name = name
        self.type = as_type(type)
        self.nullable = bool(nullable)
        self.metadata = as_metadata(metadata)

    def equals(self, other: Field, check_metadata: bool = False) -> bool:
        """Same name, type and nullability, and on request the same metadata, children included."""
        if self != other:
            return False
        if not check_metadata:
            return True
        return (self.metadata or {}) == (other.metadata or {}) and all(
            mine.equals(theirs, True) for mine, theirs in zip(self.type.fields, other.type.fields, strict=True)
        )

    def with_name(self, name: str) -> Field:
        return Field(name, self.type, self.nullable, self.metadata)

    def with_type(self, type: DataType) -> Field:
        return Field(self.name, type, self.nullable, self.metadata)

    def with_nullable(self, nullable: bool) -> Field:
        return Field(self.name, self.type, nullable, self.metadata)

    def with_metadata(self, metadata: MetadataLike | None) -> Field:
        return Field(self.name, self.type, self.nullable, metadata)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Field):
            return NotImplemented
        return self.name == other.name and self.nullable == other.nullable and self.type == other.type

    def __hash__(self) -> int:
        return hash((self.name, self.type, self.nullable))

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.nullable else " not null")

    def __repr__(self) -> str:
        return f"Field({self})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Field, (self.name, self.type, self.nullable, self.metadata)


class FieldSource(Protocol):
    """Where a schema that was not built in Python gets its fields, each when it is asked for."""

    def __len__(self) -> int: ...

    def field(self, index: int) -> Field:
        """The field at a position from 0."""

    def names(self) -> list[str]:
        """All names in order."""

    def find(self, name: str) -> list[int]:
        """The positions of the fields with this name."""


class Schema:
    """The fields of a record batch, in order, and metadata.

    Schemas are equal when their fields are; :meth:`equals` can compare the metadata too. A schema read from a message
    makes each field when it is asked for.
    """

    __slots__ = ("_fields", "_index", "_source", "metadata")

    from_pyarrow: ClassVar[Callable[[Any], Schema]]
    to_pyarrow: Callable[[], Any]

    def __init__(
        self,
        fields: FieldsLike = (),
        metadata: MetadataLike | None = None,
        *,
        source: FieldSource | None = None,
    ) -> None:
        self._source = source
        self._index: dict[str, list[int]] | None = None
        self._fields: list[Field | None]
        self._fields = [None] * len(source) if source is not None else list(as_fields(fields))
        self.metadata = as_metadata(metadata)

    @property
    def source(self) -> FieldSource | None:
        """Where the fields come from, when they come from a message."""
        return self._source

    def field(self, key: int | str) -> Field:
        """A field by position or by name.

        Raises
        ------
        FieldNotFound
            If the name is not there or stands there more than once.
        IndexOutOfRange
            If there are fewer fields.
        """
        index = self.index_of(key)
        field = self._fields[index]
        if field is None and self._source is not None:
            field = self._fields[index] = self._source.field(index)
        assert field is not None
        return field

    def index_of(self, key: int | str) -> int:
        """The position, from 0, of the field that ``key`` means; the errors of :meth:`field`."""
        if isinstance(key, str):
            found = self.get_all_field_indices(key)
            if len(found) == 1:
                return found[0]
            if found:
                raise FieldNotFound(
                    f"the name {key!r} stands {len(found)} times in the schema, at {found[:8]}; ask by position"
                )
            raise FieldNotFound(f"no field is named {key!r}; {self._some_names()}")
        try:
            index = key.__index__()
        except AttributeError:
            raise InvalidType(f"a field is asked for by position or by name, found {type(key).__name__}") from None
        length = len(self._fields)
        if not -length <= index < length:
            raise IndexOutOfRange(f"no field {index}: the schema has {length}")
        return index + length if index < 0 else index

    def _some_names(self) -> str:
        names = [self.field(i).name for i in range(min(len(self), 8))]
        return f"the schema has {len(self)} fields: {names}" + (" ..." if len(self) > 8 else "")

    def get_all_field_indices(self, name: str) -> list[int]:
        """The positions of all fields of this name."""
        if self._index is None:
            if self._source is not None:
                return self._source.find(name)
            self._index = {}
            for i, field_name in enumerate(self.names):
                self._index.setdefault(field_name, []).append(i)
        return list(self._index.get(name, ()))

    def get_field_index(self, name: str) -> int:
        """The position of the one field of this name, or -1 if there is none, or several."""
        found = self.get_all_field_indices(name)
        return found[0] if len(found) == 1 else -1

    @property
    def fields(self) -> list[Field]:
        if self._source is None:
            return list(cast("list[Field]", self._fields))
        return [self.field(i) for i in range(len(self._fields))]

    @property
    def names(self) -> list[str]:
        return self._source.names() if self._source is not None else [field.name for field in self.fields]

    @property
    def types(self) -> list[DataType]:
        return [field.type for field in self.fields]

    def equals(self, other: Schema, check_metadata: bool = False) -> bool:
        """Same fields, and on request the same metadata on every level."""
        if self is other:
            return True
        if not isinstance(other, Schema) or len(self) != len(other):
            return False
        if check_metadata and (self.metadata or {}) != (other.metadata or {}):
            return False
        if self._source is not None and self._source is other._source:
            return True
        return all(mine.equals(theirs, check_metadata) for mine, theirs in zip(self, other, strict=True))

    def with_metadata(self, metadata: MetadataLike | None) -> Schema:
        """The same fields with other metadata."""
        return Schema(metadata=metadata, source=self._source) if self._source else Schema(self.fields, metadata)

    def remove_metadata(self) -> Schema:
        """The same fields without the schema's metadata."""
        return self.with_metadata(None)

    def append(self, field: Field) -> Schema:
        """A schema with one more field at the end."""
        return Schema([*self.fields, field], self.metadata)

    def insert(self, index: int, field: Field) -> Schema:
        """A schema with one more field before position ``index``."""
        fields = self.fields
        fields.insert(index, field)
        return Schema(fields, self.metadata)

    def set(self, index: int, field: Field) -> Schema:
        """A schema with another field at position ``index``."""
        fields = self.fields
        fields[self.index_of(index)] = field
        return Schema(fields, self.metadata)

    def remove(self, index: int) -> Schema:
        """A schema without the field at position ``index``."""
        fields = self.fields
        del fields[self.index_of(index)]
        return Schema(fields, self.metadata)

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[Field]:
        for i in range(len(self._fields)):
            yield self.field(i)

    def __getitem__(self, key: int | str) -> Field:
        return self.field(key)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.get_all_field_indices(name))

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.fields))

    def __str__(self) -> str:
        lines = [str(self.field(i)) for i in range(min(len(self), 100))]
        if len(self) > 100:
            lines.append(f"... {len(self) - 100} more fields")
        if self.metadata:
            lines.append("-- schema metadata --")
            lines += [f"{key.decode(errors='replace')}: {_short(value)}" for key, value in self.metadata.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<shmarrow.Schema of {len(self)} fields>\n{self}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.fields, self.metadata)


def _short(value: bytes) -> str:
    text = value[:80].decode(errors="replace")
    return repr(text) + (f" + {len(value) - 80} bytes" if len(value) > 80 else "")


# --- what arguments may look like -------------------------------------------------------------------------------

MetadataLike = Mapping[Any, Any]
FieldsLike = Iterable[Field | tuple[Any, ...]] | Mapping[str, DataType]


def as_metadata(metadata: MetadataLike | None) -> Metadata | None:
    """Metadata with keys and values as bytes; None where there is none."""
    if metadata is None:
        return None
    result = {}
    for key, value in metadata.items():
        pair = [part.encode() if isinstance(part, str) else part for part in (key, value)]
        if not all(isinstance(part, bytes) for part in pair):
            raise InvalidType(f"metadata are strings or bytes, found {key!r}: {value!r}")
        result[pair[0]] = pair[1]
    return result or None


def as_field(value: Field | DataType | str, name: str) -> Field:
    """A field, or a type as a nullable field of the name given."""
    return value if isinstance(value, Field) else Field(name, as_type(value))


def as_fields(fields: FieldsLike) -> tuple[Field, ...]:
    """Fields from fields, (name, type) tuples, or a mapping of names to types."""
    items = fields.items() if isinstance(fields, Mapping) else fields
    return tuple([item if isinstance(item, Field) else Field(*item) for item in items])


def as_type(value: DataType | str) -> DataType:
    """A type from a type or from the name of one that needs no other parameters than a unit."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        if not _ALIASES:
            _ALIASES.update(_make_aliases())
        found = _ALIASES.get(value)
        if found is None:
            raise InvalidArgument(f"no type is named {value!r}")
        return found
    raise InvalidType(f"expected a DataType or the name of one, found {value!r}")


_ALIASES: dict[str, DataType] = {}


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


# --- factories --------------------------------------------------------------------------------------------------


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


_NULL = NullType()
_BOOL = BoolType()
_INTS = {str(made): made for made in (IntType(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False))}
_FLOATS = {bits: FloatType(bits) for bits in (16, 32, 64)}
