"""Import of other libraries' objects through any of the three PyCapsule interface methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shmarrow.batch import RecordBatch
from shmarrow.capsules import ARRAY, SCHEMA, STREAM, PyCapsule, single_column
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import InvalidType, full_name, not_expected
from shmarrow.interchange.c_data import import_array, import_schema, import_stream
from shmarrow.interchange.c_data.structs import ask
from shmarrow.layout.array import Array
from shmarrow.tables import RecordBatchReader, Table
from shmarrow.types import DataType, Field, Schema

T = TypeVar("T")


def _schema_capsule(obj: object, expected: str) -> PyCapsule:
    if not hasattr(obj, SCHEMA):
        raise not_expected(expected, obj)
    return ask(obj, SCHEMA)


def read_type(obj: object) -> DataType:
    """Import a type from an object with ``__arrow_c_schema__``; fields and schemas are refused."""
    if type(obj).__name__ in ("Field", "Schema"):
        hint = "pass its .type" if type(obj).__name__ == "Field" else None
        raise InvalidType(f"expected a type, found {full_name(obj)}", hint=hint)
    return import_schema.type_from_capsule(_schema_capsule(obj, "a type"))


def read_field(obj: object) -> Field:
    """Import a field from an object with ``__arrow_c_schema__``."""
    return import_schema.field_from_capsule(_schema_capsule(obj, "a field"))


def read_schema(obj: object) -> Schema:
    """Import a schema from an object with ``__arrow_c_schema__``; its fields are read on demand."""
    return import_schema.schema_from_capsule(_schema_capsule(obj, "a schema"))


def read_array(obj: object) -> Array:
    """Import an object as one array: zero-copy unless it has several chunks. Rows become structs."""
    if hasattr(obj, ARRAY):
        return import_array.array_from_capsules(*_capsules(obj))
    return read_chunked_array(obj).combine_chunks()


def read_chunked_array(obj: object) -> ChunkedArray:
    """Import an object as a chunked array, zero-copy."""
    if hasattr(obj, STREAM):
        return import_stream.chunks_from_stream(obj)
    return ChunkedArray([read_array(obj)])


def read_record_batch(obj: object) -> RecordBatch:
    """Import the rows of an object as one batch: zero-copy unless it yields several."""
    if hasattr(obj, ARRAY):
        return _rows(obj, lambda: import_array.batch_from_capsules(*_capsules(obj)))
    table = read_table(obj)
    if len(table.batches) == 1:
        return table.batches[0]
    return RecordBatch(table.schema, table.num_rows, [column.combine_chunks() for column in table.columns])


def read_table(obj: object) -> Table:
    """Import the rows of an object as a table, keeping its batches."""
    if hasattr(obj, STREAM):
        with read_reader(obj) as reader:
            return reader.read_all()
    batch = read_record_batch(obj)
    return Table(batch.schema, [batch])


def read_reader(obj: object) -> RecordBatchReader:
    """Open a reader over the rows of an object; each read requests one batch from it."""
    if hasattr(obj, STREAM):
        return _rows(obj, lambda: import_stream.open_c_stream(obj))
    if not hasattr(obj, ARRAY):
        raise not_expected("an object with __arrow_c_stream__ or __arrow_c_array__", obj)
    batch = read_record_batch(obj)
    return RecordBatchReader.from_batches(batch.schema, [batch])


def _capsules(obj: object) -> tuple[PyCapsule, PyCapsule]:
    found = ask(obj, ARRAY)
    if not isinstance(found, tuple) or len(found) != 2:
        text = f"expected two capsules from __arrow_c_array__(), found {full_name(found)}"
        raise InvalidType(f"{full_name(obj)} did not return an Arrow array: {text}")
    return found


def _rows(obj: object, read: Callable[[], T]) -> T:
    """Return ``read()``; for a single column, raise an error that shows how to name it."""
    try:
        return read()
    except import_schema.SingleColumn:
        raise single_column(obj) from None
