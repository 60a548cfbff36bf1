"""Carriers: the ways in which an object of the driver reaches a process.

=============  =======================================  ====================================================
carrier        where                                    what is mapped
=============  =======================================  ====================================================
`InStore`      wherever the driver's store is visible   the object itself
`InBroadcast`  workers of a classic session             the file of a Spark broadcast, one on each executor
`InArtifacts`  workers of a Spark Connect session       a file among the artifacts, one on each executor
=============  =======================================  ====================================================

Invariants:

* Spark transfers the bytes; a carrier only locates them;
* a carrier that does not work in this process raises :class:`NotHere`, and the next one is tried. An object that was
  removed from a visible store is gone, whatever copies of it remain;
* the numbers of Spark's broadcasts start again with each session, so a token in the file identifies it. It also marks
  where the objects begin.
"""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import ObjectNotFound, StorageError
from shmarrow.segment import Segment, attach
from shmarrow.segment.host import host_name
from shmarrow.spark import _pyspark
from shmarrow.spark.home import Home, in_worker, removing

BEFORE = 1024
"""The first bytes of a Spark broadcast, among which its token is."""


class NotHere(Exception):
    """A carrier does not work in this process; the message says why."""


class Found(NamedTuple):
    """The object located by a carrier.

    Attributes
    ----------
    segment : Segment
        The bytes of the object.
    is_there : callable
        Returns whether the object still exists, within microseconds.
    """

    segment: Segment
    is_there: Callable[[], bool]


class Carrier(Protocol):
    """A picklable way to reach an object."""

    def open(self) -> Found:
        """Map the object; NotHere if that is not possible in this process."""
        ...

    def destroy(self, blocking: bool) -> None:
        """On the driver: remove everything created for this carrier."""
        ...


def open_first(what: str, carriers: Iterable[Carrier]) -> Found:
    """Open an object through the first carrier that works.

    Raises
    ------
    StorageError
        If none works, with their reasons; or if the address space is too small to map it.
    """
    reasons = []
    for carrier in carriers:
        try:
            return carrier.open()
        except NotHere as reason:
            reasons.append(str(reason))
    why = "; ".join(reasons) or "nothing carries it here"
    raise StorageError(errno.EREMOTE, f"cannot reach {what}, from this process, on host {host_name()!r}: {why}")


@contextmanager
def mapping(what: str, size: int | None = None) -> Iterator[None]:
    """Raise an error that names Spark's setting if the address space limit of a worker prevents a mapping."""
    try:
        yield
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            raise
        nbytes = "" if size is None else f", {size:,} bytes"
        raise StorageError(
            errno.ENOMEM,
            f"cannot map {what}{nbytes}: the address space of this process is limited to {limit:,} bytes (RLIMIT_AS), "
            "and mapped files count as well; raise spark.executor.pyspark.memory, which sets that limit, by at least "
            "as much, or do not set it",
        ) from None


# --- the driver's store -----------------------------------------------------------------------------------------


class InStore(NamedTuple):
    """The object of a store."""

    home: Home
    name: str

    def open(self) -> Found:
        store = self.home.visible_store()
        if store is None:
            raise NotHere(f"the store {self.home.where!r} is not on this host, or not for this user")
        try:
            return Found(store.attach(self.name), partial(store.__contains__, self.name))
        except ObjectNotFound:
            raise ObjectNotFound(
                errno.ENOENT,
                f"{self.name!r} is no longer in the store {self.home.where!r}: it was destroyed, "
                "or the driver or executor that owned it has ended. DataFrames are computed when they are asked for: "
                "collect or write them before that",
            ) from None

    def destroy(self, blocking: bool) -> None:
        """Remove the object; processes that have it attached keep it."""
        store = self.home.visible_store()
        if store is not None:
            with removing():
                store.delete(self.name)


# --- files of Spark ---------------------------------------------------------------------------------------------


_MAPPED: WeakValueDictionary[tuple[int, int], Bytes] = WeakValueDictionary()
"""The mapped files by device and inode: all objects in a file share one mapping."""


def _mapped(path: str) -> tuple[Bytes, os.stat_result]:
    """Map a file; NotHere if there is none."""
    try:
        found = attach(path)
    except ObjectNotFound:
        raise NotHere(f"there is no file {path!r}") from None
    return _MAPPED.setdefault((found.status.st_dev, found.status.st_ino), found.data), found.status


def _part(path: str, whole: Bytes, start: int, size: int, status: os.stat_result) -> Segment:
    if len(whole) < start + size:
        raise StorageError(
            errno.EIO, f"{path!r} was not written whole: expected {start + size:,} bytes, found {len(whole):,}"
        )
    return Segment(path, path, whole[start : start + size], status)


_STOPPED = "the session that carried it was stopped"
_IN_MEMORY = os.stat_result([0o600, *[0] * 9], {"st_ctime_ns": 0})
"""The status of a copy in memory: writable, so that no cache takes two copies for one file."""


class InBroadcast:
    """An object in the file of a Spark broadcast on each executor.

    If it is pickled as part of a Spark function, Spark sends the broadcast to the executors that run the function.

    Parameters
    ----------
    broadcast : Broadcast or None
        Spark's broadcast; None in a process to which Spark did not send it.
    token : bytes
        What precedes the first object in it.
    start, size : int
        Where the object begins after the token, and its size, in bytes.
    """

    def __init__(self, broadcast: Any, token: bytes, start: int, size: int) -> None:
        self.broadcast = broadcast
        self.token = token
        self.start = start
        self.size = size

    def open(self) -> Found:
        broadcast = self.broadcast
        if broadcast is None:
            raise NotHere(
                "Spark did not send it to this process, as it does only for functions that it pickles together with "
                f"the broadcast; or {_STOPPED}, and this is a pickle from before"
            )
        path = _pyspark.file_of(broadcast)
        if path is not None:
            whole, status = _mapped(path)
        else:  # Spark encrypts its files: this process has a copy of its own
            path, whole, status = "Spark's broadcast", np.frombuffer(broadcast.value, np.uint8), _IN_MEMORY
        at = whole[:BEFORE].tobytes().find(self.token)
        if at < 0:
            raise NotHere(f"{path!r} is a different broadcast: {_STOPPED}")
        segment = _part(path, whole, at + len(self.token) + self.start, self.size, status)
        return Found(segment, partial(_pyspark.is_loaded, broadcast))

    def destroy(self, blocking: bool) -> None:
        """Remove the broadcast, which may contain other objects, too."""
        from shmarrow.spark.jobs import persist

        _pyspark.forget(self.broadcast)
        persist(partial(self.broadcast.destroy, blocking))

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (pickle.dumps(self.broadcast), self.token, self.start, self.size)


def _received(broadcast: bytes, token: bytes, start: int, size: int) -> InBroadcast:
    """Unpickle in any process; only workers have the broadcast."""
    try:
        found = pickle.loads(broadcast)
    except Exception:  # Spark's, which says that it is not loaded; or there is no pyspark
        found = None
    return InBroadcast(found, token, start, size)


class InArtifacts(NamedTuple):
    """A file among the artifacts of a Spark Connect session."""

    name: str
    size: int

    def open(self) -> Found:
        if not in_worker():
            raise NotHere("this process is not running a task of Spark, which has the files of the session")
        from pyspark import SparkFiles

        path = SparkFiles.get(self.name)
        whole, status = _mapped(path)
        return Found(_part(path, whole, 0, self.size, status), partial(os.path.exists, path))

    def destroy(self, blocking: bool) -> None:
        """Spark keeps artifacts as long as the session."""
