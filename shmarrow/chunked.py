"""Chunked arrays: a column made of several arrays of one type.

Invariants:

* element-wise operations run chunk by chunk and keep the chunks; properties of the whole column, such as a dictionary
  or a dtype, are determined for all chunks together;
* nothing is copied until one array over all chunks is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import index as as_index
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, overload

import numpy as np

from shmarrow import foreign, import_hooks
from shmarrow.errors import (
    CopyRequired,
    IndexOutOfRange,
    InvalidArgument,
    InvalidData,
    InvalidType,
    Place,
    counted,
    full_name,
    iterated,
    moved,
    not_an_index,
    shown,
)
from shmarrow.layout.arguments import as_array, checked_positions
from shmarrow.layout.array import Array
from shmarrow.layout.dictionary import with_one_dictionary
from shmarrow.layout.making import concat_arrays, nulls
from shmarrow.layout.memory import range_of, slice_bounds
from shmarrow.layout.preview import clip
from shmarrow.layout.selection import selection
from shmarrow.layout.sizes import buffer_bytes
from shmarrow.pickling import travels
from shmarrow.places import Places, cut, places, sorted_places, starts_of
from shmarrow.types import DataType, as_type, bool_

if TYPE_CHECKING:
    import numpy.typing as npt


Slice = slice


@travels
class ChunkedArray:
    """A column made of several arrays (chunks) of one type; indices run over all chunks.

    Attributes
    ----------
    chunks : tuple of Array
        The arrays.
    type : DataType
        The common type.

    Notes
    -----
    Thread safety: immutable.
    """

    __slots__ = ("_starts", "chunks", "type")

    from_pyarrow: ClassVar[Callable[[Any], ChunkedArray]]
    to_pyarrow: Callable[[], Any]
    for_consumer: Callable[..., ChunkedArray]
    to_pandas: Callable[..., Any]

    def __init__(self, chunks: Iterable[Any], type: DataType | None = None) -> None:
        self.chunks = tuple(iterated(chunks, "an iterable of Arrays"))
        if type is None:
            if not self.chunks:
                raise InvalidArgument("expected a type, as there are no chunks")
            type = getattr(self.chunks[0], "type", None)
        for chunk in self.chunks:
            if not isinstance(chunk, Array):
                raise InvalidType(f"expected Arrays, found {full_name(chunk)}; shmarrow.chunked_array() takes values")
            if chunk.type is not type and chunk.type != type:
                raise InvalidType(f"a chunk of {chunk.type} in a column of {type}")
        self.type: Any = type
        self._starts = starts_of([len(chunk) for chunk in self.chunks], "chunks")

    def _each(self, change: Callable[[Any], Any], type: DataType | None = None) -> ChunkedArray:
        """Apply a function to each chunk; the result has the given type, or the same."""
        return ChunkedArray([change(chunk) for chunk in self.chunks], self.type if type is None else type)

    def _mapped(self, change: Callable[[Any], Any]) -> Iterator[Any]:
        """Apply a function to each chunk; slot numbers in errors refer to the whole column."""
        for chunk, start in zip(self.chunks, self._starts.tolist(), strict=False):
            try:
                yield change(chunk)
            except InvalidData as error:
                raise moved(error, lambda place: Place((start + place[0], *place[1:]))) from None  # noqa: B023

    def _cut_like(self, whole: Any) -> ChunkedArray:
        """Split an array of this length into chunks of the same lengths."""
        starts = self._starts.tolist()
        parts = [whole.slice(start, len(chunk)) for start, chunk in zip(starts, self.chunks, strict=False)]
        return ChunkedArray(parts, whole.type)

    @property
    def num_chunks(self) -> int:
        """Number of arrays."""
        return len(self.chunks)

    @property
    def null_count(self) -> int:
        """Number of null slots."""
        return sum([chunk.null_count for chunk in self.chunks])

    @property
    def nbytes(self) -> int:
        """Bytes occupied by the slots of all chunks; see :attr:`Array.nbytes`."""
        return sum([chunk.nbytes for chunk in self.chunks])

    def get_total_buffer_size(self) -> int:
        """Return the bytes of all buffers of all chunks, counting shared buffers once.

        See :meth:`Array.get_total_buffer_size`.
        """
        return buffer_bytes(*self.chunks)

    def length(self) -> int:
        """Return the number of slots, like ``len()``."""
        return len(self)

    def chunk(self, i: SupportsIndex) -> Array:
        """Return the chunk at position ``i``, counted from 0.

        Raises
        ------
        IndexOutOfRange
            If the position is negative or out of range.
        InvalidType
            If it is not an int.
        """
        try:
            number = as_index(i)
        except TypeError:
            raise InvalidType(f"expected a chunk number, an int, found {shown(i)}") from None
        if not 0 <= number < len(self.chunks):
            raise IndexOutOfRange(f"chunk {shown(number)} is out of range: the number of chunks is {len(self.chunks)}")
        found: Array = self.chunks[number]
        return found

    def iterchunks(self) -> Iterator[Array]:
        """Iterate over the chunks."""
        return iter(self.chunks)

    def pieces(self, cuts: npt.NDArray[np.int64]) -> Iterator[Array]:
        """Return the arrays between increasing positions from 0 to the end, which include all chunk boundaries."""
        numbers = np.searchsorted(self._starts, cuts[:-1], "right") - 1
        offsets, lengths = cuts[:-1] - self._starts[numbers], np.diff(cuts)
        for number, offset, length in zip(numbers.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
            chunk = self.chunks[number]
            yield chunk if length == len(chunk) else chunk.slice(offset, length)

    def combine_chunks(self) -> Array:
        """Return the values as one array; a copy if there is more than one chunk."""
        joined: Array = concat_arrays(self.chunks) if self.chunks else nulls(0, self.type)
        return joined

    # --- values ---

    def to_pylist(self) -> list[Any]:
        """Return the values as a list of Python objects, None for null."""
        return [value for values in self._mapped(lambda chunk: chunk.to_pylist()) for value in values]

    def to_numpy(self, zero_copy_only: bool = False, writable: bool = False) -> npt.NDArray[Any]:
        """Return the values as an ndarray of shape (length,); a copy unless a single chunk can be viewed.

        The dtype is that of one array with the same values, also where chunks by themselves would have several, as
        those of integers with nulls and without. See :meth:`Array.to_numpy`.

        Raises
        ------
        CopyRequired
            If a copy is needed and ``zero_copy_only`` is True.
        """
        if len(self.chunks) == 1:
            found: npt.NDArray[Any] = self.chunks[0].to_numpy(zero_copy_only, writable)
            return found
        if zero_copy_only:
            raise CopyRequired(f"{len(self.chunks)} chunks have no zero-copy numpy form; go through .chunks")
        parts = [chunk.to_numpy(False) for chunk in self.chunks if len(chunk)]
        if parts and len({(part.dtype, part.shape[1:]) for part in parts}) == 1:
            return np.concatenate(parts)
        whole: npt.NDArray[Any] = self.combine_chunks().to_numpy(False)
        return whole

    def to_masked_array(self) -> np.ma.MaskedArray[Any, Any]:
        """Return the values and nulls as a masked ndarray; a copy if there is more than one chunk.

        See :meth:`Array.to_masked_array`.

        Raises
        ------
        CopyRequired
            If numpy has no dtype for the values, such as strings and decimals.
        """
        return self.combine_chunks().to_masked_array()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the values as an ndarray; see :meth:`to_numpy`. Raises if a number or time does not fit ``dtype``.

        Raises
        ------
        InvalidData
            If a value does not fit ``dtype``, of which a null does not fit integers and truth values.
        CopyRequired
            If a copy is needed and ``copy`` is False.
        """
        from shmarrow.convert.ndarray import as_dtype

        result = self.to_numpy(zero_copy_only=copy is False)
        return as_dtype(result, dtype, copy) if dtype is not None or copy else result

    def is_null(self, *, nan_is_null: bool = False) -> ChunkedArray:
        """Return True for null slots, as chunks of :class:`BooleanArray`; see :meth:`Array.is_null`."""
        return self._each(lambda chunk: chunk.is_null(nan_is_null=nan_is_null), bool_())

    def is_valid(self) -> ChunkedArray:
        """Return True for valid slots, as chunks of :class:`BooleanArray`; see :meth:`Array.is_valid`."""
        return self._each(lambda chunk: chunk.is_valid(), bool_())

    # --- selecting ---

    def slice(self, offset: int = 0, length: int | None = None) -> ChunkedArray:
        """Return up to ``length`` values starting at ``offset``; copies nothing.

        Beyond the end there are none.

        Raises
        ------
        IndexOutOfRange
            If ``offset`` is negative.
        InvalidArgument
            If ``length`` is negative.
        """
        offset, length = slice_bounds(offset, length, len(self))
        return ChunkedArray(cut(self.chunks, self._starts, offset, length), self.type)

    def take(self, indices: Any) -> ChunkedArray:
        """Return the slots at ``indices``, in that order, as one chunk; a copy.

        The arguments and errors are those of :meth:`Array.take`; indices may be a chunked array too.
        """
        positions, valid = checked_positions(one_array(indices))
        return self._gather(places(self._starts, positions, valid, "column"))

    def _gather(self, places: Places) -> ChunkedArray:
        parts = [self.chunks[number]._take(local) for number, local in places.parts]
        found = concat_arrays(parts) if parts else nulls(0, self.type)
        return ChunkedArray([found if places.back is None else found._take(places.back, places.valid)], self.type)

    def filter(self, mask: Any, null_selection_behavior: str = "drop") -> ChunkedArray:
        """Return the slots where ``mask`` is True, chunk by chunk; empty chunks are dropped. A copy.

        The arguments and errors are those of :meth:`Array.filter`; the mask may be a chunked array too, in any chunks.
        """
        positions, valid = selection(one_array(mask), len(self), null_selection_behavior)
        parts = [self.chunks[i]._take(*part) for i, *part in sorted_places(self._starts, positions, valid)]
        return ChunkedArray(parts, self.type)

    def drop_null(self) -> ChunkedArray:
        """Return the valid slots, chunk by chunk."""
        return self._each(lambda chunk: chunk.drop_null())

    def fill_null(self, fill_value: Any) -> ChunkedArray:
        """Replace nulls, chunk by chunk; see :meth:`Array.fill_null`."""
        return self._each(lambda chunk: chunk.fill_null(fill_value))

    # --- other forms ---

    def cast(self, target_type: DataType | str, safe: bool = True) -> ChunkedArray:
        """Cast the values to another type, chunk by chunk; see :meth:`Array.cast`."""
        target = as_type(target_type)
        if not self.chunks and target != self.type:
            nulls(0, self.type).cast(target, safe)  # whether there is a cast at all
        return ChunkedArray(self._mapped(lambda chunk: chunk.cast(target, safe)), target)

    def unique(self) -> Array:
        """Return the distinct values as one array, in order of first appearance; see :meth:`Array.unique`."""
        return self.combine_chunks().unique()

    def dictionary_encode(self, null_encoding: str = "mask") -> ChunkedArray:
        """Encode all chunks with one common dictionary; see :meth:`Array.dictionary_encode`."""
        if self.type.layout == "dictionary":
            return self
        return self._cut_like(self.combine_chunks().dictionary_encode(null_encoding=null_encoding))

    def unify_dictionaries(self) -> ChunkedArray:
        """Give all chunks one common dictionary, at any depth of the type.

        Returns the same object if nothing is dictionary-encoded.

        Raises
        ------
        InvalidData
            If there are more distinct values than the indices can address.
        """
        return self if len(self.chunks) < 2 else ChunkedArray(_unified(self.chunks), self.type)

    def flatten(self) -> list[ChunkedArray]:
        """Return a column per struct field, null where the struct is null; for other types, a list with this column."""
        if self.type.layout != "struct" or self.type.array_class is not None:
            return [self]
        parts = [chunk.flatten() for chunk in self.chunks]
        return [ChunkedArray([part[i] for part in parts], field.type) for i, field in enumerate(self.type.fields)]

    # --- checking and comparing ---

    def validate(self, full: bool = False) -> None:
        """Check every chunk; see :meth:`Array.validate`."""
        for i, chunk in enumerate(self.chunks):
            try:
                chunk.validate(full=full)
            except InvalidData as error:
                raise type(error)(f"chunk {i}: {error}") from None

    def equals(self, other: Any) -> bool:
        """Compare type and values, regardless of chunk boundaries.

        Raises
        ------
        InvalidType
            If ``other`` is not a chunked array, or a column of another library.
        """
        other = foreign.comparable(other, ChunkedArray, "chunked_array")
        if self.type != other.type or len(self) != len(other):
            return False
        cuts = np.union1d(self._starts, other._starts)
        return all(mine.equals(theirs) for mine, theirs in zip(self.pieces(cuts), other.pieces(cuts), strict=True))

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, key: Slice) -> ChunkedArray: ...

    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...

    def __getitem__(self, key: Slice | SupportsIndex) -> Any:
        if isinstance(key, slice):
            start, stop, step = range_of(key, len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            return self.slice(start, max(stop - start, 0))
        try:
            index = as_index(key)
        except TypeError:
            raise not_an_index("a column", key) from None
        if not -len(self) <= index < len(self):
            raise IndexOutOfRange(f"index {shown(index)} is out of range: the column has {len(self)} values")
        index += len(self) if index < 0 else 0
        at = int(np.searchsorted(self._starts, index, "right")) - 1
        return self.chunks[at][index - int(self._starts[at])]

    def __iter__(self) -> Iterator[Any]:
        for chunk in self.chunks:
            yield from chunk

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, ChunkedArray) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = ",\n ".join(str(chunk) for chunk in self.chunks[:5])
        more = f",\n ... {len(self.chunks) - 5} more chunks" if len(self.chunks) > 5 else ""
        kind, chunks = clip(str(self.type), 200), counted(len(self.chunks), "chunk")
        return f"<shmarrow.ChunkedArray {kind}, length {len(self)}, {chunks}>\n[{parts}{more}]"


def chunked_array(arrays: Any, type: DataType | str | None = None) -> ChunkedArray:
    """Make a chunked array from arrays of one type, without copying, or from lists of values, one chunk per list.

    Parameters
    ----------
    arrays : iterable of Array or of values, Array, ChunkedArray, or a column of another library
        The chunks; values are those that :func:`shmarrow.array` accepts. The chunks of an object with
        ``__arrow_c_stream__`` or ``__arrow_c_array__`` are used in place.
    type : DataType or str, optional
        The type; that of the first chunk where it is not given. Arrays have it already, other values are built with
        it.

    Raises
    ------
    InvalidArgument
        If there is neither a chunk nor a type.
    InvalidType
        If an array has another type, or ``arrays`` is not an iterable of chunks.
    InvalidData
        If a value does not fit the type.
    """
    wanted = None if type is None else as_type(type)
    if isinstance(arrays, ChunkedArray):
        return ChunkedArray(arrays.chunks, arrays.type if wanted is None else wanted)
    if foreign.has_data(arrays):
        column: ChunkedArray = foreign.read("chunked_array", arrays)
        return column if wanted is None or wanted == column.type else column.cast(wanted)
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Iterable):
        raise InvalidType(f"expected an iterable of arrays, found {shown(arrays)}")
    chunks: list[Any] = []
    one = isinstance(arrays, Array) or hasattr(arrays.__class__, foreign.STREAM)
    for item in [arrays] if one else iterated(arrays, "an iterable of arrays"):
        made = item if isinstance(item, ChunkedArray) else as_array(item, "arrays", wanted)
        chunks.extend(made.chunks if isinstance(made, ChunkedArray) else [made])
        if wanted is None and chunks:
            wanted = chunks[0].type
    return ChunkedArray(chunks, wanted)


def one_array(values: Any) -> Any:
    """Combine a chunked array into one array; return anything else unchanged."""
    return values.combine_chunks() if isinstance(values, ChunkedArray) else values


# --- one dictionary for several arrays --------------------------------------------------------------------------


def _unified(arrays: Iterable[Any]) -> list[Any]:
    """Unify the dictionaries of arrays of one type, at any depth."""
    arrays = list(arrays)
    type = arrays[0].type
    if type.layout == "dictionary" and type.array_class is None and type.value_type.layout != "dictionary":
        return with_one_dictionary(arrays)
    if not type.fields:
        return arrays
    children = [_unified([array._children[i] for array in arrays]) for i in range(len(type.fields))]
    return [array._with(children=list(parts)) for array, parts in zip(arrays, zip(*children, strict=True), strict=True)]


import_hooks.arrived("chunked")
