"""Changes to the objects of a store, collected in a transaction, which the catalog commits.

A transaction removes at most one file, and fits a journal. Slots are written before the chains that lead to them, and
the counts last, so that a reader finds an old object or a new one.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter

from shmarrow.store import protocol as p
from shmarrow.store.control import ControlFile
from shmarrow.store.files import Files
from shmarrow.store.index import Index, read_inline, slots_for, start_of, state_of, used_at
from shmarrow.store.locks import Pins
from shmarrow.store.protocol import Entry

_SWEPT = 2


class Transaction:
    """A change to the catalog; made under the commit lock.

    Attributes
    ----------
    index : Index
        The slots and the state after the change.
    owner : int
        The number of a new owner; 0 for none.
    parts : int
        The number of parts that are removed with the file of an object.
    told : list of bytes
        The names in its events.
    """

    def __init__(self, control: ControlFile, files: Files, pins: Pins, durable: bool, where: str) -> None:
        self.index = Index(control.whole(), where)
        self.state = self.index.state
        self.state["removing"] = 0
        self.owner = self.parts = 0
        self._control = control
        self._files = files
        self._pins = pins
        self._durable = durable
        self._swept = False
        self.told: list[bytes] = []
        self._others: list[tuple[int, bytes]] = []

    def put(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset of the header."""
        self._others.append((offset, data))

    def pieces(self) -> list[tuple[int, bytes]]:
        """Return the changes as offsets and bytes, in the order to apply."""
        return self._others + self.index.pieces()

    def take(self, count: int = 1) -> list[int]:
        """Return free slots; extend the file if there are too few."""
        slots = self.index.take(count)
        while len(slots) < count:
            self.index.memory = self._control.grow()
            slots += self.index.take(count - len(slots))
        return slots

    def sweep_some(self) -> None:
        """Free a few removed slots, unless this was done already."""
        if self.state["removed"] and not self._swept:
            self.sweep(_SWEPT)

    def sweep(self, limit: int) -> bool:
        """Free removed slots that are no longer attached, examining up to ``limit``; True if the last was reached.

        The next call continues after them. A freed slot needs about 140 bytes of the journal. As a transaction removes
        the files of one object, it frees at most one slot with parts, and none if it removes an object.
        """
        index, pins, removes = self.index, self._pins, self.state["removing"]
        self._swept = True
        previous = pins.swept
        if not 0 < previous <= index.memory.slots or state_of(index.memory, previous - 1) != p.GONE:
            previous = 0
        for _ in range(limit):
            here = index.following(previous - 1) if previous else index.state["removed"]
            if not here:
                pins.swept = 0
                return True
            gone = index.gone_at(here - 1)
            if pins.pinned(here - 1) or (gone.parts and removes):
                previous = here
                continue
            if gone.parts and self.state["removing"]:
                break
            if gone.parts:
                index.less("bytes", self._unlink_later(gone, range(1, gone.parts + 1)))
            index.free_gone(previous)
        pins.swept = previous
        return False

    # --- drafts ---

    def reserve(self, name: bytes, nbytes: int) -> Entry:
        """Add a draft, whose bytes are reserved while its object is written."""
        [slot] = self.take()
        self.state["file"] += 1
        draft = Entry(0, 0, self.state["file"], 0, 0, time.time_ns(), 0, 0, p.DRAFT, 0, len(name), 0, 0, name, slot)
        return self.enlarge(draft, nbytes)

    def enlarge(self, draft: Entry, nbytes: int) -> Entry:
        """Reserve ``nbytes`` for a draft in all."""
        made = draft._replace(allocated=nbytes)
        self.index.write(made)
        self.state["draft_bytes"] += nbytes - draft.allocated
        return made

    def publish_draft(self, draft: Entry) -> None:
        """Release the reserved bytes of a draft before its object is added by :meth:`insert`."""
        self.index.less("draft_bytes", draft.allocated)

    def drop_draft(self, slot: int, file: int, nbytes: int) -> None:
        """Free the slot of a draft, and remove its file, if any."""
        self.state["removing"], self.parts = file, self._files.parts_linked(file)
        self.index.less("draft_bytes", nbytes)
        self.index.free(slot)

    # --- objects ---

    def new_generation(self) -> int:
        """Return the generation of the next object."""
        self.state["generation"] += 1
        return self.state["generation"]

    def insert(self, entry: Entry, replaced: Entry | None, used: int) -> None:
        """Insert an object, replacing one of the same name if given."""
        state = self.state
        if replaced is not None:
            self.remove(replaced, told=False)
        self.index.write(entry, used)
        self.index.chain(entry.slot, entry.hash)
        state["objects"] += 1
        state["bytes"] += entry.allocated
        state["puts"] += 1
        self._tell(p.PUBLISHED, entry)

    def insert_inline(self, entry: Entry, data: bytes, replaced: Entry | None, used: int) -> None:
        """Insert an inline object; ``entry`` lacks its slots, its size and its checksum.

        Its bytes are written into free slots, which nobody reads before the commit.
        """
        name, index = entry.name, self.index
        slots = self.take(slots_for(name, len(data)))
        memory, step, payload = index.memory.bytes, p.PAYLOAD_SIZE, name.ljust(start_of(name), b"\0") + data
        start = 0
        for slot in slots:
            at = p.SLOTS + slot * p.SLOT_SIZE + p.PAYLOAD
            piece = payload[start : start + step]
            memory[at : at + len(piece)] = piece
            start += step
        link = 0
        for slot in reversed(slots[1:]):
            if index.following(slot) != link:  # those of the free list are linked already
                index.follow(slot, link)
            link = slot + 1
        if self._durable:
            self._control.sync()
        generation, name_hash, *_ = entry
        place = generation, name_hash, 0, len(data), len(slots) * p.SLOT_SIZE
        made = Entry._make((*place, *entry[5:11], link, zlib.crc32(data), name, slots[0]))
        self.insert(made, replaced, used)

    def remove(self, entry: Entry, told: bool = True, evicted: bool = False) -> None:
        """Remove an object, at most one per transaction; the commit unlinks its files."""
        state, index, freed = self.state, self.index, entry.allocated
        index.unchain(entry.slot, entry.hash)
        # Excluded until the commit is done, as a reader that pins the slot now would pin the next object there.
        attached = not self._pins.exclude(entry.slot)
        if entry.file:  # whoever has it attached may map its parts later
            freed = self._unlink_later(entry, range(1 if attached else entry.parts + 1))
        else:
            index.free_parts(entry)
        state["objects"] -= 1
        index.less("bytes", freed)
        if entry.expired:
            state["expired"] += 1
        elif evicted:
            state["evictions"] += 1
        if attached:
            index.gone(entry, freed if entry.file else p.SLOT_SIZE)
        else:
            index.free(entry.slot)
        if told:
            self._tell(p.DELETED, entry)

    def _unlink_later(self, entry: Entry, parts: range) -> int:
        """Let the commit unlink files of an object, of which number 0 is its own; return the bytes that this frees."""
        self.state["removing"], self.parts = entry.file, parts[-1]
        freed = self._files.freed(entry, parts, Counter())
        self._files.keep(freed)
        return sum(freed.values())

    def rename(self, entry: Entry, name: bytes, name_hash: int, replaced: Entry | None) -> None:
        """Rename an object; it gets a new generation. One that is inline moves to other slots."""
        index = self.index
        made = entry._replace(generation=self.new_generation(), hash=name_hash, name=name, name_length=len(name))
        self._tell(p.DELETED, entry)
        if not entry.file:
            data = read_inline(index.memory, entry)
            if data is None:
                raise index.damaged(f"the checksum of {entry.name!r} is wrong")
            self.insert_inline(made, data, replaced, index.memory.words[used_at(entry.slot)])
            self.state["puts"] -= 1
            self.remove(entry, told=False)
            return
        if replaced is not None:
            self.remove(replaced, told=False)
        index.unchain(entry.slot, entry.hash)
        index.write(made)
        index.chain(made.slot, made.hash)
        self._tell(p.PUBLISHED, made)

    def update(self, entry: Entry) -> None:
        """Update the fields of a live object, such as flags and expiry."""
        self.index.write(entry)

    def _tell(self, kind: int, entry: Entry) -> None:
        self.state["events"] += 1
        number = self.state["events"]
        self.told.append(entry.name)
        record = p.EVENT_STRUCT.pack(number, entry.generation, kind, len(entry.name)) + entry.name.ljust(264, b"\0")
        self._others.append((p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE, record))
