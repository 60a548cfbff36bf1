"""CSF tensors ("SparseTensorIndexCSF"): compressed sparse fibers, a tree with a level per dimension.

The nodes of a level are the coordinates along its dimension that occur below a node of the previous level; the leaves
are the values. ``indices[k]`` holds the coordinates of level ``k``; the children of its node ``i`` are the nodes
``indptr[k][i]`` to ``indptr[k][i + 1]`` of level ``k + 1``. ``axis_order`` maps levels to dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

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
    flat_index,
    index_dtype,
    read_only,
    values_of,
)
from shmarrow.types import DataType, Metadata, MetadataLike, as_metadata


class SparseCSFTensor(SparseTensor):
    """A sparse tensor in compressed sparse fiber (CSF) format.

    Attributes
    ----------
    indptr : tuple of ndarray
        For each level but the last, the start of each node's children, and the end; read-only.
    indices : tuple of ndarray
        The coordinates of each level's nodes; read-only.
    axis_order : tuple of int
        The dimension of each level.

    Examples
    --------
    >>> tensor = SparseCSFTensor.from_dense(np.array([[0, 5], [0, 0], [7, 8]]))
    >>> [level.tolist() for level in tensor.indices], [level.tolist() for level in tensor.indptr]
    ([[0, 2], [1, 0, 1]], [[0, 1, 3]])
    """

    __slots__ = ("axis_order", "indices", "indptr")

    form = "CSF"

    def __init__(
        self,
        shape: Shape,
        indptr: Sequence[NDArray],
        indices: Sequence[NDArray],
        axis_order: Sequence[int],
        storage: NDArray,
        element: Element,
        dim_names: DimNames = (),
        metadata: Metadata | None = None,
    ) -> None:
        super().__init__(shape, storage, element, dim_names, metadata)
        ndim = len(shape)
        if (len(indices), len(indptr), sorted(axis_order)) != (ndim, ndim - 1, list(range(ndim))):
            raise InvalidData(
                f"CSF of {ndim} dimensions needs {ndim} indices, {ndim - 1} indptr and {ndim} axes, "
                f"found {len(indices)}, {len(indptr)} and {tuple(axis_order)}"
            )
        if len(indices[-1]) != len(storage):
            raise InvalidData(f"CSF of {len(storage)} values needs as many leaves, found {len(indices[-1])}")
        for level, starts in enumerate(indptr):
            if len(starts) != len(indices[level]) + 1:
                raise InvalidData(
                    f"level {level} has {len(indices[level])} nodes, which needs {len(indices[level]) + 1} values "
                    f"of indptr, found {len(starts)}"
                )
            check_ends(starts, len(indices[level + 1]), f"indptr of level {level}")
        self.indptr = tuple([read_only(starts) for starts in indptr])
        self.indices = tuple([read_only(nodes) for nodes in indices])
        self.axis_order = tuple(axis_order)

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
        storage, element = values_of(data, type)
        dims = checked_shape(shape, storage.itemsize)
        starts = [flat_index(level, "indptr") for level in indptr]
        nodes = [flat_index(level, "indices") for level in indices]
        for what, levels in (("indptr", starts), ("indices", nodes)):
            if len({level.dtype for level in levels}) > 1 or any(level.ndim != 1 for level in levels):
                raise InvalidArgument(
                    f"all {what} must be flat and of one dtype, found {[level.dtype.str for level in levels]}"
                )
        order = cls._sort_order(len(dims), axis_order)
        names = as_dim_names(dim_names, len(dims))
        return cls(dims, starts, nodes, order, storage, element, names, as_metadata(metadata))

    @classmethod
    def from_dense(
        cls,
        array: Any,
        dim_names: Iterable[str] | None = None,
        *,
        axis_order: Sequence[int] | None = None,
        index_type: IndexType = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Make a tensor from the non-zero elements of a dense array.

        Parameters
        ----------
        array, dim_names, index_type, metadata
            As for the other formats.
        axis_order : sequence of int, optional
            The dimension of each level; by default in order. The index is smallest with the dimension of fewest
            distinct coordinates first.
        """
        return cls._from_dense(array, dim_names, index_type, metadata, axis_order)

    def to_numpy(self) -> tuple[NDArray, tuple[NDArray, ...], tuple[NDArray, ...]]:
        """Return the values, indptr and indices, as views."""
        return self.data, self.indptr, self.indices

    def _index(self) -> tuple[NDArray, ...]:
        return self.indptr + self.indices

    def _order(self) -> Any:
        return self.axis_order

    def _same_order(self, other: Any) -> bool:
        same: bool = self.axis_order == other.axis_order
        return same

    def _coordinates(self) -> Coordinates:
        found: dict[int, NDArray] = {}
        leaves: NDArray | None = None  # start of the leaves below each node of a level, and the end
        for level in range(len(self.shape) - 1, -1, -1):
            nodes = self.indices[level].astype(np.int64, copy=False)
            if level < len(self.shape) - 1:
                starts = self.indptr[level].astype(np.int64, copy=False)
                leaves = starts if leaves is None else leaves[starts]
                nodes = np.repeat(nodes, leaves[1:] - leaves[:-1])
            found[self.axis_order[level]] = nodes
        return tuple([found[axis] for axis in range(len(self.shape))])

    @classmethod
    def _sort_order(cls, ndim: int, order: Any) -> tuple[int, ...]:
        axes = tuple(range(ndim)) if order is None else tuple([int(axis) for axis in order])
        if sorted(axes) != list(range(ndim)):
            raise InvalidArgument(f"axis_order must be a permutation of {ndim} axes, found {axes}")
        return axes

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
        axes = cls._sort_order(len(shape), order)
        dtype = index_dtype(index_type, max(max(shape) - 1, len(storage)))
        count = len(storage)
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
        return cls(shape, indptr, indices, axes, storage, element)

    def _check_values(self) -> None:
        for level, starts in enumerate(self.indptr):
            check_rising(starts, f"indptr of level {level}")
        for level, nodes in enumerate(self.indices):
            check_range(nodes, self.shape[self.axis_order[level]], f"the indices of level {level}")
