"""Parts of ``store.py`` that need other processes: crowds, fresh ones, one that watches a lock, another checkout."""

from __future__ import annotations

import fcntl
import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _store_sides import Opener

import shmarrow as sa

LOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, process."""


# --- a crowd ----------------------------------------------------------------------------------------------------


class Crowd(NamedTuple):
    """What many processes did with one store.

    Attributes
    ----------
    get, put : float
        Seconds of wall-clock time for each get, and each put, of all processes together.
    put_p99 : float
        Seconds that 99 of 100 puts take at most.
    """

    get: float
    put: float
    put_p99: float


def crowd(opener: Opener, names: list[str], value: Any, seconds: float, directory: Path) -> Crowd:
    """8 processes that get and 4 that put, all at the same time, each by random names."""
    start = time.monotonic() + 0.5
    children = {}
    for number in range(12):
        path = directory / f"times-{number}"
        child = os.fork()
        if child == 0:
            try:
                _member(opener, names, value if number >= 8 else None, start, seconds, path)
                os._exit(0)
            except BaseException as error:
                print(f"{opener}: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(1)
        children[child] = path
    failed = [status for status in (os.waitpid(child, 0)[1] for child in children) if status]
    if failed:
        raise RuntimeError(f"{len(failed)} of 12 processes of a crowd failed")
    took = [np.fromfile(path) for path in children.values()]
    for path in children.values():
        path.unlink()
    gets, puts = sum(map(len, took[:8])), np.concatenate(took[8:])
    return Crowd(seconds / gets, seconds / len(puts), float(np.quantile(puts, 0.99)))


def _member(opener: Opener, names: list[str], value: Any, start: float, seconds: float, path: Path) -> None:
    side = opener()
    choice = random.Random(os.getpid())
    side.get(names[0])
    took = []
    time.sleep(max(0.0, start - time.monotonic()))
    end = start + seconds
    while (before := time.monotonic()) < end:
        name = choice.choice(names)
        if value is None:
            side.get(name)
        else:
            side.put(name, value)
        took.append(time.monotonic() - before)
    np.array(took).tofile(path)


# --- fresh processes --------------------------------------------------------------------------------------------

FIRST = """
import sys, time
before = time.perf_counter()
import numpy as np, shmarrow as sa
sa.Store  # imported when it is first asked for
imported = time.perf_counter()
value = sa.Store(sys.argv[1]).get(sys.argv[2])[0]
first = time.perf_counter()
assert value == 1
print(first - imported, imported - before)
"""

FIRST_SHARED_MEMORY = """
import sys, time
before = time.perf_counter()
import numpy as np
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *_: None  # or it would remove what is not its own
imported = time.perf_counter()
memory = shared_memory.SharedMemory(name=sys.argv[1])
value = np.ndarray(100, np.float64, memory.buf)[0]
first = time.perf_counter()
assert value == 1
print(first - imported, imported - before)
"""

HELD = """
import resource, sys
import shmarrow as sa
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
store, held = sa.Store(sys.argv[1]), []
take = getattr(store, sys.argv[2])
try:
    for number in range(int(sys.argv[3])):
        held.append(take(f"object-{number:07d}"))
except (sa.ShmarrowError, OSError) as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
print(len(held))
"""


def fresh(program: str, *words: str) -> list[float]:
    """The numbers that a program prints in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(sa.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *words], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr}")
    return [float(word) for word in done.stdout.split()]


# --- the commit lock --------------------------------------------------------------------------------------------


class Holds(NamedTuple):
    """What a process saw that asked for a lock's holder without pause.

    Attributes
    ----------
    longest : float
        Seconds between the first and the last time that one process was seen to hold it, in one go.
    pause : float
        The longest that the watching process itself did not run, in seconds; it cannot tell holds from each other that
        end and begin within such a pause, and counts them as one.
    seen : int
        How many it saw.
    """

    longest: float
    pause: float
    seen: int


def watch_lock(path: Path, work: Callable[[], object]) -> Holds:
    """The longest time that the lock on the first byte of a file is held while ``work`` runs in this process."""
    processors = sorted(os.sched_getaffinity(0))
    heard, say = os.pipe()
    stop_heard, stop = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(stop)
            os.sched_setaffinity(0, processors[-1:])
            with suppress(OSError):  # where it may, it runs before all others, which would hide the ends of holds
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            _poll(path, say, stop_heard)
        finally:
            os._exit(1)
    try:
        os.read(heard, 1)  # it has begun
        os.sched_setaffinity(0, processors[:1])
        work()
    finally:
        os.sched_setaffinity(0, processors)
        os.close(stop)
        answer = os.read(heard, 24)
        os.waitpid(child, 0)
        for each in (heard, say, stop_heard):
            os.close(each)
    return Holds(*struct.unpack("ddq", answer))


def _poll(path: Path, say: int, stop: int) -> None:
    os.set_blocking(stop, False)
    lock = os.open(path, os.O_RDWR)
    question = LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    holder, since, last = 0, 0.0, time.perf_counter()
    longest = pause = 0.0
    seen = turns = 0
    os.write(say, b"x")
    while True:
        kind, _, _, _, found = LOCK.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, question))
        now = time.perf_counter()
        pause = max(pause, now - last)
        last = now
        found = 0 if kind == fcntl.F_UNLCK else found
        if found != holder:
            holder, since = found, now
            seen += found != 0
        if holder and now - since > longest:
            longest = now - since
        turns += 1
        if turns % 64 == 0:
            try:
                if os.read(stop, 1) == b"":
                    break
            except BlockingIOError:
                pass
    os.write(say, struct.pack("ddq", longest, pause, seen))
    os._exit(0)


# --- another checkout -------------------------------------------------------------------------------------------


class Worker:
    """A process that does what :data:`TASKS` names, with the package of one checkout."""

    def __init__(self, checkout: Path, store: Path) -> None:
        words = [sys.executable, __file__, str(store)]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self, task: str, size: int) -> float:
        """The seconds that a task took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([task, size]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that was to {task} {size} bytes has ended")
        return float(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def workers(**checkouts: tuple[Path, Path]) -> Iterator[dict[str, Worker]]:
    """Processes by name, each with the checkout and the path of the store that it has."""
    started = {name: Worker(*each) for name, each in checkouts.items()}
    try:
        yield started
    finally:
        for worker in started.values():
            worker.close()


COLUMNS = 16


def _serve(where: str) -> None:
    store = sa.Store(where)
    names = [f"column_{i}" for i in range(COLUMNS)]
    schema = sa.schema([(name, sa.float64()) for name in names])
    given: dict[int, Any] = {}

    def put(size: int) -> float:
        if size not in given:
            values = np.random.default_rng(0).random((COLUMNS, size // 8 // COLUMNS))
            given[size] = sa.record_batch(dict(zip(names, values, strict=True)))
        start = time.perf_counter()
        store.put("x", given[size])
        seconds = time.perf_counter() - start
        store.delete("x")
        return seconds

    def fill(size: int) -> float:
        column = np.ones(size // 8 // COLUMNS)
        start = time.perf_counter()
        with store.create("x", schema, len(column)) as draft:
            for number, name in enumerate(names):
                np.multiply(column, number, out=draft[name])
        seconds = time.perf_counter() - start
        store.delete("x")
        return seconds

    def place(size: int) -> float:
        given.clear()
        store.put("placed", np.ones(size // 8))
        return 0.0

    def get(_: int) -> float:
        took = []
        for _ in range(200):
            start = time.perf_counter()
            value = store.get("placed")[0]
            took.append(time.perf_counter() - start)
        assert value == 1
        return float(np.median(took))

    def remove(_: int) -> float:
        store.delete("placed")
        return 0.0

    tasks = {task.__name__: task for task in (put, fill, place, get, remove)}
    for line in sys.stdin:
        task, size = json.loads(line)
        print(tasks[task](size), flush=True)
    store.close()


if __name__ == "__main__":
    _serve(sys.argv[1])
