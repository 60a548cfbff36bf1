"""Tensors from whatever holds one: arrays of numpy, and objects of the packages that have a door in ``interchange``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shmarrow.errors import InvalidType
from shmarrow.tensor.dense import Tensor
from shmarrow.tensor.sparse import SparseTensor

CONVERTERS: dict[str, Callable[[Any], Tensor | SparseTensor]] = {}
"""By the name of a package, what makes a tensor of its objects; each door adds its own."""


def as_tensor(value: Any) -> Tensor | SparseTensor:
    """A tensor over the memory of an ndarray, or of a tensor of another package.

    Raises
    ------
    InvalidType
        If it is neither, or its elements are of no fixed-width type.
    """
    if isinstance(value, (Tensor, SparseTensor)):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return Tensor.from_numpy(value)
    for cls in type(value).__mro__:
        convert = CONVERTERS.get(cls.__module__.partition(".")[0])
        if convert is not None:
            return convert(value)
    if hasattr(value, "__array__"):
        return Tensor.from_numpy(np.asarray(value))
    raise InvalidType(f"expected a tensor or an array, found {type(value).__name__}")
