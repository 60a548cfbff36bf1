# SPDX-License-Identifier: Apache-2.0
"""Kinds of values and their metadata marks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from shmarrow.types import DataType, FrozenMetadata, Metadata, float64, int64, uint8, uint64

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.columns import ChunkedArray, RecordBatch, Table
    from shmarrow.ipc.tensor.bundle import Bundle
    from shmarrow.layout import Array
    from shmarrow.tensor import SparseTensor, Tensor

Stored: TypeAlias = (
    "RecordBatch | Table | Array | ChunkedArray | Tensor | SparseTensor | Bundle | npt.NDArray[Any] | bytes | bytearray"
    " | memoryview | str | int | float | bool"
)
"""The values that a store returns."""

KIND = b"shmarrow:kind"
COLUMN = "values"
"""The column name for an array."""

NUMBERS: dict[str, tuple[DataType, ...]] = {"int": (int64(), uint64()), "float": (float64(),), "bool": (uint8(),)}
"""The kinds of numbers, which are tensors of one element, and its types."""

BYTES: dict[str, Any] = {"bytes": bytes, "bytearray": bytearray, "str": partial(str, encoding="utf-8")}
"""The kinds copied from a one-dimensional byte tensor, and their constructors."""


def unmarked(metadata: Metadata | None) -> dict[bytes, bytes]:
    """Metadata without the mark."""
    return {key: value for key, value in (metadata or {}).items() if key != KIND}


_MARKED = ("record_batch", "array", "chunked_array", "ndarray", "memoryview", *BYTES, *NUMBERS)
MARKS = {kind: FrozenMetadata({KIND: kind.encode()}) for kind in _MARKED}
"""The metadata marks of kinds."""
RECORD_BATCH = MARKS["record_batch"]
