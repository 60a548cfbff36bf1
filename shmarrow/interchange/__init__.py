"""The doors to others: each partner has a file, and none is imported before data goes through its door.

Importing this package gives arrays, batches, tables and types their ``from_...`` and ``to_...`` methods, and
tensors, tables, chunked arrays and :func:`shmarrow.array` theirs as soon as those are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmarrow import import_hooks
from shmarrow.batch import RecordBatch
from shmarrow.layout import Array, arguments
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

    _open_doors(ChunkedArray, "array_from_pyarrow", "chunked_array_to_pyarrow")


def _open_table_doors() -> None:
    from shmarrow.tables import Table

    _open_doors(Table, "table_from_pyarrow", "table_to_pyarrow")


def _array_from_arrow(value: Any) -> Any:
    from shmarrow.interchange.arrow import array_from_arrow

    return array_from_arrow(value)


def _open_array_doors() -> None:
    from shmarrow.build.sources import read_class, read_interface
    from shmarrow.chunked import ChunkedArray
    from shmarrow.tables import Table

    read_class(ChunkedArray, ChunkedArray.combine_chunks)
    read_class(RecordBatch, RecordBatch.to_struct_array)
    read_class(Table, lambda table: table.to_struct_array().combine_chunks())
    for method in ("__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__"):
        read_interface(method, _array_from_arrow)


def _array(values: Any, type: DataType | None) -> Any:
    from shmarrow.build import array

    return array(values, type)


def _open_tensor_doors() -> None:
    from shmarrow.interchange import tensors  # noqa: F401


def _array_to_torch(array: Array, device: Any = None, *, writable: bool = True) -> Any:
    """A torch tensor of the values; see :meth:`shmarrow.Tensor.to_torch`.

    Raises
    ------
    CopyRequired
        If the array has nulls, or its values no zero-copy form.
    MissingExtra
        If torch is not installed.
    """
    from shmarrow.interchange.torch import array_to_torch

    return array_to_torch(array, device, writable=writable)


def _array_dlpack(array: Array, **options: Any) -> Any:
    """The values as a DLPack capsule, over writable memory of their own; see :meth:`shmarrow.Tensor.__dlpack__`.

    Raises
    ------
    CopyRequired
        If the array has nulls, or its values no zero-copy form.
    """
    from shmarrow.tensor import Tensor

    return Tensor.from_array(array).__dlpack__(**options)


def _array_dlpack_device(array: Array) -> tuple[int, int]:
    """The device that the memory is on: the CPU."""
    return 1, 0


arguments.builder = _array
import_hooks.when("build", _open_array_doors)
import_hooks.when("chunked", _open_chunked_doors)
import_hooks.when("tables", _open_table_doors)
import_hooks.when("tensor", _open_tensor_doors)
Array.to_torch = _array_to_torch
Array.__dlpack__ = _array_dlpack
Array.__dlpack_device__ = _array_dlpack_device
