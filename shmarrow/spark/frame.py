"""A shared frame: the handles of the partitions of one DataFrame or table, and what is done with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shmarrow.batch import RecordBatch
from shmarrow.errors import IndexOutOfRange, InvalidArgument, ObjectNotFound, StorageError, shown
from shmarrow.spark.handle import Handle, delete_frame, is_frame
from shmarrow.spark.home import Home
from shmarrow.tables import Table
from shmarrow.types import Schema
from shmarrow.types.base import as_int

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shmarrow.torch import BatchDataset


class SharedFrame:
    """A shared DataFrame: the handles of its partitions; made by :func:`share`.

    As a context manager it releases at the end, in the process that entered it. It can be pickled, and attached to
    wherever its handles can.

    Attributes
    ----------
    home : Home
        The driver's store, and the owner of the objects there.
    name : str
        What the names of all its objects begin with.
    schema : Schema
        The schema of all partitions.
    handles : tuple of Handle
        One for each partition that has rows, in the order of the partitions.
    spark_schema : str or None
        The schema of the DataFrame that was shared, as Spark's JSON; None if a function made the rows.
    """

    def __init__(
        self, home: Home, name: str, schema: Schema, handles: Iterable[Handle], spark_schema: str | None = None
    ) -> None:
        if not is_frame(name):
            raise InvalidArgument(f"the name of a frame is frame-, then 16 hexadecimal digits, found {shown(name)}")
        self.home = home
        self.name = name
        self.schema = schema
        self.handles = tuple(sorted(handles, key=lambda handle: handle.partition))
        self.spark_schema = spark_schema
        self._entered = 0

    @property
    def num_rows(self) -> int:
        """Number of rows in all partitions."""
        return sum(handle.num_rows for handle in self.handles)

    @property
    def size(self) -> int:
        """Total size of all objects in bytes."""
        return sum(handle.size for handle in self.handles)

    def attach(self, index: int) -> Table:
        """Return one partition, by its position in ``handles``; see :meth:`Handle.attach`.

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
        """Return all partitions as one table over the shared memory; copies nothing.

        Raises
        ------
        ObjectNotFound
            If partitions were released, or went with the process that owned them; the error lists them.
        StorageError
            If partitions lie on other hosts, or this process may not read them; the error lists them.
        """
        return self.read_rows(0, self.num_rows)

    def read_rows(self, start: int, stop: int) -> Table:
        """Return rows ``start`` to ``stop``, counted over all partitions; attaches only to the partitions needed.

        Raises
        ------
        IndexOutOfRange
            If there are no such rows.
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

    def map(self, spark: SparkSession, function: Callable[[Table], Any], schema: str | StructType) -> DataFrame:
        """Run a function on each partition in a Spark job whose workers attach to the shared memory.

        Parameters
        ----------
        spark : SparkSession
            A session, classic or of Spark Connect, whose workers run on the hosts that have the objects.
        function : callable
            Takes a :class:`Table` over the shared memory. Gives a batch or a table of shmarrow, pyarrow, polars or
            pandas, a dict of columns, an iterable of these, such as a generator, or None for no rows.
        schema : str or StructType
            Names and Spark types of the columns that it gives, as ``"city string, trips long"``. Columns are matched by
            name, and cast to these types where no value changes.

        Returns
        -------
        DataFrame
            What the function gave for all partitions, in their order; as always with Spark, computed when it is asked
            for. Columns that have Spark's types already are copied once, when the worker sends them to Spark.

        Raises
        ------
        InvalidArgument
            If Spark cannot parse the schema.
        InvalidType
            If an argument is of another type, or Spark takes no column of one of these types from Python.

        Notes
        -----
        Errors of tasks come as Spark's, when the DataFrame is computed; the text of ours is in them: if the function
        gives something else, lacks a column, gives one too many, or a value that does not fit, or if the partition
        cannot be attached to.

        On a cluster, a classic session is told which host holds which partition. It waits for a free core there as long
        as the settings ``spark.locality.wait.node`` and ``spark.locality.wait`` say, 3 seconds by default, then runs
        the task on another host, where it fails; let it wait for longer than other tasks take. Spark Connect has no
        way to choose hosts: share to a directory that all hosts have, or use one host.
        """
        from shmarrow.spark.mapping import map_frame

        return map_frame(self.handles, spark, function, schema)

    def map_batches(
        self, spark: SparkSession, function: Callable[[Iterator[RecordBatch]], Any], schema: str | StructType
    ) -> DataFrame:
        """As :meth:`map`, for a function that takes the batches of a partition one by one.

        Parameters
        ----------
        spark : SparkSession
            As for :meth:`map`.
        function : callable
            Takes an iterator of :class:`RecordBatch` over the shared memory; gives what :meth:`map` takes, usually an
            iterator of batches.
        schema : str or StructType
            As for :meth:`map`.
        """
        from shmarrow.spark.mapping import OverBatches, map_frame

        return map_frame(self.handles, spark, OverBatches(function), schema)

    def to_df(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a Spark DataFrame, with the schema of the shared DataFrame, if any.

        Rows travel from workers to Spark whenever the DataFrame is computed. Where a frame has no schema of Spark's,
        its columns get the types that ``for_consumer("spark")`` chooses.

        Raises
        ------
        InvalidType
            If Spark takes no column of a type from Python: CalendarInterval, and year-month intervals within others.
        Unsupported
            If Spark has no type for a column.
        """
        from shmarrow.spark.mapping import to_df

        return to_df(self.handles, spark, self.schema, self.spark_schema)

    def to_torch(
        self,
        *,
        columns: Iterable[int | str] | None = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> BatchDataset:
        """The rows as a map-style data set for a DataLoader; see :class:`shmarrow.torch.BatchDataset`.

        With ``rank`` and ``world_size`` it has one share of the rows, of as many as any other.

        Raises
        ------
        StorageError
            If partitions that have these rows cannot be attached to; the error lists them.
        MissingExtra
            If torch is not installed.
        """
        from shmarrow.torch import BatchDataset

        return BatchDataset(self, columns=columns, transform=transform, rank=rank, world_size=world_size)

    def release(self) -> None:
        """Delete all objects; processes that have them attached keep them. Releasing twice is allowed.

        Nothing else in its stores is touched. What lies on other hosts is removed by a job of the active classic
        session, which is given 10 seconds; otherwise it goes with the executors that wrote it.
        """
        here = {handle.home.driver_store() for handle in self.handles} | {self.home.driver_store()}
        for store in here - {None}:
            assert store is not None
            delete_frame(store, self.name)
        elsewhere = [handle for handle in self.handles if not handle.is_here]
        if elsewhere:
            from shmarrow.spark.mapping import release_elsewhere

            release_elsewhere(elsewhere, self.name)

    def __len__(self) -> int:
        return len(self.handles)

    def __enter__(self) -> Self:
        self._entered = os.getpid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered == os.getpid():  # a forked child that leaves the block releases nothing of its parent's
            self.release()

    def __repr__(self) -> str:
        return f"<SharedFrame {self.name!r}, {len(self)} partitions, {self.num_rows} rows, {self.size} bytes>"


def _attached(handles: Sequence[Handle]) -> list[Table]:
    """The tables of some partitions, or one error for all that cannot be had."""
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
        f"{first.strerror}",
    )
