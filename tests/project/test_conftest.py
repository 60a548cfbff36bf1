"""The run itself: what tests leave in shared memory fails it, in several processes, too; tests keep to their tier."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from environment import ROOT, remove_shm, shm_entries
from tiers import TIERS, tier_of

LEAVES = """
import pytest
from environment import PREFIX, SHM

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    if number == 3:
        (SHM / f"{PREFIX}left").touch()
"""


def test_what_is_left_fails_the_run(tmp_path: Path) -> None:
    """A file of tests, in two processes, with the hooks of ``conftest.py``."""
    path = tmp_path / "test_it.py"
    path.write_text(LEAVES)
    # In CI other tests of this run, in other processes, have objects of their own now.
    mine = {name: value for name, value in os.environ.items() if name != "CI" and "PYTEST" not in name}
    paths = [str(ROOT / part) for part in ("", "tests", "tests/support")]
    mine |= {"PYTHONPATH": os.pathsep.join(paths), "SHMARROW_TEST_RUN": f"sa-test-inner-{os.getpid()}-"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "-n", "2", path]
    try:
        ran = subprocess.run(command, cwd=tmp_path, env=mine, capture_output=True, text=True, timeout=110, check=False)
    finally:
        for name in shm_entries():
            if name.startswith(mine["SHMARROW_TEST_RUN"]):
                remove_shm(name)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "the tests left 1 objects" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("4 passed")


def test_the_table_of_tiers_names_files_and_folders() -> None:
    listed = {member for members in TIERS.values() for member in members}
    assert sorted(member for member in listed if not (ROOT / "tests" / member).exists()) == []
    assert tier_of(ROOT / "tests" / "spark" / "test_spark_share.py") == "spark"
    assert tier_of(ROOT / "tests" / "store" / "test_store.py") == "processes"
    assert tier_of(ROOT / "tests" / "ipc" / "test_ipc.py") == tier_of(Path("/elsewhere/test_it.py")) == "unit"
