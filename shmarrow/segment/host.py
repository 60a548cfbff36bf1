"""Which host, and which run of its kernel, this process is on: shared memory exists on one and during one only."""

from __future__ import annotations

import platform
from functools import cache

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@cache
def boot_id() -> str:
    """An id of this boot of this host; the host's name on platforms without boot ids."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return platform.node()


def host_name() -> str:
    """The name of this host, for messages."""
    return platform.node()
