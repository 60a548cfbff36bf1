"""The space of a store: what fits, eviction and collection.

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
import time
from collections import Counter, deque
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import StoreFull
from shmarrow.segment.host import memory_left
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.change import Change, freed_by
from shmarrow.store.protocol import Entry
from shmarrow.store.snapshot import snapshot
from shmarrow.sync.locks import holders

BATCH = 64
"""Objects removed per hold of the commit lock, at about 30 µs each."""
_CANDIDATES = 4096
_SWEPT = 16
_WHILE, _PATIENCE = 0.005, 5.0
_TRIES, _ROUNDS = 20, 50
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


class Space:
    """Space for new objects in one store."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def short(self, nbytes: int) -> int:
        """Return the bytes that are lacking for ``nbytes`` more; at most 0 if they fit."""
        capacity = self._catalog.settings.capacity
        return 0 if capacity is None else self._catalog.state().bytes + nbytes - capacity

    # --- fitting --------------------------------------------------------------------------------------------------

    def lacking(self, change: Change, nbytes: int, name: bytes, replaced: Entry | None) -> int:
        """Return 0 if an object fits in place of one that it replaces, evicting known candidates for it.

        Otherwise return for how many bytes :meth:`make_room` is to make room, without the lock.
        """
        catalog = self._catalog
        short = change.state["bytes"] + nbytes - (catalog.settings.capacity or _UNLIMITED)
        if short <= 0:
            return 0
        if replaced is not None and catalog.pins.exclude(replaced.slot):
            freed = freed_by(catalog.directory, replaced.file, replaced.allocated, replaced.parts, Counter())
            nbytes, short = nbytes - freed, short - freed
        if short <= 0 or nbytes <= 0:
            return 0
        return 0 if self._evict_known(change, short, name) else nbytes

    def make_room(self, nbytes: int, name: str) -> None:
        """Evict until the capacity allows ``nbytes`` more, or raise StoreFull; called without the lock."""
        catalog = self._catalog
        capacity = catalog.settings.capacity
        if capacity is not None and nbytes > capacity:
            raise self.full(name, nbytes, "it exceeds the capacity")
        deadline = time.monotonic() + _PATIENCE
        before = None
        while self.short(nbytes) > 0:
            self._sweep()
            try:
                self.evict(self.short(nbytes), name, nbytes)
            except StoreFull:  # changes by other processes may make more evictable in a moment
                now = catalog.state()
                if now == before or time.monotonic() > deadline:
                    raise
                before = now
                time.sleep(_WHILE)
            if time.monotonic() > deadline and self.short(nbytes) > 0:
                raise self.full(name, nbytes, "other processes fill the space as fast as it is freed")

    def check_memory(self, nbytes: int, name: str) -> None:
        """Evict until the file system and this process's control groups have enough memory, or raise StoreFull.

        Expired and orphaned objects are removed even if the policy is not to evict.
        """
        for _ in range(_TRIES):
            short = nbytes - self.free() if nbytes > 0 else 0
            if short <= 0:
                return
            self.evict(short, name, nbytes, files=True)
        raise self.full(name, nbytes, "not enough space is free")

    def free(self) -> int:
        """Return the number of bytes that can be written here."""
        free = self._catalog.directory.free()
        return min(free, memory_left()) if self._catalog.volatile else free

    # --- evicting -------------------------------------------------------------------------------------------------

    def evict(
        self, short: int, name: str = "", needed: int = 0, anything: bool = False, files: bool = False
    ) -> list[str]:
        """Evict at least ``short`` bytes of objects, least recently used first, and return their names.

        The space is for the object ``name`` of ``needed`` bytes, which is not evicted itself. ``anything`` evicts even
        if the store's policy is not to, ``files`` only objects with a file of their own. If not enough can be evicted,
        StoreFull is raised and nothing is removed.
        """
        catalog, coded, gone = self._catalog, name.encode(), list[str]()
        if not files and short > 0:
            with catalog.change() as change:
                known = self._evict_known(change, short, coded)
            if known:
                return [entry.name.decode() for entry in known]
        for _ in range(_ROUNDS):
            if short <= 0:
                return gone
            victims, possible = self._candidates(short, coded, anything, files)
            if possible < short:
                if gone:  # others have used the rest, or attached it
                    return gone
                more = "" if anything else f"{short} more than are available, and "
                reason = f"{more}only {possible} bytes may be evicted"
                raise self.full(name, needed or short, reason, anything)
            enough = True
            while short > 0 and enough:
                with catalog.change() as change:
                    chosen, freed = self._choose(victims, short, coded)
                    enough = freed >= short or len(chosen) == BATCH
                    self._remove(change, chosen if enough else [])
                    if catalog.evicts and not files:
                        catalog.victims = victims
                if enough:
                    gone += [entry.name.decode() for entry in chosen]
                    short -= freed
        if short > 0 and not gone:  # damaged slots look evictable, but never are
            reason = "the objects that may be evicted are used or damaged"
            raise self.full(name, needed or short, reason, anything)
        return gone

    def _evict_known(self, change: Change, short: int, name: bytes) -> list[Entry]:
        """Evict what the last snapshot left as the least recently used, if few of these are enough; return them."""
        chosen, freed = self._choose(self._catalog.victims, short, name) if self._catalog.evicts else ([], 0)
        if freed < short:
            return []
        self._remove(change, chosen)
        return chosen

    def _candidates(self, short: int, name: bytes, anything: bool, files: bool) -> tuple[deque[Candidate], int]:
        """Return candidates for eviction, expired ones first, then in order of use; takes no lock.

        Those of ``short`` bytes if there are as many, and at least 4096. Also returns how many bytes they free: those
        of files of which no other object has a name.
        """
        catalog = self._catalog
        pinned, lru = self.pinned_slots(), anything or catalog.evicts
        own = catalog.find(name) if name else None
        pieces = []
        for piece in snapshot(catalog, "used", "allocated", "file", "parts", "expires", "flags", "owner"):
            over = self._over(piece)
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
            possible = self._possible(rows, short)
            if possible >= short or count >= len(order):
                return deque(rows), possible
            count *= 4

    def _possible(self, rows: list[Candidate], short: int) -> int:
        """Return how many bytes candidates free, one after the other, until that is enough."""
        freed, names, directory = 0, Counter[int](), self._catalog.directory
        for row in rows:
            if freed >= short:
                break
            freed += freed_by(directory, row.file, row.allocated, row.parts, names)
        return freed

    def _choose(self, victims: deque[Candidate], short: int, name: bytes) -> tuple[list[Entry], int]:
        """Choose and exclude up to :data:`BATCH` candidates of ``short`` bytes; also return how many that frees."""
        chosen, freed, names = list[Entry](), 0, Counter[int]()
        while victims and freed < short and len(chosen) < BATCH:
            entry = self._still(victims.popleft())
            if entry is not None and entry.name != name and self._catalog.pins.exclude(entry.slot):
                chosen.append(entry)
                freed += freed_by(self._catalog.directory, entry.file, entry.allocated, entry.parts, names)
        return chosen, freed

    def _still(self, candidate: Candidate) -> Entry | None:
        """Return the entry of a candidate if it was neither used nor replaced since the snapshot."""
        entry = self._catalog.entry(candidate.slot)
        if entry is None or entry.generation != candidate.generation:
            return None
        over = entry.expired or (entry.owner != 0 and self._catalog.owner_of(entry.owner) is None)
        if over:
            return entry
        return entry if not entry.flags & p.PROTECTED and self._catalog.used(entry.slot) == candidate.used else None

    def _remove(self, change: Change, entries: list[Entry], evicted: bool = True) -> None:
        for entry in entries:
            change.remove(entry, evicted=evicted)
            change.commit()

    def _over(self, piece: dict[str, Any]) -> Any:
        """Return a mask of the objects of a snapshot that have expired or whose owner has ended."""
        owners = piece["owner"]
        dead = [each for each in np.unique(owners).tolist() if each and self._catalog.owner_of(each) is None]
        return ((piece["expires"] != 0) & (piece["expires"] <= time.time_ns())) | np.isin(owners, dead)

    def pinned_slots(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """Return the slots that any process has attached."""
        catalog, slots = self._catalog, self._catalog.settled().slots
        pinned = catalog.pins.own()
        for _, first, length in holders(catalog.pins_fd, 0, 1 << 32, everyone=False):
            pinned += range(first, min(first + length, slots))
        return np.unique(np.array(pinned, np.uint64))

    def pinned_bytes(self) -> int:
        """Return the bytes of all attached objects."""
        entries = [self._catalog.entry(slot) for slot in self.pinned_slots().tolist()]
        return sum([entry.allocated for entry in entries if entry is not None])

    def removed_bytes(self) -> int:
        """Return the bytes that count only for removed objects that are still attached."""
        memory, total, names = self._catalog.control.whole(), 0, Counter[int]()
        link = self._catalog.state().removed
        for _ in range(memory.slots):  # the list may be changing
            if not 0 < link <= memory.slots:
                break
            slot = memory.slot(link - 1)
            gone = Entry._make((*p.ENTRY.struct.unpack_from(slot), b"", link - 1))
            if gone.state != p.GONE:
                break
            total += freed_by(self._catalog.directory, gone.file, gone.allocated, gone.parts & 255, names)
            link = int.from_bytes(slot[p.NEXT : p.NEXT + 4], "little")
        return total

    def full(self, name: str, nbytes: int, reason: str, evicting: bool = False) -> StoreFull:
        """Return the error for a full store, with its usage."""
        catalog = self._catalog
        state, capacity, free = catalog.state(), catalog.settings.capacity, self.free()
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
        removed = self.removed_bytes()
        return StoreFull(
            errno.ENOSPC,
            f"{what} the store {catalog.directory.name!r}: "
            f"{reason} ({have}{state.bytes - removed} bytes of objects, {self.pinned_bytes()} of them attached, "
            f"{removed} of removed objects that are still attached, {free} free); {advice}",
        )

    # --- collecting -----------------------------------------------------------------------------------------------

    def remove_all(self, slots: list[int], generations: list[int], collected: bool = False) -> list[str]:
        """Remove objects, one batch per hold of the lock, and return the names of those that still existed.

        With ``collected``, remove only unattached objects that have expired or whose owner has ended.
        """
        catalog, gone = self._catalog, list[str]()
        for start in range(0, len(slots), BATCH):
            with catalog.change() as change:
                for at in range(start, min(start + BATCH, len(slots))):
                    entry = catalog.entry(slots[at])
                    if entry is None or entry.generation != generations[at]:
                        continue
                    if collected and not ((entry.expired or entry.owner) and catalog.pins.exclude(entry.slot)):
                        continue
                    self._remove(change, [entry], evicted=False)
                    gone.append(entry.name.decode())
        return gone

    def _sweep(self) -> None:
        """Free all removed slots that are no longer attached."""
        catalog = self._catalog
        catalog.pins.swept = 0
        done = not catalog.state().removed
        while not done:
            with catalog.change() as change:
                done = change.sweep(_SWEPT)

    def collect(self) -> list[str]:
        """Remove expired and orphaned objects, and leftovers of killed processes; return the names of the objects."""
        self._catalog.mend()
        self._sweep()
        gone: list[str] = []
        for piece in snapshot(self._catalog, "expires", "owner"):
            over = self._over(piece)
            gone += self.remove_all(piece["slot"][over].tolist(), piece["generation"][over].tolist(), collected=True)
        return sorted(gone)
