"""Conversion of the results of user functions: tables and batches of any library, to our batches and to Spark's types.

Invariants:

* columns are matched by name, and a missing or unexpected column is an error: nothing is dropped silently;
* no value changes: a value that does not fit the declared type is an error that names the column;
* results may be generators; at most one of their batches is kept in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from shmarrow import capsules
from shmarrow.batch import RecordBatch
from shmarrow.build import array
from shmarrow.build.frames import check_no_duplicates, read_frame
from shmarrow.column_names import checked_schema
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, ShmarrowError, at, full_name, shown
from shmarrow.layout.array import Array
from shmarrow.layout.making import nulls
from shmarrow.optional import optional
from shmarrow.spark._pyspark import arrow_schema
from shmarrow.tables import RecordBatchReader, Table, rows_of, table
from shmarrow.tabular import from_frame
from shmarrow.types import DataType, Schema
from shmarrow.types.primitive import TimestampType

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 4 << 20
"""Approximate size in bytes of the batches sent to Spark, which is much slower with large ones."""

EXPECTED = "tables or batches of shmarrow, pyarrow, polars or pandas, dicts of columns, iterables of these, or None"

MakeTable = Callable[[Mapping[Any, Any]], Table]


def batches_of(found: Any, from_columns: MakeTable = table) -> Iterator[RecordBatch]:
    """Iterate over the batches of a function's result, lazily.

    Parameters
    ----------
    found : object
        See :data:`EXPECTED`. Data of other libraries are used in place if their types are the same.
    from_columns : callable, optional
        Converts a dict of columns to a table.

    Raises
    ------
    InvalidType
        If it is or contains anything else.
    """
    if found is None:
        return
    if isinstance(found, Mapping):
        found = from_columns(found)
    elif capsules.is_frame(found):
        found = from_columns(_columns_of(found))
    if isinstance(found, (RecordBatch, Table, RecordBatchReader)) or capsules.has_data(found):
        with rows_of(found) as reader:
            yield from reader
    elif isinstance(found, Iterable) and not _has_no_rows(found):
        for each in found:
            yield from batches_of(each, from_columns)
    else:
        raise _unexpected(found)


def pyarrow_batches(found: Any) -> Iterator[pa.RecordBatch]:
    """Iterate over the result as pyarrow batches; pyarrow batches are not converted."""
    pyarrow = optional("pyarrow")
    if isinstance(found, pyarrow.RecordBatch):
        yield found
    elif isinstance(found, Iterator):
        for each in found:
            yield from pyarrow_batches(each)
    else:
        for batch in batches_of(found):
            yield batch.to_pyarrow()


def of_frame(frame: Any) -> Table:
    """Convert a data frame of pandas; as in Spark, an index without a name is dropped."""
    return from_frame(Table, frame, preserve_index=_keeps_index(frame))


def _keeps_index(frame: Any) -> bool | None:
    return None if any(name is not None for name in frame.index.names) else False


def _columns_of(frame: Any) -> dict[str, Any]:
    """The columns of a data frame of pandas by name; objects among them get the declared types."""
    read = read_frame(frame, None, _keeps_index(frame), None)
    check_no_duplicates(read)
    return {part.name: part.values for part in [*read.columns, *read.levels]}


def _has_no_rows(found: Any) -> bool:
    """Whether an iterable cannot be a sequence of tables."""
    return isinstance(found, (str, bytes, bytearray, memoryview)) or full_name(found).partition(".")[0] in _COLUMNS


_COLUMNS = {"numpy", "pandas", "polars", "torch", "shmarrow", "pyarrow"}


_BY_ROWS = "not rows one by one, but columns, such as {'a': [1, 2]}"


def _unexpected(found: Any) -> InvalidType:
    known = {"pandas.Series": "pass series.to_frame()", "int": _BY_ROWS, "float": _BY_ROWS, "str": _BY_ROWS}
    hint = known.get(full_name(found)) or capsules.next_step(found)
    return InvalidType(f"expected from the function: {EXPECTED}; found {full_name(found)}", hint=hint)


# --- for Spark --------------------------------------------------------------------------------------------------


class Fitting:
    """Casts batches to the types declared to Spark; created on the driver and pickled into tasks.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema that Spark expects, from ``to_arrow_schema``.
    names : sequence of str, optional
        Columns are matched by position, not by name, and get these names.

    Thread safety: none; each task has its own.
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str] | None = None) -> None:
        self.schema = schema
        self.names = names
        self.wanted = checked_schema(schema)
        self._last: Schema | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Fitting, (self.schema, self.names)

    def fit(self, found: Any) -> Iterator[pa.RecordBatch]:
        """Convert a function's result to batches for Spark of about :data:`PIECE_BYTES` bytes.

        Columns that already have the expected type are not copied.

        Raises
        ------
        InvalidType
            If a column is missing or unexpected, or has no exact cast to its type.
        InvalidData
            If a value does not fit its type, or is null in a column that is not nullable.
        """
        for batch in batches_of(found, self._from_columns):
            self.check(batch.schema)
            rows = batch.num_rows
            step = max(1, rows * PIECE_BYTES // max(PIECE_BYTES, batch.nbytes))
            for start in range(0, rows, step):
                yield self._fitted(batch.slice(start, step) if step < rows else batch)

    def _from_columns(self, columns: Mapping[Any, Any]) -> Table:
        """Convert a dict of columns; values without a type get the declared one."""
        self._check_names([name if isinstance(name, str) else shown(name) for name in columns])
        untyped = (None, np.dtype(object))
        made = {}
        names: Iterable[Any] = self.wanted.names if self.names is None else columns
        for field, name in zip(self.wanted, names, strict=True):
            values = columns[name]
            is_typed = capsules.has_data(values) or getattr(values, "dtype", None) not in untyped
            with at(f"column {shown(field.name)}"):
                made[field.name] = values if is_typed else array(values, field.type)
        return table(made)

    def _check_names(self, names: list[str]) -> None:
        wanted = self.wanted.names
        if self.names is not None or (set(names) == set(wanted) and len(names) == len(wanted)):
            return
        given = Counter(names)
        problems = {
            "lacks": [name for name in wanted if name not in given],
            "does not expect": [name for name in given if name not in set(wanted)],
            "wants once": [name for name, count in given.items() if count > 1],
        }
        said = "; ".join(f"{verb} {_listed(found)}" for verb, found in problems.items() if found)
        raise InvalidType(
            f"the function returned the columns {_listed(names)}; the schema has {_listed(wanted)}: it {said}"
        )

    def check(self, schema: Schema) -> None:
        """Check that columns can be cast, unless the schema is that of the last batch; raises as :meth:`fit`."""
        if self._last is not None and schema.equals(self._last):
            return
        self._check_names(schema.names)
        for i, target in enumerate(self.wanted):
            field = schema.field(i if self.names is not None else target.name)
            where = f"column {shown(field.name)}"
            _check_zones(field.type, target.type, where)
            try:
                nulls(0, field.type).cast(target.type)
            except ShmarrowError:
                raise InvalidType(
                    f"{where}: {field.type} has no exact cast to {target.type}, which the schema makes it in Spark"
                ) from None
        self._last = schema

    def _fitted(self, batch: RecordBatch) -> pa.RecordBatch:
        if self.names is None:
            batch = batch.select(self.wanted.names)
        columns = []
        for i, field in enumerate(self.wanted):
            column = batch.column(i)
            with at("column", batch.schema.field(i).name):
                columns.append(column if column.type == field.type else _cast(column, field.type))
        fields = [field.with_nullable(True) for field in self.wanted]
        made: pa.RecordBatch = RecordBatch(Schema(fields), batch.num_rows, columns).cast(self.wanted).to_pyarrow()
        return made if self.names is None else made.rename_columns(list(self.names))


def _cast(column: Array, type: DataType) -> Array:
    try:
        return column.cast(type)
    except InvalidData as error:
        error.hint = error.hint and "round the values first, or declare another type"
        raise


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _check_zones(type: DataType, target: DataType, where: str) -> None:
    """Reject timestamps without a time zone for a type with one: Spark would read them as UTC."""
    if _is_timestamp(type) and _is_timestamp(target) and type.tz is None and target.tz is not None:
        raise InvalidType(
            f"{where} has times without a time zone, and becomes instants: localize it, as with "
            "series.dt.tz_localize('Europe/Oslo'), or declare it timestamp_ntz"
        )
    for mine, wanted in zip(type.fields, target.fields, strict=False):
        _check_zones(mine.type, wanted.type, where)


def _is_timestamp(type: DataType) -> TypeGuard[TimestampType]:
    return isinstance(type, TimestampType)


# --- the schema that the caller gives ---------------------------------------------------------------------------


def struct_type(spark: Any, schema: Any) -> Any:
    """Return the ``StructType`` of a schema given by a caller; runs no job.

    Raises
    ------
    InvalidArgument
        If it is a string that Spark cannot parse.
    InvalidType
        If it is neither a string nor a StructType, or has no columns.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    found = schema
    if isinstance(schema, str):
        try:
            found = _parsed(spark, schema)
        except PySparkException as error:
            said = str(error).strip().partition("\n")[0]
            raise InvalidArgument(f"schema {shown(schema)}: Spark cannot parse it: {said}") from None
    if isinstance(found, StructType) and not found.names:
        raise InvalidType("schema: expected at least one column, found none")
    if not isinstance(found, StructType):
        found = full_name(schema) if found is schema else f"{schema!r}, which is the type {found.simpleString()}"
        raise InvalidType(
            f"schema: expected names and types such as 'city string, n long', or a StructType, found {found}"
        )
    return found


def _parsed(spark: Any, schema: str) -> Any:
    """Return the type that a string describes; Spark makes a column named ``value`` of a type alone."""
    struct = spark.createDataFrame([], schema).schema
    alone = struct.names == ["value"] and "value" not in schema.lower()
    return struct[0].dataType if alone else struct


def expected_by_spark(struct: Any) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a function, whose columns are matched by name.

    Raises
    ------
    InvalidType
        If Spark does not accept such columns from Python, or names are duplicated.
    """
    for name, count in Counter(struct.names).items():
        if count > 1:
            raise InvalidType(f"schema: {count} columns are named {name!r}, and columns are matched by name")
    return arrow_schema(struct)
