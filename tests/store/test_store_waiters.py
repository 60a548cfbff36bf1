"""Waiting: who is woken by what, what is told of objects that are gone at once, and what killed waiters leave."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pytest
from interrupts import killed, raised
from processes import ended, forked, killed_at_end
from put_all import put_all
from store_check import place
from waiting import wait_until

import shmarrow as sa
from shmarrow.store import protocol as p

ONE = np.ones(1)
FILES = ("/store/waiters.py", "/memory/futex.py")
STEP = int(os.environ.get("SHMARROW_TEST_STEP", "19"))
"""Before every so many instructions a waiter is killed or interrupted."""


@pytest.fixture
def where(shm_store: str) -> str:
    """In shared memory only: words are waited for alike in a directory (``test_futex.py``)."""
    return shm_store


def records(where: str) -> list[tuple[int, int, int]]:
    """The records of those who wait: hash, length, 1."""
    table = Path(place(where), "control").read_bytes()[p.WAITERS : p.SLOTS]
    return [record for record in p.WAITER_STRUCT.iter_unpack(table) if record[2]]


def until_waiting(where: str, count: int) -> None:
    """Return when so many wait."""
    wait_until(lambda: len(records(where)) >= count, f"{count} wait")


def waits(where: str, *names: str, get: bool = False) -> int:
    """A child that waits for names, one after the other."""

    def wait() -> None:
        with sa.Store(where) as store:
            for name in names:
                store.get(name, timeout=60) if get else store.wait(name, timeout=60)

    return forked(wait)


# --- published and deleted --------------------------------------------------------------------------------------


def test_an_object_that_is_deleted_at_once_was_published(where: str) -> None:
    """All who wait for it are told; nobody gets it; those who want it go on waiting for the next one."""
    with sa.Store(where) as store:
        told, both = [waits(where, "a") for _ in range(4)], waits(where, "a", "b")
        gets = [waits(where, "a", get=True) for _ in range(4)]
        with killed_at_end([*told, both, *gets]):
            until_waiting(where, 9)
            for each in (signal.SIGSTOP, signal.SIGCONT):
                for child in (*told, both, *gets):
                    os.kill(child, each)
                if each == signal.SIGSTOP:
                    store.put("a", ONE)
                    store.delete("a")
            assert [ended(child) for child in told] == [0] * 4
            assert [os.waitpid(child, os.WNOHANG) for child in (both, *gets)] == [(0, 0)] * 5
            store.put("b", ONE)
            assert ended(both) == 0
            store.put("a", ONE)
            assert [ended(child) for child in gets] == [0] * 4
        assert records(where) == []


def test_wait_for_several(where: str) -> None:
    """Each counts once it was published, whatever is there at the end."""
    with sa.Store(where) as store:
        found: list[list[str]] = []
        wait = threading.Thread(target=lambda: found.append(store.wait(["x1", "x2", "there", "x1"], timeout=60)))
        first = threading.Thread(target=lambda: found.append(store.wait(["x1", "x2"], any=True, timeout=60)))
        store.put("there", ONE)
        wait.start()
        until_waiting(where, 1)
        store.put("x2", ONE)
        store.delete("x2")
        store.delete("there")
        assert wait.is_alive()
        first.start()
        until_waiting(where, 2)
        store.put("y", ONE)
        assert first.is_alive()
        store.put("x1", ONE)
        wait.join(60)
        first.join(60)
        assert sorted(found) == [["x1"], ["x1", "x2", "there", "x1"]]


def test_what_is_missed_is_what_is_more_than_256_events_ago(where: str) -> None:
    with sa.Store(where) as store:
        child = waits(where, "a", "b")
        with killed_at_end([child]):
            until_waiting(where, 1)
            os.kill(child, signal.SIGSTOP)
            store.put("a", ONE)
            for number in range(300):
                store.put("other", number, overwrite=True)
            store.put("b", ONE)
            store.delete("b")
            store.put("b", ONE)
            os.kill(child, signal.SIGCONT)
            assert ended(child) == 0


# --- who is woken -----------------------------------------------------------------------------------------------


@contextmanager
def waiters(where: str, *prefixes: bytes) -> Iterator[Callable[[], set[bytes]]]:
    """Waiters by hand, as ``docs/protocol.md`` has it, in the last records; gives those whom nobody has woken."""
    first = p.WAITER_COUNT - len(prefixes)
    store = place(where)
    with open(f"{store}/control", "r+b") as control:
        mapped = mmap.mmap(control.fileno(), 0)
    modulus = struct.unpack_from("<Q", mapped, p.HEADER["modulus"][0])[0]

    def hold(ready: int) -> None:
        with open(f"{store}/commit", "r+b") as commit:
            fcntl.lockf(commit, fcntl.LOCK_EX, len(prefixes), p.WAITER_LOCKS + first)
            os.write(ready, b".")
            signal.pause()

    read, write = os.pipe()
    holder = forked(lambda: hold(write))
    with killed_at_end([holder]):
        assert os.read(read, 1) == b"."
        os.close(read), os.close(write)
        at = {prefix: p.WAITERS + (first + i) * p.WAITER_SIZE for i, prefix in enumerate(prefixes)}
        for prefix in prefixes:
            hashed = int.from_bytes(prefix, "big") * p.HASH_FACTOR % modulus
            p.WAITER_STRUCT.pack_into(mapped, at[prefix], hashed, len(prefix), 1)
        yield lambda: {prefix for prefix in prefixes if p.WAITER_STRUCT.unpack_from(mapped, at[prefix])[2]}
        for prefix in prefixes:
            p.WAITER_STRUCT.pack_into(mapped, at[prefix], 0, 0, 0)


NAME, OLD = {b"name\0", b"name", b"na", b""}, {b"old\0", b""}
"""Those who wait for a name, or watch prefixes of it."""
NEITHER = {b"nam\0", b"names\0", b"names"}
CHANGES: dict[str, tuple[Callable[[sa.Store], object], set[bytes]]] = {
    "put": (lambda store: store.put("name", ONE), NAME),
    "large": (lambda store: store.put("name", bytes(10_000)), NAME),
    "replace": (lambda store: store.put("old", ONE, overwrite=True), OLD),
    "delete": (lambda store: store.delete("old"), OLD),
    "to": (lambda store: store.rename("old", "name"), NAME | OLD),
    "evict": (lambda store: store.evict(1), OLD),
    "destroy": (lambda store: store.destroy(), NAME | OLD | NEITHER),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_wakes_those_concerned(where: str, change: str) -> None:
    use, concerned = CHANGES[change]
    with sa.Store(where) as store:
        store.put("old", ONE)
        with waiters(where, *NAME | OLD | NEITHER) as waiting:
            store.info("old")
            store.configure(capacity=1 << 20)
            store.owner()
            assert waiting() == NAME | OLD | NEITHER
            use(store)
            assert waiting() == (NAME | OLD | NEITHER) - concerned


def test_a_computation_that_fails_wakes_the_next_one(where: str) -> None:
    with sa.Store(where) as store, waiters(where, b"name\0") as waiting:
        with pytest.raises(ZeroDivisionError):
            store.get_or_put("name", lambda: 1 / 0)
        assert not waiting()


def test_more_waiters_than_records(where: str) -> None:
    """Those without one look at intervals."""
    names = [f"{number}" for number in range(p.WAITER_COUNT + 20)]
    with sa.Store(where) as store:
        threads = [threading.Thread(target=store.get, args=(name,), kwargs={"timeout": 60}) for name in names]
        for thread in threads:
            thread.start()
        until_waiting(where, p.WAITER_COUNT)
        put_all(store, dict.fromkeys(names, ONE))
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert records(where) == []


OTHER_MEMORY = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]


@pytest.mark.parametrize("container", [["unshare", "-p", "-f"], OTHER_MEMORY], ids=["processes", "memory"])
def test_a_waiter_in_a_container(tmp_path: Path, container: list[str]) -> None:
    """With processes, or shared memory, of its own."""
    if subprocess.run([*container, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("there are no namespaces here")
    where = str(tmp_path / "store")
    source = f"import shmarrow as sa; sa.Store({where!r}).get('a', timeout=60)"
    with sa.Store(where) as store:
        child = subprocess.Popen([*container, sys.executable, "-c", source])
        with killed_at_end([child.pid]):
            until_waiting(where, 1)
            store.put("a", ONE)
            assert child.wait(60) == 0
        assert records(where) == []


# --- other users ------------------------------------------------------------------------------------------------

ALICE, BOB, EVE, GROUP = 1001, 1002, 1003, 1234
ROOT = 0
USERS: dict[int, dict[str, Any]] = {
    ROOT: {},
    ALICE: {"uid": ALICE, "gid": GROUP},
    BOB: {"uid": BOB, "groups": [GROUP]},
    EVE: {"uid": EVE},
}


@pytest.mark.parametrize(
    ("mode", "waiter", "writer"),
    [
        (0o600, ALICE, ALICE),
        (0o600, ALICE, ROOT),
        (0o600, ROOT, ALICE),
        (0o660, ALICE, BOB),
        (0o660, BOB, ALICE),
        (0o660, ROOT, BOB),
        (0o666, EVE, ALICE),
        (0o666, BOB, EVE),
    ],
)
def test_who_may_write_to_the_store_may_wake(shm_name: str, mode: int, waiter: int, writer: int) -> None:
    lab.run("import shmarrow as sa; sa.Store(where, mode=mode)", where=shm_name, mode=mode, **USERS[ALICE])
    code = "import shmarrow as sa; store = sa.Store(where, accept_users=trust); {}"
    trust = {"where": shm_name, "trust": [ALICE] if mode != 0o666 else True}
    with lab.child(code.format("store.get('a', timeout=60)"), **trust, **USERS[waiter]) as waits:
        until_waiting(shm_name, 1)
        waits.kill(signal.SIGSTOP)
        lab.run(code.format("store.put('a', 1)"), **trust, **USERS[writer])
        assert records(shm_name) == []
        waits.kill(signal.SIGCONT)
        waits.result()
    lab.run(code.format("store.destroy()"), **trust, **USERS[ALICE])


def test_who_may_only_read_waits_without_a_record(shm_name: str) -> None:
    code = "import shmarrow as sa; store = sa.Store(where, mode=0o644, accept_users=trust); {}"
    lab.run(code.format("store.put('first', 1)"), where=shm_name, trust=False, **USERS[ALICE])
    read = "say(1); store.get('a', timeout=60)"
    with lab.child(code.format(read), where=shm_name, trust=ALICE, **USERS[EVE]) as waits:
        assert waits.hear() == 1
        lab.run(code.format("store.put('a', 1)"), where=shm_name, trust=False, **USERS[ALICE])
        waits.result()
        assert records(shm_name) == []
    lab.run(code.format("store.destroy()"), where=shm_name, trust=False, **USERS[ALICE])


def test_a_wait_ends_in_time_whatever_the_clock_says(where: str) -> None:
    code = """
    import shmarrow as sa
    store = sa.Store(where)
    for _ in range(2):
        try:
            store.get("a", timeout=0.2)
        except sa.ObjectNotFound:
            say("ended")
            hear()
    """
    with lab.wall_clock() as clock, lab.child(code, where=where) as waits:
        assert waits.hear() == "ended"
        clock.set_back(-1e6)
        waits.say("again")
        assert waits.hear() == "ended"
        waits.say("end")
        waits.result()


# --- what killed waiters leave ----------------------------------------------------------------------------------


def test_a_change_after_waiters_were_killed_wakes_the_others(where: str) -> None:
    with sa.Store(where) as store:
        children = [waits(where, "a") for _ in range(5)]
        alive = waits(where, "a")
        with killed_at_end([alive]):
            with killed_at_end(children):
                until_waiting(where, 6)
            store.put("a", ONE)
            assert ended(alive) == 0
        assert records(where) == []


def test_a_process_ends_although_its_threads_wait_for_ever(where: str) -> None:
    source = """
import sys, threading
import shmarrow as sa
store = sa.Store(sys.argv[1])
for name in ("a", "b"):
    threading.Thread(target=store.get, args=(name,), kwargs={"timeout": None}, daemon=True).start()
sys.stdin.read(1)
"""
    with sa.Store(where):
        command = [sys.executable, "-c", source, where]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with killed_at_end([child.pid]):
            until_waiting(where, 2)
            assert child.communicate("x", 60)[1] == ""


def test_records_of_killed_waiters_are_used_again(where: str) -> None:
    def many() -> None:
        store = sa.Store(where)
        for number in range(p.WAITER_COUNT):
            threading.Thread(target=store.get, args=(f"{number}",), kwargs={"timeout": 60}).start()
        signal.pause()

    with sa.Store(where) as store:
        child = forked(many)
        with killed_at_end([child]):
            until_waiting(where, p.WAITER_COUNT)
        before = records(where)
        assert len(before) == p.WAITER_COUNT
        child = waits(where, "a")
        with killed_at_end([child]):
            wait_until(lambda: records(where) != before, "a record is used again")
            store.put("a", ONE)
            assert ended(child) == 0
        assert p.WAITER_COUNT - 5 <= len(records(where)) < p.WAITER_COUNT  # and the commit has cleared some


def test_collect_clears_records_of_killed_waiters(where: str) -> None:
    """Each commit would look at them; many of them are also cleared by the commits that meet them."""

    def armed() -> int:
        data = (Path(place(where)) / p.CONTROL).read_bytes()[p.WAITERS : p.SLOTS]
        return sum(map(bool, np.frombuffer(data, "<u4")[3::4].tolist()))

    with sa.Store(where) as store:
        for clear in (store.collect, lambda: [store.put("other", turn, overwrite=True) for turn in range(100)]):
            waiting = [forked(lambda number=number: store.wait(f"never {number}")) for number in range(40)]
            with killed_at_end(waiting):
                wait_until(lambda: armed() == 40, "all wait")
                store.put("other", 1, overwrite=True)
                store.collect()
                assert armed() == 40  # none of the living
            clear()
            assert armed() <= 16
            store.collect()
            assert armed() == 0


def test_killed_anywhere(where: str) -> None:
    """Whatever a waiter was doing, the next one has a record, and is woken."""

    def wait() -> None:
        with sa.Store(where) as store:
            with pytest.raises(sa.ObjectNotFound):
                store.get("a", timeout=0.02)
            with pytest.raises(sa.ObjectNotFound):
                store.wait(["a", "b"], timeout=0.02)

    number = 1
    with sa.Store(where) as store:
        while killed(wait, number, FILES):
            number += STEP
            store.put("c", ONE)
            assert store.wait("c", timeout=0) == ["c"]
            store.delete("c")
        child = waits(where, "c")
        with killed_at_end([child]):
            until_waiting(where, 1)
            store.put("c", ONE)
            assert ended(child) == 0
    assert number > 50


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of an interrupt in a finalizer
def test_interrupted_anywhere(where: str) -> None:
    """A signal handler that raises ends the wait; the thread goes on, and leaves nothing."""
    number, left = 1, 0
    with sa.Store(where) as store:

        def wait() -> None:
            with pytest.raises(sa.ObjectNotFound):
                store.get("a", timeout=0.001)

        more = True
        while more:
            more = raised(wait, number, FILES)
            left += len(records(where))
            number += STEP
            store.put("b", ONE, overwrite=True)
        assert left == 0
    assert number > 50


def test_a_handler_may_use_the_store_while_it_waits(where: str) -> None:
    with sa.Store(where) as store:
        found: list[Any] = []

        def handle(*_: object) -> None:
            store.put("inner", ONE)
            found.append(store.get("inner", timeout=60))
            with pytest.raises(sa.ObjectNotFound):
                store.get("never", timeout=0.01)
            store.put("a", ONE)

        before = signal.signal(signal.SIGALRM, handle)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            assert store.get("a", timeout=60).tolist() == [1]
        finally:
            signal.signal(signal.SIGALRM, before)
        assert len(found) == 1
        assert records(where) == []


def test_a_forked_child_waits_by_itself(where: str) -> None:
    """A process that forks while it waits, in a signal handler; both go on waiting, and both are woken."""
    with sa.Store(where) as store:

        def wait() -> None:
            children = []
            signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            store.get("a", timeout=60)
            assert all(ended(child) == 0 for child in children if child)

        child = forked(wait)
        with killed_at_end([child]):
            until_waiting(where, 2)
            store.put("a", ONE)
            assert ended(child) == 0
        assert records(where) == []


def test_threads_wait_in_a_forked_child(where: str) -> None:
    with sa.Store(where) as store:
        thread = threading.Thread(target=store.get, args=("a",), kwargs={"timeout": 60})
        thread.start()
        until_waiting(where, 1)
        child = forked(lambda: store.get("a", timeout=60))
        with killed_at_end([child]):
            until_waiting(where, 2)
            store.put("a", ONE)
            assert ended(child) == 0
        thread.join(60)
        assert records(where) == []
