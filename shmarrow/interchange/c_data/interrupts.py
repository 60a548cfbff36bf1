"""Ctrl-C and ``sys.exit`` in the middle of a stream: errors that are to end the program, and not just a query.

A stream's callback can give its consumer a number and a text, so an exception of Python ends there: a consumer makes
an ordinary error of ``KeyboardInterrupt``, which a program may catch and try again. So it is kept, and raised once more
in its thread as soon as that has left the callback. It arrives when the consumer returns to Python, or a little later.
"""

from __future__ import annotations

import _thread
import re
import sys
import time
from types import CodeType
from typing import Any

_kept: dict[int, BaseException] = {}
"""What is to be raised again, by thread."""

_NAMED = re.compile(r"Detail: Python exception: Traceback[^\0]*\n(KeyboardInterrupt|SystemExit)(?:: (\S+))?\s*$")
"""The end of what pyarrow says of a stream whose producer was interrupted."""


def raise_later(error: BaseException, callback: CodeType) -> None:
    """Raise an exception again in this thread, when the callback that foreign code has called is no longer running.

    Nothing is done in a thread that runs no Python but the callback.
    """
    if sys._getframe(1).f_back is None:
        return
    thread = _thread.get_ident()
    _kept[thread] = error
    _thread.start_new_thread(_wait, (thread, callback))


def check() -> None:
    """Raise what is kept for this thread now, where foreign code has just returned."""
    error = _kept.pop(_thread.get_ident(), None)
    if error is not None:
        raise error


def raise_named(text: str) -> None:
    """Raise what the error text of a producer says that it was interrupted by, if it was."""
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
    """Raise an exception in another thread; does nothing if that has ended."""
    import ctypes

    # Python wants a class, and calls it: this one makes the exception that is there already.
    again = type(type(error).__name__, (type(error),), {"__new__": lambda *_: error, "__init__": lambda *_: None})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(again))
