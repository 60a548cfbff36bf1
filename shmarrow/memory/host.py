# SPDX-License-Identifier: Apache-2.0
"""Host and boot identity, memory file systems, and cgroup memory limits."""

from __future__ import annotations

import _thread
import platform
import time
from contextlib import suppress
from functools import cache

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@cache
def boot_id() -> str:
    """Return the boot id of this host; its name on platforms without boot ids."""
    try:
        with open(BOOT_ID, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return platform.node()


def host_name() -> str:
    """Return the host name, for messages."""
    return platform.node()


_UNLIMITED = 1 << 62
_TMPFS, _RAMFS = 0x01021994, 0x858458F6
_SPAN = 0.1
"""Cache lifetime of :func:`allows_memory`, in seconds."""
_LIMITS = {
    "cgroup": ("/sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file")),
    "memory": (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
}
"""For cgroups v2 and v1: the root, the files of limit and usage, and the reclaimable counters."""


def in_memory(fd: int) -> bool:
    """Whether an open file is in memory: on tmpfs (as shared memory is) or ramfs."""
    import ctypes  # a slow import

    status = (ctypes.c_long * 32)()  # struct statfs starts with the file system's type and has 120 bytes
    libc = ctypes.CDLL(None)
    return hasattr(libc, "fstatfs") and libc.fstatfs(fd, status) == 0 and status[0] & 0xFFFFFFFF in (_TMPFS, _RAMFS)


class _Allowance(_thread._local):
    """A thread's byte budget until the next check, and the time of that check."""

    nbytes = 0
    until = 0.0


_allowance = _Allowance()


def allows_memory(nbytes: int) -> bool:
    """Whether the cgroup limits allow ``nbytes`` more memory; cached briefly."""
    now = time.monotonic()
    if nbytes > _allowance.nbytes or now > _allowance.until:
        left = memory_left() - nbytes
        if left < 0:
            return False
        _allowance.nbytes, _allowance.until = nbytes + left // 64, now + _SPAN
    _allowance.nbytes -= nbytes
    return True


def memory_left() -> int:
    """Return the memory left under the cgroup limits of this process in bytes; 2**62 if unlimited.

    Reclaimable page cache does not count as used. A sixteenth of the limit, at most 32 MiB, is reserved for the process
    itself. Swap is ignored.
    """
    left = _UNLIMITED
    with suppress(OSError, ValueError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if not controllers or "memory" in controllers.split(","):
                left = min(left, _left_in(path, *_LIMITS["memory" if controllers else "cgroup"]))
    return left


def _left_in(path: str, root: str, limit: str, usage: str, droppable: tuple[str, ...]) -> int:
    """Return the memory left in a cgroup and its ancestors."""
    left = _UNLIMITED
    while True:
        folder = root + path.rstrip("/")
        with suppress(OSError, ValueError):  # the limit may be "max"; a container may see its own cgroup as the root
            most = int(_read(folder, limit))
            if most < _UNLIMITED and (free := most - int(_read(folder, usage)) - min(most >> 4, 1 << 25)) < left:
                rows = dict(line.split() for line in _read(folder, "memory.stat").splitlines())
                left = min(left, free + sum([int(rows.get(row, 0)) for row in droppable]))
        if path in ("", "/"):
            return max(left, 0)
        path = path.rpartition("/")[0]


def _read(folder: str, file: str) -> str:
    with open(f"{folder}/{file}", encoding="utf-8") as stream:
        return stream.read()
