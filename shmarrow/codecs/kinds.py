"""The names of the kinds of values, and the metadata that mark them."""

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
"""What a store gives back."""

KIND = b"shmarrow:kind"
COLUMN = "values"
"""The name of the column that an array or a single value lies in."""

SCALARS: dict[str, tuple[DataType, ...]] = {
    "str": (large_string(),),
    "int": (int64(), uint64()),
    "float": (float64(),),
    "bool": (bool_(),),
}
"""The kinds of single values, and the types of the column that they lie in."""

BYTES: dict[str, Any] = {"bytes": bytes, "bytearray": bytearray}
"""The kinds of values that are copied out of one dimension of bytes, and what does so."""


def mark(kind: str) -> FrozenMetadata:
    """The metadata that mark a kind."""
    return _MARKS[kind]


def unmarked(metadata: Metadata | None) -> dict[bytes, bytes]:
    """Metadata without the mark of a kind."""
    return {key: value for key, value in (metadata or {}).items() if key != KIND}


_MARKED = ("record_batch", "array", "chunked_array", "ndarray", "memoryview", *BYTES, *SCALARS)
_MARKS = {kind: FrozenMetadata({KIND: kind.encode()}) for kind in _MARKED}
RECORD_BATCH = _MARKS["record_batch"]
