"""Dense tensors ("Tensor message"): elements of one type in memory, a shape, and the step in bytes of each dimension.

Rules kept here:

* a tensor is a read-only view of an ndarray, whose memory it keeps alive. Strides stay as they are: row-major,
  column-major, with gaps, or zero for an element that repeats. Negative ones, which the format has not, and the byte
  order that it has not, are normalised by a copy;
* numpy gets the memory itself, read-only. Consumers that need not respect that get memory of their own: private pages
  of the mapping, or a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np

from shmarrow import import_hooks
from shmarrow.buffer import Bytes
from shmarrow.errors import CopyRequired, ExportRefused, InvalidArgument, InvalidType, printable, shown
from shmarrow.layout import Array
from shmarrow.layout.memory import check_expansion
from shmarrow.pickling import travels
from shmarrow.segment.mappings import copied, private_view, writable
from shmarrow.tensor.element import DType, Element, NDArray, as_ndarray, as_storage, checked_bools, element_values
from shmarrow.types import DataType, ExtensionType, Metadata, MetadataLike, as_metadata

DimNames = tuple[str, ...]
Shape = tuple[int, ...]

MAX_DIMENSIONS = 64
"""What an ndarray has."""
MAX_BYTES = (1 << 63) - 1

_BLOCK = 16 << 20
"""Bytes that are copied at a time where elements have to be brought together."""


@travels
class Tensor:
    """A dense array of any number of dimensions; made by :meth:`from_numpy`, or read by ``ipc.read_tensor``.

    Attributes
    ----------
    type : DataType
        The Arrow type of the elements.
    ml_dtype : str or None
        ``"bfloat16"`` or another name of the package ``ml_dtypes``, where the elements are floats that Arrow has no
        type for; ``type`` is then the integer of their size.
    dim_names : tuple of str
        The names of the dimensions; empty where they have none.
    metadata : dict of bytes to bytes, or None
        The metadata of the message that the tensor came in, or goes out with.
    storage : ndarray
        The elements as they lie in memory, read-only; bfloat16 and its like as unsigned integers.

    Examples
    --------
    >>> tensor = Tensor.from_numpy(np.arange(6, dtype="f4").reshape(2, 3), ["row", "column"])
    >>> tensor
    <Tensor float, shape (2, 3), strides (12, 4), dimensions row, column>
    >>> tensor[1].to_numpy()
    array([3., 4., 5.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_element", "dim_names", "metadata", "storage")

    from_torch: ClassVar[Callable[..., Tensor]]
    from_jax: ClassVar[Callable[..., Tensor]]
    to_torch: Callable[..., Any]
    pinned: Callable[..., AbstractContextManager[Tensor]]
    to_jax: Callable[..., Any]

    def __init__(
        self,
        storage: NDArray,
        element: Element | None = None,
        dim_names: DimNames = (),
        metadata: Metadata | None = None,
    ) -> None:
        if not isinstance(element, Element):
            raise InvalidType("a tensor is made of memory and a type; shmarrow.Tensor.from_numpy() takes arrays")
        if storage.flags.writeable:
            storage = storage.view()
            storage.flags.writeable = False
        self.storage = storage
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
            Of any shape, 0-d included, and of a dtype that Arrow has a fixed-width type for. Copied only if a stride is
            negative, the bytes are in the other order, or days (``M8[D]``) become int32.
        dim_names : iterable of str, optional
            A name for each dimension.
        type : DataType, optional
            What the elements stand for, where the dtype does not say it: ``date32()`` over int32, decimals.
        metadata : mapping, optional
            Metadata for the message.

        Raises
        ------
        InvalidType
            If Arrow has no fixed-width type for the elements, or ``type`` does not lie in this dtype.
        """
        if isinstance(array, np.ma.MaskedArray):
            raise InvalidType("a tensor has no nulls; fill the masked array first: array.filled()")
        storage, element = as_storage(as_ndarray(array), type)
        if storage.ndim and min(storage.strides) < 0:
            storage = storage.copy(order="C")
        return cls(storage, element, as_dim_names(dim_names, storage.ndim), as_metadata(metadata))

    @classmethod
    def from_array(
        cls, array: Array, dim_names: Iterable[str] | None = None, *, metadata: MetadataLike | None = None
    ) -> Tensor:
        """Make a tensor from a column of numbers, fixed-size lists of numbers, or tensors of one shape; never copies.

        The first dimension is the rows. The elements have the type of the column's values; of an extension type those
        of its storage.

        Raises
        ------
        CopyRequired
            If there are nulls, or numpy has no zero-copy form of the values.
        """
        if not isinstance(array, Array):
            raise InvalidType(f"expected an Array, found {type(array).__name__}")
        try:
            values = as_ndarray(array)
        except CopyRequired:
            if array.null_count:
                raise
            raise CopyRequired(f"no tensor has elements of {array.type}{_instead(array.type)}") from None
        return cls.from_numpy(values, dim_names, type=_element_type(array.type, values), metadata=metadata)

    # --- what it is ---

    @property
    def type(self) -> DataType:
        return self._element.type

    @property
    def ml_dtype(self) -> str | None:
        return self._element.ml_dtype

    @property
    def dtype(self) -> DType:
        """The dtype of :meth:`to_numpy`."""
        return self._element.numpy_dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each dimension."""
        return self.storage.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, along each dimension."""
        return self.storage.strides

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.storage.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.storage.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without gaps between them."""
        return self.storage.nbytes

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are contiguous, in row-major or column-major order."""
        return self.storage.flags.c_contiguous or self.storage.flags.f_contiguous

    def dim_name(self, index: int) -> str:
        """Return the name of a dimension; empty if unnamed."""
        if not isinstance(index, int) or not -self.ndim <= index < self.ndim:
            raise InvalidArgument(f"no dimension {shown(index)}: the tensor has {self.ndim}")
        return self.dim_names[index] if self.dim_names else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.storage, self._element, self.dim_names, self.metadata)

    def __len__(self) -> int:
        if not self.ndim:
            raise InvalidType("a tensor of no dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        names = f", dimensions {printable(', '.join(self.dim_names))}" if self.dim_names else ""
        return f"<Tensor {self._element}, shape {self.shape}, strides {self.strides}{names}>"

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

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Tensor) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def validate(self, *, full: bool = False) -> None:
        """Check the elements if ``full``; the structure was checked when the tensor was made.

        Raises
        ------
        InvalidData
            If a bool is neither 0 nor 1.
        LimitExceeded
            If strides make many more elements out of the memory than it has bytes.
        """
        if full:
            once = _without_repeats(self.storage)
            reach = sum((size - 1) * abs(step) for size, step in zip(once.shape, once.strides, strict=True))
            if once.dtype.kind == "b":
                check_expansion(max(once.size - reach, 0), "a tensor whose elements overlap")
            checked_bools(once)

    # --- handing over ---

    def _values(self) -> NDArray:
        return element_values(self.storage, self._element)

    def to_numpy(self, writable: bool = False) -> NDArray:
        """Return the elements as an ndarray.

        Parameters
        ----------
        writable : bool
            False gives a read-only view of the same memory; never a copy. With True the result may be written to, and
            is seen by nobody else: where the elements are mapped, over private pages of the mapping, which cost only
            the pages that are written (from 64 KiB on), else it is a copy.

        Raises
        ------
        MissingExtra
            For bfloat16 and its like, if the package ``ml_dtypes`` is not installed.
        StorageError
            If ``writable`` is True and the mapped file was truncated.
        LimitExceeded
            If ``writable`` is True and there is no memory for a copy.
        """
        storage = own_elements(self.storage) if writable else self.storage
        return storage.view(self.dtype) if self.ml_dtype is not None else storage

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        array = self.to_numpy()
        return array if dtype is None and not copy else np.array(array, dtype, copy=copy)

    def __buffer__(self, flags: int) -> memoryview:
        """The buffer protocol, which Python classes can take part in since Python 3.12."""
        return memoryview(self.storage)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device that the memory is on: the CPU."""
        return _CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule over writable memory, for ``torch.from_dlpack`` and similar.

        Many consumers, torch among them, know of no read-only memory. So they get what :meth:`to_numpy` gives with
        ``writable=True``: private pages of the mapping, or a copy. :meth:`to_numpy` shares memory with numpy, and
        ``to_torch(writable=False)`` with torch.

        Parameters
        ----------
        stream : None
            The CPU has none.
        max_version : tuple of int, optional
            The latest version of DLPack that the consumer knows.
        dl_device : tuple of int, optional
            Only the CPU, (1, 0).
        copy : bool, optional
            True makes a copy in any case. False refuses to make one: only private pages do then.

        Raises
        ------
        ExportRefused
            If DLPack has no such type, another device is asked for, or a copy is needed and ``copy`` is False.
        StorageError
            If the mapped file was truncated.
        LimitExceeded
            If there is no memory for a copy.
        """
        if dl_device not in (None, _CPU):
            raise ExportRefused(
                f"the memory is on the CPU, device {_CPU}; a tensor for device {dl_device} was asked for"
            )
        _dlpack_code(self._element)
        if copy is None:
            array = own_elements(self.storage)
        elif copy:
            array = copied(self.storage)
        else:
            found = private_view(self.storage) if self.storage.flags.aligned else None
            if found is None:
                raise ExportRefused(
                    "the memory is read-only, which DLPack consumers need not respect, and a writable form of it takes "
                    "a copy, which copy=False forbids; to_numpy() gives a read-only view of the memory itself"
                )
            array = found
        return capsule(array, self._element, max_version)

    # --- parts ---

    def __getitem__(self, key: Any) -> Any:
        """Index like numpy; returns a tensor over the same memory, or one element."""
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

    def transpose(self, *axes: int) -> Tensor:
        """Permute the dimensions, by default reversing them; not a copy."""
        order = axes or tuple(range(self.ndim))[::-1]
        if sorted(order) != list(range(self.ndim)):
            raise InvalidArgument(
                f"the axes of a tensor of {self.ndim} dimensions must be a permutation of theirs, found {axes}"
            )
        names = tuple([self.dim_names[axis] for axis in order]) if self.dim_names else ()
        return Tensor(self.storage.transpose(order), self._element, names, self.metadata)

    @property
    def T(self) -> Tensor:
        """The tensor with its dimensions reversed."""
        return self.transpose()


_CPU = (1, 0)


def as_dim_names(names: Iterable[str] | None, ndim: int) -> DimNames:
    """Names of dimensions, checked: one for each, or none at all."""
    if names is None:
        return ()
    given = tuple(names) if not isinstance(names, str) else (names,)
    for name in given:
        if not isinstance(name, str):
            raise InvalidType(f"the name of a dimension must be a string, found {shown(name)}")
    if given and len(given) != ndim:
        raise InvalidArgument(f"{ndim} dimensions need {ndim} names, found {len(given)}: {', '.join(given)}")
    return given if any(given) else ()


def same_values(left: NDArray, right: NDArray) -> bool:
    """Whether two arrays have the same shape and equal elements."""
    return left.shape == right.shape and bool(np.all(left == right))


# --- slices -----------------------------------------------------------------------------------------------------


def _names_after(names: DimNames, key: Any, ndim: int) -> DimNames:
    """The names that are left after basic indexing; none where numpy orders the dimensions by other rules."""
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
    """Strides and bytes of an array's elements once they lie together, the order of their dimensions kept.

    Dimensions of stride zero repeat the same elements, and go on doing so.
    """
    if not array.size:
        return (array.itemsize,) * array.ndim, 0  # Arrow C++ takes an index without values for contiguous only so
    strides = [0] * array.ndim
    step = array.itemsize
    for axis in reversed(_order(array)):
        if _repeats(array, axis):
            continue
        strides[axis] = step
        step *= array.shape[axis]
    return tuple(strides), step


def row_major(shape: Shape, itemsize: int) -> Shape:
    """The strides of elements that lie together in row-major order."""
    strides = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(strides[::-1])


def dense_pieces(array: NDArray) -> Iterator[Bytes]:
    """The bytes of an array's elements, in the order that :func:`dense_layout` says; copied where gaps lie between."""
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
    """A view with one element where a dimension shows the same one many times, which may be without end."""
    return array[tuple([slice(0, 1) if _repeats(array, axis) else slice(None) for axis in range(array.ndim)])]


def _repeats(array: NDArray, axis: int) -> bool:
    """Whether all places along a dimension show the same elements."""
    return array.strides[axis] == 0 and array.shape[axis] > 1


def _order(array: NDArray) -> list[int]:
    """The dimensions from the one with the largest step to that with the smallest."""
    if array.flags.c_contiguous:  # here the strides of dimensions of one element say nothing
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=lambda axis: -array.strides[axis])


# --- DLPack -----------------------------------------------------------------------------------------------------

_DLPACK_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
"""The type codes of DLPack 1.1 for floats that numpy does not know."""


class Exposed:
    """An array for consumers of DLPack: the memory itself, which is said to be writable.

    Only for memory that is private, and for consumers that never write to it.
    """

    def __init__(self, array: NDArray, element: Element) -> None:
        if not array.flags.aligned:
            raise ExportRefused(
                f"elements of {array.itemsize} bytes are not aligned to their size; take a copy: to_numpy().copy()"
            )
        self.array = array if array.flags.writeable else np.asarray(_Alias(array))
        self.element = element

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
        return capsule(self.array, self.element, max_version)


class _Alias:
    """The memory of an array, under an interface that says that it may be written to."""

    def __init__(self, array: NDArray) -> None:
        self.array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def own_elements(array: NDArray) -> NDArray:
    """The elements in writable memory that nobody else sees, each at a multiple of its size."""
    return writable(array) if array.flags.aligned else copied(array)


def _dlpack_code(element: Element) -> int | None:
    """The type code of elements that numpy has no DLPack type for; None for those that it has."""
    code = _DLPACK_CODES.get(element.ml_dtype or "")
    if element.ml_dtype is not None and code is None:
        raise ExportRefused(f"DLPack has no type for {element.ml_dtype}; hand over `storage`, and view it as that")
    if element.dtype.kind not in "biuf":
        step = "storage.view('i8') has the integers" if element.dtype.kind in "mM" else "its storage is an ndarray"
        raise ExportRefused(f"DLPack has no type for {element}; {step}")
    return code


def capsule(array: NDArray, element: Element, max_version: tuple[int, int] | None) -> Any:
    """A DLPack capsule over a writable array of elements as they lie in memory."""
    code = _dlpack_code(element)
    try:
        made = array.__dlpack__(max_version=max_version)
    except BufferError as error:
        raise ExportRefused(f"DLPack has no type for {element}: {error}") from None
    return made if code is None else _with_type_code(made, code)


# Where the type code stands in a managed tensor: after the data pointer, the device and the number of dimensions,
# which since version 1.0 come after the version, the owner, the deleter and the flags.
_CODE_OFFSET = {b"dltensor": 20, b"dltensor_versioned": 52}


def _with_type_code(capsule: Any, code: int) -> Any:
    """A capsule that nobody has seen yet, with another type for the same bytes."""
    name = _capsule_name(capsule)
    address = _capsule_pointer(capsule, name)
    ctypes.c_uint8.from_address(address + _CODE_OFFSET[name]).value = code
    return capsule


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype = ctypes.c_char_p
_capsule_name.argtypes = [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


_FORMS = {
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "dictionary_encode().indices has numbers for them"),
    **dict.fromkeys(("list", "large_list", "list_view", "large_list_view"), "cast it to lists of one length"),
    "bool": "to_numpy(zero_copy_only=False) copies them, as Arrow has a bit for each",
    "dictionary": ".indices has the codes, .dictionary the values",
    "struct": "field(name) gives one of its columns",
}
"""For the layouts that no tensor has, what to use instead."""


def _instead(type: DataType) -> str:
    """What makes a tensor of a type that numpy has no zero-copy form of, as the end of a message."""
    while type.layout == "fixed_size_list":
        type = type.fields[0].type
    form = _FORMS.get(type.layout, "")
    if type.layout == "primitive":
        integers = integers_of(type)
        form = f"{integers} gives the integers" if integers else "cast('float64') gives numbers"
    return f"; {form}" if form else ""


def integers_of(type: DataType) -> str:
    """The call that gives the integers of dates and times, for messages; empty for other types."""
    known = type.layout == "primitive" and type.descriptor.values in ("date", "time", "timestamp", "duration")
    return f"view('int{type.bit_width}')" if known else ""


def _element_type(type: DataType, values: NDArray) -> DataType | None:
    """The type of the values of a column, which the dtype of an ndarray over them does not tell: time zones, dates."""
    while type.fields:
        type = type.fields[0].type
    if isinstance(type, ExtensionType):
        type = type.storage_type
    return type if type.layout == "primitive" and type.numpy_dtype == values.dtype else None


import_hooks.arrived("tensor.dense")
