"""Tensors from whatever holds one: arrays of numpy, and objects of the packages that have a door in ``interchange``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shmarrow import import_hooks
from shmarrow.build import array
from shmarrow.errors import InvalidType, full_name
from shmarrow.tensor.dense import Tensor
from shmarrow.tensor.element import is_column
from shmarrow.tensor.sparse import SparseTensor

CONVERTERS: dict[str, Callable[[Any], Tensor | SparseTensor]] = {}
"""By the name of a package, what makes a tensor of its objects; each door adds its own."""


def as_tensor(value: Any) -> Tensor | SparseTensor:
    """A tensor over the memory of an ndarray, of a column without nulls, or of a tensor of another package.

    Raises
    ------
    InvalidType
        If it is none of these, or its elements are of no fixed-width type.
    CopyRequired
        If a column has nulls, or numpy has no zero-copy form of its values.
    """
    if isinstance(value, (Tensor, SparseTensor)):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return Tensor.from_numpy(value)
    convert = _converter(value)
    if convert is not None:
        return convert(value)
    if is_column(value) and not isinstance(getattr(value, "dtype", None), np.dtype):
        return Tensor.from_array(array(value, from_pandas=False))
    if hasattr(value, "columns") or hasattr(value, "schema"):
        raise InvalidType(f"a {full_name(value)} is not a tensor: its columns have types of their own; pass an ndarray")
    if hasattr(value, "__array__"):
        return Tensor.from_numpy(value)
    raise InvalidType(f"expected a tensor or an array, found {full_name(value)}")


def may_be_tensor(value: Any) -> bool:
    """Whether a value is of a class that :func:`as_tensor` looks into."""
    return hasattr(type(value), "__array__") or _converter(value) is not None


def _converter(value: Any) -> Callable[[Any], Tensor | SparseTensor] | None:
    packages = [cls.__module__.partition(".")[0] for cls in type(value).__mro__]
    return next((CONVERTERS[package] for package in packages if package in CONVERTERS), None)


import_hooks.arrived("tensor.convert")
