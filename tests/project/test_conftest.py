"""The run itself: what tests leave in shared memory fails it, also when they run in several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environment import ROOT, SHM, remove_shm, shm_entries

LEAVES = """
import pytest
from environment import PREFIX, SHM

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    if number == {number}:
        (SHM / f"{{PREFIX}}left").touch()
"""

PATHS = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]

pytestmark = pytest.mark.skipif(not SHM.is_dir(), reason=f"there is no {SHM} here")


@pytest.mark.parametrize(
    ("number", "options", "status"),
    [
        pytest.param(3, [], 1, id="left, one process"),
        pytest.param(3, ["-n", "2"], 1, id="left, two processes"),
        pytest.param(4, [], 0, id="clean"),
    ],
)
def test_what_is_left_fails_the_run(tmp_path: Path, options: list[str], number: int, status: int) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(LEAVES.format(number=number))
    # In CI other tests of this run, in other processes, have objects of their own now.
    mine = {name: value for name, value in os.environ.items() if name != "CI" and "PYTEST" not in name}
    mine |= {"PYTHONPATH": os.pathsep.join(PATHS), "SHMARROW_TEST_RUN": f"sa-test-inner-{os.getpid()}-"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", *options, path]
    try:
        ran = subprocess.run(command, cwd=tmp_path, env=mine, capture_output=True, text=True, timeout=110, check=False)
    finally:
        for name in shm_entries():
            if name.startswith(mine["SHMARROW_TEST_RUN"]):
                remove_shm(name)
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert ("the tests left 1 objects" in ran.stdout) == (status == 1)
    assert ran.stdout.splitlines()[-1].startswith("4 passed")
