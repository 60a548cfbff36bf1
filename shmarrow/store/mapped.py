"""The open files of a store in a process: the mapped control file, with lock-free lookup of names.

Names are mapped to slots by a chained hash table (linear hashing: the head of bucket ``i`` is in slot ``i``, and each
slot used for the first time splits one bucket, so the table grows with the file and is never rebuilt). Invariants:

* lookup takes no lock: a slot that is found is verified by its generation and checksum, and a name counts as missing
  only if there was no commit meanwhile;
* the file is not trusted: bounds, lengths of chains and checksums are checked before use;
* nothing is used after it was closed: descriptors become -1, and access to the memory raises `Closed`.
"""

from __future__ import annotations

import errno
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn, cast

from shmarrow.errors import Closed, InvalidData, StorageError, storage_error
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
    read_inline,
    read_slot,
    word_of,
)

_BUCKETS = word_of("buckets")
BOOT = p.HEADER["boot_id"][0]
_USED = p.USED >> 3
_CHECKED = p.CRC_OFFSET + 4
_MOST_KNOWN = 4096
_SPARSE, _SPARSE_FREE = 1024, 1 << 26
"""Maximum ratio of size to allocated bytes of a control file (it may be compressed), and bytes allowed on top."""
_HASH_FACTOR = p.HASH_FACTOR
_SLOT_INTS = p.SLOT_SIZE >> 2
_FIRST_HEAD, _FIRST_NEXT = (p.SLOTS + p.HEAD) >> 2, (p.SLOTS + p.NEXT) >> 2
_FIRST_HASH = (p.SLOTS + p.SLOT["hash"][0]) >> 3
_STUCK_SECONDS = 0.5
"""Seconds that a reader waits for a commit that its writer does not finish."""
_SPINS, _PAUSE = 100, 0.001
_TRIES = 5


class _ClosedMemory:
    """Replaces the memory of a closed store; every use raises Closed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, field: str) -> NoReturn:
        raise closed(self._name)

    def __iter__(self) -> NoReturn:
        self.__getattr__("")


class Mapped:
    """The open files of one store; owns the descriptor of the directory, and closes it if they cannot be opened.

    Attributes
    ----------
    directory : Directory
        The directory of the store.
    settings : Settings
        Settings of the store.
    writable : bool
        Whether this process may change the store.
    volatile : bool
        Whether the store is in memory.
    forked : bool
        Whether it was opened by a parent of this process.
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
        self._stuck = -1
        self._known: dict[int, tuple[bytes, Entry]] = {}

    def _open(self, file: str, writable: bool | None) -> tuple[int, bool]:
        """Open a file of the store, and return whether it is writable; None falls back to read-only access."""
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
        self.settings, self.configured, self.store_id, self.modulus = read_settings(header, where)
        self._settings_read = settings_in(header)

    def _map(self) -> Memory:
        """Map the whole file."""
        where = self.directory.name
        used = int.from_bytes(os.pread(self.control_fd, 8, _BUCKETS << 3), "little") if self.of_this_boot else 0
        status = os.fstat(self.control_fd)
        have, found = status.st_blocks * 512, status.st_size
        count = (found - p.SLOTS) // p.SLOT_SIZE
        size = p.SLOTS + count * p.SLOT_SIZE
        if not max(used, 1) <= count < 1 << 31:
            used = max(used, 1)
            raise InvalidData(
                f"the control file of {where!r} is damaged: {used} slots need {p.SLOTS + used * p.SLOT_SIZE} bytes, "
                f"found {found}"
            )
        if have < size:  # a sparse copy; touching a hole on a full file system raises SIGBUS
            if size > have * _SPARSE + _SPARSE_FREE or (self.volatile and not self.writable):
                raise InvalidData(
                    f"the control file of {where!r} has holes: {have} of {size} bytes are allocated; copy it without "
                    "holes (cp --sparse=never)"
                )
            try:
                os.posix_fallocate(self.control_fd, 0, size) if self.writable else None
            except OSError as error:
                raise storage_error(error, "fill the holes in the control file of", where) from None
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if self.writable else 0)
        return Memory.of(mmap.mmap(self.control_fd, size, prot=prot), count)

    def close(self) -> None:
        """Close all descriptors, which releases all locks of this process on the store, and drop the mapping."""
        self.memory = cast(Memory, _ClosedMemory(self.directory.name))
        self.control_fd = self.pins_fd = self.commit_fd = self.directory.fd = -1
        while self._fds:
            with suppress(OSError):
                os.close(self._fds.popitem()[0])

    @property
    def inherited(self) -> bool:
        """Whether the descriptors still refer to the store's files: a forked child may have closed or reused them."""
        try:
            return not self.forked or all(_identity(fd) == identity for fd, identity in self._fds.items())
        except OSError:
            return False

    def check_inherited(self) -> None:
        """Raise Closed in a forked child that closed its descriptors."""
        if not self.inherited:
            raise Closed(
                f"the store {self.directory.name!r} was open when process {os.getpid()} was forked, and closed "
                "its descriptors then; open it again"
            )

    @property
    def exists(self) -> bool:
        """Whether the store still exists, that is, was not destroyed."""
        return bool(self.memory.words[0] != p.DESTROYED and os.fstat(self.control_fd).st_nlink)

    def check_exists(self) -> None:
        """Raise StorageError if the store was destroyed."""
        if not self.exists:
            raise destroyed(self.directory.name)

    # --- lookup ---------------------------------------------------------------------------------------------------

    def hash(self, name: bytes) -> int:
        """Return the hash of a name."""
        return int.from_bytes(name, "big") * p.HASH_FACTOR % self.modulus

    def find(self, name: bytes) -> Entry | None:
        """Return the entry of a name, even if expired; None if missing. Takes no lock.

        Raises
        ------
        StorageError
            If it is missing because the store was destroyed.
        """
        memory = self.memory
        while True:
            words = memory.words
            before = words[SEQUENCE]
            if words[_BUCKETS] > memory.slots:
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
        wanted = int.from_bytes(name, "big") * _HASH_FACTOR % self.modulus  # `hash`, inlined
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
        """Return the memory, mapped again if another process has extended the file."""
        memory = self.memory
        if memory.words[_BUCKETS] > memory.slots:
            memory = self.memory = self._map()
        return memory

    def settled(self) -> Memory:
        """Return the memory once no commit is in progress; the commit of a killed writer is completed.

        Raises
        ------
        StorageError
            If the writer of a commit is stopped, or was killed and this process may only read the store.
        """
        tries, since, odd = 0, 0.0, -1
        while True:
            memory = self._whole()
            if not (sequence := memory.words[SEQUENCE]) & 1:
                return memory
            tries += 1
            if tries > _SPINS:
                now = time.monotonic()
                if sequence != odd:
                    since, odd = now, sequence
                elif not self.mended() and (now - since > _STUCK_SECONDS or sequence == self._stuck):
                    self._stuck = sequence  # the next one does not wait again
                    raise StorageError(
                        errno.EBUSY,
                        f"cannot read the store {self.directory.name!r}: a process was stopped or killed in the middle "
                        "of a change; continue it, or change the store in a process with write permission",
                    )
            time.sleep(0 if tries < _SPINS else _PAUSE)

    def mended(self) -> bool:
        """Finish the commit of a killed writer; False if that is not possible."""
        return False

    def inline(self, entry: Entry) -> bytes | None:
        """Copy the bytes of an inline object; None if it was removed meanwhile. Takes no lock.

        The copy is right if its checksum is, whatever was written meanwhile; the generation tells why it is not.
        """
        for _ in range(_TRIES):
            found = read_inline(self._whole(), entry)
            if found is not None or not self.alive(entry):
                return found
        raise InvalidData(
            f"{entry.name.decode()!r} in the store {self.directory.name!r} is damaged: its checksum is wrong; delete it"
        )

    def alive(self, entry: Entry) -> bool:
        """Whether the slot still contains that object, or will after the commit in progress."""
        words = self.memory.words
        if words[FIRST_SLOT + entry.slot * SLOT_WORDS] == entry.generation:
            return True
        return bool(words[SEQUENCE] & 1) and self.find(entry.name) == entry

    def mark_used(self, entry: Entry) -> None:
        """Set the time of last use to now, which determines the order of eviction."""
        if self.writable:
            self.memory.words[FIRST_SLOT + entry.slot * SLOT_WORDS + _USED] = time.time_ns()

    def used(self, slot: int) -> int:
        """Return the time of last use, in nanoseconds since 1970."""
        return int(self.memory.words[FIRST_SLOT + slot * SLOT_WORDS + _USED])

    @property
    def evicts(self) -> bool:
        """Whether objects are evicted, so that the order of use matters."""
        return self.settings.eviction == "lru"

    def state(self) -> list[int]:
        """Return the current state of the header; StorageError if the store was destroyed."""
        memory = self._whole()
        if memory.words[0] == p.DESTROYED:
            raise destroyed(self.directory.name)
        return list(p.STATE_STRUCT.unpack_from(memory.bytes, p.STATE_OFFSET))

    def entry(self, slot: int) -> Entry | None:
        """Return the entry of a slot; None if it contains no live object."""
        return read_slot(self.memory.bytes, slot) if slot < self.memory.slots else None

    def snapshot(self, *fields: str, expired: bool = True) -> Iterator[dict[str, Any]]:
        """Iterate over the live objects in pieces of up to 65,536: ``slot``, ``generation`` and the given fields.

        Each field is an array, ``name`` a list of str. Takes no lock: objects published or removed meanwhile may or may
        not be included, but an object replaced or renamed meanwhile is included under exactly one name. Expired objects
        are included if ``expired``.
        """
        from shmarrow.store.snapshot import snapshot

        return snapshot(self, fields, expired)


def settings_in(header: bytes | memoryview) -> bytes:
    """Return the bytes of a header that contain the settings."""
    return bytes(header[SETTINGS : p.FIXED.size])


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
