"""Kills of the store at any instruction of its code: each operation on the store, by a child that is killed before it.

After each kill the store is what it was before the operation or what it is after it, all others can use it at once, and
nothing is left over. The tests take a sample of the instructions, ``make soak`` as many as there is time for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cases.store_files import check_store
from interrupts import killed

import shmarrow as sa

FILES = tuple(
    f"shmarrow/store/{name}.py"
    for name in (
        "store", "publish", "room", "catalog", "transaction", "index", "control", "locks", "directory", "waiters",
        "lookup",
    )
)  # fmt: skip
SIZES = {"inline": 100, "file": 2000}
"""Numbers in an object, of 8 bytes."""


def value(number: int, size: int) -> Any:
    """An object that shows which one it is, and whether it is whole."""
    return np.full(size, number)


class Case(NamedTuple):
    """An operation, and what the store may contain afterwards; it contains ``a`` of 1 and ``b`` of 2 before."""

    work: Callable[[sa.Store, int], Any]
    after: Sequence[dict[str, int]]
    capacity: int = 1 << 24


def fill(store: sa.Store, size: int) -> None:
    with store.new_draft("c", ONE, 200_000) as draft:
        draft["x"][:] = 3


def collect(store: sa.Store, size: int) -> None:
    store.expire_after("a", 0)
    store.collect()


BEFORE = {"a": 1, "b": 2}
MORE = {**BEFORE, "c": 3}
ONE = sa.schema([("x", sa.int64())])
ANY = [{name: MORE[name] for name in names} for count in range(4) for names in combinations(MORE, count)]
CASES = {
    "put": Case(lambda store, size: store.put("c", value(3, size)), [MORE]),
    "put and evict": Case(lambda store, size: store.put("c", value(3, 3500)), ANY, 40 << 10),
    "replace": Case(lambda store, size: store.put("a", value(3, size), overwrite=True), [{"a": 3, "b": 2}]),
    "compute": Case(lambda store, size: store.get_or_put("c", lambda: value(3, size)), [MORE]),
    "fill": Case(fill, [MORE]),
    "discard": Case(lambda store, size: store.new_draft("c", ONE, 200_000).abort(), [BEFORE]),
    "get": Case(lambda store, size: store.get("a"), [BEFORE]),
    "take": Case(lambda store, size: store.take("a"), [{"b": 2}]),
    "delete": Case(lambda store, size: store.delete("a"), [{"b": 2}]),
    "rename": Case(lambda store, size: store.rename("a", "c"), [{"b": 2, "c": 1}]),
    "rename over": Case(lambda store, size: store.rename("a", "b", overwrite=True), [{"b": 1}]),
    "evict": Case(lambda store, size: store.evict(1), [{"b": 2}]),
    "collect": Case(collect, [{"b": 2}]),
    "configure": Case(lambda store, size: store.configure(capacity=1 << 25), [BEFORE]),
    "destroy": Case(lambda store, size: store.destroy(), [{}]),
}


def contents(store: sa.Store) -> dict[str, int]:
    """The number of each object, all of which are whole."""
    found = {}
    for name in store.names():
        got = store.get(name)
        numbers = set((got["x"].to_numpy() if isinstance(got, sa.RecordBatch) else got).tolist())
        assert len(numbers) == 1, f"{name} is torn: {numbers}"
        found[name] = numbers.pop()
    return found


def check(where: Path, case: Case) -> bool:
    """Check what a killed process left; whether its operation has happened."""
    with suppress(sa.ObjectNotFound), sa.Store(where, create=False) as store:
        first = contents(store)
        store.configure(capacity=None, eviction="none")  # a change applies a commit that is complete in the journal
        found = contents(store)
        assert found in (BEFORE, *case.after), f"found {found}"
        assert first in (BEFORE, *case.after), f"first {first}, then {found}"
        store.put("new", value(8, 10))
        assert contents(store) == found | {"new": 8}
        store.delete("new")
        store.collect()
        assert set(check_store(where)) == set(found)
        store.clear()
        assert check_store(where) == {}
        assert store.stats().nbytes == store.stats().removed == 0
        return found in case.after
    assert {} in case.after, "the store is gone"
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
        with sa.Store(where, case.capacity) as store:
            for name, each in BEFORE.items():
                store.put(name, value(each, size))
            store.evict(0)
        with sa.Store(where) as store:
            more = killed(lambda: case.work(store, size), number, files)
        if more:
            found[check(where, case)] += 1
        with suppress(sa.ShmarrowError), sa.Store(where) as store:
            store.destroy()
        number += step
    return found
