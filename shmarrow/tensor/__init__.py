"""Dense and sparse tensors, one message each ("Tensor", "SparseTensor").

Each format has its own file, with its index, construction and validation; ``sparse`` is the common base of the sparse
formats, and ``element`` defines the element types.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shmarrow.tensor.dense import Tensor

if TYPE_CHECKING:
    from shmarrow.tensor.coo import SparseCOOTensor
    from shmarrow.tensor.csf import SparseCSFTensor
    from shmarrow.tensor.csx import SparseCSCMatrix, SparseCSRMatrix, SparseMatrix
    from shmarrow.tensor.sparse import SparseTensor

__all__ = [
    "SparseCOOTensor",
    "SparseCSCMatrix",
    "SparseCSFTensor",
    "SparseCSRMatrix",
    "SparseMatrix",
    "SparseTensor",
    "Tensor",
]

_HOMES = {
    "SparseCOOTensor": "coo",
    "SparseCSCMatrix": "csx",
    "SparseCSFTensor": "csf",
    "SparseCSRMatrix": "csx",
    "SparseMatrix": "csx",
    "SparseTensor": "sparse",
}


def __getattr__(name: str) -> Any:
    """Import the sparse formats on first access."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shmarrow.tensor' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"shmarrow.tensor.{_HOMES[name]}"), name)
    return value
