"""Sharing a table of the driver: stored once, used in place by the workers of all later jobs.

Invariants:

* the rows are split into objects like those of a DataFrame, so all operations of frames work;
* the objects are pinned, so that the store does not evict them;
* if workers may run on other hosts, Spark distributes all objects together, like broadcasts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shmarrow import capsules
from shmarrow.spark._pyspark import parallelism
from shmarrow.spark.app_store import driver_store
from shmarrow.spark.delivery import check_collected, send
from shmarrow.spark.frame import SharedFrame
from shmarrow.spark.handle import PartitionHandle, frame_name
from shmarrow.spark.jobs import session_for
from shmarrow.spark.results import of_frame
from shmarrow.tables import table
from shmarrow.types.base import as_positive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shmarrow.segment import Location
    from shmarrow.store import Store

SMALLEST = 1 << 20
"""Minimum size of a partition in bytes, unless the number of partitions is given."""


def share_table(
    data: Any,
    spark: SparkSession | None = None,
    store: Location | Store | None = None,
    *,
    partitions: int | None = None,
) -> SharedFrame:
    """Put a table of the driver into shared memory once, for the Python workers of all later jobs.

    Parameters
    ----------
    data : object
        A table, record batch or reader of this package or pyarrow, a data frame of pandas or polars, or any object with
        an Arrow stream. The index of a pandas DataFrame is kept as columns if it has a name, as in Spark. The rows are
        copied once, into the store.
    spark : SparkSession, optional
        A session, classic or Spark Connect; by default the active one.
    store : str, PathLike or Store, optional
        The store for the objects on the driver's host; by default the user's store for Spark, in shared memory.
    partitions : int, optional
        Number of partitions, at most the number of rows; their sizes differ by at most one row. By default Spark's
        default parallelism, or one per MiB if that is less.

    Returns
    -------
    SharedFrame
        As for :func:`share`. If workers may run on other hosts than the driver, Spark distributes the rows once to each
        executor. The objects exist until it is destroyed or this process ends.

    Raises
    ------
    InvalidType
        If ``data`` is not a table, or a Spark DataFrame, which :func:`share` accepts.
    InvalidArgument
        If ``partitions`` is less than 1.
    StoreFull
        If there is not enough space in the store; then nothing is left in it.
    """
    session = session_for(spark, "share_table(data)", data)
    count = None if partitions is None else as_positive(partitions, "partitions")
    check_collected(data)
    rows = of_frame(data) if capsules.is_frame(data) else table(data)
    if count is None:
        count = max(min(parallelism(session), rows.nbytes // SMALLEST), 1)
    count = min(count, rows.num_rows)
    found = driver_store(store)
    opened = found.store()
    name = frame_name()
    frame = SharedFrame(found, name, rows.schema, []).kept(session)
    try:
        handles = []
        for i in range(count):
            start, stop = i * rows.num_rows // count, (i + 1) * rows.num_rows // count
            part = rows if count == 1 else rows.slice(start, stop - start)
            each = opened._put_as_file(f"{name}/{i:05d}", part)
            frame.kept(end=opened.pin(each).close)
            size = opened.attach(each).size
            handles.append(PartitionHandle.of_object(found, each, stop - start, len(part.batches), size, i))
        ways = send(session, found, [handle.name for handle in handles])
        if ways:
            frame.kept(end=partial(ways[0].destroy, False))  # they share one file
            handles = [replace(each, way=by) for each, by in zip(handles, ways, strict=True)]
        frame.handles = tuple(handles)
        return frame
    except BaseException:
        frame.destroy()
        raise
