"""A large ``.arrow`` file in Spark SQL and in plain Python at the same time, both over the same pages of memory.

Spark reads the file in splits along its batches. ``sa.ipc.open_file`` maps it, whatever its size, and reads only the
pages that are looked at. So SQL finds what is odd, and the rows themselves are looked at without a Spark job.

Run it with ``python examples/explore.py [FILE]``; it needs ``pip install 'shmarrow[spark]'`` and Java 17.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from local_session import local_session

import shmarrow as sa

SCHEMA = sa.schema({"ride": sa.int64(), "day": sa.int32(), "distance": sa.float64(), "city": sa.string()})
CITIES = np.array(["Oslo", "Rome", "Turku"])


def write_rides(path: Path, batches: int, rows: int) -> None:
    """A file of rides in batches of so many rows; one of them, in the last batch but one, is far too long."""
    random = np.random.default_rng(3)
    with sa.ipc.new_file(path, SCHEMA) as writer:
        for number in range(batches):
            distance = random.exponential(8.0, rows)
            if number == batches - 2:
                distance[rows // 2] = 40_000.0
            columns = {
                "ride": np.arange(number * rows, (number + 1) * rows),
                "day": random.integers(0, 7, rows, "int32"),
                "distance": distance,
                "city": CITIES[random.integers(0, 3, rows)].tolist(),
            }
            writer.write(sa.record_batch(columns, schema=SCHEMA))


def summary(spark: Any, path: Path) -> list[tuple[str, int, float]]:
    """For each city the rides and the longest of them, by Spark SQL, which reads two of the columns."""
    rides = spark.read.format("shmarrow").schema("city string, distance double").load(str(path))
    found = rides.groupBy("city").agg({"*": "count", "distance": "max"}).orderBy("city")
    return [(row["city"], row["count(1)"], row["max(distance)"]) for row in found.collect()]


def around(path: Path, ride: int, rows: int = 2) -> sa.RecordBatch:
    """The rows before and after a ride, by plain Python: only their pages are read."""
    with sa.ipc.open_file(path) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            rides = batch["ride"].to_numpy()
            if rides[0] <= ride <= rides[-1]:
                at = int(np.searchsorted(rides, ride))
                return batch.slice(max(at - rows, 0), 2 * rows + 1)
    raise LookupError(f"there is no ride {ride}")


def longest(path: Path) -> int:
    """The longest ride, by numpy over the mapped file, one batch after another."""
    with sa.ipc.open_file(path) as reader:
        best = max((float(batch["distance"].to_numpy().max()), number) for number, batch in enumerate(reader))
        batch = reader.get_batch(best[1])
        return int(batch["ride"].to_numpy()[batch["distance"].to_numpy().argmax()])


def main() -> None:
    """Explore a file, made up if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder, "rides.arrow")
        if not path.exists():
            write_rides(path, batches=40, rows=100_000)
        spark = local_session(workers=2)
        for city, rides, distance in summary(spark, path):
            print(f"{city}: {rides:,} rides, the longest {distance:,.1f} km")
        spark.stop()
        print(around(path, longest(path)))


if __name__ == "__main__":
    main()
