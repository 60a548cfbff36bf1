"""The doors to others: each partner has a file, and none is imported before data goes through its door.

Importing this package gives arrays, batches, tables and types their ``from_...`` and ``to_...`` methods, and tensors
theirs as soon as those are imported.
"""

from __future__ import annotations

from typing import Any

from shmarrow import later
from shmarrow.interchange import pyarrow as pyarrow
from shmarrow.layout import Array


def _open_tensor_doors() -> None:
    from shmarrow.interchange import tensors  # noqa: F401


def _array_to_torch(array: Array, *arguments: Any, **options: Any) -> Any:
    from shmarrow.interchange.torch import array_to_torch

    return array_to_torch(array, *arguments, **options)


later.when("tensor", _open_tensor_doors)
Array.to_torch = _array_to_torch
