# SPDX-License-Identifier: Apache-2.0
"""Sharing: frames of Spark's workers, tables of the driver, and names for both.

Each partition of a DataFrame becomes one object of a store, and a row with its handle.

Invariants:

* :mod:`shmarrow.spark.partitions` puts and removes; this module says what;
* a worker keeps one batch of ``target_bytes`` in memory, not a partition.

A table of the driver is stored once, and used in place by the workers of all later jobs:

* the rows are split into objects like those of a DataFrame, so all operations of frames work;
* the objects are pinned, so that the store does not evict them;
* if workers may run on other hosts, Spark distributes all objects together, like broadcasts.

``share(df, name=...)`` registers a frame, which other applications and notebooks of the user open:

* a name is an object in the driver's store: a table without rows, of the frame's schema, whose metadata are the handles
  as JSON. Who opens it executes nothing;
* a new frame replaces the name when it is complete, and only then the old one is removed;
* the name ends with the frame: with the application that shared it, or when both expire.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from shmarrow import capsules
from shmarrow.columns import Table, checked_schema, record_batch
from shmarrow.columns.table import table
from shmarrow.errors import (
    GenerationChanged,
    InvalidArgument,
    InvalidData,
    InvalidType,
    ObjectNotFound,
    StoreFull,
    full_name,
    optional,
    shown,
)
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.memory import Location
from shmarrow.spark._pyspark import arrow_schema, is_local, parallelism
from shmarrow.spark.app_store import AppStore, default_location, driver_store, unless_gone
from shmarrow.spark.delivery import check_collected, send
from shmarrow.spark.frame import SharedFrame
from shmarrow.spark.handle import PartitionHandle, frame_name, seconds_left
from shmarrow.spark.jobs import is_session, on_workers, session_for
from shmarrow.spark.partitions import Target, handle_column, handle_row, published, row_without_handle
from shmarrow.spark.results import of_frame, pyarrow_batches
from shmarrow.spark.types import check_name, check_type
from shmarrow.spark.values import as_name
from shmarrow.store import Store
from shmarrow.types import Schema, has_dictionary
from shmarrow.types.arguments import as_positive

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from shmarrow.memory import Location
    from shmarrow.store import Store

    Batches = Iterator[pa.RecordBatch]
    Function = Callable[[Any], Any]


PREFIX = "frames/"
KEY = b"shmarrow:frame"
"""The key of a frame's description in the metadata of its schema."""

_LONGEST = 1e9
"""Seconds for which a frame is kept at most, about thirty years."""
_mine: dict[tuple[str, str], SharedFrame] = {}
"""The frames that this process has given a name, by their store's id and name: Spark keeps parts of them."""


def register(frame: SharedFrame, name: str) -> Callable[[], object] | None:
    """Give a frame a name, and remove the frame that had it.

    Returns
    -------
    remove_elsewhere : callable or None
        Removes the objects of the old frame on this host, to be called on other hosts too; None if there was none.
    """
    store = frame.store.store()
    while True:
        old = _described(store, name)
        generation = 0 if old is None else store.info(PREFIX + name).generation
        with suppress(GenerationChanged, ObjectNotFound):
            left = seconds_left(frame.name, frame.until)
            store.put(PREFIX + name, _description(frame), protect=True, expire_after=left, if_generation=generation)
            break
    frame._on_destroy(partial(_forget, store, name, frame.name))
    mine = _mine.pop((store.id, name), None)
    _mine[store.id, name] = frame
    if old is None:
        return None
    (mine if mine is not None and mine.name == old.name else old).destroy()
    return partial(old.store.delete_here, prefix=f"{old.name}/")


def attached(name: str, store: Location | Store | None = None) -> SharedFrame:
    """Open a frame that an application of this user has shared under a name: ``share(df, name=...)``.

    Parameters
    ----------
    name : str
        The name.
    store : str, PathLike or Store, optional
        The store in which it was shared, by default that of this user's Spark applications.

    Returns
    -------
    SharedFrame
        The frame. It lives until it is replaced by another of its name, destroyed, or the application ends that shared
        it. Tables that were attached before that stay valid. It needs no Spark; only partitions on this host can be
        attached. ``destroy`` removes these and the name; those on other hosts end with their executors.

    Raises
    ------
    ObjectNotFound
        If no frame has this name; lists the names that there are.
    InvalidData
        If something else is in its place.
    """
    name = as_name(name)
    opened = None
    with suppress(ObjectNotFound):
        opened = (
            store if isinstance(store, Store) else Store(default_location() if store is None else store, create=False)
        )
        opened.collect()  # names of applications that have ended
        found = _described(opened, name)
        if found is not None:
            found._on_destroy(partial(_forget, opened, name, found.name))
            return found
    names = [] if opened is None else [each.removeprefix(PREFIX) for each in opened.names(PREFIX)]
    there = f"there are {', '.join(map(repr, names[:20]))}" if names else "there is none"
    raise ObjectNotFound(
        errno.ENOENT,
        f"no frame is shared under the name {name!r}: {there}",
        hint="share(df, name=...) gives a name, in an application that still runs",
    )


def _description(frame: SharedFrame) -> Table:
    handles = [{**asdict(handle), "store": [*handle.store], "way": None} for handle in frame.handles]
    said = {"name": frame.name, "store": [*frame.store], "handles": handles}
    said |= {name: getattr(frame, name) for name in ("spark_schema", "num_partitions", "until")}
    metadata = {**(frame.schema.metadata or {}), KEY: json.dumps(said).encode()}
    return Table(frame.schema.with_metadata(metadata), [])


def _described(store: Store, name: str) -> SharedFrame | None:
    """Return the frame of a name; None if there is none."""
    with suppress(ObjectNotFound):
        table: Any = store.get(PREFIX + name)
        try:
            metadata = dict(table.schema.metadata)
            said = json.loads(metadata.pop(KEY))
            handles = [PartitionHandle(**{**each, "store": AppStore(*each["store"])}) for each in said["handles"]]
            schema = table.schema.with_metadata(metadata or None)
            rest = said["spark_schema"], said["num_partitions"], said["until"]
            return SharedFrame(AppStore(*said["store"]), said["name"], schema, handles, *rest)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidData(f"the object {PREFIX + name!r} of the store {store.name!r} is no shared frame") from None
    return None


def _forget(store: Store, name: str, frame: str) -> None:
    """Remove a name, unless another frame has it now."""
    with unless_gone():
        found = _described(store, name)
        if found is not None and found.name == frame:
            _mine.pop((store.id, name), None)
            store.delete(PREFIX + name)


TARGET_BYTES = 4 << 20
OVERHEAD = 1536
"""Approximate memory overhead of a pyarrow batch in bytes."""


def share(
    df: DataFrame,
    store: Location | Store | None = None,
    *,
    name: str | None = None,
    keep: float | None = None,
    function: Function | None = None,
    target_bytes: int = TARGET_BYTES,
) -> SharedFrame:
    """Put the partitions of a DataFrame into shared memory, in parallel in Spark's Python workers.

    Parameters
    ----------
    df : DataFrame
        The DataFrame to share, classic or of Spark Connect: each partition with rows becomes one object.
    store : str, PathLike or Store, optional
        The store for the objects: ``shm:NAME``, or a directory; by default the store of this user's Spark applications,
        ``shm:shmarrow-spark-UID``. On a host that does not see it, the store of that name there, created if missing.
    name : str, optional
        A name under which other applications and notebooks of this user find the frame: see :func:`attached`. It
        replaces the frame of that name, whose objects are removed when this one is complete: sharing again in a
        notebook leaves one copy. Tables that others have attached stay valid.
    keep : float, optional
        Seconds from now for which a frame with a name is kept, also when this application has ended: until it expires,
        is replaced, or is destroyed by anyone. On a cluster, each host keeps its partitions.
    function : callable, optional
        Called with an iterator over the batches of a partition (``pyarrow.RecordBatch``), and returns an iterator over
        the batches to share, as for ``mapInArrow``. They do not pass through Spark, so they may have types that Spark
        lacks, such as dictionaries. Rows that come from elsewhere are made by a function over numbers:
        ``share(spark.range(n), function=...)``.
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
        If it is no DataFrame, or ``function`` returns different columns in different batches or partitions.
    StoreFull
        If there was not enough space.
    PySparkException
        If the job failed for another reason.

    Notes
    -----
    If it fails or is interrupted, nothing of the frame is left on the driver's host. On other hosts, many short tasks
    remove what finished ones have written; what they do not reach is left until its executor ends.

    The rows are computed once; what is written to the source afterwards does not change the frame. If an executor on
    another host is lost together with its objects, Spark computes these partitions again. They count only if all their
    rows are the same; otherwise jobs fail with our ObjectNotFound.

    Columns may have any names. Intervals of months, for which pyarrow has no type, have to be cast first. Without any
    rows, the frame has the columns that ``function`` returns for a batch without rows.
    """
    target_bytes = as_positive(target_bytes, "target_bytes")
    if function is not None and not callable(function):
        raise InvalidType(f"function must be callable, found {full_name(function)}")
    spark = _session_of(df)
    source, names = numbered(df), tuple(df.columns)
    spark_schema = df.schema.json() if function is None else None

    def publish(target: Target) -> SharedFrame:
        rows = source.mapInArrow(partial(_publish, target, names, function, target_bytes), handle_column())
        made = published(rows, target, lambda: _schema_without_rows(df, function))
        return SharedFrame.of(made, target, spark_schema)

    return named(publish, spark, store, name, keep)


def named(
    publish: Callable[[Target], SharedFrame],
    spark: SparkSession,
    store: Location | Store | None,
    name: str | None,
    keep: float | None,
) -> SharedFrame:
    """Publish a frame, and give it a name if there is one; ``keep`` is as for :func:`share`."""
    if name is not None:
        name = as_name(name)
    if keep is not None:
        if name is None:
            raise InvalidArgument("keep= needs name=, by which other applications find the frame")
        if isinstance(keep, bool) or not isinstance(keep, (int, float)) or not 0 < keep < _LONGEST:
            raise InvalidArgument(f"keep must be a number of seconds, found {shown(keep)}")
    frame = publish(Target.new(store, keep))
    if name is None:
        return frame
    try:
        remove = register(frame, name)
    except BaseException:
        frame.destroy()
        raise
    if remove is not None and not is_local(spark):
        on_workers(spark, remove)
    return frame


# --- what to share ----------------------------------------------------------------------------------------------


def _session_of(df: Any) -> SparkSession:
    """Return the session of the DataFrame that a caller wants to share."""
    if is_session(df):
        raise InvalidType("share takes a DataFrame: call share(spark.range(n), function=...) for rows of a function")
    if not hasattr(df, "mapInArrow"):
        other = full_name(df).partition(".")[0] in ("pandas", "polars", "pyarrow", "shmarrow")
        step = "; share_table takes it" if other else ""
        raise InvalidType(f"share takes a DataFrame of Spark, found {full_name(df)}{step}")
    return session_for(df.sparkSession, "share(df)")


def numbered(df: DataFrame) -> DataFrame:
    """Make a DataFrame acceptable to ``mapInArrow``, whatever its column names, even without columns."""
    for field in df.schema:
        check_name(field.name, "the DataFrame has a column")
        check_type(field.dataType, f"column {field.name!r}")
    names = df.columns
    if not names:
        return df.selectExpr("true AS c0")
    plain = {name.lower() for name in names if name.isascii() and name.isidentifier()}
    return df if len(plain) == len(names) else df.toDF(*[f"c{i}" for i in range(len(names))])


# --- in Spark's workers -----------------------------------------------------------------------------------------


def _publish(
    target: Target, names: Sequence[str], function: Function | None, target_bytes: int, batches: Batches
) -> Batches:
    """The worker's side of sharing: puts a partition, and yields the row with its handle."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # it runs in a task
    target.check_wanted()
    given = _given(batches, names, function)
    first = next(given, None)
    if first is None:
        yield row_without_handle(context.partitionId())
        return
    for column in first.schema.names:
        check_name(column, "the function returned a column")

    def write(opened: Store, name: str) -> tuple[int, int]:
        rows = count = 0
        options = IpcWriteOptions(emit_dictionary_deltas=True)
        try:
            with opened.new_file(name, checked_schema(first.schema), options=options, **target.options()) as writer:
                for batch in rechunked(first, given, target_bytes):
                    target.check_wanted()
                    writer.write_batch(record_batch(batch))
                    rows, count = rows + batch.num_rows, count + 1
        except StoreFull as error:
            other = 'store= takes a directory on a disk, too; see "Containers" in the guide to Spark in operation'
            error.hint = f"{error.hint}; {other}" if error.hint else other
            raise
        return rows, count

    yield handle_row(target, context.partitionId(), first.schema, write)


def _given(batches: Batches, names: Sequence[str], function: Function | None) -> Batches:
    """Return the batches to share, whose columns have their own names again; copies nothing."""
    restored = (batch.rename_columns(list(names)) if names else batch.select([]) for batch in batches)
    return restored if function is None else pyarrow_batches(function(restored))


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
    frame = SharedFrame(found, name, rows.schema, [], spark=session)
    try:
        handles = []
        for i in range(count):
            start, stop = i * rows.num_rows // count, (i + 1) * rows.num_rows // count
            part = rows if count == 1 else rows.slice(start, stop - start)
            each = opened.put(f"{name}/{i:05d}", part, inline=False)
            frame._on_destroy(opened.pin(each).close)
            size = opened.attach(each).size
            handles.append(PartitionHandle.of_object(found, each, stop - start, len(part.batches), size, i))
        ways = send(session, found, [handle.name for handle in handles])
        if ways:
            frame._on_destroy(partial(ways[0].destroy, False))  # they share one file
            handles = [replace(each, way=by) for each, by in zip(handles, ways, strict=True)]
        frame.handles, frame.num_partitions = tuple(handles), count
        return frame
    except BaseException:
        frame.destroy()
        raise
