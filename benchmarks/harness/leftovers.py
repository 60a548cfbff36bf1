"""Leftovers of a killed run: a suite that still runs, and shared memory."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import sys
from pathlib import Path

_OURS = re.compile(r"(?:sem\.)?shmarrow-bench-(\d+)(?:-.*)?")
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have this process receive SIGTERM when its parent ends, however that happens. Does nothing but on Linux.

    Parameters
    ----------
    parent : int
        The process that started this one. If it has ended already, this process exits.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit(143)


def sweep(folder: Path = Path("/dev/shm")) -> list[str]:
    """Remove ``shmarrow-bench-PID*`` and such semaphores of processes that have ended; returns their names."""
    found = []
    for path in folder.glob("*shmarrow-bench-*"):
        named = _OURS.fullmatch(path.name)
        if named is None or _runs(int(named[1])):
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError:  # another user's, or just removed
            continue
        found.append(path.name)
    return sorted(found)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
