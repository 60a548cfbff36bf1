"""Faults against the store, with real processes: kills, stops, forks, other users, full disks, power cuts, under load.

``make soak`` runs the long form, in ten minutes at most, and prints what was done and what was found; the store's tests
run each scenario in a short form. What is counted:

* faults: processes killed, stopped or forked, clocks set, attacks, power cuts, requests refused for want of room;
* put, read: objects published, and objects read and compared with what was put;
* lost: changes that were reported as done and are not there, or objects that are gone without a reason;
* torn: objects whose bytes are not what was put, at any moment while somebody had them;
* left over: objects found after their time or their removal, and files that are there after everything was removed;
* stolen: what users could do who must not, and what they hid from those who may.

What processes do, and how it is known what must be there, says ``soak_work.py``. Wherever there is a C compiler, the
program of ``protocol/store.c`` looks at every invariant of the store after each round.
"""

from __future__ import annotations

import argparse
import atexit
import fcntl
import functools
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import lab
import numpy as np
from soak_work import LINE, Ledger, batch, number_of

import shmarrow as sa
from shmarrow.store.protocol import COMMIT, CONTROL, PINS

Store = sa.Store
Found = Counter[str]
ZEROS = ("lost", "torn", "left over", "stolen")
COLUMNS = ("faults", "put", "read", *ZEROS)
MOST_SECONDS = 600.0
ROUND = 5.0
HERE = Path(__file__).parent
WORK = (HERE / "soak_work.py").read_text(encoding="utf-8")
A, B, GROUP, READER, STRANGER = 61001, 61002, 61100, 61003, 61004
"""Users, and the group of the first two, and of the reader."""


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
    with suppress(sa.ObjectNotFound), sa.Store(where, create=False, trust=True) as store:
        left = emptied(store)
        if not left:
            store.destroy()
        return left + os.path.exists(place(where))
    return os.path.exists(place(where))


def emptied(store: Store) -> int:
    """Remove all objects; how many files and bytes of which kind there are still."""
    store.clear()
    store.collect()
    stats, spill = store.stats(), store.settings.spill
    found = [
        *leftovers(store.path),
        *([] if spill is None else [file for _, _, files in os.walk(spill) for file in files]),
    ]
    counted = [stats.objects, stats.nbytes, stats.removed, stats.drafts, stats.spilled]
    if found or any(counted):
        complain("left over", store.path, found[:5], stats)
    return len(found) + sum(map(bool, counted))


def forked(work: Callable[[], Any]) -> int:
    """Run ``work`` in a forked child; its pid."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            complain(f"child {os.getpid()}: {type(error).__name__}: {error}")
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    """Wait for a child; its exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def complain(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


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

    def __enter__(self) -> Report:
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        os.unlink(self.path)


@contextmanager
def killed_at_end(children: list[int]) -> Iterator[None]:
    """See to it that no child outlives the block."""
    try:
        yield
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


@functools.cache
def checker() -> str | None:
    """The program that checks stores; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    folder = tempfile.mkdtemp(prefix="shmarrow-soak-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    words = [compiler, "-std=gnu11", "-O1", str(HERE / "protocol" / "store.c"), "-o", f"{folder}/store"]
    subprocess.run(words, check=True, timeout=60)
    return f"{folder}/store"


def check(where: str) -> None:
    """Every invariant of a store that nobody changes."""
    if program := checker():
        ran = subprocess.run([program, "check", place(where)], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, f"the store {where} is inconsistent:\n{ran.stdout}{ran.stderr}"


# --- what must be there -----------------------------------------------------------------------------------------


class Judge:
    """Reads what workers say, and looks whether the store has it."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.read_lines = 0
        self.ledgers: dict[str, Ledger] = {}
        self.begun: set[str] = set()
        self.found: Found = Counter()
        self.sums: Found = Counter()
        self.adding: dict[str, str] = {}
        self.once: dict[str, set[str]] = {}

    def read(self, known: bool = True) -> None:
        """Take in what was said since; ``known``: before anything happened that may undo it."""
        lines = self.report.lines(self.read_lines)
        self.read_lines += len(lines)
        for who, kind, *words in lines:
            if kind in (">", ".", "!"):
                self.ledgers.setdefault(who, Ledger()).take([kind, *words], known)
                self.found["faults"] += kind == "!"
            elif kind in ("lost", "torn", "late", "failed"):
                complain(who, kind, *words)
                self.found["left over" if kind == "late" else "lost" if kind == "failed" else kind] += 1
            elif kind in ("put", "read", "fault"):
                self.found["faults" if kind == "fault" else kind] += int(words[0]) if words else 1
            elif kind == "once":
                self.once.setdefault(words[0], set()).add(words[1])
            elif kind == "begun":
                self.begun.add(who)
            if kind == "+":
                self.adding[who] = words[0]
            elif kind in ("=", "!") and who in self.adding:
                self.sums[self.adding.pop(who)] += kind == "="

    def look(self, store: Store, ids: list[str], vanish: str) -> None:
        """Compare what dead workers left with what they said, and remove it."""
        for _ in range(3):
            self.read()
            mine = {who: ledger for who, ledger in self.ledgers.items() if who.partition("f")[0] in ids}
            wrong = [each for ledger in mine.values() for each in ledger.wrong(self.values(store, ledger), vanish)]
            if not wrong:
                break
            time.sleep(0.05)  # forked children live a moment longer
        for name, number, expected in wrong:
            complain("lost:", name, "is", number, "expected", expected)
        self.found["lost"] += len(wrong)
        for who in mine:
            del self.ledgers[who]
            store.delete(prefix=f"{who}/")

    def values(self, store: Store, ledger: Ledger) -> dict[str, int]:
        found = {}
        for name in ledger.names():
            try:
                number = number_of(store.get(name))
            except sa.ObjectNotFound:
                continue
            except sa.InvalidData as error:
                complain("torn:", name, error)
                number = None
            found[name] = -1 if number is None else number
            self.found["torn" if number is None else "read"] += 1
        return found

    def look_at_shared(self, store: Store) -> None:
        """Everybody added one, none is lost; everybody got what one computed."""
        self.read()
        for name in {*self.sums, *self.adding.values()}:
            open_ends = sum(each == name for each in self.adding.values())
            found = store.get(name) if name in store else 0
            if not self.sums[name] <= found <= self.sums[name] + open_ends:
                complain("lost:", name, "is", found, "expected", self.sums[name], "and up to", open_ends)
                self.found["lost"] += 1
        self.found["lost"] += sum(len(numbers) > 1 for numbers in self.once.values())
        self.sums.clear()
        self.adding.clear()
        self.once.clear()


# --- scenarios --------------------------------------------------------------------------------------------------


@contextmanager
def worker(stack: ExitStack, where: str, **given: Any) -> Iterator[lab.Child]:
    with lab.child(WORK + "\nwork(where, **given)", where=where, given=given) as child:
        yield child


def storm(
    where: str,
    end: float,
    choice: random.Random,
    *,
    settings: dict[str, Any] | None = None,
    faults: tuple[str, ...] = ("kill",),
    workers: int = 4,
    threads: int = 1,
    users: tuple[dict[str, Any], ...] = ({},),
    beside: Callable[[], Any] = lambda: None,
    **given: Any,
) -> Found:
    """Let workers use a store, and do something to one of them again and again.

    ``settings`` are those of the store, ``given`` is for :func:`soak_work.work`; ``beside`` is called between faults.
    """
    owned = given.get("owned", False)
    vanish = "owner" if owned else given.get("vanish", "")
    numbers = iter(range(1, 1_000_000))
    with Report() as report, lab.wall_clock() if "clock" in faults else nullcontext() as clock:
        judge = Judge(report)
        if users != ({},):
            lab.run(
                "import shmarrow as sa; sa.Store(where, **settings).close()", where=where, settings=settings, **users[0]
            )
        store = sa.Store(where, trust=True, **(settings or {}))
        while time.monotonic() < end - 0.3 or not judge.found["faults"]:
            until = min(end, time.monotonic() + ROUND)
            children: dict[tuple[str, ...], tuple[ExitStack, lab.Child]] = {}

            def start() -> None:
                ids = tuple(str(next(numbers)) for _ in range(threads))
                words = {"ids": ids, "report": report.path, "seed": choice.randrange(1 << 30), "end": until, **given}  # noqa: B023
                stack = ExitStack()
                code = WORK + "\nwork(where, **words)"
                user = users[int(ids[0]) % len(users)]
                child = stack.enter_context(lab.child(code, where=where, words=words, **user))
                children[ids] = stack, child  # noqa: B023

            def finish(ids: tuple[str, ...], kill: bool) -> None:
                stack, child = children.pop(ids)  # noqa: B023
                with stack:
                    child.kill() if kill else child.result(60)
                judge.look(store, list(ids), vanish)

            for _ in range(workers):
                start()
            while time.monotonic() < until:
                ids = choice.choice([*children])
                fault = choice.choice(faults)
                patience = time.monotonic() + 1
                while ids[0] not in judge.begun and choice.random() < 0.99 and time.monotonic() < patience:
                    time.sleep(0.001)
                    judge.read()
                time.sleep(choice.random() * choice.choice((0.002, 0.02, 0.1)))
                judge.found["faults"] += 1
                if fault == "kill":
                    finish(ids, True)
                    start()
                elif fault == "stop":
                    children[ids][1].kill(signal.SIGSTOP)
                    time.sleep(choice.random() * 0.1)
                    children[ids][1].kill(signal.SIGCONT)
                elif clock is not None:
                    clock.set_back(choice.uniform(-1e6, 1e6))
                beside()
            for turn, ids in enumerate([*children]):
                finish(ids, turn % 2 == 0)
            judge.look_at_shared(store)
            check(where)
            if owned:
                store.collect()
                judge.found["left over"] += len(store.names())
            judge.found["left over"] += emptied(store)
            check(where)
        store.close()
    judge.found["left over"] += cleaned(where)
    return judge.found
