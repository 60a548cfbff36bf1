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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import ObjectNotFound, ShmarrowError, StorageError, storage_error
from shmarrow.segment import Segment
from shmarrow.segment.mappings import map_file
from shmarrow.spark.home import Home
from shmarrow.spark.jobs import is_connect, worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shmarrow.store import Store

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


_MAPPED: WeakValueDictionary[tuple[int, int], Bytes] = WeakValueDictionary()
"""By device and inode, the files that are mapped: all objects in one take its room among the addresses once."""


def _open_file(path: str, offset: int, size: int) -> Found:
    """A part of a file as an object; NotHere if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if status.st_size < offset + size:
                raise StorageError(
                    errno.EIO,
                    f"{path!r} was not written whole: expected {offset + size:,} bytes, found {status.st_size:,}",
                )
            identity = status.st_dev, status.st_ino
            whole = _MAPPED.get(identity)
            if whole is None:
                whole = _MAPPED[identity] = map_file(fd, status.st_size, path, status)
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise NotHere(f"there is no file {path!r}") from None
    except ShmarrowError:
        raise
    except OSError as error:
        raise storage_error(error, "map", path) from None
    return Found(Segment(path, path, whole[offset : offset + size], status), partial(_is_same, path, identity))


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
        broadcast, name = self.broadcast, f"Spark's broadcast {self.number}"
        if broadcast is not None and broadcast._jbroadcast is None and hasattr(broadcast, "_value"):
            # Spark has decrypted it, so it is in the memory of this process.
            data = np.frombuffer(broadcast._value, np.uint8)[self.offset : self.offset + self.size]
            segment = Segment(name, name, data, os.stat_result([0] * 10))
            return Found(segment, partial(_is_loaded, self.number, broadcast))
        if self.path is None:
            raise NotHere(
                f"Spark did not send its broadcast {self.number} to this process, as it does only for functions that "
                "it pickles together with the broadcast"
            )
        found = _open_file(self.path, self.offset, self.size)
        if broadcast is None:
            return found
        # Spark does not send it again to a worker that has it, also if its file was removed by unpersist.
        return Found(found.segment, partial(_is_loaded, self.number, broadcast))

    def unpersist(self, blocking: bool) -> None:
        if self._is_running:
            self.broadcast.unpersist(blocking)

    def destroy(self, blocking: bool) -> None:
        """Remove the broadcast, which other objects may lie in, too; safe to call again."""
        broadcast = self.broadcast
        if self._is_running and os.path.exists(broadcast._path):
            broadcast._pickle_registry._registry.discard(broadcast)  # pickled since the last job: none must send it
            broadcast.destroy(blocking)

    @property
    def _is_running(self) -> bool:
        """Whether this is the driver, and its session runs; when it stops, it removes its broadcasts."""
        broadcast = self.broadcast
        return broadcast is not None and broadcast._sc is not None and broadcast._sc._jsc is not None

    def __reduce__(self) -> tuple[Any, ...]:
        broadcast = self.broadcast
        if broadcast is not None and broadcast._jbroadcast is not None:
            broadcast._pickle_registry.add(broadcast)  # as its own __reduce__ does
        return _received, (self.number, self.offset, self.size, self.path)


def _is_loaded(number: int, broadcast: Any) -> bool:
    """Whether Spark still has a broadcast for the tasks of this worker."""
    return sys.modules["pyspark.core.broadcast"]._broadcastRegistry.get(number) is broadcast


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
    if not context._encryption_enabled:
        parcel = Parcel([segment.data for segment in segments])
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
            stacklevel=3,
        )
        broadcast = context.broadcast(b"".join([segment.data.data for segment in segments]))
        offsets = [0, *accumulate([segment.size for segment in segments])]
    number = broadcast._jbroadcast.id()
    made = [InBroadcast(number, offset, each.size) for offset, each in zip(offsets, segments, strict=False)]
    for each in made:
        each.broadcast = broadcast
    return made


class Parcel:
    """Objects that pickle writes as they are, each at a multiple of 64 bytes from the start of the file.

    Attributes
    ----------
    offsets : list of int
        Where they are in the file.
    """

    def __init__(self, objects: Sequence[Bytes]) -> None:
        self._objects = objects
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
                for start in (0, max(len(data) - _MARK, 0)):
                    expected = data[start : start + _MARK].tobytes()
                    if offset % ALIGNMENT or os.pread(file.fileno(), len(expected), offset + start) != expected:
                        raise StorageError(
                            errno.EIO, f"the file {path!r} of Spark's broadcast has no object at {offset}"
                        )

    def __reduce__(self) -> tuple[Any, ...]:
        pieces: list[Any] = []
        for padding, data in zip(self._paddings, self._written, strict=True):
            pieces += [bytes(padding), pickle.PickleBuffer(data.data)]
        return _nothing, tuple(pieces)


def _nothing(*pieces: bytes) -> None:
    """What a parcel is unpickled to: nobody does, as the file is mapped."""


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
