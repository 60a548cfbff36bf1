"""What is left in a directory that Spark writes: by commits that were interrupted, by overwrites, by dead drivers.

Rules kept here:

* all of it happens under the lock of the directory;
* a job is removed by others when its driver is known to be dead, or after a week in which none of its tasks has ended:
  the process that commits may have been killed while the driver goes on. If the job lives after all, its tasks find no
  place for their files, and it is not committed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from shmarrow.errors import StorageError
from shmarrow.segment.files import lock_exclusive
from shmarrow.segment.host import boot_id, host_name
from shmarrow.segment.location import refused
from shmarrow.spark.source.directory import REPLACED, STATE, Manifest, is_count

LOCK, JOB, OWNER = "lock", "job-", "owner.json"
_PART = re.compile(r"part-\d{5,}-[0-9a-f]{32}\.arrow")
_LOCK_SECONDS = 60.0
_ABANDONED_SECONDS = 7 * 86400.0
_TRIES = 100


def tidy(directory: str, manifest: Manifest, keep: bool, own: str) -> None:
    """Remove what the manifest does not name: parts of interrupted commits, what was replaced, and other dead jobs."""
    state = os.path.join(directory, STATE)
    replaced = os.path.join(state, REPLACED)
    counts = {file.name for file in manifest.files}
    kept = set(manifest.replaced) if keep else set()
    with suppress(FileNotFoundError):
        for name in os.listdir(replaced):
            if name not in kept:
                os.unlink(os.path.join(replaced, name))
    gone = set(manifest.replaced)
    for name in os.listdir(directory):
        if name in counts or not (name in gone or _PART.fullmatch(name)):
            continue
        path = os.path.join(directory, name)
        if name in kept:
            os.makedirs(replaced, exist_ok=True)
            os.rename(path, os.path.join(replaced, name))
        else:
            os.unlink(path)
    with suppress(OSError):
        os.rmdir(replaced)  # if it is empty
    for name in os.listdir(state):
        folder = os.path.join(state, name)
        if name.startswith(JOB) and folder != own and _is_dead(folder):
            remove(folder)


def _is_dead(folder: str) -> bool:
    """Whether nobody is going to commit what a job has written."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        with open(os.path.join(folder, OWNER), encoding="utf-8") as file:
            owner = json.loads(file.read(1 << 12))
        pid = owner["pid"]
        if is_count(pid) and pid and all(owner[key] == value for key, value in _machine().items()):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
            if _process(pid)[1] != owner["started"]:
                return True
    with suppress(OSError):
        return time.time() - os.stat(folder).st_mtime > _ABANDONED_SECONDS
    return False


def _machine() -> dict[str, str]:
    """The scope in which a process id is unique."""
    return {"host": host_name(), "boot": boot_id(), "processes": os.readlink("/proc/self/ns/pid")}


def driver() -> dict[str, Any]:
    """The process that a job belongs to: the closest ancestor that is not Spark's Python, which is the driver's JVM."""
    if sys.platform != "linux":
        return {}
    pid = os.getpid()
    program = os.readlink("/proc/self/exe")
    with suppress(OSError):
        while pid > 1 and os.readlink(f"/proc/{pid}/exe") == program:
            pid = _process(pid)[0]
    return {**_machine(), "pid": pid, "started": _process(pid)[1]}


def _process(pid: int) -> tuple[int, int]:
    """The parent of a process, and when it was started, in ticks since the host was."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        words = file.read().rpartition(")")[2].split()
    return int(words[1]), int(words[19])


def remove(folder: str) -> None:
    """Remove the directory of a job, whose last attempts may still add to it."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            break


@contextmanager
def locked(directory: str) -> Iterator[None]:
    """Exclude all others who change a directory."""
    fd = _lock(directory)
    try:
        yield
    finally:
        os.close(fd)


def _lock(directory: str) -> int:
    path = os.path.join(directory, STATE, LOCK)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise refused(error, "open", path, path) from None
        try:
            lock_exclusive(fd, deadline)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass  # removed, by who had it before, and perhaps made again
        except TimeoutError:
            os.close(fd)
            raise StorageError(
                errno.EBUSY,
                f"cannot write to {directory!r}: another process has held the lock {path!r} for {_LOCK_SECONDS:g} s; "
                "find it with lslocks",
            ) from None
        except OSError as error:
            os.close(fd)
            raise refused(error, "lock", path, path) from None
        os.close(fd)
