"""Other processes of the suite ``store``: crowds, fresh processes, one that watches a lock."""

from __future__ import annotations

import fcntl
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suites._store_sides import Opener

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
