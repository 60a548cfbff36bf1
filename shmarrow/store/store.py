"""The store: named objects that any process of the host can have, without a server.

Rules kept here:

* every promise is the kernel's: files that outlive their names, locks that die with their process, one mapped file that
  all agree on. No message between processes is needed for any of them;
* a name leads to a whole object or to none; an object that is replaced, removed, evicted or spilled stays whole for
  those who have it;
* an operation by name costs the same however many objects there are.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import update_wrapper
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload

from shmarrow import segment
from shmarrow.codecs import RECORD_BATCH, Stored, decode
from shmarrow.errors import (
    Closed,
    InvalidArgument,
    InvalidType,
    ObjectExists,
    ObjectNotFound,
    ShmarrowError,
    counted,
    shown,
)
from shmarrow.segment import Location, Segment
from shmarrow.store import protocol as p
from shmarrow.store.arguments import (
    as_count,
    as_expiry,
    as_name,
    as_names,
    as_owned,
    as_pairs,
    as_prefix,
    as_timeout,
)
from shmarrow.store.attach import Pin, StoredSegment, attach_entry, live, pin_entry, read_entry
from shmarrow.store.directory import Trust, as_trust, first_design, locate
from shmarrow.store.registry import open_catalog
from shmarrow.store.settings import Settings, check_spill, default_eviction, wanted
from shmarrow.store.slots import Entry, clock
from shmarrow.store.transaction import Transaction
from shmarrow.types.base import as_bool

if TYPE_CHECKING:
    from shmarrow.ipc.draft import Draft
    from shmarrow.ipc.file.writer import RecordBatchFileWriter
    from shmarrow.ipc.options import IpcWriteOptions
    from shmarrow.store.info import Found, ObjectInfo, Stats
    from shmarrow.store.publish import Publication
    from shmarrow.store.space import Collected, Space
    from shmarrow.store.watch import Listeners, Waiting, Watch
    from shmarrow.types import Schema

P = ParamSpec("P")
R = TypeVar("R")
_SHOWN = 50
"""Objects that the listing of a store in a notebook shows."""
_PIECE = 1 << 24
_FLUSH = 1.0
"""Seconds after which a process that only reads adds what it counted to the counters of the store."""
_UNCHANGED: Any = ...


def _operation(method: Callable[Concatenate[Store, P], R]) -> Callable[Concatenate[Store, P], R]:
    """A call that needs the store open; what it uses stays open until it returns, also if another thread closes it."""

    def call(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._running.append(None)
        try:
            self._check_open()
            return method(self, *args, **kwargs)
        finally:
            self._running.pop()
            if self._closed and not self._running:
                self._let_go()

    return update_wrapper(call, method)


class Store:
    """Named objects in shared memory or in a directory; any process that may read them can open them by name.

    Parameters
    ----------
    where : str or PathLike
        ``shm:NAME``: the directory ``/dev/shm/NAME`` in shared memory. Or the path of a directory of the store's own:
        it is made if it is not there, and refused if it has other files.
    capacity : int, optional
        The most bytes that all objects may take, as blocks of the file system.
    mode : int, optional
        Permissions: 0600, the default, lets nobody else in, 0640 lets the group read, 0660 lets it write. Published
        objects are never writable.
    eviction : str, optional
        ``"lru"``: where there is no room, the objects that were used longest ago are removed, unless somebody has them
        attached. ``"none"``: only orphaned and expired objects are removed. By default ``"lru"`` where there is a
        capacity.
    durable : bool, optional
        Every change is on the disk before the call returns, and survives a crash of the machine.
    spill : str or PathLike, optional
        A directory on a disk. What would be evicted moves there instead, and is found there.
    owned : bool or int
        What is put through this object belongs to the process: when it has ended, however it did, its objects may be
        collected. A number, as :meth:`owner` gives in another process: it belongs to that process.
    trust : bool, int, str, or several of these
        A user, by number or name, whose directory and files are accepted as well as your own and root's. True: accept
        anybody's, and a directory that others may write to.
    create : bool
        Create the store if there is none.

    Raises
    ------
    InvalidArgument
        If the store has other settings than those that are given. Capacity, mode, eviction, durable and spill belong to
        the store: they are set when it is created, and need not be given again; :meth:`configure` changes them.
    ObjectNotFound
        If there is no store, and ``create`` is False.
    StorageError
        If the directory cannot be made or read, is not to be trusted, or is neither a store nor empty.

    Notes
    -----
    Thread safety: threads and forked children may share a store; each operation is as atomic as between processes. A
    pickled store is opened again where it arrives, with ``owned`` and ``trust``.

    Names are strings of 1 to 255 bytes in UTF-8 without NUL. ``/`` in them means nothing to the store; a prefix selects
    objects.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.put("ones", np.ones(3))
    'ones'
    >>> "ones" in store, store.names()
    (True, ['ones'])
    >>> store.get("ones")
    array([1., 1., 1.])
    >>> store.delete("ones")
    """

    def __init__(
        self,
        where: Location,
        capacity: int | None = None,
        *,
        mode: int | None = None,
        eviction: str | None = None,
        durable: bool | None = None,
        spill: Location | None = None,
        owned: bool | int = False,
        trust: Trust = False,
        create: bool = True,
    ) -> None:
        self._closed = True
        self._running: list[None] = []  # a list counts threads without a lock
        self._held: list[None] = []
        self._owned = as_owned(owned)
        self._trust = as_trust(trust)
        self._name, self._path = locate(where)
        want = wanted(capacity, mode, eviction, durable, spill)
        self._catalog = open_catalog(where, want, self._trust, as_bool(create, "create", True))
        self._listeners: list[Listeners] = []  # the first one counts, whichever thread made it
        self._held.append(None)
        self._closed = False

    @property
    def _space(self) -> Space:
        from shmarrow.store.space import Space

        return Space(self._catalog)

    def _waiting(self, timeout: float | None) -> Waiting:
        from shmarrow.store.watch import Listeners, Waiting

        if not self._listeners:
            self._listeners.append(Listeners(self._catalog))
        return Waiting(self._listeners[0], timeout)

    @property
    def name(self) -> str:
        """Where the store is, as it was given."""
        return self._name

    @property
    def path(self) -> str:
        """The directory that it is in."""
        return self._path

    @property
    def capacity(self) -> int | None:
        """The most bytes that all objects may take."""
        return self.settings.capacity

    @property
    def id(self) -> str:
        """32 hexadecimal digits that no other store has: what two processes compare to see that they have one store."""
        return self._catalog.store_id.hex()

    @property
    def settings(self) -> Settings:
        """The settings of the store."""
        return self._catalog.settings

    @_operation
    def configure(
        self,
        *,
        capacity: int | None = _UNCHANGED,
        eviction: str | None = _UNCHANGED,
        spill: Location | None = _UNCHANGED,
    ) -> None:
        """Change settings of the store; what is not given stays as it is.

        Other processes see the new settings when they next change or reopen the store. Nothing is evicted before the
        next object is put.

        Parameters
        ----------
        capacity : int or None
            The most bytes that all objects may take; None for no limit.
        eviction : str or None
            ``"lru"`` or ``"none"``; None for what the capacity gives.
        spill : str, PathLike or None
            The spill directory; None for none. It cannot change while objects are there.
        """
        catalog = self._catalog
        given = {"capacity": capacity, "eviction": eviction, "spill": spill}
        given = {field: value for field, value in given.items() if value is not _UNCHANGED}
        want = wanted(**given)
        if want.spill is not None:
            check_spill(want.spill, self._path)
        with catalog.locked():
            catalog.reload()
            new = catalog.settings._replace(**{field: getattr(want, field) for field in given})
            if new.eviction is None:
                new = new._replace(eviction=default_eviction(new.capacity))
            catalog.configure(new)

    # --- putting ---

    @_operation
    def put(
        self,
        name: str | None,
        obj: Any,
        overwrite: bool = False,
        *,
        expire_after: float | None = None,
        options: IpcWriteOptions | None = None,
        protect: bool = False,
        if_generation: int | None = None,
    ) -> str:
        """Place an object; it becomes visible only when complete.

        Parameters
        ----------
        name : str or None
            Its name; None makes one up.
        obj : object
            A RecordBatch, Table, Array, ChunkedArray, Tensor or SparseTensor; an ndarray; bytes, str, int, float or
            bool; a mapping of names to tensors, which becomes a bundle. Objects of other libraries with the Arrow
            PyCapsule interface become what they are: a record batch or an array becomes that, a Series an Array, and
            data frames, queries and readers, which are read to their end, become tables. The values are copied once,
            into place.
        overwrite : bool
            Replace an object of this name. Who has the old one keeps it whole. The new one has its own protection and
            expiry.
        expire_after : float, optional
            Seconds after which the object is not found any more, and may be collected. Setting the clock changes
            nothing about it.
        options : IpcWriteOptions, optional
            Compression and alignment.
        protect : bool
            Never evict it before it expires or its owner is gone.
        if_generation : int, optional
            Replace only the object of this generation, as given by :meth:`info`, also without ``overwrite``; 0: only if
            there is none.

        Returns
        -------
        str
            The name.

        Raises
        ------
        ObjectExists
            If the name is taken, and is not to be overwritten.
        GenerationChanged
            If the object that there is has another generation.
        StoreFull
            If there is no room, and not enough can be evicted.
        InvalidType
            If a store cannot keep all values, or the type, of such an object.
        CopyRequired
            If an array in a mapping of tensors has nulls, which no tensor has.
        """
        from shmarrow.codecs.encode import encode

        publication = self._publication(name, overwrite, expire_after, protect, if_generation)
        publication.put_value(encode(obj, options))
        return publication.name

    def __setitem__(self, name: str, obj: Any) -> None:
        """Place an object, or replace the one of this name."""
        self.put(name, obj, overwrite=True)

    @_operation
    def put_many(
        self,
        items: Mapping[str, Any] | Iterable[tuple[str, Any]],
        overwrite: bool = False,
        *,
        expire_after: float | None = None,
        options: IpcWriteOptions | None = None,
        protect: bool = False,
    ) -> list[str]:
        """Place several objects, one after another; their names. What was placed before an error stays.

        Parameters
        ----------
        items : mapping, or iterable of pairs
            Names and objects.
        overwrite, expire_after, options, protect
            As for :meth:`put`.
        """
        return [
            self.put(name, obj, overwrite, expire_after=expire_after, options=options, protect=protect)
            for name, obj in as_pairs(items)
        ]

    @_operation
    def put_file(
        self,
        name: str | None,
        source: Location,
        overwrite: bool = False,
        *,
        expire_after: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> str:
        """Place an object that lies in a file already, byte for byte.

        Parameters
        ----------
        name : str or None
            Its name; None makes one up.
        source : path or ``shm:NAME``
            A file, a stream or a tensor of Arrow's.
        overwrite, expire_after
            As for :meth:`put`.
        progress : callable, optional
            Is told how many bytes are copied, after each of many pieces.

        Raises
        ------
        InvalidData
            If it is none of Arrow's.
        """
        from shmarrow.codecs.describe import describe

        publication = self._publication(name, overwrite, expire_after)
        with segment.attach(source) as given:
            describe(given)
            with publication.writer(given.size) as writer:
                for start in range(0, given.size, _PIECE):
                    writer.write([given.data[start : start + _PIECE]])
                    if progress is not None:
                        progress(writer.size)
        return publication.name

    @_operation
    def create(
        self,
        name: str | None,
        schema: Schema,
        num_rows: int,
        bytes: Mapping[str, int] | None = None,
        *,
        overwrite: bool = False,
        expire_after: float | None = None,
    ) -> Draft:
        """Room for a record batch, whose columns are filled in place: nothing is copied.

        Parameters
        ----------
        name : str or None
            Its name; None makes one up, see :attr:`Draft.name`.
        schema : Schema
            Its fields: fixed-width types, strings and bytes, structs and fixed-size lists of these.
        num_rows : int
            Its rows.
        bytes : mapping of str to int, optional
            For each column of strings or bytes, how many bytes all its values have together.
        overwrite, expire_after
            As for :meth:`put`.

        Raises
        ------
        StoreFull
            If there is no room; the space is reserved before a column is handed out.
        Unsupported
            If a column's size is known only from its values.
        """
        from shmarrow.ipc.draft import Draft

        publication = self._publication(name, overwrite, expire_after)
        writer = publication.writer()
        try:
            return Draft(writer, schema, num_rows, bytes, RECORD_BATCH, name=publication.name)
        except BaseException:
            writer.discard()
            raise

    @_operation
    def writer(
        self,
        name: str,
        schema: Schema,
        *,
        overwrite: bool = False,
        expire_after: float | None = None,
        options: IpcWriteOptions | None = None,
    ) -> RecordBatchFileWriter:
        """A writer of batches whose number is not known: one table, published when the writer is closed.

        Raises
        ------
        ObjectExists
            If the name is taken, now or when the writer is closed.
        """
        from shmarrow.ipc.file.writer import RecordBatchFileWriter
        from shmarrow.sources.sinks import open_sink

        publication = self._publication(name, overwrite, expire_after)
        return RecordBatchFileWriter(open_sink(publication.writer()), schema, options)

    def _publication(
        self,
        name: str | None,
        overwrite: bool,
        expire_after: float | None,
        protect: bool = False,
        if_generation: int | None = None,
        beside: str | None = None,
    ) -> Publication:
        from shmarrow.store.publish import Publication, PutOptions

        self._catalog.check_writable()
        options = PutOptions(
            *self._options(overwrite, expire_after, protect, if_generation),
            None if beside is None else as_name(beside),
        )
        coded = as_name(os.urandom(12).hex() if name is None else name)
        return Publication(self._catalog, coded, options)

    def _options(
        self, overwrite: bool, expire_after: float | None, protect: bool, if_generation: Any
    ) -> tuple[bool, tuple[int, int], int, bool, int | None]:
        """The fields of :class:`~shmarrow.store.publish.PutOptions`."""
        overwrite, protect = as_bool(overwrite, "overwrite", False), as_bool(protect, "protect", False)
        if if_generation is not None:
            if_generation = as_count(if_generation, "if_generation")
        owner = self._owned if self._owned.__class__ is int else -self._owned  # True is this process
        return overwrite, as_expiry(expire_after), owner, protect, if_generation

    @_operation
    def get_or_put(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        timeout: float | None = None,
        expire_after: float | None = None,
        options: IpcWriteOptions | None = None,
        protect: bool = False,
    ) -> Stored:
        """An object, which is computed and put if it is not there; of all who ask for it at once, one computes it.

        If that one fails or is killed, the next one who waits computes it. If somebody else puts one of this name
        meanwhile, that one is what all of them get.

        Parameters
        ----------
        name : str
            Its name.
        function : callable
            Gives the object; called without arguments.
        timeout : float, optional
            Seconds to wait for whoever computes it; None waits forever.
        expire_after, options, protect
            As for :meth:`put`. What has expired at once is returned as ``function`` gave it.

        Raises
        ------
        ObjectNotFound
            If another one still computes it when the time is over.
        InvalidArgument
            If ``function`` asks for the same name by this method, which would wait for itself.
        """
        timeout, lock = as_timeout(timeout), p.NAME_LOCKS + self._catalog.hash(as_name(name))
        if not callable(function):
            raise InvalidType(f"get_or_put needs a function that returns the object, found {shown(function)}")
        self._options(False, expire_after, protect, None)
        computing = self._catalog.exclusive
        with suppress(ObjectNotFound):
            return self.get(name)
        self._catalog.check_writable()
        if computing.mine(lock):
            raise InvalidArgument(f"the function that computes {name!r} requests it itself through get_or_put")
        with self._waiting(timeout) as waiting:
            while True:
                try:
                    if computing.acquire(lock):
                        with suppress(ObjectNotFound):
                            return self.get(name)
                        made = function()
                        with suppress(ObjectExists):
                            self.put(name, made, expire_after=expire_after, options=options, protect=protect)
                        with suppress(ObjectNotFound):
                            return self.get(name)
                        return made  # type: ignore[no-any-return]
                finally:
                    if computing.mine(lock):
                        computing.release(lock)
                with suppress(ObjectNotFound):
                    return self.get(name)
                if not waiting.wait(0.02):
                    raise self._missing([name], timeout)

    # --- having ---

    @_operation
    def get(self, name: str, *, timeout: float | None = 0, trusted: bool = False) -> Stored:
        """An object, as it was put; its arrays lie in the store, and keep it attached for as long as they live.

        What came from pyarrow is the RecordBatch, Table, Array, ChunkedArray, Tensor or SparseTensor of this package,
        what came from pandas or polars an Array. A chunked array comes in the chunks that it had. ndarrays come in the
        byte order of the machine.

        Parameters
        ----------
        name : str
            Its name.
        timeout : float or None
            Seconds to wait for it to be published; 0, the default, does not wait, None waits forever.
        trusted : bool
            True hands its arrays to other libraries without checking their values first, as
            :func:`shmarrow.ipc.open_file` says. Only for a store that nobody but your own code writes to.

        Raises
        ------
        ObjectNotFound
            If there is none of this name, or none came in time.
        StorageError
            If the store was destroyed meanwhile.
        Closed
            If the store is closed, also by another thread while this waits.
        """
        found = self._attach(name, timeout)
        try:
            return decode(found, trusted is not False and as_bool(trusted, "trusted", False))
        finally:
            found.close()

    def __getitem__(self, name: str) -> Stored:
        """What :meth:`get` gives without waiting; the ``ObjectNotFound`` for an unknown name is a ``KeyError``, too."""
        return self.get(name)

    @_operation
    def attach(self, name: str, *, timeout: float | None = 0) -> Segment:
        """The bytes of an object; the parameters and errors are those of :meth:`get`."""
        return self._attach(name, timeout)

    def _attach(self, name: str, timeout: float | None) -> StoredSegment:
        encoded, catalog = as_name(name), self._catalog
        if timeout.__class__ is not int or timeout:
            timeout = as_timeout(timeout)
        found = attach_entry(catalog, encoded)
        if found is None and timeout != 0:
            with self._waiting(timeout) as waiting:
                while (found := attach_entry(catalog, encoded)) is None and waiting.wait():
                    self._check_open()
        if found is None:
            catalog.misses += 1
            raise self._missing([name], timeout)
        catalog.hits += 1
        if not catalog.hits & 15:
            catalog.flush_counters(_FLUSH)
        return found

    @_operation
    def get_many(self, names: Iterable[str], *, timeout: float | None = 0) -> dict[str, Stored]:
        """Several objects by their names, as :meth:`get`; the time is for all of them together.

        Raises
        ------
        ObjectNotFound
            If one is not there, or does not come in time; it names all that are missing.
        """
        checked = as_names(names)
        self.wait(checked, timeout=timeout)
        return {name: self.get(name) for name in checked}

    @_operation
    def take(self, name: str, *, timeout: float | None = 0) -> Stored:
        """Get an object and delete it: of all who take it, one has it. Parameters and errors are as for :meth:`get`."""
        seconds = as_timeout(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            found = self._attach(name, None if end is None else max(end - time.monotonic(), 0))
            try:
                value = decode(found)
                with suppress(ObjectNotFound):
                    self._delete(as_name(name), found.entry.generation)
                    return value
            finally:
                found.close()

    @_operation
    def wait(self, names: str | Iterable[str], *, timeout: float | None = None, any: bool = False) -> list[str]:
        """Wait until objects are there.

        Parameters
        ----------
        names : str, or iterable of str
            Their names.
        timeout : float, optional
            Seconds to wait; None waits forever.
        any : bool
            Wait for one of them only.

        Returns
        -------
        list of str
            Which of them are there, in the order given.

        Raises
        ------
        ObjectNotFound
            If they are not there in time; it names those that are missing.
        StorageError, Closed
            As for :meth:`get`.
        """
        seconds, any = as_timeout(timeout), as_bool(any, "any", False)
        checked = as_names(names)
        coded = list(map(str.encode, checked))
        with self._waiting(seconds) as waiting:
            while True:
                there = [live(self._catalog, each) is not None for each in coded]
                if all(there) or (any and True in there):
                    return [name for name, is_there in zip(checked, there, strict=True) if is_there]
                if not waiting.wait():
                    missing = [name for name, is_there in zip(checked, there, strict=True) if not is_there]
                    raise self._missing(missing, seconds)
                self._check_open()

    @_operation
    def pin(self, name: str) -> Pin:
        """Keep an object where it is, without having its arrays: it is neither evicted nor spilled until released.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        found = pin_entry(self._catalog, as_name(name))
        if found is None:
            raise self._missing([name])
        return found[1]

    # --- looking ---

    def __contains__(self, name: object) -> bool:
        self._check_open()
        try:
            return isinstance(name, str) and live(self._catalog, as_name(name)) is not None
        except InvalidArgument:
            return False

    def names(self, prefix: str = "") -> list[str]:
        """The names of all objects, sorted; only those that begin with ``prefix``."""
        return sorted(self._names(prefix))

    @_operation
    def _names(self, prefix: str = "") -> Iterator[str]:
        prefix = as_prefix(prefix)
        for part in self._catalog.snapshot("name", expired=False):
            names = part["name"]
            yield from [name for name in names if name.startswith(prefix)] if prefix else names

    @_operation
    def scan(self, prefix: str = "") -> Iterator[Found]:
        """All objects with their sizes and times, in no order; nothing is opened, pinned or locked."""
        from shmarrow.store.info import found_objects

        return found_objects(self._catalog, as_prefix(prefix))

    def __iter__(self) -> Iterator[str]:
        """The names of all objects, in no order."""
        return self._names()

    @_operation
    def __len__(self) -> int:
        objects, now = self._catalog.state()[p.OBJECTS], clock()
        for part in self._catalog.snapshot("expires"):
            objects -= int(((part["expires"] != 0) & (part["expires"] <= now)).sum())
        return min(max(objects, 0), self._catalog.memory.slots)

    @_operation
    def info(self, name: str) -> ObjectInfo:
        """What is known of an object; this does not count as a use, and pins nothing.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        from shmarrow.codecs.describe import describe
        from shmarrow.store.info import object_info

        found = read_entry(self._catalog, as_name(name))
        if found is None:
            raise self._missing([name])
        entry, attached = found
        try:
            return object_info(self._catalog, entry, describe(attached))
        finally:
            attached.close()

    @_operation
    def stats(self) -> Stats:
        """How much the store holds, how much room there is, and who has what attached."""
        from shmarrow.store.info import statistics

        return statistics(self._catalog, self._space)

    @_operation
    def watch(self, prefix: str = "") -> Watch:
        """What is published and deleted from now on, by any process; see :class:`Watch`."""
        from shmarrow.store.watch import Watch

        return Watch(self._catalog, as_prefix(prefix))

    # --- changing ---

    @overload
    def delete(self, name: str) -> None: ...
    @overload
    def delete(self, *, prefix: str) -> int: ...
    def delete(self, name: str | None = None, *, prefix: str | None = None) -> int | None:
        """Remove an object's name, or those of all objects that begin with ``prefix``.

        Who has one attached keeps it; its memory comes back when the last of them is done.

        Returns
        -------
        int or None
            How many objects had the prefix; None where a name was given.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        if (name is None) == (prefix is None):
            raise InvalidArgument("delete takes a name or a prefix; clear() deletes all objects")
        if name is None:
            return self._delete_all(as_prefix(prefix))
        self._delete(as_name(name))
        return None

    def __delitem__(self, name: str) -> None:
        """Remove an object's name, as :meth:`delete`."""
        self.delete(name)

    @_operation
    def _delete(self, name: bytes, generation: int | None = None) -> None:
        with self._changing(name) as (found, transaction):
            if generation is not None and found.generation != generation:
                raise self._missing([name.decode()])
            transaction.remove(found)

    @_operation
    def _delete_all(self, prefix: str) -> int:
        deleted = 0
        for part in self._catalog.snapshot("name"):
            chosen = [row for row, name in enumerate(part["name"]) if name.startswith(prefix)]
            deleted += len(self._space.remove_all(part["slot"][chosen].tolist(), part["generation"][chosen].tolist()))
        return deleted

    @_operation
    def rename(self, name: str, new_name: str, overwrite: bool = False) -> None:
        """Give an object another name, at once: nobody sees it under both or none.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        ObjectExists
            If the new name is taken, and is not to be overwritten.
        """
        old, new, overwrite = as_name(name), as_name(new_name), as_bool(overwrite, "overwrite", False)
        with self._changing(old) as (found, transaction):
            if old == new:
                return
            replaced = self._catalog.find(new)
            if replaced is not None and not replaced.expired and not overwrite:
                raise ObjectExists(
                    errno.EEXIST,
                    f"the name {new_name!r} is taken in the store {self.name!r}; delete that object first, or pass "
                    "overwrite=True",
                )
            transaction.rename(found, new, replaced)

    @_operation
    def expire_after(self, name: str, seconds: float | None) -> None:
        """Have an object expire so many seconds from now: it is not found any more, and may be collected; None: never.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        expires, wall = as_expiry(seconds)
        with self._changing(as_name(name)) as (found, transaction):
            transaction.update(found._replace(expires=expires, expires_wall=wall))

    @_operation
    def protect(self, name: str, on: bool = True) -> None:
        """Never evict an object, or allow it again with ``on=False``.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        flag = p.PROTECTED if as_bool(on, "on", True) else 0
        with self._changing(as_name(name)) as (found, transaction):
            transaction.update(found._replace(flags=found.flags & ~p.PROTECTED | flag))

    @contextmanager
    def _changing(self, name: bytes) -> Iterator[tuple[Entry, Transaction]]:
        """Hold the lock, and commit what the block notes about the object of a name."""
        catalog = self._catalog
        with catalog.locked():
            catalog.check_exists()
            found = live(catalog, name)
            if found is None:
                raise self._missing([name.decode()])
            transaction = Transaction(catalog)
            yield found, transaction
            transaction.commit()

    @_operation
    def reserve(self, nbytes: int) -> list[str]:
        """Make room for objects of so many bytes, by evicting others; nobody else is kept from using it.

        Returns
        -------
        list of str
            The names of the objects that were removed.

        Raises
        ------
        StoreFull
            If not enough can be evicted; nothing is removed then.
        """
        return self._space.reserve(as_count(nbytes, "nbytes"))

    @_operation
    def evict(self, nbytes: int) -> list[str]:
        """Remove objects of ``nbytes`` bytes or more, those used longest ago, that nobody has attached.

        Returns
        -------
        list of str
            Their names.

        Raises
        ------
        StoreFull
            If not enough can be evicted; nothing is removed then.
        """
        return self._space.release(as_count(nbytes, "nbytes"), anything=True)

    @_operation
    def collect(self) -> Collected:
        """Remove what nobody needs: objects whose owner is gone or whose time is over, and what killed processes left.

        What anybody has attached stays until the next time.
        """
        return self._space.collect()

    def clear(self) -> None:
        """Remove all objects. Who has one attached keeps it."""
        self._delete_all("")

    @_operation
    def owner(self) -> int:
        """The number of this process as an owner of objects, the same until it ends; a forked child has another.

        Other processes, which put objects through ``Store(..., owned=number)``, give them to this one.
        """
        catalog = self._catalog
        catalog.check_writable()
        with catalog.locked():
            transaction = Transaction(catalog)
            number = catalog.own_number(transaction)
            if not catalog.owner:
                transaction.commit()
            return number

    # --- the end ---

    def close(self) -> None:
        """Close the store; safe to call again.

        Its objects remain, arrays obtained from it stay valid, and objects owned by this process stay owned. Drafts,
        writers and watches go on. Another thread that waits for an object gets :class:`Closed`.
        """
        self._closed = True
        if not self._running:
            self._let_go()

    def _let_go(self) -> None:
        """The last of all calls gives the catalog back, once."""
        with suppress(IndexError):
            self._held.pop()
            for listeners in self._listeners:
                listeners.close()
            self._catalog.flush_counters()
            self._catalog.release()

    @_operation
    def destroy(self) -> None:
        """Remove the store with all its objects, and its directory; close it. Who has an object attached keeps it.

        Raises
        ------
        StorageError
            If the directory has other files: they stay, and so does it, but the store and its objects are gone.
        """
        try:
            self._catalog.destroy()
        finally:
            if not self._catalog.exists:
                self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # modules may be gone at the end of the interpreter
            self.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        where = self._name if self._name.startswith(segment.SHM_SCHEME) else self._path
        return _reopen, (where, self._owned, self._trust)

    def __repr__(self) -> str:
        try:
            self._check_open()
            self._catalog.check_exists()
            what = counted(self._catalog.state()[p.OBJECTS], "object")
        except (ShmarrowError, OSError) as error:
            what = "closed" if isinstance(error, Closed) else "destroyed"
        return f"<Store {self.name!r}, {what}>"

    def _repr_html_(self) -> str:
        from itertools import islice

        from shmarrow import display

        if self._closed:
            return display.listing_html(repr(self), [], [], [])
        found = sorted(islice(self.scan(), 1000))[:_SHOWN]
        rows = [(each.name, display.size(each.nbytes), f"{each.age:.0f} s") for each in found]
        return display.listing_html(repr(self), ["name", "size", "age"], rows, [False, True, True])

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the store {self.name!r} is closed; open it again")
        if self._catalog.forked:
            self._catalog.check_inherited()

    def _missing(self, names: list[str], timeout: float | None = None) -> ObjectNotFound:
        waited = f" came within {timeout:g} s" if timeout else ""
        which = f"object {names[0]!r}" if len(names) == 1 else f"objects {', '.join(map(repr, names))}"
        return ObjectNotFound(
            errno.ENOENT,
            f"no {which}{waited} in the store {self.name!r}: never published, or removed, evicted or expired"
            + first_design(self._path, names[0]),
        )


def _reopen(where: str, owned: bool | int, trust: Trust) -> Store:
    """A store that was pickled."""
    return Store(where, owned=owned, trust=trust, create=False)
