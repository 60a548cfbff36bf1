"""Cold: from the start of ``python -c`` to the first value, in processes that have done nothing before.

Every turn is a fresh process, in an environment of its own (``build/cold``) that has what shmarrow needs, pyarrow, and
no pandas, which pyarrow would import where it finds it; all are of the versions that this environment has. Bytecode is
cached, and pages are in memory, as the first turn is not counted. Both sides open the same file, which pyarrow wrote:
5 columns of float64 in shared memory.

Three figures come from one process: the whole time, from the moment before the parent starts it; what the imports take;
and the attach alone, the first in its process, with whatever it imports late. The second table says what the whole time
is made of. numpy is imported first, on both sides, so that its share can be seen.

The last row is ours alone: a process that has imported numpy imports shmarrow, opens a store and gets a tensor and a
record batch from it, with a column as an ndarray.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _bench import AS_FAST, Bench, bench, duration, faster

import shmarrow as sa

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "build" / "cold"
NEEDS = ("flatbuffers", "lz4", "numpy", "posix_ipc", "pyarrow", "zstandard")

PROCESS = """
from time import monotonic as clock
times = [clock()]
import sys
import numpy
times.append(clock())
{imports}
times.append(clock())
before = set(sys.modules)
value = {expression}
times.append(clock())
late = sorted(set(sys.modules) - before)
import json
print(json.dumps([times, float(value), late, "pandas" in sys.modules]))
"""
PARTS = ("python itself", "`import numpy`", "the package", "the attach")

SIDES = {
    "shmarrow": PROCESS.format(
        imports="import shmarrow as sa",
        expression="sa.ipc.open_file(sys.argv[1]).get_batch(0).column(0).to_numpy()[0]",
    ),
    "pyarrow": PROCESS.format(
        imports="import pyarrow as pa; pa.array([0]).to_numpy()",  # whose first use looks for pandas
        expression="pa.ipc.open_file(pa.memory_map(sys.argv[1])).get_batch(0).column(0).to_numpy()[0]",
    ),
}

STORE = PROCESS.format(
    imports="import shmarrow as sa; store = sa.Store(sys.argv[1], create=False)",
    expression="store['tensor'][1] + store['batch']['c0'].to_numpy()[0]",
)
FIRST_OBJECTS = 0.03
"""Seconds that this may take beyond numpy's import."""


def environment() -> Path:
    """The interpreter of an environment without pandas, made where there is none yet."""
    python = ENVIRONMENT / "bin" / "python"
    wanted = "\n".join(f"{name}=={importlib.metadata.version(name)}" for name in NEEDS)
    said = ENVIRONMENT / "requirements.txt"
    if not said.exists() or said.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted.split()], check=True)
        said.write_text(wanted)
    return python


class Processes:
    """Fresh processes of both sides, and what they said."""

    def __init__(self, python: Path, path: Path) -> None:
        self.python = python
        self.path = path
        self.parts: dict[str, list[list[float]]] = {side: [] for side in SIDES}
        self.late: dict[str, list[str]] = {}

    def run(self, side: str) -> list[float]:
        """Seconds of each part of one process."""
        times, value, self.late[side], has_pandas = self._answer(SIDES[side], self.path)
        assert value == 0.5
        assert not has_pandas
        self.parts[side].append(times)
        return times

    def first_objects(self, store: Path, turns: int) -> list[float]:
        """Seconds from the import of numpy to a tensor and a batch of a store; the first turn is not counted."""
        found = [self._answer(STORE, store) for _ in range(1 + turns)]
        assert all(value == 2.5 for _, value, _, _ in found)
        return [times[2] + times[3] for times, *_ in found[1:]]

    def _answer(self, code: str, path: Path) -> tuple[list[float], float, list[str], bool]:
        """The seconds of each part of one process, and what it said."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        started = time.monotonic()
        found = subprocess.run(
            [self.python, "-c", code, path],
            env=kept | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        times, value, late, has_pandas = json.loads(found.stdout)
        return np.diff([started, *times]).tolist(), value, late, has_pandas

    def row(self, page: Bench, what: str, choose: Callable[[list[float]], float], required: Any, turns: int) -> None:
        """One row of the page, of which the operation gives the seconds."""
        sides = {side: lambda turn, side=side: choose(self.run(side)) for side in SIDES}
        page.row(what, sides, required, turns, time=lambda operation, given: operation(given))

    def show(self) -> None:
        """Print what the time of each side is made of."""
        medians = {side: np.median(parts, axis=0).tolist() for side, parts in self.parts.items()}
        print(f"\n| the time of a process | {' | '.join(SIDES)} |\n| --- | --- | --- |")
        for number, part in enumerate(PARTS):
            print(f"| {part} | {' | '.join(duration(medians[side][number]) for side in SIDES)} |")
        floor = statistics.median(sum(parts[:2]) for parts in self.parts["shmarrow"])
        peer = statistics.median(sum(parts) for parts in self.parts["pyarrow"])
        print(
            f"\nA process that imports numpy and does nothing else is {peer / floor:.2f} times faster than pyarrow's."
        )
        print(f"Imported by the attach: {json.dumps(self.late)}")


def main() -> None:
    with bench("Cold") as page:
        path = page.scratch / "cold"
        batch = pa.record_batch({f"c{i}": np.arange(1, 101) / 2 for i in range(5)})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        processes = Processes(environment(), path)
        processes.row(page, "from the start of `python -c` to the first value", sum, faster(2), 10)
        processes.row(page, "the attach alone, imports done", lambda parts: parts[3], AS_FAST, 10)
        with sa.Store(page.scratch / "store") as store:
            store["tensor"] = np.arange(3.0) + 1
            store["batch"] = batch
        turns = 5 if page.quick else 25
        text = "`import shmarrow`, open a store, get a tensor and a batch"
        page.limit(text, processes.first_objects(page.scratch / "store", turns), FIRST_OBJECTS, duration)
        processes.show()


if __name__ == "__main__":
    main()
