# SPDX-License-Identifier: Apache-2.0
"""Waiting for changes: a table in the control file says who waits for what, on which word of it.

Invariants:

* a record belongs to the thread whose process has locked its byte of ``commit``, and a record that nobody has locked to
  whoever locks it next: all that a killed waiter leaves is a 1, at which the next writer that changes such a name calls
  once for nobody, and which writers that meet many, and ``collect``, clear;
* a waiter registers, then looks, then sleeps. A writer commits, then reads the table. So a change is found or wakes;
* nothing depends on being woken: a waiter looks again every :data:`CHECK` seconds, and at growing intervals if it
  cannot register, as it may not write to the store, or the table is full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, Self

import numpy as np

from shmarrow.memory import Exclusive, Futexes, Wait
from shmarrow.store import protocol as p
from shmarrow.store.control import ControlFile

CHECK = 1.0
"""Seconds after which a waiter looks again without having been woken."""
_WAITING = p.WAITERS + p.WAITER["waiting"][0] >> 2
_INTS = p.WAITER_SIZE >> 2
_MANY, _CLEARED = 16, 4
"""More waiters than this are many: a commit then looks whether some of them have ended."""


def exactly(name: bytes) -> bytes:
    """Return the prefix with which to wait for one name: no name contains its last byte."""
    return name + b"\0"


def common_prefix(names: Iterable[bytes]) -> bytes:
    """Return the longest prefix of all names."""
    ordered = sorted(names)
    first, last = ordered[0], ordered[-1]
    return next((first[:at] for at in range(len(first)) if first[at] != last[at]), first)


class Waiters:
    """The waiters of a store: those of this process, and those that it wakes."""

    def __init__(self, control: ControlFile, exclusive: Exclusive, modulus: int) -> None:
        self._bytes = control.memory.bytes
        self._waiting = np.frombuffer(self._bytes, np.uint32)[_WAITING : p.SLOTS >> 2 : _INTS]
        self._exclusive = exclusive
        self._modulus = modulus
        self._next = 0
        """The position among many waiters at which :meth:`wake` looks next for those that have ended."""
        self.futexes = Futexes(self._bytes)

    # --- waking ---------------------------------------------------------------------------------------------------

    def wake(self, names: Collection[bytes] | None) -> None:
        """Wake those who wait for one of these names, or for a prefix of one; None wakes all."""
        hashes: dict[int, set[int]] = {}
        indices = self._waiting.copy().nonzero()[0].tolist()  # numpy counts twice, and others change them meanwhile
        if len(indices) > _MANY:
            self.clear_dead(self._next % len(indices), _CLEARED)
            self._next += _CLEARED
        for index in indices:
            if names is not None:
                prefix, length, _ = p.WAITER_STRUCT.unpack_from(self._bytes, p.WAITERS + index * p.WAITER_SIZE)
                if length not in hashes:
                    hashes[length] = {p.hash_of(exactly(name)[:length], self._modulus) for name in names}
                if prefix not in hashes[length]:
                    continue
            self.futexes.wake(word_of(index))

    def clear_dead(self, first: int = 0, count: int = p.WAITER_COUNT) -> None:
        """Clear the records of waiters that have ended, which each commit would look at: some of those that wait."""
        for index in self._waiting.copy().nonzero()[0][first:][:count].tolist():
            if self._exclusive.acquire(p.WAITER_LOCKS + index):  # nobody waits there
                self.futexes.disarm(word_of(index))
                self._exclusive.release(p.WAITER_LOCKS + index)

    def wake_own(self) -> None:
        """Wake the waiting threads of this process."""
        for index in range(p.WAITER_COUNT):
            if p.WAITER_LOCKS + index in self._exclusive:
                self.futexes.wake(word_of(index))

    # --- records --------------------------------------------------------------------------------------------------

    def claim(self, waiting: Waiting) -> None:
        """Lock a record for a waiter: one that nobody waits in, or else that of a process that has ended.

        ``waiting.index`` says which, so that :meth:`release` undoes also what was interrupted; -1 if there is none.
        """
        for stale in (False, True) if self._exclusive.fd >= 0 else ():
            for index in (self._waiting.astype(bool) == stale).nonzero()[0].tolist():
                waiting.index = index
                if self._exclusive.acquire(p.WAITER_LOCKS + index):
                    return
        waiting.index = -1

    def tell(self, index: int, prefix: bytes) -> None:
        """Record that a waiter waits for names that begin with these bytes; see :func:`exactly`."""
        self.futexes.disarm(word_of(index))
        place, hashed = p.WAITERS + index * p.WAITER_SIZE, p.hash_of(prefix, self._modulus)
        p.WAITER_STRUCT.pack_into(self._bytes, place, hashed, len(prefix), 0)

    def release(self, index: int) -> None:
        """Give a record back, if this thread has it."""
        if index >= 0 and self._exclusive.mine(p.WAITER_LOCKS + index):
            self.futexes.disarm(word_of(index))
            self._exclusive.release(p.WAITER_LOCKS + index)

    def has(self, index: int) -> bool:
        """Whether this thread has a record: a forked child has none of its parent."""
        return self._exclusive.mine(p.WAITER_LOCKS + index)


def word_of(index: int) -> int:
    """The word of a record that a waiter sleeps on."""
    return _WAITING + index * _INTS


class _Open(Protocol):
    """An open store."""

    waiters: Waiters


class Waiting(Wait):
    """A context manager in which one thread waits for changes: it looks, calls :meth:`wait`, and looks again.

    Attributes
    ----------
    index : int
        The record of this waiter; -1 if it has none.
    """

    def __init__(self, catalog: _Open, timeout: float | None) -> None:
        self.index = -1
        super().__init__(timeout)
        self._catalog = catalog  # its descriptors are needed until the record is given back
        self._waiters = catalog.waiters
        self._prefix: bytes | None = None
        self._word = -1

    def wait(self, prefix: bytes, longest: float = CHECK) -> bool:
        """Wait until a name that begins with ``prefix`` may have changed; False if the timeout has expired.

        It may return early. The first call returns at once, and so does the one after a sleep from which it was woken:
        a change before it asked to be woken went unnoticed.
        """
        waiters, futexes, index = self._waiters, self._waiters.futexes, self.index
        if prefix != self._prefix or not (index < 0 or waiters.has(index)):
            if index < 0 or not waiters.has(index):
                waiters.claim(self)
            self._prefix, self._word = prefix, -1
            if self.index >= 0:
                waiters.tell(self.index, prefix)
                self._word = word_of(self.index)
                futexes.arm(self._word)
        elif self._word < 0 or futexes.is_armed(self._word):
            sleep = self.sleep(futexes, self._word, longest)
            if sleep is None:
                return False
            sleep()
        else:  # it was woken, and has found nothing
            futexes.arm(self._word)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiters.release(self.index)
        self.index = -1

    def __del__(self) -> None:
        if self.index >= 0:  # a signal handler has raised in `__exit__`
            self._waiters.release(self.index)
