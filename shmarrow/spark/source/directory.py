"""Directories that Spark writes: which of their files count.

``DIR/_shmarrow/manifest.json`` names the files that count, in the order of their rows. Replacing it is the commit: a
reader sees the files of one manifest, and so all of a job or nothing. Other programs see plain Arrow files in ``DIR``.

| in the directory | what it is |
| --- | --- |
| ``part-00000-<job>.arrow`` | a file that a job has committed; ``<job>`` has 32 hexadecimal digits |
| ``_shmarrow/manifest.json`` | the names of the files that count |
| ``_shmarrow/lock`` | locked (``flock``) by whoever commits or aborts; the kernel drops it when the process ends |
| ``_shmarrow/job-<job>/`` | what the attempts of a job have written so far, and which driver it belongs to |
| ``_shmarrow/replaced/`` | what the last overwrite replaced, for readers that had been planned before |

A directory without a manifest counts as all the files in it whose names do not begin with ``_`` or ``.``.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from shmarrow import segment
from shmarrow.errors import (
    InvalidArgument,
    InvalidData,
    LimitExceeded,
    ObjectNotFound,
    ShmarrowError,
    Unsupported,
    prefixed,
    shown,
)
from shmarrow.segment.location import refused
from shmarrow.spark.source.options import local

R = TypeVar("R")

STATE = "_shmarrow"
MANIFEST, REPLACED = "manifest.json", "replaced"
VERSION = 1
_MANIFEST_BYTES = 1 << 28


@dataclass(frozen=True)
class DataFile:
    """A file that counts.

    Attributes
    ----------
    name : str
        Its name in the directory.
    size : int
        Bytes.
    rows : int or None
        Its rows; None for a file that no job of ours has written.
    """

    name: str
    size: int
    rows: int | None = None


@dataclass(frozen=True)
class Manifest:
    """What counts in a directory.

    Attributes
    ----------
    generation : int
        How many commits there were.
    files : tuple of DataFile
        The files that count, in the order of their rows.
    replaced : tuple of str
        The names of the files that the last overwrite replaced.
    """

    generation: int
    files: tuple[DataFile, ...]
    replaced: tuple[str, ...] = ()


def local_path(text: str | None) -> str:
    """The absolute path of the directory that the option ``path`` names.

    Raises
    ------
    InvalidArgument
        If it is missing, or names something else than a path of a mounted file system.
    """
    if not text:
        raise InvalidArgument("expected the path of a directory, found none: call save(path), or set the option 'path'")
    if text.startswith(segment.SHM_SCHEME):
        raise InvalidArgument(
            f"cannot write to {text!r}: it names a store, and Spark writes directories; "
            f"shmarrow.spark.share(df, {text!r}) puts a DataFrame into a store"
        )
    if "\0" in text:
        raise InvalidArgument(f"a path must not contain NUL, found {text!r}")
    return os.path.abspath(local(text))


def read_manifest(directory: str) -> Manifest | None:
    """The manifest of a directory; None if it has none.

    Raises
    ------
    InvalidData
        If it is damaged, or names anything but files in the directory.
    Unsupported
        If a later version wrote it.
    StorageError
        If it cannot be read.
    """
    path = os.path.join(directory, STATE, MANIFEST)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise refused(error, "open", path, path) from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidData(f"{path!r} is no manifest: it is no regular file")
        data = file.read(_MANIFEST_BYTES + 1)
    if len(data) > _MANIFEST_BYTES:
        raise LimitExceeded(f"the manifest {path!r} has more than {_MANIFEST_BYTES} bytes")
    try:
        return _decoded(json.loads(data))
    except Unsupported as error:
        raise prefixed(f"{path!r}: ", error) from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, ShmarrowError) else error
        raise InvalidData(f"{path!r} is no manifest: {reason}; remove it to read all files, or overwrite") from None


def data_files(directory: str) -> list[DataFile]:
    """The files of a directory that count, in the order of their rows.

    Those that its manifest names; without a manifest all regular files whose names do not begin with ``_`` or ``.``,
    by name.

    Raises
    ------
    StorageError
        If the directory cannot be listed; ObjectNotFound if there is none.
    ShmarrowError
        As :func:`read_manifest`.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        listed = [DataFile(entry.name, entry.stat().st_size) for entry in visible(directory) if entry.is_file()]
        manifest = read_manifest(directory)  # of a job that has committed meanwhile, whose files may be listed
        if manifest is None:
            return listed
    return list(manifest.files)


def open_data(path: str, open: Callable[[str], R]) -> R:
    """Open a file that :func:`data_files` has named, wherever an overwrite has moved it since.

    Parameters
    ----------
    path : str
        The directory and the file's name.
    open : callable
        Opens a path; raises ObjectNotFound if nothing is there.

    Raises
    ------
    ObjectNotFound
        If the file is gone. The message says so if it was overwritten.
    """
    try:
        return open(path)
    except ObjectNotFound:
        directory, name = os.path.split(path)
        if not os.path.isdir(os.path.join(directory, STATE)):
            raise
    try:
        return open(os.path.join(directory, STATE, REPLACED, name))
    except ObjectNotFound:
        raise ObjectNotFound(
            errno.ENOENT,
            f"cannot open {path!r}: it was removed, or overwritten since this query was planned, twice or with "
            "keepReplaced=false; load the directory again",
        ) from None


def _decoded(value: Any) -> Manifest:
    version = value["version"]
    if not is_count(version):
        raise InvalidData(f"expected a version, found {shown(version)}")
    if version != VERSION:
        raise Unsupported(f"the manifest has version {version}, expected {VERSION}; update shmarrow")
    files = [DataFile(_name(file["name"]), file["size"], file["rows"]) for file in value["files"]]
    names = {file.name for file in files}
    if len(names) < len(files):
        raise InvalidData("it names a file twice")
    for file in files:
        if not is_count(file.size) or not (file.rows is None or is_count(file.rows)):
            raise InvalidData(f"{file.name!r} has {shown(file.size)} bytes and {shown(file.rows)} rows")
    replaced = tuple([_name(name) for name in value["replaced"]])
    if not is_count(value["generation"]) or not names.isdisjoint(replaced):
        raise InvalidData(f"generation {shown(value['generation'])}, or a file that counts and was replaced")
    return Manifest(value["generation"], tuple(files), replaced)


def is_count(value: Any) -> bool:
    """Whether something that was read is a number of things."""
    return type(value) is int and 0 <= value < 1 << 63


def _name(name: Any) -> str:
    """A name from a manifest, if it is that of a visible file in the directory itself."""
    if not isinstance(name, str) or not name or name[0] in "._" or "/" in name or "\0" in name:
        raise InvalidData(f"expected the name of a file in the directory, found {shown(name)}")
    os.fsencode(name)  # UnicodeEncodeError for what no name can be
    return name


def visible(directory: str) -> list[os.DirEntry[str]]:
    """What is in a directory under names that are not hidden, by name."""
    try:
        with os.scandir(directory) as entries:
            return sorted([entry for entry in entries if entry.name[0] not in "._"], key=lambda entry: entry.name)
    except OSError as error:
        raise refused(error, "list", directory, directory) from None


def write_manifest(directory: str, manifest: Manifest, durable: bool) -> None:
    """Replace the manifest, all at once."""
    data = json.dumps({"version": VERSION, **asdict(manifest)}, indent=1).encode()
    path = os.path.join(directory, STATE, MANIFEST)
    with segment.create(path, mode=None, overwrite=True, durable=durable) as writer:
        writer.write([data])
