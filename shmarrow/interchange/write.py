# SPDX-License-Identifier: Apache-2.0
"""Writing data of any kind into one file, in the format that its suffix or the data say.

Invariants:

* rows are written batch by batch, so their number does not matter; tensors are not copied;
* values that a format cannot hold are refused, never dropped;
* a path or a name appears complete or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shmarrow import capsules, memory
from shmarrow.columns import ChunkedArray, RecordBatch, RecordBatchReader, Table, rows_of
from shmarrow.columns.table import table
from shmarrow.errors import InvalidArgument, InvalidType, full_name, shown
from shmarrow.interchange.arrow_file import ArrowFile, recut
from shmarrow.interchange.directory import DirectoryWriter
from shmarrow.interchange.foreign import ROW_GROUP, Rows, write_csv, write_parquet
from shmarrow.interchange.safetensors import safetensors_pieces
from shmarrow.ipc import RecordBatchFileReader, RecordBatchStreamWriter
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.tensor.bundle import Bundle, NamedTensors, write_tensors
from shmarrow.ipc.tensor.writer import write_tensor
from shmarrow.layout import Array
from shmarrow.memory import Sink, by_suffix, decoded, is_shm, open_sink, resolve
from shmarrow.memory.formats import SUFFIXES
from shmarrow.scans import Scan
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.tensor.convert import as_tensor, may_be_tensor
from shmarrow.types import MetadataLike, as_metadata


class Written(NamedTuple):
    """What :func:`write` or :func:`shmarrow.convert` has written.

    Attributes
    ----------
    format : str
        The format.
    rows : int or None
        Number of rows; None in a format that holds tensors.
    tensors : int or None
        Number of tensors; None in a format that holds rows.
    nbytes : int
        Size in bytes.
    """

    format: str
    rows: int | None
    tensors: int | None
    nbytes: int


def write(
    data: Any,
    where: Any,
    *,
    format: str | None = None,
    partition_by: Sequence[str] = (),
    max_rows_per_file: int | None = None,
    mode: str | None = None,
    rows_per_batch: int | None = None,
    compression: str | None = None,
    compression_level: int | None = None,
    statistics: bool | Iterable[str] = False,
    metadata: MetadataLike | None = None,
    overwrite: bool | None = None,
    permissions: int | None = None,
    durable: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> Written:
    """Write rows or tensors into a file, shared memory or a directory, the counterpart of :func:`shmarrow.open`.

    Rows become a directory of Arrow files where ``partition_by``, ``max_rows_per_file`` or ``mode`` is given, or the
    path is that of a directory; :func:`shmarrow.scan` reads it.

    Parameters
    ----------
    data : RecordBatch, Table, data frame, reader, Scan, tensor, or mapping
        Rows of this or another library, a list of batches, a tensor, or a mapping: of names to columns for a format of
        rows, of names to tensors for one of tensors. A reader is read to its end.
    where : path, ``shm:NAME`` or binary file object
        A path or a name appears complete or not at all. A file object is written to and stays open.
    format : str, optional
        ``"arrow"`` (a file), ``"arrows"`` (a stream), ``"parquet"`` or ``"csv"`` for rows, ``"tensors"`` (a bundle) or
        ``"safetensors"`` for named tensors; by default that of the suffix. Without one, rows become a stream in a file
        object and a file in shared memory. One tensor is written as one message.
    partition_by : sequence of str
        The columns whose values name directories, such as ``day=2024-01-01``, instead of being in the files.
    max_rows_per_file : int, optional
        The most rows of a file of a directory.
    mode : str, optional
        What becomes of a directory that has files: ``"error"``, the default, ``"append"``, which adds files of the same
        columns, or ``"overwrite"``, which replaces what was there when the write began. Scans see all of a write or
        nothing.
    rows_per_batch : int, optional
        Rows of each batch (of Parquet: row group); by default as they are, in Parquet 131,072.
    compression : str, optional
        ``"lz4"``, ``"zstd"`` or ``"none"``, in Arrow formats and Parquet. Default: none; in Parquet ``"snappy"``.
    compression_level : int, optional
        Level of the codec.
    statistics : bool or iterable of str
        The columns of an Arrow file whose values are measured batch by batch, see :func:`shmarrow.ipc.new_file`.
    metadata : mapping, optional
        The metadata of an Arrow file's footer, of a bundle or of safetensors.
    overwrite : bool, optional
        By default a path is replaced, whose readers keep the old version, and a ``shm:`` name is not.
    permissions : int, optional
        Permission bits of the file, see ``mode`` of :func:`shmarrow.ipc.new_file`.
    durable : bool
        True syncs the file and its directory to disk when it is complete.
    progress : callable, optional
        Called after each batch with the number of rows so far, and that of all rows, or None if it is unknown.

    Returns
    -------
    Written
        Format, number of rows or tensors, and size.

    Raises
    ------
    ObjectExists
        If the name exists and must not be replaced.
    InvalidType, Unsupported
        If the data are none of these, or the format cannot hold them.
    InvalidArgument
        If the suffix is unknown, or an option does not apply to the format.
    StoreFull
        If there is no space left.
    MissingExtra
        For Parquet and CSV, if pyarrow is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import shmarrow as sa
    >>> sa.write({"day": ["mon", "tue"], "x": [1, 2]}, "rides", partition_by=["day"]).rows
    2
    >>> sa.scan("rides", filters=[("day", "=", "tue")]).to_table().to_pylist()
    [{'x': 2, 'day': 'tue'}]
    >>> sa.write({"x": [1, 2, 3]}, "x.arrow").rows
    3
    >>> sa.write({"weight": np.eye(2)}, "layer.tensors").tensors
    1
    >>> sa.open("layer.tensors")["weight"].shape
    (2, 2)
    """
    if rows_per_batch is not None and rows_per_batch < 1:
        raise InvalidArgument(f"rows_per_batch must be at least 1, found {rows_per_batch}")
    if max_rows_per_file is not None and max_rows_per_file < 1:
        raise InvalidArgument(f"max_rows_per_file must be at least 1, found {max_rows_per_file}")
    if mode not in (None, "error", "append", "overwrite"):
        raise InvalidArgument(f"mode is 'error', 'append' or 'overwrite', found {shown(mode)}")
    is_tree = is_directory(where, {"partition_by": partition_by, "max_rows_per_file": max_rows_per_file, "mode": mode})
    if is_tree:
        format = _of_directory(where, format, overwrite)
    content = _content(data, format or (by_suffix(resolve(where)[0]) if memory.is_location(where) else ""))
    what = "rows" if isinstance(content, Rows) else "tensors" if isinstance(content, dict) else "one tensor"
    format = format_of(where, format, what)
    if (compression is not None or compression_level is not None) and format in ("csv", "safetensors", "tensor"):
        raise InvalidArgument(f"{format} has no compression; compress the whole file instead")
    if statistics and format != "arrow":
        raise InvalidArgument(f"statistics are those of Arrow files, and {format} is none")
    if metadata is not None:
        content = _with_metadata(content, metadata, format)
    options = IpcWriteOptions(None if compression == "none" else compression, compression_level)
    count = [len(content) if isinstance(content, dict) else 1]
    if isinstance(content, Rows):
        rows_per_batch = rows_per_batch or (ROW_GROUP if format == "parquet" else None)
        content = content._replace(batches=_counted(content, None if is_tree else rows_per_batch, count, progress))
    if is_tree:
        if not isinstance(content, Rows):
            raise InvalidType(f"a directory holds rows, found {what}")
        directory = DirectoryWriter(
            content,
            where,
            options,
            statistics,
            partition_by,
            max_rows_per_file,
            rows_per_batch,
            mode or "error",
            permissions,
            durable,
        )
        directory.write()
        return Written(format, count[0], None, directory.nbytes)
    more = {"statistics": statistics} if format == "arrow" else {}
    with open_sink(where, overwrite=overwrite, mode=permissions, durable=durable, is_arrow=False) as sink:
        WRITERS[what][format](content, sink, options, **more)
    rows, tensors = (count[0], None) if isinstance(content, Rows) else (None, count[0])
    return Written(format, rows, tensors, sink.size)


# --- what is written ----------------------------------------------------------------------------------------------

_NAMED = ("tensors", "safetensors")
_ARROW = (RecordBatch, Table, RecordBatchReader, Array, ChunkedArray)
"""What is made of columns, although numpy takes it for an array."""


def _content(data: Any, format: str) -> Rows | NamedTensors | Tensor | SparseTensor:
    """The rows, the named tensors or the tensor that data are, in a format if that is known."""
    if isinstance(data, (Rows, NamedTensors)):
        return data
    if isinstance(data, Bundle):
        return NamedTensors(data, data.metadata)
    if isinstance(data, Scan):
        return Rows(data.schema, data)
    if isinstance(data, RecordBatchFileReader):
        return Rows(data.schema, data, data.num_rows, data.metadata)
    if memory.is_location(data):
        hint = "shmarrow.convert(source, target) reads and writes files"
        raise InvalidType(f"expected data, found {full_name(data)}", hint=hint)
    if isinstance(data, Mapping):
        if format in _NAMED or (not format and any(map(_is_tensor, data.values()))):
            return NamedTensors(data, None)
    elif _is_tensor(data) and not (isinstance(data, _ARROW) or capsules.has_data(data) or capsules.is_frame(data)):
        return as_tensor(data)
    if isinstance(data, (Mapping, list, tuple)):
        data = table(data)
    rows = rows_of(data)
    return Rows(rows.schema, rows, data.num_rows if isinstance(data, (RecordBatch, Table)) else None)


def is_directory(where: Any, options: Mapping[str, Any]) -> bool:
    """Whether rows become a directory: options say so that are for directories only, or the path."""
    if any(options.get(name) for name in ("partition_by", "max_rows_per_file", "mode")):
        return True
    return isinstance(where, (str, os.PathLike)) and (os.fspath(where)[-1:] == "/" or os.path.isdir(where))


def _of_directory(where: Any, format: str | None, overwrite: bool | None) -> str:
    """Check what is asked of a directory, whose files are Arrow files."""
    if format not in (None, "arrow"):
        hint = "pyarrow.dataset.write_dataset writes other formats, and takes a shmarrow.Table"
        raise InvalidArgument(f"the files of a directory are Arrow files, found format={format!r}", hint=hint)
    if not isinstance(where, (str, os.PathLike)) or is_shm(decoded(where)):
        raise InvalidArgument(f"partition_by, max_rows_per_file and mode make a directory, but {shown(where)} is none")
    if overwrite is not None:
        raise InvalidArgument("overwrite is for one file", hint='mode="overwrite" replaces what a directory has')
    return "arrow"


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, SparseTensor)) or may_be_tensor(value)


def _with_metadata(content: Any, metadata: MetadataLike, format: str) -> Rows | NamedTensors:
    if format == "arrow":
        return content._replace(metadata=as_metadata(metadata))
    if format in _NAMED:
        return NamedTensors(content, metadata)
    raise InvalidArgument(f"{format} has no metadata of its own")


def format_of(where: Any, format: str | None, what: str) -> str:
    """The format in which something of :data:`WRITERS` is written: the one that is named, or that of the suffix."""
    formats = list(WRITERS[what])
    if format is not None:
        if format not in formats:
            raise InvalidArgument(f"no format of {what} is named {format!r}; expected one of {', '.join(formats)}")
        return format
    if not memory.is_location(where):
        return "arrows" if what == "rows" else formats[0]
    name, _ = resolve(where)
    suffix = by_suffix(name)
    if suffix in formats:
        return suffix
    if (not suffix and is_shm(name)) or (what == "one tensor" and suffix in ("", "arrow", "arrows")):
        return formats[0]
    if what == "one tensor":
        raise InvalidArgument(
            f"{name}: the suffix is not that of one tensor, which is a message of Arrow's",
            hint="name it .arrow, or pass a mapping of names to tensors",
        )
    suffixes = ", ".join([suffix for format in formats for suffix in SUFFIXES[format]])
    raise InvalidArgument(
        f"{name}: the suffix is not that of a format for {what}",
        hint=f"use one of {suffixes}, or name the format; a path that ends with / is a directory of Arrow files",
    )


# --- the formats --------------------------------------------------------------------------------------------------


def _counted(
    rows: Rows, per_batch: int | None, count: list[int], progress: Callable[[int, int | None], None] | None
) -> Iterator[RecordBatch]:
    """The batches, of so many rows each if that is given, counting rows in ``count``."""
    count[0] = 0
    for batch in rows.batches if per_batch is None else recut(rows.batches, per_batch):
        yield batch
        count[0] += batch.num_rows
        if progress is not None:
            progress(count[0], rows.total)


def _write_file(rows: Rows, sink: Sink, options: IpcWriteOptions, statistics: bool | Iterable[str]) -> None:
    file = ArrowFile(rows, sink, options, statistics)
    with file.writer:
        for batch in rows.batches:
            file.write(batch)


def _write_stream(rows: Rows, sink: Sink, options: IpcWriteOptions) -> None:
    with RecordBatchStreamWriter(sink, rows.schema, options) as writer:
        for batch in rows.batches:
            writer.write_batch(batch)


def _write_bundle(tensors: NamedTensors, sink: Sink, options: IpcWriteOptions) -> None:
    write_tensors(tensors, sink, tensors.metadata, options)


def _write_safetensors(tensors: NamedTensors, sink: Sink, options: IpcWriteOptions) -> None:
    for piece in safetensors_pieces({name: as_tensor(tensor) for name, tensor in tensors.items()}, tensors.metadata):
        sink.write([piece])


def _write_tensor(tensor: Tensor | SparseTensor, sink: Sink, options: IpcWriteOptions) -> None:
    write_tensor(tensor, sink, options)


WRITERS: dict[str, dict[str, Callable[..., None]]] = {
    "rows": {"arrow": _write_file, "arrows": _write_stream, "parquet": write_parquet, "csv": write_csv},
    "tensors": {"tensors": _write_bundle, "safetensors": _write_safetensors},
    "one tensor": {"tensor": _write_tensor},
}
"""What can be written, and the formats of each."""
