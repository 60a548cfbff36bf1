"""What one could take instead of a store: Ray, shared memory by hand, LMDB, diskcache, safetensors, or files.

All sides are given the same table of numbers and text (an Arrow table, or for Polars its own frame), or the same array
of float64, and keep it in shared memory. A ``get`` ends when the first row has been read. Peers that are not installed
are left out, and named as left out. Ray's servers run only while its rows are measured.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from harness.bench import Bench, Operation, elapsed, stop_watch, warm_memory
from harness.memory import ENVIRONMENT

from suites._alternatives import SIDES, array, first, given, installed, table

MIB = 1 << 20
OURS = "shmarrow"
TABLES = (OURS, "pyarrow", "polars", "shared_memory", "lmdb", "diskcache", "ray")
ARRAYS = (OURS, "pyarrow", "safetensors", "shared_memory", "lmdb", "diskcache", "ray")
KINDS = {"a table of numbers and text": TABLES, "an array of float64": ARRAYS}
PROGRAM = Path(__file__).with_name("_alternatives.py")


def absent(bench: Bench) -> None:
    """Name what is left out."""
    for name in SIDES:
        if not installed(name):
            bench.skip(f"{name} is not installed")
    bench.skip("arrowshelf 2.3.1 has a wheel for Windows only, and no source distribution")


def taken(bench: Bench, names: tuple[str, ...]) -> list[str]:
    return [OURS] if bench.options.only_ours else [name for name in names if installed(name)]


# --- one process --------------------------------------------------------------------------------------------------


@contextmanager
def opened(bench: Bench, names: list[str]) -> Iterator[dict[str, Any]]:
    folder = bench.scratch / "-".join(["of", *names])
    folder.mkdir()
    with ExitStack() as stack:
        sides = {}
        for name in names:
            sides[name] = side = SIDES[name](folder)
            stack.callback(side.close)
        yield sides


def objects(bench: Bench) -> None:
    """Put and get of a table, and of an array, of 1 MiB and of 1 GiB."""
    largest = (64 if bench.quick else 1024) * MIB
    warm_memory(bench.scratch, 4 * largest)
    every = taken(bench, tuple(SIDES))
    # Ray takes turns in rows of its own, so that its servers and threads are not in the way of the others.
    for names in ([name for name in every if name != "ray"], [OURS, "ray"]):
        if not set(names) <= set(every):
            continue
        with opened(bench, names) as sides:
            for size in (MIB, largest):
                for kind, those in KINDS.items():
                    value = table(size) if those is TABLES else array(size)
                    _measured(bench, {name: sides[name] for name in those if name in sides}, kind, size, value)


def _measured(bench: Bench, sides: Mapping[str, Any], kind: str, size: int, value: Any) -> None:
    small = size == MIB
    what = f"{kind}, {size // MIB:,} MiB"
    gifts = {name: given(name, value) for name in sides}

    def put(name: str, _: Any) -> float:
        side = sides[name]
        return stop_watch(lambda: side.put("new", gifts[name]), lambda: side.remove("new"))

    puts: dict[str, Operation] = {name: lambda _, name=name: put(name, _) for name in sides}
    each = dict.fromkeys(list(sides)[1:])  # a row beside each of them
    bench.row(f"put {what}", puts, each, 20 if small else 1, time=elapsed, block=5 if small else 1)
    if not bench.wanted(f"get {what}"):
        return
    for name, side in sides.items():
        side.put("x", gifts[name])
    expected = first(value)
    assert all(first(side.get("x")) == expected for side in sides.values())
    gets: dict[str, Operation] = {name: lambda _, side=side: first(side.get("x")) for name, side in sides.items()}
    bench.row(f"get {what}", gets, each, 20, block=5 if small else 1)
    for side in sides.values():
        side.remove("x")


# --- processes ------------------------------------------------------------------------------------------------------


def answered(bench: Bench, program: str, names: tuple[str, ...], size: int) -> list[dict[str, list[float]]]:
    """The numbers that a program prints, in a fresh process for each side, for each of the rounds."""
    rounds = []
    for number in range(1 if bench.quick else 2):
        found = {}
        wanted = taken(bench, names)
        for name in wanted if number % 2 else wanted[::-1]:
            folder = bench.scratch / f"{program}-{name}-{number}"
            folder.mkdir()
            command = [sys.executable, "-P", "-W", "ignore", PROGRAM, program, name, folder, size]
            done = subprocess.run(list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
            if done.returncode:
                raise RuntimeError(f"{name} failed:\n{done.stderr}")
            found[name] = [float(word) for word in done.stdout.split()[-2:]]
        rounds.append({name: found[name] for name in wanted})
    return rounds


def readers(bench: Bench) -> None:
    """Eight processes that read all of one table."""
    size = (32 if bench.quick else 256) * MIB
    rounds = answered(bench, "readers", TABLES, size)
    what = f"8 processes have a table of numbers and text of {size // MIB} MiB and read all of it"
    every = dict.fromkeys(TABLES[1:])
    bench.report(what, [{name: took[:1] for name, took in each.items()} for each in rounds], every)
    memory = [{name: took[1:] for name, took in each.items()} for each in rounds]
    bench.report(f"{what}: memory of all processes, servers included (PSS)", memory, every, "bytes")


def killed(bench: Bench) -> None:
    """The process that puts a table again and again is killed."""
    size = (8 if bench.quick else 64) * MIB
    rounds = answered(bench, "killed", TABLES, size)
    lost = [name for name in rounds[0] if any(each[name][1] for each in rounds)]
    assert OURS not in lost
    what = f"a process that replaces a table of {size // MIB} MiB is killed: until another one has the table"
    if lost:
        what += f"; lost with it, and put again: {', '.join(lost)}"
    took = [{name: values[:1] for name, values in each.items()} for each in rounds]
    bench.report(what, took, dict.fromkeys(TABLES[1:]))


PARTS = {"absent": absent, "objects": objects, "readers": readers, "killed": killed}
