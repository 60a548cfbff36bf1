# SPDX-License-Identifier: Apache-2.0
"""Jobs: writes of a directory of files, of which readers see everything or nothing.

| in the directory | what it is |
| --- | --- |
| ``job-<job>/`` | the files of a job; jobs have the order in which they were planned |
| ``job-<job>/_replaces`` | what this job replaces and has not removed yet: scans leave it out |
| ``_temporary/<job>/`` | what the job has written so far, also that of one that was killed |

Invariants:

* a job appears by one rename. With it comes the list of what it replaces, which is what was there when it was planned:
  what others commit meanwhile stays;
* what was replaced is removed after that, by this job or, if it is killed, by the next one. Only lists of the same user
  are followed, and only to paths below the directory that pass through no link.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from glob import escape, glob
from pathlib import Path

REPLACES = "_replaces"
"""A file in the directory of a job that replaces others: their paths from the directory above, between NULs."""

_TRIES = 1000
"""How often other jobs may remove the directory of all that are written, before this one is in it."""


def new_job() -> str:
    """An identifier for a job, unique and in the order of time."""
    now = time.time_ns() // 1_000_000
    return str(uuid.UUID(int=now << 80 | uuid.uuid4().int & (1 << 80) - 1))


def temporary(directory: str, work: str) -> str:
    """The directory in which a job writes."""
    return os.path.join(directory, "_temporary", work)


def begin(directory: str, work: str) -> str:
    """Make the directory in which a job writes, and return its path."""
    path = temporary(directory, work)
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):  # another job has just removed the one above, which was empty
            os.makedirs(path, exist_ok=True)
            break
    else:
        os.makedirs(path, exist_ok=True)
    return path


def plan_overwrite(directory: str, work: str, name: str) -> None:
    """Write down what the job of this name will replace: all that is there now, but this one."""
    old = b"\0".join([os.fsencode(path) for path in _paths(directory) if path.partition("/")[0] != name])
    Path(temporary(directory, work), REPLACES).write_bytes(old)


def publish(directory: str, work: str, name: str, whole: str) -> None:
    """Make the files in ``whole``, below the directory in which a job writes, those of a job of this name."""
    with suppress(FileNotFoundError):  # it replaces nothing
        os.rename(os.path.join(temporary(directory, work), REPLACES), os.path.join(whole, REPLACES))
    os.rename(whole, os.path.join(directory, name))


def remove_replaced(directory: str) -> None:
    """Remove what jobs have replaced, also those that were killed before they did."""
    for path in glob(os.path.join(escape(directory), "*", REPLACES)):
        with suppress(FileNotFoundError):  # others remove it, too
            if os.lstat(path).st_uid != os.geteuid():
                continue
            for old in replaced_by(path, directory):
                with suppress(FileNotFoundError, NotADirectoryError):
                    _remove(old, directory)
            os.unlink(path)


def discard(directory: str, work: str) -> None:
    """Remove the directory in which a job wrote."""
    shutil.rmtree(temporary(directory, work), ignore_errors=True)
    with suppress(OSError):  # others write
        os.rmdir(temporary(directory, ""))


def replaced_by(path: str, above: str) -> list[str]:
    """The paths that a list names, all below a directory; none if it was removed, as what it names is then."""
    try:
        names = [os.fsdecode(name) for name in Path(path).read_bytes().split(b"\0")]
    except FileNotFoundError:
        return []
    return [os.path.join(above, name) for name in names if name and name[0] != "/" and ".." not in name.split("/")]


def _paths(directory: str, above: str = "") -> Iterator[str]:
    """All that readers may see, and what is in directories that they look into, each directory after its files."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    for entry in entries:
        if above or entry.name[0] not in "._":
            if entry.is_dir(follow_symlinks=False):
                yield from _paths(entry.path, f"{above}{entry.name}/")
            yield above + entry.name


def _remove(path: str, directory: str) -> None:
    """Remove a file, a link, or a directory if it is empty; nothing that is reached through a link."""
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != os.path.normpath(os.path.realpath(directory) + folder.removeprefix(directory)):
        return
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
        return
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # what came later stays
            raise
