"""Directories that become stores, that are refused, and files in them that a store never touches."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

import lab
import numpy as np
import pytest
from interrupts import killed

import shmarrow as sa


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files below a folder, with their modes and bytes."""
    return {
        str(path.relative_to(folder)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


def test_directories_with_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = tmp_path / "documents"
    (documents / ".git").mkdir(parents=True)
    (documents / "letter.txt").write_text("dear Bob")
    (documents / "0000000000000001").write_bytes(b"looks like an object")
    before = contents(documents)
    monkeypatch.chdir(documents)
    monkeypatch.setenv("HOME", str(documents))
    for where in (documents, ".", "~", "..", "/", "/etc"):
        with pytest.raises(sa.StorageError, match=r"expected a store or an empty directory, found \d+ other file"):
            sa.Store(where, capacity=10_000)
        with pytest.raises(sa.ObjectNotFound, match="there is no store at"):
            sa.Store(where, create=False)
    names = ("", ".b", "a/b", "a\0b", ".", "..", "x" * 201)
    for nothing in ("", "\0", "http://host/store", *(f"shm:{name}" for name in names)):
        with pytest.raises(sa.InvalidArgument):
            sa.Store(nothing)
    for file in (documents / "letter.txt", documents / "letter.txt" / "store"):
        with pytest.raises(sa.StorageError, match="expected a directory"):
            sa.Store(file)
    (tmp_path / "link").symlink_to(documents / ".git")
    for trust in (False, True):
        with pytest.raises(sa.StorageError, match="found a symbolic link; pass its target"):
            sa.Store(tmp_path / "link", accept_users=trust)
    with pytest.raises(sa.StorageError, match=r"there is no directory .*/sotres'; make it first"):
        sa.Store(tmp_path / "sotres" / "one")
    assert sorted(os.listdir(tmp_path)) == ["documents", "link"]
    assert contents(documents) == before


def test_a_mistyped_name_makes_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        sa.ObjectNotFound, match=r"'shm:data' is a store in shared memory, './data' one in this directory"
    ):
        sa.Store("data")
    assert os.listdir(tmp_path) == []
    for number, where in enumerate((Path("path"), "./dotted", f"{tmp_path}/absolute")):
        with sa.Store(where) as store:
            store["number"] = number
    with sa.Store("asked for", create=True), sa.Store("dotted") as store:
        assert store["number"] == 1
    assert sorted(os.listdir(tmp_path)) == ["absolute", "asked for", "dotted", "path"]


def test_files_beside_the_store_are_left_alone(tmp_path: Path) -> None:
    where = tmp_path / "store"
    with sa.Store(where, capacity=1 << 16) as store:
        store.put("a", bytes(20_000))
        (where / "letter.txt").write_text("dear Bob")
        (where / "00000000000000ff").write_bytes(bytes(1 << 20))
        (where / "folder").mkdir()
        nbytes = store.stats().nbytes
        assert nbytes < 1 << 16
        assert store.names() == ["a"] == [each.name for each in store.scan()]
        assert "letter.txt" not in store
        for number in range(5):
            store.put(f"b{number}", bytes(20_000))  # evicts, and is not made room for by the file beside it
        assert store.stats().evictions == 3
        store.collect()
        store.clear()
        assert store.stats().nbytes == 0
        store.put("last", 1)
        with pytest.raises(
            sa.StorageError, match=r"its objects are removed; its directory .* remains, because it contains other files"
        ):
            store.destroy()
    assert sorted(contents(where)) == [".", "00000000000000ff", "folder", "letter.txt"]
    assert (where / "letter.txt").read_text() == "dear Bob"


def test_a_directory_of_arrow_files_is_no_store(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    with sa.ipc.new_file(old / "object", sa.schema([("x", sa.int64())])) as writer:
        writer.write(sa.record_batch({"x": [1]}))
    with pytest.raises(
        sa.StorageError,
        match=r"such as 'object'; a store needs .* add Arrow files .* with put_file",
    ):
        sa.Store(old)


def test_creating_and_destroying_race(tmp_path: Path) -> None:
    """Four processes make, use and destroy one store again and again; nothing is left in the end."""
    code = """
    import shmarrow as sa
    rounds, result = 0, []
    while rounds < 20:
        try:
            with sa.Store(where) as store:
                store.put(str(number), number, overwrite=True)
                assert store.get(str(number)) == number
                rounds += 1
                store.destroy()
        except (sa.StorageError, sa.InvalidData) as error:
            result.append(f"{type(error).__name__}: {error}")
    """
    where = tmp_path / "store"
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(lab.child(code, where=str(where), number=number)) for number in range(4)]
        errors = [error for child in children for error in child.result(120)]
    assert [error for error in errors if "was destroyed" not in error] == []
    if where.exists():
        sa.Store(where).destroy()
    assert not where.exists()


def test_a_killed_creator_leaves_what_the_next_one_takes(tmp_path: Path) -> None:
    where = tmp_path / "store"
    number = 1
    while killed(lambda: sa.Store(where, mode=0o660), number, ("/shmarrow/store/directory.py",)):
        with sa.Store(where, mode=0o660) as store:
            store.put("a", bytes(5000))
            assert store.get("a") == bytes(5000)
        files = ["commit", "control", "pins"]
        assert sorted(os.listdir(where))[1:] == files
        assert [stat.S_IMODE(os.stat(where / file).st_mode) for file in files] == [0o660] * 3
        assert stat.S_IMODE(os.stat(where).st_mode) == 0o2770
        shutil.rmtree(where)
        number += 97
    assert number > 300


def test_settings_that_no_store_has(tmp_path: Path, shm_name: str) -> None:
    """They are refused before a store is made."""
    (tmp_path / "file").touch()
    wrong: list[tuple[dict[str, object], type[sa.ShmarrowError], str]] = [
        ({"mode": 600}, sa.InvalidArgument, r"found 0o1130, a decimal number: did you mean 0o600\?"),
        ({"mode": 0o620}, sa.InvalidArgument, "no write without read permission.*found 0o620"),
        ({"mode": 0o602}, sa.InvalidArgument, "found 0o602"),
        ({"mode": 0o711}, sa.InvalidArgument, "no execute permission; found 0o711"),
        ({"mode": 0o400}, sa.InvalidArgument, "found 0o400"),
        ({"mode": 0o444}, sa.InvalidArgument, "mode"),
        ({"mode": 0o1000}, sa.InvalidArgument, "mode"),
        ({"mode": True}, sa.InvalidArgument, "found True"),
        ({"mode": "600"}, sa.InvalidArgument, "found '600'"),
        ({"capacity": 0}, sa.InvalidArgument, r"from 1 to 2\*\*63 - 1, found 0"),
        ({"capacity": -5}, sa.InvalidArgument, "found -5"),
        ({"capacity": 1 << 63}, sa.InvalidArgument, "found 9223372036854775808"),
        ({"capacity": "1 parsec"}, sa.InvalidType, "found .1 parsec."),
        ({"capacity": 1.5}, sa.InvalidType, "found 1.5"),
        ({"capacity": True}, sa.InvalidType, "found True"),
        ({"eviction": "fifo"}, sa.InvalidArgument, "'lru' or 'none', found 'fifo'"),
        ({"eviction": np.zeros(2)}, sa.InvalidArgument, "'lru' or 'none', found array"),
        ({"durable": 1}, sa.InvalidType, "durable must be a bool, found 1"),
        (
            {"accept_users": "no-such-user"},
            sa.InvalidArgument,
            "users of this machine by name or number, found 'no-such-user'",
        ),
        ({"accept_users": None}, sa.InvalidArgument, "accept_users must be True, False, or users"),
        ({"accept_users": -1}, sa.InvalidArgument, "found -1"),
        ({"accept_users": [0, 1.5]}, sa.InvalidArgument, r"found \[0, 1.5\]"),
    ]
    where = tmp_path / "store"
    for given, kind, match in wrong:
        with pytest.raises(kind, match=match):
            sa.Store(where, **given)  # type: ignore[arg-type]
    assert not (where / "control").exists()
    with sa.Store(tmp_path / "float", capacity=1e9) as store:  # type: ignore[arg-type]
        assert store.capacity == 1_000_000_000
    with sa.Store(where, np.int64(1 << 20), mode=0o640) as store:  # type: ignore[arg-type]
        assert repr(store.settings) == ("Settings(capacity=1048576, mode=0o640, eviction='lru', durable=False)")
        with pytest.raises(sa.InvalidArgument, match=r"has mode=0o640, and was opened with mode=0o660"):
            sa.Store(where, mode=0o660)
        with pytest.raises(sa.StorageError, match="is in the directory of another store"):
            sa.Store(where / "inner")


def test_stores_that_lack_a_file_of_their_own(tmp_path: Path) -> None:
    where = tmp_path / "store"
    for file in ("pins", "commit"):
        sa.Store(where).close()
        (where / file).unlink()
        with sa.Store(where) as store:  # nobody has committed anything: it is made again
            store.put("a", 1)
        (where / file).unlink()
        for create in (True, False):
            with pytest.raises(sa.InvalidData, match=f"is damaged: its file {file} is missing"):
                sa.Store(where, create=create)
        shutil.rmtree(where)
    with sa.Store(where) as store:
        store.put("a", bytes(5000))
    (where / "control").unlink()
    with pytest.raises(sa.StorageError, match="its control file is missing"):
        sa.Store(where)
    shutil.rmtree(where)
    where.mkdir()
    (where / "pins").touch()  # of a creator that was killed
    with sa.Store(where) as store:
        assert store.put("a", 1) == "a"


def test_creators_at_once(tmp_path: Path) -> None:
    """Of processes that open new stores at the same moments, one makes each, and all use it."""
    code = """
    import shmarrow as sa
    sa.Store(f"{where}-own{number}").put("a", 1)  # all is imported
    for round in range(40):
        say("ready")
        hear()
        sa.Store(f"{where}-{round}").put(str(number), number)
    """
    where = tmp_path / "store"
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(lab.child(code, where=str(where), number=number)) for number in range(3)]
        for _ in range(40):
            assert [child.hear() for child in children] == ["ready"] * 3
            for child in children:
                child.say("go")
        for child in children:
            child.result()
    for number in range(40):
        assert sa.Store(f"{where}-{number}", create=False).names() == ["0", "1", "2"]
