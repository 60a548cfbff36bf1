"""Arrow IPC: readers and writers of streams, files and tensors.

Sources and sinks are paths, ``shm:NAME`` for POSIX shared memory, file objects and, for reading, bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shmarrow import errors, memory, types
from shmarrow.errors import Limits as Limits
from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.columns.table import RecordBatchWithMetadata as RecordBatchWithMetadata
    from shmarrow.ipc.draft import Draft as Draft
    from shmarrow.ipc.draft import VariableSize as VariableSize
    from shmarrow.ipc.draft import new_draft as new_draft
    from shmarrow.ipc.file.reader import RecordBatchFileReader as RecordBatchFileReader
    from shmarrow.ipc.file.writer import RecordBatchFileWriter as RecordBatchFileWriter
    from shmarrow.ipc.options import IpcWriteOptions as IpcWriteOptions
    from shmarrow.ipc.stream.decoder import BatchEvent as BatchEvent
    from shmarrow.ipc.stream.decoder import DictionaryEvent as DictionaryEvent
    from shmarrow.ipc.stream.decoder import EndEvent as EndEvent
    from shmarrow.ipc.stream.decoder import SchemaEvent as SchemaEvent
    from shmarrow.ipc.stream.decoder import StreamDecoder as StreamDecoder
    from shmarrow.ipc.stream.reader import MappedStreamReader as MappedStreamReader
    from shmarrow.ipc.stream.reader import RecordBatchStreamReader as RecordBatchStreamReader
    from shmarrow.ipc.stream.state import IpcStats as IpcStats
    from shmarrow.ipc.stream.writer import RecordBatchStreamWriter as RecordBatchStreamWriter
    from shmarrow.ipc.tensor.reader import TensorReader as TensorReader
    from shmarrow.ipc.tensor.reader import read_tensor as read_tensor
    from shmarrow.ipc.tensor.reader import read_tensors as read_tensors
    from shmarrow.ipc.tensor.writer import TensorWriter as TensorWriter
    from shmarrow.ipc.tensor.writer import get_tensor_size as get_tensor_size
    from shmarrow.ipc.tensor.writer import new_tensor as new_tensor
    from shmarrow.ipc.tensor.writer import write_tensor as write_tensor


def new_file(
    sink: Any,
    schema: types.SchemaLike,
    options: IpcWriteOptions | None = None,
    metadata: types.MetadataLike | None = None,
    *,
    statistics: bool | Iterable[str] = False,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> RecordBatchFileWriter:
    """Create a writer of the file format.

    Parameters
    ----------
    sink : path, ``shm:NAME``, SegmentWriter, file object or socket
        The destination. A path or a ``shm:`` name is published atomically when the writer is closed; symbolic links are
        followed. A file object or a socket is written to incrementally and stays open; :mod:`shmarrow.memory.sinks`
        defines what its ``write`` may return.
    schema : Schema, or mapping of names to types
        The schema of all batches.
    options : IpcWriteOptions, optional
        Compression, alignment, metadata version.
    metadata : mapping, optional
        Custom metadata of the footer.
    statistics : bool or iterable of str
        The columns whose null count, least and greatest value are recorded for each batch, by which
        :func:`shmarrow.scan` skips batches; True for all whose values have an order. They are in the footer's metadata,
        under a key of their own that other readers ignore.
    overwrite : bool, optional
        True replaces an existing object; its current readers keep the old version. By default a path is replaced and a
        ``shm:`` name is not.
    mode : int, optional
        Permission bits of the published file. Defaults to those of the replaced file, if any, or 0o666 less the umask;
        for a ``shm:`` name to 0o400.
    durable : bool
        True syncs the file and its directory to disk when publishing.

    Raises
    ------
    ObjectExists
        If the name exists and must not be replaced.
    StoreFull
        If there is no space left.
    StorageError
        If the directory is not writable, or the file object does not accept all bytes.
    """
    from shmarrow.ipc.file.writer import RecordBatchFileWriter

    target = memory.open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    return RecordBatchFileWriter(target, schema, options, metadata, statistics)


def new_stream(
    sink: Any,
    schema: types.SchemaLike,
    options: IpcWriteOptions | None = None,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> RecordBatchStreamWriter:
    """Create a writer of the streaming format.

    Parameters and errors are those of :func:`new_file`; a stream has no footer, so no metadata and statistics in it.
    """
    from shmarrow.ipc.stream.writer import RecordBatchStreamWriter

    target = memory.open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    return RecordBatchStreamWriter(target, schema, options)


def open_file(
    source: Any,
    *,
    limits: Limits = errors.DEFAULT_LIMITS,
    memory_map: bool = True,
    zero_copy_only: bool = False,
    included_fields: Iterable[int | str] | None = None,
    trust: bool = False,
) -> RecordBatchFileReader:
    """Open a reader of the file format.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped; arrays are zero-copy views that keep the mapping alive. A seekable file object that
        cannot be mapped is read by ranges, as needed. :mod:`shmarrow.memory` has the full table.
    limits : Limits, optional
        Bounds on what is accepted.
    memory_map : bool
        False reads into memory instead of mapping, which protects against truncation by other processes.
    zero_copy_only : bool
        True rejects batches that cannot be read without a copy, such as compressed ones.
    included_fields : iterable of int and str, optional
        The columns to read, by position or name; all by default.
    trust : bool
        True skips the checks of values (offsets, views, indices, UTF-8) before arrays are exported to other libraries.
        Only for data written by your own code: malicious data could crash the process or leak its memory.

    Raises
    ------
    ObjectNotFound
        If the source does not exist.
    InvalidData
        If it is not an Arrow file.
    StorageError
        If the source cannot be read.
    InvalidType
        If the source is a text-mode file or of an unsupported type.
    """
    from shmarrow.ipc.file.reader import RecordBatchFileReader

    limits = errors.as_limits(limits, trust)
    return RecordBatchFileReader(memory.open_source(source, memory_map), limits, included_fields, zero_copy_only)


def open_stream(
    source: Any,
    *,
    limits: Limits = errors.DEFAULT_LIMITS,
    memory_map: bool = True,
    included_fields: Iterable[int | str] | None = None,
    trust: bool = False,
) -> RecordBatchStreamReader | MappedStreamReader:
    """Open a reader of the streaming format, an iterator of record batches.

    For a path, a name or bytes, returns a :class:`MappedStreamReader`: zero-copy, with random access to batches. For a
    file object or a socket, returns a :class:`RecordBatchStreamReader`, which reads from the current position exactly
    up to the end of the stream. Parameters and errors are those of :func:`open_file`.
    """
    from shmarrow.ipc.stream.reader import MappedStreamReader, RecordBatchStreamReader

    limits = errors.as_limits(limits, trust)
    opened = memory.open_source(source, memory_map, sequential=True)
    kind: Any = RecordBatchStreamReader if opened.data is None else MappedStreamReader
    return kind(opened, limits, included_fields)


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".draft": "Draft VariableSize new_draft",
            ".file.reader": "RecordBatchFileReader",
            ".file.writer": "RecordBatchFileWriter",
            ".options": "IpcWriteOptions",
            ".stream.decoder": "BatchEvent DictionaryEvent EndEvent SchemaEvent StreamDecoder",
            ".stream.reader": "MappedStreamReader RecordBatchStreamReader",
            ".stream.state": "IpcStats",
            ".stream.writer": "RecordBatchStreamWriter",
            ".tensor.reader": "TensorReader read_tensor read_tensors",
            ".tensor.writer": "TensorWriter get_tensor_size new_tensor write_tensor",
            "shmarrow.columns.table": "RecordBatchWithMetadata",
        },
    )
