"""Distribution of the driver's objects to other hosts by Spark.

Invariants:

* carriers are made directly from the mapped objects: there is no second copy in Python's memory;
* objects are distributed again for a new session after the old one was stopped, and after ``unpersist``; the old copies
  are removed, so there is at most one;
* only the process that distributed them removes them; a forked child never does.
"""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidType, StorageError
from shmarrow.segment import Segment
from shmarrow.spark.carriers import BEFORE, Carrier, Found, InArtifacts, InBroadcast, NotHere
from shmarrow.spark.home import Home
from shmarrow.spark.jobs import is_connect, is_stopped, worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shmarrow.store import Store

ALIGNMENT = 64
_TOKEN = 16
"""Size in bytes of the random token that identifies a file of Spark."""
_SMALLEST = 1 << 16
"""Size in bytes from which pickle writes a buffer separately, without copying it."""
_MARK = 64
"""Bytes at both ends of an object that are compared with Spark's file."""


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
        if is_stopped(self._session):
            session = successor(self._session)
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
            self._is_current = self._is_current and is_connect(self._session)

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


def successor(session: SparkSession) -> SparkSession | None:
    """Return the session of the same kind that followed a stopped one, if any."""
    if is_connect(session):
        return type(session).getActiveSession()
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return None if context is None else type(session)(context)


def carry(spark: SparkSession, store: Store, names: Sequence[str]) -> list[Carrier]:
    """Distribute objects of a store to Spark's executors, and return their carriers, in order."""
    segments = [store.attach(name) for name in names]
    if is_connect(spark):
        return [*in_artifacts(spark, dict(zip([name.replace("/", "-") for name in names], segments, strict=True)))]
    return [*in_broadcast(spark.sparkContext, segments)]


def in_broadcast(context: Any, segments: Sequence[Segment]) -> list[InBroadcast]:
    """Distribute objects to Spark's executors in one broadcast.

    Parameters
    ----------
    context : SparkContext
        Of a classic session.
    segments : sequence of Segment
        The objects.

    Warns
    -----
    UserWarning
        If Spark encrypts its files.
    """
    token = os.urandom(_TOKEN)
    if not context._encryption_enabled:
        parcel = Parcel([segment.data for segment in segments], token)
        broadcast = context.broadcast(parcel)
        parcel.check(broadcast._path)
        offsets = parcel.offsets
    else:
        import warnings

        size = sum([segment.size for segment in segments])
        warnings.warn(
            "spark.io.encryption.enabled: Spark's files cannot be mapped, so each Python worker that does not see the "
            f"driver's store has a copy of its own, of {size:,} bytes",
            UserWarning,
            stacklevel=7,  # the caller of broadcast() or share_table()
        )
        before = bytes(BEFORE - _TOKEN) + token
        pieces = [(before, segment.data.data, bytes(-segment.size % ALIGNMENT)) for segment in segments]
        broadcast = context.broadcast(b"".join([part for piece in pieces for part in piece]))
        ends = accumulate([sum(map(len, piece)) for piece in pieces])
        offsets = [BEFORE, *[end + BEFORE for end in ends]]
    number = broadcast._jbroadcast.id()
    made = [InBroadcast(number, offset, each.size, token) for offset, each in zip(offsets, segments, strict=False)]
    for each in made:
        each.broadcast = broadcast
    return made


class Parcel:
    """Objects pickled without copying, each aligned to 64 bytes in the file and preceded by a token.

    Attributes
    ----------
    offsets : list of int
        Offsets of the objects in the file.
    """

    def __init__(self, objects: Sequence[Bytes], token: bytes) -> None:
        self._objects = objects
        self._token = token
        self._written = [_at_least(each, _SMALLEST) for each in objects]
        # Paddings of 64 to 127 bytes have headers of equal size in the pickle.
        self._paddings = [ALIGNMENT] * len(objects)
        moved = 0
        for i, offset in enumerate(_offsets_of(self)):
            self._paddings[i] += -(offset + moved) % ALIGNMENT
            moved += self._paddings[i] - ALIGNMENT
        self.offsets = _offsets_of(self)

    def check(self, path: str) -> None:
        """Check that the file of the pickle contains the objects at their offsets."""
        with open(path, "rb") as file:
            for offset, data in zip(self.offsets, self._objects, strict=True):
                marked = self._token in os.pread(file.fileno(), BEFORE, offset - BEFORE)
                for start in (0, max(len(data) - _MARK, 0)):
                    expected = data[start : start + _MARK].tobytes()
                    found = os.pread(file.fileno(), len(expected), offset + start)
                    if offset % ALIGNMENT or not marked or found != expected:
                        raise StorageError(
                            errno.EIO, f"the file {path!r} of Spark's broadcast has no object at {offset}"
                        )

    def __reduce__(self) -> tuple[Any, ...]:
        pieces: list[Any] = []
        for padding, data in zip(self._paddings, self._written, strict=True):
            pieces += [bytes(padding - _TOKEN) + self._token, pickle.PickleBuffer(data.data)]
        return _nothing, tuple(pieces)


def _nothing(*pieces: bytes) -> None:
    """Unpickle a parcel to None; never used, as the file is mapped instead."""


def _at_least(data: Bytes, size: int) -> Bytes:
    return data if len(data) >= size else np.concatenate([data, np.zeros(size - len(data), np.uint8)])


class _Ruler:
    """A file that records only its size and the offsets of large pieces."""

    def __init__(self) -> None:
        self.position = 0
        self.starts: list[int] = []

    def write(self, piece: Any) -> None:
        size = memoryview(piece).nbytes
        if size >= _SMALLEST:
            self.starts.append(self.position)
        self.position += size


def _offsets_of(parcel: Parcel) -> list[int]:
    from pyspark.serializers import pickle_protocol

    ruler = _Ruler()
    pickle.Pickler(ruler, pickle_protocol).dump(parcel)
    return ruler.starts


def in_artifacts(spark: Any, objects: Mapping[str, Segment]) -> list[InArtifacts]:
    """Distribute objects to the executors of a Spark Connect server, as session artifacts with these names."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="shmarrow-") as directory:
        paths = [os.path.join(directory, name) for name in objects]
        for path, segment in zip(paths, objects.values(), strict=True):
            os.symlink(segment.location, path)
        spark.addArtifacts(*paths, file=True)
    return [InArtifacts(name, segment.size) for name, segment in objects.items()]


def runs_here(spark: SparkSession, home: Home) -> bool:
    """Whether all Python workers of a session see the driver's store, because they run on its host.

    For a Spark Connect session whose server runs in local mode, a job of one task finds out.
    """
    if not is_connect(spark):
        return _is_local(spark.sparkContext.master)
    try:
        master = spark.conf.get("spark.master")
    except Exception:  # some servers do not expose it
        return False
    if not _is_local(master):
        return False
    with worker_errors():
        rows = spark.range(0, 1, 1, 1).mapInArrow(partial(_look, home), "seen boolean").collect()
    return bool(rows[0]["seen"])


def _is_local(master: str | None) -> bool:
    return master is not None and (master == "local" or master.startswith("local["))


def _look(home: Home, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"seen": [home.visible_store() is not None]})
