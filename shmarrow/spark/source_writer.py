# SPDX-License-Identifier: Apache-2.0
"""Writing directories of Arrow files: each job, and each batch of a stream, is a directory that appears by one rename.

| in the directory | what it is |
| --- | --- |
| ``job-<job>/part-00000-<job>.arrow`` | a file of a job of `df.write`; jobs have the order in which they were planned |
| ``batch=7/part-00000-<query>.arrow`` | a file of batch 7 of a query of `df.writeStream` |
| ``job-<job>/_replaces`` | what this overwrite replaces and has not removed yet: readers leave it out |
| ``_temporary/<job>/`` or ``batch=7/`` | what tasks have written so far, also those of a driver that was killed |
| ``_temporary/<job>/whole/`` | the files of a job, which its commit collects, and renames as a whole |
| ``_SUCCESS`` | a job was committed, and none is replacing the files |

Invariants:

* what can be refused is refused while Spark plans the write, before a task runs;
* each attempt of a task writes a file of its own, and a commit takes the files that Spark names, and no others;
* an overwrite replaces what was there when it was planned, and nothing else: what others commit meanwhile stays;
* readers see all that a job does or nothing of it, wherever its driver is killed;
* files have the types of Spark's own Arrow schema, with times in UTC and all fields nullable, whatever the settings of
  the session are.

Of streams:

* a batch that is there stays as it is: after a restart, Spark repeats the last one, and its rows are there;
* a batch of another query is an error. A query whose checkpoint was removed begins again with batch 0, and its rows
  would be taken for those of the earlier one;
* a batch without rows leaves nothing.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from shmarrow import ipc
from shmarrow.columns import checked_schema, record_batch
from shmarrow.errors import (
    InvalidArgument,
    InvalidType,
    ObjectNotFound,
    StorageError,
    Unsupported,
    at,
    shown,
)
from shmarrow.ipc import IpcWriteOptions
from shmarrow.ipc.file.statistics import Collector
from shmarrow.memory import host_name, is_shm, refused
from shmarrow.scans import jobs
from shmarrow.scans.sources import found_with_schema, is_visible
from shmarrow.spark import _pyspark
from shmarrow.spark.jobs import sendable
from shmarrow.spark.sharing import TARGET_BYTES, rechunked
from shmarrow.spark.source_reader import check_options, local, names
from shmarrow.spark.types import check_type, nullable, spark_struct
from shmarrow.store.protocol import CONTROL

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class TaskFiles(WriterCommitMessage):
    """What a task has written.

    Attributes
    ----------
    partition : int
        The number of the partition.
    path : str or None
        Its file; None if it had no rows.
    whose : str
        The job, or the query of a stream.
    """

    partition: int
    path: str | None
    whose: str

    @property
    def name(self) -> str:
        """The name of the file once it is committed."""
        return f"part-{self.partition:05d}-{self.whose}.arrow"


class Files:
    """The files of one write; pickled into its tasks.

    Parameters
    ----------
    given : mapping
        The options of the write, as Spark passes them.
    schema : StructType
        The columns of the DataFrame.
    call : str
        ``"write"`` or ``"writeStream"``.

    Raises
    ------
    InvalidArgument
        If the path or another option makes no sense, or the DataFrame has no columns.
    FieldNotFound
        If there is no column to have statistics.
    InvalidType, Unsupported
        If columns have the same name, or a type that cannot be written.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, call: str) -> None:
        _pyspark.check_version()
        check_options(given, call)
        self.directory = _directory(given.get("path"))
        codec = given.get("compression", "none").lower()
        self.options = IpcWriteOptions(None if codec in ("none", "uncompressed") else codec)
        said = given.get("statistics", "false")
        self.statistics = {"true": True, "false": False}.get(said.lower(), names(said))
        if not schema.fields:
            raise InvalidArgument(
                "cannot write a DataFrame without columns: Spark does not tell its tasks how many rows it has; add a "
                "column"
            )
        check_type(schema, "the DataFrame")
        self.schema = checked_schema(_pyspark.arrow_schema(nullable(schema)))
        Collector(self.schema, self.statistics)  # raises if a column cannot have them

    def temporary(self, name: str) -> str:
        """The directory in which tasks write."""
        return jobs.temporary(self.directory, name)

    def write_rows(self, folder: str, iterator: Iterator[pa.RecordBatch], partition: int, whose: str) -> TaskFiles:
        """Write the rows of a task, if it has any, into a file of its own."""
        first = next(iterator, None)
        batches = iter(()) if first is None else rechunked(first, iterator, TARGET_BYTES)
        first = next(batches, None)
        path = None if first is None else self.write(folder, chain([first], batches))
        return TaskFiles(partition, path, whose)

    def write(self, folder: str, batches: Iterable[pa.RecordBatch]) -> str:
        """Write a file, and return its path."""
        path = os.path.join(folder, f"{uuid.uuid4()}.arrow")
        try:
            with ipc.new_file(path, self.schema, self.options, statistics=self.statistics) as writer:
                for batch in batches:
                    writer.write_batch(record_batch(batch).cast(self.schema))  # offsets, time zones and nullability
        except ObjectNotFound:
            raise ObjectNotFound(
                errno.ENOENT,
                f"cannot write to {self.directory!r} on host {host_name()!r}: the directory of this job, {folder!r}, "
                "is not there. Either the job has ended without this task, or the path is not on a file system that "
                "all hosts with workers share",
            ) from None
        return path

    def commit(self, work: str, name: str, written: Iterable[TaskFiles]) -> None:
        """Make the files of tasks a directory of this name."""
        whole = os.path.join(self.temporary(work), "whole")
        shutil.rmtree(whole, ignore_errors=True)
        os.mkdir(whole)
        for task in written:
            if task.path is not None:
                os.rename(task.path, os.path.join(whole, task.name))
        jobs.publish(self.directory, work, name, whole)


def _directory(text: str | None) -> str:
    if not text:
        raise InvalidArgument(
            "expected the path of a directory, found none: call save(path), or set the option 'path'; Spark does not "
            "pass the path of a table that CREATE TABLE has made"
        )
    path = local(text)
    if is_shm(path) or os.path.isfile(os.path.join(path, CONTROL)):
        raise InvalidArgument(
            f"cannot write to {text!r}: it is a store, and Spark writes directories; shmarrow.spark.share(df) puts a "
            "DataFrame into a store"
        )
    if ":/" in path:
        raise InvalidArgument(f"cannot write to {text!r}: only directories of mounted file systems can be written")
    if os.path.lexists(path) and not os.path.isdir(path):
        raise InvalidArgument(f"cannot write to {path!r}: expected a directory, found a file")
    return path


class writing_to(sendable):
    """Within the block, turn the errors of the operating system into ours, and give messages that can be sent."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            error = refused(error, "write to", self.directory, self.directory)
        super().__exit__(kind, error, trace)


# --- one job ----------------------------------------------------------------------------------------------------


class JobWriter(DataSourceArrowWriter):
    """One write of a DataFrame.

    Parameters
    ----------
    given, schema
        As for :class:`Files`, whose errors it raises.
    overwrite : bool
        Whether what is in the directory is replaced.

    Raises
    ------
    InvalidType
        If the files that are there have other columns, and are not replaced.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.job = jobs.new_job()
        self.overwrite = overwrite
        with sendable():
            self.files = Files(given, schema, "write")
        with writing_to(self.files.directory):
            if not overwrite and os.path.isdir(self.files.directory):
                _check_append(self.files)
            jobs.begin(self.files.directory, self.job)
            if overwrite:
                jobs.plan_overwrite(self.files.directory, self.job, self.name)

    @property
    def name(self) -> str:
        """The name of the directory of this job."""
        return f"job-{self.job}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        """Write the rows of one partition; runs in a task."""
        with writing_to(self.files.directory):
            return self.files.write_rows(self.files.temporary(self.job), iterator, _pyspark.task()[0], self.job)

    def commit(self, messages: Sequence[Any]) -> None:
        """Give the files of the tasks a directory; runs where Spark planned the write."""
        with writing_to(self.files.directory):
            written = [task for task in messages if task is not None and task.path is not None]
            if not written:  # no rows, and the columns are kept
                written = [TaskFiles(0, self.files.write(self.files.temporary(self.job), ()), self.job)]
            success = os.path.join(self.files.directory, "_SUCCESS")
            if self.overwrite:
                with suppress(FileNotFoundError):
                    os.unlink(success)
            self.files.commit(self.job, self.name, written)
            jobs.remove_replaced(self.files.directory)
            made = os.path.join(self.files.temporary(self.job), "_SUCCESS")
            with open(made, "wb"):
                pass
            os.rename(made, success)  # replaces a link that others have put there, and does not follow it
            jobs.discard(self.files.directory, self.job)

    def abort(self, messages: Sequence[Any]) -> None:
        """Remove the files of the tasks."""
        jobs.discard(self.files.directory, self.job)


def _check_append(files: Files) -> None:
    """Check that files can be read together with those that are there: with equal columns, in any order."""
    there, first = found_with_schema(files.directory)
    if first is None:
        return
    with at(str(there[0])):
        before = spark_struct(first)
    given = spark_struct(files.schema)
    keys = sorted({name for fragment in there for name, _ in fragment.keys})
    if keys:
        raise InvalidType(
            f"cannot append to {files.directory!r}, where the names of directories give the column {shown(keys[0])}: "
            f"append to one of these directories, such as {os.path.dirname(str(there[0]))!r}"
        )
    known, mine = [{field.name: field.dataType for field in struct} for struct in (before, given)]
    if known != mine:
        raise InvalidType(
            f"cannot append to {files.directory!r}, where {str(there[0])!r} has {before.simpleString()}: the DataFrame "
            f"has {given.simpleString()}. Nothing was changed: cast or select the columns, or overwrite"
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; Spark makes one for the tasks of each batch, and another to commit it.

    Parameters
    ----------
    given, schema
        As for :class:`Files`, whose errors it raises.
    overwrite : bool
        Whether each batch replaces all earlier ones, as with the output mode "complete".
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.overwrite = overwrite
        with sendable():
            self.files = Files(given, schema, "writeStream")
            for name in schema.names:
                if name.lower() == "batch":
                    raise InvalidArgument(
                        f"cannot write the column {name!r} of a stream: the directories of its batches give a column "
                        "'batch'; rename it"
                    )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        """Write the rows of one partition; runs in a task."""
        with writing_to(self.files.directory):
            partition, query, number = _pyspark.task()
            if query is None or number is None:
                raise Unsupported(
                    "this version of Spark does not tell its tasks which batch of which stream they write"
                )
            folder = jobs.begin(self.files.directory, f"batch={number}")
            return self.files.write_rows(folder, iterator, partition, query)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Give a batch its name; runs where Spark plans the query."""
        name = f"batch={batchId}"
        with writing_to(self.files.directory):
            tasks = [task for task in messages if task is not None]
            has_rows = any(task.path is not None for task in tasks)
            if batchId == 0 and not self.overwrite:
                self._check_first(name)
            if (has_rows or self.overwrite) and not self._is_there(name, tasks[0].whose if tasks else ""):
                jobs.begin(self.files.directory, name)
                if self.overwrite:
                    jobs.plan_overwrite(self.files.directory, name, name)
                self.files.commit(name, name, tasks)
            jobs.remove_replaced(self.files.directory)
            jobs.discard(self.files.directory, name)

    def _check_first(self, name: str) -> None:
        """Check that there are no later batches before the first is committed; they are of another query."""
        for other in glob("batch=*", root_dir=self.files.directory):
            if other != name:
                raise self._of_another(self.files.directory, other)

    def _is_there(self, name: str, query: str) -> bool:
        """Whether the query has committed the batch before."""
        path = os.path.join(self.files.directory, name)
        if not os.path.isdir(path):
            return False
        other = next((name for name in os.listdir(path) if is_visible(name) and query not in name), None)
        if other is not None:
            raise self._of_another(path, other)
        return True

    def _of_another(self, path: str, other: str) -> StorageError:
        return StorageError(
            errno.EEXIST,
            f"{path!r} has {other!r}, which is not of this query: a query whose checkpoint was removed begins with "
            "batch 0 again",
            hint="write to another directory, or remove this one",
        )

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Remove what tasks have written of a batch."""
        jobs.discard(self.files.directory, f"batch={batchId}")
