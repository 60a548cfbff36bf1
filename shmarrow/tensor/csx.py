"""CSR and CSC matrices ("SparseMatrixIndexCSX").

Slice ``i`` of the compressed axis owns the values from ``indptr[i]`` to ``indptr[i + 1]``; ``indices`` holds their
positions along the other axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np

from shmarrow.errors import InvalidArgument, InvalidData
from shmarrow.tensor.dense import DimNames, as_dim_names
from shmarrow.tensor.element import Element, NDArray
from shmarrow.tensor.sparse import (
    Coordinates,
    IndexType,
    Shape,
    SparseTensor,
    check_ends,
    check_range,
    check_rising,
    checked_shape,
    counted,
    flat_index,
    index_dtype,
    read_only,
    values_of,
)
from shmarrow.types import DataType, Metadata, MetadataLike, as_metadata


class SparseMatrix(SparseTensor):
    """Base class of CSR and CSC matrices.

    Attributes
    ----------
    indptr : ndarray
        Start of each slice of the compressed axis among the values, and the end; read-only.
    indices : ndarray
        Position of each value along the other axis; read-only.
    """

    __slots__ = ("indices", "indptr")

    axis: ClassVar[int]
    """The compressed axis: 0 for rows, 1 for columns."""

    def __init__(
        self,
        shape: Shape,
        indptr: NDArray,
        indices: NDArray,
        storage: NDArray,
        element: Element,
        dim_names: DimNames = (),
        metadata: Metadata | None = None,
    ) -> None:
        super().__init__(shape, storage, element, dim_names, metadata)
        if len(shape) != 2:
            raise InvalidData(f"a {self.form} matrix must have two dimensions, found the shape {shape}")
        wanted = (shape[self.axis] + 1,), (len(storage),)
        if (indptr.shape, indices.shape) != wanted:
            raise InvalidData(
                f"{self.form} of shape {shape} with {len(storage)} values needs indptr and indices of the shapes "
                f"{wanted[0]} and {wanted[1]}, found {indptr.shape} and {indices.shape}"
            )
        check_ends(indptr, len(storage), "indptr")
        self.indptr = read_only(indptr)
        self.indices = read_only(indices)

    @classmethod
    def from_numpy(
        cls,
        data: Any,
        indptr: Any,
        indices: Any,
        shape: Iterable[int],
        dim_names: Iterable[str] | None = None,
        *,
        type: DataType | None = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Make a matrix over arrays, without copying.

        Parameters
        ----------
        data : ndarray
            The values, shape (non-zeros,) or (non-zeros, 1).
        indptr, indices : ndarray of int
            The index, shapes (slices + 1,) and (non-zeros,).
        shape : iterable of int
            The shape of the matrix.
        dim_names : iterable of str, optional
            A name for each dimension.
        type, metadata
            As for :meth:`shmarrow.Tensor.from_numpy`.

        Raises
        ------
        InvalidData
            If the arrays' shapes do not match.
        """
        storage, element = values_of(data, type)
        dims = checked_shape(shape, storage.itemsize)
        names = as_dim_names(dim_names, len(dims))
        starts, places = flat_index(indptr, "indptr"), flat_index(indices, "indices")
        return cls(dims, starts, places, storage, element, names, as_metadata(metadata))

    def to_numpy(self) -> tuple[NDArray, NDArray, NDArray]:
        """Return the values, indptr and indices, as views."""
        return self.data, self.indptr, self.indices

    def _index(self) -> tuple[NDArray, ...]:
        return self.indptr, self.indices

    def _coordinates(self) -> Coordinates:
        starts = self.indptr.astype(np.int64, copy=False)
        slices = np.repeat(np.arange(self.shape[self.axis]), starts[1:] - starts[:-1])
        places = self.indices.astype(np.int64, copy=False)
        return (slices, places) if self.axis == 0 else (places, slices)

    @classmethod
    def _sort_order(cls, ndim: int, order: Any) -> tuple[int, ...]:
        if ndim != 2:
            raise InvalidArgument(f"{cls.form} needs two dimensions, found {ndim}; use COO or CSF")
        return (0, 1) if cls.axis == 0 else (1, 0)

    @classmethod
    def _from_sorted(
        cls,
        shape: Shape,
        coordinates: Coordinates,
        storage: NDArray,
        element: Element,
        index_type: IndexType,
        order: Any,
    ) -> Self:
        dtype = index_dtype(index_type, max(shape[1 - cls.axis] - 1, len(storage)))
        indptr = counted(coordinates[cls.axis], shape[cls.axis]).astype(dtype, copy=False)
        return cls(shape, indptr, coordinates[1 - cls.axis].astype(dtype, copy=False), storage, element)

    def _check_values(self) -> None:
        check_rising(self.indptr, "indptr")
        check_range(self.indices, self.shape[1 - self.axis], "the indices")


class SparseCSRMatrix(SparseMatrix):
    """A sparse matrix in compressed sparse row (CSR) format.

    Examples
    --------
    >>> matrix = SparseCSRMatrix.from_dense(np.array([[0, 5], [0, 0], [7, 8]]))
    >>> matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tolist()
    ([0, 1, 1, 3], [1, 0, 1], [5, 7, 8])
    """

    __slots__ = ()

    form = "CSR"
    axis = 0


class SparseCSCMatrix(SparseMatrix):
    """A sparse matrix in compressed sparse column (CSC) format.

    Examples
    --------
    >>> matrix = SparseCSCMatrix.from_dense(np.array([[0, 5], [0, 0], [7, 8]]))
    >>> matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tolist()
    ([0, 1, 3], [2, 0, 2], [7, 5, 8])
    """

    __slots__ = ()

    form = "CSC"
    axis = 1
