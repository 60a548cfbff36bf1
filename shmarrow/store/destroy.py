"""Destroying a store: a process that may write to it finishes what a killed one left half done.

Invariants:

* the magic of the control file says that the store is being destroyed, and a lock on the file that a process is at it;
* the control file is removed last, under that lock, so the files of a new store in the directory are never touched;
* closing a control file drops the locks of all threads on it, so a process opens and destroys stores one at a time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from shmarrow.store import protocol as p
from shmarrow.store.protocol import is_object
from shmarrow.store.settings import destroyed
from shmarrow.sync.locks import try_lock

if TYPE_CHECKING:
    from shmarrow.store.directory import Directory

_DESTROYED = p.DESTROYED.to_bytes(8, "little")


def lock_removal(control_fd: int, name: str) -> None:
    """Lock a control file until it is closed; StorageError if another process is removing the store."""
    if not try_lock(control_fd, 0, True):
        raise destroyed(name)


def remove_files(directory: Directory, control_fd: int) -> None:
    """Remove all files of a store whose control file has the magic of a destroyed one, and is locked."""
    last = int.from_bytes(os.pread(control_fd, 8, p.HEADER["file"][0]), "little") + 1
    for file in filter(is_object, os.listdir(directory.fd)):
        if int(file[:16], 16) <= last:
            with suppress(OSError):
                directory.unlink(file)
    for name in (p.PINS, p.COMMIT, p.CONTROL):
        directory.unlink(name)


def finish_destroying(directory: Directory) -> None:
    """Remove what is left of a store that a killed process was destroying; StorageError if one still is."""
    try:
        fd = directory.open(p.CONTROL, os.O_RDWR)
    except OSError:  # there is none, or this process may not write to it
        return
    try:
        if os.pread(fd, len(_DESTROYED), 0) == _DESTROYED:
            lock_removal(fd, directory.name)
            if os.fstat(fd).st_nlink:
                remove_files(directory, fd)
    finally:
        os.close(fd)
