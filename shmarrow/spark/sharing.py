"""Sharing a DataFrame: each partition becomes one object of a store, and a row with its handle.

Invariants:

* the handles that the first job returned are the frame: every later job reads the objects that they name. Nothing of
  the source is in the plan of such a job, so what is written to it afterwards has no effect;
* where workers run on several hosts, Spark keeps the rows with the handles on the executors that made them
  (:func:`placed`). So it keeps these executors, runs later jobs where the objects are, and computes again what was lost
  with an executor;
* each time it is computed, a partition gets a new name: attempts that are repeated or run twice never conflict. All
  objects of a frame are removed together;
* the frame's marker is in the driver's store from before the first job until it is destroyed. A worker that sees this
  store publishes nothing without the marker: also when its job has failed, was cancelled, or is computed later;
* a worker keeps one batch of ``target_bytes`` in memory, not a partition.
"""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from shmarrow.batch import record_batch
from shmarrow.column_names import checked_schema
from shmarrow.errors import InvalidArgument, InvalidType, ObjectNotFound, StoreFull, full_name
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.optional import optional
from shmarrow.segment import Location
from shmarrow.spark._pyspark import arrow_schema, is_connect, is_local, is_stopped, parallelism
from shmarrow.spark.app_store import AppStore, driver_store
from shmarrow.spark.frame import SharedFrame, frame_name, marker, remove_here
from shmarrow.spark.handle import PartitionHandle
from shmarrow.spark.jobs import (
    active_session,
    as_session,
    cancelled_with,
    insist,
    is_session,
    on_workers,
    worker_errors,
)
from shmarrow.spark.results import pyarrow_batches
from shmarrow.spark.types import check_type
from shmarrow.store import Store
from shmarrow.types import Schema
from shmarrow.types.base import as_positive
from shmarrow.types.extension import has_dictionary
from shmarrow.types.schema import difference

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Batches = Iterator[pa.RecordBatch]
    Function = Callable[[Any], Any]

TARGET_BYTES = 4 << 20
OVERHEAD = 1536
"""Approximate memory overhead of a pyarrow batch in bytes."""


def share(
    source: DataFrame | SparkSession | None = None,
    store: Location | Store | None = None,
    *,
    function: Function | None = None,
    partitions: int | None = None,
    target_bytes: int = TARGET_BYTES,
) -> SharedFrame:
    """Put the partitions of a DataFrame into shared memory, in parallel in Spark's Python workers.

    Parameters
    ----------
    source : DataFrame or SparkSession, optional
        The DataFrame to share: each partition with rows becomes one object. Or a session, by default the active one,
        if ``function`` produces the rows.
    store : str, PathLike or Store, optional
        The store for the objects: ``shm:NAME``, or a directory; by default the store of this user's Spark applications,
        ``shm:shmarrow-spark-UID``. On a host that does not see it, the store of that name there, created if missing.
    function : callable, optional
        With a DataFrame: called with an iterator over the batches of a partition (``pyarrow.RecordBatch``), and returns
        an iterator over the batches to share, as for ``mapInArrow``. With a session: called with the number of a
        partition, and returns its batches. The result does not pass through Spark, so it may have types that Spark
        lacks, such as dictionaries.
    partitions : int, optional
        With a session: number of partitions; by default Spark's default parallelism.
    target_bytes : int
        Batches of a partition are combined up to this size in bytes. A worker needs about twice as much memory.

    Returns
    -------
    SharedFrame
        The handles. Objects on this host exist until it is destroyed or this process ends, also after Spark has
        stopped; those on other hosts until it is destroyed or the executor that made them ends.

    Raises
    ------
    InvalidType
        If ``function`` returns different columns in different batches or partitions, or there is nothing to share.
    StoreFull
        If there was not enough space.
    PySparkException
        If the job failed for another reason.

    Notes
    -----
    If it fails or is interrupted, nothing of the frame is left on the driver's host. On other hosts, many short tasks
    remove what finished ones have written; what they do not reach is left until its executor ends.

    The rows are computed once; what is written to the source afterwards does not change the frame. If executors on
    several hosts are lost together with their objects, Spark computes these partitions again; if the source then gives
    another number of rows or another schema, the job fails with our InvalidData.

    Columns may have any names. Intervals of months, for which pyarrow has no type, have to be cast first. Without any
    rows, the frame has the columns that ``function`` returns for a batch without rows.
    """
    target_bytes = as_positive(target_bytes, "target_bytes")
    if function is not None and not callable(function):
        raise InvalidType(f"function must be callable, found {full_name(function)}")
    given: Function | None = function
    if source is None or is_session(source):
        if function is None:
            raise InvalidType(
                "there is nothing to share: pass a DataFrame alone, as share(df), or a session and function=..., which "
                "makes the rows"
            )
        df, given = _numbers(source, partitions), partial(_for_each, function)
    else:
        df = _checked_source(source, partitions)
    names = tuple(df.columns)
    found = driver_store(store)
    name = frame_name()
    rows = numbered(df).mapInArrow(partial(_publish, found, name, names, given, target_bytes), handle_column())
    spark_schema = df.schema.json() if function is None else None
    return published(rows, found, name, lambda: _schema_without_rows(df, given), spark_schema)


def published(
    rows: DataFrame,
    store: AppStore,
    name: str,
    schema_without_rows: Callable[[], Schema],
    spark_schema: str | None = None,
) -> SharedFrame:
    """Compute a DataFrame whose tasks publish the partitions of a frame, and return the frame.

    If that fails or is interrupted, nothing of the frame is left on this host.
    """
    spark = rows.sparkSession
    remove = partial(store.delete_here, prefix=f"{name}/")  # the marker stays: Spark may compute lost rows again
    drop: Callable[[], object] | None = None
    try:
        store.store().put(marker(name), b"", protect=True)
        with worker_errors(), cancelled_with(spark, name):
            if not is_local(spark):
                rows, drop = placed(rows)
            each = [pickle.loads(row["handle"]) for row in rows.collect()]
        handles = [handle for handle, _ in each]
        schemas: dict[bytes, int] = {}
        for handle, schema in each:
            schemas.setdefault(schema, handle.partition)
        frame = SharedFrame(store, name, _one_schema(schemas) or schema_without_rows(), handles, spark_schema)
        if drop is not None:
            frame.keep(partial(_drop, rows, drop, remove), rows)
        return frame
    except BaseException:
        remove_here(store, name)
        if drop is not None:
            insist(drop)
        if not is_stopped(spark) and not is_local(spark):
            on_workers(spark, remove)
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
    insist(drop)


def handle_column() -> StructType:
    """Return the schema of rows with a handle; as a string, Spark would parse it, for tens of milliseconds."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StructType([StructField("handle", BinaryType())])


# --- what to share ----------------------------------------------------------------------------------------------


def _numbers(session: Any, partitions: int | None) -> DataFrame:
    """Return a DataFrame with the numbers of the partitions that a function makes, one in each."""
    spark = as_session(active_session() if session is None else session)
    count = parallelism(spark) if partitions is None else as_positive(partitions, "partitions")
    return spark.range(0, count, 1, count)


def _for_each(function: Callable[[int], Any], numbers: Batches) -> Batches:
    """Yield the rows that a function makes for numbers of partitions."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from pyarrow_batches(function(number))


def _checked_source(source: Any, partitions: int | None) -> DataFrame:
    if not hasattr(source, "mapInArrow"):
        other = full_name(source).partition(".")[0] in ("pandas", "polars", "pyarrow", "shmarrow")
        step = "; share_table takes it" if other else ""
        raise InvalidType(f"share takes a DataFrame of Spark, found {full_name(source)}{step}")
    as_session(source.sparkSession)
    if partitions is not None:
        raise InvalidArgument("partitions is for a function without a DataFrame; df.repartition(n) has n partitions")
    df: DataFrame = source
    return df


def numbered(df: DataFrame) -> DataFrame:
    """Make a DataFrame acceptable to ``mapInArrow``, whatever its column names, even without columns."""
    for field in df.schema:
        check_type(field.dataType, f"column {field.name!r}")
    names = df.columns
    if not names:
        return df.selectExpr("true AS c0")
    plain = {name.lower() for name in names if name.isascii() and name.isidentifier()}
    return df if len(plain) == len(names) else df.toDF(*[f"c{i}" for i in range(len(names))])


# --- in Spark's workers -----------------------------------------------------------------------------------------


def _publish(
    store: AppStore, frame: str, names: Sequence[str], function: Function | None, target_bytes: int, batches: Batches
) -> Batches:
    """The worker's side of sharing: puts a partition, and yields the row with its handle."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # it runs in a task
    check_wanted(store, frame)
    given = _given(batches, names, function)
    first = next(given, None)
    if first is None:
        return

    def write(opened: Store, name: str) -> tuple[int, int]:
        rows = count = 0
        options = IpcWriteOptions(emit_dictionary_deltas=True)
        sink = opened._publication(name, opened._options(protect=True))
        try:
            with RecordBatchFileWriter(sink, checked_schema(first.schema), options) as writer:
                for batch in rechunked(first, given, target_bytes):
                    check_wanted(store, frame)
                    writer.write_batch(record_batch(batch))
                    rows, count = rows + batch.num_rows, count + 1
        except StoreFull as error:
            other = 'store= takes a directory on a disk, too; see "Containers" in the guide to Spark'
            error.hint = f"{error.hint}; {other}" if error.hint else other
            raise
        return rows, count

    yield handle_row(store, frame, context.partitionId(), first.schema, write)


def _given(batches: Batches, names: Sequence[str], function: Function | None) -> Batches:
    """Return the batches to share, whose columns have their own names again; copies nothing."""
    restored = (batch.rename_columns(list(names)) if names else batch.select([]) for batch in batches)
    return restored if function is None else pyarrow_batches(function(restored))


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


def rechunked(first: pa.RecordBatch, rest: Batches, target_bytes: int) -> Batches:
    """Combine batches of one schema into batches of at most ``target_bytes``; larger ones are passed through.

    What is held until then counts with the memory that a batch takes beside its values; empty ones are left out.
    Where columns have dictionaries, the dictionary of each batch begins with that of the one before it.
    """
    coded = any(has_dictionary(field.type) for field in checked_schema(first.schema))
    last: list[pa.RecordBatch] = []
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in chain([first], rest):
        if batch.schema != first.schema:
            raise InvalidType(f"a batch has ({_shown(batch.schema)}), expected ({_shown(first.schema)}) as before")
        if not batch.num_rows:
            continue
        nbytes = batch.nbytes + OVERHEAD
        if held and size + nbytes > target_bytes:
            for each in _combined(held, last):
                yield each
                last = [each.slice(0, 0)] if coded else []
            held, size = [], 0
        held.append(batch)
        size += nbytes
    if held:
        yield from _combined(held, last)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _combined(held: Sequence[pa.RecordBatch], last: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine batches into one, or as few as their offset types allow."""
    if (len(held) == 1 and not last) or not held[0].num_columns:
        return list(held)
    table = optional("pyarrow").Table.from_batches([*last, *held])
    if last:
        table = table.unify_dictionaries()
    return [batch for batch in table.combine_chunks().to_batches() if batch.num_rows]


# --- on the driver ----------------------------------------------------------------------------------------------


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


def _schema_without_rows(df: DataFrame, function: Function | None) -> Schema:
    """Return the schema of a frame without rows, as a worker would get it with its first batch."""
    pa = optional("pyarrow")
    settings = df.sparkSession.conf
    zone = settings.get("spark.sql.session.timeZone") or "UTC"
    large = settings.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
    fields = [
        # Spark sends these to workers, but has no Arrow type for the way back.
        pa.field(field.name, pa.month_day_nano_interval(), field.nullable)
        if field.dataType.typeName() == "interval"
        else arrow_schema(type(df.schema)([field]), zone, large).field(0)
        for field in df.schema
    ]
    empty = pa.RecordBatch.from_pylist([], pa.schema(fields))
    first = next(_given(iter([empty]), df.columns, function), None)
    return Schema([]) if first is None else checked_schema(first.schema)
