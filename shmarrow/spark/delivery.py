# SPDX-License-Identifier: Apache-2.0
"""Delivery: the ways in which an object of the driver reaches a process.

=============  =======================================  ====================================================
way            where                                    what is mapped
=============  =======================================  ====================================================
`InStore`      wherever the driver's store is visible   the object itself
`InBroadcast`  workers of a classic session             the file of a Spark broadcast, one on each executor
`InArtifacts`  workers of a Spark Connect session       a file among the artifacts, one on each executor
=============  =======================================  ====================================================

Invariants:

* objects are sent once, in the session in which they were made. Spark transfers the bytes; a way only locates them;
* a way that does not work in this process raises :class:`NotHere`, and the next one is tried. An object that was
  removed from a visible store is gone, whatever copies of it remain;
* the numbers of Spark's broadcasts start again with each session, so a token in the file identifies it. It also marks
  where the objects begin.
"""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidType, ObjectNotFound, StorageError
from shmarrow.memory import Segment, attach, host_name
from shmarrow.spark import _pyspark
from shmarrow.spark.app_store import AppStore, in_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIGNMENT = 64
_SMALLEST = 1 << 16
"""Size in bytes from which pickle writes a bytes object behind a header of known size."""
BEFORE = 1024
"""The first bytes of a Spark broadcast, among which its token is."""


class NotHere(Exception):
    """A way does not work in this process; the message says why."""


class Reached(NamedTuple):
    """An object that was reached.

    Attributes
    ----------
    segment : Segment
        The bytes of the object.
    exists : callable
        Returns whether the object still exists, within microseconds.
    """

    segment: Segment
    exists: Callable[[], bool]


class Way(Protocol):
    """A picklable way to reach an object."""

    def open(self) -> Reached:
        """Map the object; NotHere if that is not possible in this process."""
        ...

    def destroy(self, blocking: bool) -> None:
        """On the driver: remove everything created for this way."""
        ...


def open_first(what: str, ways: Iterable[Way]) -> Reached:
    """Open an object in the first way that works.

    Raises
    ------
    StorageError
        If none works, with their reasons; or if the address space is too small to map it.
    """
    reasons = []
    for way in ways:
        try:
            return way.open()
        except NotHere as reason:
            reasons.append(str(reason))
    why = "; ".join(reasons) or "nothing carries it here"
    raise StorageError(errno.EREMOTE, f"cannot reach {what}, from this process, on host {host_name()!r}: {why}")


@contextmanager
def explaining_limits(what: str, size: int | None = None) -> Iterator[None]:
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

    store: AppStore
    name: str

    def open(self) -> Reached:
        store = self.store.visible()
        if store is None:
            raise NotHere(f"the store {self.store.where!r} is not on this host, or not for this user")
        try:
            return Reached(store.attach(self.name), partial(store.__contains__, self.name))
        except ObjectNotFound:
            raise ObjectNotFound(
                errno.ENOENT,
                f"{self.name!r} is no longer in the store {self.store.where!r}: it was destroyed, "
                "or the driver or executor that owned it has ended. DataFrames are computed when they are asked for: "
                "collect or write them before that",
            ) from None

    def destroy(self, blocking: bool) -> None:
        """Remove the object; processes that have it attached keep it."""
        self.store.delete_here(self.name)


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

    def open(self) -> Reached:
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
        return Reached(segment, partial(_pyspark.is_loaded, broadcast))

    def destroy(self, blocking: bool) -> None:
        """Remove the broadcast, which may contain other objects, too."""
        _pyspark.forget(self.broadcast)
        with suppress(Exception):  # the session may be gone
            self.broadcast.destroy(blocking)

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

    def open(self) -> Reached:
        if not in_worker():
            raise NotHere("this process is not running a task of Spark, which has the files of the session")
        from pyspark import SparkFiles

        path = SparkFiles.get(self.name)
        whole, status = _mapped(path)
        return Reached(_part(path, whole, 0, self.size, status), partial(os.path.exists, path))

    def destroy(self, blocking: bool) -> None:
        """Spark keeps artifacts as long as the session."""


# --- on the driver ----------------------------------------------------------------------------------------------


def check_collected(value: object) -> None:
    """Reject a Spark DataFrame, which has an Arrow stream, too, but would be collected to the driver."""
    if _pyspark.is_spark(value, "DataFrame"):
        raise InvalidType(
            "this is a DataFrame of Spark: share(df) keeps its rows on the workers; pass df.toArrow() to collect it "
            "first"
        )


def send(spark: SparkSession, found: AppStore, names: Sequence[str]) -> Sequence[Way]:
    """Let Spark send objects of the driver's store, and return the ways to them, in order; none if all see it."""
    if not names or runs_here(spark, found):
        return ()
    store = found.store()
    segments = [store.attach(name) for name in names]
    if _pyspark.is_connect(spark):
        return in_artifacts(spark, dict(zip([name.replace("/", "-") for name in names], segments, strict=True)))
    return in_broadcast(spark.sparkContext, segments)


def in_broadcast(context: Any, segments: Sequence[Segment]) -> list[InBroadcast]:
    """Send objects to Spark's executors in one broadcast, each aligned to 64 bytes in its file.

    Where Spark encrypts its files, they cannot be mapped, and each worker loads a copy of its own.
    """
    token = os.urandom(16)
    starts, end = [], 0
    for segment in segments:
        starts.append(end)
        end += segment.size + -segment.size % ALIGNMENT
    before = bytes(-(_pyspark.pickled_offset(end) + len(token)) % ALIGNMENT) + token
    pieces = [part for each in segments for part in (each.data.data, bytes(-each.size % ALIGNMENT))]
    broadcast = context.broadcast(b"".join([before, *pieces, bytes(max(_SMALLEST - end, 0))]))
    return [InBroadcast(broadcast, token, start, each.size) for start, each in zip(starts, segments, strict=True)]


def in_artifacts(spark: Any, objects: Mapping[str, Segment]) -> list[InArtifacts]:
    """Send objects to the executors of a Spark Connect server, as session artifacts with these names."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="shmarrow-") as directory:
        paths = [os.path.join(directory, name) for name in objects]
        for path, segment in zip(paths, objects.values(), strict=True):
            os.symlink(segment.location, path)
        spark.addArtifacts(*paths, file=True)
    return [InArtifacts(name, segment.size) for name, segment in objects.items()]


def runs_here(spark: SparkSession, store: AppStore) -> bool:
    """Whether all Python workers of a session see the driver's store, because they run on its host.

    For a Spark Connect session whose server runs in local mode, a job of one task finds out.
    """
    from shmarrow.spark.jobs import worker_errors

    if not _pyspark.is_local(spark):
        return False
    if not _pyspark.is_connect(spark):
        return True
    with worker_errors():
        rows = spark.range(0, 1, 1, 1).mapInArrow(partial(_look, store), "seen boolean").collect()
    return bool(rows[0]["seen"])


def _look(store: AppStore, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"seen": [store.visible() is not None]})
