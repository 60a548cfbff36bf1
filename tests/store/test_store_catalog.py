"""Catalogs that are closed, destroyed, or left half done, by threads and by other processes; what is told of each."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pytest
from cases.store_files import check_store as check
from measures import held
from put_all import put_all
from waiting import wait_until, wait_until_asleep

import shmarrow as sa
from shmarrow.store import protocol

SCHEMA = sa.schema([("x", sa.int64())])
TEXT = b"somebody else's file\n"


# --- closed -----------------------------------------------------------------------------------------------------


def test_drafts_and_watches_outlive_their_store(tmp_path: Path) -> None:
    """They go on, no other file is written to, and when they end nothing is open or mapped any more."""
    where = str(tmp_path / "store")
    store = sa.Store(where, 1 << 26)
    draft = store.new_draft("draft", SCHEMA, 200_000)
    writer = store.new_file("written", SCHEMA)
    dropped = store.new_draft("dropped", SCHEMA, 9)
    watch = store.watch()
    store.close()
    with ExitStack() as stack:
        others = [stack.enter_context(open(tmp_path / f"other{number}", "w+b", 0)) for number in range(8)]
        for other in others:
            other.write(TEXT)
        draft["x"][:] = 7
        draft.__exit__(None, None, None)
        with writer:
            writer.write(sa.record_batch({"x": [1, 2]}))
        told = [watch.get(timeout=5), watch.get(timeout=5)]
        assert [(event.kind, event.name) for event in told if event] == [
            ("published", "draft"),
            ("published", "written"),
        ]
        watch.close()
        dropped.abort()
        del draft, writer, dropped, watch
        gc.collect()
        assert held(where) == (0, 0)
        assert all(os.path.getsize(tmp_path / f"other{number}") == len(TEXT) for number in range(8))
        assert all(os.pread(other.fileno(), 100, 0) == TEXT for other in others)
    assert set(check(where)) == {"draft", "written"}


def destroyed(store: sa.Store) -> None:
    sa.Store(store.name).destroy()


def destroyed_by_another_process(store: sa.Store) -> None:
    """And made again."""
    lab.run("import shmarrow as sa\nsa.Store(where).destroy()\nsa.Store(where).put('new', 5)", where=store.name)


def removed(store: sa.Store) -> None:
    shutil.rmtree(store.path)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (sa.Store.close, sa.Closed),
        (destroyed, sa.StorageError),
        (destroyed_by_another_process, sa.StorageError),
        (removed, sa.StorageError),
    ],
    ids=["closed", "destroyed", "by another process", "removed"],
)
def test_the_end_of_a_store(where: str, end: Callable[[sa.Store], object], error: type[Exception]) -> None:
    """Who waits for an object is told at once, and whoever asks for one later; what was attached stays."""
    store = sa.Store(where, capacity=1 << 20)
    store.put("a", np.arange(1000))
    held, draft, watch = store.get("a"), store.new_draft("draft", SCHEMA, 10), store.watch()
    told: list[object] = []

    def refused(*uses: Callable[[], object]) -> None:
        for use in uses:
            with pytest.raises(error, match="open it again" if error is sa.Closed else "was destroyed; open it again"):
                use()
            told.append(use)

    waits = (
        lambda: store.get("new", timeout=None),
        lambda: store.take("new", timeout=60),
        lambda: store.wait(["new"]),
        *([watch.get] if error is sa.StorageError else []),  # one of a closed store goes on
    )
    threads = [threading.Thread(target=refused, args=(use,)) for use in waits]
    for thread in threads:
        thread.start()
    wait_until_asleep(threads)
    end(store)
    for thread in threads:
        thread.join(60)
    assert len(told) == len(waits)
    refused(
        lambda: store.get("a"),
        lambda: store.get("a", timeout=0.2),
        lambda: store.take("a"),
        lambda: store.info("a"),
        lambda: store.put("b", 1),
        lambda: store.get_or_put("b", lambda: 1),
    )
    with sa.Store(where) as again:
        again.put("a", 2, overwrite=True)
        refused(
            lambda: store.delete("a"),
            store.clear,
        )
        if end is not removed:  # nobody looks whether the directory is there still
            refused(
                lambda: "a" in store,
                store.names,
                lambda: len(store),
                lambda: list(store.scan()),
                lambda: store.new_draft("b", SCHEMA, 1 << 14),
                store.collect,
                store.watch,
                store.stats,
            )
        assert again.get("a") == 2
        assert "new" not in again or again.get("new") == 5
        again.clear()
    assert held.tolist() == [*range(1000)]
    watch.close()
    if error is sa.Closed:
        draft.abort()
        assert repr(store) == f"<Store {where!r}, closed>"
    else:
        with pytest.raises(sa.StorageError):
            draft.close()
    store.close()
    store.close()


def test_closing_while_other_threads_put(tmp_path: Path) -> None:
    where = str(tmp_path / "store")
    errors: Counter[str] = Counter()

    def work(store: sa.Store, name: str) -> None:
        try:
            while True:
                store.put(name, 1, overwrite=True)
        except sa.Closed:
            errors["closed"] += 1
        except Exception as error:
            errors[repr(error)] += 1

    for number in range(20):
        store = sa.Store(where)
        threads = [threading.Thread(target=work, args=(store, f"{each}")) for each in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(store) == 4, "all have put")  # noqa: B023
        store.close()
        others = [open(tmp_path / f"other{each}", "w+b", 0) for each in range(8)]  # noqa: SIM115
        for other in others:
            other.write(TEXT)
        for thread in threads:
            thread.join()
        assert all(os.pread(other.fileno(), 100, 0) == TEXT for other in others), number
        for other in others:
            other.close()
        assert held(where) == (0, 0)
    assert errors == {"closed": 80}


# --- half done --------------------------------------------------------------------------------------------------


def test_a_process_that_is_stopped_in_a_commit(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped between two pieces of a commit: what is found is found, and for the rest there is an error."""
    code = """
    import os, signal, sys, shmarrow as sa
    store = sa.Store(where)
    control = os.open(f"{store.path}/control", os.O_RDONLY)
    def line(frame, event, arg):
        if os.pread(control, 1, sequence)[0] & 1:
            sys.settrace(None)
            say("stopped")
            os.kill(os.getpid(), signal.SIGSTOP)
        return line
    sys.settrace(lambda frame, event, arg: line if frame.f_code.co_name == "commit" else None)
    store.put("c", 3)
    say("done")
    """
    with sa.Store(where) as store:
        put_all(store, {"a": 1, "b": 2})
        with lab.child(code, where=where, sequence=protocol.HEADER["sequence"][0]) as child:
            assert child.hear() == "stopped"
            assert [store.get(name) for name in ("a", "b")] == [1, 2]
            for use in (store.names, lambda: store.get("missing")):
                with pytest.raises(sa.StorageError, match="a process was stopped or killed in the middle of a change"):
                    use()
            monkeypatch.setattr("shmarrow.store.locks.PATIENCE", 0.3)
            for use in (lambda: store.delete("a"), lambda: store.put("b", 1)):
                with pytest.raises(sa.StorageError, match=f"process {child.pid} has held its commit lock"):
                    use()
            monkeypatch.undo()
            os.kill(child.pid, signal.SIGCONT)
            assert child.hear() == "done"
            store.put("d", 4)
            assert [store.get(name) for name in store.names()] == [1, 2, 3, 4]
        store.clear()


def test_a_lock_that_an_interrupt_left_is_taken_back(where: str) -> None:
    """An exception as the commit lock is about to be released: by another thread, and by this one."""

    def interrupted(frame: Any, event: str, _: Any) -> None:
        if frame.f_code.co_qualname == "Transaction._release":
            sys.settrace(None)
            raise KeyboardInterrupt

    with sa.Store(where, 1 << 24) as store:
        for name in ("thread", "same"):
            store.put(name, 0)
            sys.settrace(interrupted)
            try:
                with pytest.raises(KeyboardInterrupt):
                    store.put(name, 1, overwrite=True)
            finally:
                sys.settrace(None)
            if name == "thread":
                thread = threading.Thread(target=lambda: store.put("other", 2))
                thread.start()
                thread.join(10)
                assert not thread.is_alive()
            store.put("after", 3, overwrite=True)
            assert (store.get(name), store.get("after")) == (1, 3)
            store.delete(name)
        assert set(check(store.path)) == {"other", "after"}
        store.clear()


# --- owners, pins, files ----------------------------------------------------------------------------------------


def test_two_owners_never_have_one_number(tmp_path: Path) -> None:
    """A process whose first commit failed has the byte of the next owner, and the next owner another number."""
    where, byte = str(tmp_path / "store"), protocol.OWNER_LOCKS + 1
    code = """
    import shmarrow as sa
    store = sa.Store(where, owned=True)
    say((store.put("owned", 1), store.owner()))
    hear()
    """
    with sa.Store(where) as store, open(f"{where}/commit", "r+b") as commit:
        fcntl.lockf(commit, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        with lab.child(code, where=where) as child:
            assert child.hear() == ("owned", 2)
            fcntl.lockf(commit, fcntl.LOCK_UN, 1, byte)
            assert store.collect() == []
            child.kill()
        assert store.collect() == ["owned"]


def test_pins_in_a_catalog_that_grew_meanwhile(where: str) -> None:
    code = """
    import shmarrow as sa
    store = sa.Store(where)
    pins = []
    for number in range(100):
        store.put(f"a{number}", number)
        pins.append(store.pin(f"a{number}"))
    say("ready")
    hear()
    """
    with sa.Store(where) as store:
        assert store.names() == []
        with lab.child(code, where=where) as child:
            child.hear()
            assert store.stats().pins == {child.pid: 100}
            child.say("end")
        store.clear()


def test_a_file_that_cannot_be_removed_keeps_nobody_from_changing_the_store(tmp_path: Path) -> None:
    with sa.Store(tmp_path / "store") as store:
        store.put("a", np.arange(1000))
        path = Path(store.info("a").path or "")
        path.unlink()
        path.mkdir()
        store.delete("a")
        store.put("b", np.arange(3))
        assert store.get("b").tolist() == [0, 1, 2]
        assert path.is_dir()
        with pytest.raises(sa.StorageError, match=f"objects are removed; its directory .* such as '{path.name}'"):
            store.destroy()
        assert sorted(os.listdir(tmp_path / "store")) == [path.name]
