# SPDX-License-Identifier: Apache-2.0
"""Conversion of files: what a source holds is recognised and opened, and written as :func:`shmarrow.write` does.

Invariants:

* rows are read batch by batch, so the size of a file does not matter; tensors are mapped;
* a file is recognized by its first bytes, and by its suffix only if these are inconclusive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from shmarrow import memory
from shmarrow.columns import RecordBatch, RecordBatchReader, checked_schema
from shmarrow.errors import DEFAULT_LIMITS, FieldNotFound, InvalidArgument, InvalidData
from shmarrow.interchange import foreign
from shmarrow.interchange.foreign import Rows
from shmarrow.interchange.safetensors import read_safetensors
from shmarrow.interchange.write import Written, format_of, is_directory, write
from shmarrow.ipc import open_stream
from shmarrow.ipc.contents import contents
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.tensor.bundle import NamedTensors, load_tensors
from shmarrow.memory import Source, decoded, open_source, recognized, spooled, unexpected
from shmarrow.memory.formats import SUFFIXES
from shmarrow.memory.pipes import Input, opened
from shmarrow.scans import Scan, scan
from shmarrow.scans.sources import Fragment, find, is_exact_name
from shmarrow.types import SchemaLike, schema

_ARROW = ("arrow", "arrows")
_TENSORS = ("tensors", "safetensors")


def convert(
    source: Any,
    target: Any,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    types: SchemaLike | None = None,
    **options: Any,
) -> Written:
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
    delimiter : str, optional
        What separates the values of a line of CSV; by default a comma.
    types : Schema, or mapping of names to types, optional
        The types of columns of CSV and JSON lines; by default those that pyarrow infers from the first 4 MiB.
    **options
        Those of :func:`shmarrow.write`: ``partition_by``, ``mode``, ``rows_per_batch``, ``compression`` and so on.

    Returns
    -------
    Written
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
    with ExitStack() as stack:
        given, read_as = _recognized(source, _checked(source_format))
        if isinstance(given, Input):
            if not given.path and read_as not in ("arrows", *foreign.TEXT):
                given = given._replace(path=spooled(given.file, stack))
            if read_as == "arrow" and contents(_mapped(given)).kind == "bundle":
                read_as = "tensors"
        written = target_format
        if not is_directory(target, options):
            written = format_of(target, target_format, "tensors" if read_as in _TENSORS else "rows")
        if (types is not None and read_as not in foreign.TEXT) or (delimiter is not None and read_as != "csv"):
            raise InvalidArgument(
                f"types are for CSV and JSON lines, a delimiter is for CSV, and the source is {read_as}"
            )
        if delimiter is not None and len(delimiter) != 1:
            raise InvalidArgument(f"a delimiter is one character, found {delimiter!r}")
        text = foreign.TextOptions(delimiter or ",", None if types is None else checked_schema(types))
        content: Any = (
            _read_tensors(given, read_as, columns) if read_as in _TENSORS else _read_rows(given, read_as, columns, text)
        )
        return write(content, target, format=written, **options)


# --- formats ------------------------------------------------------------------------------------------------------


def open_rows(path: str) -> RecordBatchReader:
    """Open the rows of a file that :func:`convert` reads through pyarrow, batch by batch."""
    source, format = _recognized(path, None)
    rows = _read_rows(source, format, None, foreign.TextOptions())
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
        if not is_exact_name(source, fragments):
            if format in _ARROW or (format is None and recognized(given.head).kind in _ARROW):
                return scan(source), "arrow"
            name = str(source)
            files = name if os.path.isdir(name) else [fragment.where for fragment in fragments]
            given = given._replace(name=name, path=files)
    return given, format or _format_of(given)


def _checked(name: str | None) -> str | None:
    if name is not None and name not in SUFFIXES:
        raise InvalidArgument(f"no format here is named {name!r}; expected one of {', '.join(SUFFIXES)}")
    return name


def _format_of(source: Input) -> str:
    """The format of a source, by its first bytes, else by its suffix."""
    form = recognized(source.head, source.name)
    if source.head and form.kind in SUFFIXES:
        return form.kind
    error = unexpected(f"{source.name}: expected a format of rows or tensors", source.head)
    if source.head and (not form.name or "text" in form.name or "gzip" in form.name):
        error.hint = "name the format: csv or json"
    raise error


# --- reading ------------------------------------------------------------------------------------------------------


def _read_tensors(source: Input, format: str, columns: Sequence[str] | None) -> NamedTensors:
    """Map the tensors of a file; returns them by name, with the metadata."""
    tensors: Mapping[str, Any]
    metadata: Any
    if format == "safetensors":
        tensors, metadata = read_safetensors(source.path)
    else:
        tensors = bundle = load_tensors(source.path)
        metadata = bundle.metadata
    for name in columns or ():
        if name not in tensors:
            raise FieldNotFound(f"no tensor is named {name!r}; there are {', '.join(list(tensors)[:20])}")
    return NamedTensors({name: tensors[name] for name in (tensors if columns is None else columns)}, metadata)


def _read_rows(source: Any, format: str, columns: Sequence[str] | None, text: foreign.TextOptions) -> Rows:
    if isinstance(source, Scan):
        content = Rows(source.schema, source)
    elif format in ("arrow", "arrows"):
        content = _read_arrow(source, format)
    else:
        content = foreign.read_rows(source, format, columns, text)
    if columns is None:
        return content
    places = [content.schema.index_of(name) for name in columns]
    selected = schema([content.schema.field(place) for place in places], content.schema.metadata)
    return content._replace(schema=selected, batches=(batch.select(places) for batch in content.batches))


def _read_arrow(source: Input, format: str) -> Rows:
    if format == "arrows":
        stream = open_stream(source.file or source.path)
        return Rows(stream.schema, _whole(stream, source.name))
    file = RecordBatchFileReader(_mapped(source), DEFAULT_LIMITS)
    return Rows(file.schema, file, file.num_rows, file.metadata)


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
