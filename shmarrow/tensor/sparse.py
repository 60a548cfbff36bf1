"""Base class of sparse tensors: shape, stored values, and conversions between formats.

A format defines its index, and its conversion to and from coordinates (one array per dimension). Invariants:

* the structure of an index is checked on construction, its values by ``validate(full=True)`` and before any conversion
  or export that relies on them;
* conversions are array operations, without Python loops over values;
* the value of a position stored several times is the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from shmarrow import import_hooks
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, LimitExceeded, printable
from shmarrow.pickling import travels
from shmarrow.tensor.dense import DimNames, Tensor, as_dim_names, same_values
from shmarrow.tensor.element import DType, Element, NDArray, as_ndarray, as_storage, checked_bools, element_values
from shmarrow.types import DataType, IntType, Metadata, MetadataLike, as_metadata, as_type

if TYPE_CHECKING:
    from shmarrow.tensor.coo import SparseCOOTensor
    from shmarrow.tensor.csf import SparseCSFTensor
    from shmarrow.tensor.csx import SparseCSCMatrix, SparseCSRMatrix

Shape = tuple[int, ...]
Coordinates = tuple[NDArray, ...]
IndexType = DataType | str | None
Form = TypeVar("Form", bound="SparseTensor")

_INT64_MAX = (1 << 63) - 1
_STEP = 1 << 19
"""Chunk size, in elements, of the search for non-zeros; the mask stays in the CPU cache."""


class SparseTensor:
    """Base class of sparse tensors.

    Attributes
    ----------
    shape : tuple of int
        Size of each dimension.
    type : DataType
        The Arrow type of the elements.
    ml_dtype : str or None
        As :attr:`shmarrow.Tensor.ml_dtype`.
    dim_names : tuple of str
        Names of the dimensions; empty if unnamed.
    metadata : dict of bytes to bytes, or None
        Custom metadata of the tensor's message.
    storage : ndarray
        The stored values, shape (non_zero_length,), read-only; without ``ml_dtypes`` views.
    """

    __slots__ = ("__weakref__", "_element", "dim_names", "metadata", "shape", "storage")

    form: ClassVar[str]
    """``"COO"``, ``"CSR"``, ``"CSC"`` or ``"CSF"``."""

    from_scipy: ClassVar[Callable[..., Any]]
    from_torch: ClassVar[Callable[..., Any]]
    from_pydata_sparse: ClassVar[Callable[..., Any]]
    to_scipy: Callable[[], Any]
    to_torch: Callable[..., Any]
    to_pydata_sparse: Callable[[], Any]

    def __init__(
        self,
        shape: Shape,
        storage: NDArray,
        element: Element,
        dim_names: DimNames = (),
        metadata: Metadata | None = None,
    ) -> None:
        self.shape = shape
        self.storage = read_only(storage)
        self._element = element
        self.dim_names = dim_names
        self.metadata = metadata

    def __init_subclass__(cls) -> None:
        travels(cls)

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            parts = isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value)
            kept = tuple(map(read_only, value)) if parts else value
            setattr(self, name, read_only(kept) if isinstance(kept, np.ndarray) else kept)

    # --- defined by each format ---

    def _index(self) -> tuple[NDArray, ...]:
        """The arrays of the index."""
        raise NotImplementedError

    def _coordinates(self) -> Coordinates:
        """The coordinates of the stored values in storage order; one array per dimension."""
        raise NotImplementedError

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
        """Build the tensor from coordinates sorted by :meth:`_sort_order`."""
        raise NotImplementedError

    @classmethod
    def _sort_order(cls, ndim: int, order: Any) -> tuple[int, ...]:
        """The dimensions in sort order, slowest first."""
        return tuple(range(ndim))

    def _check_values(self) -> None:
        """Check the values of the index."""
        raise NotImplementedError

    # --- building ---

    @classmethod
    def from_dense(
        cls,
        array: Any,
        dim_names: Iterable[str] | None = None,
        *,
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
        index_type : DataType or str, optional
            The integer type of the index.
        metadata : mapping, optional
            Custom metadata of the tensor's message.
        """
        return cls._from_dense(array, dim_names, index_type, metadata)

    @classmethod
    def _from_dense(
        cls,
        array: Any,
        dim_names: Iterable[str] | None,
        index_type: IndexType,
        metadata: MetadataLike | None,
        order: Any = None,
    ) -> Self:
        dense = array if isinstance(array, Tensor) else Tensor.from_numpy(array, dim_names, metadata=metadata)
        shape = checked_shape(dense.shape, dense.storage.itemsize)
        axes = cls._sort_order(len(shape), order)
        ordered = np.ascontiguousarray(dense.storage.transpose(axes))
        flat = ordered.reshape(-1)
        places = non_zero(flat, dense._element)
        found = np.unravel_index(places, ordered.shape) if len(shape) > 1 else (places,)
        coordinates = tuple([found[axes.index(axis)] for axis in range(len(shape))])
        made = cls._from_sorted(shape, coordinates, flat[places], dense._element, index_type, order)
        made.dim_names = dense.dim_names if dim_names is None else as_dim_names(dim_names, len(shape))
        made.metadata = dense.metadata if metadata is None else as_metadata(metadata)
        return made

    def _convert(self, cls: Any, index_type: IndexType, order: Any = None) -> Any:
        self.validate(full=True)
        coordinates = self._coordinates()
        storage = self.storage
        axes = cls._sort_order(len(self.shape), order)
        flat = np.ravel_multi_index([coordinates[axis] for axis in axes], [self.shape[axis] for axis in axes])
        if (flat[1:] < flat[:-1]).any():
            by_place = np.argsort(flat, kind="stable")
            coordinates = tuple([column[by_place] for column in coordinates])
            storage = storage[by_place]
        made = cls._from_sorted(self.shape, coordinates, storage, self._element, index_type, order)
        made.dim_names = self.dim_names
        made.metadata = self.metadata
        return made

    def as_form(self, cls: type[Form]) -> Form:
        """Convert to another sparse format; returns the tensor itself if it has that format."""
        return self if isinstance(self, cls) else self._convert(cls, None)

    def coalesced(self) -> Self:
        """Sort the values and add up duplicates; returns the tensor itself if already canonical.

        Raises
        ------
        InvalidData
            If an index value is out of bounds, or duplicates cannot be added.
        """
        self.validate(full=True)
        order = self._order()
        axes = self._sort_order(len(self.shape), order)
        coordinates = self._coordinates()
        flat = np.ravel_multi_index([coordinates[axis] for axis in axes], [self.shape[axis] for axis in axes])
        if (flat[1:] > flat[:-1]).all():
            return self
        by_place = np.argsort(flat, kind="stable")
        flat = flat[by_place]
        first = np.flatnonzero(np.append(True, flat[1:] != flat[:-1]))
        storage = self.storage[by_place]
        if len(first) < len(flat):
            numbers = self._numbers(storage)
            storage = np.add.reduceat(numbers, first, dtype=numbers.dtype).view(storage.dtype)
        index = self._index()[-1].dtype
        made = self._from_sorted(
            self.shape,
            tuple([column[by_place][first] for column in coordinates]),
            storage,
            self._element,
            IntType(8 * index.itemsize, index.kind == "i"),
            order,
        )
        made.dim_names = self.dim_names
        made.metadata = self.metadata
        return made

    def _order(self) -> Any:
        """The argument of :meth:`_sort_order` for this tensor's order."""
        return None

    def to_coo(self, *, index_type: IndexType = None) -> SparseCOOTensor:
        """Convert to COO with sorted coordinates."""
        from shmarrow.tensor.coo import SparseCOOTensor

        made: SparseCOOTensor = self._convert(SparseCOOTensor, index_type)
        return made

    def to_csr(self, *, index_type: IndexType = None) -> SparseCSRMatrix:
        """Convert a two-dimensional tensor to CSR."""
        from shmarrow.tensor.csx import SparseCSRMatrix

        made: SparseCSRMatrix = self._convert(SparseCSRMatrix, index_type)
        return made

    def to_csc(self, *, index_type: IndexType = None) -> SparseCSCMatrix:
        """Convert a two-dimensional tensor to CSC."""
        from shmarrow.tensor.csx import SparseCSCMatrix

        made: SparseCSCMatrix = self._convert(SparseCSCMatrix, index_type)
        return made

    def to_csf(self, axis_order: Sequence[int] | None = None, *, index_type: IndexType = None) -> SparseCSFTensor:
        """Convert to CSF with levels in the order of ``axis_order``."""
        from shmarrow.tensor.csf import SparseCSFTensor

        made: SparseCSFTensor = self._convert(SparseCSFTensor, index_type, axis_order)
        return made

    def to_dense(self) -> NDArray:
        """Convert to a dense ndarray; duplicates are added up.

        Raises
        ------
        InvalidData
            If an index value is out of bounds, or duplicates cannot be added.
        LimitExceeded
            If there is not enough memory for the shape.
        """
        self.validate(full=True)
        flat = np.ravel_multi_index(self._coordinates(), self.shape)
        try:
            dense = np.zeros(prod(self.shape), self.storage.dtype)
        except MemoryError:
            raise LimitExceeded(
                f"a dense tensor of shape {self.shape} takes {prod(self.shape) * self.storage.itemsize} bytes, "
                f"more than the available memory; it has {self.non_zero_length} stored values"
            ) from None
        if _has_twice(flat):
            np.add.at(self._numbers(dense), flat, self._numbers(self.storage))
        else:
            dense[flat] = self.storage
        return dense.reshape(self.shape).view(self.dtype)

    def _numbers(self, storage: NDArray) -> NDArray:
        """The values as a summable ndarray."""
        values = element_values(storage, self._element)
        if values.dtype.kind in "VMm" and self.ml_dtype is None:
            raise InvalidData(f"duplicate values of {self._element} cannot be added up")
        return values

    # --- properties ---

    @property
    def type(self) -> DataType:
        return self._element.type

    @property
    def ml_dtype(self) -> str | None:
        return self._element.ml_dtype

    @property
    def dtype(self) -> DType:
        """The dtype of :attr:`data`."""
        return self._element.numpy_dtype

    @property
    def data(self) -> NDArray:
        """The stored values, shape (non_zero_length,); a read-only view."""
        return self.storage.view(self.dtype) if self.ml_dtype is not None else self.storage

    @property
    def non_zero_length(self) -> int:
        """Number of stored values."""
        return len(self.storage)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, including zeros."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the values and the index in bytes."""
        return self.storage.nbytes + sum([part.nbytes for part in self._index()])

    def dim_name(self, index: int) -> str:
        """Return the name of a dimension; empty if unnamed."""
        if not -self.ndim <= index < self.ndim:
            raise InvalidArgument(f"no dimension {index}: the tensor has {self.ndim}")
        return self.dim_names[index] if self.dim_names else ""

    def __repr__(self) -> str:
        names = f", dimensions {printable(', '.join(self.dim_names))}" if self.dim_names else ""
        return f"<{type(self).__name__} {self._element}, shape {self.shape}, {self.non_zero_length} stored{names}>"

    def equals(self, other: object) -> bool:
        """Compare form, type, shape, dimension names, and the stored values in order."""
        return (
            isinstance(other, SparseTensor)
            and type(self) is type(other)
            and (self._element, self.shape, self.dim_names) == (other._element, other.shape, other.dim_names)
            and self._same_order(other)
            and len(self._index()) == len(other._index())
            and all(same_values(mine, theirs) for mine, theirs in zip(self._index(), other._index(), strict=True))
            and same_values(element_values(self.storage, self._element), element_values(other.storage, other._element))
        )

    def _same_order(self, other: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, SparseTensor) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def validate(self, *, full: bool = False) -> None:
        """Check the index values if ``full``; the structure is always checked on construction.

        Raises
        ------
        InvalidData
            If an index value is out of bounds, an indptr decreases, or the order is not as flagged.
        """
        if full:
            self._check_values()
            checked_bools(self.storage)


# --- checks -----------------------------------------------------------------------------------------------------


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


def index_of(values: Any, what: str) -> NDArray:
    """Convert an index to little-endian integers."""
    index = as_ndarray(values)
    if index.dtype.kind not in "iu":
        raise InvalidType(f"{what} must be integers, found {index.dtype}")
    index = index.astype(index.dtype.newbyteorder("<"), copy=False)
    return index.copy() if min(index.strides, default=0) < 0 else index


def flat_index(values: Any, what: str) -> NDArray:
    """Convert a one-dimensional index to a contiguous array."""
    index = index_of(values, what)
    if index.ndim != 1:
        raise InvalidArgument(f"{what} must be an array of one dimension, found the shape {index.shape}")
    return np.ascontiguousarray(index)


def read_only(array: NDArray) -> NDArray:
    """Return a read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_range(index: NDArray, size: int, what: str) -> None:
    """Check that all index values are in ``[0, size)``."""
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


# --- finding and counting ---------------------------------------------------------------------------------------


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


def _has_twice(flat: NDArray) -> bool:
    if (flat[1:] > flat[:-1]).all():
        return False
    ordered = np.sort(flat)
    return bool((ordered[1:] == ordered[:-1]).any())


import_hooks.arrived("tensor.sparse")
