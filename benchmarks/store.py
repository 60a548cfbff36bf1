"""The store, beside diskcache, ``multiprocessing.shared_memory`` and others: ``python benchmarks/store.py``.

Each group of rows has a name, and ``--rows`` chooses among them. All peers are set up in one run, on the same tmpfs,
and take turns with this package; what they need is in the extra ``bench``. Objects that are timed are removed before
the next, so all get memory that the host has backed before. ``--quick`` has a tenth of the objects; a million takes
some minutes to put. ``--before FOLDER`` compares large objects with another checkout of this package.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import posix_ipc
import pyarrow as pa
from _bench import AS_FAST, Bench, Faster, bench, duration, faster, warm_memory, within
from _store_processes import (
    COLUMNS,
    FIRST,
    FIRST_SHARED_MEMORY,
    HELD,
    Crowd,
    Worker,
    crowd,
    fresh,
    watch_lock,
    workers,
)
from _store_sides import LARGE, DiskCache, Lmdb, Opener, Ours, Redis, SharedMemory, Side, opened, redis_server

import shmarrow as sa

ROOT = Path(__file__).resolve().parent.parent
AHEAD = Faster(1, "ahead")
NO_WORSE = Faster(1 / 1.1, "no worse, to 10 %")
BLOCK = 4096
"""Bytes that a small object takes of a capacity."""


def elapsed(operation: Callable[[Any], float], given: Any) -> float:
    """The time of an operation that measures itself."""
    return operation(given)


def stop_watch(work: Callable[[], Any], afterwards: Callable[[], Any] = lambda: None) -> float:
    """Seconds of work, without what is to be done after it."""
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    del result
    afterwards()
    return seconds


def numbered(count: int, what: str = "object") -> list[str]:
    return [f"{what}-{number:07d}" for number in range(count)]


# --- small objects ----------------------------------------------------------------------------------------------

SMALL = np.ones(100)
SMALL_BATCH = sa.record_batch({f"c{number}": np.ones(20) for number in range(5)})
KINDS = {"an ndarray": (SMALL, "object"), "5 columns": (SMALL_BATCH, "batch")}


def small(page: Bench) -> None:
    """Put and get of 800 bytes."""
    for count in (10, 1000) if page.quick else (10, 1000, 10_000, 100_000):
        _small(page, count)


def _small(page: Bench, count: int) -> None:
    directory = page.scratch / f"small-{count}"
    directory.mkdir()
    names, batches = numbered(count), numbered(100, "batch")
    prefix = f"shmarrow-bench-{os.getpid()}-{count}-"
    room = 2 * BLOCK * (count + 10_000)
    ours: dict[str, Opener] = {
        "": partial(Ours, directory / "ours"),
        ", with a capacity": partial(Ours, directory / "limited", capacity=room),
        ", full": partial(Ours, directory / "full", capacity=BLOCK * count),
    }
    peers: dict[str, Opener] = {
        "diskcache": partial(DiskCache, directory / "diskcache"),
        "shared_memory": partial(SharedMemory, prefix, SMALL.shape),
        "shared_memory, untracked": partial(SharedMemory, f"{prefix}untracked-", SMALL.shape, False),
        "lmdb": partial(Lmdb, directory / "lmdb"),
    }
    with opened({**ours, **peers}.items()) as sides:
        for which, side in sides.items():
            given = SMALL if which in ours or "shared_memory" in which else SMALL.tobytes()
            side.fill(names, given)
            if which in ours and which != ", full":
                side.fill(batches, SMALL_BATCH)
            else:
                side.fill(batches, given)
        beside = {which: sides[which] for which in peers}
        for which in ours:
            _put_small(page, count, which, sides[which], beside)
        for which in list(ours)[:2]:
            _get_small(page, count, which, sides[which], beside, {"object": names, "batch": batches})


def _put_small(page: Bench, count: int, which: str, ours: Side, beside: dict[str, Side]) -> None:
    full = which == ", full"
    required = None if full else {"diskcache": AS_FAST, "shared_memory": within(2.5)}
    for kind, (value, _) in KINDS.items():

        def put(side: Side, value: Any, stays: bool, name: str) -> float:
            return stop_watch(lambda: side.put(name, value), lambda: None if stays else side.remove(name))

        sides = {"shmarrow": partial(put, ours, value, full)}
        for peer, side in beside.items():
            sides[peer] = partial(put, side, SMALL if "shared_memory" in peer else SMALL.tobytes(), False)
        what = f"put 800 bytes, {kind}, beside {count:,} names{which}{', evicting' if full else ''}"
        page.row(what, sides, required, 20, lambda number, kind=kind: f"new-{kind}-{number}", elapsed, 10)


def _get_small(
    page: Bench, count: int, which: str, ours: Side, beside: dict[str, Side], names: dict[str, list[str]]
) -> None:
    choice = random.Random(0)
    for kind, (_, prefix) in KINDS.items():
        assert isinstance(ours, Ours)
        ours.column = None if prefix == "object" else "c0"
        sides = {"shmarrow": ours.get, "shared_memory": beside["shared_memory"].get}
        sides |= {peer: side.get for peer, side in beside.items() if peer != "shared_memory"}
        what = f"get 800 bytes, {kind}, of {count:,} names{which}"
        page.row(what, sides, AS_FAST, 20, lambda _, prefix=prefix: choice.choice(names[prefix]), block=10)


# --- a crowd ----------------------------------------------------------------------------------------------------


def crowds(page: Bench) -> None:
    """8 readers and 4 writers."""
    directory = page.scratch / "crowds"
    directory.mkdir()
    names, value = numbered(200), np.ones(10_000)
    content = value.tobytes()
    ours = ("", ", with a capacity")
    with redis_server(directory / "redis") as socket:
        openers: dict[str, Opener] = {
            "shmarrow": partial(Ours, directory / "ours"),
            "diskcache": partial(DiskCache, directory / "diskcache"),
            "shmarrow, with a capacity": partial(Ours, directory / "limited", capacity=1 << 30),
            "lmdb": partial(Lmdb, directory / "lmdb"),
        }
        if socket is not None:
            openers["redis"] = partial(Redis, socket)
        given = {which: value if "shmarrow" in which else content for which in openers}
        for which, opener in openers.items():
            side = opener()
            side.fill(names, given[which])
            side.close()
        rounds: list[dict[str, Crowd]] = []
        for number in range(2 if page.quick else 5):
            order = list(openers) if number % 2 else list(openers)[::-1]
            seconds = 1 if page.quick else 3
            rounds.append({each: crowd(openers[each], names, given[each], seconds, directory) for each in order})

    def report(what: str, limited: str, field: str, show: Callable[[float], str]) -> None:
        which = [f"shmarrow{limited}", *[each for each in openers if "shmarrow" not in each]]
        required = {each: AHEAD for each in which if each in ("diskcache", "redis")}
        rows = [{each: [getattr(turn[each], field)] for each in which} for turn in rounds]
        page.report(f"8 readers, 4 writers, 80 kB: {what}{limited}", rows, required, show)

    for limited in ours:
        report("gets", limited, "get", rate)
        report("puts", limited, "put", rate)
        report("99th percentile of put", limited, "put_p99", duration)


def rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f}/s"


# --- many objects -----------------------------------------------------------------------------------------------


class Stores:
    """Stores of many small objects, made when they are first asked for, and kept."""

    def __init__(self, page: Bench) -> None:
        self._page = page
        self._made: dict[int, Ours] = {}

    def of(self, count: int) -> Ours:
        """A store with so many ndarrays of 800 bytes, and a capacity that is never reached."""
        if count not in self._made:
            start = time.perf_counter()
            self._made[count] = side = Ours(self._page.scratch / f"of-{count}", capacity=LARGE)
            side.fill(numbered(count), SMALL)
            self._page.limit(f"make a store of {count:,} objects", [time.perf_counter() - start], None, duration)
        return self._made[count]

    def close(self) -> None:
        for side in self._made.values():
            side.close()


def first(page: Bench, stores: Stores) -> None:
    """The first get of a fresh process."""
    counts = (1, 10_000, 100_000) if page.quick else (1, 100_000, 1_000_000)
    imports: list[float] = []

    def have(program: str, *words: str) -> float:
        seconds, imported = fresh(program, *words)
        if program == FIRST:
            imports.append(imported)
        return seconds

    peer = SharedMemory(f"shmarrow-bench-{os.getpid()}-first-", SMALL.shape)
    peer.put("x", SMALL)
    places = {count: Path(stores.of(count).store.name) for count in counts}
    try:
        for count in counts[1:]:
            name = numbered(count)[count // 2]
            sides: dict[str, Callable[[Any], float]] = {
                "shmarrow": lambda _, count=count, name=name: have(FIRST, str(places[count]), name),
                "of 1": lambda _: have(FIRST, str(places[1]), numbered(1)[0]),
                "shared_memory": lambda _: have(FIRST_SHARED_MEMORY, peer.prefix + "x"),
            }
            what = f"open, and get in a fresh process, of {count:,} objects, without the imports"
            page.row(what, sides, within(1.5), 5, time=elapsed)
    finally:
        peer.close()
    page.limit("the imports before that", imports, None, duration)


def locks(page: Bench, stores: Stores) -> None:
    """The longest time that the commit lock is held."""
    count = 100_000 if page.quick else 1_000_000
    side = stores.of(count)
    store, path = side.store, Path(side.store.name) / "commit"
    if not path.exists():
        return
    turn, tens = iter(range(1 << 30)), iter(range(1, 10))
    large = np.ones(1 << 23)
    names, last = numbered(200), numbered(count)[-200:]
    thousand = [f"many/{number}" for number in range(1000)]

    def many(operation: Callable[[str], object]) -> Callable[[], None]:
        return lambda: [operation(name) for name in names] and None

    operations: dict[str, Callable[[], object]] = {
        "put": lambda: [store.put(f"new-{next(turn)}", SMALL) for _ in range(200)],
        "put, replacing": many(lambda name: store.put(name, SMALL, overwrite=True)),
        "put_many": lambda: store.put_many(dict.fromkeys(thousand, SMALL), overwrite=True),
        "get": many(store.get),
        "rename": many(lambda name: (store.rename(name, "renamed"), store.rename("renamed", name))),
        "expire_after": many(lambda name: store.expire_after(name, 3600)),
        "evict(1)": lambda: [store.evict(1) for _ in range(20)],
        "evict of 1,000 objects": lambda: store.evict(1000 * BLOCK),
        "reserve": lambda: store.reserve(1 << 20),
        "stats": store.stats,
        "watch": lambda: store.watch().close(),
        "names": store.names,
        "scan": lambda: sum(1 for _ in store.scan()),
        "collect": store.collect,
        "delete": lambda: ([store.delete(name) for name in last], side.fill(last, SMALL)),
        "delete(prefix=) of 1,000": lambda: (
            store.put_many(dict.fromkeys(thousand, SMALL), overwrite=True),
            store.delete(prefix="many/"),
        ),
        "delete(prefix=) of 10,000": lambda: store.delete(prefix=f"object-00{next(tens)}"),
        "put and delete of 64 MiB": lambda: (store.put("large", large), store.delete("large")),
    }

    longest: dict[str, float] = {}
    for name, operation in operations.items():
        seen = [watch_lock(path, operation) for _ in range(3)]
        holds = [each.longest for each in seen]
        # What an operation does is in all turns; what other load adds, by which a holder loses its processor, is not.
        longest[name] = min(holds)
        text = f"the lock is held by {name}, of {count:,} objects; up to {duration(max(holds))} with other load"
        page.limit(text, [longest[name]], 0.02, duration)
    most = max(longest, key=lambda name: longest[name])
    page.limit(f"the longest of these: {most}", [longest[most]], 0.02, duration)


def listings(page: Bench, stores: Stores) -> None:
    """Evict, stats and watches, beside LMDB's listing."""
    count = 10_000 if page.quick else 100_000
    side = stores.of(count)
    store = side.store
    peer = Lmdb(page.scratch / "listed")
    peer.fill(numbered(count), SMALL.tobytes())
    turn = iter(range(1 << 30))

    def evict(_: Any) -> float:
        return stop_watch(lambda: store.evict(1), lambda: store.put(f"new-{next(turn)}", SMALL))

    def watch(_: Any) -> float:
        start = time.perf_counter()
        watch = store.watch()
        seconds = time.perf_counter() - start
        watch.close()
        return seconds

    operations = {
        "evict(1)": (evict, within(3)),
        "stats()": (lambda _: stop_watch(store.stats), within(3)),
        "watch()": (watch, within(3)),
        "names()": (lambda _: stop_watch(store.names), None),
        "collect()": (lambda _: stop_watch(store.collect), None),
    }
    for name, (operation, required) in operations.items():
        sides = {"shmarrow": operation, "lmdb's names": lambda _: stop_watch(peer.names)}
        page.row(f"{name} of {count:,} objects", sides, required, 5, time=elapsed)
    peer.close()


def held(page: Bench, stores: Stores) -> None:
    """Objects held with few descriptors."""
    store = stores.of(10_000).store
    for operation in ("get", "attach"):
        found = fresh(HELD, store.name, operation, "5000")
        page.limit(
            f"objects held by {operation} with 1,024 descriptors, of 5,000", found, 900, "{:,.0f}".format, at_least=True
        )


# --- large objects ----------------------------------------------------------------------------------------------


def large(page: Bench) -> None:
    """Put, fill and get of large objects."""
    size = 1 << 27 if page.quick else 1 << 30
    text = f"{size >> 20:,} MiB"
    warm_memory(page.scratch, 3 * size)
    checkouts = {"shmarrow": (ROOT, page.scratch / "new")}
    if page.options.before is not None:
        checkouts["before"] = (page.options.before.resolve(), page.scratch / "old")
    with workers(**checkouts) as started:
        put = {name: partial(_task, worker, "put", size) for name, worker in started.items()}
        fill = {name: partial(_task, worker, "fill", size) for name, worker in started.items()}
        put["pyarrow"], fill["pyarrow"] = _pyarrow(size, page.scratch / "theirs")
        before = {"before": NO_WORSE} if "before" in started else {}
        page.row(f"put {text} of float64", put, {**before, "pyarrow": AS_FAST}, 3, time=elapsed)
        what = f"compute {text} in place, beside computing and writing"
        page.row(what, fill, {**before, "pyarrow": faster(1.5)}, 3, time=elapsed)
        for each, named in ((1 << 10, "1 KiB"), (1 << 20, "1 MiB"), (size, text)):
            _get_large(page, started, each, named)
    with huge_pages(3 * size) as directory:
        if directory is not None:
            _large_pages(page, size, directory)


def _task(worker: Worker, task: str, size: int, _: Any) -> float:
    return worker(task, size)


def _pyarrow(size: int, path: Path) -> tuple[Callable[[Any], float], Callable[[Any], float]]:
    names = [f"column_{i}" for i in range(COLUMNS)]
    rows = size // 8 // COLUMNS
    given = np.random.default_rng(0).random(rows)
    whole = pa.record_batch([pa.array(given * number) for number in range(COLUMNS)], names)

    def write(batch: pa.RecordBatch) -> None:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)

    def compute() -> None:
        computed = [np.multiply(given, number) for number in range(COLUMNS)]
        write(pa.record_batch([pa.array(column) for column in computed], names))

    return lambda _: stop_watch(lambda: write(whole), path.unlink), lambda _: stop_watch(compute, path.unlink)


def _get_large(page: Bench, started: dict[str, Worker], size: int, text: str) -> None:
    peer = SharedMemory(f"shmarrow-bench-{os.getpid()}-get-", (size // 8,))
    peer.put("x", np.ones(size // 8))

    def theirs(_: Any) -> float:
        return float(np.median([stop_watch(lambda: peer.get("x")) for _ in range(200)]))

    try:
        for worker in started.values():
            worker("place", size)
        sides = {name: partial(_task, worker, "get", size) for name, worker in started.items()}
        sides["shared_memory"] = theirs
        required = {"before": NO_WORSE} if "before" in started else {}
        what = f"have the first value of an array of {text}"
        page.row(what, sides, {**required, "shared_memory": AHEAD}, 20, time=elapsed)
    finally:
        for worker in started.values():
            worker("remove", size)
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


def _large_pages(page: Bench, size: int, directory: Path) -> None:
    warm_memory(directory, 2 * size)
    put, fill = _pyarrow(size, directory / "theirs")
    with workers(shmarrow=(ROOT, directory / "store")) as started:
        for task, theirs, required in (("put", put, AS_FAST), ("fill", fill, faster(1.5))):
            sides = {"shmarrow": partial(_task, started["shmarrow"], task, size), "pyarrow": theirs}
            page.row(f"{task} {size >> 20:,} MiB, huge pages", sides, required, 3, time=elapsed)


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


def wakes(page: Bench) -> None:
    """From put to a process that waits."""
    path = page.scratch / "wakes"
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
            seconds = our_answer() - start
            store.delete(name)
            return seconds

        def theirs(_: Any) -> float:
            time.sleep(0.001)
            start = time.perf_counter()
            memory = posix_ipc.SharedMemory(f"{peer}-{turn['theirs']}", posix_ipc.O_CREX, size=800)
            turn["theirs"] += 1
            os.pwrite(memory.fd, SMALL.tobytes(), 0)
            semaphore.release()
            seconds = their_answer() - start
            memory.unlink()
            os.close(memory.fd)
            return seconds

        try:
            sides = {"shmarrow": ours, "semaphore": theirs}
            page.row("put, until a process that waits has the first value", sides, None, 100, time=elapsed)
        finally:
            semaphore.unlink()
            with suppress(posix_ipc.ExistentialError):
                posix_ipc.unlink_shared_memory(f"{peer}-{turn['theirs'] - 1}")
    store.close()


# --- all of it --------------------------------------------------------------------------------------------------


def lines(page: Bench) -> None:
    """The size of the package's part for stores."""
    counted = sum(len(path.read_text().splitlines()) for path in (ROOT / "shmarrow/store").glob("*.py"))
    page.limit("lines in shmarrow/store", [counted], 2000, "{:,}".format)


GROUPS: dict[str, Callable[..., None]] = {
    "small": small,
    "crowd": crowds,
    "large": large,
    "wake": wakes,
    "held": held,
    "listings": listings,
    "first": first,
    "locks": locks,
    "lines": lines,
}
OF_MANY = (held, listings, first, locks)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="NAME", help=", ".join(GROUPS)
    )
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="another checkout, beside which large objects are timed"
    )


def main() -> None:
    with bench("The store", add_options) as page:
        stores = Stores(page)
        for name, group in GROUPS.items():
            if name in page.options.rows:
                group(page, stores) if group in OF_MANY else group(page)
        stores.close()


if __name__ == "__main__":
    main()
