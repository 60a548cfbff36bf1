"""The demo's readers: they attach to shared partitions, prove that nothing was copied, and compute.

:func:`main` is one reader, in a process of its own. It prints a line of JSON when it has computed; on a line to its
standard input it prints what its memory is charged with; at the end of its input it ends, so no reader outlives the
process that started it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

import shmarrow as sa

Range = tuple[int, int]


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


def mapped_ranges(names: Iterable[str]) -> dict[str, Range]:
    """Return the address ranges (start, end) at which the kernel has mapped objects in this process."""
    paths = {_path(name): name for name in names}
    found = {}
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            addresses, *_, path = line.rstrip("\n").split(maxsplit=5)
            if path in paths:
                start, end = addresses.split("-")
                found[paths[path]] = int(start, 16), int(end, 16)
    return found


def _path(name: str) -> str:
    return f"/dev/shm/{name.removeprefix('shm:')}" if name.startswith("shm:") else name


def buffers_of(array: Any) -> Iterator[Any]:
    """All buffers of an array and of its children that have bytes."""
    yield from (buffer for buffer in array.buffers() if buffer is not None and buffer.nbytes)
    for child in array.children:
        yield from buffers_of(child)


def charged(names: Iterable[str]) -> dict[str, int]:
    """Return ``Rss`` and ``Pss`` of this process's mappings of objects, in bytes.

    The kernel counts a page that n processes have mapped as a whole one in the resident set of each, and as one n-th of
    one in the proportional set of each.
    """
    paths = set(map(_path, names))
    sums = {"Rss": 0, "Pss": 0}
    counts = False
    with open("/proc/self/smaps", encoding="utf-8") as file:
        for line in file:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                counts = line.rstrip("\n").split(maxsplit=5)[-1] in paths
                continue
            key, _, value = line.partition(":")
            if counts and key in sums:
                sums[key] += int(value.split()[0]) << 10
    return sums


def main(names: list[str]) -> None:
    """Run one reader, as described at the top."""
    tables = [sa.ipc.open_file(name).read_all() for name in names]
    ranges = mapped_ranges(names)
    arrays = inside = touched = 0
    for name, table in zip(names, tables, strict=True):
        start, end = ranges[name]
        for batch in table.batches:
            for column in batch.columns:
                for buffer in buffers_of(column):
                    arrays += 1
                    inside += start <= buffer.address and buffer.address + buffer.nbytes <= end
                    touched += int(buffer.max())  # so that every page is mapped
    start, end = ranges[names[0]]
    first = tables[0].batches[0].column(0).to_numpy()
    said = {
        "pid": os.getpid(),
        "mapped": [start, end],
        "first": [first.ctypes.data, first.ctypes.data + first.nbytes],
        "buffers": arrays,
        "inside": inside,
        "trips": merged(found for table in tables for found in trips(table)),
    }
    print(json.dumps(said), flush=True)
    if sys.stdin.readline():
        print(json.dumps(charged(names)), flush=True)
        sys.stdin.read()
