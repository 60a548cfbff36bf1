# SPDX-License-Identifier: Apache-2.0
"""The canonical extension types but tensors (canonical extension types of the format's specification).

Parameters from a file are untrusted: their size and depth are limited, and they are checked like a caller's.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from shmarrow import types
from shmarrow.buffer import Mask, NDArray
from shmarrow.errors import CopyRequired, InvalidArgument, InvalidData, InvalidType, counted, shown
from shmarrow.extension.array import ExtensionArray
from shmarrow.layout import Array
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.types import DataType, EncodedType, ExtensionType, Field

# --- parameters and storage ---------------------------------------------------------------------------------------

_MOST_PARAMETERS = 1 << 16


def parameters_of(what: str, serialized: bytes) -> dict[str, Any]:
    """Return the JSON object of serialized parameters; empty for empty bytes."""
    if not serialized:
        return {}
    if len(serialized) > _MOST_PARAMETERS:
        raise InvalidArgument(f"{what}: {len(serialized)} bytes of parameters, expected at most {_MOST_PARAMETERS}")
    try:
        parameters = json.loads(serialized.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what}: the parameters {serialized[:80]!r} are not JSON: {error}") from None
    if not isinstance(parameters, dict):
        raise InvalidArgument(f"{what}: the parameters must be a JSON object, found {shown(serialized[:80])}")
    return parameters


def as_json(parameters: dict[str, Any]) -> bytes:
    """Return parameters as compact JSON, without those that are None."""
    present = {name: value for name, value in parameters.items() if value is not None}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":")).encode()


def checked_text(what: str, name: str, value: Any) -> str:
    """Return a parameter checked to be a string that UTF-8 can encode."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}: {name} must be a string, found {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what}: {name} {value!a:.80} is not valid Unicode: {error.reason}") from None
    return value


def children_of(what: str, storage_type: DataType) -> dict[str, DataType]:
    """Return the types of a struct's fields by name."""
    if not isinstance(storage_type, types.StructType):
        raise InvalidArgument(f"{what}: the storage must be a struct, found {storage_type}")
    types_by_name = {field.name: field.type for field in storage_type.fields}
    if len(types_by_name) != len(storage_type.fields):
        raise InvalidArgument(f"{what}: the storage has duplicate field names: {storage_type}")
    return types_by_name


def values_of(type: DataType) -> DataType:
    """Return the value type of a dictionary or run-end-encoded type; other types unchanged."""
    return type.value_type if isinstance(type, EncodedType) else type


# --- 8-bit Boolean: one byte each ---------------------------------------------------------------------------------


class Bool8Type(ExtensionType):
    """Booleans of one byte each, 0 for False (``arrow.bool8``)."""

    __slots__ = ()
    extension_name = "arrow.bool8"

    def __init__(self, storage_type: DataType | None = None) -> None:
        super().__init__(types.int8() if storage_type is None else storage_type)
        if self.storage_type != types.int8():
            raise InvalidArgument(f"{self.extension_name}: the storage must be int8, found {storage_type}")

    def to_python(self, value: Any) -> Any:
        return value != 0

    def from_python(self, value: Any) -> Any:
        return int(value) if isinstance(value, (bool, np.bool_)) else value


class Bool8Array(ExtensionArray, of=Bool8Type):
    """Array of one-byte booleans."""

    __slots__ = ()

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        """Return a bool ndarray of shape (length,); a view, unless there are bytes other than 0 and 1.

        With nulls, return an object array of True, False and None if a copy is allowed.
        """
        if self.null_count:
            if zero_copy_only:
                raise CopyRequired(f"an array with {counted(self.null_count, 'null')} has no zero-copy numpy form")
            result = np.empty(self._length, object)
            result[:] = self.to_pylist()
            return result
        storage: Any = self._storage
        values: NDArray = storage.values
        if not len(values) or int(values.view(np.uint8).max()) <= 1:
            return values.view(np.bool_)
        if zero_copy_only:
            raise CopyRequired(
                f"{self._type}: bytes other than 0 and 1 are not valid numpy bools; pass zero_copy_only=False"
            )
        return np.asarray(values != 0)

    @classmethod
    def from_numpy(cls, type: Any, values: NDArray, valid: Mask | None = None) -> Self:
        """Create an array from bool or int8 values of shape (n,); zero-copy if contiguous."""
        return super().from_numpy(type, values.view(np.int8) if values.dtype == np.bool_ else values, valid)


def bool8() -> Bool8Type:
    """Create the type of one-byte booleans."""
    return Bool8Type()


# --- JSON: strings ------------------------------------------------------------------------------------------------


class JsonType(ExtensionType):
    """JSON strings (``arrow.json``)."""

    __slots__ = ()
    extension_name = "arrow.json"

    def __init__(self, storage_type: DataType | str = "string") -> None:
        super().__init__(storage_type)
        if not getattr(self.storage_type, "text", False):
            raise InvalidArgument(
                f"{self.extension_name}: the storage must be string, large_string or string_view, found {storage_type}"
            )

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> JsonType:
        parameters_of(cls.extension_name, serialized)
        return cls(storage_type)


class JsonArray(ExtensionArray, of=JsonType):
    """Array of JSON strings."""

    __slots__ = ()

    def parse(self) -> list[Any]:
        """Parse the values with ``json.loads``; None for null slots and JSON's ``null``.

        Raises
        ------
        InvalidData
            If a value is not JSON, or nests too deep.
        """
        result: list[Any] = []
        for i, text in enumerate(self.to_pylist()):
            try:
                result.append(None if text is None else json.loads(text))
            except (ValueError, RecursionError) as error:
                message = f"{self._type}: {text[:80]!r} is not JSON: {error}"
                raise InvalidData(message, where=[("row", i)]) from None
        return result

    def _check_values(self) -> None:
        super()._check_values()
        self.parse()


def json_(storage_type: DataType | str = "string") -> JsonType:
    """Create the type of JSON strings."""
    return JsonType(storage_type)


# --- Opaque: values of types that Arrow does not have -------------------------------------------------------------


class OpaqueType(ExtensionType):
    """Values of another system's type, which Arrow does not have (``arrow.opaque``).

    Attributes
    ----------
    type_name : str
        Name of the type in the other system.
    vendor_name : str
        Name of the other system.
    """

    __slots__ = ("type_name", "vendor_name")
    extension_name = "arrow.opaque"

    def __init__(self, storage_type: DataType | str, type_name: str, vendor_name: str) -> None:
        super().__init__(storage_type)
        self.type_name = checked_text(self.extension_name, "type_name", type_name)
        self.vendor_name = checked_text(self.extension_name, "vendor_name", vendor_name)

    def serialize(self) -> bytes:
        return as_json({"type_name": self.type_name, "vendor_name": self.vendor_name})

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> OpaqueType:
        parameters = parameters_of(cls.extension_name, serialized)
        return cls(storage_type, parameters.get("type_name"), parameters.get("vendor_name"))  # type: ignore[arg-type]

    def _key(self) -> tuple[Any, ...]:
        return (self.storage_type, self.type_name, self.vendor_name)

    def _name(self) -> str:
        names = f"type_name={self.type_name}, vendor_name={self.vendor_name}"
        return f"extension<{self.extension_name}[storage_type={self.storage_type}, {names}]>"


def opaque(storage_type: DataType | str, type_name: str, vendor_name: str) -> OpaqueType:
    """Create the type of values of another system's type."""
    return OpaqueType(storage_type, type_name, vendor_name)


# --- UUID ---------------------------------------------------------------------------------------------------------


class UuidType(ExtensionType):
    """UUIDs of 16 bytes in network order (``arrow.uuid``); ``uuid.UUID`` in Python."""

    __slots__ = ()
    extension_name = "arrow.uuid"

    def __init__(self, storage_type: DataType | None = None) -> None:
        super().__init__(types.binary(16) if storage_type is None else storage_type)
        if self.storage_type != types.binary(16):
            raise InvalidArgument(
                f"{self.extension_name}: the storage must be fixed_size_binary[16], found {storage_type}"
            )

    def to_python(self, value: Any) -> Any:
        from uuid import UUID

        return UUID(bytes=value)

    def from_python(self, value: Any) -> Any:
        from uuid import UUID

        return value.bytes if isinstance(value, UUID) else value


def uuid() -> UuidType:
    """Create the UUID type."""
    return UuidType()


# --- Parquet Variant: values in Parquet's Variant encoding --------------------------------------------------------

_BINARY = (types.binary(), types.large_binary(), types.binary_view())


class VariantType(ExtensionType):
    """Values of varying types in Parquet's Variant encoding (``arrow.parquet.variant``).

    Values may be shredded: stored in separate, typed columns.
    """

    __slots__ = ()
    extension_name = "arrow.parquet.variant"

    def __init__(self, storage_type: DataType) -> None:
        super().__init__(storage_type)
        children = children_of(self.extension_name, storage_type)
        metadata = children.pop("metadata", None)
        if metadata is None or values_of(metadata) not in _BINARY or storage_type.field("metadata").nullable:
            raise InvalidArgument(
                f"{self.extension_name}: 'metadata' must be binary and not nullable, found {storage_type}"
            )
        self._check_value(children)

    def _check_value(self, children: dict[str, DataType]) -> None:
        if not children or not set(children) <= {"value", "typed_value"}:
            names = list(children)[:20]
            raise InvalidArgument(f"{self.extension_name}: expected 'value', 'typed_value' or both, found {names}")
        value, typed = children.get("value"), children.get("typed_value")
        if value is not None and value not in _BINARY:
            raise InvalidArgument(f"{self.extension_name}: 'value' must be binary, found {value}")
        if typed is not None:
            self._check_typed(typed)

    def _check_typed(self, typed: DataType) -> None:
        if isinstance(typed, (types.StructType, types.ListType, types.LargeListType, types.ListViewType)):
            for field in typed.fields:
                if field.nullable:
                    raise InvalidArgument(f"{self.extension_name}: shredded fields must not be nullable, found {field}")
                self._check_value(children_of(self.extension_name, field.type))
        elif not _is_variant_primitive(typed):
            raise InvalidArgument(f"{self.extension_name}: a variant cannot have values of {typed}")

    @property
    def shredded(self) -> bool:
        """Whether there is a typed column for shredded values."""
        return "typed_value" in self.storage_type.names  # type: ignore[attr-defined]


_PRIMITIVES: dict[str, Callable[[Any], bool]] = {
    "bool": lambda t: True,
    "integer": lambda t: True,
    "float": lambda t: t.bits >= 32,
    "decimal": lambda t: t.bits <= 128,
    "date": lambda t: t.unit == "day",
    "time": lambda t: t.bits == 64,
    "timestamp": lambda t: t.unit in ("us", "ns") and t.tz in (None, "UTC"),
}
"""The types of shredded values, by kind."""


def _is_variant_primitive(type: DataType) -> bool:
    if isinstance(type, ExtensionType):
        return isinstance(type, UuidType)
    check = _PRIMITIVES.get(type.descriptor.values)
    return type == types.null() or hasattr(type, "text") or (check is not None and check(type))


class VariantArray(ExtensionArray, of=VariantType):
    """Array of values in Parquet's Variant encoding."""

    __slots__ = ()

    @property
    def metadata(self) -> Array:
        """Metadata of each value; zero-copy."""
        return self._part("metadata")

    @property
    def value(self) -> Array | None:
        """Encoded values, or None if the type has no such field; zero-copy."""
        return self._optional("value")

    @property
    def typed_value(self) -> Array | None:
        """Shredded values, or None if the type has no such field; zero-copy."""
        return self._optional("typed_value")

    def _optional(self, name: str) -> Any:
        return self._part(name) if name in self._type.storage_type.names else None


def parquet_variant(storage_type: DataType | None = None) -> VariantType:
    """Create the Variant type; values are shredded only if the storage type has fields for it."""
    plain = [Field("metadata", types.binary(), nullable=False), Field("value", types.binary(), nullable=False)]
    return VariantType(types.StructType(plain) if storage_type is None else storage_type)


# --- Timestamp With Offset: individual UTC offsets ----------------------------------------------------------------


class TimestampWithOffsetType(ExtensionType):
    """Timestamps in UTC, each with its own offset in minutes (``arrow.timestamp_with_offset``).

    Python values are datetimes with a fixed offset; a value out of the range of ``datetime`` is returned as the dict of
    its storage. The offsets may be dictionary or run-end encoded.
    """

    __slots__ = ()
    extension_name = "arrow.timestamp_with_offset"
    LOWEST, HIGHEST = -779, 780
    """The smallest and the largest offset from UTC, in minutes."""

    def __init__(self, storage_type: DataType) -> None:
        super().__init__(storage_type)
        children = children_of(self.extension_name, storage_type)
        moment, offset = children.get("timestamp"), children.get("offset_minutes")
        if (
            list(children) != ["timestamp", "offset_minutes"]
            or not isinstance(moment, types.TimestampType)
            or moment.tz != "UTC"
            or offset is None
            or values_of(offset) != types.int16()
        ):
            raise InvalidArgument(
                f"{self.extension_name}: the storage must be a struct of a timestamp in UTC 'timestamp' and an int16 "
                f"'offset_minutes', found {storage_type}"
            )

    @property
    def unit(self) -> str:
        """Unit of the timestamps: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``."""
        return self.storage_type.field("timestamp").type.unit  # type: ignore[attr-defined]

    def to_python(self, value: Any) -> Any:
        moment, minutes = value["timestamp"], value["offset_minutes"] or 0
        if moment is None or not isinstance(moment, dt.datetime):
            return None if moment is None else value
        try:
            return moment.astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
        except (ValueError, OverflowError):
            return value

    def from_python(self, value: Any) -> Any:
        if not isinstance(value, dt.datetime):
            return value
        try:
            offset = value.utcoffset()
        except Exception as error:
            raise InvalidData(f"{self}: the time zone of {shown(value)} has no offset: {shown(error)}") from error
        if offset is None:
            raise InvalidType(f"{self}: expected datetimes with a time zone, found {shown(value)}")
        minutes, rest = divmod(offset, dt.timedelta(minutes=1))
        if rest or not self.LOWEST <= minutes <= self.HIGHEST:
            raise InvalidData(
                f"{self}: the offset must be {self.LOWEST} to {self.HIGHEST} whole minutes, found {shown(value)}"
            )
        return {"timestamp": value, "offset_minutes": minutes}


class TimestampWithOffsetArray(ExtensionArray, of=TimestampWithOffsetType):
    """Array of timestamps in UTC, each with its own offset."""

    __slots__ = ()

    @property
    def timestamps(self) -> PrimitiveArray:
        """Values as a timestamp array in UTC; zero-copy."""
        return self._part("timestamp")

    @property
    def offset_minutes(self) -> PrimitiveArray:
        """Offsets in minutes as an int16 array; copied only if dictionary or run-end encoded."""
        offsets = self._part("offset_minutes")
        return offsets if offsets.type.layout == "primitive" else offsets.decode()

    def _check_values(self) -> None:
        super()._check_values()
        offsets = self.offset_minutes
        low, high = self._type.LOWEST, self._type.HIGHEST
        values = offsets.values
        wrong = ((values < low) | (values > high)) & offsets._valid() & self._valid()
        if wrong.any():
            i = int(wrong.argmax())
            text = f"{self._type}: expected a UTC offset of {low} to {high} minutes, found {int(values[i])}"
            raise InvalidData(text, where=[("row", i)])


def timestamp_with_offset(unit: str, offset_type: DataType | str = "int16") -> TimestampWithOffsetType:
    """Create a timestamp type with individual UTC offsets, which may be dictionary or run-end encoded."""
    moment = Field("timestamp", types.timestamp(unit, "UTC"), nullable=False)
    offset = Field("offset_minutes", types.as_type(offset_type), nullable=False)
    return TimestampWithOffsetType(types.StructType([moment, offset]))
