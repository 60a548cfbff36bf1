"""Record batches: columns of equal length under one schema.

A record batch that was read makes a column when it is asked for, and keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from shmarrow.columns import Columns, Key, common_length
from shmarrow.errors import IndexOutOfRange, InvalidArgument, InvalidData
from shmarrow.layout.build import array
from shmarrow.layout.memory import check_expansion
from shmarrow.types import DataType, Field, Metadata, MetadataLike, Schema, as_metadata


class ColumnSource(Protocol):
    """Where a record batch that was read gets its columns, each when it is asked for."""

    def column(self, index: int) -> Any:
        """The column at a position from 0."""

    def columns(self) -> list[Any]:
        """All columns, made anew; for all of them at once some things are faster."""


class RecordBatch(Columns):
    """Columns of equal length (columnar format, "Serialization and Interprocess Communication").

    Made by :func:`record_batch`, by readers, and by the class methods. The constructor is for code that has checked
    its columns.

    Attributes
    ----------
    num_rows : int
        Length of every column.
    metadata : dict of bytes to bytes, or None
        The metadata of the message that the batch came from or goes into.
    """

    __slots__ = ("_columns", "_schema", "_source", "metadata", "num_rows")

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
        self._schema = schema
        self.num_rows = num_rows
        self.metadata: Metadata | None = as_metadata(metadata) if metadata else None
        self._source = source
        # Those made so far by position: room for all would cost more than opening a batch of many columns.
        self._columns: dict[int, Any] = {} if columns is None else dict(enumerate(columns))

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
        return cls(schema, common_length(columns, schema), columns)

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
        found = self._columns.get(key) if key.__class__ is int else None
        if found is None:
            index = self._schema.index_of(key)
            found = self._columns.get(index)
            if found is None:
                assert self._source is not None
                found = self._columns[index] = self._source.column(index)
        return found

    @property
    def columns(self) -> list[Any]:
        """All columns."""
        made = self._columns
        if self._source is not None and len(made) < len(self._schema):
            self._columns = made = dict(enumerate(self._source.columns())) | made
        return [made[i] for i in range(len(made))]

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

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_batch, (self.schema, self.num_rows, self.columns, self.metadata)


def _rebuild_batch(schema: Schema, num_rows: int, columns: list[Any], metadata: Metadata | None) -> RecordBatch:
    return RecordBatch(schema, num_rows, columns, metadata=metadata)


def record_batch(data: Any, names: Sequence[str] | None = None, schema: Schema | None = None) -> RecordBatch:
    """A record batch from a mapping of names to values, or from arrays with names or a schema."""
    if isinstance(names, Schema):
        names, schema = None, names
    if isinstance(data, Mapping):
        return RecordBatch.from_pydict(data, schema)
    return RecordBatch.from_arrays(list(data), names, schema)
