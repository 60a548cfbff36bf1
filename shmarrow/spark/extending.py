"""Frames with more columns: each partition becomes an object that shares the memory of the columns that it keeps.

Invariants:

* only the new columns are written; the others stay where they are as long as either frame needs them;
* the new frame is published, owned and destroyed like one of :func:`shmarrow.spark.share`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidData, InvalidType, at, counted, full_name
from shmarrow.interchange.pyarrow import schema_from_pyarrow
from shmarrow.optional import optional
from shmarrow.spark.app_store import AppStore, driver_store
from shmarrow.spark.frame import SharedFrame, frame_name
from shmarrow.spark.handle import PartitionHandle
from shmarrow.spark.jobs import as_session
from shmarrow.spark.mapping import attached_in, run
from shmarrow.spark.results import Fitting, expected_by_spark, struct_type
from shmarrow.spark.sharing import (
    check_wanted,
    handle_column,
    handle_row,
    object_name,
    published,
    still_wanted,
)
from shmarrow.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    Batches = Iterator[pa.RecordBatch]


def with_columns(
    frame: SharedFrame, spark: SparkSession, function: Callable[[Table], Any], schema: str | StructType
) -> SharedFrame:
    """See :meth:`SharedFrame.with_columns`."""
    spark = as_session(spark)
    if not callable(function):
        raise InvalidType(f"expected a function, found {full_name(function)}")
    expected = expected_by_spark(struct_type(spark, schema))
    found, name = driver_store(frame.store.where), frame_name()
    task = partial(Extend, found, name, function, Fitting(expected))
    empty = Table(schema_from_pyarrow(expected), [])
    rows = run(frame, spark, task, handle_column())
    return published(rows, found, name, lambda: joined(Table(frame.schema, []), empty).schema)


@dataclass(frozen=True)
class Extend:
    """The worker's side: puts each partition with the columns that the function gives for it."""

    store: AppStore
    frame: str
    function: Callable[[Table], Any]
    fitting: Fitting
    handles: tuple[PartitionHandle, ...] | None

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # it runs in a task
        attempt = context.taskAttemptId()
        for handle, table in attached_in(batches, self.handles):
            check_wanted(self.store, self.frame)
            fitted = optional("pyarrow").Table.from_batches(self.fitting.fit(self.function(table)), self.fitting.schema)
            with at(f"partition {handle.partition}"):
                made = joined(table, Table.from_pyarrow(fitted))
            here = self.store.here()
            store = here.store()
            name = object_name(self.frame, handle.partition, attempt)
            store.put(name, made, protect=True, reuse=True)
            still_wanted(self.store, self.frame, store, name)
            counts = made.num_rows, len(made.batches), store.info(name).nbytes
            put = PartitionHandle.of_object(here, name, *counts, handle.partition, attempt)
            yield handle_row(put, made.to_pyarrow().schema)


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
