# SPDX-License-Identifier: Apache-2.0
"""Spark jobs: their sessions, and errors on their way from workers to the driver."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from shmarrow import errors
from shmarrow.errors import (
    InvalidArgument,
    InvalidType,
    MissingExtra,
    ObjectExists,
    ObjectNotFound,
    ShmarrowError,
    StorageError,
    StoreFull,
    full_name,
    optional,
    part_text,
    printable,
)
from shmarrow.spark._pyspark import activate, check_version, is_connect, is_local, is_spark, is_stopped, parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RAISED = re.compile(r"^shmarrow\.errors\.(\w+): (.*)", re.MULTILINE)
_ERRNOS = {ObjectNotFound: errno.ENOENT, ObjectExists: errno.EEXIST, StoreFull: errno.ENOSPC, StorageError: errno.EIO}


@contextmanager
def worker_errors() -> Iterator[None]:
    """Re-raise an error of this package that made a job fail in a worker."""
    try:
        yield
    except ShmarrowError:
        raise
    except Exception as error:
        own = raised_in_worker(error) or _without_package(error)
        if own is None:
            raise
        raise own from error


@contextmanager
def cancelled_with(spark: SparkSession, tag: str) -> Iterator[None]:
    """Cancel the jobs of the block if it ends with an error; after an interrupt, Spark would let them continue."""
    if is_connect(spark):
        add, cancel, remove = spark.addTag, spark.interruptTag, spark.removeTag
    else:  # session tags belong to a JVM thread, and an interrupt closes the connection to it
        context: Any = spark.sparkContext
        add, cancel, remove = context.addJobTag, context.cancelJobsWithTag, context.removeJobTag
    add(tag)
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the session may be gone
            cancel(tag)
        raise
    finally:
        with suppress(Exception):
            remove(tag)


LARGEST, LEAST = 64 << 20, 1 << 20
"""By default the most bytes of files that a task reads, and the fewest for which there is another task."""


def tasks_of(splits: Sequence[Any], tasks: int, largest: int = LARGEST) -> list[tuple[Any, ...]]:
    """Group the splits of a plan for about so many tasks, each with up to ``largest`` bytes, in order."""
    most = min(largest, max(LEAST, sum([split.nbytes for split in splits]) // tasks))
    groups: list[list[Any]] = []
    left = 0
    for split in splits:
        if not groups or split.nbytes > left:
            groups.append([])
            left = most
        groups[-1].append(split)
        left -= split.nbytes
    return [tuple(group) for group in groups]


PATIENCE = 10.0
"""Seconds for which a removal on other hosts is waited for."""


def on_workers(spark: SparkSession, function: Callable[[], object], rows: DataFrame | None = None) -> None:
    """Call a function in the tasks of a DataFrame, and wait up to 10 seconds.

    By default, in many short tasks, so that most hosts with workers run one: there is no way to ask Spark for a task on
    each host.
    """

    def run() -> None:
        with suppress(Exception):  # the session may be gone
            count = 4 * parallelism(spark)
            df = spark.range(0, count, 1, count) if rows is None else rows
            df.mapInArrow(partial(_call, function, rows is None), "n int").collect()

    thread = threading.Thread(target=run, name="shmarrow-workers", daemon=True)
    thread.start()
    thread.join(PATIENCE)


def _call(function: Callable[[], object], many: bool, batches: Iterator[Any]) -> Iterator[Any]:
    list(batches)
    function()
    if many:
        time.sleep(0.1)  # or one executor takes all tasks
    return iter(())


def raised_in_worker(error: BaseException) -> ShmarrowError | None:
    """Reconstruct the error of this package that made a job fail, from the text of its traceback."""
    found = _RAISED.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, ShmarrowError)):
        return None
    number = next((number for base, number in _ERRNOS.items() if issubclass(kind, base)), None)
    return kind(found[2]) if number is None else kind(number, found[2])


def _without_package(error: BaseException) -> MissingExtra | None:
    return _no_package("") if "No module named 'shmarrow" in str(error) else None


def _no_package(program: str) -> MissingExtra:
    return MissingExtra(
        f"the Python of Spark's workers{program} does not have shmarrow",
        hint='set os.environ["PYSPARK_PYTHON"] = sys.executable before the session starts, or in one that runs '
        "spark.sparkContext.pythonExec = sys.executable; on a cluster, install shmarrow where the workers run",
    )


class sendable(ContextDecorator):
    """Within the block, give our errors messages of one line of printable characters, and no traceback before it.

    Messages have names of files and columns, which may be any bytes. What is not UTF-8 cannot be sent to Java, which
    would wait for it forever; a line break in a name could pass for the beginning of another error. Spark sends the
    traceback too, several times.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ShmarrowError):
            if not str(error).isprintable():
                error.where = tuple([(printable(part_text(part)),) for part in error.where])
                error.args = (*error.args[:-1], printable(error.message))
                error.hint = None if error.hint is None else printable(error.hint)
            raise error.with_traceback(None) from None


def is_session(value: object) -> bool:
    """Whether a value is a SparkSession, classic or Spark Connect."""
    return is_spark(value, "SparkSession")


def session_for(
    spark: SparkSession | None, call: str, first: object = None, own: SparkSession | None = None
) -> SparkSession:
    """Return the session of a call, whose version is supported.

    Parameters
    ----------
    spark : SparkSession or None
        The session that the caller passed, if any.
    call : str
        How the function is called, for errors.
    first : object
        The first argument of the caller, which is the data or the function.
    own : SparkSession, optional
        The session that the data come from: the default, if it runs. Otherwise the active session is.

    Raises
    ------
    InvalidType
        If ``spark`` is no session, ``first`` is one, or there is none.
    InvalidArgument
        If the session was stopped.
    MissingExtra
        If pyspark has a version that is not supported, or the workers of a local session have no shmarrow.
    """
    if is_session(first):
        raise InvalidType(f"the session is not the first argument, and is optional: call {call}")
    if spark is None:
        spark = own if own is not None and not is_stopped(own) else _active_session(call)
    if not is_session(spark):
        raise InvalidType(f"spark: expected a SparkSession, found {full_name(spark)}; call {call}")
    check_version()
    if is_stopped(spark):
        raise InvalidArgument("the Spark session has been stopped; pass one that runs")
    if not is_connect(spark):
        program = spark.sparkContext.pythonExec
        if is_local(spark) and program != sys.executable and not _has_package(program):
            raise _no_package(f", {program!r},")
        activate(spark)
    return spark


@cache
def _has_package(program: str) -> bool:
    """Whether a Python on this host finds this package, from where Spark's workers start."""
    code = "import sys, importlib.util; sys.exit(importlib.util.find_spec('shmarrow') is None)"
    try:
        return subprocess.run([program, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def _active_session(call: str) -> SparkSession:
    """Return the active session, or else the first one of this process; classic or Spark Connect.

    No session is active in a new thread, nor after an interrupt: it belongs to a JVM thread, as session tags do.
    """
    optional("pyspark.sql")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        raise InvalidType(f"no Spark session is active in this thread; pass one: {call}") from None
