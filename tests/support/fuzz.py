"""Look for inputs that break a promise, for some minutes, with seeds that no run had before: ``make fuzz``.

Mutations (``hostile.py``) take all processors but one; on that one, the property tests run again and again, each time
with a new seed. What is found is printed with the command that has it again, and the exit status is 1.

``python tests/support/fuzz.py --first NUMBER --count COUNT`` exercises just these mutations, however long that takes.
With ``--exports`` mutations go to pyarrow, polars, DuckDB and nanoarrow (``other_libraries.py``) instead of our own
readers; with ``--store`` they are control files of stores (``hostile_store.py``), which takes root, and with
``--tensors`` messages and bundles of tensors (``fuzz_tensors.py``).
"""

from __future__ import annotations

import argparse
import atexit
import os
import pkgutil
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import hostile

ROOT = Path(__file__).resolve().parents[2]
_PART = 10_000
CORPORA = {
    "exports": ("hostile.mutation", "other_libraries.exported", "hand the columns to other libraries"),
    "store": ("hostile_store.mutation", "hostile_store.exercise", "open stores with changed control files"),
    "tensors": ("fuzz_tensors.mutation", "fuzz_tensors.exercise", "read tensors and bundles of them"),
}
"""Other inputs, what is done with them, and what that is: ``module.function``."""


def parts(first: int, number: int | None) -> Iterator[range]:
    """The numbers of mutations, in ranges of at most 10,000; without end where no number is given."""
    for start in count(first, _PART) if number is None else range(first, first + number, _PART):
        yield range(start, start + _PART if number is None else min(start + _PART, first + number))


def mutations(
    ranges: Iterator[range],
    deadline: float,
    processes: int,
    use: hostile.Use,
    options: str,
    inputs: hostile.Inputs,
) -> int:
    """Exercise mutations until there are no more, or the time is up; gives how many findings there were."""
    started, total, found = time.monotonic(), 0, 0
    outcomes: dict[str, int] = {}
    lock = threading.Lock()

    def work() -> None:
        nonlocal total, found
        while (left := deadline - time.monotonic()) > 0:
            with lock:
                part = next(ranges, None)
            if part is None:
                return
            counts, findings = hostile.run(inputs, part, left, use)
            with lock:
                total += sum(counts.values())
                found += len(findings)
                for outcome, number in counts.items():
                    outcomes[outcome] = outcomes.get(outcome, 0) + number
                for finding in findings:
                    print(f"\nmutation {finding.name}: {finding.what}")
                    again = f"python tests/support/fuzz.py --first {finding.name} --count 1{options}"
                    print(f"reproduce with: {again}", flush=True)
                print(f"{total:,} mutations in {time.monotonic() - started:.0f} s: {outcomes}", flush=True)

    with ThreadPoolExecutor(processes) as pool:
        for future in [pool.submit(work) for _ in range(processes)]:
            future.result()
    return found


def properties(chance: random.Random, deadline: float) -> int:
    """Run the property tests with one seed after another; gives how many runs failed."""
    tests = [
        path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "from hypothesis import" in path.read_text()
    ]
    runs = failed = 0
    while (left := deadline - time.monotonic()) > 0:
        options = ["-m", "hypothesis", "--hypothesis-profile=fuzz", f"--hypothesis-seed={chance.randrange(1 << 32)}"]
        options += [str(path.relative_to(ROOT)) for path in tests]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        try:
            ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=left, check=False)
        except subprocess.TimeoutExpired:
            break
        runs += 1
        if ran.returncode:
            failed += 1
            print(f"{ran.stdout}{ran.stderr}\nreproduce with: python -m pytest {' '.join(options)}", flush=True)
    print(f"{runs} runs of the property tests, {failed} of them failed", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description="Look for inputs that break a promise.")
    parser.add_argument("--seconds", type=float, default=600, help="how long to look; 600 by default")
    parser.add_argument("--seed", type=int, help="where all other numbers come from; a new one by default")
    parser.add_argument("--first", type=int, help="exercise only mutations, from this number on")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many of them; a million by default")
    for option, (_, _, text) in CORPORA.items():
        parser.add_argument(f"--{option}", action="store_const", const=option, dest="corpus", help=text)
    chosen = parser.parse_args()
    if chosen.corpus == "store":
        folder = tempfile.mkdtemp()
        os.chmod(folder, 0o755)
        os.environ["SHMARROW_HOSTILE_STORES"] = folder
        atexit.register(shutil.rmtree, folder, True)
    makes, uses, _ = CORPORA.get(chosen.corpus, ("hostile.mutation", "hostile.exercise", ""))
    inputs, use = (pkgutil.resolve_name(name.replace(".", ":")) for name in (makes, uses))
    how = use, f" --{chosen.corpus}" if chosen.corpus else "", inputs
    processors = os.cpu_count() or 1
    if chosen.first is not None:
        found = mutations(parts(chosen.first, chosen.count), float("inf"), processors, *how)
        print(f"{found} findings")
        return 1 if found else 0
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    print(f"seed {seed}, {chosen.seconds:.0f} s", flush=True)
    deadline = time.monotonic() + chosen.seconds
    with ThreadPoolExecutor(1) as pool:
        runs = pool.submit(properties, random.Random(seed), deadline)
        # Beyond the numbers that the tests themselves have.
        found = mutations(parts((1 << 20) * (seed + 1), None), deadline, max(processors - 1, 1), *how)
        found += runs.result()
    print(f"{found} findings with seed {seed}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
