"""Signals at chosen instructions: a handler that runs as if a signal had arrived there, and a process that is killed.

The interpreter runs signal handlers only between certain instructions: after the call of a function in C, at the start
of a function in Python, at the end of a turn of a loop. So the signal is sent before an instruction, by a
function in C, which the interpreter does not interrupt; and the handler runs where it would otherwise, too.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from environment import ROOT
from processes import die, ended, forked

MONITORING: Any = getattr(sys, "monitoring", None)
"""Python 3.12 and later call back before instructions; there ``f_trace_opcodes`` comes too late for running code."""

_send: Any = ctypes.pythonapi.PyErr_SetInterrupt
_send.argtypes = [ctypes.py_object] * (2 if MONITORING else 3)  # what a callback is given, which it ignores
_send.restype = None

_TOOL = 4  # none of those that Python suggests for a purpose


def _counted(number: int, at_number: Callable[[], Any], again: bool = False) -> Callable[[Any, int], Any]:
    """A function to be called before each instruction, which returns ``at_number()`` at one of them.

    ``again`` counts instructions as often as they run, otherwise each counts once.
    """
    seen: set[tuple[int, int]] = set()
    count = 0

    def instruction(code: Any, offset: int) -> Any:
        nonlocal count
        place = id(code), offset  # its hash would be that of all that is in it
        if again or place not in seen:
            seen.add(place)
            count += 1
            if count == number:
                return at_number()
        return None

    return instruction


def _traced(files: tuple[str, ...], instruction: Callable[[Any, int], Any]) -> Callable[[], None]:
    """Call a function before each instruction in some files, until it returns another one; return what ends this."""

    def trace(frame: Any, event: str, _: Any) -> Any:
        return (event == "opcode" and instruction(frame.f_code, frame.f_lasti)) or trace

    def call(frame: Any, *_: Any) -> Any:
        if not frame.f_code.co_filename.endswith(files):
            return None
        frame.f_trace_opcodes = True
        return trace

    sys.settrace(call)
    return lambda: sys.settrace(None)


def _monitored(files: tuple[str, ...], instruction: Callable[[Any, int], Any]) -> Callable[[], None]:
    """Do what :func:`_traced` does, by ``sys.monitoring``."""
    event = MONITORING.events.INSTRUCTION
    last = None
    inside: set[int] = set()  # the code objects of the files

    def callback(code: Any, offset: int) -> Any:
        nonlocal last
        if id(code) not in inside:
            if not code.co_filename.endswith(files):
                return MONITORING.DISABLE
            inside.add(id(code))
        if threading.get_ident() == thread and (found := instruction(code, offset)):
            MONITORING.register_callback(_TOOL, event, found)
            MONITORING.set_events(_TOOL, 0)
            MONITORING.set_local_events(_TOOL, code, event)  # not in a signal handler
            last = code
        return None

    def end() -> None:
        if MONITORING.get_tool(_TOOL) is not None:
            MONITORING.set_events(_TOOL, 0)
            if last is not None:
                MONITORING.set_local_events(_TOOL, last, 0)
            MONITORING.register_callback(_TOOL, event, None)
            MONITORING.free_tool_id(_TOOL)

    thread = threading.get_ident()
    MONITORING.use_tool_id(_TOOL, "interrupts")
    MONITORING.register_callback(_TOOL, event, callback)
    MONITORING.set_events(_TOOL, event)
    MONITORING.restart_events()  # where an earlier callback was not interested
    return end


_start = _monitored if MONITORING else _traced


def interrupted(work: Callable[[], Any], handler: Callable[[], Any], number: int, files: tuple[str, ...]) -> bool:
    """Run a function, and at its instruction of a number in some files, a signal handler; whether it has so many."""
    if sys.version_info >= (3, 14):
        pytest.skip("Python 3.14 may leave a lock held itself, and 3.15 runs handlers here where signals cannot come")
    reached = False

    def at_number() -> Any:
        nonlocal reached
        reached = True
        return _send

    def handle(*_: Any) -> None:
        end()
        handler()

    before = signal.signal(signal.SIGINT, handle)
    counted = _counted(number, at_number)  # a name, as it must outlive the handler
    gc.disable()  # a handler that raises in a callback of the collector, such as of hypothesis, would be ignored
    end = _start(files, counted)
    try:
        work()
    finally:
        try:
            end()  # a signal that is still pending arrives here
        finally:
            gc.enable()
            signal.signal(signal.SIGINT, before)
    return reached


class Interrupted(BaseException):
    """Raised by the handler of :func:`raised`."""


def raised(work: Callable[[], Any], number: int, files: tuple[str, ...]) -> bool:
    """Run a function that a handler interrupts, as :func:`interrupted` does, by an exception."""

    def handler() -> None:
        raise Interrupted

    try:
        return interrupted(work, handler, number, files)
    except Interrupted:
        return True


def killed(work: Callable[[], Any], number: int, files: tuple[str, ...], again: bool = False) -> bool:
    """Run a function in a child that is killed before its instruction of a number; whether it has so many.

    ``again`` counts instructions as often as they run, otherwise each counts once.
    """

    def child() -> None:
        _start(files, _counted(number, lambda: os.kill(os.getpid(), signal.SIGKILL), again))
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
