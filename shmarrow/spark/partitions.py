# SPDX-License-Identifier: Apache-2.0
"""Jobs whose tasks put the partitions of frames into shared memory, and jobs over what is there.

Invariants of jobs that publish a frame:

* the handles that the job returned are the frame: every later job reads the objects that they name. Nothing of the
  source is in the plan of such a job, so what is written to it afterwards has no effect;
* where workers run on several hosts, Spark keeps the rows with the handles on the executors that made them
  (:func:`placed`). So it keeps these executors, runs later jobs where the objects are, and computes again what was lost
  with an executor;
* each time it is computed, a partition gets a new name: attempts that are repeated or run twice never conflict. All
  objects of a frame are removed together;
* the frame's marker is in the driver's store from before the first job until it is destroyed. A worker that sees this
  store publishes nothing without the marker: also when its job has failed, was cancelled, or is computed later.

Of jobs over a frame:

* a task gets the number of a partition from Spark, and its rows from shared memory: those of the frame's own handle,
  wherever that works;
* on a cluster, Spark gives the handle that it keeps for the partition, which names another object only if Spark had to
  compute the partition again; that counts only if its rows are the same, to the byte;
* Spark prefers the executors that keep the handles, and waits for a free core there for a limited time; on another host
  the task fails with an error that names the right one, and Spark tries it again.
"""

from __future__ import annotations

import errno
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shmarrow.columns import Table, checked_schema, read_table
from shmarrow.errors import InvalidData, InvalidType, ObjectNotFound, StorageError, at, counted, optional
from shmarrow.spark._pyspark import is_connect, is_local, is_stopped
from shmarrow.spark.app_store import AppStore, driver_store
from shmarrow.spark.handle import PartitionHandle, frame_name, marker, remove_here, seconds_left
from shmarrow.spark.jobs import cancelled_with, on_workers, worker_errors
from shmarrow.spark.results import SparkCaster
from shmarrow.store import Store
from shmarrow.types import Schema
from shmarrow.types.schema import difference

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shmarrow.memory import Location

    Batches = Iterator[pa.RecordBatch]
    Function = Callable[..., Any]


class Target(NamedTuple):
    """Where the tasks of a job put the partitions of a frame.

    Attributes
    ----------
    store : AppStore
        The driver's store.
    name : str
        The name of the frame.
    until : float or None
        When its objects expire, in seconds since 1970. They have no owner then, so they outlive this application.
    """

    store: AppStore
    name: str
    until: float | None = None

    @classmethod
    def new(cls, store: Location | Store | None = None, keep: float | None = None) -> Target:
        """Return a target for a new frame in the store of this process; ``keep`` is in seconds from now."""
        target = cls(driver_store(store), frame_name())
        if keep is None:
            return target
        return target._replace(store=target.store._replace(owner=0), until=time.time() + keep)

    def options(self) -> dict[str, Any]:
        """Return the arguments of ``put`` for its objects.

        Raises
        ------
        ObjectNotFound
            If they would have expired.
        """
        return {"protect": True, "expire_after": seconds_left(self.name, self.until)}

    def check_wanted(self) -> None:
        """Raise ObjectNotFound if the frame was destroyed, or its first job has failed, as far as is visible here."""
        opened = self.store.visible()
        if opened is not None and marker(self.name) not in opened:
            raise ObjectNotFound(
                errno.ENOENT,
                f"the shared frame {self.name!r} was destroyed, or its job has failed",
                hint="DataFrames are computed when they are asked for: collect or write them before destroy()",
            )


class Published(NamedTuple):
    """What :func:`published` returns.

    Attributes
    ----------
    spark : SparkSession
        The session of the job.
    schema : Schema
        The schema of all partitions.
    handles : list of PartitionHandle
        Handles of the partitions that have rows.
    num_partitions : int
        Number of rows of the job, one for each partition.
    rows : DataFrame or None
        The handles as Spark keeps them where the partitions are; None where all workers see the driver's store.
    end : callable or None
        Removes what is on other hosts; None if there is nothing.
    """

    spark: SparkSession
    schema: Schema
    handles: list[PartitionHandle]
    num_partitions: int
    rows: DataFrame | None
    end: Callable[[], object] | None


# --- on the driver ----------------------------------------------------------------------------------------------


def published(rows: DataFrame, target: Target, schema_without_rows: Callable[[], Schema]) -> Published:
    """Compute a DataFrame whose tasks publish the partitions of a frame.

    If that fails or is interrupted, nothing of the frame is left on this host.

    Parameters
    ----------
    rows : DataFrame
        A row for each partition, from :func:`handle_row` or :func:`row_without_handle`.
    target : Target
        The frame.
    schema_without_rows : callable
        Returns the schema if no partition has an object.
    """
    store, name, _ = target
    spark = rows.sparkSession
    here = is_local(spark)
    remove = partial(store.delete_here, prefix=f"{name}/")  # the marker stays: Spark may compute lost rows again
    drop: Callable[[], object] | None = None
    try:
        store.store().put(marker(name), b"", **target.options())
        with worker_errors(), cancelled_with(spark, name):
            if not here:
                rows, drop = placed(rows)
            each = [pickle.loads(row["handle"]) for row in rows.collect()]
        schemas: dict[bytes, int] = {}
        handles = []
        for handle, schema in each:
            if isinstance(handle, PartitionHandle):
                handles.append(handle)
                schemas.setdefault(schema, handle.partition)
        one = _one_schema(schemas) or schema_without_rows()
        end = drop and partial(_drop, rows, drop, remove)
        return Published(spark, one, handles, len(each), None if here else rows, end)
    except BaseException:
        remove_here(store, name)
        if not here and not is_stopped(spark):
            on_workers(spark, remove)
            with suppress(Exception):
                drop and drop()
        raise


def placed(rows: DataFrame) -> tuple[DataFrame, Callable[[], object]]:
    """Compute rows, and have Spark keep them where they were computed, apart from the tables that they come from.

    A persisted DataFrame would not do: Spark computes it again whenever the path or table of its source is written.

    Returns
    -------
    rows : DataFrame
        The rows. On a classic session, those of an executor that is lost are computed again from the same files; on
        Spark Connect, a job that needs them fails.
    drop : callable
        Lets Spark drop them.
    """
    spark = rows.sparkSession
    if is_connect(spark):
        return rows.localCheckpoint(), lambda: None  # dropped together with the DataFrame
    kept = rows.rdd.persist()
    return spark.createDataFrame(kept, rows.schema, verifySchema=False), kept.unpersist


def _drop(rows: DataFrame, drop: Callable[[], object], remove: Callable[[], object]) -> None:
    """Have the objects removed that are on other hosts, and let Spark drop the rows of a frame."""
    if is_stopped(rows.sparkSession):
        return
    on_workers(rows.sparkSession, remove, rows)
    with suppress(Exception):  # the session may be gone
        drop()


def _one_schema(found: Mapping[bytes, int]) -> Schema | None:
    """Return the common schema of all partitions, given a partition for each schema found; None if there are none."""
    if not found:
        return None
    (first, *others), (one, *rest) = map(_read_schema, found), found.values()
    if others:
        raise InvalidType(
            f"the partitions have {len(found)} different schemas, expected one for all: compared with partition {one}, "
            f"partition {rest[0]} has {'other metadata' if others[0].equals(first) else difference(others[0], first)}"
        )
    return first


def _read_schema(raw: bytes) -> Schema:
    pa = optional("pyarrow")
    return checked_schema(pa.ipc.read_schema(pa.py_buffer(raw)))


# --- in the workers ---------------------------------------------------------------------------------------------


def handle_column() -> StructType:
    """Return the schema of rows with a handle; as a string, Spark would parse it, for tens of milliseconds."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StructType([StructField("handle", BinaryType())])


def handle_row(
    target: Target, partition: int, schema: pa.Schema, write: Callable[[Store, str], tuple[int, int]]
) -> pa.RecordBatch:
    """Put the object of a partition on this host, and return a row with its handle and its schema.

    Parameters
    ----------
    target, partition, schema : Target, int, pyarrow.Schema
        What is put.
    write : callable
        Puts it into a store under a name, another one each time; returns how many rows and batches it has.
    """
    here = target.store.here()
    opened = here.store()
    name = f"{target.name}/{partition:05d}-{os.urandom(8).hex()}"
    rows, count = write(opened, name)
    try:  # whoever has removed the marker has removed all objects that were put before that
        target.check_wanted()
    except ObjectNotFound:
        opened.delete(name)
        raise
    handle = PartitionHandle.of_object(here, name, rows, count, opened.info(name).nbytes, partition)
    if here is not target.store:  # it ends with its executor
        handle = handle.with_digest()
    row = pickle.dumps((handle, schema.serialize().to_pybytes()))
    return optional("pyarrow").RecordBatch.from_pydict({"handle": [row]})


def row_without_handle(partition: int) -> pa.RecordBatch:
    """Return the row of a partition that has no rows, and no object."""
    return optional("pyarrow").RecordBatch.from_pydict({"handle": [pickle.dumps((partition, b""))]})


# --- jobs over partitions -----------------------------------------------------------------------------------------


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
