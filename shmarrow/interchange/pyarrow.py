"""Conversion to and from pyarrow: types, fields, schemas, arrays, record batches and tables, zero-copy.

Invariants:

* data are exchanged through the PyCapsules of the C data interface, as with any other library; see ``c_data``;
* an extension type is kept if the other side has registered its name, otherwise it becomes its storage type with name
  and parameters in the metadata of the field;
* pyarrow is imported on first use.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from shmarrow.batch import RecordBatch
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import InvalidType, Unsupported, full_name, shown
from shmarrow.interchange.c_data import doors
from shmarrow.interchange.c_data.export_array import batch_tree, capsules, export_array, export_batch
from shmarrow.interchange.c_data.export_schema import field_schema, placeholder, schema_schema, type_schema
from shmarrow.interchange.c_data.import_schema import type_from_capsule
from shmarrow.interchange.partner import needed
from shmarrow.layout.array import Array
from shmarrow.tables import Table
from shmarrow.types import DataType, Field, Schema


@cache
def partner() -> Any:
    """Import ``pyarrow``; MissingExtra if it is not installed."""
    with needed("pyarrow", "arrow"):
        import pyarrow
    return pyarrow


@cache
def _classes(*kinds: str) -> tuple[Any, ...]:
    return tuple([getattr(partner(), kind) for kind in kinds])


def _expect(value: Any, *kinds: str) -> None:
    if not isinstance(value, _classes(*kinds)):
        raise InvalidType(f"expected a pyarrow.{' or '.join(kinds)}, found {value.__class__.__name__}")


# --- types and fields -------------------------------------------------------------------------------------------


def type_from_pyarrow(type: Any) -> DataType:
    """Convert a ``pyarrow.DataType``; an unregistered extension type becomes its storage type.

    Raises
    ------
    InvalidType
        If ``type`` is not a pyarrow DataType.
    Unsupported
        If this package has no such type.
    """
    _expect(type, "DataType")
    return type_from_capsule(type.__arrow_c_schema__())


def field_from_pyarrow(field: Any) -> Field:
    """Convert a ``pyarrow.Field``; an unregistered extension type is recorded in its metadata."""
    _expect(field, "Field")
    return doors.read_field(field)


def _imported(kind: str, value: Any, *capsules: Any) -> Any:
    """Make a pyarrow object from capsules of ``value``; Unsupported if pyarrow has no such type."""
    pa = partner()
    try:
        return getattr(pa, kind)._import_from_c_capsule(*capsules)
    except (pa.ArrowException, KeyError) as error:  # KeyError: types without a Python class
        raise Unsupported(f"pyarrow has no type for {shown(value)}: {error}") from None


def type_to_pyarrow(type: DataType) -> Any:
    """Convert to a ``pyarrow.DataType``; an extension type unknown to pyarrow becomes its storage type.

    Raises
    ------
    Unsupported
        If pyarrow has no such type.
    """
    return _imported("DataType", type, type_schema(type).__arrow_c_schema__())


def field_to_pyarrow(field: Field) -> Any:
    """Convert to a ``pyarrow.Field``; an extension type unknown to pyarrow is recorded in its metadata."""
    return _imported("Field", field, field_schema(field).__arrow_c_schema__())


def schema_from_pyarrow(schema: Any) -> Schema:
    """Convert a ``pyarrow.Schema`` with the metadata of each level."""
    _expect(schema, "Schema")
    return doors.read_schema(schema)


def schema_to_pyarrow(schema: Schema) -> Any:
    """Convert to a ``pyarrow.Schema`` with the metadata of each level."""
    return _imported("Schema", schema, schema_schema(schema).__arrow_c_schema__())


# --- arrays -----------------------------------------------------------------------------------------------------


def array_from_pyarrow(array: Any) -> Any:
    """Convert a ``pyarrow.Array`` or ``pyarrow.ChunkedArray``, zero-copy.

    Raises
    ------
    Unsupported
        If this package has no such type, or the buffers are not in CPU memory.
    """
    _expect(array, "Array", "ChunkedArray")
    if isinstance(array, partner().ChunkedArray):
        return doors.read_chunked_array(array)
    return doors.read_array(array)


def array_of(value: Any) -> Array:
    """Convert an object with ``__arrow_array__`` through pyarrow; copies only if it has several chunks.

    Raises
    ------
    InvalidType
        If the method does not return an Arrow array.
    MissingExtra
        If pyarrow is not installed.
    """
    pa = partner()
    try:
        found = pa.array(value)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidType(f"{full_name(value)} did not return an Arrow array: {error}") from None
    made: Array = doors.read_array(found)
    return made


def array_to_pyarrow(array: Array) -> Any:
    """Convert to a ``pyarrow.Array``, zero-copy.

    Raises
    ------
    InvalidData
        If the array violates the format such that pyarrow would read outside its buffers: in its structure, offsets,
        views, indices, type ids, run ends or UTF-8. Ranges of values are not checked.
    Unsupported
        If pyarrow has no such type.
    """
    return _imported("Array", array.type, *export_array(array))


def chunked_array_to_pyarrow(array: ChunkedArray) -> Any:
    """Convert to a ``pyarrow.ChunkedArray``, zero-copy."""
    return partner().chunked_array([array_to_pyarrow(chunk) for chunk in array.chunks], type_to_pyarrow(array.type))


# --- record batches and tables ----------------------------------------------------------------------------------


def record_batch_from_pyarrow(batch: Any) -> RecordBatch:
    """Convert a ``pyarrow.RecordBatch``, zero-copy."""
    _expect(batch, "RecordBatch")
    return doors.read_record_batch(batch)


def table_from_pyarrow(table: Any) -> Table:
    """Convert a ``pyarrow.Table``, zero-copy.

    If its columns have different chunks, a batch ends wherever a chunk of any column ends.
    """
    _expect(table, "Table")
    return doors.read_table(table)


def record_batch_to_pyarrow(batch: RecordBatch) -> Any:
    """Convert to a ``pyarrow.RecordBatch``, zero-copy."""
    return _imported("RecordBatch", batch.schema, *export_batch(batch))


def table_to_pyarrow(table: Table) -> Any:
    """Convert to a ``pyarrow.Table`` with one chunk per batch, zero-copy."""
    schema = schema_to_pyarrow(table.schema)
    return partner().Table.from_batches([record_batch_to_pyarrow(batch) for batch in table.batches], schema)


def record_batch_as(batch: RecordBatch, schema: Any) -> Any:
    """Convert to a ``pyarrow.RecordBatch`` with a given pyarrow schema, zero-copy.

    The caller must ensure that the types of the schema have the memory layout of the batch's. Names, nullability,
    metadata and time zones may differ.
    """
    return _imported(
        "RecordBatch", batch.schema, schema.__arrow_c_schema__(), capsules(batch_tree(batch), placeholder())[1]
    )
