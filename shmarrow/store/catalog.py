"""The catalog: which objects a store has, in a control file that every process maps.

Names lead to slots by a hash table of chains (linear hashing: bucket ``i`` begins in slot ``i``, and each slot that is
used for the first time splits one bucket, so the table grows with the file and is never rebuilt). Rules kept here:

* the catalog is changed under the commit lock, by commits that are written to a journal first and then applied: whoever
  gets the lock after a process was killed applies the journal again, and nothing is ever half changed;
* nobody locks in order to look: a slot that is found has a generation and a checksum, and a name that is not found
  counts only if no commit was going on meanwhile;
* whatever the file says is checked before it is followed: bounds, lengths of chains, checksums.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import InvalidData, StorageError, StoreFull, storage_error
from shmarrow.segment import Location
from shmarrow.store import protocol as p
from shmarrow.store.directory import (
    Directory,
    Settings,
    Wanted,
    check_settings,
    check_trust,
    open_directory,
    pack_header,
    read_settings,
    this_boot,
)
from shmarrow.store.locks import CommitLock, Pins, holder, try_lock
from shmarrow.store.protocol import file_name

_SEQUENCE = p.HEADER["sequence"][0] >> 3
_SLOT_WORD = p.HEADER["slots"][0] >> 3
_BUCKET_WORD = p.HEADER["buckets"][0] >> 3
_ADDING_WORD, _ADDING_SLOT_WORD, _REMOVING_WORD = (p.HEADER[name][0] >> 3 for name in ("adding", "adding_slot", "removing"))
_SETTINGS, _SPILL = p.HEADER["capacity"][0], p.HEADER["spill_path"][0]
_BOOT = p.HEADER["boot_id"][0]
_USED = p.USED >> 3
_SLOT_WORDS = p.SLOT_SIZE >> 3
_FIRST_GENERATION = p.SLOTS >> 3
_STUCK_SECONDS = 0.1
_MOST_NEW_SLOTS = 8192
_SNAPSHOT_ROWS = 1 << 16
_SWEPT = 2
_FIELDS = tuple(p.SLOT)[:13]
_LINK = struct.Struct("<I")
_PADDING = [bytes(-size % 8) for size in range(8)]
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> int:
    """Nanoseconds since the machine was started, sleep included; nobody can set this clock."""
    return time.clock_gettime_ns(_CLOCK)


class Entry(NamedTuple):
    """A slot, as it was read; the fields are those of the format."""

    slot: int
    generation: int
    hash: int
    file: int
    size: int
    allocated: int
    published: int
    expires: int
    expires_wall: int
    owner: int
    sum: int
    state: int
    flags: int
    name: bytes

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires != 0 and self.expires <= clock()

    @property
    def spilled(self) -> bool:
        """Whether it lies in the spill directory."""
        return bool(self.flags & p.SPILLED)

    def pack(self) -> bytes:
        """The fields that the checksum covers, and the checksum."""
        fields = p.SLOT_STRUCT.pack(*self[1:13], len(self.name))
        return fields + zlib.crc32(self.name, zlib.crc32(fields)).to_bytes(4, "little")


class Memory(NamedTuple):
    """The mapped control file, as bytes, as 64-bit words and as 32-bit words."""

    bytes: memoryview
    words: memoryview
    ints: memoryview
    slots: int


class Catalog:
    """The control file of one store, as this process has it open; Store objects of one directory share it.

    Attributes
    ----------
    directory : Directory
        Where it is.
    settings : Settings
        What the store was created with, or configured to.
    writable : bool
        Whether this process may change the store.
    pins : Pins
        What this process has attached.
    lock : CommitLock
        Taken through :meth:`locked`.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._fds: list[int] = []
        try:
            self.control_fd, self.writable = self._open(p.CONTROL, None)
            self._read_settings()
            self.pins_fd, _ = self._open(p.PINS, self.writable)
            self.commit_fd = self._open(p.COMMIT, True)[0] if self.writable else -1
            self.memory = self._map()
        except BaseException:
            self.close()
            raise
        self.pins = Pins(self.pins_fd)
        self.lock = CommitLock(self.commit_fd, directory.name)
        self.owner = 0
        self.victims: deque[Any] = deque()
        if self.writable and bytes(self.memory.bytes[_BOOT : _BOOT + 16]) != this_boot():
            with self.locked():
                pass

    def _open(self, file: str, writable: bool | None) -> tuple[int, bool]:
        """Open one of the store's own files; to write, if that may be."""
        try:
            try:
                fd = self.directory.open(file, os.O_RDONLY if writable is False else os.O_RDWR)
            except OSError as error:
                if writable is not None or error.errno not in (errno.EACCES, errno.EROFS):
                    raise
                fd, writable = self.directory.open(file, os.O_RDONLY), False
        except OSError as error:
            raise storage_error(error, f"open the {file} file of", self.directory.name) from None
        self._fds.append(fd)
        return fd, writable is not False

    def _read_settings(self) -> None:
        where = self.directory.name
        header = os.pread(self.control_fd, p.JOURNALS[0], 0)
        if len(header) < p.JOURNALS[0]:
            raise InvalidData(f"the control file of {where!r} has {len(header)} bytes, expected at least {p.SLOTS}")
        self.settings, self.store_id, self.modulus = read_settings(header, where)

    def _map(self) -> Memory:
        """Map as many slots as the header says that there are."""
        where = self.directory.name
        count = int.from_bytes(os.pread(self.control_fd, 8, _SLOT_WORD << 3), "little")
        size = p.SLOTS + count * p.SLOT_SIZE
        found = os.fstat(self.control_fd).st_size
        if not 1 <= count < 1 << 31 or found < size:
            raise InvalidData(f"the control file of {where!r} is damaged: {count} slots take {size} bytes, it has {found}")
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if self.writable else 0)
        data = memoryview(mmap.mmap(self.control_fd, size, prot=prot))
        return Memory(data, data.cast("Q"), data.cast("I"), count)

    def close(self) -> None:
        """Close its descriptors, which drops all locks of this process on the store."""
        for fd in self._fds:
            with suppress(OSError):
                os.close(fd)
        self._fds.clear()

    def after_fork(self) -> None:
        """Called in a forked child."""
        self.owner = 0
        self.lock.after_fork()
        self.pins.after_fork()

    # --- looking --------------------------------------------------------------------------------------------------

    def hash(self, name: bytes) -> int:
        """The hash of a name."""
        return int.from_bytes(name, "big") * p.HASH_FACTOR % self.modulus

    def find(self, name: bytes) -> Entry | None:
        """The live object of a name, also one that has expired; None if there is none. Takes no lock."""
        memory = self.memory
        stuck = 0.0
        while True:
            before = memory.words[_SEQUENCE]
            if memory.words[_SLOT_WORD] > memory.slots:
                memory = self.memory = self._map()
            found = self._walk(memory, name)
            if found is not None:
                return found
            if not before & 1 and memory.words[_SEQUENCE] == before:
                return None
            if before & 1:
                now = time.monotonic()
                stuck = stuck or now
                if now - stuck > _STUCK_SECONDS:
                    memory = self._repaired()
            time.sleep(0)

    def _walk(self, memory: Memory, name: bytes) -> Entry | None:
        data, ints = memory.bytes, memory.ints
        buckets = memory.words[_BUCKET_WORD]
        if not buckets:
            return None
        wanted = self.hash(name)
        slot = ints[(p.SLOTS + bucket_of(wanted, buckets) * p.SLOT_SIZE + p.HEAD) >> 2]
        left = memory.slots
        while 0 < slot <= memory.slots and left:
            at = p.SLOTS + (slot - 1) * p.SLOT_SIZE
            if memory.words[(at >> 3) + 1] == wanted and (found := read_slot(data, slot - 1, name)) is not None:
                return found
            slot = ints[(at + p.NEXT) >> 2]
            left -= 1
        return None

    def _repaired(self) -> Memory:
        """The memory after the commit of a writer that was killed: repaired, or in private pages if it may not be."""
        if self.writable:
            with self.locked():
                return self.memory
        size = p.SLOTS + self.memory.slots * p.SLOT_SIZE
        pages = mmap.mmap(self.control_fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        data = memoryview(pages)
        memory = Memory(data, data.cast("Q"), data.cast("I"), self.memory.slots)
        replay(memory)
        return memory

    def alive(self, entry: Entry) -> bool:
        """Whether the slot still has that object."""
        return bool(self.memory.words[_FIRST_GENERATION + entry.slot * _SLOT_WORDS] == entry.generation)

    def mark_used(self, entry: Entry) -> None:
        """Note that an object was used now; eviction begins with those used longest ago."""
        if self.writable:
            self.memory.words[_FIRST_GENERATION + entry.slot * _SLOT_WORDS + _USED] = time.monotonic_ns()

    def state(self) -> list[int]:
        """The header's state, as it is now."""
        return list(p.STATE_STRUCT.unpack_from(self.memory.bytes, p.STATE_OFFSET))

    def snapshot(self, *fields: str) -> Iterator[Any]:
        """The live objects, in pieces of up to 65,536 slots: structured ndarrays with ``slot`` and the asked fields.

        Takes no lock: objects that come or go meanwhile may be in it or not.
        """
        memory = self.memory
        if memory.words[_SLOT_WORD] > memory.slots:
            memory = self.memory = self._map()
        last = self.state()[p.GENERATION]
        count = min(memory.words[_BUCKET_WORD], memory.slots)
        wanted = list(dict.fromkeys(("generation", "state", *fields)))
        everything = np.frombuffer(memory.bytes, p.SLOT_DTYPE, count, p.SLOTS) if count else np.empty(0, p.SLOT_DTYPE)
        for start in range(0, count, _SNAPSHOT_ROWS):
            part = everything[start : start + _SNAPSHOT_ROWS]
            rows = np.flatnonzero((part["state"] == p.LIVE) & (part["generation"] != 0))
            made = np.empty(len(rows), [("slot", "<u8"), *((name, p.SLOT_DTYPE[name]) for name in wanted)])
            made["slot"] = rows + start
            for name in wanted:
                made[name] = part[name][rows]
            changed = np.flatnonzero((made["generation"] > last) | (made["state"] != p.LIVE))
            if len(changed):  # published or renamed while this was read: name and numbers might not belong together
                keep = np.ones(len(made), np.bool_)
                keep[changed] = False
                made = made[keep]
            yield made

    def entry(self, slot: int) -> Entry | None:
        """The live object of a slot; None if there is none."""
        return read_slot(self.memory.bytes, slot) if slot < self.memory.slots else None

    # --- changing -------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the commit lock; what a killed process left is repaired first."""
        if not self.writable:
            raise StorageError(
                errno.EACCES, f"cannot change the store {self.directory.name!r}: this process may only read it"
            )
        with self.lock:
            self._repair()
            yield

    def _repair(self) -> None:
        if not os.fstat(self.control_fd).st_nlink:
            raise StorageError(errno.ESTALE, f"the store {self.directory.name!r} was destroyed; open it again")
        if self.memory.words[_SLOT_WORD] > self.memory.slots:
            self.memory = self._map()
        memory = self.memory
        words = memory.words
        replay(memory)
        if bytes(memory.bytes[_BOOT : _BOOT + 16]) != this_boot():
            from shmarrow.store.rebuild import rebuild

            rebuild(self)
            return
        if adding := words[_ADDING_WORD]:
            slot = words[_ADDING_SLOT_WORD] - 1
            found = read_slot(memory.bytes, slot) if 0 <= slot < memory.slots else None
            if found is None or found.file != adding:
                self._unlink(adding)
            words[_ADDING_WORD] = 0
        self.end_removing()

    def begin_adding(self, slot: int, file: int) -> None:
        """Note that a file is about to be linked, so that it is removed if this process does not get to commit it."""
        words = self.memory.words
        words[_ADDING_SLOT_WORD] = slot + 1
        words[_ADDING_WORD] = file

    def end_adding(self) -> None:
        """The file is committed, or it was removed again."""
        self.memory.words[_ADDING_WORD] = 0

    def end_removing(self) -> None:
        """Unlink the file that the last commit removed."""
        words = self.memory.words
        if removing := words[_REMOVING_WORD]:
            self._unlink(removing)
            words[_REMOVING_WORD] = 0

    def _unlink(self, file: int) -> None:
        """Remove an object's file, here or in the spill directory."""
        self.directory.unlink(file_name(file))
        if self.settings.spill is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self.spill_path, file_name(file)))

    @property
    def spill_path(self) -> str:
        """The directory that objects of this store are spilled to."""
        return os.path.join(self.settings.spill or "", self.store_id.hex())

    def grow(self) -> None:
        """Give the file more slots; called under the lock, when all are in use."""
        count = self.memory.slots
        more = min(count, _MOST_NEW_SLOTS)
        end = p.SLOTS + count * p.SLOT_SIZE
        try:
            os.posix_fallocate(self.control_fd, end, more * p.SLOT_SIZE)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(
                    error.errno,
                    f"no room for the catalog of {self.directory.name!r} to grow beyond {count} objects: "
                    f"{more * p.SLOT_SIZE} bytes are needed, {self.directory.free()} are free",
                ) from None
            raise storage_error(error, "extend the control file of", self.directory.name) from None
        self.memory.words[_SLOT_WORD] = count + more
        self.memory = self._map()

    def own_number(self, transaction: Transaction) -> int:
        """The number of this process as an owner of objects, for as long as it lives."""
        if not self.owner:
            transaction.state[p.OWNER] += 1
            number = transaction.state[p.OWNER]
            try_lock(self.commit_fd, p.OWNER_LOCKS + number, True)
            self.owner = number
        return self.owner

    def owner_of(self, number: int) -> int | None:
        """The process with that number, if it lives."""
        if number == self.owner:
            return os.getpid()
        found = holder(self.commit_fd, p.OWNER_LOCKS + number) if self.writable else None
        return None if found is None else found[0]

    def reload(self, want: Any = None) -> None:
        """Read the settings again, and refuse others than them."""
        self._read_settings()
        if want is not None:
            check_settings(self.settings, want, self.directory.name)

    def configure(self, settings: Settings) -> None:
        """Write other settings; called under the lock."""
        header = pack_header(settings, self.store_id, self.modulus)
        transaction = Transaction(self)
        for start, end in ((_SETTINGS, p.FIXED.size), (_SPILL, _SPILL + 1024)):
            transaction.put(start, header[start:end])
        transaction.commit()
        self._read_settings()


class Transaction:
    """Changes to the catalog that are made at once; used under the lock.

    Methods note what is to change; :meth:`commit` does it.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.memory = catalog.memory
        self.state = catalog.state()
        self._links: dict[int, int] = {}
        self._pieces: list[tuple[int, bytes]] = []
        self._excluded: list[int] = []

    def put(self, offset: int, data: bytes) -> None:
        """Other bytes at a place of the header."""
        self._pieces.append((offset, data))

    # Chains and lists: an ``at`` is the place of a 32-bit link in the file.

    def _link(self, at: int) -> int:
        found = self._links.get(at)
        return self.memory.ints[at >> 2] if found is None else found

    def _head(self, name_hash: int) -> int:
        return p.SLOTS + bucket_of(name_hash, self.state[p.BUCKETS]) * p.SLOT_SIZE + p.HEAD

    def _chain(self, entry_slot: int, name_hash: int) -> None:
        head = self._head(name_hash)
        self._links[next_of(entry_slot)] = self._link(head)
        self._links[head] = entry_slot + 1

    def _unchain(self, slot: int, name_hash: int) -> None:
        self._cut(self._head(name_hash), slot)

    def _cut(self, at: int, slot: int) -> None:
        """Take a slot out of the list whose head is at ``at``."""
        for _ in range(self.memory.slots + 1):
            found = self._link(at)
            if found == slot + 1:
                self._links[at] = self._link(next_of(slot))
                return
            if not 0 < found <= self.memory.slots:
                break
            at = next_of(found - 1)
        raise InvalidData(f"the catalog of {self.catalog.directory.name!r} is damaged: slot {slot} is not in its chain")

    def take_slot(self) -> int:
        """A slot that is free; the file grows where there is none."""
        self.sweep(_SWEPT)
        state = self.state
        if free := state[p.FREE]:
            state[p.FREE] = self._link(next_of(free - 1))
            return free - 1
        slot = state[p.BUCKETS]
        if slot == self.memory.slots:
            self.catalog.grow()
            self.memory = self.catalog.memory
            state[p.SLOT_COUNT] = self.memory.slots
        state[p.BUCKETS] = slot + 1
        if slot:
            self._split(slot)
        return slot

    def _split(self, bucket: int) -> None:
        """Move what belongs to a new bucket out of the chain of its parent."""
        bits = bucket.bit_length()
        mask = (1 << bits) - 1
        at = p.SLOTS + (bucket ^ (1 << (bits - 1))) * p.SLOT_SIZE + p.HEAD
        moved = p.SLOTS + bucket * p.SLOT_SIZE + p.HEAD
        words = self.memory.words
        steps = 0
        while found := self._link(at):
            steps += 1
            if found > self.memory.slots or steps > self.memory.slots:
                raise InvalidData(f"the catalog of {self.catalog.directory.name!r} is damaged: a chain leads to {found}")
            following = next_of(found - 1)
            if words[_FIRST_GENERATION + (found - 1) * _SLOT_WORDS + 1] & mask == bucket:
                self._links[at] = self._link(following)
                self._links[following] = self._link(moved)
                self._links[moved] = found
            else:
                at = following

    def sweep(self, limit: int) -> int:
        """Free removed slots that nobody has attached any more, looking at up to ``limit``; how many were freed."""
        at = p.HEADER["removed"][0]
        here = self.state[p.REMOVED]
        previous: int | None = None
        freed = 0
        for _ in range(limit):
            if not 0 < here <= self.memory.slots:
                break
            slot = here - 1
            following = self._link(next_of(slot))
            if self.catalog.pins.attached(slot):
                previous = next_of(slot)
            else:
                if previous is None:
                    self.state[p.REMOVED] = following
                else:
                    self._links[previous] = following
                base = _FIRST_GENERATION + slot * _SLOT_WORDS
                self.state[p.REMOVED_BYTES] -= min(self.memory.words[base + 4], self.state[p.REMOVED_BYTES])
                self._free(slot)
                freed += 1
            here = following
        return freed

    def _free(self, slot: int) -> None:
        self._pieces.append((p.SLOTS + slot * p.SLOT_SIZE, bytes(96)))
        self._links[next_of(slot)] = self.state[p.FREE]
        self.state[p.FREE] = slot + 1

    # What happens to objects.

    def reserve(self, name: bytes, nbytes: int) -> int:
        """A draft: a slot whose bytes are counted while its object is written."""
        slot = self.take_slot()
        self.state[p.FILE] += 1
        draft = Entry(slot, 0, 0, self.state[p.FILE], 0, nbytes, time.time_ns(), 0, 0, 0, 0, p.DRAFT, 0, name)
        self._write(draft)
        self.state[p.DRAFT_BYTES] += nbytes
        return slot

    def drop_draft(self, slot: int, nbytes: int) -> None:
        """Free the slot of a draft."""
        self.state[p.DRAFT_BYTES] -= min(nbytes, self.state[p.DRAFT_BYTES])
        self._free(slot)

    def insert(self, entry: Entry, replaced: Entry | None, used: int) -> Entry:
        """A new object, in the place of another one of its name."""
        state = self.state
        if replaced is not None:
            self.remove(replaced, told=False)
        state[p.GENERATION] += 1
        slot, _, _, *numbers, _, flags, name = entry
        made = Entry(slot, state[p.GENERATION], self.catalog.hash(name), *numbers, p.LIVE, flags, name)
        self._write(made, used)
        self._chain(made.slot, made.hash)
        state[p.OBJECTS] += 1
        state[p.SPILLED_BYTES if made.spilled else p.BYTES] += made.allocated
        state[p.PUTS] += 1
        self._tell(p.PUBLISHED, made)
        return made

    def remove(self, entry: Entry, told: bool = True, evicted: bool = False) -> None:
        """An object goes; its file is unlinked by :meth:`commit`. One per transaction."""
        state = self.state
        self._unchain(entry.slot, entry.hash)
        state[p.OBJECTS] -= 1
        counter = p.SPILLED_BYTES if entry.spilled else p.BYTES
        state[counter] -= min(entry.allocated, state[counter])
        state[p.REMOVING] = entry.file
        if evicted:
            state[p.EVICTIONS] += 1
        elif entry.expired:
            state[p.EXPIRED] += 1
        # A reader that pins the slot after this was asked would pin the next object there: nobody may until it is done.
        pins = self.catalog.pins
        alone = evicted or pins.exclude(entry.slot)
        if alone and not evicted:
            self._excluded.append(entry.slot)
        if not alone or pins.inherited(entry.slot):
            held = 0 if entry.spilled else entry.allocated
            gone = Entry(entry.slot, 0, 0, entry.file, entry.size, held, 0, 0, 0, 0, 0, p.GONE, 0, b"")
            self._pieces.append((p.SLOTS + entry.slot * p.SLOT_SIZE, gone.pack()))
            self._links[next_of(entry.slot)] = state[p.REMOVED]
            state[p.REMOVED] = entry.slot + 1
            state[p.REMOVED_BYTES] += held
        else:
            self._free(entry.slot)
        if told:
            self._tell(p.DELETED, entry)

    def rename(self, entry: Entry, name: bytes, replaced: Entry | None) -> Entry:
        """An object gets another name, and with it another generation."""
        if replaced is not None:
            self.remove(replaced, told=False)
        self._unchain(entry.slot, entry.hash)
        self._tell(p.DELETED, entry)
        self.state[p.GENERATION] += 1
        made = entry._replace(generation=self.state[p.GENERATION], hash=self.catalog.hash(name), name=name)
        self._pieces.append((p.SLOTS + entry.slot * p.SLOT_SIZE, bytes(8)))  # nobody reads it under both names
        self._write(made)
        self._chain(made.slot, made.hash)
        self._tell(p.PUBLISHED, made)
        return made

    def spill(self, entry: Entry, file: int, allocated: int) -> None:
        """An object lies in the spill directory from now on, in another file; that here is unlinked by :meth:`commit`."""
        state = self.state
        state[p.BYTES] -= min(entry.allocated, state[p.BYTES])
        state[p.SPILLED_BYTES] += allocated
        state[p.SPILLS] += 1
        state[p.REMOVING] = entry.file
        self.update(entry._replace(file=file, flags=entry.flags | p.SPILLED, allocated=allocated))

    def update(self, entry: Entry) -> None:
        """Other numbers for a live object: its flags, or when it expires."""
        self._pieces.append((p.SLOTS + entry.slot * p.SLOT_SIZE, entry.pack()))

    def _write(self, entry: Entry, used: int | None = None) -> None:
        at = p.SLOTS + entry.slot * p.SLOT_SIZE
        self._pieces.append((at + p.NAME, entry.name.ljust(256, b"\0")))
        fields = entry.pack()
        self._pieces.append((at, fields if used is None else fields + used.to_bytes(8, "little")))

    def _tell(self, kind: int, entry: Entry) -> None:
        self.state[p.EVENTS] += 1
        number = self.state[p.EVENTS]
        record = p.EVENT_STRUCT.pack(number, entry.generation, kind, len(entry.name)) + entry.name.ljust(264, b"\0")
        self._pieces.append((p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE, record))

    def commit(self) -> None:
        """Do it: journal, apply, wake those who wait; then unlink what was removed."""
        try:
            self._commit()
        finally:
            for slot in self._excluded:
                self.catalog.pins.admit(slot)

    def _commit(self) -> None:
        catalog, memory, state = self.catalog, self.memory, self.state
        number = state[p.JOURNAL] = state[p.JOURNAL] + 1
        pieces = self._pieces
        for at, link in self._links.items():
            pieces.append((at, _LINK.pack(link)))
        pieces.append((p.STATE_OFFSET, p.STATE_STRUCT.pack(*state)))
        parts = []
        for offset, data in pieces:
            size = len(data)
            parts += p.PIECE.pack(offset, size, 0), data, _PADDING[size & 7]
        payload = b"".join(parts)
        if len(payload) > p.JOURNAL_SIZE - p.JOURNAL_HEAD.size:
            raise InvalidData(f"the catalog of {catalog.directory.name!r} is damaged: a commit of {len(payload)} bytes")
        data, words = memory.bytes, memory.words
        area = p.JOURNALS[number & 1]
        start = area + p.JOURNAL_HEAD.size
        data[start : start + len(payload)] = payload
        checksum = zlib.crc32(payload, zlib.crc32(number.to_bytes(8, "little")))
        p.JOURNAL_HEAD.pack_into(data, area, number, len(payload), checksum)
        if catalog.settings.durable:
            try:
                os.fdatasync(catalog.control_fd)
            except OSError as error:
                data[area : area + 16] = bytes(16)  # or the next who has the lock would do what this call says failed
                raise storage_error(error, "write the journal of", catalog.directory.name) from None
        words[_SEQUENCE] += 1
        for offset, piece in pieces:
            data[offset : offset + len(piece)] = piece
        words[_SEQUENCE] += 1
        os.pwrite(catalog.pins_fd, state[p.EVENTS].to_bytes(8, "little"), 0)
        if state[p.REMOVING]:
            catalog.end_removing()


def bucket_of(name_hash: int, buckets: int) -> int:
    """The bucket of a hash, among so many buckets."""
    size = 1 << (buckets - 1).bit_length()
    bucket = name_hash & (size - 1)
    return bucket if bucket < buckets else bucket - (size >> 1)


def next_of(slot: int) -> int:
    """Where the link of a slot to the next one is."""
    return p.SLOTS + slot * p.SLOT_SIZE + p.NEXT


def read_slot(data: memoryview, slot: int, name: bytes | None = None) -> Entry | None:
    """The live object of a slot, if it is whole, and has that name if one is given."""
    at = p.SLOTS + slot * p.SLOT_SIZE
    raw = bytes(data[at : at + p.SLOT_SIZE])
    fields = p.SLOT_STRUCT.unpack_from(raw)
    length = fields[12]
    if fields[10] != p.LIVE or not 0 < length <= p.NAME_MAX:
        return None
    found = raw[p.NAME : p.NAME + length]
    if name is not None and found != name:
        return None
    if zlib.crc32(found, zlib.crc32(raw[: p.CRC_OFFSET])) != int.from_bytes(raw[p.CRC_OFFSET : p.CRC_OFFSET + 4], "little"):
        return None
    return Entry(slot, *fields[:12], found)


def replay(memory: Memory) -> None:
    """Apply the commit that was written down and not applied, if there is one; the lock is held, or nobody else sees it."""
    data, words = memory.bytes, memory.words
    number = words[p.STATE_OFFSET >> 3] + 1
    area = p.JOURNALS[number & 1]
    written, length, checksum = p.JOURNAL_HEAD.unpack_from(data, area)
    if written == number and length <= p.JOURNAL_SIZE - p.JOURNAL_HEAD.size:
        apply_journal(memory, area)
    if words[_SEQUENCE] & 1:
        words[_SEQUENCE] += 1


def apply_journal(memory: Memory, area: int) -> None:
    """Apply the commit in a journal area, if it is whole."""
    data, words = memory.bytes, memory.words
    written, length, checksum = p.JOURNAL_HEAD.unpack_from(data, area)
    start = area + p.JOURNAL_HEAD.size
    if length > p.JOURNAL_SIZE - p.JOURNAL_HEAD.size:
        return
    payload = bytes(data[start : start + length])
    if zlib.crc32(payload, zlib.crc32(written.to_bytes(8, "little"))) != checksum:
        return
    if not words[_SEQUENCE] & 1:
        words[_SEQUENCE] += 1
    at = 0
    while at + p.PIECE.size <= length:
        offset, size, _ = p.PIECE.unpack_from(payload, at)
        at += p.PIECE.size
        if _SETTINGS <= offset and offset + size <= len(data) and at + size <= length:
            data[offset : offset + size] = payload[at : at + size]
        at += size + -size % 8


# --- the stores that this process has open --------------------------------------------------------------------------

_open: dict[tuple[int, int], Catalog] = {}
_users: dict[int, int] = {}
_mutex = threading.RLock()


def open_catalog(where: Location, want: Wanted, trust: bool, create: bool) -> Catalog:
    """The catalog of a store; Store objects of one directory share one, as closing a second would drop its locks."""
    directory = open_directory(where, want, trust, create)
    with _mutex:
        _retire()
        catalog = _open.get(directory.key)
        try:
            if catalog is None or not os.fstat(catalog.control_fd).st_nlink:
                catalog = Catalog(directory)
            else:
                os.close(directory.fd)
            check_trust(catalog.directory, catalog.settings)
            catalog.reload(want)
        except BaseException:
            if catalog is None or catalog.directory is not directory:
                with suppress(OSError):
                    os.close(directory.fd)
            raise
        _open[directory.key] = catalog
        _users[id(catalog)] = _users.get(id(catalog), 0) + 1
        return catalog


def close_catalog(catalog: Catalog) -> None:
    """One Store object less uses it."""
    with _mutex:
        _users[id(catalog)] = _users.get(id(catalog), 1) - 1
        _retire()


def _retire() -> None:
    """Close the catalogs that no Store object and no array needs, and whose objects this process does not own."""
    for key, catalog in list(_open.items()):
        if _users.get(id(catalog), 0) < 1 and not catalog.pins and not catalog.owner:
            del _open[key]
            _users.pop(id(catalog), None)
            catalog.close()
            os.close(catalog.directory.fd)


def _after_fork() -> None:
    global _mutex
    _mutex = threading.RLock()
    for catalog in list(_open.values()):
        catalog.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
