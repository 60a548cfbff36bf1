"""The space of a store: capacity, eviction and collection.

Invariants:

* the catalog counts the bytes of objects, drafts and removed objects that are still attached, in whole blocks of the
  file system;
* the commit lock is never held during a scan. Candidates for eviction come from a snapshot, which needs no lock, in
  order of use; each is checked again under the lock before it is evicted;
* nothing is evicted for an object that would still not fit.
"""

from __future__ import annotations

import errno
import time
from collections import Counter, deque
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import StoreFull
from shmarrow.segment.host import memory_left
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.protocol import Entry
from shmarrow.store.snapshot import snapshot
from shmarrow.sync.locks import holder, holders

BATCH = 64
"""Objects removed per hold of the commit lock, at about 30 µs each."""
_CANDIDATES = 4096
_SWEPT = 16
_WHILE, _PATIENCE = 0.005, 5.0
_TRIES, _ROUNDS = 20, 50
_BLOCK = 4096


def round_up(nbytes: int) -> int:
    """Round up to whole blocks of the file system."""
    return -(-nbytes // _BLOCK) * _BLOCK


class Collected(NamedTuple):
    """The result of :meth:`Store.collect`.

    Attributes
    ----------
    objects : list of str
        Names of removed objects that had expired or whose owner has ended.
    drafts : int
        Number of drafts that killed processes left behind.
    """

    objects: list[str]
    drafts: int


class Candidate(NamedTuple):
    """A candidate for eviction from a snapshot; the fields are those of a slot.

    ``allocated`` includes the files that the object shares, which are freed with the last one that has them.
    """

    slot: int
    generation: int
    used: int
    allocated: int


class Space:
    """Space for new objects in one store."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def has_room(self, nbytes: int) -> bool:
        """Whether the capacity allows ``nbytes`` more."""
        return nbytes <= 0 or self._short(nbytes) <= 0

    def _short(self, nbytes: int) -> int:
        capacity = self._catalog.settings.capacity
        if capacity is None:
            return 0
        state = self._catalog.state()
        return state.bytes + state.removed_bytes + state.draft_bytes + nbytes - capacity

    # --- evicting ---

    def evict_here(self, nbytes: int, name: bytes) -> bool:
        """Evict known candidates under the lock, which the caller holds; False if that does not free enough."""
        if self.has_room(nbytes):
            return True
        if not self._catalog.evicts:
            return False
        for entry in self._choose(self._catalog.victims, self._short(nbytes), name)[0]:
            self._remove(entry)
        return self.has_room(nbytes)

    def freed_with(self, entry: Entry) -> int:
        """Return the bytes that removing an object now would free: 0 if it is attached."""
        catalog = self._catalog
        return catalog.files.freed_by(entry, Counter()) if catalog.pins.exclude(entry.slot) else 0

    def _choose(self, victims: deque[Candidate], short: int, name: bytes) -> tuple[list[Entry], int]:
        """Choose and exclude up to :data:`BATCH` candidates of ``short`` bytes in all; none if there are too few.

        Also returns how many bytes that frees.
        """
        chosen: list[Entry] = []
        freed, names = 0, Counter[int]()
        while freed < short and len(chosen) < BATCH:
            if not victims:
                return [], 0
            entry = self._still(victims.popleft())
            if entry is not None and entry.name != name and self._catalog.pins.exclude(entry.slot):
                chosen.append(entry)
                freed += self._catalog.files.freed_by(entry, names)
        return chosen, freed

    def _still(self, candidate: Candidate) -> Entry | None:
        """Return the entry of a candidate if it was neither used nor replaced since the snapshot."""
        found = self._catalog.entry(candidate.slot)
        if found is None or found.generation != candidate.generation or self._stays(found):
            return None
        return found if self._catalog.used(found.slot) == candidate.used or found.expired else None

    def _remove(self, entry: Entry, evicted: bool = True) -> None:
        transaction = self._catalog.transaction()
        transaction.remove(entry, evicted=evicted)
        self._catalog.commit(transaction)

    def remove_all(self, slots: list[int], generations: list[int], collected: bool = False) -> list[str]:
        """Remove objects, one batch per hold of the lock, and return the names of those that still existed.

        With ``collected``, remove only unattached objects that have expired or whose owner has ended.
        """
        catalog = self._catalog
        gone = []
        for start in range(0, len(slots), BATCH):
            with catalog.mutex, catalog.locked:
                for at in range(start, min(start + BATCH, len(slots))):
                    entry = catalog.entry(slots[at])
                    if entry is None or entry.generation != generations[at]:
                        continue
                    if collected and not ((entry.expired or entry.owner) and catalog.pins.exclude(entry.slot)):
                        continue
                    self._remove(entry, evicted=False)
                    gone.append(entry.name.decode())
        return gone

    def make_room(self, nbytes: int, name: str) -> None:
        """Evict until the capacity allows ``nbytes`` more, or raise StoreFull; called without the lock."""
        catalog = self._catalog
        capacity = catalog.settings.capacity
        if capacity is not None and nbytes > capacity:
            raise self.full(name, nbytes, "it exceeds the capacity")
        deadline = time.monotonic() + _PATIENCE
        before = None
        while not self.has_room(nbytes):
            self._reclaim()
            try:
                self.release(self._short(nbytes), name, nbytes)
            except StoreFull:  # changes by other processes may make more evictable in a moment
                now = catalog.state()
                if now == before or time.monotonic() > deadline:
                    raise
                before = now
                time.sleep(_WHILE)
            if time.monotonic() > deadline and not self.has_room(nbytes):
                raise self.full(name, nbytes, "other processes fill the space as fast as it is freed")

    def release(
        self, short: int, name: str = "", needed: int = 0, anything: bool = False, files: bool = False
    ) -> list[str]:
        """Evict at least ``short`` bytes of objects, least recently used first, and return their names.

        The space is for the object ``name`` of ``needed`` bytes, which is not evicted itself. ``anything`` evicts even
        if the store's policy is not to, ``files`` only objects with a file of their own. If not enough can be evicted,
        StoreFull is raised and nothing is removed.
        """
        catalog = self._catalog
        coded = name.encode()
        # The remaining candidates of the last call are still the least recently used.
        victims = deque[Candidate]() if files or (anything and not catalog.evicts) else catalog.victims
        gone: list[str] = []
        rounds = 0
        while short > 0:
            if not any(total >= short for total in accumulate([each.allocated for each in tuple(victims)])):
                candidates = self.candidates(short, anything, files)
                possible = sum([each.allocated for each in candidates])
                if possible < short:
                    if gone:
                        break
                    more = "" if anything else f"{short} more than are available, and "
                    reason = f"{more}only {possible} bytes may be evicted"
                    raise self.full(name, needed or short, reason, anything)
                victims.clear()
                victims.extend(candidates)
            with catalog.mutex, catalog.locked:
                chosen, freed = self._choose(victims, short, coded)
                for entry in chosen:
                    self._remove(entry)
            gone += [entry.name.decode() for entry in chosen]
            short -= freed
            rounds = 0 if chosen else rounds + 1
            if rounds > _ROUNDS:  # damaged slots look evictable, but never are
                if gone:
                    break
                reason = "the objects that may be evicted are used or damaged, or others have their memory"
                raise self.full(name, needed or short, reason, anything)
        return gone

    def candidates(self, short: int, anything: bool = False, files: bool = False) -> list[Candidate]:
        """Return candidates for eviction, expired ones first, then in order of use; takes no lock.

        Returns at least 4096 if there are that many, and enough for ``short`` bytes if possible.
        """
        pinned = self.pinned_slots()
        lru = anything or self._catalog.evicts
        parts = []
        for part in snapshot(self._catalog, "used", "allocated", "expires", "flags", "owner", "file", "parts"):
            over = self._over(part)
            may = over | (lru & ((part["flags"] & p.PROTECTED) == 0))
            if files:
                may &= part["file"] != 0
            if len(pinned):
                may &= ~np.isin(part["slot"], pinned)
            for row in np.flatnonzero(may & (part["file"] != 0) & (part["parts"] != 0)).tolist():
                shared = self._catalog.files.parts(int(part["file"][row]), int(part["parts"][row]))
                part["allocated"][row] += sum([each.st_blocks * 512 for each in shared])
            order = np.where(over, 0, part["used"])
            parts.append([column[may] for column in (order, *(part[field] for field in Candidate._fields))])
        if not parts:
            return []
        order, *columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        count, chosen = _CANDIDATES, np.arange(len(order))
        while count < len(order):
            chosen = np.argpartition(order, count)[:count]
            if columns[-1][chosen].sum() >= short:
                break
            count, chosen = count * 4, np.arange(len(order))
        chosen = chosen[np.argsort(order[chosen], kind="stable")]
        return [Candidate(*row) for row in zip(*(column[chosen].tolist() for column in columns), strict=True)]

    def _over(self, part: dict[str, Any]) -> Any:
        """Return a mask of the objects of a snapshot that have expired or whose owner has ended."""
        owners = part["owner"]
        dead = [each for each in np.unique(owners).tolist() if each and self._catalog.owner_of(each) is None]
        return ((part["expires"] != 0) & (part["expires"] <= time.time_ns())) | np.isin(owners, dead)

    def pinned_slots(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """Return the slots that any process has attached."""
        catalog, slots = self._catalog, self._catalog.settled().slots
        found = catalog.pins.own()
        for _, first, length in holders(catalog.pins_fd, 0, 1 << 32, everyone=False):
            found += range(first, min(first + length, slots))
        return np.unique(np.array(found, np.uint64))

    def pinned_bytes(self) -> int:
        """Return the bytes of all attached objects."""
        entries = [self._catalog.entry(slot) for slot in self.pinned_slots().tolist()]
        return sum([entry.allocated for entry in entries if entry is not None])

    # --- the file system ---

    def check_memory(self, nbytes: int, name: str) -> None:
        """Evict until the file system and this process's control groups have enough memory, or raise StoreFull.

        Expired and orphaned objects are removed even if the policy is not to evict.
        """
        for _ in range(_TRIES):
            short = nbytes - self.free() if nbytes > 0 else 0
            if short <= 0:
                return
            self.release(short, name, nbytes, files=True)
        raise self.full(name, nbytes, "not enough space is free")

    def free(self) -> int:
        """Return the number of bytes that can be written here."""
        free = self._catalog.directory.free()
        return min(free, memory_left()) if self._catalog.volatile else free

    def reserve(self, nbytes: int) -> list[str]:
        """Evict until ``nbytes`` can be written, and return the names of the evicted objects."""
        short, lacking = self._short(nbytes) if nbytes > 0 else 0, nbytes - self.free()
        gone = self.release(lacking, needed=nbytes, files=True) if lacking > 0 else []
        short = min(short, self._short(nbytes))
        return gone + self.release(short, needed=nbytes) if short > 0 else gone

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
        return StoreFull(
            errno.ENOSPC,
            f"{what} the store {catalog.directory.name!r}: "
            f"{reason} ({have}{state.bytes} bytes of objects, {self.pinned_bytes()} of them attached, "
            f"{state.removed_bytes} of removed objects that are still attached, {state.draft_bytes} of drafts, "
            f"{free} free); {advice}",
        )

    def _is_over(self, entry: Entry) -> bool:
        """Whether an object has expired, or its owner has ended."""
        return entry.expired or (entry.owner != 0 and self._catalog.owner_of(entry.owner) is None)

    def _stays(self, entry: Entry) -> bool:
        """Whether an object is protected, and neither expired nor orphaned."""
        return bool(entry.flags & p.PROTECTED) and not self._is_over(entry)

    # --- collecting ---

    def _reclaim(self) -> int:
        """Free removed objects that are no longer attached, and drafts of ended writers; return how many drafts."""
        catalog = self._catalog
        catalog.pins.swept = 0
        done = not catalog.state().removed
        while not done:
            with catalog.mutex, catalog.locked:
                transaction = catalog.transaction()
                before = transaction.state.copy()
                done = transaction.sweep(_SWEPT)
                if transaction.state != before:  # a commit wakes waiting processes, so only if anything changed
                    catalog.commit(transaction)
        state, memory = catalog.state(), catalog.memory
        if not state.draft_bytes:
            return 0
        slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, min(state.buckets, memory.slots), p.SLOTS)
        return sum(map(self.drop_dead, np.flatnonzero(slots["state"] == p.DRAFT).tolist()))

    def drop_dead(self, slot: int) -> bool:
        """Free a draft whose writer has ended."""
        catalog = self._catalog
        with catalog.mutex, catalog.locked:
            if (p.DRAFT_LOCKS + slot) in catalog.exclusive or holder(catalog.commit_fd, p.DRAFT_LOCKS + slot):
                return False
            row = np.frombuffer(catalog.memory.bytes, p.SLOT_DTYPE, 1, p.SLOTS + slot * p.SLOT_SIZE)[0]
            if row["state"] != p.DRAFT:
                return False
            transaction = catalog.transaction()
            transaction.drop_draft(slot, int(row["file"]), int(row["allocated"]))
            catalog.commit(transaction)
        return True

    def collect(self) -> Collected:
        """Remove expired and orphaned objects, and leftovers of killed processes."""
        self._catalog.check_writable()
        self._catalog.mend()
        drafts = self._reclaim()
        gone: list[str] = []
        for part in snapshot(self._catalog, "expires", "owner"):
            over = self._over(part)
            gone += self.remove_all(part["slot"][over].tolist(), part["generation"][over].tolist(), collected=True)
        return Collected(sorted(gone), drafts)
