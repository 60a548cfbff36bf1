"""Memory of processes, as Linux counts it, and programs that run in fresh ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import shmarrow

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "PYTHONPATH": str(Path(shmarrow.__file__).parents[1]),
}
"""For processes that have to import the package that this one has, with its bytecode cached."""


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
