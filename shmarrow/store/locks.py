"""The locks of a store: the commit lock, pins of objects, drafts, and names being computed.

All are record locks; see :mod:`shmarrow.segment.record_locks`. Invariants:

* record locks do not exclude threads of the same process, so each process also counts its locks under a mutex;
* a pin may be released anywhere, even by the garbage collector in the middle of an operation on pins, so releasing
  never waits for a mutex that its own thread may hold: the release is queued, and the holder completes it;
* a signal handler may raise anywhere: a lock is recorded before anything can raise, or released.
"""

from __future__ import annotations

import _thread
import errno
import sys
import time
from collections import deque
from contextlib import suppress
from types import FrameType
from typing import Any

from shmarrow.errors import Closed, StorageError
from shmarrow.segment.record_locks import holder, try_lock, unlock
from shmarrow.store.protocol import COMMIT_LOCK, INHERITED_LOCKS

PATIENCE = 30.0
"""Seconds that an operation waits for the commit lock."""
_LOOK = 0.5
_SPINS = 30
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 2e-5, 1e-3, 1.3


class CommitLock:
    """The lock for changes to the catalog, among processes and threads.

    Waiting is polling with short pauses, so that early waiters are not starved by recent holders. ``fd`` is -1 when the
    store is closed.
    """

    def __init__(self, fd: int, where: str) -> None:
        self.fd = fd
        self._where = where
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's locks, and its mutex, which another thread may have held; called in a forked child."""
        self._guard = _thread.allocate_lock()
        self._reset()

    def _reset(self) -> None:
        self._mutex = _thread.RLock()  # an RLock for `_is_owned`; it is never acquired twice
        self._taken = False
        self._frame: FrameType | None = None

    @property
    def mine(self) -> bool:
        """Whether this thread holds it: a finalizer or a signal handler may run in the middle of a change."""
        return self._mutex._is_owned()  # type: ignore[attr-defined, no-any-return]

    def acquire(self) -> None:
        """Acquire it for the caller's caller; :meth:`release` must be called even if this raises."""
        deadline = None
        if not self._mutex.acquire(False):  # five times faster than with a timeout
            deadline = time.monotonic() + PATIENCE
            while not self._mutex.acquire(timeout=_LOOK):
                if not self.recover() and time.monotonic() > deadline:
                    raise self._busy("another thread")
        self._taken = True
        self._frame = sys._getframe(2)
        if self.fd < 0:
            raise closed(self._where)
        tries, pause = 0, _FIRST_PAUSE
        while not try_lock(self.fd, COMMIT_LOCK, True):
            tries += 1
            if tries < _SPINS:
                continue
            now = time.monotonic()
            if deadline is None:
                deadline = now + PATIENCE
            elif now > deadline:
                found = holder(self.fd, COMMIT_LOCK)
                raise self._busy(f"process {found[0]}" if found is not None else "another process")
            time.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    def release(self) -> None:
        """Release it; does nothing unless this thread holds it."""
        if self.mine:
            self._taken = False
            try:
                if self.fd >= 0:
                    unlock(self.fd, COMMIT_LOCK)
            finally:
                self._frame = None
                self._mutex.release()

    def recover(self) -> bool:
        """Break a lock left by an interrupted change; False if that change is still running."""
        with self._guard:
            left = self._frame is not None and not _runs(self._frame)
            if left:
                self._reset()
            return left

    def pause(self) -> bool:
        """Keep threads of this process from acquiring it until :meth:`resume`; False if one holds it."""
        return not self._taken and self._mutex.acquire(False)

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        self._mutex.release()

    def free(self) -> bool:
        """Whether no thread or process holds it now."""
        return not self._taken and holder(self.fd, COMMIT_LOCK) is None

    def _busy(self, who: str) -> StorageError:
        return StorageError(
            errno.EBUSY,
            f"cannot lock the store {self._where!r}: {who} has held its commit lock for {PATIENCE:g} s; "
            "continue that process if it is stopped, or end it",
        )


class Exclusive:
    """Bytes locked by threads of this process: drafts, and names being computed."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's locks; called in a forked child."""
        self._mutex = _thread.allocate_lock()
        self._threads: dict[int, int] = {}

    def acquire(self, start: int) -> bool:
        """Lock a byte; False if another process or a thread of this one holds it."""
        with self._mutex:
            if start in self._threads:
                return False
            self._threads[start] = _thread.get_ident()
            try:
                if try_lock(self.fd, start, True):
                    return True
            except BaseException:
                self.release(start)
                raise
            del self._threads[start]
            return False

    def release(self, start: int) -> None:
        """Unlock a byte; does nothing unless this process holds it."""
        if start in self._threads:
            try:
                unlock(self.fd, start)
            finally:
                self._threads.pop(start, None)

    def __contains__(self, start: int) -> bool:
        """Whether this process holds a byte."""
        return start in self._threads

    def __bool__(self) -> bool:
        return bool(self._threads)

    def mine(self, start: int) -> bool:
        """Whether this thread holds a byte."""
        return self._threads.get(start) == _thread.get_ident()


class Pins:
    """The pins of this process in a store, by slot."""

    def __init__(self, fd: int, where: str) -> None:
        self._fd = fd
        self._where = where
        self._mutex = _thread.allocate_lock()
        self._held: dict[int, int] = {}
        self._inherited: dict[int, int] = {}
        self._excluded: set[int] = set()
        self._released: deque[tuple[int, bool]] = deque()

    def acquire(self, slot: int, pin: Any) -> bool:
        """Pin a slot and set ``pin.slot``; False if it is being evicted."""
        with self._mutex:
            if slot in self._excluded:
                return False
            count = self._held.get(slot, 0)
            if not count:
                if self._fd < 0:
                    raise closed(self._where)
                try:
                    if not try_lock(self._fd, slot, False):
                        return False
                except BaseException:
                    unlock(self._fd, slot)
                    raise
            self._held[slot], pin.slot = count + 1, slot
        if self._released:
            self._settle()
        return True

    def release(self, slot: int, inherited: bool = False) -> None:
        """Drop one pin of a slot."""
        if self._mutex.locked():  # perhaps by this thread
            self._released.append((slot, inherited))
        else:
            with self._mutex:
                self._drop(slot, inherited)
        if self._released:
            self._settle()

    def _settle(self) -> None:
        """Drop the queued pins, unless the mutex is held, perhaps by this thread: its holder drops them."""
        while self._released and not self._mutex.locked():
            with self._mutex:
                while self._released:
                    self._drop(*self._released.popleft())

    def _drop(self, slot: int, inherited: bool) -> None:
        counts = self._inherited if inherited else self._held
        count = counts.get(slot, 0) - 1
        if count > 0:
            counts[slot] = count
        elif counts.pop(slot, None) is not None:
            with suppress(OSError):  # a forked child may have closed all descriptors
                unlock(self._fd, INHERITED_LOCKS + slot if inherited else slot)

    def exclude(self, slot: int) -> bool:
        """Prevent a slot from being pinned until :meth:`admit`; False if it is pinned."""
        self._settle()
        with self._mutex:
            if slot in self._held:
                return False
            if slot not in self._excluded:
                self._excluded.add(slot)
                if not try_lock(self._fd, slot, True):
                    self._excluded.discard(slot)
                    return False
            return True

    def admit(self) -> None:
        """Undo :meth:`exclude` for all slots."""
        if self._excluded:
            with self._mutex:
                for slot in tuple(self._excluded):
                    unlock(self._fd, slot)
                    self._excluded.discard(slot)
        if self._released:
            self._settle()

    def end(self) -> bool:
        """Stop pinning for good; does nothing and returns False if a slot is pinned, or about to be."""
        self._settle()
        if self._mutex.locked():
            return False
        with self._mutex:
            unused = not (self._held or self._inherited or self._released)
            if unused:
                self._fd = -1
            return unused

    def pinned(self, slot: int) -> bool:
        """Whether any process has a slot attached."""
        self._settle()
        return slot in self._held or holder(self._fd, slot) is not None

    def attached(self, slot: int) -> bool:
        """Whether any process has a slot attached, or inherited it through a fork."""
        return self.pinned(slot) or self.inherited(slot)

    def inherited(self, slot: int) -> bool:
        """Whether any process inherited an attached slot through a fork, and still maps its memory."""
        return slot in self._inherited or holder(self._fd, INHERITED_LOCKS + slot) is not None

    def own(self, inherited: bool = False) -> list[int]:
        """Return the slots that this process has pinned; with ``inherited``, also those it inherited."""
        self._settle()
        with self._mutex:
            return [*self._held, *(self._inherited if inherited else ())]

    def after_fork(self) -> None:
        """Turn the parent's pins into inherited slots: their memory stays mapped, but they may be evicted."""
        self._mutex = _thread.allocate_lock()
        self._excluded.clear()
        for slot, inherited in self._released:
            counts = self._inherited if inherited else self._held
            counts[slot] = counts.get(slot, 0) - 1
        self._released.clear()
        for slot, count in self._held.items():
            self._inherited[slot] = self._inherited.get(slot, 0) + count
        self._held = {}
        self._inherited = {slot: count for slot, count in self._inherited.items() if count > 0}
        with suppress(OSError):  # the child may have closed the descriptor; then its slots do not count
            for slot in self._inherited:
                try_lock(self._fd, INHERITED_LOCKS + slot, False)


def _runs(frame: FrameType) -> bool:
    """Whether a frame is on the stack of any thread."""
    for top in sys._current_frames().values():
        each: FrameType | None = top
        while each is not None:
            if each is frame:
                return True
            each = each.f_back
    return False


def closed(where: str) -> Closed:
    """Return the error for using a closed store."""
    return Closed(f"the store {where!r} is closed; open it again")
