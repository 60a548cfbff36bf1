"""Large objects of a store, and how long a process that waits for one is kept waiting."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import posix_ipc
import pyarrow as pa
from harness.bench import Bench, Operation, elapsed, stop_watch, warm_memory
from harness.figures import AS_FAST, Faster, Point, faster, within

import shmarrow as sa
from suites._store_sides import SharedMemory

COLUMNS = 16
SMALL = np.ones(100)
AHEAD = Faster(1, "ahead")

# --- large objects ----------------------------------------------------------------------------------------------


def large(bench: Bench) -> None:
    """Put, fill and get of large objects."""
    size = 1 << 27 if bench.quick else 1 << 30
    text = f"{size >> 20:,} MiB"
    warm_memory(bench.scratch, 3 * size)
    ours, theirs = Large(bench.scratch / "store"), Written(bench.scratch / "theirs", size)
    put: dict[str, Operation] = {"shmarrow": lambda _: ours.put(size), "pyarrow": lambda _: theirs.put()}
    bench.row(f"put {text} of float64", put, AS_FAST, 3, time=elapsed)
    fill: dict[str, Operation] = {"shmarrow": lambda _: ours.fill(size), "pyarrow": lambda _: theirs.fill()}
    bench.row(f"compute {text} in place, beside computing and writing", fill, faster(1.5), 3, time=elapsed)
    for each, named in ((1 << 10, "1 KiB"), (1 << 20, "1 MiB"), (size, text)):
        _get_large(bench, ours, each, named)
    ours.store.close()


class Large:
    """A store into which large batches are put."""

    def __init__(self, path: Path) -> None:
        self.store = sa.Store(path)
        self._given: dict[int, Any] = {}

    def put(self, size: int) -> float:
        if size not in self._given:
            values = np.random.default_rng(0).random((COLUMNS, size // 8 // COLUMNS))
            self._given[size] = sa.record_batch({f"column_{i}": column for i, column in enumerate(values)})
        return stop_watch(lambda: self.store.put("x", self._given[size]), lambda: self.store.delete("x"))

    def fill(self, size: int) -> float:
        column = np.ones(size // 8 // COLUMNS)
        schema = sa.schema([(f"column_{i}", sa.float64()) for i in range(COLUMNS)])

        def compute() -> None:
            with self.store.new_draft("x", schema, len(column)) as draft:
                for number in range(COLUMNS):
                    np.multiply(column, number, out=draft[f"column_{number}"])

        return stop_watch(compute, lambda: self.store.delete("x"))


class Written:
    """The same, written as a file by pyarrow."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._names = [f"column_{i}" for i in range(COLUMNS)]
        self._column = np.ones(size // 8 // COLUMNS)
        values = np.random.default_rng(0).random((COLUMNS, size // 8 // COLUMNS))
        self._whole = pa.record_batch([pa.array(column) for column in values], self._names)

    def put(self) -> float:
        return stop_watch(lambda: self._write(self._whole), self._path.unlink)

    def fill(self) -> float:
        def compute() -> None:
            computed = [np.multiply(self._column, number) for number in range(COLUMNS)]
            self._write(pa.record_batch([pa.array(column) for column in computed], self._names))

        return stop_watch(compute, self._path.unlink)

    def _write(self, batch: Any) -> None:
        with pa.OSFile(str(self._path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)


def _get_large(bench: Bench, ours: Large, size: int, text: str) -> None:
    peer = SharedMemory(f"shmarrow-bench-{os.getpid()}-get-", (size // 8,))
    peer.put("x", np.ones(size // 8))
    ours.store.put("placed", np.ones(size // 8))
    try:
        sides: dict[str, Operation] = {
            "shmarrow": lambda _: ours.store.get("placed")[0],
            "shared_memory": lambda _: peer.get("x"),
        }
        point = Point("First value of an object of a store", "bytes", size)
        bench.row(f"have the first value of an array of {text}", sides, AHEAD, 20, block=20, point=point)
    finally:
        ours.store.delete("placed")
        peer.close()


# --- waiting ----------------------------------------------------------------------------------------------------


@contextmanager
def waiting(work: Callable[[int], None], form: str = "d") -> Iterator[Callable[[], tuple[Any, ...]]]:
    """A child that says, for each object that it has waited for, when it had its first value, and maybe more."""
    heard, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(say)
        finally:
            os._exit(1)
    try:
        yield lambda: struct.unpack(form, os.read(heard, struct.calcsize(form)))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(heard)
        os.close(say)


def wakes(bench: Bench) -> None:
    """From put to a process that waits."""
    path = bench.scratch / "wakes"
    store = sa.Store(path)
    peer = f"/shmarrow-bench-{os.getpid()}"
    semaphore = posix_ipc.Semaphore(peer, posix_ipc.O_CREX)
    turn = {"ours": 0, "theirs": 0}

    def our_reader(say: int) -> None:
        mine = sa.Store(path)
        for number in range(1_000_000):
            array = mine.get(f"m{number}", timeout=3600)
            assert array[0] == 1
            os.write(say, struct.pack("d", time.perf_counter()))

    def their_reader(say: int) -> None:
        for number in range(1_000_000):
            semaphore.acquire()
            memory = posix_ipc.SharedMemory(f"{peer}-{number}")
            mapped = mmap.mmap(memory.fd, memory.size)
            assert np.frombuffer(mapped, np.float64)[0] == 1
            os.write(say, struct.pack("d", time.perf_counter()))
            os.close(memory.fd)

    with waiting(our_reader) as our_answer, waiting(their_reader) as their_answer:

        def ours(_: Any) -> float:
            name = f"m{turn['ours']}"
            turn["ours"] += 1
            time.sleep(0.001)  # the reader waits by now
            start = time.perf_counter()
            store.put(name, SMALL)
            seconds = our_answer()[0] - start
            store.delete(name)
            return seconds

        def theirs(_: Any) -> float:
            time.sleep(0.001)
            start = time.perf_counter()
            memory = posix_ipc.SharedMemory(f"{peer}-{turn['theirs']}", posix_ipc.O_CREX, size=800)
            turn["theirs"] += 1
            os.pwrite(memory.fd, SMALL.tobytes(), 0)
            semaphore.release()
            seconds = their_answer()[0] - start
            memory.unlink()
            os.close(memory.fd)
            return seconds

        try:
            sides = {"shmarrow": ours, "semaphore": theirs}
            bench.row("put, until a process that waits has the first value", sides, within(2), 100, time=elapsed)
        finally:
            semaphore.unlink()
            with suppress(posix_ipc.ExistentialError):
                posix_ipc.unlink_shared_memory(f"{peer}-{turn['theirs'] - 1}")
    store.destroy()  # and what the killed reader left


PARTS = {"large": large, "wakes": wakes}
