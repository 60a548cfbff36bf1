"""Other processes of the suite ``store``: crowds, and fresh processes."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suites._store_sides import Opener

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
