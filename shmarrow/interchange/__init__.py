"""The doors to others: each partner has a file, and none is imported before data goes through its door.

Importing this package gives arrays, batches, tables and types their ``from_...`` and ``to_...`` methods, and
tensors, tables, chunked arrays and :func:`shmarrow.array` theirs as soon as those are imported.
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
    """A function of :mod:`shmarrow.interchange.pyarrow`, which is imported at the first call."""

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
    """Keywords that a later version of the interface may have; None asks for nothing."""
    given = [name for name, value in unknown.items() if value is not None]
    if given:
        raise Unsupported(f"the Arrow PyCapsule interface has no keyword {', '.join(given)} here")


def _type_capsule(self: DataType) -> Any:
    """A PyCapsule ``arrow_schema`` of the type (Arrow PyCapsule interface); errors as :meth:`Schema`'s."""
    from shmarrow.interchange.c_data.export_schema import type_schema

    return type_schema(self).__arrow_c_schema__()


def _field_capsule(self: Field) -> Any:
    """A PyCapsule ``arrow_schema`` of the field (Arrow PyCapsule interface); errors as :meth:`Schema`'s."""
    from shmarrow.interchange.c_data.export_schema import field_schema

    return field_schema(self).__arrow_c_schema__()


def _schema_capsule(self: Schema) -> Any:
    """A PyCapsule ``arrow_schema`` of the schema, as a struct with its fields (Arrow PyCapsule interface).

    Raises
    ------
    ExportRefused
        If a name contains a NUL character, which ends a string in C.
    MissingExtra
        If nanoarrow is not installed.
    """
    from shmarrow.interchange.c_data.export_schema import schema_schema

    return schema_schema(self).__arrow_c_schema__()


def _array_capsules(self: Array, requested_schema: Any = None, **unknown: Any) -> tuple[Any, Any]:
    """PyCapsules ``arrow_schema`` and ``arrow_array`` of the array (Arrow PyCapsule interface); copies no buffer.

    Before the first export the values are checked, once: nothing that foreign code follows leads out of the buffers.
    The memory stays as long as the consumer uses it.

    Parameters
    ----------
    requested_schema : PyCapsule, optional
        The ``arrow_schema`` of the type that the consumer asks for; the values are cast to it without loss.

    Raises
    ------
    InvalidData
        If the array breaks the rules of the format, or a value does not fit the requested type.
    InvalidType
        If there is no cast to the requested type.
    MissingExtra
        If nanoarrow is not installed.
    """
    from shmarrow.interchange.c_data.export_array import export_array

    _refuse(unknown)
    return export_array(self, requested_schema)


def _batch_capsules(self: RecordBatch, requested_schema: Any = None, **unknown: Any) -> tuple[Any, Any]:
    """PyCapsules ``arrow_schema`` and ``arrow_array`` of the batch as a struct of its columns; copies no buffer.

    Parameters and errors are those of :meth:`Array.__arrow_c_array__`; a requested schema has the names of the columns.
    """
    from shmarrow.interchange.c_data.export_array import export_batch

    _refuse(unknown)
    return export_batch(self, requested_schema)


def _batch_stream(self: RecordBatch, requested_schema: Any = None, **unknown: Any) -> Any:
    """A PyCapsule ``arrow_array_stream`` of this one batch; see :meth:`__arrow_c_array__`."""
    from shmarrow.interchange.c_data.export_stream import export_batches

    _refuse(unknown)
    return export_batches(self.schema, [self], requested_schema)


def _table_stream(self: Any, requested_schema: Any = None, **unknown: Any) -> Any:
    """A PyCapsule ``arrow_array_stream`` of the batches (Arrow PyCapsule interface); copies no buffer.

    Tables of many batches are handed over one batch at a time, which needs pyarrow. Parameters and errors are those of
    :meth:`Array.__arrow_c_array__`; an error in a later batch reaches the consumer through the stream.
    """
    from shmarrow.interchange.c_data.export_stream import export_batches

    _refuse(unknown)
    return export_batches(self.schema, self.batches, requested_schema)


def _chunked_array_stream(self: Any, requested_schema: Any = None, **unknown: Any) -> Any:
    """A PyCapsule ``arrow_array_stream`` of the chunks (Arrow PyCapsule interface); copies no buffer.

    Parameters and errors are those of :meth:`Array.__arrow_c_array__`.
    """
    from shmarrow.interchange.c_data.export_stream import export_chunks

    _refuse(unknown)
    return export_chunks(self, requested_schema)


def _reader_stream(self: Any, requested_schema: Any = None, **unknown: Any) -> Any:
    """A PyCapsule ``arrow_array_stream`` of the batches that are left; each is read when the consumer asks for it.

    Parameters and errors are those of :meth:`Array.__arrow_c_array__`; needs pyarrow. An error in a later batch
    reaches the consumer through the stream.
    """
    from shmarrow.interchange.c_data.export_stream import export_reader

    _refuse(unknown)
    return export_reader(self, requested_schema)


def _file_stream(self: Any, requested_schema: Any = None, **unknown: Any) -> Any:
    """A PyCapsule ``arrow_array_stream`` of all batches; any number of consumers may have one.

    Parameters and errors are those of :meth:`Table.__arrow_c_stream__`.
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
    """A function of :mod:`shmarrow.interchange.c_data.doors`, which is imported at the first call."""

    def read(value: Any) -> Any:
        from shmarrow.interchange.c_data.doors import READERS

        return READERS[kind](value)

    return read


def _array_from_arrow_array(value: Any) -> Any:
    """The array that pyarrow makes of an object with ``__arrow_array__``."""
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
"""The functions of :mod:`shmarrow.interchange.picklers`, by the modules with the picklers that they register with."""


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
    """A torch tensor of the values; see :meth:`shmarrow.Tensor.to_torch`. Bools are copied, as torch has a byte each.

    Raises
    ------
    CopyRequired
        If the array has nulls, or values that torch has no type for; for bools, if ``writable`` is False.
    MissingExtra
        If torch is not installed.
    """
    from shmarrow.interchange.torch import array_to_torch

    return array_to_torch(self, device, writable=writable)


def _array_dlpack(self: Array, **options: Any) -> Any:
    """The values as a DLPack capsule, over writable memory of their own; see :meth:`shmarrow.Tensor.__dlpack__`.

    Bools are copied, as DLPack has a byte for each.

    Raises
    ------
    CopyRequired
        If the array has nulls, or its values no zero-copy form.
    """
    from shmarrow.tensor import Tensor

    if self.type.layout == "bool" and not self.null_count and options.get("copy") is not False:
        return Tensor.from_numpy(self.to_numpy(zero_copy_only=False)).__dlpack__(**options)
    return Tensor.from_array(self).__dlpack__(**options)


def _dlpack_device(self: Any) -> tuple[int, int]:
    """The device that the memory is on: the CPU."""
    return 1, 0


def _only_chunk(column: Any) -> Any:
    """The array of a column in one chunk, or in none."""
    if column.num_chunks > 1:
        step = "use combine_chunks(), which copies them, or one chunk() at a time"
        raise ExportRefused(f"a tensor is contiguous, but the column has {column.num_chunks} chunks; {step}")
    return column.combine_chunks()


def _chunked_to_torch(self: Any, device: Any = None, *, writable: bool = True) -> Any:
    """A torch tensor of the values of one chunk; see :meth:`shmarrow.Array.to_torch`.

    Raises
    ------
    ExportRefused
        If there are several chunks. The other errors are those of :meth:`shmarrow.Array.to_torch`.
    """
    return _only_chunk(self).to_torch(device, writable=writable)


def _chunked_dlpack(self: Any, **options: Any) -> Any:
    """The values of one chunk as a DLPack capsule; see :meth:`shmarrow.Array.__dlpack__`.

    Raises
    ------
    ExportRefused
        If there are several chunks. The other errors are those of :meth:`shmarrow.Array.__dlpack__`.
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
