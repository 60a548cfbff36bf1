# SPDX-License-Identifier: Apache-2.0
"""Dense tensors ("Tensor message"): element type, shape and strides over memory.

Invariants:

* a tensor is a read-only view of an ndarray, which keeps its memory alive. Strides are preserved: row-major,
  column-major, with gaps, or zero (broadcast). Negative strides and foreign byte order, which the format lacks, are
  normalised by a copy;
* numpy gets read-only views. Consumers that may ignore read-only get private copy-on-write pages of the mapping, or a
  copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import Bytes, DType, NDArray
from shmarrow.errors import InvalidArgument, InvalidType, printable, shown
from shmarrow.layout import Array
from shmarrow.layout.construct import check_expansion
from shmarrow.layout.dlpack import CPU, elements_of, export, own_elements
from shmarrow.pickling import passed_by_handle
from shmarrow.tensor.element import Element, as_ndarray, as_storage, checked_bools, element_values, read_only
from shmarrow.types import DataType, Metadata, MetadataLike, as_metadata, storage_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import jax
    import torch

DimNames = tuple[str, ...]
Shape = tuple[int, ...]

MAX_DIMENSIONS = 64
"""Attributes of ndarrays that tensors share."""
MAX_BYTES = (1 << 63) - 1

_BLOCK = 16 << 20
"""Chunk size for copying strided elements."""


class AnyTensor:
    """Base class of dense and sparse tensors: elements of one type, and names of dimensions."""

    __slots__ = ("__weakref__", "_element", "dim_names", "metadata", "storage")

    _element: Element
    dim_names: DimNames
    metadata: Metadata | None
    storage: NDArray
    shape: Shape

    @property
    def type(self) -> DataType:
        return self._element.type

    @property
    def ml_dtype(self) -> str | None:
        return self._element.ml_dtype

    @property
    def dtype(self) -> DType:
        """The dtype of the elements in numpy."""
        return self._element.numpy_dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_mutable(self) -> bool:
        """False: the elements of a tensor cannot be changed."""
        return False

    def dim_name(self, index: int) -> str:
        """Return the name of a dimension; empty if unnamed."""
        if not isinstance(index, int) or not -self.ndim <= index < self.ndim:
            raise InvalidArgument(f"no dimension {shown(index)}: the tensor has {self.ndim}")
        return self.dim_names[index] if self.dim_names else ""

    def _named(self) -> str:
        """The names of the dimensions, for the end of ``repr()``."""
        return f", dimensions {printable(', '.join(self.dim_names))}" if self.dim_names else ""

    def equals(self, other: object) -> bool:
        """Compare type, shape, dimension names and elements."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, AnyTensor) else NotImplemented


@passed_by_handle
class Tensor(AnyTensor):
    """A dense tensor; made by :meth:`from_numpy` or ``ipc.read_tensor``.

    Attributes
    ----------
    type : DataType
        The Arrow type of the elements.
    ml_dtype : str or None
        ``"bfloat16"`` or another ``ml_dtypes`` name for floats without an Arrow type; ``type`` is then the integer type
        of their size.
    dim_names : tuple of str
        Names of the dimensions; empty if unnamed.
    metadata : dict of bytes to bytes, or None
        Custom metadata of the tensor's message.
    storage : ndarray
        The elements as stored, read-only; bfloat16 and similar as unsigned integers.

    Examples
    --------
    >>> tensor = Tensor.from_numpy(np.arange(6, dtype="f4").reshape(2, 3), ["row", "column"])
    >>> tensor
    <Tensor float, shape (2, 3), strides (12, 4), dimensions row, column>
    >>> tensor[1].to_numpy()
    array([3., 4., 5.], dtype=float32)
    """

    __slots__ = ()

    def __init__(
        self,
        storage: NDArray,
        element: Element | None = None,
        dim_names: DimNames = (),
        metadata: Metadata | None = None,
    ) -> None:
        if not isinstance(element, Element):
            raise InvalidType("expected memory and a type; for arrays use shmarrow.Tensor.from_numpy()")
        self.storage = read_only(storage) if storage.flags.writeable else storage
        self._element = element
        self.dim_names = dim_names
        self.metadata = metadata

    @classmethod
    def from_numpy(
        cls,
        array: Any,
        dim_names: Iterable[str] | None = None,
        *,
        type: DataType | None = None,
        metadata: MetadataLike | None = None,
    ) -> Tensor:
        """Make a tensor over an array's memory, without copying.

        Parameters
        ----------
        array : ndarray
            Of any shape, including 0-d, and any dtype with a fixed-width Arrow type. Copied only if a stride is
            negative, the byte order is foreign, or days (``M8[D]``) become int32.
        dim_names : iterable of str, optional
            A name for each dimension.
        type : DataType, optional
            The Arrow type, if it is not implied by the dtype: ``date32()`` over int32, decimals.
        metadata : mapping, optional
            Custom metadata of the tensor's message.

        Raises
        ------
        InvalidType
            If Arrow has no fixed-width type for the elements, or ``type`` is not stored as this dtype.
        """
        storage, element = as_storage(as_ndarray(array), type)
        if storage.ndim and min(storage.strides) < 0:
            storage = storage.copy(order="C")
        return cls(storage, element, as_dim_names(dim_names, storage.ndim), as_metadata(metadata))

    @classmethod
    def from_array(
        cls, array: Array, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
    ) -> Tensor:
        """Make a tensor over a column of numbers, fixed-size lists of numbers, or fixed-shape tensors; never copies.

        The first dimension is the rows. The element type is that of the column's values; for extension types that of
        the storage.

        Raises
        ------
        CopyRequired
            If there are nulls, or the values have no zero-copy numpy form.
        """
        if not isinstance(array, Array):
            raise InvalidType(f"expected an Array, found {type(array).__name__}")
        values = elements_of(array)
        return cls.from_numpy(values, dim_names, type=_element_type(array.type, values), metadata=metadata)

    # --- properties ---

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """Size of each dimension."""
        return self.storage.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Stride of each dimension in bytes."""
        return self.storage.strides

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.storage.size

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes, without gaps."""
        return self.storage.nbytes

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are contiguous, in row-major or column-major order."""
        return self.storage.flags.c_contiguous or self.storage.flags.f_contiguous

    def __reduce__(self) -> tuple[object, ...]:
        return Tensor, (self.storage, self._element, self.dim_names, self.metadata)

    def __len__(self) -> int:
        if not self.ndim:
            raise InvalidType("a 0-d tensor has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<Tensor {self._element}, shape {self.shape}, strides {self.strides}{self._named()}>"

    def equals(self, other: object) -> bool:
        """Compare type, shape, dimension names and elements, but not strides or metadata.

        NaN is not equal to anything.
        """
        return (
            isinstance(other, Tensor)
            and self._element == other._element
            and self.dim_names == other.dim_names
            and same_values(self._values(), other._values())
        )

    def validate(self, *, full: bool = False) -> None:
        """Check the elements if ``full``; the structure is always checked on construction.

        Raises
        ------
        InvalidData
            If a bool is neither 0 nor 1.
        LimitExceeded
            If strides repeat the memory too many times.
        """
        if full:
            once = _without_repeats(self.storage)
            reach = sum((size - 1) * abs(step) for size, step in zip(once.shape, once.strides, strict=True))
            if once.dtype.kind == "b":
                check_expansion(max(once.size - reach, 0), "a tensor whose elements overlap")
            checked_bools(once)

    # --- export ---

    def _values(self) -> NDArray:
        return element_values(self.storage, self._element)

    def to_numpy(self, writable: bool = False) -> NDArray:
        """Return the elements as an ndarray.

        Parameters
        ----------
        writable : bool
            False returns a read-only view, never a copy. True returns private writable memory: for mapped elements of
            at least 64 KiB copy-on-write pages, of which only modified ones take memory; otherwise a copy.

        Raises
        ------
        MissingExtra
            For bfloat16 and similar, if the package ``ml_dtypes`` is not installed.
        StorageError
            If ``writable`` is True and the mapped file was truncated.
        LimitExceeded
            If ``writable`` is True and there is not enough memory for a copy.
        """
        storage = own_elements(self.storage) if writable else self.storage
        return storage.view(self.dtype) if self.ml_dtype is not None else storage

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        array = self.to_numpy()
        return array if dtype is None and not copy else np.array(array, dtype, copy=copy)

    def __buffer__(self, flags: int) -> memoryview:
        """Support the buffer protocol (Python 3.12 and later)."""
        return memoryview(self.storage)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device: the CPU."""
        return CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule over writable memory, for ``torch.from_dlpack`` and similar.

        Many consumers, such as torch, have no read-only tensors, so this exports what :meth:`to_numpy` returns with
        ``writable=True``: private copy-on-write pages, or a copy. To share the memory, use :meth:`to_numpy`, or
        ``to_torch(writable=False)`` for torch.

        Parameters
        ----------
        stream : None
            Not used on the CPU.
        max_version : tuple of int, optional
            The latest DLPack version that the consumer supports.
        dl_device : tuple of int, optional
            Only the CPU, (1, 0).
        copy : bool, optional
            True forces a copy. False forbids one, so only copy-on-write pages can be exported.

        Raises
        ------
        ExportRefused
            If DLPack lacks the type, another device is requested, or a copy is needed but ``copy`` is False.
        StorageError
            If the mapped file was truncated.
        LimitExceeded
            If there is not enough memory for a copy.
        """
        return export(
            self.storage,
            self._element,
            self._element.ml_dtype,
            stream=stream,
            max_version=max_version,
            dl_device=dl_device,
            copy=copy,
        )

    # --- views ---

    def __getitem__(self, key: Any) -> Any:
        """Index like numpy; returns a zero-copy tensor, or one element."""
        part = self._values()[key]
        if not isinstance(part, np.ndarray):
            return part
        names = _names_after(self.dim_names, key, part.ndim) if self.dim_names else ()
        storage = part.view(self.storage.dtype)
        if storage.ndim and min(storage.strides) < 0:
            storage = storage.copy(order="C")
        return Tensor(storage, self._element, names, self.metadata)

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self)):
            yield self[i]

    # --- other libraries ---

    @staticmethod
    def from_torch(
        value: torch.Tensor, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
    ) -> Tensor:
        """Make a tensor over the memory of a dense ``torch.Tensor``; tensors on other devices are copied to the CPU.

        Raises
        ------
        InvalidType
            If it is sparse, or Arrow has no such type.
        MissingExtra
            If torch is not installed.
        """
        from shmarrow.interchange.torch import tensor_from_torch

        return tensor_from_torch(value, dim_names, metadata=metadata)

    def to_torch(self, device: torch.device | str | None = None, *, writable: bool = True) -> torch.Tensor:
        """Convert to a ``torch.Tensor``.

        Parameters
        ----------
        device : torch.device or str, optional
            Target device; by default the CPU. Other devices get the elements by one transfer from the shared memory.
        writable : bool
            True returns a private tensor that may be written to: changes do not affect the object or file, nor tensors
            of other calls. Mapped elements are copy-on-write: reading is free, writing copies the modified pages.
            Tensors of less than 64 KiB, and memory that is not mapped, are copied.

            False returns the shared memory itself, never a copy. torch has no read-only tensors: writing to it kills
            the process if the memory is mapped, and changes an immutable object otherwise.

        Raises
        ------
        ExportRefused
            If torch has no such dtype, or ``writable`` is False and the elements are not aligned to their size.
        StorageError
            If ``writable`` is True and the mapped file was truncated.
        LimitExceeded
            If there is not enough memory for a copy.
        MissingExtra
            If torch is not installed.
        """
        from shmarrow.interchange.torch import tensor_to_torch

        return tensor_to_torch(self, device, writable=writable)

    def pinned(self) -> AbstractContextManager[Tensor]:
        """Page-lock the memory for the GPU during a ``with`` block, so that transfers from it run at full speed.

        Raises
        ------
        Unsupported
            If torch has no CUDA device.
        StorageError
            If the driver refuses.
        MissingExtra
            If torch is not installed.

        Examples
        --------
        ``with tensor.pinned(): on_device = tensor.to_torch("cuda")``
        """
        from shmarrow.interchange.torch import pinned

        return pinned(self)

    @staticmethod
    def from_jax(
        value: jax.Array, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
    ) -> Tensor:
        """Make a tensor over the memory of a ``jax.Array``; arrays on other devices are copied to the CPU."""
        return Tensor.from_numpy(np.asarray(value), dim_names, metadata=metadata)

    def to_jax(self, device: jax.Device | None = None) -> jax.Array:
        """Convert to a ``jax.Array``: zero-copy if the memory is aligned to 64 bytes, otherwise JAX copies it.

        Without ``jax_enable_x64`` JAX has elements of 32 bits at most: wider ones are copied, and floats rounded.

        Parameters
        ----------
        device : jax.Device, optional
            Target device; by default the CPU.

        Raises
        ------
        InvalidData
            If 32 bits cannot hold an element.
        ExportRefused
            If JAX has no such dtype.
        MissingExtra
            If JAX is not installed.
        """
        from shmarrow.layout.jax import to_jax

        return to_jax(self.storage, self._element, self.ml_dtype, device)

    # --- other shapes ---

    def transpose(self, *axes: int) -> Tensor:
        """Permute the dimensions, by default reversing them; zero-copy."""
        order = axes or tuple(range(self.ndim))[::-1]
        if sorted(order) != list(range(self.ndim)):
            raise InvalidArgument(f"axes must be a permutation of the tensor's {self.ndim} dimensions, found {axes}")
        names = tuple([self.dim_names[axis] for axis in order]) if self.dim_names else ()
        return Tensor(self.storage.transpose(order), self._element, names, self.metadata)

    @property
    def T(self) -> Tensor:
        """The tensor with its dimensions reversed."""
        return self.transpose()


def as_dim_names(names: Iterable[str] | None, ndim: int) -> DimNames:
    """Check dimension names: one for each, or none at all."""
    if names is None:
        return ()
    labels = tuple(names) if not isinstance(names, str) else (names,)
    for name in labels:
        if not isinstance(name, str):
            raise InvalidType(f"the name of a dimension must be a string, found {shown(name)}")
    if labels and len(labels) != ndim:
        raise InvalidArgument(f"{ndim} dimensions need {ndim} names, found {len(labels)}: {', '.join(labels)}")
    return labels if any(labels) else ()


def same_values(left: NDArray, right: NDArray) -> bool:
    """Whether two arrays have the same shape and equal elements."""
    return left.shape == right.shape and bool(np.all(left == right))


# --- slices -----------------------------------------------------------------------------------------------------


def _names_after(names: DimNames, key: Any, ndim: int) -> DimNames:
    """The names left after basic indexing; none for advanced indexing, which reorders dimensions."""
    items = key if isinstance(key, tuple) else (key,)
    taken = sum(item is not None and item is not Ellipsis for item in items)
    if any(item is Ellipsis for item in items):
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        items = items[:at] + (slice(None),) * (len(names) - taken) + items[at + 1 :]
    left: list[str] = []
    position = 0
    for item in items:
        if item is None:
            left.append("")
        elif isinstance(item, slice):
            left.append(names[position])
            position += 1
        elif isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_)):
            position += 1
        else:
            return ()
    left += names[position:]
    return tuple(left) if len(left) == ndim and any(left) else ()


# --- bodies -----------------------------------------------------------------------------------------------------


def dense_layout(array: NDArray) -> tuple[tuple[int, ...], int]:
    """Strides and size of an array's elements once compacted, keeping the order of dimensions.

    Dimensions of stride zero keep it.
    """
    if not array.size:
        return (array.itemsize,) * array.ndim, 0  # Arrow C++ only accepts an empty index as contiguous in this form
    strides = [0] * array.ndim
    step = array.itemsize
    for axis in reversed(_order(array)):
        if _repeats(array, axis):
            continue
        strides[axis] = step
        step *= array.shape[axis]
    return tuple(strides), step


def row_major(shape: Shape, itemsize: int) -> Shape:
    """The strides of contiguous elements in row-major order."""
    strides = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(strides[::-1])


def dense_pieces(array: NDArray) -> Iterator[Bytes]:
    """The bytes of an array's elements in the order of :func:`dense_layout`; copied if strided."""
    if not array.size:
        return
    once = _without_repeats(array)
    ordered = once.transpose(_order(array))
    if ordered.flags.c_contiguous:
        yield ordered.reshape(-1).view(np.uint8)
        return
    yield from _blocks(ordered)


def _blocks(array: NDArray) -> Iterator[Bytes]:
    """The elements in row-major order, in copies of about :data:`_BLOCK` bytes."""
    row = array.nbytes // len(array)
    if row > _BLOCK and array.ndim > 1:
        for part in array:
            yield from _blocks(part)
        return
    step = max(_BLOCK // row, 1)
    for start in range(0, len(array), step):
        yield np.ascontiguousarray(array[start : start + step]).reshape(-1).view(np.uint8)


def _without_repeats(array: NDArray) -> NDArray:
    """A view that drops repetition: dimensions of stride zero have one element."""
    return array[tuple([slice(0, 1) if _repeats(array, axis) else slice(None) for axis in range(array.ndim)])]


def _repeats(array: NDArray, axis: int) -> bool:
    """Whether a dimension repeats the same elements."""
    return array.strides[axis] == 0 and array.shape[axis] > 1


def _order(array: NDArray) -> list[int]:
    """The dimensions by decreasing stride."""
    if array.flags.c_contiguous:  # strides of dimensions of size 1 are arbitrary
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=lambda axis: -array.strides[axis])


def _element_type(type: DataType, values: NDArray) -> DataType | None:
    """The type of a column's values, if the ndarray's dtype does not imply it: time zones, dates."""
    while type.fields:
        type = type.fields[0].type
    type = storage_of(type)
    return type if type.storage is not None and type.numpy_dtype == values.dtype else None
