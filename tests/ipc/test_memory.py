"""Memory of decompressed columns: what keeps it, when it is used again, and forks while a thread is busy with it."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from forms import file_of
from processes import ended, forked, python

import shmarrow as sa
from shmarrow.ipc.batch import memory


def batch_of(columns: int, size: int, codec: str = "lz4") -> sa.RecordBatch:
    """A compressed batch of int64 columns of ``size`` bytes each, opened."""
    values = {f"c{i}": np.arange(size // 8) % 100 + i for i in range(columns)}
    made = sa.record_batch(values)
    return sa.ipc.open_file(file_of(made, compression=codec)).get_batch(0)


def held_by(values: np.ndarray) -> int:
    """Bytes of the memory that an ndarray keeps alive."""
    owner: Any = values
    while isinstance(owner, (np.ndarray, memoryview)):
        below = owner.obj if isinstance(owner, memoryview) else owner.base
        if below is None:
            return int(owner.nbytes)
        owner = below
    return len(owner)


@pytest.mark.parametrize("size", [80_000, 937 << 10, 1_100_000, 5 << 20])
@pytest.mark.parametrize("how", [lambda batch: batch.columns[3], lambda batch: batch.column(3)])
def test_a_column_holds_about_its_own_size(how: Callable[[Any], Any], size: int) -> None:
    """Whether it was decompressed together with others or alone, in new memory or in some that was used before."""
    for _ in range(3):
        for other in (size * 5 // 4, size):
            column = how(batch_of(8, other // 8 * 8))
            values = column.to_numpy()
            assert values[:3].tolist() == [3, 4, 5]
            assert len(values) * 8 <= held_by(values) < 2 * other
            del column, values


def test_children_hold_no_other_children() -> None:
    children = [sa.array(np.arange(60_000) % 100 + i) for i in range(10)]
    type = sa.struct([(f"c{i}", sa.int64()) for i in range(10)])
    made = sa.record_batch({"s": sa.StructArray.from_arrays(children, type=type)})
    values = sa.ipc.open_file(file_of(made, compression="zstd")).get_batch(0).columns[0].children[4].to_numpy()
    assert values[:3].tolist() == [4, 5, 6]
    assert held_by(values) == 480_000


UNUSED = """
import re
from shmarrow.ipc.batch import memory

def mapped():
    return int(re.search(r"VmSize:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

before = mapped()
first = memory.allocate(3 << 20)
address = first.ctypes.data
del first
for size, again in (((3 << 20) + 1, False), (1 << 20, False), ((2 << 20) + 1, True)):
    other = memory.allocate(size)
    assert (other.ctypes.data == address) == again, size
    del other
for size in (64 << 20, 600 << 20):
    many = [memory.allocate(size) for _ in range(10)]
    assert mapped() - before >= 10 * size
    del many
    assert mapped() - before <= 514 << 20, size
"""


@pytest.mark.processes
def test_unused_memory_is_bounded_and_used_again() -> None:
    """Pieces serve what is at least two thirds of their size; together they are at most 512 MiB."""
    python(UNUSED)


def test_memory_that_cannot_be_had_is_our_error() -> None:
    for size in (1 << 62, (1 << 63) - 1):
        with pytest.raises(sa.LimitExceeded, match=f"not enough memory for {size} decompressed bytes"):
            memory.allocate(size)


def test_threads_that_take_and_give_back() -> None:
    """No piece is ever in two hands, while finalizers give pieces back at any time."""

    def work(mark: int) -> None:
        kept: list[np.ndarray] = []
        for turn in range(60):
            data = memory.allocate((1 << 20) + (turn % 7) * 100_000)
            data[::4096] = mark
            kept.append(data)
            if turn % 3 == 2:
                assert all((each[::4096] == mark).all() for each in kept)
                kept.clear()
                if turn % 30 == 2:
                    gc.collect()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(1, 7)))


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forks_while_threads_decompress() -> None:
    """A child reads compressed columns whatever locks the threads had that it does not have."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for column in batch_of(4, 2 << 20).columns:
                column.to_numpy()

    threads = [threading.Thread(target=work) for _ in range(3)]

    def read() -> None:
        signal.alarm(60)  # ends it if it hangs
        again = batch_of(4, 2 << 20)
        assert [column.to_numpy()[0] for column in again.columns] == [0, 1, 2, 3]

    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            assert ended(forked(read)) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.processes
def test_columns_are_read_when_no_thread_can_be_had() -> None:
    """While the interpreter shuts down, on the thread that asks."""
    code = """
import atexit, io, sys
import numpy as np
import shmarrow as sa
made = sa.record_batch({f"c{i}": np.arange(300_000) for i in range(4)})
place = io.BytesIO()
with sa.ipc.new_file(place, made.schema, sa.ipc.IpcWriteOptions(compression="lz4")) as writer:
    writer.write(made)
from concurrent.futures import ThreadPoolExecutor
def late():
    columns = sa.ipc.open_file(place.getvalue()).get_batch(0).columns
    print(sum(int(column.to_numpy()[-1]) for column in columns))
atexit.register(late)
"""
    assert python(code) == f"{4 * 299_999}\n"
