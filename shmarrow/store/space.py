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
import time
from collections import deque
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import InvalidData, StorageError, StoreFull, storage_error
from shmarrow.segment.host import memory_left
from shmarrow.segment.record_locks import holder, holders
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.directory import Directory
from shmarrow.store.protocol import file_name
from shmarrow.store.slots import Entry, clock
from shmarrow.store.spill import copy_file
from shmarrow.store.transaction import Transaction

BATCH = 64
"""Objects that are removed in one hold of the commit lock, which takes some 30 µs for each."""
_CANDIDATES = 4096
_SWEPT = 16
_PAUSE, _WHILE, _PATIENCE = 0.0005, 0.005, 5.0
_TRIES, _ROUNDS = 20, 50
_BLOCK = 4096
_COUNTS = (p.EVENTS, p.BYTES, p.REMOVED_BYTES, p.DRAFT_BYTES)


def round_up(nbytes: int) -> int:
    """The bytes that the blocks of a file take."""
    return -(-nbytes // _BLOCK) * _BLOCK


class Collected(NamedTuple):
    """The result of :meth:`Store.collect`.

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
    """An object that may be evicted, as a snapshot found it; the fields are those of a slot."""

    slot: int
    generation: int
    used: int
    allocated: int


class Space:
    """Room for new objects in one store."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def has_room(self, nbytes: int) -> bool:
        """Whether the capacity allows so many more bytes."""
        return nbytes <= 0 or self._short(nbytes) <= 0

    def _short(self, nbytes: int) -> int:
        capacity, state = self._catalog.settings.capacity, self._catalog.state()
        used = state[p.BYTES] + state[p.REMOVED_BYTES] + state[p.DRAFT_BYTES]
        return 0 if capacity is None else used + nbytes - capacity

    # --- evicting ---

    def evict_here(self, nbytes: int, name: bytes) -> bool:
        """Make room under the lock that is held, from what is known to be evictable; False if that is too little."""
        settings = self._catalog.settings
        if self.has_room(nbytes):
            return True
        if settings.spill is not None or settings.eviction != "lru":
            return False
        for entry in self._choose(self._catalog.victims, self._short(nbytes), name):
            self._remove(entry)
        return self.has_room(nbytes)

    def freed_with(self, entry: Entry) -> int:
        """The bytes that are free when an object is removed now: none where somebody holds it."""
        catalog = self._catalog
        held = entry.spilled or not catalog.pins.exclude(entry.slot) or catalog.pins.inherited(entry.slot)
        return 0 if held else entry.allocated

    def _choose(self, victims: deque[Candidate], short: int, name: bytes) -> list[Entry]:
        """Up to :data:`BATCH` candidates of ``short`` bytes that nobody can attach now; none if that is too much."""
        chosen: list[Entry] = []
        while short > 0 and len(chosen) < BATCH:
            if not victims:
                return []
            entry = self._still(victims.popleft())
            if entry is not None and entry.name != name and self._catalog.pins.exclude(entry.slot):
                chosen.append(entry)
                short -= entry.allocated
        return chosen

    def _still(self, candidate: Candidate) -> Entry | None:
        """The object of a candidate, if it has not been used since, nor replaced."""
        found = self._catalog.entry(candidate.slot)
        if found is None or found.generation != candidate.generation or found.flags & p.SPILLED or self._stays(found):
            return None
        return found if self._catalog.used(found.slot) == candidate.used or found.expired else None

    def _remove(self, entry: Entry, evicted: bool = True) -> None:
        transaction = Transaction(self._catalog)
        transaction.remove(entry, evicted=evicted)
        transaction.commit()

    def remove_all(self, slots: list[int], generations: list[int], collected: bool = False) -> list[str]:
        """Remove objects, a batch in one hold of the lock; the names of those that were still there.

        What is ``collected`` must have expired, or have an owner, who is gone; and nobody has it attached.
        """
        catalog = self._catalog
        gone = []
        for start in range(0, len(slots), BATCH):
            with catalog.locked():
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
        """Evict or spill until the capacity allows so many more bytes, or raise StoreFull; the lock is not held."""
        catalog = self._catalog
        capacity = catalog.settings.capacity
        if capacity is not None and nbytes > capacity:
            raise self.full(name, nbytes, "it exceeds the capacity")
        deadline = time.monotonic() + _PATIENCE
        before: list[int] = []
        while not self.has_room(nbytes):
            self._reclaim()
            try:
                self.release(self._short(nbytes), name, nbytes)
            except StoreFull:  # what others are about to put or to evict may be evicted, or have gone, in a moment
                now = [catalog.state()[field] for field in _COUNTS]
                if now == before or time.monotonic() > deadline:
                    raise
                before = now
                time.sleep(_WHILE)
            if time.monotonic() > deadline and not self.has_room(nbytes):
                raise self.full(name, nbytes, "other processes fill the space as fast as it is freed")

    def release(self, short: int, name: str = "", needed: int = 0, anything: bool = False) -> list[str]:
        """Evict or spill objects of ``short`` bytes or more, those used longest ago; their names.

        They are for the object ``name`` of ``needed`` bytes, which is not evicted itself. ``anything`` is evicted in a
        store, too, that evicts nothing by itself. StoreFull is raised, and nothing removed, if less than that may go.
        """
        catalog = self._catalog
        spills = catalog.settings.spill is not None
        coded = name.encode()
        # What is left of the last candidates still goes first, as nothing else has been used less recently since.
        victims = deque[Candidate]() if anything and not catalog.evicts else catalog.victims
        gone: list[str] = []
        rounds = 0
        while short > 0:
            if not any(total >= short for total in accumulate(each.allocated for each in victims)):
                candidates = self.candidates(short, anything)
                possible = sum([each.allocated for each in candidates])
                if possible < short:
                    if gone:
                        break
                    more = "" if anything else f"that is {short} more than there are, and "
                    reason = f"{more}only {possible} bytes may be evicted"
                    raise self.full(name, needed or short, reason, anything)
                victims.clear()
                victims.extend(candidates)
            with catalog.locked():
                chosen = self._choose(victims, 1 if spills else short, coded)
                for entry in chosen if not spills else ():
                    self._remove(entry)
            if spills:  # one after the other, as the lock is not held while one is copied
                chosen = [entry for entry in chosen if self._spill(entry)]
                if not chosen:
                    time.sleep(_PAUSE)
            gone += [entry.name.decode() for entry in chosen]
            short -= sum([entry.allocated for entry in chosen])
            rounds = 0 if chosen else rounds + 1
            if rounds > _ROUNDS:  # slots that are damaged look as if they might go, and never do
                if gone:
                    break
                raise self.full(name, needed or short, "what may be evicted is in use, or damaged", anything)
        return gone

    def candidates(self, short: int, anything: bool = False) -> list[Candidate]:
        """What may be evicted, what has expired first, then in the order of use; takes no lock.

        No more than have ``short`` bytes, but some thousands of them.
        """
        pinned = self.pinned_slots(inherited=self._catalog.settings.spill is not None)
        lru = anything or self._catalog.evicts
        parts = []
        for part in self._catalog.snapshot("used", "allocated", "expires", "flags", "owner"):
            over = self._over(part)
            may = ((part["flags"] & p.SPILLED) == 0) & (over | (lru & ((part["flags"] & p.PROTECTED) == 0)))
            if len(pinned):
                may &= ~np.isin(part["slot"], pinned)
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
        """Which objects of a snapshot have expired, or have an owner that is gone."""
        owners = part["owner"]
        dead = [each for each in np.unique(owners).tolist() if each and self._catalog.owner_of(each) is None]
        return ((part["expires"] != 0) & (part["expires"] <= clock())) | np.isin(owners, dead)

    def pinned_slots(self, inherited: bool = False) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """The slots that any process has attached; or inherited, too, from one that had."""
        catalog, slots = self._catalog, self._catalog.settled().slots
        found = catalog.pins.own(inherited)
        for start in (0, p.INHERITED_LOCKS) if inherited else (0,):
            for _, first, length in holders(catalog.pins_fd, start, 1 << 32, everyone=False):
                found += range(first - start, min(first - start + length, slots))
        return np.unique(np.array(found, np.uint64))

    def pinned_bytes(self) -> int:
        """Bytes of the objects that somebody has attached."""
        entries = [self._catalog.entry(slot) for slot in self.pinned_slots().tolist()]
        return sum([entry.allocated for entry in entries if entry is not None and not entry.spilled])

    # --- the file system ---

    def check_memory(self, nbytes: int, name: str) -> None:
        """Evict until the file system and the memory of this process's control groups have room, or raise StoreFull.

        Where nothing is evicted, what has expired or whose owner is gone is removed all the same.
        """
        for _ in range(_TRIES):
            short = nbytes - self.free() if nbytes > 0 else 0
            if short <= 0:
                return
            self.release(short, name, nbytes)
        raise self.full(name, nbytes, "not enough space is free")

    def free(self) -> int:
        """Bytes that can be written here."""
        free = self._catalog.directory.free()
        return min(free, memory_left()) if self._catalog.volatile else free

    def reserve(self, nbytes: int) -> list[str]:
        """Evict until so many bytes can be written; the names of what went."""
        short = max(self._short(nbytes) if nbytes > 0 else 0, nbytes - self.free())
        return self.release(short, needed=nbytes) if short > 0 else []

    def make_free(self, nbytes: int, name: str) -> None:
        """Evict because the file system has no room."""
        self.release(max(nbytes - self.free(), 1), name, nbytes)

    def full(self, name: str, nbytes: int, reason: str, evicting: bool = False) -> StoreFull:
        """The error where there is no room, with the numbers."""
        catalog = self._catalog
        state, capacity, free = catalog.state(), catalog.settings.capacity, self.free()
        have = f"capacity {capacity}, " if capacity is not None else ""
        what = f"no room for {nbytes} bytes{f' of {name!r}' if name else ''} in"
        if evicting:
            what, advice = f"cannot evict {nbytes} bytes from", ""
        elif capacity is not None and free >= nbytes:
            advice = ", or raise the capacity"
        elif free < catalog.directory.free():
            advice = ", or raise the memory limit of the control group that this process is in"
        else:
            advice = (
                ", run `shmarrow gc STORE` for other stores there, or make the file system of "
                f"{catalog.directory.path} larger"
            )
        return StoreFull(
            errno.ENOSPC,
            f"{what} the store {catalog.directory.name!r}: "
            f"{reason} ({have}{state[p.BYTES]} bytes of objects, {self.pinned_bytes()} of them attached, "
            f"{state[p.REMOVED_BYTES]} of removed objects that are still attached, {state[p.DRAFT_BYTES]} of drafts, "
            f"{free} free); delete objects or drop what is attached{advice}",
        )

    # --- spilling ---

    def _spill(self, entry: Entry) -> bool:
        """Move an object to the spill directory; one that cannot be found or read any more is removed.

        False if it was attached or changed meanwhile, or somebody else is about to move it.
        """
        catalog = self._catalog
        lock = p.SPILL_LOCKS + entry.slot
        if not catalog.exclusive.acquire(lock):
            return False
        copy = -1
        try:
            directory = catalog.spill_directory()
            if not self._is_over(entry):
                copy = self._copy(entry, directory)
            with catalog.locked():
                found = catalog.entry(entry.slot)
                if found is None or (found.generation, found.file) != (entry.generation, entry.file):
                    return False
                if self._stays(found) or not catalog.pins.exclude(entry.slot) or catalog.pins.inherited(entry.slot):
                    return False
                transaction = Transaction(catalog)
                if copy < 0:
                    transaction.remove(found, evicted=True)
                else:
                    file = self._name(copy, directory, entry.slot, transaction)
                    transaction.spill(found, file, os.fstat(copy).st_blocks * 512)
                transaction.commit()
                catalog.end_adding()
            return True
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise storage_error(error, "spill objects to", catalog.spill_path) from None
        finally:
            if copy >= 0:
                os.close(copy)
            catalog.exclusive.release(lock)

    def _name(self, copy: int, directory: Directory, slot: int, transaction: Transaction) -> int:
        """Give a copy its name; whoever has the lock next removes it unless this is committed."""
        catalog = self._catalog
        while True:  # a number that is taken is of a file that somebody left
            transaction.state[p.FILE] += 1
            file = transaction.state[p.FILE]
            catalog.begin_adding(slot, file)
            with suppress(FileExistsError):
                source = f"/proc/self/fd/{copy}"
                os.link(source, file_name(file), src_dir_fd=copy, dst_dir_fd=directory.fd, follow_symlinks=True)
                break
        if catalog.settings.durable:
            directory.sync()
        return file

    def _copy(self, entry: Entry, directory: Directory) -> int:
        """A copy of an object in the spill directory, without a name; -1 if the object is to be removed instead."""
        catalog = self._catalog
        try:
            source = catalog.directory.open(file_name(entry.file), os.O_RDONLY)
        except FileNotFoundError:
            return -1
        try:
            return copy_file(source, directory, entry.size, catalog.settings)
        except InvalidData:
            return -1
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if catalog.settings.eviction == "lru":
                return -1
            raise self.full(
                "", entry.allocated, f"the spill directory {directory.path!r} is full, {directory.free()} bytes free"
            ) from None
        finally:
            os.close(source)

    def _is_over(self, entry: Entry) -> bool:
        """Whether an object has expired, or has an owner that is gone."""
        return entry.expired or (entry.owner != 0 and self._catalog.owner_of(entry.owner) is None)

    def _stays(self, entry: Entry) -> bool:
        """Whether an object is never evicted: a protected one, until it expires or its owner is gone."""
        return bool(entry.flags & p.PROTECTED) and not self._is_over(entry)

    # --- collecting ---

    def _reclaim(self) -> int:
        """Free removed objects that nobody has attached any more, and drafts whose writers ended; how many drafts."""
        catalog = self._catalog
        catalog.swept = 0
        done = not catalog.state()[p.REMOVED]
        while not done:
            with catalog.locked():
                transaction = Transaction(catalog)
                before = transaction.state.copy()
                done = transaction.sweep(_SWEPT)
                if transaction.state != before:  # who waits for a change waits for one
                    transaction.commit()
        state, memory = catalog.state(), catalog.memory
        if not state[p.DRAFT_BYTES]:
            return 0
        slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, min(state[p.BUCKETS], memory.slots), p.SLOTS)
        return sum(map(self.drop_dead, np.flatnonzero(slots["state"] == p.DRAFT).tolist()))

    def drop_dead(self, slot: int) -> bool:
        """Free a draft whose writer has ended."""
        catalog = self._catalog
        with catalog.locked():
            if (p.DRAFT_LOCKS + slot) in catalog.exclusive or holder(catalog.commit_fd, p.DRAFT_LOCKS + slot):
                return False
            row = np.frombuffer(catalog.memory.bytes, p.SLOT_DTYPE, 1, p.SLOTS + slot * p.SLOT_SIZE)[0]
            if row["state"] != p.DRAFT:
                return False
            transaction = Transaction(catalog)
            transaction.drop_draft(slot, int(row["file"]), int(row["allocated"]))
            transaction.commit()
        return True

    def collect(self) -> Collected:
        """Remove what has expired, whose owner is gone, and what killed processes left."""
        self._catalog.check_writable()
        drafts = self._reclaim()
        gone: list[str] = []
        for part in self._catalog.snapshot("expires", "owner"):
            over = self._over(part)
            gone += self.remove_all(part["slot"][over].tolist(), part["generation"][over].tolist(), collected=True)
        return Collected(sorted(gone), drafts)
