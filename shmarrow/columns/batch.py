# SPDX-License-Identifier: Apache-2.0
"""Record batches: columns of equal length under one schema.

Invariants:

* a batch that was read builds and caches columns on first access;
* slicing, selecting and renaming build no column: the new batch has a view of the columns of the old one. A view of a
  view refers to the columns behind both, so chains do not grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shmarrow import capsules
from shmarrow.buffer import Indices, Mask
from shmarrow.capsules import PyCapsule
from shmarrow.columns.base import Columns, Key, is_reader
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, at, counted, not_expected, shown
from shmarrow.layout import Array
from shmarrow.layout.construct import check_expansion, check_slots, slice_bounds
from shmarrow.pickling import passed_by_handle
from shmarrow.types import DataType, EncodedType, Metadata, MetadataLike, Schema, as_metadata, storage_of, struct
from shmarrow.types.schema import with_nulls

if TYPE_CHECKING:
    import pyarrow as pa

    from shmarrow.layout.c_array import ImportedRows
    from shmarrow.layout.struct import StructArray


class ColumnSource(Protocol):
    """Supplies the columns of a record batch on demand. Methods may be called from any thread."""

    def column(self, index: int) -> Array:
        """Return the column at position ``index``, counted from 0."""

    def columns(self, indices: Sequence[int] | None = None) -> list[Array]:
        """Return several columns, or all; faster than one by one if they are fetched or decompressed."""

    def is_cheap(self, index: int) -> bool:
        """Whether :meth:`column` needs neither a fetch nor a large decompression, so that a preview may show it."""
        return True

    def check(self, index: int) -> None:
        """Check what the message says of a column and the column does not show, as a part of full validation.

        Raises
        ------
        InvalidData
            If a buffer is not aligned, or the null count of an array of the null type is not its length.
        """


class ColumnView:
    """A source over selected columns of a batch, sliced to a range of rows.

    Parameters
    ----------
    batch : RecordBatch
        The batch that the columns come from; it builds and caches them.
    indices : sequence of int, optional
        The positions of the columns in that batch; without it all of them in order, -1 for one that is not from there.
    offset, length : int
        The rows.
    own : mapping of int to Array
        The columns that are not from that batch, by their places; they are built already.
    """

    __slots__ = ("batch", "indices", "length", "offset", "own")

    def __init__(
        self,
        batch: RecordBatch,
        indices: Sequence[int] | None,
        offset: int,
        length: int,
        own: Mapping[int, Array],
    ) -> None:
        self.batch = batch
        self.indices = indices
        self.offset = offset
        self.length = length
        self.own = own

    def column(self, index: int) -> Array:
        return self._cut(self.batch.column(index if self.indices is None else self.indices[index]))

    def columns(self, indices: Sequence[int] | None = None) -> list[Array]:
        if indices is None or self.indices is None:
            found = self.indices if indices is None else indices
        else:
            found = [self.indices[i] for i in indices]
        return [self._cut(column) for column in self.batch._columns_at(found)]

    def is_cheap(self, index: int) -> bool:
        return index in self.own or self.batch._is_cheap(index if self.indices is None else self.indices[index])

    def check(self, index: int) -> None:
        if index not in self.own:
            self.batch._check_source(index if self.indices is None else self.indices[index])

    def _cut(self, column: Array) -> Array:
        return column if self.length == len(column) else column.slice(self.offset, self.length)


@passed_by_handle
class RecordBatch(Columns[Array]):
    """Columns of equal length (columnar format, "Serialization and Interprocess Communication").

    Made by :func:`record_batch`, by readers, and by the class methods. The constructor is for code that has checked
    its columns.

    Attributes
    ----------
    num_rows : int
        Length of every column.
    metadata : mapping of bytes to bytes, or None
        Custom metadata of the batch's message; immutable.

    Notes
    -----
    Thread safety: may be shared. Threads racing to build a column get equal arrays over the same memory, or over copies
    if the batch is compressed.
    """

    _kind = "batch"
    _column_class = Array

    __slots__ = ("_columns", "_schema", "_source", "metadata", "num_rows")

    def __init__(
        self,
        schema: Schema,
        num_rows: int = -1,
        columns: Sequence[Array] | None = None,
        *,
        source: ColumnSource | None = None,
        metadata: MetadataLike | None = None,
    ) -> None:
        if not isinstance(schema, Schema) or num_rows < 0:
            raise InvalidType("expected a schema and a number of rows; shmarrow.record_batch() takes values")
        self._schema = schema
        self.num_rows = num_rows
        self.metadata: Metadata | None = as_metadata(metadata) if metadata else None
        self._source = source
        # The columns built so far, by position; only ever added to. A list would cost more than opening a wide batch.
        self._columns: dict[int, Array] = {} if columns is None else dict(enumerate(columns))

    @classmethod
    def _as_column(cls, values: Any, type: DataType | None) -> Array:
        column: Array = values
        if not isinstance(values, Array):
            from shmarrow.columns.tabular import as_column
            from shmarrow.layout.arguments import one_array

            column = one_array(as_column(values, type))
        return column if type is None else column.cast(type)

    @classmethod
    def _import(cls, obj: Any) -> RecordBatch:
        return read_record_batch(obj)

    @classmethod
    def _of_rows(cls, data: Any) -> RecordBatch | None:
        rows: Any = data.read_all() if is_reader(data) else data
        if isinstance(rows, RecordBatch):
            return rows
        if isinstance(rows, Columns):
            return cls(rows.schema, rows.num_rows, [column.combine_chunks() for column in rows.columns])
        return cls._import(rows) if capsules.has_data(rows) else None

    @classmethod
    def _over(cls, schema: Schema, columns: Sequence[Array], num_rows: int) -> RecordBatch:
        return cls(schema, num_rows, columns)

    @classmethod
    def from_struct_array(cls, struct_array: Any) -> RecordBatch:
        """Make a batch from the fields of a struct array.

        A null struct becomes a row of nulls; only columns that gain nulls are copied.

        Raises
        ------
        InvalidType
            If it is not an array of structs.
        """
        from shmarrow.layout.arguments import one_array
        from shmarrow.layout.struct import StructArray

        array = one_array(struct_array)
        if not isinstance(array, StructArray):
            raise not_expected("an array of structs", struct_array)
        schema = Schema(array.type.fields)
        return cls(with_nulls(schema) if array.null_count else schema, len(array), array.flatten())

    # --- columns ---

    def column(self, i: Key) -> Array:
        """Return a column by position or name. It is built on first use and never copied.

        Raises
        ------
        FieldNotFound
            If the name is missing or ambiguous.
        IndexOutOfRange
            If the position is out of range.
        InvalidData
            If the column's data are invalid.
        """
        found: Array | None = self._columns.get(i) if i.__class__ is int else None
        if found is None:
            index = self._schema.index_of(i)
            found = self._columns.get(index)
            if found is None:
                assert self._source is not None
                found = self._columns[index] = self._source.column(index)
        return found

    @property
    def columns(self) -> list[Array]:
        """All columns, in a new list."""
        return self._columns_at(None)

    def _columns_at(self, indices: Sequence[int] | None) -> list[Array]:
        """Return the columns at some positions, or all; columns not built yet are built together."""
        built, source = self._columns, self._source
        wanted = range(self._schema._length) if indices is None else indices
        if source is not None:
            missing = [i for i in wanted if i not in built] if built else indices
            if missing is None:
                built.update(enumerate(source.columns()))
            elif missing:
                built.update(zip(missing, source.columns(missing), strict=True))
        return [built[i] for i in wanted]

    def _is_cheap(self, index: int) -> bool:
        """Whether a column is built already, or can be built without a fetch or a large decompression."""
        return index in self._columns or self._source is None or self._source.is_cheap(index)

    def _check_source(self, index: int) -> None:
        """Check what the source of a column knows about it."""
        if self._source is not None:
            self._source.check(index)

    @property
    def nbytes(self) -> int:
        """Bytes occupied by the rows in all columns; see :attr:`Array.nbytes`."""
        return sum([column.nbytes for column in self.columns])

    # --- other batches ---

    def slice(self, offset: int = 0, length: int | None = None) -> RecordBatch:
        """Return up to ``length`` rows starting at ``offset``; builds and copies nothing.

        Beyond the end there are none.

        Raises
        ------
        IndexOutOfRange
            If ``offset`` is negative.
        InvalidArgument
            If ``length`` is negative.
        """
        offset, length = slice_bounds(offset, length, self.num_rows)
        return self._view(self._schema, None, offset, length)

    def _with_schema(self, schema: Schema) -> RecordBatch:
        """Return the same columns under another schema; both batches share the columns built so far."""
        made = RecordBatch(schema, self.num_rows, source=self._source)
        made.metadata, made._columns = self.metadata, self._columns
        return made

    def _view(
        self,
        schema: Schema,
        indices: Sequence[int] | None,
        offset: int,
        length: int,
        new: Mapping[int, Array] | None = None,
    ) -> RecordBatch:
        """Return the columns at ``indices``, sliced to a range of rows; columns in ``new`` have that length already."""
        base, source = self, self._source
        own = {} if new is None else dict(new)
        if source.__class__ is ColumnView:
            if source.own:
                places = range(len(self._schema)) if indices is None else indices
                own |= {to: source.own[at].slice(offset, length) for to, at in enumerate(places) if at in source.own}
            base, offset, within = source.batch, offset + source.offset, source.indices
            if within is not None:
                indices = within if indices is None else [-1 if i < 0 else within[i] for i in indices]
        if indices is not None:
            # With a cache of its own, the view holds no column that it does not have itself.
            built = base._columns
            base = RecordBatch(base._schema, base.num_rows, source=base._source)
            base._columns = {i: built[i] for i in indices if i in built}
        made = RecordBatch(schema, length, source=ColumnView(base, indices, offset, length, own))
        made.metadata = self.metadata
        made._columns.update(own)
        return made

    def _arranged(self, schema: Schema, indices: Sequence[int], new: Mapping[int, Array]) -> RecordBatch:
        return self._view(schema, indices, 0, self.num_rows, new)

    def _gathered(self, positions: Indices, valid: Mask | None) -> RecordBatch:
        from shmarrow.columns.chunked import check_range

        check_range(positions, valid, self.num_rows, "batch")
        columns = [column._take(positions, valid) for column in self.columns]
        schema = self._schema if valid is None or valid.all() else with_nulls(self._schema)
        return RecordBatch(schema, len(positions), columns, metadata=self.metadata)

    _rows = _gathered

    def drop_null(self) -> RecordBatch:
        """Return the rows without nulls, as a copy.

        Raises
        ------
        LimitExceeded
            If the slots of a column occupy no memory and are more than 2**24; those of the null type may be.
        """
        if any(type.layout == "null" for type in self.schema.types):
            return self.slice(0, 0)
        complete: Mask | None = None
        for column in self.columns:
            check_slots(column)
            missing = column._logical_nulls()
            if missing is not None:
                complete = ~missing if complete is None else complete & ~missing
        return self if complete is None else self._rows(np.flatnonzero(complete), None)

    def to_batches(self, max_chunksize: int | None = None) -> list[RecordBatch]:
        """Return the batch in a list, split into pieces of at most ``max_chunksize`` rows if given.

        Builds and copies nothing.

        Raises
        ------
        InvalidArgument
            If ``max_chunksize`` is less than 1.
        InvalidType
            If it is not an int.
        """
        if max_chunksize is not None and not isinstance(max_chunksize, (int, np.integer)):
            raise InvalidType(f"max_chunksize must be an int, found {shown(max_chunksize)}")
        if max_chunksize is not None and max_chunksize < 1:
            raise InvalidArgument(f"max_chunksize must be at least 1, found {shown(max_chunksize)}")
        if max_chunksize is None or self.num_rows <= max_chunksize:
            return [self]
        return [self.slice(start, max_chunksize) for start in range(0, self.num_rows, max_chunksize)]

    def to_struct_array(self) -> StructArray:
        """Return the rows as a struct array, without copying."""
        from shmarrow.layout.struct import StructArray

        return StructArray._made(struct(self.schema.fields), self.num_rows, [None], 0, 0, self.columns)

    __shmarrow_array__ = to_struct_array

    def to_structured_array(self) -> np.ndarray[Any, np.dtype[np.void]]:
        """Return the rows as a structured ndarray of shape (num_rows,) with a field per column.

        A copy, made column by column.

        A field has the dtype of ``column.to_numpy(zero_copy_only=False)``: integers with nulls are float64, strings
        Python objects. Structs are nested records, fixed-size lists subarrays.

        Raises
        ------
        InvalidArgument
            If two columns have the same name, or one has none.
        LimitExceeded
            If there is not enough memory.
        """
        from shmarrow.layout.struct import structured_array

        return structured_array(self.schema.names, self.columns, self.num_rows)

    # --- Python values ---

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return a dict of Python values per row. If column names repeat, the last column wins."""
        names = self.schema.names
        if not names:
            check_expansion(self.num_rows, "rows without columns")
            return [{} for _ in range(self.num_rows)]
        columns = [column.to_pylist() for column in self.columns]
        return list(map(dict, map(zip, repeat(names), zip(*columns, strict=True))))

    # --- other libraries ---

    def to_pyarrow(self) -> pa.RecordBatch:
        """Convert to a ``pyarrow.RecordBatch``, zero-copy. Errors as :meth:`Array.to_pyarrow`."""
        from shmarrow.types.c_schema import to_pyarrow

        return to_pyarrow(self, "RecordBatch")

    def __arrow_c_array__(
        self, requested_schema: PyCapsule | None = None, **unknown: object
    ) -> tuple[PyCapsule, PyCapsule]:
        """Export the batch as PyCapsules ``arrow_schema`` and ``arrow_array`` of struct type, zero-copy.

        Parameters and errors as for :meth:`Array.__arrow_c_array__`; a requested schema must have the same column
        names.
        """
        from shmarrow.layout.c_array import export_batch

        return export_batch(self, requested_schema, **unknown)

    def __arrow_c_stream__(self, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
        """Export the batch as a PyCapsule ``arrow_array_stream`` of one batch; see :meth:`__arrow_c_array__`."""
        from shmarrow.layout.c_stream import export_batches

        return export_batches(self.schema, [self], requested_schema, **unknown)

    # --- comparing, checking, showing ---

    def equals(self, other: Any, check_metadata: bool = False) -> bool:
        """Compare schema and values, and with ``check_metadata`` the metadata of schema and batch.

        Raises
        ------
        InvalidType
            If ``other`` is neither a batch nor an object of another library with rows.
        """
        if check_metadata and isinstance(other, RecordBatch) and (self.metadata or {}) != (other.metadata or {}):
            return False
        return super().equals(other, check_metadata)

    def validate(self, full: bool = False) -> None:
        """Check the structure of every column, and with ``full`` all values; see :meth:`Array.validate`.

        Raises
        ------
        InvalidData
            With the column's name, what was expected and what was found.
        """
        for i in range(self.num_columns):
            field = self.schema.field(i)
            column = self.column(i)
            with at("column", i, field.name):
                column.validate(full=full)
                if column.type != field.type:
                    raise InvalidData(f"expected {field.type}, found {column.type}")
                if len(column) != self.num_rows:
                    raise InvalidData(f"expected {self.num_rows} values, found {len(column)}")
                if full:
                    self._check_source(i)
                nulls = _null_count(column) if full and field.required else 0
                if nulls:
                    raise InvalidData(f"the field is not nullable but has {counted(nulls, 'null')}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_batch, (self.schema, self.num_rows, self.columns, self.metadata)


def _null_count(column: Array) -> int:
    """Return the number of nulls, with those that are in a dictionary or in the values of runs."""
    if not isinstance(storage_of(column.type), EncodedType):
        return column.null_count
    missing = column._logical_nulls()
    return 0 if missing is None else int(np.count_nonzero(missing))


def _rebuild_batch(schema: Schema, num_rows: int, columns: list[Array], metadata: Metadata | None) -> RecordBatch:
    return RecordBatch(schema, num_rows, columns, metadata=metadata)


def batch_of(rows: ImportedRows) -> RecordBatch:
    """Make a batch of the imported parts of one."""
    return RecordBatch(rows.schema, rows.num_rows, rows.columns, source=rows.source)


def read_record_batch(obj: object) -> RecordBatch:
    """Import the rows of an object with a PyCapsule interface as one batch: zero-copy unless it yields several."""
    from shmarrow.columns.chunked import ChunkedArray
    from shmarrow.layout.c_array import Importer, rows_at, rows_from_capsules
    from shmarrow.layout.c_stream import array_capsules, open_stream
    from shmarrow.types.c_schema import SingleColumn, schema_at

    try:
        if hasattr(obj, capsules.ARRAY):
            return batch_of(rows_from_capsules(*array_capsules(obj)))
        if not hasattr(obj, capsules.STREAM):
            raise not_expected("an object with __arrow_c_stream__ or __arrow_c_array__", obj)
        stream = open_stream(obj)
        try:
            schema, importer, batches = schema_at(stream.schema, stream.schema._addr()), Importer(), []
            while (found := stream.next()) is not None:
                batches.append(batch_of(rows_at(found, found._addr(), schema, importer)))
        finally:
            stream.close()
    except SingleColumn:
        raise capsules.single_column(obj) from None
    if len(batches) == 1:
        return batches[0]
    columns = [
        ChunkedArray([batch.column(i) for batch in batches], type).combine_chunks()
        for i, type in enumerate(schema.types)
    ]
    return RecordBatch(schema, sum(batch.num_rows for batch in batches), columns)


def record_batch(
    data: Any,
    names: Sequence[str] | Schema | None = None,
    schema: Schema | None = None,
    metadata: MetadataLike | None = None,
) -> RecordBatch:
    """Make a record batch from a mapping of names to values, from arrays with names or a schema, or from a data frame.

    The arguments and errors are those of :func:`shmarrow.table`.
    """
    from shmarrow.columns.tabular import from_any

    return from_any(RecordBatch, data, names, schema, metadata)
