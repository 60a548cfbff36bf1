"""Conversion to and from pyarrow: types, fields, schemas, arrays, record batches and tables, zero-copy.

Invariants:

* data are exchanged through the PyCapsules of the C data interface, as with any other library; see ``c_data``;
* an extension type is kept if the other side has registered its name, otherwise it becomes its storage type with name
  and parameters in the metadata of the field;
* pyarrow is imported on first use.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shmarrow.batch import RecordBatch
from shmarrow.capsules import PyCapsule
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import InvalidType, Unsupported, full_name, shown
from shmarrow.interchange.c_data import read
from shmarrow.interchange.c_data.export_array import batch_tree, capsules, export_array, export_batch
from shmarrow.interchange.c_data.export_schema import field_schema, placeholder, schema_schema, type_schema
from shmarrow.interchange.c_data.import_schema import type_from_capsule
from shmarrow.layout.array import Array
from shmarrow.optional import optional
from shmarrow.tables import Table
from shmarrow.types import DataType, Field, Schema

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def _classes(*kinds: str) -> tuple[Any, ...]:
    return tuple([getattr(optional("pyarrow"), kind) for kind in kinds])


def _expect(value: object, *kinds: str) -> None:
    if not isinstance(value, _classes(*kinds)):
        raise InvalidType(f"expected a pyarrow.{' or '.join(kinds)}, found {value.__class__.__name__}")


# --- types and fields -------------------------------------------------------------------------------------------


def type_from_pyarrow(type: pa.DataType) -> DataType:
    """Implement :meth:`DataType.from_pyarrow`."""
    _expect(type, "DataType")
    return type_from_capsule(type.__arrow_c_schema__())


def field_from_pyarrow(field: pa.Field) -> Field:
    """Implement :meth:`Field.from_pyarrow`."""
    _expect(field, "Field")
    return read.read_field(field)


def _imported(kind: str, value: object, *capsules: PyCapsule) -> Any:
    """Make a pyarrow object from capsules of ``value``; Unsupported if pyarrow has no such type."""
    pa = optional("pyarrow")
    try:
        return getattr(pa, kind)._import_from_c_capsule(*capsules)
    except (pa.ArrowException, KeyError) as error:  # KeyError: types without a Python class
        raise Unsupported(f"pyarrow has no type for {shown(value)}: {error}") from None


def type_to_pyarrow(type: DataType) -> pa.DataType:
    """Implement :meth:`DataType.to_pyarrow`."""
    return _imported("DataType", type, type_schema(type).__arrow_c_schema__())


def field_to_pyarrow(field: Field) -> pa.Field:
    """Implement :meth:`Field.to_pyarrow`."""
    return _imported("Field", field, field_schema(field).__arrow_c_schema__())


def schema_from_pyarrow(schema: pa.Schema) -> Schema:
    """Implement :meth:`Schema.from_pyarrow`."""
    _expect(schema, "Schema")
    return read.read_schema(schema)


def schema_to_pyarrow(schema: Schema) -> pa.Schema:
    """Implement :meth:`Schema.to_pyarrow`."""
    return _imported("Schema", schema, schema_schema(schema).__arrow_c_schema__())


# --- arrays -----------------------------------------------------------------------------------------------------


def array_from_pyarrow(array: pa.Array) -> Array:
    """Implement :meth:`Array.from_pyarrow`."""
    _expect(array, "Array")
    return read.read_array(array)


def chunked_array_from_pyarrow(array: pa.ChunkedArray | pa.Array) -> ChunkedArray:
    """Implement :meth:`ChunkedArray.from_pyarrow`."""
    _expect(array, "ChunkedArray", "Array")
    return read.read_chunked_array(array)


def array_of(value: object) -> Array:
    """Convert an object with ``__arrow_array__`` through pyarrow; copies only if it has several chunks.

    Raises
    ------
    InvalidType
        If the method does not return an Arrow array.
    MissingExtra
        If pyarrow is not installed.
    """
    pa = optional("pyarrow")
    try:
        found = pa.array(value)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidType(f"{full_name(value)} did not return an Arrow array: {error}") from None
    return read.read_array(found)


def array_to_pyarrow(array: Array) -> pa.Array:
    """Implement :meth:`Array.to_pyarrow`."""
    return _imported("Array", array.type, *export_array(array))


def chunked_array_to_pyarrow(array: ChunkedArray) -> pa.ChunkedArray:
    """Implement :meth:`ChunkedArray.to_pyarrow`."""
    chunks = [array_to_pyarrow(chunk) for chunk in array.chunks]
    return optional("pyarrow").chunked_array(chunks, type_to_pyarrow(array.type))


# --- record batches and tables ----------------------------------------------------------------------------------


def record_batch_from_pyarrow(batch: pa.RecordBatch) -> RecordBatch:
    """Implement :meth:`RecordBatch.from_pyarrow`."""
    _expect(batch, "RecordBatch")
    return read.read_record_batch(batch)


def table_from_pyarrow(table: pa.Table) -> Table:
    """Implement :meth:`Table.from_pyarrow`."""
    _expect(table, "Table")
    return read.read_table(table)


def record_batch_to_pyarrow(batch: RecordBatch) -> pa.RecordBatch:
    """Implement :meth:`RecordBatch.to_pyarrow`."""
    return _imported("RecordBatch", batch.schema, *export_batch(batch))


def table_to_pyarrow(table: Table) -> pa.Table:
    """Implement :meth:`Table.to_pyarrow`."""
    schema = schema_to_pyarrow(table.schema)
    return optional("pyarrow").Table.from_batches([record_batch_to_pyarrow(batch) for batch in table.batches], schema)


def record_batch_as(batch: RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert to a ``pyarrow.RecordBatch`` with a given pyarrow schema, zero-copy.

    The caller must ensure that the types of the schema have the memory layout of the batch's. Names, nullability,
    metadata and time zones may differ.
    """
    return _imported(
        "RecordBatch", batch.schema, schema.__arrow_c_schema__(), capsules(batch_tree(batch), placeholder())[1]
    )
