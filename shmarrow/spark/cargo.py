"""Distribution of the driver's objects to other hosts by Spark.

Invariants:

* objects are distributed again for a new session after the old one was stopped, and after ``unpersist``; the old copies
  are removed, so there is at most one;
* only the process that distributed them removes them; a forked child never does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidType
from shmarrow.segment import Segment
from shmarrow.spark import _pyspark
from shmarrow.spark.carriers import Carrier, Found, InArtifacts, InBroadcast, NotHere
from shmarrow.spark.home import Home
from shmarrow.spark.jobs import worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shmarrow.store import Store

ALIGNMENT = 64
_SMALLEST = 1 << 16
"""Size in bytes from which pickle writes a bytes object behind a header of known size."""


class Cargo:
    """Objects of the driver's store, distributed by Spark if workers may run on other hosts.

    Thread safety: any thread may use it. In a forked child it only returns its parent's carriers.

    Parameters
    ----------
    session : SparkSession
        The session whose workers need them.
    home : Home
        The driver's store.
    names : sequence of str
        The objects.
    """

    def __init__(self, session: SparkSession, home: Home, names: Sequence[str]) -> None:
        self._session = session
        self._home = home
        self._names = names
        self._pid = os.getpid()
        self._lock = Lock()
        self._carried: list[Carrier] = []
        self._is_current = self._ended = False
        self._is_needed = not runs_here(session, home)
        self.carriers()

    @property
    def is_mine(self) -> bool:
        """Whether this is the process that made it, not a forked child."""
        return self._pid == os.getpid()

    def carriers(self) -> list[Carrier]:
        """Return the carriers of the objects, in order, distributing them if needed; none if all workers see them."""
        if not self.is_mine:
            return self._carried
        with self._lock:
            if not self._ended:
                self._renew()
            return self._carried

    def _renew(self) -> None:
        if _pyspark.is_stopped(self._session):
            session = _pyspark.successor(self._session)
            if session is None:
                return
            self._is_needed = not runs_here(session, self._home)  # first, as it may fail
            self._session, self._carried, self._is_current = session, [], False
        if self._is_needed and not self._is_current:
            store = self._home.visible_store()
            assert store is not None
            before, self._carried = self._carried, carry(self._session, store, self._names)
            self._is_current = True
            for each in before:
                each.destroy(False)

    def unpersist(self, blocking: bool) -> None:
        """Remove the executors' copies; functions pickled from now on distribute new ones."""
        with self._lock:
            for each in self._carried[:1]:  # they share one file
                each.unpersist(blocking)
            # A worker started later could look for the removed file, so the next use distributes a new one.
            self._is_current = self._is_current and _pyspark.is_connect(self._session)

    def destroy(self, blocking: bool) -> None:
        """Remove all copies for good. Calling it twice is allowed, and completes a call that was interrupted."""
        with self._lock:
            self._ended = True
            for each in self._carried:
                each.destroy(blocking)
            self._carried = []


class Carried:
    """A carrier of one object of a cargo; pickled as the carrier that is current at that time."""

    def __init__(self, cargo: Cargo, index: int) -> None:
        self.cargo = cargo
        self.index = index

    def open(self) -> Found:
        raise NotHere("nothing is carried to the driver")

    def unpersist(self, blocking: bool) -> None:
        self.cargo.unpersist(blocking)

    def destroy(self, blocking: bool) -> None:
        """Remove all objects of its cargo."""
        self.cargo.destroy(blocking)

    def __reduce__(self) -> tuple[Any, ...]:
        carriers = self.cargo.carriers()
        return _alone, (carriers[self.index] if carriers else None,)


def _alone(carrier: Carrier | None) -> Carrier | None:
    return carrier


def check_collected(value: object) -> None:
    """Reject a Spark DataFrame, which has an Arrow stream, too, but would be collected to the driver."""
    if any(each.__name__ == "DataFrame" and each.__module__.startswith("pyspark.") for each in type(value).__mro__):
        raise InvalidType(
            "this is a DataFrame of Spark: share(df) keeps its rows on the workers; pass df.toArrow() to collect it "
            "first"
        )


def carry(spark: SparkSession, store: Store, names: Sequence[str]) -> list[Carrier]:
    """Distribute objects of a store to Spark's executors, and return their carriers, in order."""
    segments = [store.attach(name) for name in names]
    if _pyspark.is_connect(spark):
        return [*in_artifacts(spark, dict(zip([name.replace("/", "-") for name in names], segments, strict=True)))]
    return [*in_broadcast(spark.sparkContext, segments)]


def in_broadcast(context: Any, segments: Sequence[Segment]) -> list[InBroadcast]:
    """Distribute objects to Spark's executors in one broadcast, each aligned to 64 bytes in its file.

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
    """Distribute objects to the executors of a Spark Connect server, as session artifacts with these names."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="shmarrow-") as directory:
        paths = [os.path.join(directory, name) for name in objects]
        for path, segment in zip(paths, objects.values(), strict=True):
            if os.path.isabs(segment.location):
                os.symlink(segment.location, path)
            else:  # a small object, which has no file of its own
                with open(path, "wb") as file:
                    file.write(segment.data.data)
        spark.addArtifacts(*paths, file=True)
    return [InArtifacts(name, segment.size) for name, segment in objects.items()]


def runs_here(spark: SparkSession, home: Home) -> bool:
    """Whether all Python workers of a session see the driver's store, because they run on its host.

    For a Spark Connect session whose server runs in local mode, a job of one task finds out.
    """
    if not _pyspark.is_local(spark):
        return False
    if not _pyspark.is_connect(spark):
        return True
    with worker_errors():
        rows = spark.range(0, 1, 1, 1).mapInArrow(partial(_look, home), "seen boolean").collect()
    return bool(rows[0]["seen"])


def _look(home: Home, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"seen": [home.visible_store() is not None]})
