"""Memory of processes, as Linux counts it, and programs that run in fresh ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import shmarrow

KINDS = {"rss": "VmRSS", "peak": "VmHWM", "anonymous": "RssAnon"}
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "PYTHONPATH": str(Path(shmarrow.__file__).parents[1]),
}
"""For processes that have to import the package that this one has, with its bytecode cached."""


def resident(kind: str = "rss", process: int | str = "self") -> int:
    """Bytes that a process has in memory: "rss", the highest so far ("peak"), or the "anonymous" part."""
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(rf"^{KINDS[kind]}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def proportional(process: int | str = "self") -> int:
    """Bytes of a process where each page counts for its share (PSS): of one used by four processes, a quarter."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def fresh(program: str, *words: object) -> list[float]:
    """The numbers that a program prints in a process of its own."""
    command = [sys.executable, "-P", "-W", "ignore", "-c", program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr}")
    return [float(word) for word in done.stdout.split()]


COMMAND = """
import contextlib, io, json, sys, time
sys.argv[0] = "shmarrow"
before = time.perf_counter()
from shmarrow.cli import main
said = io.StringIO()
with contextlib.redirect_stdout(said):
    try:
        status = main()
    except SystemExit as end:
        status = end.code
took = time.perf_counter() - before
peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([took, peak, status or 0, len(said.getvalue())]))
"""


def command(*words: object) -> dict[str, Any]:
    """What a command of ``shmarrow`` takes in a fresh process, its imports included: seconds, and the peak of its RSS.

    Raises
    ------
    LookupError
        If there is no such command.
    RuntimeError
        If it fails.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMMAND, *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT
    )
    if "invalid choice" in done.stderr:
        raise LookupError(f"this checkout has no command {words[0]}")
    if done.returncode:
        raise RuntimeError(f"shmarrow {' '.join(map(str, words))} failed:\n{done.stderr}")
    seconds, peak, status, printed = json.loads(done.stdout.splitlines()[-1])
    if status:
        raise RuntimeError(f"shmarrow {' '.join(map(str, words))} ended with status {status}:\n{done.stderr}")
    return {"seconds": seconds, "peak": peak, "printed": printed}
