# SPDX-License-Identifier: Apache-2.0
"""Locations (paths and ``shm:NAME``), and errors for what the operating system refuses.

Invariants:

* on Linux the shared memory object NAME is the file ``/dev/shm/NAME``, so :func:`resolve` turns every location into a
  path, and everything else works on files. Without that directory, as on macOS, its path is ``posix:NAME``, which
  ``posix`` opens; on every platform, that is also a location;
* user-supplied names must not start with :data:`TEMP_PREFIX`, which is reserved for unpublished files;
* an error names the operation and the object, with the numbers that explain the failure.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress

from shmarrow.errors import InvalidArgument, InvalidType, ObjectExists, StorageError, Unsupported, storage_error

Location = str | os.PathLike[str]

SHM_SCHEME = "shm:"
SHM_DIRECTORY = "/dev/shm"
SHM_NAME_MAX = 254
POSIX_SCHEME = "posix:"
POSIX_NAME_MAX = 30
"""The most bytes of a name on macOS, without the slash before it."""
TEMP_PREFIX = ".shmarrow-"
_HAS_SHM = os.path.isdir(SHM_DIRECTORY)  # cached: the check is slow next to opening an object


def is_location(source: object) -> bool:
    """Whether ``source`` names a segment: a path or ``shm:NAME``, not a buffer or a file object."""
    return isinstance(source, (str, os.PathLike))


def decoded(where: Location) -> str:
    """Return a location as a string."""
    if isinstance(where, str):
        return where
    if not isinstance(where, os.PathLike):
        raise InvalidType(f"expected a path or {SHM_SCHEME}NAME, found {type(where).__name__}")
    try:
        return os.fsdecode(where)
    except Exception as error:  # from a custom __fspath__
        raise InvalidType(f"__fspath__ of a {type(where).__name__} failed: {type(error).__name__}: {error}") from error


def resolve(where: Location) -> tuple[str, str]:
    """Validate a location; returns its name and path.

    Raises
    ------
    InvalidArgument, InvalidType
        If it is not a valid name.
    Unsupported
        For ``shm:NAME`` on Linux without ``/dev/shm``.
    """
    try:
        name = where if isinstance(where, str) else decoded(where)
        if name.startswith("~/"):
            name = os.path.expanduser(name)
        if name.isascii() and "\0" not in name and ":" not in name:
            last = name[name.rfind("/") + 1 :]
            if last not in ("", ".", "..") and not last.startswith(TEMP_PREFIX):
                return name, name  # the common case
        raw = name.encode() if is_shm(name) else os.fsencode(name)
    except UnicodeError as error:
        raise InvalidArgument(f"{where!r} cannot be encoded as a name: {error}") from None
    if b"\0" in raw:
        raise InvalidArgument(f"a name must not contain NUL, found {name!r}")
    last = name.partition(":")[2] if is_shm(name) else os.path.basename(name)
    proper = last not in ("", ".", "..") and not last.startswith(TEMP_PREFIX)
    if not is_shm(name):
        if not proper:
            if os.path.isdir(name):
                raise InvalidArgument(
                    f"expected a file, and {name!r} is a directory",
                    hint="pass one of the files in it; shmarrow.Store opens a store",
                )
            raise InvalidArgument(
                f"a path must end in a file name that does not start with {TEMP_PREFIX!r}, found {name!r}"
            )
        return name, name
    scheme, _, short = raw.partition(b":")
    posix = scheme == b"posix" or not _HAS_SHM
    if not _HAS_SHM and sys.platform == "linux":  # whose objects are files there
        check_shm(name)
    size, most = len(short), POSIX_NAME_MAX if posix else SHM_NAME_MAX
    if not proper or "/" in last or size > most:
        raise InvalidArgument(
            f"expected {scheme.decode()}:NAME, where NAME has 1 to {most} bytes and no '/', is not '.' or '..' and "
            f"does not start with {TEMP_PREFIX!r}, found {name!r}, whose NAME has {size} bytes"
        )
    return name, POSIX_SCHEME + last if posix else f"{SHM_DIRECTORY}/{last}"


def check_shm(name: str) -> None:
    """Reject the shared memory name of a store or ring where it is not a file.

    Raises
    ------
    Unsupported
        If it is ``posix:NAME``, or there is no ``/dev/shm``.
    """
    if not os.path.isdir(SHM_DIRECTORY):
        raise Unsupported(
            f"cannot use {name!r}: there is no directory {SHM_DIRECTORY}; on Linux, mount a tmpfs there; on "
            "other platforms, use a path instead"
        )
    if name.startswith(POSIX_SCHEME):
        raise Unsupported(f"cannot use {name!r}: stores and rings in shared memory are files in {SHM_DIRECTORY}")


def is_shm(name: str) -> bool:
    """Whether a name refers to a shared memory object."""
    return name.startswith((SHM_SCHEME, POSIX_SCHEME))


def check_removable(status: os.stat_result) -> None:
    """Reject replacing or unlinking anything but a file or a link to one."""
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        raise not_regular(status)


def is_planted(path: str, status: os.stat_result) -> bool:
    """Whether a file in a sticky world-writable directory belongs to another user."""
    directory = os.stat(os.path.dirname(path) or os.curdir)
    for_all = stat.S_ISVTX | stat.S_IWOTH
    return directory.st_mode & for_all == for_all and status.st_uid not in (os.geteuid(), directory.st_uid)


def check_trusted_link(path: str, link: os.stat_result) -> None:
    """Reject another user's symbolic link in a sticky world-writable directory, as Linux does."""
    if is_planted(path, link):
        raise PermissionError(
            errno.EACCES, f"the symbolic link {path!r} belongs to user {link.st_uid}, in a world-writable directory"
        )


def not_regular(status: os.stat_result) -> StorageError:
    """Return the error for something other than a regular file."""
    kind = stat.filemode(status.st_mode)[0]
    kinds = {"d": "directory", "p": "FIFO", "s": "socket", "c": "character device", "b": "block device"}
    code = errno.EISDIR if kind == "d" else errno.EINVAL
    text = f"expected a regular file, found a {kinds.get(kind, 'special file')}"
    hint = "open it and pass the file object"
    if kind == "d":
        hint = "pass one of the files in it; shmarrow.Store opens a store"
    return StorageError(code, text, hint=hint)


def taken(name: str) -> ObjectExists:
    """Return the error for a name that exists."""
    text = f"cannot create {name!r}: the name is taken"
    return ObjectExists(errno.EEXIST, text, hint="delete it first, or pass overwrite=True")


def became_smaller(action: str, name: str, size: int) -> StorageError:
    """Return the error for a file truncated while being opened."""
    return StorageError(
        errno.EBUSY,
        f"cannot {action} {name!r}: it was truncated from {size} bytes in the meantime",
        hint="replace files that are in use, never truncate them",
    )


def not_a_path(name: str) -> str:
    """Return the hint for a URL passed as a path."""
    scheme, _, rest = name.partition("://")
    if scheme == "file":
        return f"a URL is not a path; pass {'/' + rest.partition('/')[2]!r}"
    return f"a URL is not a path; pass a file object, such as fsspec.open({name!r}).open(), or download the file first"


def refused(error: OSError, action: str, name: str, path: str, hint: str | None = None) -> StorageError:
    """Return the error for a refused operation, with the numbers that explain it."""
    if not hint:
        if error.errno == errno.ENOENT and "://" in name:
            hint = not_a_path(name)
        elif error.errno == errno.ENOENT:
            hint = _absence(name, path)
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = _space(path)
        elif error.errno in (errno.EACCES, errno.EPERM):
            hint = _permissions(path)
        elif error.errno in (errno.EMFILE, errno.ENFILE):
            hint = "the process has as many files open as it may; close some, or raise the limit (ulimit -n)"
        elif error.errno == errno.ELOOP:
            hint = "symbolic links are not followed here, as another user may have placed them"
    return storage_error(error, action, name, hint)


def _absence(name: str, path: str) -> str | None:
    """Explain why a name may not exist."""
    if is_shm(name):
        return "it was never published, or it was removed already"
    directory = os.path.dirname(path) or os.curdir
    if not os.path.isdir(directory):
        return f"there is no directory {directory!r}"
    if any(mark in name for mark in "*?"):
        return "patterns are not expanded here; shmarrow.scan reads all files that match"
    if os.path.isabs(path):
        return None
    try:
        return f"the current directory is {os.getcwd()!r}"
    except OSError:
        return "the current directory was removed"


def _space(path: str) -> str:
    directory = os.path.dirname(path)
    try:
        space = os.statvfs(directory)
    except OSError:
        return "free some space"
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    text = f"the file system of {directory!r} has {total} bytes ({total >> 20} MiB), of which {free} are free"
    if directory == SHM_DIRECTORY:
        text += (
            "; containers often give it 64 MiB: enlarge it with docker's --shm-size=8g, a memory-backed emptyDir in "
            "Kubernetes, or mount -o remount,size=8g /dev/shm"
        )
    return text


def _permissions(path: str) -> str:
    """Mode and owner of the object and its directory, if visible."""
    seen = []
    for place in (path, os.path.dirname(path) or "."):
        with suppress(OSError):
            status = os.stat(place)
            seen.append(f"{place!r} has mode {stat.S_IMODE(status.st_mode):04o} and owner {status.st_uid}")
    return "; ".join([*seen, f"this process runs as user {os.geteuid()}"])
