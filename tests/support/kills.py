"""Kills of the store at every instruction: each operation on the store, by a child that is killed before it.

    python tests/support/kills.py [STEP [OPERATION ...]]

kills before every STEPth instruction of the code of the store, each instruction counted the first time it runs. After
each kill the store is what it was before the operation or what it is after it, all others can use it at once, and
nothing is left over.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from interrupts import killed

import shmarrow as sa
from shmarrow.testing import check_store

FILES = tuple(
    f"shmarrow/store/{name}.py"
    for name in ("store", "publish", "space", "catalog", "transaction", "index", "journal", "files", "control", "locks",
                 "destroy", "directory", "waiters")
)  # fmt: skip
SIZES = {"inline": 100, "file": 2000}
"""Numbers in an object, of 8 bytes."""


def value(number: int, size: int) -> Any:
    """An object that shows which one it is, and whether it is whole."""
    return np.full(size, number)


class Case(NamedTuple):
    """An operation, and what the store contains afterwards; it contains ``a`` of 1 and ``b`` of 2 before."""

    work: Callable[[sa.Store, int], Any]
    after: dict[str, int]


BEFORE = {"a": 1, "b": 2}
CASES = {
    "put": Case(lambda store, size: store.put("c", value(3, size)), {"a": 1, "b": 2, "c": 3}),
    "replace": Case(lambda store, size: store.put("a", value(3, size), overwrite=True), {"a": 3, "b": 2}),
    "get": Case(lambda store, size: store.get("a"), BEFORE),
    "delete": Case(lambda store, size: store.delete("a"), {"b": 2}),
    "rename": Case(lambda store, size: store.rename("a", "c"), {"b": 2, "c": 1}),
    "rename over": Case(lambda store, size: store.rename("a", "b", overwrite=True), {"b": 1}),
    "evict": Case(lambda store, size: store.evict(1), {"b": 2}),
    "destroy": Case(lambda store, size: store.destroy(), {}),
}


def contents(store: sa.Store) -> dict[str, int]:
    """The number of each object, all of which are whole."""
    found = {}
    for name in store.names():
        numbers = set(store.get(name).tolist())
        assert len(numbers) == 1, f"{name} is torn: {numbers}"
        found[name] = numbers.pop()
    return found


def check(where: Path, case: Case) -> bool:
    """Check what a killed process left; whether its operation has happened."""
    with suppress(sa.ObjectNotFound), sa.Store(where, create=False) as store:
        first = contents(store)
        store.put("new", value(9, 2000))  # the next change applies a commit that is complete in the journal
        found = contents(store)
        del found["new"]
        assert first in (BEFORE, found), f"first {first}, then {found}"
        assert found in (BEFORE, case.after), f"found {found}"
        store.put("new", value(8, 10), overwrite=True)
        assert contents(store) == found | {"new": 8}
        store.delete("new")
        assert set(check_store(where)) == set(found)
        store.clear()
        assert check_store(where) == {}
        assert store.stats().nbytes == store.stats().removed == 0
        return found == case.after
    assert not case.after, "the store is gone"
    assert not where.exists() or not list(where.iterdir()), list(where.iterdir())
    return True


def kills(
    case: Case, size: int, step: int, folder: Path, first: int = 1, files: tuple[str, ...] = FILES
) -> Counter[bool]:
    """Kill the operation before every ``step``\\ th instruction; how often it had happened, and how often not."""
    found: Counter[bool] = Counter()
    number, more = first, True
    while more:
        where = folder / f"store{number}"
        with sa.Store(where) as store:
            for name, each in BEFORE.items():
                store.put(name, value(each, size))
            store.evict(0)
        with sa.Store(where) as store:
            more = killed(lambda: case.work(store, size), number, FILES)
        if more:
            found[check(where, case)] += 1
        with suppress(sa.ShmarrowError), sa.Store(where) as store:
            store.destroy()
        number += step
    return found


def main() -> None:
    step, *chosen = sys.argv[1:] or ["1"]
    for size in SIZES:
        for name in chosen or CASES:
            with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="shmarrow-kills-") as folder:
                found = kills(CASES[name], SIZES[size], int(step), Path(folder))
            print(f"{name}, {size}: {sum(found.values())} kills, {found[True]} after it had happened", flush=True)


if __name__ == "__main__":
    main()
