# SPDX-License-Identifier: Apache-2.0
"""The locks of a store: the commit lock, and pins of objects.

All are record locks; see :mod:`shmarrow.memory.locks`. Invariants:

* record locks do not exclude threads of the same process, so each process also has a mutex, or counts its locks;
* a signal handler or a finalizer may attach or release anything anywhere, in the middle of an operation on pins of its
  own thread, too: each of their steps leaves the pins right;
* a signal handler may raise anywhere: a mutex is held by a ``with`` statement of its own, and a record lock that was
  left behind is taken over by the next change of this process.
"""

from __future__ import annotations

import _thread
import errno
import time
from collections import defaultdict
from fcntl import LOCK_UN, lockf
from typing import Any

from shmarrow.errors import StorageError
from shmarrow.memory import try_lock, unlock
from shmarrow.memory.locks import holder
from shmarrow.store.protocol import COMMIT_LOCK

PATIENCE = 30.0
"""Seconds that an operation waits for the commit lock."""
_SPINS = 30
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 2e-5, 1e-3, 1.3


class CommitLock:
    """The lock for changes to the catalog, among processes and threads.

    A change holds ``mutex``, which excludes other threads, and then the record lock, which excludes other processes.
    While a thread holds the mutex, its signal handlers and finalizers are refused changes, instead of waiting for it.
    Waiting is polling with short pauses, so that early waiters are not starved by recent holders.
    """

    def __init__(self, fd: int, where: str) -> None:
        self.fd = fd
        self._where = where
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's locks, and its mutex, which another thread may have held; called in a forked child."""
        self._mutex = _thread.RLock()  # as it knows its owner

    @property
    def mine(self) -> bool:
        """Whether this thread is changing the store: a finalizer or a signal handler may run in the middle of that."""
        return self._mutex._is_owned()  # type: ignore[attr-defined]

    @property
    def mutex(self) -> _thread.RLock:
        """The mutex among threads; StorageError if this thread holds it."""
        if self._mutex._is_owned():  # type: ignore[attr-defined]
            raise StorageError(
                errno.EDEADLK,
                f"cannot change the store {self._where!r} in the middle of another change by this thread; "
                "do it after the signal handler or the finalizer has returned",
            )
        return self._mutex

    def release(self) -> None:
        """Release the record lock."""
        unlock(self.fd, COMMIT_LOCK)

    def acquire(self) -> None:
        """Acquire the record lock; :meth:`release` is to be called even if this raises."""
        tries, pause, deadline = 0, _FIRST_PAUSE, 0.0
        while not try_lock(self.fd, COMMIT_LOCK, True):
            tries += 1
            if tries < _SPINS:
                continue
            now = time.monotonic()
            deadline = deadline or now + PATIENCE
            if now > deadline:
                other = holder(self.fd, COMMIT_LOCK)
                who = "another process" if other is None else f"process {other[0]}"
                raise StorageError(
                    errno.EBUSY,
                    f"cannot lock the store {self._where!r}: {who} has held its commit lock for {PATIENCE:g} s; "
                    "continue that process if it is stopped, or end it",
                )
            time.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    def free(self) -> bool:
        """Whether no thread or process holds it now."""
        if self.mine or not self._mutex.acquire(blocking=False):
            return False
        self._mutex.release()
        return holder(self.fd, COMMIT_LOCK) is None


class Pins:
    """The pins of this process in a store, by slot.

    A pin counts before its slot is locked, and the last one ends in the step that unlocks it. So a signal handler or a
    finalizer may pin and release at any moment, in the middle of either, too: it runs between two calls, and what is
    between two calls happens as a whole. The mutex does the same among threads, and is held for no longer than that.

    Attributes
    ----------
    swept : int
        One more than the removed slot that was last examined for pins; 0 for none.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.swept = 0
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the pins of the parent, whose locks this process does not have; called in a forked child."""
        self._mutex = _thread.RLock()
        self._held: defaultdict[int, int] = defaultdict(int)
        self._excluded: set[int] = set()

    def acquire(self, slot: int, pin: Any) -> bool:
        """Pin a slot and set ``pin.slot``; False if it is being evicted. The pin is to be closed in any case."""
        with self._mutex:
            if slot in self._excluded:
                return False
            self._held[slot] += 1
            pin.slot = slot
        return try_lock(self._fd, slot, False)

    def release(self, slot: int) -> None:
        """Drop one pin of a slot."""
        held, fd = self._held, self._fd
        with self._mutex:
            held[slot] -= 1
            if not held[slot]:
                del held[slot]
                lockf(fd, LOCK_UN, 1, slot)  # no function of ours, at whose start a handler could pin it

    def exclude(self, slot: int) -> bool:
        """Prevent a slot from being pinned until :meth:`admit`, in a change; False if it is pinned."""
        if slot in self._excluded:
            return True
        with self._mutex:
            if slot in self._held:
                return False
            self._excluded.add(slot)
        if not try_lock(self._fd, slot, True):
            self._excluded.discard(slot)
            return False
        return True

    def admit(self) -> None:
        """Undo :meth:`exclude` for all slots, at the end of a change."""
        for slot in tuple(self._excluded):
            unlock(self._fd, slot)
            self._excluded.discard(slot)

    def pinned(self, slot: int) -> bool:
        """Whether any process has a slot attached."""
        return slot in self._held or holder(self._fd, slot) is not None

    def own(self) -> list[int]:
        """Return the slots that this process has pinned."""
        return list(self._held)
