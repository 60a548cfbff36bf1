"""Waiting for changes: a table in the control file says who waits for what, and a semaphore wakes each waiter.

Invariants:

* a record belongs to the thread whose process has locked its byte of ``commit``, and a record that nobody has locked to
  whoever locks it next. It has the number of its semaphore before that exists and until it is removed, so that no
  semaphore of a killed process is lost;
* a waiter registers, then looks, then sleeps. A writer commits, then reads the table. So a change is found or posted;
* nothing depends on a post: a waiter looks again every :data:`CHECK` seconds, and at growing intervals if it cannot
  register, as it may not write to the store, the table is full, or there are no semaphores.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Self

import numpy as np

from shmarrow.segment.semaphore import (
    Semaphore,
    create_semaphore,
    new_number,
    open_semaphore,
    remove_semaphore,
    wait_for_post,
)
from shmarrow.store import protocol as p
from shmarrow.store.control import ControlFile
from shmarrow.store.directory import Directory, writers_only
from shmarrow.store.locks import Exclusive

if TYPE_CHECKING:
    from shmarrow.store.catalog import Catalog

CHECK = 1.0
"""Seconds after which a waiter looks again without having been woken."""
_SIZE = p.WAITER_COUNT * p.WAITER_SIZE
_NOBODY = bytes(_SIZE)
_NUMBER, _HASH = p.WAITER["semaphore"][0] >> 3, p.WAITER["hash"][0] >> 3
_LENGTH, _WAITING = p.WAITER["length"][0] >> 2, p.WAITER["waiting"][0] >> 2


def whole(name: bytes) -> bytes:
    """Return the prefix with which to wait for one name: no name contains its last byte."""
    return name + b"\0"


def common_prefix(names: Iterable[bytes]) -> bytes:
    """Return the longest prefix of all names."""
    ordered = sorted(names)
    first, last = ordered[0], ordered[-1]
    return next((first[:at] for at in range(len(first)) if first[at] != last[at]), first)


class Waiters:
    """The waiters of a store: those of this process, and those that it wakes."""

    def __init__(
        self, control: ControlFile, directory: Directory, exclusive: Exclusive, mode: int, modulus: int
    ) -> None:
        self._control = control
        self._directory = directory
        self._exclusive = exclusive
        self._mode = mode
        self._modulus = modulus
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the semaphores of the parent; called in a forked child."""
        self._own: dict[int, Semaphore] = {}
        self._opened: list[tuple[int, Semaphore | None]] = [(0, None)] * p.WAITER_COUNT

    # --- waking ---------------------------------------------------------------------------------------------------

    def wake(self, names: Collection[bytes] | None) -> None:
        """Wake those who wait for one of these names, or for a prefix of one; None wakes all."""
        table = bytes(self._control.memory.bytes[p.WAITERS : p.WAITERS + _SIZE])
        if table == _NOBODY:
            return
        used = np.frombuffer(table, np.uint32)[_WAITING :: p.WAITER_SIZE >> 2].nonzero()[0]
        end = (int(used[-1]) + 1) * p.WAITER_SIZE if len(used) else 0
        found: dict[int, set[int]] = {}
        for index, (number, wanted, length, waiting) in enumerate(p.WAITER_STRUCT.iter_unpack(table[:end])):
            if not waiting:
                continue
            if names is not None:
                if length not in found:
                    found[length] = {p.hash_of(whole(name)[:length], self._modulus) for name in names}
                if wanted not in found[length]:
                    continue
            self._post(index, number)

    def _post(self, index: int, number: int) -> None:
        known, semaphore = self._opened[index]
        if known != number:
            directory, mode = self._directory, self._mode
            users = None if mode & 0o002 else directory.trusted
            semaphore = open_semaphore(number, users, directory.owner[1] if mode & 0o020 else -1)
            self._opened[index] = number, semaphore
        if semaphore is not None:
            semaphore.post()

    def wake_own(self) -> None:
        """Wake the waiting threads of this process."""
        for semaphore in tuple(self._own.values()):
            semaphore.post()

    # --- records --------------------------------------------------------------------------------------------------

    def register(self, waiting: Waiting) -> Semaphore | None:
        """Give a waiter a record, and return its semaphore; None if that is not possible.

        ``waiting.index`` says which, so that :meth:`release` undoes also what was interrupted.
        """
        if self._exclusive.fd < 0 or not self._claim(waiting):
            return None
        number = new_number()
        self._control.memory.words[_word(waiting.index, _NUMBER)] = number
        made = create_semaphore(number, *self._permissions())
        if made is None:
            self.release(waiting.index)
            return None
        self._own[waiting.index] = made
        return made

    def _claim(self, waiting: Waiting) -> bool:
        """Lock a record: an unused one, or else that of a process that has ended; False if there is none."""
        words = self._control.memory.words
        for used in (False, True):
            for index in range(p.WAITER_COUNT):
                if bool(words[_word(index, _NUMBER)]) is used:
                    waiting.index = index
                    if self._exclusive.acquire(p.WAITER_LOCKS + index):
                        if self._clear(index):
                            return True
                        self._exclusive.release(p.WAITER_LOCKS + index)
        waiting.index = -1
        return False

    def _permissions(self) -> tuple[int, int, int]:
        """Return mode, user and group of a semaphore: those who may write to the store may post."""
        directory, mode = self._directory, self._mode
        owner, group = directory.given
        return writers_only(mode), owner, directory.owner[1] if mode & 0o022 == 0o020 else group

    def tell(self, index: int, prefix: bytes) -> None:
        """Record that a waiter waits for names that begin with these bytes; see :func:`whole`."""
        words, ints = self._control.memory.words, self._control.memory.ints
        ints[_int(index, _WAITING)] = 0
        words[_word(index, _HASH)] = p.hash_of(prefix, self._modulus)
        ints[_int(index, _LENGTH)] = len(prefix)
        ints[_int(index, _WAITING)] = 1

    def release(self, index: int) -> None:
        """Give a record back, if this thread has it."""
        if index >= 0 and self.has(index):
            try:
                self._own.pop(index, None)
                self._clear(index)
            finally:
                self._clear(index)  # a signal handler may have raised in the first one
                self._exclusive.release(p.WAITER_LOCKS + index)

    def leave(self) -> None:
        """Clear the records of this process; called at its end, when other threads may still wait."""
        for index in tuple(self._own):
            self._clear(index)

    def has(self, index: int) -> bool:
        """Whether this thread has a record: a forked child has none of its parent."""
        return self._exclusive.mine(p.WAITER_LOCKS + index)

    def _clear(self, index: int) -> bool:
        """Remove the semaphore of a record, and clear it; False if the semaphore belongs to another user."""
        words = self._control.memory.words
        self._control.memory.ints[_int(index, _WAITING)] = 0
        number = words[_word(index, _NUMBER)]
        if number and not remove_semaphore(number):
            return False
        words[_word(index, _NUMBER)] = 0
        return True

    def collect(self) -> None:
        """Clear the records of processes that have ended, and remove their semaphores."""
        words = self._control.memory.words
        for index in range(p.WAITER_COUNT):
            if words[_word(index, _NUMBER)] and self._exclusive.acquire(p.WAITER_LOCKS + index):
                try:
                    self._clear(index)
                finally:
                    self._exclusive.release(p.WAITER_LOCKS + index)


def _word(index: int, field: int) -> int:
    return (p.WAITERS + index * p.WAITER_SIZE >> 3) + field


def _int(index: int, field: int) -> int:
    return (p.WAITERS + index * p.WAITER_SIZE >> 2) + field


class Waiting:
    """A context manager in which one thread waits for changes: it looks, calls :meth:`wait`, and looks again.

    Attributes
    ----------
    index : int
        The record of this waiter; -1 if it has none.
    """

    def __init__(self, catalog: Catalog, timeout: float | None) -> None:
        self.index = -1
        self._catalog = catalog  # its descriptors are needed until the record is given back
        self._waiters = catalog.waiters
        self._began = time.monotonic()
        self._end = None if timeout is None else self._began + timeout
        self._prefix: bytes | None = None
        self._semaphore: Semaphore | None = None

    def wait(self, prefix: bytes, longest: float = CHECK) -> bool:
        """Wait until a name that begins with ``prefix`` may have changed; False if the timeout has expired.

        It may return early, and the first call returns at once: a change before it was registered went unnoticed.
        """
        now = time.monotonic()
        left = longest if self._end is None else min(longest, self._end - now)
        if left <= 0:
            return False
        if prefix != self._prefix or (self._semaphore is not None and not self._waiters.has(self.index)):
            self._register(prefix)
        else:
            wait_for_post(self._semaphore, left, now - self._began)
        return True

    def _register(self, prefix: bytes) -> None:
        if self.index < 0 or not self._waiters.has(self.index):
            self._semaphore = self._waiters.register(self)
        if self._semaphore is not None:
            self._waiters.tell(self.index, prefix)
        self._prefix = prefix

    @property
    def waited(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiters.release(self.index)
        self.index = -1

    def __del__(self) -> None:
        if self.index >= 0:  # a signal handler has raised in `__exit__`
            self._waiters.release(self.index)
