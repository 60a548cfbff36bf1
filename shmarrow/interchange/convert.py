"""Conversion of files: Arrow files and streams, bundles and safetensors by this package, all others by pyarrow.

Invariants:

* rows are read and written batch by batch, so the size of a file does not matter; tensors are mapped;
* values that a format cannot hold are refused with their column, never dropped;
* the target appears complete or not at all;
* a file is recognized by its first bytes, and by its suffix only if these are inconclusive.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from shmarrow import memory
from shmarrow.buffer import U1
from shmarrow.columns.batch import RecordBatch, record_batch
from shmarrow.columns.names import checked_schema
from shmarrow.columns.table import RecordBatchReader, Table, concat_batches
from shmarrow.errors import (
    DEFAULT_LIMITS,
    FieldNotFound,
    InvalidArgument,
    InvalidData,
    InvalidType,
    ShmarrowError,
    Unsupported,
    at,
    optional,
)
from shmarrow.interchange.safetensors import read_safetensors, safetensors_pieces
from shmarrow.ipc import RecordBatchFileWriter, RecordBatchStreamWriter, open_stream
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.tensor.bundle import load_tensors, write_tensors
from shmarrow.memory import Source, open_sink, open_source
from shmarrow.memory.formats import SUFFIXES, by_suffix, recognized
from shmarrow.memory.life_cycle import Sink
from shmarrow.memory.location import decoded, is_shm, resolve
from shmarrow.memory.pipes import Input, opened, spooled
from shmarrow.scans import Scan, scan
from shmarrow.scans.sources import Fragment, contents, find, leads_to_one
from shmarrow.types import Schema, has_dictionary, schema

_ARROW = ("arrow", "arrows")
_TENSORS = ("tensors", "safetensors")

_ROW_GROUP = 1 << 17
"""Rows per row group of Parquet."""

_TEXT_BLOCK = 1 << 22
"""Bytes of text per batch; the types of columns are inferred from the first one."""


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


class _Rows(NamedTuple):
    """Batches of one schema, to be iterated over once, and the number of their rows, if it is known."""

    schema: Schema
    batches: Iterable[RecordBatch]
    total: int | None = None


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
    statistics: bool | Sequence[str] = False,
    overwrite: bool | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Converted:
    """Convert a file to or from Arrow: Parquet, CSV, JSON lines and ORC by pyarrow, and safetensors.

    Rows are read and written batch by batch, tensors are mapped.

    Parameters
    ----------
    source : path, ``shm:NAME``, Scan, whatever :func:`shmarrow.scan` takes, or binary file object
        The input, or a directory of Parquet or ORC files. Arrow files and tensors are mapped. A pipe of other data than
        Arrow streams, CSV or JSON lines is first copied to an unnamed temporary file.
    target : path, ``shm:NAME`` or binary file object
        The output. A path or name appears complete or not at all.
    source_format : str, optional
        ``"arrow"``, ``"arrows"`` (a stream), ``"parquet"``, ``"csv"``, ``"json"`` (one object per line), ``"orc"``,
        ``"tensors"`` or ``"safetensors"``; by default recognized by the first bytes, or else the suffix.
    target_format : str, optional
        ``"arrow"``, ``"arrows"``, ``"parquet"`` or ``"csv"`` for rows, ``"tensors"`` or ``"safetensors"`` for tensors;
        by default that of the suffix, and without one ``"arrows"`` for a file object, ``"arrow"`` or ``"tensors"`` for
        shared memory.
    columns : sequence of str, optional
        The columns or tensors to convert, in this order; all by default.
    rows_per_batch : int, optional
        Rows of each batch (of Parquet: row group) that is written; by default as in the source, in Parquet 131,072.
    compression : str, optional
        ``"lz4"``, ``"zstd"`` or ``"none"``, in Arrow formats and Parquet. Default: none; in Parquet ``"snappy"``.
    compression_level : int, optional
        Level of the codec.
    statistics : bool or sequence of str
        The columns of an Arrow file whose values are measured batch by batch, see :func:`shmarrow.ipc.new_file`.
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
    InvalidType, Unsupported
        If the target's format cannot hold a column or a tensor.
    FieldNotFound
        If a chosen column does not exist.
    InvalidArgument
        If the target's suffix is unknown, or an option does not apply to its format.
    MissingExtra
        For the formats of pyarrow, if it is not installed.
    """
    if rows_per_batch is not None and rows_per_batch < 1:
        raise InvalidArgument(f"rows_per_batch must be at least 1, found {rows_per_batch}")
    with ExitStack() as stack:
        given, read_as = _recognized(source, _checked(source_format, SUFFIXES))
        if isinstance(given, Input):
            if not given.path and read_as not in _IN_ORDER:
                given = given._replace(path=spooled(given.file, stack))
            if read_as == "arrow" and contents(_mapped(given), DEFAULT_LIMITS)[0] == "bundle":
                read_as = "tensors"
        writers: dict[str, Any] = _TENSOR_WRITERS if read_as in _TENSORS else _ROW_WRITERS
        written = _checked(target_format, writers) or _by_target(target, writers)
        if (compression is not None or compression_level is not None) and written in ("csv", "safetensors"):
            raise InvalidArgument(f"{written} has no compression; compress the whole file instead")
        options = IpcWriteOptions(None if compression == "none" else compression, compression_level)
        content: Any = (_read_tensors if read_as in _TENSORS else _read_rows)(given, read_as, columns)
        count = [len(content[0])]
        if read_as not in _TENSORS:
            rows_per_batch = rows_per_batch or (_ROW_GROUP if written == "parquet" else None)
            content = content._replace(batches=_counted(content, rows_per_batch, count, progress))
        if statistics and written != "arrow":
            raise InvalidArgument(f"statistics are those of Arrow files, and {written} is none")
        more = {"statistics": statistics} if written == "arrow" else {}
        with open_sink(target, overwrite=overwrite, is_arrow=False) as sink:
            writers[written](content, sink, options, **more)
        rows, tensors = (None, count[0]) if read_as in _TENSORS else (count[0], None)
        return Converted(written, rows, tensors, sink.size)


# --- formats ------------------------------------------------------------------------------------------------------


def open_rows(path: str) -> RecordBatchReader:
    """Open the rows of a file that :func:`convert` reads through pyarrow, batch by batch."""
    source, format = _recognized(path, None)
    rows = _read_rows(source, format, None)
    return RecordBatchReader.from_batches(rows.schema, rows.batches)


def _recognized(source: Any, format: str | None) -> tuple[Any, str]:
    """What to read, a scan of many files or one input, and its format: the one that is named, or else recognized."""
    if isinstance(source, Scan):
        return source, "arrow"
    if hasattr(source, "read"):
        given = opened(source)
    else:
        source = decoded(source) if memory.is_location(source) else source
        fragments = find(source)
        first = fragments[0] if fragments else Fragment(None)
        if first.store is not None or not isinstance(first.where, str):
            return scan(source), "arrow"
        given = opened(first.where)
        if not leads_to_one(source, fragments):
            if format in _ARROW or (format is None and recognized(given.head).kind in _ARROW):
                return scan(source), "arrow"
            name = str(source)
            files = name if os.path.isdir(name) else [fragment.where for fragment in fragments]
            given = given._replace(name=name, path=files)
    return given, format or _format_of(given)


def _checked(name: str | None, formats: Iterable[str]) -> str | None:
    if name is not None and name not in formats:
        raise InvalidArgument(f"no format here is named {name!r}; expected one of {', '.join(formats)}")
    return name


def _format_of(source: Input) -> str:
    """The format of a source, by its first bytes, else by its suffix."""
    name, head, _, _ = source
    if not head:
        raise InvalidData(f"{name} is empty: expected a file or a stream")
    form = recognized(head, name)
    if form.kind not in SUFFIXES:
        unclear = not form.name or "text" in form.name or "gzip" in form.name
        raise InvalidData(
            f"{name}: no format of rows or tensors, but {form.name or f'bytes that start with {head[:8]!r}'}",
            hint="name the format: csv or json" if unclear else form.reader,
        )
    return form.kind


def _by_target(target: Any, formats: Iterable[str]) -> str:
    if not memory.is_location(target):
        return "arrows" if "arrows" in formats else "tensors"
    name, _ = resolve(target)
    format = by_suffix(name)
    if format in formats:
        return format
    if not format and is_shm(name):
        return "arrow" if "arrow" in formats else "tensors"
    suffixes = ", ".join([suffix for format in formats for suffix in SUFFIXES[format]])
    what = "rows" if "arrow" in formats else "tensors"
    raise InvalidArgument(
        f"{name}: the suffix is not that of a format for {what}",
        hint=f"use one of {suffixes}, or name the format",
    )


# --- reading ------------------------------------------------------------------------------------------------------


def _read_tensors(source: Input, format: str, columns: Sequence[str] | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Map the tensors of a file; returns them by name, and the metadata."""
    tensors: Mapping[str, Any]
    if format == "safetensors":
        tensors, metadata = read_safetensors(source.path)
    else:
        bundle = load_tensors(source.path)
        tensors = bundle
        metadata = {key.decode(): value.decode() for key, value in (bundle.metadata or {}).items()}
    for name in columns or ():
        if name not in tensors:
            raise FieldNotFound(f"no tensor is named {name!r}; there are {', '.join(list(tensors)[:20])}")
    return {name: tensors[name] for name in (tensors if columns is None else columns)}, metadata


def _read_rows(source: Any, format: str, columns: Sequence[str] | None) -> _Rows:
    if isinstance(source, Scan):
        content = _Rows(source.schema, source)
    elif format in ("arrow", "arrows"):
        content = _read_arrow(source, format)
    else:
        content = _read_by_pyarrow(source, format, columns)
    if columns is None:
        return content
    places = [content.schema.index_of(name) for name in columns]
    selected = schema([content.schema.field(place) for place in places], content.schema.metadata)
    return content._replace(schema=selected, batches=(batch.select(places) for batch in content.batches))


def _read_arrow(source: Input, format: str) -> _Rows:
    if format == "arrows":
        stream = open_stream(source.file or source.path)
        return _Rows(stream.schema, _whole(stream, source.name))
    file = RecordBatchFileReader(_mapped(source), DEFAULT_LIMITS)
    return _Rows(file.schema, file, file.num_rows)


def _mapped(source: Input) -> Source:
    mapped = open_source(source.path)
    mapped.name = source.name  # not that of a temporary file
    return mapped


def _whole(stream: Any, name: str) -> Iterator[RecordBatch]:
    """The batches of a stream, after which the input must end."""
    yield from stream
    if stream.bytes_follow():
        hint = "convert each stream by itself"
        raise InvalidData("bytes follow the end of the stream, perhaps a second one", where=[(name,)], hint=hint)


@contextmanager
def _pyarrow(name: str) -> Iterator[Any]:
    """Import pyarrow, and translate its errors about ``name`` in the block."""
    pa = optional("pyarrow")
    try:
        with at(name):
            yield pa
    except ShmarrowError:
        raise
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Unsupported(f"pyarrow: {error}", where=[(name,)]) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidData(f"pyarrow: {error}", where=[(name,)]) from None


def _read_by_pyarrow(source: Input, format: str, columns: Sequence[str] | None) -> _Rows:
    """Read a text file block by block, which infers types from the first one; datasets of others by batches."""
    with _pyarrow(source.name):
        if format in _TEXT:
            reader = _TEXT[format](source)
            return _Rows(checked_schema(reader.schema), _converted(reader, source.name))
        datasets = optional("pyarrow.dataset")
        dataset = datasets.dataset(source.path, format=format, partitioning="hive")
        schema = checked_schema(dataset.schema)
        options: dict[str, Any] = {"batch_readahead": 2, "fragment_readahead": 1}
        if columns is not None:
            options["columns"] = [schema.names[schema.index_of(name)] for name in columns]
        total = None
        if format == "parquet":  # whose fragments would be read into memory as a whole
            unbuffered = datasets.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
            options["fragment_scan_options"] = unbuffered
            total = dataset.count_rows()
        reader = dataset.scanner(**options).to_reader()
        return _Rows(checked_schema(reader.schema), _converted(reader, source.name), total)


def _open_csv(source: Input) -> Any:
    """Comma-separated values with a header; unquoted empty fields are null."""
    csv = optional("pyarrow.csv")
    return csv.open_csv(
        source.file or source.path,
        csv.ReadOptions(block_size=_TEXT_BLOCK),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False),
    )


def _open_json(source: Input) -> Any:
    """Lines with one object each; a key that is not in the first block is refused."""
    json = optional("pyarrow.json")
    return json.open_json(source.file or source.path, json.ReadOptions(block_size=_TEXT_BLOCK))


_TEXT = {"csv": _open_csv, "json": _open_json}
_IN_ORDER = ("arrows", *_TEXT)


def _converted(batches: Iterable[Any], name: str) -> Iterator[RecordBatch]:
    with _pyarrow(name):
        for batch in batches:
            yield record_batch(batch)


# --- writing ------------------------------------------------------------------------------------------------------


def _counted(
    content: _Rows, rows: int | None, count: list[int], progress: Callable[[int, int | None], None] | None
) -> Iterator[RecordBatch]:
    """The batches, of ``rows`` rows each if that is given, counting rows in ``count``."""
    count[0] = 0
    for batch in content.batches if rows is None else _recut(content.batches, rows):
        yield batch
        count[0] += batch.num_rows
        if progress is not None:
            progress(count[0], content.total)


def _recut(batches: Iterable[RecordBatch], rows: int) -> Iterator[RecordBatch]:
    """Re-batch all rows into batches of ``rows``, except the last."""
    held: list[RecordBatch] = []
    count = 0
    for batch in batches:
        while count + batch.num_rows >= rows:
            yield concat_batches([*held, batch.slice(0, rows - count)])
            batch = batch.slice(rows - count)
            held, count = [], 0
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
    if held:
        yield concat_batches(held)


def _write_arrow(rows: _Rows, sink: Sink, options: IpcWriteOptions, statistics: bool | Sequence[str]) -> None:
    """Write an Arrow file, in which a dictionary can be extended, but not replaced."""
    batches = rows.batches
    if any(has_dictionary(field.type) for field in rows.schema):
        batches = _with_one_dictionary(batches)
        options = IpcWriteOptions(**{**options._values(), "emit_dictionary_deltas": True})
    with RecordBatchFileWriter(sink, rows.schema, options, statistics=statistics) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _with_one_dictionary(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Unify dictionaries so that they only grow."""
    last: RecordBatch | None = None
    for batch in batches:
        if last is not None and batch.num_rows:
            batch = Table.from_batches([last, batch]).unify_dictionaries().batches[1]
        if batch.num_rows:
            last = batch.slice(0, 1)
            yield batch


def _write_stream(rows: _Rows, sink: Sink, options: IpcWriteOptions) -> None:
    with RecordBatchStreamWriter(sink, rows.schema, options) as writer:
        for batch in rows.batches:
            writer.write_batch(batch)


def _write_parquet(rows: _Rows, sink: Sink, options: IpcWriteOptions) -> None:
    """Write one row group per batch; types that Parquet lacks are cast to one that holds the same values."""
    parquet = optional("pyarrow.parquet")
    codec = {"compression": options.compression or "snappy", "compression_level": options.compression_level}
    with _pyarrow("Parquet"):
        cast = rows.schema.for_consumer("parquet").to_pyarrow()
        with parquet.ParquetWriter(_SinkFile(sink), cast, **codec) as writer:
            for batch in _with_columns(rows):
                writer.write_batch(batch.for_consumer("parquet").to_pyarrow(), row_group_size=max(batch.num_rows, 1))


def _write_csv(rows: _Rows, sink: Sink, options: IpcWriteOptions) -> None:
    """Write a header and comma-separated values; text is quoted, nulls are empty fields."""
    csv = optional("pyarrow.csv")
    with _pyarrow("CSV") as pa:
        cast = rows.schema.for_consumer("pandas").to_pyarrow()  # it has neither views nor run-end encoding
        for field in cast:
            if pa.types.is_nested(field.type):
                raise InvalidType(
                    f"CSV cannot hold {field.type}; write parquet or arrow", where=[("column", field.name)]
                )
        with csv.CSVWriter(_SinkFile(sink), cast) as writer:
            for batch in _with_columns(rows):
                if batch.num_columns == 1 and batch.column(0).null_count:
                    raise InvalidType("a null would be an empty line, which readers skip; write parquet or arrow")
                writer.write_batch(batch.for_consumer("pandas").to_pyarrow())


def _with_columns(rows: _Rows) -> Iterator[RecordBatch]:
    """The batches, unless they have rows and no columns, whose number would be lost."""
    for batch in rows.batches:
        if batch.num_rows and not rows.schema.names:
            raise InvalidType("rows without columns have no form in this format; write arrow")
        yield batch


_ROW_WRITERS = {"arrow": _write_arrow, "arrows": _write_stream, "parquet": _write_parquet, "csv": _write_csv}


def _write_bundle(content: tuple[dict[str, Any], dict[str, str]], sink: Sink, options: IpcWriteOptions) -> None:
    write_tensors(content[0], sink, content[1], options)


def _write_safetensors(content: tuple[dict[str, Any], dict[str, str]], sink: Sink, options: IpcWriteOptions) -> None:
    for piece in safetensors_pieces(*content):
        sink.write([piece])


_TENSOR_WRITERS = {"tensors": _write_bundle, "safetensors": _write_safetensors}


class _SinkFile(io.RawIOBase):
    """A sink as a binary file object that cannot seek."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._error: Exception | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._error is not None:
            raise self._error  # pyarrow keeps writing during cleanup; report the first error
        view = memoryview(data).cast("B")
        try:
            self._sink.write([np.frombuffer(view, U1)])
        except Exception as error:
            self._error = error
            raise
        return len(view)

    def tell(self) -> int:
        return self._sink.size


__all__ = ["Converted", "convert"]
