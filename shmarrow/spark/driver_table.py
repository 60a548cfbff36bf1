"""A table of the driver as a shared frame: put once, used in place by the workers of every later job.

Rules kept here:

* the rows are split into objects as those of a DataFrame are, so all that frames can do is the same;
* where workers may be on other hosts, Spark carries all objects there together, as it does broadcasts.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shmarrow.codecs import decode
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, full_name, shown
from shmarrow.inputs import from_frame
from shmarrow.segment.host import host_name
from shmarrow.spark.cargo import Cargo, Carried, check_collected
from shmarrow.spark.carriers import InStore, mapping, open_first
from shmarrow.spark.frame import SharedFrame
from shmarrow.spark.handle import Handle
from shmarrow.spark.home import Home, home
from shmarrow.spark.jobs import as_session
from shmarrow.spark.sharing import parallelism
from shmarrow.tables import Table
from shmarrow.tables import table as as_table
from shmarrow.types.base import as_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from shmarrow.segment import Location
    from shmarrow.store import Store
    from shmarrow.store.attach import Pin
    from shmarrow.types import Schema

SMALLEST = 1 << 20
"""Bytes that a partition has at least, unless it is told how many there are."""


@dataclass(frozen=True, slots=True)
class CarriedHandle(Handle):
    """The handle of a partition that is also in a file distributed by Spark.

    Attributes
    ----------
    carrier : Carrier or None
        Leads to that file, if there is one.
    """

    carrier: Any

    def attach(self) -> Table:
        """Attach like :meth:`Handle.attach`, also on executors' hosts."""
        what = f"partition {self.partition}, {self.name!r}"
        with mapping(what, self.size):
            segment = open_first(what, [InStore(self.home, self.name), *filter(None, [self.carrier])]).segment
            found = decode(segment)
        if not isinstance(found, Table):
            raise InvalidData(f"{what}, is a {type(found).__name__}, not a table")
        return found


class DriverFrame(SharedFrame):
    """The frame of a driver's table in the process that shared it; unpickled elsewhere as a plain frame.

    It keeps the store from evicting the objects.
    """

    def __init__(
        self,
        home: Home,
        name: str,
        schema: Schema,
        handles: Sequence[Handle],
        pins: Sequence[Pin],
        cargo: Cargo | None = None,
    ) -> None:
        super().__init__(home, name, schema, handles)
        self._pins = pins
        self._cargo = cargo

    def release(self) -> None:
        """Delete all objects and Spark's copies.

        Processes that have one attached keep it. Releasing twice is allowed.
        """
        for pin in self._pins:
            pin.release()
        super().release()
        if self._cargo is not None and self._cargo.is_mine:
            self._cargo.destroy(False)

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedFrame, (self.home, self.name, self.schema, self.handles)


def _rows(table: Any) -> Table:
    if isinstance(table, Table):
        return table
    if full_name(table) == "pandas.DataFrame":
        # As in Spark: an index without a name is no column.
        named = any(name is not None for name in table.index.names)
        return from_frame(Table, table, preserve_index=None if named else False)
    return as_table(table)


def share_table(
    spark: SparkSession, table: Any, store: Location | Store | None = None, *, partitions: int | None = None
) -> SharedFrame:
    """Put a table of the driver into shared memory once, for the Python workers of all later jobs.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    table : object
        A table, record batch or reader of this package or of pyarrow, a data frame of pandas or polars, or anything
        with an Arrow stream. The index of a pandas DataFrame is kept as columns if it has a name, as in Spark. The rows
        are copied once, into the store.
    store : str, PathLike or Store, optional
        Where the objects lie on the driver's host; by default in the user's store for Spark, in shared memory.
    partitions : int, optional
        How many partitions the rows are split into, which differ by one row at most; not more than there are rows. By
        default as many as Spark runs tasks at once, or as there are MiB of rows if these are fewer.

    Returns
    -------
    SharedFrame
        As of :func:`share`. Where workers may run on other hosts than the driver, Spark carries the rows there, once
        for each executor. The objects stay until it is released or this process ends.

    Warns
    -----
    UserWarning
        If workers may run on other hosts, and Spark encrypts what it writes: each of them then has a copy of its own.

    Raises
    ------
    InvalidType
        If ``spark`` is no session, or ``table`` no table, or a DataFrame of Spark, which :func:`share` takes.
    InvalidArgument
        If ``partitions`` is less than 1.
    StoreFull
        If there is no room in the store; nothing is left in it then.
    """
    session = as_session(spark)
    count = None if partitions is None else as_int(partitions, "partitions")
    if count is not None and count < 1:
        raise InvalidArgument(f"partitions must be at least 1, found {count}")
    if isinstance(store, int):
        raise InvalidType(f"store must be a location or a Store, found {shown(store)}; use partitions={store}")
    check_collected(table)
    rows = _rows(table)
    if count is None:
        count = max(min(parallelism(session), rows.nbytes // SMALLEST), 1)
    count = min(count, rows.num_rows)
    found = home(store)
    opened = found.driver_store()
    assert opened is not None
    name = f"frame-{os.urandom(8).hex()}"
    handles: list[Handle] = []
    pins: list[Pin] = []
    try:
        for i in range(count):
            start, stop = i * rows.num_rows // count, (i + 1) * rows.num_rows // count
            part = rows if count == 1 else rows.slice(start, stop - start)
            each = opened.put(f"{name}/{i:05d}-0", part)
            pins.append(opened.pin(each))
            at, size, pid, host = (
                (found.where, found.id, found.user),
                opened.attach(each).size,
                os.getpid(),
                host_name(),
            )
            handles.append(Handle(*at, each, stop - start, len(part.batches), size, i, 0, pid, host, ""))
        cargo = Cargo(session, found, [handle.name for handle in handles]) if handles else None
        if cargo is not None and cargo.carriers():
            handles = [CarriedHandle(**asdict(each), carrier=Carried(cargo, i)) for i, each in enumerate(handles)]
        return DriverFrame(found, name, rows.schema, handles, pins, cargo)
    except BaseException:
        DriverFrame(found, name, rows.schema, handles, pins).release()
        raise
