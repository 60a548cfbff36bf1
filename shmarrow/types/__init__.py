# SPDX-License-Identifier: Apache-2.0
"""The data types of Arrow (columnar format, "Data Types"; Schema.fbs), fields and schemas."""

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy
from shmarrow.types.arguments import *  # noqa: F403
from shmarrow.types.base import *  # noqa: F403
from shmarrow.types.extension import *  # noqa: F403
from shmarrow.types.nested import *  # noqa: F403
from shmarrow.types.primitive import *  # noqa: F403
from shmarrow.types.schema import *  # noqa: F403

if TYPE_CHECKING:
    from shmarrow.types.predicates import *  # noqa: F403
    from shmarrow.types.unify import *  # noqa: F403


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".predicates": "is_binary is_binary_view is_boolean is_date is_date32 is_date64 is_decimal "
            "is_decimal32 is_decimal64 is_decimal128 is_decimal256 is_dictionary is_duration "
            "is_fixed_size_binary is_fixed_size_list is_float16 is_float32 is_float64 is_floating "
            "is_int8 is_int16 is_int32 is_int64 is_integer is_interval is_large_binary "
            "is_large_list is_large_list_view is_large_string is_large_unicode is_list "
            "is_list_view is_map is_nested is_null is_primitive is_run_end_encoded "
            "is_signed_integer is_string is_string_view is_struct is_temporal is_time is_time32 "
            "is_time64 is_timestamp is_uint8 is_uint16 is_uint32 is_uint64 is_unicode is_union "
            "is_unsigned_integer",
            ".unify": "unify_schemas",
        },
    )
