"""Conversion to and from JAX: arrays and dense tensors, zero-copy if JAX can use the memory.

Invariants:

* JAX requests a version of DLPack without a read-only flag, and never writes to memory that it did not allocate; so the
  memory is exported as writable;
* JAX is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.casts.ndarray import from_ndarray
from shmarrow.errors import InvalidData
from shmarrow.layout.array import Array
from shmarrow.optional import optional
from shmarrow.segment.mappings import copied
from shmarrow.tensor import Tensor
from shmarrow.tensor.dense import Exposed
from shmarrow.types import MetadataLike, from_numpy_dtype

if TYPE_CHECKING:
    import jax


def tensor_to_jax(tensor: Tensor, device: jax.Device | None = None) -> jax.Array:
    """Implement :meth:`Tensor.to_jax`."""
    jax = optional("jax")
    tensor = _narrowed(jax, tensor)
    storage = tensor.storage if tensor.storage.flags.aligned else copied(tensor.storage)
    made = jax.dlpack.from_dlpack(Exposed(storage, tensor._element))
    return made if device is None else jax.device_put(made, device)


def _narrowed(jax: Any, tensor: Tensor) -> Tensor:
    """The tensor in the dtype that JAX would convert it to, without a check of the values."""
    if tensor.ml_dtype or tensor.dtype.kind not in "iuf":
        return tensor
    narrow = np.dtype(jax.dtypes.canonicalize_dtype(tensor.dtype))
    if narrow == tensor.dtype:
        return tensor
    try:
        values = from_ndarray(from_numpy_dtype(narrow), tensor.storage.reshape(-1), None)
    except InvalidData as error:
        error.hint = 'jax.config.update("jax_enable_x64", True) keeps 64 bits'
        raise
    return Tensor.from_numpy(values.reshape(tensor.shape))


def array_to_jax(array: Array, device: jax.Device | None = None) -> jax.Array:
    """Implement :meth:`Array.to_jax`."""
    if array.type.layout == "bool" and not array.null_count:
        return tensor_to_jax(Tensor.from_numpy(array.to_numpy(zero_copy_only=False)), device)
    return tensor_to_jax(Tensor.from_array(array), device)


def tensor_from_jax(
    value: jax.Array, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Tensor:
    """Implement :meth:`Tensor.from_jax`."""
    return Tensor.from_numpy(np.asarray(value), dim_names, metadata=metadata)
