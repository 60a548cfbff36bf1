"""The work of a process of the soak on a store, and what it may expect to find there; the oracle of ``soak.py``.

Only the worker ``ID`` changes names that begin with ``ID/``, so it knows what each of them has. Before a change it
writes into the report what will be, and after it that it is: whoever reads the report knows to one change what a killed
worker left. This file is given to processes as text, as users who may not read the folder run it, too.
"""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import threading
import time
import traceback
import warnings

import numpy as np
from processes import die
from put_all import put_all

import shmarrow as sa
from shmarrow.objects.encode import encode
from shmarrow.store.protocol import INLINE_MAX

ROWS = (1, 100, 20_000, 100_000)
STEP = 7
LINE = 64
SLACK = 1000
"""Milliseconds between a clock that is read and a store that is asked."""
_FORMS = 5


# --- values that show which change made them, and whether they are whole ------------------------------------------


def batch(seed, rows):
    """A batch whose every value follows from its seed."""
    return sa.record_batch({"seed": np.full(rows, seed), "value": seed + STEP * np.arange(rows)})


def value_of(number, choice, most=4):
    """An object that has a number, in one of the forms that a store takes."""
    rows = choice.choice(ROWS[:most])
    form = choice.randrange(_FORMS)
    if form < 2:
        return batch(number, rows)
    if form == 2:
        return number + STEP * np.arange(rows)
    if form == 3:
        return number.to_bytes(8, "little") * rows
    return number


def has_file(value):
    """Whether an object has a file of its own, so that who holds it keeps it from being evicted."""
    return encode(value).size > INLINE_MAX


def number_of(value):
    """The number of an object; None if it is torn."""
    if isinstance(value, int):
        return value
    if isinstance(value, bytes):
        return int.from_bytes(value[:8], "little") if value[:8] * (len(value) // 8) == value else None
    if isinstance(value, np.ndarray):
        return int(value[0]) if (value == value[0] + STEP * np.arange(len(value))).all() else None
    if not isinstance(value, sa.RecordBatch):
        (value,) = value.to_batches()
    number = number_of(value["value"].to_numpy())
    return number if (value["seed"].to_numpy() == number).all() else None


# --- what is known --------------------------------------------------------------------------------------------------


def now():
    return time.monotonic_ns() // 1_000_000


def may_go(name, vanish):
    """Whether an object may be gone: "evicted", unless it is protected; or with its "owner"."""
    return vanish == "owner" or (vanish == "evicted" and "!" not in name)


class Ledger:
    """Objects of one worker by name: numbers, and when they expire, in milliseconds; 0 for never."""

    def __init__(self):
        self.has = {}
        self.next = {}  # of the change that has begun and not ended
        self.late = {}  # of changes of which it is not known whether they came in time

    def begin(self, words):
        for word in words:
            name, _, text = word.partition("=")
            number, _, expires = text.partition("@")
            self.next[name] = (int(number), int(expires or 0)) if number != "-" else None

    def end(self, done):
        if done:
            self.has |= self.next
        self.next = {}

    def take(self, words, known=True):
        """Read a line of the report."""
        if words[0] == ">":
            self.begin(words[1:])
        if not known:
            for name, item in self.next.items():
                self.late.setdefault(name, []).append(item)
        if words[0] in (".", "!"):
            self.end(words[0] == "." and known)

    def names(self):
        return {*self.has, *self.next, *self.late}

    def wrong(self, found, vanish):
        """Names that have what they cannot have: (name, what is found, what was expected)."""
        moment = now()

        def fits(name, item):
            number = found.get(name)
            if item is None or number is None:
                return number is None and (item is None or may_go(name, vanish) or 0 < item[1] < moment + SLACK)
            return number == item[0] and not 0 < item[1] < moment - SLACK

        def bad(state):
            return [
                (name, found.get(name), state.get(name))
                for name in self.names()
                if not any(fits(name, item) for item in [state.get(name), *self.late.get(name, ())])
            ]

        return min(bad(self.has), bad(self.has | self.next), key=len)


# --- what a worker does -----------------------------------------------------------------------------------------------


class Worker:
    """One of those who use a store all at once."""

    lasting = False

    def __init__(self, name, store, report, seed, vanish, most=4):
        self.id = str(name)
        self.base = int(self.id.replace("f", "000")) * 1_000_000
        self.store = store
        self.report = report
        self.choice = random.Random(seed)
        self.vanish = vanish
        self.most = most
        self.ledger = Ledger()
        self.held = []
        self.count = 0
        self.children = []

    def say(self, *words):
        line = (" ".join(map(str, (self.id, *words))).ljust(LINE - 1) + "\n").encode()
        assert os.write(self.report, line) == len(line) == LINE, line

    def name(self, taken=None):
        """A name of its own; one that is taken, or free, on request. Those with a ``!`` are protected."""
        names = [f"{self.id}/{letter}" for letter in "abcdefgh!?"]
        if taken is not None:
            names = [name for name in names if (self.ledger.has.get(name) is not None) == taken]
        return self.choice.choice(names) if names else None

    def number(self):
        self.count += 1
        return self.base + self.count

    @contextlib.contextmanager
    def change(self, after):
        """Note what will be, and whether it came to be."""
        words = [f"{name}={item[0]}@{item[1]}" if item else f"{name}=-" for name, item in after.items()]
        self.say(">", *words)
        self.ledger.begin(words)
        try:
            yield
        except sa.StoreFull:
            self.ledger.end(False)
            self.say("!")
        except sa.ObjectNotFound as error:  # somebody evicted it
            self.ledger.end(False)
            self.say("!")
            self.missed(str(error).split("'")[1])
        else:
            self.ledger.end(True)
            self.say(".")

    def missed(self, name):
        """A name of its own is not found: has it expired, or been evicted?"""
        item = self.ledger.has.get(name)
        held = any(name == each[0] and item and item[0] == each[1] and has_file(each[2]) for each in self.held)
        self.ledger.has[name] = None
        if item and not 0 < item[1] < now() + SLACK and (held or not may_go(name, self.vanish)):
            self.say("lost", name, item[0], "held" if held else "")

    def look(self, value, expected=None):
        """Whether an object is whole, and the one that it is to be."""
        number = number_of(value)
        wrong = number is None or expected not in (None, number)
        self.say("torn" if number is None else "lost" if wrong else "read", *([number, expected] if wrong else []))

    # --- changes ---

    def put(self, **given):
        name = self.name()
        number = self.number()
        item = self.ledger.has.get(name)
        given = {"overwrite": True} if item else {"if_generation": 0}
        expires = 0
        if not self.lasting and self.choice.random() < 0.1:
            given["expire_after"] = self.choice.choice((0.05, 2, 60))
            expires = now() + int(given["expire_after"] * 1000)
        with self.change({name: (number, expires)}):
            self.store.put(name, value_of(number, self.choice, self.most), protect="!" in name, **given)
            self.say("put")

    def draft(self):
        name, number, rows = self.name(), self.number(), self.choice.choice(ROWS[: self.most])
        if "!" in name:
            return
        made = batch(number, rows)
        with self.change({name: (number, 0)}):
            if self.choice.random() < 0.5:
                with self.store.new_draft(name, made.schema, rows, overwrite=True) as draft:
                    draft["seed"][:] = number
                    draft["value"][:] = made["value"].to_numpy()
            else:
                with self.store.new_file(name, made.schema, overwrite=True) as writer:
                    writer.write(made)
            self.say("put")

    def abandon(self):
        with contextlib.suppress(sa.StoreFull):
            draft = self.store.new_draft(f"{self.id}/never", sa.schema([("x", sa.int64())]), 200_000)
            draft["x"][:] = 1
            draft.abort()

    def delete(self):
        if name := self.name(True):
            with self.change({name: None}):
                self.store.delete(name)

    def rename(self):
        name, other = self.name(True), self.name()
        if name and other and name != other and "!" not in name + other:
            with self.change({name: None, other: self.ledger.has[name]}):
                self.store.rename(name, other, overwrite=True)

    def take(self):
        if name := self.name(True):
            expected = self.ledger.has[name][0]
            with self.change({name: None}):
                self.look(self.store.take(name), expected)

    def expire(self):
        name = self.name(True)
        if name and "!" not in name and not self.lasting:
            seconds = self.choice.choice((0.02, 1, 60))
            with self.change({name: (self.ledger.has[name][0], now() + int(seconds * 1000))}):
                self.store.expire_after(name, seconds)

    def compute(self):
        name = self.name(False)
        if name and "!" not in name:
            number = self.number()
            with self.change({name: (number, 0)}):
                value = self.store.get_or_put(name, lambda: value_of(number, self.choice, self.most))
                self.look(value, number)

    # --- what all change ---

    def increase(self):
        """Compare and swap: the sum of what all have added is what is there."""
        name = f"sum/{self.choice.randrange(3)}"
        try:
            generation = self.store.info(name).generation
            before = self.store.get(name)
        except sa.ObjectNotFound:
            generation = before = 0
        self.say("+", name)
        try:
            self.store.put(name, before + 1, if_generation=generation, protect=True)
        except (sa.GenerationChanged, sa.StoreFull):
            self.say("!")
        else:
            self.say("=")

    def once(self):
        """One of all computes it, and all have the same."""
        name = f"once/{time.monotonic_ns() // 50_000_000 % 1_000_000}"
        number = self.number()
        with contextlib.suppress(sa.StoreFull):
            self.say("once", name, number_of(self.store.get_or_put(name, lambda: number, protect=True)))

    def shared(self):
        with contextlib.suppress(sa.StoreFull, sa.ObjectNotFound):
            name = f"shared/{self.choice.randrange(4)}"
            if self.choice.random() < 0.2:
                self.store.delete(name)
            self.store.put(name, value_of(self.number(), self.choice, self.most), overwrite=True)
            self.say("put")

    # --- looking ---

    def get(self):
        name = self.name()
        start = now()
        try:
            value = self.store.get(name)
        except sa.ObjectNotFound:
            self.missed(name)
            return
        item = self.ledger.has.get(name)
        if item is None or 0 < item[1] < start - SLACK:
            self.say("late", name, number_of(value))
        else:
            self.look(value, item[0])
            if not isinstance(value, (int, bytes)):  # those are copies
                self.held.append((name, item[0], value))

    def any(self):
        with contextlib.suppress(sa.ObjectNotFound):
            self.look(self.store.get(self.choice.choice(self.store.names() or ["none"])))

    def hold(self):
        """Look at what is held again, and let one go."""
        for name, number, value in self.held:
            self.look(value, number)
            item = self.ledger.has.get(name)
            if item is not None and item[0] == number and name not in self.store:
                self.missed(name)
        while len(self.held) > self.choice.randrange(8):
            self.held.pop(self.choice.randrange(len(self.held)))

    def list(self):
        start = now()
        names = self.store.names(f"{self.id}/")
        assert names == sorted(set(names)), names
        for name, item in [*self.ledger.has.items()]:
            if item is not None and name not in names:
                self.missed(name)
            elif name in names and (item is None or 0 < item[1] < start - SLACK):
                self.say("late", name)
        name = self.name(True)
        if name and self.choice.random() < 0.2:
            try:
                assert self.store.info(name).name == name
            except sa.ObjectNotFound:
                self.missed(name)
            assert self.store.stats().objects >= 0
            assert len(self.store) >= 0

    # --- housekeeping ---

    def evict(self):
        with contextlib.suppress(sa.StoreFull):
            self.store.evict(self.choice.randrange(1, 1 << 21))

    def collect(self):
        self.store.collect()

    def configure(self):
        """Another capacity, which is never reached: nothing of what is known to be there may be evicted."""
        self.store.configure(capacity=self.choice.choice((1 << 30, 1 << 35, 1 << 40)))

    def crowd(self):
        """Many names at once, so that the catalog grows and its chains change."""
        numbers = [self.number() for _ in range(self.choice.choice((30, 300)))]
        put_all(self.store, {f"{self.id}/crowd/{number}": number for number in numbers})
        for number in self.choice.sample(numbers, 20):
            self.look(self.store.get(f"{self.id}/crowd/{number}"), number)
        self.say("put", len(numbers))
        found = self.store.delete(prefix=f"{self.id}/crowd/")
        if found != len(numbers):
            self.say("lost", found, len(numbers))

    def fork(self):
        """A child that has all that is held, and its own store; that ends well, closes everything, or is killed."""
        way = self.choice.choice(("use", "close", "libc", "killed"))
        self.count += 1
        child = ctypes.PyDLL(None).fork() if way == "libc" else os.fork()
        if child == 0:
            status = 1
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)
                if way == "close":
                    os.closerange(3, 1024)
                looks = range(self.choice.randrange(1, 20))  # while others change the store
                if all(number_of(value) == number for _ in looks for _, number, value in self.held):
                    status = 0
                if way == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if way in ("use", "libc"):
                    mine = Worker(f"{self.id}f{self.count}", self.store, self.report, self.count, self.vanish, 2)
                    for _ in range(5):
                        mine.choice.choice((mine.put, mine.get, mine.list, mine.delete, mine.rename))()
            except BaseException as error:
                with contextlib.suppress(OSError):
                    os.write(2, f"forked, {way}: {error!r}\n".encode())
                status = 2
            finally:
                die(status)
        self.children.append((child, way))
        if len(self.children) > 3:
            self.reap()

    def reap(self):
        child, way = self.children.pop(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in (0, -signal.SIGKILL if way == "killed" else 0):
            self.say("torn" if status == 1 else "failed", way, status)
        self.say("fault")


COMMON = {
    "put": 5, "draft": 2, "abandon": 1, "delete": 2, "rename": 2, "take": 1, "expire": 1, "compute": 2, "increase": 1,
    "once": 1, "shared": 2, "get": 5, "any": 5, "hold": 3, "list": 2,
}  # fmt: skip


def work(where, ids, report, seed, end, vanish="", more=(), most=4, quiet=False, lasting=False, **options):
    """Use a store until ``end``, one thread for each id; ``lasting``: objects never expire."""
    log = os.open(report, os.O_WRONLY | os.O_APPEND)
    weights = {**COMMON, **dict.fromkeys(more, 2)}
    if options.get("owned"):  # what all change would go with the first of them
        del weights["increase"], weights["once"]
    warnings.simplefilter("ignore")  # that forks and threads go badly together is what is tried
    failed = []

    def run(number):
        worker = Worker(number, store, log, seed + int(number), vanish, most)
        worker.lasting = lasting
        worker.say("begun")
        acts = [getattr(worker, name) for name in worker.choice.choices([*weights], [*weights.values()], k=1000)]
        try:
            while time.monotonic() < end and not failed:
                worker.choice.choice(acts)()
            while worker.children:
                worker.reap()
            worker.held.clear()
        except BaseException as error:
            failed.append(error)
            worker.say("failed")
            quiet or os.write(2, f"worker {number}: {traceback.format_exc()}".encode())

    with sa.Store(where, **options) as store:
        threads = [threading.Thread(target=run, args=(number,)) for number in ids[1:]]
        for thread in threads:
            thread.start()
        run(ids[0])
        for thread in threads:
            thread.join()


def look(where, check):
    """The contents of a store after a power cut.

    Numbers by names, -1 for what is torn; names of what is damaged and says so, and of those that are still there after
    that; what ``check``, a program, says.
    """
    found, damaged = {}, []
    with sa.Store(where, create=False) as store:
        for name in store.names():
            try:
                number = number_of(store.get(name))
                found[name] = -1 if number is None else number
            except sa.InvalidData:
                damaged.append(name)
        left = sorted({*store.names()} - {*found})
    ran = subprocess.run([check or "true", "check", where], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return found, damaged, left, ran.stdout if ran.returncode else ""


def empty(where):
    """Remove everything; what is there still."""
    with sa.Store(where, create=False) as store:
        store.clear()
        store.collect()
        stats = store.stats()
        store.destroy()
    return [stats.objects, stats.nbytes, stats.removed, os.path.exists(where)]
