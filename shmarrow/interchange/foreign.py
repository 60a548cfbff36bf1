# SPDX-License-Identifier: Apache-2.0
"""Rows in the formats of pyarrow: Parquet and CSV are read and written, ORC and JSON lines are read.

Invariants:

* rows are read and written batch by batch, so the size of a file does not matter;
* values that a format cannot hold are refused with their column, never dropped;
* errors of pyarrow become ours, with the name of the file.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import U1
from shmarrow.columns import RecordBatch, checked_schema, record_batch
from shmarrow.errors import InvalidData, InvalidType, ShmarrowError, Unsupported, at, optional
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.memory import Sink
from shmarrow.memory.pipes import Input
from shmarrow.types import Metadata, Schema

ROW_GROUP = 1 << 17
"""Rows per row group of Parquet."""

_TEXT_BLOCK = 1 << 22
"""Bytes of text per batch; the types of columns are inferred from the first one."""


class Rows(NamedTuple):
    """Batches of one schema, to be iterated over once.

    Attributes
    ----------
    schema : Schema
        The schema of all batches.
    batches : iterable of RecordBatch
        The batches.
    total : int or None
        The number of their rows, if it is known.
    metadata : mapping of bytes to bytes, or None
        The user's metadata of a file's footer.
    """

    schema: Schema
    batches: Iterable[RecordBatch]
    total: int | None = None
    metadata: Metadata | None = None


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


def read_rows(source: Input, format: str, columns: Sequence[str] | None, text: TextOptions) -> Rows:
    """Read a text file block by block, which infers types from the first one; datasets of others by batches."""
    with _pyarrow(source.name):
        if format in TEXT:
            reader = TEXT[format](source, text)
            return Rows(checked_schema(reader.schema), _converted(reader, source.name))
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
        return Rows(checked_schema(reader.schema), _converted(reader, source.name), total)


class TextOptions(NamedTuple):
    """What text does not say itself.

    Attributes
    ----------
    delimiter : str
        What separates the values of a line of CSV.
    types : Schema or None
        The types of columns; those of the others are inferred from the first block.
    """

    delimiter: str = ","
    types: Schema | None = None


def _open_csv(source: Input, options: TextOptions) -> Any:
    """Separated values with a header; unquoted empty fields are null."""
    csv = optional("pyarrow.csv")
    types = options.types and options.types.to_pyarrow()
    reader = csv.open_csv(
        source.file or source.path,
        csv.ReadOptions(block_size=_TEXT_BLOCK),
        csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True),
        csv.ConvertOptions(
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False, column_types=types
        ),
    )
    for field in reader.schema:
        if str(field.type) == "binary" and (types is None or field.name not in types.names):
            raise InvalidData(
                "the text is not UTF-8",
                where=[("column", field.name)],
                hint="convert it first, such as by `iconv -f latin1 -t utf-8`, or give the column the type binary",
            )
    return reader


def _open_json(source: Input, options: TextOptions) -> Any:
    """Lines with one object each; a key that is not in the first block is refused."""
    json = optional("pyarrow.json")
    types = options.types and options.types.to_pyarrow()
    return json.open_json(
        source.file or source.path,
        json.ReadOptions(block_size=_TEXT_BLOCK),
        json.ParseOptions(explicit_schema=types, unexpected_field_behavior="infer"),
    )


TEXT = {"csv": _open_csv, "json": _open_json}
"""The formats that are read in order, also from a pipe."""


def _converted(batches: Iterable[Any], name: str) -> Iterator[RecordBatch]:
    with _pyarrow(name):
        for batch in batches:
            yield record_batch(batch)


def write_parquet(rows: Rows, sink: Sink, options: IpcWriteOptions) -> None:
    """Write one row group per batch; types that Parquet lacks are cast to one that holds the same values."""
    parquet = optional("pyarrow.parquet")
    codec = {"compression": options.compression or "snappy", "compression_level": options.compression_level}
    with _pyarrow("Parquet"):
        cast = rows.schema.for_consumer("parquet").to_pyarrow()
        with parquet.ParquetWriter(_SinkFile(sink), cast, **codec) as writer:
            for batch in _with_columns(rows):
                writer.write_batch(batch.for_consumer("parquet").to_pyarrow(), row_group_size=max(batch.num_rows, 1))


def write_csv(rows: Rows, sink: Sink, options: IpcWriteOptions) -> None:
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


def _with_columns(rows: Rows) -> Iterator[RecordBatch]:
    """The batches, unless they have rows and no columns, whose number would be lost."""
    for batch in rows.batches:
        if batch.num_rows and not rows.schema.names:
            raise InvalidType("rows without columns have no form in this format; write arrow")
        yield batch


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
