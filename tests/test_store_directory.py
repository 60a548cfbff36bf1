"""Which directories become stores, which are refused, and what of them a store never touches."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import lab
import pytest

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
        with pytest.raises(sa.StorageError, match=r"expected a store or an empty directory, found \d+ other files"):
            sa.Store(where, capacity=10_000)
        with pytest.raises(sa.ObjectNotFound, match="there is no store at"):
            sa.Store(where, create=False)
    for nothing in ("", "\0", "shm:", "shm:a/b", "shm:.", "shm:..", "http://host/store"):
        with pytest.raises(sa.InvalidArgument):
            sa.Store(nothing)
    for file in (documents / "letter.txt", documents / "letter.txt" / "store"):
        with pytest.raises(sa.StorageError, match="expected a directory"):
            sa.Store(file)
    assert contents(documents) == before


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
            sa.StorageError, match="its objects are removed; its directory .* stays, as it has other files"
        ):
            store.destroy()
    assert sorted(contents(where)) == [".", "00000000000000ff", "folder", "letter.txt"]
    assert (where / "letter.txt").read_text() == "dear Bob"


def test_stores_of_the_first_design_are_named(tmp_path: Path, shm_name: str) -> None:
    old = tmp_path / "old"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        (old / ".shmarrow").mkdir(parents=True)
        with pytest.raises(sa.StorageError, match=r"first design.*put_file"):
            sa.Store(old)
    shutil.rmtree(old)
    old.mkdir()
    with sa.ipc.new_file(old / "object", sa.schema([("x", sa.int64())])) as writer:
        writer.write(sa.record_batch({"x": [1]}))
    with pytest.raises(sa.StorageError, match=r"'object', which look like a store of shmarrow's first design"):
        sa.Store(old)
    path = f"/dev/shm/{shm_name[4:]}.object"
    shutil.copy(old / "object", path)
    with pytest.raises(sa.ObjectNotFound, match=f"{path!r} is an object of shmarrow's first design"):
        sa.Store(shm_name, create=False)
    with sa.Store(shm_name) as store:
        with pytest.raises(sa.ObjectNotFound, match=f"{path!r} is an object of shmarrow's first design"):
            store.get("object")
        with pytest.raises(sa.ObjectNotFound) as error:
            store.get("other")
        assert "first design" not in str(error.value)
        store.put_file("object", path)
        assert store.get("object").to_pydict() == {"x": [1]}
        store.destroy()


def test_creating_and_destroying_race(tmp_path: Path) -> None:
    """Four processes make, use and destroy one store again and again: our errors only, and nothing is left in the end."""
    code = """
    import time, shmarrow as sa
    end, rounds, errors = time.monotonic() + seconds, 0, []
    while time.monotonic() < end:
        try:
            with sa.Store(where) as store:
                store.put(str(number), number, overwrite=True)
                assert store.get(str(number)) == number
                rounds += 1
                store.destroy()
        except (sa.StorageError, sa.InvalidData) as error:
            errors.append(f"{type(error).__name__}: {error}")
    result = rounds, errors
    """
    where = tmp_path / "store"
    children = [lab.child(code, where=str(where), number=number, seconds=1) for number in range(4)]
    results = []
    try:
        for child in [each.__enter__() for each in children]:
            results.append(child.result())
    finally:
        for each in children:
            each.__exit__(None, None, None)
    assert all(rounds > 5 for rounds, _ in results), results
    wrong = [error for _, errors in results for error in errors if error.startswith("InvalidData")]
    assert not wrong, wrong[:3]
    if where.exists():
        sa.Store(where).destroy()
    assert not where.exists()


def test_destroying_is_not_half_done_when_killed(tmp_path: Path) -> None:
    """A process that is killed while it destroys a store leaves one that is whole, or one that says what to do."""
    prepare = """
    import shmarrow as sa, shutil
    shutil.rmtree(where, True)
    store = sa.Store(where)
    for name in "abc":
        store.put(name, name)
    """
    act = "import shmarrow as sa; sa.Store(where, create=False).destroy()"
    check = """
    import shmarrow as sa, os
    try:
        store = sa.Store(where, create=False)
    except sa.ObjectNotFound:
        assert not os.path.exists(where) or os.listdir(where) == []
    except sa.StorageError as error:
        assert "remove the directory" in str(error)
    else:
        assert store.get_many(list("abc")) == {"a": "a", "b": "b", "c": "c"}
    """
    lab.crash_points(prepare, act, check, under="/shmarrow/store/catalog.py", where=str(tmp_path / "store"), step=6)


def test_a_killed_creator_leaves_what_the_next_one_takes(tmp_path: Path) -> None:
    check = """
    import shmarrow as sa, os
    with sa.Store(where, mode=0o660) as store:
        store.put("a", 1)
        assert store.get("a") == 1
    assert sorted(os.listdir(where))[1:] == ["commit", "control", "pins"]
    assert [os.stat(f"{where}/{file}").st_mode & 0o777 for file in ("commit", "control", "pins")] == [0o660] * 3
    assert os.stat(where).st_mode & 0o7777 == 0o2770
    """
    prepare = "import shutil; shutil.rmtree(where, True)"
    act = "import shmarrow as sa; sa.Store(where, mode=0o660)"
    where = str(tmp_path / "store")
    points = lab.crash_points(prepare, act, check, under="/shmarrow/store/directory.py", where=where, step=12)
    assert len(points) > 5
