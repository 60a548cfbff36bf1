# SPDX-License-Identifier: Apache-2.0
"""Conversion of the results of user functions: tables and batches of any library, to our batches and to Spark's types.

Invariants:

* columns are matched by name, and a missing or unexpected column is an error: nothing is dropped silently;
* no value changes: a value that does not fit the declared type is an error that names the column;
* results may be generators; at most one of their batches is kept in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from shmarrow import capsules
from shmarrow.build import array
from shmarrow.build.frames import check_no_duplicates, read_frame
from shmarrow.columns import RecordBatch, RecordBatchReader, Table, checked_schema, from_frame, rows_of
from shmarrow.columns.table import table
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, ShmarrowError, at, full_name, optional, shown
from shmarrow.layout import Array, nulls
from shmarrow.spark._pyspark import arrow_schema
from shmarrow.types import DataType, Schema, TimestampType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PIECE_BYTES = 4 << 20
"""Approximate size in bytes of the batches sent to Spark, which is much slower with large ones."""

EXPECTED = "a dict of columns, a pandas DataFrame, tables or batches with an Arrow stream, or an iterator of these"

ROUND = "round the values first, or declare another type"

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
    for each in _several(found):
        if isinstance(each, Mapping):
            each = from_columns(each)
        elif capsules.is_frame(each):
            each = from_columns(_columns_of(each))
        elif not isinstance(each, (RecordBatch, Table, RecordBatchReader)) and not capsules.has_data(each):
            raise InvalidType(
                f"expected from the function: {EXPECTED}; found {full_name(each)}", hint=capsules.next_step(each)
            )
        with rows_of(each) as reader:
            yield from reader


def pyarrow_batches(found: Any) -> Iterator[pa.RecordBatch]:
    """Iterate over the result as pyarrow batches; pyarrow batches are not converted."""
    pyarrow = optional("pyarrow")
    for each in _several(found):
        if isinstance(each, pyarrow.RecordBatch):
            yield each
        elif isinstance(each, pyarrow.Table):
            yield from each.to_batches()
        else:
            yield from (batch.to_pyarrow() for batch in batches_of(each))


def _several(found: Any) -> Iterator[Any]:
    """Iterate over the tables of a result, without the Nones among several."""
    if found is None:
        raise InvalidType(
            f"expected from the function: {EXPECTED}; found None",
            hint="it may lack a `return`; `return []` is a result without rows",
        )
    parts = found if isinstance(found, (list, tuple)) or _is_plain_iterator(found) else [found]
    return (each for each in parts if each is not None)


def _is_plain_iterator(found: Any) -> bool:
    return isinstance(found, Iterator) and not capsules.has_data(found)


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


# --- for Spark --------------------------------------------------------------------------------------------------


class SparkCaster:
    """Casts batches to the types declared to Spark; created on the driver and pickled into tasks.

    Parameters
    ----------
    struct : StructType
        The columns, whose names differ.

    Attributes
    ----------
    schema : pyarrow.Schema
        What Spark expects for them.
    target : Schema
        The same schema as ours.

    Raises
    ------
    InvalidType
        If Spark does not accept such columns from Python.

    Thread safety: none; each task has its own.
    """

    def __init__(self, struct: StructType) -> None:
        self._struct = struct
        self.schema = arrow_schema(struct)
        self.target = checked_schema(self.schema)
        self._times = {each.name: each.dataType for each in struct if "time(" in each.dataType.simpleString()}
        self._last: Schema | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return SparkCaster, (self._struct,)

    def cast(self, result: Any) -> Iterator[pa.RecordBatch]:
        """Convert a function's result to batches for Spark of about :data:`PIECE_BYTES` bytes.

        Columns that already have the expected type are not copied.

        Raises
        ------
        InvalidType
            If a column is missing or unexpected, or has no exact cast to its type.
        InvalidData
            If a value does not fit its type, or is null in a column that is not nullable.
        """
        for batch in batches_of(result, self._from_columns):
            self.check(batch.schema)
            rows = batch.num_rows
            step = max(1, rows * PIECE_BYTES // max(PIECE_BYTES, batch.nbytes))
            for start in range(0, rows, step):
                yield self._cast(batch.slice(start, step) if step < rows else batch)

    def cast_batch(self, batch: RecordBatch) -> pa.RecordBatch:
        """Convert one batch, of any size; raises as :meth:`cast`."""
        self.check(batch.schema)
        return self._cast(batch)

    def _from_columns(self, columns: Mapping[Any, Any]) -> Table:
        """Convert a dict of columns; values without a type get the declared one."""
        self._check_names([name if isinstance(name, str) else shown(name) for name in columns])
        untyped = (None, np.dtype(object))
        made = {}
        for field in self.target:
            values = columns[field.name]
            is_typed = capsules.has_data(values) or getattr(values, "dtype", None) not in untyped
            with at(f"column {shown(field.name)}"):
                made[field.name] = values if is_typed else array(values, field.type)
        return table(made)

    def _check_names(self, names: list[str]) -> None:
        wanted = self.target.names
        if set(names) == set(wanted) and len(names) == len(wanted):
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
        """Check that columns can be cast, unless the schema is that of the last batch; raises as :meth:`cast`."""
        if self._last is not None and schema.equals(self._last):
            return
        self._check_names(schema.names)
        for target in self.target:
            field = schema.field(target.name)
            where = f"column {shown(field.name)}"
            _check_zones(field.type, target.type, where)
            try:
                nulls(0, field.type).cast(target.type)
            except ShmarrowError:
                raise InvalidType(
                    f"{where}: {field.type} has no exact cast to {target.type}, which the schema makes it in Spark"
                ) from None
        self._last = schema

    def _cast(self, batch: RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self.target:
            column = batch.column(field.name)
            with at("column", field.name):
                column = column if column.type == field.type else _cast(column, field.type)
                if field.name in self._times:
                    _check_times(column, self._times[field.name])
                columns.append(column)
        fields = [field.with_nullable(True) for field in self.target]
        return RecordBatch(Schema(fields), batch.num_rows, columns).cast(self.target).to_pyarrow()


def _cast(column: Array, type: DataType) -> Array:
    try:
        return column.cast(type)
    except InvalidData as error:
        error.hint = error.hint and ROUND
        raise


def _check_times(array: Any, type: Any) -> None:
    """Refuse fractions of a second that a Spark type does not have: Arrow's type is the same for all of them."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type, StructType):
        for child, field in zip(array.flatten(), type.fields, strict=True):
            with at("field", field.name):
                _check_times(child, field.dataType)
    elif isinstance(type, ArrayType):
        _check_times(array.flatten(), type.elementType)
    elif isinstance(type, MapType):
        for child, part in zip(array.flatten().flatten(), (type.keyType, type.valueType), strict=True):
            _check_times(child, part)
    elif type.typeName() == "time":
        odd = array.values % 10 ** (9 - type.precision) != 0
        mask = array._mask()
        rows = np.flatnonzero(odd if mask is None else odd & mask)
        if len(rows):
            value = array.values[rows[0]]
            raise InvalidData(f"value {value} ns at row {rows[0]} does not fit {type.simpleString()}", hint=ROUND)


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


def struct_type(spark: SparkSession, schema: Any) -> Any:
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
            found = _parsed(spark, schema, spark.conf.get("spark.sql.timestampType", None))
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


@lru_cache(maxsize=64)
def _parsed(spark: SparkSession, schema: str, timestamps: str | None) -> Any:
    """Return the type that a string describes; Spark makes a column named ``value`` of a type alone.

    ``timestamps`` is the setting on which it depends. Cached, because Spark takes a tenth of a second.
    """
    struct = spark.createDataFrame([], schema).schema
    alone = struct.names == ["value"] and "value" not in schema.lower()
    return struct[0].dataType if alone else struct


def check_unique(struct: StructType) -> None:
    """Check that columns can be matched by name.

    Raises
    ------
    InvalidType
        If two have the same name.
    """
    for name, count in Counter(struct.names).items():
        if count > 1:
            raise InvalidType(f"schema: {count} columns are named {name!r}, and columns are matched by name")
