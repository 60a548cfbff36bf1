"""The store, beside diskcache, ``multiprocessing.shared_memory`` and LMDB.

All peers are on the same tmpfs and take turns with this package. Objects that are timed are removed before the next, so
all get memory that the host has backed before.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from harness.bench import Bench, Operation, elapsed, stop_watch
from harness.figures import Faster, Point, within
from harness.memory import fresh

import shmarrow as sa
from suites._store_processes import FIRST, FIRST_SHARED_MEMORY, Crowd, crowd
from suites._store_sides import LARGE, DiskCache, Lmdb, Opener, Ours, SharedMemory, Side, opened

AHEAD = Faster(1, "ahead")
BLOCK = 4096
"""Bytes that a small object takes of a capacity."""


def numbered(count: int, what: str = "object") -> list[str]:
    return [f"{what}-{number:07d}" for number in range(count)]


# --- small objects ----------------------------------------------------------------------------------------------

SMALL = np.ones(100)
SMALL_BATCH = sa.record_batch({f"c{number}": np.ones(20) for number in range(5)})
KINDS = {"an ndarray": (SMALL, "object"), "5 columns": (SMALL_BATCH, "batch")}
REQUIRED = {"diskcache": AHEAD, "shared_memory": AHEAD, "lmdb": within(5)}


def small(bench: Bench) -> None:
    """Put and get of 800 bytes."""
    for count in (10, 1000) if bench.quick else (10, 1000, 100_000):
        _small(bench, count)


def _small(bench: Bench, count: int) -> None:
    directory = bench.scratch / f"small-{count}"
    directory.mkdir()
    names, batches = numbered(count), numbered(100, "batch")
    prefix = f"shmarrow-bench-{os.getpid()}-{count}-"
    ours: dict[str, Opener] = {"": partial(Ours, directory / "ours")}
    if count <= 1000:
        ours[", full"] = partial(Ours, directory / "full", capacity=BLOCK * count)
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
            if which in ours and which != ", full":  # a full store would evict the others
                side.fill(batches, SMALL_BATCH)
            else:
                side.fill(batches, given)
        beside = {which: sides[which] for which in peers}
        for which in ours:
            _put_small(bench, count, which, sides[which], beside)
        _get_small(bench, count, sides[""], beside, {"object": names, "batch": batches})


def _put_small(bench: Bench, count: int, which: str, ours: Side, beside: dict[str, Side]) -> None:
    full = which == ", full"
    required = None if full else REQUIRED
    for kind, (value, _) in KINDS.items():

        def put(side: Side, value: Any, stays: bool, name: str) -> float:
            return stop_watch(lambda: side.put(name, value), lambda: None if stays else side.remove(name))

        sides = {"shmarrow": partial(put, ours, value, full)}
        for peer, side in beside.items():
            sides[peer] = partial(put, side, SMALL if "shared_memory" in peer else SMALL.tobytes(), False)
        what = f"put 800 bytes, {kind}, beside {count:,} names{which}{', evicting' if full else ''}"
        point = Point("Put 800 bytes into a store", "names", count) if not which and kind == "an ndarray" else None
        bench.row(what, sides, required, 20, lambda number, kind=kind: f"new-{kind}-{number}", elapsed, 10, point)


def _get_small(bench: Bench, count: int, ours: Side, beside: dict[str, Side], names: dict[str, list[str]]) -> None:
    choice = random.Random(0)
    for kind, (_, prefix) in KINDS.items():
        assert isinstance(ours, Ours)
        ours.column = None if prefix == "object" else "c0"
        sides = {"shmarrow": ours.get, "shared_memory": beside["shared_memory"].get}
        sides |= {peer: side.get for peer, side in beside.items() if peer != "shared_memory"}
        what = f"get 800 bytes, {kind}, of {count:,} names"
        point = Point("Get 800 bytes from a store", "names", count) if kind == "an ndarray" else None
        drawn = names[prefix]
        required = REQUIRED | {"diskcache": within(1.25)}
        bench.row(what, sides, required, 20, lambda _, drawn=drawn: choice.choice(drawn), block=10, point=point)


# --- a crowd ----------------------------------------------------------------------------------------------------


def crowds(bench: Bench) -> None:
    """8 readers and 4 writers."""
    directory = bench.scratch / "crowds"
    directory.mkdir()
    names, value = numbered(200), np.ones(10_000)
    content = value.tobytes()
    openers: dict[str, Opener] = {
        "shmarrow": partial(Ours, directory / "ours"),
        "diskcache": partial(DiskCache, directory / "diskcache"),
        "lmdb": partial(Lmdb, directory / "lmdb"),
    }
    given = {which: value if which == "shmarrow" else content for which in openers}
    for which, opener in openers.items():
        side = opener()
        side.fill(names, given[which])
        side.close()
    taken = list(openers)[:1] if bench.options.only_ours else list(openers)
    rounds: list[dict[str, Crowd]] = []
    for number in range(2 if bench.quick else 3):
        order = taken if number % 2 else taken[::-1]
        seconds = 0.7 if bench.quick else 2.0
        rounds.append({each: crowd(openers[each], names, given[each], seconds, directory) for each in order})

    for what, field, unit in (
        ("gets", "get", "s/op"),
        ("puts", "put", "s/op"),
        ("99th percentile of put", "put_p99", "s"),
    ):
        rows = [{each: [getattr(turn[each], field)] for each in taken} for turn in rounds]
        bench.report(f"8 readers, 4 writers, 80 kB: {what}", rows, {"diskcache": AHEAD}, unit)


# --- many objects -----------------------------------------------------------------------------------------------


@cache
def store_of(bench: Bench, count: int) -> Ours:
    """A store of so many ndarrays of 800 bytes, and a capacity that is never reached; made once for all parts."""
    start = time.perf_counter()
    side = Ours(bench.scratch / f"of-{count}", capacity=LARGE)
    side.fill(numbered(count), SMALL)
    if count >= 10_000:
        took = (time.perf_counter() - start) / count
        peers = {} if bench.options.only_ours else {"lmdb": _filled(bench, count)[1]}
        bench.limit(f"put of {count:,} objects, for each", [took], None, peers=peers)
    return side


@cache
def _filled(bench: Bench, count: int) -> tuple[Lmdb, float]:
    """LMDB with the same objects, and the seconds that each took."""
    start = time.perf_counter()
    side = Lmdb(bench.scratch / f"lmdb-{count}")
    side.fill(numbered(count), SMALL.tobytes())
    return side, (time.perf_counter() - start) / count


def most(bench: Bench) -> int:
    """The largest number of names."""
    return 10_000 if bench.quick else 1_000_000


def many(bench: Bench) -> None:
    """Get, put and list with as many names as there are."""
    count = most(bench)
    ours, peer = store_of(bench, count), _filled(bench, count)[0]
    names, choice = numbered(count), random.Random(0)
    alone, first = store_of(bench, 1), numbered(1)[0]
    gets: dict[str, Operation] = {
        "shmarrow": ours.get,
        "itself, of 1 object": lambda _: alone.get(first),
        "lmdb": peer.get,
    }
    point = Point("Get 800 bytes from a store", "names", count)
    bench.row(
        f"get 800 bytes, of {count:,} names", gets, None, 20, lambda _: choice.choice(names), block=10, point=point
    )

    def put(side: Side, value: Any, name: str) -> float:
        return stop_watch(lambda: side.put(name, value), lambda: side.remove(name))

    puts: dict[str, Operation] = {"shmarrow": partial(put, ours, SMALL), "lmdb": partial(put, peer, SMALL.tobytes())}
    point = Point("Put 800 bytes into a store", "names", count)
    name = f"put 800 bytes, beside {count:,} names"
    bench.row(name, puts, None, 20, lambda number: f"new-{number}", elapsed, 10, point)
    lists: dict[str, Operation] = {
        "shmarrow": lambda _: ours.store.names(),
        "lmdb": lambda _: peer.names(),
    }
    assert len(ours.store.names()) == len(peer.names()) == count
    bench.row(f"list {count:,} names", lists, None, 3)


def first(bench: Bench) -> None:
    """The first get of a fresh process."""
    counts = (1, 100, 10_000) if bench.quick else (1, 100_000, 1_000_000)
    imports: list[float] = []

    def have(program: str, *words: str) -> float:
        seconds, imported = fresh(program, *words)
        if program == FIRST:
            imports.append(imported)
        return seconds

    peer = SharedMemory(f"shmarrow-bench-{os.getpid()}-first-", SMALL.shape)
    peer.put("x", SMALL)
    places = {count: Path(store_of(bench, count).store.name) for count in counts}
    try:
        for count in counts[1:]:
            name = numbered(count)[count // 2]
            sides: dict[str, Callable[[Any], float]] = {
                "shmarrow": lambda _, count=count, name=name: have(FIRST, str(places[count]), name),
                "itself, of 1 object": lambda _: have(FIRST, str(places[1]), numbered(1)[0]),
                "shared_memory": lambda _: have(FIRST_SHARED_MEMORY, peer.prefix + "x"),
            }
            what = f"open, and get in a fresh process, of {count:,} objects, without the imports"
            point = Point("First get of a fresh process, after its imports", "names", count)
            bench.row(what, sides, within(1.5), 5, time=elapsed, point=point)
    finally:
        peer.close()
    bench.limit("the imports before that", imports, None)


def listings(bench: Bench) -> None:
    """Evict, stats and watches, beside LMDB's listing."""
    count = most(bench)
    store, peer = store_of(bench, count).store, _filled(bench, count)[0]
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
        bench.row(f"{name} of {count:,} objects", sides, required, 5, time=elapsed)


PARTS = {"small": small, "crowd": crowds, "many": many, "first": first, "listings": listings}
