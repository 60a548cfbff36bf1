"""Compares two checkouts of this package.

They cannot share a process, so a turn is a fresh process for each of them, one after the other; who goes first changes
from turn to turn. A row is marked as slower when both its median and its fastest turn are more than 10 % over the
base: other load on the machine disturbs the fastest turn least.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.bench import Options
from harness.figures import line, show

SLOWER = 1.1
HEADINGS = ("what", "current", "base", "current / base", "of the fastest", "")

Child = Callable[[str, Options, Path], list[dict[str, Any]]]
Key = tuple[str, str, str]


def compare(
    suites: Mapping[str, tuple[str, ...]], options: Options, checkouts: Mapping[str, Path], child: Child
) -> int:
    """Measure our side of all rows with both checkouts and print a table; 1 if any row is slower or failed."""
    turns = options.rounds
    status = 0
    for suite, parts in suites.items():
        each = replace(options, rounds=1, parts=parts)
        found: dict[str, dict[Key, list[Any]]] = {name: {} for name in checkouts}
        for turn in range(turns):
            for name in list(checkouts)[:: 1 if turn % 2 else -1]:
                print(f"{suite}, turn {turn + 1} of {turns}, {name}", flush=True)
                for record in child(suite, each, checkouts[name]):
                    if "failed" in record:
                        print(f"FAILED: {record['failed']}: {record['error']}")
                        status = 1
                    elif "ours" in record and "at least" not in record["required"]:  # less is better
                        key = record["group"], record["name"], record["unit"]
                        found[name].setdefault(key, []).append(record["ours"])
        status |= _table(found["current"], found["base"])
    return status


def _table(current: dict[Key, list[float]], base: dict[Key, list[float]]) -> int:
    print(f"\n{line(HEADINGS)}\n{line(['---'] * len(HEADINGS))}")
    marked = 0
    for key, mine in current.items():
        _, name, unit = key
        if key not in base:
            print(line([name, show(statistics.median(mine), unit), "not measured", "", "", ""]))
            continue
        middle, fastest = ratios(mine, base[key])
        slower = min(middle, fastest) > SLOWER
        marked += slower
        medians = [show(statistics.median(each), unit) for each in (mine, base[key])]
        print(line([name, *medians, f"{middle:.2f}", f"{fastest:.2f}", "**slower**" if slower else ""]))
    print(f"\n{marked} of {len(current)} rows are slower.", flush=True)
    return int(marked > 0)


def ratios(current: list[float], base: list[float]) -> tuple[float, float]:
    """Of the medians, and of the smallest: above 1 the current checkout takes more."""
    middle = statistics.median(base), min(base)
    return statistics.median(current) / (middle[0] or 1), min(current) / (middle[1] or 1)
