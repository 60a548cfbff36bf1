# SPDX-License-Identifier: Apache-2.0
"""All uses of undocumented parts of pyspark, each with its purpose and a fallback where it is missing.

Nothing else in this package uses names of pyspark that begin with an underscore, or its undocumented modules. Most of
these functions do without what is missing, as their docstrings say.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidType, MissingExtra, optional, shown

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

OLDEST, NEXT = (4, 1), (5, 0)
"""The oldest version of pyspark that is supported, and the first later one that is not."""


def check_version() -> None:
    """Check the version of pyspark.

    Raises
    ------
    MissingExtra
        If it is not installed, or not supported; names its version.
    """
    version: str = optional("pyspark").__version__
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= found < NEXT:
        needed = f"{OLDEST[0]}.{OLDEST[1]} or newer, below {NEXT[0]}"
        raise MissingExtra(f"shmarrow.spark needs pyspark {needed}, found pyspark {version}")


def is_spark(value: object, name: str) -> bool:
    """Whether a value is of the class of Spark of this name, classic or Spark Connect, without importing Spark."""
    return any(each.__name__ == name and each.__module__.startswith("pyspark.") for each in type(value).__mro__)


def is_connect(session: SparkSession) -> bool:
    """Whether a session is a Spark Connect session, which has no SparkContext, by the name of its module."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_stopped(session: SparkSession) -> bool:
    """Whether a session has been stopped, which removes all that Spark cached and distributed for it.

    Without ``SparkContext._jsc``, a classic session counts as running, and Spark's own errors say that it is not.
    """
    if is_connect(session):
        return bool(session.is_stopped)  # type: ignore[attr-defined]
    return getattr(session.sparkContext, "_jsc", session) is None


def parallelism(session: SparkSession) -> int:
    """Return Spark's default parallelism, without running a job; 1 on Connect if its plans do not say it."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    explain = getattr(session.range(1 << 20), "_explain_string", str)
    found = re.search(r"splits=(\d+)", explain())  # the plan has as many partitions
    return int(found[1]) if found else 1


def activate(session: SparkSession) -> None:
    """Make a classic session the active one of this thread, if it has none: there Spark looks for Python data sources.

    Without the names that are used here, writes from such a thread do not find them.
    """
    if type(session).getActiveSession() is None:
        with suppress(AttributeError, TypeError):
            jvm: Any = session._jvm
            jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def cluster_session() -> SparkSession | None:
    """Return the active session, classic or Connect, if its workers may run on other hosts."""
    module = sys.modules.get("pyspark.sql")
    session = None if module is None else module.SparkSession.getActiveSession()
    return None if session is None or is_stopped(session) or is_local(session) else session


def is_local(session: SparkSession) -> bool:
    """Whether all workers of a session run on the host of its Spark; False on servers that do not say so."""
    try:
        master = session.conf.get("spark.master") if is_connect(session) else session.sparkContext.master
    except Exception:  # some servers do not expose their settings
        return False
    return master is not None and (master == "local" or master.startswith("local["))


def pickled(value: Any, take: Any, reduce: Any) -> bytes:
    """Pickle a value as Spark pickles functions.

    Parameters
    ----------
    value : object
        The value.
    take : callable
        Gets its buffers, as the ``buffer_callback`` of pickle.
    reduce : callable
        Reduces an object, as ``__reduce__`` does, or returns NotImplemented.
    """
    from io import BytesIO

    from pyspark import cloudpickle

    base: Any = cloudpickle.CloudPickler

    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, each: Any) -> Any:
            found = reduce(each)
            return super().reducer_override(each) if found is NotImplemented else found

    file = BytesIO()
    pickler: Any = Pickler
    pickler(file, protocol=5, buffer_callback=take).dump(value)
    return file.getvalue()


def run_daemon() -> None:
    """Run Spark's own daemon, which the module in ``spark.python.daemon.module`` replaces."""
    from pyspark.daemon import manager

    manager()


# --- broadcasts -------------------------------------------------------------------------------------------------


def pickled_offset(size: int) -> int:
    """Return the offset, in the file of a broadcast, of the first byte of a bytes object of 64 KiB or more.

    If a version writes it elsewhere, objects in the file are still found, but not aligned.
    """
    import pickle

    sample = bytes([1]) * (1 << 16)
    return pickle.dumps(sample, pickle.HIGHEST_PROTOCOL).index(sample) + (4 if size >= 1 << 32 else 0)


def file_of(broadcast: Broadcast[bytes]) -> str | None:
    """Return the file of a broadcast's pickle in this process; None if it is encrypted, or there is no ``_path``.

    Then the value is loaded in each worker, as Spark does.
    """
    loaded = hasattr(broadcast, "_value")
    return None if loaded else getattr(broadcast, "_path", None)


def is_loaded(broadcast: Broadcast[bytes]) -> bool:
    """Whether this worker has a broadcast, as Spark says before each task; True if pyspark keeps no list of them."""
    module = sys.modules.get("pyspark.core.broadcast")
    registry = getattr(module, "_broadcastRegistry", None)
    return registry is None or broadcast in registry.values()


def forget(broadcast: Broadcast[bytes]) -> None:
    """Keep later jobs from sending a broadcast that was pickled outside of a job and is about to be destroyed.

    Without pyspark's list of these, such a job fails, and the next one works.
    """
    registry = getattr(getattr(broadcast, "_pickle_registry", None), "_registry", None)
    if registry is not None:
        registry.discard(broadcast)


# --- types ------------------------------------------------------------------------------------------------------


def arrow_schema(schema: Any, timezone: str = "UTC", large: bool = False) -> pa.Schema:
    """Return the Arrow schema that Spark has for a ``StructType`` in Python.

    Parameters
    ----------
    schema : StructType
        The Spark schema.
    timezone : str
        The time zone of timestamps.
    large : bool
        Whether strings and binaries have offsets of 64 bits.

    Raises
    ------
    InvalidType
        If Spark has no Arrow type for one of its types; names the column.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException

    fields: list[pa.Field] = []
    for field in schema:
        try:
            fields += _arrow_schema(type(schema)([field]), timezone, large)
        except PySparkException:
            raise InvalidType(
                f"column {shown(field.name)}: Spark's Arrow code has no type for {field.dataType.simpleString()}"
            ) from None
    return pa.schema(fields)


def _arrow_schema(schema: Any, timezone: str, large: bool) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    given: dict[str, Any] = {"error_on_duplicated_field_names_in_struct": True, "prefers_large_types": large}
    try:
        made: pa.Schema = to_arrow_schema(schema, timezone=timezone, **given)
    except TypeError:  # before 4.2: always UTC
        made = to_arrow_schema(schema, **given)
    return made


# --- data sources -----------------------------------------------------------------------------------------------


def task() -> tuple[int, str | None, str | None]:
    """The partition of this task, and in a streaming query its id, which restarts share, and the number of the batch.

    Without the names of these properties, streams are not written.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # it runs in a task
    query, batch = [context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId")]
    return context.partitionId(), query, batch
