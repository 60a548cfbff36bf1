"""Conversions to and from other libraries: one module for each, imported on first use.

Importing this package adds the ``from_...`` and ``to_...`` methods to arrays, batches and types; those of tensors,
tables, chunked arrays and :func:`shmarrow.array` are added when these are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from shmarrow import foreign, import_hooks
from shmarrow.batch import RecordBatch
from shmarrow.columns import Columns
from shmarrow.errors import ExportRefused, Unsupported
from shmarrow.interchange import methods, tensors
from shmarrow.ipc import RecordBatchFileReader
from shmarrow.layout import Array
from shmarrow.types import DataType, Field, Schema


def _pyarrow(name: str) -> Callable[[Any], Any]:
    """Wrap a function of :mod:`shmarrow.interchange.pyarrow`, which is imported on the first call."""

    def door(value: Any) -> Any:
        from shmarrow.interchange import pyarrow

        return getattr(pyarrow, name)(value)

    door.__name__ = door.__qualname__ = name
    door.__doc__ = f"See :func:`shmarrow.interchange.pyarrow.{name}`; no buffer is copied."
    return door


def _open_doors(kind: Any, reader: str, writer: str) -> None:
    kind.from_pyarrow = staticmethod(_pyarrow(reader))
    kind.to_pyarrow = _pyarrow(writer)


_open_doors(DataType, "type_from_pyarrow", "type_to_pyarrow")
_open_doors(Field, "field_from_pyarrow", "field_to_pyarrow")
_open_doors(Schema, "schema_from_pyarrow", "schema_to_pyarrow")
_open_doors(Array, "array_from_pyarrow", "array_to_pyarrow")
_open_doors(RecordBatch, "record_batch_from_pyarrow", "record_batch_to_pyarrow")


def _open_chunked_doors() -> None:
    from shmarrow.chunked import ChunkedArray

    _give(ChunkedArray, "__arrow_c_stream__", _chunked_array_stream)
    _give(ChunkedArray, "to_torch", _chunked_to_torch)
    _give(ChunkedArray, "__dlpack__", _chunked_dlpack)
    column: Any = ChunkedArray
    column.__dlpack_device__ = _dlpack_device

    _open_doors(ChunkedArray, "array_from_pyarrow", "chunked_array_to_pyarrow")
    ChunkedArray.for_consumer = methods.array_for_consumer
    ChunkedArray.to_pandas = methods.array_to_pandas


def _open_table_doors() -> None:
    from shmarrow.tables import RecordBatchReader, Table

    _give(Table, "__arrow_c_stream__", _table_stream)
    _give(RecordBatchReader, "__arrow_c_stream__", _reader_stream)
    _Reader: Any = RecordBatchReader
    _Reader.for_consumer = methods.reader_for_consumer

    _open_doors(Table, "table_from_pyarrow", "table_to_pyarrow")


# --- the Arrow PyCapsule interface ------------------------------------------------------------------------------


def _give(kind: Any, name: str, method: Callable[..., Any]) -> None:
    method.__name__, method.__qualname__ = name, f"{kind.__name__}.{name}"
    setattr(kind, name, method)


def _refuse(unknown: dict[str, Any]) -> None:
    """Reject keywords of later versions of the interface, unless they are None."""
    given = [name for name, value in unknown.items() if value is not None]
    if given:
        raise Unsupported(f"the Arrow PyCapsule interface has no keyword {', '.join(given)} here")


def _type_capsule(self: DataType) -> Any:
    """Export the type as a PyCapsule ``arrow_schema`` (Arrow PyCapsule interface); errors as for :class:`Schema`."""
    from shmarrow.interchange.c_data.export_schema import type_schema

    return type_schema(self).__arrow_c_schema__()


def _field_capsule(self: Field) -> Any:
    """Export the field as a PyCapsule ``arrow_schema`` (Arrow PyCapsule interface); errors as for :class:`Schema`."""
    from shmarrow.interchange.c_data.export_schema import field_schema

    return field_schema(self).__arrow_c_schema__()


def _schema_capsule(self: Schema) -> Any:
    """Export the schema as a PyCapsule ``arrow_schema`` of struct type (Arrow PyCapsule interface).

    Raises
    ------
    ExportRefused
        If a name contains a NUL character, which terminates a string in C.
    MissingExtra
        If nanoarrow is not installed.
    """
    from shmarrow.interchange.c_data.export_schema import schema_schema

    return schema_schema(self).__arrow_c_schema__()


def _array_capsules(self: Array, requested_schema: Any = None, **unknown: Any) -> tuple[Any, Any]:
    """Export the array as PyCapsules ``arrow_schema`` and ``arrow_array`` (Arrow PyCapsule interface), zero-copy.

    The values are validated once, before the first export, so that no offset or index points outside its buffer.
    The memory stays valid for as long as the consumer uses it.

    Parameters
    ----------
    requested_schema : PyCapsule, optional
        The ``arrow_schema`` of the type that the consumer requests; values are cast to it without loss.

    Raises
    ------
    InvalidData
        If the array violates the format, or a value does not fit the requested type.
    InvalidType
        If there is no cast to the requested type.
    MissingExtra
        If nanoarrow is not installed.
    """
    from shmarrow.interchange.c_data.export_array import export_array

    _refuse(unknown)
    return export_array(self, requested_schema)


def _batch_capsules(self: RecordBatch, requested_schema: Any = None, **unknown: Any) -> tuple[Any, Any]:
    """Export the batch as PyCapsules ``arrow_schema`` and ``arrow_array`` of struct type, zero-copy.

    Parameters and errors as for :meth:`Array.__arrow_c_array__`; a requested schema must have the same column names.
    """
    from shmarrow.interchange.c_data.export_array import export_batch

    _refuse(unknown)
    return export_batch(self, requested_schema)


def _batch_stream(self: RecordBatch, requested_schema: Any = None, **unknown: Any) -> Any:
    """Export the batch as a PyCapsule ``arrow_array_stream`` of one batch; see :meth:`__arrow_c_array__`."""
    from shmarrow.interchange.c_data.export_stream import export_batches

    _refuse(unknown)
    return export_batches(self.schema, [self], requested_schema)


def _table_stream(self: Any, requested_schema: Any = None, **unknown: Any) -> Any:
    """Export the batches as a PyCapsule ``arrow_array_stream`` (Arrow PyCapsule interface), zero-copy.

    Tables of many batches are exported one batch at a time, which needs pyarrow. Parameters and errors as for
    :meth:`Array.__arrow_c_array__`; an error in a later batch is reported through the stream.
    """
    from shmarrow.interchange.c_data.export_stream import export_batches

    _refuse(unknown)
    return export_batches(self.schema, self.batches, requested_schema)


def _chunked_array_stream(self: Any, requested_schema: Any = None, **unknown: Any) -> Any:
    """Export the chunks as a PyCapsule ``arrow_array_stream`` (Arrow PyCapsule interface), zero-copy.

    Parameters and errors as for :meth:`Array.__arrow_c_array__`.
    """
    from shmarrow.interchange.c_data.export_stream import export_chunks

    _refuse(unknown)
    return export_chunks(self, requested_schema)


def _reader_stream(self: Any, requested_schema: Any = None, **unknown: Any) -> Any:
    """Export the remaining batches as a PyCapsule ``arrow_array_stream``; each is read when the consumer requests it.

    Parameters and errors as for :meth:`Array.__arrow_c_array__`; needs pyarrow. An error in a later batch is reported
    through the stream.
    """
    from shmarrow.interchange.c_data.export_stream import export_reader

    _refuse(unknown)
    return export_reader(self, requested_schema)


def _file_stream(self: Any, requested_schema: Any = None, **unknown: Any) -> Any:
    """Export all batches as a PyCapsule ``arrow_array_stream``, any number of times.

    Parameters and errors as for :meth:`Table.__arrow_c_stream__`.
    """
    from shmarrow.interchange.c_data.export_stream import export_batches

    _refuse(unknown)
    return export_batches(self.schema, self._lasting(), requested_schema)


_give(DataType, "__arrow_c_schema__", _type_capsule)
_give(Field, "__arrow_c_schema__", _field_capsule)
_give(Schema, "__arrow_c_schema__", _schema_capsule)
_give(Array, "__arrow_c_array__", _array_capsules)
_give(RecordBatch, "__arrow_c_array__", _batch_capsules)
_give(RecordBatch, "__arrow_c_stream__", _batch_stream)
_give(RecordBatchFileReader, "__arrow_c_stream__", _file_stream)
_FileReader: Any = RecordBatchFileReader
_FileReader.for_consumer = methods.reader_for_consumer


def _reader(kind: str) -> Callable[[Any], Any]:
    """Wrap a reader of :mod:`shmarrow.interchange.c_data.doors`, which is imported on the first call."""

    def read(value: Any) -> Any:
        from shmarrow.interchange.c_data.doors import READERS

        return READERS[kind](value)

    return read


def _array_from_arrow_array(value: Any) -> Any:
    """Convert an object with ``__arrow_array__``, through pyarrow."""
    from shmarrow.interchange.pyarrow import array_of

    return array_of(value)


def _open_array_doors() -> None:
    from shmarrow.build.sources import read_class, read_interface
    from shmarrow.chunked import ChunkedArray
    from shmarrow.tables import Table

    read_class(ChunkedArray, ChunkedArray.combine_chunks)
    read_class(RecordBatch, RecordBatch.to_struct_array)
    read_class(Table, lambda table: table.to_struct_array().combine_chunks())
    read_interface(foreign.ARRAY, foreign.READERS["array"])
    read_interface(foreign.STREAM, foreign.READERS["array"])
    read_interface("__arrow_array__", _array_from_arrow_array)


_PICKLERS = {
    "multiprocessing.reduction": "with_multiprocessing",
    "joblib.externals.loky.backend.reduction": "with_loky",
    "loky.backend.reduction": "with_loky",
    "distributed.protocol.serialize": "with_distributed",
}
"""The functions of :mod:`shmarrow.interchange.picklers`, by the module whose pickler they register with."""


def _register(name: str) -> Callable[[ModuleType], object]:
    def then(module: ModuleType) -> None:
        from shmarrow.interchange import picklers

        getattr(picklers, name)(module)

    return then


def _open_arguments() -> None:
    from shmarrow.layout import arguments

    arguments.builder = _array


def _array(values: Any, type: DataType | None) -> Any:
    from shmarrow.build import array

    return array(values, type)


def _array_to_torch(self: Array, device: Any = None, *, writable: bool = True) -> Any:
    """Convert to a torch tensor; see :meth:`shmarrow.Tensor.to_torch`. Booleans are copied: torch stores one per byte.

    Raises
    ------
    CopyRequired
        If the array has nulls, or torch has no dtype for the values; for booleans, if ``writable`` is False.
    MissingExtra
        If torch is not installed.
    """
    from shmarrow.interchange.torch import array_to_torch

    return array_to_torch(self, device, writable=writable)


def _array_dlpack(self: Array, **options: Any) -> Any:
    """Export the values as a DLPack capsule over private writable memory; see :meth:`shmarrow.Tensor.__dlpack__`.

    Booleans are copied, as DLPack stores one per byte.

    Raises
    ------
    CopyRequired
        If the array has nulls, or its values have no zero-copy form.
    """
    from shmarrow.tensor import Tensor

    if self.type.layout == "bool" and not self.null_count and options.get("copy") is not False:
        return Tensor.from_numpy(self.to_numpy(zero_copy_only=False)).__dlpack__(**options)
    return Tensor.from_array(self).__dlpack__(**options)


def _dlpack_device(self: Any) -> tuple[int, int]:
    """Return the DLPack device of the memory, the CPU."""
    return 1, 0


def _only_chunk(column: Any) -> Any:
    """Return a column of at most one chunk as an array."""
    if column.num_chunks > 1:
        step = "use combine_chunks(), which copies them, or one chunk() at a time"
        raise ExportRefused(f"a tensor is contiguous, but the column has {column.num_chunks} chunks; {step}")
    return column.combine_chunks()


def _chunked_to_torch(self: Any, device: Any = None, *, writable: bool = True) -> Any:
    """Convert a column of one chunk to a torch tensor; see :meth:`shmarrow.Array.to_torch`.

    Raises
    ------
    ExportRefused
        If there are several chunks. Other errors as for :meth:`shmarrow.Array.to_torch`.
    """
    return _only_chunk(self).to_torch(device, writable=writable)


def _chunked_dlpack(self: Any, **options: Any) -> Any:
    """Export a column of one chunk as a DLPack capsule; see :meth:`shmarrow.Array.__dlpack__`.

    Raises
    ------
    ExportRefused
        If there are several chunks. Other errors as for :meth:`shmarrow.Array.__dlpack__`.
    """
    return _only_chunk(self).__dlpack__(**options)


for _method, _name in methods.NAMES.items():
    _method.__name__ = _method.__qualname__ = _name
for _kind in ("type", "field", "schema", "array", "chunked_array", "record_batch", "table", "reader"):
    foreign.READERS[_kind] = _reader(_kind)
for _module, _name in _PICKLERS.items():
    import_hooks.when_imported(_module, _register(_name))
import_hooks.when("layout.arguments", _open_arguments)
import_hooks.when("build", _open_array_doors)
import_hooks.when("chunked", _open_chunked_doors)
import_hooks.when("tables", _open_table_doors)
import_hooks.when("tensor.dense", tensors.open_dense)
import_hooks.when("tensor.sparse", tensors.open_sparse)
import_hooks.when("tensor.convert", tensors.open_converters)
_give(Array, "to_torch", _array_to_torch)
_give(Array, "__dlpack__", _array_dlpack)
Array.__dlpack_device__ = _dlpack_device
_Array: Any = Array
_Array.for_consumer = methods.array_for_consumer
_Array.to_pandas = methods.array_to_pandas
_Array.from_pandas = staticmethod(methods.array_from_pandas)
_Columns: Any = Columns
_Columns.for_consumer = methods.columns_for_consumer
_Columns.to_pandas = methods.columns_to_pandas
_Columns.from_pandas = classmethod(methods.columns_from_pandas)
Schema.for_consumer = methods.schema_for_consumer
_Schema: Any = Schema
_Schema.pandas_metadata = property(methods.schema_pandas_metadata)
