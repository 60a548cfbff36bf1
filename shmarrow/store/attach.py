# SPDX-License-Identifier: Apache-2.0
"""Attaching: pinning and mapping an object of the catalog."""

from __future__ import annotations

import errno
import os
import stat
import time
from functools import partial
from typing import Any, Self
from weakref import ref

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidData, ObjectNotFound, ShmarrowError, StorageError, storage_error
from shmarrow.memory import Mapping, Segment, map_file, mapping_of, shared_of
from shmarrow.store.catalog import Catalog, open_catalog
from shmarrow.store.locks import PATIENCE
from shmarrow.store.protocol import Entry, file_name
from shmarrow.store.settings import RequestedSettings, destroyed

_PAUSE = 0.001
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Pin:
    """A pin that keeps an object from being evicted; returned by :meth:`Store.pin`.

    A context manager. It is also closed when it is garbage-collected and when the process ends.

    Attributes
    ----------
    slot : int
        Slot of the object in the catalog; -1 after closing.
    """

    __slots__ = ("_catalog", "_pid", "slot")

    def __init__(self, catalog: Catalog) -> None:
        self.slot = -1
        self._catalog = catalog
        self._pid = os.getpid()

    @classmethod
    def of(cls, catalog: Catalog, entry: Entry) -> Self | None:
        """Pin an object; None if it was removed meanwhile."""
        pin = cls(catalog)
        return pin if catalog.pins.acquire(entry.slot, pin) and catalog.is_attached(entry) else None

    @property
    def place(self) -> tuple[int, str, bool | tuple[int, ...]]:
        """The slot and name of the object, and the users whose store was accepted."""
        entry = self._catalog.entry(self.slot) if self.slot >= 0 else None
        name, trusted = "" if entry is None else entry.name.decode(errors="replace"), self._catalog.directory.trusted
        return self.slot, name, True if trusted is None else tuple(sorted(trusted))

    @property
    def inherited(self) -> bool:
        """Whether this process is a forked child of the one that has the lock."""
        return self._pid != os.getpid()

    def close(self) -> None:
        """End the pin; closing twice is allowed."""
        try:
            slot, self.slot = self.slot, -1  # in one step, as a signal handler may close it, too
        except AttributeError:  # an interrupt has come before it was set
            return
        if slot >= 0 and self._pid == os.getpid():
            self._catalog.pins.release(slot)

    __del__ = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Pin of {self.place[1]!r}>" if self.slot >= 0 else "<Pin, closed>"


class StoredSegment(Segment):
    """The mapped bytes of an object in a store; returned by :meth:`Store.attach`.

    Copying or unpickling it attaches and pins the object again; this fails if the object has been removed.

    Attributes
    ----------
    entry : Entry
        The slot of the object when it was attached.
    store : tuple of str and bytes
        Directory and unique id of the store.
    """

    __slots__ = ("entry", "store")

    entry: Entry
    store: tuple[str, bytes]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._data is None:
            raise self._closed_error()
        return attach_again, (self.store[0], self.entry.slot, self.entry.file, self.entry.generation, self.store[1])


def live(catalog: Catalog, name: bytes) -> Entry | None:
    """Return the entry of a name without attaching it; None if missing or expired."""
    entry = catalog.find(name)
    return None if entry is None or (entry.expires and entry.expired) else entry


def pin_entry(catalog: Catalog, name: bytes) -> Pin | None:
    """Pin the object of a name; None if missing or expired."""
    since = 0.0
    while (entry := live(catalog, name)) is not None:
        pin = Pin.of(catalog, entry)
        if pin is not None:
            return pin
        since = _wait_for_removal(catalog, name, since)
    return None


def _wait_for_removal(catalog: Catalog, name: bytes, since: float) -> float:
    """Wait a moment, as an object is being removed or replaced, and return since when; 0 at first."""
    what, now = f"cannot attach to {name.decode()!r} in the store {catalog.directory.name!r}", time.monotonic()
    if catalog.lock.mine:
        raise StorageError(
            errno.EDEADLK,
            f"{what}, which this thread is removing; do it after the signal handler or the finalizer has returned",
        )
    waited = now - since if since else 0.0
    if waited > PATIENCE:
        raise StorageError(
            errno.EBUSY,
            f"{what}: a process has been evicting it for {PATIENCE:g} s; continue that process if it is stopped, or "
            "end it",
        )
    time.sleep(0 if waited < _PAUSE else _PAUSE)
    return since or now


class InlineSegment(StoredSegment):
    """The bytes of an inline object: a copy, which is pickled as a value and needs the store no more."""

    __slots__ = ()

    def __init__(self, entry: Entry, store: tuple[str, bytes], data: bytes) -> None:
        self.name = entry.name.decode(errors="replace")
        self.size = len(data)
        self._path = ""
        self._data = np.frombuffer(data, U1)
        self.entry = entry
        self.store = store

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """0, slot, size and generation."""
        return 0, self.entry.slot, self.size, self.entry.generation

    def __reduce__(self) -> tuple[Any, ...]:
        return InlineSegment, (self.entry, self.store, self.data.tobytes())


def is_trusted(catalog: Catalog, segment: StoredSegment | None = None) -> bool:
    """Whether only trusted users may change the store, and the file of an object if one is given."""
    trusted = catalog.directory.trusted
    if trusted is None or (segment is not None and not segment.entry.file):
        return False
    status = [os.fstat(catalog.directory.fd), os.fstat(catalog.control_fd)]
    if segment is not None:
        status.append(segment.status)
    return all(each.st_uid in trusted and not each.st_mode & 0o022 for each in status)


def attach_entry(catalog: Catalog, name: bytes, use: bool = True) -> StoredSegment | None:
    """Attach to the object of a name; None if missing or expired.

    Without ``use``, it is pinned only if it has parts to be mapped later, and does not count as used.
    """
    since, pin = 0.0, None
    while (entry := live(catalog, name)) is not None:
        if entry.file and (use or entry.parts) and (pin := Pin.of(catalog, entry)) is None:
            since = _wait_for_removal(catalog, name, since)
            continue
        segment = map_entry(catalog, entry, pin)
        if segment is not None:
            if use and catalog.evicts:
                catalog.mark_used(entry)
            return segment
    return None


def map_entry(catalog: Catalog, entry: Entry, pin: Pin | None) -> StoredSegment | None:
    """Map the file of an object, or copy one that is inline; None if it was removed meanwhile."""
    if not entry.file:
        copied = catalog.inline(entry)
        return None if copied is None else InlineSegment(entry, (catalog.directory.path, catalog.store_id), copied)
    name, file = entry.name.decode(errors="replace"), file_name(entry.file)
    shared = None
    if entry.parts:
        from shmarrow.reuse import SharedFiles

        shared = SharedFiles(entry.parts, partial(_map_part, catalog, entry, pin))
    try:
        data, status = _map_file(catalog, name, file, entry.size, pin, shared)
    except FileNotFoundError:
        if catalog.entry(entry.slot) != entry:
            return None
        raise _damaged(catalog, name, "its file is missing") from None
    segment = StoredSegment(name, f"{catalog.directory.path}/{file}", data, status)
    segment.entry = entry
    segment.store = catalog.directory.path, catalog.store_id
    return segment


def _map_part(catalog: Catalog, entry: Entry, pin: Pin | None, part: int) -> Bytes:
    """Map a file that an attached object shares with others; the part keeps the object attached, too."""
    name = entry.name.decode(errors="replace")
    try:
        return _map_file(catalog, name, file_name(entry.file, part), None, pin, None)[0]
    except FileNotFoundError:
        if pin is not None and pin.inherited:
            raise ObjectNotFound(
                errno.ENOENT,
                f"{name!r} was removed from the store {catalog.directory.name!r} before all of it was read: process "
                f"{os.getpid()} was forked from one that had it attached, and has not attached it itself",
                hint="get the object in the child",
            ) from None
        raise _damaged(catalog, name, f"its part {part} is missing") from None


def _map_file(
    catalog: Catalog, name: str, file: str, size: int | None, pin: Pin | None, shared: Any
) -> tuple[Bytes, os.stat_result]:
    """Map a file of an object, of the size that is given; FileNotFoundError if there is none."""
    directory = catalog.directory
    try:
        fd = os.open(file, _FLAGS, dir_fd=directory.fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or size not in (None, status.st_size):
                size_there = f"{status.st_size}" if stat.S_ISREG(status.st_mode) else "not a regular file"
                raise _damaged(catalog, name, f"expected {size} bytes, found {size_there}")
            data = map_file(fd, status.st_size, f"{directory.path}/{file}", status, pin=pin, shared=shared)
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(error, "attach to", name) from None
    mapping = data.base
    if isinstance(mapping, Mapping):  # an empty file has none
        catalog.mapped.add(ref(mapping, catalog.mapped.discard))
    return data, status


def attach_slot(path: str, slot: int, accept_users: bool | tuple[int, ...]) -> Segment | None:
    """Attach to an object, or a part of it, by the path and its slot, and pin it; ObjectNotFound if it was removed.

    Return None if this process cannot open the store itself; its files may still be readable.
    """
    directory, file = os.path.split(path)
    number, _, part = file.partition("-")
    try:
        segment = attach_again(directory, slot, int(number, 16), accept_users=accept_users)
        if not part:
            return segment
        shared = shared_of(segment.data)
        mapping = None if shared is None else mapping_of(shared.data(int(part)))
        return None if mapping is None or mapping.status is None else Segment(path, path, mapping.data, mapping.status)
    except ObjectNotFound:
        raise
    except (ShmarrowError, ValueError):
        return None


def attach_again(
    directory: str,
    slot: int,
    file: int,
    generation: int = 0,
    store_id: bytes | None = None,
    accept_users: bool | tuple[int, ...] = False,
) -> StoredSegment:
    """Attach to an object by its slot and its file number or generation, and pin it.

    Raises
    ------
    ObjectNotFound
        If it was removed, or the slot contains another object.
    """
    catalog = open_catalog(directory, RequestedSettings(), accept_users, create=False)
    while store_id in (None, catalog.store_id) and (entry := catalog.entry(slot)) is not None:
        if entry.file != file and entry.generation != generation:
            break
        pin = Pin.of(catalog, entry)
        segment = None if pin is None else map_entry(catalog, entry, pin)
        if segment is not None:
            return segment
    raise ObjectNotFound(
        errno.ENOENT,
        f"cannot attach again to file {file_name(file)} of the store {directory!r}: the object was removed",
    )


def _damaged(catalog: Catalog, name: str, reason: str) -> InvalidData | StorageError:
    """Return the error for an object whose file is not what it should be: the store may have been destroyed."""
    if not catalog.exists:
        return destroyed(catalog.directory.name)
    return InvalidData(f"{name!r} in the store {catalog.directory.name!r} is damaged: {reason}; delete it")
