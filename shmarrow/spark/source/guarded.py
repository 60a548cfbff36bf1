"""Opening what lies in a directory's ``_shmarrow``, where others may have placed something else.

Invariants:

* no link is followed, nothing that is not what it has to be is read, and opening never waits, as it would for a FIFO;
* names are looked up in directories that are open, so what is replaced meanwhile leads nowhere else;
* whoever writes does not go by what another user has placed in a directory that anyone may write to.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from shmarrow.errors import LimitExceeded, StorageError

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def opened_directory(path: str, within: int | None = None, writing: bool = False) -> Iterator[int]:
    """A directory, not a link to one, as a descriptor.

    Parameters
    ----------
    path : str
        Its path.
    within : int, optional
        The descriptor of the directory that it is in, where its name is looked up.
    writing : bool
        Whether what is found there decides what is changed.

    Raises
    ------
    OSError
        If it is not there, or is something else; StorageError if its owner is not to be trusted.
    """
    name = path if within is None else os.path.basename(path)
    try:
        fd = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and _is_link(name, within):
            raise StorageError(
                errno.ELOOP,
                f"cannot use {path!r}: expected a directory, found a symbolic link, which is not followed here; "
                "remove it",
            ) from None
        raise
    try:
        if writing:
            parent = os.stat(os.path.dirname(path)) if within is None else os.fstat(within)
            check_owner(path, os.fstat(fd), parent)
        yield fd
    finally:
        os.close(fd)


def _is_link(name: str, within: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode)
    except OSError:
        return False


def check_owner(path: str, found: os.stat_result, parent: os.stat_result) -> None:
    """Refuse what somebody else than root or its owner has placed in a directory that anyone may write to."""
    if parent.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), 0, parent.st_uid):
        raise StorageError(
            errno.EACCES,
            f"cannot write by {path!r}: it belongs to user {found.st_uid}, who placed it in a directory that all may "
            f"write; this process runs as user {os.geteuid()}: remove it, or write to another directory",
        )


def read_file(name: str, within: int, limit: int) -> tuple[bytes, os.stat_result]:
    """All of a small regular file, and its status.

    Raises
    ------
    LimitExceeded
        If it has more bytes than the limit.
    OSError
        If it cannot be opened, or is not a regular file.
    """
    fd = os.open(name, _FLAGS, dir_fd=within)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file, found something else")
        pieces, size = [], 0
        while piece := os.read(fd, min(1 << 20, limit + 1 - size)):
            pieces.append(piece)
            size += len(piece)
        if size > limit:
            raise LimitExceeded(f"the file has more than {limit} bytes")
    finally:
        os.close(fd)
    return b"".join(pieces), found
