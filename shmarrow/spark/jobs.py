"""Spark jobs: their sessions, and the translation of errors from workers."""

from __future__ import annotations

import errno
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from shmarrow import errors
from shmarrow.errors import (
    InvalidArgument,
    InvalidType,
    ObjectExists,
    ObjectNotFound,
    ShmarrowError,
    StorageError,
    StoreFull,
    full_name,
)
from shmarrow.optional import optional
from shmarrow.spark._pyspark import check_version, is_connect, is_from_java, is_spark, is_stopped, parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RAISED = re.compile(r"^shmarrow\.errors\.(\w+): (.*)", re.MULTILINE)
_ERRNOS = {ObjectNotFound: errno.ENOENT, ObjectExists: errno.EEXIST, StoreFull: errno.ENOSPC, StorageError: errno.EIO}

ATTEMPTS = 5
"""Calls to the JVM after an interrupt. Each of the few threads that are told to close its connections does so once."""


@contextmanager
def worker_errors() -> Iterator[None]:
    """Re-raise an error of this package that made a job fail in a worker."""
    try:
        yield
    except ShmarrowError:
        raise
    except Exception as error:
        own = raised_in_worker(error)
        if own is None:
            raise
        raise own from error


@contextmanager
def cancelled_with(spark: SparkSession, tag: str) -> Iterator[None]:
    """Cancel the jobs of the block on an interrupt; Spark would let them continue."""
    if is_connect(spark):
        add, cancel, remove = spark.addTag, spark.interruptTag, spark.removeTag
    else:  # session tags belong to a JVM thread, and an interrupt closes the connection to it
        context: Any = spark.sparkContext
        add, cancel, remove = context.addJobTag, context.cancelJobsWithTag, context.removeJobTag
    outer = sys.exception()
    add(tag)
    try:
        yield
    except BaseException as error:
        interrupt = _interrupt_in(error, outer)
        if interrupt is None:
            raise
        insist(partial(cancel, tag))
        if interrupt is error:
            raise
        raise interrupt from None
    finally:
        with suppress(Exception):  # the session may be gone
            remove(tag)


def _interrupt_in(error: BaseException | None, outer: BaseException | None) -> BaseException | None:
    """Return the interrupt that an error is or that it hides; ``outer`` was being handled before.

    After Ctrl-C, Spark's own cleanup in the driver may fail, as :func:`insist` explains, and that error replaces the
    interrupt.
    """
    while isinstance(error, (Exception, GeneratorExit)) and error is not outer:
        error = error.__context__
    return None if error is outer else error


def insist(call: Callable[[], object]) -> None:
    """Make a call to the JVM that cleans up, perhaps after an interrupt: several times if necessary; raises no error.

    After an interrupt, py4j has the JVM close all connections, the new ones too. The JVM does so when its threads next
    read, so a call fails if that happens while it runs. A call that fails in Java itself is not repeated.
    """
    for attempt in range(ATTEMPTS):
        try:
            call()
            return
        except Exception as error:
            if is_from_java(error):
                return
        time.sleep(0.05 * attempt)


PATIENCE = 10.0
"""Seconds for which a removal on other hosts is waited for."""


def on_workers(spark: SparkSession, function: Callable[[], object], rows: DataFrame | None = None) -> None:
    """Call a function in the tasks of a DataFrame, and wait up to 10 seconds.

    By default, in many short tasks, so that most hosts with workers run one: there is no way to ask Spark for a task on
    each host.
    """

    def run() -> None:
        count = 4 * parallelism(spark)
        df = spark.range(0, count, 1, count) if rows is None else rows
        df.mapInArrow(partial(_call, function, rows is None), "n int").collect()

    thread = threading.Thread(target=partial(insist, run), name="shmarrow-workers", daemon=True)
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


def is_session(value: object) -> bool:
    """Whether a value is a SparkSession, classic or Spark Connect."""
    return is_spark(value, "SparkSession")


def as_session(value: Any) -> SparkSession:
    """Check that a value is a running session of a supported version.

    Raises
    ------
    InvalidType
        If it is anything else.
    InvalidArgument
        If it was stopped.
    MissingExtra
        If pyspark has a version that is not supported.
    """
    if not is_session(value):
        raise InvalidType(f"expected a SparkSession, found {full_name(value)}")
    session: SparkSession = value
    check_version()
    if is_stopped(session):
        raise InvalidArgument("the Spark session has been stopped; pass one that runs")
    return session


def active_session() -> SparkSession:
    """Return the active session, or else the first one of this process; classic or Spark Connect.

    No session is active in a new thread, nor after an interrupt: it belongs to a JVM thread, as session tags do.
    """
    optional("pyspark.sql")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        raise InvalidType("no Spark session is active; pass one") from None
