"""State machines of readers, writers and decoders: a transition table for each, and the current state of an object.

Invariants:

* a class that has states lists them in one table at the top of its file, as state -> event -> next state; an event that
  a state does not list is refused and changes nothing;
* an error in the middle of a message is the event ``FAIL``. The first one counts: whatever is refused later names it;
* only the text of the first error is kept: its traceback would hold the buffers and mappings of the frames that it
  passed through;
* what reads or writes at a position that a forked child shares with its parent belongs to the process that opened it.
  The child's copy can only be closed, and closing it releases what the child holds and writes nothing.

Thread safety: a :class:`StateMachine` belongs to one object, whose lock guards it.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Mapping
from typing import NoReturn, SupportsIndex

from shmarrow.errors import Closed, Failed, InvalidArgument, InvalidType, ShmarrowError

OPEN = "open"
ENDED = "ended"
FAILED = "failed"
CLOSED = "closed"

READ = "read"
WRITE = "write"
END = "end"
FAIL = "fail"
CLOSE = "close"

Transitions = Mapping[str, Mapping[str, str]]
"""For each state, the events that it accepts and the states that they lead to."""


SEQUENTIAL: Transitions = {
    OPEN: {READ: OPEN, END: ENDED, FAIL: FAILED, CLOSE: CLOSED},
    ENDED: {READ: ENDED, END: ENDED, CLOSE: CLOSED},
    FAILED: {FAIL: FAILED, CLOSE: CLOSED},
    CLOSED: {CLOSE: CLOSED},
}
"""States of what is read once, from its beginning to its end: any error is the end of it."""


class StateMachine:
    """The current state of one object in its transition table.

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
        The state that it is in now.
    failure : str
        The first error as text, empty where there was none.
    """

    __slots__ = ("_pid", "_table", "_what", "failure", "state")

    def __init__(self, what: str, table: Transitions, state: str = OPEN, shared: bool = False) -> None:
        self._what = what
        self._table = table
        self._pid = 0 if shared else os.getpid()
        self.state = state
        self.failure = ""

    def go(self, event: str) -> None:
        """Apply an event.

        Raises
        ------
        Failed
            If the state does not accept the event and there was an error before.
        Closed
            If it does not accept it and there was none, or if the object belongs to the parent process.
        """
        if self.inherited and event != CLOSE:
            raise Closed(f"{self._what} belongs to process {self._pid}, which forked this one; open it here")
        state = self._table[self.state].get(event)
        if state is None:
            raise self.refusal()
        self.state = state

    def fail(self, error: BaseException) -> None:
        """Apply the event ``FAIL``, if the state accepts it, and remember the first error."""
        state = self._table[self.state].get(FAIL)
        if state is not None:
            self.failure = self.failure or f"{type(error).__name__}: {error}"
            self.state = state

    def refusal(self) -> ShmarrowError:
        """Make the error for an event that the state does not accept."""
        if self.failure:
            return Failed(f"{self._what} failed before and cannot go on; the first error was {self.failure}")
        return Closed(f"{self._what} is {self.state}")

    @property
    def inherited(self) -> bool:
        """Whether this object was inherited by a forked child from its parent."""
        return self._pid != 0 and os.getpid() != self._pid


def fork_safe_lock() -> _thread.RLock:
    """Return a reentrant lock that a fork waits for, so that the child finds it free and the guarded state consistent.

    For what a whole process shares: the handlers that it registers stay for the life of the process.
    """
    lock = _thread.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


class Turn:
    """A non-reentrant lock for one operation at a time.

    Threads wait for each other. A signal handler, or a callback of a file object, runs in the middle of whatever its
    thread does: it must neither wait for itself nor put one message into another.

    Parameters
    ----------
    what : str
        The object, for error messages.
    """

    __slots__ = ("_busy", "_lock", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = _thread.RLock()
        self._busy = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._busy:
            self._lock.release()
            raise InvalidArgument(
                f"{self._what} is in the middle of another call of the same thread, which a signal handler or a file "
                "object's method has interrupted; call abort() or close() there, and nothing else"
            )
        self._busy = True

    def __exit__(self, *_: object) -> None:
        self._busy = False
        self._lock.release()

    @property
    def interrupted(self) -> bool:
        """Whether the calling thread is already in the middle of an operation."""
        return self._busy and self._lock._is_owned()  # type: ignore[attr-defined]


class NotCopied:
    """A mixin for objects that cannot be pickled or copied, as a copy would share a position, descriptor or lock."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise InvalidType(
            f"a {type(self).__name__} cannot be pickled or copied; open another one, by a path or a shm: name"
        )
