"""A program: as many processes as are asked for read one file at the same time.

Arguments: a side of :data:`SIDES`, the file, the number of processes, and seconds. Prints the seconds for each read of
all processes together, and the memory (PSS) that the readers take above what they took before.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import time
from collections.abc import Callable
from typing import Any


def proportional() -> int:
    """Bytes of this process, where each page counts for its share."""
    with open("/proc/self/smaps_rollup") as file:
        found = re.search(r"^Pss:\s+(\d+) kB", file.read(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def ours(path: str) -> Callable[[], list[Any]]:
    import shmarrow as sa

    reader = sa.ipc.open_file(path)
    return lambda: [column.to_numpy() for column in reader.get_batch(0).columns]


def mapped(path: str) -> Callable[[], list[Any]]:
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(path))
    return lambda: [column.to_numpy() for column in reader.get_batch(0).columns]


def copied(path: str) -> Callable[[], list[Any]]:
    import pyarrow as pa

    with pa.OSFile(path) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    return lambda: [column.to_numpy() for column in batch.columns]


SIDES = {"shmarrow": ours, "pyarrow, memory_map": mapped, "pyarrow, copied": copied}


def read(side: str, path: str, say: int, gates: list[int], stop: int, seconds: float) -> None:
    """The work of one process: open the file, sum its columns once, then sum one after the other for some seconds."""
    rest = iter(gates)

    def together() -> None:
        os.write(say, b"r")
        os.read(next(rest), 1)

    together()  # all are there, so that what they share with their parent counts as little as it will
    before = proportional()
    together()
    columns = SIDES[side](path)
    total = sum(float(column.sum()) for column in columns())
    together()  # all have read everything
    memory = proportional() - before
    together()
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for column in columns():
            total += float(column.sum())
            count += 1
    os.write(stop, struct.pack("qqd", memory, count, total))
    os._exit(0)


def import_for(side: str, path: str) -> None:
    """Import what a side needs before the processes are forked, so that they share it; nothing is copied yet."""
    if side == "pyarrow, copied":
        import pyarrow as pa  # noqa: F401
    else:
        SIDES[side](path)()


def main(side: str, path: str, processes: int, seconds: float) -> None:
    import_for(side, path)
    (heard, say), (stopped, stop) = os.pipe(), os.pipe()
    gates = [os.pipe() for _ in range(4)]  # one for each wait, as a fast reader would take a token of a slow one
    children = []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            try:
                read(side, path, say, [ask for ask, _ in gates], stop, seconds)
            finally:
                os._exit(1)
        children.append(child)
    os.close(say)
    os.close(stop)
    for _, release in gates:
        for _ in range(processes):
            if not os.read(heard, 1):
                raise SystemExit("a reader ended early")
        os.write(release, b"g" * processes)
    answers = [struct.unpack("qqd", os.read(stopped, 24)) for _ in range(processes)]
    for child in children:
        os.waitpid(child, 0)
    print(seconds / sum(count for _, count, _ in answers), sum(memory for memory, _, _ in answers))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
