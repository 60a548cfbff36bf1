# SPDX-License-Identifier: Apache-2.0
"""Tables: sequences of record batches; each column has one chunk per batch.

Nothing is copied until one array over all chunks is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

import numpy as np

from shmarrow import capsules
from shmarrow.buffer import Indices, Mask
from shmarrow.capsules import PyCapsule
from shmarrow.columns.base import Columns, Key, is_reader
from shmarrow.columns.batch import RecordBatch, batch_of, read_record_batch
from shmarrow.columns.chunked import ChunkedArray, cut, locate, read_chunked_array, split, starts_of
from shmarrow.columns.names import checked_schema, several
from shmarrow.columns.tabular import as_column, frame_in_schema, from_any
from shmarrow.errors import (
    Closed,
    InvalidArgument,
    InvalidType,
    ShmarrowError,
    at,
    counted,
    full_name,
    iterated,
    not_expected,
    optional,
    shown,
)
from shmarrow.habits import Hinted, no_batch
from shmarrow.layout import Array
from shmarrow.layout.array import nulls
from shmarrow.layout.construct import slice_bounds
from shmarrow.memory import CLOSE, ENDED, SEQUENTIAL, NotCopied, StateMachine
from shmarrow.pickling import passed_by_handle
from shmarrow.types import DataType, Metadata, MetadataLike, Schema, has_dictionary, struct, unify_schemas
from shmarrow.types.schema import difference, with_nulls

if TYPE_CHECKING:
    import pyarrow as pa

    from shmarrow.layout.c_stream import CStream


@passed_by_handle
class Table(Columns[ChunkedArray]):
    """A sequence of record batches with one schema.

    Attributes
    ----------
    batches : tuple of RecordBatch
        The batches, each with the table's fields.
    num_rows : int
        Rows of all batches.

    Notes
    -----
    Thread safety: immutable; may be shared, as its batches.
    """

    _kind = "table"
    _column_class = ChunkedArray

    __slots__ = ("_schema", "_starts", "batches", "num_rows")

    def __init__(self, schema: Schema, batches: Sequence[RecordBatch] = ()) -> None:
        if not isinstance(schema, Schema):
            raise InvalidType(f"expected a shmarrow.Schema, found {full_name(schema)}; shmarrow.table() takes values")
        self._schema = schema
        self.batches = tuple(iterated(batches, "a list of shmarrow.RecordBatch"))
        for i, batch in enumerate(self.batches):
            if not isinstance(batch, RecordBatch):
                raise InvalidType(f"expected a list of shmarrow.RecordBatch, found {shown(batches)}")
            if batch._schema is not schema and not batch._schema.equals(schema):
                text = difference(batch.schema, schema)
                raise InvalidType(f"batch {i} has other fields than the rest: {text}")
        self._starts = starts_of([batch.num_rows for batch in self.batches], "batches")
        self.num_rows = int(self._starts[-1])

    @classmethod
    def from_batches(cls, batches: Iterable[RecordBatch], schema: Schema | None = None) -> Table:
        """Make a table over batches of one schema; copies nothing.

        Raises
        ------
        InvalidArgument
            If there is neither a batch nor a schema.
        InvalidType
            If a batch has other fields.
        """
        items = [own_batch(item, "a list of shmarrow.RecordBatch") for item in several(batches, "record batches")]
        if schema is None and not items:
            raise InvalidArgument("expected a schema, as there are no batches")
        return cls(items[0].schema if schema is None else checked_schema(schema), items)

    @classmethod
    def _as_column(cls, values: Any, type: DataType | None) -> ChunkedArray:
        if isinstance(values, (list, tuple)) and values and all(isinstance(item, Array) for item in values):
            column = ChunkedArray(values)
        elif capsules.has_stream(values):
            column = read_chunked_array(values)
        else:
            made = as_column(values, type)
            column = made if isinstance(made, ChunkedArray) else ChunkedArray([made])
        return column if type is None else column.cast(type)

    @classmethod
    def _one_column(cls, values: Any) -> Any:
        if isinstance(values, (list, tuple)) and any(isinstance(item, (list, tuple, np.ndarray)) for item in values):
            raise InvalidType(
                "a list of lists is either a column of lists or the chunks of one: pass shmarrow.array(...) for lists, "
                "shmarrow.chunked_array(...) for chunks"
            )
        return values

    @classmethod
    def _import(cls, obj: Any) -> Table:
        return read_table(obj)

    @classmethod
    def _of_rows(cls, data: Any) -> Table | None:
        if isinstance(data, Table):
            return data
        if isinstance(data, RecordBatch):
            return cls(data.schema, [data])
        if is_reader(data):
            return data.read_all()
        if isinstance(data, (list, tuple)) and data and all(map(_is_batch, data)):
            return cls.from_batches(data)
        return cls._import(data) if capsules.has_data(data) else None

    @classmethod
    def _over(cls, schema: Schema, columns: Sequence[ChunkedArray], num_rows: int) -> Table:
        if not columns:
            return cls(schema, [RecordBatch(schema, num_rows, [])])
        cuts = _cuts([column._starts for column in columns])
        if len(cuts) < 2:  # no rows: the arrays stay, as they may have dictionaries
            return cls(schema, [RecordBatch(schema, 0, [column.combine_chunks() for column in columns])])
        lengths = np.diff(cuts).tolist()
        parts = zip(*[column._pieces(cuts) for column in columns], strict=True)
        return cls(schema, [RecordBatch(schema, length, part) for length, part in zip(lengths, parts, strict=True)])

    @classmethod
    def from_struct_array(cls, struct_array: Any) -> Table:
        """Make a table from the fields of a struct array or chunked array.

        See :meth:`RecordBatch.from_struct_array`.
        """
        if not isinstance(struct_array, ChunkedArray):
            return cls._of([RecordBatch.from_struct_array(struct_array)])
        chunks = struct_array.chunks or [nulls(0, struct_array.type)]
        return cls._of([RecordBatch.from_struct_array(chunk) for chunk in chunks])

    @classmethod
    def _of(cls, batches: Sequence[RecordBatch]) -> Table:
        """Make a table of batches whose fields differ at most in nullability."""
        schema = batches[0]._schema
        if any(not batch._schema.equals(schema) for batch in batches[1:]):
            schema = with_nulls(schema)
            batches = [batch._with_schema(schema) for batch in batches]
        return cls(schema, batches)

    @property
    def nbytes(self) -> int:
        """Bytes occupied by the rows in all columns and batches; see :attr:`Array.nbytes`."""
        return sum([batch.nbytes for batch in self.batches])

    def column(self, i: Key) -> ChunkedArray:
        """Return a column by position or name; copies nothing. Errors as :meth:`RecordBatch.column`."""
        index = self._schema.index_of(i)
        return ChunkedArray([batch.column(index) for batch in self.batches], self.schema.field(index).type)

    @property
    def columns(self) -> list[ChunkedArray]:
        """All columns."""
        return [self.column(i) for i in range(self.num_columns)]

    def to_batches(self, max_chunksize: int | None = None) -> list[RecordBatch]:
        """Return the batches, split into pieces of at most ``max_chunksize`` rows if given; builds and copies nothing.

        The errors are those of :meth:`RecordBatch.to_batches`.
        """
        if not self.batches:
            RecordBatch(self._schema, 0).to_batches(max_chunksize)  # checks the argument
        return [piece for batch in self.batches for piece in batch.to_batches(max_chunksize)]

    def to_reader(self, max_chunksize: int | None = None) -> RecordBatchReader:
        """Return a reader over the batches, split into pieces of at most ``max_chunksize`` rows if given.

        Copies nothing.
        """
        return RecordBatchReader.from_batches(self.schema, self.to_batches(max_chunksize))

    def to_struct_array(self, max_chunksize: int | None = None) -> ChunkedArray:
        """Return the rows as structs, one chunk per batch of :meth:`to_batches`; copies nothing."""
        chunks = [batch.to_struct_array() for batch in self.to_batches(max_chunksize)]
        return ChunkedArray(chunks, struct(self.schema.fields))

    def __shmarrow_array__(self) -> Array:
        return self.to_struct_array().combine_chunks()

    def combine_chunks(self) -> Table:
        """Return a table of at most one batch; a copy if there was more than one."""
        if len(self.batches) <= 1:
            return self
        columns = [column.combine_chunks() for column in self.columns]
        return Table(self.schema, [RecordBatch(self.schema, self.num_rows, columns)])

    def slice(self, offset: int = 0, length: int | None = None) -> Table:
        """Return up to ``length`` rows starting at ``offset``; builds and copies nothing.

        Beyond the end there are none.

        The errors are those of :meth:`RecordBatch.slice`.
        """
        offset, length = slice_bounds(offset, length, self.num_rows)
        return Table(self._schema, cut(self.batches, self._starts, offset, length))

    def unify_dictionaries(self) -> Table:
        """Give each dictionary-encoded column one dictionary for all batches, at any depth of its type.

        Columns without dictionaries are not built. The errors are those of :meth:`ChunkedArray.unify_dictionaries`.
        """
        found = [i for i, field in enumerate(self._schema) if has_dictionary(field.type)]
        new = {i: self.column(i).unify_dictionaries() for i in found}
        return self._arranged(self._schema, [-1 if i in new else i for i in range(self.num_columns)], new)

    def drop_null(self) -> Table:
        """Return the rows without nulls, batch by batch; a copy."""
        return Table(self._schema, [batch.drop_null() for batch in self.batches])

    def _with_schema(self, schema: Schema) -> Table:
        return Table(schema, [batch._with_schema(schema) for batch in self.batches])

    def _arranged(self, schema: Schema, indices: Sequence[int], new: Mapping[int, ChunkedArray]) -> Table:
        if not new:
            return Table(schema, [batch._arranged(schema, indices, {}) for batch in self.batches])
        cuts = _cuts([self._starts, *[column._starts for column in new.values()]])
        numbers = (np.searchsorted(self._starts, cuts[:-1], "right") - 1).tolist()
        pieces = zip(*[column._pieces(cuts) for column in new.values()], strict=True)
        made = []
        for number, start, end, parts in zip(numbers, cuts.tolist(), cuts[1:].tolist(), pieces, strict=False):
            batch = self.batches[number]
            if end - start < batch.num_rows:
                batch = batch.slice(start - int(self._starts[number]), end - start)
            made.append(batch._arranged(schema, indices, dict(zip(new, parts, strict=True))))
        if not made:  # no rows: the arrays stay, as they may have dictionaries
            batch = (
                self.batches[0]
                if self.batches
                else RecordBatch(self._schema, 0, [nulls(0, t) for t in self._schema.types])
            )
            made.append(batch._arranged(schema, indices, {i: column.combine_chunks() for i, column in new.items()}))
        return Table(schema, made)

    def _rows(self, positions: Indices, valid: Mask | None) -> Table:
        found = split(self._starts, positions, valid)
        batches = [self.batches[number]._rows(local, known) for number, local, known in found]
        return self._of(batches) if batches else Table(self._schema)

    def _gathered(self, positions: Indices, valid: Mask | None) -> Table:
        found = locate(self._starts, positions, valid, "table")
        schema = self._schema if valid is None or valid.all() else with_nulls(self._schema)
        columns = [column._gather(found).chunks[0] for column in self.columns]
        return Table(schema, [RecordBatch(schema, len(positions), columns)])

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return a dict of Python values per row. If column names repeat, the last column wins."""
        return [row for batch in self.batches for row in batch.to_pylist()]

    def validate(self, full: bool = False) -> None:
        """Check every batch; see :meth:`RecordBatch.validate`."""
        for i, batch in enumerate(self.batches):
            with at("batch", i):
                batch.validate(full=full)

    # --- other libraries ---

    def to_pyarrow(self) -> pa.Table:
        """Convert to a ``pyarrow.Table`` with one chunk per batch, zero-copy. Errors as :meth:`Array.to_pyarrow`."""
        batches = [batch.to_pyarrow() for batch in self.batches]
        return optional("pyarrow").Table.from_batches(batches, self.schema.to_pyarrow())

    def __arrow_c_stream__(self, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
        """Export the batches as a PyCapsule ``arrow_array_stream`` (Arrow PyCapsule interface), zero-copy.

        Tables of many batches are exported one batch at a time, which needs pyarrow. Parameters and errors as for
        :meth:`Array.__arrow_c_array__`; an error in a later batch is reported through the stream.
        """
        from shmarrow.layout.c_stream import export_batches

        return export_batches(self.schema, self.batches, requested_schema, **unknown)

    def __reduce__(self) -> tuple[object, ...]:
        return Table, (self.schema, self.batches)


def _cuts(starts: Sequence[Indices]) -> Indices:
    """Return the chunk boundaries of several columns, increasing, as int64."""
    return np.unique(np.concatenate(starts))


def rows_of(data: Any, schema: Schema | None = None) -> RecordBatchReader:
    """Make a reader over the rows of any library's object, for one pass. Errors as :meth:`from_stream`.

    A data frame of pandas, most of whose columns have no type of Arrow's, is converted to those of ``schema`` if given.
    """
    if capsules.is_frame(data):
        data = table(data) if schema is None else frame_in_schema(Table, data, schema)
    return RecordBatchReader.from_stream(data)


def own_batch(batch: Any, expected: str) -> RecordBatch:
    """Convert any library's record batch to ours; InvalidType for anything else."""
    if isinstance(batch, RecordBatch):
        return batch
    if not capsules.has_data(batch):
        raise not_expected(expected, batch)
    return read_record_batch(batch)


class RecordBatchWithMetadata(NamedTuple):
    """A record batch, and the metadata of its message, which are ``batch.metadata`` too; as in pyarrow.

    Attributes
    ----------
    batch : RecordBatch
        The batch.
    custom_metadata : mapping of bytes to bytes, or None
        Its metadata.
    """

    batch: RecordBatch
    custom_metadata: Metadata | None


def with_metadata(batch: RecordBatch) -> RecordBatchWithMetadata:
    """Return a batch and its metadata."""
    return RecordBatchWithMetadata(batch, batch.metadata)


class RecordBatchReader(Hinted):
    """An iterator over batches of one schema; the base of all stream readers.

    Attributes
    ----------
    schema : Schema
        The schema of all batches; usable after closing.
    """

    _kind = "reader"

    schema: Schema
    _states: StateMachine

    @staticmethod
    def from_batches(schema: Schema, batches: Iterable[RecordBatch]) -> RecordBatchReader:
        """Make a reader over an iterable of batches, which is consumed as the reader advances.

        Raises
        ------
        InvalidType
            If ``schema`` is not a schema, or when a batch is read that has other fields.
        """
        return _Batches(checked_schema(schema), iterated(batches, "an iterable of shmarrow.RecordBatch"))

    @staticmethod
    def from_stream(data: Any, schema: Schema | None = None) -> RecordBatchReader:
        """Make a reader over the rows of any object with ``__arrow_c_stream__`` or ``__arrow_c_array__``.

        Batches are read lazily, and share the object's memory.

        Parameters
        ----------
        data : object
            A data frame, a table, a reader or a query of another library.
        schema : Schema, optional
            What each batch is cast to. A cast that is impossible raises now, a value that does not fit when its batch
            is read.

        Raises
        ------
        InvalidType
            If the object has no such method, or exports single columns.
        InvalidData, Unsupported, StorageError
            If it fails, with its message.
        MissingExtra
            If nanoarrow is not installed.
        """
        if isinstance(data, RecordBatchReader):
            reader: RecordBatchReader = data
        elif isinstance(data, (RecordBatch, Table)):
            reader = RecordBatchReader.from_batches(data.schema, data.to_batches())
        elif hasattr(data, capsules.STREAM) or hasattr(data, capsules.ARRAY):
            reader = read_reader(data)
        else:
            text = f"a record batch, a table, a reader or a data frame, found {full_name(data)}"
            plain = isinstance(data, (Mapping, list, tuple, np.ndarray))
            hint = "shmarrow.record_batch(...) makes a batch of values" if plain else capsules.next_step(data)
            raise InvalidType(f"expected {text}", hint=hint)
        if schema is None:
            return reader
        schema = checked_schema(schema)
        RecordBatch(reader.schema, 0, [nulls(0, type) for type in reader.schema.types]).cast(schema)
        return mapped_batches(schema, reader, lambda batch: batch.cast(schema), reader.close)

    def cast(self, target_schema: Schema) -> RecordBatchReader:
        """Return a reader that casts each remaining batch; closing it closes this reader.

        Parameters and errors as for :meth:`from_stream` and :meth:`RecordBatch.cast`.
        """
        return RecordBatchReader.from_stream(self, target_schema)

    if not TYPE_CHECKING:

        def __getitem__(self, key: object) -> NoReturn:
            """Raise: batches are read one after another."""
            if isinstance(key, str):
                raise no_batch(key)
            raise InvalidType("the batches of a reader have no positions", hint="next(reader) is the next batch")

    def read_next_batch(self) -> RecordBatch:
        """Return the next batch.

        Raises
        ------
        StopIteration
            At the end.
        InvalidData
            If the next message is invalid.
        Failed
            After an error, which is quoted; continuing would skip a batch.
        Closed
            After :meth:`close`.
        """
        raise NotImplementedError

    def read_next_batch_with_custom_metadata(self) -> RecordBatchWithMetadata:
        """Return the next batch and its metadata. Errors as :meth:`read_next_batch`."""
        return with_metadata(self.read_next_batch())

    def iter_batches_with_custom_metadata(self) -> Iterator[RecordBatchWithMetadata]:
        """Iterate over the remaining batches and their metadata."""
        try:
            while True:
                yield with_metadata(self.read_next_batch())
        except StopIteration:
            return

    def _fail(self, error: BaseException) -> None:
        """Record that a batch could not be used, so that no later call silently skips it."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[RecordBatch]:
        return self

    def __next__(self) -> RecordBatch:
        return self.read_next_batch()

    def read_all(self) -> Table:
        """Read all remaining batches into a table; `Closed` if all were read before, as it would have no rows."""
        self._check_left()
        return Table(self.schema, [batch for batch in self])  # noqa: C416 - list() would first ask for their number

    def for_consumer(self, name: str = "", *, lossy: str | Iterable[str] = ()) -> RecordBatchReader:
        """Return a reader over the remaining batches that casts each to types that another tool accepts.

        Closing it closes this reader.

        Parameters
        ----------
        name : str
            The tool; see :meth:`RecordBatch.for_consumer`.
        lossy : str or iterable of str
            Kinds of types whose values may lose something, or ``"all"``.

        Raises
        ------
        Unsupported
            If the tool has no type for a column; names the ``lossy`` kind that would allow a cast, if any.
        InvalidData
            When a batch is read, if a value does not fit the new type; likewise.
        InvalidArgument
            If ``name`` is unknown, or ``lossy`` names a kind that never loses anything.
        """
        self._check_left()
        return batches_for(self.schema, self, name, lossy, self.close)

    def _check_left(self) -> None:
        """Refuse to hand on the rows of a reader that was read to its end: there would be none, without an error."""
        if self._states.state == ENDED:
            raise Closed(
                "all batches of this reader were read before, and it cannot be read again; open its source again, or "
                "keep the table that read_all() returns"
            )

    def __arrow_c_stream__(self, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
        """Export the remaining batches as a PyCapsule ``arrow_array_stream``; each is read when the consumer asks.

        Parameters and errors as for :meth:`Array.__arrow_c_array__`; needs pyarrow. An error in a later batch is
        reported through the stream.
        """
        from shmarrow.layout.c_stream import export_reader

        self._check_left()
        return export_reader(self, requested_schema, **unknown)

    def close(self) -> None:
        """Release the source. Batches already read stay valid; closing twice is allowed."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Batches(NotCopied, RecordBatchReader):
    """A reader over batches from a list or an iterator.

    Thread safety: threads may share a reader; each batch goes to one of them.
    """

    def __init__(
        self, schema: Schema, batches: Iterator[RecordBatch], close: Callable[[], None] = lambda: None
    ) -> None:
        self.schema = schema
        self._batches = batches
        self._close = close
        self._states = StateMachine("the reader of batches", SEQUENTIAL, shared=True)

    def read_next_batch(self) -> RecordBatch:
        batch = self._states.read(self._next)
        if batch is None:
            raise StopIteration
        return batch

    def _next(self) -> RecordBatch | None:
        for found in self._batches:
            batch = own_batch(found, "a shmarrow.RecordBatch")
            if not batch._schema.equals(self.schema):
                text = difference(batch.schema, self.schema)
                raise InvalidType(f"the fields of a batch differ from the reader's: {text}")
            return batch
        self._batches = iter(())
        return None

    def _fail(self, error: BaseException) -> None:
        self._states.fail(error)

    def close(self) -> None:
        self._states.go(CLOSE)
        self._batches = iter(())
        self._close()

    def __repr__(self) -> str:
        from shmarrow import display

        return display.line(
            "RecordBatchReader", "of batches", *display.holding(None, None, len(self.schema)), self._states.state
        )


class ImportedReader(NotCopied, RecordBatchReader):
    """Reads record batches on demand from another library's stream.

    Attributes
    ----------
    schema : Schema
        The schema of all batches.

    Notes
    -----
    Thread safety: threads may share a reader; each batch goes to one of them. A forked child can only close its copy.
    """

    def __init__(self, stream: CStream) -> None:
        from shmarrow.layout.c_array import Importer
        from shmarrow.types.c_schema import schema_at

        self._stream = stream
        self._states = stream.states
        self._importer = Importer()
        try:
            self.schema: Schema = schema_at(stream.schema, stream.schema._addr())
        except ShmarrowError:
            stream.close()
            raise

    def read_next_batch(self) -> RecordBatch:
        from shmarrow.layout.c_array import rows_at

        found = self._stream.next()
        if found is None:
            raise StopIteration
        try:
            return batch_of(rows_at(found, found._addr(), self.schema, self._importer))
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._stream.fail(error)

    def close(self) -> None:
        self._stream.close()

    def __repr__(self) -> str:
        columns = counted(len(self.schema), "column")
        return f"<ImportedReader of {self._stream.what}: {columns}, {self._stream.states.state}>"


def read_table(obj: object) -> Table:
    """Import the rows of an object with a PyCapsule interface as a table, keeping its batches."""
    if hasattr(obj, capsules.STREAM):
        with read_reader(obj) as reader:
            return reader.read_all()
    batch = read_record_batch(obj)
    return Table(batch.schema, [batch])


def read_reader(obj: object) -> RecordBatchReader:
    """Open a reader over the rows of an object with a PyCapsule interface; each read requests one batch from it."""
    if hasattr(obj, capsules.STREAM):
        from shmarrow.layout.c_stream import open_stream
        from shmarrow.types.c_schema import SingleColumn

        try:
            return ImportedReader(open_stream(obj))
        except SingleColumn:
            raise capsules.single_column(obj) from None
    batch = read_record_batch(obj)
    return RecordBatchReader.from_batches(batch.schema, [batch])


def mapped_batches(
    schema: Schema,
    batches: Iterable[RecordBatch],
    change: Callable[[RecordBatch], RecordBatch],
    close: Callable[[], None] | None = None,
) -> RecordBatchReader:
    """Make a reader that applies a function to each batch; closing it calls ``close``."""
    return _Batches(schema, map(change, batches), close or (lambda: None))


def batches_for(
    schema: Schema,
    batches: Iterable[RecordBatch],
    name: str,
    lossy: str | Iterable[str],
    close: Callable[[], None] | None = None,
) -> RecordBatchReader:
    """Implement :meth:`RecordBatchReader.for_consumer`, for batches of a schema; closing it calls ``close``."""
    target = schema.for_consumer(name, lossy=lossy)
    return mapped_batches(target, batches, lambda batch: batch.for_consumer(name, lossy=lossy), close)


def table(
    data: Any,
    names: Sequence[str] | Schema | None = None,
    schema: Schema | None = None,
    metadata: MetadataLike | None = None,
) -> Table:
    """Make a table from a mapping of names to values, from arrays, a data frame, or record batches.

    Parameters
    ----------
    data : mapping, sequence of arrays, DataFrame, record batches, or reader
        Columns by name; or columns whose names, or schema, are given; or a data frame of pandas or polars, whose
        columns are used without a copy where :func:`shmarrow.array` needs none. The index of pandas becomes a column
        at the end, named as it is or ``__index_level_0__``, unless it is a RangeIndex; with a schema, if that names
        it. From the metadata ``to_pandas`` restores the frame. Batches, tables and readers keep their columns.
    names : sequence of str, optional
        The names of the arrays.
    schema : Schema, optional
        The fields, matched by name with a mapping or a data frame, and by position with arrays. Arrays of other types
        are cast.
    metadata : mapping, optional
        Metadata of the schema, where none is given.

    Raises
    ------
    FieldNotFound
        If the schema has a name that the mapping does not have.
    InvalidArgument
        If names are missing, or too many; if columns have several lengths; if arguments exclude each other.
    InvalidType
        If the data are none of these, or cannot be cast to the schema.
    InvalidData
        If a value does not fit the schema.
    """
    return from_any(Table, data, names, schema, metadata)


def _is_batch(item: Any) -> bool:
    """Whether an item is a record batch of any library, not a column."""
    return isinstance(item, RecordBatch) or (capsules.has_data(item) and type(item).__name__ == "RecordBatch")


# --- one after another ------------------------------------------------------------------------------------------


def concat_tables(tables: Iterable[Table], promote_options: str = "none") -> Table:
    """Concatenate tables; only columns that are cast are copied.

    Parameters
    ----------
    tables : iterable of Table
        At least one, of any library, or record batches; the schema's metadata are those of the first.
    promote_options : str
        ``"none"`` wants the same fields in all. ``"default"`` and ``"permissive"`` bring them to one schema, as
        :func:`unify_schemas` does: columns are matched by name, and those that a table does not have are null.

    Raises
    ------
    InvalidArgument
        If there is no table, or the option is unknown.
    InvalidType
        If the tables have different fields, or fields without a common type.
    InvalidData
        If a value does not fit the common type.
    """
    found = tuple(map(_own_table, several(tables, "tables")))
    if not found:
        raise InvalidArgument("expected at least one table")
    if promote_options not in ("none", "default", "permissive"):
        raise InvalidArgument(f"promote_options is 'none', 'default' or 'permissive', found {shown(promote_options)}")
    schema = found[0].schema
    if promote_options != "none":
        schema = unify_schemas([item.schema for item in found], promote_options=promote_options)
        missing = {name for name in schema.names for item in found if name not in item._schema}
        if missing:
            fields = [field.with_nullable(field.nullable or field.name in missing) for field in schema]
            schema = Schema(fields, schema.metadata)
        found = tuple([_in_schema(item, schema) for item in found])
    for i, item in enumerate(found):
        if not item._schema.equals(schema):
            raise InvalidType(
                f"the fields of table {i} differ from those of the first: {difference(item.schema, schema)}"
            )
    return Table(schema, [batch for item in found for batch in item.batches])


def _own_table(rows: Any) -> Table:
    """Convert rows of any library to our table; InvalidType for anything else."""
    table = Table._of_rows(rows)
    if table is None:
        raise not_expected("a list of shmarrow.Table", rows)
    return table


def _in_schema(table: Table, schema: Schema) -> Table:
    """Match a table to a schema by name; missing columns become null."""
    names = [name for name in schema.names if name in table._schema]
    result = table.select(names)
    fields = {field.name: field for field in schema}
    result = result.cast(Schema([fields[name].with_nullable(True) for name in names], schema.metadata))
    for i, field in enumerate(schema):
        if field.name not in table._schema:
            result = result.add_column(i, field, nulls(table.num_rows, field.type))
    return result._with_schema(schema)


def concat_batches(recordbatches: Iterable[RecordBatch]) -> RecordBatch:
    """Concatenate batches of the same fields into one; a copy, unless there is only one.

    Raises
    ------
    InvalidArgument
        If there is no batch.
    InvalidType
        If their fields differ.
    """
    found = several(recordbatches, "record batches")
    if not found:
        raise InvalidArgument("expected at least one record batch")
    whole = Table.from_batches(found)
    return whole.batches[0] if len(found) == 1 else whole.combine_chunks().batches[0]
