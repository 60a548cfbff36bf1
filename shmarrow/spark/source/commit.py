"""Jobs that write a directory: begun, and committed as a whole or given up.

Invariants:

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
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from shmarrow.errors import InvalidArgument, ObjectNotFound, StorageError
from shmarrow.segment.files import sync_directory
from shmarrow.segment.location import refused
from shmarrow.spark.source.checks import check, current, fingerprint
from shmarrow.spark.source.cleanup import JOB, LOCK, OWNER, check_replaced, driver, locked, remove, tidy
from shmarrow.spark.source.directory import (
    MANIFEST,
    STATE,
    UNFINISHED,
    DataFile,
    Manifest,
    encoded,
    read_manifest,
    write_manifest,
)
from shmarrow.spark.source.guarded import opened_directory
from shmarrow.store.protocol import CONTROL
from shmarrow.types import Schema

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
        The fingerprint of the files that were there, and opened, when the job began.
    """

    directory: str
    id: str
    made: tuple[str, ...] = ()
    checked: bytes = b""

    @property
    def name(self) -> str:
        """That of its directory in ``_shmarrow``."""
        return JOB + self.id

    @property
    def folder(self) -> str:
        """Where the attempts of its tasks write."""
        return os.path.join(self.directory, STATE, self.name)


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
    made: list[str] = []
    job = Job(directory, uuid.uuid4().hex)
    try:
        checked = _check(job, schema, overwrite) if os.path.isdir(directory) else b""
        _make_folder(job, made)
    except OSError as error:
        with suppress(OSError), opened_directory(os.path.join(directory, STATE)) as state:
            remove(state, job.name)
        _remove_empty([*made, os.path.join(directory, STATE)])
        raise _own(error, "make", job.folder) from None
    return Job(directory, job.id, tuple(made), checked)


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
    with locked(directory) as state:
        before = current(directory, state)
        if fingerprint(directory, before, overwrite) != job.checked:  # others wait: thousands of files take seconds
            check(directory, before, schema, overwrite)
        try:
            with _written(job, state, written) as folder:
                files = [
                    DataFile(f"part-{number:05d}-{job.id}.arrow", file.size, file.rows)
                    for number, file in enumerate(written)
                ]
                if overwrite:
                    after = Manifest(before.generation + 1, tuple(files), tuple([file.name for file in before.files]))
                else:
                    after = Manifest(before.generation + 1, (*before.files, *files), before.replaced)
                data = encoded(directory, after)
                if before.generation == 0:
                    write_manifest(directory, state, encoded(directory, before), durable)
                tidy(directory, state, before, True, job.name)
                for file, named in zip(written, files, strict=True):
                    os.rename(file.name, os.path.join(directory, named.name), src_dir_fd=folder)
            if durable:
                sync_directory(directory)
            write_manifest(directory, state, data, durable)
        except OSError as error:
            raise _own(error, "commit to", directory) from None
        with suppress(OSError):  # it is committed; what cannot be removed now is left to the next commit
            checked = {file.name for file in before.files} if overwrite else ()
            tidy(directory, state, after, keep_replaced or not overwrite, job.name, checked)
        remove(state, job.name)
    return after


def abort(job: Job) -> None:
    """Remove what a job has written and not committed, and the directories that it made.

    Safe to call again, and after a commit, which it completes if it was interrupted.
    """
    directory = job.directory
    path = os.path.join(directory, STATE)
    with suppress(OSError), opened_directory(path) as state:
        remove(state, job.name)  # before the lock, so that its tasks end soon
    with suppress(ObjectNotFound), locked(directory) as state:
        manifest = read_manifest(directory, state, writing=True)
        try:
            if manifest is not None:
                tidy(directory, state, manifest, True, job.name)
            if manifest is not None and manifest.generation == 0:
                os.unlink(MANIFEST, dir_fd=state)
            if set(os.listdir(state)) <= {LOCK, UNFINISHED}:
                for name in os.listdir(state):
                    os.unlink(name, dir_fd=state)
                with suppress(OSError):  # another job has begun
                    os.rmdir(path)
        except OSError as error:
            raise _own(error, "clean up in", directory) from None
    _remove_empty(job.made)


@contextmanager
def _written(job: Job, state: int, written: Sequence[DataFile]) -> Iterator[int]:
    """The directory of a job, open, in which the files are that its tasks have written."""
    path = job.folder
    try:
        with opened_directory(path, state) as folder:
            for file in written:
                path = os.path.join(job.folder, file.name)
                size = os.stat(file.name, dir_fd=folder, follow_symlinks=False).st_size
                if size != file.size:
                    raise StorageError(
                        errno.EIO,
                        f"cannot commit {path!r}: the task that wrote it gave it {file.size} bytes, found {size}",
                    )
            yield folder
    except FileNotFoundError as error:
        if isinstance(error, StorageError):
            raise
        hint = "a task wrote it: is the directory on a file system that all hosts share?"
        raise refused(error, "commit", path, path, hint) from None


def _own(error: OSError, action: str, directory: str) -> StorageError:
    return error if isinstance(error, StorageError) else refused(error, action, directory, directory)


def _check(job: Job, schema: Schema, overwrite: bool) -> bytes:
    """See that a job can be expected to be committed; the fingerprint of the files that were looked into."""
    directory = job.directory
    with ExitStack() as opened:
        state = None
        with suppress(FileNotFoundError):
            state = opened.enter_context(opened_directory(os.path.join(directory, STATE), writing=True))
        if state is not None:
            check_replaced(directory, state)
        found = current(directory, state)
        known = fingerprint(directory, found, overwrite)
        check(directory, found, schema, overwrite)
    return known


def _make_folder(job: Job, made: list[str]) -> None:
    """Make the directory of a job, and those that it is in; adds those outside of ``_shmarrow`` to ``made``."""
    path = os.path.join(job.directory, STATE)
    for _ in range(_TRIES):  # others may remove what is empty
        _make_parents(job.directory, made)
        with suppress(FileNotFoundError):
            with suppress(FileExistsError):
                os.mkdir(path)
            with opened_directory(path, writing=True) as state:
                os.mkdir(job.name, dir_fd=state)
                with opened_directory(job.folder, state) as folder:
                    fd = os.open(OWNER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
                    with open(fd, "w", encoding="utf-8") as file:
                        json.dump(driver(), file)
                return
    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


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
