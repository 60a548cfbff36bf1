"""`df.write.format("shmarrow")`: tasks write Arrow files, and one commit makes all of them count.

Invariants:

* what can be refused is refused while Spark plans the write, before a task runs;
* tasks write in the directory of their job only, and never make it. So a task that ends after its job finds no place
  for its file, and leaves nothing;
* a commit moves the files into the directory, replaces the manifest, and removes what it replaced, in this order, under
  the lock. A crash in between leaves files that the manifest does not name; the next commit removes them;
* files have the types of Spark's own Arrow schema, with times in UTC and all fields nullable, whatever the settings of
  the session are, so sessions with other settings can append to them.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from shmarrow import ipc, segment
from shmarrow.batch import record_batch
from shmarrow.column_names import checked_schema
from shmarrow.errors import (
    InvalidArgument,
    InvalidType,
    MissingExtra,
    ObjectNotFound,
    StorageError,
    shown,
)
from shmarrow.ipc import IpcWriteOptions
from shmarrow.ipc.compression import CODECS, Codec
from shmarrow.segment.host import host_name
from shmarrow.segment.location import refused
from shmarrow.spark import _pyspark
from shmarrow.spark.sharing import TARGET_BYTES, rechunked
from shmarrow.spark.source.manifest import PART, STATE, Manifest, locked, opened_state, read_manifest, write_manifest
from shmarrow.spark.source.messages import sendable
from shmarrow.spark.source.options import as_is, checked, flag, local
from shmarrow.spark.types import check_type, nullable
from shmarrow.types import difference

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_CODECS: dict[str, Codec | None] = {"none": None, "uncompressed": None, **CODECS}


class WriteOptions(NamedTuple):
    """Options of a write.

    Attributes
    ----------
    compression : str or None
        The codec of the buffers.
    durable : bool
        Whether files and names are synced to disk before they count.
    transaction : dict of str to int
        The version of an append by its application, which changes nothing if it is not newer than that one's last.
    """

    compression: str | None
    durable: bool
    transaction: dict[str, int]


def _codec(name: str, text: str) -> str | None:
    if text.lower() not in _CODECS:
        raise InvalidArgument(f"option {name!r} must be one of {', '.join(_CODECS)}, found {shown(text)}")
    codec = _CODECS[text.lower()]
    if codec is not None and find_spec(codec.package) is None:
        raise MissingExtra(
            f"option {name!r} is {codec.name}: pip install {codec.package} on the driver and the workers"
        )
    return codec and codec.name


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InvalidArgument(f"option {name!r} must be a whole number, such as the id of a batch, found {shown(text)}")
    return int(text)


_PARSERS = {
    "compression": ("compression", _codec),
    "durable": ("durable", flag),
    "txnAppId": ("application", as_is),
    "txnVersion": ("version", _number),
}
"""The options by the names that Spark's users know, with the attribute that each sets and what reads it."""


@sendable()
def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Writer:
    """Return the writer that Spark sends to its workers; called where Spark plans a write.

    Parameters
    ----------
    options : mapping
        ``path``, and those of :class:`WriteOptions` as texts.
    schema : StructType
        The columns of the DataFrame.
    overwrite : bool
        Whether what is in the directory is replaced.

    Raises
    ------
    InvalidArgument
        If the path or another option makes no sense, the DataFrame has no columns, or the directory has files that
        Spark did not write.
    InvalidType, Unsupported
        If columns have the same name, or a type that cannot be written; or the files in the directory have other
        columns, and are not replaced.
    """
    _pyspark.check_version()
    values, rest = checked(options, _PARSERS)
    application, version = values.get("application"), values.get("version")
    if (application is None) != (version is None):
        raise InvalidArgument("the options 'txnAppId' and 'txnVersion' belong together: give both, or none")
    transaction = {} if application is None or version is None else {application: version}
    given = WriteOptions(values.get("compression"), values.get("durable", False), transaction)
    writer = Writer(_path(rest.get("path")), uuid.uuid4().hex, arrow_schema(schema), overwrite, given)
    writer.begin()
    return writer


def _path(text: str | None) -> str:
    if not text:
        raise InvalidArgument(
            "expected the path of a directory, found none: call save(path), or set the option 'path'; Spark does not "
            "pass the path of a table that CREATE TABLE has made"
        )
    if text.startswith(segment.SHM_SCHEME):
        raise InvalidArgument(
            f"cannot write to {text!r}: it names a store, and Spark writes directories; "
            f"shmarrow.spark.share(df, {text!r}) puts a DataFrame into a store"
        )
    return os.path.abspath(local(text))


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of one task: the name of its file in the directory of the job; None if it had no rows."""

    partition: int
    file: str | None


class Writer(DataSourceArrowWriter):
    """One write of a DataFrame; made by :func:`make_writer`.

    Parameters
    ----------
    directory : str
        What is written to; an absolute path.
    job : str
        32 hexadecimal digits.
    target : pyarrow.Schema
        The schema of the files.
    overwrite : bool
        Whether to replace what counts when the job is committed.
    options : WriteOptions
        How it is written.
    """

    def __init__(self, directory: str, job: str, target: pa.Schema, overwrite: bool, options: WriteOptions) -> None:
        self.directory = directory
        self.job = job
        self.target = target
        self.overwrite = overwrite
        self.options = options

    @property
    def _prefix(self) -> str:
        """The beginning of the names of the folders of all jobs of this one's application."""
        return "".join(["job-", *[f"{sha256(each.encode()).hexdigest()[:16]}-" for each in self.options.transaction]])

    @property
    def folder(self) -> str:
        """The directory in which tasks write."""
        return os.path.join(self.directory, STATE, self._prefix + self.job)

    def begin(self) -> None:
        """Check the directory, and make the folder of the job."""
        if os.path.lexists(self.directory) and not os.path.isdir(self.directory):
            raise InvalidArgument(f"cannot write to {self.directory!r}: expected a directory, found a file")
        self._check(read_manifest(self.directory))
        try:
            with opened_state(self.directory) as state:
                for name in os.listdir(state):
                    if self.options.transaction and name.startswith(self._prefix):
                        shutil.rmtree(name, ignore_errors=True, dir_fd=state)  # its driver was killed in an append
                os.mkdir(os.path.basename(self.folder), dir_fd=state)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise refused(error, "make", self.folder, self.folder) from None

    def _check(self, found: Manifest | None) -> None:
        """Check that the files of the job can be added to those that count, or replace them."""
        if found is None:
            with suppress(FileNotFoundError):
                other = next((name for name in sorted(os.listdir(self.directory)) if name != STATE), None)
                if other is not None:
                    raise InvalidArgument(
                        f"cannot write to {self.directory!r}: it has {other!r}, and no manifest, so Spark did not "
                        "write it; pass an empty or a new directory"
                    )
            return
        if self.overwrite or not found.files:
            return
        with ipc.open_file(os.path.join(self.directory, found.files[0])) as reader:
            known, given = reader.schema, checked_schema(self.target)
        if not known.equals(given):
            raise InvalidType(
                f"cannot append to {self.directory!r}, whose columns are those of {found.files[0]!r}: "
                f"{difference(given, known)}. Nothing was changed: cast or select the columns, or overwrite"
            )

    @sendable()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one partition; runs in a task."""
        context = TaskContext.get()
        assert context is not None  # it runs in a task
        partition, name = context.partitionId(), f"{context.partitionId():05d}-{context.taskAttemptId()}"
        given = (batch.cast(self.target) for batch in iterator)  # offsets, time zones and nullability
        first = next(given, None)
        if first is None:
            return Written(partition, None)
        self._write_file(name, rechunked(first, given, TARGET_BYTES))
        return Written(partition, name)

    def _write_file(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Write one file of the job."""
        path = os.path.join(self.folder, name)
        options = IpcWriteOptions(compression=self.options.compression)
        try:
            sink = segment.create(path, mode=None, overwrite=False, durable=self.options.durable)
            with ipc.new_file(sink, checked_schema(self.target), options) as writer:
                for batch in batches:
                    writer.write_batch(record_batch(batch))
        except ObjectNotFound:
            raise ObjectNotFound(
                errno.ENOENT,
                f"cannot write to {self.directory!r} on host {host_name()!r}: the directory of this job, "
                f"{self.folder!r}, is not there. Either the job has ended without this task, or the path is not on a "
                "file system that all hosts with workers share",
            ) from None

    @sendable()
    def commit(self, messages: list[Any]) -> None:
        """Make the files of the tasks count; runs where Spark planned the write."""
        written = [task.file for task in sorted(messages, key=lambda task: task.partition) if task.file]
        try:
            if not written:  # no rows, and the columns are kept
                self._write_file("empty", ())
                written = ["empty"]
            with locked(self.directory) as state:
                before = read_manifest(self.directory)
                known = {} if before is None else before.transactions
                if any(known.get(name, -1) >= version for name, version in self.options.transaction.items()):
                    return  # it was committed before
                self._check(before)
                if before is None:  # or a crash could leave files that count as there is none
                    before = Manifest()
                    write_manifest(state, before, self.options.durable)
                self._commit(state, before, written)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise refused(error, "commit to", self.directory, self.directory) from None
        finally:
            self.abort([])

    def _commit(self, state: int, before: Manifest, written: Sequence[str]) -> None:
        """Move files into the directory and replace the manifest; under the lock."""
        files = [f"part-{number:05d}-{self.job}.arrow" for number in range(len(written))]
        kept = () if self.overwrite else before.files
        for name, named in zip(written, files, strict=True):
            os.rename(os.path.join(self.folder, name), os.path.join(self.directory, named))
        if self.options.durable:
            segment.files.sync_directory(self.directory)
        after = Manifest((*kept, *files), {**before.transactions, **self.options.transaction})
        write_manifest(state, after, self.options.durable)
        counts = set(after.files)
        for name in os.listdir(self.directory):  # what was replaced, and parts of commits that were interrupted
            if PART.fullmatch(name) and name not in counts:
                with suppress(OSError):
                    os.unlink(os.path.join(self.directory, name))

    @sendable()
    def abort(self, messages: list[Any]) -> None:
        """Remove the uncommitted files of the tasks."""
        shutil.rmtree(self.folder, ignore_errors=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of the files for a DataFrame's.

    Raises
    ------
    InvalidArgument
        If there are no columns.
    InvalidType, Unsupported
        If columns have the same name, or a type that cannot be written.
    """
    if not schema.fields:
        raise InvalidArgument(
            "cannot write a DataFrame without columns: Spark does not tell its tasks how many rows it has; add a column"
        )
    check_type(schema, "the DataFrame")
    return _pyspark.arrow_schema(nullable(schema))
