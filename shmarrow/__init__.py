"""shmarrow: a memory-mapped, shared-memory Arrow store that needs no server.

The names here follow pyarrow's where the thing is the same. ``shmarrow.ipc`` reads and writes streams and files,
``shmarrow.segment`` has the mapped files and shared memory objects that they lie in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmarrow import interchange, ipc, segment, types
from shmarrow.batch import RecordBatch, record_batch
from shmarrow.buffer import Buffer
from shmarrow.build import array, infer_type
from shmarrow.chunked import ChunkedArray, chunked_array
from shmarrow.errors import (
    Closed,
    CopyRequired,
    ExportRefused,
    Failed,
    FieldNotFound,
    IndexOutOfRange,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    Limits,
    MissingExtra,
    ObjectExists,
    ObjectNotFound,
    ShmarrowError,
    StorageError,
    StoreFull,
    Unsupported,
)
from shmarrow.extension import (
    ExtensionArray,
    ExtensionType,
    register_extension_type,
    unregister_extension_type,
)
from shmarrow.layout import (
    Array,
    BinaryArray,
    BooleanArray,
    DayTime,
    DictionaryArray,
    FixedSizeListArray,
    LargeListArray,
    ListArray,
    MapArray,
    MonthDayNano,
    PrimitiveArray,
    StructArray,
    concat_arrays,
    nulls,
)
from shmarrow.layout.listing import LATE_CLASSES
from shmarrow.tables import RecordBatchReader, Table, concat_batches, concat_tables, table
from shmarrow.types import (
    DataType,
    Field,
    Schema,
    binary,
    binary_view,
    bool_,
    date32,
    date64,
    day_time_interval,
    decimal32,
    decimal64,
    decimal128,
    decimal256,
    dense_union,
    dictionary,
    duration,
    field,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    large_binary,
    large_list,
    large_list_view,
    large_string,
    large_utf8,
    list_,
    list_view,
    map_,
    month_day_nano_interval,
    month_interval,
    null,
    run_end_encoded,
    schema,
    sparse_union,
    string,
    string_view,
    struct,
    time32,
    time64,
    timestamp,
    uint8,
    uint16,
    uint32,
    uint64,
    unify_schemas,
    union,
    utf8,
)

if TYPE_CHECKING:
    from shmarrow.extension import (
        FixedShapeTensorArray,
        bool8,
        fixed_shape_tensor,
        json_,
        opaque,
        parquet_variant,
        timestamp_with_offset,
        uuid,
        variable_shape_tensor,
    )
    from shmarrow.ipc import Bundle, load_tensors, save_tensors
    from shmarrow.layout import (
        BinaryViewArray,
        LargeListViewArray,
        ListViewArray,
        NullArray,
        RunEndEncodedArray,
        UnionArray,
    )
    from shmarrow.store import Store
    from shmarrow.tensor import (
        SparseCOOTensor,
        SparseCSCMatrix,
        SparseCSFTensor,
        SparseCSRMatrix,
        SparseTensor,
        Tensor,
    )

__all__ = [
    "Array",
    "BinaryArray",
    "BinaryViewArray",
    "BooleanArray",
    "Buffer",
    "Bundle",
    "ChunkedArray",
    "Closed",
    "CopyRequired",
    "DataType",
    "DayTime",
    "DictionaryArray",
    "ExportRefused",
    "ExtensionArray",
    "ExtensionType",
    "Failed",
    "Field",
    "FieldNotFound",
    "FixedShapeTensorArray",
    "FixedSizeListArray",
    "IndexOutOfRange",
    "InvalidArgument",
    "InvalidData",
    "InvalidType",
    "LargeListArray",
    "LargeListViewArray",
    "LimitExceeded",
    "Limits",
    "ListArray",
    "ListViewArray",
    "MapArray",
    "MissingExtra",
    "MonthDayNano",
    "NullArray",
    "ObjectExists",
    "ObjectNotFound",
    "PrimitiveArray",
    "RecordBatch",
    "RecordBatchReader",
    "RunEndEncodedArray",
    "Schema",
    "ShmarrowError",
    "SparseCOOTensor",
    "SparseCSCMatrix",
    "SparseCSFTensor",
    "SparseCSRMatrix",
    "SparseTensor",
    "StorageError",
    "Store",
    "StoreFull",
    "StructArray",
    "Table",
    "Tensor",
    "UnionArray",
    "Unsupported",
    "array",
    "binary",
    "binary_view",
    "bool8",
    "bool_",
    "chunked_array",
    "concat_arrays",
    "concat_batches",
    "concat_tables",
    "date32",
    "date64",
    "day_time_interval",
    "decimal32",
    "decimal64",
    "decimal128",
    "decimal256",
    "dense_union",
    "dictionary",
    "duration",
    "field",
    "fixed_shape_tensor",
    "float16",
    "float32",
    "float64",
    "infer_type",
    "int8",
    "int16",
    "int32",
    "int64",
    "interchange",
    "ipc",
    "json_",
    "large_binary",
    "large_list",
    "large_list_view",
    "large_string",
    "large_utf8",
    "list_",
    "list_view",
    "load_tensors",
    "map_",
    "month_day_nano_interval",
    "month_interval",
    "null",
    "nulls",
    "opaque",
    "parquet_variant",
    "record_batch",
    "register_extension_type",
    "run_end_encoded",
    "save_tensors",
    "schema",
    "segment",
    "sparse_union",
    "string",
    "string_view",
    "struct",
    "table",
    "time32",
    "time64",
    "timestamp",
    "timestamp_with_offset",
    "types",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unify_schemas",
    "union",
    "unregister_extension_type",
    "utf8",
    "uuid",
    "variable_shape_tensor",
]

__version__ = "0.1.0"

_TENSORS = {"SparseCOOTensor", "SparseCSCMatrix", "SparseCSFTensor", "SparseCSRMatrix", "SparseTensor", "Tensor"}
_EXTENSIONS = {
    "FixedShapeTensorArray",
    "bool8",
    "fixed_shape_tensor",
    "json_",
    "opaque",
    "parquet_variant",
    "timestamp_with_offset",
    "uuid",
    "variable_shape_tensor",
}
_LAYOUTS = {*LATE_CLASSES}
_BUNDLES = {"Bundle", "load_tensors", "save_tensors"}


def __getattr__(name: str) -> Any:
    """Parts that not everybody needs are imported when they are first asked for."""
    home: Any
    if name in _TENSORS:
        from shmarrow import tensor as home
    elif name in _EXTENSIONS:
        from shmarrow import extension as home
    elif name in _LAYOUTS:
        from shmarrow import layout as home
    elif name in _BUNDLES:
        from shmarrow import ipc as home
    elif name == "Store":
        from shmarrow import store as home
    else:
        raise AttributeError(f"module 'shmarrow' has no attribute {name!r}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
