"""Serialization and interprocess communication: streams and files of record batches, to bytes and back.

A source or a sink is a path, a ``shm:NAME`` for POSIX shared memory, a file object, or (to read) bytes.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shmarrow import sources
from shmarrow.errors import DEFAULT_LIMITS, InvalidArgument, Limits, as_limits
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.sources import open_source
from shmarrow.types import MetadataLike, Schema

if TYPE_CHECKING:
    from shmarrow.ipc.draft import Draft, VariableSize, new_draft
    from shmarrow.ipc.file.appender import RecordBatchFileAppender
    from shmarrow.ipc.file.writer import RecordBatchFileWriter
    from shmarrow.ipc.options import IpcWriteOptions
    from shmarrow.ipc.stream.decoder import BatchEvent, DictionaryEvent, EndEvent, SchemaEvent, StreamDecoder
    from shmarrow.ipc.stream.reader import MappedStreamReader, RecordBatchStreamReader
    from shmarrow.ipc.stream.writer import RecordBatchStreamWriter
    from shmarrow.ipc.tensor.bundle import Bundle, load_tensors, save_tensors
    from shmarrow.ipc.tensor.reader import TensorReader, read_sparse_tensor, read_tensor, read_tensors
    from shmarrow.ipc.tensor.writer import (
        TensorWriter,
        get_tensor_size,
        new_tensor,
        write_sparse_tensor,
        write_tensor,
    )


def new_file(
    sink: Any,
    schema: Schema,
    options: IpcWriteOptions | None = None,
    metadata: MetadataLike | None = None,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> RecordBatchFileWriter:
    """Create a writer of the file format.

    Parameters
    ----------
    sink : path, ``shm:NAME``, SegmentWriter, file object or socket
        Where the file goes. A path or a name appears whole when the writer is closed, or not at all; a symbolic link
        is followed. A file object or a socket gets the bytes as they are written, and stays open;
        :mod:`shmarrow.sources.sinks` says what its ``write`` may return.
    schema : Schema
        The schema of all batches.
    options : IpcWriteOptions, optional
        Compression, alignment, version.
    metadata : mapping, optional
        The footer's own metadata.
    overwrite : bool, optional
        True replaces what has the name; readers that have it open keep the old one whole. By default a path is
        replaced, and a ``shm:`` name is not.
    mode : int, optional
        Permission bits of the published file. By default those of the file that is replaced, or else 0o666 without
        the bits of the umask; 0o400 for a ``shm:`` name.
    durable : bool
        True syncs the file and its directory before it is published.

    Raises
    ------
    ObjectExists
        If the name is taken, and not to be replaced.
    StoreFull
        If there is no space left.
    StorageError
        If the directory does not allow it, or the file object does not accept all bytes.
    """
    from shmarrow.ipc.file.writer import RecordBatchFileWriter

    target = sources.open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    return RecordBatchFileWriter(target, schema, options, metadata)


def new_stream(
    sink: Any,
    schema: Schema,
    options: IpcWriteOptions | None = None,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> RecordBatchStreamWriter:
    """Create a writer of the streaming format. Parameters and errors as :func:`new_file`."""
    from shmarrow.ipc.stream.writer import RecordBatchStreamWriter

    target = sources.open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    return RecordBatchStreamWriter(target, schema, options)


def append_file(
    where: Any, options: IpcWriteOptions | None = None, *, durable: bool = False
) -> RecordBatchFileAppender:
    """Create a writer that appends record batches to an existing file.

    The file is replaced as a whole when the writer is closed: its readers keep what they had, and a writer that is
    killed leaves it as it was. The bytes of the old batches are copied once, from one file to the other, and their
    metadata are read, to count their rows. Schema, footer metadata, byte order, metadata version, owner and permissions
    stay those of the file. Symbolic links are followed.

    Parameters
    ----------
    where : path or ``shm:NAME``
        The file.
    options : IpcWriteOptions, optional
        Compression and alignment of what is added.
    durable : bool
        True syncs the file and its directory.

    Raises
    ------
    ObjectNotFound
        If there is no such file.
    InvalidData
        If it is no Arrow file, or its footer leads to what is no batch.
    StorageError
        On closing, if somebody else has replaced or changed the file in the meantime.
    """
    from shmarrow.ipc.file.appender import RecordBatchFileAppender

    source = open_source(where)
    if source.identity is None or not isinstance(where, (str, bytes, os.PathLike)):
        source.close()
        raise InvalidArgument("append_file takes a path or a shm: name, as it replaces the file")
    reader = RecordBatchFileReader(source, DEFAULT_LIMITS)
    sink = sources.open_sink(where, overwrite=True, durable=durable, replacing=source.identity)
    return RecordBatchFileAppender(reader, sink, options)


def open_file(
    source: Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    memory_map: bool = True,
    zero_copy_only: bool = False,
    included_fields: Iterable[int | str] | None = None,
    trusted: bool = False,
) -> RecordBatchFileReader:
    """Open a reader of the file format.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped; the arrays point into the mapping and keep it alive. Of a file object that can
        seek and is not mapped, only the ranges that are needed are read. :mod:`shmarrow.sources` has the full table.
    limits : Limits, optional
        Bounds on what is accepted.
    memory_map : bool
        False reads the bytes of a path, a name or a file into memory instead, where nobody can cut them short.
    zero_copy_only : bool
        True refuses batches that are compressed, as they cannot be had without a copy.
    included_fields : iterable of int and str, optional
        The columns to read, by position or by name; all of them where it is not given.
    trusted : bool
        True hands arrays to other libraries without checking their values first: offsets, views, indices and UTF-8.
        Only for data that your own code has written; anything else could crash the process or leak its memory.

    Raises
    ------
    ObjectNotFound
        If there is nothing of this name.
    InvalidData
        If the bytes are no Arrow file.
    StorageError
        If they cannot be read.
    InvalidType
        If the source is a text file, or no source at all.
    """
    limits = as_limits(limits, trusted)
    return RecordBatchFileReader(open_source(source, memory_map), limits, zero_copy_only, included_fields)


def open_stream(
    source: Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    memory_map: bool = True,
    included_fields: Iterable[int | str] | None = None,
    trusted: bool = False,
) -> RecordBatchStreamReader | MappedStreamReader:
    """Open a reader of the streaming format, an iterator of record batches.

    Over a path, a name or bytes it is a :class:`MappedStreamReader`, which copies nothing and gives any batch by
    number; over a file object or a socket it reads what each message needs. A file object is read from its position
    on, and left after the end of the stream. The parameters and errors are those of :func:`open_file`.
    """
    from shmarrow.ipc.stream.reader import MappedStreamReader, RecordBatchStreamReader

    limits = as_limits(limits, trusted)
    opened = open_source(source, memory_map, sequential=True)
    kind: Any = RecordBatchStreamReader if opened.data is None else MappedStreamReader
    return kind(opened, limits, included_fields)  # type: ignore[no-any-return]


_HOMES = {
    "BatchEvent": "stream.decoder",
    "DictionaryEvent": "stream.decoder",
    "EndEvent": "stream.decoder",
    "SchemaEvent": "stream.decoder",
    "StreamDecoder": "stream.decoder",
    "Draft": "draft",
    "VariableSize": "draft",
    "new_draft": "draft",
    "MappedStreamReader": "stream.reader",
    "RecordBatchStreamReader": "stream.reader",
    "RecordBatchStreamWriter": "stream.writer",
    "RecordBatchFileAppender": "file.appender",
    "RecordBatchFileWriter": "file.writer",
    "IpcWriteOptions": "options",
    "Bundle": "tensor.bundle",
    "load_tensors": "tensor.bundle",
    "save_tensors": "tensor.bundle",
    "TensorReader": "tensor.reader",
    "TensorWriter": "tensor.writer",
    "get_tensor_size": "tensor.writer",
    "new_tensor": "tensor.writer",
    "read_sparse_tensor": "tensor.reader",
    "read_tensor": "tensor.reader",
    "read_tensors": "tensor.reader",
    "write_sparse_tensor": "tensor.writer",
    "write_tensor": "tensor.writer",
}
"""The module of each name that is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    """What writes, streams, bundles and messages of tensors are imported when they are first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shmarrow.ipc' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"shmarrow.ipc.{home}"), name)
    return value


__all__ = [
    "BatchEvent",
    "Bundle",
    "DictionaryEvent",
    "Draft",
    "EndEvent",
    "IpcWriteOptions",
    "Limits",
    "MappedStreamReader",
    "RecordBatchFileAppender",
    "RecordBatchFileReader",
    "RecordBatchFileWriter",
    "RecordBatchStreamReader",
    "RecordBatchStreamWriter",
    "SchemaEvent",
    "StreamDecoder",
    "TensorReader",
    "TensorWriter",
    "VariableSize",
    "append_file",
    "get_tensor_size",
    "load_tensors",
    "new_draft",
    "new_file",
    "new_stream",
    "new_tensor",
    "open_file",
    "open_stream",
    "read_sparse_tensor",
    "read_tensor",
    "read_tensors",
    "save_tensors",
    "write_sparse_tensor",
    "write_tensor",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
