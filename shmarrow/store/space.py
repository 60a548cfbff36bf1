"""The space of a store: its capacity, what is evicted or spilled where there is no room, and what is collected.

Rules kept here:

* the catalog counts: bytes of objects, of drafts, and of removed objects that somebody has attached still, each as
  blocks of the file system;
* the commit lock is never held for a scan. What may be evicted is found from a snapshot, which needs no lock, in the
  order of use; each is looked at again under the lock before it goes;
* nothing is evicted for an object that would not fit even then.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from shmarrow.errors import StoreFull, storage_error
from shmarrow.segment.host import memory_left
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.locks import holder, holders
from shmarrow.store.protocol import file_name
from shmarrow.store.slots import Entry, clock
from shmarrow.store.transaction import Transaction

BATCH = 128
"""Objects that are removed in one hold of the commit lock, which takes some 30 µs for each."""
_CANDIDATES = 4096
_TRIES = 5
_BLOCK = 4096


def round_up(nbytes: int) -> int:
    """The bytes that the blocks of a file take."""
    return -(-nbytes // _BLOCK) * _BLOCK


class Collected(NamedTuple):
    """What :meth:`Store.collect` removed.

    Attributes
    ----------
    objects : list of str
        Names of objects that expired, or whose owner is gone.
    drafts : int
        Objects that killed processes were writing.
    """

    objects: list[str]
    drafts: int


class Candidate(NamedTuple):
    """An object that may be evicted, as a snapshot found it."""

    slot: int
    generation: int
    used: int
    allocated: int


class Space:
    """Room for new objects in one store."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def used(self) -> int:
        """Bytes that count towards the capacity."""
        state = self._catalog.state()
        return state[p.BYTES] + state[p.REMOVED_BYTES] + state[p.DRAFT_BYTES]

    def has_room(self, nbytes: int) -> bool:
        """Whether the capacity allows so many more bytes."""
        capacity = self._catalog.settings.capacity
        return capacity is None or nbytes <= 0 or self.used() + nbytes <= capacity

    def _short(self, nbytes: int) -> int:
        capacity = self._catalog.settings.capacity
        return 0 if capacity is None else self.used() + nbytes - capacity

    # --- evicting ---

    def evict_here(self, nbytes: int, name: bytes) -> bool:
        """Make room under the lock that is held, from what is known to be evictable; False if that is too little."""
        catalog = self._catalog
        short = self._short(nbytes)
        if short <= 0 or nbytes <= 0:
            return True
        if catalog.settings.spill is not None:
            return False
        chosen = self._choose(short, name)
        if chosen is None:
            return False
        for entry in chosen:
            self._remove(entry)
        return not chosen or self.has_room(nbytes)

    def _choose(self, short: int, name: bytes = b"") -> list[Entry] | None:
        """Candidates that nobody has attached, and that nobody can attach from here on; None if they are too few."""
        catalog, victims = self._catalog, self._catalog.victims
        chosen: list[Entry] = []
        while short > 0 and victims and len(chosen) < BATCH:
            candidate = victims.popleft()
            entry = self._still(candidate)
            if entry is None or entry.name == name or not catalog.pins.exclude(entry.slot):
                continue
            chosen.append(entry)
            short -= entry.allocated
        if short > 0 and len(chosen) < BATCH:
            for entry in chosen:
                catalog.pins.admit(entry.slot)
            return None
        return chosen

    def _still(self, candidate: Candidate) -> Entry | None:
        """The object of a candidate, if it has not been used since, nor replaced."""
        found = self._catalog.entry(candidate.slot)
        if found is None or found.generation != candidate.generation or found.flags & (p.PROTECTED | p.SPILLED):
            return None
        used = self._catalog.used(found.slot)
        return found if used == candidate.used or found.expired else None

    def _remove(self, entry: Entry, told: bool = True) -> None:
        """Evict an object that is excluded from being pinned."""
        catalog = self._catalog
        transaction = Transaction(catalog)
        try:
            transaction.remove(entry, told, evicted=True)
            transaction.commit()
        finally:
            catalog.pins.admit(entry.slot)

    def make_room(self, nbytes: int, name: str, replaced: Entry | None = None) -> None:
        """Evict or spill until the capacity allows so many more bytes; the lock is not held.

        Raises
        ------
        StoreFull
            If there is too little that may go.
        """
        capacity = self._catalog.settings.capacity
        if capacity is not None and nbytes > capacity:
            raise self.full(name, nbytes, "that is more than the capacity")
        for _ in range(_TRIES):
            short = self._short(nbytes)
            if short <= 0:
                return
            self._reclaim()
            short = self._short(nbytes)
            if short <= 0:
                return
            self.release(short, name)
        if self._short(nbytes) > 0:
            raise self.full(name, nbytes, "others put objects as fast as room is made")

    def release(self, short: int, name: str = "", anything: bool = False) -> list[str]:
        """Evict or spill objects of ``short`` bytes or more, those used longest ago; their names.

        Raises
        ------
        StoreFull
            If there is not that much that may go; nothing is removed then.
        """
        gone: list[str] = []
        candidates = self.candidates(anything)
        if sum([each.allocated for each in candidates]) < short:
            raise self.full(name, short, "too little of it may be evicted")
        self._catalog.victims.clear()
        self._catalog.victims.extend(candidates)
        spill = self._catalog.settings.spill
        while short > 0:
            if spill is not None:
                with self._catalog.locked():
                    entry = next(filter(None, map(self._still, _drain(self._catalog.victims))), None)
                if entry is None:
                    break
                if self._spill(entry):
                    gone.append(entry.name.decode())
                    short -= entry.allocated
                continue
            with self._catalog.locked():
                chosen = self._choose(min(short, 1 << 62))
                for entry in chosen or ():
                    self._remove(entry)
                    gone.append(entry.name.decode())
                    short -= entry.allocated
            if not chosen:
                break
        return gone

    def candidates(self, anything: bool = False) -> list[Candidate]:
        """What may be evicted, what has expired first, then in the order of use; takes no lock."""
        catalog = self._catalog
        lru = anything or catalog.settings.eviction == "lru"
        pinned = self.pinned_slots()
        parts = []
        now = clock()
        for part in catalog.snapshot("used", "allocated", "expires", "flags", "owner"):
            over = (part["expires"] != 0) & (part["expires"] <= now)
            over |= np.isin(part["owner"], self.dead_owners(part["owner"]))
            may = (part["flags"] & (p.SPILLED | p.PROTECTED)) == 0
            may &= lru | over
            if len(pinned):
                may &= ~np.isin(part["slot"], pinned)
            chosen = part[may]
            order = np.where(over[may], 0, chosen["used"])
            parts.append(
                np.rec.fromarrays([order, chosen["slot"], chosen["generation"], chosen["used"], chosen["allocated"]])
            )
        if not parts:
            return []
        found = np.concatenate(parts)
        found = found[np.argsort(found["f0"], kind="stable")]
        return [Candidate(*row) for row in zip(*(found[f"f{i}"].tolist() for i in range(1, 5)), strict=True)]

    def pinned_slots(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """The slots that any process has attached."""
        catalog = self._catalog
        found = catalog.pins.own()
        for _, first, length in holders(catalog.pins_fd, 0, 1 << 32):
            found += range(first, min(first + length, catalog.memory.slots))
        return np.unique(np.array(found, np.uint64))

    def dead_owners(self, numbers: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> list[int]:
        """Those of some owners that have ended."""
        return [number for number in np.unique(numbers).tolist() if number and self._catalog.owner_of(number) is None]

    # --- the file system ---

    def check_memory(self, nbytes: int, name: str) -> None:
        """Make sure that a large object fits the file system, and the memory of this process's control group.

        Raises
        ------
        StoreFull
            If it does not, and too little may be evicted.
        """
        if nbytes <= 0:
            return
        short = nbytes - self.free()
        if short <= 0:
            return
        if self._catalog.settings.eviction == "lru":
            self.release(short, name)
            if self.free() >= nbytes:
                return
        raise self.full(name, nbytes, "there is not that much free")

    def free(self) -> int:
        """Bytes that can be written here."""
        free = self._catalog.directory.free()
        return min(free, memory_left()) if self._catalog.volatile else free

    def reserve(self, nbytes: int) -> list[str]:
        """Evict until so many bytes can be written; the names of what went."""
        short = max(self._short(nbytes) if nbytes > 0 else 0, nbytes - self.free())
        return self.release(short) if short > 0 else []

    def make_free(self, nbytes: int, name: str, error: OSError) -> None:
        """Evict because the file system has no room."""
        if self._catalog.settings.eviction != "lru":
            raise self.full(name, nbytes, error.strerror or "the file system is full")
        self.release(max(nbytes, 1), name)

    def full(self, name: str, nbytes: int, reason: str) -> StoreFull:
        """The error where there is no room, with the numbers."""
        catalog = self._catalog
        state, capacity = catalog.state(), catalog.settings.capacity
        have = f"capacity {capacity}, " if capacity is not None else ""
        advice = (
            "delete or drop objects, or raise the capacity"
            if capacity is not None and self.free() >= nbytes
            else f"delete or drop objects, or make the file system of {catalog.directory.path} larger"
        )
        return StoreFull(
            errno.ENOSPC,
            f"no room for {nbytes} bytes of {name or 'objects to come'!r} in the store {catalog.directory.name!r}: "
            f"{reason} ({have}{state[p.BYTES]} bytes of objects, {self.pinned_bytes()} of them attached, "
            f"{state[p.REMOVED_BYTES]} of removed objects that are still attached, {state[p.DRAFT_BYTES]} of drafts, "
            f"{self.free()} free); {advice}",
        )

    def pinned_bytes(self) -> int:
        """Bytes of the objects that somebody has attached."""
        entries = [self._catalog.entry(slot) for slot in self.pinned_slots().tolist()]
        return sum([entry.allocated for entry in entries if entry is not None and not entry.spilled])

    # --- spilling ---

    def _spill(self, entry: Entry) -> bool:
        """Move an object to the spill directory; False if it changed or was attached meanwhile."""
        catalog = self._catalog
        path = catalog.spill_path
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            source = os.open(file_name(entry.file), os.O_RDONLY | os.O_CLOEXEC, dir_fd=catalog.directory.fd)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error(error, "spill objects to", path) from None
        temp = os.path.join(path, f"spilling-{os.getpid()}-{entry.file:x}")
        try:
            target = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, catalog.settings.mode & 0o444)
            try:
                done = 0
                while done < entry.size:
                    done += os.sendfile(target, source, done, entry.size - done)
                if catalog.settings.durable:
                    os.fsync(target)
                allocated = os.fstat(target).st_blocks * 512
            finally:
                os.close(target)
            with catalog.locked():
                found = catalog.entry(entry.slot)
                if found is None or found.generation != entry.generation or not catalog.pins.exclude(entry.slot):
                    return False
                try:
                    transaction = Transaction(catalog)
                    transaction.state[p.FILE] += 1
                    file = transaction.state[p.FILE]
                    catalog.begin_adding(entry.slot, file)
                    os.rename(temp, os.path.join(path, file_name(file)))
                    transaction.spill(found, file, allocated)
                    transaction.commit()
                    catalog.end_adding()
                finally:
                    catalog.pins.admit(entry.slot)
            return True
        except OSError as error:
            raise storage_error(error, "spill objects to", path) from None
        finally:
            os.close(source)
            with suppress(OSError):
                os.unlink(temp)

    # --- collecting ---

    def _reclaim(self) -> int:
        """Free removed objects that nobody has attached any more, and drafts whose writers ended; how many drafts."""
        catalog = self._catalog
        while True:
            with catalog.locked():
                transaction = Transaction(catalog)
                freed = transaction.sweep(BATCH)
                if freed:
                    transaction.commit()
            if freed < BATCH:
                break
        drafts = 0
        if catalog.state()[p.DRAFT_BYTES]:
            for slot in self._drafts():
                drafts += self._drop_dead(slot)
        return drafts

    def _drafts(self) -> list[int]:
        memory = self._catalog.memory
        count = min(self._catalog.state()[p.BUCKETS], memory.slots)
        slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, count, p.SLOTS)
        return [int(slot) for slot in np.flatnonzero(slots["state"] == p.DRAFT)]

    def _drop_dead(self, slot: int) -> bool:
        """Free a draft whose writer has ended."""
        catalog = self._catalog
        with catalog.locked():
            lock = p.DRAFT_LOCKS + slot
            if slot in catalog.drafts or holder(catalog.commit_fd, lock) is not None:
                return False
            row = np.frombuffer(catalog.memory.bytes, p.SLOT_DTYPE, 1, p.SLOTS + slot * p.SLOT_SIZE)[0]
            if row["state"] != p.DRAFT:
                return False
            transaction = Transaction(catalog)
            transaction.drop_draft(slot, int(row["allocated"]))
            transaction.commit()
            catalog.directory.unlink(file_name(int(row["file"])))
        return True

    def collect(self) -> Collected:
        """Remove what has expired, whose owner is gone, and what killed processes left."""
        catalog = self._catalog
        drafts = self._reclaim()
        gone: list[str] = []
        now = clock()
        for part in catalog.snapshot("expires", "owner"):
            over = (part["expires"] != 0) & (part["expires"] <= now)
            over |= np.isin(part["owner"], self.dead_owners(part["owner"]))
            chosen = part[over]
            todo = list(zip(chosen["slot"].tolist(), chosen["generation"].tolist(), strict=True))
            for start in range(0, len(todo), BATCH):
                with catalog.locked():
                    for slot, generation in todo[start : start + BATCH]:
                        entry = catalog.entry(slot)
                        if entry is None or entry.generation != generation:
                            continue
                        if not (entry.expired or entry.owner) or not catalog.pins.exclude(slot):
                            continue
                        transaction = Transaction(catalog)
                        try:
                            if entry.expired:
                                transaction.state[p.EXPIRED] += 1
                                transaction.state[p.EVICTIONS] -= 1
                            transaction.remove(entry, evicted=True)
                            transaction.commit()
                        finally:
                            catalog.pins.admit(slot)
                        gone.append(entry.name.decode())
        return Collected(sorted(gone), drafts)


def _drain(victims: object) -> Iterator[Candidate]:
    while victims:
        yield victims.popleft()  # type: ignore[attr-defined]
