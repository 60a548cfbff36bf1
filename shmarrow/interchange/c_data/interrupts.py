"""Ctrl-C and ``sys.exit`` in the middle of a stream: exceptions that must end the program, not just a query.

A stream callback can only return an error code and a string, so a Python exception ends there: the consumer turns
``KeyboardInterrupt`` into an ordinary error, which a program may catch and retry. So the exception is kept and raised
again in its thread once the callback has returned: when the consumer returns to Python, or shortly after.
"""

from __future__ import annotations

import _thread
import ctypes
import re
import sys
import time
from types import CodeType
from typing import Any

_kept: dict[int, BaseException] = {}
"""Exceptions to raise again, by thread."""

_NAMED = re.compile(r"Detail: Python exception: Traceback[^\0]*\n(KeyboardInterrupt|SystemExit)(?:: (\S+))?\s*$")
"""The end of pyarrow's message for a stream whose producer was interrupted."""


def raise_later(error: BaseException, callback: CodeType) -> None:
    """Raise an exception again in this thread once the callback, called by foreign code, has returned.

    Does nothing in a thread that runs no Python code but the callback.
    """
    if sys._getframe(1).f_back is None:
        return
    thread = _thread.get_ident()
    _kept[thread] = error
    _thread.start_new_thread(_wait, (thread, callback))


def check() -> None:
    """Raise the exception kept for this thread, if any; called when foreign code has just returned."""
    error = _kept.pop(_thread.get_ident(), None)
    if error is not None:
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


def _wait(thread: int, callback: CodeType) -> None:
    while thread in _kept:
        frame: Any = sys._current_frames().get(thread)
        while frame is not None and frame.f_code is not callback:
            frame = frame.f_back
        if frame is None:
            error = _kept.pop(thread, None)
            if error is not None:
                _raise_in(thread, error)
            return
        time.sleep(0.0005)


def _raise_in(thread: int, error: BaseException) -> None:
    """Raise an exception in another thread; does nothing if the thread has ended."""
    # Python requires a class and instantiates it: this one returns the existing exception.
    again = type(type(error).__name__, (type(error),), {"__new__": lambda *_: error, "__init__": lambda *_: None})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(again))
