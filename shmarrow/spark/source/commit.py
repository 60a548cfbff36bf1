"""Jobs that write a directory: begun, and committed as a whole or given up.

Rules kept here:

* tasks write in the directory of their job only, and never make it. So an attempt that ends after its job finds no
  place for its file, and leaves nothing;
* a commit moves files into the directory, replaces the manifest, moves what it replaced away, and removes the job's
  directory, in this order, under the lock. A crash in between leaves files that the manifest does not name, and the
  next commit removes them;
* before anything is moved into a directory without a manifest, one of generation 0 names the files in it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from shmarrow.errors import (
    InvalidArgument,
    InvalidData,
    InvalidType,
    ObjectNotFound,
    StorageError,
    Unsupported,
)
from shmarrow.ipc import open_file, open_stream
from shmarrow.segment.files import sync_directory
from shmarrow.segment.location import refused
from shmarrow.spark.source.cleanup import JOB, LOCK, OWNER, driver, locked, remove, tidy
from shmarrow.spark.source.directory import (
    MANIFEST,
    STATE,
    DataFile,
    Manifest,
    read_manifest,
    visible,
    write_manifest,
)
from shmarrow.store.protocol import CONTROL
from shmarrow.types import ListType, MapType, Schema, StructType

_TRIES = 100


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
    checked : bytes
        The fingerprint of the files of a directory without a manifest that were opened and fit the job; empty if there
        were none.
    """

    directory: str
    id: str
    made: tuple[str, ...] = ()
    checked: bytes = b""

    @property
    def folder(self) -> str:
        """Where the attempts of its tasks write."""
        return os.path.join(self.directory, STATE, JOB + self.id)


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
    checked = b""
    if os.path.isdir(directory):
        current, checked = _current(directory)
        _check(directory, current, schema, overwrite)
    job = Job(directory, uuid.uuid4().hex)
    made: list[str] = []
    try:
        _make(job.folder, made)
        with open(os.path.join(job.folder, OWNER), "w", encoding="utf-8") as file:
            json.dump(driver(), file)
    except OSError as error:
        shutil.rmtree(job.folder, ignore_errors=True)
        _remove_empty(made)
        raise refused(error, "make", job.folder, job.folder) from None
    outside = tuple([path for path in made if not path.startswith(os.path.join(directory, STATE))])
    return Job(directory, job.id, outside, checked)


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
        That of the files, as given to :func:`begin`.
    overwrite : bool
        As given to :func:`begin`: replace what counted before, also what was committed since the job began; False adds
        to it.
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
    with locked(directory):
        before, found = _current(directory)
        if not found or found != job.checked:  # others wait for the lock, and to open thousands of files takes seconds
            _check(directory, before, schema, overwrite)
        for file in written:
            _check_written(job, file)
        try:
            if before.generation == 0:
                write_manifest(directory, before, durable)
            tidy(directory, before, True, job.folder)
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
            write_manifest(directory, after, durable)
        except OSError as error:
            raise _own(error, "commit to", directory) from None
        with suppress(OSError):  # it is committed; what cannot be removed now is left to the next commit
            tidy(directory, after, keep_replaced or not overwrite, job.folder)
        remove(job.folder)
    return after


def abort(job: Job) -> None:
    """Remove what a job has written and not committed, and the directories that it made.

    Safe to call again, and after a commit, which it completes if it was interrupted.
    """
    directory = job.directory
    state = os.path.join(directory, STATE)
    remove(job.folder)
    with suppress(ObjectNotFound), locked(directory):
        manifest = read_manifest(directory)
        try:
            if manifest is not None:
                tidy(directory, manifest, True, job.folder)
            if manifest is not None and manifest.generation == 0:
                os.unlink(os.path.join(state, MANIFEST))
            if os.listdir(state) == [LOCK]:
                os.unlink(os.path.join(state, LOCK))
                os.rmdir(state)
        except OSError as error:
            raise _own(error, "clean up in", directory) from None
    _remove_empty(job.made)


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


def _own(error: OSError, action: str, directory: str) -> StorageError:
    return error if isinstance(error, StorageError) else refused(error, action, directory, directory)


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


# --- what may be added to, or replaced --------------------------------------------------------------------------


def _current(directory: str) -> tuple[Manifest, bytes]:
    """The manifest, or one of generation 0 that names all files of a directory without one, and their fingerprint."""
    manifest = read_manifest(directory)
    if manifest is not None:
        return manifest, b""
    entries = visible(directory)
    other = next((entry.name for entry in entries if not entry.is_file()), None)
    if other is not None:
        raise InvalidArgument(
            f"cannot write to {directory!r}: it holds {other!r}, which is not a file; pass a directory that has only "
            "Arrow files, or a new one"
        )
    try:
        found = [(entry.name, entry.stat()) for entry in entries]
    except OSError as error:
        raise refused(error, "look into", directory, directory) from None
    known = repr([(name, status.st_size, status.st_mtime_ns, status.st_ino) for name, status in found])
    files = tuple([DataFile(name, status.st_size) for name, status in found])
    return Manifest(0, files), blake2b(known.encode(), digest_size=16).digest()


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
