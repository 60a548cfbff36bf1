"""The journal: what makes a commit atomic.

A commit is written to one of two journals, with its number and a checksum, before any of it is applied. It has happened
once its journal is complete: if the writer is killed then, the next holder of the commit lock applies it. So the state
of the store is always the last complete journal, whatever a process was doing when it was killed.
"""

from __future__ import annotations

import zlib

from shmarrow.errors import InvalidData
from shmarrow.store import protocol as p
from shmarrow.store.control import JOURNAL, SEQUENCE, ControlFile, Memory, fence

_LARGEST = (1 << 64) - 1
_PADDING = [bytes(-size % 8) for size in range(8)]


class Journal:
    """The two journals of a control file; used under the commit lock."""

    def __init__(self, control: ControlFile) -> None:
        self._control = control

    def commit(self, pieces: list[tuple[int, bytes]], durable: bool) -> None:
        """Write pieces, offsets and bytes, to the control file: all of them or, if this raises, none."""
        control = self._control
        data, words = control.memory.bytes, control.memory.words
        number = words[JOURNAL] + 1
        parts: list[bytes] = []
        pack = p.PIECE.pack
        for offset, piece in pieces:
            size = len(piece)
            parts += pack(offset, size, 0), piece
            if size & 7:
                parts.append(_PADDING[size & 7])
        payload = b"".join(parts)
        area = p.JOURNALS[number & 1]
        start = area + p.JOURNAL_HEAD.size
        if len(payload) > p.JOURNAL_SIZE - p.JOURNAL_HEAD.size:
            raise InvalidData(f"the catalog is damaged: a commit of {len(payload)} bytes exceeds the journal")
        data[start : start + len(payload)] = payload
        checksum = zlib.crc32(payload, zlib.crc32(number.to_bytes(8, "little")))
        p.JOURNAL_HEAD.pack_into(data, area, number, len(payload), checksum)
        if durable:
            try:
                control.sync()
            except BaseException:
                data[area : area + p.JOURNAL_HEAD.size] = bytes(p.JOURNAL_HEAD.size)  # or it would be applied later
                raise
        words[SEQUENCE] += 1
        fence()
        for offset, piece in pieces:
            data[offset : offset + len(piece)] = piece
        words[JOURNAL] = number  # one store, unlike the copies above: until then, the commit is to be applied again
        fence()
        words[SEQUENCE] += 1

    def replay(self) -> bool:
        """Apply the commit that a killed writer did not; return whether there was one."""
        memory = self._control.memory
        words = memory.words
        before, area = words[JOURNAL], p.JOURNALS[words[JOURNAL] + 1 & 1]
        if words[area >> 3] == before + 1:
            memory = self._control.map()  # all of the file: the commit may be the first one after it was extended
            apply(memory, area)
            words = memory.words
        if words[SEQUENCE] & 1:
            words[SEQUENCE] = words[SEQUENCE] + 1 & _LARGEST
        return bool(words[JOURNAL] != before)


def apply(memory: Memory, area: int) -> None:
    """Apply the commit in a journal if it is complete."""
    data, words = memory.bytes, memory.words
    number, length, checksum = p.JOURNAL_HEAD.unpack_from(data, area)
    start = area + p.JOURNAL_HEAD.size
    if length > p.JOURNAL_SIZE - p.JOURNAL_HEAD.size:
        return
    payload = bytes(data[start : start + length])
    if zlib.crc32(payload, zlib.crc32(number.to_bytes(8, "little"))) != checksum:
        return
    if not words[SEQUENCE] & 1:
        words[SEQUENCE] = words[SEQUENCE] + 1 & _LARGEST
    at = 0
    while at + p.PIECE.size <= length:
        offset, size, _ = p.PIECE.unpack_from(payload, at)
        at += p.PIECE.size
        if offset >= p.HEADER["capacity"][0] and offset + size <= len(data) and at + size <= length:
            data[offset : offset + size] = payload[at : at + size]
        at += size + -size % 8
    words[JOURNAL] = number
