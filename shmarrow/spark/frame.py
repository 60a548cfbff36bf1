"""A shared frame: the handles of the partitions of one DataFrame or table, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shmarrow.batch import RecordBatch
from shmarrow.errors import InvalidType
from shmarrow.spark.handle import Handle
from shmarrow.spark.home import Home
from shmarrow.tables import Table
from shmarrow.types import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterator[pa.RecordBatch]


class SharedFrame:
    """The handles of one shared DataFrame; made by :func:`share`. As a context manager it releases at the end.

    It can be pickled, and attached to wherever its handles can.

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
        self.home = home
        self.name = name
        self.schema = schema
        self.handles = tuple(sorted(handles, key=lambda handle: handle.partition))
        self.spark_schema = spark_schema

    @property
    def num_rows(self) -> int:
        """Rows in all partitions."""
        return sum(handle.num_rows for handle in self.handles)

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(handle.size for handle in self.handles)

    def attach(self, index: int) -> Table:
        """One of the partitions, by its place in ``handles``; see :meth:`Handle.attach`."""
        return self.handles[index].attach()

    def read_all(self) -> Table:
        """All partitions as one table over the shared memory; copies nothing."""
        return Table(self.schema, [batch for handle in self.handles for batch in handle.attach().batches])

    def map(self, spark: SparkSession, function: Callable[[Table], Any], schema: str) -> DataFrame:
        """Run a function on each partition in another Spark job, whose workers attach to the shared memory.

        Parameters
        ----------
        spark : SparkSession
            A session whose workers run on the host that has the objects.
        function : callable
            Takes a :class:`Table` over the shared memory; gives a RecordBatch or Table, shmarrow's or pyarrow's.
        schema : str
            Names and Spark types of the columns that it gives, as ``"city string, trips long"``.

        Returns
        -------
        DataFrame
            What the function gave for all partitions; as always with Spark, computed when it is asked for.
        """
        empty = spark.createDataFrame([], schema)
        count = len(self.handles)
        if not count:
            return empty
        task = partial(_map_partition, self.handles, function, empty.toArrow().schema)
        return spark.range(0, count, 1, count).mapInArrow(task, schema)

    def release(self) -> None:
        """Remove all objects on this host. Who has one attached keeps it. Safe to call again.

        What lies on other hosts, in Spark's directories, goes with the executors that wrote it.
        """
        stores = {handle.home.driver_store() for handle in self.handles} | {self.home.driver_store()}
        for store in stores - {None}:
            assert store is not None
            store.delete(prefix=self.name)

    def __len__(self) -> int:
        return len(self.handles)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<SharedFrame {self.name!r}, {len(self)} partitions, {self.num_rows} rows, {self.size} bytes>"


def _map_partition(
    handles: Sequence[Handle], function: Callable[[Table], Any], schema: pa.Schema, batches: Batches
) -> Batches:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield from _spark_batches(function(handles[index].attach()), schema)


def _spark_batches(found: Any, schema: pa.Schema) -> list[pa.RecordBatch]:
    """What a user's function gave, with the types that Spark was told."""
    from shmarrow.interchange.pyarrow import partner

    pa = partner()
    if isinstance(found, (RecordBatch, Table)):
        found = found.to_pyarrow()
    if not isinstance(found, (pa.RecordBatch, pa.Table)):
        raise InvalidType(f"the function must give a RecordBatch or a Table, found {found.__class__.__name__}")
    table = found if isinstance(found, pa.Table) else pa.Table.from_batches([found])
    try:
        return list(table.select(schema.names).cast(schema).to_batches())
    except (KeyError, ValueError) as error:
        shown = f"({_columns(table.schema)}), expected ({_columns(schema)})"
        raise InvalidType(f"the function gave {shown}: {error}") from None


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
