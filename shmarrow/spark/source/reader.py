"""The reader, which Spark calls to find the schema, to plan a query, and in its workers.

All of these are Python processes of Spark's own; none of them has a session. Invariants:

* the plan reads only metadata: footers, and of streams the schema;
* only the columns that are asked for are read, and those that Spark takes as they lie in the mapped files are not
  copied;
* a task opens the file that the plan has seen: its size and the time of its last change have to be the same.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from shmarrow import ipc, segment
from shmarrow.batch import RecordBatch
from shmarrow.errors import (
    DEFAULT_LIMITS,
    InvalidType,
    ObjectNotFound,
    StorageError,
    Unsupported,
    as_limits,
    at,
    shown,
)
from shmarrow.ipc import RecordBatchFileReader
from shmarrow.ipc.file.footer import MAGIC
from shmarrow.layout import nulls
from shmarrow.segment.host import host_name
from shmarrow.spark._pyspark import arrow_schema, check_version
from shmarrow.spark.results import Fitting
from shmarrow.spark.source.listing import Place, places
from shmarrow.spark.source.messages import sendable
from shmarrow.spark.source.options import ReadOptions, read_options
from shmarrow.spark.types import spark_struct
from shmarrow.types import Schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

_LEAST_SPLIT = 1 << 20
_stores: dict[str, Any] = {}
"""The stores that this process reads from; they stay open, so that opening one again costs nothing."""


class Piece(NamedTuple):
    """A part of a file that a task reads.

    Attributes
    ----------
    place : Place
        Where the file lies.
    seen : tuple of int
        Its size in bytes, and when it was last changed, in ns, or its generation in a store, as the plan has seen it.
    first, stop : int
        The record batches; all of them where ``stop`` is -1, as for streams.
    """

    place: Place
    seen: tuple[int, int]
    first: int
    stop: int


# --- one file ---------------------------------------------------------------------------------------------------


@contextmanager
def opened(place: Place, trust: bool = False, seen: tuple[int, int] | None = None) -> Iterator[Any]:
    """Open a file or a stream; returns its reader and its size and time of change. Nothing is copied.

    Raises
    ------
    ObjectNotFound
        If it is not there.
    StorageError
        If it is not what was seen, or cannot be read.
    InvalidData
        If it is neither an Arrow file nor a stream, or a broken one.
    """
    with _attach(place, seen is not None) as found:
        now = found.size, found.status.st_mtime_ns if place.store is None else found.entry.generation
        if seen is not None and seen != now:
            raise StorageError(errno.ESTALE, f"{place} was changed after the query was planned; run the query again")
        is_file = found.data[: len(MAGIC)].tobytes() == MAGIC
        open = ipc.open_file if is_file or not found.size else ipc.open_stream
        reader = open(found, limits=as_limits(DEFAULT_LIMITS, trust))
        try:
            yield reader, now
        finally:
            reader.close()


def _attach(place: Place, planned: bool) -> Any:
    from shmarrow.store import Store

    try:
        if place.store is None:
            return segment.attach(place.where)
        if place.store not in _stores:
            _stores[place.store] = Store(place.store, create=False)
        return _stores[place.store].attach(place.where)
    except ObjectNotFound as error:
        if planned:
            error.hint = (
                f"the query was planned while it was there: it was removed or overwritten since, or host "
                f"{host_name()!r} does not have it; run the query again, on paths that all hosts share"
            )
        raise


# --- the schema -------------------------------------------------------------------------------------------------


@sendable()
def schema_of(given: Mapping[str, str]) -> StructType:
    """The Spark schema of all files of a read together, from their footers.

    Parameters
    ----------
    given : mapping
        The options of the read.

    Raises
    ------
    InvalidType
        If files do not have the same columns, or not of the same types.
    FieldNotFound, Unsupported
        If a column that was asked for is in none of them, or Spark has no type for it.
    """
    from pyspark.sql.types import StructType

    check_version()
    options = read_options(given)
    files = places(options)
    if not files:
        raise InvalidType(
            f"there are no files in {', '.join(map(repr, options.paths))} to take a schema from; give one with "
            ".schema(...)"
        )
    merged: dict[str, StructField] = {}
    for place in files:
        with opened(place) as (reader, _):
            schema = reader.schema
        with at(place):
            found = _fields(schema, options)
        if place is files[0]:
            merged = found
        elif not options.merge and found.keys() != merged.keys():
            name = next(name for name in [*merged, *found] if name not in found or name not in merged)
            has, lacks = (files[0], place) if name in merged else (place, files[0])
            raise InvalidType(
                f'{has} has a column {shown(name)}, which {lacks} lacks; .option("mergeSchema", "true") reads all '
                "columns of all files, with nulls where one is missing"
            )
        for name, field in found.items():
            other = merged.setdefault(name, field)
            if other.dataType != field.dataType:
                raise InvalidType(
                    f"{place}: column {shown(name)} is {field.dataType.simpleString()} in Spark, and "
                    f"{other.dataType.simpleString()} in {files[0]}: files that are read together must have the same "
                    "types"
                )
    for name in options.columns or ():
        if name not in merged:
            with at(place):
                schema.field(name)
    return StructType([merged[name] for name in options.columns or merged])


def _fields(schema: Schema, options: ReadOptions) -> dict[str, StructField]:
    """Return the columns of a file that are read, as Spark has them."""
    chosen = [field for field in schema if options.columns is None or field.name in options.columns]
    hint = '.option("columns", ...) chooses others'
    for name, count in Counter(field.name for field in chosen).items():
        if count > 1:
            raise Unsupported(
                f"several columns are named {shown(name)}, and Spark cannot read that from a Python data source",
                hint=hint,
            )
    try:
        return {field.name: field for field in spark_struct(Schema(chosen))}
    except Unsupported as error:
        error.hint = hint
        raise


# --- the rows ---------------------------------------------------------------------------------------------------


@sendable()
def reader_of(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return a reader of the columns of a schema."""
    check_version()
    return ShmarrowReader(read_options(given), arrow_schema(schema))


class ShmarrowReader(DataSourceReader):
    """Plans the splits of a read, and reads them.

    Parameters
    ----------
    options : ReadOptions
        The options of the read.
    schema : pyarrow.Schema
        What Spark expects.
    """

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    @sendable()
    def partitions(self) -> list[InputPartition]:
        """The splits: consecutive record batches of up to ``maxPartitionBytes``, or less to occupy all processors."""
        pieces: list[tuple[Piece, int]] = []
        fitting = Fitting(self._schema)
        for place in places(self._options):
            with opened(place) as (reader, seen), at(place):
                fitting.check(_chosen_schema(reader.schema, fitting.wanted, self._options))
                sizes = reader._block_sizes() if isinstance(reader, RecordBatchFileReader) else None
            blocks = [(-1, seen[0])] if sizes is None else [(number + 1, size) for number, size in enumerate(sizes)]
            pieces += [(Piece(place, seen, max(stop - 1, 0), stop), size) for stop, size in blocks]
        total = sum(size for _, size in pieces)
        most = min(self._options.split_bytes, max(_LEAST_SPLIT, total // len(os.sched_getaffinity(0))))
        splits: list[list[Piece]] = []
        left = 0
        for piece, size in pieces:
            if not splits or size > left:
                splits.append([])
                left = most
            left -= size
            last = splits[-1][-1] if splits[-1] else None
            if last is not None and last.place == piece.place and last.stop == piece.first:
                splits[-1][-1] = last._replace(stop=piece.stop)
            else:
                splits[-1].append(piece)
        return [InputPartition(split) for split in splits or [[]]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of one split, as pyarrow's."""
        with sendable():
            for piece in partition.value:
                fitting = Fitting(self._schema)
                with opened(piece.place, self._options.trust, piece.seen) as (reader, _), at(piece.place):
                    for batch in _batches(reader, piece):
                        yield from fitting.fit(_chosen(batch, fitting.wanted))


def _chosen_schema(schema: Schema, wanted: Schema, options: ReadOptions) -> Schema:
    """Return the schema of the columns that Spark expects, as a file has them."""
    lacking = set(wanted.names) - set(schema.names) if options.merge else set()
    return Schema([field if field.name in lacking else schema.field(field.name) for field in wanted])


def _chosen(batch: RecordBatch, wanted: Schema) -> RecordBatch:
    """Return the columns that Spark expects of a batch, with nulls for those that its file lacks."""
    names = batch.schema.names
    found = batch.select([name for name in wanted.names if name in names])
    for field in wanted:
        if field.name not in names:
            found = found.append_column(field.name, nulls(batch.num_rows, field.type))
    return found


def _batches(reader: Any, piece: Piece) -> Iterator[RecordBatch]:
    if piece.stop < 0:
        yield from reader
    for number in range(piece.first, piece.stop):
        yield reader.get_batch(number)
