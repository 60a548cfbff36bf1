"""Locks of a store: threads, forks, interrupts, finalizers, kills; the catalog is whole after each of them."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import kills
import lab
import numpy as np
import pytest
from cases.store_files import check_store as check
from interrupts import interrupted, raised
from processes import end_well, forked, killed_at_end
from store_check import Report
from store_check import check as independent
from waiting import wait_until

import shmarrow as sa
from shmarrow import cli


def write(path: Path, table: sa.Table) -> None:
    with sa.ipc.new_file(path, table.schema) as writer:
        for part in table.to_batches():
            writer.write(part)


ONE = np.ones(1)
LARGE = np.ones(1000)
BIG = np.ones(1 << 18)
STEP = int(os.environ.get("SHMARROW_TEST_STEP", "97"))
"""At every so many instructions an operation is interrupted."""


# --- interrupts -------------------------------------------------------------------------------------------------


def fill(store: sa.Store) -> None:
    with store.new_draft("draft", sa.schema([("x", sa.int64())]), 1 << 18) as draft:
        draft["x"][:] = 1


OPERATIONS: dict[str, Any] = {
    "put": lambda store: store.put("new", ONE),
    "put large": lambda store: store.put("new", BIG),
    "replace": lambda store: store.put("a", ONE, overwrite=True),
    "replace what is attached": lambda store: store.put("held", ONE, overwrite=True),
    "get": lambda store: store.get("a"),
    "info": lambda store: store.info("a"),
    "delete": lambda store: store.delete("a"),
    "rename": lambda store: store.rename("a", "b", overwrite=True),
    "evict": lambda store: store.evict(1),
    "take": lambda store: store.take("a"),
    "fill": fill,
    "collect": lambda store: store.collect(),
    "configure": lambda store: store.configure(capacity=1 << 23),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of an interrupt in a finalizer
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_handler_that_raises_anywhere_leaves_a_store_that_is_whole(tmp_path: Path, operation: str) -> None:
    """Whatever it interrupted has happened or has not, and the next change, by another thread, waits for nobody."""
    with sa.Store(tmp_path / "store", 1 << 24) as store:
        number, more = 1, True
        while more:
            for name in ("a", "b", "held"):
                store.put(name, ONE, overwrite=True)
            held = store.get("held")
            more = raised(lambda: OPERATIONS[operation](store), number, kills.FILES)
            worked = threading.Thread(target=lambda: store.put("after", ONE, overwrite=True))
            worked.start()
            worked.join(10)
            assert not worked.is_alive()
            assert held.tolist() == [1.0]
            assert all(np.all(value == 1) for value in (store.get(name) for name in store if name != "draft"))
            assert set(check(store.path)) == set(store.names()), f"instruction {number}"
            del held
            store.clear()
            number += STEP
        assert number > STEP


def test_a_change_within_a_change_is_refused(tmp_path: Path) -> None:
    """A signal handler that changes the store in the middle of a change; a finalizer that gives up a draft then."""
    schema, refused = sa.schema([("x", sa.int64())]), set()
    with sa.Store(tmp_path / "store", 1 << 24) as store:
        for number in itertools.count(1, 11):
            draft: Any = store.new_draft("draft", schema, 1 << 18)

            def handle() -> None:
                nonlocal draft
                try:
                    store.put("inner", ONE, overwrite=True)
                except sa.StorageError as error:
                    refused.add("in the middle of another change" in str(error))
                draft = None
                gc.collect()

            more = interrupted(lambda: store.put("outer", ONE, overwrite=True), handle, number, kills.FILES)
            draft = None
            store.collect()
            assert set(check(store.path)) | {"inner"} == {"outer", "inner"}
            if not more:
                break
        assert refused == {True}


def test_what_is_freed_in_a_cycle_of_references_still_has_the_files(tmp_path: Path) -> None:
    """The garbage collector calls finalizers in any order, so a draft's may come after the store's."""
    ignored: list[Any] = []
    before, sys.unraisablehook = sys.unraisablehook, ignored.append
    try:
        for order in (1, -1):
            store = sa.Store(tmp_path / "store", 1 << 24)
            cycle: list[Any] = [store, store.new_draft("draft", sa.schema([("x", sa.int64())]), 1 << 18)][::order]
            cycle.append(cycle)
            del store, cycle
            gc.collect()
    finally:
        sys.unraisablehook = before
    assert ignored == []


# --- forks ------------------------------------------------------------------------------------------------------


def test_locks_stay_with_the_process_that_took_them(where: str) -> None:
    """A fork that Python knows of, and one that only the C library does."""
    code = """
    import ctypes, os, signal, numpy as np, shmarrow as sa
    store = sa.Store(where, owned=True)
    held = store.get("a")
    store.put("owned", np.ones(1))
    draft = store.new_draft("draft", sa.schema([("x", sa.int64())]), 1 << 18)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    for fork in (os.fork, ctypes.CDLL(None).fork):
        if fork() == 0:
            signal.sigwait([signal.SIGUSR1])
            say(held.tolist() == [1.0] * 1000)
            signal.pause()
    say("ready")
    hear()
    del held
    say("dropped")
    signal.pause()
    """
    with sa.Store(where, 1 << 24) as store:
        store.put("a", LARGE)
        with lab.child(code, where=where) as child:
            assert child.hear() == "ready"
            children = list(map(int, Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()))
            assert len(children) == 2
            try:
                assert (store.stats().pins, store.info("owned").owner) == ({child.pid: 1}, child.pid)
                child.say("drop")
                child.hear()
                assert store.stats().pins == {}
                assert store.collect() == []
                child.kill()
                assert store.info("owned").orphaned
                assert store.collect() == ["owned"]
                assert store.evict(1) == ["a"]
                assert store.stats().removed == 0
                for each in children:  # they still have what they inherited
                    os.kill(each, signal.SIGUSR1)
                    assert child.hear()
            finally:
                for each in children:
                    os.kill(each, signal.SIGKILL)
        store.clear()
        assert check(store.path) == {}


def test_a_daemon_that_closed_all_descriptors(where: str) -> None:
    """Their numbers belong to other files by then, which nobody locks, writes to or closes."""
    code = """
    import os, numpy as np, shmarrow as sa
    from processes import die
    store = sa.Store(where)
    store.put("a", np.arange(3))
    ours = {fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.exists(link := f"/proc/self/fd/{fd}")
            and os.path.realpath(link).startswith(store.path)}
    assert len(ours) >= 4
    if os.fork() == 0:
        for fd in ours:
            os.dup2(other := os.open(path, os.O_RDWR | os.O_CREAT, 0o600), fd)
            os.close(other)
        errors = []
        for use in (
            lambda: store.put("b", np.ones(1)),
            lambda: store.get("a"),
            lambda: store.delete("a"),
            store.names,
            store.stats,
            store.watch,
        ):
            try: use()
            except sa.Closed as error: errors.append("open it again" in str(error))
        with sa.Store(where) as again:
            again.put("b", again.get("a"))
            store.close()
            del store
            found = again.names()
        here = [os.path.samestat(os.fstat(fd), os.stat(path)) for fd in ours]
        say((errors, found, all(here), os.path.getsize(path)))
        die()
    os.wait()
    result = store.names(), store.get("b").tolist()
    """
    with lab.shared_folder() as folder, sa.Store(where) as store:
        with lab.child(code, where=where, path=f"{folder}/other") as child:
            assert child.hear() == ([True] * 6, ["a", "b"], True, 0)
            assert child.result() == (["a", "b"], [0, 1, 2])
        store.clear()


def test_forks_while_other_threads_hold_the_lock(where: str) -> None:
    """A child is forked at any moment of a change: it uses the store, and keeps no lock from anybody."""
    with sa.Store(where) as store:
        stop = threading.Event()
        turns = Counter[int]()

        def churn(number: int) -> None:
            held: list[Any] = []
            while not stop.is_set():
                turns[number] += 1
                name = f"{number}-{turns[number] % 50}"
                store.put(name, ONE, overwrite=True)
                held = [*held[-5:], store.get(name)]

        def use(number: int) -> None:
            store.put(f"child-{number}", ONE)
            assert store.get(f"child-{number}").tolist() == [1.0]
            store.delete(f"child-{number}")

        threads = [threading.Thread(target=churn, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        idle, busy = [], []
        with killed_at_end(idle):
            for number in range(12):
                before = turns.total()
                wait_until(lambda: turns.total() > before + 2, "others change the store")  # noqa: B023
                idle.append(forked(signal.pause))
                busy.append(forked(lambda: use(number)))  # noqa: B023
            end_well(busy)
            stop.set()
            for thread in threads:
                thread.join()
            store.put("after", ONE)
            store.collect()
            assert set(check(store.path)) == set(store.names())


# --- looking is no locking --------------------------------------------------------------------------------------


def test_who_looks_locks_nothing(where: str) -> None:
    """Processes that ask for info and stats in a loop cause no false pins, and keep nobody from evicting."""

    def look(report: Report) -> None:
        with sa.Store(where) as mine:
            report.say("ready")
            while True:
                for name in mine.names():
                    try:
                        assert mine.info(name).pins == 0
                    except sa.ObjectNotFound:
                        continue
                assert mine.stats().pinned == 0

    with sa.Store(where, 1 << 20) as store, Report() as report:
        children = [forked(lambda: look(report)) for _ in range(2)]
        with killed_at_end(children):
            report.wait(2)
            for _ in range(200):
                store.put("a", ONE)
                assert store.stats().pins == {}
                assert store.evict(1) == ["a"]
            assert [os.waitpid(child, os.WNOHANG)[0] for child in children] == [0, 0]


def test_pins_of_another_file_with_the_same_number_are_none(where: str, tmp_path: Path) -> None:
    with sa.Store(where) as store:
        store.put("a", LARGE)
        with open(tmp_path / "other", "wb") as other:
            fcntl.lockf(other, fcntl.LOCK_EX)
            assert store.info("a").pins == 0
            with sa.Store(tmp_path / "second") as second:
                second.put("a", LARGE)
                held = second.get("a")
                assert (store.info("a").pins, second.info("a").pins) == (0, 1)
                assert store.evict(1) == ["a"]
                assert held.tolist() == LARGE.tolist()


# --- what opens by path -----------------------------------------------------------------------------------------


OPENERS: dict[str, Callable[[Any, sa.Store], object]] = {
    "open": lambda path, store: sa.open(path),
    "scan": lambda path, store: sa.scan(path).count_rows(),
    "open_file": lambda path, store: sa.ipc.open_file(path),
    "open_file, read": lambda path, store: sa.ipc.open_file(path, memory_map=False),
    "open_stream": lambda path, store: sa.ipc.open_stream(path),
    "read_tensor": lambda path, store: sa.ipc.read_tensor(path),
    "load_tensors": lambda path, store: sa.load_tensors(path),
    "attach": lambda path, store: sa.segment.attach(path),
    "put_file": lambda path, store: store.put_file("copy", path),
    "Ring": lambda path, store: sa.Ring(path),
    "inspect": lambda path, store: cli.main(["inspect", str(path)]),
    "convert": lambda path, store: cli.main(["convert", str(path), f"{path}.arrow"]),
}
"""What reads the file of a path."""


@pytest.mark.parametrize("opener", OPENERS)
def test_nothing_opens_the_files_that_are_locked(tmp_path: Path, opener: str) -> None:
    """Closing one of them would drop all locks of this process on it, also under other names that lead to it."""
    where = tmp_path / "store"
    with sa.Store(where, owned=True) as store:
        store.put("held", LARGE)
        held = store.get("held")
        for file in ("commit", "pins", "control"):
            (tmp_path / f"link-{file}").symlink_to(where / file)
            os.link(where / file, tmp_path / f"name-{file}")
            for path in (where / file, tmp_path / f"link-{file}", tmp_path / f"name-{file}"):
                with suppress(sa.ShmarrowError):
                    assert OPENERS[opener](path, store) in (1, 2, 3)  # exit statuses
        seen = "store = sa.Store(where); result = store.stats().pins, store.info('held').owner, store.collect()"
        assert lab.run(f"import shmarrow as sa; {seen}", where=str(where)) == ({os.getpid(): 1}, os.getpid(), [])
        assert held.tolist() == LARGE.tolist()
        if opener == "attach":
            with pytest.raises(sa.StorageError, match=r"commit.*locks of this process.*Store.* opens"):
                sa.segment.attach(where / "commit")


@pytest.mark.parametrize("source", ["{}", "{}/**", "{}/*/*"])
def test_a_store_in_a_folder_that_is_scanned(tmp_path: Path, source: str) -> None:
    """Its objects are rows like those of files; its files are not opened by their names."""
    for key, values in {"day=1": [1, 2], "day=3": [5]}.items():
        (tmp_path / key).mkdir()
        write(tmp_path / key / "rows.arrow", sa.table({"x": values}))
    with sa.Store(tmp_path / "day=2") as store:
        store.put("b", sa.table({"x": [4]}))
        store.put("a", sa.table({"x": np.full(1000, 3)}))
        store.put("_hidden", 7)
    scan = sa.scan(source.format(tmp_path))
    expected = [(1, 1), (1, 2), *[(2, 3)] * 1000, (2, 4), (3, 5)]
    assert [(row["day"], row["x"]) for row in scan.to_table().to_pylist()] == expected
    (tmp_path / "day=2" / "control").write_bytes(b"something else")
    with pytest.raises(sa.InvalidData, match="day=2"):
        sa.scan(source.format(tmp_path)).count_rows()


def test_scans_of_the_folder_beside_puts(tmp_path: Path) -> None:
    """One thread puts, one scans the folder, another process puts, as ``SECONDS`` in the environment says longer."""
    seconds = float(os.environ.get("SHMARROW_TEST_SECONDS", "3"))
    table = sa.table({"x": np.arange(2000)})
    write(tmp_path / "rows.arrow", table)
    with sa.Store(tmp_path / "store") as store:
        stop = threading.Event()
        failed: list[BaseException] = []
        turns = Counter[str]()

        def repeat(name: str, call: Callable[[], object]) -> None:
            try:
                while not stop.is_set():
                    call()
                    turns[name] += 1
            except BaseException as error:
                failed.append(error)
                stop.set()

        def scan() -> None:
            with suppress(sa.ObjectNotFound):  # what was replaced between its listing and its turn
                assert sa.scan(tmp_path).count_rows() % 2000 == 0

        calls = {"scan": scan, "put": lambda: store.put(f"a{turns['put'] % 100}", table, overwrite=True)}
        threads = [threading.Thread(target=repeat, args=one) for one in calls.items()]
        other = """
        import shmarrow as sa, numpy as np, time
        table, number, end = sa.table({"x": np.arange(2000)}), 0, time.monotonic() + seconds
        with sa.Store(where) as store:
            while time.monotonic() < end:
                store.put(f"b{number % 100}", table, overwrite=True)
                number += 1
        result = number
        """
        for thread in threads:
            thread.start()
        assert lab.run(other, where=store.path, seconds=seconds, timeout=seconds + 30) > 10
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed, failed
        assert min(turns.values()) > 3, turns
        assert set(check(store.path)) == set(store.names())
        independent(store.path)
