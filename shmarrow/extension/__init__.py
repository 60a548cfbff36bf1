"""Extension types ("Extension Types"): a type with a name and parameters of its own, over a storage type.

``base`` has what users derive their own types from, the registry and the form on the wire; ``canonical`` the types that
Arrow itself names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmarrow.extension.base import (
    METADATA_KEY,
    NAME_KEY,
    ExtensionType,
    extension_type,
    generation,
    register_extension_type,
    storage_field,
    unregister_extension_type,
)

if TYPE_CHECKING:
    from shmarrow.extension.canonical import (
        Bool8Type,
        FixedShapeTensorType,
        JsonType,
        OpaqueType,
        TimestampWithOffsetType,
        UuidType,
        VariableShapeTensorType,
        VariantType,
        bool8,
        fixed_shape_tensor,
        json_,
        opaque,
        parquet_variant,
        timestamp_with_offset,
        uuid,
        variable_shape_tensor,
    )

__all__ = [
    "METADATA_KEY",
    "NAME_KEY",
    "Bool8Type",
    "ExtensionType",
    "FixedShapeTensorType",
    "JsonType",
    "OpaqueType",
    "TimestampWithOffsetType",
    "UuidType",
    "VariableShapeTensorType",
    "VariantType",
    "bool8",
    "extension_type",
    "fixed_shape_tensor",
    "generation",
    "json_",
    "opaque",
    "parquet_variant",
    "register_extension_type",
    "storage_field",
    "timestamp_with_offset",
    "unregister_extension_type",
    "uuid",
    "variable_shape_tensor",
]


def __getattr__(name: str) -> Any:
    """Arrow's own types are imported when they are first asked for, or met in data."""
    if name not in __all__:
        raise AttributeError(f"module 'shmarrow.extension' has no attribute {name!r}")
    from shmarrow.extension import canonical

    value = globals()[name] = getattr(canonical, name)
    return value
