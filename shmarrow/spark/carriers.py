"""Carriers: the ways in which an object of the driver reaches a process, each through a mapped file.

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
* nothing that Spark transfers is unpickled, unless Spark encrypts it;
* the numbers of Spark's broadcasts start again with each session, so a token in the file identifies it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import ObjectNotFound, ShmarrowError, StorageError, storage_error
from shmarrow.segment import Segment
from shmarrow.segment.mappings import map_file
from shmarrow.spark.home import Home, removing

BEFORE = 64
"""Maximum distance in bytes from an object in a Spark broadcast back to its token."""


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

    def unpersist(self, blocking: bool) -> None:
        """On the driver: remove the executors' copies; they are distributed again when needed."""
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
    raise StorageError(errno.EREMOTE, f"cannot reach {what} from this process: {why}")


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
        store = self.home.visible_store()
        if store is None:
            raise NotHere(f"the driver's store {self.home.where!r} is not on this host, or not for this user")
        try:
            return Found(store.attach(self.name), partial(store.__contains__, self.name))
        except ObjectNotFound:
            raise ObjectNotFound(
                errno.ENOENT,
                f"{self.name!r} is no longer in the store {self.home.where!r}: it was destroyed, "
                "or the driver that made it has ended. DataFrames are computed when they are asked for: "
                "collect or write them before that",
            ) from None

    def unpersist(self, blocking: bool) -> None:
        """Do nothing: the object itself is the only copy."""

    def destroy(self, blocking: bool) -> None:
        """Remove the object; processes that have it attached keep it."""
        store = self.home.visible_store()
        if store is not None:
            with removing():
                store.delete(self.name)


# --- files of Spark ---------------------------------------------------------------------------------------------


_MAPPED: WeakValueDictionary[tuple[int, int], Bytes] = WeakValueDictionary()
"""The mapped files by device and inode: all objects in a file share one mapping."""


def _open_file(path: str, offset: int, size: int, token: bytes = b"") -> Found:
    """Map a range of a file as an object; NotHere if the file is missing, or the token does not precede the range."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if token not in os.pread(fd, BEFORE, max(offset - BEFORE, 0)):
                raise NotHere(f"the file {path!r} is another broadcast: {_STOPPED}")
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


_STOPPED = "the session that carried it was stopped"
_IN_MEMORY = os.stat_result([0o600, *[0] * 9], {"st_ctime_ns": 0})
"""The status of a copy in memory: writable, so that no cache takes two copies for one file."""


class InBroadcast:
    """A range of the file of a Spark broadcast on each executor.

    If it is pickled as part of a Spark function, Spark sends the broadcast to the executors that run the function.
    """

    def __init__(self, number: int, offset: int, size: int, token: bytes, path: str | None = None) -> None:
        self.number = number
        self.offset = offset
        self.size = size
        self.token = token
        self.path = path
        self.broadcast: Any = None

    def open(self) -> Found:
        broadcast, name = self.broadcast, f"Spark's broadcast {self.number}"
        if broadcast is not None and broadcast._jbroadcast is None and hasattr(broadcast, "_value"):
            # Spark has decrypted it, so it is in the memory of this process.
            value = broadcast._value if isinstance(broadcast._value, bytes) else b""
            if self.token not in value[max(self.offset - BEFORE, 0) : self.offset]:
                raise NotHere(f"{name} is a different broadcast: {_STOPPED}")
            data = np.frombuffer(value, np.uint8)[self.offset : self.offset + self.size]
            segment = Segment(name, name, data, _IN_MEMORY)
            return Found(segment, partial(_is_loaded, self.number, broadcast))
        if self.path is None:
            raise NotHere(
                f"Spark did not send its broadcast {self.number} to this process, as it does only for functions that "
                f"it pickles together with the broadcast; or {_STOPPED}, and this is a pickle from before"
            )
        found = _open_file(self.path, self.offset, self.size, self.token)
        if broadcast is None:
            return found
        # Spark does not send it again to a worker that has it, even if unpersist removed its file.
        return Found(found.segment, partial(_is_loaded, self.number, broadcast))

    def unpersist(self, blocking: bool) -> None:
        if self._is_running:
            self.broadcast.unpersist(blocking)

    def destroy(self, blocking: bool) -> None:
        """Remove the broadcast, which may contain other objects, too; calling it twice is allowed."""
        broadcast = self.broadcast
        if self._is_running and os.path.exists(broadcast._path):
            broadcast._pickle_registry._registry.discard(broadcast)  # no later job must send it
            from shmarrow.spark.jobs import persist

            persist(partial(broadcast.destroy, blocking))
            with suppress(FileNotFoundError):  # Spark keeps the file if its call fails
                os.unlink(broadcast._path)

    @property
    def _is_running(self) -> bool:
        """Whether this is the driver of a running session; stopping a session removes its broadcasts."""
        broadcast = self.broadcast
        return broadcast is not None and broadcast._sc is not None and broadcast._sc._jsc is not None

    def __reduce__(self) -> tuple[Any, ...]:
        broadcast = self.broadcast
        if broadcast is not None and broadcast._jbroadcast is not None:
            broadcast._pickle_registry.add(broadcast)  # as its own __reduce__ does
        return _received, (self.number, self.offset, self.size, self.token, self.path)


def _is_loaded(number: int, broadcast: Any) -> bool:
    """Whether Spark still has a broadcast for the tasks of this worker."""
    return sys.modules["pyspark.core.broadcast"]._broadcastRegistry.get(number) is broadcast


def _received(number: int, offset: int, size: int, token: bytes, path: str | None) -> InBroadcast:
    """Unpickle in a worker, with the broadcast received from Spark."""
    made = InBroadcast(number, offset, size, token, path)
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
            raise NotHere("this process is not a Spark Python worker, which has the files of the session")
        return _open_file(module.SparkFiles.get(self.name), 0, self.size)

    def unpersist(self, blocking: bool) -> None:
        """Spark keeps artifacts as long as the session."""

    def destroy(self, blocking: bool) -> None:
        """Spark keeps artifacts as long as the session."""
