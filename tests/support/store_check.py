"""Helpers of the store's tests: values that show whether they are whole, leftovers of a store, reports.

``check`` looks at every invariant of a store, with the program of ``protocol/store.c``, wherever there is a C compiler.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from processes import complain
from soak_work import LINE, batch, number_of
from waiting import wait_until

import shmarrow as sa
from shmarrow.store.protocol import COMMIT, CONTROL, PINS

__all__ = ["Report", "batch", "check", "checker", "cleaned", "emptied", "intact", "leftovers", "place"]
HERE = Path(__file__).parent


def intact(got: sa.RecordBatch) -> bool:
    """Whether a batch is one that was put, from its first value to its last."""
    return number_of(got) is not None


def place(where: str) -> str:
    """The directory of a store."""
    return f"/dev/shm/{where.removeprefix('shm:')}" if where.startswith("shm:") else where


def leftovers(where: str) -> list[str]:
    """All files of a store but those that every store has."""
    with suppress(FileNotFoundError):
        return sorted(set(os.listdir(place(where))) - {CONTROL, PINS, COMMIT})
    return []


def cleaned(where: str) -> int:
    """Remove everything as a user does, the store last; how many files are there still."""
    gc.collect()
    with suppress(sa.ObjectNotFound), sa.Store(where, create=False, accept_users=True) as store:
        left = emptied(store)
        if not left:
            store.destroy()
        return left + os.path.exists(place(where))
    return os.path.exists(place(where))


def emptied(store: sa.Store) -> int:
    """Remove all objects; how many files of objects are there still, and how many counts are not 0."""
    store.clear()
    store.collect()
    stats = store.stats()
    found = leftovers(store.path)
    counted = [stats.objects, stats.nbytes, stats.removed]
    if found or any(counted):
        complain("left over:", store.path, found[:5], stats)
    return len(found) + sum(map(bool, counted))


class Report:
    """A file of lines that processes append to, each line whole, and that outlives all of them.

    All lines have one size, so that none crosses a page: between two pages the kernel looks for a SIGKILL, and leaves
    what it has written so far, to which the next line of another process is glued, and both are misread.
    """

    def __init__(self) -> None:
        self.fd, self.path = tempfile.mkstemp(prefix="shmarrow-soak-")
        os.chmod(self.path, 0o666)
        os.set_inheritable(self.fd, True)

    def say(self, *words: object) -> None:
        line = (" ".join(map(str, words)).ljust(LINE - 1) + "\n").encode()
        assert os.write(self.fd, line) == len(line) == LINE, line

    def lines(self, start: int = 0) -> list[list[str]]:
        """The words of each line, from line ``start`` on."""
        start *= LINE
        lines = os.pread(self.fd, os.fstat(self.fd).st_size - start, start).decode().splitlines()
        assert all(len(line) == LINE - 1 for line in lines), "a line of the report is torn"
        return [line.split() for line in lines]

    @property
    def count(self) -> int:
        """How many lines there are."""
        return os.fstat(self.fd).st_size // LINE

    def wait(self, count: int = 1) -> list[list[str]]:
        """Wait until there are so many lines; the words of each."""
        wait_until(lambda: self.count >= count, f"{count} lines")
        return self.lines()

    def __enter__(self) -> Report:
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        os.unlink(self.path)


@functools.cache
def checker() -> str | None:
    """The program that checks stores; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    folder = tempfile.mkdtemp(prefix="shmarrow-soak-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    words = [compiler, "-std=gnu11", "-O1", str(HERE / "store.c"), "-o", f"{folder}/store"]
    subprocess.run(words, check=True)
    return f"{folder}/store"


def check(where: str) -> None:
    """Every invariant of a store that nobody changes."""
    if program := checker():
        ran = subprocess.run([program, "check", place(where)], capture_output=True, text=True)
        assert ran.returncode == 0, f"the store {where} is inconsistent:\n{ran.stdout}{ran.stderr}"
