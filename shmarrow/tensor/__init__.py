"""Tensors and sparse tensors: arrays of any number of dimensions, each in one message ("Tensor", "SparseTensor").

One file a form, in which all that the form knows of itself stands: its index, building and checking. ``sparse`` has
what the sparse forms share, ``element`` which types the elements of all can have.
"""

from shmarrow import import_hooks
from shmarrow.tensor.coo import SparseCOOTensor
from shmarrow.tensor.csf import SparseCSFTensor
from shmarrow.tensor.csx import SparseCSCMatrix, SparseCSRMatrix, SparseMatrix
from shmarrow.tensor.dense import Tensor
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

import_hooks.arrived("tensor")
