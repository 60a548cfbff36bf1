"""Large objects of a store, and how long a process that waits for one is kept waiting."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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
    with huge_pages(3 * size) as directory:
        if directory is not None:
            _large_pages(bench, size, directory)


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


@contextmanager
def huge_pages(size: int) -> Iterator[Path | None]:
    """A tmpfs with huge pages, where this user may mount one."""
    with tempfile.TemporaryDirectory(prefix="shmarrow-bench-") as directory:
        words = ["mount", "-t", "tmpfs", "-o", f"size={size},huge=always,mode=0700", "tmpfs", directory]
        if subprocess.run(words, capture_output=True).returncode:
            yield None
            return
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True)


def _large_pages(bench: Bench, size: int, directory: Path) -> None:
    warm_memory(directory, 2 * size)
    ours, theirs = Large(directory / "store"), Written(directory / "theirs", size)
    text = f"{size >> 20:,} MiB, huge pages"
    put: dict[str, Operation] = {"shmarrow": lambda _: ours.put(size), "pyarrow": lambda _: theirs.put()}
    bench.row(f"put {text}", put, AS_FAST, 3, time=elapsed)
    fill: dict[str, Operation] = {"shmarrow": lambda _: ours.fill(size), "pyarrow": lambda _: theirs.fill()}
    bench.row(f"compute {text}", fill, faster(1.5), 3, time=elapsed)
    ours.store.close()


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


def idle(bench: Bench) -> None:
    """Processes that wait for other objects than those that are put."""
    path, count, puts = bench.scratch / "idle", 60, 2000
    store = sa.Store(path)

    def reader(say: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a process with handlers wakes up more often, for these
        mine = sa.Store(path)
        os.write(say, struct.pack("d", os.getpid()))
        mine.get(f"never-{os.getpid()}", timeout=3600)

    def put() -> float:
        before = time.thread_time()
        for _ in range(puts):
            store.put("unrelated", SMALL, overwrite=True)
        return time.thread_time() - before

    put()
    alone = put()
    with ExitStack() as stack:
        pids = [int(stack.enter_context(waiting(reader))()[0]) for _ in range(count)]
        time.sleep(2)  # all of them sleep by now
        before, start = [_used(pid) for pid in pids], time.perf_counter()
        time.sleep(5)
        after, seconds = [_used(pid) for pid in pids], time.perf_counter() - start
        checks = sum(switches for _, switches in after) - sum(switches for _, switches in before)
        bench.limit("a process that waits: checks per second", [checks / count / seconds], 1.2, "checks")
        before = [_used(pid) for pid in pids]
        more = put() - alone
        more += sum(used for used, _ in map(_used, pids)) - sum(used for used, _ in before)
        bench.limit(
            f"{count} processes that wait: what an unrelated put takes more, of all", [max(more, 0) / puts], 2e-4
        )
    store.destroy()


def _used(pid: int) -> tuple[float, int]:
    """The processor time of a process, in seconds, and how often it went to sleep."""
    seconds = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    status = Path(f"/proc/{pid}/status").read_text()
    return seconds, int(status.split("voluntary_ctxt_switches:")[1].split()[0])


PARTS = {"large": large, "wakes": wakes, "idle": idle}
