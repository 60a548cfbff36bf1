"""Chunked arrays: a column in several arrays of one type."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shmarrow.build.sources import read_class
from shmarrow.errors import CopyRequired, IndexOutOfRange, InvalidArgument, InvalidType, LimitExceeded
from shmarrow.layout.array import concat_arrays, nulls
from shmarrow.layout.memory import slice_bounds
from shmarrow.types import DataType, as_type

if TYPE_CHECKING:
    import numpy.typing as npt


_MOST = (1 << 63) - 1


def starts_of(lengths: list[int], parts: str) -> npt.NDArray[np.int64]:
    """Where each part starts in the whole, and its end, of shape (n + 1,).

    Raises
    ------
    LimitExceeded
        If the end is more than 2**63 - 1.
    """
    total = sum(lengths)
    if total > _MOST:
        raise LimitExceeded(f"{len(lengths)} {parts} have {total} rows, more than the {_MOST} that can be counted")
    return np.cumsum([0, *lengths], dtype=np.int64)


class ChunkedArray:
    """A column in several arrays of one type; indexing goes through all of them.

    Attributes
    ----------
    chunks : tuple of Array
        The arrays.
    type : DataType
        The type of each of them.

    Notes
    -----
    Thread safety: immutable; any number of threads may use one.
    """

    __slots__ = ("_starts", "chunks", "type")

    from_pyarrow: ClassVar[Callable[[Any], ChunkedArray]]
    to_pyarrow: Callable[[], Any]

    def __init__(self, chunks: Iterable[Any], type: DataType | None = None) -> None:
        self.chunks = tuple(chunks)
        if type is None:
            if not self.chunks:
                raise InvalidArgument("expected a type, as there are no chunks")
            type = self.chunks[0].type
        for chunk in self.chunks:
            if chunk.type != type:
                raise InvalidType(f"a chunk of {chunk.type} in a column of {type}")
        self.type = type
        self._starts = starts_of([len(chunk) for chunk in self.chunks], "chunks")

    @property
    def num_chunks(self) -> int:
        return len(self.chunks)

    @property
    def null_count(self) -> int:
        """Number of null slots."""
        return sum([chunk.null_count for chunk in self.chunks])

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers of all chunks."""
        return sum([chunk.nbytes for chunk in self.chunks])

    def chunk(self, index: int) -> Any:
        """One of the arrays."""
        if not -len(self.chunks) <= index < len(self.chunks):
            raise IndexOutOfRange(f"no chunk {index}: there are {len(self.chunks)}")
        return self.chunks[index]

    def iterchunks(self) -> Iterator[Any]:
        """The arrays one after another."""
        return iter(self.chunks)

    def combine_chunks(self) -> Any:
        """One array; a copy if there is more than one chunk."""
        return concat_arrays(self.chunks) if self.chunks else nulls(0, self.type)

    def to_pylist(self) -> list[Any]:
        """The values as Python objects, None for null; a copy."""
        return [value for chunk in self.chunks for value in chunk.to_pylist()]

    def to_numpy(self, zero_copy_only: bool = False) -> npt.NDArray[Any]:
        """The values as one ndarray of shape (length,); a copy unless there is one chunk that needs none."""
        if len(self.chunks) == 1:
            found: npt.NDArray[Any] = self.chunks[0].to_numpy(zero_copy_only)
            return found
        if zero_copy_only:
            raise CopyRequired(f"{len(self.chunks)} chunks have no zero-copy numpy form; go through .chunks")
        parts = [chunk.to_numpy(False) for chunk in self.chunks] or [nulls(0, self.type).to_numpy(False)]
        return np.concatenate(parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        result = self.to_numpy(zero_copy_only=copy is False)
        return np.array(result, dtype, copy=copy) if dtype is not None or copy else result

    def slice(self, offset: int = 0, length: int | None = None) -> ChunkedArray:
        """The values from ``offset`` on, ``length`` of them or as many as there are; copies nothing.

        Raises
        ------
        IndexOutOfRange
            If ``offset`` is negative or beyond the end.
        InvalidArgument
            If ``length`` is negative.
        """
        offset, length = slice_bounds(offset, length, len(self), "column")
        return ChunkedArray(cut(self.chunks, self._starts, offset, length), self.type)

    def cast(self, type: DataType | str) -> ChunkedArray:
        """The same values in another form of their type; see :meth:`Array.cast`."""
        target = as_type(type)
        return ChunkedArray([chunk.cast(target) for chunk in self.chunks], target)

    def validate(self, full: bool = False) -> None:
        """Check every chunk; see :meth:`Array.validate`."""
        for chunk in self.chunks:
            chunk.validate(full)

    def equals(self, other: Any) -> bool:
        """Same type and same values, whatever the chunks."""
        if not isinstance(other, ChunkedArray) or self.type != other.type or len(self) != len(other):
            return False
        cuts = np.union1d(self._starts, other._starts).tolist()
        for start, end in itertools.pairwise(cuts):
            mine, theirs = (part.slice(start, end - start).combine_chunks() for part in (self, other))
            if not mine.equals(theirs):
                return False
        return True

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return self.combine_chunks()[key]
            return self.slice(start, max(stop - start, 0))
        index = key.__index__()
        if not -len(self) <= index < len(self):
            raise IndexOutOfRange(f"index {index} is out of range: the column has {len(self)} values")
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
        shown = ",\n ".join(str(chunk) for chunk in self.chunks[:5])
        more = f",\n ... {len(self.chunks) - 5} more chunks" if len(self.chunks) > 5 else ""
        return f"<shmarrow.ChunkedArray {self.type}, length {len(self)}, {len(self.chunks)} chunks>\n[{shown}{more}]"


def cut(parts: Iterable[Any], starts: npt.NDArray[np.int64], offset: int, length: int) -> list[Any]:
    """The parts of a slice of arrays or batches, which start at ``starts``; empty parts are left out."""
    found = []
    for start, part in zip(starts.tolist(), parts, strict=False):
        low, high = max(offset - start, 0), min(offset + length - start, len(part))
        if low < high:
            found.append(part.slice(low, high - low))
    return found


read_class(ChunkedArray, ChunkedArray.combine_chunks)
