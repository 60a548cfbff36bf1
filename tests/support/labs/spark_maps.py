"""The location of an array; workers of Spark import this too, so it imports nothing of the tests or the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def file_of(array: Any) -> str:
    """The file that an array lies in, as the kernel tells it; empty for private memory."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, _, *path = line.split(maxsplit=5)
        low, high = (int(each, 16) for each in span.split("-"))
        if low <= address < high and path:
            return path[0]
    return ""
