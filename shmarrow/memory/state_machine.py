# SPDX-License-Identifier: Apache-2.0
"""The state of a reader, a writer or a decoder: its table of transitions, its first error, and whose turn it is.

Invariants:

* a class that has states lists them in one table at the top of its file, as state -> event -> next state; an event that
  a state does not list is refused and changes nothing;
* an error in the middle of a message is the event ``FAIL``. Only the first error is kept; later calls quote it;
* only the text of the first error is kept: its traceback would hold the buffers and mappings of the frames that it
  passed through;
* what reads or writes at a position that a forked child shares with its parent belongs to the process that opened it.
  The child's copy can only be closed, and closing it releases what the child holds and writes nothing.
* one operation at a time. Threads wait for their turn. **What interrupts a call may close objects, and nothing else**:
  a signal handler, a finalizer or a callback of a file object, in the middle of an operation of its own thread, is
  refused, as it must neither wait for itself nor put one message into another;
* a loop within a ``try`` or ``with`` that must be left properly, such as one that releases a lock, is in a function of
  its own: on Python 3.13, what a signal handler raises at the end of a turn skips the ``try`` around the loop.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable, Mapping
from typing import NoReturn, SupportsIndex, TypeVar

from shmarrow.errors import Closed, Failed, InvalidArgument, InvalidType, ShmarrowError

OPEN = "open"
ENDED = "ended"
FAILED = "failed"
CLOSED = "closed"

READ = "read"
END = "end"
FAIL = "fail"
CLOSE = "close"

T = TypeVar("T")

Transitions = Mapping[str, Mapping[str, str]]
"""For each state, the events that it accepts and the states that they lead to."""


SEQUENTIAL: Transitions = {
    OPEN: {READ: OPEN, END: ENDED, FAIL: FAILED, CLOSE: CLOSED},
    ENDED: {READ: ENDED, END: ENDED, CLOSE: CLOSED},
    FAILED: {FAIL: FAILED, CLOSE: CLOSED},
    CLOSED: {CLOSE: CLOSED},
}
"""States of what is read once, from its beginning to its end: any error is the end of it."""


PROCESS = [os.getpid()]
"""The id of this process: one item, which a forked child replaces. It takes no system call."""


def _in_child() -> None:
    PROCESS[0] = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class StateMachine:
    """The state of one object.

    Parameters
    ----------
    what : str
        The object, for error messages: ``"the writer to a.arrow"``.
    table : mapping
        Its transitions.
    state : str
        The state that it begins in.
    shared : bool
        Whether a forked child may use its copy of the object.

    Attributes
    ----------
    state : str
        The current state.
    failure : str
        The first error as text; empty if there was none.
    turn : RLock
        Held during an operation: ``states.admit()``, then ``with states.turn:``, and in it ``states.go(event)``. A lock
        in C, as a signal handler cannot interrupt its acquisition or its release.
    """

    __slots__ = ("_pid", "_table", "_what", "failure", "state", "turn")

    def __init__(self, what: str, table: Transitions, state: str = OPEN, shared: bool = False) -> None:
        self._what = what
        self._table = table
        self._pid = 0 if shared else PROCESS[0]
        self.state = state
        self.failure = ""
        self.turn = _thread.RLock()

    def admit(self) -> None:
        """Refuse an operation that must not wait for its turn.

        Raises
        ------
        InvalidArgument
            If the calling thread is in the middle of another one.
        Closed
            If the object belongs to the parent process, where another thread may have had the turn.
        """
        if self.turn._is_owned():  # type: ignore[attr-defined]
            raise InvalidArgument(
                f"{self._what} is in the middle of another call of the same thread, which a signal handler or a file "
                "object's method has interrupted; call abort() or close() there, and nothing else"
            )
        if self._pid and PROCESS[0] != self._pid:
            raise self.refusal()

    def go(self, event: str) -> None:
        """Apply an event.

        Raises
        ------
        Failed
            If the state does not accept the event and there was an error before.
        Closed
            If it does not accept it and there was none, or if the object belongs to the parent process.
        """
        state = self._table[self.state].get(event)
        if state is None or (self._pid and event != CLOSE and PROCESS[0] != self._pid):
            raise self.refusal()
        self.state = state

    def apply(self, event: str) -> bool:
        """Apply an event if the state accepts it; returns whether it did."""
        state = self._table[self.state].get(event)
        if state is not None:
            self.state = state
        return state is not None

    def fail(self, error: BaseException) -> None:
        """Apply the event ``FAIL``, if the state accepts it, and remember the first error."""
        if self.apply(FAIL):
            self.failure = self.failure or f"{type(error).__name__}: {error}"

    def read(self, step: Callable[[], T]) -> T | None:
        """Read the next item of what is :data:`SEQUENTIAL`, in turn; None at the end, and from then on.

        Parameters
        ----------
        step : callable
            Reads it, and returns None at the end. An exception is final.
        """
        self.admit()
        with self.turn:
            self.go(READ)
            if self.state == ENDED:
                return None
            try:
                found = step()
            except BaseException as error:
                self.fail(error)
                raise
            self.go(END if found is None else READ)
            return found

    def refusal(self) -> ShmarrowError:
        """Make the error for an event that is not accepted now."""
        if self.inherited:
            return Closed(f"{self._what} belongs to process {self._pid}, which forked this one; open it here")
        if self.failure or FAIL in self._table[self.state]:
            first = self.failure or "an interrupt"  # of what would have recorded the error
            return Failed(f"{self._what} failed before and cannot go on; the first error was {first}")
        return Closed(f"{self._what} is {self.state}")

    @property
    def blocked(self) -> bool:
        """Whether no operation can be begun here: the object is busy, or inherited."""
        return self.turn._is_owned() or (self._pid != 0 and PROCESS[0] != self._pid)  # type: ignore[attr-defined]

    @property
    def busy(self) -> bool:
        """Whether the calling thread is in the middle of an operation."""
        return self.turn._is_owned()  # type: ignore[attr-defined]

    @property
    def inherited(self) -> bool:
        """Whether this object was inherited by a forked child from its parent."""
        return self._pid != 0 and PROCESS[0] != self._pid


def fork_safe_lock() -> _thread.RLock:
    """Return a reentrant lock that a fork waits for, so that the child finds it free and the guarded state consistent.

    For what a whole process shares: the handlers that it registers stay for the life of the process.
    """
    lock = _thread.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def lock_of_process(locks: dict[int, _thread.RLock]) -> _thread.RLock:
    """Return the reentrant lock of this process among those of an object: a forked child may get one that is held."""
    lock = locks.get(PROCESS[0])
    return locks.setdefault(PROCESS[0], _thread.RLock()) if lock is None else lock


class NotCopied:
    """A mixin for objects that cannot be pickled or copied, as a copy would share a position, descriptor or lock."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise InvalidType(
            f"a {type(self).__name__} cannot be pickled or copied; open another one, by a path or a shm: name"
        )
