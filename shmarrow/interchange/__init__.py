"""The doors to others: each partner has a file, and none is imported before data goes through its door.

Importing this package gives arrays, batches, tables and types their ``from_...`` and ``to_...`` methods, and tensors
theirs as soon as those are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmarrow import import_hooks
from shmarrow.batch import RecordBatch
from shmarrow.build.sources import read_interface
from shmarrow.chunked import ChunkedArray
from shmarrow.layout import Array
from shmarrow.tables import Table
from shmarrow.types import DataType, Field, Schema


def _pyarrow(name: str) -> Callable[[Any], Any]:
    """A function of :mod:`shmarrow.interchange.pyarrow`, which is imported at the first call."""

    def door(value: Any) -> Any:
        from shmarrow.interchange import pyarrow

        return getattr(pyarrow, name)(value)

    door.__name__ = door.__qualname__ = name
    door.__doc__ = f"See :func:`shmarrow.interchange.pyarrow.{name}`; no buffer is copied."
    return door


_PYARROW: tuple[tuple[Any, str, str], ...] = (
    (DataType, "type_from_pyarrow", "type_to_pyarrow"),
    (Field, "field_from_pyarrow", "field_to_pyarrow"),
    (Schema, "schema_from_pyarrow", "schema_to_pyarrow"),
    (Array, "array_from_pyarrow", "array_to_pyarrow"),
    (ChunkedArray, "array_from_pyarrow", "chunked_array_to_pyarrow"),
    (RecordBatch, "record_batch_from_pyarrow", "record_batch_to_pyarrow"),
    (Table, "table_from_pyarrow", "table_to_pyarrow"),
)

for _class, _reader, _writer in _PYARROW:
    _class.from_pyarrow = staticmethod(_pyarrow(_reader))
    _class.to_pyarrow = _pyarrow(_writer)


def _array_from_arrow(value: Any) -> Any:
    from shmarrow.interchange.arrow import array_from_arrow

    return array_from_arrow(value)


for _method in ("__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__"):
    read_interface(_method, _array_from_arrow)


def _open_tensor_doors() -> None:
    from shmarrow.interchange import tensors  # noqa: F401


def _array_to_torch(array: Array, *arguments: Any, **options: Any) -> Any:
    """A torch tensor of the values, over the same memory; see :meth:`shmarrow.Tensor.to_torch`.

    Raises
    ------
    CopyRequired
        If the array has nulls, or its values no zero-copy form.
    MissingExtra
        If torch is not installed.
    """
    from shmarrow.interchange.torch import array_to_torch

    return array_to_torch(array, *arguments, **options)


import_hooks.when("tensor", _open_tensor_doors)
Array.to_torch = _array_to_torch
