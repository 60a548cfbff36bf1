# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors ("SparseTensor"): what their formats share, and a class for each.

An index is a tree with a level for each dimension, in the order ``axis_order``: a node is a coordinate, and the leaves
are the stored values. ``indices`` has the coordinates of the nodes of a level; the children of node ``i`` of level
``k`` are the nodes ``indptr[k][i]`` to ``indptr[k][i + 1]`` of level ``k + 1``.
The formats differ in how they store this tree:

====== ==================== ========================= =====================================================
format table                dimensions                levels
====== ==================== ========================= =====================================================
COO    SparseTensorIndexCOO any, in order             one node per value in each, so there is no indptr;
                                                      ``indices`` is one matrix with a column per dimension
CSR    SparseMatrixIndexCSX 2: rows, columns          the first has a node for every row, not stored
CSC    SparseMatrixIndexCSX 2: columns, rows          the first has a node for every column, not stored
CSF    SparseTensorIndexCSF any, in any order         a node for each coordinate that occurs below its parent
====== ==================== ========================= =====================================================

Invariants:

* the structure of an index is checked on construction, its values by ``validate(full=True)`` and before any conversion
  or export that relies on them;
* conversions are array operations, without Python loops over values;
* the value of a position stored several times is the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from shmarrow.buffer import DType, NDArray
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, LimitExceeded
from shmarrow.pickling import passed_by_handle
from shmarrow.tensor.dense import AnyTensor, DimNames, Shape, Tensor, as_dim_names, same_values
from shmarrow.tensor.element import Element, as_ndarray, as_storage, checked_bools, element_values, read_only
from shmarrow.types import DataType, IntType, Metadata, MetadataLike, as_metadata, as_type

if TYPE_CHECKING:
    import scipy.sparse
    import sparse
    import torch


Coordinates = tuple[NDArray, ...]
"""One array per dimension."""
IndexType = DataType | str | None

_STEP = 1 << 19
"""Chunk size, in elements, of the search for non-zeros; the mask stays in the CPU cache."""


def as_index(values: Any, what: str) -> NDArray:
    """Convert to little-endian integers, as a view if possible."""
    index = as_ndarray(values)
    if index.dtype.kind not in "iu":
        raise InvalidType(f"{what} must be integers, found {index.dtype}")
    index = index.astype(index.dtype.newbyteorder("<"), copy=False)
    return index.copy() if min(index.strides, default=0) < 0 else index


def as_flat_index(values: Any, what: str) -> NDArray:
    """Convert to a contiguous array of one dimension."""
    index = as_index(values, what)
    if index.ndim != 1:
        raise InvalidArgument(f"{what} must be an array of one dimension, found the shape {index.shape}")
    return np.ascontiguousarray(index)


def index_dtype(index_type: IndexType, largest: int, default: str | None = None) -> DType:
    """The dtype of an index with values up to ``largest``: as requested, or the smaller of int32 and int64."""
    if index_type is None:
        return np.dtype(default or ("<i4" if largest < 1 << 31 else "<i8"))
    type = as_type(index_type)
    if not isinstance(type, IntType):
        raise InvalidType(f"the type of an index must be an integer, found {type}")
    if largest > np.iinfo(type.storage).max:
        raise InvalidArgument(f"an index of {type} holds values up to {np.iinfo(type.storage).max}, needed: {largest}")
    return type.storage


def check_range(index: NDArray, size: int, what: str) -> None:
    """Check that all values are in ``[0, size)``."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= size:
            raise InvalidData(f"{what} run from {low} to {high}, but the dimension has {size} elements")


def check_ends(indptr: NDArray, last: int, what: str) -> None:
    """Check the first and last value of an indptr."""
    if int(indptr[0]) != 0 or int(indptr[-1]) != last:
        raise InvalidData(f"{what} runs from {int(indptr[0])} to {int(indptr[-1])}, expected 0 to {last}")


def check_rising(indptr: NDArray, what: str) -> None:
    """Check that an indptr never decreases."""
    back = indptr[1:] < indptr[:-1]
    if back.any():
        at = int(back.argmax())
        raise InvalidData(f"{what} decreases from {int(indptr[at])} to {int(indptr[at + 1])} at {at + 1}")


def counted(index: NDArray, size: int) -> NDArray:
    """The indptr of sorted values in ``[0, size)``: the start of each value's run, and the end."""
    try:
        indptr = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(index.astype(np.intp, copy=False), minlength=size), out=indptr[1:])
    except (MemoryError, ValueError):
        raise LimitExceeded(
            f"an indptr over {size} slices takes {8 * (size + 1)} bytes, more than the available memory"
        ) from None
    return indptr


def non_zero(flat: NDArray, element: Element) -> NDArray:
    """The positions of non-zero elements in a flat array."""
    values = element_values(flat, element)
    if values.dtype.kind in "Mmb":
        values = values.view(f"i{values.itemsize}")
    whole = (
        values.view("u1").reshape(len(values), -1) if element.ml_dtype is None and values.dtype.kind == "V" else None
    )
    found = []
    for start in range(0, len(values), _STEP):
        part = whole[start : start + _STEP].any(axis=1) if whole is not None else values[start : start + _STEP] != 0
        places = np.flatnonzero(part)
        places += start
        found.append(places)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def has_repeats(places: NDArray) -> bool:
    """Whether a position occurs several times."""
    if (places[1:] > places[:-1]).all():
        return False
    ordered = np.sort(places)
    return bool((ordered[1:] == ordered[:-1]).any())


Form = TypeVar("Form", bound="SparseTensor")
Levels = tuple[NDArray, ...]

FORMS: dict[str, Any] = {}
"""The classes of sparse tensors by format."""

_INT64_MAX = (1 << 63) - 1


class SparseTensor(AnyTensor):
    """Base class of sparse tensors.

    Attributes
    ----------
    shape : tuple of int
        Size of each dimension.
    type : DataType
        The Arrow type of the elements.
    ml_dtype : str or None
        As :attr:`shmarrow.Tensor.ml_dtype`.
    index : tuple of ndarray
        The arrays of the index: ``indptr``, then ``indices``, from the first level to the last; read-only.
    axis_order : tuple of int
        The dimensions in the order by which the values are sorted, slowest first: of CSR ``(0, 1)``, of CSC ``(1, 0)``,
        of CSF the dimension of each level.
    is_canonical : bool
        Whether the coordinates are flagged as sorted in row-major order, without duplicates. Only COO has this flag.
    dim_names : tuple of str
        Names of the dimensions; empty if unnamed.
    metadata : dict of bytes to bytes, or None
        Custom metadata of the tensor's message.
    storage : ndarray
        The stored values, shape (non_zero_length,), read-only; without ``ml_dtypes`` views.
    """

    __slots__ = ("axis_order", "index", "is_canonical", "shape")

    form: ClassVar[str]
    """``"COO"``, ``"CSR"``, ``"CSC"`` or ``"CSF"``."""

    def __init__(
        self,
        shape: Shape,
        index: Sequence[NDArray],
        storage: NDArray,
        element: Element,
        axis_order: Sequence[int] | None = None,
        is_canonical: bool = False,
        dim_names: DimNames = (),
        metadata: Metadata | None = None,
    ) -> None:
        self.shape = shape
        self.index = tuple(map(read_only, index))
        self.storage = read_only(storage)
        self._element = element
        self.axis_order = self._axes(len(shape), axis_order)
        self.is_canonical = is_canonical
        self.dim_names = dim_names
        self.metadata = metadata
        self._check_index()

    def __init_subclass__(cls) -> None:
        passed_by_handle(cls)
        if "form" in cls.__dict__:
            FORMS[cls.form] = cls

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            setattr(self, name, value)
        self.storage = read_only(self.storage)
        self.index = tuple(map(read_only, self.index))

    # --- the index, which differs between formats ---

    @classmethod
    def _axes(cls, ndim: int, axis_order: Sequence[int] | None = None) -> tuple[int, ...]:
        """Check an order of the dimensions, by default that of the format."""
        own = tuple(range(ndim))
        if axis_order is not None and tuple(axis_order) != own:
            raise InvalidArgument(f"{cls.form} has no axis order")
        return own

    def _check_index(self) -> None:
        """Check the lengths of the index, and the first and last value of each indptr."""
        starts, nodes = self._levels()
        counts = self._implied() + [len(level) for level in nodes]
        if len(counts) != len(self.shape) or any(part.ndim != 1 for part in self.index):
            raise InvalidData(
                f"{self.form} of {len(self.shape)} dimensions needs {len(self.shape) - 1} indptr and "
                f"{len(self.shape) - len(self._implied())} indices of one dimension, found arrays of the shapes "
                f"{[part.shape for part in self.index]}"
            )
        if counts[-1] != len(self.storage):
            raise InvalidData(f"{self.form} of {len(self.storage)} values needs as many indices, found {counts[-1]}")
        for level, indptr in enumerate(starts):
            if len(indptr) != counts[level] + 1:
                raise InvalidData(
                    f"level {level} has {counts[level]} nodes, which needs {counts[level] + 1} values of indptr, "
                    f"found {len(indptr)}"
                )
            check_ends(indptr, counts[level + 1], f"indptr of level {level}")

    def _implied(self) -> list[int]:
        """The number of nodes of the first level, if it has one for every coordinate and stores none."""
        return []

    def _levels(self) -> tuple[Levels, Levels]:
        """The indptr, and the stored coordinates of the nodes, by level."""
        last = len(self.shape) - 1
        return self.index[:last], self.index[last:]

    @classmethod
    def _index_from(
        cls, shape: Shape, coordinates: Coordinates, axes: Sequence[int], index_type: IndexType
    ) -> Sequence[NDArray]:
        """The arrays of the index for coordinates sorted by ``axes``."""
        raise NotImplementedError

    def _coordinates(self) -> Coordinates:
        """The coordinates of the stored values in storage order; one array per dimension."""
        starts, stored = self._levels()
        levels = [*map(np.arange, self._implied()), *stored]
        coordinates: dict[int, NDArray] = {}
        leaves: NDArray | None = None  # start of the leaves below each node of a level, and the end
        for level in range(len(levels) - 1, -1, -1):
            nodes = levels[level].astype(np.int64, copy=False)
            if level < len(starts):
                indptr = starts[level].astype(np.int64, copy=False)
                leaves = indptr if leaves is None else leaves[indptr]
                nodes = np.repeat(nodes, leaves[1:] - leaves[:-1])
            coordinates[self.axis_order[level]] = nodes
        return tuple([coordinates[axis] for axis in range(len(levels))])

    def _places(self, axes: Sequence[int], coordinates: Coordinates) -> NDArray:
        """The positions of the values in a dense array whose dimensions are in the order ``axes``."""
        return np.ravel_multi_index([coordinates[axis] for axis in axes], [self.shape[axis] for axis in axes])

    # --- building ---

    @classmethod
    def _over(
        cls,
        data: Any,
        index: Sequence[NDArray],
        shape: Iterable[int],
        axis_order: Sequence[int] | None,
        dim_names: Iterable[str] | None,
        type: DataType | None,
        metadata: MetadataLike | None,
    ) -> Self:
        """Make a tensor over arrays; ``is_canonical`` is left to the caller."""
        storage, element = values_of(data, type)
        dims = checked_shape(shape, storage.itemsize)
        names = as_dim_names(dim_names, len(dims))
        return cls(dims, index, storage, element, axis_order, False, names, as_metadata(metadata))

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
        """Make a sparse tensor from the non-zero elements of a dense array.

        Parameters
        ----------
        array : ndarray or Tensor
            Of any dtype supported by :class:`shmarrow.Tensor`. NaN is not zero, -0.0 is.
        dim_names : iterable of str, optional
            A name for each dimension.
        axis_order : sequence of int, optional
            For CSF, the dimension of each level; by default in order. The index is smallest with the dimension of
            fewest distinct coordinates first.
        index_type : DataType or str, optional
            The integer type of the index.
        metadata : mapping, optional
            Custom metadata of the tensor's message.
        """
        dense = array if isinstance(array, Tensor) else Tensor.from_numpy(array)
        shape = checked_shape(dense.shape, dense.storage.itemsize)
        axes = cls._axes(len(shape), axis_order)
        names = dense.dim_names if dim_names is None else as_dim_names(dim_names, len(shape))
        custom = dense.metadata if metadata is None else as_metadata(metadata)
        ordered = np.ascontiguousarray(dense.storage.transpose(axes))
        flat = ordered.reshape(-1)
        places = non_zero(flat, dense._element)
        found = np.unravel_index(places, ordered.shape) if len(shape) > 1 else (places,)
        coordinates = tuple([found[axes.index(axis)] for axis in range(len(shape))])
        index = cls._index_from(shape, coordinates, axes, index_type)
        return cls(shape, index, flat[places], dense._element, axes, cls.form == "COO", names, custom)

    def _sorted(self, axes: Sequence[int]) -> tuple[NDArray, Coordinates, NDArray]:
        """The values in the order of ``axes``: their :meth:`_places`, coordinates and storage."""
        self.validate(full=True)
        coordinates, storage = self._coordinates(), self.storage
        places = self._places(axes, coordinates)
        if (places[1:] < places[:-1]).any():
            order = np.argsort(places, kind="stable")
            coordinates, storage = tuple([column[order] for column in coordinates]), storage[order]
            places = places[order]
        return places, coordinates, storage

    def _convert(self, cls: type[Form], index_type: IndexType = None, axis_order: Sequence[int] | None = None) -> Form:
        axes = cls._axes(len(self.shape), axis_order)
        places, coordinates, storage = self._sorted(axes)
        index = cls._index_from(self.shape, coordinates, axes, index_type)
        canonical = cls.form == "COO" and bool((places[1:] > places[:-1]).all())
        return cls(self.shape, index, storage, self._element, axes, canonical, self.dim_names, self.metadata)

    def as_form(self, cls: type[Form]) -> Form:
        """Convert to another sparse format; returns the tensor itself if it has that format."""
        return self if isinstance(self, cls) else self._convert(cls)

    def coalesced(self) -> Self:
        """Sort the values and add up duplicates; returns the tensor itself if already canonical.

        Raises
        ------
        InvalidData
            If an index value is out of bounds, or duplicates cannot be added.
        """
        places, coordinates, storage = self._sorted(self.axis_order)
        repeated = places[1:] == places[:-1]
        if repeated.any():
            first = np.flatnonzero(np.append(True, ~repeated))
            numbers = self._numbers(storage)
            storage = np.add.reduceat(numbers, first, dtype=numbers.dtype).view(storage.dtype)
            coordinates = tuple([column[first] for column in coordinates])
        elif storage is self.storage:
            return self
        dtype = self.index[-1].dtype
        index = self._index_from(
            self.shape, coordinates, self.axis_order, IntType(8 * dtype.itemsize, dtype.kind == "i")
        )
        canonical = self.form == "COO"
        return type(self)(
            self.shape, index, storage, self._element, self.axis_order, canonical, self.dim_names, self.metadata
        )

    def to_coo(self, *, index_type: IndexType = None) -> SparseCOOTensor:
        """Convert to COO with sorted coordinates."""
        return self._convert(FORMS["COO"], index_type)

    def to_csr(self, *, index_type: IndexType = None) -> SparseCSRMatrix:
        """Convert a two-dimensional tensor to CSR."""
        return self._convert(FORMS["CSR"], index_type)

    def to_csc(self, *, index_type: IndexType = None) -> SparseCSCMatrix:
        """Convert a two-dimensional tensor to CSC."""
        return self._convert(FORMS["CSC"], index_type)

    def to_csf(self, axis_order: Sequence[int] | None = None, *, index_type: IndexType = None) -> SparseCSFTensor:
        """Convert to CSF with levels in the order of ``axis_order``."""
        return self._convert(FORMS["CSF"], index_type, axis_order)

    def to_dense(self) -> NDArray:
        """Convert to a dense ndarray; duplicates are added up, in their own type: integers wrap.

        Raises
        ------
        InvalidData
            If an index value is out of bounds, or duplicates cannot be added.
        LimitExceeded
            If there is not enough memory for the shape.
        """
        self.validate(full=True)
        flat = self._places(range(len(self.shape)), self._coordinates())
        try:
            dense = np.zeros(prod(self.shape), self.storage.dtype)
        except MemoryError:
            raise LimitExceeded(
                f"a dense tensor of shape {self.shape} takes {prod(self.shape) * self.storage.itemsize} bytes, "
                f"more than the available memory; it has {self.non_zero_length} stored values"
            ) from None
        if has_repeats(flat):
            np.add.at(self._numbers(dense), flat, self._numbers(self.storage))
        else:
            dense[flat] = self.storage
        return dense.reshape(self.shape).view(self.dtype)

    # --- other libraries ---

    @classmethod
    def from_torch(
        cls, value: torch.Tensor, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
    ) -> Self:
        """Convert a sparse COO, CSR or CSC ``torch.Tensor`` to this format; zero-copy if it is in this format.

        Raises
        ------
        InvalidType
            If it is of another layout.
        Unsupported
            If its values are dense tensors, or it is a batch of matrices.
        MissingExtra
            If torch is not installed.
        """
        from shmarrow.interchange.torch import sparse_from_torch

        return sparse_from_torch(cls, value, dim_names, metadata=metadata)

    def to_torch(self, device: torch.device | str | None = None, *, writable: bool = True) -> torch.Tensor:
        """Convert to a sparse ``torch.Tensor``: COO, CSR and CSC keep their format, CSF becomes COO.

        The index is converted if torch does not support its integer type: int64 for COO, int32 and int64 for the
        others.

        Parameters
        ----------
        device : torch.device or str, optional
            Target device; by default the CPU.
        writable : bool
            As for :meth:`Tensor.to_torch`, for the values and the index.

        Raises
        ------
        InvalidData
            If a value of the index is invalid.
        ExportRefused
            If torch has no such element type.
        MissingExtra
            If torch is not installed.
        """
        from shmarrow.interchange.torch import sparse_to_torch

        return sparse_to_torch(self, device, writable=writable)

    @classmethod
    def from_scipy(
        cls, value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
    ) -> Self:
        """Convert a sparse array or matrix of scipy, of any format, to this format.

        CSR and CSC are zero-copy if they are in this format; the coordinates of COO are copied, as scipy stores one
        array per dimension.

        Raises
        ------
        InvalidType
            If it is not a sparse array, or Arrow has no such element type.
        MissingExtra
            If scipy is not installed.
        """
        from shmarrow.interchange.sparse import sparse_from_scipy

        return sparse_from_scipy(cls, value, dim_names, metadata=metadata)

    def to_scipy(self) -> scipy.sparse.sparray:
        """Convert to a sparse array of scipy: CSR to ``csr_array``, CSC to ``csc_array``, COO and CSF to ``coo_array``.

        Raises
        ------
        InvalidData
            If a value of the index is invalid.
        InvalidType
            If scipy has no such element type.
        MissingExtra
            If scipy is not installed.
        """
        from shmarrow.interchange.sparse import sparse_to_scipy

        return sparse_to_scipy(self)

    @classmethod
    def from_pydata_sparse(
        cls, value: Any, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
    ) -> Self:
        """Convert a ``sparse.COO`` or ``sparse.GCXS`` to this format; zero-copy if it is in this format.

        Raises
        ------
        InvalidType
            If it is neither, or its fill value is not zero.
        MissingExtra
            If the package ``sparse`` is not installed.
        """
        from shmarrow.interchange.sparse import sparse_from_pydata

        return sparse_from_pydata(cls, value, dim_names, metadata=metadata)

    def to_pydata_sparse(self) -> sparse.SparseArray:
        """Convert to an array of the package ``sparse``: CSR and CSC to ``GCXS``, COO and CSF to ``COO``.

        Duplicates are summed first, as the package does not support them.

        Raises
        ------
        InvalidData
            If a value of the index is invalid.
        MissingExtra
            If the package ``sparse`` is not installed.
        """
        from shmarrow.interchange.sparse import sparse_to_pydata

        return sparse_to_pydata(self)

    def _numbers(self, storage: NDArray) -> NDArray:
        """The values as a summable ndarray."""
        values = element_values(storage, self._element)
        if values.dtype.kind in "VMm" and self.ml_dtype is None:
            raise InvalidData(f"duplicate values of {self._element} cannot be added up")
        return values

    # --- properties ---

    @property
    def data(self) -> NDArray:
        """The stored values, shape (non_zero_length,); a read-only view."""
        return self.storage.view(self.dtype) if self.ml_dtype is not None else self.storage

    @property
    def non_zero_length(self) -> int:
        """Number of stored values."""
        return len(self.storage)

    @property
    def size(self) -> int:
        """Number of elements, including zeros."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the values and the index in bytes."""
        return self.storage.nbytes + sum([part.nbytes for part in self.index])

    def __repr__(self) -> str:
        name, stored = type(self).__name__, self.non_zero_length
        return f"<{name} {self._element}, shape {self.shape}, {stored} stored{self._named()}>"

    def equals(self, other: object) -> bool:
        """Compare form, type, shape, dimension names, and the stored values in order."""
        return (
            isinstance(other, SparseTensor)
            and type(self) is type(other)
            and (self._element, self.shape, self.dim_names) == (other._element, other.shape, other.dim_names)
            and self.axis_order == other.axis_order
            and all(same_values(mine, theirs) for mine, theirs in zip(self.index, other.index, strict=True))
            and same_values(element_values(self.storage, self._element), element_values(other.storage, other._element))
        )

    def validate(self, *, full: bool = False) -> None:
        """Check the index values if ``full``; the structure is always checked on construction.

        Raises
        ------
        InvalidData
            If an index value is out of bounds, an indptr decreases, or the order is not as flagged.
        """
        if not full:
            return
        starts, levels = self._levels()
        for level, indptr in enumerate(starts):
            check_rising(indptr, f"indptr of level {level}")
        for axis, nodes in zip(self.axis_order[-len(levels) :], levels, strict=True):
            check_range(nodes, self.shape[axis], f"the indices in dimension {axis}")
        if self.is_canonical and not self._is_sorted():
            raise InvalidData("the coordinates are flagged as canonical, but are unsorted or contain duplicates")
        checked_bools(self.storage)

    def _is_sorted(self) -> bool:
        """Whether the coordinates, which must be in bounds, strictly increase."""
        places = self._places(self.axis_order, self._coordinates())
        return bool((places[1:] > places[:-1]).all())


# --- arguments --------------------------------------------------------------------------------------------------


def checked_shape(shape: Iterable[int], itemsize: int) -> Shape:
    """Check a shape: at least one dimension, and a size within int64."""
    dims = tuple([int(size) for size in shape])
    if not dims or min(dims) < 0:
        raise InvalidData(f"a sparse tensor needs at least one dimension, and sizes of at least 0, found {dims}")
    if prod([size for size in dims if size]) * itemsize > _INT64_MAX:
        raise InvalidData(f"elements of {itemsize} bytes in the shape {dims} take over 2^63 - 1 bytes")
    return dims


def values_of(data: Any, type: DataType | None) -> tuple[NDArray, Element]:
    """Convert values of shape (n,) or (n, 1) to storage; also returns their element type."""
    if isinstance(data, Tensor) and type is None:
        storage, element = data.storage, data._element
    else:
        storage, element = as_storage(as_ndarray(data), type)
    if storage.ndim == 2 and storage.shape[1] == 1:
        storage = storage[:, 0]
    if storage.ndim != 1:
        raise InvalidArgument(f"the values must be an array of shape (non-zeros,), found {storage.shape}")
    return np.ascontiguousarray(storage), element


# --- the formats ---------------------------------------------------------------------------------------------------


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
