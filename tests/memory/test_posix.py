"""POSIX shared memory objects beside files in ``/dev/shm``: both forms of an object, for whatever reads and writes."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import posix_ipc
import pytest
from processes import ended, forked, python

import shmarrow as sa
from shmarrow.memory.posix import publish

pytestmark = pytest.mark.processes
_numbers = itertools.count()


@pytest.fixture
def posix_name() -> Iterator[str]:
    """A name as macOS takes it."""
    name = f"sa-{os.getpid()}-{next(_numbers)}"
    yield f"posix:{name}"
    for path in Path("/dev/shm").glob(f"{name}*"):
        path.unlink()


@pytest.fixture(params=["shm", "posix"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_name"))


def batch(rows: int = 1000) -> sa.RecordBatch:
    return sa.record_batch({"n": np.arange(rows), "s": [f"text {i}" for i in range(rows)]})


# --- both forms -------------------------------------------------------------------------------------------------


def test_files_and_streams(name: str) -> None:
    with sa.ipc.new_file(name, batch().schema) as writer:
        writer.write(batch())
    for mapped in (True, False):
        with sa.ipc.open_file(name, memory_map=mapped) as file:
            assert file.get_batch(0).equals(batch())
    assert sa.scan(name).count_rows() == 1000
    assert sa.open(name).read_all().num_rows == 1000
    with pytest.raises(sa.ObjectExists):
        sa.ipc.new_file(name, batch().schema)
    kept = sa.ipc.open_file(name).get_batch(0)
    with sa.ipc.new_stream(name, batch(5).schema, overwrite=True) as stream:
        stream.write(batch(5))
    assert kept.equals(batch())
    assert sa.ipc.open_stream(name).read_all().num_rows == 5
    sa.segment.delete(name)
    with pytest.raises(sa.ObjectNotFound):
        sa.ipc.open_file(name)


def test_tensors_and_what_is_written_in_place(name: str) -> None:
    values = np.arange(30_000.0).reshape(3, 10_000)
    sa.save_tensors({"w": values}, name)
    got = sa.load_tensors(name)["w"].to_numpy()
    np.testing.assert_array_equal(got, values)
    writable = sa.load_tensors(name)["w"].to_numpy(writable=True)
    writable += 1
    np.testing.assert_array_equal(got, values)
    with sa.segment.create(name, overwrite=True) as writer:
        writer.map(5)[:] = np.frombuffer(b"abcde", "u1")
    with sa.segment.attach(name) as segment:
        assert segment.data.tobytes() == b"abcde"
        assert pickle.loads(pickle.dumps(segment)).data.tobytes() == b"abcde"


def test_handles(name: str) -> None:
    with sa.ipc.new_file(name, batch().schema, mode=0o444) as writer:
        writer.write(batch())
    opened = sa.ipc.open_file(name).get_batch(0)
    handle = pickle.dumps(sa.handle(opened))
    assert len(handle) < 2000
    code = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).open()['s'][999])"
    assert python(code, handle.hex()) == "text 999\n"
    with sa.ipc.new_file(name, batch().schema, overwrite=True) as writer:
        writer.write(batch())
    with pytest.raises(sa.ObjectNotFound, match="was replaced"):
        sa.handle(opened)
    del opened
    with pytest.raises(sa.ObjectNotFound, match="was replaced"):
        pickle.loads(handle).open()


def test_one_of_many_writers_has_the_name(name: str) -> None:
    def write() -> None:
        try:
            with sa.segment.create(name) as writer:
                writer.write([b"%d" % os.getpid() * 1000])
        except sa.ObjectExists:
            os._exit(3)

    children = [forked(write) for _ in range(8)]
    found = {child: ended(child) for child in children}
    (winner,) = [child for child in children if not found[child]]
    assert set(found.values()) == {0, 3}
    assert sa.segment.attach(name).data.tobytes() == b"%d" % winner * 1000


# --- POSIX shared memory alone ----------------------------------------------------------------------------------


def slow(name: str, work: Callable[[memoryview], None], size: int = 5) -> int:
    return forked(lambda: publish(name, size, work, 0o600, False))


def fill_later(view: memoryview) -> None:
    time.sleep(0.5)
    view[:] = b"abcde"


def stop(view: memoryview) -> None:
    view[:3] = b"abc"
    os.kill(os.getpid(), signal.SIGKILL)


def exists(name: str) -> None:
    while not Path("/dev/shm", name.partition(":")[2]).exists():
        time.sleep(0.001)


def test_a_reader_waits_for_a_writer(posix_name: str) -> None:
    child = slow(posix_name, fill_later)
    exists(posix_name)
    assert sa.segment.attach(posix_name).data.tobytes() == b"abcde"
    assert ended(child) == 0


def test_what_a_dead_writer_left_is_told_and_replaced(posix_name: str) -> None:
    assert ended(slow(posix_name, stop)) == -signal.SIGKILL
    with pytest.raises(sa.StorageError, match="its writer died"):
        sa.segment.attach(posix_name)
    with sa.segment.create(posix_name) as writer:
        writer.write([b"new"])
    assert sa.segment.attach(posix_name).data.tobytes() == b"new"


def test_a_writer_that_died_before_its_object_had_a_size(posix_name: str) -> None:
    posix_ipc.SharedMemory("/" + posix_name[6:], posix_ipc.O_CREX, size=0).close_fd()
    with pytest.raises(sa.StorageError, match="its writer died"):
        sa.segment.attach(posix_name)
    sa.segment.delete(posix_name)


def test_every_moment_of_a_kill(posix_name: str) -> None:
    """A writer that replaces an object in a loop is killed: readers get one of its values whole, or are told."""

    def write() -> None:
        for i in itertools.count():
            with sa.segment.create(posix_name, overwrite=True) as writer:
                writer.write([bytes([i % 256]) * 300_000])

    def end(child: int, statuses: list[int]) -> None:
        os.kill(child, signal.SIGKILL)
        statuses.append(ended(child))

    statuses: list[int] = []
    told = ""
    for _ in range(25):
        child = forked(write)
        exists(posix_name)
        timer = threading.Timer(0.03, end, (child, statuses))
        timer.start()
        while timer.is_alive():
            try:
                data = sa.segment.attach(posix_name).data
                assert len(data) == 300_000
                assert (data == data[0]).all()
            except sa.ObjectNotFound:
                pass
            except sa.StorageError as error:
                told = str(error)
        timer.join()
    assert statuses == [-signal.SIGKILL] * 25
    assert not told or "its writer died" in told


def test_what_others_made_is_refused(posix_name: str) -> None:
    for size in (5, 4096, 8192):
        memory = posix_ipc.SharedMemory("/" + posix_name[6:], posix_ipc.O_CREX, size=size)
        os.pwrite(memory.fd, b"x" * size, 0)
        memory.close_fd()
        with pytest.raises(sa.StorageError, match="was not written by this package"):
            sa.segment.attach(posix_name)
        sa.segment.delete(posix_name)


def test_names_are_those_of_every_platform(posix_name: str) -> None:
    for wrong in ("", "a" * 31, "é" * 16, "a/b", "..", "a\0b"):
        with pytest.raises(sa.InvalidArgument):
            sa.segment.create(f"posix:{wrong}")
    longest = posix_name + "x" * (36 - len(posix_name))
    with sa.segment.create(longest) as writer:
        writer.write([b"x"])
    sa.segment.delete(longest)
    for make in (sa.Store, lambda name: sa.Ring(name, like=batch()), sa.Ring):
        with pytest.raises(sa.Unsupported, match="stores and rings in shared memory are files"):
            make(posix_name)
