# SPDX-License-Identifier: Apache-2.0
"""One value for all workers of a host: broadcasts of the driver, and what the first worker computes, once.

A store keeps what it can as it is, and all else pickled. A pickled value is a bundle: its pickle, and beside that each
of its large buffers, such as those of numpy arrays and torch tensors (pickle protocol 5, out of band). They are not
copied when it is unpickled, but lie in shared memory, read-only.

Invariants of broadcasts:

* the value is stored once, in the driver's store, and workers attach to it. If they cannot, Spark distributes it to
  each executor, as a file that all its workers map (:mod:`shmarrow.spark.delivery`);
* functions are pickled with references to the value, not with the value;
* modules that only the driver needs are imported only there: a worker's first access is mostly imports.

Of values that are computed once:

* the store decides which process computes the value (:meth:`Store.get_or_put`);
* the name of a value is unique to its application, including later ones;
* the key of a function is what it does, as far as its own code says, not where it stands in a file.

Of the cache in which each process has the values that it has attached, so that later tasks and calls get them in
microseconds:

* a value is returned only while its object exists; the caller of :func:`cache` provides the check;
* adding a value drops those whose objects are gone, so that their memory is freed;
* there are no locks: threads that attach to the same object at once map it twice, and one mapping is kept.
"""

from __future__ import annotations

import errno
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from types import CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from shmarrow.errors import InvalidArgument, InvalidType, ObjectNotFound, ShmarrowError, full_name, shown
from shmarrow.layout.dlpack import check_storage
from shmarrow.objects import decode
from shmarrow.spark._pyspark import cluster_session, is_spark, pickled
from shmarrow.spark.app_store import AppStore, driver_store, executor_store, in_worker, location, unless_gone
from shmarrow.spark.delivery import InStore, Way, check_collected, explaining_limits, open_first, send
from shmarrow.store import Store
from shmarrow.store.attach import StoredSegment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shmarrow.memory import Location
    from shmarrow.store.attach import Pin

PICKLED = b"shmarrow:pickled"
"""The key in the metadata of a bundle with a pickled value; its value is the number of buffers."""
LARGE = 1 << 12
"""The size in bytes from which buffers are beside the pickle."""


def as_name(name: object) -> str:
    """Check a name that a caller gives, of which the name of an object is made."""
    if not isinstance(name, str):
        raise InvalidType(f"name must be a string, found {shown(name)}")
    if not 0 < len(name.encode(errors="surrogatepass")) <= 200:
        raise InvalidArgument(f"name must have 1 to 200 bytes in UTF-8, found {shown(name)}")
    return name


def wrap(value: Any) -> Any:
    """Return what represents a value in a store: the value itself, or a bundle that :func:`unwrap` restores.

    Raises
    ------
    InvalidType
        If no store can keep it, and it cannot be pickled.
    """
    from shmarrow import capsules
    from shmarrow.objects.encode import encode

    if capsules.has_stream(value):  # some can be read once only
        return value
    if _is_state_dict(value):
        return _pickled(value)
    try:
        encode(value)
    except (InvalidType, InvalidArgument) as error:
        return _pickled(value, error)
    return value


def unwrap(stored: Any) -> Any:
    """Restore a value from an object of a store; large arrays lie in the memory of the object."""
    if type(stored).__name__ == "Bundle":
        metadata = stored.metadata or {}
        if PICKLED in metadata:
            buffers = [stored[str(i)].to_numpy() for i in range(int(metadata[PICKLED]))]
            return pickle.loads(stored["pickle"].to_numpy(), buffers=buffers)
    return stored


def _is_state_dict(value: Any) -> bool:
    """Whether a value is a mapping of names to torch tensors, which a store would keep as a bundle."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(each, torch.Tensor) for each in value.values())


def _pickled(value: Any, refused: Exception | None = None) -> Any:
    from shmarrow.ipc.tensor.bundle import NamedTensors

    buffers: list[np.ndarray[Any, Any]] = []
    arrays: dict[Any, np.ndarray[Any, Any]] = {}
    """The memory of tensors; tensors that have it in common, such as tied weights, do so afterwards."""

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = np.frombuffer(buffer.raw(), np.uint8)
        if len(raw) >= LARGE:
            buffers.append(raw)
        return len(raw) < LARGE  # whether it is written into the pickle

    def reduce(each: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(each) is not torch.Tensor or each.layout is not torch.strided:
            return NotImplemented
        if each.is_meta or each.is_quantized:
            return NotImplemented
        check_storage(each)
        plain = each.detach().cpu().resolve_conj().resolve_neg().contiguous()
        raw = arrays.setdefault((plain.data_ptr(), plain.nbytes), plain.flatten().view(torch.uint8).numpy())
        return _tensor, (raw, plain.dtype, tuple(plain.shape), each.requires_grad)

    try:
        data = pickled(value, take, reduce)
    except Exception as error:
        why = "" if refused is None else f"a store does not keep it ({refused}), and "
        raise InvalidType(
            f"cannot share {full_name(value)}: {why}it cannot be pickled ({type(error).__name__}: {error})"
        ) from error
    tensors = {"pickle": np.frombuffer(data, np.uint8), **{str(i): each for i, each in enumerate(buffers)}}
    return NamedTensors(tensors, {PICKLED: str(len(buffers)).encode()})


def _tensor(raw: np.ndarray[Any, Any], dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """Return a tensor over the memory of an array."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch has no read-only tensors
        return torch.from_numpy(raw).view(dtype).reshape(shape).requires_grad_(requires_grad)


# --- the cache of a process -------------------------------------------------------------------------------------

MISSING: Final = object()
_CACHE: dict[Hashable, tuple[Any, Callable[[], bool]]] = {}


def cached(key: Hashable) -> Any:
    """Return the value of a key, or ``MISSING``."""
    found = _CACHE.get(key)
    return found[0] if found is not None and _exists(found[1]) else MISSING


def cache(key: Hashable, value: Any, exists: Callable[[], bool]) -> Any:
    """Cache a value for as long as ``exists`` returns True, and return the cached value."""
    for other, found in list(_CACHE.items()):
        if not _exists(found[1]):
            drop(other)
    return _CACHE.setdefault(key, (value, exists))[0]


def drop(key: Hashable) -> None:
    """Drop a value from the cache; existing references stay valid."""
    _CACHE.pop(key, None)


def _exists(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except ShmarrowError:  # its store was destroyed, or closed
        return False


# --- broadcasts -------------------------------------------------------------------------------------------------


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
            value = unwrap(decode(found.segment))
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
    from shmarrow.spark.jobs import session_for

    session = session_for(spark, "broadcast(value)", value)
    check_collected(value)
    lies = driver_store(store)
    opened = lies.store()
    name = f"broadcast-{os.urandom(8).hex()}"
    origin = InStore(lies, name)
    try:
        opened.put(name, wrap(value), inline=False)
        pin = opened.pin(name)  # or the store could evict it
        made = HostBroadcast(name, opened.attach(name).size, (origin, *send(session, lies, [name])))
        made._pin = pin
        return made
    except BaseException:
        origin.destroy(False)
        raise


# --- once -------------------------------------------------------------------------------------------------------


def code_key(function: Any) -> str:
    """Return a key of a function, the same for functions of the same code in an application, in 16 hexadecimal digits.

    The code is its instructions, constants and names, its defaults, and what it has from functions around it; names of
    files and numbers of lines do not count. Any other object that can be called counts as it is pickled. One that
    cannot be pickled has another key each time.
    """
    from hashlib import sha256

    try:
        said = pickled(function, lambda buffer: True, _reduced)
    except Exception:  # then it cannot be sent to a worker, either
        return os.urandom(8).hex()
    return sha256(said).hexdigest()[:16]


def _reduced(value: Any) -> Any:
    """Reduce functions and code to what counts, and broadcasts to what identifies them.

    What counts is given as a state, which is pickled when the function is known: it may have itself. Spark sends
    broadcasts that are pickled to the workers of the next job.
    """
    if isinstance(value, FunctionType):
        cells = [_contents(cell) for cell in value.__closure__ or ()]
        return str, ("function",), (value.__code__, value.__defaults__, value.__kwdefaults__, cells)
    if isinstance(value, CodeType):
        return str, ("code",), (value.co_code, value.co_consts, value.co_names, value.co_flags, value.co_argcount)
    if is_spark(value, "Broadcast"):
        return str, (str(id(value)),)
    return (str, (value.name,)) if type(value).__name__ == "HostBroadcast" else NotImplemented


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty, as that of a function that is being defined
        return "empty"


class Once:
    """A value computed once per host; returned by :func:`once`.

    Use it in any function that Spark runs in Python: it is pickled with the function, including its own function.

    Attributes
    ----------
    name : str
        Name of the value.

    Notes
    -----
    Thread safety: any thread may use it. A forked child may use its parent's.
    """

    def __init__(self, name: str, function: Callable[[], Any], store: AppStore, code: str) -> None:
        self.name = name
        self._function = function
        self._store = store
        self._code = code

    @property
    def _object(self) -> str:
        """The name of its object on each host, which no other application or function has."""
        return f"{_application(self._store)}{self._code}/{self.name}"

    @property
    def value(self) -> Any:
        """The value, as a view of the host's copy; computed on first use on the host.

        Of concurrent processes and threads, one calls the function, and the others wait for it. If it fails, its caller
        gets the error, and the next waiting one calls the function.

        Raises
        ------
        InvalidType
            If the value can be neither stored nor pickled.
        StoreFull
            If there is not enough space for the value.
        StorageError
            If there is no store for it on this host.
        """
        found = cached(self._object)
        return self._open() if found is MISSING else found

    def _open(self) -> Any:
        store, name = self._store.store(), self._object
        with explaining_limits(f"the value of once({self.name!r})"):
            while True:
                with suppress(ObjectNotFound):
                    segment = store.attach(name)
                    break
                store.get_or_put(name, self._compute)
            assert isinstance(segment, StoredSegment)
            generation = segment.entry.generation
            value = unwrap(decode(segment))
        return cache(name, value, lambda: store.generation(name) == generation)

    def _compute(self) -> Any:
        return wrap(self._function())

    def destroy(self) -> None:
        """Delete the value; it is computed again on the next use. Processes that have it mapped keep it.

        On a cluster, the driver runs a job of many short tasks, which reaches most hosts; on others it remains until
        the executor that computed it ends. A process that is computing it, or waiting for it, is not affected: the
        value exists again afterwards.
        """
        drop(self._object)
        remove = partial(self._store.delete_here, self._object)
        remove()
        spark = None if in_worker() else cluster_session()
        if spark is not None:
            from shmarrow.spark.jobs import on_workers

            on_workers(spark, remove)

    def __repr__(self) -> str:
        return f"<Once {self.name!r}>"


def _application(store: AppStore) -> str:
    """The beginning of the names of all values of an application."""
    return f"once/{store.id[:16]}-{store.owner}/"


def once(name: str, function: Callable[[], Any], store: Location | Store | None = None) -> Once:
    """Declare a value that the first Python worker on each host to use it computes; nothing is computed yet.

    Parameters
    ----------
    name : str
        Name, unique in the application: another ``once`` of this name and the same function has the same value. Up to
        200 bytes in UTF-8.
    function : callable
        Returns the value; called without arguments, in a worker or the driver. The value must be one accepted by
        :func:`broadcast`, and is returned like :attr:`HostBroadcast.value`. Its code, its defaults and what it has from
        functions around it are part of the key: an edited function gives a new value, and the old one is removed from
        the driver's host. Other functions that it calls, and global variables, are not.
    store : str, PathLike or Store, optional
        The store for values, as for :func:`share`.

    Returns
    -------
    Once
        ``.value`` is the value, in the driver and in workers.

    Raises
    ------
    InvalidType
        If ``function`` is not callable, or ``name`` is not a string.
    InvalidArgument
        If ``name`` is empty or too long.

    Notes
    -----
    If ``once`` is called in a worker, the value belongs to its executor: all workers of the executor share it.
    """
    name = as_name(name)
    if not callable(function):
        raise InvalidType(f"once needs a function that returns the value, found {shown(function)}")
    there, code = executor_store(location(store)) if in_worker() else driver_store(store), code_key(function)
    if not in_worker():
        opened, application = there.store(), _application(there)
        for each in opened.names(application):
            known, _, other = each.removeprefix(application).partition("/")
            if other == name and known != code:
                with unless_gone():
                    opened.delete(each)
    return Once(name, function, there, code)
