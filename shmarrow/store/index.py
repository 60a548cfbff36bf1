# SPDX-License-Identifier: Apache-2.0
"""Reading a control file: names to slots by hash, the contents of slots, and the last events.

The functions work on mapped bytes, without files or locks. Names are in a chained hash table (linear hashing: the head
of bucket ``i`` is in slot ``i``, and each slot used for the first time splits one bucket, so the table grows with the
file and is never rebuilt). Nothing in the file is trusted: bounds, lengths of chains and checksums are checked before
use. An event counts if it was not overwritten meanwhile.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from shmarrow.store import protocol as p
from shmarrow.store.control import BUCKETS, EVENTS, Memory
from shmarrow.store.protocol import SLOT_WORDS, Entry

FIRST_SLOT = p.SLOTS >> 3
SLOT_INTS = p.SLOT_SIZE >> 2
FIRST_HEAD, FIRST_NEXT, FIRST_STATE = [(p.SLOTS + p.SLOT[field][0]) >> 2 for field in ("head", "next", "state")]
FIRST_HASH = (p.SLOTS + p.SLOT["hash"][0]) >> 3
FIRST_USED = (p.SLOTS + p.USED) >> 3
COVERED = p.CRC_OFFSET + 4
"""Bytes of a slot up to its checksum: two that are equal in these have the same object."""


def bucket_of(name_hash: int, buckets: int) -> int:
    """Return the bucket of a hash, given the number of buckets."""
    size = 1 << (buckets - 1).bit_length()
    bucket = name_hash & (size - 1)
    return bucket if bucket < buckets else bucket - (size >> 1)


def find(memory: Memory, name: bytes, name_hash: int) -> Entry | None:
    """Return the entry of a name; None if it is not in its chain, which may be changing."""
    _, words, ints, slots = memory
    buckets = words[BUCKETS]
    if buckets > slots:
        buckets = slots
    if not buckets:
        return None
    link = ints[bucket_of(name_hash, buckets) * SLOT_INTS + FIRST_HEAD]
    left = slots
    while 0 < link <= slots and left:
        slot = link - 1
        if words[slot * SLOT_WORDS + FIRST_HASH] == name_hash:
            entry = read_slot(memory, slot, name)
            if entry is not None:
                return entry
        link = ints[slot * SLOT_INTS + FIRST_NEXT]
        left -= 1
    return None


def read_slot(memory: Memory, slot: int, name: bytes | None = None) -> Entry | None:
    """Return the entry of a slot; None unless it is live, complete and, if a name is given, of that name."""
    raw = bytes(memory.slot(slot))
    fields = p.ENTRY.struct.unpack_from(raw)
    length = fields[10]
    if fields[8] != p.LIVE or not 0 < length <= p.NAME_MAX:
        return None
    if fields[2] and fields[11] > p.PARTS_MAX:
        return None
    coded = raw[p.PAYLOAD : p.PAYLOAD + length]
    if name is not None and coded != name:
        return None
    if zlib.crc32(coded, zlib.crc32(raw[: p.CRC_OFFSET])) != int.from_bytes(raw[p.CRC_OFFSET : COVERED], "little"):
        return None
    if name is None:
        try:
            coded.decode()
        except UnicodeDecodeError:
            return None
    return Entry._make((*fields, coded, slot))


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
    payload = bytes(data[at + skip : at + skip + here])
    if left > here:
        pieces, link = [payload], entry.parts
        while left := left - here:
            if not 0 < link <= slots:
                return None
            at = p.SLOTS + (link - 1) * p.SLOT_SIZE + p.PAYLOAD
            here = min(p.PAYLOAD_SIZE, left)
            pieces.append(bytes(data[at : at + here]))
            link = ints[(link - 1) * SLOT_INTS + FIRST_NEXT]
        payload = b"".join(pieces)
    return payload if zlib.crc32(payload) == entry.data_crc else None


def parts_of(memory: Memory, entry: Entry) -> list[int] | None:
    """Return the slots with more bytes of an inline object; None if their links are damaged."""
    parts: list[int] = []
    link = entry.parts
    for _ in range(slots_for(entry.name, min(entry.size, p.INLINE_MAX)) - 1 if not entry.file else 0):
        if not 0 < link <= memory.slots or memory.ints[(link - 1) * SLOT_INTS + FIRST_STATE] != p.UNUSED:
            return None
        parts.append(link - 1)
        link = memory.ints[(link - 1) * SLOT_INTS + FIRST_NEXT]
    return parts


def used_at(slot: int) -> int:
    """Return the index of the time of a slot's last use in the 64-bit words."""
    return slot * SLOT_WORDS + FIRST_USED


# --- events ---------------------------------------------------------------------------------------------------------


class EventEntry(NamedTuple):
    """One event: its kind, and the name and generation of its object."""

    kind: int
    name: bytes
    generation: int


def last_event(memory: Memory) -> int:
    """Return the number of the last event."""
    return int(memory.words[EVENTS])


def events_since(memory: Memory, last: int) -> tuple[int, list[EventEntry] | None]:
    """Return the number of the last event, and the events after number ``last``; None if some were overwritten."""
    latest = last_event(memory)
    if latest - last > p.EVENT_COUNT:
        return latest, None
    events = []
    for number in range(last + 1, latest + 1):
        at = p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE
        raw = bytes(memory.bytes[at : at + p.EVENT_SIZE])
        read, generation, kind, length = p.EVENT_STRUCT.unpack_from(raw)
        if not read == number == memory.words[at >> 3]:
            return latest, None
        start = p.EVENT_STRUCT.size
        events.append(EventEntry(kind, raw[start : start + min(length, p.NAME_MAX)], generation))
    return latest, events
