"""Every invariant of a store that nobody changes, from the bytes of its control file and the files beside it.

Nothing of the catalog's code is used but the tables of the format.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

from shmarrow.store import protocol as p


def _record(data: bytes, at: int, table: dict[str, Any]) -> dict[str, Any]:
    return {name: struct.unpack_from(f"<{code}", data, at + offset)[0] for name, (offset, code) in table.items()}


def _walk(slots: list[dict[str, Any]], head: int, what: str) -> list[int]:
    """The slots of a list, whose links are slot numbers and one."""
    found: list[int] = []
    while head:
        assert head <= len(slots), f"{what} refers to slot {head - 1} of {len(slots)}"
        assert head - 1 not in found, f"{what} has a cycle at slot {head - 1}"
        found.append(head - 1)
        head = slots[head - 1]["next"]
    return found


def check(path: str) -> dict[str, int]:
    """Check the store in a directory; the file number of each object by its name."""
    with open(f"{path}/{p.CONTROL}", "rb") as file:
        data = file.read()
    head = _record(data, 0, p.HEADER)
    assert (head["magic"], head["version"], head["sequence"] & 1) == (b"shmarrow", 1, 0), head
    assert (head["adding"], head["removing"]) == (0, 0), head
    count = head["buckets"]
    assert count <= head["slots"] <= (len(data) - p.SLOTS) // p.SLOT_SIZE
    slots = [_record(data, p.SLOTS + number * p.SLOT_SIZE, p.SLOT) for number in range(count)]
    spill = os.path.join(head["spill_path"].rstrip(b"\0").decode(), head["store_id"].hex())
    states: dict[int, list[int]] = {p.UNUSED: [], p.DRAFT: [], p.LIVE: [], p.GONE: []}
    for number, slot in enumerate(slots):
        states[slot["state"]].append(number)
    # Chains reach every live slot once, each in the bucket of its hash.
    chained = []
    size = 1 << (count - 1).bit_length() if count else 1
    for bucket in range(count):
        for number in _walk(slots, slots[bucket]["head"], f"bucket {bucket}"):
            chained.append(number)
            low = slots[number]["hash"] & (size - 1)
            assert bucket == (low if low < count else low - size // 2), f"slot {number} is in bucket {bucket}"
    assert sorted(chained) == states[p.LIVE]
    assert sorted(_walk(slots, head["free"], "the free list")) == states[p.UNUSED]
    assert sorted(_walk(slots, head["removed"], "the removed list")) == states[p.GONE]
    # Slots say what the files are.
    objects: dict[str, int] = {}
    used = {"bytes": 0, "spilled_bytes": 0}
    generations = set()
    for number in states[p.LIVE]:
        slot = slots[number]
        at = p.SLOTS + number * p.SLOT_SIZE
        name = slot["name"][: slot["name_length"]]
        assert zlib.crc32(name, zlib.crc32(data[at : at + 92])) == slot["crc"], f"slot {number} is not whole"
        expected = int.from_bytes(name, "big") * 0x9E3779B97F4A7C15 % head["modulus"]
        assert slot["hash"] == expected, f"slot {number} has another name's hash"
        assert 0 < slot["generation"] <= head["generation"]
        generations.add(slot["generation"])
        spilled = bool(slot["flags"] & p.SPILLED)
        status = os.stat(os.path.join(spill if spilled else path, f"{slot['file']:016x}"))
        assert (status.st_size, status.st_blocks * 512) == (slot["size"], slot["allocated"]), f"slot {number}: {status}"
        used["spilled_bytes" if spilled else "bytes"] += slot["allocated"]
        assert name.decode() not in objects, f"{name!r} is there twice"
        objects[name.decode()] = slot["file"]
    assert len(generations) == len(objects)
    used["objects"] = len(objects)
    used["removed_bytes"] = sum(slots[number]["allocated"] for number in states[p.GONE])
    used["draft_bytes"] = sum(slots[number]["allocated"] for number in states[p.DRAFT])
    assert {name: head[name] for name in used} == used
    # No file that no slot has.
    drafts = {slots[number]["file"] for number in states[p.DRAFT]}
    known = {f"{file:016x}" for file in {*objects.values(), *drafts}} | {p.CONTROL, p.PINS, p.COMMIT}
    assert set(os.listdir(path)) <= known, f"files that no object has: {set(os.listdir(path)) - known}"
    return objects
