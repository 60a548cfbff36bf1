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
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any

import numpy as np

from shmarrow.errors import Closed, InvalidArgument, InvalidData, ShmarrowError, StorageError, StoreFull, storage_error
from shmarrow.segment import Location
from shmarrow.segment.host import in_memory
from shmarrow.segment.record_locks import holder, try_lock
from shmarrow.store import protocol as p
from shmarrow.store.directory import Directory, Trust, check_trust, open_directory, retried
from shmarrow.store.locks import CommitLock, Exclusive, Pins
from shmarrow.store.protocol import file_name
from shmarrow.store.settings import (
    Settings,
    Wanted,
    check_settings,
    destroyed,
    pack_header,
    read_settings,
    this_boot,
)
from shmarrow.store.slots import (
    FIRST_SLOT,
    SEQUENCE,
    SETTINGS,
    SLOT_WORDS,
    Entry,
    Memory,
    bucket_of,
    clock,
    read_slot,
    replay,
)
from shmarrow.store.spill import open_spill, remove_spill
from shmarrow.store.transaction import Transaction

_SLOT_WORD = p.HEADER["slots"][0] >> 3
_BUCKET_WORD = p.HEADER["buckets"][0] >> 3
_ADDING_WORD = p.HEADER["adding"][0] >> 3
_ADDING_SLOT_WORD = p.HEADER["adding_slot"][0] >> 3
_REMOVING_WORD = p.HEADER["removing"][0] >> 3
_SPILL = p.HEADER["spill_path"][0]
_BOOT = p.HEADER["boot_id"][0]
_EVENTS_WORD = p.HEADER["events"][0] >> 3
_GENERATION_WORD = p.HEADER["generation"][0] >> 3
_USED = p.USED >> 3
_NONSENSE = (struct.error, ArithmeticError, LookupError, ValueError)
"""What following numbers that make no sense ends with, under the lock."""
_TRIES = 5
_CHECKED = p.CRC_OFFSET + 4
_MOST_KNOWN = 4096
_SPARSE, _SPARSE_FREE = 1024, 1 << 26
"""A control file may have so many times the bytes that it takes, on a file system that compresses, and these."""
_HASH_FACTOR = p.HASH_FACTOR
_SLOT_INTS = p.SLOT_SIZE >> 2
_FIRST_HEAD, _FIRST_NEXT = (p.SLOTS + p.HEAD) >> 2, (p.SLOTS + p.NEXT) >> 2
_FIRST_HASH = (p.SLOTS + p.SLOT["hash"][0]) >> 3
_STUCK_SECONDS = 0.1
_MOST_NEW_SLOTS = 8192
_SNAPSHOT_ROWS, _AT_ONCE = 1 << 16, 1 << 12


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
    closing : list of int
        Descriptors of large files that were removed: the last one of a file gives back its memory, which takes a while
        and is done when the lock is released.
    swept : int
        One more than the removed slot that was looked at last, 0 for none.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.forked = False
        self._fds: dict[int, tuple[int, int]] = {}
        self.volatile = in_memory(directory.fd)
        try:
            self.control_fd, self.writable = self._open(p.CONTROL, None)
            self._read_settings()
            self.pins_fd, _ = self._open(p.PINS, self.writable)
            self.commit_fd = self._open(p.COMMIT, True)[0] if self.writable else -1
            self._spill: Directory | None = None
            self._of_this_boot = os.pread(self.control_fd, 16, _BOOT) == this_boot()
            self.memory = self._map()
        except BaseException:
            self.close()
            raise
        self.pins = Pins(self.pins_fd)
        self.lock = CommitLock(self.commit_fd, directory.name)
        self.users = self.owner = 0
        self.hits = self.misses = 0
        self._flushed = time.monotonic()
        self._stuck = -1, self.memory
        self.exclusive = Exclusive(self.commit_fd)
        self.checked: set[int] = set()
        self.victims: deque[Any] = deque()
        self.closing: list[int] = []
        self._known: dict[int, tuple[bytes, Entry]] = {}
        self.swept = 0
        self._held = _Held(self)
        if not self._of_this_boot:
            try:
                self._begin_boot()
            except BaseException:
                self.close()
                raise

    def _begin_boot(self) -> None:
        """Have the catalog rebuilt, as nobody did since the machine was started."""
        if not self.writable:
            raise StorageError(
                errno.EACCES,
                f"cannot open the store {self.directory.name!r}: it has not been opened since the machine was started, "
                "and this process may only read it; open it once in a process that may write",
            )
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
        self._fds[fd] = _identity(fd)
        return fd, writable is not False

    def _read_settings(self) -> None:
        where = self.directory.name
        header = os.pread(self.control_fd, p.JOURNALS[0], 0)
        if len(header) < p.JOURNALS[0]:
            raise InvalidData(f"the control file of {where!r} has {len(header)} bytes, expected at least {p.SLOTS}")
        self.settings, self.store_id, self.modulus = read_settings(header, where)
        self._settings_read = _settings_in(header)

    def _map(self) -> Memory:
        """Map as many slots as the header says that there are; after a reboot as many as the file has."""
        where = self.directory.name
        status = os.fstat(self.control_fd)
        found = status.st_size
        count = (
            int.from_bytes(os.pread(self.control_fd, 8, _SLOT_WORD << 3), "little")
            if self._of_this_boot
            else (found - p.SLOTS) // p.SLOT_SIZE
        )
        size = p.SLOTS + count * p.SLOT_SIZE
        if not 1 <= count < 1 << 31 or found < size:
            raise InvalidData(
                f"the control file of {where!r} is damaged: {count} slots take {size} bytes, it has {found}"
            )
        if status.st_blocks * 512 < size:
            self._fill(status.st_blocks * 512, size)
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if self.writable else 0)
        data = memoryview(mmap.mmap(self.control_fd, size, prot=prot))
        return Memory(data, data.cast("Q"), data.cast("I"), count)

    def _fill(self, have: int, size: int) -> None:
        """Fill the holes of a control file that was copied: touching one in a full file system ends the process."""
        where = self.directory.name
        if size > have * _SPARSE + _SPARSE_FREE or (self.volatile and not self.writable):
            raise InvalidData(
                f"the control file of {where!r} has holes: {have} of {size} bytes are there; copy it without making "
                "holes (cp --sparse=never)"
            )
        try:
            os.posix_fallocate(self.control_fd, 0, size) if self.writable else None
        except OSError as error:
            raise storage_error(error, "fill the holes in the control file of", where) from None

    def close(self) -> None:
        """Close its descriptors, which drops all locks of this process on the store."""
        for fd in self._fds:
            with suppress(OSError):
                os.close(fd)
        self._fds.clear()

    @property
    def inherited(self) -> bool:
        """Whether its descriptors are what they were: a forked child may have closed them, and opened others."""
        try:
            everything = {**self._fds, self.directory.fd: self.directory.key}
            return not self.forked or all(_identity(fd) == identity for fd, identity in everything.items())
        except OSError:
            return False

    def check_inherited(self) -> None:
        """Refuse to use a store in a forked child that closed its descriptors."""
        if not self.inherited:
            raise Closed(
                f"the store {self.directory.name!r} was open when process {os.getpid()} was forked, and closed "
                "its descriptors then; open it again"
            )

    def after_fork(self) -> None:
        """Called in a forked child."""
        self.owner = self.hits = self.misses = 0
        self.forked = True
        self.exclusive.after_fork()
        self.lock.after_fork()
        self.pins.after_fork()

    # --- looking --------------------------------------------------------------------------------------------------

    def hash(self, name: bytes) -> int:
        """The hash of a name."""
        return int.from_bytes(name, "big") * p.HASH_FACTOR % self.modulus

    def find(self, name: bytes) -> Entry | None:
        """The live object of a name, also one that has expired; None if there is none. Takes no lock."""
        memory = self.memory
        while True:
            before = memory.words[SEQUENCE]
            if memory.words[_SLOT_WORD] > memory.slots:
                memory = self.memory = self._map()
            found = self._walk(memory, name)
            if found is not None or (not before & 1 and memory.words[SEQUENCE] == before):
                return found
            if before & 1:
                memory = self._settled()

    def _settled(self) -> Memory:
        """The whole control file, when no commit is going on; what a killed writer left is repaired."""
        stuck = 0.0
        while True:
            memory = self.memory
            if memory.words[_SLOT_WORD] > memory.slots:
                memory = self.memory = self._map()
            if not (sequence := memory.words[SEQUENCE]) & 1:
                return memory
            now = time.monotonic()
            stuck = stuck or now
            if now - stuck > _STUCK_SECONDS or sequence == self._stuck[0]:
                return self._repaired()
            time.sleep(0)

    def _walk(self, memory: Memory, name: bytes) -> Entry | None:
        data, words, ints, slots = memory
        buckets = words[_BUCKET_WORD]
        if buckets > slots:
            buckets = slots
        if not buckets:
            return None
        wanted = int.from_bytes(name, "big") * _HASH_FACTOR % self.modulus  # as in `hash`, one call less
        slot = ints[bucket_of(wanted, buckets) * _SLOT_INTS + _FIRST_HEAD]
        left = slots
        while 0 < slot <= slots and left:
            slot -= 1
            if words[slot * SLOT_WORDS + _FIRST_HASH] == wanted:
                start = slot * p.SLOT_SIZE + p.SLOTS
                head = bytes(data[start : start + _CHECKED])
                known = self._known.get(slot)
                if known is not None and known[0] == head and known[1].name == name:
                    return known[1]
                found = read_slot(data, slot, name)
                if found is not None:
                    if len(self._known) >= _MOST_KNOWN:
                        self._known.clear()
                    self._known[slot] = head, found
                    return found
            slot = ints[slot * _SLOT_INTS + _FIRST_NEXT]
            left -= 1
        return None

    def _repaired(self) -> Memory:
        """The memory after the commit of a writer that was killed: repaired, or in private pages if it may not be."""
        if self.writable:
            with self.locked():
                return self.memory
        sequence = self.memory.words[SEQUENCE]
        if sequence == self._stuck[0]:
            return self._stuck[1]
        size = p.SLOTS + self.memory.slots * p.SLOT_SIZE
        pages = mmap.mmap(self.control_fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        data = memoryview(pages)
        memory = Memory(data, data.cast("Q"), data.cast("I"), self.memory.slots)
        replay(memory)
        memory.words[_SLOT_WORD] = min(memory.words[_SLOT_WORD], memory.slots)
        if sequence & 1:
            self._stuck = sequence, memory
        return memory

    def alive(self, entry: Entry) -> bool:
        """Whether the slot still has that object."""
        found = self.memory.words[FIRST_SLOT + entry.slot * SLOT_WORDS] == entry.generation
        # Who may only read finds what a killed writer left half done in private pages.
        return bool(found) or (not self.writable and self.find(entry.name) == entry)

    def mark_used(self, entry: Entry) -> None:
        """Note that an object was used now; eviction begins with those used longest ago."""
        if self.writable:
            self.memory.words[FIRST_SLOT + entry.slot * SLOT_WORDS + _USED] = time.monotonic_ns()

    def used(self, slot: int) -> int:
        """When an object was used, by the clock of :meth:`mark_used`."""
        return int(self.memory.words[FIRST_SLOT + slot * SLOT_WORDS + _USED])

    @property
    def exists(self) -> bool:
        """Whether the store was not destroyed."""
        return bool(self.memory.words[0] != p.DESTROYED and os.fstat(self.control_fd).st_nlink)

    def check_exists(self) -> None:
        """Raise an error if the store was destroyed."""
        if not self.exists:
            raise destroyed(self.directory.name)

    @property
    def evicts(self) -> bool:
        """Whether objects make room for others: the order of use matters then."""
        return self.settings.eviction == "lru" or self.settings.spill is not None

    def state(self) -> list[int]:
        """The header's state, as it is now."""
        return list(p.STATE_STRUCT.unpack_from(self.memory.bytes, p.STATE_OFFSET))

    def snapshot(self, *fields: str, expired: bool = True) -> Iterator[dict[str, Any]]:
        """The live objects, in pieces of up to 65,536: their ``slot``, ``generation`` and the asked fields.

        Each is an array, ``name`` a list of str. Takes no lock: objects that come or go meanwhile may be in it or not,
        but of those that are replaced or renamed meanwhile, one name is in it. Those whose time is over are left out
        unless they are ``expired``.
        """
        memory = self._settled()
        if "name" not in fields:
            yield from self._pieces(memory, fields, expired)
            return
        for _ in range(_TRIES):
            touched = _Touched(memory)
            pieces = list(self._pieces(memory, fields, expired, touched))
            found: list[Entry] = []
            for _ in range(_TRIES):  # what was touched meanwhile is looked up, all at one moment
                memory = self._settled()
                latest = touched.look(memory)
                found = [entry for entry in map(self.find, map(str.encode, touched.names)) if entry is not None]
                if memory.words[_EVENTS_WORD] == latest:
                    break
            if not touched.lost:
                break
        for piece in pieces:
            yield _kept(piece, [name not in touched.names for name in piece["name"]]) if touched.names else piece
        for entry in found:
            if expired or not entry.expired:
                values = {**entry._asdict(), "used": self.used(entry.slot), "name": entry.name.decode()}
                piece = {field: np.array([values[field]]) for field in ("slot", "generation", *fields)}
                yield {**piece, "name": [values["name"]]}

    def _pieces(
        self, memory: Memory, fields: tuple[str, ...], expired: bool, touched: _Touched | None = None
    ) -> Iterator[dict[str, Any]]:
        last = np.uint64(memory.words[_GENERATION_WORD])
        count = min(memory.words[_BUCKET_WORD], memory.slots)
        if not count:
            return
        words = np.frombuffer(memory.bytes, "<u8", count * SLOT_WORDS, p.SLOTS).reshape(count, SLOT_WORDS)
        for start in range(0, count, _SNAPSHOT_ROWS):
            part = words[start : start + _SNAPSHOT_ROWS]
            copied = np.empty((len(part), p.HEAD_WORDS), "<u8")
            for low in range(0, len(part), _AT_ONCE):  # each slot is read once, and stays in the cache for its fields
                copied[low : low + _AT_ONCE] = part[low : low + _AT_ONCE, : p.HEAD_WORDS]
            heads = copied.view(p.HEAD_DTYPE)[:, 0]
            live = (heads["state"] == p.LIVE) & (heads["generation"] - np.uint64(1) < last)
            if not expired:
                live &= (heads["expires"] == 0) | (heads["expires"] > clock())
            rows = np.flatnonzero(live)
            found: dict[str, Any] = {name: heads[name][rows] for name in ("generation", *fields) if name != "name"}
            found["slot"] = rows + start
            if "name" in fields:
                longest = min(int(heads["name_length"][rows].max(initial=1)), p.NAME_MAX)
                every = np.ndarray((count,), f"S{longest}", memory.bytes, p.SLOTS + p.NAME, (p.SLOT_SIZE,))
                names = every[found["slot"]].tolist()
                same = part[rows, 0] == found["generation"]
                if touched is not None:
                    touched.look(memory)  # before the events that tell of it are overwritten by others
                found["name"], proper = _decoded(names)
                if proper is not None:
                    same &= proper
                if not same.all():  # the slot has another name by now, or none that can be one
                    found = _kept(found, same)
            yield found

    def entry(self, slot: int) -> Entry | None:
        """The live object of a slot; None if there is none."""
        return read_slot(self.memory.bytes, slot) if slot < self.memory.slots else None

    # --- changing -------------------------------------------------------------------------------------------------

    def locked(self) -> AbstractContextManager[None]:
        """Hold the commit lock; what a killed process left is repaired first."""
        self.check_writable()
        return self._held

    def check_writable(self) -> None:
        """Refuse to change a store that this process may only read."""
        if not self.writable:
            raise StorageError(
                errno.EACCES, f"cannot change the store {self.directory.name!r}: this process may only read it"
            )

    def _repair(self) -> None:
        if self.memory.words[0] == p.DESTROYED:
            raise destroyed(self.directory.name)
        memory = self.memory
        words = memory.words
        if not self._of_this_boot:
            if bytes(memory.bytes[_BOOT : _BOOT + 16]) != this_boot():
                from shmarrow.store.rebuild import rebuild

                rebuild(self)
            self._of_this_boot = True
        if words[_SLOT_WORD] > memory.slots:
            memory = self.memory = self._map()
            words = memory.words
        if replay(memory):  # its writer did not get to wake those who wait
            self.wake(words[p.STATE_OFFSET // 8 + p.EVENTS])
        if _settings_in(memory.bytes) != self._settings_read:
            self._read_settings()
        if adding := words[_ADDING_WORD]:
            slot = words[_ADDING_SLOT_WORD] - 1
            found = read_slot(memory.bytes, slot) if 0 <= slot < memory.slots else None
            if found is None or found.file != adding:
                self._unlink(adding)
            words[_ADDING_WORD] = 0
        self.end_removing()

    def wake(self, events: int) -> None:
        """Wake those who wait for an event; told how many there were."""
        os.pwrite(self.pins_fd, events.to_bytes(8, "little"), 0)

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
        with suppress(OSError):
            if self.settings.spill is not None:
                self.spill_directory().unlink(file_name(file))

    def spill_directory(self, make: bool = False) -> Directory:
        """Where objects are spilled to; it is made only for a caller who named it, and not where it has objects."""
        if _settings_in(self.memory.bytes) != self._settings_read:
            self._read_settings()
        if self._spill is None or self._spill.path != self.spill_path:
            make = make and not self.state()[p.SPILLED_BYTES]  # or it is not mounted
            self._spill = open_spill(self.directory, self.settings, self.store_id, make)
            self._fds[self._spill.fd] = self._spill.key
        return self._spill

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

    def flush_counters(self, pause: float = 0) -> None:
        """Add what this process counted to what the store has, unless it did so in the last ``pause`` seconds.

        Counting makes nobody wait: where another one has the lock, it is put off.
        """
        now = time.monotonic()
        if self.writable and (self.hits or self.misses) and now - self._flushed >= pause and self.inherited:
            with suppress(ShmarrowError, OSError):
                if self.lock.free():
                    self._flushed = now
                    with self.locked():
                        Transaction(self).commit()

    def destroy(self) -> None:
        """Remove all files of the store, and its directory."""
        directory = self.directory
        with self.locked():
            memory = self.memory
            count = memory.words[_BUCKET_WORD]
            memory.words[0] = p.DESTROYED  # first, as an empty store would be no error
            memory.words[_BUCKET_WORD] = 0  # from here on nobody finds anything
        slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, min(count, memory.slots), p.SLOTS)
        for file in slots["file"][(slots["state"] == p.LIVE) | (slots["state"] == p.DRAFT)].tolist():
            self._unlink(file)
        if self.settings.spill is not None:
            with suppress(OSError):
                spill = self.spill_directory()
                remove_spill(spill.fd, spill.path)
        for file in (p.PINS, p.COMMIT, p.CONTROL):  # when the last one goes, somebody else may make a store here
            directory.unlink(file)
        try:
            if os.path.samestat(os.lstat(directory.path), os.fstat(directory.fd)):
                os.rmdir(directory.path)
        except OSError as error:
            if not directory.has(p.CONTROL):
                raise storage_error(error, "remove the directory of the store", directory.name) from None

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
        known = self.writable and number < p.OWNER_LOCKS  # beyond begin the locks of drafts
        found = holder(self.commit_fd, p.OWNER_LOCKS + number) if known else None
        return None if found is None else found[0]

    def reload(self, want: Any = None) -> None:
        """Read the settings again, and refuse others than them."""
        self._read_settings()
        if want is not None:
            check_settings(self.settings, want, self.directory.name)

    def configure(self, settings: Settings) -> None:
        """Write other settings; called under the lock."""
        if settings.spill != self.settings.spill:
            if spilled := self.state()[p.SPILLED_BYTES]:
                raise InvalidArgument(
                    f"cannot change the spill directory of {self.directory.name!r}: {spilled} bytes of objects are in "
                    f"{self.settings.spill!r}; delete them first"
                )
            if settings.spill is not None:
                os.close(open_spill(self.directory, settings, self.store_id, make=True).fd)
        header = pack_header(settings, self.store_id, self.modulus)
        transaction = Transaction(self)
        for start, end in ((SETTINGS, p.FIXED.size), (_SPILL, _SPILL + 1024)):
            transaction.put(start, header[start:end])
        transaction.commit()
        self._read_settings()


def _settings_in(header: bytes | memoryview) -> bytes:
    """The bytes of a header that are settings."""
    return bytes(header[SETTINGS : p.FIXED.size]) + bytes(header[_SPILL : _SPILL + 1024])


class _Touched:
    """The names in events from now on.

    Attributes
    ----------
    names : set of str
        Those that :meth:`look` found.
    lost : bool
        Whether there were more events in between than are kept.
    """

    def __init__(self, memory: Memory) -> None:
        self.names: set[str] = set()
        self.lost = False
        self._last = memory.words[_EVENTS_WORD]

    def look(self, memory: Memory) -> int:
        """Note the names of events since the last time; the number of the last event."""
        latest = memory.words[_EVENTS_WORD]
        for number in range(max(self._last, latest - p.EVENT_COUNT) + 1, latest + 1):
            at = p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE
            found, _, _, length = p.EVENT_STRUCT.unpack_from(memory.bytes, at)
            at += p.EVENT_STRUCT.size
            self.names.add(bytes(memory.bytes[at : at + min(length, p.NAME_MAX)]).decode(errors="ignore"))
            self.lost |= found != number
        self.lost |= latest - self._last > p.EVENT_COUNT
        self._last = latest
        return int(latest)


def _decoded(names: list[bytes]) -> tuple[list[str], Any]:
    """Names from the catalog, and which of them are names; None for all."""
    with suppress(UnicodeDecodeError):
        found = b"\0".join(names).decode().split("\0")
        if len(found) == len(names) and "" not in found:
            return found, None
    found = [name.decode(errors="ignore") for name in names]
    proper = [each.encode() == name and each and "\0" not in each for each, name in zip(found, names, strict=True)]
    return found, np.array(proper, np.bool_)


def _kept(piece: dict[str, Any], keep: Any) -> dict[str, Any]:
    """The rows of a snapshot's piece that are to be kept."""
    return {
        field: [each for each, kept in zip(column, keep, strict=True) if kept]
        if isinstance(column, list)
        else column[np.asarray(keep, np.bool_)]
        for field, column in piece.items()
    }


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


class _Held:
    """The commit lock, held for the length of a block; used again and again, as its state is that of the lock."""

    __slots__ = ("_catalog",)

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __enter__(self) -> None:
        catalog = self._catalog
        catalog.lock.check_free()
        try:
            catalog.lock.acquire()
            catalog._repair()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        catalog = self._catalog
        if not catalog.lock.mine:
            return  # it was not to be had
        closing, catalog.closing = catalog.closing, []
        try:
            catalog.pins.admit()
        finally:
            catalog.lock.release()
            for fd in closing:
                os.close(fd)
        if isinstance(error, _NONSENSE) and not isinstance(error, ShmarrowError):
            raise InvalidData(f"the catalog of {catalog.directory.name!r} is damaged: {error}") from error


# --- the stores that this process has open --------------------------------------------------------------------------

_open: list[Catalog] = []
_mutex = threading.RLock()


def open_catalog(where: Location, want: Wanted, trust: Trust, create: bool) -> Catalog:
    """The catalog of a store; Store objects of one directory share one, as closing a second would drop its locks."""
    return retried(lambda: _open_catalog(where, want, trust, create), create)


def _open_catalog(where: Location, want: Wanted, trust: Trust, create: bool) -> Catalog:
    with _mutex:
        _retire()
        directory = open_directory(where, want, trust, create)
        try:
            found = [each for each in _open if each.directory.key == directory.key and each.inherited and each.exists]
            catalog = found[0] if found else Catalog(directory)
            try:
                catalog.reload(want)
                if want.spill is not None and catalog.writable:
                    catalog.spill_directory(make=True)
                check_trust(directory, catalog.settings.mode, catalog.control_fd)
            except BaseException:
                None if found else catalog.close()
                raise
        except BaseException:
            os.close(directory.fd)
            raise
        if found:
            os.close(directory.fd)
        else:
            _open.append(catalog)
        catalog.users += 1
        return catalog


def close_catalog(catalog: Catalog) -> None:
    """One Store object less uses it."""
    with _mutex:
        catalog.users -= 1
        _retire()


def _retire() -> None:
    """Close the catalogs that no Store object and no array needs, and whose objects this process does not own."""
    for catalog in _open.copy():
        if not (catalog.users or catalog.pins or catalog.owner) and catalog.inherited:
            _open.remove(catalog)
            catalog.close()
            os.close(catalog.directory.fd)


def _after_fork() -> None:
    global _mutex
    _mutex = threading.RLock()
    for catalog in _open:
        catalog.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
