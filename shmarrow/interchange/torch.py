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
from functools import cache
from typing import Any

import numpy as np

from shmarrow.errors import CopyRequired, ExportRefused, InvalidType, StorageError, Unsupported
from shmarrow.interchange.partner import needed
from shmarrow.layout import Array
from shmarrow.tensor import (
    SparseCOOTensor,
    SparseCSCMatrix,
    SparseCSFTensor,
    SparseCSRMatrix,
    SparseMatrix,
    SparseTensor,
    Tensor,
)
from shmarrow.tensor.dense import Exposed, as_dim_names, integers_of, own_elements
from shmarrow.tensor.element import ML_DTYPES, NDArray, as_element
from shmarrow.types import MetadataLike, as_metadata


@cache
def partner() -> Any:
    """Import ``torch``; MissingExtra if it is not installed."""
    with needed("torch", "torch"):
        import torch
    return torch


# --- dense ------------------------------------------------------------------------------------------------------


def tensor_to_torch(tensor: Tensor, device: Any = None, *, writable: bool = True) -> Any:
    """Convert to a ``torch.Tensor``.

    Parameters
    ----------
    device : torch.device or str, optional
        Target device; by default the CPU. Other devices get the elements by one transfer from the shared memory.
    writable : bool
        True returns a private tensor that may be written to: changes do not affect the object or file, nor tensors of
        other calls. Mapped elements are copy-on-write: reading is free, writing copies the modified pages. Tensors of
        less than 64 KiB, and memory that is not mapped, are copied.

        False returns the shared memory itself, never a copy. torch has no read-only tensors: writing to it kills the
        process if the memory is mapped, and changes an immutable object otherwise.

    Raises
    ------
    ExportRefused
        If torch has no such dtype, or ``writable`` is False and the elements are not aligned to their size.
    StorageError
        If ``writable`` is True and the mapped file was truncated.
    LimitExceeded
        If there is not enough memory for a copy.
    """
    torch = partner()
    shared = not (writable and _is_cpu(device))
    made = torch.from_dlpack(Exposed(tensor.storage, tensor._element) if shared else tensor)
    return made if device is None else made.to(device)


def _is_cpu(device: Any) -> bool:
    return device is None or partner().device(device).type == "cpu"


def tensor_from_torch(
    value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Tensor:
    """Make a tensor over the memory of a dense ``torch.Tensor``; tensors on other devices are copied to the CPU.

    Raises
    ------
    InvalidType
        If it is sparse, or Arrow has no such type.
    """
    torch = partner()
    if not isinstance(value, torch.Tensor):
        raise InvalidType(f"expected a torch.Tensor, found {type(value).__name__}")
    if value.layout is not torch.strided:
        raise InvalidType(
            f"expected a dense tensor, found one of layout {value.layout}; see SparseCOOTensor.from_torch"
        )
    plain = value.detach().cpu().resolve_conj().resolve_neg()
    name = str(value.dtype).removeprefix("torch.")
    if name in ML_DTYPES:
        bits = plain.view(torch.uint16 if ML_DTYPES[name].itemsize == 2 else torch.uint8)
        storage, element = bits.numpy(), as_element(name)
    else:
        try:
            array = plain.numpy()
        except TypeError as error:
            raise InvalidType(f"Arrow has no type for {value.dtype}: {error}") from None
        storage, element = array, as_element(array.dtype)
    return Tensor(storage, element, as_dim_names(dim_names, storage.ndim), as_metadata(metadata))


def array_to_torch(array: Array, device: Any = None, *, writable: bool = True) -> Any:
    """Convert a column of numbers, fixed-size lists or fixed-shape tensors; see `tensor_to_torch`.

    Raises
    ------
    CopyRequired
        If there are nulls, or torch has no dtype for the values; for booleans, which are copied, if not ``writable``.
    """
    if array.type.layout == "bool" and not array.null_count:
        if not writable and _is_cpu(device):
            raise CopyRequired("Arrow stores booleans as bits, torch as bytes: writable=False cannot share them")
        made = partner().from_numpy(array.to_numpy(zero_copy_only=False, writable=True))
        return made if device is None else made.to(device)
    integers = integers_of(array.type)
    if integers:
        raise ExportRefused(f"torch has no type for {array.type}; {integers}.to_torch() gives the integers")
    return tensor_to_torch(Tensor.from_array(array), device, writable=writable)


# --- sparse -----------------------------------------------------------------------------------------------------


def sparse_to_torch(tensor: SparseTensor, device: Any = None, *, writable: bool = True) -> Any:
    """Convert to a sparse ``torch.Tensor``: COO, CSR and CSC keep their format, CSF becomes COO.

    The index is converted if torch does not support its integer type: int64 for COO, int32 and int64 for the others.

    Parameters
    ----------
    device : torch.device or str, optional
        Target device; by default the CPU.
    writable : bool
        As for :meth:`Tensor.to_torch`, for the values and the index.

    Raises
    ------
    InvalidData
        If a value of the index is invalid.
    ExportRefused
        If torch has no such element type.
    """
    torch = partner()
    tensor.validate(full=True)
    given = (tensor.storage, *tensor._index()) if writable and _is_cpu(device) else ()
    if isinstance(tensor, SparseCSFTensor):
        tensor = tensor.to_coo()

    def part(array: NDArray, dtype: str | None = None) -> Any:
        """Export a part; zero-copy if a conversion here has just allocated it."""
        if dtype is not None:
            array = array.astype(dtype, copy=False)
        if any(np.may_share_memory(array, one) for one in given):
            array = own_elements(array)
        return torch.from_dlpack(Exposed(array, tensor._element if dtype is None else as_element(array.dtype)))

    if isinstance(tensor, SparseMatrix):
        tensor = tensor.coalesced()
        make = torch.sparse_csr_tensor if tensor.axis == 0 else torch.sparse_csc_tensor
        dtype = "<i4" if {tensor.indptr.dtype, tensor.indices.dtype} == {np.dtype("<i4")} else "<i8"
        index = [part(tensor.indptr, dtype), part(tensor.indices, dtype)]
        made = make(*index, part(tensor.storage), tensor.shape, check_invariants=False)
    else:
        assert isinstance(tensor, SparseCOOTensor)
        canonical = tensor.is_canonical or None
        index = part(tensor.indices, "<i8").T
        values = part(tensor.storage)
        made = torch.sparse_coo_tensor(index, values, tensor.shape, is_coalesced=canonical, check_invariants=False)
    return made if device is None else made.to(device)


def sparse_from_torch(
    cls: Any, value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Any:
    """Convert a sparse COO, CSR or CSC ``torch.Tensor`` to this format; zero-copy if it is in this format.

    Raises
    ------
    InvalidType
        If it is of another layout.
    Unsupported
        If its values are dense tensors, or it is a batch of matrices.
    """
    if not isinstance(value, partner().Tensor):
        raise InvalidType(f"expected a torch.Tensor, found {type(value).__name__}")
    return _from_torch(value, dim_names, metadata).as_form(cls)


def _from_torch(value: Any, dim_names: Iterable[str] | None, metadata: MetadataLike | None) -> Any:
    """Convert a sparse tensor, keeping its format."""
    torch = partner()
    value = value.detach().cpu()
    layout = value.layout
    if layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        raise InvalidType(f"expected a sparse COO, CSR or CSC tensor, found one of layout {layout}")
    if value.dense_dim() or (layout is not torch.sparse_coo and value.ndim != 2):
        raise Unsupported(f"a tensor of shape {tuple(value.shape)} and layout {layout} with dense or batch dimensions")
    given: dict[str, Any] = {"dim_names": dim_names, "metadata": metadata}
    shape = tuple(value.shape)
    if layout is torch.sparse_coo:
        coordinates = value._indices().numpy().T
        canonical = True if value.is_coalesced() else None
        values = tensor_from_torch(value._values())
        return SparseCOOTensor.from_numpy(values, coordinates, shape, is_canonical=canonical, **given)
    values = tensor_from_torch(value.values())
    if layout is torch.sparse_csr:
        indptr, indices = value.crow_indices().numpy(), value.col_indices().numpy()
        return SparseCSRMatrix.from_numpy(values, indptr, indices, shape, **given)
    indptr, indices = value.ccol_indices().numpy(), value.row_indices().numpy()
    return SparseCSCMatrix.from_numpy(values, indptr, indices, shape, **given)


# --- GPU --------------------------------------------------------------------------------------------------------

_READ_ONLY = 8  # cudaHostRegisterReadOnly


@contextmanager
def pinned(tensor: Tensor) -> Iterator[Tensor]:
    """Page-lock a tensor's memory for the GPU during the block, so that transfers from it run at full speed.

    Raises
    ------
    Unsupported
        If torch has no CUDA device.
    StorageError
        If the driver refuses.

    Examples
    --------
    ``with tensor.pinned(): on_device = tensor.to_torch("cuda")``
    """
    torch = partner()
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


# --- methods ----------------------------------------------------------------------------------------------------


def from_torch(value: Any) -> Tensor | SparseTensor:
    """Convert any ``torch.Tensor``, keeping its format."""
    return tensor_from_torch(value) if value.layout is partner().strided else _from_torch(value, None, None)


Tensor.from_torch = staticmethod(tensor_from_torch)
Tensor.to_torch = tensor_to_torch
Tensor.pinned = pinned
_Sparse: Any = SparseTensor
_Sparse.from_torch = classmethod(sparse_from_torch)
_Sparse.to_torch = sparse_to_torch
