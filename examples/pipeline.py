"""A pipeline of three stages, each a process: every one adds a column to the table of the one before.

The stages share the memory of what they got, so each costs its own column. What each wrote, and what it shares, is
printed when it is done. Run it with ``python examples/pipeline.py [MILLION ROWS]``.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import shmarrow as sa

COLUMNS = 16
MIB = 1 << 20


def mean(table: sa.Table) -> np.ndarray:
    """The mean of each row's first columns."""
    return np.mean([table.column(f"c{i}").to_numpy() for i in range(4)], axis=0)


def score(table: sa.Table) -> np.ndarray:
    """The distance of the first column from the mean."""
    return np.abs(table.column("c0").to_numpy() - table.column("mean").to_numpy())


def rank(table: sa.Table) -> np.ndarray:
    """The position of each row in the order of the scores."""
    order = np.argsort(table.column("score").to_numpy(), kind="stable")
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


STAGES: tuple[Callable[[sa.Table], np.ndarray], ...] = (mean, score, rank)


class Done(NamedTuple):
    """The result of a stage.

    Attributes
    ----------
    name : str
        Its name, and that of its object.
    own, shared : int
        Bytes of the object, and of the files of others that it shares.
    seconds : float
        How long publishing took.
    sources : tuple of str
        The objects that it shares memory with.
    """

    name: str
    own: int
    shared: int
    seconds: float
    sources: tuple[str, ...]


def run(where: str, stage: Callable[[sa.Table], np.ndarray], source: str) -> Done:
    """One stage, in a process of its own."""
    store = sa.Store(where, create=False)
    table = store.get(source, kind=sa.Table)
    more = table.append_column(stage.__name__, sa.array(stage(table)))
    start = time.perf_counter()
    store.put(stage.__name__, more, reuse=True)
    seconds = time.perf_counter() - start
    found = store.info(stage.__name__)
    return Done(found.name, found.nbytes, found.shared, seconds, found.sources)


def main(million_rows: float = 1.0, where: str = f"shm:shmarrow-pipeline-{os.getpid()}") -> list[Done]:
    """Run the stages one after the other; what each has done."""
    rows = round(million_rows * 1e6)
    random = np.random.default_rng(0)
    store = sa.Store(where)
    try:
        start = time.perf_counter()
        store.put("day", sa.table({f"c{i}": random.random(rows) for i in range(COLUMNS)}))
        print(f"    day  {store.info('day').nbytes / MIB:8.1f} MiB, in {time.perf_counter() - start:.3f} s")
        done, source = [], "day"
        context = multiprocessing.get_context("spawn")
        for stage in STAGES:
            with context.Pool(1) as pool:
                found = pool.apply(run, (where, stage, source))
            print(
                f"{found.name:>7}  {found.own / MIB:8.1f} MiB, published in {found.seconds:.3f} s; "
                f"shares {found.shared / MIB:.1f} MiB with {', '.join(found.sources)}"
            )
            done.append(found)
            source = found.name
        for name in ("day", *[each.name for each in done[:-1]]):
            store.delete(name)  # the last table needs none of them
        last = store.get(source, kind=sa.Table)
        top = last.filter(last.column("rank").to_numpy() >= rows - 3).select(["c0", "mean", "score", "rank"])
        print(f"all but {source!r} deleted; its last three rows in order of rank:", *top.to_pylist(), sep="\n  ")
        return done
    finally:
        store.destroy()


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
