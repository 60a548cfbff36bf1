"""The store's everyday life: put, get, wait, replace, rename, fill in place; names, trust, kinds. No faults here."""

from __future__ import annotations

import gc
import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pyarrow as pa
import pytest
from store_check import leftovers, place
from waiting import wait_until

import shmarrow as sa

BATCH = {"id": [1, 2, 3], "city": ["Oslo", None, "Rome"]}
LARGE = np.arange(1000)
"""An object with a file of its own."""


@pytest.fixture
def store(where: str) -> Iterator[sa.Store]:
    with sa.Store(where) as made:
        yield made


def batch() -> sa.RecordBatch:
    return sa.record_batch(BATCH)


def large_batch() -> sa.RecordBatch:
    """A batch with a file of its own."""
    return sa.record_batch({**BATCH, "text": ["x" * 5000] * 3})


# --- kinds ------------------------------------------------------------------------------------------------------


def dictionaries() -> sa.Table:
    parts = [sa.array(values).dictionary_encode() for values in (["a", "b"], ["c", "b", "c"])]
    batches = [sa.record_batch({"d": part}) for part in parts]
    return sa.Table(batches[0].schema, batches)


KINDS: dict[str, tuple[Any, type, Any]] = {
    "record_batch": (batch(), sa.RecordBatch, BATCH),
    "table": (sa.Table(batch().schema, [batch(), batch()]), sa.Table, {key: 2 * BATCH[key] for key in BATCH}),
    "table of no batches": (sa.Table(batch().schema, []), sa.Table, {"id": [], "city": []}),
    "table of several dictionaries": (dictionaries(), sa.Table, {"d": ["a", "b", "c", "b", "c"]}),
    "ndarray": (np.arange(6.0).reshape(2, 3), np.ndarray, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
    "ndarray without dimensions": (np.array(7), np.ndarray, 7),
    "ndarray of nothing": (np.zeros((0, 3)), np.ndarray, []),
    "tensor": (sa.Tensor.from_numpy(np.eye(2), ["x", "y"]), sa.Tensor, [[1.0, 0.0], [0.0, 1.0]]),
    "sparse tensor": (
        sa.SparseCOOTensor.from_dense(np.diag([1.0, 2.0])), sa.SparseCOOTensor, [[1.0, 0.0], [0.0, 2.0]]
    ),
    "bundle": ({"w": np.eye(2), "b": np.zeros(1)}, sa.Bundle, {"w": [[1.0, 0.0], [0.0, 1.0]], "b": [0.0]}),
}  # fmt: skip


def values(got: Any) -> Any:
    if isinstance(got, sa.Bundle):
        return {name: array.tolist() for name, array in got.to_numpy().items()}
    if isinstance(got, (sa.RecordBatch, sa.Table)):
        return got.to_pydict()
    if isinstance(got, sa.SparseTensor):
        got = got.to_dense()
    return (got if isinstance(got, np.ndarray) else got.to_numpy()).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_put_is_had(store: sa.Store, kind: str) -> None:
    value, cls, expected = KINDS[kind]
    assert store.put("x", value) == "x"
    got = store.get("x")
    assert isinstance(got, cls)
    assert values(got) == expected


def test_nothing_is_copied_when_it_is_had(where: str) -> None:
    with sa.Store(where) as store:
        store.put("x", sa.record_batch({"a": np.arange(1000)}))
        array = store.get("x")["a"].to_numpy()
        file = store.info("x").path
        assert os.path.dirname(file) == place(where)
        lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(file)]
        ranges = [[int(end, 16) for end in line[0].split("-")] for line in lines]
        address = array.__array_interface__["data"][0]
        assert any(start <= address and address + array.nbytes <= end for start, end in ranges)
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_a_store_keeps_copies(store: sa.Store) -> None:
    array = np.arange(5)
    store.put("x", sa.record_batch({"x": array}))
    array[:] = -1
    assert store.get("x")["x"].to_pylist() == [0, 1, 2, 3, 4]


class Unwritable:
    """An object whose pickling fails."""

    def __reduce__(self) -> Any:
        raise ValueError("this object cannot be serialized")


def fails_after_a_batch() -> sa.RecordBatchReader:
    """A stream that ends with an error."""

    def batches() -> Iterator[Any]:
        yield sa.record_batch({"x": np.full(50_000, -1)})
        raise ValueError("this stream fails after its first batch")

    return sa.RecordBatchReader.from_batches(sa.schema([("x", sa.int64())]), batches())


def test_puts_that_fail_leave_the_old_object(store: sa.Store) -> None:
    """Also if the value turns out to be unwritable when a part of it has been written."""
    store.put("x", batch())
    for make in (lambda: np.array([b"-" * 500_000, Unwritable()], object), fails_after_a_batch):
        for name in ("x", "new"):
            with pytest.raises((sa.ShmarrowError, ValueError), match=r"fails after|serialized|object"):
                store.put(name, make(), overwrite=True)
        assert store.get("x").to_pydict() == BATCH
        assert store.names() == ["x"]


def test_pyarrow_reads_objects_by_their_files(where: str) -> None:
    with sa.Store(where) as store:
        store.put("small", batch())
        assert store.info("small").path is None
        store.delete("small")
        store.put("batch", large_batch())
        store.put("tensor", LARGE.reshape(2, 500))
        with store.new_file("table", batch().schema) as writer:
            writer.write(batch())
            writer.write(batch())
        paths = {name: store.info(name).path for name in store}
        assert all(os.path.dirname(path or "") == place(where) for path in paths.values())
    with pa.memory_map(paths["batch"]) as source:
        assert pa.ipc.open_file(source).read_all().to_pydict() == large_batch().to_pydict()
    with pa.memory_map(paths["table"]) as source:
        assert pa.ipc.open_file(source).num_record_batches == 2
    with pa.memory_map(paths["tensor"]) as source:
        assert pa.ipc.read_tensor(source).to_numpy().tolist() == LARGE.reshape(2, 500).tolist()


def test_files_of_others_are_put_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(forms.peers_file(pa.table(BATCH)))
    (tmp_path / "stream").write_bytes(forms.peers_stream(pa.table(BATCH)))
    (tmp_path / "text").write_bytes(b"no object of anybody's")
    (tmp_path / "empty").touch()
    with sa.Store(tmp_path / "store") as store:
        for name in ("file", "stream"):
            assert store.put_file(name, tmp_path / name) == name
            assert store.get(name).to_pydict() == BATCH
            with store.attach(name) as found:
                assert bytes(found.data) == (tmp_path / name).read_bytes()
        for name in ("text", "empty"):
            with pytest.raises(sa.InvalidData):
                store.put_file(name, tmp_path / name)
        assert store.names() == ["file", "stream"]


# --- names ------------------------------------------------------------------------------------------------------


def test_names(store: sa.Store) -> None:
    assert (store.names(), list(store), len(store), "a" in store) == ([], [], 0, False)
    for name in ("b", "a", "a.b", "ä", "x" * 150, "with space"):
        store.put(name, batch())
    assert store.names() == sorted(["b", "a", "a.b", "ä", "x" * 150, "with space"])
    assert sorted(store) == store.names()
    assert len(store) == 6
    assert "ä" in store
    assert "c" not in store
    assert 3 not in store
    store.delete("a")
    assert "a" not in store
    assert "a.b" in store
    with pytest.raises(sa.ObjectNotFound, match="no object 'a' in the store") as missing:
        store.delete("a")
    assert isinstance(missing.value, KeyError)


@pytest.mark.parametrize("name", ["", "a\0b", "\0", "x" * 256, "ä" * 128, "\ud800"])
def test_names_that_are_none(store: sa.Store, name: str) -> None:
    for use in (store.get, store.delete, store.info, store.take, store.pin, lambda name: store.put(name, batch())):
        with pytest.raises(sa.InvalidArgument, match="name"):
            use(name)
    assert name not in store


@pytest.mark.parametrize(
    "name",
    [".", "..", ".hidden", "a/b", "../x", "/etc/passwd", "a//", "x" * 255, "ä" * 127, "\n\x1b[31m", " ", "control"],
)
def test_names_that_no_file_could_have(store: sa.Store, name: str) -> None:
    """A name is no path: whatever it looks like, it means an object of this store."""
    files = {"/etc/passwd": Path("/etc/passwd").read_bytes()}
    store.put(name, np.arange(3))
    assert store.get(name).tolist() == [0, 1, 2]
    assert (store.names(), name in store, store.info(name).name) == ([name], True, name)
    store.rename(name, "other")
    store.rename("other", name)
    store.put(name, LARGE, overwrite=True)
    assert store.get(name).tolist() == LARGE.tolist()
    assert os.path.dirname(store.info(name).path or "") == store.path
    store.rename(name, "other")
    store.rename("other", name)
    assert store.get(name).tolist() == LARGE.tolist()
    store.delete(name)
    assert store.names() == []
    assert Path("/etc/passwd").read_bytes() == files["/etc/passwd"]


def test_names_are_made_up_where_none_is_given(store: sa.Store) -> None:
    names = [store.put(None, batch()) for _ in range(3)]
    assert sorted(names) == store.names()
    with store.new_draft(None, sa.schema([("x", sa.int32())]), 1) as draft:
        draft["x"][:] = 5
    assert store.get(draft.name).to_pydict() == {"x": [5]}


def test_stores_of_one_prefix_are_apart(shm_name: str) -> None:
    with sa.Store(shm_name) as one, sa.Store(f"{shm_name}-more") as other:
        one.put("a", np.ones(1))
        other.put("a", np.zeros(1))
        assert (one.names(), other.names()) == (["a"], ["a"])
        assert (one.get("a").tolist(), other.get("a").tolist()) == ([1.0], [0.0])
        one.clear()
        assert other.names() == ["a"]
        other.clear()


# --- replacing, renaming, deleting ------------------------------------------------------------------------------


def test_a_name_is_taken_once(store: sa.Store) -> None:
    store.put("a", np.zeros(2))
    with pytest.raises(sa.ObjectExists, match=r"'a' is taken in the store .*overwrite=True") as taken:
        store.put("a", np.ones(2))
    assert isinstance(taken.value, FileExistsError)
    assert store.get("a").tolist() == [0.0, 0.0]


def test_who_has_the_old_one_keeps_it(store: sa.Store) -> None:
    store.put("a", np.zeros(100_000))
    old = store.get("a")
    store.put("a", np.ones(3), overwrite=True)
    assert store.get("a").tolist() == [1.0, 1.0, 1.0]
    store.delete("a")
    assert old.shape == (100_000,)
    assert not old.any()


def test_an_object_is_not_taken_for_the_one_that_had_its_name_before(store: sa.Store) -> None:
    first, second = (sa.record_batch({"a": [number] * 3, "b": ["x", None, "z"]}) for number in (1, 2))
    store.put("a", first)
    for _ in range(4):
        assert store.get("a").to_pydict() == first.to_pydict()
    for replace in (lambda: None, lambda: store.delete("a")):
        for each in (second, first):
            replace()
            store.put("a", each, overwrite=True)
            for _ in range(2):
                assert store.get("a").to_pydict() == each.to_pydict()
    store.put("t", sa.table({"a": [5, 6]}))
    store.put("m", {"w": np.arange(4)})
    for _ in range(4):
        assert store.get("t").to_pydict() == {"a": [5, 6]}
        assert store.get("m")["w"].to_numpy().tolist() == [0, 1, 2, 3]
        assert store.info("m").kind == "bundle"


def test_rename(store: sa.Store) -> None:
    store.put("a", np.zeros(1000))
    store.put("b", np.ones(1000))
    held = store.get("a")
    with pytest.raises(sa.ObjectExists, match="'b' is taken"):
        store.rename("a", "b")
    assert store.names() == ["a", "b"]
    store.rename("a", "c")
    assert store.names() == ["b", "c"]
    store.rename("c", "b", overwrite=True)
    assert store.names() == ["b"]
    assert store.get("b").max() == 0
    assert store.info("b").pins == 1
    assert held.max() == 0
    with pytest.raises(sa.ObjectNotFound, match="no object 'a'"):
        store.rename("a", "d")


# --- drafts and writers -----------------------------------------------------------------------------------------


def test_create_and_fill(store: sa.Store) -> None:
    with store.new_draft("x", batch().schema, 3, bytes={"city": 8}) as draft:
        assert "x" not in store
        draft["id"][:] = BATCH["id"]
        draft["city"].offsets[:] = [0, 4, 4, 8]
        draft["city"].data[:] = np.frombuffer(b"OsloRome", "u1")
        draft.valid("city")[1] = False
    got = store.get("x")
    assert isinstance(got, sa.RecordBatch)
    assert got.to_pydict() == BATCH


def test_an_exception_discards(where: str) -> None:
    with sa.Store(where) as store:
        with pytest.raises(RuntimeError, match="no"), store.new_draft("x", batch().schema, 3, bytes={"city": 8}):
            raise RuntimeError("no")
        with pytest.raises(RuntimeError, match="no"), store.new_file("x", batch().schema):
            raise RuntimeError("no")
        with pytest.raises(sa.InvalidArgument, match="bytes for the columns of variable size"):
            store.new_draft("x", batch().schema, 3)
        assert store.names() == []
    assert leftovers(where) == []


def test_writer(store: sa.Store) -> None:
    with store.new_file("x", batch().schema) as writer:
        for _ in range(5):
            writer.write(batch())
            assert "x" not in store
    got = store.get("x")
    assert isinstance(got, sa.Table)
    assert (got.num_rows, len(got.batches)) == (15, 5)
    with pytest.raises(sa.ObjectExists):
        store.new_file("x", batch().schema)


def test_options(store: sa.Store) -> None:
    column = sa.record_batch({"x": np.zeros(100_000)})
    store.put("x", column, options=sa.ipc.IpcWriteOptions(compression="zstd"))
    assert store.info("x").nbytes < 20_000
    assert not store.get("x")["x"].to_numpy().any()


# --- info -------------------------------------------------------------------------------------------------------


def test_info(store: sa.Store) -> None:
    store.put("b", large_batch())
    store.put("t", np.zeros((2, 3), np.float32))
    found = store.info("b")
    assert (found.name, found.kind, found.num_rows, found.pins) == ("b", "record_batch", 3, 0)
    assert found.schema == large_batch().schema
    assert (found.expires_in, found.owner, found.orphaned) == (None, None, False)
    assert 0 <= found.idle <= found.age < 60
    with store.attach("b") as attached:
        assert found.nbytes == attached.size
    tensor = store.info("t").description
    assert (tensor.kind, tensor.shape, tensor.type) == ("ndarray", (2, 3), sa.float32())
    got = [store.get("b") for _ in range(3)]
    assert store.info("b").pins == 1  # one process
    del got[1:]
    assert store.info("b").pins == 1
    column = got.pop()["city"]
    gc.collect()
    assert store.info("b").pins == 1
    assert column.to_pylist() == BATCH["city"]
    del column
    assert store.info("b").pins == 0
    with pytest.raises(sa.ObjectNotFound):
        store.info("c")


def test_use_is_recorded_where_it_matters(where: str) -> None:
    with sa.Store(where, eviction="lru") as store:
        store.put("x", batch())
        wait_until(lambda: store.info("x").idle >= 0.05, "its idle time grows")
        before = store.info("x")
        assert before.idle >= 0.05
        assert store.info("x").idle >= before.idle
        with store.attach("x", use=False) as looked_at:
            assert looked_at.size == before.nbytes
            assert store.info("x").pins == 0
        with pytest.raises(sa.ObjectNotFound):
            store.attach("y", use=False)
        assert store.info("x").idle >= before.idle
        store.get("x")
        after = store.info("x")
        assert after.idle < before.idle
        assert after.age >= before.age


def test_stats(store: sa.Store) -> None:
    found = store.stats()
    assert (found.objects, found.nbytes, found.removed, found.pinned, found.pins) == (0, 0, 0, 0, {})
    store.put("x", np.zeros(1000))
    store.put("y", LARGE)
    got = store.get("x")
    blocks = {name: os.stat(store.info(name).path or "").st_blocks * 512 for name in store}
    assert {each.name: each.allocated for each in store.scan()} == blocks
    found = store.stats()
    assert (found.objects, found.nbytes, found.pinned) == (2, sum(blocks.values()), blocks["x"])
    assert found.pins == {os.getpid(): 1}
    assert 0 < found.free <= found.total
    assert found.catalog == os.stat(f"{store.path}/control").st_blocks * 512
    assert found.puts == 2
    store.put("z", np.arange(10))
    assert store.info("z").allocated == 512
    assert store.stats().nbytes == sum(blocks.values()) + 512
    del got


# --- whom to trust ----------------------------------------------------------------------------------------------


def test_a_store_tells_whether_it_is_there_and_whose_it_is(tmp_path: Path) -> None:
    for mode, private in ((0o600, True), (0o644, True), (0o666, False)):
        with sa.Store(tmp_path / oct(mode), mode=mode, accept_users=not private) as store:
            assert (store.exists, store.is_private) == (True, private)
            with sa.Store(store.path, accept_users=not private) as other:
                other.destroy()
            assert not store.exists


def test_modes(tmp_path: Path, shm_name: str) -> None:
    before = os.umask(0o777)
    try:
        for where in (tmp_path / "a", shm_name):
            with sa.Store(where) as store:
                store.put("x", LARGE)
                assert stat.S_IMODE(os.stat(store.info("x").path or "").st_mode) == 0o400
                store.put("x", LARGE, overwrite=True)
                assert stat.S_IMODE(os.stat(store.info("x").path or "").st_mode) == 0o400
                store.delete("x")
                for file in ("control", "pins", "commit"):
                    assert stat.S_IMODE(os.stat(f"{store.path}/{file}").st_mode) == 0o600
        assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o700
        with sa.Store(tmp_path / "b", mode=0o644) as store:
            store.put("x", LARGE)
            assert stat.S_IMODE(os.stat(store.info("x").path or "").st_mode) == 0o444
        assert stat.S_IMODE(os.stat(tmp_path / "b").st_mode) & 0o777 == 0o755
    finally:
        os.umask(before)


def test_directories_that_others_may_write_to_are_refused(tmp_path: Path) -> None:
    for mode in (0o777, 0o1777, 0o702):
        (tmp_path / "open").mkdir(exist_ok=True)
        (tmp_path / "open").chmod(mode)
        with pytest.raises(sa.StorageError, match=f"its mode is {mode:04o}.*accept_users=USER"):
            sa.Store(tmp_path / "open")
    with sa.Store(tmp_path / "open", accept_users=True) as store:
        store.put("x", batch())
    (tmp_path / "open").chmod(0o770)
    with pytest.raises(sa.StorageError, match=r"its mode is 0770, so its group may write to it.*accept_users=USER"):
        sa.Store(tmp_path / "open")
    (tmp_path / "open").chmod(0o700)
    with sa.Store(tmp_path / "open") as store:
        assert store.get("x").to_pydict() == BATCH
    with sa.Store(tmp_path / "group", mode=0o660) as store:
        store.put("x", batch())
        assert stat.S_IMODE(os.stat(tmp_path / "group").st_mode) == 0o2770
    with sa.Store(tmp_path / "group") as store:
        assert store.get("x").to_pydict() == BATCH


# --- many objects -----------------------------------------------------------------------------------------------


def test_by_name_nothing_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations by name work where listing a directory fails."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("listed")

    with sa.Store(tmp_path / "store", capacity=1 << 20) as store:
        store.put("x", batch())
        for user in ("snapshot", "room", "info"):
            monkeypatch.setattr(f"shmarrow.store.{user}.snapshot", refuse)
        monkeypatch.setattr(os, "listdir", refuse)
        monkeypatch.setattr(os, "scandir", refuse)
        store.put("y", batch())
        store.put("y", batch(), overwrite=True)
        assert store.get("y", timeout=1).to_pydict() == BATCH
        assert "y" in store
        store.info("y")
        store.rename("y", "z")
        assert store.take("z").to_pydict() == BATCH
        store.delete("x")
        with pytest.raises(AssertionError, match="listed"):
            store.names()


def test_file_size_of_a_tensor_is_that_of_its_message(store: sa.Store) -> None:
    store.put("x", np.zeros(8))
    with store.attach("x") as found:
        marker, metadata = struct.unpack_from("<iI", found.data)
        assert (marker, found.size) == (-1, 8 + metadata + 64)


# --- other files ------------------------------------------------------------------------------------------------


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, secret: path.symlink_to(secret),
    "folder": lambda path, secret: path.mkdir(),
    "empty": lambda path, secret: path.touch(),
    "pipe": lambda path, secret: os.mkfifo(path),
    "sparse": lambda path, secret: sparse(path),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_other_files_are_no_objects(where: str, tmp_path: Path, plant: str) -> None:
    """Only what the catalog has is listed, counted, opened or removed, and no link is followed."""
    secret = tmp_path / "secret"
    with sa.Store(where, capacity=1 << 20) as store:
        store.put("x", LARGE)
        file = Path(store.info("x").path or "")
        secret.write_bytes(content := file.read_bytes())
        others = [Path(store.path, name) for name in (plant, f".{plant}", "f" * 16)]
        for path in others:
            PLANTS[plant](path, secret)
        assert store.names() == ["x"]
        assert (store.stats().objects, store.stats().nbytes) == (1, store.info("x").allocated)
        for path in others:
            for use in (store.get, store.delete):
                with pytest.raises(sa.ObjectNotFound, match=f"no object {path.name!r}"):
                    use(path.name)
            store.put(path.name, np.arange(3))
            assert store.get(path.name).tolist() == [0, 1, 2]
            store.delete(path.name)
        assert store.collect() == []
        assert all(map(os.path.lexists, others))
        for path in others:
            path.rmdir() if plant == "folder" else path.unlink()
        file.unlink()
        PLANTS[plant](file, secret)  # in the place of the object
        with pytest.raises(sa.ShmarrowError, match=r"attach to 'x'|'x' .* is damaged: .*; delete it"):
            store.get("x")
        if plant == "folder":  # which nobody can unlink
            file.rmdir()
        store.put("x", batch(), overwrite=True)
        assert store.get("x").to_pydict() == BATCH
        assert not os.path.lexists(file)
        assert secret.read_bytes() == content


def test_a_source_that_is_truncated_while_it_is_copied(tmp_path: Path) -> None:
    """The error is about the source, not about the store."""
    with sa.ipc.new_file(tmp_path / "source", sa.schema([("x", sa.int64())])) as writer:
        writer.write(sa.record_batch({"x": np.arange(6 << 20)}))
    (tmp_path / "source").chmod(0o600)
    with sa.Store(tmp_path / "store") as store:

        def truncate(done: int) -> None:
            os.truncate(tmp_path / "source", 4096)

        with pytest.raises(sa.StorageError, match=r"source'.* was truncated from \d+ bytes in the meantime"):
            store.put_file("copy", tmp_path / "source", progress=truncate)
        assert store.names() == []
