"""`df.write.format("shmarrow")`: tasks write Arrow files, and one commit makes all of them count.

Invariants:

* what can be refused is refused while Spark plans the write, before a task runs;
* a file is written batch by batch, and no batch is much larger than the option ``batchBytes``; a file has no name until
  it is whole, so a task that is killed leaves nothing;
* files have the types of Spark's own Arrow schema, with times in UTC and all fields nullable, whatever the settings of
  the session are, so sessions with other settings can append to them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from shmarrow import ipc, segment
from shmarrow.batch import RecordBatch
from shmarrow.errors import InvalidArgument, InvalidData, MissingExtra, ObjectNotFound, Unsupported, shown
from shmarrow.interchange.pyarrow import schema_from_pyarrow
from shmarrow.ipc import IpcWriteOptions
from shmarrow.ipc.compression import CODECS, Codec
from shmarrow.optional import optional
from shmarrow.segment.host import host_name
from shmarrow.spark.source import commit
from shmarrow.spark.source.commit import Job
from shmarrow.spark.source.directory import DataFile, local_path
from shmarrow.spark.source.messages import sendable
from shmarrow.spark.source.options import checked, flag, size
from shmarrow.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 4 << 20
"""The most bytes that a batch of a file has, except a single row that is larger."""
_HELD = 1 << 10
"""The most batches that are held before they are joined: one of few rows takes more memory than its values."""
SPARK_SCHEMA = b"shmarrow.spark"
"""The key of a file's metadata that has Spark's own schema, as JSON."""
_CODECS: dict[str, Codec | None] = {"none": None, "uncompressed": None, **CODECS}


class WriteOptions(NamedTuple):
    """How a DataFrame is written.

    Attributes
    ----------
    compression : str or None
        The codec of the buffers.
    batch_bytes : int
        The bytes of a record batch, before compression.
    file_bytes : int
        A task begins another file when one has so many bytes; 0 writes one file for each task.
    durable : bool
        Whether files and names are synced to disk before they count.
    keep_replaced : bool
        Whether an overwrite keeps what it replaces until the next one, for readers planned before.
    """

    compression: str | None = None
    batch_bytes: int = BATCH_BYTES
    file_bytes: int = 0
    durable: bool = False
    keep_replaced: bool = True


def _codec(name: str, text: str) -> str | None:
    if text.lower() not in _CODECS:
        raise InvalidArgument(f"option {name!r} must be one of {', '.join(_CODECS)}, found {shown(text)}")
    codec = _CODECS[text.lower()]
    if codec is not None and find_spec(codec.package) is None:
        raise MissingExtra(
            f"option {name!r} is {codec.name}: pip install {codec.package} on the driver and the workers"
        )
    return codec and codec.name


_PARSERS = {
    "compression": ("compression", _codec),
    "batchBytes": ("batch_bytes", size),
    "maxFileBytes": ("file_bytes", size),
    "durable": ("durable", flag),
    "keepReplaced": ("keep_replaced", flag),
}
"""The options by the names that Spark's users know, with the attribute that each sets and what reads it."""


@sendable()
def make_writer(options: Mapping[str, str], schema: st.StructType, overwrite: bool) -> Writer:
    """What Spark sends to its workers, for one write; called where Spark plans it.

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
        If the path or another option makes no sense, or the DataFrame has no columns, or two of one name.
    Unsupported
        If a column has a type that cannot be written.
    ShmarrowError
        As :func:`shmarrow.spark.source.commit.begin`.
    """
    values, rest = checked(options, _PARSERS)
    target = arrow_schema(schema)
    if not rest.get("path"):
        raise InvalidArgument(
            "expected the path of a directory, found none: call save(path), or set the option 'path'; Spark does not "
            "pass the path of a table that CREATE TABLE has made"
        )
    path = local_path(rest["path"])
    job = commit.begin(path, schema_from_pyarrow(target), overwrite)
    return Writer(job, target, overwrite, WriteOptions(**values))


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written: its files in the directory of the job, in order."""

    partition: int
    files: tuple[DataFile, ...]


class Writer(DataSourceArrowWriter):
    """One write of a DataFrame; made by :func:`make_writer`."""

    def __init__(self, job: Job, target: pa.Schema, overwrite: bool, options: WriteOptions) -> None:
        self.job = job
        self.target = target
        self.overwrite = overwrite
        self.options = options

    @property
    def schema(self) -> Schema:
        """The schema of the files."""
        return schema_from_pyarrow(self.target)

    @sendable()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one partition; runs in a task."""
        context = TaskContext.get()
        assert context is not None  # it runs in a task
        partition, attempt = context.partitionId(), context.taskAttemptId()
        batches = rechunked(iterator, self.target, self.options.batch_bytes)
        files: list[DataFile] = []
        try:
            for batch in batches:
                name = f"{partition:05d}-{attempt}-{len(files):05d}"
                files.append(self._write_file(name, batch, batches))
        except BaseException:
            for file in files:
                with suppress(OSError):
                    os.unlink(os.path.join(self.job.folder, file.name))
            raise
        return Written(partition, tuple(files))

    def _write_file(self, name: str, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> DataFile:
        """One file of the job, with the first batch and as many others as it has room for."""
        path = os.path.join(self.job.folder, name)
        try:
            sink = segment.create(path, mode=None, overwrite=False, durable=self.options.durable)
        except ObjectNotFound:
            raise self._no_place() from None
        rows = 0
        batch = first
        try:
            with ipc.new_file(sink, self.schema, IpcWriteOptions(compression=self.options.compression)) as writer:
                while batch is not None:
                    writer.write_batch(RecordBatch.from_pyarrow(batch))
                    rows += batch.num_rows
                    full = self.options.file_bytes and sink.size >= self.options.file_bytes
                    batch = None if full else next(rest, None)
        except ObjectNotFound:
            raise self._no_place() from None
        return DataFile(name, sink.size, rows)

    def _no_place(self) -> ObjectNotFound:
        return ObjectNotFound(
            errno.ENOENT,
            f"cannot write to {self.job.directory!r} on host {host_name()!r}: the directory of this job, "
            f"{self.job.folder!r}, is not there. Either the job has ended without this task, or the path is not on a "
            "file system that all hosts with workers share",
        )

    @sendable()
    def commit(self, messages: list[Any]) -> None:
        """Make what the tasks have written count; runs where Spark planned the write."""
        tasks = sorted(messages, key=lambda message: message.partition)
        files = [file for task in tasks for file in task.files]
        if not files:  # no rows, and the columns are kept
            files = [self._write_file("empty", None, iter(()))]
        commit.commit(
            self.job,
            files,
            self.schema,
            overwrite=self.overwrite,
            keep_replaced=self.options.keep_replaced,
            durable=self.options.durable,
        )

    @sendable()
    def abort(self, messages: list[Any]) -> None:
        """Remove what the tasks have written."""
        commit.abort(self.job)


# --- batches ----------------------------------------------------------------------------------------------------


def rechunked(batches: Iterator[pa.RecordBatch], schema: pa.Schema, nbytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows with the types of a schema, in batches of at most ``nbytes``; a larger row is a batch by itself."""
    held: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        for piece in _pieces(batch, nbytes):
            if held and total + piece.nbytes > nbytes:
                yield from _joined(held)
                held, total = [], 0
            held.append(_cast(piece, schema))
            total += piece.nbytes
            if len(held) == _HELD:
                held = _joined(held)
    if held:
        yield from _joined(held)


def _pieces(batch: pa.RecordBatch, nbytes: int) -> Iterator[pa.RecordBatch]:
    """A batch in slices, halved until each is small enough; rows may differ much in size."""
    if not batch.num_rows:
        return
    if batch.nbytes <= nbytes or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle), nbytes)
    yield from _pieces(batch.slice(middle), nbytes)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch, or as few as the offsets of its types reach."""
    if len(batches) == 1:
        return batches
    joined: list[pa.RecordBatch] = optional("pyarrow").Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with other offsets, time zones and nullability; what is the same is not copied."""
    pa = optional("pyarrow")
    try:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidData(f"Spark's columns {batch.schema.types} do not become {schema.types}: {error}") from None


# --- types ------------------------------------------------------------------------------------------------------


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """The schema of the files for a DataFrame's.

    Raises
    ------
    InvalidArgument
        If there are no columns, or two of one name.
    Unsupported
        If a column has a type that cannot be written.
    """
    if not schema.fields:
        raise InvalidArgument(
            "cannot write a DataFrame without columns: Spark does not tell its tasks how many rows it has; add a column"
        )
    _check_names(schema, "the DataFrame")
    fields = []
    for field in schema.fields:
        _check_type(field.dataType, f"column {field.name!r}")
        one = st.StructType([st.StructField(field.name, _nullable(field.dataType), True)])
        try:
            fields += list(to_arrow_schema(one, error_on_duplicated_field_names_in_struct=True, timezone="UTC"))
        except Exception as error:
            raise Unsupported(
                f"column {field.name!r} is {field.dataType.simpleString()}, for which Spark has no Arrow type: cast it "
                f"or leave it out ({error})"
            ) from None
    return optional("pyarrow").schema(fields, metadata={SPARK_SCHEMA: schema.json().encode()})


def _check_names(type: st.StructType, where: str) -> None:
    names = type.fieldNames()
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InvalidArgument(f"{where} has two fields named {twice!r}; rename one of them")
    broken = next((name for name in names if "\0" in name), None)
    if broken is not None:
        raise InvalidArgument(f"{where} has a field named {broken!r}; Arrow's names end at NUL, so rename it")


def _check_type(type: st.DataType, where: str) -> None:
    """Refuse what Spark would fail at in a task, with a message that names nothing."""
    if isinstance(type, st.YearMonthIntervalType):
        raise Unsupported(
            f"{where} is {type.simpleString()}, which pyarrow has no type for; cast it to int, as a number of "
            f"{'years' if type.startField == type.endField == type.YEAR else 'months'}"
        )
    if isinstance(type, st.UserDefinedType):
        type = type.sqlType()
    if isinstance(type, st.StructType):
        _check_names(type, where)
    for name, child in _children(type):
        _check_type(child, f"{where}, {name}")


def _children(type: st.DataType) -> list[tuple[str, st.DataType]]:
    if isinstance(type, st.ArrayType):
        return [("elements", type.elementType)]
    if isinstance(type, st.MapType):
        return [("keys", type.keyType), ("values", type.valueType)]
    return (
        [(f"field {field.name!r}", field.dataType) for field in type.fields] if isinstance(type, st.StructType) else []
    )


def _nullable(type: st.DataType) -> st.DataType:
    """A type whose children, at any depth, are nullable, as in all that Spark itself reads from files."""
    if isinstance(type, st.UserDefinedType):
        return _nullable(type.sqlType())
    if isinstance(type, st.ArrayType):
        return st.ArrayType(_nullable(type.elementType), True)
    if isinstance(type, st.MapType):
        return st.MapType(_nullable(type.keyType), _nullable(type.valueType), True)
    if isinstance(type, st.StructType):
        return st.StructType([st.StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in type.fields])
    return type
