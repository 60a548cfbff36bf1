"""States of readers and writers: what fails in the middle of a message, threads, forks and copies.

Invariants: a source or a sink fails at call ``k``, for every ``k`` that there is, and then carries on; what comes
out is right, or the object says that it has failed. Sockets, pipes, processes and limits are real.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import file_of, numbers, stream_of
from writers import files_of_at_most

import shmarrow as sa

WORDS = sa.array(["a", "b", "a"]).dictionary_encode()
OTHER_WORDS = sa.array(["c", "c", "d"]).dictionary_encode()


def batches(words: Any = WORDS) -> sa.RecordBatch:
    return sa.record_batch([sa.array([1, 2, 3]), words], names=["i", "d"])


# --- sinks ----------------------------------------------------------------------------------------------------------


class FailsOnce(io.RawIOBase):
    """A raw stream that takes at most 64 bytes at a time, and refuses its call ``k``."""

    def __init__(self, data: bytes = b"", k: int = -1) -> None:
        self.data = data
        self.taken = b""
        self.calls = 0
        self.k = k
        self.at = 0

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.k:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._count()
        self.taken += bytes(data[:64])
        return min(64, len(data))

    def readinto(self, room: Any) -> int:
        self._count()
        part = self.data[self.at : self.at + min(64, len(room))]
        room[: len(part)] = part
        self.at += len(part)
        return len(part)


def described(error: sa.ShmarrowError) -> str:
    return f"{type(error).__name__}: {error}"


def check_said(said: list[str]) -> None:
    """The first error is the source's or sink's own, and all others name it."""
    first, *others = said
    assert first.startswith("StorageError: ")
    assert "timed out" in first
    assert all(other.startswith("Failed: ") and first in other for other in others)


def write_all(make: Any, sink: Any, said: list[str]) -> None:
    """Open a writer, write three batches and close it, and go on after each error."""
    try:
        writer = make(sink, batches().schema)
    except sa.StorageError as error:
        said.append(described(error))
        return
    words = OTHER_WORDS if make is sa.ipc.new_stream else WORDS
    steps = [lambda: writer.write(batches()), lambda: writer.write(batches(words)), lambda: writer.write(batches())]
    for step in (*steps, writer.close):
        try:
            step()
        except sa.ShmarrowError as error:
            said.append(described(error))
    writer.close()


@pytest.mark.parametrize("make", [sa.ipc.new_file, sa.ipc.new_stream])
def test_a_sink_that_fails_at_any_call(make: Any) -> None:
    """What was written is the beginning of what should have been, and the end is missing; every later call says so."""
    whole = FailsOnce()
    write_all(make, whole, errors := [])
    assert not errors
    for k in range(1, whole.calls + 1):
        sink = FailsOnce(k=k)
        write_all(make, sink, said := [])
        check_said(said)
        assert len(sink.taken) < len(whole.taken)
        assert whole.taken.startswith(sink.taken)
        if make is sa.ipc.new_file:
            with pytest.raises(sa.InvalidData):
                sa.ipc.open_file(sink.taken)


def test_an_appender_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    batch = sa.record_batch({"x": np.arange(10_000)})
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
    before = path.read_bytes()
    appender = sa.ipc.append_file(path)
    appender.write(batch)
    with files_of_at_most(3 * 80_000), pytest.raises(sa.StorageError):
        appender.write(batch)
    with pytest.raises(sa.Failed):
        appender.close()
    with files_of_at_most(1000), pytest.raises(sa.StorageError):
        sa.ipc.append_file(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["a"]


def test_a_full_file_system_fails_the_writer(tmp_path: Path) -> None:
    batch = sa.record_batch({"x": np.arange(100_000)})
    writer = sa.ipc.new_file(tmp_path / "a", batch.schema)
    with files_of_at_most(200_000), pytest.raises(sa.StorageError) as first:
        writer.write(batch)
    for again in (lambda: writer.write(batch), writer.close):
        with pytest.raises(sa.Failed) as later:
            again()
        assert str(first.value) in str(later.value)
    writer.close()
    assert not list(tmp_path.iterdir())


def test_a_socket_that_does_not_take_all() -> None:
    """A send that times out within a message is the end of the stream, also when the peer reads on."""
    batch = sa.record_batch({"x": np.arange(1 << 18)})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.05)
        writer = sa.ipc.new_stream(ours, batch.schema)
        with pytest.raises(sa.StorageError):
            writer.write(batch)
        theirs.setblocking(False)
        received = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                received += len(theirs.recv(1 << 20))
        with pytest.raises(sa.Failed, match="timed out"):
            writer.write(batch)
        with pytest.raises(sa.Failed, match="timed out"):
            writer.close()
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        assert 0 < received < 8 << 18


def test_a_pipe_that_nobody_reads() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb", buffering=0) as sink:
        writer = sa.ipc.new_stream(sink, numbers().schema)
        os.close(read)
        with pytest.raises(sa.StorageError) as first:
            writer.write(numbers())
        assert first.value.errno == errno.EPIPE
        with pytest.raises(sa.Failed, match="Broken pipe"):
            writer.write(numbers())


def test_what_is_refused_before_a_byte_is_written_leaves_the_writer_open() -> None:
    nested = sa.record_batch([sa.array([1, 2, 3]), WORDS], names=["other", "d"])
    for make, read in ((sa.ipc.new_file, sa.ipc.open_file), (sa.ipc.new_stream, sa.ipc.open_stream)):
        sink = io.BytesIO()
        with make(sink, batches().schema) as writer:
            writer.write(batches())
            before = sink.tell()
            for bad in (nested, "no batch", None):
                with pytest.raises(sa.InvalidType):
                    writer.write(bad)
            with pytest.raises(sa.InvalidType):
                writer.write_batch(batches(), custom_metadata={1.5: b""})
            if make is sa.ipc.new_file:
                with pytest.raises(sa.InvalidData, match="a file has one per id"):
                    writer.write(batches(OTHER_WORDS))
            assert sink.tell() == before
            writer.write(batches())
        assert read(sink.getvalue()).read_all().to_pydict() == {"i": [1, 2, 3] * 2, "d": ["a", "b", "a"] * 2}


def test_an_interrupt_in_the_middle_of_a_message_fails_the_writer() -> None:
    class Interrupted(io.BytesIO):
        armed = False

        def write(self, data: Any) -> int:
            if self.armed:
                raise KeyboardInterrupt
            return super().write(data)

    sink = Interrupted()
    writer = sa.ipc.new_file(sink, numbers().schema)
    sink.armed = True
    with pytest.raises(KeyboardInterrupt):
        writer.write(numbers())
    sink.armed = False
    with pytest.raises(sa.Failed, match="KeyboardInterrupt"):
        writer.close()
    assert not sink.getvalue().endswith(b"ARROW1")


def test_closed_writers_say_so() -> None:
    for make in (sa.ipc.new_file, sa.ipc.new_stream):
        sink = io.BytesIO()
        writer = make(sink, numbers().schema)
        writer.close()
        size = sink.tell()
        writer.close()
        for call in (lambda w=writer: w.write(numbers()), lambda w=writer: w.write_table(sa.table({"i": [1]}))):
            with pytest.raises(sa.Closed, match="closed"):
                call()
        assert sink.tell() == size


# --- sources --------------------------------------------------------------------------------------------------------


def read_stubbornly(source: Any, said: list[str]) -> list[sa.RecordBatch]:
    """All batches of a stream, by a reader that is asked again after each error."""
    found: list[sa.RecordBatch] = []
    try:
        reader = sa.ipc.open_stream(source)
    except sa.StorageError as error:
        said.append(described(error))
        return found
    while len(said) < 4:
        try:
            found.append(reader.read_next_batch())
        except StopIteration:
            break
        except sa.ShmarrowError as error:
            said.append(described(error))
    return found


def test_a_source_that_fails_at_any_call() -> None:
    """A retry after a timeout gives no byte of another message: the reader has failed."""
    expected = [batches(), batches(OTHER_WORDS), batches()]
    sink = io.BytesIO()
    with sa.ipc.new_stream(sink, expected[0].schema) as writer:
        for batch in expected:
            writer.write(batch)
    whole = FailsOnce(sink.getvalue())
    assert [a.equals(b) for a, b in zip(read_stubbornly(whole, []), expected, strict=True)] == [True] * 3
    for k in range(1, whole.calls + 1):
        found = read_stubbornly(FailsOnce(sink.getvalue(), k), said := [])
        check_said(said)
        assert len(found) < 4
        assert all(batch.equals(expected[i]) for i, batch in enumerate(found))


def test_a_socket_whose_peer_is_slow() -> None:
    batch = sa.record_batch({"x": np.arange(1000)})
    data = stream_of(batch)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[:3000])
        ours.settimeout(0.05)
        reader = sa.ipc.open_stream(ours)
        with pytest.raises(sa.StorageError, match="timed out"):
            reader.read_next_batch()
        theirs.sendall(data[3000:])
        for call in (reader.read_next_batch, reader.read_all):
            with pytest.raises(sa.Failed, match="timed out"):
                call()
        reader.close()


# --- threads --------------------------------------------------------------------------------------------------------


def shared_by_threads(take: Callable[[], Any], count: int = 8) -> list[Any]:
    """What threads get that call a function until it raises StopIteration."""
    found: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                found.append(take())
        except StopIteration:
            return
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    return found


@pytest.mark.parametrize("mapped", [True, False])
def test_each_batch_goes_to_one_thread_and_all_threads_come_to_the_end(mapped: bool) -> None:
    data = stream_of(*[sa.record_batch({"x": np.full(3, i)}) for i in range(400)])
    reader = sa.ipc.open_stream(data if mapped else FailsOnce(data))
    found = shared_by_threads(reader.read_next_batch)
    assert sorted(batch.column(0)[0] for batch in found) == list(range(400))


def test_threads_share_a_writer() -> None:
    sink = io.BytesIO()
    todo = iter(range(200))
    lock = threading.Lock()
    with sa.ipc.new_file(sink, sa.schema([("x", sa.int64())])) as writer:

        def write() -> None:
            with lock:
                number = next(todo)
            writer.write(sa.record_batch({"x": np.full(10, number)}))

        shared_by_threads(write)
    table = sa.ipc.open_file(sink.getvalue()).read_all()
    assert sorted(batch.column(0).to_pylist() for batch in table.batches) == [[i] * 10 for i in range(200)]


# --- forks and copies -----------------------------------------------------------------------------------------------


def in_child(work: Callable[[], None]) -> None:
    """Fork a child for a task, which must end within seconds and without an error."""
    number = os.fork()
    if not number:
        code = 1
        with contextlib.suppress(BaseException):
            signal.alarm(20)
            work()
            code = 0
        os._exit(code)
    assert os.waitpid(number, 0)[1] == 0


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    batch = numbers()
    objects = [(tmp_path / "a", tmp_path / "a"), (open(tmp_path / "b", "wb", buffering=0), tmp_path / "b")]  # noqa: SIM115
    for sink, path in objects:
        writer = sa.ipc.new_file(sink, batch.schema)
        writer.write(batch)

        def use(writer: Any = writer) -> None:
            with pytest.raises(sa.Closed, match="belongs to process"):
                writer.write(batch)
            writer.close()
            writer.abort()

        in_child(use)
        writer.write(batch)
        writer.close()
        assert path.read_bytes() == file_of(batch, batch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_forked_children_read(tmp_path: Path) -> None:
    """Readers in memory work in children, whatever other threads are doing at the fork; a pipe's reader is refused."""
    data = stream_of(*[sa.record_batch({"x": np.full(3, i)}) for i in range(1000)])
    path = tmp_path / "a"
    path.write_bytes(data)
    pipe = sa.ipc.open_stream(FailsOnce(data))
    for _ in range(20):
        reader = sa.ipc.open_stream(path)
        threads = [threading.Thread(target=lambda r=reader: r.num_record_batches) for _ in range(2)]
        for thread in threads:
            thread.start()

        def use(reader: Any = reader) -> None:
            assert [batch.column(0)[0] for batch in reader] == list(range(1000))
            with pytest.raises(sa.Closed, match="belongs to process"):
                pipe.read_next_batch()
            pipe.close()

        in_child(use)
        for thread in threads:
            thread.join()
        assert reader.num_record_batches == 1000
    assert pipe.read_next_batch().column(0)[0] == 0


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_reader_is_opened_by_name(copied: Callable[[Any], Any], tmp_path: Path, shm_name: str) -> None:
    batch = batches()
    for place in (tmp_path / "a", shm_name):
        for make, read in ((sa.ipc.new_file, sa.ipc.open_file), (sa.ipc.new_stream, sa.ipc.open_stream)):
            with make(place, batch.schema, overwrite=True) as writer:
                writer.write(batch)
            with read(place, included_fields=["d"]) as reader:
                other = copied(reader)
            assert other.read_all().to_pydict() == {"d": ["a", "b", "a"]}
            other.close()
            with pytest.raises(sa.InvalidType, match="cannot be pickled or copied"):
                copied(reader)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_what_cannot_be_opened_again_is_not_copied(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    path = tmp_path / "a"
    with sa.ipc.new_file(path, numbers().schema) as writer:
        with pytest.raises(sa.InvalidType, match="RecordBatchFileWriter cannot be pickled or copied"):
            copied(writer)
        writer.write(numbers())
    with open(path, "rb") as file:
        readers = [
            sa.ipc.open_file(file),
            sa.ipc.open_file(path.read_bytes()),
            sa.ipc.open_stream(stream_of(numbers())),
            sa.ipc.open_stream(FailsOnce(stream_of(numbers()))),
        ]
        for reader in readers:
            with pytest.raises(sa.InvalidType, match="cannot be pickled or copied"):
                copied(reader)


@pytest.mark.parametrize("index", [2.0, "0", None, [0]])
def test_numbers_of_batches_are_ints(index: Any) -> None:
    for reader in (sa.ipc.open_file(file_of(numbers())), sa.ipc.open_stream(stream_of(numbers()))):
        with pytest.raises(sa.InvalidType, match="the index of a batch must be an int"):
            reader.get_batch(index)
        assert reader.get_batch(np.int8(-1)).equals(numbers())
        for out in (1, -2, 1 << 80, -(1 << 80)):
            with pytest.raises(sa.IndexOutOfRange):
                reader.get_batch(out)
