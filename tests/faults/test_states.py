"""States of readers and writers: what fails in the middle of a message, threads, forks and copies.

Invariants: a source or a sink fails at call ``k``, for every ``k`` that there is, and then carries on; what comes
out is right, or the object says that it has failed. Sockets, pipes, processes and limits are real.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
from typing import Any

import numpy as np
import pytest
from forms import numbers, stream_of
from processes import ended, forked
from remote import FailsOnce

import shmarrow as sa

WORDS = sa.array(["a", "b", "a"]).dictionary_encode()
OTHER_WORDS = sa.array(["c", "c", "d"]).dictionary_encode()


def batches(words: Any = WORDS) -> sa.RecordBatch:
    return sa.record_batch([sa.array([1, 2, 3]), words], names=["i", "d"])


# --- sinks ----------------------------------------------------------------------------------------------------------


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
    """The output is the beginning of the right one, without the end; every later call raises the first error."""
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
    data = stream_of(*expected)
    whole = FailsOnce(data)
    assert [a.equals(b) for a, b in zip(read_stubbornly(whole, []), expected, strict=True)] == [True] * 3
    for k in range(1, whole.calls + 1):
        found = read_stubbornly(FailsOnce(data, k), said := [])
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


def test_a_forked_child_does_not_read_from_a_pipe() -> None:
    reader = sa.ipc.open_stream(FailsOnce(stream_of(numbers(), numbers())))

    def child() -> None:
        with pytest.raises(sa.Closed, match="belongs to process"):
            reader.read_next_batch()
        reader.close()

    assert ended(forked(child)) == 0
    assert list(reader) == [numbers(), numbers()]
