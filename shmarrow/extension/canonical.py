"""The canonical extension types ("Canonical Extension Types").

Rules kept here:

* parameters from a file are hostile: of bounded size and depth, and checked as those that a caller gives;
* a type checks its storage as the specification words it; what the storage holds is the business of its arrays.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shmarrow import import_hooks, types
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, Unsupported
from shmarrow.extension.base import ExtensionType, register_extension_type
from shmarrow.types import DataType, EncodedType, Field

_MOST_PARAMETERS = 1 << 16
_MOST_DIMENSIONS = 63
"""What an ndarray has, less one for the rows."""


# --- parameters as JSON -----------------------------------------------------------------------------------------


def _parameters(what: str, serialized: bytes) -> dict[str, Any]:
    """The JSON object in serialized parameters; empty bytes have none."""
    if not serialized:
        return {}
    if len(serialized) > _MOST_PARAMETERS:
        raise InvalidArgument(f"{what}: {len(serialized)} bytes of parameters, expected at most {_MOST_PARAMETERS}")
    import json

    try:
        found = json.loads(serialized.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what}: the parameters {serialized[:80]!r} are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{what}: the parameters are a JSON object, found {serialized[:80]!r}")
    return found


def _serialized(parameters: dict[str, Any]) -> bytes:
    """Parameters as compact JSON; those that are None are left out."""
    import json

    given = {name: value for name, value in parameters.items() if value is not None}
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()


def _sizes(what: str, name: str, sizes: Any, null: bool = False) -> tuple[Any, ...]:
    if not isinstance(sizes, (list, tuple)):
        raise InvalidArgument(f"{what}: {name} is a list of sizes, found {sizes!r:.80}")
    _check_ndim(what, len(sizes))
    for size in sizes:
        whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool) and 0 <= size < 1 << 31
        if not whole and not (null and size is None):
            raise InvalidArgument(f"{what}: {name} has sizes from 0 to {(1 << 31) - 1}, found {size!r:.80}")
    return tuple([None if size is None else int(size) for size in sizes])


def _check_ndim(what: str, ndim: int) -> None:
    if ndim > _MOST_DIMENSIONS:
        raise Unsupported(f"{what}: a tensor of {ndim} dimensions; up to {_MOST_DIMENSIONS} can be had as an ndarray")


def _dim_names(what: str, names: Any, ndim: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"{what}: dim_names is a list of strings, found {names!r:.80}")
    if len(names) != ndim:
        raise InvalidArgument(f"{what}: {ndim} dimensions have as many names, found {len(names)}")
    for name in names:
        _check_text(what, "a dimension's name", name)
    return tuple(names)


def _check_text(what: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}: {name} is a string, found {value!r:.80}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what}: {name} {value!a:.80} is not Unicode text: {error.reason}") from None
    return value


def _permutation(what: str, order: Any, ndim: int) -> tuple[int, ...] | None:
    """A permutation, or None for the one that changes nothing."""
    if order is None:
        return None
    found = _sizes(what, "permutation", order)
    if len(found) != ndim or sorted(found) != list(range(ndim)):
        raise InvalidArgument(f"{what}: permutation has each of 0 to {ndim - 1} once, found {list(found)[:64]}")
    return None if found == tuple(range(ndim)) else found


def _listed(parameter: tuple[Any, ...] | None) -> list[Any] | None:
    return None if parameter is None else list(parameter)


# --- tensors ----------------------------------------------------------------------------------------------------


class _TensorType(ExtensionType):
    """What tensors of fixed and of variable shape share: names of the physical dimensions, and their logical order.

    Attributes
    ----------
    dim_names : tuple of str or None
        A name for each physical dimension.
    permutation : tuple of int or None
        For each logical dimension the physical one that it is; None where both are the same.
    """

    __slots__ = ("dim_names", "permutation")

    dim_names: tuple[str, ...] | None
    permutation: tuple[int, ...] | None

    def logical(self, tensor: Any, first: int = 0) -> Any:
        """The logical view of an ndarray in physical order; dimensions before ``first`` stay where they are."""
        if self.permutation is None:
            return tensor
        return tensor.transpose(*range(first), *[first + axis for axis in self.permutation])

    def physical(self, tensor: Any, first: int = 0) -> Any:
        """The view in physical order of an ndarray in logical order."""
        if self.permutation is None:
            return tensor
        axes = [first + self.permutation.index(axis) for axis in range(len(self.permutation))]
        return tensor.transpose(*range(first), *axes)

    def _text(self, **parameters: Any) -> str:
        shown = {**parameters, "permutation": self.permutation, "dim_names": self.dim_names}
        parts = [f"{name}={_shown(value)}" for name, value in shown.items() if value is not None]
        return f"extension<{self.extension_name}[{', '.join(parts)}]>"


def _shown(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return f"[{','.join(['null' if part is None else str(part) for part in value])}]"


class FixedShapeTensorType(_TensorType):
    """Tensors of one shape, each a fixed-size list of its elements in row-major order (``arrow.fixed_shape_tensor``).

    Attributes
    ----------
    shape : tuple of int
        The physical shape of each tensor.
    """

    __slots__ = ("shape",)
    extension_name = "arrow.fixed_shape_tensor"

    def __init__(
        self,
        storage_type: DataType,
        shape: Sequence[int],
        dim_names: Sequence[str] | None = None,
        permutation: Sequence[int] | None = None,
    ) -> None:
        super().__init__(storage_type)
        what = self.extension_name
        self.shape: tuple[int, ...] = _sizes(what, "shape", shape)
        self.dim_names = _dim_names(what, dim_names, len(self.shape))
        self.permutation = _permutation(what, permutation, len(self.shape))
        if not isinstance(storage_type, types.FixedSizeListType):
            raise InvalidArgument(f"{what}: the storage is a fixed-size list, found {storage_type}")
        if math.prod(self.shape) != storage_type.list_size:
            raise InvalidArgument(
                f"{what}: tensors of the shape {list(self.shape)[:64]} have {math.prod(self.shape)} elements, "
                f"the storage has lists of {storage_type.list_size}"
            )

    @property
    def value_type(self) -> DataType:
        """The type of the elements."""
        return self.storage_type.fields[0].type

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape of each tensor in the order of its logical dimensions."""
        return self.shape if self.permutation is None else tuple([self.shape[axis] for axis in self.permutation])

    def serialize(self) -> bytes:
        names, order = _listed(self.dim_names), _listed(self.permutation)
        return _serialized({"shape": list(self.shape), "dim_names": names, "permutation": order})

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> FixedShapeTensorType:
        found = _parameters(cls.extension_name, serialized)
        return cls(storage_type, found.get("shape"), found.get("dim_names"), found.get("permutation"))  # type: ignore[arg-type]

    def from_python(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.shape != self.logical_shape:
            raise InvalidData(f"{self}: expected tensors of the shape {self.logical_shape}, found {value.shape}")
        return self.physical(value).reshape(-1).tolist()

    def _key(self) -> tuple[Any, ...]:
        return (self.storage_type, self.shape, self.dim_names, self.permutation)

    def _name(self) -> str:
        return self._text(value_type=self.value_type, shape=self.shape)


class VariableShapeTensorType(_TensorType):
    """Tensors of one number of dimensions, each with a shape of its own (``arrow.variable_shape_tensor``).

    Attributes
    ----------
    ndim : int
        The number of dimensions.
    uniform_shape : tuple of int or None, or None
        The size of each physical dimension in which all tensors agree, None for the others.
    """

    __slots__ = ("ndim", "uniform_shape")
    extension_name = "arrow.variable_shape_tensor"

    def __init__(
        self,
        storage_type: DataType,
        dim_names: Sequence[str] | None = None,
        permutation: Sequence[int] | None = None,
        uniform_shape: Sequence[int | None] | None = None,
    ) -> None:
        super().__init__(storage_type)
        what = self.extension_name
        children = _children(what, storage_type)
        data, shape = children.get("data"), children.get("shape")
        if (
            len(children) != 2
            or not isinstance(data, types.ListType)
            or not isinstance(shape, types.FixedSizeListType)
            or shape.value_type != types.int32()
        ):
            raise InvalidArgument(
                f"{what}: the storage is a struct of a list 'data' and a fixed-size list of int32 'shape', "
                f"found {storage_type}"
            )
        self.ndim: int = shape.list_size
        _check_ndim(what, self.ndim)
        self.dim_names = _dim_names(what, dim_names, self.ndim)
        self.permutation = _permutation(what, permutation, self.ndim)
        self.uniform_shape: tuple[int | None, ...] | None = None
        if uniform_shape is not None:
            self.uniform_shape = _sizes(what, "uniform_shape", uniform_shape, null=True)
            if len(self.uniform_shape) != self.ndim:
                raise InvalidArgument(f"{what}: uniform_shape has {self.ndim} sizes, found {len(self.uniform_shape)}")

    @property
    def value_type(self) -> DataType:
        """The type of the elements."""
        return self.storage_type.field("data").type.fields[0].type

    def serialize(self) -> bytes:
        names, order, uniform = _listed(self.dim_names), _listed(self.permutation), _listed(self.uniform_shape)
        return _serialized({"dim_names": names, "permutation": order, "uniform_shape": uniform})

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> VariableShapeTensorType:
        found = _parameters(cls.extension_name, serialized)
        return cls(storage_type, found.get("dim_names"), found.get("permutation"), found.get("uniform_shape"))

    def from_python(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.ndim != self.ndim:
            raise InvalidData(f"{self}: expected tensors of {self.ndim} dimensions, found the shape {value.shape}")
        tensor = self.physical(value)
        return {"data": tensor.reshape(-1).tolist(), "shape": list(tensor.shape)}

    def _key(self) -> tuple[Any, ...]:
        return (self.storage_type, self.dim_names, self.permutation, self.uniform_shape)

    def _name(self) -> str:
        return self._text(value_type=self.value_type, ndim=self.ndim, uniform_shape=self.uniform_shape)


# --- other canonical types --------------------------------------------------------------------------------------


def _children(what: str, storage_type: DataType) -> dict[str, DataType]:
    """The types of a struct's fields by their names."""
    if not isinstance(storage_type, types.StructType):
        raise InvalidArgument(f"{what}: the storage is a struct, found {storage_type}")
    found = {field.name: field.type for field in storage_type.fields}
    if len(found) != len(storage_type.fields):
        raise InvalidArgument(f"{what}: the storage has two fields of one name: {storage_type}")
    return found


def _decoded(type: DataType) -> DataType:
    """The type of the values, where they are encoded as a dictionary or as runs."""
    return type.value_type if isinstance(type, EncodedType) else type


class JsonType(ExtensionType):
    """Text that is JSON (``arrow.json``)."""

    __slots__ = ()
    extension_name = "arrow.json"

    def __init__(self, storage_type: DataType | str = "string") -> None:
        super().__init__(storage_type)
        if not getattr(self.storage_type, "text", False):
            raise InvalidArgument(
                f"{self.extension_name}: the storage is string, large_string or string_view, found {storage_type}"
            )

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> JsonType:
        _parameters(cls.extension_name, serialized)
        return cls(storage_type)


class UuidType(ExtensionType):
    """Universally unique identifiers, 16 bytes in network order (``arrow.uuid``); ``uuid.UUID`` in Python."""

    __slots__ = ()
    extension_name = "arrow.uuid"

    def __init__(self, storage_type: DataType | None = None) -> None:
        super().__init__(types.binary(16) if storage_type is None else storage_type)
        if self.storage_type != types.binary(16):
            raise InvalidArgument(f"{self.extension_name}: the storage is fixed_size_binary[16], found {storage_type}")

    def to_python(self, value: Any) -> Any:
        from uuid import UUID

        return UUID(bytes=value)

    def from_python(self, value: Any) -> Any:
        from uuid import UUID

        return value.bytes if isinstance(value, UUID) else value


class OpaqueType(ExtensionType):
    """Values of a type of another system, which Arrow has no name for (``arrow.opaque``).

    Attributes
    ----------
    type_name : str
        The name of the type there.
    vendor_name : str
        The name of the other system.
    """

    __slots__ = ("type_name", "vendor_name")
    extension_name = "arrow.opaque"

    def __init__(self, storage_type: DataType | str, type_name: str, vendor_name: str) -> None:
        super().__init__(storage_type)
        self.type_name = _check_text(self.extension_name, "type_name", type_name)
        self.vendor_name = _check_text(self.extension_name, "vendor_name", vendor_name)

    def serialize(self) -> bytes:
        return _serialized({"type_name": self.type_name, "vendor_name": self.vendor_name})

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> OpaqueType:
        found = _parameters(cls.extension_name, serialized)
        return cls(storage_type, found.get("type_name"), found.get("vendor_name"))  # type: ignore[arg-type]

    def _key(self) -> tuple[Any, ...]:
        return (self.storage_type, self.type_name, self.vendor_name)

    def _name(self) -> str:
        names = f"type_name={self.type_name}, vendor_name={self.vendor_name}"
        return f"extension<{self.extension_name}[storage_type={self.storage_type}, {names}]>"


class Bool8Type(ExtensionType):
    """Truth values of one byte each, 0 for false (``arrow.bool8``)."""

    __slots__ = ()
    extension_name = "arrow.bool8"

    def __init__(self, storage_type: DataType | None = None) -> None:
        super().__init__(types.int8() if storage_type is None else storage_type)
        if self.storage_type != types.int8():
            raise InvalidArgument(f"{self.extension_name}: the storage is int8, found {storage_type}")

    def to_python(self, value: Any) -> Any:
        return value != 0

    def from_python(self, value: Any) -> Any:
        return int(value) if isinstance(value, (bool, np.bool_)) else value


class TimestampWithOffsetType(ExtensionType):
    """Moments in UTC, each with the offset of its own zone in minutes (``arrow.timestamp_with_offset``).

    Python values are datetimes with a fixed offset; a moment that Python's datetime cannot hold stays the dict of its
    storage. The offsets may be encoded as a dictionary or as runs.
    """

    __slots__ = ()
    extension_name = "arrow.timestamp_with_offset"
    LOWEST, HIGHEST = -779, 780

    def __init__(self, storage_type: DataType) -> None:
        super().__init__(storage_type)
        children = _children(self.extension_name, storage_type)
        moment, offset = children.get("timestamp"), children.get("offset_minutes")
        if (
            list(children) != ["timestamp", "offset_minutes"]
            or not isinstance(moment, types.TimestampType)
            or moment.tz != "UTC"
            or offset is None
            or _decoded(offset) != types.int16()
        ):
            raise InvalidArgument(
                f"{self.extension_name}: the storage is a struct of a timestamp in UTC 'timestamp' and an int16 "
                f"'offset_minutes', found {storage_type}"
            )

    @property
    def unit(self) -> str:
        """The unit of the timestamps: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``."""
        return self.storage_type.field("timestamp").type.unit  # type: ignore[attr-defined, no-any-return]

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
        offset = value.utcoffset()
        if offset is None:
            raise InvalidType(f"{self}: expected datetimes with a time zone, found {value!r}")
        minutes, rest = divmod(offset, dt.timedelta(minutes=1))
        if rest or not self.LOWEST <= minutes <= self.HIGHEST:
            raise InvalidData(f"{self}: offsets are {self.LOWEST} to {self.HIGHEST} whole minutes, found {value!r}")
        return {"timestamp": value, "offset_minutes": minutes}


_BINARY = (types.binary(), types.large_binary(), types.binary_view())


class VariantType(ExtensionType):
    """Values of many types in Parquet's Variant encoding (``arrow.parquet.variant``).

    Some of the values may be shredded: they lie in columns of their own type.
    """

    __slots__ = ()
    extension_name = "arrow.parquet.variant"

    def __init__(self, storage_type: DataType) -> None:
        super().__init__(storage_type)
        children = _children(self.extension_name, storage_type)
        metadata = children.pop("metadata", None)
        if metadata is None or _decoded(metadata) not in _BINARY or storage_type.field("metadata").nullable:
            raise InvalidArgument(f"{self.extension_name}: 'metadata' is binary and not nullable, found {storage_type}")
        self._check_value(children)

    def _check_value(self, children: dict[str, DataType]) -> None:
        if not children or not set(children) <= {"value", "typed_value"}:
            found = list(children)[:20]
            raise InvalidArgument(f"{self.extension_name}: expected 'value', 'typed_value' or both, found {found}")
        value, typed = children.get("value"), children.get("typed_value")
        if value is not None and value not in _BINARY:
            raise InvalidArgument(f"{self.extension_name}: 'value' is binary, found {value}")
        if typed is not None:
            self._check_typed(typed)

    def _check_typed(self, typed: DataType) -> None:
        lists = (types.ListType, types.LargeListType, types.ListViewType)
        if isinstance(typed, (types.StructType, *lists)):
            for field in typed.fields:
                if field.nullable:
                    raise InvalidArgument(f"{self.extension_name}: shredded fields are not nullable, found {field}")
                self._check_value(_children(self.extension_name, field.type))
        elif not _is_variant_primitive(typed):
            raise InvalidArgument(f"{self.extension_name}: a variant has no values of {typed}")

    @property
    def shredded(self) -> bool:
        """Whether some of the values are in a column of their own type."""
        return "typed_value" in self.storage_type.names  # type: ignore[attr-defined]


def _is_variant_primitive(type: DataType) -> bool:
    if isinstance(type, types.TimestampType):
        return type.unit in ("us", "ns") and type.tz in (None, "UTC")
    if isinstance(type, types.DecimalType):
        return type.bits <= 128
    if isinstance(type, types.FloatType):
        return type.bits >= 32
    if isinstance(type, types.TimeType):
        return type.bits == 64
    if isinstance(type, types.DateType):
        return type.unit == "day"
    binary = (types.BinaryType, types.LargeBinaryType, types.BinaryViewType)
    return isinstance(type, (types.NullType, types.BoolType, types.IntType, UuidType, *binary))


for _class in (
    FixedShapeTensorType, VariableShapeTensorType, JsonType, UuidType, OpaqueType, Bool8Type, VariantType,
    TimestampWithOffsetType,
):  # fmt: skip
    register_extension_type(_class)


# --- factories --------------------------------------------------------------------------------------------------


def fixed_shape_tensor(
    value_type: Field | DataType | str,
    shape: Sequence[int],
    dim_names: Sequence[str] | None = None,
    permutation: Sequence[int] | None = None,
) -> FixedShapeTensorType:
    """Tensors that all have the physical shape ``shape``."""
    count = math.prod(_sizes(FixedShapeTensorType.extension_name, "shape", shape))
    return FixedShapeTensorType(types.FixedSizeListType(value_type, count), shape, dim_names, permutation)


def variable_shape_tensor(
    value_type: Field | DataType | str,
    ndim: int,
    dim_names: Sequence[str] | None = None,
    permutation: Sequence[int] | None = None,
    uniform_shape: Sequence[int | None] | None = None,
) -> VariableShapeTensorType:
    """Tensors of ``ndim`` dimensions, each with a shape of its own."""
    storage = types.struct({"data": types.list_(value_type), "shape": types.FixedSizeListType("int32", ndim)})
    return VariableShapeTensorType(storage, dim_names, permutation, uniform_shape)


def json_(storage_type: DataType | str = "string") -> JsonType:
    """Text that is JSON."""
    return JsonType(storage_type)


def uuid() -> UuidType:
    """Universally unique identifiers."""
    return UuidType()


def opaque(storage_type: DataType | str, type_name: str, vendor_name: str) -> OpaqueType:
    """Values of a type of another system."""
    return OpaqueType(storage_type, type_name, vendor_name)


def bool8() -> Bool8Type:
    """Truth values of one byte each."""
    return Bool8Type()


def parquet_variant(storage_type: DataType | None = None) -> VariantType:
    """Values in Parquet's Variant encoding; not shredded unless the storage type says how."""
    plain = [Field("metadata", types.binary(), nullable=False), Field("value", types.binary(), nullable=False)]
    return VariantType(types.StructType(plain) if storage_type is None else storage_type)


def timestamp_with_offset(unit: str, offset_type: DataType | str = "int16") -> TimestampWithOffsetType:
    """Moments in UTC, each with the offset of its own zone; the offsets may be dictionary or run-end encoded."""
    moment = Field("timestamp", types.timestamp(unit, "UTC"), nullable=False)
    offset = Field("offset_minutes", types.as_type(offset_type), nullable=False)
    return TimestampWithOffsetType(types.StructType([moment, offset]))


import_hooks.arrived("canonical extension types")
