"""Conversion to and from JAX: dense tensors, zero-copy if JAX can use the memory.

Invariants:

* JAX requests a version of DLPack without a read-only flag, and never writes to memory that it did not allocate; so the
  memory is exported as writable;
* JAX is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from shmarrow.optional import optional
from shmarrow.segment.mappings import copied
from shmarrow.tensor import Tensor
from shmarrow.tensor.dense import Exposed
from shmarrow.types import MetadataLike

if TYPE_CHECKING:
    import jax


def tensor_to_jax(tensor: Tensor, device: jax.Device | None = None) -> jax.Array:
    """Implement :meth:`Tensor.to_jax`."""
    jax = optional("jax")
    storage = tensor.storage if tensor.storage.flags.aligned else copied(tensor.storage)
    made = jax.dlpack.from_dlpack(Exposed(storage, tensor._element))
    return made if device is None else jax.device_put(made, device)


def tensor_from_jax(
    value: jax.Array, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Tensor:
    """Implement :meth:`Tensor.from_jax`."""
    return Tensor.from_numpy(np.asarray(value), dim_names, metadata=metadata)
