"""Sharing a DataFrame: each partition becomes one Arrow file in shared memory, and its handle travels back.

Rules kept here:

* an attempt of a task writes under a name that no other attempt has, so retried and speculative tasks never meet, and
  Spark returns the row of one attempt for each partition. What the others published stands under the same prefix;
* a frame stands for as long as the empty object with its prefix as name. Releasing removes that first, then all names
  under the prefix; a worker that publishes looks for it afterwards, and takes its object back when it is gone. So
  nothing is left over, whichever comes first, also of a job that failed or was cancelled;
* Spark's batches, 10,000 rows each, are put together before they are written: that is the one copy in a worker.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shmarrow import errors, ipc, segment
from shmarrow.batch import RecordBatch
from shmarrow.errors import (
    InvalidArgument,
    InvalidType,
    ObjectExists,
    ObjectNotFound,
    ShmarrowError,
    StorageError,
    StoreFull,
)
from shmarrow.interchange.pyarrow import partner, schema_from_pyarrow
from shmarrow.ipc import RecordBatchFileReader
from shmarrow.segment.host import boot_id, host_name
from shmarrow.spark.handle import MANIFEST, Handle
from shmarrow.tables import Table
from shmarrow.types import DataType, Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterator[pa.RecordBatch]

TARGET_BYTES = 64 << 20
ERRNOS = {ObjectNotFound: errno.ENOENT, ObjectExists: errno.EEXIST, StoreFull: errno.ENOSPC}


def share(
    df: DataFrame,
    prefix: str | os.PathLike[str] = "shm:spark",
    *,
    function: Callable[[Batches], Iterable[pa.RecordBatch]] | None = None,
    target_bytes: int = TARGET_BYTES,
    mode: int = 0o400,
) -> SharedFrame:
    """Put the partitions of a DataFrame into shared memory, from the Python workers that have them.

    Parameters
    ----------
    df : DataFrame
        What to share. Each of its partitions that has rows becomes one Arrow file.
    prefix : str or PathLike
        How the names of the objects begin: ``shm:NAME``, or a path. What follows is unique to this call.
    function : callable, optional
        Applied to the batches of a partition before they are shared, as with ``mapInArrow``: it takes an iterator of
        ``pyarrow.RecordBatch`` and gives another. What it gives never passes through Spark, so it may have types that
        Spark has not, dictionaries among them.
    target_bytes : int
        Batches of a partition are put together as long as they have no more bytes than this.
    mode : int
        Permissions of the objects; ``0o444`` lets readers of other users attach.

    Returns
    -------
    SharedFrame
        The handles. The objects stay until it is released, whatever becomes of Spark.

    Raises
    ------
    InvalidType
        If ``function`` gives other columns in one partition than in another.
    ShmarrowError
        If a worker raised it and the job failed for it, such as StoreFull; nothing is left in memory then.
    PySparkException
        If the job failed for another reason; nothing is left in memory then either.
    """
    if target_bytes < 1:
        raise InvalidArgument(f"target_bytes is at least 1, found {target_bytes}")
    text = os.fspath(prefix)
    if not text.startswith(segment.SHM_SCHEME):
        text = os.path.abspath(text)  # workers may run in another folder
    unique = f"{text}-{os.urandom(4).hex()}"
    with segment.create(unique, mode=mode):
        pass
    try:
        task = Task(unique, function, target_bytes, mode, boot_id())
        rows = df.mapInArrow(task, f"{MANIFEST}, schema binary").collect()
        schemas = {bytes(row["schema"]) for row in rows}
        if len(schemas) > 1:
            raise InvalidType(f"the partitions have {len(schemas)} different schemas, expected one for all")
        schema = _read_schema(schemas.pop()) if schemas else _schema_without_rows(df, function)
        handles = [Handle(*[row[field.name] for field in fields(Handle)]) for row in rows]
        return SharedFrame(unique, schema, handles)
    except BaseException as error:
        remove(unique)
        own = _raised_in_worker(error)
        if own is None:
            raise
        raise own from error


class SharedFrame:
    """The handles of one shared DataFrame; made by :func:`share`. As a context manager it releases at the end.

    It can be pickled, and attached to wherever its handles can.

    Attributes
    ----------
    prefix : str
        What the names of all its objects begin with.
    schema : Schema
        The schema of all partitions.
    handles : tuple of Handle
        One for each partition that has rows, in the order of the partitions.
    """

    def __init__(self, prefix: str, schema: Schema, handles: Iterable[Handle]) -> None:
        self.prefix = prefix
        self.schema = schema
        self.handles = tuple(sorted(handles, key=lambda handle: handle.partition))

    @property
    def num_rows(self) -> int:
        """Rows in all partitions."""
        return sum(handle.num_rows for handle in self.handles)

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(handle.size for handle in self.handles)

    def attach(self, index: int) -> RecordBatchFileReader:
        """Open one of the handles' objects; see :meth:`Handle.attach`."""
        return self.handles[index].attach()

    def read_all(self) -> Table:
        """All partitions as one table over the shared memory; copies nothing."""
        return Table(self.schema, [batch for handle in self.handles for batch in handle.attach()])

    def map(self, spark: SparkSession, function: Callable[[Table], Any], schema: str) -> DataFrame:
        """Run a function on each partition in another Spark job, whose workers attach to the shared memory.

        Parameters
        ----------
        spark : SparkSession
            A session whose workers run on the host that has the objects.
        function : callable
            Takes a :class:`Table` over the shared memory; gives a RecordBatch or Table, shmarrow's or pyarrow's.
        schema : str
            Names and Spark types of the columns that it gives, as ``"city string, trips long"``.

        Returns
        -------
        DataFrame
            What the function gave for all partitions; as always with Spark, computed when it is asked for.
        """
        empty = spark.createDataFrame([], schema)
        count = len(self.handles)
        if not count:
            return empty
        task = partial(_map_partition, self.handles, function, empty.toArrow().schema)
        return spark.range(0, count, 1, count).mapInArrow(task, schema)

    def release(self) -> None:
        """Remove all objects, those of failed attempts too. Who has one attached keeps it. Safe to call again.

        Raises
        ------
        StorageError
            If some lie on other hosts; what lies here is removed all the same.
        """
        remove(self.prefix)
        elsewhere = sorted({handle.host for handle in self.handles if not handle.is_here})
        if elsewhere:
            raise StorageError(
                errno.EREMOTE,
                f"objects under {self.prefix!r} lie in the memory of {len(elsewhere)} other hosts, "
                f"{', '.join(elsewhere)}: call shmarrow.spark.remove({self.prefix!r}) there",
            )

    def __len__(self) -> int:
        return len(self.handles)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<SharedFrame {self.prefix!r}, {len(self)} partitions, {self.num_rows} rows, {self.size} bytes>"


def remove(prefix: str) -> None:
    """Remove from this host what was shared under a prefix, for when no frame is left that could release it.

    Parameters
    ----------
    prefix : str
        :attr:`SharedFrame.prefix`; or what :func:`share` was given, for all frames that ever began with it.
    """
    with suppress(ObjectNotFound):
        segment.unlink(prefix)
    in_memory = prefix.startswith(segment.SHM_SCHEME)
    directory, base = os.path.split(prefix)
    if in_memory:
        directory, base = segment.SHM_DIRECTORY, prefix.removeprefix(segment.SHM_SCHEME)
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = os.listdir(directory)
    for name in names:
        if name.startswith(f"{base}-"):
            with suppress(ObjectNotFound):
                segment.unlink(f"{segment.SHM_SCHEME}{name}" if in_memory else os.path.join(directory, name))


# --- in Spark's workers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What a worker does with a partition: writes it, and gives one row about it."""

    prefix: str
    function: Callable[[Batches], Iterable[pa.RecordBatch]] | None
    target_bytes: int
    mode: int
    driver_boot: str

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # it runs in a task
        partition, attempt = context.partitionId(), context.taskAttemptId()
        given = iter(batches if self.function is None else self.function(batches))
        first = next(given, None)
        if first is None:
            return
        name = f"{self.prefix}-{partition:05d}-{attempt}"
        rows, count, size = self._write(name, first, given)
        self._check_wanted(name)
        handle = Handle(name, rows, count, size, partition, attempt, os.getpid(), host_name(), boot_id())
        pa = partner()
        values = [*astuple(handle), first.schema.serialize().to_pybytes()]
        names = [*[field.name for field in fields(Handle)], "schema"]
        yield pa.RecordBatch.from_arrays([pa.array([value]) for value in values], names)

    def _write(self, name: str, first: pa.RecordBatch, rest: Batches) -> tuple[int, int, int]:
        """Write and publish the object; rows, batches and bytes."""
        rows = count = 0
        sink = segment.create(name, mode=self.mode)
        with ipc.new_file(sink, schema_from_pyarrow(first.schema)) as writer:
            for batch in rechunked(first, rest, self.target_bytes):
                writer.write_batch(RecordBatch.from_pyarrow(batch))
                rows, count = rows + batch.num_rows, count + 1
        return rows, count, sink.size

    def _check_wanted(self, name: str) -> None:
        """Take a published object back when the frame was released in the meantime."""
        if name.startswith(segment.SHM_SCHEME) and self.driver_boot != boot_id():
            return  # the object that stands for the frame is on the driver's host
        try:
            segment.attach(self.prefix).close()
        except ObjectNotFound:
            with suppress(ObjectNotFound):
                segment.unlink(name)
            raise ObjectNotFound(
                errno.ENOENT, f"cannot share {name!r}: its job failed, or was cancelled or released, in the meantime"
            ) from None


def rechunked(first: pa.RecordBatch, rest: Batches, target_bytes: int) -> Batches:
    """The rows of batches of one schema, in batches of at most ``target_bytes`` where none had more before."""
    batches = _chain(first, rest)
    if any(_has_dictionary(field.type) for field in schema_from_pyarrow(first.schema)):
        # A file has one dictionary for each column, so all batches of the partition have to be seen first.
        batches = iter(partner().Table.from_batches(batches).unify_dictionaries().to_batches())
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > target_bytes:
            yield from _combined(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield from _combined(held)


def _chain(first: pa.RecordBatch, rest: Batches) -> Batches:
    yield first
    yield from rest


def _combined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch, or as few as the offsets of its types reach."""
    if len(batches) == 1:
        return list(batches)
    return list(partner().Table.from_batches(batches).combine_chunks().to_batches())


def _has_dictionary(type: DataType) -> bool:
    return type.layout == "dictionary" or any(_has_dictionary(field.type) for field in type.fields)


def _map_partition(
    handles: Sequence[Handle], function: Callable[[Table], Any], schema: pa.Schema, batches: Batches
) -> Batches:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            with handles[index].attach() as reader:
                yield from _spark_batches(function(reader.read_all()), schema)


def _spark_batches(found: Any, schema: pa.Schema) -> list[pa.RecordBatch]:
    """What a user's function gave, with the types that Spark was told."""
    pa = partner()
    if isinstance(found, (RecordBatch, Table)):
        found = found.to_pyarrow()
    if not isinstance(found, (pa.RecordBatch, pa.Table)):
        raise InvalidType(f"the function must give a RecordBatch or a Table, found {found.__class__.__name__}")
    table = found if isinstance(found, pa.Table) else pa.Table.from_batches([found])
    try:
        return list(table.select(schema.names).cast(schema).to_batches())
    except (KeyError, ValueError) as error:
        shown = f"({_columns(table.schema)}), expected ({_columns(schema)})"
        raise InvalidType(f"the function gave {shown}: {error}") from None


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


# --- on the driver ----------------------------------------------------------------------------------------------


def _raised_in_worker(error: BaseException) -> ShmarrowError | None:
    """The error of ours that made a Spark job fail; Spark has no more of it than the text of its traceback."""
    found = re.search(r"^shmarrow\.errors\.(\w+): (.*)", str(error), re.MULTILINE)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, ShmarrowError)):
        return None
    return kind(ERRNOS[kind], found[2]) if kind in ERRNOS else kind(found[2])


def _read_schema(raw: bytes) -> Schema:
    pa = partner()
    return schema_from_pyarrow(pa.ipc.read_schema(pa.py_buffer(raw)))


def _schema_without_rows(df: DataFrame, function: Callable[[Batches], Iterable[pa.RecordBatch]] | None) -> Schema:
    """The schema of a DataFrame that has no rows, as a worker would have had it from its first batch."""
    from pyspark.sql.pandas.types import to_arrow_schema

    settings = df.sparkSession.conf
    schema = to_arrow_schema(
        df.schema,
        timezone=settings.get("spark.sql.session.timeZone"),
        prefers_large_types=settings.get("spark.sql.execution.arrow.useLargeVarTypes") == "true",
    )
    if function is not None:
        empty = partner().RecordBatch.from_pylist([], schema)
        schema = next((batch.schema for batch in function(iter([empty]))), schema)
    return schema_from_pyarrow(schema)
