# SPDX-License-Identifier: Apache-2.0
"""The readers of the data source: Spark calls them to find the schema, to plan a query, and in its workers.

All of these are Python processes of Spark's own; none of them has a session. Sources and the columns of directories are
those of :func:`shmarrow.scan`. Invariants:

* the plan reads only metadata: footers, and of streams the schema;
* only the columns of the schema are read, and those that Spark takes as they lie in the mapped files are not copied;
* a task opens the file that the plan has seen: its size and the time of its last change have to be the same;
* all rows are read. Spark 4.1 to 4.3 offers the filters of queries (``pushFilters``), and then gives the rows that one
  query needs to all queries over the same DataFrame, also to those with other filters or none.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import gt, lt
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from shmarrow.errors import (
    DEFAULT_LIMITS,
    InvalidArgument,
    InvalidData,
    InvalidType,
    Limits,
    MissingExtra,
    ObjectNotFound,
    Unsupported,
    as_limits,
    at,
    shown,
    storage_error,
)
from shmarrow.memory import host_name, is_shm, resolve
from shmarrow.scans.one_table import Scan, Split
from shmarrow.scans.sources import Fragment, find, open_fragment
from shmarrow.spark._pyspark import check_version
from shmarrow.spark.jobs import LARGEST, sendable, tasks_of
from shmarrow.spark.results import SparkCaster
from shmarrow.spark.types import spark_struct
from shmarrow.types import Field, Schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.streaming import datasource as limits
except ImportError:  # before 4.2
    limits = None  # type: ignore[assignment]
AvailableNow: Any = object if limits is None else limits.SupportsTriggerAvailableNow

_BOTH = (
    "pathGlobFilter", "recursiveFileLookup", "ignoreMissingFiles", "ignoreCorruptFiles", "mergeSchema",
    "maxPartitionBytes", "unchecked", "path", "paths",
)  # fmt: skip
OPTIONS = {
    "read": (*_BOTH, "modifiedAfter", "modifiedBefore", "timeZone"),
    "readStream": (*_BOTH, "maxFilesPerTrigger"),
    "write": ("compression", "statistics", "path"),
    "writeStream": ("compression", "statistics", "path", "checkpointLocation", "queryName"),
}
"""All options that have a meaning, and those that Spark itself sets."""


def check_options(given: Mapping[str, str], *calls: str) -> None:
    """Refuse options without a meaning: a misspelled one would change the rows that are read, without a word."""
    if "provider" in given:
        raise InvalidArgument(f"CREATE TABLE makes no table that can be read: {_NO_PATH}")
    known = {name.lower(): name for call in calls for name in sorted(OPTIONS[call])}
    for name in given:
        if name.lower() not in known:
            expected = ", ".join(known.values())
            raise InvalidArgument(f"{shown(name)} is no option of {' or '.join(calls)}: expected {expected}")


_NO_PATH = (
    "Spark does not pass the path of a table that CREATE TABLE has made: use CREATE TEMPORARY VIEW name USING shmarrow "
    "OPTIONS (path '...')"
)


def _files(given: Mapping[str, str]) -> list[Fragment]:
    """All files of a read, in order, from what Spark passes."""
    check_version()
    paths = _json(given, "paths") or []  # of load([...])
    paths = [given["path"], *paths] if "path" in given else paths
    if not paths:
        raise InvalidArgument(
            f'nothing to read: give a path, as in spark.read.format("shmarrow").load("..."). {_NO_PATH}'
        )
    files = [file for path in paths for file in find(local(path))]
    if flag(given, "recursiveFileLookup"):
        files = [file._replace(keys=()) for file in files]
    if "pathGlobFilter" in given:
        pattern = _pattern(given["pathGlobFilter"])
        files = [file for file in files if pattern.fullmatch(os.path.basename(str(file)))]
    for name, is_chosen in (("modifiedAfter", gt), ("modifiedBefore", lt)):
        if name in given:
            instant = _instant(given, name)
            files = [file for file in files if is_chosen(_modified(file), instant)]
    return files


_GLOB = re.compile(r"\\(.)|\[([!^]?)(\]?[^]]*)\]|(.)", re.DOTALL)


def _pattern(text: str) -> re.Pattern[str]:
    r"""The pattern of a glob as Hadoop has them: ``*``, ``?``, ``[a-c]``, ``[!a]`` or ``[^a]``, ``{a,b}``, ``\*``."""
    parts: list[str] = []
    depth = 0
    for escaped, no, letters, one in _GLOB.findall(text):
        depth += {"{": 1, "}": -1}.get(one, 0)
        if letters:
            parts += ["[", "^" if no else "", re.sub(r"[\\[^&~|]", r"\\\g<0>", letters), "]"]
        else:
            special = {"*": ".*", "?": ".", "{": "(?:", "}": ")"} | ({",": "|"} if depth else {})
            parts.append(special.get(one) or re.escape(escaped or one))
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error:
        raise InvalidArgument(f"option 'pathGlobFilter' is no pattern of names: {shown(text)}") from None


def _instant(given: Mapping[str, str], name: str) -> int:
    """An option that is a time, in µs since the epoch."""
    said = shown(given[name])
    try:
        moment = dt.datetime.fromisoformat(given[name].strip())
        zone = ZoneInfo(given["timeZone"]) if "timeZone" in given else None
    except (ValueError, KeyError) as error:
        raise InvalidArgument(
            f"option {name!r} must be a time such as 2024-01-31T12:00:00Z, found {said}: {error}"
        ) from None
    if moment.tzinfo is None and zone is None:
        raise InvalidArgument(
            f"option {name!r} has no time zone, and Spark does not tell Python sources that of the session: {said}",
            hint="write it as 2024-01-31T12:00:00Z or with +01:00, or set the option timeZone",
        )
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _modified(file: Fragment) -> int:
    """When a file was last changed, in µs, as exact as Spark has it, which is to the ms."""
    if file.store is not None:
        raise InvalidArgument(f"{file} is an object of a store, which has no time of its last change")
    try:
        return os.stat(resolve(file.where)[1]).st_mtime_ns // 1_000_000 * 1000
    except OSError as error:
        raise storage_error(error, "read", str(file)) from None


@contextmanager
def _ignored(given: Mapping[str, str]) -> Iterator[None]:
    """Within the block, leave out a file that is missing or broken, if options say so; errors say which do."""
    try:
        yield
    except ObjectNotFound as error:
        if not flag(given, "ignoreMissingFiles"):
            error.hint = error.hint or '.option("ignoreMissingFiles", True) goes on without it'
            raise
    except InvalidData as error:
        if not flag(given, "ignoreCorruptFiles"):
            error.hint = (
                '.option("pathGlobFilter", "*.arrow") reads the files of such names, and '
                '.option("ignoreCorruptFiles", True) leaves out what cannot be read'
            )
            raise


def _limits(given: Mapping[str, str]) -> Limits:
    return as_limits(DEFAULT_LIMITS, flag(given, "unchecked"))


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


def _number(given: Mapping[str, str], name: str, default: int, unit: str) -> int:
    """An option that is a number of 1 or more."""
    text = given.get(name, str(default))
    if name in given and not (text.isascii() and text.isdecimal() and int(text)):
        raise InvalidArgument(f"option {name!r} must be a number of {unit}, found {shown(text)}")
    return int(text)


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
    Unsupported
        If Spark has no type for a column.
    """
    check_options(given, "read", "readStream")
    files, limits = _files(given), _limits(given)
    for number, first in enumerate(files):
        with _ignored(given), at(first):
            schema = Scan([first, *files[:number], *files[number + 1 :]], None, limits).schema
            break
    else:
        where = given.get("path", given.get("paths"))
        raise InvalidType(f"there are no files in {where} to take a schema from; give one with .schema(...)")
    for file in files[number + 1 :] if flag(given, "mergeSchema") else ():
        with _ignored(given), at(file):
            schema = _merged(schema, Scan([file], None, limits).schema)
    with at(first):
        return _spark_schema(schema)


def _merged(schema: Schema, other: Schema) -> Schema:
    """A schema with what it lacks of another one."""
    for field in other:
        if field.name not in schema:
            like = next((name for name in schema.names if name.lower() == field.name.lower()), None)
            if like is not None:
                raise InvalidType(
                    f"columns {like!r} and {field.name!r} of several files are one for Spark, unless it is told to be "
                    "case-sensitive",
                    hint="rename one, or name what to read with .schema(...)",
                )
            schema = schema.append(field)
    return schema


def _spark_schema(schema: Schema) -> StructType:
    hint = ".schema(...) names those to read"
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise Unsupported(
                f"several columns are named {shown(name)}, and Spark cannot read that from a Python data source",
                hint=hint,
            )
    try:
        return spark_struct(schema)
    except Unsupported as error:
        error.hint = hint
        raise


# --- the rows ---------------------------------------------------------------------------------------------------


class Query:
    """Reads columns of files; pickled into tasks.

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
        self.split_bytes = _number(given, "maxPartitionBytes", LARGEST, "bytes")

    def plan(self, fragments: list[Fragment]) -> list[InputPartition]:
        """Splits: record batches of up to ``maxPartitionBytes``, or less to occupy all processors."""
        if flag(self.given, "ignoreMissingFiles") or flag(self.given, "ignoreCorruptFiles"):
            fragments = list(self._readable(fragments))
        scan = Scan(fragments, self.caster.target, self.limits)
        tasks = len(os.sched_getaffinity(0))
        with _ignored({}):
            splits = scan.plan(max_bytes=self.split_bytes, tasks=tasks)
            for split in {split.source: split for split in splits}.values():
                found, keys = split.source_schema, split.values
                with at(split.source):
                    wanted = self.caster.target
                    self.caster.check(Schema([field if field.name in keys else _of(found, field) for field in wanted]))
        return [InputPartition(some) for some in tasks_of(splits, tasks, self.split_bytes)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of one partition, as pyarrow's."""
        with sendable():
            for split in partition.value:
                with _ignored(self.given):
                    yield from self._rows(split)

    def _readable(self, files: list[Fragment]) -> Iterator[Fragment]:
        for file in files:
            with _ignored(self.given):
                if open_fragment(file, self.limits).schema is not None:  # which a stream reads only now
                    yield file

    def _rows(self, split: Split) -> Iterator[Any]:
        """The batches of a part of a file."""
        try:
            batches = iter(split)
        except FileNotFoundError as error:
            raise ObjectNotFound(
                errno.ENOENT,
                f"{split.source} is not on host {host_name()!r}: the query was planned while it was there",
                hint="it was removed or overwritten since, or only other hosts have it: run the query again, on paths "
                'that all hosts share; .option("ignoreMissingFiles", True) goes on without it',
            ) from error
        with at(split.source):
            for batch in batches:
                yield from self.caster.cast(batch)


def _of(schema: Schema, field: Field) -> Field:
    """The field of that name in a file; the field itself where the file lacks it, as its values are null then."""
    return schema.field(field.name) if field.name in schema.names else field


class QueryReader(Query, DataSourceReader):
    """Reads what there is when the query is planned."""

    @sendable()
    def partitions(self) -> list[InputPartition]:
        """The splits of all files."""
        check_options(self.given, "read")
        return self.plan(_files(self.given)) or [InputPartition([])]


_REMEMBERED = 10
"""For how many batches a stream knows a file that is not there any more: it may be missing in one listing only."""


class StreamReader(Query, DataSourceStreamReader, AvailableNow):  # type: ignore[misc]
    """Reads each file of a directory once, after it has appeared.

    An offset is the names of all files up to a time, each with the number of batches since it was there. So a batch is
    what its end names and its start does not, also after a restart from a checkpoint.
    """

    @sendable()
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        super().__init__(given, schema)
        check_options(given, "readStream")
        self.most = _number(given, "maxFilesPerTrigger", 0, "files")
        if self.most and limits is None:
            raise MissingExtra("the option 'maxFilesPerTrigger' needs pyspark 4.2 or newer")
        self.until: set[str] | None = None

    def initialOffset(self) -> dict[str, int]:
        """No file."""
        return {}

    def getDefaultReadLimit(self) -> Any:
        """How many files a batch takes."""
        return limits.ReadMaxFiles(self.most) if self.most else limits.ReadAllAvailable()

    @sendable()
    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now, and then end."""
        self.until = {str(file) for file in _files(self.given)}

    @sendable()
    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        """The names of the files that are there now, or as many more as a batch takes, the oldest first.

        Spark 4.1 gives no arguments.
        """
        there = {str(file): file for file in _files(self.given)}
        before = start or {}
        new = [name for name in there if name not in before and (self.until is None or name in self.until)]
        if hasattr(limit, "max_files"):
            new = sorted(new, key=lambda name: _modified(there[name]))[: limit.max_files]
        if start is not None and not new:
            return start
        missing = {name: count + 1 for name, count in before.items() if name not in there and count < _REMEMBERED}
        return dict.fromkeys([*(name for name in before if name in there), *new], 0) | missing

    @sendable()
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The splits of the files that came between two offsets."""
        there = {str(file): file for file in _files(self.given)}
        new = []
        for name in end:
            if name not in start:
                with _ignored(self.given):
                    if name not in there:
                        said = f"{name} is gone: it was there when the batch of the stream was planned"
                        raise ObjectNotFound(errno.ENOENT, said)
                    new.append(there[name])
        return self.plan(new)
