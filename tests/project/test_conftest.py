"""The run itself: what tests leave in shared memory fails it, in several processes, too; tests keep to their tier."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environment import ROOT, remove_shm, shm_entries
from tiers import TIERS, tier_of

LEAVES = """
import pytest
from environment import PREFIX, SHM

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    if number == {number}:
        (SHM / f"{{PREFIX}}left").touch()
"""

PATHS = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]


def run_inner(tmp_path: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with the hooks of ``conftest.py``."""
    path = tmp_path / "test_it.py"
    path.write_text(code)
    # In CI other tests of this run, in other processes, have objects of their own now.
    mine = {name: value for name, value in os.environ.items() if name != "CI" and "PYTEST" not in name}
    mine |= {"PYTHONPATH": os.pathsep.join(PATHS), "SHMARROW_TEST_RUN": f"sa-test-inner-{os.getpid()}-"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", *options, path]
    try:
        return subprocess.run(command, cwd=tmp_path, env=mine, capture_output=True, text=True, timeout=110, check=False)
    finally:
        for name in shm_entries():
            if name.startswith(mine["SHMARROW_TEST_RUN"]):
                remove_shm(name)


@pytest.mark.parametrize(
    ("number", "options", "status"),
    [pytest.param(3, ["-n", "2"], 1, id="left, two processes"), pytest.param(4, [], 0, id="clean")],
)
def test_what_is_left_fails_the_run(tmp_path: Path, options: list[str], number: int, status: int) -> None:
    ran = run_inner(tmp_path, LEAVES.format(number=number), *options)
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert ("the tests left 1 objects" in ran.stdout) == (status == 1)
    assert ran.stdout.splitlines()[-1].startswith("4 passed")


STARTS = """
import subprocess, sys
import pytest

def run():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_unmarked():
    run()

@pytest.mark.processes
def test_marked():
    run()
"""


def test_a_unit_test_that_starts_a_process_fails(tmp_path: Path) -> None:
    ran = run_inner(tmp_path, STARTS)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "test_unmarked is a unit test and starts a process" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("1 failed, 1 passed")


def test_the_table_of_tiers_names_files_and_folders() -> None:
    listed = {member for members in TIERS.values() for member in members}
    assert sorted(member for member in listed if not (ROOT / "tests" / member).exists()) == []
    assert tier_of(ROOT / "tests" / "spark" / "test_spark_share.py") == "spark"
    assert tier_of(ROOT / "tests" / "store" / "test_store.py") == "processes"
    assert tier_of(ROOT / "tests" / "ipc" / "test_ipc.py") == tier_of(Path("/elsewhere/test_it.py")) == "unit"
