"""The open files of a store in a process: the mapped control file, with lock-free lookup of names.

Names lead to slots by a hash table of chains (linear hashing: bucket ``i`` begins in slot ``i``, and each slot that is
used for the first time splits one bucket, so the table grows with the file and is never rebuilt). Invariants:

* nobody locks in order to look: a slot that is found has a generation and a checksum, and a name that is not found
  counts only if no commit was going on meanwhile;
* whatever the file says is checked before it is followed: bounds, lengths of chains, checksums;
* what was closed is used no more: descriptors are -1 then, and the memory raises `Closed`.
"""

from __future__ import annotations

import errno
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn, cast

from shmarrow.errors import Closed, InvalidData, storage_error
from shmarrow.segment.host import in_memory
from shmarrow.store import protocol as p
from shmarrow.store.directory import Directory
from shmarrow.store.locks import closed
from shmarrow.store.settings import destroyed, read_settings, this_boot
from shmarrow.store.slots import (
    FIRST_SLOT,
    SEQUENCE,
    SETTINGS,
    SLOT_WORDS,
    Entry,
    Memory,
    bucket_of,
    read_slot,
    replay,
    word_of,
)

_SLOTS, _BUCKETS = word_of("slots"), word_of("buckets")
_SPILL, BOOT = p.HEADER["spill_path"][0], p.HEADER["boot_id"][0]
_USED = p.USED >> 3
_CHECKED = p.CRC_OFFSET + 4
_MOST_KNOWN = 4096
_SPARSE, _SPARSE_FREE = 1024, 1 << 26
"""A control file may have so many times the bytes that it takes, on a file system that compresses, and these."""
_HASH_FACTOR = p.HASH_FACTOR
_SLOT_INTS = p.SLOT_SIZE >> 2
_FIRST_HEAD, _FIRST_NEXT = (p.SLOTS + p.HEAD) >> 2, (p.SLOTS + p.NEXT) >> 2
_FIRST_HASH = (p.SLOTS + p.SLOT["hash"][0]) >> 3
_STUCK_SECONDS = 0.1


class _ClosedMemory:
    """In the place of the memory of a store that was closed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, field: str) -> NoReturn:
        raise closed(self._name)

    def __iter__(self) -> NoReturn:
        self.__getattr__("")


class Mapped:
    """The files of one store; closes the descriptor of the directory with them, and if they cannot be opened.

    Attributes
    ----------
    directory : Directory
        Where it is.
    settings : Settings
        What the store was created with, or configured to.
    writable : bool
        Whether this process may change the store.
    volatile : bool
        Whether it is in memory.
    forked : bool
        Whether a parent of this process opened it.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.forked = False
        self._fds = {directory.fd: directory.key}
        try:
            self.volatile = in_memory(directory.fd)
            self.control_fd, self.writable = self._open(p.CONTROL, None)
            self._read_settings()
            self.pins_fd, _ = self._open(p.PINS, self.writable)
            self.commit_fd = self._open(p.COMMIT, True)[0] if self.writable else -1
            self.of_this_boot = os.pread(self.control_fd, 16, BOOT) == this_boot()
            self.memory = self._map()
        except BaseException:
            self.close()
            raise
        self._stuck = -1, self.memory
        self._known: dict[int, tuple[bytes, Entry]] = {}

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
        self._settings_read = settings_in(header)

    def _map(self) -> Memory:
        """Map as many slots as the header says that there are; after a reboot as many as the file has."""
        where = self.directory.name
        status = os.fstat(self.control_fd)
        have, found = status.st_blocks * 512, status.st_size
        count = (found - p.SLOTS) // p.SLOT_SIZE
        if self.of_this_boot:
            count = int.from_bytes(os.pread(self.control_fd, 8, _SLOTS << 3), "little")
        size = p.SLOTS + count * p.SLOT_SIZE
        if not 1 <= count < 1 << 31 or found < size:
            raise InvalidData(
                f"the control file of {where!r} is damaged: {count} slots take {size} bytes, it has {found}"
            )
        if have < size:  # it was copied; touching a hole in a full file system ends the process
            if size > have * _SPARSE + _SPARSE_FREE or (self.volatile and not self.writable):
                raise InvalidData(
                    f"the control file of {where!r} has holes: {have} of {size} bytes are there; copy it without "
                    "making holes (cp --sparse=never)"
                )
            try:
                os.posix_fallocate(self.control_fd, 0, size) if self.writable else None
            except OSError as error:
                raise storage_error(error, "fill the holes in the control file of", where) from None
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if self.writable else 0)
        return Memory.of(mmap.mmap(self.control_fd, size, prot=prot), count)

    def close(self) -> None:
        """Close all descriptors, which drops all locks of this process on the store, and drop the memory."""
        self.memory = cast(Memory, _ClosedMemory(self.directory.name))
        self._stuck = -1, self.memory
        self.control_fd = self.pins_fd = self.commit_fd = self.directory.fd = -1
        while self._fds:
            with suppress(OSError):
                os.close(self._fds.popitem()[0])

    @property
    def inherited(self) -> bool:
        """Whether its descriptors are what they were: a forked child may have closed them, and opened others."""
        try:
            return not self.forked or all(_identity(fd) == identity for fd, identity in self._fds.items())
        except OSError:
            return False

    def check_inherited(self) -> None:
        """Refuse to use a store in a forked child that closed its descriptors."""
        if not self.inherited:
            raise Closed(
                f"the store {self.directory.name!r} was open when process {os.getpid()} was forked, and closed "
                "its descriptors then; open it again"
            )

    @property
    def exists(self) -> bool:
        """Whether the store was not destroyed."""
        return bool(self.memory.words[0] != p.DESTROYED and os.fstat(self.control_fd).st_nlink)

    def check_exists(self) -> None:
        """Raise an error if the store was destroyed."""
        if not self.exists:
            raise destroyed(self.directory.name)

    # --- looking --------------------------------------------------------------------------------------------------

    def hash(self, name: bytes) -> int:
        """The hash of a name."""
        return int.from_bytes(name, "big") * p.HASH_FACTOR % self.modulus

    def find(self, name: bytes) -> Entry | None:
        """The live object of a name, also one that has expired; None if there is none. Takes no lock.

        Raises
        ------
        StorageError
            If there is none as the store was destroyed.
        """
        memory = self.memory
        while True:
            words = memory.words
            before = words[SEQUENCE]
            if words[_SLOTS] > memory.slots:
                memory = self._whole()
            found = self._walk(memory, name)
            if found is not None:
                return found
            if before & 1:
                memory = self.settled()
            elif memory.words[SEQUENCE] == before:
                if words[0] == p.DESTROYED:
                    raise destroyed(self.directory.name)
                return None

    def _walk(self, memory: Memory, name: bytes) -> Entry | None:
        data, words, ints, slots = memory
        buckets = words[_BUCKETS]
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

    def _whole(self) -> Memory:
        """The memory, mapped again if another process has made the file larger."""
        memory = self.memory
        if memory.words[_SLOTS] > memory.slots:
            memory = self.memory = self._map()
        return memory

    def settled(self) -> Memory:
        """The whole memory, when no commit is going on; what a killed or stopped writer left half done is done."""
        since, odd = 0.0, -1
        while True:
            memory = self._whole()
            if not (sequence := memory.words[SEQUENCE]) & 1:
                return memory
            if sequence == self._stuck[0]:
                return self._stuck[1]
            now = time.monotonic()
            if sequence != odd:
                since, odd = now, sequence
            elif now - since > _STUCK_SECONDS and not self.mended():
                return self._finished(memory, sequence)
            time.sleep(0)

    def mended(self) -> bool:
        """Finish the commit of a writer that was killed; False where that cannot be done."""
        return False

    def _finished(self, memory: Memory, sequence: int) -> Memory:
        """The memory as it will be when the commit that was begun is done: in private pages."""
        pages = mmap.mmap(self.control_fd, len(memory.bytes), mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        private = Memory.of(pages, memory.slots)
        replay(private)
        private.words[_SLOTS] = min(private.words[_SLOTS], private.slots)
        if memory.words[SEQUENCE] == sequence:
            self._stuck = sequence, private
        return private

    def alive(self, entry: Entry) -> bool:
        """Whether the slot still has that object, or will have when the commit that was begun is done."""
        words = self.memory.words
        if words[FIRST_SLOT + entry.slot * SLOT_WORDS] == entry.generation:
            return True
        return bool(words[SEQUENCE] & 1) and self.find(entry.name) == entry

    def mark_used(self, entry: Entry) -> None:
        """Note that an object was used now; eviction begins with those used longest ago."""
        if self.writable:
            self.memory.words[FIRST_SLOT + entry.slot * SLOT_WORDS + _USED] = time.monotonic_ns()

    def used(self, slot: int) -> int:
        """When an object was used, by the clock of :meth:`mark_used`."""
        return int(self.memory.words[FIRST_SLOT + slot * SLOT_WORDS + _USED])

    @property
    def evicts(self) -> bool:
        """Whether objects make room for others: the order of use matters then."""
        return self.settings.eviction == "lru" or self.settings.spill is not None

    def state(self) -> list[int]:
        """The header's state, as it is now; an error if the store was destroyed."""
        memory = self._whole()
        if memory.words[0] == p.DESTROYED:
            raise destroyed(self.directory.name)
        return list(p.STATE_STRUCT.unpack_from(memory.bytes, p.STATE_OFFSET))

    def entry(self, slot: int) -> Entry | None:
        """The live object of a slot; None if there is none."""
        return read_slot(self.memory.bytes, slot) if slot < self.memory.slots else None

    def snapshot(self, *fields: str, expired: bool = True) -> Iterator[dict[str, Any]]:
        """The live objects, in pieces of up to 65,536: their ``slot``, ``generation`` and the asked fields.

        Each is an array, ``name`` a list of str. Takes no lock: objects that come or go meanwhile may be in it or not,
        but of those that are replaced or renamed meanwhile, one name is in it. Those whose time is over are left out
        unless they are ``expired``.
        """
        from shmarrow.store.snapshot import snapshot

        return snapshot(self, fields, expired)


def settings_in(header: bytes | memoryview) -> bytes:
    """The bytes of a header that are settings."""
    return bytes(header[SETTINGS : p.FIXED.size]) + bytes(header[_SPILL : _SPILL + 1024])


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
