# SPDX-License-Identifier: Apache-2.0
"""Host broadcast: one copy of a value per host, shared by its Python workers.

Invariants:

* the value is stored once, in the driver's store, and workers attach to it. If they cannot, Spark distributes it to
  each executor, as a file that all its workers map (:mod:`shmarrow.spark.delivery`);
* functions are pickled with references to the value, not with the value;
* a process caches attached values, also between tasks, and returns them only until they are destroyed;
* modules that only the driver needs are imported only there: a worker's first access is mostly imports.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shmarrow.errors import InvalidArgument, ObjectNotFound
from shmarrow.objects import decode
from shmarrow.spark.delivery import Way, explaining_limits, open_first
from shmarrow.spark.values import MISSING, as_given, as_stored, cache, cached, drop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shmarrow.memory import Location
    from shmarrow.store import Store
    from shmarrow.store.attach import Pin


class HostBroadcast:
    """A value stored once per host and shared by all processes; returned by :func:`broadcast`.

    Use it in any function that Spark runs in Python: it is pickled with the function, in less than 1 KiB. As a context
    manager it is destroyed on exit.

    Attributes
    ----------
    name : str
        Name of its object.
    size : int
        Size of the object in bytes.

    Notes
    -----
    Thread safety: any thread may use it. A forked child may use its parent's, which only the parent can destroy.

    It can be unpickled in any process on the driver's host, but on other hosts only as part of a function of the
    session for which it was made.
    """

    def __init__(self, name: str, size: int, ways: tuple[Way, ...], destroyed: bool = False) -> None:
        self.name = name
        self.size = size
        self._ways = ways
        self._destroyed = destroyed
        self._pin: Pin | None = None
        """On the driver: keeps the object in its store from being evicted."""
        self._pid = os.getpid()

    @property
    def value(self) -> Any:
        """The value, as a read-only view of the host's copy.

        The first access in a process maps it; later accesses return the same object within microseconds.

        Raises
        ------
        ObjectNotFound
            If it was destroyed, or the driver that made it has ended.
        StorageError
            If it is not available in this process, or its address space is too small; then the error names
            ``spark.executor.pyspark.memory``.
        """
        found = cached(self.name)
        return self._open() if found is MISSING else found

    def _gone(self) -> ObjectNotFound:
        return ObjectNotFound(errno.ENOENT, f"the broadcast {self.name!r} was destroyed")

    def _open(self) -> Any:
        if self._destroyed:
            raise self._gone()
        with explaining_limits(f"the broadcast {self.name!r}", self.size):
            found = open_first(f"the broadcast {self.name!r}", self._ways)
            value = as_given(decode(found.segment))
        return cache(self.name, value, found.exists)

    def destroy(self, blocking: bool = False) -> None:
        """Delete the value everywhere. Processes that have it mapped keep it; later accesses raise ObjectNotFound.

        Safe to call again.

        Parameters
        ----------
        blocking : bool
            Wait until the executors' copies are removed.

        Raises
        ------
        InvalidArgument
            If this is not the driver.
        """
        if self._destroyed:
            return
        if not self._is_mine:
            raise InvalidArgument(
                f"cannot destroy the broadcast {self.name!r} here: call destroy() on the driver, on the object that "
                "broadcast() returned"
            )
        assert self._pin is not None
        self._pin.close()
        for way in self._ways:
            way.destroy(blocking)
        drop(self.name)
        self._destroyed = True  # last, so that the next call completes one that was interrupted

    @property
    def _is_mine(self) -> bool:
        """Whether this is the object that :func:`broadcast` returned, in that process."""
        return self._pin is not None and self._pid == os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return HostBroadcast, (self.name, self.size, () if self._destroyed else self._ways, self._destroyed)

    def __enter__(self) -> Self:
        if self._destroyed:
            raise self._gone()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pin is None or self._is_mine:  # a child forked in the block must not destroy it
            self.destroy()

    def __repr__(self) -> str:
        how = ", ".join([type(way).__name__ for way in self._ways])
        return f"<HostBroadcast {self.name!r}, {self.size:,} bytes, {'destroyed' if self._destroyed else how}>"


def broadcast(value: Any, spark: SparkSession | None = None, store: Location | Store | None = None) -> HostBroadcast:
    """Share a value with all Python workers of a session, with one copy per host instead of one per worker.

    Parameters
    ----------
    value : object
        Any value accepted by :meth:`shmarrow.Store.put`: arrays, batches, tables and tensors, of this package and
        others; ndarrays; mappings of names to tensors; bytes, str, int, float and bool. Workers get it as returned by
        :meth:`shmarrow.Store.get`: a data frame as a Table. Any other value, and a state dict of torch, is pickled, and
        unpickled once in each worker process; its numpy arrays and torch tensors lie in shared memory, read-only. The
        value is copied once, into the store.
    spark : SparkSession, optional
        A classic session, or one of Spark Connect; by default the active one.
    store : str, PathLike or Store, optional
        The store for its object on the driver's host; by default the user's store for Spark, in shared memory. A path
        is a store on disk, whose pages the kernel can drop from memory.

    Returns
    -------
    HostBroadcast
        ``.value`` is the value, in the driver and in workers. It exists until it is destroyed or the driver ends.

    Raises
    ------
    InvalidType
        If the value can be neither stored nor pickled, or is a Spark DataFrame.
    StoreFull
        If there is not enough space in the store.

    Notes
    -----
    torch tensors in shared memory must not be written to: torch has no read-only tensors, and the write would kill the
    process. ``clone`` them, or copy them to a GPU, before training.
    """
    from shmarrow.spark.app_store import driver_store
    from shmarrow.spark.delivery import InStore, check_collected, send
    from shmarrow.spark.jobs import session_for

    session = session_for(spark, "broadcast(value)", value)
    check_collected(value)
    lies = driver_store(store)
    opened = lies.store()
    name = f"broadcast-{os.urandom(8).hex()}"
    origin = InStore(lies, name)
    try:
        opened.put(name, as_stored(value), inline=False)
        pin = opened.pin(name)  # or the store could evict it
        made = HostBroadcast(name, opened.attach(name).size, (origin, *send(session, lies, [name])))
        made._pin = pin
        return made
    except BaseException:
        origin.destroy(False)
        raise
