"""Formats of rows: Arrow files and streams; Parquet and CSV by pyarrow; JSON lines by Python's own parser."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from shmarrow.batch import RecordBatch, record_batch
from shmarrow.build import array
from shmarrow.column_names import checked_schema
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, InvalidType, LimitExceeded, ShmarrowError, Unsupported, at
from shmarrow.interchange.safetensors import without_twins
from shmarrow.ipc import RecordBatchFileWriter, RecordBatchStreamWriter, open_stream
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.layout.making import nulls
from shmarrow.optional import optional
from shmarrow.sources import open_source
from shmarrow.tables import Table, concat_batches
from shmarrow.types import DataType, Schema, schema
from shmarrow.types.extension import has_dictionary

GROUP = 1 << 17
"""Rows per row group of Parquet."""

_TEXT_BLOCK = 1 << 22
"""Bytes of text per batch; the types of columns are inferred from the first one."""

_PIECE = 1 << 14
"""Rows that become Python objects at a time."""

_CELLS = 1 << 26
"""The most objects times keys of a block of JSON lines: each key is a column with a slot per object."""


class Input(NamedTuple):
    """The input of a conversion.

    Attributes
    ----------
    name : str
        Name for messages.
    head : bytes
        The first bytes.
    path : str
        Path of a file that can be mapped; empty for a pipe.
    file : file object
        A pipe, from its start; None for a file.
    """

    name: str
    head: bytes
    path: str
    file: Any = None


class Rows(NamedTuple):
    """Batches of one schema, to be iterated over once.

    Attributes
    ----------
    schema : Schema
        The schema of all batches.
    batches : iterator of RecordBatch
        The batches, read on demand.
    total : int, optional
        The number of rows, if it is known.
    """

    schema: Schema
    batches: Iterator[RecordBatch]
    total: int | None = None

    def empty(self) -> RecordBatch:
        """Return a batch of the schema without rows."""
        return RecordBatch.from_arrays([nulls(0, each.type) for each in self.schema], schema=self.schema)

    def select(self, columns: Sequence[str]) -> Rows:
        """Select columns by name, in this order."""
        places = [self.schema.index_of(name) for name in columns]
        chosen = schema([self.schema.field(place) for place in places], self.schema.metadata)
        return self._replace(schema=chosen, batches=(batch.select(places) for batch in self.batches))


def recut(batches: Iterable[RecordBatch], rows: int) -> Iterator[RecordBatch]:
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


# --- Arrow --------------------------------------------------------------------------------------------------------


def read_arrow(source: Input, columns: Sequence[str] | None) -> Rows:
    """Map an Arrow file."""
    opened = open_source(source.path)
    opened.name = source.name  # not that of a temporary file
    reader = RecordBatchFileReader(opened, DEFAULT_LIMITS)
    return Rows(reader.schema, iter(reader), reader.num_rows)


def read_stream(source: Input, columns: Sequence[str] | None) -> Rows:
    """Read an Arrow stream: map a path, read a file object in order."""
    reader = open_stream(source.file or source.path)
    return Rows(reader.schema, iter(reader))


def write_arrow(rows: Rows, file: Any, options: IpcWriteOptions) -> None:
    """Write an Arrow file, in which a dictionary can be extended, but not replaced."""
    batches: Iterable[RecordBatch] = rows.batches
    if any(has_dictionary(each.type) for each in rows.schema):
        batches = _with_one_dictionary(batches)
        options = IpcWriteOptions(**{**options._values(), "emit_dictionary_deltas": True})
    with RecordBatchFileWriter(file, rows.schema, options) as writer:
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


def write_stream(rows: Rows, file: Any, options: IpcWriteOptions) -> None:
    """Write an Arrow stream."""
    with RecordBatchStreamWriter(file, rows.schema, options) as writer:
        for batch in rows.batches:
            writer.write_batch(batch)


# --- Parquet and CSV, by pyarrow ----------------------------------------------------------------------------------


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


def _converted(batches: Iterable[Any], name: str) -> Iterator[RecordBatch]:
    with _pyarrow(name):
        for batch in batches:
            yield record_batch(batch)


def read_parquet(source: Input, columns: Sequence[str] | None) -> Rows:
    """Read Parquet, row group by row group."""
    parquet = optional("pyarrow.parquet")
    with _pyarrow(source.name) as pa:
        file = parquet.ParquetFile(source.path, memory_map=True)
        found = file.schema_arrow
        if columns is not None:
            known = checked_schema(found)
            found = pa.schema([found.field(known.index_of(name)) for name in columns], found.metadata)
        batches = file.iter_batches(columns=columns)
        if columns is not None:
            batches = (batch.select(columns) for batch in batches)
        return Rows(checked_schema(found), _converted(batches, source.name), file.metadata.num_rows)


def write_parquet(rows: Rows, file: Any, options: IpcWriteOptions) -> None:
    """Write Parquet, one row group per batch; types that it lacks are cast to one that holds the same values."""
    parquet = optional("pyarrow.parquet")
    with _pyarrow("Parquet"):
        chosen = rows.schema.for_consumer("parquet").to_pyarrow()
        codec = {"compression": options.compression or "snappy", "compression_level": options.compression_level}
        with parquet.ParquetWriter(file, chosen, **codec) as writer:
            for batch in rows.batches:
                writer.write_batch(batch.for_consumer("parquet").to_pyarrow(), row_group_size=max(batch.num_rows, 1))


def read_csv(source: Input, columns: Sequence[str] | None) -> Rows:
    """Read comma-separated values with a header; unquoted empty fields are null."""
    csv = optional("pyarrow.csv")
    with _pyarrow(source.name) as pa:
        found = csv.open_csv(
            source.file or source.path,
            csv.ReadOptions(block_size=_TEXT_BLOCK),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False),
        )
        for each in found.schema:
            if pa.types.is_binary(each.type):
                raise InvalidData(f"column {each.name!r} is not UTF-8 text", hint="iconv recodes it")
        return Rows(checked_schema(found.schema), _converted(found, source.name))


def write_csv(rows: Rows, file: Any, options: IpcWriteOptions) -> None:
    """Write comma-separated values with a header; text is quoted, nulls are empty fields."""
    csv = optional("pyarrow.csv")  # which, like pandas, takes neither views nor run-end encoding
    with _pyarrow("CSV") as pa:
        chosen = rows.schema.for_consumer("pandas").to_pyarrow()
        for each in chosen:
            if pa.types.is_nested(each.type):
                raise InvalidType(
                    f"CSV cannot hold {each.type}; write jsonl, parquet or arrow", where=[("column", each.name)]
                )
        with csv.CSVWriter(file, chosen) as writer:
            for batch in rows.batches:
                writer.write_batch(batch.for_consumer("pandas").to_pyarrow())


# --- JSON lines ---------------------------------------------------------------------------------------------------


def read_jsonl(source: Input, columns: Sequence[str] | None) -> Rows:
    """Read JSON lines, one object per line; the first 4 MiB determine the columns and their types."""
    batches = _parsed(source)
    first = next(batches, RecordBatch.from_arrays([], []))

    def rest() -> Iterator[RecordBatch]:
        yield first
        yield from batches

    return Rows(first.schema, rest())


def _parsed(source: Input) -> Iterator[RecordBatch]:
    type: DataType | None = None
    number = objects = 0
    keys: set[str] = set()

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal objects
        objects += 1
        made = without_twins(pairs)
        keys.update(made)
        if objects * len(keys) > _CELLS:
            raise LimitExceeded(f"{objects} objects with {len(keys)} different keys, at most {_CELLS} values are read")
        return made

    decode = json.JSONDecoder(object_pairs_hook=checked).decode
    with source.file or open(source.path, "rb") as file:
        while lines := file.readlines(_TEXT_BLOCK):
            values, objects = [], 0
            for line in lines:
                number += 1
                if line.strip():
                    with at(source.name), at("line", number):
                        values.append(_object(line, decode))
            if values:
                made = array(values, type)
                type = made.type
                yield RecordBatch.from_struct_array(made)


def _object(line: bytes, decode: Callable[[str], Any]) -> dict[str, Any]:
    try:
        value = decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidData(f"expected one JSON object per line, found {type(value).__name__}")
    return value


def write_jsonl(rows: Rows, file: Any, options: IpcWriteOptions) -> None:
    """Write JSON lines: one object per row; maps are arrays of pairs, times and decimals are text."""
    if len(set(rows.schema.names)) < len(rows.schema.names):
        raise InvalidType("JSON objects need distinct names of columns; choose some")
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_text).encode
    for batch in rows.batches:
        for piece in batch.to_batches(_PIECE):
            values = piece.to_pylist()
            try:
                lines = "\n".join([*map(encode, values), ""])
            except ValueError as error:
                raise InvalidData(f"JSON cannot hold a value: {error}") from None
            file.write(lines.encode())


def _text(value: Any) -> str:
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID, np.datetime64)):
        return str(value)
    raise InvalidType(f"JSON cannot hold a {type(value).__name__}; write arrow or parquet")
