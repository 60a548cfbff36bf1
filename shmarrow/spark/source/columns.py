"""The columns of a file as those that Spark expects: which ones, in which order, and how each becomes what it is to be.

Invariants:

* what becomes of a type depends on the type alone, so errors about types are raised when the query is planned;
* columns that are what Spark expects as they lie in memory are not touched: pyarrow imports them under Spark's schema;
* only the columns that are asked for are read.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from shmarrow import types
from shmarrow.batch import RecordBatch
from shmarrow.errors import FieldNotFound, InvalidType, LimitExceeded, ShmarrowError, Unsupported, at, shown
from shmarrow.interchange.for_consumer import Casting, Stages
from shmarrow.interchange.pyarrow import record_batch_as
from shmarrow.layout.making import nulls
from shmarrow.spark import types as spark
from shmarrow.spark.source.read_options import ReadOptions
from shmarrow.types import DataType, Field, Schema

_INSTEAD = '; .option("unsupported", "drop") leaves the column out, and "string" reads it as JSON text'
_FIRST_ROWS = 1 << 13
"""The rows of the first batch that Spark is sent, from which follows how many bytes a row has."""
_FIRST_MADE = 8
"""As many where columns are made anew: values of a dictionary, which many rows refer to, may be large."""


# --- what a file has for Spark ----------------------------------------------------------------------------------


def spark_fields(schema: Schema, options: ReadOptions, casting: Casting) -> list[dict[str, Any]]:
    """The fields of a file as Spark's, in the JSON form of ``StructField``: all, or those of ``options.columns``.

    Raises
    ------
    Unsupported
        If Spark has no type for a column that is to be read, or cannot read two of one name.
    """
    chosen = list(schema) if options.columns is None else _chosen(schema, options.columns)
    found = []
    for field in chosen:
        try:
            found.append(spark.spark_field(field, casting))
        except Unsupported as error:
            if options.unsupported == "error":
                raise Unsupported(f"{error}{_INSTEAD}") from None
            if options.unsupported == "string":
                found.append({"name": field.name, "type": "string", "nullable": field.nullable, "metadata": {}})
    _check_names([each["name"] for each in found], "columns")
    for each in found:
        _check_names_in(each["type"], f"fields of column {shown(each['name'])}")
    return found


def _chosen(schema: Schema, names: Sequence[str]) -> list[Field]:
    """The fields of these names, in this order, as far as the schema has them."""
    return [field for name in dict.fromkeys(names) for field in schema if field.name == name]


def _check_names(names: Sequence[str], what: str) -> None:
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise Unsupported(
            f"{count} {what} are named {shown(name)}, and Spark cannot read that from a Python data source; "
            '.option("columns", ...) chooses others'
        )


def _check_names_in(type: spark.SparkType, what: str) -> None:
    if isinstance(type, str):
        return
    fields = type.get("fields", ())
    _check_names([field["name"] for field in fields], what)
    inner = [type[key] for key in ("elementType", "keyType", "valueType") if key in type]
    for each in [*inner, *(field["type"] for field in fields)]:
        _check_names_in(each, what)


def no_column(name: str, names: Sequence[str], where: str) -> FieldNotFound:
    """The error for a column that is not there."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, 1, 0.6) or [each for each in names if each.lower() == name.lower()]
    hint = f"; did you mean {close[0]!r}?" if close else ""
    some = ", ".join(repr(each) for each in names[:20]) + (", ..." if len(names) > 20 else "")
    return FieldNotFound(f"{where} has no column {shown(name)}, its columns are {some or 'none'}{hint}")


# --- from the columns of a file to those that Spark expects ------------------------------------------------------


class Column(NamedTuple):
    """How one of Spark's columns comes from a file.

    Attributes
    ----------
    field : Field
        What Spark expects.
    at : int
        The column of the file; -1 where the file has none, and there are nulls instead.
    stages : Stages or None
        What ``for_consumer`` makes of its type; None where nothing is to be done, or the values become text.
    text : bool
        Whether the values become JSON text.
    cast : bool
        Whether it then has to be cast to the type that Spark expects.
    """

    field: Field
    at: int
    stages: Stages | None = None
    text: bool = False
    cast: bool = False


def columns_for(schema: Schema, wanted: Schema, options: ReadOptions, casting: Casting) -> list[Column]:
    """How the columns that Spark expects come from a file of a schema.

    Parameters
    ----------
    schema : Schema
        That of the file.
    wanted : Schema
        What Spark expects.
    options : ReadOptions
        Whether files may lack columns, and what becomes of unsupported ones.
    casting : Casting
        The rules for Spark.

    Raises
    ------
    FieldNotFound
        If the file has no column of a name, or several.
    InvalidType
        If a column has values of another type, or may hold nulls that Spark was told not to expect.
    """
    return [_column(schema, field, options, casting) for field in wanted]


def _column(schema: Schema, wanted: Field, options: ReadOptions, casting: Casting) -> Column:
    where = f"column {shown(wanted.name)}"
    places = schema.get_all_field_indices(wanted.name)
    if not places:
        if not options.merge:
            raise no_column(wanted.name, schema.names, "it") from None
        if not wanted.nullable:
            raise InvalidType(f"{where} is missing, so it is null, which the schema that was given says it never is")
        return Column(wanted, -1)
    if len(places) > 1:
        raise FieldNotFound(f"it has {len(places)} columns named {shown(wanted.name)}")
    index = places[0]
    field = schema.field(index)
    stricter = spark.first_stricter(field, wanted, where)
    if stricter:
        raise InvalidType(
            f"{stricter} may hold nulls, but the schema that was given says that there are none: declare it nullable"
        )
    try:
        with at(where):
            stages = casting.stages(field.type)
    except Unsupported as error:
        if options.unsupported == "error":
            raise Unsupported(f"{error}{_INSTEAD}") from None
        if options.unsupported == "string" and wanted.type == types.string():
            return Column(wanted, index, text=True)
        raise InvalidType(f"{where}: expected values for Spark's {wanted.type}, found {field.type}") from None
    cast = not spark.same_layout(stages.final, wanted.type)
    if cast:
        _check_zones(stages.final, wanted.type, where)
        try:
            nulls(0, stages.final).cast(wanted.type)
        except ShmarrowError:
            raise InvalidType(
                f"{where}: the given schema wants {wanted.type}, the file has {field.type}, which has no exact cast to "
                "it"
            ) from None
    nothing = all(each == field.type for each in stages)
    return Column(wanted, index, None if nothing else stages, cast=cast)


def _check_zones(found: DataType, wanted: DataType, where: str) -> None:
    """Refuse casts between times with a zone and without: they would take UTC, where Spark takes its session's zone."""
    zoned = [isinstance(each, types.TimestampType) and each.tz is not None for each in (found, wanted)]
    timed = [isinstance(each, types.TimestampType) or each == types.date32() for each in (found, wanted)]
    if all(timed) and zoned[0] != zoned[1]:
        instead = "timestamp" if zoned[0] else "timestamp_ntz" if isinstance(found, types.TimestampType) else "date"
        raise InvalidType(
            f"{where} has {'a' if zoned[0] else 'no'} time zone in the file, where it is {found}: declare it "
            f"{instead}, and let Spark cast it, in the time zone of its session"
        )
    for a, b in zip(found.fields, wanted.fields, strict=False):
        _check_zones(a.type, b.type, where)


def batches_for(
    batches: Iterable[RecordBatch], columns: Sequence[Column], casting: Casting, schema: Any, sizes: Sizes
) -> Iterator[Any]:
    """The rows of batches as batches of pyarrow's that Spark takes, each of about as many bytes as ``sizes`` says.

    Parameters
    ----------
    batches : iterable of RecordBatch
        The rows, with all columns of the file.
    columns : sequence of Column
        How Spark's columns come from them.
    casting : Casting
        The rules for Spark.
    schema : pyarrow.Schema
        What Spark expects.
    sizes : Sizes
        How many rows to send at once; brought up to date.

    Raises
    ------
    InvalidData
        If values do not fit, or break the rules of their type.
    LimitExceeded
        If the values of a single row are too large.
    """
    anew = any(each.stages is not None or each.text or each.cast for each in columns)
    most = _FIRST_MADE if anew else sys.maxsize
    for batch in batches:
        given = [None if each.at < 0 else batch.column(each.at) for each in columns]
        start = 0
        while start < batch.num_rows:
            rows = min(sizes.rows, batch.num_rows - start, most)
            try:
                made = [
                    _values(column, each, casting, start, rows) for column, each in zip(given, columns, strict=True)
                ]
            except LimitExceeded:
                if rows == 1:
                    raise
                most = rows // 2
                continue
            most *= 8
            fields = [each.field.with_type(array.type) for each, array in zip(columns, made, strict=True)]
            start += rows
            yield from sizes.cut(record_batch_as(RecordBatch(Schema(fields), rows, made), schema))


def _values(column: Any, how: Column, casting: Casting, start: int, rows: int) -> Any:
    if column is None:
        return nulls(rows, how.field.type)
    values = column if rows == len(column) else column.slice(start, rows)
    if how.text:
        return _text(values)
    with at("column", how.field.name):
        if how.stages is not None:
            values = casting.column(values, how.stages)
        return values.cast(how.field.type) if how.cast else values


def _text(values: Any) -> Any:
    """The values as JSON text; what JSON has no form for as text within it. There is no array form of this."""
    from shmarrow.build import array

    made = [
        None if value is None else json.dumps(value, default=str, ensure_ascii=False) for value in values.to_pylist()
    ]
    return array(made, types.string())


class Sizes:
    """How many rows make up as many bytes as Spark is to be sent at once; learnt from what was sent before.

    Belongs to one task.
    """

    __slots__ = ("nbytes", "rows")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.rows = _FIRST_ROWS

    def cut(self, batch: Any) -> Iterator[Any]:
        """A batch of pyarrow's, in pieces where its rows turned out to be larger than those before."""
        rows, size = batch.num_rows, batch.nbytes
        self.rows = max(1, rows * self.nbytes // size) if size else max(rows, _FIRST_ROWS)
        if size <= 2 * self.nbytes:
            yield batch
            return
        for start in range(0, rows, self.rows):
            yield batch.slice(start, self.rows)
