"""Reboots and power cuts: a durable store keeps all that it accepted, any other nothing."""

from __future__ import annotations

import os
from pathlib import Path

import lab
import numpy as np
import pytest
from environment import PREFIX
from interrupts import killed
from put_all import put_all

import shmarrow as sa
from shmarrow.store import protocol as p

SECOND = "1" * 8 + "-2222-3333-4444-555555555555"
"""The id of a later boot."""


def test_a_durable_store_is_there_once_it_was_made(tmp_path: Path) -> None:
    with lab.disk(tmp_path / "disk", 16 << 20) as disk:
        where = disk.path / "a" / "b" / "store"
        where.parent.mkdir(parents=True)
        with sa.Store(where, capacity=1 << 20, durable=True) as store:
            store.put("x", "kept")
            store.configure(capacity=2 << 20)
        sa.Store(disk.path / "other", durable=True, mode=0o640).close()
        after = disk.cut()
        code = """
        import shmarrow as sa
        result = [(store.names(), tuple(store.settings)) for store in map(sa.Store, where)]
        """
        places = [f"{after.path}/a/b/store", f"{after.path}/other"]
        assert lab.run(code, where=places, boot_id=SECOND) == [
            (["x"], (2 << 20, 0o600, "lru", True)),
            ([], (None, 0o640, "none", True)),
        ]
    with pytest.raises(sa.InvalidArgument, match="in shared memory, which a crash of the machine empties"):
        sa.Store(f"shm:{PREFIX}durable", durable=True)
    assert not os.path.exists(f"/dev/shm/{PREFIX}durable")


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not"])
def test_a_reboot(tmp_path: Path, durable: bool) -> None:
    """A durable store keeps what is whole; any other is empty, as none of its files need be whole."""
    where = tmp_path / "store"
    before = """
    import numpy as np, shmarrow as sa
    with sa.Store(where, owned=True, capacity=8 << 20, durable=durable) as store:
        store.put("owned", np.arange(5))
    store = sa.Store(where)
    for name in ("kept", "short", "gone", "late", "over"):
        store.put(name, np.full(5000, 7), overwrite=True)
    held = store.get("gone")
    store.delete("gone")
    draft = store.new_draft("draft", sa.schema([sa.field("x", sa.int64())]), 300_000)
    store.protect("kept")
    store.expire_after("late", 500)
    store.expire_after("over", 0)
    infos = [store.info(name) for name in ("kept", "late", "owned", "short")]
    say({info.name: (info.path, info.generation) for info in infos})
    hear()
    """
    with lab.child(before, where=str(where), durable=durable) as child:
        old = child.hear()
    os.truncate(old["short"][0], 4096)
    (where / f"{1 << 40:016x}").write_bytes(b"nobody's")
    (where / "of the user").write_bytes(b"")
    after = """
    import os, shmarrow as sa
    store = sa.Store(where)
    infos = {name: store.info(name) for name in store}
    store.put("new", bytes(5000))
    new = store.info("new")
    result = (
        {name: (info.protected, info.orphaned, info.expires_in) for name, info in infos.items()},
        new.generation, os.path.basename(new.path), store.stats().removed,
        store.collect(), os.listdir(where), store.capacity,
    )
    """
    found, generation, file, counts, collected, listed, capacity = lab.run(after, where=str(where), boot_id=SECOND)
    if durable:
        assert sorted(found) == ["kept", "late", "owned"]
        assert (found["kept"], found["owned"]) == ((True, False, None), (False, True, None))
        assert 400 < found["late"][2] <= 500
        assert collected == ["over", "owned"]
    else:
        assert (found, collected) == ({}, [])
    assert generation > max(number for _, number in old.values())
    assert int(file, 16) > 1 << 40  # no number is given twice
    assert counts == 0  # what was removed takes no room
    assert capacity == 8 << 20
    kept = [Path(old[name][0]).name for name in ("kept", "late") if durable]
    assert sorted(listed) == sorted(["commit", "control", "of the user", "pins", file, *kept])


def test_who_may_only_read_waits_for_a_writer_after_a_reboot() -> None:
    with lab.shared_folder() as folder:
        where = folder / "store"
        with sa.Store(where, mode=0o644, durable=True) as store:
            store.put("x", np.arange(100))
        read = "import shmarrow as sa\nresult = sa.Store(where, accept_users=True).get('x').tolist()[:2]"
        with pytest.raises(
            lab.Failed, match="not been opened since the machine was started, and this process may only"
        ):
            lab.as_user(read, where=str(where), boot_id=SECOND)
        lab.run("import shmarrow as sa; sa.Store(where)", where=str(where), boot_id=SECOND)
        assert lab.as_user(read, where=str(where), boot_id=SECOND) == [0, 1]


def test_a_rebuild_that_is_killed(tmp_path: Path) -> None:
    where = tmp_path / "store"
    kept = [number for number in range(40) if number % 4]
    number = 1
    while True:
        with sa.Store(where, durable=True) as store:
            put_all(store, {f"name/{number}": np.full(10, number) for number in range(40)})
            for gone in range(0, 40, 4):
                store.delete(f"name/{gone}")
        with (where / p.CONTROL).open("r+b") as file:
            for field, data in {"boot_id": bytes(16), "free": b"\7" * 16}.items():
                file.seek(p.HEADER[field][0])
                file.write(data)
        more = killed(lambda: sa.Store(where), number, ("/store/rebuild.py",), again=True)
        with sa.Store(where) as store:
            assert store.names() == sorted(f"name/{number}" for number in kept)
            assert all((store.get(f"name/{number}") == number).all() for number in kept)
            put_all(store, {f"more/{number}": number for number in range(50)})
            assert (len(store), store.get("more/49")) == (80, 49)
            store.destroy()
        if not more:
            break
        number += 1500
    assert number > 2000
