"""What a store keeps through reboots and power cuts: all that it accepted if it is durable; else nothing."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pytest
from environment import PREFIX

import shmarrow as sa

SECOND = "1" * 8 + "-2222-3333-4444-555555555555"
"""The id of a later boot."""

OPERATIONS = """
import random

def operations(seed):
    \"\"\"What a writer does, one thing after the other, for ever.\"\"\"
    source = random.Random(seed)
    for number in range(1 << 30):
        name, other = (f"{seed}/{source.randrange(8)}" for _ in range(2))
        what = source.choice(["put", "put", "put", "delete", "rename", "expire", "protect"])
        if what == "protect":  # few and small, as they make no room for others
            name = f"{seed}/kept{source.randrange(2)}"
        yield what, name, other, number, source.choice([10, 5_000, 300_000] if what == "put" else [10])

def follow(state, what, name, other, number, size):
    \"\"\"What it makes of the objects: their values, whether they expire, whether they are protected.\"\"\"
    if what == "put" or (what == "protect" and name not in state):
        state[name] = [number, size, False, what == "protect"]
    elif name in state:
        if what == "delete":
            del state[name]
        elif what == "rename":
            state[other] = state.pop(name)
        elif what == "expire":
            state[name][2] = True
        else:
            state[name][3] = not state[name][3]
"""
WRITE = (
    OPERATIONS
    + """
import numpy as np, shmarrow as sa
store = sa.Store(where)
for done, (what, name, other, number, size) in enumerate(operations(seed), 1):
    if what == "put" or (what == "protect" and name not in store):
        store.put(name, np.full(size, number, np.int32), overwrite=True, protect=what == "protect")
    elif name in store:
        if what == "delete":
            store.delete(name)
        elif what == "rename":
            store.rename(name, other, overwrite=True)
        elif what == "expire":
            store.expire_after(name, 3600)
        else:
            store.protect(name, not store.info(name).protected)
    say(done)
"""
)
READ = """
import os, shmarrow as sa
store = sa.Store(where, create=False)
result = {}
for name in store.names():
    info, value = store.info(name), store.get(name)
    assert (value == value[0]).all(), name
    result[name] = [int(value[0]), len(value), info.expires_in is not None, info.protected]
    if info.expires_in is not None:
        assert 3000 < info.expires_in <= 3600
value = None
store.collect()
stats, infos = store.stats(), [store.info(name) for name in store.names()]
assert (stats.drafts, stats.removed, stats.pins) == (0, 0, {})
assert sum(info.allocated for info in infos) == stats.nbytes
listed = {os.path.basename(info.path) for info in infos if info.path}
found = {name for _, _, files in os.walk(top) for name in files if len(name) == 16}
assert found == listed, (found - listed, listed - found)
store.put("after", 1)
assert store.get("after") == 1 and len(store) == stats.objects + 1
"""
names: dict[str, Any] = {}
exec(OPERATIONS, names)
operations: Callable[[int], Any] = names["operations"]
follow: Callable[..., None] = names["follow"]


def cut_while_writing(place: Path, source: random.Random, durable: bool, writers: int = 2) -> int:
    """Cut the power while processes write, and compare what is left with all that may be; how much was accepted."""
    with lab.disk(place, 96 << 20) as disk:
        now = place.with_name("now")
        now.symlink_to(disk.path)
        with sa.Store(now / "store", durable=durable):
            pass
        with lab.child(WRITE, where=f"{now}/store", seed=1) as first:
            others = [lab.child(WRITE, where=f"{now}/store", seed=2 + number) for number in range(writers - 1)]
            made = {1: first} | {2 + number: other.__enter__() for number, other in enumerate(others)}
            try:
                for each in made.values():
                    each.hear()
                time.sleep(source.random() * 0.3)
                accepted = {seed: 1 + len(each.heard()) for seed, each in made.items()}
                after = disk.cut()
            finally:
                for other in others:
                    other.__exit__(None, None, None)
        now.unlink()
        now.symlink_to(after.path)
        found = lab.run(READ, top=f"{now}/", where=f"{now}/store", boot_id=SECOND)
        now.unlink()
        if durable:
            judge(found, accepted)
        else:
            assert found == {}
        return sum(accepted.values())


def judge(found: dict[str, Any], accepted: dict[int, int]) -> None:
    """Compare what was found with all that may be: the state after some operation that was accepted, or a later one."""
    for seed, count in accepted.items():
        mine = {name: value for name, value in found.items() if name.startswith(f"{seed}/")}
        state: dict[str, Any] = {}
        matches = False
        steps = operations(seed)
        for done in range(1, count + 400):  # those that were accepted, or may have been when the power went
            step = next(steps)
            follow(state, *step)
            matches = matches or (done >= count and state == mine)
        assert matches, (seed, count, mine)


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not"])
def test_power_cuts(tmp_path: Path, durable: bool) -> None:
    source = random.Random(durable)
    for number in range(2):
        assert cut_while_writing(tmp_path / f"disk-{number}", source, durable) > 2


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
        new.generation, os.path.basename(new.path), (store.stats().removed, store.stats().drafts),
        store.collect().objects, os.listdir(where), store.capacity,
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
    assert counts == (0, 0)  # neither what was removed nor the draft takes room
    assert capacity == 8 << 20
    kept = [Path(old[name][0]).name for name in ("kept", "late") if durable]
    assert sorted(listed) == sorted(["commit", "control", "of the user", "pins", file, *kept])


def test_who_may_only_read_waits_for_a_writer_after_a_reboot() -> None:
    with lab.shared_folder() as folder:
        where = folder / "store"
        with sa.Store(where, mode=0o644, durable=True) as store:
            store.put("x", np.arange(100))
        read = "import shmarrow as sa\nresult = sa.Store(where, trust=True).get('x').tolist()[:2]"
        with pytest.raises(
            lab.Failed, match="not been opened since the machine was started, and this process may only"
        ):
            lab.as_user(read, where=str(where), boot_id=SECOND)
        lab.run("import shmarrow as sa; sa.Store(where)", where=str(where), boot_id=SECOND)
        assert lab.as_user(read, where=str(where), boot_id=SECOND) == [0, 1]


def test_a_rebuild_that_is_killed(tmp_path: Path) -> None:
    prepare = """
    import numpy as np, shutil, shmarrow as sa
    shutil.rmtree(where, ignore_errors=True)
    with sa.Store(where, durable=True) as store:
        for number in range(40):
            store.put(f"name/{number}", np.full(10, number))
        for number in range(0, 40, 4):
            store.delete(f"name/{number}")
    with open(f"{where}/control", "r+b") as file:
        file.seek(40)
        file.write(bytes(16))  # the boot id
        file.seek(160)
        file.write(b"\7" * 16)  # lists
    """
    act = "import shmarrow as sa\nsa.Store(where)"
    check = """
    import shmarrow as sa
    with sa.Store(where) as store:
        kept = [number for number in range(40) if number % 4]
        assert store.names() == sorted(f"name/{number}" for number in kept)
        assert all((store.get(f"name/{number}") == number).all() for number in kept)
        for number in range(50):
            store.put(f"more/{number}", number)
        assert len(store) == 80 and store.get("more/49") == 49
    """
    points = lab.crash_points(prepare, act, check, under="/store/rebuild.py", first=3, step=220, where=f"{tmp_path}/s")
    assert len(points) >= 3


if __name__ == "__main__":  # for as many seconds as are given
    import tempfile

    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 1_000_000
    print("seed", seed)
    source, end = random.Random(seed), time.monotonic() + float(sys.argv[1])
    cuts, accepted = {True: 0, False: 0}, {True: 0, False: 0}
    while time.monotonic() < end:
        for durable in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                accepted[durable] += cut_while_writing(Path(folder, "disk"), source, durable, source.choice([1, 2, 4]))
                cuts[durable] += 1
    for durable, count in cuts.items():
        print(f"durable={durable}: {count} power cuts, {accepted[durable]} operations accepted; all as they should be")
