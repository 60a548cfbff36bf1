# SPDX-License-Identifier: Apache-2.0
"""Conversion to and from JAX: arrays and dense tensors, zero-copy if JAX can use the memory.

Invariants:

* JAX requests a version of DLPack without a read-only flag, and never writes to memory that it did not allocate; so the
  memory is exported as writable;
* JAX is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.casts.ndarray import from_ndarray
from shmarrow.errors import InvalidData, optional
from shmarrow.layout.dlpack import Exposed, elements_of
from shmarrow.memory.mappings import copied
from shmarrow.types import from_numpy_dtype

if TYPE_CHECKING:
    import jax


def to_jax(storage: NDArray, type: object, ml_dtype: str | None = None, device: jax.Device | None = None) -> jax.Array:
    """Implement :meth:`Tensor.to_jax`; the first arguments as for :func:`shmarrow.layout.dlpack.export`."""
    jax = optional("jax")
    if ml_dtype is None and storage.dtype.kind in "iuf":
        storage = _narrowed(jax, storage)
    if not _is_compact(storage):
        storage = storage.copy()
    storage = storage if storage.flags.aligned else copied(storage)
    array = jax.dlpack.from_dlpack(Exposed(storage, type, ml_dtype))
    return array if device is None else jax.device_put(array, device)


def _is_compact(values: NDArray) -> bool:
    """Whether elements have no gaps and no repetition, in any order of the dimensions; JAX takes no others."""
    order = sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
    return bool(values.transpose(order).flags.c_contiguous)


def _narrowed(jax: Any, values: NDArray) -> NDArray:
    """Convert 64-bit numbers to 32 bits where JAX has no others."""
    narrow = np.dtype(jax.dtypes.canonicalize_dtype(values.dtype))
    if narrow == values.dtype:
        return values
    try:
        return from_ndarray(from_numpy_dtype(narrow), values.reshape(-1), None).reshape(values.shape)
    except InvalidData as error:
        error.hint = 'jax.config.update("jax_enable_x64", True) keeps 64 bits'
        raise


def array_to_jax(array: Any, device: jax.Device | None = None) -> jax.Array:
    """Implement :meth:`Array.to_jax`."""
    return to_jax(elements_of(array, copies=True), array.type, None, device)
