"""Memory of decompressed columns: what keeps it, when it is used again, and forks while a thread is busy with it."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.ipc.batch import codecs, memory


def batch_of(columns: int, size: int, codec: str = "lz4") -> sa.RecordBatch:
    """A compressed batch of int64 columns of ``size`` bytes each, opened."""
    values = {f"c{i}": np.arange(size // 8) % 100 + i for i in range(columns)}
    made = sa.record_batch(values)
    place = io.BytesIO()
    with sa.ipc.new_file(place, made.schema, sa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write(made)
    return sa.ipc.open_file(place.getvalue()).get_batch(0)


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
    place = io.BytesIO()
    with sa.ipc.new_file(place, made.schema, sa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write(made)
    values = sa.ipc.open_file(place.getvalue()).get_batch(0).columns[0].children[4].to_numpy()
    assert values[:3].tolist() == [4, 5, 6]
    assert held_by(values) == 480_000


def test_unused_memory_is_bounded_and_used_again() -> None:
    """Pieces serve what is at least two thirds of their size; together they are at most 512 MiB."""
    memory._free.clear()
    first = memory.allocate(3 << 20)
    address = first.ctypes.data
    del first
    assert sum(map(len, memory._free)) == 3 << 20
    for size, again in (((3 << 20) + 1, False), (1 << 20, False), ((2 << 20) + 1, True)):
        other = memory.allocate(size)
        assert (other.ctypes.data == address) == again
        del other
    many = [memory.allocate(64 << 20) for _ in range(10)]
    del many
    assert sum(map(len, memory._free)) <= 512 << 20
    huge = memory.allocate(600 << 20)
    del huge
    assert max(map(len, memory._free)) <= 512 << 20
    memory._free.clear()


def test_memory_that_cannot_be_had_is_our_error() -> None:
    for size in (1 << 62, (1 << 63) - 1):
        with pytest.raises(sa.LimitExceeded, match=f"not enough memory for {size} decompressed bytes"):
            memory.allocate(size)


def test_threads_that_take_and_give_back() -> None:
    """No piece is ever in two hands, while finalizers give pieces back at any time."""
    wrong: list[int] = []

    def work(mark: int) -> None:
        kept: list[np.ndarray] = []
        for turn in range(60):
            data = memory.allocate((1 << 20) + (turn % 7) * 100_000)
            data[::4096] = mark
            kept.append(data)
            if turn % 3 == 2:
                if not all((each[::4096] == mark).all() for each in kept):
                    wrong.append(mark)
                kept.clear()
                if turn % 30 == 2:
                    gc.collect()

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(map(len, memory._free)) <= 512 << 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forks_while_locks_are_held() -> None:
    """A child reads compressed columns although a thread that it does not have held every lock when it was forked."""
    batch = batch_of(4, 2 << 20)
    assert [column.to_numpy()[0] for column in batch.columns] == [0, 1, 2, 3]  # the pool is running
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with memory._lock, codecs._pool_lock:
            held.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if not child:
        try:
            again = batch_of(4, 2 << 20)
            os._exit([column.to_numpy()[0] for column in again.columns] != [0, 1, 2, 3])
        except BaseException:
            os._exit(2)
    leave.set()
    thread.join()
    for _ in range(600):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        threading.Event().wait(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_one_pool_for_all_threads() -> None:
    """Threads that need the first worker at the same time share one pool."""
    code = """
import sys, threading
from shmarrow.ipc.batch import codecs
sys.setswitchinterval(1e-6)
found, barrier = [], threading.Barrier(16)
def work():
    barrier.wait()
    found.append(codecs.pool())
threads = [threading.Thread(target=work) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 16 and len(set(map(id, found))) == 1, found
"""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (found.stdout, found.stderr) == (f"{4 * 299_999}\n", "")
