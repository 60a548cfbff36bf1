"""Exercise a million mutated inputs, or any range of them: ``python tests/fuzz_mutations.py [FIRST] [COUNT]``.

A number makes one input, so the number of a finding is enough to have it again:
``python tests/fuzz_mutations.py NUMBER 1``.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import hostile

_PART = 10_000


def main(first: int = 0, count: int = 1_000_000) -> int:
    """Run a range of mutations, a few processes at a time; gives how many findings there were."""
    started, done, total = time.monotonic(), 0, 0
    outcomes: dict[str, int] = {}
    parts = [range(start, min(start + _PART, first + count)) for start in range(first, first + count, _PART)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part, (counts, findings) in zip(
            parts, pool.map(lambda part: hostile.run(hostile.mutation, part), parts), strict=True
        ):
            done += len(part)
            total += len(findings)
            for outcome, number in counts.items():
                outcomes[outcome] = outcomes.get(outcome, 0) + number
            for finding in findings:
                print(f"\nmutation {finding.name}: {finding.what}", flush=True)
            print(f"{done:,} of {count:,} in {time.monotonic() - started:.0f} s: {outcomes}", flush=True)
    print(f"{total} findings")
    return total


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
