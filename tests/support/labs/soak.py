"""Faults against the store, with real processes: kills, stops, forks, other users, full disks, power cuts, under load.

``make soak`` runs the long form, in ten minutes at most, and prints what was done and what was found; the store's tests
run each scenario in a short form. What is counted:

* faults: processes killed, stopped or forked, clocks set, attacks, power cuts, requests refused for want of room;
* put, read: objects published, and objects read and compared with what was put;
* lost: changes that were reported as done and are not there, or objects that are gone without a reason;
* torn: objects whose bytes are not what was put, at any moment while somebody had them;
* left over: objects found after their time or their removal, and files that are there after everything was removed;
* stolen: what users could do who must not, and what they hid from those who may.

What processes do, and how it is known what must be there, says ``soak_work.py``; what other users try,
``soak_others.py``. After each round every invariant of the store is checked.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import kills
import lab
import pytest
from processes import complain, end_well, forked
from soak_work import Ledger, number_of, value_of
from store_check import Report, check, checker, cleaned, emptied, place
from waiting import becomes

import shmarrow as sa

Store = sa.Store
Found = Counter[str]
ZEROS = ("lost", "torn", "left over", "stolen")
COLUMNS = ("faults", "put", "read", *ZEROS)
MOST_SECONDS = 600.0
ROUND = 5.0
HERE = Path(__file__).parent
WORK, OTHERS = ((HERE / f"soak_{what}.py").read_text(encoding="utf-8") for what in ("work", "others"))
KEPT = 9
"""Objects that stay, ``kept/0`` and so on."""
A, B, GROUP, READER, STRANGER = 61001, 61002, 61100, 61003, 61004
"""Users, and the group of the first two, and of the reader."""


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
            elif not known:
                continue
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
        mine: dict[str, Ledger] = {}
        wrong: list[tuple[str, int | None, object]] = []

        def right() -> bool:
            self.read()
            mine.update({who: ledger for who, ledger in self.ledgers.items() if who.partition("f")[0] in ids})
            wrong[:] = [each for ledger in mine.values() for each in ledger.wrong(self.values(store, ledger), vanish)]
            return not wrong

        becomes(right, 5)  # forked children live a moment longer
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


def storm(
    where: str,
    end: float,
    choice: random.Random,
    *,
    settings: dict[str, Any] | None = None,
    faults: tuple[str, ...] = ("kill",),
    workers: int = 4,
    threads: int = 1,
    users: Sequence[dict[str, Any]] = ({},),
    beside: Callable[[Store], AbstractContextManager[Callable[[], None]]] = lambda store: nullcontext(lambda: None),
    **given: Any,
) -> Found:
    """Let workers use a store, and do something to one of them again and again.

    ``settings`` are those of the store, ``given`` is for :func:`soak_work.work`; ``beside`` is entered
    for each round, and gives what is called after each fault.
    """
    owned = given.get("owned", False)
    vanish = "owner" if owned else given.get("vanish", "")
    numbers = iter(range(1, 1_000_000))
    with Report() as report, lab.wall_clock() if "clock" in faults else nullcontext() as clock:
        judge = Judge(report)
        if users[0]:
            lab.run(
                "import shmarrow as sa; sa.Store(where, **settings).close()", where=where, settings=settings, **users[0]
            )
        store = sa.Store(where, accept_users=True, **(settings or {}))
        while time.monotonic() < end - 0.3 or not judge.found["faults"]:
            until = 0.0
            children: dict[tuple[str, ...], tuple[ExitStack, lab.Child]] = {}

            def pause(most: float) -> None:
                """Let the workers do something: a few changes, or some hundred."""
                lines = report.count + choice.randrange(choice.choice((2, 20, 200)))
                becomes(lambda: report.count >= lines, most - time.monotonic())

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

            with beside(store) as act:
                until = max(min(end, time.monotonic() + ROUND), time.monotonic() + 0.4)
                for _ in range(workers):
                    start()
                more = True
                while more:  # at least one fault, however long the processes take to start
                    ids = choice.choice([*children])
                    fault = choice.choice(faults)
                    if choice.random() < 0.9:  # otherwise perhaps before it has begun
                        becomes(lambda: judge.read() or ids[0] in judge.begun, 20)  # noqa: B023
                    pause(until)
                    judge.found["faults"] += 1
                    if fault == "kill":
                        finish(ids, True)
                        start()
                    elif fault == "stop":
                        children[ids][1].kill(signal.SIGSTOP)
                        pause(time.monotonic() + 0.1)  # it may have a lock that all others wait for
                        children[ids][1].kill(signal.SIGCONT)
                    elif clock is not None:
                        clock.set_back(choice.uniform(-1e6, 1e6))
                    act()
                    more = time.monotonic() < until
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


def full_disk(where: str, end: float, choice: random.Random) -> Found:
    """The file system of the store is full again and again."""
    with tempfile.TemporaryDirectory() as folder, lab.small_tmpfs(Path(folder, "small"), 16 << 20) as small:
        return storm(str(small / "store"), end, choice)


SQUATS = (
    "sa.Store(where, mode=0o666).put('kept/0', 1)",
    "os.mkdir(path)",
    "os.makedirs(mine, exist_ok=True); os.symlink(mine, path)",
    "os.mkdir(path); open(path + '/control', 'w').close()",
)
"""Things that a stranger does with the name of a store before it exists."""


def other_users(where: str, end: float, choice: random.Random, mode: int = 0o640) -> Found:
    """Strangers attack; the group reads, or writes in turn with the owner, and always finds what is kept."""
    found: Found = Counter()
    with lab.shared_folder(0o1777) as folder:
        where = where if where.startswith("shm:") else str(folder / "store")

        @contextmanager
        def beside(store: Store) -> Iterator[Callable[[], None]]:
            for number in range(KEPT):
                store.put(f"kept/{number}", value_of(number, choice), protect=True)
            words = {"where": place(where), "mine": str(folder)}
            attack = {"code": OTHERS + "\nattack(where, mine, say, hear, member)", **words}
            read = {"code": WORK + OTHERS + "\nread(where, kept, say, hear, number_of)", "where": where, "kept": KEPT}
            with ExitStack() as stack:
                others = [stack.enter_context(lab.child(uid=STRANGER, member=False, **attack))]
                if not mode & 0o020:
                    others.append(stack.enter_context(lab.child(uid=READER, gid=GROUP, member=True, **attack)))
                others.append(stack.enter_context(lab.child(uid=READER, gid=GROUP, **read)))

                def hear() -> None:
                    for child in others:
                        child.say("again")
                    for told in [told for child in others for told in child.heard()]:
                        found["faults"] += told == "tried"
                        found["read"] += told == "read"
                        if told not in ("tried", "read"):
                            complain("others:", told)
                            found["torn" if told.startswith("torn") else "stolen"] += 1

                yield hear
                hear()

        for plant in SQUATS:
            names = {"where": where, "path": place(where), "mine": f"{folder}/squatter"}
            lab.run("import os, shutil, shmarrow as sa\n" + plant, uid=STRANGER, **names)
            found["faults"] += 1
            opened = "\ntry:\n    sa.Store(where)\nexcept sa.StorageError:\n    result = 'refused'"
            for user in ({"uid": A, "gid": GROUP}, {}):
                if lab.run("import shmarrow as sa" + opened, where=where, **user) != "refused":
                    complain("stolen:", plant, user)
                    found["stolen"] += 1
            remove = "os.unlink(path) if os.path.islink(path) else shutil.rmtree(path)"
            lab.run("import os, shutil\n" + remove, uid=STRANGER, **names)
        members = [{"uid": A, "gid": GROUP}, {"uid": B, "gid": GROUP}]
        users = members if mode & 0o020 else members[:1]
        found.update(storm(where, end, choice, settings={"mode": mode}, users=users, accept_users=True, beside=beside))
    return found


def power_cuts(where: str, end: float, choice: random.Random) -> Found:
    """The machine loses its power under load: what a durable store has said to be done is there; any other is empty."""
    found: Found = Counter()
    durable = False
    while time.monotonic() < end - 1 or found["faults"] < 2:
        durable = not durable
        with (
            tempfile.TemporaryDirectory() as folder,
            Report() as report,
            lab.disk(Path(folder, "disk"), 96 << 20) as disk,
        ):
            path, judge = str(disk.path / "store"), Judge(report)
            ids = ("1", "2", "3")
            words = {"ids": ids, "report": report.path, "seed": choice.randrange(1 << 30), "end": end + 60, "most": 3}
            sa.Store(path, durable=durable).close()
            code = WORK + "\nwork(where, quiet=True, durable=durable, **words)"
            with lab.child(code, where=path, durable=durable, words=words):
                for _ in range(choice.randrange(5, 30)):
                    report.wait(report.count + choice.randrange(20))
                    if not durable and choice.random() < 0.2:  # somebody else has the disk write its journal
                        with open(disk.path / "other", "w") as file:
                            file.write("x")
                            os.fsync(file.fileno())
                judge.read()
                cut = disk.cut()
            judge.read(known=False)
            path = str(cut.path / "store")
            code = WORK + "\nresult = look(where, check)"
            boot = lab.reboot()
            values, damaged, left, said = lab.run(code, where=path, check=checker(), **boot)
            found["faults"] += 1
            found.update({key: judge.found[key] for key in ("put", "read", *ZEROS)})
            found["read"] += len(values)
            wrong = (
                [each for ledger in judge.ledgers.values() for each in ledger.wrong(values, "")]
                if durable
                else [*values]
            )
            torn = [name for name, number in values.items() if number < 0]
            remains = lab.run(WORK + "\nresult = empty(where)", where=path, **boot)
            if wrong or torn or left or said or (durable and damaged) or any(remains):
                complain("power cut:", "durable" if durable else "", wrong, torn, damaged, left, said, remains)
            found["lost"] += len(wrong) + (len(damaged) if durable else 0)
            found["torn"] += len(torn) + bool(said)
            found["left over"] += len(left) + sum(map(bool, remains))
    return found


def killed_anywhere(where: str, end: float, choice: random.Random) -> Found:
    """Kill a process before one instruction of the store's code after the other, as many as there is time for."""
    found: Found = Counter()
    folder = Path(place(where))
    folder.mkdir()
    plan = [(case, size) for case in kills.CASES.values() for size in kills.SIZES.values()]
    choice.shuffle(plan)
    pace = 0.02  # seconds for each kill
    for number, (case, size) in enumerate(plan):
        step = max(1, int(2000 * pace * (len(plan) - number) / max(0.1, end - time.monotonic())))
        begun = time.monotonic()
        try:
            killed = kills.kills(case, size, step, folder, choice.randrange(1, step + 1)).total()
        except AssertionError:
            complain(f"killed in {case}:", traceback.format_exc())
            found["lost"] += 1
            continue
        for what in ("faults", "put", "read"):
            found[what] += killed
        pace = (pace + (time.monotonic() - begun) / (killed + 1)) / 2
    found["left over"] += len(list(folder.iterdir()))
    shutil.rmtree(folder)
    return found


def races(where: str, end: float, choice: random.Random, racers: int = 8) -> Found:
    """All at once put under one name, rename to it, take it, compute it: one of them does, the others are told."""
    found: Found = Counter()
    barrier = multiprocessing.get_context("fork").Barrier(racers)
    stop = multiprocessing.get_context("fork").Value("b", 0)

    def race(report: Report, number: int) -> None:
        mine = random.Random(number)
        with sa.Store(where) as store:
            for turn in itertools.count():
                value = turn * racers + number
                store.put(f"mine-{number}", value_of(value, mine, 3))
                barrier.wait(60)
                if stop.value:
                    return
                for game, play in {
                    "put": lambda: store.put("put", value_of(value, mine, 3)) and value,  # noqa: B023
                    "rename": lambda: store.rename(f"mine-{number}", "renamed") or value,  # noqa: B023
                    "compute": lambda: number_of(store.get_or_put("computed", lambda: value_of(value, mine, 3))),  # noqa: B023
                }.items():
                    with suppress(sa.ObjectExists):
                        report.say(game, turn, play())
                barrier.wait(60)
                for name in ("put", "renamed", "computed"):
                    with suppress(sa.ObjectNotFound):
                        report.say("took", turn, name, number_of(store.take(name)))
                with suppress(sa.ObjectNotFound):
                    store.delete(f"mine-{number}")
                if number == 0:
                    stop.value = time.monotonic() > end

    with Report() as report:
        children = [forked(lambda: race(report, number)) for number in range(racers)]  # noqa: B023
        end_well(children)
        lines = report.lines()
    turns: dict[str, list[list[str]]] = {}
    for line in lines:
        turns.setdefault(line[1], []).append(line)
    for turn, said in turns.items():
        who = {game: [words[-1] for words in said if words[0] == game] for game in ("put", "rename", "compute")}
        took = sorted((words[2], words[3]) for words in said if words[0] == "took")
        expected = sorted(
            [
                ("computed", who["compute"][0]),
                *(("put", each) for each in who["put"]),
                *(("renamed", each) for each in who["rename"]),
            ]
        )
        right = len(who["put"]) == len(who["rename"]) == len({*who["compute"]}) == 1 and took == expected
        if not right or len(who["compute"]) != racers:
            complain("race:", turn, who, took)
            found["lost"] += 1
        found["faults"] += 2 * (racers - 1)
        found["put"] += racers + 2
        found["read"] += 2 + racers
    found["left over"] += cleaned(where)
    return found


# --- the report -------------------------------------------------------------------------------------------------

Scenario = Callable[[str, float, random.Random], Found]
LRU = {"vanish": "evicted", "settings": {"capacity": 1 << 23}, "more": ("evict", "collect")}
BOTH = ("memory", "disk")
SCENARIOS: dict[str, tuple[Scenario, tuple[str, ...]]] = {
    "kills": (functools.partial(storm, faults=("kill", "stop")), BOTH),
    "kills anywhere": (killed_anywhere, BOTH),
    "races": (races, BOTH),
    "eviction": (functools.partial(storm, **LRU), BOTH),
    "threads": (functools.partial(storm, threads=3, more=("crowd", "collect")), BOTH),
    "forks": (functools.partial(storm, **{**LRU, "more": ("fork", "evict")}), BOTH),
    "growth": (functools.partial(storm, settings={"capacity": 1 << 40}, more=("crowd", "configure")), BOTH),
    "owners": (functools.partial(storm, owned=True, more=("collect",)), BOTH),
    "clocks": (functools.partial(storm, faults=("kill", "clock"), more=("collect",), lasting=True), BOTH),
    "full disk": (full_disk, ("disk",)),
    "readers and strangers": (other_users, BOTH),
    "writers and strangers": (functools.partial(other_users, mode=0o660), BOTH),
    "durable kills": (functools.partial(storm, settings={"durable": True}), ("disk",)),
    "power cuts": (power_cuts, ("disk",)),
}


def run(what: str, kind: str, seconds: float, seed: int) -> Found:
    """One scenario, for so many seconds; what was found. What a scenario takes and is not here skips it."""
    scenario, _ = SCENARIOS[what]
    lab.run("")  # which takes some seconds, the first time
    with tempfile.TemporaryDirectory(prefix="shmarrow-soak-") as folder:
        where = f"shm:soak-{os.getpid()}" if kind == "memory" else f"{folder}/store"
        try:
            return scenario(where, time.monotonic() + seconds, random.Random(f"{what} {kind} {seed}"))
        finally:
            cleaned(where)


def main() -> int:
    """Run all scenarios, on tmpfs and on disk; 1 where anything was lost, torn, left over or stolen, or failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="at most so long (default: %(default)s)")
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="a scenario; may be given again")
    parser.add_argument("--seed", type=int, default=1, help="another run of the same (default: %(default)s)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and clean up
    start = time.monotonic()
    plan = [(what, kind) for what in given.only or SCENARIOS for kind in SCENARIOS[what][1]]
    total: Found = Counter()
    failed = False
    print(f"{'scenario':34}" + "".join(f"{column:>11}" for column in COLUMNS) + f"{'seconds':>9}")
    for number, (what, kind) in enumerate(plan):
        left = start + given.seconds - time.monotonic()
        begun = time.monotonic()
        found: Found = Counter()
        note = ""
        try:
            found = run(what, kind, max(left / (len(plan) - number) - 1, 1), given.seed)
        except pytest.skip.Exception as skipped:
            note = f"  skipped: {skipped}"
        except Exception:
            failed = True
            traceback.print_exc()
            note = "  FAILED"
        total.update(found)
        line = "".join(f"{found[column]:>11,}" for column in COLUMNS)
        print(f"{f'{what}, {kind}':34}{line}{time.monotonic() - begun:>9.1f}{note}", flush=True)
    print(f"{'all':34}" + "".join(f"{total[column]:>11,}" for column in COLUMNS) + f"{time.monotonic() - start:>9.1f}")
    return 1 if failed or any(total[column] for column in ZEROS) else 0


if __name__ == "__main__":
    sys.exit(main())
