"""Conversion of pyarrow's dense and sparse tensors, and of its arrays without nulls, zero-copy."""

from __future__ import annotations

from typing import Any

from shmarrow.build import array
from shmarrow.errors import InvalidType, full_name
from shmarrow.interchange.pyarrow import partner
from shmarrow.tensor import SparseCOOTensor, SparseCSCMatrix, SparseCSRMatrix, SparseTensor, Tensor
from shmarrow.tensor.element import is_column

_SPARSE: dict[str, Any] = {
    "SparseCOOTensor": SparseCOOTensor,
    "SparseCSCMatrix": SparseCSCMatrix,
    "SparseCSRMatrix": SparseCSRMatrix,
}


def tensor_from_pyarrow(value: Any) -> Tensor | SparseTensor:
    """Make a tensor over the memory of a pyarrow tensor, or of a pyarrow column without nulls.

    Raises
    ------
    InvalidType
        If it is neither.
    CopyRequired
        If a column has nulls, or its values have no zero-copy form in numpy.
    """
    if isinstance(value, partner().Tensor):
        return Tensor.from_numpy(value.to_numpy(), value.dim_names or None)
    form = _SPARSE.get(type(value).__name__)
    if form is not None:
        made: SparseTensor = form.from_numpy(*value.to_numpy(), value.shape, dim_names=value.dim_names or None)
        return made
    if is_column(value):
        return Tensor.from_array(array(value, from_pandas=False))
    if type(value).__name__ == "SparseCSFTensor":
        raise InvalidType("pyarrow does not expose the axis order of a SparseCSFTensor; pass to_tensor()")
    raise InvalidType(f"expected a tensor or an array, found {full_name(value)}")
