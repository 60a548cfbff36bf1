"""Which host, and which run of its kernel, this process is on: shared memory exists on one and during one only."""

from __future__ import annotations

import _thread
import platform
import time
from contextlib import suppress
from functools import cache

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


_UNLIMITED = 1 << 62
_TMPFS, _RAMFS = 0x01021994, 0x858458F6
_SPAN = 0.1
"""Seconds for which what :func:`allows_memory` found counts."""
_LIMITS = {
    "cgroup": ("/sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file")),
    "memory": (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
}
"""Of version 2 and 1 of control groups: where they are, the files of limit and usage, and what of it can be dropped."""


def in_memory(fd: int) -> bool:
    """Whether an open file lies in memory: in a tmpfs, which shared memory is, or a ramfs."""
    import ctypes  # takes milliseconds

    status = (ctypes.c_long * 32)()  # struct statfs begins with the type of the file system, and has 120 bytes
    libc = ctypes.CDLL(None)
    return hasattr(libc, "fstatfs") and libc.fstatfs(fd, status) == 0 and status[0] & 0xFFFFFFFF in (_TMPFS, _RAMFS)


class _Allowance(_thread._local):
    """Bytes that a thread may still write before it looks again, and when it has to at the latest."""

    nbytes = 0
    until = 0.0


_allowance = _Allowance()


def allows_memory(nbytes: int) -> bool:
    """Whether the control groups of this process allow it so much more memory; looks itself only every now and then."""
    now = time.monotonic()
    if nbytes > _allowance.nbytes or now > _allowance.until:
        left = memory_left() - nbytes
        if left < 0:
            return False
        _allowance.nbytes, _allowance.until = nbytes + left // 64, now + _SPAN
    _allowance.nbytes -= nbytes
    return True


def memory_left() -> int:
    """Bytes of memory that the control groups of this process have room for; 2**62 where none limits it.

    What the kernel can drop, the cache of files on disks, does not count as used. A sixteenth of the limit, 32 MiB at
    most, is left for the process itself. Swap space is not counted on.
    """
    left = _UNLIMITED
    with suppress(OSError, ValueError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if not controllers or "memory" in controllers.split(","):
                left = min(left, _left_in(path, *_LIMITS["memory" if controllers else "cgroup"]))
    return left


def _left_in(path: str, root: str, limit: str, usage: str, droppable: tuple[str, ...]) -> int:
    """What a group and those that it is in leave."""
    left = _UNLIMITED
    while True:
        folder = root + path.rstrip("/")
        with suppress(OSError, ValueError):  # "max" is no number; a container may see its own group only, as the root
            most = int(_read(folder, limit))
            if most < _UNLIMITED and (free := most - int(_read(folder, usage)) - min(most >> 4, 1 << 25)) < left:
                rows = dict(line.split() for line in _read(folder, "memory.stat").splitlines())
                left = min(left, free + sum([int(rows.get(row, 0)) for row in droppable]))
        if path in ("", "/"):
            return max(left, 0)
        path = path.rpartition("/")[0]


def _read(folder: str, file: str) -> str:
    with open(f"{folder}/{file}", encoding="utf-8") as found:
        return found.read()
