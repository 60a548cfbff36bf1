"""Tables: record batches one after another; their columns are chunked, one chunk a batch.

Nothing is copied until somebody asks for one array over all chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.columns import Columns, Key, common_length, fields_at, renamed, several, wanted_types
from shmarrow.errors import (
    CopyRequired,
    IndexOutOfRange,
    InvalidArgument,
    InvalidType,
    LimitExceeded,
    full_name,
    not_expected,
)
from shmarrow.layout.array import concat_arrays, nulls
from shmarrow.layout.build import array
from shmarrow.layout.memory import slice_bounds
from shmarrow.types import DataType, Field, MetadataLike, Schema, as_type

if TYPE_CHECKING:
    import numpy.typing as npt


_MOST = (1 << 63) - 1


def _starts_of(lengths: list[int], parts: str) -> npt.NDArray[np.int64]:
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
        self._starts = _starts_of([len(chunk) for chunk in self.chunks], "chunks")

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
        return concat_arrays(self.chunks) if self.chunks else nulls(self.type, 0)

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
        parts = [chunk.to_numpy(False) for chunk in self.chunks] or [nulls(self.type, 0).to_numpy(False)]
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
        return ChunkedArray(_cut(self.chunks, self._starts, offset, length), self.type)

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


class Table(Columns):
    """Record batches of one schema, one after another.

    Attributes
    ----------
    batches : tuple of RecordBatch
        The batches, each with the table's fields.
    num_rows : int
        Rows of all batches.

    Notes
    -----
    Thread safety: immutable, and as its batches; any number of threads may use one.
    """

    __slots__ = ("_schema", "_starts", "batches", "num_rows")

    from_pyarrow: ClassVar[Callable[[Any], Table]]
    to_pyarrow: Callable[[], Any]

    def __init__(self, schema: Schema, batches: Sequence[RecordBatch] = ()) -> None:
        self._schema = schema
        self.batches = tuple(batches)
        self._starts = _starts_of([batch.num_rows for batch in self.batches], "batches")
        self.num_rows = int(self._starts[-1])

    @classmethod
    def from_batches(cls, batches: Iterable[RecordBatch], schema: Schema | None = None) -> Table:
        """A table over batches of one schema; copies nothing.

        Raises
        ------
        InvalidArgument
            If there is neither a batch nor a schema.
        InvalidType
            If a batch has other fields.
        """
        items = several(batches, "record batches")
        for item in items:
            if not isinstance(item, RecordBatch):
                raise not_expected("a list of shmarrow.RecordBatch", item)
        if schema is None:
            if not items:
                raise InvalidArgument("expected a schema, as there are no batches")
            schema = items[0].schema
        for i, batch in enumerate(items):
            if not batch.schema.equals(schema):
                raise InvalidType(f"batch {i} has other fields than the table:\n{batch.schema}\nexpected\n{schema}")
        return cls(schema, items)

    @classmethod
    def from_arrays(
        cls, arrays: Sequence[Any], names: Sequence[str] | None = None, schema: Schema | None = None
    ) -> Table:
        """A table over arrays, or chunked arrays, with their names or their schema.

        Copies nothing that is an array already, but where a chunk of one column ends within a chunk of another, that
        other column is cut too.

        Raises
        ------
        InvalidArgument
            If neither names nor a schema are given or both, the numbers differ, or the columns have different lengths.
        InvalidType
            If a column cannot be cast to the type that the schema says.
        """
        if not any(isinstance(column, ChunkedArray) for column in arrays):
            batch = RecordBatch.from_arrays(arrays, names, schema)
            return cls(batch.schema, [batch])
        wanted = wanted_types(len(arrays), names, schema)
        columns = [_chunked(column, type) for column, type in zip(arrays, wanted, strict=True)]
        if schema is None:
            schema = Schema([Field(name, col.type) for name, col in zip(names or (), columns, strict=True)])
        common_length(columns, schema)
        cuts: list[int] = np.unique(np.concatenate([column._starts for column in columns])).tolist()
        batches = []
        for start, end in itertools.pairwise(cuts):
            parts = [column.slice(start, end - start).combine_chunks() for column in columns]
            batches.append(RecordBatch(schema, end - start, parts))
        return cls(schema, batches)

    @classmethod
    def from_pydict(cls, mapping: Mapping[str, Any], schema: Schema | None = None) -> Table:
        """A table from a mapping of column names to values."""
        if any(isinstance(column, ChunkedArray) for column in mapping.values()):
            return cls.from_arrays(list(mapping.values()), None if schema else list(mapping), schema)
        batch = RecordBatch.from_pydict(mapping, schema)
        return cls(batch.schema, [batch])

    @classmethod
    def from_pylist(cls, rows: Sequence[Mapping[str, Any]], schema: Schema | None = None) -> Table:
        """A table from rows as dicts; see :meth:`RecordBatch.from_pylist`."""
        batch = RecordBatch.from_pylist(rows, schema)
        return cls(batch.schema, [batch])

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers of all batches."""
        return sum([batch.nbytes for batch in self.batches])

    def column(self, key: Key) -> ChunkedArray:
        """A column by position or by name; copies nothing. Errors as :meth:`RecordBatch.column`."""
        index = self.schema.index_of(key)
        return ChunkedArray([batch.column(index) for batch in self.batches], self.schema.field(index).type)

    @property
    def columns(self) -> list[ChunkedArray]:
        """All columns."""
        return [self.column(i) for i in range(self.num_columns)]

    def to_batches(self, max_chunksize: int | None = None) -> list[RecordBatch]:
        """The batches, on request in pieces of at most ``max_chunksize`` rows; copies nothing."""
        if max_chunksize is None:
            return list(self.batches)
        if not isinstance(max_chunksize, (int, np.integer)):
            raise InvalidType(f"max_chunksize is an int, found {max_chunksize!r:.80}")
        if max_chunksize < 1:
            raise InvalidArgument(f"max_chunksize is at least 1, found {max_chunksize}")
        return [
            batch.slice(start, max_chunksize)
            for batch in self.batches
            for start in range(0, batch.num_rows, max_chunksize)
        ]

    def combine_chunks(self) -> Table:
        """A table of at most one batch; a copy if there was more than one."""
        if len(self.batches) <= 1:
            return self
        columns = [column.combine_chunks() for column in self.columns]
        return Table(self.schema, [RecordBatch(self.schema, self.num_rows, columns)])

    def slice(self, offset: int = 0, length: int | None = None) -> Table:
        """The rows from ``offset`` on, ``length`` of them or as many as there are; builds and copies nothing.

        The errors are those of :meth:`RecordBatch.slice`.
        """
        offset, length = slice_bounds(offset, length, self.num_rows, "table")
        return Table(self._schema, _cut(self.batches, self._starts, offset, length))

    def select(self, keys: Iterable[Key]) -> Table:
        """The columns at the positions or of the names given, in that order; builds and copies nothing."""
        indices = [self._schema.index_of(key) for key in several(keys, "positions and names")]
        schema = fields_at(self._schema, indices)
        return Table(schema, [batch._view(schema, indices, 0, batch.num_rows) for batch in self.batches])

    def rename_columns(self, names: Sequence[str]) -> Table:
        """The same columns under other names; see :meth:`RecordBatch.rename_columns`."""
        return self._with_schema(renamed(self._schema, names))

    def replace_schema_metadata(self, metadata: MetadataLike | None = None) -> Table:
        """The same columns with other metadata in the schema; builds and copies nothing."""
        return self._with_schema(self._schema.with_metadata(metadata))

    def _with_schema(self, schema: Schema) -> Table:
        return Table(schema, [batch._with_schema(schema) for batch in self.batches])

    def to_pylist(self) -> list[dict[str, Any]]:
        """A dict of Python values for each row; of columns with the same name the last."""
        return [row for batch in self.batches for row in batch.to_pylist()]

    def equals(self, other: Any, check_metadata: bool = False) -> bool:
        """Same schema and same values, however they are cut into batches; on request the schema's metadata too."""
        return (
            isinstance(other, Table)
            and self.num_rows == other.num_rows
            and self.schema.equals(other.schema, check_metadata)
            and all(mine.equals(theirs) for mine, theirs in zip(self.columns, other.columns, strict=True))
        )

    def validate(self, full: bool = False) -> None:
        """Check every batch; see :meth:`RecordBatch.validate`."""
        for batch in self.batches:
            batch.validate(full)

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.schema, self.batches)


def _cut(parts: Iterable[Any], starts: npt.NDArray[np.int64], offset: int, length: int) -> list[Any]:
    """The parts of a slice of arrays or batches, which start at ``starts``; empty parts are left out."""
    found = []
    for start, part in zip(starts.tolist(), parts, strict=False):
        low, high = max(offset - start, 0), min(offset + length - start, len(part))
        if low < high:
            found.append(part.slice(low, high - low))
    return found


def _chunked(values: Any, type: DataType | None) -> ChunkedArray:
    """Values as a chunked array; cast to a type, where one is given."""
    if not isinstance(values, ChunkedArray):
        return ChunkedArray([array(values, type)])
    if type is None or values.type == type:
        return values
    return ChunkedArray([chunk.cast(type) for chunk in values.chunks or [nulls(values.type, 0)]], type)


def table(data: Any, names: Sequence[str] | None = None, schema: Schema | None = None) -> Table:
    """A table from a mapping of names to values, from record batches, or from arrays with names or a schema."""
    if isinstance(names, Schema):
        names, schema = None, names
    if isinstance(data, RecordBatch):
        data = [data]
    if isinstance(data, Mapping):
        return Table.from_pydict(data, schema)
    if full_name(data).startswith("pyarrow.") and hasattr(data, "schema"):
        raise not_expected("a mapping, record batches or arrays", data)
    items = list(data)
    if names is None and all(isinstance(item, RecordBatch) for item in items):
        return Table.from_batches(items, schema)
    return Table.from_arrays(items, names, schema)
