"""What is left in a directory that Spark writes: by commits that were interrupted, by overwrites, by dead drivers.

Invariants:

* all of it happens under the lock of the directory;
* a job is removed by others when its driver is known to be dead, or after a week in which none of its tasks has ended:
  the process that commits may have been killed while the driver goes on. If the job lives after all, its tasks find no
  place for their files, and it is not committed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from shmarrow.errors import LimitExceeded, StorageError
from shmarrow.segment.files import lock_exclusive
from shmarrow.segment.host import boot_id, host_name
from shmarrow.segment.location import refused
from shmarrow.spark.source.checks import is_arrow
from shmarrow.spark.source.directory import PART, REPLACED, STATE, Manifest, is_count
from shmarrow.spark.source.guarded import opened_directory, read_file

LOCK, JOB, OWNER = "lock", "job-", "owner.json"
_LOCK_SECONDS = 60.0
_ABANDONED_SECONDS = 7 * 86400.0
_TRIES = 100


def tidy(directory: str, state: int, manifest: Manifest, keep: bool, own: str, checked: Collection[str] = ()) -> None:
    """Remove what the manifest does not name: parts of interrupted commits, what was replaced, and other dead jobs.

    Parameters
    ----------
    directory : str
        Its path.
    state : int
        Its ``_shmarrow``, open, and locked by the caller.
    manifest : Manifest
        What counts.
    keep : bool
        Whether what the last overwrite replaced is kept.
    own : str
        The name in ``_shmarrow`` of the job that is not to be removed.
    checked : collection of str
        Names of files that are known to be Arrow files. Others that the manifest says were replaced, and whose names no
        job gives, are looked into before they are taken.
    """
    counts = {file.name for file in manifest.files}
    kept = set(manifest.replaced) if keep else set()
    gone = set(manifest.replaced)
    with _replaced(directory, state, False) as replaced:
        for name in os.listdir(replaced) if replaced is not None else ():
            if name not in kept:
                with suppress(IsADirectoryError):  # nothing of ours
                    os.unlink(name, dir_fd=replaced)
    names = [name for name in os.listdir(directory) if name not in counts and (name in gone or PART.fullmatch(name))]
    with _replaced(directory, state, bool(kept.intersection(names))) as replaced:
        for name in names:
            path = os.path.join(directory, name)
            if not (PART.fullmatch(name) or name in checked or is_arrow(path)):
                continue
            if name in kept:
                assert replaced is not None
                os.rename(path, name, dst_dir_fd=replaced)
            else:
                with suppress(IsADirectoryError):
                    os.unlink(path)
    with suppress(OSError):
        os.rmdir(REPLACED, dir_fd=state)  # if it is empty
    for name in os.listdir(state):
        if name.startswith(JOB) and name != own and _is_dead(directory, state, name):
            remove(state, name)


@contextmanager
def _replaced(directory: str, state: int, make: bool) -> Iterator[int | None]:
    """Where files are that were replaced, open; None if there are none."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(REPLACED, dir_fd=state)
    with ExitStack() as opened:
        folder = None
        with suppress(FileNotFoundError):
            folder = opened.enter_context(
                opened_directory(os.path.join(directory, STATE, REPLACED), state, writing=True)
            )
        yield folder


def check_replaced(directory: str, state: int) -> None:
    """Raise what would keep :func:`tidy` from keeping files that are replaced."""
    with _replaced(directory, state, False):
        pass


def _is_dead(directory: str, state: int, name: str) -> bool:
    """Whether nobody is going to commit what a job has written."""
    try:
        with opened_directory(os.path.join(directory, STATE, name), state) as folder:
            return _owner_is_dead(folder) or time.time() - os.fstat(folder).st_mtime > _ABANDONED_SECONDS
    except OSError:
        return False  # no job's


def _owner_is_dead(folder: int) -> bool:
    with suppress(OSError, LimitExceeded, ValueError, TypeError, KeyError, RecursionError):
        owner = json.loads(read_file(OWNER, folder, 1 << 12)[0])
        pid = owner["pid"]
        if is_count(pid) and 0 < pid < 1 << 31 and all(owner[key] == value for key, value in _machine().items()):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
            return bool(_process(pid)[1] != owner["started"])
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


def remove(state: int, name: str) -> None:
    """Remove the directory of a job, whose last attempts may still add to it."""
    for _ in range(_TRIES):
        shutil.rmtree(name, ignore_errors=True, dir_fd=state)
        try:
            os.stat(name, dir_fd=state, follow_symlinks=False)
        except FileNotFoundError:
            break


@contextmanager
def locked(directory: str) -> Iterator[int]:
    """Exclude all others who change a directory; its ``_shmarrow``, open."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        with ExitStack() as opened:
            state = _lock(directory, deadline, opened)
            if state is not None:
                yield state
                return


def _lock(directory: str, deadline: float, opened: ExitStack) -> int | None:
    """Open and lock a directory's ``_shmarrow``; None if another process has removed it meanwhile."""
    folder = os.path.join(directory, STATE)
    path = os.path.join(folder, LOCK)
    try:
        state = opened.enter_context(opened_directory(folder, writing=True))
    except StorageError:
        raise
    except OSError as error:
        raise refused(error, "open", folder, folder) from None
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(LOCK, flags, 0o666, dir_fd=state)
        opened.callback(os.close, fd)
        lock_exclusive(fd, deadline)
        if os.path.samestat(os.fstat(fd), os.stat(LOCK, dir_fd=state, follow_symlinks=False)):
            return state
    except FileNotFoundError:
        pass
    except TimeoutError:
        raise StorageError(
            errno.EBUSY,
            f"cannot write to {directory!r}: another process has held the lock {path!r} for {_LOCK_SECONDS:g} s; "
            "find it with lslocks",
        ) from None
    except OSError as error:
        raise refused(error, "lock", path, path) from None
    return None
