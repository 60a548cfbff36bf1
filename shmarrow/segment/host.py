"""Which host, and which run of its kernel, this process is on: shared memory exists on one and during one only."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@cache
def boot_id() -> str:
    """An id of this boot of this host; the host's name on platforms without boot ids."""
    try:
        with open(BOOT_ID, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return platform.node()


def host_name() -> str:
    """The name of this host, for messages."""
    return platform.node()


def memory_left() -> int:
    """Bytes that the control groups of this process allow it beyond what they use now; many where none limits it."""
    left = 1 << 62
    with suppress(OSError, ValueError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controllers == "":
                left = min(left, _left_in("/sys/fs/cgroup", path, "memory.max", "memory.current"))
            elif "memory" in controllers.split(","):
                left = min(
                    left, _left_in("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")
                )
    return left


def _left_in(root: str, path: str, limit: str, usage: str) -> int:
    """What a group and those that it is in leave."""
    left = 1 << 62
    while True:
        with suppress(OSError, ValueError):
            most = int(Path(root + path, limit).read_text())
            left = min(left, most - int(Path(root + path, usage).read_text()))
        if path in ("", "/"):
            return max(left, 0)
        path = path.rpartition("/")[0]
