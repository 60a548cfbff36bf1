"""States of readers, writers and decoders: a table of transitions for each, and where one object stands in its table.

Rules kept here:

* a class that has states lists them in one table at the top of its file, as state -> event -> next state; an event that
  a state does not list is refused and changes nothing;
* an error in the middle of a message is the event ``FAIL``. The first one counts: all later events that are refused
  name it;
* only the text of the first error is kept: its traceback would hold the buffers and mappings of the frames that it
  passed through.

Thread safety: a :class:`StateMachine` belongs to one object, whose lock guards it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from shmarrow.errors import Closed, Failed, ShmarrowError

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


class StateMachine:
    """Where one object stands in its table of transitions.

    Parameters
    ----------
    what : str
        The object, for error messages: ``"the writer to a.arrow"``.
    table : mapping
        Its transitions.
    state : str
        The state that it begins in.

    Attributes
    ----------
    state : str
        The state that it is in now.
    failure : str
        The first error as text, empty where there was none.
    """

    __slots__ = ("_pid", "_table", "_what", "failure", "state")

    def __init__(self, what: str, table: Transitions, state: str = OPEN) -> None:
        self._what = what
        self._table = table
        self._pid = os.getpid()
        self.state = state
        self.failure = ""

    def go(self, event: str) -> None:
        """Move on to the state that an event leads to.

        Raises
        ------
        Failed
            If the state does not accept the event and there was an error before.
        Closed
            If it does not accept it and there was none.
        """
        state = self._table[self.state].get(event)
        if state is None:
            raise self.refusal()
        self.state = state

    def fail(self, error: BaseException) -> None:
        """Move on after an error, which is remembered if it is the first."""
        if not self.failure:
            self.failure = f"{type(error).__name__}: {error}"
        self.state = self._table[self.state].get(FAIL, self.state)

    def refusal(self) -> ShmarrowError:
        """The error to raise for an event that the state does not accept."""
        if self.failure:
            return Failed(f"{self._what} failed before and cannot go on; the first error was {self.failure}")
        return Closed(f"{self._what} is {self.state}")

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy of an object that belongs to its parent."""
        return os.getpid() != self._pid
