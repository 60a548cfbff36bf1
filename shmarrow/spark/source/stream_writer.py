"""`df.writeStream.format("shmarrow")`: each batch of a stream is a directory that appears as a whole.

| in the directory | what it is |
| --- | --- |
| ``batch=7/part-00000-<query>.arrow`` | a file of batch 7 of a query |
| ``_temporary/batch=7/`` | what tasks have written of batch 7 so far, also those of a query that was killed |
| ``_temporary/batch=7/whole/`` | the files of batch 7, which its commit collects, and renames as a whole |

Invariants:

* a batch that is there stays as it is: after a restart, Spark repeats the last one, and its rows are there;
* a batch of another query is an error. A query whose checkpoint was removed begins again with batch 0, and its rows
  would be taken for those of the earlier one;
* a batch without rows leaves nothing.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from shmarrow.errors import InvalidArgument, StorageError
from shmarrow.spark import _pyspark
from shmarrow.spark.source.messages import sendable
from shmarrow.spark.source.writer import Files, Written, make_directory, writing_to

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class WrittenInStream(Written):
    """What a task of a stream has written.

    Attributes
    ----------
    query : str
        The id of the query.
    """

    query: str


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
            self.files = Files(given, schema)
            for name in schema.names:
                if name.lower() == "batch":
                    raise InvalidArgument(
                        f"cannot write the column {name!r} of a stream: the directories of its batches give a column "
                        "'batch'; rename it"
                    )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenInStream:
        """Write the rows of one partition; runs in a task."""
        context = TaskContext.get()
        assert context is not None  # it runs in a task
        with writing_to(self.files.directory):
            query, number = _pyspark.stream_batch()
            folder = self.files.temporary(f"batch={number}")
            make_directory(folder)
            return WrittenInStream(context.partitionId(), self.files.write_rows(folder, iterator), query)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Give a batch its name; runs where Spark plans the query."""
        name = f"batch={batchId}"
        with writing_to(self.files.directory):
            written = [task for task in messages if task is not None and task.path is not None]
            if batchId == 0 and not self.overwrite:
                self._check_first(name)
            if written and not self._is_there(name, written[0].query):
                whole = os.path.join(self.files.temporary(name), "whole")
                shutil.rmtree(whole, ignore_errors=True)
                os.mkdir(whole)
                for task in written:
                    os.rename(task.path, os.path.join(whole, task.name(task.query)))
                os.rename(whole, os.path.join(self.files.directory, name))
            if self.overwrite:
                self.files.clear([name])
            self.files.discard(name)

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
        other = next((name for name in os.listdir(path) if query not in name), None)
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
        self.files.discard(f"batch={batchId}")
