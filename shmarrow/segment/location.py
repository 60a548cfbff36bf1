"""What a location is: a path, or ``shm:NAME``; and the errors for what the operating system refuses there.

Rules kept here:

* on Linux the shared memory object NAME is the file ``/dev/shm/NAME``, so :func:`resolve` turns every location into a
  path, and everything else works on files. Where there is no such directory, as on macOS, ``shm:`` names are refused;
* no name from outside starts with :data:`TEMP_PREFIX`: such names are for files that are not objects yet;
* an error says what was tried with which name, and gives the numbers that explain why it failed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from shmarrow.errors import InvalidArgument, InvalidType, ObjectExists, StorageError, Unsupported, storage_error

Location = str | os.PathLike[str]

SHM_SCHEME = "shm:"
SHM_DIRECTORY = "/dev/shm"
SHM_NAME_MAX = 254
TEMP_PREFIX = ".shmarrow-"
_HAS_SHM = os.path.isdir(SHM_DIRECTORY)  # asked once, as opening an object takes microseconds


def is_location(source: object) -> bool:
    """Whether ``source`` names a segment: a path or ``shm:NAME``, not a buffer or a file object."""
    return isinstance(source, (str, os.PathLike))


def decoded(where: Location) -> str:
    """A location as text."""
    try:
        return os.fsdecode(where)
    except Exception as error:  # of the object's own __fspath__
        raise InvalidType(f"a {type(where).__name__} gives no path: {type(error).__name__}: {error}") from error


def resolve(where: Location) -> tuple[str, str]:
    """The name and the path of a location, checked.

    Raises
    ------
    InvalidArgument, InvalidType
        If it is not a proper name.
    Unsupported
        For ``shm:NAME`` without ``/dev/shm``.
    """
    if not is_location(where):
        raise InvalidType(f"expected a path or {SHM_SCHEME}NAME, found {type(where).__name__}")
    try:
        name = decoded(where)
        if name.startswith("~/"):
            name = os.path.expanduser(name)
        if name.isascii() and "\0" not in name and not name.startswith(SHM_SCHEME):
            last = name[name.rfind("/") + 1 :]
            if last not in ("", ".", "..") and not last.startswith(TEMP_PREFIX):
                return name, name  # as nearly all are
        raw = name.encode() if is_shm(name) else os.fsencode(name)
    except UnicodeError as error:
        raise InvalidArgument(f"{where!r} cannot be encoded as a name: {error}") from None
    if b"\0" in raw:
        raise InvalidArgument(f"a name must not contain NUL, found {name!r}")
    last = name[len(SHM_SCHEME) :] if is_shm(name) else os.path.basename(name)
    proper = last not in ("", ".", "..") and not last.startswith(TEMP_PREFIX)
    if not is_shm(name):
        if not proper:
            if os.path.isdir(name):
                raise InvalidArgument(
                    f"expected a file, and {name!r} is a directory; pass a file in it; shmarrow.Store opens a store"
                )
            raise InvalidArgument(
                f"a path must end in a file name that does not start with {TEMP_PREFIX!r}, found {name!r}"
            )
        return name, name
    size = len(raw) - len(SHM_SCHEME)
    if not proper or "/" in last or size > SHM_NAME_MAX:
        raise InvalidArgument(
            f"expected {SHM_SCHEME}NAME, where NAME has 1 to {SHM_NAME_MAX} bytes and no '/', is not '.' or '..' and "
            f"does not start with {TEMP_PREFIX!r}, found {name!r}, whose NAME has {size} bytes"
        )
    if not _HAS_SHM:
        check_shm(name)
    return name, f"{SHM_DIRECTORY}/{last}"


def check_shm(name: str) -> None:
    """Refuse a name of shared memory where that is not a directory of files.

    Raises
    ------
    Unsupported
        If there is no ``/dev/shm``.
    """
    if not os.path.isdir(SHM_DIRECTORY):
        raise Unsupported(
            f"cannot use {name!r}: there is no directory {SHM_DIRECTORY}; on Linux, mount a tmpfs there; other "
            "platforms have no shared memory objects that are files, so use a path instead"
        )


def is_shm(name: str) -> bool:
    """Whether a name is that of a shared memory object."""
    return name.startswith(SHM_SCHEME)


def check_removable(found: os.stat_result) -> None:
    """Refuse to replace or unlink anything but a file or a link to one."""
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        raise not_regular(found)


def is_planted(path: str, found: os.stat_result) -> bool:
    """Whether what is at a path was placed there by somebody else, in a sticky directory that all may write."""
    directory = os.stat(os.path.dirname(path) or os.curdir)
    for_all = stat.S_ISVTX | stat.S_IWOTH
    return directory.st_mode & for_all == for_all and found.st_uid not in (os.geteuid(), directory.st_uid)


def check_trusted_link(path: str, link: os.stat_result) -> None:
    """Refuse to follow a link that somebody else has placed in a directory that anyone may write to, as Linux does."""
    if is_planted(path, link):
        raise PermissionError(
            errno.EACCES, f"the symbolic link {path!r} is user {link.st_uid}'s, in a directory that anyone may write to"
        )


def not_regular(found: os.stat_result) -> OSError:
    """The error for what is there and is not a regular file."""
    kind = stat.filemode(found.st_mode)[0]
    kinds = {"d": "directory", "p": "FIFO", "s": "socket", "c": "character device", "b": "block device"}
    code = errno.EISDIR if kind == "d" else errno.EINVAL
    text = f"expected a regular file, found a {kinds.get(kind, 'special file')}"
    hint = "open it and pass the file object"
    if kind == "d":
        hint = "pass one of the files in it; shmarrow.Store opens a store"
    return OSError(code, f"{text}; {hint}")


def taken(name: str) -> ObjectExists:
    """The error for a name that another object has."""
    return ObjectExists(
        errno.EEXIST, f"cannot create {name!r}: the name is taken; unlink it first, or pass overwrite=True"
    )


def became_smaller(action: str, name: str, size: int) -> StorageError:
    """The error for a file that was truncated while it was opened."""
    return StorageError(
        errno.EBUSY,
        f"cannot {action} {name!r}: it had {size} bytes and became smaller in the meantime; replace files that others "
        "use, never truncate them",
    )


def not_a_path(name: str) -> str:
    """What to do with a URL, which no path is."""
    scheme, _, rest = name.partition("://")
    if scheme == "file":
        return f"a URL is not a path; pass {'/' + rest.partition('/')[2]!r}"
    return f"a URL is not a path; pass a file object, such as fsspec.open({name!r}).open(), or download the file first"


def refused(error: OSError, action: str, name: str, path: str, hint: str = "") -> StorageError:
    """The error for what the operating system refused, with the numbers that explain it."""
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
            hint = "each attached object keeps one descriptor open while arrays of it live; raise the limit (ulimit -n)"
        elif error.errno == errno.ELOOP:
            hint = "no symbolic link is followed here, as somebody else may have placed it"
    return storage_error(error, action, name, hint)


def _absence(name: str, path: str) -> str:
    """Why there may be nothing of this name."""
    if is_shm(name):
        return "it was never published, or it was removed already"
    directory = os.path.dirname(path) or os.curdir
    if not os.path.isdir(directory):
        return f"there is no directory {directory!r}"
    if any(mark in name for mark in "*?"):
        return "patterns are not expanded; pass one file at a time, as from glob.glob"
    if os.path.isabs(path):
        return ""
    try:
        return f"the current directory is {os.getcwd()!r}"
    except OSError:
        return "the current directory was removed"


def _space(path: str) -> str:
    directory = os.path.dirname(path)
    try:
        found = os.statvfs(directory)
    except OSError:
        return "free some space"
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    text = f"the file system of {directory!r} has {total} bytes ({total >> 20} MiB), of which {free} are free"
    if directory == SHM_DIRECTORY:
        text += (
            "; containers often give it 64 MiB: enlarge it with docker's --shm-size=8g, a memory-backed emptyDir in "
            "Kubernetes, or mount -o remount,size=8g /dev/shm"
        )
    return text


def _permissions(path: str) -> str:
    """Mode and owner of the object and of its directory, as far as this user can see them."""
    seen = []
    for place in (path, os.path.dirname(path) or "."):
        with suppress(OSError):
            found = os.stat(place)
            seen.append(f"{place!r} has mode {stat.S_IMODE(found.st_mode):04o} and owner {found.st_uid}")
    return "; ".join([*seen, f"this process runs as user {os.geteuid()}"])
