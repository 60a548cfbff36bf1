"""Record batches and tables: columns of equal length under one schema.

Rules kept here:

* a record batch that was read makes a column when it is asked for, and keeps it;
* a table is record batches one after another; its columns are chunked, one chunk a batch. Nothing is copied until
  somebody asks for one array over all chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from shmarrow.errors import CopyRequired, IndexOutOfRange, InvalidArgument, InvalidData, InvalidType
from shmarrow.layout import array, concat_arrays, nulls
from shmarrow.layout.memory import check_expansion
from shmarrow.types import DataType, Field, Metadata, MetadataLike, Schema, as_metadata, as_type

Key = int | str


class ColumnSource(Protocol):
    """Where a record batch that was read gets its columns, each when it is asked for."""

    def column(self, index: int) -> Any:
        """The column at a position from 0."""

    def prepare(self) -> None:
        """All columns will be asked for: do now what is faster for all of them at once."""


class RecordBatch:
    """Columns of equal length (columnar format, "Serialization and Interprocess Communication").

    Made by :func:`record_batch`, by readers, and by the class methods. The constructor is for code that has checked
    its columns.

    Attributes
    ----------
    schema : Schema
        Names and types of the columns.
    num_rows : int
        Length of every column.
    metadata : dict of bytes to bytes, or None
        The metadata of the message that the batch came from or goes into.
    """

    __slots__ = ("_columns", "_source", "metadata", "num_rows", "schema")

    from_pyarrow: ClassVar[Callable[[Any], RecordBatch]]
    to_pyarrow: Callable[[], Any]

    def __init__(
        self,
        schema: Schema,
        num_rows: int,
        columns: Sequence[Any] | None = None,
        *,
        source: ColumnSource | None = None,
        metadata: MetadataLike | None = None,
    ) -> None:
        self.schema = schema
        self.num_rows = num_rows
        self.metadata: Metadata | None = as_metadata(metadata) if metadata else None
        self._source = source
        self._columns: list[Any] = list(columns) if columns is not None else [None] * len(schema)

    @classmethod
    def from_arrays(
        cls, arrays: Sequence[Any], names: Sequence[str] | None = None, schema: Schema | None = None
    ) -> RecordBatch:
        """A batch over arrays, with their names or their schema; copies nothing that is an array already.

        Raises
        ------
        InvalidArgument
            If neither or both are given, the numbers differ, or the arrays have different lengths.
        """
        if (names is None) == (schema is None):
            raise InvalidArgument("expected either names or a schema")
        wanted: Sequence[DataType | None] = schema.types if schema is not None else [None] * len(arrays)
        if len(wanted) != len(arrays) or (names is not None and len(names) != len(arrays)):
            count = len(schema) if schema is not None else len(names or ())
            raise InvalidArgument(f"{len(arrays)} arrays for {count} fields")
        columns = [array(values, type) for values, type in zip(arrays, wanted, strict=True)]
        if schema is None:
            schema = Schema([Field(name, col.type) for name, col in zip(names or (), columns, strict=True)])
        return cls(schema, _common_length(columns, schema), columns)

    @classmethod
    def from_pydict(cls, mapping: Mapping[str, Any], schema: Schema | None = None) -> RecordBatch:
        """A batch from a mapping of column names to values."""
        if schema is None:
            return cls.from_arrays(list(mapping.values()), list(mapping))
        missing = [name for name in schema.names if name not in mapping]
        if missing or len(mapping) != len(schema):
            raise InvalidArgument(f"the schema wants {schema.names[:20]}, the mapping has {list(mapping)[:20]}")
        return cls.from_arrays([mapping[name] for name in schema.names], schema=schema)

    @classmethod
    def from_pylist(cls, rows: Sequence[Mapping[str, Any]], schema: Schema | None = None) -> RecordBatch:
        """A batch from rows as dicts; a missing key is null. Without a schema the first row names the columns."""
        names = schema.names if schema is not None else list(rows[0]) if rows else []
        columns = {name: [row.get(name) for row in rows] for name in names}
        return cls.from_pydict(columns, schema)

    # --- columns ---

    @property
    def num_columns(self) -> int:
        return len(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.num_rows, self.num_columns

    @property
    def column_names(self) -> list[str]:
        return self.schema.names

    def column(self, key: Key) -> Any:
        """A column by position or by name; made at the first call, copied never.

        Raises
        ------
        FieldNotFound
            If the name is not there or stands there more than once.
        IndexOutOfRange
            If there are fewer columns.
        InvalidData
            If the bytes that the batch came from break the format's rules for this column.
        """
        index = key if key.__class__ is int and 0 <= key < len(self._columns) else self.schema.index_of(key)
        found = self._columns[index]
        if found is None:
            assert self._source is not None
            found = self._columns[index] = self._source.column(index)
        return found

    @property
    def columns(self) -> list[Any]:
        """All columns."""
        if self._source is None:
            return list(self._columns)
        if None in map(_missing, self._columns):
            self._source.prepare()
        return [self.column(i) for i in range(self.num_columns)]

    def itercolumns(self) -> Iterator[Any]:
        """The columns one after another."""
        for i in range(self.num_columns):
            yield self.column(i)

    def field(self, key: Key) -> Field:
        """The field of a column."""
        return self.schema.field(key)

    def __getitem__(self, key: Key | slice) -> Any:
        """A column by position or name, or rows by slice."""
        if isinstance(key, slice):
            start, stop, step = key.indices(self.num_rows)
            if step != 1:
                raise InvalidArgument(f"rows are sliced by step 1, found {step}")
            return self.slice(start, max(stop - start, 0))
        return self.column(key)

    def __len__(self) -> int:
        return self.num_rows

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers of all columns."""
        return sum([column.nbytes for column in self.columns])

    # --- other batches ---

    def slice(self, offset: int = 0, length: int | None = None) -> RecordBatch:
        """The rows from ``offset`` on, ``length`` of them or as many as there are; copies nothing."""
        if not 0 <= offset <= self.num_rows:
            raise IndexOutOfRange(f"slice offset {offset} is out of range: the batch has {self.num_rows} rows")
        rest = self.num_rows - offset
        length = rest if length is None else min(length, rest)
        if length < 0:
            raise InvalidArgument(f"the length of a slice is at least 0, found {length}")
        columns = [column.slice(offset, length) for column in self.columns]
        return RecordBatch(self.schema, length, columns, metadata=self.metadata)

    def select(self, keys: Iterable[Key]) -> RecordBatch:
        """The columns named, in the order given; copies nothing, and makes no other columns."""
        indices = [self.schema.index_of(key) for key in keys]
        schema = Schema([self.schema.field(i) for i in indices], self.schema.metadata)
        return RecordBatch(schema, self.num_rows, [self.column(i) for i in indices], metadata=self.metadata)

    def rename_columns(self, names: Sequence[str]) -> RecordBatch:
        """The same columns under other names."""
        if len(names) != self.num_columns:
            raise InvalidArgument(f"{len(names)} names for {self.num_columns} columns")
        fields = [field.with_name(name) for field, name in zip(self.schema, names, strict=True)]
        return RecordBatch(Schema(fields, self.schema.metadata), self.num_rows, self.columns, metadata=self.metadata)

    def append_column(self, field: Field | str, values: Any) -> RecordBatch:
        """A batch with one more column at the end."""
        column = array(values, field.type if isinstance(field, Field) else None)
        if len(column) != self.num_rows:
            raise InvalidArgument(f"a column of {len(column)} values for a batch of {self.num_rows} rows")
        made = field if isinstance(field, Field) else Field(field, column.type)
        return RecordBatch(self.schema.append(made), self.num_rows, [*self.columns, column], metadata=self.metadata)

    def replace_schema_metadata(self, metadata: MetadataLike | None = None) -> RecordBatch:
        """The same columns with other metadata in the schema."""
        schema = self.schema.with_metadata(metadata)
        return RecordBatch(schema, self.num_rows, self.columns, metadata=self.metadata)

    def take(self, indices: Any) -> RecordBatch:
        """The rows at ``indices``; a copy."""
        positions = np.asarray(indices, np.int64)
        columns = [column.take(positions) for column in self.columns]
        return RecordBatch(self.schema, len(positions), columns)

    # --- Python values ---

    def to_pydict(self) -> dict[str, list[Any]]:
        """A list of Python values for each column, by name; of columns with the same name the last."""
        return {name: self.column(i).to_pylist() for i, name in enumerate(self.schema.names)}

    def to_pylist(self) -> list[dict[str, Any]]:
        """A dict of Python values for each row; of columns with the same name the last."""
        names = self.schema.names
        if not names:
            check_expansion(self.num_rows, "rows without columns")
            return [{} for _ in range(self.num_rows)]
        columns = [column.to_pylist() for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    # --- comparing, checking, showing ---

    def equals(self, other: Any, check_metadata: bool = False) -> bool:
        """Same schema, and columns that are equal; on request the metadata too."""
        return (
            isinstance(other, RecordBatch)
            and self.num_rows == other.num_rows
            and self.schema.equals(other.schema, check_metadata)
            and (not check_metadata or (self.metadata or {}) == (other.metadata or {}))
            and all(mine.equals(theirs) for mine, theirs in zip(self.columns, other.columns, strict=True))
        )

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, RecordBatch) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def validate(self, full: bool = False) -> None:
        """Check every column, by structure or with ``full`` by value; see :meth:`Array.validate`.

        Raises
        ------
        InvalidData
            With the column's name, what was expected and what was found.
        """
        for i in range(self.num_columns):
            field = self.schema.field(i)
            try:
                column = self.column(i)
                column.validate(full)
                if column.type != field.type:
                    raise InvalidData(f"expected {field.type}, found {column.type}")
                if len(column) != self.num_rows:
                    raise InvalidData(f"expected {self.num_rows} values, found {len(column)}")
                if full and not field.nullable and column.null_count and field.type.layout != "null":
                    raise InvalidData(f"the field is not nullable but has {column.null_count} nulls")
            except InvalidData as error:
                raise type(error)(f"column {i} {field.name!r}: {error}") from None

    def __repr__(self) -> str:
        return _show("RecordBatch", self)

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_batch, (self.schema, self.num_rows, self.columns, self.metadata)


def _rebuild_batch(schema: Schema, num_rows: int, columns: list[Any], metadata: Metadata | None) -> RecordBatch:
    return RecordBatch(schema, num_rows, columns, metadata=metadata)


class ChunkedArray:
    """A column in several arrays of one type; indexing goes through all of them."""

    __slots__ = ("_starts", "chunks", "type")

    from_pyarrow: ClassVar[Callable[[Any], ChunkedArray]]
    to_pyarrow: Callable[[], Any]

    def __init__(self, chunks: Iterable[Any], type: DataType | None = None) -> None:
        self.chunks = list(chunks)
        if type is None:
            if not self.chunks:
                raise InvalidArgument("expected a type, as there are no chunks")
            type = self.chunks[0].type
        for chunk in self.chunks:
            if chunk.type != type:
                raise InvalidType(f"a chunk of {chunk.type} in a column of {type}")
        self.type = type
        self._starts = np.cumsum([0] + [len(chunk) for chunk in self.chunks])

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
        """The values from ``offset`` on; copies nothing."""
        total = len(self)
        if not 0 <= offset <= total:
            raise IndexOutOfRange(f"slice offset {offset} is out of range: the column has {total} values")
        end = total if length is None else min(offset + length, total)
        parts = []
        for start, chunk in zip(self._starts.tolist(), self.chunks, strict=False):
            low, high = max(offset - start, 0), min(end - start, len(chunk))
            if low < high:
                parts.append(chunk.slice(low, high - low))
        return ChunkedArray(parts, self.type)

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


class Table:
    """Record batches of one schema, one after another.

    Attributes
    ----------
    schema : Schema
        Names and types of the columns.
    batches : list of RecordBatch
        The batches, each with the table's fields.
    """

    __slots__ = ("_starts", "batches", "schema")

    from_pyarrow: ClassVar[Callable[[Any], Table]]
    to_pyarrow: Callable[[], Any]

    def __init__(self, schema: Schema, batches: Sequence[RecordBatch] = ()) -> None:
        self.schema = schema
        self.batches = list(batches)
        self._starts = np.cumsum([0] + [batch.num_rows for batch in self.batches])

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
        items = list(batches)
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
        """A table over arrays, or chunked arrays, with their names or their schema."""
        if not any(isinstance(column, ChunkedArray) for column in arrays):
            batch = RecordBatch.from_arrays(arrays, names, schema)
            return cls(batch.schema, [batch])
        columns = [column if isinstance(column, ChunkedArray) else ChunkedArray([array(column)]) for column in arrays]
        if schema is None:
            schema = Schema([Field(name, col.type) for name, col in zip(names or (), columns, strict=True)])
        _common_length(columns, schema)
        cuts: list[int] = np.unique(np.concatenate([column._starts for column in columns])).tolist()
        batches = []
        for start, end in itertools.pairwise(cuts):
            parts = [column.slice(start, end - start).combine_chunks() for column in columns]
            batches.append(RecordBatch.from_arrays(parts, schema=schema))
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
    def num_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def num_columns(self) -> int:
        return len(self.schema)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.num_rows, self.num_columns

    @property
    def column_names(self) -> list[str]:
        return self.schema.names

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

    def itercolumns(self) -> Iterator[ChunkedArray]:
        """The columns one after another."""
        for i in range(self.num_columns):
            yield self.column(i)

    def field(self, key: Key) -> Field:
        """The field of a column."""
        return self.schema.field(key)

    def __getitem__(self, key: Key | slice) -> Any:
        """A column by position or name, or rows by slice."""
        if isinstance(key, slice):
            start, stop, step = key.indices(self.num_rows)
            if step != 1:
                raise InvalidArgument(f"rows are sliced by step 1, found {step}")
            return self.slice(start, max(stop - start, 0))
        return self.column(key)

    def __len__(self) -> int:
        return self.num_rows

    def to_batches(self, max_chunksize: int | None = None) -> list[RecordBatch]:
        """The batches, on request in pieces of at most ``max_chunksize`` rows; copies nothing."""
        if max_chunksize is None:
            return list(self.batches)
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
        """The rows from ``offset`` on, ``length`` of them or as many as there are; copies nothing."""
        total = self.num_rows
        if not 0 <= offset <= total:
            raise IndexOutOfRange(f"slice offset {offset} is out of range: the table has {total} rows")
        end = total if length is None else min(offset + length, total)
        parts = []
        for start, batch in zip(self._starts.tolist(), self.batches, strict=False):
            low, high = max(offset - start, 0), min(end - start, batch.num_rows)
            if low < high:
                parts.append(batch.slice(low, high - low))
        return Table(self.schema, parts)

    def select(self, keys: Iterable[Key]) -> Table:
        """The columns named, in the order given; copies nothing."""
        indices = [self.schema.index_of(key) for key in keys]
        schema = Schema([self.schema.field(i) for i in indices], self.schema.metadata)
        return Table(schema, [batch.select(indices) for batch in self.batches])

    def replace_schema_metadata(self, metadata: MetadataLike | None = None) -> Table:
        """The same columns with other metadata in the schema."""
        schema = self.schema.with_metadata(metadata)
        return Table(schema, [batch.replace_schema_metadata(metadata) for batch in self.batches])

    def to_pydict(self) -> dict[str, list[Any]]:
        """A list of Python values for each column, by name; of columns with the same name the last."""
        return {name: self.column(i).to_pylist() for i, name in enumerate(self.schema.names)}

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

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Table) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def validate(self, full: bool = False) -> None:
        """Check every batch; see :meth:`RecordBatch.validate`."""
        for batch in self.batches:
            batch.validate(full)

    def __repr__(self) -> str:
        return _show("Table", self)

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.schema, self.batches)


def record_batch(data: Any, names: Sequence[str] | None = None, schema: Schema | None = None) -> RecordBatch:
    """A record batch from a mapping of names to values, or from arrays with names or a schema."""
    if isinstance(names, Schema):
        names, schema = None, names
    if isinstance(data, Mapping):
        return RecordBatch.from_pydict(data, schema)
    return RecordBatch.from_arrays(list(data), names, schema)


def table(data: Any, names: Sequence[str] | None = None, schema: Schema | None = None) -> Table:
    """A table from a mapping of names to values, from record batches, or from arrays with names or a schema."""
    if isinstance(names, Schema):
        names, schema = None, names
    if isinstance(data, RecordBatch):
        data = [data]
    if isinstance(data, Mapping):
        return Table.from_pydict(data, schema)
    items = list(data)
    if names is None and all(isinstance(item, RecordBatch) for item in items):
        return Table.from_batches(items, schema)
    return Table.from_arrays(items, names, schema)


def _missing(column: Any) -> Any:
    return None if column is None else 0


def _common_length(columns: Sequence[Any], schema: Schema) -> int:
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        found = ", ".join(f"{schema.field(i).name!r}: {len(column)}" for i, column in enumerate(columns[:20]))
        raise InvalidArgument(f"the columns of a batch have one length, found {found}")
    return lengths.pop() if lengths else 0


def _show(kind: str, data: RecordBatch | Table) -> str:
    lines = [f"<shmarrow.{kind} of {data.num_rows} rows, {data.num_columns} columns>"]
    for i in range(min(data.num_columns, 20)):
        field = data.schema.field(i)
        head = data.slice(0, 10).column(i) if isinstance(data, Table) else data.column(i)
        values = str(head.combine_chunks() if isinstance(head, ChunkedArray) else head)
        lines.append(f"{field}: {values}")
    if data.num_columns > 20:
        lines.append(f"... {data.num_columns - 20} more columns")
    return "\n".join(lines)
