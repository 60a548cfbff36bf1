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
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from shmarrow import segment
from shmarrow.errors import (
    InvalidArgument,
    InvalidData,
    LimitExceeded,
    ObjectNotFound,
    StorageError,
    Unsupported,
    shown,
)
from shmarrow.segment.location import refused
from shmarrow.spark.source.guarded import check_owner, opened_directory, read_file
from shmarrow.spark.source.options import local

R = TypeVar("R")

STATE = "_shmarrow"
MANIFEST, REPLACED = "manifest.json", "replaced"
UNFINISHED = ".manifest.json"
"""The manifest while it is written."""
PART = re.compile(r"part-\d{5,}-[0-9a-f]{32}\.arrow")
"""The names of files that jobs have committed."""
VERSION = 1
MOST = (1 << 63) - 1
"""The largest of all numbers in a manifest."""
MANIFEST_BYTES = 1 << 25


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
        raise InvalidArgument(
            "expected the path of a directory, found none: call save(path), or set the option 'path'; Spark does not "
            "pass the path of a catalog table to Python sources"
        )
    if text.startswith(segment.SHM_SCHEME):
        raise InvalidArgument(
            f"cannot write to {text!r}: it names a store, and Spark writes directories; "
            f"shmarrow.spark.share(df, {text!r}) puts a DataFrame into a store"
        )
    if "\0" in text:
        raise InvalidArgument(f"a path must not contain NUL, found {text!r}")
    return os.path.abspath(local(text))


def read_manifest(directory: str, state: int | None = None, writing: bool = False) -> Manifest | None:
    """The manifest of a directory; None if it has none.

    Parameters
    ----------
    directory : str
        Its path.
    state : int, optional
        Its ``_shmarrow``, open.
    writing : bool
        Whether the manifest decides what is changed.

    Raises
    ------
    InvalidData
        If it is damaged, or names anything but files in the directory.
    LimitExceeded
        If it has more than 32 MiB.
    Unsupported
        If a later version wrote it.
    StorageError
        If it cannot be read, or is a link; to write, also if somebody else has placed it in a directory that all may
        write.
    """
    path = os.path.join(directory, STATE, MANIFEST)
    try:
        if state is None:
            with opened_directory(os.path.join(directory, STATE)) as state:
                data, found = read_file(MANIFEST, state, MANIFEST_BYTES)
        else:
            data, found = read_file(MANIFEST, state, MANIFEST_BYTES)
            if writing:
                check_owner(path, found, os.fstat(state))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except StorageError:
        raise
    except LimitExceeded as error:
        error.where = ("cannot read", path), *error.where
        raise
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise _invalid(path, str(error.strerror)) from None
        raise refused(error, "open", path, path) from None
    try:
        value = json.loads(data)
    except RecursionError:
        raise _invalid(path, "it is nested too deeply") from None
    except ValueError as error:
        raise _invalid(path, f"it is not JSON: {error}") from None
    try:
        return _decoded(value)
    except Unsupported as error:
        error.where = (path,), *error.where
        raise
    except InvalidData as error:
        raise _invalid(path, str(error)) from None


def _invalid(path: str, reason: str) -> InvalidData:
    return InvalidData(f"{path!r} is not a valid manifest: {reason}; remove it, and all visible files count")


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
    _expect(value, dict, ("version",), "the manifest")
    version = value["version"]
    if not is_count(version):
        raise InvalidData(f"expected a version, found {shown(version)}")
    if version != VERSION:
        raise Unsupported(f"the manifest has version {version}, expected {VERSION}; update shmarrow")
    _expect(value, dict, ("version", "generation", "files", "replaced"), "the manifest")
    _expect(value["files"], list, (), "files")
    _expect(value["replaced"], list, (), "replaced")
    files = []
    for file in value["files"]:
        _expect(file, dict, ("name", "size", "rows"), "a file")
        files.append(DataFile(_name(file["name"]), file["size"], file["rows"]))
    names = {file.name for file in files}
    if len(names) < len(files):
        raise InvalidData("it names a file twice")
    for file in files:
        if not is_count(file.size) or not (file.rows is None or is_count(file.rows)):
            raise InvalidData(f"{file.name!r} has {shown(file.size)} bytes and {shown(file.rows)} rows")
    replaced = tuple([_name(name) for name in value["replaced"]])
    if not is_count(value["generation"]):
        raise InvalidData(f"expected a generation, found {shown(value['generation'])}")
    if not names.isdisjoint(replaced):
        raise InvalidData("a file counts and was replaced")
    return Manifest(value["generation"], tuple(files), replaced)


def _expect(value: Any, kind: type[Any], keys: tuple[str, ...], what: str) -> None:
    if isinstance(value, kind) and all(key in value for key in keys):
        return
    wanted = f"an object with {', '.join(keys)}" if kind is dict else "an array"
    if isinstance(value, dict):
        found = f"one with {shown(sorted(value)[:9])}" if kind is dict else "an object"
    else:
        found = f"an array of {len(value)} values" if isinstance(value, list) else shown(value)
    raise InvalidData(f"expected {what} to be {wanted}, found {found}")


def is_count(value: Any) -> bool:
    """Whether something that was read is a number of things."""
    return type(value) is int and 0 <= value <= MOST


def _name(name: Any) -> str:
    """A name from a manifest, if it is that of a visible file in the directory itself."""
    if not isinstance(name, str) or not name or name[0] in "._" or "/" in name or "\0" in name:
        raise InvalidData(f"expected the name of a file in the directory, found {shown(name)}")
    try:
        os.fsencode(name)
    except UnicodeError:
        raise InvalidData(f"expected the name of a file in the directory, found {shown(name)}") from None
    return name


def visible(directory: str) -> list[os.DirEntry[str]]:
    """What is in a directory under names that are not hidden, by name."""
    try:
        with os.scandir(directory) as entries:
            return sorted([entry for entry in entries if entry.name[0] not in "._"], key=lambda entry: entry.name)
    except OSError as error:
        raise refused(error, "list", directory, directory) from None


def encoded(directory: str, manifest: Manifest) -> bytes:
    """A manifest as it is stored.

    Raises
    ------
    LimitExceeded
        If it is larger than what is read.
    """
    files = [vars(file) for file in manifest.files]
    data = json.dumps({"version": VERSION, **vars(manifest), "files": files}).encode()
    if len(data) > MANIFEST_BYTES:
        raise LimitExceeded(
            f"cannot write to {directory!r}: it would have {len(manifest.files)} files, whose manifest has {len(data)} "
            f"bytes, and {MANIFEST_BYTES} are accepted; write fewer, larger files, or to another directory"
        )
    return data


def write_manifest(directory: str, state: int, data: bytes, durable: bool) -> None:
    """Replace the manifest, all at once; under the lock of the directory, whose ``_shmarrow`` is open as ``state``."""
    path = os.path.join(directory, STATE, MANIFEST)
    try:
        with suppress(FileNotFoundError):
            os.unlink(UNFINISHED, dir_fd=state)  # of a process that was killed
        fd = os.open(UNFINISHED, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=state)
        try:
            with open(fd, "wb") as file:
                with suppress(FileNotFoundError):
                    before = os.stat(MANIFEST, dir_fd=state, follow_symlinks=False)
                    os.fchmod(fd, stat.S_IMODE(before.st_mode) & 0o666)
                    with suppress(OSError):  # as those may who have the privilege
                        os.fchown(fd, before.st_uid, before.st_gid)
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(fd)
            os.rename(UNFINISHED, MANIFEST, src_dir_fd=state, dst_dir_fd=state)
        except OSError:
            with suppress(OSError):
                os.unlink(UNFINISHED, dir_fd=state)
            raise
        if durable:
            os.fsync(state)
    except OSError as error:
        raise refused(error, "write", path, path) from None
