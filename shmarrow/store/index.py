"""The index of a control file: names to slots by hash, the lists of slots, and the contents of slots.

The functions and :class:`Index` work on mapped bytes, without files or locks. Names are in a chained hash table (linear
hashing: the head of bucket ``i`` is in slot ``i``, and each slot used for the first time splits one bucket, so the
table grows with the file and is never rebuilt). Nothing in the file is trusted: bounds, lengths of chains and checksums
are checked before use.
"""

from __future__ import annotations

import zlib

from shmarrow.errors import InvalidData
from shmarrow.store import protocol as p
from shmarrow.store.control import BUCKETS, Memory
from shmarrow.store.protocol import SLOT_WORDS, Entry

FIRST_SLOT = p.SLOTS >> 3
_SLOT_INTS = p.SLOT_SIZE >> 2
_FIRST_HEAD, _FIRST_NEXT, _FIRST_STATE = [(p.SLOTS + p.SLOT[field][0]) >> 2 for field in ("head", "next", "state")]
_FIRST_HASH = (p.SLOTS + p.SLOT["hash"][0]) >> 3
_FIRST_ALLOCATED = (p.SLOTS + p.SLOT["allocated"][0]) >> 3
_FIRST_USED = (p.SLOTS + p.USED) >> 3
_COVERED = p.CRC_OFFSET + 4
_MOST_KNOWN = 4096
Known = dict[int, tuple[bytes, Entry]]
"""Entries that were read before, by slot, and the bytes that they were read from."""


def bucket_of(name_hash: int, buckets: int) -> int:
    """Return the bucket of a hash, given the number of buckets."""
    size = 1 << (buckets - 1).bit_length()
    bucket = name_hash & (size - 1)
    return bucket if bucket < buckets else bucket - (size >> 1)


def find(memory: Memory, name: bytes, name_hash: int, known: Known) -> Entry | None:
    """Return the entry of a name; None if it is not in its chain, which may be changing."""
    data, words, ints, slots = memory
    buckets = words[BUCKETS]
    if buckets > slots:
        buckets = slots
    if not buckets:
        return None
    link = ints[bucket_of(name_hash, buckets) * _SLOT_INTS + _FIRST_HEAD]
    left = slots
    while 0 < link <= slots and left:
        slot = link - 1
        if words[slot * SLOT_WORDS + _FIRST_HASH] == name_hash:
            start = slot * p.SLOT_SIZE + p.SLOTS
            head = bytes(data[start : start + _COVERED])
            before = known.get(slot)
            if before is not None and before[0] == head and before[1].name == name:
                return before[1]
            found = read_slot(memory, slot, name)
            if found is not None:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                known[slot] = head, found
                return found
        link = ints[slot * _SLOT_INTS + _FIRST_NEXT]
        left -= 1
    return None


def read_slot(memory: Memory, slot: int, name: bytes | None = None, state: int = p.LIVE) -> Entry | None:
    """Return the entry of a slot; None unless it has that state, is complete and, if a name is given, of that name."""
    raw = bytes(memory.slot(slot))
    fields = p.ENTRY.struct.unpack_from(raw)
    length = fields[10]
    if fields[8] != state or not (0 < length <= p.NAME_MAX or (length == 0 and state == p.GONE)):
        return None
    if fields[2] and fields[11] > p.PARTS_MAX:
        return None
    found = raw[p.PAYLOAD : p.PAYLOAD + length]
    if name is not None and found != name:
        return None
    if zlib.crc32(found, zlib.crc32(raw[: p.CRC_OFFSET])) != int.from_bytes(raw[p.CRC_OFFSET : _COVERED], "little"):
        return None
    if name is None:
        try:
            found.decode()
        except UnicodeDecodeError:
            return None
    return Entry._make((*fields, found, slot))


def start_of(name: bytes) -> int:
    """Return the offset in the payloads of an inline object's slots at which its bytes begin, after its name."""
    return len(name) + 7 & -8


def slots_for(name: bytes, size: int) -> int:
    """Return the number of slots that an inline object takes."""
    return -(-(start_of(name) + size) // p.PAYLOAD_SIZE)


def read_inline(memory: Memory, entry: Entry) -> bytes | None:
    """Copy the bytes of an inline object; None if their checksum is wrong, as they are being replaced or damaged."""
    data, _, ints, slots = memory
    skip, left = start_of(entry.name), entry.size
    if left > p.INLINE_MAX:
        return None
    at = p.SLOTS + entry.slot * p.SLOT_SIZE + p.PAYLOAD
    here = min(p.PAYLOAD_SIZE - skip, left)
    found = bytes(data[at + skip : at + skip + here])
    if left > here:
        pieces, link = [found], entry.parts
        while left := left - here:
            if not 0 < link <= slots:
                return None
            at = p.SLOTS + (link - 1) * p.SLOT_SIZE + p.PAYLOAD
            here = min(p.PAYLOAD_SIZE, left)
            pieces.append(bytes(data[at : at + here]))
            link = ints[(link - 1) * _SLOT_INTS + _FIRST_NEXT]
        found = b"".join(pieces)
    return found if zlib.crc32(found) == entry.data_crc else None


def parts_of(memory: Memory, entry: Entry) -> list[int] | None:
    """Return the slots with more bytes of an inline object; None if their links are damaged."""
    found: list[int] = []
    link = entry.parts
    for _ in range(slots_for(entry.name, min(entry.size, p.INLINE_MAX)) - 1 if not entry.file else 0):
        if not 0 < link <= memory.slots or state_of(memory, link - 1) != p.UNUSED:
            return None
        found.append(link - 1)
        link = memory.ints[(link - 1) * _SLOT_INTS + _FIRST_NEXT]
    return found


def state_of(memory: Memory, slot: int) -> int:
    """Return the state of a slot."""
    return int(memory.ints[slot * _SLOT_INTS + _FIRST_STATE])


def used_at(slot: int) -> int:
    """Return the index of the time of a slot's last use in the 64-bit words."""
    return slot * SLOT_WORDS + _FIRST_USED


class Index:
    """The chains, lists and slots of a control file as they will be after a change.

    Methods collect what changes; :meth:`pieces` returns it. The file stays as it is.

    Attributes
    ----------
    memory : Memory
        The control file.
    state : dict of str to int
        The fields of :class:`~shmarrow.store.protocol.State`.
    """

    def __init__(self, memory: Memory, where: str) -> None:
        self.memory = memory
        self.state: dict[str, int] = memory.state()._asdict()
        self._where = where
        self._links: dict[int, int] = {}  # by the index of the link in the 32-bit words
        self._slots: dict[int, tuple[bytes, bytes]] = {}
        """Future contents of slots: the fields up to ``used``, and the name."""

    def damaged(self, reason: str) -> InvalidData:
        """Return the error for a damaged catalog."""
        return InvalidData(
            f"the catalog of {self._where!r} is damaged: {reason}", hint=f"`shmarrow rebuild {self._where}` repairs it"
        )

    def less(self, field: str, nbytes: int) -> None:
        """Subtract bytes from a counter, which never becomes negative."""
        self.state[field] -= min(nbytes, self.state[field])

    def _link(self, at: int) -> int:
        found = self._links.get(at)
        if found is None:
            found = self.memory.ints[at] if at < len(self.memory.ints) else self.memory.slots + 1
        if found > self.memory.slots:
            raise self.damaged(f"a list contains slot {found - 1}, which does not exist")
        return found

    def _head(self, name_hash: int) -> int:
        return bucket_of(name_hash, self.state["buckets"]) * _SLOT_INTS + _FIRST_HEAD

    def following(self, slot: int) -> int:
        """Return the link from a slot to the next one."""
        return self._link(slot * _SLOT_INTS + _FIRST_NEXT)

    def follow(self, slot: int, link: int) -> None:
        """Link a slot to the next one."""
        self._links[slot * _SLOT_INTS + _FIRST_NEXT] = link

    def chain(self, slot: int, name_hash: int) -> None:
        """Put a slot into the chain of a hash."""
        head = self._head(name_hash)
        self.follow(slot, self._link(head))
        self._links[head] = slot + 1

    def unchain(self, slot: int, name_hash: int) -> None:
        """Take a slot out of its chain."""
        at = self._head(name_hash)
        for _ in range(self.memory.slots + 1):
            found = self._link(at)
            if found == slot + 1:
                self._links[at] = self.following(slot)
                return
            if not found:
                break
            at = (found - 1) * _SLOT_INTS + _FIRST_NEXT
        raise self.damaged(f"slot {slot} is not in its chain")

    def split(self, bucket: int) -> None:
        """Move the slots of a new bucket out of the chain of its parent."""
        bits = bucket.bit_length()
        mask = (1 << bits) - 1
        at = (bucket ^ (1 << (bits - 1))) * _SLOT_INTS + _FIRST_HEAD
        moved = bucket * _SLOT_INTS + _FIRST_HEAD
        for _ in range(self.memory.slots + 1):
            found = self._link(at)
            if not found:
                return
            if self.memory.words[(found - 1) * SLOT_WORDS + _FIRST_HASH] & mask == bucket:
                self._links[at] = self.following(found - 1)
                self.follow(found - 1, self._link(moved))
                self._links[moved] = found
            else:
                at = (found - 1) * _SLOT_INTS + _FIRST_NEXT
        raise self.damaged("a chain is circular")

    def take(self, count: int) -> list[int]:
        """Return free slots: fewer than ``count`` if the file has no more."""
        state, ints, taken = self.state, self.memory.ints, list[int]()
        while len(taken) < count:
            if free := state["free"]:
                slot = free - 1
                state["free"] = self._link(slot * _SLOT_INTS + _FIRST_NEXT)  # checks that the slot exists
            else:
                slot = state["buckets"]
                if slot >= self.memory.slots:
                    break
            if ints[slot * _SLOT_INTS + _FIRST_STATE] != p.UNUSED and slot not in self._slots:
                raise self.damaged(f"slot {slot} is in use, and listed as free")
            if not free:
                state["buckets"] = slot + 1
                if slot:
                    self.split(slot)
            taken.append(slot)
        return taken

    def free(self, slot: int) -> None:
        """Put a slot into the list of free slots."""
        self._slots[slot] = bytes(p.HEAD), b""
        self.follow(slot, self.state["free"])
        self.state["free"] = slot + 1

    def free_parts(self, entry: Entry) -> None:
        """Free the slots of an inline object but the first one: their chain goes before the list of free slots."""
        if parts := parts_of(self.memory, entry):
            self.follow(parts[-1], self.state["free"])
            self.state["free"] = entry.parts

    def gone(self, entry: Entry, allocated: int) -> None:
        """Put the slot of a removed object that is still attached into the list of these."""
        slot, parts = entry.slot, entry.parts if entry.file else 0
        self.write(Entry(0, 0, entry.file, entry.size, allocated, 0, 0, 0, p.GONE, 0, 0, parts, 0, b"", slot), 0)
        self.follow(slot, self.state["removed"])
        self.state["removed"] = slot + 1
        self.state["removed_bytes"] += allocated

    def gone_at(self, slot: int) -> Entry:
        """Return the contents of the slot of a removed object."""
        found = Entry._make((*p.ENTRY.struct.unpack_from(self.memory.slot(slot)), b"", slot))
        return found._replace(parts=min(found.parts, p.PARTS_MAX))

    def _state(self, slot: int) -> int:
        """Return the state of a slot after the change."""
        changed = self._slots.get(slot)
        at = p.SLOT["state"][0]
        return int.from_bytes(changed[0][at : at + 4], "little") if changed else state_of(self.memory, slot)

    def free_gone(self, previous: int) -> None:
        """Free the removed slot after that of a link, or the first one if it is 0."""
        here = self.following(previous - 1) if previous else self.state["removed"]
        following = self.following(here - 1)
        if self._state(here - 1) != p.GONE:
            raise self.damaged(f"slot {here - 1} is in the list of removed slots, and is not removed")
        if previous:
            self.follow(previous - 1, following)
        else:
            self.state["removed"] = following
        self.less("removed_bytes", self.memory.words[(here - 1) * SLOT_WORDS + _FIRST_ALLOCATED])
        self.free(here - 1)

    def write(self, entry: Entry, used: int | None = None) -> None:
        """Set the contents of a slot; ``used`` stays as it is if it is None."""
        if used is None:
            used = self.memory.words[used_at(entry.slot)]
        self._slots[entry.slot] = entry.pack() + used.to_bytes(8, "little"), entry.name

    def pieces(self) -> list[tuple[int, bytes]]:
        """Return the changes as offsets and bytes in the order to apply: slots, then links, then the state."""
        links, ints, pieces = self._links, self.memory.ints, []
        for slot, (fields, name) in self._slots.items():
            at = slot * _SLOT_INTS
            head, following = links.pop(at + _FIRST_HEAD, None), links.pop(at + _FIRST_NEXT, None)
            head = ints[at + _FIRST_HEAD] if head is None else head
            following = ints[at + _FIRST_NEXT] if following is None else following
            pieces.append(
                (p.SLOTS + slot * p.SLOT_SIZE, fields + (following << 32 | head).to_bytes(8, "little") + name)
            )
        pieces += [(at << 2, link.to_bytes(4, "little")) for at, link in links.items()]
        pieces.append((p.STATE.start, p.STATE.struct.pack(*self.state.values())))
        return pieces
