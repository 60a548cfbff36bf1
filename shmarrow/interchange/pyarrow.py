"""Conversion to and from pyarrow: types, fields, schemas, arrays, record batches and tables, zero-copy.

Invariants:

* data are exchanged through the PyCapsules of the C data interface, as with any other library; see ``types.c_structs``;
* an extension type is kept if the other side has registered its name, otherwise it becomes its storage type with name
  and parameters in the metadata of the field;
* pyarrow is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from shmarrow.batch import read_record_batch
from shmarrow.chunked import ChunkedArray, read_chunked_array
from shmarrow.errors import InvalidType, Unsupported, full_name, shown
from shmarrow.layout.array import Array
from shmarrow.layout.c_stream import read_array
from shmarrow.optional import optional
from shmarrow.tables import Table, read_table
from shmarrow.types import Schema
from shmarrow.types.c_import import read_field, read_schema, type_from_capsule

if TYPE_CHECKING:
    import pyarrow as pa


_READERS: dict[str, Callable[[Any], Any]] = {
    "DataType": lambda type: type_from_capsule(type.__arrow_c_schema__()),
    "Field": read_field,
    "Schema": read_schema,
    "Array": read_array,
    "ChunkedArray": read_chunked_array,
    "RecordBatch": read_record_batch,
    "Table": read_table,
}
"""The functions that import an object of pyarrow, by its class."""


@cache
def _classes(*kinds: str) -> tuple[Any, ...]:
    return tuple([getattr(optional("pyarrow"), kind) for kind in kinds])


def from_pyarrow(value: Any, *kinds: str) -> Any:
    """Import an object of the first of some classes of pyarrow; objects of the others are accepted, too."""
    if not isinstance(value, _classes(*kinds)):
        raise InvalidType(f"expected a pyarrow.{' or '.join(kinds)}, found {value.__class__.__name__}")
    return _READERS[kinds[0]](value)


def schema_from_pyarrow(schema: pa.Schema) -> Schema:
    """Import a schema of pyarrow."""
    return from_pyarrow(schema, "Schema")


def to_pyarrow(value: Any, kind: str) -> Any:
    """Make an object of a class of pyarrow; Unsupported if pyarrow has no such type."""
    pa = optional("pyarrow")
    data = kind in ("Array", "RecordBatch")
    capsules = value.__arrow_c_array__() if data else (value.__arrow_c_schema__(),)
    try:
        return getattr(pa, kind)._import_from_c_capsule(*capsules)
    except (pa.ArrowException, KeyError) as error:  # KeyError: types without a Python class
        what = value if not data else value.type if kind == "Array" else value.schema
        raise Unsupported(f"pyarrow has no type for {shown(what)}: {error}") from None


def chunked_array_to_pyarrow(array: ChunkedArray) -> pa.ChunkedArray:
    """Implement :meth:`ChunkedArray.to_pyarrow`."""
    chunks = [to_pyarrow(chunk, "Array") for chunk in array.chunks]
    return optional("pyarrow").chunked_array(chunks, to_pyarrow(array.type, "DataType"))


def table_to_pyarrow(table: Table) -> pa.Table:
    """Implement :meth:`Table.to_pyarrow`."""
    schema = to_pyarrow(table.schema, "Schema")
    return optional("pyarrow").Table.from_batches([to_pyarrow(batch, "RecordBatch") for batch in table.batches], schema)


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
    return read_array(found)
