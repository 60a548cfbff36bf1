"""Calls of a store: what is checked before anything is done, what another thread's close ends, what an end leaves."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pytest

import shmarrow as sa

NAN = float("nan")


def test_arguments_are_checked_first(tmp_path: Path) -> None:
    """Whether or not the name is there, and whatever else is asked for."""
    with sa.Store(tmp_path / "store") as store:
        store.put("x", 1)
        cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
            (lambda: store.put("x", 2, 60), sa.InvalidType, "overwrite must be True or False, found 60"),
            (lambda: store.put("y", 2, protect="no"), sa.InvalidType, "protect must be True or False"),
            (lambda: store.protect("x", on="no"), sa.InvalidType, "on must be True or False"),
            (lambda: store.rename("x", "y", overwrite=1), sa.InvalidType, "overwrite must be"),
            (lambda: sa.Store(tmp_path, owned="no"), sa.InvalidType, "owned must be True or False"),
            (lambda: sa.Store(tmp_path, create="no"), sa.InvalidType, "create must be True or False"),
            (lambda: store.get("x", unchecked="no"), sa.InvalidType, "unchecked must be True or False"),
            (lambda: store.wait("x", any="no"), sa.InvalidType, "any must be True or False"),
            (lambda: store.put("y", 1, if_generation=True), sa.InvalidType, "if_generation must be an int, found True"),
            (
                lambda: store.put("y", 1, if_generation=-1),
                sa.InvalidArgument,
                "if_generation must not be negative, found -1",
            ),
            (lambda: store.evict(-1), sa.InvalidArgument, "nbytes must not be negative, found -1"),
            (lambda: store.evict(1.5), sa.InvalidType, "nbytes must be an int, found 1.5"),
            (lambda: store.wait(5), sa.InvalidType, "expected the names of objects, found 5"),
            (lambda: store.get(3), sa.InvalidType, "a str, found 3"),
            (lambda: sa.Store(3), sa.InvalidType, "found 3"),
            (lambda: store.get_or_put("x", 5), sa.InvalidType, "needs a function .* found 5"),
            (lambda: store.names("\ud800"), sa.InvalidArgument, "prefix .* cannot be encoded as UTF-8"),
        ]
        for timeout in ("x", -1, NAN, float("inf"), True, [], 2e9):
            for method in (store.get, store.attach, store.take, store.wait):
                cases.append((lambda m=method, t=timeout: m("x", timeout=t), sa.InvalidArgument, "timeout must be"))
            if timeout not in (2e9, float("inf")):
                cases.append((lambda t=timeout: store.expire_after("x", t), sa.InvalidArgument, "at least 0 seconds"))
        for call, error, message in cases:
            with pytest.raises(error, match=message):
                call()
        assert [store.get("x"), *store.names()] == [1, "x"]
        assert store.get("x", timeout=np.float32(0.5)) == 1
        assert store.evict(np.int64(0)) == []
        store["x"] = 2
        assert store["x"] == 2
        del store["x"]
        assert "x" not in store
        assert store.get_or_put("x", lambda: 7, expire_after=0) == 7
        assert store.names() == []
    for closed in (lambda: store.get("x"), lambda: store.put_file("x", "/nowhere"), lambda: store.names()):
        with pytest.raises(sa.Closed):
            closed()


INTERRUPTED = """
import os, signal, shmarrow as sa
store = sa.Store(WHERE)
real = os.link

def link(*args, **options):  # Python raises what a handler raises when the system call returns
    os.link = real
    real(*args, **options)
    signal.raise_signal(signal.SIGINT)

os.link = link
try:
    store.put("a", bytes(5000))
except KeyboardInterrupt:
    result = store.names()
"""


def test_an_interrupted_publication_is_undone(shm_name: str) -> None:
    """Its file was linked and never committed; the next change removes it. What nobody can remove is skipped."""
    where = Path(f"/dev/shm/{shm_name[4:]}")
    assert lab.run(f"WHERE = {shm_name!r}\n{INTERRUPTED}") == []
    with sa.Store(shm_name) as store:
        assert [path.name for path in where.iterdir() if len(path.name) == 16] == [f"{1:016x}"]
        (where / f"{2:016x}").mkdir()  # nobody can unlink this one
        store.put("b", "2" * 5000)
        (where / f"{3:016x}").write_bytes(b"left over")
        store.put("c", "3" * 5000)
        store.put("d", "4" * 5000)
        assert [store.get(name)[0] for name in ("b", "c", "d")] == ["2", "3", "4"]
        numbers = {name: int(os.path.basename(store.info(name).path or ""), 16) for name in store.names()}
        assert numbers == {"b": 1, "c": 3, "d": 4}
        (where / f"{2:016x}").rmdir()
        store.destroy()


def test_a_pickled_segment_knows_its_store(shm_name: str) -> None:
    """Another store in its place may have an object of the same slot, file number and generation."""
    with sa.Store(shm_name) as store:
        store.put("x", bytes(5000))
        with store.attach("x") as attached:
            pickled = pickle.dumps(attached)
            with pickle.loads(pickled) as again:
                assert bytes(again.data) == bytes(attached.data)
        store.destroy()
    with sa.Store(shm_name) as store:
        store.put("other", bytes(5000))
        with pytest.raises(sa.ObjectNotFound, match="the object was removed"):
            pickle.loads(pickled)
        store.put("small", 3)
        with store.attach("small") as attached:
            value = pickle.dumps(attached)
            expected = bytes(attached.data)
        store.delete("small")
        with pickle.loads(value) as again:  # an inline object is a value
            assert bytes(again.data) == expected
        assert repr(store) == f"<Store {shm_name!r}, 1 object>"
        with store.pin("other") as pin:
            assert repr(pin) == "<Pin of 'other'>"
        assert repr(pin) == "<Pin, closed>"
        store.destroy()
    assert repr(store) == f"<Store {shm_name!r}, closed>"


def test_a_growing_object_takes_what_there_is(shm_name: str) -> None:
    """A reservation for more than is written is never the reason for a lack of room."""
    rows = 200_000
    schema = sa.schema([("x", sa.int64())])
    with sa.Store(shm_name, capacity=rows * 8 + 16_384) as store:
        with store.new_file("x", schema) as writer:
            for start in range(0, rows, 10_000):
                writer.write_batch(sa.record_batch({"x": np.arange(start, start + 10_000)}, schema=schema))
        assert store.info("x").num_rows == rows
        store.destroy()


# --- opening, settings, kinds -----------------------------------------------------------------------------------


def test_settings_are_those_of_the_creator(shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        with pytest.raises(sa.InvalidArgument, match="has capacity=None, and was opened with capacity=1048576"):
            sa.Store(shm_name, capacity=1 << 20)
        store.configure(capacity=1 << 20)
        assert sa.Store(shm_name, capacity=1 << 20).settings.eviction == "lru"
        store.configure(eviction="none")
        store.configure(capacity=2 << 20)
        assert store.settings.eviction == "none"
        store.configure(capacity=None, eviction=None)
        assert store.settings[:1] + store.settings[2:] == (None, "none", False)
        store.put("large", np.zeros(3 << 17))
        assert store.info("large").allocated > 2 << 20
        store.destroy()


def test_iterating_while_names_change(shm_name: str) -> None:
    """Names that stay come once, also if their objects are replaced in other slots meanwhile."""
    with sa.Store(shm_name) as store:
        for number in range(200):
            store.put(f"{number}", number)
        names = iter(store)
        found = [next(names)]
        for number in range(0, 200, 3):
            store.delete(f"{number}")
            store.put(f"new {number}", number)
            store.put(f"{number}", -number)
        found += names
        assert len(found) == len(set(found))
        assert {f"{number}" for number in range(200)} <= set(found)
        store.destroy()
