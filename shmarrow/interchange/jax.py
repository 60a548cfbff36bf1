"""Conversion to and from JAX: dense tensors, zero-copy if JAX can use the memory.

Invariants:

* JAX requests a version of DLPack without a read-only flag, and never writes to memory that it did not allocate; so the
  memory is exported as writable;
* JAX is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from shmarrow.interchange.partner import needed
from shmarrow.segment.mappings import copied
from shmarrow.tensor import Tensor
from shmarrow.tensor.dense import Exposed
from shmarrow.types import MetadataLike


@cache
def partner() -> Any:
    """Import ``jax``; MissingExtra if it is not installed."""
    with needed("jax", "jax"):
        import jax
    return jax


def tensor_to_jax(tensor: Tensor, device: Any = None) -> Any:
    """Convert to a ``jax.Array``: zero-copy if the memory is aligned to 64 bytes, otherwise JAX copies it.

    Without ``jax_enable_x64`` JAX converts 64-bit elements to 32 bits, which copies them, too.

    Parameters
    ----------
    device : jax.Device, optional
        Target device; by default the CPU.

    Raises
    ------
    ExportRefused
        If JAX has no such dtype.
    """
    jax = partner()
    storage = tensor.storage if tensor.storage.flags.aligned else copied(tensor.storage)
    made = jax.dlpack.from_dlpack(Exposed(storage, tensor._element))
    return made if device is None else jax.device_put(made, device)


def tensor_from_jax(
    value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Tensor:
    """Make a tensor over the memory of a ``jax.Array``; arrays on other devices are copied to the CPU."""
    return Tensor.from_numpy(np.asarray(value), dim_names, metadata=metadata)


Tensor.from_jax = staticmethod(tensor_from_jax)
Tensor.to_jax = tensor_to_jax
