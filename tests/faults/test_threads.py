"""Objects that threads share: eight of them use one reader, one store or one schema, and every value is right.

Invariants: real threads that switch as often as the interpreter lets them, and values that follow from what was
written, never from what another thread read. ``SHMARROW_THREADS_SECONDS`` makes every test run that long.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import file_of, message_of, stream_of

import shmarrow as sa
from shmarrow import segment

THREADS = 8
SECONDS = float(os.environ.get("SHMARROW_THREADS_SECONDS", "0.3"))
ROWS = 500
BATCHES = 6


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[int], None], seconds: float = SECONDS, once: bool = False) -> None:
    """Let eight threads call the works in turn, all from the same moment on, until the time is over or one fails."""
    start = threading.Barrier(THREADS)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        work = works[number % len(works)]
        start.wait(10)
        deadline = time.monotonic() + seconds
        try:
            while not failures:
                work(number)
                if once or time.monotonic() > deadline:
                    return
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def batch(number: int) -> sa.RecordBatch:
    """A batch of columns of several layouts, each value of which follows from its number."""
    values = np.arange(ROWS) + 1000 * number
    words = [None if i % 7 == 3 else f"{number}-{i % 11}" for i in range(ROWS)]
    return sa.record_batch(
        {
            "i": values,
            "s": sa.array(words, sa.string()),
            "d": sa.array([f"w{i % 3}" for i in range(ROWS)], sa.dictionary("int8", "string")),
            "l": sa.array([[i, number] for i in range(ROWS)], sa.list_(sa.int32())),
            "f": sa.array(values / 4),
        }
    )


BATCH = [batch(number) for number in range(BATCHES)]
VALUES = [one.to_pydict() for one in BATCH]
NAMES = list(VALUES[0])


def written(compression: Any = None, stream: bool = False) -> bytes:
    return (stream_of if stream else file_of)(*BATCH, compression=compression)


ROUTES: dict[str, Callable[[Path, str, bytes], Any]] = {
    "path": lambda path, name, data: sa.ipc.open_file(path),
    "path, read": lambda path, name, data: sa.ipc.open_file(path, memory_map=False),
    "shared memory": lambda path, name, data: sa.ipc.open_file(name),
    "segment": lambda path, name, data: sa.ipc.open_file(segment.attach(path)),
    "buffer": lambda path, name, data: sa.ipc.open_file(data),
    "file object": lambda path, name, data: sa.ipc.open_file(path.open("rb")),
    "projected": lambda path, name, data: sa.ipc.open_file(path, included_fields=NAMES),
}


def saved(path: Path, name: str, data: bytes) -> None:
    path.write_bytes(data)
    with segment.create(name) as writer:
        writer.write([data])


# --- readers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("route", ROUTES)
def test_one_file_reader(route: str, compression: Any, tmp_path: Path, shm_name: str) -> None:
    """Any thread has any column of any batch, and the schema, at any time."""
    data = written(compression)
    saved(tmp_path / "f.arrow", shm_name, data)

    def check(number: int) -> None:
        with ROUTES[route](tmp_path / "f.arrow", shm_name, data) as reader:
            together(lambda number: read_one(reader, number + int(time.monotonic_ns())), once=False, seconds=0.05)

    def read_one(reader: Any, chance: int) -> None:
        which, column = chance % BATCHES, chance // 7 % len(NAMES)
        assert reader.num_record_batches == BATCHES
        assert reader.schema.names == NAMES
        found = reader.get_batch(which)
        assert found.num_rows == ROWS
        assert found.column(column).to_pylist() == VALUES[which][NAMES[column]]

    deadline = time.monotonic() + SECONDS
    while True:  # each round has a reader that nobody has used before
        check(0)
        if time.monotonic() > deadline:
            return


def test_one_batch_whose_columns_all_build(tmp_path: Path) -> None:
    """Threads that are first at the same columns of a batch have equal ones."""
    path = tmp_path / "f.arrow"
    path.write_bytes(written("lz4"))
    for turn in range(10):
        with sa.ipc.open_file(path) as reader:
            one = reader.get_batch(turn % BATCHES)
            table = reader.read_all()
        expected = VALUES[turn % BATCHES]
        column = table["i"]

        def use(number: int, one: Any = one, column: Any = column, expected: Any = expected) -> None:
            assert {name: array.to_pylist() for name, array in zip(NAMES, one.columns, strict=True)} == expected
            assert one.slice(number, 5).to_pydict() == {k: v[number : number + 5] for k, v in expected.items()}
            assert column.to_pylist() == [v for values in VALUES for v in values["i"]]

        together(use, once=True)


@pytest.mark.parametrize("kind", ["mapped", "pipe"])
def test_a_stream_is_shared_out(kind: str) -> None:
    """Each batch of a stream goes to exactly one of the threads that take from it, and all of them find its end."""
    data = written(stream=True)
    for _ in range(15):
        reader = sa.ipc.open_stream(data if kind == "mapped" else io.BufferedReader(io.BytesIO(data)))
        taken: list[int] = []

        def take(number: int, reader: Any = reader, taken: list[int] = taken) -> None:
            while True:
                try:
                    found = reader.read_next_batch()
                except StopIteration:
                    return
                first = found.column(0)[0]
                assert found.to_pydict() == VALUES[first // 1000]
                taken.append(first // 1000)

        together(take, once=True)
        assert sorted(taken) == list(range(BATCHES))


def test_any_batch_of_a_mapped_stream() -> None:
    """Threads read a mapped stream by number, and its whole, while its index is being built."""
    data = written(stream=True)
    for _ in range(10):
        reader = sa.ipc.open_stream(data)

        def read(number: int, reader: Any = reader) -> None:
            which = number % BATCHES
            assert reader.get_batch(which).to_pydict() == VALUES[which]
            assert reader.num_record_batches == BATCHES

        together(read, once=True)


@pytest.mark.parametrize("route", ["path", "segment", "path, read"])
def test_closing_a_reader_that_others_use(route: str, tmp_path: Path, shm_name: str) -> None:
    """While a reader is closed others have their data or the error that it is closed, never bytes of another file."""
    data = written()
    path = tmp_path / "f.arrow"
    path.write_bytes(data)
    other = tmp_path / "other"
    other.write_bytes(bytes(len(data)))
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        reader = ROUTES[route](path, shm_name, data)
        read = threading.Event()

        def use(number: int, reader: Any = reader, read: Any = read) -> None:
            for turn in range(50):
                try:
                    found = reader.get_batch((number + turn) % BATCHES).column(0)
                except sa.Closed:
                    return
                assert found[0] == 1000 * ((number + turn) % BATCHES)
                read.set()

        def close(number: int, reader: Any = reader, read: Any = read) -> None:
            read.wait(1)
            reader.close()
            for _ in range(20):  # takes the descriptors that the reader has released
                other.open("rb").close()

        together(use, use, use, close, once=True)
        with pytest.raises(sa.Closed):
            reader.get_batch(0)


# --- schemas ----------------------------------------------------------------------------------------------------


def test_one_schema(tmp_path: Path) -> None:
    """Threads look up fields of a wide schema by name and by position while its parts are first read."""
    width = 600
    schema = sa.schema([sa.field(f"c{i}", sa.int32(), metadata={"n": str(i)}) for i in range(width)], {"k": "v"})
    deadline = time.monotonic() + SECONDS
    turn = 0
    while time.monotonic() < deadline:
        turn += 1
        sink = io.BytesIO()
        # Each turn has a schema that no cache has seen.
        with sa.ipc.new_file(sink, schema.with_metadata({"turn": str(turn)})):
            pass
        found = sa.ipc.open_file(sink.getvalue()).schema

        def use(number: int, found: Any = found, turn: int = turn) -> None:
            for i in range(number, width, 97):
                assert found.field(f"c{i}").metadata == {b"n": str(i).encode()}
                assert found.field(i).name == f"c{i}"
                assert found.get_field_index(f"c{i}") == i
                assert list(found.get_all_field_indices(f"c{i}")) == [i]
            assert found.metadata == {b"turn": str(turn).encode()}
            assert found.names == schema.names

        together(use, once=True)
        assert found == schema.with_metadata({"turn": str(turn)})


# --- writers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sa.ipc.new_file, sa.ipc.new_stream])
def test_one_writer(make: Any, tmp_path: Path) -> None:
    """Batches that threads write with one writer are all there, each of them whole."""
    path = tmp_path / "w.arrow"
    with make(path, BATCH[0].schema) as writer:
        together(lambda number: writer.write(BATCH[number % BATCHES]), once=True)
    read = sa.ipc.open_file if make is sa.ipc.new_file else sa.ipc.open_stream
    found = [one.to_pydict() for one in read(path)]
    assert sorted(one["i"][0] // 1000 for one in found) == sorted(number % BATCHES for number in range(THREADS))
    for one in found:
        assert one == VALUES[one["i"][0] // 1000]


# --- stores -----------------------------------------------------------------------------------------------------


def test_one_store(where: str) -> None:
    """Threads put, get, list and delete objects of one store; each finds its own, and whole ones of others."""
    store = sa.Store(where, 1 << 26)

    def mine(number: int) -> None:
        name = f"n{number}"
        array = np.full(1000, number)
        store.put(name, array, overwrite=True, expire_after=60.0)
        found = store.get(name)
        np.testing.assert_array_equal(found, array)
        store.put(f"b{number}", BATCH[number % BATCHES], overwrite=True)
        assert store.get(f"b{number}").to_pydict() == VALUES[number % BATCHES]
        assert name in store
        assert store.info(name).expires_in is not None
        store.delete(name)
        assert name not in store

    def all_of_them(number: int) -> None:
        for name in store.names():
            try:
                found = store.get(name)
            except sa.ObjectNotFound:
                continue
            if name.startswith("n"):
                assert (found == int(name[1:])).all()
            else:
                assert found.to_pydict() == VALUES[int(name[1:]) % BATCHES]
        assert store.stats().objects >= 0
        store.collect()

    together(mine, mine, mine, all_of_them)
    store.clear()
    store.close()


# --- tensors ----------------------------------------------------------------------------------------------------


def test_one_bundle(tmp_path: Path) -> None:
    """Threads look up tensors of one bundle; while it is closed they have them, or the error that it is closed."""
    path = tmp_path / "b.tensors"
    sa.save_tensors({f"t{i}": np.full(i % 5 + 1, i) for i in range(50)}, path)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        bundle = sa.load_tensors(path)

        def use(number: int, bundle: Any = bundle) -> None:
            try:
                for i in range(number, 50, 3):
                    assert bundle[f"t{i}"].to_numpy().tolist() == [i] * (i % 5 + 1)
                assert list(bundle) == [f"t{i}" for i in range(50)]
            except sa.Closed:
                assert repr(bundle).endswith(", closed>")

        def close(number: int, bundle: Any = bundle) -> None:
            if number == THREADS - 1:
                bundle.close()

        together(use, use, use, close, once=True)


@pytest.mark.parametrize("kind", ["buffer", "file"])
def test_one_reader_of_tensors(kind: str, tmp_path: Path) -> None:
    """Each tensor goes to exactly one of the threads that take from a reader, and all of them find the end."""
    data = b"".join(message_of(sa.Tensor.from_numpy(np.full(i % 3 + 1, i))) for i in range(40))
    for _ in range(10):
        reader = sa.ipc.read_tensors(data if kind == "buffer" else io.BufferedReader(io.BytesIO(data)))
        taken: list[int] = []

        def take(number: int, reader: Any = reader, taken: list[int] = taken) -> None:
            for tensor in reader:
                first = int(tensor.to_numpy()[0])
                assert tensor.to_numpy().tolist() == [first] * (first % 3 + 1)
                taken.append(first)

        together(take, once=True)
        assert sorted(taken) == list(range(40))


def test_headers_of_tensors_that_threads_cache() -> None:
    """Tensors of more kinds than the cache of headers holds are read by eight threads, each as it was written."""
    messages = []
    for i in range(300):
        array = np.arange(i % 17 + 1, dtype=["i4", "f8", "u1"][i % 3])
        data = message_of(sa.Tensor.from_numpy(array, metadata={"n": str(i)}))
        messages.append((data, array, {b"n": str(i).encode()}))

    def use(number: int) -> None:
        for data, array, metadata in messages[number * 7 :: 11]:
            found = sa.ipc.read_tensor(data)
            np.testing.assert_array_equal(found.to_numpy(), array)
            assert found.metadata == metadata

    together(use)


# --- what is promised -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shared",
    [
        sa.ipc.RecordBatchFileReader, sa.ipc.RecordBatchStreamReader, sa.ipc.MappedStreamReader, sa.ipc.StreamDecoder,
        sa.ipc.RecordBatchFileWriter, sa.ipc.RecordBatchStreamWriter,
        sa.ipc.TensorReader, sa.ipc.TensorWriter, sa.Bundle, sa.Store, sa.RecordBatch, sa.Table, sa.ChunkedArray,
        sa.Schema, segment.Segment, segment.SegmentWriter,
    ],
    ids=lambda shared: shared.__name__,
)  # fmt: skip
def test_each_class_says_what_threads_may_do(shared: type) -> None:
    """The docstring of what may be shared, or its base's, has a passage on thread safety."""
    assert any("Thread safety" in (base.__doc__ or "") for base in shared.__mro__)
