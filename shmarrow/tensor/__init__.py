"""Tensors and sparse tensors: arrays of any number of dimensions, each in one message ("Tensor", "SparseTensor").

One file a form, in which all that the form knows of itself stands: its index, building and checking. ``sparse`` has
what the sparse forms share, ``element`` which types the elements of all can have.
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
    """The sparse forms are imported when they are first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shmarrow.tensor' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"shmarrow.tensor.{_HOMES[name]}"), name)
    return value
