"""Extension types ("Extension Types"): named types with parameters, over a storage type.

The base class for user-defined types is in ``types/extension``, that of their arrays in ``array``. Every other module
implements a canonical extension type ("Canonical Extension Types") or a family of them, with its array class and
factory; it is imported on first use of its names, or when its type occurs in data.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from shmarrow.extension.array import ExtensionArray
from shmarrow.lazy import lazy
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".booleans": "Bool8Array Bool8Type bool8",
            ".json": "JsonArray JsonType json_",
            ".opaque_values": "OpaqueType opaque",
            ".tensors": "FixedShapeTensorArray FixedShapeTensorType VariableShapeTensorArray VariableShapeTensorType "
            "fixed_shape_tensor variable_shape_tensor",
            ".uuids": "UuidType uuid",
            ".variants": "VariantArray VariantType parquet_variant",
            ".zoned_timestamps": "TimestampWithOffsetArray TimestampWithOffsetType timestamp_with_offset",
        },
    )

CANONICAL = {
    "arrow.bool8": "Bool8Type",
    "arrow.fixed_shape_tensor": "FixedShapeTensorType",
    "arrow.json": "JsonType",
    "arrow.opaque": "OpaqueType",
    "arrow.parquet.variant": "VariantType",
    "arrow.timestamp_with_offset": "TimestampWithOffsetType",
    "arrow.uuid": "UuidType",
    "arrow.variable_shape_tensor": "VariableShapeTensorType",
}
"""The classes of canonical extension types by name, imported when data name the type."""

for _name, _class in CANONICAL.items():
    provide_extension_type(_name, partial(getattr, sys.modules[__name__], _class))
