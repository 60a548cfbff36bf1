"""Record batches: columns of equal length under one schema.

Rules kept here:

* a batch that was read builds a column when it is asked for, and caches it;
* slicing, selecting and renaming build no column: the new batch has a view of the columns of the old one. A view of a
  view refers to the columns behind both, so chains do not grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from shmarrow.build import array
from shmarrow.columns import Columns, Key, by_name, common_length, fields_at, renamed, several, wanted_types
from shmarrow.errors import InvalidArgument, InvalidData, full_name, not_expected
from shmarrow.layout.arguments import checked_positions
from shmarrow.layout.memory import check_expansion, slice_bounds
from shmarrow.types import Field, Metadata, MetadataLike, Schema, as_metadata


class ColumnSource(Protocol):
    """Where a record batch gets columns that it does not have yet. Any thread may call it at any time."""

    def column(self, index: int) -> Any:
        """The column at a position from 0."""

    def columns(self, indices: Sequence[int] | None = None) -> list[Any]:
        """Several columns, or all: faster than one by one where they are fetched or decompressed."""


class ColumnView:
    """A source over the columns of a batch: some or all of them, cut to a range of rows.

    Parameters
    ----------
    batch : RecordBatch
        The batch that the columns come from; it builds and caches them.
    indices : sequence of int, optional
        The positions of the columns in that batch; without it all of them in order.
    offset, length : int
        The rows.
    """

    __slots__ = ("batch", "indices", "length", "offset")

    def __init__(self, batch: RecordBatch, indices: Sequence[int] | None, offset: int, length: int) -> None:
        self.batch = batch
        self.indices = indices
        self.offset = offset
        self.length = length

    def column(self, index: int) -> Any:
        return self._cut(self.batch.column(index if self.indices is None else self.indices[index]))

    def columns(self, indices: Sequence[int] | None = None) -> list[Any]:
        if indices is None or self.indices is None:
            found = self.indices if indices is None else indices
        else:
            found = [self.indices[i] for i in indices]
        return [self._cut(column) for column in self.batch._columns_at(found)]

    def _cut(self, column: Any) -> Any:
        return column if self.length == len(column) else column.slice(self.offset, self.length)


class RecordBatch(Columns):
    """Columns of equal length (columnar format, "Serialization and Interprocess Communication").

    Made by :func:`record_batch`, by readers, and by the class methods. The constructor is for code that has checked
    its columns.

    Attributes
    ----------
    num_rows : int
        Length of every column.
    metadata : mapping of bytes to bytes, or None
        The metadata of the message that the batch came from or goes into; immutable.

    Notes
    -----
    Thread safety: any number of threads may use a batch. Two that ask for the same column at the same time may each
    build it; they get equal arrays over the same memory, or over copies of it where the batch is compressed.
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
        # The columns built so far, by position; only ever added to. A list would cost more than opening a wide batch.
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
        wanted = wanted_types(len(arrays), names, schema)
        columns = [array(values, type) for values, type in zip(arrays, wanted, strict=True)]
        if schema is None:
            schema = Schema([Field(name, col.type) for name, col in zip(names or (), columns, strict=True)])
        return cls(schema, common_length(columns, schema), columns)

    @classmethod
    def from_pydict(cls, mapping: Mapping[str, Any], schema: Schema | None = None) -> RecordBatch:
        """A batch from a mapping of column names to values."""
        names, columns = by_name(mapping, schema)
        return cls.from_arrays(columns, names if schema is None else None, schema)

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
        """All columns, as a new list."""
        return self._columns_at(None)

    def _columns_at(self, indices: Sequence[int] | None) -> list[Any]:
        """The columns at some positions, or all; those that are missing are built together."""
        built, source = self._columns, self._source
        wanted = range(len(self._schema)) if indices is None else indices
        if source is not None:
            missing = [i for i in wanted if i not in built] if built else indices
            if missing is None:
                built.update(enumerate(source.columns()))
            elif missing:
                built.update(zip(missing, source.columns(missing), strict=True))
        return [built[i] for i in wanted]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers of all columns."""
        return sum([column.nbytes for column in self.columns])

    # --- other batches ---

    def slice(self, offset: int = 0, length: int | None = None) -> RecordBatch:
        """The rows from ``offset`` on, ``length`` of them or as many as there are; builds and copies nothing.

        Raises
        ------
        IndexOutOfRange
            If ``offset`` is negative or beyond the end.
        InvalidArgument
            If ``length`` is negative.
        """
        offset, length = slice_bounds(offset, length, self.num_rows, "batch")
        return self._view(self._schema, None, offset, length)

    def select(self, keys: Iterable[Key]) -> RecordBatch:
        """The columns at the positions or of the names given, in that order; builds and copies nothing."""
        indices = [self._schema.index_of(key) for key in several(keys, "positions and names")]
        return self._view(fields_at(self._schema, indices), indices, 0, self.num_rows)

    def rename_columns(self, names: Sequence[str]) -> RecordBatch:
        """The same columns under other names; builds and copies nothing.

        Raises
        ------
        InvalidArgument
            If there are more or fewer names than columns.
        InvalidType
            When a field is asked for whose name is not a string.
        """
        return self._with_schema(renamed(self._schema, names))

    def _with_schema(self, schema: Schema) -> RecordBatch:
        """The same columns under other fields or metadata; both batches share what they have built."""
        made = RecordBatch(schema, self.num_rows, source=self._source)
        made.metadata, made._columns = self.metadata, self._columns
        return made

    def _view(self, schema: Schema, indices: Sequence[int] | None, offset: int, length: int) -> RecordBatch:
        base, source = self, self._source
        if source.__class__ is ColumnView:
            base, offset, within = source.batch, offset + source.offset, source.indices
            if within is not None:
                indices = within if indices is None else [within[i] for i in indices]
        if indices is not None:
            # With a cache of its own, the view holds no column that it does not have itself.
            built = base._columns
            base = RecordBatch(base._schema, base.num_rows, source=base._source)
            base._columns = {i: built[i] for i in indices if i in built}
        made = RecordBatch(schema, length, source=ColumnView(base, indices, offset, length))
        made.metadata = self.metadata
        return made

    def append_column(self, field: Field | str, values: Any) -> RecordBatch:
        """A batch with one more column at the end."""
        column = array(values, field.type if isinstance(field, Field) else None)
        if len(column) != self.num_rows:
            raise InvalidArgument(f"a column of {len(column)} values for a batch of {self.num_rows} rows")
        made = field if isinstance(field, Field) else Field(field, column.type)
        return RecordBatch(self.schema.append(made), self.num_rows, [*self.columns, column], metadata=self.metadata)

    def replace_schema_metadata(self, metadata: MetadataLike | None = None) -> RecordBatch:
        """The same columns with other metadata in the schema; builds and copies nothing."""
        return self._with_schema(self._schema.with_metadata(metadata))

    def take(self, indices: Any) -> RecordBatch:
        """The rows at ``indices``, with the same metadata; a copy. The arguments and errors of :meth:`Array.take`."""
        positions, mask = checked_positions(indices)
        columns = [column._take(positions, mask) for column in self.columns]
        return RecordBatch(self.schema, len(positions), columns, metadata=self.metadata)

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
    if full_name(data).startswith("pyarrow.") and hasattr(data, "schema"):
        raise not_expected("a mapping or arrays", data)
    return RecordBatch.from_arrays(list(data), names, schema)
