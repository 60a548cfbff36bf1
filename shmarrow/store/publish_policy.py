"""What a store does while one of its objects is written: makes room for it, and sees that its name is given in order.

Rules kept here:

* a name is given under the store's lock where something else has to be true at the same moment: another object is
  replaced, the ledger goes on, the object has an owner or an end. Where nothing has, no lock is taken;
* an object has its time of publishing from the clock, to the nanosecond. That of many file systems stands still for
  milliseconds, in which an inode can be one object's, removed, and the next one's, and these two must not be taken for
  each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import NamedTuple

from shmarrow.errors import StoreFull
from shmarrow.segment import SegmentWriter
from shmarrow.store import space
from shmarrow.store.place import Found, Lock, Place, found_as
from shmarrow.store.register import NOTHING, Register, Row
from shmarrow.store.space import RoomRefused, Shortage, Space


class Wishes(NamedTuple):
    """What is asked for an object.

    Attributes
    ----------
    evicts : bool
        Whether others may be removed to make room for it.
    deadline : int
        When it expires, in nanoseconds since 1970; 0 for never.
    owner : callable, optional
        Gives the number of its owner, under the store's lock.
    """

    evicts: bool = False
    deadline: int = 0
    owner: Callable[[], int] | None = None


class StoreKeeper:
    """The keeper of one object that is being written; see :class:`shmarrow.segment.PublishPolicy`."""

    def __init__(self, place: Place, space: Space, register: Register, name: str, wishes: Wishes) -> None:
        self.scratch = place.control
        self.visible = space.capacity is not None or not place.unnamed
        self._place = place
        self._space = space
        self._register = register
        self._name = name
        self._wishes = wishes

    def _target(self, writer: SegmentWriter) -> Found | None:
        """The object that is going to be replaced."""
        if not writer.overwrite:
            return None
        try:
            return found_as(self._name, os.lstat(writer.path))
        except OSError:
            return None

    def make_room(self, writer: SegmentWriter, size: int) -> None:
        """Make room for ``size`` bytes, or raise `StoreFull`."""
        if self._space.capacity is None and not self._wishes.evicts:
            return
        with self._place.lock():
            fd = writer.fileno()
            status = os.fstat(fd)
            try:
                self._space.make_room(
                    size, size - status.st_size, status.st_ino, self._target(writer), self._wishes.evicts
                )
            except RoomRefused as refused:
                capacity = self._space.capacity
                reason = "the capacity does not allow it" if capacity is not None else "the file system is full"
                raise space.full(self._place, self._name, size, capacity, refused.shortage, reason) from None
            if self.visible:
                os.ftruncate(fd, size)  # others count it from here on

    def turn(self, writer: SegmentWriter) -> AbstractContextManager[None]:
        """Stamp the object, which is whole now; what is held while it gets its name."""
        now = time.time_ns()
        os.utime(writer.fileno(), ns=(now, now))
        wanted = self._wishes.owner is not None or self._wishes.deadline or self.visible or writer.overwrite
        return _Turn(self, writer) if wanted else nullcontext()

    def full(self, writer: SegmentWriter, size: int, error: OSError) -> StoreFull:
        """The error when the file system has no room."""
        found = list(self._place.scan())
        shortage = Shortage(
            sum([each.size for each in found]),
            sum([each.size for each in found if space.is_pinned(self._place.path(each.name))]),
            os.fstat(writer.fileno()).st_size,
        )
        return space.full(
            self._place, self._name, size, self._space.capacity, shortage, error.strerror or "the file system is full"
        )

    def begin(self, writer: SegmentWriter) -> None:
        """Write down what is known of the object, and what it is going to replace; the lock is held."""
        owner = self._wishes.owner() if self._wishes.owner is not None else 0
        row = Row(self._wishes.deadline, owner)
        found = found_as(self._name, os.fstat(writer.fileno()))
        if row != NOTHING:
            self._register.add(found.key, row)
        replaced = self._target(writer)
        # Counted before it is there: who is killed in between leaves a ledger that says too much, never too little.
        self._change = found.size - (replaced.size if replaced is not None else 0)
        self._space.note(self._change)

    def undo(self) -> None:
        """The object did not get its name; the lock is held."""
        self._space.note(-self._change)


class _Turn:
    """The store's lock, and what goes with the name of an object."""

    def __init__(self, keeper: StoreKeeper, writer: SegmentWriter) -> None:
        self._keeper = keeper
        self._writer = writer
        self._lock: Lock = keeper._place.lock()

    def __enter__(self) -> None:
        self._lock.__enter__()
        try:
            self._keeper.begin(self._writer)
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                self._keeper.undo()
        finally:
            self._lock.__exit__(kind, error, trace)
