"""What is known of an object, and of a store, without using any of it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from shmarrow.codecs.describe import Description
from shmarrow.segment.record_locks import holders
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.protocol import file_name
from shmarrow.store.slots import Entry, clock
from shmarrow.store.space import Space
from shmarrow.types import Schema


class ObjectInfo(NamedTuple):
    """Description of an object.

    Attributes
    ----------
    name : str
        Its name.
    nbytes, allocated : int
        Its size, and the bytes that its blocks take.
    generation : int
        A number that no other object of the store ever had; a replaced or renamed object has another.
    path : str
        The file that it is, for other tools.
    age, idle : float
        Seconds since it was published, and since it was used last.
    pins : int
        How many processes have it attached.
    expires_in : float or None
        Seconds until it expires; None where it does not.
    owner : int or None
        The process that owns it; None where none does, it has ended, or this process may not write to the store.
    orphaned : bool
        Whether its owner has ended.
    protected, spilled : bool
        Whether it is never evicted, and whether it lies in the spill directory.
    description : Description
        What it is: kind, schema, rows; type, shape.
    """

    name: str
    nbytes: int
    allocated: int
    generation: int
    path: str
    age: float
    idle: float
    pins: int
    expires_in: float | None
    owner: int | None
    orphaned: bool
    protected: bool
    spilled: bool
    description: Description

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
        Bytes that it takes, as blocks of the file system.
    generation : int
        Number that no other object of the store ever has.
    age, idle : float
        Seconds since it was published, and since it was last attached.
    pins : int
        Number of processes that have it attached.
    protected, spilled : bool
        Whether it is never evicted, and whether it is in the spill directory.
    """

    name: str
    nbytes: int
    allocated: int
    generation: int
    age: float
    idle: float
    pins: int
    protected: bool
    spilled: bool


class Stats(NamedTuple):
    """Statistics of a store.

    Attributes
    ----------
    objects : int
        How many objects, those that have expired and were not collected among them.
    nbytes : int
        Bytes that they take, as blocks of the file system.
    removed : int
        Bytes of removed and replaced objects that somebody has attached still.
    drafts : int
        Bytes reserved for objects that are being written.
    spilled : int
        Bytes in the spill directory.
    pinned : int
        How many of ``nbytes`` somebody has attached.
    pins : dict of int to int
        How many objects each process has attached.
    capacity : int or None
        The capacity of the store, which ``nbytes``, ``removed`` and ``drafts`` count towards.
    catalog : int
        Bytes of the control file.
    total, free : int
        Bytes of the file system, and how many of them are free.
    puts, hits, misses, evictions, spills, expired : int
        How often that happened since the store was created. A process adds its hits and misses when it next changes
        the store, every second or so while it gets objects, and when it closes it; one that may only read never does.
    """

    objects: int
    nbytes: int
    removed: int
    drafts: int
    spilled: int
    pinned: int
    pins: dict[int, int]
    capacity: int | None
    catalog: int
    total: int
    free: int
    puts: int
    hits: int
    misses: int
    evictions: int
    spills: int
    expired: int


def _pins(catalog: Catalog) -> list[tuple[int, int, int]]:
    """Who has what attached: processes, this one too, their first slots, and how many slots.

    The process is 0 or negative where it belongs to another pid namespace.
    """
    found = holders(catalog.pins_fd, 0, catalog.memory.slots)
    return found + [(os.getpid(), slot, 1) for slot in catalog.pins.own()]


def _pin_counts(catalog: Catalog) -> Counter[int]:
    """How many processes have each slot attached."""
    return Counter(slot for _, first, length in _pins(catalog) for slot in range(first, first + length))


def found_objects(catalog: Catalog, prefix: str) -> Iterator[Found]:
    """All objects whose names begin with a prefix."""
    fields = ("size", "allocated", "published", "flags", "used")
    pins = _pin_counts(catalog)
    for part in catalog.snapshot("name", *fields, expired=False):
        now, wall = time.monotonic_ns(), time.time_ns()
        columns = [part["name"], *(part[field].tolist() for field in ("slot", "generation", *fields))]
        for name, slot, generation, size, allocated, published, flags, used in zip(*columns, strict=True):
            if name.startswith(prefix):
                age, idle = max(wall - published, 0) / 1e9, max(now - used, 0) / 1e9
                protected, spilled = bool(flags & p.PROTECTED), bool(flags & p.SPILLED)
                yield Found(name, size, allocated, generation, age, idle, pins[slot], protected, spilled)


def object_info(catalog: Catalog, entry: Entry, description: Description) -> ObjectInfo:
    """What is known of an object that was found."""
    owner = catalog.owner_of(entry.owner) if entry.owner else None
    directory = catalog.spill_path if entry.spilled else catalog.directory.path
    return ObjectInfo(
        entry.name.decode(),
        nbytes=entry.size,
        allocated=entry.allocated,
        generation=entry.generation,
        path=os.path.join(directory, file_name(entry.file)),
        age=max(time.time_ns() - entry.published, 0) / 1e9,
        idle=max(time.monotonic_ns() - catalog.used(entry.slot), 0) / 1e9,
        pins=_pin_counts(catalog)[entry.slot] if catalog.pins.pinned(entry.slot) else 0,
        expires_in=(entry.expires - clock()) / 1e9 if entry.expires else None,
        owner=owner,
        orphaned=bool(entry.owner) and owner is None and catalog.writable,
        protected=bool(entry.flags & p.PROTECTED),
        spilled=entry.spilled,
        description=description,
    )


_STATE = {
    "objects": p.OBJECTS,
    "nbytes": p.BYTES,
    "removed": p.REMOVED_BYTES,
    "drafts": p.DRAFT_BYTES,
    "spilled": p.SPILLED_BYTES,
    "puts": p.PUTS,
    "evictions": p.EVICTIONS,
    "spills": p.SPILLS,
    "expired": p.EXPIRED,
}
"""The numbers of a store that the catalog keeps, and where."""


def statistics(catalog: Catalog, space: Space) -> Stats:
    """How much a store holds, and how much room there is; nothing is pinned, locked or scanned for that."""
    state = catalog.state()
    status = os.fstatvfs(catalog.directory.fd)
    pins: Counter[int] = Counter()
    for process, _, length in _pins(catalog):
        pins[process] += length
    return Stats(
        **{name: state[place] for name, place in _STATE.items()},
        hits=state[p.HITS] + catalog.hits,
        misses=state[p.MISSES] + catalog.misses,
        pinned=space.pinned_bytes(),
        pins=dict(pins),
        capacity=catalog.settings.capacity,
        catalog=os.fstat(catalog.control_fd).st_blocks * 512,
        total=status.f_blocks * status.f_frsize,
        free=status.f_bavail * status.f_frsize,
    )
