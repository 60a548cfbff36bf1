"""Kinds of values and their metadata marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from shmarrow.types import DataType, Metadata, bool_, float64, int64, large_string, uint64
from shmarrow.types.base import FrozenMetadata

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.batch import RecordBatch
    from shmarrow.chunked import ChunkedArray
    from shmarrow.ipc.tensor.bundle import Bundle
    from shmarrow.layout import Array
    from shmarrow.tables import Table
    from shmarrow.tensor import SparseTensor, Tensor

Stored: TypeAlias = (
    "RecordBatch | Table | Array | ChunkedArray | Tensor | SparseTensor | Bundle | npt.NDArray[Any] | bytes | bytearray"
    " | memoryview | str | int | float | bool"
)
"""The values that a store returns."""

KIND = b"shmarrow:kind"
COLUMN = "values"
"""The column name for an array or a scalar."""

SCALARS: dict[str, tuple[DataType, ...]] = {
    "str": (large_string(),),
    "int": (int64(), uint64()),
    "float": (float64(),),
    "bool": (bool_(),),
}
"""The kinds of scalars, and their column types."""

BYTES: dict[str, Any] = {"bytes": bytes, "bytearray": bytearray}
"""The kinds copied from a one-dimensional byte tensor, and their constructors."""


def mark(kind: str) -> FrozenMetadata:
    """The metadata mark of a kind."""
    return _MARKS[kind]


def unmarked(metadata: Metadata | None) -> dict[bytes, bytes]:
    """Metadata without the mark."""
    return {key: value for key, value in (metadata or {}).items() if key != KIND}


_MARKED = ("record_batch", "array", "chunked_array", "ndarray", "memoryview", *BYTES, *SCALARS)
_MARKS = {kind: FrozenMetadata({KIND: kind.encode()}) for kind in _MARKED}
RECORD_BATCH = _MARKS["record_batch"]
