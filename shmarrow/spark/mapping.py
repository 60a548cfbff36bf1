"""Tasks of jobs over shared frames.

Invariants:

* a task gets the number of a partition from Spark, and its rows from shared memory: those of the frame's own handle,
  wherever that works;
* on a cluster, Spark gives the handle that it keeps for the partition, which names another object only if Spark had to
  compute the partition again; that counts only if its rows are the same, to the byte;
* Spark prefers the executors that keep the handles, and waits for a free core there for a limited time; on another host
  the task fails with an error that names the right one, and Spark tries it again.
"""

from __future__ import annotations

import errno
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from shmarrow.columns import Table, read_table
from shmarrow.errors import InvalidData, ObjectNotFound, StorageError, at, counted, optional
from shmarrow.spark.app_store import AppStore
from shmarrow.spark.handle import PartitionHandle
from shmarrow.spark.publishing import check_wanted, handle_row
from shmarrow.spark.results import SparkCaster
from shmarrow.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Batches = Iterator[pa.RecordBatch]
    Function = Callable[[Table], Any]


class FrameTask(NamedTuple):
    """What the tasks of a job over a frame know of it.

    Attributes
    ----------
    handles : tuple of PartitionHandle
        The frame's handles.
    placed : bool
        Whether Spark gives the rows with the handles that it keeps, or numbers of handles.
    """

    handles: tuple[PartitionHandle, ...]
    placed: bool


_WAIT = 10.0
"""Seconds that a task on the wrong host waits before it fails."""
_PATIENT_ATTEMPTS = 3


def run(parts: FrameTask, spark: SparkSession, rows: DataFrame | None, task: Any, struct: StructType) -> DataFrame:
    """Return the rows that a task makes of partitions: a function of what :func:`attached_in` gets, in turn."""
    count = len(parts.handles)
    if rows is None:
        if not count:
            return spark.createDataFrame([], struct)
        rows = spark.range(0, count, 1, count)
    return rows.mapInArrow(partial(task, parts), struct)


def attached_in(parts: FrameTask, batches: Batches) -> Iterator[tuple[PartitionHandle, Table]]:
    """Yield the partitions of a task, each with its rows."""
    for batch in batches:
        for cell in batch.column(0).to_pylist():
            computed = pickle.loads(cell)[0] if parts.placed else parts.handles[cell]
            handle = next((own for own in parts.handles if own.partition == computed.partition), None)
            if handle is None:
                raise _lost(computed)
            yield handle, _attached(handle, computed)


def _attached(handle: PartitionHandle, computed: PartitionHandle) -> Table:
    """Return the rows of a partition: those of the frame's handle, or if these are lost, the same computed again."""
    if computed.name != handle.name:
        with suppress(StorageError):
            return handle.attach()
        if not handle.digest or computed.digest != handle.digest:
            raise _lost(handle)
    _be_patient(computed)
    return computed.attach()


def _lost(handle: PartitionHandle) -> ObjectNotFound:
    return ObjectNotFound(
        errno.ENOENT,
        f"partition {handle.partition} of the frame is lost with its executor: Spark computed other rows for it again",
        hint="share again; the rows of a computation that draws random numbers, or of a shuffle, differ each time",
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


def mapped(function: Function, caster: SparkCaster, parts: FrameTask, batches: Batches) -> Batches:
    """Yield the rows that a function makes of each partition."""
    for _, table in attached_in(parts, batches):
        yield from caster.cast(function(table))


def selected(columns: list[int], names: list[str], table: Table) -> Table:
    """Return columns of a table, with other names."""
    return table.select(columns).rename_columns(names)


def extended(
    store: AppStore, frame: str, function: Function, caster: SparkCaster, parts: FrameTask, batches: Batches
) -> Batches:
    """Put each partition with the columns that the function gives for it, as an object that shares all others."""
    for handle, table in attached_in(parts, batches):
        check_wanted(store, frame)
        added = optional("pyarrow").Table.from_batches(caster.cast(function(table)), caster.schema)
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
