"""Operations by name: prefixes, generations, take, get_or_put, wait, many at once, pins, protection; pickling."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
from contextlib import suppress
from typing import Any

import lab
import numpy as np
import pytest
from processes import end_well, ended, forked, killed_at_end
from put_all import put_all
from store_check import Report
from waiting import wait_until, wait_until_asleep

import shmarrow as sa

ONE = np.ones(1)


@pytest.fixture
def where(shm_store: str) -> str:
    """In shared memory only: names are the same in a directory."""
    return shm_store


# --- prefixes ---------------------------------------------------------------------------------------------------


def test_prefixes(where: str) -> None:
    names = ["a", "a/", "a/b", "a/b/c", "ab", "ä/1", "ä/2", "b"]
    with sa.Store(where) as store:
        assert put_all(store, {name: number for number, name in enumerate(names)}) == names
        assert store.names() == sorted(store) == sorted(names)
        for prefix in ("", "a", "a/", "a/b", "ä", "ä/2", "c", "\ud7ff"):
            chosen = sorted(name for name in names if name.startswith(prefix))
            assert store.names(prefix) == chosen
            assert sorted(found.name for found in store.scan(prefix)) == chosen
            with store.watch(prefix) as watch:
                assert watch.names == chosen
        assert {found.name: found.nbytes for found in store.scan()} == {n: store.info(n).nbytes for n in names}
        assert store.delete(prefix="a/") == 3
        assert store.names() == ["a", "ab", "b", "ä/1", "ä/2"]
        assert store.delete(prefix="nothing") == 0
        assert (len(store), store.delete(prefix="")) == (5, 5)
        for wrong in ({}, {"name": "a", "prefix": "b"}):
            with pytest.raises(sa.InvalidArgument, match="a name or a prefix"):
                store.delete(**wrong)
        for use in (store.names, store.watch, lambda prefix: list(store.scan(prefix))):
            with pytest.raises(sa.InvalidType, match="prefix must be a str"):
                use(3)


# --- generations ------------------------------------------------------------------------------------------------


def test_generations_never_come_again(where: str) -> None:
    with sa.Store(where) as store:
        seen = []
        for number in range(5):
            store.put("a", np.full(1, number), overwrite=True)
            seen.append(store.info("a").generation)
        store.rename("a", "b")
        seen.append(store.info("b").generation)
        store.delete("b")
        store.put("a", ONE)
        seen.append(store.info("a").generation)
        assert seen == sorted(set(seen))
        store.protect("a")
        store.expire_after("a", 100)
        assert store.info("a").generation == store.generation("a") == seen[-1]
        assert store.generation("b") == 0


def test_only_the_generation_that_was_read_is_replaced(where: str) -> None:
    """Each of four processes adds one to a number 50 times, by compare and swap; no addition is lost."""

    def add() -> None:
        with sa.Store(where) as mine:
            for _ in range(50):
                while True:
                    generation = mine.generation("sum")
                    value = mine.get("sum")
                    try:
                        mine.put("sum", value + 1, if_generation=generation)
                    except sa.GenerationChanged:
                        continue
                    break

    with sa.Store(where) as store:
        assert store.put("sum", 0, if_generation=0) == "sum"
        with pytest.raises(
            sa.GenerationChanged, match=r"expected generation 0, and it has generation \d+; read it again"
        ):
            store.put("sum", 5, if_generation=0)
        with pytest.raises(sa.ObjectExists):
            store.put("sum", 5, if_generation=1 << 40, overwrite=True)
        with pytest.raises(sa.GenerationChanged, match="and there is none"):
            store.put("other", 5, if_generation=3)
        end_well([forked(add) for _ in range(4)])
        assert store.get("sum") == 200


# --- renaming ---------------------------------------------------------------------------------------------------


def test_names_and_expiry(where: str) -> None:
    with sa.Store(where) as store:
        store.put("a", 1)
        before = store.stats()
        store.rename("a", "a")
        store.rename("a", "a", overwrite=True)
        assert store.get("a") == 1
        assert (store.stats().objects, store.stats().nbytes) == (before.objects, before.nbytes)
        store.put("over", 2, expire_after=0)
        with store.watch() as watch:
            assert watch.names == ["a"]
        for use in (store.delete, store.info, store.take, store.pin, lambda name: store.rename(name, "x")):
            with pytest.raises(sa.ObjectNotFound, match="no object 'over'"):
                use("over")
        store.rename("a", "over")
        assert (store.names(), store.get("over")) == (["over"], 1)
        for seconds in (float("inf"), 1e12, 1e300):
            store.expire_after("over", seconds)
            assert store.get("over") == 1
            store.put("far", 1, overwrite=True, expire_after=seconds)


# --- take -------------------------------------------------------------------------------------------------------


def test_each_object_is_taken_once(where: str) -> None:
    """By who waits for it; the soak has races for one that is there."""

    def work(report: Report, number: int) -> None:
        with sa.Store(where) as mine:
            while (value := mine.take(f"job-{number}", timeout=20)) >= 0:
                report.say("did", value)

    with sa.Store(where) as store, Report() as report:
        children = [forked(lambda: work(report, number)) for number in range(2)]  # noqa: B023
        with killed_at_end(children):
            for value in (1, 2, -1):
                for number in range(2):
                    wait_until(lambda: f"job-{number}" not in store, "it is taken")  # noqa: B023
                    store.put(f"job-{number}", value)
            assert [ended(child) for child in children] == [0] * 2
        assert sorted(line[1] for line in report.lines()) == ["1", "1", "2", "2"]
        assert store.names() == []
        store.put("array", np.arange(1000))
        taken = store.take("array")
        assert ("array" in store, store.stats().removed > 0) == (False, True)
        assert taken.sum() == 499_500
        del taken
        store.collect()
        assert store.stats().removed == 0


# --- get_or_put -------------------------------------------------------------------------------------------------


def test_one_thread_computes_and_all_have_it(where: str) -> None:
    """Of several processes, see the next test."""
    computed, got, started = [], [], threading.Event()

    def compute() -> int:
        computed.append(threading.current_thread())
        started.wait()
        wait_until_asleep(set(threads) - {*computed})  # all ask for it meanwhile
        return 7

    with sa.Store(where) as store:
        threads = [threading.Thread(target=lambda: got.append(store.get_or_put("a", compute))) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.set()
        for thread in threads:
            thread.join()
        assert (len(computed), got) == (1, [7] * 4)


def test_who_computes_may_fail_or_be_killed(where: str) -> None:
    def hang(report: Report) -> None:
        def never() -> None:
            report.say("computing")
            signal.pause()

        sa.Store(where).get_or_put("a", never)

    with sa.Store(where) as store, Report() as report:
        child = forked(lambda: hang(report))
        with killed_at_end([child]):
            report.wait()
            with pytest.raises(sa.ObjectNotFound, match=r"no object 'a' came within 0\.1 s"):
                store.get_or_put("a", lambda: 1, timeout=0.1)
            assert store.get_or_put("b", lambda: 2) == 2  # other names wait for nobody
            found: list[Any] = []
            waits = threading.Thread(target=lambda: found.append(store.get_or_put("a", lambda: 1)))
            waits.start()
            wait_until_asleep([waits])
            os.kill(child, signal.SIGKILL)
            waits.join(60)
            assert found == [1]
        with pytest.raises(ZeroDivisionError):
            store.get_or_put("c", lambda: 1 // 0)
        with pytest.raises(sa.InvalidType):
            store.get_or_put("c", object)
        assert store.get_or_put("a", lambda: 8) == 1
        assert store.get_or_put("c", lambda: 3, expire_after=100, protect=True) == 3
        assert store.info("c").protected
        assert store.info("c").expires_in is not None


def test_names_that_need_each_other(where: str) -> None:
    with sa.Store(where) as store:

        def fibonacci(number: int) -> Any:
            if number < 2:
                return number
            return sum(
                store.get_or_put(f"f/{less}", lambda less=less: fibonacci(less)) for less in (number - 1, number - 2)
            )

        assert store.get_or_put("f/12", lambda: fibonacci(12)) == 144
        with pytest.raises(sa.InvalidArgument, match="the function that computes 'x' requests it itself"):
            store.get_or_put("x", lambda: store.get_or_put("x", lambda: 1))
        assert store.get_or_put("x", lambda: 2) == 2

        def put_meanwhile() -> int:
            store.put("y", "theirs")
            return 1

        assert store.get_or_put("y", put_meanwhile) == "theirs"


# --- many, and waiting ------------------------------------------------------------------------------------------


def test_wait(where: str) -> None:
    with sa.Store(where) as store:
        store.put("a", 1)
        assert store.wait("a", timeout=0) == store.wait(["a"]) == store.wait(["b", "a"], any=True) == ["a"]
        assert store.wait([], timeout=0) == []
        with pytest.raises(sa.ObjectNotFound, match=r"no objects 'b', 'c' came within 0\.05 s"):
            store.wait(["b", "a", "c"], timeout=0.05)
        with pytest.raises(sa.ObjectNotFound, match="no object 'b'"):
            store.wait(["b"], timeout=0, any=True)
        for use, expected in ((lambda: store.wait(["b", "c", "a"]), ["b", "c", "a"]),):
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.append(use()))  # noqa: B023
            thread.start()
            for name in ("c", "b"):
                wait_until_asleep([thread])
                store.put(name, name)
            thread.join(60)
            assert found == [expected]
            store.delete("b")
            store.delete("c")
        assert store.names() == ["a"]
        with pytest.raises(sa.ObjectNotFound, match="no object 'x' in the store") as missing:
            store.get("x")
        assert isinstance(missing.value, FileNotFoundError)
        start = time.monotonic()
        with pytest.raises(sa.ObjectNotFound, match=r"no object 'x' came within 0.1 s"):
            store.get("x", timeout=0.1)
        assert time.monotonic() - start >= 0.1


def test_names_that_are_there_all_the_time_are_listed(where: str) -> None:
    """Beside a process that replaces and renames objects without a pause; what cannot be listed is an error."""
    code = """
    import itertools, random, shmarrow as sa
    names, chance = [f"{number}" for number in range(count)], random.Random(1)
    with sa.Store(where) as store:
        say("ready")
        for turn in itertools.count():
            store.put(chance.choice(names), turn, overwrite=True)
            store.rename(f"moves {turn % 2}", f"moves {1 - turn % 2}")
    """
    count, listed = 20_000, 0
    with sa.Store(where) as store:
        for number in range(count):
            store.put(f"{number}", number)
        store.put("moves 0", 0)
        expected = {f"{number}" for number in range(count)}
        with lab.child(code, where=where, count=count) as child:
            child.hear()
            for turn in range(4):
                store.put("x/a", turn)
                store.put("x/b", turn)
                for names in (store.names, lambda: [found.name for found in store.scan()], store.watch):
                    with suppress(sa.StorageError):
                        told = names()
                        names_now = told if isinstance(told, list) else told.names
                        moving = [name for name in names_now if name.startswith("moves")]
                        assert expected <= set(names_now)
                        assert (len(names_now), len(moving)) == (count + 3, 1)
                        listed += 1
                with suppress(sa.StorageError):
                    assert store.delete(prefix="x/") == 2
                    assert "x/a" not in store
                for name in ("x/a", "x/b"):
                    with suppress(sa.ObjectNotFound):
                        store.delete(name)
        assert listed > 0


# --- pins, protection -------------------------------------------------------------------------------------------


def test_pin_and_protect(where: str) -> None:
    with sa.Store(where, eviction="lru") as store:
        put_all(store, dict.fromkeys(("pinned", "protected", "free"), np.ones(1000)))
        store.protect("protected")
        pin = store.pin("pinned")
        again = store.pin("pinned")
        assert (store.info("pinned").pins, store.info("protected").protected) == (1, True)
        with pytest.raises(sa.StoreFull, match="only 12288 bytes may be evicted"):
            store.evict(12289)
        assert store.names() == ["free", "pinned", "protected"]
        assert store.evict(1) == ["free"]
        again.close()
        again.close()
        with pytest.raises(sa.StoreFull):
            store.evict(1)
        with pin:
            assert store.info("pinned").pins == 1
        assert store.info("pinned").pins == 0
        assert store.evict(1) == ["pinned"]
        store.protect("protected", False)
        store.put("late", ONE, protect=True)
        assert store.evict(1) == ["protected"]
        with pytest.raises(sa.ObjectNotFound):
            store.pin("protected")
        with pytest.raises(sa.ObjectNotFound):
            store.protect("protected")
        store.pin("late")
        gc.collect()
        assert store.info("late").pins == 0
        store.delete("late")


# --- pickling ---------------------------------------------------------------------------------------------------


def test_a_pickled_store_is_opened_where_it_arrives(where: str) -> None:
    with sa.Store(where, 1 << 20) as store:
        store.put("a", 1)
        data = pickle.dumps(store)
        before = sorted(os.listdir("/proc/self/fd"))
        copy = pickle.loads(data)
        assert (copy.get("a"), copy.settings) == (1, store.settings)
        copy.close()
        assert sorted(os.listdir("/proc/self/fd")) == before  # nothing of the other was closed
        assert store.get("a") == 1
        child = forked(lambda: pickle.loads(data).put("b", 2))
        assert ended(child) == 0
        assert store.get("b") == 2
        store.destroy()
        with pytest.raises(sa.ObjectNotFound, match="there is no store"):
            pickle.loads(data)
        with pytest.raises(sa.Closed):
            pickle.dumps(store)
