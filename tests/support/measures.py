"""What this process takes: memory and time of its calls, descriptors and mappings of files."""

from __future__ import annotations

import os
import time
import tracemalloc
from contextlib import suppress
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


def descriptors(where: object) -> list[int]:
    """This process's descriptors of a file, or of what lies in a directory."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            if str(where) in os.readlink(f"/proc/self/fd/{number}"):
                found.append(int(number))
    return found


def mappings(where: object) -> list[tuple[int, int]]:
    """The addresses at which it maps a file, removed or not, or what lies in a directory."""
    with open("/proc/self/maps") as lines:
        found = [line.split()[0].split("-") for line in lines if str(where) in line]
    return [(int(low, 16), int(high, 16)) for low, high in found]


def held(where: object) -> tuple[int, int]:
    """The numbers of its descriptors and mappings."""
    return len(descriptors(where)), len(mappings(where))
