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
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from shmarrow.columns import checked_schema
from shmarrow.errors import InvalidType, ObjectNotFound, optional
from shmarrow.spark._pyspark import is_connect, is_local, is_stopped
from shmarrow.spark.app_store import AppStore
from shmarrow.spark.handle import PartitionHandle, marker, remove_here
from shmarrow.spark.jobs import cancelled_with, on_workers, worker_errors
from shmarrow.store import Store
from shmarrow.types import Schema
from shmarrow.types.schema import difference

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class Published(NamedTuple):
    """What :func:`published` returns.

    Attributes
    ----------
    schema : Schema
        The schema of all partitions.
    handles : tuple of PartitionHandle
        Handles of the partitions that have rows.
    rows : DataFrame or None
        The handles as Spark keeps them where the partitions are; None where all workers see the driver's store.
    end : callable or None
        Removes what is on other hosts; None if there is nothing.
    """

    schema: Schema
    handles: tuple[PartitionHandle, ...]
    rows: DataFrame | None
    end: Callable[[], object] | None


# --- on the driver ----------------------------------------------------------------------------------------------


def published(rows: DataFrame, store: AppStore, name: str, schema_without_rows: Callable[[], Schema]) -> Published:
    """Compute a DataFrame whose tasks publish the partitions of a frame.

    If that fails or is interrupted, nothing of the frame is left on this host.
    """
    spark = rows.sparkSession
    here = is_local(spark)
    remove = partial(store.delete_here, prefix=f"{name}/")  # the marker stays: Spark may compute lost rows again
    drop: Callable[[], object] | None = None
    try:
        store.store().put(marker(name), b"", protect=True)
        with worker_errors(), cancelled_with(spark, name):
            if not here:
                rows, drop = placed(rows)
            each = [pickle.loads(row["handle"]) for row in rows.collect()]
        schemas: dict[bytes, int] = {}
        for handle, schema in each:
            schemas.setdefault(schema, handle.partition)
        schema = _one_schema(schemas) or schema_without_rows()
        handles = tuple(handle for handle, _ in each)
        return Published(schema, handles, None if here else rows, drop and partial(_drop, rows, drop, remove))
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
    store: AppStore, frame: str, partition: int, schema: pa.Schema, write: Callable[[Store, str], tuple[int, int]]
) -> pa.RecordBatch:
    """Put the object of a partition on this host, and return a row with its handle and its schema.

    Parameters
    ----------
    store, frame, partition, schema : AppStore, str, int, pyarrow.Schema
        The store of the application, and what is put.
    write : callable
        Puts it into a store under a name, another one each time; returns how many rows and batches it has.
    """
    here = store.here()
    opened = here.store()
    name = f"{frame}/{partition:05d}-{os.urandom(8).hex()}"
    rows, count = write(opened, name)
    try:  # whoever has removed the marker has removed all objects that were put before that
        check_wanted(store, frame)
    except ObjectNotFound:
        opened.delete(name)
        raise
    handle = PartitionHandle.of_object(here, name, rows, count, opened.info(name).nbytes, partition)
    if here is not store:  # it ends with its executor
        handle = handle.with_digest()
    row = pickle.dumps((handle, schema.serialize().to_pybytes()))
    return optional("pyarrow").RecordBatch.from_pydict({"handle": [row]})


def check_wanted(store: AppStore, frame: str) -> None:
    """Raise ObjectNotFound if the frame was destroyed, or its first job has failed, as far as is visible here."""
    opened = store.visible()
    if opened is not None and marker(frame) not in opened:
        raise ObjectNotFound(
            errno.ENOENT,
            f"the shared frame {frame!r} was destroyed, or its job has failed",
            hint="DataFrames are computed when they are asked for: collect or write them before destroy()",
        )
