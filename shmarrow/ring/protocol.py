# SPDX-License-Identifier: Apache-2.0
"""The layout of a ring's file, which ``docs/ring.md`` specifies. All integers are little-endian and unsigned."""

from __future__ import annotations

import os
import stat
import struct
from typing import NamedTuple

from shmarrow.errors import DEFAULT_LIMITS, InvalidData

MAGIC = b"shmaring"
VERSION = 2
BATCH, TENSOR, NDARRAY = 1, 2, 3
KINDS = {BATCH: "record batch", TENSOR: "tensor", NDARRAY: "ndarray"}
LATEST, ALL = 1, 2
POLICIES = {"latest": LATEST, "all": ALL}

FIXED = struct.Struct("<8sIIIIQQQ")
"""Magic, version, kind, policy, slots; size of the schema; offset and size of the slots."""
NEWEST, CLOSED, WRITER, WRITER_WAITS = range(16, 20)
"""Words: the newest frame, as its number times the number of slots, plus its slot; 1 once the writer has closed the
ring; the writer's process id; 1 if the writer waits."""
SEQUENCES = 256
"""The word of slot 0: the number of the frame in it, 0 while it is written."""
ENTRIES, ENTRY = 512, 8
"""The first word of the entry of reader 0, and the words of an entry."""
PROCESS, TAKEN, HELD, MISSED, WAITS, OPEN = range(6)
"""Words of an entry: the reader's process id, 0 if it is free; the last frame that it took; 0, or 1 plus the slot that
it holds; the frames that it missed so far; 1 if it waits; 1 once the reader is open. They count only while the reader's
byte is locked."""
CONTROL_SIZE = 8192
PAGE = 4096
MOST_SLOTS, MOST_READERS = 64, 32
WRITER_LOCK, READER_LOCKS = 0, 1
"""The bytes that the writer and reader 0 lock."""


class Geometry(NamedTuple):
    """The constant part of a ring's file; see :data:`FIXED`."""

    magic: bytes
    version: int
    kind: int
    policy: int
    slots: int
    head_size: int
    first: int
    stride: int

    @property
    def entries(self) -> int:
        """The number of readers that there may be: with the latest frames, there is always a slot that none holds."""
        return min(self.slots - 1, MOST_READERS) if self.policy == LATEST else MOST_READERS

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.first + self.slots * self.stride


def new_geometry(kind: int, policy: int, slots: int, head_size: int, frame_size: int) -> Geometry:
    """The geometry of a ring for a schema and frames of these sizes."""
    first = _pages(CONTROL_SIZE + head_size)
    return Geometry(MAGIC, VERSION, kind, policy, slots, head_size, first, _pages(frame_size))


def _pages(size: int) -> int:
    return max(-(-size // PAGE), 1) * PAGE


def read_geometry(fd: int, name: str) -> Geometry:
    """Read and check the geometry of an open file.

    Raises
    ------
    InvalidData
        If it is not a ring, or is damaged.
    """
    status = os.fstat(fd)
    data = os.pread(fd, FIXED.size, 0) if stat.S_ISREG(status.st_mode) else b""
    if len(data) < FIXED.size or not data.startswith(MAGIC):
        raise InvalidData(f"{name!r} is not a ring: expected a file that begins with {MAGIC!r}, found {data[:8]!r}")
    geometry = Geometry(*FIXED.unpack(data))
    if geometry.version != VERSION:
        raise InvalidData(f"the ring {name!r} has version {geometry.version} of the layout, expected {VERSION}")
    sound = (
        geometry.kind in KINDS
        and geometry.policy in POLICIES.values()
        and 2 <= geometry.slots <= MOST_SLOTS
        and geometry.head_size <= DEFAULT_LIMITS.metadata_bytes
        and CONTROL_SIZE + geometry.head_size <= geometry.first
        and geometry.first % PAGE == 0 < geometry.stride
        and geometry.stride % PAGE == 0
    )
    if not sound or geometry.size != status.st_size:
        raise InvalidData(f"the ring {name!r} is damaged: {geometry} in a file of {status.st_size} bytes")
    return geometry
