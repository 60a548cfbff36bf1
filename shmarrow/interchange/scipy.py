"""Conversion to and from scipy's sparse arrays: n-dimensional COO, CSR and CSC, zero-copy.

Invariants:

* results are ``*_array`` objects, which use int32 and int64 indices in place; other integers are converted;
* the values of the index are validated before the export;
* scipy is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.errors import InvalidType
from shmarrow.optional import optional
from shmarrow.tensor import SparseCOOTensor, SparseMatrix, SparseTensor
from shmarrow.tensor.formats import FORMS
from shmarrow.tensor.sparse import Form
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
        return compressed
    coo = tensor.as_form(SparseCOOTensor)
    (indices,) = _indices(coo.indices)
    made = scipy.coo_array((coo.data, tuple(indices.T)), shape=coo.shape)
    made.has_canonical_format = coo.is_canonical
    return made


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
    given: dict[str, Any] = {"dim_names": dim_names, "metadata": metadata}
    if value.format in ("csr", "csc") and value.ndim == 2:
        form = FORMS[value.format.upper()]
        made: SparseTensor = form.from_numpy(value.data, value.indptr, value.indices, value.shape, **given)
    else:
        coo = value.tocoo()
        made = SparseCOOTensor.from_numpy(coo.data, np.stack(coo.coords, axis=1), coo.shape, **given)
    return made.as_form(cls)
