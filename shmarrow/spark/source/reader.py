"""The readers, which Spark calls to find the schema, to plan a query, and in its workers.

All of these are Python processes of Spark's own; none of them has a session. Sources, partition directories and filters
are those of :func:`shmarrow.scan`. Invariants:

* the plan reads only metadata: footers, and of streams the schema;
* only the columns that are asked for are read, and those that Spark takes as they lie in the mapped files are not
  copied;
* a task opens the file that the plan has seen: its size and the time of its last change have to be the same;
* filters are an option. Spark 4.1 to 4.3 offers those of queries (``pushFilters``), and then gives the rows that one
  query needs to all queries over the same DataFrame, also to those with other filters or none.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from shmarrow.errors import (
    DEFAULT_LIMITS,
    InvalidArgument,
    InvalidType,
    Limits,
    ObjectNotFound,
    Unsupported,
    as_limits,
    at,
    shown,
)
from shmarrow.memory.host import host_name
from shmarrow.memory.location import is_shm
from shmarrow.scans.filters import parse
from shmarrow.scans.one_table import Scan, Split
from shmarrow.scans.sources import Fragment, find
from shmarrow.spark._pyspark import check_version
from shmarrow.spark.results import SparkCaster
from shmarrow.spark.source.messages import sendable
from shmarrow.spark.types import spark_struct
from shmarrow.types import Field, Schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SPLIT = 64 << 20
_LEAST_SPLIT = 1 << 20


def _found(given: Mapping[str, str]) -> list[Fragment]:
    """All files of a read, in order, from what Spark passes."""
    check_version()
    paths = _json(given, "paths") or []  # of load([...])
    paths = [given["path"], *paths] if "path" in given else paths
    if not paths:
        raise InvalidArgument(
            'nothing to read: give a path, as in spark.read.format("shmarrow").load("..."). Spark does not pass the '
            "path of a table that CREATE TABLE has made: use CREATE TEMPORARY VIEW name USING shmarrow OPTIONS (path "
            "'...')"
        )
    return [fragment for path in paths for fragment in find(local(path))]


def _limits(given: Mapping[str, str]) -> Limits:
    return as_limits(DEFAULT_LIMITS, flag(given, "trust"))


def _json(given: Mapping[str, str], name: str) -> Any:
    """An option that is a list in JSON; None if it is missing."""
    if name not in given:
        return None
    try:
        found = json.loads(given[name])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise InvalidArgument(f"option {name!r} must be a list in JSON, found {shown(given[name])}")
    return found


def flag(given: Mapping[str, str], name: str) -> bool:
    """An option that is true or false."""
    text = given.get(name, "false")
    if text.lower() not in ("true", "false"):
        raise InvalidArgument(f"option {name!r} must be true or false, found {shown(text)}")
    return text.lower() == "true"


def names(text: str) -> tuple[str, ...]:
    """An option that is names with commas between them."""
    return tuple([name.strip() for name in text.split(",")])


def local(path: str) -> str:
    """A location that means the same in all processes of this host, from one that may be a ``file:`` URI.

    As in all of Spark, nothing in a URI is decoded: ``%``, ``#`` and ``?`` are characters of names.
    """
    if "\0" in path:
        raise InvalidArgument(f"a path must not contain NUL, found {path!r}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{path!r} cannot be encoded as a path: {error}") from None
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").removeprefix("//localhost/").lstrip("/")
    return path if is_shm(path) or ":/" in path else os.path.join(os.getcwd(), os.path.expanduser(path))


# --- the schema -------------------------------------------------------------------------------------------------


@sendable()
def schema_of(given: Mapping[str, str]) -> StructType:
    """The Spark schema of a read, from the footer of the first file, and the names of directories.

    Parameters
    ----------
    given : mapping
        The options of the read.

    Raises
    ------
    InvalidType
        If there are no files.
    FieldNotFound, Unsupported
        If a column that was asked for does not exist, or Spark has no type for one.
    """
    fragments, limits = _found(given), _limits(given)
    if not fragments:
        where = given.get("path", given.get("paths"))
        raise InvalidType(f"there are no files in {where} to take a schema from; give one with .schema(...)")
    with at(fragments[0]):
        schema = Scan(fragments, None, limits).schema
    for fragment in fragments[1:] if flag(given, "mergeSchema") else ():
        with at(fragment):
            for field in Scan([fragment], None, limits).schema:
                schema = schema if field.name in schema else schema.append(field)
    with at(fragments[0]):
        return _spark_schema(schema, names(given["columns"]) if "columns" in given else None)


def _spark_schema(schema: Schema, columns: tuple[str, ...] | None) -> StructType:
    hint = '.option("columns", ...) chooses others'
    chosen = schema if columns is None else Schema([schema.field(name) for name in dict.fromkeys(columns)])
    for name, count in Counter(chosen.names).items():
        if count > 1:
            raise Unsupported(
                f"several columns are named {shown(name)}, and Spark cannot read that from a Python data source",
                hint=hint,
            )
    try:
        return spark_struct(chosen)
    except Unsupported as error:
        error.hint = hint
        raise


# --- the rows ---------------------------------------------------------------------------------------------------


class Query:
    """Reads columns of files, and the rows that fulfil filters; pickled into tasks.

    Parameters
    ----------
    given : mapping
        The options of the read, as Spark passes them.
    schema : StructType
        The columns.
    """

    @sendable()
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self.given = given
        self.limits = _limits(given)
        self.caster = SparkCaster(schema)
        split = given.get("maxPartitionBytes", str(_SPLIT))
        if not split.isdecimal() or not int(split):
            raise InvalidArgument(f"option 'maxPartitionBytes' must be a number of bytes, found {shown(split)}")
        self.split_bytes = int(split)
        with at("option 'filters'"):
            self.filters = _conditions(_json(given, "filters"), self.caster.target)
            parse(self.filters or [], self.caster.target)  # raises here what is wrong with them

    def plan(self, fragments: list[Fragment]) -> list[InputPartition]:
        """Splits: record batches of up to ``maxPartitionBytes``, or less to occupy all processors."""
        scan = Scan(fragments, self.caster.target, self.limits)
        scan = scan.where(self.filters) if self.filters else scan
        tasks = len(os.sched_getaffinity(0))
        splits = scan.plan(max_bytes=self.split_bytes, tasks=tasks)
        for split in {split.source: split for split in splits}.values():
            found, keys = split.source_schema, split.values
            with at(split.source):
                wanted = self.caster.target
                self.caster.check(Schema([field if field.name in keys else _of(found, field) for field in wanted]))
        most = min(self.split_bytes, max(_LEAST_SPLIT, sum([split.nbytes for split in splits]) // tasks))
        partitions: list[list[Split]] = []
        left = 0
        for split in splits:
            if not partitions or split.nbytes > left:
                partitions.append([])
                left = most
            left -= split.nbytes
            partitions[-1].append(split)
        return [InputPartition(some) for some in partitions]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of one partition, as pyarrow's."""
        with sendable():
            for split in partition.value:
                try:
                    batches = iter(split)
                except (FileNotFoundError, ObjectNotFound) as error:
                    raise ObjectNotFound(
                        errno.ENOENT,
                        f"{split.source} is not on host {host_name()!r}: the query was planned while it was there",
                        hint="it was removed or overwritten since, or only other hosts have it: run the query again, "
                        "on paths that all hosts share",
                    ) from error
                with at(split.source):
                    for batch in batches:
                        yield from self.caster.cast(batch)


_PARSED: dict[str, Callable[[str], Any]] = {
    "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
    "decimal": Decimal,
}
"""What reads the values in filters that JSON has no form for."""


def _conditions(given: Any, schema: Schema) -> Any:
    """Filters as a scan takes them, from lists and text in JSON."""
    if not isinstance(given, list):
        return given
    if len(given) != 3 or not isinstance(given[0], str):
        return [_conditions(each, schema) for each in given]
    name, op, value = given
    several = value if isinstance(value, list) else [value]
    read = _PARSED.get(schema.field(name).type.descriptor.values, str)
    try:
        values = [read(each) if isinstance(each, str) else each for each in several]
    except (ArithmeticError, ValueError):
        raise InvalidArgument(f"column {shown(name)} is {schema.field(name).type}, found {shown(value)}") from None
    return name, op, values if isinstance(value, list) else values[0]


def _of(schema: Schema, field: Field) -> Field:
    """The field of that name in a file; the field itself where the file lacks it, as its values are null then."""
    return schema.field(field.name) if field.name in schema.names else field


class Reader(Query, DataSourceReader):
    """Reads what there is when the query is planned."""

    @sendable()
    def partitions(self) -> list[InputPartition]:
        """The splits of all files."""
        return self.plan(_found(self.given)) or [InputPartition([])]


class StreamReader(Query, DataSourceStreamReader):
    """Reads each file of a directory once, after it has appeared.

    An offset is the names of all files that were there at a time. So a batch is what its end names and its start does
    not, also after a restart from a checkpoint; and what was removed is forgotten.
    """

    def initialOffset(self) -> dict[str, bool]:
        """No file."""
        return {}

    @sendable()
    def latestOffset(self) -> dict[str, bool]:  # type: ignore[override]  # as before 4.2, and still accepted
        """The names of all files that are there now."""
        return {str(fragment): True for fragment in _found(self.given)}

    @sendable()
    def partitions(self, start: dict[str, bool], end: dict[str, bool]) -> list[InputPartition]:
        """The splits of the files that came between two offsets."""
        there = {str(fragment): fragment for fragment in _found(self.given)}
        new = [name for name in end if name not in start]
        for name in new:
            if name not in there:
                raise ObjectNotFound(
                    errno.ENOENT, f"{name} is gone: it was there when the batch of the stream was planned"
                )
        return self.plan([there[name] for name in new])
