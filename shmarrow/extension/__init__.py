# SPDX-License-Identifier: Apache-2.0
"""Extension types ("Extension Types"): named types with parameters, over a storage type.

The base class for user-defined types is in ``types/extension``, that of their arrays in ``array``. Every other module
implements a canonical extension type ("Canonical Extension Types") or a family of them, with its array class and
factory; it is imported on first use of its names, or when its type occurs in data.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from shmarrow import types
from shmarrow.extension.array import ExtensionArray as ExtensionArray
from shmarrow.lazy import lazy
from shmarrow.types import METADATA_KEY as METADATA_KEY
from shmarrow.types import NAME_KEY as NAME_KEY
from shmarrow.types import ExtensionType as ExtensionType
from shmarrow.types import extension_type as extension_type
from shmarrow.types import generation as generation
from shmarrow.types import register_extension_type as register_extension_type
from shmarrow.types import storage_field as storage_field
from shmarrow.types import unregister_extension_type as unregister_extension_type

if TYPE_CHECKING:
    from shmarrow.extension.canonical import Bool8Array as Bool8Array
    from shmarrow.extension.canonical import Bool8Type as Bool8Type
    from shmarrow.extension.canonical import JsonArray as JsonArray
    from shmarrow.extension.canonical import JsonType as JsonType
    from shmarrow.extension.canonical import OpaqueType as OpaqueType
    from shmarrow.extension.canonical import TimestampWithOffsetArray as TimestampWithOffsetArray
    from shmarrow.extension.canonical import TimestampWithOffsetType as TimestampWithOffsetType
    from shmarrow.extension.canonical import UuidType as UuidType
    from shmarrow.extension.canonical import VariantArray as VariantArray
    from shmarrow.extension.canonical import VariantType as VariantType
    from shmarrow.extension.canonical import bool8 as bool8
    from shmarrow.extension.canonical import json_ as json_
    from shmarrow.extension.canonical import opaque as opaque
    from shmarrow.extension.canonical import parquet_variant as parquet_variant
    from shmarrow.extension.canonical import timestamp_with_offset as timestamp_with_offset
    from shmarrow.extension.canonical import uuid as uuid
    from shmarrow.extension.tensors import FixedShapeTensorArray as FixedShapeTensorArray
    from shmarrow.extension.tensors import FixedShapeTensorType as FixedShapeTensorType
    from shmarrow.extension.tensors import VariableShapeTensorArray as VariableShapeTensorArray
    from shmarrow.extension.tensors import VariableShapeTensorType as VariableShapeTensorType
    from shmarrow.extension.tensors import fixed_shape_tensor as fixed_shape_tensor
    from shmarrow.extension.tensors import variable_shape_tensor as variable_shape_tensor


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".canonical": "Bool8Array Bool8Type JsonArray JsonType OpaqueType TimestampWithOffsetArray "
            "TimestampWithOffsetType UuidType VariantArray VariantType bool8 json_ opaque parquet_variant "
            "timestamp_with_offset uuid",
            ".tensors": "FixedShapeTensorArray FixedShapeTensorType VariableShapeTensorArray VariableShapeTensorType "
            "fixed_shape_tensor variable_shape_tensor",
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
    types.extension.provide_extension_type(_name, partial(getattr, sys.modules[__name__], _class))
