"""Ctrl-C and ``sys.exit`` in the middle of a stream: exceptions that must end the program, not just a query.

A stream callback can only return an error code and a string, so a Python exception ends there: the consumer turns
``KeyboardInterrupt`` into an ordinary error, which a program may catch and retry. So the exception is kept, and raised
again in the main thread, where signal handlers run, when no callback runs there: as soon as the consumer returns to
Python, or shortly after. A callback of the next query must not get it, as it would end there once more.
"""

from __future__ import annotations

import _thread
import ctypes
import re
import sys
import threading
import time
from types import CodeType, FrameType


class _Kept:
    """The exception to raise again, if any.

    Attributes
    ----------
    error : BaseException or None
        The exception.
    callback : code
        The callback, in any call of which it may not be raised.
    caller : frame
        The frame that called the foreign code.
    at : int
        The instruction of that call: until it is over, the foreign code may run other Python code, too.
    """

    error: BaseException | None = None
    callback: CodeType
    caller: FrameType | None
    at: int

    def __bool__(self) -> bool:
        """Raise the exception, unless foreign code would get it; called by the main thread between two instructions."""
        frame: FrameType | None = sys._getframe(1)
        top = frame
        while frame is not None:
            if frame.f_code is self.callback or (frame is self.caller is not top and frame.f_lasti == self.at):
                return False
            frame = frame.f_back
        check()
        return False


_KEPT = _Kept()
_PENDING_CALL = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p), ctypes.py_object(_KEPT)
"""A call of ``_KEPT.__bool__`` that Python can make between two instructions, and whose exception it raises there."""

_NAMED = re.compile(r"Detail: Python exception: Traceback[^\0]*\n(KeyboardInterrupt|SystemExit)(?:: (\S+))?\s*$")
"""The end of pyarrow's message for a stream whose producer was interrupted."""


def raise_later(error: BaseException, callback: CodeType) -> None:
    """Raise an exception of the main thread again, once the callback, called by foreign code, has returned."""
    caller = sys._getframe(1).f_back
    if _is_main() and caller is not None:
        _KEPT.callback, _KEPT.caller, _KEPT.at = callback, caller, caller.f_lasti
        _KEPT.error = error
        _thread.start_new_thread(_ask, ())


def check() -> None:
    """Raise the exception that is kept, if any; called when foreign code has just returned."""
    if _KEPT.error is not None and _is_main():
        error, _KEPT.error, _KEPT.caller = _KEPT.error, None, None
        raise error


def raise_named(text: str) -> None:
    """Raise the interrupt named in a producer's error message, if any."""
    found = _NAMED.search(text)
    if found is None:
        return
    if found[1] == "KeyboardInterrupt":
        raise KeyboardInterrupt
    status = found[2]
    raise SystemExit(int(status) if status is not None and status.isdecimal() else status)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _ask() -> None:
    """Have the main thread make the pending call until that has raised the exception."""
    while _KEPT.error is not None:
        ctypes.pythonapi.Py_AddPendingCall(*_PENDING_CALL)
        time.sleep(0.0005)
