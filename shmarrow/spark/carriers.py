"""How an object of the driver gets to a process: the ways, each of which ends in a mapped file.

=============  =======================================  ====================================================
carrier        where                                    what is mapped
=============  =======================================  ====================================================
`InStore`      wherever the driver's store is visible   the object itself
`InBroadcast`  workers of a classic session             the file of a Spark broadcast, one on each executor
`InArtifacts`  workers of a Spark Connect session       a file among the artifacts, one on each executor
=============  =======================================  ====================================================

Rules kept here:

* Spark carries the bytes; a carrier only knows where they are;
* a carrier that does not lead anywhere in this process says so (:class:`NotHere`), and the next one is tried. An object
  that is gone from a store that is visible is gone, whatever copies of it there may be;
* nothing is unpickled of what Spark carries, but where Spark has it encrypted;
* the driver makes a carrier from the object as it is mapped: there is no second copy in Python's memory.
"""

from __future__ import annotations

import errno
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import ObjectNotFound, ShmarrowError, StorageError, storage_error
from shmarrow.segment import Segment
from shmarrow.segment.mappings import map_file
from shmarrow.spark.home import Home
from shmarrow.spark.jobs import is_connect, worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIGNMENT = 64
_SMALLEST = 1 << 16
"""Bytes from which on pickle writes a buffer from where it is, apart from what is before it."""
_MARK = 64
"""Bytes at both ends of an object that are compared with what Spark's file has."""


class NotHere(Exception):
    """A carrier leads nowhere in this process; says why."""


class Found(NamedTuple):
    """What a carrier leads to.

    Attributes
    ----------
    segment : Segment
        The bytes of the object.
    is_there : callable
        Says whether the object is still there, within microseconds.
    """

    segment: Segment
    is_there: Callable[[], bool]


class Carrier(Protocol):
    """A way to an object; picklable."""

    def open(self) -> Found:
        """The object; NotHere if this way leads nowhere in this process."""
        ...

    def unpersist(self, blocking: bool) -> None:
        """On the driver: remove the copies on the executors; they come again when they are needed."""
        ...

    def destroy(self, blocking: bool) -> None:
        """On the driver: remove everything that was made for this carrier."""
        ...


def open_first(what: str, carriers: Iterable[Carrier]) -> Found:
    """The object by the first carrier that leads to it.

    Raises
    ------
    StorageError
        If none does; it says what was tried. If there is no room to map it.
    """
    reasons = []
    for carrier in carriers:
        try:
            return carrier.open()
        except NotHere as reason:
            reasons.append(str(reason))
    raise StorageError(errno.EREMOTE, f"cannot reach {what} from this process: {'; '.join(reasons)}")


@contextmanager
def mapping(what: str, size: int | None = None) -> Iterator[None]:
    """Name Spark's setting where the block cannot map an object for the limit of a Python worker's addresses."""
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
            f"cannot map {what}{nbytes}: the address space of this process is limited to {limit:,} bytes "
            f"(RLIMIT_AS){_taken()}, and mapped files count as well; raise spark.executor.pyspark.memory, which sets "
            "that limit, by at least as much, or do not set it",
        ) from None


def _taken() -> str:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return f", {int(file.read().split()[0]) * os.sysconf('SC_PAGE_SIZE'):,} of them taken"
    except (OSError, ValueError):
        return ""


# --- the driver's store -----------------------------------------------------------------------------------------


class InStore(NamedTuple):
    """The object of a store."""

    home: Home
    name: str

    def open(self) -> Found:
        store = self.home.driver_store()
        if store is None:
            raise NotHere(f"the driver's store {self.home.where!r} is not on this host, or not for this user")
        try:
            return Found(store.attach(self.name), partial(store.__contains__, self.name))
        except ObjectNotFound:
            raise ObjectNotFound(
                errno.ENOENT,
                f"there is no {self.name!r} any more in the store {self.home.where!r}: it was destroyed, or the driver "
                "that made it has ended",
            ) from None

    def unpersist(self, blocking: bool) -> None:
        """There is but the one object."""

    def destroy(self, blocking: bool) -> None:
        """Remove the object; those who have it attached keep it."""
        store = self.home.driver_store()
        if store is not None:
            with suppress(ObjectNotFound):
                store.delete(self.name)


# --- files of Spark ---------------------------------------------------------------------------------------------


def _open_file(path: str, offset: int, size: int) -> Found:
    """A part of a file as an object; NotHere if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if status.st_size < offset + size:
                raise StorageError(
                    errno.EIO,
                    f"{path!r} has {status.st_size:,} bytes, expected {offset + size:,}: it was not written whole",
                )
            data = map_file(fd, offset + size, path, status)[offset:]
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise NotHere(f"there is no file {path!r}") from None
    except ShmarrowError:
        raise
    except OSError as error:
        raise storage_error(error, "map", path) from None
    return Found(Segment(path, path, data, status), partial(_is_same, path, (status.st_dev, status.st_ino)))


def _is_same(path: str, identity: tuple[int, int]) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == identity


class InBroadcast:
    """A range of the file that each executor has of one of Spark's broadcasts.

    Pickled while Spark pickles a function, it has Spark send the broadcast to the executors that run it.
    """

    def __init__(self, number: int, offset: int, size: int, path: str | None = None) -> None:
        self.number = number
        self.offset = offset
        self.size = size
        self.path = path
        self.broadcast: Any = None

    def open(self) -> Found:
        broadcast = self.broadcast
        if broadcast is not None and broadcast._jbroadcast is None and hasattr(broadcast, "_value"):
            # Spark has decrypted it, so it is in the memory of this process.
            data = np.frombuffer(broadcast._value, np.uint8)[self.offset : self.offset + self.size]
            name = f"Spark's broadcast {self.number}"
            return Found(
                Segment(name, name, data, os.stat_result([0] * 10)), partial(_is_loaded, self.number, broadcast)
            )
        if self.path is None:
            raise NotHere(
                f"Spark did not send its broadcast {self.number} to this process, as it does only for functions that "
                "it pickles together with the broadcast"
            )
        return _open_file(self.path, self.offset, self.size)

    def unpersist(self, blocking: bool) -> None:
        if _is_running(self.broadcast):
            self.broadcast.unpersist(blocking)

    def destroy(self, blocking: bool) -> None:
        broadcast = self.broadcast
        broadcast._pickle_registry._registry.discard(broadcast)  # pickled since the last job, which must not send it
        if _is_running(broadcast):
            broadcast.destroy(blocking)

    def __reduce__(self) -> tuple[Any, ...]:
        broadcast = self.broadcast
        if broadcast is not None and broadcast._jbroadcast is not None:
            broadcast._pickle_registry.add(broadcast)  # as its own __reduce__ does
        return _received, (self.number, self.offset, self.size, self.path)


def _is_loaded(number: int, broadcast: Any) -> bool:
    """Whether Spark still has a broadcast for the tasks of this worker."""
    return sys.modules["pyspark.core.broadcast"]._broadcastRegistry.get(number) is broadcast


def _is_running(broadcast: Any) -> bool:
    """Whether the session that made a broadcast still runs; when it stops, it removes its broadcasts."""
    return broadcast._sc is not None and broadcast._sc._jsc is not None


def _received(number: int, offset: int, size: int, path: str | None) -> InBroadcast:
    """In a worker: with what Spark has sent."""
    made = InBroadcast(number, offset, size, path)
    module = sys.modules.get("pyspark.core.broadcast")
    broadcast = None if module is None else module._broadcastRegistry.get(number)
    if broadcast is not None:
        made.broadcast = broadcast
        made.path = getattr(broadcast, "_path", None)
    return made


class InArtifacts(NamedTuple):
    """A file among the artifacts of a Spark Connect session."""

    name: str
    size: int

    def open(self) -> Found:
        module = sys.modules.get("pyspark.core.files")
        if module is None or not module.SparkFiles._is_running_on_worker:
            raise NotHere("this process is no Python worker of Spark's, which has the files of the session")
        return _open_file(module.SparkFiles.get(self.name), 0, self.size)

    def unpersist(self, blocking: bool) -> None:
        """Spark keeps artifacts as long as the session."""

    def destroy(self, blocking: bool) -> None:
        """Spark keeps artifacts as long as the session."""


# --- on the driver ----------------------------------------------------------------------------------------------


def in_broadcast(context: Any, segment: Segment) -> InBroadcast:
    """Have Spark carry an object to its executors, as the contents of a broadcast.

    Parameters
    ----------
    context : SparkContext
        Of a classic session.
    segment : Segment
        The object.
    """
    if not context._encryption_enabled:
        parcel = Parcel(segment.data)
        broadcast = context.broadcast(parcel)
        parcel.check(broadcast._path, segment)
        offset = parcel.offset
    else:
        import warnings

        warnings.warn(
            "spark.io.encryption.enabled: Spark's files cannot be mapped, so each Python worker that does not see the "
            f"driver's store has a copy of its own of {segment.name!r}, {segment.size:,} bytes",
            UserWarning,
            stacklevel=3,
        )
        broadcast = context.broadcast(segment.data.tobytes())  # Spark encrypts nothing but bytes
        offset = 0
    made = InBroadcast(broadcast._jbroadcast.id(), offset, segment.size)
    made.broadcast = broadcast
    return made


class Parcel:
    """Bytes that pickle writes as they are, at a multiple of 64 bytes from the start of the file.

    Attributes
    ----------
    offset : int
        Where they are in the file.
    """

    def __init__(self, data: Bytes) -> None:
        if len(data) < _SMALLEST:
            data = np.concatenate([data, np.zeros(_SMALLEST - len(data), np.uint8)])
        self._data = data
        self._padding = bytes(ALIGNMENT)  # from 64 to 127 bytes of it all take the same number of bytes before them
        self.offset = _offset_of(self)
        self._padding = bytes(ALIGNMENT + -self.offset % ALIGNMENT)
        self.offset = _offset_of(self)

    def check(self, path: str, segment: Segment) -> None:
        """See that a file of the pickle has the bytes where they are expected."""
        size = segment.size
        with open(path, "rb") as file:
            ends = [os.pread(file.fileno(), _MARK, self.offset + start) for start in (0, max(size - _MARK, 0))]
        expected = [segment.data[:_MARK].tobytes(), segment.data[-_MARK:].tobytes()]
        if self.offset % ALIGNMENT or [end[:size] for end in ends] != expected:
            raise StorageError(errno.EIO, f"the file {path!r} of Spark's broadcast has no object at {self.offset}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _contents, (self._padding, pickle.PickleBuffer(self._data.data))


def _contents(padding: bytes, data: bytes) -> bytes:
    return data


class _Ruler:
    """A file that only knows how long it is, and where its longest piece begins."""

    def __init__(self) -> None:
        self.position = self.start = self.longest = 0

    def write(self, piece: Any) -> None:
        size = memoryview(piece).nbytes
        if size > self.longest:
            self.start, self.longest = self.position, size
        self.position += size


def _offset_of(parcel: Parcel) -> int:
    from pyspark.serializers import pickle_protocol

    ruler = _Ruler()
    pickle.Pickler(ruler, pickle_protocol).dump(parcel)
    return ruler.start


def in_artifacts(spark: Any, segment: Segment, name: str) -> InArtifacts:
    """Have a Spark Connect server carry an object to its executors, as a file of the session."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="shmarrow-") as directory:
        path = os.path.join(directory, name)  # the name by which workers ask for it
        os.symlink(segment.location, path)
        spark.addArtifacts(path, file=True)
    return InArtifacts(name, segment.size)


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
