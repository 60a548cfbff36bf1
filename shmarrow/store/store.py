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
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from shmarrow import segment
from shmarrow.codecs import RECORD_BATCH, Stored, decode, describe, encode
from shmarrow.errors import (
    Closed,
    InvalidArgument,
    InvalidType,
    ObjectExists,
    ObjectNotFound,
    ShmarrowError,
    counted,
    shown,
    storage_error,
)
from shmarrow.ipc.draft import Draft
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.segment import Location, Segment
from shmarrow.sources import open_sink
from shmarrow.store import protocol as p
from shmarrow.store.attach import Pin, StoredSegment, attach_entry
from shmarrow.store.directory import Settings, first_design, locate, wanted
from shmarrow.store.info import Found, ObjectInfo, Stats, object_info, pin_counts, statistics
from shmarrow.store.publish import DRAFT_SIZE, Publication, PutOptions
from shmarrow.store.registry import open_catalog
from shmarrow.store.slots import Entry, clock
from shmarrow.store.space import Collected, Space
from shmarrow.store.transaction import Transaction
from shmarrow.store.watch import Listeners, Waiting, Watch
from shmarrow.types import Schema

T = TypeVar("T")
_SHOWN = 50
"""Objects that the listing of a store in a notebook shows."""
_FOREVER = 10**9
"""The longest timeout, in seconds: some 30 years."""
_PIECE = 1 << 24
_FLUSH = 1.0
"""Seconds after which a process that only reads adds what it counted to the counters of the store."""
_LATEST = (1 << 63) - 1


class Store:
    """Named objects in shared memory or in a directory; any process that may read them has them by their names.

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
        attached. ``"none"``: only what is orphaned or has expired. By default ``"lru"`` where a capacity is given.
    durable : bool, optional
        Every change is on the disk before the call returns, and survives a crash of the machine.
    spill : str or PathLike, optional
        A directory on a disk. What would be evicted moves there instead, and is found there.
    owned : bool
        What is put through this object belongs to the process: when it has ended, however it did, its objects may be
        collected.
    trust : bool
        Accept a directory that another user owns or that others may write to, and their objects.
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
        owned: bool = False,
        trust: bool = False,
        create: bool = True,
    ) -> None:
        self._closed = True
        self._name, self._path = locate(where)
        want = wanted(capacity, mode, eviction, durable, spill)
        self._catalog = open_catalog(where, want, trust, create)
        self._space = Space(self._catalog)
        self._listeners = Listeners(self._catalog)
        self._owned = owned
        self._trust = trust
        self._closed = False

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
    def settings(self) -> Settings:
        """The settings of the store."""
        return self._catalog.settings

    def configure(
        self,
        *,
        capacity: int | None = None,
        eviction: str | None = None,
        spill: Location | None = None,
    ) -> None:
        """Change settings of the store, for all who have it open as soon as they open it again or change something.

        Nothing is evicted before the next object is put.
        """
        self._check_open()
        want = wanted(capacity, None, eviction, None, spill)
        with self._catalog.locked():
            self._catalog.reload()
            given = {field: value for field, value in want._asdict().items() if value is not None}
            self._catalog.configure(self._catalog.settings._replace(**given))

    # --- putting ---

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
        """Place an object; it is seen whole from the moment it has its name.

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
            Replace an object of this name. Who has the old one keeps it whole.
        expire_after : float, optional
            Seconds after which the object is not found any more, and may be collected. Setting the clock changes
            nothing about it.
        options : IpcWriteOptions, optional
            Compression and alignment.
        protect : bool
            Never evict it.
        if_generation : int, optional
            Replace only the object of this generation, as :meth:`info` tells it; 0: only if there is none.

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
            If there is no room.
        InvalidType
            If a store cannot keep all values, or the type, of such an object.
        CopyRequired
            If an array in a mapping of tensors has nulls, which no tensor has.
        """
        encoded = encode(obj, options)
        publication, made = self._start(name, overwrite, expire_after, protect, if_generation)
        if encoded.size is not None and encoded.size <= DRAFT_SIZE:
            self._write(publication, [piece for part in encoded.pieces() for piece in part])
            return made
        writer = publication.writer(encoded.size or 0)
        with writer:
            for part in encoded.pieces():
                writer.write(part)
        return made

    def _write(self, publication: Publication, pieces: list[Any]) -> None:
        """Write and publish a small object."""
        try:
            fd = publication.open()
            try:
                publication.write(fd, pieces)
                publication.publish(None, fd)
            finally:
                os.close(fd)
                publication.discard()
        except ShmarrowError:
            raise
        except OSError as error:
            raise storage_error(error, "put", publication.name) from None

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
        pairs = items.items() if isinstance(items, Mapping) else items
        return [
            self.put(name, obj, overwrite, expire_after=expire_after, options=options, protect=protect)
            for name, obj in pairs
        ]

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
        with segment.attach(source) as given:
            describe(given)
            publication, made = self._start(name, overwrite, expire_after)
            with publication.writer(given.size) as writer:
                for start in range(0, given.size, _PIECE):
                    writer.write([given.data[start : start + _PIECE]])
                    if progress is not None:
                        progress(writer.size)
        return made

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
        publication, made = self._start(name, overwrite, expire_after)
        writer = publication.writer()
        try:
            return Draft(writer, schema, num_rows, bytes, RECORD_BATCH, name=made)
        except BaseException:
            writer.discard()
            raise

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
        publication, _ = self._start(name, overwrite, expire_after)
        return RecordBatchFileWriter(open_sink(publication.writer()), schema, options)

    def _start(
        self,
        name: str | None,
        overwrite: bool,
        expire_after: float | None,
        protect: bool = False,
        if_generation: int | None = None,
    ) -> tuple[Publication, str]:
        self._check_open()
        self._catalog.check_writable()
        if name is None:
            name = os.urandom(12).hex()
        if if_generation is not None and (not isinstance(if_generation, int) or if_generation < 0):
            raise InvalidArgument(f"if_generation is a generation or 0, found {shown(if_generation)}")
        options = PutOptions(overwrite, _expiry(expire_after), self._owned, protect, if_generation)
        return Publication(self._catalog, self._space, name_bytes(name), options), name

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

        If that one fails or is killed, the next one who waits computes it.

        Parameters
        ----------
        name : str
            Its name.
        function : callable
            Gives the object; called without arguments.
        timeout : float, optional
            Seconds to wait for whoever computes it; None waits forever.
        expire_after, options, protect
            As for :meth:`put`.

        Raises
        ------
        ObjectNotFound
            If another one still computes it when the time is over.
        """
        _check_timeout(timeout)
        encoded = name_bytes(name)
        with suppress(ObjectNotFound):
            return self.get(name)
        catalog = self._catalog
        catalog.check_writable()
        lock = p.NAME_LOCKS + catalog.hash(encoded)
        computing = catalog.exclusive
        if computing.mine(lock):
            raise InvalidArgument(f"the function that computes {name!r} asks for it itself, by get_or_put")
        with Waiting(self._listeners, timeout) as waiting:
            while True:
                try:
                    if computing.acquire(lock):
                        with suppress(ObjectNotFound):
                            return self.get(name)
                        made = function()
                        with suppress(ObjectExists):  # somebody else put one meanwhile
                            self.put(name, made, expire_after=expire_after, options=options, protect=protect)
                        return self.get(name)
                finally:
                    if computing.mine(lock):
                        computing.release(lock)
                with suppress(ObjectNotFound):
                    return self.get(name)
                if not waiting.wait(0.02):
                    raise self._missing([name], timeout)

    # --- having ---

    def get(self, name: str, timeout: float | None = 0, *, trusted: bool = False) -> Stored:
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
        """
        found = self._attach(name, timeout)
        try:
            return decode(found, trusted)
        finally:
            found.close()

    def attach(self, name: str, timeout: float | None = 0) -> Segment:
        """The bytes of an object; the parameters and errors are those of :meth:`get`."""
        return self._attach(name, timeout)

    def get_many(self, names: Iterable[str], timeout: float | None = 0) -> dict[str, Stored]:
        """Several objects by their names, as :meth:`get`; the time is for all of them together.

        Raises
        ------
        ObjectNotFound
            If one is not there, or does not come in time; it names all that are missing.
        """
        wanted_names = list(_names(names))
        if timeout != 0:
            self.wait(wanted_names, timeout)
        found, missing = {}, []
        for name in wanted_names:
            try:
                found[name] = self.get(name)
            except ObjectNotFound:
                missing.append(name)
        if missing:
            raise self._missing(missing, None)
        return found

    def take(self, name: str, timeout: float | None = 0) -> Stored:
        """Get an object and delete it: of all who take it, one has it. Parameters and errors are as for :meth:`get`."""
        end = _end_of(timeout)
        while True:
            left = None if end is None else max(end - time.monotonic(), 0)
            found = self._attach(name, left)
            try:
                with suppress(ObjectNotFound):
                    self._delete(name_bytes(name), found.generation)
                    return decode(found)
            finally:
                found.close()

    def wait(self, names: str | Iterable[str], timeout: float | None = None, *, any: bool = False) -> list[str]:
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
        """
        self._check_open()
        _check_timeout(timeout)
        wanted_names = list(_names(names))
        coded = [name_bytes(name) for name in wanted_names]
        with Waiting(self._listeners, timeout) as waiting:
            while True:
                there = [name for name, each in zip(wanted_names, coded, strict=True) if self._find(each) is not None]
                if len(there) == len(wanted_names) or (any and there):
                    return there
                if not waiting.wait():
                    raise self._missing([name for name in wanted_names if name not in there], timeout)

    def pin(self, name: str) -> Pin:
        """Keep an object where it is, without having its arrays: it is neither evicted nor spilled until released.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        self._check_open()
        encoded = name_bytes(name)
        while (found := self._find(encoded)) is not None:
            pin = Pin.of(self._catalog, found)
            if pin is not None:
                return pin
        raise self._missing([name], None)

    def protect(self, name: str, on: bool = True) -> None:
        """Never evict an object; or do again.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        self._update(name, lambda entry: entry._replace(flags=entry.flags & ~p.PROTECTED | (p.PROTECTED if on else 0)))

    def _attach(self, name: str, timeout: float | None) -> StoredSegment:
        self._check_open()
        encoded = name_bytes(name)
        if timeout:
            _check_timeout(timeout)
        catalog = self._catalog
        found = attach_entry(catalog, encoded)
        if found is not None:
            catalog.hits += 1
            if not catalog.hits & 15:
                catalog.flush_counters(_FLUSH)
            return found
        if timeout != 0:
            with Waiting(self._listeners, timeout) as waiting:
                while True:
                    found = attach_entry(catalog, encoded)
                    if found is not None:
                        catalog.hits += 1
                        return found
                    if not waiting.wait():
                        break
                    self._check_open()
        catalog.misses += 1
        raise self._missing([name], timeout)

    def __getitem__(self, name: str) -> Stored:
        """What :meth:`get` gives without waiting; the ``ObjectNotFound`` for an unknown name is a ``KeyError``, too."""
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        self._check_open()
        try:
            return isinstance(name, str) and self._find(name_bytes(name)) is not None
        except InvalidArgument:
            return False

    def _find(self, name: bytes) -> Entry | None:
        """The object of a name that has not expired, without attaching it."""
        found = self._catalog.find(name)
        return None if found is None or found.expired else found

    def names(self, prefix: str = "") -> list[str]:
        """The names of all objects, sorted; only those that begin with ``prefix``."""
        return sorted(self._names(prefix))

    def _names(self, prefix: str = "") -> Iterator[str]:
        self._check_open()
        _check_prefix(prefix)
        for part in self._catalog.snapshot("name", expired=False):
            names = part["name"]
            yield from [name for name in names if name.startswith(prefix)] if prefix else names

    def scan(self, prefix: str = "") -> Iterator[Found]:
        """All objects with their sizes and times, in no order; nothing is opened, pinned or locked."""
        self._check_open()
        _check_prefix(prefix)
        fields = ("size", "allocated", "published", "flags", "used")
        pins = pin_counts(self._catalog)
        for part in self._catalog.snapshot("name", *fields, expired=False):
            now, wall = time.monotonic_ns(), time.time_ns()
            columns = [part["name"], *(part[field].tolist() for field in ("slot", "generation", *fields))]
            for name, slot, generation, size, allocated, published, flags, used in zip(*columns, strict=True):
                if name.startswith(prefix):
                    yield Found(
                        name,
                        size,
                        allocated,
                        generation,
                        max(wall - published, 0) / 1e9,
                        max(now - used, 0) / 1e9,
                        pins[slot],
                        bool(flags & p.PROTECTED),
                        bool(flags & p.SPILLED),
                    )

    def __iter__(self) -> Iterator[str]:
        """The names of all objects, in no order."""
        return self._names()

    def __len__(self) -> int:
        self._check_open()
        objects, now = min(self._catalog.state()[p.OBJECTS], self._catalog.memory.slots), clock()
        over = [
            int(((part["expires"] != 0) & (part["expires"] <= now)).sum()) for part in self._catalog.snapshot("expires")
        ]
        return max(objects - sum(over), 0)

    def info(self, name: str) -> ObjectInfo:
        """What is known of an object; this is no use of it, and pins nothing.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        self._check_open()
        encoded = name_bytes(name)
        found = self._find(encoded)
        attached = None if found is None else attach_entry(self._catalog, encoded, pinned=False)
        if found is None or attached is None:
            raise self._missing([name], None)
        try:
            return object_info(self._catalog, found, describe(attached))
        finally:
            attached.close()

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
        self._check_open()
        if (name is None) == (prefix is None):
            raise InvalidArgument("delete takes a name or a prefix; clear() deletes all objects")
        if name is not None:
            self._delete(name_bytes(name))
            return None
        return self._delete_all(prefix or "")

    def _delete(self, name: bytes, generation: int | None = None) -> None:
        catalog = self._catalog
        with catalog.locked():
            found = self._find(name)
            if found is None or (generation is not None and found.generation != generation):
                raise self._missing([name.decode()], None)
            transaction = Transaction(catalog)
            transaction.remove(found)
            transaction.commit()

    def _delete_all(self, prefix: str) -> int:
        _check_prefix(prefix)
        deleted = 0
        for part in self._catalog.snapshot("name"):
            chosen = [row for row, name in enumerate(part["name"]) if name.startswith(prefix)]
            deleted += len(self._space.remove_all(part["slot"][chosen].tolist(), part["generation"][chosen].tolist()))
        return deleted

    def rename(self, name: str, new_name: str, overwrite: bool = False) -> None:
        """Give an object another name, at once: nobody sees it under both or none.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        ObjectExists
            If the new name is taken, and is not to be overwritten.
        """
        self._check_open()
        old, new = name_bytes(name), name_bytes(new_name)
        catalog = self._catalog
        with catalog.locked():
            found = self._find(old)
            if found is None:
                raise self._missing([name], None)
            if old == new:
                return
            replaced = catalog.find(new)
            if replaced is not None and not replaced.expired and not overwrite:
                raise ObjectExists(
                    errno.EEXIST,
                    f"the name {new_name!r} is taken in the store {self.name!r}; delete that object first, or pass "
                    "overwrite=True",
                )
            transaction = Transaction(catalog)
            transaction.rename(found, new, replaced)
            transaction.commit()

    def expire_after(self, name: str, seconds: float | None) -> None:
        """From so many seconds from now on, an object is not found any more, and may be collected; None for never.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        expires, wall = _expiry(seconds)
        self._update(name, lambda entry: entry._replace(expires=expires, expires_wall=wall))

    def _update(self, name: str, change: Callable[[Entry], Entry]) -> None:
        self._check_open()
        encoded = name_bytes(name)
        with self._catalog.locked():
            found = self._find(encoded)
            if found is None:
                raise self._missing([name], None)
            transaction = Transaction(self._catalog)
            transaction.update(change(found))
            transaction.commit()

    def reserve(self, nbytes: int) -> list[str]:
        """Make room for objects of so many bytes, by evicting others; nobody else is kept from using it.

        Returns
        -------
        list of str
            The names of the objects that were removed.

        Raises
        ------
        StoreFull
            If that much cannot be had; nothing is removed then.
        """
        _check_bytes(nbytes)
        self._check_open()
        return self._space.reserve(nbytes)

    def evict(self, nbytes: int) -> list[str]:
        """Remove objects of ``nbytes`` bytes or more, those used longest ago, that nobody has attached.

        Returns
        -------
        list of str
            Their names.

        Raises
        ------
        StoreFull
            If there are not that many bytes that nobody uses; nothing is removed then.
        """
        _check_bytes(nbytes)
        self._check_open()
        return self._space.release(nbytes, anything=True)

    def collect(self) -> Collected:
        """Remove what nobody needs: objects whose owner is gone or whose time is over, and what killed processes left.

        What anybody has attached stays until the next time.
        """
        self._check_open()
        return self._space.collect()

    def clear(self) -> None:
        """Remove all objects. Who has one attached keeps it."""
        self._check_open()
        self._delete_all("")

    # --- watching ---

    def watch(self, prefix: str = "") -> Watch:
        """What is published and deleted from now on, by any process; see :class:`Watch`."""
        self._check_open()
        _check_prefix(prefix)
        return Watch(self._catalog, prefix)

    def stats(self) -> Stats:
        """How much the store holds, how much room there is, and who has what attached."""
        self._check_open()
        return statistics(self._catalog, self._space)

    # --- the end ---

    def close(self) -> None:
        """Let go of the store; objects stay, and so do arrays of them, and what this process owns stays its own."""
        if self._closed:
            return
        self._closed = True
        self._listeners.close()
        self._catalog.flush_counters()
        self._catalog.release()

    def destroy(self) -> None:
        """Remove the store with all its objects, and its directory; close it. Who has an object attached keeps it.

        Raises
        ------
        StorageError
            If the directory has other files; they stay, and so does it.
        """
        self._check_open()
        self._catalog.destroy()
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
        if self._closed:
            return f"<Store {self.name!r}, closed>"
        return f"<Store {self.name!r}, {counted(self._catalog.state()[p.OBJECTS], 'object')}>"

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

    def _missing(self, names: list[str], timeout: float | None) -> ObjectNotFound:
        waited = f" came within {timeout:g} s" if timeout else ""
        which = f"object {names[0]!r}" if len(names) == 1 else f"objects {', '.join(map(repr, names))}"
        return ObjectNotFound(
            errno.ENOENT,
            f"no {which}{waited} in the store {self.name!r}: never published, or removed, evicted or expired"
            + first_design(self._path, names[0]),
        )


def _reopen(where: str, owned: bool, trust: bool) -> Store:
    """A store that was pickled."""
    return Store(where, owned=owned, trust=trust, create=False)


def name_bytes(name: object) -> bytes:
    """The name of an object as the catalog has it.

    Raises
    ------
    InvalidArgument, InvalidType
        If it cannot be one.
    """
    if not isinstance(name, str):
        raise InvalidType(f"the name of an object is a str, found {shown(name)}")
    try:
        coded = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name!r} cannot be encoded as a name: {error}") from None
    if not 0 < len(coded) <= p.NAME_MAX or b"\0" in coded:
        raise InvalidArgument(
            f"the name of an object has 1 to {p.NAME_MAX} bytes and no NUL, found {shown(name)} of {len(coded)}"
        )
    return coded


def _check_prefix(prefix: object) -> None:
    if not isinstance(prefix, str):
        raise InvalidType(f"prefix is a str, found {shown(prefix)}")


def _names(names: str | Iterable[str]) -> Iterable[str]:
    return [names] if isinstance(names, str) else names


def _check_bytes(nbytes: int) -> None:
    if not isinstance(nbytes, int) or isinstance(nbytes, bool):
        raise InvalidType(f"nbytes is an int, found {shown(nbytes)}")


def _check_timeout(timeout: object) -> None:
    if timeout is not None and (not isinstance(timeout, (int, float)) or not 0 <= timeout <= _FOREVER):
        raise InvalidArgument(f"timeout is a number of seconds from 0 to {_FOREVER}, or None, found {shown(timeout)}")


def _end_of(timeout: float | None) -> float | None:
    _check_timeout(timeout)
    return None if timeout is None else time.monotonic() + timeout


def _expiry(seconds: float | None) -> tuple[int, int]:
    """When something expires, by the clock of this boot and by that of the wall, in nanoseconds; 0 for never."""
    if seconds is None:
        return 0, 0
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise InvalidArgument(f"an object expires after 0 or more seconds, found {shown(seconds)}")
    if seconds > _FOREVER:
        return 0, 0
    span = int(seconds * 1e9)
    return max(clock() + span, 1), time.time_ns() + span
