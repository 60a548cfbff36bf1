"""Signals at chosen instructions: a handler that runs as if a signal had arrived there, and a process that is killed.

The interpreter runs signal handlers only between certain instructions: after the call of a function in C, at the start
of a function in Python, at the end of a turn of a loop. So the signal is sent before an instruction, by a trace
function in C, which the interpreter does not interrupt; and the handler runs where it would otherwise, too.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from environment import ROOT
from processes import die, ended, forked

_send: Any = ctypes.pythonapi.PyErr_SetInterrupt
_send.argtypes = [ctypes.py_object] * 3  # what trace functions are given, which it ignores
_send.restype = None


def _traced(
    number: int, files: tuple[str, ...], at_number: Callable[[], Any], again: bool = False
) -> Callable[..., Any]:
    """A trace function that does something before the instruction of a number; ``again`` counts repeated ones, too."""
    seen: set[tuple[Any, int]] = set()
    count = 0

    def instruction(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        place = frame.f_code, frame.f_lasti
        if event == "opcode" and (again or place not in seen):
            seen.add(place)
            count += 1
            if count == number:
                return at_number()
        return instruction

    def call(frame: Any, *_: Any) -> Any:
        if not frame.f_code.co_filename.endswith(files):
            return None
        frame.f_trace_opcodes = True
        return instruction

    return call


def interrupted(work: Callable[[], Any], handler: Callable[[], Any], number: int, files: tuple[str, ...]) -> bool:
    """Run a function, and at its instruction of a number in some files, a signal handler; whether it has so many."""
    reached = False

    def at_number() -> Any:
        nonlocal reached
        reached = True
        return _send

    def handle(*_: Any) -> None:
        sys.settrace(None)
        handler()

    before = signal.signal(signal.SIGINT, handle)
    traced = _traced(number, files, at_number)  # a name, as it must outlive the handler
    gc.disable()  # a handler that raises in a callback of the collector, such as of hypothesis, would be ignored
    sys.settrace(traced)
    try:
        work()
    finally:
        try:
            sys.settrace(None)  # a signal that is still pending arrives here
        finally:
            gc.enable()
            signal.signal(signal.SIGINT, before)
    return reached


def killed(work: Callable[[], Any], number: int, files: tuple[str, ...], again: bool = False) -> bool:
    """Run a function in a child that is killed before its instruction of a number; whether it has so many.

    ``again`` counts instructions as often as they run, otherwise each counts once.
    """

    def child() -> None:
        sys.settrace(_traced(number, files, lambda: os.kill(os.getpid(), signal.SIGKILL), again))
        try:
            work()
        finally:
            die()

    status = ended(forked(child))
    assert status in (0, -signal.SIGKILL)
    return status != 0


def killed_at(work: Callable[[], Any], file: str, step: str) -> bool:
    """Run a function in a child that is killed before a line of a file of the package; whether it came there.

    ``step`` is a text that only this line contains.
    """
    path = ROOT / "shmarrow" / file
    [line] = [number for number, text in enumerate(path.read_text().splitlines(), 1) if step in text]

    def look(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != str(path):
            return None
        if event == "line" and frame.f_lineno == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return look

    def child() -> None:
        sys.settrace(look)
        try:
            work()
        finally:
            die()

    return ended(forked(child)) == -signal.SIGKILL
