"""Extension types ("Extension Types"): named types with parameters, over a storage type.

The base class for user-defined types is in ``types/extension``, that of their arrays in ``array``. Every other module
implements a canonical extension type ("Canonical Extension Types") or a family of them, with its array class and
factory; it is imported on first use of its names, or when its type occurs in data.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shmarrow.extension.array import ExtensionArray
from shmarrow.types.extension import (
    METADATA_KEY,
    NAME_KEY,
    ExtensionType,
    extension_type,
    generation,
    provide_extension_type,
    register_extension_type,
    storage_field,
    unregister_extension_type,
)

if TYPE_CHECKING:
    from shmarrow.extension.booleans import Bool8Array, Bool8Type, bool8
    from shmarrow.extension.json import JsonArray, JsonType, json_
    from shmarrow.extension.opaque_values import OpaqueType, opaque
    from shmarrow.extension.tensors import (
        FixedShapeTensorArray,
        FixedShapeTensorType,
        VariableShapeTensorArray,
        VariableShapeTensorType,
        fixed_shape_tensor,
        variable_shape_tensor,
    )
    from shmarrow.extension.uuids import UuidType, uuid
    from shmarrow.extension.variants import VariantArray, VariantType, parquet_variant
    from shmarrow.extension.zoned_timestamps import (
        TimestampWithOffsetArray,
        TimestampWithOffsetType,
        timestamp_with_offset,
    )

__all__ = [
    "METADATA_KEY",
    "NAME_KEY",
    "Bool8Array",
    "Bool8Type",
    "ExtensionArray",
    "ExtensionType",
    "FixedShapeTensorArray",
    "FixedShapeTensorType",
    "JsonArray",
    "JsonType",
    "OpaqueType",
    "TimestampWithOffsetArray",
    "TimestampWithOffsetType",
    "UuidType",
    "VariableShapeTensorArray",
    "VariableShapeTensorType",
    "VariantArray",
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

CANONICAL = {
    "arrow.bool8": ("booleans", "Bool8Type", "Bool8Array", "bool8"),
    "arrow.fixed_shape_tensor": ("tensors", "FixedShapeTensorType", "FixedShapeTensorArray", "fixed_shape_tensor"),
    "arrow.json": ("json", "JsonType", "JsonArray", "json_"),
    "arrow.opaque": ("opaque_values", "OpaqueType", "opaque"),
    "arrow.parquet.variant": ("variants", "VariantType", "VariantArray", "parquet_variant"),
    "arrow.timestamp_with_offset": (
        "zoned_timestamps", "TimestampWithOffsetType", "TimestampWithOffsetArray", "timestamp_with_offset",
    ),
    "arrow.uuid": ("uuids", "UuidType", "uuid"),
    "arrow.variable_shape_tensor": (
        "tensors", "VariableShapeTensorType", "VariableShapeTensorArray", "variable_shape_tensor",
    ),
}  # fmt: skip
"""Canonical extension types by name: the module, the type class, and its other public names."""

_HOMES = {name: home for home, *names in CANONICAL.values() for name in names}


def _load(name: str) -> Any:
    return getattr(import_module(f"shmarrow.extension.{_HOMES[name]}"), name)


for _name, _row in CANONICAL.items():
    provide_extension_type(_name, partial(_load, _row[1]))


def __getattr__(name: str) -> Any:
    """Import canonical extension types on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shmarrow.extension' has no attribute {name!r}")
    value = globals()[name] = _load(name)
    return value
