"""The benchmarks' harness: its statistics against figures worked out by hand, and one small row from end to end."""

from __future__ import annotations

import importlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from environment import ROOT

BENCHMARKS = ROOT / "benchmarks"
PLACE = ("opening", "few", "a row")


@pytest.fixture(scope="module")
def figures() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("harness.figures")


# The medians of the rounds are 2, 4, 3 for us and 8, 8, 9 for the peer: ratios 4, 2, 3, whose median is 3. All six of
# our turns are 1, 2, 3, 3, 4, 5, and all of the peer's 7, 8, 8, 8, 9, 10.
ROUNDS = [
    {"shmarrow": [1.0, 3.0], "peer": [8.0, 8.0]},
    {"shmarrow": [3.0, 5.0], "peer": [7.0, 9.0]},
    {"shmarrow": [2.0, 4.0], "peer": [8.0, 10.0]},
]


def test_a_ratio_is_the_median_of_the_rounds_and_its_spread_their_extremes(figures: Any) -> None:
    (row,) = figures.compared(PLACE, ROUNDS, figures.faster(2.5))
    assert (row["ours"], row["peers"]) == (3.0, {"peer": 8.0})
    assert (row["ratio"], row["low"], row["high"]) == (3.0, 2.0, 4.0)
    assert row["reached"]
    assert row["doubtful"], "one round has a ratio of 2, below 2.5"
    assert (row["result"], row["required"]) == ("3×", "2.5 times faster")


def test_a_difference_is_held_to_its_limit(figures: Any) -> None:
    rounds = [{"shmarrow": [0.030], "numpy": [0.020]}, {"shmarrow": [0.050], "numpy": [0.020]}]
    (row,) = figures.compared(PLACE, rounds, figures.Extra(0.015, "at most 15 ms more"))
    assert row["result"] == "+20 ms", "the median of 10 and 30 ms"
    assert row["reached"] is False
    assert row["doubtful"]
    assert row["ratio"] == pytest.approx((2 / 3 + 2 / 5) / 2)


def test_the_rows_for_users_are_sorted_into_faster_and_slower(figures: Any) -> None:
    """A row beside two peers has one line for each, with the spread only where the ratio of that peer was measured."""
    front = importlib.import_module("harness.front")
    rounds = [
        {"shmarrow": [2.0], "a": [4.0], "b": [1.0], "c": [6.0]},
        {"shmarrow": [2.0], "a": [5.0], "b": [1.0], "c": [6.0]},
    ]
    rows = figures.compared(PLACE, rounds, {"a": None, "b": None})
    chosen = [front.Shown("opening", "a r", peer, f"open {peer}", peer.upper(), "why", "advice") for peer in "abcd"]
    found = [(each.what, each.ratio, each.spread) for each in front.fast(rows, chosen)]
    assert found == [("open c", 3.0, ""), ("open a", 2.25, "2× to 2.50×")], "d was not measured"
    assert [(each.instead, each.theirs, each.ratio) for each in front.slow(rows, chosen)] == [("B", "1 s", 0.5)]


def test_a_row_from_end_to_end(tmp_path: Path) -> None:
    """One row, measured as ``make bench-quick`` does."""
    pytest.importorskip("polars")
    file = tmp_path / "results.json"
    words = ["--quick", "--parts", "opening.few", "--rows", "schema seen before", "--json", file]
    done = subprocess.run([sys.executable, BENCHMARKS / "run.py", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rows; 0 of 0 requirements reached" in done.stdout
    found = json.loads(file.read_text())
    assert found["quick"]
    assert found["failed"] == found["skipped"] == []
    assert found["groups"]["opening"]["parts"].keys() == {"few"}
    assert {"processor", "cores", "memory", "kernel", "python", "load", "versions"} <= found["machine"].keys()
    (row,) = found["rows"]
    assert (row["group"], row["part"], row["unit"], row["reached"]) == ("opening", "few", "s", None)
    assert list(row["peers"]) == ["pyarrow", "polars"]
    assert row["peer"] == "pyarrow"
    assert row["low"] <= row["ratio"] <= row["high"]


def test_the_parts_that_ran_replace_those_of_the_same_name(figures: Any) -> None:
    def made(group: str, parts: list[str], value: int) -> dict[str, Any]:
        rows = [{"group": group, "part": part, "name": "a row", "ours": value} for part in parts]
        groups = {group: {"title": group, "parts": dict.fromkeys(parts, 1.0), "seconds": float(len(parts))}}
        skipped = [{"part": f"{group}.{part}", "reason": f"{value}"} for part in parts]
        return {"groups": groups, "rows": rows, "skipped": skipped, "failed": [], "seconds": 0}

    run = importlib.import_module("run")
    found = run.updated(
        run.updated(made("store", ["small"], 1), made("opening", ["few", "wide"], 2)), made("opening", ["few"], 3)
    )
    rows = [("opening", "wide", 2), ("opening", "few", 3), ("store", "small", 1)]
    assert [(row["group"], row["part"], row["ours"]) for row in found["rows"]] == rows
    skipped = {each["part"]: each["reason"] for each in found["skipped"]}
    assert skipped == {"store.small": "1", "opening.wide": "2", "opening.few": "3"}
    assert found["groups"]["opening"] == {"title": "opening", "parts": {"few": 1.0, "wide": 1.0}, "seconds": 2.0}
    assert list(found["groups"]) == ["opening", "store"]
    assert found["seconds"] == 3


def test_a_suite_ends_with_the_run_that_started_it() -> None:
    suite = (
        "import os, signal, sys; sys.argv[1:] = []; import run; run.end_with_parent(os.getppid())\n"
        "print('ready', flush=True); signal.pause()"
    )
    run = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {suite!r}])"
    process = subprocess.Popen([sys.executable, "-c", run], cwd=BENCHMARKS, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    with process.stdout as output:
        assert select.select([output], [], [], 10)[0], "the suite holds the pipe open for as long as it runs"
        assert output.read() == ""
