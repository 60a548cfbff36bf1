"""Distribution of the driver's objects to other hosts by Spark; workers do not import this.

Invariant: objects are distributed once, in the session in which they were made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidType
from shmarrow.segment import Segment
from shmarrow.spark import _pyspark
from shmarrow.spark.carriers import Carrier, InArtifacts, InBroadcast
from shmarrow.spark.home import Home
from shmarrow.spark.jobs import worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIGNMENT = 64
_SMALLEST = 1 << 16
"""Size in bytes from which pickle writes a bytes object behind a header of known size."""


def check_collected(value: object) -> None:
    """Reject a Spark DataFrame, which has an Arrow stream, too, but would be collected to the driver."""
    if any(each.__name__ == "DataFrame" and each.__module__.startswith("pyspark.") for each in type(value).__mro__):
        raise InvalidType(
            "this is a DataFrame of Spark: share(df) keeps its rows on the workers; pass df.toArrow() to collect it "
            "first"
        )


def carry(spark: SparkSession, home: Home, names: Sequence[str]) -> Sequence[Carrier]:
    """Distribute objects of the driver's store, and return their carriers, in order; none if all workers see it."""
    if not names or runs_here(spark, home):
        return ()
    store = home.store()
    segments = [store.attach(name) for name in names]
    if _pyspark.is_connect(spark):
        return in_artifacts(spark, dict(zip([name.replace("/", "-") for name in names], segments, strict=True)))
    return in_broadcast(spark.sparkContext, segments)


def in_broadcast(context: Any, segments: Sequence[Segment]) -> list[InBroadcast]:
    """Distribute objects to Spark's executors in one broadcast, each aligned to 64 bytes in its file.

    Where Spark encrypts its files, they cannot be mapped, and each worker loads a copy of its own.
    """
    token = os.urandom(16)
    starts, end = [], 0
    for segment in segments:
        starts.append(end)
        end += segment.size + -segment.size % ALIGNMENT
    before = bytes(-(_pyspark.pickled_offset(end) + len(token)) % ALIGNMENT) + token
    pieces = [part for each in segments for part in (each.data.data, bytes(-each.size % ALIGNMENT))]
    broadcast = context.broadcast(b"".join([before, *pieces, bytes(max(_SMALLEST - end, 0))]))
    return [InBroadcast(broadcast, token, start, each.size) for start, each in zip(starts, segments, strict=True)]


def in_artifacts(spark: Any, objects: Mapping[str, Segment]) -> list[InArtifacts]:
    """Distribute objects to the executors of a Spark Connect server, as session artifacts with these names."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="shmarrow-") as directory:
        paths = [os.path.join(directory, name) for name in objects]
        for path, segment in zip(paths, objects.values(), strict=True):
            if os.path.isabs(segment.location):
                os.symlink(segment.location, path)
            else:  # a small object, which has no file of its own
                with open(path, "wb") as file:
                    file.write(segment.data.data)
        spark.addArtifacts(*paths, file=True)
    return [InArtifacts(name, segment.size) for name, segment in objects.items()]


def runs_here(spark: SparkSession, home: Home) -> bool:
    """Whether all Python workers of a session see the driver's store, because they run on its host.

    For a Spark Connect session whose server runs in local mode, a job of one task finds out.
    """
    if not _pyspark.is_local(spark):
        return False
    if not _pyspark.is_connect(spark):
        return True
    with worker_errors():
        rows = spark.range(0, 1, 1, 1).mapInArrow(partial(_look, home), "seen boolean").collect()
    return bool(rows[0]["seen"])


def _look(home: Home, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"seen": [home.visible_store() is not None]})
