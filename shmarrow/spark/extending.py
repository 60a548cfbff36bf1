"""Frames with more columns: each partition becomes an object that shares the memory of the columns that it keeps.

Invariants:

* only the new columns are written; the others stay where they are as long as either frame needs them;
* the new frame is published, owned and destroyed like one of :func:`shmarrow.spark.share`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidData, at, counted
from shmarrow.optional import optional
from shmarrow.spark.app_store import AppStore, driver_store
from shmarrow.spark.frame import SharedFrame, frame_name
from shmarrow.spark.mapping import Parts, attached_in, prepared, run
from shmarrow.spark.results import Fitting
from shmarrow.spark.sharing import check_wanted, handle_column, handle_row, published
from shmarrow.store import Store
from shmarrow.tables import Table, read_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    Batches = Iterator[pa.RecordBatch]


def with_columns(
    frame: SharedFrame, spark: SparkSession, function: Callable[[Table], Any], schema: str | StructType
) -> SharedFrame:
    """See :meth:`SharedFrame.with_columns`."""
    spark, _, fitting = prepared(spark, function, schema)
    found, name = driver_store(frame.store.where), frame_name()
    rows = run(frame, spark, partial(_extend, found, name, function, fitting), handle_column())
    empty = Table(fitting.wanted, [])
    return published(rows, found, name, lambda: joined(Table(frame.schema, []), empty).schema)


def _extend(
    store: AppStore,
    frame: str,
    function: Callable[[Table], Any],
    fitting: Fitting,
    parts: Parts,
    batches: Batches,
) -> Batches:
    """The worker's side: puts each partition with the columns that the function gives for it."""
    for handle, table in attached_in(parts, batches):
        check_wanted(store, frame)
        added = optional("pyarrow").Table.from_batches(fitting.fit(function(table)), fitting.schema)
        with at(f"partition {handle.partition}"):
            made = joined(table, read_table(added))
        yield handle_row(store, frame, handle.partition, made.schema.to_pyarrow(), partial(_put, made))


def _put(made: Table, store: Store, name: str) -> tuple[int, int]:
    store.put(name, made, protect=True, reuse=True)
    return made.num_rows, len(made.batches)


def joined(table: Table, added: Table) -> Table:
    """Add columns to a table; those of names that it has replace its own.

    Raises
    ------
    InvalidData
        If they have another number of rows.
    """
    if added.num_rows != table.num_rows:
        raise InvalidData(
            f"the new columns have {counted(added.num_rows, 'row')}, expected {table.num_rows} as in the partition"
        )
    for number, field in enumerate(added.schema):
        column = added.column(number)
        if field.name in table.schema.names:
            table = table.set_column(table.schema.index_of(field.name), field, column)
        else:
            table = table.append_column(field, column)
    return table
