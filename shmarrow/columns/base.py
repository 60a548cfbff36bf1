# SPDX-License-Identifier: Apache-2.0
"""The base of record batches and tables: named columns of equal length.

Invariants:

* operations are implemented once, in terms of a few primitives that batches and tables override: access to a column,
  rearranging columns, gathering rows;
* rearranging builds no columns: those of a batch that was read are built on first access;
* mappings are matched with schemas by name, and sequences by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np

from shmarrow import capsules
from shmarrow.buffer import DType, Indices, Mask, NDArray
from shmarrow.errors import (
    CopyRequired,
    InvalidArgument,
    InvalidData,
    InvalidType,
    ShmarrowError,
    at,
    counted,
    not_expected,
    shown,
)
from shmarrow.habits import Hinted
from shmarrow.layout.construct import range_of
from shmarrow.types import DataType, Field, MetadataLike, Schema
from shmarrow.types.base import is_field, own_field
from shmarrow.types.schema import position

if TYPE_CHECKING:
    import pandas as pd

    from shmarrow.columns.chunked import ChunkedArray
    from shmarrow.interchange.write import Written
    from shmarrow.layout import Array

Key = int | str
Slice = slice
Column = TypeVar("Column", bound="Array | ChunkedArray")
"""Class of the columns: Array in a batch, ChunkedArray in a table."""


class Columns(Hinted, Generic[Column]):
    """Columns of equal length under a schema; the base of :class:`RecordBatch` and :class:`Table`."""

    __slots__ = ()
    _schema: Schema
    num_rows: int
    # --- what a batch and a table do in their own way ---

    def column(self, i: Key) -> Column:
        """Return a column by position or name."""
        raise NotImplementedError

    @property
    def columns(self) -> list[Column]:
        """All columns, in a new list."""
        raise NotImplementedError

    def slice(self, offset: int = 0, length: int | None = None) -> Self:
        """Return up to ``length`` rows starting at ``offset``; builds and copies nothing.

        Beyond the end there are none.

        Raises
        ------
        IndexOutOfRange
            If ``offset`` is negative.
        InvalidArgument
            If ``length`` is negative.
        """
        raise NotImplementedError

    _column_class: ClassVar[Any]

    @classmethod
    def _as_column(cls, values: Any, type: DataType | None) -> Column:
        """Convert values to a column of the given type, or of their own."""
        raise NotImplementedError

    @classmethod
    def _one_column(cls, values: Any) -> Any:
        """Convert values to one of several columns; a table rejects values that could be meant as chunks."""
        return values

    @classmethod
    def _import(cls, obj: Any) -> Self:
        """Import the rows of another library's object."""
        raise NotImplementedError

    @classmethod
    def _of_rows(cls, data: Any) -> Self | None:
        """Return rows of any library, or a reader's, as an object of this class; None if ``data`` is something else."""
        raise NotImplementedError

    @classmethod
    def _over(cls, schema: Schema, columns: Sequence[Column], num_rows: int) -> Self:
        """Make an object over columns that have been checked."""
        raise NotImplementedError

    def _with_schema(self, schema: Schema) -> Self:
        """Return the same columns under another schema."""
        raise NotImplementedError

    def _arranged(self, schema: Schema, indices: Sequence[int], new: Mapping[int, Column]) -> Self:
        """Return the columns at ``indices`` without building them; ``new`` overrides some of them."""
        raise NotImplementedError

    def _rows(self, positions: Indices, valid: Mask | None) -> Self:
        """Return the rows at increasing positions, null where not valid."""
        raise NotImplementedError

    def _gathered(self, positions: Indices, valid: Mask | None) -> Self:
        """Return the rows at positions in any order, null where not valid."""
        raise NotImplementedError

    # --- making them ---

    @classmethod
    def from_arrays(
        cls,
        arrays: Iterable[Any],
        names: Sequence[str] | None = None,
        schema: Schema | None = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Make an object from columns and their names or schema; arrays are not copied.

        Parameters
        ----------
        arrays : iterable
            Arrays, chunked arrays, or anything that :func:`shmarrow.array` accepts. The fields of a structured ndarray
            are columns of their names.
        names : sequence of str, optional
            A name for each; their types are those of the arrays.
        schema : Schema, optional
            A field for each, in place of names; an array of another type is cast.
        metadata : mapping, optional
            Metadata of the schema, with names only.

        Raises
        ------
        InvalidArgument
            If neither or both of names and schema are given, if their number is another than that of the arrays, or
            if the arrays have several lengths.
        InvalidData
            If a value does not fit its type in the schema.
        InvalidType
            If an array cannot be cast to that type at all, or ``arrays`` is an ndarray that is not structured.
        """
        from shmarrow.columns.names import checked_schema, common_length, given_fields, several

        if isinstance(arrays, np.ndarray) and arrays.dtype.names:
            names = arrays.dtype.names if names is None and schema is None else names
            arrays = [arrays[name] for name in arrays.dtype.names]
        elif isinstance(arrays, np.ndarray):
            raise InvalidType("the rows of an ndarray are not columns: pass list(array.T), or [array] for one column")
        schema = None if schema is None else checked_schema(schema)
        columns = several(arrays, "arrays")
        given = given_fields(columns, names, schema, metadata)
        made: list[Column] = []
        try:
            for values, item in zip(columns, given, strict=True):
                is_made = isinstance(values, cls._column_class) and item.__class__ is str
                made.append(values if is_made else cls._fitting(values, item))
        except ShmarrowError as error:
            name = given[len(made)]
            error.where = ("column", name.name if isinstance(name, Field) else name), *error.where
            raise
        if schema is None:
            fields = [Field(name, column.type) for name, column in zip(names or (), made, strict=True)]
            schema = Schema(fields, metadata)
        return cls._over(schema, made, common_length(made, schema))

    @classmethod
    def from_struct_array(cls, struct_array: Any) -> Self:
        """Make an object from the fields of a struct array, null where the struct is null."""
        raise NotImplementedError

    @classmethod
    def _fitting(cls, values: Any, field: Field | str) -> Column:
        """Convert values to the column of a field or name."""
        if not isinstance(field, Field):
            return cls._as_column(values, None)
        column = cls._as_column(values, field.type)
        if field.required and column.null_count:
            raise InvalidData(
                f"expected no null, as the field is not nullable, found {counted(column.null_count, 'null')}"
            )
        return column

    @classmethod
    def from_pydict(
        cls, mapping: Mapping[str, Any], schema: Schema | None = None, metadata: MetadataLike | None = None
    ) -> Self:
        """Make an object from a mapping of names to arrays or values; a schema is matched by name.

        Raises
        ------
        FieldNotFound
            If the schema has a name that the mapping does not have.
        InvalidArgument
            If the mapping has a name that the schema does not have. The other errors are those of
            :meth:`from_arrays`.
        """
        from shmarrow.columns.names import by_name, checked_schema

        if not isinstance(mapping, Mapping):
            raise InvalidType(f"expected a mapping of names to columns, found {mapping.__class__.__name__}")
        schema = None if schema is None else checked_schema(schema)
        names, columns = by_name(mapping, schema)
        return cls.from_arrays(columns, names if schema is None else None, schema, metadata)

    @classmethod
    def from_pylist(
        cls, mapping: Sequence[Mapping[str, Any]], schema: Schema | None = None, metadata: MetadataLike | None = None
    ) -> Self:
        """Make an object from rows given as dicts; a missing key becomes null.

        Without a schema the first row names the columns.

        Raises
        ------
        InvalidArgument
            If a row has a key that the schema, or the first row, does not have. The other errors are those of
            :meth:`from_arrays`.
        InvalidType
            If a row is not a mapping.
        """
        from shmarrow.columns.names import checked_schema, several
        from shmarrow.layout.values import columns_of_dicts

        schema = None if schema is None else checked_schema(schema)
        rows = several(mapping, "rows")
        whole = columns_of_dicts(rows) if schema is None else None
        if whole is not None:
            return cls.from_arrays(list(whole.values()), list(whole), None, metadata)
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise InvalidType(f"row {i}: expected a mapping of names to values, found {row.__class__.__name__}")
        names = list(rows[0]) if schema is None and rows else [] if schema is None else schema.names
        known = set(names)
        for i, row in enumerate(rows):
            if not known.issuperset(row):
                extra = next(name for name in row if name not in known)
                whence = " (from the first row); pass a schema that names them all" if schema is None else ""
                raise InvalidArgument(f"row {i} has the key {shown(extra)}, but the columns are {names[:20]}{whence}")
        columns = [[row.get(name) for row in rows] for name in names]
        if not names:
            return cls._over(schema or Schema((), metadata), [], len(rows))
        return cls.from_arrays(columns, names if schema is None else None, schema, metadata)

    # --- what they are ---

    @property
    def schema(self) -> Schema:
        """Names, types and metadata of the columns."""
        return self._schema

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self._schema)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.num_rows, self.num_columns

    @property
    def column_names(self) -> list[str]:
        """The column names in order, in a new list."""
        return self.schema.names

    def itercolumns(self) -> Iterator[Column]:
        """Iterate over the columns."""
        for i in range(self.num_columns):
            yield self.column(i)

    def get_total_buffer_size(self) -> int:
        """Return the bytes of all buffers of all columns, counting shared buffers once.

        See :meth:`Array.get_total_buffer_size`.
        """
        from shmarrow.layout.listing import buffer_bytes

        columns = [getattr(column, "chunks", [column]) for column in self.itercolumns()]
        return buffer_bytes(*[chunk for chunks in columns for chunk in chunks])

    def field(self, i: Key) -> Field:
        """Return the field of a column, by position or name. Errors as :meth:`Schema.field`."""
        return self.schema.field(i)

    def __len__(self) -> int:
        return self.num_rows

    @overload
    def __getitem__(self, key: Slice) -> Self: ...

    @overload
    def __getitem__(self, key: Key) -> Column: ...

    def __getitem__(self, key: Key | Slice) -> Self | Column:
        """Return a column by position or name, or rows by slice."""
        if isinstance(key, slice):
            start, stop, step = range_of(key, self.num_rows)
            if step != 1:
                return self.take(np.arange(start, stop, step))
            return self.slice(start, max(stop - start, 0))
        return self.column(key)

    # --- other columns ---

    def select(self, columns: Iterable[Key]) -> Self:
        """Select columns by position or name, in that order; builds and copies nothing."""
        from shmarrow.columns.names import several

        return self._selected([self._schema.index_of(key) for key in several(columns, "positions and names")])

    def _selected(self, indices: Sequence[int]) -> Self:
        from shmarrow.columns.names import fields_at

        return self._arranged(fields_at(self._schema, indices), indices, {})

    def drop_columns(self, columns: Iterable[Key] | Key) -> Self:
        """Drop columns by position or name; builds and copies nothing.

        Raises
        ------
        FieldNotFound
            If a name is missing or ambiguous.
        """
        from shmarrow.columns.names import several

        keys = (columns,) if isinstance(columns, (str, int)) else several(columns, "positions and names")
        dropped = {self._schema.index_of(key) for key in keys}
        return self._selected([i for i in range(self.num_columns) if i not in dropped])

    drop = drop_columns
    """Alias of :meth:`drop_columns`, as in pyarrow."""

    def remove_column(self, i: int) -> Self:
        """Drop the column at position ``i``, which must not be negative; builds and copies nothing."""
        i = position(i, self.num_columns)
        return self._selected([other for other in range(self.num_columns) if other != i])

    def add_column(self, i: int, field_: Field | str, column: Any) -> Self:
        """Insert a column before position ``i``, which may be the end; the other columns are not built.

        Parameters
        ----------
        i : int
            A position, not negative.
        field_ : Field or str
            The field, or a name; then the type is that of the column.
        column : Array, ChunkedArray, or values
            As many values as there are rows; an array of another type than that of the field is cast.

        Raises
        ------
        IndexOutOfRange
            If the position is negative or beyond the end.
        InvalidArgument
            If the column has another length.
        InvalidData
            If a value does not fit the type of the field.
        InvalidType
            If the column of a table is a list of lists, which could be lists or chunks.
        """
        i = position(i, self.num_columns + 1)
        field, made = self._new(field_, column)
        indices = [*range(i), -1, *range(i, self.num_columns)]
        return self._arranged(self._schema.insert(i, field), indices, {i: made})

    def append_column(self, field_: Field | str, column: Any) -> Self:
        """Append a column; see :meth:`add_column`."""
        return self.add_column(self.num_columns, field_, column)

    def set_column(self, i: int, field_: Field | str, column: Any) -> Self:
        """Replace the column at position ``i``. Arguments and errors as :meth:`add_column`."""
        i = position(i, self.num_columns)
        field, made = self._new(field_, column)
        indices = [*range(i), -1, *range(i + 1, self.num_columns)]
        return self._arranged(self._schema.set(i, field), indices, {i: made})

    def _new(self, field: Field | str, values: Any) -> tuple[Field, Column]:
        if not isinstance(field, str):
            if not is_field(field):
                raise not_expected("a name or a shmarrow.Field", field)
            field = own_field(field)
        with at("column", field.name if isinstance(field, Field) else field):
            column = self._fitting(self._one_column(values), field)
        made = field if isinstance(field, Field) else Field(field, column.type)
        if len(column) != self.num_rows:
            found = counted(len(column), "value")
            raise InvalidArgument(f"column {made.name!r} has {found}, expected {self.num_rows}")
        return made, column

    def rename_columns(self, names: Sequence[str] | Mapping[str, str]) -> Self:
        """Rename the columns; builds and copies nothing.

        Parameters
        ----------
        names : sequence of str, or mapping of str to str
            A name for each column, or new names by old ones for some.

        Raises
        ------
        InvalidArgument
            If there are more or fewer names than columns.
        FieldNotFound
            If a mapping has a name that is missing or ambiguous.
        InvalidType
            If a name is not a string.
        """
        from shmarrow.columns.names import renamed

        if isinstance(names, Mapping):
            for old in names:
                if not isinstance(old, str):
                    raise InvalidType(f"columns are renamed by their names, which must be strings, found {shown(old)}")
            new = {self._schema.index_of(old): name for old, name in names.items()}
            names = [new.get(i, name) for i, name in enumerate(self._schema.names)]
        return self._with_schema(renamed(self._schema, names))

    def replace_schema_metadata(self, metadata: MetadataLike | None = None) -> Self:
        """Replace the schema's metadata; builds and copies nothing."""
        return self._with_schema(self._schema.with_metadata(metadata))

    def cast(self, target_schema: Schema, safe: bool = True) -> Self:
        """Cast the columns to the types of another schema; the result has its metadata and nullability.

        Columns that have their type already are not built.

        Parameters
        ----------
        target_schema : Schema
            Fields of the same names in the same order.
        safe : bool
            See :meth:`Array.cast`.

        Raises
        ------
        InvalidArgument
            If the names differ.
        InvalidData
            If a value does not fit, or a column with nulls would not be nullable.
        InvalidType
            If there is no conversion between two types.
        """
        from shmarrow.columns.names import checked_schema

        target = checked_schema(target_schema)
        if self._schema.names != target.names:
            raise InvalidArgument(
                f"the names of the schema are {target.names[:20]}, expected those of the columns: "
                f"{self._schema.names[:20]}; select() puts columns in another order"
            )
        new: dict[int, Any] = {}
        for i, (mine, wanted) in enumerate(zip(self._schema, target, strict=True)):
            if mine.type != wanted.type:
                with at("column", mine.name):
                    new[i] = self.column(i).cast(wanted.type, safe)
            if mine.nullable and not wanted.nullable and (new[i] if i in new else self.column(i)).null_count:
                raise InvalidData(f"column {mine.name!r} holds nulls, which the schema does not allow there")
        return self._arranged(target, [-1 if i in new else i for i in range(self.num_columns)], new)

    def flatten(self) -> Self:
        """Replace each struct column by its fields, named ``struct.field``; a field is null where its struct is null.

        Columns of other types are not built.
        """
        fields: list[Field] = []
        indices: list[int] = []
        new: dict[int, Column] = {}
        for i, field in enumerate(self._schema):
            inner = field.flatten()
            if inner != [field]:
                structs: Any = self.column(i)
                new.update(enumerate(structs.flatten(), len(fields)))
            fields += inner
            indices += [i] if inner == [field] else [-1] * len(inner)
        return self._arranged(Schema(fields, self._schema.metadata), indices, new)

    # --- other rows ---

    def head(self, n: int = 5) -> Self:
        """Return the first ``n`` rows, or all if there are fewer; builds and copies nothing."""
        return self.slice(0, n)

    def take(self, indices: Any) -> Self:
        """Return the rows at ``indices``, in that order; a copy. A null index gives a row of nulls.

        Raises
        ------
        InvalidType
            If the indices are not integers.
        InvalidArgument
            If they have another shape than (n,).
        IndexOutOfRange
            If an index is negative or beyond the end.
        """
        from shmarrow.layout.arguments import checked_positions

        return self._gathered(*checked_positions(indices))

    def filter(self, mask: Any, null_selection_behavior: str = "drop") -> Self:
        """Return the rows where ``mask`` is True; a copy.

        Parameters
        ----------
        mask : bool ndarray, BooleanArray, ChunkedArray, or sequence of bool
            A truth value for each row; it may have nulls.
        null_selection_behavior : str
            With ``"drop"`` null counts as False, with ``"emit_null"`` it gives a row of nulls.

        Raises
        ------
        InvalidType
            If the mask holds anything but truth values and nulls.
        InvalidArgument
            If it has another length.
        """
        from shmarrow.layout.selection import selection

        positions, valid = selection(mask, self.num_rows, null_selection_behavior)
        return self if valid is None and len(positions) == self.num_rows else self._rows(positions, valid)

    # --- values ---

    def to_pydict(self) -> dict[str, list[Any]]:
        """Return a list of Python values per column, by name. If names repeat, the last column wins."""
        return {name: column.to_pylist() for name, column in zip(self.schema.names, self.columns, strict=True)}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return the values as an ndarray of shape (rows, columns); a copy.

        Numbers are converted exactly to a common dtype; columns without one become Python values.

        Raises
        ------
        InvalidData
            If there are 64-bit integers beside floats, and one of them has no exact float; if a value does not fit
            ``dtype``.
        """
        from shmarrow.casts.ndarray import as_dtype

        if copy is False:
            raise CopyRequired("columns are separate in memory, so one ndarray of all of them requires a copy")
        result = as_matrix(self.schema.names, self.columns, self.num_rows)
        return as_dtype(result, dtype, None)

    # --- other tools ---

    def for_consumer(self, name: str = "", *, lossy: str | Iterable[str] = ()) -> Self:
        """Cast the columns to types that another tool accepts.

        Columns that it accepts are neither built nor copied; if it accepts all of them, the same object is returned.

        Parameters
        ----------
        name : str
            The tool: ``"spark"``, ``"polars"``, ``"duckdb"``, ``"pandas"`` or ``"parquet"``.
        lossy : str or iterable of str
            Kinds of types whose values may lose something, such as ``"timestamp"`` or ``"decimal256"``, or ``"all"``.
            By default no value changes.

        Returns
        -------
        RecordBatch or Table
            Its schema is ``schema.for_consumer(name, lossy=lossy)``; it does not depend on the values.

        Raises
        ------
        Unsupported
            If the tool has no type for a column; names the ``lossy`` kind that would allow a cast, if any.
        InvalidData
            If a value does not fit the new type; likewise.
        InvalidArgument
            If ``name`` is unknown, or ``lossy`` names a kind that never loses anything.

        Examples
        --------
        >>> import shmarrow as sa
        >>> batch = sa.record_batch({"n": sa.array([1, 2], "uint64"), "s": sa.array(["a", "b"], "string_view")})
        >>> batch.for_consumer("spark").schema.types
        [DataType(decimal128(20, 0)), DataType(string)]
        """
        from shmarrow.layout.consumers import rows_for

        return rows_for(self, name, lossy)

    def write(self, where: Any, **options: Any) -> Written:
        """Write the rows as :func:`shmarrow.write` does, whose options and errors these are."""
        from shmarrow.interchange.write import write

        return write(self, where, **options)

    def to_pandas(
        self,
        *,
        arrow_backed: bool = False,
        ignore_metadata: bool = False,
        writable: bool = False,
        **options: Any,
    ) -> pd.DataFrame:
        """Convert to a ``pandas.DataFrame``, through pyarrow.

        Columns of integers, floats, timestamps and durations without nulls, in one batch, are zero-copy and read-only
        unless ``writable`` is True. Everything else is copied: booleans take one byte each, strings become pandas' own
        strings, several batches are concatenated, and integers with nulls become float64 with NaN. If a float cannot
        hold all of them, as beyond 2**53, they become ``Int64`` or ``UInt64``, and within lists and structs Python
        integers and None.

        Parameters
        ----------
        arrow_backed : bool
            Return columns of dtype ``pandas.ArrowDtype``, which keep types and nulls, zero-copy.
        ignore_metadata : bool
            Ignore index, labels and dtypes in the schema's metadata, as written by :meth:`from_pandas`; every column
            remains a column.
        writable : bool
            Return a private, writable frame. Columns of numbers of a mapped object are copy-on-write, so only modified
            pages take memory. Columns with a time zone, categories and other pandas dtypes are copied.
        **options
            Options of ``pyarrow.Table.to_pandas``, such as ``zero_copy_only`` or ``strings_to_categorical``;
            ``split_blocks`` defaults to True, as blocks of several columns are copies. There is no
            ``coerce_temporal_nanoseconds``, which wraps times that do not fit: cast columns first.

        Returns
        -------
        pandas.DataFrame
            Dictionaries become categories; views, runs and other types that pandas lacks are cast first, as by
            ``for_consumer("pandas")``.

        Raises
        ------
        Unsupported
            If pandas has no dtype for a type: unions, and intervals of months or of days.
        InvalidData
            If a column violates the format such that other code would read outside its buffers, or the schema's
            metadata do not match the columns.
        CopyRequired
            If ``zero_copy_only=True`` and a column needs a copy.
        InvalidArgument
            If an option is unknown or wrong.
        MissingExtra
            If pandas or pyarrow is not installed.

        Examples
        --------
        >>> import shmarrow as sa
        >>> sa.table({"n": [1, 2], "s": ["a", None]}).to_pandas(arrow_backed=True).dtypes.tolist()
        [int64[pyarrow], string[pyarrow]]
        """
        from shmarrow.interchange.pandas import frame

        return frame(self, arrow_backed, ignore_metadata, writable, options)

    @classmethod
    def from_pandas(
        cls,
        df: pd.DataFrame,
        schema: Schema | None = None,
        preserve_index: bool | None = None,
        columns: Sequence[Any] | None = None,
        *,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Convert a ``pandas.DataFrame`` with its index; :meth:`to_pandas` restores it.

        :func:`shmarrow.table` and :func:`shmarrow.record_batch` do the same. Needs pyarrow only for columns that pandas
        stores in pyarrow's memory: strings and Arrow-backed columns.

        Parameters
        ----------
        df : pandas.DataFrame
            The frame. Numbers, timestamps and category codes are not copied; see :func:`shmarrow.array`.
        schema : Schema, optional
            Fields, matched with columns by name; columns of other types are cast.
        preserve_index : bool, optional
            True stores every index as a column, False drops it. By default a ``RangeIndex`` is stored in the metadata
            only, and all others as columns.
        columns : sequence of labels, optional
            Columns to convert; by default all.
        metadata : mapping, optional
            Additional metadata of the schema.

        Returns
        -------
        RecordBatch or Table
            Labels become strings. The metadata contain the key ``b"pandas"`` in pyarrow's format.

        Raises
        ------
        InvalidType
            If ``df`` is not a DataFrame, or Arrow has no type for a column.
        InvalidData
            If a value does not fit its type in the schema.
        InvalidArgument
            If the names of columns and schema differ.
        FieldNotFound
            If the frame lacks a column of ``columns`` or of the schema.
        """
        from shmarrow.columns.tabular import from_pandas

        return from_pandas(cls, df, schema, preserve_index, columns, metadata)

    # --- comparing ---

    def equals(self, other: Any, check_metadata: bool = False) -> bool:
        """Compare schema and values, regardless of batch boundaries, and with ``check_metadata`` the metadata.

        Raises
        ------
        InvalidType
            If ``other`` is neither of the same class nor an object of another library with rows.
        """
        if self is other and not len(self._schema):
            return True
        other = capsules.comparable(other, self.__class__, self._import)
        return (
            self.num_rows == other.num_rows
            and self._schema.equals(other._schema, check_metadata)
            and all(mine.equals(theirs) for mine, theirs in zip(self.columns, other.columns, strict=True))
        )

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if type(other) is type(self) else NotImplemented

    def __repr__(self) -> str:
        from shmarrow import display

        return display.columns_text(self)

    __str__ = __repr__


def as_matrix(names: Sequence[str], columns: Sequence[Array | ChunkedArray], num_rows: int) -> NDArray:
    """Convert columns to an ndarray of shape (rows, columns); see :meth:`Columns.__array__`."""
    parts = [column.to_numpy(zero_copy_only=False) for column in columns]
    dtypes = {part.dtype for part in parts}
    if all(part.ndim == 1 and part.dtype.kind in "biuf" for part in parts):
        dtype = np.result_type(*dtypes) if dtypes else np.dtype(np.float64)
        result = np.empty((num_rows, len(parts)), dtype)
        for i, part in enumerate(parts):
            if part.dtype.kind in "iu" and dtype.kind == "f":
                _check_exact(names[i], part, dtype)
            result[:, i] = part
        return result
    if len(dtypes) == 1 and all(part.ndim == 1 and part.dtype.kind in "mM" for part in parts):
        return np.stack(parts, axis=1)
    result = np.empty((num_rows, len(parts)), object)
    for i, column in enumerate(columns):
        result[:, i] = np.fromiter(column.to_pylist(), object, num_rows)
    return result


def _check_exact(name: str, values: NDArray, dtype: DType) -> None:
    most = 1 << (np.finfo(dtype).nmant + 1)
    if most > np.iinfo(values.dtype).max:
        return
    for value in values[(values > most) | (values < -most)].tolist():
        if int(float(value)) != value:
            raise InvalidData(
                f"column {name!r} holds {value}, which has no exact {dtype}; cast or select() columns first"
            )


def is_reader(obj: Any) -> bool:
    """Whether an object is one of our readers of batches."""
    return hasattr(obj, "read_all") and isinstance(getattr(obj, "schema", None), Schema)
