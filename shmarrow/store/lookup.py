# SPDX-License-Identifier: Apache-2.0
"""Lookup in a store, without a lock: its open files in this process, and what they say.

Invariants:

* a slot that is found is verified by its checksum, and a name counts as missing only if there was no commit meanwhile;
* nothing is changed here: :meth:`Lookup.mend`, which repairs what a killed writer left, is the catalog's.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from contextlib import suppress
from typing import Any
from weakref import ref

from shmarrow.errors import InvalidData, StorageError, storage_error
from shmarrow.memory import Exclusive, Mapping, in_memory
from shmarrow.memory.locks import LOCKED, ORDERED, identity
from shmarrow.store import index
from shmarrow.store import protocol as p
from shmarrow.store.control import BUCKETS, JOURNAL, JOURNAL_NUMBERS, SEQUENCE, ControlFile, Memory, fence, pieces_of
from shmarrow.store.directory import Directory
from shmarrow.store.locks import PATIENCE, CommitLock, Pins
from shmarrow.store.protocol import Entry
from shmarrow.store.settings import BOOT, SETTINGS, destroyed, read_settings, this_boot
from shmarrow.store.waiters import Waiters

_STUCK_SECONDS = 0.5
"""Seconds that a reader waits for a commit that its writer does not finish."""
_SPINS, _PAUSE = 100, 0.001
_TRIES, _MOST_KNOWN = 5, 4096


class Lookup:
    """The open files of one store in this process, shared by all Store objects of its directory.

    Attributes
    ----------
    directory : Directory
        The directory of the store; its descriptor is closed with the others, or if the files cannot be opened.
    settings : Settings
        Settings of the store.
    writable : bool
        Whether this process may change the store.
    volatile : bool
        Whether the store is in memory.
    evicts : bool
        Whether objects are evicted, so that the order of use matters.
    forked : bool
        Whether it was opened by a parent of this process.
    control : ControlFile
        The control file.
    pins : Pins
        The slots that this process has attached.
    lock : CommitLock
        Held by a transaction.
    exclusive : Exclusive
        Locks on names that this process computes, and on records of waiters.
    waiters : Waiters
        Those who wait for changes, here and elsewhere.
    owner : int
        Owner number of this process; 0 if it owns nothing.
    victims : deque
        Candidates for eviction, the least recently used first; used in a change.
    mapped : set of weak references to Mapping
        The files of objects that are mapped in this process.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.forked = False
        self.owner = 0
        self.victims: deque[Any] = deque()
        self.mapped: set[ref[Mapping]] = set()
        self._known: dict[bytes, tuple[Entry, slice, bytes]] = {}
        self._fds = {directory.fd: directory.key}
        try:
            self.volatile = in_memory(directory.fd)
            self.control_fd, self.writable = self._open(p.CONTROL, None)
            self.read_settings()
            self.pins_fd, _ = self._open(p.PINS, self.writable)
            self.commit_fd = self._open(p.COMMIT, True)[0] if self.writable else -1
            of_this_boot = os.pread(self.control_fd, 16, BOOT.start) == this_boot()
            self.control = ControlFile(self.control_fd, directory.name, self.writable, self.volatile, of_this_boot)
            self.pins = Pins(self.pins_fd)
            self.lock = CommitLock(self.commit_fd, directory.name)
            self.exclusive = Exclusive(self.commit_fd)
            self.waiters = Waiters(self.control, self.exclusive, self.modulus)
        except BaseException:
            close(self._fds)
            raise

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
        self._fds[fd] = identity(os.fstat(fd))
        LOCKED[self._fds[fd]] = f"the store {self.directory.name!r}"
        return fd, writable is not False

    def read_settings(self) -> None:
        """Read the settings from the header."""
        where = self.directory.name
        header = os.pread(self.control_fd, p.JOURNALS[0], 0)
        if len(header) < p.JOURNALS[0]:
            raise InvalidData(f"the control file of {where!r} has {len(header)} bytes, expected at least {p.SLOTS}")
        self.settings, self.store_id, self.modulus = read_settings(header, where)
        self.settings_read = header[SETTINGS]
        self.evicts = self.settings.eviction == "lru"

    @property
    def exists(self) -> bool:
        """Whether the store still exists, that is, was not destroyed."""
        return bool(self.memory.words[0] != p.DESTROYED and os.fstat(self.control_fd).st_nlink)

    def check_exists(self) -> None:
        """Raise StorageError if the store was destroyed."""
        if not self.exists:
            raise destroyed(self.directory.name)

    # --- lookup ---------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> Memory:
        """The mapped control file."""
        return self.control.memory

    def hash(self, name: bytes) -> int:
        """Return the hash of a name."""
        return p.hash_of(name, self.modulus)

    def find(self, name: bytes) -> Entry | None:
        """Return the entry of a name, even if expired; None if missing. Takes no lock.

        An object that was found before is still that of its name if its slot has not changed.

        Raises
        ------
        StorageError
            If it is missing because the store was destroyed.
        """
        memory, known = self.control.memory, self._known
        words, seen = memory.words, known.get(name)
        if seen is not None and memory.bytes[seen[1]] == seen[2] and words[BUCKETS]:  # 0 if the store was destroyed
            return seen[0]
        name_hash = p.hash_of(name, self.modulus)
        while True:
            words = memory.words
            before = words[SEQUENCE]
            if not ORDERED:
                fence()
            if words[BUCKETS] > memory.slots:
                memory = self.control.whole()
            entry = index.find(memory, name, name_hash)
            if entry is not None:
                self.remember(entry, entry.pack())
                return entry
            if not ORDERED:
                fence()
            if before & 1:
                memory = self.settled()
            elif memory.words[SEQUENCE] == before:
                if words[0] == p.DESTROYED:
                    raise destroyed(self.directory.name)
                return None

    def remember(self, entry: Entry, packed: bytes) -> None:
        """Know an object by its name as long as its slot has these bytes: now, or once a change is committed."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        start = p.SLOTS + entry.slot * p.SLOT_SIZE
        self._known[entry.name] = entry, slice(start, start + index.COVERED), packed

    def settled(self) -> Memory:
        """Return the memory once every commit that has happened is applied; that of a killed writer is completed.

        Raises
        ------
        StorageError
            If the writer of a commit is stopped, or was killed and this process may only read the store; or if this
            thread is that writer, in the middle of it.
        """
        tries, since, patience, odd = 0, 0.0, 0.0, -1
        while True:
            memory = self.control.whole()
            sequence = memory.words[SEQUENCE]
            if not sequence & 1 and memory.pending() is None:
                return memory
            tries += 1
            if tries > _SPINS:
                now = time.monotonic()
                if sequence != odd:
                    since, odd = now, sequence
                    # The writer may be writing its journal to the disk, which takes its time.
                    patience = PATIENCE if self.settings.durable and not sequence & 1 else _STUCK_SECONDS
                elif not self._mended() and now - since > patience:
                    raise StorageError(
                        errno.EBUSY,
                        f"cannot read the store {self.directory.name!r}: a process was stopped or killed in the middle "
                        "of a change; continue it, or change the store in a process with write permission",
                    )
            time.sleep(0 if tries < _SPINS else _PAUSE)

    def _mended(self) -> bool:
        """Finish the commit of a killed writer; False if another process holds the lock, perhaps suspended."""
        _ = self.lock.mutex  # raises if this thread is the writer
        if not self.writable or not self.lock.free():
            return False
        self.mend()
        return True

    def inline(self, entry: Entry) -> bytes | None:
        """Copy the bytes of an inline object; None if it was removed meanwhile. Takes no lock.

        The copy is right if its checksum is, whatever was written meanwhile; the generation tells why it is not.
        """
        for _ in range(_TRIES):
            data = index.read_inline(self.control.memory, entry)
            if data is not None or not self.alive(entry):
                return data
            self.control.whole()
        raise InvalidData(
            f"{entry.name.decode()!r} in the store {self.directory.name!r} is damaged: its checksum is wrong; delete it"
        )

    def alive(self, entry: Entry) -> bool:
        """Whether the slot still contains that object, or will after the commit in progress."""
        words = self.control.memory.words
        if words[index.FIRST_SLOT + entry.slot * p.SLOT_WORDS] == entry.generation:
            return True
        return bool(words[SEQUENCE] & 1) and self.find(entry.name) == entry

    def is_attached(self, entry: Entry) -> bool:
        """Whether an object is there, once its slot is pinned.

        A complete journal is the state: if its writer was killed before it was applied, the lock that kept others from
        pinning the slot has gone, although the object is removed. So this looks there first.
        """
        words = self.control.memory.words
        number = words[JOURNAL] + 1
        if words[JOURNAL_NUMBERS[number & 1]] == number and (commit := self.control.memory.pending()):
            at = p.SLOTS + entry.slot * p.SLOT_SIZE
            if any(offset <= at < offset + len(piece) for offset, piece in pieces_of(commit[1])):
                self.settled()
        return words[index.FIRST_SLOT + entry.slot * p.SLOT_WORDS] == entry.generation or self.alive(entry)

    def mark_used(self, entry: Entry) -> None:
        """Set the time of last use to now, which determines the order of eviction."""
        if self.writable:
            self.memory.words[index.used_at(entry.slot)] = time.time_ns()

    def used(self, slot: int) -> int:
        """Return the time of last use, in nanoseconds since 1970."""
        return int(self.memory.words[index.used_at(slot)])

    def state(self) -> p.State:
        """Return the current state of the header; StorageError if the store was destroyed."""
        memory = self.control.whole()
        if memory.words[0] == p.DESTROYED:
            raise destroyed(self.directory.name)
        return memory.state()

    def entry(self, slot: int) -> Entry | None:
        """Return the entry of a slot; None if it contains no live object."""
        return index.read_slot(self.memory, slot) if slot < self.memory.slots else None

    def check_writable(self) -> None:
        """Raise StorageError if this process has read-only access."""
        if not self.writable:
            raise StorageError(
                errno.EACCES, f"cannot change the store {self.directory.name!r}: this process may only read it"
            )

    def mend(self) -> None:
        """Acquire the commit lock once, and so repair what a killed process left: the catalog does."""
        raise NotImplementedError


Descriptors = dict[int, tuple[int, int]]
"""Descriptors, with device and inode of their files."""


def are_open(fds: Descriptors) -> bool:
    """Whether descriptors still refer to their files."""
    try:
        return all(identity(os.fstat(fd)) == file for fd, file in fds.items())
    except OSError:
        return False


def close(fds: Descriptors) -> None:
    """Close descriptors, which releases all locks of this process on their files."""
    while fds:
        fd, file = fds.popitem()
        with suppress(OSError):
            os.close(fd)
        LOCKED.pop(file, None)
