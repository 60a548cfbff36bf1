# SPDX-License-Identifier: Apache-2.0
"""The life cycle of writers: everything that is published follows these rules, and sinks, which writers own.

Nobody sees what a writer has written until the writer ends, which it does exactly once. :meth:`Writer.close` publishes
it whole; :meth:`Writer.abort` drops it without a trace. Invariants:

* a ``with`` block closes at its end, and aborts on an exception. Garbage collection aborts, and so does the end of the
  interpreter, as far as its modules still exist; the kernel removes the rest, or the next writer of the same name;
* an exception while the output changes, or while it is published, is final: nothing is published, and later calls quote
  the first error. Any other exception leaves the writer as it was. An interrupt in the last moment of ``close`` may
  leave the object published, whole;
* threads wait for each other. A signal handler, or a callback of a file object, in the middle of a call of its own
  thread can only end the writer: ``close`` is ``abort`` there, and takes effect at the end of that call, which raises.
  So nothing is released that a call still uses. While the writer is being closed, both have no effect;
* a forked child's copy writes and publishes nothing, and releases only what the child holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidType
from shmarrow.memory.state_machine import (
    CLOSE,
    CLOSED,
    END,
    ENDED,
    FAIL,
    FAILED,
    OPEN,
    NotCopied,
    StateMachine,
    Transitions,
)

CHANGING = "changing"
FINISHING = "finishing"

CHANGE = "change"
KEEP = "keep"
FINISH = "finish"
ABORT = "abort"

TRANSITIONS: Transitions = {
    OPEN: {CHANGE: CHANGING, FINISH: FINISHING, ABORT: ENDED, CLOSE: CLOSED},
    CHANGING: {KEEP: OPEN, FAIL: FAILED, ABORT: ENDED, CLOSE: CLOSED},
    FINISHING: {END: ENDED, FAIL: FAILED, CLOSE: CLOSED},
    FAILED: {FAIL: FAILED, CLOSE: CLOSED},
    ENDED: {CLOSE: CLOSED},
    CLOSED: {CLOSE: CLOSED},
}
"""States of a writer. ``CHANGING``: the output is incomplete, so this state is left by success or not at all.
``ENDED``: published or aborted, but not everything is released."""

W = TypeVar("W", bound="Writer")
P = ParamSpec("P")
R = TypeVar("R")


def operation(method: Callable[Concatenate[W, P], R]) -> Callable[Concatenate[W, P], R]:
    """Decorate a method that writes: one call at a time, while the writer is open, in the process that made it."""

    def call(self: W, /, *args: P.args, **kwargs: P.kwargs) -> R:
        states = self._states
        states.admit()
        try:
            with states.turn:
                if states.state != OPEN:
                    raise states.refusal()
                result = method(self, *args, **kwargs)
                if states.state != OPEN:  # a signal handler has ended the writer meanwhile
                    raise states.refusal()
                return result
        finally:
            if states.state == ENDED:
                self.abort()

    return update_wrapper(call, method)


class Writer(NotCopied):
    """Base class of all writers: output that is written first, and then published or dropped.

    A subclass defines :meth:`_finish` and :meth:`_drop`, and decorates what writes with :func:`operation`. Its
    constructor calls this one when all that :meth:`_drop` needs is there.

    Parameters
    ----------
    what : str
        The writer, for error messages: ``"the writer to a.arrow"``.
    """

    _released = True  # unless the constructor came far enough

    def __init__(self, what: str) -> None:
        self._states = StateMachine(what, TRANSITIONS)
        self._released = False

    def _finish(self) -> None:
        """Complete what was written, and publish it. Called once."""

    def _drop(self) -> None:
        """Release everything, and remove what is not published.

        Called at the end, after :meth:`_finish` too; again, if an interrupt got in the way; and in a forked child,
        where ``self._states.inherited`` is true and nothing outside the process may change.
        """

    def _change(self, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Change the output by a function: unless it returns, the writer has failed."""
        states = self._states
        states.go(CHANGE)
        try:
            result = step(*args, **kwargs)
        except BaseException as error:
            states.fail(error)
            raise
        states.go(KEEP)
        return result

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._states.state in (ENDED, CLOSED)

    def close(self) -> None:
        """Publish what was written. Calling it again has no effect.

        In a signal handler that interrupts a call of this writer, this is :meth:`abort`.

        Raises
        ------
        Failed
            After an earlier error, which is quoted; nothing is published.
        """
        states = self._states
        if states.blocked:
            self.abort()
            return
        with states.turn:
            try:
                if states.state not in (ENDED, CLOSED):
                    states.go(FINISH)
                    self._finish()
                    states.go(END)
            except BaseException as error:
                states.fail(error)
                raise
            finally:
                self._release()

    def abort(self) -> None:
        """Drop what was written; nothing is published. No effect after closing."""
        if self._released:
            return
        states = self._states
        if states.inherited:  # another thread of the parent may hold the turn
            self._release()
        elif states.busy:
            states.apply(ABORT)
        else:
            with states.turn:
                states.apply(ABORT)
                self._release()

    def _release(self) -> None:
        if not self._released:
            self._drop()
            self._released = True
            self._states.go(CLOSE)

    def _check_open(self) -> None:
        """Raise an error unless it may be written to."""
        self._states.admit()
        if self._states.state != OPEN:
            raise self._states.refusal()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        (self.close if kind is None else self.abort)()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not self._released:
            try:
                self.abort()
            except Exception:
                if not is_finalizing():  # at the end of the interpreter, modules may be gone
                    raise


class Sink:
    """Where a writer's bytes go, in sequence.

    It has no states: it belongs to one owner, a writer or a ``with`` block, which makes one call at a time, publishes
    it at most once, and drops it in any case.

    Attributes
    ----------
    name : str
        Name for error messages.
    size : int
        Bytes written so far.
    """

    name: str
    size: int

    def write(self, pieces: Sequence[Any]) -> int:
        """Write pieces in order, each bytes or a C-contiguous ``uint8`` ndarray; returns the number of bytes."""
        raise NotImplementedError

    def write_each(self, pieces: Iterable[Any], size: int) -> None:
        """Write an iterable of pieces with ``size`` bytes in total, one at a time."""
        for piece in pieces:
            self.write([piece])

    def map(self, size: int) -> Bytes:
        """Map the first ``size`` bytes, to be filled in place, if it is a file that is being written.

        Raises
        ------
        InvalidType
            If it is not.
        """
        raise InvalidType(f"to be filled in place, {self.name} must be a path or a shm: name, found a file object")

    def publish(self) -> None:
        """Complete what was written, and let others see it; no effect once it was dropped."""

    def drop(self) -> None:
        """Release everything, and remove what is not published."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            self.drop()
