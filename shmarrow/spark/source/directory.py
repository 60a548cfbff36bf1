"""Directories that Spark writes: which files count, and how that changes as a whole.

``DIR/_shmarrow/manifest.json`` names the files that count, in the order of their rows. Replacing it is the commit: a
reader sees the files of one manifest, and so all of a job or nothing. Other programs see plain Arrow files in ``DIR``.

| in the directory | what it is |
| --- | --- |
| ``part-00000-<job>.arrow`` | a file that a job has committed; ``<job>`` has 32 hexadecimal digits |
| ``_shmarrow/manifest.json`` | the names of the files that count |
| ``_shmarrow/lock`` | locked (``flock``) by whoever commits or aborts; the kernel drops it when the process ends |
| ``_shmarrow/job-<job>/`` | what the attempts of a job have written so far, and which driver it belongs to |
| ``_shmarrow/replaced/`` | what the last overwrite replaced, for readers that had been planned before |

Rules kept here:

* tasks write in the directory of their job only, and never make it. So an attempt that ends after its job finds no
  place for its file, and leaves nothing;
* a commit moves files into ``DIR``, replaces the manifest, moves what it replaced away, and removes the job's
  directory, in this order, under the lock. A crash in between leaves files that the manifest does not name, and the
  next commit removes them;
* a directory without a manifest counts as all the files in it. Before anything is moved there, a manifest of
  generation 0 names these;
* a job is removed by others when its driver is known to be dead, or after a week without a change.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from shmarrow import segment
from shmarrow.errors import (
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    ObjectNotFound,
    ShmarrowError,
    StorageError,
    Unsupported,
    prefixed,
    shown,
)
from shmarrow.ipc import open_file, open_stream
from shmarrow.segment.files import lock_exclusive, sync_directory
from shmarrow.segment.host import boot_id, host_name
from shmarrow.segment.location import refused
from shmarrow.spark.source.options import local
from shmarrow.store.protocol import CONTROL
from shmarrow.types import ListType, MapType, Schema, StructType

R = TypeVar("R")

STATE = "_shmarrow"
VERSION = 1
_MANIFEST, _LOCK, _REPLACED, _JOB, _OWNER = "manifest.json", "lock", "replaced", "job-", "owner.json"
_PART = re.compile(r"part-\d{5,}-[0-9a-f]{32}\.arrow")
_MANIFEST_BYTES = 1 << 28
_LOCK_SECONDS = 60.0
_ABANDONED_SECONDS = 7 * 86400.0
_TRIES = 100


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


@dataclass(frozen=True)
class Job:
    """One write, from its plan to its commit; made by :func:`begin`, picklable.

    Attributes
    ----------
    directory : str
        What is written to; an absolute path.
    id : str
        32 hexadecimal digits.
    made : tuple of str
        The directories that did not exist before, from the outermost on.
    """

    directory: str
    id: str
    made: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Where the attempts of its tasks write."""
        return os.path.join(self.directory, STATE, _JOB + self.id)


# --- reading ----------------------------------------------------------------------------------------------------


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
    path = os.path.join(directory, STATE, _MANIFEST)
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
        listed = [DataFile(entry.name, entry.stat().st_size) for entry in _visible(directory) if entry.is_file()]
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
        return open(os.path.join(directory, STATE, _REPLACED, name))
    except ObjectNotFound:
        raise ObjectNotFound(
            errno.ENOENT,
            f"cannot open {path!r}: it was removed, or overwritten since this query was planned, twice or with "
            "keepReplaced=false; load the directory again",
        ) from None


def _decoded(value: Any) -> Manifest:
    version = value["version"]
    if not _is_count(version):
        raise InvalidData(f"expected a version, found {shown(version)}")
    if version != VERSION:
        raise Unsupported(f"the manifest has version {version}, expected {VERSION}; update shmarrow")
    files = [DataFile(_name(file["name"]), file["size"], file["rows"]) for file in value["files"]]
    names = {file.name for file in files}
    if len(names) < len(files):
        raise InvalidData("it names a file twice")
    for file in files:
        if not _is_count(file.size) or not (file.rows is None or _is_count(file.rows)):
            raise InvalidData(f"{file.name!r} has {shown(file.size)} bytes and {shown(file.rows)} rows")
    replaced = tuple([_name(name) for name in value["replaced"]])
    if not _is_count(value["generation"]) or not names.isdisjoint(replaced):
        raise InvalidData(f"generation {shown(value['generation'])}, or a file that counts and was replaced")
    return Manifest(value["generation"], tuple(files), replaced)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _name(name: Any) -> str:
    """A name from a manifest, if it is that of a visible file in the directory itself."""
    if not isinstance(name, str) or not name or name[0] in "._" or "/" in name or "\0" in name:
        raise InvalidData(f"expected the name of a file in the directory, found {shown(name)}")
    os.fsencode(name)  # UnicodeEncodeError for what no name can be
    return name


def _visible(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted([entry for entry in entries if entry.name[0] not in "._"], key=lambda entry: entry.name)
    except OSError as error:
        raise refused(error, "list", directory, directory) from None


# --- writing ----------------------------------------------------------------------------------------------------


def begin(directory: str, schema: Schema, overwrite: bool) -> Job:
    """Make place for the attempts of a job, if it can be expected to be committed.

    Parameters
    ----------
    directory : str
        An absolute path; made if there is none.
    schema : Schema
        That of all files of the job.
    overwrite : bool
        Whether the job is going to replace what is there.

    Raises
    ------
    InvalidType
        If files that stay have other columns.
    InvalidArgument
        If there is a store, a file, or a directory with other things than Arrow files.
    StorageError
        If the file system does not permit it.
    """
    if os.path.exists(os.path.join(directory, CONTROL)):
        raise InvalidArgument(
            f"cannot write to {directory!r}: it is the directory of a store; shmarrow.spark.share(df, {directory!r}) "
            "puts a DataFrame into a store"
        )
    if os.path.lexists(directory) and not os.path.isdir(directory):
        raise InvalidArgument(f"cannot write to {directory!r}: expected a directory, found a file")
    if os.path.isdir(directory):
        _check(directory, _current(directory), schema, overwrite)
    job = Job(directory, uuid.uuid4().hex)
    made: list[str] = []
    try:
        _make(job.folder, made)
        with open(os.path.join(job.folder, _OWNER), "w", encoding="utf-8") as file:
            json.dump(_driver(), file)
    except OSError as error:
        shutil.rmtree(job.folder, ignore_errors=True)
        _remove_empty(made)
        raise refused(error, "make", job.folder, job.folder) from None
    return Job(directory, job.id, tuple([path for path in made if not path.startswith(os.path.join(directory, STATE))]))


def commit(
    job: Job,
    written: Sequence[DataFile],
    schema: Schema,
    *,
    overwrite: bool,
    keep_replaced: bool = True,
    durable: bool = False,
) -> Manifest:
    """Make files of a job count, all of them at once; in place of, or after, those that did.

    Parameters
    ----------
    job : Job
        From :func:`begin`.
    written : sequence of DataFile
        Files in the job's directory, in the order of their rows. Whatever else is there is removed.
    schema : Schema
        That of the files.
    overwrite : bool
        Replace what counted before, also what was committed since the job began; False adds to it.
    keep_replaced : bool
        Keep the files that are replaced until the next overwrite, for readers that were planned before.
    durable : bool
        Sync the names and the manifest to disk.

    Returns
    -------
    Manifest
        What counts now.

    Raises
    ------
    InvalidType
        If files that stay have other columns. Nothing has changed then.
    ObjectNotFound
        If a file is missing. Nothing has changed then.
    StorageError
        If the file system refuses something, or another process holds the lock for more than a minute.
    """
    directory = job.directory
    with _locked(directory):
        before = _current(directory)
        _check(directory, before, schema, overwrite)
        for file in written:
            _check_written(job, file)
        try:
            if before.generation == 0:
                _write(directory, before, durable)
            _tidy(directory, before, True, job)
            files = []
            for number, file in enumerate(written):
                name = f"part-{number:05d}-{job.id}.arrow"
                os.rename(os.path.join(job.folder, file.name), os.path.join(directory, name))
                files.append(DataFile(name, file.size, file.rows))
            if durable:
                sync_directory(directory)
            if overwrite:
                after = Manifest(before.generation + 1, tuple(files), tuple([file.name for file in before.files]))
            else:
                after = Manifest(before.generation + 1, (*before.files, *files), before.replaced)
            _write(directory, after, durable)
        except OSError as error:
            raise _own(error, "commit to", directory) from None
        with suppress(OSError):  # it is committed; what cannot be removed now is left to the next commit
            _tidy(directory, after, keep_replaced or not overwrite, job)
        _remove(job.folder)
    return after


def abort(job: Job) -> None:
    """Remove what a job has written and not committed, and the directories that it made.

    Safe to call again, and after a commit, which it completes if it was interrupted.
    """
    directory = job.directory
    state = os.path.join(directory, STATE)
    _remove(job.folder)
    with suppress(ObjectNotFound), _locked(directory):
        manifest = read_manifest(directory)
        try:
            if manifest is not None:
                _tidy(directory, manifest, True, job)
            if manifest is not None and manifest.generation == 0:
                os.unlink(os.path.join(state, _MANIFEST))
            if os.listdir(state) == [_LOCK]:
                os.unlink(os.path.join(state, _LOCK))
                os.rmdir(state)
        except OSError as error:
            raise _own(error, "clean up in", directory) from None
    _remove_empty(job.made)


def _current(directory: str) -> Manifest:
    """The manifest, or one of generation 0 that names all files of a directory without one."""
    manifest = read_manifest(directory)
    if manifest is not None:
        return manifest
    entries = _visible(directory)
    other = next((entry.name for entry in entries if not entry.is_file()), None)
    if other is not None:
        raise InvalidArgument(
            f"cannot write to {directory!r}: it holds {other!r}, which is not a file; pass a directory that has only "
            "Arrow files, or a new one"
        )
    return Manifest(0, tuple([DataFile(entry.name, entry.stat().st_size) for entry in entries]))


def _check(directory: str, current: Manifest, schema: Schema, overwrite: bool) -> None:
    """See that the files of a job can be added to those that count, or replace them.

    All files that a job has committed have one schema. Of others, each is opened, as what is no Arrow file must be
    neither added to nor removed.
    """
    for file in current.files if current.generation == 0 else current.files[:1]:
        if overwrite and current.generation:
            continue
        path = os.path.join(directory, file.name)
        try:
            found = _schema_of(path)
        except (InvalidData, Unsupported) as error:
            raise InvalidArgument(
                f"cannot write to {directory!r}: {file.name!r} is not an Arrow file: {error}"
            ) from None
        differences = [] if overwrite else _differences(found, schema)
        if differences:
            raise InvalidType(
                f"cannot append to {directory!r}, whose columns are those of {file.name!r}: {'; '.join(differences)}. "
                "Nothing was changed: cast or select the columns, or overwrite"
            )


def _check_written(job: Job, file: DataFile) -> None:
    path = os.path.join(job.folder, file.name)
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise refused(
            error, "commit", path, path, "a task wrote it: is the directory on a file system that all hosts share?"
        ) from None
    if size != file.size:
        raise StorageError(
            errno.EIO, f"cannot commit {path!r}: the task that wrote it gave it {file.size} bytes, found {size}"
        )


def _schema_of(path: str) -> Schema:
    try:
        with open_file(path) as reader:
            return reader.schema
    except InvalidData as error:
        try:
            with open_stream(path) as stream:
                return stream.schema
        except InvalidData:
            raise error from None


def _differences(found: Schema, given: Schema) -> list[str]:
    """What keeps rows of one schema from being added to those of another; nullability does not."""
    if given.names != found.names and sorted(given.names) == sorted(found.names):
        return [f"the order of the columns is {given.names}, expected {found.names}"]
    known, new = ({field.name: field.type for field in schema} for schema in (found, given))
    return [
        *[f"column {name!r} is missing" for name in known if name not in new],
        *[f"column {name!r} is not there yet" for name in new if name not in known],
        *[
            f"column {name!r} is {new[name]}, expected {type}"
            for name, type in known.items()
            if name in new and not _alike(type, new[name])
        ],
    ]


def _alike(a: Any, b: Any) -> bool:
    """Whether types differ at most in nullability, at any depth, and in the names of a list's or a map's children."""
    if a == b:
        return True
    if a.__class__ is not b.__class__ or a.__class__ not in (ListType, MapType, StructType):
        return False
    named = a.__class__ is StructType
    return len(a.fields) == len(b.fields) and all(
        (x.name == y.name or not named) and _alike(x.type, y.type)
        for x, y in zip(*[_children(type) for type in (a, b)], strict=True)
    )


def _children(type: Any) -> Sequence[Any]:
    return (type.key_field, type.item_field) if isinstance(type, MapType) else type.fields


def _write(directory: str, manifest: Manifest, durable: bool) -> None:
    data = json.dumps({"version": VERSION, **asdict(manifest)}, indent=1).encode()
    path = os.path.join(directory, STATE, _MANIFEST)
    with segment.create(path, mode=None, overwrite=True, durable=durable) as writer:
        writer.write([data])


def _own(error: OSError, action: str, directory: str) -> StorageError:
    return error if isinstance(error, StorageError) else refused(error, action, directory, directory)


# --- cleaning up ------------------------------------------------------------------------------------------------


def _tidy(directory: str, manifest: Manifest, keep: bool, job: Job) -> None:
    """Remove what the manifest does not name: parts of interrupted commits, what was replaced, and other dead jobs."""
    state = os.path.join(directory, STATE)
    replaced = os.path.join(state, _REPLACED)
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
        if name.startswith(_JOB) and folder != job.folder and _is_dead(folder):
            _remove(folder)


def _is_dead(folder: str) -> bool:
    """Whether nobody is going to commit what a job has written."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        with open(os.path.join(folder, _OWNER), encoding="utf-8") as file:
            owner = json.loads(file.read(1 << 12))
        pid = owner["pid"]
        if _is_count(pid) and pid and all(owner[key] == value for key, value in _machine().items()):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
            return bool(_process(pid)[1] != owner["started"])
    with suppress(OSError):
        return time.time() - os.stat(folder).st_mtime > _ABANDONED_SECONDS
    return False


def _machine() -> dict[str, str]:
    """Within what a number stands for one process."""
    return {"host": host_name(), "boot": boot_id(), "processes": os.readlink("/proc/self/ns/pid")}


def _driver() -> dict[str, Any]:
    """The process that a job belongs to: the next one above Spark's Python processes, the driver's Java."""
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


def _remove(folder: str) -> None:
    """Remove the directory of a job, whose last attempts may still add to it."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            break


def _make(path: str, made: list[str]) -> None:
    """Make a directory and those that it is in; adds them to ``made``."""
    for _ in range(_TRIES):
        try:
            os.mkdir(path)
        except FileNotFoundError:
            _make_parents(os.path.dirname(path), made)
        else:
            made.append(path)
            return
    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


def _make_parents(path: str, made: list[str]) -> None:
    if not os.path.isdir(path):
        with suppress(FileExistsError):  # made by another job at the same time
            _make(path, made)


def _remove_empty(made: Sequence[str]) -> None:
    for path in reversed(made):
        with suppress(OSError):
            os.rmdir(path)


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Exclude all others who change a directory."""
    fd = _lock(directory)
    try:
        yield
    finally:
        os.close(fd)


def _lock(directory: str) -> int:
    path = os.path.join(directory, STATE, _LOCK)
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
