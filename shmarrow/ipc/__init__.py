# SPDX-License-Identifier: Apache-2.0
"""Arrow IPC: readers and writers of streams, files and tensors.

Sources and sinks are paths, ``shm:NAME`` for POSIX shared memory, file objects and, for reading, bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.errors import Limits as Limits
from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.columns.table import RecordBatchWithMetadata as RecordBatchWithMetadata
    from shmarrow.ipc.draft import Draft as Draft
    from shmarrow.ipc.draft import VariableSize as VariableSize
    from shmarrow.ipc.draft import new_draft as new_draft
    from shmarrow.ipc.file.reader import RecordBatchFileReader as RecordBatchFileReader
    from shmarrow.ipc.file.reader import open_file as open_file
    from shmarrow.ipc.file.writer import RecordBatchFileWriter as RecordBatchFileWriter
    from shmarrow.ipc.file.writer import new_file as new_file
    from shmarrow.ipc.options import IpcWriteOptions as IpcWriteOptions
    from shmarrow.ipc.stream.decoder import BatchEvent as BatchEvent
    from shmarrow.ipc.stream.decoder import DictionaryEvent as DictionaryEvent
    from shmarrow.ipc.stream.decoder import EndEvent as EndEvent
    from shmarrow.ipc.stream.decoder import SchemaEvent as SchemaEvent
    from shmarrow.ipc.stream.decoder import StreamDecoder as StreamDecoder
    from shmarrow.ipc.stream.reader import MappedStreamReader as MappedStreamReader
    from shmarrow.ipc.stream.reader import RecordBatchStreamReader as RecordBatchStreamReader
    from shmarrow.ipc.stream.reader import open_stream as open_stream
    from shmarrow.ipc.stream.state import IpcStats as IpcStats
    from shmarrow.ipc.stream.writer import RecordBatchStreamWriter as RecordBatchStreamWriter
    from shmarrow.ipc.stream.writer import new_stream as new_stream
    from shmarrow.ipc.tensor.reader import TensorReader as TensorReader
    from shmarrow.ipc.tensor.reader import read_tensor as read_tensor
    from shmarrow.ipc.tensor.reader import read_tensors as read_tensors
    from shmarrow.ipc.tensor.writer import TensorWriter as TensorWriter
    from shmarrow.ipc.tensor.writer import get_tensor_size as get_tensor_size
    from shmarrow.ipc.tensor.writer import new_tensor as new_tensor
    from shmarrow.ipc.tensor.writer import write_tensor as write_tensor


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".draft": "Draft VariableSize new_draft",
            ".file.reader": "RecordBatchFileReader open_file",
            ".file.writer": "RecordBatchFileWriter new_file",
            ".options": "IpcWriteOptions",
            ".stream.decoder": "BatchEvent DictionaryEvent EndEvent SchemaEvent StreamDecoder",
            ".stream.reader": "MappedStreamReader RecordBatchStreamReader open_stream",
            ".stream.state": "IpcStats",
            ".stream.writer": "RecordBatchStreamWriter new_stream",
            ".tensor.reader": "TensorReader read_tensor read_tensors",
            ".tensor.writer": "TensorWriter get_tensor_size new_tensor write_tensor",
            "shmarrow.columns.table": "RecordBatchWithMetadata",
        },
    )
