"""Attaching: an object of the catalog, pinned and mapped."""

from __future__ import annotations

import os
from typing import Self

from shmarrow.errors import InvalidData, StorageError, storage_error
from shmarrow.segment import Segment
from shmarrow.segment.attached import EMPTY
from shmarrow.segment.mappings import map_file
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.protocol import file_name
from shmarrow.store.slots import Entry, clock

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

    Attributes
    ----------
    generation : int
        The generation of the object.
    """

    __slots__ = ("generation",)

    generation: int


def attach_entry(catalog: Catalog, name: bytes, pinned: bool = True) -> StoredSegment | None:
    """Attach to the object of a name; None if there is none, or it has expired."""
    while True:
        entry = catalog.find(name)
        if entry is None or 0 < entry.expires <= clock():
            return None
        pin = Pin.of(catalog, entry) if pinned else None
        if pinned and pin is None:
            continue
        try:
            if entry.flags & p.SPILLED:
                fd = os.open(os.path.join(catalog.spill_path, file_name(entry.file)), _FLAGS)
            else:
                fd = os.open(file_name(entry.file), _FLAGS, dir_fd=catalog.directory.fd)
        except FileNotFoundError:
            if catalog.find(name) != entry:
                continue
            raise _damaged(catalog, entry, "its file is gone") from None
        except OSError as error:
            raise storage_error(error, "attach to", name.decode()) from None
        try:
            status = os.fstat(fd)
            if status.st_size != entry.size:
                raise _damaged(catalog, entry, f"expected {entry.size} bytes, found {status.st_size}")
            path = os.path.join(catalog.spill_path if entry.spilled else catalog.directory.path, file_name(entry.file))
            data = map_file(fd, entry.size, path, status, pin=pin) if entry.size else EMPTY
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise storage_error(error, "attach to", name.decode()) from None
        finally:
            os.close(fd)
        if pinned and catalog.evicts:
            catalog.mark_used(entry)
        found = StoredSegment(name.decode(), path, data, status)
        found.generation = entry.generation
        return found


def _damaged(catalog: Catalog, entry: Entry, reason: str) -> InvalidData:
    return InvalidData(
        f"{entry.name.decode()!r} in the store {catalog.directory.name!r} is damaged: {reason}; delete it"
    )
