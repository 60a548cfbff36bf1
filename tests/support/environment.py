"""The environment of the tests: the checkout, the names of this run in shared memory, pyarrow's version, mounts."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHM = Path("/dev/shm")
IN_CI = os.environ.get("CI") == "true"

# The workers of pytest-xdist inherit the environment, and with it the name of the run.
RUN = os.environ.setdefault("SHMARROW_TEST_RUN", f"sa-test-{os.getpid()}-")
PREFIX = f"{RUN}{os.getpid()}-"

# Spark would start its workers with whatever `python3` is on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def has_pyarrow(major: int) -> bool:
    """Whether the installed pyarrow has at least this major version."""
    return int(importlib.metadata.version("pyarrow").partition(".")[0]) >= major


def needs_pyarrow(major: int) -> None:
    """Skip the test if the installed pyarrow, which it compares with, is older than what it compares."""
    if not has_pyarrow(major):
        pytest.skip(f"compares with pyarrow {major} or newer, found {importlib.metadata.version('pyarrow')}")


def torch_or_skip() -> Any:
    """Return torch; skips the test without it: small builds, for CPUs, exist for some Python versions only."""
    return pytest.importorskip("torch", reason="torch is not installed: it has no small build for every Python")


def shm_entries() -> set[str]:
    """The names that stand in shared memory now."""
    return {entry.name for entry in SHM.iterdir()} if SHM.is_dir() else set()


def remove_shm(name: str) -> None:
    """Remove one file or folder from shared memory."""
    path = SHM / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def mounted(target: Path, *arguments: str) -> Iterator[Path]:
    """A file system of its own at ``target``, or a skipped test."""
    target.mkdir()
    ran = subprocess.run(["mount", *arguments, str(target)], capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"cannot mount a small file system here: {ran.stderr.strip()}")
    try:
        yield target
    finally:
        gc.collect()
        subprocess.run(["umount", "--lazy", str(target)], check=True)
