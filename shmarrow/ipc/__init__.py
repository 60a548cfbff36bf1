"""Serialization and interprocess communication: streams and files of record batches, to bytes and back.

A source or a sink is a path, a ``shm:NAME`` for POSIX shared memory, a file object, or (to read) bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shmarrow.errors import DEFAULT_LIMITS, InvalidArgument, Limits
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.sources import open_sink, open_source
from shmarrow.types import MetadataLike, Schema

if TYPE_CHECKING:
    from shmarrow.ipc.file.appender import RecordBatchFileAppender
    from shmarrow.ipc.file.writer import RecordBatchFileWriter
    from shmarrow.ipc.options import IpcWriteOptions
    from shmarrow.ipc.stream.decoder import BatchEvent, DictionaryEvent, EndEvent, SchemaEvent, StreamDecoder
    from shmarrow.ipc.stream.reader import MappedStreamReader, RecordBatchStreamReader
    from shmarrow.ipc.stream.writer import RecordBatchStreamWriter
    from shmarrow.ipc.tensor.bundle import Bundle, load_tensors, save_tensors
    from shmarrow.ipc.tensor.io import (
        TensorWriter,
        get_tensor_size,
        new_tensor,
        read_sparse_tensor,
        read_tensor,
        read_tensors,
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
    """A writer of the file format.

    Parameters
    ----------
    sink : path, ``shm:NAME`` or file object
        Where the file goes. A path or a name appears whole when the writer is closed, or not at all.
    schema : Schema
        The schema of all batches.
    options : IpcWriteOptions, optional
        Compression, alignment, version.
    metadata : mapping, optional
        The footer's own metadata.
    overwrite : bool
        True replaces what has the name; readers that have it open keep the old one whole.
    mode : int
        Permissions of the published file.
    durable : bool
        True syncs the file and its directory before it is published.

    Raises
    ------
    ObjectExists
        If the name is taken and ``overwrite`` is False.
    StoreFull
        If there is no space left.
    StorageError
        If the directory does not allow it.
    """
    from shmarrow.ipc.file.writer import RecordBatchFileWriter

    target = open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
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
    """A writer of the streaming format; the parameters and errors are those of :func:`new_file`."""
    from shmarrow.ipc.stream.writer import RecordBatchStreamWriter

    target = open_sink(sink, overwrite=overwrite, mode=mode, durable=durable)
    return RecordBatchStreamWriter(target, schema, options)


def append_file(
    where: Any, options: IpcWriteOptions | None = None, *, durable: bool = False
) -> RecordBatchFileAppender:
    """A writer that adds record batches to a file that exists.

    The file is replaced as a whole when the writer is closed: its readers keep what they had, and a writer that is
    killed leaves it as it was. The bytes of the old batches are copied once, from one file to the other. Schema, footer
    metadata, byte order, metadata version and permissions stay those of the file.

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
        If it is no Arrow file.
    StorageError
        On closing, if somebody else has replaced the file in the meantime.
    """
    from shmarrow.ipc.file.appender import RecordBatchFileAppender

    source = open_source(where)
    if source.identity is None:
        raise InvalidArgument("a file is added to by its path or its shm: name")
    reader = RecordBatchFileReader(source, DEFAULT_LIMITS)
    mode = source.mode
    sink = open_sink(where, overwrite=True, mode=mode, durable=durable, replacing=source.identity)
    return RecordBatchFileAppender(reader, sink, options)


def open_file(
    source: Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    memory_map: bool = True,
    zero_copy_only: bool = False,
    included_fields: Iterable[int | str] | None = None,
) -> RecordBatchFileReader:
    """A reader of the file format.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped; the arrays point into the mapping and keep it alive.
    limits : Limits, optional
        Bounds on what is accepted.
    memory_map : bool
        False reads a path's bytes into memory instead.
    zero_copy_only : bool
        True refuses batches that are compressed, as they cannot be had without a copy.
    included_fields : iterable of int and str, optional
        The columns to read, by position or by name; all of them where it is not given.

    Raises
    ------
    ObjectNotFound
        If there is nothing of this name.
    InvalidData
        If the bytes are no Arrow file.
    """
    return RecordBatchFileReader(open_source(source, memory_map), limits, zero_copy_only, included_fields)


def open_stream(
    source: Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    memory_map: bool = True,
    included_fields: Iterable[int | str] | None = None,
) -> RecordBatchStreamReader | MappedStreamReader:
    """A reader of the streaming format: an iterator of record batches.

    Over a path, a name or bytes it is a :class:`MappedStreamReader`, which copies nothing and gives any batch by
    number; over a file object it reads what each message needs. The parameters and errors are those of
    :func:`open_file`.
    """
    from shmarrow.ipc.stream.reader import MappedStreamReader, RecordBatchStreamReader

    opened = open_source(source, memory_map, sequential=True)
    kind: Any = RecordBatchStreamReader if opened.data is None else MappedStreamReader
    return kind(opened, limits, included_fields)  # type: ignore[no-any-return]


_HOMES = {
    "BatchEvent": "stream.decoder",
    "DictionaryEvent": "stream.decoder",
    "EndEvent": "stream.decoder",
    "SchemaEvent": "stream.decoder",
    "StreamDecoder": "stream.decoder",
    "MappedStreamReader": "stream.reader",
    "RecordBatchStreamReader": "stream.reader",
    "RecordBatchStreamWriter": "stream.writer",
    "RecordBatchFileAppender": "file.appender",
    "RecordBatchFileWriter": "file.writer",
    "IpcWriteOptions": "options",
    "Bundle": "tensor.bundle",
    "load_tensors": "tensor.bundle",
    "save_tensors": "tensor.bundle",
    "TensorWriter": "tensor.io",
    "get_tensor_size": "tensor.io",
    "new_tensor": "tensor.io",
    "read_sparse_tensor": "tensor.io",
    "read_tensor": "tensor.io",
    "read_tensors": "tensor.io",
    "write_sparse_tensor": "tensor.io",
    "write_tensor": "tensor.io",
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
    "TensorWriter",
    "append_file",
    "get_tensor_size",
    "load_tensors",
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
