# SPDX-License-Identifier: Apache-2.0
"""Files as the partitions of jobs: Python functions read them in Spark's workers, and their rows never enter the JVM.

Invariants:

* what a job reads was decided when :func:`files` returned: the files, and their sizes and times. Each task gets the
  names of its parts, so whatever is repeated gives the same rows, in any session;
* a file that was changed or removed since is an error that names it;
* Arrow files are those of :func:`shmarrow.scan`, mapped where they are used; Parquet files are read by pyarrow.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from shmarrow.columns import Table, checked_schema, several
from shmarrow.columns.table import table
from shmarrow.errors import InvalidData, InvalidType, ObjectNotFound, StorageError, optional
from shmarrow.scans.keys import key_values
from shmarrow.scans.one_table import Scan, scan
from shmarrow.scans.sources import Fragment, find
from shmarrow.spark._pyspark import parallelism
from shmarrow.spark.frame import Partitioned, SharedFrame
from shmarrow.spark.jobs import LARGEST, session_for, tasks_of
from shmarrow.spark.partitions import Target, handle_column, published, run, stored
from shmarrow.types import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shmarrow.memory import Location
    from shmarrow.store import Store

_PARQUET = (".parquet", ".pq")


class FileTask(NamedTuple):
    """What the tasks of a job over files read: for each task its splits, and the columns of all."""

    splits: tuple[tuple[Any, ...], ...]
    schema: Schema

    def __len__(self) -> int:
        return len(self.splits)

    def tables(self, batches: Iterator[Any]) -> Iterator[tuple[int, list[Table]]]:
        """Yield the number of a task, and the rows of its splits as one table."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                read = [split.batches() if isinstance(split, _ParquetSplit) else split for split in self.splits[number]]
                yield number, [Table(self.schema, list(chain.from_iterable(read)))]


class FileSet(Partitioned):
    """Files that the tasks of Spark's jobs read in Python; returned by :func:`files`.

    Attributes
    ----------
    schema : Schema
        The columns that are read.
    num_partitions : int
        Number of tasks of a job over them.
    """

    _kind = "files"

    def __init__(self, source: Scan | _ParquetScan, spark: SparkSession) -> None:
        self.schema = source.schema
        self._source = source
        self._spark, self._pid = spark, os.getpid()
        tasks = parallelism(spark)
        splits = source.plan(max_bytes=LARGEST, tasks=tasks)
        self._task = FileTask(tuple(tasks_of(splits, tasks)), self.schema)

    @property
    def num_partitions(self) -> int:
        return len(self._task)

    @property
    def num_rows(self) -> int:
        """Number of rows: from the footers of files, or if there are filters or streams, from the columns needed."""
        return self._source.count_rows()

    def share(
        self,
        store: Location | Store | None = None,
        *,
        name: str | None = None,
        keep: float | None = None,
        spark: SparkSession | None = None,
    ) -> SharedFrame:
        """Put the rows of each task into shared memory, as :func:`share` does with those of a DataFrame.

        Parameters, returned frame and errors are those of :func:`share`. It is for files whose reading takes work:
        compressed ones, Parquet, filters; others are mapped by all processes anyway.
        """
        from shmarrow.spark.sharing import named

        session = self._session(spark, store, "share(name=...)")

        def publish(target: Target) -> SharedFrame:
            rows = self._run(session, partial(stored, target), handle_column())
            return SharedFrame.of(published(rows, target, lambda: self.schema), target, None, self.num_partitions)

        return named(publish, session, store, name, keep)

    def _run(self, spark: SparkSession, task: Callable[..., Any], struct: StructType, *beside: Self) -> DataFrame:
        return run(self._task, spark, None, task, struct)

    def __repr__(self) -> str:
        return f"<FileSet of {len(self.schema)} columns, {self.num_partitions} partitions>"


def files(
    source: Any,
    *,
    columns: Iterable[int | str] | None = None,
    filters: Any = None,
    schema: Any = None,
    spark: SparkSession | None = None,
) -> FileSet:
    """Plan a read of files by Python functions in Spark's workers: no row passes through the JVM.

    Parameters
    ----------
    source : path, pattern, directory, Store or list of these
        Arrow files, streams and objects as :func:`shmarrow.scan` takes them, or Parquet files, whose names end with
        ``.parquet``. Directories such as ``day=2024-01-01`` are columns. All workers must see them under these names.
    columns : iterable of int or str, optional
        Positions or names of the columns to read, by default all.
    filters : list, optional
        The rows to read, as for :func:`shmarrow.scan`: ``[("day", ">=", 3), ("city", "in", ["Oslo"])]``, or a list of
        such lists as alternatives. Directories, batches and row groups that cannot have such rows are not read.
    schema : Schema, optional
        The columns and types of the whole, by default those of the first file.
    spark : SparkSession, optional
        The session of its jobs, by default the active one. When it has stopped, jobs use the active one.

    Returns
    -------
    FileSet
        Has ``map``, as a shared frame has, ``share``, ``to_df``, ``num_rows``, ``num_partitions`` and ``schema``.

    Raises
    ------
    ObjectNotFound
        If there are no such files.
    InvalidType
        If the source is a table in memory, which :func:`share_table` takes.
    FieldNotFound, InvalidArgument, InvalidData
        As for :func:`shmarrow.scan`.
    MissingExtra
        If pyarrow is needed for Parquet and not installed.

    Notes
    -----
    Each task reads record batches or row groups of up to 64 MiB, or less to occupy all cores. If a file is replaced or
    changed later, jobs fail with an error that names it; call ``files`` again.
    """
    session = session_for(spark, "files(source)", source)
    fragments = find(source)
    if any(not isinstance(fragment.where, str) for fragment in fragments):
        raise InvalidType(
            "files reads what all workers see by its name, found a table", hint="share_table(data) takes it"
        )
    if any(_is_parquet(fragment) for fragment in fragments):
        return FileSet(_ParquetScan(fragments, columns, filters, schema), session)
    return FileSet(scan(source, columns=columns, filters=filters, schema=schema), session)


# --- Parquet ------------------------------------------------------------------------------------------------------


def _is_parquet(fragment: Fragment) -> bool:
    return fragment.store is None and fragment.where.lower().endswith(_PARQUET)


class _ParquetScan:
    """Parquet files as one table, with what :class:`FileSet` needs of a :class:`Scan`."""

    def __init__(self, fragments: Sequence[Fragment], columns: Any, filters: Any, schema: Any) -> None:
        pa, dataset, parquet = map(optional, ("pyarrow", "pyarrow.dataset", "pyarrow.parquet"))
        other = next((fragment for fragment in fragments if not _is_parquet(fragment)), None)
        if other is not None:
            raise InvalidData(f"{other} is among Parquet files, and its name does not end with .parquet")
        names = dict.fromkeys(name for fragment in fragments for name, _ in fragment.keys)
        types = {name: key_values([dict(one.keys).get(name) for one in fragments]).type for name in names}
        directories = pa.schema([(name, type.to_pyarrow()) for name, type in types.items()])
        self._versions = {fragment.where: _version(fragment.where) for fragment in fragments}
        with _pyarrow_errors("Parquet files"):
            self._dataset = dataset.dataset(
                list(self._versions),
                None if schema is None else checked_schema(schema).to_pyarrow(),
                format="parquet",
                partitioning=dataset.partitioning(directories, flavor="hive") if types else None,
            )
            self._filter = None if filters is None else parquet.filters_to_expression(filters)
        whole = checked_schema(self._dataset.schema)
        chosen = range(len(whole)) if columns is None else several(columns, "positions and names")
        fields = [whole.field(whole.index_of(key)) for key in chosen]
        self.schema = Schema(fields)
        self._options = {
            "schema": self._dataset.schema,
            "columns": self.schema.names,
            "filter": self._filter,
        }

    def plan(self, **unused: Any) -> list[_ParquetSplit]:
        """Return a split for each row group that may have rows."""
        with _pyarrow_errors("Parquet files"):
            parts = [
                part
                for whole in self._dataset.get_fragments(self._filter)
                for part in whole.split_by_row_group(self._filter, self._dataset.schema)
            ]
        return [
            _ParquetSplit(part, self._options, part.row_groups[0].total_byte_size, self._versions[part.path])
            for part in parts
        ]

    def count_rows(self) -> int:
        """Return the number of rows, from footers if there is no filter."""
        with _pyarrow_errors("Parquet files"):
            count: int = self._dataset.count_rows(filter=self._filter)
        for path, version in self._versions.items():
            _check_version(path, version)
        return count


class _ParquetSplit(NamedTuple):
    """A row group of a Parquet file: pyarrow's fragment, how it is read, its size, and the version of the file."""

    part: Any
    options: dict[str, Any]
    nbytes: int
    version: tuple[int, int]

    def batches(self) -> Sequence[Any]:
        """Read it; the file has to be what it was before and afterwards."""
        path = self.part.path
        _check_version(path, self.version)
        with _pyarrow_errors(path):
            rows = self.part.to_table(**self.options)
        _check_version(path, self.version)
        return table(rows).batches


def _version(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _check_version(path: str, version: tuple[int, int]) -> None:
    try:
        now = _version(path)
    except FileNotFoundError:
        raise ObjectNotFound(errno.ENOENT, f"{path} is gone since the files were planned") from None
    if now != version:
        raise StorageError(errno.ESTALE, f"{path} was changed since the files were planned", hint="call files() again")


@contextmanager
def _pyarrow_errors(where: str) -> Iterator[None]:
    """Raise errors of pyarrow as ours."""
    try:
        yield
    except (optional("pyarrow").ArrowException, OSError, ValueError, TypeError) as error:
        raise InvalidData(f"{where}: {error}") from error
