"""Handles: what lies in named memory goes to other processes by its name, and comes back equal, over the same memory.

Invariants: real processes and pools; the memory of what arrives is looked up among the mappings of its process; a
handle is data from outside, so every number in it is replaced by wrong ones.
"""

from __future__ import annotations

import fcntl
import gc
import io
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import forms
import lab
import numpy as np
import pytest
from cases import table as cases
from handle_workers import Removes, hand_back, look, look_opened, made_and_removed, mapped, put_into, rows_of_first
from measures import mappings
from processes import ended, forked, killed_at_end, python

import shmarrow as sa
from shmarrow.interchange.handles.objects import INLINE_BYTES, ObjectRef
from shmarrow.ipc import IpcWriteOptions

ROWS = 1000
WORDS = [f"word {i}" for i in range(ROWS)]
COLUMNS = {
    "i": np.arange(ROWS),
    "s": WORDS,
    "d": sa.array(["a", None] * (ROWS // 2), sa.dictionary("int8", "string")),
    "l": [[i, None] for i in range(ROWS)],
}
BATCH = sa.record_batch(COLUMNS)
VALUES = BATCH.to_pydict()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of three batches, a compressed one, a stream, tensors and a bundle."""
    at = tmp_path_factory.mktemp("handles")
    for name, make, options in (
        ("file", sa.ipc.new_file, None),
        ("zstd", sa.ipc.new_file, IpcWriteOptions(compression="zstd")),
        ("stream", sa.ipc.new_stream, None),
    ):
        with make(at / name, BATCH.schema, options) as writer:
            for _ in range(3):
                writer.write(BATCH)
    dense = np.arange(600.0).reshape(20, 30)
    holes = np.where(np.arange(600).reshape(20, 30) % 7, 0, np.arange(600).reshape(20, 30))
    sa.save_tensors(
        {
            "dense": dense,
            "fortran": sa.Tensor.from_numpy(np.asfortranarray(dense), ["row", "column"], metadata={"a": "b"}),
            "coo": sa.SparseCOOTensor.from_dense(holes),
            "csr": sa.SparseCSRMatrix.from_dense(holes),
            "csc": sa.SparseCSCMatrix.from_dense(holes),
            "csf": sa.SparseCSFTensor.from_dense(holes),
        },
        at / "bundle",
    )
    return at


def file(place: Path, name: str = "file") -> sa.Table:
    return sa.ipc.open_file(place / name).read_all()


def column(place: Path, name: str) -> Any:
    return file(place).batches[0].column(name)


def tensor(place: Path, name: str) -> Any:
    return sa.load_tensors(place / "bundle")[name]


KINDS: dict[str, Callable[[Path], Any]] = {
    "table": file,
    "table of a compressed file": lambda at: file(at, "zstd"),
    "table of a stream": lambda at: sa.ipc.open_stream(at / "stream").read_all(),
    "table without batches": lambda at: sa.Table(file(at).schema),
    "slice across batches": lambda at: file(at).slice(ROWS - 5, ROWS + 10),
    "some columns": lambda at: file(at).select(["l", "i"]),
    "some columns of a slice": lambda at: file(at).slice(7, 5).select(["d", "s"]).slice(1, 2),
    "an opened projection": lambda at: sa.ipc.open_file(at / "file", included_fields=["s"]).read_all(),
    "other names": lambda at: file(at).rename_columns(list("wxyz")),
    "other metadata": lambda at: file(at).replace_schema_metadata({"k": "v"}),
    "batch": lambda at: file(at).batches[1],
    "last batch of a stream": lambda at: sa.ipc.open_stream(at / "stream").get_batch(2),
    "batch without rows": lambda at: file(at).batches[0].slice(0, 0),
    "batch with a column of another": lambda at: file(at).batches[0].append_column("n", file(at).batches[2]["i"]),
    "batch of columns": lambda at: sa.record_batch({"x": column(at, "i"), "y": column(at, "s")}),
    "integers": lambda at: column(at, "i"),
    "text": lambda at: column(at, "s").slice(100),
    "dictionary": lambda at: column(at, "d").slice(1, 9),
    "lists": lambda at: column(at, "l").slice(1),
    "no values": lambda at: column(at, "s").slice(0, 0),
    "chunks": lambda at: file(at).column("s").slice(ROWS - 1, 3),
    "tensor": lambda at: tensor(at, "dense"),
    "tensor with names": lambda at: tensor(at, "fortran"),
    "part of a tensor": lambda at: tensor(at, "dense")[2:9:3, ::5],
    "coo": lambda at: tensor(at, "coo"),
    "csr": lambda at: tensor(at, "csr"),
    "csc": lambda at: tensor(at, "csc"),
    "csf": lambda at: tensor(at, "csf"),
}


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, sa.SparseTensor):
        return type(found) is type(expected) and bool(np.array_equal(found.to_dense(), expected.to_dense()))
    if isinstance(expected, sa.Tensor) and found.metadata != expected.metadata:
        return False
    if isinstance(expected, (sa.Table, sa.RecordBatch)):
        return bool(found.equals(expected, check_metadata=True))
    return type(found) is type(expected) and bool(found.equals(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_back_is_equal_and_over_the_same_file(kind: str, place: Path) -> None:
    thing = KINDS[kind](place)
    handle = pickle.loads(pickle.dumps(sa.handle(thing)))
    assert handle == sa.handle(thing)
    assert hash(handle) == hash(sa.handle(thing))
    opened = handle.open()
    assert same(opened, thing)
    if not isinstance(thing, sa.SparseTensor) and "compressed" not in kind:
        expected = {str(place / name) for name in ("file", "stream", "bundle")}
        assert mapped(opened) <= expected
        assert len(mapped(opened)) == (kind != "table without batches")


def test_every_type(shm_name: str) -> None:
    """An array of every case, each with its buffers in shared memory, opens as what it was."""
    # Arrow messages cannot hold dictionaries of dictionaries.
    batches = forms.together([case for case in cases.CASES if "dictionary-dictionary" not in case.name])
    count = 0
    for number, batch in enumerate(batches):
        name = f"{shm_name}-{number}"
        try:
            with sa.ipc.new_file(name, batch.schema) as writer:
                writer.write(batch)
        except sa.InvalidData:  # a case that breaks a rule on purpose
            continue
        read = sa.ipc.open_file(name).get_batch(0)
        for found, expected in zip(sa.handle(read).open().columns, read.columns, strict=True):
            assert repr(found.to_pylist()) == repr(expected.to_pylist())
        for expected in read.columns:
            try:
                handle = sa.handle(expected)
            except sa.InvalidArgument:  # of an extension type that is not registered
                continue
            found = handle.open()
            assert found.type == expected.type
            assert repr(found.to_pylist()) == repr(expected.to_pylist())
            count += 1
    assert count > 300


def test_size_does_not_depend_on_the_data(tmp_path: Path) -> None:
    """A batch of 4,000 columns of a file takes no more than one of a single column."""
    sizes = []
    for columns in (1, 4000):
        batch = sa.record_batch({f"c{i}": np.arange(10) for i in range(columns)})
        with sa.ipc.new_file(tmp_path / f"{columns}", batch.schema) as writer:
            for _ in range(20):
                writer.write(batch)
        table = sa.ipc.open_file(tmp_path / f"{columns}").read_all()
        sizes += [len(pickle.dumps(sa.handle(table))), len(pickle.dumps(sa.handle(table.batches[7])))]
        assert sa.handle(table.batches[7]).open().column(columns - 1).to_pylist() == list(range(10))
    assert max(sizes) - min(sizes) <= 16
    assert max(sizes) < 600


def test_bundle(place: Path) -> None:
    bundle = sa.load_tensors(place / "bundle")
    opened = pickle.loads(ForkingPickler.dumps(bundle))
    assert list(opened) == list(bundle)
    assert opened["dense"].to_numpy().tolist() == np.arange(600.0).reshape(20, 30).tolist()


# --- what cannot have one ---------------------------------------------------------------------------------------


def test_memory_of_this_process_is_refused(place: Path) -> None:
    """What is small travels by value."""
    large = np.zeros(INLINE_BYTES // 8 + 1)
    sa.save_tensors({"w": large}, place / "large")
    bundle = sa.load_tensors((place / "large").read_bytes())
    for thing in (sa.array(large), sa.Tensor.from_numpy(large), bundle):
        with pytest.raises(sa.InvalidArgument, match="put the object in a store"):
            sa.handle(thing)
    opened = pickle.loads(pickle.dumps(sa.handle(sa.load_tensors((place / "bundle").read_bytes())))).open()
    assert opened["dense"].to_numpy().shape == (20, 30)
    for small in (sa.array([1, 2, 3]), sa.record_batch({"x": [1, 2, 3]}), sa.Tensor.from_numpy(np.ones(3))):
        assert pickle.loads(pickle.dumps(sa.handle(small))).open() == small
    batch = file(place).batches[0]
    with pytest.raises(sa.InvalidArgument, match="65536"):
        sa.handle(batch.append_column("x", np.zeros((ROWS, 9)).tolist()))
    mixed = batch.append_column("x", np.arange(ROWS, dtype=np.int16))
    assert sa.handle(mixed).open().column("x").to_pylist() == list(range(ROWS))
    for thing in (3, np.arange(3), place, BATCH.schema):
        with pytest.raises(sa.InvalidType, match="expected a batch, a table, an array, a tensor or a bundle, found"):
            sa.handle(thing)


class Plain(sa.ExtensionType):
    """A type that nobody has registered."""

    extension_name = "test.handles.plain"

    def serialize(self) -> bytes:
        return b""

    @classmethod
    def deserialize(cls, storage_type: sa.DataType, serialized: bytes) -> Plain:
        return cls(storage_type)


def test_types_that_readers_do_not_know_are_refused(place: Path) -> None:
    values = sa.ExtensionArray.from_storage(Plain(sa.int64()), column(place, "i"))
    with pytest.raises(sa.InvalidArgument, match="register"):
        sa.handle(values)
    assert pickle.loads(ForkingPickler.dumps(values)).type == values.type
    sa.register_extension_type(Plain)
    try:
        assert sa.handle(values).open().type == values.type
    finally:
        sa.unregister_extension_type(Plain.extension_name)


# --- what is gone, or elsewhere ---------------------------------------------------------------------------------


def written(name: Any, first: int = 0) -> sa.RecordBatch:
    batch = sa.record_batch({"x": np.arange(first, first + 10)})
    with sa.ipc.new_file(name, batch.schema, overwrite=True) as writer:
        writer.write(batch)
    return sa.ipc.open_file(name).get_batch(0)


def test_an_object_that_is_gone_or_replaced(shm_name: str) -> None:
    batch = written(shm_name)
    handle = sa.handle(batch)
    written(shm_name, 100)
    opened = handle.open()
    assert opened["x"].to_pylist() == list(range(10)), "replaced, but mapped here all the time"
    del batch, opened
    gc.collect()
    with pytest.raises(sa.ObjectNotFound, match=f"{shm_name}.*replaced"):
        handle.open()
    replaced = sa.ipc.open_file(shm_name).get_batch(0)
    sa.segment.delete(shm_name)
    with pytest.raises(sa.ObjectNotFound, match=f"{shm_name}.*removed"):
        handle.open()
    with pytest.raises(sa.ObjectNotFound, match=f"cannot make a handle: {shm_name!r} was removed"):
        sa.handle(replaced)
    copied = ForkingPickler.dumps(replaced)
    assert pickle.loads(copied)["x"].to_pylist() == list(range(100, 110)), "copied, as its name is gone"


def test_another_host(shm_name: str, tmp_path: Path) -> None:
    batch = written(shm_name)
    there = sa.handle(batch).replace(boot="another-boot", host="elsewhere")
    with pytest.raises(sa.StorageError, match=r"memory of host 'elsewhere'.*this is host"):
        there.open()
    path = tmp_path / "shared.arrow"
    on_disk = sa.handle(written(path)).replace(boot="another-boot", host="elsewhere")
    assert on_disk.open()["x"].to_pylist() == list(range(10)), "a file that both hosts have, the same there and here"
    path.unlink()
    gc.collect()
    with pytest.raises(sa.ObjectNotFound, match="made on host 'elsewhere'"):
        on_disk.open()


def test_mapped_once_and_as_long_as_it_is_used(place: Path) -> None:
    """Nothing here waits for the collector of garbage."""
    path = place / "counted"
    batch = written(path)
    handle = sa.handle(batch)
    del batch
    assert not mappings(path)
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: handle.open(), range(400)))
    assert [found["x"].to_pylist() for found in opened] == [list(range(10))] * 400
    assert len(mappings(path)) == 1
    opened.clear()
    assert not mappings(path)


# --- damaged handles --------------------------------------------------------------------------------------------

WRONG: tuple[Any, ...] = (-1, -3, 1, 7, 1 << 31, (1 << 62) + 5, (1 << 63) - 1, 1 << 64, None, "x", b"", 0.5, (), {})


def variants(value: Any) -> Iterator[Any]:
    """A nested value with one part of it replaced."""
    if isinstance(value, tuple):
        for i, part in enumerate(value):
            for other in variants(part):
                parts = [*value[:i], other, *value[i + 1 :]]
                yield type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        yield from WRONG[-4:]
        if not hasattr(value, "_fields"):
            yield value[:-1]
            yield (*value, *value[-1:])
        return
    yield from WRONG
    if isinstance(value, bytes) and len(value) % 8 == 0:
        numbers = np.frombuffer(value, "<i8")
        for i in range(min(len(numbers), 24)):
            for wrong in (-1, -2, -3, 2, 1 << 40, (1 << 63) - 1):
                changed = numbers.copy()
                changed[i] = wrong
                yield changed.tobytes()
    if isinstance(value, bytes):
        yield value[: len(value) // 2]


@pytest.mark.parametrize(
    "kind", ["table", "batch with a column of another", "dictionary", "lists", "tensor", "coo", "csf"]
)
def test_damaged_handles(kind: str, place: Path) -> None:
    """Whatever stands in a handle: it opens, or one of our errors says that it cannot."""
    handle = sa.handle(KINDS[kind](place))
    tried = refused = 0
    for name in ("kind", "boot", "refs", "content", "inline"):
        for value in variants(getattr(handle, name)):
            try:
                damaged = handle.replace(**{name: value})
            except sa.InvalidType:  # nothing that has a hash
                continue
            tried += 1
            try:
                opened = damaged.open()
                opened.validate()
                repr(opened)
            except sa.ShmarrowError:
                refused += 1
    assert tried > 100
    assert refused > tried // 2


def test_places_of_others(place: Path, tmp_path: Path) -> None:
    """A name that leads to another file, a folder, a pipe or out of the names' rules is refused."""
    handle = sa.handle(file(place))
    known = handle.refs[0]
    os.mkfifo(tmp_path / "pipe")
    paths = (tmp_path, tmp_path / "pipe", place / "zstd", "/proc/self/mem")
    for name in ("file", "shm:a/b", "shm:", "/\0", *map(str, paths)):
        with pytest.raises(sa.ShmarrowError):
            handle.replace(refs=(ObjectRef(name, *known[1:]),)).open()


# --- workers ----------------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_forked_worker_pins_what_it_opens(tmp_path: Path) -> None:
    """Its parent may have let the object go by then, whose mapping the worker has inherited."""
    with sa.Store(tmp_path / "store", eviction="lru") as store:
        store.put("a", sa.array(np.arange(10_000)))
        value = store.get("a")
        handle = sa.handle(value)
        opened, dropped = os.pipe(), os.pipe()

        def work() -> None:
            mine = handle.open()
            os.write(opened[1], b"x")
            os.read(dropped[0], 1)
            assert mine.to_numpy().sum() == sum(range(10_000))

        child = forked(work)
        with killed_at_end([child]):
            os.read(opened[0], 1)
            del value
            assert store.stats().pins == {child: 1}
            with pytest.raises(sa.StoreFull):
                store.evict(10**9)
            os.write(dropped[1], b"x")
            assert ended(child) == 0
        assert store.evict(1) == ["a"]


@pytest.mark.processes
def test_a_handle_from_the_store_of_another_user(tmp_path: Path) -> None:
    """Its receiver accepts that user's store as its maker does: it pins the object, and reads what it shares."""
    lab.needs_root("to give a directory away")
    theirs = """
    import shmarrow as sa, numpy as np
    with sa.Store(where, mode=0o644) as store:
        rows = store.get(store.put("rows", sa.record_batch({"x": np.arange(10_000)})))
        store.put("shared", rows, reuse=True)
    result = None
    """
    with lab.shared_folder(0o777) as folder:
        lab.as_user(theirs, where=f"{folder}/store")
        with sa.Store(f"{folder}/store", accept_users=lab.NOBODY) as store:
            for name in ("rows", "shared"):
                handle = sa.handle(store.get(name))
                code = """
                import pickle
                rows = pickle.loads(handle).open()
                say(rows.num_rows)
                hear()
                result = None
                """
                with lab.child(code, handle=pickle.dumps(handle)) as child:
                    assert child.hear() == 10_000
                    assert store.info(name).pins >= 1
                    assert child.pid in store.stats().pins
                    child.say(None)
                    child.result()


# --- pickles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickle_is_a_copy_of_what_is_shown(kind: str, place: Path) -> None:
    """``pickle.dumps`` gives a copy that depends on no file; with protocol 5 its buffers may be out of band."""
    thing = KINDS[kind](place)
    whole = pickle.dumps(thing, 4)
    assert same(pickle.loads(whole), thing)
    assert same(pickle.loads(pickle.dumps(thing, 5)), thing)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(thing, 5, buffer_callback=buffers.append)
    raw = [bytes(buffer) for buffer in buffers]
    copied = pickle.loads(data, buffers=raw)
    assert same(copied, thing)
    assert "" in mapped(copied) or not mapped(copied)
    assert len(data) + sum(map(len, raw)) <= len(whole) + 1000


def test_buffers_out_of_band_are_neither_copied_nor_writable(place: Path) -> None:
    values = column(place, "i").slice(100, 50)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(values, 5, buffer_callback=buffers.append)
    assert [len(buffer.raw()) for buffer in buffers] == [400]
    kept = bytearray(buffers[0].raw())
    copied = pickle.loads(data, buffers=[kept])
    assert copied.to_numpy().flags.writeable is False
    kept[:8] = (77).to_bytes(8, "little")
    assert copied.to_pylist()[:2] == [77, 101]


@pytest.mark.parametrize("layout", ["list_view", "large_list_view", "run_end_encoded", "list", "struct"])
def test_no_buffer_of_a_whole_array_is_copied(layout: str) -> None:
    lists, rows = [[1, 2], None, [], [3]], [{"x": 1}, None, {"x": 2}]
    values = {
        "list_view": lambda: sa.array(lists, sa.list_view(sa.int16())),
        "large_list_view": lambda: sa.array(lists, sa.large_list_view(sa.int16())),
        "run_end_encoded": lambda: sa.RunEndEncodedArray.from_arrays([2, 5], [1.5, None]),
        "list": lambda: sa.array(lists, sa.list_(sa.int16())),
        "struct": lambda: sa.array(rows, sa.struct([("x", sa.int16())])),
    }[layout]()
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(values, 5, buffer_callback=buffers.append)
    assert same(pickle.loads(data, buffers=buffers), values)
    own = [memory for memory in values.buffers() if memory is not None]
    for buffer in buffers:
        assert any(np.shares_memory(np.frombuffer(buffer.raw(), np.uint8), memory) for memory in own)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_sparse_tensors_stay_read_only(protocol: int, place: Path) -> None:
    copied = pickle.loads(pickle.dumps(tensor(place, "csf"), protocol))
    parts = [copied.storage, *copied.indptr, *copied.indices]
    assert [part.flags.writeable for part in parts] == [False] * len(parts)


# --- between processes ------------------------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools(method: str, place: Path) -> None:
    """Arguments and results of a pool, of queues and of processes are handles; what is not in a file is copied."""
    path = str(place / "file")
    table = file(place)
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        sent = [table, table.batches[1].slice(3, 4), table.column("i"), column(place, "s").slice(2), BATCH]
        found = pool.map(look, sent)
        pids = {pid for pid, *_ in found}
        assert os.getpid() not in pids
        assert [rest for _, *rest in found] == [
            [{path}, 3 * ROWS, 0],
            [{path}, 4, 3],
            [{path}, 3 * ROWS, 0],
            [{path}, ROWS - 2, "word 2"],
            [{""}, ROWS, 0],
        ]
        returned = pool.apply(hand_back, (table.batches[2],))
        assert returned.equals(BATCH)
        assert mapped(returned) == {path}
        returned = pool.apply(hand_back, (BATCH,))
        assert returned.equals(BATCH)
    if method != "forkserver":
        queue = context.SimpleQueue()
        process = context.Process(target=put_into, args=(queue, table.column("s").slice(1, 2)))
        process.start()
        received = queue.get()
        process.join(30)
        assert process.exitcode == 0
        assert (received.to_pylist(), mapped(received)) == (["word 1", "word 2"], {path})


@pytest.mark.processes
def test_executors_and_pipes(place: Path) -> None:
    path, table = str(place / "file"), file(place)
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
        assert executor.submit(look, table).result(60)[1:] == ({path}, 3 * ROWS, 0)
        assert mapped(executor.submit(hand_back, table).result(60)) == {path}
    ours, theirs = multiprocessing.Pipe()
    queue: Any = multiprocessing.Queue()
    ours.send(table.batches[0])
    queue.put(table.batches[0])
    assert mapped(theirs.recv()) == {path}
    assert mapped(queue.get(timeout=30)) == {path}
    queue.close()
    queue.join_thread()


@pytest.mark.processes
def test_pools_outlive_objects_that_are_gone(shm_name: str) -> None:
    """An object that is removed in transit is an error of its own task or result; pool and executor go on."""
    store = sa.Store(shm_name)

    def argument() -> tuple[Any, Removes]:
        store.put("argument", sa.record_batch({"x": range(2000)}))
        return store.get("argument"), Removes(shm_name, "argument")

    fork = multiprocessing.get_context("fork")
    with fork.Pool(1) as pool:
        with pytest.raises(sa.ObjectNotFound, match=r"'argument', .* was removed after the handle was made"):
            pool.apply_async(rows_of_first, (argument(),)).get(30)
        gone, _ = pool.apply_async(made_and_removed, (shm_name,)).get(30)
        with pytest.raises(sa.ObjectNotFound, match=r"'result', .* was removed after the handle was made"):
            _ = gone.num_rows
        batch, removes = argument()
        # A bound method looks up its name when it is unpickled.
        with pytest.raises(sa.ObjectNotFound, match="was removed"):
            pool.apply_async(batch.slice, (1,), {"length": removes}).get(30)
        assert pool.apply_async(os.getpid).get(30) != os.getpid()
    with ProcessPoolExecutor(1, fork) as executor:
        with pytest.raises(sa.ObjectNotFound, match="argument"):
            executor.submit(rows_of_first, argument()).result(30)
        assert "handle: 'result', " in repr(executor.submit(made_and_removed, shm_name).result(30)[0])
        assert executor.submit(os.getpid).result(30) != os.getpid()


def test_what_is_gone_refuses_every_use(tmp_path: Path) -> None:
    """All that a program does with it raises the error of its handle, as often as it is tried."""
    import pyarrow as pa

    path = tmp_path / "gone"
    batch = written(path)
    values = batch["x"]
    sent = {
        "batch": batch,
        "array": values,
        "table": sa.Table(batch.schema, [batch]),
        "chunks": sa.chunked_array([values]),
        "tensor": sa.Tensor.from_numpy(values.to_numpy()),
    }
    pickles = {name: bytes(ForkingPickler.dumps(thing)) for name, thing in sent.items()}
    del batch, values, sent
    gc.collect()
    path.unlink()
    found = {name: pickle.loads(data) for name, data in pickles.items()}
    found["sent on"] = pickle.loads(pickle.dumps(found["batch"]))
    uses: list[Callable[[Any], Any]] = [
        len,
        list,
        bool,
        np.asarray,
        pa.table,
        lambda gone: gone[0],
        lambda gone: gone == 1,
        lambda gone: gone.nbytes,
        lambda gone: gone.to_numpy(),
        lambda gone: sa.ipc.new_stream(io.BytesIO(), sa.schema([("x", "int64")])).write(gone),
    ]
    for name, gone in found.items():
        assert "gone' was removed" in repr(gone), name
        for use in uses * 2:
            with pytest.raises(sa.ObjectNotFound, match="gone' was removed after the handle was made"):
                use(gone)
        for use in (sa.table, sa.handle, sa.Tensor.from_numpy):
            with pytest.raises(sa.ShmarrowError):
                use(gone)


@pytest.mark.processes
def test_a_worker_that_is_killed_leaves_nothing(shm_name: str) -> None:
    """A worker that has an object mapped and dies gives it free, and its sender goes on."""
    batch = written(shm_name)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        received = theirs.recv()
        theirs.send(look(received)[1])
        signal.pause()

    process = context.Process(target=child)
    process.start()
    ours.send(batch)
    assert ours.recv() == {f"/dev/shm/{shm_name.removeprefix('shm:')}"}
    process.kill()
    process.join(30)
    assert batch["x"].to_pylist() == list(range(10))
    del batch
    gc.collect()
    with open(f"/dev/shm/{shm_name.removeprefix('shm:')}", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it attached


@pytest.mark.processes
def test_handles_by_hand_serve_other_schedulers(place: Path) -> None:
    """loky and the workers of distributed get handles as they are, and map what those are of."""
    joblib = pytest.importorskip("joblib")
    distributed = pytest.importorskip("distributed")
    path, table = str(place / "file"), file(place)
    handle = sa.handle(table)
    results = {"loky": joblib.Parallel(2)([joblib.delayed(look_opened)(handle)] * 2)}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        results["scattered"] = [client.submit(look_opened, client.scatter(handle)).result(60)]
    for way, found in results.items():
        for worker, paths, length, first in found:
            assert (worker != os.getpid(), paths, length, first) == (True, {path}, 3 * ROWS, 0), way


@pytest.mark.processes
def test_reducers_meet_modules_that_are_imported_later(place: Path) -> None:
    """Neither ``import shmarrow`` nor a handle imports multiprocessing; its pickler knows of handles all the same."""
    code = f"""
import sys, pickle
import shmarrow as sa
table = sa.ipc.open_file({str(place / "file")!r}).read_all()
sa.handle(table).open()
assert "multiprocessing" not in sys.modules
from multiprocessing.reduction import ForkingPickler
import multiprocessing.reduction as module
assert module.__spec__.loader is module.__loader__ and module.__loader__.get_source(module.__name__)
assert "exec_module" not in vars(module.__loader__)
assert len(ForkingPickler.dumps(table)) < 1000
class Mine(sa.ExtensionArray): pass
views = sa.BinaryViewArray
assert {{views, Mine, sa.SparseCOOTensor}} <= set(ForkingPickler._extra_reducers)
print("done")
"""
    assert python(code) == "done\n"


def test_handles_of_what_a_store_returns(where: str) -> None:
    """Handles keep to a store's rules: what they open is pinned, and goes when it is dropped."""
    store = sa.Store(where)
    store.put("batch", BATCH)
    store.put("tensor", np.arange(600.0).reshape(20, 30))
    handle = sa.handle(store.get("batch"))
    sent = io.BytesIO(pickle.dumps(handle))
    gc.collect()
    opened = pickle.load(sent).open()
    store.get("batch")  # notes that it was used, which changes nothing
    assert opened.to_pydict() == VALUES
    assert sa.handle(opened).open().to_pydict() == VALUES
    store.delete("batch")
    assert opened.to_pydict() == VALUES
    del opened
    gc.collect()
    with pytest.raises(sa.ObjectNotFound):
        handle.open()
    store.delete("tensor")


def test_forged_numbers_are_damage(tmp_path: Path) -> None:
    """Numbers that no handle has are refused, also where they would not matter."""
    path = tmp_path / "x.arrow"
    batch = sa.record_batch({"x": range(10), "s": ["text"] * 10})
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
    found = sa.handle(sa.ipc.open_file(path).get_batch(0))
    (piece,) = found.content.pieces
    changes: list[dict[str, Any]] = [{"offset": 2**70}, {"offset": -5}, {"length": -2}, {"first": -1}, {"number": -1}]
    changes += [{"columns": ("x",)}, {"offset": 3, "length": -1}]
    forged = [found.replace(content=found.content._replace(pieces=(piece._replace(**each),))) for each in changes]
    packed = sa.handle(sa.ipc.open_file(path).get_batch(0).column(0))
    (part,) = packed.content.pieces
    numbers = np.frombuffer(part.buffers, "<i8").reshape(-1, 2).copy()
    assert numbers[0].tolist() == [-1, 0]
    numbers[0] = -1, 1 << 40
    pieces = (part._replace(buffers=numbers.tobytes()),)
    forged.append(packed.replace(content=packed.content._replace(pieces=pieces)))
    with sa.Store(f"shm:shmarrow-forged-{os.getpid()}") as store:
        store.put("t", sa.Tensor.from_numpy(np.zeros(800)))
        dense = sa.handle(store.get("t"))
        storage = dense.content.storage
        forged += [
            dense.replace(content=dense.content._replace(form=None, shape=(2**70,))),
            dense.replace(content=dense.content._replace(storage=storage._replace(shape=(2**50,), strides=(0,)))),
        ]
        for each in forged:
            with pytest.raises(sa.InvalidData, match="a damaged handle"):
                each.open()
        assert dense.open().to_numpy().tolist() == [0.0] * 800
        store.destroy()
    assert found.open().equals(batch)
