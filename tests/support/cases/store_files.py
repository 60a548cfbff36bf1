"""Checking the files of a store: the invariants of its control file, and which files of objects are beside it.

It reads the bytes by the tables of the format (``store/protocol.py``) and shares no code with the catalog, so that it
also checks stores that other implementations of the protocol wrote.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

from shmarrow.errors import InvalidData
from shmarrow.store import protocol as p
from shmarrow.store.directory import locate

_HASH_FACTOR = 0x9E3779B97F4A7C15


def check_store(store: str | os.PathLike[str]) -> dict[str, int]:
    """Check the invariants of a store's control file that no process is changing (docs/protocol.md).

    It compares the catalog with the files beside it: which exist, their names and sizes. It does not read the contents
    of the objects; :meth:`shmarrow.Store.get` and ``validate(full=True)`` do. An invariant that does not hold raises
    InvalidData, which names it.

    Returns
    -------
    dict of str to int
        The number of each object's file, by the object's name; 0 for one that is inline in the control file.

    Examples
    --------
    >>> import shmarrow as sa
    >>> from cases.store_files import check_store
    >>> with sa.Store("./example") as store:
    ...     _ = store.put("answer", 42)
    >>> list(check_store("example"))
    ['answer']
    """
    name, path = locate(store)
    with open(os.path.join(path, p.CONTROL), "rb") as file:
        data = file.read()
    if len(data) < p.SLOTS:
        raise InvalidData(f"{name}: the control file has {len(data)} bytes, fewer than its header of {p.SLOTS}")
    return _Checked(name, path, data).objects()


class _Checked:
    """A control file, and the slots in it by their state."""

    def __init__(self, name: str, path: str, data: bytes) -> None:
        self.name, self.path, self.data = name, path, data
        self.head = head = _record(data, 0, p.HEADER)
        found = (head["magic"], head["version"])
        self.expect(
            found == (b"shmarrow", p.VERSION),
            f"expected the control file of a store, version {p.VERSION}, found {found}",
        )
        changing = head["sequence"] & 1 or head["changing"]
        self.expect(not changing, "a change is half applied, or a process is changing the store")
        most = (len(data) - p.SLOTS) // p.SLOT_SIZE
        self.expect(
            head["buckets"] <= most,
            f"expected at most {most} buckets, found {head['buckets']}",
        )
        self.slots = [_record(data, p.SLOTS + number * p.SLOT_SIZE, p.SLOT) for number in range(head["buckets"])]
        self.files: dict[str, tuple[int, int]] = {}
        """The inode and the allocated bytes of each file of an object."""
        self.states: dict[int, list[int]] = {p.UNUSED: [], p.LIVE: [], p.GONE: []}
        for number, slot in enumerate(self.slots):
            self.expect(slot["state"] in self.states, f"slot {number} has the unknown state {slot['state']}")
            self.states[slot["state"]].append(number)

    def expect(self, holds: Any, message: str) -> None:
        if not holds:
            raise InvalidData(f"{self.name}: {message}")

    def objects(self) -> dict[str, int]:
        """Check everything, and return the files of the objects by name."""
        self._chains()
        found: dict[str, int] = {}
        for number in self.states[p.LIVE]:
            name, file = self._live(number)
            self.expect(name not in found, f"{name!r} is there twice")
            found[name] = file
        for number in self.states[p.GONE]:  # attached objects keep their parts, and their own files if others have them
            own = os.path.exists(os.path.join(self.path, p.file_name(self.slots[number]["file"])))
            self._parts(number, range(0 if own else 1, self.slots[number]["parts"] + 1))
        generations = {self.slots[number]["generation"] for number in self.states[p.LIVE]}
        self.expect(len(generations) == len(found), "two objects have the same generation")
        self._counts()
        self._files()
        return found

    def _walk(self, head: int, what: str) -> list[int]:
        """Return the slots of a list, whose links are slot numbers plus one."""
        found: dict[int, None] = {}
        while head:
            self.expect(head <= len(self.slots), f"{what} leads to slot {head - 1} of {len(self.slots)}")
            self.expect(head - 1 not in found, f"{what} has a cycle at slot {head - 1}")
            found[head - 1] = None
            head = self.slots[head - 1]["next"]
        return list(found)

    def _chains(self) -> None:
        """Check that chains reach every live slot once, in the bucket of its hash, and lists all others."""
        count, chained = len(self.slots), list[int]()
        size = 1 << (count - 1).bit_length() if count else 1
        for bucket in range(count):
            for number in self._walk(self.slots[bucket]["head"], f"bucket {bucket}"):
                chained.append(number)
                low = self.slots[number]["hash"] & (size - 1)
                home = low if low < count else low - size // 2
                self.expect(bucket == home, f"slot {number} is in bucket {bucket}, not in {home}")
        lists = {p.LIVE: chained}
        lists[p.UNUSED] = self._walk(self.head["free"], "the list of free slots")
        for number in self.states[p.LIVE]:
            if not self.slots[number]["file"]:
                lists[p.UNUSED] += self._walk(self.slots[number]["parts"], f"the parts of slot {number}")
        lists[p.GONE] = self._walk(self.head["removed"], "the list of removed slots")
        for state, found in lists.items():
            linked, expected = sorted(found), self.states[state]
            self.expect(linked == expected, f"slots in state {state}: {expected[:20]}, linked: {linked[:20]}")

    def _live(self, number: int) -> tuple[str, int]:
        """Check the slot of an object against its own checksum and its file."""
        slot, at = self.slots[number], p.SLOTS + number * p.SLOT_SIZE
        name = slot["payload"][: slot["name_length"]]
        crc = zlib.crc32(name, zlib.crc32(self.data[at : at + p.CRC_OFFSET]))
        self.expect(crc == slot["crc"], f"slot {number} has the checksum {slot['crc']:#x}, not {crc:#x}")
        hashed = int.from_bytes(name, "big") * _HASH_FACTOR % self.head["modulus"]
        self.expect(slot["hash"] == hashed, f"slot {number} has another name's hash")
        newest = self.head["generation"]
        self.expect(0 < slot["generation"] <= newest, f"slot {number} has the generation {slot['generation']}")
        if not slot["file"]:
            self._inline(number, len(name))
            return name.decode(), 0
        path = os.path.join(self.path, f"{slot['file']:016x}")
        try:
            status = os.stat(path)
        except FileNotFoundError:
            raise InvalidData(f"{self.name}: the object of slot {number} has no file {path!r}") from None
        expected, found = (slot["size"], slot["allocated"]), (status.st_size, status.st_blocks * 512)
        self.expect(found == expected, f"{path!r} has {found} bytes and allocated bytes, slot {number} says {expected}")
        self._parts(number, range(slot["parts"] + 1))
        return name.decode(), slot["file"]

    def _parts(self, number: int, parts: range) -> None:
        """Check the files of an object; number 0 is its own."""
        for part in parts:
            file = p.file_name(self.slots[number]["file"], part)
            self.expect(os.path.exists(path := os.path.join(self.path, file)), f"slot {number} has no file {path!r}")
            status = os.stat(path)
            self.files[file] = (status.st_ino, status.st_blocks * 512)

    def _inline(self, number: int, name_length: int) -> None:
        """Check the bytes of an inline object."""
        slot = self.slots[number]
        numbers = [number, *self._walk(slot["parts"], f"the parts of slot {number}")]
        payload = b"".join([self.slots[each]["payload"].ljust(p.PAYLOAD_SIZE, b"\0") for each in numbers])
        start = name_length + 7 & -8
        count = -(-(start + slot["size"]) // p.PAYLOAD_SIZE)
        found = (len(numbers), len(numbers) * p.SLOT_SIZE)
        self.expect(found == (count, slot["allocated"]), f"slot {number} has {found} slots and bytes, expected {count}")
        data = payload[start : start + slot["size"]]
        self.expect(zlib.crc32(data) == slot["data_crc"], f"the object of slot {number} has another checksum")

    def _counts(self) -> None:
        """Check the totals of the header."""
        used = {"objects": len(self.states[p.LIVE])}
        inline = [self.slots[number] for number in self.states[p.LIVE] if not self.slots[number]["file"]]
        gone = [self.slots[number] for number in self.states[p.GONE]]
        unnamed = [slot for slot in gone if p.file_name(slot["file"]) not in self.files]  # unlinked, and mapped
        used["bytes"] = sum(slot["allocated"] for slot in inline + unnamed) + sum(dict(self.files.values()).values())
        found = {field: self.head[field] for field in used}
        self.expect(found == used, f"the header counts {found}, the slots {used}")

    def _files(self) -> None:
        """Check that every file belongs to an object."""
        known = {*self.files, p.CONTROL, p.PINS, p.COMMIT}
        others = sorted(set(os.listdir(self.path)) - known)
        self.expect(not others, f"no object has the files {others[:20]}")


def _record(data: bytes, at: int, table: dict[str, Any]) -> dict[str, Any]:
    return {name: struct.unpack_from(f"<{code}", data, at + offset)[0] for name, (offset, code) in table.items()}
