# SPDX-License-Identifier: Apache-2.0
"""Chunked arrays: a column made of several arrays of one type.

Invariants:

* element-wise operations run chunk by chunk and keep the chunks; properties of the whole column, such as a dictionary
  or a dtype, are determined for all chunks together;
* nothing is copied until one array over all chunks is requested.

The functions at the end locate rows in the chunks of a column, and in the batches of a table.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index as as_index
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeVar, overload

import numpy as np

from shmarrow import capsules
from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.capsules import PyCapsule
from shmarrow.errors import (
    CopyRequired,
    ExportRefused,
    IndexOutOfRange,
    InvalidArgument,
    InvalidType,
    LimitExceeded,
    at,
    clip,
    counted,
    full_name,
    iterated,
    not_an_index,
    optional,
    renumbered,
    shown,
)
from shmarrow.habits import WithoutOperators
from shmarrow.layout import Array
from shmarrow.layout.arguments import as_array, checked_positions
from shmarrow.layout.array import nulls
from shmarrow.layout.construct import index_error, join_arrays, range_of, slice_bounds
from shmarrow.layout.dictionary import with_one_dictionary
from shmarrow.layout.listing import buffer_bytes
from shmarrow.layout.selection import selection
from shmarrow.pickling import passed_by_handle
from shmarrow.types import DataType, DictionaryType, StructType, as_type, bool_, storage_of

if TYPE_CHECKING:
    import jax
    import pandas as pd
    import pyarrow as pa
    import torch


_MOST = (1 << 63) - 1


def starts_of(lengths: list[int], parts: str) -> Indices:
    """Return the first row of each chunk, and the end of the last, of shape (n + 1,).

    Raises
    ------
    LimitExceeded
        If the end is more than 2**63 - 1.
    """
    total = sum(lengths)
    if total > _MOST:
        raise LimitExceeded(f"{len(lengths)} {parts} have {total} rows, more than the {_MOST} that can be counted")
    return np.cumsum([0, *lengths], dtype=np.int64)


def cut(parts: Sequence[Any], starts: Indices, offset: int, length: int) -> list[Any]:
    """Slice chunks that start at ``starts`` as a whole; empty ones are dropped."""
    if not length:
        return []
    end = offset + length
    first, last = int(np.searchsorted(starts, offset, "right")) - 1, int(np.searchsorted(starts, end, "left"))
    found = [part for part in parts[first:last] if len(part)]
    if found:  # the first and the last are cut; where there is one part, at both ends
        found[-1] = _within(found[-1], 0, end - int(starts[last - 1]))
        found[0] = _within(found[0], offset - int(starts[first]), len(found[0]))
    return found


def _within(part: Any, start: int, end: int) -> Any:
    """Slice a chunk; returns the chunk itself if the slice covers it."""
    return part if not start and end == len(part) else part.slice(start, end - start)


class ChunkPositions(NamedTuple):
    """Rows located in chunks.

    Attributes
    ----------
    parts : list of (int, ndarray)
        The chunks that have any of the rows, by number, and the positions in each.
    back : ndarray or None
        For each row its position among the rows of all chunks one after another; None if that is their order.
    valid : bool ndarray or None
        False for rows that become null; given with ``back`` only.
    """

    parts: list[tuple[int, Indices]]
    back: Indices | None
    valid: Mask | None


def check_range(positions: Indices, valid: Mask | None, length: int, what: str) -> Indices:
    """Check valid positions; IndexOutOfRange if one is negative or beyond the end."""
    wanted = positions if valid is None else positions[valid]
    if len(wanted) and not (int(wanted.min()) >= 0 and int(wanted.max()) < length):
        raise index_error(wanted, length, what, "value" if what == "column" else "row")
    return wanted


def locate(starts: Indices, positions: Indices, valid: Mask | None, what: str) -> ChunkPositions:
    """Locate positions, in any order, in chunks that start at ``starts``; IndexOutOfRange if one is beyond the end."""
    wanted = check_range(positions, valid, int(starts[-1]), what)
    numbers = np.searchsorted(starts, wanted, "right") - 1
    back: Indices | None = None
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        numbers, wanted = numbers[order], wanted[order]
    if valid is not None:
        rank = np.arange(len(wanted)) if back is None else back
        back = np.zeros(len(positions), np.int64)
        back[valid] = rank
    found, first = np.unique(numbers, return_index=True)
    parts = np.split(wanted - starts[numbers], first[1:]) if len(found) else []
    return ChunkPositions(list(zip(found.tolist(), parts, strict=True)), back, valid)


def split(starts: Indices, positions: Indices, valid: Mask | None) -> Iterator[tuple[int, Indices, Mask | None]]:
    """Split increasing positions by chunk: yields its number, the positions in it, and their validity.

    Chunks without any of them are skipped.
    """
    bounds = np.searchsorted(positions, starts).tolist()
    for i in np.flatnonzero(np.diff(bounds)).tolist():
        rows = slice(bounds[i], bounds[i + 1])
        yield i, positions[rows] - int(starts[i]), None if valid is None else valid[rows]


Slice = slice
T = TypeVar("T")


@passed_by_handle
class ChunkedArray(WithoutOperators):
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

    chunks: tuple[Array, ...]
    type: DataType

    def __init__(self, chunks: Iterable[Array], type: DataType | None = None) -> None:
        self.chunks = tuple(iterated(chunks, "an iterable of Arrays"))
        if type is None and not self.chunks:
            raise InvalidArgument("expected a type, as there are no chunks")
        of_all: Any = getattr(self.chunks[0], "type", None) if type is None else type
        for chunk in self.chunks:
            if not isinstance(chunk, Array):
                raise InvalidType(f"expected Arrays, found {full_name(chunk)}; shmarrow.chunked_array() takes values")
            if chunk.type is not of_all and chunk.type != of_all:
                raise InvalidType(f"a chunk of {chunk.type} in a column of {of_all}")
        self.type = of_all
        self._starts = starts_of([len(chunk) for chunk in self.chunks], "chunks")

    @property
    def _length(self) -> int:
        return int(self._starts[-1])

    def _each(self, change: Callable[[Array], Array], type: DataType | None = None) -> ChunkedArray:
        """Apply a function to each chunk; the result has the given type, or the same."""
        return ChunkedArray([change(chunk) for chunk in self.chunks], self.type if type is None else type)

    def _mapped(self, change: Callable[[Array], T]) -> Iterator[T]:
        """Apply a function to each chunk; slot numbers in errors refer to the whole column."""
        for chunk, start in zip(self.chunks, self._starts.tolist(), strict=False):
            with renumbered(operator.add, start):
                changed = change(chunk)
            yield changed

    def _cut_like(self, whole: Array) -> ChunkedArray:
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
        return self.chunks[number]

    def iterchunks(self) -> Iterator[Array]:
        """Iterate over the chunks."""
        return iter(self.chunks)

    def _pieces(self, cuts: Indices) -> Iterator[Array]:
        """Return the arrays between increasing positions from 0 to the end, which include all chunk boundaries."""
        numbers = np.searchsorted(self._starts, cuts[:-1], "right") - 1
        offsets, lengths = cuts[:-1] - self._starts[numbers], np.diff(cuts)
        for number, offset, length in zip(numbers.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
            chunk = self.chunks[number]
            yield chunk if length == len(chunk) else chunk.slice(offset, length)

    def combine_chunks(self) -> Array:
        """Return the values as one array; a copy if there is more than one chunk."""
        return join_arrays(self.chunks) if self.chunks else nulls(0, self.type)

    __shmarrow_array__ = combine_chunks

    # --- values ---

    def to_pylist(self) -> list[Any]:
        """Return the values as a list of Python objects, None for null."""
        return [value for values in self._mapped(lambda chunk: chunk.to_pylist()) for value in values]

    def to_numpy(self, zero_copy_only: bool = False, writable: bool = False) -> NDArray:
        """Return the values as an ndarray of shape (length,); a copy unless a single chunk can be viewed.

        The dtype is that of one array with the same values, also where chunks by themselves would have several, as
        those of integers with nulls and without. See :meth:`Array.to_numpy`.

        Raises
        ------
        CopyRequired
            If a copy is needed and ``zero_copy_only`` is True.
        """
        if len(self.chunks) == 1:
            return self.chunks[0].to_numpy(zero_copy_only, writable)
        if zero_copy_only:
            raise CopyRequired(f"{len(self.chunks)} chunks have no zero-copy numpy form; go through .chunks")
        parts = [chunk.to_numpy(False) for chunk in self.chunks if len(chunk)]
        if parts and len({(part.dtype, part.shape[1:]) for part in parts}) == 1:
            return np.concatenate(parts)
        return self.combine_chunks().to_numpy(False)

    def to_masked_array(self) -> np.ma.MaskedArray[Any, Any]:
        """Return the values and nulls as a masked ndarray; a copy if there is more than one chunk.

        See :meth:`Array.to_masked_array`.

        Raises
        ------
        CopyRequired
            If numpy has no dtype for the values, such as strings and decimals.
        """
        return self.combine_chunks().to_masked_array()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return the values as an ndarray; see :meth:`to_numpy`. Raises if a number or time does not fit ``dtype``.

        Raises
        ------
        InvalidData
            If a value does not fit ``dtype``, of which a null does not fit integers and truth values.
        CopyRequired
            If a copy is needed and ``copy`` is False.
        """
        result = self.to_numpy(zero_copy_only=copy is False)
        if dtype is None and not copy:
            return result
        from shmarrow.casts.ndarray import as_dtype

        return as_dtype(result, dtype, copy)

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
        positions, valid = checked_positions(indices)
        return self._gather(locate(self._starts, positions, valid, "column"))

    def _gather(self, located: ChunkPositions) -> ChunkedArray:
        parts = [self.chunks[number]._take(local) for number, local in located.parts]
        found = join_arrays(parts) if parts else nulls(0, self.type)
        return ChunkedArray([found if located.back is None else found._take(located.back, located.valid)], self.type)

    def filter(self, mask: Any, null_selection_behavior: str = "drop") -> ChunkedArray:
        """Return the slots where ``mask`` is True, chunk by chunk; empty chunks are dropped. A copy.

        The arguments and errors are those of :meth:`Array.filter`; the mask may be a chunked array too, in any chunks.
        """
        positions, valid = selection(mask, len(self), null_selection_behavior)
        parts = [self.chunks[i]._take(local, known) for i, local, known in split(self._starts, positions, valid)]
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
        if isinstance(storage_of(self.type), DictionaryType):
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
        if not isinstance(self.type, StructType):
            return [self]
        structs: Any = self.chunks
        parts = [chunk.flatten() for chunk in structs]
        return [ChunkedArray([part[i] for part in parts], field.type) for i, field in enumerate(self.type.fields)]

    # --- other libraries ---

    def to_pyarrow(self) -> pa.ChunkedArray:
        """Convert to a ``pyarrow.ChunkedArray``, zero-copy. Errors as :meth:`Array.to_pyarrow`."""
        chunks = [chunk.to_pyarrow() for chunk in self.chunks]
        return optional("pyarrow").chunked_array(chunks, self.type.to_pyarrow())

    def to_pandas(self, *, arrow_backed: bool = False, writable: bool = False, **options: Any) -> pd.Series:
        """Convert to a ``pandas.Series``, through pyarrow; several chunks are copied. See :meth:`Array.to_pandas`."""
        from shmarrow.interchange.pandas import series

        return series(self, arrow_backed, writable, options)

    def for_consumer(self, name: str = "", *, lossy: str | Iterable[str] = ()) -> ChunkedArray:
        """Cast to a type that another tool accepts; see :meth:`Array.for_consumer`."""
        from shmarrow.layout.consumers import column_for

        return column_for(self, name, lossy)

    def to_torch(self, device: torch.device | str | None = None, *, writable: bool = True) -> torch.Tensor:
        """Convert a column of one chunk to a torch tensor; see :meth:`Array.to_torch`.

        Raises
        ------
        ExportRefused
            If there are several chunks. Other errors as for :meth:`Array.to_torch`.
        """
        return self._only_chunk().to_torch(device, writable=writable)

    def __dlpack__(self, **options: Any) -> PyCapsule:
        """Export a column of one chunk as a DLPack capsule; see :meth:`Array.__dlpack__`.

        Raises
        ------
        ExportRefused
            If there are several chunks. Other errors as for :meth:`Array.__dlpack__`.
        """
        return self._only_chunk().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device of the memory, the CPU."""
        return 1, 0

    def _only_chunk(self) -> Array:
        if self.num_chunks > 1:
            step = "use combine_chunks(), which copies them, or one chunk() at a time"
            raise ExportRefused(f"a tensor is contiguous, but the column has {self.num_chunks} chunks; {step}")
        return self.combine_chunks()

    def to_jax(self, device: jax.Device | None = None) -> jax.Array:
        """Convert a column of one chunk to a ``jax.Array``; see :meth:`Array.to_jax`.

        Raises
        ------
        CopyRequired
            If there are several chunks. Other errors as for :meth:`Array.to_jax`.
        """
        return self._only_chunk().to_jax(device)

    def __arrow_c_stream__(self, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
        """Export the chunks as a PyCapsule ``arrow_array_stream`` (Arrow PyCapsule interface), zero-copy.

        Parameters and errors as for :meth:`Array.__arrow_c_array__`.
        """
        from shmarrow.layout.c_stream import export_chunks

        return export_chunks(self, requested_schema, **unknown)

    # --- checking and comparing ---

    def validate(self, full: bool = False) -> None:
        """Check every chunk; see :meth:`Array.validate`."""
        for i, chunk in enumerate(self.chunks):
            with at("chunk", i):
                chunk.validate(full=full)

    def equals(self, other: Any) -> bool:
        """Compare type and values, regardless of chunk boundaries.

        Raises
        ------
        InvalidType
            If ``other`` is not a chunked array, or a column of another library.
        """
        other = capsules.comparable(other, ChunkedArray, read_chunked_array)
        if self.type != other.type or len(self) != len(other):
            return False
        cuts = np.union1d(self._starts, other._starts)
        return all(mine.equals(theirs) for mine, theirs in zip(self._pieces(cuts), other._pieces(cuts), strict=True))

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
        start = int(self._starts[at])
        with renumbered(operator.add, start):
            return self.chunks[at][index - start]

    def __iter__(self) -> Iterator[Any]:
        for chunk, start in zip(self.chunks, self._starts.tolist(), strict=False):
            with renumbered(operator.add, start):
                yield from chunk

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, ChunkedArray) else NotImplemented

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
    if capsules.has_data(arrays):
        column = read_chunked_array(arrays)
        return column if wanted is None or wanted == column.type else column.cast(wanted)
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Iterable):
        raise InvalidType(f"expected an iterable of arrays, found {shown(arrays)}")
    chunks: list[Array] = []
    one = isinstance(arrays, Array) or hasattr(arrays.__class__, capsules.STREAM)
    for item in [arrays] if one else iterated(arrays, "an iterable of arrays"):
        made = item if isinstance(item, ChunkedArray) else as_array(item, "arrays", wanted)
        chunks.extend(made.chunks if isinstance(made, ChunkedArray) else [made])
        if wanted is None and chunks:
            wanted = chunks[0].type
    return ChunkedArray(chunks, wanted)


def read_chunked_array(obj: object) -> ChunkedArray:
    """Import an object with a PyCapsule interface as a chunked array, zero-copy. Rows become structs."""
    from shmarrow.layout.c_stream import read_array, read_chunks

    if hasattr(obj, capsules.STREAM):
        return ChunkedArray(*read_chunks(obj))
    return ChunkedArray([read_array(obj)])


# --- one dictionary for several arrays --------------------------------------------------------------------------


def _unified(arrays: Sequence[Array]) -> Sequence[Array]:
    """Unify the dictionaries of arrays of one type, at any depth."""
    type: Any = arrays[0].type
    if isinstance(type, DictionaryType) and not isinstance(storage_of(type.value_type), DictionaryType):
        return with_one_dictionary(arrays)
    if not type.fields:
        return arrays
    children = [_unified([array._children[i] for array in arrays]) for i in range(len(type.fields))]
    return [array._with(children=list(parts)) for array, parts in zip(arrays, zip(*children, strict=True), strict=True)]
