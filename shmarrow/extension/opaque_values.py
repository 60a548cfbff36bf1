"""Values of other systems' types that Arrow does not have (canonical extension types, "Opaque")."""

from __future__ import annotations

from typing import Any

from shmarrow.extension.parameters import as_json, checked_text, parameters_of
from shmarrow.types import DataType, ExtensionType


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
        found = parameters_of(cls.extension_name, serialized)
        return cls(storage_type, found.get("type_name"), found.get("vendor_name"))  # type: ignore[arg-type]

    def _key(self) -> tuple[Any, ...]:
        return (self.storage_type, self.type_name, self.vendor_name)

    def _name(self) -> str:
        names = f"type_name={self.type_name}, vendor_name={self.vendor_name}"
        return f"extension<{self.extension_name}[storage_type={self.storage_type}, {names}]>"


def opaque(storage_type: DataType | str, type_name: str, vendor_name: str) -> OpaqueType:
    """Create the type of values of another system's type."""
    return OpaqueType(storage_type, type_name, vendor_name)
