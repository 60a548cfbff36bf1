"""What calls of this process take: memory, and time of the processor."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any


def most_memory(call: Any) -> tuple[Any, int]:
    """Return the result of a call, and the most bytes that it held."""
    tracemalloc.start()
    try:
        found = call()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds(call: Any) -> float:
    """The least time of some calls, of this thread's processor."""
    taken = []
    for _ in range(5):
        start = time.thread_time()
        call()
        taken.append(time.thread_time() - start)
    return min(taken)
