# SPDX-License-Identifier: Apache-2.0
"""Dense and sparse tensors, one message each ("Tensor", "SparseTensor").

``element`` defines the types of the elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy
from shmarrow.tensor.dense import Tensor as Tensor

if TYPE_CHECKING:
    from shmarrow.tensor.sparse import SparseCOOTensor as SparseCOOTensor
    from shmarrow.tensor.sparse import SparseCSCMatrix as SparseCSCMatrix
    from shmarrow.tensor.sparse import SparseCSFTensor as SparseCSFTensor
    from shmarrow.tensor.sparse import SparseCSRMatrix as SparseCSRMatrix
    from shmarrow.tensor.sparse import SparseMatrix as SparseMatrix
    from shmarrow.tensor.sparse import SparseTensor as SparseTensor


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".sparse": "SparseCOOTensor SparseCSCMatrix SparseCSFTensor SparseCSRMatrix SparseMatrix SparseTensor",
        },
    )
