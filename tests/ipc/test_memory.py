"""Memory of decompressed columns: what keeps it, and forks while a thread is busy with it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forms import file_of
from processes import ended, forked, python

import shmarrow as sa
from shmarrow.buffer import EMPTY
from shmarrow.ipc.batch.codecs import decompress
from shmarrow.ipc.compression import CODECS


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
    """Whether it was decompressed together with others or alone."""
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


def test_memory_that_cannot_be_had_is_our_error() -> None:
    for size in (1 << 62, (1 << 63) - 1):
        with pytest.raises(sa.LimitExceeded, match=f"a buffer: not enough memory to decompress {size} bytes"):
            decompress(CODECS["lz4"], EMPTY, size, "a buffer")


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
        for _ in range(8):
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
def late():
    columns = sa.ipc.open_file(place.getvalue()).get_batch(0).columns
    print(sum(int(column.to_numpy()[-1]) for column in columns))
atexit.register(late)
"""
    assert python(code) == f"{4 * 299_999}\n"
