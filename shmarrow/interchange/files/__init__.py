"""Conversion of files from one format to another: each format is one row of :data:`FORMATS`.

A file holds rows (a schema and an iterator of batches) or tensors (by name). Tensors of equal length become the columns
of a table; columns of numbers without nulls become tensors.

Invariants:

* rows are read and written batch by batch, so the size of a file does not matter; tensors are mapped, or held in memory
  where they come from rows or an npz file;
* values that a format cannot hold are refused with their column, never dropped;
* the target appears complete or not at all;
* a file is recognized by its first bytes, and by its suffix only if these are inconclusive.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from shmarrow import segment
from shmarrow.batch import RecordBatch
from shmarrow.buffer import U1
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, storage_error
from shmarrow.interchange.files import rows, tensors
from shmarrow.interchange.files.rows import Input, Rows
from shmarrow.interchange.files.tensors import Tensors
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.segment.location import is_shm, resolve
from shmarrow.sources import open_sink
from shmarrow.sources.base import name_of
from shmarrow.sources.formats import HEAD, recognized
from shmarrow.writer import Sink


class Format(NamedTuple):
    """A format.

    Attributes
    ----------
    suffixes : tuple of str
        The suffixes of its files.
    magic : tuple of bytes
        How its files begin; empty for text.
    read : callable
        Takes an input, which has a path if not ``in_order``, and the columns that are wanted, or None; returns rows or
        tensors.
    write : callable
        Takes rows or tensors, a file object, and options.
    of_tensors : bool
        Whether it holds tensors.
    in_order : bool
        Whether it can be read in order, from a pipe.
    compressed : bool
        Whether it has codecs.
    """

    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...]
    read: Callable[[Input, Sequence[str] | None], Any]
    write: Callable[[Any, Any, IpcWriteOptions], None]
    of_tensors: bool = False
    in_order: bool = False
    compressed: bool = False


FORMATS = {
    "arrow": Format((".arrow", ".ipc", ".feather"), (b"ARROW1",), rows.read_arrow, rows.write_arrow, compressed=True),
    "arrows": Format(
        (".arrows",), (b"\xff\xff\xff\xff",), rows.read_stream, rows.write_stream, in_order=True, compressed=True
    ),
    "parquet": Format((".parquet", ".pq"), (b"PAR1",), rows.read_parquet, rows.write_parquet, compressed=True),
    "csv": Format((".csv",), (), rows.read_csv, rows.write_csv, in_order=True),
    "jsonl": Format((".jsonl", ".ndjson"), (), rows.read_jsonl, rows.write_jsonl, in_order=True),
    "safetensors": Format((".safetensors",), (), tensors.read_safetensors, tensors.write_safetensors, True),
    "npy": Format((".npy",), (b"\x93NUMPY",), tensors.read_npy, tensors.write_npy, True),
    "npz": Format((".npz",), (b"PK\x03\x04", b"PK\x05\x06"), tensors.read_npz, tensors.write_npz, True),
    "tensors": Format((".tensors",), (), tensors.read_bundle, tensors.write_bundle, True, compressed=True),
}
"""All formats by name; ``tensors`` is the bundle of :func:`shmarrow.save_tensors`, which is an Arrow file, too."""


class Converted(NamedTuple):
    """The result of :func:`convert`.

    Attributes
    ----------
    format : str
        The format of the target.
    rows : int or None
        Number of rows; None in a format that holds tensors.
    tensors : int or None
        Number of tensors; None in a format that holds rows.
    nbytes : int
        Size of the target in bytes.
    """

    format: str
    rows: int | None
    tensors: int | None
    nbytes: int


def convert(
    source: Any,
    target: Any,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    columns: Sequence[str] | None = None,
    rows_per_batch: int | None = None,
    compression: str | None = None,
    compression_level: int | None = None,
    overwrite: bool | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Converted:
    """Convert a file to another format: Arrow, Parquet, CSV, JSON lines, npy, npz, safetensors, bundles of tensors.

    Rows are read and written batch by batch. Tensors of equal length become the columns of a table, those of several
    dimensions fixed-size lists; columns of numbers, booleans and times without nulls become tensors.

    Parameters
    ----------
    source : path, ``shm:NAME`` or binary file object
        The input. Arrow files and tensors are mapped. A pipe of other data than Arrow streams, CSV or JSON lines is
        first copied to an unnamed temporary file.
    target : path, ``shm:NAME`` or binary file object
        The output. A path or name appears complete or not at all.
    source_format : str, optional
        ``"arrow"``, ``"arrows"`` (a stream), ``"parquet"``, ``"csv"``, ``"jsonl"``, ``"safetensors"``, ``"npy"``,
        ``"npz"`` or ``"tensors"``; by default recognized by the first bytes, or else the suffix.
    target_format : str, optional
        One of these; by default that of the suffix, and without one ``"arrows"`` for a file object, ``"arrow"`` or
        ``"tensors"`` for shared memory.
    columns : sequence of str, optional
        The columns or tensors to convert, in this order; all by default.
    rows_per_batch : int, optional
        Rows of each batch (of Parquet: row group) that is written; by default as in the source, in Parquet 131,072.
    compression : str, optional
        ``"lz4"``, ``"zstd"`` or ``"none"``, in Arrow formats and Parquet. Default: none; in Parquet ``"snappy"``.
    compression_level : int, optional
        Level of the codec.
    overwrite : bool, optional
        As for :func:`shmarrow.ipc.new_file`: by default a path is replaced and a ``shm:`` name is not.
    progress : callable, optional
        Called after each batch with the number of rows so far, and that of all rows, or None if it is unknown.

    Returns
    -------
    Converted
        Format, number of rows or tensors, and size of the target.

    Raises
    ------
    ObjectNotFound
        If the source does not exist.
    ObjectExists
        If the target exists and must not be replaced.
    InvalidData
        If the source violates its format, or no format is recognized.
    InvalidType
        If the target's format cannot hold a column or a tensor.
    FieldNotFound
        If a chosen column does not exist.
    InvalidArgument
        If the target's suffix is unknown, or an option does not apply to its format.
    MissingExtra
        For Parquet and CSV, if pyarrow is not installed.
    """
    chosen = None if columns is None else list(columns)
    written = _format(target_format) if target_format is not None else None
    with ExitStack() as stack:
        given = opened(source)
        read = FORMATS[_format(source_format or _recognized(given))]
        if not given.path and not read.in_order:
            given = given._replace(path=spooled(given.file, stack))
        content = read.read(given, chosen)
        content = content if chosen is None else content.select(chosen)
        written = written or _by_target(target, content)
        made = FORMATS[written]
        if (compression is not None or compression_level is not None) and not made.compressed:
            raise InvalidArgument(f"{written} has no compression; compress the whole file instead")
        if rows_per_batch is not None and rows_per_batch < 1:
            raise InvalidArgument(f"rows_per_batch must be at least 1, found {rows_per_batch}")
        options = IpcWriteOptions(None if compression == "none" else compression, compression_level)
        count = [0]
        if made.of_tensors:
            if isinstance(content, Rows):
                content = tensors.of_rows(content)
        else:
            if isinstance(content, Tensors):
                content = tensors.to_rows(content)
            content = content._replace(batches=_counted(content, count, progress))
            if rows_per_batch is not None or written == "parquet":
                content = content._replace(batches=rows.recut(content.batches, rows_per_batch or rows.GROUP))
        with open_sink(target, overwrite=overwrite) as sink:
            made.write(content, sink if written in ("arrow", "arrows") else _SinkFile(sink), options)
        if made.of_tensors:
            return Converted(written, None, len(content.tensors), sink.size)
        return Converted(written, count[0], None, sink.size)


def _counted(
    content: Rows, count: list[int], progress: Callable[[int, int | None], None] | None
) -> Iterator[RecordBatch]:
    """The batches, counting rows in ``count``."""
    for batch in content.batches:
        yield batch
        count[0] += batch.num_rows
        if progress is not None:
            progress(count[0], content.total)


# --- formats ------------------------------------------------------------------------------------------------------


def _format(name: str) -> str:
    if name not in FORMATS:
        raise InvalidArgument(f"no format is named {name!r}; known formats are {', '.join(FORMATS)}")
    return name


def _by_suffix(name: str) -> str | None:
    return next((key for key, each in FORMATS.items() if name.lower().endswith(each.suffixes)), None)


def _recognized(given: Input) -> str:
    """The format of a source, by its first bytes, else by its suffix."""
    name, head, path, _ = given
    if not head:
        raise InvalidData(f"{name} is empty: expected a file or a stream")
    found = next((key for key, each in FORMATS.items() if each.magic and head.startswith(each.magic)), None)
    if found == "arrow" and path and tensors.is_bundle(path):
        return "tensors"
    what, hint = recognized(head)
    if what.startswith("a safetensors"):
        return "safetensors"
    unclear = not what or "text" in what
    found = found or (_by_suffix(name) if unclear else None)
    if found is None:
        raise InvalidData(
            f"{name}: no format of rows or tensors, but {what or f'bytes that start with {head[:8]!r}'}",
            hint="name the format: csv or jsonl" if unclear else hint,
        )
    return found


def _by_target(target: Any, content: Rows | Tensors) -> str:
    if not segment.is_location(target):
        return "arrows"
    name, _ = resolve(target)
    found = _by_suffix(name)
    if found is not None:
        return found
    if is_shm(name):
        return "tensors" if isinstance(content, Tensors) else "arrow"
    suffixes = ", ".join([suffix for each in FORMATS.values() for suffix in each.suffixes])
    raise InvalidArgument(
        f"{name}: the suffix is not that of a known format", hint=f"use one of {suffixes}, or name the format"
    )


# --- input and output ---------------------------------------------------------------------------------------------


def opened(source: Any) -> Input:
    """Return a source with its first bytes, which a pipe begins with again."""
    if segment.is_location(source):
        with segment.attach(source) as found:
            return Input(found.name, found.data[:HEAD].tobytes(), resolve(source)[1])
    if not hasattr(source, "read"):
        raise InvalidType(f"a source must be a path, a shm: name or a file object, found {type(source).__name__}")
    head = b""
    while len(head) < HEAD and (piece := source.read(HEAD - len(head))):
        head += piece
    name = name_of(source)
    return Input(name, head, "", io.BufferedReader(_Prefixed(head, source, name), 1 << 20))


def spooled(file: Any, stack: ExitStack) -> str:
    """The path of a temporary file with the bytes of a pipe; it has no name, so nothing can be left behind."""
    try:
        copy = stack.enter_context(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        shutil.copyfileobj(file, copy, 1 << 20)
    except OSError as error:
        hint = "TMPDIR names another directory"
        raise storage_error(error, "write a temporary file in", tempfile.gettempdir(), hint) from None
    return f"/proc/{os.getpid()}/fd/{copy.fileno()}"


class _Prefixed(io.RawIOBase):
    """A file object with bytes before it that were read already."""

    def __init__(self, head: bytes, file: Any, name: str) -> None:
        self.name = name
        self._head = head
        self._read = getattr(file, "read1", file.read)

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        found = self._head or self._read(len(room))
        taken, self._head = found[: len(room)], self._head[len(room) :]
        room[: len(taken)] = taken
        return len(taken)


class _SinkFile(io.RawIOBase):
    """A sink as a binary file object that cannot seek."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._error: Exception | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._error is not None:
            raise self._error  # libraries keep writing during cleanup; report the first error
        view = memoryview(data).cast("B")
        try:
            self._sink.write([np.frombuffer(view, U1)])
        except Exception as error:
            self._error = error
            raise
        return len(view)

    def tell(self) -> int:
        return self._sink.size


__all__ = ["FORMATS", "Converted", "convert"]
