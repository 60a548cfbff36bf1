"""Conversion to and from scipy's sparse arrays: n-dimensional COO, CSR and CSC, zero-copy.

Invariants:

* results are ``*_array`` objects, which use int32 and int64 indices in place; other integers are converted;
* the values of the index are validated before the export;
* scipy is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from shmarrow.errors import InvalidType
from shmarrow.interchange.partner import needed
from shmarrow.tensor import (
    SparseCOOTensor,
    SparseCSCMatrix,
    SparseCSFTensor,
    SparseCSRMatrix,
    SparseMatrix,
    SparseTensor,
)
from shmarrow.tensor.element import NDArray
from shmarrow.types import MetadataLike


@cache
def partner() -> Any:
    """Import ``scipy.sparse``; MissingExtra if it is not installed."""
    with needed("scipy", "tensor"):
        import scipy.sparse
    return scipy.sparse


def sparse_to_scipy(tensor: SparseTensor) -> Any:
    """Convert to a sparse array of scipy: CSR to ``csr_array``, CSC to ``csc_array``, COO and CSF to ``coo_array``.

    Raises
    ------
    InvalidData
        If a value of the index is invalid.
    InvalidType
        If scipy has no such element type.
    """
    scipy = partner()
    if tensor.ml_dtype or tensor.dtype.kind not in "biuf" or tensor.dtype == np.float16:
        raise InvalidType(f"scipy has no sparse arrays of {tensor.ml_dtype or tensor.type}; convert the values first")
    if isinstance(tensor, SparseCSFTensor):
        tensor = tensor.to_coo()
    tensor.validate(full=True)
    if isinstance(tensor, SparseMatrix):
        make = scipy.csr_array if tensor.axis == 0 else scipy.csc_array
        indptr, indices = _indices(tensor.indptr, tensor.indices)
        # The constructor would copy arrays that are a small part of their mapping, so they are assigned.
        compressed = make(tensor.shape, dtype=tensor.dtype)
        compressed.indptr, compressed.indices, compressed.data = indptr, indices, tensor.data
        return compressed
    assert isinstance(tensor, SparseCOOTensor)
    (indices,) = _indices(tensor.indices)
    made = scipy.coo_array((tensor.data, tuple(indices.T)), shape=tensor.shape)
    made.has_canonical_format = tensor.is_canonical
    return made


def _indices(*index: NDArray) -> tuple[NDArray, ...]:
    """Return the arrays of an index, all as int32 or all as int64."""
    dtype = np.dtype("<i4") if {part.dtype for part in index} == {np.dtype("<i4")} else np.dtype("<i8")
    return tuple([part.astype(dtype, copy=False) for part in index])


def sparse_from_scipy(
    cls: Any, value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Any:
    """Convert a sparse array or matrix of scipy, of any format, to this format.

    CSR and CSC are zero-copy if they are in this format; the coordinates of COO are copied, as scipy stores one array
    per dimension.

    Raises
    ------
    InvalidType
        If it is not a sparse array, or Arrow has no such element type.
    """
    if not partner().issparse(value):
        raise InvalidType(f"expected a sparse array of scipy, found {type(value).__name__}")
    wanted = {SparseCSRMatrix: "csr", SparseCSCMatrix: "csc"}.get(cls, "coo")
    return _from_scipy(value.asformat(wanted), dim_names, metadata).as_form(cls)


def _from_scipy(value: Any, dim_names: Iterable[str] | None, metadata: MetadataLike | None) -> Any:
    given: dict[str, Any] = {"dim_names": dim_names, "metadata": metadata}
    if value.format == "csr" and value.ndim == 2:
        return SparseCSRMatrix.from_numpy(value.data, value.indptr, value.indices, value.shape, **given)
    if value.format == "csc":
        return SparseCSCMatrix.from_numpy(value.data, value.indptr, value.indices, value.shape, **given)
    coo = value.tocoo()
    return SparseCOOTensor.from_numpy(coo.data, np.stack(coo.coords, axis=1), coo.shape, **given)


def from_scipy(value: Any) -> SparseTensor:
    """Convert any sparse array of scipy: CSR and CSC keep their format, all others become COO."""
    if not partner().issparse(value):
        raise InvalidType(f"expected a sparse array of scipy, found {type(value).__name__}")
    made: SparseTensor = _from_scipy(value, None, None)
    return made


_Sparse: Any = SparseTensor
_Sparse.from_scipy = classmethod(sparse_from_scipy)
_Sparse.to_scipy = sparse_to_scipy
