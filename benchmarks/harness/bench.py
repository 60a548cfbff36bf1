"""Measures rows: sides that take turns in one process.

Invariants:

* Both sides of a row work on the same data in one process and take turns, and who goes first changes from turn to
  turn, so other load on the machine affects both. Sides for information only take their turns after the two that are
  compared, because threads that they leave behind would slow down whoever comes next.
* Operations of microseconds come in blocks: a side runs several in its turn, each timed by itself, as a program does
  that reads many files. One at a time, the side that follows one that waited for its own threads would find an idle
  processor and pay for waking it.
* Input is prepared before the clock starts, once for all sides. The first turn warms up and is not counted. What an
  operation returns is dropped after the clock has stopped.
* Turns come in rounds. A time is the median of all turns. A ratio is the median of the rounds' ratios of medians; its
  spread is the smallest and the largest of these.
* A row has a budget of time. Operations that take longer get fewer turns, never less than one in each round.
"""

from __future__ import annotations

import gc
import json
import os
import re
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from harness.figures import HEADINGS, Point, Required, Rounds, Row, cells, compared, limited, line

Operation = Callable[[Any], Any]


def timed(operation: Operation, given: Any) -> float:
    """Seconds that an operation takes."""
    start = perf_counter()
    result = operation(given)
    seconds = perf_counter() - start
    del result
    return seconds


def timed_write(operation: Operation, path: Path) -> float:
    """Seconds that an operation takes to write a file, which is then removed."""
    seconds = timed(operation, path)
    path.unlink()
    return seconds


def elapsed(operation: Callable[[Any], float], given: Any) -> float:
    """The time of an operation that measures itself."""
    return operation(given)


def stop_watch(work: Callable[[], Any], afterwards: Callable[[], Any] = lambda: None) -> float:
    """Seconds of ``work``; ``afterwards`` is not timed."""
    seconds = timed(lambda _: work(), None)
    afterwards()
    return seconds


def warm_memory(scratch: Path, size: int) -> None:
    """Touch this much memory once: pages that a virtual machine never had are slow the first time."""
    path = scratch / "warm"
    piece = bytes(1 << 24)
    with path.open("wb", buffering=0) as file:
        for _ in range(0, size, len(piece)):
            file.write(piece)
    path.unlink()


@dataclass(frozen=True)
class Options:
    """How to measure: ``rows`` is a regular expression that ``group.part: name`` has to contain, no ``parts`` means all
    parts of a suite, and ``only_ours`` leaves out the peers, to compare two checkouts."""

    quick: bool = False
    rows: str = ""
    parts: tuple[str, ...] = ()
    rounds: int = 5
    only_ours: bool = False

    @property
    def budget(self) -> float:
        """Seconds that the turns of a row may take in all."""
        return 0.3 if self.quick else 1.2


class Bench:
    """One suite's rows, printed and recorded as they are measured.

    Attributes
    ----------
    quick : bool
        Smaller data, fewer rounds, shorter budgets.
    scratch : Path
        A folder for data, in shared memory where there is some; it is removed at the end.
    stack : ExitStack
        For what the parts of a suite share; closed at the end.
    """

    def __init__(self, group: str, options: Options, scratch: Path, record: Callable[[dict[str, Any]], None]) -> None:
        self.group, self.part = group, ""
        self.options, self.quick = options, options.quick
        self.scratch = scratch
        self.stack = ExitStack()
        self._record = record

    def run(self, parts: Mapping[str, Callable[[Bench], None]]) -> None:
        """Run the chosen parts; a part that fails or lacks something is recorded, and the next one runs."""
        for self.part, measure in parts.items():
            if self.options.parts and self.part not in self.options.parts:
                continue
            start = perf_counter()
            try:
                measure(self)
            except ModuleNotFoundError as error:
                if error.name == "shmarrow" or (error.name or "").startswith("shmarrow."):
                    raise
                self.skip(f"{error.name} is not installed")
            except Skipped as reason:
                self.skip(str(reason))
            except Exception as error:
                traceback.print_exc()
                self._record({"failed": f"{self.group}.{self.part}", "error": f"{type(error).__name__}: {error}"})
            self._record({"took": f"{self.group}.{self.part}", "seconds": perf_counter() - start})

    def skip(self, reason: str) -> None:
        """Record that the rest of this part is not measured, and why."""
        print(f"  {self.group}.{self.part} is left out: {reason}", flush=True)
        self._record({"skipped": f"{self.group}.{self.part}", "reason": reason})

    def wanted(self, name: str) -> bool:
        """Whether ``--rows`` chooses a row."""
        return re.search(self.options.rows, f"{self.group}.{self.part}: {name}") is not None

    def row(
        self,
        name: str,
        sides: Mapping[str, Operation],
        required: Required,
        turns: int,
        prepare: Callable[[int], Any] = lambda turn: None,
        time: Callable[[Operation, Any], float] = timed,
        block: int = 1,
        point: Point | None = None,
    ) -> None:
        """Measure one row.

        Parameters
        ----------
        sides : mapping of str to function
            Ours, the peers that something is required beside, and others for information, in this order.
        required : Faster, Extra, mapping of str to these, or None
            What is to be reached beside the second side, or beside each of several.
        turns : int
            The most in each of the rounds; the row's budget may allow fewer.
        prepare : function
            Gives for the number of a turn what all sides get.
        time : function
            Runs an operation and gives its seconds.
        block : int
            Operations in a turn; each has a number of its own.
        """
        if not self.wanted(name):
            return
        names = list(sides)[:1] if self.options.only_ours else list(sides)
        held = len(required) if isinstance(required, Mapping) else 1
        paired, others = names[: 1 + held], names[1 + held :]
        number = count()

        def take(order: Sequence[str], took: dict[str, list[float]]) -> None:
            given = [prepare(next(number)) for _ in range(block)]
            for side in order:
                took[side] += [time(sides[side], each) for each in given]

        each = 0.0
        for _ in range(2):  # the first one also pays for imports and caches; if it was quick, the second is the measure
            start = perf_counter()
            take(names, defaultdict(list))
            each = perf_counter() - start
            if each > self.options.budget:
                break
        turns = max(1, min(turns, int(self.options.budget / self.options.rounds / each)))
        # What takes long is not repeated five times; three rounds still show a spread.
        most = 3 if each > self.options.budget / 2 else self.options.rounds
        rounds: list[dict[str, list[float]]] = []
        for _ in range(min(self.options.rounds, most)):
            gc.collect()
            rounds.append({side: [] for side in names})
            for turn in range(turns):
                take(paired if turn % 2 else paired[::-1], rounds[-1])
            for _ in range(turns if others else 0):
                take(others, rounds[-1])
        self.report(name, rounds, required, point=point)

    def report(
        self,
        name: str,
        rounds: Rounds,
        required: Required = None,
        unit: str = "s",
        point: Point | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Print and record what was measured elsewhere; see :func:`harness.figures.compared`."""
        if self.wanted(name):
            self._keep(*compared((self.group, self.part, name), rounds, required, unit, point, extra))

    def limit(self, name: str, values: Sequence[float], limit: float | None, unit: str = "s", **options: Any) -> None:
        """Print and record figures held to a limit of their own; see :func:`harness.figures.limited`."""
        if self.wanted(name):
            self._keep(limited((self.group, self.part, name), values, limit, unit, **options))

    def _keep(self, *rows: Row) -> None:
        for row in rows:
            print(line(cells(row)), flush=True)
            self._record(row)


class Skipped(Exception):
    """A part lacks something that it needs; the message says what."""


@contextmanager
def benchmark(group: str, options: Options, record: Path) -> Iterator[Bench]:
    """A suite's bench, which appends a line of JSON to ``record`` for each row, and for each part."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with (
        tempfile.TemporaryDirectory(prefix=f"shmarrow-bench-{os.getpid()}-", dir=memory) as scratch,
        record.open("a", buffering=1) as file,
    ):
        print(f"\n## {group}\n\n{line(HEADINGS)}\n{line(['---'] * len(HEADINGS))}", flush=True)
        bench = Bench(group, options, Path(scratch), lambda each: print(json.dumps(each), file=file))
        with bench.stack:
            yield bench
