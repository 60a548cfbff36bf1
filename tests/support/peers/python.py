"""Peers that are Python packages: each reads a sample and gives its columns as Python values, and its metadata.

Invariants: a peer reads the bytes with its own reader of the format. arro3 and nanoarrow hand what they have read
to pyarrow over Arrow's C data interface to be printed, because their own Python values cover fewer types than their
readers do; intervals, which pyarrow does not print, nanoarrow does.
"""

from __future__ import annotations

import datetime as dt
import io
import uuid
from typing import Any, NamedTuple

import shmarrow as sa
from peers import Sample
from shmarrow import types


class Read(NamedTuple):
    """A sample as a peer has read it; metadata is None where the peer does not give any."""

    columns: list[list[Any]]
    metadata: list[dict[str, str]] | None = None


def read_shmarrow(sample: Sample) -> Read:
    if sample.form == "tensor":
        return Read([sa.ipc.read_tensor(sample.data).to_numpy().tolist()])
    opened = (sa.ipc.open_file if sample.is_file else sa.ipc.open_stream)(sample.data)
    with opened:
        table = opened.read_all()
    table.validate(full=True)
    metadata = [_text(table.schema.metadata), *(_text(field.metadata) for field in table.schema.fields)]
    return Read([_storage(column) for column in table.columns], metadata)


def _storage(column: Any) -> list[Any]:
    return [row for chunk in column.chunks for row in getattr(chunk, "storage", chunk).to_pylist()]


def read_pyarrow(sample: Sample) -> Read:
    import pyarrow as pa

    if sample.form == "tensor":
        return Read([pa.ipc.read_tensor(pa.BufferReader(sample.data)).to_numpy().tolist()])
    opened = (pa.ipc.open_file if sample.is_file else pa.ipc.open_stream)(sample.data)
    return _from_table(opened.read_all())


def read_polars(sample: Sample) -> Read:
    import polars as pl

    read = pl.read_ipc if sample.is_file else pl.read_ipc_stream
    frame = read(io.BytesIO(sample.data))
    return Read([series.to_list() for series in frame.get_columns()])


def read_duckdb(sample: Sample) -> Read:
    """DuckDB itself scans Arrow's C stream; the bytes reach it through pyarrow."""
    import duckdb
    import pyarrow as pa

    opened = (pa.ipc.open_file if sample.is_file else pa.ipc.open_stream)(sample.data)
    table = opened.read_all()
    if not _database:
        _database.append(duckdb.connect())
    try:
        scanned = _database[0].from_arrow(table).to_arrow_table()
    except Exception:
        _database.clear()  # a failure may have taken the whole database with it
        raise
    fields = zip(sample.schema.fields, _from_table(scanned).columns, strict=True)
    return Read([[_from_duckdb(f.type, value) for value in values] for f, values in fields])


_database: list[Any] = []


def _from_duckdb(type: Any, value: Any) -> Any:
    """Values for which DuckDB has types of its own: all spans are intervals, and UUIDs are printed."""
    if value is None:
        return None
    if isinstance(type, types.DurationType):
        return dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    if isinstance(type, types.IntervalType) and type.unit == "month":
        return value.months
    return uuid.UUID(value).bytes if type == sa.uuid() else value


def read_nanoarrow(sample: Sample) -> Read:
    import nanoarrow as na
    import pyarrow as pa

    if sample.is_file:
        raise NotImplementedError("nanoarrow.ipc reads streams")
    return _from_table(pa.table(na.ArrayStream.from_readable(io.BytesIO(sample.data))))


def read_arro3(sample: Sample) -> Read:
    import arro3.io
    import pyarrow as pa

    read = arro3.io.read_ipc if sample.is_file else arro3.io.read_ipc_stream
    return _from_table(pa.table(read(io.BytesIO(sample.data)).read_all()))


# --- values ---------------------------------------------------------------------------------------------------------


def _from_table(table: Any) -> Read:
    table.validate(full=True)
    metadata = [_text(table.schema.metadata), *(_text(field.metadata) for field in table.schema)]
    columns = [_values(c) if _has_class(c) else _by_nanoarrow(table, i) for i, c in enumerate(table.columns)]
    return Read(columns, metadata)


def _text(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}


def _has_class(column: Any) -> bool:
    """False for the two of the intervals that pyarrow reads, but has no class of arrays for."""
    try:
        return column.chunks is not None
    except KeyError:
        return False


def _by_nanoarrow(table: Any, number: int) -> list[Any]:
    import nanoarrow as na

    return [row for chunk in na.ArrayStream(table) for row in chunk.child(number).iter_py()]


def _values(column: Any) -> list[Any]:
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_struct(column.type) and len({field.name for field in column.type}) < column.type.num_fields:
        return [row for chunk in column.chunks for row in _pairs(chunk)]
    return column.to_pylist()


def _pairs(chunk: Any) -> list[Any]:
    """Rows of a struct whose names are not unique, which pyarrow does not print."""
    children = [[(field.name, value) for value in chunk.field(i).to_pylist()] for i, field in enumerate(chunk.type)]
    return [list(row) if valid else None for *row, valid in zip(*children, chunk.is_valid().to_pylist(), strict=True)]


READERS = {
    "shmarrow": read_shmarrow,
    "pyarrow": read_pyarrow,
    "polars": read_polars,
    "duckdb": read_duckdb,
    "nanoarrow": read_nanoarrow,
    "arro3": read_arro3,
}
