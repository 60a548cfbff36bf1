"""Processes of Spark's workers that are killed before one line after the other of what shares or stores.

Workers import this, so it imports little.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_END = " end\n"


def killed_at_each_line(notes: Path, each: int, after: Callable[[], None] | None = None, first: int = 0) -> bool:
    """Fork a process for each ``each``-th line in turn, which goes on until it gets there: in it the result is True.

    In the worker the result is False, when all are dead; ``after`` was called after each. The process that gets to no
    more lines calls :func:`end`, or its task's end does.

    Parameters
    ----------
    notes : Path
        A file that gets a line for each process: how many lines it ran, and where it was killed.
    """
    for point in itertools.count(first, each):
        child = os.fork()
        if child == 0:
            kill_at(notes, point)
            return True
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == -signal.SIGKILL, status
        if after is not None:
            after()
        if notes.read_text().endswith(_END):
            return False
    raise AssertionError("counting does not end")


def kill_at(notes: Path, left: int) -> None:
    """Kill this process when it has run so many more lines, or when a task has put its partition."""
    counted = 0

    def at(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        counted += event == "line"
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        done = event == "return" and frame.f_code.co_name == "_publish" and place.startswith("sharing.py")
        if counted > left or done:
            _die(notes, f"{counted} {place}{_END if done else chr(10)}")
        return at

    sys.settrace(lambda frame, event, _: at if _counts(frame) else None)
    frame: FrameType | None = sys._getframe()
    while frame is not None:  # those that run already
        if _counts(frame):
            frame.f_trace = at
        frame = frame.f_back


def end(notes: Path) -> None:
    """Kill this process, which got to the end."""
    sys.settrace(None)
    _die(notes, f"- -{_END}")


def _die(notes: Path, line: str) -> None:
    with open(notes, "a") as file:
        file.write(line)
    os.kill(os.getpid(), signal.SIGKILL)


def _counts(frame: FrameType) -> bool:
    """Whether lines of a function count: imports do not, as they run once only."""
    path, function = frame.f_code.co_filename, frame.f_code.co_flags & 1
    return bool(function) and ("/shmarrow/spark/" in path or "/shmarrow/store/" in path)
