"""Jobs over shared frames: a function per partition, or the rows as a DataFrame.

Invariants:

* a task gets the handle of a partition from Spark, and its rows from shared memory;
* Spark prefers the executors that have cached the handles, and waits for a free core there for a limited time; on
  another host the task fails with an error that names the right one, and Spark tries it again;
* arguments are checked on the driver, before a job runs.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from shmarrow.batch import RecordBatch
from shmarrow.errors import InvalidType, full_name
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


_WAIT = 10.0
"""Seconds that a task on the wrong host waits before it fails."""
_PATIENT_ATTEMPTS = 3


@dataclass(frozen=True)
class OverPartitions:
    """The worker's side of a job over a frame.

    Attributes
    ----------
    function : callable
        Called with the rows of each partition.
    fitting : Fitting
        Casts what it returns.
    handles : tuple of PartitionHandle or None
        Where all workers reach all partitions: their handles, of which Spark gives the numbers. Else Spark gives the
        handles.
    """

    function: Callable[[Table], Any]
    fitting: Fitting
    handles: tuple[PartitionHandle, ...] | None

    def __call__(self, batches: Batches) -> Batches:
        for _, table in attached_in(batches, self.handles):
            yield from self.fitting.fit(self.function(table))


def attached_in(
    batches: Batches, handles: tuple[PartitionHandle, ...] | None
) -> Iterator[tuple[PartitionHandle, Table]]:
    """Yield the partitions of a task, each with its rows; arguments as for :class:`OverPartitions`."""
    for batch in batches:
        for given in batch.column(0).to_pylist():
            handle = pickle.loads(given)[0] if handles is None else handles[given]
            _be_patient(handle)
            yield handle, handle.attach()


def _be_patient(handle: PartitionHandle) -> None:
    """If the rows are on another host, wait before the task fails, so that a core becomes free there.

    Spark retries a failed task immediately, perhaps on this host again, but only three times.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber() < _PATIENT_ATTEMPTS and not handle.is_here:
        time.sleep(_WAIT)


@dataclass(frozen=True)
class OverBatches:
    """Adapter of a function over an iterator of batches to a function over a table."""

    function: Callable[[Iterator[Any]], Any]

    def __call__(self, table: Table) -> Any:
        return self.function(iter(table.batches))


def map_frame(frame: SharedFrame, spark: SparkSession, function: Callable[[Table], Any], schema: Any) -> DataFrame:
    """See :meth:`SharedFrame.map`."""
    spark = as_session(spark)
    if not callable(function):
        raise InvalidType(f"expected a function, found {full_name(function)}")
    struct = struct_type(spark, schema)
    return run(frame, spark, partial(OverPartitions, function, Fitting(expected_by_spark(struct))), struct)


def map_batches(
    frame: SharedFrame, spark: SparkSession, function: Callable[[Iterator[RecordBatch]], Any], schema: Any
) -> DataFrame:
    """See :meth:`SharedFrame.map_batches`."""
    return map_frame(frame, spark, OverBatches(function) if callable(function) else function, schema)


def run(frame: SharedFrame, spark: SparkSession, task: Callable[..., Any], struct: StructType) -> DataFrame:
    """Return the rows that a task makes of partitions; ``task`` gets their handles or None, and is then pickled."""
    rows, count = frame.rows_of(spark), len(frame)
    if rows is not None:
        return rows.mapInArrow(task(None), struct)
    if not count:
        return spark.createDataFrame([], struct)
    return spark.range(0, count, 1, count).mapInArrow(task(frame.handles), struct)


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
    task = partial(OverPartitions, _itself, fitting)
    return run(frame, spark, task, type(struct)(fields)).toDF(*struct.names)


def _itself(table: Table) -> Table:
    return table


def _struct(schema: Schema, spark_schema: str | None) -> StructType:
    """Return the schema of the DataFrame: that of the shared one, or derived from the Arrow types."""
    from pyspark.sql.types import StructType

    return spark_struct(schema) if spark_schema is None else StructType.fromJson(json.loads(spark_schema))
