"""The last events of a store, a ring in the control file. Takes no lock: an event counts if it was not overwritten."""

from __future__ import annotations

from typing import NamedTuple

from shmarrow.store import protocol as p
from shmarrow.store.control import EVENTS, Memory


class Told(NamedTuple):
    """One event: its kind, and the name and generation of its object."""

    kind: int
    name: bytes
    generation: int


def last_event(memory: Memory) -> int:
    """Return the number of the last event."""
    return int(memory.words[EVENTS])


def events_since(memory: Memory, last: int) -> tuple[int, list[Told] | None]:
    """Return the number of the last event, and the events after number ``last``; None if some were overwritten."""
    latest = last_event(memory)
    if latest - last > p.EVENT_COUNT:
        return latest, None
    found = []
    for number in range(last + 1, latest + 1):
        at = p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE
        raw = bytes(memory.bytes[at : at + p.EVENT_SIZE])
        read, generation, kind, length = p.EVENT_STRUCT.unpack_from(raw)
        if not read == number == memory.words[at >> 3]:
            return latest, None
        start = p.EVENT_STRUCT.size
        found.append(Told(kind, raw[start : start + min(length, p.NAME_MAX)], generation))
    return latest, found
