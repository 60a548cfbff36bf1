"""Slots and journals: reading and repairing the bytes of the control file.

Everything in the file is validated before it is used: an incomplete slot is ignored, and a journal is applied only if
its checksum is correct.
"""

import mmap
import time
import zlib
from typing import NamedTuple, Self

from shmarrow.store import protocol as p

JOURNAL = p.HEADER["journal"][0] >> 3
SEQUENCE, CHANGING = p.HEADER["sequence"][0] >> 3, p.HEADER["changing"][0] >> 3
FIRST_SLOT = p.SLOTS >> 3
SLOT_WORDS = p.SLOT_SIZE >> 3
SETTINGS = p.HEADER["capacity"][0]
_LARGEST = (1 << 64) - 1


class Entry(NamedTuple):
    """The contents of a slot; the fields are those of the format."""

    slot: int
    generation: int
    hash: int
    file: int
    size: int
    allocated: int
    published: int
    expires: int
    owner: int
    state: int
    flags: int
    parts: int
    data_crc: int
    name: bytes

    @property
    def expired(self) -> bool:
        """Whether the object has expired."""
        return self.expires != 0 and self.expires <= time.time_ns()

    def pack(self) -> bytes:
        """Return the fields covered by the checksum, followed by it."""
        fields = p.SLOT_STRUCT.pack(*self[1:11], len(self.name), self.parts, self.data_crc)
        return fields + zlib.crc32(self.name, zlib.crc32(fields)).to_bytes(4, "little")


class Memory(NamedTuple):
    """The mapped control file, viewed as bytes, as 64-bit words, and as 32-bit words."""

    bytes: memoryview
    words: memoryview
    ints: memoryview
    slots: int

    @classmethod
    def of(cls, pages: mmap.mmap, slots: int) -> Self:
        """Return the views of a mapping."""
        data = memoryview(pages)
        return cls(data, data.cast("Q"), data.cast("I"), slots)


def word_of(field: str) -> int:
    """Return the index of a header field in the 64-bit words."""
    return p.HEADER[field][0] >> 3


def bucket_of(name_hash: int, buckets: int) -> int:
    """Return the bucket of a hash, given the number of buckets."""
    size = 1 << (buckets - 1).bit_length()
    bucket = name_hash & (size - 1)
    return bucket if bucket < buckets else bucket - (size >> 1)


def slot_at(slot: int, field: str) -> int:
    """Return the offset of a field of a slot in the file."""
    return p.SLOTS + slot * p.SLOT_SIZE + p.SLOT[field][0]


def next_of(slot: int) -> int:
    """Return the offset of a slot's link to the next slot in the file."""
    return p.SLOTS + slot * p.SLOT_SIZE + p.NEXT


def read_slot(data: memoryview, slot: int, name: bytes | None = None) -> Entry | None:
    """Return the entry of a slot; None unless it is live, complete and, if a name is given, of that name."""
    at = p.SLOTS + slot * p.SLOT_SIZE
    raw = bytes(data[at : at + p.SLOT_SIZE])
    fields = p.SLOT_STRUCT.unpack_from(raw)
    length = fields[10]
    if fields[8] != p.LIVE or not 0 < length <= p.NAME_MAX:
        return None
    found = raw[p.PAYLOAD : p.PAYLOAD + length]
    if name is not None and found != name:
        return None
    if zlib.crc32(found, zlib.crc32(raw[: p.CRC_OFFSET])) != int.from_bytes(
        raw[p.CRC_OFFSET : p.CRC_OFFSET + 4], "little"
    ):
        return None
    if name is None:
        try:
            found.decode()
        except UnicodeDecodeError:
            return None
    return Entry._make((slot, *fields[:10], *fields[11:], found))


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
            link = ints[next_of(link - 1) >> 2]
        found = b"".join(pieces)
    return found if zlib.crc32(found) == entry.data_crc else None


def parts_of(memory: Memory, entry: Entry) -> list[int] | None:
    """Return the slots with more bytes of an inline object; None if their links are damaged."""
    found: list[int] = []
    link = entry.parts
    for _ in range(slots_for(entry.name, min(entry.size, p.INLINE_MAX)) - 1 if not entry.file else 0):
        if not 0 < link <= memory.slots or memory.ints[slot_at(link - 1, "state") >> 2] != p.UNUSED:
            return None
        found.append(link - 1)
        link = memory.ints[next_of(link - 1) >> 2]
    return found


def unapplied(memory: Memory) -> bool:
    """Whether a journal has the number of the next commit, whose writer was killed."""
    number = memory.words[JOURNAL] + 1
    return bool(memory.words[p.JOURNALS[number & 1] >> 3] == number)


def replay(memory: Memory) -> bool:
    """Apply the journaled but unapplied commit, if any; return whether there was one; called under the lock.

    The whole file must be mapped: the commit may be the first one after it was extended.
    """
    words = memory.words
    before = words[JOURNAL]
    if unapplied(memory):
        apply_journal(memory, p.JOURNALS[before + 1 & 1])
    if words[SEQUENCE] & 1:
        words[SEQUENCE] = words[SEQUENCE] + 1 & _LARGEST
    return bool(words[JOURNAL] != before)


def apply_journal(memory: Memory, area: int) -> None:
    """Apply the commit in a journal area if it is complete."""
    data, words = memory.bytes, memory.words
    written, length, checksum = p.JOURNAL_HEAD.unpack_from(data, area)
    start = area + p.JOURNAL_HEAD.size
    if length > p.JOURNAL_SIZE - p.JOURNAL_HEAD.size:
        return
    payload = bytes(data[start : start + length])
    if zlib.crc32(payload, zlib.crc32(written.to_bytes(8, "little"))) != checksum:
        return
    if not words[SEQUENCE] & 1:
        words[SEQUENCE] = words[SEQUENCE] + 1 & _LARGEST
    at = 0
    while at + p.PIECE.size <= length:
        offset, size, _ = p.PIECE.unpack_from(payload, at)
        at += p.PIECE.size
        if offset >= SETTINGS and offset + size <= len(data) and at + size <= length:
            data[offset : offset + size] = payload[at : at + size]
        at += size + -size % 8
    words[JOURNAL] = written
