# SPDX-License-Identifier: Apache-2.0
"""Publishing the partitions of a frame: a job whose tasks put objects and return their handles.

Invariants:

* the handles that the job returned are the frame: every later job reads the objects that they name. Nothing of the
  source is in the plan of such a job, so what is written to it afterwards has no effect;
* where workers run on several hosts, Spark keeps the rows with the handles on the executors that made them
  (:func:`placed`). So it keeps these executors, runs later jobs where the objects are, and computes again what was lost
  with an executor;
* each time it is computed, a partition gets a new name: attempts that are repeated or run twice never conflict. All
  objects of a frame are removed together;
* the frame's marker is in the driver's store from before the first job until it is destroyed. A worker that sees this
  store publishes nothing without the marker: also when its job has failed, was cancelled, or is computed later.
"""

from __future__ import annotations

import errno
import os
import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from shmarrow.columns import checked_schema
from shmarrow.errors import InvalidType, ObjectNotFound, optional
from shmarrow.spark._pyspark import is_connect, is_local, is_stopped
from shmarrow.spark.app_store import AppStore, driver_store
from shmarrow.spark.handle import PartitionHandle, frame_name, marker, remove_here, seconds_left
from shmarrow.spark.jobs import cancelled_with, on_workers, worker_errors
from shmarrow.store import Store
from shmarrow.types import Schema
from shmarrow.types.schema import difference

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shmarrow.memory import Location


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
