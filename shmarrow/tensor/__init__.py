"""Dense and sparse tensors, one message each ("Tensor", "SparseTensor").

``sparse`` has what sparse tensors share, ``formats`` a class for each format; ``element`` defines the element types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy
from shmarrow.tensor.dense import Tensor as Tensor

if TYPE_CHECKING:
    from shmarrow.tensor.formats import SparseCOOTensor as SparseCOOTensor
    from shmarrow.tensor.formats import SparseCSCMatrix as SparseCSCMatrix
    from shmarrow.tensor.formats import SparseCSFTensor as SparseCSFTensor
    from shmarrow.tensor.formats import SparseCSRMatrix as SparseCSRMatrix
    from shmarrow.tensor.formats import SparseMatrix as SparseMatrix
    from shmarrow.tensor.sparse import SparseTensor as SparseTensor


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".formats": "SparseCOOTensor SparseCSCMatrix SparseCSFTensor SparseCSRMatrix SparseMatrix",
            ".sparse": "SparseTensor",
        },
    )
