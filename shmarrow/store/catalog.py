# SPDX-License-Identifier: Apache-2.0
"""The catalog of a store's objects in a process: changes under the commit lock, and the catalogs that are open.

Invariants:

* changes are made in :meth:`Catalog.change`, and are atomic;
* whatever uses the files of a store refers to its catalog: stores, arrays by their pins, writers, waits, watches, and a
  call that another thread's ``close`` overtakes. Descriptors are closed when nothing refers to it any more, so none is
  used after that.
"""

from __future__ import annotations

import _thread
import errno
import os
from collections import deque
from weakref import WeakSet, finalize

import numpy as np

from shmarrow.errors import Closed, InvalidData, StorageError, storage_error
from shmarrow.memory import Location, try_lock
from shmarrow.memory.locks import holder
from shmarrow.store import protocol as p
from shmarrow.store.control import BUCKETS, ControlFile
from shmarrow.store.directory import Directory, Users, check_trust, open_directory, remove_files, retried
from shmarrow.store.lookup import Descriptors, Lookup, are_open, close
from shmarrow.store.settings import BOOT, SETTINGS, RequestedSettings, Settings, check_settings, pack_header, this_boot
from shmarrow.store.transaction import Transaction

_OWNERS_TRIED = 100


class Catalog(Lookup):
    """The open files of one store in this process, shared by all Store objects of its directory."""

    def __init__(self, directory: Directory) -> None:
        super().__init__(directory)
        _open.add(self)
        # When the garbage collector frees a cycle of references, finalizers in it, such as of writers, still need the
        # files. They are closed later, as the collector does not know ndarrays: it frees this one with the catalog.
        self._life = np.empty(0, np.uint8)
        finalize(self._life, _end, directory.key, self._fds, self.control).atexit = False

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

    def adopt(self, fds: Descriptors) -> None:
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
        return not self.forked or are_open(self._fds)

    def check_inherited(self) -> None:
        """Raise Closed in a forked child that closed its descriptors."""
        if not self.inherited:
            raise Closed(
                f"the store {self.directory.name!r} was open when process {os.getpid()} was forked, and closed "
                "its descriptors then; open it again"
            )

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
                _owning.add(self)  # with the lock, until this process ends
                return number
        raise InvalidData(f"the catalog of {self.directory.name!r} is damaged: owner numbers up to {number} are in use")

    def owner_of(self, number: int) -> int | None:
        """Return the process id of an owner; None if it has ended, or this process has read-only access."""
        if number == self.owner:
            return os.getpid()
        if not self.writable or number >= p.OWNER_LOCKS:  # others begin there
            return None
        lock = holder(self.commit_fd, p.OWNER_LOCKS + number)
        return None if lock is None else lock[0]

    # --- settings -------------------------------------------------------------------------------------------------

    def reload(self, want: RequestedSettings | None = None) -> None:
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


# --- the open catalogs of this process ----------------------------------------------------------------------------

_open: WeakSet[Catalog] = WeakSet()
"""One of each store, since closing a descriptor of a second one would release the locks of the first."""
_owning: set[Catalog] = set()
"""Those whose locks say that this process, which owns objects there, is alive."""
_ended: deque[tuple[tuple[int, int], Descriptors, ControlFile]] = deque()
"""Directories, descriptors and control files of catalogs that nothing refers to, until they are closed."""
_lost: list[ControlFile] = []
"""Those of forked children that closed all descriptors: unmapping a file closes a number that is another file's now."""
_mutex = _thread.RLock()


def _end(key: tuple[int, int], fds: Descriptors, control: ControlFile) -> None:
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
        if not are_open(fds):
            _lost.append(control)
        elif heir is None:
            close(fds)
        else:  # the store was opened again meanwhile: its locks would go with these
            heir.adopt(fds)


def open_catalog(where: Location, want: RequestedSettings, accept_users: Users, create: bool) -> Catalog:
    """Open the catalog of a store, or share the open one; it is closed when nothing refers to it."""
    try:
        return retried(lambda: _open_in_turn(where, want, accept_users, create), create)
    finally:
        _close_ended()


def _open_in_turn(where: Location, want: RequestedSettings, accept_users: Users, create: bool) -> Catalog:
    """Do so with the mutex held; loops are in a function of their own, see :mod:`shmarrow.memory.state_machine`."""
    _close_ended()
    with _mutex:
        return _open_catalog(where, want, accept_users, create)


def _open_catalog(where: Location, want: RequestedSettings, accept_users: Users, create: bool) -> Catalog:
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
