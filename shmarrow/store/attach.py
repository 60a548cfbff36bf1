"""Attaching: an object of the catalog, pinned and mapped."""

from __future__ import annotations

import errno
import os
import time
from typing import Any, Self

from shmarrow.errors import InvalidData, ObjectNotFound, ShmarrowError, StorageError, storage_error
from shmarrow.segment import Segment
from shmarrow.segment.attached import EMPTY
from shmarrow.segment.mappings import map_file
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog, close_catalog, open_catalog
from shmarrow.store.directory import Wanted, destroyed
from shmarrow.store.locks import PATIENCE
from shmarrow.store.protocol import file_name
from shmarrow.store.slots import Entry, clock

_TRIES, _PAUSE = 100, 0.001
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Pin:
    """What keeps an object from being evicted or spilled, until it is released; made by :meth:`Store.pin`.

    A context manager. It is also released when it is collected, and when the process ends.
    """

    __slots__ = ("_catalog", "_pid", "_slot")

    def __init__(self, catalog: Catalog, slot: int) -> None:
        self._catalog = catalog
        self._slot = slot
        self._pid = os.getpid()

    @classmethod
    def of(cls, catalog: Catalog, entry: Entry) -> Self | None:
        """Pin an object; None if it went meanwhile."""
        slot = entry.slot
        if not catalog.pins.acquire(slot):
            return None
        if not catalog.alive(entry):
            catalog.pins.release(slot)
            return None
        return cls(catalog, slot)

    @property
    def slot(self) -> int:
        """The place of the object in the catalog."""
        return self._slot

    def release(self) -> None:
        """Let the object go; safe to call again."""
        slot, self._slot = self._slot, -1
        if slot >= 0:
            self._catalog.pins.release(slot, self._pid != os.getpid())

    def __del__(self) -> None:
        self.release()

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
    """

    __slots__ = ("generation", "slot")

    generation: int
    slot: int

    def __reduce__(self) -> tuple[Any, ...]:
        if self._data is None:
            raise self._closed_error()
        directory, file = os.path.split(self._path)
        return attach_again, (directory, self.slot, int(file, 16))


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
    try:
        if entry.flags & p.SPILLED:
            fd = os.open(os.path.join(catalog.spill_path, file), _FLAGS)
        else:
            fd = os.open(file, _FLAGS, dir_fd=catalog.directory.fd)
        try:
            status = os.fstat(fd)
            if status.st_size != entry.size:
                raise _damaged(catalog, entry, f"expected {entry.size} bytes, found {status.st_size}")
            path = f"{catalog.spill_path if entry.flags & p.SPILLED else catalog.directory.path}/{file}"
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
    found = StoredSegment(name, path, data, status)
    found.generation = entry.generation
    found.slot = entry.slot
    return found


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


def attach_again(directory: str, slot: int, file: int) -> StoredSegment:
    """Attach to an object by its slot and file number, and pin it, as :func:`place_of` told them.

    Raises
    ------
    ObjectNotFound
        If it is gone, or another one is there.
    """
    catalog = open_catalog(directory, Wanted(), trust=False, create=False)
    try:
        while (entry := catalog.entry(slot)) is not None and entry.file == file:
            pin = Pin.of(catalog, entry)
            found = None if pin is None else _map_entry(catalog, entry, pin)
            if found is not None:
                return found
    finally:
        close_catalog(catalog)
    raise ObjectNotFound(
        errno.ENOENT,
        f"cannot attach again to file {file_name(file)} of the store {directory!r}: the object was removed",
    )


def _damaged(catalog: Catalog, entry: Entry, reason: str) -> InvalidData:
    name, where = entry.name.decode(), catalog.directory.name
    return InvalidData(f"{name!r} in the store {where!r} is damaged: {reason}; delete it")
