"""Faults against the store, with real processes: killed writers and readers, races for names, eviction under all.

``make soak`` runs the long form, in ten minutes at most, and prints what was done and what was found; the store's tests
run each scenario in a short form. What is counted:

* put, read: objects published, and objects read and compared with what was put;
* lost: objects that were published, and are gone without having been removed, evicted or replaced;
* torn: objects whose bytes are not what was put, at any moment while somebody had them;
* left over: files that are there after everything was removed and collected.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import shmarrow as sa
from shmarrow.store.protocol import COMMIT, CONTROL, PINS

MOST_SECONDS = 600.0
ROWS = (1, 100, 20_000, 100_000)
COLUMNS = ("faults", "put", "read", "lost", "torn", "left over")
STEP = 7


def batch(seed: int, rows: int) -> sa.RecordBatch:
    """A batch whose every value follows from its seed."""
    return sa.record_batch({"seed": np.full(rows, seed), "value": seed + STEP * np.arange(rows)})


def intact(got: sa.RecordBatch) -> bool:
    """Whether a batch is one that was put, from its first value to its last."""
    seeds, values = got["seed"].to_numpy(), got["value"].to_numpy()
    return bool((seeds == seeds[0]).all() and (values == seeds[0] + STEP * np.arange(len(values))).all())


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
    with suppress(sa.ObjectNotFound), sa.Store(where, create=False) as store:
        store.clear()
        store.collect()
        left = len(leftovers(where))
        if not left:
            store.destroy()
        return left + os.path.exists(place(where))
    return os.path.exists(place(where))


def forked(work: Callable[[], Any]) -> int:
    """Run ``work`` in a forked child; its pid."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"child {os.getpid()}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    """Wait for a child; its exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Report:
    """A file of lines that processes append to, each line whole, and that outlives all of them.

    All lines have one size, so that none crosses a page: between two pages the kernel looks for a SIGKILL, and leaves
    what it has written so far, to which the next line of another process is glued, and both are misread.
    """

    SIZE = 64

    def __init__(self) -> None:
        self.fd, path = tempfile.mkstemp()
        os.unlink(path)
        os.set_inheritable(self.fd, True)

    def say(self, *words: object) -> None:
        line = (" ".join(map(str, words)).ljust(self.SIZE - 1) + "\n").encode()
        assert os.write(self.fd, line) == len(line) == self.SIZE, line

    def lines(self, start: int = 0) -> list[list[str]]:
        """The words of each line, from line ``start`` on."""
        start *= self.SIZE
        lines = os.pread(self.fd, os.fstat(self.fd).st_size - start, start).decode().splitlines()
        assert all(len(line) == self.SIZE - 1 for line in lines), "a line of the report is torn"
        return [line.split() for line in lines]

    def __enter__(self) -> Report:
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


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


# --- scenarios --------------------------------------------------------------------------------------------------


def _put_one(store: sa.Store, name: str, number: int, choice: random.Random) -> None:
    """Publish one object in one of the ways that there are."""
    rows = choice.choice(ROWS)
    made = batch(number, rows)
    way = choice.randrange(4)
    if way == 0:
        store.put(name, made)
    elif way == 1:
        store.put(name, made, overwrite=True)
    elif way == 2:
        with store.create(name, made.schema, rows) as draft:
            draft["seed"][:] = made["seed"].to_numpy()
            draft["value"][:] = made["value"].to_numpy()
    else:
        with store.writer(name, made.schema) as writer:
            writer.write(made)


def _read_until_killed(where: str, report: Report) -> None:
    choice = random.Random(os.getpid())
    with sa.Store(where) as store:
        while True:
            names = store.names() or [""]
            name = choice.choice(names)
            try:
                got = store.get(name)
            except (sa.ObjectNotFound, sa.InvalidArgument):
                continue
            report.say("read" if intact(got if isinstance(got, sa.RecordBatch) else got.to_batches()[0]) else "torn")


def killed_writers(where: str, kills: int, end: float) -> Counter[str]:
    """Kill writers at random moments, in all ways of writing, while readers read everything that has a name."""
    found: Counter[str] = Counter()
    choice = random.Random(kills)

    # What is put within a capacity may be removed again, so it is not missed, and does not push out what would be.
    limited = f"{where}-limited"

    def write(report: Report, seed: int, options: dict[str, Any]) -> None:
        mine = random.Random(seed)
        store = sa.Store(limited if "capacity" in options else where, **options)
        report.say("began", seed)
        for number in range(1_000_000):
            name = f"{seed}-{number}"
            _put_one(store, name, seed * 1000 + number, mine)
            report.say("limited" if "capacity" in options else "put", name)

    with Report() as report, sa.Store(limited, 1 << 23):
        readers = [forked(lambda place=place: _read_until_killed(place, report)) for place in (where, limited)]
        with killed_at_end(readers), sa.Store(where) as store:
            store.put("first", batch(0, 1))  # what is imported for the first object, children have already
            published = 0
            for seed in range(kills):
                if time.monotonic() > end:
                    break
                options = choice.choice([{}, {}, {"capacity": 1 << 23}, {"owned": True}])
                child = forked(lambda: write(report, seed, options))  # noqa: B023 - it runs now
                while ["began", str(seed)] not in report.lines(published):
                    time.sleep(0.0005)
                time.sleep(choice.random() * choice.choice((0.0005, 0.004, 0.03)))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                found["faults"] += 1
                said = report.lines(published)
                lost = [line[1] for line in said if line[0] == "put" and line[1] not in store]
                if lost:
                    print(f"lost: {lost}; said last: {said[-3:]}", file=sys.stderr, flush=True)
                found["lost"] += len(lost)
                published += len(said)
                store.collect()
                store.clear()
        counts = Counter(line[0] for line in report.lines())
        found["put"], found["read"], found["torn"] = counts["put"] + counts["limited"], counts["read"], counts["torn"]
    found["left over"] += cleaned(limited)
    found["left over"] += cleaned(where)
    return found


def racing_writers(where: str, rounds: int, end: float, writers: int = 16) -> Counter[str]:
    """Let writers race for one name: one wins each round, the others are told, the object is the winner's."""
    found: Counter[str] = Counter()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(writers)
    last = context.Value("q", rounds)

    def race(report: Report, number: int) -> None:
        with sa.Store(where) as store:
            for turn in range(rounds):
                if number == 0 and time.monotonic() > end:
                    last.value = turn
                barrier.wait(60)
                if turn >= last.value:
                    return
                try:
                    store.put(f"race-{turn}", batch(turn * writers + number, 50))
                except sa.ObjectExists:
                    report.say("refused", turn)
                else:
                    report.say("won", turn, number)

    with Report() as report:
        children = [forked(lambda: race(report, number)) for number in range(writers)]  # noqa: B023
        with killed_at_end(children):
            statuses = [ended(child) for child in children]
        lines = report.lines()
    assert statuses == [0] * writers, statuses
    turns = min(rounds, last.value)
    won = [(int(line[1]), int(line[2])) for line in lines if line[0] == "won"]
    found["put"] = len(won)
    found["faults"] = sum(line[0] == "refused" for line in lines)
    assert sorted(turn for turn, _ in won) == list(range(turns)), "not one winner in each round"
    assert found["faults"] == turns * (writers - 1)
    with sa.Store(where) as store:
        for turn, number in won:
            got = store.get(f"race-{turn}")
            found["read"] += 1
            found["torn"] += not intact(got)
            found["lost"] += int(got["seed"].to_numpy()[0]) != turn * writers + number
            del got
    found["left over"] += cleaned(where)
    return found


def eviction(where: str, seconds: float, end: float, stretch: float = 0.0) -> Counter[str]:
    """Evict and collect under attaches, publishes, overwrites and deaths: nobody sees bytes change or names vanish.

    ``stretch`` is how many seconds at most pass between the last look at a name and its removal.
    """
    end = min(end, time.monotonic() + seconds)
    found: Counter[str] = Counter()
    pinned = [f"pinned-{i}" for i in range(8)]

    def going() -> bool:
        return time.monotonic() < end

    def key_of(store: sa.Store, name: str) -> str:
        entry = store._catalog.find(name.encode())
        return "gone" if entry is None else str(entry.generation)

    def write(report: Report, number: int) -> None:
        choice = random.Random(number)
        with sa.Store(where) as store:
            turn = 0
            while going():
                turn += 1
                name = f"over-{number}-{turn % 5}" if choice.random() < 0.6 else f"once-{number}-{turn}"
                store.put(name, batch(turn * 10 + number, choice.choice(ROWS)), overwrite=name.startswith("over"))
                report.say("put", name, key_of(store, name))
                while len(store.names()) > 300 and going():
                    time.sleep(0.002)

    def read(report: Report, number: int) -> None:
        choice = random.Random(os.getpid())
        held: list[sa.RecordBatch] = []
        with sa.Store(where) as store:
            while going():
                try:
                    held.append(store.get(choice.choice(store.names() or ["none"])))
                except sa.ObjectNotFound:
                    continue
                if len(held) > 6:
                    report.say("read" if intact(held.pop(choice.randrange(len(held)))) else "torn")
        for got in held:
            report.say("read" if intact(got) else "torn")

    def evict(report: Report, number: int) -> None:
        choice = random.Random(number)
        unlink = os.unlink

        def slowly(path: str, **given: Any) -> None:
            time.sleep(choice.random() * stretch)
            unlink(path, **given)

        if stretch:
            os.unlink = slowly
        with sa.Store(where) as store:
            remove = store._space._remove

            def told(entry: Any, *given: Any) -> None:
                remove(entry, *given)
                report.say("evicted", entry.name.decode(), entry.generation)

            store._space._remove = told  # type: ignore[method-assign]
            while going():
                with suppress(sa.StoreFull):
                    store.evict(choice.randrange(1, 1 << 21))
                if choice.random() < 0.2:
                    store.collect()
                time.sleep(choice.random() * 0.004)

    with sa.Store(where) as store:
        for number, name in enumerate(pinned):
            store.put(name, batch(number, 1000))
        keep = [store.get(name) for name in pinned]
        with Report() as report:
            works = [write, write, read, evict, evict]
            children = [forked(lambda: work(report, number)) for number, work in enumerate(works)]  # noqa: B023
            victims: list[int] = []
            with killed_at_end(children + victims):
                while going():
                    victims.append(forked(lambda: read(report, 99)))
                    time.sleep(0.03)
                    os.kill(victims[-1], signal.SIGKILL)
                    ended(victims.pop())
                    found["faults"] += 1
                    gone = [name for name in pinned if name not in store]
                    if gone:
                        print(f"lost, though attached: {gone}", file=sys.stderr, flush=True)
                    found["lost"] += len(gone)
                statuses = [ended(child) for child in children]
            assert statuses == [0] * len(works), statuses
            lines = report.lines()
        found["torn"] += sum(not intact(got) for got in keep)
        evicted = {line[2] for line in lines if line[0] == "evicted"}
        latest = {line[1]: line[2] for line in lines if line[0] == "put"}
        for name, key in latest.items():
            now = key_of(store, name)
            if key != "gone" and key not in evicted and now != key:
                said = [line for line in lines if name in line]
                print(f"lost: {name}, which was {key} and is {now}; said of it: {said}", file=sys.stderr, flush=True)
                found["lost"] += 1
        counts = Counter(line[0] for line in lines)
        found["put"], found["read"], found["evicted"] = counts["put"], counts["read"], counts["evicted"]
        found["torn"] += counts["torn"]
        del keep
    found["left over"] += cleaned(where)
    return found


def killed_readers(where: str, kills: int, end: float) -> Counter[str]:
    """Kill readers while they have objects attached: what they held is free again, at once."""
    found: Counter[str] = Counter()
    with sa.Store(where) as store, Report() as report:

        def hold() -> None:
            mine = sa.Store(where)
            got = [mine.get(name) for name in mine.names()]
            report.say("holding", len(got))
            time.sleep(60)

        for turn in range(kills):
            if time.monotonic() > end:
                break
            for number in range(4):
                store.put(f"held-{turn}-{number}", batch(number, 100))
            found["put"] += 4
            child = forked(hold)
            with killed_at_end([child]):
                while len(report.lines()) <= turn:
                    time.sleep(0.0005)
                try:
                    found["lost"] += len(store.evict(1))  # everything is pinned
                except sa.StoreFull:
                    found["read"] += len(store)
                os.kill(child, signal.SIGKILL)
                ended(child)
            found["faults"] += 1
            found["left over"] += 4 - len(store.evict(sum(each.allocated for each in store.scan())))
    found["left over"] += cleaned(where)
    return found


# --- the report -------------------------------------------------------------------------------------------------


def main() -> int:
    """Run all scenarios, on tmpfs and on disk; 1 where anything was lost, torn or left over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="at most so long (default: %(default)s)")
    seconds = min(parser.parse_args().seconds, MOST_SECONDS)
    start = time.monotonic()
    disk = tempfile.mkdtemp(prefix="shmarrow-soak-")
    store = f"{disk}/store"
    memory = f"shm:soak-{os.getpid()}"
    runs: list[tuple[str, Callable[[str, float], Counter[str]]]] = [
        ("1,000 writers killed", lambda where, end: killed_writers(where, 1000, end)),
        ("1,000 rounds of 16 writers", lambda where, end: racing_writers(where, 1000, end)),
        ("eviction for 60 s", lambda where, end: eviction(where, 60, end)),
        ("eviction for 30 s, stretched", lambda where, end: eviction(where, 30, end, 0.002)),
        ("200 readers killed", lambda where, end: killed_readers(where, 200, end)),
    ]
    plan = [(what, run, kind, where) for what, run in runs for kind, where in (("tmpfs", memory), ("disk", store))]
    total: Counter[str] = Counter()
    print(f"{'scenario':36}" + "".join(f"{column:>12}" for column in COLUMNS) + f"{'seconds':>10}")
    try:
        for number, (what, run, kind, where) in enumerate(plan):
            left = start + seconds - time.monotonic()
            begun = time.monotonic()
            found = run(where, begun + left / (len(plan) - number))
            total.update(found)
            line = "".join(f"{found[column]:>12,}" for column in COLUMNS)
            print(f"{f'{what}, {kind}':36}{line}{time.monotonic() - begun:>10.1f}", flush=True)
    finally:
        cleaned(memory)
        shutil.rmtree(disk)
    print(f"{'all':36}" + "".join(f"{total[column]:>12,}" for column in COLUMNS) + f"{time.monotonic() - start:>10.1f}")
    return 1 if total["lost"] or total["torn"] or total["left over"] else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
