# SPDX-License-Identifier: Apache-2.0
"""The room of a store: what fits, eviction and collection.

Invariants:

* the catalog counts the bytes of files that have names, once each, of inline objects, and of removed objects that are
  still attached, in whole blocks of the file system;
* the commit lock is never held during a scan. Candidates for eviction come from a snapshot, which needs no lock, in
  order of use; each is checked again under the lock before it is evicted;
* nothing is evicted for an object that would still not fit: what was chosen is counted first, as exactly as the links
  of its files are. Only what other processes do between two batches can make it too little.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter, deque
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import StoreFull
from shmarrow.memory import memory_left
from shmarrow.memory.locks import holders
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.directory import Directory
from shmarrow.store.protocol import Entry, file_name
from shmarrow.store.snapshot import snapshot
from shmarrow.store.transaction import Transaction, bytes_freed, sole_links

BATCH = 64
"""Objects removed per hold of the commit lock, at about 30 µs each."""
_CANDIDATES = 4096
_SWEPT = 16
_WHILE, _PATIENCE = 0.005, 5.0
_ROUNDS = 50
_BLOCK, _UNLIMITED = 4096, 1 << 64


def round_up(nbytes: int) -> int:
    """Round up to whole blocks of the file system."""
    return -(-nbytes // _BLOCK) * _BLOCK


class Candidate(NamedTuple):
    """A candidate for eviction from a snapshot; the fields are those of a slot."""

    slot: int
    generation: int
    used: int
    allocated: int
    file: int
    parts: int


# --- fitting ------------------------------------------------------------------------------------------------------


def shortfall(catalog: Catalog, change: Transaction, nbytes: int, name: bytes, replaced: Entry | None) -> int:
    """Return 0 if an object fits in place of one that it replaces, evicting known candidates for it.

    Otherwise return for how many bytes :func:`make_room` is to make room, without the lock.
    """
    short = change.state["bytes"] + nbytes - (catalog.settings.capacity or _UNLIMITED)
    if short > 0 and replaced is not None and catalog.pins.exclude(replaced.slot):
        freed = bytes_freed(catalog.directory, replaced.file, replaced.allocated, replaced.parts, Counter())
        nbytes, short = nbytes - freed, short - freed
    if short <= 0 or nbytes <= 0:
        return 0
    chosen, freed = _choose(catalog, catalog.victims, short, name) if catalog.evicts else ([], 0)
    if freed < short:
        return nbytes
    _remove(change, chosen)
    return 0


def make_room(catalog: Catalog, name: str, nbytes: int, memory: int = 0) -> None:
    """Make room for ``nbytes`` more under the capacity and ``memory`` more in the file system, or raise StoreFull.

    Called without the lock. What was removed and is not attached any more goes first; others only if that is enough.
    Expired and orphaned objects are removed even if the policy is not to evict.
    """
    capacity = catalog.settings.capacity
    if capacity is not None and nbytes > capacity:
        raise full(catalog, name, nbytes, "it exceeds the capacity")
    deadline, before = time.monotonic() + _PATIENCE, None
    while True:
        short = 0 if capacity is None else catalog.state().bytes + nbytes - capacity
        low = memory - free_bytes(catalog) if memory else 0
        if short <= 0 and low <= 0:
            return
        if time.monotonic() > deadline:
            raise full(catalog, name, nbytes or memory, "other processes fill the space as fast as it is freed")
        if sweep(catalog):
            continue
        try:
            evict(catalog, max(short, low), name, nbytes or memory, files=low > 0)
        except StoreFull:  # what counts may have other names elsewhere, and others may make more evictable in a moment
            if before is None:
                recount(catalog)
            now = catalog.state()
            if now == before:
                raise
            before = now
            time.sleep(_WHILE)


def free_bytes(catalog: Catalog) -> int:
    """Return the number of bytes that can be written here."""
    free = catalog.directory.free()
    return min(free, memory_left()) if catalog.volatile else free


def free_slot(catalog: Catalog, name: str, error: StoreFull) -> None:
    """Let an object go because the catalog cannot grow, or raise this error: each leaves a slot."""
    if not sweep(catalog):
        try:
            evict(catalog, 1, name)
        except StoreFull:
            raise error from None


# --- evicting -----------------------------------------------------------------------------------------------------


def evict(
    catalog: Catalog, short: int, name: str = "", needed: int = 0, anything: bool = False, files: bool = False
) -> list[str]:
    """Evict at least ``short`` bytes of objects, least recently used first, and return their names.

    The space is for the object ``name`` of ``needed`` bytes, which is not evicted itself. ``anything`` evicts even
    if the store's policy is not to, ``files`` only objects with a file of their own. If not enough can be evicted,
    StoreFull is raised and nothing is removed.
    """
    coded, gone = name.encode(), list[str]()
    for _ in range(_ROUNDS):
        if short <= 0:
            return gone
        victims, possible = _candidates(catalog, short, coded, anything, files)
        if possible < short:
            if gone:  # others have used the rest, or attached it
                return gone
            more = "" if anything else f"{short} more than are available, and "
            reason = f"{more}only {possible} bytes may be evicted"
            raise full(catalog, name, needed or short, reason, anything)
        enough = True
        while short > 0 and enough:
            with catalog.change() as change:
                chosen, freed = _choose(catalog, victims, short, coded)
                enough = freed >= short or len(chosen) == BATCH
                _remove(change, chosen if enough else [])
                if catalog.evicts and not files:
                    catalog.victims = victims
            if enough:
                gone += [entry.name.decode() for entry in chosen]
                short -= freed
    if short > 0 and not gone:  # damaged slots look evictable, but never are
        reason = "the objects that may be evicted are used or damaged"
        raise full(catalog, name, needed or short, reason, anything)
    return gone


def _candidates(catalog: Catalog, short: int, name: bytes, anything: bool, files: bool) -> tuple[deque[Candidate], int]:
    """Return candidates for eviction, expired ones first, then in order of use; takes no lock.

    Those of ``short`` bytes if there are as many, and at least 4096. Also returns how many bytes they free: those
    of files of which no other object has a name.
    """
    pinned, lru = pinned_slots(catalog), anything or catalog.evicts
    own = catalog.find(name) if name else None
    pieces = []
    for piece in snapshot(catalog, "used", "allocated", "file", "parts", "expires", "flags", "owner"):
        over = _over(catalog, piece)
        may = over | (lru & ((piece["flags"] & p.PROTECTED) == 0))
        if files:
            may &= piece["file"] != 0
        if len(pinned):
            may &= ~np.isin(piece["slot"], pinned)
        if own is not None:
            may &= piece["slot"] != own.slot
        order = np.where(over, 0, piece["used"])
        pieces.append([column[may] for column in (order, *(piece[field] for field in Candidate._fields))])
    order, *columns = [np.concatenate(column) for column in zip(*pieces, strict=True)] if pieces else [np.empty(0)]
    count = _CANDIDATES
    while True:
        chosen = np.argpartition(order, count)[:count] if count < len(order) else np.arange(len(order))
        chosen = chosen[np.argsort(order[chosen], kind="stable")]
        rows = [Candidate(*row) for row in zip(*(column[chosen].tolist() for column in columns), strict=True)]
        possible, useful = _possible(catalog, rows, short)
        if possible >= short or count >= len(order):
            return deque(useful), possible
        count *= 4


def _possible(catalog: Catalog, rows: list[Candidate], short: int) -> tuple[int, list[Candidate]]:
    """Return how many bytes candidates free, one after the other, until that is enough; and those that are of use."""
    freed, names, idle = 0, Counter[int](), list[Candidate]()
    for row in rows:
        if freed >= short:
            break
        nbytes = bytes_freed(catalog.directory, row.file, row.allocated, row.parts, names)
        freed += nbytes
        if not nbytes:
            idle.append(row)
    useless = {row for row in idle if not _frees(catalog.directory, row, names)}
    return freed, [row for row in rows if row not in useless] if useless else rows


def _frees(directory: Directory, row: Candidate | Entry, names: Counter[int]) -> bool:
    """Whether a file of an object loses its last name; ``names`` are all that go, also those of this object."""
    own, parts = Counter[int](), range(row.parts + 1)
    sole_links(directory, row.file, 1, parts, own)
    return bool(sole_links(directory, row.file, 1, parts, names - own))


def _choose(catalog: Catalog, victims: deque[Candidate], short: int, name: bytes) -> tuple[list[Entry], int]:
    """Choose and exclude up to :data:`BATCH` candidates of ``short`` bytes; also return how many that frees."""
    chosen, freed, names, idle = list[Entry](), 0, Counter[int](), list[Entry]()
    while victims and freed < short and len(chosen) < BATCH:
        entry = _still(catalog, victims.popleft())
        if entry is not None and entry.name != name and catalog.pins.exclude(entry.slot):
            chosen.append(entry)
            nbytes = bytes_freed(catalog.directory, entry.file, entry.allocated, entry.parts, names)
            freed += nbytes
            if not nbytes:
                idle.append(entry)
    if idle and freed >= short:
        useless = [entry for entry in idle if not _frees(catalog.directory, entry, names)]
        chosen = [entry for entry in chosen if entry not in useless]
    return chosen, freed


def _still(catalog: Catalog, candidate: Candidate) -> Entry | None:
    """Return the entry of a candidate if it was neither used nor replaced since the snapshot."""
    entry = catalog.entry(candidate.slot)
    if entry is None or entry.generation != candidate.generation:
        return None
    over = entry.expired or (entry.owner != 0 and catalog.owner_of(entry.owner) is None)
    if over:
        return entry
    return entry if not entry.flags & p.PROTECTED and catalog.used(entry.slot) == candidate.used else None


def _remove(change: Transaction, entries: list[Entry], evicted: bool = True) -> None:
    for entry in entries:
        change.remove(entry, evicted=evicted)
        change.commit()


def _over(catalog: Catalog, piece: dict[str, Any]) -> Any:
    """Return a mask of the objects of a snapshot that have expired or whose owner has ended."""
    owners = piece["owner"]
    dead = [each for each in np.unique(owners).tolist() if each and catalog.owner_of(each) is None]
    return ((piece["expires"] != 0) & (piece["expires"] <= time.time_ns())) | np.isin(owners, dead)


def pinned_slots(catalog: Catalog) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return the slots that any process has attached."""
    slots = catalog.settled().slots
    pinned = catalog.pins.own()
    for _, first, length in holders(catalog.pins_fd, 0, 1 << 32, everyone=False):
        pinned += range(first, min(first + length, slots))
    return np.unique(np.array(pinned, np.uint64))


def pinned_bytes(catalog: Catalog) -> int:
    """Return the bytes of all attached objects."""
    entries = [catalog.entry(slot) for slot in pinned_slots(catalog).tolist()]
    return sum([entry.allocated for entry in entries if entry is not None])


def removed_bytes(catalog: Catalog) -> int:
    """Return the bytes that count only for removed objects that are still attached."""
    memory, total, names = catalog.control.whole(), 0, Counter[int]()
    link = catalog.state().removed
    for _ in range(memory.slots):  # the list may be changing
        if not 0 < link <= memory.slots:
            break
        slot = memory.slot(link - 1)
        gone = Entry._make((*p.ENTRY.struct.unpack_from(slot), b"", link - 1))
        if gone.state != p.GONE:
            break
        total += bytes_freed(catalog.directory, gone.file, gone.allocated, gone.parts & 255, names)
        link = int.from_bytes(slot[p.NEXT : p.NEXT + 4], "little")
    return total


def full(catalog: Catalog, name: str, nbytes: int, reason: str, evicting: bool = False) -> StoreFull:
    """Return the error for a full store, with its usage."""
    state, capacity, free = catalog.state(), catalog.settings.capacity, free_bytes(catalog)
    have = f"capacity {capacity}, " if capacity is not None else ""
    what = f"no room for {nbytes} bytes{f' of {name!r}' if name else ''} in"
    advice = "delete objects or drop what is attached"
    if evicting:
        what = f"cannot evict {nbytes} bytes from"
    elif capacity is not None and nbytes > capacity:
        advice = "raise the capacity"
    elif capacity is not None and free >= nbytes:
        advice += ", or raise the capacity"
    elif free < catalog.directory.free():
        advice += ", or raise the memory limit of the control group that this process is in"
    else:
        advice += (
            ", run `shmarrow collect STORE` for other stores there, or make the file system of "
            f"{catalog.directory.path} larger"
        )
    removed = removed_bytes(catalog)
    return StoreFull(
        errno.ENOSPC,
        f"{what} the store {catalog.directory.name!r}: "
        f"{reason} ({have}{state.bytes - removed} bytes of objects, {pinned_bytes(catalog)} of them attached, "
        f"{removed} of removed objects that are still attached, {free} free); {advice}",
    )


# --- collecting ---------------------------------------------------------------------------------------------------


def remove_all(catalog: Catalog, slots: list[int], generations: list[int], collected: bool = False) -> list[str]:
    """Remove objects, one batch per hold of the lock, and return the names of those that still existed.

    With ``collected``, remove only unattached objects that have expired or whose owner has ended.
    """
    gone = list[str]()
    for start in range(0, len(slots), BATCH):
        with catalog.change() as change:
            for at in range(start, min(start + BATCH, len(slots))):
                entry = catalog.entry(slots[at])
                if entry is None or entry.generation != generations[at]:
                    continue
                if collected and not ((entry.expired or entry.owner) and catalog.pins.exclude(entry.slot)):
                    continue
                _remove(change, [entry], evicted=False)
                gone.append(entry.name.decode())
    return gone


def sweep(catalog: Catalog) -> bool:
    """Free all removed slots that are no longer attached; return whether there were any."""
    catalog.pins.swept = 0
    done, left, swept = not catalog.state().removed, catalog.memory.slots // _SWEPT + 1, False
    while not done and left:
        with catalog.change() as change:
            free = change.state["free"]
            done = change.sweep(_SWEPT)
            idle = change.state["free"] == free
        left -= idle  # a damaged list of what is attached may lead back
        swept |= not idle
    return swept


def recount(catalog: Catalog) -> None:
    """Count the bytes again: a file that had another name elsewhere when its object went still counts."""
    with catalog.change() as change:
        slots = np.frombuffer(change.memory.bytes, p.SLOT_DTYPE, change.memory.slots, p.SLOTS)
        with os.scandir(catalog.directory.fd) as entries:
            status = {entry.name: entry.stat(follow_symlinks=False) for entry in entries if p.is_object(entry.name)}
        nbytes = sum({each.st_ino: each.st_blocks * 512 for each in status.values()}.values())
        nbytes += int(slots["allocated"][(slots["state"] == p.LIVE) & (slots["file"] == 0)].sum())
        gone = slots[slots["state"] == p.GONE]
        for file, allocated in zip(gone["file"].tolist(), gone["allocated"].tolist(), strict=True):
            nbytes += 0 if file_name(file) in status else allocated
        if nbytes < change.state["bytes"]:
            change.state["bytes"] = nbytes
            change.commit()


def collect(catalog: Catalog) -> list[str]:
    """Remove expired and orphaned objects, and leftovers of killed processes; return the names of the objects."""
    catalog.mend()
    catalog.waiters.clear_dead()
    sweep(catalog)
    gone: list[str] = []
    for piece in snapshot(catalog, "expires", "owner"):
        over = _over(catalog, piece)
        gone += remove_all(catalog, piece["slot"][over].tolist(), piece["generation"][over].tolist(), collected=True)
    recount(catalog)
    return sorted(gone)
