# SPDX-License-Identifier: Apache-2.0
"""The public class Store: named objects shared between the processes of a host.

Invariants:

* every guarantee comes from the kernel: unlinked files stay readable while mapped, locks are released when their
  process ends, and all processes map the same control file. Processes never exchange messages;
* a name refers to a complete object or to none; readers of an object that is replaced, removed or evicted keep it;
* the cost of an operation by name does not depend on the number of objects.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from shmarrow import memory
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
from shmarrow.habits import Hinted
from shmarrow.memory import Location, Segment
from shmarrow.objects import RECORD_BATCH, Stored, decode
from shmarrow.store import protocol as p
from shmarrow.store.arguments import (
    PutOptions,
    as_count,
    as_expiry,
    as_name,
    as_names,
    as_new_name,
    as_owned,
    as_prefix,
    as_put_options,
    as_timeout,
)
from shmarrow.store.attach import Pin, StoredSegment, attach_entry, is_trusted, live, pin_entry
from shmarrow.store.catalog import Catalog, open_catalog
from shmarrow.store.directory import Users, as_users, is_explicit, locate
from shmarrow.store.index import events_since, last_event
from shmarrow.store.protocol import Entry
from shmarrow.store.settings import Settings, default_eviction, parse_settings
from shmarrow.store.waiters import CHECK, Waiting, common_prefix, exactly
from shmarrow.types.arguments import as_bool

if TYPE_CHECKING:
    from shmarrow.ipc.draft import Draft
    from shmarrow.ipc.file.writer import RecordBatchFileWriter
    from shmarrow.ipc.options import IpcWriteOptions
    from shmarrow.objects.encode import Encoded
    from shmarrow.store.info import Found, ObjectInfo, Stats
    from shmarrow.store.publish import Publication
    from shmarrow.store.snapshot import Piece
    from shmarrow.store.watch import Watch
    from shmarrow.types import Schema

K = TypeVar("K")
D = TypeVar("D")
_PIECE = 1 << 24
_UNCHANGED: Any = ...
_RAISE: Any = object()
"""Stands for no default."""


class Store(Hinted):
    """A store of named objects in shared memory or a directory, open to any process with read permission.

    Parameters
    ----------
    where : str or PathLike
        ``shm:NAME`` for the directory ``/dev/shm/NAME`` in shared memory, or the path of a directory, which is created
        if missing and must not contain other files.
    capacity : int or str, optional
        Maximum total size of all objects in bytes, counted in blocks of the file system; or text such as ``"8GB"``, in
        units of 1,024 bytes and its powers.
    mode : int, optional
        Permission bits: 0600 (default) is private, 0640 lets the group read, 0660 lets it write. Published objects
        are never writable.
    eviction : str, optional
        ``"lru"`` removes the least recently used objects that are not attached when space runs out. ``"none"`` removes
        only orphaned and expired objects. Defaults to ``"lru"`` if a capacity is set.
    durable : bool, optional
        Write every change to disk before the call returns, so that it survives a crash of the machine.
    owned : bool or int
        True makes this process the owner of the objects put through this instance: they may be collected once it has
        ended, for whatever reason. A number from another process's :meth:`owner` makes that process the owner.
    accept_users : bool, int, str, or several of these
        Users, by number or name, whose directories and files are accepted besides your own and root's. True accepts
        any user's, and directories that others may write to.
    create : bool, optional
        Create the store if it does not exist. By default, a string without a slash, such as ``"data"``, which may be a
        mistyped ``"shm:data"``, creates none; all other locations do.

    Raises
    ------
    InvalidArgument
        If a given setting differs from the store's. Capacity, mode, eviction and durable are stored when the
        store is created and need not be repeated; :meth:`configure` changes capacity and eviction.
    ObjectNotFound
        If the store does not exist and is not to be created.
    StorageError
        If the directory cannot be created or read, is not trusted, or is neither a store nor empty.

    Notes
    -----
    Most programs need :meth:`put`, :meth:`get`, :meth:`names`, :meth:`delete` and :meth:`close`, or ``store[name]``,
    ``name in store``, ``del store[name]`` and ``len(store)``. Others are about objects that other processes put
    (:meth:`wait`, :meth:`watch`, :meth:`get_or_put`, :meth:`take`), about room and time (:meth:`pin`, :meth:`protect`,
    :meth:`evict`, :meth:`collect` and more), or are further ways to put and to get.

    Thread safety: threads and forked children may share a store; operations are atomic between threads as they are
    between processes. Unpickling reopens the store with the same ``owned`` and ``accept_users``.

    Names are strings of 1 to 255 bytes in UTF-8 without NUL. ``/`` has no special meaning; objects can be
    selected by prefix.

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

    _kind = "store"

    def __init__(
        self,
        where: Location,
        capacity: int | str | None = None,
        *,
        mode: int | None = None,
        eviction: str | None = None,
        durable: bool | None = None,
        owned: bool | int = False,
        accept_users: Users = False,
        create: bool | None = None,
    ) -> None:
        self._owned = as_owned(owned)
        self._accept_users = as_users(accept_users)
        self._name, self._path = locate(where)
        want = parse_settings(capacity, mode, eviction, durable)
        creates = is_explicit(where) if create is None else as_bool(create, "create", True)
        self._opened: Catalog | None = open_catalog(where, want, self._accept_users, creates)

    @property
    def _catalog(self) -> Catalog:
        """The catalog, which stays open as long as a call refers to it; Closed after :meth:`close`."""
        catalog = self._opened
        if catalog is None:
            raise Closed(f"the store {self.name!r} is closed; open it again")
        if catalog.forked:
            catalog.check_inherited()
        return catalog

    # --- what most programs need --------------------------------------------------------------------------------------

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
        reuse: bool = False,
        inline: bool = True,
    ) -> str:
        """Put an object into the store; it becomes visible only when complete.

        Parameters
        ----------
        name : str or None
            Its name; None generates one.
        obj : object
            A RecordBatch, Table, Array, ChunkedArray, Tensor or SparseTensor; an ndarray; bytes, str, int, float or
            bool; a mapping of names to tensors, which becomes a bundle. Objects of other libraries with the Arrow
            PyCapsule interface are converted: record batches and arrays to ours, a Series to an Array, and data
            frames, queries and readers (which are read to the end) to tables. The values are copied once.
        overwrite : bool
            Replace an existing object of this name. Existing readers keep the old version. Protection and expiry are
            not inherited.
        expire_after : float, optional
            Seconds after which the object can no longer be found and may be collected, by the clock of the system.
        options : IpcWriteOptions, optional
            Compression and alignment.
        protect : bool
            Never evict it before it expires or its owner has ended.
        if_generation : int, optional
            Replace the object only if it has this number, as :meth:`generation` tells; implies ``overwrite``. 0
            requires that the name is free.
        reuse : bool
            Share the buffers of rows that are views of other objects of this store instead of copying them: of columns
            that are exactly, sliced, renamed or reordered, at every level of nesting. The memory of such an object is
            kept, whatever becomes of it, as long as this one needs it, even if this one is only a slice of it.

        inline : bool
            Whether a small object may be in the control file, which readers copy. False gives it a file of its own, so
            that all who get it share its memory.

        Returns
        -------
        str
            The name.

        Raises
        ------
        ObjectExists
            If the name is taken and ``overwrite`` is False.
        GenerationChanged
            If the existing object has another generation.
        StoreFull
            If there is not enough space, and not enough can be evicted.
        InvalidType
            If the store cannot represent the type or all values of the object.
        CopyRequired
            If an array in a mapping of tensors has nulls, which tensors cannot hold.
        InvalidArgument
            If ``options`` ask for compression or big-endian values of an object that shares buffers.
        """
        from shmarrow.objects.encode import encode

        catalog = self._catalog
        how = as_put_options(self._owned, overwrite, expire_after, protect, if_generation)
        if reuse is not False and as_bool(reuse, "reuse", False):
            return self._put_sharing(catalog, name, obj, how, options)
        most = p.INLINE_MAX if inline is True or as_bool(inline, "inline", True) else -1
        return self._put(catalog, name, encode(obj, options), how, inline=most)

    @overload
    def get(self, name: str, *, kind: None = None, timeout: float | None = 0, unchecked: bool = False) -> Stored: ...
    @overload
    def get(self, name: str, *, kind: type[K], timeout: float | None = 0, unchecked: bool = False) -> K: ...
    @overload
    def get(
        self, name: str, default: D, *, kind: None = None, timeout: float | None = 0, unchecked: bool = False
    ) -> Stored | D: ...
    @overload
    def get(
        self, name: str, default: D, *, kind: type[K], timeout: float | None = 0, unchecked: bool = False
    ) -> K | D: ...
    def get(
        self,
        name: str,
        default: Any = _RAISE,
        *,
        kind: Any = None,
        timeout: float | None = 0,
        unchecked: bool = False,
    ) -> Any:
        """Return an object without copying; its arrays view the store's memory and keep the object attached.

        Objects from pyarrow come back as the RecordBatch, Table, Array, ChunkedArray, Tensor or SparseTensor of
        this package, Series from pandas or polars as an Array. Chunked arrays keep their chunks. ndarrays come back in
        native byte order.

        Parameters
        ----------
        name : str
            Its name.
        default : object, optional
            Returned if there is no object of this name, instead of an error.
        kind : type, optional
            The class that it must have, such as :class:`RecordBatch`, also for type checkers.
        timeout : float or None
            Seconds to wait for the object to be published; 0 (default) does not wait, None waits forever.
        unchecked : bool
            True exports its arrays to other libraries without checking their values first; see
            :func:`shmarrow.ipc.open_file`. Only for stores that only your own code writes to. By default, large
            objects whose values were checked by :meth:`put` are exported without another check if only this user, root
            and users named by the store's ``accept_users`` may change the store.

        Raises
        ------
        ObjectNotFound
            If there is no object of this name, or none was published in time, and no ``default``.
        InvalidType
            If it is not of this ``kind``.
        StorageError
            If the store has been destroyed.
        Closed
            If the store is closed, also by another thread during the wait.
        """
        catalog = self._catalog
        try:
            segment = self._attach(catalog, name, timeout)
        except ObjectNotFound:
            if default is _RAISE:
                raise
            return default
        if unchecked is False:
            trusted = bool(segment.entry.flags & p.CHECKED) and is_trusted(catalog, segment)
        else:
            trusted = as_bool(unchecked, "unchecked", False)
        value = decode(segment, trusted)
        if kind is not None and not isinstance(value, kind):
            raise InvalidType(f"expected {name!r} to be a {kind.__name__}, found a {type(value).__name__}")
        return value

    def keys(self) -> list[str]:
        """Return the sorted names of all objects, as :meth:`names`; with it, ``dict(store)`` has all objects."""
        return self.names()

    def names(self, prefix: str = "") -> list[str]:
        """Return the sorted names of all objects, or of those that start with ``prefix``."""
        prefix = as_prefix(prefix)
        names = list(chain.from_iterable(part["name"] for part in self._snapshot("name", expired=False)))
        return sorted([name for name in names if name.startswith(prefix)] if prefix else names)

    def items(self, prefix: str = "") -> Iterator[tuple[str, Stored]]:
        """Iterate over the names and objects, or over those that start with ``prefix``, in the order of names.

        Each object is attached when it is its turn; what was removed by then is left out.
        """
        for name in self.names(prefix):
            with suppress(ObjectNotFound):
                yield name, self.get(name)

    @overload
    def delete(self, name: str) -> None: ...
    @overload
    def delete(self, *, prefix: str) -> int: ...
    def delete(self, name: str | None = None, *, prefix: str | None = None) -> int | None:
        """Delete an object, or all objects whose names start with ``prefix``.

        Processes that have it attached keep it; its memory is freed when the last one detaches.

        Returns
        -------
        int or None
            The number of objects deleted by prefix; None if a name was given.

        Raises
        ------
        ObjectNotFound
            If there is no object of this name.
        """
        if (name is None) == (prefix is None):
            raise InvalidArgument("delete takes a name or a prefix; clear() deletes all objects")
        if name is None:
            return self._delete_all(as_prefix(prefix))
        self._delete(as_name(name))
        return None

    def rename(self, name: str, new_name: str, overwrite: bool = False) -> None:
        """Rename an object atomically: it is never visible under both names or neither.

        Raises
        ------
        ObjectNotFound
            If there is no object of this name.
        ObjectExists
            If the new name is taken and ``overwrite`` is False.
        """
        old, new, overwrite = as_name(name), as_name(new_name), as_bool(overwrite, "overwrite", False)
        catalog = self._catalog
        with catalog.change() as change:
            entry = self._found(old)
            if old == new:
                return
            replaced = catalog.find(new)
            if replaced is not None and not replaced.expired and not overwrite:
                raise ObjectExists(
                    errno.EEXIST,
                    f"the name {new_name!r} is taken in the store {self.name!r}",
                    hint="delete that object first, or pass overwrite=True",
                )
            change.rename(entry, new, replaced)

    def info(self, name: str) -> ObjectInfo:
        """Describe an object; does not count as a use and pins nothing.

        Raises
        ------
        ObjectNotFound
            If there is no object of this name.
        """
        from shmarrow.objects.decode import describe
        from shmarrow.store.info import object_info

        with self.attach(name, use=False) as segment:
            assert isinstance(segment, StoredSegment)
            return object_info(self._catalog, segment.entry, describe(segment))

    def stats(self) -> Stats:
        """Return usage, free space, and the processes that have objects attached."""
        from shmarrow.store.info import statistics

        return statistics(self._catalog)

    def wait(self, names: str | Iterable[str], *, timeout: float | None = None, any: bool = False) -> list[str]:
        """Wait until objects are published, also if they are deleted again at once.

        Parameters
        ----------
        names : str, or iterable of str
            Their names.
        timeout : float, optional
            Seconds to wait; None waits forever.
        any : bool
            Return as soon as one of them has been published.

        Returns
        -------
        list of str
            The names of objects that existed when the wait began or were published since, in the order given.

        Raises
        ------
        ObjectNotFound
            If the timeout expires; names the missing objects.
        StorageError, Closed
            As for :meth:`get`.

        Notes
        -----
        An object that exists for a moment only is missed if more than 256 changes of the store follow before this
        process looks.
        """
        seconds, any = as_timeout(timeout), as_bool(any, "any", False)
        checked, catalog = as_names(names), self._catalog
        missing = dict.fromkeys(map(str.encode, checked))
        count, last = len(missing), last_event(catalog.memory)
        with Waiting(self._catalog, seconds) as waiting:
            while True:
                last, events = events_since(catalog.memory, last)
                published = {name for kind, name, _ in events or () if kind == p.PUBLISHED}
                missing = dict.fromkeys([name for name in missing if name not in published and not live(catalog, name)])
                if not missing or (any and len(missing) < count):
                    return [name for name in checked if name.encode() not in missing]
                prefix = common_prefix(map(exactly, missing)) if any else exactly(next(iter(missing)))
                self._check_open()
                catalog.check_exists()
                if not waiting.wait(prefix):
                    raise self._missing([name for name in checked if name.encode() in missing], seconds)

    def watch(self, prefix: str = "") -> Watch:
        """Return an iterator over all objects published and deleted from now on; see :class:`Watch`."""
        from shmarrow.store.watch import Watch

        return Watch(self._catalog, as_prefix(prefix))

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
        """Return an object, computing and putting it if missing; of concurrent callers, only one computes it.

        If that caller fails or is killed, the next waiting caller computes it. If another process puts an object of
        this name meanwhile, all callers get that object.

        Parameters
        ----------
        name : str
            Its name.
        function : callable
            Returns the object; called without arguments.
        timeout : float, optional
            Seconds to wait for another caller to compute it; None waits forever.
        expire_after, options, protect
            As for :meth:`put`. An object that expires immediately is returned as computed.

        Raises
        ------
        ObjectNotFound
            If another caller is still computing it when the timeout expires.
        InvalidArgument
            If ``function`` calls this method with the same name, which would deadlock.
        """
        timeout, coded, waiters = as_timeout(timeout), as_name(name), self._catalog.waiters
        lock = p.NAME_LOCKS + self._catalog.hash(coded)
        if not callable(function):
            raise InvalidType(f"get_or_put needs a function that returns the object, found {shown(function)}")
        as_put_options(self._owned, False, expire_after, protect)
        computing = self._catalog.exclusive
        with suppress(ObjectNotFound):
            return self.get(name)
        self._catalog.check_writable()
        if computing.mine(lock):
            raise InvalidArgument(f"the function that computes {name!r} requests it itself through get_or_put")
        with Waiting(self._catalog, timeout) as waiting:
            while True:
                try:
                    if computing.acquire(lock):
                        with suppress(ObjectNotFound):
                            return self.get(name)
                        value = function()
                        with suppress(ObjectExists):
                            self.put(name, value, expire_after=expire_after, options=options, protect=protect)
                        with suppress(ObjectNotFound):
                            return self.get(name)
                        return value
                finally:
                    if computing.mine(lock):
                        computing.release(lock)
                        waiters.wake([coded])  # the next one computes it, if this one has failed
                with suppress(ObjectNotFound):
                    return self.get(name)
                # A computing process that is killed wakes nobody.
                if not waiting.wait(exactly(coded), min(max(waiting.waited / 10, 0.02), CHECK)):
                    raise self._missing([name], timeout)

    def take(self, name: str, *, timeout: float | None = 0) -> Stored:
        """Get an object and delete it; only one of several callers gets it. Parameters and errors as :meth:`get`."""
        seconds = as_timeout(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            segment = self._attach(self._catalog, name, None if end is None else _left(end))
            value = decode(segment, bool(segment.entry.flags & p.CHECKED) and is_trusted(self._catalog, segment))
            segment.close()
            with suppress(ObjectNotFound):
                self._delete(as_name(name), segment.entry.generation)
                return value

    def close(self) -> None:
        """Close the store; closing twice is allowed.

        Its objects remain, arrays obtained from it stay valid, and ownership does not change. Drafts, writers and
        watches keep working. A thread waiting for an object gets :class:`Closed`.
        """
        catalog, self._opened = self._opened, None
        if catalog is not None:
            catalog.waiters.wake_own()

    def destroy(self) -> None:
        """Remove the store, its objects and its directory, and close it; attached objects stay valid.

        Raises
        ------
        StorageError
            If the directory contains other files; these and the directory remain, the store is removed.
        """
        catalog = self._catalog
        try:
            catalog.destroy()
        finally:
            if not catalog.exists:
                self.close()

    def __contains__(self, name: object) -> bool:
        catalog = self._catalog
        try:
            return isinstance(name, str) and live(catalog, as_name(name)) is not None
        except InvalidArgument:
            return False

    def __getitem__(self, name: str) -> Stored:
        """Return an object like :meth:`get`, without waiting; an unknown name raises a ``KeyError``, too."""
        return self.get(name)

    def __setitem__(self, name: str, obj: Any) -> None:
        """Put an object, replacing an existing one."""
        self.put(name, obj, overwrite=True)

    def __delitem__(self, name: str) -> None:
        """Delete an object; see :meth:`delete`."""
        self.delete(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over :meth:`names`: those at one moment, when the iteration begins."""
        return iter(self.names())

    def __len__(self) -> int:
        objects, now = self._catalog.state().objects, time.time_ns()
        for part in self._snapshot("expires"):
            objects -= int(((part["expires"] != 0) & (part["expires"] <= now)).sum())
        return min(max(objects, 0), self._catalog.memory.slots)

    # --- more ways to put -------------------------------------------------------------------------------------------

    def put_file(
        self,
        name: str | None,
        source: Location,
        overwrite: bool = False,
        *,
        expire_after: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> str:
        """Copy an Arrow file, stream or tensor into the store, byte for byte.

        Parameters
        ----------
        name : str or None
            Its name; None generates one.
        source : path or ``shm:NAME``
            An Arrow file, stream or tensor message.
        overwrite, expire_after
            As for :meth:`put`.
        progress : callable, optional
            Called repeatedly with the number of bytes copied so far.

        Raises
        ------
        InvalidData
            If it is not an Arrow file, stream or tensor.
        """
        from shmarrow.objects.decode import describe

        self._check_open()
        how = as_put_options(self._owned, overwrite, expire_after)
        with memory.attach(source) as file:
            describe(file)
            with memory.UnnamedFile(self._publication(self._catalog, name, how, file.size)) as writer:
                for start in range(0, file.size, _PIECE):
                    writer.write([file.data[start : start + _PIECE]])
                    if progress is not None:
                        progress(writer.size)
        return writer.name

    def new_draft(
        self,
        name: str | None,
        schema: Schema,
        num_rows: int,
        bytes: Mapping[str, int] | None = None,
        *,
        overwrite: bool = False,
        expire_after: float | None = None,
    ) -> Draft:
        """Allocate a record batch in the store, whose columns are filled in place without copying.

        Parameters
        ----------
        name : str or None
            Its name; None generates one, see :attr:`Draft.name`.
        schema : Schema
            Fields of fixed-width types, strings and binary, and structs and fixed-size lists of these.
        num_rows : int
            Number of rows.
        bytes : mapping of str to int, optional
            For each string or binary column, the total size of its values in bytes.
        overwrite, expire_after
            As for :meth:`put`.

        Raises
        ------
        StoreFull
            If there is not enough space; it is reserved before any column is returned.
        Unsupported
            If the size of a column depends on its values.
        """
        from shmarrow.ipc.draft import Draft

        publication = self._publication(self._catalog, name, as_put_options(self._owned, overwrite, expire_after))
        return Draft(memory.UnnamedFile(publication), schema, num_rows, bytes, RECORD_BATCH)

    def new_file(
        self,
        name: str,
        schema: Schema,
        *,
        overwrite: bool = False,
        expire_after: float | None = None,
        options: IpcWriteOptions | None = None,
        protect: bool = False,
    ) -> RecordBatchFileWriter:
        """Return a writer of record batches, which are published as one table when it is closed.

        Parameters
        ----------
        name : str
            Its name.
        schema : Schema
            The schema of all batches.
        overwrite, expire_after, options, protect
            As for :meth:`put`.

        Raises
        ------
        ObjectExists
            If the name is taken, now or when the writer is closed.
        """
        from shmarrow.ipc.file.writer import RecordBatchFileWriter

        publication = self._publication(
            self._catalog, name, as_put_options(self._owned, overwrite, expire_after, protect)
        )
        return RecordBatchFileWriter(memory.UnnamedFile(publication), schema, options)

    def _put_sharing(
        self, catalog: Catalog, name: str | None, obj: Any, how: PutOptions, options: IpcWriteOptions | None
    ) -> str:
        """Put an object that shares buffers with others of this store."""
        from shmarrow.objects.encode import normalized
        from shmarrow.reuse import Sources
        from shmarrow.store.transaction import NotShared

        obj = normalized(obj)
        with Sources(catalog.mapped, p.PARTS_MAX) as sources:
            while True:
                encoded = sources.encode(obj, options)
                try:
                    return self._put(catalog, name, encoded, how, sources.descriptors)
                except NotShared as error:
                    sources.exclude(error.part)

    def _put(
        self,
        catalog: Catalog,
        name: str | None,
        encoded: Encoded,
        how: PutOptions,
        parts: Sequence[int] = (),
        inline: int = p.INLINE_MAX,
    ) -> str:
        """Publish an object: a small one without parts in the control file, others in a file of their own."""
        size = encoded.size
        if parts or size is None or size > inline:
            with memory.UnnamedFile(self._publication(catalog, name, how, size or 0, parts, encoded.columns)) as file:
                for part in encoded.parts:
                    file.write(part)
            return file.name
        from shmarrow.store.publish import put_inline

        coded = as_new_name(name)
        put_inline(catalog, coded, how, b"".join(chain.from_iterable(encoded.parts)))
        return coded.decode()

    def _publication(
        self,
        catalog: Catalog,
        name: str | None,
        how: PutOptions,
        size: int = 0,
        parts: Sequence[int] = (),
        columns: Iterable[Any] = (),
    ) -> Publication:
        from shmarrow.store.publish import Publication

        if not catalog.writable:
            catalog.check_writable()
        return Publication(catalog, as_new_name(name), how, size, parts, columns)

    # --- more ways to get -------------------------------------------------------------------------------------------

    def attach(self, name: str, *, timeout: float | None = 0, use: bool = True) -> Segment:
        """Map the bytes of an object. Parameters and errors as :meth:`get`.

        Parameters
        ----------
        use : bool
            False neither counts as a use nor pins the object, unless it shares memory with others, and does not wait.
        """
        if use:
            return self._attach(self._catalog, name, timeout)
        segment = attach_entry(self._catalog, as_name(name), use=False)
        if segment is None:
            raise self._missing([name])
        return segment

    def generation(self, name: str) -> int:
        """Return the number of an object, which changes when it is replaced or renamed; 0 if there is none."""
        found = live(self._catalog, as_name(name))
        return 0 if found is None else found.generation

    def scan(self, prefix: str = "") -> Iterator[Found]:
        """Iterate over all objects with their sizes and times, unordered; nothing is opened, pinned or locked."""
        from shmarrow.store.info import found_objects

        return found_objects(self._catalog, as_prefix(prefix))

    def _attach(self, catalog: Catalog, name: str, timeout: float | None) -> StoredSegment:
        encoded = as_name(name)
        if timeout.__class__ is not int or timeout:
            timeout = as_timeout(timeout)
        segment = attach_entry(catalog, encoded)
        if segment is None and timeout != 0:
            with Waiting(catalog, timeout) as waiting:
                while (segment := attach_entry(catalog, encoded)) is None:
                    self._check_open()  # another thread may have closed it
                    catalog.check_exists()
                    if not waiting.wait(exactly(encoded)):
                        break
        if segment is None:
            raise self._missing([name], timeout)
        return segment

    def _snapshot(self, *fields: str, expired: bool = True) -> Iterator[Piece]:
        from shmarrow.store.snapshot import snapshot

        return snapshot(self._catalog, *fields, expired=expired)

    def _missing(self, names: list[str], timeout: float | None = None) -> ObjectNotFound:
        waited = f" came within {timeout:g} s" if timeout else ""
        which = f"object {names[0]!r}" if len(names) == 1 else f"objects {', '.join(map(repr, names))}"
        return ObjectNotFound(
            errno.ENOENT,
            f"no {which}{waited} in the store {self.name!r}: never published, or removed, evicted or expired",
        )

    # --- room and time ----------------------------------------------------------------------------------------------

    def pin(self, name: str) -> Pin:
        """Pin an object, so that it is not evicted until the pin is closed.

        Raises
        ------
        ObjectNotFound
            If there is no object of this name.
        """
        pin = pin_entry(self._catalog, as_name(name))
        if pin is None:
            raise self._missing([name])
        return pin

    def protect(self, name: str, on: bool = True) -> None:
        """Exempt an object from eviction, or with ``on=False`` allow it again.

        Raises
        ------
        ObjectNotFound
            If there is no object of this name.
        """
        flag = p.PROTECTED if as_bool(on, "on", True) else 0
        coded = as_name(name)
        with self._catalog.change() as change:
            entry = self._found(coded)
            change.write(entry._replace(flags=entry.flags & ~p.PROTECTED | flag))

    def expire_after(self, name: str, seconds: float | None) -> None:
        """Let an object expire ``seconds`` from now, after which it may be collected; None for never.

        Raises
        ------
        ObjectNotFound
            If there is no object of this name.
        """
        expires, coded = as_expiry(seconds), as_name(name)
        with self._catalog.change() as change:
            change.write(self._found(coded)._replace(expires=expires))

    def evict(self, nbytes: int) -> list[str]:
        """Evict at least ``nbytes`` of objects that are not attached, least recently used first.

        Returns
        -------
        list of str
            Their names.

        Raises
        ------
        StoreFull
            If not enough can be evicted; then nothing is evicted.
        """
        from shmarrow.store.room import evict

        return evict(self._catalog, as_count(nbytes, "nbytes"), anything=True)

    def collect(self) -> list[str]:
        """Remove orphaned and expired objects, and leftovers of killed processes.

        Attached objects are kept until the next call.

        Returns
        -------
        list of str
            The names of the removed objects, sorted.
        """
        from shmarrow.store.room import collect

        return collect(self._catalog)

    def clear(self) -> None:
        """Delete all objects; processes that have one attached keep it."""
        self._delete_all("")

    def owner(self) -> int:
        """Return the owner number of this process, constant until it ends; a forked child has another.

        Other processes can put objects on behalf of this one through ``Store(..., owned=number)``.
        """
        catalog = self._catalog
        with catalog.change() as change:
            return catalog.own_number(change)

    def _delete(self, name: bytes, generation: int | None = None) -> None:
        with self._catalog.change() as change:
            entry = self._found(name)
            if generation is not None and entry.generation != generation:
                raise self._missing([name.decode()])
            change.remove(entry)

    def _delete_all(self, prefix: str) -> int:
        from shmarrow.store.room import remove_all

        deleted = 0
        for part in self._snapshot("name"):
            chosen = [row for row, name in enumerate(part["name"]) if name.startswith(prefix)]
            slots, generations = part["slot"][chosen].tolist(), part["generation"][chosen].tolist()
            deleted += len(remove_all(self._catalog, slots, generations))
        return deleted

    def _found(self, name: bytes) -> Entry:
        """Return the entry of an object that is to be changed; ObjectNotFound if there is none."""
        entry = live(self._catalog, name)
        if entry is None:
            raise self._missing([name.decode()])
        return entry

    # --- the store itself -------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The location of the store, as given."""
        return self._name

    @property
    def path(self) -> str:
        """The directory of the store."""
        return self._path

    @property
    def id(self) -> str:
        """A unique id of 32 hexadecimal digits; two processes use the same store if their ids are equal."""
        return self._catalog.store_id.hex()

    @property
    def exists(self) -> bool:
        """Whether the store is there: False if it was destroyed since it was opened."""
        return self._catalog.exists

    @property
    def is_private(self) -> bool:
        """Whether nobody but its owner, root, this user and those of ``accept_users`` may change it."""
        return is_trusted(self._catalog)

    @property
    def settings(self) -> Settings:
        """The settings of the store."""
        return self._catalog.settings

    @property
    def capacity(self) -> int | None:
        """Maximum total size of all objects in bytes; None if unlimited."""
        return self.settings.capacity

    def configure(
        self,
        *,
        capacity: int | str | None = _UNCHANGED,
        eviction: str | None = _UNCHANGED,
    ) -> None:
        """Change settings of the store; settings not given are kept.

        Other processes see the new settings when they next change or reopen the store. Nothing is evicted before the
        next object is put.

        Parameters
        ----------
        capacity : int, str or None
            Maximum total size of all objects in bytes, or text such as ``"8GB"``; None for no limit.
        eviction : str or None
            ``"lru"`` or ``"none"``; None for the default that follows from the capacity.
        """
        catalog = self._catalog
        changed = {"capacity": capacity, "eviction": eviction}
        changed = {field: value for field, value in changed.items() if value is not _UNCHANGED}
        want = parse_settings(**changed)
        with catalog.change() as change:
            catalog.reload()
            old = catalog.settings
            new = old._replace(**{field: getattr(want, field) for field in changed})
            by_default = "eviction" not in changed and old.eviction == default_eviction(old.capacity)
            if new.eviction is None or by_default:
                new = new._replace(eviction=default_eviction(new.capacity))
            catalog.configure(change, new)

    def rescue(self, where: Location, *, accept_users: Users = False) -> dict[str, str]:
        """Copy into this store what can be read of another one, whose catalog is damaged.

        That one is not opened: whatever became of its control file, each slot that is whole is an object, and each file
        without such a slot becomes one that is named as the file.

        Parameters
        ----------
        where, accept_users
            The damaged store, as for :class:`Store`.

        Returns
        -------
        dict of str to str
            The names of the objects that were not copied, and why.

        Raises
        ------
        ObjectNotFound, StorageError
            If there is no such directory, or it is not trusted.
        """
        from shmarrow.store.rescue import readable

        lost = dict[str, str]()
        for name, read in readable(where, as_users(accept_users)):
            try:
                self.put(name, decode(read()))
            except (ShmarrowError, OSError) as error:
                lost[name] = str(error)
        return lost

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        where = self._name if self._name.startswith(memory.SHM_SCHEME) else self._path
        return _reopen, (where, self._owned, self._accept_users)

    def __repr__(self) -> str:
        try:
            self._catalog.check_exists()
            what = counted(self._catalog.state().objects, "object")
        except (ShmarrowError, OSError) as error:
            what = "closed" if isinstance(error, Closed) else "destroyed"
        return f"<Store {self.name!r}, {what}>"

    def _check_open(self) -> None:
        _ = self._catalog


def _left(end: float) -> float:
    """Return the seconds until ``end``, a time of the monotonic clock; 0 if it has passed."""
    return max(end - time.monotonic(), 0)


def _reopen(where: str, owned: bool | int, accept_users: Users) -> Store:
    """Reopen a pickled store."""
    return Store(where, owned=owned, accept_users=accept_users, create=False)
