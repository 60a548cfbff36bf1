"""Universally unique identifiers (canonical extension types, "UUID")."""

from __future__ import annotations

from typing import Any

from shmarrow import types
from shmarrow.errors import InvalidArgument
from shmarrow.types import DataType, ExtensionType


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
