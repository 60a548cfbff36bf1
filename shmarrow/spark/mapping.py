"""Jobs over shared frames: a function per partition, or the rows as a DataFrame.

Invariants:

* a task gets the number of a partition from Spark, and its rows from shared memory;
* on a cluster with a classic session, Spark gets the preferred host of each partition, and waits for a free core there
  for a limited time; on another host the task fails with an error that names the right one;
* arguments are checked on the driver, before a job runs.
"""

from __future__ import annotations

import errno
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidType, StorageError, full_name
from shmarrow.interchange.for_consumer import casting_for
from shmarrow.spark import types as spark_types
from shmarrow.spark.handle import PartitionHandle, delete_frame
from shmarrow.spark.jobs import active_session, as_session, executor_host, is_connect, persist
from shmarrow.spark.results import Fitting, expected_by_spark, numbered_names, struct_type
from shmarrow.tables import Table
from shmarrow.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

    Batches = Iterator[pa.RecordBatch]


PATIENCE = 10.0
"""Seconds that a task on the wrong host waits before it fails."""
_PATIENT_ATTEMPTS = 3


@dataclass(frozen=True)
class Task:
    """The worker's side of a job: runs the function on partitions given by number."""

    handles: tuple[PartitionHandle, ...]
    function: Callable[[Table], Any]
    fitting: Fitting

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                handle = self.handles[number]
                _be_patient(handle)
                yield from self.fitting.fit(self.function(handle.attach()))


def _be_patient(handle: PartitionHandle) -> None:
    """If the rows are on another host, wait before the task fails, so that a core becomes free there.

    Spark retries a failed task immediately, perhaps on this host again, but only three times.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or not handle.address or context.attemptNumber() >= _PATIENT_ATTEMPTS:
        return
    if executor_host() not in ("", handle.address) and not handle.is_here:
        time.sleep(PATIENCE)


@dataclass(frozen=True)
class OverBatches:
    """Adapter of a function over an iterator of batches to a function over a table."""

    function: Callable[[Iterator[Any]], Any]

    def __call__(self, table: Table) -> Any:
        return self.function(iter(table.batches))


def map_frame(
    handles: tuple[PartitionHandle, ...], spark: SparkSession, function: Callable[[Table], Any], schema: Any
) -> DataFrame:
    """See :meth:`SharedFrame.map`."""
    spark = as_session(spark)
    called = function.function if isinstance(function, OverBatches) else function
    if not callable(called):
        raise InvalidType(f"expected a function, found {full_name(called)}")
    struct = struct_type(spark, schema)
    task = Task(handles, function, Fitting(expected_by_spark(struct)))
    return _run(handles, spark, task, struct)


def _run(handles: Sequence[PartitionHandle], spark: SparkSession, task: Task, struct: StructType) -> DataFrame:
    if not handles:
        return spark.createDataFrame([], struct)
    return _numbers(spark, handles).mapInArrow(task, struct)


# --- where tasks run --------------------------------------------------------------------------------------------


def _numbers(spark: SparkSession, handles: Sequence[PartitionHandle]) -> DataFrame:
    """Return a DataFrame of the handles' numbers, one per partition, with preferred hosts if possible."""
    count = len(handles)
    if is_connect(spark) or not any(handle.address for handle in handles):
        return spark.range(0, count, 1, count)
    from pyspark.sql import DataFrame

    context: Any = spark.sparkContext
    java = context._jvm
    to_seq = java.org.apache.spark.api.python.PythonUtils.toSeq
    rows = [
        java.scala.Tuple2(_java_row(context, number), to_seq([handle.address] if handle.address else []))
        for number, handle in enumerate(handles)
    ]
    any_class = getattr(java.scala.reflect, "ClassTag$")
    rdd = context._jsc.sc().makeRDD(
        to_seq(rows), getattr(any_class, "MODULE$").apply(java.java.lang.Object().getClass())
    )
    struct = java.org.apache.spark.sql.types.StructType.fromDDL("id int")
    return DataFrame(spark._jsparkSession.createDataFrame(rdd.toJavaRDD(), struct), spark)


def _java_row(context: Any, number: int) -> Any:
    values = context._gateway.new_array(context._jvm.java.lang.Object, 1)
    values[0] = number
    return context._jvm.org.apache.spark.sql.RowFactory.create(values)


# --- the rows as they are ---------------------------------------------------------------------------------------


def to_df(
    handles: tuple[PartitionHandle, ...], spark: SparkSession, schema: Schema, spark_schema: str | None
) -> DataFrame:
    """See :meth:`SharedFrame.to_df`."""
    spark = as_session(spark)
    struct = _struct(schema, spark_schema)
    if not len(struct):
        return spark.range(sum(handle.num_rows for handle in handles)).select()
    carried, casts = _carried(struct)
    task = Task(handles, _itself, Fitting(spark_types.arrow_schema(carried), by_position=True))
    names = numbered_names(len(struct))
    numbered = [_renamed(field, name) for field, name in zip(carried, names, strict=True)]
    df = _run(handles, spark, task, type(struct)(numbered))
    if any(casts):
        df = df.selectExpr(*[cast or name for name, cast in zip(names, casts, strict=True)])
    return df.toDF(*struct.names)


def _renamed(field: StructField, name: str) -> StructField:
    return type(field)(name, field.dataType, field.nullable, field.metadata)


def _itself(table: Table) -> Table:
    return table


def _struct(schema: Schema, spark_schema: str | None) -> StructType:
    """Return the schema of the DataFrame: that of the shared one, or derived from the Arrow types."""
    from pyspark.sql.types import StructType

    if spark_schema is not None:
        return StructType.fromJson(json.loads(spark_schema))
    return StructType.fromJson(spark_types.spark_schema(schema, casting_for("spark", ())))


def _carried(struct: StructType) -> tuple[StructType, list[str]]:
    """Return the schema in which rows are sent from Python to Spark, and the casts of columns to their final types."""
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    fields, casts = [], []
    for i, field in enumerate(struct):
        type, cast = field.dataType, ""
        if type.typeName() == "yearmonthinterval":
            cast = f"CAST(make_ym_interval(0, c{i}) AS {type.simpleString().upper()}) AS c{i}"
            type = IntegerType()
        elif type.typeName() in ("char", "varchar"):
            type = StringType()
        fields.append(StructField(field.name, type, field.nullable, field.metadata))
        casts.append(cast)
    return StructType(fields), casts


# --- releasing --------------------------------------------------------------------------------------------------


def release_elsewhere(handles: Sequence[PartitionHandle], name: str) -> None:
    """Remove objects on other hosts by a job of the running session, within some seconds, if possible."""
    stores = {(handle.store, handle.store_id, handle.address): handle for handle in handles if handle.address}
    if not stores or "pyspark" not in sys.modules:
        return

    def release() -> None:
        try:
            spark = active_session()
        except InvalidType:  # executors remove their files when they end
            return
        if not is_connect(spark):
            removal = Removal(tuple(stores.values()), name)
            _numbers(spark, removal.handles).mapInArrow(removal, "n int").collect()

    thread = threading.Thread(target=partial(persist, release), name="shmarrow-release", daemon=True)
    thread.start()
    thread.join(RELEASE_SECONDS)


RELEASE_SECONDS = 10.0


@dataclass(frozen=True)
class Removal:
    """The worker's side of a release: deletes objects from the stores of its host."""

    handles: tuple[PartitionHandle, ...]
    name: str

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                store = self.handles[number].home.driver_store()
                if store is None:  # Spark retries it, perhaps on another host
                    raise StorageError(errno.EREMOTE, f"the store of {self.name!r} is not on this host")
                delete_frame(store, self.name)
        return iter(())
