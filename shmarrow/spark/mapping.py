"""Jobs over shared frames: a function per partition, or the rows as a DataFrame.

Invariants:

* a task gets the number of a partition from Spark, and its rows from shared memory: those of the frame's own handle,
  wherever that works;
* on a cluster, Spark gives the handle that it keeps for the partition, which names another object only if Spark had to
  compute the partition again. It prefers the executors that keep the handles, and waits for a free core there for a
  limited time; on another host the task fails with an error that names the right one, and Spark tries it again;
* arguments are checked on the driver, before a job runs.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from shmarrow.batch import RecordBatch
from shmarrow.errors import InvalidData, InvalidType, StorageError, full_name
from shmarrow.spark._pyspark import arrow_schema
from shmarrow.spark.handle import PartitionHandle
from shmarrow.spark.jobs import as_session
from shmarrow.spark.results import Fitting, expected_by_spark, struct_type
from shmarrow.spark.types import spark_struct
from shmarrow.tables import Table
from shmarrow.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shmarrow.spark.frame import SharedFrame

    Batches = Iterator[pa.RecordBatch]


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


def prepared(spark: Any, function: Callable[[Table], Any], schema: Any) -> tuple[SparkSession, StructType, Fitting]:
    """Check the arguments of a job over a frame."""
    session = as_session(spark)
    if not callable(function):
        raise InvalidType(f"expected a function, found {full_name(function)}")
    struct = struct_type(session, schema)
    return session, struct, Fitting(expected_by_spark(struct))


def map_frame(frame: SharedFrame, spark: SparkSession, function: Callable[[Table], Any], schema: Any) -> DataFrame:
    """See :meth:`SharedFrame.map`."""
    spark, struct, fitting = prepared(spark, function, schema)
    return run(frame, spark, partial(_map, function, fitting), struct)


def map_batches(
    frame: SharedFrame, spark: SparkSession, function: Callable[[Iterator[RecordBatch]], Any], schema: Any
) -> DataFrame:
    """See :meth:`SharedFrame.map_batches`."""
    return map_frame(frame, spark, partial(_on_batches, function) if callable(function) else function, schema)


def _on_batches(function: Callable[[Iterator[RecordBatch]], Any], table: Table) -> Any:
    return function(iter(table.batches))


def _map(function: Callable[[Table], Any], fitting: Fitting, parts: Parts, batches: Batches) -> Batches:
    """The worker's side: the rows that a function makes of each partition."""
    for _, table in attached_in(parts, batches):
        yield from fitting.fit(function(table))


def run(frame: SharedFrame, spark: SparkSession, task: Callable[..., Any], struct: StructType) -> DataFrame:
    """Return the rows that a task makes of partitions: a function of what :func:`attached_in` gets, in turn."""
    rows, count = frame.rows_of(spark), len(frame)
    if rows is not None:
        return rows.mapInArrow(partial(task, Parts(frame.handles, frame.schema, True)), struct)
    if not count:
        return spark.createDataFrame([], struct)
    return spark.range(0, count, 1, count).mapInArrow(partial(task, Parts(frame.handles, frame.schema, False)), struct)


# --- the rows as they are ---------------------------------------------------------------------------------------


def to_df(frame: SharedFrame, spark: SparkSession) -> DataFrame:
    """See :meth:`SharedFrame.to_df`."""
    spark = as_session(spark)
    struct = _struct(frame.schema, frame.spark_schema)
    if not len(struct):
        return spark.range(frame.num_rows).select()
    names = [f"c{i}" for i in range(len(struct))]  # Spark does not support duplicate names here
    fields = [type(each)(name, each.dataType, each.nullable) for name, each in zip(names, struct, strict=True)]
    fitting = Fitting(arrow_schema(struct), names)
    return run(frame, spark, partial(_map, _itself, fitting), type(struct)(fields)).toDF(*struct.names)


def _itself(table: Table) -> Table:
    return table


def _struct(schema: Schema, spark_schema: str | None) -> StructType:
    """Return the schema of the DataFrame: that of the shared one, or derived from the Arrow types."""
    from pyspark.sql.types import StructType

    return spark_struct(schema) if spark_schema is None else StructType.fromJson(json.loads(spark_schema))
