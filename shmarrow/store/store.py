"""The store: named objects that any process of the host can have, without a server.

Rules kept here:

* every promise is the kernel's: a link gives a name to exactly one of several writers, a lock that dies with its
  process says that an object is in use or has an owner, and memory goes with the last mapping of it. No message
  between processes is needed for any of them;
* a name leads to a whole object or to none; an object that is replaced, removed or evicted stays whole for those who
  have it;
* an operation by name costs the same however many objects there are.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import islice
from types import TracebackType
from typing import Any, Self

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
from shmarrow.segment import Location, Segment, SegmentWriter
from shmarrow.sources import open_sink
from shmarrow.store import rename, space
from shmarrow.store.info import ObjectInfo, Stats, object_info, statistics
from shmarrow.store.place import Found, Place, found_as
from shmarrow.store.publish_policy import StoreKeeper, Wishes
from shmarrow.store.register import NOTHING, Owner, Register
from shmarrow.store.space import Collected, Space
from shmarrow.store.watch import Listeners, Waiting, Watch
from shmarrow.types import Schema

EVICTION = ("lru", "none")
_LISTED, _SHOWN = 1000, 50
"""Objects that the repr of a store counts at most, and that its listing in a notebook shows."""
_FOREVER = 10**9
"""The longest timeout, in seconds: some 30 years."""
_PIECE = 1 << 24


class Store:
    """Named objects in shared memory or in a directory; any process that may read them has them by their names.

    Parameters
    ----------
    where : str or PathLike
        ``shm:NAME``: POSIX shared memory, where the object OBJECT is what any program opens as
        ``shm_open("/NAME.OBJECT")``. Or the path of a directory, made if it is not there, of mapped files.
    capacity : int, optional
        The most bytes that all objects may take. All who write to a store should give the same; a process that gives
        none has no limit.
    mode : int
        Permissions of the store: 0600 lets nobody else in, 0640 lets the group read. Published objects are never
        writable.
    eviction : str, optional
        ``"lru"``: where there is no room, the objects that were used longest ago are removed, unless somebody has them
        attached. ``"none"``: only what is orphaned or has expired. By default ``"lru"`` where a capacity is given.
    durable : bool
        Objects survive a crash of the machine: file and directory are synced before `put` returns.
    owned : bool
        What is put belongs to this process: however it ends, its objects may be collected.
    trust : bool
        Accept a directory that other users own or may write to, and their objects.

    Raises
    ------
    StorageError
        If the directory cannot be made or read, or is not to be trusted.

    Notes
    -----
    Thread safety: threads and forked children may share a store; each operation is as atomic as between processes.

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
        mode: int = 0o600,
        eviction: str | None = None,
        durable: bool = False,
        owned: bool = False,
        trust: bool = False,
    ) -> None:
        self._closed = True
        if capacity is not None and (not isinstance(capacity, int) or capacity < 1):
            raise InvalidArgument(f"the capacity is a number of bytes of at least 1, found {capacity!r}")
        if eviction is None:
            eviction = "none" if capacity is None else "lru"
        if eviction not in EVICTION:
            raise InvalidArgument(f"eviction is one of {EVICTION}, found {eviction!r}")
        self._place = Place(where, mode, trust)
        self._register = Register(self._place)
        self._space = Space(self._place, self._register, capacity)
        self._listeners = Listeners()
        self._evicts = eviction == "lru"
        self._durable = durable
        self._owned = owned
        self._owner: Owner | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """Where the store is, as it was given."""
        return self._place.name

    @property
    def capacity(self) -> int | None:
        """The most bytes that all objects may take."""
        return self._space.capacity

    # --- putting ---

    def put(
        self,
        name: str | None,
        obj: Any,
        overwrite: bool = False,
        *,
        expire_after: float | None = None,
        options: IpcWriteOptions | None = None,
    ) -> str:
        """Place an object; it is seen whole from the moment it has its name.

        Parameters
        ----------
        name : str or None
            Its name; None makes one up.
        obj : object
            A RecordBatch, Table, Array, ChunkedArray, Tensor or SparseTensor; an ndarray; a mapping of names to
            tensors, which becomes a bundle. Objects of other libraries with the Arrow PyCapsule interface become what
            they are: a record batch or an array becomes that, a Series an Array, and data frames, queries and readers,
            which are read to their end, become tables. The values are copied once, into place.
        overwrite : bool
            Replace an object of this name. Who has the old one keeps it whole.
        expire_after : float, optional
            Seconds after which the object is not found any more, and may be collected.
        options : IpcWriteOptions, optional
            Compression and alignment.

        Returns
        -------
        str
            The name.

        Raises
        ------
        ObjectExists
            If the name is taken, and is not to be overwritten.
        StoreFull
            If there is no room.
        InvalidType
            If a store cannot keep all values, or the type, of such an object.
        CopyRequired
            If an array in a mapping of tensors has nulls, which no tensor has.
        """
        encoded = encode(obj, options)
        name, writer = self._start(name, overwrite, expire_after)
        try:
            if (self._evicts or self.capacity is not None) and encoded.size is not None:
                writer.make_room(encoded.size)  # all or nothing, before others are evicted for a part
            for pieces in encoded.pieces():
                writer.write(pieces)
            writer.publish()
        finally:
            writer.discard()
        return name

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
            name, writer = self._start(name, overwrite, expire_after)
            with writer:
                writer.make_room(given.size)
                for start in range(0, given.size, _PIECE):
                    writer.write([given.data[start : start + _PIECE]])
                    if progress is not None:
                        progress(writer.size)
        return name

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
        name, writer = self._start(name, overwrite, expire_after)
        return Draft(writer, schema, num_rows, bytes, RECORD_BATCH, name=name)

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
        name, writer = self._start(name, overwrite, expire_after)
        return RecordBatchFileWriter(open_sink(writer), schema, options)

    def _start(self, name: str | None, overwrite: bool, expire_after: float | None) -> tuple[str, SegmentWriter]:
        """The name and the writer of a new object."""
        self._check_open()
        if name is None:
            name = os.urandom(12).hex()
        path = self._place.path(name)
        wishes = Wishes(self._evicts, _deadline(expire_after), self._own_number if self._owned else None)
        keeper = StoreKeeper(self._place, self._space, self._register, name, wishes)
        self._drop_expired(name)
        # A temporary name needs the control directory, which stays there for as long as somebody has its lock.
        lock: AbstractContextManager[None] = self._place.lock() if keeper.visible else nullcontext()
        try:
            with lock:
                return name, segment.create(
                    path, mode=self._place.object_mode, overwrite=overwrite, durable=self._durable, keeper=keeper
                )
        except ObjectExists:
            raise self._taken(name) from None

    def _own_number(self) -> int:
        """The number of this process as an owner; called under the store's lock."""
        if self._owner is None or self._owner.pid != os.getpid():
            self._owner = Owner(self._place)
        return self._owner.number

    # --- having ---

    def get(self, name: str, timeout: float | None = None, *, trusted: bool = False) -> Stored:
        """An object, as it was put; its arrays lie in the store, and keep it attached for as long as they live.

        What came from pyarrow is the RecordBatch, Table, Array, ChunkedArray, Tensor or SparseTensor of this package,
        what came from pandas or polars an Array. A chunked array comes in the chunks that it had. ndarrays come in the
        byte order of the machine.

        Parameters
        ----------
        name : str
            Its name.
        timeout : float, optional
            Seconds to wait for it to be published; not given, it must be there.
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

    def attach(self, name: str, timeout: float | None = None) -> Segment:
        """The bytes of an object; the parameters and errors are those of :meth:`get`."""
        return self._attach(name, timeout)

    def _attach(self, name: str, timeout: float | None) -> Segment:
        self._check_open()
        if timeout is not None and (not isinstance(timeout, (int, float)) or not -_FOREVER <= timeout <= _FOREVER):
            raise InvalidArgument(f"timeout is a number of seconds up to {_FOREVER}, or None, found {shown(timeout)}")
        path = self._place.path(name)
        try:
            return self._attach_now(name, path, mark_used=True)
        except ObjectNotFound:
            if timeout is None or timeout <= 0:
                raise self._missing(name, timeout) from None
        end = time.monotonic() + timeout
        with Waiting(self._listeners, self._place.directory, os.path.basename(path)) as waiting:
            while True:
                try:
                    return self._attach_now(name, path)  # just published, which counts as a use
                except ObjectNotFound:
                    left = end - time.monotonic()
                    if left <= 0:
                        raise self._missing(name, timeout) from None
                waiting.wait(left)

    def _attach_now(self, name: str, path: str, mark_used: bool = False) -> Segment:
        found = segment.attach_path(path, path, owners=self._place.owners, mark_used=mark_used)
        rows = self._register.rows()  # none, most often
        if rows and rows.get((found.status.st_ino, found.status.st_mtime_ns), NOTHING).expired:
            found.close()
            raise ObjectNotFound(errno.ENOENT, f"{name!r} has expired")
        return found

    def __getitem__(self, name: str) -> Stored:
        """What :meth:`get` gives without waiting; the ``ObjectNotFound`` for an unknown name is a ``KeyError``, too."""
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        self._check_open()
        return isinstance(name, str) and self._find(name) is not None

    def _find(self, name: str) -> Found | None:
        """The object of a name, without attaching it."""
        try:
            status = os.lstat(self._place.path(name))
        except OSError:
            return None
        found = found_as(name, status)
        return None if self._register.of(found.key).expired else found

    def _drop_expired(self, name: str) -> None:
        """Remove an object that has expired, whose name may be given again."""
        if not self._register.rows():
            return
        with self._place.lock():
            path = self._place.path(name)
            try:
                found = found_as(name, os.lstat(path))
            except OSError:
                return
            if self._register.of(found.key).expired:
                os.unlink(path)
                self._space.note(-found.size)

    def names(self) -> list[str]:
        """The names of all objects, sorted."""
        self._check_open()
        if not self._register.rows():
            return sorted(self._place.names())
        return sorted([found.name for found in self._place.scan() if not self._register.of(found.key).expired])

    def scan(self) -> Iterator[Found]:
        """All objects with their sizes and times, those that have expired too; nothing is opened."""
        self._check_open()
        return self._place.scan()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def info(self, name: str) -> ObjectInfo:
        """What is known of an object; this is no use of it, and pins nothing.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        self._check_open()
        found = self._find(name)
        if found is None:
            raise self._missing(name, None)
        return object_info(self._place, self._register, found)

    # --- changing ---

    def delete(self, name: str) -> None:
        """Remove an object's name. Who has it attached keeps it; its memory comes back when the last of them is done.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        self._check_open()
        path = self._place.path(name)
        with self._place.lock():
            try:
                size = os.lstat(path).st_size
                os.unlink(path)
            except FileNotFoundError:
                raise self._missing(name, None) from None
            except OSError as error:
                raise storage_error(error, "delete", name) from None
            self._space.note(-size)

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
        old, new = self._place.path(name), self._place.path(new_name)
        with self._place.lock():
            replaced = self._find(new_name) if overwrite else None
            try:
                (os.replace if overwrite else rename.without_replacing)(old, new)
            except FileNotFoundError:
                raise self._missing(name, None) from None
            except FileExistsError:
                raise self._taken(new_name) from None
            except OSError as error:
                raise storage_error(error, "rename", name) from None
            if replaced is not None:
                self._space.note(-replaced.size)

    def expire_after(self, name: str, seconds: float | None) -> None:
        """From so many seconds from now on, an object is not found any more, and may be collected; None for never.

        Raises
        ------
        ObjectNotFound
            If there is none of this name.
        """
        self._check_open()
        deadline = _deadline(seconds)
        with self._place.lock():
            found = self._find(name)
            if found is None:
                raise self._missing(name, None)
            row = self._register.of(found.key)
            self._register.add(found.key, row._replace(deadline=deadline))

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
        with self._place.lock():
            used, found = self._space.scan()
            drafts = self._space.drafts(0)
            short = nbytes - self._place.free()
            if self._space.capacity is not None:
                short = max(short, used + drafts + nbytes - self._space.capacity)
            return self._remove(short, found, space.Shortage(used, 0, drafts), self._evicts)

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
        with self._place.lock():
            used, found = self._space.scan()
            return self._remove(nbytes, found, space.Shortage(used, 0, 0), True)

    def _remove(self, nbytes: int, found: list[Found], shortage: space.Shortage, evicts: bool) -> list[str]:
        if nbytes <= 0:
            return []
        try:
            return [each.name for each in self._space.evict(nbytes, found, shortage, evicts)]
        except space.RoomRefused as refused:
            raise space.full(
                self._place, "objects to come", nbytes, self._space.capacity, refused.shortage, "too little is unused"
            ) from None

    def collect(self) -> Collected:
        """Remove what nobody needs: objects whose owner is gone or whose time is over, and what killed processes left.

        What anybody has attached stays until the next time.
        """
        self._check_open()
        with self._place.lock():
            collected = self._space.collect()
            self._tidy()
        return collected

    def clear(self) -> None:
        """Remove all objects. Who has one attached keeps it."""
        for name in list(self._place.names()):
            with suppress(ObjectNotFound):
                self.delete(name)

    # --- watching ---

    def watch(self) -> Watch:
        """What is published and deleted from now on, by any process; see :class:`Watch`."""
        self._check_open()
        return Watch(self._place)

    def stats(self) -> Stats:
        """How much the store holds, and how much room there is."""
        self._check_open()
        return statistics(self._place, self._space)

    # --- the end ---

    def close(self) -> None:
        """Let go of the store; objects stay, and so do arrays of them. What this process owns becomes collectable."""
        if self._closed:
            return
        self._closed = True
        self._listeners.close()
        if self._owner is not None:
            self._owner.close()
        with suppress(OSError):
            os.close(self._place.open_control(make=False))
            with self._place.lock(0):  # this may run anywhere, also where this process has the lock
                self._tidy()

    def _tidy(self) -> None:
        """Remove the control directory if nothing in it is needed; called under its lock."""
        with suppress(OSError):  # something is needed there
            if os.listdir(self._place.control) == [space.LEDGER]:
                self._space.distrust()
            os.rmdir(self._place.control)

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

    def __repr__(self) -> str:
        if self._closed:
            return f"<Store {self.name!r}, closed>"
        try:
            found = len(list(islice(self._place.names(), _LISTED + 1)))
        except (ShmarrowError, OSError) as error:
            return f"<Store {self.name!r}, {type(error).__name__}>"
        number = f"more than {_LISTED} objects" if found > _LISTED else counted(found, "object")
        return f"<Store {self.name!r}, {number}>"

    def _repr_html_(self) -> str:
        from shmarrow import display

        if self._closed:
            return display.listing_html(repr(self), [], [], [])
        now = time.time_ns()
        found = sorted(islice(self._place.scan(), _LISTED), key=lambda each: each.name)[:_SHOWN]
        rows = [(each.name, display.size(each.size), f"{max(0, now - each.published) // 10**9} s") for each in found]
        return display.listing_html(repr(self), ["name", "size", "age"], rows, [False, True, True])

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the store {self.name!r} is closed; open it again")

    def _missing(self, name: str, timeout: float | None) -> ObjectNotFound:
        waited = f" came within {timeout:g} s" if timeout else ""
        return ObjectNotFound(
            errno.ENOENT,
            f"no object {name!r}{waited} in the store {self.name!r}: it was never published, or it was removed, "
            "evicted, or has expired",
        )

    def _taken(self, name: str) -> ObjectExists:
        return ObjectExists(
            errno.EEXIST,
            f"the name {name!r} is taken in the store {self.name!r}; delete that object first, or pass overwrite=True",
        )


def _check_bytes(nbytes: int) -> None:
    if not isinstance(nbytes, int) or isinstance(nbytes, bool):
        raise InvalidType(f"nbytes is an int, found {shown(nbytes)}")


def _deadline(seconds: float | None) -> int:
    """When something expires, in nanoseconds since 1970; 0 for never."""
    if seconds is None:
        return 0
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise InvalidArgument(f"an object expires after 0 or more seconds, found {seconds!r}")
    return time.time_ns() + int(seconds * 1e9)
