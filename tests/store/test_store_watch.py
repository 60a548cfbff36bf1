"""Watching a store: nothing that happens is missed, whoever does it, whatever the kernel drops."""

from __future__ import annotations

import itertools
import random
import threading
from contextlib import suppress

import numpy as np
import pytest
from interrupts import interrupted
from processes import end_well, ended, forked, killed_at_end
from waiting import wait_until

import shmarrow as sa
from shmarrow.store import Event, Watch

ONE = np.ones(1)


@pytest.fixture
def where(shm_store: str) -> str:
    """In shared memory only: events are the same in a directory."""
    return shm_store


def told(watch: Watch, seconds: float = 0.1) -> list[tuple[str, str]]:
    """As :func:`events`, without generations."""
    return [event[:2] for event in events(watch, seconds)]


def events(watch: Watch, seconds: float = 0.1) -> list[Event]:
    """Return the events of a watch until nothing has happened for a while."""
    found = []
    while (event := watch.get(seconds)) is not None:
        found.append(event)
    return found


def applied(names: list[str], happened: list[Event]) -> list[str]:
    """The names that are there after the events."""
    known = set(names)
    for event in happened:
        (known.add if event.kind == "published" else known.discard)(event.name)
    return sorted(known)


def test_events(where: str) -> None:
    with sa.Store(where) as store:
        store.put("old", ONE)
        with store.watch() as watch:
            assert watch.names == ["old"]
            assert watch.get(0) is None
            assert watch.get(np.float32(0)) is None
            for timeout in ("x", -1, float("nan"), True, []):
                with pytest.raises(sa.InvalidArgument, match="timeout must be a number of seconds"):
                    watch.get(timeout)  # type: ignore[arg-type]
            store.put("a", ONE)
            store.put("a", ONE, overwrite=True)
            store.rename("a", "b")
            store.delete("b")
            store.delete("old")
            with store.new_draft("c", sa.schema([("x", sa.int8())]), 1):
                pass
            assert told(watch) == [
                ("published", "a"),
                ("published", "a"),
                ("deleted", "a"),
                ("published", "b"),
                ("deleted", "b"),
                ("deleted", "old"),
                ("published", "c"),
            ]
        with pytest.raises(sa.Closed):
            watch.get()


def test_a_watch_is_an_iterator(where: str) -> None:
    with sa.Store(where) as store, store.watch() as watch:
        store.put("a", ONE)
        assert next(iter(watch)) == Event("published", "a", store.info("a").generation)


def test_evicted_and_collected_objects_are_told(where: str) -> None:
    with sa.Store(where) as store:
        store.put("a", ONE)
        store.put("b", ONE)
        store.put("over", ONE, expire_after=0)
        with store.watch() as watch:
            assert watch.names == ["a", "b"]
            store.expire_after("b", 0)
            store.collect()
            store.evict(1)
            assert told(watch) == [("deleted", "b"), ("deleted", "a")]


def test_nothing_is_lost_between_the_names_and_the_events(where: str) -> None:
    """Watches begin at any moment while others publish and delete: names and events together are what is there."""

    def work(seed: int) -> None:
        choice = random.Random(seed)
        with sa.Store(where) as store:
            for _ in range(300):
                name = f"{seed}-{choice.randrange(12)}"
                if name in store and choice.random() < 0.5:
                    store.delete(name)
                else:
                    store.put(name, ONE, overwrite=True)

    children = [forked(lambda: work(seed)) for seed in range(3)]  # noqa: B023
    with killed_at_end(children), sa.Store(where) as store:
        watches = []
        with store.watch() as pace:
            for _ in range(20):
                watches.append(store.watch())
                for _ in range(10):
                    pace.get(0.1)
        end_well(children)
        names = store.names()
        assert names
        for watch in watches:
            assert applied(watch.names, events(watch)) == names
            watch.close()


def test_a_writer_reads_the_table_of_waiters_while_they_come_and_go(where: str) -> None:
    """Other processes begin and end to wait at any moment, so also while a writer looks for whom to wake."""

    def comes_and_goes(number: int) -> None:
        with sa.Store(where) as store:
            store.put(f"ready {number}", ONE)
            while True:
                with suppress(sa.ObjectNotFound):
                    store.wait("never", timeout=0)

    children = [forked(lambda: comes_and_goes(number)) for number in range(2)]  # noqa: B023
    with killed_at_end(children), sa.Store(where) as store:
        store.wait(["ready 0", "ready 1"], timeout=60)
        for number in range(2000):
            store.put("a", number, overwrite=True)
        assert store.get("a") == 1999


def test_who_is_far_behind_compares(where: str) -> None:
    """The ring has 256 events; whoever slept longer is told what is different now, each change of a name once."""
    with sa.Store(where) as store, store.watch() as watch:
        store.put("gone", ONE)
        store.put("kept", ONE)
        assert told(watch) == [("published", "gone"), ("published", "kept")]
        store.delete("gone")
        store.put("brief", ONE)
        store.delete("brief")
        for number in range(300):
            store.put("often", np.full(1, number), overwrite=True)
        assert sorted(told(watch)) == [("deleted", "gone"), ("published", "often")]
        store.put("c", ONE)
        assert told(watch) == [("published", "c")]


def test_a_forked_child_takes_nothing_from_its_parent(where: str) -> None:
    with sa.Store(where) as store, store.watch() as watch:
        store.put("first", ONE)

        def read() -> None:
            names = [event.name for event in (watch.get(60) for _ in range(201)) if event is not None]
            assert names == ["first", *[f"a{i}" for i in range(200)]]
            watch.close()

        child = forked(read)
        for number in range(200):
            store.put(f"a{number}", ONE)
        with killed_at_end([child]):
            assert ended(child) == 0
        assert told(watch) == [("published", "first"), *[("published", f"a{i}") for i in range(200)]]


def test_a_handler_closes_the_watch_in_the_middle_of_a_look(where: str) -> None:
    """At any instruction of its own thread: the look ends with its event, or says that the watch is closed."""
    ends = set[str]()
    with sa.Store(where) as store:
        for number in itertools.count(1):
            with store.watch() as watch:
                store["a"] = ONE

                def look() -> None:
                    try:
                        event = watch.get(1)
                        ends.add("none" if event is None else event.kind)
                    except sa.Closed:
                        ends.add("closed")

                more = interrupted(look, watch.close, number, ("shmarrow/store/watch.py",))
            if not more:
                break
        assert ends == {"published", "closed"}
        store.clear()


def test_a_watch_goes_on_when_the_store_is_closed(where: str) -> None:
    store = sa.Store(where)
    watch = store.watch()
    store.close()
    with sa.Store(where) as again:
        again.put("a", ONE)
        assert told(watch) == [("published", "a")]
        again.delete("a")
        assert told(watch) == [("deleted", "a")]
    assert repr(watch) == f"<Watch of {where!r}, names that begin with ''>"
    watch.close()
    watch.close()
    assert repr(watch).endswith(", closed>")
    for use in (watch.get, lambda: next(watch)):
        with pytest.raises(sa.Closed, match="make a new one"):
            use()


def test_threads_share_a_watch(where: str) -> None:
    with sa.Store(where) as store:
        watch = store.watch()
        found: list[Event | None] = []
        errors: list[str] = []

        def read() -> None:
            try:
                while True:
                    found.append(watch.get())
            except sa.ShmarrowError as error:
                errors.append(type(error).__name__)

        threads = [threading.Thread(target=read) for _ in range(5)]
        for thread in threads:
            thread.start()
        for number in range(200):
            store.put(f"{number:03}", number)
        wait_until(lambda: len(found) >= 200, "all events arrive")
        watch.close()
        for thread in threads:
            thread.join(10)
        assert errors == ["Closed"] * 5
        assert sorted(event.name for event in found if event is not None) == [f"{number:03}" for number in range(200)]
