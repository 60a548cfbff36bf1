"""To and from pyarrow: types, fields, schemas, arrays, record batches and tables, without copying a buffer.

Rules kept here:

* data come in through the capsules of the C data interface, as from any other library; see ``c_data``;
* a buffer is handed over as it is, with the array's offset beside it; its owner lives as long as either side does;
* an array is checked by structure before pyarrow's native code has it, and for what makes that code abort;
* an extension type goes over by name and parameters, as IPC has it: it is an extension type on each side where one is
  registered under the name, else its storage with both in the metadata of the field;
* pyarrow is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from shmarrow.batch import RecordBatch
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import InvalidType, Unsupported, full_name
from shmarrow.interchange.c_data import doors
from shmarrow.interchange.c_data.import_schema import type_from_capsule
from shmarrow.interchange.partner import needed
from shmarrow.layout.array import Array
from shmarrow.layout.listing import LISTING
from shmarrow.layout.validation import make_safe
from shmarrow.tables import Table
from shmarrow.types import DataType, Field, Schema
from shmarrow.types.descriptors import simple_types
from shmarrow.types.extension import NAME_KEY, ExtensionType, storage_field


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


@cache
def _simple_to() -> dict[DataType, Any]:
    """The types without children and with few parameters, ours to theirs."""
    made = {type: getattr(partner(), type.descriptor.call(type)[0], None) for type in simple_types().values()}
    return {type: make(*type.descriptor.call(type)[1]) for type, make in made.items() if make is not None}


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


def type_to_pyarrow(type: DataType) -> Any:
    """The ``pyarrow.DataType`` that is ``type``; of an extension type that pyarrow does not know its storage type.

    pyarrow names the entries of a map, and the children of a run-end encoded type, itself, and has no nullable keys.

    Raises
    ------
    Unsupported
        If pyarrow has no such type.
    """
    found = _simple_to().get(type)
    if found is not None:
        return found
    if isinstance(type, ExtensionType):
        return field_to_pyarrow(Field("", type)).type
    name, arguments = type.descriptor.call(type)
    make = getattr(partner(), name, None)
    if make is None:
        raise Unsupported(f"pyarrow has no type for {type}")
    if type.layout == "map":
        arguments[0] = arguments[0].with_nullable(False)
    return make(*[_argument(argument) for argument in arguments])


def _argument(value: Any) -> Any:
    """An argument of a factory, with what is ours in it as pyarrow's."""
    if isinstance(value, tuple):
        return [_argument(item) for item in value]
    if isinstance(value, Field):
        return field_to_pyarrow(value)
    return type_to_pyarrow(value) if isinstance(value, DataType) else value


def field_to_pyarrow(field: Field) -> Any:
    """The ``pyarrow.Field`` that is ``field``; metadata tell of an extension type that pyarrow does not know."""
    pa = partner()
    field = storage_field(field)
    nullable = field.nullable or field.type.layout == "null"  # pyarrow refuses a null type that is not nullable
    made = pa.field(field.name, type_to_pyarrow(field.type), nullable, field.metadata)
    if NAME_KEY not in (field.metadata or {}):
        return made
    try:  # only what reads messages looks extension types up
        return pa.ipc.read_schema(pa.schema([made]).serialize()).field(0)
    except pa.ArrowException:  # a type of this name that does not fit
        return made


def schema_from_pyarrow(schema: Any) -> Schema:
    """The schema that is pyarrow's ``schema``, with the metadata of each level."""
    _expect(schema, "Schema")
    return doors.read_schema(schema)


def schema_to_pyarrow(schema: Schema) -> Any:
    """The ``pyarrow.Schema`` that is ``schema``, with the metadata of each level."""
    return partner().schema([field_to_pyarrow(field) for field in schema], schema.metadata)


# --- arrays -----------------------------------------------------------------------------------------------------

_NO_VALIDITY = {layout for layout, row in LISTING.items() if not row.has_validity}
"""Layouts without validity, where pyarrow keeps the place of its buffer."""


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
    return _to_pyarrow(array, type_to_pyarrow(array.type))


def _to_pyarrow(array: Array, type: Any) -> Any:
    return _hand_over(make_safe(array), type)


def _hand_over(array: Array, type: Any) -> Any:
    pa = partner()
    if isinstance(type, pa.BaseExtensionType):
        return type.wrap_array(_hand_over(array, type.storage_type))
    layout = array.type.layout
    buffers = [None if data is None else pa.py_buffer(data) for data in array._buffers]
    if layout in _NO_VALIDITY:
        buffers.insert(0, None)
    # pyarrow sizes its results by the number of nulls, and what a file says of it may be wrong: let it count.
    nulls, offset = (-1 if array._null_count else 0), array.offset
    if layout == "dictionary":
        assert array._dictionary is not None
        dictionary = _hand_over(array._dictionary, type.value_type)
        return pa.DictionaryArray.from_buffers(type, len(array), buffers, dictionary, nulls, offset)
    children = [_hand_over(child, type.field(i).type) for i, child in enumerate(array.children)]
    return pa.Array.from_buffers(type, len(array), buffers, nulls, offset, children)


def chunked_array_to_pyarrow(array: ChunkedArray) -> Any:
    """The ``pyarrow.ChunkedArray`` over the buffers of a chunked array; copies nothing."""
    type = type_to_pyarrow(array.type)
    return partner().chunked_array([_to_pyarrow(chunk, type) for chunk in array.chunks], type)


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


def _batch_to(batch: RecordBatch, schema: Any) -> Any:
    pa = partner()
    if not len(schema):  # only a struct without fields gives pyarrow a number of rows without columns
        rows = pa.Array.from_buffers(pa.struct([]), batch.num_rows, [None])
        return pa.RecordBatch.from_struct_array(rows).replace_schema_metadata(schema.metadata)
    columns: Iterable[Any] = zip(batch.itercolumns(), schema.types, strict=True)
    return pa.RecordBatch.from_arrays([_to_pyarrow(column, type) for column, type in columns], schema=schema)


def record_batch_to_pyarrow(batch: RecordBatch) -> Any:
    """The ``pyarrow.RecordBatch`` over the buffers of a batch; copies nothing."""
    return _batch_to(batch, schema_to_pyarrow(batch.schema))


def table_to_pyarrow(table: Table) -> Any:
    """The ``pyarrow.Table`` over the buffers of a table, one chunk of each column for each batch; copies nothing."""
    schema = schema_to_pyarrow(table.schema)
    return partner().Table.from_batches([_batch_to(batch, schema) for batch in table.batches], schema)
