# SPDX-License-Identifier: Apache-2.0
"""Conversion to and from torch: dense and sparse tensors, and columns, zero-copy.

Invariants:

* torch has no read-only tensors, so on the CPU it gets private memory: copy-on-write pages of the mapping, or a copy.
  The shared memory itself is exported on request, and is the source of transfers to other devices;
* types that torch lacks are rejected by name;
* the values of the index of a sparse tensor are validated before the export;
* torch is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.errors import InvalidType, StorageError, Unsupported, full_name, optional
from shmarrow.layout.dlpack import Exposed, check_storage, is_cpu, own_elements, to_torch
from shmarrow.tensor import SparseCOOTensor, SparseMatrix, SparseTensor, Tensor
from shmarrow.tensor.dense import as_dim_names
from shmarrow.tensor.element import ML_DTYPES, as_element
from shmarrow.tensor.sparse import FORMS, Form
from shmarrow.types import MetadataLike, as_metadata

if TYPE_CHECKING:
    import torch

# --- dense ------------------------------------------------------------------------------------------------------


def tensor_to_torch(tensor: Tensor, device: torch.device | str | None = None, *, writable: bool = True) -> torch.Tensor:
    """Implement :meth:`Tensor.to_torch`."""
    shared = not (writable and is_cpu(device))
    return to_torch(Exposed(tensor.storage, tensor._element, tensor.ml_dtype) if shared else tensor, device)


def tensor_from_torch(
    value: torch.Tensor, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Tensor:
    """Implement :meth:`Tensor.from_torch`."""
    torch = optional("torch")
    if not isinstance(value, torch.Tensor):
        raise InvalidType(f"expected a torch.Tensor, found {type(value).__name__}")
    if value.layout is not torch.strided or value.is_nested:
        layout = "nested tensors" if value.is_nested else f"layout {value.layout}"
        raise InvalidType(
            f"expected a dense tensor, found one of {layout}; see SparseCOOTensor.from_torch and to_padded_tensor"
        )
    check_storage(value)
    name = str(value.dtype).removeprefix("torch.")
    try:
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        if name in ML_DTYPES:
            plain = plain.view(torch.uint16 if ML_DTYPES[name].itemsize == 2 else torch.uint8)
        storage = plain.numpy()
    except (TypeError, RuntimeError) as error:  # a dtype that numpy lacks, or a tensor without data
        raise InvalidType(
            f"a {full_name(value)} of {value.dtype} on {value.device} has no Arrow type: {error}"
        ) from None
    element = as_element(name if name in ML_DTYPES else storage.dtype)
    return Tensor(storage, element, as_dim_names(dim_names, storage.ndim), as_metadata(metadata))


# --- sparse -----------------------------------------------------------------------------------------------------


def sparse_to_torch(
    tensor: SparseTensor, device: torch.device | str | None = None, *, writable: bool = True
) -> torch.Tensor:
    """Implement :meth:`SparseTensor.to_torch`."""
    torch = optional("torch")
    tensor.validate(full=True)
    owners = (tensor.storage, *tensor.index) if writable and is_cpu(device) else ()

    def part(array: NDArray, dtype: str | None = None) -> Any:
        """Export a part; zero-copy if a conversion here has just allocated it."""
        if dtype is not None:
            array = array.astype(dtype, copy=False)
        if any(np.may_share_memory(array, one) for one in owners):
            array = own_elements(array)
        element = tensor._element if dtype is None else as_element(array.dtype)
        return torch.from_dlpack(Exposed(array, element, element.ml_dtype))

    if isinstance(tensor, SparseMatrix):
        tensor = tensor.coalesced()
        make = getattr(torch, f"sparse_{tensor.form.lower()}_tensor")
        dtype = "<i4" if {each.dtype for each in tensor.index} == {np.dtype("<i4")} else "<i8"
        index = [part(each, dtype) for each in tensor.index]
        result = make(*index, part(tensor.storage), tensor.shape, check_invariants=False)
    else:
        coo = tensor.as_form(SparseCOOTensor)
        canonical = coo.is_canonical or None
        coordinates, values = part(coo.indices, "<i8").T, part(coo.storage)
        result = torch.sparse_coo_tensor(coordinates, values, coo.shape, is_coalesced=canonical, check_invariants=False)
    return result if device is None else result.to(device)


def sparse_from_torch(
    cls: type[Form],
    value: torch.Tensor,
    dim_names: Iterable[str] | None = None,
    *,
    metadata: MetadataLike | None = None,
) -> Form:
    """Implement :meth:`SparseTensor.from_torch`; of SparseTensor itself, the format is kept."""
    torch = optional("torch")
    if not isinstance(value, torch.Tensor):
        raise InvalidType(f"expected a torch.Tensor, found {type(value).__name__}")
    check_storage(value)
    layout = value.layout
    if layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        raise InvalidType(f"expected a sparse COO, CSR or CSC tensor, found one of layout {layout}")
    if value.dense_dim() or (layout is not torch.sparse_coo and value.ndim != 2):
        raise Unsupported(f"a tensor of shape {tuple(value.shape)} and layout {layout} with dense or batch dimensions")
    value = value.detach().cpu()
    labels: dict[str, Any] = {"dim_names": dim_names, "metadata": metadata}
    shape = tuple(value.shape)
    if layout is torch.sparse_coo:
        coordinates = value._indices().numpy().T
        canonical = True if value.is_coalesced() else None
        values = tensor_from_torch(value._values())
        return SparseCOOTensor.from_numpy(values, coordinates, shape, is_canonical=canonical, **labels).as_form(cls)
    values = tensor_from_torch(value.values())
    form, parts = (
        ("CSR", (value.crow_indices(), value.col_indices()))
        if layout is torch.sparse_csr
        else ("CSC", (value.ccol_indices(), value.row_indices()))
    )
    tensor: SparseTensor = FORMS[form].from_numpy(values, *[part.numpy() for part in parts], shape, **labels)
    return tensor.as_form(cls)


# --- GPU --------------------------------------------------------------------------------------------------------

_READ_ONLY = 8  # cudaHostRegisterReadOnly


@contextmanager
def pinned(tensor: Tensor) -> Iterator[Tensor]:
    """Implement :meth:`Tensor.pinned`."""
    torch = optional("torch")
    if not torch.cuda.is_available():
        raise Unsupported("pinning needs a GPU, but torch sees no CUDA device")
    runtime = torch.cuda.cudart()
    address = tensor.storage.__array_interface__["data"][0]
    reach = sum([(size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True)])
    size = reach + tensor.storage.itemsize if tensor.size else 0
    if not size:
        yield tensor
        return
    code = int(runtime.cudaHostRegister(address, size, _READ_ONLY))
    if code:
        raise StorageError(code, f"cannot pin {size} bytes at {address:#x}: CUDA error {code}")
    try:
        yield tensor
    finally:
        torch.cuda.synchronize()
        runtime.cudaHostUnregister(address)


# --- any format -------------------------------------------------------------------------------------------------


def from_torch(value: torch.Tensor) -> Tensor | SparseTensor:
    """Convert any ``torch.Tensor``, keeping its format."""
    dense = value.layout is optional("torch").strided
    return tensor_from_torch(value) if dense else sparse_from_torch(SparseTensor, value)
