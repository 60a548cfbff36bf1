"""The store under faults, each with real processes: the soak's scenarios in a short form, and those that need a stage.

What is promised stands in docs/store.md, beside the test here that shows it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soak
from environment import mounted
from store_check import batch, ended, forked, intact, leftovers

import shmarrow as sa

ROOT = os.getuid() == 0
SMALL = ("-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs")


# --- the soak, in a short form ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "what"), [*enumerate(soak.SCENARIOS)])
def test_soak(number: int, what: str) -> None:
    """Half a second of each scenario, or as long as it takes until something happened, in memory or on a disk."""
    kinds = soak.SCENARIOS[what][1]
    for seconds in (0.5, 2, 8, 32):
        found = soak.run(what, kinds[number % len(kinds)], seconds, 1)
        assert not any(found[column] for column in soak.ZEROS), found
        happened = [found[column] for column in ("faults", "put", "read")]
        if all(happened):
            break
    assert all(happened), found


# --- full file systems ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not ROOT, reason="only root can mount a small tmpfs")
def test_a_full_file_system(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", *SMALL) as directory, sa.Store(directory / "s") as store:
        number = 0
        with pytest.raises(sa.StoreFull) as full:  # noqa: PT012
            while True:
                store.put(f"a{number}", batch(number, 20_000))
                number += 1
        assert full.value.errno == errno.ENOSPC
        found = store.stats()
        for said in (
            f"'a{number}'",
            f"{found.nbytes} bytes of objects",
            f"make the file system of {store.path} larger",
        ):
            assert said in str(full.value)
        assert number > 10
        assert all(intact(store.get(f"a{i}")) for i in range(number))
        # Filled in place, the same is an error when the room is asked for, and no signal when it is used.
        with pytest.raises(sa.StoreFull):
            store.new_draft("b", sa.schema([("x", sa.int64())]), 1 << 20)
        with pytest.raises(sa.StoreFull), store.new_file("c", batch(0, 1).schema) as writer:  # noqa: PT012
            while True:
                writer.write(batch(0, 1000))
        assert len(store) == number
        store.delete("a0")
        store.put("again", batch(1, 15_000))
        assert len(leftovers(store.name)) == number


def fill_up(path: Path) -> None:
    with path.open("wb", 0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.skipif(not ROOT, reason="only root can mount a small tmpfs")
def test_a_full_file_system_has_room_where_owners_are_gone(tmp_path: Path) -> None:
    def own(where: str) -> None:
        sa.Store(where, owned=True).put("orphan", np.zeros(5 << 20, "u1"), protect=True)

    with mounted(tmp_path / "small", *SMALL) as directory:
        where, fill = str(directory / "s"), directory / "fill"
        for eviction in ("none", "lru"):
            with sa.Store(where) as store:
                store.configure(eviction=eviction)
                ended(forked(lambda: own(where)))
                store.put("large", np.ones(5 << 20, "u1"))
                assert store.names() == ["large"]
                store.delete("large")
                ended(forked(lambda: own(where)))
                fill_up(fill)
                store.put("small", np.ones(300_000, "u1"))
                assert store.names() == ["small"]
                ended(forked(lambda: (fill.unlink(), own(where))))
                fill_up(fill)
                with store.new_file("stream", batch(0, 1).schema) as writer:
                    writer.write(batch(0, 1000))
                assert store.names() == ["small", "stream"]
                assert intact(store.get("stream"))
                store.clear()
                fill.unlink()


@pytest.mark.skipif(not ROOT, reason="only root can mount a small tmpfs")
def test_a_new_store_on_a_full_file_system(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs") as directory:
        (directory / "fill").write_bytes(bytes(40_000))
        (directory / "mine").mkdir()
        for where in (directory / "new", directory / "mine"):
            with pytest.raises(
                sa.StoreFull,
                match=rf"no room for the catalog of the new store {str(where)!r}: "
                r"\d+ bytes are needed, 24576 are free in .*; .*make it larger",
            ):
                sa.Store(where)
        assert sorted(os.listdir(directory)) == ["fill", "mine"]
        assert os.listdir(directory / "mine") == []
        os.remove(directory / "fill")
        for size in ("40k", "200k"):
            subprocess.run(["mount", "-o", f"remount,size={size}", directory], check=True)
            with pytest.raises(sa.StoreFull) if size == "40k" else contextlib.nullcontext():
                sa.Store(directory / "new").put("a", b"1")
        assert sa.Store(directory / "new").get("a") == b"1"


@pytest.mark.skipif(not ROOT, reason="only root can mount a small tmpfs")
def test_a_full_file_system_makes_room_where_that_is_asked_for(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", *SMALL) as directory:
        with sa.Store(directory / "s", eviction="lru") as store:
            for number in range(60):
                store.put(f"a{number}", batch(number, 20_000))
            assert "a59" in store
            assert "a0" not in store
            held = [store.get(name) for name in store]
            with pytest.raises(sa.StoreFull, match="bytes may be evicted"):
                store.put("b", batch(0, 200_000))
            assert all(map(intact, held))
            del held
            store.put("b", batch(0, 200_000))
        with sa.Store(directory / "s") as store:
            store.configure(capacity=1 << 30)  # larger than the file system
            for number in range(60):
                store.put(f"c{number}", batch(number, 20_000))
            assert "c59" in store


def test_a_limit_on_files_is_an_error(tmp_path: Path) -> None:
    """A limit that is not the file system's: the process may not write files of over a mebibyte."""
    code = (
        "import resource, signal, sys, numpy as np, shmarrow as sa\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "store = sa.Store(sys.argv[1])\n"
        "store.put('small', np.ones(1000))\n"
        "for use in (lambda: store.put('large', np.ones(1 << 20)),\n"
        "            lambda: store.new_draft('large', sa.schema([('x', sa.int64())]), 1 << 20)):\n"
        "    try: use()\n"
        "    except sa.StorageError as error: print('File too large' in str(error))\n"
        "print(store.names())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.split("\n")[:3]) == (0, ["True", "True", "['small']"]), ran.stderr


# --- directories that change ------------------------------------------------------------------------------------


def test_a_directory_that_is_removed(tmp_path: Path) -> None:
    where = tmp_path / "store"
    with sa.Store(where, capacity=1 << 20) as store:
        store.put("a", batch(1, 1000))
        held = store.get("a")
        draft = store.new_draft("b", sa.schema([("x", sa.int64())]), 10)
        shutil.rmtree(where)
        assert intact(held)
        for use in (
            lambda: store.get("a"),
            lambda: store.get("a", timeout=0.2),
            lambda: store.info("a"),
            lambda: store.take("a"),
            lambda: store.put("c", batch(1, 1)),
            lambda: store.new_draft("c", sa.schema([("x", sa.int64())]), 1 << 14),
            lambda: store.get_or_put("c", lambda: 1),
        ):
            with pytest.raises(sa.StorageError, match="was destroyed; open it again"):
                use()
        with pytest.raises(sa.StorageError):
            draft.close()
        with sa.Store(where) as again:
            again.put("a", batch(2, 10))
            for use in (lambda: store.delete("a"), store.clear):
                with pytest.raises(sa.StorageError, match="was destroyed; open it again"):
                    use()
            assert again.names() == ["a"]
            assert intact(again.get("a"))
        assert intact(held)


@pytest.mark.skipif(not ROOT, reason="only root can mount a file system that is read-only")
def test_a_directory_that_is_read_only(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", *SMALL) as directory:
        with sa.Store(directory / "s") as store:
            store.put("a", batch(1, 100))
            store.put("b", batch(1, 100), expire_after=3600)
        del store
        gc.collect()  # and with it the mapping, which keeps the file system writable
        subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
        with sa.Store(directory / "s") as store, store.watch() as watch:
            assert store.names() == watch.names == ["a", "b"]
            assert intact(store.get("a"))
            assert store.info("b").expires_in is not None
            assert store.stats().objects == 2
            with pytest.raises(sa.ObjectNotFound):
                store.get("c", timeout=0.05)
            for use in (
                lambda: store.put("c", batch(1, 1)),
                lambda: store.put("a", batch(1, 1), overwrite=True),
                lambda: store.delete("a"),
                lambda: store.get_or_put("c", lambda: 1),
                store.collect,
                store.clear,
                store.destroy,
            ):
                with pytest.raises(sa.StorageError, match=r"this process may only read it|Read-only file system"):
                    use()


@pytest.mark.skipif(ROOT, reason="root may write anywhere")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    store = sa.Store(tmp_path / "s")
    (tmp_path / "s").chmod(0o500)
    with pytest.raises(sa.StorageError, match="mode 0500"):
        store.put("a", batch(1, 1))
    (tmp_path / "s").chmod(0o700)


# --- processes that fork and end --------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["child", "parent"])
def test_objects_held_across_a_fork(where: str, first: str) -> None:
    """Parent and child hold one object; if one ends, the other has it. Only the parent keeps it from eviction."""

    def parent(ready: int, go: int) -> None:
        store = sa.Store(where)
        held = store.get("a")

        def child() -> None:
            os.write(ready, b"r")
            os.read(go, 1)
            assert intact(held)
            if first == "parent":
                os.write(ready, b"c")
                os.read(go, 1)

        pid = forked(child)
        if first == "child":
            ended(pid)
            os.write(ready, b"p")
            os.read(go, 1)
            assert intact(held)
        else:
            signal.pause()

    with sa.Store(where) as store:
        store.put("a", batch(3, 10_000))
        heard, ready = os.pipe()
        go, say = os.pipe()
        pid = forked(lambda: parent(ready, go))
        assert os.read(heard, 1) == b"r"
        with pytest.raises(sa.StoreFull):
            store.evict(1)
        if first == "parent":
            os.kill(pid, signal.SIGKILL)
            ended(pid)
        os.write(say, b"1")
        assert os.read(heard, 1) == (b"p" if first == "child" else b"c")
        if first == "child":
            with pytest.raises(sa.StoreFull):
                store.evict(1)
        else:  # the child maps what it inherited, but only the parent pinned it
            assert store.evict(1) == ["a"]
            assert (store.stats().nbytes, store.stats().removed) == (0, 0)
            store.put("a", batch(3, 10_000))
        os.write(say, b"2")
        if first == "child":
            assert ended(pid) == 0
        for end in (heard, ready, go, say):
            os.close(end)
        deadline = time.monotonic() + 10
        while store.info("a").pins and time.monotonic() < deadline:
            time.sleep(0.005)
        assert store.evict(1) == ["a"]


def test_a_forked_child_closes_what_it_inherited_and_harms_nobody(where: str) -> None:
    with sa.Store(where, owned=True) as store:
        store.put("a", batch(1, 1000))
        held = store.get("a")
        draft = store.new_draft("b", sa.schema([("x", sa.int64())]), 10)
        writer = store.new_file("c", batch(1, 1).schema, overwrite=True)

        def child() -> None:
            nonlocal held, draft, writer
            del held
            draft.abort()
            writer.abort()
            store.close()

        assert ended(forked(child)) == 0
        assert store.info("a").pins == 1
        with pytest.raises(sa.StoreFull):
            store.evict(1)
        assert sa.Store(where).collect().objects == []
        draft["x"][:] = 7
        draft.close()
        writer.write(batch(1, 5))
        writer.close()
        assert store.get("b")["x"].to_pylist() == [7] * 10
        assert store.get("c").num_rows == 5
        del held


def _read_in_spawned(where: str, out: Any) -> None:
    out.put([intact(sa.Store(where).get(f"a{i}")) for i in range(3)])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start_a_process(where: str, method: str) -> None:
    with sa.Store(where) as store:
        for i in range(3):
            store.put(f"a{i}", batch(i, 100))
        context = multiprocessing.get_context(method)
        out = context.Queue()
        process = context.Process(target=_read_in_spawned, args=(where, out))
        process.start()
        assert out.get(timeout=60) == [True] * 3
        process.join()
        assert store.names() == ["a0", "a1", "a2"]  # no tracker of that process has removed them


def test_threads(where: str) -> None:
    errors: list[BaseException] = []

    def work(number: int, store: sa.Store) -> None:
        try:
            for turn in range(40):
                store.put(f"{number}-{turn}", batch(turn, 100))
                store.put("shared", batch(number, 1000), overwrite=True)
                assert intact(store.get("shared"))
                assert intact(store.get(f"{number}-{turn}", timeout=5))
                store.delete(f"{number}-{turn}")
        except BaseException as error:
            errors.append(error)

    with sa.Store(where, capacity=1 << 24) as store:
        threads = [threading.Thread(target=work, args=(number, store)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert store.names() == ["shared"]


def test_forks_while_other_threads_hold_the_lock(where: str) -> None:
    """A child that inherits the lock's descriptor at any moment does not keep the lock."""
    end = time.monotonic() + 1

    def churn(store: sa.Store) -> None:
        while time.monotonic() < end:
            store.put("a", np.ones(10), overwrite=True)

    with sa.Store(where) as store:
        thread = threading.Thread(target=churn, args=(store,))
        thread.start()
        children = []
        while time.monotonic() < end:
            children.append(forked(lambda: time.sleep(0.05)))
            if len(children) > 4:
                assert ended(children.pop(0)) == 0
        thread.join()
        start = time.monotonic()
        store.delete("a")
        assert time.monotonic() - start < 5
        assert [ended(child) for child in children] == [0] * len(children)


@pytest.mark.parametrize("way", ["return", "os._exit", "sys.exit", "exception"])
def test_the_end_of_an_interpreter_with_arrays(where: str, way: str) -> None:
    code = (
        "import os, sys, shmarrow as sa\n"
        "store = sa.Store(sys.argv[1], owned=True)\n"
        "kept = store.get('a')['value'].to_numpy()\n"
        "draft = store.new_draft('b', sa.schema([('x', sa.int64())]), 10)\n"
        "watch = store.watch()\n"
        "class Late:\n"
        "    def __init__(self): self.array = kept\n"
        "    def __del__(self): assert self.array[0] == 5\n"
        "late = Late(); late.cycle = late\n"
        "if sys.argv[2] == 'os._exit': os._exit(0)\n"
        "if sys.argv[2] == 'sys.exit': sys.exit(0)\n"
        "if sys.argv[2] == 'exception': raise SystemExit(0)\n"
    )
    with sa.Store(where) as store:
        store.put("a", batch(5, 1000))
        ran = subprocess.run([sys.executable, "-c", code, where, way], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert store.names() == ["a"]
        assert store.info("a").pins == 0


def test_a_writer_that_is_killed_leaves_the_name_free(where: str) -> None:
    def write() -> None:
        store = sa.Store(where)
        draft = store.new_draft("a", sa.schema([("x", sa.int64())]), 1000)
        draft["x"][:] = 1
        os.kill(os.getpid(), signal.SIGKILL)

    with sa.Store(where) as store:
        assert ended(forked(write)) == -signal.SIGKILL
        assert store.names() == []
        store.put("a", batch(1, 1))


def test_a_stopped_process_stops_nobody_for_ever(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds the lock and is stopped delays changes, and is named; reading goes on."""

    def stop(say: int) -> None:
        catalog = sa.Store(where)._catalog
        with catalog.mutex, catalog.locked:
            os.write(say, b"1")
            signal.pause()

    heard, say = os.pipe()
    with sa.Store(where) as store:
        store.put("a", batch(1, 10))
        child = forked(lambda: stop(say))
        assert os.read(heard, 1) == b"1"
        monkeypatch.setattr("shmarrow.store.locks.PATIENCE", 0.3)
        assert intact(store.get("a"))
        assert store.names() == ["a"]
        for use in (lambda: store.delete("a"), lambda: store.put("b", batch(1, 1))):
            with pytest.raises(sa.StorageError, match=f"process {child} has held its commit lock"):
                use()
        os.kill(child, signal.SIGKILL)
        ended(child)
        store.delete("a")
    os.close(heard)
    os.close(say)
