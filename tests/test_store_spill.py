"""Spilling: objects that make room move to a second directory, and nobody who uses the store can tell."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import lab
import numpy as np
import pytest
from conftest import PREFIX

import shmarrow as sa

SIZE = 10_000
"""Numbers of an object, which takes BLOCKS bytes."""
BLOCKS = 40960
CAPACITY = 4 * BLOCKS


def values(number: int) -> np.ndarray:
    return np.full(SIZE, number, np.int32)


def folder_of(store: sa.Store, spill: Path) -> Path:
    """Where the format says that a store's objects are spilled to."""
    return spill / Path(store.path, "control").read_bytes()[24:40].hex()


def files(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if len(each.name) == 16}


def check(store: sa.Store, spill: Path) -> None:
    """Files, catalog and counts agree."""
    infos = [store.info(name) for name in store.names()]
    for folder, spilled, count in (
        (Path(store.path), False, store.stats().nbytes),
        (folder_of(store, spill), True, store.stats().spilled),
    ):
        found = [Path(info.path) for info in infos if info.spilled == spilled]
        assert {path.name for path in found} == files(folder)
        assert {path.parent for path in found} <= {folder}
        assert sum(path.stat().st_blocks * 512 for path in found) == count
    assert store.capacity is None or store.stats().nbytes <= store.capacity


@pytest.fixture
def spill(tmp_path: Path) -> Path:
    return tmp_path / "spill"


@pytest.fixture
def store(spill: Path) -> Iterator[sa.Store]:
    made = sa.Store(f"shm:{PREFIX}spill", capacity=CAPACITY, spill=spill)
    yield made
    made.destroy()


def test_nobody_can_tell(store: sa.Store, spill: Path) -> None:
    for number in range(10):
        store.put(str(number), values(number))
    check(store, spill)
    stats = store.stats()
    assert (stats.objects, stats.evictions, stats.nbytes) == (10, 0, CAPACITY)
    assert stats.spills == 6
    assert [info.spilled for info in map(store.info, map(str, range(10)))] == [True] * 6 + [False] * 4
    for number in range(10):
        assert (store.get(str(number)) == number).all()
    assert [found.spilled for found in sorted(store.scan())] == [True] * 6 + [False] * 4
    assert store.stats().spills == 6  # having one moves none
    store.rename("0", "zero")
    store.put("1", values(100), overwrite=True)
    assert (store.take("2") == 2).all()
    held = store.get("3")
    store.delete("3")
    with store.attach("4") as attached:
        assert store.stats().pinned == 0  # it takes no room here
        copy = pickle.loads(pickle.dumps(attached))
    assert copy.size == os.path.getsize(store.info("4").path)
    copy.close()
    assert store.stats().removed == 0
    check(store, spill)
    assert store.names() == ["1", "4", "5", "6", "7", "8", "9", "zero"]
    assert (store.get("zero") == 0).all()
    assert (store.get("1") == 100).all()
    assert (held == 3).all()
    store.expire_after("4", 0)
    assert store.collect().objects == ["4"]
    check(store, spill)
    assert store.delete(prefix="zero") == 1
    store.clear()
    assert (store.stats().nbytes, store.stats().spilled, files(folder_of(store, spill))) == (0, 0, set())
    folder = folder_of(store, spill)
    assert folder.stat().st_mode & 0o7777 == 0o700
    store.put("a", values(1))
    assert store.evict(1) == ["a"]
    assert store.info("a").spilled
    path = store.info("a").path
    assert Path(path).stat().st_mode & 0o7777 == 0o400
    with sa.Store(store.name) as other:
        other.destroy()
    assert not folder.exists()
    assert spill.exists()
    with pytest.raises(sa.StorageError, match="destroyed"):
        store.put("b", 1)
    store.close()
    store.__init__(store.name)  # type: ignore[misc]


def test_what_is_pinned_or_protected_stays(store: sa.Store, spill: Path) -> None:
    store.put("protected", values(0), protect=True)
    store.put("held", values(1))
    store.put("pinned", values(2))
    held, pin = store.get("held"), store.pin("pinned")
    for number in range(3, 8):
        store.put(str(number), values(number))
    assert [store.info(name).spilled for name in ("protected", "held", "pinned")] == [False] * 3
    check(store, spill)
    last = store.get("7")
    before = store.stats()
    with pytest.raises(sa.StoreFull, match=rf"capacity {CAPACITY}, {CAPACITY} bytes of objects, {3 * BLOCKS} of them"):
        store.put("more", values(8))
    with pytest.raises(sa.StoreFull, match="exceeds the capacity"):
        store.put("larger", np.zeros(CAPACITY // 4, np.int32))
    assert store.stats()[:5] == before[:5]
    assert store.stats().spills == before.spills
    pin.close()
    pid = os.fork()
    if not pid:
        signal.pause()
    try:
        del held
        store.put("more", values(8))  # what the fork has inherited would take its memory in both places
        assert [store.info(name).spilled for name in ("held", "pinned", "7")] == [False, True, False]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    store.protect("protected", on=False)
    del last
    store.put("last", values(9))
    store.put("later", values(10))
    assert store.info("protected").spilled
    check(store, spill)


def test_a_spill_disk_that_is_full(tmp_path: Path, store: sa.Store) -> None:
    with lab.small_tmpfs(tmp_path / "disk", 2 * BLOCKS) as disk:
        for eviction, kept in (("lru", 6), ("none", 6)):
            where = tmp_path / eviction
            with sa.Store(where, capacity=CAPACITY, eviction=eviction, spill=disk / eviction) as made:
                for number in range(6):
                    made.put(str(number), values(number))
                if eviction == "lru":
                    made.put("6", values(6))
                    assert (len(made), made.stats().evictions, made.stats().spills) == (kept, 1, 2)
                    assert "2" not in made
                else:
                    with pytest.raises(sa.StoreFull, match=rf"the spill directory '{disk}/none/\w+' is full, \d+ byte"):
                        made.put("6", values(6))
                    assert (len(made), made.stats().evictions) == (kept, 0)
                    made.delete("0")
                    made.put("6", values(6))
                check(made, disk / eviction)
                made.destroy()


def test_a_file_system_that_is_full(tmp_path: Path) -> None:
    """Without a capacity, what does not fit the file system of the store is the reason to spill."""
    with lab.small_tmpfs(tmp_path / "memory", 12 * BLOCKS) as memory:
        store = sa.Store(memory / "store", spill=tmp_path / "spill")
        for number in range(20):
            store.put(str(number), values(number))
        big = np.arange(64 << 10, dtype=np.int32)
        store.put("big", big)
        assert all((store.get(str(number)) == number).all() for number in range(20))
        assert (store.get("big") == big).all()
        assert store.stats().evictions == 0
        check(store, tmp_path / "spill")


LOAD = """
import random, numpy as np, shmarrow as sa
store, source, mine = sa.Store(where), random.Random(number), {}
for _ in range(100):
    name, value = f"{number}/{source.randrange(12)}", source.randrange(1 << 30)
    if name not in mine or source.random() < 0.4:
        store.put(name, np.full(10_000, value, np.int32), overwrite=True)
        mine[name] = value
    elif source.random() < 0.8:
        assert (store.get(name) == mine[name]).all(), name
    else:
        store.delete(name)
        del mine[name]
for name, value in mine.items():
    assert (store.get(name) == value).all(), name
result = list(mine)
"""


def test_four_processes(store: sa.Store, spill: Path) -> None:
    with (
        lab.child(LOAD, where=store.name, number=0) as a,
        lab.child(LOAD, where=store.name, number=1) as b,
        lab.child(LOAD, where=store.name, number=2) as c,
        lab.child(LOAD, where=store.name, number=3) as d,
    ):
        expected = sorted(name for each in (a, b, c, d) for name in each.result())
    assert store.names() == expected
    assert store.stats().evictions == 0
    assert store.stats().spills > 50
    check(store, spill)


PREPARE = """
import numpy as np, shutil, shmarrow as sa
shutil.rmtree(where, ignore_errors=True)
with sa.Store(where, capacity=capacity, spill=spill) as store:
    for number in range(4):
        store.put(str(number), np.full(10_000, number, np.int32))
"""
SPILL = """
import numpy as np, shmarrow as sa
with sa.Store(where) as store:
    store.put("4", np.full(10_000, 4, np.int32))
"""
CHECK = """
import numpy as np, shmarrow as sa
from pathlib import Path
from test_store_spill import check
with sa.Store(where) as store:
    store.put("new", np.arange(3))  # whoever changes something repairs what there is
    names = set(store.names()) - {"new"}
    assert set("0123") <= names <= set("01234"), names
    assert all((store.get(name) == int(name)).all() for name in names)
    check(store, Path(spill))
    store.destroy()
assert not list(Path(spill).iterdir())
"""


def test_a_spiller_that_is_killed(tmp_path: Path) -> None:
    given = {"where": f"{tmp_path}/store", "spill": f"{tmp_path}/spill", "capacity": CAPACITY}
    points = lab.crash_points(PREPARE, SPILL, CHECK, first=7, step=500, **given)
    assert len(points) >= 3


def test_the_directory_is_checked(tmp_path: Path, store: sa.Store, spill: Path) -> None:
    with pytest.raises(sa.InvalidArgument, match="is in the store"):
        sa.Store(tmp_path / "a", spill=tmp_path / "a" / "spill")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(sa.StorageError, match="cannot use the spill directory"):
        sa.Store(tmp_path / "b", spill=tmp_path / "file")
    for number in range(5):
        store.put(str(number), values(number))
    folder = folder_of(store, spill)
    with pytest.raises(sa.InvalidArgument, match=f"{str(spill)!r} contains {BLOCKS} bytes of objects; delete them"):
        store.configure(spill=tmp_path / "other")
    code = """
    import shmarrow as sa
    store = sa.Store(where)
    try:
        result = store.get("0").tolist()[:1]
    except sa.StorageError as error:
        result = str(error)
    """
    assert lab.run(code, where=store.name) == [0]
    folder.rename(tmp_path / "real")
    assert "does not exist; mount its disk" in lab.run(code, where=store.name)
    folder.symlink_to(tmp_path / "real")
    assert "open the spill directory" in lab.run(code, where=store.name)
    folder.unlink()
    (tmp_path / "real").rename(folder)
    folder.chmod(0o777)
    assert "has mode 0777, so others could replace objects" in lab.run(code, where=store.name)
    folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, lab.NOBODY, -1)
        assert f"it belongs to user {lab.NOBODY}" in lab.run(code, where=store.name)
        os.chown(folder, 0, -1)
    assert lab.run(code, where=store.name) == [0]
    store.clear()
    for bad, reason in ((Path(store.path, "in"), "shared memory"), (tmp_path / "file" / "in", "Not a directory")):
        with pytest.raises(sa.ShmarrowError, match=reason):
            store.configure(spill=bad)
    store.configure(spill=tmp_path / "other")
    for number in range(5):
        store.put(str(number), values(number))
    check(store, tmp_path / "other")
    assert lab.run(code, where=store.name) == [0]
    shutil.rmtree(folder_of(store, tmp_path / "other"))
    with sa.Store(store.name) as again, pytest.raises(sa.ShmarrowError, match="spill"):
        again.put("more", values(1))


def test_what_was_spilled_before_a_reboot_goes(store: sa.Store, spill: Path, tmp_path: Path) -> None:
    """The store was in shared memory, and is gone; stores of other machines, and on disks, are not touched."""
    for number in range(6):
        store.put(str(number), values(number))
    folder = folder_of(store, spill)
    disk = sa.Store(tmp_path / "disk", spill=spill)
    other, strange = spill / ("0" * 32), spill / ("1" * 32)
    for path, host in ((other, "1-1:another machine:host:boot"), (strange, None)):
        path.mkdir()
        (path / ("0" * 16)).write_bytes(b"x")
        if host is not None:
            (path / "store").symlink_to(host)
    make = "import shmarrow as sa\nsa.Store(where, spill=spill).destroy()"
    lab.run(make, where=f"{store.name}-2", spill=str(spill))
    assert {path.name for path in spill.iterdir()} == {folder.name, folder_of(disk, spill).name, "0" * 32, "1" * 32}
    assert (store.get("0") == 0).all()
    lab.run(make, where=f"{store.name}-2", spill=str(spill), boot_id="12345678-0000-0000-0000-000000000000")
    assert {path.name for path in spill.iterdir()} == {folder_of(disk, spill).name, "0" * 32, "1" * 32}


def test_a_copy_of_a_store_leaves_what_the_original_spilled(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    with sa.Store(tmp_path / "store", capacity=CAPACITY, spill=spill) as store:
        for number in range(6):
            store.put(str(number), values(number))
        before = files(folder_of(store, spill))
        assert len(before) == 2
        run(["cp", "-a", tmp_path / "store", tmp_path / "copy"], check=True)
        with sa.Store(tmp_path / "copy") as copy:
            assert (copy.get("5") == 5).all()
            for use in (lambda: copy.get("0"), lambda: copy.put("6", values(6)), lambda: copy.evict(1)):
                with pytest.raises(sa.StorageError, match="belongs to another store, of which this one may be a copy"):
                    use()
            with pytest.raises(sa.StorageError, match="belongs to another store"):
                sa.Store(tmp_path / "copy", spill=spill)
            copy.delete("0")
            copy.clear()
            copy.configure(spill=tmp_path / "other")
            for number in range(6):
                copy.put(str(number), values(number))
            check(copy, tmp_path / "other")
        run(["cp", "-a", tmp_path / "store", tmp_path / "rebooted"], check=True)
        code = "import shmarrow as sa\nwith sa.Store(where) as store:\n    result = store.names()\n    store.destroy()"
        boot = "12345678-0000-0000-0000-000000000000"
        assert lab.run(code, where=f"{tmp_path}/rebooted", boot_id=boot) == list("012345")
        with sa.Store(tmp_path / "copy") as copy:
            copy.destroy()
        assert files(folder_of(store, spill)) == before
        assert all((store.get(str(number)) == number).all() for number in range(6))
        check(store, spill)
        (tmp_path / "store").rename(tmp_path / "moved")
        with sa.Store(tmp_path / "moved") as moved:
            assert (moved.get("0") == 0).all()


def test_a_control_file_that_leads_elsewhere(tmp_path: Path, store: sa.Store, spill: Path) -> None:
    """Whoever may write to a store cannot make others remove what another one spilled, nor make directories."""
    for number in range(6):
        store.put(str(number), values(number))
    before = files(folder_of(store, spill))
    put = """
    import numpy as np, shmarrow as sa
    result = None
    with sa.Store(where) as store:
        try:
            for number in range(3):
                store.put(str(number), np.full(10_000, number, np.int32))
        except sa.StorageError as error:
            result = str(error)
    """
    header = Path(store.path, "control").read_bytes()
    for path, reason in ((spill, "belongs to another store"), (tmp_path / "planted" / "deep", "does not exist")):
        with sa.Store(tmp_path / "shared", mode=0o660) as shared:
            shared.put("a", 1)
        with open(tmp_path / "shared" / "control", "r+b") as control:
            coded = os.fsencode(path)
            for offset, forged in (
                (24, header[24:40]),  # the store id
                (64, (2 * BLOCKS).to_bytes(8, "little")),
                (84, len(coded).to_bytes(4, "little")),
                (1024, coded),
                (264, int(min(before), 16).to_bytes(8, "little")),  # the file that is to be unlinked
            ):
                control.seek(offset)
                control.write(forged)
        assert reason in lab.run(put, where=f"{tmp_path}/shared")
        with sa.Store(tmp_path / "shared") as shared:
            shared.destroy()
    assert files(folder_of(store, spill)) == before
    assert not (tmp_path / "planted").exists()
    check(store, spill)


def test_a_file_that_was_left_in_the_way(store: sa.Store, spill: Path) -> None:
    for number in range(4):
        store.put(str(number), values(number))
    last = int.from_bytes(Path(store.path, "control").read_bytes()[184:192], "little")
    left = folder_of(store, spill) / f"{last + 1:016x}"
    left.write_bytes(b"left")
    store.put("4", values(4))
    assert (store.get("0") == 0).all()
    assert store.info("0").spilled
    left.unlink(missing_ok=True)
    check(store, spill)


def test_users_of_one_group() -> None:
    """What one spills the others have, as far as the mode of the store lets them."""
    put = """
    import numpy as np, shmarrow as sa
    with sa.Store(where, trust=True, **settings) as store:
        for number in range(3):
            store.put(f"{who}{number}", np.full(10_000, number, np.int32))
    """
    get = """
    import shmarrow as sa
    store = sa.Store(where, trust=True)
    result = [int(store.get(name)[0]) for name in store.names()], sum(info.spilled for info in store.scan())
    """
    with lab.shared_folder(0o2775, gid=2000) as folder, lab.shared_folder(0o3777, gid=3000) as disk:
        given = {"where": f"{folder}/store", "uid": 1001, "gid": 2000}
        settings = {"mode": 0o660, "capacity": 2 * BLOCKS, "spill": f"{disk}/spill"}
        lab.run(put, who="a", settings=settings, **given)
        lab.run(put, who="b", settings={}, **given | {"uid": 1002})
        lab.run(put, who="c", settings={}, **given | {"uid": 0, "gid": 0})
        for uid in (1001, 1002, 0):
            assert lab.run(get, **given | {"uid": uid}) == ([0, 1, 2] * 3, 7)
        private = given | {"where": f"{folder}/private"}
        settings |= {"mode": 0o640, "spill": f"{disk}/made/for/it"}
        lab.run(f"import os; os.umask(0o077)\n{textwrap.dedent(put)}", who="d", settings=settings, **private)
        assert lab.run(get, **private | {"uid": 1002}) == ([0, 1, 2], 1)
        lab.run("import os; os.chmod(path, 0o700)", path=f"{disk}/made/for", uid=1001)
        with pytest.raises(lab.Failed, match="this user lacks read permission, or search permission in its path"):
            lab.run(get, **private | {"uid": 1002})
        with pytest.raises(lab.Failed, match="Permission denied"):
            lab.run("import os; os.listdir(f'{disk}/spill')", disk=str(disk), uid=1003, gid=3000)
