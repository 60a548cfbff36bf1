"""Tasks of jobs over shared frames.

Invariants:

* a task gets the number of a partition from Spark, and its rows from shared memory: those of the frame's own handle,
  wherever that works;
* on a cluster, Spark gives the handle that it keeps for the partition, which names another object only if Spark had to
  compute the partition again. It prefers the executors that keep the handles, and waits for a free core there for a
  limited time; on another host the task fails with an error that names the right one, and Spark tries it again.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from shmarrow.columns.table import Table, read_table
from shmarrow.errors import InvalidData, StorageError, at, counted, optional
from shmarrow.spark.app_store import AppStore
from shmarrow.spark.handle import PartitionHandle
from shmarrow.spark.publishing import check_wanted, handle_row
from shmarrow.spark.results import Fitting
from shmarrow.store import Store
from shmarrow.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Batches = Iterator[pa.RecordBatch]
    Function = Callable[[Table], Any]


class Parts(NamedTuple):
    """What the tasks of a job over a frame know of it.

    Attributes
    ----------
    handles : tuple of PartitionHandle
        The frame's handles.
    schema : Schema
        The frame's schema.
    placed : bool
        Whether Spark gives the rows with the handles that it keeps, or numbers of handles.
    """

    handles: tuple[PartitionHandle, ...]
    schema: Schema
    placed: bool


_WAIT = 10.0
"""Seconds that a task on the wrong host waits before it fails."""
_PATIENT_ATTEMPTS = 3


def run(parts: Parts, spark: SparkSession, rows: DataFrame | None, task: Any, struct: StructType) -> DataFrame:
    """Return the rows that a task makes of partitions: a function of what :func:`attached_in` gets, in turn."""
    count = len(parts.handles)
    if rows is None:
        if not count:
            return spark.createDataFrame([], struct)
        rows = spark.range(0, count, 1, count)
    return rows.mapInArrow(partial(task, parts), struct)


def attached_in(parts: Parts, batches: Batches) -> Iterator[tuple[PartitionHandle, Table]]:
    """Yield the partitions of a task, each with its rows."""
    for batch in batches:
        for cell in batch.column(0).to_pylist():
            computed = pickle.loads(cell)[0] if parts.placed else parts.handles[cell]
            handle = next((own for own in parts.handles if own.partition == computed.partition), None)
            if handle is None:
                raise _changed(computed, "which the frame does not have")
            yield handle, _attached(handle, computed, parts.schema)


def _attached(handle: PartitionHandle, computed: PartitionHandle, schema: Schema) -> Table:
    """Return the rows of a partition: those of the frame's handle, or if these are lost, the same computed again."""
    if computed.name != handle.name:
        with suppress(StorageError):
            return handle.attach()
    _be_patient(computed)
    table = computed.attach()
    if computed.name != handle.name and (table.num_rows, table.schema) != (handle.num_rows, schema):
        other = "another schema" if table.num_rows == handle.num_rows else f"{table.num_rows} rows"
        raise _changed(handle, f"has {other} now, expected {handle.num_rows} rows of the frame's schema")
    return table


def _changed(handle: PartitionHandle, how: str) -> InvalidData:
    return InvalidData(
        f"the source of the frame has changed: partition {handle.partition}, which was lost with its executor and "
        f"computed again, {how}",
        hint="share it again",
    )


def _be_patient(handle: PartitionHandle) -> None:
    """If the rows are on another host, wait before the task fails, so that a core becomes free there.

    Spark retries a failed task immediately, perhaps on this host again, but only three times.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber() < _PATIENT_ATTEMPTS and not handle.is_here:
        time.sleep(_WAIT)


# --- tasks ------------------------------------------------------------------------------------------------------


def mapped(function: Function, fitting: Fitting, parts: Parts, batches: Batches) -> Batches:
    """Yield the rows that a function makes of each partition."""
    for _, table in attached_in(parts, batches):
        yield from fitting.fit(function(table))


def selected(columns: list[int], names: list[str], table: Table) -> Table:
    """Return columns of a table, with other names."""
    return table.select(columns).rename_columns(names)


def extended(
    store: AppStore, frame: str, function: Function, fitting: Fitting, parts: Parts, batches: Batches
) -> Batches:
    """Put each partition with the columns that the function gives for it, as an object that shares all others."""
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
