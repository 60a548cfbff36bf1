"""Reading and writing rows through pyarrow: Parquet, CSV and JSON lines."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shmarrow.batch import RecordBatch
from shmarrow.errors import (
    FieldNotFound,
    InvalidArgument,
    InvalidData,
    InvalidType,
    MissingExtra,
    ShmarrowError,
    Unsupported,
)
from shmarrow.interchange.files.checked import CheckedLines
from shmarrow.interchange.files.endpoints import Input, Options, Output
from shmarrow.interchange.files.rows import BATCH, Rows, cut, joined, recut
from shmarrow.optional import optional
from shmarrow.sources.formats import FORMATS
from shmarrow.types import Schema

_TEXT_BLOCK = 1 << 24
"""Bytes of text per block; column types are inferred from the first block."""


@contextmanager
def _reported(action: str, where: str) -> Iterator[None]:
    """Wrap calls of pyarrow, translating its errors."""
    pa = optional("pyarrow")
    try:
        yield
    except ShmarrowError:
        raise
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Unsupported(f"pyarrow cannot {action}: {error}", where=[(where,)]) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        hint = "--types NAME=TYPE sets the type of a column" if _is_about_types(str(error)) else None
        raise InvalidData(f"pyarrow cannot {action}: {error}", where=[(where,)], hint=hint) from None


def _is_about_types(text: str) -> bool:
    return any(word in text for word in ("conversion error", "changed from", "unexpected field"))


def _bytes_of(source: Input, whole: bool = False) -> tuple[Any, Callable[[], int], int]:
    """Return a pyarrow file, a function for the bytes read so far, and the size."""
    pa = optional("pyarrow")
    if source.data is None and not whole:
        stream = source.stream()
        return pa.PythonFile(stream, "r"), lambda: stream.done, 0
    data = source.whole()
    reader = pa.BufferReader(pa.py_buffer(data))
    return reader, reader.tell, len(data)


def _from_pyarrow(found: Any, where: str, chosen: Any, done: Callable[[], int], total: int) -> Rows:
    """Convert pyarrow batches to rows."""
    made = Schema.from_pyarrow(chosen)

    def batches() -> Iterator[RecordBatch]:
        with _reported("read it", where):
            for batch in found:
                yield RecordBatch.from_pyarrow(batch)

    return Rows(made, batches(), done, total)


def read_parquet(source: Input, options: Options) -> Rows:
    """Read Parquet, row group by row group."""
    parquet = optional("pyarrow.parquet")
    reader, _, _ = _bytes_of(source, whole=True)
    with _reported("read it", source.name):
        file = parquet.ParquetFile(reader)
        chosen = file.schema_arrow
        names = None if options.columns is None else list(options.columns)
        for name in names or ():
            Schema.from_pyarrow(chosen).index_of(name)
        if names is not None:
            chosen = optional("pyarrow").schema([chosen.field(name) for name in names], chosen.metadata)
        found = file.iter_batches(batch_size=options.rows_per_batch or BATCH, columns=names)
    at = [0]

    def counted() -> Iterator[Any]:
        for batch in found:
            yield batch if names is None else batch.select(names)
            at[0] += batch.num_rows

    return _from_pyarrow(counted(), source.name, chosen, lambda: at[0], file.metadata.num_rows)


def _text(source: Input) -> tuple[Any, Callable[[], int], int]:
    """Return :func:`_bytes_of`, decompressed if the first bytes indicate compression."""
    pa = optional("pyarrow")
    reader, done, total = _bytes_of(source)
    codec = next((each.codec for each in FORMATS if each.codec and source.head.startswith(each.magic)), None)
    return reader if codec is None else pa.CompressedInputStream(reader, codec), done, total


def _read_delimited(source: Input, options: Options, delimiter: str) -> Rows:
    pa, csv = optional("pyarrow"), optional("pyarrow.csv")
    reader, done, total = _text(source)
    convert = csv.ConvertOptions(
        column_types={name: type.to_pyarrow() for name, type in options.types.items()},
        null_values=["", *options.nulls],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        include_columns=list(options.columns) if options.columns is not None else None,
    )
    with _reported("parse it", source.name):
        found = csv.open_csv(
            reader,
            csv.ReadOptions(block_size=_TEXT_BLOCK),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert,
        )
    for name in options.types:
        if name not in found.schema.names:
            listed = ", ".join(found.schema.names[:20])
            raise FieldNotFound(f"--types: no column is named {name!r}; there are {listed}")
    for each in found.schema:
        if pa.types.is_binary(each.type) and each.name not in options.types:
            file = "" if source.is_standard else f" {shlex.quote(source.name)}"
            raise InvalidData(
                f"{source.name}: column {each.name!r} is not UTF-8 text; if it is Latin-1, recode it: iconv -f latin1 "
                f"-t utf-8{file} | shmarrow convert - OUT --from {'csv' if delimiter == ',' else 'tsv'}; "
                f"--types {shlex.quote(each.name)}=binary keeps the bytes"
            )
    return _from_pyarrow(found, source.name, found.schema, done, total)


def read_csv(source: Input, options: Options) -> Rows:
    """Read comma-separated values with a header; unquoted empty fields are null."""
    return _read_delimited(source, options, ",")


def read_tsv(source: Input, options: Options) -> Rows:
    """Read tab-separated values, otherwise as CSV."""
    return _read_delimited(source, options, "\t")


def read_jsonl(source: Input, options: Options) -> Rows:
    """Read JSON lines: one object per line."""
    pa, json = optional("pyarrow"), optional("pyarrow.json")
    if not hasattr(json, "open_json"):
        raise MissingExtra(f"JSON lines need pyarrow 20 or newer, found {pa.__version__}: pip install 'pyarrow>=20'")
    reader, done, total = _text(source)
    explicit = pa.schema([(name, type.to_pyarrow()) for name, type in options.types.items()])
    how = json.ParseOptions(explicit_schema=explicit if options.types else None, newlines_in_values=False)

    def schema_of(lines: bytes) -> Any:
        with _reported("parse it", source.name):
            size = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
            return json.read_json(pa.BufferReader(lines), size, how).schema

    checked = pa.PythonFile(CheckedLines(reader, source.name, schema_of), "r")
    with _reported("parse it", source.name):
        found = json.open_json(checked, json.ReadOptions(block_size=_TEXT_BLOCK), how)
    return _from_pyarrow(found, source.name, found.schema, done, total)


def write_parquet(rows: Rows, target: Output, options: Options) -> None:
    """Write Parquet, one row group per batch; small batches are joined."""
    parquet = optional("pyarrow.parquet")
    batches = joined(rows.batches) if options.rows_per_batch is None else recut(rows.batches, options.rows_per_batch)
    chosen = rows.schema.for_consumer("parquet").to_pyarrow()
    _check_parquet(chosen)
    codec = {"compression": options.compression or "snappy", "compression_level": options.level}
    with (
        _reported("write Parquet", target.name),
        target.file() as file,
        parquet.ParquetWriter(file, chosen, **codec) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch.for_consumer("parquet").to_pyarrow(), row_group_size=max(batch.num_rows, 1))


def _check_parquet(chosen: Any) -> None:
    """Refuse the first column that Parquet cannot hold."""
    pa, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    for each in chosen:
        try:
            parquet.ParquetWriter(pa.BufferOutputStream(), pa.schema([each])).close()
        except (pa.ArrowException, OSError) as error:
            raise InvalidType(f"column {each.name!r}: Parquet cannot hold {each.type} ({error})") from None


def _write_delimited(rows: Rows, target: Output, options: Options, delimiter: str) -> None:
    csv = optional("pyarrow.csv")
    from shmarrow.interchange.files.text import as_cells  # imports pyarrow

    how = csv.WriteOptions(batch_size=BATCH, delimiter=delimiter)
    chosen = as_cells(rows.empty()).schema
    with (
        _reported("write CSV", target.name),
        target.file() as file,
        csv.CSVWriter(file, chosen, write_options=how) as writer,
    ):
        for batch in cut(rows, options):
            writer.write_batch(as_cells(batch))


def write_csv(rows: Rows, target: Output, options: Options) -> None:
    """Write comma-separated values with a header; text is quoted, nulls are empty fields."""
    _write_delimited(rows, target, options, ",")


def write_tsv(rows: Rows, target: Output, options: Options) -> None:
    """Write tab-separated values, otherwise as CSV."""
    _write_delimited(rows, target, options, "\t")


def write_jsonl(rows: Rows, target: Output, options: Options) -> None:
    """Write JSON lines: one object per row."""
    optional("pyarrow")
    from shmarrow.interchange.files.text import json_lines  # imports pyarrow

    if len(set(rows.schema.names)) < len(rows.schema.names):
        raise InvalidArgument("JSON objects need distinct names of columns; choose some with --columns")
    json_lines(rows.empty())
    with _reported("write JSON", target.name), target.file() as file:
        for batch in cut(rows, options):
            for piece in batch.to_batches(BATCH):
                file.write(json_lines(piece))
