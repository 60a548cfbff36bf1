"""The formats of sparse tensors, which differ in how they store the tree of :mod:`shmarrow.tensor.sparse`.

====== ==================== ========================= =====================================================
format table                dimensions                levels
====== ==================== ========================= =====================================================
COO    SparseTensorIndexCOO any, in order             one node per value in each, so there is no indptr;
                                                      ``indices`` is one matrix with a column per dimension
CSR    SparseMatrixIndexCSX 2: rows, columns          the first has a node for every row, not stored
CSC    SparseMatrixIndexCSX 2: columns, rows          the first has a node for every column, not stored
CSF    SparseTensorIndexCSF any, in any order         a node for each coordinate that occurs below its parent
====== ==================== ========================= =====================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.errors import InvalidArgument, InvalidData
from shmarrow.tensor.dense import Shape
from shmarrow.tensor.sparse import (
    FORMS,
    Coordinates,
    IndexType,
    Levels,
    SparseTensor,
    as_flat_index,
    as_index,
    counted,
    index_dtype,
)
from shmarrow.types import DataType, MetadataLike

__all__ = ["FORMS", "SparseCOOTensor", "SparseCSCMatrix", "SparseCSFTensor", "SparseCSRMatrix", "SparseMatrix"]


class SparseCOOTensor(SparseTensor):
    """A sparse tensor in coordinate (COO) format.

    Attributes
    ----------
    indices : ndarray
        The coordinates, shape (non_zero_length, ndim), with any strides; read-only.

    Examples
    --------
    >>> tensor = SparseCOOTensor.from_dense(np.array([[0, 5], [0, 0], [7, 0]]))
    >>> tensor
    <SparseCOOTensor int64, shape (3, 2), 2 stored>
    >>> tensor.indices.tolist(), tensor.data.tolist()
    ([[0, 1], [2, 0]], [5, 7])
    """

    __slots__ = ()

    form = "COO"

    @classmethod
    def from_numpy(
        cls,
        data: Any,
        coords: Any,
        shape: Iterable[int],
        dim_names: Iterable[str] | None = None,
        *,
        is_canonical: bool | None = None,
        type: DataType | None = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Make a tensor over arrays, without copying.

        Parameters
        ----------
        data : ndarray
            The values, shape (non-zeros,) or (non-zeros, 1).
        coords : ndarray of int
            Their coordinates, shape (non-zeros, dimensions).
        shape : iterable of int
            The shape of the tensor.
        dim_names : iterable of str, optional
            A name for each dimension.
        is_canonical : bool, optional
            Whether the coordinates are sorted in row-major order, without duplicates; determined if not given.
        type, metadata
            As for :meth:`shmarrow.Tensor.from_numpy`.

        Raises
        ------
        InvalidData
            If the arrays' shapes do not match, or, if ``is_canonical`` is not given, a coordinate is out of bounds.
        """
        tensor = cls._over(data, [as_index(coords, "coordinates")], shape, None, dim_names, type, metadata)
        if is_canonical is None:
            tensor.validate(full=True)
            tensor.is_canonical = tensor._is_sorted()
        else:
            tensor.is_canonical = bool(is_canonical)
        return tensor

    @property
    def indices(self) -> NDArray:
        return self.index[0]

    def to_numpy(self) -> tuple[NDArray, NDArray]:
        """Return the values, shape (non_zero_length,), and the coordinates, as views."""
        return self.data, self.indices

    def _check_index(self) -> None:
        expected = [(len(self.storage), len(self.shape))]
        shapes = [part.shape for part in self.index]
        if shapes != expected:
            raise InvalidData(
                f"the coordinates of {len(self.storage)} values in {len(self.shape)} dimensions have the shape "
                f"{expected[0]}, found {', '.join(map(str, shapes))}"
            )

    def _levels(self) -> tuple[Levels, Levels]:
        return (), tuple(self.indices.T)

    @classmethod
    def _index_from(
        cls, shape: Shape, coordinates: Coordinates, axes: Sequence[int], index_type: IndexType
    ) -> Sequence[NDArray]:
        dtype = index_dtype(index_type, max(*shape, 1) - 1, "<i8")
        return [np.stack([column.astype(dtype, copy=False) for column in coordinates], axis=1)]


class SparseMatrix(SparseTensor):
    """Base class of CSR and CSC matrices.

    Attributes
    ----------
    indptr : ndarray
        Start of each slice of the compressed axis among the values, and the end; read-only.
    indices : ndarray
        Position of each value along the other axis; read-only.
    """

    __slots__ = ()

    _own_axes: ClassVar[tuple[int, int]]
    """The compressed axis, and the other one."""

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
        starts, nodes = as_flat_index(indptr, "indptr"), as_flat_index(indices, "indices")
        return cls._over(data, [starts, nodes], shape, None, dim_names, type, metadata)

    @property
    def indptr(self) -> NDArray:
        return self.index[0]

    @property
    def indices(self) -> NDArray:
        return self.index[1]

    def to_numpy(self) -> tuple[NDArray, NDArray, NDArray]:
        """Return the values, indptr and indices, as views."""
        return self.data, self.indptr, self.indices

    @classmethod
    def _axes(cls, ndim: int, axis_order: Sequence[int] | None = None) -> tuple[int, ...]:
        if ndim != 2:
            raise InvalidArgument(f"{cls.form} needs two dimensions, found {ndim}; use COO or CSF")
        if axis_order is not None and tuple(axis_order) != cls._own_axes:
            raise InvalidArgument(f"the axis order of {cls.form} is {cls._own_axes}, found {tuple(axis_order)}")
        return cls._own_axes

    def _implied(self) -> list[int]:
        return [self.shape[self.axis_order[0]]]

    @classmethod
    def _index_from(
        cls, shape: Shape, coordinates: Coordinates, axes: Sequence[int], index_type: IndexType
    ) -> Sequence[NDArray]:
        slices, nodes = coordinates[axes[0]], coordinates[axes[1]]
        dtype = index_dtype(index_type, max(shape[axes[1]] - 1, len(nodes)))
        return [counted(slices, shape[axes[0]]).astype(dtype, copy=False), nodes.astype(dtype, copy=False)]


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
    _own_axes = (0, 1)


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
    _own_axes = (1, 0)


class SparseCSFTensor(SparseTensor):
    """A sparse tensor in compressed sparse fiber (CSF) format: a tree with a level per dimension.

    The nodes of a level are the coordinates along its dimension that occur below a node of the previous level; the
    leaves are the values.

    Attributes
    ----------
    indptr : tuple of ndarray
        For each level but the last, the start of each node's children, and the end; read-only.
    indices : tuple of ndarray
        The coordinates of each level's nodes; read-only.

    Examples
    --------
    >>> tensor = SparseCSFTensor.from_dense(np.array([[0, 5], [0, 0], [7, 8]]))
    >>> [level.tolist() for level in tensor.indices], [level.tolist() for level in tensor.indptr]
    ([[0, 2], [1, 0, 1]], [[0, 1, 3]])
    """

    __slots__ = ()

    form = "CSF"

    @classmethod
    def from_numpy(
        cls,
        data: Any,
        indptr: Sequence[Any],
        indices: Sequence[Any],
        shape: Iterable[int],
        axis_order: Sequence[int] | None = None,
        dim_names: Iterable[str] | None = None,
        *,
        type: DataType | None = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Make a tensor over arrays, without copying.

        Parameters
        ----------
        data : ndarray
            The values, shape (non-zeros,) or (non-zeros, 1).
        indptr, indices : sequence of int ndarray
            The levels of the tree. All ``indptr`` must have the same dtype, and so must all ``indices``.
        shape : iterable of int
            The shape of the tensor, in dimension order (not ``axis_order``).
        axis_order : sequence of int, optional
            The dimension of each level; by default in order.
        dim_names : iterable of str, optional
            A name for each dimension.
        type, metadata
            As for :meth:`shmarrow.Tensor.from_numpy`.

        Raises
        ------
        InvalidData
            If the arrays' shapes do not match.
        """
        starts = [as_flat_index(level, "indptr") for level in indptr]
        nodes = [as_flat_index(level, "indices") for level in indices]
        for what, levels in (("indptr", starts), ("indices", nodes)):
            if len({level.dtype for level in levels}) > 1:
                raise InvalidArgument(f"all {what} must be of one dtype, found {[level.dtype.str for level in levels]}")
        if len(starts) != len(nodes) - 1:
            raise InvalidData(f"CSF needs an indptr for each level but the last, found {len(starts)} for {len(nodes)}")
        return cls._over(data, starts + nodes, shape, axis_order, dim_names, type, metadata)

    @property
    def indptr(self) -> tuple[NDArray, ...]:
        return self.index[: self.ndim - 1]

    @property
    def indices(self) -> tuple[NDArray, ...]:
        return self.index[self.ndim - 1 :]

    def to_numpy(self) -> tuple[NDArray, tuple[NDArray, ...], tuple[NDArray, ...]]:
        """Return the values, indptr and indices, as views."""
        return self.data, self.indptr, self.indices

    @classmethod
    def _axes(cls, ndim: int, axis_order: Sequence[int] | None = None) -> tuple[int, ...]:
        axes = tuple(range(ndim)) if axis_order is None else tuple([int(axis) for axis in axis_order])
        if sorted(axes) != list(range(ndim)):
            raise InvalidArgument(f"axis_order must be a permutation of {ndim} axes, found {axes}")
        return axes

    @classmethod
    def _index_from(
        cls, shape: Shape, coordinates: Coordinates, axes: Sequence[int], index_type: IndexType
    ) -> Sequence[NDArray]:
        count = len(coordinates[0])
        dtype = index_dtype(index_type, max(max(shape) - 1, count))
        starts: list[NDArray] = []  # the first leaf of each node, level by level
        new = np.zeros(count, bool)
        new[:1] = True
        for axis in axes[:-1]:
            column = coordinates[axis]
            new[1:] |= column[1:] != column[:-1]
            starts.append(np.flatnonzero(new))
        starts.append(np.arange(count))
        indices = [coordinates[axis][first].astype(dtype) for axis, first in zip(axes, starts, strict=True)]
        indptr = []
        for level in range(len(axes) - 1):
            below = starts[level] if level == len(axes) - 2 else np.searchsorted(starts[level + 1], starts[level])
            indptr.append(np.append(below, len(starts[level + 1])).astype(dtype))
        return [*indptr, *indices]
