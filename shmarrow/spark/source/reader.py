"""Reading: what Spark calls where it makes the source and its schema, where it plans a query, and in its workers.

All of these are Python processes of Spark's own; none of them has a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from shmarrow.errors import ShmarrowError
from shmarrow.interchange.for_consumer import casting_for
from shmarrow.interchange.pyarrow import schema_from_pyarrow
from shmarrow.spark import types as spark
from shmarrow.spark.source.columns import Sizes, batches_for, columns_for
from shmarrow.spark.source.messages import sendable
from shmarrow.spark.source.opening import opened
from shmarrow.spark.source.read_options import ReadOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shmarrow.spark.source.plan import Piece


@sendable()
def schema_of(given: Mapping[str, str]) -> StructType:
    """The Spark schema of all files of a read together, from their footers.

    Parameters
    ----------
    given : mapping
        The options of the read.

    Raises
    ------
    ShmarrowError
        If files cannot be read, or do not fit together, or Spark has no type for a column; it names the file and the
        column.
    """
    from pyspark.sql.types import StructType

    from shmarrow.spark.source.plan import planned_schema

    return StructType.fromJson(planned_schema(read_options(given)))


@sendable()
def reader_of(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """What plans and reads the columns of a schema."""
    return ShmarrowReader(read_options(given), spark.arrow_schema(schema))


class ShmarrowReader(DataSourceReader):
    """Plans the splits of a read, and reads them.

    Parameters
    ----------
    options : ReadOptions
        What is read.
    schema : pyarrow.Schema
        What Spark expects.
    """

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    @sendable()
    def partitions(self) -> list[InputPartition]:
        """The splits: each has about as many bytes as the option ``maxPartitionBytes`` says."""
        from shmarrow.spark.source.plan import planned_splits

        wanted = schema_from_pyarrow(self._schema)
        options = self._options
        return [InputPartition(split) for split in planned_splits(options, wanted)] or [InputPartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of one split, as pyarrow's; columns that Spark takes as they are lie in the mapped files."""
        with sendable():
            yield from self._read(partition.value)

    def _read(self, pieces: tuple[Piece, ...]) -> Iterator[Any]:
        options = self._options
        casting = casting_for("spark", options.lossy)
        wanted = schema_from_pyarrow(self._schema)
        sizes = Sizes(options.batch_bytes)
        for piece in pieces:
            with opened(piece.file.place, options.trust, piece.file) as (reader, _):
                columns = columns_for(reader.schema, wanted, options, casting)
                batches = _batches(reader, piece)
                yield from _named(piece, batches_for(batches, columns, casting, self._schema, sizes))


def _batches(reader: Any, piece: Piece) -> Iterator[Any]:
    if piece.stop < 0:
        yield from reader
        return
    for number in range(piece.first, piece.stop):
        batch = reader.get_batch(number)
        yield batch if piece.rows is None else batch.slice(piece.rows[0], piece.rows[1] - piece.rows[0])


def _named(piece: Piece, batches: Iterator[Any]) -> Iterator[Any]:
    """Batches, whose errors name the file that they come from."""
    place = str(piece.file.place)
    try:
        yield from batches
    except ShmarrowError as error:
        if place not in str(error) and not isinstance(error, OSError):
            error.where = ((place,), *error.where)
        raise
