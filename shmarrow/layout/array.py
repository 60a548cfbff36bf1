# SPDX-License-Identifier: Apache-2.0
"""The base class of all arrays: length, validity, slicing, element access, equality, casts, validation.

Invariants:

* an array is a view of buffers and child arrays, with an offset and a length. Slicing changes the offset and length,
  and copies nothing;
* :meth:`Array.validate` checks the structure (number and sizes of buffers, lengths of children, first and last
  offsets) in constant time; ``validate(full=True)`` also checks the values;
* layouts differ in the hooks that their classes implement, see ``hooks``; operations do not switch over layouts.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypeVar, overload

import numpy as np

from shmarrow import bitmap, capsules
from shmarrow.buffer import Buffer, Bytes, Indices, Mask, NDArray
from shmarrow.capsules import PyCapsule
from shmarrow.errors import (
    EXPANDED_VALUES,
    IndexOutOfRange,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    ShmarrowError,
    clip,
    not_an_index,
    not_expected,
    renumbered,
    shown,
)
from shmarrow.habits import WithoutOperators
from shmarrow.layout import construct, validation
from shmarrow.layout.construct import (
    CLASSES,
    array_class,
    boolean_bits,
    check_slots,
    checked_size,
    items_of,
    join_arrays,
    make_array,
    memory_error,
    range_of,
    slice_bounds,
)
from shmarrow.layout.hooks import LayoutHooks
from shmarrow.layout.listing import LISTING
from shmarrow.layout.preview import Budget, preview_items
from shmarrow.layout.validation import has_required, safe_slice
from shmarrow.memory import as_writable
from shmarrow.pickling import packed, passed_by_handle, unpacked
from shmarrow.types import DataType, as_type, has_floats, null

if TYPE_CHECKING:
    import jax
    import pandas as pd
    import pyarrow as pa
    import torch


Slice = slice


class Array(WithoutOperators, LayoutHooks):
    """An immutable sequence of values of one type ("Physical Memory Layout").

    Create arrays with :func:`shmarrow.array`, readers, or methods of other arrays. The constructor is internal: it
    takes buffers and checks nothing.

    Parameters
    ----------
    type : DataType
        The logical type.
    length : int
        Number of slots.
    buffers : list of uint8 ndarray or None
        Buffers in the order of the buffer listing; None for an omitted validity bitmap.
    null_count : int
        Number of null slots, -1 if not yet known.
    offset : int
        Position of the first slot in the buffers.
    children : sequence of Array
        Child arrays, in the order of ``type.fields``; the offset does not apply to them.
    dictionary : Array, optional
        Values of a dictionary-encoded array.

    Notes
    -----
    Thread safety: immutable. An unknown null count is computed on first use; concurrent threads compute the same
    number.
    """

    __slots__ = ("_buffers", "_children", "_dictionary", "_length", "_null_count", "_offset", "_safe", "_type")

    def __init__(
        self,
        type: Any,
        length: int = -1,
        buffers: list[Bytes | None] | None = None,
        null_count: int = -1,
        offset: int = 0,
        children: Sequence[Array] = (),
        dictionary: Array | None = None,
    ) -> None:
        if buffers is None:
            raise InvalidType("Array() takes a type and buffers; use shmarrow.array() for values")
        self._type = type
        self._length = length
        self._buffers = buffers
        self._null_count = null_count
        self._offset = offset
        self._children = children
        self._dictionary = dictionary
        # None if unknown, True if safe to export, TRUSTED, or the array to export instead; see make_safe.
        self._safe: Any = None

    def __init_subclass__(cls, of: type[DataType] | None = None) -> None:
        if of is not None:
            of.array_class = cls
        passed_by_handle(cls)

    # --- properties ---

    @property
    def type(self) -> DataType:
        """The logical type."""
        return self._type

    def __len__(self) -> int:
        return self._length

    @property
    def null_count(self) -> int:
        """Number of null slots; computed on first use if unknown."""
        if self._null_count < 0:
            self._null_count = self._count_nulls()
        return self._null_count

    @property
    def offset(self) -> int:
        """Position of the first slot within the buffers."""
        return self._offset

    @property
    def children(self) -> tuple[Array, ...]:
        """Child arrays as stored, regardless of slicing."""
        return tuple(self._children)

    @property
    def nbytes(self) -> int:
        """Bytes occupied by the slots of this array; for a slice, only those of the slice.

        Bitmaps count in whole bytes, offsets one per slot, children by the referenced part; dictionaries and view data
        buffers count in full.

        Raises
        ------
        InvalidData
            If offsets, run ends or type ids are out of range.
        """
        from shmarrow.layout.listing import referenced_bytes

        return referenced_bytes(self)

    def get_total_buffer_size(self) -> int:
        """Return the bytes of all buffers regardless of slicing, including children and dictionary.

        Shared buffers count once.
        """
        from shmarrow.layout.listing import buffer_bytes

        return buffer_bytes(self)

    def buffers(self) -> list[Buffer | None]:
        """Return the buffers of this array and then its children, in the order of the buffer listing; views."""
        own = [None if data is None else data.view(Buffer) for data in self._buffers]
        return own + [data for child in self._children for data in child.buffers()]

    def is_null(self, nan_is_null: bool = False) -> Array:
        """Return a BooleanArray, True for null slots, including those whose child, run or dictionary value is null.

        A copy.

        Parameters
        ----------
        nan_is_null : bool
            Whether floating-point NaN counts as null.

        Raises
        ------
        LimitExceeded
            If more than 2**27 slots occupy no memory.
        """
        bits = bitmap.inverted(self._valid_bits(), self._length)
        nans = self._storage._nans() if nan_is_null else None
        if nans is not None:
            bits |= bitmap.pack(nans)
        return boolean_bits(bits, self._length)

    def is_valid(self) -> Array:
        """Return a BooleanArray that is True for valid slots, the inverse of :meth:`is_null`; raises as it does.

        Zero-copy if the validity bitmap alone determines the result and the array starts at a byte boundary.
        """
        return boolean_bits(self._valid_bits(), self._length)

    # --- access ---

    @overload
    def __getitem__(self, key: Slice) -> Self: ...

    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...

    def __getitem__(self, key: Slice | SupportsIndex) -> Any:
        """Return one value as a Python object, or a slice as an array without copying."""
        if isinstance(key, slice):
            start, stop, step = range_of(key, self._length)
            if step == 1:
                return self.slice(start, max(stop - start, 0))
            if len(range(start, stop, step)) > EXPANDED_VALUES:
                check_slots(self)
            return self._take(np.arange(start, stop, step))
        try:
            index = as_index(key)
        except TypeError:
            raise not_an_index("an array", key) from None
        if not -self._length <= index < self._length:
            raise IndexOutOfRange(f"index {shown(index)} is out of range: the array has {self._length} values")
        return self._item(index + self._length if index < 0 else index)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._length, 1024):
            with renumbered(operator.add, start):
                values = self.slice(start, 1024).to_pylist()
            yield from values

    def slice(self, offset: int = 0, length: int | None = None) -> Self:
        """Return up to ``length`` slots starting at ``offset``; copies nothing.

        Slots beyond the end are ignored.

        Raises
        ------
        IndexOutOfRange
            If ``offset`` is negative.
        InvalidArgument
            If ``length`` is negative.
        """
        offset, length = slice_bounds(offset, length, self._length)
        if length == self._length:
            return self
        piece = self._with(offset=self._offset + offset, length=length, null_count=-1 if self._null_count else 0)
        piece._safe = safe_slice(self, offset, length)
        return piece

    def to_pylist(self) -> list[Any]:
        """Return the values as a list of Python objects, None for null.

        The class of the values depends only on the type: timestamps without a time zone and durations, both in
        nanoseconds, are ``numpy.datetime64`` and ``numpy.timedelta64``; all other temporal values are of ``datetime``.

        Raises
        ------
        InvalidData
            If ``datetime`` cannot hold a value, such as a date beyond the year 9999 or a fraction of a microsecond;
            :meth:`to_numpy` returns it.
        LimitExceeded
            If slots that occupy no memory would make more than 2**24 values.
        """
        mask = self._mask()
        values = self._pylist(mask)
        if mask is not None:
            for i in np.flatnonzero(~mask).tolist():
                values[i] = None
        return values

    tolist = to_pylist
    """Alias of :meth:`to_pylist`, as in pyarrow."""

    def to_numpy(self, zero_copy_only: bool = True, writable: bool = False) -> NDArray:
        """Return the values as an ndarray of shape (length,), or (length, list_size, ...) for fixed-size lists.

        Parameters
        ----------
        zero_copy_only : bool
            With True, raise if the values must be converted. With False, nulls become NaN (integers then float64) or
            NaT, else None in an object array; types without a numpy dtype become object arrays of Python values.
        writable : bool
            With False, return a read-only view if possible. With True, the result is writable and private: mapped
            values of 64 KiB or more are mapped copy-on-write, so that only written pages are copied; others are copied.

        Raises
        ------
        CopyRequired
            If the values have to be converted and ``zero_copy_only`` is True.
        StorageError
            If ``writable`` is True and the mapped file has been truncated.
        """
        values = self._to_numpy(zero_copy_only)
        return as_writable(values) if writable else values

    def to_masked_array(self) -> np.ma.MaskedArray[Any, Any]:
        """Return a read-only masked ndarray over the same memory, masked where a slot is null.

        Integers stay integers. Masked values are unspecified. The mask is always a copy, and so are booleans,
        ``date32``, dictionary-encoded and run-end-encoded values.

        Raises
        ------
        CopyRequired
            If numpy has no dtype for the values, such as strings and decimals.

        Examples
        --------
        >>> import shmarrow as sa
        >>> sa.array([1, None, 3]).to_masked_array().sum()
        np.int64(4)
        """
        values, missing = self._storage._masked_values()
        return np.ma.array(values, mask=np.ma.nomask if missing is None else missing, copy=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return the values as an ndarray; see :meth:`to_numpy`. Raises if a number or time does not fit ``dtype``.

        Raises
        ------
        InvalidData
            If a value does not fit ``dtype``; a null does not fit integer and bool dtypes.
        CopyRequired
            If a copy is needed and ``copy`` is False.
        """
        result = self.to_numpy(zero_copy_only=copy is False)
        if dtype is None and not copy:
            return result
        from shmarrow.casts.ndarray import as_dtype

        return as_dtype(result, dtype, copy)

    # --- gathering ---

    def take(self, indices: Any) -> Self:
        """Return the slots at ``indices``, in that order; copies only what the layout requires.

        Parameters
        ----------
        indices : integer ndarray, integer Array or sequence of int
            Shape (n,), from 0. A null, None or masked index gives a null.

        Raises
        ------
        InvalidType
            If the indices are not integers; bools and floats are never accepted.
        InvalidArgument
            If the indices are not one-dimensional.
        IndexOutOfRange
            If an index is negative or beyond the end.
        LimitExceeded
            If there is no memory for the result.
        """
        from shmarrow.layout.arguments import checked_positions

        return self._take(*checked_positions(indices))

    def filter(self, mask: Any, null_selection_behavior: str = "drop") -> Self:
        """Return the slots where ``mask`` is True; copies only what the layout requires.

        Parameters
        ----------
        mask : bool ndarray, BooleanArray, or sequence of bool
            Shape (length,); may have nulls or masked elements.
        null_selection_behavior : {"drop", "emit_null"}
            Whether a null in the mask drops the slot or makes it null.

        Raises
        ------
        InvalidType
            If the mask is not boolean.
        InvalidArgument
            If the length of the mask is wrong, or the behaviour is unknown.
        """
        from shmarrow.layout.selection import selection

        positions, valid = selection(mask, self._length, null_selection_behavior)
        return self if valid is None and len(positions) == self._length else self._take(positions, valid)

    def drop_null(self) -> Self:
        """Return the slots that are valid according to :meth:`is_null`.

        Raises
        ------
        LimitExceeded
            If slots that occupy no memory would make more than 2**24 values.
        """
        missing = self._logical_nulls()
        if missing is None or not missing.any():
            return self
        check_slots(self)
        return self._take(np.flatnonzero(~missing))

    def fill_null(self, fill_value: Any) -> Self:
        """Replace the nulls reported by :meth:`is_null`; returns the array itself if it has none.

        Parameters
        ----------
        fill_value : object or Array
            A value of the type, or an array with one value per slot; None replaces nothing.

        Raises
        ------
        InvalidType, InvalidData
            If the value does not fit the type.
        InvalidArgument
            If an array of values has the wrong length.
        LimitExceeded
            If slots that occupy no memory would make more than 2**24 values.
        """
        from shmarrow.layout.selection import fill_null

        return fill_null(self, fill_value)

    # --- comparing ---

    def equals(self, other: Any) -> bool:
        """Compare type, length, nulls and values; NaN is not equal to anything.

        Raises
        ------
        InvalidType
            If ``other`` is not an array of any Arrow library.
        """
        if not isinstance(other, Array):
            from shmarrow.layout.c_stream import read_array

            other = capsules.comparable(other, Array, read_array)
        if self._type != other._type or self._length != other._length:
            return False
        try:
            return (self is other and not has_floats(self._type)) or self._equal(other, None)
        except MemoryError:
            raise memory_error(self, self._length) from None

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Array) else NotImplemented

    # --- validation ---

    def validate(self, full: bool = False) -> None:
        """Check that the array conforms to the format.

        Parameters
        ----------
        full : bool
            False checks the structure in constant time. True also checks every value: offsets, UTF-8, type ids, run
            ends, dictionary indices, ranges of decimals and times, null counts.

        Raises
        ------
        InvalidData
            If the array is invalid; the message has the place, the expected and the found value.
        """
        validation.check(self, full)
        if full:
            self._check_nullability(None)

    # --- building ---

    @classmethod
    def from_buffers(
        cls,
        type: DataType | str,
        length: int,
        buffers: Sequence[Any],
        null_count: int = -1,
        offset: int = 0,
        children: Sequence[Array] | None = None,
    ) -> Array:
        """Make an array from buffers and child arrays; copies nothing.

        Parameters
        ----------
        type : DataType or str
            The type; for dictionary types, use :meth:`DictionaryArray.from_arrays`.
        length : int
            Number of slots.
        buffers : sequence of bytes-like objects, Buffer or None
            Buffers in the order of "Buffer Listing for Each Layout", without those of children. None for an omitted
            validity bitmap; layouts without validity accept a leading None.
        null_count : int
            Number of null slots, -1 if not known.
        offset : int
            Position of the first slot in the buffers.
        children : sequence of Array, optional
            Child arrays, in the order of ``type.fields``.

        Raises
        ------
        InvalidData
            If the number of buffers or children is wrong, one is too short, a child's type differs from its field's,
            offsets are out of range, or the null count is wrong.
        InvalidType
            If an argument is of the wrong class.
        InvalidArgument
            If ``length`` or ``offset`` is negative.
        """
        from shmarrow.layout.arguments import checked_parts

        target = cls._expect(type) if cls.layouts else as_type(type)
        result: Array = make_array(target, *checked_parts(target, length, buffers, null_count, offset, children or ()))
        result.validate()
        result._check_null_count()
        return result

    # --- casting and encoding ---

    def cast(self, target_type: DataType | str, safe: bool = True) -> Array:
        """Cast the values to another type; ``docs/casts.md`` lists the supported casts.

        Parameters
        ----------
        target_type : DataType or str
            The target type.
        safe : bool
            True raises if a value would change. False discards what does not fit: fractions of a number or time unit,
            digits beyond a scale or a float's precision, fields missing from the target.

        Raises
        ------
        InvalidType
            If there is no cast between the types.
        InvalidData
            If a value does not fit the target, or a non-nullable field would have a null.
        LimitExceeded
            If slots that occupy no memory would make more than 2**24 values, or there is no memory for the result.
        """
        target = as_type(target_type)
        try:
            try:
                result: Array = self._cast_to(target, safe)
            except InvalidData:  # perhaps of a value that no slot refers to
                referenced = self._referenced_only()
                if referenced is self:
                    raise
                result = referenced._cast_to(target, safe)
        except MemoryError:
            raise LimitExceeded(
                f"{clip(f'{self._type} to {target}', 200)}: no memory for the result of the cast; work on slices"
            ) from None
        if result is not self and has_required(target):
            result._check_nullability(None)
        return result

    def view(self, target_type: DataType | str) -> Array:
        """Reinterpret the values as another type of the same width; copies nothing and checks no values.

        Raises
        ------
        InvalidType
            If a type has no fixed byte width, or the widths differ.
        """
        target = as_type(target_type)
        array: Array | None = self._storage._view(target)
        if array is None:
            raise InvalidType(f"cannot view {self._type} as {target}: expected two types of the same fixed width")
        return array

    def unique(self) -> Self:
        """Return the distinct values in order of first appearance, null at most once; a copy.

        Values are compared bitwise: 0.0 and -0.0 are distinct, NaNs with the same bits are not.

        Raises
        ------
        LimitExceeded
            If slots that occupy no memory would make more than 2**24 values.
        """
        from shmarrow.layout import codes

        return self._take(codes.codes_of(self, with_null=True)[1])

    def dictionary_encode(self, null_encoding: str = "mask", index_type: DataType | str | None = None) -> Any:
        """Encode the values as indices into their distinct values, in order of first appearance.

        Values are compared bitwise: 0.0 and -0.0 are distinct.

        Parameters
        ----------
        null_encoding : {"mask", "encode"}
            Whether nulls become null indices, or indices of a null in the dictionary.
        index_type : DataType or str, optional
            Integer type of the indices, int32 by default. An array that is already dictionary-encoded is returned as
            is, or with this index type.

        Raises
        ------
        InvalidArgument
            If ``null_encoding`` is unknown.
        InvalidData
            If there are more distinct values than the index type can address.
        LimitExceeded
            If slots that occupy no memory would make more than 2**24 values.
        """
        if self._storage._type.layout == "dictionary":
            return self
        return CLASSES["dictionary"]._encode(self, null_encoding, index_type)

    def run_end_encode(self, run_end_type: DataType | str = "int32") -> Any:
        """Encode runs of equal adjacent values; adjacent nulls form one run.

        Adjacent values are compared bitwise. An array that is already run-end encoded is returned unchanged.

        Raises
        ------
        InvalidData
            If the array is too long for the run end type.
        """
        if self._storage._type.layout == "run_end_encoded":
            return self
        return CLASSES["run_end_encoded"]._encode(self, run_end_type)

    # --- other libraries ---

    def to_pyarrow(self) -> pa.Array:
        """Convert to a ``pyarrow.Array``, zero-copy.

        Raises
        ------
        InvalidData
            If the array violates the format such that pyarrow would read outside its buffers: in its structure,
            offsets, views, indices, type ids, run ends or UTF-8. Ranges of values are not checked.
        Unsupported
            If pyarrow has no such type.
        MissingExtra
            If pyarrow or nanoarrow is not installed.
        """
        from shmarrow.types.c_schema import to_pyarrow

        return to_pyarrow(self, "Array")

    @staticmethod
    def from_pandas(obj: Any, mask: Any = None, type: DataType | str | None = None, safe: bool = True) -> Array:
        """Make an array from a ``pandas.Series``, index or array; NaN and pandas' other missing values become null.

        The same as ``sa.array(obj, type, mask, from_pandas=True)``; see :func:`shmarrow.array` for the arguments.
        """
        from shmarrow.layout.arguments import build_array

        return build_array(obj, type, mask, from_pandas=True, safe=safe)

    def to_pandas(self, *, arrow_backed: bool = False, writable: bool = False, **options: Any) -> pd.Series:
        """Convert to a ``pandas.Series``, through pyarrow.

        Integers, floats, timestamps and durations without nulls are zero-copy and read-only unless ``writable`` is
        True. Everything else is copied: booleans take one byte each, strings become pandas' own strings, and integers
        with nulls float64 with NaN. If a float cannot hold all of them, as beyond 2**53, they become ``Int64`` or
        ``UInt64``, and within lists and structs Python integers and None.

        Parameters
        ----------
        arrow_backed : bool
            Return a series of dtype ``pandas.ArrowDtype``, which keeps type and nulls, zero-copy.
        writable : bool
            Return private, writable values. Numbers of a mapped object are copy-on-write, so only modified pages take
            memory. See :meth:`to_numpy`.
        **options
            Options of ``pyarrow.Array.to_pandas``, such as ``zero_copy_only`` or ``strings_to_categorical``.

        Returns
        -------
        pandas.Series
            Shape (n,). Dictionaries become categories; views, runs and other types that pandas lacks are cast first, as
            by ``for_consumer("pandas")``.

        Raises
        ------
        Unsupported
            If pandas has no dtype for it: unions, and intervals of months or of days.
        InvalidData
            If the array violates the format such that other code would read outside its buffers.
        CopyRequired
            If ``zero_copy_only=True`` and the values need a copy.
        InvalidArgument
            If an option is unknown or wrong.
        MissingExtra
            If pandas or pyarrow is not installed.
        """
        from shmarrow.interchange.pandas import series

        return series(self, arrow_backed, writable, options)

    def for_consumer(self, name: str = "", *, lossy: str | Iterable[str] = ()) -> Array:
        """Cast to a type that another tool accepts; returns the same object if none is needed.

        Parameters
        ----------
        name : str
            The tool: ``"spark"``, ``"polars"``, ``"duckdb"``, ``"pandas"`` or ``"parquet"``.
        lossy : str or iterable of str
            Kinds of types whose values may lose something, such as ``"timestamp"`` or ``"decimal256"``, or ``"all"``.
            By default no value changes.

        Returns
        -------
        Array
            Only data that must change is copied.

        Raises
        ------
        Unsupported
            If the tool has no type for the values; names the ``lossy`` kind that would allow a cast, if any.
        InvalidData
            If a value does not fit the new type; likewise.
        InvalidArgument
            If ``name`` is unknown, or ``lossy`` names a kind that never loses anything.
        """
        from shmarrow.layout.consumers import column_for

        return column_for(self, name, lossy)

    def to_torch(self, device: torch.device | str | None = None, *, writable: bool = True) -> torch.Tensor:
        """Convert to a torch tensor; see :meth:`Tensor.to_torch`. Booleans are copied: torch stores one per byte.

        Raises
        ------
        CopyRequired
            If the array has nulls, or torch has no dtype for the values; for booleans, if ``writable`` is False.
        MissingExtra
            If torch is not installed.
        """
        from shmarrow.layout.dlpack import array_to_torch

        return array_to_torch(self, device, writable=writable)

    def to_jax(self, device: jax.Device | None = None) -> jax.Array:
        """Convert to a ``jax.Array``; see :meth:`Tensor.to_jax`. Booleans are copied: JAX stores one per byte.

        Raises
        ------
        CopyRequired
            If the array has nulls.
        InvalidData
            If ``jax_enable_x64`` is off, and 32 bits cannot hold a value. Other errors as for :meth:`Tensor.to_jax`.
        """
        from shmarrow.layout.jax import array_to_jax

        return array_to_jax(self, device)

    def __dlpack__(self, **options: Any) -> PyCapsule:
        """Export the values as a DLPack capsule over private writable memory; see :meth:`Tensor.__dlpack__`.

        Booleans are copied, as DLPack stores one per byte.

        Raises
        ------
        CopyRequired
            If the array has nulls, or its values have no zero-copy form.
        """
        from shmarrow.layout.dlpack import array_to_dlpack

        return array_to_dlpack(self, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device of the memory, the CPU."""
        return 1, 0

    def __arrow_c_array__(
        self, requested_schema: PyCapsule | None = None, **unknown: object
    ) -> tuple[PyCapsule, PyCapsule]:
        """Export the array as PyCapsules ``arrow_schema`` and ``arrow_array`` (Arrow PyCapsule interface), zero-copy.

        The values are validated once, before the first export, so that no offset or index points outside its buffer.
        The memory stays valid for as long as the consumer uses it.

        Parameters
        ----------
        requested_schema : PyCapsule, optional
            The ``arrow_schema`` of the type that the consumer requests; values are cast to it without loss.

        Raises
        ------
        InvalidData
            If the array violates the format, or a value does not fit the requested type.
        InvalidType
            If there is no cast to the requested type.
        Unsupported
            If there are other keywords, unless they are None.
        MissingExtra
            If nanoarrow is not installed.
        """
        from shmarrow.layout.c_array import export_array

        return export_array(self, requested_schema, **unknown)

    # --- showing ---

    def __str__(self) -> str:
        return self._preview(Budget())

    def __repr__(self) -> str:
        return f"<shmarrow.Array {clip(str(self._type), 200)}, length {self._length}>\n{self}"

    def _slot_text(self, index: int, values: int) -> str:
        """A slot as text, with at most ``values`` nested values."""
        return self._item_preview(index, Budget(values))

    def _preview(self, budget: Budget) -> str:
        return preview_items(self, budget)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        array = self.trim()
        buffers = [None if data is None else packed(data, as_index(protocol)) for data in array._buffers]
        return _rebuild, (
            array._type,
            array._length,
            buffers,
            array.null_count,
            list(array._children),
            array._dictionary,
        )

    # --- its parts, as layouts and other operations use them ---

    @property
    def _storage(self) -> Array:
        """The array itself; of an extension type, as an array of the storage type."""
        own: Any = self
        return own

    def _validity(self) -> Bytes | None:
        """The validity bitmap, starting at slot 0 of the buffers rather than of the array; None without one."""
        buffers = self._buffers
        return buffers[0] if buffers and LISTING[self._type.layout].has_validity else None

    def _mask(self) -> Mask | None:
        """True for valid slots according to the validity bitmap; None if no slot is null."""
        if self.null_count == 0:
            return None
        validity = self._validity()
        return None if validity is None else bitmap.unpack(validity, self._offset, self._length)

    def _live(self, live: Mask | None) -> Mask | None:
        """The slots of ``live`` that are not null; None if that is all."""
        mask = self._mask()
        return live if mask is None else mask if live is None else mask & live

    def _trimmed_validity(self) -> Bytes | None:
        """The validity bitmap shifted to slot 0, for :meth:`trim`; None if no slot is null."""
        validity = self._validity()
        if validity is None or self.null_count == 0:
            return None
        return construct.read_only(bitmap.realign(validity, self._offset, self._length))

    def _with(self, **changes: Any) -> Self:
        """A copy of the array object with some parts replaced: ``type``, ``length``, ``buffers``, ``offset`` etc."""
        values: dict[str, Any] = {
            "type": self._type, "length": self._length, "buffers": self._buffers, "null_count": self._null_count,
            "offset": self._offset, "children": self._children, "dictionary": self._dictionary,
        }  # fmt: skip
        values.update(changes)
        return self._made(**values)

    def _valid_bits(self) -> Bytes:
        """A bitmap starting at bit 0, 0 for the slots in :meth:`_logical_nulls`."""
        construct.check_bits(self)
        if self.__class__._logical_nulls is LayoutHooks._logical_nulls:  # only the bitmap counts
            bits = self._trimmed_validity()
        else:
            missing = self._logical_nulls()
            bits = None if missing is None else bitmap.pack(~missing)
        return bitmap.ones(self._length) if bits is None else bits

    def _masked(self, valid: Mask) -> Any:
        """The same slots with their validity replaced; the array starts at slot 0."""
        return self._with_validity(bitmap.pack(valid), len(valid) - int(np.count_nonzero(valid)))

    def _with_validity(self, bits: Bytes, null_count: int) -> Any:
        return self._with(buffers=[construct.read_only(bits), *self._buffers[1:]], null_count=null_count)

    @classmethod
    def _made(cls, *arguments: Any, **keywords: Any) -> Self:
        """:func:`make_array`, typed for results known to be of this class or a subclass."""
        return make_array(*arguments, **keywords)

    @classmethod
    def _of_parts(cls, *arguments: Any) -> Self:
        """As :meth:`_made`, of a caller's parts: checks the structure, and that non-nullable fields have no nulls."""
        array = cls._made(*arguments)
        validation.check(array, False)
        validation.check_required(array)
        return array

    @classmethod
    def _expect(cls, type: Any) -> DataType:
        """Return a type of one of this class's layouts; InvalidType for others."""
        expected = as_type(type)
        if expected.layout not in cls.layouts:
            raise InvalidType(f"{cls.__name__}: expected a type of layout {' or '.join(cls.layouts)}, found {expected}")
        return expected

    # --- operations that call hooks ---

    def _take(self, indices: NDArray, valid: Mask | None = None) -> Any:
        """The slots at indices of shape (n,), null where ``valid`` is False."""
        indices = indices.astype(np.int64, copy=False)
        if valid is not None:
            if valid.all():
                valid = None
            elif not LISTING[self._type.layout].has_validity or not self._length:
                extended = construct.join_arrays([self, construct.one_null(self._type)])
                return extended._take(np.where(valid, indices, self._length))
            else:
                indices = np.where(valid, indices, 0)
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < self._length):
            raise construct.index_error(indices, self._length, "array", "value")
        try:
            own = self._valid_at(indices)
            if own is not None:
                valid = own if valid is None else own & valid
                valid = None if valid.all() else valid
            return self._gather(indices) if valid is None else self._gather_valid(indices, valid)._masked(valid)
        except MemoryError:
            raise memory_error(self, len(indices)) from None

    def _valid_at(self, indices: Indices) -> Mask | None:
        """True for the valid ones of the slots at in-range ``indices``; None if all may be valid."""
        validity = self._validity() if self._null_count else None
        if validity is not None and 16 * len(indices) < self._length:  # avoid unpacking all bits
            return bitmap.bits_at(validity, indices + self._offset)
        mask = self._mask()
        return None if mask is None else mask[indices]

    def _equal(self, other: Any, live: Mask | None) -> bool:
        """Whether arrays of one type and length are equal in the slots where ``live`` is True; None means all."""
        mine = self._validity() if self.null_count else None
        theirs = other._validity() if other.null_count else None
        if mine is not None or theirs is not None:
            if live is not None:
                if ((self._valid() != other._valid()) & live).any():
                    return False
            elif mine is None or theirs is None or not self._same_validity(mine, theirs, other):
                return False
        return self._same(other, live)

    def _same_validity(self, mine: Bytes, theirs: Bytes, other: Any) -> bool:
        return self.null_count == other.null_count and bitmap.same(
            mine, self._offset, theirs, other._offset, self._length
        )

    def _cast_to(self, target: DataType, safe: bool) -> Any:
        """As :meth:`Array.cast`, for children; nullability is checked once for the whole array."""
        return self if self._type == target else construct.array_class(target)._cast_from(self, target, safe)


def _rebuild(
    type: DataType, length: int, buffers: list[Any], null_count: int, children: list[Array], dictionary: Array
) -> Any:
    views = [None if data is None else unpacked(data) for data in buffers]
    return make_array(type, length, views, null_count, 0, children, dictionary)


def nulls(size: int, type: DataType | str | None = None) -> Array:
    """An array of ``size`` nulls.

    Parameters
    ----------
    size : int
        Number of slots.
    type : DataType or str, optional
        The type; ``null`` by default.

    Raises
    ------
    InvalidType
        If ``size`` is not an int or ``type`` not a type, or for a union without children, which cannot have nulls.
    InvalidArgument
        If ``size`` is negative.
    LimitExceeded
        If memory runs out.
    """
    size = checked_size(size, "the number of nulls")
    null_type = null() if type is None else as_type(type)
    try:
        return array_class(null_type)._nulls(null_type, size)
    except (MemoryError, ValueError, OverflowError) as error:
        if isinstance(error, ShmarrowError):
            raise
        raise LimitExceeded(f"no memory for {size} nulls of {clip(str(null_type), 200)}") from None


AnyArray = TypeVar("AnyArray", bound=Array)


def concat_arrays(arrays: Sequence[AnyArray]) -> AnyArray:
    """Arrays of one type, of any library, as one, a copy; a single one is not copied.

    Raises
    ------
    InvalidArgument
        If there are no arrays.
    InvalidType
        If their types differ, or one is not an array.
    """
    own: list[AnyArray] = items_of(arrays, "arrays")
    if not own:
        raise InvalidArgument("nothing to concatenate: expected at least one array")
    for i, item in enumerate(own):
        if not isinstance(item, Array):
            if not capsules.has_data(item):
                raise not_expected("a list of shmarrow.Array", item)
            from shmarrow.layout.c_stream import read_array

            own[i] = read_array(item)
    return join_arrays(own)
