"""Processes of tests: fresh interpreters and forked children, how they end, and how one ends on the spot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn


def die(status: int = 0) -> NoReturn:
    """End this process at once: no ``finally``, no finalizer and no test of pytest goes on in it."""
    os._exit(status)


def python(code: str, *words: object, **options: Any) -> str:
    """Run code, which can import what is in this folder, in a fresh interpreter; its output, without errors."""
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here.parents[1]}:{here}"}
    command = [sys.executable, "-c", code, *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ran = subprocess.run(command, env=environment, text=True, check=False, **(pipes | options))
    assert (ran.returncode, ran.stderr or "") == (0, ""), f"it ended with {ran.returncode}:\n{ran.stderr}"
    return ran.stdout


def complain(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def forked(work: Callable[[], Any]) -> int:
    """Run ``work`` in a forked child; its pid."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            complain(f"child {os.getpid()}: {type(error).__name__}: {error}")
        finally:
            die(status)
    return child


def ended(child: int) -> int:
    """Wait for a child; its exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def killed_at_end(children: Sequence[int]) -> Iterator[None]:
    """See to it that no child outlives the block."""
    try:
        yield
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def end_well(children: Sequence[int]) -> None:
    """Wait for children, all of which end without an error."""
    with killed_at_end(children):
        assert [ended(child) for child in children] == [0] * len(children)


def kill(child: int) -> None:
    """Kill a child that runs."""
    os.kill(child, signal.SIGKILL)
    assert ended(child) == -signal.SIGKILL
