"""The store: put, fill in place, get, wait, and many objects, beside the peers; run it with ``make bench``.

Objects that are timed are removed before the next, so all get memory that the host has backed before. For objects that
are only attached to, files with holes stand in: of what is not read, no page exists.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import posix_ipc
import pyarrow as pa
from _bench import AS_FAST, Bench, Faster, bench, faster, warm_memory, within

import shmarrow as sa
from shmarrow.codecs.kinds import mark
from shmarrow.ipc.tensor.encode import encode_tensor

COLUMNS = 16
AHEAD = Faster(1, "ahead")
NAMES = [f"column_{i}" for i in range(COLUMNS)]

try:
    import ray
except ImportError:
    ray = None


def elapsed(operation: Callable[[Any], float], given: Any) -> float:
    """The time of an operation that measures itself."""
    return operation(given)


# --- large objects ----------------------------------------------------------------------------------------------


def put(page: Bench, store: sa.Store, size: int, directory: Path, where: str = "") -> None:
    values = np.random.default_rng(0).random((COLUMNS, size // 8 // COLUMNS))
    mine = sa.record_batch(dict(zip(NAMES, values, strict=True)))
    theirs = pa.record_batch([pa.array(column) for column in values], NAMES)
    path = directory / "theirs"

    def ours(_: Any) -> float:
        start = time.perf_counter()
        store.put("x", mine)
        seconds = time.perf_counter() - start
        store.delete("x")
        return seconds

    def pyarrows(_: Any) -> float:
        start = time.perf_counter()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, theirs.schema) as writer:
            writer.write_batch(theirs)
        seconds = time.perf_counter() - start
        path.unlink()
        return seconds

    sides = {"shmarrow": ours, "pyarrow": pyarrows}
    if ray is not None:

        def rays(_: Any) -> float:
            start = time.perf_counter()
            kept = ray.put(values)
            seconds = time.perf_counter() - start
            del kept
            return seconds

        sides["ray"] = rays
    page.row(f"put {size >> 20:,} MiB of float64{where}", sides, AS_FAST, 3, time=elapsed)


def fill(page: Bench, store: sa.Store, size: int, directory: Path, where: str = "") -> None:
    rows = size // 8 // COLUMNS
    given = np.random.default_rng(0).random(rows)
    schema = sa.schema([(name, sa.float64()) for name in NAMES])
    path = directory / "theirs"

    def ours(_: Any) -> float:
        start = time.perf_counter()
        with store.create("x", schema, rows) as draft:
            for number, name in enumerate(NAMES):
                np.multiply(given, number, out=draft[name])
        seconds = time.perf_counter() - start
        store.delete("x")
        return seconds

    def pyarrows(_: Any) -> float:
        start = time.perf_counter()
        computed = [np.multiply(given, number) for number in range(COLUMNS)]
        batch = pa.record_batch([pa.array(column) for column in computed], NAMES)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        seconds = time.perf_counter() - start
        path.unlink()
        return seconds

    what = f"compute {size >> 20:,} MiB in place, beside computing and writing{where}"
    page.row(what, {"shmarrow": ours, "pyarrow": pyarrows}, faster(1.5), 3, time=elapsed)


# --- having -----------------------------------------------------------------------------------------------------


def place_holes(directory: Path, name: str, size: int) -> None:
    """An ndarray of zeros as an object of a store, without its pages."""
    stand_in = directory / ".holes"
    with stand_in.open("wb") as file:
        file.truncate(size)
    array = np.memmap(stand_in, np.float64, "r")
    plan = encode_tensor(sa.Tensor.from_numpy(array, metadata=mark("ndarray")))
    with (directory / name).open("wb") as file:
        file.write(plan.metadata)
        file.truncate(plan.size)
    (directory / name).chmod(0o400)
    stand_in.unlink()


@contextmanager
def peer_memory(name: str, size: int) -> Iterator[None]:
    memory = shared_memory.SharedMemory(name=name, create=True, size=size)
    try:
        yield
    finally:
        memory.close()
        memory.unlink()


def get(page: Bench, store: sa.Store, size: int, text: str) -> None:
    place_holes(Path(store.name), "x", size)
    peer = f"shmarrow-bench-{os.getpid()}"

    def ours(_: Any) -> Any:
        return store.get("x")[0]

    def theirs(_: Any) -> Any:
        memory = shared_memory.SharedMemory(name=peer)
        value = np.ndarray(size // 8, np.float64, memory.buf)[0]
        memory.close()
        return value

    with peer_memory(peer, size):
        sides = {"shmarrow": ours, "shared_memory": theirs}
        if ray is not None:
            kept = ray.put(np.zeros(size // 8)) if size < 1 << 28 else None
            sides |= {"ray": lambda _: ray.get(kept)[0]} if kept is not None else {}
        page.row(f"have the first value of an array of {text}", sides, AHEAD, 200, block=10)
    store.delete("x")


FIRST = """
import sys, time
from multiprocessing import shared_memory
import numpy as np, shmarrow as sa
sa.Store  # imported when it is first asked for, as shared_memory is above
start = time.perf_counter()
if sys.argv[1] == "shmarrow":
    value = sa.Store(sys.argv[2]).get("x")[0]
else:
    memory = shared_memory.SharedMemory(name=sys.argv[3])
    value = np.ndarray(1000, np.float64, memory.buf)[0]
seconds = time.perf_counter() - start
assert value == 0
print(seconds, flush=True)
from multiprocessing import resource_tracker
if sys.argv[1] != "shmarrow":
    resource_tracker.unregister(memory._name, "shared_memory")  # or it would remove what is not its own
"""


def get_first(page: Bench, store: sa.Store) -> None:
    place_holes(Path(store.name), "x", 8000)
    peer = f"shmarrow-bench-{os.getpid()}"

    def side(name: str) -> Callable[[Any], float]:
        words = [sys.executable, "-c", FIRST, name, store.name, peer]
        return lambda _: float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    with peer_memory(peer, 8000):
        sides = {name: side(name) for name in ("shmarrow", "shared_memory")}
        page.row("the same, the first one that a process has", sides, AHEAD, 4, time=elapsed)
    store.delete("x")


# --- waiting ----------------------------------------------------------------------------------------------------


@contextmanager
def waiting(work: Callable[[int], None]) -> Iterator[Callable[[], float]]:
    """A child that says, for each object that it has waited for, when it had its first value."""
    heard, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(say)
        finally:
            os._exit(1)
    try:
        yield lambda: struct.unpack("d", os.read(heard, 8))[0]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(heard)
        os.close(say)


def publish(page: Bench, store: sa.Store, turns: int) -> None:
    values = np.ones(100)
    peer = f"/shmarrow-bench-{os.getpid()}"
    semaphore = posix_ipc.Semaphore(peer, posix_ipc.O_CREX)
    numbers = {"ours": 0, "theirs": 0}

    def our_reader(say: int) -> None:
        for number in range(1_000_000):
            array = store.get(f"m{number}", timeout=3600)
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
            name, writer = store._start(f"m{numbers['ours']}", False, None)
            numbers["ours"] += 1
            sa.ipc.write_tensor(sa.Tensor.from_numpy(values, metadata=mark("ndarray")), writer)
            time.sleep(0.001)  # the reader waits by now
            start = time.perf_counter()
            writer.publish()
            seconds = our_answer() - start
            store.delete(name)
            return seconds

        def theirs(_: Any) -> float:
            memory = posix_ipc.SharedMemory(f"{peer}-{numbers['theirs']}", posix_ipc.O_CREX, size=800)
            numbers["theirs"] += 1
            os.pwrite(memory.fd, values.tobytes(), 0)
            time.sleep(0.001)
            start = time.perf_counter()
            semaphore.release()
            seconds = their_answer() - start
            memory.unlink()
            os.close(memory.fd)
            return seconds

        try:
            page.row(
                "publish, until a process that waits has the first value",
                {"shmarrow": ours, "semaphore": theirs},
                within(1.5),
                turns,
                time=elapsed,
            )
        finally:
            semaphore.unlink()
            with suppress(posix_ipc.ExistentialError):
                posix_ipc.unlink_shared_memory(f"{peer}-{numbers['theirs'] - 1}")


# --- many objects -----------------------------------------------------------------------------------------------


def many(page: Bench, count: int) -> None:
    few = 100
    stores = {number: sa.Store(page.scratch / f"of-{number}") for number in (few, count)}
    plan = encode_tensor(sa.Tensor.from_numpy(np.ones(8), metadata=mark("ndarray")))
    content = b"".join([plan.metadata, *map(bytes, plan.pieces)])
    for number, store in stores.items():
        for i in range(number):
            with sa.segment.create(Path(store.name) / f"object-{i:06d}") as writer:
                writer.write([content])
    choice = np.random.default_rng(0)
    batch = sa.record_batch({"x": np.ones(8)})

    def have(number: int) -> Callable[[Any], Any]:
        names = [f"object-{i:06d}" for i in choice.integers(0, number, 4096)]
        turn = iter(range(1 << 30))
        return lambda _: stores[number].get(names[next(turn) % len(names)])[0]

    def place(number: int) -> Callable[[Any], float]:
        turn = iter(range(1 << 30))
        store = stores[number]

        def placing(_: Any) -> float:
            name = f"new-{next(turn)}"
            start = time.perf_counter()
            store.put(name, batch)
            seconds = time.perf_counter() - start
            store.delete(name)
            return seconds

        return placing

    named = f"in a store of {count:,}"
    page.row(f"get by name {named}", {"shmarrow": have(count), f"in one of {few}": have(few)}, within(1.5), 2000)
    page.row(f"put {named}", {"shmarrow": place(count), f"in one of {few}": place(few)}, within(1.5), 500, time=elapsed)
    for store in stores.values():
        store.close()


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


def main() -> None:
    with bench("The store") as page:
        store = sa.Store(page.scratch / "store")
        size = 1 << 27 if page.quick else 1 << 30
        warm_memory(page.scratch, 3 * size)
        put(page, store, size, page.scratch)
        fill(page, store, size, page.scratch)
        with huge_pages(3 * size) as directory:
            if directory is not None:
                large = sa.Store(directory / "store")
                warm_memory(directory, 2 * size)
                put(page, large, size, directory, ", huge pages")
                fill(page, large, size, directory, ", huge pages")
                large.close()
        get_first(page, store)
        for each, text in ((1 << 10, "1 KiB"), (1 << 20, "1 MiB"), (1 << 30, "1 GiB"), (10 << 30, "10 GiB")):
            get(page, store, each, text)
        publish(page, store, 200)
        many(page, 10_000 if page.quick else 100_000)
        store.close()


if __name__ == "__main__":
    main()
