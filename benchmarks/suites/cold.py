"""Fresh processes: from the start of ``python -c`` to the first value, and imports.

Every turn is a process that has done nothing before. pandas is hidden from both sides, as pyarrow would import it where
it finds it. Bytecode is cached, and pages are in memory, as the first turn is not counted. Both sides open the same
file, which pyarrow wrote: 5 columns of float64 in shared memory. numpy is imported first on both sides, so that its
share can be seen.

One process gives the whole time, from the moment before its parent starts it; what its imports take; and the attach
alone, the first in its process, with whatever it imports late.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness.bench import Bench, elapsed
from harness.figures import AS_FAST, faster, within
from harness.memory import ENVIRONMENT, fresh

import shmarrow as sa

PROCESS = """
from time import monotonic as clock
times = [clock()]
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoPandas())
import numpy
times.append(clock())
{imports}
times.append(clock())
value = {expression}
times.append(clock())
import json
print(json.dumps([times, float(value)]))
"""
STEPS = ("python itself", "import numpy", "the package", "the attach")

SIDES = {
    "shmarrow": PROCESS.format(
        imports="import shmarrow as sa",
        expression="sa.ipc.open_file(sys.argv[1]).get_batch(0).column(0).to_numpy()[0]",
    ),
    "pyarrow": PROCESS.format(
        imports="import pyarrow as pa; pa.array([0]).to_numpy()",  # the first use looks for pandas
        expression="pa.ipc.open_file(pa.memory_map(sys.argv[1])).get_batch(0).column(0).to_numpy()[0]",
    ),
}
STORE = PROCESS.format(
    imports="import shmarrow as sa; store = sa.Store(sys.argv[1], create=False)",
    expression="store['tensor'][1] + store['batch']['c0'].to_numpy()[0]",
)
FIRST_OBJECTS = 0.03
"""Seconds that this may take beyond numpy's import."""

IMPORT = "from time import perf_counter as clock\nstart = clock()\nimport {}\nprint(clock() - start)"


def answer(code: str, path: Path) -> tuple[list[float], float]:
    """The seconds of each step of one process, and the value that it found."""
    started = time.monotonic()
    command = [sys.executable, "-P", "-c", code, path]
    found = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    times, value = json.loads(found.stdout)
    return np.diff([started, *times]).tolist(), value


def a_batch() -> Any:
    return pa.record_batch({f"c{i}": np.arange(1, 101) / 2 for i in range(5)})


def first_value(bench: Bench) -> None:
    path = bench.scratch / "cold"
    batch = a_batch()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    sides = list(SIDES)[:1] if bench.options.only_ours else list(SIDES)
    rounds: list[dict[str, list[list[float]]]] = []
    for number in range(1 + bench.options.rounds):
        rounds.append({side: [] for side in sides})
        for turn in range(1 if bench.quick or not number else 8):
            for side in sides if turn % 2 else sides[::-1]:
                steps, value = answer(SIDES[side], path)
                assert value == 0.5
                rounds[-1][side].append(steps)
    counted = rounds[1:]

    def of(choose: Any) -> list[dict[str, list[float]]]:
        return [{side: [choose(steps) for steps in took] for side, took in each.items()} for each in counted]

    made_of = {
        side: dict(zip(STEPS, np.median([steps for each in counted for steps in each[side]], 0).tolist(), strict=True))
        for side in sides
    }
    bench.report("from the start of `python -c` to the first value", of(sum), faster(2), extra={"parts": made_of})
    bench.report("the attach alone, imports done", of(lambda steps: steps[3]), AS_FAST)


def first_objects(bench: Bench) -> None:
    """From the import of numpy to a tensor and a batch of a store."""
    path = bench.scratch / "store"
    with sa.Store(path) as store:
        store["tensor"] = np.arange(3.0) + 1
        store["batch"] = a_batch()
    found = [answer(STORE, path) for _ in range(4 if bench.quick else 21)][1:]
    assert all(value == 2.5 for _, value in found)
    what = "`import shmarrow`, open a store, get a tensor and a batch"
    # The median is held to the limit; a fresh process that lost its processor says nothing about the package.
    bench.limit(what, [steps[2] + steps[3] for steps, _ in found], FIRST_OBJECTS)


def imports(bench: Bench) -> None:
    """Import in fresh interpreters."""
    programs = {"shmarrow": "shmarrow", "`import numpy`": "numpy", "pyarrow": "pyarrow"}
    sides = {side: lambda _, module=module: fresh(IMPORT.format(module))[0] for side, module in programs.items()}
    required = within(1.2)
    bench.row("`import shmarrow`, fresh interpreter", sides, required, 10, time=elapsed)


PARTS = {"first-value": first_value, "first-objects": first_objects, "imports": imports}
