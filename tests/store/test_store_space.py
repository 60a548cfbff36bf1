"""Room in a store: capacity, eviction, owners, expiry, collection, and what is said when there is none."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pytest
from cases.store_files import check_store as check
from processes import end_well, ended, forked, kill, killed_at_end
from store_check import Report, leftovers
from waiting import wait_until

import shmarrow as sa
from shmarrow.memory import locks

SIZE = 8 * 1000
"""Bytes of the values of one object here; with its metadata it has less than 400 more, in three blocks."""
BLOCKS = 12288


def block(number: int = 0) -> Any:
    return np.full(SIZE // 8, number)


def room(objects: float) -> int:
    return int(objects * BLOCKS)


# --- capacity ---------------------------------------------------------------------------------------------------


def test_the_ones_used_longest_ago_go(where: str) -> None:
    with sa.Store(where, capacity=room(3)) as store:
        for name in "abc":
            store.put(name, block())
        store.get("a")
        store.put("d", block())
        assert store.names() == ["a", "c", "d"]
        store.put("e", block())
        assert store.names() == ["a", "d", "e"]
        store.info("d")  # no use
        store.get("a")
        store.put("f", block())
        assert store.names() == ["a", "e", "f"]


def test_what_is_attached_stays(where: str) -> None:
    with sa.Store(where, capacity=room(3)) as store:
        store.put("a", block(1))
        held = store.get("a")
        for number in range(10):
            store.put(f"b{number}", block())
        assert store.names() == ["a", "b8", "b9"]
        assert (held == 1).all()
        more = [store.get("b8"), store.get("b9")]
        with pytest.raises(sa.StoreFull) as full:
            store.put("c", block())
        text = str(full.value)
        for said in (
            f"'c' in the store {where!r}",
            f"capacity {room(3)}",
            f"{3 * BLOCKS} bytes of objects, {3 * BLOCKS} of them attached",
            "raise the capacity",
        ):
            assert said in text
        assert store.names() == ["a", "b8", "b9"]
        del held, more
        store.put("c", block())
        assert len(store) == 3


def test_two_that_are_refused_at_once_are_told_so_soon(shm_name: str) -> None:
    """Neither takes what the other one does for a sign that there may be room."""

    def refused(report: Report) -> None:
        with sa.Store(shm_name) as store:
            report.say("ready")
            report.wait(2)
            for number in range(3):
                began = time.monotonic()
                with pytest.raises(sa.StoreFull, match=rf"no room for {BLOCKS} bytes .* {BLOCKS} more than are avail"):
                    store.put(f"{os.getpid()}-{number}", block())
                report.say(time.monotonic() - began)

    with sa.Store(shm_name, capacity=room(3)) as store, Report() as report:
        for name in "abc":
            store.put(name, block())
        held = [store.get(name) for name in "abc"]
        before = store.stats()
        children = [forked(lambda: refused(report)) for _ in range(2)]
        end_well(children)
        took = [float(line[0]) for line in report.lines() if line[0] != "ready"]
        assert len(took) == 6
        assert sorted(took)[3] < 4  # who waits for room does so for 5 seconds
        assert store.stats()[:5] == before[:5]
        assert len(held) == 3
        store.destroy()


def test_the_list_of_all_locks_is_read_for_stats_only(shm_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is slow, and slows all others, where anybody has ten thousands of locks."""

    def work() -> None:
        read = []
        sys.addaudithook(
            lambda event, args: read.append(1) if (event, args[:1]) == ("open", ("/proc/locks",)) else None
        )

        def hold(report: Report, names: str) -> None:
            store = sa.Store(shm_name)
            held = [store.get(name) for name in names]
            report.say("held", len(held))
            signal.pause()

        with sa.Store(shm_name, capacity=room(4)) as store, Report() as report:
            for name in "abcd":
                store.put(name, block())
            first, second = forked(lambda: hold(report, "ab")), forked(lambda: hold(report, "a"))
            with killed_at_end([first, second]):
                report.wait(2)
                store.put("e", block())
                assert store.evict(1) == ["d"]
                with pytest.raises(sa.StoreFull, match=rf"{2 * BLOCKS} of them attached"):
                    store.put("f", np.zeros(4 * SIZE // 8))
                assert store.names() == ["a", "b", "e"]
                assert read == []
                assert store.stats().pins == {first: 2, second: 1}
                assert store.info("a").pins == 2
                assert len(read) == 2
                monkeypatch.setattr(locks, "_LONGEST", 0)  # as if somebody had that many
                monkeypatch.setattr(locks, "_LONG", 0)
                monkeypatch.setattr(locks, "_REST", 1e9)
                monkeypatch.setattr(locks, "_resume", 0)
                for _ in range(3):
                    stats = store.stats()
                    assert sum(stats.pins.values()) == 2  # one process of each object
                    assert (set(stats.pins) <= {first, second}, stats.pinned) == (True, 2 * BLOCKS)
                assert len(read) == 3
            store.destroy()

    end_well([forked(work)])  # in a process of its own, as audit hooks cannot be removed


def test_too_large_for_the_capacity_evicts_nothing(where: str) -> None:
    with sa.Store(where, capacity=room(2)) as store:
        store.put("a", block())
        said = r"no room for \d+ bytes of 'b'.*exceeds the capacity \(capacity 24576, 12288 bytes"
        with pytest.raises(sa.StoreFull, match=said + r".* free\); raise the capacity$") as full:
            store.put("b", np.zeros(4 * SIZE // 8))
        assert full.value.errno == errno.ENOSPC
        with pytest.raises(sa.StoreFull):
            store.new_draft("b", sa.schema([("x", sa.int64())]), 4 * SIZE // 8)
        with pytest.raises(sa.StoreFull):
            store.put("b", sa.record_batch({"x": np.zeros(4 * SIZE // 8)}))
        assert store.names() == ["a"]
        assert isinstance(store.get("a"), np.ndarray)


def test_without_eviction_nothing_goes(where: str) -> None:
    with sa.Store(where, capacity=room(2), eviction="none") as store:
        store.put("a", block())
        store.put("b", block())
        with pytest.raises(sa.StoreFull, match="only 0 bytes may be evicted"):
            store.put("c", block())
        assert store.names() == ["a", "b"]
        store.delete("a")
        store.put("c", block())
        assert store.names() == ["b", "c"]


def test_what_is_replaced_does_not_count(where: str) -> None:
    with sa.Store(where, capacity=room(2)) as store:
        store.put("a", block())
        store.put("b", block())
        for number in range(5):
            store.put("a", block(number), overwrite=True)
        assert store.names() == ["a", "b"]
        assert (store.get("a") == 4).all()
        with pytest.raises(sa.StoreFull):
            store.put("a", np.zeros(10 * SIZE), overwrite=True)
        assert (store.get("a") == 4).all()
        assert store.names() == ["a", "b"]


def test_a_stream_of_batches_keeps_to_the_capacity(where: str) -> None:
    """What is being written does not count; others are evicted for it when it is added, and none if it is too large."""
    one = sa.record_batch({"x": np.arange(1 << 16)})
    with sa.Store(where, capacity=7 << 19) as store:
        store.put("a", np.zeros(1 << 17))
        store.put("b", np.zeros(1 << 17))
        with store.new_file("w", one.schema) as writer:
            for _ in range(4):
                writer.write(one)
            store.put("c", np.zeros(1 << 17))
            assert store.names() == ["a", "b", "c"]
        assert store.get("w").num_rows == 4 << 16
        assert store.names() == ["c", "w"]
        with pytest.raises(sa.StoreFull), store.new_file("v", one.schema) as writer:  # noqa: PT012
            for _ in range(20):
                writer.write(one)
        assert store.names() == ["c", "w"]


def test_evict_all_or_nothing(where: str) -> None:
    with sa.Store(where, capacity=room(4)) as store:
        for name in "abc":
            store.put(name, block())
        held = store.get("a")
        assert store.evict(BLOCKS) == ["b"]
        with pytest.raises(
            sa.StoreFull, match=rf"^cannot evict {room(5)} bytes from .*: only {BLOCKS} bytes may be ev"
        ):
            store.evict(room(5))
        assert store.names() == ["a", "c"]
        del held
        assert sorted(store.evict(room(2))) == ["a", "c"]


def test_writers_keep_to_the_capacity_together(where: str) -> None:
    capacity = room(6)
    high = 0

    def write(report: Report, number: int) -> None:
        with sa.Store(where) as store:
            for turn in range(40):
                store.put(f"{number}-{turn}", block(number))
            report.say("done")

    with Report() as report, sa.Store(where, capacity=capacity) as watcher:
        children = [forked(lambda: write(report, number)) for number in range(4)]  # noqa: B023

        def looked() -> bool:
            nonlocal high
            found = watcher.stats()
            high = max(high, found.nbytes + found.removed)
            return report.count == 4

        wait_until(looked, "all have written")
        end_well(children)
        assert 0 < high <= capacity
        assert watcher.stats().nbytes == sum(os.stat(watcher.info(name).path).st_blocks * 512 for name in watcher)


def test_a_killed_writer_takes_no_room(where: str) -> None:
    rows = 3 << 17

    def write(report: Report) -> None:
        store = sa.Store(where)
        draft = store.new_draft("big", sa.schema([("x", sa.int64())]), rows)
        draft["x"][:] = 1
        report.say("filled")
        signal.pause()

    with sa.Store(where, capacity=4 << 20, eviction="none") as store, Report() as report:
        child = forked(lambda: write(report))
        with killed_at_end([child]):
            report.wait()
            store.put("a", np.zeros(1 << 16))
            assert store.collect() == []
        store.put("b", np.zeros(3 << 17))
        assert store.names() == ["a", "b"]
        assert len(leftovers(where)) == 2


def test_the_capacity_belongs_to_the_store(where: str) -> None:
    with sa.Store(where, capacity=room(3), eviction="none") as store, sa.Store(where) as other:
        assert other.capacity == room(3)
        store.put("a", block())
        other.put("b", block())
        other.put("c", block())
        for each in (store, other):
            with pytest.raises(sa.StoreFull):
                each.put("d", block())
        other.delete("b")
        store.put("d", block())
        with pytest.raises(
            sa.InvalidArgument, match=rf"capacity={room(3)}, and was opened with capacity={room(4)}.*configure"
        ):
            sa.Store(where, capacity=room(4))
        other.configure(capacity=room(4))
        store.put("e", block())
        assert store.names() == ["a", "c", "d", "e"]
        assert sa.Store(where).settings == (room(4), 0o600, "none", False)


# --- owners -----------------------------------------------------------------------------------------------------


def test_objects_of_an_owner_go_with_it(where: str) -> None:
    def own(report: Report) -> None:
        store = sa.Store(where, owned=True)
        store.put("a", block())
        store.put("b", block(), overwrite=True)
        with store.new_draft("c", sa.schema([("x", sa.int8())]), 3):
            pass
        store.rename("c", "d")
        report.say("done")
        signal.pause()

    with sa.Store(where) as store, Report() as report:
        store.put("mine", block())
        child = forked(lambda: own(report))
        report.wait()
        assert store.names() == ["a", "b", "d", "mine"]
        assert store.collect() == []
        assert (store.info("a").owner, store.info("a").orphaned) == (child, False)
        assert store.info("mine").owner is None
        store.put("b", block(7), overwrite=True)  # it is ours now
        held = store.get("a")
        kill(child)
        assert (store.info("d").orphaned, store.info("mine").orphaned) == (True, False)
        assert store.collect() == ["d"]
        assert store.names() == ["a", "b", "mine"]
        assert (held == 0).all()
        assert store.info("a").orphaned
        del held
        assert store.collect() == ["a"]
        assert store.names() == ["b", "mine"]
        assert (store.get("b") == 7).all()


def test_a_forked_child_is_another_owner(where: str) -> None:
    with sa.Store(where, owned=True) as store, sa.Store(where) as other, Report() as report:
        store.put("parents", block())

        def own() -> None:
            store.put("childs", block())
            report.say("done")
            signal.pause()

        child = forked(own)
        report.wait()
        assert other.info("childs").owner == child
        assert other.info("parents").owner == os.getpid()
        assert other.collect() == []
        store.close()  # this process lives
        assert other.collect() == []
        kill(child)
        assert other.collect() == ["childs"]
        assert other.info("parents").owner == os.getpid()


def test_orphans_are_evicted_first(where: str) -> None:
    def own() -> None:
        sa.Store(where, owned=True).put("orphan", block())

    with sa.Store(where, capacity=room(2)) as store:
        store.put("old", block())
        ended(forked(own))
        store.put("new", block())
        assert store.names() == ["new", "old"]
        store.configure(eviction="none")
        store.delete("old")
        ended(forked(own))
        store.put("newer", block())
        assert store.names() == ["new", "newer"]

        def own_protected() -> None:
            sa.Store(where, owned=True).put("orphan", block(), protect=True)

        for eviction in ("none", "lru"):
            store.configure(eviction=eviction)
            store.clear()
            store.put("kept", block(), protect=True)
            ended(forked(own_protected))
            store.put("new", block(), protect=True)
            assert store.names() == ["kept", "new"]
            with pytest.raises(sa.StoreFull):
                store.put("more", block())
            assert store.names() == ["kept", "new"]


def test_a_function_that_makes_a_store_of_its_own_owns_for_the_process(where: str) -> None:
    def put() -> None:
        sa.Store(where, owned=True).put("a", block())

    put()
    gc.collect()
    with sa.Store(where) as store:
        assert store.collect() == []
        assert store.info("a").owner == os.getpid()


def test_the_time_of_publishing_is_exact(where: str) -> None:
    """Not that of the file system, whose clock stands still for some milliseconds."""
    with sa.Store(where) as store:
        for number in range(20):
            before = time.time()
            store.put("a", block(number), overwrite=True)
            ages = [found.age for found in store.scan()]
            assert 0 <= ages[0] <= time.time() - before + 1e-6


# --- expiry -----------------------------------------------------------------------------------------------------


def test_expiry(where: str) -> None:
    with sa.Store(where) as store:
        store.put("a", block(1))
        store.put("b", block(), expire_after=3600)
        assert 3500 < (store.info("b").expires_in or 0) <= 3600
        held = store.get("a")
        store.expire_after("a", 0.05)
        assert (store.info("a").expires_in if "a" in store else 0.05) <= 0.05
        wait_until(lambda: "a" not in store, "it expires")
        assert store.names() == ["b"]
        for use in (store.get, store.info, lambda name: store.expire_after(name, 3)):
            with pytest.raises(sa.ObjectNotFound, match="no object 'a'"):
                use("a")
        assert (held == 1).all()
        assert store.collect() == []  # somebody has it
        del held
        assert store.collect() == ["a"]
        store.rename("b", "c")
        assert store.info("c").expires_in is not None
        store.expire_after("c", None)
        assert store.info("c").expires_in is None
        store.expire_after("c", 0)
        assert "c" not in store
        store.put("c", block(2))  # the name is free
        assert (store.get("c") == 2).all()
        assert store.info("c").expires_in is None


# --- collecting -------------------------------------------------------------------------------------------------


def test_collect_touches_nothing_alive(where: str) -> None:
    with sa.Store(where) as store:
        store.put("a", block())
        with store.new_draft("b", sa.schema([("x", sa.int64())]), 1000) as draft:
            draft["x"][:] = 5
            assert store.collect() == []
        assert store.collect() == []
        assert store.names() == ["a", "b"]
        store.clear()
        assert store.collect() == []
        assert leftovers(where) == []


def test_a_process_puts_for_another(where: str) -> None:
    with sa.Store(where) as store, Report() as report:

        def lives() -> None:
            mine = sa.Store(where)
            report.say(mine.owner(), mine.owner(), mine.id)
            signal.pause()

        child = forked(lives)
        report.wait()
        first, second, identity = report.lines()[0]
        number = int(first)
        assert (second, identity) == (first, store.id)
        for_child = sa.Store(where, owned=number)
        for_child.put("small", block())
        for_child.put("large", np.zeros(1 << 21, np.uint8))
        assert pickle.loads(pickle.dumps(for_child)).put("pickled", 1) == "pickled"
        assert {store.info(name).owner for name in store.names()} == {child}
        assert store.collect() == []
        kill(child)
        for value in (block(), np.zeros(1 << 21, np.uint8)):
            with pytest.raises(
                sa.StorageError, match=f"the process that was to own it, owner number {number}, has"
            ) as caught:
                for_child.put("late", value)
            assert caught.value.errno == errno.ESRCH
        assert sorted(store.collect()) == ["large", "pickled", "small"]
        assert store.owner() == store.owner() != number
    for wrong, kind in (
        (-1, sa.InvalidArgument),
        (0, sa.InvalidArgument),
        (1 << 40, sa.InvalidArgument),
        ("yes", sa.InvalidType),
    ):
        with pytest.raises(kind, match="owned"):
            sa.Store(where, owned=wrong)  # type: ignore[arg-type]


# --- links, and full file systems -------------------------------------------------------------------------------


def test_links_of_other_programs_take_no_room_for_ever(tmp_path: Path) -> None:
    """``cp -al`` or ``rsync --link-dest`` of a store: what is removed from it counts no longer, once that matters."""
    with sa.Store(tmp_path / "store", 1 << 20) as store:
        for name in ("a", "b", "small"):
            store.put(name, block() if name != "small" else 1)
        store.put("shared", store.get("a"), reuse=True)
        held = store.get("b")
        subprocess.run(["cp", "-al", store.path, str(tmp_path / "copy")], check=True)
        store.clear()
        store.collect()
        assert store.stats().nbytes + store.stats().removed == BLOCKS
        del held
        for number in range(3):
            store.put("large", np.zeros(100_000))  # the second one fits, although nobody collects
            os.link(store.info("large").path or "", tmp_path / f"another-{number}")
            store.delete("large")
        assert store.collect() == []
        assert (store.stats().nbytes, store.stats().removed) == (0, 0)
        assert check(store.path) == {}


def test_what_frees_nothing_is_not_evicted(where: str) -> None:
    """An object whose file others keep goes only with them."""
    rows = sa.record_batch({"x": np.arange(20_000)})
    with sa.Store(where, eviction="lru") as store:
        store.put("day", rows)
        batch = store.get("day", kind=sa.RecordBatch)
        store.put("copy", batch, reuse=True, protect=True)
        del batch
        store.put("other", rows)
        allocated = store.info("other").allocated
        assert store.evict(allocated) == ["other"]
        assert "day" in store
        store.protect("copy", False)
        assert set(store.evict(allocated)) == {"day", "copy"}
        assert store.stats().nbytes == 0


def test_a_full_file_system_has_room_for_what_was_removed(tmp_path: Path) -> None:
    """Files of removed objects that nobody has attached any more, and slots of objects that may go."""
    rows = sa.record_batch({"x": np.arange(60_000)})
    with lab.small_tmpfs(tmp_path / "small", 2 << 20), sa.Store(tmp_path / "small" / "store") as store:
        store.put("rows", rows)
        batch = store.get("rows", kind=sa.RecordBatch)
        store.put("shared", batch, reuse=True)
        shared = store.get("shared", kind=sa.RecordBatch)
        store.clear()  # its parts stay, as they may be mapped later
        del batch, shared
        gc.collect()
        store.put("small", np.zeros(20_000))
        store.put("large", np.zeros(200_000))  # fits only once that is swept
        assert store.names() == ["large", "small"]
    with (
        lab.small_tmpfs(tmp_path / "other", 1 << 20),
        sa.Store(tmp_path / "other" / "store", eviction="lru") as store,
        open(tmp_path / "other" / "filler", "wb") as filler,
    ):
        with suppress(OSError):
            while os.write(filler.fileno(), bytes(4096)):
                pass
        for number in range(200):
            store.put(f"{number}", number)
        assert "199" in store
        assert len(store) >= 20
        assert set(check(store.path)) == set(store.names())
