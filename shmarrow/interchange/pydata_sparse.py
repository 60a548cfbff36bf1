"""Conversion to and from PyData ``sparse``: COO, and two-dimensional GCXS as CSR and CSC, zero-copy.

Invariants:

* elements that are not stored are zero, so an array with another fill value is rejected;
* the values of the index are validated before the export;
* the package is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shmarrow.errors import InvalidType
from shmarrow.optional import optional
from shmarrow.tensor import SparseCOOTensor, SparseCSCMatrix, SparseCSRMatrix, SparseMatrix, SparseTensor
from shmarrow.tensor.sparse import Form
from shmarrow.types import MetadataLike


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
    given: dict[str, Any] = {"dim_names": dim_names, "metadata": metadata}
    if isinstance(value, sparse.GCXS) and value.ndim == 2:
        form = SparseCSRMatrix if tuple(value.compressed_axes) == (0,) else SparseCSCMatrix
        return form.from_numpy(value.data, value.indptr, value.indices, value.shape, **given).as_form(cls)
    coo = value if isinstance(value, sparse.COO) else value.tocoo()
    return SparseCOOTensor.from_numpy(coo.data, coo.coords.T, coo.shape, **given).as_form(cls)
