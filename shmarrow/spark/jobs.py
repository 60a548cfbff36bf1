"""Spark jobs: their sessions, and the translation of errors from workers."""

from __future__ import annotations

import errno
import re
import sys
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        persist(partial(cancel, tag))
        if interrupt is error:
            raise
        raise interrupt from None
    finally:
        with suppress(Exception):  # the session may be gone
            remove(tag)


def _interrupt_in(error: BaseException | None, outer: BaseException | None) -> BaseException | None:
    """Return the interrupt that an error is or that it hides; ``outer`` was being handled before.

    After Ctrl-C, Spark's own cleanup in the driver may fail, as :func:`persist` explains, and that error replaces the
    interrupt.
    """
    while isinstance(error, (Exception, GeneratorExit)) and error is not outer:
        error = error.__context__
    return None if error is outer else error


def persist(call: Callable[[], object]) -> None:
    """Make a call to the JVM that cleans up, perhaps after an interrupt: several times if necessary; raises no error.

    After an interrupt, py4j has the JVM close all connections, the new ones too. The JVM does so when its threads next
    read, so a call fails if that happens while it runs. A call that fails in Java itself is not repeated.
    """
    for attempt in range(ATTEMPTS):
        try:
            call()
            return
        except Exception as error:
            if hasattr(error, "java_exception") or hasattr(error, "_origin"):  # Java's, from py4j or converted by Spark
                return
        time.sleep(0.05 * attempt)


def raised_in_worker(error: BaseException) -> ShmarrowError | None:
    """Reconstruct the error of this package that made a job fail, from the text of its traceback."""
    found = _RAISED.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, ShmarrowError)):
        return None
    number = next((number for base, number in _ERRNOS.items() if issubclass(kind, base)), None)
    return kind(found[2]) if number is None else kind(number, found[2])


def is_session(value: object) -> bool:
    """Whether a value is a SparkSession, classic or Spark Connect, without importing Spark."""
    return any(
        each.__name__ == "SparkSession" and each.__module__.startswith("pyspark.") for each in type(value).__mro__
    )


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is a Spark Connect session, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def as_session(value: Any) -> SparkSession:
    """Check that a value is a running session; InvalidArgument if it was stopped, InvalidType for other types."""
    if not is_session(value):
        raise InvalidType(f"expected a SparkSession, found {full_name(value)}")
    session: SparkSession = value
    if is_stopped(session):
        raise InvalidArgument("the Spark session has been stopped; pass one that runs")
    return session


def is_stopped(session: SparkSession) -> bool:
    """Whether a session has been stopped, which removes all that Spark cached and distributed for it."""
    ended = session.is_stopped if is_connect(session) else session.sparkContext._jsc is None  # type: ignore[attr-defined]
    return bool(ended)


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
