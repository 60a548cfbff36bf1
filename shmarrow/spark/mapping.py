# SPDX-License-Identifier: Apache-2.0
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
from typing import TYPE_CHECKING, Any, Protocol

from shmarrow.columns import Table, read_table
from shmarrow.errors import InvalidData, ObjectNotFound, StorageError, at, counted, optional
from shmarrow.spark.handle import PartitionHandle
from shmarrow.spark.publishing import Target, handle_row
from shmarrow.spark.results import SparkCaster
from shmarrow.store import Store
from shmarrow.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Batches = Iterator[pa.RecordBatch]
    Function = Callable[..., Any]


class Task(Protocol):
    """What the tasks of a job read, in the worker: tables of numbered partitions."""

    def __len__(self) -> int:
        """Number of tasks, which get the numbers from 0."""
        ...

    def tables(self, batches: Batches) -> Iterator[tuple[int, list[Table]]]:
        """Yield the number of each partition of a task, and its tables, which a function gets."""
        ...


class FrameTask:
    """The partitions of a frame, perhaps beside those of another.

    Parameters
    ----------
    frames : list of (tuple of PartitionHandle, Schema)
        The handles and the schema of each frame; partitions without rows have no handle.
    placed : bool
        Whether Spark gives the rows with the handles that it keeps of the first frame, or numbers of tasks.
    """

    def __init__(self, frames: list[tuple[tuple[PartitionHandle, ...], Schema]], placed: bool) -> None:
        self.frames = frames
        self.placed = placed
        self.numbers = sorted({handle.partition for handles, _ in frames for handle in handles})

    def __len__(self) -> int:
        return len(self.numbers)

    def tables(self, batches: Batches) -> Iterator[tuple[int, list[Table]]]:
        handles = [{handle.partition: handle for handle in each} for each, _ in self.frames]
        for batch in batches:
            for cell in batch.column(0).to_pylist():
                computed = pickle.loads(cell)[0] if self.placed else handles[0].get(self.numbers[cell])
                if isinstance(computed, int):  # a partition without rows
                    continue
                number = self.numbers[cell] if computed is None else computed.partition
                if computed is not None and number not in handles[0]:
                    raise _lost(computed)
                tables = []
                for (_, schema), each in zip(self.frames, handles, strict=True):
                    handle = each.get(number)
                    tables.append(Table(schema, []) if handle is None else _attached(handle, computed or handle))
                    computed = None  # Spark has only those of the first frame
                yield number, tables


_WAIT = 10.0
"""Seconds that a task on the wrong host waits before it fails."""
_PATIENT_ATTEMPTS = 3


def run(parts: Task, spark: SparkSession, rows: DataFrame | None, task: Any, struct: StructType) -> DataFrame:
    """Return the rows that a task makes of partitions: a function of these, and of the batches that Spark gives it."""
    count = len(parts)
    if rows is None:
        if not count:
            return spark.createDataFrame([], struct)
        rows = spark.range(0, count, 1, count)
    return rows.mapInArrow(partial(task, parts), struct)


def _attached(handle: PartitionHandle, computed: PartitionHandle) -> Table:
    """Return the rows of a partition: those of the frame's handle, or if these are lost, the same computed again."""
    if computed.name != handle.name:
        with suppress(StorageError):
            return handle.attach()
    _be_patient(computed)
    table = computed.attach()
    if computed.name != handle.name and (computed.digest or computed.with_digest().digest) != handle.digest:
        raise _lost(handle)
    return table


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


def mapped(function: Function, caster: SparkCaster, parts: Task, batches: Batches) -> Batches:
    """Yield the rows that a function makes of each partition."""
    for _, tables in parts.tables(batches):
        yield from caster.cast(function(*tables))


def selected(columns: list[int], names: list[str], table: Table) -> Table:
    """Return columns of a table, with other names."""
    return table.select(columns).rename_columns(names)


def extended(target: Target, function: Function, caster: SparkCaster, parts: Task, batches: Batches) -> Batches:
    """Put each partition with the columns that the function gives for it, as an object that shares all others."""
    for number, (table,) in parts.tables(batches):
        target.check_wanted()
        added = optional("pyarrow").Table.from_batches(caster.cast(function(table)), caster.schema)
        with at(f"partition {number}"):
            wider = joined(table, read_table(added))
        yield _put(target, number, wider)


def stored(target: Target, parts: Task, batches: Batches) -> Batches:
    """Put each partition as it is."""
    for number, (table,) in parts.tables(batches):
        target.check_wanted()
        if table.num_rows:
            yield _put(target, number, table)


def _put(target: Target, number: int, table: Table) -> pa.RecordBatch:
    """Put the table of a partition, and return the row with its handle."""

    def write(store: Store, name: str) -> tuple[int, int]:
        store.put(name, table, reuse=True, **target.options())
        return table.num_rows, len(table.batches)

    return handle_row(target, number, table.schema.to_pyarrow(), write)


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
