"""Waiting for what other threads and processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def becomes(true: Callable[[], T], seconds: float = 60) -> T:
    """Wait for a condition, at most so long; its last result. It is asked less often the longer it takes."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 1.1, 0.01)
    return found


def wait_until(true: Callable[[], T | None], what: str, seconds: float = 100) -> T:
    """Wait for a condition; its first result that is true.

    The limit only keeps a broken test from hanging: it says nothing of how long anything takes.
    """
    found = becomes(true, seconds)
    assert found, f"waited {seconds:g} s in vain: {what}"
    return found


def wait_until_asleep(threads: Iterable[threading.Thread]) -> None:
    """Wait until started threads sleep in the kernel, or have ended: usually in what they were started to wait for."""
    wait_until(lambda: all(map(_sleeps, threads)), "the threads wait")


def _sleeps(thread: threading.Thread) -> bool:
    try:
        text = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except OSError:
        return not thread.is_alive()
    return text.rpartition(")")[2].split()[0] == "S"
