"""Sharing a DataFrame: each partition becomes one object of a store, and its handle is returned to the driver.

Invariants:

* each task attempt publishes under a unique name, so retried and speculative tasks never conflict. Spark returns the
  row of one attempt per partition; objects of other attempts are removed when the job ends;
* the frame's marker is in the store while its job runs, and nothing is published there without it. An attempt that does
  not find it ends, also after its job has failed or was cancelled;
* a worker keeps one batch of ``target_bytes`` in memory, not a partition.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

from shmarrow.batch import RecordBatch
from shmarrow.errors import InvalidArgument, InvalidType, ObjectNotFound, StoreFull, full_name
from shmarrow.interchange.pyarrow import schema_from_pyarrow
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.optional import optional
from shmarrow.segment import Location
from shmarrow.segment.host import host_name
from shmarrow.spark.frame import SharedFrame
from shmarrow.spark.handle import MANIFEST, PartitionHandle
from shmarrow.spark.home import Home, home, removing
from shmarrow.spark.jobs import (
    active_session,
    as_session,
    cancelled_with,
    executor_host,
    is_connect,
    is_session,
    worker_errors,
)
from shmarrow.spark.results import pyarrow_batches
from shmarrow.spark.spilling import SpillingSink
from shmarrow.store import Store
from shmarrow.types import Schema
from shmarrow.types.base import as_int
from shmarrow.types.extension import has_dictionary
from shmarrow.types.schema import difference

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterator[pa.RecordBatch]
    Function = Callable[[Any], Iterable[pa.RecordBatch]]

TARGET_BYTES = 4 << 20
OVERHEAD = 1536
"""Approximate memory overhead of a pyarrow batch in bytes."""
SPARK_TYPE = b"shmarrow:spark_type"
"""The key in a field's metadata for a Spark type that the Arrow type does not determine."""


def share(
    source: DataFrame | SparkSession | None = None,
    store: Location | Store | None = None,
    *,
    function: Function | None = None,
    partitions: int | None = None,
    target_bytes: int = TARGET_BYTES,
    on_disk: bool = False,
) -> SharedFrame:
    """Put the partitions of a DataFrame into shared memory, in parallel in Spark's Python workers.

    Parameters
    ----------
    source : DataFrame or SparkSession, optional
        The DataFrame to share: each partition with rows becomes one object. Or a session, by default the active one,
        if ``function`` produces the rows.
    store : str, PathLike or Store, optional
        The store for the objects: ``shm:NAME``, or a directory; by default the store of this user's Spark applications,
        ``shm:shmarrow-spark-UID``.
    function : callable, optional
        With a DataFrame: called with an iterator over the batches of a partition (``pyarrow.RecordBatch``), and returns
        an iterator over the batches to share, as for ``mapInArrow``. With a session: called with the number of a
        partition, and returns its batches. The result does not pass through Spark, so it may have types that Spark
        lacks, such as dictionaries.
    partitions : int, optional
        With a session: number of partitions; by default Spark's default parallelism.
    target_bytes : int
        Batches of a partition are combined up to this size in bytes. A worker needs about twice as much memory.
    on_disk : bool
        Write a partition that does not fit into the store to a file in Spark's local directory on the worker's host,
        which Spark removes with the executor; by default that is an error.

    Returns
    -------
    SharedFrame
        The handles. The objects exist until it is destroyed or this process ends, also after Spark has stopped.

    Raises
    ------
    InvalidType
        If ``function`` returns different columns in different batches or partitions, or there is nothing to share.
    StoreFull
        If there was not enough space, nor on disk if that is allowed.
    PySparkException
        If the job failed for another reason.

    Notes
    -----
    If it fails or is interrupted, nothing of the frame is left on the driver's host, except partitions that finished
    tasks had written to disk. These, and partitions on other hosts, are removed when their executors end.

    Columns may have any names. Year-month intervals, for which pyarrow has no type, become int32, with the original
    type in the metadata of their fields.
    """
    target_bytes = as_int(target_bytes, "target_bytes")
    if target_bytes < 1:
        raise InvalidArgument(f"target_bytes must be at least 1, found {target_bytes}")
    if function is not None and not callable(function):
        raise InvalidType(f"function must be callable, found {full_name(function)}")
    df, columns, spark_schema = _source(source, function, partitions)
    found = home(store)
    name = f"frame-{os.urandom(8).hex()}"
    task = Task(found, name, columns, function, target_bytes, bool(on_disk))
    mine = found.store()
    handles: list[PartitionHandle] = []
    try:
        mine.put(name, b"", protect=True)  # never evicted, as the job ends without it
        with worker_errors(), cancelled_with(df.sparkSession, name):
            rows = df.mapInArrow(task, f"{MANIFEST}, schema binary").collect()
        handles = [PartitionHandle(*[row[field.name] for field in fields(PartitionHandle)]) for row in rows]
        _end_job(mine, name, handles)
        schema = _one_schema({bytes(row["schema"]): row["partition"] for row in rows})
        if schema is None:
            schema = _schema_without_rows(df, task)
        return SharedFrame(found, name, schema, handles, spark_schema)
    except BaseException:
        _end_job(mine, name, [])
        SharedFrame(found, name, Schema([]), handles).destroy()  # what is in other stores
        raise


def _end_job(store: Store, name: str, kept: Sequence[PartitionHandle]) -> None:
    """Delete the marker, then objects on this host from attempts whose rows Spark did not return."""
    with removing():
        store.delete(name)
    names = {handle.name for handle in kept}
    for found in {store, *[handle.home.driver_store() for handle in kept]} - {None}:
        assert found is not None
        with removing():
            for each in found.names(f"{name}/"):
                if each not in names:
                    with removing():
                        found.delete(each)


# --- what to share ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """Converts batches from Spark to shared columns.

    Attributes
    ----------
    names : tuple of str
        The original names; Spark gets others, as it cannot pass all names to workers.
    types : tuple of str or None
        The original types of columns that Spark casts.
    """

    names: tuple[str, ...]
    types: tuple[str | None, ...]

    def restore(self, batches: Batches) -> Batches:
        """Restore the column names of Spark's batches, all of one schema; copies nothing."""
        pa = optional("pyarrow")
        schema = None
        for batch in batches:
            if not self.names:
                yield batch.select([])
                continue
            schema = schema or pa.schema(list(map(_restored, batch.schema, self.names, self.types)))
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _restored(field: pa.Field, name: str, type: str | None) -> pa.Field:
    named = field.with_name(name)
    return named if type is None else named.with_metadata({SPARK_TYPE: type.encode()})


def _source(
    source: DataFrame | SparkSession | None, function: Function | None, partitions: int | None
) -> tuple[DataFrame, Columns | None, str | None]:
    """Return the DataFrame for the workers, the columns to restore, and the Spark schema of the shared rows, if any."""
    if source is None or is_session(source):
        if function is None:
            raise InvalidType(
                "there is nothing to share: pass a DataFrame alone, as share(df), or a session and function=..., which "
                "makes the rows"
            )
        session: Any = as_session(active_session() if source is None else source)
        count = as_int(partitions, "partitions") if partitions is not None else parallelism(session)
        if count < 1:
            raise InvalidArgument(f"partitions must be at least 1, found {count}")
        return session.range(0, count, 1, count), None, None
    if not hasattr(source, "mapInArrow"):
        other = full_name(source).partition(".")[0] in ("pandas", "polars", "pyarrow", "shmarrow")
        step = "; share_table takes it" if other else ""
        raise InvalidType(f"share takes a DataFrame of Spark, found {full_name(source)}{step}")
    as_session(source.sparkSession)  # type: ignore[union-attr]
    if partitions is not None:
        raise InvalidArgument("partitions is for a function without a DataFrame; df.repartition(n) has n partitions")
    df, columns = numbered(source)  # type: ignore[arg-type]
    return df, columns, source.schema.json() if function is None else None  # type: ignore[union-attr]


def numbered(df: DataFrame) -> tuple[DataFrame, Columns]:
    """Make a DataFrame acceptable to ``mapInArrow``, whatever its column names, even without columns."""
    schema = df.schema
    types = [each.dataType.simpleString() if _is_months(each.dataType) else None for each in schema]
    for field in schema:
        _check_type(field.name, field.dataType)
    columns = Columns(tuple(schema.names), tuple(types))
    if not columns.names:
        return df.selectExpr("true AS c0"), columns
    renamed = df.toDF(*[f"c{i}" for i in range(len(types))])
    if any(types):
        casts = [
            f"c{i}" if type is None else f"CAST(CAST(c{i} AS INTERVAL MONTH) AS INT) AS c{i}"
            for i, type in enumerate(types)
        ]
        renamed = renamed.selectExpr(*casts)
    return renamed, columns


def _is_months(type: Any) -> bool:
    return bool(type.typeName() == "yearmonthinterval")


def _check_type(column: str, type: Any, nested: bool = False) -> None:
    """Reject types that Spark cannot send to Python workers as Arrow."""
    if nested and _is_months(type):
        raise InvalidType(
            f"column {column!r} has the type {type.simpleString()} within another one, which pyarrow cannot take; "
            "cast it to int first"
        )
    for name, count in Counter(getattr(type, "names", ())).items():
        if count > 1:
            raise InvalidType(
                f"column {column!r} has a struct with {count} fields {name!r}, which Spark cannot give to Python's "
                "workers; rename them first"
            )
    children = [each.dataType for each in getattr(type, "fields", ())]
    children += [getattr(type, each) for each in ("elementType", "keyType", "valueType") if hasattr(type, each)]
    if hasattr(type, "sqlType"):
        children.append(type.sqlType())
    for child in children:
        _check_type(column, child, True)


def parallelism(spark: SparkSession) -> int:
    """Return Spark's default parallelism, without running a job."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    range: Any = spark.range(1 << 20)
    found = re.search(r"splits=(\d+)", range._explain_string())  # its plan has as many partitions
    return int(found[1]) if found else 1


# --- in Spark's workers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """The worker's side of sharing: stores a partition and yields one row that describes it."""

    home: Home
    frame: str
    columns: Columns | None
    function: Function | None
    target_bytes: int
    on_disk: bool = False

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # it runs in a task
        self._check_wanted()
        partition, attempt = context.partitionId(), context.taskAttemptId()
        given = iter(self.given(batches, partition))
        first = next(given, None)
        if first is None:
            return
        name = f"{self.frame}/{partition:05d}-{attempt}"
        store, rows, count = self._write(name, first, given)
        if store is not self.home.driver_store():  # it was published whether or not the job goes on
            try:
                self._check_wanted()
            except ObjectNotFound:
                store.delete(name)
                raise
        found = (
            name,
            rows,
            count,
            store.info(name).nbytes,
            partition,
            attempt,
            os.getpid(),
            host_name(),
            executor_host(),
        )
        where = store.name if store.name.startswith("shm:") else store.path
        handle = PartitionHandle(where, store.id, os.stat(store.path).st_uid, *found)
        pa = optional("pyarrow")
        values = [*astuple(handle), first.schema.serialize().to_pybytes()]
        yield pa.RecordBatch.from_arrays([pa.array([value]) for value in values], [*_NAMES, "schema"])

    def given(self, batches: Batches, partition: int) -> Iterable[pa.RecordBatch]:
        """Return the batches to share."""
        if self.columns is None:
            assert self.function is not None
            return pyarrow_batches(self.function(partition))
        restored = self.columns.restore(batches)
        return restored if self.function is None else pyarrow_batches(self.function(restored))

    def _write(self, name: str, first: pa.RecordBatch, rest: Batches) -> tuple[Store, int, int]:
        """Store the object, and return its store and its numbers of rows and batches."""
        rows = count = 0
        sink = self._sink(name)
        try:
            options = IpcWriteOptions(emit_dictionary_deltas=True)
            with RecordBatchFileWriter(sink, schema_from_pyarrow(first.schema), options) as writer:
                for batch in rechunked(first, rest, self.target_bytes):
                    self._check_wanted()
                    writer.write_batch(RecordBatch.from_pyarrow(batch))
                    rows, count = rows + batch.num_rows, count + 1
        except StoreFull as error:
            if self.on_disk:
                raise
            other = f"share with on_disk=True, {_ON_DISK}"
            error.hint = f"{error.hint}; or {other}" if error.hint else other
            raise
        return sink.store, rows, count

    def _sink(self, name: str) -> SpillingSink:
        seen = self.home.driver_store() is not None
        other = self.home.local_store if self.on_disk else None
        return SpillingSink(name, self.home.store(), other, self.frame if seen else None)

    def _check_wanted(self) -> None:
        """Raise ObjectNotFound if the job has ended, as far as this process can tell."""
        home = self.home.driver_store()
        if home is not None and self.frame not in home:
            raise ObjectNotFound(errno.ENOENT, f"cannot share {self.frame!r}: its job has already ended")


_ON_DISK = "which puts what has no room into a file in Spark's local directory"
_NAMES = [field.name for field in fields(PartitionHandle)]


def rechunked(first: pa.RecordBatch, rest: Batches, target_bytes: int) -> Batches:
    """Combine batches of one schema into batches of at most ``target_bytes``; larger ones are passed through.

    What is held until then counts with the memory that a batch takes beside its values; empty ones are left out.
    Where columns have dictionaries, the dictionary of each batch begins with that of the one before it.
    """
    coded = any(has_dictionary(field.type) for field in schema_from_pyarrow(first.schema))
    last: list[pa.RecordBatch] = []
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in _checked(first, rest):
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


def _checked(first: pa.RecordBatch, rest: Batches) -> Batches:
    yield first
    for batch in rest:
        if batch.schema != first.schema:
            raise InvalidType(f"a batch has ({_shown(batch.schema)}), expected ({_shown(first.schema)}) as before")
        yield batch


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _combined(held: Sequence[pa.RecordBatch], last: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine batches into one, or as few as their offset types allow."""
    if len(held) == 1 and not last:
        return list(held)
    if not held[0].num_columns:
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
    return schema_from_pyarrow(pa.ipc.read_schema(pa.py_buffer(raw)))


def _schema_without_rows(df: DataFrame, task: Task) -> Schema:
    """Return the schema of a frame without rows, as a worker would get it with its first batch."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if task.columns is None:
        return Schema([])
    pa = optional("pyarrow")
    settings = df.sparkSession.conf
    zone = settings.get("spark.sql.session.timeZone")
    large = settings.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
    fields = [
        # Spark sends these to workers, but has no Arrow type for the way back.
        pa.field(field.name, pa.month_day_nano_interval(), field.nullable)
        if field.dataType.typeName() == "interval"
        else to_arrow_schema(type(df.schema)([field]), timezone=zone, prefers_large_types=large).field(0)
        for field in df.schema
    ]
    empty = pa.RecordBatch.from_pylist([], pa.schema(fields))
    given = next(iter(task.given(iter([empty]), 0)), None)
    return schema_from_pyarrow((next(task.columns.restore(iter([empty]))) if given is None else given).schema)
