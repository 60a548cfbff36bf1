"""What Spark carries to other hosts for the driver: objects of its store, together, and by which ways.

Rules kept here:

* a carrier is made from the objects as they are mapped: there is no second copy in Python's memory;
* what was carried is carried again when the session was stopped and there is another one, and after ``unpersist``; the
  old copies are removed then, so there is one at most;
* only the process that had it carried has it removed: a forked child leaves it alone.
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
from shmarrow.spark.jobs import is_connect, worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shmarrow.store import Store

ALIGNMENT = 64
_TOKEN = 16
"""Bytes of what tells a file of Spark's from all others."""
_SMALLEST = 1 << 16
"""Bytes from which on pickle writes a buffer from where it is, apart from what is before it."""
_MARK = 64
"""Bytes at both ends of an object that are compared with what Spark's file has."""


class Cargo:
    """Objects of the driver's store, which Spark carries where its workers may run on other hosts.

    Thread safety: any thread may use it. In a forked child it only says how its parent had them carried.

    Parameters
    ----------
    session : SparkSession
        The session of whose workers they are for.
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
        """The ways to the objects, in their order, which are made here if need be; none where all see the store."""
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
            self._session, self._carried, self._is_current = session, [], False
            self._is_needed = not runs_here(session, self._home)
        if self._is_needed and not self._is_current:
            store = self._home.driver_store()
            assert store is not None
            before, self._carried = self._carried, carry(self._session, store, self._names)
            self._is_current = True
            for each in before:
                each.destroy(False)

    def unpersist(self, blocking: bool) -> None:
        """Remove the copies of executors; functions that are pickled from now on have new ones made."""
        with self._lock:
            for each in self._carried[:1]:  # all lie in one
                each.unpersist(blocking)
            # A worker that starts later could look for the removed file, so the next use has Spark carry a new one.
            self._is_current = self._is_current and is_connect(self._session)

    def destroy(self, blocking: bool) -> None:
        """Remove all copies; nothing is carried again. Safe to call again."""
        with self._lock:
            self._ended = True
            carried, self._carried = self._carried, []
            for each in carried:
                each.destroy(blocking)


class Carried:
    """One object of a cargo, as a carrier that is pickled as the one that leads to it then."""

    def __init__(self, cargo: Cargo, index: int) -> None:
        self.cargo = cargo
        self.index = index

    def open(self) -> Found:
        raise NotHere("nothing is carried to the driver")

    def unpersist(self, blocking: bool) -> None:
        self.cargo.unpersist(blocking)

    def destroy(self, blocking: bool) -> None:
        """Remove it with all of its cargo."""
        self.cargo.destroy(blocking)

    def __reduce__(self) -> tuple[Any, ...]:
        carriers = self.cargo.carriers()
        return _alone, (carriers[self.index] if carriers else None,)


def _alone(carrier: Carrier | None) -> Carrier | None:
    return carrier


def check_collected(value: object) -> None:
    """Refuse a DataFrame of Spark, which has an Arrow stream too, but would come from the workers to the driver."""
    if any(each.__name__ == "DataFrame" and each.__module__.startswith("pyspark.") for each in type(value).__mro__):
        raise InvalidType(
            "this is a DataFrame of Spark: share(df) keeps its rows on the workers; pass df.toArrow() to collect it "
            "first"
        )


def is_stopped(session: SparkSession) -> bool:
    """Whether a session has ended, with all that Spark carried for it."""
    ended = session.is_stopped if is_connect(session) else session.sparkContext._jsc is None  # type: ignore[attr-defined]
    return bool(ended)


def successor(session: SparkSession) -> SparkSession | None:
    """The session of the same kind that came after one that was stopped, if there is one."""
    if is_connect(session):
        return type(session).getActiveSession()
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return None if context is None else type(session)(context)


def carry(spark: SparkSession, store: Store, names: Sequence[str]) -> list[Carrier]:
    """Have Spark carry objects of a store to its executors; the ways to them, in their order."""
    segments = [store.attach(name) for name in names]
    if is_connect(spark):
        return [*in_artifacts(spark, dict(zip([name.replace("/", "-") for name in names], segments, strict=True)))]
    return [*in_broadcast(spark.sparkContext, segments)]


def in_broadcast(context: Any, segments: Sequence[Segment]) -> list[InBroadcast]:
    """Have Spark carry objects to its executors, as the contents of one broadcast.

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
            stacklevel=7,  # who called broadcast() or share_table()
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
    """Objects that pickle writes as they are, each at a multiple of 64 bytes from the start of the file.

    A token is before each of them.

    Attributes
    ----------
    offsets : list of int
        Where they are in the file.
    """

    def __init__(self, objects: Sequence[Bytes], token: bytes) -> None:
        self._objects = objects
        self._token = token
        self._written = [_at_least(each, _SMALLEST) for each in objects]
        # 64 to 127 bytes of padding all take the same number of bytes before them.
        self._paddings = [ALIGNMENT] * len(objects)
        moved = 0
        for i, offset in enumerate(_offsets_of(self)):
            self._paddings[i] += -(offset + moved) % ALIGNMENT
            moved += self._paddings[i] - ALIGNMENT
        self.offsets = _offsets_of(self)

    def check(self, path: str) -> None:
        """See that a file of the pickle has the objects where they are expected."""
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
    """The result of unpickling a parcel, which nobody does: the file is mapped."""


def _at_least(data: Bytes, size: int) -> Bytes:
    return data if len(data) >= size else np.concatenate([data, np.zeros(size - len(data), np.uint8)])


class _Ruler:
    """A file that only knows how long it is, and where its large pieces begin."""

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
    """Have a Spark Connect server carry objects to its executors, as files of the session with these names."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="shmarrow-") as directory:
        paths = [os.path.join(directory, name) for name in objects]
        for path, segment in zip(paths, objects.values(), strict=True):
            os.symlink(segment.location, path)
        spark.addArtifacts(*paths, file=True)
    return [InArtifacts(name, segment.size) for name, segment in objects.items()]


def runs_here(spark: SparkSession, home: Home) -> bool:
    """Whether all Python workers of a session see the driver's store, because they run on its host.

    A Spark Connect session whose server runs tasks by itself is asked by a job of one task.
    """
    if not is_connect(spark):
        return _is_local(spark.sparkContext.master)
    try:
        master = spark.conf.get("spark.master")
    except Exception:  # some servers do not tell
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
        yield pa.RecordBatch.from_pydict({"seen": [home.driver_store() is not None]})
