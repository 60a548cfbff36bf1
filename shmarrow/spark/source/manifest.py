"""Directories that Spark writes: which of their files count.

``DIR/_shmarrow/manifest.json`` names the files that count, in the order of their rows. Replacing it is the commit: a
reader sees the files of one manifest, and so all of a job or nothing. Other programs see plain Arrow files in ``DIR``.

| in the directory | what it is |
| --- | --- |
| ``part-00000-<job>.arrow`` | a file that a job has committed; ``<job>`` has 32 hexadecimal digits |
| ``_shmarrow/manifest.json`` | the names of the files that count, and the last version of each application |
| ``_shmarrow/lock`` | locked (``flock``) by whoever commits; the kernel drops it when the process ends |
| ``_shmarrow/job-<job>/`` | what the tasks of a job have written so far; the hash of ``txnAppId`` is before ``<job>`` |

A directory without a manifest counts as all the files in it whose names do not begin with ``_`` or ``.``.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from shmarrow.errors import InvalidData, StorageError, Unsupported, at, shown
from shmarrow.segment.files import lock_exclusive
from shmarrow.segment.location import refused

STATE = "_shmarrow"
MANIFEST = "manifest.json"
LOCK = "lock"
PART = re.compile(r"part-\d{5,}-[0-9a-f]{32}\.arrow")
"""The names of files that jobs have committed."""
VERSION = 2
_MOST_BYTES = 1 << 26
_LOCK_SECONDS = 60.0
_NO_LINKS = os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True)
class Manifest:
    """The files of a directory that count, and the transactions that wrote them.

    Attributes
    ----------
    files : tuple of str
        The names of the files that count, in the order of their rows.
    transactions : dict of str to int
        For each ``txnAppId``, the ``txnVersion`` that was committed last.
    """

    files: tuple[str, ...] = ()
    transactions: dict[str, int] = field(default_factory=dict)


def read_manifest(directory: str) -> Manifest | None:
    """Return the manifest of a directory; None if it has none.

    Raises
    ------
    InvalidData
        If it is damaged, or names anything but files in the directory.
    Unsupported
        If another version of shmarrow wrote it.
    StorageError
        If it cannot be read.
    """
    path = os.path.join(directory, STATE, MANIFEST)
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_LINKS | os.O_NONBLOCK)) as file:
            data = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise refused(error, "open", path, path) from None
    with at(path):
        if len(data) > _MOST_BYTES:
            raise InvalidData(f"expected a manifest of at most {_MOST_BYTES} bytes")
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InvalidData(f"expected JSON: {error}", hint="remove it, and all visible files count") from None
        return _decoded(value)


def _decoded(value: Any) -> Manifest:
    if not isinstance(value, dict) or type(value.get("version")) is not int:
        raise InvalidData(f"expected an object with a version, found {shown(value)}")
    if value["version"] != VERSION:
        raise Unsupported(f"expected version {VERSION}, found {value['version']}: another shmarrow wrote it")
    files, transactions = value.get("files"), value.get("transactions")
    if not isinstance(files, list) or not all(isinstance(each, str) and PART.fullmatch(each) for each in files):
        raise InvalidData(f"expected the names of files that Spark has written, found {shown(files)}")
    if len(set(files)) < len(files):
        raise InvalidData("a file is named twice")
    if not isinstance(transactions, dict) or not all(type(each) is int for each in transactions.values()):
        raise InvalidData(f"expected numbers of transactions, found {shown(transactions)}")
    return Manifest(tuple(files), transactions)


# --- writing ----------------------------------------------------------------------------------------------------


def write_manifest(state: int, manifest: Manifest, durable: bool) -> None:
    """Replace the manifest, all at once; under the lock of the directory, whose ``_shmarrow`` is open as ``state``."""
    data = json.dumps({"version": VERSION, **asdict(manifest)}).encode()
    if len(data) > _MOST_BYTES:
        raise StorageError(
            errno.EFBIG,
            f"cannot commit: the manifest would have more than {_MOST_BYTES} bytes, which nobody could read",
            hint="read the directory, and write its rows into fewer files, with mode('overwrite')",
        )
    unfinished = f".{MANIFEST}"
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINKS, 0o666, dir_fd=state)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(fd)
    os.rename(unfinished, MANIFEST, src_dir_fd=state, dst_dir_fd=state)
    if durable:
        os.fsync(state)


@contextmanager
def opened_state(directory: str) -> Iterator[int]:
    """Open the ``_shmarrow`` of a directory, made if missing, for a writer.

    Raises
    ------
    StorageError
        If it is a link, or another user has placed it in a directory that all may write to: neither is followed.
    """
    path = os.path.join(directory, STATE)
    try:
        if not os.path.lexists(path):
            os.makedirs(path, exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _NO_LINKS)
    except OSError as error:
        raise refused(error, "write to", path, path) from None
    try:
        found, parent = os.fstat(fd), os.stat(directory)
        if parent.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), 0, parent.st_uid):
            raise StorageError(
                errno.EACCES,
                f"cannot write by {path!r}: it belongs to user {found.st_uid}, who placed it in a directory that all "
                f"may write; this process runs as user {os.geteuid()}: remove it, or write to another directory",
            )
        yield fd
    finally:
        os.close(fd)


@contextmanager
def locked(directory: str) -> Iterator[int]:
    """Lock a directory, and yield its ``_shmarrow``, open; StorageError if that takes more than a minute."""
    with opened_state(directory) as state:
        fd = os.open(LOCK, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o666, dir_fd=state)
        try:
            try:
                lock_exclusive(fd, _LOCK_SECONDS)
            except TimeoutError:
                path = os.path.join(directory, STATE, LOCK)
                raise StorageError(
                    errno.EBUSY,
                    f"cannot write to {directory!r}: another process has held the lock {path!r} for "
                    f"{_LOCK_SECONDS:g} s; find it with lslocks",
                ) from None
            yield state
        finally:
            os.close(fd)
