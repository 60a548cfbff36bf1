"""Attaching: an object of the catalog, pinned and mapped."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import Any, Self

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidData, ObjectNotFound, ShmarrowError, StorageError, storage_error
from shmarrow.segment import Segment
from shmarrow.segment.attached import EMPTY
from shmarrow.segment.mappings import map_file
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.directory import Directory, Wanted, destroyed
from shmarrow.store.locks import PATIENCE
from shmarrow.store.protocol import file_name
from shmarrow.store.registry import open_catalog
from shmarrow.store.slots import Entry, clock, sum_of
from shmarrow.store.transaction import Transaction

_TRIES, _PAUSE = 100, 0.001
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Pin:
    """What keeps an object from being evicted or spilled, until it is released; made by :meth:`Store.pin`.

    A context manager. It is also released when it is collected, and when the process ends.

    Attributes
    ----------
    slot : int
        Where the object is in the catalog; -1 when it is released.
    """

    __slots__ = ("_catalog", "_pid", "slot")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._pid = os.getpid()
        self.slot = -1

    @classmethod
    def of(cls, catalog: Catalog, entry: Entry) -> Self | None:
        """Pin an object; None if it went meanwhile."""
        pin = cls(catalog)
        return pin if catalog.pins.acquire(entry.slot, pin) and catalog.alive(entry) else None

    @property
    def place(self) -> tuple[int, str]:
        """The slot of the object, and its name."""
        found = self._catalog.entry(self.slot) if self.slot >= 0 else None
        return self.slot, "" if found is None else found.name.decode(errors="replace")

    def release(self) -> None:
        """Let the object go; safe to call again."""
        slot, self.slot = self.slot, -1
        if slot >= 0:
            self._catalog.pins.release(slot, self._pid != os.getpid())

    __del__ = release

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class StoredSegment(Segment):
    """The bytes of an object of a store, attached; made by :meth:`Store.attach`.

    A copy, or one that was pickled, is attached and pinned again, and fails if the object is gone by then.

    Attributes
    ----------
    generation : int
        The generation of the object.
    slot : int
        Its place in the catalog.
    where : str
        The directory of the store.
    """

    __slots__ = ("generation", "slot", "where")

    generation: int
    slot: int
    where: str

    def __reduce__(self) -> tuple[Any, ...]:
        if self._data is None:
            raise self._closed_error()
        return attach_again, (self.where, self.slot, int(os.path.basename(self._path), 16), self.generation)


def attach_entry(catalog: Catalog, name: bytes, pinned: bool = True) -> StoredSegment | None:
    """Attach to the object of a name; None if there is none, or it has expired."""
    tries = 0
    while True:
        entry = catalog.find(name)
        if entry is None or 0 < entry.expires <= clock():
            return None
        pin = Pin.of(catalog, entry) if pinned else None
        if pinned and pin is None:  # it is being evicted, or was replaced
            tries += 1
            if tries > _TRIES:
                time.sleep(_PAUSE)
            if tries * _PAUSE > PATIENCE:
                raise StorageError(
                    errno.EBUSY,
                    f"cannot attach to {entry.name.decode()!r} in the store {catalog.directory.name!r}: a process has "
                    f"been evicting it for {PATIENCE:g} s; continue that process if it is stopped, or end it",
                )
            continue
        found = _map_entry(catalog, entry, pin)
        if found is not None:
            if pinned and catalog.evicts:
                catalog.mark_used(entry)
            return found


def _map_entry(catalog: Catalog, entry: Entry, pin: Pin | None) -> StoredSegment | None:
    """Map the file of an object; None if the object went meanwhile."""
    name = entry.name.decode()
    file = file_name(entry.file)
    directory = _spilled_to(catalog, entry) if entry.flags & p.SPILLED else catalog.directory
    try:
        fd = os.open(file, _FLAGS, dir_fd=directory.fd)
        try:
            status = os.fstat(fd)
            if status.st_size != entry.size:
                raise _damaged(catalog, entry, f"expected {entry.size} bytes, found {status.st_size}")
            path = f"{directory.path}/{file}"
            data = map_file(fd, entry.size, path, status, pin=pin) if entry.size else EMPTY
        finally:
            os.close(fd)
    except FileNotFoundError:
        if catalog.entry(entry.slot) != entry:
            return None
        if not catalog.exists:
            raise destroyed(catalog.directory.name) from None
        raise _damaged(catalog, entry, "its file is gone") from None
    except OSError as error:
        raise storage_error(error, "attach to", name) from None
    if entry.flags & p.UNCHECKED:
        _check(catalog, entry, data)
    found = StoredSegment(name, path, data, status)
    found.generation = entry.generation
    found.slot = entry.slot
    found.where = catalog.directory.path
    return found


def _spilled_to(catalog: Catalog, entry: Entry) -> Directory:
    """The directory that an object was spilled to."""
    directory = catalog.spill_directory()
    if directory is None:  # configured by another process, perhaps
        catalog.reload()
        directory = catalog.spill_directory()
    if directory is None:
        raise StorageError(
            errno.ENOENT,
            f"{entry.name.decode()!r} in the store {catalog.directory.name!r} was moved to the spill directory "
            f"{catalog.spill_path!r}, which is not there; mount it, or delete the object",
        )
    return directory


def _check(catalog: Catalog, entry: Entry, data: Bytes) -> None:
    """Compare an object from before a reboot with its sum, once; what a power cut has torn is removed.

    A process that may only read does so for itself.
    """
    if entry.generation in catalog.checked or not entry.flags & p.SUMMED:
        return
    right = sum_of(np.frombuffer(data, U1)) == entry.sum
    with suppress(StorageError), catalog.locked():
        found = catalog.entry(entry.slot)
        if found is not None and found.generation == entry.generation:
            transaction = Transaction(catalog)
            if right:
                transaction.update(found._replace(flags=found.flags & ~p.UNCHECKED | p.SYNCED))
            else:
                transaction.remove(found)
            transaction.commit()
    if not right:
        name, where = entry.name.decode(), catalog.directory.name
        raise InvalidData(
            f"{name!r} in the store {where!r} was published shortly before the machine went down, and not all of its "
            "bytes reached the disk: its sum is wrong. It is removed; put it again. A store with durable=True keeps "
            "what it has accepted"
        )
    catalog.checked.add(entry.generation)


def attach_slot(path: str, slot: int) -> StoredSegment | None:
    """Attach to an object by the path of its file and its slot, and pin it.

    None where the store itself is not to be opened by this process: its files may still be read.

    Raises
    ------
    ObjectNotFound
        If the object is gone.
    """
    directory, file = os.path.split(path)
    try:
        return attach_again(directory, slot, int(file, 16))
    except ObjectNotFound:
        raise
    except (ShmarrowError, ValueError):
        return None


def attach_again(directory: str, slot: int, file: int, generation: int = 0) -> StoredSegment:
    """Attach to an object by its slot, and its file number or generation, and pin it; it may have been spilled since.

    Raises
    ------
    ObjectNotFound
        If it is gone, or another one is there.
    """
    catalog = open_catalog(directory, Wanted(), trust=False, create=False)
    try:
        while (entry := catalog.entry(slot)) is not None and (entry.file == file or entry.generation == generation):
            pin = Pin.of(catalog, entry)
            found = None if pin is None else _map_entry(catalog, entry, pin)
            if found is not None:
                return found
    finally:
        catalog.release()
    raise ObjectNotFound(
        errno.ENOENT,
        f"cannot attach again to file {file_name(file)} of the store {directory!r}: the object was removed",
    )


def _damaged(catalog: Catalog, entry: Entry, reason: str) -> InvalidData:
    name, where = entry.name.decode(), catalog.directory.name
    return InvalidData(f"{name!r} in the store {where!r} is damaged: {reason}; delete it")
