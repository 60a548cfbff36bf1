"""At scale: a file of a terabyte with 100,000 batches, and 64 processes that read one file.

A million names are in the suite ``store``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness.bench import Bench, Operation
from harness.figures import Faster, Point
from harness.memory import fresh

import shmarrow as sa
from suites import _sparse
from suites.opening import ours, pyarrows

TERABYTE = 10**12
BATCHES = 100_000
MIB = 1 << 20


def terabyte(bench: Bench) -> None:
    """Open, and read from anywhere; on disk, as files with holes in memory are not mapped."""
    folder = Path(bench.stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
    huge, one = folder / "huge.arrow", folder / "one.arrow"
    _sparse.write(huge, TERABYTE, BATCHES)
    _sparse.write(one, TERABYTE // BATCHES, 1)
    assert huge.stat().st_size >= TERABYTE
    which = np.random.default_rng(0).integers(0, BATCHES, 100_000).tolist()
    np.testing.assert_array_equal(ours(str(huge), 2, which[0]), pyarrows(str(huge), 2, which[0]))
    sides: dict[str, Operation] = {
        "shmarrow": lambda turn: ours(str(huge), 2, which[turn]),
        "itself, 1 batch": lambda turn: ours(str(one), 2),
        "pyarrow": lambda turn: pyarrows(str(huge), 2, which[turn]),
    }
    what = f"1 TB, {BATCHES:,} batches"
    required = Faster(1 / 1.3, "at most 1.3 times the time")
    bench.row(f"{what}: open, one column of any batch", sides, required, 20, lambda turn: turn, block=10)
    mine, theirs = (fresh(OPEN[side], huge, which[0], one) for side in ("shmarrow", "pyarrow"))
    what_first = f"{what}: open in a fresh process that has opened one batch, one column"
    bench.limit(what_first, [mine[0]], None, peers={"pyarrow": theirs[0]})
    bench.limit(f"{what_first}: memory", [mine[1]], None, "bytes", peers={"pyarrow": theirs[1]})


MEASURED = """
import sys, time
{imports}
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before, start = peak(), time.perf_counter()
value = {expression}
took = time.perf_counter() - start
assert value == 0
print(took, peak() - before)
"""
OPEN = {
    "shmarrow": MEASURED.format(
        imports="import shmarrow as sa\nsa.ipc.open_file(sys.argv[3]).get_batch(0).column(2).to_numpy()[0]",
        expression="sa.ipc.open_file(sys.argv[1]).get_batch(int(sys.argv[2])).column(2).to_numpy()[0]",
    ),
    "pyarrow": MEASURED.format(
        imports="import pyarrow as pa\npa.ipc.open_file(pa.memory_map(sys.argv[3])).get_batch(0)[2].to_numpy()[0]",
        expression="pa.ipc.open_file(pa.memory_map(sys.argv[1])).get_batch(int(sys.argv[2])).column(2).to_numpy()[0]",
    ),
}


def readers(bench: Bench) -> None:
    """Processes that read one file at the same time: how fast, and in how much memory."""
    size = (16 if bench.quick else 256) * MIB
    path = bench.scratch / "read.arrow"
    values = np.random.default_rng(0).random((32, size // 8 // 32))
    batch = sa.record_batch({f"c{i}": column for i, column in enumerate(values)})
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
    program = (Path(__file__).parent / "_readers.py").read_text()
    sides = ["shmarrow"] if bench.options.only_ours else ["shmarrow", "pyarrow, memory_map", "pyarrow, copied"]
    text = f"{size // MIB} MiB"
    for processes in (1, 16) if bench.quick else (1, 4, 16, 64):
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        # 64 copies do not fit everywhere.
        fits = [side for side in sides if side != "pyarrow, copied" or processes * size < _available() // 2]
        for turn in range(1 if bench.quick else 3):
            for side in fits if turn % 2 else fits[::-1]:
                seconds, memory = fresh(program, side, path, processes, 0.3 if bench.quick else 0.5)
                found[side].append((seconds, memory))
        many = f"{processes} process{'es' if processes > 1 else ''} over {text}"
        rounds: list[dict[str, Any]] = [
            {side: [found[side][turn][0]] for side in fits} for turn in range(len(found["shmarrow"]))
        ]
        point = Point("Sum a column, all readers together", "readers", processes)
        bench.report(f"{many}: columns summed", rounds, None, "s/op", point)
        point = Point(f"Memory (PSS) of all readers of {text}", "readers", processes)
        memory = [each for _, each in found["shmarrow"]]
        peers = {side: float(np.median([each for _, each in found[side]])) for side in fits[1:]}
        bench.limit(f"{many}: memory of all (PSS)", memory, None, "bytes", peers=peers, point=point)


def _available() -> int:
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:")[1].split()[0]) * 1024


PARTS = {"terabyte": terabyte, "readers": readers}
