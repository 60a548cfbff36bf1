"""Conversion of pyarrow's dense and sparse tensors, and of its arrays without nulls, zero-copy."""

from __future__ import annotations

from typing import Any

from shmarrow import capsules
from shmarrow.build import array
from shmarrow.errors import InvalidType, full_name
from shmarrow.optional import optional
from shmarrow.tensor import SparseCSFTensor, SparseTensor, Tensor
from shmarrow.tensor.formats import FORMS


def tensor_from_pyarrow(value: Any) -> Tensor | SparseTensor:
    """Make a tensor over the memory of a pyarrow tensor, or of a pyarrow column without nulls.

    Raises
    ------
    InvalidType
        If it is neither.
    CopyRequired
        If a column has nulls, or its values have no zero-copy form in numpy.
    """
    if isinstance(value, optional("pyarrow").Tensor):
        return Tensor.from_numpy(value.to_numpy(), value.dim_names or None)
    form = next((form for form in FORMS.values() if form.__name__ == type(value).__name__), None)
    if form is SparseCSFTensor:
        raise InvalidType("pyarrow does not expose the axis order of a SparseCSFTensor; pass to_tensor()")
    if form is not None:
        return form.from_numpy(*value.to_numpy(), value.shape, dim_names=value.dim_names or None)
    if capsules.is_column(value):
        return Tensor.from_array(array(value, from_pandas=False))
    raise InvalidType(f"expected a tensor or an array, found {full_name(value)}")
