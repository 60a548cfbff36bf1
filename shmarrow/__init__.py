# SPDX-License-Identifier: Apache-2.0
"""shmarrow: a memory-mapped, shared-memory Arrow store that needs no server.

Names follow pyarrow's. ``shmarrow.ipc`` reads and writes streams and files; ``shmarrow.segment`` manages the underlying
mapped files and shared memory objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow import ipc as ipc
from shmarrow import segment as segment
from shmarrow import types as types
from shmarrow.buffer import Buffer as Buffer
from shmarrow.columns.batch import RecordBatch as RecordBatch
from shmarrow.columns.batch import record_batch as record_batch
from shmarrow.errors import Closed as Closed
from shmarrow.errors import CopyRequired as CopyRequired
from shmarrow.errors import ExportRefused as ExportRefused
from shmarrow.errors import Failed as Failed
from shmarrow.errors import FieldNotFound as FieldNotFound
from shmarrow.errors import GenerationChanged as GenerationChanged
from shmarrow.errors import IndexOutOfRange as IndexOutOfRange
from shmarrow.errors import InvalidArgument as InvalidArgument
from shmarrow.errors import InvalidData as InvalidData
from shmarrow.errors import InvalidType as InvalidType
from shmarrow.errors import LimitExceeded as LimitExceeded
from shmarrow.errors import Limits as Limits
from shmarrow.errors import MissingExtra as MissingExtra
from shmarrow.errors import ObjectExists as ObjectExists
from shmarrow.errors import ObjectNotFound as ObjectNotFound
from shmarrow.errors import ShmarrowError as ShmarrowError
from shmarrow.errors import StorageError as StorageError
from shmarrow.errors import StoreFull as StoreFull
from shmarrow.errors import TimedOut as TimedOut
from shmarrow.errors import Unsupported as Unsupported
from shmarrow.extension import ExtensionArray as ExtensionArray
from shmarrow.extension import ExtensionType as ExtensionType
from shmarrow.extension import register_extension_type as register_extension_type
from shmarrow.extension import unregister_extension_type as unregister_extension_type
from shmarrow.layout import Array as Array
from shmarrow.layout import concat_arrays as concat_arrays
from shmarrow.layout import nulls as nulls
from shmarrow.lazy import lazy
from shmarrow.types import DataType as DataType
from shmarrow.types import Field as Field
from shmarrow.types import Schema as Schema
from shmarrow.types import binary as binary
from shmarrow.types import binary_view as binary_view
from shmarrow.types import bool_ as bool_
from shmarrow.types import date32 as date32
from shmarrow.types import date64 as date64
from shmarrow.types import day_time_interval as day_time_interval
from shmarrow.types import decimal32 as decimal32
from shmarrow.types import decimal64 as decimal64
from shmarrow.types import decimal128 as decimal128
from shmarrow.types import decimal256 as decimal256
from shmarrow.types import dense_union as dense_union
from shmarrow.types import dictionary as dictionary
from shmarrow.types import duration as duration
from shmarrow.types import field as field
from shmarrow.types import float16 as float16
from shmarrow.types import float32 as float32
from shmarrow.types import float64 as float64
from shmarrow.types import int8 as int8
from shmarrow.types import int16 as int16
from shmarrow.types import int32 as int32
from shmarrow.types import int64 as int64
from shmarrow.types import large_binary as large_binary
from shmarrow.types import large_list as large_list
from shmarrow.types import large_list_view as large_list_view
from shmarrow.types import large_string as large_string
from shmarrow.types import large_utf8 as large_utf8
from shmarrow.types import list_ as list_
from shmarrow.types import list_view as list_view
from shmarrow.types import map_ as map_
from shmarrow.types import month_day_nano_interval as month_day_nano_interval
from shmarrow.types import month_interval as month_interval
from shmarrow.types import null as null
from shmarrow.types import run_end_encoded as run_end_encoded
from shmarrow.types import schema as schema
from shmarrow.types import sparse_union as sparse_union
from shmarrow.types import string as string
from shmarrow.types import string_view as string_view
from shmarrow.types import struct as struct
from shmarrow.types import time32 as time32
from shmarrow.types import time64 as time64
from shmarrow.types import timestamp as timestamp
from shmarrow.types import uint8 as uint8
from shmarrow.types import uint16 as uint16
from shmarrow.types import uint32 as uint32
from shmarrow.types import uint64 as uint64
from shmarrow.types import union as union
from shmarrow.types import utf8 as utf8

if TYPE_CHECKING:
    from shmarrow import interchange as interchange
    from shmarrow.build import array as array
    from shmarrow.build import infer_type as infer_type
    from shmarrow.casts.python import DayTime as DayTime
    from shmarrow.casts.python import MonthDayNano as MonthDayNano
    from shmarrow.columns.chunked import ChunkedArray as ChunkedArray
    from shmarrow.columns.chunked import chunked_array as chunked_array
    from shmarrow.columns.table import RecordBatchReader as RecordBatchReader
    from shmarrow.columns.table import Table as Table
    from shmarrow.columns.table import concat_batches as concat_batches
    from shmarrow.columns.table import concat_tables as concat_tables
    from shmarrow.columns.table import table as table
    from shmarrow.extension import FixedShapeTensorArray as FixedShapeTensorArray
    from shmarrow.extension import bool8 as bool8
    from shmarrow.extension import fixed_shape_tensor as fixed_shape_tensor
    from shmarrow.extension import json_ as json_
    from shmarrow.extension import opaque as opaque
    from shmarrow.extension import parquet_variant as parquet_variant
    from shmarrow.extension import timestamp_with_offset as timestamp_with_offset
    from shmarrow.extension import uuid as uuid
    from shmarrow.extension import variable_shape_tensor as variable_shape_tensor
    from shmarrow.interchange.convert import convert as convert
    from shmarrow.interchange.handles import Handle as Handle
    from shmarrow.interchange.handles import handle as handle
    from shmarrow.interchange.write import write as write
    from shmarrow.ipc import new_file as new_file
    from shmarrow.ipc import new_stream as new_stream
    from shmarrow.ipc import open_file as open_file
    from shmarrow.ipc import open_stream as open_stream
    from shmarrow.ipc.tensor.bundle import Bundle as Bundle
    from shmarrow.ipc.tensor.bundle import load_tensors as load_tensors
    from shmarrow.ipc.tensor.bundle import save_tensors as save_tensors
    from shmarrow.layout.binary import BinaryArray as BinaryArray
    from shmarrow.layout.binary_view import BinaryViewArray as BinaryViewArray
    from shmarrow.layout.boolean import BooleanArray as BooleanArray
    from shmarrow.layout.dictionary import DictionaryArray as DictionaryArray
    from shmarrow.layout.fixed_size_list import FixedSizeListArray as FixedSizeListArray
    from shmarrow.layout.list import LargeListArray as LargeListArray
    from shmarrow.layout.list import ListArray as ListArray
    from shmarrow.layout.list_view import LargeListViewArray as LargeListViewArray
    from shmarrow.layout.list_view import ListViewArray as ListViewArray
    from shmarrow.layout.map import MapArray as MapArray
    from shmarrow.layout.null import NullArray as NullArray
    from shmarrow.layout.primitive import PrimitiveArray as PrimitiveArray
    from shmarrow.layout.run_end_encoded import RunEndEncodedArray as RunEndEncodedArray
    from shmarrow.layout.struct import StructArray as StructArray
    from shmarrow.layout.union import UnionArray as UnionArray
    from shmarrow.ring import Ring as Ring
    from shmarrow.scans import Scan as Scan
    from shmarrow.scans import open as open
    from shmarrow.scans import scan as scan
    from shmarrow.store import Store as Store
    from shmarrow.tensor import SparseCOOTensor as SparseCOOTensor
    from shmarrow.tensor import SparseCSCMatrix as SparseCSCMatrix
    from shmarrow.tensor import SparseCSFTensor as SparseCSFTensor
    from shmarrow.tensor import SparseCSRMatrix as SparseCSRMatrix
    from shmarrow.tensor import SparseTensor as SparseTensor
    from shmarrow.tensor import Tensor as Tensor
    from shmarrow.types import unify_schemas as unify_schemas


__version__ = "0.2.0"

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".build": "array infer_type",
            ".columns.chunked": "ChunkedArray chunked_array",
            ".columns.table": "RecordBatchReader Table concat_batches concat_tables table",
            ".extension": "FixedShapeTensorArray bool8 fixed_shape_tensor json_ opaque parquet_variant "
            "timestamp_with_offset uuid variable_shape_tensor",
            ".interchange": "",
            ".interchange.convert": "convert",
            ".interchange.handles": "Handle handle",
            ".ipc": "new_file new_stream open_file open_stream",
            ".interchange.write": "write",
            ".ipc.tensor.bundle": "Bundle load_tensors save_tensors",
            ".casts.python": "DayTime MonthDayNano",
            ".layout.binary": "BinaryArray",
            ".layout.binary_view": "BinaryViewArray",
            ".layout.boolean": "BooleanArray",
            ".layout.dictionary": "DictionaryArray",
            ".layout.fixed_size_list": "FixedSizeListArray",
            ".layout.list": "LargeListArray ListArray",
            ".layout.list_view": "LargeListViewArray ListViewArray",
            ".layout.map": "MapArray",
            ".layout.null": "NullArray",
            ".layout.primitive": "PrimitiveArray",
            ".layout.run_end_encoded": "RunEndEncodedArray",
            ".layout.struct": "StructArray",
            ".layout.union": "UnionArray",
            ".ring": "Ring",
            ".scans": "Scan open scan",
            ".store": "Store",
            ".tensor": "SparseCOOTensor SparseCSCMatrix SparseCSFTensor SparseCSRMatrix SparseTensor Tensor",
            ".types": "unify_schemas",
        },
        "ipc",
        "segment",
        "types",
    )
