"""The catalog of a store's objects in a process: lookup without a lock, and changes under the commit lock.

Invariants:

* lookup takes no lock: a slot that is found is verified by its checksum, and a name counts as missing only if there was
  no commit meanwhile;
* changes are made in :meth:`Catalog.change`, and are atomic;
* whatever uses the files of a store refers to its catalog: stores, arrays by their pins, writers, waits, watches, and a
  call that another thread's ``close`` overtakes. Descriptors are closed when nothing refers to it any more, so none is
  used after that.
"""

from __future__ import annotations

import _thread
import errno
import os
import time
from collections import deque
from contextlib import suppress
from typing import Any
from weakref import WeakSet, finalize, ref

import numpy as np

from shmarrow.errors import Closed, InvalidData, StorageError, storage_error
from shmarrow.memory import Exclusive, Location, Mapping, in_memory, try_lock
from shmarrow.memory.locks import LOCKED, ORDERED, holder, identity
from shmarrow.store import index
from shmarrow.store import protocol as p
from shmarrow.store.control import (
    BUCKETS,
    JOURNAL,
    JOURNAL_NUMBERS,
    SEQUENCE,
    ControlFile,
    Memory,
    fence,
    pieces_of,
)
from shmarrow.store.directory import (
    Directory,
    Users,
    check_trust,
    open_directory,
    remove_files,
    retried,
)
from shmarrow.store.locks import PATIENCE, CommitLock, Pins
from shmarrow.store.protocol import Entry
from shmarrow.store.settings import (
    SETTINGS,
    Settings,
    Wanted,
    check_settings,
    destroyed,
    pack_header,
    read_settings,
    this_boot,
)
from shmarrow.store.transaction import BOOT, Transaction
from shmarrow.store.waiters import Waiters

_STUCK_SECONDS = 0.5
"""Seconds that a reader waits for a commit that its writer does not finish."""
_SPINS, _PAUSE = 100, 0.001
_TRIES, _MOST_KNOWN = 5, 4096
_OWNERS_TRIED = 100


class Catalog:
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
        Held by a :meth:`change`.
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
            _close(self._fds)
            raise
        _open.add(self)
        # When the garbage collector frees a cycle of references, finalizers in it, such as of writers, still need the
        # files. They are closed later, as the collector does not know ndarrays: it frees this one with the catalog.
        self._life = np.empty(0, np.uint8)
        finalize(self._life, _end, directory.key, self._fds, self.control).atexit = False

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

    def begin_boot(self) -> None:
        """Rebuild the catalog on first use after a reboot."""
        if self.memory.bytes[BOOT] == this_boot():
            return
        if not self.writable:
            raise StorageError(
                errno.EACCES,
                f"cannot open the store {self.directory.name!r}: it has not been opened since the machine was started, "
                "and this process may only read it; open it once in a process with write permission",
            )
        self.mend()

    # --- descriptors ----------------------------------------------------------------------------------------------

    def adopt(self, fds: _Descriptors) -> None:
        """Close these descriptors, too, when this catalog ends."""
        self._fds |= fds

    def after_fork(self) -> None:
        """Reset the state of this process; called in a forked child."""
        self.owner = 0
        self.forked = True
        self.exclusive.after_fork()
        self.lock.after_fork()
        self.pins.after_fork()

    @property
    def inherited(self) -> bool:
        """Whether the descriptors still refer to the store's files: a forked child may have closed or reused them."""
        return not self.forked or _are(self._fds)

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
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                start = p.SLOTS + entry.slot * p.SLOT_SIZE
                known[name] = entry, slice(start, start + index.COVERED), entry.pack()
                return entry
            if not ORDERED:
                fence()
            if before & 1:
                memory = self.settled()
            elif memory.words[SEQUENCE] == before:
                if words[0] == p.DESTROYED:
                    raise destroyed(self.directory.name)
                return None

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

    # --- changes --------------------------------------------------------------------------------------------------

    def change(self) -> Transaction:
        """Return a change of the store, for a ``with`` statement; see :mod:`shmarrow.store.transaction`.

        Raises
        ------
        StorageError
            If this process may only read the store, if the store was destroyed, or if another process keeps the lock;
            and if this thread is in a change: a signal handler or a finalizer may have interrupted it.
        """
        return Transaction(self)

    def check_writable(self) -> None:
        """Raise StorageError if this process has read-only access."""
        if not self.writable:
            raise StorageError(
                errno.EACCES, f"cannot change the store {self.directory.name!r}: this process may only read it"
            )

    def mend(self) -> None:
        """Acquire the lock once, and so repair what a killed process left."""
        with self.change():
            pass

    def destroy(self) -> None:
        """Remove all files of the store, and its directory.

        Raises
        ------
        StorageError
            If the directory contains other files; the store is removed, the directory remains.
        """
        directory = self.directory
        with _mutex, self.change():
            if not try_lock(self.control_fd, 0, True):  # a process that may only read it can lock it, too
                other = holder(self.control_fd, 0)
                who = "a process" if other is None else f"process {other[0]}"
                raise StorageError(
                    errno.EBUSY, f"cannot destroy the store {directory.name!r}: {who} has locked its control file"
                )
            words = self.memory.words
            words[0] = p.DESTROYED  # from here on, no process finds or changes anything
            words[BUCKETS] = 0
            self.waiters.wake(None)
            remove_files(directory, self.control_fd)
        _close_ended()
        _owning.discard(self)
        try:
            if os.path.samestat(os.lstat(directory.path), os.fstat(directory.fd)):
                os.rmdir(directory.path)
        except OSError as error:
            files = set(os.listdir(directory.fd))
            others = sorted(files - {p.PINS, p.COMMIT, p.CONTROL})
            if p.CONTROL in files or (not others and error.errno in (errno.ENOENT, errno.ENOTEMPTY)):
                return  # another process is creating a store there, or has destroyed one
            if not others:
                raise storage_error(error, "remove the directory of the store", directory.name) from None
            raise StorageError(
                error.errno,
                f"the store {directory.name!r} and its objects are removed; its directory {directory.path!r} remains, "
                f"because it contains other files, such as {others[0]!r}",
            ) from None

    # --- owners ---------------------------------------------------------------------------------------------------

    def own_number(self, change: Transaction) -> int:
        """Return the owner number of this process, constant until it ends; a new one counts once this is committed."""
        if self.owner or change.owner:
            return self.owner or change.owner
        for _ in range(_OWNERS_TRIED):
            change.state["owner"] += 1
            number = change.state["owner"]
            # A process whose commit failed still locks the number it tried.
            if try_lock(self.commit_fd, p.OWNER_LOCKS + number, True):
                change.owner = number
                return number
        raise InvalidData(f"the catalog of {self.directory.name!r} is damaged: owner numbers up to {number} are in use")

    def becomes_owner(self, number: int) -> None:
        """Keep an owner number, whose commit is done, and the descriptors with its lock, until this process ends."""
        self.owner = number
        _owning.add(self)

    def owner_of(self, number: int) -> int | None:
        """Return the process id of an owner; None if it has ended, or this process has read-only access."""
        if number == self.owner:
            return os.getpid()
        if not self.writable or number >= p.OWNER_LOCKS:  # others begin there
            return None
        lock = holder(self.commit_fd, p.OWNER_LOCKS + number)
        return None if lock is None else lock[0]

    # --- settings -------------------------------------------------------------------------------------------------

    def reload(self, want: Wanted | None = None) -> None:
        """Read the settings again, and check the settings ``want`` of a caller against them."""
        self.read_settings()
        if want is not None:
            check_settings(self.settings, want, self.directory.name)

    def configure(self, change: Transaction, settings: Settings) -> None:
        """Commit new settings."""
        header = pack_header(settings, self.store_id, self.modulus)
        change.write_header(SETTINGS.start, header[SETTINGS])
        change.commit()
        self.read_settings()


_Descriptors = dict[int, tuple[int, int]]
"""Descriptors, with device and inode of their files."""


def _are(fds: _Descriptors) -> bool:
    """Whether descriptors still refer to their files."""
    try:
        return all(identity(os.fstat(fd)) == file for fd, file in fds.items())
    except OSError:
        return False


# --- the open catalogs of this process ----------------------------------------------------------------------------

_open: WeakSet[Catalog] = WeakSet()
"""One of each store, since closing a descriptor of a second one would release the locks of the first."""
_owning: set[Catalog] = set()
"""Those whose locks say that this process, which owns objects there, is alive."""
_ended: deque[tuple[tuple[int, int], _Descriptors, ControlFile]] = deque()
"""Directories, descriptors and control files of catalogs that nothing refers to, until they are closed."""
_lost: list[ControlFile] = []
"""Those of forked children that closed all descriptors: unmapping a file closes a number that is another file's now."""
_mutex = _thread.RLock()


def _end(key: tuple[int, int], fds: _Descriptors, control: ControlFile) -> None:
    """Close the files of a catalog that is gone: now, or once a thread that is opening a store has done so."""
    _ended.append((key, fds, control))
    _close_ended()


def _close_ended() -> None:
    while _ended and _mutex.acquire(False):
        try:
            _close_all_ended()
        finally:
            _mutex.release()


def _close_all_ended() -> None:
    """Do so with the mutex held; a function of its own, see :mod:`shmarrow.memory.state_machine`."""
    while _ended:
        key, fds, control = _ended.popleft()
        heir = next((catalog for catalog in _open if catalog.directory.key == key), None)
        if not _are(fds):
            _lost.append(control)
        elif heir is None:
            _close(fds)
        else:  # the store was opened again meanwhile: its locks would go with these
            heir.adopt(fds)


def _close(fds: _Descriptors) -> None:
    """Close descriptors, which releases all locks of this process on their files."""
    while fds:
        fd, file = fds.popitem()
        with suppress(OSError):
            os.close(fd)
        LOCKED.pop(file, None)


def open_catalog(where: Location, want: Wanted, accept_users: Users, create: bool) -> Catalog:
    """Open the catalog of a store, or share the open one; it is closed when nothing refers to it."""
    try:
        return retried(lambda: _open_in_turn(where, want, accept_users, create), create)
    finally:
        _close_ended()


def _open_in_turn(where: Location, want: Wanted, accept_users: Users, create: bool) -> Catalog:
    """Do so with the mutex held; loops are in a function of their own, see :mod:`shmarrow.memory.state_machine`."""
    _close_ended()
    with _mutex:
        return _open_catalog(where, want, accept_users, create)


def _open_catalog(where: Location, want: Wanted, accept_users: Users, create: bool) -> Catalog:
    _owning.difference_update([each for each in _owning if not each.exists])  # others have destroyed them
    directory = open_directory(where, want, accept_users, create)
    same = [each for each in _open if each.directory.key == directory.key and each.inherited and each.exists]
    catalog = same[0] if same else Catalog(directory)
    try:
        catalog.begin_boot()
        catalog.reload(want)
        check_trust(directory, catalog.settings.mode, catalog.control_fd)
    finally:
        if same:
            os.close(directory.fd)
    return catalog


def _after_fork() -> None:
    global _mutex
    _mutex = _thread.RLock()
    _owning.clear()
    for catalog in list(_open):
        catalog.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
