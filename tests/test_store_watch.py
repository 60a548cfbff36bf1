"""Watching a store: nothing that happens is missed, whoever does it, whatever the kernel drops."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from soak import ended, forked, killed_at_end

import shmarrow as sa
from shmarrow.store import Event, Watch
from shmarrow.store import watch as watching

ONE = np.ones(1)


def events(watch: Watch, seconds: float = 0.1) -> list[Event]:
    """What the watch tells until nothing has happened for a while."""
    found = []
    while (event := watch.get(seconds)) is not None:
        found.append(event)
    return found


def applied(names: list[str], told: list[Event]) -> list[str]:
    """The names that are there after the events."""
    known = set(names)
    for event in told:
        (known.add if event.kind == "published" else known.discard)(event.name)
    return sorted(known)


def test_events(where: str) -> None:
    with sa.Store(where) as store:
        store.put("old", ONE)
        with store.watch() as watch:
            assert watch.names == ["old"]
            assert watch.get(0) is None
            store.put("a", ONE)
            store.put("a", ONE, overwrite=True)
            store.rename("a", "b")
            store.delete("b")
            store.delete("old")
            with store.create("c", sa.schema([("x", sa.int8())]), 1):
                pass
            assert events(watch) == [
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
        assert next(iter(watch)) == Event("published", "a")


def test_evicted_and_collected_objects_are_told(where: str) -> None:
    with sa.Store(where) as store:
        store.put("a", ONE)
        store.put("b", ONE, expire_after=0)
        with store.watch() as watch:
            store.collect()
            store.evict(1)
            assert events(watch) == [("deleted", "b"), ("deleted", "a")]


def test_other_stores_are_not_told(shm_name: str) -> None:
    with sa.Store(shm_name) as store, sa.Store(f"{shm_name}-x") as other, store.watch() as watch:
        other.put("a", ONE)
        store.put("b", ONE)
        other.clear()
        assert events(watch) == [("published", "b")]
        store.clear()


@pytest.mark.parametrize("inotify", [True, False])
def test_nothing_is_lost_between_the_names_and_the_events(
    where: str, inotify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    if not inotify:
        monkeypatch.setattr(watching.Listener, "__init__", lambda *_: (_ for _ in ()).throw(OSError(24, "no")))
    with killed_at_end(children), sa.Store(where) as store:
        watches = []
        for _ in range(20):
            watches.append(store.watch())
            time.sleep(0.01)
        assert [ended(child) for child in children] == [0] * 3
        names = store.names()
        assert names
        for watch in watches:
            assert applied(watch.names, events(watch)) == names
            watch.close()


def test_what_the_kernel_drops_is_looked_up(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with sa.Store(where) as store, store.watch() as watch:
        path = store._place.path("x")
        store.put("a", ONE)
        for _ in range(limit // 2 + 10):  # each is told twice, and more than the queue holds
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)
        store.put("b", ONE)
        store.delete("a")
        store.put("b", np.ones(2), overwrite=True)
        assert applied(watch.names, events(watch)) == ["b"]
        store.put("c", ONE)
        assert events(watch) == [("published", "c")]


def test_a_directory_that_goes_and_comes(tmp_path: Path) -> None:
    where = tmp_path / "store"
    with sa.Store(where) as store, store.watch() as watch:
        store.put("a", ONE)
        assert watch.get(5) == ("published", "a")
        shutil.rmtree(where)
        assert watch.get(5) == ("deleted", "a")
        assert events(watch) == []
        with sa.Store(where) as again:
            again.put("b", ONE)
            assert watch.get(5) == ("published", "b")
            again.put("c", ONE)
            assert watch.get(5) == ("published", "c")


def test_descriptors_are_used_again(where: str) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with sa.Store(where) as store:
        for _ in range(3):
            with pytest.raises(sa.ObjectNotFound):
                store.get("x", timeout=0.01)
        before = descriptors()
        for _ in range(5):
            with pytest.raises(sa.ObjectNotFound):
                store.get("x", timeout=0.01)
        assert descriptors() == before
    assert descriptors() < before
