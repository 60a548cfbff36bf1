"""Values in the Variant encoding of Parquet (canonical extension types, "Parquet Variant")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmarrow import types
from shmarrow.errors import InvalidArgument
from shmarrow.extension.array import ExtensionArray
from shmarrow.extension.parameters import children_of, values_of
from shmarrow.extension.uuids import UuidType
from shmarrow.layout import Array
from shmarrow.types import DataType, ExtensionType, Field

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
            found = list(children)[:20]
            raise InvalidArgument(f"{self.extension_name}: expected 'value', 'typed_value' or both, found {found}")
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
