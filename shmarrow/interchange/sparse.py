# SPDX-License-Identifier: Apache-2.0
"""Conversion to and from sparse arrays of scipy and of PyData ``sparse``, zero-copy.

Of scipy: n-dimensional COO, CSR and CSC; of ``sparse``: COO, and two-dimensional GCXS as CSR and CSC. Invariants:

* results of scipy are ``*_array`` objects, which use int32 and int64 indices in place; other integers are converted;
* scipy sorts CSR and CSC in place and adds duplicates when it first needs to, in ``sum`` or ``max``: an array that is
  not canonical is copied, in both directions, as it would fail on read-only memory, and change memory that is shared;
* elements that are not stored are zero, so an array of ``sparse`` with another fill value is rejected;
* the values of the index are validated before the export;
* each package is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.errors import InvalidType, optional
from shmarrow.tensor import SparseCOOTensor, SparseCSCMatrix, SparseCSRMatrix, SparseMatrix, SparseTensor
from shmarrow.tensor.sparse import FORMS, Form
from shmarrow.types import MetadataLike


def sparse_to_scipy(tensor: SparseTensor) -> Any:
    """Implement :meth:`SparseTensor.to_scipy`."""
    scipy = optional("scipy.sparse")
    if tensor.ml_dtype or tensor.dtype.kind not in "biuf" or tensor.dtype == np.float16:
        raise InvalidType(f"scipy has no sparse arrays of {tensor.ml_dtype or tensor.type}; convert the values first")
    tensor.validate(full=True)
    if isinstance(tensor, SparseMatrix):
        indptr, indices = _indices(tensor.indptr, tensor.indices)
        # The constructor would copy arrays that are a small part of their mapping, so they are assigned.
        compressed = getattr(scipy, f"{tensor.form.lower()}_array")(tensor.shape, dtype=tensor.dtype)
        compressed.indptr, compressed.indices, compressed.data = indptr, indices, tensor.data
        return compressed if compressed.has_canonical_format else compressed.copy()
    coo = tensor.as_form(SparseCOOTensor)
    (indices,) = _indices(coo.indices)
    array = scipy.coo_array((coo.data, tuple(indices.T)), shape=coo.shape)
    array.has_canonical_format = coo.is_canonical
    return array


def _indices(*index: NDArray) -> tuple[NDArray, ...]:
    """Return the arrays of an index, all as int32 or all as int64."""
    dtype = np.dtype("<i4") if {part.dtype for part in index} == {np.dtype("<i4")} else np.dtype("<i8")
    return tuple([part.astype(dtype, copy=False) for part in index])


def sparse_from_scipy(
    cls: type[Form], value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Form:
    """Implement :meth:`SparseTensor.from_scipy`; of SparseTensor itself, CSR and CSC keep their format."""
    if not optional("scipy.sparse").issparse(value):
        raise InvalidType(f"expected a sparse array of scipy, found {type(value).__name__}")
    if cls is not SparseTensor:
        value = value.asformat(cls.form.lower() if issubclass(cls, SparseMatrix) else "coo")
    labels: dict[str, Any] = {"dim_names": dim_names, "metadata": metadata}
    if value.format in ("csr", "csc") and value.ndim == 2:
        value = value if value.has_canonical_format else value.copy()
        form = FORMS[value.format.upper()]
        tensor: SparseTensor = form.from_numpy(value.data, value.indptr, value.indices, value.shape, **labels)
    else:
        coo = value.tocoo()
        tensor = SparseCOOTensor.from_numpy(coo.data, np.stack(coo.coords, axis=1), coo.shape, **labels)
    return tensor.as_form(cls)


def sparse_to_pydata(tensor: SparseTensor) -> Any:
    """Implement :meth:`SparseTensor.to_pydata_sparse`."""
    sparse = optional("sparse")
    if isinstance(tensor, SparseMatrix):
        single = tensor.coalesced()
        parts = (single.data, single.indices, single.indptr)
        return sparse.GCXS(parts, shape=single.shape, compressed_axes=single.axis_order[:1])
    coordinates = tensor.as_form(SparseCOOTensor).coalesced()
    return sparse.COO(
        coordinates.indices.T, coordinates.data, shape=coordinates.shape, has_duplicates=False, sorted=True
    )


def sparse_from_pydata(
    cls: type[Form], value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
) -> Form:
    """Implement :meth:`SparseTensor.from_pydata_sparse`; of SparseTensor itself, the format is kept."""
    sparse = optional("sparse")
    if not isinstance(value, (sparse.COO, sparse.GCXS)):
        raise InvalidType(f"expected a sparse.COO or sparse.GCXS, found {type(value).__name__}")
    if value.fill_value != 0:
        raise InvalidType(f"elements that are not stored are zero in Arrow, found the fill value {value.fill_value}")
    labels: dict[str, Any] = {"dim_names": dim_names, "metadata": metadata}
    if isinstance(value, sparse.GCXS) and value.ndim == 2:
        form = SparseCSRMatrix if tuple(value.compressed_axes) == (0,) else SparseCSCMatrix
        return form.from_numpy(value.data, value.indptr, value.indices, value.shape, **labels).as_form(cls)
    coo = value if isinstance(value, sparse.COO) else value.tocoo()
    return SparseCOOTensor.from_numpy(coo.data, coo.coords.T, coo.shape, **labels).as_form(cls)
