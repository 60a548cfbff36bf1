# SPDX-License-Identifier: Apache-2.0
"""Conversion of ndarrays, columns and other libraries' tensors to tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shmarrow import capsules
from shmarrow.build import array
from shmarrow.errors import InvalidType, full_name, optional
from shmarrow.tensor.dense import Tensor
from shmarrow.tensor.sparse import FORMS, SparseCSFTensor, SparseTensor


def as_tensor(value: Any) -> Tensor | SparseTensor:
    """Wrap the memory of an ndarray, a column without nulls, or another library's tensor.

    Raises
    ------
    InvalidType
        If it is none of these, or its elements have no fixed-width type.
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
    if capsules.is_column(value) and not isinstance(getattr(value, "dtype", None), np.dtype):
        return Tensor.from_array(array(value, from_pandas=False))
    if hasattr(value, "columns") or hasattr(value, "schema"):
        raise InvalidType(f"a {full_name(value)} is not a tensor: its columns may differ in type; pass an ndarray")
    if hasattr(value, "__array__"):
        return Tensor.from_numpy(value)
    raise InvalidType(f"expected a tensor or an array, found {full_name(value)}")


def may_be_tensor(value: Any) -> bool:
    """Whether :func:`as_tensor` may accept a value, by its class."""
    return hasattr(type(value), "__array__") or _converter(value) is not None


def _from_torch(value: Any) -> Tensor | SparseTensor:
    from shmarrow.interchange.torch import from_torch

    return from_torch(value)


def _from_pyarrow(value: Any) -> Tensor | SparseTensor:
    """Make a tensor over the memory of a pyarrow tensor, or of a pyarrow column without nulls.

    Raises
    ------
    InvalidType
        If it is neither.
    CopyRequired
        If a column has nulls, or its values have no zero-copy form in numpy.
    """
    if isinstance(value, optional("pyarrow").Tensor):
        return Tensor.from_numpy(value.to_numpy(), value.dim_names or None)
    form = next((form for form in FORMS.values() if form.__name__ == type(value).__name__), None)
    if form is SparseCSFTensor:
        raise InvalidType("pyarrow does not expose the axis order of a SparseCSFTensor; pass to_tensor()")
    if form is not None:
        return form.from_numpy(*value.to_numpy(), value.shape, dim_names=value.dim_names or None)
    if capsules.is_column(value):
        return Tensor.from_array(array(value, from_pandas=False))
    raise InvalidType(f"expected a tensor or an array, found {full_name(value)}")


_CONVERTERS: dict[str, Callable[[Any], Tensor | SparseTensor]] = {
    "jax": Tensor.from_jax,
    "jaxlib": Tensor.from_jax,
    "pyarrow": _from_pyarrow,
    "scipy": SparseTensor.from_scipy,
    "sparse": SparseTensor.from_pydata_sparse,
    "torch": _from_torch,
}
"""The converters to tensors, by package."""


def _converter(value: Any) -> Callable[[Any], Tensor | SparseTensor] | None:
    packages = [cls.__module__.partition(".")[0] for cls in type(value).__mro__]
    return next((_CONVERTERS[package] for package in packages if package in _CONVERTERS), None)
