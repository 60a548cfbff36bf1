"""Tables: record batches one after another; their columns are chunked, one chunk a batch.

Nothing is copied until somebody asks for one array over all chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.build import array
from shmarrow.chunked import ChunkedArray, cut, starts_of
from shmarrow.columns import Columns, Key, by_name, common_length, fields_at, renamed, several, wanted_types
from shmarrow.errors import (
    InvalidArgument,
    InvalidType,
    full_name,
    not_expected,
)
from shmarrow.layout.array import nulls
from shmarrow.layout.memory import slice_bounds
from shmarrow.types import DataType, Field, MetadataLike, Schema

if TYPE_CHECKING:
    pass


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
        self._starts = starts_of([batch.num_rows for batch in self.batches], "batches")
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
        names, columns = by_name(mapping, schema)
        return cls.from_arrays(columns, names if schema is None else None, schema)

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
        return Table(self._schema, cut(self.batches, self._starts, offset, length))

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


def _chunked(values: Any, type: DataType | None) -> ChunkedArray:
    """Values as a chunked array; cast to a type, where one is given."""
    if not isinstance(values, ChunkedArray):
        return ChunkedArray([array(values, type)])
    if type is None or values.type == type:
        return values
    return ChunkedArray([chunk.cast(type) for chunk in values.chunks or [nulls(0, values.type)]], type)


def _empty_table(schema: Schema) -> Table:
    """A table of the schema without rows."""
    return Table(schema)


Schema.empty_table = _empty_table


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
