"""What the benchmarks share: sides that take turns, medians, and a table with the requirement beside each figure.

Rules kept here:

* both sides of a row run in one process and take turns, and who goes first changes from turn to turn; so whatever else
  the machine does falls on both alike. Others, shown for information, take their turns when the two have had theirs,
  as threads that they leave behind would cost whoever comes next;
* operations of microseconds come in blocks: in its turn a side has several one after another, each timed by itself, as
  a program has that reads many files. One at a time, whoever comes after a side that waits for threads of its own finds
  a processor that was asleep, and pays for that as much again as for its own work;
* what a turn is given is prepared before the clock starts, once for both sides; the first turn warms up and is not
  counted. What an operation returns is dropped after the clock has stopped;
* turns come in rounds. A time is the median of all turns. A result is what the medians of each round say: the middle
  one of the rounds, which is held to what is required, and as its spread the smallest and the largest;
* a row with several peers that something is required beside is measured once, and printed once for each of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import shmarrow as sa

ROUNDS = 5


@dataclass(frozen=True)
class Faster:
    """The peer's time over ours is at least ``times``."""

    times: float
    text: str

    def of(self, ours: float, peer: float) -> float:
        return peer / ours

    def reached(self, value: float) -> bool:
        return value >= self.times

    def show(self, value: float) -> str:
        return f"{value:.3g}×"


@dataclass(frozen=True)
class Extra:
    """Our time is at most ``seconds`` longer than the peer's."""

    seconds: float
    text: str

    def of(self, ours: float, peer: float) -> float:
        return ours - peer

    def reached(self, value: float) -> bool:
        return value <= self.seconds

    def show(self, value: float) -> str:
        return f"{value * 1e3:+.1f} ms"


Requirement = Faster | Extra


def faster(times: float) -> Faster:
    return Faster(times, f"{times:g} times faster")


def within(times: float) -> Faster:
    """Our time is at most so many times the peer's."""
    return Faster(1 / times, f"within {times:g} times")


AS_FAST = Faster(1, "as fast")

Operation = Callable[[Any], Any]
Show = Callable[[float], str]
Rounds = Sequence[Mapping[str, Sequence[float]]]
"""For each round, what each side took in its turns."""


def nothing(turn: int) -> None:
    """For operations that need nothing prepared."""


def timed(operation: Operation, given: Any) -> float:
    """Seconds that an operation takes; what it returns is dropped after that."""
    start = perf_counter()
    result = operation(given)
    seconds = perf_counter() - start
    del result
    return seconds


def timed_write(operation: Operation, path: Path) -> float:
    """Seconds that an operation takes to write a file, which is removed again."""
    seconds = timed(operation, path)
    path.unlink()
    return seconds


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def mebibytes(size: int) -> str:
    """A number of bytes as people read it."""
    return f"{size / (1 << 20):.3g} MiB"


class Bench:
    """One page of figures, printed row by row as they are measured.

    Parameters
    ----------
    title : str
        Heading of the page.
    options : Namespace
        What the command line says. ``options.quick`` takes fewer turns, and smaller data where it says so.
    scratch : Path
        A folder that is removed at the end, in shared memory where there is some.
    """

    def __init__(self, title: str, options: argparse.Namespace, scratch: Path) -> None:
        self.options = options
        self.quick: bool = options.quick
        self.scratch = scratch
        self.records: list[dict[str, Any]] = []
        self._rows = self._reached = 0
        quick = self.quick
        print(f"## {title}\n\n{_machine()}{' Quick: smaller data, fewer turns.' if quick else ''}\n")
        self._line("what", "shmarrow", "beside", "", "result", "spread", "required", "reached", "also")
        self._line(*["---"] * 9)

    def _line(self, *cells: str) -> None:
        print(f"| {' | '.join(cells)} |", flush=True)

    def row(
        self,
        what: str,
        sides: Mapping[str, Operation],
        required: Requirement | Mapping[str, Requirement] | None,
        turns: int,
        prepare: Callable[[int], Any] = nothing,
        time: Callable[[Operation, Any], float] = timed,
        block: int = 1,
    ) -> None:
        """Measure and print one row.

        Parameters
        ----------
        what : str
            What is measured.
        sides : mapping of str to function
            Ours, the peers that something is required beside, and others for information, in this order.
        required : Faster, Extra, mapping of str to these, or None
            What is to be reached beside the second side, or beside each of several; None for information only.
        turns : int
            In each of the rounds.
        prepare : function
            Gives for the number of a turn what all sides get.
        time : function
            Runs an operation and gives its seconds.
        block : int
            Operations in a turn; each has a number of its own.
        """
        names = list(sides)
        paired = names[: 1 + max(1, len(_by_peer(required, names)))]
        others = names[len(paired) :]
        rounds = 2 if self.quick else ROUNDS
        turns = max(turns // 5, 1) if self.quick else turns
        number = count()
        seconds: list[dict[str, list[float]]] = []

        def take(order: list[str], took: dict[str, list[float]]) -> None:
            given = [prepare(next(number)) for _ in range(block)]
            for name in order:
                took[name] += [time(sides[name], each) for each in given]

        take(names, defaultdict(list))
        for _ in range(rounds):
            gc.collect()
            seconds.append({name: [] for name in names})
            for turn in range(turns):
                take(paired if turn % 2 else paired[::-1], seconds[-1])
            for _ in range(turns if others else 0):
                take(others, seconds[-1])
        self.report(what, seconds, required)

    def figure(
        self, what: str, ours: float, peer: str, theirs: float, at_most: float, show: Callable[[Any], str] = mebibytes
    ) -> None:
        """Print one row of figures that were measured once, by default bytes, with the most that ours may be."""
        self._verdict(what, [ours], f"at most {show(at_most)}", ours <= at_most, show, peer, theirs)

    def limit(
        self, what: str, values: Sequence[float], limit: float | None, show: Show = str, *, at_least: bool = False
    ) -> None:
        """Print one row of figures that stand by themselves: their median, held to the most or least it may be."""
        value = statistics.median(values)
        if limit is None:
            self._verdict(what, values, "", None, show)
            return
        reached = value >= limit if at_least else value <= limit
        self._verdict(what, values, f"at {'least' if at_least else 'most'} {show(limit)}", reached, show)

    def _verdict(
        self,
        what: str,
        values: Sequence[float],
        text: str,
        reached: bool | None,
        show: Show,
        peer: str = "",
        theirs: float | None = None,
    ) -> None:
        value = statistics.median(values)
        spread = f"{show(min(values))} to {show(max(values))}" if len(values) > 1 else ""
        beside = "" if theirs is None else show(theirs)
        cells = what, show(value), peer, beside, f"**{show(value)}**", spread, text, self._said(reached), ""
        self._line(*cells)
        self._keep(what, ours=value, peer=peer, theirs=theirs, result=value, spread=(min(values), max(values)))
        self.records[-1]["cells"] = cells
        self.records[-1] |= {"required": text, "reached": reached}

    def _said(self, reached: bool | None) -> str:
        if reached is None:
            return ""
        self._rows += 1
        self._reached += reached
        return "yes" if reached else "**no**"

    def _keep(self, what: str, **record: Any) -> None:
        self.records.append({"what": what, **record})

    def report(
        self,
        what: str,
        rounds: Rounds,
        required: Requirement | Mapping[str, Requirement] | None,
        show: Show = duration,
    ) -> None:
        """Print what was measured elsewhere: for each peer that something is required beside, a row.

        Parameters
        ----------
        what : str
            What was measured.
        rounds : sequence of mapping of str to sequence of float
            Seconds of each side's turns; for rates, seconds for each operation. Our side comes first.
        required : Faster, Extra, mapping of str to these, or None
            As for :meth:`row`.
        show : callable, optional
            Writes such a figure.
        """
        ours, first, *_ = names = list(rounds[0])
        middle = {name: statistics.median([took for part in rounds for took in part[name]]) for name in names}
        asked = _by_peer(required, names)
        for peer, requirement in (asked or {first: Faster(1, "")}).items():
            spread = sorted(
                requirement.of(statistics.median(part[ours]), statistics.median(part[peer])) for part in rounds
            )
            value = statistics.median(spread)
            reached = requirement.reached(value) if asked else None
            in_doubt = asked and requirement.reached(spread[0]) != requirement.reached(spread[-1])
            others = [name for name in names[1:] if name != peer and name not in asked]
            cells = (
                what,
                show(middle[ours]),
                peer,
                show(middle[peer]),
                f"**{requirement.show(value)}**",
                f"{requirement.show(spread[0])} to {requirement.show(spread[-1])}",
                requirement.text,
                self._said(reached) + (", within the spread" if in_doubt else ""),
                ", ".join(f"{name} {show(middle[name])}" for name in others),
            )
            self._line(*cells)
            self._keep(what, ours=middle[ours], peer=peer, theirs=middle[peer], result=value, cells=cells)
            self.records[-1] |= {"spread": (spread[0], spread[-1]), "required": requirement.text, "reached": reached}
            self.records[-1]["also"] = {name: middle[name] for name in others}

    def end(self) -> None:
        """Print how many rows reach what is required."""
        print(f"\n{self._reached} of {self._rows} reached.\n", flush=True)


def _by_peer(required: Requirement | Mapping[str, Requirement] | None, names: list[str]) -> Mapping[str, Requirement]:
    if required is None:
        return {}
    return {names[1]: required} if isinstance(required, (Faster, Extra)) else required


def _machine() -> str:
    versions = [f"{module.__name__} {module.__version__}" for module in (sa, pa, pl, np)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"Python {platform.python_version()}, {', '.join(versions)}; {platform.system()}, {cores} cores."


@contextmanager
def bench(title: str, add_options: Callable[[argparse.ArgumentParser], None] | None = None) -> Iterator[Bench]:
    """A page of figures, with a folder in shared memory that is removed at the end, whatever happens."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--quick", action="store_true", help="smaller data, fewer turns")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all rows to this file, too; times in seconds")
    if add_options is not None:
        add_options(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="shmarrow-bench-", dir=memory) as scratch:
        page = Bench(title, options, Path(scratch))
        try:
            yield page
        finally:
            if options.json is not None:
                options.json.write_text(json.dumps(page.records, indent=1) + "\n")
        page.end()


def warm_memory(scratch: Path, size: int) -> None:
    """Have the host back this much memory: pages that a virtual machine has never touched are slow the first time."""
    path = scratch / "warm"
    piece = bytes(1 << 24)
    with path.open("wb", buffering=0) as file:
        for _ in range(0, size, len(piece)):
            file.write(piece)
    path.unlink()
