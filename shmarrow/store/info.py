# SPDX-License-Identifier: Apache-2.0
"""Descriptions of objects and statistics of a store; nothing is pinned or marked as used."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from shmarrow.memory.locks import holders
from shmarrow.objects.decode import Description
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.protocol import Entry, file_name
from shmarrow.store.room import pinned_bytes, removed_bytes
from shmarrow.store.snapshot import snapshot
from shmarrow.types import Schema


class ObjectInfo(NamedTuple):
    """Description of an object.

    Attributes
    ----------
    name : str
        Its name.
    nbytes, allocated : int
        Size in bytes, and its size on the file system in whole blocks; of an object that shares buffers with others, of
        its own ones.
    generation : int
        Unique number within the store; changes when the object is replaced or renamed.
    path : str or None
        Path of its file, for other tools; None for a small object, which is inline in the store's control file.
    age, idle : float
        Seconds since it was published, and since it was last attached.
    pins : int
        Number of processes that have it attached.
    expires_in : float or None
        Seconds until it expires; None if it never does.
    owner : int or None
        Process id of its owner; None if there is none, it has ended, or this process cannot write to the store.
    orphaned : bool
        Whether its owner has ended.
    protected : bool
        Whether it is exempt from eviction.
    description : Description
        Kind, schema and number of rows, or type and shape.
    shared : int
        Size in bytes of the files that it shares with other objects; see ``reuse`` of :meth:`Store.put`.
    sources : tuple of str
        The names of the objects that it shares buffers with; for those that were removed, the name of the file.
    """

    name: str
    nbytes: int
    allocated: int
    generation: int
    path: str | None
    age: float
    idle: float
    pins: int
    expires_in: float | None
    owner: int | None
    orphaned: bool
    protected: bool
    description: Description
    shared: int = 0
    sources: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the object; see :class:`Description`."""
        return self.description.kind

    @property
    def schema(self) -> Schema | None:
        """The schema of a batch or table."""
        return self.description.schema

    @property
    def num_rows(self) -> int | None:
        """Number of rows of a batch or table."""
        return self.description.num_rows


class Found(NamedTuple):
    """An object in a listing, not opened.

    The fields are those of :class:`ObjectInfo`.

    Attributes
    ----------
    name : str
        Name of the object.
    nbytes : int
        Size in bytes.
    allocated : int
        Size on the file system in whole blocks, in bytes.
    shared : int
        Size in bytes of the files that it shares with other objects.
    generation : int
        Unique number within the store.
    age, idle : float
        Seconds since it was published, and since it was last attached.
    pins : int
        Number of processes that have it attached.
    protected : bool
        Whether it is exempt from eviction.
    """

    name: str
    nbytes: int
    allocated: int
    shared: int
    generation: int
    age: float
    idle: float
    pins: int
    protected: bool


class Stats(NamedTuple):
    """Statistics of a store.

    Attributes
    ----------
    objects : int
        Number of objects, including expired objects that have not been collected yet.
    nbytes : int
        Size of all objects on the file system in whole blocks, in bytes.
    removed : int
        Bytes of removed and replaced objects that are still attached.
    pinned : int
        Bytes of attached objects, included in ``nbytes``.
    pins : dict of int to int
        Number of attached objects by process id.
    capacity : int or None
        Maximum of ``nbytes + removed``; None if unlimited.
    catalog : int
        Size of the control file in bytes.
    total, free : int
        Total and free bytes of the file system.
    puts, evictions, expired : int
        Objects that were published, evicted, and removed after they had expired, since the store was created.
    """

    objects: int
    nbytes: int
    removed: int
    pinned: int
    pins: dict[int, int]
    capacity: int | None
    catalog: int
    total: int
    free: int
    puts: int
    evictions: int
    expired: int


def _pins(catalog: Catalog) -> list[tuple[int, int, int]]:
    """Return the pinned ranges of slots as (process, first slot, length), including those of this process.

    The process id is 0 or negative for a process in another pid namespace.
    """
    others = holders(catalog.pins_fd, 0, catalog.memory.slots)
    return others + [(os.getpid(), slot, 1) for slot in catalog.pins.own()]


def _pin_counts(catalog: Catalog) -> Counter[int]:
    """Return the number of processes that have each slot attached."""
    return Counter(slot for _, first, length in _pins(catalog) for slot in range(first, first + length))


def found_objects(catalog: Catalog, prefix: str) -> Iterator[Found]:
    """Iterate over the objects whose names start with a prefix."""
    fields = ("size", "allocated", "file", "parts", "published", "flags", "used")
    pins = _pin_counts(catalog)
    for part in snapshot(catalog, "name", *fields, expired=False):
        now = time.time_ns()
        columns = [part["name"], *(part[field].tolist() for field in ("slot", "generation", *fields))]
        for name, slot, generation, size, allocated, file, parts, published, flags, used in zip(*columns, strict=True):
            if name.startswith(prefix):
                shared = sum([each.st_size for each in parts_of(catalog, file, parts)])
                age, idle = _since(published, now), _since(used, now)
                protected = bool(flags & p.PROTECTED)
                yield Found(name, size, allocated, shared, generation, age, idle, pins[slot], protected)


def parts_of(catalog: Catalog, file: int, count: int) -> list[os.stat_result]:
    """Return the status of the files that an object shares with others; none if it was removed meanwhile."""
    names = [file_name(file, part) for part in range(1, min(count, p.PARTS_MAX) + 1)] if file else []
    with suppress(OSError):
        return [os.stat(name, dir_fd=catalog.directory.fd, follow_symlinks=False) for name in names]
    return []


def _sources(catalog: Catalog, file: int, parts: list[os.stat_result]) -> Iterator[str]:
    """Iterate over the names of the objects whose own files these are, or else of the files themselves."""
    inodes = {each.st_ino for each in parts}
    with os.scandir(catalog.directory.fd) as entries:
        numbers = {each.inode(): each.name for each in entries if each.inode() in inodes and "-" not in each.name}
    names: dict[str, str] = {}
    for each in snapshot(catalog, "name", "file"):
        names.update(zip(map(file_name, each["file"].tolist()), each["name"], strict=True))
    for part, status in enumerate(parts, 1):
        yield names.get(numbers.get(status.st_ino, ""), file_name(file, part))


def _since(then: int, now: int) -> float:
    """Return the seconds since a time in nanoseconds; 0 if the clock was set back."""
    return max(now - then, 0) / 1e9


def object_info(catalog: Catalog, entry: Entry, description: Description) -> ObjectInfo:
    """Return the description of an entry."""
    owner = catalog.owner_of(entry.owner) if entry.owner else None
    parts = parts_of(catalog, entry.file, entry.parts)
    now = time.time_ns()
    return ObjectInfo(
        entry.name.decode(),
        nbytes=entry.size,
        allocated=entry.allocated,
        generation=entry.generation,
        path=os.path.join(catalog.directory.path, file_name(entry.file)) if entry.file else None,
        age=_since(entry.published, now),
        idle=_since(catalog.used(entry.slot), now),
        pins=_pin_counts(catalog)[entry.slot] if catalog.pins.pinned(entry.slot) else 0,
        expires_in=(entry.expires - now) / 1e9 if entry.expires else None,
        owner=owner,
        orphaned=bool(entry.owner) and owner is None and catalog.writable,
        protected=bool(entry.flags & p.PROTECTED),
        description=description,
        shared=sum([each.st_size for each in parts]),
        sources=tuple(_sources(catalog, entry.file, parts)) if parts else (),
    )


def statistics(catalog: Catalog) -> Stats:
    """Return usage and free space without pinning, locking or scanning objects."""
    state, removed = catalog.state(), removed_bytes(catalog)
    status = os.fstatvfs(catalog.directory.fd)
    pins: Counter[int] = Counter()
    for process, _, length in _pins(catalog):
        pins[process] += length
    return Stats(
        objects=state.objects,
        nbytes=state.bytes - removed,
        removed=removed,
        puts=state.puts,
        evictions=state.evictions,
        expired=state.expired,
        pinned=pinned_bytes(catalog),
        pins=dict(pins),
        capacity=catalog.settings.capacity,
        catalog=os.fstat(catalog.control_fd).st_blocks * 512,
        total=status.f_blocks * status.f_frsize,
        free=status.f_bavail * status.f_frsize,
    )
