"""To and from pyarrow: types, fields, schemas, arrays, record batches and tables, without copying a buffer.

Rules kept here:

* data go through the capsules of the C data interface in both directions, as with any other library; see ``c_data``;
* an extension type is one on each side where one is registered under the name, else its storage with name and
  parameters in the metadata of the field;
* pyarrow is imported when it is first needed.
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
    """The module ``pyarrow``; MissingExtra where it is not installed."""
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
    """The type that is pyarrow's ``type``; of an extension type that is not registered here its storage type.

    Raises
    ------
    InvalidType
        If ``type`` is no pyarrow DataType.
    Unsupported
        If it is of a kind unknown here.
    """
    _expect(type, "DataType")
    return type_from_capsule(type.__arrow_c_schema__())


def field_from_pyarrow(field: Any) -> Field:
    """The field that is pyarrow's ``field``; metadata tell of an extension type that is not registered here."""
    _expect(field, "Field")
    return doors.read_field(field)


def _imported(kind: str, value: Any, *capsules: Any) -> Any:
    """A pyarrow object from capsules of ``value``; Unsupported where pyarrow has no such type."""
    pa = partner()
    try:
        return getattr(pa, kind)._import_from_c_capsule(*capsules)
    except (pa.ArrowException, KeyError) as error:  # a key that is missing: types without a class in Python
        raise Unsupported(f"pyarrow has no type for {shown(value)}: {error}") from None


def type_to_pyarrow(type: DataType) -> Any:
    """The ``pyarrow.DataType`` that is ``type``; of an extension type that pyarrow does not know its storage type.

    Raises
    ------
    Unsupported
        If pyarrow has no such type.
    """
    return _imported("DataType", type, type_schema(type).__arrow_c_schema__())


def field_to_pyarrow(field: Field) -> Any:
    """The ``pyarrow.Field`` that is ``field``; metadata tell of an extension type that pyarrow does not know."""
    return _imported("Field", field, field_schema(field).__arrow_c_schema__())


def schema_from_pyarrow(schema: Any) -> Schema:
    """The schema that is pyarrow's ``schema``, with the metadata of each level."""
    _expect(schema, "Schema")
    return doors.read_schema(schema)


def schema_to_pyarrow(schema: Schema) -> Any:
    """The ``pyarrow.Schema`` that is ``schema``, with the metadata of each level."""
    return _imported("Schema", schema, schema_schema(schema).__arrow_c_schema__())


# --- arrays -----------------------------------------------------------------------------------------------------


def array_from_pyarrow(array: Any) -> Any:
    """The array, or chunked array, over the buffers of pyarrow's ``array``; copies nothing.

    Raises
    ------
    Unsupported
        If the type is unknown here, or the buffers lie in the memory of a device.
    """
    _expect(array, "Array", "ChunkedArray")
    if isinstance(array, partner().ChunkedArray):
        return doors.read_chunked_array(array)
    return doors.read_array(array)


def array_of(value: Any) -> Array:
    """The array that pyarrow makes of an object with ``__arrow_array__``; a copy only where it has several chunks.

    Raises
    ------
    InvalidType
        If the object does not give what its method promises.
    MissingExtra
        If pyarrow is not installed.
    """
    pa = partner()
    try:
        found = pa.array(value)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidType(f"{full_name(value)} does not give an Arrow array: {error}") from None
    made: Array = doors.read_array(found)
    return made


def array_to_pyarrow(array: Array) -> Any:
    """The ``pyarrow.Array`` over the buffers of an array; copies nothing.

    Raises
    ------
    InvalidData
        If the array breaks the format's rules in a way that leads pyarrow out of its buffers: its structure, offsets,
        views, indices, type ids, run ends, UTF-8. Ranges of values are not looked at.
    Unsupported
        If pyarrow has no such type.
    """
    return _imported("Array", array.type, *export_array(array))


def chunked_array_to_pyarrow(array: ChunkedArray) -> Any:
    """The ``pyarrow.ChunkedArray`` over the buffers of a chunked array; copies nothing."""
    return partner().chunked_array([array_to_pyarrow(chunk) for chunk in array.chunks], type_to_pyarrow(array.type))


# --- record batches and tables ----------------------------------------------------------------------------------


def record_batch_from_pyarrow(batch: Any) -> RecordBatch:
    """The record batch over the buffers of pyarrow's ``batch``; copies nothing."""
    _expect(batch, "RecordBatch")
    return doors.read_record_batch(batch)


def table_from_pyarrow(table: Any) -> Table:
    """The table over the buffers of pyarrow's ``table``; copies nothing.

    Where its columns have different chunks, batches end wherever a chunk of any column ends.
    """
    _expect(table, "Table")
    return doors.read_table(table)


def record_batch_to_pyarrow(batch: RecordBatch) -> Any:
    """The ``pyarrow.RecordBatch`` over the buffers of a batch; copies nothing."""
    return _imported("RecordBatch", batch.schema, *export_batch(batch))


def table_to_pyarrow(table: Table) -> Any:
    """The ``pyarrow.Table`` over the buffers of a table, one chunk of each column for each batch; copies nothing."""
    schema = schema_to_pyarrow(table.schema)
    return partner().Table.from_batches([record_batch_to_pyarrow(batch) for batch in table.batches], schema)


def record_batch_as(batch: RecordBatch, schema: Any) -> Any:
    """The ``pyarrow.RecordBatch`` over the buffers of a batch, under a schema of pyarrow's; copies nothing.

    The types of the schema have to be those of the batch as they lie in memory, which is for the caller to see to. What
    may differ is what memory does not show: names, nullability, metadata, time zones.
    """
    return _imported(
        "RecordBatch", batch.schema, schema.__arrow_c_schema__(), capsules(batch_tree(batch), placeholder())[1]
    )
