# SPDX-License-Identifier: Apache-2.0
"""Snapshots: all live objects of a catalog as columns, without a lock.

An object replaced or renamed while the slots are copied could appear twice or not at all. So objects with events during
the copy are removed from it, and their names are looked up at the end, all at a single moment.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from shmarrow.errors import StorageError
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.control import BUCKETS, Memory
from shmarrow.store.index import events_since, last_event
from shmarrow.store.protocol import SLOT_WORDS, Entry

_GENERATION = p.word("generation")
_TRIES, _ROUNDS = 10, 20
_ROWS = 1 << 12
"""Slots that are copied between two looks at the events, of which 256 are kept."""
Piece = dict[str, Any]


def snapshot(catalog: Catalog, *fields: str, expired: bool = True) -> Iterator[Piece]:
    """Iterate over the live objects in pieces of up to 4,096: ``slot``, ``generation`` and the given fields.

    Each field is an array, ``name`` a list of str. Takes no lock: objects published or removed meanwhile may or may
    not be included, but with names, an object replaced or renamed meanwhile is included under exactly one name.
    Expired objects are included if ``expired``.

    Raises
    ------
    StorageError
        If other processes change names faster than they can be listed.
    """
    catalog.check_exists()
    memory = catalog.settled()
    if "name" not in fields:
        yield from _pieces(memory, fields, expired, None)
        return
    for _ in range(_TRIES):
        touched = _Touched(memory)
        pieces = list(_pieces(memory, fields, expired, touched))
        if touched.look_up(catalog):
            break
        memory = catalog.settled()
    else:
        raise StorageError(
            errno.EBUSY,
            f"cannot list the store {catalog.directory.name!r}: other processes change it faster than its names can be "
            f"read, as {_TRIES} attempts show",
            hint="list it again when they change less; get, wait and watch need no list",
        )
    for piece in pieces:
        yield _kept(piece, [name not in touched.entries for name in piece["name"]]) if touched.entries else piece
    for entry in touched.entries.values():
        if entry is not None and (expired or not entry.expired):
            values = {**entry._asdict(), "used": catalog.used(entry.slot)}
            row = {field: np.array([values[field]]) for field in ("slot", "generation", *fields) if field != "name"}
            yield {**row, "name": [entry.name.decode()]}


class _Touched:
    """The names in events since now, with what :meth:`look_up` finds for them; None for those that are gone."""

    def __init__(self, memory: Memory) -> None:
        self.entries: dict[str, Entry | None] = {}
        self._new: set[str] = set()
        self._lost = False
        self._last = last_event(memory)

    def look(self, memory: Memory) -> None:
        """Add the names of events since the last look."""
        self._last, events = events_since(memory, self._last)
        self._new |= {event.name.decode(errors="ignore") for event in events or ()}
        self._lost |= events is None

    def look_up(self, catalog: Catalog) -> bool:
        """Look all names up, as they are at one moment; False if events were overwritten before a look."""
        for _ in range(_ROUNDS):
            self.look(catalog.settled())
            if self._lost or not self._new:
                return not self._lost
            self.entries.update({name: catalog.find(name.encode()) for name in self._new})
            self._new.clear()  # what was changed during that is in new events, and there is less of it each time
        return False


def _pieces(memory: Memory, fields: tuple[str, ...], expired: bool, touched: _Touched | None) -> Iterator[Piece]:
    last = np.uint64(memory.words[_GENERATION])
    count = min(memory.words[BUCKETS], memory.slots)
    if not count:
        return
    words = np.frombuffer(memory.bytes, "<u8", count * SLOT_WORDS, p.SLOTS).reshape(count, SLOT_WORDS)
    for start in range(0, count, _ROWS):
        part = words[start : start + _ROWS]
        heads = part[:, : p.HEAD_WORDS].copy().view(p.HEAD_DTYPE)[:, 0]
        live = (heads["state"] == p.LIVE) & (heads["generation"] - np.uint64(1) < last)
        if not expired:
            live &= (heads["expires"] == 0) | (heads["expires"] > time.time_ns())
        rows = np.flatnonzero(live)
        piece: Piece = {name: heads[name][rows] for name in ("generation", *fields) if name != "name"}
        piece["slot"] = rows + start
        if touched is not None:
            lengths = np.minimum(heads["name_length"][rows], p.NAME_MAX)
            longest = int(lengths.max(initial=1))
            every = np.ndarray((count,), f"V{longest}", memory.bytes, p.SLOTS + p.PAYLOAD, (p.SLOT_SIZE,))
            raw = every[piece["slot"]].tobytes()
            starts = range(0, len(raw), longest)
            names = [raw[at : at + length] for at, length in zip(starts, lengths.tolist(), strict=True)]
            same = part[rows, 0] == piece["generation"]
            touched.look(memory)  # before its events are overwritten
            piece["name"], proper = _decoded(names)
            if not (same & proper).all():  # the slot was changed meanwhile, or its name is invalid
                piece = _kept(piece, same & proper)
        yield piece


def _decoded(names: list[bytes]) -> tuple[list[str], Any]:
    """Decode names from the catalog; return them, and a mask of the valid ones."""
    with suppress(UnicodeDecodeError):
        texts = b"\0".join(names).decode().split("\0")
        if len(texts) == len(names) and "" not in texts:
            return texts, True
    texts = [name.decode(errors="ignore") for name in names]
    proper = [each.encode() == name and each and "\0" not in each for each, name in zip(texts, names, strict=True)]
    return texts, np.array(proper, np.bool_)


def _kept(piece: Piece, keep: Any) -> Piece:
    """Return the rows of a piece selected by a mask."""
    rows = np.flatnonzero(keep)
    return {
        field: [column[row] for row in rows] if isinstance(column, list) else column[rows]
        for field, column in piece.items()
    }
