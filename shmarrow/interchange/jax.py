"""To and from JAX: dense tensors, over the same memory where JAX can take it.

Rules kept here:

* JAX asks for a version of DLPack that cannot say that memory is read-only, and never writes to memory that it did not
  allocate itself; so it is handed the memory as if it were writable;
* JAX is imported when it is first needed.
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
    """The module ``jax``; MissingExtra where it is not installed."""
    with needed("jax", "jax"):
        import jax
    return jax


def tensor_to_jax(tensor: Tensor, device: Any = None) -> Any:
    """The elements as a ``jax.Array``: over the same memory if that is aligned to 64 bytes, else JAX makes a copy.

    Without ``jax_enable_x64`` JAX makes elements of 64 bits to such of 32, which is a copy too.

    Parameters
    ----------
    device : jax.Device, optional
        Where the array is to be; the CPU, where the memory is, by default.

    Raises
    ------
    ExportRefused
        If JAX has no such type.
    """
    jax = partner()
    storage = tensor.storage if tensor.storage.flags.aligned else copied(tensor.storage)
    made = jax.dlpack.from_dlpack(Exposed(storage, tensor._element))
    return made if device is None else jax.device_put(made, device)


def tensor_from_jax(
    value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Tensor:
    """A tensor over the memory of a ``jax.Array``; one on another device is brought to the CPU first."""
    return Tensor.from_numpy(np.asarray(value), dim_names, metadata=metadata)


Tensor.from_jax = staticmethod(tensor_from_jax)
Tensor.to_jax = tensor_to_jax
