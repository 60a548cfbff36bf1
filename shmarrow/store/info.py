"""What is known of an object, and of a store, without using any of it."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from shmarrow import segment
from shmarrow.codecs import Description, describe
from shmarrow.store import space
from shmarrow.store.place import Found, Place
from shmarrow.store.register import Register, owners
from shmarrow.store.space import Space
from shmarrow.types import Schema


class ObjectInfo(NamedTuple):
    """What is known of an object.

    Attributes
    ----------
    name : str
        Its name.
    nbytes : int
        Its size.
    age : float
        Seconds since it was published.
    idle : float
        Seconds since it was used last.
    pins : int
        How often it is attached, by any process; at least 1 while somebody has an array of it.
    expires_in : float or None
        Seconds until it expires; None where it does not.
    owner : int or None
        The process that owns it; None where none does.
    orphaned : bool
        Whether its owner is gone.
    description : Description
        What it is: kind, schema, rows; type, shape.
    """

    name: str
    nbytes: int
    age: float
    idle: float
    pins: int
    expires_in: float | None
    owner: int | None
    orphaned: bool
    description: Description

    @property
    def kind(self) -> str:
        """What kind of object it is; see :class:`Description`."""
        return self.description.kind

    @property
    def schema(self) -> Schema | None:
        """The fields of a batch or a table."""
        return self.description.schema

    @property
    def num_rows(self) -> int | None:
        """The rows of a batch or a table."""
        return self.description.num_rows


class Stats(NamedTuple):
    """What a store holds.

    Attributes
    ----------
    objects : int
        How many objects.
    nbytes : int
        Their bytes.
    pinned : int
        How many of these bytes somebody has attached.
    drafts : int
        Bytes of objects that are being written, where a capacity is kept.
    capacity : int or None
        The capacity that this store object keeps.
    total : int
        Bytes of the file system.
    free : int
        How many of these are free.
    owners : int
        Living owners.
    """

    objects: int
    nbytes: int
    pinned: int
    drafts: int
    capacity: int | None
    total: int
    free: int
    owners: int


def object_info(place: Place, register: Register, found: Found) -> ObjectInfo:
    """What is known of an object that was found."""
    path = place.path(found.name)
    pins = max(space.pin_counts().get(found.inode, 0), space.is_pinned(path))
    with segment.attach_path(path, path, owners=place.owners, unnoticed=True) as attached:
        description = describe(attached)
    row = register.of(found.key)
    known = {owner.number: owner for owner in owners(place)} if row.owner else {}
    owner = known.get(row.owner)
    now = time.time_ns()
    return ObjectInfo(
        found.name,
        nbytes=found.size,
        age=(now - found.published) / 1e9,
        idle=(now - found.used) / 1e9,
        pins=pins,
        expires_in=(row.deadline - now) / 1e9 if row.deadline else None,
        owner=None if owner is None else owner.pid,
        orphaned=bool(row.owner) and (owner is None or not owner.alive),
        description=description,
    )


def statistics(place: Place, space_of: Space) -> Stats:
    """How much a store holds, and how much room there is."""
    found = list(place.scan())
    drafts = living = 0
    try:
        os.close(place.open_control(make=False))
    except OSError:
        pass  # nothing is being written under a temporary name, and nobody owns anything
    else:
        with place.lock():
            drafts = space_of.drafts(0)
            living = sum([owner.alive for owner in owners(place)])
    status = os.statvfs(place.directory)
    return Stats(
        objects=len(found),
        nbytes=sum([each.size for each in found]),
        pinned=sum([each.size for each in found if space.is_pinned(place.path(each.name))]),
        drafts=drafts,
        capacity=space_of.capacity,
        total=status.f_blocks * status.f_frsize,
        free=status.f_bavail * status.f_frsize,
        owners=living,
    )
