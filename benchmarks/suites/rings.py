"""Frames through a ring, beside one made by hand: slots in ``SharedMemory``, and two semaphores.

Times are from the moment at which a frame is filled, in a slot that the writer has, to the reader's first value. The
one made by hand has one reader, which the writer waits for.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import posix_ipc
from harness.bench import Bench, elapsed
from harness.figures import within

import shmarrow as sa
from suites.objects import waiting

IMAGE = 1080, 1920, 3
SLOTS = 4
SAID = "dd"
FREE, FULL = "free", "full"


class Side:
    """A writer and a reader in a process of its own, which says when it had the first value, and its CPU time.

    Attributes
    ----------
    took : list of float
        Seconds of each frame.
    cpu : list of float
        Seconds of CPU of both processes for each frame.
    """

    def __init__(self, begin: Callable[[], Any], publish: Callable[[], Any], values: Any, hear: Any) -> None:
        self._begin = begin
        self._publish = publish
        self._values = values
        self._hear = hear
        self._before = hear()[1]
        self.took: list[float] = []
        self.cpu: list[float] = []

    def frame(self, _: Any) -> float:
        """Pass one frame to the reader, which waits by then."""
        time.sleep(0.001)
        before = time.process_time()
        memory = self._begin()
        start = time.perf_counter()
        memory[:] = self._values
        self._publish()
        mine = time.process_time() - before
        value, total = self._hear()
        self.cpu.append(mine + total - self._before)
        self._before = total
        self.took.append(value - start)
        return value - start


def say(descriptor: int) -> None:
    os.write(descriptor, struct.pack(SAID, time.perf_counter(), time.process_time()))


@contextmanager
def ring(name: str, values: Any) -> Iterator[Side]:
    """Ours: a batch of one column."""
    rows = values[None]
    with sa.Ring(name, like=sa.record_batch({"image": rows}), slots=SLOTS) as writer:

        def read(descriptor: int) -> None:
            with sa.Ring(name) as reader:
                say(descriptor)
                for batch in reader:
                    assert batch["image"].to_numpy()[0].flat[0] == 1
                    say(descriptor)

        with waiting(read, SAID) as hear:
            block: Any = None

            def begin() -> Any:
                nonlocal block
                block = writer.write()
                return block.__enter__()["image"].to_numpy()

            yield Side(begin, lambda: block.__exit__(None, None, None), rows, hear)


@contextmanager
def by_hand(name: str, values: Any) -> Iterator[Side]:
    """Theirs: four slots, and a semaphore each for free and for full ones."""
    memory = shared_memory.SharedMemory(name, True, SLOTS * values.nbytes)
    free, full = (posix_ipc.Semaphore(f"/{name}-{each}", posix_ipc.O_CREX) for each in (FREE, FULL))
    slots = [np.ndarray(values.shape, values.dtype, memory.buf, i * values.nbytes) for i in range(SLOTS)]
    for _ in slots:
        free.release()
    turn = itertools.cycle(range(SLOTS))

    def read(descriptor: int) -> None:
        say(descriptor)
        for slot in itertools.cycle(slots):
            full.acquire()
            assert slot.flat[0] == 1
            say(descriptor)
            free.release()

    def begin() -> Any:
        free.acquire()
        return slots[next(turn)]

    try:
        with waiting(read, SAID) as hear:
            yield Side(begin, full.release, values, hear)
    finally:
        for each in (free, full):
            each.unlink()
        memory.unlink()
        slots.clear()
        with suppress(BufferError):
            memory.close()


def passed(bench: Bench) -> None:
    """From the writer to a reader that waits."""
    name = f"shmarrow-bench-ring-{os.getpid()}"
    frames = {"a frame of 6.2 MB": (np.ones(IMAGE, "u1"), 1.5), "800 bytes": (np.ones(100), 2.0)}
    for what, (values, times) in frames.items():
        with ring(f"shm:{name}", values) as ours, by_hand(f"{name}-by-hand", values) as theirs:
            sides = {"shmarrow": ours.frame, "by hand": theirs.frame}
            title = f"{what}, filled in place, until a process that waits has the first value"
            bench.row(title, sides, within(times), 200, time=elapsed)
            if len(ours.took) < 10 or len(theirs.took) < 10:
                continue
            slow = [float(np.quantile(each.took[5:], 0.99)) for each in (ours, theirs)]
            limit = 2 * slow[1] if values.nbytes < 1000 else None
            bench.limit(f"{what}: 99th percentile", slow[:1], limit, peers={"by hand": slow[1]})
            cpu = [float(np.median(each.cpu[5:])) for each in (ours, theirs)]
            limit = None if values.nbytes < 1000 else 1.5 * cpu[1]
            bench.limit(f"{what}: CPU of writer and reader", cpu[:1], limit, peers={"by hand": cpu[1]})


PARTS = {"passed": passed}
