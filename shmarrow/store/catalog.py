"""The catalog of a store's objects, and its changes under the commit lock.

Invariants:

* changes are made under the commit lock, and journaled before they are applied: if the holder is killed, the next one
  replays the journal, so changes are atomic;
* the holder of the lock records the number of a file before linking or unlinking it, so that no file leaks;
* code that runs in the middle of a change of its own thread, such as a signal handler or a finalizer, cannot change
  the catalog.
"""

from __future__ import annotations

import _thread
import errno
import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from shmarrow.errors import InvalidArgument, InvalidData, ShmarrowError, StorageError, StoreFull, storage_error
from shmarrow.segment.record_locks import holder, try_lock
from shmarrow.store import protocol as p
from shmarrow.store.destroy import lock_removal, removal, remove_files
from shmarrow.store.directory import Directory
from shmarrow.store.locks import CommitLock, Exclusive, Pins
from shmarrow.store.mapped import BOOT, Mapped, settings_in
from shmarrow.store.protocol import file_name
from shmarrow.store.settings import (
    Settings,
    Wanted,
    check_settings,
    destroyed,
    merged,
    pack_header,
    this_boot,
)
from shmarrow.store.slots import CHANGING, SETTINGS, Entry, replay, unapplied, word_of
from shmarrow.store.transaction import Transaction
from shmarrow.store.waiters import Waiters

_BUCKETS, _FILE = word_of("buckets"), word_of("file")
_HITS, _MISSES = word_of("hits"), word_of("misses")
_REMOVING = word_of("removing")
_NONSENSE = (struct.error, ArithmeticError, LookupError, ValueError)
"""Exceptions that invalid numbers in the catalog can cause under the lock."""
_MOST_NEW_SLOTS = 8192
_OWNERS_TRIED = 100
_LARGEST = (1 << 64) - 1
_LARGEST_FILE = 1 << 62


class Catalog(Mapped):
    """The open control file of one store in this process, shared by all Store objects of its directory.

    A change is made in ``with catalog.mutex, catalog.locked():``. The mutex is of its own, as an interrupt between two
    steps of :meth:`locked` must not keep the other threads from changing the store.

    Attributes
    ----------
    pins : Pins
        The slots that this process has attached.
    lock : CommitLock
        Acquired through :meth:`locked`.
    exclusive : Exclusive
        Locks on names that this process computes, drafts that it writes, and records of waiters.
    waiters : Waiters
        Those who wait for changes, here and elsewhere.
    closed : bool
        Whether it has been closed, after its last use.
    owner : int
        Owner number of this process; 0 if it owns nothing.
    closing : list of int
        Descriptors of large removed files: closing the last one frees the memory, which is slow and is done after the
        lock is released.
    swept : int
        One more than the removed slot that was examined last; 0 for none.
    """

    def __init__(self, directory: Directory) -> None:
        self.closed = False
        self._users = 1
        self._gate = _thread.RLock()
        super().__init__(directory)
        self.pins = Pins(self.pins_fd, directory.name)
        self.lock = CommitLock(self.commit_fd, directory.name)
        self.exclusive = Exclusive(self.commit_fd)
        self.waiters = Waiters(self, self.exclusive)
        self.owner = self.swept = 0
        self.victims: deque[Any] = deque()
        self.closing: list[int] = []
        if not self.of_this_boot:
            try:
                self._begin_boot()
            except BaseException:
                self.close()
                raise

    def _begin_boot(self) -> None:
        """Rebuild the catalog on first use after a reboot."""
        if not self.writable:
            raise StorageError(
                errno.EACCES,
                f"cannot open the store {self.directory.name!r}: it has not been opened since the machine was started, "
                "and this process may only read it; open it once in a process with write permission",
            )
        with self.mutex, self.locked():
            pass

    # --- references -----------------------------------------------------------------------------------------------

    def share(self) -> bool:
        """Add a reference, dropped by :meth:`release`; False if the catalog is closed."""
        with self._gate:
            self._users += not self.closed
            return not self.closed

    def release(self) -> None:
        """Drop a reference."""
        with self._gate:
            self._users -= 1
        self.retire()

    def retire(self) -> bool:
        """Close it unless stores, watches, drafts, arrays, a change or owned objects need it; True if closed.

        A destroyed store has no owned objects. A forked child that closed its descriptors closes nothing.
        """
        with self._gate:
            owns = self.owner and not self.closed and self.exists
            needed = self._users > 0 or owns or self.exclusive or not self.inherited
            if self.closed or needed or self.lock.mine:
                return self.closed
            with self.mutex:
                self.closed = self.pins.end()
                if self.closed:
                    self.exclusive.fd = self.lock.fd = -1
                    self.close()
            return self.closed

    def after_fork(self) -> None:
        """Reset the state of this process; called in a forked child."""
        self._gate = _thread.RLock()
        self.owner = 0
        self.forked = True
        self.exclusive.after_fork()
        self.waiters.after_fork()
        self.closing.clear()
        self.lock.after_fork()
        self.pins.after_fork()

    # --- the commit lock ------------------------------------------------------------------------------------------

    @property
    def mutex(self) -> _thread.LockType:
        """The mutex among threads, which :meth:`locked` requires; StorageError if this thread is changing the store."""
        return self.lock.mutex

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the commit lock during the block; first repair what a killed process left."""
        self.check_writable()
        lock, change = self.lock, self.lock.begin()
        try:
            lock.acquire()
            self._repair()
            yield
        except _NONSENSE as error:
            if isinstance(error, ShmarrowError):
                raise
            raise InvalidData(f"the catalog of {self.directory.name!r} is damaged: {error}") from error
        finally:
            if lock.change is change:  # if an interrupt kept this from running, the next change has taken over
                try:
                    self.pins.admit()
                finally:
                    lock.end()
                while self.closing:
                    os.close(self.closing.pop())

    def check_writable(self) -> None:
        """Raise StorageError if this process has read-only access."""
        if not self.writable:
            raise StorageError(
                errno.EACCES, f"cannot change the store {self.directory.name!r}: this process may only read it"
            )

    def mended(self) -> bool:
        """Finish the commit of a killed writer; False if another process holds the lock, perhaps suspended."""
        if not self.writable or not self.lock.free():
            return False
        with self.mutex, self.locked():
            return True

    def _repair(self) -> None:
        if self.memory.words[0] == p.DESTROYED:
            raise destroyed(self.directory.name)
        if not self.of_this_boot:
            if bytes(self.memory.bytes[BOOT : BOOT + 16]) != this_boot():
                from shmarrow.store.rebuild import rebuild

                rebuild(self)
            self.of_this_boot = True
        if unapplied(self.memory):
            self.memory = self._map()
        memory = self._whole()
        words = memory.words
        if replay(memory):  # its writer was killed before it woke the waiting processes
            self.waiters.wake(None)
            memory = self._whole()
        if settings_in(memory.bytes) != self._settings_read:
            self._read_settings()
        if words[CHANGING]:
            self._unlink_stray(words[_FILE] + 1)
            self._unlink_stray(words[_REMOVING])
            words[CHANGING] = 0

    # Files. One that is added has the number after the last one given, or that of its draft: only the commit makes it
    # an object. The word `changing` tells the next holder of the lock to look for what a killed one left; nothing else
    # depends on it.

    def link(self, fd: int, file: int, parts: Sequence[str] = ()) -> int:
        """Give an unnamed file, and its parts, the names of an object; return its number.

        Parts are files of other objects, given by their names. What a killed writer left under the number ``file`` is
        removed; where that is impossible, the next number is used.
        """
        names = self.directory.fd
        self.memory.words[CHANGING] = 1
        while file < _LARGEST_FILE:
            for again in (True, False):
                try:
                    for part, source in enumerate(parts, 1):
                        os.link(source, file_name(file, part), src_dir_fd=names, dst_dir_fd=names)
                    os.link(f"/proc/self/fd/{fd}", file_name(file), src_dir_fd=fd, dst_dir_fd=names)
                    return file
                except FileExistsError:
                    if again:
                        self._unlink_stray(file)
            file = max(file, self.memory.words[_FILE]) + 1
        raise InvalidData(f"the catalog of {self.directory.name!r} is damaged: file number {file} is too large")

    def begin_changing(self) -> None:
        """Announce that files are about to be removed."""
        self.memory.words[CHANGING] = 1

    def end_changing(self, removed: int, parts: int) -> None:
        """Unlink the files that the last commit removed."""
        if removed:
            self._unlink(removed, parts)
        self.memory.words[CHANGING] = 0

    def _unlink_stray(self, file: int) -> None:
        """Remove files that a killed process was adding or removing, unless a damaged header names some in use."""
        parts = self.parts_linked(file)
        if parts or self.directory.has(file_name(file)):
            slots = np.frombuffer(self.memory.bytes, p.SLOT_DTYPE, self.memory.slots, p.SLOTS)
            if not ((slots["file"] == file) & (slots["state"] == p.LIVE)).any():
                self._unlink(file, parts)

    def parts_linked(self, file: int) -> int:
        """Return the number of parts of an object; they are linked in order, and unlinked in reverse."""
        part = 0
        while self.directory.has(file_name(file, part + 1)):
            part += 1
        return part

    def _unlink(self, file: int, parts: int) -> None:
        """Remove the names of an object's files; errors are ignored."""
        for part in range(parts, -1, -1):
            with suppress(OSError):
                self.directory.unlink(file_name(file, part))

    def freed_by(self, entry: Entry) -> int:
        """Return the bytes that removing an object frees: those of its files that no other object has."""
        freed = 0
        for part in range(entry.parts + 1) if entry.file else ():
            try:
                status = os.stat(file_name(entry.file, part), dir_fd=self.directory.fd, follow_symlinks=False)
            except OSError:
                status = None
            if not part and (status is None or status.st_nlink == 1):
                freed += entry.allocated
            elif status is not None and status.st_nlink == 1:
                freed += status.st_blocks * 512
        return freed if entry.file else entry.allocated

    def grow(self) -> None:
        """Add slots to the file; called under the lock when all are in use."""
        count = self.memory.slots
        self.memory = self._map()
        if self.memory.slots > count:  # somebody who extended it did not commit
            return
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
        self.memory = self._map()

    def count(self, hit: bool) -> None:
        """Count a read that did or did not find its object; without a lock, so two at once may count as one."""
        if self.writable:
            words, field = self.memory.words, _HITS if hit else _MISSES
            words[field] = words[field] + 1 & _LARGEST

    def destroy(self) -> None:
        """Remove all files of the store, and its directory.

        Raises
        ------
        StorageError
            If the directory contains other files; the store is removed, the directory remains.
        """
        directory = self.directory
        with removal(), self.mutex, self.locked():
            lock_removal(self.control_fd, directory.name)
            words = self.memory.words
            words[0] = p.DESTROYED  # from here on, no process finds or changes anything
            words[_BUCKETS] = 0
            self.waiters.wake(None)
            remove_files(directory, self.control_fd)
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

    def own_number(self, transaction: Transaction) -> int:
        """Return the owner number of this process, constant until it ends; a new one counts once this is committed."""
        if self.owner or transaction.owner:
            return self.owner or transaction.owner
        for _ in range(_OWNERS_TRIED):
            transaction.state[p.OWNER] += 1
            number = transaction.state[p.OWNER]
            # A process whose commit failed still locks the number it tried.
            if try_lock(self.commit_fd, p.OWNER_LOCKS + number, True):
                transaction.owner = number
                return number
        raise InvalidData(f"the catalog of {self.directory.name!r} is damaged: owner numbers up to {number} are in use")

    def owner_of(self, number: int) -> int | None:
        """Return the process id of an owner; None if it has ended, or this process has read-only access."""
        if number == self.owner:
            return os.getpid()
        if not self.writable or number >= p.OWNER_LOCKS:  # the locks of drafts begin there
            return None
        found = holder(self.commit_fd, p.OWNER_LOCKS + number)
        return None if found is None else found[0]

    def reload(self, want: Any = None) -> None:
        """Read the settings again, and check the settings ``want`` of a caller against them."""
        self._read_settings()
        if want is not None:
            try:
                check_settings(self.settings, want, self.directory.name)
            except InvalidArgument:
                if not self._adopt(want):
                    raise

    def _adopt(self, want: Wanted) -> bool:
        """Give the settings of a caller to an empty store that nobody has configured; False if it is none."""
        if self.configured or not self.writable or want.mode not in (None, self.settings.mode):
            return False
        with self.mutex, self.locked():
            self._read_settings()
            if self.configured or self.state()[p.GENERATION]:
                return False
            self.configure(merged(self.settings, want))
        return True

    def configure(self, settings: Settings) -> None:
        """Write new settings; called under the lock."""
        header = pack_header(settings, True, self.store_id, self.modulus)
        transaction = Transaction(self)
        transaction.put(SETTINGS, header[SETTINGS : p.FIXED.size])
        transaction.commit()
        self._read_settings()
