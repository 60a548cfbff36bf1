# SPDX-License-Identifier: Apache-2.0
"""The store: its design, and its format. Read this first; ``docs/protocol.md`` specifies it in full.

A store is one directory: ``control``, a file that every process maps; ``pins`` and ``commit``, empty files whose bytes
are locked; and one Arrow file for each object that is not small. There is no server. What makes it safe:

**One writer.** Whoever changes the store has locked byte 0 of ``commit``, which the kernel takes from a dead process.
In Python, that is ``with catalog.change() as change:`` (``transaction``).

**A journal.** A change is a list of pieces, offsets and bytes of ``control``. They are written to one of two
journals, with a number and a checksum, before any of them is written to its place. A commit has happened once its
journal is complete: if its writer is killed then, whoever takes the lock next writes all pieces again, as often as
need be (``control``). So *the state is the last complete journal*, and a process may be killed between any two
instructions.

**Readers take no lock.** A name leads through a chained hash table to a slot. A slot counts if its checksum, which
covers the name, is right, and it was in the store at some moment then, as slots change by commits only and
generations are never given twice. A name is missing if there was no commit meanwhile: ``sequence`` is odd while one
is applied, and rises (``index``, ``lookup``). Objects of up to 4,096 bytes are in slots, and copied; a checksum
says whether the copy is right.

**Attached objects stay.** A reader of an object with a file locks the slot's byte of ``pins``, shared, and looks
whether it is still there, in the last complete journal (``attach``). Whoever removes an object tries to lock that
byte, exclusively, and holds it until the commit is done. If that fails, somebody has the object attached: the slot
becomes ``GONE``, and is not used again before the byte is free. So a pin is always that of the object for which it
was taken.

**Files follow the commits.** A file is linked before the commit that adds it, as number ``file + 1``, and unlinked
after the one that removes it, whose number is ``removing``. So an object that is found has its file; and what a
killed process left has one of these two numbers, and is removed by whoever takes the lock next.

**What counts.** ``bytes`` are those of all files that have names in the store, each counted once, however many
objects share it; of the slots of inline objects; and of the unlinked files of ``GONE`` slots, which somebody has
mapped (``room``).

All integers are little-endian and unsigned. Offsets are in bytes; those in a slot are relative to its start.
"""

from __future__ import annotations

import re
import struct
import time
import zlib
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

import numpy as np

CONTROL, PINS, COMMIT = "control", "pins", "commit"
"""The files of a store besides its objects."""

MAGIC = b"shmarrow"
DESTROYED = int.from_bytes(b"destroyd", "little")
"""Replaces the magic, the first word of the control file, when the store is destroyed."""
VERSION = 3

# --- records ----------------------------------------------------------------------------------------------------

U32: TypeAlias = Annotated[int, "I"]
U64: TypeAlias = Annotated[int, "Q"]
Fields: TypeAlias = dict[str, tuple[int, str]]
"""Offset and code, as in ``struct``, of each field."""


class Offsets:
    """Offsets of the annotated fields of a named tuple, one after the other.

    Attributes
    ----------
    start, end : int
        Its first byte, and the one after its last.
    fields : dict
        Offset and code of each field.
    struct : struct.Struct
        The format of all fields, from ``start`` to ``end``.
    """

    def __init__(self, record: type, start: int = 0) -> None:
        self.start = self.end = start
        self.fields: Fields = {}
        for name, hint in get_type_hints(record, include_extras=True).items():
            for code in getattr(hint, "__metadata__", ()):
                self.fields[name] = self.end, code
                self.end += struct.calcsize(f"<{code}")
        self.struct = struct.Struct("<" + "".join([code for _, code in self.fields.values()]))


def dtype_of(fields: Fields, size: int) -> np.dtype[Any]:
    """Return the structured type of records of ``size`` bytes with these fields."""
    names = [name for name, (offset, _) in fields.items() if offset < size]
    codes = {"I": "<u4", "Q": "<u8"}
    return np.dtype(
        {
            "names": names,
            "formats": [codes.get(fields[name][1], f"S{fields[name][1][:-1]}") for name in names],
            "offsets": [fields[name][0] for name in names],
            "itemsize": size,
        }
    )


class Identity(NamedTuple):
    """The header up to ``durable``: what the store is, and its settings."""

    magic: Annotated[bytes, "8s"]
    version: U32
    slot_size: U32
    slots_offset: U64
    store_id: Annotated[bytes, "16s"]
    boot_id: Annotated[bytes, "16s"]
    modulus: U64
    capacity: U64
    eviction: U32
    mode: U32
    durable: U32


class Progress(NamedTuple):
    """The last commit that was applied, and whether one is being applied."""

    sequence: U64
    journal: U64


class State(NamedTuple):
    """The state of the catalog: the last record of every journal, and changed by nothing else."""

    buckets: U64
    free: U64
    removed: U64
    generation: U64
    file: U64
    owner: U64
    objects: U64
    bytes: U64
    events: U64
    removing: U64
    puts: U64
    evictions: U64
    expired: U64


class Hints(NamedTuple):
    """What is written without a journal; nothing depends on it."""

    changing: U64


class Entry(NamedTuple):
    """The contents of a slot; its checksum covers the fields of the format and the name."""

    generation: U64
    hash: U64
    file: U64
    size: U64
    allocated: U64
    published: U64
    expires: U64
    owner: U64
    state: U32
    flags: U32
    name_length: U32
    parts: U32
    data_crc: U32
    name: bytes = b""
    slot: int = -1

    @property
    def expired(self) -> bool:
        """Whether the object has expired."""
        return self.expires != 0 and self.expires <= time.time_ns()

    def pack(self) -> bytes:
        """Return the fields covered by the checksum, followed by it."""
        fields = ENTRY.struct.pack(*self[:-2])
        return fields + zlib.crc32(self.name, zlib.crc32(fields)).to_bytes(4, "little")


class Rest(NamedTuple):
    """A slot after what its checksum covers."""

    crc: U32
    used: U64
    head: U32
    next: U32
    payload: Annotated[bytes, "408s"]


class EventRecord(NamedTuple):
    """An event in the ring."""

    number: U64
    generation: U64
    kind: U32
    name_length: U32
    name: Annotated[bytes, "256s"]


class Waiter(NamedTuple):
    """A record in the table of waiters."""

    hash: U64
    length: U32
    waiting: U32


class JournalHead(NamedTuple):
    """The head of a journal; its checksum covers the number and the payload."""

    number: U64
    length: U32
    crc: U32


class Piece(NamedTuple):
    """The head of a piece of a journal; its bytes follow, padded with zeros to a multiple of 8."""

    at: U64
    size: U32
    zero: U32


IDENTITY, PROGRESS, STATE, HINTS = Offsets(Identity), Offsets(Progress, 128), Offsets(State, 144), Offsets(Hints, 336)
HEADER = IDENTITY.fields | PROGRESS.fields | STATE.fields | HINTS.fields
ENTRY = Offsets(Entry)
SLOT = ENTRY.fields | Offsets(Rest, ENTRY.end).fields
EVENT = Offsets(EventRecord).fields
JOURNAL_HEAD, PIECE = Offsets(JournalHead).struct, Offsets(Piece).struct

JOURNALS = (4096, 8192)
JOURNAL_SIZE = 4096
EVENT_RING = 12288
EVENT_COUNT = 256
EVENT_SIZE = 288
EVENT_STRUCT = struct.Struct("<QQII")
"""An event up to its name."""
PUBLISHED, DELETED = 1, 2

WAITERS = 86016
WAITER_COUNT = 256
WAITER_SIZE = 16
WAITER = Offsets(Waiter).fields
WAITER_STRUCT = Offsets(Waiter).struct

SLOTS = 90112
SLOT_SIZE = 512
CRC_OFFSET, USED, HEAD, NEXT, PAYLOAD = (SLOT[field][0] for field in ("crc", "used", "head", "next", "payload"))
PAYLOAD_SIZE = SLOT_SIZE - PAYLOAD
"""Bytes of a slot for the name of an object, and the bytes of one that is inline."""
SLOT_WORDS, HEAD_WORDS = SLOT_SIZE // 8, USED // 8 + 1
SLOT_DTYPE, HEAD_DTYPE = dtype_of(SLOT, SLOT_SIZE), dtype_of(SLOT, HEAD_WORDS * 8)
"""A slot, and a slot up to ``used``: the part that a snapshot copies."""
NAME_MAX = 255
INLINE_MAX = 4096
"""Size of the largest objects that are in the control file instead of a file of their own, in bytes."""
PARTS_MAX = 255
"""Maximum number of files that an object shares with others."""
HASH_FACTOR = 0x9E3779B97F4A7C15
"""Multiplier of a name, read as a big-endian number, before the modulus is taken: the low bits of the hash select the
bucket, and without it names that end in numbers would share buckets."""

UNUSED, LIVE, GONE = range(3)
"""States of a slot: free, or with more bytes of an inline object; an object; removed and attached."""
PROTECTED, CHECKED = 1, 2
"""Flags of an object: never evicted; its values are safe to hand to other libraries, as they were when it was put."""

# --- locks ------------------------------------------------------------------------------------------------------

COMMIT_LOCK = 0
"""Byte of ``commit`` that is locked to change the catalog."""
OWNER_LOCKS = 1 << 40
"""Plus the owner number, in ``commit``: locked by the owner of objects while it lives."""
WAITER_LOCKS = 1 << 42
"""Plus the number of a waiter's record, in ``commit``: locked by the waiter."""
NAME_LOCKS = 1 << 62
"""Plus the hash of a name, in ``commit``: locked by the process that computes its object."""

# --- files ------------------------------------------------------------------------------------------------------


def is_object(file: str) -> bool:
    """Whether a file name is one of an object."""
    return re.fullmatch("[0-9a-f]{16}(-[1-9][0-9]*)?", file) is not None


def file_name(number: int, part: int = 0) -> str:
    """Return the name of an object's file, or of its link of a number to a file of another object."""
    return f"{number:016x}-{part}" if part else f"{number:016x}"


def hash_of(name: bytes, modulus: int) -> int:
    """Return the hash of a name."""
    return int.from_bytes(name, "big") * HASH_FACTOR % modulus


def word(field: str) -> int:
    """Return the index of a header field in the 64-bit words of the control file."""
    return HEADER[field][0] >> 3
