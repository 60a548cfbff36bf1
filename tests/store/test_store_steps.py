"""Processes that are killed at a named step of a change, and others that act before it is repaired."""

from __future__ import annotations

import fcntl
import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pytest
from cases.store_files import check_store
from interrupts import killed_at
from processes import die, ended, forked, killed_at_end
from store_check import leftovers

import shmarrow as sa
from shmarrow.store import protocol as p

HAPPENED = "store/control.py", "# the commit has happened, and is applied from here"
HALF = "store/control.py", "# the commit is applied"
LINKED = "store/transaction.py", "link_unnamed(fd, file_name(number), directory.fd)"
LARGE = np.arange(2000)


def rows(number: int, count: int = 1 << 17) -> sa.RecordBatch:
    return sa.record_batch({name: np.full(count, number + i) for i, name in enumerate("abcd")})


# --- attaching what a killed process was removing ---------------------------------------------------------------


@pytest.mark.parametrize("step", [HAPPENED, HALF])
@pytest.mark.parametrize("what", ["delete", "replace", "evict", "rename"])
def test_an_object_is_attached_as_the_last_complete_journal_has_it(
    where: str, step: tuple[str, str], what: str
) -> None:
    """The lock of a killed remover, which kept others from pinning the object, has gone with it."""
    changes: dict[str, Callable[[], Any]] = {
        "delete": lambda: store.delete("a"),
        "replace": lambda: store.put("a", LARGE + 1, overwrite=True),
        "evict": lambda: store.evict(1),
        "rename": lambda: store.rename("a", "b"),
    }
    with sa.Store(where, 1 << 24) as store:
        store.put("a", rows(1))
        assert killed_at(changes[what], *step)
        if what == "replace":
            assert store.get("a").tolist() == (LARGE + 1).tolist()
        else:
            with pytest.raises(sa.ObjectNotFound):
                store.get("a")
        assert store.stats().pins == {}
        store.put("next", LARGE)
        assert store.info("next").pins == 0
        store.delete("next")
        assert store.stats().removed == 0
        if what == "rename":
            assert store.get("b") == rows(1)
        assert set(check_store(where)) == set(store.names())
        store.clear()
        assert leftovers(where) == []


def test_what_is_attached_before_is_kept(where: str) -> None:
    """A remover that is killed while others have the object attached, which map its parts later."""
    with sa.Store(where, 1 << 26) as store:
        store.put("source", rows(1))
        store.put("a", store.get("source", kind=sa.RecordBatch), reuse=True)
        store.delete("source")
        held = store.get("a", kind=sa.RecordBatch)
        assert killed_at(lambda: store.delete("a"), *HAPPENED)
        store.put("next", rows(2))
        assert held == rows(1)
        assert store.get("next") == rows(2)
        del held
        store.delete("next")
        store.collect()
        assert (store.stats().nbytes, store.stats().removed, leftovers(where)) == (0, 0, [])


def test_an_interrupt_at_the_same_step(where: str) -> None:
    """A KeyboardInterrupt in a process that goes on: its lock of the pin is released with the others."""
    path, text = HAPPENED
    source = Path(sa.__file__).parent / path
    [line] = [number for number, each in enumerate(source.read_text().splitlines(), 1) if text in each]

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != str(source):
            return None
        if event == "line" and frame.f_lineno == line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    with sa.Store(where) as store:
        store.put("a", LARGE)
        sys.settrace(trace)
        try:
            with pytest.raises(KeyboardInterrupt):
                store.delete("a")
        finally:
            sys.settrace(None)
        with pytest.raises(sa.ObjectNotFound):
            store.get("a")
        store.put("b", LARGE)
        assert store.info("b").pins == 0
        assert set(check_store(where)) == {"b"}


# --- space ------------------------------------------------------------------------------------------------------


def test_a_killed_put_with_reuse_takes_no_room(where: str) -> None:
    with sa.Store(where, 1 << 23, eviction="none") as store:
        store.put("day", rows(1))

        def copy() -> None:
            store.put("copy", store.get("day", kind=sa.RecordBatch), reuse=True)

        assert killed_at(copy, *LINKED)
        store.delete("day")
        store.collect()
        assert (store.stats().nbytes, leftovers(where)) == (0, [])
        store.put("other", np.zeros(7 << 17))


def test_all_removed_objects_are_freed_by_one_collect(where: str) -> None:
    with sa.Store(where) as store:
        store.put("day", rows(1))
        for number in range(40):
            store.put(f"{number}", store.get("day", kind=sa.RecordBatch).slice(number), reuse=True)
        held = [store.get(f"{number}") for number in range(40)]
        store.clear()
        assert store.stats().removed > rows(1).nbytes
        del held
        store.collect()
        assert (store.stats().nbytes, store.stats().removed, leftovers(where)) == (0, 0, [])


def test_attached_memory_keeps_to_the_capacity(where: str) -> None:
    kept = []
    with sa.Store(where, 1 << 24) as store:

        def hold() -> None:
            for number in range(20):
                store.put("day", rows(number))
                kept.append(store.get("day", kind=sa.RecordBatch))
                store.put("copy", kept[-1], reuse=True)
                store.delete("day")
                store.delete("copy")

        with pytest.raises(sa.StoreFull, match="of removed objects that are still attached"):
            hold()
        assert len(kept) == 3
        kept.clear()
        hold_again = rows(7)
        store.put("day", hold_again)
        assert store.get("day") == hold_again


def test_what_is_full_evicts_nothing(where: str) -> None:
    """More than a batch of candidates, which are not enough; candidates that others have attached meanwhile."""
    block = np.zeros(1000)
    with sa.Store(where, 300 * 8192 * 2) as store:
        for number in range(300):
            store.put(f"{number:03}", block)
        store.evict(0)
        size = store.info("000").allocated
        held = [store.get(f"{number:03}") for number in range(200)]
        names = store.names()
        with pytest.raises(sa.StoreFull):
            store.put("large", np.zeros(150 * size // 8 + (store.capacity or 0) // 8 - 300 * size // 8))
        assert store.names() == names
        del held
        store.put("large", np.zeros((store.capacity or 0) // 8 - 250 * size // 8))
        assert "large" in store
        assert len(store) < 300


def test_a_stale_list_of_candidates_is_not_believed(where: str) -> None:
    with sa.Store(where, 1 << 22) as store:
        for number in range(30):
            store.put(f"{number:02}", np.zeros(1 << 14))
        store.put("first", np.zeros(1 << 16))  # evicts some, and keeps the other candidates in mind
        names = store.names()
        code = """
        held = [store.get(name) for name in store.names()[1:]]
        say("held")
        hear()
        """
        with lab.child(code, store=store) as child:
            assert child.hear() == "held"
            with pytest.raises(sa.StoreFull):
                store.put("second", np.zeros(1 << 18))
            assert store.names() == names
            child.kill()
        store.put("second", np.zeros(1 << 18))


def test_shared_files_are_counted_once(where: str) -> None:
    """Objects that share one file: evicting some of them frees nothing, so none is evicted in vain."""
    with sa.Store(where, 1 << 23) as store:
        store.put("day", rows(1))
        day = store.get("day", kind=sa.RecordBatch)
        for number in range(4):
            store.put(f"view {number}", day.slice(number), reuse=True)
        held = store.get("view 0", kind=sa.RecordBatch)["a"].to_numpy()
        del day
        names = store.names()
        with pytest.raises(sa.StoreFull):
            store.put("more", np.zeros(6 << 17))
        assert store.names() == names
        assert held[0] == 1
        del held
        store.put("more", np.zeros(6 << 17))
        assert store.names() == ["more"]


# --- limits of the system ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["descriptors", "memory"])
def test_a_control_file_that_cannot_be_mapped(where: str, what: str) -> None:
    """Extending the catalog maps it again, which takes a descriptor and address space: an error of ours."""

    def fill() -> None:
        if what == "descriptors":
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0) + 1, most))
            with suppress(OSError):  # also those between the ones that are in use
                while True:
                    os.dup(0)
        else:
            size = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        try:
            for number in itertools.count():
                store.put(f"{number}", b"")
        except sa.StorageError as error:
            die(0 if "map the control file" in str(error) else 2)
        except MemoryError:
            die(0 if what == "memory" else 3)

    with sa.Store(where) as store:
        store.put("a", b"")
        assert ended(forked(fill)) == 0
        store.put("after", 1)
        assert store.get("after") == 1
        assert set(check_store(where)) == set(store.names())


def test_a_wait_for_a_stopped_process_ends_in_time(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time counts, not the turns, each of which may take long on a busy machine."""
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        real(0.05)

    real = time.sleep
    with sa.Store(where) as store:
        store.put("a", LARGE)

        def remove() -> None:
            fd = os.open(f"{store.path}/{p.PINS}", os.O_RDWR)
            fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)
            os.write(ready, b"1")
            signal.pause()

        waiting, ready = os.pipe()
        child = forked(remove)
        with killed_at_end([child]):
            assert os.read(waiting, 1) == b"1"
            monkeypatch.setattr("shmarrow.store.attach.PATIENCE", 0.3)
            monkeypatch.setattr(time, "sleep", sleep)
            with pytest.raises(sa.StorageError, match="a process has been evicting it for"):
                store.get("a")
            monkeypatch.undo()
        assert 0 < len(pauses) < 20
        assert store.get("a").tolist() == LARGE.tolist()
