"""COO tensors ("SparseTensorIndexCOO"): a coordinate matrix with a row per value and a column per dimension."""

from __future__ import annotations

from collections.abc import Iterable
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
    check_range,
    checked_shape,
    index_dtype,
    index_of,
    read_only,
    values_of,
)
from shmarrow.types import DataType, Metadata, MetadataLike, as_metadata


class SparseCOOTensor(SparseTensor):
    """A sparse tensor in coordinate (COO) format.

    Attributes
    ----------
    indices : ndarray
        The coordinates, shape (non_zero_length, ndim), with any strides; read-only.
    is_canonical : bool
        Whether the coordinates are flagged as sorted in row-major order, without duplicates.

    Examples
    --------
    >>> tensor = SparseCOOTensor.from_dense(np.array([[0, 5], [0, 0], [7, 0]]))
    >>> tensor
    <SparseCOOTensor int64, shape (3, 2), 2 stored>
    >>> tensor.indices.tolist(), tensor.data.tolist()
    ([[0, 1], [2, 0]], [5, 7])
    """

    __slots__ = ("indices", "is_canonical")

    form = "COO"

    def __init__(
        self,
        shape: Shape,
        indices: NDArray,
        storage: NDArray,
        element: Element,
        is_canonical: bool,
        dim_names: DimNames = (),
        metadata: Metadata | None = None,
    ) -> None:
        super().__init__(shape, storage, element, dim_names, metadata)
        if indices.shape != (len(storage), len(shape)):
            raise InvalidData(
                f"the coordinates of {len(storage)} values in {len(shape)} dimensions have the shape "
                f"{(len(storage), len(shape))}, found {indices.shape}"
            )
        self.indices = read_only(indices)
        self.is_canonical = is_canonical

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
        storage, element = values_of(data, type)
        dims = checked_shape(shape, storage.itemsize)
        indices = index_of(coords, "coordinates")
        names = as_dim_names(dim_names, len(dims))
        made = cls(dims, indices, storage, element, bool(is_canonical), names, as_metadata(metadata))
        if is_canonical is None:
            made._check_values()
            made.is_canonical = made._is_sorted()
        return made

    def to_numpy(self) -> tuple[NDArray, NDArray]:
        """Return the values, shape (non_zero_length,), and the coordinates, as views."""
        return self.data, self.indices

    def _index(self) -> tuple[NDArray, ...]:
        return (self.indices,)

    def _coordinates(self) -> Coordinates:
        return tuple([column.astype(np.int64, copy=False) for column in self.indices.T])

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
        if order is not None:
            raise InvalidArgument("COO has no axis order")
        dtype = index_dtype(index_type, max(*shape, 1) - 1, "<i8")
        indices = np.empty((len(storage), len(shape)), dtype)
        for axis, column in enumerate(coordinates):
            indices[:, axis] = column
        made = cls(shape, indices, storage, element, True)
        made.is_canonical = made._is_sorted()
        return made

    def _check_values(self) -> None:
        for axis, size in enumerate(self.shape):
            check_range(self.indices[:, axis], size, f"the coordinates in dimension {axis}")
        if self.is_canonical and not self._is_sorted():
            raise InvalidData("the coordinates are flagged as canonical, but are unsorted or contain duplicates")

    def _is_sorted(self) -> bool:
        """Whether the coordinates, which must be in bounds, strictly increase."""
        flat = np.ravel_multi_index(self._coordinates(), self.shape)
        return bool((flat[1:] > flat[:-1]).all())
