"""Transactions: atomic changes to the catalog, collected, journaled and applied.

Invariants:

* a transaction removes at most one file, and its commit fits a journal;
* the order in which a commit is applied keeps readers from mixing two objects of a slot: the name before the fields,
  the fields before the chains, the counts last.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from shmarrow.errors import InvalidData, storage_error
from shmarrow.store import protocol as p
from shmarrow.store.protocol import file_name
from shmarrow.store.slots import (
    FIRST_SLOT,
    JOURNAL,
    SEQUENCE,
    SLOT_WORDS,
    Entry,
    bucket_of,
    next_of,
    parts_of,
    read_inline,
    slot_at,
    slots_for,
    start_of,
)

if TYPE_CHECKING:
    from shmarrow.store.catalog import Catalog

_SWEPT = 2
_LARGE = 1 << 20
_LINK = struct.Struct("<I")
_PADDING = [bytes(-size % 8) for size in range(8)]


class Transaction:
    """An atomic change to the catalog; used under the lock.

    Methods collect changes; :meth:`commit` applies them.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.memory = catalog.memory
        self.state = catalog.state()
        self.state[p.REMOVING] = 0
        self.owner = 0
        self._parts = 0
        self._links: dict[int, int] = {}
        self._freed: set[int] = set()
        self._swept = False
        self._pieces: list[tuple[int, bytes]] = []
        self._told: list[bytes] = []

    def put(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset of the header."""
        self._pieces.append((offset, data))

    # Chains and lists: ``at`` is the offset of a 32-bit link in the file.

    def _link(self, at: int) -> int:
        found = self._links.get(at)
        if found is None:
            found = self.memory.ints[at >> 2] if at >> 2 < len(self.memory.ints) else self.memory.slots + 1
        if found > self.memory.slots:
            raise self._damaged(f"a list contains slot {found - 1}, which does not exist")
        return found

    def _damaged(self, reason: str) -> InvalidData:
        return InvalidData(f"the catalog of {self.catalog.directory.name!r} is damaged: {reason}")

    def _less(self, field: int, nbytes: int) -> None:
        """Subtract bytes from a counter, which never becomes negative."""
        self.state[field] -= min(nbytes, self.state[field])

    def _head(self, name_hash: int) -> int:
        return p.SLOTS + bucket_of(name_hash, self.state[p.BUCKETS]) * p.SLOT_SIZE + p.HEAD

    def _chain(self, entry_slot: int, name_hash: int) -> None:
        head = self._head(name_hash)
        self._links[next_of(entry_slot)] = self._link(head)
        self._links[head] = entry_slot + 1

    def _unchain(self, slot: int, name_hash: int) -> None:
        at = self._head(name_hash)
        for _ in range(self.memory.slots + 1):
            found = self._link(at)
            if found == slot + 1:
                self._links[at] = self._link(next_of(slot))
                return
            if not found:
                break
            at = next_of(found - 1)
        raise self._damaged(f"slot {slot} is not in its chain")

    def take_slot(self) -> int:
        """Return a free slot; extend the file if there is none."""
        if not self._swept:
            self._swept = True
            self.sweep(_SWEPT)
        state = self.state
        if free := state[p.FREE]:
            state[p.FREE] = self._link(next_of(free - 1))  # checks that the slot exists
            return self._unused(free - 1)
        slot = state[p.BUCKETS]
        if slot == self.memory.slots:
            self.catalog.grow()
            self.memory = self.catalog.memory
        self._unused(slot)
        state[p.BUCKETS] = slot + 1
        if slot:
            self._split(slot)
        return slot

    def _unused(self, slot: int) -> int:
        """Return a slot; InvalidData if it is in use, as a damaged header says that it is free."""
        if self.memory.ints[slot_at(slot, "state") >> 2] != p.UNUSED and slot not in self._freed:
            raise self._damaged(f"slot {slot} is in use, and listed as free")
        return slot

    def _split(self, bucket: int) -> None:
        """Move the slots of a new bucket out of the chain of its parent."""
        bits = bucket.bit_length()
        mask = (1 << bits) - 1
        at = p.SLOTS + (bucket ^ (1 << (bits - 1))) * p.SLOT_SIZE + p.HEAD
        moved = p.SLOTS + bucket * p.SLOT_SIZE + p.HEAD
        words = self.memory.words
        steps = 0
        while found := self._link(at):
            steps += 1
            if steps > self.memory.slots:
                raise self._damaged("a chain is circular")
            following = next_of(found - 1)
            if words[FIRST_SLOT + (found - 1) * SLOT_WORDS + 1] & mask == bucket:
                self._links[at] = self._link(following)
                self._links[following] = self._link(moved)
                self._links[moved] = found
            else:
                at = following

    def sweep(self, limit: int) -> bool:
        """Free removed slots that are no longer attached, examining up to ``limit``; True if the last was reached.

        The next call continues after them. A freed slot needs about 140 bytes of the journal.
        """
        if not self.state[p.REMOVED]:
            self.catalog.swept = 0
            return True
        memory, catalog = self.memory, self.catalog
        previous = catalog.swept
        if not 0 < previous <= memory.slots or memory.ints[slot_at(previous - 1, "state") >> 2] != p.GONE:
            previous = 0
        for _ in range(limit):
            here = self._link(next_of(previous - 1)) if previous else self.state[p.REMOVED]
            if not here:
                catalog.swept = 0
                return True
            if catalog.pins.pinned(here - 1):
                previous = here
                continue
            following = self._link(next_of(here - 1))
            if previous:
                self._links[next_of(previous - 1)] = following
            else:
                self.state[p.REMOVED] = following
            self._less(p.REMOVED_BYTES, memory.words[slot_at(here - 1, "allocated") >> 3])
            self._free(here - 1)
        catalog.swept = previous
        return False

    def _free(self, slot: int) -> None:
        self._pieces.append((p.SLOTS + slot * p.SLOT_SIZE, bytes(p.USED)))
        self._links[next_of(slot)] = self.state[p.FREE]
        self.state[p.FREE] = slot + 1
        self._freed.add(slot)

    # Changes to objects.

    def reserve(self, name: bytes, nbytes: int) -> int:
        """Add a draft, whose bytes are reserved while its object is written, and return its slot."""
        slot = self.take_slot()
        self.state[p.FILE] += 1
        self.enlarge_draft(slot, name, self.state[p.FILE], 0, nbytes)
        return slot

    def enlarge_draft(self, slot: int, name: bytes, file: int, before: int, nbytes: int) -> None:
        """Change the reserved bytes of a draft from ``before`` to ``nbytes``."""
        self._write(Entry(slot, 0, 0, file, 0, nbytes, time.time_ns(), 0, 0, p.DRAFT, 0, 0, 0, name))
        self.state[p.DRAFT_BYTES] += nbytes - before

    def publish_draft(self, nbytes: int) -> None:
        """Release the reserved bytes of a draft before its object is added by :meth:`insert`."""
        self._less(p.DRAFT_BYTES, nbytes)

    def drop_draft(self, slot: int, file: int, nbytes: int) -> None:
        """Free the slot of a draft, and remove its file, if any."""
        self.state[p.REMOVING], self._parts = file, self.catalog.parts_linked(file)
        self._less(p.DRAFT_BYTES, nbytes)
        self._free(slot)

    def new_generation(self) -> int:
        """Return the generation of the next object."""
        self.state[p.GENERATION] += 1
        return self.state[p.GENERATION]

    def insert(self, entry: Entry, replaced: Entry | None, used: int) -> None:
        """Insert an object, replacing one of the same name if given."""
        state = self.state
        if replaced is not None:
            self.remove(replaced, told=False)
        self._write(entry, used)
        self._chain(entry.slot, entry.hash)
        state[p.OBJECTS] += 1
        state[p.BYTES] += entry.allocated
        state[p.PUTS] += 1
        self._tell(p.PUBLISHED, entry)

    def remove(self, entry: Entry, told: bool = True, evicted: bool = False) -> None:
        """Remove an object, at most one per transaction; :meth:`commit` unlinks its file."""
        state = self.state
        self._unchain(entry.slot, entry.hash)
        freed = self.catalog.freed_by(entry)
        state[p.OBJECTS] -= 1
        self._less(p.BYTES, freed)
        if entry.file:
            state[p.REMOVING], self._parts = entry.file, entry.parts
        if entry.expired:
            state[p.EXPIRED] += 1
        elif evicted:
            state[p.EVICTIONS] += 1
        if not entry.file:
            self._free_parts(entry)
        if entry.file and entry.allocated > _LARGE:
            with suppress(OSError):
                self.catalog.closing.append(self.catalog.directory.open(file_name(entry.file), os.O_RDONLY))
        # Excluded until the commit is done, as a reader that pins the slot now would pin the next object there.
        if not self.catalog.pins.exclude(entry.slot):
            held = freed if entry.file else p.SLOT_SIZE
            gone = Entry(entry.slot, 0, 0, entry.file, entry.size, held, 0, 0, 0, p.GONE, 0, 0, 0, b"")
            self._pieces.append((p.SLOTS + entry.slot * p.SLOT_SIZE, gone.pack()))
            self._links[next_of(entry.slot)] = state[p.REMOVED]
            state[p.REMOVED] = entry.slot + 1
            state[p.REMOVED_BYTES] += held
        else:
            self._free(entry.slot)
        if told:
            self._tell(p.DELETED, entry)

    def insert_inline(self, entry: Entry, data: bytes, replaced: Entry | None, used: int) -> None:
        """Insert an inline object; ``entry`` lacks its slots, its size and its checksum.

        Its bytes are written into free slots, which nobody reads before the commit.
        """
        slots = [self.take_slot() for _ in range(slots_for(entry.name, len(data)))]
        payload = entry.name.ljust(start_of(entry.name), b"\0") + data
        memory, step = self.memory.bytes, p.PAYLOAD_SIZE
        for number, slot in enumerate(slots):
            piece = payload[number * step : (number + 1) * step]
            at = p.SLOTS + slot * p.SLOT_SIZE + p.PAYLOAD
            memory[at : at + len(piece)] = piece
        for slot, following in zip(slots[1:], [*slots[2:], -1], strict=False):
            if self._link(at := next_of(slot)) != following + 1:  # those of the free list are linked already
                self._links[at] = following + 1
        if self.catalog.settings.durable:
            os.fdatasync(self.catalog.control_fd)
        made = entry._replace(
            slot=slots[0],
            size=len(data),
            allocated=len(slots) * p.SLOT_SIZE,
            parts=slots[1] + 1 if len(slots) > 1 else 0,
            data_crc=zlib.crc32(data),
        )
        self.insert(made, replaced, used)

    def _free_parts(self, entry: Entry) -> None:
        """Free the slots of an inline object but the first one: their chain goes before the list of free slots."""
        if parts := parts_of(self.memory, entry):
            self._links[next_of(parts[-1])] = self.state[p.FREE]
            self.state[p.FREE] = entry.parts

    def rename(self, entry: Entry, name: bytes, replaced: Entry | None) -> None:
        """Rename an object; it gets a new generation. One that is inline moves to other slots."""
        if not entry.file:
            data = read_inline(self.memory, entry)
            if data is None:
                raise self._damaged(f"the checksum of {entry.name!r} is wrong")
            made = entry._replace(generation=self.new_generation(), hash=self.catalog.hash(name), name=name)
            self._tell(p.DELETED, entry)
            self.insert_inline(made, data, replaced, self.catalog.used(entry.slot))
            self.state[p.PUTS] -= 1
            self.remove(entry, told=False)
            return
        if replaced is not None:
            self.remove(replaced, told=False)
        self._unchain(entry.slot, entry.hash)
        self._tell(p.DELETED, entry)
        made = entry._replace(generation=self.new_generation(), hash=self.catalog.hash(name), name=name)
        self._pieces.append((p.SLOTS + entry.slot * p.SLOT_SIZE, bytes(8)))  # no reader finds it under both names
        self._write(made)
        self._chain(made.slot, made.hash)
        self._tell(p.PUBLISHED, made)

    def update(self, entry: Entry) -> None:
        """Update the fields of a live object, such as flags and expiry."""
        self._pieces.append((p.SLOTS + entry.slot * p.SLOT_SIZE, entry.pack()))

    def _write(self, entry: Entry, used: int | None = None) -> None:
        at = p.SLOTS + entry.slot * p.SLOT_SIZE
        self._pieces.append((at + p.PAYLOAD, entry.name))
        fields = entry.pack()
        self._pieces.append((at, fields if used is None else fields + used.to_bytes(8, "little")))

    def _tell(self, kind: int, entry: Entry) -> None:
        self.state[p.EVENTS] += 1
        number = self.state[p.EVENTS]
        self._told.append(entry.name)
        record = p.EVENT_STRUCT.pack(number, entry.generation, kind, len(entry.name)) + entry.name.ljust(264, b"\0")
        self._pieces.append((p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE, record))

    def commit(self) -> None:
        """Write the journal, apply the changes, wake waiting processes, and unlink the removed file."""
        catalog, memory, state = self.catalog, self.memory, self.state
        number = memory.words[JOURNAL] + 1
        pieces = self._pieces
        for at, link in self._links.items():
            pieces.append((at, _LINK.pack(link)))
        pieces.append((p.STATE_OFFSET, p.STATE_STRUCT.pack(*state)))
        parts: list[bytes] = []
        pack = p.PIECE.pack
        for offset, piece in pieces:
            size = len(piece)
            parts += pack(offset, size, 0), piece
            if size & 7:
                parts.append(_PADDING[size & 7])
        payload = b"".join(parts)
        if len(payload) > p.JOURNAL_SIZE - p.JOURNAL_HEAD.size:
            raise self._damaged(f"a commit of {len(payload)} bytes exceeds the journal")
        data, words = memory.bytes, memory.words
        if state[p.REMOVING]:
            catalog.begin_changing()
        area = p.JOURNALS[number & 1]
        start = area + p.JOURNAL_HEAD.size
        data[start : start + len(payload)] = payload
        checksum = zlib.crc32(payload, zlib.crc32(number.to_bytes(8, "little")))
        p.JOURNAL_HEAD.pack_into(data, area, number, len(payload), checksum)
        if catalog.settings.durable:
            try:
                os.fdatasync(catalog.control_fd)
            except OSError as error:
                data[area : area + 16] = bytes(16)  # or the next holder of the lock would apply a failed commit
                raise storage_error(error, "write the journal of", catalog.directory.name) from None
        catalog.owner = catalog.owner or self.owner
        words[SEQUENCE] += 1
        for offset, piece in pieces:
            data[offset : offset + len(piece)] = piece
        words[JOURNAL] = number  # one store: a process that is killed before has applied nothing, or its successor has
        words[SEQUENCE] += 1
        if self._told:
            catalog.waiters.wake(self._told)
        catalog.end_changing(state[p.REMOVING], self._parts)
