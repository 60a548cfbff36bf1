"""The store under faults, each with real processes: the soak's scenarios in a short form, and those that need a stage.

What is promised stands in docs/store.md, beside the test here that shows it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import lab
import numpy as np
import pytest
import soak
from environment import mounted
from processes import ended, forked
from put_all import put_all
from store_check import batch, intact, leftovers

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


def test_a_limit_on_files_is_an_error(where: str) -> None:
    """A limit that is not the file system's: the process may not write files of over a mebibyte."""
    code = """
    import numpy as np, shmarrow as sa
    schema = sa.schema([("x", sa.int64())])
    with sa.Store(where) as store:
        store.put("small", np.ones(1000))
        for capacity in (None, 1 << 24):
            store.configure(capacity=capacity)
            for use in (lambda: store.put("x", np.ones(1 << 20)), lambda: store.new_draft("x", schema, 1 << 20)):
                try:
                    use()
                except sa.StorageError as error:
                    assert "File too large" in str(error)
                else:
                    raise AssertionError("there is no error")
        result = store.names()
    """
    assert lab.run(code, limits={"FSIZE": 1 << 20}, where=where) == ["small"]


# --- directories that change ------------------------------------------------------------------------------------


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


def test_a_forked_child_closes_what_it_inherited_and_harms_nobody(where: str) -> None:
    with sa.Store(where, owned=True) as store:
        store.put("a", batch(1, 1000))
        held = store.get("a")
        draft = store.new_draft("b", sa.schema([("x", sa.int64())]), 10)
        writer = store.new_file("c", batch(1, 1).schema, overwrite=True)

        def child() -> None:
            nonlocal held, draft, writer
            assert intact(held)
            del held
            draft.abort()
            writer.abort()
            store.close()

        assert ended(forked(child)) == 0
        assert store.info("a").pins == 1
        with pytest.raises(sa.StoreFull):
            store.evict(1)
        assert sa.Store(where).collect() == []
        draft["x"][:] = 7
        draft.close()
        writer.write(batch(1, 5))
        writer.close()
        assert store.get("b")["x"].to_pylist() == [7] * 10
        assert store.get("c").num_rows == 5
        assert intact(held)
        del held


def _in_another_process(where: str) -> None:
    with sa.Store(where) as store:
        assert all(intact(store.get(f"a{i}")) for i in range(3))
        store.put("late", batch(3, 100))


def test_a_process_that_multiprocessing_starts(where: str) -> None:
    with sa.Store(where) as store:
        put_all(store, {f"a{i}": batch(i, 1000) for i in range(3)})
        process = multiprocessing.get_context("spawn").Process(target=_in_another_process, args=(where,))
        process.start()
        assert intact(store.get("late", timeout=60))
        process.join()
        assert process.exitcode == 0
        assert store.names() == ["a0", "a1", "a2", "late"]  # no tracker of that process has removed them


ENDS = {
    "return": "",
    "close": "store.close()",
    "os._exit": "os._exit(0)",
    "sys.exit": "sys.exit(0)",
    "exception": "raise SystemExit(0)",
    "signal": "os.kill(os.getpid(), signal.SIGTERM)",
}


@pytest.mark.parametrize("way", ENDS)
def test_an_owner_ends_in_any_way(shm_store: str, way: str) -> None:
    """Also with an array that is used when the interpreter ends."""
    code = f"""
import os, signal, sys, shmarrow as sa
store = sa.Store(sys.argv[1], owned=True)
store.put("mine", 1)
kept = store.get("a")["value"].to_numpy()
draft = store.new_draft("b", sa.schema([("x", sa.int64())]), 10)
watch = store.watch()
class Late:
    def __init__(self): self.array = kept
    def __del__(self): assert self.array[0] == 5
late = Late(); late.cycle = late
{ENDS[way]}
"""
    with sa.Store(shm_store) as store:
        store.put("a", batch(5, 1000))
        ran = subprocess.run([sys.executable, "-c", code, shm_store], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (-signal.SIGTERM if way == "signal" else 0, "")
        assert store.names() == ["a", "mine"]
        assert store.info("a").pins == 0
        assert store.collect() == ["mine"]
