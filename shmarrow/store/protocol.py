"""Constants of the store's format: the layout of the control file, and the byte ranges of locks.

``docs/protocol.md`` specifies the format in full; a test keeps the two in agreement. All integers are little-endian and
unsigned. Offsets are in bytes; those in a slot are relative to its start.
"""

from __future__ import annotations

import re
import struct

import numpy as np

CONTROL, PINS, COMMIT = "control", "pins", "commit"
"""The files of a store besides its objects."""

MAGIC = b"shmarrow"
DESTROYED = int.from_bytes(b"destroyd", "little")
"""Replaces the magic, the first word of the control file, when the store is destroyed."""
VERSION = 2

# --- the control file -------------------------------------------------------------------------------------------

HEADER = {
    "magic": (0, "8s"),
    "version": (8, "I"),
    "slot_size": (12, "I"),
    "slots_offset": (16, "Q"),
    "store_id": (24, "16s"),
    "boot_id": (40, "16s"),
    "modulus": (56, "Q"),
    "capacity": (64, "Q"),
    "eviction": (72, "I"),
    "mode": (76, "I"),
    "durable": (80, "I"),
    "configured": (84, "I"),
    "sequence": (128, "Q"),
    "journal": (136, "Q"),
    "buckets": (144, "Q"),
    "free": (152, "Q"),
    "removed": (160, "Q"),
    "generation": (168, "Q"),
    "file": (176, "Q"),
    "owner": (184, "Q"),
    "objects": (192, "Q"),
    "bytes": (200, "Q"),
    "removed_bytes": (208, "Q"),
    "draft_bytes": (216, "Q"),
    "events": (224, "Q"),
    "removing": (232, "Q"),
    "puts": (240, "Q"),
    "evictions": (248, "Q"),
    "expired": (256, "Q"),
    "hits": (320, "Q"),
    "misses": (328, "Q"),
    "changing": (336, "Q"),
}
FIXED = struct.Struct("<8sIIQ16s16sQQIIII")
"""The header up to ``configured``."""

STATE = list(HEADER)[list(HEADER).index("buckets") : list(HEADER).index("expired") + 1]
"""The fields that a commit changes; the last piece of every journal contains them."""
STATE_OFFSET = HEADER["buckets"][0]
STATE_STRUCT = struct.Struct(f"<{len(STATE)}Q")
# Indices of these fields in the state.
(
    BUCKETS,
    FREE,
    REMOVED,
    GENERATION,
    FILE,
    OWNER,
    OBJECTS,
    BYTES,
    REMOVED_BYTES,
    DRAFT_BYTES,
    EVENTS,
    REMOVING,
    PUTS,
    EVICTIONS,
    EXPIRED,
) = range(len(STATE))

JOURNALS = (4096, 8192)
JOURNAL_SIZE = 4096
JOURNAL_HEAD = struct.Struct("<QII")
"""Number of the commit, length of the payload, CRC-32 of number and payload."""
PIECE = struct.Struct("<QII")
"""Offset in the control file, length, zero; the bytes follow, padded with zeros to a multiple of 8."""

EVENT_RING = 12288
EVENT_COUNT = 256
EVENT_SIZE = 288
EVENT = {"number": (0, "Q"), "generation": (8, "Q"), "kind": (16, "I"), "name_length": (20, "I"), "name": (24, "256s")}
EVENT_STRUCT = struct.Struct("<QQII")
PUBLISHED, DELETED = 1, 2

WAITERS = 86016
WAITER_COUNT = 128
WAITER_SIZE = 32
WAITER = {"semaphore": (0, "Q"), "hash": (8, "Q"), "length": (16, "I"), "waiting": (20, "I")}
WAITER_STRUCT = struct.Struct("<QQII8x")

SLOTS = 90112
SLOT_SIZE = 512
SLOT = {
    "generation": (0, "Q"),
    "hash": (8, "Q"),
    "file": (16, "Q"),
    "size": (24, "Q"),
    "allocated": (32, "Q"),
    "published": (40, "Q"),
    "expires": (48, "Q"),
    "owner": (56, "Q"),
    "state": (64, "I"),
    "flags": (68, "I"),
    "name_length": (72, "I"),
    "parts": (76, "I"),
    "data_crc": (80, "I"),
    "crc": (84, "I"),
    "used": (88, "Q"),
    "head": (96, "I"),
    "next": (100, "I"),
    "payload": (104, "408s"),
}
SLOT_STRUCT = struct.Struct("<QQQQQQQQIIIII")
"""A slot up to ``data_crc``; its CRC covers these fields and the name."""
CRC_OFFSET, USED, HEAD, NEXT, PAYLOAD = (SLOT[field][0] for field in ("crc", "used", "head", "next", "payload"))
PAYLOAD_SIZE = SLOT_SIZE - PAYLOAD
"""Bytes of a slot for the name of an object, and the bytes of one that is inline."""
NAME_MAX = 255
INLINE_MAX = 4096
"""Size of the largest objects that are in the control file instead of a file of their own, in bytes."""
HASH_FACTOR = 0x9E3779B97F4A7C15
"""Multiplier of a name, read as a big-endian number, before the modulus is taken: the low bits of the hash select the
bucket, and without it names that end in numbers would share buckets."""
SLOT_WORDS, HEAD_WORDS = SLOT_SIZE // 8, USED // 8 + 1
HEAD_DTYPE = np.dtype(
    {
        "names": [field for field, (offset, _) in SLOT.items() if offset <= USED],
        "formats": [{"Q": "<u8", "I": "<u4"}[code] for offset, code in SLOT.values() if offset <= USED],
        "offsets": [offset for offset, _ in SLOT.values() if offset <= USED],
        "itemsize": HEAD_WORDS * 8,
    }
)
"""A slot up to ``used``: the part that a snapshot copies."""
SLOT_DTYPE = np.dtype(
    {
        "names": list(SLOT),
        "formats": [{"Q": "<u8", "I": "<u4", "408s": "S408"}[code] for _, code in SLOT.values()],
        "offsets": [offset for offset, _ in SLOT.values()],
        "itemsize": SLOT_SIZE,
    }
)

UNUSED, DRAFT, LIVE, GONE = range(4)
"""States of a slot: free, or with more bytes of an inline object; being written; an object; removed and attached."""
PROTECTED = 1
"""Flag of an object: never evicted."""

# --- locks ------------------------------------------------------------------------------------------------------

COMMIT_LOCK = 0
"""Byte of ``commit`` that is locked to change the catalog."""
OWNER_LOCKS = 1 << 40
"""Plus the owner number, in ``commit``: locked by the owner of objects while it lives."""
DRAFT_LOCKS = 1 << 41
"""Plus the slot, in ``commit``: locked by the writer of a draft."""
WAITER_LOCKS = 1 << 42
"""Plus the number of a waiter's record, in ``commit``: locked by the waiter."""
NAME_LOCKS = 1 << 62
"""Plus the hash of a name, in ``commit``: locked by the process that computes its object."""


def is_object(file: str) -> bool:
    """Whether a file name is one of an object."""
    return re.fullmatch("[0-9a-f]{16}(-[1-9][0-9]*)?", file) is not None


def file_name(number: int, part: int = 0) -> str:
    """Return the name of an object's file, or of its link of a number to a file of another object."""
    return f"{number:016x}-{part}" if part else f"{number:016x}"


def semaphores_in(waiters: bytes) -> list[int]:
    """Return the numbers of the semaphores in the table of waiters, which may be cut off."""
    whole = len(waiters) // WAITER_SIZE * WAITER_SIZE
    return [number for number, *_ in WAITER_STRUCT.iter_unpack(waiters[:whole]) if number]
