"""The readers of ``demo.py``: they attach to shared partitions, compute, and tell what that takes of the memory.

:func:`main` is one reader, in a process of its own. It prints a line of JSON when it has computed; on a line to its
standard input it prints what its memory is charged with; at the end of its input it ends, so no reader outlives the
process that started it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

import shmarrow as sa


class Trips(NamedTuple):
    """Totals for one airport of departure; integers, so equal means equal.

    Attributes
    ----------
    origin : str
        The airport.
    flights : int
        Rows.
    arrived : int
        Rows whose delay on arrival is not null.
    delay : int
        Sum of these delays, in minutes.
    miles : int
        Sum of distances.
    last : int
        The last scheduled hour of departure, in microseconds since 1970.
    """

    origin: str
    flights: int
    arrived: int
    delay: int
    miles: int
    last: int


def trips(table: sa.Table) -> list[Trips]:
    """The trips of one table: grouped by numpy, over arrays that lie in shared memory."""
    return merged(found for batch in table.batches for found in _trips_of(batch))


def _trips_of(batch: sa.RecordBatch) -> Iterator[Trips]:
    origin = batch["origin"].dictionary_encode()
    codes = origin.indices.values
    columns: list[Any] = [batch[name] for name in ("arr_delay", "distance", "time_hour")]
    delay, distance, hour = [column.values for column in columns]
    arrived = np.asarray(batch["arr_delay"].is_valid())
    for code, name in enumerate(origin.dictionary.to_pylist()):
        rows = codes == code
        known = rows & arrived
        yield Trips(
            name,
            flights=int(rows.sum()),
            arrived=int(known.sum()),
            delay=int(delay[known].sum(dtype=np.int64)),
            miles=int(distance[rows].sum(dtype=np.int64)),
            last=int(hour[rows].max()),
        )


def merged(parts: Iterable[Trips]) -> list[Trips]:
    """Trips of several tables, one for each airport, in the order of their names."""
    known: dict[str, Trips] = {}
    for part in parts:
        have = known.get(part.origin)
        known[part.origin] = part if have is None else _added(have, part)
    return [known[name] for name in sorted(known)]


def _added(one: Trips, two: Trips) -> Trips:
    return Trips(
        one.origin,
        flights=one.flights + two.flights,
        arrived=one.arrived + two.arrived,
        delay=one.delay + two.delay,
        miles=one.miles + two.miles,
        last=max(one.last, two.last),
    )


def charged() -> dict[str, int]:
    """The shared memory that this process has mapped, in bytes.

    The kernel counts a page that n processes have mapped as a whole one in the resident set (``Rss``) of each, and as
    one n-th of one in the proportional set (``Pss``) of each.
    """
    return {
        "Rss": _kibibytes("/proc/self/status", "RssShmem:") << 10,
        "Pss": _kibibytes("/proc/self/smaps_rollup", "Pss_Shmem:") << 10,
    }


def _kibibytes(path: str, field: str) -> int:
    with open(path, encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


def main(names: list[str]) -> None:
    """Run one reader, as described at the top."""
    tables = [sa.ipc.open_file(name).read_all() for name in names]
    for table in tables:
        for batch in table.batches:
            for column in batch.columns:
                for buffer in column.buffers():
                    if buffer is not None and buffer.nbytes:
                        buffer.max()  # so that every page is mapped
    print(json.dumps(merged(found for table in tables for found in trips(table))), flush=True)
    if sys.stdin.readline():
        print(json.dumps(charged()), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
