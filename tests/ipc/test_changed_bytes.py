"""Bytes that somebody writes to while they are read: the outcome is an old value, a new value or one of our errors."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from forms import nested_dictionaries, stream_of
from wire import messages

import shmarrow as sa


@contextmanager
def writing(write: Callable[[], None]) -> Iterator[None]:
    """Another thread that writes again and again, with many changes between the threads."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            write()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_a_message_that_becomes_an_end_mark() -> None:
    """Between two reads of its prefix, a message becomes the end of the stream, and back."""
    data = bytearray(stream_of(sa.record_batch({"x": [1, 2, 3]})))
    size = np.frombuffer(data, "<i4", 1, messages(bytes(data))[1].start + 4)
    old = int(size[0])

    def write() -> None:
        size[0] = 0
        size[0] = old
        size[0] = 0
        os.sched_yield()
        size[0] = old
        os.sched_yield()

    seen = set()
    with writing(write):
        for _ in range(2000):
            try:
                seen.add(str([batch.to_pydict() for batch in sa.ipc.open_stream(data)]))
            except sa.InvalidData as error:
                found = str(error)
                seen.add("changed" if "changed" in found or "overwritten" in found else found)
    assert seen <= {"[{'x': [1, 2, 3]}]", "[]", "changed"}
    assert "[{'x': [1, 2, 3]}]" in seen


def test_a_dictionary_index_that_leaves_the_dictionary() -> None:
    """An index that becomes -1 after it was checked never stands for the last value."""
    words = [f"word {i}" for i in range(3000)]
    indices = np.zeros(1000, np.int32)
    array = sa.DictionaryArray.from_arrays(sa.array(indices), sa.array(words))
    assert np.shares_memory(array.indices.values, indices)

    def write() -> None:
        indices[500] = -1
        os.sched_yield()
        indices[500] = 0
        os.sched_yield()

    seen: set[str] = set()
    reads = 0
    with writing(write):
        while reads < 200 or "word 0" not in seen:
            reads += 1
            for read in (array.to_pylist, lambda: array.decode().to_pylist(), lambda: [array[500]]):
                try:
                    seen |= set(read())
                except sa.InvalidData as error:
                    seen.add(str(error))
    assert seen <= {"word 0", f"row 500: {array.type}: index -1 of a dictionary of 3000 values"}


def test_a_delta_that_fails_once_is_added_once() -> None:
    """A delta of nested dictionaries that is refused leaves no trace: when it is read again, it counts once."""
    grown = [nested_dictionaries(["a"], [[0]], [0]), nested_dictionaries(["a", "b"], [[0], [1, 0]], [1, 0])]
    data = bytearray(stream_of(*grown, emit_dictionary_deltas=True))
    delta = messages(bytes(data))[4]
    assert delta.message.header["isDelta"]
    start, size = delta.message.header["data"]["buffers"].view("<i8").reshape(-1, 2)[1].tolist()
    offsets = np.frombuffer(data, "<i4", size // 4, delta.body + start)
    assert offsets.tolist() == [0, 1]
    reader = sa.ipc.open_stream(data)
    assert reader.read_next_batch().to_pydict() == {"d": [["a"]]}
    offsets[1] = 1 << 30
    batch = reader.read_next_batch()
    for _ in range(3):
        with pytest.raises(sa.InvalidData):
            batch.column(0)
    offsets[1] = 1
    column = batch.column(0)
    assert column.to_pylist() == [["b", "a"], ["a"]]
    assert column.dictionary.values.dictionary.to_pylist() == ["a", "b"]
