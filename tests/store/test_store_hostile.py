"""Control files and objects that nobody should trust: data or our errors, never a crash, a hang or much memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import hostile
import hostile_store
import lab
import numpy as np
import pytest
from cases.store_files import check_store
from put_all import get_all, put_all

import shmarrow as sa
from shmarrow import cli
from shmarrow.store import protocol as p


def test_changed_control_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``python tests/support/fuzz.py --store`` does for longer."""
    if os.geteuid() != 0:
        pytest.skip("takes root to open stores as another user")
    with lab.shared_folder(0o755) as folder:
        monkeypatch.setenv(hostile_store.FOLDER, str(folder))
        counts, findings = hostile.run(hostile_store.mutation, range(200), use=hostile_store.exercise)
    assert not findings, "\n".join(f"{each.name}: {each.what}" for each in findings[:3])
    assert counts["opened"] > 5, counts
    assert counts["refused"] > 0, counts


def test_what_is_wrong_with_a_control_file_is_said(tmp_path: Path) -> None:
    where = tmp_path / "store"
    with sa.Store(where) as store:
        store.put("a", values := bytes(5000))
        put_all(store, {f"b{number}": number for number in range(20)})
        path = Path(store.info("a").path or "")
    control = where / "control"
    good = control.read_bytes()

    def said(data: bytes) -> str:
        control.write_bytes(data)
        with pytest.raises(sa.InvalidData) as error:
            sa.Store(where)
        assert str(where) in str(error.value)
        return str(error.value)

    assert "expected the magic b'shmarrow', found b'SHMARROW'" in said(b"SHMARROW" + good[8:])
    assert "expected version 3, found 4" in said(good[:8] + b"\4" + good[9:])
    assert "its header is invalid" in said(good[:12] + b"\0\1\0\0" + good[16:])
    assert "has 0 bytes" in said(b"")
    assert "has 4095 bytes" in said(good[:4095])
    for size in (4096, 86016, p.SLOTS, p.SLOTS + 500):
        assert f"bytes, found {size}" in said(good[:size])
    control.write_bytes(good[:144] + (1 << 30).to_bytes(8, "little") + good[152:])
    os.truncate(control, p.SLOTS + (512 << 30))
    with pytest.raises(sa.InvalidData, match=r"has holes: \d+ of 549755904000 bytes are allocated"):
        sa.Store(where)
    control.write_bytes(good)
    with sa.Store(where) as store:
        assert store.get("a") == values
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-10])
        with pytest.raises(sa.InvalidData, match=r"'a' .* is damaged: expected \d+ bytes, found \d+; delete it"):
            store.get("a")
        store.delete("a")
        store.put("a", 1)


def damage(where: Path, chance: random.Random) -> None:
    """Write nonsense into the state, all chains and all lists of a control file."""
    fields = [*p.STATE.fields.values(), p.HEADER["journal"]]
    with (where / p.CONTROL).open("r+b") as file:
        for offset, _ in fields:
            file.seek(offset)
            file.write(
                chance.choice([bytes(8), b"\xff" * 8, chance.randbytes(8), chance.randrange(99).to_bytes(8, "little")])
            )
        for slot in range(32):
            file.seek(p.SLOTS + slot * p.SLOT_SIZE + p.HEAD)
            file.write(chance.randrange(40).to_bytes(4, "little") * 2)


@pytest.mark.parametrize("seed", range(10))
def test_the_objects_of_a_damaged_catalog_are_rescued(tmp_path: Path, seed: int) -> None:
    """Each object whose slot and bytes are whole is copied to another store, with those that it shares buffers with."""
    where = tmp_path / "store"
    with sa.Store(where) as store:
        values = {f"small {number}": number for number in range(5)} | {"large": "x" * 10_000}
        put_all(store, values | {"gone": "z" * 20_000, "rows": sa.record_batch({"x": np.arange(2000)})})
        rows = store.get("rows", kind=sa.RecordBatch)
        store.put("shared", rows.slice(5), reuse=True)
        store.delete("gone")
        store.put("torn", "t" * 20_000)
        torn = Path(store.info("torn").path or "")
        torn.chmod(0o600)
        os.truncate(torn, 4096)
        damage(where, random.Random(seed))
        assert cli.main(["rescue", str(where), str(tmp_path / "new")]) == 1
    with sa.Store(tmp_path / "new") as new:
        assert {name: new.get(name) for name in values} == values
        assert (new.get("rows"), new.get("shared")) == (rows, rows.slice(5))
        assert sorted(new.names()) == sorted([*values, "rows", "shared"])
        assert set(check_store(tmp_path / "new")) == set(new.names())


def test_what_can_be_told_is_told_of_a_damaged_catalog(tmp_path: Path) -> None:
    """What is in use is listed as free: nothing is overwritten."""
    with sa.Store(tmp_path / "store") as store:
        values = {name: name * 5000 for name in "abc"}
        put_all(store, values)
        with (tmp_path / "store" / p.CONTROL).open("r+b") as control:
            for field, value in {"removing": int(Path(store.info("b").path or "").name, 16), "free": 2}.items():
                control.seek(p.HEADER[field][0])
                control.write(value.to_bytes(8, "little"))
        with pytest.raises(sa.InvalidData, match="slot 1 is in use, and listed as free") as error:
            store.put("d", "d")
        assert error.value.hint == f"`shmarrow rescue {store.name} NEW` copies its objects to a new store"
        assert get_all(store, list(values)) == values


def damages() -> dict[str, Callable[[Path], object]]:
    """What may become of a control file."""

    def write(offset: int, data: bytes) -> Callable[[Path], object]:
        def damaged(control: Path) -> None:
            with control.open("r+b") as file:
                file.seek(offset)
                file.write(data)

        return damaged

    return {
        "its header is zeros": write(0, bytes(p.JOURNALS[0])),
        "its magic is another": write(0, b"garbage!"),
        "its version is another": write(p.HEADER["version"][0], (99).to_bytes(4, "little")),
        "it is of another boot": write(p.HEADER["boot_id"][0], bytes(16)),
        "all but the slots is lost": write(0, b"\xff" * p.SLOTS),
        "it is cut after a slot": lambda control: os.truncate(control, p.SLOTS + p.SLOT_SIZE + 100),
        "it is cut in the header": lambda control: os.truncate(control, 100),
        "it is empty": lambda control: os.truncate(control, 0),
        "it is gone": os.unlink,
    }


def test_a_store_that_cannot_be_opened_is_rescued(tmp_path: Path) -> None:
    """A new process copies what is there: objects with whole slots, and files by their names."""
    rows = sa.record_batch({"x": np.arange(2000)})
    files: dict[str, dict[str, str]] = {}
    for how, damaged in damages().items():
        with sa.Store(tmp_path / how) as store:
            put_all(store, {"large": "x" * 10_000, "small": 7, "rows": rows})
            store.put("shared", store.get("rows", kind=sa.RecordBatch).slice(5), reuse=True)
            files[how] = {name: Path(store.info(name).path or "").name for name in ("large", "rows", "shared")}
        damaged(tmp_path / how / p.CONTROL)
    code = """
    from shmarrow import cli
    result = [cli.main(["rescue", f"{folder}/{how}", f"{folder}/new {how}"]) for how in damages]
    """
    assert lab.run(code, folder=str(tmp_path), damages=[*files]) == [0] * len(files)
    for how, file_of in files.items():
        with sa.Store(tmp_path / f"new {how}") as new:
            named = {name for name in ("large", "small", "rows", "shared") if name in new}
            if "cut" in how or how in ("it is empty", "it is gone"):
                assert named == ({"large"} if how == "it is cut after a slot" else set()), how
            else:
                assert named == {"large", "small", "rows", "shared"}, how
            by_file = {name: name if name in named else file for name, file in file_of.items()}
            assert sorted(new.names()) == sorted({*by_file.values(), *named}), how
            assert new.get(by_file["large"]) == "x" * 10_000
            assert (new.get(by_file["rows"]), new.get(by_file["shared"])) == (rows, rows.slice(5))


def test_what_was_deleted_is_not_rescued(tmp_path: Path) -> None:
    with sa.Store(tmp_path / "store") as store, sa.Store(tmp_path / "new") as new:
        store.put("rows", sa.record_batch({"x": np.arange(2000)}))
        rows = store.get("rows", kind=sa.RecordBatch)
        store.put("shared", rows, reuse=True)
        store.delete("rows")  # attached here, and a part of the other
        store.put("gone", "z" * 20_000, expire_after=0)
        assert new.rescue(store.path) == {}
        assert new.names() == ["shared"]
        assert new.get("shared") == rows
    with sa.Store(tmp_path / "new") as new:
        with pytest.raises(sa.StorageError, match="nothing"):
            new.rescue(tmp_path / "nothing")
        os.chmod(tmp_path / "store", 0o777)
        with pytest.raises(sa.StorageError, match="anyone may write to it"):
            new.rescue(tmp_path / "store")
        assert list(new.rescue(tmp_path / "store", accept_users=True)) == ["shared"]  # the name is taken


LIES = {
    "parts of an object": ("live", "parts", 0xFFFFFFFF),
    "parts of a removed object": ("gone", "parts", 0xFFFFFFFF),
    "a list of removed objects that leads back": ("gone", "next", None),
    "a chain that leads back": ("live", "next", None),
    "bytes of an object": ("live", "allocated", (1 << 64) - 1),
    "size of an object": ("live", "size", (1 << 64) - 1),
    "length of a name": ("live", "name_length", 0xFFFFFFFF),
}


@pytest.mark.parametrize("lie", LIES)
def test_no_number_of_a_control_file_is_believed(tmp_path: Path, lie: str) -> None:
    """Whatever a slot claims, with a checksum that is right: each call ends soon, with a result or our error."""
    state, field, value = LIES[lie]
    with sa.Store(tmp_path / "store", 1 << 20) as store:
        for name in ("live", "gone", "also gone"):
            store.put(name, np.arange(2000))
        slots = {name: store.info(name) for name in store}
        held = store.get("gone"), store.get("also gone")
        store.delete(prefix="gone")
        store.delete(prefix="also")
        with (tmp_path / "store" / p.CONTROL).open("r+b") as control:
            data = bytearray(control.read())
            for number in range(len(slots)):
                at = p.SLOTS + number * p.SLOT_SIZE
                if data[at + p.SLOT["state"][0]] == {"live": p.LIVE, "gone": p.GONE}[state]:
                    own = number + 1 if value is None else value
                    hostile_store._put(data, at + p.SLOT[field][0], p.SLOT[field][1], own)
                    hostile_store._seal(data, at)
                    control.seek(at)
                    control.write(data[at : at + p.SLOT_SIZE])
        code = """
        import numpy as np, shmarrow as sa
        with sa.Store(where) as store:
            for use in (
                store.stats, store.names, lambda: store.get("live"), lambda: store.info("live"),
                lambda: store.evict(1), lambda: store.put("large", np.arange(130_000)), lambda: store.put("small", 1),
                store.collect, store.clear,
            ):
                try: use()
                except sa.ShmarrowError: pass
        result = None
        """
        lab.run(code, where=store.path, timeout=10)
        del held
