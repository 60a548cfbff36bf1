# SPDX-License-Identifier: Apache-2.0
"""Shared frames: the handles of the partitions of a DataFrame or table, and the operations on them."""

from __future__ import annotations

import errno
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shmarrow.columns import Table
from shmarrow.errors import (
    IndexOutOfRange,
    InvalidArgument,
    InvalidType,
    ObjectNotFound,
    StorageError,
    full_name,
    shown,
)
from shmarrow.habits import Hinted
from shmarrow.memory import host_name
from shmarrow.spark.app_store import AppStore
from shmarrow.spark.handle import PartitionHandle, remove_here
from shmarrow.types import Schema
from shmarrow.types.arguments import as_int

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shmarrow.spark.key_index import FrameIndex
    from shmarrow.spark.partitions import Published, Target
    from shmarrow.spark.results import SparkCaster


class Partitioned(Hinted, ABC):
    """Partitions that tasks read in Python, without the JVM: those of a shared frame, or of files.

    Attributes
    ----------
    schema : Schema
        The schema of all partitions.
    spark_schema : str or None
        Their schema in Spark's JSON format, if it was a DataFrame's.
    """

    schema: Schema
    spark_schema: str | None = None
    _spark: SparkSession | None = None
    _pid: int
    """The process that made it."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Number of rows in all partitions."""

    @abstractmethod
    def _run(self, spark: SparkSession, task: Callable[..., Any], struct: StructType, *beside: Self) -> DataFrame:
        """Return the rows that a task of :mod:`shmarrow.spark.partitions` makes of these, and of others beside."""

    def _session(self, spark: SparkSession | None, first: object, call: str) -> SparkSession:
        """Return the session of a call, by default the one that made this object, or else the active one."""
        from shmarrow.spark.jobs import session_for

        return session_for(spark, f"{self._kind}.{call}", first, self._own_session)

    @property
    def _own_session(self) -> SparkSession | None:
        """The session that made it; not in a forked child."""
        return self._spark if self._pid == os.getpid() else None

    def map(
        self, function: Callable[[Table], Any], schema: str | StructType, spark: SparkSession | None = None
    ) -> DataFrame:
        """Run a function on each partition in a Spark job; see :meth:`SharedFrame.map`."""
        return self._mapped(function, schema, spark)

    def _mapped(
        self, function: Callable[..., Any], schema: str | StructType, spark: SparkSession | None, *beside: Self
    ) -> DataFrame:
        from shmarrow.spark.partitions import mapped

        session = self._session(spark, function, "map(function, schema)")
        struct, caster = _declared(session, function, schema)
        return self._run(session, partial(mapped, function, caster), struct, *beside)

    def to_df(self, columns: Iterable[int | str] | None = None, spark: SparkSession | None = None) -> DataFrame:
        """Return rows as a Spark DataFrame, with the schema of the shared DataFrame, if any.

        Workers send the rows to Spark whenever the DataFrame is computed. If the frame has no Spark schema, its columns
        get the types that ``for_consumer("spark")`` chooses.

        Parameters
        ----------
        columns : iterable of int or str, optional
            Positions or names of the columns, by default all. Others are not sent, while a ``select`` afterwards sends
            them all.
        spark : SparkSession, optional
            As for :meth:`map`.

        Raises
        ------
        FieldNotFound
            If there is no such column.
        InvalidType
            If Spark does not accept a type from Python: CalendarInterval, and nested year-month intervals.
        Unsupported
            If Spark has no type for a column.
        """
        from pyspark.sql.types import StructField, StructType

        from shmarrow.columns import several
        from shmarrow.spark._pyspark import arrow_schema
        from shmarrow.spark.partitions import mapped, selected
        from shmarrow.spark.results import SparkCaster

        session = self._session(spark, columns, "to_df(columns)")
        chosen = range(len(self.schema)) if columns is None else several(columns, "positions and names")
        indices = [self.schema.index_of(key) for key in chosen]
        every = self.struct_of(indices).fields
        if not indices:
            return session.range(self.num_rows).select()
        arrow_schema(StructType(every))  # its errors have the right names
        names = [f"c{i}" for i in range(len(indices))]  # Spark does not support duplicate names here
        plain = StructType(
            [
                StructField(name, each.dataType, each.nullable, each.metadata)
                for name, each in zip(names, every, strict=True)
            ]
        )
        task = partial(mapped, partial(selected, indices, names), SparkCaster(plain))
        return self._run(session, task, plain).toDF(*[field.name for field in every])

    def struct_of(self, indices: Sequence[int]) -> StructType:
        """Return the Spark schema of columns: that of the shared DataFrame, or what their Arrow types become."""
        from pyspark.sql.types import StructType

        from shmarrow.spark.types import spark_struct

        if self.spark_schema is None:
            return spark_struct(Schema([self.schema.field(i) for i in indices]))
        fields = StructType.fromJson(json.loads(self.spark_schema)).fields
        return StructType([fields[i] for i in indices])


class SharedFrame(Partitioned):
    """A shared DataFrame: the handles of its partitions; returned by :func:`share`.

    As a context manager it destroys its objects on exit, but not in a forked child. It can be pickled, and attached
    wherever its handles can.

    Attributes
    ----------
    store : AppStore
        The driver's store, and the owner of the objects there.
    name : str
        Prefix of the names of all its objects.
    schema : Schema
        The schema of all partitions.
    handles : tuple of PartitionHandle
        Handles of the partitions that have rows, in order.
    spark_schema : str or None
        Schema of the shared DataFrame in Spark's JSON format; None if a function produced the rows.
    num_partitions : int
        Number of partitions, with those that have no rows.
    until : float or None
        When its objects expire, in seconds since 1970; None if they end with their owners.
    """

    _kind = "frame"

    def __init__(
        self,
        store: AppStore,
        name: str,
        schema: Schema,
        handles: Iterable[PartitionHandle],
        spark_schema: str | None = None,
        num_partitions: int | None = None,
        until: float | None = None,
        *,
        spark: SparkSession | None = None,
        rows: DataFrame | None = None,
    ) -> None:
        if not (isinstance(name, str) and re.fullmatch("frame-[0-9a-f]{16}", name)):
            raise InvalidArgument(f"the name of a frame is frame-, then 16 hexadecimal digits, found {shown(name)}")
        self.store = store
        self.name = name
        self.schema = schema
        self.handles = tuple(sorted(handles, key=lambda handle: handle.partition))
        self.spark_schema = spark_schema
        self.num_partitions = len(self.handles) if num_partitions is None else num_partitions
        self.until = until
        self._pid = os.getpid()
        self._spark = spark
        self._rows = rows
        """The handles as Spark keeps them where the partitions are."""
        self._ends: dict[object, Callable[[], object]] = {}

    @classmethod
    def of(
        cls, made: Published, target: Target, spark_schema: str | None = None, num_partitions: int | None = None
    ) -> SharedFrame:
        """Return the frame that a job has published; by default, it has as many partitions as the job had rows."""
        count = made.num_partitions if num_partitions is None else num_partitions
        store, name, until = target
        frame = cls(
            store, name, made.schema, made.handles, spark_schema, count, until, spark=made.spark, rows=made.rows
        )
        frame._on_destroy(made.end)
        return frame

    def _on_destroy(self, end: Callable[[], object] | None, key: object = None) -> None:
        """Call a function when the frame is destroyed in this process; once for each key."""
        if end is not None:
            self._ends[key or end] = end

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.store, self.name, self.schema, self.handles, self.spark_schema, self.num_partitions, self.until
        return SharedFrame, state

    @property
    def num_rows(self) -> int:
        """Number of rows in all partitions."""
        return sum(handle.num_rows for handle in self.handles)

    @property
    def size(self) -> int:
        """Total size of all objects in bytes."""
        return sum(handle.size for handle in self.handles)

    def attach(self, index: int) -> Table:
        """Return one partition, by its position in ``handles``; see :meth:`PartitionHandle.attach`.

        Raises
        ------
        IndexOutOfRange
            If there is no such partition.
        """
        at = as_int(index, "index")
        if not -len(self) <= at < len(self):
            raise IndexOutOfRange(f"partition {at} is out of range: the frame has {len(self)}")
        return self.handles[at].attach()

    def read_all(self) -> Table:
        """Return all partitions as one table over the shared memory, zero-copy.

        Raises
        ------
        ObjectNotFound
            If partitions were destroyed, or removed when their owner ended; the error lists them.
        StorageError
            If partitions are on other hosts, or this process may not read them; the error lists them.
        """
        return self.read_rows(0, self.num_rows)

    def read_rows(self, start: int, stop: int) -> Table:
        """Return rows ``start`` to ``stop``, counted over all partitions; attaches only to the partitions needed.

        Raises
        ------
        IndexOutOfRange
            If rows are out of range.
        StorageError
            As for :meth:`read_all`.
        """
        start, stop = as_int(start, "start"), as_int(stop, "stop")
        if not 0 <= start <= stop <= self.num_rows:
            raise IndexOutOfRange(f"rows {start} to {stop} are out of range: the frame has {self.num_rows}")
        end = 0
        wanted = []
        for handle in self.handles:
            first, end = end, end + handle.num_rows
            if max(start, first) < min(stop, end):
                wanted.append((handle, max(start - first, 0), min(stop, end) - first))
        tables = _attached([handle for handle, *_ in wanted])
        parts = [
            table if high - low == table.num_rows else table.slice(low, high - low)
            for table, (_, low, high) in zip(tables, wanted, strict=True)
        ]
        return Table(self.schema, [batch for table in parts for batch in table.batches])

    def local(self) -> Table:
        """Return rows that are on this host, as many on each host, for trainers on several hosts; zero-copy.

        The handles say which host has how many rows, so nothing is asked. Each host gets as many rows as the one that
        has the fewest, the first of its partitions: trainers with the same number of ranks on each host make the same
        number of steps. A rank gets its part of them from ``BatchDataset(frame.local(), rank=local_rank,
        world_size=local_world_size)``.

        Raises
        ------
        StorageError
            If no partition is on this host, or this process may not read it.
        """
        hosts: dict[AppStore, list[PartitionHandle]] = {}
        for handle in self.handles:
            hosts.setdefault(handle.store, []).append(handle)
        least = min((sum(handle.num_rows for handle in each) for each in hosts.values()), default=0)
        mine = [handle for each in hosts.values() for handle in each if handle.is_here]
        if self.handles and not mine:
            where = ", ".join(sorted({repr(handle.host) for handle in self.handles}))
            raise StorageError(
                errno.EREMOTE, f"no partition of the frame is on host {host_name()!r}: they are on {where}"
            )
        return SharedFrame(self.store, self.name, self.schema, mine).read_rows(0, least)

    def map(
        self,
        function: Callable[..., Any],
        schema: str | StructType,
        spark: SparkSession | None = None,
        *,
        beside: SharedFrame | None = None,
    ) -> DataFrame:
        """Run a function on each partition in a Spark job whose workers attach to the shared memory.

        Parameters
        ----------
        function : callable
            Called with a :class:`Table` over the shared memory. Returns a dict of columns, a pandas DataFrame, or any
            table or batch with an Arrow stream, such as those of shmarrow, pyarrow and polars; or several of these,
            as a list or by yielding them.
        schema : str or StructType
            Names and Spark types of the returned columns, such as ``"city string, trips long"``. Columns are matched by
            name and cast to these types; casts that would change a value raise an error.
        spark : SparkSession, optional
            A session, classic or Spark Connect, whose workers run on the hosts of the objects; by default the session
            that made the frame, or else the active one.
        beside : SharedFrame, optional
            A frame with equally many partitions, made of a DataFrame that was partitioned by the same key, as by
            ``df.repartition(n, "key")``: the function is called with partition ``i`` of both, so it joins them without
            a shuffle. On a cluster, both have to be on the same host.

        Returns
        -------
        DataFrame
            The results for all partitions, in order, evaluated lazily. Columns that already have Spark's types are
            copied once, when the worker sends them to Spark.

        Raises
        ------
        InvalidArgument
            If Spark cannot parse the schema, or ``beside`` has another number of partitions.
        InvalidType
            If an argument has another type, or Spark does not accept columns of one of these types from Python.

        Notes
        -----
        Errors in tasks are raised as Spark's when the DataFrame is computed, and include our message: if the function
        returns something else, a missing or additional column, or a value that does not fit, or if the partition cannot
        be attached.

        On a cluster, Spark prefers the executors that wrote the partitions. It waits for a free core there for
        ``spark.locality.wait`` (3 seconds), then runs the task elsewhere; on another host it waits 10 seconds and
        fails, and Spark tries it again, ``spark.task.maxFailures`` times in all. If an executor is lost, Spark computes
        its partitions again.

        In another session than that of :func:`share`, or with a frame that was unpickled, tasks run anywhere, so all
        workers must see the store.
        """
        if beside is None:
            return self._mapped(function, schema, spark)
        if not isinstance(beside, SharedFrame):
            raise InvalidType(f"beside: expected a shared frame, found {full_name(beside)}")
        if beside.num_partitions != self.num_partitions:
            raise InvalidArgument(
                f"beside: it has {beside.num_partitions} partitions, expected {self.num_partitions} as this frame",
                hint='share both with df.repartition(n, "key")',
            )
        return self._mapped(function, schema, spark, beside)

    def with_columns(
        self, function: Callable[[Table], Any], schema: str | StructType, spark: SparkSession | None = None
    ) -> SharedFrame:
        """Run a function on each partition, and return a frame that has its columns, too.

        Only the new columns are written: the new frame's objects share the memory of all others with this frame's,
        which may be destroyed before or after it.

        Parameters
        ----------
        function : callable
            Called with a :class:`Table` over the shared memory; returns the new columns, as for :meth:`map`, with a row
            for each row of the table.
        schema : str or StructType
            Names and Spark types of the new columns. A column whose name the frame has replaces that one.
        spark : SparkSession, optional
            As for :meth:`map`.

        Returns
        -------
        SharedFrame
            The frame; its partitions are those of this one. The job runs at once.

        Raises
        ------
        InvalidArgument, InvalidType
            As for :meth:`map`.
        PySparkException
            If the job failed, for example because the function returned another number of rows.
        """
        from shmarrow.spark.partitions import Target, extended, handle_column, joined, published

        session = self._session(spark, function, "with_columns(function, schema)")
        struct, caster = _declared(session, function, schema)
        target = Target.new(self.store.where)
        rows = self._run(session, partial(extended, target, function, caster), handle_column())
        empty = Table(caster.target, [])
        whole = partial(joined, Table(self.schema, []), empty)
        made = published(rows, target, lambda: whole().schema)
        return SharedFrame.of(made, target, self._spark_schema_with(struct), self.num_partitions)

    def index(self, on: str | Iterable[str]) -> FrameIndex:
        """Return an index of the rows by a key, for look-ups inside functions; made once per host, in shared memory.

        Parameters
        ----------
        on : str or iterable of str
            The columns of the key: integers, text, binary, booleans, dates, times or decimals. A null is no key.

        Returns
        -------
        FrameIndex
            Has ``take(keys)``, the rows of keys, and ``find(keys)``, their numbers. It is small, and can be used in any
            function of any Python process that sees the frame; it exists as long as the frame. It takes about as much
            memory as the keys and 24 bytes for each.

        Raises
        ------
        FieldNotFound
            If there is no such column.
        InvalidType
            If a column has a type of another kind.
        InvalidData
            If two rows have the same key. Where this process does not see all partitions, the first use in a worker
            raises it.
        """
        from shmarrow.spark.key_index import frame_index

        return frame_index(self, on, self._own_session)

    def without_ways(self) -> SharedFrame:
        """Return this frame for processes that see its objects."""
        handles = [replace(handle, way=None) for handle in self.handles]
        return SharedFrame(self.store, self.name, self.schema, handles)

    def _spark_schema_with(self, added: StructType) -> str | None:
        """Return the Spark schema with columns that are added, or replace those of their names."""
        from pyspark.sql.types import StructType

        if self.spark_schema is None:
            return None
        fields = StructType.fromJson(json.loads(self.spark_schema)).fields
        for field in added:
            i = self.schema.index_of(field.name) if field.name in self.schema.names else len(fields)
            fields[i : i + 1] = [field]
        return StructType(fields).json()

    def _run(self, spark: SparkSession, task: Callable[..., Any], struct: StructType, *beside: Self) -> DataFrame:
        from shmarrow.spark.partitions import FrameTask, run

        parts = FrameTask([(frame.handles, frame.schema) for frame in (self, *beside)], False)
        rows = self._rows if self._own_session is spark else None
        if rows is not None and len(parts) == len(self):  # where Spark keeps the partitions of all numbers
            parts.placed = True
        return run(parts, spark, rows if parts.placed else None, task, struct)

    def destroy(self) -> None:
        """Delete all objects; processes that have them attached keep them. Destroying twice is allowed.

        Nothing else in its stores is touched. Objects on other hosts are deleted by a job of the frame's session, for
        which this waits up to 10 seconds; if the session has been stopped, they were deleted with its executors.
        """
        if self._pid == os.getpid():
            self._rows = None
            while self._ends:
                self._ends.popitem()[1]()
        remove_here(self.store, self.name)

    def __len__(self) -> int:
        return len(self.handles)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid == os.getpid():  # a forked child that leaves the block must not destroy its parent's objects
            self.destroy()

    def __repr__(self) -> str:
        return f"<SharedFrame {self.name!r}, {len(self)} partitions, {self.num_rows} rows, {self.size} bytes>"


def _declared(spark: SparkSession, function: object, schema: object) -> tuple[StructType, SparkCaster]:
    """Check the function of a job, and return the columns that it declares."""
    from shmarrow.spark.results import SparkCaster, check_unique, struct_type

    if not callable(function):
        raise InvalidType(f"expected a function, found {full_name(function)}")
    struct: StructType = struct_type(spark, schema)
    check_unique(struct)
    return struct, SparkCaster(struct)


def _attached(handles: Sequence[PartitionHandle]) -> list[Table]:
    """Attach to some partitions, or raise one error for all that fail."""
    found, lost = [], []
    for handle in handles:
        try:
            found.append(handle.attach())
        except StorageError as error:
            lost.append((handle, error))
    if not lost:
        return found
    if len(lost) == 1:
        raise lost[0][1]
    parts = ", ".join(f"{handle.partition} (host {handle.host!r}, process {handle.pid})" for handle, _ in lost[:100])
    more = f" and {len(lost) - 100} more" if len(lost) > 100 else ""
    _, first = next((each for each in lost if not isinstance(each[1], ObjectNotFound)), lost[0])
    raise type(first)(
        first.errno,
        f"{len(lost)} of {len(handles)} partitions cannot be attached to, numbers {parts}{more}; the first error: "
        f"{first.problem}",
        hint=first.hint,
    )
